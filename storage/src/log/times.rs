//! Offsets by time (ListOffsets): the exact record, inside compressed batches too, and never one below the log
//! start.

use records::BatchView;
use records::ids::Offset;

use super::PartitionLog;
use crate::batch_header::BatchHeader;
use crate::error::ReadError;
use crate::options::WALK_WINDOW_BYTES;
use crate::walk::Step;

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp in ms.
    pub timestamp: i64,
    /// The leader epoch that it was written under.
    pub leader_epoch: i32,
}

impl PartitionLog {
    /// The first record whose timestamp is at least `timestamp`. `inflated_max` bounds what a batch may inflate to.
    pub(crate) fn offset_for_time(
        &mut self,
        timestamp: i64,
        inflated_max: usize,
    ) -> Result<Option<TimedOffset>, ReadError> {
        for index in 0..self.segments.len() {
            let segment = &mut self.segments[index];
            if segment.largest()?.timestamp < timestamp {
                continue;
            }
            let position =
                segment.position_for_time(timestamp)?.max(segment.position_before(self.log_start)?);
            if let Some(found) = self.search(index, position, timestamp, inflated_max)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first record that bears the highest timestamp of the log; `None` without records or timestamps.
    pub(crate) fn max_timestamp(&mut self, inflated_max: usize) -> Result<Option<TimedOffset>, ReadError> {
        let mut best: Option<TimedOffset> = None;
        for index in 0..self.segments.len() {
            let segment = &mut self.segments[index];
            let largest = segment.largest()?;
            if best.is_some_and(|best| largest.timestamp <= best.timestamp) || largest.timestamp < 0 {
                continue;
            }
            let mut found = None;
            if largest.last >= self.log_start {
                let position = segment.position_for_time(largest.timestamp)?;
                found = self.search(index, position, largest.timestamp, inflated_max)?;
            }
            if found.is_none() {
                found = self.max_from_start(index, inflated_max)?;
            }
            best = match (best, found) {
                (Some(best), Some(found)) if found.timestamp <= best.timestamp => Some(best),
                (best, found) => found.or(best),
            };
        }
        Ok(best)
    }

    /// The highest timestamp in a segment of which the head was deleted: batch by batch from the log start.
    fn max_from_start(
        &mut self,
        index: usize,
        inflated_max: usize,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let position = self.segments[index].position_before(self.log_start)?;
        let mut walk = self.segments[index].walk(position, WALK_WINDOW_BYTES)?;
        let mut best: Option<TimedOffset> = None;
        while let Step::Batch(header, position) = walk.step()? {
            let higher = best.is_none_or(|best| header.max_timestamp > best.timestamp);
            let outside = header.last() < self.log_start || header.last() >= self.end;
            if outside || !higher || header.max_timestamp < 0 {
                continue;
            }
            let records = self.timestamps(index, &header, position, inflated_max)?;
            for (offset, timestamp) in records.into_iter().filter(|(offset, _)| *offset >= self.log_start) {
                if timestamp >= 0 && best.is_none_or(|best| timestamp > best.timestamp) {
                    best = Some(TimedOffset { offset, timestamp, leader_epoch: header.leader_epoch });
                }
            }
        }
        Ok(best)
    }

    /// The first record from `position` on with at least `timestamp`, at or above the log start.
    fn search(
        &mut self,
        index: usize,
        position: u64,
        timestamp: i64,
        inflated_max: usize,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let mut walk = self.segments[index].walk(position, WALK_WINDOW_BYTES)?;
        while let Step::Batch(header, position) = walk.step()? {
            let outside = header.last() < self.log_start || header.last() >= self.end;
            if outside || header.max_timestamp < timestamp {
                continue;
            }
            let records = self.timestamps(index, &header, position, inflated_max)?;
            let found =
                records.into_iter().find(|(offset, at)| *offset >= self.log_start && *at >= timestamp);
            if let Some((offset, timestamp)) = found {
                return Ok(Some(TimedOffset { offset, timestamp, leader_epoch: header.leader_epoch }));
            }
        }
        Ok(None)
    }

    /// Offset and timestamp of every record of a batch. A batch that does not decode counts by its header.
    fn timestamps(
        &mut self,
        index: usize,
        header: &BatchHeader,
        position: u64,
        inflated_max: usize,
    ) -> Result<Vec<(Offset, i64)>, ReadError> {
        if header.is_log_append_time() && header.is_dense() {
            return Ok(vec![(header.base.max(self.log_start), header.max_timestamp)]);
        }
        let size = usize::try_from(header.size).expect("a batch is at most 2 GiB");
        let mut bytes = vec![0; size];
        self.segments[index].log_file()?.read_exact_at(&mut bytes, position)?;
        let mut records = Vec::new();
        let decoded = BatchView::parse(&bytes).and_then(|batch| {
            batch.scan(inflated_max, |record| {
                records.push((record.offset, record.timestamp));
                Ok(())
            })
        });
        if let Err(reason) = decoded {
            tracing::warn!(log = self.directory, base = %header.base, %reason, "batch does not decode");
            return Ok(vec![(header.base, header.max_timestamp)]);
        }
        Ok(records)
    }
}
