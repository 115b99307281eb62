//! Answers on their way: held until their events are appended and their data is built, then until the socket has
//! taken them.

use std::collections::BTreeSet;

use records::ids::{Offset, PartitionId};

use super::{Ask, Op, PartState, ShareMachine, Timer};
use crate::command::{ConnectionId, ShareAcknowledge, Ticket};
use crate::io::{BuildError, OpId, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::{AckOutcome, Effect, Reply, ShareAcknowledged, ShareFetched, SharePart};
use crate::share::acknowledge::Acknowledged;
use crate::share::recorder::ranges_of;
use crate::share::{ShareError, ShareOrder};
use crate::time::{Micros, Mono, Now};

/// An answer that waits for disk work.
#[derive(Debug)]
pub(super) struct Answer<S> {
    pub(super) ticket: Ticket,
    pub(super) connection: ConnectionId,
    pub(super) group: u32,
    member: u32,
    /// Of a fetch (else of acknowledgements alone).
    fetch: bool,
    numbered: bool,
    batch_size: i32,
    parts: Vec<AnswerPart<S>>,
    /// Half a lock after the grants.
    close_at: Mono,
}

/// One partition's part of an answer.
#[derive(Debug)]
struct AnswerPart<S> {
    partition: PartitionId,
    part: Option<u32>,
    error: Option<ShareError>,
    acked: Option<Acknowledged>,
    grant: Option<(u64, Vec<i64>)>,
    data: Option<S>,
    /// End of what the group may see; 0 where only acknowledgements are answered.
    high_watermark: i64,
    /// It waits for events to be appended.
    appending: bool,
    /// It waits for its data.
    building: bool,
}

/// A fetch answer that went out and is not known to be written whole.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) connection: ConnectionId,
    pub(super) member: u32,
    /// Share-partition and delivery number of each grant.
    pub(super) deliveries: Vec<(u32, u64)>,
}

impl<S: Slice> ShareMachine<S> {
    /// Makes a fetch's answer of what it was granted.
    pub(super) fn answer_fetch(&mut self, now: Now, number: u64, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(mut ask) = self.forget_ask(number) else { return };
        let config = self.config(ask.group);
        let mut parts = Vec::new();
        for &(partition, part) in &ask.parts {
            let acked = ask.acked.remove(&partition);
            let grant = part.and_then(|part| ask.grants.remove(&part));
            let is_open = part.and_then(|part| self.parts.get(&part)).map(|part| &part.state);
            let error = match is_open {
                None if acked.is_none() => Some(ShareError::UnknownPartition),
                Some(PartState::Closed | PartState::Broken(_)) => Some(ShareError::Unavailable),
                _ => None,
            };
            let untold = ask.numbered && self.has_untold(part, ask.member);
            if ask.initial || acked.is_some() || error.is_some() || grant.is_some() || untold {
                let building = grant.is_some();
                parts.push(AnswerPart {
                    partition,
                    part,
                    error,
                    acked,
                    grant,
                    data: None,
                    high_watermark: super::upper(logs, &config, partition),
                    appending: false,
                    building,
                });
            }
        }
        let close_at = now.mono + Micros::from_ms(config.lock_ms / 2);
        let answer = Answer {
            ticket: ask.ticket,
            connection: ask.connection,
            group: ask.group,
            member: ask.member,
            fetch: true,
            numbered: ask.numbered,
            batch_size: ask.batch_size,
            parts,
            close_at,
        };
        let indexes = (0..answer.parts.len()).filter(|&index| answer.parts[index].building).collect();
        let number = self.hold_answer(answer);
        self.build(number, indexes, out);
        self.try_finish(now, number, out);
    }

    fn has_untold(&self, part: Option<u32>, member: u32) -> bool {
        let open = part.and_then(|part| self.parts.get(&part)).and_then(super::Part::open);
        let name = self.members.get(&member).map(|member| &member.name);
        open.zip(name).is_some_and(|(open, name)| open.has_untold(name))
    }

    /// Makes the answer of a ShareAcknowledge.
    pub(super) fn answer_acks(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: &ShareAcknowledge,
        (group, member): (u32, u32),
        acked: Vec<(PartitionId, Acknowledged)>,
        out: &mut Outbox<S>,
    ) {
        let parts = acked
            .into_iter()
            .map(|(partition, acked)| AnswerPart {
                partition,
                part: self.part_numbers.get(&(partition, group)).copied(),
                error: None,
                acked: Some(acked),
                grant: None,
                data: None,
                high_watermark: 0,
                appending: false,
                building: false,
            })
            .collect();
        let answer = Answer {
            ticket,
            connection: request.connection,
            group,
            member,
            fetch: false,
            numbered: request.key_share,
            batch_size: 0,
            parts,
            close_at: Mono::default(),
        };
        let number = self.hold_answer(answer);
        self.try_finish(now, number, out);
    }

    /// Keeps an answer; what its parts did, and what they rest on, is appended before it goes out.
    fn hold_answer(&mut self, mut answer: Answer<S>) -> u64 {
        let number = self.next_number();
        for part in &mut answer.parts {
            if part.acked.is_none() && part.grant.is_none() {
                continue;
            }
            let number_of =
                part.part.or_else(|| self.part_numbers.get(&(part.partition, answer.group)).copied());
            part.part = number_of;
            let Some((id, state)) = number_of.and_then(|id| self.parts.get_mut(&id).map(|state| (id, state)))
            else {
                continue;
            };
            if state.open().is_some_and(super::SharePartition::has_events) {
                state.waiting.push(number);
                part.appending = true;
                self.dirty.insert(id);
            } else if let Some(flushing) = &mut state.flushing {
                flushing.answers.push(number);
                part.appending = true;
            }
        }
        self.answers.insert(number, answer);
        number
    }

    /// Submits the building of these parts' data.
    fn build(&mut self, number: u64, indexes: Vec<usize>, out: &mut Outbox<S>) {
        let Some(answer) = self.answers.get_mut(&number) else { return };
        let mut parts = Vec::new();
        let mut built = Vec::new();
        for index in indexes {
            let part = &mut answer.parts[index];
            let ranges = part.grant.as_ref().map_or(Vec::new(), |(_, picks)| ranges_of(picks));
            part.building = !ranges.is_empty();
            if part.building {
                let ranges = ranges.into_iter().map(|(first, last)| (Offset(first), Offset(last))).collect();
                parts.push((part.partition, ranges));
                built.push(index);
            }
        }
        if !parts.is_empty() {
            let op = out.submit(Owner::Share, |op| Submission::Build { op, parts });
            self.ops.insert(op, Op::Build { answer: number, parts: built });
        }
    }

    pub(super) fn built(
        &mut self,
        now: Now,
        op: OpId,
        results: Vec<Result<S, BuildError>>,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Build { answer: number, parts: indexes }) = self.ops.remove(&op) else { return };
        let mut again = Vec::new();
        for (index, result) in indexes.into_iter().zip(results) {
            let Some(part) = self.answers.get_mut(&number).map(|answer| &mut answer.parts[index]) else {
                return;
            };
            part.building = false;
            let (Some((delivery, picks)), Some(id)) = (&mut part.grant, part.part) else { continue };
            let delivery = *delivery;
            let failed = match result {
                Ok(data) => {
                    part.data = Some(data);
                    continue;
                }
                Err(failed) => failed,
            };
            let before = picks.len();
            match failed {
                BuildError::Corrupt { first, last } => {
                    picks.retain(|&offset| offset < first.get() || offset > last.get());
                }
                BuildError::Missing(gone) => picks.retain(|&offset| offset != gone.get()),
                BuildError::Gone(start) => picks.retain(|&offset| offset >= start.get()),
                BuildError::Io(_) => picks.clear(),
            }
            let retry = picks.len() < before && !picks.is_empty();
            if !retry {
                // Nothing is left of it, or the executor names what it was not asked for.
                let failed = matches!(failed, BuildError::Io(_)) || picks.len() == before;
                part.grant = None;
                part.error = failed.then_some(ShareError::Unavailable);
            }
            if let Some(open) = self.open_part(id) {
                match failed {
                    BuildError::Corrupt { first, last } => {
                        open.corrupt(delivery, first.get(), last.get(), now);
                    }
                    BuildError::Missing(gone) => open.missing(delivery, gone.get()),
                    BuildError::Gone(start) => open.log_started(start.get()),
                    BuildError::Io(_) => {}
                }
                if !retry {
                    open.lost(delivery, now);
                }
            }
            self.dirty.insert(id);
            self.rest_on(number, index, id);
            if retry {
                again.push(index);
            }
        }
        self.build(number, again, out);
        self.try_finish(now, number, out);
    }

    /// The answer's part rests on events that are not appended yet.
    fn rest_on(&mut self, number: u64, index: usize, id: u32) {
        let Some(state) = self.parts.get_mut(&id) else { return };
        let Some(answer) = self.answers.get_mut(&number) else { return };
        if state.open().is_some_and(super::SharePartition::has_events) {
            state.waiting.push(number);
            answer.parts[index].appending = true;
        }
    }

    /// Events of a share-partition that this answer waited for are appended.
    pub(super) fn events_written(&mut self, now: Now, number: u64, id: u32, out: &mut Outbox<S>) {
        let waits_on = self.parts.get(&id).is_some_and(|state| state.waiting.contains(&number));
        if !waits_on {
            self.held_written(number, id, out);
        }
        if let Some(answer) = self.answers.get_mut(&number) {
            for part in answer.parts.iter_mut().filter(|part| part.part == Some(id)) {
                part.appending = waits_on;
            }
        }
        self.try_finish(now, number, out);
    }

    /// A share-partition's memory is gone: whatever an answer says of it is void.
    pub(super) fn fail_answers(&mut self, now: Now, id: u32, error: ShareError, out: &mut Outbox<S>) {
        self.fail_held(id, error, out);
        let mut concerned = Vec::new();
        for (&number, answer) in &mut self.answers {
            for part in answer.parts.iter_mut().filter(|part| part.part == Some(id)) {
                // What could not be built has no grant any more, and waits for that to be stored.
                if part.acked.is_none() && part.grant.is_none() && !part.appending {
                    continue;
                }
                part.appending = false;
                part.data = None;
                if part.grant.take().is_some() || part.acked.is_none() {
                    part.error = Some(error);
                }
                if let Some(acked) = &mut part.acked {
                    *acked = Acknowledged::failed(error, acked.results.len());
                }
                concerned.push(number);
            }
        }
        concerned.dedup();
        for number in concerned {
            self.try_finish(now, number, out);
        }
    }

    /// Sends an answer that waits for nothing any more.
    fn try_finish(&mut self, now: Now, number: u64, out: &mut Outbox<S>) {
        let waits = |part: &AnswerPart<S>| part.appending || (part.building && part.grant.is_some());
        if self.answers.get(&number).is_none_or(|answer| answer.parts.iter().any(waits)) {
            return;
        }
        let Some(answer) = self.answers.remove(&number) else { return };
        let config = self.config(answer.group);
        let lock_ms = i32::try_from(config.lock_ms).unwrap_or(i32::MAX);
        // Only who acknowledges with delivery numbers is told what was recalled.
        let member = self.members.get(&answer.member).filter(|_| answer.numbered);
        let name = member.map(|member| member.name.clone());
        if !answer.fetch {
            let parts = answer.parts.into_iter().map(|part| {
                let state = part.part.and_then(|id| self.parts.get_mut(&id));
                let start_offset = state.as_ref().and_then(|state| state.told_start());
                let open = state.and_then(super::Part::open_mut);
                let acked = part.acked.unwrap_or_default();
                AckOutcome {
                    partition: part.partition,
                    error: acked.error,
                    results: acked.results,
                    start_offset,
                    recalled: match (open, &name) {
                        (Some(open), Some(name)) => open.take_untold(name),
                        _ => Vec::new(),
                    },
                }
            });
            let reply = ShareAcknowledged { lock_ms, parts: parts.collect() };
            return out.reply(answer.ticket, Reply::ShareAcknowledged(Ok(reply)));
        }
        let batch_size = (config.order == ShareOrder::None).then_some(answer.batch_size);
        let mut deliveries = Vec::new();
        let mut parts = Vec::with_capacity(answer.parts.len());
        for part in answer.parts {
            let state = part.part.and_then(|id| self.parts.get_mut(&id));
            let start_offset = state.as_ref().and_then(|state| state.told_start()).unwrap_or(Offset(0));
            let open = state.and_then(super::Part::open_mut);
            let mut reply = SharePart {
                partition: part.partition,
                error: part.error,
                ack_error: part.acked.as_ref().and_then(|acked| acked.error),
                ack_results: part.acked.map_or(Vec::new(), |acked| acked.results),
                data: None,
                acquired: Vec::new(),
                recalled: Vec::new(),
                start_offset,
                high_watermark: Offset(part.high_watermark),
            };
            if let Some(open) = open {
                // Ownership is looked at again now: the session may have ended since the grant.
                if let (Some((delivery, picks)), Some(id)) = (part.grant, part.part) {
                    if open.withdraw_recalled(delivery, &picks, now) {
                        self.dirty.insert(id);
                    }
                    reply.acquired = open.acquired(delivery, &picks, batch_size);
                    if !reply.acquired.is_empty() {
                        reply.data = part.data;
                        deliveries.push((id, delivery));
                    }
                }
                if let Some(name) = &name {
                    reply.recalled = open.take_untold(name);
                }
            }
            parts.push(reply);
        }
        if !deliveries.is_empty() {
            self.timers.set(Timer::Unwritten(answer.ticket), Some(answer.close_at));
        }
        let unwritten = Unwritten { connection: answer.connection, member: answer.member, deliveries };
        self.unwritten.insert(answer.ticket, unwritten);
        out.reply(answer.ticket, Reply::ShareFetched(Ok(ShareFetched { lock_ms, parts })));
    }

    pub(super) fn forget_ask(&mut self, number: u64) -> Option<Ask> {
        let ask = self.asks.remove(&number)?;
        self.ask_of.remove(&ask.ticket);
        self.unsettled_asks.remove(&number);
        self.timers.set(Timer::Ask(number), None);
        if let Some(member) = self.members.get_mut(&ask.member) {
            member.asks.remove(&number);
        }
        for part in ask.parts.iter().filter_map(|(_, part)| *part) {
            if let Some(part) = self.parts.get_mut(&part) {
                part.asks.remove(&number);
            }
        }
        Some(ask)
    }

    /// The socket has taken an answer whole, or will never: its locks start, or its records are free.
    pub(super) fn answer_left(&mut self, now: Now, ticket: Ticket, whole: bool) -> Option<Unwritten> {
        let unwritten = self.unwritten.remove(&ticket)?;
        self.timers.set(Timer::Unwritten(ticket), None);
        for &(id, delivery) in &unwritten.deliveries {
            if let Some(open) = self.open_part(id) {
                if whole {
                    open.written(delivery, now);
                } else {
                    open.lost(delivery, now);
                }
                self.dirty.insert(id);
            } else if let Some(survivors) = self.parts.get_mut(&id).and_then(super::Part::survivors_mut) {
                // Its state is being read anew, and goes on with what members know of.
                if whole {
                    survivors.entry(delivery).and_modify(|lock| lock.written(now.mono));
                } else {
                    survivors.remove(&delivery);
                }
            }
        }
        Some(unwritten)
    }

    /// The socket has not taken an answer for half a lock: its connection goes, and only then its records are free.
    pub(super) fn answer_overdue(&mut self, ticket: Ticket, out: &mut Outbox<S>) {
        if let Some(unwritten) = self.unwritten.get(&ticket) {
            out.effect(Effect::CloseConnection(unwritten.connection));
        }
    }

    /// Answers that had not gone out when they were lost: nobody will see them. Says of which members a fetch was
    /// among them.
    pub(super) fn drop_answers(&mut self, now: Now, lost: impl Fn(&Answer<S>) -> bool) -> Vec<u32> {
        let gone: Vec<u64> =
            self.answers.iter().filter(|(_, answer)| lost(answer)).map(|(&number, _)| number).collect();
        let mut fetching = Vec::new();
        for number in gone {
            let Some(answer) = self.answers.remove(&number) else { continue };
            if answer.fetch {
                fetching.push(answer.member);
            }
            for part in answer.parts {
                if let (Some((delivery, _)), Some(id)) = (part.grant, part.part)
                    && let Some(open) = self.open_part(id)
                {
                    open.lost(delivery, now);
                    self.dirty.insert(id);
                }
            }
        }
        fetching
    }

    /// Deliveries of a share-partition whose answers went out.
    pub(super) fn deliveries_out(&self, id: u32) -> BTreeSet<u64> {
        self.unwritten
            .values()
            .flat_map(|unwritten| &unwritten.deliveries)
            .filter(|(part, _)| *part == id)
            .map(|&(_, delivery)| delivery)
            .collect()
    }
}
