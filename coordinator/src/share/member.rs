//! A member of a share group as its connections and its session show it, and O4's rules on losing them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::session::Session;
use super::{ShareConfig, ShareOrder};
use crate::command::ConnectionId;
use crate::plan::fairness::Speed;
use crate::time::{Micros, Mono};

/// A member that left by heartbeat may settle for this long before its session ends (some clients leave first).
pub(crate) const LEFT_SESSION_MAX: Micros = Micros(1_000_000);

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) group: u32,
    pub(crate) name: Arc<str>,
    /// Connections that speak for it and are open.
    pub(crate) connections: BTreeSet<ConnectionId>,
    pub(crate) session: Option<Session>,
    /// A connection was lost since its session was last heard of.
    pub(crate) loss: Option<Loss>,
    /// Since when it has had no connection at all.
    pub(crate) gone_since: Option<Mono>,
    /// It has left the group; its session ends then at the latest.
    pub(crate) left_until: Option<Mono>,
    /// It has given back everything since the start of the broker: what state of before shows of it is over.
    pub(crate) gave_back: bool,
    /// It stops its work when its connection is lost (key-share).
    pub(crate) stops_at_disconnect: bool,
    pub(crate) speed: Speed,
    /// Its fetches that are not answered yet.
    pub(crate) asks: BTreeSet<u64>,
}

/// How a connection was lost: what a later epoch 0 proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// No fetch was out: epoch 0 means that the application has polled again.
    Idle,
    /// A fetch was parked, or its answer not written whole: epoch 0 proves nothing.
    FetchOut,
}

/// What the loss of a connection means for what a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// It all comes back now, and the session is over.
    Ends,
    /// It comes back then, unless the member is heard of before.
    EndsAt(Mono),
    /// It stays.
    Stays,
}

impl Member {
    pub(crate) fn new(group: u32, name: Arc<str>) -> Self {
        Self {
            group,
            name,
            connections: BTreeSet::new(),
            session: None,
            loss: None,
            gone_since: None,
            left_until: None,
            gave_back: false,
            stops_at_disconnect: false,
            speed: Speed::default(),
            asks: BTreeSet::new(),
        }
    }

    /// A connection speaks for it.
    pub(crate) fn seen(&mut self, connection: ConnectionId) {
        self.connections.insert(connection);
        self.gone_since = None;
    }

    /// A request of its session came: whatever connection was lost, the client has gone on.
    pub(crate) fn heard(&mut self, connection: ConnectionId) {
        self.seen(connection);
        self.loss = None;
    }

    /// A connection was lost, `fetch_out` with a fetch parked or unanswered.
    pub(crate) fn lost(
        &mut self,
        connection: ConnectionId,
        fetch_out: bool,
        config: &ShareConfig,
        now: Mono,
    ) -> AfterLoss {
        if !self.connections.remove(&connection) {
            return AfterLoss::Stays;
        }
        let loss = if fetch_out { Loss::FetchOut } else { Loss::Idle };
        let of_session = self.session.as_ref().is_some_and(|session| session.connection == connection);
        if of_session || fetch_out {
            self.loss = self.loss.max(Some(loss));
        }
        if self.connections.is_empty() {
            self.gone_since = Some(now);
        }
        let grace = Micros::from_ms(if self.stops_at_disconnect { 0 } else { config.grace_ms() });
        match config.order {
            ShareOrder::None if of_session => AfterLoss::Ends,
            ShareOrder::None => AfterLoss::Stays,
            ShareOrder::Key if grace == Micros::ZERO && of_session => AfterLoss::Ends,
            ShareOrder::Key if self.connections.is_empty() => AfterLoss::EndsAt(now + grace),
            ShareOrder::Key => AfterLoss::Stays,
        }
    }

    /// Whether nothing speaks for it any more; what it may still hold is looked at elsewhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.session.is_none() && self.asks.is_empty()
    }
}
