//! The shard's thread: takes the mail, runs a round, serves what the round submits, until it is told to stop.
//!
//! Owner of the shard, the logs and the reply channels. Between rounds it does the catalogue's work on the logs and
//! the housekeeping. Invariant: the mail is closed when the thread ends, however it ends, so that nobody waits for a
//! thread that is gone.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use coordinator::command::Fact;
use coordinator::io::{Completion, OpId, Submission};
use coordinator::limits::Limits;
use coordinator::reply::{Effect, Output};
use coordinator::shard::{Input, Shard};
use coordinator::time::{Micros, Mono};
use records::ids::PartitionId;
use storage::{LogConfig, Logs, Metadata, SyncJob};
use tokio::sync::{oneshot, watch};

use super::cleaning::{Cleaning, CleaningPace};
use super::control::{Control, OpenPartition, Refused};
use super::flush::Flushes;
use super::handle::ShardHandle;
use super::mailbox::{Mail, Mailbox};
use super::pool::Pool;
use super::replies::Replies;
use super::serve::{self, log_facts};
use super::{Data, readahead};
use crate::clock::Clock;
use crate::metrics;
use crate::net::Connections;

/// Syncs that run beside each other.
const SYNC_THREADS_MAX: usize = 8;
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
/// The shard's thread decides and walks indexes; nothing recurses.
const STACK_BYTES: usize = 1 << 20;

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
}

/// The running executor.
#[derive(Debug)]
pub struct Executor {
    handle: ShardHandle,
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
    ended: watch::Receiver<bool>,
}

impl Executor {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(parts: Parts) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new());
        let handle = ShardHandle::new(Arc::clone(&mailbox));
        let (sender, ended) = watch::channel(false);
        let end = End { mailbox: Arc::clone(&mailbox), ended: sender };
        let worker = Worker::new(parts, Arc::clone(&mailbox));
        let thread = std::thread::Builder::new()
            .name("shard".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || worker.run(end))?;
        Ok(Self { handle, mailbox, thread, ended })
    }

    /// The way to the shard.
    #[must_use]
    pub fn handle(&self) -> ShardHandle {
        self.handle.clone()
    }

    /// Waits until the thread has ended, which it does unasked only by a panic.
    pub async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Closes the logs and ends the thread. Commands that are not answered yet never will be.
    ///
    /// # Errors
    /// Where not everything is on the disk: the next start recovers.
    pub async fn stop(self) -> Result<(), Refused> {
        let (sender, outcome) = oneshot::channel();
        let _ = self.mailbox.push(Mail::Control(Control::Stop(sender)));
        let outcome = outcome.await.unwrap_or_else(|_| Err(Refused("the shard's thread is gone".to_owned())));
        let mut ended = self.ended;
        let _ = ended.wait_for(|ended| *ended).await;
        let _ = self.thread.join();
        outcome
    }
}

/// Closes the mail and says so when the thread ends.
struct End {
    mailbox: Arc<Mailbox>,
    ended: watch::Sender<bool>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.mailbox.close();
        self.ended.send_replace(true);
    }
}

struct Worker {
    shard: Shard<Data>,
    logs: Logs,
    metadata: Arc<Metadata>,
    mailbox: Arc<Mailbox>,
    clock: Clock,
    connections: Arc<Connections>,
    replies: Replies,
    flushes: Flushes,
    syncs: Pool,
    reads: Pool,
    removals: Pool,
    cleaning: Cleaning,
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
    fn new(parts: Parts, mailbox: Arc<Mailbox>) -> Self {
        let now = parts.clock.mono();
        Self {
            shard: Shard::new(parts.limits, parts.boot),
            logs: parts.logs,
            metadata: parts.metadata,
            mailbox,
            clock: parts.clock,
            connections: parts.connections,
            replies: Replies::default(),
            flushes: Flushes::default(),
            syncs: Pool::new("sync", SYNC_THREADS_MAX),
            reads: Pool::new("read", READ_THREADS_MAX),
            removals: Pool::new("remove", REMOVE_THREADS_MAX),
            cleaning: Cleaning::new(parts.cleaning, now),
            taken: VecDeque::new(),
            inputs: parts.facts.into_iter().map(Input::Fact).collect(),
            retention_every: parts.retention_every,
            retention_at: now + parts.retention_every,
            checkpoint_at: now + CHECKPOINT_FIRST,
            flush_at: now + FLUSH_EVERY,
            stopping: None,
        }
    }

    fn run(mut self, _end: End) {
        self.sync_recovered();
        loop {
            self.take_mail();
            self.housekeep();
            let now = self.clock.now();
            if self.inputs.is_empty() && self.shard.next_deadline().is_none_or(|deadline| deadline > now.mono)
            {
                if self.is_done() {
                    break;
                }
                continue;
            }
            let inputs = std::mem::take(&mut self.inputs);
            for output in self.shard.round(now, inputs) {
                self.carry_out(output, now.wall_ms);
            }
        }
        self.mailbox.close();
        let outcome = self.logs.close().map_err(|error| Refused(error.to_string()));
        if let Some(asked) = self.stopping {
            let _ = asked.send(outcome);
        }
    }

    fn take_mail(&mut self) {
        let wait = if self.inputs.is_empty() && !self.is_done() { self.wait() } else { Duration::ZERO };
        let mut has_gone = false;
        let mut taken = std::mem::take(&mut self.taken);
        self.mailbox.take(&mut taken, wait);
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
                Mail::Synced(result) => {
                    let (done, job) = self.flushes.end(&mut self.logs, result);
                    self.inputs.extend(done.into_iter().map(Input::Completion));
                    self.start_sync(job);
                }
                Mail::Cleaned(step) => self.cleaning.done(*step, &mut self.logs, self.clock.now()),
                Mail::Control(control) => self.control(control),
            }
        }
        self.taken = taken;
        if has_gone {
            self.replies.forget_gone();
        }
    }

    fn is_done(&self) -> bool {
        self.stopping.is_some() && self.flushes.is_idle() && self.logs.is_cleaning_idle()
    }

    fn wait(&self) -> Duration {
        let mut housekeeping = self.retention_at.min(self.checkpoint_at);
        if self.logs.has_lazy_flushes() {
            housekeeping = housekeeping.min(self.flush_at);
        }
        let next = self.cleaning.next_at().map_or(housekeeping, |at| at.min(housekeeping));
        self.clock.until(self.shard.next_deadline().map_or(next, |deadline| deadline.min(next)))
    }

    fn carry_out(&mut self, output: Output<Data>, now_ms: i64) {
        match output {
            Output::Submit(Submission::Sync { op, partition }) => {
                let (done, job) = self.flushes.begin(&mut self.logs, op, partition);
                self.inputs.extend(done.into_iter().map(Input::Completion));
                self.start_sync(job);
            }
            Output::Submit(submission) => {
                match serve::serve(submission, &mut self.logs, &self.metadata, now_ms) {
                    Completion::Read(op, found) => {
                        let missing = readahead::missing(&found);
                        if missing.is_empty() {
                            self.inputs.push(Input::Completion(Completion::Read(op, found)));
                            return;
                        }
                        metrics::cold_read();
                        let mailbox = Arc::clone(&self.mailbox);
                        self.reads.run(move || {
                            readahead::fetch(&missing);
                            let _ = mailbox.push(Mail::Completion(Completion::Read(op, found)));
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
            Output::Reply(ticket, reply) => self.replies.answer(ticket, reply),
            Output::Effect(Effect::CloseConnection(connection)) => self.connections.close(connection),
            Output::Effect(Effect::GroupDeleted(group)) => {
                if let Err(error) = self.metadata.remove_group(&group) {
                    tracing::error!("cannot forget the number of a deleted group: {error}");
                }
            }
        }
    }

    /// Syncs what recovery has left to the next sync, without anybody who waits for it.
    fn sync_recovered(&mut self) {
        for (partition, _) in self.logs.sizes() {
            let (_, job) = self.flushes.force(&mut self.logs, OpId::default(), partition);
            self.start_sync(job);
        }
    }

    fn start_sync(&self, job: Option<SyncJob>) {
        let Some(job) = job else { return };
        metrics::synced();
        let mailbox = Arc::clone(&self.mailbox);
        self.syncs.run(move || {
            let _ = mailbox.push(Mail::Synced(job.run()));
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
            Control::ShareGroups(done) => {
                let _ = done.send(self.shard.share_groups().collect());
            }
            Control::Stop(done) => {
                self.cleaning.stop(&mut self.logs, &self.mailbox);
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

    fn housekeep(&mut self) {
        let now = self.clock.now();
        if now.mono >= self.retention_at {
            self.retention_at = now.mono + self.retention_every;
            match self.logs.enforce_retention(now.wall_ms) {
                Ok(moved) => {
                    for partition in moved {
                        if let Some(facts) = self.logs.facts(partition) {
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
        self.cleaning.tick(&mut self.logs, now, &self.mailbox);
        if now.mono >= self.checkpoint_at {
            self.checkpoint_at = now.mono + CHECKPOINT_EVERY;
            if let Err(error) = self.logs.checkpoint() {
                tracing::error!("checkpoints could not be written: {error}");
            }
        }
    }
}
