//! From one generation to the next.

use std::sync::Arc;

use bytes::Bytes;

use super::{ClassicGroup, State};
use crate::group::context::Turn;
use crate::group::reply::{GroupError, Joined};

/// The first generation of an empty group is held back for more members, again and again while they come, at most as
/// long as a rebalance may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitialDelay {
    /// What is left of the rebalance timeout after the delay under way, milliseconds.
    remaining_ms: i64,
    /// The delay under way, milliseconds.
    delay_ms: i64,
    /// Somebody joined during it.
    member_added: bool,
}

impl ClassicGroup {
    /// Starts a rebalance, or, where one is under way, sees whether it can complete.
    pub(super) fn rebalance_or_complete(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            self.complete_join_if_all(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    /// Waits for all members to join, unless all have.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::CompletingRebalance {
            for member in self.members.values_mut() {
                member.assignment = Bytes::new();
            }
            self.refuse_syncs(turn, GroupError::RebalanceInProgress);
        }
        self.unsynced.clear();
        turn.timers.cancel(&self.sync_timer());

        self.initial_rebalance = self.state == State::Empty;
        self.enter(turn, State::PreparingRebalance);
        if self.initial_rebalance {
            let delay_ms = i64::from(turn.limits.initial_rebalance_delay_ms);
            let remaining_ms = (self.rebalance_timeout_ms() - delay_ms).max(0);
            self.initial_delay = Some(InitialDelay { remaining_ms, delay_ms, member_added: false });
            if delay_ms > 0 {
                turn.set_timer(self.rebalance_timer(), delay_ms);
            } else {
                self.rebalance_timed_out(turn);
            }
        } else if self.all_joined() {
            self.complete_join(turn);
        } else {
            turn.set_timer(self.rebalance_timer(), self.rebalance_timeout_ms());
        }
    }

    /// Completes the rebalance under way if nobody is missing. The first one waits for its delay.
    pub(super) fn complete_join_if_all(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance && !self.initial_rebalance && self.all_joined() {
            self.complete_join(turn);
        }
    }

    /// A new member came: if the first generation is being held back, it may be held back longer.
    pub(super) fn note_new_member(&mut self) {
        if let Some(delay) = &mut self.initial_delay {
            delay.member_added = true;
        }
    }

    /// The wait for joins is over.
    pub(in crate::group) fn rebalance_timed_out(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::PreparingRebalance {
            return;
        }
        let timer = self.rebalance_timer();
        if let Some(delay) = &mut self.initial_delay
            && delay.member_added
            && delay.remaining_ms > 0
        {
            let next_ms = i64::from(turn.limits.initial_rebalance_delay_ms).min(delay.remaining_ms);
            delay.remaining_ms = (delay.remaining_ms - delay.delay_ms).max(0);
            delay.delay_ms = next_ms;
            delay.member_added = false;
            turn.set_timer(timer, next_ms);
            return;
        }
        self.complete_join(turn);
    }

    /// Ends the wait for joins: dynamic members that are missing are out, the next generation begins.
    pub(super) fn complete_join(&mut self, turn: &mut Turn<'_>) {
        turn.timers.cancel(&self.rebalance_timer());
        self.initial_delay = None;
        let missing =
            self.members.iter().filter(|(_, member)| member.join.is_none() && member.instance.is_none());
        for id in missing.map(|(id, _)| Arc::clone(id)).collect::<Vec<_>>() {
            self.remove(&id);
            turn.timers.cancel(&self.session_timer(&id));
        }

        if !self.elect_leader() {
            // Only static members, and none has come back: their sessions decide.
            turn.set_timer(self.rebalance_timer(), self.rebalance_timeout_ms());
            return;
        }
        self.generation += 1;
        self.unsynced.clear();
        self.initial_rebalance = false;
        if self.members.is_empty() {
            self.protocol = None;
            self.subscribed = self.subscribed_topics();
            self.enter(turn, State::Empty);
            self.write(turn);
            return;
        }
        self.protocol = self.select_protocol();
        self.subscribed = self.subscribed_topics();
        self.enter(turn, State::CompletingRebalance);
        for id in self.member_ids() {
            let answer = self.joined(&id);
            let member = self.members.get_mut(&id).expect("the id was listed just now");
            member.is_new = false;
            member.answer_join(turn, Ok(answer));
            self.restart_session(turn, &id);
            self.unsynced.insert(id);
        }
        turn.set_timer(self.sync_timer(), self.rebalance_timeout_ms());
    }

    /// A leader that did not come back gives way to a member that did. Whether the group can go on: someone came
    /// back, or nobody is left (`ClassicGroup.maybeElectNewJoinedLeader`).
    fn elect_leader(&mut self) -> bool {
        let leader_is_back = self
            .leader
            .as_ref()
            .and_then(|id| self.members.get(id))
            .is_some_and(|leader| leader.join.is_some());
        if !leader_is_back {
            match self.members.iter().find(|(_, member)| member.join.is_some()) {
                Some((id, _)) => self.leader = Some(Arc::clone(id)),
                None => return self.members.is_empty(),
            }
        }
        true
    }

    /// What a member is told of this generation; the leader also who else is in it.
    pub(super) fn joined(&self, member: &Arc<str>) -> Joined {
        let members = if self.is_leader(member) { self.roll() } else { Vec::new() };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol.clone().unwrap_or_default(),
            leader: self.leader.clone().unwrap_or_default(),
            member: Arc::clone(member),
            skip_assignment: false,
            members,
        }
    }

    /// All members with their metadata, for the leader.
    pub(super) fn roll(&self) -> Vec<(Arc<str>, Option<Arc<str>>, Bytes)> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members
            .iter()
            .map(|(id, member)| (Arc::clone(id), member.instance.clone(), member.metadata(protocol)))
            .collect()
    }

    /// Refuses all parked syncs; their members' sessions begin anew, since nothing watched them meanwhile.
    fn refuse_syncs(&mut self, turn: &mut Turn<'_>, error: GroupError) {
        for id in self.member_ids() {
            let member = self.members.get_mut(&id).expect("the id was listed just now");
            if member.answer_sync(turn, Err(error)) {
                self.restart_session(turn, &id);
            }
        }
    }
}
