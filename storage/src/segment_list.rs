//! `sluice-segments`: which segments each log had when the broker was stopped in order, and how long their files were.
//!
//! Nothing else tells of a segment in the middle of a log that is gone, where compaction may have left holes, nor of an
//! index that lost whole entries. It counts only with the orderly stop that it was written at; without it a start looks at
//! less.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use records::ids::Offset;

use crate::checkpoints::LogName;
use crate::disk::Disk;
use crate::error::{IoContext, StorageError};
use crate::segment::Found;

pub(crate) const FILE: &str = "sluice-segments";

/// A segment as it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) base: Offset,
    pub(crate) found: Found,
}

/// The segments of each log, ascending.
pub(crate) type SegmentList = BTreeMap<LogName, Vec<Noted>>;

/// The list that the stop of that boot wrote; `None` where there is none, or it is damaged or of another stop.
pub(crate) fn read(disk: &dyn Disk, boot: u64) -> Result<Option<SegmentList>, StorageError> {
    let bytes = disk.read(FILE).doing("read", FILE)?.unwrap_or_default();
    Ok(std::str::from_utf8(&bytes).ok().and_then(|text| parse(text, boot)))
}

/// Replaces the list in one step.
pub(crate) fn write<'a>(
    disk: &dyn Disk,
    boot: u64,
    lists: impl Iterator<Item = (&'a LogName, Vec<Noted>)>,
) -> Result<(), StorageError> {
    let (mut lines, mut count) = (String::new(), 0_usize);
    for ((topic, partition), segments) in lists {
        for Noted { base, found } in segments {
            write!(lines, "{topic} {partition} {base} {}", found.log).expect("a string takes every write");
            for len in [found.index, found.time_index, found.txn_index] {
                match len {
                    Some(len) => write!(lines, " {len}").expect("a string takes every write"),
                    None => lines.push_str(" -"),
                }
            }
            lines.push('\n');
            count += 1;
        }
    }
    disk.write_atomic(FILE, format!("0 {boot}\n{count}\n{lines}").as_bytes()).doing("write", FILE)
}

fn parse(text: &str, boot: u64) -> Option<SegmentList> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != format!("0 {boot}") {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut list = SegmentList::new();
    let mut read = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(' ').collect();
        let [topic, partition, base, log, index, time_index, txn_index] = fields[..] else { return None };
        let len = |field: &str| match field {
            "-" => Some(None),
            field => field.parse().ok().map(Some),
        };
        let found = Found {
            log: log.parse().ok()?,
            index: len(index)?,
            time_index: len(time_index)?,
            txn_index: len(txn_index)?,
        };
        let noted = Noted { base: Offset(base.parse().ok()?), found };
        let segments = list.entry((topic.to_owned(), partition.parse().ok()?)).or_default();
        if segments.last().is_some_and(|before| before.base >= noted.base) {
            return None;
        }
        segments.push(noted);
        read += 1;
    }
    (read == count).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn reads_what_it_wrote_and_nothing_of_another_stop_or_a_damaged_file() {
        let disk = SimDisk::new(1);
        let found = Found { log: 7, index: Some(8), time_index: Some(0), txn_index: None };
        let segments = vec![Noted { base: Offset(0), found }, Noted { base: Offset(9), found }];
        let name = ("a.b".to_owned(), 3);
        write(&disk, 5, [(&name, segments.clone())].into_iter()).unwrap();
        assert_eq!(read(&disk, 5).unwrap(), Some(SegmentList::from([(name, segments)])));
        assert_eq!(read(&disk, 6).unwrap(), None);
        let text = disk.read(FILE).unwrap().unwrap();
        for len in 0..text.len() {
            disk.create(FILE).unwrap().write_all_at(&text[..len], 0).unwrap();
            assert_eq!(read(&disk, 5).unwrap(), None, "{len} bytes");
        }
    }
}
