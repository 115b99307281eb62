//! A walk over the batches of one log file, by their headers, in constant memory.

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use crate::batch_header::{BatchHeader, CRC_COVERED_FROM};
use crate::disk::DiskFile;
use crate::options::BATCH_HEADER_BYTES;

/// How closely a walk looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Headers only.
    Header,
    /// The CRC of every batch too.
    Crc,
}

/// Which leader epochs can be: from `from` on none above `max`, which is the broker's, nor below that of none at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochBound {
    pub(crate) from: Offset,
    pub(crate) max: i32,
}

/// What batches bear that were written before there were epochs (Kafka's `RecordBatch.NO_PARTITION_LEADER_EPOCH`).
const NO_EPOCH: i32 = -1;

/// What stands at the walk's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A batch, and the position of its first byte.
    Batch(BatchHeader, u64),
    /// The end.
    End,
    /// No valid batch; the walk does not go on.
    Broken(&'static str),
}

/// Walks from a batch's first byte to `end`.
#[derive(Debug)]
pub(crate) struct Walk {
    window: Window,
    position: u64,
    end: u64,
    expected: Option<Offset>,
    cleaned: Offset,
    check: Check,
    epochs: Option<EpochBound>,
}

impl Walk {
    /// Headers only, and no matter which offsets they name.
    pub(crate) fn new(file: &Arc<dyn DiskFile>, from: u64, end: u64, window_bytes: usize) -> Self {
        Self {
            window: Window { file: Arc::clone(file), start: 0, bytes: Vec::new(), capacity: window_bytes },
            position: from,
            end,
            expected: None,
            cleaned: Offset::MAX,
            check: Check::Header,
            epochs: None,
        }
    }

    /// Checks every batch's CRC too.
    pub(crate) fn checked(mut self) -> Self {
        self.check = Check::Crc;
        self
    }

    /// Batches bear epochs within the bound: no checksum covers them.
    pub(crate) fn bearing(mut self, epochs: EpochBound) -> Self {
        self.epochs = Some(epochs);
        self
    }

    /// The next batch begins at `offset`, and each one where the one before it ended. Below `cleaned` compaction may
    /// have left holes between them.
    pub(crate) fn expecting(mut self, offset: Offset, cleaned: Offset) -> Self {
        self.expected = Some(offset);
        self.cleaned = cleaned;
        self
    }

    /// Each batch but the first begins where the one before it ended, but for holes below `cleaned`.
    pub(crate) fn joining(mut self, cleaned: Offset) -> Self {
        self.cleaned = cleaned;
        self
    }

    /// Where the next batch begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Takes one step.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        if self.position >= self.end {
            return Ok(Step::End);
        }
        let position = self.position;
        if self.end - position < BATCH_HEADER_BYTES as u64 {
            return Ok(Step::Broken("fewer bytes than a batch header"));
        }
        let header = match self.window.get(position, BATCH_HEADER_BYTES, self.end)? {
            Some(bytes) => match BatchHeader::parse(bytes) {
                Ok(header) => header,
                Err(reason) => return Ok(Step::Broken(reason)),
            },
            None => return Ok(Step::Broken("the file ends in the middle of a header")),
        };
        if header.size > self.end - position {
            return Ok(Step::Broken("the file ends in the middle of a batch"));
        }
        if self.expected.is_some_and(|expected| !follows(header.base, expected, self.cleaned)) {
            return Ok(Step::Broken("base offset does not follow the batch before"));
        }
        if self.epochs.is_some_and(|bound| {
            header.base >= bound.from && !(NO_EPOCH..=bound.max).contains(&header.leader_epoch)
        }) {
            return Ok(Step::Broken("leader epoch is none that the broker gave"));
        }
        if self.check == Check::Crc && !self.crc_is_valid(&header)? {
            return Ok(Step::Broken("crc does not match"));
        }
        self.position += header.size;
        self.expected = Some(header.next());
        Ok(Step::Batch(header, position))
    }

    /// The whole batch that a step found at `position`; `None` when the file ends within it.
    pub(crate) fn whole(&mut self, header: &BatchHeader, position: u64) -> io::Result<Option<&[u8]>> {
        let Ok(size) = usize::try_from(header.size) else { return Ok(None) };
        self.window.get(position, size, self.end)
    }

    fn crc_is_valid(&mut self, header: &BatchHeader) -> io::Result<bool> {
        let end = self.position + header.size;
        let mut at = self.position + CRC_COVERED_FROM as u64;
        let mut crc = 0;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(self.window.capacity);
            let Some(bytes) = self.window.get(at, want, end)? else { return Ok(false) };
            crc = crc32c::crc32c_append(crc, bytes);
            at += want as u64;
        }
        Ok(crc == header.crc)
    }
}

/// Whether a batch that begins at `base` can stand where `expected` is the next offset.
pub(crate) fn follows(base: Offset, expected: Offset, cleaned: Offset) -> bool {
    base == expected || (base > expected && expected < cleaned)
}

/// A piece of the file in memory.
#[derive(Debug)]
struct Window {
    file: Arc<dyn DiskFile>,
    start: u64,
    bytes: Vec<u8>,
    capacity: usize,
}

impl Window {
    /// `len` bytes at `position`, `None` when the file ends before; reads ahead, but never beyond `end`.
    fn get(&mut self, position: u64, len: usize, end: u64) -> io::Result<Option<&[u8]>> {
        let inside = position >= self.start && position + len as u64 <= self.start + self.bytes.len() as u64;
        if !inside {
            let want = usize::try_from(end - position).unwrap_or(usize::MAX).min(self.capacity).max(len);
            self.bytes.resize(want, 0);
            self.start = position;
            let mut filled = 0;
            while filled < want {
                match self.file.read_at(&mut self.bytes[filled..], position + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.bytes.clear();
                        return Err(error);
                    }
                }
            }
            self.bytes.truncate(filled);
        }
        let from = (position - self.start) as usize;
        Ok(self.bytes.get(from..from + len))
    }
}
