//! Sparse indexes of a segment: files of fixed-size entries, ascending.
//!
//! New entries gather in memory and go to the file in one write: an index that is behind its log after a crash is
//! rebuilt anyway, and readers look into both parts.

pub(crate) mod offset;
pub(crate) mod time;
pub(crate) mod txn;

use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::lazy_file::LazyFile;
use crate::options::INDEX_TAIL_ENTRIES_MAX;

pub(crate) use offset::OffsetIndex;
pub(crate) use time::TimeIndex;
pub(crate) use txn::TxnIndex;

/// Entries read at once when a search has narrowed down to them.
const SEARCH_BLOCK_ENTRIES: u32 = 256;

/// A file of entries of `N` bytes each.
#[derive(Debug)]
pub(crate) struct EntryFile<const N: usize> {
    file: LazyFile,
    stored: u32,
    tail: Vec<[u8; N]>,
    last: Option<[u8; N]>,
    /// Where the last search ended: one who reads on looks just behind it next.
    found: u32,
}

impl<const N: usize> EntryFile<N> {
    /// An index of which `len` bytes are in the file.
    pub(crate) fn new(file: LazyFile, len: u64) -> Self {
        Self { file, stored: (len / N as u64) as u32, tail: Vec::new(), last: None, found: 0 }
    }

    pub(crate) fn count(&self) -> u32 {
        self.stored + self.tail.len() as u32
    }

    /// Starts anew with an empty file.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.file.create()?;
        self.stored = 0;
        self.tail.clear();
        self.last = None;
        Ok(())
    }

    /// Makes the file, empty; what gathered in memory stays there.
    pub(crate) fn create_file(&mut self) -> io::Result<()> {
        self.file.create().map(|_| ())
    }

    /// Adds an entry. When the file cannot be written the entries stay in memory until a later flush.
    pub(crate) fn push(&mut self, entry: [u8; N]) {
        self.tail.push(entry);
        self.last = Some(entry);
        if self.tail.len().is_multiple_of(INDEX_TAIL_ENTRIES_MAX)
            && let Err(error) = self.flush()
        {
            tracing::warn!(file = self.file.path(), %error, "cannot write an index, kept in memory");
        }
    }

    /// Writes what gathered in memory.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.tail.is_empty() {
            let position = u64::from(self.stored) * N as u64;
            self.file.get()?.write_all_at(self.tail.as_flattened(), position)?;
            self.stored += self.tail.len() as u32;
            self.tail.clear();
        }
        Ok(())
    }

    /// The open file, for syncing; everything is flushed first.
    pub(crate) fn flushed(&mut self) -> io::Result<Arc<dyn DiskFile>> {
        self.flush()?;
        Ok(Arc::clone(self.file.get()?))
    }

    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.file.remove()?;
        self.stored = 0;
        self.tail.clear();
        self.last = None;
        Ok(())
    }

    pub(crate) fn retire(&mut self) -> io::Result<Option<String>> {
        self.tail.clear();
        self.file.retire()
    }

    pub(crate) fn entry(&mut self, index: u32) -> io::Result<[u8; N]> {
        if let Some(in_tail) = index.checked_sub(self.stored) {
            return Ok(self.tail[in_tail as usize]);
        }
        let mut bytes = [0; N];
        self.file.get()?.read_exact_at(&mut bytes, u64::from(index) * N as u64)?;
        Ok(bytes)
    }

    /// Shows the entries from number `first` on, until `visit` answers false.
    pub(crate) fn each_from(
        &mut self,
        first: u32,
        mut visit: impl FnMut(&[u8; N]) -> bool,
    ) -> io::Result<()> {
        let mut next = first;
        while next < self.stored {
            let block = self.block(next, SEARCH_BLOCK_ENTRIES.min(self.stored - next))?;
            if !block.iter().all(&mut visit) {
                return Ok(());
            }
            next += block.len() as u32;
        }
        let in_memory = self.tail.get((next - self.stored) as usize..).unwrap_or_default();
        in_memory.iter().all(visit);
        Ok(())
    }

    /// Forgets all but the first `count` entries. Only of an index that nothing was added to since it was opened.
    pub(crate) fn truncate(&mut self, count: u32) -> io::Result<()> {
        debug_assert!(self.tail.is_empty() && count <= self.stored, "only entries of the file are cut");
        if count < self.stored {
            self.file.get()?.set_len(u64::from(count) * N as u64)?;
        }
        self.stored = count;
        self.last = None;
        Ok(())
    }

    /// The last entry.
    pub(crate) fn last(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.last.is_none() && self.count() > 0 {
            self.last = Some(self.entry(self.count() - 1)?);
        }
        Ok(self.last)
    }

    /// How many leading entries `holds` is true of; it must be false of all the rest.
    pub(crate) fn partition_point(&mut self, holds: impl Fn(&[u8; N]) -> bool) -> io::Result<u32> {
        self.search(holds).map(|(count, _)| count)
    }

    /// The last entry for which `holds` is true, under the rule of [`EntryFile::partition_point`].
    pub(crate) fn last_where(&mut self, holds: impl Fn(&[u8; N]) -> bool) -> io::Result<Option<[u8; N]>> {
        match self.search(holds)? {
            (0, _) => Ok(None),
            (_, Some(entry)) => Ok(Some(entry)),
            (count, None) => self.entry(count - 1).map(Some),
        }
    }

    /// The partition point, and the entry in front of it where that was read on the way.
    fn search(&mut self, holds: impl Fn(&[u8; N]) -> bool) -> io::Result<(u32, Option<[u8; N]>)> {
        if self.tail.first().is_some_and(&holds) {
            let count = self.tail.partition_point(holds);
            return Ok((self.stored + count as u32, Some(self.tail[count - 1])));
        }
        if self.stored == 0 {
            return Ok((0, None));
        }
        let near = self.found.min(self.stored - 1);
        let block = self.block(near, SEARCH_BLOCK_ENTRIES.min(self.stored - near))?;
        let count = block.partition_point(&holds) as u32;
        if count > 0 && (count < block.len() as u32 || near + count == self.stored) {
            return Ok(self.found_in(&block, near, count));
        }
        let (mut low, mut high) = if count == 0 { (0, near) } else { (near + count - 1, self.stored) };
        while high - low > SEARCH_BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            if holds(&self.entry(middle)?) { low = middle } else { high = middle }
        }
        let block = self.block(low, high - low)?;
        let count = block.partition_point(holds) as u32;
        Ok(self.found_in(&block, low, count))
    }

    fn block(&mut self, first: u32, count: u32) -> io::Result<Vec<[u8; N]>> {
        let mut block = vec![[0; N]; count as usize];
        if count > 0 {
            self.file.get()?.read_exact_at(block.as_flattened_mut(), u64::from(first) * N as u64)?;
        }
        Ok(block)
    }

    /// The answer of a search of which `count` entries of `block`, which begins at `first`, lie in front.
    fn found_in(&mut self, block: &[[u8; N]], first: u32, count: u32) -> (u32, Option<[u8; N]>) {
        let before = count.checked_sub(1).map(|index| block[index as usize]);
        self.found = (first + count).saturating_sub(1);
        (first + count, before)
    }

    /// Whether somebody has the file open.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_open()
    }

    pub(crate) fn close(&mut self) {
        self.file.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, SimDisk};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            values in proptest::collection::btree_set(0_u32..5000, 0..1500),
            flush_at in 0_usize..1500,
            asked in proptest::collection::vec(0_u32..5001, 1..20),
        ) {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            let mut index = EntryFile::<4>::new(LazyFile::new(&disk, "i".into()), 0);
            index.clear().unwrap();
            for (count, value) in values.iter().enumerate() {
                index.push(value.to_be_bytes());
                if count == flush_at {
                    index.flush().unwrap();
                }
            }
            for &asked in &asked {
                let found = index.last_where(|entry| u32::from_be_bytes(*entry) <= asked).unwrap();
                prop_assert_eq!(found.map(u32::from_be_bytes), values.range(..=asked).next_back().copied());
            }
            prop_assert_eq!(index.last().unwrap().map(u32::from_be_bytes), values.last().copied());
            index.flush().unwrap();
            let mut again = EntryFile::<4>::new(LazyFile::new(&disk, "i".into()), disk.list("").unwrap()[0].len);
            prop_assert_eq!(again.count() as usize, values.len());
            for &asked in &asked {
                let count = again.partition_point(|entry| u32::from_be_bytes(*entry) <= asked).unwrap();
                prop_assert_eq!(count as usize, values.range(..=asked).count());
                let found = again.last_where(|entry| u32::from_be_bytes(*entry) <= asked).unwrap();
                prop_assert_eq!(found.map(u32::from_be_bytes), values.range(..=asked).next_back().copied());
            }
        }
    }
}
