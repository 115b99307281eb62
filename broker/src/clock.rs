//! The only reader of real time. Everything else is handed a [`Now`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coordinator::time::{Mono, Now};

/// The machine's clocks. Cheap to copy; copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the real clock")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall_ms: self.wall_ms() }
    }

    /// Monotonic time since the clock was started.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the real clock")]
    pub fn mono(&self) -> Mono {
        Mono(u64::try_from(Instant::now().duration_since(self.start).as_micros()).unwrap_or(u64::MAX))
    }

    /// Wall clock in milliseconds since the epoch; 0 before it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the real clock")]
    pub fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// How long until `deadline`; zero where it has passed.
    #[must_use]
    pub fn until(&self, deadline: Mono) -> Duration {
        Duration::from_micros((deadline - self.mono()).0)
    }
}
