//! Committed offsets, as their groups allow: commit, delete, run out, lower.

use std::sync::Arc;

use super::{Group, GroupPartition, turn};
use crate::command::{Ticket, TopicImage};
use crate::group::command::OffsetCommit;
use crate::group::context::GroupDecision;
use crate::group::limits::NAME_BYTES_MAX;
use crate::group::offsets;
use crate::group::reply::{GroupError, GroupReply};
use crate::group::stored::Change;
use crate::group::timers::Timer;
use crate::time::Now;

impl GroupPartition {
    /// Lowers what is committed beyond the end of its log, which an unclean stop may have cut: the offsets above it
    /// will be other records. `end` gives a partition's end, `None` where it is not known here.
    pub fn lower_offsets(&mut self, end: impl Fn(&Arc<str>, i32) -> Option<i64>) -> GroupDecision {
        let changes = self.offsets.lowered(end);
        self.write_all(GroupDecision::default(), changes)
    }

    pub(super) fn commit(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: OffsetCommit,
        topics: &TopicImage,
    ) -> GroupDecision {
        let checked = self.check_commit(&request);
        let (mut turn, groups) = turn(self, now);
        if let Err(error) = checked {
            turn.reply(ticket, GroupReply::Committed(vec![Err(error); request.offsets.len()]));
            return turn.out;
        }
        if let Some(Group::Classic(group)) = groups.get(&request.group) {
            group.committed(&mut turn, &request.member);
        }
        let metadata_max = turn.limits.offset_metadata_max;
        let mut outcomes = Vec::with_capacity(request.offsets.len());
        let mut changes = Vec::with_capacity(request.offsets.len());
        for offset in request.offsets {
            outcomes.push(if offset.metadata.encode_utf16().count() > metadata_max {
                Err(GroupError::MetadataTooLarge)
            } else if offset.topic.len() > NAME_BYTES_MAX {
                Err(GroupError::InvalidRequest)
            } else {
                changes.push(offsets::commit(
                    &request.group,
                    offset,
                    now.wall_ms,
                    request.retention_ms,
                    topics,
                ));
                Ok(())
            });
        }
        turn.reply(ticket, GroupReply::Committed(outcomes));
        let out = turn.out;
        self.write_all(out, changes)
    }

    /// Any string may be a group here, the empty one too.
    fn check_commit(&self, request: &OffsetCommit) -> Result<(), GroupError> {
        match self.groups.get(&request.group) {
            Some(Group::Classic(group)) => {
                group.check_commit(&request.member, request.instance.as_deref(), request.generation)
            }
            Some(Group::Share(_)) => Err(GroupError::GroupNotFound),
            None if request.group.len() > NAME_BYTES_MAX => Err(GroupError::InvalidGroupId),
            // A group that uses Kafka for nothing but its offsets begins to exist by its first commit.
            None if request.generation < 0 => Ok(()),
            None if request.tells_missing_group => Err(GroupError::GroupNotFound),
            None => Err(GroupError::IllegalGeneration),
        }
    }

    pub(super) fn delete_offsets(
        &mut self,
        now: Now,
        ticket: Ticket,
        group: &Arc<str>,
        partitions: &[(Arc<str>, i32)],
    ) -> GroupDecision {
        let mut changes = Vec::new();
        let outcome = match self.groups.get(group) {
            Some(Group::Classic(classic)) => classic.check_offset_delete().map(|()| {
                let delete = |place: &(Arc<str>, i32)| {
                    if classic.is_subscribed(&place.0) {
                        return Err(GroupError::SubscribedToTopic);
                    }
                    if self.offsets.has(group, &place.0, place.1) {
                        changes.push(offsets::tombstone(group, place));
                    }
                    Ok(())
                };
                partitions.iter().map(delete).collect()
            }),
            _ => Err(GroupError::GroupNotFound),
        };
        let (mut turn, _) = turn(self, now);
        turn.reply(ticket, GroupReply::OffsetsDeleted(outcome));
        let out = turn.out;
        self.write_all(out, changes)
    }

    /// Deletes what has run out, and empty classic groups that have nothing left
    /// (`GroupCoordinatorShard.cleanupGroupMetadata`).
    pub(super) fn expire_offsets(&mut self, now: Now, out: GroupDecision) -> GroupDecision {
        let mut changes = Vec::new();
        for (id, group) in &self.groups {
            let Group::Classic(group) = group else { continue };
            let expired = group.retention_start().map_or_else(Vec::new, |start_ms| {
                let keeps = |topic: &str| group.is_subscribed(topic);
                self.offsets.expired(id, now.wall_ms, self.limits.offsets_retention_ms, start_ms, keeps)
            });
            let all_gone = expired.len() == self.offsets.count(id);
            changes.extend(expired);
            if all_gone && group.is_unused() {
                changes.push(Change::Group { group: Arc::clone(id), value: None });
            }
        }
        let (mut turn, _) = turn(self, now);
        turn.out = out;
        let check_ms = turn.limits.offsets_retention_check_ms;
        turn.set_timer(Timer::Retention, check_ms);
        let out = turn.out;
        self.write_all(out, changes)
    }
}
