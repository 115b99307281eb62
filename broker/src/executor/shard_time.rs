//! The time that the shard is told: the monotonic clock, less what the broker stood still for.
//!
//! A machine that is paused, a process that gets no processor or a write that blocks for seconds makes everything late
//! that was to happen meanwhile: acknowledgements wait in sockets, answers are not known to be written, heartbeats were
//! not read. Were those seconds counted, the first thing that the shard would do is to take all locks and memberships
//! from their holders, who did nothing wrong and, with a stock client, work on beside the next holder.

use coordinator::time::{Micros, Mono};

/// What is late by less counts: a machine that is only busy. It also lets time go on where every round is late.
const LATE_MAX: Micros = Micros(1_000_000);

/// See the module.
#[derive(Debug)]
pub(super) struct ShardTime {
    behind: Micros,
    /// The clock at the last look.
    looked: Mono,
}

impl ShardTime {
    /// A time that agrees with the clock, from now on.
    pub(super) fn from(clock: Mono) -> Self {
        Self { behind: Micros::ZERO, looked: clock }
    }

    /// The shard's time at `clock`, and by how much it fell behind just now. The shard was to be run at `due`, in its
    /// own time, at the latest.
    pub(super) fn at(&mut self, clock: Mono, due: Option<Mono>) -> (Mono, Micros) {
        let awaited = due.map_or(clock, |due| self.clock_at(due)).max(self.looked);
        self.looked = clock;
        let lost = Micros((clock - awaited).0.saturating_sub(LATE_MAX.0));
        self.behind = Micros(self.behind.0 + lost.0);
        (Mono(clock.0.saturating_sub(self.behind.0)), lost)
    }

    /// The clock at a time of the shard's, if the broker does not stand still before.
    pub(super) fn clock_at(&self, time: Mono) -> Mono {
        time + self.behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(time: &mut ShardTime, clock_s: u64, due_s: Option<u64>) -> (u64, u64) {
        let (mono, lost) = time.at(Mono(clock_s * SECOND), due_s.map(|due| Mono(due * SECOND)));
        (mono.0 / SECOND, lost.0 / SECOND)
    }

    #[test]
    fn time_that_nobody_waited_for_counts() {
        let mut time = ShardTime::from(Mono::default());
        assert_eq!(at(&mut time, 10, None), (10, 0), "nothing was due");
        assert_eq!(at(&mut time, 40, Some(40)), (40, 0), "it was due now");
        assert_eq!(at(&mut time, 60, Some(59)), (60, 0), "a little late");
    }

    #[test]
    fn what_the_broker_stood_still_for_does_not_count() {
        let mut time = ShardTime::from(Mono::default());
        assert_eq!(at(&mut time, 10, None), (10, 0));
        assert_eq!(at(&mut time, 30, Some(12)), (13, 17), "18 s late, one of them counts");
        assert_eq!(time.clock_at(Mono(15 * SECOND)), Mono(32 * SECOND));
        assert_eq!(at(&mut time, 32, Some(15)), (15, 0), "in time again");
    }

    #[test]
    fn what_was_due_long_before_the_last_look_is_late_only_since_then() {
        let mut time = ShardTime::from(Mono::default());
        assert_eq!(at(&mut time, 10, None), (10, 0));
        assert_eq!(at(&mut time, 11, Some(3)), (11, 0));
    }

    #[test]
    fn time_goes_on_where_every_round_is_late() {
        let mut time = ShardTime::from(Mono::default());
        let mut before = at(&mut time, 10, None).0;
        for clock in (13..60).step_by(3) {
            let now = at(&mut time, clock, Some(10)).0;
            assert_eq!(now, before + 1);
            before = now;
        }
    }
}
