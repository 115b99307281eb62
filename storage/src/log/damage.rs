//! Finding the way behind damaged bytes.

use records::ids::Offset;

use super::PartitionLog;
use crate::error::ReadError;
use crate::options::WALK_WINDOW_BYTES;
use crate::segment::{Place, Segment};
use crate::walk::Step;

/// A stretch of a log file that is no valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The segment's base offset.
    pub(crate) segment: Offset,
    /// Where in its file.
    pub(crate) position: u64,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// The first offset behind it that can be read.
    pub(crate) next: Offset,
}

impl PartitionLog {
    /// The damage that hides `offset`; `None` when there is none there. Reading goes on where the damaged batch's own
    /// length leads to a batch, else at the next indexed batch, else behind the segment: always behind `offset`.
    pub(crate) fn damage_at(&mut self, offset: Offset) -> Result<Option<Damage>, ReadError> {
        if offset >= self.end {
            return Ok(None);
        }
        let cleaned = self.cleaned;
        let floor = self.segments.partition_point(|segment| segment.base() <= offset).saturating_sub(1);
        for index in floor..self.segments.len() {
            let behind = self.segments.get(index + 1).map_or(self.end, Segment::base);
            let segment = &mut self.segments[index];
            let (position, length) = match segment.locate(offset, cleaned)? {
                // The header reads well; only the CRC does not.
                Place::Batch(header, position) => (position, Some(header.size)),
                Place::Damaged(position) => (position, None),
                // Compaction left nothing up to the segment's end: a reader comes to the next one.
                Place::End if offset < cleaned => continue,
                // The header of the last batch says less than it was.
                Place::End => (segment.size(), None),
            };
            let bounds = (offset, behind);
            let (next, end) = match length {
                Some(length) if position + length == segment.size() => (behind, segment.size()),
                Some(length) => match base_at(segment, position + length, bounds)? {
                    Some(base) => (base, position + length),
                    None => indexed_behind(segment, position, bounds)?.unwrap_or((behind, segment.size())),
                },
                None => indexed_behind(segment, position, bounds)?.unwrap_or((behind, segment.size())),
            };
            return Ok(Some(Damage { segment: segment.base(), position, bytes: end - position, next }));
        }
        Ok(None)
    }

    /// That there is no telling where a batch behind `offset` is: its segment is damaged.
    pub(crate) fn no_way_behind(&self, offset: Offset) -> ReadError {
        let segment = self.segment_of(offset).map(|index| &self.segments[index]);
        ReadError::Damaged {
            log: self.directory.clone(),
            segment: segment.map_or(self.end, Segment::base),
            position: segment.map_or(0, Segment::size),
        }
    }
}

/// The base offset of the batch at `position`, if there is one that can follow `offset` and lies within the segment,
/// which ends at `behind`.
fn base_at(
    segment: &mut Segment,
    position: u64,
    (offset, behind): (Offset, Offset),
) -> Result<Option<Offset>, ReadError> {
    let mut walk = segment.walk(position, WALK_WINDOW_BYTES)?.expecting(offset.next(), Offset::MAX);
    Ok(match walk.step()? {
        Step::Batch(header, _) => Some(header.base).filter(|_| header.next() <= behind),
        Step::End | Step::Broken(_) => None,
    })
}

/// The first indexed batch behind `position` that reads well, with its position.
fn indexed_behind(
    segment: &mut Segment,
    mut position: u64,
    bounds: (Offset, Offset),
) -> Result<Option<(Offset, u64)>, ReadError> {
    while let Some((_, found)) = segment.indexed_above(position)? {
        if let Some(base) = base_at(segment, found, bounds)? {
            return Ok(Some((base, found)));
        }
        position = found;
    }
    Ok(None)
}
