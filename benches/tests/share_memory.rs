//! What a share-partition says that it takes, beside what it takes from the heap: the bound of its window is in bytes, so
//! the estimate must be honest.

use std::alloc::System;

use benches::share::ShareBench;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes said and bytes taken by a group of so many keys whose member holds so many records.
fn cost(keys: u64, held: i32) -> (u64, u64) {
    // What every shard has, and what code allocates once.
    drop(ShareBench::with_inflight(2, 1, 1));
    let region = Region::new(HEAP);
    let mut bench = ShareBench::with_inflight(keys, 1, 1);
    let got = bench.fetch(0, held);
    let change = region.change();
    drop(got);
    (bench.heap_bytes(), (change.bytes_allocated - change.bytes_deallocated) as u64)
}

// One test: the counters are those of the whole process.
#[test]
fn a_window_takes_about_what_it_says() {
    // Few keys: slots, up to where keys are cut; many keys: each has a queue, too.
    for (keys, held) in [(2, 1), (100, 90), (1_000_000, 1), (1_000_000, 2_000)] {
        let (said, taken) = cost(keys, held);
        println!("{keys} keys, {held} held: says {said} bytes, takes {taken}");
        assert!(taken < said * 5 / 4 + (64 << 10), "{keys} keys: says {said} bytes, takes {taken}");
        assert!(said < taken * 3 / 2, "{keys} keys: says {said} bytes, takes {taken}");
    }
}
