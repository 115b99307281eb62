//! What each submission of a shard means to the logs: one function for every executor that has [`Logs`].

mod share;
mod trouble;

use bytes::{Bytes, BytesMut};
use coordinator::command::{BatchKeys, DeleteTo, OffsetQuery};
use coordinator::io::{
    AbortedTransaction, AppendError, Appended, Completion, DeleteError, FoundBatches, FoundRecord, IoError,
    LogFacts, Origin, ReadPart, Submission,
};
use records::Batches;
use records::ids::{Offset, PartitionId};
use storage::{LogSlice, Logs, Metadata};

use self::trouble::{append_error, io_error, read_error, tell};
use super::Data;

/// Bytes read at once while a coordinator partition is loaded.
const LOAD_BYTES: u64 = 1 << 20;

/// Serves one submission and waits for the disk where it must. The local executor takes syncs elsewhere first, so
/// that they run beside each other; a simulation does not need that.
pub fn serve(submission: Submission, logs: &mut Logs, metadata: &Metadata, now_ms: i64) -> Completion<Data> {
    match submission {
        Submission::Append { op, partition, batch, origin, keys } => {
            Completion::Appended(op, append(logs, partition, (batch, keys), origin, now_ms))
        }
        Submission::Sync { op, partition } => Completion::Synced(op, sync(logs, partition)),
        Submission::Read { op, bytes_max, parts } => Completion::Read(op, read(logs, bytes_max, &parts)),
        Submission::FindOffset { op, partition, query } => {
            Completion::OffsetFound(op, find_offset(logs, partition, query))
        }
        Submission::DeleteRecords { op, partition, to } => {
            Completion::RecordsDeleted(op, delete_records(logs, partition, to))
        }
        Submission::Load { op, partition } => Completion::Loaded(op, load(logs, partition)),
        Submission::Scan { op, partition, from, upper, bytes_max, committed } => {
            Completion::Scanned(op, share::scan(logs, partition, from, upper, bytes_max, committed))
        }
        Submission::FindKey { op, partition, key, from, upper, committed, max } => {
            Completion::KeyFound(op, share::find_key(logs, partition, key, (from, upper), committed, max))
        }
        Submission::SyncNow { op, partition } => Completion::Synced(op, sync(logs, partition)),
        Submission::ReadRecords { op, partition, offsets, bytes_max } => {
            Completion::RecordsRead(op, share::read_records(logs, partition, &offsets, bytes_max))
        }
        Submission::NextRetention { op, partition } => {
            Completion::RetentionFound(op, share::next_retention(logs, partition, now_ms))
        }
        Submission::Build { op, parts } => Completion::Built(op, share::build(logs, &parts)),
        Submission::OpenShareState { op, group, partition } => {
            Completion::ShareStateOpened(op, share::open(logs, metadata, &group, partition))
        }
        Submission::AppendEvents { op, state, events } => {
            Completion::EventsAppended(op, share::append(logs, state, &events))
        }
        Submission::WriteSnapshot { op, state, snapshot, pages, dropped } => {
            Completion::EventsAppended(op, share::write_snapshot(logs, state, &snapshot, &pages, &dropped))
        }
        Submission::ReadPages { op, state, pages } => {
            Completion::PagesRead(op, share::read_pages(logs, state, &pages))
        }
        Submission::DeleteShareState { op, group, partition } => {
            Completion::ShareStateDeleted(op, share::delete(logs, metadata, &group, partition))
        }
        Submission::ListShareStates { op, group } => {
            Completion::ShareStates(op, share::list(logs, metadata, &group))
        }
    }
}

/// A log's state as the shard keeps it; nothing of a log that is not open.
#[must_use]
pub fn facts(logs: &Logs, partition: PartitionId) -> Option<LogFacts> {
    logs.facts(partition).map(|facts| log_facts(&facts))
}

pub(crate) fn log_facts(facts: &storage::LogFacts) -> LogFacts {
    LogFacts {
        log_start: facts.log_start,
        end: facts.end,
        last_stable: facts.last_stable,
        leader_epoch: facts.leader_epoch,
    }
}

fn append(
    logs: &mut Logs,
    partition: PartitionId,
    (batch, keys): (Bytes, Option<BatchKeys>),
    origin: Origin,
    now_ms: i64,
) -> Result<Appended, AppendError> {
    // The batch is stamped in place where nobody else looks at its bytes any more.
    let batch = batch.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let origin = match origin {
        Origin::Client => storage::Origin::Client,
        Origin::Coordinator => storage::Origin::Coordinator,
    };
    let appended = logs
        .append_with_keys(partition, batch, keys.as_deref(), origin, now_ms)
        .map_err(|error| append_error(logs, partition, &error))?;
    Ok(Appended {
        base_offset: appended.base_offset,
        append_time_ms: appended.append_time,
        duplicate: appended.duplicate,
        bytes: appended.bytes,
        facts: facts(logs, partition).ok_or(AppendError::Io(IoError::NotOpen))?,
    })
}

fn sync(logs: &mut Logs, partition: PartitionId) -> Result<(), IoError> {
    match logs.sync_job(partition).map_err(|error| io_error(logs, partition, &error))? {
        Some(job) => logs.sync_done(job.run()).map(|_| ()).map_err(|error| io_error(logs, partition, &error)),
        None => Ok(()),
    }
}

/// The first batch of the first part that has one is found whatever the limits say (KIP-74).
fn read(logs: &mut Logs, bytes_max: u64, parts: &[ReadPart]) -> Vec<Result<FoundBatches<Data>, IoError>> {
    let mut left = bytes_max;
    let mut is_first = true;
    parts
        .iter()
        .map(|part| {
            let limit = part.bytes_max.min(left);
            if limit == 0 && !is_first {
                return Ok(Data::Memory(Vec::new()).into());
            }
            let slice = logs
                .read(part.partition, part.from, limit, part.upper, is_first)
                .map_err(|error| read_error(logs, part.partition, &error))?;
            is_first &= slice.is_empty();
            left = left.saturating_sub(slice.len());
            let aborted =
                if part.committed { aborted(logs, part.partition, part.from, &slice)? } else { Vec::new() };
            Ok(FoundBatches { data: Data::Log(slice), aborted })
        })
        .collect()
}

fn aborted(
    logs: &mut Logs,
    partition: PartitionId,
    from: Offset,
    slice: &LogSlice,
) -> Result<Vec<AbortedTransaction>, IoError> {
    let found = logs.aborted(partition, from, slice).map_err(|error| read_error(logs, partition, &error))?;
    Ok(found.into_iter().map(|txn| AbortedTransaction { producer: txn.producer, first: txn.first }).collect())
}

fn find_offset(
    logs: &mut Logs,
    partition: PartitionId,
    query: OffsetQuery,
) -> Result<Option<FoundRecord>, IoError> {
    let found = match query {
        OffsetQuery::Earliest => {
            let offset = logs.facts(partition).ok_or(IoError::NotOpen)?.log_start;
            let leader_epoch =
                logs.leader_epoch_at(partition, offset).map_err(|error| io_error(logs, partition, &error))?;
            return Ok(Some(FoundRecord { offset, timestamp: -1, leader_epoch }));
        }
        OffsetQuery::EpochEnd(epoch) => {
            let found =
                logs.epoch_end_offset(partition, epoch).map_err(|error| io_error(logs, partition, &error))?;
            let found =
                found.map(|(leader_epoch, offset)| FoundRecord { offset, timestamp: -1, leader_epoch });
            return Ok(found);
        }
        OffsetQuery::At(timestamp) => logs.offset_for_time(partition, timestamp),
        OffsetQuery::MaxTimestamp => logs.max_timestamp(partition),
        OffsetQuery::Latest | OffsetQuery::Tiered => {
            unreachable!("the shard answers {query:?} from what it knows")
        }
    };
    Ok(found.map_err(|error| read_error(logs, partition, &error))?.map(|found| FoundRecord {
        offset: found.offset,
        timestamp: found.timestamp,
        leader_epoch: found.leader_epoch,
    }))
}

fn delete_records(logs: &mut Logs, partition: PartitionId, to: DeleteTo) -> Result<Offset, DeleteError> {
    let to = match to {
        DeleteTo::Offset(offset) => offset,
        DeleteTo::End => logs.facts(partition).ok_or(DeleteError::Io(IoError::NotOpen))?.end,
    };
    logs.delete_records(partition, to).map_err(|error| match error {
        storage::DeleteError::OutOfRange { .. } => DeleteError::OutOfRange,
        storage::DeleteError::Storage(error) => DeleteError::Io(io_error(logs, partition, &error)),
    })
}

/// All batches from the log's start to its end.
fn load(logs: &mut Logs, partition: PartitionId) -> Result<Vec<Bytes>, IoError> {
    let facts = logs.facts(partition).ok_or(IoError::NotOpen)?;
    let mut from = facts.log_start;
    let mut batches = Vec::new();
    while from < facts.end {
        let slice = logs
            .read(partition, from, LOAD_BYTES, facts.end, true)
            .map_err(|error| read_error(logs, partition, &error))?;
        if slice.is_empty() {
            break;
        }
        let bytes = slice.read().map_err(|error| {
            tell(logs, partition, &format_args!("cannot load: {error}"));
            IoError::Storage
        })?;
        let mut at = 0;
        for batch in Batches::new(&bytes) {
            let batch = batch.map_err(|error| {
                tell(logs, partition, &format_args!("cannot load from offset {from}: {error}"));
                IoError::Corrupt
            })?;
            from = batch.next_offset();
            let size = batch.size();
            batches.push(bytes.slice(at..at + size));
            at += size;
        }
    }
    Ok(batches)
}
