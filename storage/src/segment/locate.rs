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
    /// The batch that holds `offset`, or the first one behind a hole there; damaged where the place of `offset` cannot
    /// be read. Holes are below `cleaned` only.
    pub(crate) fn locate(&mut self, offset: Offset, cleaned: Offset) -> io::Result<Place> {
        // What points behind the segment would look like its end.
        let size = self.size;
        let indexed = self.offsets.floor(offset)?.filter(|&(_, position)| position < size);
        let place = self.search(indexed, offset, cleaned)?;
        let Place::Damaged(at) = place else { return Ok(place) };
        // Behind the damage the index knows the way; what lies before its next entry is lost.
        let mut reached = at;
        while let Some(entry) = self.indexed_above(reached)? {
            match self.search(Some(entry), offset, cleaned)? {
                found @ Place::Batch(header, _) if header.base <= offset => return Ok(found),
                Place::Damaged(next) => reached = next.max(entry.1),
                Place::Batch(..) | Place::End => break,
            }
        }
        if indexed.is_some_and(|(_, position)| position == at) {
            // An index that leads astray costs a walk from the start, not the data.
            return self.search(None, offset, cleaned);
        }
        Ok(Place::Damaged(at))
    }

    /// Walks from an index entry, or from the segment's start, to the first batch that ends at or behind `offset`.
    fn search(&mut self, entry: Option<(Offset, u64)>, offset: Offset, cleaned: Offset) -> io::Result<Place> {
        let walk = self.walk(entry.map_or(0, |(_, position)| position), WALK_WINDOW_BYTES)?;
        let mut walk = match entry {
            Some(_) => walk.joining(cleaned),
            None => walk.expecting(self.base, cleaned),
        };
        let mut last_of_first = entry.map(|(last, _)| last);
        loop {
            match walk.step()? {
                Step::Batch(header, position) => {
                    if last_of_first.take().is_some_and(|last| last != header.last()) {
                        return Ok(Place::Damaged(position));
                    }
                    if header.last() >= offset {
                        return Ok(Place::Batch(header, position));
                    }
                }
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
        let mut from = self.offsets.floor_position(limit)?.max(start);
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
                // An index that leads astray costs a longer walk, but one only: it may lead to a damaged batch just as well,
                // which the walk from `start` comes across, too.
                Step::Broken(_) if walk.position() == from && from > start => {
                    from = start;
                    walk = self.walk(start, WALK_WINDOW_BYTES)?;
                }
                // What is damaged is shown as it stands: a plain reader finds it by its CRC.
                Step::Broken(_) if walk.position() == start => return Ok((self.size, None)),
                Step::Broken(_) => return Ok((walk.position(), None)),
            }
        }
    }

    /// A position from which on every batch at or behind `offset` lies.
    pub(crate) fn position_before(&mut self, offset: Offset) -> io::Result<u64> {
        let entry = if offset <= self.base { None } else { self.offsets.floor(offset)? };
        let Some((last, position)) = entry else { return Ok(0) };
        let step = self.walk(position, WALK_WINDOW_BYTES)?.step()?;
        Ok(if matches!(step, Step::Batch(header, _) if header.last() == last) { position } else { 0 })
    }

    /// The base offset of a batch from which on reading about `bytes` bytes leads past what lies below `upper`.
    pub(crate) fn offset_before(&mut self, upper: Offset, bytes: u64, cleaned: Offset) -> io::Result<Offset> {
        let end = match self.locate(upper - 1, cleaned)? {
            Place::Batch(header, position) if header.base < upper => position + header.size,
            Place::Batch(_, position) | Place::Damaged(position) => position,
            Place::End => self.size,
        };
        let position = self.offsets.floor_position(end.saturating_sub(bytes))?;
        // Where damage or a bad index hides it, the segment's beginning will do.
        Ok(match self.walk(position, WALK_WINDOW_BYTES)?.step()? {
            Step::Batch(header, _) if header.base < upper && position < end => header.base,
            Step::Batch(..) | Step::End | Step::Broken(_) => self.base,
        })
    }

    /// The offset behind the last batch that reads well from the segment's beginning on, by the headers alone.
    pub(crate) fn readable_end(&mut self) -> io::Result<Offset> {
        let mut walk = self.walk(0, WALK_WINDOW_BYTES)?.expecting(self.base, Offset::MAX);
        let mut end = self.base;
        while let Step::Batch(header, _) = walk.step()? {
            end = header.next();
        }
        Ok(end)
    }

    /// From which position on a record with at least `timestamp` can be.
    pub(crate) fn position_for_time(&mut self, timestamp: i64) -> io::Result<u64> {
        match self.times.floor(timestamp)? {
            Some(offset) => self.position_before(offset),
            None => Ok(0),
        }
    }

    /// The first indexed batch above `position`, by last offset and position: where reading goes on behind damage.
    pub(crate) fn indexed_above(&mut self, position: u64) -> io::Result<Option<(Offset, u64)>> {
        let size = self.size;
        Ok(self.offsets.above_position(position)?.filter(|&(_, found)| found < size))
    }
}
