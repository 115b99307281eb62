//! When a log is synced: `flush.policy`.

use crate::testing::{NOW, World, batch, partition};
use crate::{FlushPolicy, LogConfig};

fn due(world: &mut World, now_ms: i64) -> bool {
    world.logs().due_flushes(now_ms).count() == 1
}

#[test]
fn with_acks_it_is_synced_when_somebody_waits() {
    let mut world = World::new(1);
    world.append(batch(1)).unwrap();
    assert!(world.logs().syncs_when_asked(partition(0)).unwrap());
    assert!(!world.logs().has_lazy_flushes());
    assert!(!due(&mut world, NOW + 1_000_000));
}

#[test]
fn with_interval_it_is_synced_so_long_after_the_first_write() {
    let mut world = World::with(1, LogConfig { flush: FlushPolicy::Interval(500), ..LogConfig::default() });
    world.append(batch(1)).unwrap();
    // The files of a new log are due at once.
    assert!(due(&mut world, NOW));
    world.sync();
    assert!(!due(&mut world, NOW + 1_000));
    world.append(batch(1)).unwrap();
    assert!(!world.logs().syncs_when_asked(partition(0)).unwrap());
    assert!(!due(&mut world, NOW + 499));
    assert!(due(&mut world, NOW + 500));
    world.sync();
    assert!(!due(&mut world, NOW + 1_000));
    world.append(batch(1)).unwrap();
    assert!(due(&mut world, NOW + 500));
}

#[test]
fn with_os_it_is_synced_when_a_segment_is_full() {
    let config = LogConfig { segment_bytes: 1100, flush: FlushPolicy::Os, ..LogConfig::default() };
    let mut world = World::with(1, config);
    world.append(batch(2)).unwrap();
    world.sync();
    world.append(batch(2)).unwrap();
    assert!(!due(&mut world, NOW + 1_000_000));
    while world.facts().bytes < 2_200 {
        world.append(batch(2)).unwrap();
    }
    assert!(due(&mut world, NOW));
    let end = world.sync();
    assert_eq!(end, world.facts().end);
    assert!(!due(&mut world, NOW + 1_000_000));
}

#[test]
fn a_change_of_the_policy_takes_effect_at_once() {
    let mut world = World::new(1);
    let os = LogConfig { flush: FlushPolicy::Os, ..LogConfig::default() };
    world.logs().configure(partition(0), os).unwrap();
    assert!(world.logs().has_lazy_flushes());
    assert!(!world.logs().syncs_when_asked(partition(0)).unwrap());
    world.logs().configure(partition(0), LogConfig::default()).unwrap();
    assert!(!world.logs().has_lazy_flushes());
}

#[test]
fn a_failed_sync_is_told_whatever_the_policy() {
    let mut world = World::with(1, LogConfig { flush: FlushPolicy::Os, ..LogConfig::default() });
    world.append(batch(1)).unwrap();
    world.sim.fail_syncs(1);
    let job = world.logs().sync_job(partition(0)).unwrap().expect("something to sync");
    assert!(world.logs().sync_done(job.run()).is_err());
    assert!(world.logs().syncs_when_asked(partition(0)).is_err());
}
