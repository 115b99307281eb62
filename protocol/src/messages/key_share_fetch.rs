//! KeyShareFetch (key 10078, v0): ours, defined by `schemas/KeyShareFetchRequest.json` and
//! `schemas/KeyShareFetchResponse.json`.
//!
//! What it adds to ShareFetch: a delivery number in every acknowledgement and a result for each, recalled
//! ranges, delay and reason, limits by keys, the lease's length, the promise to stop at a disconnect, and key
//! hash ranges.

use kafka_wire_core::StrBytes;
use records::ids::{KeyHash, Offset, TopicId};

use super::common::{LeaderIdAndEpoch, NodeEndpoint};
use crate::error_code::ErrorCode;
use crate::segments::Records;

/// Flag of a request: "I stop at disconnect". The member promises that its application stops work at once when
/// its connection is lost, so that the broker may give its keys to others without waiting for the grace time.
pub const STOPS_AT_DISCONNECT: i32 = 1;

flexible_message! {
    /// A KeyShareFetch request.
    pub struct KeyShareFetchRequest {
        /// The share group, or the id under which a standalone reader's ranges are committed.
        group_id: StrBytes;
        /// The member, or null for a standalone reader.
        member_id: Option<StrBytes>;
        /// The session's epoch: 0 opens, −1 closes, else one more than the last.
        session_epoch: i32;
        /// Longest wait for `min_bytes`, in ms.
        max_wait_ms: i32;
        /// Bytes that end the wait.
        min_bytes: i32;
        /// Most bytes in all, but for the first record.
        max_bytes: i32;
        /// Most records in all.
        max_records: i32;
        /// Most different keys in all.
        max_keys: i32;
        /// Most records of one key that the member holds at a time.
        max_records_per_key: i32;
        /// Bits: [`STOPS_AT_DISCONNECT`]. The others are 0.
        flags: i32;
        /// What to fetch, or what to add to the session, with acknowledgements.
        topics: Vec<KeyShareFetchTopic>;
        /// What to take out of the session.
        forgotten_topics: Vec<KeyShareForgottenTopic>;
    }

    /// One topic of a KeyShareFetch request.
    pub struct KeyShareFetchTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareFetchPartition>;
    }

    /// One partition of a KeyShareFetch request.
    pub struct KeyShareFetchPartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// Key hashes that are wanted, empty for all. A hint in a group, binding for a standalone reader.
        key_hash_ranges: Vec<KeyHashRange>;
        /// What the member has done with records that it holds.
        acknowledgements: Vec<Acknowledgement>;
    }

    /// A range of key hashes.
    pub struct KeyHashRange {
        /// Lowest hash of the range, as an unsigned number.
        first_hash: KeyHash;
        /// Highest hash of the range, included.
        last_hash: KeyHash;
    }

    /// What a member has done with a range of offsets that were delivered to it together.
    pub struct Acknowledgement {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
        /// The number under which the records were delivered.
        delivery_number: i64;
        /// An [`AcknowledgeType`](super::AcknowledgeType), gap excepted.
        acknowledge_type: i8;
        /// Of a release: how long the key waits, in ms; −1 for the group's backoff.
        delay_ms: i32, since 0 or -1;
        /// Of a release or reject: why, for logs and the dead-letter topic.
        reason: Option<StrBytes>;
    }

    /// A topic whose partitions leave the session.
    pub struct KeyShareForgottenTopic {
        /// The topic.
        topic_id: TopicId;
        /// Indexes of its partitions.
        partitions: Vec<i32>;
    }

    /// A KeyShareFetch answer.
    pub struct KeyShareFetchResponse<F> {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// How long acquired records are locked in this session, in ms.
        acquisition_lock_timeout_ms: i32;
        /// The topics, in the order of the session.
        topics: Vec<KeyShareFetchTopicResponse<F>>;
        /// Where the leaders named by partitions are reached.
        node_endpoints: Vec<NodeEndpoint>;
    }

    /// One topic of a KeyShareFetch answer.
    pub struct KeyShareFetchTopicResponse<F> {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareFetchPartitionResponse<F>>;
    }

    /// One partition of a KeyShareFetch answer.
    pub struct KeyShareFetchPartitionResponse<F> {
        /// The partition's index.
        index: i32;
        /// What went wrong with the fetch, if anything.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// One for each acknowledgement of the request, in its order.
        acknowledge_results: Vec<AcknowledgeResult>;
        /// Which of the records the member now holds: ascending, disjoint, each in `records`.
        acquired_ranges: Vec<AcquiredRange>;
        /// What the member held and must drop unworked.
        recalled_ranges: Vec<RecalledRange>;
        /// How long the acquired ranges are locked, from when the answer was written, in ms; −1 without any.
        lease_ms: i32, since 0 or -1;
        /// Everything below it is done, −1 on error.
        start_offset: Offset, since 0 or Offset(-1);
        /// End of what is visible, −1 on error.
        high_watermark: Offset, since 0 or Offset(-1);
        /// The leader, if it is another broker.
        current_leader: LeaderIdAndEpoch;
        /// Slim batches, ascending.
        records: Records<F>;
    }

    /// What became of one acknowledgement.
    pub struct AcknowledgeResult {
        /// First offset of the acknowledgement.
        first_offset: Offset;
        /// Last offset of the acknowledgement, included.
        last_offset: Offset;
        /// The acknowledgement's delivery number.
        delivery_number: i64;
        /// What went wrong, if anything. INVALID_RECORD_STATE: what of the range is held was acknowledged all the same.
        error_code: ErrorCode;
    }

    /// Records that a member holds from this answer on.
    pub struct AcquiredRange {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
        /// How often each was delivered, this time included.
        delivery_count: i16;
        /// What an acknowledgement of them repeats: boot number and grant sequence, never used twice.
        delivery_number: i64;
    }

    /// Records that a member held and no longer does.
    pub struct RecalledRange {
        /// First offset of the range.
        first_offset: Offset;
        /// Last offset of the range, included.
        last_offset: Offset;
        /// The number under which they were delivered.
        delivery_number: i64;
    }
}
