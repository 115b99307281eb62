//! A simulated disk: in memory, seeded, and as unkind as POSIX allows.
//!
//! A crash keeps what was synced. Of what was not, each write is kept, lost or torn by the seed, in any order;
//! names (creates, renames, removes) survive as a prefix of their order, as on a journalling file system. A sync
//! that was made to fail loses its writes for good, so that a second try cannot look like a success. A process can be
//! made to die, or a call to fail, at any one of the calls that change something.

mod faults;
mod state;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, DiskLock, Entry, parent};
use faults::{Faults, Turn};
use state::{Content, FileOp, NameOp, Node, State, apply, move_subtree};

/// The simulated disk. Clones of the `Arc` that holds it see one disk.
#[derive(Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without limit; the same seed and the same calls give the same crashes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                random: seed,
                names: BTreeMap::new(),
                durable: BTreeMap::new(),
                journal: Vec::new(),
                ready: BTreeMap::new(),
                used: 0,
                capacity: u64::MAX,
                faults: Faults::default(),
                locked: Arc::new(()),
                syncs: 0,
                life: 0,
            })),
        }
    }

    /// The power goes out and comes back: files opened before show what they showed, but reach nothing any more.
    pub fn crash(&self) {
        self.state.lock().crash();
    }

    /// The process is killed: files opened before reach nothing any more, everything written is still there.
    pub fn restart(&self) {
        self.state.lock().restart();
    }

    /// The process dies within the call that changes something after `calls` more of them: that one is done, done in
    /// part or not at all, and all after it fail until [`SimDisk::restart`] or [`SimDisk::crash`].
    pub fn die_after(&self, calls: u64) {
        self.state.lock().faults.set_trap(Some((calls, true)));
    }

    /// One call that changes something fails, after `calls` more of them: a write in part, a sync for good.
    pub fn fail_after(&self, calls: u64) {
        self.state.lock().faults.set_trap(Some((calls, false)));
    }

    /// Nothing is to die or to fail any more.
    pub fn disarm(&self) {
        self.state.lock().faults.set_trap(None);
    }

    /// Whether the process has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state.lock().faults.is_dead
    }

    /// How long each call takes, and a sync besides, in microseconds of simulated time.
    pub fn set_latency(&self, call_micros: u64, sync_micros: u64) {
        self.state.lock().faults.set_latency(call_micros, sync_micros);
    }

    /// Microseconds of simulated time that all calls took.
    #[must_use]
    pub fn elapsed_micros(&self) -> u64 {
        self.state.lock().faults.elapsed_micros
    }

    /// Counts from now on how many bytes are read of which file.
    pub fn watch_reads(&self) {
        self.state.lock().faults.watch();
    }

    /// Bytes read of each file since [`SimDisk::watch_reads`], which ends with it.
    #[must_use]
    pub fn watched_reads(&self) -> BTreeMap<String, u64> {
        self.state.lock().faults.watched()
    }

    /// Room in bytes over all files; `u64::MAX` is no limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Bytes that all files take.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// The next `count` writes fail after a part of the bytes was written.
    pub fn fail_writes(&self, count: u32) {
        self.state.lock().faults.writes = count;
    }

    /// The next `count` syncs of files fail.
    pub fn fail_syncs(&self, count: u32) {
        self.state.lock().faults.syncs = count;
    }

    /// The next `count` syncs of directories fail; their names may be made durable by a later one.
    pub fn fail_directory_syncs(&self, count: u32) {
        self.state.lock().faults.directory_syncs = count;
    }

    /// Reads of files whose path contains `part` fail from now on; `None` heals them.
    pub fn fail_reads(&self, part: Option<&str>) {
        self.state.lock().faults.reads = part.map(str::to_owned);
    }

    /// How many syncs of files succeeded so far.
    #[must_use]
    pub fn sync_count(&self) -> u64 {
        self.state.lock().syncs
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        state.alive()?;
        let content = state.file(path)?;
        let life = state.life;
        Ok(Arc::new(SimFile { path: path.to_owned(), content, disk: Arc::clone(&self.state), life }))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.directory(parent(path))?;
        let failed = state.whole_turn()?;
        let content = match state.names.get(path) {
            Some(Node { file: Some(content) }) => {
                let content = Arc::clone(content);
                let mut inner = content.lock();
                state.free(inner.now.len());
                inner.now.clear();
                inner.pending.push(FileOp::SetLen(0));
                drop(inner);
                content
            }
            Some(Node { file: None }) => return Err(io::ErrorKind::IsADirectory.into()),
            None => {
                let content = Arc::new(Mutex::new(Content::default()));
                let node = Node { file: Some(Arc::clone(&content)) };
                state.names.insert(path.to_owned(), node.clone());
                state.journal.push(NameOp::Create(path.to_owned(), node));
                content
            }
        };
        let life = state.life;
        let file = SimFile { path: path.to_owned(), content, disk: Arc::clone(&self.state), life };
        failed.map_or_else(|| Ok(Arc::new(file) as Arc<dyn DiskFile>), Err)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.directory(parent(path))?;
        let failed = state.whole_turn()?;
        if !state.names.contains_key(path) {
            let node = Node { file: None };
            state.names.insert(path.to_owned(), node.clone());
            state.journal.push(NameOp::Create(path.to_owned(), node));
        }
        failed.map_or(Ok(()), Err)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
        state.alive()?;
        state.directory(path)?;
        let entries = state.names.iter().filter(|(name, _)| parent(name) == path && !name.is_empty());
        Ok(entries
            .map(|(name, node)| Entry {
                name: name.rsplit('/').next().unwrap_or(name).to_owned(),
                is_dir: node.file.is_none(),
                len: node.file.as_ref().map_or(0, |file| file.lock().now.len() as u64),
            })
            .collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        assert_eq!(parent(from), parent(to), "a rename stays within its directory");
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let failed = state.whole_turn()?;
        if let Some(Node { file: Some(replaced) }) = state.names.get(to) {
            let freed = replaced.lock().now.len();
            state.free(freed);
        }
        move_subtree(&mut state.names, from, to);
        let below = format!("{from}/");
        let moved = |path: &mut String| {
            if let Some(rest) = path.strip_prefix(&below) {
                *path = format!("{to}/{rest}");
            }
        };
        for op in &mut state.journal {
            match op {
                NameOp::Create(path, _) | NameOp::Remove(path) => moved(path),
                NameOp::Rename(old, new) => {
                    moved(old);
                    moved(new);
                }
            }
        }
        state.journal.push(NameOp::Rename(from.to_owned(), to.to_owned()));
        failed.map_or(Ok(()), Err)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let freed = state.file(path)?.lock().now.len();
        let failed = state.whole_turn()?;
        state.free(freed);
        state.names.remove(path);
        state.journal.push(NameOp::Remove(path.to_owned()));
        failed.map_or(Ok(()), Err)
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        let children: Vec<Entry> = self.list(path)?;
        for child in children {
            let below = format!("{path}/{}", child.name);
            if child.is_dir { self.remove_dir_all(&below)? } else { self.remove_file(&below)? }
        }
        let mut state = self.state.lock();
        let failed = state.whole_turn()?;
        state.names.remove(path);
        state.journal.push(NameOp::Remove(path.to_owned()));
        failed.map_or(Ok(()), Err)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.directory(path)?;
        let failed = state.whole_turn()?;
        state.faults.spend_sync();
        if state.faults.directory_syncs > 0 {
            state.faults.directory_syncs -= 1;
            return Err(io::Error::other("injected sync failure"));
        }
        state.sync_names(path);
        failed.map_or(Ok(()), Err)
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let failed = state.whole_turn()?;
        state.faults.spend_sync();
        if state.faults.syncs > 0 {
            state.faults.syncs -= 1;
            return Err(io::Error::other("injected sync failure"));
        }
        state.ready.clear();
        for op in std::mem::take(&mut state.journal) {
            apply(&mut state.durable, op);
        }
        for node in state.names.values() {
            if let Some(file) = &node.file {
                file.lock().sync();
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn lock(&self, _path: &str) -> io::Result<Box<dyn DiskLock>> {
        let state = self.state.lock();
        state.alive()?;
        if Arc::strong_count(&state.locked) > 1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { _held: Arc::clone(&state.locked) }))
    }
}

#[derive(Debug)]
struct SimFile {
    path: String,
    content: Arc<Mutex<Content>>,
    disk: Arc<Mutex<State>>,
    /// Which life of the machine opened it: after a crash it takes no room of the new one's disk.
    life: u64,
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.lock();
        if self.life == state.life {
            state.faults.read(&self.path)?;
        }
        let content = self.content.lock();
        let Ok(start) = usize::try_from(position) else { return Ok(0) };
        let rest = content.now.get(start..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        state.faults.note_read(&self.path, count);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        if self.life != state.life {
            return Ok(());
        }
        let turn = state.turn();
        let mut content = self.content.lock();
        let end = position + bytes.len() as u64;
        let grown = end.saturating_sub(content.now.len() as u64);
        let (written, result) = match turn {
            Turn::Not(error) => return Err(error),
            Turn::Part(error) => (state.random(bytes.len() as u64 + 1) as usize, Err(error)),
            Turn::Whole if state.faults.writes > 0 => {
                state.faults.writes -= 1;
                let part = state.random(bytes.len() as u64 + 1) as usize;
                (part, Err(io::Error::other("injected write failure")))
            }
            Turn::Whole if state.used + grown > state.capacity => {
                let room = (state.capacity.saturating_sub(state.used) as usize).min(bytes.len());
                (room, Err(io::ErrorKind::StorageFull.into()))
            }
            Turn::Whole => (bytes.len(), Ok(())),
        };
        let before = content.now.len() as u64;
        let op = FileOp::Write(position, bytes[..written].to_vec());
        op.apply(&mut content.now);
        content.pending.push(op);
        state.used += content.now.len() as u64 - before;
        result
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        if self.life != state.life {
            return Ok(());
        }
        let failed = state.whole_turn()?;
        let mut content = self.content.lock();
        state.free(content.now.len());
        state.used += len;
        let op = FileOp::SetLen(len);
        op.apply(&mut content.now);
        content.pending.push(op);
        failed.map_or(Ok(()), Err)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        if self.life != state.life {
            return Ok(());
        }
        let turn = state.turn();
        state.faults.spend_sync();
        let mut content = self.content.lock();
        let failed = match turn {
            Turn::Part(error) if state.faults.is_dead => Some(error),
            Turn::Not(error) => return Err(error),
            Turn::Part(_) => {
                content.pending.clear();
                return Err(io::Error::other("injected sync failure"));
            }
            Turn::Whole if state.faults.syncs > 0 => {
                state.faults.syncs -= 1;
                content.pending.clear();
                return Err(io::Error::other("injected sync failure"));
            }
            Turn::Whole => None,
        };
        state.syncs += 1;
        content.sync();
        failed.map_or(Ok(()), Err)
    }

    fn os_file(&self) -> Option<&File> {
        None
    }
}

#[derive(Debug)]
struct SimLock {
    _held: Arc<()>,
}

impl DiskLock for SimLock {}
