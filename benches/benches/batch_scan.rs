//! Reading every record of a batch and hashing its key: what the key index and the planner cost per record.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use benches::sizes::sized;
use benches::workload::{NOW_MS, batch};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use records::batch::{BatchView, Rules, SlimBuilder, validate};
use records::{Codec, RecordError, key_hash};

const INFLATED_BYTES_MAX: usize = 64 << 20;
const VALUE_BYTES: usize = 100;

fn scan_and_hash(bytes: &[u8]) -> u64 {
    let view = BatchView::parse(bytes).expect("the builder makes whole batches");
    let mut mixed = 0;
    view.scan(INFLATED_BYTES_MAX, |record| {
        mixed ^= record.key.map_or(0, |key| key_hash(key).0);
        Ok::<(), RecordError>(())
    })
    .expect("the builder makes readable batches");
    mixed
}

fn batch_scan(criterion: &mut Criterion) {
    let count = sized(1000, 10);
    let mut group = criterion.benchmark_group("batch_scan");
    group.throughput(Throughput::Elements(count as u64));
    for codec in Codec::ALL {
        let bytes = batch(codec, count, 100, VALUE_BYTES);
        group.bench_with_input(
            BenchmarkId::new("scan_hash", format!("{codec:?}")),
            &bytes,
            |bencher, bytes| {
                bencher.iter(|| scan_and_hash(black_box(bytes)));
            },
        );
        let rules = Rules { hash_keys: true, ..Rules::new(NOW_MS) };
        group.bench_with_input(
            BenchmarkId::new("validate_hash", format!("{codec:?}")),
            &bytes,
            |bencher, bytes| {
                bencher.iter(|| validate(black_box(bytes), &rules).expect("the builder makes valid batches"));
            },
        );
        let plain = Rules { hash_keys: false, ..rules };
        group.bench_with_input(
            BenchmarkId::new("validate", format!("{codec:?}")),
            &bytes,
            |bencher, bytes| {
                bencher.iter(|| validate(black_box(bytes), &plain).expect("the builder makes valid batches"));
            },
        );
    }
    group.finish();
}

fn slim(criterion: &mut Criterion) {
    let count = sized(1000, 10);
    let bytes = batch(Codec::None, count, 100, VALUE_BYTES);
    let mut group = criterion.benchmark_group("slim_batch");
    group.bench_function("one_in_ten", |bencher| {
        bencher.iter(|| {
            let view = BatchView::parse(black_box(&bytes)).expect("the builder makes whole batches");
            let records = view.records(INFLATED_BYTES_MAX).expect("nothing is compressed");
            let mut slim = SlimBuilder::new(&view);
            for record in records.iter().step_by(10) {
                slim.push(&record.expect("the builder makes readable batches")).expect("offsets ascend");
            }
            slim.finish(Codec::None)
        });
    });
    group.finish();
}

fn hashing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("key_hash");
    for len in [8, 36, 200] {
        let key = vec![b'k'; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::from_parameter(len), &key, |bencher, key| {
            bencher.iter(|| key_hash(black_box(key)));
        });
    }
    group.finish();
}

criterion_group!(all, batch_scan, slim, hashing);
criterion_main!(all);
