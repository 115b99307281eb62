//! Reading a partition log on the real disk: finding batches for plain fetches, scanning keys for a planner, and
//! building the batches of share answers.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::sync::Arc;

use benches::sizes::sized;
use benches::workload::{NOW_MS, batch};
use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use records::Codec;
use records::ids::{Offset, PartitionId, TopicId};
use storage::{Boot, DataDir, Disk, LogConfig, Logs, Options, Origin, OsDisk};
use tempfile::TempDir;

const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 0 };
const RECORDS_A_BATCH: usize = 20;

/// A log of `batches` batches of twenty records of 100 bytes, in segments of 8 MiB.
fn filled(directory: &TempDir, batches: usize, codec: Codec) -> Logs {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let data_dir = DataDir::open(disk).expect("a fresh directory can be locked");
    let mut logs = Logs::open(data_dir, Options::default(), Boot { boot: 1, leader_epoch: 0 })
        .expect("a fresh directory opens");
    let config = LogConfig { segment_bytes: 8 << 20, ..LogConfig::default() };
    logs.open_partition(PARTITION, "bench", config).expect("a fresh partition opens");
    let bytes = batch(codec, RECORDS_A_BATCH, 100, 100);
    for _ in 0..batches {
        logs.append(PARTITION, BytesMut::from(&bytes[..]), Origin::Client, NOW_MS)
            .expect("the disk has room");
    }
    logs
}

fn find(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let batches = sized(20_000, 50);
    let mut logs = filled(&directory, batches, Codec::None);
    let end = (batches * RECORDS_A_BATCH) as i64;
    let mut group = criterion.benchmark_group("log_read");
    let mut from = 0;
    group.bench_function("sequential_1_mib", |bencher| {
        bencher.iter(|| {
            let slice = logs.read(PARTITION, Offset(from), 1 << 20, Offset::MAX, true).expect("it is there");
            let stored = slice.len() * (RECORDS_A_BATCH * batches) as u64;
            let bytes = logs.facts(PARTITION).expect("it is open").bytes;
            // All batches are of one size, so bytes tell offsets.
            from = if slice.is_empty() { 0 } else { slice.base().0 + (stored / bytes) as i64 };
            slice.len()
        });
    });
    group.bench_function("tail", |bencher| {
        bencher.iter(|| {
            logs.read(PARTITION, Offset(end), 1 << 20, Offset::MAX, true).expect("the end is").len()
        });
    });
    let mut from = 0;
    group.bench_function("random_offset", |bencher| {
        bencher.iter(|| {
            from = (from + 7919 * RECORDS_A_BATCH as i64) % end;
            logs.read(PARTITION, Offset(from), 1 << 20, Offset::MAX, true).expect("it is there").len()
        });
    });
    group.bench_function("by_time", |bencher| {
        bencher.iter(|| logs.offset_for_time(PARTITION, NOW_MS + 5).expect("it can be read"));
    });
    group.finish();
}

fn scan_and_select(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log_select");
    for codec in [Codec::None, Codec::Lz4] {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let batches = sized(2_000, 20);
        let mut logs = filled(&directory, batches, codec);
        let end = (batches * RECORDS_A_BATCH) as i64;
        let mut from = Offset::ZERO;
        group.throughput(Throughput::Bytes(256 << 10));
        group.bench_function(BenchmarkId::new("scan_256_kib", format!("{codec:?}")), |bencher| {
            bencher.iter(|| {
                let scan = logs.scan(PARTITION, from, 256 << 10, Offset::MAX).expect("it can be read");
                from = if scan.next.0 >= end { Offset::ZERO } else { scan.next };
                scan.batches.len()
            });
        });
        let mut first = 0;
        group.throughput(Throughput::Elements(30));
        group.bench_function(BenchmarkId::new("one_in_ten_of_300", format!("{codec:?}")), |bencher| {
            bencher.iter(|| {
                first = (first + 300) % (end - 300);
                let ranges: Vec<_> =
                    (first..first + 300).step_by(10).map(|offset| (Offset(offset), Offset(offset))).collect();
                logs.select(PARTITION, &ranges).expect("all of it is there").len()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, find, scan_and_select);
criterion_main!(benches);
