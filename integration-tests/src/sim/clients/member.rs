//! A member of a share group: its client's manners and its application.
//!
//! One share request is out at a time, heartbeats go over a connection of their own, and the application works off
//! one record after another whatever the broker says, as stock clients do.

pub(super) mod acks;

use std::collections::VecDeque;
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::{
    Command, DeliveryNumber, KeyShareTerms, ShareAcknowledge, ShareFetch, ShareFetchPart,
};
use coordinator::group::{GroupCommand, GroupError, GroupReply, ShareHeartbeat};
use coordinator::reply::{Reply, ShareFetched};
use coordinator::share::{ShareConfig, ShareError};
use records::ids::KeyHash;

use self::acks::{ACCEPT, Acks, REJECT, RELEASE, RENEW};
use super::{Socket, Turn, UNKNOWN, Wish, Work};
use crate::sim::content;
use crate::sim::event::RequestId;
use crate::sim::node::{TOPIC, partition};
use crate::sim::plan::{Manners, Plan};

/// Without an answer for so long beyond its wait a client takes another connection.
const TIMEOUT_US: u64 = 30_000_000;
/// Pause before the next try after an error.
const RETRY_US: u64 = 200_000;
/// franz-go and the key-share client fetch ahead while they hold no more than this.
const AHEAD_MAX: usize = 5;

/// A record in a member's hands.
#[derive(Clone, Debug)]
struct Held {
    index: i32,
    offset: i64,
    key: Option<KeyHash>,
    delivery: DeliveryNumber,
    /// Its acknowledgement will not be sent: the session that it came by is gone.
    mute: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Fetch,
    Acknowledge,
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It is about to close its session and to leave.
    Leaving,
    /// It said by heartbeat that it leaves.
    Left,
    /// Between two memberships.
    Away,
}

/// What a member asks to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Alarm {
    Beat,
    Work,
    Next,
    Join,
    Timeout,
    Renew,
}

const ALARMS: [Alarm; 6] = [Alarm::Beat, Alarm::Work, Alarm::Next, Alarm::Join, Alarm::Timeout, Alarm::Renew];

/// How its application works.
#[derive(Clone, Copy, Debug)]
struct Habits {
    work_us_max: u64,
    slow_percent: u64,
    release_percent: u64,
    reject_percent: u64,
}

/// See the module.
pub struct Member {
    manners: Manners,
    group: Arc<str>,
    config: Arc<ShareConfig>,
    partitions: i32,
    habits: Habits,
    stops_at_disconnect: bool,
    place: usize,
    lives: u32,
    name: Arc<str>,
    state: State,
    heart: Option<Socket>,
    beat: Option<RequestId>,
    member_epoch: i32,
    data: Option<Socket>,
    session_epoch: i32,
    /// Its session is opened again only when the application has nothing in hands.
    opens_when_idle: bool,
    asked: Option<(RequestId, Asked)>,
    buffer: VecDeque<Held>,
    work: Option<Held>,
    acks: Acks,
    alarms: [u64; ALARMS.len()],
}

impl Member {
    /// The `place`-th member of a group.
    #[must_use]
    pub fn new(
        place: usize,
        manners: Manners,
        group: &Arc<str>,
        config: &Arc<ShareConfig>,
        plan: &Plan,
    ) -> Self {
        Self {
            manners,
            group: Arc::clone(group),
            config: Arc::clone(config),
            partitions: plan.partitions,
            habits: Habits {
                work_us_max: plan.work_us_max,
                slow_percent: plan.slow_percent,
                release_percent: plan.release_percent,
                reject_percent: plan.reject_percent,
            },
            stops_at_disconnect: place.is_multiple_of(2),
            place,
            lives: 0,
            name: Arc::from(""),
            state: State::Away,
            heart: None,
            beat: None,
            member_epoch: 0,
            data: None,
            session_epoch: 0,
            opens_when_idle: false,
            asked: None,
            buffer: VecDeque::new(),
            work: None,
            acks: Acks::default(),
            alarms: [0; ALARMS.len()],
        }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        self.set(turn, Alarm::Join, 200_000);
    }

    /// It is told to leave in order.
    pub fn leave(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::Running {
            return;
        }
        self.state = State::Leaving;
        self.stop_work(turn);
        if self.manners == Manners::Rdkafka {
            self.say_leave(turn);
        }
        self.next(turn);
    }

    /// Its process is gone, with all that it held.
    pub fn die(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::Away {
            return;
        }
        turn.wishes.push(Wish::Note(format!("{} dies", self.name)));
        let after = turn.random.pick(&[1_000_000, 10_000_000, 60_000_000]);
        self.go_away(turn, after);
    }

    /// Nothing goes wrong any more: whoever is away comes back.
    pub fn hears_of_peace(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::Away {
            self.set(turn, Alarm::Join, 1_000);
        }
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        let kinds = ALARMS.len() as u64;
        let place = usize::try_from(token % kinds).expect("below the number of alarms");
        if self.alarms[place] != token / kinds {
            return;
        }
        match ALARMS[place] {
            Alarm::Beat => self.send_beat(turn),
            Alarm::Work => self.work_done(turn),
            Alarm::Next => self.next(turn),
            Alarm::Join => self.join(turn),
            Alarm::Timeout => {
                if let Some(socket) = self.data
                    && self.asked.is_some()
                {
                    turn.close(socket);
                    self.loses(turn, socket);
                }
            }
            Alarm::Renew => {
                if let Some(held) = self.work.as_ref().filter(|held| !held.mute) {
                    self.acks.put(held.index, held.offset, held.delivery, RENEW);
                    self.next(turn);
                }
            }
        }
    }

    /// Sets an alarm; an older one of its kind is void.
    fn set(&mut self, turn: &mut Turn<'_>, alarm: Alarm, wait_us: u64) {
        let generation = &mut self.alarms[alarm as usize];
        *generation += 1;
        let token = *generation * ALARMS.len() as u64 + alarm as u64;
        turn.wake(wait_us, token);
    }

    // ---- membership ------------------------------------------------------------------------------------------

    fn join(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::Away {
            return;
        }
        if self.lives == 0 || turn.random.percent(70) {
            self.lives += 1;
            self.name = Arc::from(format!("{}.m{}.{}", self.group, self.place, self.lives));
        }
        self.state = State::Running;
        self.member_epoch = 0;
        self.session_epoch = 0;
        self.opens_when_idle = false;
        self.send_beat(turn);
        self.set(turn, Alarm::Next, 20_000);
    }

    fn send_beat(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.state, State::Running | State::Leaving) {
            return;
        }
        let interval_us = u64::try_from(self.config.heartbeat_interval_ms).unwrap_or(0) * 1_000;
        if self.beat.is_none() {
            let epoch = self.member_epoch;
            self.heartbeat(turn, epoch);
        }
        self.alarms[Alarm::Beat as usize] += 1;
        let token = self.alarms[Alarm::Beat as usize] * ALARMS.len() as u64 + Alarm::Beat as u64;
        turn.wake_in(interval_us, token);
    }

    fn heartbeat(&mut self, turn: &mut Turn<'_>, epoch: i32) {
        let beat = ShareHeartbeat {
            group: Arc::clone(&self.group),
            member: Arc::clone(&self.name),
            epoch,
            rack: None,
            topics: (epoch == 0).then(|| vec![Arc::from(TOPIC)]),
            client_id: Arc::from("sim"),
            client_host: Arc::from("/127.0.0.1"),
        };
        self.beat = Some(turn.send(&mut self.heart, Command::Group(GroupCommand::ShareHeartbeat(beat))));
    }

    fn say_leave(&mut self, turn: &mut Turn<'_>) {
        self.state = State::Left;
        self.heartbeat(turn, -1);
    }

    fn go_away(&mut self, turn: &mut Turn<'_>, back_us: u64) {
        self.stop_work(turn);
        for socket in self.heart.take().into_iter().chain(self.data.take()) {
            turn.close(socket);
        }
        self.state = State::Away;
        self.beat = None;
        self.asked = None;
        self.acks.clear();
        self.set(turn, Alarm::Join, if turn.peace { 1_000 } else { back_us });
    }

    // ---- requests --------------------------------------------------------------------------------------------

    /// Sends what is to be sent now, if anything.
    fn next(&mut self, turn: &mut Turn<'_>) {
        if self.asked.is_some() || self.state == State::Away {
            return;
        }
        if self.state != State::Running {
            return self.close_session(turn);
        }
        let idle = self.buffer.is_empty() && self.work.is_none();
        if self.session_epoch == 0 {
            if idle || !self.opens_when_idle {
                self.fetch(turn);
            }
            return;
        }
        let acknowledges = match self.manners {
            Manners::JavaCommit => !self.acks.is_empty(),
            Manners::Franz | Manners::KeyShare => !self.acks.is_empty() && turn.random.percent(70),
            Manners::JavaPoll | Manners::Rdkafka => false,
        };
        if acknowledges || self.acks.has_renewals() {
            return self.acknowledge(turn, false);
        }
        let fetches = match self.manners {
            Manners::JavaPoll | Manners::Rdkafka => idle,
            Manners::JavaCommit => idle || (self.buffer.is_empty() && turn.random.percent(20)),
            Manners::Franz | Manners::KeyShare => self.buffer.len() <= AHEAD_MAX,
        };
        if fetches {
            self.fetch(turn);
        }
    }

    fn fetch(&mut self, turn: &mut Turn<'_>) {
        let opens = self.session_epoch == 0;
        let numbered = self.manners == Manners::KeyShare;
        let mut parts: Vec<ShareFetchPart> = Vec::new();
        if opens {
            let all = (0..self.partitions).map(partition);
            parts.extend(all.map(|partition| ShareFetchPart { partition, acks: Vec::new() }));
            self.opens_when_idle = false;
        } else {
            let acks = self.acks.take(numbered).into_iter();
            parts.extend(acks.map(|(index, acks)| ShareFetchPart { partition: partition(index), acks }));
        }
        let wait_max_ms = turn.random.pick(&[0, 100, 500, 5_000]);
        let fetch = ShareFetch {
            connection: UNKNOWN,
            group: Arc::clone(&self.group),
            member: Arc::clone(&self.name),
            epoch: self.session_epoch,
            wait_max_ms,
            bytes_min: turn.random.pick(&[0, 1, 1, 200]),
            bytes_max: turn.random.pick(&[100, 2_000, 1 << 20]),
            records_max: turn.random.pick(&[1, 3, 10, 500]),
            batch_size: turn.random.pick(&[1, 500]),
            strict: turn.random.percent(50),
            renew: false,
            parts,
            forgotten: Vec::new(),
            key_share: numbered.then(|| KeyShareTerms {
                keys_max: turn.random.pick(&[0, 0, 2]),
                records_per_key_max: turn.random.pick(&[0, 1, 3]),
                stops_at_disconnect: self.stops_at_disconnect,
            }),
        };
        self.asked = Some((turn.send(&mut self.data, Command::ShareFetch(fetch)), Asked::Fetch));
        let wait_us = u64::try_from(wait_max_ms).unwrap_or(0) * 1_000;
        self.set(turn, Alarm::Timeout, wait_us + 2 * TIMEOUT_US);
    }

    fn acknowledge(&mut self, turn: &mut Turn<'_>, last: bool) {
        let numbered = self.manners == Manners::KeyShare;
        let renew = self.acks.has_renewals();
        let parts = self.acks.take(numbered).into_iter().map(|(index, acks)| (partition(index), acks));
        let acks = ShareAcknowledge {
            connection: UNKNOWN,
            group: Arc::clone(&self.group),
            member: Arc::clone(&self.name),
            epoch: if last { -1 } else { self.session_epoch },
            renew,
            parts: parts.collect(),
            key_share: numbered,
        };
        let what = if last { Asked::Final } else { Asked::Acknowledge };
        self.asked = Some((turn.send(&mut self.data, Command::ShareAcknowledge(acks)), what));
        self.set(turn, Alarm::Timeout, 2 * TIMEOUT_US);
    }

    fn close_session(&mut self, turn: &mut Turn<'_>) {
        if self.session_epoch > 0 {
            return self.acknowledge(turn, true);
        }
        if self.state == State::Leaving {
            self.say_leave(turn);
        } else if self.beat.is_none() {
            let after = turn.random.pick(&[500_000, 5_000_000]);
            self.go_away(turn, after);
        }
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        if self.beat == Some(request) {
            self.beat = None;
            return self.beat_answered(turn, &reply);
        }
        let Some((_, asked)) = self.asked.filter(|asked| asked.0 == request) else { return };
        self.asked = None;
        self.alarms[Alarm::Timeout as usize] += 1;
        match reply {
            Reply::ShareFetched(Ok(fetched)) => {
                self.session_epoch += 1;
                self.take(turn, &fetched);
            }
            Reply::ShareAcknowledged(Ok(_)) if asked == Asked::Final => {
                self.session_epoch = 0;
                self.next(turn);
            }
            Reply::ShareAcknowledged(Ok(_)) => {
                self.session_epoch += 1;
                self.next(turn);
            }
            Reply::ShareFetched(Err(error)) | Reply::ShareAcknowledged(Err(error)) => {
                if matches!(error, ShareError::SessionNotFound | ShareError::InvalidSessionEpoch) {
                    self.session_epoch = 0;
                    if !matches!(self.manners, Manners::JavaPoll | Manners::JavaCommit)
                        || self.opens_when_idle
                    {
                        self.mute();
                    }
                }
                self.set(turn, Alarm::Next, if turn.peace { 20_000 } else { RETRY_US });
            }
            _ => {}
        }
    }

    fn beat_answered(&mut self, turn: &mut Turn<'_>, reply: &Reply<Data>) {
        let Reply::Group(GroupReply::ShareHeartbeat(answer)) = reply else { return };
        match answer {
            Ok(answer) if self.state != State::Left => self.member_epoch = answer.epoch,
            Err(GroupError::UnknownMember | GroupError::FencedMemberEpoch) if self.state != State::Left => {
                self.member_epoch = 0;
                self.set(turn, Alarm::Beat, 10_000);
            }
            _ => {}
        }
        if self.state == State::Left {
            // librdkafka closes its session a little after it has left.
            self.set(turn, Alarm::Next, 400_000);
        }
    }

    fn take(&mut self, turn: &mut Turn<'_>, fetched: &ShareFetched<Data>) {
        let mut nothing = true;
        for part in &fetched.parts {
            if self.state != State::Running {
                break;
            }
            nothing &= part.acquired.is_empty();
            let data = part.data.as_ref().and_then(|data| content::bytes(data).ok()).unwrap_or_default();
            let batches = content::batches(&data).unwrap_or_default();
            let index = part.partition.index;
            for range in &part.acquired {
                for offset in range.first.get()..=range.last.get() {
                    let record = batches
                        .iter()
                        .flat_map(|batch| &batch.records)
                        .find(|record| record.offset == offset);
                    let key = record.and_then(|record| record.key);
                    let delivery = range.delivery;
                    self.buffer.push_back(Held { index, offset, key, delivery, mute: false });
                }
            }
            // What the broker took back is dropped unworked; a work under way goes on, its word will be refused.
            for range in &part.recalled {
                let taken = range.first.get()..=range.last.get();
                self.buffer.retain(|held| held.index != index || !taken.contains(&held.offset));
            }
        }
        self.start_work(turn);
        let failed = fetched.parts.iter().any(|part| part.error.is_some());
        if nothing && failed {
            self.set(turn, Alarm::Next, RETRY_US);
        } else if nothing {
            self.set(turn, Alarm::Next, 4_000);
        } else {
            self.next(turn);
        }
    }

    // ---- losses ----------------------------------------------------------------------------------------------

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.heart == Some(socket) {
            self.heart = None;
            self.beat = None;
            match self.state {
                State::Running | State::Leaving => self.set(turn, Alarm::Beat, 100_000),
                // Nobody waits for the word on a leave.
                State::Left => self.set(turn, Alarm::Next, 100_000),
                State::Away => {}
            }
        }
        if self.data != Some(socket) {
            return;
        }
        self.data = None;
        let fetch_out = self.asked.is_some_and(|asked| asked.1 == Asked::Fetch);
        self.asked = None;
        self.alarms[Alarm::Timeout as usize] += 1;
        if self.state != State::Running {
            self.session_epoch = 0;
            return self.set(turn, Alarm::Next, 100_000);
        }
        self.opens_when_idle = !fetch_out;
        match self.manners {
            Manners::JavaPoll | Manners::JavaCommit if fetch_out => self.session_epoch = 0,
            // A commit goes out with the old epoch; where that is refused, so is all that the buffer would say.
            Manners::JavaCommit if turn.random.percent(50) => {}
            Manners::KeyShare if self.stops_at_disconnect => {
                self.stop_work(turn);
                self.acks.clear();
                self.session_epoch = 0;
            }
            Manners::KeyShare if fetch_out => self.session_epoch = 0,
            Manners::JavaPoll
            | Manners::JavaCommit
            | Manners::Franz
            | Manners::Rdkafka
            | Manners::KeyShare => {
                self.mute();
                self.session_epoch = 0;
            }
        }
        self.set(turn, Alarm::Next, 250_000);
    }

    /// What it holds will not be acknowledged any more.
    fn mute(&mut self) {
        self.acks.clear();
        self.buffer.iter_mut().chain(&mut self.work).for_each(|held| held.mute = true);
    }

    // ---- work ------------------------------------------------------------------------------------------------

    fn start_work(&mut self, turn: &mut Turn<'_>) {
        if self.work.is_some() {
            return;
        }
        let Some(held) = self.buffer.pop_front() else { return };
        self.say_work(turn, &held, true);
        self.work = Some(held);
        let lock_us = u64::try_from(self.config.lock_ms).unwrap_or(0) * 1_000;
        let slow = !turn.peace && turn.random.percent(self.habits.slow_percent);
        let work_us = if slow { lock_us * 2 } else { self.habits.work_us_max };
        self.set(turn, Alarm::Work, if turn.peace { 1_000 } else { work_us });
        let renews = matches!(self.manners, Manners::JavaCommit | Manners::KeyShare);
        if slow && renews && turn.random.percent(50) {
            self.set(turn, Alarm::Renew, lock_us * 3 / 4);
        }
    }

    fn work_done(&mut self, turn: &mut Turn<'_>) {
        let Some(held) = self.work.take() else { return };
        self.alarms[Alarm::Renew as usize] += 1;
        self.say_work(turn, &held, false);
        if !held.mute {
            let (release, reject) = (self.habits.release_percent, self.habits.reject_percent);
            let kind = match turn.random.below(100) {
                _ if turn.peace => ACCEPT,
                draw if draw < release => RELEASE,
                draw if draw < release + reject => REJECT,
                _ => ACCEPT,
            };
            self.acks.put(held.index, held.offset, held.delivery, kind);
            if kind == RELEASE && self.manners == Manners::KeyShare && held.key.is_some() {
                // The broker takes the rest of the key back.
                self.buffer.retain(|later| later.key != held.key || later.index != held.index);
            }
        }
        self.start_work(turn);
        self.next(turn);
    }

    fn stop_work(&mut self, turn: &mut Turn<'_>) {
        self.buffer.clear();
        if let Some(held) = self.work.take() {
            self.alarms[Alarm::Work as usize] += 1;
            self.alarms[Alarm::Renew as usize] += 1;
            self.say_work(turn, &held, false);
        }
    }

    fn say_work(&self, turn: &mut Turn<'_>, held: &Held, begins: bool) {
        turn.wishes.push(Wish::Works(Work {
            group: Arc::clone(&self.group),
            member: Arc::clone(&self.name),
            reader: None,
            record: (held.index, held.offset),
            begins,
        }));
    }
}
