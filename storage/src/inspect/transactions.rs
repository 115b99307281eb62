//! What the batches say of transactions, against the transaction indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::Offset;

use super::PartitionReport;
use crate::batch_header::BatchHeader;
use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};
use crate::index::txn;
use crate::segment::file_name;
use crate::transactions::{AbortedTransaction, Marker};

/// The transactions of a log, batch by batch.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// From here on every batch is there that ever was: nothing was compacted or deleted.
    exact_from: Offset,
    open: BTreeMap<i64, Open>,
    /// Each producer's last marker.
    ended: BTreeMap<i64, Offset>,
    /// The abort markers of the segment that is looked at.
    aborts: BTreeMap<Offset, Abort>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    first: Offset,
    /// The first batch that has records: compaction leaves some without.
    first_record: Option<Offset>,
}

#[derive(Debug)]
struct Abort {
    producer: i64,
    /// The first batch of the transaction that is left.
    first: Option<Offset>,
    /// The producer's marker before this one: the transaction began behind it.
    before: Option<Offset>,
    /// What of the log must be left out for it begins here.
    first_record: Option<Offset>,
    /// How far the log was decided then, at most.
    stable_max: Offset,
    is_indexed: bool,
}

impl Transactions {
    /// Those of a log of which everything from `exact_from` on is there as it was written.
    pub(super) fn new(exact_from: Offset) -> Self {
        Self { exact_from, ..Self::default() }
    }

    /// Notes a batch, in offset order; of a control batch what it says.
    pub(super) fn note(&mut self, header: &BatchHeader, marker: Option<Marker>) {
        if header.producer_id < 0 {
            return;
        }
        let Some(marker) = marker else {
            if header.is_transactional() {
                let new = Open { first: header.base, first_record: None };
                let open = self.open.entry(header.producer_id).or_insert(new);
                if !header.is_emptied() {
                    open.first_record.get_or_insert(header.base);
                }
            }
            return;
        };
        if marker == Marker::Other {
            return;
        }
        let ended = self.open.remove(&header.producer_id);
        let before = self.ended.insert(header.producer_id, header.base);
        if let Marker::Abort(_) = marker {
            let others = self.open.values().map(|open| open.first);
            let abort = Abort {
                producer: header.producer_id,
                first: ended.map(|open| open.first),
                before,
                first_record: ended.and_then(|open| open.first_record),
                stable_max: others.min().unwrap_or(header.next()),
                is_indexed: false,
            };
            self.aborts.insert(header.base, abort);
        }
    }

    /// Checks the index of the segment whose batches were noted last: it begins at `base` and ends at `behind`.
    pub(super) fn check(
        &mut self,
        disk: &Arc<dyn Disk>,
        directory: &str,
        base: Offset,
        behind: Offset,
        report: &mut PartitionReport,
    ) -> Result<(), StorageError> {
        let path = join(directory, &file_name(base, txn::SUFFIX));
        let mut aborts = std::mem::take(&mut self.aborts);
        let bytes = disk.read(&path).doing("read", &path)?.unwrap_or_default();
        let (entries, rest) = bytes.as_chunks::<{ txn::ENTRY_BYTES }>();
        if !rest.is_empty() {
            report.find(&path, Some((bytes.len() - rest.len()) as u64), "ends in the middle of an entry");
        }
        let mut before = base - 1;
        for (number, entry) in entries.iter().enumerate() {
            let at = Some((number * txn::ENTRY_BYTES) as u64);
            let Some(named) = txn::decode(entry) else {
                report.find(&path, at, "entry is of a version that is not known");
                break;
            };
            if !txn::fits(&named, before, behind) {
                report.find(
                    &path,
                    at,
                    "entry does not follow the one before it, or names impossible offsets",
                );
                break;
            }
            before = named.last;
            let (producer, last) = (named.producer, named.last);
            let Some(abort) = aborts.get_mut(&last).filter(|abort| abort.producer == producer) else {
                report.find(&path, at, format!("no abort marker of producer {producer} is at offset {last}"));
                continue;
            };
            abort.is_indexed = true;
            for what in abort.contradictions(&named, self.exact_from) {
                report.find(&path, at, what);
            }
        }
        for (last, abort) in aborts.iter().filter(|(_, abort)| !abort.is_indexed) {
            if let Some(first) = abort.first_record {
                let producer = abort.producer;
                let what = format!("lacks producer {producer}'s aborted transaction from {first} to {last}");
                report.find(&path, None, what);
            }
        }
        Ok(())
    }

    /// First offset of the earliest transaction that is open.
    pub(super) fn first_open(&self) -> Option<Offset> {
        self.open.values().map(|open| open.first).min()
    }
}

impl Abort {
    /// What an entry says else than the batches. Of what was compacted or deleted they do not tell; but the transaction
    /// cannot begin before another one of the producer ended, nor behind a batch of its own.
    fn contradictions(&self, named: &AbortedTransaction, exact_from: Offset) -> Vec<String> {
        let mut found = Vec::new();
        let producer = self.producer;
        let is_exact = named.first >= exact_from;
        match (self.first, self.before) {
            (_, Some(before)) if named.first <= before => found.push(format!(
                "producer {producer} ended a transaction at {before}, this one cannot begin at {}",
                named.first
            )),
            (Some(first), _) if named.first > first || (is_exact && named.first != first) => found.push(
                format!("the transaction of producer {producer} began at {first}, not at {}", named.first),
            ),
            (None, _) if is_exact => found
                .push(format!("the transaction of producer {producer} has no batch from {} on", named.first)),
            _ => {}
        }
        let (stable, most) = (named.last_stable, self.stable_max);
        if stable > most || (stable >= exact_from && stable != most) {
            found.push(format!("was not stable up to {stable}, but to {most}"));
        }
        found
    }
}
