//! Bounds, and a wake-up for every deferral: cases K36, K40, K41, K44, K47.

use crate::common::{ACCEPT, REJECT, RELEASE, RENEW, Want, World, each, offsets, partition, range, want};
use coordinator::command::Fact;
use coordinator::io::ScannedKind;
use coordinator::share::{Bound, LeftBy, ShareError, ShareOrder};

#[test]
fn k36_the_span_is_no_limit_with_key_order() {
    let mut w = World::keyed();
    w.log("slow");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.log(&(0..10_000).map(|key| format!("k{} ", key % 5_000)).collect::<String>());
    let mut passed = 0;
    while passed < 10_000 {
        let got = w.fetch("B", 100);
        assert!(!got.is_empty(), "{passed} passed");
        for (first, last, _) in got {
            assert_eq!(w.ack("B", first, last, ACCEPT), None);
            passed += last - first + 1;
        }
        w.ack("A", 0, 0, RENEW);
    }
    assert_eq!(w.start(), 0);
}

#[test]
fn s21_records_in_hands_are_bounded_and_the_bound_wakes() {
    let mut w = World::keyed();
    w.config.record_locks_max = 100;
    w.configure();
    w.log(&(0..200).map(|key| format!("k{key} ")).collect::<String>());
    assert_eq!(w.fetch("A", 500), [(0, 99, 1)]);
    assert_eq!(w.view().bound, Some(Bound::RecordLocks));
    let b = w.park("B", 500);
    assert_eq!(w.woken("B", b), None);
    assert_eq!(w.ack("A", 7, 7, ACCEPT), None);
    assert_eq!(w.woken("B", b), Some(vec![(100, 100, 1)]));
}

#[test]
fn ready_keys_fill_the_window_and_it_says_so() {
    let mut w = World::keyed();
    w.config.window_bytes_max = 64 << 10;
    w.configure();
    crate::scale::append(&mut w, (0..3_000).map(crate::scale::numbered), 50);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.view().bound, Some(Bound::WindowBytes));
    let read = w.view().scan.get();
    assert!(read < 1_000, "{read}");
    for next in 1..3_000 {
        assert_eq!(w.ack("A", next - 1, next - 1, ACCEPT), None);
        assert_eq!(w.fetch("A", 1), [(next, next, 1)], "it reads on by itself");
    }
}

/// What ends B's wait for key a, which A holds.
type Event = (&'static str, fn(&mut World));

#[test]
fn k40_every_deferral_has_a_wake_up() {
    let events: [Event; 15] = [
        ("accept", |w| assert_eq!(w.ack("A", 0, 0, ACCEPT), None)),
        ("reject", |w| assert_eq!(w.ack("A", 0, 0, REJECT), None)),
        ("release", |w| assert_eq!(w.ack("A", 0, 0, RELEASE), None)),
        ("release with backoff", |w| {
            w.config.backoff_ms = 500;
            w.configure();
            w.ack("A", 0, 0, RELEASE);
            w.pass_ms(500);
        }),
        ("lock expiry", |w| w.pass_ms(30_000)),
        ("leave", |w| {
            w.left("A", LeftBy::Heartbeat);
            w.pass_ms(1_000);
        }),
        ("session timeout", |w| w.left("A", LeftBy::SessionTimeout)),
        ("session close", |w| drop(w.close_session("A", vec![]).unwrap())),
        ("reopening by the holder", |w| {
            w.heartbeat_connection("A");
            w.lose("A");
            w.reopen("A");
            w.fetch("A", 0);
        }),
        ("the end of the grace", |w| {
            w.lose("A");
            w.pass_ms(7_500);
        }),
        ("the loss of the connection without a grace", |w| {
            w.config.disconnect_grace_ms = Some(0);
            w.configure();
            w.lose("A");
        }),
        ("records deleted past the blocker", |w| w.log_start(1)),
        ("the end of order", |w| {
            w.config.order = ShareOrder::None;
            w.configure();
        }),
        ("a final epoch on a fetch", |w| {
            w.fetch_with("A", &Want { epoch: Some(-1), ..want(0) }).unwrap();
        }),
        ("the group's end", |w| {
            w.command(coordinator::share::ShareCommand::DeleteGroup { group: crate::common::group() });
        }),
    ];
    for (name, event) in events {
        let mut w = World::keyed();
        w.config.key_inflight_max = 1;
        w.configure();
        w.log("a a");
        assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
        w.fetch("B", 0);
        let b = w.park("B", 1);
        assert_eq!(w.woken("B", b), None);
        event(&mut w);
        assert!(w.fetched("B", b).is_some(), "{name} wakes");
    }
}

#[test]
fn k40_a_higher_limit() {
    for key_alone in [false, true] {
        let mut w = World::keyed();
        (w.config.record_locks_max, w.config.key_inflight_max) = (100, 1);
        w.configure();
        w.log("a a");
        assert_eq!(w.fetch("A", 10), [(0, 0, 1)]);
        if !key_alone {
            w.log(&(0..100).map(|key| format!("k{key} ")).collect::<String>());
            assert_eq!(offsets(&w.fetch("A", 500)).len(), 99);
        }
        let waits = w.park("A", 500);
        assert_eq!(w.woken("A", waits), None);
        (w.config.record_locks_max, w.config.key_inflight_max) = if key_alone { (100, 2) } else { (101, 1) };
        w.configure();
        let expected = if key_alone { (1, 1, 1) } else { (101, 101, 1) };
        assert_eq!(w.woken("A", waits), Some(vec![expected]), "of a key: {key_alone}");
    }
}

#[test]
fn k40_what_ends_the_wait_for_a_recalled_record() {
    for by_lock in [false, true] {
        let mut w = World::keyed();
        w.log("a a");
        w.fetch("A", 10);
        w.pass_ms(1_000);
        w.ack("A", 1, 1, RENEW);
        w.ack("A", 0, 0, RELEASE);
        w.fetch("B", 0);
        let b = w.park("B", 10);
        assert_eq!(w.woken("B", b), None);
        if by_lock {
            w.pass_ms(30_000);
        } else {
            w.ack("A", 1, 1, ACCEPT);
        }
        assert_eq!(offsets(&w.woken("B", b).unwrap()), [0, 1]);
    }
}

#[test]
fn k40_the_topic_is_deleted() {
    let mut w = World::keyed();
    w.log("a");
    w.fetch("A", 1);
    w.fetch("B", 0);
    let b = w.park("B", 1);
    w.table.remove(&partition(0));
    w.fact(Fact::PartitionDeleted(partition(0)));
    let answer = w.fetched("B", b).unwrap().unwrap();
    assert_eq!(answer.parts[0].error, Some(ShareError::UnknownPartition));
}

#[test]
fn k40_the_broker_stops() {
    let mut w = World::keyed();
    w.fetch("B", 0);
    let b = w.park("B", 1);
    w.fact(Fact::Stopping);
    assert_eq!(w.woken("B", b), Some(vec![]));
}

#[test]
fn k41_the_blocker_leaves_the_log() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("a a");
    w.fetch("A", 1);
    w.fetch("B", 0);
    let b = w.park("B", 1);
    w.log_start(1);
    assert_eq!(w.woken("B", b), Some(vec![(1, 1, 1)]));
    assert_eq!(w.start(), 1);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None, "below the start offset, changes nothing");
    assert_eq!(w.view().counters.left_log, 1);
    w.restart(0);
    assert_eq!(w.fetch("C", 1), []);
    assert_eq!(w.start(), 1);
}

#[test]
fn k41_retention_takes_the_start_while_nothing_is_loaded() {
    let mut w = World::keyed();
    w.log("a b c");
    w.fetch("A", 1);
    w.restart(31_000);
    w.log_start(2);
    assert_eq!(w.fetch("B", 10), [(2, 2, 1)]);
    assert_eq!(w.start(), 2);
}

#[test]
fn k44_aborted_records_and_markers_are_settled_by_nature() {
    let mut w = World::keyed();
    w.config.read_committed = true;
    w.configure();
    w.append(0, ScannedKind::Aborted, 1);
    w.log("a");
    w.append(0, ScannedKind::Control, 1);
    w.log("a");
    let log = w.logs.get_mut(&partition(0)).unwrap();
    log.facts.last_stable = records::ids::Offset(3);
    w.table.insert(partition(0), log.facts);
    assert_eq!(w.fetch("A", 10), [(1, 1, 1)]);
    w.ack("A", 1, 1, ACCEPT);
    assert_eq!(w.start(), 3, "0 and 2 block nothing");
    let parked = w.park("A", 10);
    assert_eq!(w.woken("A", parked), None);
    let log = w.logs.get_mut(&partition(0)).unwrap();
    log.facts.last_stable = log.facts.end;
    w.table.insert(partition(0), log.facts);
    w.grew(0);
    assert_eq!(w.woken("A", parked), Some(vec![(3, 3, 1)]), "after its commit");
}

#[test]
fn k47_switching_the_order_on_a_live_group() {
    let mut w = World::new(crate::common::none_config());
    w.log("a a b a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    w.config = crate::common::key_config();
    w.configure();
    assert_eq!(offsets(&w.fetch("C", 10)), [2, 4], "a has records at two members: it is withheld");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.fetch("C", 10), []);
    assert_eq!(w.ack("B", 1, 1, ACCEPT), None);
    assert_eq!(w.fetch("A", 10), [(3, 3, 1)]);
    assert_eq!(w.ack("A", 3, 3, RELEASE), None);
    w.config = crate::common::none_config();
    w.configure();
    assert_eq!(w.fetch("B", 10), [(3, 3, 2)]);
    assert_eq!(w.ack("B", 3, 3, ACCEPT), None);
    assert_eq!(w.ack_ranges("C", vec![range(2, 2, ACCEPT), range(4, 4, ACCEPT)]), None);
    assert_eq!(w.start(), 5, "nothing lost or doubled");
    assert_eq!(each(&w.fetch("A", 10)), []);
}
