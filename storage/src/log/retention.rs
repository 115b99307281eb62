//! Moving the log start: DeleteRecords, and retention by time and size (Kafka's `UnifiedLog.deleteOldSegments`).
//!
//! Three steps, so that deleted records never rise again and a refused deletion changes nothing: the caller writes the
//! new log start down between deciding and moving, and unlinks last.

use records::ids::Offset;

use super::{PartitionLog, swap};
use crate::error::{DeleteError, IoContext, StorageError};
use crate::segment::Segment;

/// What retention takes next of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionDue {
    /// Everything below this offset.
    pub until: Offset,
    /// Not before then, milliseconds since the epoch.
    pub at_ms: i64,
    /// `retention.ms`; 0 where the log's size is the reason.
    pub length_ms: i64,
}

impl PartitionLog {
    /// What retention takes next, and when: the first segment with records, when it is too old or the log too large.
    /// `None` where neither will be, as far as can be told: when a log becomes too large depends on what comes.
    pub(crate) fn next_retention(&mut self, now_ms: i64) -> Result<Option<RetentionDue>, StorageError> {
        if !self.config.delete || self.poisoned {
            return Ok(None);
        }
        let oversize = self.oversize_segments();
        if oversize > 0 {
            let until = self.segments.get(oversize).map_or(self.end, Segment::base);
            return Ok(Some(RetentionDue { until, at_ms: now_ms, length_ms: 0 }));
        }
        let length_ms = self.config.retention_ms;
        if length_ms < 0 {
            return Ok(None);
        }
        for (index, segment) in self.segments.iter_mut().enumerate() {
            let timestamp = segment.largest().doing("read an index of", &self.directory)?.timestamp;
            if timestamp >= 0 {
                let until = self.segments.get(index + 1).map_or(self.end, Segment::base);
                // A segment goes when it is older than this, not when it is as old.
                let at_ms = timestamp.saturating_add(length_ms).saturating_add(1);
                return Ok(Some(RetentionDue { until, at_ms, length_ms }));
            }
        }
        Ok(None)
    }

    /// Whether the log start may move to `to`, and would: at or below the present start it stays.
    pub(crate) fn check_start(&self, to: Offset) -> Result<bool, DeleteError> {
        if to < Offset::ZERO || to > self.end {
            return Err(DeleteError::OutOfRange { to, end: self.end });
        }
        Ok(to > self.log_start)
    }

    /// Moves the log start to `to`, which [`PartitionLog::check_start`] or [`PartitionLog::retained_from`] allowed.
    /// Files go with [`PartitionLog::remove_segments_below_start`].
    pub(crate) fn move_start(&mut self, to: Offset) {
        debug_assert!(self.log_start < to && to <= self.end, "the log start moves on, within the log");
        self.log_start = to;
        self.epochs.truncate_from(to);
        self.cursors.retain(|cursor| cursor.offset >= to);
    }

    /// Where the log will start without the segments that are past their time or beyond the size; `None` when none
    /// is.
    pub(crate) fn retained_from(&mut self, now_ms: i64) -> Result<Option<Offset>, StorageError> {
        if !self.config.delete || self.poisoned {
            return Ok(None);
        }
        let expired = self.expired_segments(now_ms)?;
        let oversize = self.oversize_segments();
        let count = expired.max(oversize);
        if count == 0 {
            return Ok(None);
        }
        if count == self.segments.len() {
            // All of it is due, the active segment too: what is appended next needs a new one.
            self.roll()?;
            self.changed = true;
        }
        let start = self.segments[count].base();
        Ok((start > self.log_start).then_some(start))
    }

    /// How many segments from the front are older than `retention.ms`, by their highest timestamp.
    fn expired_segments(&mut self, now_ms: i64) -> Result<usize, StorageError> {
        let retention_ms = self.config.retention_ms;
        if retention_ms < 0 {
            return Ok(0);
        }
        let mut count = 0;
        for (index, segment) in self.segments.iter_mut().enumerate() {
            let timestamp = segment.largest().doing("read an index of", &self.directory)?.timestamp;
            // What compaction left without a record goes with the segments around it.
            if timestamp < 0 && !segment.has_records().doing("read", &self.directory)? {
                continue;
            }
            let age = if timestamp >= 0 { now_ms.saturating_sub(timestamp) } else { segment.held_ms(now_ms) };
            if age <= retention_ms {
                break;
            }
            count = index + 1;
        }
        Ok(count)
    }

    /// How many segments from the front can go without the rest falling below `retention.bytes`.
    fn oversize_segments(&self) -> usize {
        let Ok(retention_bytes) = u64::try_from(self.config.retention_bytes) else { return 0 };
        let mut excess = self.bytes.saturating_sub(retention_bytes);
        let mut count = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.size() > excess {
                break;
            }
            excess -= segment.size();
            if segment.size() > 0 {
                count = index + 1;
            }
        }
        count
    }

    /// Takes the segments out of use that lie wholly below the log start. Whoever reads them holds them open.
    pub(crate) fn remove_segments_below_start(&mut self) -> Result<(), StorageError> {
        let first =
            self.segments.partition_point(|segment| segment.base() <= self.log_start).saturating_sub(1);
        if first == 0 {
            return Ok(());
        }
        if self.snapshots.range(self.segments[first].base()..).next().is_none() {
            // What nothing but these segments tells of producers and their transactions must not go with them.
            self.write_snapshot();
            self.sync_files()?;
            self.disk.sync_dir(&self.directory).doing("sync", &self.directory)?;
        }
        // The oldest first, and none is forgotten before it is out of use: one that stays behind in front of a gap would
        // have the next recovery cut the log there.
        for _ in 0..first {
            let segment = &mut self.segments[0];
            if segment.base() < self.cleaned {
                // A swap that has begun must not be finished by the next start: the segment would stand in front of a gap.
                swap::remove_swap(&*self.disk, &self.directory, segment.base())
                    .doing("remove a file of", &self.directory)?;
            }
            let retired = segment.retire();
            // Without its log file there is nothing left to read, whatever stands beside it.
            if retired.is_ok() || matches!(self.disk.read_len(segment.log_path()), Ok(None)) {
                self.bytes -= self.segments.remove(0).size();
            }
            self.retired.extend(retired.doing("remove a segment of", &self.directory)?);
        }
        self.dirty.directories.insert(self.directory.clone());
        let base = self.segments[0].base();
        if let Some(keys) = &mut self.keys {
            keys.keep_from(base);
        }
        let below: Vec<Offset> = self.snapshots.range(..base).copied().collect();
        below.into_iter().for_each(|at| self.remove_snapshot(at));
        Ok(())
    }

    /// Forgets producers that were silent for too long.
    pub(crate) fn expire_producers(&mut self, now_ms: i64, expiry_ms: i64) {
        self.producers.expire(now_ms, expiry_ms);
    }
}
