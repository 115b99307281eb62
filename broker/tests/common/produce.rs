//! Batches that a client may send, right and wrong ones, and what the broker says to them.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, ListOffsetsRequest, ProduceRequest, ProduceResponse, TopicName, TransactionalId,
};
use records::batch::{BatchBuilder, BatchView};
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};
use uuid::Uuid;

use super::client::{Client, text};
use super::common::Server;

/// Versions of Produce.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;
/// First version that names topics by id.
pub const IDS_FROM: i16 = 13;
/// Those in which a codec may stand: zstd is younger than the others (KIP-110).
pub fn versions(codec: Codec) -> std::ops::RangeInclusive<i16> {
    if codec == Codec::Zstd { 7..=13 } else { VERSIONS }
}

/// Timestamps of [`batch`] begin here, in ms since 1970.
pub const TIME: i64 = 1_000_000;

/// Records with a key and a value of their own, one ms apart.
pub fn batch(codec: Codec, count: usize) -> Bytes {
    let mut batch = BatchBuilder::new(codec, TimestampType::Create);
    for number in 0..count {
        let (key, value) = (format!("k{number}"), format!("v{number}"));
        batch.append(TIME + number as i64, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    batch.build(Offset(0), -1)
}

/// The batch of an idempotent producer.
pub fn numbered(codec: Codec, producer: (i64, i16), sequence: i32, count: usize) -> Bytes {
    edited(&batch(codec, count), |bytes| {
        bytes[43..51].copy_from_slice(&producer.0.to_be_bytes());
        bytes[51..53].copy_from_slice(&producer.1.to_be_bytes());
        bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    })
}

/// The batch after a change, with a length and a CRC that fit.
pub fn edited(batch: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = batch.to_vec();
    change(&mut bytes);
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(bytes)
}

/// The batch with these attributes.
pub fn with_attributes(batch: &[u8], attributes: i16) -> Bytes {
    edited(batch, |bytes| bytes[21..23].copy_from_slice(&attributes.to_be_bytes()))
}

/// The batch with this payload behind its header.
pub fn with_payload(batch: &[u8], payload: &[u8]) -> Bytes {
    edited(batch, |bytes| {
        bytes.truncate(61);
        bytes.extend_from_slice(payload);
    })
}

/// A partition's index and the batch for it.
pub type Sent = (i32, Option<Bytes>);

/// One partition's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub code: i16,
    pub base: i64,
    pub append_time: i64,
    pub log_start: i64,
    /// Batch index and text of each refused record.
    pub faults: Vec<(i32, String)>,
}

impl Said {
    pub fn short(&self) -> (i16, i64) {
        (self.code, self.base)
    }
}

/// Sends to partition 0 of a topic, with acks all.
pub async fn produce(server: &Server, client: &mut Client, topic: &str, batch: Bytes) -> Said {
    produce_as(server, client, 9, topic, -1, Some(batch)).await
}

pub async fn produce_as(
    server: &Server,
    client: &mut Client,
    version: i16,
    topic: &str,
    acks: i16,
    batch: Option<Bytes>,
) -> Said {
    let request = request(server, version, &[(topic, vec![(0, batch)])]).with_acks(acks);
    let mut said = all_said(&client.call(version, &request).await);
    assert_eq!(said.len(), 1);
    said.remove(0)
}

pub fn request(server: &Server, version: i16, topics: &[(&str, Vec<Sent>)]) -> ProduceRequest {
    let topics = topics.iter().map(|(name, parts)| {
        let parts = parts.iter().map(|(index, batch)| {
            PartitionProduceData::default().with_index(*index).with_records(batch.clone())
        });
        let topic = TopicProduceData::default().with_partition_data(parts.collect());
        if version < IDS_FROM {
            topic.with_name(TopicName(text(name)))
        } else {
            topic.with_topic_id(id(server, name))
        }
    });
    ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(topics.collect())
}

pub fn transactional(request: ProduceRequest, id: &str) -> ProduceRequest {
    request.with_transactional_id(Some(TransactionalId(text(id))))
}

pub fn all_said(answer: &ProduceResponse) -> Vec<Said> {
    let parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    parts
        .map(|part| Said {
            code: part.error_code,
            base: part.base_offset,
            append_time: part.log_append_time_ms,
            log_start: part.log_start_offset,
            faults: part
                .record_errors
                .iter()
                .map(|fault| {
                    (
                        fault.batch_index,
                        fault.batch_index_error_message.as_deref().unwrap_or_default().to_owned(),
                    )
                })
                .collect(),
        })
        .collect()
}

fn id(server: &Server, name: &str) -> Uuid {
    server
        .running
        .broker()
        .catalog
        .image()
        .topic(name)
        .map_or(Uuid::from_u128(77), |topic| Uuid::from_bytes(topic.id.0))
}

/// Error, offset and timestamp of ListOffsets for partition 0.
pub async fn offset_for(client: &mut Client, topic: &str, timestamp: i64) -> (i16, i64, i64) {
    let part = ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(TopicName(text(topic))).with_partitions(vec![part]);
    let answer = client.call(7, &ListOffsetsRequest::default().with_topics(vec![topic])).await;
    let part = &answer.topics[0].partitions[0];
    (part.error_code, part.offset, part.timestamp)
}

/// The end offset of partition 0.
pub async fn end(client: &mut Client, topic: &str) -> i64 {
    let (code, offset, _) = offset_for(client, topic, -1).await;
    assert_eq!(code, 0);
    offset
}

/// The batches of partition 0 from an offset on, as they are fetched.
pub async fn stored(client: &mut Client, topic: &str, from: i64) -> Vec<Bytes> {
    let part = FetchPartition::default().with_fetch_offset(from).with_partition_max_bytes(16 << 20);
    let topic = FetchTopic::default().with_topic(TopicName(text(topic))).with_partitions(vec![part]);
    let request =
        FetchRequest::default().with_max_bytes(16 << 20).with_session_epoch(-1).with_topics(vec![topic]);
    let answer = client.call(11, &request).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!(part.error_code, 0);
    let bytes = part.records.clone().unwrap();
    Batches::new(&bytes).map(|batch| Bytes::copy_from_slice(batch.unwrap().bytes())).collect()
}

/// What a batch becomes where the broker changes nothing but its place.
pub fn placed(batch: &[u8], base: i64, epoch: i32) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[..8].copy_from_slice(&base.to_be_bytes());
    bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
    assert!(BatchView::parse(&bytes).unwrap().crc_is_valid());
    Bytes::from(bytes)
}
