//! ShareFetch and ShareAcknowledge against two other codecs, in every version.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_wire_core::{ApiVersion, KafkaEncode};
use proptest::prelude::*;
use protocol::messages::share_acknowledge::{
    ShareAcknowledgePartitionResponse, ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};
use protocol::messages::share_fetch::{
    AcknowledgementBatch, AcquiredRecords, ShareFetchPartitionResponse, ShareFetchResponse,
    ShareFetchTopicResponse,
};
use protocol::messages::{LeaderIdAndEpoch, NodeEndpoint};
use protocol::wire::{
    share_acknowledge_request, share_acknowledge_response, share_fetch_request, share_fetch_response,
};
use protocol::{ApiKey, Request, Response, from_uuid, to_uuid, wire};
use support::{Random, Range, join};

fn fetch_request(random: &mut Random, version: i16) -> wire::ShareFetchRequest {
    let mut request = wire::ShareFetchRequest::default();
    request.group_id = random.maybe_text();
    request.member_id = random.maybe_text();
    request.share_session_epoch = random.i32();
    request.max_wait_ms = random.i32();
    request.min_bytes = random.i32();
    request.max_bytes = random.i32();
    request.max_records = random.i32();
    request.batch_size = random.i32();
    if version >= 2 {
        request.share_acquire_mode = random.i8();
        request.is_renew_ack = random.chance();
    }
    request.topics = random.list(|random| {
        let mut topic = share_fetch_request::FetchTopic::default();
        topic.topic_id = to_uuid(random.topic_id());
        topic.partitions = random.list(|random| {
            let mut partition = share_fetch_request::FetchPartition::default();
            partition.partition_index = random.i32();
            partition.acknowledgement_batches = random.list(|random| {
                let mut batch = share_fetch_request::AcknowledgementBatch::default();
                batch.first_offset = random.i64();
                batch.last_offset = random.i64();
                batch.acknowledge_types = random.list(Random::i8);
                batch
            });
            partition
        });
        topic
    });
    request.forgotten_topics_data = random.list(|random| {
        let mut topic = share_fetch_request::ForgottenTopic::default();
        topic.topic_id = to_uuid(random.topic_id());
        topic.partitions = random.list(Random::i32);
        topic
    });
    request
}

fn acknowledge_request(random: &mut Random, version: i16) -> wire::ShareAcknowledgeRequest {
    let mut request = wire::ShareAcknowledgeRequest::default();
    request.group_id = random.maybe_text();
    request.member_id = random.maybe_text();
    request.share_session_epoch = random.i32();
    if version >= 2 {
        request.is_renew_ack = random.chance();
    }
    request.topics = random.list(|random| {
        let mut topic = share_acknowledge_request::AcknowledgeTopic::default();
        topic.topic_id = to_uuid(random.topic_id());
        topic.partitions = random.list(|random| {
            let mut partition = share_acknowledge_request::AcknowledgePartition::default();
            partition.partition_index = random.i32();
            partition.acknowledgement_batches = random.list(|random| {
                let mut batch = share_acknowledge_request::AcknowledgementBatch::default();
                batch.first_offset = random.i64();
                batch.last_offset = random.i64();
                batch.acknowledge_types = random.list(Random::i8);
                batch
            });
            partition
        });
        topic
    });
    request
}

/// An acknowledgement as plain numbers.
type Plain = (i64, i64, Vec<i8>);

fn plain(batch: &AcknowledgementBatch) -> Plain {
    let types = batch.types.iter().map(|&kind| kind.cast_signed()).collect();
    (batch.first_offset.get(), batch.last_offset.get(), types)
}

fn fetch_response(random: &mut Random) -> (ShareFetchResponse<Range>, wire::ShareFetchResponse) {
    let mut generated = wire::ShareFetchResponse::default();
    let topics = random.list(|random| {
        let mut data = share_fetch_response::ShareFetchableTopicResponse::default();
        let topic_id = random.topic_id();
        data.topic_id = to_uuid(topic_id);
        let partitions = random.list(|random| {
            let (partition, generated) = fetch_partition(random);
            data.partitions.push(generated);
            partition
        });
        generated.responses.push(data);
        ShareFetchTopicResponse { topic_id, partitions }
    });
    let response = ShareFetchResponse {
        throttle_time_ms: random.i32(),
        error_code: random.error_code(),
        error_message: random.maybe_text(),
        acquisition_lock_timeout_ms: random.i32(),
        topics,
        node_endpoints: endpoints(random),
    };
    generated.throttle_time_ms = response.throttle_time_ms;
    generated.error_code = response.error_code.code();
    generated.error_message = response.error_message.clone();
    generated.acquisition_lock_timeout_ms = response.acquisition_lock_timeout_ms;
    for endpoint in &response.node_endpoints {
        let mut node = share_fetch_response::NodeEndpoint::default();
        node.node_id = endpoint.node_id;
        node.host = endpoint.host.clone();
        node.port = endpoint.port;
        node.rack = endpoint.rack.clone();
        generated.node_endpoints.push(node);
    }
    (response, generated)
}

fn fetch_partition(
    random: &mut Random,
) -> (ShareFetchPartitionResponse<Range>, share_fetch_response::PartitionData) {
    let (records, bytes) = random.records();
    let partition = ShareFetchPartitionResponse {
        index: random.i32(),
        error_code: random.error_code(),
        error_message: random.maybe_text(),
        acknowledge_error_code: random.error_code(),
        acknowledge_error_message: random.maybe_text(),
        current_leader: LeaderIdAndEpoch { leader_id: random.i32(), leader_epoch: random.i32() },
        records,
        acquired_records: random.list(|random| AcquiredRecords {
            first_offset: random.offset(),
            last_offset: random.offset(),
            delivery_count: random.i16(),
        }),
    };
    let mut data = share_fetch_response::PartitionData::default();
    data.partition_index = partition.index;
    data.error_code = partition.error_code.code();
    data.error_message = partition.error_message.clone();
    data.acknowledge_error_code = partition.acknowledge_error_code.code();
    data.acknowledge_error_message = partition.acknowledge_error_message.clone();
    data.current_leader.leader_id = partition.current_leader.leader_id;
    data.current_leader.leader_epoch = partition.current_leader.leader_epoch;
    data.records = bytes;
    for range in &partition.acquired_records {
        let mut acquired = share_fetch_response::AcquiredRecords::default();
        acquired.first_offset = range.first_offset.get();
        acquired.last_offset = range.last_offset.get();
        acquired.delivery_count = range.delivery_count;
        data.acquired_records.push(acquired);
    }
    (partition, data)
}

fn acknowledge_response(
    random: &mut Random,
    version: i16,
) -> (ShareAcknowledgeResponse, wire::ShareAcknowledgeResponse) {
    let mut generated = wire::ShareAcknowledgeResponse::default();
    let topics = random.list(|random| {
        let mut data = share_acknowledge_response::ShareAcknowledgeTopicResponse::default();
        let topic_id = random.topic_id();
        data.topic_id = to_uuid(topic_id);
        let partitions = random.list(|random| {
            let partition = ShareAcknowledgePartitionResponse {
                index: random.i32(),
                error_code: random.error_code(),
                error_message: random.maybe_text(),
                current_leader: LeaderIdAndEpoch { leader_id: random.i32(), leader_epoch: random.i32() },
            };
            let mut out = share_acknowledge_response::PartitionData::default();
            out.partition_index = partition.index;
            out.error_code = partition.error_code.code();
            out.error_message = partition.error_message.clone();
            out.current_leader.leader_id = partition.current_leader.leader_id;
            out.current_leader.leader_epoch = partition.current_leader.leader_epoch;
            data.partitions.push(out);
            partition
        });
        generated.responses.push(data);
        ShareAcknowledgeTopicResponse { topic_id, partitions }
    });
    let response = ShareAcknowledgeResponse {
        throttle_time_ms: random.i32(),
        error_code: random.error_code(),
        error_message: random.maybe_text(),
        acquisition_lock_timeout_ms: random.i32(),
        topics,
        node_endpoints: endpoints(random),
    };
    generated.throttle_time_ms = response.throttle_time_ms;
    generated.error_code = response.error_code.code();
    generated.error_message = response.error_message.clone();
    if version >= 2 {
        generated.acquisition_lock_timeout_ms = response.acquisition_lock_timeout_ms;
    }
    for endpoint in &response.node_endpoints {
        let mut node = share_acknowledge_response::NodeEndpoint::default();
        node.node_id = endpoint.node_id;
        node.host = endpoint.host.clone();
        node.port = endpoint.port;
        node.rack = endpoint.rack.clone();
        generated.node_endpoints.push(node);
    }
    (response, generated)
}

fn endpoints(random: &mut Random) -> Vec<NodeEndpoint> {
    random.list(|random| NodeEndpoint {
        node_id: random.i32(),
        host: random.text(),
        port: random.i32(),
        rack: random.maybe_text(),
    })
}

/// kafka-protocol 0.18 knows version 1.
fn second_library_agrees<T: Decodable + Encodable>(body: Bytes, version: i16) -> Result<(), TestCaseError> {
    if version > 1 {
        return Ok(());
    }
    let mut left = body.clone();
    let read = T::decode(&mut left, version).expect("what we write is readable");
    prop_assert!(left.is_empty());
    let mut again = BytesMut::new();
    read.encode(&mut again, version).expect("what was read can be written");
    prop_assert_eq!(again.freeze(), body);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn fetch_requests_are_read_in_every_version(seed: u64) {
        for version in 1..=2 {
            let sent = fetch_request(&mut Random(seed), version);
            let body = sent.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let read = Request::decode(ApiKey::ShareFetch, version, body).unwrap();
            let Request::ShareFetch(read) = read else { panic!("{read:?}") };
            prop_assert_eq!((&read.group_id, &read.member_id), (&sent.group_id, &sent.member_id));
            prop_assert_eq!(read.share_session_epoch, sent.share_session_epoch);
            prop_assert_eq!(
                (read.max_wait_ms, read.min_bytes, read.max_bytes, read.max_records, read.batch_size),
                (sent.max_wait_ms, sent.min_bytes, sent.max_bytes, sent.max_records, sent.batch_size)
            );
            prop_assert_eq!(
                (read.share_acquire_mode, read.is_renew_ack),
                (sent.share_acquire_mode, sent.is_renew_ack)
            );
            prop_assert_eq!(read.topics.len(), sent.topics.len());
            for (read, sent) in read.topics.iter().zip(&sent.topics) {
                prop_assert_eq!(read.topic_id, from_uuid(sent.topic_id));
                prop_assert_eq!(read.partitions.len(), sent.partitions.len());
                for (read, sent) in read.partitions.iter().zip(&sent.partitions) {
                    prop_assert_eq!(read.index, sent.partition_index);
                    let read: Vec<Plain> = read.acknowledgements.iter().map(plain).collect();
                    let sent: Vec<Plain> = sent
                        .acknowledgement_batches
                        .iter()
                        .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types.clone()))
                        .collect();
                    prop_assert_eq!(read, sent);
                }
            }
            prop_assert_eq!(read.forgotten_topics.len(), sent.forgotten_topics_data.len());
            for (read, sent) in read.forgotten_topics.iter().zip(&sent.forgotten_topics_data) {
                prop_assert_eq!(read.topic_id, from_uuid(sent.topic_id));
                prop_assert_eq!(&read.partitions, &sent.partitions);
            }
        }
    }

    #[test]
    fn acknowledge_requests_are_read_in_every_version(seed: u64) {
        for version in 1..=2 {
            let sent = acknowledge_request(&mut Random(seed), version);
            let body = sent.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let read = Request::decode(ApiKey::ShareAcknowledge, version, body).unwrap();
            let Request::ShareAcknowledge(read) = read else { panic!("{read:?}") };
            prop_assert_eq!((&read.group_id, &read.member_id), (&sent.group_id, &sent.member_id));
            prop_assert_eq!(
                (read.share_session_epoch, read.is_renew_ack),
                (sent.share_session_epoch, sent.is_renew_ack)
            );
            prop_assert_eq!(read.topics.len(), sent.topics.len());
            for (read, sent) in read.topics.iter().zip(&sent.topics) {
                prop_assert_eq!(read.topic_id, from_uuid(sent.topic_id));
                prop_assert_eq!(read.partitions.len(), sent.partitions.len());
                for (read, sent) in read.partitions.iter().zip(&sent.partitions) {
                    prop_assert_eq!(read.index, sent.partition_index);
                    let read: Vec<Plain> = read.acknowledgements.iter().map(plain).collect();
                    let sent: Vec<Plain> = sent
                        .acknowledgement_batches
                        .iter()
                        .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types.clone()))
                        .collect();
                    prop_assert_eq!(read, sent);
                }
            }
        }
    }

    #[test]
    fn fetch_responses_are_written_in_every_version(seed: u64) {
        for version in 1..=2 {
            let (sent, generated) = fetch_response(&mut Random(seed));
            let expected = generated.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let frame = join(Response::ShareFetch(sent).encode(version, 77).unwrap());
            prop_assert_eq!(&frame[..5], &[0, 0, 0, 77, 0]);
            let body = frame.slice(5..);
            prop_assert_eq!(&body, &expected, "v{}", version);
            second_library_agrees::<kafka_protocol::messages::ShareFetchResponse>(body, version)?;
        }
    }

    #[test]
    fn acknowledge_responses_are_written_in_every_version(seed: u64) {
        for version in 1..=2 {
            let (sent, generated) = acknowledge_response(&mut Random(seed), version);
            let expected = generated.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let frame = join(Response::ShareAcknowledge(sent).encode(version, 77).unwrap());
            prop_assert_eq!(&frame[..5], &[0, 0, 0, 77, 0]);
            let body = frame.slice(5..);
            prop_assert_eq!(&body, &expected, "v{}", version);
            second_library_agrees::<kafka_protocol::messages::ShareAcknowledgeResponse>(body, version)?;
        }
    }
}
