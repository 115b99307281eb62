//! The share machine against a simple, slow model, over random schedules of fetches, acknowledgements, lock
//! expiries, leaves, lost connections, lost answers, failing disks, retention, restarts, changes of the group's settings,
//! the operator's hand, dead letters, readers without membership, and memory so scarce that keys are kept as spans and
//! waiting ones page out.
//!
//! The model knows of each record whether it is done, and which member may still work on it until when: from what
//! that member was told and did, not from the machine. It decides nothing. At every grant it checks O1 (nobody else
//! may still work on the key), O2 (order, in-flight limit), O3 (nothing recalled is handed out, the count is right);
//! at the end, when all members have worked everything off, O5 (nothing lost, nothing delivered again that was
//! accepted). The same schedule twice must give the same trace.

mod outside;
mod readers;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{
    ACCEPT, GAP, REJECT, RELEASE, RENEW, Want, World, key_config, none_config, partition, range, want,
};
use coordinator::command::{AckRange, Fact, KeyShareTerms};
use coordinator::io::ScannedKind;
use coordinator::share::admin::KeyAction;
use coordinator::share::{LeftBy, Poison, ShareAssignment, ShareError, ShareOrder};
use coordinator::time::{Micros, Mono};

use self::readers::Readers;
use self::schedule::{Scarce, Step};
use crate::hand::DLQ;

const MEMBERS: [&str; 3] = ["A", "B", "C"];
const KEYS: [&str; 4] = ["a", "b", "c", "-"];
/// The delivery limit of every run.
const LIMIT: i16 = 4;
/// Records of a key that a reader without membership may have in flight.
const READER_INFLIGHT: usize = 16;

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

/// What stood before an acknowledgement.
struct Before {
    /// By offset: who, and whether it was recalled.
    holders: BTreeMap<i64, (usize, bool)>,
    done: BTreeSet<i64>,
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
    /// Copies of before a crash or a failing disk: that their records are archived may not have been stored.
    copied: BTreeSet<i64>,
    /// Keys were followed at some time.
    follows: bool,
    /// The broker was started, and the share state not read since.
    cold: bool,
    /// The order was changed, and the share state not read since.
    unread_order: bool,
    readers: Readers,
    /// Keys that an operator parked.
    parked: BTreeSet<usize>,
    /// Where assignment is sticky: to whom each key went since the members at work changed.
    homes: BTreeMap<usize, usize>,
    trace: Vec<String>,
    /// A failure shows the trace.
    shows: bool,
}

/// What led to a failure, where somebody wants to see it.
impl Drop for Run {
    fn drop(&mut self) {
        if self.shows && std::thread::panicking() {
            self.trace.iter().for_each(|line| println!("{line}"));
        }
    }
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
        world.limits.snapshot_after_scan_bytes = 32 * scarce.snapshot_after;
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
            copied: BTreeSet::new(),
            follows: poison == Poison::Follow,
            cold: false,
            unread_order: false,
            readers: Readers::default(),
            parked: BTreeSet::new(),
            homes: BTreeMap::new(),
            trace: Vec::new(),
            shows: false,
        }
    }

    fn step(&mut self, step: &Step) {
        self.trace.push(format!("{step:?}"));
        if step.may_move_homes() {
            self.homes.clear();
        }
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
                self.copied.extend(self.world.letter_offsets());
                self.world.pass_ms(1_000);
            }
            Step::Retention(at) => self.retention(at),
            Step::Alter { key, action } => self.alter(key, action),
            Step::Topic(enabled) => self.world.dead_letter_topic(1, enabled),
            Step::Order(keyed) => {
                self.keyed = keyed;
                // What one member gives back takes what lies behind it from another one, who has delivery numbers.
                self.works.retain(|_, work| !work.numbered);
                self.world.config.order = if keyed { ShareOrder::Key } else { ShareOrder::None };
                self.world.configure();
                if !keyed && self.is_loaded() {
                    self.replays_end();
                }
                self.unread_order |= !self.is_loaded();
            }
            Step::Sticky(sticky) => self.assign(sticky),
            Step::Poison(poison) => {
                self.poison = poison;
                self.follows |= poison == Poison::Follow;
                self.world.config.poison = poison;
                self.world.configure();
            }
            Step::Readers(ref steps) => self.read_standalone(steps),
            Step::Restart(down_ms) => {
                for work in self.works.values_mut() {
                    work.until = Mono(work.until.0.saturating_sub(down_ms as u64 * 1_000));
                }
                for record in self.records.values_mut() {
                    let until = record.waits_until.0.saturating_sub(down_ms as u64 * 1_000);
                    record.waits_until = Mono(until);
                }
                self.copied.extend(self.world.letter_offsets());
                self.bound(None, 7_500);
                self.world.restart(down_ms);
                self.cold = true;
                MEMBERS.iter().for_each(|member| self.world.reopen(member));
            }
        }
        self.read_back();
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

    /// Keys have homes from now on, or none.
    fn assign(&mut self, sticky: bool) {
        self.world.config.assignment =
            if sticky { ShareAssignment::Sticky } else { ShareAssignment::Dynamic };
        self.world.configure();
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
        if self.world.epoch(name) == 0 {
            self.homes.clear();
        }
        let numbered = self.numbered[member];
        let terms = KeyShareTerms { keys_max: 0, records_per_key_max: 3, stops_at_disconnect: false };
        let ask = Want { bytes, key_share: numbered.then_some(terms), ..want(max) };
        let ticket = self.world.send(name, &ask);
        let answer = match self.world.fetched(name, ticket) {
            None => return,
            Some(Err(ShareError::SessionNotFound | ShareError::InvalidSessionEpoch)) => {
                self.homes.clear();
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
        self.read_back();
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
            let max = match member {
                0..3 if !self.numbered[member] => self.inflight,
                0..3 => 3,
                _ => READER_INFLIGHT,
            };
            assert!(in_flight <= max, "O2: {in_flight} of a key in flight");
        }
        let sticky = self.keyed && self.world.config.assignment == ShareAssignment::Sticky;
        if sticky && KEYS[record.key] != "-" && member < MEMBERS.len() {
            let home = *self.homes.entry(record.key).or_insert(member);
            assert_eq!(home, member, "{offset}: its key went to its home before, and nobody came or went");
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
        self.works.insert(offset, Work { member, until, numbered: self.is_numbered(member) });
    }

    /// When a lock that begins now ends; with delivery numbers what lies behind a record that comes back comes back
    /// with it, so no later than what the member has of the key before.
    fn lock_end(&self, member: usize, offset: i64, key: usize) -> Mono {
        let whole = self.world.now.mono + Micros::from_ms(15_000);
        if !self.is_numbered(member) {
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
        holders
            .into_iter()
            .map(|(offset, name, recalled)| (offset.get(), (self.number_of(&name), recalled)))
            .collect()
    }

    fn number_of(&self, name: &str) -> usize {
        let member = MEMBERS.iter().position(|member| *member == name);
        member.unwrap_or_else(|| MEMBERS.len() + self.readers.number_of(name, self.world.boot))
    }

    fn is_numbered(&self, member: usize) -> bool {
        self.numbered.get(member).copied().unwrap_or(true)
    }

    /// Whether the machine still has the record as unsettled.
    fn world_has(&self, offset: i64) -> bool {
        self.world.machine.is_unsettled("g", partition(0), records::ids::Offset(offset))
    }

    fn ack(&mut self, member: usize, first: i64, last: i64, kind: i8) {
        let before = self.before_ack(first, last);
        let name = MEMBERS[member];
        let numbered = self.numbered[member];
        let number = self.world.deliveries.get(&(name.to_string(), first)).copied();
        let ack = AckRange { delivery: number.filter(|_| numbered), ..range(first, last, kind) };
        let ticket = self.world.send_acks(name, vec![ack], None, numbered);
        let Some(coordinator::reply::Reply::ShareAcknowledged(reply)) = self.world.replies.remove(&ticket)
        else {
            panic!("an acknowledgement is answered")
        };
        let Ok(reply) = reply else {
            self.homes.clear();
            return self.world.reopen(name);
        };
        let error = reply.parts[0].error;
        self.acked(member, (first, last), kind, error, &before);
    }

    /// Who holds what, and what of these offsets is done already.
    fn before_ack(&self, first: i64, last: i64) -> Before {
        let start = self.world.machine.view("g", partition(0)).map_or(0, |view| view.start.get());
        // Below the start offset there may be some that come again, and that the member does not hold any more.
        let done = (first..start.min(last + 1)).filter(|&at| !self.world_has(at)).collect();
        Before { holders: self.who_holds(), done }
    }

    /// What an acknowledgement did.
    fn acked(
        &mut self,
        member: usize,
        (first, last): (i64, i64),
        kind: i8,
        error: Option<ShareError>,
        before: &Before,
    ) {
        self.read_back();
        let numbered = self.is_numbered(member);
        self.trace.push(format!("{error:?}"));
        let mine = |offset: i64| before.holders.get(&offset).filter(|holder| holder.0 == member);
        let all = (first..=last).all(|offset| mine(offset).is_some() || before.done.contains(&offset));
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
            let followed = self.follows && self.is_letter(offset);
            let Some(record) = self.records.get_mut(&offset) else { continue };
            // O3: the acknowledgement of a recalled record changes nothing. Within one request a release recalls
            // what follows, so what the machine did is looked up where the type says so.
            let went = !self.world.machine.is_unsettled("g", partition(0), records::ids::Offset(offset));
            if recalled {
                assert!(!went || followed, "{offset} was recalled, and its acknowledgement settled it");
            }
            let to_topic = matches!(self.poison, Poison::DeadLetter | Poison::Follow);
            match kind {
                // Such a one is as if nobody had it; when its key is followed, it went to the dead-letter topic.
                _ if recalled => record.state = State::Free,
                ACCEPT if went => record.state = State::Accepted,
                REJECT if to_topic => record.state = State::Dead,
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

    fn is_letter(&self, offset: i64) -> bool {
        self.world.letters().iter().any(|letter| letter.offset == offset)
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
        self.homes.clear();
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
            // The end of its order ends a key's replay; what came again was done once.
            .filter(|(_, record)| {
                matches!(record.state, State::Free | State::Held { .. }) && !record.replayed
            });
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
                        record.replayed || !letters.contains(offset) || self.copied.contains(offset),
                        "{offset} was accepted and is a dead letter"
                    );
                }
                _ => {}
            }
        }
    }
}
