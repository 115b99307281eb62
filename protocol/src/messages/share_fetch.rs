//! ShareFetch (key 78, v1–v2; KIP-932).
//!
//! v2 acquire mode and renewal (KIP-1206, KIP-1222). All versions are flexible. v0 was an early access form
//! that Kafka no longer serves.

use bytes::Bytes;
use kafka_wire_core::StrBytes;
use records::ids::{Offset, TopicId};

use super::common::{LeaderIdAndEpoch, NodeEndpoint};
use crate::error_code::ErrorCode;
use crate::segments::Records;

flexible_message! {
    /// A ShareFetch request.
    pub struct ShareFetchRequest {
        /// The share group.
        group_id: Option<StrBytes>;
        /// The member.
        member_id: Option<StrBytes>;
        /// The session's epoch: 0 opens, −1 closes, else one more than the last.
        share_session_epoch: i32;
        /// Longest wait for `min_bytes`, in ms.
        max_wait_ms: i32;
        /// Bytes that end the wait.
        min_bytes: i32;
        /// Most bytes in all, but for the first batch (KIP-74).
        max_bytes: i32;
        /// Most records, but for the rest of a batch in the batch-optimised mode.
        max_records: i32;
        /// Records that an acquired range should hold.
        batch_size: i32;
        /// 0: whole batches, 1: `max_records` binds.
        share_acquire_mode: i8, since 2 or 0;
        /// Whether acknowledgements of type 4 (renew) are among those of this request.
        is_renew_ack: bool, since 2 or false;
        /// What to fetch, or what to add to the session, with acknowledgements.
        topics: Vec<ShareFetchTopic>;
        /// What to take out of the session.
        forgotten_topics: Vec<ShareForgottenTopic>;
    }

    /// One topic of a ShareFetch request.
    pub struct ShareFetchTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<ShareFetchPartition>;
    }

    /// One partition of a ShareFetch request.
    pub struct ShareFetchPartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// What the member has done with records that it holds.
        acknowledgements: Vec<AcknowledgementBatch>;
    }

    /// What a member has done with a range of offsets.
    pub struct AcknowledgementBatch {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
        /// One type for all offsets, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (v2). A
        /// slice of the frame, one byte a type.
        types: Bytes;
    }

    /// A topic whose partitions leave the session.
    pub struct ShareForgottenTopic {
        /// The topic.
        topic_id: TopicId;
        /// Indexes of its partitions.
        partitions: Vec<i32>;
    }

    /// A ShareFetch answer.
    pub struct ShareFetchResponse<F> {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// How long acquired records are locked, in ms.
        acquisition_lock_timeout_ms: i32;
        /// The topics, in the order of the session.
        topics: Vec<ShareFetchTopicResponse<F>>;
        /// Where the leaders named by partitions are reached.
        node_endpoints: Vec<NodeEndpoint>;
    }

    /// One topic of a ShareFetch answer.
    pub struct ShareFetchTopicResponse<F> {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<ShareFetchPartitionResponse<F>>;
    }

    /// One partition of a ShareFetch answer.
    pub struct ShareFetchPartitionResponse<F> {
        /// The partition's index.
        index: i32;
        /// What went wrong with the fetch, if anything.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// What went wrong with the acknowledgements, if anything.
        acknowledge_error_code: ErrorCode;
        /// The same in words.
        acknowledge_error_message: Option<StrBytes>;
        /// The leader, if it is another broker.
        current_leader: LeaderIdAndEpoch;
        /// Whole batches, ascending, no batch twice.
        records: Records<F>;
        /// Which of the records the member now holds: ascending, disjoint, each in `records`.
        acquired_records: Vec<AcquiredRecords>;
    }

    /// Records that a member holds from this answer on.
    pub struct AcquiredRecords {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
        /// How often each was delivered, this time included.
        delivery_count: i16;
    }
}
