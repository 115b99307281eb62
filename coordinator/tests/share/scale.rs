//! How large the cases are that need a million records: whole with `SLUICE_SHARE_FULL=1` (`make test-share-full`), else a
//! twentieth, with a window to match.

use crate::common::{ACCEPT, Got, World, each, key, range};
use records::ids::KeyHash;

/// A case is this many times smaller.
pub(crate) fn shrink() -> usize {
    if std::env::var_os("SLUICE_SHARE_FULL").is_some() { 1 } else { 20 }
}

/// The window's bound for this scale: 16 MiB for the whole case. A small one has room for what does not shrink: the
/// buckets of the set of resting keys take 160 KiB, and what each leaves free nearly as much, within three quarters.
pub(crate) fn window_bytes() -> u64 {
    let whole = 16 << 20;
    if shrink() == 1 { whole } else { whole / shrink() as u64 + (416 << 10) }
}

pub(crate) fn scaled(full: usize) -> usize {
    full / shrink()
}

/// Appends records of these keys in batches of `batch`.
pub(crate) fn append(w: &mut World, keys: impl Iterator<Item = Option<KeyHash>>, batch: usize) {
    let mut open = Vec::with_capacity(batch);
    for key in keys {
        open.push(key);
        if open.len() == batch {
            w.batch(0, &open, &vec![100; batch]);
            open.clear();
        }
    }
    if !open.is_empty() {
        w.batch(0, &open, &vec![100; open.len()]);
    }
    w.grew(0);
}

pub(crate) fn numbered(number: usize) -> Option<KeyHash> {
    key(&format!("key-{number}"))
}

/// Fetches and accepts until nothing comes: offsets and counts, in the order in which they came.
pub(crate) fn drain(w: &mut World, member: &str, mut check: impl FnMut(&World)) -> Vec<(i64, i16)> {
    let mut all = Vec::new();
    loop {
        let got = w.fetch(member, 500);
        if got.is_empty() {
            return all;
        }
        accept(w, member, &got);
        all.extend(each(&got));
        // The stub remembers every delivery.
        w.deliveries.clear();
        check(w);
    }
}

pub(crate) fn accept(w: &mut World, member: &str, got: &[Got]) {
    let ranges = got.iter().map(|&(first, last, _)| range(first, last, ACCEPT)).collect();
    assert_eq!(w.ack_ranges(member, ranges), None);
}

/// The memory of the share-partition is within its bound.
pub(crate) fn fits(w: &World) {
    let view = w.view();
    assert!(
        view.heap_bytes <= w.config.window_bytes_max,
        "more than {} bytes: {view:?}",
        w.config.window_bytes_max
    );
}
