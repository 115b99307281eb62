//! What groups see of the logs: all of them, or what is committed of them (`share.isolation.level`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::io::AbortedTransaction;
use coordinator::share::ShareConfig;
use records::ids::PartitionId;

use super::log::{Found, Log};
use super::{Rule, ShareId, Violation};
use crate::sim::content::{Batch, BatchKind, Seen};

/// The logs, and what readers of committed records see of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    all: BTreeMap<PartitionId, Log>,
    stable: BTreeMap<PartitionId, Log>,
    /// Records that were to be seen once. A power cut may take the marker that made them so; whoever wrote it writes it
    /// again, as a coordinator does that has stored its decision.
    shown: BTreeSet<u64>,
    committed: BTreeSet<Arc<str>>,
}

impl Logs {
    pub(super) fn new(partitions: &[PartitionId], groups: &[(Arc<str>, Arc<ShareConfig>)]) -> Self {
        let logs: BTreeMap<_, _> = partitions.iter().map(|partition| (*partition, Log::default())).collect();
        let committed = groups.iter().filter(|group| group.1.read_committed);
        Self {
            stable: logs.clone(),
            all: logs,
            shown: BTreeSet::new(),
            committed: committed.map(|group| Arc::clone(&group.0)).collect(),
        }
    }

    /// A whole log.
    pub(super) fn get(&self, partition: &PartitionId) -> Option<&Log> {
        self.all.get(partition)
    }

    pub(super) fn get_mut(&mut self, partition: &PartitionId) -> Option<&mut Log> {
        self.all.get_mut(partition)
    }

    /// A log as a group sees it.
    pub(super) fn of(&self, id: &ShareId) -> Option<&Log> {
        if self.committed.contains(&id.0) { self.stable.get(&id.1) } else { self.all.get(&id.1) }
    }

    /// Whole logs.
    pub(super) fn values(&self) -> impl Iterator<Item = &Log> {
        self.all.values()
    }

    /// Whole logs.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Log> {
        self.all.values_mut()
    }

    /// A round begins.
    pub(super) fn round_begins(&mut self) {
        let logs = self.all.values_mut().chain(self.stable.values_mut());
        logs.for_each(|log| log.start_before = log.start);
    }

    /// A cut was asked for.
    pub(super) fn start_asked(&mut self, partition: PartitionId, to: i64) {
        for log in self.all.get_mut(&partition).into_iter().chain(self.stable.get_mut(&partition)) {
            log.start_asked = log.start_asked.max(to);
        }
    }

    /// A log starts here now.
    pub(super) fn start_at(&mut self, partition: PartitionId, start: i64) {
        for log in self.all.get_mut(&partition).into_iter().chain(self.stable.get_mut(&partition)) {
            log.start_at(start);
        }
        self.show(partition);
    }

    /// A batch was appended; says which of its records is there already.
    pub(super) fn appended(&mut self, partition: PartitionId, batch: &Batch) -> Option<u64> {
        let twice = self.all.get_mut(&partition).and_then(|log| log.append(batch));
        self.show(partition);
        twice
    }

    /// What a restart found.
    pub(super) fn reopened(
        &mut self,
        partition: PartitionId,
        found: &Found,
        power_cut: bool,
    ) -> Result<(), String> {
        let (Some(log), Some(stable)) = (self.all.get_mut(&partition), self.stable.get_mut(&partition))
        else {
            return Ok(());
        };
        log.reopened(found, power_cut)?;
        stable.cut(log.transactions().last_stable.min(stable.end));
        (stable.start, stable.start_asked) = (log.start, log.start_asked);
        self.show(partition);
        Ok(())
    }

    /// Shows readers of committed records what is decided now.
    fn show(&mut self, partition: PartitionId) {
        let (Some(log), Some(stable)) = (self.all.get(&partition), self.stable.get_mut(&partition)) else {
            return;
        };
        let transactions = log.transactions();
        if transactions.last_stable <= stable.end {
            return;
        }
        for (offset, seen) in log.records.range(stable.end..transactions.last_stable) {
            if !transactions.aborted.contains(offset) {
                self.shown.insert(seen.number);
                stable.insert(*seen);
            }
        }
        stable.end = transactions.last_stable;
    }

    /// The record that a group may be given at this offset; or why it is none.
    pub(super) fn grantable(&self, id: &ShareId, offset: i64) -> Result<Seen, (Rule, &'static str)> {
        let seen = self.all.get(&id.1).and_then(|log| log.records.get(&offset));
        let Some(seen) = seen else { return Err((Rule::Content, "there is no such record")) };
        if !self.committed.contains(&id.0) || self.shown.contains(&seen.number) {
            return Ok(*seen);
        }
        let transactions = self.all[&id.1].transactions();
        match transactions.aborted.contains(&offset) {
            true => Err((Rule::Isolation, "its transaction was aborted")),
            false => Err((Rule::Isolation, "it is not decided")),
        }
    }

    /// Whether a plain consumer of committed records that is given these batches, and told of these aborted
    /// transactions, takes exactly what is committed of them (`CompletedFetch` of Kafka's consumer). Which partition it
    /// is is not said: it is one of those that hold the batches.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn reads_committed(
        &self,
        batches: &[Batch],
        aborted: &[AbortedTransaction],
    ) -> Result<(), Violation> {
        let mut broken = None;
        for log in self.all.values() {
            let holds = |seen: &Seen| log.records.get(&seen.offset) == Some(seen);
            if !batches.iter().flat_map(|batch| &batch.records).all(holds) {
                continue;
            }
            match takes_committed(log, batches, aborted) {
                Ok(()) => return Ok(()),
                Err(text) => broken = Some(text),
            }
        }
        broken.map_or(Ok(()), |text| Err(Violation::new(Rule::Isolation, text)))
    }
}

fn takes_committed(log: &Log, batches: &[Batch], aborted: &[AbortedTransaction]) -> Result<(), String> {
    let transactions = log.transactions();
    let mut begins: Vec<&AbortedTransaction> = aborted.iter().collect();
    begins.sort_by_key(|txn| std::cmp::Reverse(txn.first));
    let mut aborting = BTreeSet::new();
    for batch in batches {
        while let Some(txn) = begins.pop_if(|txn| txn.first.get() <= batch.last) {
            aborting.insert(txn.producer);
        }
        if batch.last < log.start_asked {
            continue;
        }
        if batch.base >= transactions.last_stable {
            return Err(format!("{} is shown, decided is all to {}", batch.base, transactions.last_stable));
        }
        match batch.kind {
            BatchKind::Plain | BatchKind::Marker(true) => {}
            BatchKind::Marker(false) => drop(aborting.remove(&batch.producer)),
            BatchKind::Transactional => {
                if aborting.contains(&batch.producer) != transactions.aborted.contains(&batch.base) {
                    return Err(format!("{batch:?} is taken for what it is not by {aborted:?}"));
                }
            }
        }
    }
    Ok(())
}
