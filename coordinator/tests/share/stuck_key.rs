//! A key that is stuck, or merely hot, and what lies behind it: nothing else waits, memory is bounded, and all of it comes.

use crate::common::{ACCEPT, RELEASE, World, key, none_config, offsets, partition, range};
use crate::scale::{accept, append, drain, fits, numbered, scaled, shrink, window_bytes};
use coordinator::io::ScannedKind;
use coordinator::share::ShareOrder;

/// A world whose window is small enough for this scale, with 0:hot in A's hands.
fn hot_is_held() -> World {
    let mut w = World::keyed();
    w.config.window_bytes_max = window_bytes();
    w.config.key_inflight_max = 1;
    w.configure();
    w.log("hot");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    w
}

/// More records of one key may be with a member from now on.
fn all_at_once(w: &mut World) {
    w.config.key_inflight_max = 1_000;
    w.configure();
}

#[test]
fn k34_a_stuck_key_and_a_million_records_behind_it() {
    let total = scaled(1_000_000);
    let mut w = hot_is_held();
    append(&mut w, (0..total).map(|i| if i % 2 == 0 { key("hot") } else { numbered(i % 2_000) }), 100);
    let others = drain(&mut w, "B", fits);
    assert_eq!(others.len(), total / 2);
    assert!(others.iter().all(|&(offset, count)| offset % 2 == 0 && count == 1));
    let stuck = |w: &mut World| {
        let view = w.view();
        assert_eq!((view.start.get(), view.scan.get()), (0, total as i64 + 1));
        assert_eq!((view.spilled_keys, view.out, view.bound), (1, 1, None));
        assert!(view.spilled > total as u64 / 4, "{} of the hot key have no slot", view.spilled);
        assert!(view.heap_bytes < w.config.window_bytes_max / 2, "{} bytes", view.heap_bytes);
        let told = w.describe(&[]).unwrap();
        let [span] = &told.spans[..] else { panic!("one key is a span: {:?}", told.spans) };
        assert_eq!((Some(span.key), span.records, told.spilled), (key("hot"), view.spilled, view.spilled));
        assert!(span.first.get() % 2 == 1, "the first record without a slot is one of its own: {span:?}");
    };
    stuck(&mut w);
    let spilled = w.view().spilled;

    // kill -9 and a start: the same, and A is back within its grace.
    w.restart(100);
    ["A", "B"].iter().for_each(|member| w.reopen(member));
    assert_eq!(w.fetch("B", 500), []);
    assert_eq!(w.fetch("A", 1), []);
    stuck(&mut w);
    assert!(w.view().spilled.abs_diff(spilled) < total as u64 / 4);

    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    all_at_once(&mut w);
    let before = w.finds;
    let hot = drain(&mut w, "B", fits);
    let expected: Vec<(i64, i16)> = (0..total as i64).step_by(2).map(|i| (i + 1, 1)).collect();
    assert_eq!(hot, expected, "all of them, in order");
    let finds = w.finds - before;
    assert!(finds as u64 <= spilled / 100 + 1, "{finds} look-ups for {spilled} records");
    let view = w.view();
    assert_eq!((view.start.get(), view.spilled, view.spilled_keys), (total as i64 + 1, 0, 0));
}

#[test]
fn k35_others_far_behind_a_big_key() {
    let mut w = hot_is_held();
    append(&mut w, std::iter::repeat_n(key("hot"), 150_000), 1_000);
    let first = w.view().scan.get();
    w.log("a b c d e f g h i j");
    assert_eq!(offsets(&w.fetch("B", 500)), (150_001..150_011).collect::<Vec<_>>(), "was at {first}");
    fits(&w);
}

#[test]
fn k36_the_distance_is_no_limit() {
    let mut w = hot_is_held();
    append(&mut w, (0..10_000).map(|i| numbered(i % 3_000)), 50);
    let mut passed = 0;
    while passed < 10_000 {
        let got = w.fetch("B", 100);
        assert!(!got.is_empty(), "stopped after {passed}");
        passed += offsets(&got).len();
        accept(&mut w, "B", &got);
    }
    assert_eq!(w.start(), 0);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    assert_eq!(w.start(), 10_001);
}

#[test]
fn k38_blocked_records_are_read_once() {
    let mut w = hot_is_held();
    w.config.window_bytes_max = 64 << 10;
    w.limits.scan_bytes_max = 16 << 10;
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 1), []);
    let hot = |i: usize| if i % 1_000 == 999 { numbered(i) } else { key("hot") };
    append(&mut w, (0..10_000).map(hot), 10);
    let (free, scanned) = (drain(&mut w, "B", fits), w.scanned_bytes);
    assert_eq!(free.len(), 10);
    assert!(scanned <= 10_001 * 110, "{scanned} bytes for a million");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    all_at_once(&mut w);
    assert_eq!(drain(&mut w, "B", fits).len(), 9_990);
    assert_eq!(w.scanned_bytes, scanned, "found by look-ups, not by another scan");
}

#[test]
fn a_flowing_key_is_fed_before_it_runs_out() {
    let mut w = hot_is_held();
    append(&mut w, std::iter::repeat_n(key("hot"), 30_000), 100);
    for next in 1..30_000 {
        assert_eq!(w.ack("A", next - 1, next - 1, ACCEPT), None);
        assert_eq!(w.fetch("A", 1), [(next, next, 1)]);
        if next % 97 == 0 {
            assert_eq!(w.ack("A", next, next, RELEASE), None);
            assert_eq!(w.fetch("A", 1), [(next, next, 2)], "what comes back goes before what has no slot");
        }
    }
}

/// 0:hot is held, `count` hot records lie behind it, of which most have no slot.
fn spilled(count: usize, prepare: impl FnOnce(&mut World)) -> World {
    let mut w = World::keyed();
    w.config.window_bytes_max = 128 << 10;
    w.config.key_inflight_max = 1;
    w.config.read_committed = true;
    w.configure();
    w.log("hot");
    prepare(&mut w);
    w.configure();
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    append(&mut w, std::iter::repeat_n(key("hot"), count), 100);
    assert_eq!(w.fetch("B", 1), []);
    assert!(w.view().spilled as usize > count / 2, "{:?}", w.view());
    w
}

/// What comes when 0 is accepted, with a fetch of B parked; everything is done then.
fn comes(w: &mut World) -> Vec<i64> {
    all_at_once(w);
    let gone = w.start() > 0;
    let parked = w.park("B", 500);
    let at_once = w.woken("B", parked);
    assert!(gone || at_once.is_none(), "{at_once:?}");
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    let mut all = Vec::new();
    let end = w.logs[&partition(0)].facts.end.get();
    match at_once.or_else(|| w.woken("B", parked)) {
        Some(got) => {
            // What was compacted while it had a slot shows when it is to be sent: the answer is empty then, and not late.
            assert!(!got.is_empty() || !w.logs[&partition(0)].compacted.is_empty());
            assert!(got.iter().all(|range| range.2 == 1), "{got:?}");
            all.extend(offsets(&got));
            accept(w, "B", &got);
        }
        // Nothing is left: no fetch waits for it.
        None => {
            w.log("other");
            assert_eq!(w.woken("B", parked), Some(vec![(end, end, 1)]), "no fetch waits for what is gone");
            assert_eq!(w.ack("B", end, end, ACCEPT), None);
        }
    }
    for _ in 0..20 {
        for (offset, count) in drain(w, "B", fits) {
            assert_eq!(count, 1);
            all.push(offset);
        }
    }
    let view = w.view();
    assert_eq!((view.spilled, view.spilled_keys, view.leased_keys), (0, 0, 0), "the key is gone");
    assert_eq!(view.start.get(), w.logs[&partition(0)].facts.end.get(), "the start passes what is gone");
    all
}

/// Keeps these records of the log alone, as compaction does.
fn compact(w: &mut World, keep: impl Fn(i64) -> bool) {
    let log = w.logs.get_mut(&partition(0)).unwrap();
    log.compacted = (0..log.facts.end.get()).filter(|&offset| !keep(offset)).collect();
    for batch in &mut log.batches {
        if let ScannedKind::Data(records) = &mut batch.kind {
            records.retain(|record| keep(record.offset.get()));
        }
    }
    log.batches.retain(|batch| !matches!(&batch.kind, ScannedKind::Data(records) if records.is_empty()));
}

#[test]
fn k65_compaction_leaves_only_the_last_of_a_span() {
    let mut w = spilled(20_000, |_| {});
    compact(&mut w, |offset| offset == 0 || offset == 20_000);
    assert_eq!(comes(&mut w), [20_000]);
}

#[test]
fn k65_aborted_records_of_a_span_never_come() {
    let mut w = World::keyed();
    w.config.window_bytes_max = 128 << 10;
    w.config.key_inflight_max = 1;
    w.config.read_committed = true;
    w.configure();
    w.log("hot");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    append(&mut w, std::iter::repeat_n(key("hot"), 10_000), 100);
    for _ in 0..10 {
        w.append(0, ScannedKind::Aborted, 100);
    }
    append(&mut w, std::iter::repeat_n(key("hot"), 9_000), 100);
    let expected: Vec<i64> = (1..10_001).chain(11_001..20_001).collect();
    assert_eq!(comes(&mut w), expected);
}

#[test]
fn k65_deleted_records_of_a_span_never_come() {
    for at in [500, 15_000, 20_001] {
        let mut w = spilled(20_000, |_| {});
        w.log_start(at);
        assert_eq!(w.start(), at);
        assert_eq!(w.view().counters.left_log, at as u64, "all were lost");
        let lag = 20_001 - at as u64;
        assert!(w.view().spilled <= lag, "{:?}", w.view());
        // 0 has left the log as well: its late accept is no error and changes nothing.
        assert_eq!(comes(&mut w), (at..20_001).collect::<Vec<_>>());
    }
}

#[test]
fn k65_what_was_accepted_before_order_was_switched_on_never_comes_again() {
    let mut w = World::new(none_config());
    w.config.window_bytes_max = 64 << 10;
    w.config.record_locks_max = 2_000;
    w.configure();
    append(&mut w, std::iter::repeat_n(key("hot"), 20_000), 100);
    assert_eq!(w.fetch("A", 100), [(0, 99, 1)]);
    let thirds = |first: i64, last: i64| (first..=last).filter(|offset| offset % 3 == 1);
    for first in (100..1_900).step_by(100) {
        assert_eq!(w.fetch("B", 100), [(first, first + 99, 1)]);
        let accepts: Vec<_> = thirds(first, first + 99).map(|at| range(at, at, ACCEPT)).collect();
        assert_eq!(w.ack_ranges("B", accepts), None);
    }
    assert_eq!(w.ack("A", 1, 99, ACCEPT), None);
    w.config.order = ShareOrder::Key;
    w.config.key_inflight_max = 1_000;
    w.config.hold_target_ms = 0;
    w.configure();
    // What B holds of the key keeps it from everyone; B gives it back.
    assert_eq!(w.fetch("C", 10), []);
    drop(w.close_session("B", vec![]).unwrap());
    assert_eq!(w.fetch("C", 10), [], "A holds 0");
    w.reopen("B");
    let parked = w.park("B", 500);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    let got = w.woken("B", parked).unwrap();
    let mut all = offsets(&got);
    accept(&mut w, "B", &got);
    all.extend(drain(&mut w, "B", |_| {}).into_iter().map(|record| record.0));
    let expected: Vec<i64> = (100..20_000).filter(|&at| at >= 1_900 || at % 3 != 1).collect();
    assert_eq!(all, expected);
    assert_eq!(w.start(), 20_000);
}

#[test]
fn k65_all_of_a_span_is_gone() {
    for deleted in [false, true] {
        let mut w = spilled(20_000, |_| {});
        compact(&mut w, |offset| offset == 0);
        if deleted {
            // So that nothing of it has a slot.
            let resident = 20_000 - w.view().spilled as i64;
            w.log_start(resident + 1);
        }
        assert_eq!(comes(&mut w), []);
    }
}

#[test]
fn k47_a_span_survives_that_order_is_switched_off_and_on() {
    let mut w = spilled(20_000, |_| {});
    w.config.record_locks_max = 4_000;
    w.config.order = ShareOrder::None;
    w.configure();
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    let mut all = Vec::new();
    while all.len() < 9_000 {
        let got = w.fetch("B", 500);
        assert!(!got.is_empty(), "stopped after {} at {:?}", all.len(), w.view());
        all.extend(offsets(&got));
        accept(&mut w, "B", &got);
    }
    w.config.order = ShareOrder::Key;
    w.config.key_inflight_max = 1_000;
    w.configure();
    all.extend(drain(&mut w, "B", |_| {}).into_iter().map(|record| record.0));
    assert_eq!(all.len(), 20_000, "{:?}", w.view());
    all.sort_unstable();
    assert_eq!(all, (1..=20_000).collect::<Vec<_>>());
    assert_eq!(w.start(), 20_001);
}

#[test]
fn k69_a_restart_with_ten_million_settled_reads_none_of_them() {
    let total = scaled(10_000_000);
    let mut w = World::keyed();
    w.config.window_bytes_max = window_bytes();
    w.config.key_inflight_max = 1;
    w.limits.snapshot_after_scan_bytes /= shrink() as u64;
    w.restart(0);
    w.log("stuck");
    assert_eq!(w.fetch("A", 1), [(0, 0, 1)]);
    let stuck = |i: usize| if i % 1_000 == 999 { key("stuck") } else { numbered(i % 5_000) };
    append(&mut w, (0..total).map(stuck), 500);
    let others = drain(&mut w, "B", fits);
    assert_eq!(others.len(), total - total / 1_000);
    drop(others);
    w.restart(100);
    ["A", "B"].iter().for_each(|member| w.reopen(member));
    (w.scan_low, w.scanned_bytes) = (i64::MAX, 0);
    w.log("new");
    let end = total as i64 + 1;
    assert_eq!(w.fetch("B", 500), [(end, end, 1)], "the new one goes out at once");
    let unread = w.snapshot_scan();
    assert!(w.scan_low >= unread, "read from {} on, the snapshot had come to {unread}", w.scan_low);
    let read_again = w.limits.snapshot_after_scan_bytes + w.config.window_bytes_max;
    assert!(w.scanned_bytes <= read_again, "{} bytes of {}", w.scanned_bytes, end * 100);
    fits(&w);
    assert_eq!(w.ack("B", end, end, ACCEPT), None);
    w.pass_ms(7_500);
    all_at_once(&mut w);
    assert_eq!(w.fetch("B", 1), [(0, 0, 1)], "a restart is nobody's failure");
    assert_eq!(w.ack("B", 0, 0, ACCEPT), None);
    let rest = drain(&mut w, "B", fits);
    let expected: Vec<(i64, i16)> = (0..total as i64 / 1_000).map(|i| (i * 1_000 + 1_000, 1)).collect();
    assert_eq!(rest, expected);
    assert_eq!(w.start(), end + 1);
}
