//! Order and exclusion of keys: cases K01 to K13.

use crate::common::{ACCEPT, REJECT, RELEASE, RENEW, World, each, offsets};
use coordinator::share::ShareError;

const INVALID: Option<ShareError> = Some(ShareError::InvalidRecordState);

#[test]
fn k01_two_keys_two_members() {
    let mut w = World::keyed();
    w.log("a b a b a");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    assert_eq!(w.fetch("B", 10), [(3, 3, 1)]);
    assert_eq!(offsets(&w.fetch("A", 10)), [2, 4]);
}

#[test]
fn k02_one_at_a_time() {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("a a b");
    assert_eq!(offsets(&w.fetch("A", 10)), [0, 2]);
    assert_eq!(w.fetch("A", 10), []);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.fetch("A", 10), [(1, 1, 1)]);
}

#[test]
fn k03_recalled_records_wait_for_their_holder() {
    for settles in [ACCEPT, RELEASE, REJECT] {
        let mut w = World::keyed();
        w.log("a a a b");
        assert_eq!(w.fetch("A", 10), [(0, 3, 1)]);
        assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
        assert_eq!(w.ack("A", 0, 0, RELEASE), None);
        assert_eq!(w.fetch("B", 10), [], "A still works on 2");
        assert_eq!(w.ack("A", 2, 2, settles), None, "it was recalled: no fault, and nothing changes");
        assert_eq!(w.ack("A", 2, 2, settles), INVALID, "it is settled now");
        assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (2, 1)]);
        assert_eq!(w.ack("A", 3, 3, ACCEPT), None, "3 stayed with A");
        assert_eq!(w.view().counters.archived, 0);
    }
}

#[test]
fn k03_the_holder_itself_may_get_the_released_record_again() {
    let mut w = World::keyed();
    w.log("a a a");
    w.fetch("A", 10);
    w.ack("A", 0, 0, RELEASE);
    assert_eq!(w.fetch("B", 10), []);
    assert_eq!(w.fetch("A", 10), [(0, 0, 2)], "and nothing behind it while 1 and 2 are recalled");
}

#[test]
fn k04_a_lock_that_runs_out_is_a_release_of_each() {
    let mut w = World::keyed();
    w.config.lock_ms = 15_000;
    w.configure();
    w.log("a a a b");
    w.fetch("A", 10);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    w.pass_ms(14_999);
    assert_eq!(w.fetch("B", 10), []);
    w.pass_ms(1);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (2, 2), (3, 2)]);
    for late in [0, 2, 3] {
        assert_eq!(w.ack("A", late, late, ACCEPT), INVALID);
    }
    assert_eq!(w.ack("B", 0, 3, ACCEPT), INVALID, "1 is not B's, its neighbours count");
    assert_eq!(w.start(), 4);
}

#[test]
fn k05_acknowledged_backwards() {
    let mut w = World::keyed();
    w.log("a a a a");
    assert_eq!(w.fetch("A", 3), [(0, 2, 1)]);
    w.ack("A", 2, 2, ACCEPT);
    w.ack("A", 1, 1, ACCEPT);
    assert_eq!(w.fetch("B", 10), []);
    w.ack("A", 0, 0, ACCEPT);
    assert_eq!(w.fetch("B", 10), [(3, 3, 1)]);
}

#[test]
fn k06_a_reject_settles_and_recalls_nothing() {
    let mut w = World::keyed();
    w.log("a a a");
    assert_eq!(w.fetch("A", 2), [(0, 1, 1)]);
    assert_eq!(w.ack("A", 0, 0, REJECT), None);
    assert_eq!(w.start(), 1);
    assert_eq!(w.fetch("B", 10), []);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(w.fetch("B", 10), [(2, 2, 1)]);
}

#[test]
fn k07_a_release_does_not_put_a_record_behind_its_successors() {
    for second in ["A", "B"] {
        let mut w = World::keyed();
        w.config.key_inflight_max = 1;
        w.configure();
        w.log("a a b");
        assert_eq!(offsets(&w.fetch("A", 10)), [0, 2]);
        w.ack("A", 0, 0, RELEASE);
        assert_eq!(w.fetch(second, 10), [(0, 0, 2)]);
        let other = if second == "A" { "B" } else { "A" };
        assert_eq!(w.fetch(other, 10), []);
    }
}

#[test]
fn k08_a_renewed_record_holds_its_key() {
    let mut w = World::keyed();
    w.log("a a");
    w.fetch("A", 10);
    w.pass_ms(20_000);
    assert_eq!(w.ack("A", 0, 0, RENEW), None);
    w.pass_ms(11_000);
    assert_eq!(w.fetch("B", 10), [], "0 is held");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.fetch("B", 10), [(1, 1, 2)]);
}

#[test]
fn k08_a_recalled_record_waits_for_its_own_lock() {
    let mut w = World::keyed();
    w.log("a a");
    w.fetch("A", 10);
    w.pass_ms(20_000);
    assert_eq!(w.ack("A", 1, 1, RENEW), None);
    w.pass_ms(10_000);
    // O1: A still works on 1, so the key stays with it; only A itself may have 0 again.
    assert_eq!(w.fetch("B", 10), []);
    w.pass_ms(19_999);
    assert_eq!(w.fetch("B", 10), []);
    w.pass_ms(1);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (1, 2)]);
}

#[test]
fn k08_a_recalled_record_waits_until_its_holder_has_settled_it() {
    let mut w = World::keyed();
    w.log("a a");
    w.fetch("A", 10);
    w.pass_ms(20_000);
    assert_eq!(w.ack("A", 1, 1, RENEW), None);
    w.pass_ms(10_000);
    assert_eq!(w.fetch("A", 10), [(0, 0, 2)], "A itself may have 0 again");
    assert_eq!(w.ack("A", 0, 0, RELEASE), None);
    assert_eq!(w.fetch("B", 10), []);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None, "ok, and nothing changes");
    assert_eq!(each(&w.fetch("B", 10)), [(0, 3), (1, 1)]);
}

#[test]
fn k09_keyless_records_keep_no_order() {
    let mut w = World::keyed();
    w.log("- a - a -");
    assert_eq!(w.fetch("A", 2), [(0, 1, 1)]);
    w.ack("A", 0, 0, RELEASE);
    assert_eq!(each(&w.fetch("B", 10)), [(0, 2), (2, 1), (4, 1)]);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(w.view().counters.acknowledged_recalled, 0);
}

#[test]
fn k10_an_empty_key_is_a_key() {
    let mut w = World::keyed();
    let empty = Some(records::ids::KeyHash(0x2d06_8005_38d3_94c2));
    w.batch(0, &[empty, empty], &[10, 10]);
    w.grew(0);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 10), []);
    w.batch(0, &[None], &[10]);
    w.grew(0);
    assert_eq!(w.fetch("B", 10), [(2, 2, 1)], "null and empty differ");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.fetch("B", 10), [(1, 1, 1)]);
}

#[test]
fn k11_what_is_not_held_is_told_and_its_neighbours_count() {
    let mut w = World::keyed();
    w.log("a b c");
    w.fetch("A", 1);
    w.fetch("B", 1);
    assert_eq!(w.fetch("A", 1), [(2, 2, 1)]);
    assert_eq!(w.ack("A", 0, 2, ACCEPT), INVALID);
    assert_eq!(w.start(), 1, "0 is accepted");
    assert_eq!(w.ack("A", 0, 2, RELEASE), INVALID);
    assert_eq!(w.fetch("C", 10), []);
    assert_eq!(w.ack("B", 1, 1, ACCEPT), None);
    assert_eq!(w.start(), 3, "2 was accepted too");
}

#[test]
fn k11_without_order_all_or_nothing() {
    let mut w = World::new(crate::common::none_config());
    w.log("a b c");
    w.fetch("A", 1);
    w.fetch("B", 1);
    w.fetch("A", 1);
    assert_eq!(w.ack("A", 0, 2, ACCEPT), INVALID);
    assert_eq!(w.start(), 0);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.ack("A", 2, 2, ACCEPT), None);
}

#[test]
fn k13_keys_that_collide_wait_for_each_other() {
    let mut w = World::keyed();
    let seven = Some(records::ids::KeyHash(7));
    w.batch(0, &[seven, seven, crate::common::key("a")], &[10, 10, 10]);
    w.grew(0);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 10), [(2, 2, 1)]);
    w.ack("A", 0, 0, ACCEPT);
    assert_eq!(w.fetch("B", 10), [(1, 1, 1)]);
}
