//! ShareAcknowledge (key 79, v1–v2; KIP-932).
//!
//! v2 renewal, and the lock's length in the answer (KIP-1222). All versions are flexible.

use kafka_wire_core::StrBytes;
use records::ids::TopicId;

use super::common::{LeaderIdAndEpoch, NodeEndpoint};
use super::share_fetch::AcknowledgementBatch;
use crate::error_code::ErrorCode;

flexible_message! {
    /// A ShareAcknowledge request.
    pub struct ShareAcknowledgeRequest {
        /// The share group.
        group_id: Option<StrBytes>;
        /// The member.
        member_id: Option<StrBytes>;
        /// The session's epoch: −1 closes it, else one more than the last.
        share_session_epoch: i32;
        /// Whether acknowledgements of type 4 (renew) are among those of this request.
        is_renew_ack: bool, since 2 or false;
        /// The acknowledgements.
        topics: Vec<ShareAcknowledgeTopic>;
    }

    /// One topic of a ShareAcknowledge request.
    pub struct ShareAcknowledgeTopic {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<ShareAcknowledgePartition>;
    }

    /// One partition of a ShareAcknowledge request.
    pub struct ShareAcknowledgePartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// What the member has done with records that it holds.
        acknowledgements: Vec<AcknowledgementBatch>;
    }

    /// A ShareAcknowledge answer.
    pub struct ShareAcknowledgeResponse {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// How long renewed records are locked, in ms.
        acquisition_lock_timeout_ms: i32, since 2 or 0;
        /// The topics, in the order of the request.
        topics: Vec<ShareAcknowledgeTopicResponse>;
        /// Where the leaders named by partitions are reached.
        node_endpoints: Vec<NodeEndpoint>;
    }

    /// One topic of a ShareAcknowledge answer.
    pub struct ShareAcknowledgeTopicResponse {
        /// The topic.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<ShareAcknowledgePartitionResponse>;
    }

    /// One partition of a ShareAcknowledge answer.
    pub struct ShareAcknowledgePartitionResponse {
        /// The partition's index.
        index: i32;
        /// What went wrong, if anything.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// The leader, if it is another broker.
        current_leader: LeaderIdAndEpoch;
    }
}
