//! A shard with an executor in memory that works off its submissions in any order that the contract allows, and
//! checks at every step what no answer may break.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use coordinator::command::{Acks, Command, Fact, Fetch, PartitionRole, Ticket};
use coordinator::io::{AppendError, Appended, Completion, IoError, LogFacts, OpId, Submission};
use coordinator::limits::Limits;
use coordinator::reply::{Effect, Output, Reply};
use coordinator::shard::{Input, Shard};
use coordinator::time::{Micros, Mono, Now};
use records::BatchView;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};

use crate::log::Log;
use crate::states::States;

/// Submissions of one lane are served in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Partition(PartitionId),
    /// A read of several partitions keeps no order with anything.
    Read(OpId),
    /// A sync that was taken, until the disk is done.
    Sync(OpId),
}

/// The life of an append or sync, as counts of the world's steps.
#[derive(Clone, Copy, Debug)]
struct Done {
    partition: PartitionId,
    submitted: u64,
    completed: u64,
    ok: bool,
}

pub(crate) struct World {
    pub(crate) shard: Shard<Bytes>,
    pub(crate) now: Now,
    pub(crate) logs: BTreeMap<PartitionId, Log>,
    pub(crate) queues: BTreeMap<Lane, VecDeque<Submission>>,
    pub(crate) replies: BTreeMap<Ticket, Reply<Bytes>>,
    pub(crate) replied_at: BTreeMap<Ticket, Mono>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) states: States,
    /// Every submission, as it came out.
    pub(crate) seen: Vec<Submission>,
    /// The next appends or syncs that fail.
    pub(crate) failing_appends: u32,
    pub(crate) failing_syncs: u32,
    commands: BTreeMap<Ticket, Command>,
    appends: BTreeMap<(PartitionId, Offset), Done>,
    syncs: Vec<Done>,
    submitted: BTreeMap<OpId, u64>,
    syncs_in_flight: BTreeMap<PartitionId, OpId>,
    /// The log's end when a sync was taken.
    taken: BTreeMap<OpId, Offset>,
    step: u64,
    ticket_next: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self {
            shard: Shard::new(limits, 1),
            now: Now { mono: Mono(1_000_000), wall_ms: 1_700_000_000_000 },
            logs: BTreeMap::new(),
            queues: BTreeMap::new(),
            replies: BTreeMap::new(),
            replied_at: BTreeMap::new(),
            effects: Vec::new(),
            states: States::default(),
            seen: Vec::new(),
            failing_appends: 0,
            failing_syncs: 0,
            commands: BTreeMap::new(),
            appends: BTreeMap::new(),
            syncs: Vec::new(),
            submitted: BTreeMap::new(),
            syncs_in_flight: BTreeMap::new(),
            taken: BTreeMap::new(),
            step: 0,
            ticket_next: 1,
        }
    }

    /// Opens an empty log for users' records.
    pub(crate) fn open(&mut self, partition: PartitionId) {
        self.open_as(partition, PartitionRole::Data, Log::default());
    }

    pub(crate) fn open_as(&mut self, partition: PartitionId, role: PartitionRole, log: Log) {
        let facts = log.facts;
        self.logs.insert(partition, log);
        self.fact(Fact::PartitionOpened { partition, role, facts });
    }

    pub(crate) fn fact(&mut self, fact: Fact) {
        if let Fact::PartitionDeleted(partition) = fact {
            self.logs.remove(&partition);
        }
        self.round([Input::Fact(fact)]);
    }

    pub(crate) fn command(&mut self, command: Command) -> Ticket {
        let ticket = self.queue(command);
        let command = self.commands[&ticket].clone();
        self.round([Input::Command(ticket, command)]);
        ticket
    }

    /// Hands out a ticket; the caller puts the command into a round.
    pub(crate) fn queue(&mut self, command: Command) -> Ticket {
        let ticket = Ticket(self.ticket_next);
        self.ticket_next += 1;
        self.commands.insert(ticket, command);
        ticket
    }

    pub(crate) fn round(&mut self, inputs: impl IntoIterator<Item = Input<Bytes>>) {
        self.step += 1;
        for output in self.shard.round(self.now, inputs) {
            match output {
                Output::Submit(submission) => self.submit(submission),
                Output::Reply(ticket, reply) => self.reply(ticket, reply),
                Output::Effect(effect) => self.effects.push(effect),
            }
        }
    }

    /// Lets time pass, with a round at every deadline on the way.
    pub(crate) fn pass(&mut self, ms: i64) {
        let end = self.now.mono + Micros::from_ms(ms);
        while let Some(deadline) = self.shard.next_deadline().filter(|deadline| *deadline <= end) {
            self.advance_to(deadline.max(self.now.mono));
            self.round([]);
            self.drain();
        }
        self.advance_to(end);
        self.round([]);
    }

    pub(crate) fn advance_to(&mut self, to: Mono) {
        let gone = to - self.now.mono;
        self.now.wall_ms += i64::try_from(gone.0 / 1_000).expect("tests are short");
        self.now.mono = to;
    }

    /// Serves everything, also what comes of it, but lets no sync end.
    pub(crate) fn drain_but_syncs(&mut self) {
        while let Some(lane) = self.queues.keys().find(|lane| !matches!(lane, Lane::Sync(_))).copied() {
            self.serve(lane);
        }
    }

    /// Serves everything, also what comes of it.
    pub(crate) fn drain(&mut self) {
        while let Some(lane) = self.queues.keys().next().copied() {
            self.serve(lane);
        }
    }

    /// Serves the first submission of a lane; of a partition's sync this is that it is taken.
    pub(crate) fn serve(&mut self, lane: Lane) {
        let queue = self.queues.get_mut(&lane).expect("the lane has work");
        let submission = queue.pop_front().expect("a lane that stands has work");
        if queue.is_empty() {
            self.queues.remove(&lane);
        }
        let op = submission.op();
        if let (Lane::Partition(partition), Submission::Sync { .. }) = (lane, &submission) {
            let end = self.logs.get(&partition).map_or(Offset::ZERO, |log| log.facts.end);
            self.taken.insert(op, end);
            self.queues.insert(Lane::Sync(op), VecDeque::from([submission]));
            return;
        }
        let submitted = self.submitted[&op];
        let completion = self.execute(submission, submitted);
        self.round([Input::Completion(completion)]);
    }

    pub(crate) fn fetched(&self, ticket: Ticket) -> Option<&Vec<parts::Part>> {
        match self.replies.get(&ticket)? {
            Reply::Fetched(parts) => Some(parts),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn produced(&self, ticket: Ticket) -> Option<&Vec<parts::Produced>> {
        match self.replies.get(&ticket)? {
            Reply::Produced(parts) => Some(parts),
            other => panic!("{other:?}"),
        }
    }

    /// How many submissions so far are of this kind.
    pub(crate) fn count(&self, kind: impl Fn(&Submission) -> bool) -> usize {
        self.seen.iter().filter(|submission| kind(submission)).count()
    }

    fn submit(&mut self, submission: Submission) {
        let op = submission.op();
        let known = self.submitted.insert(op, self.step);
        assert!(known.is_none(), "an id is used once");
        let lane = match &submission {
            Submission::Append { partition, .. }
            | Submission::Sync { partition, .. }
            | Submission::FindOffset { partition, .. }
            | Submission::DeleteRecords { partition, .. }
            | Submission::Load { partition, .. }
            | Submission::Scan { partition, .. }
            | Submission::FindKey { partition, .. }
            | Submission::SyncNow { partition, .. }
            | Submission::ReadRecords { partition, .. }
            | Submission::NextRetention { partition, .. }
            | Submission::OpenShareState { partition, .. } => Lane::Partition(*partition),
            Submission::AppendEvents { state, .. }
            | Submission::WriteSnapshot { state, .. }
            | Submission::ReadPages { state, .. } => Lane::Partition(state.partition),
            _ => Lane::Read(op),
        };
        if let Submission::Sync { partition, .. } = &submission {
            let other = self.syncs_in_flight.insert(*partition, op);
            assert!(other.is_none(), "one sync of a partition at a time");
        }
        self.seen.push(submission.clone());
        self.queues.entry(lane).or_default().push_back(submission);
    }

    fn execute(&mut self, submission: Submission, submitted: u64) -> Completion<Bytes> {
        let completed = self.step + 1;
        match submission {
            Submission::Append { op, partition, batch, .. } => {
                let result = self.append(partition, &batch);
                if let Ok(appended) = &result {
                    let done = Done { partition, submitted, completed, ok: true };
                    self.appends.insert((partition, appended.base_offset), done);
                }
                Completion::Appended(op, result)
            }
            Submission::Sync { op, partition } => {
                let result = self.sync(op, partition);
                self.syncs_in_flight.remove(&partition);
                self.syncs.push(Done { partition, submitted, completed, ok: result.is_ok() });
                Completion::Synced(op, result)
            }
            Submission::SyncNow { op, partition } => {
                let end = self.logs.get(&partition).map_or(Offset::ZERO, |log| log.facts.end);
                self.taken.insert(op, end);
                let result = self.sync(op, partition);
                self.syncs.push(Done { partition, submitted, completed, ok: result.is_ok() });
                Completion::Synced(op, result)
            }
            Submission::ReadRecords { op, partition, offsets, bytes_max } => {
                let log = self.logs.get(&partition).ok_or(IoError::NotOpen);
                Completion::RecordsRead(op, log.map(|log| log.records(&offsets, bytes_max)))
            }
            Submission::NextRetention { op, .. } => Completion::RetentionFound(op, Ok(None)),
            Submission::Read { op, bytes_max, parts } => {
                let mut left = bytes_max;
                let mut one = true;
                let found = parts.iter().map(|part| {
                    let log = self.logs.get(&part.partition).ok_or(IoError::NotOpen)?;
                    let found = log.read(part.from, part.upper, left.min(part.bytes_max), one)?;
                    one &= found.is_empty();
                    left = left.saturating_sub(found.len() as u64);
                    Ok(found.into())
                });
                let found = found.collect();
                Completion::Read(op, found)
            }
            Submission::FindOffset { op, partition, query } => {
                let log = self.logs.get(&partition).ok_or(IoError::NotOpen);
                Completion::OffsetFound(op, log.map(|log| log.find(query)))
            }
            Submission::DeleteRecords { op, partition, to } => {
                let log = self.logs.get_mut(&partition).ok_or(IoError::NotOpen.into());
                Completion::RecordsDeleted(op, log.and_then(|log| log.delete(to)))
            }
            Submission::Load { op, partition } => {
                let log = self.logs.get(&partition).ok_or(IoError::NotOpen);
                Completion::Loaded(op, log.map(|log| log.batches.clone()))
            }
            other => self.states.execute(other, &self.logs),
        }
    }

    fn append(&mut self, partition: PartitionId, batch: &Bytes) -> Result<Appended, AppendError> {
        let log = self.logs.get_mut(&partition).ok_or(AppendError::Io(IoError::NotOpen))?;
        if self.failing_appends > 0 {
            self.failing_appends -= 1;
            return Err(AppendError::Io(IoError::Storage));
        }
        Ok(log.append(batch))
    }

    fn sync(&mut self, op: OpId, partition: PartitionId) -> Result<(), IoError> {
        let log = self.logs.get_mut(&partition).ok_or(IoError::NotOpen)?;
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(IoError::Storage);
        }
        log.synced = log.synced.max(self.taken[&op]);
        Ok(())
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply<Bytes>) {
        match (&self.commands[&ticket], &reply) {
            (Command::Produce(produce), Reply::Produced(parts)) => {
                assert_eq!(produce.parts.len(), parts.len());
                for ((partition, _), part) in produce.parts.iter().zip(parts) {
                    let Ok(appended) = part else { continue };
                    self.check_written(*partition, appended, produce.acks);
                }
            }
            (Command::Fetch(fetch), Reply::Fetched(parts)) => {
                assert_eq!(fetch.parts.len(), parts.len());
                self.check_fetched(fetch, parts);
            }
            _ => {}
        }
        self.replied_at.insert(ticket, self.now.mono);
        let known = self.replies.insert(ticket, reply);
        assert!(known.is_none(), "{ticket:?} is answered once");
    }

    /// No answer before its append; none that promises durability before a sync that began after the append ended.
    fn check_written(&self, partition: PartitionId, appended: &Appended, acks: Acks) {
        let append =
            self.appends.get(&(partition, appended.base_offset)).expect("what is answered was appended");
        assert!(append.completed <= self.step);
        if acks == Acks::Synced {
            let covered = self.syncs.iter().any(|sync| {
                sync.ok
                    && sync.partition == partition
                    && sync.submitted >= append.completed
                    && sync.completed <= self.step
            });
            assert!(covered, "{appended:?} was answered without a sync after {append:?}");
            let log = &self.logs[&partition];
            assert!(log.synced > appended.base_offset);
        }
    }

    /// What is shown is the log, from the batch that holds the offset, without a hole.
    fn check_fetched(&self, fetch: &Fetch, parts: &[parts::Part]) {
        for (asked, part) in fetch.parts.iter().zip(parts) {
            let Ok(part) = part else { continue };
            let Some(data) = &part.data else { continue };
            let log = &self.logs[&asked.partition];
            let whole = log.read(asked.offset, part.high_watermark, u64::MAX, true);
            // The log may have been cut since the read.
            let Ok(whole) = whole else { continue };
            assert!(!data.is_empty(), "nothing is told as `None`");
            assert!(whole.starts_with(data), "the answer is a prefix of the log below its high watermark");
            let first = BatchView::parse(data).expect("an answer begins with a whole batch");
            assert!(first.last_offset() >= asked.offset);
        }
    }
}

/// Short names for what replies hold.
pub(crate) mod parts {
    use bytes::Bytes;
    use coordinator::io::Appended;
    use coordinator::reply::{FetchError, FetchedPart, ProduceError};

    pub(crate) type Part = Result<FetchedPart<Bytes>, FetchError>;
    pub(crate) type Produced = Result<Appended, ProduceError>;
}

pub(crate) fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([7; 16]), index }
}

/// A batch of `count` records of `value_bytes` each.
pub(crate) fn batch(count: usize, value_bytes: usize) -> Bytes {
    let timestamps: Vec<i64> = (0..count).map(|index| 1_000 + index as i64).collect();
    batch_at(&timestamps, value_bytes, Codec::None)
}

pub(crate) fn batch_at(timestamps: &[i64], value_bytes: usize, codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    let value = vec![b'v'; value_bytes];
    for timestamp in timestamps {
        builder.append(*timestamp, Some(b"k"), Some(&value), &[]);
    }
    builder.build(Offset::ZERO, -1)
}

pub(crate) fn facts(start: i64, end: i64, leader_epoch: i32) -> LogFacts {
    LogFacts { log_start: Offset(start), end: Offset(end), last_stable: Offset(end), leader_epoch }
}
