//! Building an index beside everything else: the log is read and hashed on any thread, its owner takes the result in.
//!
//! At most one job a log is useful at a time. What became of the log meanwhile does not matter: a result is taken in
//! only where the index still reaches just up to where the job began.

use std::io;

use records::ids::{Offset, PartitionId};

use super::build::{KeyIndex, Pieces};
use super::scan::{Found, Walked, walk};
use super::{KeyCache, KeyIndexStep, KeyedRecord};
use crate::error::{IoContext, ReadError, StorageError};
use crate::log::{KeyBounds, LogSlice, PartitionLog};
use crate::logs::Logs;
use crate::options::{KEY_JOB_BYTES, KEY_JOB_RECORDS_MAX, KEY_TAIL_BYTES};

/// What is to be done next for an index.
#[derive(Debug)]
pub enum KeyWork {
    /// Nothing: everything is indexed and appends are followed, or the index is off.
    Nothing,
    /// A small step that could be done at once was done, out of so many bytes of log. Ask again.
    Stepped(u64),
    /// This, on any thread; then [`Logs::key_job_done`].
    Run(KeyJob),
}

/// A piece of a segment, to be read for its keys.
#[derive(Debug)]
pub struct KeyJob {
    place: Place,
    slice: LogSlice,
    bounds: KeyBounds,
    inflated_max: usize,
}

/// Where a result belongs.
#[derive(Clone, Copy, Debug)]
struct Place {
    partition: PartitionId,
    segment: Offset,
    serial: u64,
    from: Offset,
}

/// What a job found.
#[derive(Debug)]
pub struct KeyJobDone {
    place: Place,
    bytes: u64,
    found: io::Result<(Vec<Piece>, Walked)>,
}

/// A batch, or a damaged one where there are no records.
#[derive(Debug)]
struct Piece {
    records: Option<Vec<KeyedRecord>>,
    first: Offset,
    next: Offset,
    leader_epoch: i32,
}

impl Piece {
    fn of(found: Found<'_>) -> Self {
        match found {
            Found::Batch { records, next, leader_epoch } => {
                Self { records: Some(records.to_vec()), first: next, next, leader_epoch }
            }
            Found::Damaged { first, last } => {
                Self { records: None, first, next: last.next(), leader_epoch: -1 }
            }
        }
    }

    fn found(&self) -> Found<'_> {
        match &self.records {
            Some(records) => Found::Batch { records, next: self.next, leader_epoch: self.leader_epoch },
            None => Found::Damaged { first: self.first, last: self.next - 1 },
        }
    }
}

impl KeyJob {
    /// Reads and hashes. Waits for the disk.
    #[must_use]
    pub fn run(self) -> KeyJobDone {
        let Self { place, slice, bounds, inflated_max } = self;
        let found = slice.read().map(|bytes| {
            let mut pieces = Vec::new();
            let mut records = 0;
            let walked = walk(&bytes, (slice.base(), place.from), bounds, inflated_max, |found| {
                let piece = Piece::of(found);
                records += piece.records.as_ref().map_or(0, Vec::len);
                pieces.push(piece);
                records < KEY_JOB_RECORDS_MAX
            });
            (pieces, walked)
        });
        KeyJobDone { place, bytes: slice.len(), found }
    }
}

impl KeyJobDone {
    /// Whose log was read.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.place.partition
    }

    /// Bytes of log that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Logs {
    /// The partitions whose key index is on.
    pub fn keyed_partitions(&self) -> impl Iterator<Item = PartitionId> {
        self.logs.iter().filter(|(_, open)| open.log.keys().is_some()).map(|(id, _)| *id)
    }

    /// What is to be done next to index a log as [`Logs::build_key_index`] does, so that its owner reads little: first
    /// the end of the log, then from its beginning on.
    ///
    /// # Errors
    /// What the disk says; what was indexed so far stays. Try again later.
    pub fn key_work(&mut self, id: PartitionId) -> Result<KeyWork, StorageError> {
        let open = self.logs.get_mut(&id).ok_or(StorageError::UnknownPartition)?;
        open.log.key_work(&mut self.key_cache)
    }

    /// Takes a job's result in; it is dropped where it came too late.
    ///
    /// # Errors
    /// As [`Logs::key_work`].
    pub fn key_job_done(&mut self, done: KeyJobDone) -> Result<(), StorageError> {
        let Some(open) = self.logs.get_mut(&done.place.partition) else { return Ok(()) };
        open.log.key_job_done(&mut self.key_cache, done)
    }
}

impl PartitionLog {
    fn key_work(&mut self, cache: &mut KeyCache) -> Result<KeyWork, StorageError> {
        let Some(mut index) = self.take_keys() else { return Ok(KeyWork::Nothing) };
        let work = self.next_key_work(&mut index, cache);
        self.put_keys(index);
        work
    }

    fn next_key_work(&mut self, index: &mut KeyIndex, cache: &mut KeyCache) -> Result<KeyWork, StorageError> {
        // Without reading the log: takes up what is on the disk, and ends what is whole.
        if !self.build_step(index, cache, 0)?.more {
            return Ok(KeyWork::Nothing);
        }
        let Some(active) = self.segment_count().checked_sub(1) else { return Ok(KeyWork::Nothing) };
        for segment in std::iter::once(active).chain(0..active) {
            let truth = self.key_truth(segment);
            let (base, end, log_bytes) = (truth.base, truth.end, truth.log_bytes);
            let keys = index.of(&truth);
            if keys.is_unread() {
                // More files to look at than one step may.
                return Ok(KeyWork::Stepped(0));
            }
            let from = keys.covered().end;
            if keys.is_sealed() || from >= end {
                continue;
            }
            let place =
                Place { partition: self.key_truth(segment).id, segment: base, serial: keys.serial, from };
            let slice = match self.read(from, KEY_JOB_BYTES, end, true) {
                Ok(slice) if !slice.is_empty() && slice.base() < end => slice,
                Ok(_) | Err(ReadError::Damaged { .. }) => return self.step_in(index, cache, segment),
                Err(error) => return Err(self.unreadable(error)),
            };
            if segment == active && log_bytes.saturating_sub(slice.position()) <= KEY_TAIL_BYTES {
                return self.step_in(index, cache, segment);
            }
            let (bounds, inflated_max) = (self.key_bounds(), index.inflated_max());
            return Ok(KeyWork::Run(KeyJob { place, slice, bounds, inflated_max }));
        }
        Ok(KeyWork::Stepped(0))
    }

    fn step_in(
        &mut self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        segment: usize,
    ) -> Result<KeyWork, StorageError> {
        let mut step = KeyIndexStep::default();
        self.build_segment(index, cache, segment, KEY_TAIL_BYTES, &mut step)?;
        Ok(KeyWork::Stepped(step.bytes))
    }

    fn key_job_done(&mut self, cache: &mut KeyCache, done: KeyJobDone) -> Result<(), StorageError> {
        let Some(mut index) = self.take_keys() else { return Ok(()) };
        let taken = self.take_key_job(&mut index, cache, done);
        self.put_keys(index);
        taken
    }

    fn take_key_job(
        &mut self,
        index: &mut KeyIndex,
        cache: &mut KeyCache,
        done: KeyJobDone,
    ) -> Result<(), StorageError> {
        let KeyJobDone { place, found, .. } = done;
        let (pieces, walked) = found.map_err(|error| self.unreadable(error.into()))?;
        let Some(segment) = self.segment_of(place.segment) else { return Ok(()) };
        let truth = self.key_truth(segment);
        let (base, end) = (truth.base, truth.end);
        let epochs = truth.epochs.clone();
        let Some(keys) = index.growing(base, place.serial).filter(|keys| keys.covered().end == place.from)
        else {
            return Ok(());
        };
        let mut into = Pieces { keys, end, written: Ok(()), epochs: &epochs };
        pieces.iter().for_each(|piece| into.take(piece.found()));
        let next = match walked {
            Walked::To(next) => Ok(next),
            Walked::Damage(at) => self.skip_key_damage(at, end, &mut |found| into.take(found)),
        };
        let (written, keys) = (into.written, into.keys);
        if written.is_err() {
            keys.reset(cache);
        }
        let path = keys.path().to_owned();
        written.doing("write", &path)?;
        // A piece that does not get on would be read for ever.
        let next = next.and_then(|next| self.goes_on(place.from, next.min(end)));
        let next = next.map_err(|error| self.unreadable(error))?;
        keys.cover(next, self.epoch_at(next - 1));
        Ok(())
    }
}
