//! What of a log is not durable yet, and the end of all writing.

use std::collections::BTreeSet;
use std::sync::Arc;

use records::ids::Offset;

use super::PartitionLog;
use crate::disk::{DiskFile, join};
use crate::error::{IoContext, StorageError};
use crate::leader_epochs;
use crate::options::{FlushPolicy, SNAPSHOT_EVERY_BYTES, SYNC_FILES_MAX};

/// What a sync must reach, besides the active segment's log file.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) log: bool,
    /// Whether the active segment's index of aborted transactions has grown: below the recovery point nobody looks for
    /// what it does not tell.
    pub(crate) txn_index: bool,
    pub(crate) files: Vec<Arc<dyn DiskFile>>,
    pub(crate) directories: BTreeSet<String>,
    /// The leader epochs' file and what it must say: nothing counts as synced before it does, since recovery reads no
    /// batch below the recovery point.
    pub(crate) epochs: Option<(String, String)>,
}

impl Dirty {
    pub(crate) fn is_clean(&self) -> bool {
        !self.log && self.files.is_empty() && self.directories.is_empty() && self.epochs.is_none()
    }

    /// How many system calls that wait for the disk it takes.
    pub(crate) fn cost(&self) -> usize {
        self.files.len() + self.directories.len() + self.epochs.iter().len()
    }
}

/// A sync that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    number: u64,
    end: Offset,
    is_done: bool,
}

impl PartitionLog {
    /// Takes what a sync must reach; the log counts as clean until the next write. `None` when there is nothing. What is
    /// taken must be synced in the order in which it was taken.
    pub(crate) fn take_dirty(&mut self) -> Result<Option<(Offset, Dirty)>, StorageError> {
        if self.poisoned {
            return Err(StorageError::Poisoned);
        }
        if self.present
            && let Some(text) = self.epochs.take_text()
        {
            self.dirty.epochs = Some((join(&self.directory, leader_epochs::FILE), text));
        }
        if self.dirty.is_clean() {
            return Ok(None);
        }
        // Less often than a segment is rolled it would be of no use.
        let often = SNAPSHOT_EVERY_BYTES.min(self.config.segment_limit() / 8);
        if self.bytes_since_snapshot >= often && self.dirty.log {
            self.write_snapshot();
        }
        if self.dirty.log
            && let Some(active) = self.segments.last_mut()
        {
            let file = active.log_file().doing("open", &self.directory)?;
            self.dirty.files.push(Arc::clone(file));
            if std::mem::take(&mut self.dirty.txn_index) {
                self.dirty.files.extend(active.txn_index_file().doing("open", &self.directory)?);
            }
        }
        self.unsynced_since_ms = None;
        Ok(Some((self.end, std::mem::take(&mut self.dirty))))
    }

    /// Whether its policy wants it synced now, although nobody waits for that.
    pub(crate) fn is_flush_due(&self, now_ms: i64) -> bool {
        let is_rolled = !self.dirty.files.is_empty();
        match self.config.flush {
            FlushPolicy::Acks => false,
            FlushPolicy::Os => is_rolled,
            FlushPolicy::Interval(ms) => {
                is_rolled || self.unsynced_since_ms.is_some_and(|since| now_ms.saturating_sub(since) >= ms)
            }
        }
    }

    /// A sync begins of everything below `end`; its number.
    pub(crate) fn sync_begins(&mut self, end: Offset) -> u64 {
        let number = self.syncs.front().map_or(0, |first| first.number) + self.syncs.len() as u64;
        self.syncs.push_back(Begun { number, end, is_done: false });
        number
    }

    /// The sync of that number has come back: up to where the log is durable now. What an earlier one is to reach still
    /// counts as not durable, whatever the later ones say.
    pub(crate) fn sync_ended(&mut self, number: u64) -> Offset {
        if let Some(begun) = self.syncs.iter_mut().find(|begun| begun.number == number) {
            begun.is_done = true;
        }
        while let Some(begun) = self.syncs.pop_front_if(|begun| begun.is_done) {
            self.synced(begun.end);
        }
        self.synced
    }

    /// A sync that began when the log ended at `end` has come back.
    pub(crate) fn synced(&mut self, end: Offset) -> Offset {
        self.synced = self.synced.max(end);
        self.synced
    }

    /// A sync failed: what it should have reached may be lost, and no later sync would tell.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Where nobody asks for a sync for long, the files of many rolled segments would stay open for it.
    pub(super) fn bound_dirty(&mut self) -> Result<(), StorageError> {
        if self.dirty.files.len() > SYNC_FILES_MAX { self.sync_files() } else { Ok(()) }
    }

    /// Syncs all files but the active log, here and now.
    pub(super) fn sync_files(&mut self) -> Result<(), StorageError> {
        if let Err(error) = self.dirty.files.drain(..).try_for_each(|file| file.sync_data()) {
            tracing::error!(log = self.directory, %error, "sync failed, log is closed for writing; check the disk, make room where it is full, then restart");
            self.poisoned = true;
            return Err(StorageError::Poisoned);
        }
        Ok(())
    }

    pub(crate) fn dirty(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// Writes the epochs down here and now, whatever a sync was told of them: it may not have run. They go with the next one
    /// too, since one that is under way may tell of fewer.
    pub(crate) fn write_epochs(&self) -> Result<(), StorageError> {
        let text = self.epochs.text();
        let path = join(&self.directory, leader_epochs::FILE);
        self.disk.write_atomic(&path, text.as_bytes()).doing("write", &path)
    }

    /// Ends all writing: seals, snapshots. The files that must be synced then.
    pub(crate) fn finish(&mut self) -> Result<Dirty, StorageError> {
        if let Some(keys) = &mut self.keys {
            keys.flush();
        }
        if self.changed
            && let Some(active) = self.segments.last_mut()
        {
            active.seal().doing("seal", &self.directory)?;
            let files = active.index_files().doing("write the indexes of", &self.directory)?;
            self.dirty.files.extend(files);
            self.write_snapshot();
        }
        Ok(self.take_dirty()?.map(|(_, dirty)| dirty).unwrap_or_default())
    }
}
