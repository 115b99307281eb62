//! ShareFetch and ShareAcknowledge: sessions, acknowledgements, and the ask that a fetch becomes.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::PartitionId;

use super::standalone::is_reader;
use super::{Ask, PartState, Patience, ShareMachine};
use crate::command::{AckRange, ConnectionId, ShareAcknowledge, ShareFetch, Ticket};
use crate::io::Slice;
use crate::outbox::{LogTable, Outbox};
use crate::plan::budget::Budget;
use crate::reply::Reply;
use crate::share::acknowledge::{Acknowledged, Terms};
use crate::share::member::Loss;
use crate::share::session::{FINAL_EPOCH, INITIAL_EPOCH, Session};
use crate::share::{ShareError, ShareOrder};
use crate::time::{Micros, Mono, Now};

/// Records of one key that a key-share client has in flight where it names no number.
const RECORDS_PER_KEY: u32 = 16;
/// A fetch that is to be answered at once waits for disk work under way, but no longer than this.
const LOOK_MAX: Micros = Micros(50_000);
/// Bounds of how long a member that holds records is parked: a quarter of the age of what it holds.
const PARK_MIN: Micros = Micros(2_000);
const PARK_MAX: Micros = Micros(50_000);

impl<S: Slice> ShareMachine<S> {
    pub(super) fn fetch(
        &mut self,
        now: Now,
        ticket: Ticket,
        fetch: &ShareFetch,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let may = self.check_member(&fetch.group, &fetch.member);
        if let Err(error) = may.and_then(|()| self.try_fetch(now, ticket, fetch, logs, out)) {
            out.reply(ticket, Reply::ShareFetched(Err(error)));
        }
    }

    pub(super) fn try_fetch(
        &mut self,
        now: Now,
        ticket: Ticket,
        fetch: &ShareFetch,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) -> Result<(), ShareError> {
        // A renewal is no fetch (KIP-1222): with anything to fetch it is refused, before the epoch counts. The batch
        // size may be any.
        let asks_nothing = [fetch.wait_max_ms, fetch.bytes_min, fetch.bytes_max, fetch.records_max] == [0; 4];
        if fetch.renew && !asks_nothing {
            return Err(ShareError::InvalidRequest);
        }
        let acknowledges = fetch.parts.iter().any(|part| !part.acks.is_empty());
        let (group, member) = if fetch.epoch == INITIAL_EPOCH {
            if acknowledges {
                return Err(ShareError::InvalidRequest);
            }
            let stops = fetch.key_share.is_some_and(|terms| terms.stops_at_disconnect);
            self.open_session(now, &fetch.group, &fetch.member, fetch.connection, stops)?
        } else {
            self.step_session(&fetch.group, &fetch.member, fetch.epoch, fetch.connection)?
        };
        if let Some(terms) = fetch.key_share {
            self.member_mut(member).stops_at_disconnect = terms.stops_at_disconnect;
        }
        self.give_way_to_own(member, Some(fetch.connection));
        let terms = Terms { renew: fetch.renew, numbered: fetch.key_share.is_some() };
        let acks: Vec<(PartitionId, &[AckRange])> = fetch
            .parts
            .iter()
            .filter(|part| !part.acks.is_empty())
            .map(|part| (part.partition, &part.acks[..]))
            .collect();
        let acked = self.apply_acks(now, group, member, &acks, terms);

        if fetch.epoch == FINAL_EPOCH {
            self.end_session(now, member);
        } else {
            self.update_session(member, group, fetch);
        }
        let mut parts = Vec::new();
        if fetch.epoch == FINAL_EPOCH || fetch.renew {
            parts.extend(acks.iter().map(|(partition, _)| (*partition, None)));
        } else {
            let named = self
                .member_mut(member)
                .session
                .as_ref()
                .map_or(Vec::new(), |session| session.parts().to_vec());
            for partition in named {
                let number = logs.contains_key(&partition).then(|| self.part_number(group, partition, out));
                parts.push((partition, number));
            }
            // What is acknowledged and forgotten in one request is answered too.
            parts.extend(
                acks.iter()
                    .filter(|(id, _)| parts.iter().all(|(named, _)| named != id))
                    .map(|(id, _)| (*id, None))
                    .collect::<Vec<_>>(),
            );
        }
        self.ask(now, ticket, fetch, group, member, parts, acked);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn ask(
        &mut self,
        now: Now,
        ticket: Ticket,
        fetch: &ShareFetch,
        group: u32,
        member: u32,
        parts: Vec<(PartitionId, Option<u32>)>,
        acked: BTreeMap<PartitionId, Acknowledged>,
    ) {
        let config = self.config(group);
        let keys_max = fetch.key_share.map_or(0, |terms| terms.keys_max);
        let mut budget =
            Budget::new(fetch.records_max.min(self.limits.records_max), fetch.bytes_max, keys_max);
        // A reader of ranges of its own takes from nobody.
        let shares = !is_reader(&fetch.member);
        if config.order == ShareOrder::Key && config.hold_target_ms > 0 && shares {
            let hold = Micros::from_ms(config.hold_target_ms.min(config.lock_ms / 2));
            let held = parts
                .iter()
                .filter_map(|(_, part)| *part)
                .map(|part| self.keyed_records_held(part, member))
                .sum();
            budget.hold_at_most(self.member_mut(member).speed.records_max(hold).saturating_sub(held));
        }
        let per_key_max = match fetch.key_share {
            Some(terms) if terms.records_per_key_max > 0 => terms.records_per_key_max,
            Some(_) => RECORDS_PER_KEY,
            None => config.key_inflight_max,
        };
        let has_error =
            parts.iter().any(|(partition, part)| part.is_none() && !acked.contains_key(partition));
        let left = self.member_mut(member).left_until.is_some();
        let wait = Micros::from_ms(i64::from(fetch.wait_max_ms));
        let patience = if self.stopping || left || parts.is_empty() || budget.is_spent() || has_error {
            Patience::Over
        } else if !acked.is_empty() || wait == Micros::ZERO {
            Patience::Look(now.mono + LOOK_MAX)
        } else {
            Patience::Until(
                now.mono + self.park(member, &parts, now.mono).map_or(wait, |park| park.min(wait)),
            )
        };
        let number = self.next_number();
        if !left {
            let name = Arc::clone(&self.member_mut(member).name);
            for part in parts.iter().filter_map(|(_, part)| *part) {
                if let Some(part) = self.parts.get_mut(&part) {
                    part.asks.insert(number);
                    part.interested.insert(member);
                    // More of what it holds may be ready for it by that alone.
                    if let Some(open) = part.open_mut() {
                        open.keys_held(&name, per_key_max as usize);
                    }
                }
                self.dirty.insert(part);
            }
        }
        self.member_mut(member).asks.insert(number);
        self.ask_of.insert(ticket, number);
        self.unsettled_asks.insert(number);
        let ask = Ask {
            ticket,
            connection: fetch.connection,
            group,
            member,
            parts,
            budget,
            bytes_min: fetch.bytes_min,
            batch_size: fetch.batch_size,
            strict: fetch.strict,
            numbered: fetch.key_share.is_some(),
            per_key_max: per_key_max as usize,
            initial: fetch.epoch == INITIAL_EPOCH,
            acked,
            grants: BTreeMap::new(),
            since: now.mono,
            patience,
            withdrawn: false,
        };
        self.asks.insert(number, ask);
    }

    /// How long a member that holds records may be parked: its client sends no acknowledgement while a fetch is out.
    fn park(&self, member: u32, parts: &[(PartitionId, Option<u32>)], now: Mono) -> Option<Micros> {
        let name = &self.members.get(&member)?.name;
        let oldest = parts
            .iter()
            .filter_map(|(_, part)| self.parts.get(&(*part)?)?.open())
            .filter_map(|partition| partition.holds_since(name))
            .min()?;
        Some(Micros((now - oldest).0 / 4).clamp(PARK_MIN, PARK_MAX))
    }

    fn keyed_records_held(&self, part: u32, member: u32) -> usize {
        let Some(member) = self.members.get(&member) else { return 0 };
        let partition = self.parts.get(&part).and_then(super::Part::open);
        partition.map_or(0, |partition| partition.keyed_records_held(&member.name))
    }

    pub(super) fn acknowledge(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: &ShareAcknowledge,
        out: &mut Outbox<S>,
    ) {
        let stepped = if request.epoch == INITIAL_EPOCH {
            Err(ShareError::InvalidSessionEpoch)
        } else {
            self.step_session(&request.group, &request.member, request.epoch, request.connection)
        };
        let (group, member) = match stepped {
            Ok(found) => found,
            Err(error) => return out.reply(ticket, Reply::ShareAcknowledged(Err(error))),
        };
        self.give_way_to_own(member, Some(request.connection));
        let terms = Terms { renew: request.renew, numbered: request.key_share };
        let acks: Vec<(PartitionId, &[AckRange])> =
            request.parts.iter().map(|(partition, ranges)| (*partition, &ranges[..])).collect();
        let mut acked = self.apply_acks(now, group, member, &acks, terms);
        if request.epoch == FINAL_EPOCH {
            self.end_session(now, member);
        }
        let parts = acks
            .iter()
            .filter_map(|(partition, _)| acked.remove(partition).map(|acked| (*partition, acked)))
            .collect();
        self.answer_acks(now, ticket, request, (group, member), parts, out);
    }

    /// Applies acknowledgements, and lets the member's speed be known.
    fn apply_acks(
        &mut self,
        now: Now,
        group: u32,
        member: u32,
        acks: &[(PartitionId, &[AckRange])],
        terms: Terms,
    ) -> BTreeMap<PartitionId, Acknowledged> {
        let name = Arc::clone(&self.member_mut(member).name);
        let (mut worked, mut since, mut answers) = (0, Mono::default(), 0);
        let mut outcomes = BTreeMap::new();
        for &(partition, ranges) in acks {
            let number = self.part_numbers.get(&(partition, group)).copied();
            let outcome =
                match number.and_then(|number| self.parts.get_mut(&number)).map(|part| &mut part.state) {
                    None => Acknowledged::failed(ShareError::UnknownPartition, ranges.len()),
                    Some(PartState::Open(open)) => open.acknowledge(now, &name, ranges, terms),
                    Some(_) => Acknowledged::failed(ShareError::Unavailable, ranges.len()),
                };
            self.dirty.extend(number);
            worked += outcome.worked;
            since = since.max(outcome.since);
            answers += outcome.answers;
            outcomes.insert(partition, outcome);
        }
        self.member_mut(member).speed.observe(now.mono, worked, since, answers);
        outcomes
    }

    // ---- sessions --------------------------------------------------------------------------------------------

    fn open_session(
        &mut self,
        now: Now,
        group: &Arc<str>,
        name: &Arc<str>,
        connection: ConnectionId,
        stops: bool,
    ) -> Result<(u32, u32), ShareError> {
        let known = self.find_member(group, name);
        let renews = known.is_some_and(|member| self.members[&member].session.is_some());
        if !renews && self.sessions >= self.limits.sessions_max {
            return Err(ShareError::SessionLimit);
        }
        let group = self.group_number(group);
        let member = self.member_number(group, name);
        // Its client has polled again since the loss, or stops its work whenever it loses a session: what it held comes
        // back, since it cannot settle it any more. Where a fetch was out its application may be at work still, so
        // everything stays.
        let over = stops || self.members[&member].loss == Some(Loss::Idle);
        if over && self.group(group).config.order == ShareOrder::Key {
            self.release_all(now, member);
        }
        self.leave_parts(member);
        self.sessions += usize::from(!renews);
        self.speaks_for(connection, member);
        let state = self.member_mut(member);
        state.heard(connection);
        state.session = Some(Session::open(connection));
        Ok((group, member))
    }

    fn step_session(
        &mut self,
        group: &Arc<str>,
        name: &Arc<str>,
        epoch: i32,
        connection: ConnectionId,
    ) -> Result<(u32, u32), ShareError> {
        let number = self.find_member(group, name).ok_or(ShareError::SessionNotFound)?;
        let member = self.member_mut(number);
        let group = member.group;
        member.session.as_mut().ok_or(ShareError::SessionNotFound)?.step(epoch, connection)?;
        member.heard(connection);
        self.speaks_for(connection, number);
        Ok((group, number))
    }

    fn update_session(&mut self, member: u32, group: u32, fetch: &ShareFetch) {
        if let Some(session) = &mut self.member_mut(member).session {
            session.update(fetch.parts.iter().map(|part| part.partition), &fetch.forgotten);
        }
        for partition in &fetch.forgotten {
            if let Some(number) = self.part_numbers.get(&(*partition, group))
                && let Some(part) = self.parts.get_mut(number)
            {
                part.interested.remove(&member);
            }
        }
    }

    /// The session is over: the member gives everything back.
    pub(super) fn end_session(&mut self, now: Now, member: u32) {
        self.release_all(now, member);
        self.leave_parts(member);
        self.fading.insert(member);
        self.forget_reader(member);
        let state = self.member_mut(member);
        state.loss = None;
        state.left_until = None;
        if state.session.take().is_some() {
            self.sessions -= 1;
        }
        self.timers.set(super::Timer::Left(member), None);
        // Known until no state that is read can take it for one that has just lost its connections.
        let adopted = self.adopted_until(self.members[&member].group, now.mono);
        self.timers.set(super::Timer::Grace(member), Some(adopted).filter(|&until| until > now.mono));
    }

    /// No share-partition reads ahead for it any more, and fetches of its that are parked are answered.
    fn leave_parts(&mut self, member: u32) {
        let group = self.members[&member].group;
        for number in self.group(group).parts.clone() {
            if let Some(part) = self.parts.get_mut(&number) {
                part.interested.remove(&member);
            }
        }
        self.give_way_to_own(member, None);
    }

    /// A newer request of the member is here: what is parked for it is answered. What is parked on another connection
    /// gets nothing more: its answer could be overtaken by one with later records of the same keys.
    pub(super) fn give_way_to_own(&mut self, member: u32, connection: Option<ConnectionId>) {
        for number in self.member_mut(member).asks.clone() {
            self.impatient(number);
            if let Some(ask) = self.asks.get_mut(&number) {
                ask.withdrawn |= connection != Some(ask.connection);
            }
        }
    }

    /// A parked fetch is to be answered in this round.
    pub(super) fn impatient(&mut self, number: u64) {
        if let Some(ask) = self.asks.get_mut(&number) {
            ask.patience = Patience::Over;
            self.unsettled_asks.insert(number);
            if ask.bytes_min > 1 {
                // It takes less than it hoped for now.
                self.dirty.extend(ask.parts.iter().filter_map(|(_, part)| *part));
            }
        }
    }

    /// Everything that the member holds in any share-partition comes back, also where its state is not in memory.
    pub(super) fn release_all(&mut self, now: Now, member: u32) {
        let member = self.member_mut(member);
        member.gave_back = true;
        let (group, name) = (member.group, Arc::clone(&member.name));
        for number in self.group(group).parts.clone() {
            if let Some(part) = self.parts.get_mut(&number) {
                part.release_member(&name, now);
                self.dirty.insert(number);
            }
        }
    }
}
