//! Compaction from outside: what a reader finds before, while and after a log is compacted.

mod crashes;
mod model;
mod policy;
mod swap;
mod transactions;
mod what_stays;

use bytes::{Bytes, BytesMut};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{BatchView, Codec, TimestampType};

use crate::LogConfig;
use crate::testing::{NOW, World, partition};

/// Bytes of a step where a test wants many.
const STEP_BYTES: u64 = 500;

/// A record as a reader sees it: offset, key, value.
type Seen = (i64, String, Option<String>);

/// Settings under which a few records fill a segment, and every new one is worth compacting.
fn compacted() -> LogConfig {
    LogConfig {
        segment_bytes: 1200,
        index_interval_bytes: 200,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 1000,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

fn batch_of(codec: Codec, records: &[(&str, Option<&str>)]) -> BytesMut {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    for (key, value) in records {
        builder.append(NOW, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

fn put(world: &mut World, key: &str, value: &str) -> i64 {
    world.append(batch_of(Codec::None, &[(key, Some(value))])).unwrap().base_offset.0
}

/// Seals what was written: what is in the active segment is never compacted.
fn roll(world: &mut World) {
    let log = world.logs().log_mut(partition(0)).unwrap();
    let has_records = log.sources().last().is_some_and(|active| active.bytes > 0);
    if has_records && !log.is_poisoned() {
        log.roll().unwrap();
    }
}

/// Runs one compaction to its end; false where none was due.
fn clean_once(world: &mut World, now_ms: i64, step_bytes: u64) -> bool {
    let Some(mut job) = world.logs().clean_job(now_ms) else { return false };
    loop {
        match world.logs().clean_done(job.run(step_bytes)) {
            Some(next) => job = next,
            None => return true,
        }
    }
}

/// Compacts until nothing is due; how often.
fn clean(world: &mut World, now_ms: i64) -> usize {
    let mut runs = 0;
    while clean_once(world, now_ms, STEP_BYTES) {
        runs += 1;
        assert!(runs < 1000, "compaction comes to an end");
    }
    runs
}

/// All records of some batches.
fn records_of(batches: &[Bytes]) -> Vec<Seen> {
    let mut found = Vec::new();
    for bytes in batches {
        let batch = BatchView::parse(bytes).unwrap();
        if batch.attributes().is_control() {
            continue;
        }
        for record in &batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((record.offset.0, record.key.map(text).unwrap_or_default(), record.value.map(text)));
        }
    }
    found
}

fn read(world: &mut World) -> Vec<Seen> {
    let start = world.facts().log_start;
    records_of(&world.read_all(start))
}

fn keys(records: &[Seen]) -> Vec<(i64, &str)> {
    records.iter().map(|(offset, key, _)| (*offset, key.as_str())).collect()
}

fn files(world: &World) -> Vec<String> {
    world.disk().list("t-0").unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}
