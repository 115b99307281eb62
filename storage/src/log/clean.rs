//! What of a log can be compacted, and how much it needs it (Kafka's `LogCleanerManager`).

use std::collections::BTreeMap;

use records::ids::Offset;

use super::PartitionLog;
use crate::cleaner::filter::LastRecord;
use crate::error::{IoContext, StorageError};
use crate::options::LogConfig;
use crate::segment::Segment;

/// What a log has to clean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dirtiness {
    /// Records from here on were not compacted yet.
    pub(crate) first_dirty: Offset,
    /// How many segments from the first on may be compacted.
    pub(crate) segments: usize,
    /// Share of bytes that are new, 0 to 1.
    pub(crate) ratio: f64,
    /// Whether it must be compacted by its settings.
    pub(crate) is_due: bool,
}

/// A segment as a compaction reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) base: Offset,
    pub(crate) bytes: u64,
    /// The next segment's base; of the active one the end of the log.
    pub(crate) behind: Offset,
    pub(crate) index_bytes: u64,
    pub(crate) time_index_bytes: u64,
    /// Whether there is a `.txnindex`.
    pub(crate) has_txn_index: bool,
}

impl PartitionLog {
    /// How dirty the log is behind what was compacted before; `None` where there is nothing to compact.
    pub(crate) fn dirtiness(
        &mut self,
        cleaned_to: Option<Offset>,
        now_ms: i64,
    ) -> Result<Option<Dirtiness>, StorageError> {
        let Some(active) = self.segments.len().checked_sub(1).filter(|active| *active > 0) else {
            return Ok(None);
        };
        if !self.config.compact || self.poisoned {
            return Ok(None);
        }
        let range = self.log_start..=self.end;
        // A checkpoint outside of the log is none: all of it counts as new.
        let first_dirty = cleaned_to.filter(|offset| range.contains(offset)).unwrap_or(self.log_start);
        let dirty = self.segment_of(first_dirty).unwrap_or(active).min(active);
        let mut uncleanable = self.facts().last_stable.min(self.segments[active].base());
        let lag_ms = self.config.min_compaction_lag_ms;
        if lag_ms > 0 {
            for segment in &mut self.segments[dirty..active] {
                let largest = segment.largest().doing("read an index of", &self.directory)?.timestamp;
                let age = if largest >= 0 { now_ms.saturating_sub(largest) } else { segment.held_ms(now_ms) };
                if age < lag_ms {
                    uncleanable = uncleanable.min(segment.base());
                    break;
                }
            }
        }
        let segments = self.segment_of(uncleanable.max(first_dirty)).unwrap_or(active).min(active);
        let bytes = |segments: &[Segment]| segments.iter().map(Segment::size).sum::<u64>();
        let clean =
            bytes(&self.segments[..self.segments.partition_point(|found| found.base() < first_dirty)]);
        let cleanable = bytes(self.segments.get(dirty..segments).unwrap_or_default());
        if cleanable == 0 {
            return Ok(None);
        }
        let ratio = cleanable as f64 / (clean + cleanable) as f64;
        let is_due =
            ratio > self.config.min_cleanable_dirty_ratio || self.is_overdue(dirty, active, now_ms)?;
        Ok(Some(Dirtiness { first_dirty, segments, ratio, is_due }))
    }

    /// The share of new bytes among all that compaction has seen or would see, settings that hold it back aside; `None`
    /// where the log is not compacted.
    pub(crate) fn dirty_ratio(&self, cleaned_to: Option<Offset>) -> Option<f64> {
        if !self.config.compact {
            return None;
        }
        let sealed = self.segments.split_last().map_or(&[][..], |(_, sealed)| sealed);
        let range = self.log_start..=self.end;
        let first_dirty = cleaned_to.filter(|offset| range.contains(offset)).unwrap_or(self.log_start);
        let (mut clean, mut dirty) = (0, 0);
        for segment in sealed {
            if segment.base() < first_dirty { clean += segment.size() } else { dirty += segment.size() }
        }
        Some(if dirty == 0 { 0.0 } else { dirty as f64 / (clean + dirty) as f64 })
    }

    /// Whether a sealed segment holds records that should have been compacted by now (KIP-354).
    fn is_overdue(&mut self, dirty: usize, active: usize, now_ms: i64) -> Result<bool, StorageError> {
        let until = now_ms.saturating_sub(self.config.max_compaction_lag_ms);
        if until <= 0 {
            return Ok(false);
        }
        for segment in &mut self.segments[dirty..active] {
            let first = segment.first_timestamp().doing("read", &self.directory)?;
            if first.is_some_and(|first| 0 < first && first < until) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All segments, the active one last.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let behind = self.segments.iter().skip(1).map(Segment::base).chain([self.end]);
        self.segments
            .iter()
            .zip(behind)
            .map(|(segment, behind)| {
                let found = segment.found();
                Source {
                    base: segment.base(),
                    bytes: segment.size(),
                    behind,
                    index_bytes: found.index.unwrap_or(0),
                    time_index_bytes: found.time_index.unwrap_or(0),
                    has_txn_index: found.txn_index.is_some(),
                }
            })
            .collect()
    }

    /// The last batch of each producer.
    pub(crate) fn last_records(&self) -> BTreeMap<i64, LastRecord> {
        self.producers.last_records()
    }

    pub(crate) fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Compaction may leave holes below `offset` from now on.
    pub(crate) fn allow_holes_below(&mut self, offset: Offset) {
        self.cleaned = self.cleaned.max(offset);
    }

    /// What will be written behind the end was never compacted.
    pub(crate) fn forget_holes_behind_end(&mut self) {
        self.cleaned = self.cleaned.min(self.end);
    }

    pub(crate) fn holes_below(&self) -> Offset {
        self.cleaned
    }
}
