//! What the key index needs to know of a log, and where it hangs on it.

use records::BatchView;
use records::ids::Offset;

use super::PartitionLog;
use crate::error::{IoContext, ReadError, StorageError};
use crate::key_index::{KeyIndex, Truth};
use crate::segment::Segment;
use crate::walk;

/// What of a log tells whether a batch's offsets are possible: a copy of it does for what was written so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBounds {
    cleaned: Offset,
    end: Offset,
}

impl KeyBounds {
    /// As [`PartitionLog::fits`].
    pub(crate) fn fit(&self, batch: &BatchView<'_>, expected: Offset) -> bool {
        walk::follows(batch.base_offset(), expected, self.cleaned)
            && (batch.base_offset()..self.end).contains(&batch.last_offset())
    }
}

impl PartitionLog {
    /// Turns the key index on.
    pub(crate) fn enable_keys(&mut self, inflated_max: usize) {
        if self.keys.is_none() {
            let index = KeyIndex::new(&self.disk, &self.directory, self.id, inflated_max);
            self.keys = Some(Box::new(index));
        }
    }

    /// Makes the blocks of the index smaller.
    #[cfg(test)]
    pub(crate) fn limit_keys(&mut self, limits: crate::key_index::Limits) {
        if let Some(keys) = &mut self.keys {
            keys.limit(limits);
        }
    }

    /// Turns the key index off and removes its files.
    pub(crate) fn drop_keys(&mut self) -> Result<(), StorageError> {
        self.keys = None;
        for segment in &mut self.segments {
            segment.remove_keys().doing("remove a key index of", &self.directory)?;
        }
        Ok(())
    }

    /// Takes the index out, so that it and the log can be used side by side.
    pub(crate) fn take_keys(&mut self) -> Option<Box<KeyIndex>> {
        self.keys.take()
    }

    pub(crate) fn put_keys(&mut self, index: Box<KeyIndex>) {
        self.keys = Some(index);
    }

    pub(crate) fn keys(&self) -> Option<&KeyIndex> {
        self.keys.as_deref()
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The segment that holds `offset`, or would.
    pub(crate) fn segment_of(&self, offset: Offset) -> Option<usize> {
        let behind = self.segments.partition_point(|segment| segment.base() <= offset);
        Some(behind.saturating_sub(1)).filter(|index| *index < self.segments.len())
    }

    /// What an index of a segment must agree with.
    pub(crate) fn key_truth(&self, segment: usize) -> Truth<'_> {
        let next = self.segments.get(segment + 1).map(Segment::base);
        Truth {
            id: self.id,
            base: self.segments[segment].base(),
            end: next.unwrap_or(self.end),
            log_bytes: self.segments[segment].size(),
            log_start: self.log_start,
            epochs: &self.epochs,
            sealed: next.is_some(),
        }
    }

    /// Where batches of the log can stand.
    pub(crate) fn key_bounds(&self) -> KeyBounds {
        KeyBounds { cleaned: self.cleaned, end: self.end }
    }

    /// Whether index files were there when the log was opened.
    pub(crate) fn has_key_files(&self) -> bool {
        self.has_key_files
    }

    /// Where reading a segment must begin to come to `upper` within about `bytes` bytes of batches.
    pub(crate) fn offset_before(
        &mut self,
        segment: usize,
        upper: Offset,
        bytes: u64,
    ) -> Result<Offset, ReadError> {
        let cleaned = self.cleaned;
        Ok(self.segments[segment].offset_before(upper, bytes, cleaned)?)
    }
}
