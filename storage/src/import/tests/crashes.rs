//! Interrupted at any place, an import leaves nothing that counts, and can be done again.

use super::kafka::{Kafka, Target};
use crate::LogConfig;
use crate::testing::batch;

#[test]
fn p25_an_import_that_was_interrupted_can_be_done_again() {
    let config = LogConfig { segment_bytes: 1024, ..LogConfig::default() };
    let mut kafka = Kafka::with(config.clone());
    for _ in 0..30 {
        kafka.append(batch(5));
    }
    let stopped = kafka.stop();
    let whole = Target::with(config.clone());
    stopped.import(&whole).unwrap();
    let needed = whole.sim.used();
    let mut interrupted = 0;
    // The store alone takes most of the room, so that the steps are small where files are copied.
    for room in (0..needed).step_by(750) {
        let target = Target::with(config.clone());
        target.open().1.next_producer_ids(1).unwrap();
        target.sim.set_capacity(target.sim.used() + room);
        let failed = stopped.import(&target).is_err();
        target.sim.set_capacity(u64::MAX);
        if !failed {
            break;
        }
        interrupted += 1;
        if room.is_multiple_of(2) {
            target.sim.crash();
        }
        if room.is_multiple_of(3) {
            let broker = target.start();
            assert!(broker.metadata.topics().unwrap().is_empty());
            let left = target.disk().list("").unwrap();
            assert!(left.iter().all(|entry| !entry.is_dir), "{left:?}");
        }
        stopped.import(&target).unwrap();
        target.sim.crash();
        let mut broker = target.start();
        assert_eq!(broker.offsets(), (0..150).collect::<Vec<_>>());
    }
    assert!(interrupted > 3, "interrupted {interrupted} times");
}

#[test]
fn p25_a_failed_sync_takes_nothing_over() {
    let mut kafka = Kafka::new();
    kafka.append(batch(5));
    let stopped = kafka.stop();
    let target = Target::new();
    let (data_dir, metadata) = target.open();
    target.sim.fail_syncs(1);
    let error = stopped.import_into(&data_dir, &metadata, false).unwrap_err();
    assert!(error.to_string().contains("injected sync failure"), "{error}");
    drop((data_dir, metadata));
    target.sim.crash();
    assert!(target.start().metadata.topics().unwrap().is_empty());
    stopped.import(&target).unwrap();
    assert_eq!(target.start().bounds(), (0, 5));
}
