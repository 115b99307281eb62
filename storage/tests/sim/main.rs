//! `storage` alone on the simulated disk: random operations, faults and crashes against the real thing, and after each
//! start a check against a slow, simple model.
//!
//! `SLUICE_STORAGE_SEEDS` says how many seeds (`make test` takes a few), `SLUICE_STORAGE_FROM` which one is the first,
//! and `SLUICE_STORAGE_SEED` names one, whose whole trace is printed.

mod breakage;
mod check;
mod model;
mod plan;
mod random;
mod report;
mod world;

use breakage::Breakage;
use report::Rule;
use world::run;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 150;
/// A breakage is found within so many seeds.
const BREAKAGE_SEEDS_MAX: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn every_seed_keeps_every_promise() {
    if number("SLUICE_STORAGE_SEED").is_some() {
        return;
    }
    let from = number("SLUICE_STORAGE_FROM").unwrap_or(0);
    let seeds = number("SLUICE_STORAGE_SEEDS").unwrap_or(SEEDS);
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        let report = run(seed, None);
        if report.violation.is_some() {
            println!("{}\n", report.told(false));
            failed.push(seed);
        }
        assert!(failed.len() < 10, "too many seeds broke a promise: {failed:?}");
    }
    assert!(
        failed.is_empty(),
        "seeds that broke a promise: {failed:?}; make test-sim-storage SEED=n shows one"
    );
}

#[test]
fn one_seed_with_its_trace() {
    let Some(seed) = number("SLUICE_STORAGE_SEED") else { return };
    let report = run(seed, None);
    println!("{}", report.told(true));
    assert!(report.violation.is_none(), "seed {seed} broke a promise");
}

#[test]
fn a_seed_run_twice_ends_alike() {
    for seed in 0..20 {
        let (first, second) = (run(seed, None), run(seed, None));
        assert_eq!(first.trace.digest(), second.trace.digest(), "seed {seed}");
    }
}

/// What each breakage may be found as.
fn rules(breakage: Breakage) -> &'static [Rule] {
    match breakage {
        Breakage::DirectorySyncSkipped => &[Rule::Lost, Rule::Events, Rule::Start],
        Breakage::TornIndexTrusted => &[Rule::Index],
        Breakage::AcknowledgedBeforeSync | Breakage::SwapNotSynced => &[Rule::Lost, Rule::Compaction],
        Breakage::EpochNotRaised => &[Rule::Outlives, Rule::Epoch],
        Breakage::ProducersForgotten | Breakage::SidecarsForgotten | Breakage::SnapshotsKept => {
            &[Rule::Producer]
        }
        Breakage::RecoveryPointTrusted => &[Rule::Order, Rule::Lost, Rule::Phantom, Rule::Index],
        Breakage::TornTailKept | Breakage::EventsCutLost => &[Rule::Index],
        Breakage::LogStartNotWritten => &[Rule::Start],
        Breakage::FailedSyncIgnored => &[Rule::Poison, Rule::Lost],
        Breakage::FailedWriteIgnored => &[Rule::Lost, Rule::Index],
        Breakage::CleanMarkKept => &[Rule::Epoch],
        Breakage::RetiredRemovedAtOnce => &[Rule::Early],
        Breakage::HolesNotWritten => &[Rule::Lost],
        Breakage::EventsSyncSkipped => &[Rule::Events],
        Breakage::PagesSyncSkipped => &[Rule::Pages],
        Breakage::FailedSyncForgotten => &[Rule::Lost, Rule::Events],
    }
}

/// A breakage may also be found by what follows from it, before it is found for what it is: then another seed must show
/// it.
fn is_found(breakage: Breakage) {
    let mut followed = Vec::new();
    for seed in 0..BREAKAGE_SEEDS_MAX {
        match run(seed, Some(breakage)).violation {
            Some(violation) if rules(breakage).contains(&violation.rule) => {
                println!("{breakage:?} is found by seed {seed}: {violation}");
                return;
            }
            Some(violation) => followed.push(format!("seed {seed}: {violation}")),
            None => {}
        }
    }
    followed.truncate(5);
    panic!(
        "{breakage:?} is not found for what it is within {BREAKAGE_SEEDS_MAX} seeds, only by {followed:#?}"
    );
}

#[test]
fn every_breakage_is_found() {
    for breakage in Breakage::ALL {
        is_found(breakage);
    }
}
