//! Group coordination: one `GroupPartition` a partition of `__consumer_offsets`, loaded, served, written, reloaded.
//!
//! A decision is applied in memory at once; its records go out with those of the round in one batch, and all that
//! was decided since waits for that batch: replies, also those without records of their own (they may show what is
//! not written yet), and news for the share machine. At most one append of a partition is in flight, what is decided
//! meanwhile makes the next batch. So when an append fails, all that must be undone is at hand: what is held is
//! answered with a retriable error, the partition's memory is dropped and read again from the log. What was written
//! is synced a little later, all together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use records::ids::PartitionId;

use crate::command::{Ticket, TopicImage};
use crate::group::{
    GroupCommand, GroupContext, GroupDecision, GroupError, GroupPartition, GroupReply, ShareMembership,
};
use crate::io::{AppendError, Appended, IoError, LogFacts, OpId, Origin, Submission};
use crate::limits::{CONSUMER_OFFSETS, Limits};
use crate::outbox::{Outbox, Owner};
use crate::reply::Reply;
use crate::share::admin::ResetOffsets;
use crate::share::{ShareConfig, ShareError};
use crate::time::{Mono, Now};

mod address;
mod lowering;
mod refusal;
mod slot;

use address::{group_of, partition_of};
use lowering::Lowering;
use refusal::not_available;
use slot::{Held, Slot, State};

/// The coordinator partitions of a shard.
#[derive(Debug)]
pub(super) struct Groups {
    limits: Limits,
    topics: Arc<TopicImage>,
    share_configs: BTreeMap<Arc<str>, Arc<ShareConfig>>,
    /// How many partitions `__consumer_offsets` has; as in Kafka what it had when it was first seen, since groups are
    /// found by it.
    count: Option<i32>,
    slots: BTreeMap<i32, Slot>,
    indexes: BTreeMap<PartitionId, i32>,
    /// Whose load or append it is.
    ops: BTreeMap<OpId, PartitionId>,
    /// Where something happened in this round.
    touched: BTreeSet<i32>,
    /// When each slot must be looked at.
    due: BTreeSet<(Mono, i32)>,
    /// From an unclean stop until all commits beyond their logs are lowered.
    lowering: Option<Lowering>,
    news: News,
    stopping: bool,
}

/// What the share machine is told at the end of a round: it is written.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Members of share groups that came or went.
    pub(super) members: Vec<ShareMembership>,
    /// The members that those groups have now.
    pub(super) live: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Groups whose records are deleted, and who is to be told when their share state is, too.
    pub(super) deleted: Vec<(Ticket, Arc<str>)>,
    /// Groups without members whose share-partitions are to begin elsewhere, and who is to be told.
    pub(super) altered: Vec<(Ticket, ResetOffsets)>,
}

impl Groups {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            topics: Arc::default(),
            share_configs: BTreeMap::new(),
            count: None,
            slots: BTreeMap::new(),
            indexes: BTreeMap::new(),
            ops: BTreeMap::new(),
            touched: BTreeSet::new(),
            due: BTreeSet::new(),
            lowering: None,
            news: News::default(),
            stopping: false,
        }
    }

    /// The last stop was not in order, so that logs may have lost their ends.
    pub(super) fn unclean_stop(&mut self) {
        self.lowering = Some(Lowering::default());
    }

    /// A log of records is open.
    pub(super) fn log_opened(&mut self, partition: PartitionId, facts: &LogFacts) {
        if let Some(lowering) = &mut self.lowering {
            lowering.log_opened(partition, facts.end);
        }
    }

    /// Whether logs of records must not be appended to yet: commits above their ends are still to be lowered.
    pub(super) fn hold_appends(&self) -> bool {
        self.lowering.as_ref().is_some_and(Lowering::holds_appends)
    }

    /// A partition of `__consumer_offsets` is open: load it, if there is anything in it.
    pub(super) fn opened<S>(
        &mut self,
        now: Now,
        index: i32,
        partition: PartitionId,
        facts: &LogFacts,
        out: &mut Outbox<S>,
    ) {
        if self.slots.contains_key(&index) {
            return;
        }
        let state = State::Loading;
        let slot =
            Slot { partition, state, in_flight: None, pending: VecDeque::new(), sync_at: None, due_at: None };
        self.slots.insert(index, slot);
        self.indexes.insert(partition, index);
        if facts.log_start >= facts.end {
            self.serve(now, index, &[], out);
        } else {
            if let Some(lowering) = &mut self.lowering {
                lowering.expect(index);
            }
            self.load(index, out);
        }
    }

    /// A partition is gone; all that waits for it is answered.
    pub(super) fn deleted<S>(&mut self, partition: PartitionId, out: &mut Outbox<S>) {
        let Some(index) = self.indexes.remove(&partition) else { return };
        if let Some(lowering) = &mut self.lowering {
            lowering.done(index);
        }
        self.give_up(index, out);
        if let Some(slot) = self.slots.remove(&index)
            && let Some(due_at) = slot.due_at
        {
            self.due.remove(&(due_at, index));
        }
    }

    /// All topics, as they are now.
    pub(super) fn topics_changed<S>(&mut self, now: Now, topics: &Arc<TopicImage>, out: &mut Outbox<S>) {
        self.topics = Arc::clone(topics);
        if let Some((_, count)) = topics.topics.get(CONSUMER_OFFSETS) {
            self.count.get_or_insert(*count);
        }
        let indexes: Vec<i32> = self.slots.keys().copied().collect();
        for index in indexes {
            self.decide(index, out, |partition, cx| partition.topics_changed(now, cx));
        }
    }

    /// A group's share settings, as they are now.
    pub(super) fn share_configured(&mut self, group: &Arc<str>, config: &Arc<ShareConfig>) {
        self.share_configs.insert(Arc::clone(group), Arc::clone(config));
    }

    /// Serves a command.
    pub(super) fn command<S>(
        &mut self,
        now: Now,
        ticket: Ticket,
        command: GroupCommand,
        out: &mut Outbox<S>,
    ) {
        let Some(group) = group_of(&command) else {
            return out.reply(ticket, Reply::Group(GroupReply::Listed(self.list())));
        };
        match self.find(group) {
            Ok(index) => {
                self.decide(index, out, |partition, cx| partition.handle(now, ticket, command, cx));
            }
            Err(error) => out.reply(ticket, Reply::Group(GroupReply::refused(&command, error))),
        }
    }

    /// Deletes a group: its records here, then, when they are, its share state ([`News::deleted`]).
    pub(super) fn delete_group<S>(&mut self, now: Now, ticket: Ticket, group: Arc<str>, out: &mut Outbox<S>) {
        let index = match self.find(&group) {
            Ok(index) => index,
            Err(error) => return out.reply(ticket, Reply::GroupDeleted(Err(error))),
        };
        let slot = self.slots.get_mut(&index).expect("found above");
        let State::Serving(partition) = &mut slot.state else { unreachable!("what is found serves") };
        let (outcome, decision) = partition.delete_group(now, &group);
        let held = match outcome {
            Ok(()) => Held::Deleted(ticket, group),
            Err(error) => Held::NotDeleted(ticket, error),
        };
        self.queue(index, decision, Some(held), out);
    }

    /// Whether this is a share group without members, of which the share state may be changed from outside.
    pub(super) fn check_share_empty(&self, group: &str) -> Result<(), GroupError> {
        let index = self.find(group)?;
        match self.slots.get(&index).map(|slot| &slot.state) {
            Some(State::Serving(partition)) => partition.check_share_empty(group),
            _ => Err(GroupError::Loading),
        }
    }

    /// Whether there is certainly no group of this id.
    pub(super) fn is_unknown(&self, group: &str) -> bool {
        self.find(group).is_ok_and(|index| match self.slots.get(&index).map(|slot| &slot.state) {
            Some(State::Serving(partition)) => !partition.has_group(group),
            _ => false,
        })
    }

    /// Whether a group id can be read under without membership: no group of this id has members.
    ///
    /// # Errors
    /// It has some, or that cannot be said now.
    pub(super) fn check_no_members(&self, group: &str) -> Result<(), ShareError> {
        match self.find(group) {
            Ok(index) => match self.slots.get(&index).map(|slot| &slot.state) {
                Some(State::Serving(partition)) if partition.has_members(group) => {
                    Err(ShareError::NonEmptyGroup)
                }
                _ => Ok(()),
            },
            // No group was ever made.
            Err(_) if self.count.is_none() => Ok(()),
            Err(_) => Err(ShareError::Unavailable),
        }
    }

    /// Sets where a share group without members goes on reading ([`News::altered`]), when it is written that there is
    /// such a group.
    pub(super) fn alter_share<S>(&mut self, ticket: Ticket, request: ResetOffsets, out: &mut Outbox<S>) {
        let index = match self.find(&request.group) {
            Ok(index) => index,
            Err(error) => return out.reply(ticket, Reply::ShareOffsetsRefused(error)),
        };
        let slot = self.slots.get_mut(&index).expect("found above");
        let State::Serving(partition) = &mut slot.state else { unreachable!("what is found serves") };
        let (outcome, decision) = partition.ensure_share_group(&request.group);
        match outcome {
            Ok(()) => self.queue(index, decision, Some(Held::Altered(ticket, request)), out),
            Err(error) => out.reply(ticket, Reply::ShareOffsetsRefused(error)),
        }
    }

    /// A ticket's connection is gone: nothing waits for it any more.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        for slot in self.slots.values_mut() {
            if let State::Serving(partition) = &mut slot.state {
                partition.cancel(ticket);
            }
        }
    }

    /// The broker stops: joins and syncs that wait, and those to come, are told to try again. What needs no wait is
    /// served to the end.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.touched.extend(self.slots.keys());
    }

    /// A load is over.
    pub(super) fn loaded<S>(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Vec<Bytes>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(index) = self.index_of(op) else { return };
        match result {
            Ok(batches) => self.serve(now, index, &batches, out),
            Err(_) => {
                self.fail(now, index);
                if let Some(lowering) = &mut self.lowering {
                    lowering.failed(index);
                }
            }
        }
    }

    /// An append is over. Tells the partition, so that the shard can note what its log looks like now.
    pub(super) fn appended<S>(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Appended, AppendError>,
        out: &mut Outbox<S>,
    ) -> Option<PartitionId> {
        let index = self.index_of(op)?;
        let slot = self.slots.get_mut(&index)?;
        let partition = slot.partition;
        self.touched.insert(index);
        if result.is_ok() {
            let batch = slot.in_flight.take().expect("an append that ends was in flight");
            slot.sync_at.get_or_insert(now.mono + self.limits.group_sync_after);
            self.release(batch.held, out);
        } else {
            self.give_up(index, out);
            if let Some(lowering) = self.lowering.as_mut().filter(|lowering| lowering.is_open(index)) {
                // Once loaded it would write again at once, and a full disk does not change so fast.
                lowering.failed(index);
                self.fail(now, index);
            } else {
                self.load(index, out);
            }
        }
        Some(partition)
    }

    /// A sync is over. Where it was not for lowered commits nobody waits for it: what is appended next to a log whose
    /// sync failed is refused.
    pub(super) fn synced(&mut self, op: OpId, ok: bool) {
        if let Some(lowering) = &mut self.lowering {
            lowering.synced(op, ok);
            if lowering.is_done() {
                self.lowering = None;
            }
        }
    }

    /// Ends a round: timers, then one append for each partition that has something to write and nothing in flight.
    /// What comes out is for the share machine.
    pub(super) fn finish<S>(&mut self, now: Now, out: &mut Outbox<S>) -> News {
        while let Some((_, index)) = self.due.first().copied().filter(|(due_at, _)| *due_at <= now.mono) {
            self.due.pop_first();
            self.slots.get_mut(&index).expect("a slot that is due stands").due_at = None;
            self.tick(now, index, out);
        }
        for index in std::mem::take(&mut self.touched) {
            if self.stopping {
                self.decide(index, out, |partition, _| GroupDecision {
                    replies: partition.release_parked(),
                    ..GroupDecision::default()
                });
            }
            self.append(now, index, out);
            self.schedule(index);
        }
        self.touched.clear();
        let mut news = std::mem::take(&mut self.news);
        for event in &news.members {
            let index = self.find(&event.group).ok();
            let slot = index.and_then(|index| self.slots.get(&index)).map(|slot| &slot.state);
            // One that is being loaded tells of its members when it is.
            if let Some(State::Serving(partition)) = slot {
                let live = partition.share_members(&event.group).cloned().collect();
                news.live.insert(Arc::clone(&event.group), live);
            }
        }
        news
    }

    /// When a round is due.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.due.first().map(|(due_at, _)| *due_at)
    }

    /// Which partition serves a group, if it can now.
    fn find(&self, group: &str) -> Result<i32, GroupError> {
        let count = self.count.ok_or(GroupError::NotAvailable)?;
        let index = partition_of(group, count);
        match self.slots.get(&index).map(|slot| &slot.state) {
            Some(State::Serving(_)) => Ok(index),
            // The topic is known, so its partitions are about to be opened.
            Some(State::Loading) | None => Err(GroupError::Loading),
            Some(State::Failed(_)) => Err(GroupError::NotAvailable),
        }
    }

    /// Whose load or append is over; nobody's, when the partition has gone meanwhile.
    fn index_of(&mut self, op: OpId) -> Option<i32> {
        let partition = self.ops.remove(&op)?;
        self.indexes.get(&partition).copied()
    }

    /// All groups. It may show what is not written yet: a list promises nothing.
    fn list(&self) -> Result<Vec<crate::group::ListedGroup>, GroupError> {
        let expected = usize::try_from(self.count.unwrap_or(0)).unwrap_or(0);
        if self.slots.len() < expected {
            return Err(GroupError::Loading);
        }
        let mut listed = Vec::new();
        for slot in self.slots.values() {
            match &slot.state {
                State::Serving(partition) => listed.extend(partition.list()),
                State::Loading => return Err(GroupError::Loading),
                State::Failed(_) => return Err(GroupError::NotAvailable),
            }
        }
        Ok(listed)
    }

    /// Cannot be served now; is loaded again later.
    fn fail(&mut self, now: Now, index: i32) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        slot.state = State::Failed(now.mono + self.limits.group_reload_after);
        self.touched.insert(index);
    }

    fn load<S>(&mut self, index: i32, out: &mut Outbox<S>) {
        let slot = self.slots.get_mut(&index).expect("the caller knows the slot");
        slot.state = State::Loading;
        let partition = slot.partition;
        let op = out.submit(Owner::Groups, |op| Submission::Load { op, partition });
        self.ops.insert(op, partition);
    }

    fn serve<S>(&mut self, now: Now, index: i32, batches: &[Bytes], out: &mut Outbox<S>) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let mut partition = GroupPartition::new(self.limits.groups.clone());
        for batch in batches {
            partition.replay(batch);
        }
        let loaded = partition.loaded(now);
        let lowered =
            self.lowering.as_ref().filter(|lowering| lowering.is_open(index)).map(|lowering| {
                partition.lower_offsets(|topic, index| lowering.end(&self.topics, topic, index))
            });
        slot.state = State::Serving(Box::new(partition));
        if let Some(lowered) = lowered {
            self.queue(index, lowered, Some(Held::Lowered(index)), out);
        }
        self.queue(index, loaded, None, out);
        // Topics may have come and gone since the records were written.
        self.decide(index, out, |partition, cx| partition.topics_changed(now, cx));
    }

    /// Lets a serving partition decide. What comes out waits for the append of its records and of all before them.
    fn decide<S>(
        &mut self,
        index: i32,
        out: &mut Outbox<S>,
        decide: impl FnOnce(&mut GroupPartition, &GroupContext<'_>) -> GroupDecision,
    ) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let State::Serving(partition) = &mut slot.state else { return };
        let cx = GroupContext {
            topics: &self.topics,
            share_configs: &self.share_configs,
            share_default: &self.limits.share.config,
        };
        let decision = decide(partition, &cx);
        self.queue(index, decision, None, out);
    }

    fn queue<S>(&mut self, index: i32, decision: GroupDecision, last: Option<Held>, out: &mut Outbox<S>) {
        let slot = self.slots.get_mut(&index).expect("the caller knows the slot");
        let GroupDecision { records, replies, share_events } = decision;
        let replies = replies.into_iter().map(|(ticket, reply)| Held::Reply(ticket, reply));
        let held = replies.chain(share_events.into_iter().map(Held::Share)).chain(last).collect();
        self.touched.insert(index);
        if let Some(held) = slot.queue(records, held, self.limits.group_batch_bytes_max) {
            self.release(held, out);
        }
    }

    fn tick<S>(&mut self, now: Now, index: i32, out: &mut Outbox<S>) {
        self.touched.insert(index);
        let slot = self.slots.get_mut(&index).expect("a slot that is due stands");
        if slot.sync_at.is_some_and(|at| at <= now.mono) {
            slot.sync_at = None;
            let partition = slot.partition;
            // Nobody waits for it: an append that follows a failed sync is refused by the log.
            out.submit(Owner::Groups, |op| Submission::Sync { op, partition });
        }
        match &slot.state {
            State::Failed(again) if *again <= now.mono => self.load(index, out),
            State::Serving(_) => self.decide(index, out, |partition, cx| partition.tick(now, cx)),
            State::Failed(_) | State::Loading => {}
        }
    }

    fn append<S>(&mut self, now: Now, index: i32, out: &mut Outbox<S>) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        if slot.in_flight.is_some() {
            return;
        }
        let Some(next) = slot.pending.pop_front() else { return };
        let partition = slot.partition;
        let batch = next.build(now);
        slot.in_flight = Some(next);
        let origin = Origin::Coordinator;
        let op =
            out.submit(Owner::Groups, |op| Submission::Append { op, partition, batch, origin, keys: None });
        self.ops.insert(op, partition);
    }

    fn release<S>(&mut self, held: Vec<Held>, out: &mut Outbox<S>) {
        for held in held {
            match held {
                Held::Reply(ticket, reply) => out.reply(ticket, Reply::Group(reply)),
                Held::Share(event) => self.news.members.push(event),
                Held::NotDeleted(ticket, error) => out.reply(ticket, Reply::GroupDeleted(Err(error))),
                Held::Deleted(ticket, group) => self.news.deleted.push((ticket, group)),
                Held::Altered(ticket, request) => self.news.altered.push((ticket, request)),
                Held::Lowered(index) => self.sync_lowered(index, out),
            }
        }
    }

    /// Also where nothing was lowered: an earlier life may have done so and ended before its sync.
    fn sync_lowered<S>(&mut self, index: i32, out: &mut Outbox<S>) {
        let (Some(lowering), Some(slot)) = (&mut self.lowering, self.slots.get(&index)) else { return };
        let partition = slot.partition;
        let op = out.submit(Owner::Groups, |op| Submission::Sync { op, partition });
        lowering.syncs(op, index);
    }

    /// Drops a partition's memory and answers all that waits in it.
    fn give_up<S>(&mut self, index: i32, out: &mut Outbox<S>) {
        let slot = self.slots.get_mut(&index).expect("the caller knows the slot");
        for batch in slot.in_flight.take().into_iter().chain(slot.pending.drain(..)) {
            for held in batch.held {
                match held {
                    Held::Reply(ticket, reply) => out.reply(ticket, Reply::Group(not_available(reply))),
                    Held::Deleted(ticket, _) | Held::NotDeleted(ticket, _) => {
                        out.reply(ticket, Reply::GroupDeleted(Err(GroupError::NotAvailable)));
                    }
                    Held::Altered(ticket, _) => {
                        out.reply(ticket, Reply::ShareOffsetsRefused(GroupError::NotAvailable));
                    }
                    // It has not happened, and is tried again when the partition is loaded.
                    Held::Share(_) | Held::Lowered(_) => {}
                }
            }
        }
        if let State::Serving(partition) = std::mem::replace(&mut slot.state, State::Loading) {
            for (ticket, reply) in partition.abandon() {
                out.reply(ticket, Reply::Group(reply));
            }
        }
    }

    fn schedule(&mut self, index: i32) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let own = match &slot.state {
            State::Serving(partition) => partition.next_deadline(),
            State::Failed(again) => Some(*again),
            State::Loading => None,
        };
        let due_at = [own, slot.sync_at].into_iter().flatten().min();
        if due_at == slot.due_at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut slot.due_at, due_at) {
            self.due.remove(&(before, index));
        }
        self.due.extend(due_at.map(|at| (at, index)));
    }
}
