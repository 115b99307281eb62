//! A look at a partition directory from outside: what is in it, and whether every promise about its files holds.
//!
//! It only reads, takes no lock, and needs no opened log, so a data directory can be looked at that a broker cannot
//! open. On the directory of a broker that runs, what is just being written can look torn.

mod check;
mod epochs;
mod files;
mod keys;
mod root;
#[cfg(test)]
mod tests;
mod transactions;

use std::sync::Arc;

use bytes::Bytes;
use records::BatchView;
use records::batch::EndMarker;
use records::ids::{Offset, TopicId};

use crate::checkpoints;
use crate::data_dir::{CLEAN_SHUTDOWN, stopped_boot};
use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};
use crate::log::stored_topic_id;
use crate::options::BATCH_HEADER_BYTES;
use crate::segment::{base_of, file_name};
use crate::segment_list::{self, Noted};
use crate::strays;
use crate::walk::{Step, Walk};

/// Bytes of a log read at once.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Findings told of one partition; what is beyond is counted.
pub const FINDINGS_MAX: usize = 100;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Names, lengths and batch headers.
    Describe,
    /// Every batch and record, and what stands beside them against it: indexes (those of aborted transactions against
    /// the markers), key indexes, producer snapshots, leader epochs, share state, and what the checkpoints say.
    Verify,
}

pub use root::root;

/// A file, a place in it, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the data directory.
    pub path: String,
    /// Byte position; `None` where it concerns the file as a whole.
    pub position: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its base offset.
    pub base: Offset,
    /// The offset behind its last batch.
    pub end: Offset,
    /// Bytes of its log file.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Records, as the batch headers count them; with [`Depth::Verify`] those that are there.
    pub records: u64,
    /// Markers that aborted a transaction.
    pub aborted: u64,
    /// Highest timestamp, milliseconds; −1 for none.
    pub max_timestamp: i64,
}

/// The key index of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyIndexReport {
    /// The segment's base offset.
    pub base: Offset,
    /// Bytes of the file.
    pub bytes: u64,
    /// Up to where it tells of the segment; what is beyond is read from the log.
    pub next: Offset,
    /// Records that it names.
    pub records: u64,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// The topic's id, where the directory tells it.
    pub topic_id: Option<TopicId>,
    /// Where the log starts: the checkpoint, or the first segment.
    pub log_start: Offset,
    /// The offset behind the last batch.
    pub end: Offset,
    /// The first offset of the earliest transaction that is open, as far as the log tells: committed records are read up
    /// to there. `None` where none is.
    pub open_since: Option<Offset>,
    /// Below it everything was synced when the checkpoint was written.
    pub recovery_point: Offset,
    /// Its segments, ascending.
    pub segments: Vec<SegmentReport>,
    /// The key indexes of segments, ascending.
    pub key_indexes: Vec<KeyIndexReport>,
    /// Share groups that have state beside it, by number, with the bytes of their files.
    pub share_state: Vec<(u64, u64)>,
    /// What is wrong; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond that.
    pub findings_more: u64,
}

/// The partitions of a data directory, by topic and index. What is named like one and holds no file of ours is none; what
/// cannot be looked into is listed, so that looking at it tells.
///
/// # Errors
/// When a directory cannot be listed.
pub fn partitions(disk: &dyn Disk) -> Result<Vec<(String, i32)>, StorageError> {
    let mut found = Vec::new();
    for entry in disk.list("").doing("list", "the data directory")? {
        let Some((topic, index)) = strays::parse_directory(&entry.name).filter(|_| entry.is_dir) else {
            continue;
        };
        match strays::has_files(disk, &entry.name) {
            Ok(false) => continue,
            Err(StorageError::Io { source, .. }) if strays::is_closed(&source) => {}
            looked => _ = looked?,
        }
        found.push((topic.to_owned(), index));
    }
    found.sort();
    Ok(found)
}

/// Whether anything in a directory is a broker's, ours or Kafka's: whose it is, a metadata store, a checkpoint, a partition.
///
/// # Errors
/// When it cannot be listed.
pub fn is_data_directory(disk: &dyn Disk) -> Result<bool, StorageError> {
    let entries = disk.list("").doing("list", "the data directory")?;
    let has_file = entries.iter().any(|entry| root::is_of_root(&entry.name));
    Ok(has_file || !partitions(disk)?.is_empty())
}

/// Topic and index of a partition's directory; `None` where the name is none of one.
#[must_use]
pub fn partition_of(directory: &str) -> Option<(&str, i32)> {
    strays::parse_directory(directory)
}

/// Looks at one partition.
///
/// # Errors
/// When the disk fails; what is wrong with the files is in the report.
pub fn inspect(
    disk: &Arc<dyn Disk>,
    topic: &str,
    partition: i32,
    depth: Depth,
) -> Result<PartitionReport, StorageError> {
    let directory = format!("{topic}-{partition}");
    let name = (topic.to_owned(), partition);
    // What cannot be read is told by `root`.
    let of = |file| {
        let bytes = disk.read(file).doing("read", file)?.unwrap_or_default();
        let offsets = std::str::from_utf8(&bytes).ok().and_then(checkpoints::parse);
        Ok::<_, StorageError>(offsets.and_then(|offsets| offsets.get(&name).copied()))
    };
    let marker = disk.read(CLEAN_SHUTDOWN).doing("read", CLEAN_SHUTDOWN)?;
    let list = match marker.as_deref().and_then(stopped_boot) {
        Some(boot) => segment_list::read(&**disk, boot)?,
        None => None,
    };
    // Before the log is read: it may grow meanwhile.
    let left = Left {
        is_clean: marker.is_some(),
        segments: list.and_then(|mut list| list.remove(&name)).unwrap_or_default(),
        recovery_point: of(checkpoints::RECOVERY_POINT)?.unwrap_or(Offset::ZERO),
        log_start: of(checkpoints::LOG_START)?.unwrap_or(Offset::ZERO),
        end: of(checkpoints::HIGH_WATERMARK)?,
        cleaned: of(checkpoints::HOLES)?.max(of(checkpoints::CLEANED)?).unwrap_or(Offset::ZERO),
    };
    let mut report = PartitionReport {
        topic: topic.to_owned(),
        partition,
        topic_id: stored_topic_id(&**disk, &directory)?,
        log_start: left.log_start,
        end: Offset::ZERO,
        open_since: None,
        recovery_point: left.recovery_point,
        segments: Vec::new(),
        key_indexes: Vec::new(),
        share_state: Vec::new(),
        findings: Vec::new(),
        findings_more: 0,
    };
    check::partition(disk, &directory, &left, depth, &mut report)?;
    keys::partition(disk, &directory, left.cleaned, depth, &mut report)?;
    Ok(report)
}

/// What the files at the root say of one log.
#[derive(Clone, Debug)]
struct Left {
    /// The broker closed everything in order, and none runs.
    is_clean: bool,
    /// Its segments, where the orderly stop left a list of them.
    segments: Vec<Noted>,
    recovery_point: Offset,
    log_start: Offset,
    /// The high watermark when it was written last; of a log that was closed in order its end.
    end: Option<Offset>,
    /// Compaction may have left holes below.
    cleaned: Offset,
}

fn is_clean(disk: &dyn Disk) -> Result<bool, StorageError> {
    Ok(disk.read_len(CLEAN_SHUTDOWN).doing("read", CLEAN_SHUTDOWN)?.is_some())
}

/// One batch of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedBatch {
    /// The segment's base offset.
    pub segment: Offset,
    /// Position in its log file.
    pub position: u64,
    /// The whole batch.
    pub bytes: Bytes,
    /// The transaction's end that it is, if it is one.
    pub marker: Option<EndMarker>,
}

/// Hands every batch from the one that holds `from` on to `visit`, until it answers false or the log ends.
///
/// # Errors
/// [`StorageError::Damaged`] where no batch stands; or what the disk says.
pub fn dump(
    disk: &Arc<dyn Disk>,
    topic: &str,
    partition: i32,
    from: Offset,
    mut visit: impl FnMut(DumpedBatch) -> bool,
) -> Result<(), StorageError> {
    let directory = format!("{topic}-{partition}");
    let bases = bases(&**disk, &directory)?;
    let first = bases.partition_point(|base| *base <= from).saturating_sub(1);
    for &segment in bases.iter().skip(first) {
        let path = join(&directory, &file_name(segment, ".log"));
        let file = disk.open(&path).doing("open", &path)?;
        let len = file.len().doing("measure", &path)?;
        let mut walk = Walk::new(&file, 0, len, WINDOW_BYTES);
        loop {
            match walk.step().doing("read", &path)? {
                Step::End => break,
                Step::Batch(header, _) if header.next() <= from => {}
                Step::Batch(header, position) => {
                    let mut bytes = vec![0; usize::try_from(header.size).unwrap_or(BATCH_HEADER_BYTES)];
                    file.read_exact_at(&mut bytes, position).doing("read", &path)?;
                    let view = BatchView::parse(&bytes).ok().filter(|_| header.is_control());
                    let marker = view.as_ref().and_then(EndMarker::of);
                    if !visit(DumpedBatch { segment, position, bytes: bytes.into(), marker }) {
                        return Ok(());
                    }
                }
                Step::Broken(reason) => {
                    let reason = format!("at byte {}: {reason}", walk.position());
                    return Err(StorageError::Damaged { path, reason });
                }
            }
        }
    }
    Ok(())
}

/// Base offsets of a directory's segments, ascending.
fn bases(disk: &dyn Disk, directory: &str) -> Result<Vec<Offset>, StorageError> {
    let entries = disk.list(directory).doing("list", directory)?;
    let mut bases: Vec<Offset> = entries.iter().filter_map(|entry| base_of(&entry.name, ".log")).collect();
    bases.sort_unstable();
    Ok(bases)
}

impl PartitionReport {
    fn find(&mut self, path: &str, position: Option<u64>, what: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { path: path.to_owned(), position, what: what.into() });
        } else {
            self.findings_more += 1;
        }
    }
}
