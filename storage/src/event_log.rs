//! Event logs beside a partition: a small append-only log for a coordinator's state, with snapshots.
//!
//! One file a generation, `share-<name>.<generation>.events` (the name is a number, since group ids are arbitrary
//! strings): a header, then frames. From generation 1 on the first frame is the snapshot that the generation begins
//! with. A new generation is written beside the old one, which goes when a sync has reached the new one: a crash
//! finds one of them whole.
//!
//! A frame's CRC goes on from that of the frame before, so bytes of a cut or failed write never join on behind new
//! ones. The file ends at its first frame that does not check, or before the append that this frame belongs to: a torn
//! tail is cut at opening. Where more stands behind it, or the last stop was an orderly one, it is no torn tail but damage:
//! then the file is kept as it was under another name, and it is told what is lost. Where the damage leaves nothing to go
//! on from, opening is refused: to begin anew could skip what nobody has seen.
//!
//! What would be too much to be written with each snapshot stands in pages (`pages.rs`), of which a snapshot names those
//! that it means. A generation counts when its snapshot is whole and the pages that came with it check: of those a sync
//! reaches both or, as far as is known, neither.

mod blocks;
mod frame;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use self::frame::{
    Content, EVENT, EVENT_OF_MORE, PAGES, SNAPSHOT, goes_on_behind, put_frame, put_header, read,
};
use self::pages::{Pages, Table};
use crate::disk::{Disk, DiskFile, NotCut, cut_off, is_full, join};
use crate::error::{IoContext, StorageError};
use crate::log::lost::LOST;
use crate::log::write_again;

pub(crate) use self::pages::DamagedPage;
pub use self::pages::PagePlaces;
pub(crate) use self::pages::{file_name as pages_name, name_of as name_of_pages};

/// What is known of an opened event log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsFacts {
    /// Whether it was on the disk before.
    pub existed: bool,
    /// Bytes of events behind the last snapshot.
    pub bytes_since_snapshot: u64,
}

/// What an event log says, to be applied in this order. Every part bears the leader epoch that it was written under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The last snapshot.
    pub snapshot: Option<(i32, Bytes)>,
    /// The events behind it.
    pub events: Vec<(i32, Bytes)>,
}

/// The name (a numeric group id) in an event log's file name.
pub(crate) fn name_of(file: &str) -> Option<u64> {
    parse_name(file).map(|(name, _)| name)
}

/// Whether a file checks to its end; else where its last valid frame ends.
pub(crate) fn whole(bytes: &Bytes, path: &str) -> Result<Option<u64>, StorageError> {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let generation = parse_name(file).map_or(0, |(_, generation)| generation);
    let valid = read(bytes, path, generation)?.map_or(0, |content| content.valid_len);
    Ok((valid < bytes.len() as u64).then_some(valid))
}

/// The pages that do not check of those that a start would go on with.
pub(crate) fn damaged_pages(
    disk: &dyn Disk,
    directory: &str,
    name: u64,
) -> Result<Vec<DamagedPage>, StorageError> {
    let found = list(disk, directory, name)?;
    let table = choose(disk, directory, name, &found.generations)?.chosen.map(|chosen| chosen.content.table);
    pages::damaged(disk, &pages::path(directory, name), &table.unwrap_or_default(), false)
}

fn parse_name(file: &str) -> Option<(u64, u64)> {
    let (name, generation) = file.strip_prefix("share-")?.strip_suffix(".events")?.split_once('.')?;
    Some((name.parse().ok()?, generation.parse().ok()?))
}

/// One open event log.
#[derive(Debug)]
pub(crate) struct EventLog {
    disk: Arc<dyn Disk>,
    directory: String,
    name: u64,
    generation: u64,
    /// `None` until something is written.
    file: Option<Arc<dyn DiskFile>>,
    len: u64,
    chain: u32,
    since_snapshot: u64,
    /// Generations that go when the present one is synced.
    older: BTreeSet<u64>,
    dirty: bool,
    /// A failed write could not be cut back.
    broken: bool,
    pages: Pages,
}

/// What belongs to an event log in its directory.
struct Listed {
    generations: BTreeSet<u64>,
    has_pages: bool,
}

/// The generation to go on with.
struct Chosen {
    generation: u64,
    content: Content,
    file: Bytes,
}

/// What a start makes of the generations that it finds.
struct Choice {
    chosen: Option<Chosen>,
    /// Newer ones, of which not everything has come to the disk.
    unfinished: Vec<u64>,
}

impl EventLog {
    /// Opens the newest whole generation, or nothing when there is none. `was_closed` when the process before stopped in
    /// order and nobody wrote since.
    ///
    /// # Errors
    /// [`StorageError::Damaged`] where the beginning of the only one is, so that what was settled is not known.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        directory: &str,
        name: u64,
        was_closed: bool,
    ) -> Result<(Self, Replay), StorageError> {
        let mut found = list(&**disk, directory, name)?;
        let choice = choose(&**disk, directory, name, &found.generations)?;
        choice.check(&**disk, directory, name, &found.generations, was_closed)?;
        let path = |generation| generation_path(directory, name, generation);
        for generation in choice.unfinished {
            let path = path(generation);
            tracing::warn!(path, "snapshot was not finished, going back to the one before");
            disk.remove_file(&path).doing("remove", &path)?;
            found.generations.remove(&generation);
            // For good: its pages could come to check by what is written in their place.
            disk.sync_dir(directory).map_err(|error| {
                tracing::error!(path, %error, "the removal of an unfinished snapshot cannot be synced");
                StorageError::Poisoned
            })?;
        }
        let mut table = Table::new();
        let mut replay = Replay::default();
        let mut log = Self {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            name,
            generation: 0,
            file: None,
            len: 0,
            chain: 0,
            since_snapshot: 0,
            older: BTreeSet::new(),
            dirty: false,
            broken: false,
            pages: Pages::none(disk, pages::path(directory, name)),
        };
        if let Some(Chosen { generation, content, file: bytes }) = choice.chosen {
            let path = path(generation);
            let file = disk.open(&path).doing("open", &path)?;
            let lost = bytes.len() as u64 - content.valid_len;
            if lost > 0 {
                if was_closed || goes_on_behind(&bytes, content.valid_len, content.chain) {
                    let kept = keep(&**disk, directory, &path, &bytes)?;
                    tracing::error!(
                        path,
                        position = content.valid_len,
                        lost,
                        kept,
                        "share state is damaged: it ends there, and what was settled and granted after that is not known, so \
                         those records go out again; the file as it was is kept, remove it when it is not needed"
                    );
                } else {
                    tracing::warn!(path, lost, "torn tail of an event log is cut");
                }
                // For good: what was torn must not join on behind a header or frame that is written in its place.
                match cut_off(&*file, content.valid_len, bytes.len() as u64) {
                    Err(NotCut::Synced(error)) => {
                        tracing::error!(path, %error, "the cut of an event log cannot be synced");
                        return Err(StorageError::Poisoned);
                    }
                    cut => cut.map_err(io::Error::from).doing("cut", &path)?,
                }
            }
            found.generations.remove(&generation);
            log.generation = generation;
            log.file = Some(file);
            log.len = content.valid_len;
            log.chain = content.chain;
            log.since_snapshot = content.since_snapshot;
            log.older = found.generations;
            // After a kill it may be in memory only.
            log.dirty = true;
            (table, replay) = (content.table, content.replay);
        }
        if found.has_pages || !table.is_empty() {
            log.pages.take_up(found.has_pages, (log.generation, table), log.older.is_empty())?;
        }
        Ok((log, replay))
    }

    pub(crate) fn facts(&self) -> EventsFacts {
        EventsFacts { existed: self.file.is_some(), bytes_since_snapshot: self.since_snapshot }
    }

    /// Whether a failed write could not be cut off for good, or a sync of it failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a file must be made before the next append, in which case the directory has to be synced too.
    pub(crate) fn is_new(&self) -> bool {
        self.file.is_none()
    }

    /// Appends events as one write; all of them or none. Bytes since the last snapshot.
    pub(crate) fn append(&mut self, epoch: i32, events: &[Bytes]) -> Result<u64, StorageError> {
        if self.broken {
            return Err(StorageError::Poisoned);
        }
        let mut buffer = Vec::new();
        if self.len == 0 {
            put_header(&mut buffer, false);
        }
        let header = buffer.len();
        let mut chain = self.chain;
        for (index, event) in events.iter().enumerate() {
            let kind = if index + 1 < events.len() { EVENT_OF_MORE } else { EVENT };
            chain = put_frame(&mut buffer, kind, epoch, event, chain)?;
        }
        let path = self.path(self.generation);
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.disk.create(&path).doing("create", &path)?,
        };
        if let Err(error) = file.write_all_at(&buffer, self.len) {
            return Err(self.undo(&*file, error));
        }
        self.file = Some(file);
        self.len += buffer.len() as u64;
        self.chain = chain;
        self.since_snapshot += (buffer.len() - header) as u64;
        self.dirty = true;
        Ok(self.since_snapshot)
    }

    /// Cuts a failed write off for good: a power cut must not bring back what was refused.
    fn undo(&mut self, file: &dyn DiskFile, error: io::Error) -> StorageError {
        let path = self.path(self.generation);
        if let Err(second) = file.set_len(self.len).and_then(|()| file.sync_data()) {
            tracing::error!(path, %error, %second, "a failed append to an event log cannot be cut back");
            self.broken = true;
        }
        if is_full(&error) {
            StorageError::Full
        } else {
            StorageError::Io { action: "write", path, source: error }
        }
    }

    /// Begins a new generation with a snapshot that stands for all events so far: with the pages of the one before, but
    /// for those that are `dropped`, and these new ones. The directory must be synced with the next sync.
    pub(crate) fn snapshot(
        &mut self,
        epoch: i32,
        snapshot: &[u8],
        pages: &[(u64, Bytes)],
        dropped: &[u64],
    ) -> Result<(), StorageError> {
        if self.file.is_none() {
            // Until its pages, or those of the next one, are durable there must be something to go back to.
            self.append(epoch, &[])?;
        }
        let generation = self.generation + 1;
        let change = self.pages.write((generation, epoch), pages, dropped)?;
        let table = self.pages.table(&change);
        match self.begin(generation, epoch, table.as_deref(), snapshot) {
            Ok(()) => {
                self.pages.commit(change, generation);
                Ok(())
            }
            Err(error) => {
                self.pages.abandon(change);
                Err(error)
            }
        }
    }

    fn begin(
        &mut self,
        generation: u64,
        epoch: i32,
        table: Option<&[u8]>,
        snapshot: &[u8],
    ) -> Result<(), StorageError> {
        let path = self.path(generation);
        let mut buffer = Vec::new();
        put_header(&mut buffer, table.is_some());
        let mut chain = 0;
        if let Some(table) = table {
            chain = put_frame(&mut buffer, PAGES, epoch, table, chain)?;
        }
        let chain = put_frame(&mut buffer, SNAPSHOT, epoch, snapshot, chain)?;
        let file = self.disk.create(&path).doing("create", &path)?;
        if let Err(error) = file.write_all_at(&buffer, 0) {
            // A power cut must not bring back what was refused, nor in place of what follows now.
            let emptied = file.set_len(0).and_then(|()| file.sync_data());
            if let Err(second) = emptied.and_then(|()| self.disk.remove_file(&path)) {
                tracing::error!(path, %error, %second, "an unfinished snapshot cannot be removed");
                self.broken = true;
            }
            return Err(error).doing("write", &path);
        }
        if self.file.is_some() {
            self.older.insert(self.generation);
        }
        self.generation = generation;
        self.file = Some(file);
        self.len = buffer.len() as u64;
        self.chain = chain;
        self.since_snapshot = 0;
        self.dirty = true;
        self.broken = false;
        Ok(())
    }

    /// The pages of the last snapshot, ascending.
    pub(crate) fn page_ids(&self) -> Vec<u64> {
        self.pages.ids()
    }

    /// Reads pages, each with the epoch that it was written under.
    pub(crate) fn read_pages(&mut self, ids: &[u64]) -> Result<Vec<(i32, Bytes)>, StorageError> {
        self.pages.read(ids)
    }

    /// Where pages are to be found.
    pub(crate) fn page_places(&mut self, ids: &[u64]) -> Result<Option<PagePlaces>, StorageError> {
        self.pages.places(ids)
    }

    /// The files that a sync must reach, as far as there is anything new in them.
    pub(crate) fn take_dirty(&mut self) -> Vec<Arc<dyn DiskFile>> {
        let pages = self.pages.take_dirty();
        let events = std::mem::take(&mut self.dirty).then(|| self.file.clone()).flatten();
        pages.into_iter().chain(events).collect()
    }

    /// A sync has reached the file of that generation: what stood for it before goes.
    pub(crate) fn synced(&mut self, generation: u64) {
        for older in self.older.extract_if(..generation, |_| true).collect::<Vec<_>>() {
            let path = self.path(older);
            if let Err(error) = self.disk.remove_file(&path) {
                tracing::warn!(path, %error, "cannot remove an old event log");
            }
        }
        self.pages.synced(generation);
    }

    /// Removes all files, in such an order that what a crash brings back can be read: the present generation
    /// is made durable first where an older one is still needed, and goes when none of them is left.
    pub(crate) fn delete(mut self) -> Result<(), StorageError> {
        if !self.older.is_empty() {
            let secured = self.secure();
            if let Err(error) = secured.and_then(|()| self.disk.sync_dir(&self.directory)) {
                tracing::error!(directory = self.directory, %error, "share state to be removed cannot be synced");
                return Err(StorageError::Poisoned);
            }
        }
        for generation in list(&*self.disk, &self.directory, self.name)?.generations {
            let path = self.path(generation);
            self.disk.remove_file(&path).doing("remove", &path)?;
        }
        self.pages.delete()
    }

    /// Makes the present generation durable, also where a sync that is out or has failed took what was dirty: one that
    /// comes behind a failed one says nothing, unless everything was written again.
    fn secure(&mut self) -> io::Result<()> {
        self.pages.secure()?;
        let Some(file) = &self.file else { return Ok(()) };
        write_again(&**file, self.len)
    }

    fn path(&self, generation: u64) -> String {
        generation_path(&self.directory, self.name, generation)
    }
}

impl Choice {
    /// Refuses to go on where nothing is left of what was there. A power cut may leave the only one torn, too, where none
    /// was ever synced: then nothing checks behind its beginning, and it is kept for whoever knows better.
    fn check(
        &self,
        disk: &dyn Disk,
        directory: &str,
        name: u64,
        generations: &BTreeSet<u64>,
        was_closed: bool,
    ) -> Result<(), StorageError> {
        let (generation, from) = match &self.chosen {
            Some(chosen) if chosen.content.valid_len == 0 => (chosen.generation, 0),
            Some(_) => return Ok(()),
            None => match generations.last() {
                Some(generation) => (*generation, frame::HEADER_BYTES as u64),
                None => return Ok(()),
            },
        };
        let path = generation_path(directory, name, generation);
        let bytes = Bytes::from(disk.read(&path).doing("read", &path)?.unwrap_or_default());
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if !was_closed && !goes_on_behind(&bytes, from, 0) {
            let kept = keep(disk, directory, &path, &bytes)?;
            tracing::error!(
                path,
                kept,
                "share state is torn as a whole: the group begins anew here, and the file is kept"
            );
            return Ok(());
        }
        let reason = format!(
            "its beginning is damaged, so what a share group has settled in {directory} is not known; stop the broker and put \
             it back from a copy, or remove share-{name}.* there: then the group begins anew where share.auto.offset.reset says"
        );
        Err(StorageError::Damaged { path, reason })
    }
}

/// Keeps the bytes of a damaged file under another name, which no start reads. That path.
fn keep(disk: &dyn Disk, directory: &str, path: &str, bytes: &[u8]) -> Result<String, StorageError> {
    let mut number = 0_u32;
    let kept = loop {
        let number_behind = if number == 0 { String::new() } else { format!(".{number}") };
        let kept = format!("{path}{number_behind}{LOST}");
        if disk.read_len(&kept).doing("measure", &kept)?.is_none() {
            break kept;
        }
        number += 1;
    };
    let file = disk.create(&kept).doing("create", &kept)?;
    file.write_all_at(bytes, 0).doing("write", &kept)?;
    file.sync_data().doing("sync", &kept)?;
    disk.sync_dir(directory).doing("sync", directory)?;
    Ok(kept)
}

fn generation_path(directory: &str, name: u64, generation: u64) -> String {
    join(directory, &format!("share-{name}.{generation}.events"))
}

fn list(disk: &dyn Disk, directory: &str, name: u64) -> Result<Listed, StorageError> {
    let entries = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries.doing("list", directory)?,
    };
    let names = entries.iter().filter_map(|entry| parse_name(&entry.name));
    Ok(Listed {
        generations: names.filter(|(of, _)| *of == name).map(|(_, generation)| generation).collect(),
        has_pages: entries.iter().any(|entry| name_of_pages(&entry.name) == Some(name)),
    })
}

/// The newest generation of which everything is there.
fn choose(
    disk: &dyn Disk,
    directory: &str,
    name: u64,
    generations: &BTreeSet<u64>,
) -> Result<Choice, StorageError> {
    let mut unfinished = Vec::new();
    let mut damaged: Option<(Chosen, usize)> = None;
    for &generation in generations.iter().rev() {
        let path = generation_path(directory, name, generation);
        let bytes = Bytes::from(disk.read(&path).doing("read", &path)?.unwrap_or_default());
        if let Some(content) = read(&bytes, &path, generation)? {
            let pages = pages::path(directory, name);
            // Without an older one it was durable: then what is damaged is, whatever else there is.
            let is_sure = generations.first() == Some(&generation);
            let is_whole = is_sure || pages::damaged(disk, &pages, &content.table, true)?.is_empty();
            let found = Chosen { generation, content, file: bytes };
            if is_whole {
                return Ok(Choice { chosen: Some(found), unfinished });
            }
            damaged = damaged.or(Some((found, unfinished.len())));
        }
        unfinished.push(generation);
    }
    // There is none to go back to.
    let newer = damaged.as_ref().map_or(unfinished.len(), |(_, newer)| *newer);
    unfinished.truncate(newer);
    Ok(Choice { chosen: damaged.map(|(found, _)| found), unfinished })
}
