//! How far the log is read ahead: as far as the batch cache goes, and farther only for someone who gets nothing.

use std::sync::Arc;

use coordinator::share::admin::Why;
use coordinator::share::{Bound, WindowLimits};

use crate::common::{World, key, offsets};
use crate::hand::at;
use crate::scale::{accept, append, numbered};

/// Records of 100 bytes; the window takes ten of them before it reads far, and a scan brings about as many.
const FAR: i64 = 10;

/// 0:hot is in A's hands, and 100 more of its records lie behind it.
fn hot_is_held() -> World {
    let mut w = World::keyed();
    w.config.key_inflight_max = 1;
    w.limits.scan_bytes_max = 1_000;
    w.limits.window = Arc::new(WindowLimits { read_far_bytes: 1_000, ..Default::default() });
    w.restart(0);
    append(&mut w, (0..101).map(|_| key("hot")), 1);
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    assert!(w.view().scan.get() <= 2 * FAR, "nobody needs more: {:?}", w.view());
    w
}

#[test]
fn what_nobody_needs_is_not_read() {
    let mut w = World::keyed();
    w.limits.scan_bytes_max = 1_000;
    w.limits.window = Arc::new(WindowLimits { read_far_bytes: 1_000, ..Default::default() });
    w.restart(0);
    append(&mut w, (0..1_000).map(numbered), 1);
    let mut came = 0;
    while came < 1_000 {
        let parked = w.park("A", 5);
        let got = w.woken("A", parked).expect("there is always enough at hand");
        came += offsets(&got).len() as i64;
        assert!(w.view().scan.get() <= came + 2 * FAR, "{came} came: {:?}", w.view());
        accept(&mut w, "A", &got);
    }
    assert_eq!(w.scanned_bytes, 100_000, "all of it was read once");
}

#[test]
fn who_waits_has_it_read_on() {
    let mut w = hot_is_held();
    w.log("a");
    let parked = w.park("B", 1);
    assert_eq!(w.woken("B", parked), None);
    assert!(w.view().scan.get() <= 2 * FAR, "A may be done soon: {:?}", w.view());
    w.pass_ms(5);
    assert_eq!(offsets(&w.woken("B", parked).expect("it is read to the end")), [101]);
}

#[test]
fn who_does_not_wait_has_it_read_on_at_once() {
    let mut w = hot_is_held();
    w.log("a");
    assert_eq!(offsets(&w.fetch("B", 1)), [101]);
    w.log("b");
    let parked = w.send("B", &crate::common::Want { wait_ms: 4, ..crate::common::want(1) });
    assert_eq!(offsets(&w.woken("B", parked).expect("it is read to the end")), [102]);
}

#[test]
fn who_waits_is_not_held_up_by_others_that_are_served() {
    let mut w = hot_is_held();
    w.config.key_inflight_max = 1_000;
    w.configure();
    w.log("a");
    // A takes one record of its key after the other, every millisecond, and B gets none of that key.
    let parked = w.park("B", 1);
    let mut waited = 0;
    let woken = loop {
        if let Some(got) = w.woken("B", parked) {
            break got;
        }
        assert!(waited < 6, "B has waited for {waited} ms: {:?}", w.view());
        assert!(!w.fetch("A", 1).is_empty());
        w.pass_ms(1);
        waited += 1;
    };
    assert_eq!(offsets(&woken), [101]);
}

#[test]
fn nothing_is_read_for_who_waits_for_a_lock() {
    let mut w = World::keyed();
    w.config.record_locks_max = 10;
    w.limits.scan_bytes_max = 1_000;
    w.limits.window = Arc::new(WindowLimits { read_far_bytes: 1_000, ..Default::default() });
    w.restart(0);
    append(&mut w, (0..1_000).map(numbered), 1);
    let held = w.fetch("A", 10);
    assert_eq!(offsets(&held).len(), 10);
    let parked = w.park("B", 10);
    w.pass_ms(20);
    assert_eq!(w.woken("B", parked), None);
    let at_once = w.send("C", &crate::common::Want { wait_ms: 0, ..crate::common::want(10) });
    assert_eq!(w.woken("C", at_once), Some(vec![]), "nothing is under way that could bring more");
    assert!(w.view().scan.get() <= 3 * FAR, "all locks are A's: {:?}", w.view());
    assert_eq!(w.why(at(900)), Why::NotScannedBound(Bound::RecordLocks));
    accept(&mut w, "A", &held);
    assert_eq!(offsets(&w.woken("B", parked).expect("they are free")), (10..20).collect::<Vec<_>>());
}
