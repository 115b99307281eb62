//! KeyShareCommit (key 10008, v0): ours, defined by `schemas/KeyShareCommitRequest.json` and
//! `schemas/KeyShareCommitResponse.json`.
//!
//! Ranges of offsets that a standalone reader is done with, beyond the start offset or at it.

use kafka_wire_core::StrBytes;
use records::ids::{Offset, TopicId};

use crate::error_code::ErrorCode;

flexible_message! {
    /// A KeyShareCommit request.
    pub struct KeyShareCommitRequest {
        /// The id under which the reader's ranges are committed.
        group_id: StrBytes;
        /// What to commit.
        topics: Vec<KeyShareCommitTopic>;
    }

    /// One topic of a KeyShareCommit request.
    pub struct KeyShareCommitTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareCommitPartition>;
    }

    /// One partition of a KeyShareCommit request.
    pub struct KeyShareCommitPartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// What is done.
        ranges: Vec<OffsetRange>;
    }

    /// A range of offsets.
    pub struct OffsetRange {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
    }

    /// A KeyShareCommit answer.
    pub struct KeyShareCommitResponse {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// The topics, in the order of the request.
        topics: Vec<KeyShareCommittedTopic>;
    }

    /// One topic of a KeyShareCommit answer.
    pub struct KeyShareCommittedTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareCommittedPartition>;
    }

    /// One partition of a KeyShareCommit answer.
    pub struct KeyShareCommittedPartition {
        /// The partition's index.
        index: i32;
        /// Why nothing of it was committed, if so.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// Everything below it is done, −1 on error.
        start_offset: Offset, since 0 or Offset(-1);
    }
}
