//! Many keys that are parked: they leave memory, keep nobody up, and come back by hand.

use std::sync::Arc;

use crate::common::{ACCEPT, REJECT, RELEASE, World, key_config, none_config, offsets, range};
use crate::hand::{at, of};
use crate::scale::{append, drain, fits, numbered, scaled, window_bytes};
use coordinator::share::admin::{KeyAction, StopReason, Why};
use coordinator::share::{Bound, Poison, ShareConfig, ShareOrder, WindowLimits};

/// Rejects everything that is ready, which parks it.
fn reject_all(w: &mut World) -> usize {
    let mut parked = 0;
    loop {
        let got = w.fetch("A", 500);
        if got.is_empty() {
            return parked;
        }
        parked += offsets(&got).len();
        let ranges = got.iter().map(|&(first, last, _)| range(first, last, REJECT)).collect();
        assert_eq!(w.ack_ranges("A", ranges), None);
        w.deliveries.clear();
        fits(w);
    }
}

/// Whatever is parked goes to a page of its own at once, but for key z, which a hand has parked: one stays in memory.
fn small(poison: Poison) -> World {
    let mut w = World::new(ShareConfig { poison, ..key_config() });
    w.limits.snapshot_after_bytes = 1;
    w.limits.window = Arc::new(WindowLimits { waits_max: 0, page_keys_max: 1, ..Default::default() });
    w.restart(0);
    assert_eq!(w.fetch("A", 1), []);
    assert_eq!(w.alters(of("z"), KeyAction::Park), 1);
    w
}

/// Key a is parked by its record 0 in a page, with 2 behind it; 1 of b is done.
fn one_at_rest() -> World {
    let mut w = small(Poison::Park);
    w.log("a b a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.ack("A", 0, 0, REJECT), None);
    assert_eq!(w.fetch("A", 9), [(1, 1, 1)]);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(w.view().resting_keys, 1, "{:?}", w.view());
    w
}

#[test]
fn k63_a_million_keys_are_parked_and_all_others_go_on() {
    let total = scaled(1_000_000);
    let mut w = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
    w.config.window_bytes_max = window_bytes();
    w.configure();
    append(&mut w, (0..total).map(numbered), 100);
    assert_eq!(reject_all(&mut w), total);
    assert!(w.view().resting_keys > total / 2, "{:?}", w.view());
    assert_eq!(w.view().waiting_keys, 0, "nothing waits for a retry");
    append(&mut w, (0..total).map(numbered), 100);
    append(&mut w, (total..2 * total).map(numbered), 100);
    assert_eq!(drain(&mut w, "A", fits).len(), total, "all others");

    w.restart(1_000);
    w.reopen("A");
    assert_eq!(w.fetch("A", 500), []);
    fits(&w);
    let told = w.describe(&[at(0)]).unwrap();
    assert_eq!((told.parked, told.waiting, told.bound), (total as u64, 0, None));

    let of_number = |number: usize| coordinator::share::admin::KeyRef::Key(numbered(number).unwrap());
    for number in [0, total / 2, total - 1] {
        assert_eq!(w.alters(of_number(number), KeyAction::Resume), 1);
        assert_eq!(w.fetch("A", 1), [(number as i64, number as i64, 1)]);
        assert_eq!(w.ack("A", number as i64, number as i64, ACCEPT), None);
        let behind = (total + number) as i64;
        assert_eq!(w.fetch("A", 1), [(behind, behind, 1)], "and what is behind it");
        assert_eq!(w.ack("A", behind, behind, ACCEPT), None);
        fits(&w);
    }
    assert_eq!(w.describe(&[]).unwrap().parked, total as u64 - 3);
}

#[test]
fn past_so_many_parked_keys_nothing_new_is_read() {
    for waits_max in [0, 16 * 1_024] {
        let mut w = small(Poison::Park);
        w.limits.window = Arc::new(WindowLimits { waits_max, page_keys_max: 1, ..Default::default() });
        w.config.stuck_keys_max = 3;
        w.restart(0);
        w.reopen("A");
        w.log("a b");
        assert_eq!(reject_all(&mut w), 2);
        w.log("c");
        assert_eq!(reject_all(&mut w), 1);
        w.log("d");
        assert_eq!(w.fetch("A", 9), []);
        assert_eq!(w.view().bound, Some(Bound::StuckKeys));
        assert_eq!(w.alters(of("b"), KeyAction::Skip), 1);
        assert_eq!(w.fetch("A", 9), [(3, 3, 1)]);
    }
}

#[test]
fn what_is_parked_in_a_page_is_told_of_without_bringing_it_back() {
    let mut w = one_at_rest();
    let since_ms = w.now.wall_ms;
    for question in [of("a"), at(0)] {
        let Why::Parked { since_ms: since, offset } = w.why(question) else {
            panic!("{:?}", w.why(question))
        };
        assert!(since <= since_ms && offset.get() == 0);
    }
    assert_eq!(w.why(at(2)), Why::NotScanned, "whose it is only its page tells");
    assert_eq!(w.view().resting_keys, 1);
    assert_eq!(w.describe(&[]).unwrap().parked, 2);
}

#[test]
fn a_wait_in_a_page_is_told_with_its_own_end() {
    let mut w = small(Poison::Skip);
    (w.config.backoff_ms, w.config.backoff_max_ms) = (10_000, 10_000);
    w.configure();
    for (offset, name) in [(0, "a"), (1, "b")] {
        w.log(name);
        assert_eq!(w.fetch("A", 1), [(offset, offset, 1)]);
        assert_eq!(w.ack("A", offset, offset, RELEASE), None);
        w.pass_ms(3_000);
    }
    assert_eq!(w.view().resting_keys, 2, "{:?}", w.view());
    let until = |w: &mut World, key| match w.why(key) {
        Why::Retry { until_ms } => until_ms,
        why => panic!("{why:?}"),
    };
    assert_eq!(until(&mut w, of("b")) - until(&mut w, of("a")), 3_000);
    assert_eq!(until(&mut w, at(1)) - w.now.wall_ms, 7_000);
}

#[test]
fn a_hand_on_a_key_in_a_page_does_what_it_does_in_memory() {
    let mut w = one_at_rest();
    assert_eq!(w.alters(of("a"), KeyAction::Park), 0, "it is so already");
    assert_eq!(w.fetch("A", 9), []);
    assert_eq!(w.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.fetch("A", 9), [(2, 2, 1)]);

    let mut w = one_at_rest();
    assert_eq!(w.alters(at(0), KeyAction::Skip), 1);
    assert_eq!(w.fetch("A", 9), [(2, 2, 1)]);

    let mut w = one_at_rest();
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 9), []);
    w.log("a c");
    assert_eq!(w.fetch("A", 9), [(4, 4, 1)], "what is new of a stays, too");
    assert_eq!(w.ack("A", 4, 4, ACCEPT), None);
    assert_eq!(w.alters(of("a"), KeyAction::Drop(None)), 1);
    assert_eq!(w.fetch("A", 9), [(2, 3, 1)]);
}

#[test]
fn the_reason_is_the_same_when_it_comes_back() {
    let mut w = one_at_rest();
    // A new key needs no page any more.
    w.limits.window = Arc::new(WindowLimits { waits_max: 80, page_keys_max: 1, ..Default::default() });
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 9), []);
    w.pass_ms(2_000);
    let told = w.describe(&[]).unwrap();
    assert_eq!(w.view().resting_keys, 0, "there is room, and it is to be shown: {:?}", w.view());
    let of_a = told.stopped.iter().find(|stopped| stopped.key == crate::common::key("a")).unwrap();
    assert_eq!((of_a.reason, of_a.deliveries, told.stopped.len()), (StopReason::Rejected, 1, 2));
}

#[test]
fn something_of_what_is_parked_is_always_in_memory_to_be_shown() {
    let mut w = one_at_rest();
    for left in [2, 1] {
        let told = w.describe(&[]).unwrap();
        assert_eq!((told.parked, told.stopped.len()), (left, 1));
        let name = if left == 2 { "z" } else { "a" };
        assert_eq!(told.stopped[0].key, crate::common::key(name));
        assert_eq!(w.alters(of(name), KeyAction::Resume), 1);
        drop(w.fetch("B", 0));
        w.pass_ms(2_000);
    }
    assert_eq!(w.describe(&[]).unwrap().parked, 0);
}

#[test]
fn without_order_what_was_parked_in_a_page_holds_back_nothing_but_itself() {
    let mut w = one_at_rest();
    w.config.order = ShareOrder::None;
    w.config.record_locks_max = none_config().record_locks_max;
    w.configure();
    let mut got = Vec::new();
    for _ in 0..20 {
        got.extend(offsets(&w.fetch("A", 9)));
        w.pass_ms(100);
    }
    assert_eq!(got, [2]);
    assert_eq!(w.alters(at(0), KeyAction::Resume), 1);
    assert_eq!(offsets(&w.fetch("A", 9)), [0]);
}

#[test]
fn without_order_pages_come_back_as_far_as_is_read() {
    let mut w = small(Poison::Park);
    let names: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    w.log(&names.join(" "));
    assert_eq!(reject_all(&mut w), 300);
    w.pass_ms(2_000);
    assert_eq!(w.fetch("A", 9), []);
    assert_eq!(w.view().resting_keys, 300, "{:?}", w.view());
    (w.config.order, w.config.record_locks_max) = (ShareOrder::None, 100);
    w.configure();
    for _ in 0..400 {
        assert_eq!(w.fetch("A", 9), []);
        w.pass_ms(10);
    }
    assert_eq!(w.view().resting_keys, 100, "{:?}", w.view());
    assert_eq!(w.alters(at(0), KeyAction::Skip), 1);
    assert_eq!(w.fetch("A", 9), []);
    w.pass_ms(10);
    assert_eq!((w.start(), w.view().resting_keys), (1, 99));
}

#[test]
fn k64_a_parked_key_in_a_page_stays_so_when_its_record_leaves_the_log() {
    let mut w = one_at_rest();
    w.log_start(1);
    for _ in 0..20 {
        assert_eq!(w.fetch("A", 9), []);
        w.pass_ms(100);
    }
    assert_eq!(w.view().counters.left_log, 1);
    assert_eq!(w.start(), 2);
    assert_eq!(w.view().resting_keys, 1, "it rests again, with nothing that was delivered: {:?}", w.view());
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 9), []);
    assert!(matches!(w.why(of("a")), Why::Parked { .. }), "{:?}", w.why(of("a")));
    assert_eq!(w.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(w.fetch("A", 9), [(2, 2, 1)]);
}

#[test]
fn a_key_that_a_hand_parked_rests_too_and_before_it_has_come() {
    let mut w = small(Poison::Skip);
    w.log("b");
    assert_eq!(w.fetch("A", 9), [(0, 0, 1)]);
    assert_eq!(w.alters(of("a"), KeyAction::Park), 1);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    w.pass_ms(2_000);
    assert_eq!(w.fetch("A", 9), []);
    assert_eq!(w.view().resting_keys, 1, "{:?}", w.view());
    w.restart(0);
    w.reopen("A");
    w.log("a c a");
    assert_eq!(w.fetch("A", 9), [(2, 2, 1)]);
    assert_eq!((w.start(), w.view().counters.left_log), (1, 0), "they rest");
    assert_eq!(w.alters(of("a"), KeyAction::Park), 0, "it is so already");
    assert_eq!(w.ack("A", 2, 2, ACCEPT), None);
    assert_eq!(w.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(w.fetch("A", 9), [(1, 1, 1), (3, 3, 1)]);
}

#[test]
fn a_parked_record_without_a_key_rests_too() {
    let mut w = small(Poison::Park);
    w.log("- - a");
    assert_eq!(w.fetch("A", 2), [(0, 1, 1)]);
    assert_eq!(w.ack("A", 0, 1, REJECT), None);
    assert_eq!(w.fetch("A", 1), [(2, 2, 1)]);
    assert_eq!(w.ack("A", 2, 2, ACCEPT), None);
    w.pass_ms(2_000);
    assert_eq!(w.fetch("A", 1), []);
    assert_eq!((w.view().resting_keys, w.describe(&[]).unwrap().parked), (2, 3), "{:?}", w.view());
    for offset in [0, 1] {
        assert!(matches!(w.why(at(offset)), Why::Parked { .. }));
        assert_eq!(w.alters(at(offset), KeyAction::Resume), 1);
        assert_eq!(w.fetch("A", 9), [(offset, offset, 1)]);
    }
}

/// What waits for the dead-letter topic is on its way, and stays in memory.
#[test]
fn a_dead_letter_does_not_rest() {
    let mut w = small(Poison::DeadLetter);
    w.log("a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.ack("A", 0, 0, REJECT), None);
    assert_eq!((w.view().resting_keys, w.view().dead_letters), (0, 1));
}
