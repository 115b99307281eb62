//! The broker of the simulation: the production shard and storage, one life after another on one disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::executor::Data;
use broker::executor::flush::Flushes;
use broker::executor::serve;
use coordinator::command::{Fact, PartitionRole, TopicImage};
use coordinator::io::Completion;
use coordinator::limits::{CONSUMER_OFFSETS, Limits};
use coordinator::shard::{Input, Shard};
use coordinator::share::ShareConfig;
use coordinator::time::Mono;
use records::ids::{PartitionId, TopicId};
use storage::{
    Boot, DataDir, Disk, LogConfig, Logs, Metadata, Options, SimDisk, StorageError, SyncJob, SyncResult,
};

use super::plan::Plan;

/// The topic of the simulation.
pub const TOPIC: &str = "t";
/// Its id.
pub const TOPIC_ID: TopicId = TopicId([7; 16]);
const OFFSETS_ID: TopicId = TopicId([8; 16]);
/// The topic of dead letters.
pub const DEAD_LETTERS: &str = "dead";
const DEAD_LETTERS_ID: TopicId = TopicId([9; 16]);
/// Bytes that a batch of dead letters may have.
const DEAD_LETTERS_BYTES: u64 = 2_000;

/// Bytes of log that are indexed when a key-ordered group comes.
const INDEXED_AT_ONCE_BYTES: u64 = 64 << 10;

/// A partition of the topic.
#[must_use]
pub fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TOPIC_ID, index }
}

/// The partition of `__consumer_offsets`.
#[must_use]
pub fn offsets_partition() -> PartitionId {
    PartitionId { topic: OFFSETS_ID, index: 0 }
}

/// A partition of the topic of dead letters.
#[must_use]
pub fn letter_partition(index: i32) -> PartitionId {
    PartitionId { topic: DEAD_LETTERS_ID, index }
}

/// What the shard is told of topics.
#[must_use]
pub fn topics(plan: &Plan, letters: Letters) -> Fact {
    let mut image = TopicImage {
        topics: BTreeMap::from([
            (Arc::from(TOPIC), (TOPIC_ID, plan.partitions)),
            (Arc::from(CONSUMER_OFFSETS), (OFFSETS_ID, 1)),
        ]),
        ..TopicImage::default()
    };
    if letters.made {
        image.topics.insert(Arc::from(DEAD_LETTERS), (DEAD_LETTERS_ID, plan.dead_letters.partitions));
        if letters.enabled {
            // As the broker tells it: no more than a segment takes.
            let bytes_max = DEAD_LETTERS_BYTES.min(plan.segment_bytes);
            image.dead_letter_topics.insert(Arc::from(DEAD_LETTERS), bytes_max);
        }
    }
    Fact::Topics(Arc::new(image))
}

/// What there is of the topic of dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Letters {
    /// The topic itself.
    pub made: bool,
    /// The leave to write to it.
    pub enabled: bool,
}

/// A life of the broker.
#[derive(Debug)]
pub struct Node {
    /// The production shard.
    pub shard: Shard<Data>,
    /// The production storage.
    pub logs: Logs,
    /// The production metadata store.
    pub metadata: Metadata,
    /// What the shard is told in its next round.
    pub inbox: Vec<Input<Data>>,
    /// When that is.
    pub round_at: Option<Mono>,
    /// Submissions that wait for the disk, or their completions for the shard.
    pub under_way: usize,
    /// When the disk was last busy with a partition.
    pub busy_until: BTreeMap<PartitionId, Mono>,
    /// When completions of a partition last reached the shard.
    pub told_until: BTreeMap<PartitionId, Mono>,
    /// It takes no requests any more.
    pub stopping: bool,
    /// A sync failed: a log is closed for writing until a restart.
    pub poisoned: bool,
    flushes: Flushes,
    jobs: BTreeMap<u64, Job>,
    job_last: u64,
}

#[derive(Debug)]
enum Job {
    Waits(SyncJob),
    Ran(SyncResult),
}

impl Node {
    /// Starts on what the last life left. `configs` are the group settings as the shard is told.
    ///
    /// # Errors
    /// Whatever the storage says: the broker does not start.
    pub fn start(
        disk: &Arc<SimDisk>,
        plan: &Plan,
        configs: &[(Arc<str>, Arc<ShareConfig>)],
        letters: Letters,
    ) -> Result<Self, StorageError> {
        let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
        let data_dir = DataDir::open(Arc::clone(&disk))?;
        let metadata = Metadata::open(&disk)?;
        let clean = data_dir.was_clean();
        let boot: Boot = metadata.begin_boot(clean)?;
        let mut logs = Logs::open(data_dir, Options::default(), boot)?;
        let mut inbox: Vec<_> = (!clean).then_some(Input::Fact(Fact::UncleanStop)).into_iter().collect();
        inbox.push(Input::Fact(topics(plan, letters)));
        let config = log_config(plan);
        let users = (0..plan.partitions).map(|index| (partition(index), TOPIC, PartitionRole::Data));
        let internal = (offsets_partition(), CONSUMER_OFFSETS, PartitionRole::ConsumerOffsets(0));
        for (id, topic, role) in users.chain([internal]) {
            logs.open_partition(id, topic, config.clone())?;
            let facts = serve::facts(&logs, id).expect("opened just now");
            inbox.push(Input::Fact(Fact::PartitionOpened { partition: id, role, facts }));
        }
        if letters.made {
            inbox.extend(open_letters(&mut logs, plan)?);
        }
        for (group, config) in configs {
            // Its number is in the store from the first start on, as it is when a group's first member has come.
            metadata.group_number(group)?;
            inbox.push(Input::Fact(Fact::ShareConfigured(Arc::clone(group), Arc::clone(config))));
        }
        let mut limits = Limits::default();
        limits.share.snapshot_after_bytes = plan.snapshot_after_bytes;
        limits.share.snapshot_after_scan_bytes = 32 * plan.snapshot_after_bytes;
        limits.share.scan_bytes_max = plan.scan_bytes_max;
        limits.share.window = Arc::clone(&plan.window);
        let boot = u32::try_from(boot.boot).expect("a run has few starts");
        Ok(Self {
            shard: Shard::new(limits, boot),
            logs,
            metadata,
            inbox,
            round_at: None,
            under_way: 0,
            busy_until: BTreeMap::new(),
            told_until: BTreeMap::new(),
            stopping: false,
            poisoned: false,
            flushes: Flushes::default(),
            jobs: BTreeMap::new(),
            job_last: 0,
        })
    }

    /// The topic of dead letters is made.
    ///
    /// # Errors
    /// Whatever the storage says.
    pub fn make_letters(&mut self, plan: &Plan) -> Result<Vec<Input<Data>>, StorageError> {
        open_letters(&mut self.logs, plan)
    }

    /// Indexes a log's keys from now on. What was there before and is more than a little stays as it is.
    pub fn index_keys(&mut self, partition: PartitionId) {
        // Where the disk refuses, nothing but the index is missing.
        if self.logs.enable_key_index(partition).is_ok() {
            let _built = self.logs.build_key_index(partition, INDEXED_AT_ONCE_BYTES);
        }
    }

    /// Takes a sync in its place: completions at once, and perhaps a job that is to run.
    pub fn begin_sync(
        &mut self,
        op: coordinator::io::OpId,
        partition: PartitionId,
    ) -> (Vec<Completion<Data>>, Option<u64>) {
        let (done, job) = self.flushes.begin(&mut self.logs, op, partition);
        (done, job.map(|job| self.keep(job)))
    }

    /// The disk syncs now; its word comes later. Says the partition and whether it went well: behind a sync that failed
    /// before, one of storage's own too, a good one says nothing, and storage tells nobody otherwise.
    pub fn run_sync(&mut self, number: u64) -> Option<(PartitionId, bool)> {
        match self.jobs.remove(&number)? {
            Job::Waits(job) => {
                let partition = job.partition();
                let result = job.run();
                let well = !result.is_err() && self.logs.syncs_when_asked(partition).is_ok();
                self.poisoned |= !well;
                self.jobs.insert(number, Job::Ran(result));
                Some((partition, well))
            }
            ran @ Job::Ran(_) => {
                self.jobs.insert(number, ran);
                None
            }
        }
    }

    /// The word of a sync that ran: completions, and perhaps the next job.
    pub fn end_sync(&mut self, number: u64) -> (Vec<Completion<Data>>, Option<u64>) {
        let Some(Job::Ran(result)) = self.jobs.remove(&number) else { return (Vec::new(), None) };
        let (done, job) = self.flushes.end(&mut self.logs, result);
        (done, job.map(|job| self.keep(job)))
    }

    /// The partition that a sync job is about.
    #[must_use]
    pub fn partition_of(&self, number: u64) -> Option<PartitionId> {
        self.jobs.get(&number).map(|job| match job {
            Job::Waits(job) => job.partition(),
            Job::Ran(result) => result.partition(),
        })
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.under_way == 0 && self.jobs.is_empty()
    }

    fn keep(&mut self, job: SyncJob) -> u64 {
        self.job_last += 1;
        self.jobs.insert(self.job_last, Job::Waits(job));
        self.job_last
    }
}

fn log_config(plan: &Plan) -> LogConfig {
    LogConfig {
        segment_bytes: plan.segment_bytes,
        index_interval_bytes: 200,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

fn open_letters(logs: &mut Logs, plan: &Plan) -> Result<Vec<Input<Data>>, StorageError> {
    (0..plan.dead_letters.partitions)
        .map(|index| {
            let partition = letter_partition(index);
            logs.open_partition(partition, DEAD_LETTERS, log_config(plan))?;
            let facts = serve::facts(logs, partition).expect("opened just now");
            let role = PartitionRole::Data;
            Ok(Input::Fact(Fact::PartitionOpened { partition, role, facts }))
        })
        .collect()
}
