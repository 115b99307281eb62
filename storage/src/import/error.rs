//! Why a data directory cannot be taken over, and what to do about it.

use records::ids::Offset;

use crate::error::StorageError;

/// The source's files are untouched, and of the target nothing is left that counts.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Name the directories of the broker's `log.dirs`.
    #[error("{dir} is no data directory of an Apache Kafka broker ({reason}); name those of its log.dirs")]
    NotKafka {
        /// The directory.
        dir: String,
        /// What is missing or unknown.
        reason: String,
    },
    /// Stop the broker that uses it.
    #[error("{dir} is in use; stop the Kafka broker first")]
    InUse {
        /// The directory.
        dir: String,
    },
    /// Name the directories of one broker.
    #[error("{dir} and {first} belong to different brokers; name the directories of one")]
    OtherBroker {
        /// The directory.
        dir: String,
        /// The one named first.
        first: String,
    },
    /// Start the broker once more, and stop it in order.
    #[error(
        "{dir} was not closed in order: start the Kafka broker and stop it with SIGTERM, or say --unclean to take \
         what is whole up to the high watermarks that it wrote last"
    )]
    Unclean {
        /// The directory.
        dir: String,
    },
    /// None of the directories holds the metadata log.
    #[error("no {0} here: name the broker's metadata.log.dir too")]
    NoMetadata(String),
    /// A file is damaged.
    #[error(
        "{path}{at}: {reason}; nothing was taken over: restore it, or leave its topic out with --skip",
        at = .position.map_or(String::new(), |position| format!(" at byte {position}"))
    )]
    Damaged {
        /// Which, with its directory.
        path: String,
        /// Where in it; `None` where it concerns the file as a whole.
        position: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// Records are missing where nothing was compacted.
    #[error(
        "{path} at byte {position}: offsets {from} to {to} are missing, and nothing there was compacted; nothing was \
         taken over: restore the file, or leave its topic out with --skip"
    )]
    Gap {
        /// Which file.
        path: String,
        /// Where the record batch begins that comes too early.
        position: u64,
        /// The first offset that is missing.
        from: Offset,
        /// The last.
        to: Offset,
    },
    /// Nothing says which of a partition's records are committed.
    #[error(
        "{path} has no line for partition {partition} of topic {topic}, which has records; nothing was taken over: start \
         the Kafka broker and stop it with SIGTERM, which writes it, restore the file, or leave the topic out with --skip"
    )]
    NoHighWatermark {
        /// The checkpoint file, with its directory.
        path: String,
        /// The topic.
        topic: String,
        /// The partition's index.
        partition: i32,
    },
    /// Nothing says which records were deleted.
    #[error(
        "{path} {reason}; nothing was taken over: restore it, or write a file of two lines, 0 and 0, in its place if \
         records were never deleted with DeleteRecords"
    )]
    NoLogStarts {
        /// The checkpoint file, with its directory.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A partition is in none of the directories.
    #[error(
        "partition {partition} of topic {topic} is in none of the directories; name all log.dirs of a broker that has \
         every partition, or leave the topic out with --skip"
    )]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition's index.
        partition: i32,
    },
    /// The target has a topic of that name or id already.
    #[error("the target has topic {0} already, or one of the same id; leave it out with --skip")]
    Exists(String),
    /// The target cannot be used, or the disk fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
