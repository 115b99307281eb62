//! Memory follows what really comes out of a payload and stops at the limit, whatever the bytes claim.
//! Alone in its file: the allocator counts for the whole process.

#![allow(unsafe_code, reason = "counting allocations needs a global allocator")]
#![allow(clippy::unwrap_used, reason = "a test fails where it stands, in its helpers too")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use records::batch::{BatchView, Rules, validate};
use records::{Codec, RecordError};
use support::{NOW, Raw, record, with_length};

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator as it came; the counters touch no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps GlobalAlloc's contract, and `bytes` came from the system allocator.
        unsafe { System.dealloc(bytes, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `work` had allocated at once.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// What the process has held at most, in bytes: counts what zstd allocates in C as well.
#[cfg(target_os = "linux")]
fn resident_peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

const LIMIT: usize = 1 << 20;
/// Buffers, windows and one doubling of a growing vector.
const SLACK: usize = 1 << 20;

#[test]
fn b05_memory_stops_at_the_limit() {
    let rules = Rules { bytes_max: LIMIT, hash_keys: true, ..Rules::new(NOW) };
    let value = vec![0; 32 << 20];
    let mut batches = Vec::new();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        // One huge record, many records, a length that nothing stands behind, a header count that is a claim.
        let one = record(0, 0, Some(b"k"), Some(&value));
        batches.push(Raw::new(codec, 1, &one));
        let many: Vec<u8> = (0..400_000).flat_map(|index| record(0, index, None, None)).collect();
        batches.push(Raw::new(codec, 400_000, &many));
        batches.push(Raw::new(codec, 1, &with_length(i32::MAX, &value)));
        batches.push(Raw::new(codec, 1_000_000, &record(0, 0, None, None)));
        let mut headers = vec![0, 0, 0, 1, 1];
        records::varint::write_i32(&mut headers, i32::MAX);
        batches.push(Raw::new(codec, 1, &with_length(headers.len() as i32, &headers)));
    }
    let batches: Vec<Vec<u8>> = batches.iter().map(Raw::bytes).collect();
    drop(value);
    #[cfg(target_os = "linux")]
    let resident = resident_peak();
    for bytes in &batches {
        let peak = peak_of(|| {
            let rules = Rules { batch_bytes_max: usize::MAX, ..rules };
            assert!(validate(bytes, &rules).is_err());
        });
        // Key hashes of 16 bytes stand beside records of 7 bytes and more.
        assert!(peak <= 4 * LIMIT + SLACK, "validation of {} bytes took {peak}", bytes.len());
        let view = BatchView::parse(bytes).unwrap();
        let peak = peak_of(|| {
            assert!(
                view.records(LIMIT).is_err() || view.records(LIMIT).unwrap().iter().any(|one| one.is_err())
            );
        });
        assert!(peak <= 2 * LIMIT + SLACK, "reading {} bytes took {peak}", bytes.len());
        let peak = peak_of(|| {
            let seen = view.scan(LIMIT, |_| Ok::<(), RecordError>(()));
            assert!(seen.is_err());
        });
        assert!(peak <= 2 * LIMIT + SLACK, "scanning {} bytes took {peak}", bytes.len());
    }
    #[cfg(target_os = "linux")]
    assert!(resident_peak() - resident <= 16 << 20, "the process grew by more than 16 MiB");
}
