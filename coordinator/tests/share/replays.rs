//! Redrive (K50) and replay (K46): settled records of a key come again, beside the window.

use coordinator::share::admin::{AdminError, KeyAction, Why};
use coordinator::share::{Poison, ShareConfig, ShareError};
use records::ids::Offset;

use crate::common::{
    ACCEPT, REJECT, RELEASE, RENEW, World, each, key, key_config, none_config, offsets, partition, range,
};
use crate::hand::{DLQ, alter, at, of};

fn redriving(poison: Poison) -> World {
    let mut world = World::new(ShareConfig {
        poison,
        dead_letter_topic: Some(DLQ.into()),
        dead_letter_copy: true,
        ..key_config()
    });
    world.dead_letter_topic(1, true);
    world
}

/// K49's 0 and 1 of a are dead-lettered, 2:b is held, 3:a and 4:a lie behind; the key is resumed.
fn dead_lettered() -> World {
    let mut world = redriving(Poison::Follow);
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0, 1]);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    world.log("b a a");
    assert_eq!(world.start(), 2);
    world
}

#[test]
fn k50_dead_lettered_records_come_again_in_order_before_later_ones() {
    for by in [of("a"), at(1)] {
        let mut world = dead_lettered();
        let waits = world.park("B", 10);
        assert_eq!(offsets(&world.woken("B", waits).unwrap()), [2, 3, 4], "without a redrive");
        assert_eq!(world.ack("B", 3, 4, RELEASE), None);
        assert_eq!(world.alters(by, KeyAction::Redrive), 2);
        assert_eq!(world.alter(of("a"), KeyAction::Redrive), Err(AdminError::Replaying));
        assert_eq!(world.why(at(3)), Why::BehindReplay);
        assert_eq!(each(&world.fetch("A", 1)), [(0, 1)]);
        assert_eq!(world.fetch("B", 10), [], "A has a");
        assert_eq!(each(&world.fetch("A", 10)), [(1, 1)]);
        assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
        assert_eq!(each(&world.fetch("B", 10)), [(3, 2), (4, 1)], "4 was recalled");
        assert_eq!(world.alter(of("a"), KeyAction::Redrive), Err(AdminError::NothingToRedrive));
        assert_eq!(world.letter_offsets(), [0, 1]);
        let letter = &world.letters()[0];
        assert_eq!(letter.key.as_deref(), Some(&key("a").unwrap().0.to_be_bytes()[..]), "the source's key");
    }
}

#[test]
fn k50_what_fails_again_is_dead_lettered_again_and_can_be_redriven_again() {
    let mut world = dead_lettered();
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    assert_eq!(each(&world.fetch("A", 1)), [(0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0, 1, 0]);
    assert_eq!(each(&world.fetch("A", 1)), [(1, 1)]);
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    world.restart(0);
    world.reopen("A");
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 1);
    assert_eq!(each(&world.fetch("A", 1)), [(0, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(offsets(&world.fetch("A", 10)), [2, 3, 4]);
}

#[test]
fn k50_what_has_left_the_log_cannot_come_again() {
    let mut world = dead_lettered();
    world.log_start(1);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 1, "1 is still there");
    assert_eq!(each(&world.fetch("A", 1)), [(1, 1)]);
    let mut world = dead_lettered();
    world.log_start(2);
    let gone = world.alter(of("a"), KeyAction::Redrive).unwrap_err();
    assert_eq!(gone, AdminError::SourceGone { offset: Offset(0), by_start: true });
    assert_eq!(
        gone.to_string(),
        "the dead-lettered record at offset 0 has left the source log by retention, or was deleted; its copy in the \
         dead-letter topic can be produced anew"
    );
    // Gone while it is redriven: the key goes on.
    let mut world = dead_lettered();
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    assert_eq!(each(&world.fetch("A", 1)), [(0, 1)]);
    let waits = world.park("B", 10);
    assert_eq!(offsets(&world.woken("B", waits).unwrap()), [2]);
    let waits = world.park("C", 10);
    assert_eq!(world.woken("C", waits), None);
    world.log_start(2);
    assert_eq!(offsets(&world.woken("C", waits).unwrap()), [3, 4]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None, "below the start");
}

#[test]
fn k62_a_redrive_and_a_power_cut_at_each_point() {
    for steps in 0..8 {
        let mut world = dead_lettered();
        world.pass_ms(1_000);
        world.slow_disk = true;
        world.command(alter(of("a"), KeyAction::Redrive));
        for _ in 0..steps {
            world.serve_next();
        }
        world.power_cut(0);
        world.slow_disk = false;
        world.serve();
        world.reopen("A");
        if world.alter(of("a"), KeyAction::Redrive) == Err(AdminError::NothingToRedrive) {
            panic!("{steps}: the redrive is lost");
        }
        let mut got = Vec::new();
        for _ in 0..5 {
            let more = offsets(&world.fetch("A", 1));
            for &offset in &more {
                assert_eq!(world.ack("A", offset, offset, ACCEPT), None);
            }
            got.extend(more.into_iter().filter(|&offset| offset != 2));
        }
        assert_eq!(got, [0, 1, 3, 4], "{steps}");
    }
}

/// K46's log: offsets 0 to 4,999 with a at each fiftieth, all accepted; 5,000:a is B's, 5,010:a follows.
fn replaying(snapshot_after: u64) -> World {
    let mut world = World::new(ShareConfig { key_inflight_max: 10, ..key_config() });
    world.limits.snapshot_after_bytes = snapshot_after;
    world.restart(0);
    for _ in 0..50 {
        let keys: Vec<_> = (0..100)
            .map(|index| if index % 50 == 0 { key("a") } else { key(&format!("k{index}")) })
            .collect();
        world.batch(0, &keys, &[100; 100]);
    }
    world.grew(0);
    while world.machine.view("g", partition(0)).is_none_or(|view| view.start.get() < 5_000) {
        for (first, last, _) in world.fetch("A", 1_000) {
            assert_eq!(world.ack("A", first, last, ACCEPT), None);
        }
    }
    world.log("a b b b b b b b b b a");
    assert_eq!(world.fetch("B", 1), [(5_000, 5_000, 1)]);
    world
}

#[test]
fn k46_replay_of_one_key() {
    for snapshot_after in [1, 1 << 20] {
        let mut world = replaying(snapshot_after);
        let replay = KeyAction::Replay(Offset(0), Offset(4_999));
        assert_eq!(world.alters(of("a"), replay), 100);
        assert_eq!(world.alter(of("a"), replay), Err(AdminError::Replaying));
        assert_eq!(offsets(&world.fetch("A", 10)), (5_001..5_010).collect::<Vec<_>>(), "b alone");
        assert_eq!(world.ack("A", 5_001, 5_009, ACCEPT), None);
        let waits = world.park("A", 10);
        assert_eq!(world.woken("A", waits), None, "nothing of a until 5,000 is settled");
        assert_eq!(world.ack("B", 5_000, 5_000, ACCEPT), None);
        let got = world.woken("A", waits).unwrap();
        let expected = |from: i64, to: i64, count| (from..to).map(|n| (n * 50, count)).collect::<Vec<_>>();
        assert_eq!(each(&got), expected(0, 10, 1));
        assert_eq!(world.start(), 5_010, "the start offset goes on, and never back");
        assert_eq!(world.why(at(0)), Why::Held { member: "A".into(), until_ms: world.now.wall_ms + 30_000 });
        assert_eq!(world.fetch("B", 10), [], "one member has a");
        // Nine are accepted, the third of them is released: those behind it are recalled (K03).
        assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
        assert_eq!(world.ack("A", 0, 0, ACCEPT), None, "it is done, and below the start");
        assert_eq!(world.ack("A", 50, 50, ACCEPT), None);
        assert_eq!(world.ack("A", 150, 150, RENEW), None);
        assert_eq!(world.ack("A", 100, 100, RELEASE), None);
        assert_eq!(world.ack("B", 100, 100, ACCEPT), Some(ShareError::InvalidRecordState));
        assert_eq!(world.fetch("B", 10), []);
        for n in 3..10 {
            assert_eq!(world.ack("A", n * 50, n * 50, ACCEPT), None, "ok, and nothing changes");
        }
        let got = each(&world.fetch("B", 10));
        assert_eq!(got[0], (100, 2));
        assert_eq!(got[1..], expected(3, 12, 1));
        assert_eq!(world.ack_ranges("B", vec![range(100, 100, ACCEPT), range(150, 150, ACCEPT)]), None);
        // kill -9 in the middle: it goes on at its cursor, with its counts, when B's grace is over.
        world.restart(0);
        world.reopen("A");
        world.reopen("B");
        assert_eq!(world.fetch("A", 10), []);
        assert_eq!(world.start(), 5_010);
        world.pass_ms(7_500);
        let mut next = 4;
        while next < 100 {
            let got = each(&world.fetch("A", 10));
            assert_eq!(got, expected(next, (next + 10).min(100), 1), "{next}");
            for &(offset, _) in &got {
                assert_eq!(world.fetch("B", 10), [], "and 5,010 waits for the last of them");
                assert_eq!(world.ack("A", offset, offset, ACCEPT), None);
            }
            next += 10;
        }
        assert_eq!(world.fetch("B", 10), [(5_010, 5_010, 1)]);
        assert_eq!(world.ack("B", 5_010, 5_010, ACCEPT), None);
        assert_eq!((world.start(), world.view().heap_bytes), (5_011, 0));
    }
}

#[test]
fn k40_the_end_of_a_replay_wakes_who_waits() {
    let mut world = dead_lettered();
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    assert_eq!(offsets(&world.fetch("A", 10)), [0, 1, 2]);
    let waits = world.park("B", 10);
    assert_eq!(world.woken("B", waits), None);
    assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
    assert_eq!(offsets(&world.woken("B", waits).unwrap()), [3, 4]);
}

#[test]
fn a_replay_waits_while_its_key_is_parked_and_is_dropped_with_its_range() {
    let mut world = dead_lettered();
    assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    assert_eq!(offsets(&world.fetch("A", 10)), [2]);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(offsets(&world.fetch("A", 1)), [0]);
    assert_eq!(world.alter(of("a"), KeyAction::Drop(Some(Offset(0)))), Err(AdminError::NothingThere));
    assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    assert_eq!(world.alters(of("a"), KeyAction::Skip), 1);
    assert_eq!(offsets(&world.fetch("A", 1)), [1]);
    assert_eq!(world.ack("A", 1, 1, RELEASE), None);
    assert_eq!(world.alters(of("a"), KeyAction::Drop(Some(Offset(3)))), 2, "of the replay, and of the rest");
    assert_eq!(offsets(&world.fetch("A", 10)), [4]);
}

/// 0 and 2 of a are dead-lettered and redriven, 1 and 3 were released.
fn between_own_ones() -> World {
    let mut world = redriving(Poison::DeadLetter);
    world.log("a a a a");
    assert_eq!(offsets(&world.fetch("A", 4)), [0, 1, 2, 3]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.ack("A", 2, 2, REJECT), None);
    assert_eq!(world.ack("A", 1, 1, RELEASE), None);
    assert_eq!(world.ack("A", 3, 3, RELEASE), None);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    world
}

/// The next record is the lowest one, whether it comes for the first time or by a replay.
#[test]
fn k46_skip_drop_and_park_mean_the_record_that_comes_next() {
    let mut world = between_own_ones();
    for next in 0..4 {
        assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
        let stopped = world.describe(&[]).unwrap().stopped[0];
        assert_eq!(stopped.offset, Offset(next));
        assert_eq!(stopped.deliveries, u16::from(next == 1), "redriven ones begin anew, 3 was recalled");
        assert_eq!(world.alters(of("a"), KeyAction::Skip), 1, "and the key goes on");
    }
    assert_eq!(world.start(), 4);
    let mut world = between_own_ones();
    assert_eq!(world.alters(of("a"), KeyAction::Drop(Some(Offset(1)))), 2);
    assert_eq!(offsets(&world.fetch("A", 1)), [2]);
    assert_eq!(world.alters(of("a"), KeyAction::Skip), 1, "2 is in A's hands, 3 is next");
    assert_eq!(world.ack("A", 2, 2, ACCEPT), None);
    assert_eq!(world.fetch("A", 1), []);
    assert_eq!(world.start(), 4);
    let mut world = between_own_ones();
    assert_eq!(world.alters(of("a"), KeyAction::Drop(Some(Offset::MAX))), 4);
    assert_eq!((world.fetch("A", 1), world.start()), (vec![], 4));
}

/// A replay of a key that is parked, or at a member, knows its next record all the same.
#[test]
fn k46_what_a_replay_brings_next_can_be_skipped_before_it_begins() {
    let mut world = World::keyed();
    world.log("a a a");
    assert_eq!(world.fetch("A", 3), [(0, 2, 1)]);
    assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
    assert_eq!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(1))), 2);
    assert_eq!(world.alters(of("a"), KeyAction::Skip), 1, "0; 2 is in A's hands");
    assert_eq!(world.ack("A", 2, 2, ACCEPT), None);
    assert_eq!(offsets(&world.fetch("B", 3)), [1]);
    // While it is looked up it says so.
    let mut world = World::keyed();
    world.log("a a a");
    assert_eq!(world.fetch("A", 3), [(0, 2, 1)]);
    assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
    assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
    world.slow_disk = true;
    let (replay, skip) = (KeyAction::Replay(Offset(0), Offset(1)), KeyAction::Skip);
    world.command(alter(of("a"), replay));
    world.serve_next();
    let ticket = world.command(alter(of("a"), skip));
    let reply = world.replies.remove(&ticket);
    assert!(
        matches!(reply, Some(coordinator::reply::Reply::KeyAltered(Err(AdminError::NotAtHand)))),
        "{reply:?}"
    );
    world.slow_disk = false;
    world.serve();
    assert_eq!(world.alters(of("a"), skip), 1);
}

#[test]
fn ranges_that_cannot_be_replayed() {
    let mut world = World::keyed();
    world.log("a a");
    assert_eq!(world.fetch("A", 10), [(0, 1, 1)]);
    assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
    for (from, to, why) in [(1, 0, AdminError::EmptyRange), (0, 2, AdminError::RangeNotRead(Offset(2)))] {
        let refused = world.alter(of("a"), KeyAction::Replay(Offset(from), Offset(to)));
        assert_eq!(refused, Err(why));
    }
    world.log_start(1);
    let gone = world.alter(of("a"), KeyAction::Replay(Offset(0), Offset(0)));
    assert_eq!(gone, Err(AdminError::RangeGone(Offset(1))));
    let unknown = world.alter(of("c"), KeyAction::Replay(Offset(0), Offset(1)));
    assert_eq!(unknown, Err(AdminError::NothingToReplay));
    let by_offset = world.alter(at(1), KeyAction::Replay(Offset(0), Offset(1)));
    assert_eq!(by_offset, Err(AdminError::NameTheKey), "it is done");
    let mut world = World::new(none_config());
    world.log("a");
    assert_eq!(world.fetch("A", 10), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    let refused = world.alter(of("a"), KeyAction::Replay(Offset(0), Offset(0)));
    assert_eq!(refused, Err(AdminError::NoOrder));
}

/// What is done of a key is counted in a few look-ups; of more than that a replay says that it has begun.
#[test]
fn k46_a_replay_says_how_much_of_the_key_was_found() {
    for (records, said) in [(1, 1), (3, 3), (255, 255), (256, 256), (300, 256)] {
        let mut world = World::new(ShareConfig { key_inflight_max: 1_000, ..key_config() });
        world.log(&"a ".repeat(records));
        let last = records as i64 - 1;
        let mut done = 0;
        while done < records {
            for (first, last, _) in world.fetch("A", 1_000) {
                assert_eq!(world.ack("A", first, last, ACCEPT), None);
                done += (last - first + 1) as usize;
            }
        }
        assert_eq!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(last))), said);
        let mut got = Vec::new();
        while got.len() < records {
            let more = world.fetch("A", 1_000);
            assert!(!more.is_empty(), "{records}");
            for &(first, last, _) in &more {
                assert_eq!(world.ack("A", first, last, ACCEPT), None);
            }
            got.extend(offsets(&more));
        }
        assert_eq!(got, (0..=last).collect::<Vec<_>>());
    }
}

/// A record without a key is known only until it is done.
#[test]
fn k50_a_dead_letter_without_a_key_is_not_redriven_and_says_so() {
    let mut world = redriving(Poison::DeadLetter);
    world.log("- -");
    assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
    assert_eq!(world.alter(at(0), KeyAction::Redrive), Err(AdminError::NoKey));
    assert_eq!(world.alter(at(0), KeyAction::Replay(Offset(0), Offset(0))), Err(AdminError::NoKey));
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0]);
    let refused = world.alter(at(0), KeyAction::Redrive).unwrap_err();
    assert_eq!(refused, AdminError::NotRedrivable);
    assert_eq!(
        refused.to_string(),
        "no dead-lettered record of a key is known at this offset; one without a key cannot be redriven: produce its copy \
         in the dead-letter topic anew"
    );
}

#[test]
fn a_change_of_order_ends_a_replay() {
    let mut world = dead_lettered();
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    assert_eq!(offsets(&world.fetch("A", 1)), [0]);
    world.config.order = coordinator::share::ShareOrder::None;
    world.configure();
    assert_eq!(offsets(&world.fetch("B", 10)), [2, 3, 4]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None, "below the start offset");
    assert_eq!(world.ack("B", 2, 4, ACCEPT), None);
    assert_eq!(world.start(), 5);
}

/// Also where the order changed before the share state was read, or while it was.
#[test]
fn a_change_of_order_ends_a_replay_that_is_not_in_memory() {
    for steps in 0..5 {
        let mut world = World::keyed();
        world.limits.snapshot_after_bytes = 1;
        let window = coordinator::share::WindowLimits { chunk_inline_bytes_max: 0, ..Default::default() };
        world.limits.window = std::sync::Arc::new(window);
        world.restart(0);
        world.log("a b a");
        assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
        assert_eq!(world.fetch("B", 1), [(1, 1, 1)]);
        assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
        assert_eq!(world.fetch("A", 1), [(2, 2, 1)]);
        assert_eq!(world.ack("A", 2, 2, ACCEPT), None);
        assert_eq!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(2))), 2);
        assert_eq!(offsets(&world.fetch("A", 1)), [0]);
        world.restart(0);
        world.slow_disk = true;
        let waits = world.park("C", 10);
        (0..steps).for_each(|_| world.serve_next());
        world.config.order = coordinator::share::ShareOrder::None;
        world.configure();
        world.slow_disk = false;
        world.serve();
        drop(world.woken("C", waits));
        world.pass_ms(60_000);
        world.reopen("B");
        assert_eq!(offsets(&world.fetch("B", 10)), [1], "{steps}: what is done stays done");
        assert_eq!(world.ack("B", 1, 1, ACCEPT), None);
        assert_eq!(world.start(), 3, "{steps}");
    }
}

/// Compaction takes them from between others: nobody is told of a redrive that delivers nothing.
#[test]
fn k50_what_was_compacted_away_cannot_come_again() {
    let mut world = dead_lettered();
    world.compact([0, 1]);
    let gone = world.alter(of("a"), KeyAction::Redrive).unwrap_err();
    assert_eq!(gone, AdminError::SourceGone { offset: Offset(0), by_start: false });
    assert!(gone.to_string().contains("at offset 0 was compacted away"), "{gone}");
    assert_eq!(offsets(&world.fetch("A", 10)), [2, 3, 4], "and the key goes on");
    let mut world = dead_lettered();
    world.compact([0]);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2, "as far as they are there");
    assert_eq!(offsets(&world.fetch("A", 10)), [1, 2]);
    // So many that one look does not reach the first that is there.
    let mut world = redriving(Poison::Follow);
    world.log(&"a ".repeat(300));
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    world.pass_ms(1_000);
    assert_eq!(world.letter_offsets().len(), 300);
    world.compact(0..299);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 300);
    assert_eq!(offsets(&world.fetch("A", 10)), [299]);
}

/// What followed to the dead-letter topic was never granted before its redrive.
#[test]
fn k50_what_nobody_was_ever_given_can_be_acknowledged() {
    let mut world = redriving(Poison::Follow);
    world.log("a a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0, 1, 2]);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 3);
    assert_eq!(each(&world.fetch("A", 10)), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(world.ack("A", 0, 2, ACCEPT), None);
    assert_eq!(world.start(), 3);
}

/// What is not done yet comes for the first time, in its turn, and only once.
#[test]
fn k46_a_replay_ends_at_the_first_record_that_is_not_done() {
    let mut world = World::keyed();
    world.log("a a a a");
    assert_eq!(world.fetch("A", 3), [(0, 2, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(world.ack("A", 2, 2, ACCEPT), None);
    assert_eq!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(3))), 1);
    assert_eq!(world.fetch("B", 10), [], "1 is A's");
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(each(&world.fetch("B", 10)), [(0, 1)]);
    assert_eq!(world.ack("B", 0, 0, ACCEPT), None);
    assert_eq!(each(&world.fetch("B", 10)), [(3, 1)]);
    let refused = world.alter(of("a"), KeyAction::Replay(Offset(3), Offset(3)));
    assert_eq!(refused, Err(AdminError::RangeOpen(Offset(3))));
}

/// What was not dead-lettered between those that are redriven goes out in its turn.
#[test]
fn k50_a_redrive_and_what_is_not_done_yet_keep_the_order_together() {
    let mut world = redriving(Poison::DeadLetter);
    world.log("a a a a a");
    assert_eq!(offsets(&world.fetch("A", 5)), [0, 1, 2, 3, 4]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.ack("A", 2, 2, REJECT), None);
    assert_eq!(world.ack("A", 4, 4, REJECT), None);
    assert_eq!(world.letter_offsets(), [0, 2, 4]);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 3);
    assert_eq!(world.fetch("B", 1), [], "A has 1 and 3");
    drop(world.close_session("A", vec![]));
    for offset in 0..5 {
        if offset == 3 {
            world.restart(0);
            world.reopen("B");
        }
        assert_eq!(offsets(&world.fetch("B", 1)), [offset]);
        assert_eq!(world.ack("B", offset, offset, ACCEPT), None);
    }
    assert_eq!(world.start(), 5);
}

/// What follows goes to the dead-letter topic, also in front of what is redriven.
#[test]
fn k50_a_redrive_of_a_key_that_is_followed() {
    let mut world = redriving(Poison::DeadLetter);
    world.log("a a a a");
    assert_eq!(offsets(&world.fetch("A", 4)), [0, 1, 2, 3]);
    assert_eq!(world.ack("A", 3, 3, REJECT), None);
    world.config.poison = Poison::Follow;
    world.configure();
    assert_eq!(world.ack("A", 1, 1, REJECT), None);
    assert_eq!(world.alters(of("a"), KeyAction::Redrive), 2);
    drop(world.close_session("A", vec![]));
    assert_eq!(offsets(&world.fetch("B", 10)), [1, 3]);
    assert_eq!(world.letter_offsets(), [3, 1, 0, 2]);
    assert_eq!(world.ack("B", 1, 3, ACCEPT), None, "2 is done");
    assert_eq!(world.start(), 4);
}

/// 0 of a is accepted, 1 waits for its retry in a page, and 2 was never delivered; b was dead-lettered and waits in it, too.
fn resting() -> World {
    let mut world = World::new(ShareConfig {
        backoff_ms: 60_000,
        poison: Poison::DeadLetter,
        dead_letter_topic: Some(DLQ.into()),
        ..key_config()
    });
    world.dead_letter_topic(1, true);
    world.limits.snapshot_after_bytes = 1;
    let window = coordinator::share::WindowLimits { waits_max: 0, page_keys_max: 1, ..Default::default() };
    world.limits.window = std::sync::Arc::new(window);
    world.restart(0);
    world.log("a b a b a -");
    assert_eq!(offsets(&world.fetch("A", 4)), [0, 1, 2, 3]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(world.ack("A", 1, 1, REJECT), None);
    assert_eq!(world.ack("A", 2, 3, RELEASE), None);
    assert_eq!(offsets(&world.fetch("A", 4)), [5]);
    assert_eq!(world.ack("A", 5, 5, RELEASE), None);
    world.log("c");
    assert_eq!(world.fetch("A", 1), [(6, 6, 1)]);
    assert_eq!(world.ack("A", 6, 6, ACCEPT), None);
    assert_eq!((world.view().waiting_keys, world.pages_written), (3, 3), "all are in pages");
    world
}

#[test]
fn k33_what_rests_in_a_page_waits_for_its_retry() {
    let mut world = resting();
    let until_ms = world.now.wall_ms + 60_000;
    for question in [of("a"), at(2), of("b"), at(3), at(5)] {
        assert_eq!(world.why(question), Why::Retry { until_ms }, "{question:?}");
    }
    assert_eq!(world.why(at(4)), Why::Retry { until_ms }, "behind 2, which does");
}

/// What an operator's word needs of a key that rests in a page is read back: nothing waits for the retry.
#[test]
fn k46_k50_a_key_that_rests_in_a_page_is_replayed_and_redriven_at_once() {
    for restarted in [false, true] {
        let mut world = resting();
        if restarted {
            world.restart(0);
            world.reopen("A");
        }
        assert_eq!(world.alters(of("a"), KeyAction::Replay(Offset(0), Offset(4))), 1);
        assert_eq!(each(&world.fetch("A", 10)), [(0, 1)], "up to 2, which is not done");
        assert_eq!(world.alters(of("b"), KeyAction::Redrive), 1);
        assert_eq!(each(&world.fetch("A", 10)), [(1, 1)]);
        assert_eq!(world.ack("A", 0, 1, ACCEPT), None);
        assert_eq!(world.fetch("A", 10), [], "the others wait for their retry");
        world.pass_ms(60_000);
        assert_eq!(each(&world.fetch("A", 10)), [(2, 2), (3, 2), (5, 2)]);
        assert_eq!(each(&world.fetch("A", 10)), [(4, 1)], "it was looked up meanwhile");
    }
}

#[test]
fn k31_a_key_that_rests_in_a_page_is_skipped_and_dropped_at_once() {
    for by_offset in [false, true] {
        let mut world = resting();
        let named = |name, offset| if by_offset { at(offset) } else { of(name) };
        assert_eq!(world.alters(named("a", 2), KeyAction::Skip), 1);
        assert_eq!(each(&world.fetch("A", 10)), [(4, 1)], "2 is skipped, and 4 waits for nothing");
        assert_eq!(world.alters(named("b", 3), KeyAction::Drop(Some(Offset::MAX))), 1);
        assert_eq!(world.alters(at(5), KeyAction::Skip), 1, "without a key");
        assert_eq!(world.ack("A", 4, 4, ACCEPT), None);
        assert_eq!(world.start(), 7);
        assert_eq!(world.alter(at(5), KeyAction::Skip), Err(AdminError::UnknownRecord));
        assert_eq!(world.alter(of("b"), KeyAction::Skip), Err(AdminError::NothingThere));
    }
}

#[test]
fn k31_a_key_that_rests_in_a_page_goes_on_when_it_is_resumed() {
    for parked_before in [false, true] {
        let mut world = resting();
        if parked_before {
            assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
        }
        assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
        assert_eq!(each(&world.fetch("A", 10)), [(2, 2)], "and b waits");
    }
}

#[test]
fn k31_pages_that_cannot_be_read_are_told_of() {
    let mut world = resting();
    world.unreadable = true;
    assert_eq!(world.alter(of("a"), KeyAction::Skip), Err(ShareError::Unavailable.into()));
    world.unreadable = false;
    assert_eq!(world.alters(of("a"), KeyAction::Skip), 1);
}

/// Several searches at a time, and a page that is due meanwhile.
#[test]
fn k31_several_operators_at_once() {
    let mut world = resting();
    world.slow_disk = true;
    let tickets = [of("a"), of("b"), at(5)].map(|key| world.command(alter(key, KeyAction::Skip)));
    world.pass_ms(60_000);
    world.slow_disk = false;
    world.serve();
    for ticket in tickets {
        let reply = world.replies.remove(&ticket);
        assert!(matches!(reply, Some(coordinator::reply::Reply::KeyAltered(Ok(_)))), "{reply:?}");
    }
    assert_eq!(each(&world.fetch("A", 10)), [(4, 1)]);
    assert_eq!(world.ack("A", 4, 4, ACCEPT), None);
    assert_eq!(world.start(), 7);
}
