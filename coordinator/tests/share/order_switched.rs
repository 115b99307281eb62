//! Order switched off and on while keys are stopped (K47).

use crate::common::{ACCEPT, REJECT, RELEASE, World, key_config, none_config, offsets, range};
use crate::hand::{at, of};
use coordinator::share::admin::{AdminError, KeyAction, Why};
use coordinator::share::{Poison, ShareConfig, ShareOrder};

/// Key a is parked by its record 0, with 2 behind it; 1 of b is done.
fn parked() -> World {
    let mut w = World::new(ShareConfig { poison: Poison::Park, key_inflight_max: 1, ..key_config() });
    w.log("a b a");
    assert_eq!(w.fetch("A", 9), [(0, 1, 1)]);
    assert_eq!(w.ack("A", 0, 0, REJECT), None);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    w
}

fn order(w: &mut World, order: ShareOrder) {
    w.config.order = order;
    w.config.record_locks_max = none_config().record_locks_max;
    w.configure();
}

#[test]
fn k47_without_order_a_parked_record_is_counted_once_and_a_parked_key_not_at_all() {
    let mut w = parked();
    assert_eq!(w.alters(of("z"), KeyAction::Park), 1);
    let told = w.describe(&[]).unwrap();
    assert_eq!((told.parked, told.stopped.len()), (2, 2));
    order(&mut w, ShareOrder::None);
    let told = w.describe(&[of("z"), of("a"), at(0)]).unwrap();
    assert_eq!((told.parked, told.stopped.len(), w.view().stopped_keys), (1, 1, 0));
    assert_eq!((told.stopped[0].key, told.stopped[0].offset.get()), (None, 0));
    assert_eq!(told.answers[..2], [Why::UnknownKey, Why::UnknownKey]);
    assert!(matches!(told.answers[2], Why::Parked { .. }));
    assert_eq!(w.alter(of("z"), KeyAction::Resume), Err(AdminError::NoOrder));
    order(&mut w, ShareOrder::Key);
    let told = w.describe(&[]).unwrap();
    assert_eq!((told.parked, told.stopped.len()), (2, 2), "both are parked again");
    assert_eq!(w.fetch("A", 9), []);
}

#[test]
fn k47_without_order_no_key_follows() {
    let mut w = World::new(ShareConfig { poison: Poison::Follow, ..key_config() });
    w.log("a");
    assert_eq!(w.fetch("A", 9), [(0, 0, 1)]);
    assert_eq!(w.ack("A", 0, 0, REJECT), None);
    assert_eq!(w.describe(&[]).unwrap().following, 1);
    order(&mut w, ShareOrder::None);
    let told = w.describe(&[]).unwrap();
    assert_eq!((told.following, told.dead_letters, told.stopped.len()), (0, 1, 0));
}

#[test]
fn k47_a_key_whose_poison_record_was_done_with_without_order_goes_on_with_it() {
    for action in [KeyAction::Resume, KeyAction::Skip, KeyAction::Drop(None)] {
        for restarts in [false, true] {
            let mut w = parked();
            order(&mut w, ShareOrder::None);
            assert_eq!(w.alters(at(0), action), 1);
            let again = if action == KeyAction::Resume { vec![0, 2] } else { vec![2] };
            assert_eq!(offsets(&w.fetch("A", 9)), again);
            let accepted = again.iter().map(|&offset| range(offset, offset, ACCEPT)).collect();
            assert_eq!(w.ack_ranges("A", accepted), None);
            w.log("a");
            if restarts {
                w.restart(0);
                w.reopen("A");
            }
            order(&mut w, ShareOrder::Key);
            assert_eq!(w.fetch("A", 9), [(3, 3, 1)], "{action:?} {restarts}");
            assert_eq!(w.describe(&[]).unwrap().parked, 0);
        }
    }
}

#[test]
fn k47_a_key_that_a_hand_has_parked_stays_so_whatever_becomes_of_its_records_without_order() {
    for restarts in [false, true] {
        let mut w = World::new(ShareConfig { poison: Poison::Park, ..key_config() });
        w.log("a a");
        assert_eq!(w.fetch("A", 0), []);
        assert_eq!(w.alters(of("a"), KeyAction::Park), 1);
        order(&mut w, ShareOrder::None);
        assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
        assert_eq!(w.ack("A", 0, 0, REJECT), None);
        assert_eq!(w.alters(at(0), KeyAction::Skip), 1);
        order(&mut w, ShareOrder::Key);
        if restarts {
            w.restart(0);
            w.reopen("A");
        }
        assert_eq!(w.fetch("A", 9), []);
        assert_eq!(w.alters(of("a"), KeyAction::Resume), 1);
        assert_eq!(w.fetch("A", 9), [(1, 1, 1)]);
    }
}

/// K64: it is not known to be done with.
#[test]
fn k47_a_key_whose_poison_record_left_the_log_without_order_stays_parked() {
    let mut w = parked();
    order(&mut w, ShareOrder::None);
    w.log_start(1);
    order(&mut w, ShareOrder::Key);
    assert_eq!(w.fetch("A", 9), []);
    assert!(matches!(w.why(of("a")), Why::Parked { .. }));
    assert_eq!(w.alters(of("a"), KeyAction::Resume), 1);
    assert_eq!(w.fetch("A", 9), [(2, 2, 1)]);
}

/// What is parked without order parks its key when order comes back, as it would after a restart.
#[test]
fn k47_a_record_that_was_parked_without_order_parks_its_key_when_order_comes_back() {
    for by_hand in [false, true] {
        for restarts in [false, true] {
            let mut w = World::new(ShareConfig { poison: Poison::Park, ..none_config() });
            w.log("a a b");
            assert_eq!(w.fetch("A", 9), [(0, 2, 1)]);
            if by_hand {
                assert_eq!(w.ack("A", 0, 1, RELEASE), None);
                assert_eq!(w.alters(at(1), KeyAction::Park), 1);
            } else {
                assert_eq!(w.ack("A", 1, 1, REJECT), None);
                assert_eq!(w.ack("A", 0, 0, RELEASE), None);
            }
            order(&mut w, ShareOrder::Key);
            if restarts {
                w.restart(0);
                w.reopen("A");
            }
            assert_eq!(w.fetch("B", 9), [], "{by_hand} {restarts}");
            assert!(matches!(w.why(of("a")), Why::Parked { offset, .. } if offset.get() == 1));
            order(&mut w, ShareOrder::None);
            assert_eq!(w.alters(at(1), KeyAction::Resume), 1);
            order(&mut w, ShareOrder::Key);
            assert_eq!(w.fetch("B", 9)[0].0, 0);
        }
    }
}
