//! What one share fetch costs in the shard: session, acquisition, event, answer. No disk, no socket.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::cell::RefCell;

use benches::share::ShareBench;
use benches::sizes::sized;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn acquire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("share_acquire");
    let records = sized(500, 10);
    for (name, keys) in [("none", 0), ("key-100", 100), ("key-10000", 10_000)] {
        for members in [1, 64] {
            let state = RefCell::new((ShareBench::new(keys, members), 0, Vec::new()));
            let per_fetch = if keys > 0 { records.min(keys as usize) } else { records };
            group.throughput(Throughput::Elements(per_fetch as u64));
            group.bench_function(BenchmarkId::new(name, members), |bencher| {
                bencher.iter_batched(
                    || {
                        let (bench, member, held) = &mut *state.borrow_mut();
                        if !held.is_empty() {
                            assert_eq!(
                                ShareBench::count(held),
                                per_fetch as u64,
                                "a fetch gets what it asks for"
                            );
                            bench.accept(*member, held);
                            *member = (*member + 1) % members;
                        }
                    },
                    |()| {
                        let (bench, member, held) = &mut *state.borrow_mut();
                        *held = bench.fetch(*member, per_fetch as i32);
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(all, acquire);
criterion_main!(all);
