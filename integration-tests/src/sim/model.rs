//! The model: slow, simple, and independent of the broker. It sees what goes into the shard and what comes out, what
//! the disk did, and what applications work on, and holds the broker to its promises (O1, O2, O3, O5, produce, one
//! reply a command) at every step.

mod answers;
mod grants;
mod hand;
mod homes;
mod isolation;
mod letters;
mod log;
mod members;
mod readers;
mod share;
mod state;
mod wakeups;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::{Command, ConnectionId, DeleteTo, Fact, Isolation, ShareAcknowledge, Ticket};
use coordinator::group::GroupCommand;
use coordinator::io::{Completion, OpId, Submission};
use coordinator::reply::{Output, Reply};
use coordinator::shard::Input;
use coordinator::share::{ShareConfig, ShareOrder};
use coordinator::time::{Micros, Mono, Now};
use records::ids::PartitionId;

use self::answers::Asked;
use self::hand::Pending;
use self::homes::Homes;
use self::isolation::Logs;
use self::letters::Letters;
pub use self::log::Found;
use self::members::MemberView;
use self::readers::Readers;
pub use self::readers::reader_name;
use self::share::Share;
use self::state::Hold;
use self::wakeups::Wakeups;
use super::clients::Work;
use super::content::{Batch, Letter};

/// The promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// O1: two members hold one key, or one record.
    Exclusive,
    /// O2: a record went out while an earlier one of its key was not done.
    Order,
    /// O3: what was recalled, how acknowledgements of it are taken, what a failure counts.
    Redelivery,
    /// O5: the start offset passed what is not done, or a record was never worked off.
    Lost,
    /// O5: what was acknowledged, and answered so, came again.
    Forgotten,
    /// What a produce request was told does not hold.
    Produce,
    /// An answer bears other records than it says.
    Content,
    /// A limit of the request was passed.
    Limit,
    /// A command was answered twice, too early, or never.
    Reply,
    /// What was written was not synced in time.
    Sync,
    /// A dead letter is none, comes too often or too early; or what was stopped goes out.
    DeadLetter,
    /// What was parked goes out.
    Parked,
    /// O4: a key that nobody holds waits while a member asks.
    WakeUp,
    /// Committed offsets.
    Commit,
    /// A reader of committed records is given others, or hidden some.
    Isolation,
    /// A reader without membership is given keys that it did not name, or that a newer one has.
    Ranges,
    /// With sticky assignment a key goes to a member while its owner is there.
    Home,
    /// The broker did not start, or stopped going on.
    Life,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub text: String,
}

impl Violation {
    /// With its words.
    #[must_use]
    pub fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

/// How late the shard's thread may be on top of a deadline.
const LATE_MAX: Micros = Micros(60_000);

/// A share-partition by group and partition.
pub type ShareId = (Arc<str>, PartitionId);

/// See the module.
#[derive(Debug)]
pub struct Model {
    configs: BTreeMap<Arc<str>, Arc<ShareConfig>>,
    logs: Logs,
    shares: BTreeMap<ShareId, Share>,
    /// Share-partitions in the shard's memory before the round. Where it was dropped or read in this round, what a
    /// word on a record does is not known.
    open: BTreeSet<ShareId>,
    members: BTreeMap<(Arc<str>, Arc<str>), MemberView>,
    tickets: BTreeMap<Ticket, Asked>,
    closed: BTreeSet<ConnectionId>,
    numbers: BTreeMap<u64, Arc<str>>,
    flushes: BTreeMap<OpId, (ShareId, u64)>,
    deletions: BTreeMap<OpId, PartitionId>,
    syncing: BTreeMap<OpId, PartitionId>,
    jobs: BTreeMap<u64, (PartitionId, i64)>,
    working: BTreeMap<(Arc<str>, Arc<str>), (i32, i64)>,
    letters: Letters,
    readers: Readers,
    homes: Homes,
    /// Commands of operators that are not answered.
    pending: BTreeMap<Ticket, Pending>,
    wakeups: Wakeups,
    /// Commits that were answered well: the highest number by group.
    committed: BTreeMap<Arc<str>, u64>,
    wall_stepped: bool,
    /// The broker has been told to stop: no lease ends with a connection any more.
    stopping: bool,
    started: Mono,
    /// When the shard's last round was.
    rounded_at: Mono,
    /// Records granted, settled by acceptance; for reports.
    pub grants: u64,
}

impl Model {
    /// Of a broker with these partitions and groups, none of which has state.
    #[must_use]
    pub fn new(partitions: &[PartitionId], groups: &[(Arc<str>, Arc<ShareConfig>)]) -> Self {
        let mut shares = BTreeMap::new();
        for (name, config) in groups {
            for partition in partitions {
                shares.insert((Arc::clone(name), *partition), Share::new(Arc::clone(config)));
            }
        }
        Self {
            configs: groups.iter().cloned().collect(),
            logs: Logs::new(partitions, groups),
            shares,
            open: BTreeSet::new(),
            members: BTreeMap::new(),
            tickets: BTreeMap::new(),
            closed: BTreeSet::new(),
            numbers: BTreeMap::new(),
            flushes: BTreeMap::new(),
            deletions: BTreeMap::new(),
            syncing: BTreeMap::new(),
            jobs: BTreeMap::new(),
            working: BTreeMap::new(),
            letters: Letters::default(),
            readers: Readers::default(),
            homes: Homes::default(),
            pending: BTreeMap::new(),
            wakeups: Wakeups::default(),
            committed: BTreeMap::new(),
            wall_stepped: false,
            stopping: false,
            started: Mono::default(),
            rounded_at: Mono::default(),
            grants: 0,
        }
    }

    /// A round of the shard: what went in, what came out. `open` names the share-partitions that were in memory
    /// before it.
    ///
    /// # Errors
    /// The promise that it broke.
    pub fn round(
        &mut self,
        now: Now,
        inputs: &[Input<Data>],
        outputs: &[Output<Data>],
        open: &BTreeSet<ShareId>,
    ) -> Result<(), Violation> {
        let mut refused = BTreeSet::new();
        for output in outputs {
            if let Output::Reply(ticket, Reply::ShareFetched(Err(_)) | Reply::ShareAcknowledged(Err(_))) =
                output
            {
                refused.insert(*ticket);
            }
        }
        self.open.clone_from(open);
        for id in open {
            if let Some(share) = self.shares.get_mut(id) {
                share.is_read(self.rounded_at);
            }
        }
        self.rounded_at = now.mono;
        self.letters.round_begins();
        self.logs.round_begins();
        for input in inputs {
            match input {
                Input::Command(ticket, command) => {
                    self.command(now, *ticket, command, !refused.contains(ticket))?;
                }
                Input::Completion(completion) => self.completed(completion),
                Input::Fact(fact) => self.fact(now.mono, fact),
            }
        }
        self.tick(now.mono);
        self.pending_may_be_done();
        for output in outputs {
            match output {
                Output::Submit(submission) => self.submitted(now.mono, submission),
                Output::Reply(ticket, reply) => self.answered(now.mono, *ticket, reply)?,
                Output::Effect(_) => {}
            }
        }
        self.check_syncs(now.mono)
    }

    fn command(&mut self, now: Now, ticket: Ticket, command: &Command, taken: bool) -> Result<(), Violation> {
        let asked = match command {
            Command::ShareFetch(fetch) => self.share_fetch(now.mono, ticket, fetch, taken),
            Command::ShareAcknowledge(acks) => self.share_acknowledge(now.mono, acks, taken),
            Command::StandaloneFetch(request) => self.standalone_fetch(now, ticket, request, taken)?,
            Command::StandaloneAcknowledge(acks) => {
                let member = reader_name(acks.connection);
                self.share_acknowledge(now.mono, &ShareAcknowledge { member, ..acks.clone() }, taken)
            }
            Command::StandaloneCommit(commit) => self.standalone_commit(commit, taken),
            Command::Produce(produce) => Asked::produce(produce),
            Command::Fetch(fetch) => Asked::Fetch { committed: fetch.isolation == Isolation::ReadCommitted },
            Command::DeleteRecords(parts) => {
                for (partition, to) in parts {
                    self.may_be_deleted(*partition, *to);
                }
                Asked::Other
            }
            Command::Group(GroupCommand::ShareHeartbeat(beat)) => {
                let over = self.heartbeat(now.mono, &beat.group, &beat.member, beat.epoch);
                if over {
                    self.session_ends(&beat.group, &beat.member, false);
                }
                Asked::Beat {
                    group: Arc::clone(&beat.group),
                    member: Arc::clone(&beat.member),
                    epoch: beat.epoch,
                }
            }
            Command::Group(GroupCommand::Commit(commit)) => Asked::commit(commit),
            Command::Group(GroupCommand::FetchOffsets { group, .. }) => {
                let at_least = self.committed.get(group).copied().unwrap_or(0);
                Asked::Offsets { group: Arc::clone(group), at_least }
            }
            Command::AlterShareKey(request) => {
                self.alter_asked(ticket, request);
                Asked::Hand
            }
            Command::ResetShareOffsets(request) => {
                self.reset_asked(ticket, request);
                Asked::Hand
            }
            Command::DescribeShareKeys(_) => Asked::Hand,
            _ => Asked::Other,
        };
        self.tickets.insert(ticket, asked);
        Ok(())
    }

    fn may_be_deleted(&mut self, partition: PartitionId, to: DeleteTo) {
        let Some(log) = self.logs.get(&partition) else { return };
        let (start, end) = (log.start, log.end);
        let to = match to {
            DeleteTo::Offset(offset) => offset.get(),
            // Whatever is written by the time at which the disk comes to it.
            DeleteTo::End => i64::MAX,
        };
        self.logs.start_asked(partition, to);
        let to = to.min(end);
        for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == partition) {
            share.log_started(start, to, false);
        }
    }

    fn completed(&mut self, completion: &Completion<Data>) {
        match completion {
            Completion::EventsAppended(op, result) => {
                let Some((id, _)) = self.flushes.remove(op) else { return };
                if result.is_err()
                    && let Some(share) = self.shares.get_mut(&id)
                {
                    share.take_back_unwritten();
                    self.open.remove(&id);
                    self.letters.mishap();
                    self.wakeups.disturbed(&id);
                }
            }
            Completion::ShareStateOpened(_, Ok(state)) => {
                if let Some(group) = self.numbers.get(&state.state.group) {
                    self.open.remove(&(Arc::clone(group), state.state.partition));
                }
            }
            Completion::Synced(op, _) => {
                self.syncing.remove(op);
            }
            Completion::RecordsDeleted(op, Ok(start)) => {
                if let Some(partition) = self.deletions.remove(op) {
                    self.log_started(partition, start.get());
                }
            }
            _ => {}
        }
    }

    fn log_started(&mut self, partition: PartitionId, start: i64) {
        let Some(from) = self.logs.get(&partition).map(|log| log.start) else { return };
        self.logs.start_at(partition, start);
        for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == partition) {
            share.log_started(from, start, true);
        }
    }

    fn fact(&mut self, now: Mono, fact: &Fact) {
        match fact {
            Fact::AnswerWritten(ticket) => {
                self.shares.values_mut().for_each(|share| share.answer_written(*ticket, now));
                self.members.values_mut().for_each(|member| {
                    member.unwritten.remove(ticket);
                });
            }
            Fact::AnswerLost(ticket) => {
                self.answer_lost(*ticket);
                for member in self.members.values_mut() {
                    if member.unwritten.remove(ticket).is_some() {
                        member.loss = Some(members::Loss::FetchOut);
                    }
                }
            }
            Fact::Stopping => self.stopping = true,
            Fact::ConnectionClosed(connection) => self.connection_closed(now, *connection),
            Fact::MemberSeen { connection, group, member } => {
                self.member(group, member).seen(*connection);
            }
            Fact::LogStartMoved(partition, start) => self.log_started(*partition, start.get()),
            Fact::ShareConfigured(group, config) => {
                self.configs.insert(Arc::clone(group), Arc::clone(config));
                for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.0 == *group) {
                    share.configured(now, config);
                }
                self.wakeups.all_disturbed();
            }
            _ => {}
        }
    }

    fn answer_lost(&mut self, ticket: Ticket) {
        for (id, share) in &mut self.shares {
            if let Some(log) = self.logs.of(id) {
                share.answer_lost(ticket, log);
            }
        }
    }

    fn tick(&mut self, now: Mono) {
        for (id, share) in &mut self.shares {
            if let Some(log) = self.logs.of(id) {
                share.tick(now, log);
            }
        }
        self.doubtful_sessions(now);
    }

    /// Events are synced within `sluice.share.sync.ms`, or as soon as the sync before is over.
    fn check_syncs(&self, now: Mono) -> Result<(), Violation> {
        for (id, share) in &self.shares {
            let late = Micros::from_ms(share.config.sync_ms).0 + LATE_MAX.0;
            let syncs = self.syncing.values().any(|partition| *partition == id.1);
            if !syncs && share.unsynced_since.is_some_and(|since| since + Micros(late) < now) {
                return Err(Violation::new(Rule::Sync, format!("events of {} wait for no sync", id.0)));
            }
        }
        Ok(())
    }

    fn submitted(&mut self, now: Mono, submission: &Submission) {
        match submission {
            Submission::AppendEvents { op, state, .. } | Submission::WriteSnapshot { op, state, .. } => {
                let Some(group) = self.numbers.get(&state.group) else { return };
                let id = (Arc::clone(group), state.partition);
                if let Some(share) = self.shares.get_mut(&id) {
                    share.unsynced_since.get_or_insert(now);
                    let position = share.position();
                    self.flushes.insert(*op, (id, position));
                }
            }
            Submission::Sync { op, partition } | Submission::SyncNow { op, partition } => {
                self.syncing.insert(*op, *partition);
                for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == *partition) {
                    share.unsynced_since = None;
                }
            }
            Submission::Append { op, .. } => self.letters.submitted(*op),
            Submission::Build { parts, .. } => {
                // For whom is not said: for any group of these partitions.
                for (partition, ranges) in parts {
                    for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == *partition) {
                        let offsets = ranges.iter().flat_map(|range| range.0.get()..=range.1.get());
                        share.may_be_built(offsets);
                    }
                }
            }
            Submission::DeleteRecords { op, partition, .. } => {
                self.deletions.insert(*op, *partition);
            }
            _ => {}
        }
    }

    // ---- the disk --------------------------------------------------------------------------------------------

    /// A share-partition's state was opened; its group has this number in file names.
    pub fn state_opened(&mut self, number: u64, group: &Arc<str>, partition: PartitionId) {
        self.numbers.insert(number, Arc::clone(group));
        if let Some(share) = self.shares.get_mut(&(Arc::clone(group), partition)) {
            share.opened = true;
        }
    }

    /// A batch was appended.
    ///
    /// # Errors
    /// One of its records is there already, although its producer is idempotent.
    pub fn appended(&mut self, partition: PartitionId, batch: &Batch) -> Result<(), Violation> {
        match self.logs.appended(partition, batch) {
            Some(number) if batch.producer >= 0 => {
                Err(Violation::new(Rule::Produce, format!("record number {number} is stored twice")))
            }
            _ => Ok(()),
        }
    }

    /// Events or a snapshot were written.
    pub fn events_written(&mut self, op: OpId) {
        if let Some((id, position)) = self.flushes.get(&op)
            && let Some(share) = self.shares.get_mut(id)
        {
            share.written_to(*position);
        }
    }

    /// A sync job was taken.
    pub fn sync_began(&mut self, job: u64, partition: PartitionId) {
        let end = self.logs.get(&partition).map_or(0, |log| log.end);
        self.letters.sync_began(job, partition);
        self.jobs.insert(job, (partition, end));
        for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == partition) {
            share.sync_began(job);
        }
    }

    /// A sync job has run.
    pub fn sync_ran(&mut self, job: u64, well: bool) {
        self.letters.sync_ran(job, well);
        let Some((partition, end)) = self.jobs.remove(&job) else { return };
        if let Some(log) = self.logs.get_mut(&partition).filter(|_| well) {
            log.synced = log.synced.max(end);
        }
        for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == partition) {
            share.sync_ran(job, well);
        }
    }

    /// The logs were closed in order: everything written is synced.
    pub fn closed_in_order(&mut self) {
        self.logs.values_mut().for_each(|log| log.synced = log.end);
        self.letters.closed_in_order();
        for share in self.shares.values_mut() {
            share.sync_began(u64::MAX);
            share.sync_ran(u64::MAX, true);
        }
    }

    /// The wall clock stepped: what is left of locks and waits after a restart is not known.
    pub fn wall_stepped(&mut self, now: Mono) {
        self.wall_stepped = true;
        for (id, share) in &mut self.shares {
            share.wall_stepped(now, self.open.contains(id));
        }
    }

    /// The broker starts again. `found` tells of each log what is in it.
    ///
    /// # Errors
    /// What should have survived and did not.
    pub fn restarted(
        &mut self,
        now: Mono,
        power_cut: bool,
        found: &BTreeMap<PartitionId, Found>,
        letters: &BTreeMap<PartitionId, Vec<Letter>>,
    ) -> Result<(), Violation> {
        self.letters.restarted(power_cut, letters).map_err(|text| Violation::new(Rule::DeadLetter, text))?;
        for (partition, found) in found {
            let Some(before) = self.logs.get(partition).map(|log| log.start) else { continue };
            self.logs
                .reopened(*partition, found, power_cut)
                .map_err(|text| Violation::new(Rule::Produce, text))?;
            for (_, share) in self.shares.iter_mut().filter(|(id, _)| id.1 == *partition) {
                share.restarted(now, power_cut, found.end, self.wall_stepped);
                share.log_started(before, found.start, true);
            }
        }
        for member in self.members.values_mut() {
            member.broker_died(now);
        }
        if power_cut {
            self.committed.clear();
        }
        self.stopping = false;
        self.tickets.clear();
        self.pending.clear();
        self.wakeups.broker_died();
        self.readers.broker_died();
        self.flushes.clear();
        self.deletions.clear();
        self.syncing.clear();
        self.jobs.clear();
        self.started = now;
        Ok(())
    }

    // ---- applications ----------------------------------------------------------------------------------------

    /// An application begins to work on a record, or is done with it.
    ///
    /// # Errors
    /// Another member works on the same key, and the record is surely its own.
    pub fn works(&mut self, work: &Work) -> Result<(), Violation> {
        let worker = (Arc::clone(&work.group), Arc::clone(&work.member));
        if !work.begins {
            self.working.remove(&worker);
            return Ok(());
        }
        let (index, offset) = work.record;
        let id = (Arc::clone(&work.group), super::node::partition(index));
        let (Some(share), Some(log)) = (self.shares.get(&id), self.logs.get(&id.1)) else { return Ok(()) };
        let key_of = |offset: &i64| log.records.get(offset).and_then(|seen| seen.key);
        // What came back without its holder's doing (its lock ran out, say) may be in a buffer for long.
        // What was given without order is worked on without.
        let is_sure = |offset: &i64, member: &Arc<str>| {
            let ours = |hold: &Hold| !hold.doubt && hold.member == *member;
            let hold = share.record(*offset).hold.filter(ours);
            hold.is_some_and(|hold| hold.since > share.hand.settings_since)
        };
        let others = self
            .working
            .iter()
            .filter(|(other, record)| other.0 == work.group && other.1 != work.member && record.0 == index);
        for (other, (_, other_offset)) in others {
            let same = key_of(&offset).is_some() && key_of(&offset) == key_of(other_offset);
            let keyed = share.config.order == ShareOrder::Key;
            if keyed && same && is_sure(&offset, &work.member) && is_sure(other_offset, &other.1) {
                return Err(Violation::new(
                    Rule::Exclusive,
                    format!("{} works on {offset} while {} works on {other_offset}", work.member, other.1),
                ));
            }
        }
        self.working.insert(worker, work.record);
        Ok(())
    }

    // ---- the end ---------------------------------------------------------------------------------------------

    /// A share-partition says that everything below `start` is done.
    ///
    /// # Errors
    /// It is not.
    pub fn start_is(&mut self, id: &ShareId, start: i64) -> Result<(), Violation> {
        let Some((share, log)) = self.shares.get_mut(id).zip(self.logs.of(id)) else { return Ok(()) };
        if share.hand.resetting {
            return Ok(());
        }
        let letters = &self.letters;
        match share.first_unsettled_below(start, log, |offset| letters.has(id, offset)) {
            Some(offset) => Err(Violation::new(
                Rule::Lost,
                format!(
                    "the start offset of {} {} is {start}, {offset} is not done: {:?}",
                    id.0,
                    id.1.index,
                    share.record(offset)
                ),
            )),
            None => Ok(()),
        }
    }

    /// Whether every record of every group is done; else one that is not.
    #[must_use]
    pub fn undone(&self) -> Option<String> {
        for (id, share) in &self.shares {
            let Some(log) = self.logs.of(id) else { continue };
            for offset in log.records.range(log.start..).map(|record| *record.0) {
                let record = share.record(offset);
                let done = record.may_be_settled() || record.unknown || record.replayed;
                if !done && !self.letters.has(id, offset) {
                    return Some(format!("{offset} of {} in {}: {record:?}", id.1.index, id.0));
                }
            }
        }
        None
    }

    /// A command without an answer although its connection lives; a fetch that may wait for records is none.
    #[must_use]
    pub fn unanswered(&self) -> Option<String> {
        let waits = |asked: &Asked| matches!(asked, Asked::ShareFetch { .. }) || asked.is_void(&self.closed);
        let open = self.tickets.iter().find(|(_, asked)| !waits(asked));
        open.map(|(ticket, asked)| format!("{ticket:?} {asked:?}"))
    }

    /// Where a log ends.
    #[must_use]
    pub fn log_end(&self, partition: PartitionId) -> i64 {
        self.logs.get(&partition).map_or(0, |log| log.end)
    }

    /// All share-partitions.
    #[must_use]
    pub fn share_ids(&self) -> Vec<ShareId> {
        self.shares.keys().cloned().collect()
    }
}
