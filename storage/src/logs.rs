//! All partition logs of a data directory. One thread owns them; what it hands out (slices, sync jobs) can be used
//! on any.

mod missing;
mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use records::ids::{Offset, PartitionId};

use crate::batch_cache::BatchCache;
use crate::checkpoints::{self, LogName, OffsetCheckpoint};
use crate::cleaner::{CleaningFacts, Jobs};
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::error::{AppendError, DeleteError, IoContext, ReadError, StorageError};
use crate::event_log::EventLog;
use crate::flush::{self, SyncJob, SyncResult};
use crate::key_index::KeyCache;
use crate::log::{
    Appended, Dirty, LogFacts, LogSlice, OpenAs, Origin, PartitionLog, RetentionDue, TimedOffset,
    stored_topic_id,
};
use crate::metadata::Boot;
use crate::options::{FlushPolicy, KEY_CACHE_BYTES_MAX, LogConfig, OPEN_AT_ONCE, OPEN_THREADS_MAX, Options};
use crate::overview::RecoveryFacts;
use crate::retired::Retired;
use crate::segment_list::{self, SegmentList};
use crate::strays::{self, directory_name};
use crate::transactions::AbortedTransaction;

/// A partition to open.
#[derive(Clone, Debug)]
pub struct PartitionToOpen {
    /// Which.
    pub id: PartitionId,
    /// Its topic's name, which its directory bears.
    pub topic: String,
    /// Its settings.
    pub config: LogConfig,
}

/// See the module.
#[derive(Debug)]
pub struct Logs {
    pub(crate) data_dir: DataDir,
    pub(crate) options: Options,
    boot: Boot,
    pub(crate) logs: BTreeMap<PartitionId, OpenLog>,
    pub(crate) cache: BatchCache,
    pub(crate) key_cache: KeyCache,
    pub(crate) recovery_points: OffsetCheckpoint,
    pub(crate) log_starts: OffsetCheckpoint,
    /// Whether the file may say something else, since writing it failed.
    log_starts_unsure: bool,
    ends: OffsetCheckpoint,
    /// The same for where logs end.
    ends_unsure: bool,
    /// Logs whose policy syncs them without being asked.
    lazy: BTreeSet<PartitionId>,
    pub(crate) cleaned: OffsetCheckpoint,
    pub(crate) holes: OffsetCheckpoint,
    /// The segments of logs that are not open yet, as an orderly stop left them.
    left_segments: Option<SegmentList>,
    pub(crate) jobs: Jobs,
    pub(crate) retired: Retired,
    pub(crate) recovery: RecoveryFacts,
    lost_records: bool,
}

#[derive(Debug)]
pub(crate) struct OpenLog {
    pub(crate) name: LogName,
    pub(crate) log: PartitionLog,
    pub(crate) events: BTreeMap<u64, EventLog>,
    pub(crate) cleaning: CleaningFacts,
}

impl Logs {
    /// Takes a locked data directory into use.
    ///
    /// # Errors
    /// [`StorageError::WrongNode`] when it belongs to another node; anything the disk says.
    pub fn open(data_dir: DataDir, options: Options, boot: Boot) -> Result<Self, StorageError> {
        data_dir.claim(&options)?;
        let disk = &**data_dir.disk();
        let left_segments = match data_dir.stopped_boot() {
            Some(boot) => segment_list::read(disk, boot)?,
            None => None,
        };
        let logs = Self {
            left_segments,
            recovery_points: checkpoints::read(disk, checkpoints::RECOVERY_POINT)?,
            log_starts: checkpoints::read(disk, checkpoints::LOG_START)?,
            log_starts_unsure: false,
            ends: checkpoints::read(disk, checkpoints::HIGH_WATERMARK)?,
            ends_unsure: false,
            lazy: BTreeSet::new(),
            cleaned: checkpoints::read(disk, checkpoints::CLEANED)?,
            holes: checkpoints::read(disk, checkpoints::HOLES)?,
            jobs: Jobs::default(),
            retired: Retired::default(),
            recovery: RecoveryFacts::default(),
            lost_records: false,
            cache: BatchCache::new(options.batch_cache_bytes),
            key_cache: KeyCache::new(KEY_CACHE_BYTES_MAX),
            options,
            boot,
            logs: BTreeMap::new(),
            data_dir,
        };
        strays::remove_deleted(&**logs.disk())?;
        logs.data_dir.clear_clean()?;
        Ok(logs)
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        self.data_dir.disk()
    }

    /// Opens a partition's log. Without data it is created only when something is appended. Opening an open one
    /// changes its settings.
    pub fn open_partition(
        &mut self,
        id: PartitionId,
        topic_name: &str,
        config: LogConfig,
    ) -> Result<LogFacts, StorageError> {
        if let Some(open) = self.logs.get_mut(&id) {
            open.log.configure(config);
            let facts = open.log.facts();
            self.note_flush_policy(id);
            return Ok(facts);
        }
        let wanted = PartitionToOpen { id, topic: topic_name.to_owned(), config };
        let log = self.read_in(&wanted, false)?;
        let mut lowered = BTreeSet::new();
        let facts = self.take_in(wanted, log, &mut lowered)?;
        self.write_lowered(&lowered)?;
        Ok(facts)
    }

    /// Opens the partitions of a start, several at a time: it waits for their reads beside each other. What is open
    /// already stays open where one of them fails.
    ///
    /// # Errors
    /// [`StorageError::Missing`] for one whose files are gone altogether although a checkpoint tells of records.
    pub fn open_partitions(
        &mut self,
        partitions: Vec<PartitionToOpen>,
    ) -> Result<Vec<LogFacts>, StorageError> {
        let mut facts = Vec::with_capacity(partitions.len());
        let mut lowered = BTreeSet::new();
        let mut partitions = partitions.into_iter();
        loop {
            let some: Vec<PartitionToOpen> = partitions.by_ref().take(OPEN_AT_ONCE).collect();
            if some.is_empty() {
                self.write_lowered(&lowered)?;
                self.write_found_starts();
                return Ok(facts);
            }
            let next = AtomicUsize::new(0);
            let logs = &*self;
            let work = || {
                let mut read = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(partition) = some.get(index) else { return read };
                    read.push((index, logs.read_in(partition, true)));
                }
            };
            let mut read = std::thread::scope(|scope| {
                let threads = OPEN_THREADS_MAX.min(some.len());
                // A thread less than that is no reason to fail: this one works, too.
                let others: Vec<_> = (1..threads)
                    .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                    .collect();
                let mut read = work();
                for other in others {
                    read.extend(other.join().expect("opening a log does not panic"));
                }
                read
            });
            read.sort_unstable_by_key(|(index, _)| *index);
            for (_, log) in &read {
                if let Err(error @ StorageError::Missing { .. }) = log {
                    tracing::error!("{error}");
                }
            }
            for (partition, (_, log)) in some.into_iter().zip(read) {
                facts.push(self.take_in(partition, log?, &mut lowered)?);
            }
        }
    }

    /// Reads a log from the disk, and mends it where it must be; `None` where another topic's directory is in its place.
    fn read_in(
        &self,
        wanted: &PartitionToOpen,
        at_start: bool,
    ) -> Result<Option<PartitionLog>, StorageError> {
        let name = (wanted.topic.clone(), wanted.id.index);
        let directory = directory_name(&name);
        let stored_topic = stored_topic_id(&**self.disk(), &directory)?;
        if stored_topic.is_some_and(|topic| topic != wanted.id.topic) {
            return Ok(None);
        }
        if at_start && stored_topic.is_none() && !strays::has_log(&**self.disk(), &directory)? {
            // Before anything is written: it may be the place that a disk is mounted at.
            self.refuse_missing(&name)?;
        }
        let note = self.note_of(&name)?;
        let known = |offsets: &OffsetCheckpoint, file| offsets.get(&name).max(note.get(file)).copied();
        let left = OpenAs {
            names_topic: stored_topic.is_some(),
            clean: self.data_dir.was_clean(),
            recovery_point: self.recovery_points.get(&name).copied(),
            log_start: known(&self.log_starts, checkpoints::LOG_START),
            // Another broker's directory tells of its holes by what it compacted.
            cleaned: known(&self.holes, checkpoints::HOLES).max(known(&self.cleaned, checkpoints::CLEANED)),
            end: self.ends.get(&name).copied(),
            segments: self.left_segments.as_ref().and_then(|lists| lists.get(&name).cloned()),
            leader_epoch: self.boot.leader_epoch,
            rewrite: self.data_dir.had_failed_sync(),
        };
        let opened = PartitionLog::open(self.disk(), wanted.id, directory, wanted.config.clone(), &left);
        if let Err(StorageError::Io { .. }) = &opened {
            // It may have been a sync, which the next start must not take for a good one.
            self.data_dir.note_failed_sync();
        }
        opened.map(Some)
    }

    /// Has another topic's directory make way.
    fn make_way(&mut self, wanted: &PartitionToOpen) -> Result<PartitionLog, StorageError> {
        self.set_aside(&(wanted.topic.clone(), wanted.id.index))?;
        Ok(self.read_in(wanted, false)?.expect("the directory was set aside"))
    }

    /// Whether a log that was opened is not the one that an orderly stop left, but ends before it: the epoch was not
    /// raised for that, and must be before anything is appended. Begin anew, as after an unclean stop.
    #[must_use]
    pub fn has_lost_records(&self) -> bool {
        self.lost_records
    }

    fn take_in(
        &mut self,
        wanted: PartitionToOpen,
        log: Option<PartitionLog>,
        lowered: &mut BTreeSet<&'static str>,
    ) -> Result<LogFacts, StorageError> {
        let mut log = match log {
            Some(log) => log,
            None => self.make_way(&wanted)?,
        };
        let name = (wanted.topic, wanted.id.index);
        let facts = log.facts();
        self.retired.add_files(&**self.data_dir.disk(), log.take_retired(), log.delete_delay_ms());
        let recovered = log.recovered_bytes();
        self.recovery.logs += u64::from(recovered > 0);
        self.recovery.bytes += recovered;
        self.recovery.gaps += log.gaps();
        if let Some(lists) = &mut self.left_segments {
            lists.remove(&name);
        }
        log.forget_holes_behind_end();
        if log.has_key_files() {
            log.enable_keys(self.options.inflated_bytes_max);
        }
        self.note_lost(&name, &facts);
        lowered.extend(self.lower_checkpoints(&name, &facts));
        self.adopt_note(&name, &facts)?;
        let cleaning = CleaningFacts::default();
        self.logs.insert(wanted.id, OpenLog { name, log, events: BTreeMap::new(), cleaning });
        self.note_flush_policy(wanted.id);
        Ok(facts)
    }

    /// Where a log was cut, what comes next was neither synced nor compacted, whatever is written of what stood there
    /// before; and what was made anew of its indexes is not synced yet. The files that must be written.
    fn lower_checkpoints(&mut self, name: &LogName, facts: &LogFacts) -> BTreeSet<&'static str> {
        let mut lowered = BTreeSet::new();
        for (file, offsets, bound) in [
            (checkpoints::RECOVERY_POINT, &mut self.recovery_points, facts.synced),
            (checkpoints::HOLES, &mut self.holes, facts.end),
            (checkpoints::CLEANED, &mut self.cleaned, facts.end),
        ] {
            if let Some(offset) = offsets.get_mut(name).filter(|offset| **offset > bound) {
                *offset = bound;
                lowered.insert(file);
            }
        }
        lowered
    }

    fn write_lowered(&self, lowered: &BTreeSet<&'static str>) -> Result<(), StorageError> {
        for (file, offsets) in [
            (checkpoints::RECOVERY_POINT, &self.recovery_points),
            (checkpoints::HOLES, &self.holes),
            (checkpoints::CLEANED, &self.cleaned),
        ] {
            if lowered.contains(file) {
                checkpoints::write(&**self.data_dir.disk(), file, offsets)?;
            }
        }
        Ok(())
    }

    /// Where the first segment alone tells that a log starts later than is written down, as when the disk was full, a power
    /// cut could still bring the deleted ones back: a crash of the process has left their removal unsynced.
    fn write_found_starts(&mut self) {
        if let Err(error) = self.write_log_starts(&[]) {
            tracing::error!(%error, "log starts are not written; with the next checkpoint they are");
        }
    }

    /// Changes a log's settings; they hold from the next append or retention run on.
    pub fn configure(&mut self, id: PartitionId, config: LogConfig) -> Result<(), StorageError> {
        if !config.compact {
            self.jobs.cancel(id);
        }
        self.log_mut(id)?.configure(config);
        self.note_flush_policy(id);
        Ok(())
    }

    fn note_flush_policy(&mut self, id: PartitionId) {
        match self.logs.get(&id).map(|open| open.log.config().flush) {
            None | Some(FlushPolicy::Acks) => self.lazy.remove(&id),
            Some(FlushPolicy::Interval(_) | FlushPolicy::Os) => self.lazy.insert(id),
        };
    }

    /// Deletes a partition's log and all that stands beside it. Slices handed out stay readable.
    pub fn delete_partition(&mut self, id: PartitionId) -> Result<(), StorageError> {
        let mut open = self.logs.remove(&id).ok_or(StorageError::UnknownPartition)?;
        self.jobs.cancel(id);
        self.lazy.remove(&id);
        self.cache.forget(id);
        self.key_cache.forget(id);
        self.forget(&open.name)?;
        if let Some(directory) = open.log.delete()? {
            self.retired.add_directory(&**self.data_dir.disk(), directory, open.log.delete_delay_ms());
        }
        Ok(())
    }

    /// A log that is gone leaves no trace in the checkpoints: another one may get its name.
    pub(crate) fn forget(&mut self, name: &LogName) -> Result<(), StorageError> {
        for (file, offsets) in [
            (checkpoints::HIGH_WATERMARK, &mut self.ends),
            (checkpoints::RECOVERY_POINT, &mut self.recovery_points),
            (checkpoints::CLEANED, &mut self.cleaned),
            (checkpoints::HOLES, &mut self.holes),
            (checkpoints::LOG_START, &mut self.log_starts),
        ] {
            let mut without = offsets.clone();
            let is_unsure = file == checkpoints::LOG_START && self.log_starts_unsure;
            if without.remove(name).is_some() || is_unsure {
                checkpoints::write(&**self.data_dir.disk(), file, &without)?;
                // Not before: whoever tries again must write it.
                *offsets = without;
            }
        }
        Ok(())
    }

    /// Appends one whole, validated batch: it gets its offsets, the leader epoch and (where the log's timestamps are
    /// the broker's) the append time, in place, and goes to the file as one write. Its max timestamp must be the
    /// true one already.
    ///
    /// # Errors
    /// See [`AppendError`]; nothing is stored then.
    pub fn append(
        &mut self,
        id: PartitionId,
        batch: BytesMut,
        origin: Origin,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.append_with_keys(id, batch, None, origin, now_ms)
    }

    /// Where the batches are from the one that holds `from` on, below `upper` (a high watermark or last stable
    /// offset), in at most `bytes_max` bytes but for the first batch with `at_least_one`. All out of one segment:
    /// read on from its end for more. Empty at the end of the log.
    pub fn read(
        &mut self,
        id: PartitionId,
        from: Offset,
        bytes_max: u64,
        upper: Offset,
        at_least_one: bool,
    ) -> Result<LogSlice, ReadError> {
        self.readable(id)?.read(from, bytes_max, upper, at_least_one)
    }

    /// The aborted transactions that touch what a slice, read from `from` on and not used up yet, shows: a reader of
    /// committed records must leave their batches out. Ascending by marker; they may have begun before the slice.
    pub fn aborted(
        &mut self,
        id: PartitionId,
        from: Offset,
        slice: &LogSlice,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        self.readable(id)?.aborted(from, slice)
    }

    /// A log's bounds; `None` when it is not open.
    #[must_use]
    pub fn facts(&self, id: PartitionId) -> Option<LogFacts> {
        self.logs.get(&id).map(|open| open.log.facts())
    }

    /// Bytes of record data of every open log.
    #[must_use]
    pub fn sizes(&self) -> Vec<(PartitionId, u64)> {
        self.logs.iter().map(|(id, open)| (*id, open.log.facts().bytes)).collect()
    }

    /// A log's topic and partition, for a message to people; `None` when it is not open.
    #[must_use]
    pub fn name(&self, id: PartitionId) -> Option<(&str, i32)> {
        self.logs.get(&id).map(|open| (open.name.0.as_str(), open.name.1))
    }

    /// The first record whose timestamp is at least `timestamp` ms.
    pub fn offset_for_time(
        &mut self,
        id: PartitionId,
        timestamp: i64,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        self.readable(id)?.offset_for_time(timestamp, inflated_max)
    }

    /// The first record that bears the highest timestamp of the log.
    pub fn max_timestamp(&mut self, id: PartitionId) -> Result<Option<TimedOffset>, ReadError> {
        let inflated_max = self.options.inflated_bytes_max;
        self.readable(id)?.max_timestamp(inflated_max)
    }

    /// The largest leader epoch not above `epoch`, with the offset behind its last record; `None` for an epoch that
    /// is above the broker's (KIP-279).
    pub fn epoch_end_offset(
        &self,
        id: PartitionId,
        epoch: i32,
    ) -> Result<Option<(i32, Offset)>, StorageError> {
        Ok(self.log(id)?.epoch_end(epoch))
    }

    /// The leader epoch of the record at `offset`; at the end that of what is appended next.
    pub fn leader_epoch_at(&self, id: PartitionId, offset: Offset) -> Result<i32, StorageError> {
        Ok(self.log(id)?.epoch_at(offset))
    }

    /// Deletes the records below `to` for good; at or below the log start it does nothing. The log start afterwards,
    /// which survives a power cut when this returns.
    pub fn delete_records(&mut self, id: PartitionId, to: Offset) -> Result<Offset, DeleteError> {
        let log = self.log(id)?;
        if !log.check_start(to)? {
            let start = log.facts().log_start;
            // Where retention had no room to write it down, it is not yet durable.
            self.write_log_starts(&[])?;
            return Ok(start);
        }
        self.write_log_starts(&[(id, to)])?;
        self.log_mut(id)?.move_start(to);
        let delay_ms = self.log(id)?.delete_delay_ms();
        self.retire_below_start(id, delay_ms)?;
        Ok(to)
    }

    /// Deletes what is past its time or beyond its log's size, by whole segments, and forgets producers that were
    /// silent for too long. The logs whose start moved.
    pub fn enforce_retention(&mut self, now_ms: i64) -> Result<Vec<PartitionId>, StorageError> {
        let expiry_ms = self.options.producer_expiry_ms;
        let mut moved = Vec::new();
        for (id, open) in &mut self.logs {
            open.log.expire_producers(now_ms, expiry_ms);
            match open.log.retained_from(now_ms) {
                Ok(start) => moved.extend(start.map(|start| (*id, start))),
                Err(error) => tracing::error!(log = open.log.directory(), %error, "retention failed"),
            }
        }
        // Where the disk is full they are not written, and must not be: the space comes from what is deleted now, and
        // the first segment that is left says where the log starts.
        let mut needs_room = false;
        if !moved.is_empty()
            && let Err(error) = self.write_log_starts(&moved)
        {
            tracing::error!(%error, "log starts are not written; deleting what is due all the same");
            needs_room = true;
        }
        for (id, start) in &moved {
            self.log_mut(*id)?.move_start(*start);
            let delay_ms = if needs_room { 0 } else { self.log(*id)?.delete_delay_ms() };
            self.retire_below_start(*id, delay_ms)?;
        }
        let mut moved: Vec<PartitionId> = moved.into_iter().map(|(id, _)| id).collect();
        moved.sort_unstable();
        Ok(moved)
    }

    /// What [`Logs::enforce_retention`] takes next of a log, and when.
    ///
    /// # Errors
    /// Where the partition is not open, or an index cannot be read.
    pub fn next_retention(
        &mut self,
        id: PartitionId,
        now_ms: i64,
    ) -> Result<Option<RetentionDue>, StorageError> {
        self.log_mut(id)?.next_retention(now_ms)
    }

    fn retire_below_start(&mut self, id: PartitionId, delay_ms: i64) -> Result<(), StorageError> {
        let log = self.log_mut(id)?;
        let removed = log.remove_segments_below_start();
        let retired = log.take_retired();
        self.retired.add_files(&**self.data_dir.disk(), retired, delay_ms);
        removed
    }

    /// Everything written to the partition so far, its event logs included, as one job for any thread; `None` when
    /// all of it is durable or on its way by an earlier job.
    pub fn sync_job(&mut self, id: PartitionId) -> Result<Option<SyncJob>, StorageError> {
        let disk = Arc::clone(self.disk());
        let open = self.logs.get_mut(&id).ok_or(StorageError::UnknownPartition)?;
        let taken = open.log.take_dirty()?;
        let (end, mut dirty) = taken.unwrap_or_else(|| (open.log.facts().end, Dirty::default()));
        let events = open.take_dirty_events(&mut dirty);
        if dirty.is_clean() {
            return Ok(None);
        }
        let number = open.log.sync_begins(end);
        Ok(Some(SyncJob { partition: id, number, end, dirty, disk, events }))
    }

    /// Whether a log is synced when somebody waits for it; else its policy leaves that to [`Logs::due_flushes`].
    pub fn syncs_when_asked(&self, id: PartitionId) -> Result<bool, StorageError> {
        let log = self.log(id)?;
        if log.is_poisoned() {
            return Err(StorageError::Poisoned);
        }
        Ok(log.config().flush == FlushPolicy::Acks)
    }

    /// Whether any log's policy syncs it without being asked.
    #[must_use]
    pub fn has_lazy_flushes(&self) -> bool {
        !self.lazy.is_empty()
    }

    /// The logs whose policy wants them synced now, although nobody waits for that.
    pub fn due_flushes(&self, now_ms: i64) -> impl Iterator<Item = PartitionId> {
        let is_due =
            move |id: &&PartitionId| self.logs.get(id).is_some_and(|open| open.log.is_flush_due(now_ms));
        self.lazy.iter().filter(is_due).copied()
    }

    /// Takes a job's result back: up to where the log is durable now, which what an earlier job has not reached yet is
    /// not. A failed one poisons the log: nothing may be
    /// appended to it, or to its event logs, before a restart.
    pub fn sync_done(&mut self, result: SyncResult) -> Result<Offset, StorageError> {
        let open = self.logs.get_mut(&result.partition).ok_or(StorageError::UnknownPartition)?;
        // After a failed sync of the same file a good one says nothing.
        if open.log.is_poisoned() {
            return Err(StorageError::Poisoned);
        }
        if let Err(error) = result.result {
            tracing::error!(log = open.log.directory(), %error, "sync failed, log is closed for writing; check the disk, make room where it is full, then restart");
            open.log.poison();
            self.data_dir.note_failed_sync();
            return Err(StorageError::Poisoned);
        }
        for (name, generation) in result.events {
            if let Some(log) = open.events.get_mut(&name) {
                log.synced(generation);
            }
        }
        Ok(open.log.sync_ended(result.number))
    }

    /// Writes the root checkpoints, so that a recovery need not look at what is synced already, and closes the files
    /// of logs that nobody used since the last time. To be called now and then (Kafka: once a minute).
    pub fn checkpoint(&mut self) -> Result<(), StorageError> {
        let mut ends = self.ends.clone();
        for open in self.logs.values_mut() {
            open.log.rest();
            let facts = open.log.facts();
            self.recovery_points.insert(open.name.clone(), facts.synced);
            ends.insert(open.name.clone(), facts.end);
        }
        checkpoints::write(&**self.data_dir.disk(), checkpoints::RECOVERY_POINT, &self.recovery_points)?;
        self.write_ends(ends)?;
        self.write_log_starts(&[])
    }

    /// Closes everything in order: what is written is synced, checkpoints and producer states are on disk, and the
    /// marker says so. A log that a failed sync has poisoned keeps the marker away: the next start recovers.
    pub fn close(mut self) -> Result<(), StorageError> {
        let mut dirty: BTreeMap<PartitionId, Dirty> = BTreeMap::new();
        let mut events = Vec::new();
        let mut poisoned = false;
        for (id, open) in &mut self.logs {
            if open.log.is_poisoned() {
                poisoned = true;
            } else {
                let mut files = open.log.finish()?;
                events.extend(open.take_dirty_events(&mut files).into_iter().map(|taken| (*id, taken)));
                dirty.insert(*id, files);
            }
        }
        let synced = flush::sync_many(&**self.disk(), &dirty.values().collect::<Vec<_>>());
        if synced.is_err() {
            self.data_dir.note_failed_sync();
        }
        synced.doing("sync", "the logs")?;
        for id in dirty.keys() {
            let log = self.log_mut(*id)?;
            log.synced(log.facts().end);
        }
        for (id, (name, generation)) in events {
            if let Some(log) = self.logs.get_mut(&id).and_then(|open| open.events.get_mut(&name)) {
                log.synced(generation);
            }
        }
        self.checkpoint()?;
        if poisoned {
            return Err(StorageError::Poisoned);
        }
        let lists = self.logs.values().map(|open| (&open.name, open.log.noted_segments()));
        if let Err(error) = segment_list::write(&**self.disk(), self.boot.boot, lists) {
            tracing::warn!(%error, "the list of segments is not written: the next start does not miss those that go");
        }
        self.data_dir.mark_clean(self.boot.boot)
    }

    fn log(&self, id: PartitionId) -> Result<&PartitionLog, StorageError> {
        self.logs.get(&id).map(|open| &open.log).ok_or(StorageError::UnknownPartition)
    }

    pub(crate) fn log_mut(&mut self, id: PartitionId) -> Result<&mut PartitionLog, StorageError> {
        self.logs.get_mut(&id).map(|open| &mut open.log).ok_or(StorageError::UnknownPartition)
    }

    pub(crate) fn readable(&mut self, id: PartitionId) -> Result<&mut PartitionLog, ReadError> {
        self.logs.get_mut(&id).map(|open| &mut open.log).ok_or(ReadError::UnknownPartition)
    }
}

impl OpenLog {
    /// Adds the event logs to what a sync must reach: the name and generation of each.
    fn take_dirty_events(&mut self, dirty: &mut Dirty) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        for (name, log) in &mut self.events {
            let files = log.take_dirty();
            if !files.is_empty() {
                dirty.files.extend(files);
                taken.push((*name, log.generation()));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests;
