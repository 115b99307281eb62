//! A reader without membership: it reads ranges of key hashes under a group id, and is its connection. What it is done
//! with it acknowledges, or commits as ranges of offsets. At times it takes more than its own lane, which fences others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::{
    Command, DeliveryNumber, KeyRange, KeyShareTerms, ShareAcknowledge, ShareFetch, ShareFetchPart,
    StandaloneCommit, StandaloneFetch,
};
use coordinator::reply::{Reply, ShareFetched};
use records::ids::{KeyHash, PartitionId};

use super::member::acks::{ACCEPT, Acks, REJECT, RELEASE};
use super::{Socket, Turn, UNKNOWN, Wish, Work};
use crate::sim::event::RequestId;
use crate::sim::node::partition;
use crate::sim::plan::{Plan, StandalonePlan};

/// Without an answer for so long beyond its wait it takes another connection.
const TIMEOUT_US: u64 = 60_000_000;
/// Pause before the next try after an error.
const RETRY_US: u64 = 200_000;
/// It fetches ahead while it holds no more than this.
const AHEAD_MAX: usize = 5;

#[derive(Clone, Debug)]
struct Held {
    index: i32,
    offset: i64,
    delivery: DeliveryNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Its answer moves the session on.
    Session,
    Commit,
    Final,
}

/// What it asks to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Alarm {
    Work,
    Next,
    Timeout,
}

const ALARMS: [Alarm; 3] = [Alarm::Work, Alarm::Next, Alarm::Timeout];

/// See the module.
pub struct Standalone {
    plan: StandalonePlan,
    group: Arc<str>,
    lock_us: u64,
    work_us_max: u64,
    slow_percent: u64,
    release_percent: u64,
    reject_percent: u64,
    partitions: i32,
    /// Its lane, and how many there are.
    lane: (u64, u64),
    socket: Option<Socket>,
    epoch: i32,
    asked: Option<(RequestId, Asked)>,
    buffer: VecDeque<Held>,
    work: Option<Held>,
    acks: Acks,
    commits: BTreeMap<i32, BTreeSet<i64>>,
    alarms: [u64; ALARMS.len()],
}

impl Standalone {
    /// The reader of that lane of so many.
    #[must_use]
    pub fn new(
        lane: (u64, u64),
        group: &Arc<str>,
        lock_ms: i64,
        standalone: StandalonePlan,
        plan: &Plan,
    ) -> Self {
        Self {
            plan: standalone,
            group: Arc::clone(group),
            lock_us: u64::try_from(lock_ms).unwrap_or(0) * 1_000,
            work_us_max: plan.work_us_max,
            slow_percent: plan.slow_percent,
            release_percent: plan.release_percent,
            reject_percent: plan.reject_percent,
            partitions: plan.partitions,
            lane,
            socket: None,
            epoch: 0,
            asked: None,
            buffer: VecDeque::new(),
            work: None,
            acks: Acks::default(),
            commits: BTreeMap::new(),
            alarms: [0; ALARMS.len()],
        }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        self.set(turn, Alarm::Next, 200_000);
    }

    fn set(&mut self, turn: &mut Turn<'_>, alarm: Alarm, wait_us: u64) {
        let generation = &mut self.alarms[alarm as usize];
        *generation += 1;
        let token = *generation * ALARMS.len() as u64 + alarm as u64;
        turn.wake(wait_us, token);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        let kinds = ALARMS.len() as u64;
        let place = usize::try_from(token % kinds).expect("below the number of alarms");
        if self.alarms[place] != token / kinds {
            return;
        }
        match ALARMS[place] {
            Alarm::Work => self.work_done(turn),
            Alarm::Next => self.next(turn),
            Alarm::Timeout => {
                if let Some(socket) = self.socket
                    && self.asked.is_some()
                {
                    turn.close(socket);
                    self.loses(turn, socket);
                }
            }
        }
    }

    // ---- requests --------------------------------------------------------------------------------------------

    fn next(&mut self, turn: &mut Turn<'_>) {
        if self.asked.is_some() {
            return;
        }
        if self.epoch == 0 {
            return self.fetch(turn);
        }
        let leaves = !turn.peace && turn.random.percent(self.plan.leave_percent);
        if leaves {
            if turn.random.percent(50)
                && let Some(socket) = self.socket
            {
                turn.close(socket);
                return self.loses(turn, socket);
            }
            return self.acknowledge(turn, true);
        }
        if !self.commits.is_empty() {
            return self.commit(turn);
        }
        if !self.acks.is_empty() && turn.random.percent(50) {
            return self.acknowledge(turn, false);
        }
        if self.buffer.len() <= AHEAD_MAX {
            self.fetch(turn);
        }
    }

    /// Its lane, or more.
    fn ranges(&self, turn: &mut Turn<'_>) -> Vec<KeyRange> {
        let (lane, lanes) = self.lane;
        let width = u64::MAX / lanes;
        let first = lane * width;
        let last = if lane + 1 == lanes { u64::MAX } else { first + (width - 1) };
        let own = KeyRange { first: KeyHash(first), last: KeyHash(last) };
        if turn.peace || !turn.random.percent(self.plan.greedy_percent) {
            // In two pieces, and not in order.
            let middle = first + (last - first) / 2;
            let upper = KeyRange { first: KeyHash(middle + 1), last: KeyHash(last) };
            return vec![upper, KeyRange { last: KeyHash(middle), ..own }];
        }
        if turn.random.percent(50) {
            return Vec::new();
        }
        let (one, other) = (turn.random.bits(), turn.random.bits());
        vec![own, KeyRange { first: KeyHash(one.min(other)), last: KeyHash(one.max(other)) }]
    }

    fn fetch(&mut self, turn: &mut Turn<'_>) {
        let mut parts: Vec<ShareFetchPart> = Vec::new();
        let mut ranges: Vec<(PartitionId, Vec<KeyRange>)> = Vec::new();
        if self.epoch == 0 {
            for index in 0..self.partitions {
                parts.push(ShareFetchPart { partition: partition(index), acks: Vec::new() });
                ranges.push((partition(index), self.ranges(turn)));
            }
        } else {
            for (index, acks) in self.acks.take(true) {
                parts.push(ShareFetchPart { partition: partition(index), acks });
                ranges.push((partition(index), Vec::new()));
            }
            if parts.is_empty() && turn.random.percent(3) {
                parts.push(ShareFetchPart { partition: partition(0), acks: Vec::new() });
                ranges.push((partition(0), self.ranges(turn)));
            }
        }
        let wait_max_ms = turn.random.pick(&[0, 100, 500, 5_000]);
        let fetch = ShareFetch {
            connection: UNKNOWN,
            group: Arc::clone(&self.group),
            member: Arc::from(""),
            epoch: self.epoch,
            wait_max_ms,
            bytes_min: turn.random.pick(&[0, 1, 1, 200]),
            bytes_max: turn.random.pick(&[100, 2_000, 1 << 20]),
            records_max: turn.random.pick(&[1, 3, 10, 500]),
            batch_size: i32::MAX,
            strict: true,
            renew: false,
            parts,
            forgotten: Vec::new(),
            key_share: Some(KeyShareTerms {
                keys_max: turn.random.pick(&[0, 0, 2]),
                records_per_key_max: turn.random.pick(&[0, 1, 3]),
                stops_at_disconnect: true,
            }),
        };
        self.send(turn, Command::StandaloneFetch(StandaloneFetch { fetch, ranges }), Asked::Session);
    }

    fn acknowledge(&mut self, turn: &mut Turn<'_>, last: bool) {
        let parts = self.acks.take(true).into_iter().map(|(index, acks)| (partition(index), acks));
        let acks = ShareAcknowledge {
            connection: UNKNOWN,
            group: Arc::clone(&self.group),
            member: Arc::from(""),
            epoch: if last { -1 } else { self.epoch },
            renew: true,
            parts: parts.collect(),
            key_share: true,
        };
        let asked = if last { Asked::Final } else { Asked::Session };
        if last {
            self.stop_work(turn);
        }
        self.send(turn, Command::StandaloneAcknowledge(acks), asked);
    }

    fn commit(&mut self, turn: &mut Turn<'_>) {
        let wide = turn.random.percent(self.plan.wide_percent);
        let mut parts = Vec::new();
        for (index, offsets) in std::mem::take(&mut self.commits) {
            let mut ranges: Vec<(i64, i64)> = Vec::new();
            for offset in offsets {
                match ranges.last_mut() {
                    Some(last) if wide || last.1 + 1 == offset => last.1 = offset,
                    _ => ranges.push((offset, offset)),
                }
            }
            if turn.random.percent(20) {
                ranges.reverse();
            }
            parts.push((partition(index), ranges));
        }
        let commit = StandaloneCommit { connection: UNKNOWN, group: Arc::clone(&self.group), parts };
        self.send(turn, Command::StandaloneCommit(commit), Asked::Commit);
    }

    fn send(&mut self, turn: &mut Turn<'_>, command: Command, asked: Asked) {
        self.asked = Some((turn.send(&mut self.socket, command), asked));
        self.set(turn, Alarm::Timeout, TIMEOUT_US);
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        let Some((_, asked)) = self.asked.take_if(|asked| asked.0 == request) else { return };
        self.alarms[Alarm::Timeout as usize] += 1;
        match reply {
            Reply::ShareFetched(Ok(fetched)) => {
                self.epoch += 1;
                self.take(turn, &fetched);
            }
            Reply::ShareAcknowledged(Ok(_)) => {
                match asked {
                    Asked::Session => self.epoch += 1,
                    Asked::Commit => {}
                    Asked::Final => {
                        self.epoch = 0;
                        return self.set(turn, Alarm::Next, 2_000_000);
                    }
                }
                self.next(turn);
            }
            // Fenced, not known any more, or the group is used otherwise: it begins anew.
            Reply::ShareFetched(Err(_)) | Reply::ShareAcknowledged(Err(_)) => {
                self.stop_work(turn);
                self.epoch = 0;
                self.set(turn, Alarm::Next, if turn.peace { 20_000 } else { 10 * RETRY_US });
            }
            _ => {}
        }
    }

    fn take(&mut self, turn: &mut Turn<'_>, fetched: &ShareFetched<Data>) {
        let mut nothing = true;
        for part in &fetched.parts {
            let index = part.partition.index;
            for range in &part.acquired {
                nothing = false;
                let offsets = range.first.get()..=range.last.get();
                self.buffer.extend(offsets.map(|offset| Held { index, offset, delivery: range.delivery }));
            }
            for range in &part.recalled {
                let taken = range.first.get()..=range.last.get();
                self.buffer.retain(|held| held.index != index || !taken.contains(&held.offset));
            }
        }
        self.start_work(turn);
        let failed = fetched.parts.iter().any(|part| part.error.is_some());
        match nothing {
            true if failed => self.set(turn, Alarm::Next, RETRY_US),
            true => self.set(turn, Alarm::Next, 4_000),
            false => self.next(turn),
        }
    }

    /// What it held returns with its connection: it works on no more.
    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket != Some(socket) {
            return;
        }
        self.stop_work(turn);
        self.socket = None;
        self.asked = None;
        self.epoch = 0;
        self.alarms[Alarm::Timeout as usize] += 1;
        self.set(turn, Alarm::Next, if turn.peace { 20_000 } else { 5 * RETRY_US });
    }

    // ---- work ------------------------------------------------------------------------------------------------

    fn start_work(&mut self, turn: &mut Turn<'_>) {
        if self.work.is_some() {
            return;
        }
        let Some(held) = self.buffer.pop_front() else { return };
        self.say_work(turn, &held, true);
        self.work = Some(held);
        let slow = !turn.peace && turn.random.percent(self.slow_percent);
        let work_us = if slow { self.lock_us * 2 } else { self.work_us_max };
        self.set(turn, Alarm::Work, if turn.peace { 1_000 } else { work_us });
    }

    fn work_done(&mut self, turn: &mut Turn<'_>) {
        let Some(held) = self.work.take() else { return };
        self.say_work(turn, &held, false);
        let kind = match turn.random.below(100) {
            _ if turn.peace => ACCEPT,
            draw if draw < self.release_percent => RELEASE,
            draw if draw < self.release_percent + self.reject_percent => REJECT,
            _ => ACCEPT,
        };
        if kind == ACCEPT && turn.random.percent(self.plan.commit_percent) {
            self.commits.entry(held.index).or_default().insert(held.offset);
        } else {
            self.acks.put(held.index, held.offset, held.delivery, kind);
        }
        self.start_work(turn);
        self.next(turn);
    }

    fn stop_work(&mut self, turn: &mut Turn<'_>) {
        self.buffer.clear();
        self.acks.clear();
        self.commits.clear();
        self.alarms[Alarm::Work as usize] += 1;
        if let Some(held) = self.work.take() {
            self.say_work(turn, &held, false);
        }
    }

    fn say_work(&self, turn: &mut Turn<'_>, held: &Held, begins: bool) {
        turn.wishes.push(Wish::Works(Work {
            group: Arc::clone(&self.group),
            member: Arc::from(""),
            reader: self.socket,
            record: (held.index, held.offset),
            begins,
        }));
    }
}
