//! `.index`: relative last offset of a batch and the batch's position, 4 bytes each (Kafka's `OffsetIndex`).

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::EntryFile;
use crate::disk::DiskFile;
use crate::lazy_file::LazyFile;

pub(crate) const ENTRY_BYTES: usize = 8;

/// The offset index of one segment.
#[derive(Debug)]
pub(crate) struct OffsetIndex {
    base: Offset,
    entries: EntryFile<ENTRY_BYTES>,
}

impl OffsetIndex {
    pub(crate) fn new(base: Offset, file: LazyFile, len: u64) -> Self {
        Self { base, entries: EntryFile::new(file, len) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.entries.count()
    }

    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.entries.clear()
    }

    /// Notes that the batch which ends with `last` stands at `position`.
    pub(crate) fn push(&mut self, last: Offset, position: u64) {
        let relative = (last - self.base) as u32;
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&(position as u32).to_be_bytes());
        self.entries.push(entry);
    }

    /// Last offset and position of the last indexed batch that ends at or before `offset`.
    pub(crate) fn floor(&mut self, offset: Offset) -> io::Result<Option<(Offset, u64)>> {
        if offset < self.base {
            return Ok(None);
        }
        let relative = u32::try_from(offset - self.base).unwrap_or(u32::MAX);
        let entry = self.entries.last_where(|entry| decode(entry).0 <= relative)?;
        // Where a damaged index does not ascend a search can end at any entry.
        Ok(entry.filter(|entry| decode(entry).0 <= relative).map(|entry| self.absolute(&entry)))
    }

    /// The highest indexed position at or below `position`, 0 when there is none.
    pub(crate) fn floor_position(&mut self, position: u64) -> io::Result<u64> {
        let entry = self.entries.last_where(|entry| decode(entry).1 <= position)?;
        Ok(entry.map_or(0, |entry| decode(&entry).1).min(position))
    }

    /// Last offset and position of the first indexed batch above `position`.
    pub(crate) fn above_position(&mut self, position: u64) -> io::Result<Option<(Offset, u64)>> {
        let behind = self.entries.partition_point(|entry| decode(entry).1 <= position)?;
        if behind == self.count() {
            return Ok(None);
        }
        let entry = self.entries.entry(behind)?;
        Ok(Some(self.absolute(&entry)).filter(|(_, found)| *found > position))
    }

    /// How many entries tell of batches that end below `point`, and the last of them; `None` where they do not ascend
    /// or point behind `size`.
    #[expect(clippy::type_complexity, reason = "a count and an entry as elsewhere here")]
    pub(crate) fn sound_below(
        &mut self,
        point: Offset,
        size: u64,
    ) -> io::Result<Option<(u32, Option<(Offset, u64)>)>> {
        let (mut count, mut last, mut sound) = (0, None, true);
        let base = self.base;
        self.entries.each_from(0, |entry| {
            let (relative, position) = decode(entry);
            let found = (base + i64::from(relative), position);
            if found.0 >= point {
                return false;
            }
            // The first batch has no entry: what speaks of it is a part of the file that was lost.
            sound = relative > 0
                && (1..size).contains(&position)
                && last.is_none_or(|before: (Offset, u64)| before.0 < found.0 && before.1 < found.1);
            count += 1;
            last = Some(found);
            sound
        })?;
        Ok(sound.then_some((count, last)))
    }

    pub(crate) fn truncate(&mut self, count: u32) -> io::Result<()> {
        self.entries.truncate(count)
    }

    /// Last offset and position of the last entry.
    pub(crate) fn last(&mut self) -> io::Result<Option<(Offset, u64)>> {
        let entry = self.entries.last()?;
        Ok(entry.map(|entry| self.absolute(&entry)))
    }

    fn absolute(&self, entry: &[u8; ENTRY_BYTES]) -> (Offset, u64) {
        let (relative, position) = decode(entry);
        (self.base + i64::from(relative), position)
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

    /// Whether somebody has the file open.
    pub(crate) fn is_open(&self) -> bool {
        self.entries.is_open()
    }

    pub(crate) fn close(&mut self) {
        self.entries.close();
    }
}

/// Relative last offset and position.
pub(crate) fn decode(entry: &[u8; ENTRY_BYTES]) -> (u32, u64) {
    let [a, b, c, d, e, f, g, h] = *entry;
    (u32::from_be_bytes([a, b, c, d]), u64::from(u32::from_be_bytes([e, f, g, h])))
}
