//! The event logs of all partitions, as [`Logs`] shows them.

use bytes::Bytes;
use records::ids::PartitionId;

use crate::error::StorageError;
use crate::event_log::{EventLog, EventsFacts, PagePlaces, Replay};
use crate::logs::{Logs, OpenLog};

impl Logs {
    /// Opens the event log `name` (a numeric group id) beside a partition and says what is in it. It is made on the
    /// disk by the first append.
    pub fn open_events(&mut self, id: PartitionId, name: u64) -> Result<(EventsFacts, Replay), StorageError> {
        let disk = self.disk().clone();
        let was_clean = self.data_dir.was_clean();
        let open = self.open_log(id)?;
        let was_closed = was_clean && !open.events.contains_key(&name);
        match EventLog::open(&disk, open.log.directory(), name, was_closed) {
            Ok((log, replay)) => {
                let facts = log.facts();
                open.events.insert(name, log);
                Ok((facts, replay))
            }
            Err(error) => {
                if matches!(error, StorageError::Poisoned) {
                    open.log.poison();
                    self.data_dir.note_failed_sync();
                }
                Err(error)
            }
        }
    }

    /// Appends events in one write, all or none. Bytes of events since the last snapshot: when they grow large, write
    /// one.
    pub fn append_events(
        &mut self,
        id: PartitionId,
        name: u64,
        epoch: i32,
        events: &[Bytes],
    ) -> Result<u64, StorageError> {
        let open = self.writable(id)?;
        let log = open.events.get_mut(&name).ok_or(StorageError::UnknownPartition)?;
        if log.is_new() {
            open.log.ensure_directory()?;
            let directory = open.log.directory().to_owned();
            open.log.dirty().directories.insert(directory);
            open.log.events().insert(name);
        }
        let appended = log.append(epoch, events);
        if log.is_broken() && !open.log.is_poisoned() {
            // Opened anew it would look whole.
            open.log.poison();
            self.data_dir.note_failed_sync();
        }
        appended
    }

    /// Replaces the snapshot and all events with a new snapshot. Its pages are those of the one before but for `dropped`,
    /// and `pages`, each with a new id and at most [`crate::options::PAGE_BYTES_MAX`] bytes. After a crash there is the
    /// snapshot before with its pages or this one with its own.
    pub fn write_snapshot(
        &mut self,
        id: PartitionId,
        name: u64,
        epoch: i32,
        snapshot: &[u8],
        pages: &[(u64, Bytes)],
        dropped: &[u64],
    ) -> Result<(), StorageError> {
        let open = self.writable(id)?;
        let log = open.events.get_mut(&name).ok_or(StorageError::UnknownPartition)?;
        open.log.ensure_directory()?;
        // Some of the names may be there although the rest fails.
        let directory = open.log.directory().to_owned();
        open.log.dirty().directories.insert(directory);
        let is_new = log.is_new();
        let written = log.snapshot(epoch, snapshot, pages, dropped);
        if is_new && !log.is_new() {
            open.log.events().insert(name);
        }
        if log.is_broken() && !open.log.is_poisoned() {
            // Opened anew it would look whole.
            open.log.poison();
            self.data_dir.note_failed_sync();
        }
        written
    }

    /// The pages of an open event log's last snapshot, ascending by id.
    pub fn pages_of(&mut self, id: PartitionId, name: u64) -> Result<Vec<u64>, StorageError> {
        Ok(self.open_events_of(id, name)?.page_ids())
    }

    /// Reads pages of an open event log's last snapshot, each with the leader epoch that it was written under.
    ///
    /// # Errors
    /// [`StorageError::Damaged`] where one is not what was written, or not of the last snapshot.
    pub fn read_pages(
        &mut self,
        id: PartitionId,
        name: u64,
        pages: &[u64],
    ) -> Result<Vec<(i32, Bytes)>, StorageError> {
        self.open_events_of(id, name)?.read_pages(pages)
    }

    /// Where these pages stand, as far as there are such, to get them into memory; `None` where there is nothing to read.
    pub fn page_places(
        &mut self,
        id: PartitionId,
        name: u64,
        pages: &[u64],
    ) -> Result<Option<PagePlaces>, StorageError> {
        self.open_events_of(id, name)?.page_places(pages)
    }

    /// Removes an event log, opened or not.
    pub fn delete_events(&mut self, id: PartitionId, name: u64) -> Result<(), StorageError> {
        let disk = self.disk().clone();
        let open = self.open_log(id)?;
        let log = match open.events.remove(&name) {
            Some(log) => log,
            None => EventLog::open(&disk, open.log.directory(), name, false)?.0,
        };
        if let Err(error) = log.delete() {
            if matches!(error, StorageError::Poisoned) {
                open.log.poison();
                self.data_dir.note_failed_sync();
            }
            return Err(error);
        }
        if open.log.events().remove(&name) {
            let directory = open.log.directory().to_owned();
            open.log.dirty().directories.insert(directory);
        }
        Ok(())
    }

    /// The event logs on disk beside a partition.
    pub fn events_on_disk(&mut self, id: PartitionId) -> Result<Vec<u64>, StorageError> {
        Ok(self.open_log(id)?.log.events().iter().copied().collect())
    }

    /// The open partitions that have an event log `name` on disk.
    pub fn partitions_with_events(&mut self, name: u64) -> Vec<PartitionId> {
        let with =
            self.logs.iter_mut().filter_map(|(id, open)| open.log.events().contains(&name).then_some(*id));
        let mut partitions: Vec<PartitionId> = with.collect();
        partitions.sort_unstable();
        partitions
    }

    fn open_log(&mut self, id: PartitionId) -> Result<&mut OpenLog, StorageError> {
        self.logs.get_mut(&id).ok_or(StorageError::UnknownPartition)
    }

    fn open_events_of(&mut self, id: PartitionId, name: u64) -> Result<&mut EventLog, StorageError> {
        self.open_log(id)?.events.get_mut(&name).ok_or(StorageError::UnknownPartition)
    }

    fn writable(&mut self, id: PartitionId) -> Result<&mut OpenLog, StorageError> {
        let open = self.open_log(id)?;
        if open.log.is_poisoned() { Err(StorageError::Poisoned) } else { Ok(open) }
    }
}
