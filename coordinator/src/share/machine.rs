//! The share machine: all share groups of a shard.
//!
//! Every input may change share-partitions at once, in memory; [`ShareMachine::finish_round`] then matches ready
//! records with the fetches that ask, hands each share-partition's events to the executor in one append, and parks
//! or answers fetches. An answer leaves when the events that it rests on are appended and its data is built. A
//! failed append drops the share-partition's memory, loads it anew, and fails the answers that waited.
//!
//! The caller runs `finish_round` after any input, and `tick` at [`ShareMachine::next_deadline`]. For each fetch
//! that was answered it reports exactly one of `AnswerWritten` and `AnswerLost`, before `ConnectionClosed`.

mod admin;
mod answers;
mod command;
mod dead_letters;
mod delete_offsets;
mod describe;
mod facts;
mod load;
mod replays;
mod requests;
mod round;
mod search;
mod spill;
mod standalone;
mod timers;
mod view;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::{KeyHash, Offset, PartitionId};

use self::admin::{Admin, Held};
use self::answers::{Answer, Unwritten};
pub use self::command::{LeftBy, ShareCommand};
use self::dead_letters::Copying;
use self::delete_offsets::DeleteOffsets;
use self::describe::Describe;
use self::standalone::Claims;
use self::timers::{Timer, Timers};
pub use self::view::{ShareGroupView, ShareKeyView, SharePartitionView};
use self::watch::Watched;
use super::acknowledge::Acknowledged;
use super::holders::Survivor;
use super::member::Member;
use super::partition::SharePartition;
use super::recovery::Recovery;
use super::spill::LookUp;
use super::{ShareConfig, ShareCounters, ShareLimits};
use crate::command::{ConnectionId, Ticket, TopicImage};
use crate::io::{Completion, OpId, ShareStateId, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::plan::budget::Budget;
use crate::reply::Reply;
use crate::time::{Mono, Now};

/// All share groups of a shard. `S` names bytes of a log.
#[derive(Debug)]
pub struct ShareMachine<S> {
    limits: ShareLimits,
    /// Upper 24 bits of delivery numbers.
    boot: u32,
    deliveries: u64,
    /// When it heard of the time first: since then members of before a restart are gone.
    started: Option<Mono>,
    groups: BTreeMap<u32, Group>,
    group_numbers: BTreeMap<Arc<str>, u32>,
    /// Settings that are not the broker's own, of groups that there are or that may come.
    configs: BTreeMap<Arc<str>, Arc<ShareConfig>>,
    /// Groups of which perhaps nothing is left.
    vacant: BTreeSet<u32>,
    members: BTreeMap<u32, Member>,
    member_numbers: BTreeMap<(u32, Arc<str>), u32>,
    spoken_for: BTreeMap<ConnectionId, BTreeSet<u32>>,
    /// Members of which perhaps nothing is left.
    fading: BTreeSet<u32>,
    sessions: usize,
    /// Standalone readers, by the member that each one is inside.
    readers: BTreeMap<u32, Claims>,
    /// Readers whose ranges another one has now, until they begin anew.
    fenced: BTreeSet<(ConnectionId, Arc<str>)>,
    parts: BTreeMap<u32, Part>,
    part_numbers: BTreeMap<(PartitionId, u32), u32>,
    asks: BTreeMap<u64, Ask>,
    ask_of: BTreeMap<Ticket, u64>,
    /// Fetches that are answered or parked in this round.
    unsettled_asks: BTreeSet<u64>,
    answers: BTreeMap<u64, Answer<S>>,
    unwritten: BTreeMap<Ticket, Unwritten>,
    describes: BTreeMap<u64, Describe>,
    pending_describes: BTreeSet<u64>,
    deletes: BTreeMap<u64, DeleteOffsets>,
    /// What operators asked for and that waits for share-partitions to be in memory.
    admins: BTreeMap<u64, Admin>,
    pending_admins: BTreeSet<u64>,
    /// Answers to operators that wait for events to be appended.
    held: BTreeMap<u64, Held>,
    topics: Arc<TopicImage>,
    /// Whether logs may be appended to already (after an unclean stop).
    may_append: bool,
    ops: BTreeMap<OpId, Op>,
    dirty: BTreeSet<u32>,
    /// Share-partitions take their turn from here on.
    turn: u32,
    timers: Timers,
    number_last: u64,
    entity_last: u32,
    stopping: bool,
}

/// A share group.
#[derive(Debug)]
struct Group {
    name: Arc<str>,
    config: Arc<ShareConfig>,
    /// Members that heartbeat; `None` before anyone has said.
    live: Option<BTreeSet<Arc<str>>>,
    parts: BTreeSet<u32>,
}

/// A share-partition and what is under way for it.
#[derive(Debug)]
struct Part {
    id: PartitionId,
    group: u32,
    state: PartState,
    store: Option<ShareStateId>,
    /// Raised when its memory is dropped: older submissions no longer concern it.
    generation: u32,
    asks: BTreeSet<u64>,
    /// Members whose session names it.
    interested: BTreeSet<u32>,
    /// Those of them among whom its keys have their homes, where assignment is sticky.
    residents: BTreeSet<Arc<str>>,
    scanning: bool,
    /// When something was granted last.
    granted_at: Mono,
    /// Appends of events that have succeeded.
    appends: u64,
    /// Look-ups of keys under way.
    look_ups: usize,
    /// The append under way.
    flushing: Option<Flushing>,
    /// Its start offset as it is stored; `None` before its first events are.
    stored_start: Option<i64>,
    /// Appends that failed since the last one that did not.
    failures: u32,
    /// Answers that wait for events not handed out yet.
    waiting: Vec<u64>,
    /// Event bytes behind the snapshot, and the snapshot's own size.
    event_bytes: u64,
    snapshot_bytes: u64,
    /// Log bytes scanned behind the snapshot.
    scan_bytes: u64,
    sync_due: Option<Mono>,
    /// What the scan under way finds is of no use.
    scan_is_void: bool,
    /// Dead letters on their way.
    copying: Copying,
    /// What was seen of its oldest record.
    watched: Watched,
    /// What was counted, as far as it is stored.
    counted: ShareCounters,
}

/// An append of events that is under way.
#[derive(Debug, Default)]
struct Flushing {
    /// Answers that wait for it.
    answers: Vec<u64>,
    /// Locks whose end it stores.
    ended: Vec<(u64, Survivor)>,
    /// The start offset that it stores.
    start: i64,
    /// What was counted up to here.
    counted: ShareCounters,
}

#[derive(Debug)]
enum PartState {
    Closed,
    /// The disk refuses its events: it is read again in a while.
    Broken(BTreeMap<u64, Survivor>),
    /// Its state is being read; locks that members know of, where it was in memory before.
    Opening(Option<BTreeMap<u64, Survivor>>),
    /// As opening: its pages are being read.
    Loading(Box<Recovery>, Option<BTreeMap<u64, Survivor>>),
    /// A new one: where it starts is being looked up.
    Starting,
    Open(Box<SharePartition>),
}

/// A fetch that is not answered yet.
#[derive(Debug)]
struct Ask {
    ticket: Ticket,
    connection: ConnectionId,
    group: u32,
    member: u32,
    /// In the order in which they are served and answered.
    parts: Vec<(PartitionId, Option<u32>)>,
    budget: Budget,
    bytes_min: i32,
    batch_size: i32,
    strict: bool,
    numbered: bool,
    per_key_max: usize,
    /// The first of its session: every partition is in the answer.
    initial: bool,
    acked: BTreeMap<PartitionId, Acknowledged>,
    /// What it was granted in this round.
    grants: BTreeMap<u32, (u64, Vec<i64>)>,
    /// When it came.
    since: Mono,
    patience: Patience,
    /// It gets nothing more: its member speaks on another connection.
    withdrawn: bool,
}

/// How long a fetch may wait for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Until then.
    Until(Mono),
    /// Until everything that is at hand was looked at, and until then at most.
    Look(Mono),
    /// No more.
    Over,
}

/// What a submission was for.
#[derive(Debug)]
enum Op {
    Open(u32, u32),
    Start(u32, u32),
    /// Pages of a share-partition that is being loaded.
    LoadPages(u32, u32),
    Scan(u32, u32),
    Find {
        part: u32,
        generation: u32,
        look_up: LookUp,
    },
    Page {
        part: u32,
        generation: u32,
        page: u64,
    },
    /// Pages in search of what an operator's word is about.
    Search {
        part: u32,
        generation: u32,
        admin: u64,
        pages: Vec<u64>,
    },
    /// Dead-lettered records that are to be redriven: whether any is there.
    Sources {
        part: u32,
        generation: u32,
        admin: u64,
        offsets: Vec<Offset>,
    },
    /// What is done of a key is looked up before its replay begins.
    Replayable(replays::Replayable),
    Flush {
        part: u32,
        generation: u32,
        snapshot_bytes: Option<u64>,
    },
    Sync,
    Build {
        answer: u64,
        parts: Vec<usize>,
    },
    Delete {
        ticket: Ticket,
        group: Arc<str>,
    },
    States(u64),
    /// Of a request to delete share state: which partitions have any.
    StatesToDelete(u64),
    DeletePart(u64, PartitionId),
    /// Of a request to delete what is left under an id: whether there is anything.
    StatesLeft {
        ticket: Ticket,
        group: Arc<str>,
    },
    AdminStates(u64),
    Reset {
        admin: u64,
        index: usize,
    },
    Letters {
        part: u32,
        generation: u32,
    },
    Copy {
        part: u32,
        generation: u32,
        target: PartitionId,
    },
    CopySync {
        part: u32,
        generation: u32,
    },
    Oldest {
        part: u32,
        generation: u32,
        offset: i64,
    },
    Retention {
        part: u32,
        generation: u32,
    },
    Replay {
        part: u32,
        generation: u32,
        key: KeyHash,
    },
}

impl<S: Slice> ShareMachine<S> {
    /// A machine without groups. `boot` is raised at every start of the broker (24 bits of it are used), so that
    /// delivery numbers are never used twice.
    #[must_use]
    pub fn new(limits: ShareLimits, boot: u32) -> Self {
        Self {
            limits,
            boot,
            deliveries: 0,
            started: None,
            groups: BTreeMap::new(),
            group_numbers: BTreeMap::new(),
            configs: BTreeMap::new(),
            vacant: BTreeSet::new(),
            members: BTreeMap::new(),
            member_numbers: BTreeMap::new(),
            spoken_for: BTreeMap::new(),
            fading: BTreeSet::new(),
            sessions: 0,
            readers: BTreeMap::new(),
            fenced: BTreeSet::new(),
            parts: BTreeMap::new(),
            part_numbers: BTreeMap::new(),
            asks: BTreeMap::new(),
            ask_of: BTreeMap::new(),
            unsettled_asks: BTreeSet::new(),
            answers: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            describes: BTreeMap::new(),
            pending_describes: BTreeSet::new(),
            deletes: BTreeMap::new(),
            admins: BTreeMap::new(),
            pending_admins: BTreeSet::new(),
            held: BTreeMap::new(),
            topics: Arc::default(),
            may_append: true,
            ops: BTreeMap::new(),
            dirty: BTreeSet::new(),
            turn: 0,
            timers: Timers::default(),
            number_last: 0,
            entity_last: 0,
            stopping: false,
        }
    }

    /// Takes one command. Its reply comes from here or from a later call.
    pub fn command(
        &mut self,
        now: Now,
        ticket: Ticket,
        command: ShareCommand,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        self.started.get_or_insert(now.mono);
        match command {
            ShareCommand::Fetch(fetch) => self.fetch(now, ticket, &fetch, logs, out),
            ShareCommand::Acknowledge(request) => match self.check_member(&request.group, &request.member) {
                Ok(()) => self.acknowledge(now, ticket, &request, out),
                Err(error) => out.reply(ticket, Reply::ShareAcknowledged(Err(error))),
            },
            ShareCommand::StandaloneFetch(request) => self.standalone_fetch(now, ticket, request, logs, out),
            ShareCommand::StandaloneAcknowledge(request) => {
                self.standalone_acknowledge(now, ticket, request, out);
            }
            ShareCommand::StandaloneCommit(request) => self.standalone_commit(now, ticket, request, out),
            ShareCommand::DescribeOffsets { group, partitions } => {
                self.describe_offsets(ticket, &group, partitions, out);
            }
            ShareCommand::DeleteOffsets { group, partitions } => {
                self.delete_offsets(ticket, &group, partitions, out);
            }
            ShareCommand::DescribeKeys(request) => self.describe_keys(ticket, request, logs, out),
            ShareCommand::AlterKey(request) => self.alter_key(ticket, request, logs, out),
            ShareCommand::ResetOffsets(request) => self.reset_offsets(ticket, request, logs, out),
            ShareCommand::DeleteStates { group } => {
                let op = out
                    .submit(Owner::Share, |op| Submission::ListShareStates { op, group: Arc::clone(&group) });
                self.ops.insert(op, Op::StatesLeft { ticket, group });
            }
            ShareCommand::DeleteGroup { group } => self.delete_group(now, ticket, &group, out),
        }
    }

    /// Whether dead letters may be appended to logs now.
    pub fn may_append(&mut self, may: bool) {
        if may && !self.may_append {
            self.dirty.extend(self.parts.keys().copied());
        }
        self.may_append = may;
    }

    /// The partition to which the submission of this id appends, if it is an append of this machine.
    #[must_use]
    pub fn appends_to(&self, op: OpId) -> Option<PartitionId> {
        match self.ops.get(&op) {
            Some(Op::Copy { target, .. }) => Some(*target),
            _ => None,
        }
    }

    /// Takes the end of a submission that this machine made.
    pub fn complete(&mut self, now: Now, completion: Completion<S>, logs: &LogTable, out: &mut Outbox<S>) {
        self.started.get_or_insert(now.mono);
        match completion {
            Completion::ShareStateOpened(op, result) => self.state_opened(now, op, result, logs, out),
            Completion::OffsetFound(op, result) => {
                if self.reset_found(op, result, logs) {
                    return;
                }
                self.start_found(now, op, result, logs);
            }
            Completion::Scanned(op, result) => self.scan_done(now, op, result, logs, out),
            Completion::KeyFound(op, result) => match self.ops.get(&op) {
                Some(Op::Replay { .. }) => self.replay_found(now, op, result),
                Some(Op::Replayable(_)) => self.replayable_found(op, result, logs, out),
                _ => self.key_found(now, op, result, logs),
            },
            Completion::PagesRead(op, result) => self.pages_read(now, op, result, logs, out),
            Completion::EventsAppended(op, result) => self.flushed(now, op, result, out),
            Completion::Synced(op, result) => self.synced(now, op, result, out),
            Completion::Appended(op, result) => self.letters_appended(now, op, result, out),
            Completion::RecordsRead(op, result) => self.records_read(now, op, result, logs, out),
            Completion::RetentionFound(op, result) => self.retention_found(now, op, result, logs, out),
            Completion::Built(op, results) => self.built(now, op, results, out),
            Completion::ShareStateDeleted(op, result) => match self.ops.remove(&op) {
                Some(Op::DeletePart(number, partition)) => self.delete_done(number, partition, result, out),
                Some(Op::Delete { ticket, group }) => Self::state_deleted(ticket, group, result, out),
                _ => {}
            },
            Completion::ShareStates(op, result) => match self.ops.get(&op) {
                Some(Op::AdminStates(_)) => self.admin_states_listed(op, result, out),
                _ => match self.ops.remove(&op) {
                    Some(Op::StatesLeft { ticket, group }) => {
                        self.delete_left(now, ticket, &group, result, out);
                    }
                    Some(Op::StatesToDelete(number)) => self.delete_listed(now, number, result, out),
                    Some(Op::States(number)) => self.states_listed(number, result, logs, out),
                    _ => {}
                },
            },
            Completion::Read(..) | Completion::RecordsDeleted(..) | Completion::Loaded(..) => {}
        }
    }

    /// Lets everything happen that is due.
    pub fn tick(&mut self, now: Now, _logs: &LogTable, out: &mut Outbox<S>) {
        self.started.get_or_insert(now.mono);
        while let Some(timer) = self.timers.pop_due(now.mono) {
            self.due(now, timer, out);
        }
    }

    /// When [`ShareMachine::tick`] is to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.timers.next()
    }

    fn next_number(&mut self) -> u64 {
        self.number_last += 1;
        self.number_last
    }

    /// Numbers groups, members and share-partitions.
    fn next_entity(&mut self) -> u32 {
        self.entity_last = self.entity_last.checked_add(1).expect("a run sees fewer than 2^32 members");
        self.entity_last
    }

    /// The number of a group that is about to get members or share-partitions; who only asks goes by `group_numbers`.
    fn group_number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&number) = self.group_numbers.get(name) {
            return number;
        }
        let number = self.next_entity();
        let config = Arc::clone(self.configs.get(name).unwrap_or(&self.limits.config));
        // What comes of it this round shows: it may be a name that a request was refused for.
        self.vacant.insert(number);
        self.group_numbers.insert(Arc::clone(name), number);
        self.groups
            .insert(number, Group { name: Arc::clone(name), config, live: None, parts: BTreeSet::new() });
        number
    }

    fn group(&self, number: u32) -> &Group {
        self.groups.get(&number).expect("members, parts and asks go before their group does")
    }

    fn config(&self, group: u32) -> Arc<ShareConfig> {
        Arc::clone(&self.group(group).config)
    }

    fn find_member(&self, group: &str, member: &str) -> Option<u32> {
        let group = *self.group_numbers.get(group)?;
        self.member_numbers.get(&(group, Arc::from(member))).copied()
    }

    fn member_number(&mut self, group: u32, name: &Arc<str>) -> u32 {
        let key = (group, Arc::clone(name));
        if let Some(&number) = self.member_numbers.get(&key) {
            return number;
        }
        let number = self.next_entity();
        self.member_numbers.insert(key, number);
        self.members.insert(number, Member::new(group, Arc::clone(name)));
        number
    }

    fn member_mut(&mut self, number: u32) -> &mut Member {
        self.members.get_mut(&number).expect("a member's number lives as long as the member")
    }

    /// A share-partition that was asked for since the start of the broker, with its number.
    fn known_part(&self, group: &str, partition: PartitionId) -> Option<(u32, &Part)> {
        let number = *self.part_numbers.get(&(partition, *self.group_numbers.get(group)?))?;
        self.parts.get(&number).map(|part| (number, part))
    }

    /// The open share-partition of a part.
    fn open_part(&mut self, number: u32) -> Option<&mut SharePartition> {
        self.parts.get_mut(&number).and_then(Part::open_mut)
    }
}

impl Group {
    /// Whether it is one for people: it has members or share-partitions.
    fn is_shown(&self) -> bool {
        !self.parts.is_empty() || self.live.as_ref().is_some_and(|live| !live.is_empty())
    }
}

impl Part {
    fn open(&self) -> Option<&SharePartition> {
        match &self.state {
            PartState::Open(partition) => Some(partition),
            _ => None,
        }
    }

    fn open_mut(&mut self) -> Option<&mut SharePartition> {
        match &mut self.state {
            PartState::Open(partition) => Some(partition),
            _ => None,
        }
    }

    /// The start offset that may be told: what is behind it is stored.
    fn told_start(&self) -> Option<Offset> {
        let start = self.open()?.window.start();
        match self.appends_under_way() {
            None => Some(Offset(start)),
            Some(_) => self.stored_start.map(|stored| Offset(start.min(stored))),
        }
    }

    /// A member gives back everything. Where memory is being read anew, or will have to be since the append under way
    /// fails, it knows no more of its locks.
    fn release_member(&mut self, name: &str, now: Now) {
        if let Some(open) = self.open_mut() {
            open.release_member(name, now);
        }
        if let Some(survivors) = self.survivors_mut() {
            survivors.values_mut().for_each(|lock| lock.end_session(name));
        }
        if let Some(flushing) = &mut self.flushing {
            flushing.ended.iter_mut().for_each(|(_, lock)| lock.end_session(name));
        }
    }

    /// Locks that members know of, where the state is being read anew.
    fn survivors_mut(&mut self) -> Option<&mut BTreeMap<u64, Survivor>> {
        match &mut self.state {
            PartState::Broken(survivors) => Some(survivors),
            PartState::Opening(survivors) | PartState::Loading(_, survivors) => survivors.as_mut(),
            _ => None,
        }
    }

    /// How many appends will have succeeded when all that is noted so far is stored; `None` where it is.
    fn appends_under_way(&self) -> Option<u64> {
        let noted = u64::from(self.open().is_some_and(SharePartition::has_events));
        let under_way = noted + u64::from(self.flushing.is_some());
        (under_way > 0).then(|| self.appends + under_way)
    }
}

/// Where the records end that a group may see.
fn upper(logs: &LogTable, config: &ShareConfig, partition: PartitionId) -> i64 {
    logs.get(&partition)
        .map_or(0, |facts| if config.read_committed { facts.last_stable.get() } else { facts.end.get() })
}
