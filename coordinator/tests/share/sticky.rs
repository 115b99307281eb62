//! Sticky assignment: every key has a home, and only idle keys move.

use std::collections::BTreeSet;

use coordinator::share::{LeftBy, ShareAssignment};

use crate::common::{ACCEPT, World, offsets};

const KEYS: i64 = 200;

/// `rounds` records of each key, key by key in every round, and members whose sessions are open.
fn world(members: &[&str], inflight: u32, rounds: usize) -> World {
    let mut w = World::keyed();
    w.config.assignment = ShareAssignment::Sticky;
    w.config.key_inflight_max = inflight;
    w.configure();
    for member in members {
        w.fetch(member, 0);
    }
    for _ in 0..rounds {
        w.log(&(0..KEYS).map(|key| format!("k{key} ")).collect::<String>());
    }
    w
}

/// The keys of what a member can get now.
fn keys(w: &mut World, member: &str) -> BTreeSet<i64> {
    offsets(&w.fetch(member, 1_000)).into_iter().map(|offset| offset % KEYS).collect()
}

fn accept(w: &mut World, member: &str, round: i64, keys: &BTreeSet<i64>) {
    for key in keys {
        assert_eq!(w.ack(member, round * KEYS + key, round * KEYS + key, ACCEPT), None);
    }
}

#[test]
fn k23_every_key_has_one_home_and_stays_there() {
    let mut w = world(&["A", "B"], 1, 3);
    let (a, b) = (keys(&mut w, "A"), keys(&mut w, "B"));
    assert!(a.is_disjoint(&b));
    assert_eq!(a.len() + b.len(), KEYS as usize);
    assert!((60..=140).contains(&a.len()), "about half each: {}", a.len());
    for round in 0..2 {
        accept(&mut w, "A", round, &a);
        accept(&mut w, "B", round, &b);
        // Whoever asks first gets no more than its own.
        assert_eq!(keys(&mut w, "B"), b);
        assert_eq!(keys(&mut w, "A"), a);
    }
}

#[test]
fn k23_only_idle_keys_move_to_who_comes() {
    let mut w = world(&["A", "B"], 1, 3);
    let (a, b) = (keys(&mut w, "A"), keys(&mut w, "B"));
    assert_eq!(keys(&mut w, "C"), BTreeSet::new(), "everything is in flight elsewhere");
    // C is now home of some of A's keys, of which every second is idle.
    let busy: BTreeSet<i64> = a.iter().copied().step_by(2).collect();
    accept(&mut w, "A", 0, &(&a - &busy));
    let idle = keys(&mut w, "C");
    assert!(!idle.is_empty() && idle.is_disjoint(&busy) && idle.is_subset(&a), "{idle:?}");
    assert_eq!(keys(&mut w, "A"), &(&a - &busy) - &idle);
    accept(&mut w, "A", 0, &busy);
    let settled = keys(&mut w, "C");
    assert!(!settled.is_empty() && settled.is_subset(&busy), "{settled:?}");
    assert_eq!(keys(&mut w, "A"), &busy - &settled);
    accept(&mut w, "B", 0, &b);
    let moved = keys(&mut w, "C");
    assert!(!moved.is_empty() && moved.is_subset(&b), "{moved:?}");
    assert_eq!(keys(&mut w, "B"), &b - &moved);
}

#[test]
fn k23_a_key_with_more_behind_it_moves_as_soon_as_it_is_settled() {
    let mut w = world(&["A"], 1_000, 1);
    let all = keys(&mut w, "A");
    assert_eq!(all.len(), KEYS as usize);
    w.fetch("C", 0);
    w.log(&(0..KEYS).map(|key| format!("k{key} ")).collect::<String>());
    let stayed = keys(&mut w, "A");
    assert!(!stayed.is_empty() && stayed.len() < all.len(), "keys that go to C drain: {}", stayed.len());
    assert_eq!(keys(&mut w, "C"), BTreeSet::new());
    accept(&mut w, "A", 0, &all);
    assert_eq!(keys(&mut w, "C"), &all - &stayed);
}

#[test]
fn k23_what_a_leaver_had_has_a_new_home_at_once() {
    for by_heartbeat in [false, true] {
        let mut w = world(&["A", "B", "C"], 1, 2);
        let (a, b, c) = (keys(&mut w, "A"), keys(&mut w, "B"), keys(&mut w, "C"));
        if by_heartbeat {
            accept(&mut w, "A", 0, &a);
            w.left("A", LeftBy::Heartbeat);
        } else {
            // What it gives back has a new home, too.
            accept(&mut w, "A", 0, &a.iter().copied().step_by(2).collect());
            w.close_session("A", Vec::new()).unwrap();
        }
        let (more_b, more_c) = (keys(&mut w, "B"), keys(&mut w, "C"));
        assert!(more_b.is_disjoint(&more_c) && more_b.is_disjoint(&b) && more_c.is_disjoint(&c));
        assert_eq!(&more_b | &more_c, a, "by heartbeat: {by_heartbeat}");
    }
}

#[test]
fn k23_keyless_records_and_a_group_that_changes_its_mind() {
    let mut w = world(&["A", "B"], 1, 1);
    w.log("- - -");
    let own = offsets(&w.fetch("A", 1_000));
    assert!(own.ends_with(&[KEYS, KEYS + 1, KEYS + 2]), "keyless ones belong to nobody");
    w.config.assignment = ShareAssignment::Dynamic;
    w.configure();
    w.log("- ");
    let all: BTreeSet<i64> = offsets(&w.fetch("A", 1_000)).into_iter().collect();
    assert_eq!(own.len() + all.len(), KEYS as usize + 4, "now whoever asks takes all");
}
