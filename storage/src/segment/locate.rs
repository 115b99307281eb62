//! Finding batches in a segment: by offset, by position, by time.

use std::io;

use records::ids::Offset;

use super::Segment;
use crate::batch_header::BatchHeader;
use crate::options::WALK_WINDOW_BYTES;
use crate::walk::Step;

/// Where a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A batch and the position of its first byte.
    Batch(BatchHeader, u64),
    /// Behind the segment's last batch.
    End,
    /// There is no batch at this position although one must be.
    Damaged(u64),
}

impl Segment {
    /// The batch that holds `offset`, or the first one behind it; damaged where the place of `offset` cannot be read.
    pub(crate) fn locate(&mut self, offset: Offset) -> io::Result<Place> {
        let wanted = |header: &BatchHeader| header.last() >= offset;
        let indexed = self.offsets.floor(offset)?;
        let mut place = self.first_where(indexed, wanted)?;
        if place == Place::Damaged(indexed) && indexed > 0 {
            // An index that leads astray costs a walk from the start, not the data.
            place = self.first_where(0, wanted)?;
        }
        let Place::Damaged(at) = place else { return Ok(place) };
        // Behind the damage the index knows the way; what lies before its next entry is lost.
        let mut reached = at;
        while let Some(position) = self.indexed_above(reached)? {
            match self.first_where(position, wanted)? {
                found @ Place::Batch(header, _) if header.base <= offset => return Ok(found),
                Place::Damaged(next) => reached = next.max(position),
                Place::Batch(..) | Place::End => break,
            }
        }
        Ok(Place::Damaged(at))
    }

    /// The first batch from `position` on that `wanted` is true of.
    pub(crate) fn first_where(
        &mut self,
        position: u64,
        wanted: impl Fn(&BatchHeader) -> bool,
    ) -> io::Result<Place> {
        let mut walk = self.walk(position, WALK_WINDOW_BYTES)?;
        loop {
            match walk.step()? {
                Step::Batch(header, position) if wanted(&header) => {
                    return Ok(Place::Batch(header, position));
                }
                Step::Batch(..) => {}
                Step::End => return Ok(Place::End),
                Step::Broken(_) => return Ok(Place::Damaged(walk.position())),
            }
        }
    }

    /// The last end of a batch at or below `limit`, for a walk that begins at the batch at `start`; at least the
    /// first batch's end when `at_least_one`. With it the offset of the batch that begins there, `None` when the
    /// segment ends there.
    pub(crate) fn last_boundary(
        &mut self,
        start: u64,
        limit: u64,
        at_least_one: bool,
    ) -> io::Result<(u64, Option<Offset>)> {
        if limit >= self.size {
            return Ok((self.size, None));
        }
        let from = self.offsets.floor_position(limit)?.max(start);
        let mut walk = self.walk(from, WALK_WINDOW_BYTES)?;
        loop {
            match walk.step()? {
                Step::Batch(header, position) => {
                    let end = position + header.size;
                    let needed = at_least_one && position == start;
                    if end > limit && !needed {
                        return Ok((position, Some(header.base)));
                    }
                }
                Step::End => return Ok((self.size, None)),
                // What is damaged is shown as it stands: a plain reader finds it by its CRC.
                Step::Broken(_) if walk.position() == start => return Ok((self.size, None)),
                Step::Broken(_) => return Ok((walk.position(), None)),
            }
        }
    }

    /// A position from which on every batch at or behind `offset` lies.
    pub(crate) fn position_before(&mut self, offset: Offset) -> io::Result<u64> {
        if offset <= self.base { Ok(0) } else { self.offsets.floor(offset) }
    }

    /// From which position on a record with at least `timestamp` can be.
    pub(crate) fn position_for_time(&mut self, timestamp: i64) -> io::Result<u64> {
        match self.times.floor(timestamp)? {
            Some(offset) => self.offsets.floor(offset),
            None => Ok(0),
        }
    }

    /// The lowest indexed position above `position`: where reading goes on behind damaged bytes.
    pub(crate) fn indexed_above(&mut self, position: u64) -> io::Result<Option<u64>> {
        let size = self.size;
        Ok(self.offsets.above_position(position)?.filter(|&found| found < size))
    }
}
