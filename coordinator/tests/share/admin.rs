//! The operator's hand: park, resume, skip, drop (K31, K40), and the reset of a share-partition.

use coordinator::share::admin::{AdminError, KeyAction, ResetTo, StopReason, Why};
use coordinator::share::{Poison, ShareConfig, ShareError};
use records::ids::{KeyHash, Offset};

use crate::common::{ACCEPT, REJECT, RELEASE, World, key, key_config, none_config, offsets};
use crate::hand::{at, of};

/// A group whose poison is parked, and 0:a poisoned.
fn parked() -> World {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a a");
    for count in 1..=5 {
        assert_eq!(world.fetch("A", 1), [(0, 0, count)]);
        assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    }
    world.log("b");
    world
}

#[test]
fn k31_a_parked_key_stops_alone_and_is_shown() {
    let mut world = parked();
    assert_eq!(world.fetch("A", 10), [(2, 2, 1)], "all else flows");
    let since_ms = world.now.wall_ms;
    world.pass_ms(5_000);
    let described = world.describe(&[of("a"), at(0), at(1)]).unwrap();
    assert_eq!((described.parked, described.stopped.len()), (1, 1));
    let stopped = described.stopped[0];
    assert_eq!((stopped.key, stopped.offset), (key("a"), Offset(0)));
    assert_eq!((stopped.deliveries, stopped.since_ms), (5, since_ms));
    assert_eq!((stopped.follows, stopped.reason), (false, StopReason::LimitReached));
    for answer in described.answers {
        assert_eq!(answer, Why::Parked { since_ms, offset: Offset(0) });
    }
    world.log("a");
    assert_eq!(world.fetch("B", 10), [], "new ones of it, too");
}

#[test]
fn k31_k40_resume_skip_and_drop_wake_who_waits() {
    for (action, next) in [(KeyAction::Resume, 0), (KeyAction::Skip, 1), (KeyAction::Drop(None), 1)] {
        for restarted in [false, true] {
            for by in [of("a"), at(0)] {
                let mut world = parked();
                if restarted {
                    world.limits.snapshot_after_bytes = 1;
                    world.restart(0);
                    world.reopen("A");
                }
                assert_eq!(offsets(&world.fetch("A", 10)), [2], "parked survives a restart");
                let waits = world.park("B", 1);
                assert_eq!(world.woken("B", waits), None);
                assert_eq!(world.alters(by, action), 1);
                assert_eq!(world.woken("B", waits), Some(vec![(next, next, 1)]), "{action:?}");
                assert_eq!(world.start(), next);
                assert_eq!(world.ack("B", next, next, ACCEPT), None);
                if next == 0 {
                    assert_eq!(world.fetch("B", 10), [(1, 1, 1)]);
                } else {
                    assert_eq!(world.view().counters.skipped, 1);
                }
                assert_eq!(world.describe(&[]).unwrap().parked, 0);
            }
        }
    }
}

#[test]
fn k31_a_resumed_record_has_all_its_deliveries_again_and_recalls_what_overtook_it() {
    let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    world.log("a a a");
    assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.fetch("B", 10), [], "A still has 1, which was recalled");
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(world.fetch("B", 10), [(0, 2, 1)], "and comes again, behind 0");
}

#[test]
fn an_operator_parks_a_key_and_what_members_hold_stays_theirs() {
    let mut world = World::keyed();
    world.log("a a b a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    let since_ms = world.now.wall_ms;
    assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
    assert_eq!(world.alters(of("a"), KeyAction::Park), 0, "it is so already");
    assert_eq!(world.fetch("B", 10), [(2, 2, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(world.fetch("A", 10), []);
    assert_eq!(world.why(at(1)), Why::Parked { since_ms, offset: Offset(0) });
    let stopped = world.describe(&[]).unwrap().stopped;
    assert_eq!(stopped[0].reason, StopReason::Operator);
    let waits = world.park("A", 10);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.woken("A", waits), Some(vec![(1, 1, 1), (3, 3, 1)]));
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 0);
}

#[test]
fn a_key_can_be_parked_before_it_has_come() {
    let mut world = World::keyed();
    world.log("b");
    assert_eq!(world.fetch("A", 10), [(0, 0, 1)]);
    assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
    world.log("a");
    world.restart(0);
    world.reopen("A");
    assert_eq!(world.fetch("B", 10), []);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.fetch("B", 10), [(1, 1, 1)]);
}

#[test]
fn drop_takes_a_range_of_a_key_and_nothing_else() {
    let mut world = World::keyed();
    world.log("a b a b a a");
    assert_eq!(world.fetch("A", 0), []);
    assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
    assert_eq!(world.alters(of("a"), KeyAction::Drop(Some(Offset(4)))), 3);
    assert_eq!(offsets(&world.fetch("A", 10)), [1, 3, 5]);
    let counters = world.view().counters;
    assert_eq!((counters.skipped, counters.archived), (3, 3));
    assert_eq!(world.alter(of("a"), KeyAction::Skip), Err(AdminError::NothingThere), "A holds it");
}

#[test]
fn a_record_without_a_key_is_parked_and_skipped_alone() {
    for config in [key_config(), none_config()] {
        let mut world = World::new(ShareConfig { poison: Poison::Park, ..config });
        world.log("- - -");
        assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
        assert_eq!(world.ack("A", 0, 1, REJECT), None);
        assert_eq!(world.fetch("A", 10), [(2, 2, 1)]);
        assert_eq!(world.describe(&[]).unwrap().parked, 2);
        assert_eq!(world.alters(at(0), KeyAction::Resume), 1);
        assert_eq!(world.alters(at(1), KeyAction::Drop(None)), 1);
        assert_eq!(world.fetch("B", 10), [(0, 0, 1)]);
        assert_eq!(world.alter(at(0), KeyAction::Skip), Err(AdminError::Held));
        assert_eq!(world.alter(at(1), KeyAction::Resume), Err(AdminError::UnknownRecord));
        let keyed = world.config.order == coordinator::share::ShareOrder::Key;
        let by_key = world.alter(of("a"), KeyAction::Park);
        assert_eq!(by_key.is_ok(), keyed, "without order there are no keys: {by_key:?}");
    }
}

#[test]
fn an_alteration_is_answered_when_it_is_stored_and_undone_when_it_cannot_be() {
    let mut world = World::keyed();
    world.log("a");
    assert_eq!(world.fetch("A", 0), []);
    world.disk_full = true;
    let refused = world.alter(of("a"), KeyAction::Park);
    assert_eq!(refused, Err(AdminError::Share(ShareError::Unavailable)));
    world.disk_full = false;
    world.pass_ms(2_000);
    world.reopen("A");
    assert_eq!(world.fetch("A", 10), [(0, 0, 1)]);
}

#[test]
fn parked_keys_outlive_a_change_of_order() {
    let mut world = parked();
    world.config.order = coordinator::share::ShareOrder::None;
    world.configure();
    assert_eq!(offsets(&world.fetch("A", 10)), [1, 2], "without order only the record itself is parked");
    world.config.order = coordinator::share::ShareOrder::Key;
    world.configure();
    world.log("a");
    assert_eq!(world.ack("A", 1, 2, ACCEPT), None);
    assert_eq!(world.fetch("A", 10), []);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(offsets(&world.fetch("A", 10)), [0, 3]);
}

#[test]
fn nobody_makes_state_by_asking_or_altering() {
    let mut world = World::keyed();
    assert_eq!(world.describe(&[]), Err(AdminError::NothingThere));
    assert_eq!(world.alter(of("a"), KeyAction::Park), Err(AdminError::NothingThere));
    assert!(world.stored.is_empty());
}

#[test]
fn state_is_loaded_for_a_question() {
    let mut world = parked();
    world.restart(0);
    assert_eq!(world.describe(&[of("a")]).unwrap().parked, 1);
}

#[test]
fn a_reset_begins_anew_where_it_is_told() {
    for (to, start) in [
        (ResetTo::Earliest, 0),
        (ResetTo::Latest, 4),
        (ResetTo::Offset(Offset(2)), 2),
        (ResetTo::Offset(Offset(99)), 4),
        (ResetTo::Time(1_700_000_001_000), 2),
        (ResetTo::Time(1_800_000_000_000), 4),
    ] {
        let mut world = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
        world.log("a b");
        world.pass_ms(1_000);
        world.log("a b");
        assert_eq!(offsets(&world.fetch("A", 10)), [0, 1, 2, 3]);
        assert_eq!(world.reset(to), Err(AdminError::InUse), "A would work on beside others");
        assert_eq!(world.ack("A", 1, 3, ACCEPT), None);
        assert_eq!(world.ack("A", 0, 0, REJECT), None);
        assert_eq!(world.reset(to), Ok(Offset(start)), "{to:?}");
        assert_eq!(world.start(), start);
        assert_eq!(offsets(&world.fetch("A", 10)), (start..4).collect::<Vec<_>>(), "{to:?}");
        world.restart(0);
        world.pass_ms(7_500);
        assert_eq!(offsets(&world.fetch("B", 10)), (start..4).collect::<Vec<_>>(), "{to:?}");
    }
}

#[test]
fn a_reset_makes_state_where_there_was_none_and_takes_no_stale_scan() {
    let mut world = World::keyed();
    world.log("a b");
    assert_eq!(world.reset(ResetTo::Offset(Offset(1))), Ok(Offset(1)));
    assert_eq!(world.fetch("A", 10), [(1, 1, 1)]);
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    world.slow_disk = true;
    world.log("c d");
    assert_eq!(world.waiting(), 1, "a scan of c and d");
    let _ = world.command(coordinator::share::ShareCommand::ResetOffsets(
        coordinator::share::admin::ResetOffsets {
            group: crate::common::group(),
            parts: vec![(crate::common::partition(0), ResetTo::Earliest)],
        },
    ));
    world.serve();
    world.slow_disk = false;
    assert_eq!(offsets(&world.fetch("A", 10)), [0, 1, 2, 3]);
}

#[test]
fn two_keys_of_one_hash_are_one() {
    let mut world = World::keyed();
    world.batch(0, &[Some(KeyHash(7)), Some(KeyHash(7))], &[1, 1]);
    world.grew(0);
    assert_eq!(world.fetch("A", 0), []);
    assert_eq!(world.alters(at(0), KeyAction::Park), 1);
    assert_eq!(world.fetch("A", 10), []);
}

/// After a restart the keys of parked records are known only when they are read again.
#[test]
fn k31_a_key_is_resumed_right_after_a_restart_although_nobody_reads() {
    let mut world = parked();
    world.restart(0);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    world.reopen("A");
    assert_eq!(offsets(&world.fetch("B", 1)), [0]);
}

/// Nobody has to wait for the retry: the key goes on at once, over a restart too.
#[test]
fn k31_a_key_that_waits_for_a_retry_goes_on_when_it_is_resumed() {
    for parked_before in [false, true] {
        let mut world = World::new(ShareConfig { backoff_ms: 60_000, key_inflight_max: 1, ..key_config() });
        world.log("a a b");
        assert_eq!(world.fetch("A", 2), [(0, 0, 1), (2, 2, 1)]);
        assert_eq!(world.ack("A", 0, 0, RELEASE), None);
        assert_eq!(world.ack("A", 2, 2, RELEASE), None);
        assert_eq!(world.fetch("A", 10), []);
        if parked_before {
            assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
        }
        world.restart(0);
        assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
        assert_eq!(world.why(of("a")), Why::Ready);
        world.restart(0);
        world.reopen("A");
        assert_eq!(world.fetch("A", 10), [(0, 0, 2)], "and b waits");
        assert_eq!(world.alters(of("a"), KeyAction::Resume), 0);
    }
}

#[test]
fn k31_a_key_is_resumed_with_all_that_is_parked_or_waits_of_it_and_of_no_other() {
    let config = ShareConfig { poison: Poison::Park, backoff_ms: 60_000, ..key_config() };
    let mut world = World::new(config);
    world.log("a b a b a b");
    assert_eq!(world.fetch("A", 10), [(0, 5, 1)]);
    for offset in [2, 3] {
        assert_eq!(world.ack("A", offset, offset, REJECT), None);
    }
    for offset in [0, 1, 4, 5] {
        assert_eq!(world.ack("A", offset, offset, RELEASE), None);
    }
    assert_eq!(world.fetch("A", 10), []);
    // What was recalled did not fail, and does not wait.
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 2);
    assert_eq!(world.fetch("B", 10), [(0, 0, 2), (2, 2, 1), (4, 4, 1)]);
    assert_eq!(world.alters(of("b"), KeyAction::Resume), 2);
    assert_eq!(world.fetch("B", 10), [(1, 1, 2), (3, 3, 1), (5, 5, 1)]);
}
