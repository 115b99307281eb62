//! What goes into an answer, and when it leaves: cases K39, K42, K43, K45, K48, K55, K56, K58, K59, K66, K67.

use crate::common::{ACCEPT, Log, RELEASE, Want, World, each, group, offsets, partition, range, want};
use coordinator::command::{AckRange, Fact, ShareFetch, ShareFetchPart, Ticket};
use coordinator::io::Submission;
use coordinator::reply::Reply;
use coordinator::share::{ShareCommand, ShareError};
use records::ids::{Offset, PartitionId};

fn distinct(count: usize) -> String {
    (0..count).map(|key| format!("k{key} ")).collect()
}

#[test]
fn k39_credit_ends_in_the_middle_of_a_key() {
    let mut w = World::keyed();
    for (name, bytes) in [("a", 10_000), ("a", 900_000), ("a", 1_000), ("b", 1_000)] {
        w.batch(0, &[crate::common::key(name)], &[bytes]);
    }
    w.grew(0);
    let got = offsets(&w.fetch_with("A", &Want { bytes: 100_000, ..want(10) }).unwrap());
    assert_eq!(got, [0, 3], "never 2 before 1");
    let got = offsets(&w.fetch_with("A", &Want { bytes: 100_000, ..want(10) }).unwrap());
    assert_eq!(got[0], 1, "a first record goes out whatever its size");
}

#[test]
fn k42_one_batch_several_members() {
    let mut w = World::keyed();
    w.fetch("A", 0);
    w.fetch("B", 0);
    let (a, b) = (w.park("A", 2), w.park("B", 2));
    w.log("a,b,a,c");
    let mut shares = [offsets(&w.woken("A", a).unwrap()), offsets(&w.woken("B", b).unwrap())];
    shares.sort();
    assert_eq!(shares, [[0, 2], [1, 3]]);
}

#[test]
fn k43_many_records_of_one_key_in_a_fetch() {
    let mut w = World::keyed();
    w.log(&"a ".repeat(100));
    assert_eq!(w.fetch("A", 100), [(0, 99, 1)]);
}

#[test]
fn k45_leases_are_per_share_partition() {
    let mut w = World::keyed();
    w.add_partition(1);
    w.log_in(0, "a");
    w.log_in(1, "a");
    let both = Want { parts: vec![0, 1], ..want(1) };
    assert_eq!(w.fetch_with("A", &both).unwrap(), [(0, 0, 1)]);
    assert_eq!(w.fetch_with("B", &both).unwrap(), [(0, 0, 1)], "the other partition's");
    assert_eq!(w.fetch_with("C", &both).unwrap(), []);
    w.add_partition(2);
    w.log_in(2, "a");
    let all = Want { parts: vec![0, 1, 2], ..want(10) };
    assert_eq!(w.fetch_with("C", &all).unwrap(), [(0, 0, 1)], "of a partition that came later the same");
    // In another topic as well.
    let elsewhere = PartitionId { topic: records::ids::TopicId([8; 16]), index: 0 };
    let log = Log {
        batches: w.logs[&partition(0)].batches.clone(),
        facts: w.table[&partition(0)],
        ..Log::default()
    };
    w.table.insert(elsewhere, log.facts);
    w.logs.insert(elsewhere, log);
    let fetch = ShareFetch {
        connection: w.connection("D"),
        group: group(),
        member: "D".into(),
        epoch: 0,
        wait_max_ms: 0,
        bytes_min: 1,
        bytes_max: 1 << 20,
        records_max: 10,
        batch_size: 500,
        strict: true,
        renew: false,
        parts: vec![ShareFetchPart { partition: elsewhere, acks: vec![] }],
        forgotten: vec![],
        key_share: None,
    };
    let ticket = w.command(ShareCommand::Fetch(fetch));
    assert_eq!(w.woken("D", ticket), Some(vec![(0, 0, 1)]));
}

#[test]
fn k48_oldest_first() {
    let mut w = World::keyed();
    w.log("z y x");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.ack("A", 0, 0, RELEASE);
    for expected in 0..3 {
        assert_eq!(offsets(&w.fetch("A", 1)), [expected]);
    }
}

#[test]
fn k32_a_key_that_always_fails_does_not_take_the_others_place() {
    let mut w = World::keyed();
    w.config.delivery_count_max = 10;
    w.configure();
    w.log(&"a ".repeat(100));
    w.log(&distinct(1_000));
    let mut others = 0;
    for _ in 0..1_000 {
        for (offset, _) in each(&w.fetch("A", 1)) {
            let fails = offset < 100;
            others += usize::from(!fails);
            w.ack("A", offset, offset, if fails { RELEASE } else { ACCEPT });
        }
    }
    assert!(others >= 700, "{others} of 1,000 fetches of one record");
}

#[test]
fn k55_never_more_records_than_asked_for() {
    let mut w = World::keyed();
    for batch in 0..3 {
        let keys: Vec<_> = (0..20).map(|key| crate::common::key(&format!("k{batch}-{key}"))).collect();
        w.batch(0, &keys, &[100; 20]);
    }
    w.grew(0);
    assert_eq!(w.fetch_with("A", &Want { strict: false, ..want(5) }).unwrap(), [(0, 4, 1)]);
    assert_eq!(w.fetch_with("B", &want(5)).unwrap(), [(5, 9, 1)]);
    assert_eq!(w.fetch_with("A", &Want { strict: false, ..want(30) }).unwrap(), [(10, 39, 1)]);
}

#[test]
fn k55_one_limit_over_all_partitions() {
    let mut w = World::keyed();
    w.add_partition(1);
    w.log_in(0, &distinct(20));
    w.log_in(1, &distinct(20));
    let got = w.fetch_with("A", &Want { parts: vec![0, 1], ..want(5) }).unwrap();
    assert_eq!(offsets(&got).len(), 5);
}

#[test]
fn k55_a_partition_that_grants_nothing_holds_nobodys_place() {
    let mut w = World::keyed();
    w.add_partition(1);
    w.fetch_with("A", &Want { parts: vec![0, 1], ..want(0) }).unwrap();
    let ask = Want { wait_ms: 60_000, ..want(1) };
    let mut per_partition = [0, 0];
    for round in 0..1_000 {
        let parked = w.send("A", &ask);
        assert!(w.fetched("A", parked).is_none(), "round {round}");
        for index in [0, 1] {
            let key = crate::common::key(&format!("k{round}"));
            w.batch(index, &[key], &[10]);
        }
        let (table, now) = (w.table.clone(), w.now);
        for index in [0, 1] {
            w.machine.log_grew(now, partition(index), &table, &mut w.out);
        }
        w.settle();
        let mut fetched = w.fetched("A", parked).unwrap().unwrap();
        for turn in 0..2 {
            if turn == 1 {
                let next = w.send("A", &ask);
                fetched = w.fetched("A", next).expect("the other one is there, at once").unwrap();
            }
            let got = crate::common::got(&fetched);
            assert_eq!(got, [(round, round, 1)]);
            let part = fetched.parts.iter().find(|part| !part.acquired.is_empty()).unwrap();
            per_partition[usize::try_from(part.partition.index).unwrap()] += 1;
        }
        w.pass_ms(1);
        for index in [0, 1] {
            let acks = vec![(index, range(round, round, ACCEPT))];
            w.fetch_with("A", &Want { acks, ..want(0) }).unwrap();
        }
    }
    assert_eq!(per_partition, [1_000, 1_000]);
}

#[test]
fn k56_ranges_ascend_whatever_waited_longest() {
    let mut w = World::keyed();
    let keys: Vec<_> = (0..20).map(|key| crate::common::key(&format!("k{key}"))).collect();
    w.batch(0, &keys[..10], &[10; 10]);
    w.batch(0, &keys[10..], &[10; 10]);
    w.grew(0);
    assert_eq!(w.fetch("A", 100), [(0, 19, 1)]);
    for offset in (0..20).filter(|offset| ![3, 12, 13].contains(offset)) {
        w.ack("A", offset, offset, ACCEPT);
    }
    w.ack("A", 12, 13, RELEASE);
    w.pass_ms(1_000);
    w.ack("A", 3, 3, RELEASE);
    assert_eq!(w.fetch("B", 10), [(3, 3, 2), (12, 13, 2)]);
    w.ack("B", 3, 3, RELEASE);
    w.ack("B", 12, 13, RELEASE);
    assert_eq!(w.fetch("C", 10), [(3, 3, 3), (12, 13, 3)]);
    w.ack("C", 13, 13, RELEASE);
    assert_eq!(w.fetch("C", 10), [(13, 13, 4)]);
    w.ack("C", 3, 3, RELEASE);
    w.ack("C", 12, 12, RELEASE);
    w.ack("C", 13, 13, RELEASE);
    assert_eq!(w.fetch("B", 10), [(3, 3, 4), (12, 12, 4), (13, 13, 5)], "ranges with their own counts");
}

#[test]
fn k58_a_batch_that_cannot_be_built_goes_the_poison_way() {
    let mut w = World::keyed();
    for batch in 0..3 {
        let keys: Vec<_> = (0..4).map(|key| crate::common::key(&format!("k{batch}-{key}"))).collect();
        w.batch(0, &keys, &[10; 4]);
    }
    w.logs.get_mut(&partition(0)).unwrap().rotten.push((4, 7));
    w.grew(0);
    assert_eq!(w.fetch("A", 100), [(0, 3, 1), (8, 11, 1)]);
    assert_eq!(w.view().counters.corrupt, 4);
    assert_eq!(w.ack("A", 0, 3, ACCEPT), None);
    assert_eq!(w.start(), 8);
}

#[test]
fn k27_a_batch_that_cannot_be_scanned_goes_the_poison_way() {
    let mut w = World::keyed();
    w.append(0, coordinator::io::ScannedKind::Corrupt, 4);
    w.log("a");
    assert_eq!(w.fetch("A", 10), [(4, 4, 1)]);
    assert_eq!(w.view().counters.corrupt, 4);
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 10), []);
    assert_eq!(w.start(), 4, "archived for good");
}

fn hold_target(ready: usize) -> World {
    let mut w = World::keyed();
    (w.config.hold_target_ms, w.config.key_inflight_max, w.config.lock_ms) = (0, 1, 15_000);
    w.config.record_locks_max = 4_000;
    w.configure();
    // Each member shows how fast it is.
    for (member, count, total_ms) in [("B", 20, 20_000), ("C", 500, 100), ("F", 20, 400), ("D", 1, 40_000)] {
        w.log(&(0..count).map(|key| format!("{member}{key} ")).collect::<String>());
        let got = offsets(&w.fetch(member, count));
        assert_eq!(got.len(), count as usize);
        if member == "C" {
            w.pass_ms(total_ms);
            assert_eq!(w.ack(member, got[0], *got.last().unwrap(), ACCEPT), None);
        } else {
            for offset in got {
                let mut left = total_ms / i64::from(count);
                while left > 10_000 {
                    w.pass_ms(10_000);
                    left -= 10_000;
                    w.ack(member, offset, offset, crate::common::RENEW);
                }
                w.pass_ms(left);
                w.ack(member, offset, offset, ACCEPT);
                // Nothing runs out while it works: the rest of the answer is renewed.
                if let Some(last) = w.view().scan.get().checked_sub(1).filter(|last| *last > offset) {
                    w.ack(member, offset + 1, last, crate::common::RENEW);
                }
            }
        }
    }
    w.config.hold_target_ms = 100;
    w.configure();
    w.live(&["B", "C", "D", "E", "F"]);
    w.log(&distinct(ready));
    w
}

#[test]
fn k59_no_more_than_it_can_do() {
    let mut w = hold_target(5_000);
    let mut took = |member: &str| offsets(&w.fetch(member, 500));
    assert_eq!(took("B").len(), 1, "100 ms ÷ 1,000 ms is below 1");
    let c = took("C");
    assert_eq!(c.len(), 500, "100 ÷ 0.2");
    assert_eq!(took("D").len(), 1);
    assert_eq!(took("F").len(), 5);
    for expected in [4, 8, 16] {
        let got = offsets(&w.fetch("E", 500));
        assert_eq!(got.len(), expected);
        for offset in got {
            w.ack("E", offset, offset, ACCEPT);
        }
    }
    assert!(offsets(&w.fetch("E", 500)).len() > 16, "by its measured speed");
    w.pass_ms(60);
    w.ack("C", c[0], c[299], ACCEPT);
    assert_eq!(offsets(&w.fetch("C", 500)).len(), 300, "unsettled ones included");
}

#[test]
fn k59_a_share_of_few_keys() {
    for (member, expected) in [("C", 3), ("F", 3), ("B", 1)] {
        let mut w = hold_target(12);
        assert_eq!(offsets(&w.fetch(member, 500)).len(), expected, "{member}");
    }
}

#[test]
fn k59_keyless_records_are_not_counted() {
    let mut w = hold_target(0);
    w.log(&"- ".repeat(300));
    assert_eq!(offsets(&w.fetch("B", 500)).len(), 300);
}

#[test]
fn o7_each_member_takes_its_part_in_one_go() {
    let mut w = World::keyed();
    w.config.hold_target_ms = 0;
    w.config.record_locks_max = 100;
    w.configure();
    let parked: Vec<_> = ["A", "B", "C", "D"].into_iter().map(|name| (name, w.park(name, 50))).collect();
    w.log(&distinct(200));
    for ((name, ask), first) in parked.into_iter().zip([0, 25, 50, 75]) {
        assert_eq!(
            w.woken(name, ask),
            Some(vec![(first, first + 24, 1)]),
            "a fourth of the locks, one range"
        );
    }
}

/// Members that wait, and what each of them gets of these records.
fn brought(w: &mut World, members: &[&'static str], records: &str) -> Vec<Vec<i64>> {
    let parked: Vec<_> = members.iter().map(|&name| (name, w.park(name, 500))).collect();
    w.log(records);
    parked.into_iter().map(|(name, ask)| offsets(&w.woken(name, ask).unwrap_or_default())).collect()
}

#[test]
fn o7_keyless_records_are_nobodys_first_key() {
    let mut w = World::keyed();
    w.config.hold_target_ms = 0;
    w.configure();
    let got = brought(&mut w, &["A", "B", "C"], "- - a b c d");
    assert!(got.iter().all(|got| got.iter().any(|&offset| offset > 1)), "each has a key: {got:?}");
    assert!(got.iter().all(|got| got.len() == 2), "{got:?}");
    let mut w = World::keyed();
    w.config.hold_target_ms = 0;
    w.configure();
    let got = brought(&mut w, &["A", "B"], &("- ".repeat(50) + &distinct(50)));
    let half: Vec<Vec<i64>> =
        [0, 25].iter().map(|&at| (at..at + 25).chain(at + 50..at + 75).collect()).collect();
    assert_eq!(got, half, "keys and keyless ones alike");
}

#[test]
fn o7_more_of_a_key_is_nobodys_first_key() {
    let mut w = World::keyed();
    w.config.hold_target_ms = 0;
    w.config.key_inflight_max = 16;
    w.config.record_locks_max = 100;
    w.configure();
    let bursts: String = (0..30).map(|key| format!("{key} ").repeat(16)).collect();
    let got = brought(&mut w, &["A", "B", "C"], &bursts);
    let counts: Vec<usize> = got.iter().map(Vec::len).collect();
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(
        counts.iter().all(|count| (20..=48).contains(count)),
        "of the locks each gets its part: {counts:?}"
    );
}

#[test]
fn o7_who_holds_more_waits_until_the_others_hold_as_many() {
    let mut w = World::keyed();
    w.config.hold_target_ms = 0;
    w.configure();
    w.log(&distinct(5));
    assert_eq!(w.fetch("C", 5).len(), 1);
    let counts: Vec<usize> = brought(&mut w, &["A", "B", "C"], "v w x y z").iter().map(Vec::len).collect();
    assert_eq!(counts, [3, 2, 0]);
}

#[test]
fn k66_a_parked_fetch_gives_way() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("a a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.fetch("B", 0);
    let b = w.park("B", 1);
    let a = w.send("A", &Want { wait_ms: 30_000, ..want(1) });
    w.fact(Fact::GiveWay(a));
    assert_eq!(w.woken("A", a), Some(vec![]), "empty, no error");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None, "both epochs count");
    assert_eq!(w.woken("B", b), Some(vec![(1, 1, 1)]));
}

#[test]
fn k67_only_what_has_started_holds_anything() {
    let mut w = World::keyed();
    w.config.lock_ms = 15_000;
    w.configure();
    w.log("a");
    // A's ShareFetch is queued behind its own parked Fetch: nothing of it has come here.
    w.pass_ms(10_000);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.fetch("B", 0);
    let b = w.park("B", 1);
    w.pass_ms(14_999);
    assert_eq!(w.woken("B", b), None);
    w.pass_ms(1);
    assert_eq!(w.woken("B", b), Some(vec![(0, 0, 2)]));
}

#[test]
fn answers_wait_for_their_events() {
    let mut w = World::keyed();
    w.log("a b");
    w.fetch("A", 0);
    w.slow_disk = true;
    let fetch = w.send("A", &want(1));
    assert!(w.fetched("A", fetch).is_none(), "not before the grant is on disk");
    w.slow_disk = false;
    w.serve();
    assert_eq!(w.woken("A", fetch), Some(vec![(0, 0, 1)]));
    w.slow_disk = true;
    let ack = w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
    assert!(w.replies.is_empty());
    w.serve();
    assert!(w.replies.contains_key(&ack));
}

#[test]
fn a_failed_append_takes_back_what_was_decided() {
    let mut w = World::keyed();
    w.log("a b c");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.disk_full = true;
    let reply = w.acknowledge("A", vec![range(0, 0, ACCEPT)], None, false).unwrap();
    assert_eq!(reply.parts[0].error, Some(ShareError::Unavailable));
    let ticket = w.send("B", &want(1));
    let answer = w.fetched("B", ticket).unwrap().unwrap();
    assert_eq!(answer.parts[0].error, Some(ShareError::Unavailable));
    assert!(answer.parts[0].acquired.is_empty());
    w.disk_full = false;
    w.pass_ms(1_000);
    assert_eq!(w.start(), 0, "read back from disk: 0 is not accepted");
    assert_eq!(w.fetch("B", 10), [(1, 2, 1)], "what B was refused is free, uncounted; 0 is A's still");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None, "A's lease stood all the time");
    assert_eq!(w.start(), 1);
}

#[test]
fn a_lock_goes_on_when_only_its_share_partition_was_loaded_anew() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.pass_ms(10_000);
    w.disk_full = true;
    let refused = w.acknowledge("A", vec![range(0, 0, RELEASE)], None, false).unwrap();
    assert_eq!(refused.parts[0].error, Some(ShareError::Unavailable));
    w.disk_full = false;
    w.fetch("B", 0);
    w.pass_ms(19_999);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    w.pass_ms(1);
    assert_eq!(w.fetch("B", 1), [(0, 0, 2)]);
}

#[test]
fn a_lock_begins_although_its_share_partition_is_not_in_memory_when_the_answer_is_written() {
    for whole in [true, false] {
        let mut w = World::keyed();
        w.log("a b");
        w.written_at_once = false;
        let answer = w.send("A", &want(1));
        w.written_at_once = true;
        // A second failure leaves it unread for a while.
        w.disk_full = true;
        w.fetch_with("B", &want(1)).unwrap();
        w.fetch_with("B", &want(1)).unwrap();
        w.fact(if whole { Fact::AnswerWritten(answer) } else { Fact::AnswerLost(answer) });
        w.disk_full = false;
        let lock_ms = w.config.lock_ms;
        w.pass_ms(2_000);
        if whole {
            assert_eq!(w.fetch("B", 10), [(1, 1, 1)]);
            w.pass_ms(lock_ms - 2_001);
            assert_eq!(w.fetch("C", 10), [], "A's lock lasts from when it could see the record");
            w.pass_ms(1);
            assert_eq!(w.fetch("C", 10), [(0, 0, 2)]);
        } else {
            assert_eq!(w.fetch("B", 10), [(0, 1, 1)], "nobody has seen 0");
        }
    }
}

#[test]
fn a_lock_goes_on_when_its_share_partition_could_not_be_read_at_first() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.disk_full = true;
    w.unreadable = true;
    let refused = w.acknowledge("A", vec![range(0, 0, RELEASE)], None, false).unwrap();
    assert_eq!(refused.parts[0].error, Some(ShareError::Unavailable));
    w.disk_full = false;
    w.unreadable = false;
    // The wall clock has nothing to do with it while the broker runs.
    w.now.wall_ms += 3_600_000;
    w.pass_ms(1_000);
    assert_eq!(w.fetch("B", 10), [(1, 1, 1)]);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None, "A's lease stood all the time");
}

#[test]
fn a_fetch_is_answered_although_neither_its_records_can_be_read_nor_their_return_be_stored() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    (w.slow_disk, w.log_unreadable) = (true, true);
    let fetch = w.park("B", 1);
    // The grant is stored before the record is read.
    let is_build = |submission: &Submission| matches!(submission, Submission::Build { .. });
    let build = w.queue.iter().position(is_build).expect("a record is granted");
    let build = w.queue.remove(build).unwrap();
    w.serve();
    w.queue.push_back(build);
    w.disk_full = true;
    w.serve();
    let answer = w.fetched("B", fetch).expect("it is answered").unwrap();
    assert_eq!(answer.parts[0].error, Some(ShareError::Unavailable));
    (w.slow_disk, w.log_unreadable, w.disk_full) = (false, false, false);
    w.pass_ms(2_000);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)], "and nobody has seen it");
}

/// 1 is on its way to A, and B's acceptance of 0 could not be stored: the state is about to be read anew.
fn read_anew_while_an_answer_is_on_its_way() -> (World, Ticket) {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
    w.written_at_once = false;
    let ticket = w.send("A", &want(1));
    assert_eq!(w.woken("A", ticket), Some(vec![(1, 1, 1)]));
    w.written_at_once = true;
    (w.slow_disk, w.disk_full) = (true, true);
    w.send_acks("B", vec![range(0, 0, ACCEPT)], None, false);
    w.serve_next();
    assert_eq!(w.waiting(), 1, "the state");
    w.disk_full = false;
    (w, ticket)
}

#[test]
fn a_lock_starts_although_its_share_partition_is_being_read_anew() {
    let (mut w, ticket) = read_anew_while_an_answer_is_on_its_way();
    w.fact(Fact::AnswerWritten(ticket));
    w.slow_disk = false;
    w.serve();
    w.pass_ms(29_999);
    assert_eq!(w.fetch("C", 10), []);
    w.pass_ms(1);
    assert_eq!(w.fetch("C", 10), [(0, 1, 2)]);
}

#[test]
fn a_lost_answer_s_records_are_free_although_their_share_partition_is_being_read_anew() {
    let (mut w, ticket) = read_anew_while_an_answer_is_on_its_way();
    w.fact(Fact::AnswerLost(ticket));
    w.slow_disk = false;
    w.serve();
    assert_eq!(w.fetch("C", 10), [(1, 1, 1)]);
}

#[test]
fn a_start_offset_is_told_once_it_is_stored() {
    let mut w = World::keyed();
    w.log("a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.slow_disk = true;
    w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
    let told = |w: &mut World, member: &str| {
        let ticket = w.send(member, &want(0));
        w.fetched(member, ticket).unwrap().unwrap().parts[0].start_offset.get()
    };
    assert_eq!(told(&mut w, "B"), 0, "that 0 is accepted is not stored");
    w.slow_disk = false;
    w.serve();
    assert_eq!(told(&mut w, "C"), 1);
}

/// DescribeShareGroupOffsets, where the disk has not said yet that it has stored what was decided.
fn told_offsets(w: &mut World, meanwhile: impl FnOnce(&mut World)) -> (Option<i64>, i64) {
    w.slow_disk = true;
    let partitions = Some(vec![partition(0)]);
    let ticket = w.command(ShareCommand::DescribeOffsets { group: group(), partitions });
    meanwhile(w);
    while !w.replies.contains_key(&ticket) {
        w.serve_next();
    }
    let Some(Reply::ShareOffsets(told)) = w.replies.remove(&ticket) else { panic!("no answer") };
    w.slow_disk = false;
    w.serve();
    told[0].1.map(|told| (told.start.map(Offset::get), told.lag)).unwrap()
}

#[test]
fn offsets_are_described_as_they_are_stored() {
    let mut w = World::keyed();
    w.log("a");
    let asks = |w: &mut World| _ = w.send("A", &want(0));
    assert_eq!(told_offsets(&mut w, asks), (None, -1), "its beginning is not stored");
    assert_eq!(told_offsets(&mut w, |_| {}), (Some(0), 1));
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    let accepts = |w: &mut World| _ = w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
    assert_eq!(told_offsets(&mut w, accepts).0, Some(0), "that 0 is accepted is not stored");
    assert_eq!(told_offsets(&mut w, |_| {}), (Some(1), 0));
}

#[test]
fn a_delivery_that_a_restart_ended_does_not_count_when_the_disk_fails_later() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.restart(0);
    w.fetch_with("B", &Want { epoch: Some(0), ..want(0) }).unwrap();
    w.set_epoch("B", 1);
    w.disk_full = true;
    let ticket = w.send("B", &want(1));
    assert!(w.fetched("B", ticket).unwrap().unwrap().parts[0].error.is_some());
    w.disk_full = false;
    w.pass_ms(30_000);
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
}

#[test]
fn a_failed_append_takes_back_what_was_decided_behind_it() {
    let mut w = World::keyed();
    w.log("a b c");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    w.slow_disk = true;
    w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
    w.send_acks("B", vec![range(1, 1, ACCEPT)], None, false);
    (w.slow_disk, w.disk_full) = (false, true);
    w.serve();
    w.disk_full = false;
    assert_eq!(w.replies.len(), 2, "both are refused");
    assert_eq!(w.fetch("C", 10), [(2, 2, 1)], "0 and 1 are held as before");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.ack("B", 1, 1, ACCEPT), None);
}

#[test]
fn min_bytes_are_waited_for_until_the_wait_is_over() {
    let mut w = World::keyed();
    w.fetch("A", 0);
    let ask = Want { wait_ms: 500, bytes_min: 250, ..want(10) };
    let parked = w.send("A", &ask);
    w.log("a b");
    assert_eq!(w.woken("A", parked), None, "200 bytes are there");
    w.log("c");
    assert_eq!(w.woken("A", parked), Some(vec![(0, 2, 1)]));
    w.ack("A", 0, 2, ACCEPT);
    let parked = w.send("A", &ask);
    w.log("d");
    w.pass_ms(500);
    assert_eq!(w.woken("A", parked), Some(vec![(3, 3, 1)]));
}

#[test]
fn types_per_offset_in_one_range() {
    let mut w = World::keyed();
    w.log("a b c d");
    w.fetch("A", 10);
    let mixed = AckRange { types: vec![ACCEPT, RELEASE, ACCEPT, ACCEPT], ..range(0, 3, ACCEPT) };
    assert_eq!(w.ack_ranges("A", vec![mixed]), None);
    assert_eq!(w.fetch("B", 10), [(1, 1, 2)]);
}

#[test]
fn what_a_parked_fetch_acknowledged_fails_with_the_append_that_it_rests_on() {
    let mut w = World::keyed();
    w.log("a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    // A scan is under way, so that the fetch waits for what it may bring.
    w.slow_disk = true;
    w.log("b");
    let fetch = w.send("A", &Want { acks: vec![(0, range(0, 0, ACCEPT))], wait_ms: 500, ..want(10) });
    assert_eq!(w.waiting(), 2, "a scan and an append");
    w.queue.rotate_left(1);
    w.disk_full = true;
    w.serve_next();
    w.disk_full = false;
    w.slow_disk = false;
    w.serve();
    let answer = w.fetched("A", fetch).expect("answered").unwrap();
    assert_eq!(answer.parts[0].ack_error, Some(ShareError::Unavailable), "{:?}", answer.parts[0]);
    assert_eq!(w.start(), 0, "it is not done");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.start(), 1);
}
