//! What a run tells: which promise was broken, and what happened until then, line by line.

use std::fmt;

/// What `storage` promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What was synced survives a power cut, what was written survives a kill.
    Lost,
    /// Nothing is in a log that was not written there, and nothing twice.
    Phantom,
    /// Offsets are those that were answered, ascending, without holes but for compaction's.
    Order,
    /// The log start never goes back, nor further than it was told to.
    Start,
    /// Each life after an unclean stop has a higher leader epoch, and epochs end where they ended.
    Epoch,
    /// The last batches of an idempotent producer are known again.
    Producer,
    /// Offsets by time, positions by offset, the files beside a log agree with it.
    Index,
    /// Answers by key are those that a plain reading gives.
    Keys,
    /// Of an event log a prefix of whole appends is there, with all that was synced.
    Events,
    /// A snapshot of an event log has just the pages that it names, as they were written.
    Pages,
    /// What speaks of offsets that were cut off is void, what speaks of others is not.
    Outlives,
    /// A poisoned log takes nothing, any other takes what it must.
    Poison,
    /// A start reads no more of the logs than it must.
    Reading,
    /// Nothing is removed early, slices stay readable.
    Early,
    /// Damage is reported where it is.
    Damage,
    /// A start succeeds, and so does what no fault is in the way of.
    Fails,
    /// Compaction keeps the last record of each key.
    Compaction,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// A check, or a step that checks on the way.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Says that a promise is broken unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $rule:ident, $($text:tt)+) => {
        if !$holds {
            let violation =
                crate::report::Violation { rule: crate::report::Rule::$rule, what: format!($($text)+) };
            return Err(violation.into());
        }
    };
}
pub(crate) use ensure;

/// Lines kept for printing; older ones are only in the digest.
const LINES_MAX: usize = 20_000;

/// The lines of a run and a digest over all of them.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    lines: Vec<String>,
    digest: u64,
}

impl Default for Trace {
    fn default() -> Self {
        // FNV-1a's offset basis.
        Self { lines: Vec::new(), digest: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Trace {
    pub(crate) fn note(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        }
    }

    /// Tells two runs apart.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// One run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Trace,
    pub(crate) steps: u64,
}

impl Report {
    /// For people: the trace, or its end, and what was broken.
    pub(crate) fn told(&self, whole: bool) -> String {
        let lines = &self.trace.lines;
        let from = if whole { 0 } else { lines.len().saturating_sub(40) };
        let verdict = match &self.violation {
            None => "every promise was kept".to_owned(),
            Some(violation) => format!("{violation}\nreplay: make test-sim-storage SEED={}", self.seed),
        };
        format!("seed {} ({} steps)\n{}\n{verdict}", self.seed, self.steps, lines[from..].join("\n"))
    }
}
