//! What of a growing index is in memory: the records that are in no block yet.

use records::ids::{KeyHash, Offset};

use super::KeyedRecord;
use super::filter::KeyFilter;
use crate::options::{
    KEY_BLOCK_DAMAGES_MAX, KEY_BLOCK_MERGE_RECORDS, KEY_BLOCK_RECORDS_MAX, KEY_BLOCK_SPAN_MAX,
    KEY_BUCKET_RECORDS,
};

/// How large blocks become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// [`KEY_BLOCK_RECORDS_MAX`], or fewer.
    pub(crate) block_records: usize,
    /// [`KEY_BLOCK_SPAN_MAX`], or fewer.
    pub(crate) block_span: u32,
    /// [`KEY_BLOCK_MERGE_RECORDS`], or fewer.
    pub(crate) merge_records: u32,
    /// [`KEY_BUCKET_RECORDS`], or fewer.
    pub(crate) bucket_records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_records: KEY_BLOCK_RECORDS_MAX,
            block_span: KEY_BLOCK_SPAN_MAX,
            merge_records: KEY_BLOCK_MERGE_RECORDS,
            bucket_records: KEY_BUCKET_RECORDS,
        }
    }
}

/// Records whose offsets follow one another, from this one on.
#[derive(Clone, Copy, Debug)]
struct Run {
    index: usize,
    position: u32,
}

/// Records in offset order. Everything from `from` to `next` is here or was never a record.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) from: Offset,
    pub(super) next: Offset,
    /// The leader epoch just below `next`.
    pub(super) leader_epoch: i32,
    pub(super) damages: Vec<(Offset, Offset)>,
    pub(super) limits: Limits,
    base: Offset,
    /// Of each record; 0 of a keyless one.
    hashes: Vec<u64>,
    runs: Vec<Run>,
    /// Which of them have no key, ascending.
    keyless: Vec<usize>,
}

impl Pending {
    /// Nothing yet, from `from` on.
    pub(super) fn new(from: Offset, leader_epoch: i32, limits: Limits) -> Self {
        Self {
            from,
            next: from,
            leader_epoch,
            damages: Vec::new(),
            limits,
            base: from,
            hashes: Vec::new(),
            runs: Vec::new(),
            keyless: Vec::new(),
        }
    }

    /// Whether there is nothing that a block would have to hold.
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty() && self.damages.is_empty()
    }

    pub(super) fn records(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn keyless(&self) -> usize {
        self.keyless.len()
    }

    /// What positions count from.
    pub(super) fn base(&self) -> Offset {
        self.base
    }

    /// Whether a record at `offset` needs a block of its own.
    pub(super) fn is_full_for(&self, offset: Offset) -> bool {
        !self.hashes.is_empty()
            && (self.hashes.len() >= self.limits.block_records
                || offset - self.base >= i64::from(self.limits.block_span))
    }

    /// Whether no further damage can be named.
    pub(super) fn is_full_of_damage(&self) -> bool {
        self.damages.len() >= KEY_BLOCK_DAMAGES_MAX
    }

    /// Adds the record at `offset`, which is not below `next` and does not need a block of its own.
    pub(super) fn push(&mut self, offset: Offset, key: Option<KeyHash>) {
        self.place(offset);
        if key.is_none() {
            self.keyless.push(self.hashes.len());
        }
        self.hashes.push(key.map_or(0, |key| key.0));
        self.next = offset.next();
    }

    /// Adds records whose offsets follow one another; how many there was room for.
    pub(super) fn push_run(&mut self, base: Offset, keys: &[Option<KeyHash>]) -> usize {
        self.place(base);
        let span = i64::from(self.limits.block_span) - (base - self.base);
        let room = (self.limits.block_records - self.hashes.len()).min(span as usize).min(keys.len());
        let start = self.hashes.len();
        self.hashes.extend(keys[..room].iter().map(|key| key.map_or(0, |key| key.0)));
        for (index, key) in keys[..room].iter().enumerate() {
            if key.is_none() {
                self.keyless.push(start + index);
            }
        }
        self.next = base + room as i64;
        room
    }

    fn place(&mut self, offset: Offset) {
        if self.hashes.is_empty() {
            self.base = offset;
        }
        let position = (offset - self.base) as u32;
        // `next` may lie behind a hole.
        if self.hashes.is_empty() || position != self.last_position() + 1 {
            self.runs.push(Run { index: self.hashes.len(), position });
        }
    }

    /// The highest position; 0 without records.
    pub(super) fn last_position(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.position + (self.hashes.len() - run.index) as u32 - 1)
    }

    /// Shows every record: its position, and its hash or `None`.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u32, Option<u64>)) {
        let mut keyless = self.keyless.iter().copied().peekable();
        for (number, run) in self.runs.iter().enumerate() {
            let end = self.runs.get(number + 1).map_or(self.hashes.len(), |next| next.index);
            let hashes = self.hashes[run.index..end].iter().zip(run.index..);
            for ((&hash, index), position) in hashes.zip(run.position..) {
                let has_key = keyless.next_if_eq(&index).is_none();
                visit(position, has_key.then_some(hash));
            }
        }
    }

    /// The record at an index.
    fn record(&self, index: usize) -> KeyedRecord {
        let run = self.runs[self.runs.partition_point(|run| run.index <= index) - 1];
        let offset = self.base + i64::from(run.position) + (index - run.index) as i64;
        let has_key = self.keyless.binary_search(&index).is_err();
        KeyedRecord { offset, key: has_key.then(|| KeyHash(self.hashes[index])) }
    }

    /// The index of the first record at or behind `offset`.
    fn index_of(&self, offset: Offset) -> usize {
        let behind = self.runs.partition_point(|run| self.base + i64::from(run.position) <= offset);
        let Some(number) = behind.checked_sub(1) else { return 0 };
        let run = self.runs[number];
        let end = self.runs.get(behind).map_or(self.hashes.len(), |next| next.index);
        let into_run = offset - (self.base + i64::from(run.position));
        end.min(run.index.saturating_add(usize::try_from(into_run).unwrap_or(usize::MAX)))
    }

    /// The records from `from` on, below `upper`, that `filter` means.
    pub(super) fn matches(
        &self,
        filter: KeyFilter,
        from: Offset,
        upper: Offset,
    ) -> impl DoubleEndedIterator<Item = Offset> + '_ {
        // Without keyless records the hash alone decides, and most records need not be placed.
        let may_match = move |index: &usize| filter.has(self.hashes[*index]) || !self.keyless.is_empty();
        (self.index_of(from)..self.index_of(upper))
            .filter(may_match)
            .map(|index| self.record(index))
            .filter(move |record| filter.matches(record.offset, record.key))
            .map(|record| record.offset)
    }

    /// All records from `from` on, below `upper`.
    pub(super) fn list(&self, from: Offset, upper: Offset) -> impl Iterator<Item = KeyedRecord> + '_ {
        (self.index_of(from)..self.index_of(upper)).map(|index| self.record(index))
    }
}
