//! What is told of a share-partition in numbers: counters, and how old its oldest record is.

use coordinator::io::ScannedKind;
use coordinator::share::admin::KeyAction;
use coordinator::share::{Poison, ShareConfig, ShareCounters, ShareError, ShareOrder};
use proptest::prelude::*;
use records::ids::Offset;

use crate::common::{ACCEPT, REJECT, RELEASE, World, key_config, none_config, range};
use crate::hand::{at, of};

/// Of every kind something: accepts, rejects, a record at its limit, unreadable ones, skipped ones, one that came back from
/// its lock, a replay.
fn busy(config: ShareConfig) -> World {
    let mut w = World::new(ShareConfig { delivery_count_max: 2, ..config });
    w.log("a b c d e f g h");
    w.append(0, ScannedKind::Corrupt, 3);
    w.log("i");
    w.fetch("A", 8);
    w.ack("A", 0, 2, ACCEPT);
    w.ack("A", 3, 4, REJECT);
    w.ack("A", 5, 5, RELEASE);
    w.fetch("A", 1);
    w.ack("A", 5, 5, RELEASE);
    w.pass_ms(31_000);
    w.fetch("B", 1);
    w
}

#[test]
fn after_a_restart_counters_begin_at_0() {
    for poison in [Poison::Skip, Poison::Park] {
        for config in [key_config(), none_config()] {
            for snapshot_after_bytes in [1, 1 << 20] {
                let mut w = busy(ShareConfig { poison, ..config.clone() });
                w.limits.snapshot_after_bytes = snapshot_after_bytes;
                if config.order == ShareOrder::Key {
                    w.alters(of("a"), KeyAction::Replay(Offset(0), Offset(0)));
                }
                assert_ne!(w.view().counters, ShareCounters::default());
                w.restart(0);
                w.reopen("A");
                w.fetch("A", 0);
                assert_eq!(w.view().counters, ShareCounters::default(), "{poison:?} {:?}", config.order);
            }
        }
    }
}

#[test]
fn counters_go_on_where_state_is_read_anew_and_what_was_refused_does_not_count() {
    let mut w = World::keyed();
    w.log("a b c");
    assert_eq!(w.fetch("A", 3), [(0, 2, 1)]);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    let before = w.view().counters;
    assert_eq!((before.granted, before.accepted), (3, 1));
    for _ in 0..3 {
        w.disk_full = true;
        assert_eq!(w.ack("A", 1, 1, ACCEPT), Some(ShareError::Unavailable));
        w.disk_full = false;
        w.pass_ms(2_000);
        assert_eq!(w.view().counters, before);
    }
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(w.view().counters, ShareCounters { accepted: 2, ..before });
}

#[test]
fn nothing_counts_before_it_is_stored() {
    let mut w = World::keyed();
    w.log("a b c");
    assert_eq!(w.fetch("A", 3), [(0, 2, 1)]);
    let before = w.view().counters;
    w.slow_disk = true;
    w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
    assert_eq!(w.view().counters, before);
    w.slow_disk = false;
    w.serve();
    assert_eq!(w.view().counters, ShareCounters { accepted: 1, ..before });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is done, a record counts as accepted as often as its accept was confirmed.
    #[test]
    fn an_accept_counts_once(steps in prop::collection::vec((0..4_u8, any::<bool>()), 1..40)) {
        let mut w = World::keyed();
        w.log(&"a b c d e ".repeat(10));
        let mut accepted = 0;
        for (step, fails) in steps {
            w.disk_full = fails;
            match step {
                0 => w.pass_ms(2_000),
                1 => {
                    w.restart(0);
                    w.reopen("A");
                    accepted = 0;
                }
                _ => {
                    for (first, last, _) in w.fetch("A", 3) {
                        for offset in first..=last {
                            accepted += u64::from(w.ack("A", offset, offset, ACCEPT).is_none());
                        }
                    }
                }
            }
            w.disk_full = false;
            if let Some(view) = w.machine.view("g", crate::common::partition(0)) {
                prop_assert_eq!((view.counters.accepted, view.counters.archived), (accepted, 0));
            }
        }
    }
}

#[test]
fn an_unreadable_record_counts_once_whatever_becomes_of_it() {
    for poison in [Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park] {
        let mut w = World::new(ShareConfig { poison, ..key_config() });
        w.append(0, ScannedKind::Corrupt, 4);
        w.log("a");
        assert_eq!(w.fetch("A", 10), [(4, 4, 1)]);
        let counters = w.view().counters;
        assert_eq!(counters.corrupt, 4, "{poison:?}");
        assert_eq!(counters.corrupt_skipped, if poison == Poison::Skip { 4 } else { 0 }, "{poison:?}");
        if poison == Poison::Park {
            assert_eq!(counters.archived, 0);
            assert_eq!(w.alters(at(0), KeyAction::Skip), 1);
            let counters = w.view().counters;
            assert_eq!((counters.corrupt, counters.skipped, counters.archived), (4, 1, 1));
        }
        w.restart(0);
        w.reopen("A");
        w.fetch("A", 0);
        assert_eq!(w.view().counters.corrupt, 0, "{poison:?}: it was found before");
    }
}

#[test]
fn without_order_every_waiting_record_is_counted() {
    let mut w = World::new(ShareConfig { backoff_ms: 60_000, backoff_max_ms: 60_000, ..key_config() });
    w.log("a b - c a");
    w.fetch("A", 10);
    assert_eq!(w.ack("A", 0, 4, RELEASE), None);
    assert_eq!(w.view().waiting_keys, 4);
    w.config.order = ShareOrder::None;
    w.configure();
    assert_eq!(w.view().waiting_keys, 4, "the last is ready, behind nothing");
    w.config.order = ShareOrder::Key;
    w.configure();
    assert_eq!(w.view().waiting_keys, 4);
    w.config.order = ShareOrder::None;
    w.configure();
    w.pass_ms(61_000);
    assert_eq!(w.view().waiting_keys, 0);
}

fn oldest_ms(w: &World) -> Option<i64> {
    w.machine.group_views(&w.table).next().expect("there is a group").1.oldest_ms
}

#[test]
fn the_oldest_records_age_is_known_while_the_start_moves() {
    let mut w = World::new(none_config());
    let mut times = Vec::new();
    for _ in 0..600 {
        w.log("a b");
        times.extend([w.now.wall_ms; 2]);
        w.now.wall_ms += 1_000;
    }
    let mut told = 0;
    for round in 0..100 {
        for (first, last, _) in w.fetch("A", 10) {
            assert_eq!(w.ack("A", first, last, ACCEPT), None);
        }
        let oldest = oldest_ms(&w).expect("1,000 records wait");
        assert!(oldest >= told, "round {round}");
        told = oldest;
        let start = usize::try_from(w.start()).unwrap();
        assert!(oldest <= times[start], "never younger than it is");
        // 10 records, which are 5 s of the log, in 100 ms: what is told is 2 s behind.
        assert!(oldest >= times[start.saturating_sub(220)], "round {round}");
        w.pass_ms(100);
    }
}

#[test]
fn an_idle_groups_next_record_is_as_old_as_it_is() {
    let mut w = World::new(none_config());
    w.log("a");
    assert_eq!(w.fetch("A", 10), [(0, 0, 1)]);
    assert_eq!(oldest_ms(&w), Some(w.now.wall_ms));
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(oldest_ms(&w), None, "nothing waits");
    w.pass_ms(3_600_000);
    assert_eq!(oldest_ms(&w), None, "nothing waits");
    w.log("b");
    assert_eq!(oldest_ms(&w), Some(w.now.wall_ms), "although nobody reads it");
}
