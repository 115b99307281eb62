//! Producer snapshots of a log: written at every roll and at the end, read when it is opened.

use records::ids::Offset;

use super::PartitionLog;
use crate::disk::{is_full, join};
use crate::error::{IoContext, StorageError};
use crate::options::WALK_WINDOW_BYTES;
use crate::producer_state::{self, ProducerState, SIDECAR, SNAPSHOT};
use crate::segment::{Segment, file_name};
use crate::walk::Step;

impl PartitionLog {
    /// Writes the state as of the log's end. Not being able to costs a longer recovery, so it is no error.
    pub(super) fn write_snapshot(&mut self) {
        if self.snapshots.contains(&self.end) {
            return;
        }
        let files = [
            (SNAPSHOT, producer_state::encode(&self.producers)),
            (SIDECAR, producer_state::encode_sidecar(&self.producers)),
        ];
        for (suffix, bytes) in files {
            let path = join(&self.directory, &file_name(self.end, suffix));
            let written = self.disk.create(&path).and_then(|file| {
                file.write_all_at(&bytes, 0)?;
                Ok(file)
            });
            match written {
                Ok(file) => self.dirty.files.push(file),
                Err(error) => {
                    tracing::warn!(path, %error, full = is_full(&error), "cannot write producer state");
                    return;
                }
            }
        }
        self.dirty.directories.insert(self.directory.clone());
        self.snapshots.insert(self.end);
        self.drop_snapshots();
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

    /// Rebuilds producers and leader epochs: the newest good snapshot, then the batch headers behind it. Headers
    /// below `epochs_from` are covered by the epoch checkpoint.
    pub(super) fn rebuild_state(&mut self, epochs_from: Offset) -> Result<(), StorageError> {
        let first = self.segments.first().map_or(self.end, Segment::base);
        let (state, producers_from) = self.load_snapshot()?.unwrap_or((ProducerState::default(), first));
        self.producers = state;
        let from = producers_from.min(epochs_from);
        if from >= self.end {
            return Ok(());
        }
        let first = self.segments.partition_point(|segment| segment.base() <= from).saturating_sub(1);
        for segment in &mut self.segments[first..] {
            let position = segment.position_before(from).doing("read", &self.directory)?;
            let mut walk = segment.walk(position, WALK_WINDOW_BYTES).doing("open", &self.directory)?;
            while let Step::Batch(header, _) = walk.step().doing("read", &self.directory)? {
                if header.base >= producers_from {
                    self.producers.note(&header);
                }
                if header.base >= epochs_from {
                    self.epochs.assign(header.leader_epoch, header.base);
                }
            }
        }
        Ok(())
    }

    fn load_snapshot(&mut self) -> Result<Option<(ProducerState, Offset)>, StorageError> {
        while let Some(&at) = self.snapshots.last() {
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
