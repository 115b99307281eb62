//! Keeping an index up: at append, and step by step for what was there before.
//!
//! A segment's index grows from its beginning without gaps. A batch that is appended is taken in when the index
//! reaches just up to it; otherwise it is left to the building steps, which end where the log ends.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use records::BatchView;
use records::ids::{KeyHash, Offset, PartitionId};

use super::pending::Limits;
use super::reader::KeyFault;
use super::scan::{Found, keys_of};
use super::segment::{SegmentKeys, Truth};
use super::{KeyCache, KeyIndexFacts, KeyIndexStep, KeyedRecord, SUFFIX};
use crate::disk::{Disk, join};
use crate::error::{IoContext, ReadError, StorageError};
use crate::leader_epochs::LeaderEpochs;
use crate::log::PartitionLog;
use crate::options::{KEY_FILES_OPEN_MAX, KEY_SCAN_WINDOW_BYTES, KEY_STEP_LOADS_MAX};
use crate::segment::file_name;

/// The indexes of a log's segments.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    disk: Arc<dyn Disk>,
    directory: String,
    id: PartitionId,
    inflated_max: usize,
    segments: BTreeMap<Offset, SegmentKeys>,
    /// The segment that was appended to last.
    active: Option<Offset>,
    /// Segments that were asked for so far.
    serial_last: u64,
    /// Whose files may be open, oldest first.
    opened: VecDeque<Offset>,
    /// The keys of one batch.
    scratch: Vec<KeyedRecord>,
    limits: Limits,
}

impl KeyIndex {
    /// Of a log of which nobody has looked at an index yet.
    pub(crate) fn new(disk: &Arc<dyn Disk>, directory: &str, id: PartitionId, inflated_max: usize) -> Self {
        Self {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            id,
            inflated_max,
            segments: BTreeMap::new(),
            active: None,
            serial_last: 0,
            opened: VecDeque::new(),
            scratch: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Makes blocks smaller than they are, so that tests come to many.
    #[cfg(test)]
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The index of a segment.
    pub(super) fn of(&mut self, truth: &Truth<'_>) -> &mut SegmentKeys {
        let base = truth.base;
        let path = || join(&self.directory, &file_name(base, SUFFIX));
        self.segments.entry(base).or_insert_with(|| {
            self.serial_last += 1;
            SegmentKeys::new(&self.disk, path(), (self.id, base), (self.serial_last, self.limits))
        })
    }

    /// The index of a segment if it is the one that was asked for under this number and still grows.
    pub(super) fn growing(&mut self, base: Offset, serial: u64) -> Option<&mut SegmentKeys> {
        self.segments.get_mut(&base).filter(|keys| keys.serial == serial && keys.growing().is_some())
    }

    pub(super) fn inflated_max(&self) -> usize {
        self.inflated_max
    }

    /// The index of a segment if anybody asked for it.
    pub(crate) fn known(&self, base: Offset) -> Option<std::ops::Range<Offset>> {
        self.segments.get(&base).map(SegmentKeys::covered)
    }

    /// Notes that a segment's file is open, and bounds how many are.
    pub(super) fn opened(&mut self, base: Offset) {
        if self.opened.contains(&base) {
            return;
        }
        if self.opened.len() == KEY_FILES_OPEN_MAX
            && let Some(oldest) = self.opened.pop_front()
            && let Some(keys) = self.segments.get_mut(&oldest)
        {
            keys.close();
        }
        self.opened.push_back(base);
    }

    /// Forgets the segments below `base`, of which the files are gone.
    pub(crate) fn keep_from(&mut self, base: Offset) {
        self.segments = self.segments.split_off(&base);
        self.opened.retain(|opened| *opened >= base);
    }

    /// Forgets segments that others took the place of; their files are gone.
    pub(crate) fn forget(&mut self, bases: &[Offset]) {
        self.segments.retain(|base, _| !bases.contains(base));
        self.opened.retain(|base| !bases.contains(base));
    }

    /// Writes what is in memory only. An index that cannot be written is made anew when it is asked for again.
    pub(crate) fn flush(&mut self) {
        for keys in self.segments.values_mut() {
            flush(keys);
        }
    }

    /// Nobody uses the log: closes the files, and keeps little in memory.
    pub(crate) fn rest(&mut self) {
        let merge_records = self.limits.merge_records as usize;
        for keys in self.segments.values_mut() {
            if keys.pending_records() >= merge_records {
                flush(keys);
            }
            keys.close();
        }
        self.opened.clear();
    }
}

fn flush(keys: &mut SegmentKeys) {
    if keys.pending_records() > 0
        && let Err(error) = keys.flush()
    {
        tracing::warn!(path = keys.path(), %error, "cannot write a key index");
        keys.set_aside();
    }
}

impl PartitionLog {
    /// How far the index is; `None` where it is off.
    pub(crate) fn key_facts(&self) -> Option<KeyIndexFacts> {
        let index = self.keys()?;
        let mut facts = KeyIndexFacts { segments: self.segment_count(), ..KeyIndexFacts::default() };
        for segment in 0..facts.segments {
            let truth = self.key_truth(segment);
            let Some(keys) = index.segments.get(&truth.base) else { continue };
            let whole = if truth.sealed { keys.is_sealed() } else { keys.covered().end >= truth.end };
            facts.segments_indexed += usize::from(whole && !keys.is_unread());
            facts.pending_records += keys.pending_records();
            facts.file_bytes += keys.file_bytes();
        }
        Some(facts)
    }

    /// Takes in a batch that was just appended, stamped.
    pub(crate) fn index_keys(
        &mut self,
        cache: &mut KeyCache,
        batch: &[u8],
        keys: Option<&[Option<KeyHash>]>,
    ) {
        if let Some(mut index) = self.take_keys() {
            self.index_batch(&mut index, cache, batch, keys);
            self.put_keys(index);
        }
    }

    fn index_batch(
        &self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        batch: &[u8],
        hashes: Option<&[Option<KeyHash>]>,
    ) {
        let batch = BatchView::parse(batch).expect("a batch that was appended is a batch");
        let truth = self.key_truth(self.segment_count() - 1);
        if index.active != Some(truth.base) {
            if let Some(before) = index.active.replace(truth.base) {
                self.seal_keys(index, cache, before);
            }
            index.opened(truth.base);
        }
        let mut scratch = std::mem::take(&mut index.scratch);
        let inflated_max = index.inflated_max;
        let keys = index.of(&truth);
        if batch.base_offset() == truth.base {
            keys.begin();
        }
        if !keys.is_unread() && keys.covered().end == batch.base_offset() {
            let epoch = batch.leader_epoch();
            let dense = hashes.filter(|hashes| {
                let count = i64::try_from(hashes.len());
                count == Ok(i64::from(batch.record_count()))
                    && count == Ok(i64::from(batch.last_offset_delta()) + 1)
                    && !batch.attributes().is_control()
            });
            let added = if let Some(hashes) = dense {
                keys.add_run(batch.base_offset(), hashes, epoch)
            } else if keys_of(&batch, inflated_max, false, &mut scratch).is_ok() {
                keys.add(&scratch, batch.next_offset(), epoch)
            } else {
                keys.add_damage(batch.base_offset(), batch.last_offset(), epoch)
            };
            if let Err(error) = added {
                tracing::warn!(path = keys.path(), %error, "cannot write a key index, it will be made anew");
                keys.reset(cache);
            }
        }
        index.scratch = scratch;
    }

    /// Ends the index of a segment that was rolled; what it lacks is left to the building steps.
    fn seal_keys(&self, index: &mut KeyIndex, cache: &mut KeyCache, base: Offset) {
        let Some(segment) = self.segment_of(base) else { return };
        let truth = self.key_truth(segment);
        if truth.base != base || !truth.sealed {
            return;
        }
        let keys = index.of(&truth);
        if keys.is_unread() || keys.is_sealed() {
            return;
        }
        let written = if keys.covered().end == truth.end {
            keys.seal(truth.log_bytes).inspect(|()| keys.close())
        } else {
            keys.flush().inspect(|()| keys.set_aside())
        };
        if let Err(error) = written {
            tracing::warn!(path = keys.path(), %error, "cannot write a key index, it will be made anew");
            keys.reset(cache);
        }
    }

    /// See [`crate::Logs::build_key_index`].
    pub(crate) fn build_keys(
        &mut self,
        cache: &mut KeyCache,
        bytes_max: u64,
    ) -> Result<KeyIndexStep, StorageError> {
        let Some(mut index) = self.take_keys() else { return Ok(KeyIndexStep::default()) };
        let step = self.build_step(&mut index, cache, bytes_max.max(1));
        self.put_keys(index);
        step
    }

    pub(super) fn build_step(
        &mut self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        bytes_max: u64,
    ) -> Result<KeyIndexStep, StorageError> {
        let mut step = KeyIndexStep { bytes: 0, more: true };
        let mut loads = 0;
        let Some(active) = self.segment_count().checked_sub(1) else { return Ok(KeyIndexStep::default()) };
        for segment in std::iter::once(active).chain(0..active) {
            let truth = self.key_truth(segment);
            let base = truth.base;
            if index.of(&truth).is_unread() {
                if loads == KEY_STEP_LOADS_MAX {
                    return Ok(step);
                }
                loads += 1;
                index.opened(base);
                load(index.of(&truth), &truth, cache).doing("read the key index of", self.directory())?;
            }
            if !index.of(&truth).is_sealed()
                && !self.build_segment(index, cache, segment, bytes_max, &mut step)?
            {
                return Ok(step);
            }
            if segment != active {
                index.segments.get_mut(&base).expect("it was asked for above").close();
            }
        }
        step.more = false;
        Ok(step)
    }

    /// Indexes a segment to its end; `false` when the step was over before.
    pub(super) fn build_segment(
        &mut self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        segment: usize,
        bytes_max: u64,
        step: &mut KeyIndexStep,
    ) -> Result<bool, StorageError> {
        let truth = self.key_truth(segment);
        let Truth { base, end, log_bytes, log_start, sealed, .. } = truth;
        if !sealed {
            index.active = Some(base);
        }
        let epochs = truth.epochs.clone();
        let inflated_max = index.inflated_max;
        let keys = index.of(&truth);
        let written = loop {
            if keys.covered().end < log_start.min(end) {
                // What was deleted meanwhile is never asked for.
                keys.cover(log_start.min(end), self.epoch_at(log_start));
            }
            let covered = keys.covered().end;
            if covered >= end {
                break if sealed { keys.seal(log_bytes) } else { Ok(()) };
            }
            let Some(left) = bytes_max.checked_sub(step.bytes).filter(|left| *left > 0) else {
                return Ok(false);
            };
            let mut pieces = Pieces { keys, end, written: Ok(()), epochs: &epochs };
            let window = left.min(KEY_SCAN_WINDOW_BYTES);
            let scanned = self.scan_keys(covered, end, window, inflated_max, |found| pieces.take(found));
            let written = pieces.written;
            let (next, bytes) = scanned.map_err(|error| self.unreadable(error))?;
            step.bytes += bytes.max(1);
            if written.is_err() {
                break written;
            }
            let next = next.min(end);
            keys.cover(next, self.epoch_at(next - 1));
        };
        let path = keys.path().to_owned();
        if written.is_err() {
            keys.reset(cache);
        }
        written.doing("write", &path)?;
        Ok(true)
    }

    pub(super) fn unreadable(&self, error: ReadError) -> StorageError {
        let source = match error {
            ReadError::Io(source) => source,
            other => io::Error::other(other),
        };
        StorageError::Io { action: "index", path: self.directory().to_owned(), source }
    }
}

/// What a scan found, on its way into an index.
pub(super) struct Pieces<'a> {
    pub(super) keys: &'a mut SegmentKeys,
    pub(super) end: Offset,
    pub(super) written: io::Result<()>,
    pub(super) epochs: &'a LeaderEpochs,
}

impl Pieces<'_> {
    pub(super) fn take(&mut self, found: Found<'_>) {
        if self.written.is_err() {
            return;
        }
        match found {
            Found::Batch { records, next, leader_epoch } => {
                self.written = self.keys.add(records, next.min(self.end), leader_epoch);
            }
            Found::Damaged { first, last } => {
                let last = last.min(self.end - 1);
                self.written = self.keys.add_damage(first, last, self.epochs.at(last).unwrap_or(-1));
            }
        }
    }
}

/// Looks at a file; one that does not fit is removed, and the index begins anew.
fn load(keys: &mut SegmentKeys, truth: &Truth<'_>, cache: &mut KeyCache) -> io::Result<()> {
    match keys.load(truth, cache) {
        Ok(()) => Ok(()),
        Err(KeyFault::Io(error)) => Err(error),
        Err(KeyFault::Unfit(_)) => {
            keys.reset(cache);
            keys.load(truth, cache).map_err(|fault| match fault {
                KeyFault::Io(error) => error,
                KeyFault::Unfit(reason) => io::Error::other(reason),
            })
        }
    }
}
