//! What validating and appending a batch takes from the heap: the same for any number of records, and no copy of it.

use std::alloc::System;
use std::sync::Arc;

use benches::workload::{NOW_MS, batch};
use bytes::BytesMut;
use records::Codec;
use records::batch::validate::{Rules, validate};
use records::ids::{PartitionId, TopicId};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use storage::{Boot, DataDir, Disk, LogConfig, Logs, Options, Origin, OsDisk};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PARTITION: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 0 };
/// Least allocations and bytes of this many tries: now and then a buffer grows.
const TRIES: usize = 8;

/// Allocations, and bytes of them, of a batch of so many records of 100 bytes.
fn cost(logs: &mut Logs, codec: Codec, records: usize) -> (usize, usize) {
    let rules = Rules { batch_bytes_max: 8 << 20, ..Rules::new(NOW_MS) };
    let sent = batch(codec, records, 100, 100);
    (0..TRIES)
        .map(|_| {
            let batch = BytesMut::from(&sent[..]);
            let region = Region::new(HEAP);
            validate(&batch, &rules).expect("it is well-formed");
            logs.append(PARTITION, batch, Origin::Client, NOW_MS).expect("the disk has room");
            let change = region.change();
            (change.allocations + change.reallocations, change.bytes_allocated)
        })
        .min()
        .expect("there are some tries")
}

// One test: the counters are those of the whole process.
#[test]
fn appending_allocates_neither_by_record_nor_by_byte() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).expect("it can be used"));
    let data_dir = DataDir::open(disk).expect("a fresh directory can be locked");
    let mut logs = Logs::open(data_dir, Options::default(), Boot { boot: 1, leader_epoch: 0 })
        .expect("a fresh directory opens");
    logs.open_partition(PARTITION, "t", LogConfig::default()).expect("a fresh partition opens");
    cost(&mut logs, Codec::None, 10);
    let (few, few_bytes) = cost(&mut logs, Codec::None, 10);
    let (many, many_bytes) = cost(&mut logs, Codec::None, 10_000);
    assert_eq!(few, many, "allocations");
    assert!(many_bytes < few_bytes + 4096, "{many_bytes} bytes for a batch of more than 1 MB");
    // A compressed batch is opened piece by piece.
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        cost(&mut logs, codec, 10);
        let (few, _) = cost(&mut logs, codec, 1_000);
        let (many, _) = cost(&mut logs, codec, 10_000);
        println!("{codec:?}: {few} and {many} allocations");
        assert!(many <= few + 64, "{codec:?}: {few} for 1,000 records, {many} for 10,000");
    }
}
