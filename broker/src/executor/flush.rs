//! Group commit: one sync job a partition at a time; what asks meanwhile shares the next one.

use std::collections::HashMap;

use coordinator::io::{Completion, IoError, OpId};
use records::ids::PartitionId;
use storage::{Logs, SyncJob, SyncResult};

use super::Data;

/// The syncs that are under way.
#[derive(Debug, Default)]
pub struct Flushes {
    partitions: HashMap<PartitionId, Flush>,
}

#[derive(Debug, Default)]
struct Flush {
    /// Waits for the job that runs.
    running: Vec<OpId>,
    /// Came while it ran.
    next: Vec<OpId>,
}

impl Flushes {
    /// Takes a sync: a completion where nothing is to be done, else perhaps a job to run.
    pub fn begin(
        &mut self,
        logs: &mut Logs,
        op: OpId,
        partition: PartitionId,
    ) -> (Vec<Completion<Data>>, Option<SyncJob>) {
        match logs.syncs_when_asked(partition) {
            Ok(true) => self.force(logs, op, partition),
            Ok(false) => (vec![Completion::Synced(op, Ok(()))], None),
            Err(error) => (vec![Completion::Synced(op, Err(refused(&error)))], None),
        }
    }

    /// The same for a partition whose policy makes nobody wait.
    pub fn force(
        &mut self,
        logs: &mut Logs,
        op: OpId,
        partition: PartitionId,
    ) -> (Vec<Completion<Data>>, Option<SyncJob>) {
        if let Some(flush) = self.partitions.get_mut(&partition) {
            flush.next.push(op);
            return (Vec::new(), None);
        }
        self.start(logs, partition, vec![op])
    }

    /// Takes a job's result back: the completions of all that it covers, and perhaps the next job.
    pub fn end(&mut self, logs: &mut Logs, result: SyncResult) -> (Vec<Completion<Data>>, Option<SyncJob>) {
        let partition = result.partition();
        let outcome = logs.sync_done(result).map(|_| ()).map_err(|_| IoError::Storage);
        let Some(flush) = self.partitions.remove(&partition) else { return (Vec::new(), None) };
        let mut done: Vec<_> = flush.running.into_iter().map(|op| Completion::Synced(op, outcome)).collect();
        if flush.next.is_empty() {
            return (done, None);
        }
        let (more, job) = self.start(logs, partition, flush.next);
        done.extend(more);
        (done, job)
    }

    /// Whether any job runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.partitions.is_empty()
    }

    fn start(
        &mut self,
        logs: &mut Logs,
        partition: PartitionId,
        ops: Vec<OpId>,
    ) -> (Vec<Completion<Data>>, Option<SyncJob>) {
        let outcome = match logs.sync_job(partition) {
            Ok(Some(job)) => {
                self.partitions.insert(partition, Flush { running: ops, next: Vec::new() });
                return (Vec::new(), Some(job));
            }
            Ok(None) => Ok(()),
            Err(error) => Err(refused(&error)),
        };
        (ops.into_iter().map(|op| Completion::Synced(op, outcome)).collect(), None)
    }
}

fn refused(error: &storage::StorageError) -> IoError {
    match error {
        storage::StorageError::UnknownPartition => IoError::NotOpen,
        _ => IoError::Storage,
    }
}
