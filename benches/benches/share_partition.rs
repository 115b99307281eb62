//! What a record costs the shard from its grant to its acknowledgement, over the number of keys and of members: it should
//! be the same for any. No disk, no socket.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::cell::RefCell;

use benches::share::ShareBench;
use benches::sizes::sized;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Records that one fetch takes.
const RECORDS: usize = 500;

fn acquire_and_acknowledge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("share_partition");
    let records = sized(RECORDS, 10);
    for keys in [10, 1_000, 100_000, 10_000_000] {
        for members in [1, 1_000] {
            let state = RefCell::new((ShareBench::with_inflight(keys, sized(members, 1), 1_000), 0));
            group.throughput(Throughput::Elements(records as u64));
            group.bench_function(BenchmarkId::new(format!("keys-{keys}"), members), |bencher| {
                bencher.iter(|| {
                    let (bench, member) = &mut *state.borrow_mut();
                    // Of few keys not all may be at hand at once: what is missing is looked up meanwhile.
                    let mut left = records as u64;
                    while left > 0 {
                        let got = bench.fetch(*member, left as i32);
                        assert!(!got.is_empty(), "there is always more");
                        left -= ShareBench::count(&got);
                        bench.accept(*member, &got);
                    }
                    *member = (*member + 1) % sized(members, 1);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(all, acquire_and_acknowledge);
criterion_main!(all);
