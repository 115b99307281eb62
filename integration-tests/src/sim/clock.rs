//! Virtual time and what is to happen when.

use std::collections::BTreeMap;

use coordinator::time::{Micros, Mono, Now};

/// The wall clock at the begin of every run, milliseconds since 1970.
const WALL_AT_BEGIN_MS: i64 = 1_764_000_000_000;

/// Events in the order of their time, and of their making where times are equal.
#[derive(Debug)]
pub struct Clock<E> {
    now: Mono,
    wall_step_ms: i64,
    made: u64,
    events: BTreeMap<(Mono, u64), E>,
}

impl<E> Default for Clock<E> {
    fn default() -> Self {
        Self { now: Mono(1_000_000), wall_step_ms: 0, made: 0, events: BTreeMap::new() }
    }
}

impl<E> Clock<E> {
    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let whole_ms = i64::try_from(self.now.0 / 1_000).expect("a run lasts less than 2^63 ms");
        Now { mono: self.now, wall_ms: WALL_AT_BEGIN_MS + whole_ms + self.wall_step_ms }
    }

    /// The monotonic clock.
    #[must_use]
    pub fn mono(&self) -> Mono {
        self.now
    }

    /// Steps the wall clock.
    pub fn step_wall(&mut self, ms: i64) {
        self.wall_step_ms += ms;
    }

    /// Something happens then; now at the earliest.
    pub fn at(&mut self, at: Mono, event: E) {
        self.made += 1;
        self.events.insert((at.max(self.now), self.made), event);
    }

    /// Something happens so much later.
    pub fn after(&mut self, wait: Micros, event: E) {
        self.at(self.now + wait, event);
    }

    /// Lets time pass to the next event.
    pub fn pass(&mut self) -> Option<E> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now = at;
        Some(event)
    }
}
