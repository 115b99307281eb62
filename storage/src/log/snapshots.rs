//! Producer snapshots of a log: written at every roll, with a sync now and then, and at the end; read when it is opened.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::PartitionLog;
use super::recovery::write_again;
use super::transactions::Aborted;
use crate::disk::{DiskFile, is_full, join};
use crate::error::{IoContext, StorageError};
use crate::producer_state::{self, ProducerState, SIDECAR, SNAPSHOT};
use crate::segment::{Segment, file_name};

impl PartitionLog {
    /// Writes the state as of the log's end. Not being able to costs a longer recovery, so it is no error.
    pub(super) fn write_snapshot(&mut self) {
        self.bytes_since_snapshot = 0;
        if self.snapshots.contains(&self.end) {
            return;
        }
        match self.put_snapshot(self.end, &self.producers) {
            Ok(files) => self.dirty.files.extend(files),
            Err(_) => return,
        }
        self.dirty.directories.insert(self.directory.clone());
        self.snapshots.insert(self.end);
        self.drop_snapshots();
    }

    fn put_snapshot(&self, at: Offset, state: &ProducerState) -> io::Result<[Arc<dyn DiskFile>; 2]> {
        let put = |suffix, bytes: &[u8]| {
            let path = join(&self.directory, &file_name(at, suffix));
            let written = self.disk.create(&path).and_then(|file| file.write_all_at(bytes, 0).map(|()| file));
            written.inspect_err(|error| {
                tracing::warn!(path, %error, full = is_full(error), "cannot write producer state");
            })
        };
        // The sidecar first: a kill between the two must not leave a snapshot that knows less than the log does.
        let sidecar = put(SIDECAR, &producer_state::encode_sidecar(state))?;
        Ok([sidecar, put(SNAPSHOT, &producer_state::encode(state))?])
    }

    /// Makes those anew that a power cut took from the bases of segments from `from` on. Once what lies below such a
    /// segment is deleted nothing else tells what was open where it begins.
    pub(super) fn restore_snapshots(&mut self, from: Offset) -> Result<(), StorageError> {
        let first = self.segments.first().map_or(self.end, Segment::base);
        let bases = self.segments.iter().skip(1).map(Segment::base);
        let is_lost = |base: &Offset| *base >= from.max(self.cleaned) && !self.snapshots.contains(base);
        let lost: Vec<Offset> = bases.filter(is_lost).collect();
        let Some(lowest) = lost.first() else { return Ok(()) };
        let (mut state, mut at) = match self.load_snapshot(*lowest)? {
            Some((state, at)) if at >= self.cleaned => (state, at),
            None if first == Offset::ZERO && self.cleaned == Offset::ZERO => {
                (ProducerState::default(), first)
            }
            // It is not known either.
            _ => return Ok(()),
        };
        for base in lost {
            state = self.replay_state(state, at, base, &mut Aborted::new())?;
            at = base;
            // Not being able to is what it was before.
            let Ok(files) = self.put_snapshot(base, &state) else { return Ok(()) };
            self.dirty.directories.insert(self.directory.clone());
            self.snapshots.insert(base);
            self.sync_with_next(files)?;
        }
        Ok(())
    }

    /// Keeps those that stand at a segment's base, and the newest.
    pub(super) fn drop_snapshots(&mut self) {
        let newest = self.snapshots.last().copied();
        let unneeded: Vec<Offset> = self
            .snapshots
            .iter()
            .filter(|&&at| {
                Some(at) != newest && self.segments.binary_search_by_key(&at, Segment::base).is_err()
            })
            .copied()
            .collect();
        for at in unneeded {
            self.remove_snapshot(at);
        }
    }

    pub(super) fn remove_snapshot(&mut self, at: Offset) {
        self.snapshots.remove(&at);
        for suffix in [SNAPSHOT, SIDECAR] {
            let path = join(&self.directory, &file_name(at, suffix));
            if let Err(error) = self.disk.remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path, %error, "cannot remove producer state");
            }
        }
    }

    /// What an unclean stop left of snapshots from `from` on may be in memory only, or half of it on the disk: a later
    /// recovery must find them whole or not at all.
    pub(super) fn secure_snapshots(&mut self, from: Offset, rewrite: bool) -> Result<(), StorageError> {
        for at in self.snapshots.range(from..).copied().collect::<Vec<_>>() {
            let path = join(&self.directory, &file_name(at, SNAPSHOT));
            let bytes = self.disk.read(&path).doing("read", &path)?.unwrap_or_default();
            if producer_state::decode(&bytes).is_none() {
                tracing::warn!(path, "producer snapshot is damaged, removing it");
                self.remove_snapshot(at);
                continue;
            }
            for suffix in [SNAPSHOT, SIDECAR] {
                let path = join(&self.directory, &file_name(at, suffix));
                // There need not be a sidecar.
                let Ok(file) = self.disk.open(&path) else { continue };
                if rewrite {
                    let len = file.len().doing("measure", &path)?;
                    write_again(&*file, len).doing("write again", &path)?;
                } else {
                    self.sync_with_next([file])?;
                }
            }
        }
        Ok(())
    }

    /// Rebuilds producers, leader epochs and, of the segments at these bases, the transaction indexes: the newest good
    /// snapshot, then the batch headers behind it. Headers below `epochs_from` are covered by the epoch checkpoint. From
    /// which offset on batches were needed for the producers.
    pub(super) fn rebuild_state(
        &mut self,
        epochs_from: Offset,
        stale: &BTreeSet<Offset>,
        aborted_from: Offset,
    ) -> Result<Offset, StorageError> {
        let first = self.segments.first().map_or(self.end, Segment::base);
        let newest = self.load_snapshot(Offset::MAX)?;
        let (mut state, producers_from) = newest.unwrap_or((ProducerState::default(), first));
        if first < producers_from && producers_from < self.cleaned {
            state.adopt_open(&self.replay_from_start(producers_from, &mut Aborted::new())?);
        }
        let mut aborted: Aborted = stale.iter().map(|base| (*base, Vec::new())).collect();
        if aborted_from < producers_from {
            self.replay_aborted(aborted_from, producers_from, &mut aborted)?;
        }
        let mut epochs = std::mem::take(&mut self.epochs);
        let replayed = self.replay(producers_from.min(epochs_from), self.end, |segment, header, marker| {
            if header.base >= producers_from
                && let Some(txn) = state.note(header, marker)
                && let Some(found) = aborted.get_mut(&segment)
            {
                found.push(txn);
            }
            if header.base >= epochs_from {
                epochs.assign(header.leader_epoch, header.base);
            }
        });
        self.epochs = epochs;
        replayed?;
        self.producers = state;
        self.write_aborted(aborted)?;
        Ok(producers_from)
    }

    /// The newest good snapshot at or below `limit`, with its offset; those that are not good are removed.
    pub(super) fn load_snapshot(
        &mut self,
        limit: Offset,
    ) -> Result<Option<(ProducerState, Offset)>, StorageError> {
        while let Some(&at) = self.snapshots.range(..=limit).next_back() {
            let path = join(&self.directory, &file_name(at, SNAPSHOT));
            let bytes = self.disk.read(&path).doing("read", &path)?.unwrap_or_default();
            let Some(mut state) = producer_state::decode(&bytes) else {
                tracing::warn!(path, "producer snapshot is damaged, going back to the one before");
                self.remove_snapshot(at);
                continue;
            };
            let path = join(&self.directory, &file_name(at, SIDECAR));
            let bytes = self.disk.read(&path).doing("read", &path)?.unwrap_or_default();
            if producer_state::decode_sidecar(&mut state, &bytes).is_none() {
                // Gone or damaged: it comes back with the next snapshot, which must not be taken for written.
                tracing::info!(path, "producer sidecar is missing, one batch a producer is known");
            }
            return Ok(Some((state, at)));
        }
        Ok(None)
    }
}
