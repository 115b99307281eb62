//! Driving key indexes: which partitions have one, and at which rate older records are taken in.
//!
//! One piece of log is read and hashed at a time, on a thread of its own; between two pieces it waits until the bytes of
//! before are within the rate. The shard's thread only takes in what was found, and the last few hundred KiB of a log.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use coordinator::time::{Micros, Mono, Now};
use parking_lot::RwLock;
use records::ids::PartitionId;
use storage::{KeyJobDone, KeyWork, Logs, StorageError};

use super::engine::Engine;
use super::mailbox::Mail;
use super::pool::Pool;
use crate::metrics;

/// Bytes of log that are read to be indexed in a second, over all logs.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// How often it is looked for indexes that became incomplete: damaged, not to be written, or compaction replaced their
/// segments.
const LOOK_EVERY: Micros = Micros(60_000_000);
/// Inflating takes more stack than reading does.
const STACK_BYTES: usize = 1 << 20;

/// The partitions whose keys are indexed: what validates a batch hashes its keys there. Shared by the shard's thread,
/// which alone changes it, and the network's. To be told late costs a second look at a batch, never an answer.
#[derive(Clone, Debug, Default)]
pub struct KeyedPartitions(Arc<RwLock<HashSet<PartitionId>>>);

impl KeyedPartitions {
    /// Whether a partition's keys are indexed.
    #[must_use]
    pub fn contains(&self, partition: PartitionId) -> bool {
        self.0.read().contains(&partition)
    }

    fn insert(&self, partition: PartitionId) {
        self.0.write().insert(partition);
    }

    fn remove(&self, partition: PartitionId) {
        self.0.write().remove(&partition);
    }
}

/// The indexes of one executor.
pub(crate) struct Indexing {
    keyed: KeyedPartitions,
    pool: Pool,
    /// Not known to be whole; each at most once.
    queue: VecDeque<PartitionId>,
    running: bool,
    /// When the bytes of before are within the rate.
    free_at: Mono,
    look_at: Mono,
    stopped: bool,
}

impl Indexing {
    pub(crate) fn new(keyed: KeyedPartitions, logs: &Logs, now: Mono) -> Self {
        let queue: VecDeque<_> = logs.keyed_partitions().collect();
        queue.iter().for_each(|partition| keyed.insert(*partition));
        Self {
            keyed,
            pool: Pool::with_stack("index", 1, STACK_BYTES),
            queue,
            running: false,
            free_at: now,
            look_at: now + LOOK_EVERY,
            stopped: false,
        }
    }

    /// When there is something to do next, if nothing comes back before.
    pub(crate) fn next_at(&self) -> Mono {
        if self.queue.is_empty() || self.running || self.stopped {
            self.look_at
        } else {
            self.free_at.min(self.look_at)
        }
    }

    /// Turns a partition's index on, if it is off.
    pub(crate) fn enable(&mut self, logs: &mut Logs, partition: PartitionId) {
        if self.keyed.contains(partition) || logs.enable_key_index(partition).is_err() {
            return;
        }
        if let Some((topic, index)) = logs.name(partition) {
            tracing::info!(
                topic,
                partition = index,
                "indexing keys, since a key-ordered share group reads it"
            );
        }
        self.keyed.insert(partition);
        self.queue.push_back(partition);
    }

    /// The partition is gone.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        self.keyed.remove(partition);
        self.queue.retain(|queued| *queued != partition);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, logs: &mut Logs, now: Now, engine: &Arc<Engine>) {
        if now.mono >= self.look_at {
            self.look_at = now.mono + LOOK_EVERY;
            let queued: HashSet<PartitionId> = self.queue.iter().copied().collect();
            let incomplete = |id: &PartitionId| {
                !queued.contains(id) && logs.key_index_facts(*id).is_some_and(|facts| !facts.is_complete())
            };
            let more: Vec<_> = logs.keyed_partitions().filter(incomplete).collect();
            self.queue.extend(more);
        }
        if self.stopped || self.running || now.mono < self.free_at {
            return;
        }
        let Some(&partition) = self.queue.front() else { return };
        match logs.key_work(partition) {
            Ok(KeyWork::Nothing) => {
                self.queue.pop_front();
            }
            Ok(KeyWork::Stepped(bytes)) => self.pace(bytes, now.mono),
            Ok(KeyWork::Run(job)) => {
                self.running = true;
                let engine = Arc::clone(engine);
                self.pool.run(move || {
                    let _ = engine.leave(Mail::KeysRead(Box::new(job.run())));
                });
            }
            Err(error) => self.failed(logs, partition, &error),
        }
    }

    /// Takes a piece back; the next one follows when the rate allows it.
    pub(crate) fn done(&mut self, done: KeyJobDone, logs: &mut Logs, now: Mono) {
        self.running = false;
        self.pace(done.bytes(), now);
        let partition = done.partition();
        if let Err(error) = logs.key_job_done(done) {
            self.failed(logs, partition, &error);
        }
    }

    /// Begins nothing new: what is not indexed is left to the next start.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.running
    }

    fn pace(&mut self, bytes: u64, now: Mono) {
        metrics::keys_read(bytes);
        self.free_at = self.free_at.max(now) + Micros(bytes * 1_000_000 / BYTES_PER_SECOND);
    }

    /// Its records are read from the log meanwhile; it is tried again at the next look.
    fn failed(&mut self, logs: &Logs, partition: PartitionId, error: &StorageError) {
        self.queue.retain(|queued| *queued != partition);
        if let Some((topic, index)) = logs.name(partition) {
            tracing::warn!(topic, partition = index, "cannot index keys, trying again in a while: {error}");
        }
    }
}
