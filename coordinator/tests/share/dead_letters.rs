//! Dead-letter, follow and skip: what becomes of poison that is not parked (K06, K27 to K30, K49, K58, K62, S28).

use coordinator::io::ScannedKind;
use coordinator::reply::Effect;
use coordinator::share::admin::{DeadLetterTrouble, KeyAction, Why};
use coordinator::share::{Poison, ShareConfig};

use crate::common::{
    ACCEPT, REJECT, RELEASE, World, key, key_config, none_config, offsets, partition, range,
};
use crate::hand::{DLQ, at, of};

/// A group with order `key`, or none, and this poison way.
fn config(keyed: bool, poison: Poison) -> ShareConfig {
    let config = if keyed { key_config() } else { none_config() };
    ShareConfig { poison, dead_letter_topic: Some(DLQ.into()), ..config }
}

fn world(keyed: bool, poison: Poison) -> World {
    let mut world = World::new(config(keyed, poison));
    world.dead_letter_topic(1, true);
    world
}

/// Takes the record at `offset` alone and releases it until it has failed five times.
fn to_the_limit(world: &mut World, member: &str, offset: i64) {
    for count in 1..=5 {
        assert_eq!(world.fetch(member, 1), [(offset, offset, count)]);
        assert_eq!(world.ack(member, offset, offset, RELEASE), None);
    }
}

#[test]
fn k06_a_rejected_record_goes_the_groups_way_and_what_was_accepted_stays() {
    for poison in [Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park] {
        let mut world = world(true, poison);
        world.log("a a a");
        assert_eq!(world.fetch("A", 2), [(0, 1, 1)]);
        assert_eq!(world.ack("A", 0, 0, REJECT), None);
        assert_eq!(world.fetch("B", 10), [], "rejecting recalls nothing, 1 is still A's");
        assert_eq!(world.ack("A", 1, 1, ACCEPT), None, "{poison:?}: its accept counts");
        match poison {
            Poison::Skip => {
                assert_eq!((world.start(), world.fetch("B", 10)), (2, vec![(2, 2, 1)]));
            }
            Poison::DeadLetter => {
                assert_eq!(world.letter_offsets(), [0]);
                assert_eq!((world.start(), world.fetch("B", 10)), (2, vec![(2, 2, 1)]));
            }
            Poison::Follow => {
                assert_eq!(
                    world.letter_offsets(),
                    [0, 2],
                    "the rest of the key follows, but for what was accepted"
                );
                assert_eq!((world.start(), world.fetch("B", 10)), (3, vec![]));
            }
            Poison::Park => {
                assert_eq!((world.start(), world.fetch("B", 10)), (0, vec![]));
                assert!(matches!(world.why(at(0)), Why::Parked { .. }));
            }
        }
    }
}

#[test]
fn k28_skip_archives_at_the_limit_and_goes_on() {
    let mut world = world(true, Poison::Skip);
    world.log("a a");
    to_the_limit(&mut world, "A", 0);
    assert_eq!(world.fetch("A", 1), [(1, 1, 1)]);
    assert_eq!(world.letter_offsets(), [0_i64; 0]);
    let counters = world.view().counters;
    assert_eq!((counters.archived, counters.limit_reached, counters.dead_lettered), (1, 1, 0));
}

#[test]
fn k29_bystanders_do_not_become_poison_whatever_the_way() {
    for poison in [Poison::Skip, Poison::DeadLetter] {
        for kind in [ACCEPT, RELEASE, REJECT] {
            let mut world = world(true, poison);
            world.log("a a a");
            for count in 1..=5 {
                let got = world.fetch("A", 10);
                assert_eq!(got[0].0, 0);
                assert_eq!(got[0].2, count);
                let with_it = offsets(&got);
                assert_eq!(world.ack("A", 0, 0, RELEASE), None);
                for &offset in &with_it[1..] {
                    assert_eq!(world.ack("A", offset, offset, kind), None, "{poison:?} {kind}");
                }
            }
            let letters: &[i64] = if poison == Poison::DeadLetter { &[0] } else { &[] };
            assert_eq!(world.letter_offsets(), letters, "{kind}");
            assert_eq!(world.fetch("A", 10), [(1, 2, 1)], "{poison:?} {kind}");
        }
    }
}

#[test]
fn a_dead_letter_is_copied_once_it_is_stored_that_it_is_one() {
    let mut world = world(true, Poison::DeadLetter);
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    world.disk_full = true;
    assert!(world.ack("A", 0, 0, REJECT).is_some(), "nobody knows of it");
    assert_eq!(world.letter_offsets(), [0_i64; 0], "it may be accepted still");
    world.disk_full = false;
    world.pass_ms(60_000);
    assert_eq!(world.fetch("B", 1), [(0, 0, 2)]);
    assert_eq!(world.ack("B", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0]);
}

#[test]
fn k30_a_dead_letter_is_copied_before_its_key_goes_on() {
    let mut world = world(true, Poison::DeadLetter);
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    let waits = world.park("B", 10);
    world.slow_disk = true;
    let _ = world.send_acks("A", vec![range(0, 0, REJECT)], None, false);
    while world.copies.values().all(|copies| copies.synced == 0) {
        assert_eq!(world.woken("B", waits), None);
        assert_eq!(world.start(), 0);
        world.serve_next();
    }
    world.serve();
    assert_eq!(world.woken("B", waits), Some(vec![(1, 1, 1)]));
    assert_eq!((world.start(), world.letter_offsets()), (1, vec![0]));
}

#[test]
fn k30_headers_and_content() {
    for copy in [false, true] {
        let mut world = World::new(ShareConfig {
            dead_letter_copy: copy,
            key_inflight_max: 1,
            ..config(true, Poison::DeadLetter)
        });
        world.dead_letter_topic(3, true);
        world.log("a a");
        to_the_limit(&mut world, "A", 0);
        let letters = world.letters();
        assert_eq!(letters.len(), 1);
        let letter = &letters[0];
        let hash = key("a").unwrap();
        for (name, value) in [
            ("__dlq.errors.topic", "t"),
            ("__dlq.errors.partition", "0"),
            ("__dlq.errors.offset", "0"),
            ("__dlq.errors.group", "g"),
            ("__dlq.errors.delivery.count", "5"),
            ("__dlq.errors.message", "Offset delivery count exceeded the threshold."),
            ("__sluice.dlq.reason", "delivery-limit"),
            ("__sluice.dlq.key.hash", &format!("{:016x}", hash.0)),
        ] {
            assert_eq!(letter.header(name), Some(value));
        }
        assert_eq!(letter.headers.len(), 8);
        assert_eq!(letter.timestamp, world.now.wall_ms);
        let (own_key, own_value) = (&hash.0.to_be_bytes()[..], &b"0"[..]);
        assert_eq!(letter.key.as_deref(), copy.then_some(own_key));
        assert_eq!(letter.value.as_deref(), copy.then_some(own_value));
        assert_eq!(world.fetch("A", 10), [(1, 1, 1)], "only then the next");
        assert_eq!(world.view().counters.dead_lettered, 1);
    }
}

#[test]
fn k30_where_the_topic_is_missing_its_key_waits_and_goes_on_by_itself() {
    let mut world = World::new(config(true, Poison::DeadLetter));
    world.log("a a b b");
    assert_eq!(world.fetch("A", 10), [(0, 3, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.ack("A", 1, 1, RELEASE), None);
    assert_eq!(world.ack("A", 2, 2, ACCEPT), None, "other keys go on");
    for (trouble, mend) in [(DeadLetterTrouble::Missing, false), (DeadLetterTrouble::NotEnabled, true)] {
        let told = |effect: &Effect| {
            matches!(effect, Effect::DeadLettersWait { partition: at, trouble: why, .. }
                if *at == partition(0) && *why == trouble)
        };
        assert_eq!(world.effects.iter().filter(|effect| told(effect)).count(), 1, "{trouble:?}");
        let described = world.describe(&[of("a"), at(0), at(1)]).unwrap();
        assert_eq!((described.dead_letter_trouble, described.dead_letters), (Some(trouble), 1));
        let since_ms = world.now.wall_ms;
        assert_eq!(described.answers[0], Why::DeadLetter { since_ms, trouble: Some(trouble) });
        assert_eq!(described.answers[1], Why::DeadLetter { since_ms, trouble: Some(trouble) });
        assert_eq!(described.answers[2], Why::Behind { offset: records::ids::Offset(0) });
        let waits = world.park("B", 10);
        assert_eq!(world.woken("B", waits), None, "{trouble:?}");
        world.dead_letter_topic(1, mend);
        assert_eq!(world.letter_offsets(), if mend { vec![0] } else { vec![] });
        let woken = world.woken("B", waits);
        assert_eq!(woken, mend.then(|| vec![(1, 1, 2)]), "{trouble:?}");
        if !mend {
            drop(world.close_session("B", vec![]));
        }
    }
}

/// KIP-1191's auto-creation, which is off unless the broker says otherwise.
#[test]
fn s28_a_missing_topic_is_asked_for_until_it_comes() {
    let mut world = World::new(config(true, Poison::DeadLetter));
    world.topics.dead_letter_create = true;
    world.tell_topics();
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    let asked = |world: &World| {
        let made = |effect: &&Effect| matches!(effect, Effect::CreateDeadLetterTopic(name) if &**name == DLQ);
        world.effects.iter().filter(made).count()
    };
    assert_eq!(asked(&world), 1);
    world.log("b");
    assert_eq!(asked(&world), 1, "not at every chance");
    let told = |world: &World| {
        let waits = |effect: &&Effect| matches!(effect, Effect::DeadLettersWait { .. });
        world.effects.iter().filter(waits).count()
    };
    assert_eq!(told(&world), 0, "it is on its way");
    assert_eq!(world.describe(&[]).unwrap().dead_letter_trouble, Some(DeadLetterTrouble::Missing));
    world.pass_ms(3_000);
    assert_eq!(asked(&world), 4);
    assert_eq!(told(&world), 1, "it does not come");
    world.dead_letter_topic(1, true);
    assert_eq!(world.letter_offsets(), [0]);
    world.pass_ms(3_000);
    assert_eq!(asked(&world), 4);
}

#[test]
fn k30_a_copy_that_fails_is_tried_again() {
    let mut world = world(true, Poison::DeadLetter);
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    (world.copies_fail, world.copy_syncs_fail) = (true, true);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.fetch("A", 1), []);
    let trouble = Some(DeadLetterTrouble::WriteFailed);
    assert_eq!(world.describe(&[]).unwrap().dead_letter_trouble, trouble);
    world.pass_ms(3_600_000);
    assert_eq!(world.letter_offsets(), [0_i64; 0]);
    world.copies_fail = false;
    world.pass_ms(30_000);
    assert!(!world.letter_offsets().is_empty(), "tried again every 30 s at least");
    assert_eq!(world.start(), 0, "what is not synced is no copy");
    world.copy_syncs_fail = false;
    world.pass_ms(30_000);
    assert_eq!(world.start(), 1);
    world.reopen("A");
    assert_eq!(world.fetch("A", 1), [(1, 1, 1)]);
    assert_eq!(world.describe(&[]).unwrap().dead_letter_trouble, None);
}

#[test]
fn k49_the_rest_of_a_key_follows_until_it_is_resumed() {
    let mut world = world(true, Poison::Follow);
    world.log("a a");
    to_the_limit(&mut world, "A", 0);
    world.log("b a");
    assert_eq!(world.letter_offsets(), [0, 1, 3]);
    let letters = world.letters();
    assert_eq!(letters[0].header("__sluice.dlq.reason"), Some("delivery-limit"));
    for letter in &letters[1..] {
        assert_eq!(letter.header("__sluice.dlq.reason"), Some("follows 0"));
        assert_eq!(letter.header("__dlq.errors.message"), Some("Offset follows offset 0 of its key."));
        assert_eq!(letter.header("__dlq.errors.delivery.count"), Some("0"));
    }
    assert_eq!(world.fetch("A", 10), [(2, 2, 1)], "b is untouched");
    world.log("a b");
    assert_eq!(world.letter_offsets(), [0, 1, 3, 4], "later ones, too");
    world.restart(0);
    world.reopen("A");
    world.log("a");
    drop(world.fetch("A", 0));
    assert_eq!(world.letter_offsets(), [0, 1, 3, 4, 6], "also after a restart");
    let described = world.describe(&[]).unwrap();
    assert_eq!((described.following, described.stopped.len()), (1, 1));
    assert!(described.stopped[0].follows);
    assert_eq!(described.stopped[0].offset.get(), 0);
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    world.log("a");
    world.pass_ms(7_500);
    assert!(offsets(&world.fetch("B", 10)).contains(&7), "after that it goes to members again");
}

#[test]
fn k49_a_followed_key_waits_for_what_members_hold_of_it() {
    let mut world = world(true, Poison::Follow);
    world.log("a a a a");
    assert_eq!(world.fetch("A", 3), [(0, 2, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0], "1 and 2 are in A's hands");
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(world.ack("A", 2, 2, RELEASE), None);
    assert_eq!(world.letter_offsets(), [0, 2, 3], "what was accepted stays accepted");
    assert_eq!(world.start(), 4);
}

#[test]
fn k49_many_followers_keep_their_order() {
    let mut world = world(true, Poison::Follow);
    world.log(&"a ".repeat(1_000));
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn k27_k58_unreadable_batches_go_the_groups_way() {
    for poison in [Poison::Skip, Poison::DeadLetter, Poison::Follow, Poison::Park] {
        for keyed in [true, false] {
            let mut world = world(keyed, poison);
            world.append(0, ScannedKind::Corrupt, 4);
            world.log("a");
            assert_eq!(world.fetch("A", 10), [(4, 4, 1)], "{poison:?}: within one fetch");
            let counters = world.view().counters;
            match poison {
                Poison::Skip => assert_eq!((counters.corrupt, counters.archived), (4, 4)),
                Poison::DeadLetter | Poison::Follow => {
                    assert_eq!(world.letter_offsets(), [0, 1, 2, 3]);
                    let letter = &world.letters()[0];
                    assert_eq!(letter.header("__sluice.dlq.reason"), Some("corrupt"));
                    assert_eq!((&letter.key, &letter.value), (&None, &None));
                    assert_eq!(counters.dead_lettered, 4);
                }
                Poison::Park => {
                    assert_eq!(world.start(), 0);
                    assert_eq!(world.describe(&[]).unwrap().parked, 4);
                    for offset in 0..4 {
                        assert_eq!(world.alters(at(offset), KeyAction::Skip), 1);
                    }
                }
            }
            assert_eq!(world.start(), 4);
            assert_eq!(world.ack("A", 4, 4, ACCEPT), None);
            world.restart(0);
            world.reopen("A");
            assert_eq!(world.fetch("A", 10), []);
            assert_eq!(world.start(), 5, "{poison:?}");
        }
    }
}

#[test]
fn k58_a_batch_that_rots_after_its_scan_goes_the_groups_way() {
    let mut world = World::new(ShareConfig { dead_letter_copy: true, ..config(true, Poison::DeadLetter) });
    world.dead_letter_topic(1, true);
    world.log("a,b a,b c");
    world.logs.get_mut(&partition(0)).unwrap().rotten.push((0, 1));
    assert_eq!(offsets(&world.fetch("A", 10)), [2, 3, 4], "0 and 1 are left out");
    assert_eq!(world.letter_offsets(), [0, 1]);
    assert_eq!(world.letters()[0].header("__sluice.dlq.reason"), Some("corrupt"));
}

/// S28: the same without order.
#[test]
fn s28_dead_letters_without_order() {
    let mut world = world(false, Poison::DeadLetter);
    world.log("a a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    to_the_limit(&mut world, "A", 1);
    let letters = world.letters();
    let told: Vec<_> = letters
        .iter()
        .map(|letter| {
            (
                letter.offset,
                letter.header("__dlq.errors.delivery.count").unwrap(),
                letter.header("__dlq.errors.message").unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [(0, "1", "Offset rejected by client."), (1, "5", "Offset delivery count exceeded the threshold.")]
    );
    assert!(letters.iter().all(|letter| letter.key.is_none() && letter.value.is_none()));
    assert!(letters.iter().all(|letter| letter.header("__sluice.dlq.key.hash").is_none()));
    assert_eq!(world.start(), 2);
}

#[test]
fn s12_a_lock_that_runs_out_at_the_limit_is_poison_too() {
    for keyed in [true, false] {
        let mut world = world(keyed, Poison::DeadLetter);
        world.log("a a");
        for count in 1..=5 {
            assert_eq!(world.fetch("A", 1)[0], (0, 0, count));
            world.pass_ms(30_000);
        }
        assert_eq!(world.letter_offsets(), [0]);
        assert_eq!(offsets(&world.fetch("A", 10)), [1]);
    }
}

#[test]
fn dead_letters_of_a_partition_go_to_its_index_modulo_the_topics_count() {
    let mut world = World::new(config(true, Poison::DeadLetter));
    world.dead_letter_topic(2, true);
    world.log("a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack_ranges("A", vec![range(0, 0, REJECT)]), None);
    let filled: Vec<usize> = world.copies.values().map(|copies| copies.batches.len()).collect();
    assert_eq!(filled, [1, 0]);
}

/// K62: a power cut at each point of a dead letter's way.
#[test]
fn k62_never_archived_without_a_copy_on_the_disk() {
    let mut seen = std::collections::BTreeSet::new();
    for steps in 0..12 {
        let mut world = world(true, Poison::DeadLetter);
        world.log("a a");
        assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
        world.pass_ms(1_000);
        world.slow_disk = true;
        let _ = world.send_acks("A", vec![range(0, 0, REJECT)], None, false);
        for _ in 0..steps {
            world.serve_next();
        }
        // Also what only waits for its time is synced now and then.
        let synced = world.copies.values().map(|copies| copies.synced).sum::<usize>();
        let written = world.copies.values().map(|copies| copies.batches.len()).sum::<usize>();
        world.power_cut(0);
        world.slow_disk = false;
        world.serve();
        world.pass_ms(60_000);
        world.reopen("A");
        let mut got = Vec::new();
        for _ in 0..6 {
            let more = offsets(&world.fetch("A", 1));
            for &offset in &more {
                // 0 may come again where its rejection was lost; then it is rejected again.
                let kind = if offset == 0 { REJECT } else { ACCEPT };
                assert_eq!(world.ack("A", offset, offset, kind), None);
            }
            got.extend(more);
        }
        let letters = world.letter_offsets();
        assert!(!letters.is_empty() && letters.iter().all(|&offset| offset == 0), "{steps}: {letters:?}");
        assert!(letters.len() <= 2, "{steps}: one duplicate at most");
        assert_eq!(got.iter().filter(|&&offset| offset == 1).count(), 1, "{steps}: {got:?}");
        assert!(got.is_sorted(), "1 never before 0 is done");
        assert_eq!(world.start(), 2);
        seen.insert((written, synced));
    }
    assert!(seen.is_superset(&[(0, 0), (1, 0), (1, 1)].into()), "every point was met: {seen:?}");
}

/// A member that acknowledges with delivery numbers is not told that an operator lets a parked record go on: what it holds
/// behind it stays its own (O1), and nobody else gets anything of the key before that is settled.
#[test]
fn k31_what_a_member_holds_behind_a_parked_record_stays_its_own_when_that_goes_on() {
    let terms = coordinator::command::KeyShareTerms { records_per_key_max: 3, ..Default::default() };
    let mut world = World::new(config(true, Poison::Park));
    world.log("a a a a b");
    let numbered = |max| crate::common::Want { key_share: Some(terms), ..crate::common::want(max) };
    assert_eq!(world.fetch_with("A", &numbered(3)).unwrap(), [(0, 2, 1)]);
    assert_eq!(world.ack_numbered("A", 0, REJECT), Ok(()));
    assert_eq!(world.ack_numbered("A", 1, ACCEPT), Ok(()), "rejecting recalls nothing");
    assert_eq!(world.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(world.fetch_with("B", &numbered(10)).unwrap(), [(4, 4, 1)], "2 is A's");
    assert_eq!(world.ack_numbered("A", 2, ACCEPT), Ok(()), "and counts");
    assert_eq!(world.fetch_with("B", &numbered(10)).unwrap(), [(0, 0, 1), (3, 3, 1)]);
}

/// What was rejected recalls nothing, also where a restart finds it before what lies behind it.
#[test]
fn k06_what_waits_for_the_topic_recalls_nothing_after_a_restart() {
    let terms = coordinator::command::KeyShareTerms { records_per_key_max: 3, ..Default::default() };
    let mut world = World::new(config(true, Poison::DeadLetter));
    world.log("a a");
    let numbered = crate::common::Want { key_share: Some(terms), ..crate::common::want(10) };
    assert_eq!(world.fetch_with("A", &numbered).unwrap(), [(0, 1, 1)]);
    assert_eq!(world.ack_numbered("A", 0, REJECT), Ok(()));
    world.restart(0);
    assert_eq!(world.fetch("B", 10), [], "1 stays A's for its grace");
    assert_eq!(world.machine.holders("g", partition(0)).len(), 1);
    world.dead_letter_topic(1, true);
    world.pass_ms(7_500);
    assert_eq!(world.fetch("B", 10), [(1, 1, 1)]);
    assert_eq!(world.letter_offsets(), [0]);
}

#[test]
fn s28_a_topic_without_the_brokers_prefix_takes_no_dead_letters() {
    let mut world = world(true, Poison::DeadLetter);
    world.topics.dead_letter_prefix = "dead.".into();
    world.tell_topics();
    world.log("a");
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    let trouble = |world: &mut World| world.describe(&[]).unwrap().dead_letter_trouble;
    assert_eq!(trouble(&mut world), Some(DeadLetterTrouble::BadName));
    world.config.dead_letter_topic = None;
    world.configure();
    assert_eq!(trouble(&mut world), Some(DeadLetterTrouble::NotNamed));
    world.config.dead_letter_topic = Some(DLQ.into());
    world.topics.dead_letter_prefix = "dlq.".into();
    world.tell_topics();
    assert_eq!(world.letter_offsets(), [0_i64; 0], "the group names none");
    world.configure();
    assert_eq!((world.letter_offsets(), trouble(&mut world)), (vec![0], None));
}

/// What a key-share member says when it rejects a record, or releases it for the last time, goes with it.
#[test]
fn k30_reasons_are_carried_through() {
    let terms = coordinator::command::KeyShareTerms { records_per_key_max: 3, ..Default::default() };
    for (kind, word) in [(REJECT, "rejected"), (RELEASE, "delivery-limit")] {
        for restarted in [false, true] {
            let mut world =
                World::new(ShareConfig { delivery_count_max: 2, ..config(true, Poison::DeadLetter) });
            world.log("a");
            let numbered = crate::common::Want { key_share: Some(terms), ..crate::common::want(10) };
            for said in ["first try", "no such account: \u{e9}".repeat(40).as_str()] {
                if world.fetch_with("A", &numbered).unwrap().is_empty() {
                    break;
                }
                let delivery = world.deliveries.get(&("A".to_owned(), 0)).copied();
                let ack = coordinator::command::AckRange {
                    delivery,
                    reason: Some(if kind == REJECT { "no such account" } else { said }.into()),
                    ..range(0, 0, kind)
                };
                let reply = world.acknowledge("A", vec![ack], None, true).unwrap();
                assert_eq!(reply.parts[0].results, [Ok(())]);
            }
            if restarted {
                world.limits.snapshot_after_bytes = 1;
                world.restart(0);
                world.reopen("A");
                world.log("b");
                drop(world.fetch("A", 1));
                world.restart(0);
                world.reopen("A");
                drop(world.fetch("A", 0));
            }
            world.dead_letter_topic(1, true);
            let letters = world.letters();
            let reason = letters[0].header("__sluice.dlq.reason").unwrap();
            assert!(reason.starts_with(&format!("{word}: no such account")), "{reason}");
            assert!(reason.len() <= word.len() + 2 + 256, "{reason}");
        }
    }
}

/// What is remembered for a redrive must not fill a small window for good.
#[test]
fn k49_a_followed_key_does_not_fill_the_window_with_what_could_be_redriven() {
    let mut world = World::new(ShareConfig { window_bytes_max: 1 << 16, ..config(true, Poison::Follow) });
    world.dead_letter_topic(1, true);
    world.log(&"a ".repeat(2_000));
    assert_eq!(world.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), (0..2_000).collect::<Vec<_>>());
    assert!(world.view().heap_bytes <= 1 << 14, "{:?}", world.view());
    let redriven = world.alters(of("a"), KeyAction::Redrive);
    assert!((1..=64).contains(&redriven), "the newest alone: {redriven}");
    assert_eq!(offsets(&world.fetch("A", 1)), [2_000 - i64::try_from(redriven).unwrap()]);
}

/// A look-up through the key index tells of later records before the scan has come to the first one again.
#[test]
fn k49_what_follows_goes_behind_what_it_follows_after_a_restart() {
    let mut world = World::new(config(true, Poison::Follow));
    world.dead_letter_topic(1, false);
    let window = coordinator::share::WindowLimits {
        spill_from_parts: u64::MAX,
        key_queued_max: [2, 1, 1],
        ..Default::default()
    };
    world.limits.window = std::sync::Arc::new(window);
    world.restart(0);
    world.log("a a a a a a a a");
    assert_eq!(offsets(&world.fetch("A", 1)), [0]);
    assert_eq!(world.ack("A", 0, 0, RELEASE), None);
    assert_eq!(offsets(&world.fetch("A", 2)), [0, 1]);
    assert_eq!(world.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(world.ack("A", 0, 0, REJECT), None);
    assert_eq!(world.letter_offsets(), [0_i64; 0]);
    world.restart(0);
    world.dead_letter_topic(1, true);
    world.reopen("A");
    assert_eq!(world.fetch("A", 1), []);
    assert_eq!(world.letter_offsets(), [0, 2, 3, 4, 5, 6, 7]);
}
