//! What is taken of one partition: decided by reading all of it, before anything is written.
//!
//! Taken are whole batches below the high watermark, in the segments that reach above the log start. Every batch below
//! the high watermark must be sound; what stands behind it is never looked at.

use std::collections::BTreeSet;

use records::BatchView;
use records::ids::{Offset, TopicId};

use super::error::ImportError;
use super::source::{Source, SourceDir};
use crate::batch_header::BatchHeader;
use crate::disk::join;
use crate::error::IoContext;
use crate::leader_epochs;
use crate::options::{MARKER_BYTES_MAX, RECOVERY_WINDOW_BYTES};
use crate::producer_state::{self, SNAPSHOT};
use crate::segment::{base_of, file_name};
use crate::transactions::Marker;
use crate::walk::{Step, Walk};

/// What is taken of a partition.
#[derive(Clone, Debug)]
pub struct PartitionPlan {
    /// The partition's index.
    pub partition: i32,
    /// Everything below was deleted.
    pub log_start: Offset,
    /// The offset behind the last record that is taken.
    pub end: Offset,
    /// Bytes of record batches that are taken.
    pub bytes: u64,
    /// Segments that are taken, the last one maybe in part.
    pub segments: usize,
    /// Bytes of log behind the high watermark, which are not taken.
    pub bytes_behind: u64,
    /// The broker was not stopped in order, and died before it wrote a high watermark of this partition.
    pub is_unknown: bool,
    /// Transactions that the source left open, and that get their end here.
    pub open_transactions: usize,
    pub(super) kept: Vec<KeptSegment>,
    /// Offsets of the producer snapshots that are taken.
    pub(super) snapshots: Vec<Offset>,
    /// Compaction may have left holes below.
    pub(super) cleaned: Offset,
    /// Up to where the source had compacted it.
    pub(super) compacted: Offset,
    pub(super) leader_epoch: i32,
    pub(super) next_producer: i64,
}

/// The whole batches of a segment that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptSegment {
    pub(super) base: Offset,
    pub(super) bytes: u64,
}

impl Source {
    /// Reads a partition through and decides what is taken of it. In a topic that `compacts` offsets may be missing.
    ///
    /// # Errors
    /// [`ImportError`] where a file is damaged or missing.
    pub fn plan(
        &self,
        topic: &str,
        id: TopicId,
        partition: i32,
        compacts: bool,
    ) -> Result<PartitionPlan, ImportError> {
        let name = (topic.to_owned(), partition);
        let Some(dir) = self.dir_of(&name, id)? else {
            return Err(ImportError::NoPartition { topic: topic.to_owned(), partition });
        };
        let reader = Reader { dir, directory: format!("{topic}-{partition}"), compacts };
        let bases = reader.bases()?;
        let first = bases.first().copied().unwrap_or_default();
        let log_start = dir.log_starts.get(&name).copied().unwrap_or_default().max(first);
        let written = dir.high_watermark(&name, reader.has_records(&bases)?)?;
        // Never below the log start.
        let high = written.unwrap_or_default().max(log_start);
        let compacted = dir.cleaned.get(&name).copied().unwrap_or_default();
        let mut read = Read {
            plan: PartitionPlan {
                partition,
                log_start,
                end: log_start,
                bytes: 0,
                segments: 0,
                bytes_behind: 0,
                is_unknown: written.is_none(),
                open_transactions: 0,
                kept: Vec::new(),
                snapshots: Vec::new(),
                cleaned: compacted,
                compacted,
                leader_epoch: -1,
                next_producer: 0,
            },
            next: None,
            open: BTreeSet::new(),
        };
        let first_kept = bases.partition_point(|base| *base <= log_start).saturating_sub(1);
        for &base in bases.iter().skip(first_kept) {
            reader.segment(base, high, &mut read)?;
        }
        let Read { mut plan, next, open } = read;
        let end = next.unwrap_or(log_start).max(log_start);
        if end < high && plan.bytes_behind == 0 {
            let reason = format!("the log ends at {end}, below its high watermark {high}");
            return Err(dir.damaged(&reader.directory, None, reason));
        }
        plan.end = end;
        plan.cleaned = plan.cleaned.min(end);
        plan.compacted = plan.compacted.min(end);
        plan.segments = plan.kept.len();
        plan.bytes = plan.kept.iter().map(|segment| segment.bytes).sum();
        plan.open_transactions = open.len();
        reader.others(&mut plan, dir.recovery_points.get(&name).copied().unwrap_or_default())?;
        Ok(plan)
    }
}

struct Reader<'a> {
    dir: &'a SourceDir,
    directory: String,
    compacts: bool,
}

struct Read {
    plan: PartitionPlan,
    /// The offset behind the last batch; `None` before the first segment.
    next: Option<Offset>,
    /// Producers with a transaction that has no end so far.
    open: BTreeSet<i64>,
}

impl Reader<'_> {
    /// Base offsets of the segments, ascending.
    fn bases(&self) -> Result<Vec<Offset>, ImportError> {
        let mut bases = Vec::new();
        for entry in self.dir.list(&self.directory)? {
            if entry.name.ends_with(".swap") {
                let path = join(&self.directory, &entry.name);
                let reason = "a compaction was interrupted; start the Kafka broker and stop it once more";
                return Err(self.dir.damaged(&path, None, reason));
            }
            bases.extend(base_of(&entry.name, ".log"));
        }
        bases.sort_unstable();
        Ok(bases)
    }

    /// Whether any of the segments holds a byte.
    fn has_records(&self, bases: &[Offset]) -> Result<bool, ImportError> {
        for base in bases {
            let path = join(&self.directory, &file_name(*base, ".log"));
            if self.dir.disk.read_len(&path).doing("measure", &path)?.is_some_and(|len| len > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn segment(&self, base: Offset, high: Offset, read: &mut Read) -> Result<(), ImportError> {
        let path = join(&self.directory, &file_name(base, ".log"));
        let file = self.dir.open_file(&path)?;
        let len = file.len().doing("measure", &path)?;
        if read.next.is_some_and(|next| next >= high) || read.plan.bytes_behind > 0 {
            read.plan.bytes_behind += len;
            return Ok(());
        }
        if base < high {
            self.check_gap(&path, 0, read, base)?;
        }
        let mut walk = Walk::new(&file, 0, len, RECOVERY_WINDOW_BYTES).checked();
        let mut kept = 0;
        let mut next = read.next.unwrap_or(base).max(base);
        read.next = Some(next);
        loop {
            match walk.step().doing("read", &path)? {
                Step::End => break,
                // What is not to be seen may be torn, too.
                Step::Broken(_) if next >= high => break,
                Step::Broken(reason) => {
                    return Err(self.dir.damaged(&path, Some(walk.position()), reason));
                }
                Step::Batch(header, _) if header.last() >= high => break,
                Step::Batch(header, position) => {
                    if header.base < next {
                        let reason = format!("offset {} stands behind {next}", header.base);
                        return Err(self.dir.damaged(&path, Some(position), reason));
                    }
                    if header.last() - base > i64::from(i32::MAX) {
                        let reason = "the offset is too far from the segment's first";
                        return Err(self.dir.damaged(&path, Some(position), reason));
                    }
                    self.check_gap(&path, position, read, header.base)?;
                    let marker = if header.is_control() && header.size <= MARKER_BYTES_MAX {
                        let bytes = walk.whole(&header, position).doing("read", &path)?.unwrap_or_default();
                        BatchView::parse(bytes).ok().map(|batch| Marker::of(&batch))
                    } else {
                        None
                    };
                    note(read, &header, marker);
                    next = header.next();
                    read.next = Some(next);
                    kept = position + header.size;
                }
            }
        }
        read.plan.bytes_behind += len - kept;
        read.plan.kept.push(KeptSegment { base, bytes: kept });
        Ok(())
    }

    /// Offsets may be missing where compaction was, or may have been.
    fn check_gap(
        &self,
        path: &str,
        position: u64,
        read: &mut Read,
        found: Offset,
    ) -> Result<(), ImportError> {
        let Some(expected) = read.next.filter(|expected| *expected < found) else { return Ok(()) };
        if expected >= read.plan.cleaned && !self.compacts {
            let to = found - 1;
            return Err(ImportError::Gap { path: self.dir.path(path), position, from: expected, to });
        }
        read.plan.cleaned = read.plan.cleaned.max(found);
        Ok(())
    }

    /// What stands beside the segments: epochs must be readable, and the snapshots of producers that are taken.
    fn others(&self, plan: &mut PartitionPlan, recovery_point: Offset) -> Result<(), ImportError> {
        let path = join(&self.directory, leader_epochs::FILE);
        let bytes = self.dir.read(&path)?;
        let epochs = if bytes.is_empty() { Some(Vec::new()) } else { leader_epochs::parse_file(&bytes) };
        let epochs = epochs.ok_or_else(|| self.dir.damaged(&path, None, "is no leader epoch checkpoint"))?;
        for (epoch, _) in epochs {
            plan.leader_epoch = plan.leader_epoch.max(epoch);
        }
        // Nobody vouches for what was written behind the recovery point of a directory that was not closed in order.
        let trusted = if self.dir.is_clean { plan.end } else { recovery_point.min(plan.end) };
        let first = plan.kept.first().map_or(plan.end, |segment| segment.base);
        for entry in self.dir.list(&self.directory)? {
            let Some(at) = base_of(&entry.name, SNAPSHOT) else { continue };
            if !(first..=trusted).contains(&at) {
                continue;
            }
            let path = join(&self.directory, &entry.name);
            let producers = producer_state::decode(&self.dir.read(&path)?)
                .ok_or_else(|| self.dir.damaged(&path, None, "is no producer snapshot of version 1"))?;
            plan.next_producer = plan.next_producer.max(producers.next_id());
            plan.snapshots.push(at);
        }
        Ok(())
    }
}

fn note(read: &mut Read, header: &BatchHeader, marker: Option<Marker>) {
    read.plan.leader_epoch = read.plan.leader_epoch.max(header.leader_epoch);
    read.plan.next_producer = read.plan.next_producer.max(header.producer_id.saturating_add(1));
    if header.is_transactional() {
        if header.is_control() {
            if marker != Some(Marker::Other) {
                read.open.remove(&header.producer_id);
            }
        } else {
            read.open.insert(header.producer_id);
        }
    }
}
