//! KeyShareAcknowledge (key 10079, v0): ours, defined by `schemas/KeyShareAcknowledgeRequest.json` and
//! `schemas/KeyShareAcknowledgeResponse.json`.
//!
//! Accept, release with delay, reject with reason, renew: a result for each range.

use kafka_wire_core::StrBytes;
use records::ids::{Offset, TopicId};

use super::common::{LeaderIdAndEpoch, NodeEndpoint};
use super::key_share_fetch::{AcknowledgeResult, Acknowledgement, RecalledRange};
use crate::error_code::ErrorCode;

flexible_message! {
    /// A KeyShareAcknowledge request.
    pub struct KeyShareAcknowledgeRequest {
        /// The share group, or the id under which a standalone reader's ranges are committed.
        group_id: StrBytes;
        /// The member, or null for a standalone reader.
        member_id: Option<StrBytes>;
        /// The session's epoch: −1 closes it, else one more than the last.
        session_epoch: i32;
        /// The acknowledgements.
        topics: Vec<KeyShareAcknowledgeTopic>;
    }

    /// One topic of a KeyShareAcknowledge request.
    pub struct KeyShareAcknowledgeTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareAcknowledgePartition>;
    }

    /// One partition of a KeyShareAcknowledge request.
    pub struct KeyShareAcknowledgePartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// What the member has done with records that it holds.
        acknowledgements: Vec<Acknowledgement>;
    }

    /// A KeyShareAcknowledge answer.
    pub struct KeyShareAcknowledgeResponse {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// How long renewed records are locked, in ms.
        acquisition_lock_timeout_ms: i32;
        /// The topics, in the order of the request.
        topics: Vec<KeyShareAcknowledgeTopicResponse>;
        /// Where the leaders named by partitions are reached.
        node_endpoints: Vec<NodeEndpoint>;
    }

    /// One topic of a KeyShareAcknowledge answer.
    pub struct KeyShareAcknowledgeTopicResponse {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareAcknowledgePartitionResponse>;
    }

    /// One partition of a KeyShareAcknowledge answer.
    pub struct KeyShareAcknowledgePartitionResponse {
        /// The partition's index.
        index: i32;
        /// What went wrong with all of it, if anything.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// One for each acknowledgement of the request, in its order.
        acknowledge_results: Vec<AcknowledgeResult>;
        /// What the member held and must drop unworked.
        recalled_ranges: Vec<RecalledRange>;
        /// How long renewed ranges are locked, from when the answer was written, in ms; −1 without any.
        lease_ms: i32, since 0 or -1;
        /// Everything below it is done, −1 on error.
        start_offset: Offset, since 0 or Offset(-1);
        /// The leader, if it is another broker.
        current_leader: LeaderIdAndEpoch;
    }
}
