//! Group commit: one sync for everything that was written to a partition so far.
//!
//! The owner of the logs takes a job, runs it on any thread, and gives the result back. Appends go on meanwhile and
//! count towards the next job.

use std::io;
use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use crate::data_dir;
use crate::disk::{Disk, temporary};
use crate::log::Dirty;
use crate::options::SYNC_FILES_MAX;

/// What one sync must reach.
#[derive(Debug)]
pub struct SyncJob {
    pub(crate) partition: PartitionId,
    /// Tells the jobs of a log apart; they ascend.
    pub(crate) number: u64,
    pub(crate) end: Offset,
    pub(crate) dirty: Dirty,
    pub(crate) disk: Arc<dyn Disk>,
    /// Event logs, and up to which generation of file each is synced with this job.
    pub(crate) events: Vec<(u64, u64)>,
}

/// A sync that has come back.
#[derive(Debug)]
pub struct SyncResult {
    pub(crate) partition: PartitionId,
    pub(crate) number: u64,
    pub(crate) events: Vec<(u64, u64)>,
    pub(crate) result: io::Result<()>,
}

impl SyncJob {
    /// The partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Everything of the log below it is durable once the job has succeeded.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Syncs. Blocks for as long as the disk takes. Where that fails, word of it is left for the next start at once: the
    /// process may die before the result is given back.
    #[must_use]
    pub fn run(self) -> SyncResult {
        let result = sync(&*self.disk, &self.dirty);
        if result.is_err() {
            data_dir::note_failed_sync(&*self.disk);
        }
        SyncResult { partition: self.partition, number: self.number, events: self.events, result }
    }
}

impl SyncResult {
    /// The partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Whether the sync failed.
    #[must_use]
    pub fn is_err(&self) -> bool {
        self.result.is_err()
    }
}

/// Syncs files first and names last, so that no name survives without the bytes behind it.
pub(crate) fn sync(disk: &dyn Disk, dirty: &Dirty) -> io::Result<()> {
    for file in &dirty.files {
        file.sync_data()?;
    }
    if let Some((path, text)) = &dirty.epochs {
        disk.write_atomic(path, text.as_bytes())?;
    }
    dirty.directories.iter().rev().try_for_each(|directory| disk.sync_dir(directory))
}

/// The same for many logs at once: where they are more than [`SYNC_FILES_MAX`] files, all of the disk is synced instead of
/// each of them.
pub(crate) fn sync_many(disk: &dyn Disk, dirty: &[&Dirty]) -> io::Result<()> {
    if dirty.iter().map(|dirty| dirty.cost()).sum::<usize>() <= SYNC_FILES_MAX {
        return dirty.iter().try_for_each(|dirty| sync(disk, dirty));
    }
    let epochs: Vec<_> = dirty.iter().filter_map(|dirty| dirty.epochs.as_ref()).collect();
    for (path, text) in &epochs {
        disk.create(&temporary(path))?.write_all_at(text.as_bytes(), 0)?;
    }
    disk.sync_all()?;
    for (path, _) in &epochs {
        disk.rename(&temporary(path), path)?;
    }
    if epochs.is_empty() { Ok(()) } else { disk.sync_all() }
}
