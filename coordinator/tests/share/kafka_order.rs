//! KIP-932 share groups, with both orders unless said: cases S01 to S13, S16, S21 to S29.

use crate::common::{
    ACCEPT, GAP, REJECT, RELEASE, RENEW, Want, World, each, key_config, none_config, offsets, range, want,
};
use coordinator::command::AckRange;
use coordinator::share::{LeftBy, ShareConfig, ShareError, ShareMachine, ShareReset};

const INVALID: Option<ShareError> = Some(ShareError::InvalidRecordState);
const MALFORMED: Option<ShareError> = Some(ShareError::InvalidRequest);

fn both() -> [World; 2] {
    [none_config(), key_config()].map(World::new)
}

/// Batches of `size` records, every record with a key of its own.
fn batches(w: &mut World, count: usize, size: usize) {
    let base = w.logs[&crate::common::partition(0)].facts.end.get();
    for batch in 0..count {
        let keys: Vec<_> =
            (0..size).map(|record| crate::common::key(&format!("k{base}-{batch}-{record}"))).collect();
        w.batch(0, &keys, &vec![100; size]);
    }
    w.grew(0);
}

fn soft(max: i32) -> Want {
    Want { strict: false, ..want(max) }
}

#[test]
fn s01_session_epochs() {
    for mut w in both() {
        batches(&mut w, 1, 4);
        let at = |epoch| Want { epoch: Some(epoch), ..want(0) };
        assert!(w.fetch_with("A", &Want { epoch: Some(0), ..want(10) }).is_ok());
        assert!(w.fetch_with("A", &at(1)).is_ok());
        let acks = vec![(0, range(0, 0, ACCEPT)), (0, range(9, 9, ACCEPT))];
        let fetch = w.send("A", &Want { acks, ..at(2) });
        let answer = w.fetched("A", fetch).unwrap().unwrap();
        assert_eq!(answer.parts[0].ack_error, MALFORMED, "the step counts all the same");
        assert_eq!(w.fetch_with("A", &at(99)), Err(ShareError::InvalidSessionEpoch));
        assert_eq!(w.fetch_with("A", &at(2)), Err(ShareError::InvalidSessionEpoch));
        assert!(w.fetch_with("A", &at(3)).is_ok());
        assert_eq!(w.fetch_with("X", &at(3)), Err(ShareError::SessionNotFound));
        let ack = |w: &mut World, member: &str, epoch| {
            w.acknowledge(member, vec![], Some(epoch), false).map(|_| ())
        };
        assert_eq!(ack(&mut w, "A", 99), Err(ShareError::InvalidSessionEpoch));
        assert_eq!(ack(&mut w, "A", 3), Err(ShareError::InvalidSessionEpoch));
        assert_eq!(ack(&mut w, "A", 4), Ok(()));
        assert_eq!(ack(&mut w, "X", 4), Err(ShareError::SessionNotFound));
    }
}

#[test]
fn s02_acks_that_open_a_session() {
    for mut w in both() {
        batches(&mut w, 1, 4);
        assert_eq!(w.fetch("A", 10), [(0, 3, 1)]);
        let acks = vec![(0, range(0, 0, ACCEPT))];
        let refused = w.fetch_with("A", &Want { epoch: Some(0), acks, ..want(1) });
        assert_eq!(refused, Err(ShareError::InvalidRequest));
        let refused = w.acknowledge("A", vec![range(0, 0, ACCEPT)], Some(0), false);
        assert_eq!(refused.unwrap_err(), ShareError::InvalidSessionEpoch);
        assert_eq!(w.ack("A", 0, 3, ACCEPT), None, "session, epoch and locks are as they were");
    }
}

#[test]
fn s03_first_delivery() {
    for mut w in both() {
        batches(&mut w, 3, 4);
        w.fetch("B", 0);
        let fetch = w.send("A", &soft(500));
        let answer = w.fetched("A", fetch).unwrap().unwrap();
        assert_eq!(answer.lock_ms, 30_000);
        assert_eq!(crate::common::got(&answer), [(0, 11, 1)]);
        let fetch = w.send("B", &soft(500));
        let answer = w.fetched("B", fetch).unwrap().unwrap();
        assert!(answer.parts.is_empty(), "partitions without news are left out");
    }
}

#[test]
fn s04_types_per_offset() {
    for mut w in both() {
        batches(&mut w, 1, 4);
        w.fetch("A", 10);
        let mixed = AckRange { types: vec![ACCEPT, RELEASE, REJECT, ACCEPT], ..range(0, 3, ACCEPT) };
        let fetch = w.send("A", &Want { acks: vec![(0, mixed)], ..want(10) });
        let answer = w.fetched("A", fetch).unwrap().unwrap();
        assert_eq!(answer.parts[0].ack_error, None);
        assert_eq!(crate::common::got(&answer), [(1, 1, 2)]);
        assert_eq!(w.view().counters.archived, 1);
        assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
        assert_eq!(w.start(), 4);
    }
}

#[test]
fn s05_acks_that_are_malformed() {
    for mut w in both() {
        batches(&mut w, 1, 8);
        w.fetch("A", 4);
        w.fetch("B", 4);
        let unordered = vec![range(3, 3, ACCEPT), range(1, 1, ACCEPT)];
        assert_eq!(w.ack_ranges("A", unordered), MALFORMED);
        assert_eq!(w.ack("A", 0, 0, 9), MALFORMED);
        assert_eq!(w.ack("A", -5, -1, ACCEPT), MALFORMED);
        assert_eq!(w.ack("A", 3, 2, ACCEPT), MALFORMED);
        let short = AckRange { types: vec![ACCEPT, ACCEPT], ..range(0, 2, ACCEPT) };
        assert_eq!(w.ack_ranges("A", vec![short]), MALFORMED);
        let acks = vec![(0, range(0, 0, RENEW))];
        let fetch = w.send("A", &Want { acks, ..want(0) });
        let answer = w.fetched("A", fetch).unwrap().unwrap();
        assert_eq!(answer.parts[0].ack_error, MALFORMED, "a renewal without its flag");
        assert_eq!(w.start(), 0, "nothing changed");
        assert_eq!(w.ack("A", 0, 3, ACCEPT), None);
    }
}

#[test]
fn s06_acks_for_what_is_not_held() {
    for (index, mut w) in both().into_iter().enumerate() {
        batches(&mut w, 1, 8);
        w.fetch("A", 4);
        w.fetch("B", 4);
        assert_eq!(w.ack("A", 4, 4, ACCEPT), INVALID);
        assert_eq!(w.ack("A", 3, 3, ACCEPT), None);
        assert_eq!(w.ack("A", 3, 3, ACCEPT), INVALID);
        assert_eq!(w.ack("A", 2, 5, ACCEPT), INVALID);
        assert_eq!(w.ack("A", 0, 1 << 62, ACCEPT), MALFORMED);
        assert_eq!(w.ack("A", 0, i64::MAX, ACCEPT), MALFORMED);
        let again = w.ack("A", 2, 2, ACCEPT);
        assert_eq!(again, if index == 0 { None } else { INVALID }, "with order key the 2 was accepted");
        assert_eq!(w.ack("A", 0, 1, ACCEPT), None);
        assert_eq!(w.ack("B", 4, 7, ACCEPT), None);
        assert_eq!(w.start(), 8);
    }
}

#[test]
fn s07_an_ack_error_beside_a_good_fetch() {
    for mut w in both() {
        batches(&mut w, 1, 8);
        assert_eq!(w.fetch("A", 4), [(0, 3, 1)]);
        assert_eq!(w.fetch("B", 4), [(4, 7, 1)]);
        batches(&mut w, 1, 4);
        let acks = vec![(0, range(4, 4, ACCEPT))];
        let fetch = w.send("A", &Want { acks, ..want(10) });
        let answer = w.fetched("A", fetch).unwrap().unwrap();
        assert_eq!((answer.parts[0].error, answer.parts[0].ack_error), (None, INVALID));
        assert_eq!(crate::common::got(&answer), [(8, 11, 1)], "new records in the same partition answer");
        assert_eq!(w.ack("B", 4, 7, ACCEPT), None, "4 stayed with B");
        assert_eq!(w.ack_ranges("A", vec![range(0, 3, ACCEPT), range(8, 11, ACCEPT)]), None);
        assert_eq!(w.start(), 12);
    }
}

#[test]
fn s08_closing() {
    for mut w in both() {
        batches(&mut w, 1, 4);
        w.fetch("A", 10);
        w.fetch("B", 0);
        let acks = vec![(0, range(0, 0, ACCEPT))];
        assert_eq!(w.fetch_with("A", &Want { acks, epoch: Some(-1), ..want(10) }), Ok(vec![]));
        assert_eq!(w.fetch("B", 10), [(1, 3, 2)]);
        let late = w.fetch_with("A", &Want { epoch: Some(2), ..want(1) });
        assert_eq!(late, Err(ShareError::SessionNotFound));
        let late = w.fetch_with("A", &Want { epoch: Some(-1), ..want(1) });
        assert_eq!(late, Err(ShareError::SessionNotFound));
    }
}

#[test]
fn s09_connection_lost() {
    let without_grace = ShareConfig { disconnect_grace_ms: Some(0), ..key_config() };
    for (config, free_after_ms) in [(none_config(), 0), (key_config(), 7_500), (without_grace, 0)] {
        let mut w = World::new(config);
        batches(&mut w, 1, 4);
        w.fetch("A", 10);
        w.fetch("B", 0);
        w.lose("A");
        if free_after_ms > 0 {
            w.pass_ms(free_after_ms - 1);
            assert_eq!(w.fetch("B", 10), []);
            w.pass_ms(1);
        }
        assert_eq!(w.fetch("B", 10), [(0, 3, 2)]);
    }
}

#[test]
fn s10_leaving_by_heartbeat_only() {
    for (index, mut w) in both().into_iter().enumerate() {
        batches(&mut w, 1, 4);
        w.fetch("B", 2);
        w.fetch("A", 0);
        w.left("B", LeftBy::Heartbeat);
        assert_eq!(w.fetch("B", 10), []);
        w.pass_ms(999);
        assert_eq!(w.fetch("A", 10), [(2, 3, 1)]);
        w.pass_ms(1);
        let got = w.fetch("A", 10);
        if index == 0 {
            assert_eq!(got, [], "until the session closes or the locks run out");
            w.pass_ms(28_999);
            assert_eq!(w.fetch("A", 10), []);
            w.pass_ms(1);
            assert_eq!(w.fetch("A", 10), [(0, 1, 2)]);
        } else {
            assert_eq!(got, [(0, 1, 2)]);
        }
    }
}

#[test]
fn s11_lock_timeout() {
    for mut w in both() {
        w.config.lock_ms = 15_000;
        w.configure();
        batches(&mut w, 1, 2);
        let fetch = w.send("A", &want(10));
        assert_eq!(w.fetched("A", fetch).unwrap().unwrap().lock_ms, 15_000);
        w.fetch("B", 0);
        let b = w.park("B", 10);
        w.pass_ms(14_999);
        assert_eq!(w.woken("B", b), None);
        w.pass_ms(1);
        assert_eq!(w.woken("B", b), Some(vec![(0, 1, 2)]));
        assert_eq!(w.ack("A", 0, 1, ACCEPT), INVALID);
        assert_eq!(w.ack("B", 0, 1, ACCEPT), None);
    }
}

#[test]
fn s12_delivery_limit() {
    for by_expiry in [false, true] {
        for mut w in both() {
            batches(&mut w, 1, 1);
            for count in 1..=5 {
                assert_eq!(w.fetch("A", 10), [(0, 0, count)]);
                if by_expiry {
                    w.pass_ms(30_000);
                } else {
                    w.ack("A", 0, 0, RELEASE);
                }
            }
            assert_eq!(w.fetch("A", 10), []);
            assert_eq!(w.start(), 1);
            batches(&mut w, 1, 1);
            assert_eq!(w.fetch("A", 10), [(1, 1, 1)]);
        }
    }
}

#[test]
fn s13_record_limit() {
    let [mut none, mut key] = both();
    for w in [&mut none, &mut key] {
        batches(w, 1, 10);
    }
    assert_eq!(key.fetch_with("A", &soft(2)).unwrap(), [(0, 1, 1)]);
    assert_eq!(none.fetch_with("A", &soft(2)).unwrap(), [(0, 9, 1)], "the whole batch");
    batches(&mut none, 1, 10);
    assert_eq!(none.fetch("A", 2), [(10, 11, 1)]);
}

#[test]
fn s14_start_position() {
    for (reset, expected) in [
        (ShareReset::Latest, vec![4, 5]),
        (ShareReset::Earliest, (0..6).collect()),
        (ShareReset::ByDuration(3_600_000), (2..6).collect()),
    ] {
        for config in [none_config(), key_config()] {
            let mut w = World::new(ShareConfig { reset, ..config });
            batches(&mut w, 2, 1);
            w.pass_ms(3_600_001);
            batches(&mut w, 2, 1);
            let first = offsets(&w.fetch("A", 10));
            batches(&mut w, 2, 1);
            let got: Vec<i64> = first.into_iter().chain(offsets(&w.fetch("A", 10))).collect();
            assert_eq!(got, expected, "{reset:?}");
            let start = w.start();
            w.restart(40_000);
            w.fetch("B", 0);
            assert_eq!(w.start(), start, "chosen once, and kept");
        }
    }
}

#[test]
fn s16_renew() {
    for mut w in both() {
        batches(&mut w, 1, 1);
        w.fetch("A", 10);
        w.fetch("B", 0);
        w.pass_ms(20_000);
        assert_eq!(w.ack("A", 0, 0, RENEW), None);
        w.pass_ms(29_999);
        assert_eq!(w.fetch("B", 10), []);
        w.pass_ms(1);
        assert_eq!(w.fetch("B", 10), [(0, 0, 2)]);
        w.config.renew = false;
        w.configure();
        assert_eq!(w.ack("B", 0, 0, RENEW), INVALID);
        assert_eq!(w.ack("B", 0, 0, ACCEPT), None);
    }
}

#[test]
fn s21_limits() {
    for mut w in both() {
        w.limits.sessions_max = 2;
        w.machine = ShareMachine::new(w.limits.clone(), 2);
        w.configure();
        w.fetch("A", 0);
        w.fetch("B", 0);
        assert_eq!(w.fetch_with("C", &want(0)), Err(ShareError::SessionLimit));
        w.reopen("C");
        w.reopen("A");
        assert_eq!(w.fetch("A", 0), [], "the same one again is not one more");
        w.close_session("A", vec![]).unwrap();
        assert_eq!(w.fetch("C", 0), []);
    }
}

#[test]
fn s22_soft_limit_over_batches() {
    let mut w = World::new(none_config());
    batches(&mut w, 5, 20);
    let sized = |max, batch_size| Want { batch_size, ..soft(max) };
    assert_eq!(w.fetch_with("A", &sized(5, 5)).unwrap(), [(0, 19, 1)]);
    assert_eq!(w.fetch_with("A", &sized(30, 10)).unwrap(), [(20, 39, 1), (40, 59, 1)]);
    assert_eq!(w.fetch_with("B", &sized(500, 500)).unwrap(), [(60, 99, 1)]);
}

#[test]
fn s23_strict_limit_inside_a_batch() {
    let mut w = World::new(none_config());
    batches(&mut w, 1, 20);
    assert_eq!(w.fetch("A", 5), [(0, 4, 1)]);
    assert_eq!(w.fetch("B", 5), [(5, 9, 1)]);
}

#[test]
fn s24_the_span() {
    let mut w = World::new(none_config());
    batches(&mut w, 3_000, 1);
    let mut taken = 0;
    loop {
        let got = w.fetch_with("A", &soft(500)).unwrap();
        if got.is_empty() {
            break;
        }
        for (first, last, _) in got {
            assert_eq!(first, taken);
            taken = last + 1;
            if last > 0 {
                assert_eq!(w.ack("A", first.max(1), last, ACCEPT), None);
            }
        }
    }
    assert_eq!(taken, 2_000, "exactly 0 to 1999");
    let b = {
        w.fetch("B", 0);
        w.park("B", 2_000)
    };
    assert_eq!(w.woken("B", b), None);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(offsets(&w.woken("B", b).unwrap()), (2_000..3_000).collect::<Vec<_>>());
}

#[test]
fn s25_near_the_delivery_limit() {
    let mut w = World::new(none_config());
    batches(&mut w, 3, 4);
    let mut round = |expected: &[(i64, i64, i16)]| {
        let got = w.fetch_with("A", &soft(500)).unwrap();
        assert_eq!(got, expected);
        for (first, last, _) in got {
            assert_eq!(w.ack("A", first, last, RELEASE), None);
        }
    };
    for count in 1..=3 {
        round(&[(0, 11, count)]);
    }
    round(&[(0, 5, 4)]);
    for offset in 0..3 {
        round(&[(offset, offset, 5)]);
    }
    assert_eq!(w.start(), 3, "each was archived after its fifth release");
}

#[test]
fn s26_acknowledgement_first_then_the_fetch() {
    for (index, mut w) in both().into_iter().enumerate() {
        batches(&mut w, 1, 1);
        assert_eq!(w.fetch("A", 10), [(0, 0, 1)]);
        let acks = vec![(0, range(0, 0, RELEASE))];
        assert_eq!(w.fetch_with("A", &Want { acks, ..want(10) }).unwrap(), [(0, 0, 2)]);
        w.reopen("A");
        assert_eq!(w.fetch("A", 10), [], "reopening alone takes nothing away, order {index}");
        assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    }
}

#[test]
fn s06_nothing_is_acquired_at_all() {
    for mut w in both() {
        assert_eq!(w.fetch("A", 10), []);
        assert_eq!(w.ack("A", 0, 0, ACCEPT), INVALID, "of an empty log");
        batches(&mut w, 1, 4);
        assert_eq!(w.fetch("A", 10), [(0, 3, 1)]);
        assert_eq!(w.ack("A", 0, 4, ACCEPT), Some(ShareError::InvalidRequest), "past what is acquired");
        assert_eq!(w.ack("A", 0, 3, ACCEPT), None);
        assert_eq!(w.ack("A", 4, 4, ACCEPT), INVALID, "all is settled");
        assert_eq!(w.ack("A", 0, 3, ACCEPT), None, "below the start offset there is no error");
    }
}

#[test]
fn s27_renew_on_a_fetch() {
    for mut w in both() {
        w.config.lock_ms = 15_000;
        w.configure();
        batches(&mut w, 1, 4);
        assert_eq!(w.fetch("A", 10), [(0, 3, 1)]);
        w.fetch("B", 0);
        w.pass_ms(10_000);
        let renewal = Want {
            renew: true,
            bytes: 0,
            bytes_min: 0,
            batch_size: 0,
            acks: vec![(0, range(2, 2, RENEW))],
            ..want(0)
        };
        let epoch = w.epoch("A");
        for bad in [
            Want { max: 1, ..renewal.clone() },
            Want { bytes: 1, ..renewal.clone() },
            Want { bytes_min: 1, ..renewal.clone() },
            Want { wait_ms: 1, ..renewal.clone() },
        ] {
            assert_eq!(
                w.fetch_with("A", &Want { epoch: Some(epoch), ..bad }),
                Err(ShareError::InvalidRequest)
            );
        }
        let fetch = w.send("A", &renewal);
        let answer = w.fetched("A", fetch).unwrap().expect("the epoch had not advanced");
        assert_eq!((answer.parts[0].ack_error, crate::common::got(&answer)), (None, vec![]));
        w.pass_ms(5_100);
        assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 2), (3, 2)], "at 15.1 s");
        w.pass_ms(9_899);
        assert_eq!(w.fetch("B", 10), []);
        w.pass_ms(101);
        assert_eq!(each(&w.fetch("B", 10)), [(2, 2)], "at 25.1 s");
    }
}

#[test]
fn s29_gaps_and_overlaps_without_order() {
    let mut w = World::new(none_config());
    batches(&mut w, 1, 5);
    assert_eq!(w.fetch("A", 10), [(0, 4, 1)]);
    assert_eq!(w.ack("A", 4, 4, GAP), None);
    assert_eq!(w.view().counters.archived, 1);
    assert_eq!(w.ack_ranges("A", vec![range(0, 2, ACCEPT), range(1, 3, ACCEPT)]), MALFORMED);
    assert_eq!(w.ack_ranges("A", vec![range(0, 2, ACCEPT), range(2, 3, ACCEPT)]), INVALID);
    assert_eq!(w.ack_ranges("A", vec![range(3, 3, ACCEPT), range(3, 3, ACCEPT)]), INVALID);
    assert_eq!(w.ack("A", 0, 3, ACCEPT), None, "none of the three changed anything");
    assert_eq!(w.start(), 5);
}

#[test]
fn b10_a_wide_range_costs_what_it_names() {
    for mut w in both() {
        batches(&mut w, 100, 20);
        w.fetch("A", 500);
        let ranges = vec![range(0, 1 << 62, ACCEPT); 50_000];
        assert_eq!(w.ack_ranges("A", ranges), MALFORMED);
        let types = vec![ACCEPT; 1_000_000];
        assert_eq!(w.ack_ranges("A", vec![AckRange { types, ..range(0, 1, ACCEPT) }]), MALFORMED);
        assert_eq!(w.ack("A", 0, 499, REJECT), None);
    }
}

#[test]
fn s18_start_offsets_are_described() {
    for mut w in both() {
        w.add_partition(1);
        batches(&mut w, 1, 10);
        assert_eq!(w.fetch("A", 4), [(0, 3, 1)]);
        assert_eq!(w.ack("A", 0, 1, ACCEPT), None);
        assert_eq!(w.ack("A", 3, 3, ACCEPT), None);
        for restarted in [false, true] {
            if restarted {
                w.restart(0);
            }
            let parts = vec![crate::common::partition(0), crate::common::partition(1)];
            let ticket = w.command(coordinator::share::ShareCommand::DescribeOffsets {
                group: crate::common::group(),
                partitions: Some(parts),
            });
            let coordinator::reply::Reply::ShareOffsets(offsets) = w.replies.remove(&ticket).unwrap() else {
                panic!("described");
            };
            let known = offsets[0].1.unwrap();
            assert_eq!((known.start.map(records::ids::Offset::get), known.lag), (Some(2), 7));
            let unread = offsets[1].1.unwrap();
            assert_eq!((unread.start, unread.lag), (None, -1));
        }
        let ticket =
            w.command(coordinator::share::ShareCommand::DeleteGroup { group: crate::common::group() });
        assert!(matches!(w.replies.remove(&ticket), Some(coordinator::reply::Reply::GroupDeleted(Ok(())))));
        let ticket = w.command(coordinator::share::ShareCommand::DescribeOffsets {
            group: crate::common::group(),
            partitions: None,
        });
        let left = w.replies.remove(&ticket);
        assert!(
            matches!(&left, Some(coordinator::reply::Reply::ShareOffsets(none)) if none.is_empty()),
            "{left:?}"
        );
    }
}
