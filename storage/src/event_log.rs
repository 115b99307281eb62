//! Event logs beside a partition: a small append-only log for a coordinator's state, with snapshots.
//!
//! One file a generation, `share-<name>.<generation>.events` (the name is a number, since group ids are arbitrary
//! strings): a header, then frames. From generation 1 on the first frame is the snapshot that the generation begins
//! with. A new generation is written beside the old one, which goes when a sync has reached the new one: a crash
//! finds one of them whole.
//!
//! A frame's CRC goes on from that of the frame before, so bytes of a cut or failed write never join on behind new
//! ones. The file ends at its first frame that does not check, or before the append that this frame belongs to: a torn
//! tail is cut at opening.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};

use crate::disk::{Disk, DiskFile, is_full, join};
use crate::error::{IoContext, StorageError};
use crate::options::EVENT_FRAME_BYTES_MAX;

const MAGIC: u32 = 0x534c_4556;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
/// Length and CRC, then what the CRC covers: kind, epoch, body.
const FRAME_OVERHEAD: usize = 13;
const COVERED_OVERHEAD: usize = 5;
const EVENT: u8 = 0;
const SNAPSHOT: u8 = 1;
/// An event that counts only together with the one behind it: both were written by one append.
const EVENT_OF_MORE: u8 = 2;

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
}

/// One file's content, as far as it checks.
struct Content {
    replay: Replay,
    valid_len: u64,
    chain: u32,
    since_snapshot: u64,
}

impl EventLog {
    /// Opens the newest whole generation, or nothing when there is none.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        directory: &str,
        name: u64,
    ) -> Result<(Self, Replay), StorageError> {
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
        };
        let mut generations = log.generations()?;
        while let Some(generation) = generations.pop_last() {
            let path = log.path(generation);
            let bytes = disk.read(&path).doing("read", &path)?.unwrap_or_default();
            let file_len = bytes.len() as u64;
            let Some(content) = read(&bytes.into(), &path, generation)? else {
                tracing::warn!(path, "snapshot was not finished, going back to the one before");
                disk.remove_file(&path).doing("remove", &path)?;
                continue;
            };
            let file = disk.open(&path).doing("open", &path)?;
            if content.valid_len < file_len {
                tracing::warn!(path, lost = file_len - content.valid_len, "torn tail of an event log is cut");
                // For good: what was torn must not join on behind a header or frame that is written in its place.
                file.set_len(content.valid_len).doing("cut", &path)?;
                file.sync_data().map_err(|error| {
                    tracing::error!(path, %error, "the cut of an event log cannot be synced");
                    StorageError::Poisoned
                })?;
            }
            log.generation = generation;
            log.file = Some(file);
            log.len = content.valid_len;
            log.chain = content.chain;
            log.since_snapshot = content.since_snapshot;
            log.older = generations;
            // After a kill it may be in memory only.
            log.dirty = true;
            return Ok((log, content.replay));
        }
        Ok((log, Replay::default()))
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
            put_header(&mut buffer);
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

    /// Begins a new generation with a snapshot that stands for all events so far. The directory must be synced with
    /// the next sync.
    pub(crate) fn snapshot(&mut self, epoch: i32, snapshot: &[u8]) -> Result<(), StorageError> {
        let generation = self.generation + 1;
        let path = self.path(generation);
        let mut buffer = Vec::with_capacity(HEADER_BYTES + FRAME_OVERHEAD + snapshot.len());
        put_header(&mut buffer);
        let chain = put_frame(&mut buffer, SNAPSHOT, epoch, snapshot, 0)?;
        let file = self.disk.create(&path).doing("create", &path)?;
        if let Err(error) = file.write_all_at(&buffer, 0) {
            if let Err(second) = self.disk.remove_file(&path) {
                tracing::warn!(path, %second, "cannot remove an unfinished snapshot");
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

    /// The file that a sync must reach, when there is anything new in it.
    pub(crate) fn take_dirty(&mut self) -> Option<Arc<dyn DiskFile>> {
        std::mem::take(&mut self.dirty).then(|| self.file.clone()).flatten()
    }

    /// A sync has reached the file of that generation: what stood for it before goes.
    pub(crate) fn synced(&mut self, generation: u64) {
        for older in self.older.extract_if(..generation, |_| true).collect::<Vec<_>>() {
            let path = self.path(older);
            if let Err(error) = self.disk.remove_file(&path) {
                tracing::warn!(path, %error, "cannot remove an old event log");
            }
        }
    }

    /// Removes all files.
    pub(crate) fn delete(self) -> Result<(), StorageError> {
        for generation in self.generations()? {
            let path = self.path(generation);
            self.disk.remove_file(&path).doing("remove", &path)?;
        }
        Ok(())
    }

    fn generations(&self) -> Result<BTreeSet<u64>, StorageError> {
        let entries = match self.disk.list(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error).doing("list", &self.directory),
        };
        let names = entries.iter().filter_map(|entry| parse_name(&entry.name));
        Ok(names.filter(|(name, _)| *name == self.name).map(|(_, generation)| generation).collect())
    }

    fn path(&self, generation: u64) -> String {
        join(&self.directory, &format!("share-{}.{generation}.events", self.name))
    }
}

fn put_header(buffer: &mut Vec<u8>) {
    buffer.put_u32(MAGIC);
    buffer.put_u32(VERSION);
}

fn put_frame(
    buffer: &mut Vec<u8>,
    kind: u8,
    epoch: i32,
    body: &[u8],
    chain: u32,
) -> Result<u32, StorageError> {
    if body.len() > EVENT_FRAME_BYTES_MAX {
        let source = io::Error::from(io::ErrorKind::FileTooLarge);
        return Err(StorageError::Io {
            action: "write an oversized frame to",
            path: "an event log".into(),
            source,
        });
    }
    let start = buffer.len();
    buffer.put_u32((COVERED_OVERHEAD + body.len()) as u32);
    buffer.put_u32(0);
    buffer.put_u8(kind);
    buffer.put_i32(epoch);
    buffer.extend_from_slice(body);
    let crc = crc32c::crc32c_append(chain, &buffer[start + 8..]);
    buffer[start + 4..start + 8].copy_from_slice(&crc.to_be_bytes());
    Ok(crc)
}

/// Reads a file up to its first frame that does not check; `None` when it lacks the snapshot that it must begin with.
fn read(bytes: &Bytes, path: &str, generation: u64) -> Result<Option<Content>, StorageError> {
    let mut content = Content { replay: Replay::default(), valid_len: 0, chain: 0, since_snapshot: 0 };
    let mut rest = bytes.clone();
    if rest.len() < HEADER_BYTES || rest.get_u32() != MAGIC {
        return Ok((generation == 0).then_some(content));
    }
    let version = rest.get_u32();
    if version == 0 {
        return Ok((generation == 0).then_some(content));
    }
    if version > VERSION {
        let reason = format!("format {version} is newer than {VERSION}");
        return Err(StorageError::Damaged { path: path.to_owned(), reason });
    }
    content.valid_len = HEADER_BYTES as u64;
    let mut chain = content.chain;
    let (mut append, mut append_len) = (Vec::new(), 0);
    while let Some((kind, epoch, body, crc)) = next_frame(&mut rest, chain) {
        let first = content.valid_len + append_len == HEADER_BYTES as u64;
        if (kind == SNAPSHOT) != (first && generation > 0) {
            break;
        }
        chain = crc;
        append_len += (FRAME_OVERHEAD + body.len()) as u64;
        if kind == SNAPSHOT {
            content.replay.snapshot = Some((epoch, body));
        } else {
            append.push((epoch, body));
            if kind == EVENT_OF_MORE {
                continue;
            }
            content.since_snapshot += append_len;
            content.replay.events.append(&mut append);
        }
        content.valid_len += std::mem::take(&mut append_len);
        content.chain = chain;
    }
    let whole = generation == 0 || content.replay.snapshot.is_some();
    Ok(whole.then_some(content))
}

fn next_frame(rest: &mut Bytes, chain: u32) -> Option<(u8, i32, Bytes, u32)> {
    if rest.len() < FRAME_OVERHEAD {
        return None;
    }
    let len = rest.get_u32() as usize;
    let crc = rest.get_u32();
    if len < COVERED_OVERHEAD || len > rest.len() {
        return None;
    }
    let mut covered = rest.split_to(len);
    if crc32c::crc32c_append(chain, &covered) != crc {
        return None;
    }
    let kind = covered.get_u8();
    let epoch = covered.get_i32();
    Some((kind, epoch, covered, crc))
}
