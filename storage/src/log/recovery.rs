//! Opening a log: after an orderly stop with next to no reading, after any other by checking what was written since
//! the recovery point (Kafka's `LogLoader`).
//!
//! The log ends at its last valid batch; what follows is cut off, and the cut is synced before anything is
//! appended, so that bytes of an earlier life never come back behind new ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use records::ids::{Offset, PartitionId, TopicId};

use super::lost::{Cut, TakenOut};
use super::{Dirty, PARTITION_METADATA, PartitionLog, swap};
use crate::data_dir::from_base64;
use crate::disk::{Disk, DiskFile, Entry, join};
use crate::error::{IoContext, StorageError};
use crate::event_log;
use crate::index::txn;
use crate::key_index;
use crate::leader_epochs::LeaderEpochs;
use crate::options::{LogConfig, RECOVERY_WINDOW_BYTES, SYNC_FILES_MAX};
use crate::producer_state::{ProducerState, SIDECAR, SNAPSHOT};
use crate::segment::{Found, Segment, UNFINISHED, base_of};
use crate::segment_list::Noted;
use crate::walk::{self, EpochBound};

/// How a log was left, as the checkpoints say.
#[derive(Clone, Debug)]
pub(crate) struct OpenAs {
    /// Whether the process before closed everything in order.
    pub(crate) clean: bool,
    /// Everything below is synced, indexes included.
    pub(crate) recovery_point: Option<Offset>,
    /// Everything below was deleted.
    pub(crate) log_start: Option<Offset>,
    /// Compaction may have left holes below.
    pub(crate) cleaned: Option<Offset>,
    /// Whether the directory tells of which topic it is.
    pub(crate) names_topic: bool,
    /// Where the log ended.
    pub(crate) end: Option<Offset>,
    /// Its segments, where that is known.
    pub(crate) segments: Option<Vec<Noted>>,
    /// The broker's epoch.
    pub(crate) leader_epoch: i32,
    /// A sync failed in a life before: what is recovered must be written once more, or a later sync would say that it
    /// is on the disk while it is in memory only.
    pub(crate) rewrite: bool,
}

/// What was checked when a log was opened.
#[derive(Clone, Copy, Debug)]
struct Checked {
    /// The base of the segment in which it begins.
    segment: Offset,
    /// The first offset.
    from: Offset,
}

impl PartitionLog {
    /// Opens what is on the disk; nothing there is an empty log.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        id: PartitionId,
        directory: String,
        config: LogConfig,
        left: &OpenAs,
    ) -> Result<Self, StorageError> {
        let log_start = left.log_start.unwrap_or(Offset::ZERO);
        let mut log = Self {
            id,
            directory,
            disk: Arc::clone(disk),
            config,
            leader_epoch: left.leader_epoch,
            segments: Vec::new(),
            present: false,
            log_start,
            cleaned: left.cleaned.unwrap_or(Offset::ZERO),
            end: log_start,
            synced: log_start,
            producers: ProducerState::default(),
            epochs: LeaderEpochs::default(),
            snapshots: BTreeSet::new(),
            bytes_since_snapshot: 0,
            events: BTreeSet::new(),
            keys: None,
            has_key_files: false,
            recovered_bytes: 0,
            lost: None,
            missing: Vec::new(),
            gaps: 0,
            dirty: Dirty::default(),
            syncs: VecDeque::new(),
            unsynced_since_ms: None,
            bytes: 0,
            poisoned: false,
            cursors: VecDeque::new(),
            opened: VecDeque::new(),
            changed: false,
            touched: false,
            retired: Vec::new(),
        };
        let mut entries = match disk.list(&log.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                log.end = Offset::ZERO;
                log.check_log_start(left)?;
                log.end = log_start;
                log.tell_lost(left, TakenOut::default());
                return Ok(log);
            }
            Err(error) => return Err(error).doing("list", &log.directory),
        };
        log.present = true;
        if !left.names_topic {
            log.write_partition_metadata()?;
        }
        if swap::settle(&**disk, &log.directory, &entries)? {
            entries = disk.list(&log.directory).doing("list", &log.directory)?;
        }
        if !left.clean {
            // The process before may have died between making the names and syncing them.
            log.dirty.directories.extend([String::new(), log.directory.clone()]);
            log.secure_events(&entries, left.rewrite)?;
        }
        log.load(&entries, left)?;
        log.rest();
        Ok(log)
    }

    /// Event logs that an unclean stop left may be in memory only, and nobody may open them for long.
    fn secure_events(&mut self, entries: &[Entry], rewrite: bool) -> Result<(), StorageError> {
        let is_state = |name: &str| event_log::name_of(name).or(event_log::name_of_pages(name)).is_some();
        for entry in entries.iter().filter(|entry| is_state(&entry.name)) {
            let path = join(&self.directory, &entry.name);
            let file = self.disk.open(&path).doing("open", &path)?;
            if rewrite {
                write_again(&*file, entry.len).doing("write again", &path)?;
            } else {
                self.sync_with_next([file])?;
            }
        }
        Ok(())
    }

    fn load(&mut self, entries: &[Entry], left: &OpenAs) -> Result<(), StorageError> {
        let orphans = self.collect(entries)?;
        match &left.segments {
            Some(segments) => self.compare_segments(segments),
            None => self.note_orphans(&orphans),
        }
        let recovered_from = if left.clean { self.resume(left)? } else { None };
        self.changed = !left.clean || recovered_from.is_some();
        let is_recovered = self.changed;
        self.epochs = LeaderEpochs::read(&*self.disk, &self.directory)?;
        let is_unreadable = self.epochs.is_dirty();
        let mut taken = TakenOut::default();
        let checked = match (left.clean, recovered_from) {
            (true, None) => Checked { segment: self.end, from: self.end },
            // Its files do not fit together: what was synced in it is not to be relied on.
            (true, Some(from)) => self.recover(from, Offset::ZERO, left, &mut taken)?,
            (false, _) => {
                let point = left.recovery_point.unwrap_or(Offset::ZERO);
                self.recover(self.segment_below(point), point, left, &mut taken)?
            }
        };
        let epochs_from = checked.from;
        self.apply_log_start(left, &mut taken)?;
        self.tell_lost(left, taken);
        let is_cut = self.epochs.truncate_to(self.end);
        self.cut_snapshots()?;
        if is_recovered {
            let unsynced_from = left.recovery_point.unwrap_or(Offset::ZERO).max(epochs_from);
            self.secure_snapshots(unsynced_from, left.rewrite)?;
            self.restore_snapshots(unsynced_from)?;
        }
        // Nothing says of the indexes of what was recovered that they are whole.
        let stale = self.stale_txn_indexes(checked.segment)?;
        let aborted_from = stale
            .first()
            .map_or(self.end, |base| if *base == checked.segment { checked.from } else { *base });
        // Where there is no record there is no epoch to find, however much lies below the log start.
        let is_unknown = self.epochs.latest().is_none() && self.log_start < self.end;
        let epochs_from = if is_unknown { Offset::ZERO } else { epochs_from };
        self.find_epochs_below()?;
        let producers_from = self.rebuild_state(epochs_from, &stale, aborted_from)?;
        let active = self.segments.last().map_or(self.end, Segment::base);
        if is_recovered && producers_from < active {
            // A snapshot was lost: without another one each recovery would read from there on again.
            self.write_snapshot();
        }
        // Not before: they may tell what no snapshot does.
        self.remove_segments_below_start()?;
        self.epochs.truncate_from(self.log_start);
        let is_counted_on = is_unknown && self.log_start < self.synced;
        let is_missing =
            is_counted_on && self.epochs.latest().is_some_and(|found| found <= self.leader_epoch);
        if is_cut || is_unreadable || is_missing {
            self.write_epochs()?;
        }
        match self.epochs.latest() {
            Some(found) if found > self.leader_epoch => Err(StorageError::EpochAhead {
                log: self.directory.clone(),
                found,
                current: self.leader_epoch,
            }),
            _ => Ok(()),
        }
    }

    /// Where a log start was lost, the epochs that were forgotten with what lay below it are looked up again.
    fn find_epochs_below(&mut self) -> Result<(), StorageError> {
        let Some(first) = self.epochs.first_start().filter(|first| *first > self.log_start) else {
            return Ok(());
        };
        let mut below = LeaderEpochs::default();
        self.replay(self.log_start, first, |_, header, _| below.assign(header.leader_epoch, header.base))?;
        self.epochs.put_below(below);
        Ok(())
    }

    /// Sorts the directory's files; what a crash left half made is removed. No crash leaves an index without a log between
    /// two segments where compaction has not been: the bases of those.
    fn collect(&mut self, entries: &[Entry]) -> Result<BTreeSet<Offset>, StorageError> {
        let mut found: BTreeMap<Offset, Found> = BTreeMap::new();
        let mut orphans = BTreeSet::new();
        for entry in entries {
            if let Some(base) = base_of(&entry.name, ".log") {
                found.entry(base).or_default().log = entry.len;
            }
        }
        for entry in entries {
            let name = entry.name.as_str();
            let suffixes = [".index", ".timeindex", txn::SUFFIX, key_index::SUFFIX];
            let index = suffixes.into_iter().find_map(|suffix| base_of(name, suffix));
            let orphan = index.filter(|base| !found.contains_key(base));
            let from = found.keys().next().copied().max(Some(self.cleaned)).max(Some(self.log_start));
            let is_inside = |base| Some(base) >= from && found.keys().next_back() > Some(&base);
            if let Some(base) = orphan.filter(|base| is_inside(*base)) {
                orphans.insert(base);
                continue;
            }
            if orphan.is_some() || name.ends_with(UNFINISHED) {
                let path = join(&self.directory, name);
                self.disk.remove_file(&path).doing("remove", &path)?;
            } else if let Some(base) = base_of(name, ".index") {
                found.entry(base).or_default().index = Some(entry.len);
            } else if let Some(base) = base_of(name, ".timeindex") {
                found.entry(base).or_default().time_index = Some(entry.len);
            } else if let Some(base) = base_of(name, txn::SUFFIX) {
                found.entry(base).or_default().txn_index = Some(entry.len);
            } else if let Some(at) = base_of(name, SNAPSHOT) {
                self.snapshots.insert(at);
            } else if base_of(name, key_index::SUFFIX).is_some() {
                self.has_key_files = true;
            } else if let Some(group) = event_log::name_of(name) {
                self.events.insert(group);
            }
        }
        for entry in entries {
            let of_nothing = base_of(&entry.name, SIDECAR).is_some_and(|at| !self.snapshots.contains(&at))
                || event_log::name_of_pages(&entry.name).is_some_and(|group| !self.events.contains(&group));
            if of_nothing {
                let path = join(&self.directory, &entry.name);
                self.disk.remove_file(&path).doing("remove", &path)?;
            }
        }
        for (base, found) in found {
            self.segments.push(Segment::existing(&self.disk, &self.directory, base, found));
        }
        Ok(orphans)
    }

    /// Takes up a log that was closed in order. The index of the segment that must be recovered all the same, because
    /// its files do not fit together.
    fn resume(&mut self, left: &OpenAs) -> Result<Option<usize>, StorageError> {
        let Some(index) = self.segments.len().checked_sub(1) else { return Ok(None) };
        self.rebuild_indexes(index)?;
        let cleaned = self.cleaned;
        let active = &mut self.segments[index];
        let next =
            if active.indexes_fit() { active.resume(cleaned).doing("read", &self.directory)? } else { None };
        match next {
            Some(next) if left.end.is_none_or(|end| end == next) => {
                self.end = next;
                self.synced = next;
                Ok(None)
            }
            _ => {
                tracing::warn!(
                    log = self.directory,
                    "log is not as it was closed, recovering its last segment"
                );
                Ok(Some(index))
            }
        }
    }

    /// Rebuilds what is missing or cut short among the indexes of the first `count` segments.
    fn rebuild_indexes(&mut self, count: usize) -> Result<(), StorageError> {
        let interval = self.config.index_interval_bytes;
        for index in 0..count {
            let segment = &mut self.segments[index];
            if segment.indexes_fit() {
                continue;
            }
            tracing::warn!(log = segment.log_path(), "index does not fit its log, rebuilding it");
            // They lie below the recovery point: the next start will not look at them again.
            segment.replace_indexes(interval).doing("rebuild an index of", &self.directory)?;
            segment.close();
            self.dirty.directories.insert(self.directory.clone());
        }
        Ok(())
    }

    /// Leaves files to the next sync, but no more than a few: they stay open until then.
    pub(super) fn sync_with_next(
        &mut self,
        files: impl IntoIterator<Item = Arc<dyn DiskFile>>,
    ) -> Result<(), StorageError> {
        for file in files {
            if self.dirty.files.len() < SYNC_FILES_MAX {
                self.dirty.files.push(file);
            } else {
                file.sync_data().doing("sync", &self.directory)?;
            }
        }
        Ok(())
    }

    /// The segment that holds the last offset below the recovery point: of a segment that ends just there the log is
    /// synced, but its indexes may not be.
    fn segment_below(&self, point: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base() < point).saturating_sub(1)
    }

    /// Which leader epochs batches can bear that nothing vouches for. No checksum covers the epoch: behind the recovery
    /// point one above the broker's is a torn write. But where the log's own file, written before anything counts as
    /// synced, tells of such epochs, the broker's metadata is older than the log, which is refused and never cut.
    fn epoch_bound(&self, left: &OpenAs) -> EpochBound {
        let is_older = self.epochs.latest().is_some_and(|latest| latest > left.leader_epoch);
        EpochBound {
            from: left.recovery_point.unwrap_or(Offset::ZERO),
            max: if is_older { i32::MAX } else { left.leader_epoch },
        }
    }

    /// Checks every batch from `point` on, which lies in segment `from`, rebuilds the indexes of what is checked, and cuts
    /// at the first bytes that are no valid batch; whole segments behind them are taken out. Where it cannot be told where
    /// `point` is, or all is to be written again, the whole segment is checked.
    fn recover(
        &mut self,
        from: usize,
        point: Offset,
        left: &OpenAs,
        taken: &mut TakenOut,
    ) -> Result<Checked, StorageError> {
        let interval = self.config.index_interval_bytes;
        let cleaned = self.cleaned;
        let epochs = self.epoch_bound(left);
        self.rebuild_indexes(from)?;
        let mut resumed = None;
        if !left.rewrite
            && let Some(segment) = self.segments.get_mut(from)
        {
            resumed = segment.resume_at(point, interval, cleaned).doing("read", &self.directory)?;
        }
        let segment = self.segments.get(from).map_or(self.end, Segment::base);
        let checked_from = if resumed.is_some() { point } else { segment };
        self.synced = checked_from;
        let mut end = checked_from;
        let mut kept = from;
        let mut cut = None;
        for index in from..self.segments.len() {
            let behind = self.segments.get(index + 1).map(Segment::base);
            let segment = &mut self.segments[index];
            // What is deleted may be gone in part: that is no gap.
            let joins = segment.base() <= self.log_start || walk::follows(segment.base(), end, cleaned);
            if index > from && !joins {
                tracing::error!(log = self.directory, %end, next = %segment.base(), "segments do not join, cut");
                break;
            }
            let len = segment.size();
            let position = resumed.take().unwrap_or(0);
            self.recovered_bytes += len - position;
            let rebuilt = match position {
                0 => segment.rebuild(interval, RECOVERY_WINDOW_BYTES, Some(epochs), cleaned),
                _ => segment.rebuild_from(point, position, interval, epochs, cleaned),
            };
            let (next, broken) = rebuilt.doing("recover", &self.directory)?;
            end = next;
            kept = index + 1;
            let indexes = segment.index_files().doing("write", &self.directory)?;
            let file = Arc::clone(segment.log_file().doing("open", &self.directory)?);
            segment.close();
            if left.rewrite {
                write_again(&*file, segment.size()).doing("write again", &self.directory)?;
            }
            if let Some(reason) = broken {
                let (path, position) = (segment.log_path().to_owned(), segment.size());
                tracing::warn!(log = path, position, lost = len - position, from = %end, reason, "log cut");
                self.sync_with_next(indexes)?;
                if behind != Some(end) {
                    cut = Some(Cut { file, path, position, len });
                    break;
                }
                // Behind the segment's last batch, so that nothing of the log is missing.
                file.set_len(position).doing("cut", &self.directory)?;
                file.sync_data().doing("sync", &self.directory)?;
                continue;
            }
            // What was written before a kill may still be in memory only.
            self.sync_with_next(indexes.into_iter().chain([file]))?;
        }
        if cut.is_some() || kept < self.segments.len() {
            taken.join(self.take_out(kept, cut)?);
        }
        self.end = end;
        Ok(Checked { segment, from: checked_from })
    }

    /// Bytes that were checked when the log was opened.
    pub(crate) fn recovered_bytes(&self) -> u64 {
        self.recovered_bytes
    }

    /// Applies the log start that DeleteRecords or retention left; segments below it go later.
    fn apply_log_start(&mut self, left: &OpenAs, taken: &mut TakenOut) -> Result<(), StorageError> {
        self.check_log_start(left)?;
        let first = self.segments.first().map_or(self.end, Segment::base);
        self.log_start = left.log_start.unwrap_or(first).max(first);
        if !self.segments.is_empty() && left.log_start.unwrap_or(Offset::ZERO) < first {
            // Retention without room to write it down leaves it so, and so does the loss of the checkpoint or of files.
            tracing::warn!(log = self.directory, %first, "nothing tells that the offsets below were deleted");
        }
        if self.log_start > self.end {
            // Everything that was kept is lost: the log goes on, empty, where it would have begun.
            if left.end.is_none() {
                // Nothing tells that what is there was deleted.
                taken.join(self.take_out(0, None)?);
            }
            for mut segment in self.segments.drain(..) {
                segment.remove().doing("remove a segment of", &self.directory)?;
            }
            self.disk.sync_dir(&self.directory).doing("sync", &self.directory)?;
            self.end = self.log_start;
        }
        self.bytes = self.segments.iter().map(Segment::size).sum();
        Ok(())
    }

    /// Snapshots beyond the end speak of records that are gone; none of them may come back, not even one that a start
    /// removed which died before the removal was durable.
    fn cut_snapshots(&mut self) -> Result<(), StorageError> {
        let beyond: Vec<Offset> = self.snapshots.range(self.end.next()..).copied().collect();
        if !beyond.is_empty() || self.changed {
            beyond.into_iter().for_each(|at| self.remove_snapshot(at));
            self.disk.sync_dir(&self.directory).doing("sync", &self.directory)?;
        }
        Ok(())
    }
}

/// Writes the first `len` bytes of a file once more and syncs them.
///
/// After a failed sync the system may take what it holds in memory for written: it reads well and is lost with the
/// power, and no later sync says so. Writing puts it on its way to the disk again.
pub(crate) fn write_again(file: &dyn DiskFile, len: u64) -> io::Result<()> {
    let window = RECOVERY_WINDOW_BYTES as u64;
    let mut at = 0;
    while at < len {
        let mut bytes = vec![0; window.min(len - at) as usize];
        file.read_exact_at(&mut bytes, at)?;
        file.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
    }
    file.sync_data()
}

/// The topic id in a directory's `partition.metadata`.
pub(crate) fn stored_topic_id(disk: &dyn Disk, directory: &str) -> Result<Option<TopicId>, StorageError> {
    let path = join(directory, PARTITION_METADATA);
    let bytes = disk.read(&path).doing("read", &path)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let id =
        text.lines().find_map(|line| line.strip_prefix("topic_id: ")).map(str::trim).and_then(from_base64);
    Ok(id.map(TopicId))
}
