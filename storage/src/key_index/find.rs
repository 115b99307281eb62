//! The records of one key, for a planner that keeps only where they begin: what the index knows of them, without those
//! of aborted transactions.

use std::collections::BTreeMap;

use records::ids::{KeyHash, Offset, PartitionId};

use super::lookup::Effort;
use super::reader::Wanted;
use super::{KeyCache, KeyFilter};
use crate::batch_header::BatchHeader;
use crate::error::ReadError;
use crate::log::PartitionLog;
use crate::logs::Logs;
use crate::options::{KEY_FIND_BATCHES_MAX, KEY_FOUND_MAX};
use crate::scan::ScannedRecord;
use crate::transactions::AbortedTransaction;

/// What a search for the records of a key found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRecords {
    /// In offset order. Their bytes are those that a record of such a batch takes in the log, on average.
    pub records: Vec<ScannedRecord>,
    /// Everything below it is told; ask from here on for more.
    pub next: Offset,
}

impl Logs {
    /// The records of one key from `from` on (or from the log start on, where that is above it), below `upper`,
    /// `count_max` (at most [`KEY_FOUND_MAX`]) of them; with `committed` none of aborted transactions, up to a last stable
    /// offset. What is damaged has no key. A search is bounded, so it may end before `upper` with fewer and even none:
    /// ask again from `next` on, which is `upper` in the end, or the end of the log where that is below it.
    ///
    /// # Errors
    /// [`ReadError::UnknownPartition`]; what the disk says.
    pub fn find_key(
        &mut self,
        id: PartitionId,
        key: KeyHash,
        (from, upper): (Offset, Offset),
        committed: bool,
        count_max: usize,
    ) -> Result<KeyRecords, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        let open = self.logs.get_mut(&id).ok_or(ReadError::UnknownPartition)?;
        let wanted = Wanted { filter: KeyFilter::key(key), from, upper };
        let count_max = count_max.clamp(1, KEY_FOUND_MAX);
        open.log.find_key(&mut self.key_cache, wanted, key, (committed, count_max), inflated_max)
    }
}

impl PartitionLog {
    fn find_key(
        &mut self,
        cache: &mut KeyCache,
        wanted: Wanted,
        key: KeyHash,
        (committed, count_max): (bool, usize),
        inflated_max: usize,
    ) -> Result<KeyRecords, ReadError> {
        let facts = self.facts();
        let from = wanted.from.max(facts.log_start);
        if from >= wanted.upper {
            return Ok(KeyRecords { records: Vec::new(), next: wanted.upper });
        }
        if from >= facts.end {
            return Ok(KeyRecords { records: Vec::new(), next: from });
        }
        let wanted = Wanted { from, ..wanted };
        let matches = self.key_matches(cache, wanted, count_max, Effort::FIND, inflated_max)?;
        let mut found = KeyRecords { records: Vec::with_capacity(matches.offsets.len()), next: matches.next };
        let (Some(first), Some(last)) = (matches.offsets.first(), matches.offsets.last()) else {
            return Ok(found);
        };
        let aborted = if committed { self.aborted_between(*first, last.next())? } else { Vec::new() };
        let aborted = Aborted::new(aborted);
        let mut batches_left = KEY_FIND_BATCHES_MAX;
        let mut batch: Option<BatchHeader> = None;
        let mut estimate = (usize::MAX, 1);
        for &offset in &matches.offsets {
            let segment = self.segment_of(offset).unwrap_or_default();
            let is_doubtful = aborted.may_cover(offset);
            if (is_doubtful || segment != estimate.0) && !batch.is_some_and(|batch| holds(&batch, offset)) {
                if batches_left == 0 {
                    found.next = offset;
                    break;
                }
                batches_left -= 1;
                batch = self.header_at(offset)?;
            }
            if segment != estimate.0 {
                estimate = (segment, batch.map_or(1, |batch| record_bytes(&batch)));
            }
            let is_aborted =
                is_doubtful && batch.is_some_and(|batch| holds(&batch, offset) && aborted.cover(&batch));
            if !is_aborted {
                found.records.push(ScannedRecord { offset, key: Some(key), bytes: estimate.1 });
            }
        }
        Ok(found)
    }
}

fn holds(batch: &BatchHeader, offset: Offset) -> bool {
    batch.base <= offset && offset <= batch.last()
}

/// Stored bytes of a batch for each of its records.
fn record_bytes(batch: &BatchHeader) -> u32 {
    let count = u64::try_from(batch.record_count).unwrap_or(0).max(1);
    u32::try_from(batch.size / count).unwrap_or(u32::MAX)
}

/// Aborted transactions, to be asked by offset and by batch.
struct Aborted {
    /// Where any of them is, ascending and disjoint: from the first offset to below the second.
    spans: Vec<(Offset, Offset)>,
    /// Of each producer the transactions by their first offset.
    by_producer: BTreeMap<(i64, Offset), AbortedTransaction>,
}

impl Aborted {
    fn new(mut aborted: Vec<AbortedTransaction>) -> Self {
        aborted.sort_unstable_by_key(|txn| txn.first);
        let mut spans: Vec<(Offset, Offset)> = Vec::new();
        for txn in &aborted {
            match spans.last_mut() {
                Some((_, end)) if txn.first <= *end => *end = txn.last.max(*end),
                _ => spans.push((txn.first, txn.last)),
            }
        }
        let by_producer = aborted.into_iter().map(|txn| ((txn.producer, txn.first), txn)).collect();
        Self { spans, by_producer }
    }

    /// Whether a record at `offset` can be one of them.
    fn may_cover(&self, offset: Offset) -> bool {
        let behind = self.spans.partition_point(|(first, _)| *first <= offset);
        behind.checked_sub(1).is_some_and(|index| offset < self.spans[index].1)
    }

    /// Whether a batch is of one of them.
    fn cover(&self, batch: &BatchHeader) -> bool {
        let of = (batch.producer_id, Offset(i64::MIN))..=(batch.producer_id, batch.base);
        let last = self.by_producer.range(of).next_back();
        batch.is_transactional() && last.is_some_and(|(_, txn)| txn.covers(batch.producer_id, batch.base))
    }
}
