//! The slow, simple picture of what a data directory must hold: every batch and event that was ever written, byte for
//! byte, and how much of it may be gone.
//!
//! Transactions have their place in [`LogModel::last_stable`], and in what [`Stored`] knows of a batch.

pub(crate) mod events;

use std::collections::{BTreeMap, VecDeque};

use records::ids::{PartitionId, TopicId};
use storage::LogConfig;

use events::EventModel;

/// A record as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) timestamp: i64,
}

/// The idempotent producer of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) first: i32,
}

/// A batch as it must stand in the log.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// No two batches of a run have the same.
    pub(crate) serial: u64,
    pub(crate) base: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) epoch: i32,
    pub(crate) records: Vec<Sent>,
    pub(crate) sequence: Option<Sequence>,
}

impl Stored {
    pub(crate) fn next(&self) -> i64 {
        self.base + self.records.len() as i64
    }

    /// The sequence number behind its last.
    pub(crate) fn next_sequence(&self) -> Option<i32> {
        let sequence = self.sequence?;
        let next = i64::from(sequence.first) + self.records.len() as i64;
        Some((next % (i64::from(i32::MAX) + 1)) as i32)
    }
}

/// A client that numbers its batches.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) next: i32,
    /// Whether the log has a batch of it, and so must know it.
    pub(crate) is_known: bool,
}

/// A compaction that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaning {
    /// It may touch what is below.
    pub(crate) below: i64,
    pub(crate) now_ms: i64,
}

/// How a life ended, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// In order.
    Clean,
    /// The process died; what it wrote is there.
    Kill,
    /// The power went; what was not synced may be gone.
    Cut,
}

/// A sync job that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) number: u64,
    /// Where the log ended then.
    pub(crate) end: i64,
    /// How many events each event log had then, and how often it had been deleted unseen.
    pub(crate) events: Vec<(u64, usize, usize)>,
    pub(crate) is_done: bool,
}

/// One partition.
#[derive(Debug)]
pub(crate) struct LogModel {
    pub(crate) name: String,
    pub(crate) id: PartitionId,
    pub(crate) config: LogConfig,
    /// All batches of the log's present history, ascending; those that were deleted too.
    pub(crate) batches: Vec<Stored>,
    /// Was being written when the process died.
    pub(crate) maybe: Option<Stored>,
    pub(crate) end: i64,
    pub(crate) start: i64,
    /// The log start must come back at least here.
    pub(crate) start_floor: i64,
    /// Of what is below it epochs may be forgotten, also where a lost checkpoint brings the records back.
    pub(crate) epochs_from: i64,
    /// The log start may have come as far as this.
    pub(crate) start_max: i64,
    /// Everything below must survive a power cut.
    pub(crate) synced: i64,
    pub(crate) cleanings: Vec<Cleaning>,
    pub(crate) is_poisoned: bool,
    /// Whether it was open before.
    pub(crate) was_open: bool,
    pub(crate) events: BTreeMap<u64, EventModel>,
    pub(crate) has_keys: bool,
    pub(crate) clients: Vec<Client>,
    /// Of a producer's last five batches those from here on must be known; else the last.
    pub(crate) knows_five_from: i64,
    /// A time index was damaged, which nothing can tell.
    pub(crate) times_are_off: bool,
    /// An index was damaged in a way that nothing can tell without reading the log.
    pub(crate) indexes_are_off: bool,
    /// The file of leader epochs was spoiled, or the log start that it must fit: it is written anew with the next sync.
    pub(crate) epochs_are_off: bool,
    /// How the lives since it was last open have ended.
    pub(crate) ending: Option<Ending>,
    /// Sync jobs in the order they were taken.
    pub(crate) jobs: VecDeque<Taken>,
    /// The shortest `delete.retention.ms` so far.
    pub(crate) delete_retention_ms: i64,
    /// The largest index interval so far.
    pub(crate) interval_max: u64,
}

impl LogModel {
    pub(crate) fn new(name: String, id: PartitionId, config: LogConfig) -> Self {
        let (interval_max, config_retention) = (config.index_interval_bytes, config.delete_retention_ms);
        Self {
            name,
            id,
            config,
            batches: Vec::new(),
            maybe: None,
            end: 0,
            start: 0,
            start_floor: 0,
            start_max: 0,
            epochs_from: 0,
            synced: 0,
            cleanings: Vec::new(),
            is_poisoned: false,
            was_open: false,
            events: BTreeMap::new(),
            has_keys: false,
            clients: Vec::new(),
            knows_five_from: 0,
            times_are_off: false,
            indexes_are_off: false,
            epochs_are_off: false,
            ending: None,
            jobs: VecDeque::new(),
            delete_retention_ms: config_retention,
            interval_max,
        }
    }

    pub(crate) fn directory(&self) -> String {
        format!("{}-{}", self.name, self.id.index)
    }

    /// The offset behind the last record that is decided. Without transactions all are.
    pub(crate) fn last_stable(&self) -> i64 {
        self.end
    }

    /// Below it compaction may have taken records.
    pub(crate) fn compacted(&self) -> i64 {
        self.cleanings.iter().map(|cleaning| cleaning.below).max().unwrap_or(0)
    }

    /// The batches that are not deleted.
    pub(crate) fn live(&self) -> &[Stored] {
        &self.batches[self.batches.partition_point(|batch| batch.next() <= self.start)..]
    }

    /// The batch that holds `offset`.
    pub(crate) fn batch_at(&self, offset: i64) -> Option<&Stored> {
        let behind = self.batches.partition_point(|batch| batch.base <= offset);
        let batch = &self.batches[behind.checked_sub(1)?];
        (offset < batch.next()).then_some(batch)
    }

    /// A batch is there that nobody was told of.
    pub(crate) fn adopt(&mut self, batch: Stored) {
        let of = |client: &&mut Client| batch.sequence.is_some_and(|sequence| sequence.id == client.id);
        if let Some(client) = self.clients.iter_mut().find(of) {
            client.epoch = batch.sequence.map_or(client.epoch, |sequence| sequence.epoch);
        }
        self.push(batch);
    }

    pub(crate) fn push(&mut self, batch: Stored) {
        self.end = batch.next();
        self.batches.push(batch);
    }

    /// The log was cut.
    pub(crate) fn truncate(&mut self, end: i64) {
        self.batches.retain(|batch| batch.next() <= end);
        self.end = end;
        self.synced = self.synced.min(end);
        for cleaning in &mut self.cleanings {
            cleaning.below = cleaning.below.min(end);
        }
    }

    /// The last batches of a client's present epoch that are in the log, newest last, five at most.
    pub(crate) fn remembered(&self, client: &Client) -> Vec<&Stored> {
        let of = |batch: &&Stored| {
            batch.sequence.is_some_and(|sequence| sequence.id == client.id && sequence.epoch == client.epoch)
        };
        let mut found: Vec<&Stored> = self.live().iter().filter(of).collect();
        found.drain(..found.len().saturating_sub(5));
        found
    }

    /// A job has succeeded: what all jobs up to it were to reach must survive from now on.
    pub(crate) fn job_done(&mut self, number: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.number == number) {
            job.is_done = true;
        }
        while let Some(job) = self.jobs.pop_front_if(|job| job.is_done) {
            self.synced = self.synced.max(job.end);
            for (name, count, ghosts) in job.events {
                if let Some(events) = self.events.get_mut(&name) {
                    events.synced = events.synced.max(count.min(events.list.len()));
                    events.ghosts.drain(..ghosts.min(events.ghosts.len()));
                }
            }
        }
    }

    /// Clients go on behind what the log has of them; of one that it has nothing of, nobody can tell.
    pub(crate) fn note_clients(&mut self) {
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|client| match self.remembered(client).last() {
            Some(last) => {
                client.next = last.next_sequence().expect("it is a producer's");
                client.is_known = true;
                true
            }
            None => false,
        });
        self.clients = clients;
    }
}

/// A topic id of its own for each number.
pub(crate) fn topic_id(number: u64) -> TopicId {
    let mut id = [7; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    TopicId(id)
}
