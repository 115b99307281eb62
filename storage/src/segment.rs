//! One segment: a log file, its offset index, its time index, and the index of its aborted transactions.
//!
//! Invariants: `size` bytes of the log file are whole batches, ascending; what stands behind them is garbage of a
//! failed write that was not cut off yet. Every index entry names a batch below `size`.

mod aborted;
mod locate;

use std::io;
use std::sync::Arc;

use records::ids::Offset;
use records::key_hash;

use crate::batch_header::BatchHeader;
use crate::disk::{Disk, DiskFile, join};
use crate::index::{OffsetIndex, TimeIndex, TxnIndex, offset, time, txn};
use crate::key_index;
use crate::lazy_file::LazyFile;
use crate::options::{LogConfig, RECOVERY_WINDOW_BYTES, WALK_WINDOW_BYTES};
use crate::walk::{EpochBound, Step, Walk};

pub(crate) use locate::Place;

/// Suffixes of a segment's files: what a compacted segment is swapped in by. The log is the last: where it stands, the
/// others do. There need not be a `.txnindex`.
pub(crate) const FILES: [&str; 4] = [".index", ".timeindex", txn::SUFFIX, ".log"];
/// Suffixes of what may stand beside a segment and can be made again from it: it goes with the file that it speaks of.
pub(crate) const SIDECARS: [&str; 1] = [key_index::SUFFIX];

/// Suffix of what is not written to its end; a start removes it.
pub(crate) const UNFINISHED: &str = ".tmp";

/// The files of one segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: Offset,
    size: u64,
    disk: Arc<dyn Disk>,
    directory: String,
    log: LazyFile,
    offsets: OffsetIndex,
    times: TimeIndex,
    txns: TxnIndex,
    /// The key index, which goes with the segment; what is in it is the key index's affair.
    keys: LazyFile,
    largest: Option<Largest>,
    since_index: u64,
    first_timestamp: Option<i64>,
    since_ms: Option<i64>,
    has_records: Option<bool>,
    indexes_fit: bool,
    /// Whether the transaction index that was found consists of whole entries.
    txn_index_whole: bool,
}

/// The highest timestamp of a segment, and the last offset of the first batch that bears it. -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Largest {
    pub(crate) timestamp: i64,
    pub(crate) last: Offset,
}

/// Lengths in bytes of a segment's files as they were found on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) log: u64,
    pub(crate) index: Option<u64>,
    pub(crate) time_index: Option<u64>,
    pub(crate) txn_index: Option<u64>,
}

impl Found {
    /// Whether the index files can be what belongs to the log file; their content is another question.
    fn indexes_fit(&self) -> bool {
        self.index.is_some_and(|len| len.is_multiple_of(offset::ENTRY_BYTES as u64))
            && self.time_index.is_some_and(|len| len.is_multiple_of(time::ENTRY_BYTES as u64))
    }
}

/// A file of a segment: 20 digits of base offset, then the suffix (Kafka's `LogFileUtils.filenamePrefixFromOffset`).
pub(crate) fn file_name(base: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base.0)
}

/// The base offset in a file name with that suffix.
pub(crate) fn base_of(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok().map(Offset))
        .flatten()
}

impl Segment {
    /// A segment that is on the disk already. Its size is taken as it is: recovery corrects it.
    pub(crate) fn existing(disk: &Arc<dyn Disk>, directory: &str, base: Offset, found: Found) -> Self {
        Self::named(disk, directory, base, found, "")
    }

    fn named(disk: &Arc<dyn Disk>, directory: &str, base: Offset, found: Found, behind: &str) -> Self {
        let file =
            |suffix| LazyFile::new(disk, join(directory, &format!("{}{behind}", file_name(base, suffix))));
        Self {
            base,
            size: found.log,
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            log: file(".log"),
            offsets: OffsetIndex::new(base, file(".index"), found.index.unwrap_or(0)),
            times: TimeIndex::new(base, file(".timeindex"), found.time_index.unwrap_or(0)),
            txns: TxnIndex::new(file(txn::SUFFIX), found.txn_index),
            keys: file(key_index::SUFFIX),
            largest: None,
            since_index: 0,
            first_timestamp: None,
            since_ms: None,
            has_records: None,
            indexes_fit: found.indexes_fit(),
            txn_index_whole: found.txn_index.is_none_or(|len| len.is_multiple_of(txn::ENTRY_BYTES as u64)),
        }
    }

    /// A new, empty segment. The caller syncs the directory before anything in it counts as durable.
    pub(crate) fn create(disk: &Arc<dyn Disk>, directory: &str, base: Offset) -> io::Result<Self> {
        Self::create_named(disk, directory, base, "")
    }

    /// As [`Segment::create`], under names that end in `behind`: no part of the log yet.
    pub(crate) fn create_named(
        disk: &Arc<dyn Disk>,
        directory: &str,
        base: Offset,
        behind: &str,
    ) -> io::Result<Self> {
        let mut segment = Self::named(disk, directory, base, Found::default(), behind);
        segment.offsets.clear()?;
        segment.times.clear()?;
        segment.log.create()?;
        segment.largest = Some(Largest { timestamp: -1, last: base });
        Ok(segment)
    }

    pub(crate) fn base(&self) -> Offset {
        self.base
    }

    /// Whether the index files that were found can belong to the log file, by their lengths.
    pub(crate) fn indexes_fit(&self) -> bool {
        self.indexes_fit
    }

    /// Has indexes made anew that are not as long as they were left.
    pub(crate) fn compare_indexes(&mut self, left: &Found) {
        let found = self.found();
        self.indexes_fit &= (found.index, found.time_index) == (left.index, left.time_index);
        self.txn_index_whole &= found.txn_index.unwrap_or(0) == left.txn_index.unwrap_or(0);
    }

    /// Bytes of whole batches.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The log file.
    pub(crate) fn log_file(&mut self) -> io::Result<&Arc<dyn DiskFile>> {
        self.log.get()
    }

    pub(crate) fn log_path(&self) -> &str {
        self.log.path()
    }

    /// Lengths in bytes of the files, everything flushed.
    pub(crate) fn found(&self) -> Found {
        Found {
            log: self.size,
            index: Some(self.offsets.bytes()),
            time_index: Some(self.times.bytes()),
            txn_index: self.txns.bytes(),
        }
    }

    /// Whether a batch of `bytes` must go to a new segment (Kafka's `LogSegment.shouldRoll`).
    pub(crate) fn must_roll(
        &mut self,
        config: &LogConfig,
        bytes: u64,
        header: &BatchHeader,
        now_ms: i64,
    ) -> io::Result<bool> {
        if self.size == 0 {
            return Ok(header.last() - self.base > i64::from(i32::MAX));
        }
        let index_bytes_max = config.segment_index_bytes;
        Ok(self.size + bytes > config.segment_limit()
            || u64::from(self.offsets.count() + 1) * offset::ENTRY_BYTES as u64 > index_bytes_max
            || u64::from(self.times.count() + 1) * time::ENTRY_BYTES as u64 > index_bytes_max
            || header.last() - self.base > i64::from(i32::MAX)
            || self.age_ms(header.max_timestamp, now_ms)? > config.segment_age_ms() - self.jitter_ms(config))
    }

    /// By how much earlier this segment is too old: any number below the bound, and always the same one.
    fn jitter_ms(&self, config: &LogConfig) -> i64 {
        match config.segment_jitter_ms.min(config.segment_age_ms()) {
            bound @ 1.. => {
                let name = format!("{}/{}", self.directory, self.base);
                (key_hash(name.as_bytes()).0 % bound.unsigned_abs()) as i64
            }
            _ => 0,
        }
    }

    /// How long the first record has been here: by record time where there is one, else by the clock.
    fn age_ms(&mut self, timestamp: i64, now_ms: i64) -> io::Result<i64> {
        let Some(first) = self.first_timestamp()? else { return Ok(0) };
        Ok(if first >= 0 { timestamp.saturating_sub(first) } else { self.held_ms(now_ms) })
    }

    /// The highest timestamp of the first batch, -1 where it has none; `None` of a segment without batches.
    pub(crate) fn first_timestamp(&mut self) -> io::Result<Option<i64>> {
        if self.first_timestamp.is_none() {
            let mut walk = self.walk(0, WALK_WINDOW_BYTES)?;
            if let Step::Batch(header, _) = walk.step()? {
                self.first_timestamp = Some(header.max_timestamp);
            }
        }
        Ok(self.first_timestamp)
    }

    /// Whether there is any record: compaction leaves segments that have none.
    pub(crate) fn has_records(&mut self) -> io::Result<bool> {
        if let Some(known) = self.has_records {
            return Ok(known);
        }
        let mut walk = self.walk(0, WALK_WINDOW_BYTES)?;
        let found = loop {
            match walk.step()? {
                Step::Batch(header, _) if header.is_emptied() => {}
                Step::Batch(..) | Step::Broken(_) => break true,
                Step::End => break false,
            }
        };
        self.has_records = found.then_some(true);
        Ok(found)
    }

    /// How long this process has known the segment, counted from the first time that somebody asked.
    pub(crate) fn held_ms(&mut self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(*self.since_ms.get_or_insert(now_ms))
    }

    /// Writes a stamped batch behind the last one, as one write. After an error the file must be cut back.
    pub(crate) fn append(
        &mut self,
        batch: &[u8],
        header: &BatchHeader,
        config: &LogConfig,
    ) -> io::Result<()> {
        self.log.get()?.write_all_at(batch, self.size)?;
        self.note(header, self.size, config.index_interval_bytes)?;
        self.size += header.size;
        Ok(())
    }

    /// Writes whole batches behind the last one, as one write.
    pub(crate) fn append_all(&mut self, batches: &[u8], interval: u64) -> io::Result<()> {
        self.log.get()?.write_all_at(batches, self.size)?;
        let mut at = 0;
        while at < batches.len() {
            let header = BatchHeader::parse(&batches[at..]).map_err(io::Error::other)?;
            self.note(&header, self.size, interval)?;
            self.size += header.size;
            at += header.size as usize;
        }
        Ok(())
    }

    /// Cuts off what a failed write left behind the last whole batch, for good: a power cut must not bring it back
    /// in the place of what is written there next.
    pub(crate) fn cut_back(&mut self) -> io::Result<()> {
        let size = self.size;
        let file = self.log.get()?;
        file.set_len(size)?;
        file.sync_data()
    }

    /// Enters a batch at `position` into the indexes, where one is due (Kafka's `LogSegment.append`).
    fn note(&mut self, header: &BatchHeader, position: u64, interval: u64) -> io::Result<()> {
        if self.first_timestamp.is_none() && position == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        let largest = self.note_largest(header)?;
        if self.since_index > interval {
            self.offsets.push(header.last(), position);
            self.times.push(largest.timestamp, largest.last)?;
            self.since_index = 0;
        }
        self.since_index += header.size;
        Ok(())
    }

    fn note_largest(&mut self, header: &BatchHeader) -> io::Result<Largest> {
        let mut largest = self.largest()?;
        if header.max_timestamp > largest.timestamp && !header.is_emptied() {
            largest = Largest { timestamp: header.max_timestamp, last: header.last() };
            self.largest = Some(largest);
        }
        Ok(largest)
    }

    /// The highest timestamp: of a segment that was not read yet, the last entry of its time index, unless what stands
    /// last in the log is younger. Then the index has lost its end, and the log is read from where it ends.
    pub(crate) fn largest(&mut self) -> io::Result<Largest> {
        if let Some(largest) = self.largest {
            return Ok(largest);
        }
        let was_open = [self.log.is_open(), self.offsets.is_open()];
        let largest = self.read_largest();
        self.times.close();
        if !was_open[0] {
            self.log.close();
        }
        if !was_open[1] {
            self.offsets.close();
        }
        Ok(*self.largest.insert(largest?))
    }

    fn read_largest(&mut self) -> io::Result<Largest> {
        let (timestamp, last) = self.times.last()?.unwrap_or((-1, self.base));
        let told = Largest { timestamp, last };
        let size = self.size;
        let indexed = self.offsets.last()?.filter(|(_, position)| *position < size);
        let found = self.highest_from(indexed.map_or(0, |(_, position)| position), told)?;
        if found == told {
            return Ok(told);
        }
        tracing::error!(
            log = self.log.path(),
            told_up_to = %last,
            "the time index of a segment has lost its last entries, so its records are read instead; stop the broker and \
             remove that .timeindex, it is made anew"
        );
        let from = if timestamp < 0 { None } else { self.offsets.floor(last)? };
        self.highest_from(from.map_or(0, |(_, position)| position), told)
    }

    /// The highest timestamp of the batches from `position` on, where one is above `highest`.
    fn highest_from(&mut self, position: u64, mut highest: Largest) -> io::Result<Largest> {
        let mut walk = self.walk(position, WALK_WINDOW_BYTES)?;
        while let Step::Batch(header, _) = walk.step()? {
            if header.max_timestamp > highest.timestamp && !header.is_emptied() {
                highest = Largest { timestamp: header.max_timestamp, last: header.last() };
            }
        }
        Ok(highest)
    }

    /// Nothing more will be appended (or nothing for now): the time index gets its last entry, so that it says how
    /// high the timestamps go.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        let largest = self.largest()?;
        self.times.push(largest.timestamp, largest.last)
    }

    /// The index files, flushed, for syncing.
    pub(crate) fn index_files(&mut self) -> io::Result<Vec<Arc<dyn DiskFile>>> {
        let mut files = vec![self.offsets.flushed()?, self.times.flushed()?];
        files.extend(self.txns.flushed()?);
        Ok(files)
    }

    /// Walks over the batches from `position` on.
    pub(crate) fn walk(&mut self, position: u64, window_bytes: usize) -> io::Result<Walk> {
        let size = self.size;
        Ok(Walk::new(self.log.get()?, position, size, window_bytes))
    }

    /// Rebuilds both indexes from the log file, checking it on the way when `checked`. Ends at the first bytes that
    /// are no valid batch: the segment's size is what lies before them, and the reason is given back.
    pub(crate) fn rebuild(
        &mut self,
        interval: u64,
        window_bytes: usize,
        checked: Option<EpochBound>,
        cleaned: Offset,
    ) -> io::Result<(Offset, Option<&'static str>)> {
        self.offsets.clear()?;
        self.times.clear()?;
        self.largest = Some(Largest { timestamp: -1, last: self.base });
        self.first_timestamp = None;
        self.since_index = 0;
        let mut walk = self.walk(0, window_bytes)?.expecting(self.base, cleaned);
        if let Some(epochs) = checked {
            walk = walk.checked().bearing(epochs);
        }
        self.note_all(walk, self.base, interval)
    }

    /// The same for what stands from `position` on, where `offset` is the next one; [`Segment::resume_at`] told.
    pub(crate) fn rebuild_from(
        &mut self,
        offset: Offset,
        position: u64,
        interval: u64,
        epochs: EpochBound,
        cleaned: Offset,
    ) -> io::Result<(Offset, Option<&'static str>)> {
        let walk = self.walk(position, RECOVERY_WINDOW_BYTES)?.expecting(offset, cleaned);
        let walk = walk.checked().bearing(epochs);
        self.note_all(walk, offset, interval)
    }

    fn note_all(
        &mut self,
        mut walk: Walk,
        mut next: Offset,
        interval: u64,
    ) -> io::Result<(Offset, Option<&'static str>)> {
        let broken = loop {
            match walk.step()? {
                Step::Batch(header, position) => {
                    if header.last() - self.base > i64::from(i32::MAX) {
                        break Some("offset is too far from the segment's base");
                    }
                    self.note(&header, position, interval)?;
                    next = header.next();
                }
                Step::End => break None,
                Step::Broken(reason) => break Some(reason),
            }
        };
        self.size = walk.position();
        self.indexes_fit = true;
        self.seal()?;
        Ok((next, broken))
    }

    /// Finds the place of `point`, below which everything was synced, by the indexes alone, and takes up from there: what
    /// they tell of beyond it goes. `None` where they are not to be trusted, and are as they were: since they were not
    /// synced, any part of them may be missing.
    pub(crate) fn resume_at(
        &mut self,
        point: Offset,
        interval: u64,
        cleaned: Offset,
    ) -> io::Result<Option<u64>> {
        // What was aborted is found by reading the whole segment.
        if point <= self.base || !self.indexes_fit || self.has_txn_index() {
            return Ok(None);
        }
        let Some((kept, last_kept)) = self.offsets.sound_below(point, self.size)? else { return Ok(None) };
        let Some((times_kept, times)) = self.times.sound_below(point)? else { return Ok(None) };
        for time in times.into_iter().flatten() {
            if !self.is_of_a_batch(time, cleaned)? {
                return Ok(None);
            }
        }
        let highest = times[1];
        // The indexes may have lost different parts: what the time index does not tell is looked up.
        let from = match highest {
            Some(highest) => self.offsets.floor(highest.last)?,
            None => None,
        };
        let walk = self.walk(from.map_or(0, |(_, position)| position), WALK_WINDOW_BYTES)?;
        let mut walk = match from {
            Some(_) => walk.joining(cleaned),
            None => walk.expecting(self.base, cleaned),
        };
        let mut unseen = [from, last_kept];
        let mut next = self.base;
        while next < point {
            let Step::Batch(header, position) = walk.step()? else { return Ok(None) };
            for entry in &mut unseen {
                if entry.is_some_and(|(last, at)| last == header.last() && at == position) {
                    *entry = None;
                }
            }
            next = header.next();
        }
        if next != point || unseen.iter().any(Option::is_some) {
            return Ok(None);
        }
        let position = walk.position();
        // As after an orderly stop the end is looked at closely: nobody else does.
        let mut end = self.walk(last_kept.map_or(0, |(_, at)| at), WALK_WINDOW_BYTES)?.checked();
        while end.position() < position {
            let Step::Batch(..) = end.step()? else { return Ok(None) };
        }
        self.offsets.truncate(kept)?;
        self.times.truncate(times_kept)?;
        self.largest = Some(highest.unwrap_or(Largest { timestamp: -1, last: self.base }));
        self.first_timestamp = None;
        self.since_index = 0;
        // What the last life had in memory only comes back.
        let mut walk = self.walk(from.map_or(0, |(_, at)| at), WALK_WINDOW_BYTES)?;
        while walk.position() < position
            && let Step::Batch(header, at) = walk.step()?
        {
            match last_kept {
                Some((_, kept)) if at <= kept => {
                    self.note_largest(&header)?;
                    self.since_index = header.size;
                }
                _ => self.note(&header, at, interval)?,
            }
        }
        Ok(Some(position))
    }

    /// Whether there is a batch of which a time index can say so.
    fn is_of_a_batch(&mut self, time: Largest, cleaned: Offset) -> io::Result<bool> {
        let found = self.locate(time.last, cleaned)?;
        Ok(
            matches!(found, Place::Batch(header, _) if header.last() == time.last && header.max_timestamp == time.timestamp),
        )
    }

    /// Rebuilds both indexes beside the old ones, durably, and then puts them in their place: an index that was begun and
    /// not ended would look like a whole one, and of this segment nobody reads the log again.
    pub(crate) fn replace_indexes(&mut self, interval: u64) -> io::Result<()> {
        let names =
            [".index", ".timeindex"].map(|suffix| join(&self.directory, &file_name(self.base, suffix)));
        let [offsets, times] =
            names.each_ref().map(|name| LazyFile::new(&self.disk, format!("{name}{UNFINISHED}")));
        self.offsets = OffsetIndex::new(self.base, offsets, 0);
        self.times = TimeIndex::new(self.base, times, 0);
        self.rebuild(interval, WALK_WINDOW_BYTES, None, Offset::MAX)?;
        for file in self.index_files()? {
            file.sync_data()?;
        }
        for name in &names {
            self.disk.rename(&format!("{name}{UNFINISHED}"), name)?;
        }
        let [offsets, times] = names.map(|name| LazyFile::new(&self.disk, name));
        self.offsets = OffsetIndex::new(self.base, offsets, self.offsets.bytes());
        self.times = TimeIndex::new(self.base, times, self.times.bytes());
        Ok(())
    }

    /// Checks the last indexed stretch of a segment that was closed in order and takes up where it ended.
    ///
    /// The offset behind its last batch; `None` when the files do not fit together and must be recovered.
    pub(crate) fn resume(&mut self, cleaned: Offset) -> io::Result<Option<Offset>> {
        let indexed = self.offsets.last()?;
        let (from, mut next) = indexed.map_or((0, self.base), |(last, position)| (position, last));
        if from >= self.size.max(1) {
            return Ok(None);
        }
        let (timestamp, last) = self.times.last()?.unwrap_or((-1, self.base));
        self.largest = Some(Largest { timestamp, last });
        let mut walk = self.walk(from, WALK_WINDOW_BYTES)?.checked();
        walk = match indexed {
            None => walk.expecting(self.base, cleaned),
            Some(_) => walk.joining(cleaned),
        };
        let mut first = true;
        loop {
            match walk.step()? {
                Step::Batch(header, _) => {
                    if first && indexed.is_some_and(|(last, _)| last != header.last()) {
                        return Ok(None);
                    }
                    first = false;
                    // The time index has lost its end.
                    if header.max_timestamp > timestamp && !header.is_emptied() {
                        return Ok(None);
                    }
                    next = header.next();
                }
                Step::End => break,
                Step::Broken(_) => return Ok(None),
            }
        }
        self.since_index = self.size - from;
        Ok(Some(next))
    }

    /// Gives the log file another path; the segment is of no more use then but to be removed.
    pub(crate) fn rename_log(&mut self, path: &str) -> io::Result<()> {
        self.disk.rename(self.log.path(), path)
    }

    /// Removes the segment's files; whoever has the log file open can read it to the end.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.log.remove()?;
        self.offsets.remove()?;
        self.times.remove()?;
        self.txns.remove()?;
        self.remove_keys()?;
        remove_sidecars(&*self.disk, &self.directory, self.base)
    }

    /// Takes the segment's files out of use; they lie under the paths that are given back until somebody removes
    /// them. Whoever has the log file open can read it to the end.
    pub(crate) fn retire(&mut self) -> io::Result<Vec<String>> {
        let retired = [self.log.retire()?, self.offsets.retire()?, self.times.retire()?, self.txns.retire()?];
        self.remove_keys()?;
        remove_sidecars(&*self.disk, &self.directory, self.base)?;
        Ok(retired.into_iter().flatten().collect())
    }

    /// Removes the key index's file.
    pub(crate) fn remove_keys(&mut self) -> io::Result<()> {
        self.keys.remove()
    }

    /// Gives the open files up.
    pub(crate) fn close(&mut self) {
        self.log.close();
        self.offsets.close();
        self.times.close();
        self.txns.close();
    }
}

/// Removes what stands beside the segment at `base`.
pub(crate) fn remove_sidecars(disk: &dyn Disk, directory: &str, base: Offset) -> io::Result<()> {
    for suffix in SIDECARS {
        match disk.remove_file(&join(directory, &file_name(base, suffix))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
