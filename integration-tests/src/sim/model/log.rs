//! What a partition log holds, what of it was promised, and how far its transactions are decided.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::KeyHash;

use crate::sim::content::{Batch, BatchKind, Seen};

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
    /// Batches of transactions and markers, by their first offsets.
    txns: BTreeMap<i64, TxnBatch>,
    /// Where each record stands.
    numbers: BTreeMap<u64, i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TxnBatch {
    last: i64,
    producer: i64,
    kind: BatchKind,
}

/// What is known of a log's transactions.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    /// Below it everything is decided.
    pub(super) last_stable: i64,
    /// Offsets that were taken back.
    pub(super) aborted: BTreeSet<i64>,
}

impl Log {
    /// A batch was appended; says which of its records is there already.
    pub(super) fn append(&mut self, batch: &Batch) -> Option<u64> {
        let mut twice = None;
        for seen in &batch.records {
            let before = self.numbers.get(&seen.number);
            if before.is_some_and(|at| *at >= self.start && self.records.contains_key(at)) {
                twice = Some(seen.number);
            }
            self.insert(*seen);
        }
        if batch.kind != BatchKind::Plain {
            let txn = TxnBatch { last: batch.last, producer: batch.producer, kind: batch.kind };
            self.txns.insert(batch.base, txn);
        }
        self.end = self.end.max(batch.last + 1);
        twice
    }

    /// A record stands here.
    pub(super) fn insert(&mut self, seen: Seen) {
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

    /// What of the log is decided.
    pub(super) fn transactions(&self) -> Transactions {
        let mut open: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        let mut aborted = BTreeSet::new();
        for (&base, batch) in &self.txns {
            match batch.kind {
                BatchKind::Plain => {}
                BatchKind::Transactional => open.entry(batch.producer).or_default().push((base, batch.last)),
                BatchKind::Marker(commit) => {
                    let ended = open.remove(&batch.producer).unwrap_or_default();
                    if !commit {
                        aborted.extend(ended.into_iter().flat_map(|(base, last)| base..=last));
                    }
                }
            }
        }
        let first = open.values().flatten().map(|batch| batch.0).min();
        let last_stable = first.map_or(self.end, |first| first.max(self.start).min(self.end));
        Transactions { last_stable, aborted }
    }

    /// What a restart found: the new end where records are gone; or what must not have happened.
    pub(super) fn reopened(&mut self, found: &Found, power_cut: bool) -> Result<(), String> {
        let (start, end) = (found.start, found.end);
        if start < self.start || start > self.start_asked.max(self.start) {
            return Err(format!("the log starts at {start}, not at {} to {}", self.start, self.start_asked));
        }
        if !power_cut && end != self.end {
            return Err(format!("the log ends at {end}, not at {}", self.end));
        }
        let records = found.batches.iter().flat_map(|batch| &batch.records);
        let records: BTreeMap<i64, Seen> = records.map(|seen| (seen.offset, *seen)).collect();
        for (offset, seen) in self.records.range(start..) {
            match records.get(offset) {
                Some(stored) if stored == seen => {}
                Some(stored) => return Err(format!("{offset} holds {stored:?}, not {seen:?}")),
                None if self.promised.contains(offset) => return Err(format!("{offset} is gone, acks=all")),
                None if !power_cut || *offset < end => return Err(format!("{offset} is gone")),
                None => {}
            }
        }
        let kinds: BTreeMap<i64, BatchKind> =
            found.batches.iter().map(|batch| (batch.base, batch.kind)).collect();
        for (base, batch) in self.txns.range(start..) {
            let gone = *base >= end && power_cut && !self.promised.contains(base);
            if kinds.get(base) != Some(&batch.kind) && !gone {
                return Err(format!("the batch {batch:?} at {base} is {:?} now", kinds.get(base)));
            }
        }
        self.cut(end);
        self.synced = if power_cut { end } else { self.synced.min(end) };
        self.start_at(start);
        self.start_asked = self.start;
        self.is_stable_to(found.last_stable)
    }

    /// The log ends here.
    pub(super) fn cut(&mut self, end: i64) {
        let gone: Vec<Seen> = self.records.range(end..).map(|record| *record.1).collect();
        for seen in gone {
            self.records.remove(&seen.offset);
            self.numbers.remove(&seen.number);
            if let Some(offsets) = seen.key.and_then(|key| self.keys.get_mut(&key)) {
                offsets.remove(&seen.offset);
            }
        }
        // A batch is there whole or not at all, one whose front lies below the log's start included.
        self.txns.retain(|_, batch| batch.last < end);
        self.end = end;
    }

    /// A start found everything below `found` decided. What left the log of an open transaction may be forgotten.
    fn is_stable_to(&mut self, found: i64) -> Result<(), String> {
        let known = self.transactions().last_stable;
        if known == found {
            return Ok(());
        }
        let all = self.txns.clone();
        let start = self.start;
        self.txns.retain(|_, batch| batch.last >= start);
        let left = self.transactions().last_stable;
        if left == found {
            return Ok(());
        }
        self.txns = all;
        Err(format!("the log is decided to {found}, not to {known} or {left}"))
    }
}

/// A log as a start found it.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// First offset.
    pub start: i64,
    /// Its end.
    pub end: i64,
    /// Its last stable offset.
    pub last_stable: i64,
    /// What is in it.
    pub batches: Vec<Batch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_whose_front_left_the_log_goes_whole_in_a_power_cut() {
        let batch = |base, last, kind| Batch { base, last, producer: 1, kind, records: Vec::new() };
        let mut log = Log::default();
        log.append(&batch(2, 4, BatchKind::Transactional));
        log.start_at(4);
        let found = Found { start: 4, end: 4, last_stable: 4, batches: Vec::new() };
        assert_eq!(log.reopened(&found, true), Ok(()));
        log.append(&batch(4, 4, BatchKind::Plain));
        assert_eq!(log.transactions().last_stable, 5, "its transaction is none any more");
    }
}
