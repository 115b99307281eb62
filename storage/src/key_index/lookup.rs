//! Look-ups over the segments of a log: from the index where there is one, from the log where there is none.

use records::ids::Offset;

use super::build::KeyIndex;
use super::reader::{KeyFault, Wanted};
use super::scan::Found;
use super::segment::SegmentKeys;
use super::{KeyCache, KeyFilter, KeyHashes, KeyMatches, LastKeyMatch};
use crate::error::ReadError;
use crate::log::PartitionLog;
use crate::options::{
    KEY_FIND_BLOCKS_MAX, KEY_FIND_SCAN_BYTES, KEY_LOOKUP_BLOCKS_MAX, KEY_LOOKUP_SCAN_BYTES,
    KEY_SCAN_WINDOW_BYTES,
};

/// What one look-up may read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Blocks of the index.
    blocks: usize,
    /// Bytes of log where there is no index.
    scan_bytes: u64,
}

impl Effort {
    pub(super) const LOOKUP: Self = Self { blocks: KEY_LOOKUP_BLOCKS_MAX, scan_bytes: KEY_LOOKUP_SCAN_BYTES };
    pub(super) const FIND: Self = Self { blocks: KEY_FIND_BLOCKS_MAX, scan_bytes: KEY_FIND_SCAN_BYTES };
}

impl PartitionLog {
    /// See [`crate::Logs::key_hashes`].
    pub(crate) fn key_hashes(
        &mut self,
        cache: &mut KeyCache,
        from: Offset,
        upper: Offset,
        count_max: usize,
        inflated_max: usize,
    ) -> Result<KeyHashes, ReadError> {
        let upper = self.bounded(from, upper)?;
        let mut found = KeyHashes { next: from, ..KeyHashes::default() };
        let mut bytes_left = KEY_LOOKUP_SCAN_BYTES;
        while found.next < upper && found.records.len() < count_max && bytes_left > 0 {
            let at = found.next;
            let indexed = self.with_keys_at(cache, at, |keys, cache| {
                let KeyHashes { records, damaged, .. } = &mut found;
                keys.list(cache, (at, upper), count_max, records, damaged)
            });
            if let Some(next) = indexed {
                found.next = next;
                continue;
            }
            found.records.truncate(found.records.partition_point(|record| record.offset < at));
            found.damaged.retain(|(first, _)| *first < at);
            let end = self.unindexed_until(at, upper);
            let window = KEY_SCAN_WINDOW_BYTES.min(bytes_left);
            let inside = |offset: Offset| at <= offset && offset < end;
            let (next, bytes) = self.scan_keys(at, end, window, inflated_max, |piece| match piece {
                Found::Batch { records, .. } => {
                    found.records.extend(records.iter().filter(|record| inside(record.offset)));
                }
                Found::Damaged { first, last } => found.damaged.push((first, last)),
            })?;
            bytes_left = bytes_left.saturating_sub(bytes.max(1));
            found.next = next.min(end);
            if found.records.len() >= count_max {
                found.records.truncate(count_max);
                found.next = found.records.last().map_or(at, |record| record.offset.next());
            }
        }
        let next = found.next;
        found.damaged.retain(|(first, last)| *last >= from && *first < next);
        Ok(found)
    }

    /// See [`crate::Logs::key_matches`].
    pub(super) fn key_matches(
        &mut self,
        cache: &mut KeyCache,
        Wanted { filter, from, upper }: Wanted,
        count_max: usize,
        effort: Effort,
        inflated_max: usize,
    ) -> Result<KeyMatches, ReadError> {
        let upper = self.bounded(from, upper)?;
        let mut found = KeyMatches { offsets: Vec::new(), next: from };
        if filter.is_empty() {
            found.next = upper;
        }
        let (mut blocks_left, mut bytes_left) = (effort.blocks, effort.scan_bytes);
        while found.next < upper && found.offsets.len() < count_max && blocks_left > 0 && bytes_left > 0 {
            let at = found.next;
            let wanted = Wanted { filter, from: at, upper };
            let offsets = &mut found.offsets;
            let indexed = self.with_keys_at(cache, at, |keys, cache| {
                keys.first_matches(cache, &wanted, count_max, &mut blocks_left, offsets)
            });
            if let Some(next) = indexed {
                found.next = next;
                continue;
            }
            offsets.truncate(offsets.partition_point(|offset| *offset < at));
            let end = self.unindexed_until(at, upper);
            let window = KEY_SCAN_WINDOW_BYTES.min(bytes_left);
            let (next, bytes) = self.scan_keys(at, end, window, inflated_max, |piece| {
                if let Found::Batch { records, .. } = piece {
                    let inside = records.iter().filter(|record| at <= record.offset && record.offset < end);
                    let matches = inside.filter(|record| filter.matches(record.offset, record.key));
                    offsets.extend(matches.map(|record| record.offset));
                }
            })?;
            bytes_left = bytes_left.saturating_sub(bytes.max(1));
            found.next = next.min(end);
            if offsets.len() >= count_max {
                offsets.truncate(count_max);
                found.next = offsets.last().map_or(at, |last| last.next());
            }
        }
        Ok(found)
    }

    /// See [`crate::Logs::last_key_match`].
    pub(crate) fn last_key_match(
        &mut self,
        cache: &mut KeyCache,
        filter: KeyFilter,
        from: Offset,
        below: Offset,
        inflated_max: usize,
    ) -> Result<LastKeyMatch, ReadError> {
        let mut found = LastKeyMatch { offset: None, searched_from: self.bounded(from, below)?.max(from) };
        if filter.is_empty() {
            found.searched_from = from;
        }
        let (mut blocks_left, mut bytes_left) = (KEY_LOOKUP_BLOCKS_MAX, KEY_LOOKUP_SCAN_BYTES);
        while found.searched_from > from && found.offset.is_none() && blocks_left > 0 && bytes_left > 0 {
            let upper = found.searched_from;
            let wanted = Wanted { filter, from, upper };
            let indexed = self.with_keys_at(cache, upper - 1, |keys, cache| {
                keys.last_match(cache, &wanted, &mut blocks_left)
            });
            if let Some((offset, searched_from)) = indexed {
                found = LastKeyMatch { offset, searched_from };
                continue;
            }
            let begin = self.unindexed_from(upper, from)?;
            let mut at = begin;
            while at < upper {
                let (next, bytes) =
                    self.scan_keys(at, upper, KEY_SCAN_WINDOW_BYTES, inflated_max, |piece| {
                        if let Found::Batch { records, .. } = piece {
                            let inside = records
                                .iter()
                                .filter(|record| from <= record.offset && record.offset < upper);
                            let mut matches =
                                inside.filter(|record| filter.matches(record.offset, record.key));
                            found.offset =
                                matches.next_back().map_or(found.offset, |record| Some(record.offset));
                        }
                    })?;
                bytes_left = bytes_left.saturating_sub(bytes.max(1));
                at = next;
            }
            found.searched_from = found.offset.unwrap_or(begin);
        }
        Ok(found)
    }

    fn bounded(&self, from: Offset, upper: Offset) -> Result<Offset, ReadError> {
        let facts = self.facts();
        if from < facts.log_start || from > facts.end {
            return Err(ReadError::OutOfRange { from, log_start: facts.log_start, end: facts.end });
        }
        Ok(upper.min(facts.end))
    }

    /// Answers from the index of the segment that `offset` is in; `None` where it does not cover it, or turns out to
    /// be damaged. What `ask` has added by then does not count.
    fn with_keys_at<T>(
        &mut self,
        cache: &mut KeyCache,
        offset: Offset,
        ask: impl FnOnce(&mut SegmentKeys, &mut KeyCache) -> Result<T, KeyFault>,
    ) -> Option<T> {
        let mut index = self.take_keys()?;
        let answer = self.ask_keys(&mut index, cache, offset, ask);
        self.put_keys(index);
        answer
    }

    fn ask_keys<T>(
        &self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        offset: Offset,
        ask: impl FnOnce(&mut SegmentKeys, &mut KeyCache) -> Result<T, KeyFault>,
    ) -> Option<T> {
        let truth = self.key_truth(self.segment_of(offset)?);
        let keys = index.of(&truth);
        let answer = match keys.load(&truth, cache) {
            Ok(()) if keys.covered().contains(&offset) => ask(keys, cache),
            Ok(()) => return None,
            Err(fault) => Err(fault),
        };
        let answer = match answer {
            Ok(answer) => Some(answer),
            Err(KeyFault::Unfit(reason)) => {
                tracing::warn!(path = keys.path(), reason, "key index is dropped, it will be made anew");
                keys.reset(cache);
                None
            }
            Err(KeyFault::Io(error)) => {
                tracing::warn!(path = keys.path(), %error, "key index cannot be read, reading the log instead");
                None
            }
        };
        index.opened(truth.base);
        answer
    }

    /// How far the log must be read from `at` on: to the end of the segment.
    fn unindexed_until(&self, at: Offset, upper: Offset) -> Offset {
        self.segment_of(at).map_or(upper, |segment| self.key_truth(segment).end.min(upper))
    }

    /// Where to begin reading so that `upper` is reached within about [`KEY_SCAN_WINDOW_BYTES`]; not below `from`, nor
    /// in another segment than that below `upper`, nor below what is not indexed of it.
    fn unindexed_from(&mut self, upper: Offset, from: Offset) -> Result<Offset, ReadError> {
        let Some(segment) = self.segment_of(upper - 1) else { return Ok(from) };
        let base = self.key_truth(segment).base;
        let indexed_to = self.keys().and_then(|index| index.known(base)).map(|covered| covered.end);
        // An index that cannot be read now is as good as none.
        let lowest = from.max(base).max(indexed_to.filter(|end| *end < upper).unwrap_or(base));
        let begin = self.offset_before(segment, upper, KEY_SCAN_WINDOW_BYTES)?;
        Ok(begin.max(lowest).min(upper - 1))
    }
}
