//! Everything of the machine that happens at a time.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Ticket;
use crate::time::Mono;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A parked fetch is to be answered.
    Ask(u64),
    /// A lock or a wait of a share-partition ends.
    Part(u32),
    /// A share-partition from which someone has got nothing for a while is read on.
    ReadOn(u32),
    /// A share-partition's events are to be synced.
    Sync(u32),
    /// A share-partition whose events the disk refused is read again.
    Reload(u32),
    /// A member's grace is over.
    Grace(u32),
    /// The session of a member that left ends.
    Left(u32),
    /// Dead letters of a share-partition that could not be copied are tried again.
    Letters(u32),
    /// A share-partition's oldest record is looked at.
    Watch(u32),
    /// An answer has not been written whole for half a lock.
    Unwritten(Ticket),
}

/// One time each.
#[derive(Debug, Default)]
pub(super) struct Timers {
    times: BTreeMap<Timer, Mono>,
    queue: BTreeSet<(Mono, Timer)>,
}

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Option<Mono>) {
        let old = match at {
            Some(at) => self.times.insert(timer, at),
            None => self.times.remove(&timer),
        };
        if old == at {
            return;
        }
        if let Some(old) = old {
            self.queue.remove(&(old, timer));
        }
        if let Some(at) = at {
            self.queue.insert((at, timer));
        }
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.times.contains_key(&timer)
    }

    pub(super) fn next(&self) -> Option<Mono> {
        self.queue.first().map(|next| next.0)
    }

    pub(super) fn pop_due(&mut self, now: Mono) -> Option<Timer> {
        let (at, timer) = self.queue.first().copied().filter(|next| next.0 <= now)?;
        self.queue.remove(&(at, timer));
        self.times.remove(&timer);
        Some(timer)
    }
}
