//! Deadlines of groups and members, by time and by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::time::Mono;

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A classic member (or an id handed out) sent no heartbeat.
    Session { group: Arc<str>, member: Arc<str> },
    /// A classic group waits no longer for joins.
    Rebalance { group: Arc<str> },
    /// A classic group waits no longer for syncs.
    Sync { group: Arc<str> },
    /// A share member sent no heartbeat.
    ShareSession { group: Arc<str>, member: Arc<str> },
    /// Time to look for expired offsets.
    Retention,
}

/// All deadlines of a partition. Invariant: both maps hold the same pairs.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(Mono, Timer)>,
    by_name: BTreeMap<Timer, Mono>,
}

impl Timers {
    /// Sets a deadline, in place of an earlier one.
    pub(super) fn set(&mut self, timer: Timer, at: Mono) {
        if let Some(before) = self.by_name.insert(timer.clone(), at) {
            self.by_time.remove(&(before, timer.clone()));
        }
        self.by_time.insert((at, timer));
    }

    /// Forgets a deadline.
    pub(super) fn cancel(&mut self, timer: &Timer) {
        if let Some(at) = self.by_name.remove(timer) {
            self.by_time.remove(&(at, timer.clone()));
        }
    }

    /// The first deadline.
    pub(super) fn next(&self) -> Option<Mono> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline that has come.
    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.by_name.remove(&timer);
        Some(timer)
    }
}
