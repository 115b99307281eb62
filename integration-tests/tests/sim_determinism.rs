//! A seed run twice gives the same trace, and different seeds give different ones.

use std::collections::BTreeSet;

use integration_tests::sim;

const SEEDS: u64 = 8;

#[test]
fn a_seed_run_twice_gives_the_same_trace() {
    let mut digests = BTreeSet::new();
    for seed in 1_000..1_000 + SEEDS {
        let first = sim::run(seed, None);
        let second = sim::run(seed, None);
        let differs = first.trace.lines().iter().zip(second.trace.lines()).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.trace.digest(), second.trace.digest(), "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
        digests.insert(first.trace.digest());
    }
    assert_eq!(digests.len() as u64, SEEDS);
}
