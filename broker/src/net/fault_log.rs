//! Log lines about faulty connections, at most so many a second: a flood of garbage must not fill the disk with its own
//! protocol.

use std::fmt;
use std::net::SocketAddr;

use coordinator::time::Mono;
use parking_lot::Mutex;

/// Lines a second; what is beyond is counted and told in one line.
const LINES_A_SECOND_MAX: u32 = 50;

/// One second in the clock's microseconds.
const SECOND: u64 = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    second: u64,
    lines: u32,
    silent: u64,
}

/// What becomes of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    told: bool,
    /// Faults before it that were not told, where it is the first of its second.
    silent_before: u64,
}

impl FaultLog {
    /// Tells that a connection is closed for a fault of its client.
    pub(super) fn tell(&self, now: Mono, peer: SocketAddr, fault: &dyn fmt::Display) {
        let Verdict { told, silent_before } = self.state.lock().judge(now);
        if silent_before > 0 {
            tracing::warn!("{silent_before} more connections were closed for faults of their clients");
        }
        if told {
            tracing::warn!(%peer, "closing connection: {fault}");
        }
    }
}

impl State {
    fn judge(&mut self, now: Mono) -> Verdict {
        let second = now.0 / SECOND;
        let mut silent_before = 0;
        if second != self.second {
            silent_before = std::mem::take(&mut self.silent);
            (self.second, self.lines) = (second, 0);
        }
        let told = self.lines < LINES_A_SECOND_MAX;
        if told {
            self.lines += 1;
        } else {
            self.silent += 1;
        }
        Verdict { told, silent_before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_few_lines() {
        let mut state = State::default();
        let told = (0..1_000).filter(|_| state.judge(Mono(5 * SECOND)).told).count();
        assert_eq!(told, LINES_A_SECOND_MAX as usize);
        let next = state.judge(Mono(6 * SECOND));
        assert_eq!(next, Verdict { told: true, silent_before: 1_000 - u64::from(LINES_A_SECOND_MAX) });
        assert_eq!(state.judge(Mono(6 * SECOND)).silent_before, 0);
    }
}
