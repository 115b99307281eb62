//! What operators ask of share-partitions and do to keys. A share-partition that is not in memory is loaded first, and
//! what is answered rests on events that are appended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use super::{Op, PartState, ShareMachine};
use crate::command::{OffsetQuery, Ticket};
use crate::io::{FoundRecord, IoError, OpId, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::Reply;
use crate::share::ShareError;
use crate::share::admin::{
    AdminError, AlterKey, DescribeKeys, KeyAction, KeyAltered, KeyRef, QUESTIONS_MAX, ResetOffsets, ResetTo,
    ShareKeys, TOP_MAX, Why,
};
use crate::share::look::Outside;
use crate::time::{Micros, Mono, Now};

/// An operator's request that waits for share-partitions to be in memory.
#[derive(Debug)]
pub(super) struct Admin {
    ticket: Ticket,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Describe {
        request: DescribeKeys,
        /// The share-partition has state, and is on its way into memory.
        found: bool,
        /// The timestamp of its oldest record was asked for.
        dated: bool,
        /// Answers of the questions that were looked for in the pages of the share state.
        answers: BTreeMap<usize, Option<Why>>,
        /// The question that is being looked for.
        seeking: Option<usize>,
    },
    Alter {
        request: AlterKey,
        found: bool,
        /// What it is about was looked for in the pages of the share state.
        searched: bool,
        source: Source,
    },
    Reset {
        group: Arc<str>,
        parts: Vec<ResetPart>,
    },
}

/// Whether a record that is to be delivered again is in the log still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Unknown,
    /// The disk was asked.
    Sought,
    /// It is. Of a replay: so many were found.
    There(u64),
}

/// One partition of a reset.
#[derive(Debug)]
struct ResetPart {
    partition: PartitionId,
    to: ResetTo,
    /// Its time is being looked up.
    looking: bool,
    /// Its share-partition, once it was asked for, and what became of it.
    part: Option<u32>,
    result: Option<Result<Offset, AdminError>>,
}

/// An answer that waits for events to be appended.
#[derive(Debug)]
pub(super) struct Held {
    ticket: Ticket,
    answer: Answer,
    waits: BTreeSet<u32>,
}

#[derive(Debug)]
enum Answer {
    Keys(Box<ShareKeys>),
    Altered(KeyAltered),
    Reset(Vec<(PartitionId, Option<u32>, Result<Offset, AdminError>)>),
}

impl<S: Slice> ShareMachine<S> {
    pub(super) fn describe_keys(
        &mut self,
        ticket: Ticket,
        mut request: DescribeKeys,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        if !logs.contains_key(&request.partition) {
            return out.reply(ticket, Reply::ShareKeys(Err(ShareError::UnknownPartition.into())));
        }
        request.questions.truncate(QUESTIONS_MAX);
        let (group, partition) = (Arc::clone(&request.group), request.partition);
        let work =
            Work::Describe { request, found: false, dated: false, answers: BTreeMap::new(), seeking: None };
        self.begin_admin(Admin { ticket, work }, &group, partition, out);
    }

    pub(super) fn alter_key(
        &mut self,
        ticket: Ticket,
        request: AlterKey,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        if !logs.contains_key(&request.partition) {
            return out.reply(ticket, Reply::KeyAltered(Err(ShareError::UnknownPartition.into())));
        }
        let (group, partition) = (Arc::clone(&request.group), request.partition);
        let work = Work::Alter { request, found: false, searched: false, source: Source::Unknown };
        self.begin_admin(Admin { ticket, work }, &group, partition, out);
    }

    /// Asking about a share-partition must not make one: where none is in memory the disk is asked for it.
    fn begin_admin(&mut self, admin: Admin, group: &Arc<str>, partition: PartitionId, out: &mut Outbox<S>) {
        let number = self.next_number();
        self.admins.insert(number, admin);
        let known = self.known_part(group, partition);
        if known.is_some_and(|(_, part)| !matches!(part.state, PartState::Closed)) {
            self.admin_found(number);
        } else {
            let group = Arc::clone(group);
            let op = out.submit(Owner::Share, |op| Submission::ListShareStates { op, group });
            self.ops.insert(op, Op::AdminStates(number));
        }
    }

    pub(super) fn admin_states_listed(
        &mut self,
        op: OpId,
        result: Result<Vec<PartitionId>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::AdminStates(number)) = self.ops.remove(&op) else { return };
        let Some(admin) = self.admins.get(&number) else { return };
        let Some((group, partition)) = admin.subject() else { return };
        match result {
            Ok(found) if found.contains(&partition) => {
                let group = self.group_number(&group);
                self.part_number(group, partition, out);
                self.admin_found(number);
            }
            Ok(_) => self.refuse_admin(number, AdminError::NothingThere, out),
            Err(_) => self.refuse_admin(number, ShareError::Unavailable.into(), out),
        }
    }

    fn admin_found(&mut self, number: u64) {
        if let Some(Admin { work: Work::Describe { found, .. } | Work::Alter { found, .. }, .. }) =
            self.admins.get_mut(&number)
        {
            *found = true;
        }
        self.pending_admins.insert(number);
    }

    pub(super) fn refuse_admin(&mut self, number: u64, error: AdminError, out: &mut Outbox<S>) {
        let Some(admin) = self.admins.remove(&number) else { return };
        out.reply(
            admin.ticket,
            match admin.work {
                Work::Describe { .. } => Reply::ShareKeys(Err(error)),
                Work::Alter { .. } => Reply::KeyAltered(Err(error)),
                Work::Reset { parts, .. } => Reply::ShareOffsetsReset(
                    parts
                        .into_iter()
                        .map(|part| (part.partition, part.result.unwrap_or(Err(error))))
                        .collect(),
                ),
            },
        );
    }

    pub(super) fn reset_offsets(
        &mut self,
        ticket: Ticket,
        request: ResetOffsets,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let group = self.group_number(&request.group);
        let parts = request
            .parts
            .into_iter()
            .map(|(partition, to)| {
                let known = logs.contains_key(&partition);
                let part = known.then(|| self.part_number(group, partition, out));
                let result = (!known).then_some(Err(ShareError::UnknownPartition.into()));
                ResetPart { partition, to, looking: false, part, result }
            })
            .collect();
        let number = self.next_number();
        self.admins.insert(number, Admin { ticket, work: Work::Reset { group: request.group, parts } });
        self.pending_admins.insert(number);
    }

    /// A share-partition came into memory, or will not: requests that waited for it may go on.
    pub(super) fn wake_admins(&mut self) {
        self.pending_admins.extend(self.admins.keys().copied());
    }

    /// What a restart left unread of a share-partition cannot be read now: requests that wait for it are refused.
    pub(super) fn refuse_admins(&mut self, id: u32, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&id) else { return };
        let subject = (Arc::clone(&self.group(part.group).name), part.id);
        let waiting: Vec<u64> = self
            .admins
            .iter()
            .filter(|(_, admin)| admin.subject().as_ref() == Some(&subject))
            .map(|(&number, _)| number)
            .collect();
        for number in waiting {
            self.refuse_admin(number, ShareError::Unavailable.into(), out);
        }
    }

    /// Serves the requests whose share-partitions are in memory, or cannot be.
    pub(super) fn serve_admins(&mut self, now: Now, logs: &LogTable, out: &mut Outbox<S>) {
        for number in std::mem::take(&mut self.pending_admins) {
            let Some(admin) = self.admins.get(&number) else { continue };
            if matches!(admin.work, Work::Reset { .. }) {
                self.serve_reset(now, number, logs, out);
                continue;
            }
            let found =
                matches!(admin.work, Work::Describe { found: true, .. } | Work::Alter { found: true, .. });
            let Some((group, partition)) = admin.subject().filter(|_| found) else { continue };
            match self.known_part(&group, partition).map(|(id, part)| (id, &part.state)) {
                None => self.refuse_admin(number, ShareError::UnknownPartition.into(), out),
                Some((_, PartState::Opening(_) | PartState::Loading(..) | PartState::Starting)) => {}
                Some((_, PartState::Closed | PartState::Broken(_))) => {
                    self.refuse_admin(number, ShareError::Unavailable.into(), out);
                }
                Some((id, PartState::Open(_))) => self.serve_admin(now, number, id, logs, out),
            }
        }
    }

    pub(super) fn serve_admin(
        &mut self,
        now: Now,
        number: u64,
        id: u32,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let upper = super::upper(logs, &self.config(self.parts[&id].group), self.parts[&id].id);
        if self.parts[&id].open().is_some_and(|open| !open.may_grant(upper)) {
            // After a restart: keys of stopped records are known when they are read again.
            self.dirty.insert(id);
            return;
        }
        let Some(Admin { work, .. }) = self.admins.get_mut(&number) else { return };
        if let Work::Describe { dated, .. } = work {
            let part = &self.parts[&id];
            let oldest = part.open().and_then(|open| open.oldest(upper));
            if let Some(offset) = oldest.filter(|&offset| !part.watched.knows(offset) && !*dated) {
                *dated = true;
                return self.read_oldest(id, offset, out);
            }
        }
        if let Work::Describe { request, answers, seeking, .. } = work
            && let Some(open) = self.parts[&id].open()
        {
            let mut questions = request.questions.iter().enumerate();
            *seeking = seeking.or_else(|| {
                questions.position(|(number, &key)| !answers.contains_key(&number) && open.may_rest(key))
            });
            if seeking.is_some() {
                return self.search(now, number, id, 0, logs, out);
            }
        }
        if let Work::Alter { request, searched: false, .. } = work {
            let (key, action) = (request.key, request.action);
            if self.parts[&id].open().is_some_and(|open| open.is_about_a_page(key, action)) {
                return self.search(now, number, id, 0, logs, out);
            }
        }
        let log_start = logs.get(&self.parts[&id].id).map_or(0, |facts| facts.log_start.get());
        if let Some(Admin { work: Work::Alter { request, source, .. }, .. }) = self.admins.get(&number)
            && request.action == KeyAction::Redrive
            && !matches!(source, Source::There(_))
        {
            if *source == Source::Sought {
                return;
            }
            let sources = self.parts[&id].open().and_then(|open| open.sources_of(request.key, log_start));
            if let Some(sources) = sources {
                self.source_is(number, Source::Sought);
                return self.look_for_source(number, id, &sources, out);
            }
        }
        if let Some(Admin { work: Work::Alter { request, source, .. }, .. }) = self.admins.get(&number)
            && let KeyAction::Replay(from, to) = request.action
            && !matches!(source, Source::There(_))
        {
            if *source == Source::Sought {
                return;
            }
            let range = (from.get(), to.get());
            let open = self.parts[&id].open();
            if let Some(range) = open.and_then(|open| open.to_replay(request.key, range, log_start)) {
                self.source_is(number, Source::Sought);
                return self.look_for_replayable(number, id, range, logs, out);
            }
        }
        let Some(Admin { ticket, work }) = self.admins.remove(&number) else { return };
        match work {
            Work::Describe { request, answers, .. } => {
                let mut answer = self.look(now, id, upper, &request);
                for (question, why) in answers {
                    if let Some(why) = why {
                        answer.answers[question] = why;
                    }
                }
                self.hold(ticket, Answer::Keys(Box::new(answer)), BTreeSet::from([id]), out);
            }
            Work::Alter { request, source, .. } => {
                let Some(open) = self.open_part(id) else { return };
                let mut altered = open.alter(request.key, request.action, log_start, now);
                if let (Ok(altered), KeyAction::Replay(..), Source::There(found)) =
                    (&mut altered, request.action, source)
                {
                    altered.records = found;
                }
                self.dirty.insert(id);
                match altered {
                    Ok(altered) => self.hold(ticket, Answer::Altered(altered), BTreeSet::from([id]), out),
                    Err(error) => out.reply(ticket, Reply::KeyAltered(Err(error))),
                }
            }
            Work::Reset { .. } => unreachable!("resets are served elsewhere"),
        }
    }

    /// What a request is about was looked for in all pages.
    pub(super) fn searched(&mut self, number: u64) {
        match self.admins.get_mut(&number).map(|admin| &mut admin.work) {
            Some(Work::Alter { searched, .. }) => *searched = true,
            Some(Work::Describe { .. }) => self.answered(number, None),
            _ => {}
        }
    }

    /// What was asked about was looked for in the pages; why it is not delivered, where one has it.
    pub(super) fn answered(&mut self, number: u64, why: Option<Why>) {
        if let Some(Admin { work: Work::Describe { answers, seeking, .. }, .. }) =
            self.admins.get_mut(&number)
        {
            answers.extend(seeking.take().map(|question| (question, why)));
            self.pending_admins.insert(number);
        }
    }

    /// What is known of the records that a request is to deliver again.
    pub(super) fn source_is(&mut self, number: u64, known: Source) {
        if let Some(Admin { work: Work::Alter { source, searched, .. }, .. }) = self.admins.get_mut(&number) {
            *source = known;
            // While they were sought, their key may have gone to rest again.
            *searched &= known == Source::Sought;
        }
    }

    /// What a request looks for in the pages, as long as it waits, and whether it only asks about it.
    pub(super) fn sought(&self, number: u64) -> Option<(KeyRef, bool)> {
        match &self.admins.get(&number)?.work {
            Work::Alter { request, .. } => Some((request.key, false)),
            Work::Describe { request, seeking, .. } => Some((*request.questions.get((*seeking)?)?, true)),
            Work::Reset { .. } => None,
        }
    }

    fn look(&self, now: Now, id: u32, upper: i64, request: &DescribeKeys) -> ShareKeys {
        let part = &self.parts[&id];
        let Some(open) = part.open() else { return ShareKeys::default() };
        let group = self.group(part.group);
        let grace = Micros::from_ms(group.config.grace_ms());
        let gone_until = |member: &str| -> Option<Mono> {
            let member =
                self.find_member(&group.name, member).and_then(|member| self.members.get(&member))?;
            Some(member.gone_since? + grace)
        };
        let outside = Outside { now, upper, gone_until: &gone_until, trouble: part.copying.trouble() };
        let top = request.top.min(TOP_MAX) as usize;
        let mut answer = open.look(&outside, top, &request.questions);
        let oldest = open.oldest(upper);
        answer.oldest_ms = oldest.and_then(|offset| part.watched.timestamp_of(offset));
        answer.retention = oldest.and_then(|offset| part.watched.warning(offset));
        answer.counters = part.counted;
        answer
    }

    /// Resets what is in memory; answers when every partition has its result.
    fn serve_reset(&mut self, now: Now, number: u64, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(Admin { ticket, work: Work::Reset { group, mut parts } }) = self.admins.remove(&number)
        else {
            return;
        };
        for (index, reset) in parts.iter_mut().enumerate() {
            let Some(id) = reset.part.filter(|_| reset.result.is_none() && !reset.looking) else { continue };
            let state = self.parts.get(&id).map(|part| &part.state);
            let (facts, open) = match (logs.get(&reset.partition), state) {
                (None, _) | (_, None) => {
                    reset.result = Some(Err(ShareError::UnknownPartition.into()));
                    continue;
                }
                (_, Some(PartState::Opening(_) | PartState::Loading(..) | PartState::Starting)) => continue,
                (_, Some(PartState::Closed | PartState::Broken(_))) => {
                    reset.result = Some(Err(ShareError::Unavailable.into()));
                    continue;
                }
                (Some(facts), Some(PartState::Open(open))) => (facts, open),
            };
            if open.in_hands() > 0 {
                reset.result = Some(Err(AdminError::InUse));
                continue;
            }
            let at = match reset.to {
                ResetTo::Offset(at) => at.get().clamp(facts.log_start.get(), facts.end.get()),
                ResetTo::Earliest => facts.log_start.get(),
                ResetTo::Latest => facts.end.get(),
                ResetTo::Time(time_ms) => {
                    reset.looking = true;
                    let (partition, query) = (reset.partition, OffsetQuery::At(time_ms));
                    let op = out.submit(Owner::Share, |op| Submission::FindOffset { op, partition, query });
                    self.ops.insert(op, Op::Reset { admin: number, index });
                    continue;
                }
            };
            self.reset(now, id, at);
            reset.result = Some(Ok(Offset(at)));
        }
        if parts.iter().any(|reset| reset.result.is_none()) {
            self.admins.insert(number, Admin { ticket, work: Work::Reset { group, parts } });
            return;
        }
        let changed = parts.iter().filter(|reset| matches!(reset.result, Some(Ok(_))));
        let waits = changed.filter_map(|reset| reset.part).collect();
        let results = parts
            .into_iter()
            .map(|reset| {
                let result = reset.result.unwrap_or(Err(ShareError::Unavailable.into()));
                (reset.partition, reset.part, result)
            })
            .collect();
        self.hold(ticket, Answer::Reset(results), waits, out);
    }

    /// Takes the offset of a time, if that is what this submission looked for.
    pub(super) fn reset_found(
        &mut self,
        op: OpId,
        result: Result<Option<FoundRecord>, IoError>,
        logs: &LogTable,
    ) -> bool {
        let Some(&Op::Reset { admin, index }) = self.ops.get(&op) else { return false };
        self.ops.remove(&op);
        let Some(Admin { work: Work::Reset { parts, .. }, .. }) = self.admins.get_mut(&admin) else {
            return true;
        };
        let reset = &mut parts[index];
        let end = logs.get(&reset.partition).map(|facts| facts.end);
        reset.looking = false;
        match (result, end) {
            (Ok(found), Some(end)) => {
                reset.to = ResetTo::Offset(found.map_or(end, |found| found.offset));
            }
            _ => reset.result = Some(Err(ShareError::Unavailable.into())),
        }
        self.pending_admins.insert(admin);
        true
    }

    /// Nobody holds anything here: it begins at `at` from now on, and knows nothing more.
    fn reset(&mut self, now: Now, id: u32, at: i64) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        part.scan_is_void = part.scanning;
        if let Some(open) = part.open_mut() {
            open.start_at(at, now);
        }
        self.dirty.insert(id);
    }

    /// Keeps an answer until what it rests on is appended.
    fn hold(&mut self, ticket: Ticket, answer: Answer, parts: BTreeSet<u32>, out: &mut Outbox<S>) {
        let number = self.next_number();
        let mut waits = BTreeSet::new();
        for id in parts {
            let Some(state) = self.parts.get_mut(&id) else { continue };
            if state.open().is_some_and(super::SharePartition::has_events) {
                state.waiting.push(number);
                self.dirty.insert(id);
                waits.insert(id);
            } else if let Some(flushing) = &mut state.flushing {
                flushing.answers.push(number);
                waits.insert(id);
            }
        }
        let held = Held { ticket, answer, waits };
        if held.waits.is_empty() {
            return tell(held, out);
        }
        self.held.insert(number, held);
    }

    /// Events of a share-partition that an answer waited for are appended.
    pub(super) fn held_written(&mut self, number: u64, id: u32, out: &mut Outbox<S>) {
        let Some(held) = self.held.get_mut(&number) else { return };
        held.waits.remove(&id);
        if held.waits.is_empty()
            && let Some(held) = self.held.remove(&number)
        {
            tell(held, out);
        }
    }

    /// A share-partition's memory is gone, and with it what was done to it.
    pub(super) fn fail_held(&mut self, id: u32, error: ShareError, out: &mut Outbox<S>) {
        let concerned: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, held)| held.waits.contains(&id))
            .map(|(&number, _)| number)
            .collect();
        for number in concerned {
            let Some(held) = self.held.get_mut(&number) else { continue };
            match &mut held.answer {
                Answer::Keys(_) => {
                    out.reply(held.ticket, Reply::ShareKeys(Err(error.into())));
                    self.held.remove(&number);
                }
                Answer::Altered(_) => {
                    out.reply(held.ticket, Reply::KeyAltered(Err(error.into())));
                    self.held.remove(&number);
                }
                Answer::Reset(parts) => {
                    for part in parts.iter_mut().filter(|part| part.1 == Some(id)) {
                        part.2 = Err(error.into());
                    }
                    self.held_written(number, id, out);
                }
            }
        }
    }
}

impl Admin {
    /// The share-partition that a question or an alteration is about.
    fn subject(&self) -> Option<(Arc<str>, PartitionId)> {
        match &self.work {
            Work::Describe { request, .. } => Some((Arc::clone(&request.group), request.partition)),
            Work::Alter { request, .. } => Some((Arc::clone(&request.group), request.partition)),
            Work::Reset { .. } => None,
        }
    }
}

fn tell<S>(held: Held, out: &mut Outbox<S>) {
    let reply = match held.answer {
        Answer::Keys(keys) => Reply::ShareKeys(Ok(keys)),
        Answer::Altered(altered) => Reply::KeyAltered(Ok(altered)),
        Answer::Reset(parts) => Reply::ShareOffsetsReset(
            parts.into_iter().map(|(partition, _, result)| (partition, result)).collect(),
        ),
    };
    out.reply(held.ticket, reply);
}
