//! Group commit: who waits for a sync of a partition shares it with all that wait.
//!
//! Invariants. At most one sync of a partition is in flight. A sync covers whoever asked before it was submitted,
//! and nobody who asked later. Whoever asks is covered by the next sync submitted, so nobody waits for more than the
//! one in flight and one of its own.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::PartitionId;

use crate::io::{OpId, Submission};

/// The syncs of a shard.
#[derive(Debug, Default)]
pub struct GroupCommit {
    partitions: BTreeMap<PartitionId, Syncs>,
    /// Partitions with somebody waiting and nothing in flight.
    ready: BTreeSet<PartitionId>,
    /// By the id under which a sync was submitted.
    in_flight: BTreeMap<OpId, PartitionId>,
}

#[derive(Debug, Default)]
struct Syncs {
    /// Covered by the sync in flight; empty when there is none.
    covered: Vec<OpId>,
    /// Covered by the next one.
    waiting: Vec<OpId>,
}

impl GroupCommit {
    /// Somebody waits, under this id, for all that was submitted for this partition until now.
    pub fn ask(&mut self, partition: PartitionId, op: OpId) {
        let syncs = self.partitions.entry(partition).or_default();
        syncs.waiting.push(op);
        if syncs.covered.is_empty() {
            self.ready.insert(partition);
        }
    }

    /// The syncs that begin now: one for each partition with somebody waiting and nothing in flight. They must be
    /// submitted behind everything else of this round.
    pub fn begin(&mut self) -> Vec<Submission> {
        let ready = std::mem::take(&mut self.ready);
        ready.into_iter().map(|partition| self.begin_one(partition)).collect()
    }

    /// The sync that was submitted under this id is over: all whom it covers. Empty for an unknown id.
    pub fn finish(&mut self, op: OpId) -> Vec<OpId> {
        let Some(partition) = self.in_flight.remove(&op) else { return Vec::new() };
        let syncs = self.partitions.get_mut(&partition).expect("a sync in flight has its partition");
        let covered = std::mem::take(&mut syncs.covered);
        if syncs.waiting.is_empty() {
            self.partitions.remove(&partition);
        } else {
            self.ready.insert(partition);
        }
        covered
    }

    fn begin_one(&mut self, partition: PartitionId) -> Submission {
        let syncs = self.partitions.get_mut(&partition).expect("a ready partition has its syncs");
        syncs.covered = std::mem::take(&mut syncs.waiting);
        let op = *syncs.covered.first().expect("a ready partition has somebody waiting");
        self.in_flight.insert(op, partition);
        Submission::Sync { op, partition }
    }
}

#[cfg(test)]
mod tests;
