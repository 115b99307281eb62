//! What a fetch answers besides records: order, codes, and what it says of racks and unknown topics.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, FindCoordinatorRequest, ProduceRequest, TopicName,
};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};
use uuid::Uuid;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::{Server, Stopwatch};

/// All that may stand in a fetch answer: on any other code Java's consumer stops for good
/// (`FetchCollector.handleInitializeErrors`).
const CODES: [i16; 17] = [0, 1, 2, 3, 6, 29, 56, 70, 71, 74, 75, 76, 78, 100, 103, 106, -1];

fn batch(records: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for record in 0..records {
        let (key, value) = (format!("k{record}"), format!("v{record}"));
        builder.append(1_000_000 + record as i64, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build(Offset(0), -1)
}

/// Partition, error code and base offset.
type Told = (i32, i16, i64);

/// Stores three records in each partition that is named; the error codes.
async fn produce(client: &mut Client, topic: &str, partitions: &[i32]) -> Vec<Told> {
    let parts = partitions
        .iter()
        .map(|index| PartitionProduceData::default().with_index(*index).with_records(Some(batch(3))))
        .collect();
    produce_to(client, &[(topic, parts)]).await
}

async fn produce_to(client: &mut Client, topics: &[(&str, Vec<PartitionProduceData>)]) -> Vec<Told> {
    let topics = topics
        .iter()
        .map(|(name, parts)| {
            TopicProduceData::default().with_name(TopicName(text(name))).with_partition_data(parts.clone())
        })
        .collect();
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(topics);
    let answer = client.call(9, &request).await;
    let parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    parts.map(|part| (part.index, part.error_code, part.base_offset)).collect()
}

fn part(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(index)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
}

fn named(name: &str, parts: Vec<FetchPartition>) -> FetchTopic {
    FetchTopic::default().with_topic(TopicName(text(name))).with_partitions(parts)
}

fn request(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest::default().with_max_wait_ms(0).with_min_bytes(1).with_session_epoch(-1).with_topics(topics)
}

async fn topic(server: &Server, name: &str, partitions: i32) -> Uuid {
    let new = broker::catalog::NewTopic {
        name: std::sync::Arc::from(name),
        partitions,
        replication_factor: 1,
        configs: std::iter::empty().collect(),
    };
    server.running.broker().catalog.create(&new).await.unwrap();
    let image = server.running.broker().catalog.image();
    Uuid::from_bytes(image.topic(name).unwrap().partition(0).unwrap().topic.0)
}

#[tokio::test]
async fn f08_no_rack_is_sent_to_another_replica() {
    let server = Server::start().await;
    let id = topic(&server, "t", 1).await;
    let mut client = Client::new(&server).await;
    produce(&mut client, "t", &[0]).await;
    for version in 11..=18 {
        for rack in ["", "r1"] {
            let topic = match version {
                ..=12 => named("t", vec![part(0, 0)]),
                _ => FetchTopic::default().with_topic_id(id).with_partitions(vec![part(0, 0)]),
            };
            let answer = client.call(version, &request(vec![topic]).with_rack_id(text(rack))).await;
            let part = &answer.responses[0].partitions[0];
            assert_eq!(
                (part.error_code, part.preferred_read_replica.0),
                (0, -1),
                "v{version}, rack {rack:?}"
            );
            assert!(!part.records.clone().unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn f15_partitions_are_answered_in_the_order_they_were_asked_in() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        topic(&server, name, 2).await;
    }
    let mut client = Client::new(&server).await;
    produce(&mut client, "a", &[0, 1]).await;
    produce(&mut client, "b", &[0]).await;
    let orders: [&[(&str, i32)]; 3] =
        [&[("a", 1), ("b", 0), ("a", 0)], &[("b", 0), ("a", 0), ("a", 1)], &[("a", 0), ("b", 0), ("a", 1)]];
    for order in orders {
        let topics = order.iter().map(|(name, index)| named(name, vec![part(*index, 0)])).collect();
        let answer = client.call(12, &request(topics)).await;
        let mut answered = Vec::new();
        for topic in &answer.responses {
            for part in &topic.partitions {
                assert!(!part.records.clone().unwrap().is_empty(), "all have data");
                answered.push((topic.topic.0.to_string(), part.partition_index));
            }
        }
        let asked: Vec<_> = order.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect();
        assert_eq!(answered, asked);
    }
}

#[tokio::test]
async fn f23_unknown_topic_ids_are_echoed() {
    let server = Server::start().await;
    let known = topic(&server, "t", 1).await;
    let mut client = Client::new(&server).await;
    produce(&mut client, "t", &[0]).await;
    for version in 13..=18 {
        let ids = [Uuid::from_u128(0x1234_5678), known, Uuid::nil()];
        let topics = ids
            .map(|id| FetchTopic::default().with_topic_id(id).with_partitions(vec![part(0, 0), part(5, 0)]))
            .to_vec();
        let watch = Stopwatch::start();
        let answer = client.call(version, &request(topics).with_max_wait_ms(5_000)).await;
        assert!(watch.elapsed().as_secs() < 2, "an error does not wait");
        assert_eq!(answer.error_code, 0);
        let told: Vec<(Uuid, Vec<i16>)> = answer
            .responses
            .iter()
            .map(|topic| (topic.topic_id, topic.partitions.iter().map(|part| part.error_code).collect()))
            .collect();
        assert_eq!(told, [(ids[0], vec![100, 100]), (known, vec![0, 3]), (ids[2], vec![100, 100])]);
    }
}

fn codes(answer: &FetchResponse) -> BTreeSet<i16> {
    let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
    parts.map(|part| part.error_code).chain([answer.error_code]).collect()
}

#[tokio::test]
async fn f10_a_fetch_answers_only_codes_that_clients_know() {
    let server = Server::start().await;
    let known = topic(&server, "t", 2).await;
    let mut client = Client::new(&server).await;
    produce(&mut client, "t", &[0]).await;
    let mut seen = BTreeSet::new();
    for version in 4..=18 {
        for index in [0, 1, -1, 99, i32::MIN, i32::MAX] {
            for offset in [0, 2, 3, 4, -1, i64::MIN, i64::MAX] {
                for (current, fetched) in [(-1, -1), (0, -1), (7, -1), (0, 0), (0, 9), (i32::MIN, i32::MIN)] {
                    let mut part = part(index, offset);
                    if version >= 9 {
                        part.current_leader_epoch = current;
                    }
                    if version >= 12 {
                        part.last_fetched_epoch = fetched;
                    }
                    let topics = match version {
                        ..=12 => vec![named("t", vec![part.clone()]), named("none", vec![part])],
                        _ => [known, Uuid::from_u128(7), Uuid::nil()]
                            .map(|id| {
                                FetchTopic::default().with_topic_id(id).with_partitions(vec![part.clone()])
                            })
                            .to_vec(),
                    };
                    seen.extend(codes(&client.call(version, &request(topics)).await));
                }
            }
        }
        if version < 7 {
            continue;
        }
        let all = match version {
            ..=12 => vec![named("t", vec![part(0, 0)])],
            _ => vec![FetchTopic::default().with_topic_id(known).with_partitions(vec![part(0, 0)])],
        };
        let opened = client.call(version, &request(all).with_session_epoch(0)).await.session_id;
        assert!(opened > 0);
        for (session, epoch) in [
            (opened, 5),
            (opened, i32::MIN),
            (0, 0),
            (0, 1),
            (12_345, 1),
            (-1, 5),
            (i32::MAX, i32::MAX),
            (12_345, -1),
        ] {
            let asked = request(Vec::new()).with_session_id(session).with_session_epoch(epoch);
            seen.extend(codes(&client.call(version, &asked).await));
        }
    }
    assert!(seen.iter().all(|code| CODES.contains(code)), "{seen:?}");
    // Those that this test knows how to bring about.
    assert!([0, 1, 3, 70, 71, 75, 100].iter().all(|code| seen.contains(code)), "{seen:?}");
}

#[tokio::test]
async fn p04_each_partition_of_a_request_has_its_own_fate() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    let part = |index| PartitionProduceData::default().with_index(index).with_records(Some(batch(1)));
    let topics = [("t", vec![part(0), part(999), part(-1)]), ("missing", vec![part(0)])];
    let fates = produce_to(&mut client, &topics).await;
    assert_eq!(fates, [(0, 0, 0), (999, 3, -1), (-1, 3, -1), (0, 3, -1)]);
    // The same partition twice, in one entry of the topic and in two.
    assert_eq!(produce_to(&mut client, &[("t", vec![part(0), part(0)])]).await, [(0, 0, 1)]);
    assert_eq!(produce_to(&mut client, &[("t", vec![part(0)]), ("t", vec![part(0)])]).await, [(0, 0, 2)]);
    assert_eq!(produce_to(&mut client, &[("t", vec![part(0)])]).await, [(0, 0, 3)], "each stored one batch");
}

#[tokio::test]
async fn p04_unknown_topic_ids_are_echoed() {
    let server = Server::start().await;
    let known = topic(&server, "t", 1).await;
    let mut client = Client::new(&server).await;
    let unknown = Uuid::from_u128(0x1234_5678);
    let part = |index| PartitionProduceData::default().with_index(index).with_records(Some(batch(1)));
    let topics =
        [(unknown, vec![part(0)]), (known, vec![part(0), part(1), part(-1)]), (Uuid::nil(), vec![part(3)])]
            .map(|(id, parts)| TopicProduceData::default().with_topic_id(id).with_partition_data(parts));
    let request = ProduceRequest::default().with_acks(-1).with_topic_data(topics.to_vec());
    for base in 0..3 {
        let answer = client.call(13, &request).await;
        let told: Vec<(Uuid, Vec<Told>)> = answer
            .responses
            .iter()
            .map(|topic| {
                let parts = topic.partition_responses.iter();
                (topic.topic_id, parts.map(|part| (part.index, part.error_code, part.base_offset)).collect())
            })
            .collect();
        let expected = [
            (unknown, vec![(0, 100, -1)]),
            (known, vec![(0, 0, base), (1, 3, -1), (-1, 3, -1)]),
            (Uuid::nil(), vec![(3, 100, -1)]),
        ];
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn p19_nobody_writes_to_internal_topics() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    // The first to ask for a coordinator makes its topic.
    let coordinator = FindCoordinatorRequest::default().with_key(text("g"));
    assert_eq!(client.call(3, &coordinator).await.error_code, 0);
    let internal = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
    // Another one may come with a directory that was taken over.
    topic(&server, internal[1], 50).await;
    for name in internal {
        let image = server.running.broker().catalog.image();
        let wanted = if image.topic(name).is_some() { 17 } else { 3 };
        drop(image);
        for index in [0, 1, 49] {
            assert_eq!(produce(&mut client, name, &[index]).await, [(index, wanted, -1)], "{name}");
        }
    }
    let image = server.running.broker().catalog.image();
    assert!(image.topic(internal[0]).is_some() && image.topic(internal[1]).is_some());
    assert_eq!(produce(&mut client, "t", &[0]).await, [(0, 0, 0)], "the connection goes on");
}
