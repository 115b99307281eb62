//! The shard's worker: takes the mail, runs a round, serves what the round submits, until it is told to stop.
//!
//! Owner of the shard, the logs and the reply channels. Between rounds it does the catalogue's work on the logs and
//! the housekeeping.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use coordinator::command::Fact;
use coordinator::io::{Completion, OpId, Submission};
use coordinator::limits::Limits;
use coordinator::reply::{Effect, Output};
use coordinator::shard::{Input, Shard};
use coordinator::time::{Micros, Mono, Now};
use records::ids::PartitionId;
use storage::{LogConfig, Logs, Metadata, PagePlaces, SyncJob};
use tokio::sync::{mpsc, oneshot};

use super::cleaning::{Cleaning, CleaningPace};
use super::control::{Control, OpenPartition, Refused};
use super::engine::Engine;
use super::flush::Flushes;
use super::indexing::{Indexing, KeyedPartitions};
use super::mailbox::{Mail, Mailbox};
use super::pool::Pool;
use super::replies::Replies;
use super::serve::{self, log_facts};
use super::shard_time::ShardTime;
use super::{Data, readahead};
use crate::clock::Clock;
use crate::metrics;
use crate::net::Connections;

/// Logs that one run of retention names.
const RETENTION_LINES_MAX: usize = 20;
/// Syncs that run beside each other.
const SYNC_THREADS_MAX: usize = 64;
/// Reads from a disk that run beside each other.
const READ_THREADS_MAX: usize = 4;
/// Removals of files that run beside each other: they free space, nobody waits for them.
const REMOVE_THREADS_MAX: usize = 1;
/// How often the root checkpoints are written, as in Kafka: recovery after a kill reads what was written since.
const CHECKPOINT_EVERY: Micros = Micros(60_000_000);
/// The first time sooner: what this start had to recover, a start after a crash soon need not recover again.
const CHECKPOINT_FIRST: Micros = Micros(1_000_000);
/// How often it is looked for logs that nobody waits for and that are to be synced by now.
const FLUSH_EVERY: Micros = Micros(100_000);

/// What the executor is made of.
#[derive(Debug)]
pub struct Parts {
    /// The logs, partitions opened.
    pub logs: Logs,
    /// The metadata store, for the numbers of groups.
    pub metadata: Arc<Metadata>,
    /// Bounds of the shard.
    pub limits: Limits,
    /// The number of this start.
    pub boot: u32,
    /// What the shard is told before anything else.
    pub facts: Vec<Fact>,
    /// The clocks.
    pub clock: Clock,
    /// Which connections the shard may have closed.
    pub connections: Arc<Connections>,
    /// How often old records are looked for.
    pub retention_every: Micros,
    /// How logs are compacted.
    pub cleaning: CleaningPace,
    /// Whose keys are indexed: to be kept up.
    pub keyed: KeyedPartitions,
    /// Dead-letter topics that are to be made; what finds no room is asked for again.
    pub wanted_topics: mpsc::Sender<Arc<str>>,
}

/// See the module.
pub(super) struct Worker {
    shard: Shard<Data>,
    logs: Logs,
    metadata: Arc<Metadata>,
    engine: Arc<Engine>,
    clock: Clock,
    shard_time: ShardTime,
    connections: Arc<Connections>,
    replies: Replies,
    flushes: Flushes,
    syncs: Pool,
    reads: Pool,
    removals: Pool,
    cleaning: Cleaning,
    indexing: Indexing,
    wanted_topics: mpsc::Sender<Arc<str>>,
    /// Empty between calls, its memory is used again.
    taken: VecDeque<Mail>,
    /// For the next round.
    inputs: Vec<Input<Data>>,
    retention_every: Micros,
    retention_at: Mono,
    checkpoint_at: Mono,
    flush_at: Mono,
    stopping: Option<oneshot::Sender<Result<(), Refused>>>,
}

impl Worker {
    pub(super) fn new(parts: Parts, engine: Arc<Engine>) -> Self {
        let now = parts.clock.mono();
        let indexing = Indexing::new(parts.keyed, &parts.logs, now);
        Self {
            indexing,
            shard: Shard::new(parts.limits, parts.boot),
            logs: parts.logs,
            metadata: parts.metadata,
            engine,
            clock: parts.clock,
            shard_time: ShardTime::from(now),
            connections: parts.connections,
            replies: Replies::default(),
            flushes: Flushes::default(),
            syncs: Pool::new("sync", SYNC_THREADS_MAX),
            reads: Pool::new("read", READ_THREADS_MAX),
            removals: Pool::new("remove", REMOVE_THREADS_MAX),
            cleaning: Cleaning::new(parts.cleaning, now),
            wanted_topics: parts.wanted_topics,
            taken: VecDeque::new(),
            inputs: parts.facts.into_iter().map(Input::Fact).collect(),
            retention_every: parts.retention_every,
            retention_at: now + parts.retention_every,
            checkpoint_at: now + CHECKPOINT_FIRST,
            flush_at: now + FLUSH_EVERY,
            stopping: None,
        }
    }

    /// Does what is there, in at most so many rounds. Whether nothing is left.
    pub(super) fn rounds(&mut self, mailbox: &Mailbox, rounds_max: usize) -> bool {
        for _ in 0..rounds_max {
            self.take_mail(mailbox);
            let due = self.shard.next_deadline();
            let now = self.now_of_the_shard(due);
            if self.inputs.is_empty() && due.is_none_or(|deadline| deadline > now.mono) {
                return true;
            }
            let inputs = std::mem::take(&mut self.inputs);
            for output in self.shard.round(now, inputs) {
                self.carry_out(output, now.wall_ms);
            }
        }
        false
    }

    /// Whether it was told to stop and has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.stopping.is_some()
            && self.inputs.is_empty()
            && self.flushes.is_idle()
            && self.logs.is_cleaning_idle()
            && self.indexing.is_idle()
    }

    /// When there is something to do, if nobody brings anything before.
    pub(super) fn next_at(&self) -> Mono {
        let mut next = self.retention_at.min(self.checkpoint_at).min(self.indexing.next_at());
        if self.logs.has_lazy_flushes() {
            next = next.min(self.flush_at);
        }
        let due = self.shard.next_deadline().map(|due| self.shard_time.clock_at(due));
        self.cleaning.next_at().into_iter().chain(due).fold(next, Mono::min)
    }

    /// Closes the logs, and tells whoever asked for the end.
    pub(super) fn close(self) {
        let outcome = self.logs.close().map_err(|error| Refused(error.to_string()));
        if let Some(asked) = self.stopping {
            let _ = asked.send(outcome);
        }
    }

    fn now_of_the_shard(&mut self, due: Option<Mono>) -> Now {
        let Now { mono, wall_ms } = self.clock.now();
        let (mono, lost) = self.shard_time.at(mono, due);
        if lost > Micros::ZERO {
            tracing::warn!(
                lost_ms = lost.as_ms_ceil(),
                "the broker stood still; locks, sessions and waits of members get so much more time"
            );
        }
        Now { mono, wall_ms }
    }

    fn take_mail(&mut self, mailbox: &Mailbox) {
        let mut has_gone = false;
        let mut taken = std::mem::take(&mut self.taken);
        mailbox.take(&mut taken);
        for mail in taken.drain(..) {
            match mail {
                Mail::Command { ticket, command, reply } => {
                    self.replies.expect(ticket, reply);
                    self.inputs.push(Input::Command(ticket, command));
                }
                Mail::Fact(fact) => {
                    has_gone |= matches!(fact, Fact::ConnectionClosed(_));
                    self.inputs.push(Input::Fact(fact));
                }
                Mail::Completion(completion) => self.inputs.push(Input::Completion(completion)),
                Mail::Fetched(submission) => self.serve(submission, self.clock.now().wall_ms),
                Mail::Synced(result) => {
                    let (done, job) = self.flushes.end(&mut self.logs, result);
                    self.inputs.extend(done.into_iter().map(Input::Completion));
                    self.start_sync(job);
                }
                Mail::Cleaned(step) => self.cleaning.done(*step, &mut self.logs, self.clock.now()),
                Mail::KeysRead(done) => {
                    self.indexing.done(*done, &mut self.logs, self.clock.mono());
                }
                Mail::Control(control) => self.control(control),
            }
        }
        self.taken = taken;
        if has_gone {
            self.replies.forget_gone();
        }
    }

    fn carry_out(&mut self, output: Output<Data>, now_ms: i64) {
        match output {
            Output::Submit(Submission::Sync { op, partition }) => {
                let (done, job) = self.flushes.begin(&mut self.logs, op, partition);
                self.inputs.extend(done.into_iter().map(Input::Completion));
                self.start_sync(job);
            }
            Output::Submit(Submission::SyncNow { op, partition }) => {
                let (done, job) = self.flushes.force(&mut self.logs, op, partition);
                self.inputs.extend(done.into_iter().map(Input::Completion));
                self.start_sync(job);
            }
            Output::Submit(submission) => match self.cold_pages(&submission) {
                Some(places) => {
                    metrics::cold_read();
                    let engine = Arc::clone(&self.engine);
                    self.reads.run(move || {
                        readahead::fetch_pages(&places);
                        let _ = engine.leave(Mail::Fetched(submission));
                    });
                }
                None => self.serve(submission, now_ms),
            },
            Output::Reply(ticket, reply) => self.replies.answer(ticket, reply),
            Output::Effect(Effect::CloseConnection(connection)) => self.connections.close(connection),
            Output::Effect(Effect::IndexKeys(partition)) => self.indexing.enable(&mut self.logs, partition),
            Output::Effect(Effect::RetentionWarning { group, partition, offset, at_ms, left_ms }) => {
                tracing::warn!(
                    group = &*group,
                    partition = self.name(partition),
                    offset = offset.get(),
                    at_ms,
                    left_ms,
                    "retention takes records soon that this share group has not done; consume them, or keep them longer"
                );
            }
            Output::Effect(Effect::CreateDeadLetterTopic(name)) => {
                let _ = self.wanted_topics.try_send(name);
            }
            Output::Effect(Effect::DeadLettersWait { group, partition, topic, trouble }) => {
                tracing::warn!(
                    group = &*group,
                    topic = topic.as_deref(),
                    partition = self.name(partition),
                    "dead letters wait: {trouble}"
                );
            }
            Output::Effect(Effect::GroupDeleted(group)) => {
                if let Err(error) = self.metadata.remove_group(&group) {
                    tracing::error!("cannot forget the number of a deleted group: {error}");
                }
            }
        }
    }

    /// Serves what does not go elsewhere.
    fn serve(&mut self, submission: Submission, now_ms: i64) {
        match serve::serve(submission, &mut self.logs, &self.metadata, now_ms) {
            Completion::Read(op, found) => {
                let missing = readahead::missing(&found);
                if missing.is_empty() {
                    self.inputs.push(Input::Completion(Completion::Read(op, found)));
                    return;
                }
                metrics::cold_read();
                let engine = Arc::clone(&self.engine);
                self.reads.run(move || {
                    readahead::fetch(&missing);
                    let _ = engine.leave(Mail::Completion(Completion::Read(op, found)));
                });
            }
            completion => {
                if let Completion::Appended(_, Ok(appended)) = &completion {
                    metrics::appended(appended.bytes);
                }
                self.inputs.push(Input::Completion(completion));
            }
        }
    }

    /// The pages of share state that a submission reads and that are not in memory.
    fn cold_pages(&mut self, submission: &Submission) -> Option<PagePlaces> {
        let Submission::ReadPages { state, pages, .. } = submission else { return None };
        // What cannot be told of is told when it is read.
        let places = self.logs.page_places(state.partition, state.group, pages).ok()??;
        (!readahead::are_resident(&places)).then_some(places)
    }

    /// A partition as people name it.
    fn name(&self, partition: PartitionId) -> String {
        match self.logs.name(partition) {
            Some((topic, index)) => format!("{topic}-{index}"),
            None => format!("{:?}-{}", partition.topic, partition.index),
        }
    }

    /// Syncs what recovery has left to the next sync, without anybody who waits for it.
    pub(super) fn sync_recovered(&mut self) {
        for (partition, _) in self.logs.sizes() {
            let (_, job) = self.flushes.force(&mut self.logs, OpId::default(), partition);
            self.start_sync(job);
        }
    }

    fn start_sync(&self, job: Option<SyncJob>) {
        let Some(job) = job else { return };
        let engine = Arc::clone(&self.engine);
        let clock = self.clock;
        self.syncs.run(move || {
            let began = clock.mono();
            let result = job.run();
            metrics::synced(Duration::from_micros(clock.mono().0.saturating_sub(began.0)));
            let _ = engine.leave(Mail::Synced(result));
        });
    }

    fn control(&mut self, control: Control) {
        match control {
            Control::Open(partitions, done) => {
                let _ = done.send(partitions.into_iter().try_for_each(|partition| self.open(partition)));
            }
            Control::Delete(partitions, done) => {
                let _ = done.send(self.delete(&partitions));
            }
            Control::Configure(partitions, config, done) => {
                let _ = done.send(self.configure(&partitions, &config));
            }
            Control::Sizes(done) => {
                let _ = done.send(self.logs.sizes());
            }
            Control::Logs(count, done) => {
                let _ = done.send(self.logs.overview(count));
            }
            Control::ShareGroups(done) => {
                let _ = done.send(self.shard.share_groups().collect());
            }
            Control::Stop(done) => {
                self.cleaning.stop(&mut self.logs, &self.engine);
                self.indexing.stop();
                self.stopping = Some(done);
            }
        }
    }

    fn open(&mut self, partition: OpenPartition) -> Result<(), Refused> {
        let OpenPartition { id, topic, role, config } = partition;
        let facts =
            self.logs.open_partition(id, &topic, config).map_err(|error| Refused(error.to_string()))?;
        let facts = log_facts(&facts);
        self.inputs.push(Input::Fact(Fact::PartitionOpened { partition: id, role, facts }));
        Ok(())
    }

    fn delete(&mut self, partitions: &[PartitionId]) -> Result<(), Refused> {
        let mut outcome = Ok(());
        for partition in partitions {
            self.inputs.push(Input::Fact(Fact::PartitionDeleted(*partition)));
            self.indexing.forget(*partition);
            if let Err(error) = self.logs.delete_partition(*partition) {
                outcome = Err(Refused(error.to_string()));
            }
        }
        outcome
    }

    fn configure(&mut self, partitions: &[PartitionId], config: &LogConfig) -> Result<(), Refused> {
        partitions.iter().try_for_each(|partition| {
            self.logs.configure(*partition, config.clone()).map_err(|error| Refused(error.to_string()))
        })
    }

    /// Does what is due by the clock and what compaction and the indexing of keys wait for.
    pub(super) fn housekeep(&mut self) {
        let now = self.clock.now();
        if now.mono >= self.retention_at {
            self.retention_at = now.mono + self.retention_every;
            match self.logs.enforce_retention(now.wall_ms) {
                Ok(moved) => {
                    if moved.len() > RETENTION_LINES_MAX {
                        tracing::info!("retention moves the start of {} logs; some of them:", moved.len());
                    }
                    for (number, partition) in moved.into_iter().enumerate() {
                        if let Some(facts) = self.logs.facts(partition) {
                            if number < RETENTION_LINES_MAX {
                                let (topic, index) = self.logs.name(partition).unwrap_or_default();
                                tracing::info!(
                                    topic, partition = index, log_start = %facts.log_start, bytes_left = facts.bytes,
                                    "retention deletes what is below the log start"
                                );
                            }
                            self.inputs.push(Input::Fact(Fact::LogStartMoved(partition, facts.log_start)));
                        }
                    }
                }
                Err(error) => tracing::error!("retention failed: {error}"),
            }
            if let Some(job) = self.logs.remove_job(now.wall_ms) {
                self.removals.run(move || job.run());
            }
        }
        if now.mono >= self.flush_at && self.logs.has_lazy_flushes() {
            self.flush_at = now.mono + FLUSH_EVERY;
            for partition in self.logs.due_flushes(now.wall_ms).collect::<Vec<_>>() {
                let (_, job) = self.flushes.force(&mut self.logs, OpId::default(), partition);
                self.start_sync(job);
            }
        }
        self.cleaning.tick(&mut self.logs, now, &self.engine);
        self.indexing.tick(&mut self.logs, now, &self.engine);
        if now.mono >= self.checkpoint_at {
            self.checkpoint_at = now.mono + CHECKPOINT_EVERY;
            if let Err(error) = self.logs.checkpoint() {
                tracing::error!("checkpoints could not be written: {error}");
            }
        }
    }
}
