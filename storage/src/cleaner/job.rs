//! One compaction of one log, in steps (Kafka's `Cleaner.doClean`).
//!
//! A step is a bounded piece of work on sealed segments, which nobody changes, so it may run on any thread while the
//! owner of the logs goes on. What a step has finished the owner puts in its place. The way of a job: sync what is to
//! be compacted and not known to be durable; see which transactions were aborted; note the last offset of each new
//! key; then write group after group of segments anew.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use records::batch::Record;
use records::ids::{Offset, PartitionId};
use records::key_hash::key_fingerprint;
use records::{BatchView, RecordError};

use super::filter::{Kept, Rules};
use super::group::groups;
use super::transactions::Seen;
use crate::batch_header::BatchHeader;
use crate::disk::{Disk, is_full, join};
use crate::error::StorageError;
use crate::log::{CLEANED, Replacement, Source, remove_cleaned};
use crate::options::{CleanerOptions, LogConfig, MARKER_BYTES_MAX, SEGMENT_BYTES_MAX, WALK_WINDOW_BYTES};
use crate::segment::{Segment, file_name};
use crate::transactions::Marker;
use crate::walk::{Step, Walk};

/// What to compact.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) partition: PartitionId,
    pub(crate) directory: String,
    /// All segments, the active one last.
    pub(crate) sources: Vec<Source>,
    /// How many of them, from the first on, may be compacted.
    pub(crate) cleanable: usize,
    /// Records from here on are new.
    pub(crate) dirty_from: Offset,
    /// Everything below is durable.
    pub(crate) synced: Offset,
    pub(crate) config: LogConfig,
    pub(crate) options: CleanerOptions,
}

impl Plan {
    /// The offset behind what is compacted.
    pub(crate) fn end(&self) -> Offset {
        self.sources[..self.cleanable].last().map_or(self.dirty_from, |source| source.behind)
    }
}

/// A compaction between two steps.
#[derive(Debug)]
pub struct CleanJob {
    pub(crate) id: u64,
    pub(crate) plan: Plan,
    disk: Arc<dyn Disk>,
    cancelled: Arc<AtomicBool>,
    phase: Phase,
    /// The segment that is read, and where.
    source: usize,
    walk: Option<Walk>,
    /// The offset that the next batch must not be below.
    expected: Offset,
    rules: Rules,
    seen: Seen,
    groups: VecDeque<Range<usize>>,
    output: Option<Output>,
    /// The base of the segment whose files are there and not handed over yet.
    unfinished: Option<Offset>,
    read: u64,
    written: u64,
}

#[derive(Debug)]
enum Phase {
    Secure,
    Outcomes,
    Index,
    Clean,
    /// The names of a finished group are to be synced.
    Swap(Replacement),
}

/// The segment that a group of segments becomes.
#[derive(Debug)]
struct Output {
    group: Range<usize>,
    segment: Segment,
    /// Batches that are not written yet.
    pending: Vec<u8>,
    changed: bool,
}

/// A step that is done.
#[derive(Debug)]
pub struct CleanStep {
    pub(crate) job: CleanJob,
    pub(crate) outcome: Outcome,
}

/// What the owner of the logs has to do next.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Run the job again.
    More,
    /// Begin to put a finished segment in its place, then run the job again.
    Ready(Replacement),
    /// Put it in its place, then run the job again.
    Synced(Replacement),
    /// All is compacted below the offset where the next run begins.
    Done,
    /// The job was told to stop.
    Cancelled,
    /// It cannot go on.
    Failed(CleanError),
}

/// Why a compaction ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CleanError {
    /// Try again when there is room.
    #[error("the disk is full; free some room")]
    Full,
    /// The log is not durable: it must be closed for writing.
    #[error("a sync failed: {0}")]
    Sync(#[source] io::Error),
    /// A segment is no more there: the log was cut meanwhile.
    #[error("a segment left the log")]
    Gone,
    /// The log is damaged: restore it.
    #[error("segment {segment} is damaged at byte {position}: {reason}")]
    Damaged { segment: Offset, position: u64, reason: &'static str },
    /// Lower `segment.bytes`.
    #[error("segment {0} would become larger than a segment can be; lower segment.bytes")]
    TooLarge(Offset),
    /// The disk failed.
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for CleanError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            _ if is_full(&error) => Self::Full,
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Io(error),
        }
    }
}

impl From<StorageError> for CleanError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Full => Self::Full,
            other => Self::Io(io::Error::other(other)),
        }
    }
}

impl CleanStep {
    /// The partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.job.plan.partition
    }

    /// Bytes that the step read and wrote.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        self.job.bytes()
    }
}

impl CleanJob {
    pub(crate) fn new(
        id: u64,
        plan: Plan,
        rules: Rules,
        disk: Arc<dyn Disk>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        Self {
            id,
            expected: plan.sources[0].base,
            plan,
            disk,
            cancelled,
            phase: Phase::Secure,
            source: 0,
            walk: None,
            rules,
            seen: Seen::default(),
            groups: VecDeque::new(),
            output: None,
            unfinished: None,
            read: 0,
            written: 0,
        }
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.plan.partition
    }

    /// Bytes that the last step read and wrote.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.read, self.written)
    }

    /// The offset below which the keys of all records are known: where the next compaction begins once this one is done.
    pub(crate) fn indexed_until(&self) -> Offset {
        self.rules.indexed_until
    }

    /// Works until about `bytes_max` bytes were read and written, or the owner of the logs is needed. Blocks for as
    /// long as the disk takes.
    #[must_use]
    pub fn run(mut self, bytes_max: u64) -> CleanStep {
        self.read = 0;
        self.written = 0;
        let outcome = self.work(bytes_max).unwrap_or_else(Outcome::Failed);
        CleanStep { job: self, outcome }
    }

    fn work(&mut self, bytes_max: u64) -> Result<Outcome, CleanError> {
        loop {
            let stopped = self.cancelled.load(Ordering::SeqCst);
            let outcome = match &self.phase {
                Phase::Swap(new) => {
                    let new = new.clone();
                    self.phase = Phase::Clean;
                    self.disk.sync_dir(&self.plan.directory).map_err(CleanError::Sync)?;
                    return Ok(Outcome::Synced(new));
                }
                _ if stopped => return Ok(Outcome::Cancelled),
                Phase::Secure => self.secure().map(|()| None),
                Phase::Outcomes => self.note_outcome().map(|()| None),
                Phase::Index => self.index().map(|()| None),
                Phase::Clean => self.clean(),
            };
            // What a directory of the same name, made after this one was deleted, has or lacks, says nothing.
            if self.cancelled.load(Ordering::SeqCst) {
                return Ok(Outcome::Cancelled);
            }
            if let Some(outcome) = outcome? {
                return Ok(outcome);
            }
            if self.read + self.written >= bytes_max {
                return Ok(Outcome::More);
            }
        }
    }

    /// Syncs one segment that is to be compacted, the names last. Where compaction has been, recovery takes a hole for
    /// what it left: so nothing there may get lost in any other way.
    fn secure(&mut self) -> Result<(), CleanError> {
        if self.source == self.plan.cleanable {
            if self.plan.end() > self.plan.synced {
                self.disk.sync_dir(&self.plan.directory).map_err(CleanError::Sync)?;
                self.disk.sync_dir("").map_err(CleanError::Sync)?;
            }
            self.enter(Phase::Outcomes, 0);
            return Ok(());
        }
        let source = self.plan.sources[self.source];
        if source.behind > self.plan.synced {
            self.disk.open(&self.path_of(source.base))?.sync_data().map_err(CleanError::Sync)?;
        }
        self.source += 1;
        Ok(())
    }

    /// Looks at one batch's part in a transaction; goes beyond what is compacted, until every transaction that began
    /// there has its marker.
    fn note_outcome(&mut self) -> Result<(), CleanError> {
        let is_decided = |job: &Self| !job.rules.outcomes.is_open_below(job.plan.end());
        match self.step(WALK_WINDOW_BYTES)? {
            Some((header, position)) => {
                self.read += header.size.min(WALK_WINDOW_BYTES as u64);
                let marker = if header.is_control() { Some(self.marker(&header, position)?) } else { None };
                self.rules.outcomes.note(&header, marker);
                if self.source >= self.plan.cleanable && marker.is_some() && is_decided(self) {
                    self.begin_index();
                }
            }
            None => {
                self.source += 1;
                if self.rules.outcomes.is_full() {
                    self.plan.cleanable = self.plan.cleanable.min(self.source);
                }
                let is_over = self.source >= self.plan.cleanable && is_decided(self);
                if is_over || self.source == self.plan.sources.len() {
                    self.begin_index();
                }
            }
        }
        Ok(())
    }

    fn marker(&mut self, header: &BatchHeader, position: u64) -> Result<Marker, CleanError> {
        if header.size > MARKER_BYTES_MAX {
            return Ok(Marker::Other);
        }
        let (segment, walk) = (self.plan.sources[self.source].base, self.walk.as_mut());
        let damaged = |reason| CleanError::Damaged { segment, position, reason };
        let bytes = walk.expect("a step was taken").whole(header, position)?.ok_or(damaged(CUT_SHORT))?;
        let batch = BatchView::parse(bytes).map_err(|_| damaged(NO_BATCH))?;
        if batch.crc_is_valid() { Ok(Marker::of(&batch)) } else { Err(damaged(WRONG_CRC)) }
    }

    /// Nothing at or behind the first record that is not decided may be compacted.
    fn begin_index(&mut self) {
        if let Some(open) = self.rules.outcomes.first_open() {
            let decided = self.plan.sources.partition_point(|source| source.behind <= open);
            self.plan.cleanable = self.plan.cleanable.min(decided);
        }
        let dirty = self.plan.sources.partition_point(|source| source.behind <= self.plan.dirty_from);
        self.rules.indexed_until = self.plan.dirty_from;
        self.enter(Phase::Index, dirty);
    }

    /// Notes where the keys of one batch stand.
    fn index(&mut self) -> Result<(), CleanError> {
        if self.source >= self.plan.cleanable {
            self.begin_clean();
            return Ok(());
        }
        let Some((header, position)) = self.step(self.plan.options.io_bytes)? else {
            self.rules.indexed_until = self.rules.indexed_until.max(self.plan.sources[self.source].behind);
            self.source += 1;
            return Ok(());
        };
        self.read += header.size;
        if header.last() < self.plan.dirty_from {
            return Ok(());
        }
        let without_keys =
            header.is_control() || header.is_emptied() || self.rules.outcomes.is_aborted(&header);
        let full_at = if without_keys { None } else { self.index_keys(&header, position)? };
        match full_at {
            None => self.rules.indexed_until = self.rules.indexed_until.max(header.next()),
            Some(offset) => {
                self.rules.indexed_until = self.rules.indexed_until.max(offset);
                self.begin_clean();
            }
        }
        Ok(())
    }

    /// The offset of the first record whose key found no room.
    fn index_keys(&mut self, header: &BatchHeader, position: u64) -> Result<Option<Offset>, CleanError> {
        let segment = self.plan.sources[self.source].base;
        let batch = checked(self.walk.as_mut(), header, position, segment)?;
        let (map, from, seed) = (&mut self.rules.map, self.plan.dirty_from, self.rules.seed);
        let noted = batch.scan(self.rules.inflated_max, |record: Record<'_>| match record.key {
            Some(key) if record.offset >= from && !map.put(key_fingerprint(key, seed), record.offset) => {
                Err(Unindexed::Full(record.offset))
            }
            _ => Ok(()),
        });
        match noted {
            Err(Unindexed::Full(offset)) => Ok(Some(offset)),
            // What does not decode stays as it is.
            Err(Unindexed::Undecodable) | Ok(()) => Ok(None),
        }
    }

    fn begin_clean(&mut self) {
        let count = self.plan.sources[..self.plan.cleanable]
            .partition_point(|source| source.base < self.rules.indexed_until);
        self.groups = groups(&self.plan.sources[..count], &self.plan.config);
        if self.rules.indexed_until <= self.plan.dirty_from {
            self.groups.clear();
        }
        self.enter(Phase::Clean, 0);
    }

    /// Takes one batch over, or begins or ends a group.
    fn clean(&mut self) -> Result<Option<Outcome>, CleanError> {
        let Some(output) = &self.output else { return self.begin_group() };
        if self.source == output.group.end {
            return self.end_group();
        }
        let Some((header, position)) = self.step(self.plan.options.io_bytes)? else {
            self.source += 1;
            return Ok(None);
        };
        self.read += header.size;
        let segment = self.plan.sources[self.source].base;
        let batch = checked(self.walk.as_mut(), &header, position, segment)?;
        let kept = self.rules.decide(&batch, &header, &mut self.seen).unwrap_or_else(|reason| {
            let log = &self.plan.directory;
            tracing::warn!(log, %segment, position, %reason, "batch does not decode, compaction leaves it");
            Kept::Whole
        });
        let output = self.output.as_mut().expect("a group is open");
        self.seen.take_kept().iter().for_each(|txn| output.segment.note_aborted(txn));
        output.changed |= kept != Kept::Whole;
        match &kept {
            Kept::Whole => output.pending.extend_from_slice(batch.bytes()),
            Kept::Changed(bytes) => output.pending.extend_from_slice(bytes),
            Kept::Nothing => {}
        }
        if output.pending.len() >= self.plan.options.io_bytes {
            self.written += output.flush(self.plan.config.index_interval_bytes)?;
        }
        Ok(None)
    }

    fn begin_group(&mut self) -> Result<Option<Outcome>, CleanError> {
        let Some(group) = self.groups.pop_front() else { return Ok(Some(Outcome::Done)) };
        let base = self.plan.sources[group.start].base;
        self.unfinished = Some(base);
        let segment = Segment::create_named(&self.disk, &self.plan.directory, base, CLEANED)?;
        self.source = group.start;
        self.output = Some(Output { changed: group.len() > 1, group, segment, pending: Vec::new() });
        Ok(None)
    }

    /// Everything of the group is written: syncs it, and hands it over where it differs from what it was made of.
    fn end_group(&mut self) -> Result<Option<Outcome>, CleanError> {
        let mut output = self.output.take().expect("a group is open");
        let base = output.segment.base();
        if !output.changed {
            remove_cleaned(&*self.disk, &self.plan.directory, base);
            self.unfinished = None;
            return Ok(None);
        }
        let sources = &self.plan.sources[output.group.clone()];
        self.written += output.flush(self.plan.config.index_interval_bytes)?;
        output.segment.seal()?;
        if sources.iter().any(|source| source.has_txn_index) {
            // Even if it is empty: it must take the place of the old one.
            output.segment.create_txn_index()?;
        }
        let indexes = output.segment.index_files()?;
        let log = Arc::clone(output.segment.log_file()?);
        for file in indexes.into_iter().chain([log]) {
            file.sync_data()?;
        }
        let replaced = sources.iter().map(|source| (source.base, source.bytes)).collect();
        Ok(Some(Outcome::Ready(Replacement { replaced, found: output.segment.found() })))
    }

    /// The next step syncs the names of a segment that is being put in its place.
    pub(crate) fn sync_names_of(&mut self, new: Replacement) {
        self.phase = Phase::Swap(new);
        self.unfinished = None;
    }

    /// The base offset of a segment of which there are files that were not handed over.
    pub(crate) fn unfinished(&self) -> Option<Offset> {
        self.unfinished
    }

    fn enter(&mut self, phase: Phase, source: usize) {
        self.phase = phase;
        self.source = source;
        self.walk = None;
    }

    /// The next batch of the segment, by its header; `None` at its end.
    fn step(&mut self, window_bytes: usize) -> Result<Option<(BatchHeader, u64)>, CleanError> {
        let source = self.plan.sources[self.source];
        let walk = match &mut self.walk {
            Some(walk) => walk,
            None => {
                let file = self.disk.open(&self.path_of(source.base))?;
                self.expected = source.base;
                self.walk.insert(Walk::new(&file, 0, source.bytes, window_bytes))
            }
        };
        let damaged = |position, reason| CleanError::Damaged { segment: source.base, position, reason };
        match walk.step()? {
            Step::Batch(header, position) if header.base < self.expected || header.next() > source.behind => {
                Err(damaged(position, "offsets do not follow the batch before"))
            }
            Step::Batch(header, position) => {
                self.expected = header.next();
                Ok(Some((header, position)))
            }
            Step::End => {
                self.walk = None;
                Ok(None)
            }
            Step::Broken(reason) => Err(damaged(walk.position(), reason)),
        }
    }

    fn path_of(&self, base: Offset) -> String {
        join(&self.plan.directory, &file_name(base, ".log"))
    }
}

impl Output {
    /// Writes what is pending; how many bytes.
    fn flush(&mut self, index_interval: u64) -> Result<u64, CleanError> {
        let bytes = self.pending.len() as u64;
        if self.segment.size() + bytes > SEGMENT_BYTES_MAX {
            return Err(CleanError::TooLarge(self.segment.base()));
        }
        self.segment.append_all(&self.pending, index_interval)?;
        self.pending.clear();
        Ok(bytes)
    }
}

/// Why a batch's keys are not all noted.
enum Unindexed {
    Full(Offset),
    Undecodable,
}

impl From<RecordError> for Unindexed {
    fn from(_: RecordError) -> Self {
        Self::Undecodable
    }
}

const CUT_SHORT: &str = "the file ends in the middle of a batch";
const NO_BATCH: &str = "no valid batch header";
const WRONG_CRC: &str = "crc does not match";

/// The whole batch that a walk found, its CRC checked: what is written anew gets a new CRC, under which no damage would
/// be found any more.
fn checked<'a>(
    walk: Option<&'a mut Walk>,
    header: &BatchHeader,
    position: u64,
    segment: Offset,
) -> Result<BatchView<'a>, CleanError> {
    let damaged = |reason| CleanError::Damaged { segment, position, reason };
    let walk = walk.expect("a step was taken");
    let bytes = walk.whole(header, position)?.ok_or(damaged(CUT_SHORT))?;
    let batch = BatchView::parse(bytes).map_err(|_| damaged(NO_BATCH))?;
    if batch.crc_is_valid() { Ok(batch) } else { Err(damaged(WRONG_CRC)) }
}
