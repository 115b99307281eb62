//! One partition log: its segments, and what is known of them.
//!
//! Invariants: segments ascend by base offset, and the last one is the only one that is written; `log_start` ≤
//! `synced` ≤ `end` as soon as everything from `log_start` on was synced; the written end is the high watermark. A
//! log without data has neither directory nor files: they come with the first append.

mod clean;
mod damage;
mod keys;
pub(crate) mod lost;
mod read;
mod recovery;
mod retention;
mod segments_left;
mod snapshots;
mod swap;
mod sync;
#[cfg(test)]
mod tests;
mod times;
mod transactions;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use records::batch::stamp;
use records::ids::{Offset, PartitionId, TopicId};
use records::{BatchView, TimestampType};

use crate::batch_header::BatchHeader;
use crate::data_dir::base64;
use crate::disk::{Disk, DiskFile, is_full, join};
use crate::error::{AppendError, IoContext, StorageError};
use crate::key_index::KeyIndex;
use crate::leader_epochs::LeaderEpochs;
use crate::options::LogConfig;
use crate::producer_state::{ProducerState, Verdict};
use crate::segment::Segment;
use crate::segment_list::Noted;
use crate::strays::retire_directory;
use crate::transactions::Marker;

pub(crate) use clean::{Dirtiness, Source};
pub(crate) use keys::KeyBounds;
pub use read::LogSlice;
pub(crate) use recovery::{OpenAs, stored_topic_id, write_again};
pub use retention::RetentionDue;
pub(crate) use swap::{CLEANED, Replacement, SWAP, remove_cleaned};
use sync::Begun;
pub(crate) use sync::Dirty;
pub use times::TimedOffset;

pub(crate) const PARTITION_METADATA: &str = "partition.metadata";

/// Who made a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client: its sequence numbers are checked.
    Client,
    /// The broker's own coordinators.
    Coordinator,
}

/// A log's bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// The first offset there is.
    pub log_start: Offset,
    /// The offset behind the last record written: the high watermark.
    pub end: Offset,
    /// The offset behind the last record that no open transaction can take back.
    pub last_stable: Offset,
    /// Everything below it survives a power cut.
    pub synced: Offset,
    /// The epoch of what is appended now.
    pub leader_epoch: i32,
    /// Stored bytes of all segments.
    pub bytes: u64,
}

/// A finished append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The batch's first offset; for a duplicate that of the first time.
    pub base_offset: Offset,
    /// Its last offset.
    pub last_offset: Offset,
    /// The append time in ms where the log's timestamps are the broker's.
    pub append_time: Option<i64>,
    /// The log's first offset.
    pub log_start: Offset,
    /// Bytes written; 0 for a duplicate.
    pub bytes: u64,
    /// Whether the batch was stored before (an idempotent producer's repetition): nothing was written.
    pub duplicate: bool,
}

/// Where a sequential reader goes on: no index search for it.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    offset: Offset,
    segment: Offset,
    position: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PartitionLog {
    id: PartitionId,
    directory: String,
    disk: Arc<dyn Disk>,
    config: LogConfig,
    leader_epoch: i32,
    segments: Vec<Segment>,
    /// Whether the directory is there.
    present: bool,
    log_start: Offset,
    /// Compaction may have left holes between batches below it.
    cleaned: Offset,
    end: Offset,
    synced: Offset,
    bytes: u64,
    producers: ProducerState,
    epochs: LeaderEpochs,
    snapshots: BTreeSet<Offset>,
    bytes_since_snapshot: u64,
    events: BTreeSet<u64>,
    /// The key index, where it is on.
    keys: Option<Box<KeyIndex>>,
    has_key_files: bool,
    /// Bytes that were checked when it was opened.
    recovered_bytes: u64,
    /// What was missing then.
    lost: Option<lost::Lost>,
    /// Segments that were there at the last orderly stop, and were not when it was opened.
    missing: Vec<Noted>,
    /// Stretches of offsets that were missing in its middle then.
    gaps: usize,
    dirty: Dirty,
    /// Syncs that have not come back, oldest first, with those that have behind them.
    syncs: VecDeque<Begun>,
    /// When the first write was made that no sync was begun for, ms.
    unsynced_since_ms: Option<i64>,
    poisoned: bool,
    cursors: VecDeque<Cursor>,
    /// Sealed segments that readers opened, oldest first.
    opened: VecDeque<Offset>,
    /// Whether the files differ from what an orderly stop left.
    changed: bool,
    /// Whether anybody read or wrote since the last [`PartitionLog::rest`].
    touched: bool,
    /// Paths of files that are out of use and not removed yet.
    retired: Vec<String>,
}

impl PartitionLog {
    pub(crate) fn facts(&self) -> LogFacts {
        LogFacts {
            log_start: self.log_start,
            end: self.end,
            last_stable: self.last_stable(),
            synced: self.synced,
            leader_epoch: self.leader_epoch,
            bytes: self.bytes,
        }
    }

    pub(crate) fn configure(&mut self, config: LogConfig) {
        self.config = config;
    }

    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// Appends one whole batch, stamped in place, as one write.
    pub(crate) fn append(
        &mut self,
        batch: &mut [u8],
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned);
        }
        let sent = BatchHeader::parse(batch).map_err(|reason| AppendError::Malformed(reason.into()))?;
        if sent.size != batch.len() as u64 {
            return Err(AppendError::Malformed("its length is not that of the bytes".into()));
        }
        if sent.size > self.config.segment_limit() {
            return Err(AppendError::TooLarge { bytes: batch.len(), bytes_max: self.config.segment_limit() });
        }
        let marker = sent.is_control().then(|| Marker::in_bytes(batch));
        if let Verdict::Duplicate(stored) = self.producers.check(&sent, origin, marker)? {
            return Ok(Appended {
                base_offset: stored.base(),
                last_offset: stored.last,
                append_time: self.append_time(stored.timestamp),
                log_start: self.log_start,
                bytes: 0,
                duplicate: true,
            });
        }
        if i64::from(sent.last_delta) >= i64::MAX - self.end.0 {
            return Err(AppendError::Malformed("the log has no offsets left for it".into()));
        }
        let append_time = self.append_time(now_ms);
        stamp(batch, self.end, self.leader_epoch, append_time, None);
        let header = BatchHeader::parse(batch).expect("stamping a valid header keeps it valid");
        self.prepare(&header, now_ms)?;
        let active = self.segments.last_mut().expect("prepare leaves an active segment");
        if let Err(error) = active.append(batch, &header, &self.config) {
            return Err(self.undo_append(error));
        }
        self.dirty.log = true;
        self.unsynced_since_ms.get_or_insert(now_ms);
        if let Some(aborted) = self.producers.note(&header, marker) {
            self.note_aborted(&aborted);
        }
        self.producers.heard_of(header.producer_id, now_ms);
        self.epochs.assign(self.leader_epoch, header.base);
        self.end = header.next();
        self.bytes += header.size;
        self.bytes_since_snapshot += header.size;
        self.changed = true;
        self.touched = true;
        Ok(Appended {
            base_offset: header.base,
            last_offset: header.last(),
            append_time,
            log_start: self.log_start,
            bytes: header.size,
            duplicate: false,
        })
    }

    fn append_time(&self, ms: i64) -> Option<i64> {
        (self.config.timestamp_type == TimestampType::LogAppend).then_some(ms)
    }

    /// Cuts the file back to its last whole batch. Where even that fails nothing more may be appended: the next
    /// batch would stand behind garbage.
    fn undo_append(&mut self, error: io::Error) -> AppendError {
        let active = self.segments.last_mut().expect("an append was tried, so there is an active segment");
        if let Err(second) = active.cut_back() {
            tracing::error!(log = self.directory, %error, %second, "a failed append cannot be cut back");
            self.poisoned = true;
        }
        self.dirty.log = true;
        if is_full(&error) { AppendError::Full } else { AppendError::Io(error) }
    }

    /// Makes sure that there is a segment with room for the batch.
    fn prepare(&mut self, header: &BatchHeader, now_ms: i64) -> Result<(), AppendError> {
        self.ensure_directory()?;
        let Some(active) = self.segments.last_mut() else { return Ok(self.add_segment()?) };
        let must_roll = active.must_roll(&self.config, header.size, header, now_ms);
        if must_roll.map_err(AppendError::Io)? {
            self.roll()?;
        }
        Ok(())
    }

    /// Creates the partition's directory when it is not there yet.
    pub(crate) fn ensure_directory(&mut self) -> Result<(), StorageError> {
        if !self.present {
            self.disk.create_dir(&self.directory).doing("create", &self.directory)?;
            self.write_partition_metadata()?;
            self.dirty.directories.insert(String::new());
            self.dirty.directories.insert(self.directory.clone());
            self.present = true;
        }
        Ok(())
    }

    fn write_partition_metadata(&mut self) -> Result<(), StorageError> {
        let file = write_topic_id(&*self.disk, &self.directory, self.id.topic)?;
        self.dirty.files.push(file);
        Ok(())
    }

    /// Seals the active segment and begins a new one at the end of the log.
    pub(crate) fn roll(&mut self) -> Result<(), StorageError> {
        let directory = self.directory.clone();
        if let Some(active) = self.segments.last_mut() {
            active.seal().doing("seal", active.log_path())?;
            let files = active.index_files().doing("write the indexes of", &directory)?;
            self.dirty.files.extend(files);
            if self.dirty.log {
                let file = active.log_file().doing("open", &directory)?;
                self.dirty.files.push(Arc::clone(file));
                self.dirty.log = false;
            }
            self.write_snapshot();
        }
        if let Some(sealed) = self.segments.last_mut() {
            sealed.close();
        }
        self.bound_dirty()?;
        self.add_segment()
    }

    fn add_segment(&mut self) -> Result<(), StorageError> {
        match Segment::create(&self.disk, &self.directory, self.end) {
            Ok(segment) => {
                self.segments.push(segment);
                self.dirty.directories.insert(self.directory.clone());
                Ok(())
            }
            Err(error) => {
                let found = crate::segment::Found::default();
                let mut left = Segment::existing(&self.disk, &self.directory, self.end, found);
                if let Err(error) = left.remove() {
                    tracing::warn!(log = self.directory, %error, "cannot remove an unfinished segment");
                }
                Err(error).doing("create a segment in", &self.directory)
            }
        }
    }

    /// Event logs known to be in the directory.
    pub(crate) fn events(&mut self) -> &mut BTreeSet<u64> {
        &mut self.events
    }

    /// Whether the offsets in a batch's header can stand where `expected` is the next offset.
    pub(crate) fn fits(&self, batch: &BatchView<'_>, expected: Offset) -> bool {
        self.key_bounds().fit(batch, expected)
    }

    /// The largest epoch not above `epoch`, with its end offset (KIP-279).
    pub(crate) fn epoch_end(&self, epoch: i32) -> Option<(i32, Offset)> {
        self.epochs.end_of(epoch, self.leader_epoch, self.end)
    }

    /// The epoch that the record at `offset` was written under; that of now at the end.
    pub(crate) fn epoch_at(&self, offset: Offset) -> i32 {
        let known = if offset >= self.end { None } else { self.epochs.at(offset) };
        known.unwrap_or(self.leader_epoch)
    }

    /// Closes the files of a log that nobody used since the last call: thousands of idle ones hold no handle.
    pub(crate) fn rest(&mut self) {
        if !std::mem::take(&mut self.touched) {
            self.segments.iter_mut().for_each(Segment::close);
            self.opened.clear();
            if let Some(keys) = &mut self.keys {
                keys.rest();
            }
        }
    }

    /// Takes the log out of the data directory: its name, in one step. The directory that is to be removed, if there
    /// is one.
    pub(crate) fn delete(&mut self) -> Result<Option<String>, StorageError> {
        self.segments.iter_mut().for_each(Segment::close);
        if !self.present {
            return Ok(None);
        }
        let retired = retire_directory(&*self.disk, &self.directory, self.id.topic)?;
        self.present = false;
        Ok(Some(retired))
    }

    /// The files that went out of use since the last call.
    pub(crate) fn take_retired(&mut self) -> Vec<String> {
        std::mem::take(&mut self.retired)
    }

    /// How long files that are out of use stay (`file.delete.delay.ms`).
    pub(crate) fn delete_delay_ms(&self) -> i64 {
        self.config.file_delete_delay_ms
    }
}

/// Writes a directory's `partition.metadata` (Kafka's `PartitionMetadataFile`); the file is still to be synced.
pub(crate) fn write_topic_id(
    disk: &dyn Disk,
    directory: &str,
    topic: TopicId,
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let path = join(directory, PARTITION_METADATA);
    let text = format!("version: 0\ntopic_id: {}", base64(&topic.0));
    let file = disk.create(&path).doing("create", &path)?;
    file.write_all_at(text.as_bytes(), 0).doing("write", &path)?;
    Ok(file)
}
