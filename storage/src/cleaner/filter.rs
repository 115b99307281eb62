//! What becomes of one batch (Kafka's `Cleaner.cleanInto` with `MemoryRecords.filterTo`).

use std::collections::BTreeMap;

use bytes::Bytes;
use records::batch::filtered::emptied;
use records::batch::{FilteredBuilder, Record};
use records::ids::Offset;
use records::key_hash::key_fingerprint;
use records::{BatchView, RecordError};

use super::offset_map::OffsetMap;
use super::transactions::{Outcomes, Seen};
use crate::batch_header::BatchHeader;
use crate::transactions::Marker;

/// What a log knows of a producer's last batch (Kafka's `LastRecord`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    /// Its last data batch's last offset; `None` where only a marker is known.
    pub(crate) last_data: Option<Offset>,
    /// Its epoch.
    pub(crate) epoch: i16,
}

/// What every decision rests on.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The last offset of each key among the records that were indexed.
    pub(crate) map: OffsetMap,
    /// Records from here on are not judged: they are not indexed.
    pub(crate) indexed_until: Offset,
    pub(crate) outcomes: Outcomes,
    pub(crate) producers: BTreeMap<i64, LastRecord>,
    /// The end of the log: its last batch is never dropped, so that no end is forgotten.
    pub(crate) end: Offset,
    pub(crate) now_ms: i64,
    pub(crate) delete_retention_ms: i64,
    pub(crate) inflated_max: usize,
    pub(crate) seed: u64,
}

/// What is written in the place of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The batch as it is.
    Whole,
    /// This one.
    Changed(Bytes),
    /// Nothing.
    Nothing,
}

impl Rules {
    /// Decides on a batch whose CRC is right.
    ///
    /// # Errors
    /// Where the batch does not decode: then nothing can be said of its records, and it stays as it is.
    pub(crate) fn decide(
        &self,
        batch: &BatchView<'_>,
        header: &BatchHeader,
        seen: &mut Seen,
    ) -> Result<Kept, RecordError> {
        if header.is_control() {
            let is_done = seen.marker_is_done(header, Marker::of(batch), &self.outcomes);
            let horizon = horizon_of(batch);
            if is_done && horizon.is_some_and(|horizon| horizon <= self.now_ms) {
                return Ok(self.without_records(batch, header));
            }
            if header.is_emptied() {
                return Ok(self.without_records(batch, header));
            }
            // A marker without records begins to wait for its time.
            return if is_done && horizon.is_none() {
                self.build(batch, true, None)
            } else {
                Ok(Kept::Whole)
            };
        }
        seen.data(header);
        if self.outcomes.is_aborted(header) || header.is_emptied() {
            return Ok(self.without_records(batch, header));
        }
        self.filter(batch, header)
    }

    fn filter(&self, batch: &BatchView<'_>, header: &BatchHeader) -> Result<Kept, RecordError> {
        let tombstones_stay = horizon_of(batch).is_none_or(|horizon| self.now_ms < horizon);
        let mut keep = Vec::new();
        let mut has_tombstones = false;
        batch.scan(self.inflated_max, |record| {
            let stays = self.stays(&record, tombstones_stay);
            has_tombstones |= stays && record.value.is_none();
            keep.push(stays);
            Ok::<_, RecordError>(())
        })?;
        if !keep.contains(&true) {
            return Ok(self.without_records(batch, header));
        }
        let needs_horizon = has_tombstones && horizon_of(batch).is_none();
        if !needs_horizon && !keep.contains(&false) {
            return Ok(Kept::Whole);
        }
        self.build(batch, needs_horizon, Some(&keep))
    }

    /// Whether a record stays (`Cleaner.shouldRetainRecord`).
    fn stays(&self, record: &Record<'_>, tombstones_stay: bool) -> bool {
        if record.offset >= self.indexed_until {
            return true;
        }
        // A keyless record could never be replaced by another.
        let Some(key) = record.key else { return false };
        let is_last = self.map.get(key_fingerprint(key, self.seed)).is_none_or(|last| record.offset >= last);
        is_last && (record.value.is_some() || tombstones_stay)
    }

    fn build(
        &self,
        batch: &BatchView<'_>,
        with_horizon: bool,
        keep: Option<&[bool]>,
    ) -> Result<Kept, RecordError> {
        let horizon = with_horizon.then(|| self.now_ms.saturating_add(self.delete_retention_ms));
        let mut builder = FilteredBuilder::new(batch, horizon)?;
        let mut index = 0;
        batch.scan(self.inflated_max, |record| {
            if keep.is_none_or(|keep| keep[index]) {
                builder.push(&record);
            }
            index += 1;
            Ok::<_, RecordError>(())
        })?;
        Ok(Kept::Changed(builder.finish()))
    }

    /// A batch without its records: its header stays where its producer's last sequence number, or the end of the log,
    /// would be forgotten with it.
    fn without_records(&self, batch: &BatchView<'_>, header: &BatchHeader) -> Kept {
        if !self.is_last_of_producer(header) && header.next() != self.end {
            Kept::Nothing
        } else if header.is_emptied() {
            Kept::Whole
        } else {
            Kept::Changed(emptied(batch))
        }
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        match self.producers.get(&header.producer_id) {
            Some(LastRecord { last_data: Some(last), .. }) => header.last() == *last,
            Some(LastRecord { last_data: None, epoch }) => {
                header.is_control() && header.producer_epoch == *epoch
            }
            None => false,
        }
    }
}

/// Until when a batch's tombstones, or its marker, stay in ms; `None` where no compaction has seen them.
fn horizon_of(batch: &BatchView<'_>) -> Option<i64> {
    batch.attributes().has_delete_horizon().then(|| batch.base_timestamp())
}
