//! What is counted, and where Prometheus reads it.
//!
//! Counting costs next to nothing while nobody reads (`sluice.metrics.listen` unset). Labels are bounded: APIs and
//! reasons; logs and share groups, up to a number of them. `docs/metrics.md` lists all.

mod exporter;
mod logs;
mod share;

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use protocol::ApiKey;

pub use exporter::{ExporterError, serve};

const CONNECTIONS: &str = "sluice_connections";
const CONNECTIONS_CLOSED: &str = "sluice_connections_closed_total";
const REQUESTS: &str = "sluice_requests_total";
const REQUEST_SECONDS: &str = "sluice_request_seconds";
const REQUEST_BYTES: &str = "sluice_request_bytes_total";
const ANSWER_BYTES: &str = "sluice_answer_bytes_total";
const PANICS: &str = "sluice_handler_panics_total";
const APPENDED_BYTES: &str = "sluice_appended_bytes_total";
const SYNCS: &str = "sluice_syncs_total";
const SYNC_SECONDS: &str = "sluice_sync_seconds";
const OPEN_SECONDS: &str = "sluice_open_seconds";
const COLD_READS: &str = "sluice_cold_reads_total";
const COMPACTION_READ_BYTES: &str = "sluice_compaction_read_bytes_total";
const COMPACTION_WRITTEN_BYTES: &str = "sluice_compaction_written_bytes_total";
const COMPACTIONS: &str = "sluice_compactions_total";
const COMPACTION_LAST: &str = "sluice_compaction_last_end_seconds";
const KEY_INDEX_READ_BYTES: &str = "sluice_key_index_read_bytes_total";
const UNCLEANABLE_LOGS: &str = "sluice_compaction_uncleanable_logs";

/// Upper bounds of the buckets of [`REQUEST_SECONDS`] and [`SYNC_SECONDS`]: from what a cached answer or an idle disk
/// takes to a long poll.
const SECONDS_BUCKETS: [f64; 10] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0];

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client left or was idle.
    Quiet,
    /// The broker stops.
    Stopping,
    /// It sent or took what the protocol does not allow, or a handler panicked.
    Fault,
}

impl Closed {
    const fn label(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stopping => "stopping",
            Self::Fault => "fault",
        }
    }
}

/// A connection was accepted.
pub fn connection_opened() {
    gauge!(CONNECTIONS).increment(1);
}

/// A connection is gone.
pub fn connection_closed(why: Closed) {
    gauge!(CONNECTIONS).decrement(1);
    counter!(CONNECTIONS_CLOSED, "reason" => why.label()).increment(1);
}

/// A request came.
pub fn request(key: ApiKey, bytes: u64) {
    counter!(REQUESTS, "api" => key.name()).increment(1);
    counter!(REQUEST_BYTES, "api" => key.name()).increment(bytes);
}

/// A handler is done with a request: for Produce, with its ordered part.
pub fn handled(key: ApiKey, took: Duration) {
    histogram!(REQUEST_SECONDS, "api" => key.name()).record(took.as_secs_f64());
}

/// An answer is about to go out.
pub fn answer(bytes: u64) {
    counter!(ANSWER_BYTES).increment(bytes);
}

/// A handler panicked.
pub fn panicked() {
    counter!(PANICS).increment(1);
}

/// A batch was stored.
pub fn appended(bytes: u64) {
    counter!(APPENDED_BYTES).increment(bytes);
}

/// A partition was synced, or the disk refused; how long the disk took, the wait for a thread left out.
pub fn synced(took: Duration) {
    counter!(SYNCS).increment(1);
    histogram!(SYNC_SECONDS).record(took.as_secs_f64());
}

/// The logs were opened.
pub fn opened(took: Duration) {
    gauge!(OPEN_SECONDS).set(took.as_secs_f64());
}

/// A read waited for the disk.
pub fn cold_read() {
    counter!(COLD_READS).increment(1);
}

/// A step of a compaction was done.
pub fn compacted(read: u64, written: u64) {
    counter!(COMPACTION_READ_BYTES).increment(read);
    counter!(COMPACTION_WRITTEN_BYTES).increment(written);
}

/// A compaction has come to its end, good or bad.
pub fn compaction_ended(now_ms: i64, uncleanable: usize) {
    counter!(COMPACTIONS).increment(1);
    gauge!(COMPACTION_LAST).set(now_ms as f64 / 1000.0);
    gauge!(UNCLEANABLE_LOGS).set(uncleanable as f64);
}

/// Log was read to index its keys.
pub fn keys_read(bytes: u64) {
    counter!(KEY_INDEX_READ_BYTES).increment(bytes);
}

fn describe() {
    describe_gauge!(CONNECTIONS, "Connections that are open");
    describe_counter!(CONNECTIONS_CLOSED, "Connections that ended, by reason");
    describe_counter!(REQUESTS, "Requests, by API");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Time in a request's handler, waits for records included, by API"
    );
    describe_counter!(REQUEST_BYTES, Unit::Bytes, "Bytes of requests, by API");
    describe_counter!(ANSWER_BYTES, Unit::Bytes, "Bytes of answers");
    describe_counter!(PANICS, "Requests whose handler panicked: each is a fault to be reported");
    describe_counter!(APPENDED_BYTES, Unit::Bytes, "Bytes of batches that were stored");
    describe_counter!(SYNCS, "Syncs of partitions");
    describe_histogram!(SYNC_SECONDS, Unit::Seconds, "Time that the disk took for a sync of a partition");
    describe_gauge!(OPEN_SECONDS, Unit::Seconds, "Time that opening the data directory took at the start");
    describe_counter!(COLD_READS, "Fetches that waited for the disk");
    describe_counter!(COMPACTION_READ_BYTES, Unit::Bytes, "Bytes that log compaction read");
    describe_counter!(COMPACTION_WRITTEN_BYTES, Unit::Bytes, "Bytes that log compaction wrote");
    describe_counter!(COMPACTIONS, "Compactions of a log that ended");
    describe_counter!(
        KEY_INDEX_READ_BYTES,
        Unit::Bytes,
        "Bytes of log that were read to index the keys of records that were there before the index"
    );
    describe_gauge!(COMPACTION_LAST, Unit::Seconds, "When the last of them ended, in seconds since 1970");
    describe_gauge!(
        UNCLEANABLE_LOGS,
        "Logs that could not be compacted and are left alone until the restart"
    );
}

/// A label's value in Prometheus' text format.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
