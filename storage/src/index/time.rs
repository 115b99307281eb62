//! `.timeindex`: highest timestamp so far and relative last offset of its batch, 8 and 4 bytes (Kafka's `TimeIndex`).

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::EntryFile;
use crate::disk::DiskFile;
use crate::lazy_file::LazyFile;
use crate::segment::Largest;

pub(crate) const ENTRY_BYTES: usize = 12;

/// The time index of one segment.
#[derive(Debug)]
pub(crate) struct TimeIndex {
    base: Offset,
    entries: EntryFile<ENTRY_BYTES>,
}

impl TimeIndex {
    pub(crate) fn new(base: Offset, file: LazyFile, len: u64) -> Self {
        Self { base, entries: EntryFile::new(file, len) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.entries.count()
    }

    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.entries.clear()
    }

    /// Notes the highest timestamp so far and the batch that brought it; only a higher one than noted counts.
    pub(crate) fn push(&mut self, timestamp: i64, last: Offset) -> io::Result<()> {
        let noted = self.last()?.map_or(-1, |(timestamp, _)| timestamp);
        if timestamp > noted {
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&timestamp.to_be_bytes());
            entry[8..].copy_from_slice(&((last - self.base) as u32).to_be_bytes());
            self.entries.push(entry);
        }
        Ok(())
    }

    /// The last offset of a batch such that no batch before it reaches `timestamp`; `None` for the whole segment.
    pub(crate) fn floor(&mut self, timestamp: i64) -> io::Result<Option<Offset>> {
        let entry = self.entries.last_where(|entry| decode(entry).0 <= timestamp)?;
        Ok(entry.map(|entry| self.base + i64::from(decode(&entry).1)))
    }

    /// Timestamp and offset of the last entry.
    pub(crate) fn last(&mut self) -> io::Result<Option<(i64, Offset)>> {
        let entry = self.entries.last()?;
        Ok(entry.map(|entry| {
            let (timestamp, relative) = decode(&entry);
            (timestamp, self.base + i64::from(relative))
        }))
    }

    /// How many entries tell of batches that end below `point`, with the first and the last of them; `None` where they do
    /// not ascend.
    pub(crate) fn sound_below(&mut self, point: Offset) -> io::Result<Option<(u32, [Option<Largest>; 2])>> {
        let (mut count, mut first, mut last, mut sound) = (0, None, None, true);
        let base = self.base;
        self.entries.each_from(0, |entry| {
            let (timestamp, relative) = decode(entry);
            let found = Largest { timestamp, last: base + i64::from(relative) };
            if found.last >= point {
                return false;
            }
            sound = timestamp >= 0
                && last
                    .is_none_or(|before: Largest| before.timestamp < timestamp && before.last < found.last);
            count += 1;
            first.get_or_insert(found);
            last = Some(found);
            sound
        })?;
        Ok(sound.then_some((count, [first, last])))
    }

    pub(crate) fn truncate(&mut self, count: u32) -> io::Result<()> {
        self.entries.truncate(count)
    }

    pub(crate) fn flushed(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        self.entries.flushed()
    }

    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.entries.remove()
    }

    pub(crate) fn retire(&mut self) -> io::Result<Option<String>> {
        self.entries.retire()
    }

    /// Bytes of the file once everything is flushed.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.count()) * ENTRY_BYTES as u64
    }

    pub(crate) fn close(&mut self) {
        self.entries.close();
    }
}

/// Timestamp and relative offset.
pub(crate) fn decode(entry: &[u8; ENTRY_BYTES]) -> (i64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
    (i64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l]))
}
