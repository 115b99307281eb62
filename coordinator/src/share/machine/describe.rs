//! DescribeShareGroupOffsets, and the end of a group's share state.

use std::collections::BTreeSet;
use std::sync::Arc;

use records::ids::PartitionId;

use super::{Op, Part, PartState, ShareMachine};
use crate::command::Ticket;
use crate::group::GroupError;
use crate::io::{IoError, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::{Effect, Reply, ShareOffsets};
use crate::share::ShareError;
use crate::time::Now;

/// A question about start offsets that waits for the disk.
#[derive(Debug)]
pub(super) struct Describe {
    ticket: Ticket,
    group: Arc<str>,
    wanted: Option<Vec<PartitionId>>,
    /// Partitions with state, once the disk has said so.
    found: Option<BTreeSet<PartitionId>>,
}

impl<S: Slice> ShareMachine<S> {
    pub(super) fn describe_offsets(
        &mut self,
        ticket: Ticket,
        group: &Arc<str>,
        wanted: Option<Vec<PartitionId>>,
        out: &mut Outbox<S>,
    ) {
        let number = self.next_number();
        self.describes.insert(number, Describe { ticket, group: Arc::clone(group), wanted, found: None });
        let group = Arc::clone(group);
        let op = out.submit(Owner::Share, |op| Submission::ListShareStates { op, group });
        self.ops.insert(op, Op::States(number));
    }

    pub(super) fn states_listed(
        &mut self,
        number: u64,
        result: Result<Vec<PartitionId>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(describe) = self.describes.get_mut(&number) else { return };
        let Ok(on_disk) = result else {
            let Some(describe) = self.describes.remove(&number) else { return };
            let parts =
                describe.wanted.unwrap_or_default().into_iter().map(|id| (id, Err(ShareError::Unavailable)));
            return out.reply(describe.ticket, Reply::ShareOffsets(parts.collect()));
        };
        let mut found: BTreeSet<PartitionId> = on_disk.into_iter().collect();
        let group = Arc::clone(&describe.group);
        let known = self.group_numbers.get(&group).and_then(|number| self.groups.get(number));
        let loaded = known.into_iter().flat_map(|group| &group.parts).filter_map(|part| self.parts.get(part));
        found.extend(loaded.filter(|part| !matches!(part.state, PartState::Closed)).map(|part| part.id));
        found.retain(|partition| logs.contains_key(partition));
        let Some(describe) = self.describes.get_mut(&number) else { return };
        if let Some(wanted) = &describe.wanted {
            let wanted: BTreeSet<_> = wanted.iter().copied().collect();
            found.retain(|partition| wanted.contains(partition));
        }
        describe.found = Some(found.clone());
        for partition in found {
            let group = self.group_number(&group);
            let part = self.part_number(group, partition, out);
            self.dirty.insert(part);
        }
        self.pending_describes.insert(number);
    }

    /// A share-partition was loaded, or will not be: questions that waited for it may be ready.
    pub(super) fn wake_describes(&mut self, _part: u32) {
        self.pending_describes.extend(self.describes.keys().copied());
    }

    /// Answers the questions whose share-partitions are all in memory, or cannot be.
    pub(super) fn answer_describes(&mut self, logs: &LogTable, out: &mut Outbox<S>) {
        for number in std::mem::take(&mut self.pending_describes) {
            let Some(describe) = self.describes.get(&number) else { continue };
            let Some(found) = &describe.found else { continue };
            let group = self.group_numbers.get(&describe.group).copied().unwrap_or_default();
            let part = |id: &PartitionId| self.parts.get(self.part_numbers.get(&(*id, group))?);
            let is_on_its_way = |part: &Part| {
                matches!(part.state, PartState::Opening(_) | PartState::Loading(..) | PartState::Starting)
            };
            if found.iter().filter_map(part).any(is_on_its_way) {
                continue;
            }
            let wanted = describe.wanted.clone().unwrap_or_else(|| found.iter().copied().collect());
            let offsets = wanted
                .into_iter()
                .map(|id| {
                    let facts = logs.get(&id).copied();
                    let part = part(&id);
                    let told = part.and_then(|part| Some((part.open()?, part.told_start()?)));
                    let answer = match (facts, told) {
                        (None, _) => Err(ShareError::UnknownPartition),
                        (Some(facts), Some((open, start))) => Ok(ShareOffsets {
                            start: Some(start),
                            leader_epoch: facts.leader_epoch,
                            lag: open.lag(facts.end.get()),
                        }),
                        (Some(_), None)
                            if found.contains(&id) && part.is_some_and(|part| part.open().is_none()) =>
                        {
                            Err(ShareError::Unavailable)
                        }
                        (Some(facts), None) => {
                            Ok(ShareOffsets { start: None, leader_epoch: facts.leader_epoch, lag: -1 })
                        }
                    };
                    (id, answer)
                })
                .collect();
            let ticket = describe.ticket;
            self.describes.remove(&number);
            out.reply(ticket, Reply::ShareOffsets(offsets));
        }
    }

    pub(super) fn delete_group(&mut self, now: Now, ticket: Ticket, group: &Arc<str>, out: &mut Outbox<S>) {
        if let Some(&number) = self.group_numbers.get(group) {
            let members: Vec<u32> = self
                .members
                .iter()
                .filter(|(_, member)| member.group == number)
                .map(|(&number, _)| number)
                .collect();
            for member in members {
                self.end_session(now, member);
            }
            for part in self.group(number).parts.clone() {
                self.drop_part(now, part, out);
            }
        }
        let name = Arc::clone(group);
        let op =
            out.submit(Owner::Share, |op| Submission::DeleteShareState { op, group: name, partition: None });
        self.ops.insert(op, Op::Delete { ticket, group: Arc::clone(group) });
    }

    pub(super) fn state_deleted(
        ticket: Ticket,
        group: Arc<str>,
        result: Result<(), IoError>,
        out: &mut Outbox<S>,
    ) {
        let reply = match result {
            Ok(()) => {
                out.effect(Effect::GroupDeleted(group));
                Ok(())
            }
            Err(_) => Err(GroupError::NotAvailable),
        };
        out.reply(ticket, Reply::GroupDeleted(reply));
    }
}
