//! What share groups submit: scans, searches for keys, answers built out of chosen records, and the state beside a partition.

use bytes::Bytes;
use coordinator::io::{
    self, BuildError, EventsAppended, IoError, KeyFound, ReadRecord, RetentionDue, Scanned, ScannedBatch,
    ScannedKind, ScannedRecord, ShareState, ShareStateId, StoredState, WholeRecord,
};
use records::ids::{KeyHash, Offset, PartitionId};
use storage::{Logs, Metadata, SelectError, options};

use super::trouble::{io_error, metadata_error, read_error, tell};
use crate::executor::Data;

const _: () = {
    assert!(io::PAGE_BYTES_MAX <= options::PAGE_BYTES_MAX);
    assert!(io::KEY_FOUND_MAX as usize <= options::KEY_FOUND_MAX);
};

pub(super) fn scan(
    logs: &mut Logs,
    partition: PartitionId,
    from: Offset,
    upper: Offset,
    bytes_max: u64,
    committed: bool,
) -> Result<Scanned, IoError> {
    let scan = if committed {
        logs.scan_committed(partition, from, bytes_max, upper)
    } else {
        logs.scan(partition, from, bytes_max, upper)
    };
    let scan = scan.map_err(|error| read_error(logs, partition, &error))?;
    let batches = scan
        .batches
        .into_iter()
        .map(|batch| ScannedBatch {
            base: batch.base,
            last: batch.last,
            bytes: batch.bytes,
            kind: kind(logs, partition, batch.base, batch.last, batch.kind),
        })
        .collect();
    Ok(Scanned { batches, next: scan.next })
}

fn kind(
    logs: &Logs,
    partition: PartitionId,
    base: Offset,
    last: Offset,
    kind: storage::ScannedKind,
) -> ScannedKind {
    match kind {
        storage::ScannedKind::Data(records) => {
            ScannedKind::Data(records.into_iter().map(scanned_record).collect())
        }
        storage::ScannedKind::Control => ScannedKind::Control,
        storage::ScannedKind::Aborted => ScannedKind::Aborted,
        storage::ScannedKind::Corrupt(reason) => {
            tell(logs, partition, &format_args!("stored batch {base} to {last} is damaged: {reason}"));
            ScannedKind::Corrupt
        }
    }
}

fn scanned_record(record: storage::ScannedRecord) -> ScannedRecord {
    ScannedRecord { offset: record.offset, key: record.key, bytes: record.bytes }
}

pub(super) fn find_key(
    logs: &mut Logs,
    partition: PartitionId,
    key: KeyHash,
    range: (Offset, Offset),
    committed: bool,
    max: u32,
) -> Result<KeyFound, IoError> {
    let found = logs
        .find_key(partition, key, range, committed, max as usize)
        .map_err(|error| read_error(logs, partition, &error))?;
    Ok(KeyFound { records: found.records.into_iter().map(scanned_record).collect(), next: found.next })
}

pub(super) fn build(
    logs: &mut Logs,
    parts: &[(PartitionId, Vec<(Offset, Offset)>)],
) -> Vec<Result<Data, BuildError>> {
    parts
        .iter()
        .map(|(partition, ranges)| match logs.select(*partition, ranges) {
            Ok(batches) => Ok(Data::Memory(batches)),
            Err(SelectError::Corrupt { first, last, reason }) => {
                tell(logs, *partition, &format_args!("stored batch {first} to {last} is damaged: {reason}"));
                Err(BuildError::Corrupt { first, last })
            }
            Err(SelectError::Missing(offset)) => Err(BuildError::Missing(offset)),
            Err(SelectError::Gone { log_start }) => Err(BuildError::Gone(log_start)),
            Err(SelectError::Read(error)) => Err(BuildError::Io(read_error(logs, *partition, &error))),
        })
        .collect()
}

pub(super) fn read_records(
    logs: &mut Logs,
    partition: PartitionId,
    offsets: &[Offset],
    bytes_max: u64,
) -> Result<Vec<ReadRecord>, IoError> {
    let found = logs
        .read_records(partition, offsets, bytes_max)
        .map_err(|error| read_error(logs, partition, &error))?;
    let whole = |record: storage::OwnedRecord| WholeRecord {
        timestamp: record.timestamp,
        key: record.key,
        value: record.value,
    };
    Ok(found.into_iter().map(|(offset, record)| ReadRecord { offset, record: record.map(whole) }).collect())
}

pub(super) fn next_retention(
    logs: &mut Logs,
    partition: PartitionId,
    now_ms: i64,
) -> Result<Option<RetentionDue>, IoError> {
    let due = logs.next_retention(partition, now_ms).map_err(|error| io_error(logs, partition, &error))?;
    Ok(due.map(|due| RetentionDue { until: due.until, at_ms: due.at_ms, length_ms: due.length_ms }))
}

pub(super) fn open(
    logs: &mut Logs,
    metadata: &Metadata,
    group: &str,
    partition: PartitionId,
) -> Result<ShareState, IoError> {
    let number = metadata.group_number(group).map_err(|error| metadata_error(&error))?;
    let (facts, replay) =
        logs.open_events(partition, number).map_err(|error| io_error(logs, partition, &error))?;
    let current = epoch(logs, partition)?;
    let stored = |part| stored(logs, partition, current, part);
    Ok(ShareState {
        state: ShareStateId { group: number, partition },
        snapshot: replay.snapshot.map(stored).transpose()?,
        events: replay.events.into_iter().map(stored).collect::<Result<_, _>>()?,
        existed: facts.existed,
    })
}

/// A part of the state, written under the first of these epochs while now is the second.
fn stored(
    logs: &Logs,
    partition: PartitionId,
    current: i32,
    (written, bytes): (i32, Bytes),
) -> Result<StoredState, IoError> {
    let void_from = if written == current { Offset::MAX } else { end_of(logs, partition, written)? };
    Ok(StoredState { bytes, void_from })
}

/// Where the log of an earlier life ends: what was written under its epoch is void from there on.
fn end_of(logs: &Logs, partition: PartitionId, epoch: i32) -> Result<Offset, IoError> {
    let end = logs.epoch_end_offset(partition, epoch).map_err(|error| io_error(logs, partition, &error))?;
    Ok(end.map_or(Offset::MAX, |(_, end)| end))
}

pub(super) fn append(
    logs: &mut Logs,
    state: ShareStateId,
    events: &[Bytes],
) -> Result<EventsAppended, IoError> {
    let epoch = epoch(logs, state.partition)?;
    let bytes_since_snapshot = logs
        .append_events(state.partition, state.group, epoch, events)
        .map_err(|error| io_error(logs, state.partition, &error))?;
    Ok(EventsAppended { bytes_since_snapshot })
}

pub(super) fn write_snapshot(
    logs: &mut Logs,
    state: ShareStateId,
    snapshot: &[u8],
    pages: &[(u64, Bytes)],
    dropped: &[u64],
) -> Result<EventsAppended, IoError> {
    let epoch = epoch(logs, state.partition)?;
    logs.write_snapshot(state.partition, state.group, epoch, snapshot, pages, dropped)
        .map_err(|error| io_error(logs, state.partition, &error))?;
    Ok(EventsAppended { bytes_since_snapshot: 0 })
}

pub(super) fn read_pages(
    logs: &mut Logs,
    state: ShareStateId,
    pages: &[u64],
) -> Result<Vec<StoredState>, IoError> {
    let ShareStateId { group, partition } = state;
    let current = epoch(logs, partition)?;
    let read = logs.read_pages(partition, group, pages).map_err(|error| io_error(logs, partition, &error))?;
    read.into_iter().map(|page| stored(logs, partition, current, page)).collect()
}

pub(super) fn delete(
    logs: &mut Logs,
    metadata: &Metadata,
    group: &str,
    partition: Option<PartitionId>,
) -> Result<(), IoError> {
    let Some(number) = number(metadata, group)? else { return Ok(()) };
    let partitions = match partition {
        Some(partition) => vec![partition],
        None => logs.partitions_with_events(number),
    };
    partitions.into_iter().try_for_each(|partition| {
        logs.delete_events(partition, number).map_err(|error| io_error(logs, partition, &error))
    })
}

pub(super) fn list(logs: &mut Logs, metadata: &Metadata, group: &str) -> Result<Vec<PartitionId>, IoError> {
    Ok(number(metadata, group)?.map(|number| logs.partitions_with_events(number)).unwrap_or_default())
}

/// The group's number, if it has one: asking gives it none.
fn number(metadata: &Metadata, group: &str) -> Result<Option<u64>, IoError> {
    Ok(metadata.group_numbers().map_err(|error| metadata_error(&error))?.get(group).copied())
}

fn epoch(logs: &Logs, partition: PartitionId) -> Result<i32, IoError> {
    logs.facts(partition).map(|facts| facts.leader_epoch).ok_or(IoError::NotOpen)
}
