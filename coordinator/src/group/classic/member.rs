//! A member of a classic group, and the answers it gets.

use std::sync::Arc;

use bytes::Bytes;

use crate::command::Ticket;
use crate::group::command::JoinGroup;
use crate::group::context::Turn;
use crate::group::reply::{GroupError, GroupReply, JoinError, Joined, Synced};
use crate::group::stored::StoredMember;

/// A member. At most one of `join` and `sync` is parked at a time.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
    /// Name and metadata, the preferred one first.
    pub(super) protocols: Vec<(Arc<str>, Bytes)>,
    pub(super) assignment: Bytes,
    /// Its parked join: it waits for the next generation.
    pub(super) join: Option<Ticket>,
    /// Its parked sync: it waits for the leader's word.
    pub(super) sync: Option<Ticket>,
    /// It has not seen a generation yet, so it cannot send heartbeats: its wait for the first one is bounded.
    pub(super) is_new: bool,
}

impl Member {
    pub(super) fn new(request: &JoinGroup) -> Self {
        Self {
            instance: request.instance.clone(),
            client_id: Arc::clone(&request.client_id),
            client_host: Arc::clone(&request.client_host),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Bytes::new(),
            join: None,
            sync: None,
            is_new: true,
        }
    }

    pub(super) fn from_stored(stored: StoredMember, protocol: Arc<str>) -> Self {
        Self {
            instance: stored.instance,
            client_id: stored.client_id,
            client_host: stored.client_host,
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            session_timeout_ms: stored.session_timeout_ms,
            protocols: vec![(protocol, stored.subscription)],
            assignment: stored.assignment,
            join: None,
            sync: None,
            is_new: false,
        }
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| &**name == protocol)
    }

    /// Its metadata for a protocol; empty where it lacks it.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| &**name == protocol)
            .map(|(_, data)| data.clone())
            .unwrap_or_default()
    }

    /// Whether it lives although no heartbeat came: it waits for the broker.
    pub(super) fn waits_for_broker(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }

    /// Answers its parked join, if there is one.
    pub(super) fn answer_join(&mut self, turn: &mut Turn<'_>, answer: Result<Joined, JoinError>) {
        if let Some(ticket) = self.join.take() {
            turn.wake(ticket, GroupReply::Joined(answer));
        }
    }

    /// Refuses its parked join, if there is one.
    pub(super) fn refuse_join(&mut self, turn: &mut Turn<'_>, error: GroupError, member: &Arc<str>) {
        self.answer_join(turn, Err(JoinError { error, member: Arc::clone(member) }));
    }

    /// Answers its parked sync, if there is one. Whether there was.
    pub(super) fn answer_sync(&mut self, turn: &mut Turn<'_>, answer: Result<Synced, GroupError>) -> bool {
        let Some(ticket) = self.sync.take() else { return false };
        turn.wake(ticket, GroupReply::Synced(answer));
        true
    }
}
