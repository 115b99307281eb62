//! All groups of one partition of `__consumer_offsets`: finds the group, checks kinds, keeps what is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::classic::ClassicGroup;
use super::command::{GroupCommand, JoinGroup, ShareHeartbeat, SyncGroup};
use super::context::{GroupContext, GroupDecision, Parked, Turn};
use super::limits::{GroupLimits, NAME_BYTES_MAX};
use super::offsets::Offsets;
use super::reply::{GroupError, GroupReply, JoinError, ListedGroup};
use super::share::{self, ShareGroup};
use super::stored::Change;
use super::timers::{Timer, Timers};
use crate::command::Ticket;
use crate::time::{Mono, Now};

mod committed;
mod replay;

/// One group, of one kind at a time.
#[derive(Debug)]
enum Group {
    Classic(ClassicGroup),
    Share(ShareGroup),
}

/// The groups of one partition of `__consumer_offsets`.
///
/// Life: [`new`](Self::new), [`replay`](Self::replay) of every stored batch, [`loaded`](Self::loaded); then commands
/// and ticks until [`abandon`](Self::abandon).
#[derive(Debug)]
pub struct GroupPartition {
    limits: GroupLimits,
    groups: BTreeMap<Arc<str>, Group>,
    offsets: Offsets,
    timers: Timers,
    /// Joins and syncs that wait. A ticket that is cancelled is no longer here, and is not answered.
    parked: BTreeMap<Ticket, Parked>,
    /// Committed offsets of open transactions, by producer id: an imported log may hold some.
    transactions: BTreeMap<i64, Vec<Change>>,
    is_loaded: bool,
}

impl GroupPartition {
    /// A partition of which nothing has been read yet.
    #[must_use]
    pub fn new(limits: GroupLimits) -> Self {
        Self {
            limits,
            groups: BTreeMap::new(),
            offsets: Offsets::default(),
            timers: Timers::default(),
            parked: BTreeMap::new(),
            transactions: BTreeMap::new(),
            is_loaded: false,
        }
    }

    /// Ends the replay: sessions of all members begin now, and the share machine learns who they are.
    pub fn loaded(&mut self, now: Now) -> GroupDecision {
        self.is_loaded = true;
        let (mut turn, groups) = turn(self, now);
        let check_ms = turn.limits.offsets_retention_check_ms;
        turn.set_timer(Timer::Retention, check_ms);
        for group in groups.values_mut() {
            match group {
                Group::Classic(group) => group.loaded(&mut turn),
                Group::Share(group) => group.loaded(&mut turn),
            }
        }
        turn.out
    }

    /// Decides a command. Its reply is among the decision's, or comes with a later one (JoinGroup, SyncGroup).
    pub fn handle(
        &mut self,
        now: Now,
        ticket: Ticket,
        command: GroupCommand,
        cx: &GroupContext<'_>,
    ) -> GroupDecision {
        if !self.is_loaded {
            let reply = GroupReply::refused(&command, GroupError::Loading);
            return GroupDecision { replies: vec![(ticket, reply)], ..GroupDecision::default() };
        }
        match command {
            GroupCommand::Join(request) => self.join(now, ticket, request),
            GroupCommand::Sync(request) => self.sync(now, ticket, request),
            GroupCommand::Heartbeat { group, member, generation, instance } => {
                self.reply_with(now, ticket, |this, turn| {
                    GroupReply::Heartbeat(
                        this.live_classic(&group).and_then(|group| {
                            group.heartbeat(turn, &member, instance.as_deref(), generation)
                        }),
                    )
                })
            }
            GroupCommand::Leave { group, members } => self.reply_with(now, ticket, |this, turn| {
                GroupReply::Left(match this.live_classic(&group) {
                    Ok(group) => Ok(group.leave(turn, &members)),
                    Err(GroupError::UnknownMember) => Ok(vec![Err(GroupError::UnknownMember); members.len()]),
                    Err(error) => Err(error),
                })
            }),
            GroupCommand::Commit(request) => self.commit(now, ticket, request, cx.topics),
            GroupCommand::FetchOffsets { group, member: _, partitions } => {
                self.reply_with(now, ticket, |this, _| {
                    // The member and its epoch count for KIP-848 groups alone. A share group has no offsets.
                    GroupReply::Offsets(Ok(match partitions {
                        Some(partitions) => this.offsets.fetch(&group, &partitions, cx.topics),
                        None => this.offsets.fetch_all(&group, cx.topics),
                    }))
                })
            }
            GroupCommand::DeleteOffsets { group, partitions } => {
                self.delete_offsets(now, ticket, &group, &partitions)
            }
            GroupCommand::Describe { group } => self.reply_with(now, ticket, |this, _| {
                GroupReply::Described(match this.groups.get(&group) {
                    Some(Group::Classic(group)) => Ok(group.describe()),
                    _ => Err(GroupError::GroupNotFound),
                })
            }),
            GroupCommand::List => self.reply_with(now, ticket, |this, _| GroupReply::Listed(Ok(this.list()))),
            GroupCommand::ShareHeartbeat(request) => self.reply_with(now, ticket, |this, turn| {
                GroupReply::ShareHeartbeat(this.share_heartbeat(turn, request, cx))
            }),
            GroupCommand::DescribeShare { group } => self.reply_with(now, ticket, |this, _| {
                GroupReply::ShareDescribed(match this.groups.get(&group) {
                    _ if group.is_empty() => Err(GroupError::InvalidGroupId),
                    Some(Group::Share(group)) => Ok(group.describe(cx)),
                    _ => Err(GroupError::GroupNotFound),
                })
            }),
        }
    }

    /// Topics or share settings changed: offsets of deleted topics go, share groups are assigned anew.
    pub fn topics_changed(&mut self, now: Now, cx: &GroupContext<'_>) -> GroupDecision {
        // Without a single topic the image is not known yet: this very partition belongs to one.
        if !self.is_loaded || cx.topics.topics.is_empty() {
            return GroupDecision::default();
        }
        let gone = self.offsets.of_deleted_topics(cx.topics);
        let (mut turn, groups) = turn(self, now);
        for group in groups.values_mut() {
            if let Group::Share(group) = group {
                group.world_changed(&mut turn, cx);
            }
        }
        let out = turn.out;
        self.write_all(out, gone)
    }

    /// Handles every deadline that has come.
    pub fn tick(&mut self, now: Now, cx: &GroupContext<'_>) -> GroupDecision {
        let mut out = GroupDecision::default();
        while let Some(timer) = self.timers.pop_due(now.mono) {
            if timer == Timer::Retention {
                out = self.expire_offsets(now, out);
                continue;
            }
            let (mut turn, groups) = turn(self, now);
            turn.out = out;
            match timer {
                Timer::Session { group, member } => {
                    if let Some(Group::Classic(group)) = groups.get_mut(&group) {
                        group.session_timed_out(&mut turn, &member);
                    }
                }
                Timer::Rebalance { group } => {
                    if let Some(Group::Classic(group)) = groups.get_mut(&group) {
                        group.rebalance_timed_out(&mut turn);
                    }
                }
                Timer::Sync { group } => {
                    if let Some(Group::Classic(group)) = groups.get_mut(&group) {
                        group.sync_timed_out(&mut turn);
                    }
                }
                Timer::ShareSession { group, member } => {
                    if let Some(Group::Share(group)) = groups.get_mut(&group) {
                        group.session_timed_out(&mut turn, &member, cx);
                    }
                }
                Timer::Retention => unreachable!("it was handled above"),
            }
            out = turn.out;
        }
        out
    }

    /// When [`tick`](Self::tick) is due next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.timers.next()
    }

    /// Deletes an empty group with its offsets (DeleteGroups). Share state of its partitions is the caller's.
    pub fn delete_group(&mut self, now: Now, group: &str) -> (Result<(), GroupError>, GroupDecision) {
        if !self.is_loaded {
            return (Err(GroupError::Loading), GroupDecision::default());
        }
        let changes = match self.groups.get(group) {
            None => Err(GroupError::GroupNotFound),
            Some(Group::Classic(group)) if group.state() != super::classic::State::Empty => {
                Err(GroupError::NonEmptyGroup)
            }
            Some(Group::Classic(_)) => Ok(self.classic_tombstones(group)),
            Some(Group::Share(group)) => group.delete(),
        };
        match changes {
            Err(error) => (Err(error), GroupDecision::default()),
            Ok(changes) => {
                let (mut turn, groups) = turn(self, now);
                if let Some(Group::Classic(group)) = groups.get(group) {
                    group.cancel_timers(&mut turn);
                }
                let out = turn.out;
                (Ok(()), self.write_all(out, changes))
            }
        }
    }

    /// All groups, by id.
    #[must_use]
    pub fn list(&self) -> Vec<ListedGroup> {
        self.groups
            .values()
            .map(|group| match group {
                Group::Classic(group) => group.list(),
                Group::Share(group) => group.list(),
            })
            .collect()
    }

    /// Whether this is a share group, with or without members.
    #[must_use]
    pub fn is_share_group(&self, group: &str) -> bool {
        matches!(self.groups.get(group), Some(Group::Share(_)))
    }

    /// Whether this is a share group without members.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND where it is none, NON_EMPTY_GROUP where it has some.
    pub fn check_share_empty(&self, group: &str) -> Result<(), GroupError> {
        match self.groups.get(group) {
            _ if group.is_empty() => Err(GroupError::InvalidGroupId),
            Some(Group::Share(group)) if group.member_ids().next().is_some() => {
                Err(GroupError::NonEmptyGroup)
            }
            Some(Group::Share(_)) => Ok(()),
            _ => Err(GroupError::GroupNotFound),
        }
    }

    /// Sees to it that there is a share group of this id, which has no members: where there is no group it is made, as
    /// Kafka makes one whose offsets are set (`GroupMetadataManager.getOrMaybeCreateShareGroup`).
    pub fn ensure_share_group(&mut self, group: &Arc<str>) -> (Result<(), GroupError>, GroupDecision) {
        let nothing = GroupDecision::default();
        match self.check_share_empty(group) {
            Err(GroupError::GroupNotFound) if !self.groups.contains_key(group) => {
                if group.len() > NAME_BYTES_MAX {
                    return (Err(GroupError::InvalidGroupId), nothing);
                }
                let made = ShareGroup::new(Arc::clone(group));
                let change = made.first();
                self.groups.insert(Arc::clone(group), Group::Share(made));
                (Ok(()), self.write_all(nothing, vec![change]))
            }
            checked => (checked, nothing),
        }
    }

    /// Whether there is a group of any kind.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Whether a group of any kind has members.
    #[must_use]
    pub fn has_members(&self, group: &str) -> bool {
        match self.groups.get(group) {
            Some(Group::Share(group)) => group.member_ids().next().is_some(),
            Some(Group::Classic(group)) => group.state() != super::classic::State::Empty,
            None => false,
        }
    }

    /// The members of a share group; none for anything else.
    pub fn share_members(&self, group: &str) -> impl Iterator<Item = &Arc<str>> {
        match self.groups.get(group) {
            Some(Group::Share(group)) => Some(group.member_ids()),
            _ => None,
        }
        .into_iter()
        .flatten()
    }

    /// Nobody waits for this ticket any more: if it is parked, it will not be answered. The member stays, as in
    /// Kafka: it may come back on another connection, and its session decides.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.parked.remove(&ticket);
    }

    /// Tells everything parked to try again, elsewhere or later; the groups stay as they are. The broker stops.
    #[must_use]
    pub fn release_parked(&mut self) -> Vec<(Ticket, GroupReply)> {
        let error = GroupError::NotAvailable;
        let answer = |(ticket, kind)| match kind {
            Parked::Join => (ticket, GroupReply::Joined(Err(JoinError { error, member: Arc::default() }))),
            Parked::Sync => (ticket, GroupReply::Synced(Err(error))),
        };
        std::mem::take(&mut self.parked).into_iter().map(answer).collect()
    }

    /// Ends this partition's memory, because its log failed or it is closed: everything parked is told to try again.
    #[must_use]
    pub fn abandon(mut self) -> Vec<(Ticket, GroupReply)> {
        self.release_parked()
    }

    fn join(&mut self, now: Now, ticket: Ticket, request: JoinGroup) -> GroupDecision {
        let checked = self.check_join(&request);
        let is_new = !self.groups.contains_key(&request.group);
        let (mut turn, groups) = turn(self, now);
        if let Err(JoinError { error, member }) = checked {
            turn.refuse_join(ticket, error, &member);
            return turn.out;
        }
        let id = Arc::clone(&request.group);
        let group = groups
            .entry(Arc::clone(&id))
            .or_insert_with(|| Group::Classic(ClassicGroup::new(id, now.wall_ms)));
        let Group::Classic(group) = group else { unreachable!("the kind was checked") };
        if is_new {
            // It exists from now on, also after a restart.
            group.write(&mut turn);
        }
        group.join(&mut turn, ticket, request);
        turn.out
    }

    fn check_join(&self, request: &JoinGroup) -> Result<(), JoinError> {
        let refuse = |error| Err(JoinError { error, member: Arc::clone(&request.member) });
        check_group_id(&request.group).or_else(refuse)?;
        if !(self.limits.session_timeout_ms_min..=self.limits.session_timeout_ms_max)
            .contains(&request.session_timeout_ms)
        {
            return refuse(GroupError::InvalidSessionTimeout);
        }
        let names = [&request.client_id, &request.client_host, &request.protocol_type];
        let names =
            names.into_iter().chain(&request.instance).chain(request.protocols.iter().map(|(name, _)| name));
        if names.into_iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return refuse(GroupError::InvalidRequest);
        }
        match self.groups.get(&request.group) {
            Some(Group::Share(_)) => {
                Err(JoinError { error: GroupError::InconsistentProtocol, member: Arc::default() })
            }
            None if !request.member.is_empty() => refuse(GroupError::UnknownMember),
            _ => Ok(()),
        }
    }

    fn sync(&mut self, now: Now, ticket: Ticket, request: SyncGroup) -> GroupDecision {
        let lacks_protocol = request.protocol_type.is_none() || request.protocol_name.is_none();
        let checked = if request.requires_protocol && lacks_protocol {
            Err(GroupError::InconsistentProtocol)
        } else {
            check_group_id(&request.group)
        };
        let (mut turn, groups) = turn(self, now);
        match (checked, groups.get_mut(&request.group)) {
            (Err(error), _) => turn.reply(ticket, GroupReply::Synced(Err(error))),
            (Ok(()), Some(Group::Classic(group))) => group.sync(&mut turn, ticket, request),
            (Ok(()), _) => turn.reply(ticket, GroupReply::Synced(Err(GroupError::UnknownMember))),
        }
        turn.out
    }

    fn share_heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        request: ShareHeartbeat,
        cx: &GroupContext<'_>,
    ) -> Result<super::reply::ShareHeartbeatReply, GroupError> {
        share::check(&request)?;
        if request.group.len() > NAME_BYTES_MAX || request.member.len() > NAME_BYTES_MAX {
            return Err(GroupError::InvalidRequest);
        }
        match self.groups.get_mut(&request.group) {
            Some(Group::Share(group)) if share::leaves(&request) => group.leave(turn, &request.member, cx),
            Some(Group::Share(group)) => group.heartbeat(turn, request, cx),
            None if share::joins(&request) => {
                let id = Arc::clone(&request.group);
                let mut group = ShareGroup::new(Arc::clone(&id));
                let reply = group.heartbeat(turn, request, cx)?;
                self.groups.insert(id, Group::Share(group));
                Ok(reply)
            }
            _ => Err(GroupError::GroupNotFound),
        }
    }

    /// The classic group that members speak of.
    fn live_classic(&mut self, group: &str) -> Result<&mut ClassicGroup, GroupError> {
        check_group_id(group)?;
        match self.groups.get_mut(group) {
            Some(Group::Classic(group)) => Ok(group),
            _ => Err(GroupError::UnknownMember),
        }
    }

    fn classic_tombstones(&self, group: &str) -> Vec<Change> {
        let group: Arc<str> = Arc::from(group);
        let mut changes = self.offsets.delete_all(&group);
        changes.push(Change::Group { group, value: None });
        changes
    }

    /// Writes changes and takes them over.
    fn write_all(&mut self, mut out: GroupDecision, changes: Vec<Change>) -> GroupDecision {
        for change in changes {
            out.records.push(change.encode());
            self.apply(change);
        }
        out
    }

    /// Runs a command that is answered at once.
    fn reply_with(
        &mut self,
        now: Now,
        ticket: Ticket,
        run: impl FnOnce(&mut Self, &mut Turn<'_>) -> GroupReply,
    ) -> GroupDecision {
        // Timers, settings and tickets are lent to the turn; the groups stay with the partition.
        let mut timers = std::mem::take(&mut self.timers);
        let mut parked = std::mem::take(&mut self.parked);
        let limits = self.limits.clone();
        let mut turn = Turn {
            now,
            limits: &limits,
            timers: &mut timers,
            parked: &mut parked,
            out: GroupDecision::default(),
        };
        let reply = run(self, &mut turn);
        turn.reply(ticket, reply);
        let out = turn.out;
        self.timers = timers;
        self.parked = parked;
        out
    }
}

/// A turn on everything but the groups, and the groups.
fn turn(partition: &mut GroupPartition, now: Now) -> (Turn<'_>, &mut BTreeMap<Arc<str>, Group>) {
    let GroupPartition { limits, groups, timers, parked, .. } = partition;
    (Turn { now, limits, timers, parked, out: GroupDecision::default() }, groups)
}

/// Members need a group with a name that can be stored.
fn check_group_id(group: &str) -> Result<(), GroupError> {
    if group.is_empty() || group.len() > NAME_BYTES_MAX { Err(GroupError::InvalidGroupId) } else { Ok(()) }
}
