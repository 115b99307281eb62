//! The offset checkpoints at the root of a data directory, in Kafka's text format (`OffsetCheckpointFile`):
//! version 0, the count, then `topic partition offset` a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use records::ids::Offset;

use crate::disk::Disk;
use crate::error::{IoContext, StorageError};

/// Below it everything is synced, indexes included.
pub(crate) const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// Below it everything was deleted, although the first segment may still hold it.
pub(crate) const LOG_START: &str = "log-start-offset-checkpoint";
/// The high watermark.
pub(crate) const HIGH_WATERMARK: &str = "replication-offset-checkpoint";

/// Below it the log was compacted.
pub(crate) const CLEANED: &str = "cleaner-offset-checkpoint";
/// Below it compaction may have left holes: our own, written before there are any. Recovery must not take them for
/// damage, and Kafka's file tells of them only afterwards.
pub(crate) const HOLES: &str = "sluice-holes-offset-checkpoint";

/// Topic name and partition index.
pub(crate) type LogName = (String, i32);

/// One checkpoint file's content.
pub(crate) type OffsetCheckpoint = BTreeMap<LogName, Offset>;

/// Reads a checkpoint; a missing or unreadable one is empty, which costs a longer recovery and nothing else. Not so where
/// logs start: without it records that somebody has deleted would rise again, so that there only a missing one is empty
/// (one that was never written looks like that). We write it in one step: not even an empty one is ours.
///
/// # Errors
/// [`StorageError::Damaged`] for [`LOG_START`]; what the disk says.
pub(crate) fn read(disk: &dyn Disk, file: &str) -> Result<OffsetCheckpoint, StorageError> {
    let Some(bytes) = disk.read(file).doing("read", file)? else { return Ok(OffsetCheckpoint::new()) };
    let parsed = std::str::from_utf8(&bytes).ok().and_then(parse);
    if parsed.is_none() && file == LOG_START {
        let reason =
            "it is no offset checkpoint; repair its lines, or remove it and have deleted records back";
        return Err(StorageError::Damaged { path: file.to_owned(), reason: reason.to_owned() });
    }
    if parsed.is_none() && !bytes.is_empty() {
        tracing::warn!(file, "checkpoint is unreadable, taken as empty");
    }
    Ok(parsed.unwrap_or_default())
}

/// Replaces a checkpoint in one step.
pub(crate) fn write(disk: &dyn Disk, file: &str, offsets: &OffsetCheckpoint) -> Result<(), StorageError> {
    let mut text = format!("0\n{}\n", offsets.len());
    for ((topic, partition), offset) in offsets {
        writeln!(text, "{topic} {partition} {offset}").expect("a string takes every write");
    }
    disk.write_atomic(file, text.as_bytes()).doing("write", file)
}

/// A checkpoint's content; `None` where it is none. An empty file is one that was never written.
pub(crate) fn parse(text: &str) -> Option<OffsetCheckpoint> {
    // Cut short within its last number it would read as another one.
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut offsets = OffsetCheckpoint::new();
    for line in lines.by_ref().take(count) {
        let mut fields = line.split(' ');
        let topic = fields.next()?.to_owned();
        let partition = fields.next()?.parse().ok()?;
        let offset = fields.next()?.parse().ok()?;
        offsets.insert((topic, partition), Offset(offset));
    }
    (offsets.len() == count && lines.next().is_none()).then_some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn reads_what_it_wrote_and_nothing_from_a_damaged_file() {
        let disk = SimDisk::new(1);
        let offsets =
            OffsetCheckpoint::from([(("a.b".into(), 0), Offset(7)), (("a.b".into(), 1), Offset(0))]);
        write(&disk, LOG_START, &offsets).unwrap();
        assert_eq!(disk.read(LOG_START).unwrap().unwrap(), b"0\n2\na.b 0 7\na.b 1 0\n");
        assert_eq!(read(&disk, LOG_START).unwrap(), offsets);
        for file in [RECOVERY_POINT, HIGH_WATERMARK, CLEANED, HOLES] {
            disk.create(file).unwrap().write_all_at(b"0\n3\na 0 7\n", 0).unwrap();
            assert!(read(&disk, file).unwrap().is_empty());
        }
        assert!(read(&disk, "none").unwrap().is_empty());
    }

    #[test]
    fn where_logs_start_is_known_or_missing_but_never_damaged() {
        let disk = SimDisk::new(1);
        assert!(read(&disk, LOG_START).unwrap().is_empty());
        for damaged in [&b""[..], b"\xff\xfe", b"0\n3\na 0 7\n", b"0\n1\na 0 7", b"0\n1\na 0 seven\n"] {
            disk.create(LOG_START).unwrap().write_all_at(damaged, 0).unwrap();
            let error = read(&disk, LOG_START).unwrap_err().to_string();
            assert!(error.contains(LOG_START) && error.contains("remove it"), "{error}");
        }
    }
}
