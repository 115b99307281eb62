//! The simulation over many seeds. `SLUICE_SIM_SEEDS` says how many (100), `SLUICE_SIM_FROM` where they begin
//! (0), `SLUICE_SIM_SEED` names one, whose whole trace is printed.

use integration_tests::sim;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 100;
/// Parts that the test harness may run beside each other.
const PARTS: u64 = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

fn part(part: u64) {
    if number("SLUICE_SIM_SEED").is_some() {
        return;
    }
    let from = number("SLUICE_SIM_FROM").unwrap_or(0);
    let seeds = number("SLUICE_SIM_SEEDS").unwrap_or(SEEDS);
    let mut failed = Vec::new();
    for seed in (from..from + seeds).filter(|seed| seed % PARTS == part) {
        let report = sim::run(seed, None);
        if report.violation.is_some() {
            println!("{}\n", report.told(false));
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that broke a promise: {failed:?}; make test-sim SEED=n shows one");
}

#[test]
fn even_seeds_keep_every_promise() {
    part(0);
}

#[test]
fn odd_seeds_keep_every_promise() {
    part(1);
}

#[test]
fn one_seed_with_its_trace() {
    let Some(seed) = number("SLUICE_SIM_SEED") else { return };
    let report = sim::run(seed, None);
    println!("{}", report.told(true));
    assert!(report.violation.is_none(), "seed {seed} broke a promise");
}
