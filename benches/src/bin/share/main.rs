//! Share groups: `make bench-share` (Sluice alone) and `make bench-kafka-share` (beside Apache Kafka).
//!
//! `share PART…` runs only these parts:
//! - beside Apache Kafka: `perf`, `cap`, `acks`, `join`, `makespan`;
//! - Sluice alone: `stuck`, `amplification`, `million`.
//!
//! `SLUICE_BENCH_TURNS` sets how many turns each side has (5). Sluice's groups keep every key in order; Kafka's have none.

mod acks;
mod amplification;
mod join;
mod makespan;
mod million;
mod perf;
mod stuck;

use benches::side_by_side::Pair;

const PARTS: [&str; 8] = ["perf", "cap", "acks", "join", "makespan", "stuck", "amplification", "million"];
const ALONE: [&str; 3] = ["stuck", "amplification", "million"];

fn main() {
    let mut parts: Vec<String> = std::env::args().skip(1).collect();
    if parts.is_empty() {
        parts = PARTS.map(str::to_owned).to_vec();
    }
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        eprintln!("no part is called {unknown}; there are {}", PARTS.join(", "));
        std::process::exit(2);
    }
    let asked = |part: &str| parts.iter().any(|asked| asked == part);
    if PARTS.iter().any(|part| asked(part) && !ALONE.contains(part)) {
        let Some(pair) = Pair::start() else { return };
        if asked("perf") {
            perf::run(&pair);
        }
        if asked("cap") {
            perf::cap(&pair);
        }
        if asked("acks") {
            acks::run(&pair);
        }
        if asked("join") {
            join::run(&pair);
        }
        if asked("makespan") {
            makespan::run(&pair);
        }
    }
    if asked("stuck") {
        stuck::run();
    }
    if asked("amplification") {
        amplification::run();
    }
    if asked("million") {
        million::run();
    }
}
