//! Settings as plain data, and the limits of the crate, asserted against each other in one place.

use records::TimestampType;

/// Bytes of a batch's header (Kafka's `DefaultRecordBatch.RECORD_BATCH_OVERHEAD`).
pub const BATCH_HEADER_BYTES: usize = 61;
/// A log file's size limit: positions in `.index` are signed 32-bit numbers.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;
/// The smallest segment that makes sense (Kafka's `segment.bytes` minimum is 1 MiB by config, 14 bytes by code).
pub const SEGMENT_BYTES_MIN: u64 = 1024;
/// Index entries held in memory before they go to the file in one write.
pub const INDEX_TAIL_ENTRIES_MAX: usize = 512;
/// Bytes read at once to walk over batch headers while looking for one batch.
pub const WALK_WINDOW_BYTES: usize = 8 * 1024;
/// Bytes read at once to check a log while recovering it.
pub const RECOVERY_WINDOW_BYTES: usize = 256 * 1024;
/// Batches remembered per producer (Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const PRODUCER_BATCHES_MAX: usize = 5;
/// Producers remembered per partition; the one that was silent for longest goes first.
pub const PRODUCERS_MAX: usize = 100_000;
/// Read positions remembered per log, so that a sequential reader searches no index.
pub const CURSORS_MAX: usize = 32;
/// Sealed segments of one log whose files stay open for readers.
pub const SEALED_OPEN_MAX: usize = 16;
/// Bytes of one event or snapshot frame.
pub const EVENT_FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a page beside an event log's snapshot.
pub const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a block, the unit that pages take room in. As much as the kernel reads and writes at once: what is written
/// shares nothing with a page that is needed.
pub const PAGE_BLOCK_BYTES: usize = 4 * 1024;
/// A file of pages that is shorter is not worth the moving of pages, in blocks.
pub const PAGE_BLOCKS_MOVED_FROM: u32 = 16;
/// Pages that one snapshot moves at most, so that the end of the file can be cut off.
pub const PAGES_MOVED_MAX: usize = 16;
/// Bytes appended to a log after which its next sync takes a producer snapshot along: as much of the log is at most read
/// for producers alone after a crash.
pub const SNAPSHOT_EVERY_BYTES: u64 = 4 << 20;
/// Logs that are read in beside each other at a start: most of it is waiting for the disk.
pub const OPEN_THREADS_MAX: usize = 16;
/// Logs that are read in before the first of them is taken into use: bounds what a failure throws away.
pub const OPEN_AT_ONCE: usize = 4_096;
/// Above this many dirty files one `syncfs` is cheaper than single syncs.
pub const SYNC_FILES_MAX: usize = 64;
/// Bytes of a slim batch that is made out of several stored ones.
pub const SLIM_BATCH_BYTES_MAX: usize = 1024 * 1024;
/// A slim batch of compressed records above this size is compressed again.
pub const SLIM_PLAIN_BYTES_MAX: usize = 4 * 1024;
/// Bytes read ahead when a selection misses the batch cache.
pub const SELECT_READ_BYTES: u64 = 128 * 1024;
/// Emptied batches that one read passes over, so that its answer begins with records.
pub const EMPTIED_SKIPPED_MAX: usize = 1024;
/// Aborted transactions that one compaction knows of; where there are more it takes the log in pieces.
pub const ABORTED_MAX: usize = 1_000_000;
/// Entries of a log's transaction indexes that are looked up in the log when it is opened. Each takes a few reads.
pub const TXN_ENTRIES_CHECKED_MAX: usize = 4096;
/// Bytes of a control batch that is looked into.
pub const MARKER_BYTES_MAX: u64 = 4 * 1024;
/// Least bytes of the memory that finds the last record of each key.
pub const DEDUPE_BYTES_MIN: usize = 1024;
/// Files that wait for their deletion; beyond it the oldest go at once.
pub const RETIRED_MAX: usize = 100_000;
/// Records of one block of a key index. With the offsets that it spans it bounds what of an index that grows is in
/// memory: about half a MiB.
pub const KEY_BLOCK_RECORDS_MAX: usize = 65_536;
/// Offsets that a block spans at most, holes included.
pub const KEY_BLOCK_SPAN_MAX: u32 = 262_144;
/// Damaged stretches that one block names.
pub const KEY_BLOCK_DAMAGES_MAX: usize = 64;
/// A last block of fewer records is made anew when an index goes on growing: many stops leave no crumbs.
pub const KEY_BLOCK_MERGE_RECORDS: u32 = 8_192;
/// Records that a bucket of a block, the piece that is read and checked at once, is meant to hold.
pub const KEY_BUCKET_RECORDS: usize = 256;
/// Distinct keys up to which a bucket stores a repeated hash once.
pub const KEY_BUCKET_DISTINCT_MAX: usize = 512;
/// Buckets up to which a look-up reads them one by one; beyond, the whole block is decoded.
pub const KEY_BUCKETS_READ_MAX: usize = 16;
/// Ranges of the hash space of which each block says whether it holds a key in them.
pub const KEY_RANGES: usize = 1024;
/// Tables, directories and decoded blocks of key indexes in memory, in bytes, over all logs.
pub const KEY_CACHE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Offsets or hashes that one look-up gives at most.
pub const KEY_RESULTS_MAX: usize = 65_536;
/// Blocks that one look-up reads at most.
pub const KEY_LOOKUP_BLOCKS_MAX: usize = 1_024;
/// Bytes of log that one look-up reads at most where there is no index.
pub const KEY_LOOKUP_SCAN_BYTES: u64 = 8 * 1024 * 1024;
/// Records that one search for those of a key gives at most.
pub const KEY_FOUND_MAX: usize = 1_024;
/// Blocks that one search for the records of a key reads at most: each may be a read from the disk.
pub const KEY_FIND_BLOCKS_MAX: usize = 64;
/// Bytes of log that one search for the records of a key reads at most where there is no index.
pub const KEY_FIND_SCAN_BYTES: u64 = 1024 * 1024;
/// Batches that one search for the records of a key looks up at most.
pub const KEY_FIND_BATCHES_MAX: usize = 128;
/// Bytes of log read at once to index it.
pub const KEY_SCAN_WINDOW_BYTES: u64 = 1024 * 1024;
/// Bytes of the end of a log that are indexed at once: appends can be followed from there on.
pub const KEY_TAIL_BYTES: u64 = 256 * 1024;
/// Bytes of log that one job reads, one batch at least.
pub const KEY_JOB_BYTES: u64 = 256 * 1024;
/// Records that one job holds the keys of, but for its last batch: the owner of the logs takes them in at once.
pub const KEY_JOB_RECORDS_MAX: usize = 32_768;
/// Index files that one building step opens at most to see whether they are whole.
pub const KEY_STEP_LOADS_MAX: usize = 64;
/// Index files of one log that stay open.
pub const KEY_FILES_OPEN_MAX: usize = 16;

const _: () = {
    assert!(BATCH_HEADER_BYTES == records::batch::HEADER_LEN);
    assert!(SEGMENT_BYTES_MIN as usize > BATCH_HEADER_BYTES);
    assert!(WALK_WINDOW_BYTES > BATCH_HEADER_BYTES);
    assert!(RECOVERY_WINDOW_BYTES >= WALK_WINDOW_BYTES);
    assert!(SLIM_PLAIN_BYTES_MAX < SLIM_BATCH_BYTES_MAX);
    assert!(SELECT_READ_BYTES as usize > WALK_WINDOW_BYTES);
    assert!(EVENT_FRAME_BYTES_MAX < u32::MAX as usize);
    assert!(PAGE_BYTES_MAX.is_multiple_of(PAGE_BLOCK_BYTES));
    // A table counts the pieces of a page in one byte.
    assert!(PAGE_BYTES_MAX / PAGE_BLOCK_BYTES <= u8::MAX as usize);
    assert!(MARKER_BYTES_MAX > BATCH_HEADER_BYTES as u64);
    assert!(SEGMENT_BYTES_MAX + SEGMENT_BYTES_MIN < u32::MAX as u64);
    assert!(KEY_BLOCK_SPAN_MAX as usize >= KEY_BLOCK_RECORDS_MAX);
    assert!((KEY_BLOCK_MERGE_RECORDS as usize) < KEY_BLOCK_RECORDS_MAX);
    assert!(KEY_BUCKET_RECORDS.is_power_of_two() && KEY_BUCKET_DISTINCT_MAX >= KEY_BUCKET_RECORDS);
    assert!(KEY_RANGES.is_power_of_two() && KEY_RANGES.is_multiple_of(64));
    // A decoded block takes nine bytes an offset, and must leave room for others.
    assert!(KEY_BLOCK_SPAN_MAX as usize * 9 < KEY_CACHE_BYTES_MAX);
    assert!(KEY_SCAN_WINDOW_BYTES <= KEY_LOOKUP_SCAN_BYTES);
    assert!(KEY_FOUND_MAX <= KEY_RESULTS_MAX && KEY_FIND_BLOCKS_MAX <= KEY_LOOKUP_BLOCKS_MAX);
    assert!(KEY_FIND_BATCHES_MAX > 0 && KEY_FIND_BLOCKS_MAX > 0 && KEY_FIND_SCAN_BYTES > 0);
    assert!(KEY_TAIL_BYTES < KEY_SCAN_WINDOW_BYTES);
};

/// Settings of a whole data directory.
#[derive(Clone, Debug)]
pub struct Options {
    /// The broker's node id, as `meta.properties` must name it.
    pub node_id: i32,
    /// The cluster id, as `meta.properties` names it.
    pub cluster_id: String,
    /// Fresh random bytes, taken as directory id when there is no `meta.properties` yet.
    pub directory_id: [u8; 16],
    /// Bytes of decoded batches kept for scans and selections.
    pub batch_cache_bytes: usize,
    /// Bytes that one batch may inflate to when it is read back.
    pub inflated_bytes_max: usize,
    /// A producer that was silent for so long is forgotten (`producer.id.expiration.ms`).
    pub producer_expiry_ms: i64,
    /// How logs are compacted.
    pub cleaner: CleanerOptions,
}

/// Settings of compaction, under Kafka's names and with Kafka's defaults (`CleanerConfig`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerOptions {
    /// Logs compacted at a time (`log.cleaner.threads`).
    pub jobs_max: usize,
    /// Bytes of memory that find the last record of each key, per job (`log.cleaner.dedupe.buffer.size` over the
    /// threads). A log with more keys is compacted in several runs.
    pub dedupe_bytes: usize,
    /// How full that memory may become, above 0 and up to 1 (`log.cleaner.io.buffer.load.factor`).
    pub dedupe_load: f64,
    /// Bytes read and written at once, per job (`log.cleaner.io.buffer.size` over the threads).
    pub io_bytes: usize,
    /// How long a log waits, in ms, whose compaction found the disk full (`log.cleaner.backoff.ms`).
    pub backoff_ms: i64,
    /// Random bits that keep the fingerprints of keys from being foreseen.
    pub seed: u64,
}

impl Default for CleanerOptions {
    fn default() -> Self {
        Self {
            jobs_max: 1,
            dedupe_bytes: 134_217_728,
            dedupe_load: 0.9,
            io_bytes: 524_288,
            backoff_ms: 15_000,
            seed: 0,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node_id: 1,
            cluster_id: String::new(),
            directory_id: [0; 16],
            batch_cache_bytes: 16 * 1024 * 1024,
            inflated_bytes_max: 256 * 1024 * 1024,
            producer_expiry_ms: 86_400_000,
            cleaner: CleanerOptions::default(),
        }
    }
}

/// When what is appended to a log is synced (`flush.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushPolicy {
    /// Whenever somebody waits for it: nothing that was answered with acks=all is lost by a power cut.
    #[default]
    Acks,
    /// This many milliseconds after a write at the latest: a power cut may take what was written since.
    Interval(i64),
    /// When a segment is full, and when the broker stops: a power cut may take all of the active segment that the
    /// system has not written by itself.
    Os,
}

/// Settings of one partition log, under Kafka's names and with Kafka's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.index.bytes`: a segment is also full when one of its indexes is.
    pub segment_index_bytes: u64,
    /// `segment.ms`: a segment is also full when its first record is so old.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: each segment is full by up to so much earlier, so that not all roll at once.
    pub segment_jitter_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// `retention.bytes`; -1 is no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; -1 is no limit.
    pub retention_ms: i64,
    /// Whether `cleanup.policy` holds `delete`.
    pub delete: bool,
    /// Whether `cleanup.policy` holds `compact`: offsets may have holes.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`: a log is compacted when more than this share of it is new, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `delete.retention.ms`: how long a tombstone or a transaction's marker stays once compaction has seen it.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: segments with younger records are not compacted.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: older records are compacted whatever the share of new ones.
    pub max_compaction_lag_ms: i64,
    /// `file.delete.delay.ms`: how long deleted files stay under another name.
    pub file_delete_delay_ms: i64,
    /// `flush.policy`, and `flush.ms` where it counts.
    pub flush: FlushPolicy,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1_073_741_824,
            segment_index_bytes: 10_485_760,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            retention_bytes: -1,
            retention_ms: 604_800_000,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            delete_retention_ms: 86_400_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            file_delete_delay_ms: 60_000,
            flush: FlushPolicy::Acks,
            timestamp_type: TimestampType::Create,
        }
    }
}

impl LogConfig {
    /// The size at which a segment is full, within what the format can hold.
    #[must_use]
    pub fn segment_limit(&self) -> u64 {
        self.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// The age in ms at which a segment is full: where records must be compacted in time, they must leave the
    /// active segment in time (`LogConfig.maxSegmentMs`).
    #[must_use]
    pub fn segment_age_ms(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }
}
