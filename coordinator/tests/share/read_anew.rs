//! Locks whose share-partition is read anew, since the disk refused its events: they are as members know them, and a
//! delivery that a restart ended does not count.

use coordinator::share::admin::KeyAction;
use coordinator::share::{ShareConfig, ShareError};

use records::ids::Offset;

use crate::common::{ACCEPT, RENEW, World, key_config, none_config, want};
use crate::hand::of;

/// A has 0 of key a and 1 of key b, from one fetch.
fn two_held(config: ShareConfig) -> World {
    let mut w = World::new(config);
    w.log("a b c");
    assert_eq!(w.fetch("A", 2), [(0, 1, 1)]);
    w
}

/// The broker starts anew, and its members go on with new sessions.
fn restart(w: &mut World) {
    w.restart(0);
    w.reopen("A");
    w.reopen("B");
}

/// B is given 2, and its acknowledgement cannot be stored: the state is read anew.
fn read_anew(w: &mut World) {
    assert_eq!(w.fetch("B", 1), [(2, 2, 1)]);
    w.disk_full = true;
    assert_eq!(w.ack("B", 2, 2, ACCEPT), Some(ShareError::Unavailable));
    w.disk_full = false;
}

#[test]
fn without_order_a_renewed_lock_is_over_with_a_restart_although_that_could_not_be_stored() {
    let mut w = two_held(none_config());
    assert_eq!(w.ack("A", 1, 1, RENEW), None);
    restart(&mut w);
    w.disk_full = true;
    w.fetch_with("A", &want(1)).unwrap();
    w.close_session("A", vec![]).unwrap();
    w.disk_full = false;
    w.pass_ms(2_000);
    assert_eq!(w.fetch("B", 10), [(0, 2, 1)], "at once, and nothing counted");
}

#[test]
fn a_lock_renewed_before_a_restart_does_not_count_when_it_runs_out() {
    let mut w = two_held(key_config());
    assert_eq!(w.ack("A", 0, 1, RENEW), None);
    assert_eq!(w.ack("A", 0, 1, RENEW), None);
    restart(&mut w);
    w.disk_full = true;
    assert_eq!(w.fetch("B", 1), [], "the grant cannot be stored");
    w.disk_full = false;
    w.pass_ms(31_000);
    assert_eq!(w.fetch("C", 2), [(0, 1, 1)]);
}

#[test]
fn neither_does_one_beside_which_another_record_of_the_delivery_was_renewed_since() {
    let mut w = two_held(key_config());
    restart(&mut w);
    assert_eq!(w.fetch("A", 0), []);
    assert_eq!(w.ack("A", 1, 1, RENEW), None);
    w.disk_full = true;
    assert_eq!(w.ack("A", 1, 1, ACCEPT), Some(ShareError::Unavailable));
    w.disk_full = false;
    w.pass_ms(31_000);
    assert_eq!(w.fetch("C", 1), [(0, 0, 1)]);
}

#[test]
fn a_lock_ends_when_its_last_renewal_says_however_often_it_is_read() {
    let mut w = two_held(key_config());
    assert_eq!(w.ack("A", 0, 1, RENEW), None);
    assert_eq!(w.ack("A", 0, 1, RENEW), None);
    w.pass_ms(20_000);
    read_anew(&mut w);
    w.disk_full = true;
    assert_eq!(w.ack("B", 2, 2, ACCEPT), Some(ShareError::Unavailable), "nothing was stored in between");
    w.disk_full = false;
    w.pass_ms(11_000);
    assert_eq!(w.fetch("C", 2), [(0, 1, 2)], "30 seconds after it was renewed");
}

#[test]
fn the_lock_with_which_a_replay_ends_goes_on_where_its_end_could_not_be_stored() {
    let mut w = two_held(key_config());
    assert_eq!(w.ack("A", 0, 1, ACCEPT), None);
    w.alters(of("a"), KeyAction::Replay(Offset(0), Offset(0)));
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.disk_full = true;
    assert_eq!(w.ack("A", 0, 0, ACCEPT), Some(ShareError::Unavailable));
    w.disk_full = false;
    assert_eq!(w.fetch("B", 1), [(2, 2, 1)], "A still has 0");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
}
