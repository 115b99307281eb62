//! Standalone readers: who reads named ranges of keys under a group id without being a member (K68).
//!
//! A reader is its connection: its session ends with it, and what it held returns at once. Inside it is a member of a
//! name that no client can have, so that locks, deliveries and answers are those of all others. A group id is used one
//! way at a time. Of readers whose ranges overlap the newest has them: the older one's session ends, and it is told so
//! until it begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::{KeyHash, PartitionId};

use super::{PartState, ShareMachine};
use crate::command::{
    ConnectionId, KeyRange, ShareAcknowledge, ShareFetch, StandaloneCommit, StandaloneFetch, Ticket,
};
use crate::io::Slice;
use crate::outbox::{LogTable, Outbox};
use crate::reply::Reply;
use crate::share::acknowledge::Acknowledged;
use crate::share::partition::SharePartition;
use crate::share::ranges::{normalized, overlap};
use crate::share::session::INITIAL_EPOCH;
use crate::share::{ShareError, ShareOrder};
use crate::time::Now;

/// What the names of standalone readers begin with.
const PREFIX: &str = "\u{0}standalone/";

/// The ranges of one reader, and where its looks at them have come to.
#[derive(Debug, Default)]
pub(super) struct Claims {
    parts: BTreeMap<PartitionId, Claim>,
}

#[derive(Debug)]
struct Claim {
    ranges: Arc<[KeyRange]>,
    turn_from: KeyHash,
}

/// Whether this is the name of a standalone reader.
pub(super) fn is_reader(name: &str) -> bool {
    name.starts_with(PREFIX)
}

impl<S: Slice> ShareMachine<S> {
    /// Whether a group id is used by standalone readers now.
    #[must_use]
    pub fn has_readers(&self, group: &str) -> bool {
        let number = self.group_numbers.get(group);
        number.is_some_and(|number| self.readers.keys().any(|member| self.members[member].group == *number))
    }

    /// A request that names a member: refused where standalone readers use the group, or where the name is none that a
    /// member can have.
    pub(super) fn check_member(&self, group: &str, member: &str) -> Result<(), ShareError> {
        if is_reader(member) {
            return Err(ShareError::InvalidRequest);
        }
        if self.has_readers(group) { Err(ShareError::NonEmptyGroup) } else { Ok(()) }
    }

    pub(super) fn standalone_fetch(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: StandaloneFetch,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let StandaloneFetch { fetch, ranges } = request;
        if let Err(error) = self.try_standalone(now, ticket, fetch, ranges, logs, out) {
            out.reply(ticket, Reply::ShareFetched(Err(error)));
        }
    }

    fn try_standalone(
        &mut self,
        now: Now,
        ticket: Ticket,
        fetch: ShareFetch,
        ranges: Vec<(PartitionId, Vec<KeyRange>)>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) -> Result<(), ShareError> {
        let begins = fetch.epoch == INITIAL_EPOCH;
        let reader = (fetch.connection, Arc::clone(&fetch.group));
        let mut claims = Vec::with_capacity(ranges.len());
        for (partition, named) in ranges {
            claims.push((partition, named.is_empty(), normalized(&named)?));
        }
        if begins {
            self.check_standalone(&fetch.group)?;
        } else if self.fenced.contains(&reader) {
            return Err(ShareError::Fenced);
        }
        let (connection, group) = (fetch.connection, Arc::clone(&fetch.group));
        let name = self.reader_name(connection);
        self.try_fetch(now, ticket, &ShareFetch { member: Arc::clone(&name), ..fetch }, logs, out)?;
        self.fenced.remove(&reader);
        // A session that this fetch closed has no ranges any more.
        if let Some(member) = self.find_member(&group, &name)
            && self.members[&member].session.is_some()
        {
            self.claim(now, member, begins, claims);
        }
        Ok(())
    }

    /// Whether a group may be read without membership.
    fn check_standalone(&self, group: &str) -> Result<(), ShareError> {
        let known = self.group_numbers.get(group);
        let config = match known {
            Some(&number) => self.config(number),
            None => Arc::clone(self.configs.get(group).unwrap_or(&self.limits.config)),
        };
        if config.order != ShareOrder::Key {
            return Err(ShareError::InvalidRequest);
        }
        let Some(&number) = known else { return Ok(()) };
        let state = self.group(number);
        let has_members = state.live.as_ref().is_some_and(|live| !live.is_empty())
            || self
                .members
                .values()
                .any(|member| member.group == number && member.session.is_some() && !is_reader(&member.name));
        if has_members { Err(ShareError::NonEmptyGroup) } else { Ok(()) }
    }

    /// A reader's ranges are these from now on; who had any of them is fenced.
    fn claim(
        &mut self,
        now: Now,
        member: u32,
        begins: bool,
        claims: Vec<(PartitionId, bool, Vec<KeyRange>)>,
    ) {
        let group = self.members[&member].group;
        let own = self.readers.entry(member).or_default();
        if begins {
            own.parts.clear();
        }
        let mut claimed = Vec::new();
        for (partition, unsaid, ranges) in claims {
            // A partition that the session reads already and that is only acknowledged keeps its ranges.
            if unsaid && own.parts.contains_key(&partition) {
                continue;
            }
            let ranges: Arc<[KeyRange]> = ranges.into();
            own.parts.insert(partition, Claim { ranges: Arc::clone(&ranges), turn_from: KeyHash(0) });
            claimed.push((partition, ranges));
        }
        let fenced: Vec<u32> = self
            .readers
            .iter()
            .filter(|&(&other, claims)| {
                other != member
                    && self.members[&other].group == group
                    && claimed.iter().any(|(partition, ranges)| {
                        claims.parts.get(partition).is_some_and(|claim| overlap(&claim.ranges, ranges))
                    })
            })
            .map(|(&other, _)| other)
            .collect();
        for other in fenced {
            let name = Arc::clone(&self.group(group).name);
            let connections = self.members[&other].connections.clone();
            // Nobody can have more of these than sessions; the oldest makes way, and is told that it has no session.
            if self.fenced.len() >= self.limits.sessions_max {
                self.fenced.pop_first();
            }
            self.fenced.extend(connections.into_iter().map(|connection| (connection, Arc::clone(&name))));
            self.end_session(now, other);
        }
        for (partition, _) in claimed {
            self.dirty.extend(self.part_numbers.get(&(partition, group)));
        }
    }

    /// A reader's ranges of a partition, and where its next look begins.
    pub(super) fn claimed(&self, member: u32, partition: PartitionId) -> Option<(Arc<[KeyRange]>, KeyHash)> {
        let claim = self.readers.get(&member)?.parts.get(&partition)?;
        Some((Arc::clone(&claim.ranges), claim.turn_from))
    }

    pub(super) fn looked(&mut self, member: u32, partition: PartitionId, turn_from: KeyHash) {
        let parts = self.readers.get_mut(&member).map(|claims| &mut claims.parts);
        if let Some(claim) = parts.and_then(|parts| parts.get_mut(&partition)) {
            claim.turn_from = turn_from;
        }
    }

    /// Whether readers without membership read this share-partition: what one of them does not want must not keep
    /// another from reading on.
    pub(super) fn reads_by_ranges(&self, part: u32) -> bool {
        !self.readers.is_empty()
            && self
                .parts
                .get(&part)
                .is_some_and(|part| part.interested.iter().any(|member| self.readers.contains_key(member)))
    }

    /// The session of a reader has ended.
    pub(super) fn forget_reader(&mut self, member: u32) {
        self.readers.remove(&member);
    }

    /// A connection is gone: nobody is to be told any more that it was fenced.
    pub(super) fn forget_fenced(&mut self, connection: ConnectionId) {
        let first = (connection, Arc::from(""));
        while let Some(fenced) = self.fenced.range(first.clone()..).next().cloned()
            && fenced.0 == connection
        {
            self.fenced.remove(&fenced);
        }
    }

    pub(super) fn standalone_acknowledge(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: ShareAcknowledge,
        out: &mut Outbox<S>,
    ) {
        if self.fenced.contains(&(request.connection, Arc::clone(&request.group))) {
            return out.reply(ticket, Reply::ShareAcknowledged(Err(ShareError::Fenced)));
        }
        let member = self.reader_name(request.connection);
        self.acknowledge(now, ticket, &ShareAcknowledge { member, ..request }, out);
    }

    /// KeyShareCommit: everything is committed that the request names, or nothing of a partition.
    pub(super) fn standalone_commit(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: StandaloneCommit,
        out: &mut Outbox<S>,
    ) {
        let StandaloneCommit { connection, group, parts } = request;
        let name = self.reader_name(connection);
        let session = self
            .find_member(&group, &name)
            .filter(|member| self.members[member].session.is_some() && self.readers.contains_key(member));
        let Some(member) = session else {
            let fenced = self.fenced.contains(&(connection, Arc::clone(&group)));
            let error = if fenced { ShareError::Fenced } else { ShareError::SessionNotFound };
            return out.reply(ticket, Reply::ShareAcknowledged(Err(error)));
        };
        self.give_way_to_own(member, Some(connection));
        let number = self.members[&member].group;
        let mut acked = Vec::with_capacity(parts.len());
        for (partition, offsets) in parts {
            let committed = self.commit_part(member, number, partition, &offsets);
            let outcome = match committed {
                Ok(()) => Acknowledged::default(),
                Err(error) => Acknowledged::failed(error, 0),
            };
            acked.push((partition, outcome));
        }
        let request = ShareAcknowledge {
            connection,
            group,
            member: name,
            epoch: 0,
            renew: false,
            parts: Vec::new(),
            key_share: true,
        };
        self.answer_acks(now, ticket, &request, (number, member), acked, out);
    }

    fn commit_part(
        &mut self,
        member: u32,
        group: u32,
        partition: PartitionId,
        offsets: &[(i64, i64)],
    ) -> Result<(), ShareError> {
        let (ranges, _) = self.claimed(member, partition).ok_or(ShareError::UnknownPartition)?;
        let name = Arc::clone(&self.members[&member].name);
        let number =
            self.part_numbers.get(&(partition, group)).copied().ok_or(ShareError::UnknownPartition)?;
        self.dirty.insert(number);
        match self.parts.get_mut(&number).map(|part| &mut part.state) {
            Some(PartState::Open(open)) => open.commit(&name, &ranges, offsets),
            Some(_) => Err(ShareError::Unavailable),
            None => Err(ShareError::UnknownPartition),
        }
    }

    /// Of readers that there are no more, since the broker was restarted: their sessions ended with their connections,
    /// and whatever they held returns.
    pub(super) fn release_readers(&self, group: u32, partition: &mut SharePartition, now: Now) {
        let group = &self.group(group).name;
        let is_gone = |name: &Arc<str>| {
            let member = self.find_member(group, name);
            is_reader(name) && !member.is_some_and(|member| self.readers.contains_key(&member))
        };
        for name in partition.holder_names().into_iter().filter(is_gone) {
            partition.release_member(&name, now);
        }
    }

    /// Starts of the broker are told apart, since connections are counted anew in each.
    fn reader_name(&self, connection: ConnectionId) -> Arc<str> {
        Arc::from(format!("{PREFIX}{}/{}", self.boot, connection.0))
    }
}
