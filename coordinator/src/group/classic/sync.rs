//! SyncGroup and Heartbeat on a classic group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClassicGroup, State};
use crate::command::Ticket;
use crate::group::command::SyncGroup;
use crate::group::context::{Parked, Turn};
use crate::group::reply::{GroupError, GroupReply, Synced};

impl ClassicGroup {
    /// A member asks for its assignment; the leader brings those of all.
    pub(in crate::group) fn sync(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: SyncGroup) {
        if let Err(error) = self.check_sync(&request) {
            return turn.reply(ticket, GroupReply::Synced(Err(error)));
        }
        let id = request.member;
        self.unsynced.remove(&id);
        if self.unsynced.is_empty() {
            turn.timers.cancel(&self.sync_timer());
        }
        if self.state == State::Stable {
            return turn.reply(ticket, GroupReply::Synced(Ok(self.synced(&id))));
        }
        let member = self.members.get_mut(&id).expect("the member was checked");
        // A sync that waits on a lost connection gives way to this one.
        member.answer_sync(turn, Err(GroupError::RebalanceInProgress));
        member.sync = Some(ticket);
        turn.park(ticket, Parked::Sync);
        if self.is_leader(&id) {
            self.assign(turn, request.assignments);
        }
    }

    /// The leader's word: the generation is complete. Whom it does not name gets nothing.
    fn assign(&mut self, turn: &mut Turn<'_>, assignments: Vec<(Arc<str>, bytes::Bytes)>) {
        let mut assignments: BTreeMap<_, _> = assignments.into_iter().collect();
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
        }
        self.enter(turn, State::Stable);
        self.write(turn);
        for id in self.member_ids() {
            let answer = self.synced(&id);
            let member = self.members.get_mut(&id).expect("the id was listed just now");
            if member.answer_sync(turn, Ok(answer)) {
                self.restart_session(turn, &id);
            }
        }
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment: self.members[id].assignment.clone(),
        }
    }

    fn check_sync(&self, request: &SyncGroup) -> Result<(), GroupError> {
        self.check_member(&request.member, request.instance.as_deref())?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |theirs: &Option<Arc<str>>, ours: &Option<Arc<str>>| match (theirs, ours) {
            (Some(theirs), Some(ours)) => theirs != ours,
            _ => false,
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.state {
            State::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(()),
            State::Empty => Err(GroupError::UnknownMember),
        }
    }

    /// A member lives. It learns of a rebalance this way.
    pub(in crate::group) fn heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        member: &Arc<str>,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.check_member(member, instance)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        self.restart_session(turn, member);
        match self.state {
            State::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(()),
            State::Empty => Err(GroupError::UnknownMember),
        }
    }

    /// The wait for syncs is over: who did not send one is out.
    pub(in crate::group) fn sync_timed_out(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.state, State::CompletingRebalance | State::Stable) || self.unsynced.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.unsynced) {
            turn.timers.cancel(&self.session_timer(&id));
            self.remove(&id);
        }
        self.prepare_rebalance(turn);
    }
}
