//! Reading: where in which file the batches of an offset range are.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::Offset;

use super::{Cursor, PartitionLog};
use crate::batch_header::BatchHeader;
use crate::disk::DiskFile;
use crate::error::ReadError;
use crate::options::{CURSORS_MAX, EMPTIED_SKIPPED_MAX, SEALED_OPEN_MAX, WALK_WINDOW_BYTES};
use crate::segment::{Place, Segment};
use crate::walk::Step;

/// A stretch of whole batches in one log file. It stays readable when the log moves on and the file is unlinked.
#[derive(Clone, Debug)]
pub struct LogSlice {
    file: Option<Arc<dyn DiskFile>>,
    position: u64,
    len: u64,
    base: Offset,
    next: Offset,
}

impl LogSlice {
    /// No bytes at all.
    #[must_use]
    pub fn empty(at: Offset) -> Self {
        Self { file: None, position: 0, len: 0, base: at, next: at }
    }

    /// The file; `None` for an empty slice.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<dyn DiskFile>> {
        self.file.as_ref()
    }

    /// The file of the operating system, for `sendfile`; `None` for an empty slice or a simulated disk.
    #[must_use]
    pub fn os_file(&self) -> Option<&File> {
        self.file.as_deref().and_then(DiskFile::os_file)
    }

    /// Where in the file the first batch begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first batch's base offset; of an empty slice the offset that was asked for.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// No batch that begins at or behind this offset is in it: where the next one begins, or the next segment.
    #[must_use]
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Reads the bytes into memory.
    pub fn read(&self) -> io::Result<Bytes> {
        let Some(file) = &self.file else { return Ok(Bytes::new()) };
        let len = usize::try_from(self.len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, self.position)?;
        Ok(bytes.into())
    }
}

/// The batch that a read begins with.
#[derive(Clone, Copy, Debug)]
struct Start {
    segment: usize,
    position: u64,
    base: Offset,
}

impl PartitionLog {
    /// The batches from the one that holds `from`, up to `upper`, within `bytes_max` (but for the first batch with
    /// `at_least_one`), out of one segment. Empty at the end, and where `upper` is reached.
    pub(crate) fn read(
        &mut self,
        from: Offset,
        bytes_max: u64,
        upper: Offset,
        at_least_one: bool,
    ) -> Result<LogSlice, ReadError> {
        if from < self.log_start || from > self.end {
            return Err(ReadError::OutOfRange { from, log_start: self.log_start, end: self.end });
        }
        let upper = upper.min(self.end);
        if from >= upper {
            return Ok(LogSlice::empty(from));
        }
        let Some(start) = self.find_start(from)? else { return Ok(LogSlice::empty(from)) };
        if start.base >= upper {
            return Ok(LogSlice::empty(from));
        }
        let start = if start.base < self.cleaned { self.skip_emptied(start, upper)? } else { start };
        let mut limit = start.position.saturating_add(bytes_max);
        if upper < self.end {
            limit = limit.min(self.position_of_upper(start.segment, upper)?);
        }
        self.keep_open(start.segment);
        let next_base = self.segments.get(start.segment + 1).map(Segment::base);
        let segment = &mut self.segments[start.segment];
        let (end, next) = segment.last_boundary(start.position, limit, at_least_one)?;
        let file = Arc::clone(segment.log_file()?);
        let cursor = match (next, next_base) {
            (Some(next), _) => Cursor { offset: next, segment: segment.base(), position: end },
            (None, Some(next)) => Cursor { offset: next, segment: next, position: 0 },
            (None, None) => Cursor { offset: self.end, segment: segment.base(), position: segment.size() },
        };
        // Where there may be holes, a segment's base need not be that of its first batch.
        if cursor.offset >= self.cleaned {
            self.remember(from, cursor);
        }
        Ok(LogSlice {
            file: Some(file),
            position: start.position,
            len: end - start.position,
            base: start.base,
            next: cursor.offset,
        })
    }

    /// The header of the batch that holds `offset`; `None` where there is none that can be read.
    pub(crate) fn header_at(&mut self, offset: Offset) -> Result<Option<BatchHeader>, ReadError> {
        let Some(index) = self.segment_of(offset) else { return Ok(None) };
        self.keep_open(index);
        Ok(match self.segments[index].locate(offset, self.cleaned)? {
            Place::Batch(header, _) if header.base <= offset => Some(header),
            Place::Batch(..) | Place::End | Place::Damaged(_) => None,
        })
    }

    /// The batch that holds `from` or the first behind it; `None` when there is none.
    fn find_start(&mut self, from: Offset) -> Result<Option<Start>, ReadError> {
        if let Some(index) = self.cursors.iter().position(|cursor| cursor.offset == from) {
            let cursor = self.cursors[index];
            let segment = self.segments.binary_search_by_key(&cursor.segment, Segment::base);
            if let Ok(segment) = segment
                && cursor.position < self.segments[segment].size()
            {
                return Ok(Some(Start { segment, position: cursor.position, base: from }));
            }
        }
        let floor = self.segments.partition_point(|segment| segment.base() <= from).saturating_sub(1);
        for index in floor..self.segments.len() {
            match self.segments[index].locate(from, self.cleaned)? {
                Place::Batch(header, position) => {
                    return Ok(Some(Start { segment: index, position, base: header.base }));
                }
                Place::End => {
                    // Without compaction a segment ends where the next one begins.
                    let next = self.segments.get(index + 1).map(Segment::base);
                    if from >= self.cleaned && next.is_some_and(|next| from < next) {
                        let (segment, position) = (&self.segments[index], self.segments[index].size());
                        let (log, segment) = (self.directory.clone(), segment.base());
                        return Err(ReadError::Damaged { log, segment, position });
                    }
                }
                Place::Damaged(position) => {
                    let segment = self.segments[index].base();
                    return Err(ReadError::Damaged { log: self.directory.clone(), segment, position });
                }
            }
        }
        Ok(None)
    }

    /// The first batch from `start` on that holds a record: of an answer that begins with emptied batches some clients
    /// never get on. Where there is none below `upper` it is `start`, which leads a reader on to the end.
    fn skip_emptied(&mut self, start: Start, upper: Offset) -> Result<Start, ReadError> {
        let mut passed = 0;
        let mut position = start.position;
        for index in start.segment..self.segments.len() {
            let mut walk = self.segments[index].walk(position, WALK_WINDOW_BYTES)?;
            loop {
                match walk.step()? {
                    Step::Batch(header, _) if header.base >= upper || passed == EMPTIED_SKIPPED_MAX => {
                        return Ok(start);
                    }
                    Step::Batch(header, position) if !header.is_emptied() => {
                        return Ok(Start { segment: index, position, base: header.base });
                    }
                    Step::Batch(..) => passed += 1,
                    Step::End => break,
                    // The reader must come across it.
                    Step::Broken(_) => return Ok(start),
                }
            }
            if index + 1 < self.segments.len() && !self.opened.contains(&self.segments[index].base()) {
                self.segments[index].close();
            }
            position = 0;
        }
        Ok(start)
    }

    /// The position in that segment at which batches begin that lie at or beyond `upper`.
    fn position_of_upper(&mut self, segment: usize, upper: Offset) -> Result<u64, ReadError> {
        let segment = &mut self.segments[segment];
        Ok(match segment.locate(upper, self.cleaned)? {
            Place::Batch(header, position) if header.base >= upper => position,
            Place::Batch(header, position) => position + header.size,
            Place::End => segment.size(),
            Place::Damaged(position) => position,
        })
    }

    /// Bounds how many sealed segments readers hold open.
    pub(super) fn keep_open(&mut self, segment: usize) {
        self.touched = true;
        let base = self.segments[segment].base();
        if segment + 1 == self.segments.len() || self.opened.contains(&base) {
            return;
        }
        if self.opened.len() == SEALED_OPEN_MAX
            && let Some(oldest) = self.opened.pop_front()
            && let Ok(index) = self.segments.binary_search_by_key(&oldest, Segment::base)
        {
            self.segments[index].close();
        }
        self.opened.push_back(base);
    }

    fn remember(&mut self, from: Offset, cursor: Cursor) {
        if let Some(index) =
            self.cursors.iter().position(|known| known.offset == from || known.offset == cursor.offset)
        {
            self.cursors.remove(index);
        } else if self.cursors.len() == CURSORS_MAX {
            self.cursors.pop_back();
        }
        self.cursors.push_front(cursor);
    }
}
