//! A small world for the share machine: a clock, logs, stored share state and an executor that serves submissions.
//!
//! The executor is a plain, faithful one: it stores what it is told and reads back what it stored. Nothing of the
//! machine's logic is in it.

#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use coordinator::command::{
    AckRange, ConnectionId, DeliveryNumber, Fact, KeyShareTerms, ShareAcknowledge, ShareFetch,
    ShareFetchPart, Ticket, TopicImage,
};
use coordinator::io::{LogFacts, RetentionDue, ScannedKind, ScannedRecord, Slice, Submission};
use coordinator::outbox::{LogTable, Outbox};
use coordinator::reply::{Effect, Reply, ShareAcknowledged, ShareFetched};
use coordinator::share::{
    LeftBy, ShareCommand, ShareConfig, ShareError, ShareLimits, ShareMachine, ShareOrder, SharePartitionView,
    ShareReset,
};
use coordinator::time::{Micros, Mono, Now};
use records::ids::{KeyHash, Offset, PartitionId, TopicId};

pub const GAP: i8 = 0;
pub const ACCEPT: i8 = 1;
pub const RELEASE: i8 = 2;
pub const REJECT: i8 = 3;
pub const RENEW: i8 = 4;

/// Data of an answer: the offsets that it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(pub Vec<i64>);

impl Slice for Data {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A stored batch of a test's log.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base: i64,
    pub kind: ScannedKind,
    pub last: i64,
    pub time_ms: i64,
}

#[derive(Default)]
pub struct Log {
    pub batches: Vec<Batch>,
    pub facts: LogFacts,
    /// Batches found damaged when they are built, though scans saw them whole.
    pub rotten: Vec<(i64, i64)>,
    /// Offsets of records that compaction took.
    pub compacted: Vec<i64>,
}

impl Log {
    /// The batches that end at or behind this offset.
    pub(crate) fn batches_from(&self, offset: i64) -> impl Iterator<Item = &Batch> {
        self.batches[self.batches.partition_point(|batch| batch.last < offset)..].iter()
    }
}

#[derive(Clone, Default)]
pub(crate) struct Stored {
    pub(crate) snapshot: Option<Bytes>,
    pub(crate) events: Vec<Bytes>,
    pub(crate) event_bytes: u64,
    /// The pages that the snapshot names.
    pub(crate) pages: BTreeMap<u64, Bytes>,
}

/// Batches that the machine itself appended to a log.
#[derive(Clone, Default)]
pub(crate) struct Copies {
    pub(crate) batches: Vec<Bytes>,
    /// So many of them are on the disk.
    pub(crate) synced: usize,
}

/// A granted range: first, last, delivery count.
pub type Got = (i64, i64, i16);

pub struct World {
    pub machine: ShareMachine<Data>,
    pub out: Outbox<Data>,
    pub now: Now,
    pub limits: ShareLimits,
    pub boot: u32,
    pub config: ShareConfig,
    pub logs: BTreeMap<PartitionId, Log>,
    pub table: LogTable,
    pub(crate) stored: BTreeMap<(Arc<str>, PartitionId), Stored>,
    /// The part of it that is on the disk.
    pub(crate) synced: BTreeMap<(Arc<str>, PartitionId), Stored>,
    pub(crate) copies: BTreeMap<PartitionId, Copies>,
    pub topics: TopicImage,
    /// Appends, or syncs, of copies fail.
    pub copies_fail: bool,
    pub copy_syncs_fail: bool,
    pub retention: Option<RetentionDue>,
    pub(crate) queue: VecDeque<Submission>,
    pub replies: BTreeMap<Ticket, Reply<Data>>,
    pub effects: Vec<Effect>,
    /// Answers are taken whole by the socket at once.
    pub written_at_once: bool,
    /// Submissions wait for [`World::serve`].
    pub slow_disk: bool,
    /// Appends of events fail.
    pub disk_full: bool,
    /// Stored share state cannot be read.
    pub unreadable: bool,
    /// Records cannot be read to be sent.
    pub log_unreadable: bool,
    /// What is stored of offsets from here on is void: the log was cut here.
    pub void_from: i64,
    pub scans: usize,
    /// Bytes of the batches that scans told of.
    pub scanned_bytes: u64,
    /// The lowest offset from which a scan began.
    pub scan_low: i64,
    pub syncs: usize,
    pub snapshots: usize,
    /// Searches for keys.
    pub finds: usize,
    /// Records that one search for a key looks through.
    pub find_records_max: usize,
    pub pages_written: usize,
    pub pages_read: usize,
    epochs: BTreeMap<String, i32>,
    pub connections: BTreeMap<String, ConnectionId>,
    pub deliveries: BTreeMap<(String, i64), DeliveryNumber>,
    last: u64,
}

pub fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([7; 16]), index }
}

pub fn group() -> Arc<str> {
    Arc::from("g")
}

/// The key that stands for a letter: `-` is none.
pub fn key(name: &str) -> Option<KeyHash> {
    (name != "-").then(|| {
        KeyHash(name.bytes().fold(name.len() as u64 + 1, |hash, byte| {
            hash.wrapping_mul(1_000_003).wrapping_add(u64::from(byte))
        }))
    })
}

/// Settings of the key-order cases.
pub fn key_config() -> ShareConfig {
    ShareConfig {
        order: ShareOrder::Key,
        reset: ShareReset::Earliest,
        key_inflight_max: 1_000,
        hold_target_ms: 0,
        ..ShareConfig::default()
    }
}

/// Settings of the cases without order.
pub fn none_config() -> ShareConfig {
    ShareConfig { reset: ShareReset::Earliest, ..ShareConfig::default() }
}

/// A fetch's particulars.
#[derive(Clone)]
pub struct Want {
    pub max: i32,
    pub bytes: i32,
    pub wait_ms: i32,
    pub bytes_min: i32,
    pub batch_size: i32,
    pub strict: bool,
    pub renew: bool,
    pub acks: Vec<(i32, AckRange)>,
    pub parts: Vec<i32>,
    pub forget: Vec<i32>,
    pub epoch: Option<i32>,
    pub key_share: Option<KeyShareTerms>,
}

pub fn want(max: i32) -> Want {
    Want {
        max,
        bytes: 50 << 20,
        wait_ms: 0,
        bytes_min: 1,
        batch_size: 500,
        strict: true,
        renew: false,
        acks: Vec::new(),
        parts: vec![0],
        forget: Vec::new(),
        epoch: None,
        key_share: None,
    }
}

pub fn range(first: i64, last: i64, kind: i8) -> AckRange {
    AckRange { first, last, types: vec![kind], delivery: None, delay_ms: None, reason: None }
}

impl World {
    pub fn new(config: ShareConfig) -> Self {
        let limits = ShareLimits::default();
        let mut world = Self {
            machine: ShareMachine::new(limits.clone(), 1),
            out: Outbox::default(),
            now: Now { mono: Mono(1_000_000), wall_ms: 1_700_000_000_000 },
            limits,
            boot: 1,
            config,
            logs: BTreeMap::new(),
            table: LogTable::new(),
            stored: BTreeMap::new(),
            synced: BTreeMap::new(),
            copies: BTreeMap::new(),
            topics: TopicImage::default(),
            copies_fail: false,
            copy_syncs_fail: false,
            retention: None,
            queue: VecDeque::new(),
            replies: BTreeMap::new(),
            effects: Vec::new(),
            written_at_once: true,
            slow_disk: false,
            disk_full: false,
            unreadable: false,
            log_unreadable: false,
            void_from: i64::MAX,
            scans: 0,
            scanned_bytes: 0,
            scan_low: i64::MAX,
            syncs: 0,
            snapshots: 0,
            finds: 0,
            find_records_max: 100_000,
            pages_written: 0,
            pages_read: 0,
            epochs: BTreeMap::new(),
            connections: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            last: 0,
        };
        world.add_partition(0);
        world.configure();
        world
    }

    /// A group with order `key`.
    pub fn keyed() -> Self {
        Self::new(key_config())
    }

    pub fn configure(&mut self) {
        let config = Arc::new(self.config.clone());
        self.fact(Fact::ShareConfigured(group(), config));
    }

    pub fn add_partition(&mut self, index: i32) {
        self.logs.insert(partition(index), Log::default());
        self.table.insert(partition(index), LogFacts::default());
    }

    // ---- the log ---------------------------------------------------------------------------------------------

    /// Appends one batch a word, a record a letter group: `"a b,c -"` is three batches.
    pub fn log(&mut self, words: &str) {
        self.log_in(0, words);
    }

    pub fn log_in(&mut self, index: i32, words: &str) {
        for word in words.split_whitespace() {
            let keys: Vec<Option<KeyHash>> = word.split(',').map(key).collect();
            let sizes = vec![100; keys.len()];
            self.batch(index, &keys, &sizes);
        }
        self.grew(index);
    }

    pub fn batch(&mut self, index: i32, keys: &[Option<KeyHash>], sizes: &[u32]) {
        let log = self.logs.get_mut(&partition(index)).unwrap();
        let base = log.facts.end.get();
        let records = keys
            .iter()
            .zip(sizes)
            .enumerate()
            .map(|(delta, (&key, &bytes))| ScannedRecord { offset: Offset(base + delta as i64), key, bytes })
            .collect();
        self.append(index, ScannedKind::Data(records), keys.len() as i64);
    }

    pub fn append(&mut self, index: i32, kind: ScannedKind, length: i64) {
        let log = self.logs.get_mut(&partition(index)).unwrap();
        let base = log.facts.end.get();
        log.batches.push(Batch { base, kind, last: base + length - 1, time_ms: self.now.wall_ms });
        log.facts.end = Offset(base + length);
        log.facts.last_stable = log.facts.end;
        self.table.insert(partition(index), log.facts);
    }

    pub fn grew(&mut self, index: i32) {
        self.machine.log_grew(self.now, partition(index), &self.table, &mut self.out);
        self.settle();
    }

    pub fn log_start(&mut self, at: i64) {
        let log = self.logs.get_mut(&partition(0)).unwrap();
        log.facts.log_start = Offset(at);
        log.batches.retain(|batch| batch.last >= at);
        self.table.insert(partition(0), log.facts);
        self.fact(Fact::LogStartMoved(partition(0), Offset(at)));
    }

    /// Compaction takes these records, whose batches hold nothing else.
    pub fn compact(&mut self, offsets: impl IntoIterator<Item = i64>) {
        let log = self.logs.get_mut(&partition(0)).unwrap();
        log.compacted.extend(offsets);
        log.batches.retain(|batch| !(batch.base == batch.last && log.compacted.contains(&batch.base)));
    }

    /// A power cut took the log from this offset on; the broker is to be restarted.
    pub fn cut_log(&mut self, at: i64) {
        let log = self.logs.get_mut(&partition(0)).unwrap();
        log.batches.retain(|batch| batch.last < at);
        (log.facts.end, log.facts.last_stable) = (Offset(at), Offset(at));
        self.table.insert(partition(0), log.facts);
        self.void_from = at;
    }

    // ---- members ---------------------------------------------------------------------------------------------

    pub fn connection(&mut self, member: &str) -> ConnectionId {
        if let Some(&connection) = self.connections.get(member) {
            return connection;
        }
        self.last += 1;
        let connection = ConnectionId(self.last);
        self.connections.insert(member.into(), connection);
        connection
    }

    /// Another connection speaks for the member (a heartbeat); it is closed with [`World::close`].
    pub fn heartbeat_connection(&mut self, member: &str) -> ConnectionId {
        self.last += 1;
        let connection = ConnectionId(self.last);
        self.fact(Fact::MemberSeen { connection, group: group(), member: Arc::from(member) });
        connection
    }

    /// The member's data connection is lost; its next request comes on a new one.
    pub fn lose(&mut self, member: &str) {
        if let Some(connection) = self.connections.remove(member) {
            self.close(connection);
        }
    }

    pub fn close(&mut self, connection: ConnectionId) {
        self.fact(Fact::ConnectionClosed(connection));
    }

    pub fn left(&mut self, member: &str, how: LeftBy) {
        self.machine.member_left(self.now, "g", member, how);
        self.settle();
    }

    pub fn live(&mut self, members: &[&str]) {
        self.machine.members(&group(), members.iter().map(|&name| Arc::from(name)).collect());
        self.settle();
    }

    // ---- requests --------------------------------------------------------------------------------------------

    /// Sends a fetch; it may be parked.
    pub fn send(&mut self, member: &str, want: &Want) -> Ticket {
        let connection = self.connection(member);
        let epoch = want.epoch.unwrap_or_else(|| self.epochs.get(member).copied().unwrap_or(0));
        let mut parts: Vec<ShareFetchPart> = Vec::new();
        if epoch == 0 || want.parts != [0] {
            parts.extend(
                want.parts.iter().map(|&index| ShareFetchPart { partition: partition(index), acks: vec![] }),
            );
        }
        for (index, ack) in &want.acks {
            match parts.iter_mut().find(|part| part.partition == partition(*index)) {
                Some(part) => part.acks.push(ack.clone()),
                None => parts.push(ShareFetchPart { partition: partition(*index), acks: vec![ack.clone()] }),
            }
        }
        let fetch = ShareFetch {
            connection,
            group: group(),
            member: Arc::from(member),
            epoch,
            wait_max_ms: want.wait_ms,
            bytes_min: want.bytes_min,
            bytes_max: want.bytes,
            records_max: want.max,
            batch_size: want.batch_size,
            strict: want.strict,
            renew: want.renew,
            parts,
            forgotten: want.forget.iter().map(|&index| partition(index)).collect(),
            key_share: want.key_share,
        };
        if want.epoch.is_none() {
            self.epochs.insert(member.into(), epoch + 1);
        }
        self.command(ShareCommand::Fetch(fetch))
    }

    pub fn command(&mut self, command: ShareCommand) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.machine.command(self.now, ticket, command, &self.table, &mut self.out);
        self.settle();
        ticket
    }

    /// The member forgets its session and opens a new one with its next fetch.
    pub fn reopen(&mut self, member: &str) {
        self.epochs.remove(member);
    }

    pub fn set_epoch(&mut self, member: &str, epoch: i32) {
        self.epochs.insert(member.into(), epoch);
    }

    pub fn epoch(&self, member: &str) -> i32 {
        self.epochs.get(member).copied().unwrap_or(0)
    }

    /// The answer to a fetch, if it is there.
    pub fn fetched(
        &mut self,
        member: &str,
        ticket: Ticket,
    ) -> Option<Result<ShareFetched<Data>, ShareError>> {
        match self.replies.remove(&ticket)? {
            Reply::ShareFetched(fetched) => {
                for part in fetched.iter().flat_map(|fetched| &fetched.parts) {
                    let mut expected = Vec::new();
                    for range in &part.acquired {
                        for offset in range.first.get()..=range.last.get() {
                            expected.push(offset);
                            self.deliveries.insert((member.into(), offset), range.delivery);
                        }
                    }
                    let data = part.data.as_ref().map_or(Vec::new(), |data| data.0.clone());
                    assert!(
                        expected.iter().all(|offset| data.contains(offset)),
                        "every acquired record is in the data"
                    );
                    assert!(expected.is_sorted(), "acquired ranges ascend: {:?}", part.acquired);
                }
                Some(fetched)
            }
            other => panic!("not a fetch's answer: {other:?}"),
        }
    }

    /// A fetch that must be answered by now: what it acquired of partition 0 (or of all, with several).
    pub fn fetch_with(&mut self, member: &str, want: &Want) -> Result<Vec<Got>, ShareError> {
        let ticket = self.send(member, want);
        let fetched = self.fetched(member, ticket).expect("the fetch is answered");
        fetched.map(|fetched| got(&fetched))
    }

    pub fn fetch(&mut self, member: &str, max: i32) -> Vec<Got> {
        self.fetch_with(member, &want(max)).unwrap()
    }

    /// A fetch that waits.
    pub fn park(&mut self, member: &str, max: i32) -> Ticket {
        self.send(member, &Want { wait_ms: 60_000, ..want(max) })
    }

    /// What a parked fetch got; `None` while it is parked.
    pub fn woken(&mut self, member: &str, ticket: Ticket) -> Option<Vec<Got>> {
        self.fetched(member, ticket).map(|fetched| got(&fetched.unwrap()))
    }

    pub fn acknowledge(
        &mut self,
        member: &str,
        ranges: Vec<AckRange>,
        epoch: Option<i32>,
        key_share: bool,
    ) -> Result<ShareAcknowledged, ShareError> {
        let ticket = self.send_acks(member, ranges, epoch, key_share);
        match self.replies.remove(&ticket).expect("the acknowledgement is answered") {
            Reply::ShareAcknowledged(reply) => reply,
            other => panic!("not an acknowledgement's answer: {other:?}"),
        }
    }

    pub fn send_acks(
        &mut self,
        member: &str,
        ranges: Vec<AckRange>,
        epoch: Option<i32>,
        key_share: bool,
    ) -> Ticket {
        let connection = self.connection(member);
        let due = self.epoch(member);
        if epoch.is_none() {
            self.epochs.insert(member.into(), due + 1);
        }
        self.command(ShareCommand::Acknowledge(ShareAcknowledge {
            connection,
            group: group(),
            member: Arc::from(member),
            epoch: epoch.unwrap_or(due),
            renew: ranges.iter().any(|range| range.types.contains(&RENEW)),
            parts: vec![(partition(0), ranges)],
            key_share,
        }))
    }

    /// Acknowledges one range; says the partition's error.
    pub fn ack(&mut self, member: &str, first: i64, last: i64, kind: i8) -> Option<ShareError> {
        let reply = self.acknowledge(member, vec![range(first, last, kind)], None, false).unwrap();
        reply.parts[0].error
    }

    pub fn ack_ranges(&mut self, member: &str, ranges: Vec<AckRange>) -> Option<ShareError> {
        self.acknowledge(member, ranges, None, false).unwrap().parts[0].error
    }

    /// With the delivery number under which the member was given the record.
    pub fn ack_numbered(&mut self, member: &str, offset: i64, kind: i8) -> Result<(), ShareError> {
        let number = self.deliveries.get(&(member.to_string(), offset)).copied();
        let range = AckRange { delivery: number, ..range(offset, offset, kind) };
        self.acknowledge(member, vec![range], None, true).unwrap().parts[0].results[0]
    }

    /// Final epoch.
    pub fn close_session(
        &mut self,
        member: &str,
        ranges: Vec<AckRange>,
    ) -> Result<ShareAcknowledged, ShareError> {
        self.epochs.remove(member);
        self.acknowledge(member, ranges, Some(-1), false)
    }

    // ---- time and facts --------------------------------------------------------------------------------------

    pub fn fact(&mut self, fact: Fact) {
        self.machine.fact(self.now, &fact, &self.table, &mut self.out);
        self.settle();
    }

    /// Lets time pass, stopping at every deadline on the way.
    pub fn pass_ms(&mut self, ms: i64) {
        let end = self.now.mono + Micros::from_ms(ms);
        let mut ticks = 0;
        while let Some(next) = self.machine.next_deadline().filter(|&next| next <= end) {
            ticks += 1;
            assert!(ticks < 100_000, "the clock stands still at {next:?}");
            self.to(next);
            self.machine.tick(self.now, &self.table, &mut self.out);
            self.settle();
        }
        self.to(end);
    }

    fn to(&mut self, at: Mono) {
        if at > self.now.mono {
            let whole = at.0 / 1_000 - self.now.mono.0 / 1_000;
            self.now.wall_ms += whole as i64;
            self.now.mono = at;
        }
    }

    /// kill -9 and a start: what was not handed to the disk is gone, and so are all connections.
    pub fn restart(&mut self, down_ms: i64) {
        self.queue.clear();
        self.boot += 1;
        self.now.wall_ms += down_ms;
        self.now.mono = Mono(self.now.mono.0 + 3);
        self.machine = ShareMachine::new(self.limits.clone(), self.boot);
        self.out = Outbox::default();
        self.replies.clear();
        self.connections.clear();
        self.tell_topics();
        self.configure();
    }

    /// The scan offset of the snapshot that is stored.
    pub fn snapshot_scan(&self) -> i64 {
        let snapshot =
            self.stored[&(group(), partition(0))].snapshot.clone().expect("a snapshot was written");
        let mut numbers = snapshot[1..].iter();
        let mut number = || {
            let mut shift = 0;
            let bytes = numbers.by_ref();
            let mut sum = 0;
            for byte in bytes {
                sum |= i64::from(byte & 0x7f) << shift;
                shift += 7;
                if *byte < 0x80 {
                    break;
                }
            }
            sum
        };
        number();
        number()
    }

    /// As [`World::restart`], and what was not synced is gone, too.
    pub fn power_cut(&mut self, down_ms: i64) {
        self.stored.clone_from(&self.synced);
        for copies in self.copies.values_mut() {
            copies.batches.truncate(copies.synced);
        }
        self.restart(down_ms);
    }

    pub(crate) fn tell_topics(&mut self) {
        let topics = Arc::new(self.topics.clone());
        self.fact(Fact::Topics(topics));
    }

    pub fn view(&self) -> SharePartitionView {
        self.machine.view("g", partition(0)).expect("the share-partition is loaded")
    }

    pub fn start(&self) -> i64 {
        self.view().start.get()
    }
}

pub fn got(fetched: &ShareFetched<Data>) -> Vec<Got> {
    let ranges = fetched.parts.iter().flat_map(|part| &part.acquired);
    ranges.map(|range| (range.first.get(), range.last.get(), range.count)).collect()
}

/// Single records of ranges: offset and count.
pub fn each(got: &[Got]) -> Vec<(i64, i16)> {
    got.iter().flat_map(|&(first, last, count)| (first..=last).map(move |offset| (offset, count))).collect()
}

/// Offsets of ranges.
pub fn offsets(got: &[Got]) -> Vec<i64> {
    each(got).into_iter().map(|record| record.0).collect()
}
