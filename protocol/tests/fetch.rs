//! Fetch against two other codecs, in every version.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_wire_core::{ApiVersion, KafkaEncode};
use proptest::prelude::*;
use protocol::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartitionResponse, FetchResponse, FetchTopicResponse, SnapshotId,
};
use protocol::messages::{LeaderIdAndEpoch, NodeEndpoint, TopicRef};
use protocol::wire::{fetch_request, fetch_response};
use protocol::{ApiKey, EncodeError, Request, Response, from_uuid, to_uuid, wire};
use records::ids::Offset;
use support::{Random, Range, join};

fn request(random: &mut Random, version: i16) -> wire::FetchRequest {
    let mut request = wire::FetchRequest::default();
    if version >= 12 {
        request.cluster_id = random.maybe_text();
    }
    request.replica_id = -1;
    if version <= 14 {
        request.replica_id = random.i32();
    } else if random.chance() {
        request.replica_state.replica_id = random.i32();
        request.replica_state.replica_epoch = random.i64();
    }
    request.max_wait_ms = random.i32();
    request.min_bytes = random.i32();
    request.max_bytes = random.i32();
    request.isolation_level = random.i8();
    if version >= 7 {
        request.session_id = random.i32();
        request.session_epoch = random.i32();
        request.forgotten_topics_data = random.list(|random| {
            let mut topic = fetch_request::ForgottenTopic::default();
            if version >= 13 {
                topic.topic_id = to_uuid(random.topic_id());
            } else {
                topic.topic = random.text();
            }
            topic.partitions = random.list(Random::i32);
            topic
        });
    }
    if version >= 11 {
        request.rack_id = random.text();
    }
    request.topics = random.list(|random| {
        let mut topic = fetch_request::FetchTopic::default();
        if version >= 13 {
            topic.topic_id = to_uuid(random.topic_id());
        } else {
            topic.topic = random.text();
        }
        topic.partitions = random.list(|random| {
            let mut partition = fetch_request::FetchPartition::default();
            partition.partition = random.i32();
            partition.fetch_offset = random.i64();
            partition.partition_max_bytes = random.i32();
            if version >= 5 {
                partition.log_start_offset = random.i64();
            }
            if version >= 9 {
                partition.current_leader_epoch = random.i32();
            }
            if version >= 12 {
                partition.last_fetched_epoch = random.i32();
            }
            if version >= 17 && random.chance() {
                partition.replica_directory_id = to_uuid(random.topic_id());
            }
            if version >= 18 && random.chance() {
                partition.high_watermark = random.i64();
            }
            partition
        });
        topic
    });
    request
}

fn response(random: &mut Random, version: i16) -> (FetchResponse<Range>, wire::FetchResponse) {
    let mut generated = wire::FetchResponse::default();
    let topics = random.list(|random| {
        let mut data = fetch_response::FetchableTopicResponse::default();
        let topic = if version >= 13 {
            let id = random.topic_id();
            data.topic_id = to_uuid(id);
            TopicRef::Id(id)
        } else {
            data.topic = random.text();
            TopicRef::Name(data.topic.clone())
        };
        let partitions = random.list(|random| {
            let (partition, generated) = partition(random, version);
            data.partitions.push(generated);
            partition
        });
        generated.responses.push(data);
        FetchTopicResponse { topic, partitions }
    });
    let response = FetchResponse {
        throttle_time_ms: random.i32(),
        error_code: random.error_code(),
        session_id: random.i32(),
        topics,
        node_endpoints: random.list(|random| NodeEndpoint {
            node_id: random.i32(),
            host: random.text(),
            port: random.i32(),
            rack: random.maybe_text(),
        }),
    };
    generated.throttle_time_ms = response.throttle_time_ms;
    if version >= 7 {
        generated.error_code = response.error_code.code();
        generated.session_id = response.session_id;
    }
    if version >= 16 {
        for endpoint in &response.node_endpoints {
            let mut node = fetch_response::NodeEndpoint::default();
            node.node_id = endpoint.node_id;
            node.host = endpoint.host.clone();
            node.port = endpoint.port;
            node.rack = endpoint.rack.clone();
            generated.node_endpoints.push(node);
        }
    }
    (response, generated)
}

fn partition(
    random: &mut Random,
    version: i16,
) -> (FetchPartitionResponse<Range>, fetch_response::PartitionData) {
    let (records, bytes) = random.records();
    let partition = FetchPartitionResponse {
        index: random.i32(),
        error_code: random.error_code(),
        high_watermark: random.offset(),
        last_stable_offset: random.offset(),
        log_start_offset: random.offset(),
        diverging_epoch: random
            .chance()
            .then(|| EpochEndOffset { epoch: random.below(99) as i32, end_offset: random.offset() }),
        current_leader: random
            .chance()
            .then(|| LeaderIdAndEpoch { leader_id: random.below(99) as i32, leader_epoch: random.i32() }),
        snapshot_id: random
            .chance()
            .then(|| SnapshotId { end_offset: random.offset(), epoch: random.below(99) as i32 }),
        aborted_transactions: random.chance().then(|| {
            random.list(|random| AbortedTransaction {
                producer_id: random.i64(),
                first_offset: random.offset(),
            })
        }),
        preferred_read_replica: random.i32(),
        records,
    };
    let mut data = fetch_response::PartitionData::default();
    data.partition_index = partition.index;
    data.error_code = partition.error_code.code();
    data.high_watermark = partition.high_watermark.get();
    data.last_stable_offset = partition.last_stable_offset.get();
    if version >= 5 {
        data.log_start_offset = partition.log_start_offset.get();
    }
    if version >= 11 {
        data.preferred_read_replica = partition.preferred_read_replica;
    }
    if version >= 12 {
        if let Some(EpochEndOffset { epoch, end_offset }) = partition.diverging_epoch {
            data.diverging_epoch.epoch = epoch;
            data.diverging_epoch.end_offset = end_offset.get();
        }
        if let Some(leader) = &partition.current_leader {
            data.current_leader.leader_id = leader.leader_id;
            data.current_leader.leader_epoch = leader.leader_epoch;
        }
        if let Some(SnapshotId { end_offset, epoch }) = partition.snapshot_id {
            data.snapshot_id.end_offset = end_offset.get();
            data.snapshot_id.epoch = epoch;
        }
    }
    data.aborted_transactions = partition.aborted_transactions.as_ref().map(|transactions| {
        transactions
            .iter()
            .map(|transaction| {
                let mut aborted = fetch_response::AbortedTransaction::default();
                aborted.producer_id = transaction.producer_id;
                aborted.first_offset = transaction.first_offset.get();
                aborted
            })
            .collect()
    });
    data.records = Some(bytes);
    (partition, data)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_read_in_every_version(seed: u64) {
        for version in 4..=18 {
            let sent = request(&mut Random(seed), version);
            let body = sent.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let read = Request::decode(ApiKey::Fetch, version, body).unwrap();
            let Request::Fetch(read) = read else { panic!("{read:?}") };
            let replica_id =
                if version >= 15 { sent.replica_state.replica_id } else { sent.replica_id };
            prop_assert_eq!(read.replica_id, replica_id);
            prop_assert_eq!(
                (read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation_level),
                (sent.max_wait_ms, sent.min_bytes, sent.max_bytes, sent.isolation_level)
            );
            prop_assert_eq!((read.session_id, read.session_epoch), (sent.session_id, sent.session_epoch));
            prop_assert_eq!(&read.rack_id, &sent.rack_id);
            let topic_ref = |name: &protocol::StrBytes, id| {
                if version >= 13 { TopicRef::Id(from_uuid(id)) } else { TopicRef::Name(name.clone()) }
            };
            prop_assert_eq!(read.topics.len(), sent.topics.len());
            for (read, sent) in read.topics.iter().zip(&sent.topics) {
                prop_assert_eq!(&read.topic, &topic_ref(&sent.topic, sent.topic_id));
                prop_assert_eq!(read.partitions.len(), sent.partitions.len());
                for (read, sent) in read.partitions.iter().zip(&sent.partitions) {
                    prop_assert_eq!(
                        (read.index, read.current_leader_epoch, read.fetch_offset),
                        (sent.partition, sent.current_leader_epoch, Offset(sent.fetch_offset))
                    );
                    prop_assert_eq!(
                        (read.last_fetched_epoch, read.log_start_offset, read.partition_max_bytes),
                        (sent.last_fetched_epoch, Offset(sent.log_start_offset), sent.partition_max_bytes)
                    );
                }
            }
            prop_assert_eq!(read.forgotten_topics.len(), sent.forgotten_topics_data.len());
            for (read, sent) in read.forgotten_topics.iter().zip(&sent.forgotten_topics_data) {
                prop_assert_eq!(&read.topic, &topic_ref(&sent.topic, sent.topic_id));
                prop_assert_eq!(&read.partitions, &sent.partitions);
            }
        }
    }

    #[test]
    fn responses_are_written_in_every_version(seed: u64) {
        for version in 4..=18 {
            let (sent, generated) = response(&mut Random(seed), version);
            let expected = generated.encode_to_bytes(ApiVersion::new(version)).unwrap();
            let frame = join(Response::Fetch(sent).encode(version, 77).unwrap());
            let header = if version >= 12 { &[0, 0, 0, 77, 0][..] } else { &[0, 0, 0, 77][..] };
            prop_assert_eq!(&frame[..header.len()], header);
            let body = frame.slice(header.len()..);
            prop_assert_eq!(&body, &expected, "v{}", version);
            second_library_agrees(body, version)?;
        }
    }
}

fn second_library_agrees(body: Bytes, version: i16) -> Result<(), TestCaseError> {
    let mut left = body.clone();
    let read = kafka_protocol::messages::FetchResponse::decode(&mut left, version)
        .expect("what we write is readable");
    prop_assert!(left.is_empty());
    let mut again = BytesMut::new();
    read.encode(&mut again, version).expect("what was read can be written");
    prop_assert_eq!(again.freeze(), body);
    Ok(())
}

#[test]
fn a_topic_in_the_wrong_form_is_a_fault() {
    let answer = |topic| {
        Response::<Range>::Fetch(FetchResponse {
            topics: vec![FetchTopicResponse { topic, partitions: Vec::new() }],
            ..FetchResponse::default()
        })
    };
    let by_name = answer(TopicRef::Name("t".into())).encode(13, 0);
    assert_eq!(by_name, Err(EncodeError::WrongTopicForm { version: 13, wanted: "id" }));
    let by_id = answer(TopicRef::Id(records::ids::TopicId::ZERO)).encode(12, 0);
    assert_eq!(by_id, Err(EncodeError::WrongTopicForm { version: 12, wanted: "name" }));
}
