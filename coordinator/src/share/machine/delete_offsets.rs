//! DeleteShareGroupOffsets: the share state of some partitions goes, with all that hangs on it in memory.
//!
//! The disk is asked which of them have state, since there need be none in memory; then each that has is dropped and
//! its files are deleted. The caller has seen to it that the group has no members; one that joined meanwhile is noticed
//! between the two steps, before anything is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::PartitionId;

use super::{Op, PartState, ShareMachine};
use crate::command::Ticket;
use crate::group::GroupError;
use crate::io::{IoError, Slice, Submission};
use crate::outbox::{Outbox, Owner};
use crate::reply::Reply;
use crate::share::ShareError;
use crate::time::Now;

/// A request that waits for the disk.
#[derive(Debug)]
pub(super) struct DeleteOffsets {
    ticket: Ticket,
    group: Arc<str>,
    wanted: Vec<PartitionId>,
    /// What became of each partition; one that is missing has no state.
    outcomes: BTreeMap<PartitionId, Result<bool, ShareError>>,
    /// Deletions under way.
    left: usize,
}

impl<S: Slice> ShareMachine<S> {
    pub(super) fn delete_offsets(
        &mut self,
        ticket: Ticket,
        group: &Arc<str>,
        wanted: Vec<PartitionId>,
        out: &mut Outbox<S>,
    ) {
        let number = self.next_number();
        let outcomes = BTreeMap::new();
        let request = DeleteOffsets { ticket, group: Arc::clone(group), wanted, outcomes, left: 0 };
        self.deletes.insert(number, request);
        let group = Arc::clone(group);
        let op = out.submit(Owner::Share, |op| Submission::ListShareStates { op, group });
        self.ops.insert(op, Op::StatesToDelete(number));
    }

    /// The disk has said which partitions have state.
    pub(super) fn delete_listed(
        &mut self,
        now: Now,
        number: u64,
        listed: Result<Vec<PartitionId>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(mut request) = self.deletes.remove(&number) else { return };
        let known = self.group_numbers.get(&request.group).copied();
        let live = known.and_then(|group| self.group(group).live.as_ref());
        if live.is_some_and(|live| !live.is_empty()) {
            return out.reply(request.ticket, Reply::ShareOffsetsDeleted(Err(GroupError::NonEmptyGroup)));
        }
        let Ok(listed) = listed else {
            return out.reply(request.ticket, Reply::ShareOffsetsDeleted(Err(GroupError::NotAvailable)));
        };
        let on_disk: BTreeSet<PartitionId> = listed.into_iter().collect();
        let wanted: BTreeSet<PartitionId> = request.wanted.iter().copied().collect();
        for partition in wanted {
            let part = known.and_then(|group| self.part_numbers.get(&(partition, group))).copied();
            let loaded = part
                .and_then(|part| self.parts.get(&part))
                .is_some_and(|part| !matches!(part.state, PartState::Closed));
            if !loaded && !on_disk.contains(&partition) {
                continue;
            }
            if let Some(part) = part {
                self.drop_part(now, part, out);
            }
            let group = Arc::clone(&request.group);
            let partition_only = Some(partition);
            let op = out.submit(Owner::Share, |op| Submission::DeleteShareState {
                op,
                group,
                partition: partition_only,
            });
            self.ops.insert(op, Op::DeletePart(number, partition));
            request.left += 1;
        }
        self.deletes.insert(number, request);
        self.answer_delete(number, out);
    }

    /// One partition's state is deleted, or could not be.
    pub(super) fn delete_done(
        &mut self,
        number: u64,
        partition: PartitionId,
        result: Result<(), IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(request) = self.deletes.get_mut(&number) else { return };
        request.left -= 1;
        request.outcomes.insert(partition, result.map(|()| true).map_err(|_| ShareError::Unavailable));
        self.answer_delete(number, out);
    }

    /// What standalone readers left under an id that is no group's goes, if there is anything.
    pub(super) fn delete_left(
        &mut self,
        now: Now,
        ticket: Ticket,
        group: &Arc<str>,
        listed: Result<Vec<PartitionId>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let refused = match listed {
            Ok(_) if self.has_readers(group) => GroupError::NonEmptyGroup,
            Ok(listed) if listed.is_empty() => GroupError::GroupNotFound,
            Ok(_) => return self.delete_group(now, ticket, group, out),
            Err(_) => GroupError::NotAvailable,
        };
        out.reply(ticket, Reply::GroupDeleted(Err(refused)));
    }

    fn answer_delete(&mut self, number: u64, out: &mut Outbox<S>) {
        if self.deletes.get(&number).is_none_or(|request| request.left > 0) {
            return;
        }
        let Some(request) = self.deletes.remove(&number) else { return };
        let outcome = |id: &PartitionId| (*id, request.outcomes.get(id).copied().unwrap_or(Ok(false)));
        let outcomes = request.wanted.iter().map(outcome).collect();
        out.reply(request.ticket, Reply::ShareOffsetsDeleted(Ok(outcomes)));
    }
}
