//! What one share acknowledgement costs in the shard: session, check, event, answer. No disk, no socket.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::cell::RefCell;

use benches::share::ShareBench;
use benches::sizes::sized;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn acknowledge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("share_ack");
    let records = sized(500, 10);
    for (name, keys) in [("none", 0), ("key-100", 100), ("key-10000", 10_000)] {
        let bench = RefCell::new(ShareBench::new(keys, 1));
        let per_fetch = if keys > 0 { records.min(keys as usize) } else { records };
        group.throughput(Throughput::Elements(per_fetch as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_batched(
                || {
                    let acquired = bench.borrow_mut().fetch(0, per_fetch as i32);
                    assert_eq!(
                        ShareBench::count(&acquired),
                        per_fetch as u64,
                        "a fetch gets what it asks for"
                    );
                    acquired
                },
                |acquired| bench.borrow_mut().accept(0, &acquired),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(all, acknowledge);
criterion_main!(all);
