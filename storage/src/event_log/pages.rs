//! Pages beside an event log's snapshot: state that is too much to be written again with every snapshot.
//!
//! One file, `share-<name>.pages`, of blocks of [`PAGE_BLOCK_BYTES`]. A page is written once, to blocks that nobody needs,
//! and never changes. Which blocks it has, and the CRC of its bytes, stands in a frame in front of the snapshot that
//! names it: the table. So whatever a crash leaves of the file, a page is what its snapshot means, or does not check.
//!
//! Invariant: a block of a page that a snapshot names which may still be the newest one after a crash is not written.
//! Blocks become free when a sync has reached a snapshot that does not name them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};

use super::blocks::{Blocks, Run};
use crate::disk::{Disk, DiskFile, join};
use crate::error::{IoContext, StorageError};
use crate::options::{PAGE_BLOCK_BYTES, PAGE_BLOCKS_MOVED_FROM, PAGE_BYTES_MAX, PAGES_MOVED_MAX};

/// Behind a page's fields: the block runs, as first block and count.
const ENTRY_BYTES: usize = 22;
const RUN_BYTES: usize = 8;

/// Where a page stands, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    len: u32,
    crc: u32,
    epoch: i32,
    /// The first generation of the event log that names it where it stands; 0 where a sync has reached it.
    written_in: u64,
    runs: Vec<Run>,
}

impl Page {
    fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end())
    }
}

/// The pages that a snapshot names.
pub(super) type Table = BTreeMap<u64, Page>;

/// Where pages are to be found in their file.
#[derive(Clone, Debug)]
pub struct PagePlaces {
    file: Arc<dyn DiskFile>,
    ranges: Vec<(u64, u64)>,
}

impl PagePlaces {
    /// The file; `None` where the disk is simulated.
    #[must_use]
    pub fn os_file(&self) -> Option<&std::fs::File> {
        self.file.os_file()
    }

    /// Position and length of each piece, in bytes.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

/// A page that is not what its snapshot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedPage {
    pub(crate) id: u64,
    /// Where in the file it begins.
    pub(crate) position: u64,
}

/// What a snapshot that is being written changes.
#[derive(Debug, Default)]
pub(super) struct Change {
    added: Table,
    gone: BTreeSet<u64>,
}

/// The pages of one event log.
#[derive(Debug)]
pub(super) struct Pages {
    disk: Arc<dyn Disk>,
    path: String,
    /// Whether there is a file.
    exists: bool,
    file: Option<Arc<dyn DiskFile>>,
    /// Up to which block the file was written.
    file_end: u32,
    live: Table,
    /// Of live pages, of those that are being written, and of those that are leaving.
    blocks: Blocks,
    /// Blocks that are free once that generation is durable.
    leaving: BTreeMap<u64, Vec<Run>>,
    /// The generation that must be durable for everything to be settled.
    unsettled: Option<u64>,
    dirty: bool,
}

/// The name (a numeric group id) in the name of a file of pages.
pub(crate) fn name_of(file: &str) -> Option<u64> {
    file.strip_prefix("share-")?.strip_suffix(".pages")?.parse().ok()
}

/// The way back from [`name_of`].
pub(crate) fn file_name(name: u64) -> String {
    format!("share-{name}.pages")
}

pub(super) fn path(directory: &str, name: u64) -> String {
    join(directory, &file_name(name))
}

impl Pages {
    /// No page, and no file that is known.
    pub(super) fn none(disk: &Arc<dyn Disk>, path: String) -> Self {
        Self {
            disk: Arc::clone(disk),
            path,
            exists: false,
            file: None,
            file_end: 0,
            live: Table::new(),
            blocks: Blocks::default(),
            leaving: BTreeMap::new(),
            unsettled: None,
            dirty: false,
        }
    }

    /// Takes up the pages of the generation that the event log goes on with. `is_sure` says that there is no older one:
    /// nothing else is needed of the file, if there is one.
    pub(super) fn take_up(
        &mut self,
        exists: bool,
        (generation, live): (u64, Table),
        is_sure: bool,
    ) -> Result<(), StorageError> {
        self.exists = exists;
        (self.live, self.unsettled) = (live, Some(generation));
        let len = if exists { self.disk.read_len(&self.path).doing("measure", &self.path)? } else { None };
        self.file_end = u32::try_from(len.unwrap_or(0).div_ceil(PAGE_BLOCK_BYTES as u64)).unwrap_or(u32::MAX);
        for run in self.live.values().flat_map(|page| &page.runs) {
            self.blocks.take_these(*run);
        }
        if !is_sure {
            // What older snapshots name is among these.
            self.leaving.insert(generation, self.blocks.take_all_below(self.file_end));
        }
        if exists && !self.live.is_empty() {
            // After a kill it may be in memory only, and to open it must not fail when that is to be synced.
            self.file()?;
            self.dirty = true;
        }
        Ok(())
    }

    /// Which pages there are, ascending.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }

    /// Writes new pages for a snapshot. It counts with [`Pages::commit`] only, and must be undone by [`Pages::abandon`]
    /// else; where it fails nothing has changed.
    pub(super) fn write(
        &mut self,
        (generation, epoch): (u64, i32),
        pages: &[(u64, Bytes)],
        dropped: &[u64],
    ) -> Result<Change, StorageError> {
        let mut change = Change::default();
        match self.try_write(&mut change, (generation, epoch), pages, dropped) {
            Ok(()) => Ok(change),
            Err(error) => {
                self.abandon(change);
                Err(error)
            }
        }
    }

    fn try_write(
        &mut self,
        change: &mut Change,
        (generation, epoch): (u64, i32),
        pages: &[(u64, Bytes)],
        dropped: &[u64],
    ) -> Result<(), StorageError> {
        for (id, bytes) in pages {
            if bytes.len() > PAGE_BYTES_MAX {
                let source = io::Error::from(io::ErrorKind::FileTooLarge);
                return Err(StorageError::Io {
                    action: "write an oversized page to",
                    path: self.path.clone(),
                    source,
                });
            }
            let runs = self.blocks.take(blocks_of(bytes.len()));
            let crc = crc32c::crc32c(bytes);
            let page = Page { len: bytes.len() as u32, crc, epoch, written_in: generation, runs };
            if let Some(twice) = change.added.insert(*id, page) {
                twice.runs.into_iter().for_each(|run| self.blocks.give(run));
            }
            self.put(&change.added[id].runs, bytes)?;
        }
        change.gone = dropped.iter().copied().filter(|id| self.live.contains_key(id)).collect();
        self.move_down(change, generation)
    }

    /// Where most of the file is free, moves pages from its end to free blocks before it, so that it can be cut.
    fn move_down(&mut self, change: &mut Change, generation: u64) -> Result<(), StorageError> {
        let (end, taken) = (self.blocks.end(), self.blocks.taken());
        if end < PAGE_BLOCKS_MOVED_FROM || taken > end / 2 {
            return Ok(());
        }
        let stays = |id: &u64| !change.gone.contains(id) && !change.added.contains_key(id);
        let staying = self.live.iter().filter(|(id, page)| !page.runs.is_empty() && stays(id));
        let mut highest: Vec<(u32, u64)> = staying.map(|(id, page)| (page.end(), *id)).collect();
        highest.sort_unstable_by(|a, b| b.cmp(a));
        for (_, id) in highest.into_iter().take(PAGES_MOVED_MAX) {
            let page = self.live[&id].clone();
            // What is damaged stays where it is: whoever reads it is told.
            let Ok(bytes) = self.get(id, &page) else { continue };
            let runs = self.blocks.take(blocks_of(bytes.len()));
            let is_lower = runs.last().is_some_and(|run| run.end() < page.end());
            change.added.insert(id, Page { written_in: generation, runs: runs.clone(), ..page });
            if !is_lower {
                let back = change.added.remove(&id).map(|page| page.runs).unwrap_or_default();
                back.into_iter().for_each(|run| self.blocks.give(run));
                break;
            }
            self.put(&runs, &bytes)?;
        }
        Ok(())
    }

    /// The table of the snapshot that a change belongs to; `None` where it has no page.
    pub(super) fn table(&self, change: &Change) -> Option<Vec<u8>> {
        let stays = |id: &u64| !change.gone.contains(id) && !change.added.contains_key(id);
        let staying = self.live.iter().filter(|(id, _)| stays(id));
        let mut pages = staying.chain(&change.added).peekable();
        pages.peek()?;
        let mut table = Vec::new();
        for (id, page) in pages {
            table.put_u64(*id);
            table.put_u32(page.len);
            table.put_u32(page.crc);
            table.put_i32(page.epoch);
            table.put_u8(u8::from(page.written_in > 0));
            table.put_u8(page.runs.len() as u8);
            for run in &page.runs {
                table.put_u32(run.first);
                table.put_u32(run.count);
            }
        }
        Some(table)
    }

    /// The snapshot stands, in this generation.
    pub(super) fn commit(&mut self, change: Change, generation: u64) {
        self.dirty |= !change.added.is_empty();
        self.unsettled = Some(generation);
        let replaced: Vec<u64> = change.added.keys().copied().chain(change.gone).collect();
        let gone: Vec<Run> =
            replaced.iter().filter_map(|id| self.live.remove(id)).flat_map(|page| page.runs).collect();
        if !gone.is_empty() {
            self.leaving.insert(generation, gone);
        }
        self.live.extend(change.added);
    }

    /// The snapshot could not be written.
    pub(super) fn abandon(&mut self, change: Change) {
        let runs = change.added.into_values().flat_map(|page| page.runs);
        runs.for_each(|run| self.blocks.give(run));
        // The disk may be full, and what was written is of no use.
        self.cut();
    }

    /// The pages, with the epochs that they were written under.
    pub(super) fn read(&mut self, ids: &[u64]) -> Result<Vec<(i32, Bytes)>, StorageError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let page = self.live.get(id).cloned().ok_or_else(|| self.damaged(*id, "is not there"))?;
            found.push((page.epoch, self.get(*id, &page)?));
        }
        Ok(found)
    }

    /// Where pages stand, as far as there are such; `None` where there is nothing to read.
    pub(super) fn places(&mut self, ids: &[u64]) -> Result<Option<PagePlaces>, StorageError> {
        let pages = ids.iter().filter_map(|id| self.live.get(id));
        let runs = pages.flat_map(|page| &page.runs);
        let ranges: Vec<(u64, u64)> = runs.map(|run| (position(run.first), position(run.count))).collect();
        if ranges.is_empty() || !self.exists {
            return Ok(None);
        }
        Ok(Some(PagePlaces { file: self.file()?, ranges }))
    }

    /// The file, if a sync must reach it.
    pub(super) fn take_dirty(&mut self) -> Option<Arc<dyn DiskFile>> {
        std::mem::take(&mut self.dirty).then(|| self.file.clone()).flatten()
    }

    /// A sync has reached that generation: what only older ones name is free.
    pub(super) fn synced(&mut self, generation: u64) {
        let Some(unsettled) = self.unsettled else { return };
        if generation >= unsettled {
            self.unsettled = None;
        }
        for page in self.live.values_mut().filter(|page| page.written_in <= generation) {
            page.written_in = 0;
        }
        let newer = self.leaving.split_off(&(generation + 1));
        let free = std::mem::replace(&mut self.leaving, newer).into_values().flatten();
        free.for_each(|run| self.blocks.give(run));
        self.cut();
    }

    /// Writes what no sync is known to have reached once more, and syncs it.
    pub(super) fn secure(&mut self) -> io::Result<()> {
        let mut new = self.live.values().filter(|page| page.written_in > 0).peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        let file = self.disk.open(&self.path)?;
        for page in new {
            let bytes = page.read(&*file)?.ok_or(io::ErrorKind::InvalidData)?;
            put(&*file, &page.runs, &bytes)?;
        }
        file.sync_data()
    }

    /// Removes the file.
    pub(super) fn delete(self) -> Result<(), StorageError> {
        if !self.exists {
            return Ok(());
        }
        match self.disk.remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.doing("remove", &self.path),
        }
    }

    /// Gives the free end of the file back.
    fn cut(&mut self) {
        let end = self.blocks.end();
        if end >= self.file_end || !self.exists {
            return;
        }
        let cut = self.file().and_then(|file| file.set_len(position(end)).doing("cut", &self.path));
        match cut {
            Ok(()) => self.file_end = end,
            Err(error) => {
                tracing::warn!(path = self.path, %error, "the free end of a file cannot be cut off");
            }
        }
    }

    fn put(&mut self, runs: &[Run], bytes: &[u8]) -> Result<(), StorageError> {
        let file = self.file()?;
        self.file_end = runs.iter().fold(self.file_end, |end, run| end.max(run.end()));
        put(&*file, runs, bytes).doing("write", &self.path)
    }

    fn get(&mut self, id: u64, page: &Page) -> Result<Bytes, StorageError> {
        if !self.exists {
            return Err(self.damaged(id, "is gone with its file"));
        }
        let file = self.file()?;
        let bytes = page.read(&*file).doing("read", &self.path)?;
        bytes.map(Bytes::from).ok_or_else(|| self.damaged(id, "does not check"))
    }

    fn file(&mut self) -> Result<Arc<dyn DiskFile>, StorageError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = if self.exists {
            self.disk.open(&self.path).doing("open", &self.path)?
        } else {
            self.disk.create(&self.path).doing("create", &self.path)?
        };
        self.exists = true;
        Ok(Arc::clone(self.file.insert(file)))
    }

    fn damaged(&self, id: u64, what: &str) -> StorageError {
        StorageError::Damaged { path: self.path.clone(), reason: format!("page {id} {what}") }
    }
}

impl Page {
    /// Its bytes; `None` where they are not what they must be.
    fn read(&self, file: &dyn DiskFile) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; blocks_of(self.len as usize) as usize * PAGE_BLOCK_BYTES];
        let mut rest = &mut bytes[..];
        for run in &self.runs {
            let (piece, behind) = rest.split_at_mut(run.count as usize * PAGE_BLOCK_BYTES);
            match file.read_exact_at(piece, position(run.first)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read?,
            }
            rest = behind;
        }
        bytes.truncate(self.len as usize);
        Ok((crc32c::crc32c(&bytes) == self.crc).then_some(bytes))
    }
}

/// The pages of a table that do not check; with `only_new` among those that no sync had reached when it was written.
pub(super) fn damaged(
    disk: &dyn Disk,
    path: &str,
    table: &Table,
    only_new: bool,
) -> Result<Vec<DamagedPage>, StorageError> {
    let looked_at = || table.iter().filter(|(_, page)| !only_new || page.written_in > 0);
    if looked_at().next().is_none() {
        return Ok(Vec::new());
    }
    let file = match disk.open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).doing("open", path),
    };
    let mut found = Vec::new();
    for (id, page) in looked_at() {
        let read = file.as_deref().map_or(Ok(None), |file| page.read(file)).doing("read", path)?;
        if read.is_none() {
            found.push(DamagedPage {
                id: *id,
                position: position(page.runs.first().map_or(0, |run| run.first)),
            });
        }
    }
    Ok(found)
}

/// Reads the table of a generation; `None` where it is none.
pub(super) fn parse(mut bytes: Bytes, generation: u64) -> Option<Table> {
    let mut table = Table::new();
    while !bytes.is_empty() {
        if bytes.len() < ENTRY_BYTES {
            return None;
        }
        let id = bytes.get_u64();
        let (len, crc, epoch) = (bytes.get_u32(), bytes.get_u32(), bytes.get_i32());
        let written_in = if bytes.get_u8() == 0 { 0 } else { generation };
        let count = usize::from(bytes.get_u8());
        if bytes.len() < count * RUN_BYTES {
            return None;
        }
        let runs: Vec<Run> =
            (0..count).map(|_| Run { first: bytes.get_u32(), count: bytes.get_u32() }).collect();
        let blocks = runs.iter().try_fold(0_u32, |sum, run| {
            run.first.checked_add(run.count)?;
            sum.checked_add(run.count)
        });
        if len as usize > PAGE_BYTES_MAX || blocks != Some(blocks_of(len as usize)) {
            return None;
        }
        table.insert(id, Page { len, crc, epoch, written_in, runs });
    }
    Some(table)
}

fn put(file: &dyn DiskFile, runs: &[Run], bytes: &[u8]) -> io::Result<()> {
    // Whole blocks: else the rest of one would have to be read first.
    let mut padded = bytes.to_vec();
    padded.resize(blocks_of(bytes.len()) as usize * PAGE_BLOCK_BYTES, 0);
    let mut rest = &padded[..];
    for run in runs {
        let (piece, behind) = rest.split_at(run.count as usize * PAGE_BLOCK_BYTES);
        file.write_all_at(piece, position(run.first))?;
        rest = behind;
    }
    Ok(())
}

fn blocks_of(len: usize) -> u32 {
    len.div_ceil(PAGE_BLOCK_BYTES) as u32
}

fn position(block: u32) -> u64 {
    u64::from(block) * PAGE_BLOCK_BYTES as u64
}
