//! Retries, limits, gaps, delivery numbers, restarts: cases K26, K28, K29, K52, K60, K61, S20.

use crate::common::{ACCEPT, GAP, REJECT, RELEASE, World, each, none_config, offsets, range, want};
use coordinator::command::{AckRange, KeyShareTerms};
use coordinator::share::{Poison, ShareConfig, ShareError};

const INVALID: Option<ShareError> = Some(ShareError::InvalidRecordState);

#[test]
fn k26_a_backoff_holds_its_key_only() {
    let mut w = World::keyed();
    (w.config.backoff_ms, w.config.backoff_max_ms) = (1_000, 3_000);
    w.configure();
    w.log("a a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.ack("A", 0, 0, RELEASE);
    assert_eq!(w.fetch("B", 10), [(2, 2, 1)]);
    w.ack("B", 2, 2, ACCEPT);
    for (wait_ms, count) in [(1_000, 2), (2_000, 3), (3_000, 4), (3_000, 5)] {
        let parked = w.park("A", 1);
        w.pass_ms(wait_ms - 1);
        assert_eq!(w.woken("A", parked), None);
        w.pass_ms(1);
        assert_eq!(w.woken("A", parked), Some(vec![(0, 0, count)]));
        if count < 5 {
            w.ack("A", 0, 0, RELEASE);
        }
    }
}

#[test]
fn k26_a_backoff_survives_a_restart() {
    let mut w = World::keyed();
    (w.config.backoff_ms, w.config.backoff_max_ms) = (3_000, 3_000);
    w.configure();
    w.log("a a b");
    w.fetch("A", 1);
    w.ack("A", 0, 0, RELEASE);
    w.pass_ms(500);
    w.restart(1_000);
    assert_eq!(offsets(&w.fetch("B", 10)), [2]);
    w.pass_ms(1_499);
    assert_eq!(w.fetch("B", 10), []);
    w.pass_ms(1);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 1)]);
}

#[test]
fn k61_a_wait_is_clamped_when_the_wall_clock_has_stepped() {
    for (step_ms, left_ms) in [(10_000, 40_000), (-3_600_000, 60_000), (3_600_000, 0)] {
        let mut w = World::keyed();
        (w.config.backoff_ms, w.config.backoff_max_ms) = (60_000, 600_000);
        w.configure();
        w.log("a");
        w.fetch("A", 1);
        w.ack("A", 0, 0, RELEASE);
        w.pass_ms(10_000);
        w.restart(step_ms);
        w.fetch("B", 0);
        if left_ms > 0 {
            w.pass_ms(left_ms - 1);
            assert_eq!(w.fetch("B", 1), [], "step {step_ms}");
            w.pass_ms(1);
        }
        assert_eq!(w.fetch("B", 1), [(0, 0, 2)], "step {step_ms}");
    }
}

#[test]
fn k61_no_step_of_the_wall_clock_lengthens_a_wait_or_changes_one_that_runs() {
    let mut w = World::keyed();
    (w.config.backoff_ms, w.config.backoff_max_ms) = (60_000, 600_000);
    w.configure();
    w.log("a a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.ack("A", 0, 0, RELEASE);
    // Back by an hour at each of two starts: 60 s again each time, never more.
    for _ in 0..2 {
        w.pass_ms(10_000);
        w.restart(-3_600_000);
        w.reopen("B");
        assert_eq!(w.fetch("B", 10), []);
    }
    w.pass_ms(20_000);
    w.now.wall_ms += 3_600_000;
    w.pass_ms(20_000);
    w.now.wall_ms -= 7_200_000;
    w.pass_ms(19_999);
    assert_eq!(w.fetch("B", 10), [], "while the broker runs its steps are nothing to it");
    w.pass_ms(1);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 1)], "count and order as they were");
}

#[test]
fn k28_skip_at_the_limit() {
    let mut w = World::keyed();
    w.log("a a");
    for count in 1..=5 {
        assert_eq!(w.fetch("A", 1), [(0, 0, count)]);
        assert_eq!(w.ack("A", 0, 0, RELEASE), None);
    }
    assert_eq!(w.fetch("A", 1), [(1, 1, 1)]);
    assert_eq!(w.view().counters.archived, 1);
}

#[test]
fn k29_bystanders_do_not_become_poison() {
    for settles in [ACCEPT, RELEASE, REJECT] {
        let mut w = World::keyed();
        w.log("a a a");
        for count in 1..=5 {
            let got = each(&w.fetch("A", 10));
            assert_eq!(got[0], (0, count), "type {settles}");
            assert_eq!(w.ack("A", 0, 0, RELEASE), None);
            for (offset, bystander) in &got[1..] {
                assert_eq!(*bystander, 1);
                assert_eq!(w.ack("A", *offset, *offset, settles), None);
            }
        }
        assert_eq!(w.view().counters.archived, 1, "0 ended by the policy, and nothing else did");
        assert_eq!(each(&w.fetch("A", 10)), [(1, 1), (2, 1)]);
    }
}

#[test]
fn k29_bystanders_in_the_request_of_the_release() {
    let mut w = World::keyed();
    w.log("a a a b");
    w.fetch("A", 10);
    let mixed = AckRange { types: vec![RELEASE, ACCEPT, ACCEPT, ACCEPT], ..range(0, 3, ACCEPT) };
    assert_eq!(w.ack_ranges("A", vec![mixed]), None);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 1), (2, 1)], "b was accepted, 1 and 2 come again");
}

#[test]
fn k52_a_gap_of_a_live_record_is_a_release() {
    let mut w = World::keyed();
    w.log("a a b");
    assert_eq!(w.fetch("A", 10), [(0, 2, 1)]);
    assert_eq!(w.ack("A", 0, 0, GAP), None);
    assert_eq!(w.fetch("B", 10), [], "1 is recalled");
    assert_eq!(w.start(), 0);
    assert_eq!(w.view().counters.gap_releases, 1);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 1)]);
}

/// What compaction took is done, whatever the poison way: nobody parks or copies what is not there.
#[test]
fn k52_a_gap_of_a_record_that_left_the_log_settles_it() {
    for poison in [Poison::Skip, Poison::DeadLetter, Poison::Park] {
        let mut w = World::new(ShareConfig { poison, ..crate::common::key_config() });
        w.log("a a b");
        assert_eq!(w.fetch("A", 10), [(0, 2, 1)]);
        w.compact([0]);
        assert_eq!(w.ack("A", 0, 0, GAP), None, "ok");
        assert_eq!(w.ack("A", 1, 1, RELEASE), None);
        assert_eq!(w.fetch("B", 10), [(1, 1, 1)], "1 was recalled; 0 is not there any more");
        assert_eq!(w.start(), 1, "and is done");
        let counters = w.view().counters;
        assert_eq!((counters.corrupt, counters.gaps, counters.archived), (0, 1, 1));
        w.restart(0);
        w.pass_ms(30_000);
        assert_eq!(w.fetch("C", 10), [(1, 2, 1)], "for good");
    }
}

fn key_share(per_key: u32) -> Option<KeyShareTerms> {
    Some(KeyShareTerms { keys_max: 0, records_per_key_max: per_key, stops_at_disconnect: false })
}

#[test]
fn a_fetch_that_allows_more_records_of_a_key_gets_them_at_once() {
    let mut w = World::keyed();
    w.log("a a a");
    let ask = |per_key| crate::common::Want { key_share: key_share(per_key), ..want(10) };
    assert_eq!(w.fetch_with("A", &ask(1)).unwrap(), [(0, 0, 1)]);
    assert_eq!(w.fetch_with("A", &ask(1)).unwrap(), []);
    assert_eq!(w.fetch_with("A", &ask(2)).unwrap(), [(1, 1, 1)], "although nothing else is ready");
}

#[test]
fn k60_with_a_delivery_number_nothing_waits() {
    let mut w = World::keyed();
    w.log("a a a");
    let ask = crate::common::Want { key_share: key_share(16), ..want(10) };
    assert_eq!(w.fetch_with("A", &ask).unwrap(), [(0, 2, 1)]);
    let release = AckRange { delivery: Some(w.deliveries[&("A".to_string(), 0)]), ..range(0, 0, RELEASE) };
    let told = w.acknowledge("A", vec![release], None, true).unwrap();
    let recalled = told.parts[0].recalled.iter().map(|range| (range.first.get(), range.last.get()));
    assert_eq!(recalled.collect::<Vec<_>>(), [(1, 2)], "A is told what it must not work on any more");
    assert_eq!(each(&w.fetch_with("B", &ask).unwrap()), [(0, 2), (1, 1), (2, 1)]);
    let number = |w: &World, member: &str, offset| w.deliveries[&(member.to_string(), offset)];
    assert!(number(&w, "B", 1) > number(&w, "A", 1));
    assert_eq!(w.ack_numbered("A", 1, ACCEPT), Err(ShareError::InvalidRecordState));
    assert_eq!(w.ack_numbered("B", 1, ACCEPT), Ok(()));

    let old = number(&w, "B", 0);
    w.restart(1_000);
    w.reopen("B");
    w.fetch_with("B", &ask).unwrap();
    w.pass_ms(30_000);
    assert_eq!(
        each(&w.fetch_with("B", &ask).unwrap()),
        [(0, 2), (2, 1)],
        "a restart ended them: not counted"
    );
    let new = number(&w, "B", 0);
    assert!(new > old, "never used twice, over any restart");
    w.deliveries.insert(("B".into(), 0), old);
    assert_eq!(w.ack_numbered("B", 0, ACCEPT), Err(ShareError::InvalidRecordState));
    w.deliveries.insert(("B".into(), 0), new);
    assert_eq!(w.ack_numbered("B", 0, ACCEPT), Ok(()));
}

#[test]
fn k60_one_bad_range_spoils_nothing_with_delivery_numbers() {
    let mut w = World::keyed();
    w.log("a b c");
    let ask = crate::common::Want { key_share: key_share(0), ..want(10) };
    assert_eq!(w.fetch_with("A", &ask).unwrap(), [(0, 2, 1)]);
    let number = w.deliveries[&("A".to_string(), 0)];
    let with = |first, kind, delivery| AckRange { delivery, ..range(first, first, kind) };
    let ranges = vec![
        with(0, ACCEPT, Some(number)),
        with(1, 9, Some(number)),
        with(2, ACCEPT, Some(number)),
        with(7, ACCEPT, Some(number)),
    ];
    let reply = w.acknowledge("A", ranges, None, true).unwrap();
    let invalid = Err(ShareError::InvalidRequest);
    assert_eq!(reply.parts[0].results, [Ok(()), invalid, Ok(()), invalid]);
    assert_eq!(w.start(), 1);
}

#[test]
fn k60_a_holder_by_share_fetch_is_waited_for_whoever_asks() {
    let mut w = World::keyed();
    w.log("a a a");
    assert_eq!(w.fetch("A", 10), [(0, 2, 1)]);
    w.ack("A", 0, 0, RELEASE);
    let ask = crate::common::Want { key_share: key_share(16), ..want(10) };
    assert_eq!(w.fetch_with("B", &ask).unwrap(), []);
    w.ack("A", 1, 2, ACCEPT);
    assert_eq!(each(&w.fetch_with("B", &ask).unwrap()), [(0, 2), (1, 1), (2, 1)]);
}

#[test]
fn key_share_release_may_ask_for_a_delay() {
    let mut w = World::keyed();
    w.log("a a b");
    let ask = crate::common::Want { key_share: key_share(1), ..want(10) };
    assert_eq!(offsets(&w.fetch_with("A", &ask).unwrap()), [0, 2]);
    let number = w.deliveries.get(&("A".to_string(), 0)).copied();
    let delayed = AckRange { delivery: number, delay_ms: Some(2_000), ..range(0, 0, RELEASE) };
    assert_eq!(w.acknowledge("A", vec![delayed], None, true).unwrap().parts[0].results, [Ok(())]);
    let parked = w.park("B", 10);
    w.pass_ms(1_999);
    assert_eq!(w.woken("B", parked), None);
    w.pass_ms(1);
    assert_eq!(each(&w.woken("B", parked).unwrap()), [(0, 2), (1, 1)]);
}

fn before_the_crash(config: coordinator::share::ShareConfig) -> World {
    let mut w = World::new(config);
    w.log(&(0..20).map(|key| format!("k{key} ")).collect::<String>());
    assert_eq!(w.fetch("A", 10), [(0, 9, 1)]);
    assert_eq!(w.ack("A", 0, 4, ACCEPT), None);
    assert_eq!(w.ack("A", 9, 9, RELEASE), None);
    assert_eq!(w.fetch("A", 1), [(9, 9, 2)]);
    w.restart(100);
    w
}

#[test]
fn s20_an_old_session_is_unknown_after_a_crash() {
    for config in [none_config(), crate::common::key_config()] {
        let ordered = config.order == coordinator::share::ShareOrder::Key;
        let mut w = before_the_crash(config);
        let free = offsets(&w.fetch("B", 100));
        assert_eq!(free, if ordered { 10..20 } else { 5..20 }.collect::<Vec<i64>>());
        let late = w.acknowledge("A", vec![range(5, 5, ACCEPT)], None, false);
        assert_eq!(late.unwrap_err(), ShareError::SessionNotFound);
        let acks = vec![(0, range(5, 5, ACCEPT))];
        let late = w.fetch_with("A", &crate::common::Want { acks, ..want(1) });
        assert_eq!(late.unwrap_err(), ShareError::SessionNotFound);
        w.reopen("A");
        assert_eq!(w.fetch("A", 0), []);
        let wrong = w.acknowledge("A", vec![range(5, 5, ACCEPT)], Some(7), false);
        assert_eq!(wrong.unwrap_err(), ShareError::InvalidSessionEpoch);
        assert_eq!(w.ack(if ordered { "A" } else { "B" }, 5, 5, RELEASE), None, "nothing had changed");
        assert_eq!(w.fetch("B", 1), [(5, 5, 2)]);
    }
}

#[test]
fn s20_without_order_a_crash_frees_everything_uncounted() {
    let mut w = before_the_crash(none_config());
    let got = each(&w.fetch("B", 100));
    let expected: Vec<(i64, i16)> = (5..20).map(|offset| (offset, if offset == 9 { 2 } else { 1 })).collect();
    assert_eq!(got, expected);
}

#[test]
fn s20_with_key_order_leases_have_the_grace_after_a_crash() {
    let mut w = before_the_crash(crate::common::key_config());
    assert_eq!(w.fetch("B", 100), [(10, 19, 1)]);
    w.ack("B", 10, 19, ACCEPT);
    let b = w.park("B", 100);
    w.pass_ms(7_499);
    assert_eq!(w.woken("B", b), None);
    w.pass_ms(1);
    assert_eq!(each(&w.woken("B", b).unwrap()), [(5, 1), (6, 1), (7, 1), (8, 1), (9, 2)]);
}

#[test]
fn s20_a_new_session_of_the_holder_keeps_its_leases_after_a_crash() {
    let mut w = before_the_crash(crate::common::key_config());
    w.fetch("B", 0);
    w.pass_ms(2_000);
    w.reopen("A");
    assert_eq!(w.fetch("A", 0), []);
    assert_eq!(w.fetch("B", 100), [(10, 19, 1)]);
    assert_eq!(w.ack("A", 5, 5, ACCEPT), None, "its application may be at work still");
    w.ack("B", 10, 19, ACCEPT);
    let b = w.park("B", 100);
    w.pass_ms(27_899);
    assert_eq!(w.woken("B", b), None);
    w.pass_ms(1);
    let got = each(&w.woken("B", b).unwrap());
    assert_eq!(got, [(6, 1), (7, 1), (8, 1), (9, 2)], "what is left of the lock, and not counted");
}

#[test]
fn s20_ten_restarts_lose_and_double_nothing_acknowledged() {
    for config in [none_config(), crate::common::key_config()] {
        let mut w = World::new(config);
        w.limits.snapshot_after_bytes = 60;
        w.restart(0);
        w.log(&(0..100).map(|key| format!("k{} ", key % 30)).collect::<String>());
        let mut settled = Vec::new();
        for round in 0..10 {
            let member = format!("M{round}");
            let got = offsets(&w.fetch(&member, 7));
            assert_eq!(w.ack(&member, got[0], got[0], ACCEPT), None);
            assert_eq!(w.ack(&member, got[1], got[1], REJECT), None);
            settled.extend(&got[..2]);
            w.restart(31_000);
        }
        assert!(w.snapshots > 0, "snapshots were part of it");
        let mut again = Vec::new();
        loop {
            let got = offsets(&w.fetch("B", 1_000));
            if got.is_empty() {
                break;
            }
            for offset in got {
                assert_eq!(w.ack("B", offset, offset, ACCEPT), None);
                again.push(offset);
            }
        }
        again.extend(&settled);
        again.sort_unstable();
        assert_eq!(again, (0..100).collect::<Vec<_>>());
        assert_eq!(w.start(), 100);
    }
}

#[test]
fn s20_after_a_crash_no_key_goes_out_before_its_leases_are_known() {
    let mut w = World::keyed();
    w.limits.scan_bytes_max = 100;
    w.restart(0);
    w.log("a x y a");
    let got: Vec<i64> = (0..4).flat_map(|_| offsets(&w.fetch("A", 4))).collect();
    assert_eq!(got, [0, 1, 2, 3]);
    w.ack("A", 0, 0, RELEASE);
    w.restart(0);
    assert_eq!(w.fetch("B", 10), [], "the scan comes to 0 first, and only at 3 it shows that A has the key");
    assert_eq!(w.ack("B", 0, 0, ACCEPT), INVALID);
}

#[test]
fn a_record_recalled_before_its_answer_went_out_was_never_delivered() {
    let mut w = World::keyed();
    w.config.lock_ms = 15_000;
    w.configure();
    w.log("a a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.pass_ms(14_990);
    w.slow_disk = true;
    let ticket = w.send("A", &want(10));
    w.pass_ms(10);
    w.slow_disk = false;
    w.serve();
    assert_eq!(
        w.woken("A", ticket),
        Some(vec![(2, 2, 1)]),
        "1 was granted, then recalled by the end of 0's lock"
    );
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 1)], "nobody has to wait for it, and it does not count");
}

#[test]
fn a_backoff_behind_a_snapshot_survives_a_restart() {
    for snapshots in [false, true] {
        for key in ["a", "-"] {
            let mut w = World::keyed();
            (w.config.backoff_ms, w.config.backoff_max_ms) = (300, 1_000);
            if snapshots {
                w.limits.snapshot_after_bytes = 1;
            }
            w.restart(0);
            w.log(key);
            w.fetch("A", 1);
            w.ack("A", 0, 0, RELEASE);
            w.pass_ms(300);
            assert_eq!(w.fetch("A", 1), [(0, 0, 2)]);
            w.ack("A", 0, 0, RELEASE);
            w.restart(200);
            assert_eq!(w.fetch("B", 10), [], "snapshots {snapshots}, key {key}");
            w.pass_ms(399);
            assert_eq!(w.fetch("B", 10), [], "snapshots {snapshots}, key {key}");
            w.pass_ms(1);
            assert_eq!(w.fetch("B", 10), [(0, 0, 3)]);
        }
    }
}

#[test]
fn r15_share_state_does_not_outlive_its_log() {
    for snapshots in [false, true] {
        let mut w = World::keyed();
        if snapshots {
            w.limits.snapshot_after_bytes = 1;
        }
        w.restart(0);
        w.log("a b c d e");
        assert_eq!(offsets(&w.fetch("A", 10)), [0, 1, 2, 3, 4]);
        w.ack("A", 0, 0, ACCEPT);
        w.ack("A", 1, 2, RELEASE);
        w.ack("A", 4, 4, ACCEPT);
        w.ack("A", 2, 2, ACCEPT);
        w.cut_log(2);
        w.restart(30_000);
        assert_eq!(w.fetch("B", 10), [(1, 1, 2)], "what lies below the cut stands");
        assert_eq!(w.start(), 1);
        w.log("c d e");
        assert_eq!(w.fetch("B", 10), [(2, 4, 1)], "and what is new at old offsets is new");
        w.ack("B", 1, 4, ACCEPT);
        assert_eq!(w.start(), 5);
    }
}

#[test]
fn s20_refused_requests_of_an_old_session_prolong_no_grace() {
    let mut w = before_the_crash(crate::common::key_config());
    assert_eq!(w.fetch("B", 100), [(10, 19, 1)]);
    w.pass_ms(1_000);
    let late = w.acknowledge("A", vec![range(5, 5, ACCEPT)], None, false);
    assert_eq!(late.unwrap_err(), ShareError::SessionNotFound);
    let acks = vec![(0, range(5, 5, ACCEPT))];
    let late = w.fetch_with("A", &crate::common::Want { acks, ..want(1) });
    assert_eq!(late.unwrap_err(), ShareError::SessionNotFound);
    w.pass_ms(6_499);
    assert_eq!(w.fetch("B", 100), []);
    w.pass_ms(1);
    assert_eq!(each(&w.fetch("B", 100)), [(5, 1), (6, 1), (7, 1), (8, 1), (9, 2)]);
}
