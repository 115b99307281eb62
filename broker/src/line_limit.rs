//! Log lines of one kind, at most so many a second: a flood of faults must not fill the disk with its own protocol.

use parking_lot::Mutex;

/// Lines a second; what is beyond is counted and told in one line.
const LINES_A_SECOND_MAX: u32 = 50;

/// See the module.
#[derive(Debug)]
pub struct LineLimit {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    second: u64,
    lines: u32,
    silent: u64,
}

/// What becomes of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it gets a line.
    pub told: bool,
    /// Faults before it that got none, where it is the first of its second.
    pub silent_before: u64,
}

impl LineLimit {
    /// Nothing was told yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: Mutex::new(State { second: 0, lines: 0, silent: 0 }) }
    }

    /// A fault in this second, of whatever clock.
    pub fn judge(&self, second: u64) -> Verdict {
        let mut state = self.state.lock();
        let mut silent_before = 0;
        if second != state.second {
            silent_before = std::mem::take(&mut state.silent);
            (state.second, state.lines) = (second, 0);
        }
        let told = state.lines < LINES_A_SECOND_MAX;
        if told {
            state.lines += 1;
        } else {
            state.silent += 1;
        }
        Verdict { told, silent_before }
    }
}

impl Default for LineLimit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_in_few_lines() {
        let limit = LineLimit::new();
        let told = (0..1_000).filter(|_| limit.judge(5).told).count();
        assert_eq!(told, LINES_A_SECOND_MAX as usize);
        let next = limit.judge(6);
        assert_eq!(next, Verdict { told: true, silent_before: 1_000 - u64::from(LINES_A_SECOND_MAX) });
        assert_eq!(limit.judge(6).silent_before, 0);
    }
}
