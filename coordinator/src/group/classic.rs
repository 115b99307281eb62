//! A classic group: its members, its state and what may be asked of it (`ClassicGroup` and the classic half of
//! `GroupMetadataManager`).
//!
//! The files beside hold what happens to it: [`join`], [`sync`] (with heartbeats), [`leave`], [`rebalance`].
//! Of all this only the committed generation is durable (a [`StoredGroup`]); it is written when a leader's sync, a
//! static member's return or the last leave completes.

mod join;
mod leave;
mod member;
mod rebalance;
mod sync;
mod vote;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::context::Turn;
use super::reply::{DescribedGroup, DescribedMember, GroupError, ListedGroup};
use super::stored::{Change, StoredGroup, StoredMember};
use super::timers::Timer;
use member::Member;
use rebalance::InitialDelay;

/// The protocol type of consumers, the only one whose metadata the broker looks into.
const CONSUMER: &str = "consumer";

/// Where a group stands between generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No members.
    Empty,
    /// Waits for joins.
    PreparingRebalance,
    /// Waits for the leader's sync.
    CompletingRebalance,
    /// Every member can have its assignment.
    Stable,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A classic group.
#[derive(Debug)]
pub(super) struct ClassicGroup {
    id: Arc<str>,
    state: State,
    /// The rebalance under way began in an empty group.
    initial_rebalance: bool,
    /// Wall clock, milliseconds; `None` for one loaded from an old record.
    state_ms: Option<i64>,
    /// `None` until a first member: then the group only holds offsets.
    protocol_type: Option<Arc<str>>,
    protocol: Option<Arc<str>>,
    generation: i32,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Member>,
    /// Instance id to member id.
    statics: BTreeMap<Arc<str>, Arc<str>>,
    /// Ids that were handed out and not used yet (KIP-394).
    pending: BTreeSet<Arc<str>>,
    /// Members whose sync of this generation has not come.
    unsynced: BTreeSet<Arc<str>>,
    /// While the first generation is held back for more members.
    initial_delay: Option<InitialDelay>,
    /// Topics that the members consume; `None` where their metadata says nothing.
    subscribed: Option<BTreeSet<Arc<str>>>,
}

impl ClassicGroup {
    /// A group without members.
    pub(super) fn new(id: Arc<str>, wall_ms: i64) -> Self {
        Self {
            id,
            state: State::Empty,
            initial_rebalance: false,
            state_ms: Some(wall_ms),
            protocol_type: None,
            protocol: None,
            generation: 0,
            leader: None,
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            initial_delay: None,
            subscribed: None,
        }
    }

    /// The group that a record describes.
    pub(super) fn from_stored(id: Arc<str>, stored: StoredGroup) -> Self {
        let StoredGroup { protocol_type, generation, protocol, leader, state_ms, members } = stored;
        let mut group = Self::new(id, state_ms);
        group.state_ms = Some(state_ms).filter(|ms| *ms != -1);
        group.protocol_type = Some(protocol_type).filter(|kind| !kind.is_empty());
        group.generation = generation;
        group.state = if members.is_empty() { State::Empty } else { State::Stable };
        for stored in members {
            let name = protocol.clone().unwrap_or_default();
            if let Some(instance) = &stored.instance {
                group.statics.insert(Arc::clone(instance), Arc::clone(&stored.member));
            }
            group.members.insert(Arc::clone(&stored.member), Member::from_stored(stored, name));
        }
        group.protocol = protocol;
        group.leader = leader.filter(|leader| group.members.contains_key(leader));
        if group.leader.is_none() {
            group.leader = group.members.keys().next().cloned();
        }
        group.subscribed = group.subscribed_topics();
        group
    }

    /// The record of the group as it is now.
    fn change(&self) -> Change {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|(id, member)| StoredMember {
            member: Arc::clone(id),
            instance: member.instance.clone(),
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: member.assignment.clone(),
        });
        let value = StoredGroup {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_ms: self.state_ms.unwrap_or(-1),
            members: members.collect(),
        };
        Change::Group { group: Arc::clone(&self.id), value: Some(value) }
    }

    /// Writes the group as it is now. Not applied: what is in memory is what the record was made from.
    pub(super) fn write(&self, turn: &mut Turn<'_>) {
        turn.write(&self.change());
    }

    /// Starts the members' sessions anew after a restart. A group that is larger than it may be now rebalances.
    pub(super) fn loaded(&mut self, turn: &mut Turn<'_>) {
        for id in self.member_ids() {
            self.restart_session(turn, &id);
        }
        if self.members.len() > turn.limits.members_max {
            self.prepare_rebalance(turn);
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Whether nobody is a member or about to be one.
    pub(super) fn is_unused(&self) -> bool {
        self.state == State::Empty && self.pending.is_empty()
    }

    /// Forgets the timers, before the group is deleted.
    pub(super) fn cancel_timers(&self, turn: &mut Turn<'_>) {
        turn.timers.cancel(&self.rebalance_timer());
        turn.timers.cancel(&self.sync_timer());
        for member in self.members.keys().chain(&self.pending) {
            turn.timers.cancel(&self.session_timer(member));
        }
    }

    /// As ListGroups shows it.
    pub(super) fn list(&self) -> ListedGroup {
        ListedGroup {
            group: Arc::clone(&self.id),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state.name(),
            kind: "classic",
        }
    }

    /// As DescribeGroups shows it: metadata and assignments only where they are settled.
    pub(super) fn describe(&self) -> DescribedGroup {
        let stable = self.state == State::Stable;
        let protocol = self.protocol.clone().filter(|_| stable).unwrap_or_default();
        let members = self.members.iter().map(|(id, member)| DescribedMember {
            member: Arc::clone(id),
            instance: member.instance.clone(),
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            metadata: if stable { member.metadata(&protocol) } else { Bytes::new() },
            assignment: if stable { member.assignment.clone() } else { Bytes::new() },
        });
        DescribedGroup {
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: members.collect(),
            protocol,
        }
    }

    /// Whether a member, or who claims to be one, may commit (`ClassicGroup.validateOffsetCommit`).
    pub(super) fn check_commit(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if generation >= 0 || !member.is_empty() || instance.is_some() {
            self.check_member(member, instance)?;
            if generation != self.generation {
                return Err(GroupError::IllegalGeneration);
            }
        } else if self.state != State::Empty {
            return Err(GroupError::UnknownMember);
        }
        if self.state == State::CompletingRebalance {
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// A commit shows that the member lives.
    pub(super) fn committed(&self, turn: &mut Turn<'_>, member: &str) {
        if matches!(self.state, State::Stable | State::PreparingRebalance)
            && let Some((id, _)) = self.members.get_key_value(member)
        {
            self.restart_session(turn, id);
        }
    }

    /// Whether offsets may be deleted at all.
    pub(super) fn check_offset_delete(&self) -> Result<(), GroupError> {
        if self.state == State::Empty || self.is_consumer() { Ok(()) } else { Err(GroupError::NonEmptyGroup) }
    }

    /// Whether the group's members may be reading this topic: its offsets stay.
    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.subscribed.as_ref().map_or_else(|| self.is_consumer(), |topics| topics.contains(topic))
    }

    /// From when an offset's retention counts: `Some(None)` from its commit, `Some(Some(ms))` from then, `None`: it
    /// does not run out (`ClassicGroup.offsetExpirationCondition`).
    pub(super) fn retention_start(&self) -> Option<Option<i64>> {
        match (&self.protocol_type, self.state) {
            (None, _) => Some(None),
            (Some(_), State::Empty) => Some(self.state_ms),
            (Some(_), State::Stable) if self.is_consumer() && self.subscribed.is_some() => Some(None),
            (Some(_), _) => None,
        }
    }

    fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether the one who speaks is the member that it names (`ClassicGroup.validateMember`).
    fn check_member(&self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.statics.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(id) if &**id != member => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member) { Ok(()) } else { Err(GroupError::UnknownMember) }
    }

    fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    fn member_ids(&self) -> Vec<Arc<str>> {
        self.members.keys().cloned().collect()
    }

    fn awaiting_join(&self) -> usize {
        self.members.values().filter(|member| member.join.is_some()).count()
    }

    fn all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.join.is_some())
    }

    /// The longest that a member may take for a rebalance, milliseconds.
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| i64::from(member.rebalance_timeout_ms)).max().unwrap_or(0)
    }

    fn enter(&mut self, turn: &Turn<'_>, state: State) {
        self.state = state;
        self.state_ms = Some(turn.now.wall_ms);
    }

    /// Takes a member out; its timers and its parked requests are the caller's to end. The next one leads if it led.
    fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id);
        if let Some(instance) = member.as_ref().and_then(|member| member.instance.as_ref()) {
            self.statics.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending.remove(id);
        self.unsynced.remove(id);
        member
    }

    fn restart_session(&self, turn: &mut Turn<'_>, id: &Arc<str>) {
        if let Some(member) = self.members.get(id) {
            turn.set_timer(self.session_timer(id), i64::from(member.session_timeout_ms));
        }
    }

    fn session_timer(&self, member: &Arc<str>) -> Timer {
        Timer::Session { group: Arc::clone(&self.id), member: Arc::clone(member) }
    }

    fn rebalance_timer(&self) -> Timer {
        Timer::Rebalance { group: Arc::clone(&self.id) }
    }

    fn sync_timer(&self) -> Timer {
        Timer::Sync { group: Arc::clone(&self.id) }
    }
}
