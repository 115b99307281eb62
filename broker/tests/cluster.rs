//! What clients learn of the cluster and its topics: one id, leaders that are there, topics by id, topics that appear.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeClusterRequest, MetadataRequest, MetadataResponse, ProduceRequest, TopicName,
};
use records::batch::{BatchBuilder, TimestampType};
use records::compression::Codec;
use records::ids::Offset;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Body, Client, text};
use common::{Server, Stopwatch};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LEADER_NOT_AVAILABLE: i16 = 5;
const INVALID_TOPIC: i16 = 17;
const INVALID_REQUEST: i16 = 42;
const UNKNOWN_TOPIC_ID: i16 = 100;

fn by_name(name: &str, create: bool) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text(name))));
    MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(create)
}

fn by_id(id: uuid::Uuid, name: Option<&str>) -> MetadataRequest {
    let topic =
        MetadataRequestTopic::default().with_topic_id(id).with_name(name.map(|name| TopicName(text(name))));
    MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(false)
}

fn only(answer: &MetadataResponse) -> &MetadataResponseTopic {
    assert_eq!(answer.topics.len(), 1, "{answer:?}");
    &answer.topics[0]
}

async fn cluster_ids(server: &Server) -> Vec<String> {
    let mut client = Client::new(server).await;
    let mut ids = Vec::new();
    for version in [2, 12] {
        let answer = client.call(version, &MetadataRequest::default().with_topics(None)).await;
        ids.push(answer.cluster_id.expect("a cluster has an id").to_string());
    }
    let answer = client.call(0, &DescribeClusterRequest::default()).await;
    ids.push(answer.cluster_id.to_string());
    ids
}

#[tokio::test]
async fn w08_the_cluster_id_is_the_same_everywhere_and_for_ever() {
    let server = Server::start().await;
    let mut ids = cluster_ids(&server).await;
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    ids.extend(cluster_ids(&Server::on(dir, &[]).await).await);
    assert_eq!(ids.len(), 6);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(ids[0].len(), 22);
    assert!(ids[0].chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{}", ids[0]);
}

#[tokio::test]
async fn w09_no_list_is_all_topics_and_an_empty_one_is_none() {
    let server = Server::start().await;
    for name in ["a", "b", "c"] {
        server.topic(name).await;
    }
    let mut client = Client::new(&server).await;
    for version in 0..=13 {
        let empty = client.call(version, &MetadataRequest::default().with_topics(Some(Vec::new()))).await;
        let topics = if version == 0 { 3 } else { 0 };
        assert_eq!((empty.brokers.len(), empty.topics.len()), (1, topics), "v{version}");
        if version > 0 {
            let all = client.call(version, &MetadataRequest::default().with_topics(None)).await;
            assert_eq!((all.brokers.len(), all.topics.len()), (1, 3), "v{version}");
        }
    }
}

#[tokio::test]
async fn w10_asking_creates_where_it_may_and_never_a_bad_name() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let topics = || server.running.broker().catalog.image().topics().count();
    let long = "x".repeat(250);
    for version in 0..=13 {
        for bad in ["a b", "", ".", "..", "a/b", &long] {
            for create in [true, false] {
                // Before v4 the flag is always true.
                let request = by_name(bad, create || version < 4);
                let answer = client.call(version, &request).await;
                let topic = only(&answer);
                assert_eq!((topic.error_code, topic.partitions.len()), (INVALID_TOPIC, 0), "{bad:?}");
                assert!(topic.topic_id.is_nil());
                assert_eq!(topic.name.as_ref().unwrap().0.as_str(), bad);
            }
        }
        if version >= 4 {
            let answer = client.call(version, &by_name("nope", false)).await;
            let topic = only(&answer);
            assert_eq!((topic.error_code, topic.partitions.len()), (UNKNOWN_TOPIC_OR_PARTITION, 0));
            assert!(topic.topic_id.is_nil());
        }
        assert_eq!(topics(), usize::try_from(version).unwrap(), "v{version} made nothing");
        let name = format!("made-by-v{version}");
        only(&client.call(version, &by_name(&name, true)).await);
        assert!(server.running.broker().catalog.image().topic(&name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn w11_topics_by_id() {
    let server = Server::start().await;
    server.topic("orders").await;
    let mut client = Client::new(&server).await;
    let stranger = uuid::Uuid::from_bytes([7; 16]);
    for name in [None, Some("zz")] {
        let answer = client.call(12, &by_id(stranger, name)).await;
        let topic = only(&answer);
        assert_eq!((topic.error_code, topic.topic_id, &topic.name), (UNKNOWN_TOPIC_ID, stranger, &None));
    }
    let known = only(&client.call(12, &by_name("orders", false)).await).topic_id;
    let answer = client.call(12, &by_id(known, None)).await;
    let topic = only(&answer);
    assert_eq!((topic.error_code, topic.partitions.len()), (0, 1));
    assert_eq!(topic.name.as_ref().map(|name| name.to_string()).as_deref(), Some("orders"));
}

#[tokio::test]
async fn w11_ids_can_be_asked_from_version_12_on() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    // Metadata v10: one topic, an id and a null name; then three flags.
    let body = Body::default().i8(2).uuid([7; 16]).i8(0).i8(0).i8(1).i8(0).i8(0).i8(0);
    let mut answer = client.call_raw(3, 10, &body).await;
    answer.i32();
    answer.array(|broker| {
        broker.i32();
        broker.string();
        broker.i32();
        broker.string();
        broker.tags();
    });
    answer.string();
    answer.i32();
    let codes = answer.array(client::Answer::i16);
    assert_eq!(codes, [INVALID_REQUEST]);
    server.answers().await;
}

#[tokio::test]
async fn w14_a_topic_that_is_created_by_asking_is_usable_at_once() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let begun = Stopwatch::start();
    loop {
        let code = only(&client.call(12, &by_name("fresh", true)).await).error_code;
        if code == 0 {
            break;
        }
        assert!([UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE].contains(&code), "error {code}");
        assert!(begun.elapsed() < Duration::from_secs(1), "not usable within 1 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, Some(b"k"), Some(b"v"), &[]);
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch.build(Offset(0), -1)));
    let topic =
        TopicProduceData::default().with_name(TopicName(text("fresh"))).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![topic]);
    let answer = client.call(9, &request).await;
    let part = &answer.responses[0].partition_responses[0];
    assert_eq!((part.error_code, part.base_offset), (0, 0));
    assert_eq!(only(&client.call(12, &by_name("fresh", false)).await).error_code, 0, "0 for good");
}

#[tokio::test]
async fn w15_leaders_and_replicas_are_listed_brokers() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let topic = kafka_protocol::messages::create_topics_request::CreatableTopic::default()
        .with_name(TopicName(text("three")))
        .with_num_partitions(3)
        .with_replication_factor(1);
    client.call(7, &CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000)).await;
    for version in [1, 12] {
        let twice = (0..2).map(|_| MetadataRequestTopic::default().with_name(Some(TopicName(text("three")))));
        let answer =
            client.call(version, &MetadataRequest::default().with_topics(Some(twice.collect()))).await;
        let brokers: Vec<i32> = answer.brokers.iter().map(|broker| broker.node_id.0).collect();
        let topic = only(&answer);
        let mut indexes: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 1, 2]);
        for partition in &topic.partitions {
            assert!(brokers.contains(&partition.leader_id.0), "the leader is a listed broker");
            assert_eq!(partition.replica_nodes, [partition.leader_id]);
            assert_eq!(partition.isr_nodes, [partition.leader_id]);
            assert!(partition.offline_replicas.is_empty());
            assert!(version < 7 || partition.leader_epoch >= 0);
        }
    }
}
