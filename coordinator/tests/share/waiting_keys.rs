//! Many keys that wait for a retry: they leave memory, come back at their time, and keep nobody up.

use std::collections::BTreeMap;

use crate::common::{ACCEPT, RELEASE, World, each, offsets, partition, range};
use crate::scale::{accept, append, drain, fits, numbered, scaled, window_bytes};
use coordinator::share::Bound;

fn world(backoff_ms: i64) -> World {
    let mut w = World::keyed();
    w.config.window_bytes_max = window_bytes();
    (w.config.backoff_ms, w.config.backoff_max_ms) = (backoff_ms, backoff_ms.max(60_000));
    w.configure();
    w
}

/// Fetches everything that is ready; every record of an even offset is accepted, the others are released.
fn half(w: &mut World, member: &str) -> (usize, usize) {
    let (mut accepted, mut released) = (0, 0);
    loop {
        let got = w.fetch(member, 500);
        if got.is_empty() {
            return (accepted, released);
        }
        let acks =
            offsets(&got).into_iter().map(|at| range(at, at, if at % 2 == 0 { ACCEPT } else { RELEASE }));
        let acks: Vec<_> = acks.collect();
        released += acks.iter().filter(|ack| ack.types == [RELEASE]).count();
        accepted += acks.iter().filter(|ack| ack.types == [ACCEPT]).count();
        assert_eq!(w.ack_ranges(member, acks), None);
        w.deliveries.clear();
        fits(w);
    }
}

#[test]
fn k37_every_second_of_a_million_keys_is_held_back() {
    let total = scaled(1_000_000);
    let mut w = world(600_000);
    w.config.backoff_max_ms = 600_000;
    w.configure();
    append(&mut w, (0..total).map(numbered), 100);
    assert_eq!(half(&mut w, "A"), (total / 2, total / 2));
    assert_eq!(w.view().waiting_keys, total / 2);
    assert!(w.view().resting_keys > total / 4, "{:?}", w.view());

    // What is settled takes 8 KiB for 64 Ki offsets at most on the disk, a waiting key about twenty bytes.
    let stored = &w.stored[&(crate::common::group(), partition(0))];
    let pages: usize = stored.pages.values().map(bytes::Bytes::len).sum();
    let snapshot = stored.snapshot.as_ref().unwrap().len();
    let bound =
        total.div_ceil(1 << 16) * (8 << 10) + total / 2 * 22 + (w.config.window_bytes_max / 4) as usize;
    assert!(pages + snapshot < bound, "{pages} and {snapshot} bytes, {bound} at most");

    w.restart(1_000);
    w.reopen("A");
    assert_eq!(w.fetch("A", 500), []);
    fits(&w);
    assert_eq!(w.view().waiting_keys, total / 2);
    w.pass_ms(598_000);
    assert_eq!(w.fetch("A", 500), [], "not before its time");
    w.pass_ms(1_000);
    let mut again = drain(&mut w, "A", fits);
    again.sort_unstable();
    let expected: Vec<(i64, i16)> = (0..total as i64).filter(|at| at % 2 == 1).map(|at| (at, 2)).collect();
    assert_eq!(again, expected, "exactly the others, once");
    assert_eq!(w.start(), total as i64);
    fits(&w);
}

#[test]
fn k37_past_so_many_waiting_keys_nothing_new_is_read() {
    let mut w = world(600_000);
    w.config.stuck_keys_max = 1_000;
    w.configure();
    append(&mut w, (0..40_000).map(numbered), 100);
    let (_, released) = half(&mut w, "A");
    let view = w.view();
    assert!(released >= 1_000 && view.scan.get() < 40_000, "{view:?}");
    assert_eq!(view.bound, Some(Bound::StuckKeys));
    let scan = view.scan;
    let parked = w.park("B", 2);
    assert_eq!(w.woken("B", parked), None, "nothing beyond the scan offset goes out");
    // Keys that fall due still do.
    w.pass_ms(600_000);
    let got = w.woken("B", parked).unwrap();
    assert!(each(&got).iter().all(|&(at, count)| at < scan.get() && count == 2));
    accept(&mut w, "B", &got);
    drain(&mut w, "B", |_| {});
    assert_eq!(w.view().bound, None);
    assert_eq!(w.start(), 40_000, "and everything comes in the end");
}

#[test]
fn k37_the_first_waiting_key_that_is_done_opens_the_bound() {
    let mut w = world(1_000);
    (w.config.stuck_keys_max, w.config.backoff_max_ms) = (1, 1_000);
    w.configure();
    w.log("a b");
    assert_eq!(offsets(&w.fetch("A", 1)), [0]);
    assert_eq!(w.ack("A", 0, 0, RELEASE), None);
    assert_eq!(w.view().bound, None, "as many as may wait");
    w.log("c");
    assert_eq!(offsets(&w.fetch("A", 9)), [1, 2]);
    w.pass_ms(500);
    assert_eq!(w.ack("A", 1, 1, RELEASE), None);
    w.log("d e");
    assert_eq!(w.view().bound, Some(Bound::StuckKeys), "one more");
    assert_eq!(w.fetch("A", 9), [], "nothing new is read");
    assert_eq!(w.ack("A", 2, 2, ACCEPT), None, "acknowledgements are answered and count");
    let parked = w.park("B", 1);
    w.pass_ms(499);
    assert_eq!(w.woken("B", parked), None);
    w.pass_ms(1);
    assert_eq!(offsets(&w.woken("B", parked).unwrap()), [0], "what is due goes out");
    assert_eq!(w.view().bound, None);
    assert_eq!(offsets(&w.fetch("A", 9)), [3, 4], "and it reads on by itself");
}

/// Healthy keys produce in every step, `released` keys are released once, at 10 a millisecond.
struct Outage {
    w: World,
    /// When a released record may come again, at the earliest, and whether it did.
    due: BTreeMap<i64, (u64, bool)>,
    produced: usize,
}

const WAIT_MS: i64 = 60_000;
const STEP_MS: i64 = 100;

impl Outage {
    fn step(&mut self, failing: usize) {
        let w = &mut self.w;
        let from = self.produced;
        self.produced += failing;
        let healthy =
            (0..scaled(1_000).max(50)).map(|i| crate::common::key(&format!("healthy-{}", i % 1_000)));
        let first_failing = w.logs[&partition(0)].facts.end.get();
        append(w, (from..self.produced).map(numbered).chain(healthy), 100);
        let first_healthy = first_failing + failing as i64;
        let end = w.logs[&partition(0)].facts.end.get();
        let mut healthy_done = 0;
        loop {
            let got = w.fetch("A", 500);
            if got.is_empty() {
                break;
            }
            let now = w.now.mono.0;
            let mut acks = Vec::new();
            for (at, count) in each(&got) {
                if (first_failing..first_healthy).contains(&at) {
                    assert_eq!(count, 1);
                    self.due.insert(at, (now + WAIT_MS as u64 * 1_000, false));
                    acks.push(range(at, at, RELEASE));
                    continue;
                }
                acks.push(range(at, at, ACCEPT));
                if at >= first_healthy {
                    assert_eq!(count, 1);
                    healthy_done += 1;
                } else if let Some((due, came)) = self.due.get_mut(&at) {
                    assert_eq!(count, 2);
                    assert!(*due <= now, "{at} is {} µs too early", *due - now);
                    assert!(!std::mem::replace(came, true), "{at} comes once");
                } else {
                    panic!("{at} was done");
                }
            }
            assert_eq!(w.ack_ranges("A", acks), None);
            w.deliveries.clear();
            fits(w);
        }
        assert_eq!(healthy_done, end - first_healthy, "healthy keys go on at once: {:?}", w.view());
        self.w.pass_ms(STEP_MS);
    }

    /// What is due has come.
    fn on_time(&self) {
        let now = self.w.now.mono.0;
        let late =
            self.due.values().filter(|(due, came)| !came && due + 2 * STEP_MS as u64 * 1_000 < now).count();
        assert_eq!(late, 0, "due and not here");
    }
}

#[test]
fn k63_a_million_keys_wait() {
    let total = scaled(1_000_000);
    let w = world(WAIT_MS);
    let mut outage = Outage { w, due: BTreeMap::new(), produced: 0 };
    // 10,000 a second, at full scale: within the wait of the first, most of them are out of memory.
    let failing = total / 500;
    for step in 0..500 {
        outage.step(failing);
        if step == 250 {
            let pages = outage.w.pages_read;
            assert_eq!(pages, 0, "keys that are not due are not read back");
            outage.w.restart(STEP_MS);
            outage.w.reopen("A");
            for due in outage.due.values_mut() {
                due.0 -= STEP_MS as u64 * 1_000;
            }
        }
    }
    let view = outage.w.view();
    assert_eq!(view.waiting_keys, total, "{view:?}");
    assert!(view.resting_keys > total / 2, "{view:?}");
    let (_, group) = outage.w.machine.group_views(&outage.w.table).next().expect("there is one");
    assert_eq!(group.waiting_keys, total, "in pages, too");
    for _ in 0..(WAIT_MS / STEP_MS + 10) {
        outage.step(0);
        outage.on_time();
    }
    assert!(outage.due.values().all(|(_, came)| *came), "every one of them came");
    let view = outage.w.view();
    assert_eq!((view.waiting_keys, view.resting_keys), (0, 0));
    assert_eq!(view.start.get(), outage.w.logs[&partition(0)].facts.end.get());
}

/// Keys at rest may have later records: they wait for their key, wherever it is.
#[test]
fn k63_later_records_of_a_key_in_a_page_come_after_it() {
    let keys = scaled(200_000);
    let mut w = world(WAIT_MS);
    append(&mut w, (0..keys).map(numbered), 100);
    release_all(&mut w);
    assert!(w.view().resting_keys > keys / 2, "{:?}", w.view());
    // A later record of each key, and once more with a restart in between: marks survive it.
    append(&mut w, (0..keys).map(numbered), 100);
    assert_eq!(w.fetch("A", 500), []);
    w.restart(10);
    w.reopen("A");
    append(&mut w, (0..keys / 10).map(numbered), 100);
    assert_eq!(w.fetch("A", 500), [], "they wait behind what waits");
    fits(&w);
    w.pass_ms(WAIT_MS);
    let mut came: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
    for (at, count) in drain(&mut w, "A", fits) {
        assert_eq!(count, if at < keys as i64 { 2 } else { 1 });
        came.entry(at as usize % keys).or_default().push(at);
    }
    for (key, came) in &came {
        let all = (0..3).map(|round| (round * keys + key) as i64);
        let expected: Vec<i64> = all.take(if *key < keys / 10 { 3 } else { 2 }).collect();
        assert_eq!(came, &expected, "in order");
    }
    assert_eq!(came.len(), keys);
    assert_eq!(w.start(), w.logs[&partition(0)].facts.end.get());
    assert_eq!(w.view().spilled_keys, 0);
}

/// Fetches and releases everything that is ready.
fn release_all(w: &mut World) {
    loop {
        let got = w.fetch("A", 500);
        if got.is_empty() {
            return;
        }
        let acks = got.iter().map(|&(first, last, _)| range(first, last, RELEASE)).collect();
        assert_eq!(w.ack_ranges("A", acks), None);
        w.deliveries.clear();
        fits(w);
    }
}

#[test]
fn k61_a_wait_in_a_page_does_not_follow_the_wall_clock() {
    for step_ms in [-3_600_000, 3_600_000] {
        let keys = scaled(400_000);
        let mut w = world(WAIT_MS);
        append(&mut w, (0..keys).map(numbered), 100);
        release_all(&mut w);
        assert!(w.view().resting_keys > keys / 4, "{:?}", w.view());
        w.pass_ms(20_000);
        w.now.wall_ms += step_ms;
        w.pass_ms(39_999);
        assert_eq!(w.fetch("A", 500), []);
        w.pass_ms(1);
        assert_eq!(drain(&mut w, "A", fits).len(), keys, "unchanged while the broker runs");
    }
}

#[test]
fn k64_a_waiting_record_leaves_the_log_while_its_key_is_in_a_page() {
    let keys = scaled(400_000);
    let mut w = world(3_600_000);
    w.config.backoff_max_ms = 3_600_000;
    w.configure();
    append(&mut w, (0..keys).map(numbered), 100);
    release_all(&mut w);
    append(&mut w, (0..keys).map(numbered), 100);
    let parked = w.park("A", 500);
    assert_eq!(w.woken("A", parked), None);
    w.log_start(keys as i64);
    assert_eq!(w.view().counters.left_log, keys as u64);
    let got = w.woken("A", parked).expect("what waited for them is ready at once");
    let first = offsets(&got);
    accept(&mut w, "A", &got);
    let mut all: Vec<i64> =
        drain(&mut w, "A", fits).into_iter().map(|record| record.0).chain(first).collect();
    all.sort_unstable();
    assert_eq!(all, (keys as i64..2 * keys as i64).collect::<Vec<_>>());
    assert_eq!(w.start(), 2 * keys as i64);
}

#[test]
fn records_without_a_key_rest_in_pages_too() {
    let count = scaled(400_000);
    let mut w = world(WAIT_MS);
    append(&mut w, std::iter::repeat_n(None, count), 100);
    release_all(&mut w);
    assert!(w.view().resting_keys > count / 4, "{:?}", w.view());
    w.log("-");
    assert_eq!(w.fetch("A", 500), [(count as i64, count as i64, 1)], "they hold nobody up");
    assert_eq!(w.ack("A", count as i64, count as i64, ACCEPT), None);
    w.restart(0);
    w.reopen("A");
    w.pass_ms(WAIT_MS - 1);
    assert_eq!(w.fetch("A", 500), []);
    w.pass_ms(1);
    assert_eq!(drain(&mut w, "A", fits).len(), count);
    assert_eq!(w.start(), count as i64 + 1);
}

/// Key a waits for its retry in a page, behind which b is done.
fn let_one_rest(w: &mut World) {
    w.limits.snapshot_after_bytes = 1;
    let window = coordinator::share::WindowLimits { waits_max: 0, ..Default::default() };
    w.limits.window = std::sync::Arc::new(window);
    w.restart(0);
    w.log("a");
    assert_eq!(offsets(&w.fetch("A", 1)), [0]);
    assert_eq!(w.ack("A", 0, 0, RELEASE), None);
    w.log("b");
    assert_eq!(offsets(&w.fetch("A", 1)), [1]);
    assert_eq!(w.ack("A", 1, 1, ACCEPT), None);
    assert_eq!(w.view().resting_keys, 1, "{:?}", w.view());
}

/// Without order nothing goes out beyond the span, so that what rests in a page is all that could move it on.
#[test]
fn what_rests_comes_back_without_order_although_the_window_is_full() {
    let mut w = World::keyed();
    (w.config.backoff_ms, w.config.backoff_max_ms, w.config.window_bytes_max) = (3_000, 3_000, 2_048);
    w.config.record_locks_max = 100;
    let_one_rest(&mut w);
    w.config.order = coordinator::share::ShareOrder::None;
    w.configure();
    for _ in 0..30 {
        w.log("c d e f g h i k");
    }
    let mut got = Vec::new();
    for _ in 0..400 {
        let more = offsets(&w.fetch("A", 500));
        for &at in &more {
            assert_eq!(w.ack("A", at, at, ACCEPT), None);
        }
        got.extend(more);
        w.pass_ms(100);
    }
    assert!(got.contains(&0), "{:?}", w.view());
    assert_eq!(w.start(), 242);
}

/// What was in a page is void since a power cut. Then the log is cut from below, and where the power cut fell is not known
/// any more, only that it was before the log's start.
#[test]
fn a_page_that_came_back_void_keeps_none_of_its_keys_after_another_restart() {
    let mut w = World::keyed();
    (w.config.backoff_ms, w.config.backoff_max_ms, w.config.window_bytes_max) = (60_000, 60_000, 2_048);
    let_one_rest(&mut w);

    w.limits.snapshot_after_bytes = 1 << 20;
    w.cut_log(0);
    w.restart(0);
    w.reopen("A");
    assert_eq!(w.fetch("A", 1), []);
    assert_eq!(w.view().resting_keys, 0, "{:?}", w.view());
    w.void_from = i64::MAX;
    w.log("c d");
    w.log_start(2);

    w.void_from = 2;
    w.restart(0);
    w.reopen("A");
    w.log("a");
    assert_eq!(offsets(&w.fetch("A", 1)), [2], "{:?}", w.view());
}
