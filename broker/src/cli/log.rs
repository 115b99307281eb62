//! `sluice log`: looks at the logs of a data directory from outside. It only reads.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use records::BatchView;
use records::ids::Offset;
use storage::inspect::{self, Depth, DumpedBatch, Finding, PartitionReport};
use storage::{Disk, Options, ReadOnlyDisk, StorageError};

use super::Exit;

/// Look at the logs of a data directory; nothing is changed.
#[derive(Debug, Args)]
pub struct Log {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show partitions and their segments.
    Describe(Which),
    /// Check everything that can be checked without a broker. Exit code 1 where something is wrong.
    ///
    /// Looked at are: every batch with its CRC, and every record; offset and time indexes, indexes of aborted transactions
    /// and key indexes against the batches; producer snapshots and share state, each whether it is whole; leader epochs
    /// against the batches; the checkpoints at the root, and the log's ends and partitions that they name; the metadata
    /// store, and the partitions that it knows. Some of it says something only after an orderly stop. Not seen are: share
    /// state that was removed as a whole, a log start that was lowered within the first segment, what records mean.
    ///
    /// Nothing is written or locked: files need only be readable, and a broker may run, but what it is just writing can
    /// look torn.
    Verify(Which),
    /// Print the batches of a partition, and their records.
    Dump(Dump),
}

/// Which partitions.
#[derive(Debug, Args)]
struct Which {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "./sluice-data")]
    data_dir: PathBuf,
    /// Only this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only this partition of it.
    #[arg(long, requires = "topic")]
    partition: Option<i32>,
}

#[derive(Debug, Args)]
struct Dump {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "./sluice-data")]
    data_dir: PathBuf,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// The partition.
    #[arg(long)]
    partition: i32,
    /// Begin with the batch that holds this offset.
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: i64,
    /// Print at most so many batches.
    #[arg(long, value_name = "N", default_value_t = 100)]
    batches: usize,
    /// Print keys, values and headers too; bytes that are no text as \xNN.
    #[arg(long)]
    records: bool,
}

impl Log {
    /// Does what the command line says.
    #[must_use]
    pub fn run(self) -> Exit {
        let done = match self.command {
            Command::Describe(which) => which.run(Depth::Describe),
            Command::Verify(which) => which.run(Depth::Verify),
            Command::Dump(dump) => dump.run(),
        };
        match done {
            Ok(exit) => exit,
            Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Err(error) => {
                eprintln!("sluice log: {error}");
                Exit::Runtime
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("no data directory at {0}: name one with --data-dir")]
    NoDirectory(String),
    #[error("{0} is no data directory: nothing of a broker is in it; name one with --data-dir")]
    Foreign(String),
    #[error("no such partition here: {0}")]
    NoPartition(String),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

fn open(data_dir: &PathBuf) -> Result<Arc<dyn Disk>, Trouble> {
    let missing = || Trouble::NoDirectory(data_dir.display().to_string());
    if !data_dir.is_dir() {
        return Err(missing());
    }
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::new(data_dir).map_err(|_| missing())?);
    if !inspect::is_data_directory(&*disk)? {
        return Err(Trouble::Foreign(data_dir.display().to_string()));
    }
    Ok(disk)
}

impl Which {
    fn run(&self, depth: Depth) -> Result<Exit, Trouble> {
        let disk = open(&self.data_dir)?;
        let mut out = io::stdout().lock();
        let (mut looked_at, mut wrong) = (0_u64, 0_u64);
        if depth == Depth::Verify {
            for finding in inspect::root(&*disk)? {
                let directory = finding.path.split('/').next().unwrap_or_default();
                if inspect::partition_of(directory).is_some_and(|(topic, index)| !self.wants(topic, index)) {
                    continue;
                }
                wrong += 1;
                out.write_all(told_wrong(&finding).as_bytes())?;
            }
        }
        for (topic, partition) in inspect::partitions(&*disk)? {
            if !self.wants(&topic, partition) {
                continue;
            }
            looked_at += 1;
            // Where one cannot be read, the others can.
            match inspect::inspect(&disk, &topic, partition, depth) {
                Ok(report) => {
                    wrong += report.findings.len() as u64 + report.findings_more;
                    out.write_all(told(&report, depth).as_bytes())?;
                }
                Err(error) => {
                    wrong += 1;
                    writeln!(out, "{topic}-{partition}:\n  WRONG {error}")?;
                }
            }
        }
        if looked_at == 0 && self.topic.is_some() {
            let topic = self.topic.as_deref().unwrap_or_default();
            let partition = self.partition.map_or(String::new(), |partition| format!("-{partition}"));
            return Err(Trouble::NoPartition(format!("{topic}{partition}")));
        }
        if depth == Depth::Verify {
            writeln!(out, "{looked_at} partitions checked, {wrong} findings")?;
        }
        Ok(if wrong == 0 { Exit::Success } else { Exit::Runtime })
    }

    fn wants(&self, topic: &str, partition: i32) -> bool {
        self.topic.as_ref().is_none_or(|only| only == topic)
            && self.partition.is_none_or(|only| only == partition)
    }
}

fn told_wrong(finding: &Finding) -> String {
    let position = finding.position.map_or(String::new(), |position| format!(" at byte {position}"));
    format!("  WRONG {}{position}: {}\n", finding.path, finding.what)
}

fn told(report: &PartitionReport, depth: Depth) -> String {
    let mut text = String::new();
    let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
    let bytes: u64 = report.segments.iter().map(|segment| segment.bytes).sum();
    let _ = writeln!(
        text,
        "{}-{}: offsets {} to {}, {records} records, {bytes} bytes, {} segments, recovery point {}",
        report.topic,
        report.partition,
        report.log_start,
        report.end,
        report.segments.len(),
        report.recovery_point,
    );
    if depth == Depth::Describe {
        if let Some(open) = report.open_since {
            let _ = writeln!(text, "  a transaction is open since offset {open}");
        }
        for segment in &report.segments {
            let _ = writeln!(
                text,
                "  segment {}: to {}, {} batches, {} records, {} aborted transactions, {} bytes, highest timestamp {}",
                segment.base,
                segment.end,
                segment.batches,
                segment.records,
                segment.aborted,
                segment.bytes,
                segment.max_timestamp,
            );
        }
        for index in &report.key_indexes {
            let _ = writeln!(
                text,
                "  key index of segment {}: to {}, {} records, {} bytes",
                index.base, index.next, index.records, index.bytes,
            );
        }
        for (group, bytes) in &report.share_state {
            let _ = writeln!(text, "  state of share group {group}: {bytes} bytes");
        }
    }
    for finding in &report.findings {
        text.push_str(&told_wrong(finding));
    }
    if report.findings_more > 0 {
        let _ = writeln!(text, "  … and {} more", report.findings_more);
    }
    text
}

impl Dump {
    fn run(&self) -> Result<Exit, Trouble> {
        let disk = open(&self.data_dir)?;
        let partition = (self.topic.clone(), self.partition);
        if !inspect::partitions(&*disk)?.contains(&partition) {
            return Err(Trouble::NoPartition(format!("{}-{}", self.topic, self.partition)));
        }
        let mut out = io::stdout().lock();
        let mut left = self.batches;
        let mut written = Ok(());
        inspect::dump(&disk, &self.topic, self.partition, Offset(self.from), |batch| {
            if left == 0 {
                return false;
            }
            left -= 1;
            written = out.write_all(self.batch(&batch).as_bytes());
            written.is_ok()
        })?;
        written?;
        Ok(Exit::Success)
    }

    fn batch(&self, batch: &DumpedBatch) -> String {
        let mut text = String::new();
        let at = format!("{:020}.log byte {}", batch.segment.get(), batch.position);
        let view = match BatchView::parse(&batch.bytes) {
            Ok(view) => view,
            Err(error) => return format!("{at}: {error}\n"),
        };
        let attributes = view.attributes();
        let codec = attributes
            .codec()
            .map_or("unknown codec".to_owned(), |codec| format!("{codec:?}").to_lowercase());
        let _ = write!(
            text,
            "{at}: offsets {} to {}, {} records, {} bytes, {codec}, leader epoch {}, highest timestamp {}",
            view.base_offset(),
            view.last_offset(),
            view.record_count(),
            view.size(),
            view.leader_epoch(),
            view.max_timestamp(),
        );
        if view.producer_id() >= 0 {
            let (id, epoch, sequence) = (view.producer_id(), view.producer_epoch(), view.base_sequence());
            let _ = write!(text, ", producer {id} epoch {epoch} sequence {sequence}");
        }
        for (holds, word) in [
            (attributes.is_transactional(), ", transactional"),
            (attributes.is_control(), ", control"),
            (!view.crc_is_valid(), ", WRONG CRC"),
        ] {
            text.push_str(if holds { word } else { "" });
        }
        if let Some(marker) = batch.marker {
            let end = if marker.commit { "commit" } else { "abort" };
            let _ = write!(text, ", {end} by coordinator epoch {}", marker.coordinator_epoch);
        }
        text.push('\n');
        if self.records {
            self.records(&view, &mut text);
        }
        text
    }

    fn records(&self, view: &BatchView<'_>, text: &mut String) {
        let records = match view.records(Options::default().inflated_bytes_max) {
            Ok(records) => records,
            Err(error) => {
                let _ = writeln!(text, "  cannot be read: {error}");
                return;
            }
        };
        for record in records.iter() {
            match record {
                Ok(record) => {
                    let _ = write!(
                        text,
                        "  {} at {}: {} = {}",
                        record.offset,
                        record.timestamp,
                        shown(record.key),
                        shown(record.value)
                    );
                    for header in record.headers.iter() {
                        let _ = write!(text, ", {}: {}", shown(Some(header.key)), shown(header.value));
                    }
                    text.push('\n');
                }
                Err(error) => {
                    let _ = writeln!(text, "  cannot be read: {error}");
                    return;
                }
            }
        }
    }
}

/// Bytes as text, null where there are none; quoted, so that blanks and control characters show.
fn shown(bytes: Option<&[u8]>) -> String {
    bytes.map_or("null".to_owned(), |bytes| format!("\"{}\"", bytes.escape_ascii()))
}
