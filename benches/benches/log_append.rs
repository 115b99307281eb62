//! Appending produced batches to a partition log on the real disk, their validation included (CRC, one pass over the
//! record headers), beside a bare loop of writes of the same pieces.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::sync::Arc;

use benches::sizes::sized;
use benches::workload::{NOW_MS, batch};
use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use records::Codec;
use records::batch::validate::{Rules, validate};
use records::ids::{PartitionId, TopicId};
use storage::{Boot, DataDir, Disk, LogConfig, Logs, Options, Origin, OsDisk};

/// Bytes after which log and bare file begin anew, so that both stay below the kernel's dirty limit.
const FILE_BYTES_MAX: u64 = 256 << 20;
const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 0 };

fn logs(disk: &Arc<dyn Disk>) -> Logs {
    let data_dir = DataDir::open(Arc::clone(disk)).expect("a fresh directory can be locked");
    let mut logs = Logs::open(data_dir, Options::default(), Boot { boot: 1, leader_epoch: 0 })
        .expect("a fresh directory opens");
    logs.open_partition(PARTITION, "bench", config()).expect("a fresh partition opens");
    logs
}

/// Deleted files give their room back at once.
fn config() -> LogConfig {
    LogConfig { file_delete_delay_ms: 0, ..LogConfig::default() }
}

/// Drops what was written before it becomes too much for the page cache.
fn make_room(logs: &mut Logs) {
    if logs.facts(PARTITION).is_some_and(|facts| facts.bytes > FILE_BYTES_MAX) {
        logs.delete_partition(PARTITION).expect("an open partition can be deleted");
        logs.open_partition(PARTITION, "bench", config()).expect("a fresh partition opens");
    }
}

fn produced(records: usize, value_bytes: usize, codec: Codec) -> Bytes {
    batch(codec, records, 100, value_bytes)
}

fn append(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let mut logs = logs(&disk);
    let bare = disk.create("bare").expect("a file can be made");
    let mut group = criterion.benchmark_group("log_append");
    let rules = Rules { batch_bytes_max: 2 << 20, ..Rules::new(NOW_MS) };
    for records in [sized(16, 1), sized(256, 2), sized(1000, 3)] {
        let bytes = produced(records, 1024, Codec::None);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::new("append", bytes.len()), &bytes, |bencher, bytes| {
            bencher.iter(|| {
                make_room(&mut logs);
                let batch = BytesMut::from(&bytes[..]);
                validate(&batch, &rules).expect("it is well-formed");
                logs.append(PARTITION, batch, Origin::Client, NOW_MS).expect("the disk has room")
            });
        });
        let mut position = 0;
        group.bench_with_input(BenchmarkId::new("bare_write", bytes.len()), &bytes, |bencher, bytes| {
            bencher.iter(|| {
                if position > FILE_BYTES_MAX {
                    bare.set_len(0).expect("a file can be cut");
                    position = 0;
                }
                // The copy stands for the socket's buffer, here as there.
                let batch = BytesMut::from(&bytes[..]);
                bare.write_all_at(&batch, position).expect("the disk has room");
                position += batch.len() as u64;
            });
        });
    }
    group.finish();
}

fn group_commit(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let mut logs = logs(&disk);
    let bytes = produced(1, 1024, Codec::None);
    let mut group = criterion.benchmark_group("log_sync");
    group.sample_size(sized(50, 10));
    for producers in [1, 64] {
        group.throughput(Throughput::Elements(producers));
        group.bench_function(BenchmarkId::new("appends_a_sync", producers), |bencher| {
            bencher.iter(|| {
                make_room(&mut logs);
                for _ in 0..producers {
                    let batch = BytesMut::from(&bytes[..]);
                    logs.append(PARTITION, batch, Origin::Client, NOW_MS).expect("the disk has room");
                }
                let job = logs.sync_job(PARTITION).expect("the log is well").expect("something was written");
                logs.sync_done(job.run()).expect("the disk syncs")
            });
        });
    }
    group.finish();
}

fn restart(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let mut filled = logs(&disk);
    let bytes = produced(16, 1024, Codec::None);
    for _ in 0..sized(5_000, 20) {
        filled
            .append(PARTITION, BytesMut::from(&bytes[..]), Origin::Client, NOW_MS)
            .expect("the disk has room");
    }
    drop(filled);
    let mut group = criterion.benchmark_group("log_open");
    group.sample_size(10);
    group.bench_function("after_a_kill", |bencher| bencher.iter(|| logs(&disk).facts(PARTITION)));
    group.bench_function("after_a_clean_stop", |bencher| {
        bencher.iter_batched(
            || logs(&disk).close().expect("the disk syncs"),
            |()| logs(&disk).facts(PARTITION),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, append, group_commit, restart);
criterion_main!(benches);
