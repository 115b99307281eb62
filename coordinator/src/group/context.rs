//! What a decision sees beside its own state, and what comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::limits::GroupLimits;
use super::reply::{GroupError, GroupReply, JoinError};
use super::stored::Change;
use super::timers::{Timer, Timers};
use crate::command::{Ticket, TopicImage};
use crate::share::ShareConfig;
use crate::time::{Micros, Now};

/// The world around the groups at one moment.
#[derive(Clone, Copy, Debug)]
pub struct GroupContext<'a> {
    /// All topics.
    pub topics: &'a TopicImage,
    /// Share settings of the groups that have some.
    pub share_configs: &'a BTreeMap<Arc<str>, Arc<ShareConfig>>,
    /// Share settings of all others: the broker's.
    pub share_default: &'a ShareConfig,
}

impl GroupContext<'_> {
    /// The share settings of a group.
    pub(super) fn share_config(&self, group: &str) -> ShareConfig {
        self.share_configs.get(group).map_or(self.share_default, |config| config).clone()
    }
}

/// What a command, a tick or a fact leads to.
#[derive(Clone, Debug, Default)]
pub struct GroupDecision {
    /// Key and value (`None`: tombstone) of the records to append, in order, in one batch.
    pub records: Vec<(Bytes, Option<Bytes>)>,
    /// Answers to hold until the records are written: to this command and to parked ones.
    pub replies: Vec<(Ticket, GroupReply)>,
    /// What the share machine must know once the records are written.
    pub share_events: Vec<ShareMembership>,
}

impl GroupDecision {
    /// Whether nothing came out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.replies.is_empty() && self.share_events.is_empty()
    }
}

/// A change of a share group's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareMembership {
    /// The share group.
    pub group: Arc<str>,
    /// The member.
    pub member: Arc<str>,
    /// What happened to it.
    pub change: ShareChange,
}

/// What happened to a share group's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareChange {
    /// It is a member from now on (also: it was one before a restart).
    Joined,
    /// It left by heartbeat.
    Left,
    /// It sent no heartbeat for its session timeout.
    TimedOut,
}

/// Which kind of request a parked ticket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parked {
    Join,
    Sync,
}

/// What one decision works with: the time, the settings, timers, and the outputs so far.
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) limits: &'a GroupLimits,
    pub(super) timers: &'a mut Timers,
    pub(super) parked: &'a mut BTreeMap<Ticket, Parked>,
    pub(super) out: GroupDecision,
}

impl Turn<'_> {
    /// Writes a change; the caller applies it.
    pub(super) fn write(&mut self, change: &Change) {
        self.out.records.push(change.encode());
    }

    /// Answers a command that was never parked.
    pub(super) fn reply(&mut self, ticket: Ticket, reply: GroupReply) {
        self.out.replies.push((ticket, reply));
    }

    /// Refuses a join that was never parked.
    pub(super) fn refuse_join(&mut self, ticket: Ticket, error: GroupError, member: &Arc<str>) {
        self.reply(ticket, GroupReply::Joined(Err(JoinError { error, member: Arc::clone(member) })));
    }

    /// Remembers that a ticket waits.
    pub(super) fn park(&mut self, ticket: Ticket, kind: Parked) {
        self.parked.insert(ticket, kind);
    }

    /// Answers a parked ticket, unless it was cancelled meanwhile.
    pub(super) fn wake(&mut self, ticket: Ticket, reply: GroupReply) {
        if self.parked.remove(&ticket).is_some() {
            self.reply(ticket, reply);
        }
    }

    /// Sets a timer this many milliseconds from now (one at least, so that no timer can fire in the turn that sets
    /// it), in place of an earlier setting.
    pub(super) fn set_timer(&mut self, timer: Timer, ms: i64) {
        self.timers.set(timer, self.now.mono + Micros::from_ms(ms.max(1)));
    }
}
