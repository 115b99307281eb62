//! The key index: what it costs an append in processor time, and how long look-ups among ten million records take, cold and warm.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::sync::Arc;
use std::time::Duration;

use benches::sizes::{is_tiny, sized};
use benches::workload::{NOW_MS, batch};
use bytes::BytesMut;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use records::batch::BatchBuilder;
use records::ids::{KeyHash, Offset, PartitionId, TopicId};
use records::{BatchView, Codec, TimestampType, key_hash};
use rustix::fs::Advice;
use rustix::time::{ClockId, clock_gettime};
use storage::{Boot, DataDir, Disk, KeyFilter, LogConfig, Logs, Options, Origin, OsDisk};

const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 0 };
/// Records of one batch of the large log.
const BATCH_RECORDS: u64 = 10_000;
/// How many offsets a key's queue is refilled with at once.
const REFILL: usize = 1_024;

fn logs(disk: &Arc<dyn Disk>, config: LogConfig) -> Logs {
    let data_dir = DataDir::open(Arc::clone(disk)).expect("the directory can be locked");
    let mut logs = Logs::open(data_dir, Options::default(), Boot { boot: 1, leader_epoch: 0 })
        .expect("the directory opens");
    logs.open_partition(PARTITION, "bench", config).expect("the partition opens");
    logs
}

#[derive(Clone, Copy, PartialEq)]
enum Index {
    Off,
    /// The hashes come with the batch, as validation has them.
    HashesGiven,
    /// The hashes are computed from the batch.
    HashesComputed,
}

/// Prints what appends cost with and without the index, measured in turn, round by round: the machine's other work and
/// the disk's moods are the same for all.
fn append(_criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let mut logs = logs(&disk, LogConfig::default());
    let records = sized(256, 2);
    // Two whole blocks of the index, and less than the kernel's dirty limit.
    let (rounds, appends) = (sized(31, 1), sized(512, 2) as u64);
    for codec in [Codec::None, Codec::Lz4] {
        let bytes = batch(codec, records, records, 1024);
        let hashes: Vec<Option<KeyHash>> = BatchView::parse(&bytes)
            .and_then(|batch| {
                let records = batch.records(1 << 24)?;
                records.iter().map(|record| Ok(record?.key.map(key_hash))).collect()
            })
            .expect("the batch decodes");
        let mut costs = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (index, costs) in
                [Index::Off, Index::HashesGiven, Index::HashesComputed].into_iter().zip(&mut costs)
            {
                begin_anew(&mut logs, index);
                let mut spent = Duration::ZERO;
                for number in 0..appends {
                    let batch = BytesMut::from(&bytes[..]);
                    let keys = distinct(&hashes, number);
                    let keys = (index == Index::HashesGiven).then_some(&keys[..]);
                    let before = cpu_time();
                    logs.append_with_keys(PARTITION, batch, keys, Origin::Client, NOW_MS)
                        .expect("the disk has room");
                    spent += cpu_time() - before;
                }
                costs.push(spent.as_secs_f64() * 1e9 / (appends as f64 * records as f64));
            }
        }
        let [off, given, computed] = costs.map(|mut costs| {
            costs.sort_by(f64::total_cmp);
            costs[costs.len() / 2]
        });
        if !is_tiny() {
            println!(
                "append of 1 KiB records, {codec:?}: {off:.0} ns a record; with the key index {given:.0} ({:+.1} %) \
                 where the hashes come with the batch, {computed:.0} ({:+.1} %) where they are computed",
                (given / off - 1.0) * 100.0,
                (computed / off - 1.0) * 100.0,
            );
        }
    }
}

fn begin_anew(logs: &mut Logs, index: Index) {
    logs.delete_partition(PARTITION).expect("an open partition can be deleted");
    logs.open_partition(PARTITION, "bench", LogConfig::default()).expect("a fresh partition opens");
    if index != Index::Off {
        logs.enable_key_index(PARTITION).expect("the partition is open");
    }
}

/// What this thread has used of a processor: other work on the machine does not count.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The hashes, changed so that no two batches share one: what costs the index most.
fn distinct(hashes: &[Option<KeyHash>], number: u64) -> Vec<Option<KeyHash>> {
    let change = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hashes.iter().map(|hash| hash.map(|hash| KeyHash(hash.0.wrapping_add(change)))).collect()
}

/// Keys that are all different, but for one on every 7,000th record and one on every tenth.
fn key(offset: u64) -> String {
    if offset.is_multiple_of(7_000) {
        "rare".to_owned()
    } else if offset.is_multiple_of(10) {
        "frequent".to_owned()
    } else {
        format!("order-{offset}")
    }
}

/// A log of ten million records in several segments, all indexed.
fn large(disk: &Arc<dyn Disk>, config: &LogConfig) -> Logs {
    let mut logs = logs(disk, config.clone());
    logs.enable_key_index(PARTITION).expect("the partition is open");
    let batches = sized(1_000, 2) as u64;
    for number in 0..batches {
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
        let mut hashes = Vec::with_capacity(BATCH_RECORDS as usize);
        for offset in number * BATCH_RECORDS..(number + 1) * BATCH_RECORDS {
            let key = key(offset);
            hashes.push(Some(key_hash(key.as_bytes())));
            builder.append(NOW_MS, Some(key.as_bytes()), Some(b"value"), &[]);
        }
        let batch = BytesMut::from(&builder.build(Offset::ZERO, -1)[..]);
        logs.append_with_keys(PARTITION, batch, Some(&hashes), Origin::Coordinator, NOW_MS)
            .expect("the disk has room");
    }
    logs
}

/// Puts all files of the partition out of the page cache.
fn chill(disk: &Arc<dyn Disk>) {
    disk.sync_all().expect("the disk syncs");
    for entry in disk.list("bench-0").expect("the partition is there") {
        let file = disk.open(&format!("bench-0/{}", entry.name)).expect("it is there");
        let os_file = file.os_file().expect("the disk is the system's");
        rustix::fs::fadvise(os_file, 0, None, Advice::DontNeed).expect("it is a file");
    }
}

/// As a share-partition finds the next records of a key again: search after search, none of aborted transactions.
fn refill(logs: &mut Logs, key: KeyHash, end: Offset) -> usize {
    let (mut at, mut count) = (Offset(1), 0);
    while at < end && count < REFILL {
        let found = logs.find_key(PARTITION, key, (at, end), true, REFILL - count);
        let found = found.expect("the log can be read");
        (at, count) = (found.next, count + found.records.len());
    }
    count
}

fn look_up(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let config = LogConfig { segment_bytes: sized(64 << 20, 1 << 20) as u64, ..LogConfig::default() };
    let filled = large(&disk, &config);
    let facts = filled.key_index_facts(PARTITION).expect("the index is on");
    assert!(facts.is_complete());
    filled.close().expect("the disk syncs");
    let open = || {
        let mut logs = logs(&disk, config.clone());
        logs.enable_key_index(PARTITION).expect("the partition is open");
        logs
    };
    let end = open().facts(PARTITION).expect("the partition is open").end;
    if !is_tiny() {
        let bytes = facts.file_bytes as f64 / end.0 as f64;
        println!("key index of {end} records, {} segments: {bytes:.2} bytes a record", facts.segments);
    }
    let rare = KeyFilter::key(key_hash(b"rare"));
    let frequent = KeyFilter::key(key_hash(b"frequent"));
    let absent = KeyFilter::key(key_hash(b"no such key"));
    let mut group = criterion.benchmark_group("key_index_look_up");
    group.sample_size(10);
    for (name, filter) in [("rare", rare), ("frequent", frequent), ("absent", absent)] {
        let next = |logs: &mut Logs| {
            let found = logs.key_matches(PARTITION, filter, Offset(1), Offset::MAX, REFILL);
            let found = found.expect("the log can be read");
            assert!(found.offsets.len() == REFILL || found.next == end, "one call is enough");
            found.offsets.len()
        };
        group.bench_function(BenchmarkId::new("next_1024", format!("{name}/cold")), |bencher| {
            let setup = || {
                chill(&disk);
                open()
            };
            bencher.iter_batched(setup, |mut logs| next(&mut logs), BatchSize::PerIteration);
        });
        let mut logs = open();
        group.bench_function(BenchmarkId::new("next_1024", format!("{name}/warm")), |bencher| {
            bencher.iter(|| next(&mut logs));
        });
    }
    for name in ["rare", "frequent", "absent"] {
        let key = key_hash(if name == "absent" { "no such key" } else { name }.as_bytes());
        group.bench_function(BenchmarkId::new("refill_1024", format!("{name}/cold")), |bencher| {
            let setup = || {
                chill(&disk);
                open()
            };
            bencher.iter_batched(setup, |mut logs| refill(&mut logs, key, end), BatchSize::PerIteration);
        });
        let mut logs = open();
        group.bench_function(BenchmarkId::new("refill_1024", format!("{name}/warm")), |bencher| {
            bencher.iter(|| refill(&mut logs, key, end));
        });
    }
    let mut logs = open();
    let mut lane = 0;
    group.bench_function("first_of_a_lane", |bencher| {
        bencher.iter(|| {
            lane = (lane + 1) % 1024;
            let filter = KeyFilter::lane(lane, 1024);
            logs.key_matches(PARTITION, filter, Offset(i64::from(lane) * 9), Offset::MAX, 1)
        });
    });
    group.bench_function("last_of_a_lane", |bencher| {
        bencher.iter(|| {
            lane = (lane + 1) % 1024;
            logs.last_key_match(PARTITION, KeyFilter::lane(lane, 1024), Offset::ZERO, Offset::MAX)
        });
    });
    group.throughput(Throughput::Elements(65_536));
    let mut from = Offset::ZERO;
    group.bench_function("hashes_of_65536", |bencher| {
        bencher.iter(|| {
            let found = logs.key_hashes(PARTITION, from, Offset::MAX, 65_536).expect("the log can be read");
            from = if found.next >= end { Offset::ZERO } else { found.next };
            found.records.len()
        });
    });
    group.finish();
}

criterion_group!(benches, append, look_up);
criterion_main!(benches);
