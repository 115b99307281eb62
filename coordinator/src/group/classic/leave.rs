//! How members go: LeaveGroup, and sessions that run out.

use std::sync::Arc;

use super::{ClassicGroup, State};
use crate::group::context::Turn;
use crate::group::reply::GroupError;

impl ClassicGroup {
    /// LeaveGroup: one outcome for each, named by member id, or by instance id alone (an administrator's way).
    pub(in crate::group) fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        members: &[(Arc<str>, Option<Arc<str>>)],
    ) -> Vec<Result<(), GroupError>> {
        let outcomes: Vec<_> = members
            .iter()
            .map(|(member, instance)| self.leave_one(turn, member, instance.as_ref()))
            .collect();
        if outcomes.iter().any(Result::is_ok) {
            match self.state {
                State::Stable | State::CompletingRebalance => self.prepare_rebalance(turn),
                State::PreparingRebalance => self.complete_join_if_all(turn),
                State::Empty => {}
            }
        }
        outcomes
    }

    fn leave_one(
        &mut self,
        turn: &mut Turn<'_>,
        member: &Arc<str>,
        instance: Option<&Arc<str>>,
    ) -> Result<(), GroupError> {
        if member.is_empty() {
            let id = instance.and_then(|instance| self.statics.get(instance)).cloned();
            self.end(turn, &id.ok_or(GroupError::UnknownMember)?);
        } else {
            if !self.pending.contains(member) {
                self.check_member(member, instance.map(|instance| &**instance))?;
            }
            self.end(turn, member);
        }
        Ok(())
    }

    /// A session ran out: of a member, or of an id that was handed out.
    pub(in crate::group) fn session_timed_out(&mut self, turn: &mut Turn<'_>, id: &Arc<str>) {
        let waits = self.members.get(id).is_some_and(super::Member::waits_for_broker);
        if waits || !(self.members.contains_key(id) || self.pending.contains(id)) {
            return;
        }
        let was_member = self.members.contains_key(id);
        self.end(turn, id);
        match self.state {
            State::Stable | State::CompletingRebalance if was_member => self.prepare_rebalance(turn),
            // Nobody else is waited for, not even by a first generation's delay.
            State::PreparingRebalance if self.all_joined() => self.complete_join(turn),
            _ => {}
        }
    }

    /// Takes a member out. Its parked requests are told that nobody knows it, so that a client that lives joins anew.
    fn end(&mut self, turn: &mut Turn<'_>, id: &Arc<str>) {
        turn.timers.cancel(&self.session_timer(id));
        if let Some(mut member) = self.remove(id) {
            member.refuse_join(turn, GroupError::UnknownMember, &Arc::default());
            member.answer_sync(turn, Err(GroupError::UnknownMember));
        }
    }
}
