//! Time as an argument: nothing in this crate reads a clock.

use std::ops::{Add, Sub};

/// A point on the monotonic clock, in microseconds since an arbitrary start.
///
/// Sessions, locks, waits and deadlines run on it; it never steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic: for everything that waits.
    pub mono: Mono,
    /// Wall clock, milliseconds since the epoch: for timestamps in records and for waits that must survive a
    /// restart. It may step.
    pub wall_ms: i64,
}

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From milliseconds; negative counts as none.
    #[must_use]
    pub fn from_ms(ms: i64) -> Self {
        Self(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000))
    }

    /// Whole milliseconds, rounded up: a wait that is told in milliseconds must not end early.
    #[must_use]
    pub fn as_ms_ceil(self) -> i64 {
        i64::try_from(self.0.div_ceil(1_000)).unwrap_or(i64::MAX)
    }
}

impl Add<Micros> for Mono {
    type Output = Self;
    fn add(self, length: Micros) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub for Mono {
    type Output = Micros;
    /// Zero where `earlier` is later.
    fn sub(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}
