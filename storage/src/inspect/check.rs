//! The checks: log files first, then everything that is derived from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::BatchView;
use records::ids::Offset;

use super::epochs::Epochs;
use super::transactions::Transactions;
use super::{Depth, Left, PartitionReport, SegmentReport, WINDOW_BYTES, bases, files};
use crate::batch_header::BatchHeader;
use crate::disk::{Disk, DiskFile, join};
use crate::error::{IoContext, StorageError};
use crate::index::{offset, time};
use crate::options::{MARKER_BYTES_MAX, Options};
use crate::segment::file_name;
use crate::transactions::Marker;
use crate::walk::{Step, Walk, follows};

/// The batches of a segment, for what names them.
#[derive(Default)]
struct Ends {
    /// Where each ends: by its position, its last offset and the highest timestamp up to it.
    by_position: BTreeMap<u64, (Offset, i64)>,
    /// The highest timestamp of those that hold records; -1 for none.
    youngest: i64,
}

pub(super) fn partition(
    disk: &Arc<dyn Disk>,
    directory: &str,
    left: &Left,
    depth: Depth,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let bases = bases(&**disk, directory)?;
    let entries = disk.list(directory).doing("list", directory)?;
    let cleaned = left.cleaned;
    let first = bases.first().copied();
    // A directory without one is no fault by itself: that of a partition of which only share state stands or stood there,
    // or of which all records were deleted.
    let had_any = left.recovery_point > left.log_start;
    if first.is_none() && had_any {
        report.find(directory, None, "there is no log file");
    }
    let mut expected: Option<Offset> = None;
    let mut epochs = Epochs::default();
    let mut transactions = Transactions::new(cleaned.max(first.unwrap_or_default()));
    for &base in &bases {
        let path = join(directory, &file_name(base, ".log"));
        if expected.is_some_and(|expected| !follows(base, expected, cleaned)) {
            let expected = expected.unwrap_or_default();
            report.find(&path, None, format!("the segment before it ends at {expected}"));
        }
        let file = disk.open(&path).doing("open", &path)?;
        let mut log = LogFile { path: &path, file: &file, base, cleaned, depth };
        let (segment, ends) = log.walk(disk, &mut epochs, &mut transactions, report)?;
        expected = Some(segment.end);
        if depth == Depth::Verify {
            offset_index(disk, directory, base, &ends, report)?;
            time_index(disk, directory, base, &ends, left.is_clean, report)?;
            transactions.check(disk, directory, base, segment.end, report)?;
        }
        report.segments.push(segment);
    }
    for noted in left.segments.iter().filter(|noted| noted.base >= left.log_start) {
        if bases.binary_search(&noted.base).is_err() {
            let path = join(directory, &file_name(noted.base, ".log"));
            report.find(&path, None, "is missing: it was there when the broker was stopped, or before");
        }
    }
    report.end = expected.unwrap_or(left.log_start);
    report.open_since = transactions.first_open();
    report.log_start = report.log_start.max(first.unwrap_or_default());
    bounds(directory, left, first, report);
    if depth == Depth::Verify {
        epochs.check(disk, directory, left, report)?;
    }
    files::others(disk, directory, &entries, left, depth, report)
}

/// Where the log begins and ends, against what was written down of it.
fn bounds(directory: &str, left: &Left, first: Option<Offset>, report: &mut PartitionReport) {
    let (start, end) = (report.log_start, report.end);
    if start > end {
        report.find(directory, None, format!("the log starts at {start}, behind its end {end}"));
    }
    // Log starts are written before a segment goes, unless the disk is full; then they are once it has room.
    // Of one that was set aside and put back no checkpoint tells.
    let is_told = left.is_clean && left.end.is_some();
    if let Some(first) = first.filter(|first| is_told && *first > left.log_start) {
        let what = format!(
            "its first segment begins at {first}, but nothing below was deleted from {} on",
            left.log_start
        );
        report.find(directory, None, what);
    }
    if end < left.recovery_point {
        let what = format!("the log ends at {end}, it was synced up to {}", left.recovery_point);
        report.find(directory, None, what);
    } else if let Some(closed) = left.end.filter(|closed| left.is_clean && *closed != end) {
        report.find(directory, None, format!("the log ends at {end}, it was closed at {closed}"));
    }
}

struct LogFile<'a> {
    path: &'a str,
    file: &'a Arc<dyn DiskFile>,
    base: Offset,
    cleaned: Offset,
    depth: Depth,
}

impl LogFile<'_> {
    fn walk(
        &mut self,
        disk: &Arc<dyn Disk>,
        epochs: &mut Epochs,
        transactions: &mut Transactions,
        report: &mut PartitionReport,
    ) -> Result<(SegmentReport, Ends), StorageError> {
        let len = self.file.len().doing("measure", self.path)?;
        let mut segment = SegmentReport {
            base: self.base,
            end: self.base,
            bytes: len,
            batches: 0,
            records: 0,
            aborted: 0,
            max_timestamp: -1,
        };
        let mut ends = Ends { youngest: -1, ..Ends::default() };
        // The first batch may begin above the base offset where compaction took what was before it.
        let mut walk = Walk::new(self.file, 0, len, WINDOW_BYTES).expecting(self.base, self.cleaned);
        if self.depth == Depth::Verify {
            walk = walk.checked();
        }
        loop {
            match walk.step().doing("read", self.path)? {
                Step::End => break,
                Step::Broken(reason) => {
                    report.find(self.path, Some(walk.position()), reason);
                    let Some(next) = self.behind(walk.position(), len, disk)? else { break };
                    walk = Walk::new(self.file, next, len, WINDOW_BYTES).joining(self.cleaned);
                    if self.depth == Depth::Verify {
                        walk = walk.checked();
                    }
                }
                Step::Batch(header, position) => {
                    if let Some(before) = epochs.note(&header) {
                        let what = format!("leader epoch {} stands behind {before}", header.leader_epoch);
                        report.find(self.path, Some(position), what);
                    }
                    segment.batches += 1;
                    segment.records += match self.depth {
                        Depth::Describe => u64::try_from(header.record_count).unwrap_or(0),
                        Depth::Verify => self.records(&header, position, report)?,
                    };
                    let mut marker = None;
                    if header.is_control() && header.size <= MARKER_BYTES_MAX {
                        let bytes = walk.whole(&header, position).doing("read", self.path)?;
                        marker = bytes.map(Marker::in_bytes);
                    }
                    if marker.is_some() || !header.is_control() {
                        transactions.note(&header, marker);
                    }
                    segment.aborted += u64::from(matches!(marker, Some(Marker::Abort(_))));
                    segment.max_timestamp = segment.max_timestamp.max(header.max_timestamp);
                    segment.end = header.next();
                    if self.depth == Depth::Verify {
                        ends.by_position.insert(position, (header.last(), segment.max_timestamp));
                    }
                    if !header.is_emptied() {
                        ends.youngest = ends.youngest.max(header.max_timestamp);
                    }
                }
            }
        }
        Ok((segment, ends))
    }

    /// Where a batch stands behind a damaged one: where its own length leads to, else where the offset index says.
    fn behind(&self, damaged: u64, len: u64, disk: &Arc<dyn Disk>) -> Result<Option<u64>, StorageError> {
        let step = |at| Walk::new(self.file, at, len, WINDOW_BYTES).step().doing("read", self.path);
        if let Step::Batch(header, _) = step(damaged)?
            && let Step::Batch(next, _) = step(damaged + header.size)?
            && next.base > header.base
        {
            return Ok(Some(damaged + header.size));
        }
        let path = self.path.strip_suffix(".log").unwrap_or(self.path);
        let path = format!("{path}.index");
        let bytes = disk.read(&path).doing("read", &path)?.unwrap_or_default();
        for entry in bytes.as_chunks::<{ offset::ENTRY_BYTES }>().0 {
            let (relative, position) = offset::decode(entry);
            if position > damaged
                && matches!(step(position)?, Step::Batch(next, _) if next.last() == self.base + i64::from(relative))
            {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Reads the records of a batch: how many there are.
    fn records(
        &self,
        header: &BatchHeader,
        position: u64,
        report: &mut PartitionReport,
    ) -> Result<u64, StorageError> {
        let mut bytes = vec![0; usize::try_from(header.size).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, position).doing("read", self.path)?;
        match count_records(&bytes) {
            Ok(count) => Ok(count),
            Err(what) => {
                report.find(self.path, Some(position), what);
                Ok(0)
            }
        }
    }
}

fn count_records(bytes: &[u8]) -> Result<u64, String> {
    let batch = BatchView::parse(bytes).map_err(|error| error.to_string())?;
    let records = batch.records(Options::default().inflated_bytes_max).map_err(|error| error.to_string())?;
    let (mut count, mut last) = (0_u64, None);
    for record in records.iter() {
        let record = record.map_err(|error| error.to_string())?;
        let offset = record.offset;
        if last.is_some_and(|last| offset <= last) || offset > batch.last_offset() {
            return Err(format!("the record at {offset} is out of order"));
        }
        last = Some(offset);
        count += 1;
    }
    if i64::from(batch.record_count()) != i64::try_from(count).unwrap_or(i64::MAX) {
        return Err(format!("holds {count} records, its header says {}", batch.record_count()));
    }
    Ok(count)
}

/// Whole entries of an index file; `None` where there is no file.
fn entries<const N: usize>(
    disk: &Arc<dyn Disk>,
    path: &str,
    report: &mut PartitionReport,
) -> Result<Option<Vec<[u8; N]>>, StorageError> {
    let Some(bytes) = disk.read(path).doing("read", path)? else {
        report.find(path, None, "is missing; it is made anew when the broker starts");
        return Ok(None);
    };
    let (entries, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        report.find(path, Some((bytes.len() - rest.len()) as u64), "ends in the middle of an entry");
    }
    Ok(Some(entries.to_vec()))
}

fn offset_index(
    disk: &Arc<dyn Disk>,
    directory: &str,
    base: Offset,
    ends: &Ends,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let path = join(directory, &file_name(base, ".index"));
    let Some(entries) = entries::<{ offset::ENTRY_BYTES }>(disk, &path, report)? else { return Ok(()) };
    let mut before = None;
    for (number, entry) in entries.iter().enumerate() {
        let (relative, position) = offset::decode(entry);
        let at = Some((number * offset::ENTRY_BYTES) as u64);
        let named = base + i64::from(relative);
        // What follows a wrong entry says little.
        if before.replace((relative, position)).is_some_and(|before| (relative, position) <= before) {
            report.find(&path, at, "entries do not ascend");
            break;
        }
        if ends.by_position.get(&position).is_none_or(|(last, _)| *last != named) {
            report.find(&path, at, format!("no batch at byte {position} ends with offset {named}"));
            break;
        }
    }
    Ok(())
}

fn time_index(
    disk: &Arc<dyn Disk>,
    directory: &str,
    base: Offset,
    ends: &Ends,
    is_sealed: bool,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let path = join(directory, &file_name(base, ".timeindex"));
    let Some(entries) = entries::<{ time::ENTRY_BYTES }>(disk, &path, report)? else { return Ok(()) };
    let by_last: BTreeMap<Offset, i64> = ends.by_position.values().copied().collect();
    let mut before = None;
    for (number, entry) in entries.iter().enumerate() {
        let (timestamp, relative) = time::decode(entry);
        let at = Some((number * time::ENTRY_BYTES) as u64);
        if before.replace(timestamp).is_some_and(|before| timestamp <= before) {
            report.find(&path, at, "timestamps do not ascend");
            return Ok(());
        }
        let named = base + i64::from(relative);
        // Kafka names the record that bears the timestamp, which may stand before its batch's last.
        let highest = by_last.range(named..).next().map(|(_, highest)| *highest);
        if highest.is_none_or(|highest| highest < timestamp) {
            report.find(&path, at, format!("no record up to offset {named} bears timestamp {timestamp}"));
            return Ok(());
        }
    }
    let youngest = ends.youngest;
    if is_sealed && before.unwrap_or(-1) < youngest {
        let at = Some((entries.len() * time::ENTRY_BYTES) as u64);
        report.find(&path, at, format!("lost its end: it tells of no record with timestamp {youngest}"));
    }
    Ok(())
}
