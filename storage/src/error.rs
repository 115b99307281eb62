//! The crate's errors, sorted by what the caller must do.

use std::io;

use records::ids::Offset;

/// A data directory, a log or the metadata store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Stop the other process, or take another directory.
    #[error("the data directory is in use by another process; stop it or choose another directory")]
    Locked,
    /// Take it over into another directory, or put the metadata store back.
    #[error(
        "the data directory has meta.properties and no metadata store: if it is a Kafka broker's, take it over with \
         sluice import into another one; if it is ours, restore sluice-metadata.redb"
    )]
    Foreign,
    /// Start with the right node id, or take another directory.
    #[error("the data directory belongs to node {stored}, not {asked}; start with that node id")]
    WrongNode {
        /// As written in `meta.properties`.
        stored: i32,
        /// As configured.
        asked: i32,
    },
    /// The log was written under a newer epoch than the broker's: raise the epoch before opening it.
    #[error("log {log} bears leader epoch {found}, above the broker's {current}; restore its metadata")]
    EpochAhead {
        /// The log's directory.
        log: String,
        /// The epoch found in it.
        found: i32,
        /// The broker's.
        current: i32,
    },
    /// A file that cannot be rebuilt is damaged.
    #[error("{path} is damaged ({reason}); restore it from a backup")]
    Damaged {
        /// Which.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing is left of a log that held records: put its directory back, or say that they may be gone.
    #[error(
        "partition {topic}-{partition} has no files, although {file} tells of offsets {start} to {end}: put its directory \
         back (is its disk mounted?), or, to go on without these records for good, write 0 for {end} in the line \
         \"{topic} {partition} {end}\" of that file"
    )]
    Missing {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first offset that it held.
        start: Offset,
        /// The offset behind the last one.
        end: Offset,
        /// The checkpoint that tells of it.
        file: &'static str,
    },
    /// Remove those that nobody needs.
    #[error("too many directories beside {directory} end in -stray; move those away that nobody needs")]
    Strays {
        /// What would be set aside.
        directory: String,
    },
    /// A later release wrote it, and this one would misread it: start that release.
    #[error(
        "{path} has format {found}, this release knows formats up to {known}; start the release that wrote it"
    )]
    NewerFormat {
        /// Which.
        path: String,
        /// Its format.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// Open the partition first.
    #[error("partition is not open")]
    UnknownPartition,
    /// A sync failed: nothing may be appended before a restart.
    #[error("a sync of this log failed; check the disk, make room where it is full, then restart the broker")]
    Poisoned,
    /// Free some room, then try again.
    #[error("the disk is full; free some room")]
    Full,
    /// A call to the disk failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The metadata store failed.
    #[error("metadata store: {0}")]
    Metadata(Box<redb::Error>),
}

impl<E: Into<redb::Error>> From<E> for StorageError {
    fn from(error: E) -> Self {
        Self::Metadata(Box::new(error.into()))
    }
}

/// Names the action and the file of a failed call to the disk.
pub(crate) trait IoContext<T> {
    fn doing(self, action: &'static str, path: &str) -> Result<T, StorageError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, action: &'static str, path: &str) -> Result<T, StorageError> {
        self.map_err(|source| {
            if crate::disk::is_full(&source) {
                StorageError::Full
            } else {
                StorageError::Io { action, path: path.to_owned(), source }
            }
        })
    }
}

/// Why an append was refused; nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A batch of this producer is missing (Kafka's `OutOfOrderSequenceException`): the producer must recover.
    #[error("sequence {found} of producer {producer} does not follow {last}")]
    OutOfOrderSequence {
        /// The producer.
        producer: i64,
        /// The last sequence number stored; -1 before the first.
        last: i32,
        /// The first one of the refused batch.
        found: i32,
    },
    /// A newer instance of the producer is known: this one is fenced.
    #[error("epoch {found} of producer {producer} is older than {current}")]
    InvalidProducerEpoch {
        /// The producer.
        producer: i64,
        /// The epoch known.
        current: i16,
        /// The refused batch's.
        found: i16,
    },
    /// The producer has a transaction open here and writes outside of it (Kafka's `InvalidTxnStateException`): it must
    /// end it first.
    #[error("producer {producer} has a transaction open since offset {first}; end it first")]
    TransactionOpen {
        /// The producer.
        producer: i64,
        /// Where it began.
        first: Offset,
    },
    /// A newer coordinator has ended a transaction of this producer (Kafka's `TransactionCoordinatorFencedException`):
    /// this one must stop.
    #[error("coordinator epoch {found} for producer {producer} is older than {current}")]
    CoordinatorFenced {
        /// The producer.
        producer: i64,
        /// The epoch known.
        current: i32,
        /// The refused marker's.
        found: i32,
    },
    /// Send smaller batches, or raise `segment.bytes`.
    #[error("batch of {bytes} bytes is larger than a segment of {bytes_max}")]
    TooLarge {
        /// The batch's size.
        bytes: usize,
        /// The segment's.
        bytes_max: u64,
    },
    /// Not one whole batch: the caller skipped validation.
    #[error("not one whole batch: {0}")]
    Malformed(String),
    /// A sync failed before: nothing may be appended until the restart.
    #[error("a sync of this log failed; check the disk, make room where it is full, then restart the broker")]
    Poisoned,
    /// The disk is full. The log was cut back to where it was: try again later.
    #[error("the disk is full; free some room")]
    Full,
    /// The write failed. The log was cut back to where it was.
    #[error("cannot write the log: {0}")]
    Io(#[source] io::Error),
    /// Open the partition first.
    #[error("partition is not open")]
    UnknownPartition,
}

impl From<StorageError> for AppendError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Full => Self::Full,
            StorageError::Poisoned => Self::Poisoned,
            StorageError::UnknownPartition => Self::UnknownPartition,
            StorageError::Io { source, .. } => Self::Io(source),
            other => Self::Io(io::Error::other(other)),
        }
    }
}

/// Why a read was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Ask for an offset inside the log.
    #[error("offset {from} is outside of {log_start} to {end}")]
    OutOfRange {
        /// What was asked for.
        from: Offset,
        /// The first offset there is.
        log_start: Offset,
        /// The one behind the last.
        end: Offset,
    },
    /// Open the partition first.
    #[error("partition is not open")]
    UnknownPartition,
    /// The bytes at that place are no batch: report it, and take the records from elsewhere.
    #[error("log {log} is damaged at byte {position} of segment {segment}")]
    Damaged {
        /// The log's directory.
        log: String,
        /// The segment's base offset.
        segment: Offset,
        /// Where in its file.
        position: u64,
    },
    /// The disk failed.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
}

/// Why DeleteRecords was refused.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// Name an offset from 0 to the end.
    #[error("offset {to} is beyond the end {end}")]
    OutOfRange {
        /// What was asked for.
        to: Offset,
        /// The end of the log.
        end: Offset,
    },
    /// The log start could not be moved.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why the records of a selection cannot all be delivered.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The stored batch with these offsets is damaged: never deliver it, report it.
    #[error("stored batch {first} to {last} is damaged: {reason}")]
    Corrupt {
        /// Its first offset.
        first: Offset,
        /// Its last offset.
        last: Offset,
        /// What is wrong.
        reason: String,
    },
    /// The records left the log; plan anew from its start.
    #[error("records left the log, which starts at {log_start} now")]
    Gone {
        /// The first offset there is.
        log_start: Offset,
    },
    /// A chosen offset names no record (compaction took it, or it never was).
    #[error("there is no record at offset {0}")]
    Missing(Offset),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}
