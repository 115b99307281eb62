//! What a simulated disk holds, and what a crash leaves of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::faults::{self, Faults, Turn};
use crate::disk::parent;

#[derive(Debug)]
pub(super) struct State {
    pub(super) random: u64,
    pub(super) names: BTreeMap<String, Node>,
    pub(super) durable: BTreeMap<String, Node>,
    pub(super) journal: Vec<NameOp>,
    /// How many operations of the journal, by directory, are durable as soon as the directory's own name is.
    pub(super) ready: BTreeMap<String, usize>,
    pub(super) used: u64,
    pub(super) capacity: u64,
    pub(super) faults: Faults,
    pub(super) locked: Arc<()>,
    pub(super) syncs: u64,
    pub(super) life: u64,
}

/// A directory has no file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) file: Option<Arc<Mutex<Content>>>,
}

#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Create(String, Node),
    Remove(String),
    Rename(String, String),
}

impl NameOp {
    pub(super) fn directory(&self) -> &str {
        match self {
            Self::Create(path, _) | Self::Remove(path) | Self::Rename(path, _) => parent(path),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) durable: Vec<u8>,
    pub(super) now: Vec<u8>,
    pub(super) pending: Vec<FileOp>,
}

#[derive(Clone, Debug)]
pub(super) enum FileOp {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl State {
    /// Whether there is a process that can call.
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.faults.is_dead { Err(faults::dead()) } else { Ok(()) }
    }

    pub(super) fn file(&self, path: &str) -> io::Result<Arc<Mutex<Content>>> {
        match self.names.get(path) {
            Some(Node { file: Some(content) }) => Ok(Arc::clone(content)),
            Some(Node { file: None }) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn directory(&self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(Node { file: None }) => Ok(()),
            Some(_) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn free(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }

    /// SplitMix64: small, seeded, and good enough to choose what a crash takes.
    pub(super) fn random(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Decides on a call that changes something.
    pub(super) fn turn(&mut self) -> Turn {
        let coin = self.faults.is_armed() && self.random(2) == 0;
        self.faults.turn(coin)
    }

    /// As [`State::turn`], of a call that is done wholly or not at all: `Ok(Some)` is done and fails all the same.
    pub(super) fn whole_turn(&mut self) -> io::Result<Option<io::Error>> {
        match self.turn() {
            Turn::Whole => Ok(None),
            Turn::Part(error) if self.faults.is_dead => Ok(Some(error)),
            Turn::Part(error) | Turn::Not(error) => Err(error),
        }
    }

    /// Makes the names in a directory durable; those in a directory that is itself new, once its own name is.
    pub(super) fn sync_names(&mut self, path: &str) {
        let is_new = |op: &NameOp| match op {
            NameOp::Create(new, _) | NameOp::Rename(_, new) => new == path,
            NameOp::Remove(_) => false,
        };
        if self.journal.iter().any(is_new) {
            let count = self.journal.iter().filter(|op| op.directory() == path).count();
            self.ready.insert(path.to_owned(), count);
            return;
        }
        self.apply_names(path, usize::MAX);
        let below = |name: &String| !name.is_empty() && parent(name) == path;
        let ready: Vec<(String, usize)> = self.ready.extract_if(.., |name, _| below(name)).collect();
        for (name, count) in ready {
            self.apply_names(&name, count);
        }
    }

    /// Makes the first `count` pending changes of a directory's names durable.
    fn apply_names(&mut self, path: &str, count: usize) {
        let mut left = count;
        let mut others = Vec::new();
        for op in std::mem::take(&mut self.journal) {
            if op.directory() == path && left > 0 {
                left -= 1;
                apply(&mut self.durable, op);
            } else {
                others.push(op);
            }
        }
        self.journal = others;
    }

    /// The process that had the disk is gone; what it wrote is still there.
    pub(super) fn restart(&mut self) {
        self.locked = Arc::new(());
        self.life += 1;
        self.faults.revive();
    }

    pub(super) fn crash(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        self.ready.clear();
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
        self.restart();
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
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
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
    pub(super) fn sync(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            op.apply(&mut self.durable);
        }
    }
}

pub(super) fn apply(names: &mut BTreeMap<String, Node>, op: NameOp) {
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

pub(super) fn move_subtree(names: &mut BTreeMap<String, Node>, from: &str, to: &str) {
    let below = format!("{from}/");
    let moving: Vec<String> =
        names.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
    for path in moving {
        if let Some(node) = names.remove(&path) {
            names.insert(format!("{to}{}", &path[from.len()..]), node);
        }
    }
}
