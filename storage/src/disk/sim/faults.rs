//! What goes wrong on a simulated disk by order, and what of its use is counted.

use std::collections::BTreeMap;
use std::io;

/// What happens to a call that changes something.
#[derive(Debug)]
pub(super) enum Turn {
    /// It is done.
    Whole,
    /// A part of it is done, and it fails.
    Part(io::Error),
    /// Nothing is done, and it fails.
    Not(io::Error),
}

/// Faults to come, and counts.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) writes: u32,
    pub(super) syncs: u32,
    pub(super) directory_syncs: u32,
    /// Part of the paths whose reads fail.
    pub(super) reads: Option<String>,
    /// How many changing calls are let through, and whether the process dies then.
    trap: Option<(u64, bool)>,
    pub(super) is_dead: bool,
    operation_micros: u64,
    sync_micros: u64,
    pub(super) elapsed_micros: u64,
    watched: Option<BTreeMap<String, u64>>,
}

impl Faults {
    pub(super) fn set_trap(&mut self, trap: Option<(u64, bool)>) {
        self.trap = trap;
    }

    pub(super) fn set_latency(&mut self, operation_micros: u64, sync_micros: u64) {
        (self.operation_micros, self.sync_micros) = (operation_micros, sync_micros);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.trap.is_some()
    }

    /// A process begins: no fault is left from the one before.
    pub(super) fn revive(&mut self) {
        (self.trap, self.is_dead) = (None, false);
        (self.writes, self.syncs, self.directory_syncs) = (0, 0, 0);
        self.watched = None;
    }

    /// Decides on a call that changes something; `coin` is a random bit.
    pub(super) fn turn(&mut self, coin: bool) -> Turn {
        self.elapsed_micros += self.operation_micros;
        if self.is_dead {
            return Turn::Not(dead());
        }
        let Some((left, dies)) = &mut self.trap else { return Turn::Whole };
        if *left > 0 {
            *left -= 1;
            return Turn::Whole;
        }
        self.is_dead = *dies;
        self.trap = None;
        match (self.is_dead, coin) {
            (true, true) => Turn::Part(dead()),
            (true, false) => Turn::Not(dead()),
            (false, _) => Turn::Part(io::Error::other("injected failure")),
        }
    }

    /// Decides on a call that reads from `path`.
    pub(super) fn read(&mut self, path: &str) -> io::Result<()> {
        self.elapsed_micros += self.operation_micros;
        if self.is_dead {
            return Err(dead());
        }
        if self.reads.as_ref().is_some_and(|part| path.contains(part)) {
            return Err(io::Error::other("injected read failure"));
        }
        Ok(())
    }

    /// Counts what was read of a file.
    pub(super) fn note_read(&mut self, path: &str, bytes: usize) {
        if let Some(watched) = &mut self.watched {
            *watched.entry(path.to_owned()).or_default() += bytes as u64;
        }
    }

    pub(super) fn watch(&mut self) {
        self.watched = Some(BTreeMap::new());
    }

    pub(super) fn watched(&mut self) -> BTreeMap<String, u64> {
        self.watched.take().unwrap_or_default()
    }

    pub(super) fn spend_sync(&mut self) {
        self.elapsed_micros += self.sync_micros;
    }
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the process is dead")
}
