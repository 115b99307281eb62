//! Facts: connections and members come and go, answers are written or lost, logs and settings change, time passes.

use std::collections::BTreeSet;
use std::sync::Arc;

use records::ids::PartitionId;

use super::standalone::is_reader;
use super::{LeftBy, Part, ShareMachine, Timer};
use crate::command::{ConnectionId, Fact, Ticket};
use crate::io::Slice;
use crate::outbox::{LogTable, Outbox};
use crate::reply::Effect;
use crate::share::member::{AfterLoss, LEFT_SESSION_MAX, Loss, Member};
use crate::share::{ShareConfig, ShareOrder};
use crate::time::Now;

impl<S: Slice> ShareMachine<S> {
    /// Takes a fact; those that do not concern share groups change nothing.
    pub fn fact(&mut self, now: Now, fact: &Fact, _logs: &LogTable, out: &mut Outbox<S>) {
        self.started.get_or_insert(now.mono);
        match fact {
            Fact::ShareConfigured(group, config) => self.configure(group, config, out),
            Fact::AnswerWritten(ticket) => {
                self.answer_left(now, *ticket, true);
            }
            Fact::AnswerLost(ticket) => self.answer_lost(now, *ticket),
            Fact::ConnectionClosed(connection) => self.connection_closed(now, *connection),
            Fact::MemberSeen { connection, group, member } => {
                let group = self.group_number(group);
                let member = self.member_number(group, member);
                self.member_mut(member).seen(*connection);
                self.speaks_for(*connection, member);
            }
            Fact::GiveWay(ticket) => {
                if let Some(&ask) = self.ask_of.get(ticket) {
                    self.impatient(ask);
                }
            }
            Fact::Stopping => {
                self.stopping = true;
                for ask in self.asks.keys().copied().collect::<Vec<_>>() {
                    self.impatient(ask);
                }
            }
            Fact::PartitionDeleted(partition) => {
                for part in self.parts_of(*partition) {
                    self.drop_part(now, part, out);
                }
            }
            Fact::LogStartMoved(partition, at) => {
                for part in self.parts_of(*partition) {
                    if let Some(open) = self.open_part(part) {
                        open.log_started(at.get());
                    }
                    self.dirty.insert(part);
                }
            }
            Fact::Topics(topics) => self.topics_changed(topics),
            Fact::PartitionOpened { .. } => self.retry_dead_letters(),
            Fact::UncleanStop => {}
        }
    }

    /// A log has grown, or more of it is stable.
    pub fn log_grew(&mut self, _now: Now, partition: PartitionId, _logs: &LogTable, _out: &mut Outbox<S>) {
        self.dirty.extend(self.parts_of(partition));
    }

    /// A member left its group.
    pub fn member_left(&mut self, now: Now, group: &str, member: &str, how: LeftBy) {
        let Some(number) = self.find_member(group, member) else { return };
        match how {
            LeftBy::SessionTimeout => self.end_session(now, number),
            LeftBy::Heartbeat => {
                let order = self.group(self.members[&number].group).config.order;
                self.give_way_to_own(number, None);
                if order == ShareOrder::Key && self.members[&number].session.is_none() {
                    return self.end_session(now, number);
                }
                let until = now.mono + LEFT_SESSION_MAX;
                self.member_mut(number).left_until = Some(until);
                if order == ShareOrder::Key {
                    self.timers.set(Timer::Left(number), Some(until));
                }
            }
        }
    }

    /// These members of the group are alive.
    pub fn members(&mut self, group: &Arc<str>, live: BTreeSet<Arc<str>>) {
        let number = match self.group_numbers.get(group) {
            Some(&number) => number,
            None if live.is_empty() => return,
            None => self.group_number(group),
        };
        self.vacant.insert(number);
        for name in &live {
            if let Some(&member) = self.member_numbers.get(&(number, Arc::clone(name)))
                && self.member_mut(member).left_until.take().is_some()
            {
                self.timers.set(Timer::Left(member), None);
            }
        }
        let Some(state) = self.groups.get_mut(&number) else { return };
        state.live = Some(live);
        // Shares are larger or smaller now: what was withheld may go out.
        self.dirty.extend(state.parts.iter().copied());
    }

    fn configure(&mut self, group: &Arc<str>, config: &Arc<ShareConfig>, out: &mut Outbox<S>) {
        if **config == *self.limits.config {
            self.configs.remove(group);
        } else {
            self.configs.insert(Arc::clone(group), Arc::clone(config));
        }
        let Some(&number) = self.group_numbers.get(group) else { return };
        let Some(state) = self.groups.get_mut(&number) else { return };
        let keyed = config.order == ShareOrder::Key && state.config.order != ShareOrder::Key;
        state.config = Arc::clone(config);
        let parts = state.parts.clone();
        // A fetch that waits goes by the limit as it is when there is something for it.
        for ask in self.asks.values_mut().filter(|ask| ask.group == number && !ask.numbered) {
            ask.per_key_max = config.key_inflight_max as usize;
        }
        for part in parts {
            if keyed && let Some(part) = self.parts.get(&part) {
                out.effect(Effect::IndexKeys(part.id));
            }
            if let Some(open) = self.open_part(part) {
                open.configure(Arc::clone(config));
            }
            // Perhaps to another dead-letter topic.
            self.timers.set(Timer::Letters(part), None);
            self.dirty.insert(part);
        }
    }

    /// Nobody will see this answer, whether it went out, waits for the disk, or is not made yet.
    fn answer_lost(&mut self, now: Now, ticket: Ticket) {
        let parked =
            self.ask_of.get(&ticket).copied().and_then(|ask| self.forget_ask(ask)).map(|ask| ask.member);
        let held = self.drop_answers(now, |answer| answer.ticket == ticket);
        let sent = self.answer_left(now, ticket, false).map(|unwritten| unwritten.member);
        for member in parked.into_iter().chain(held).chain(sent) {
            if let Some(member) = self.members.get_mut(&member) {
                member.loss = Some(Loss::FetchOut);
            }
        }
    }

    pub(super) fn parts_of(&self, partition: PartitionId) -> Vec<u32> {
        self.part_numbers.range((partition, 0)..=(partition, u32::MAX)).map(|(_, &number)| number).collect()
    }

    pub(super) fn speaks_for(&mut self, connection: ConnectionId, member: u32) {
        self.spoken_for.entry(connection).or_default().insert(member);
        self.timers.set(Timer::Grace(member), None);
    }

    fn connection_closed(&mut self, now: Now, connection: ConnectionId) {
        let mut fetching: BTreeSet<u32> = BTreeSet::new();
        self.forget_fenced(connection);
        let members = self.spoken_for.remove(&connection).unwrap_or_default();
        for &member in &members {
            for number in self.member_mut(member).asks.clone() {
                if self.asks.get(&number).is_some_and(|ask| ask.connection == connection) {
                    self.forget_ask(number);
                    fetching.insert(member);
                }
            }
        }
        fetching.extend(self.drop_answers(now, |answer| answer.connection == connection));
        let unwritten: Vec<_> = self
            .unwritten
            .iter()
            .filter(|(_, unwritten)| unwritten.connection == connection)
            .map(|(&ticket, _)| ticket)
            .collect();
        for ticket in unwritten {
            fetching.extend(self.answer_left(now, ticket, false).map(|unwritten| unwritten.member));
        }
        // It is the broker that goes, and no lease ends with it: after its start each stands as if lost just then (O4).
        if self.stopping {
            return;
        }
        for member in members {
            self.fading.insert(member);
            let config = self.config(self.members[&member].group);
            let after =
                self.member_mut(member).lost(connection, fetching.contains(&member), &config, now.mono);
            let after = if is_reader(&self.members[&member].name) { AfterLoss::Ends } else { after };
            match after {
                AfterLoss::Ends => self.end_session(now, member),
                AfterLoss::EndsAt(at) => self.timers.set(Timer::Grace(member), Some(at)),
                AfterLoss::Stays => {}
            }
        }
    }

    pub(super) fn due(&mut self, now: Now, timer: Timer, out: &mut Outbox<S>) {
        match timer {
            Timer::Ask(ask) => self.impatient(ask),
            Timer::Part(part) => {
                if let Some(open) = self.open_part(part) {
                    open.expire(now);
                }
                self.dirty.insert(part);
            }
            Timer::Sync(part) => self.sync(part, out),
            Timer::Reload(part) => self.reload_due(part, out),
            // Looked at the end of the round.
            Timer::Letters(part) | Timer::ReadOn(part) | Timer::Watch(part) => {
                self.dirty.insert(part);
            }
            Timer::Grace(member) => {
                if self.members.get(&member).is_some_and(|member| member.connections.is_empty()) {
                    self.end_session(now, member);
                }
            }
            Timer::Left(member) => {
                if self.members.get(&member).is_some_and(|member| member.left_until.is_some()) {
                    self.end_session(now, member);
                }
            }
            Timer::Unwritten(ticket) => self.answer_overdue(ticket, out),
        }
    }

    /// Forgets members of which nothing is left. One that has lost its connections is known until its grace is over,
    /// whatever it holds: a share-partition that is loaded later may show it as a holder.
    pub(super) fn forget_members(&mut self) {
        let fading = std::mem::take(&mut self.fading);
        let idle = fading.into_iter().filter(|number| {
            !self.timers.is_set(Timer::Grace(*number))
                && self
                    .members
                    .get(number)
                    .is_some_and(|member| member.is_idle() && !self.holds_anything(member))
        });
        for number in idle.collect::<Vec<_>>() {
            if let Some(member) = self.members.remove(&number) {
                self.member_numbers.remove(&(member.group, member.name));
                self.vacant.insert(member.group);
                self.timers.set(Timer::Grace(number), None);
                self.timers.set(Timer::Left(number), None);
            }
        }
    }

    /// Forgets groups that have neither members nor share-partitions, nor any request under way. Their settings stay.
    pub(super) fn forget_groups(&mut self) {
        for number in std::mem::take(&mut self.vacant) {
            let Some(group) = self.groups.get(&number) else { continue };
            let nobody: Arc<str> = Arc::from("");
            let members = self.member_numbers.range((number, nobody)..).next();
            if group.is_shown()
                || members.is_some_and(|(key, _)| key.0 == number)
                || self.answers.values().any(|answer| answer.group == number)
            {
                continue;
            }
            self.group_numbers.remove(&group.name);
            self.groups.remove(&number);
        }
    }

    fn holds_anything(&self, member: &Member) -> bool {
        self.group(member.group)
            .parts
            .iter()
            .filter_map(|part| self.parts.get(part).and_then(Part::open))
            .any(|open| open.holds_since(&member.name).is_some())
    }
}
