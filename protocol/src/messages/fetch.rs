//! Fetch (key 1, v4–v18).
//!
//! v5 log start offset, v7 sessions (KIP-227), v9 current leader epoch (KIP-320), v11 rack (KIP-392), v12
//! flexible, last fetched epoch, diverging epoch (KIP-595), v13 topics by id (KIP-516), v15 replica state in a
//! tag (KIP-903), v16 node endpoints (KIP-951), v17 and v18 tags of followers only. What only followers send
//! is skipped, but for the replica id.

use kafka_wire_core::StrBytes;
use records::ids::Offset;

use super::common::{LeaderIdAndEpoch, NodeEndpoint, TopicRef, write_endpoints};
use crate::decode::{DecodeError, Read, Reader};
use crate::encode::{Write, Writer};
use crate::error_code::ErrorCode;
use crate::segments::{Records, SegmentLen};

const TOPIC_IDS_FROM: i16 = 13;

/// A Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// −1 from a consumer, else the follower's node id.
    pub replica_id: i32,
    /// Longest wait for `min_bytes`, in ms.
    pub max_wait_ms: i32,
    /// Bytes that end the wait.
    pub min_bytes: i32,
    /// Most bytes in all, but for the first batch (KIP-74).
    pub max_bytes: i32,
    /// 0: all records, 1: committed ones only.
    pub isolation_level: i8,
    /// The session, 0 for none or a new one; 0 before v7.
    pub session_id: i32,
    /// The session's epoch: 0 opens, −1 closes or goes without; −1 before v7.
    pub session_epoch: i32,
    /// What to fetch, or what to add to the session.
    pub topics: Vec<FetchTopic>,
    /// What to take out of the session; empty before v7.
    pub forgotten_topics: Vec<ForgottenTopic>,
    /// The consumer's rack, empty for none; empty before v11.
    pub rack_id: StrBytes,
}

/// One topic of a Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// The topic, by id from v13 on.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<FetchPartition>,
}

/// One partition of a Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The partition's index as sent: possibly of no partition.
    pub index: i32,
    /// The leader epoch that the client knows, −1 for none; −1 before v9.
    pub current_leader_epoch: i32,
    /// First offset that is wanted, as sent: possibly negative.
    pub fetch_offset: Offset,
    /// Epoch of the last record that was fetched, −1 for none; −1 before v12.
    pub last_fetched_epoch: i32,
    /// A follower's log start, −1 from a consumer.
    pub log_start_offset: Offset,
    /// Most bytes of this partition, but for the first batch.
    pub partition_max_bytes: i32,
}

/// A topic whose partitions leave the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// The topic, by id from v13 on.
    pub topic: TopicRef,
    /// Indexes of its partitions.
    pub partitions: Vec<i32>,
}

/// A Fetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse<F = std::convert::Infallible> {
    /// How long the client should pause, in ms.
    pub throttle_time_ms: i32,
    /// What is wrong with the whole request; left out before v7.
    pub error_code: ErrorCode,
    /// The session, 0 for none; left out before v7.
    pub session_id: i32,
    /// The topics, in the order of the request.
    pub topics: Vec<FetchTopicResponse<F>>,
    /// Where the leaders named by partitions are reached; left out before v16.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a Fetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopicResponse<F = std::convert::Infallible> {
    /// The topic in the form of the request.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<FetchPartitionResponse<F>>,
}

/// One partition of a Fetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartitionResponse<F = std::convert::Infallible> {
    /// The partition's index.
    pub index: i32,
    /// What went wrong, if anything.
    pub error_code: ErrorCode,
    /// End of what is visible, −1 on error.
    pub high_watermark: Offset,
    /// End of what is decided, −1 on error.
    pub last_stable_offset: Offset,
    /// Where the log starts, −1 on error; left out before v5.
    pub log_start_offset: Offset,
    /// Where the client's log went another way; left out before v12.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// The leader, if it is another broker; left out before v12.
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// The snapshot to fetch instead; left out before v12.
    pub snapshot_id: Option<SnapshotId>,
    /// Transactions whose records to leave out; `None` for readers of uncommitted records.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// The replica to read from, −1 for this one; left out before v11.
    pub preferred_read_replica: i32,
    /// Whole batches.
    pub records: Records<F>,
}

/// Where an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// The epoch.
    pub epoch: i32,
    /// The first offset behind it.
    pub end_offset: Offset,
}

/// A snapshot of a metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// The first offset behind it.
    pub end_offset: Offset,
    /// Its epoch.
    pub epoch: i32,
}

/// An aborted transaction that overlaps the fetched range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: Offset,
}

impl<F> Default for FetchResponse<F> {
    fn default() -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: ErrorCode::None,
            session_id: 0,
            topics: Vec::new(),
            node_endpoints: Vec::new(),
        }
    }
}

impl<F> FetchPartitionResponse<F> {
    /// The answer for a partition that cannot be read.
    #[must_use]
    pub const fn error(index: i32, error_code: ErrorCode) -> Self {
        Self {
            index,
            error_code,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            diverging_epoch: None,
            current_leader: None,
            snapshot_id: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Records::new(),
        }
    }
}

impl Read for FetchRequest {
    const WIRE_MIN: usize = 18;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let version = reader.version();
        let mut request = Self {
            replica_id: if version <= 14 { reader.i32()? } else { -1 },
            max_wait_ms: reader.i32()?,
            min_bytes: reader.i32()?,
            max_bytes: reader.i32()?,
            isolation_level: reader.i8()?,
            session_id: if version >= 7 { reader.i32()? } else { 0 },
            session_epoch: if version >= 7 { reader.i32()? } else { -1 },
            topics: reader.vec(FetchTopic::WIRE_MIN, FetchTopic::read)?,
            forgotten_topics: if version >= 7 {
                reader.vec(ForgottenTopic::WIRE_MIN, ForgottenTopic::read)?
            } else {
                Vec::new()
            },
            rack_id: if version >= 11 { reader.string()? } else { StrBytes::default() },
        };
        let replica_id = &mut request.replica_id;
        reader.tags(|tag, value| {
            if tag == 1 && version >= 15 {
                *replica_id = value.i32()?;
            }
            Ok(())
        })?;
        Ok(request)
    }
}

impl Read for FetchTopic {
    const WIRE_MIN: usize = TopicRef::WIRE_MIN + 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let topic = Self {
            topic: TopicRef::read(reader, TOPIC_IDS_FROM)?,
            partitions: reader.vec(FetchPartition::WIRE_MIN, FetchPartition::read)?,
        };
        reader.skip_tags()?;
        Ok(topic)
    }
}

impl Read for FetchPartition {
    const WIRE_MIN: usize = 16;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let version = reader.version();
        let partition = Self {
            index: reader.i32()?,
            current_leader_epoch: if version >= 9 { reader.i32()? } else { -1 },
            fetch_offset: Offset(reader.i64()?),
            last_fetched_epoch: if version >= 12 { reader.i32()? } else { -1 },
            log_start_offset: Offset(if version >= 5 { reader.i64()? } else { -1 }),
            partition_max_bytes: reader.i32()?,
        };
        reader.skip_tags()?;
        Ok(partition)
    }
}

impl Read for ForgottenTopic {
    const WIRE_MIN: usize = TopicRef::WIRE_MIN + 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let topic = Self {
            topic: TopicRef::read(reader, TOPIC_IDS_FROM)?,
            partitions: reader.vec(i32::WIRE_MIN, i32::read)?,
        };
        reader.skip_tags()?;
        Ok(topic)
    }
}

impl<F: SegmentLen> Write<F> for FetchResponse<F> {
    fn write(self, writer: &mut Writer<F>) {
        writer.i32(self.throttle_time_ms);
        if writer.version() >= 7 {
            writer.i16(self.error_code.code());
            writer.i32(self.session_id);
        }
        writer.vec(self.topics, |writer, topic| {
            topic.topic.write(writer, TOPIC_IDS_FROM);
            writer.vec(topic.partitions, |writer, partition| partition.write(writer));
            writer.no_tags();
        });
        if writer.version() >= 16 && !self.node_endpoints.is_empty() {
            let endpoints = write_endpoints(writer, self.node_endpoints);
            writer.tags(vec![(0, endpoints)]);
        } else {
            writer.no_tags();
        }
    }
}

impl<F: SegmentLen> Write<F> for FetchPartitionResponse<F> {
    fn write(self, writer: &mut Writer<F>) {
        writer.i32(self.index);
        writer.i16(self.error_code.code());
        writer.i64(self.high_watermark.get());
        writer.i64(self.last_stable_offset.get());
        if writer.version() >= 5 {
            writer.i64(self.log_start_offset.get());
        }
        writer.nullable_vec(self.aborted_transactions, |writer, transaction| {
            writer.i64(transaction.producer_id);
            writer.i64(transaction.first_offset.get());
            writer.no_tags();
        });
        if writer.version() >= 11 {
            writer.i32(self.preferred_read_replica);
        }
        writer.records(self.records);
        let mut tags = Vec::new();
        if writer.version() >= 12 {
            if let Some(EpochEndOffset { epoch, end_offset }) = self.diverging_epoch {
                tags.push((
                    0,
                    writer.tag_value(|writer| {
                        writer.i32(epoch);
                        writer.i64(end_offset.get());
                        writer.no_tags();
                    }),
                ));
            }
            if let Some(leader) = self.current_leader {
                tags.push((1, writer.tag_value(|writer| leader.write(writer))));
            }
            if let Some(SnapshotId { end_offset, epoch }) = self.snapshot_id {
                tags.push((
                    2,
                    writer.tag_value(|writer| {
                        writer.i64(end_offset.get());
                        writer.i32(epoch);
                        writer.no_tags();
                    }),
                ));
            }
        }
        writer.tags(tags);
    }
}
