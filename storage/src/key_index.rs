//! The key index: which key hash every record has, so that nothing is read and inflated to find the records of a key.
//!
//! One sidecar a segment, `<base offset>.keyindex` (`docs/key-index.md`), which can be deleted at any time. Off until
//! somebody asks for it; then older segments are indexed step by step, and what is appended is indexed as it comes.
//! All look-ups give the same answers without it: what is not indexed is read from the log.
//!
//! Invariant: an index that is answered from agrees with its segment: topic, partition, base offset, covered size,
//! and the leader epoch at the end of every block. What does not is dropped and made anew.

mod answer;
mod bits;
mod block;
mod build;
mod cache;
mod filter;
mod find;
mod format;
mod job;
mod load;
mod lookup;
mod pending;
mod reader;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod verify;

use bytes::BytesMut;
use records::ids::{KeyHash, Offset, PartitionId};

use crate::error::{AppendError, ReadError, StorageError};
use crate::log::{Appended, Origin};
use crate::logs::Logs;
use crate::options::KEY_RESULTS_MAX;

use lookup::Effort;
use reader::Wanted;

pub use filter::{KeyFilter, keyless_place};
pub use find::KeyRecords;
pub use job::{KeyJob, KeyJobDone, KeyWork};

pub(crate) use build::KeyIndex;
pub(crate) use cache::KeyCache;
pub(crate) use format::SUFFIX;
#[cfg(test)]
pub(crate) use pending::Limits;
pub(crate) use segment::Truth;
pub(crate) use verify::look;

/// A record by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedRecord {
    /// Its offset.
    pub offset: Offset,
    /// Its key's hash; `None` without a key.
    pub key: Option<KeyHash>,
}

/// The records of an offset range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyHashes {
    /// In offset order. Offsets between them are gone, the broker's own markers, or damaged.
    pub records: Vec<KeyedRecord>,
    /// First and last offset of what is damaged: its records have no known key, and are never to be delivered.
    pub damaged: Vec<(Offset, Offset)>,
    /// Everything below it is told; ask from here on for more.
    pub next: Offset,
}

/// What a search forwards found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyMatches {
    /// In order.
    pub offsets: Vec<Offset>,
    /// Every match below it is told; ask from here on for more.
    pub next: Offset,
}

/// What a search backwards found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastKeyMatch {
    /// The last match, if the search came to one.
    pub offset: Option<Offset>,
    /// There is no later one than that from here on: ask below it for more where none was found.
    pub searched_from: Offset,
}

/// How far a partition's key index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyIndexFacts {
    /// Segments that are indexed to their end, as far as somebody has looked.
    pub segments_indexed: usize,
    /// All segments.
    pub segments: usize,
    /// Records of which the index is in memory only.
    pub pending_records: usize,
    /// Bytes of the files, as far as somebody has looked.
    pub file_bytes: u64,
}

impl KeyIndexFacts {
    /// Whether every record is indexed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.segments_indexed == self.segments
    }
}

/// What one building step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyIndexStep {
    /// Bytes of log read.
    pub bytes: u64,
    /// Whether there is more to do. Once `false`, appends are followed; an index that turns out to be damaged or cannot
    /// be written needs steps again, and then [`KeyIndexFacts::is_complete`] is false.
    pub more: bool,
}

impl Logs {
    /// Turns a partition's key index on: from now on appended records are indexed as soon as
    /// [`Logs::build_key_index`] has come to the end of the log, or at once where the log is empty.
    ///
    /// # Errors
    /// [`StorageError::UnknownPartition`].
    pub fn enable_key_index(&mut self, id: PartitionId) -> Result<(), StorageError> {
        let inflated_max = self.options.inflated_bytes_max;
        self.log_mut(id)?.enable_keys(inflated_max);
        Ok(())
    }

    /// Turns a partition's key index off and removes its files.
    ///
    /// # Errors
    /// [`StorageError::UnknownPartition`]; what the disk says.
    pub fn drop_key_index(&mut self, id: PartitionId) -> Result<(), StorageError> {
        self.key_cache.forget(id);
        self.log_mut(id)?.drop_keys()
    }

    /// How far a partition's key index is; `None` where it is off.
    pub fn key_index_facts(&self, id: PartitionId) -> Option<KeyIndexFacts> {
        self.logs.get(&id)?.log.key_facts()
    }

    /// Indexes what is not indexed yet, out of about `bytes_max` bytes of log: first the end of the log, so that
    /// appends can be followed, then from its beginning on. Where the index is off there is nothing to do.
    ///
    /// # Errors
    /// What the disk says; what was indexed so far stays. Try again later.
    pub fn build_key_index(&mut self, id: PartitionId, bytes_max: u64) -> Result<KeyIndexStep, StorageError> {
        let open = self.logs.get_mut(&id).ok_or(StorageError::UnknownPartition)?;
        open.log.build_keys(&mut self.key_cache, bytes_max)
    }

    /// As [`Logs::append`], where the key hashes are known already: of each record in order, `None` for a null key
    /// (`records::Validated::key_hashes`). Without them they are computed from the batch where the index is on.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing is stored then.
    pub fn append_with_keys(
        &mut self,
        id: PartitionId,
        mut batch: BytesMut,
        keys: Option<&[Option<KeyHash>]>,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let open = self.logs.get_mut(&id).ok_or(AppendError::UnknownPartition)?;
        let poisoned = open.log.is_poisoned();
        let appended = open.log.append(&mut batch, origin, now_ms);
        if !poisoned && open.log.is_poisoned() {
            self.data_dir.note_failed_sync();
        }
        if appended.as_ref().is_ok_and(|appended| !appended.duplicate) {
            open.log.index_keys(&mut self.key_cache, &batch, keys);
        }
        appended
    }

    /// Offsets and key hashes of the records from `from` on, below `upper`, `count_max` (at most
    /// [`KEY_RESULTS_MAX`]) of them. A part of what was asked for may come: ask again from `next` on.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] when `from` is outside of the log; what the disk says.
    pub fn key_hashes(
        &mut self,
        id: PartitionId,
        from: Offset,
        upper: Offset,
        count_max: usize,
    ) -> Result<KeyHashes, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        let open = self.logs.get_mut(&id).ok_or(ReadError::UnknownPartition)?;
        let count_max = count_max.min(KEY_RESULTS_MAX);
        open.log.key_hashes(&mut self.key_cache, from, upper, count_max, inflated_max)
    }

    /// The offsets from `from` on, below `upper`, of the records that `filter` means, `count_max` (at most
    /// [`KEY_RESULTS_MAX`]) of them. A search is bounded, so it may end before `upper` with fewer: ask again from
    /// `next` on.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] when `from` is outside of the log; what the disk says.
    pub fn key_matches(
        &mut self,
        id: PartitionId,
        filter: KeyFilter,
        from: Offset,
        upper: Offset,
        count_max: usize,
    ) -> Result<KeyMatches, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        let open = self.logs.get_mut(&id).ok_or(ReadError::UnknownPartition)?;
        let count_max = count_max.min(KEY_RESULTS_MAX);
        let wanted = Wanted { filter, from, upper };
        open.log.key_matches(&mut self.key_cache, wanted, count_max, Effort::LOOKUP, inflated_max)
    }

    /// The last offset from `from` on, below `below`, of a record that `filter` means. A search is bounded: where it
    /// ends with none above `from`, ask again below `searched_from`.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`] when `from` is outside of the log; what the disk says.
    pub fn last_key_match(
        &mut self,
        id: PartitionId,
        filter: KeyFilter,
        from: Offset,
        below: Offset,
    ) -> Result<LastKeyMatch, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        let open = self.logs.get_mut(&id).ok_or(ReadError::UnknownPartition)?;
        open.log.last_key_match(&mut self.key_cache, filter, from, below, inflated_max)
    }

    /// Bytes that parts of key indexes take in memory, over all logs, besides what is not written yet.
    #[must_use]
    pub fn key_cache_bytes(&self) -> usize {
        self.key_cache.bytes()
    }
}
