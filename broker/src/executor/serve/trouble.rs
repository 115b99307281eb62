//! What storage refuses: an error for the shard, and a line in the log that says where and why.

use std::fmt;
use std::sync::LazyLock;

use coordinator::io::{AppendError, IoError};
use records::ids::PartitionId;
use storage::{Logs, ReadError, StorageError};

use crate::clock::Clock;
use crate::line_limit::{LineLimit, Verdict};

/// Of the whole process: a full disk refuses every request, and its log may be on the same disk.
static LINES: LazyLock<(Clock, LineLimit)> = LazyLock::new(|| (Clock::start(), LineLimit::new()));

/// One second in the clock's microseconds.
const SECOND: u64 = 1_000_000;

pub(super) fn append_error(logs: &Logs, partition: PartitionId, error: &storage::AppendError) -> AppendError {
    match error {
        storage::AppendError::OutOfOrderSequence { .. } => AppendError::OutOfOrderSequence,
        storage::AppendError::InvalidProducerEpoch { .. } => AppendError::InvalidProducerEpoch,
        storage::AppendError::TransactionOpen { .. } => AppendError::TransactionOpen,
        storage::AppendError::CoordinatorFenced { .. } => AppendError::CoordinatorFenced,
        storage::AppendError::TooLarge { .. } => AppendError::TooLarge,
        storage::AppendError::UnknownPartition => AppendError::Io(IoError::NotOpen),
        storage::AppendError::Malformed(_)
        | storage::AppendError::Poisoned
        | storage::AppendError::Full
        | storage::AppendError::Io(_) => {
            tell(logs, partition, &format_args!("append failed: {error}"));
            AppendError::Io(IoError::Storage)
        }
    }
}

pub(super) fn read_error(logs: &Logs, partition: PartitionId, error: &ReadError) -> IoError {
    match error {
        ReadError::OutOfRange { .. } => IoError::OutOfRange,
        ReadError::UnknownPartition => IoError::NotOpen,
        ReadError::Damaged { .. } => {
            tell(logs, partition, error);
            IoError::Corrupt
        }
        ReadError::Io(_) => {
            tell(logs, partition, error);
            IoError::Storage
        }
    }
}

pub(super) fn io_error(logs: &Logs, partition: PartitionId, error: &StorageError) -> IoError {
    match error {
        StorageError::UnknownPartition => IoError::NotOpen,
        StorageError::Damaged { .. } => {
            tell(logs, partition, error);
            IoError::Corrupt
        }
        StorageError::Locked
        | StorageError::Foreign
        | StorageError::WrongNode { .. }
        | StorageError::EpochAhead { .. }
        | StorageError::Missing { .. }
        | StorageError::Strays { .. }
        | StorageError::NewerFormat { .. }
        | StorageError::Poisoned
        | StorageError::Full
        | StorageError::Io { .. }
        | StorageError::Metadata(_) => {
            tell(logs, partition, error);
            IoError::Storage
        }
    }
}

/// Tells of a partition's trouble.
pub(super) fn tell(logs: &Logs, partition: PartitionId, trouble: &dyn fmt::Display) {
    match logs.name(partition) {
        Some((topic, index)) => tell_of(&format_args!("{topic}-{index}"), trouble),
        None => tell_of(&"a partition that is gone", trouble),
    }
}

fn tell_of(place: &dyn fmt::Display, trouble: &dyn fmt::Display) {
    let (clock, limit) = &*LINES;
    let Verdict { told, silent_before } = limit.judge(clock.mono().0 / SECOND);
    if silent_before > 0 {
        tracing::error!("{silent_before} more requests failed on the disk");
    }
    if told {
        tracing::error!("{place}: {trouble}");
    }
}

/// What concerns no partition.
pub(super) fn metadata_error(error: &StorageError) -> IoError {
    tell_of(&"metadata", error);
    IoError::Storage
}
