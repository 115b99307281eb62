//! Produce against two other codecs, in every version.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_wire_core::{ApiVersion, KafkaEncode};
use proptest::prelude::*;
use protocol::messages::produce::{
    ProducePartitionResponse, ProduceResponse, ProduceTopicResponse, RecordError,
};
use protocol::messages::{LeaderIdAndEpoch, NodeEndpoint, TopicRef};
use protocol::wire::{produce_request, produce_response};
use protocol::{ApiKey, Request, Response, from_uuid, to_uuid, wire};
use support::{Random, join};

fn request(random: &mut Random, version: i16) -> wire::ProduceRequest {
    let mut request = wire::ProduceRequest::default();
    request.transactional_id = random.maybe_text();
    request.acks = random.i16();
    request.timeout_ms = random.i32();
    request.topic_data = random.list(|random| {
        let mut topic = produce_request::TopicProduceData::default();
        if version >= 13 {
            topic.topic_id = to_uuid(random.topic_id());
        } else {
            topic.name = random.text();
        }
        topic.partition_data = random.list(|random| {
            let mut partition = produce_request::PartitionProduceData::default();
            partition.index = random.i32();
            partition.records = random.chance().then(|| random.bytes());
            partition
        });
        topic
    });
    request
}

fn response(random: &mut Random, version: i16) -> ProduceResponse {
    ProduceResponse {
        topics: random.list(|random| ProduceTopicResponse {
            topic: if version >= 13 {
                TopicRef::Id(random.topic_id())
            } else {
                TopicRef::Name(random.text())
            },
            partitions: random.list(|random| ProducePartitionResponse {
                index: random.i32(),
                error_code: random.error_code(),
                base_offset: random.offset(),
                log_append_time_ms: random.i64(),
                log_start_offset: random.offset(),
                record_errors: random
                    .list(|random| RecordError { batch_index: random.i32(), message: random.maybe_text() }),
                error_message: random.maybe_text(),
                current_leader: random
                    .chance()
                    .then(|| LeaderIdAndEpoch { leader_id: random.i32(), leader_epoch: random.i32() }),
            }),
        }),
        throttle_time_ms: random.i32(),
        node_endpoints: random.list(|random| NodeEndpoint {
            node_id: random.i32(),
            host: random.text(),
            port: random.i32(),
            rack: random.maybe_text(),
        }),
    }
}

/// The same answer as the generated codec holds it, with what the version has.
fn generated(ours: &ProduceResponse, version: i16) -> wire::ProduceResponse {
    let mut response = wire::ProduceResponse::default();
    response.throttle_time_ms = ours.throttle_time_ms;
    for topic in &ours.topics {
        let mut out = produce_response::TopicProduceResponse::default();
        match &topic.topic {
            TopicRef::Name(name) => out.name = name.clone(),
            TopicRef::Id(id) => out.topic_id = to_uuid(*id),
        }
        for partition in &topic.partitions {
            let mut data = produce_response::PartitionProduceResponse::default();
            data.index = partition.index;
            data.error_code = partition.error_code.code();
            data.base_offset = partition.base_offset.get();
            data.log_append_time_ms = partition.log_append_time_ms;
            if version >= 5 {
                data.log_start_offset = partition.log_start_offset.get();
            }
            if version >= 8 {
                for error in &partition.record_errors {
                    let mut record = produce_response::BatchIndexAndErrorMessage::default();
                    record.batch_index = error.batch_index;
                    record.batch_index_error_message = error.message.clone();
                    data.record_errors.push(record);
                }
                data.error_message = partition.error_message.clone();
            }
            if version >= 10
                && let Some(leader) = &partition.current_leader
            {
                data.current_leader.leader_id = leader.leader_id;
                data.current_leader.leader_epoch = leader.leader_epoch;
            }
            out.partition_responses.push(data);
        }
        response.responses.push(out);
    }
    if version >= 10 {
        for endpoint in &ours.node_endpoints {
            let mut node = produce_response::NodeEndpoint::default();
            node.node_id = endpoint.node_id;
            node.host = endpoint.host.clone();
            node.port = endpoint.port;
            node.rack = endpoint.rack.clone();
            response.node_endpoints.push(node);
        }
    }
    response
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_read_in_every_version(seed: u64) {
        for version in 3..=13 {
            let sent = request(&mut Random(seed), version);
            let body = sent.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let read = Request::decode(ApiKey::Produce, version, body).unwrap();
            let Request::Produce(read) = read else { panic!("{read:?}") };
            prop_assert_eq!(&read.transactional_id, &sent.transactional_id);
            prop_assert_eq!((read.acks, read.timeout_ms), (sent.acks, sent.timeout_ms));
            prop_assert_eq!(read.topics.len(), sent.topic_data.len());
            for (read, sent) in read.topics.iter().zip(&sent.topic_data) {
                let topic = if version >= 13 {
                    TopicRef::Id(from_uuid(sent.topic_id))
                } else {
                    TopicRef::Name(sent.name.clone())
                };
                prop_assert_eq!(&read.topic, &topic);
                prop_assert_eq!(read.partitions.len(), sent.partition_data.len());
                for (read, sent) in read.partitions.iter().zip(&sent.partition_data) {
                    prop_assert_eq!((read.index, &read.records), (sent.index, &sent.records));
                }
            }
        }
    }

    #[test]
    fn responses_are_written_in_every_version(seed: u64) {
        for version in 3..=13 {
            let sent = response(&mut Random(seed), version);
            let expected = generated(&sent, version).encode_to_bytes(ApiVersion::new(version)).unwrap();
            let frame = join(Response::Produce(sent).encode(version, 77).unwrap());
            let header = if version >= 9 { &[0, 0, 0, 77, 0][..] } else { &[0, 0, 0, 77][..] };
            prop_assert_eq!(&frame[..header.len()], header);
            let body = frame.slice(header.len()..);
            prop_assert_eq!(&body, &expected, "v{}", version);
            second_library_agrees(body, version)?;
        }
    }
}

fn second_library_agrees(body: Bytes, version: i16) -> Result<(), TestCaseError> {
    let mut left = body.clone();
    let read = kafka_protocol::messages::ProduceResponse::decode(&mut left, version)
        .expect("what we write is readable");
    prop_assert!(left.is_empty());
    let mut again = BytesMut::new();
    read.encode(&mut again, version).expect("what was read can be written");
    prop_assert_eq!(again.freeze(), body);
    Ok(())
}
