//! What a partition log holds, and what of it was promised.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::KeyHash;

use crate::sim::content::Seen;

/// A partition log as its appends made it.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Records by offset.
    pub(super) records: BTreeMap<i64, Seen>,
    /// Offsets of each key, ascending.
    pub(super) keys: BTreeMap<KeyHash, BTreeSet<i64>>,
    /// First offset.
    pub(super) start: i64,
    /// The same before the round at work.
    pub(super) start_before: i64,
    /// A cut to there was asked for: what lies below may be gone.
    pub(super) start_asked: i64,
    /// Written end.
    pub(super) end: i64,
    /// Everything below was synced.
    pub(super) synced: i64,
    /// Offsets that were answered with acks=all.
    pub(super) promised: BTreeSet<i64>,
    /// Where each record stands.
    numbers: BTreeMap<u64, i64>,
}

impl Log {
    /// A batch was appended; says which of its records is there already.
    pub(super) fn append(&mut self, batch: &[Seen]) -> Option<u64> {
        let mut twice = None;
        for seen in batch {
            let before = self.numbers.get(&seen.number);
            if before.is_some_and(|at| *at >= self.start && self.records.contains_key(at)) {
                twice = Some(seen.number);
            }
            self.insert(*seen);
        }
        twice
    }

    fn insert(&mut self, seen: Seen) {
        self.records.insert(seen.offset, seen);
        self.numbers.insert(seen.number, seen.offset);
        if let Some(key) = seen.key {
            self.keys.entry(key).or_default().insert(seen.offset);
        }
        self.end = self.end.max(seen.offset + 1);
    }

    /// The log starts here now.
    pub(super) fn start_at(&mut self, start: i64) {
        self.start = self.start.max(start);
        self.start_asked = self.start_asked.max(start);
    }

    /// What a restart found: the new end where records are gone; or what must not have happened.
    pub(super) fn reopened(
        &mut self,
        start: i64,
        end: i64,
        found: &[Seen],
        power_cut: bool,
    ) -> Result<(), String> {
        if start < self.start || start > self.start_asked.max(self.start) {
            return Err(format!("the log starts at {start}, not at {} to {}", self.start, self.start_asked));
        }
        if !power_cut && end != self.end {
            return Err(format!("the log ends at {end}, not at {}", self.end));
        }
        let found: BTreeMap<i64, Seen> = found.iter().map(|seen| (seen.offset, *seen)).collect();
        for (offset, seen) in self.records.range(start..) {
            match found.get(offset) {
                Some(stored) if stored == seen => {}
                Some(stored) => return Err(format!("{offset} holds {stored:?}, not {seen:?}")),
                None if self.promised.contains(offset) => return Err(format!("{offset} is gone, acks=all")),
                None if !power_cut || *offset < end => return Err(format!("{offset} is gone")),
                None => {}
            }
        }
        let gone: Vec<Seen> = self.records.range(end..).map(|record| *record.1).collect();
        for seen in gone {
            self.records.remove(&seen.offset);
            self.numbers.remove(&seen.number);
            if let Some(offsets) = seen.key.and_then(|key| self.keys.get_mut(&key)) {
                offsets.remove(&seen.offset);
            }
        }
        self.end = end;
        self.synced = if power_cut { end } else { self.synced.min(end) };
        self.start_at(start);
        self.start_asked = self.start;
        Ok(())
    }
}
