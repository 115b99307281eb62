//! Members come and go, connections are lost: cases K14 to K25, K51 to K54, K70 to K72.

use crate::common::{ACCEPT, RELEASE, Want, World, each, offsets, range, want};
use coordinator::command::{Fact, KeyShareTerms};
use coordinator::share::{LeftBy, ShareError};

const INVALID: Option<ShareError> = Some(ShareError::InvalidRecordState);

fn keys(count: usize, records: usize) -> String {
    (0..records).flat_map(|_| (0..count).map(|key| format!("k{key} "))).collect()
}

#[test]
fn k14_a_join_freezes_nothing() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log(&keys(1_000, 10));
    assert_eq!(w.fetch("A", 10).len(), 1);
    let mut seen = Vec::new();
    for member in ["B", "C", "D"] {
        let got = offsets(&w.fetch(member, 330));
        assert_eq!(got.len(), 330, "{member}");
        seen.extend(got);
    }
    seen.sort_unstable();
    assert_eq!(seen, (10..1_000).collect::<Vec<_>>(), "every key without records out was open at once");
}

#[test]
fn k15_the_newcomer_waits_for_no_old_acknowledgement() {
    let mut w = World::keyed();
    w.log("a b a c d");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(offsets(&w.fetch("B", 10)), [1, 3, 4]);
}

#[test]
fn k16_a_member_without_credit_sets_no_pace() {
    let mut w = World::keyed();
    w.log(&keys(9, 1));
    let a = w.fetch("A", 3);
    assert_eq!(offsets(&a), [0, 1, 2]);
    let parked = w.send("A", &crate::common::Want { wait_ms: 60_000, ..want(0) });
    assert_eq!(w.woken("A", parked), Some(vec![]), "no room: nothing to wait for");
    assert_eq!(offsets(&w.fetch("B", 3)), [3, 4, 5]);
    assert_eq!(offsets(&w.fetch("C", 10)), [6, 7, 8]);
}

#[test]
fn k17_leave_and_join_in_one_step() {
    for by_heartbeat in [false, true] {
        let mut w = World::keyed();
        w.log("a a a a a a a a a a");
        assert_eq!(w.fetch("B", 2), [(0, 1, 1)]);
        w.fetch("A", 0);
        let a = w.park("A", 2);
        if by_heartbeat {
            w.left("B", LeftBy::Heartbeat);
        } else {
            w.close_session("B", vec![]).unwrap();
        }
        let c = w.park("C", 2);
        if by_heartbeat {
            w.pass_ms(1_000);
        }
        let took = [w.woken("A", a), w.woken("C", c)];
        let got: Vec<_> = took.iter().flatten().flat_map(|got| each(got)).collect();
        assert_eq!(got, [(0, 2), (1, 2)], "exactly one of them, at once");
        let (who, other) = if took[0].is_some() { ("A", "C") } else { ("C", "A") };
        if took[0].is_none() || took[1].is_none() {
            assert_eq!(w.fetch(other, 10), [], "nothing above goes out before they are settled");
        }
        let late = w.acknowledge("B", vec![range(0, 0, ACCEPT)], Some(2), false);
        assert_eq!(late.unwrap_err(), ShareError::SessionNotFound, "and nothing changes");
        assert_eq!(w.ack(who, 0, 1, ACCEPT), None);
        assert_eq!(offsets(&w.fetch(other, 10)), (2..10).collect::<Vec<_>>());
    }
}

#[test]
fn k18_a_session_that_closes_during_the_read_holds_nothing() {
    let mut w = World::keyed();
    w.log("a a");
    w.fetch("A", 0);
    w.fetch("B", 0);
    w.slow_disk = true;
    let ticket = w.send("B", &want(2));
    assert!(w.waiting() > 0, "the read is under way");
    w.send_acks("B", vec![], Some(-1), false);
    w.slow_disk = false;
    w.serve();
    let late = w.fetched("B", ticket).unwrap().unwrap();
    assert!(late.parts.iter().all(|part| part.acquired.is_empty()), "ownership is looked at when it is sent");
    assert_eq!(w.fetch("A", 10), [(0, 1, 1)]);
}

#[test]
fn k19_a_parked_fetch_dies_with_its_connection() {
    let mut w = World::keyed();
    w.fetch("A", 0);
    w.fetch("B", 0);
    let b = w.park("B", 10);
    let a = w.park("A", 10);
    w.lose("B");
    w.log("a");
    assert_eq!(w.woken("A", a), Some(vec![(0, 0, 1)]));
    assert_eq!(w.woken("B", b), None);
}

#[test]
fn k19_a_fetch_on_an_old_connection_takes_nothing_once_its_member_speaks_on_another() {
    let mut w = World::keyed();
    w.fetch("A", 0);
    let old = w.send("A", &Want { wait_ms: 60_000, bytes_min: 1_000_000, ..want(1) });
    w.log("a a");
    assert_eq!(w.woken("A", old), None, "not enough for it yet");
    // Its connection is lost, which nobody here knows so far.
    w.connections.remove("A");
    w.reopen("A");
    assert_eq!(w.fetch("A", 10), [(0, 1, 1)], "both records of the key, by one answer");
    assert_eq!(w.woken("A", old), Some(vec![]));
}

#[test]
fn k19_a_lost_answer_frees_its_records_at_once() {
    let mut w = World::keyed();
    w.written_at_once = false;
    w.log("a a");
    let b = w.send("B", &want(10));
    let a = w.park("A", 10);
    w.fact(Fact::AnswerLost(b));
    assert_eq!(w.woken("A", a), Some(vec![(0, 1, 1)]), "nobody saw them");
}

#[test]
fn k19_an_answer_lost_before_it_was_made_holds_nothing() {
    let mut w = World::keyed();
    w.fetch("B", 0);
    let parked = w.park("B", 10);
    w.fact(Fact::AnswerLost(parked));
    w.log("a a");
    w.slow_disk = true;
    let reading = w.send("B", &want(10));
    w.fact(Fact::AnswerLost(reading));
    w.slow_disk = false;
    w.serve();
    assert_eq!(w.woken("B", parked), None);
    assert_eq!(w.woken("B", reading), None);
    assert_eq!(w.fetch("A", 10), [(0, 1, 1)]);
}

#[test]
fn k19_an_answer_that_nobody_reads_closes_its_connection_at_half_the_lock() {
    let mut w = World::keyed();
    w.config.lock_ms = 15_000;
    w.configure();
    w.written_at_once = false;
    w.log("a");
    let b = w.send("B", &want(10));
    let connection = w.connection("B");
    let a = w.park("A", 10);
    assert_eq!(
        std::mem::take(&mut w.effects),
        [coordinator::reply::Effect::IndexKeys(crate::common::partition(0))]
    );
    w.pass_ms(7_499);
    assert!(w.effects.is_empty());
    w.pass_ms(1);
    assert_eq!(w.effects, [coordinator::reply::Effect::CloseConnection(connection)]);
    assert_eq!(w.woken("A", a), None, "B could still read it to its end");
    w.fact(Fact::AnswerLost(b));
    w.close(connection);
    assert_eq!(w.woken("A", a), Some(vec![(0, 0, 1)]));
}

#[test]
fn k19_a_lock_starts_when_the_answer_is_written_whole() {
    let mut w = World::keyed();
    w.config.lock_ms = 15_000;
    w.configure();
    w.written_at_once = false;
    w.log("a");
    let b = w.send("B", &want(10));
    w.pass_ms(6_000);
    w.fact(Fact::AnswerWritten(b));
    let a = w.park("A", 10);
    w.pass_ms(14_999);
    assert_eq!(w.woken("A", a), None);
    w.pass_ms(1);
    assert_eq!(w.woken("A", a), Some(vec![(0, 0, 2)]));
}

#[test]
fn k20_nothing_names_a_departed_member() {
    let mut w = World::keyed();
    w.config.lock_ms = 60_000;
    w.configure();
    w.log("a");
    w.fetch("A", 1);
    w.fetch("B", 0);
    let b = w.park("B", 1);
    w.pass_ms(45_000);
    w.left("A", LeftBy::SessionTimeout);
    assert_eq!(w.woken("B", b), Some(vec![(0, 0, 2)]));
    let holders = w.machine.holders("g", crate::common::partition(0));
    assert!(holders.iter().all(|(_, name, _)| &**name == "B"), "no state names A: {holders:?}");
    assert_eq!(w.ack("B", 0, 0, RELEASE), None);
    w.reopen("A");
    assert_eq!(w.fetch("A", 1), [(0, 0, 3)], "the same member id comes back as a new one");
}

#[test]
fn k22_accepted_stays_accepted_over_a_rebalance() {
    let mut w = World::keyed();
    w.log(&keys(100, 1));
    assert_eq!(w.fetch("A", 100), [(0, 99, 1)]);
    for offset in (0..100).step_by(2) {
        w.ack("A", offset, offset, ACCEPT);
    }
    w.fetch("B", 0);
    w.close_session("A", vec![]).unwrap();
    let again = each(&w.fetch("B", 100));
    assert_eq!(again, (0..100).skip(1).step_by(2).map(|offset| (offset, 2)).collect::<Vec<_>>());
}

#[test]
fn k24_ready_keys_spread_over_all_that_wait() {
    let mut w = World::keyed();
    let members = ["A", "B", "C", "D"];
    for member in members {
        w.fetch(member, 0);
    }
    let tickets: Vec<_> = members.iter().map(|member| w.park(member, 10)).collect();
    let keys: Vec<_> = (0..10).map(|key| crate::common::key(&format!("k{key}"))).collect();
    w.batch(0, &keys, &[100; 10]);
    w.grew(0);
    let shares: Vec<usize> = members
        .iter()
        .zip(tickets)
        .map(|(member, ticket)| offsets(&w.woken(member, ticket).unwrap()).len())
        .collect();
    assert_eq!(shares.iter().sum::<usize>(), 10);
    assert!(shares.iter().all(|share| (2..=3).contains(share)), "{shares:?}");
}

/// Lets a member prove that it is fast, with records that are gone afterwards.
fn make_fast(w: &mut World, member: &str) {
    let target = std::mem::replace(&mut w.config.hold_target_ms, 0);
    w.configure();
    w.log(&(0..100).map(|key| format!("warm{key} ")).collect::<String>());
    for range in w.fetch(member, 100) {
        w.pass_ms(1);
        assert_eq!(w.ack(member, range.0, range.1, ACCEPT), None);
    }
    w.config.hold_target_ms = target;
    w.configure();
}

#[test]
fn k24_a_member_that_asks_alone_is_not_alone() {
    let mut w = World::keyed();
    w.config.hold_target_ms = 100;
    w.configure();
    let members = ["A", "B", "C", "D"];
    for member in members {
        make_fast(&mut w, member);
    }
    w.live(&members);
    w.log(&keys(10, 1));
    assert_eq!(offsets(&w.fetch("A", 10)).len(), 3);
    assert_eq!(offsets(&w.fetch("B", 10)).len(), 3);
    assert_eq!(offsets(&w.fetch("C", 10)).len(), 3);
    assert_eq!(offsets(&w.fetch("D", 10)).len(), 1);
}

#[test]
fn k25_a_single_key_never_stops() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    let total = 2_000;
    w.log(&"a ".repeat(total));
    let members = ["A", "B", "C", "D", "E"];
    let mut delivered = Vec::new();
    let mut turn = 0;
    while delivered.len() < total {
        let member = members[turn % members.len()];
        turn += 1;
        let got = offsets(&w.fetch(member, 10));
        assert_eq!(got.len(), 1, "whoever is free takes the next");
        let other = members[turn % members.len()];
        assert_eq!(w.fetch(other, 10), []);
        w.ack(member, got[0], got[0], ACCEPT);
        delivered.extend(got);
    }
    assert_eq!(delivered, (0..total as i64).collect::<Vec<_>>());
}

#[test]
fn k51_a_recalled_record_waits_no_longer_than_its_holder() {
    for run in 0..5 {
        let mut w = World::keyed();
        w.config.lock_ms = 30_000;
        w.configure();
        w.log("a a a");
        assert_eq!(w.fetch("A", 10), [(0, 2, 1)]);
        w.ack("A", 0, 0, RELEASE);
        assert_eq!(w.fetch("B", 10), []);
        let b = w.park("B", 10);
        match run {
            0 => {
                w.left("A", LeftBy::Heartbeat);
                assert_eq!(w.woken("B", b), None);
                w.pass_ms(1_000);
            }
            1 => drop(w.close_session("A", vec![]).unwrap()),
            2 => w.left("A", LeftBy::SessionTimeout),
            3 => {
                w.lose("A");
                w.pass_ms(7_499);
                assert_eq!(w.woken("B", b), None);
                w.pass_ms(1);
            }
            _ => {
                w.pass_ms(29_999);
                assert_eq!(w.woken("B", b), None);
                w.pass_ms(1);
            }
        }
        let recalled = if run == 4 { 2 } else { 1 };
        assert_eq!(each(&w.woken("B", b).unwrap()), [(0, 2), (1, recalled), (2, recalled)], "run {run}");
        assert_eq!(w.fetch("C", 10), []);
    }
}

#[test]
fn k53_a_lost_connection_is_not_a_leave() {
    for (grace, free_after_ms, count) in
        [(None, 27_500 - 1_000, 2), (Some(0), 0, 2), (Some(60_000), 29_000, 2)]
    {
        let mut w = World::keyed();
        w.config.disconnect_grace_ms = grace;
        w.configure();
        w.log("a b");
        let heartbeats = w.heartbeat_connection("B");
        assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
        w.fetch("A", 0);
        w.pass_ms(1_000);
        w.lose("B");
        assert_eq!(
            w.fetch("A", 1),
            if grace == Some(0) { [(0, 0, 2)] } else { [(1, 1, 1)] },
            "other keys flow"
        );
        if grace == Some(0) {
            continue;
        }
        assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
        let a = w.park("A", 1);
        w.pass_ms(19_000);
        w.close(heartbeats);
        w.pass_ms(free_after_ms - 19_000 - 1);
        assert_eq!(w.woken("A", a), None, "grace {grace:?}");
        w.pass_ms(1);
        assert_eq!(w.woken("A", a), Some(vec![(0, 0, count)]), "grace {grace:?}");
    }
}

fn both_lost() -> World {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("a");
    let heartbeats = w.heartbeat_connection("B");
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
    w.fetch("A", 0);
    w.pass_ms(1_000);
    w.lose("B");
    w.close(heartbeats);
    w
}

#[test]
fn k54_a_heartbeat_ends_the_grace_and_nothing_else() {
    let mut w = both_lost();
    w.pass_ms(2_000);
    w.heartbeat_connection("B");
    let a = w.park("A", 1);
    w.pass_ms(26_999);
    assert_eq!(w.woken("A", a), None);
    w.pass_ms(1);
    assert_eq!(w.woken("A", a), Some(vec![(0, 0, 2)]), "by the lock");
}

#[test]
fn k54_a_new_session_gives_back_what_the_old_one_held() {
    let mut w = both_lost();
    w.pass_ms(2_000);
    w.reopen("B");
    assert_eq!(w.fetch("B", 0), []);
    assert_eq!(w.ack("B", 0, 0, ACCEPT), INVALID, "it does not hold it again");
    assert_eq!(w.fetch("A", 1), [(0, 0, 2)]);
}

#[test]
fn k54_another_member_id_does_not_speak_for_the_old_one() {
    let mut w = both_lost();
    w.pass_ms(2_000);
    assert_eq!(w.fetch("C", 1), []);
    let a = w.park("A", 1);
    w.pass_ms(5_499);
    assert_eq!(w.woken("A", a), None);
    w.pass_ms(1);
    assert_eq!(w.woken("A", a), Some(vec![(0, 0, 2)]));
}

#[test]
fn k54_the_old_epoch_is_good_within_the_grace() {
    let mut w = both_lost();
    w.log("a");
    let a = w.park("A", 1);
    w.pass_ms(2_000);
    assert_eq!(w.ack("B", 0, 0, ACCEPT), None);
    assert_eq!(w.woken("A", a), Some(vec![(1, 1, 1)]));
}

#[test]
fn k54_the_grace_is_for_what_was_written() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("a c");
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
    w.written_at_once = false;
    let half = w.send("B", &want(1));
    let a = w.park("A", 10);
    w.pass_ms(1_000);
    w.fact(Fact::AnswerLost(half));
    w.lose("B");
    assert_eq!(w.woken("A", a), Some(vec![(1, 1, 1)]), "pending: free at once, not counted");
    w.written_at_once = true;
    w.pass_ms(7_499);
    assert_eq!(w.fetch("C", 10), []);
    w.pass_ms(1);
    assert_eq!(w.fetch("C", 10), [(0, 0, 2)]);
}

#[test]
fn k70_reopened_while_its_application_works() {
    for settles in [true, false] {
        let mut w = World::keyed();
        w.config.key_inflight_max = 1;
        w.configure();
        w.log("a a");
        let heartbeats = w.heartbeat_connection("B");
        assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
        w.fetch("A", 0);
        w.pass_ms(1_000);
        w.park("B", 1);
        w.lose("B");
        w.close(heartbeats);
        w.pass_ms(200);
        w.reopen("B");
        assert_eq!(w.fetch("B", 1), [], "its fetch was parked: everything stays");
        let a = w.park("A", 1);
        w.pass_ms(1_800);
        assert_eq!(w.woken("A", a), None);
        if settles {
            assert_eq!(w.ack("B", 0, 0, ACCEPT), None, "in the new session");
            assert_eq!(w.woken("A", a), Some(vec![(1, 1, 1)]));
        } else {
            w.pass_ms(26_999);
            assert_eq!(w.woken("A", a), None);
            w.pass_ms(1);
            assert_eq!(w.woken("A", a), Some(vec![(0, 0, 2)]));
        }
    }
}

#[test]
fn k71_a_parked_fetch_holds_no_acknowledgement_back() {
    let mut w = World::keyed();
    w.log("a");
    assert_eq!(w.fetch("A", 10), [(0, 0, 1)]);
    w.pass_ms(40);
    for _ in 0..3 {
        let fetch = w.send("A", &crate::common::Want { wait_ms: 5_000, ..want(10) });
        assert_eq!(w.woken("A", fetch), None);
        w.pass_ms(50);
        assert_eq!(w.woken("A", fetch), Some(vec![]));
    }
    let acks = vec![(0, range(0, 0, ACCEPT))];
    let fetch = w.send("A", &crate::common::Want { wait_ms: 5_000, acks, ..want(10) });
    assert_eq!(w.woken("A", fetch), Some(vec![]), "it carries an acknowledgement and finds nothing");
    let fetch = w.send("A", &crate::common::Want { wait_ms: 5_000, ..want(10) });
    w.pass_ms(4_999);
    assert_eq!(w.woken("A", fetch), None, "nothing held");
    w.pass_ms(1);
    assert_eq!(w.woken("A", fetch), Some(vec![]));
}

#[test]
fn k71_a_fresh_delivery_is_parked_for_a_quarter_of_its_age() {
    let mut w = World::keyed();
    w.log("a");
    w.fetch("A", 10);
    w.pass_ms(20);
    let fetch = w.send("A", &crate::common::Want { wait_ms: 5_000, ..want(10) });
    w.pass_ms(4);
    assert_eq!(w.woken("A", fetch), None);
    w.pass_ms(1);
    assert_eq!(w.woken("A", fetch), Some(vec![]));
}

#[test]
fn k72_leave_first_settle_after() {
    for closes in [true, false] {
        let mut w = World::keyed();
        w.log("a b");
        assert_eq!(w.fetch("A", 10), [(0, 1, 1)]);
        w.fetch("B", 0);
        let parked = w.park("A", 10);
        w.left("A", LeftBy::Heartbeat);
        assert_eq!(w.woken("A", parked), Some(vec![]), "its parked fetch is answered");
        w.pass_ms(300);
        if closes {
            let closed = w.close_session("A", vec![range(0, 0, ACCEPT)]).unwrap();
            assert_eq!(closed.parts[0].error, None);
            assert_eq!(w.fetch("B", 10), [(1, 1, 2)]);
        } else {
            assert_eq!(w.fetch("A", 10), [], "a member that left gets nothing more");
            w.pass_ms(699);
            assert_eq!(w.fetch("B", 10), []);
            w.pass_ms(1);
            assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 2)]);
        }
    }
}

#[test]
fn s20_after_a_crash_the_grace_begins_with_the_last_loss() {
    let mut w = World::keyed();
    w.log("a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.restart(0);
    // Nobody fetches yet, so nobody knows what A holds; it loses its connection all the same.
    let heart = w.heartbeat_connection("A");
    w.pass_ms(5_000);
    w.close(heart);
    w.pass_ms(7_499);
    assert_eq!(w.fetch("B", 1), []);
    w.pass_ms(1);
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
}

/// What it held would stay with it otherwise, and later records of its keys would go to it, which it would begin at
/// once: it has forgotten the earlier ones.
#[test]
fn a_member_that_stops_at_disconnect_holds_nothing_in_a_new_session() {
    for (restarted, count) in [(false, 2), (true, 1)] {
        let mut w = World::keyed();
        w.log("a a a");
        let promise = |records_per_key_max| Want {
            key_share: Some(KeyShareTerms { keys_max: 0, records_per_key_max, stops_at_disconnect: true }),
            ..want(10)
        };
        assert_eq!(w.fetch_with("A", &promise(1)).unwrap(), [(0, 0, 1)]);
        if restarted {
            w.restart(500);
        }
        w.reopen("A");
        let mut taken = w.fetch_with("A", &promise(2)).unwrap();
        if taken.is_empty() {
            taken = w.fetch_with("A", &promise(2)).unwrap();
        }
        assert_eq!(each(&taken), [(0, count), (1, 1)], "restarted {restarted}");
    }
}
