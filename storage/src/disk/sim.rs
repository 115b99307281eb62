//! A simulated disk: in memory, seeded, and as unkind as POSIX allows.
//!
//! A crash keeps what was synced. Of what was not, each write is kept, lost or torn by the seed, in any order;
//! names (creates, renames, removes) survive as a prefix of their order, as on a journalling file system. A sync
//! that was made to fail loses its writes for good, so that a second try cannot look like a success.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, DiskLock, Entry, parent};

/// The simulated disk. Clones of the `Arc` that holds it see one disk.
#[derive(Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    random: u64,
    names: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    journal: Vec<NameOp>,
    used: u64,
    capacity: u64,
    failing_writes: u32,
    failing_syncs: u32,
    failing_reads: Option<String>,
    locked: Arc<()>,
    syncs: u64,
    life: u64,
}

/// A directory has no file.
#[derive(Clone, Debug)]
struct Node {
    file: Option<Arc<Mutex<Content>>>,
}

#[derive(Clone, Debug)]
enum NameOp {
    Create(String, Node),
    Remove(String),
    Rename(String, String),
}

impl NameOp {
    fn directory(&self) -> &str {
        match self {
            Self::Create(path, _) | Self::Remove(path) | Self::Rename(path, _) => parent(path),
        }
    }
}

#[derive(Debug, Default)]
struct Content {
    durable: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<FileOp>,
}

#[derive(Clone, Debug)]
enum FileOp {
    Write(u64, Vec<u8>),
    SetLen(u64),
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
                used: 0,
                capacity: u64::MAX,
                failing_writes: 0,
                failing_syncs: 0,
                failing_reads: None,
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
        self.state.lock().failing_writes = count;
    }

    /// The next `count` syncs of files fail.
    pub fn fail_syncs(&self, count: u32) {
        self.state.lock().failing_syncs = count;
    }

    /// Reads of files whose path contains `part` fail from now on; `None` heals them.
    pub fn fail_reads(&self, part: Option<&str>) {
        self.state.lock().failing_reads = part.map(str::to_owned);
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
        let content = state.file(path)?;
        let life = state.life;
        Ok(Arc::new(SimFile { path: path.to_owned(), content, disk: Arc::clone(&self.state), life }))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.directory(parent(path))?;
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
        Ok(Arc::new(SimFile { path: path.to_owned(), content, disk: Arc::clone(&self.state), life }))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.directory(parent(path))?;
        if !state.names.contains_key(path) {
            let node = Node { file: None };
            state.names.insert(path.to_owned(), node.clone());
            state.journal.push(NameOp::Create(path.to_owned(), node));
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
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
        Ok(())
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let freed = state.file(path)?.lock().now.len();
        state.free(freed);
        state.names.remove(path);
        state.journal.push(NameOp::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        let children: Vec<Entry> = self.list(path)?;
        for child in children {
            let below = format!("{path}/{}", child.name);
            if child.is_dir { self.remove_dir_all(&below)? } else { self.remove_file(&below)? }
        }
        let mut state = self.state.lock();
        state.names.remove(path);
        state.journal.push(NameOp::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.directory(path)?;
        let (mine, others) =
            std::mem::take(&mut state.journal).into_iter().partition(|op| op.directory() == path);
        state.journal = others;
        let mine: Vec<NameOp> = mine;
        for op in mine {
            apply(&mut state.durable, op);
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.failing_syncs > 0 {
            state.failing_syncs -= 1;
            return Err(io::Error::other("injected sync failure"));
        }
        for op in std::mem::take(&mut state.journal) {
            apply(&mut state.durable, op);
        }
        for node in state.names.values() {
            if let Some(file) = &node.file {
                file.lock().sync();
            }
        }
        Ok(())
    }

    fn lock(&self, _path: &str) -> io::Result<Box<dyn DiskLock>> {
        let state = self.state.lock();
        if Arc::strong_count(&state.locked) > 1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { _held: Arc::clone(&state.locked) }))
    }
}

impl State {
    fn file(&self, path: &str) -> io::Result<Arc<Mutex<Content>>> {
        match self.names.get(path) {
            Some(Node { file: Some(content) }) => Ok(Arc::clone(content)),
            Some(Node { file: None }) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn directory(&self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(Node { file: None }) => Ok(()),
            Some(_) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn free(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }

    /// SplitMix64: small, seeded, and good enough to choose what a crash takes.
    fn random(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn crash(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        let kept = self.random(journal.len() as u64 + 1) as usize;
        let mut names = std::mem::take(&mut self.durable);
        for op in journal.into_iter().take(kept) {
            apply(&mut names, op);
        }
        let orphans: Vec<String> = names
            .keys()
            .filter(|path| !parent(path).is_empty() && !names.contains_key(parent(path)))
            .cloned()
            .collect();
        for path in orphans {
            names.remove(&path);
        }
        let mut used = 0;
        for node in names.values_mut() {
            let Some(file) = &node.file else { continue };
            let survived = self.survivor(&file.lock());
            used += survived.len() as u64;
            let content = Content { durable: survived.clone(), now: survived, pending: Vec::new() };
            node.file = Some(Arc::new(Mutex::new(content)));
        }
        self.durable.clone_from(&names);
        self.names = names;
        self.used = used;
        self.locked = Arc::new(());
        self.life += 1;
    }

    fn survivor(&mut self, content: &Content) -> Vec<u8> {
        let mut bytes = content.durable.clone();
        let mood = self.random(4);
        for op in &content.pending {
            match (mood, op) {
                (0, _) => {}
                (1, _) => op.apply(&mut bytes),
                (_, FileOp::SetLen(_)) => {
                    if self.random(2) == 0 {
                        op.apply(&mut bytes);
                    }
                }
                (_, FileOp::Write(position, data)) => match self.random(5) {
                    0 => {}
                    1 => {
                        let cut = self.random(data.len() as u64 + 1) as usize;
                        FileOp::Write(*position, data[..cut].to_vec()).apply(&mut bytes);
                    }
                    2 => {
                        let cut = self.random(data.len() as u64 + 1) as usize;
                        FileOp::Write(position + cut as u64, data[cut..].to_vec()).apply(&mut bytes);
                    }
                    _ => op.apply(&mut bytes),
                },
            }
        }
        bytes
    }
}

impl FileOp {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(position, data) => {
                let start = *position as usize;
                let end = start + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
            }
            Self::SetLen(len) => bytes.resize(*len as usize, 0),
        }
    }
}

impl Content {
    fn sync(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            op.apply(&mut self.durable);
        }
    }
}

fn apply(names: &mut BTreeMap<String, Node>, op: NameOp) {
    match op {
        NameOp::Create(path, node) => {
            names.insert(path, node);
        }
        NameOp::Remove(path) => {
            names.remove(&path);
        }
        NameOp::Rename(from, to) => move_subtree(names, &from, &to),
    }
}

fn move_subtree(names: &mut BTreeMap<String, Node>, from: &str, to: &str) {
    let below = format!("{from}/");
    let moving: Vec<String> =
        names.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
    for path in moving {
        if let Some(node) = names.remove(&path) {
            names.insert(format!("{to}{}", &path[from.len()..]), node);
        }
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
        let failing = self.disk.lock().failing_reads.clone();
        if failing.is_some_and(|part| self.path.contains(&part)) {
            return Err(io::Error::other("injected read failure"));
        }
        let content = self.content.lock();
        let Ok(start) = usize::try_from(position) else { return Ok(0) };
        let rest = content.now.get(start..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let mut content = self.content.lock();
        let end = position + bytes.len() as u64;
        let grown = end.saturating_sub(content.now.len() as u64);
        let (written, result) = if state.failing_writes > 0 {
            state.failing_writes -= 1;
            let part = state.random(bytes.len() as u64 + 1) as usize;
            (part, Err(io::Error::other("injected write failure")))
        } else if state.used + grown > state.capacity {
            let room = (state.capacity.saturating_sub(state.used) as usize).min(bytes.len());
            (room, Err(io::ErrorKind::StorageFull.into()))
        } else {
            (bytes.len(), Ok(()))
        };
        let before = content.now.len() as u64;
        let op = FileOp::Write(position, bytes[..written].to_vec());
        op.apply(&mut content.now);
        content.pending.push(op);
        if self.life == state.life {
            state.used += content.now.len() as u64 - before;
        }
        result
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let mut content = self.content.lock();
        if self.life == state.life {
            state.free(content.now.len());
            state.used += len;
        }
        let op = FileOp::SetLen(len);
        op.apply(&mut content.now);
        content.pending.push(op);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let mut content = self.content.lock();
        if state.failing_syncs > 0 {
            state.failing_syncs -= 1;
            content.pending.clear();
            return Err(io::Error::other("injected sync failure"));
        }
        state.syncs += 1;
        content.sync();
        Ok(())
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
