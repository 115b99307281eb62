//! K33: why a record is not delivered.

use coordinator::share::admin::{KeyAction, KeyRef, Why};
use coordinator::share::{Bound, Poison, ShareConfig};
use records::ids::Offset;

use crate::common::{ACCEPT, REJECT, RELEASE, World, key_config, none_config, want};
use crate::hand::{DLQ, at, of};

fn behind(offset: i64) -> Why {
    Why::Behind { offset: Offset(offset) }
}

fn in_ms(world: &World, ms: i64) -> i64 {
    world.now.wall_ms + ms
}

#[test]
fn k33_in_an_answer_that_is_not_written_yet() {
    let mut world = World::keyed();
    world.log("a a");
    world.written_at_once = false;
    world.send("A", &want(1));
    assert_eq!(world.why(at(0)), Why::Answering { member: "A".into() });
    assert_eq!(world.why(of("a")), Why::Answering { member: "A".into() });
    assert_eq!(world.why(at(1)), behind(0));
}

#[test]
fn k33_held_and_recalled() {
    let mut world = World::keyed();
    world.log("a a a b");
    assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
    world.pass_ms(10_000);
    let until_ms = in_ms(&world, 20_000);
    assert_eq!(world.why(at(0)), Why::Held { member: "A".into(), until_ms });
    assert_eq!(world.why(at(2)), behind(0));
    assert_eq!(world.why(at(3)), Why::Ready);
    assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    let recalled = Why::Recalled { member: "A".into(), until_ms };
    assert_eq!(world.why(at(1)), recalled);
    assert_eq!(world.why(at(0)), recalled, "0 waits for it");
    assert_eq!(world.why(at(2)), behind(0));
}

#[test]
fn k33_held_by_a_member_whose_connections_are_gone() {
    let mut world = World::keyed();
    world.log("a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    world.pass_ms(1_000);
    world.lose("A");
    let until_ms = in_ms(&world, 7_500);
    assert_eq!(world.why(at(0)), Why::HeldByLost { member: "A".into(), until_ms });
    world.pass_ms(7_500);
    assert_eq!(world.why(at(0)), Why::Ready);
}

#[test]
fn k33_waiting_for_a_retry() {
    let mut world = World::new(ShareConfig { backoff_ms: 4_000, ..key_config() });
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    world.pass_ms(1_000);
    let until_ms = in_ms(&world, 3_000);
    assert_eq!(world.why(at(0)), Why::Retry { until_ms });
    assert_eq!(world.why(of("a")), Why::Retry { until_ms });
    assert_eq!(world.why(at(1)), behind(0));
}

/// Nothing of a replay or redrive goes out while a member holds others of its key.
#[test]
fn k33_a_replay_waits_for_who_has_its_key() {
    for redrive in [false, true] {
        let mut world = World::new(ShareConfig {
            poison: Poison::DeadLetter,
            dead_letter_topic: Some(DLQ.into()),
            ..key_config()
        });
        world.dead_letter_topic(1, true);
        world.log("a a");
        assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
        assert_eq!(world.ack("A", 0, 0, if redrive { REJECT } else { ACCEPT }), None);
        assert_eq!(world.fetch("A", 1), [(1, 1, 1)]);
        let again = KeyAction::Replay(Offset(0), Offset(0));
        assert_eq!(world.alters(of("a"), if redrive { KeyAction::Redrive } else { again }), 1);
        assert_eq!(world.fetch("B", 10), []);
        let held = Why::Held { member: "A".into(), until_ms: in_ms(&world, 30_000) };
        for question in [of("a"), at(0), at(1)] {
            assert_eq!(world.why(question), held, "{question:?}, redrive {redrive}");
        }
        assert_eq!(world.ack("A", 1, 1, RELEASE), None);
        assert_eq!((world.why(of("a")), world.why(at(0))), (Why::Ready, Why::Ready));
        assert_eq!(world.why(at(1)), Why::BehindReplay);
        assert_eq!(world.alters(of("a"), KeyAction::Park), 1);
        let parked = Why::Parked { since_ms: world.now.wall_ms, offset: Offset(0) };
        assert_eq!(
            (world.why(of("a")), world.why(at(0)), world.why(at(1))),
            (parked.clone(), parked.clone(), parked)
        );
        assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
        assert_eq!(world.fetch("B", 1), [(0, 0, 1)]);
    }
}

#[test]
fn k33_a_bound_is_hit() {
    let mut world = World::new(ShareConfig { record_locks_max: 2, ..key_config() });
    world.log("a b c");
    assert_eq!(world.fetch("A", 10), [(0, 1, 1)]);
    assert_eq!(world.why(at(2)), Why::Bound(Bound::RecordLocks));
    assert_eq!(world.describe(&[]).unwrap().bound, Some(Bound::RecordLocks));
    let mut world = World::new(ShareConfig { window_bytes_max: 1_000, ..key_config() });
    world.limits.scan_bytes_max = 100;
    world.restart(0);
    world.log(&"a ".repeat(100));
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    let described = world.describe(&[at(99), at(100)]).unwrap();
    assert_eq!(described.bound, Some(Bound::WindowBytes));
    assert_eq!(described.answers, [Why::NotScannedBound(Bound::WindowBytes), Why::NotScanned]);
    assert_eq!(world.why(of("b")), Why::NotScannedBound(Bound::WindowBytes), "it may lie behind the bound");
}

#[test]
fn k33_a_key_that_follows_with_nothing_of_it_read() {
    let mut world = World::new(ShareConfig {
        poison: Poison::Follow,
        dead_letter_topic: Some(DLQ.into()),
        ..key_config()
    });
    world.dead_letter_topic(1, true);
    world.log("a b");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    let since_ms = world.now.wall_ms;
    world.pass_ms(1_000);
    assert_eq!(world.why(at(0)), Why::Done, "its copy is written");
    assert_eq!(world.why(of("a")), Why::DeadLetter { since_ms, trouble: None });
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.why(of("a")), Why::UnknownKey);
}

#[test]
fn k33_without_order_no_key_is_known() {
    let mut world = World::new(ShareConfig { record_locks_max: 1, ..none_config() });
    world.limits.scan_bytes_max = 100;
    world.restart(0);
    world.log(&"a ".repeat(100));
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.describe(&[]).unwrap().bound, Some(Bound::Span));
    assert_eq!(world.why(at(99)), Why::NotScannedBound(Bound::Span));
    assert_eq!(world.why(of("a")), Why::UnknownKey, "whatever is read");
}

#[test]
fn k33_done_unknown_and_not_scanned() {
    let mut world = World::keyed();
    world.log("a b");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, ACCEPT), None);
    let answers = world.describe(&[at(0), of("a"), at(7), KeyRef::Offset(Offset(-1))]).unwrap().answers;
    assert_eq!(answers, [Why::Done, Why::UnknownKey, Why::NotScanned, Why::Done]);
}

#[test]
fn k33_the_worst_keys() {
    let mut world = World::new(ShareConfig { key_inflight_max: 1, ..key_config() });
    world.log("a b b b c c -");
    assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
    assert_eq!(world.ack("A", 1, 1, RELEASE), None);
    let described = world.describe(&[]).unwrap();
    let keys = |lines: &[coordinator::share::admin::KeyLine]| {
        lines.iter().map(|line| (line.offset.get(), line.backlog, line.deliveries)).collect::<Vec<_>>()
    };
    assert_eq!(keys(&described.by_age), [(0, 1, 0), (1, 3, 1), (4, 2, 0)]);
    assert_eq!(keys(&described.by_backlog), [(1, 3, 1), (4, 2, 0), (0, 1, 0)]);
    assert_eq!(keys(&described.by_deliveries), [(1, 3, 1)]);
    assert!(described.complete);
    assert_eq!((described.start, described.scan, described.end), (Offset(0), Offset(7), Offset(7)));
    assert_eq!((described.in_flight, described.leased_keys, described.lag), (1, 1, 7));
    assert_eq!(described.oldest_ms, Some(1_700_000_000_000));
}

#[test]
fn k33_questions_and_lists_are_bounded() {
    let mut world = World::keyed();
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    world.log(&keys.join(" "));
    assert_eq!(world.fetch("A", 0), []);
    let request = coordinator::share::admin::DescribeKeys {
        group: crate::common::group(),
        partition: crate::common::partition(0),
        top: u32::MAX,
        questions: vec![at(0); 1_000],
    };
    let ticket = world.command(coordinator::share::ShareCommand::DescribeKeys(request));
    let Some(coordinator::reply::Reply::ShareKeys(Ok(keys))) = world.replies.remove(&ticket) else {
        panic!()
    };
    assert_eq!((keys.by_age.len(), keys.answers.len()), (100, 100));
}
