//! The share machine against a simple, slow model, over random schedules of fetches, acknowledgements, lock
//! expiries, leaves, lost connections, lost answers, failing disks, retention and restarts.
//!
//! The model knows of each record whether it is done, and which member may still work on it until when: from what
//! that member was told and did, not from the machine. It decides nothing. At every grant it checks O1 (nobody else
//! may still work on the key), O2 (order, in-flight limit), O3 (nothing recalled is handed out, the count is right);
//! at the end, when all members have worked everything off, O5 (nothing lost, nothing delivered again that was
//! accepted). The same schedule twice must give the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{
    ACCEPT, GAP, REJECT, RELEASE, RENEW, Want, World, key_config, none_config, partition, range, want,
};
use coordinator::command::{AckRange, Fact, KeyShareTerms};
use coordinator::io::ScannedKind;
use coordinator::share::admin::{KeyAction, KeyRef};
use coordinator::share::{LeftBy, Poison, ShareError, ShareOrder, WindowLimits};
use coordinator::time::{Micros, Mono};
use proptest::prelude::*;
use records::ids::Offset;

use crate::hand::{DLQ, at, of};

const MEMBERS: [&str; 3] = ["A", "B", "C"];
const KEYS: [&str; 4] = ["a", "b", "c", "-"];
/// The delivery limit of every run.
const LIMIT: i16 = 4;

/// How little memory there is, and how much waits.
#[derive(Clone, Debug)]
struct Scarce {
    snapshot_after: u64,
    backoff_ms: i64,
    window_bytes_max: u64,
    stuck_keys_max: u64,
    find_records_max: usize,
    limits: WindowLimits,
}

impl Scarce {
    /// As much as anyone needs.
    fn plenty() -> Self {
        Self {
            snapshot_after: 1 << 20,
            backoff_ms: 0,
            window_bytes_max: 16 << 20,
            stuck_keys_max: 1_000_000,
            find_records_max: 1_000,
            limits: WindowLimits::default(),
        }
    }
}

fn scarce() -> impl Strategy<Value = Scarce> {
    let pick = |of: &[u32]| prop::sample::select(of.to_vec());
    let window = (pick(&[1, 2, 3]), pick(&[1, 1, 4]), pick(&[0, 1, 3]), pick(&[1, 2, 5]), pick(&[0, 500]));
    let limits = (window, pick(&[0, 10, 512]), pick(&[0, 2, 8_000])).prop_map(
        |((queued, look_ups, waits, page_keys, lead), inline, marks)| WindowLimits {
            spill_from_parts: u64::MAX,
            key_queued_max: [queued + 1, queued, 1],
            look_ups_max: look_ups as usize,
            waits_max: waits as usize,
            page_keys_max: page_keys as usize,
            page_lead_ms: i64::from(lead),
            chunk_inline_bytes_max: inline as usize,
            marks_max: marks as usize,
        },
    );
    let amounts = (
        pick(&[50, 50, 1 << 20]),
        pick(&[0, 1_000, 3_000, 20_000]),
        pick(&[1_000, 3_000, 16 << 20]),
        pick(&[1, 3, 1_000_000]),
        pick(&[1, 3, 1_000]),
    );
    let scarce = (amounts, limits).prop_map(
        |((snapshot_after, backoff_ms, window_bytes_max, stuck_keys_max, find_records_max), limits)| Scarce {
            snapshot_after: snapshot_after.into(),
            backoff_ms: backoff_ms.into(),
            window_bytes_max: window_bytes_max.into(),
            stuck_keys_max: stuck_keys_max.into(),
            find_records_max: find_records_max as usize,
            limits,
        },
    );
    prop_oneof![1 => Just(Scarce::plenty()), 5 => scarce]
}

#[derive(Clone, Debug)]
enum Step {
    Produce(Vec<usize>),
    Fetch {
        member: usize,
        max: i32,
        bytes: i32,
    },
    Ack {
        member: usize,
        pick: usize,
        kind: i8,
    },
    /// The whole range from the lowest to the highest held offset, with one type.
    AckAll {
        member: usize,
        kind: i8,
    },
    Pass(i64),
    Close(usize),
    Leave(usize),
    TimeOut(usize),
    Lose {
        member: usize,
        parked: bool,
    },
    Reopen(usize),
    LoseAnswer(usize),
    FailDisk(usize),
    Retention(i64),
    Restart(i64),
    Control,
    /// What an operator does to a key.
    Alter {
        key: usize,
        action: KeyAction,
    },
    /// The dead-letter topic takes letters, or does not.
    Topic(bool),
}

#[derive(Clone, Debug)]
struct Record {
    key: usize,
    state: State,
    /// Deliveries that count and failed.
    failed: i16,
    /// It waits for a retry until then.
    waits_until: Mono,
    /// It was resumed since: its count may begin anew.
    resumed: bool,
    /// It may be replayed: go out once more although it is done.
    may_return: bool,
    /// It was, or could have been.
    replayed: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Free,
    Held {
        member: usize,
    },
    Accepted,
    Archived,
    /// Rejected where poison goes to the dead-letter topic: to be found there, and nowhere else.
    Dead,
    Deleted,
}

/// A member may work on a record until then, at least; `numbered` by the delivery it has.
#[derive(Clone, Copy, Debug)]
struct Work {
    member: usize,
    until: Mono,
    numbered: bool,
}

struct Run {
    world: World,
    records: BTreeMap<i64, Record>,
    keyed: bool,
    inflight: usize,
    numbered: [bool; 3],
    /// Who may still work on a record, and until when at least.
    works: BTreeMap<i64, Work>,
    /// A connection was lost with no fetch out since the member was heard of.
    lost_idle: [bool; 3],
    poison: Poison,
    /// Keys that an operator parked.
    parked: BTreeSet<usize>,
    trace: Vec<String>,
}

impl Run {
    fn new(keyed: bool, inflight: u32, numbered: [bool; 3], scarce: &Scarce, poison: Poison) -> Self {
        let mut config = if keyed { key_config() } else { none_config() };
        config.poison = poison;
        config.dead_letter_topic = Some(DLQ.into());
        config.key_inflight_max = inflight;
        config.delivery_count_max = LIMIT;
        config.lock_ms = 15_000;
        (config.backoff_ms, config.backoff_max_ms) = (scarce.backoff_ms, scarce.backoff_ms * 2);
        config.window_bytes_max = scarce.window_bytes_max;
        config.stuck_keys_max = scarce.stuck_keys_max;
        let mut world = World::new(config);
        world.limits.snapshot_after_bytes = scarce.snapshot_after;
        world.limits.scan_bytes_max = 350;
        world.limits.window = Arc::new(scarce.limits.clone());
        world.find_records_max = scarce.find_records_max;
        world.dead_letter_topic(1, true);
        world.restart(0);
        Self {
            world,
            records: BTreeMap::new(),
            keyed,
            inflight: inflight as usize,
            numbered,
            works: BTreeMap::new(),
            lost_idle: [false; 3],
            poison,
            parked: BTreeSet::new(),
            trace: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        self.trace.push(format!("{step:?}"));
        match *step {
            Step::Produce(ref keys) => self.produce(keys),
            Step::Control => {
                self.world.append(0, ScannedKind::Control, 1);
                self.world.grew(0);
            }
            Step::Fetch { member, max, bytes } => self.fetch(member, max, bytes),
            Step::Ack { member, pick, kind } => {
                let held = self.held_by(member);
                if let Some(&offset) = held.get(pick % held.len().max(1)) {
                    self.ack(member, offset, offset, kind);
                }
            }
            Step::AckAll { member, kind } => {
                let held = self.held_by(member);
                if let (Some(&first), Some(&last)) = (held.first(), held.last())
                    && !self.numbered[member]
                {
                    self.ack(member, first, last, kind);
                }
            }
            Step::Pass(ms) => self.world.pass_ms(ms),
            Step::Close(member) => {
                self.stops(member);
                drop(self.world.close_session(MEMBERS[member], vec![]));
            }
            Step::Leave(member) => {
                self.world.left(MEMBERS[member], LeftBy::Heartbeat);
                self.world.live(&MEMBERS);
                self.world.left(MEMBERS[member], LeftBy::Heartbeat);
                self.world.pass_ms(1_000);
                self.world.live(&MEMBERS);
                self.stops(member);
            }
            Step::TimeOut(member) => {
                self.stops(member);
                self.world.left(MEMBERS[member], LeftBy::SessionTimeout);
            }
            Step::Lose { member, parked } => {
                if parked {
                    self.heard(member);
                    let parked = self.world.park(MEMBERS[member], 0);
                    drop(self.world.fetched(MEMBERS[member], parked));
                }
                self.lost_idle[member] = true;
                self.bound(Some(member), 7_500);
                self.world.lose(MEMBERS[member]);
            }
            Step::Reopen(member) => self.world.reopen(MEMBERS[member]),
            Step::LoseAnswer(member) => self.lose_answer(member),
            Step::FailDisk(member) => {
                self.heard(member);
                self.world.disk_full = true;
                let ticket = self.world.send(MEMBERS[member], &want(2));
                let answer = self.world.fetched(MEMBERS[member], ticket).expect("refused, but answered");
                if let Ok(answer) = answer {
                    assert!(
                        crate::common::got(&answer).is_empty(),
                        "a grant that is not stored is not handed out"
                    );
                }
                self.world.disk_full = false;
                self.world.pass_ms(1_000);
            }
            Step::Retention(at) => self.retention(at),
            Step::Alter { key, action } => self.alter(key, action),
            Step::Topic(enabled) => self.world.dead_letter_topic(1, enabled),
            Step::Restart(down_ms) => {
                for work in self.works.values_mut() {
                    work.until = Mono(work.until.0.saturating_sub(down_ms as u64 * 1_000));
                }
                for record in self.records.values_mut() {
                    let until = record.waits_until.0.saturating_sub(down_ms as u64 * 1_000);
                    record.waits_until = Mono(until);
                }
                self.bound(None, 7_500);
                self.world.restart(down_ms);
                MEMBERS.iter().for_each(|member| self.world.reopen(member));
            }
        }
        self.trace.push(format!("{:?}", self.world.machine.view("g", partition(0))));
    }

    fn produce(&mut self, keys: &[usize]) {
        let base = self.world.logs[&partition(0)].facts.end.get();
        let names: Vec<_> = keys.iter().map(|&key| crate::common::key(KEYS[key])).collect();
        self.world.batch(0, &names, &vec![100; keys.len()]);
        for (offset, &key) in (base..).zip(keys) {
            self.records.insert(
                offset,
                Record {
                    key,
                    state: State::Free,
                    failed: 0,
                    waits_until: Mono(0),
                    resumed: false,
                    may_return: false,
                    replayed: false,
                },
            );
        }
        self.world.grew(0);
    }

    /// The member's session has ended: it works on nothing any more.
    fn stops(&mut self, member: usize) {
        self.works.retain(|_, work| work.member != member);
    }

    /// A request of the member is about to be sent: a new session after a loss with no fetch out proves that it has
    /// stopped.
    fn heard(&mut self, member: usize) {
        if self.world.epoch(MEMBERS[member]) == 0 && self.lost_idle[member] {
            self.stops(member);
        }
        self.lost_idle[member] = false;
    }

    /// From now on the member (or everyone) may be taken to have stopped after this long.
    fn bound(&mut self, member: Option<usize>, ms: i64) {
        if !self.keyed {
            self.works.retain(|_, work| member.is_some_and(|member| member != work.member));
        }
        let latest = self.world.now.mono + Micros::from_ms(ms);
        for work in self.works.values_mut().filter(|work| member.is_none_or(|member| member == work.member)) {
            work.until = work.until.min(latest);
        }
    }

    /// What a member was given and has not settled, as far as the model was told.
    fn held_by(&self, member: usize) -> Vec<i64> {
        let held =
            |record: &Record| matches!(record.state, State::Held { member: holder } if holder == member);
        self.records.iter().filter(|(_, record)| held(record)).map(|(&offset, _)| offset).collect()
    }

    fn fetch(&mut self, member: usize, max: i32, bytes: i32) {
        let name = MEMBERS[member];
        self.heard(member);
        let numbered = self.numbered[member];
        let terms = KeyShareTerms { keys_max: 0, records_per_key_max: 3, stops_at_disconnect: false };
        let ask = Want { bytes, key_share: numbered.then_some(terms), ..want(max) };
        let ticket = self.world.send(name, &ask);
        let answer = match self.world.fetched(name, ticket) {
            None => return,
            Some(Err(ShareError::SessionNotFound | ShareError::InvalidSessionEpoch)) => {
                return self.world.reopen(name);
            }
            Some(answer) => answer.expect("nothing else fails"),
        };
        let got = crate::common::each(&crate::common::got(&answer));
        self.trace.push(format!("{got:?}"));
        assert!(got.len() <= usize::try_from(max).unwrap() || !self.keyed, "never more than asked");
        for (offset, count) in got {
            self.granted(member, offset, count);
        }
    }

    /// The check at the moment of the grant.
    fn granted(&mut self, member: usize, offset: i64, count: i16) {
        let now_held = self.who_holds();
        let record = self.records[&offset].clone();
        assert!(
            record.may_return
                || !matches!(record.state, State::Accepted | State::Archived | State::Dead | State::Deleted),
            "{offset} is done ({:?}) and goes out again",
            record.state
        );
        assert!(!self.keyed || !self.parked.contains(&record.key), "{offset} is of a parked key");
        assert!((1..=LIMIT).contains(&count), "count {count}");
        let early = record.waits_until.0.saturating_sub(self.world.now.mono.0);
        // The wall clock of the stub goes in whole milliseconds.
        assert!(early <= 2_000, "{offset} waits for another {early} µs");
        assert_eq!(
            now_held.get(&offset),
            Some(&(member, false)),
            "the machine says that {member} holds {offset}"
        );
        if self.keyed && KEYS[record.key] != "-" {
            let mut in_flight = 0;
            for (&other, state) in &self.records {
                if state.key != record.key {
                    continue;
                }
                let holder = now_held.get(&other);
                // O1: nobody else may still work on the key, and nobody else holds records of it, recalled or not.
                let now = self.world.now.mono;
                let works = self.works.get(&other).filter(|work| work.member != member && work.until > now);
                assert!(
                    works.is_none(),
                    "O1: {works:?} may still work on {other}, {offset} goes to {member}"
                );
                assert!(
                    holder.is_none_or(|holder| holder.0 == member),
                    "O1: {other} is at {holder:?}, {offset} goes to {member}"
                );
                in_flight += usize::from(holder.is_some());
                // O2: nothing earlier of the key is left behind, and nothing earlier is recalled (O3).
                if other < offset {
                    let done = match state.state {
                        State::Deleted => true,
                        // Unless it is replayed just now.
                        State::Accepted | State::Archived | State::Dead => !self.world_has(other),
                        State::Free | State::Held { .. } => false,
                    };
                    // At its limit, by the end of a lock or of a session.
                    let settled_unseen =
                        !self.world_has(other) && (state.failed + 1 >= LIMIT || self.is_letter(other));
                    assert!(
                        done || settled_unseen || holder == Some(&(member, false)),
                        "O2: {other} is before {offset}"
                    );
                }
            }
            let max = if self.numbered[member] { 3 } else { self.inflight };
            assert!(in_flight <= max, "O2: {in_flight} of a key in flight");
        }
        let record = self.records.get_mut(&offset).unwrap();
        assert!(
            count - 1 == record.failed || count == record.failed + 2 || (count == 1 && record.resumed),
            "{count} after {}",
            record.failed
        );
        record.resumed = false;
        record.may_return = false;
        record.state = State::Held { member };
        record.failed = count - 1;
        let key = record.key;
        let until = self.lock_end(member, offset, key);
        self.works.insert(offset, Work { member, until, numbered: self.numbered[member] });
    }

    /// When a lock that begins now ends; with delivery numbers what lies behind a record that comes back comes back
    /// with it, so no later than what the member has of the key before.
    fn lock_end(&self, member: usize, offset: i64, key: usize) -> Mono {
        let whole = self.world.now.mono + Micros::from_ms(15_000);
        if !self.numbered[member] {
            return whole;
        }
        let before = self.records.range(..offset).filter(|(_, record)| record.key == key);
        let held = before
            .filter(|(_, record)| matches!(record.state, State::Held { member: holder } if holder == member));
        held.map(|(earlier, _)| self.works.get(earlier).map_or(Mono(0), |work| work.until))
            .min()
            .map_or(whole, |end| end.min(whole))
    }

    fn who_holds(&self) -> BTreeMap<i64, (usize, bool)> {
        let holders = self.world.machine.holders("g", partition(0));
        let number = |name: &str| MEMBERS.iter().position(|member| *member == name).unwrap();
        holders
            .into_iter()
            .map(|(offset, name, recalled)| (offset.get(), (number(&name), recalled)))
            .collect()
    }

    /// Whether the machine still has the record as unsettled.
    fn world_has(&self, offset: i64) -> bool {
        self.world.machine.is_unsettled("g", partition(0), records::ids::Offset(offset))
    }

    fn ack(&mut self, member: usize, first: i64, last: i64, kind: i8) {
        let before = self.who_holds();
        let start = self.world.machine.view("g", partition(0)).map_or(0, |view| view.start.get());
        let name = MEMBERS[member];
        let numbered = self.numbered[member];
        let number = self.world.deliveries.get(&(name.to_string(), first)).copied();
        let ack = AckRange { delivery: number.filter(|_| numbered), ..range(first, last, kind) };
        let ticket = self.world.send_acks(name, vec![ack], None, numbered);
        let Some(coordinator::reply::Reply::ShareAcknowledged(reply)) = self.world.replies.remove(&ticket)
        else {
            panic!("an acknowledgement is answered")
        };
        let Ok(reply) = reply else { return self.world.reopen(name) };
        let error = reply.parts[0].error;
        self.trace.push(format!("{error:?}"));
        let mine = |offset: i64| before.get(&offset).filter(|holder| holder.0 == member);
        let all = (first..=last).all(|offset| mine(offset).is_some() || offset < start);
        if self.keyed && !numbered && all {
            assert_eq!(error, None, "every offset was the member's, or is done");
        }
        if !self.keyed && error.is_some() {
            return;
        }
        for offset in first..=last {
            let Some(&(_, recalled)) = mine(offset) else { continue };
            let Some(key) = self.records.get(&offset).map(|record| record.key) else { continue };
            if numbered && error.is_some() {
                continue;
            }
            if kind == RENEW {
                let until = self.lock_end(member, offset, key);
                if let Some(work) = self.works.get_mut(&offset) {
                    work.until = until;
                }
                continue;
            }
            self.works.remove(&offset);
            if matches!(kind, RELEASE | GAP) {
                // With delivery numbers what lies behind it has come back with it.
                let records = &self.records;
                self.works.retain(|other, work| {
                    let behind = *other > offset && records[other].key == key;
                    !(behind && work.numbered && work.member == member)
                });
            }
            // What a member gives back of a followed key goes to the dead-letter topic.
            let followed = self.poison == Poison::Follow && self.is_letter(offset);
            let Some(record) = self.records.get_mut(&offset) else { continue };
            // O3: the acknowledgement of a recalled record changes nothing. Within one request a release recalls
            // what follows, so what the machine did is looked up where the type says so.
            let went = !self.world.machine.is_unsettled("g", partition(0), records::ids::Offset(offset));
            if recalled {
                assert!(!went || followed, "{offset} was recalled, and its acknowledgement settled it");
            }
            let to_topic = matches!(self.poison, Poison::DeadLetter | Poison::Follow);
            match kind {
                ACCEPT if went => record.state = State::Accepted,
                REJECT if to_topic && !recalled => record.state = State::Dead,
                REJECT | GAP | RELEASE if went => record.state = State::Archived,
                _ => record.state = State::Free,
            }
            // Of several at once the later ones may have been recalled by the first.
            if matches!(kind, RELEASE | GAP) && !went && !recalled && first == last {
                let times = if record.failed == 0 { 1 } else { 2 };
                let wait = Micros::from_ms(self.world.config.backoff_ms * times);
                record.waits_until = self.world.now.mono + wait;
            }
            if kind == RELEASE && went {
                assert!(record.failed + 1 >= LIMIT || followed, "{offset} was archived before its limit");
            }
        }
    }

    fn lose_answer(&mut self, member: usize) {
        let name = MEMBERS[member];
        self.heard(member);
        self.world.written_at_once = false;
        let ticket = self.world.send(name, &want(3));
        self.world.written_at_once = true;
        if let Some(Ok(answer)) = self.world.fetched(name, ticket) {
            let lost = crate::common::each(&crate::common::got(&answer));
            self.world.fact(Fact::AnswerLost(ticket));
            for (offset, _) in lost {
                assert_ne!(
                    self.who_holds().get(&offset).map(|holder| holder.0),
                    Some(member),
                    "{offset} came back"
                );
                let record = self.records.get_mut(&offset).unwrap();
                if matches!(record.state, State::Held { .. }) {
                    record.state = State::Free;
                }
            }
        }
        self.bound(Some(member), 7_500);
        self.world.lose(name);
    }

    fn retention(&mut self, at: i64) {
        let end = self.world.logs[&partition(0)].facts.end.get();
        let start = self.world.logs[&partition(0)].facts.log_start.get();
        let at = (start + at).min(end);
        self.works.retain(|&offset, _| offset >= at);
        self.world.log_start(at);
        for (_, record) in self.records.range_mut(..at) {
            if !matches!(record.state, State::Accepted | State::Archived) {
                record.state = State::Deleted;
            }
        }
    }

    fn is_letter(&self, offset: i64) -> bool {
        self.world.letters().iter().any(|letter| letter.offset == offset)
    }

    /// An operator alters a key; of keyless records, and without order, every record by itself.
    fn alter(&mut self, key: usize, action: KeyAction) {
        let subjects: Vec<KeyRef> = if self.keyed && KEYS[key] != "-" {
            vec![of(KEYS[key])]
        } else {
            let alone = self.records.iter().filter(|(_, record)| !self.keyed || record.key == key);
            alone.map(|(&offset, _)| at(offset)).collect()
        };
        let unsettled = |run: &Self| -> BTreeSet<i64> {
            run.records.keys().copied().filter(|&offset| run.world_has(offset)).collect()
        };
        // Loads what is not in memory.
        drop(self.world.describe(&[]));
        let before = unsettled(self);
        for subject in subjects {
            let outcome = self.world.alter(subject, action);
            self.trace.push(format!("{outcome:?}"));
            let Ok(altered) = outcome else { continue };
            if let (KeyAction::Resume, KeyRef::Offset(offset), 1) = (action, subject, altered.records) {
                // What was parked while it waited goes out when somebody says so.
                self.records.get_mut(&offset.get()).unwrap().waits_until = Mono(0);
            }
            if action != KeyAction::Park {
                // What was resumed recalls what lies behind it; with delivery numbers that comes back at once.
                let records = &self.records;
                self.works.retain(|offset, work| !(work.numbered && records[offset].key == key));
            }
            if self.keyed && altered.key.is_some() {
                match action {
                    KeyAction::Park => drop(self.parked.insert(key)),
                    KeyAction::Redrive | KeyAction::Replay(..) => {}
                    _ => drop(self.parked.remove(&key)),
                }
            }
            let letters: BTreeSet<i64> = self.world.letter_offsets().into_iter().collect();
            let of_key = before.iter().filter(|&offset| self.records[offset].key == key);
            let first = of_key.min().copied().unwrap_or(i64::MAX);
            for (offset, record) in self.records.iter_mut().filter(|(_, record)| record.key == key) {
                let replayed = match action {
                    KeyAction::Redrive => letters.contains(offset),
                    KeyAction::Replay(from, to) => {
                        (from.get()..=to.get()).contains(offset) && *offset < first
                    }
                    _ => false,
                };
                record.may_return |= replayed;
                record.replayed |= replayed;
            }
        }
        let after = unsettled(self);
        for (offset, record) in &mut self.records {
            record.resumed |= action != KeyAction::Park;
            if before.contains(offset) && !after.contains(offset) {
                record.state = State::Archived;
            }
        }
    }

    /// All members end, then one works off everything that is left.
    fn finish(&mut self) {
        self.world.pass_ms(120_000);
        for member in MEMBERS {
            drop(self.world.close_session(member, vec![]));
            self.world.reopen(member);
        }
        self.world.dead_letter_topic(1, true);
        for key in 0..KEYS.len() {
            self.alter(key, KeyAction::Resume);
        }
        self.works.clear();
        self.numbered = [false; 3];
        let (mut idle, mut rounds) = (0, 0);
        while idle < 3 {
            rounds += 1;
            assert!(rounds < 1_000, "it never ends: {:?}, held {:?}", self.world.view(), self.who_holds());
            self.world.pass_ms(120_000);
            self.fetch(0, 50, i32::MAX);
            let held: BTreeSet<i64> = self.who_holds().into_keys().collect();
            idle = if held.is_empty() { idle + 1 } else { 0 };
            for offset in held {
                self.ack(0, offset, offset, ACCEPT);
            }
        }
        let end = self.world.logs[&partition(0)].facts.end.get();
        assert_eq!(self.world.start(), end, "everything is done");
        let view = self.world.view();
        assert_eq!(
            (view.spilled, view.spilled_keys, view.waiting_keys),
            (0, 0, 0),
            "nothing is left anywhere"
        );
        let unseen = self
            .records
            .iter()
            .filter(|(_, record)| matches!(record.state, State::Free | State::Held { .. }));
        let archived = self.world.view().counters.archived;
        let unseen: Vec<_> = unseen.map(|(offset, record)| (*offset, record.failed)).collect();
        // What nobody accepted was archived at its limit by an expiry or a leave: its last delivery was its last. Or it
        // followed another one to the dead-letter topic.
        let letters: BTreeSet<i64> = self.world.letter_offsets().into_iter().collect();
        assert!(
            unseen.iter().all(|(offset, failed)| failed + 1 >= LIMIT || letters.contains(offset)),
            "O5: lost {unseen:?} ({archived} archived)"
        );
        for (offset, record) in &self.records {
            match record.state {
                State::Dead => {
                    assert!(letters.contains(offset), "O5: {offset} was rejected and is no dead letter");
                }
                State::Accepted => {
                    assert!(
                        record.replayed || !letters.contains(offset),
                        "{offset} was accepted and is a dead letter"
                    );
                }
                _ => {}
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let member = 0..MEMBERS.len();
    let kind = prop::sample::select(vec![ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW, GAP]);
    prop_oneof![
        4 => prop::collection::vec(0..KEYS.len(), 1..6).prop_map(Step::Produce),
        1 => (0..KEYS.len(), 3..12_usize).prop_map(|(key, count)| Step::Produce(vec![key; count])),
        8 => (member.clone(), 1..8_i32, prop::sample::select(vec![150, 350, 1 << 20]))
            .prop_map(|(member, max, bytes)| Step::Fetch { member, max, bytes }),
        8 => (member.clone(), 0..8_usize, kind.clone()).prop_map(|(member, pick, kind)| Step::Ack { member, pick, kind }),
        2 => (member.clone(), kind).prop_map(|(member, kind)| Step::AckAll { member, kind }),
        3 => prop::sample::select(vec![1, 50, 1_000, 4_000, 7_500, 15_000]).prop_map(Step::Pass),
        1 => member.clone().prop_map(Step::Close),
        1 => member.clone().prop_map(Step::Leave),
        1 => member.clone().prop_map(Step::TimeOut),
        1 => (member.clone(), any::<bool>()).prop_map(|(member, parked)| Step::Lose { member, parked }),
        1 => member.clone().prop_map(Step::Reopen),
        1 => member.clone().prop_map(Step::LoseAnswer),
        1 => member.prop_map(Step::FailDisk),
        1 => (0..6_i64).prop_map(Step::Retention),
        1 => prop::sample::select(vec![0, 1_000, 20_000]).prop_map(Step::Restart),
        1 => Just(Step::Control),
        2 => (0..KEYS.len(), prop::sample::select(vec![
            KeyAction::Park, KeyAction::Resume, KeyAction::Resume, KeyAction::Skip, KeyAction::Drop(None),
            KeyAction::Drop(Some(Offset(20))), KeyAction::Redrive, KeyAction::Redrive,
            KeyAction::Replay(Offset(0), Offset(3)), KeyAction::Replay(Offset(2), Offset(20)),
        ])).prop_map(|(key, action)| Step::Alter { key, action }),
        1 => any::<bool>().prop_map(Step::Topic),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn o1_to_o5_hold_over_any_schedule(
        keyed in prop::sample::select(vec![true, true, true, false]),
        inflight in prop::sample::select(vec![1_u32, 1, 2, 5]),
        numbered in any::<[bool; 3]>(),
        scarce in scarce(),
        poison in prop::sample::select(vec![Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park]),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut run = Run::new(keyed, inflight, numbered, &scarce, poison);
        steps.iter().for_each(|step| run.step(step));
        run.finish();
        let mut again = Run::new(keyed, inflight, numbered, &scarce, poison);
        steps.iter().for_each(|step| again.step(step));
        again.finish();
        prop_assert_eq!(run.trace, again.trace);
        prop_assert_eq!(run.world.config.order == ShareOrder::Key, keyed);
    }
}
