//! The deterministic simulation: the production shard and storage, driven by simulated clients, network, disk and
//! clock, with faults injected from a seed and every promise checked at every step.
//!
//! Input: a seed (and, to test the checks, one way in which the broker is made to lie). Output: a report, with the
//! promise that was broken if one was, and a trace. Nothing in here reads a clock, starts a thread or draws chance
//! from anywhere but the seed, so a seed run twice gives the same trace.
//!
//! A request's way: `clients` → `net` → `world` (rounds) → the production `Shard` → `world/disk` (virtual delays,
//! faults) → the broker's own `serve` over `storage` on the simulated disk; and back. `model` sees what goes into the
//! shard and what comes out.

pub mod breakage;
pub mod clients;
pub mod clock;
pub mod content;
pub mod event;
pub mod model;
pub mod net;
pub mod node;
pub mod plan;
pub mod random;
pub mod trace;
pub mod world;

use self::breakage::Breakage;
use self::model::Violation;
use self::trace::Trace;
use self::world::{Counts, World};

/// Lines of the trace that a report shows.
const LINES_SHOWN: usize = 150;

/// How a run went.
#[derive(Debug)]
pub struct Report {
    /// What it was run from.
    pub seed: u64,
    /// The broken promise, if one was.
    pub violation: Option<Violation>,
    /// What was counted.
    pub counts: Counts,
    /// What happened.
    pub trace: Trace,
}

/// Runs what `seed` stands for; with a breakage the broker is made to lie.
#[must_use]
pub fn run(seed: u64, breakage: Option<Breakage>) -> Report {
    let mut world = World::new(seed, breakage);
    let violation = world.run().err();
    Report { seed, violation, counts: world.counts(), trace: world.trace().clone() }
}

impl Report {
    /// What to print of a run that broke a promise: the trace, the promise, the way to run it again.
    #[must_use]
    pub fn told(&self, whole: bool) -> String {
        let lines = if whole { usize::MAX } else { LINES_SHOWN };
        let broken = self.violation.as_ref().map_or("no promise was broken".to_owned(), ToString::to_string);
        format!(
            "{}\n\nseed {}: {broken}\n{:?}\nagain, with the whole trace: make test-sim SEED={}",
            self.trace.tail(lines),
            self.seed,
            self.counts,
            self.seed
        )
    }
}
