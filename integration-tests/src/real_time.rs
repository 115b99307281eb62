//! Real time for tests that run real processes: the one place in this crate that reads the machine's clocks.
//!
//! The simulation never uses it; what it hands out are limits on waiting, never inputs of what is tested.
#![allow(clippy::disallowed_methods, reason = "processes of other programs live in real time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a condition that announces itself by nothing else is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The end of a bounded wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// What is left until then, zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// True when it has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Time since its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// A stopwatch that runs from now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What has passed since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Wall clock in nanoseconds since 1970: the clock of the event logs.
pub fn wall_clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock stands after 1970");
    i64::try_from(since.as_nanos()).expect("nanoseconds since 1970 fit 63 bits until 2262")
}

/// Waits until `condition` holds, at most `limit`. True when it came to hold.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Deadline::after(limit);
    loop {
        if condition() {
            return true;
        }
        if deadline.is_over() {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Lets time pass where the passing of time is what is tested.
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}
