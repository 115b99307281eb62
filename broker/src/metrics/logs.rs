//! Logs on the page that Prometheus reads: asked of the shard's thread when somebody reads, so that they cost nothing
//! else. Sums over all logs, and series of the largest ones (`sluice.metrics.logs.max`).

use std::fmt::Write as _;

use storage::{LogView, Overview};

use super::escaped;

/// Name behind `sluice_`, type, meaning, value.
type Sum = (&'static str, &'static str, fn(&Overview) -> u64);

const SUMS: [Sum; 9] = [
    ("logs", "Logs that are open", |all| all.logs as u64),
    ("logs_bytes", "Bytes of record data in all logs", |all| all.bytes),
    ("logs_segments", "Segments of all logs", |all| all.segments as u64),
    ("key_indexes", "Logs whose keys are indexed", |all| all.key_indexes as u64),
    ("key_indexes_complete", "Logs of which every record is indexed", |all| all.key_indexes_complete as u64),
    ("key_index_bytes", "Bytes of key index files", |all| all.key_index_bytes),
    (
        "recovered_logs",
        "Logs whose end was checked at the start, since they were not closed in order",
        |all| all.recovery.logs,
    ),
    ("recovered_bytes", "Bytes of log that were read for it", |all| all.recovery.bytes),
    (
        "log_gaps",
        "Stretches of offsets that were missing in the middle of a log at the start: segments that are gone",
        |all| all.recovery.gaps as u64,
    ),
];

/// Name behind `sluice_log_`, type, meaning, value where the log has one.
type Series = (&'static str, &'static str, &'static str, fn(&LogView) -> Option<f64>);

const SERIES: [Series; 11] = [
    ("bytes", "gauge", "Bytes of record data", |log| Some(log.bytes as f64)),
    ("segments", "gauge", "Segments", |log| Some(log.segments as f64)),
    ("start_offset", "gauge", "First offset that is there", |log| Some(log.log_start.get() as f64)),
    ("end_offset", "gauge", "Offset behind the last record", |log| Some(log.end.get() as f64)),
    (
        "dirty_ratio",
        "gauge",
        "Share of bytes that compaction has not seen yet, 0 to 1, the segment that is written left out",
        |log| log.dirty_ratio,
    ),
    ("compactions_total", "counter", "Compactions that ended", |log| {
        log.dirty_ratio.map(|_| log.cleaning.runs as f64)
    }),
    (
        "compaction_last_begin_seconds",
        "gauge",
        "When the last compaction began, in seconds since 1970",
        |log| log.cleaning.last_run_ms.map(|ms| ms as f64 / 1000.0),
    ),
    ("compaction_read_bytes_total", "counter", "Bytes that compaction read", |log| {
        log.dirty_ratio.map(|_| log.cleaning.read_bytes as f64)
    }),
    ("compaction_written_bytes_total", "counter", "Bytes that compaction wrote", |log| {
        log.dirty_ratio.map(|_| log.cleaning.written_bytes as f64)
    }),
    ("key_index_bytes", "gauge", "Bytes of key index files", |log| {
        log.key_index.map(|keys| keys.file_bytes as f64)
    }),
    ("key_index_segments", "gauge", "Segments that are indexed to their end", |log| {
        log.key_index.map(|keys| keys.segments_indexed as f64)
    }),
];

/// The text of all series. Counters begin anew at a start.
pub(super) fn page(all: &Overview) -> String {
    let mut page = String::new();
    for (name, meaning, value) in SUMS {
        let _ = writeln!(
            page,
            "# HELP sluice_{name} {meaning}\n# TYPE sluice_{name} gauge\nsluice_{name} {}",
            value(all)
        );
    }
    for (name, kind, meaning, value) in SERIES {
        let _ = writeln!(page, "# HELP sluice_log_{name} {meaning}\n# TYPE sluice_log_{name} {kind}");
        for log in &all.largest {
            if let Some(value) = value(log) {
                let (topic, partition) = (escaped(&log.topic), log.partition);
                let _ = writeln!(
                    page,
                    "sluice_log_{name}{{topic=\"{topic}\",partition=\"{partition}\"}} {value}"
                );
            }
        }
    }
    page
}
