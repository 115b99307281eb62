//! ShareGroupHeartbeat: join, stay, leave; and sessions that run out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ShareGroup, ShareMember, assign};
use crate::group::command::ShareHeartbeat;
use crate::group::context::{GroupContext, ShareChange, ShareMembership, Turn};
use crate::group::reply::{GroupError, ShareHeartbeatReply};
use crate::group::stored::{Assignment, Change, StoredCurrent, StoredShareMember, StoredTargets};
use crate::group::timers::Timer;
use crate::share::ShareOrder;

/// The epoch by which a member joins.
const JOIN: i32 = 0;
/// The epoch by which a member leaves.
const LEAVE: i32 = -1;

/// Checks what can be checked without the group (`GroupMetadataManager.throwIfShareGroupHeartbeatRequestIsInvalid`).
pub(in crate::group) fn check(request: &ShareHeartbeat) -> Result<(), GroupError> {
    let joins_without_topics = request.epoch == JOIN && request.topics.as_ref().is_none_or(Vec::is_empty);
    if request.group.is_empty()
        || request.member.is_empty()
        || request.rack.as_ref().is_some_and(|rack| rack.is_empty())
        || request.epoch < LEAVE
        || joins_without_topics
    {
        return Err(GroupError::InvalidRequest);
    }
    Ok(())
}

/// Whether the request ends the membership.
pub(in crate::group) fn leaves(request: &ShareHeartbeat) -> bool {
    request.epoch == LEAVE
}

/// Whether the request may begin a membership, and with it a group.
pub(in crate::group) fn joins(request: &ShareHeartbeat) -> bool {
    request.epoch == JOIN
}

impl ShareGroup {
    /// A member joins or stays.
    pub(in crate::group) fn heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        request: ShareHeartbeat,
        cx: &GroupContext<'_>,
    ) -> Result<ShareHeartbeatReply, GroupError> {
        let id = Arc::clone(&request.member);
        let before = self.admit(turn, &request)?;
        let is_new = before.is_none();
        let before = before.unwrap_or_default();

        let topics: BTreeSet<Arc<str>> =
            request.topics.map_or_else(|| before.topics.clone(), |topics| topics.into_iter().collect());
        let mut resubscribes = topics != before.topics;
        let now = StoredShareMember {
            rack: request.rack.or_else(|| before.rack.clone()),
            client_id: request.client_id,
            client_host: request.client_host,
            topics,
        };
        let changed = is_new
            || resubscribes
            || now.rack != before.rack
            || now.client_id != before.client_id
            || now.client_host != before.client_host;
        if changed {
            self.commit(
                turn,
                Change::ShareMember { group: self.id(), member: Arc::clone(&id), value: Some(now) },
            );
        }
        // A member that a restart lost between two records: its subscription is known, its epoch is not.
        resubscribes |= before.epoch == 0;
        self.refresh(turn, cx, resubscribes);
        if self.epoch > self.targets.epoch {
            self.compute_targets(turn, cx);
        }
        self.reconcile(turn, &id);

        if is_new {
            self.tell(turn, &id, ShareChange::Joined);
        }
        let config = cx.share_config(&self.id);
        turn.set_timer(self.session_timer(&id), i64::from(config.session_timeout_ms));
        let member = &self.members[&id];
        // One that comes with an older epoch has lost an answer, and maybe an assignment with it.
        let tells = request.epoch != before.epoch || member.assigned != before.assigned;
        Ok(ShareHeartbeatReply {
            epoch: member.epoch,
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            assignment: tells.then(|| member.assigned.clone()),
            member: id,
        })
    }

    /// Who speaks: a member as it was before, or (`None`) a new one for whom there is room.
    fn admit(&self, turn: &Turn<'_>, request: &ShareHeartbeat) -> Result<Option<ShareMember>, GroupError> {
        let Some(member) = self.members.get(&request.member) else {
            if self.members.len() >= turn.limits.share_members_max {
                return Err(GroupError::GroupMaxSize);
            }
            return if joins(request) { Ok(None) } else { Err(GroupError::UnknownMember) };
        };
        // Its last answer may have been lost: then it comes with the epoch before.
        if [JOIN, member.epoch, member.previous_epoch].contains(&request.epoch) {
            Ok(Some(member.clone()))
        } else {
            Err(GroupError::FencedMemberEpoch)
        }
    }

    /// A member leaves.
    pub(in crate::group) fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        member: &Arc<str>,
        cx: &GroupContext<'_>,
    ) -> Result<ShareHeartbeatReply, GroupError> {
        if !self.members.contains_key(member) {
            return Err(GroupError::UnknownMember);
        }
        self.remove(turn, member, cx);
        self.tell(turn, member, ShareChange::Left);
        Ok(ShareHeartbeatReply {
            member: Arc::clone(member),
            epoch: LEAVE,
            heartbeat_interval_ms: 0,
            assignment: None,
        })
    }

    /// A member's session ran out.
    pub(in crate::group) fn session_timed_out(
        &mut self,
        turn: &mut Turn<'_>,
        member: &Arc<str>,
        cx: &GroupContext<'_>,
    ) {
        if self.members.contains_key(member) {
            self.remove(turn, member, cx);
            self.tell(turn, member, ShareChange::TimedOut);
        }
    }

    /// Topics or settings may be others now. Members learn of it by their next heartbeat.
    pub(in crate::group) fn world_changed(&mut self, turn: &mut Turn<'_>, cx: &GroupContext<'_>) {
        if !self.members.is_empty() {
            self.refresh(turn, cx, false);
            if self.epoch > self.targets.epoch {
                self.compute_targets(turn, cx);
            }
        }
    }

    /// Starts the members' sessions anew after a restart, with the longest timeout that a group can have: each one's
    /// own counts from its next heartbeat.
    pub(in crate::group) fn loaded(&self, turn: &mut Turn<'_>) {
        for member in self.members.keys() {
            turn.set_timer(self.session_timer(member), crate::group::limits::SHARE_SESSION_TIMEOUT_MS_MAX);
            self.tell(turn, member, ShareChange::Joined);
        }
    }

    fn remove(&mut self, turn: &mut Turn<'_>, member: &Arc<str>, cx: &GroupContext<'_>) {
        turn.timers.cancel(&self.session_timer(member));
        let (group, member) = (self.id(), Arc::clone(member));
        let place = || (Arc::clone(&group), Arc::clone(&member));
        let [(a, b), (c, d), (e, f)] = [place(), place(), place()];
        self.commit(turn, Change::ShareCurrent { group: a, member: b, value: None });
        self.commit(turn, Change::ShareTarget { group: c, member: d, value: None });
        self.commit(turn, Change::ShareMember { group: e, member: f, value: None });
        self.refresh(turn, cx, true);
        if self.members.is_empty() {
            let value = StoredTargets { epoch: self.epoch, computed_ms: 0 };
            self.commit(turn, Change::ShareTargets { group, value: Some(value) });
        }
    }

    /// Raises the epoch if membership or subscriptions changed (`force`) or what they stand for did.
    fn refresh(&mut self, turn: &mut Turn<'_>, cx: &GroupContext<'_>, force: bool) {
        let hash = self.hash_metadata(self.members.values().flat_map(|member| &member.topics), cx);
        if force || hash != self.metadata_hash {
            self.commit(turn, self.bump(hash));
        }
    }

    /// Assigns anew, for the present epoch.
    fn compute_targets(&mut self, turn: &mut Turn<'_>, cx: &GroupContext<'_>) {
        let targets = match cx.share_config(&self.id).order {
            ShareOrder::Key => assign::assign_all(&self.members, cx.topics),
            ShareOrder::None => assign::assign_simple(&self.members, cx.topics),
        };
        let pairs: Vec<(Arc<str>, Assignment)> = self.members.keys().cloned().zip(targets).collect();
        for (member, target) in pairs {
            let known = &self.members[&member];
            if known.target != target || known.epoch == 0 {
                self.commit(turn, Change::ShareTarget { group: self.id(), member, value: Some(target) });
            }
        }
        let value = StoredTargets { epoch: self.epoch, computed_ms: turn.now.wall_ms };
        self.commit(turn, Change::ShareTargets { group: self.id(), value: Some(value) });
    }

    /// Gives a member its target. Share members need not give anything back first.
    fn reconcile(&mut self, turn: &mut Turn<'_>, id: &Arc<str>) {
        let member = &self.members[id];
        if member.epoch != self.targets.epoch {
            let value = StoredCurrent {
                epoch: self.targets.epoch,
                previous_epoch: member.epoch,
                assignment: member.target.clone(),
            };
            self.commit(
                turn,
                Change::ShareCurrent { group: self.id(), member: Arc::clone(id), value: Some(value) },
            );
        }
    }

    /// Writes a change and takes it over.
    fn commit(&mut self, turn: &mut Turn<'_>, change: Change) {
        turn.write(&change);
        let goes_on = self.apply(change);
        debug_assert!(goes_on, "a heartbeat never deletes a group");
    }

    fn tell(&self, turn: &mut Turn<'_>, member: &Arc<str>, change: ShareChange) {
        turn.out.share_events.push(ShareMembership { group: self.id(), member: Arc::clone(member), change });
    }

    fn session_timer(&self, member: &Arc<str>) -> Timer {
        Timer::ShareSession { group: self.id(), member: Arc::clone(member) }
    }
}
