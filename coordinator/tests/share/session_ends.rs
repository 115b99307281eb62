//! Sessions that end while their share-partition's state is not in memory, or before that they ended is stored: what
//! their members held is free as soon as the state is there (O4), not when the locks run out.

use coordinator::command::{Fact, KeyShareTerms};
use coordinator::share::{LeftBy, ShareError};

use crate::common::{ACCEPT, RELEASE, Want, World, range, want};

/// A holds 0, and B's acceptance of 1 could not be stored: the state is about to be read anew.
fn about_to_be_read_anew() -> World {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    (w.slow_disk, w.disk_full) = (true, true);
    w.send_acks("B", vec![range(1, 1, ACCEPT)], None, false);
    w.serve_next();
    assert_eq!(w.waiting(), 1, "the state");
    w.disk_full = false;
    w
}

fn read_on(w: &mut World) {
    w.slow_disk = false;
    w.serve();
}

#[test]
fn a_session_closed_while_the_state_is_read_anew_gives_everything_back() {
    let mut w = about_to_be_read_anew();
    w.send_acks("A", vec![], Some(-1), false);
    read_on(&mut w);
    assert_eq!(w.fetch("C", 10), [(0, 0, 2)], "at once, and counted as ever: A had it and gave it up");
    assert_eq!(w.ack("B", 1, 1, ACCEPT), None, "B's lease stood all the time");
}

#[test]
fn so_does_one_whose_member_is_gone() {
    let mut w = about_to_be_read_anew();
    w.left("A", LeftBy::SessionTimeout);
    read_on(&mut w);
    assert_eq!(w.fetch("C", 10), [(0, 0, 2)]);
}

#[test]
fn so_does_one_whose_grace_is_over() {
    let mut w = about_to_be_read_anew();
    w.lose("A");
    w.pass_ms(7_500);
    read_on(&mut w);
    assert_eq!(w.fetch("C", 10), [(0, 0, 2)]);
}

#[test]
fn so_does_one_that_is_replaced_after_a_loss_with_no_fetch_out() {
    let mut w = about_to_be_read_anew();
    w.lose("A");
    w.reopen("A");
    let ticket = w.send("A", &Want { wait_ms: 60_000, ..want(1) });
    read_on(&mut w);
    assert_eq!(w.woken("A", ticket), Some(vec![(0, 0, 2)]), "its application has polled again");
}

#[test]
fn a_session_closed_while_the_state_cannot_be_read_gives_everything_back() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    (w.disk_full, w.unreadable) = (true, true);
    let refused = w.acknowledge("A", vec![range(0, 0, RELEASE)], None, false).unwrap();
    assert_eq!(refused.parts[0].error, Some(ShareError::Unavailable));
    (w.disk_full, w.unreadable) = (false, false);
    w.close_session("A", vec![]).unwrap();
    w.pass_ms(1_000);
    assert_eq!(w.fetch("B", 1), [(0, 0, 2)]);
}

#[test]
fn a_session_whose_end_could_not_be_stored_is_over_all_the_same() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.disk_full = true;
    w.close_session("A", vec![]).unwrap();
    w.disk_full = false;
    w.pass_ms(1_000);
    assert_eq!(w.fetch("B", 1), [(0, 0, 2)]);
}

#[test]
fn so_is_one_whose_last_acknowledgement_could_not_be_stored() {
    for ends_later in [false, true] {
        let mut w = World::keyed();
        w.log("a b");
        assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
        (w.slow_disk, w.disk_full) = (true, true);
        if ends_later {
            w.send_acks("A", vec![range(0, 0, ACCEPT)], None, false);
            w.send_acks("A", vec![], Some(-1), false);
        } else {
            w.send_acks("A", vec![range(0, 0, ACCEPT)], Some(-1), false);
        }
        w.serve_next();
        w.disk_full = false;
        read_on(&mut w);
        assert_eq!(w.fetch("B", 1), [(0, 0, 2)], "ends later: {ends_later}");
    }
}

#[test]
fn what_was_in_an_answer_that_was_not_written_when_the_session_ended_does_not_count() {
    for in_memory in [false, true] {
        let mut w = World::keyed();
        w.log("a b");
        w.written_at_once = false;
        let answer = w.send("A", &want(1));
        w.written_at_once = true;
        w.disk_full = true;
        if !in_memory {
            // A second failure leaves it unread for a while.
            w.fetch_with("B", &want(1)).unwrap();
            w.fetch_with("B", &want(1)).unwrap();
        }
        w.left("A", LeftBy::SessionTimeout);
        w.fact(Fact::AnswerWritten(answer));
        w.disk_full = false;
        w.pass_ms(2_000);
        assert_eq!(w.fetch("C", 1), [(0, 0, 1)], "in memory: {in_memory}");
    }
}

#[test]
fn what_a_member_was_given_after_it_came_back_stays_its_own() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.close_session("A", vec![]).unwrap();
    assert_eq!(w.fetch("A", 1), [(0, 0, 2)]);
    assert_eq!(w.fetch("B", 1), [(1, 1, 1)]);
    w.disk_full = true;
    w.ack("B", 1, 1, ACCEPT);
    w.disk_full = false;
    w.pass_ms(1_000);
    assert_eq!(w.fetch("C", 10), []);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
}

#[test]
fn a_session_closed_while_the_state_is_read_after_a_restart_gives_everything_back() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w.restart(0);
    w.slow_disk = true;
    w.send("A", &Want { epoch: Some(0), ..want(0) });
    w.send_acks("A", vec![], Some(-1), false);
    read_on(&mut w);
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)], "what a restart ended does not count");
}

#[test]
fn a_member_that_leaves_before_anybody_has_asked_gives_back_what_it_held_before_the_restart() {
    for stays_connected in [true, false] {
        let mut w = World::keyed();
        w.log("a b");
        assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
        w.restart(0);
        let connection = w.heartbeat_connection("A");
        w.left("A", LeftBy::Heartbeat);
        if !stays_connected {
            w.close(connection);
        }
        assert_eq!(w.fetch("B", 1), [(0, 0, 1)], "connected: {stays_connected}");
    }
}

#[test]
fn a_member_that_stops_when_it_loses_its_session_has_given_up_what_a_later_read_shows_of_it() {
    let mut w = World::keyed();
    w.log("a b");
    let terms = KeyShareTerms { keys_max: 0, records_per_key_max: 0, stops_at_disconnect: true };
    let numbered = |max| Want { key_share: Some(terms), ..want(max) };
    assert_eq!(w.fetch_with("A", &numbered(1)).unwrap(), [(0, 0, 1)]);
    w.restart(0);
    w.reopen("A");
    w.slow_disk = true;
    w.send("A", &numbered(0));
    read_on(&mut w);
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)]);
}
