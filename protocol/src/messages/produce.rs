//! Produce (key 0, v3–v13).
//!
//! v5 log start offset, v8 errors per record (KIP-467), v9 flexible, v10 current leader and node endpoints
//! (KIP-951), v13 topics by id (KIP-516). v0–v2 are advertised and not served (KIP-896).

use bytes::Bytes;
use kafka_wire_core::StrBytes;
use records::ids::Offset;

use super::common::{LeaderIdAndEpoch, NodeEndpoint, TopicRef, write_endpoints};
use crate::decode::{DecodeError, Read, Reader};
use crate::encode::{Write, Writer};
use crate::error_code::ErrorCode;
use crate::segments::SegmentLen;

const TOPIC_IDS_FROM: i16 = 13;

/// A Produce request. The record bytes are slices of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    /// Set by a transactional producer.
    pub transactional_id: Option<StrBytes>,
    /// 0: no answer at all, 1: the leader has written, −1: all in-sync replicas have.
    pub acks: i16,
    /// How long to wait for replicas, in ms.
    pub timeout_ms: i32,
    /// What to append, in the order of the request.
    pub topics: Vec<ProduceTopic>,
}

/// One topic of a Produce request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTopic {
    /// The topic, by id from v13 on.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<ProducePartition>,
}

/// One partition of a Produce request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartition {
    /// The partition's index as sent: possibly of no partition.
    pub index: i32,
    /// What should be exactly one batch; not looked at here.
    pub records: Option<Bytes>,
}

/// A Produce answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceResponse {
    /// One for each topic of the request, in its order.
    pub topics: Vec<ProduceTopicResponse>,
    /// How long the client should pause, in ms.
    pub throttle_time_ms: i32,
    /// Where the leaders named by partitions are reached; left out before v10.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a Produce answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    /// The topic in the form of the request.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<ProducePartitionResponse>,
}

/// One partition of a Produce answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    /// The partition's index.
    pub index: i32,
    /// What went wrong, if anything.
    pub error_code: ErrorCode,
    /// Offset of the batch's first record, −1 on error.
    pub base_offset: Offset,
    /// Time of the append in ms where the topic stamps it, else −1.
    pub log_append_time_ms: i64,
    /// Where the log starts, −1 if unknown; left out before v5.
    pub log_start_offset: Offset,
    /// Which records were refused (KIP-467); left out before v8.
    pub record_errors: Vec<RecordError>,
    /// Why the batch was refused; left out before v8.
    pub error_message: Option<StrBytes>,
    /// The leader, if it is another broker; left out before v10.
    pub current_leader: Option<LeaderIdAndEpoch>,
}

/// A record that caused its batch to be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The record's index in the batch, from 0.
    pub batch_index: i32,
    /// What is wrong with it.
    pub message: Option<StrBytes>,
}

impl ProducePartitionResponse {
    /// The answer for a partition that nothing was appended to.
    #[must_use]
    pub const fn error(index: i32, error_code: ErrorCode) -> Self {
        Self {
            index,
            error_code,
            base_offset: Offset(-1),
            log_append_time_ms: -1,
            log_start_offset: Offset(-1),
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

impl Read for ProduceRequest {
    const WIRE_MIN: usize = 8;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let request = Self {
            transactional_id: reader.nullable_string()?,
            acks: reader.i16()?,
            timeout_ms: reader.i32()?,
            topics: reader.vec(ProduceTopic::WIRE_MIN, ProduceTopic::read)?,
        };
        reader.skip_tags()?;
        Ok(request)
    }
}

impl Read for ProduceTopic {
    const WIRE_MIN: usize = TopicRef::WIRE_MIN + 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let topic = Self {
            topic: TopicRef::read(reader, TOPIC_IDS_FROM)?,
            partitions: reader.vec(ProducePartition::WIRE_MIN, ProducePartition::read)?,
        };
        reader.skip_tags()?;
        Ok(topic)
    }
}

impl Read for ProducePartition {
    const WIRE_MIN: usize = 5;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let partition = Self { index: reader.i32()?, records: reader.nullable_bytes()? };
        reader.skip_tags()?;
        Ok(partition)
    }
}

impl<F: SegmentLen> Write<F> for ProduceResponse {
    fn write(self, writer: &mut Writer<F>) {
        writer.vec(self.topics, |writer, topic| {
            topic.topic.write(writer, TOPIC_IDS_FROM);
            writer.vec(topic.partitions, |writer, partition| partition.write(writer));
            writer.no_tags();
        });
        writer.i32(self.throttle_time_ms);
        if writer.version() >= 10 && !self.node_endpoints.is_empty() {
            let endpoints = write_endpoints(writer, self.node_endpoints);
            writer.tags(vec![(0, endpoints)]);
        } else {
            writer.no_tags();
        }
    }
}

impl<F: SegmentLen> Write<F> for ProducePartitionResponse {
    fn write(self, writer: &mut Writer<F>) {
        writer.i32(self.index);
        writer.i16(self.error_code.code());
        writer.i64(self.base_offset.get());
        writer.i64(self.log_append_time_ms);
        if writer.version() >= 5 {
            writer.i64(self.log_start_offset.get());
        }
        if writer.version() >= 8 {
            writer.vec(self.record_errors, |writer, error| {
                writer.i32(error.batch_index);
                writer.nullable_string(error.message.as_ref());
                writer.no_tags();
            });
            writer.nullable_string(self.error_message.as_ref());
        }
        match self.current_leader {
            Some(leader) if writer.version() >= 10 && leader != LeaderIdAndEpoch::UNKNOWN => {
                let leader = writer.tag_value(|writer| leader.write(writer));
                writer.tags(vec![(0, leader)]);
            }
            _ => writer.no_tags(),
        }
    }
}
