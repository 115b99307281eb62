//! JoinGroup on a classic group (`GroupMetadataManager.classicGroupJoinToClassicGroup`).

use std::sync::Arc;

use super::member::Member;
use super::{ClassicGroup, State};
use crate::command::Ticket;
use crate::group::command::JoinGroup;
use crate::group::context::{Parked, Turn};
use crate::group::limits::{MEMBER_ID_SUFFIX_BYTES, NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_IDS_MAX};
use crate::group::reply::{GroupError, GroupReply, Joined};

impl ClassicGroup {
    /// A member, or one who wants to be one, joins.
    pub(in crate::group) fn join(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: JoinGroup) {
        if !self.has_room(turn, &request.member) {
            self.drop_member(turn, &request.member);
            return turn.refuse_join(ticket, GroupError::GroupMaxSize, &Arc::default());
        }
        if !self.accepts_protocols(&request.protocol_type, request.protocols.iter().map(|(name, _)| name)) {
            return turn.refuse_join(ticket, GroupError::InconsistentProtocol, &request.member);
        }
        if request.member.is_empty() {
            self.join_new(turn, ticket, request);
        } else if self.pending.contains(&request.member) && request.instance.is_none() {
            let id = Arc::clone(&request.member);
            self.add(turn, ticket, &request, id);
        } else {
            self.join_again(turn, ticket, request);
        }
    }

    /// Whether one more may take part (`GroupMetadataManager.acceptJoiningMember`): while a rebalance gathers
    /// members, those who are back count, so that the last ones of a group that is too large are left out.
    fn has_room(&self, turn: &Turn<'_>, member: &str) -> bool {
        let max = turn.limits.members_max;
        let known = self.members.get(member);
        match self.state {
            State::Empty => true,
            State::PreparingRebalance => {
                known.is_some_and(|known| known.join.is_some()) || self.awaiting_join() < max
            }
            State::CompletingRebalance | State::Stable => known.is_some() || self.members.len() < max,
        }
    }

    /// Takes out a member (or an id that was handed out) that finds no room.
    fn drop_member(&mut self, turn: &mut Turn<'_>, id: &Arc<str>) {
        if self.members.contains_key(id) || self.pending.contains(id) {
            turn.timers.cancel(&self.session_timer(id));
            self.remove(id);
            self.complete_join_if_all(turn);
        }
    }

    fn join_new(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: JoinGroup) {
        let id = member_id(&request);
        if let Some(instance) = &request.instance {
            match self.statics.get(instance).cloned() {
                Some(old) => self.replace_static(turn, ticket, request, &old, &id),
                None => self.add(turn, ticket, &request, id),
            }
        } else if request.requires_known_member && self.pending.len() >= PENDING_IDS_MAX {
            turn.refuse_join(ticket, GroupError::GroupMaxSize, &Arc::default());
        } else if request.requires_known_member {
            turn.set_timer(self.session_timer(&id), i64::from(request.session_timeout_ms));
            self.pending.insert(Arc::clone(&id));
            turn.refuse_join(ticket, GroupError::MemberIdRequired, &id);
        } else {
            self.add(turn, ticket, &request, id);
        }
    }

    /// Adds a member whose join waits for the next generation.
    fn add(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: &JoinGroup, id: Arc<str>) {
        if self.members.is_empty() {
            self.protocol_type = Some(Arc::clone(&request.protocol_type));
        }
        self.note_new_member();
        self.leader.get_or_insert_with(|| Arc::clone(&id));
        self.pending.remove(&id);
        if let Some(instance) = &request.instance {
            self.statics.insert(Arc::clone(instance), Arc::clone(&id));
        }
        let mut member = Member::new(request);
        member.join = Some(ticket);
        turn.park(ticket, Parked::Join);
        turn.set_timer(self.session_timer(&id), NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.members.insert(id, member);
        self.rebalance_or_complete(turn);
    }

    /// A member joins anew.
    fn join_again(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: JoinGroup) {
        let id = Arc::clone(&request.member);
        if let Err(error) = self.check_member(&id, request.instance.as_deref()) {
            return turn.refuse_join(ticket, error, &id);
        }
        let member = &self.members[&id];
        let rejoins = match self.state {
            State::PreparingRebalance => true,
            State::CompletingRebalance => member.protocols != request.protocols,
            // The leader forces a rebalance by joining: what it assigns by may have changed.
            State::Stable => self.is_leader(&id) || member.protocols != request.protocols,
            State::Empty => return turn.refuse_join(ticket, GroupError::UnknownMember, &id),
        };
        if rejoins {
            self.update(turn, ticket, request);
            self.rebalance_or_complete(turn);
        } else {
            // It may not have got the answer: the generation has not changed since.
            let mut answer = self.joined(&id);
            if self.state == State::Stable {
                answer.members = Vec::new();
            }
            turn.reply(ticket, GroupReply::Joined(Ok(answer)));
        }
    }

    /// Takes over what a member says of itself and parks its join.
    fn update(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: JoinGroup) {
        let member = self.members.get_mut(&request.member).expect("the member was checked");
        member.protocols = request.protocols;
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.session_timeout_ms = request.session_timeout_ms;
        // A join that waits on a lost connection gives way to this one.
        member.refuse_join(turn, GroupError::RebalanceInProgress, &request.member);
        member.join = Some(ticket);
        turn.park(ticket, Parked::Join);
    }

    /// A static member comes back without its id (KIP-345): it takes over its old self, and in a stable group nothing
    /// moves if the protocol stays.
    fn replace_static(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        mut request: JoinGroup,
        old: &Arc<str>,
        new: &Arc<str>,
    ) {
        let leader_before = self.leader.clone().unwrap_or_default();
        let mut member = self.members.remove(old).expect("a static id names a member");
        member.refuse_join(turn, GroupError::FencedInstance, old);
        member.answer_sync(turn, Err(GroupError::FencedInstance));
        turn.timers.cancel(&self.session_timer(old));
        self.unsynced.remove(old);
        self.members.insert(Arc::clone(new), member);
        if self.is_leader(old) {
            self.leader = Some(Arc::clone(new));
        }
        if let Some(instance) = &request.instance {
            self.statics.insert(Arc::clone(instance), Arc::clone(new));
        }
        let supports_skip = request.supports_skip_assignment;
        request.member = Arc::clone(new);
        self.update(turn, ticket, request);
        self.restart_session(turn, new);

        match self.state {
            State::Stable if self.protocol == self.select_protocol() => {
                self.write(turn);
                let leads = self.is_leader(new);
                let mut answer = Joined { members: Vec::new(), ..self.joined(new) };
                if !supports_skip {
                    // An old client would assign anew if it read its own id here.
                    answer.leader = leader_before;
                } else if leads {
                    answer.skip_assignment = true;
                    answer.members = self.roll();
                }
                let member = self.members.get_mut(new).expect("it was inserted above");
                member.answer_join(turn, Ok(answer));
            }
            // Its old id may be with the leader already: the assignment would miss it.
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(turn),
            State::PreparingRebalance => self.complete_join_if_all(turn),
            State::Empty => unreachable!("a group with a static member is not empty"),
        }
    }
}

/// A name that nobody else has: the instance's or the client's, and a random UUID.
fn member_id(request: &JoinGroup) -> Arc<str> {
    let name = request.instance.as_ref().unwrap_or(&request.client_id);
    let mut random = request.random;
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let mut id = String::with_capacity(name.len() + MEMBER_ID_SUFFIX_BYTES);
    id.push_str(name);
    for (index, byte) in random.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            id.push('-');
        }
        for nibble in [byte >> 4, byte & 0x0f] {
            id.push(char::from_digit(u32::from(nibble), 16).expect("a nibble is a hexadecimal digit"));
        }
    }
    Arc::from(id)
}
