//! Compaction while the broker runs: what a consumer reads through the socket, and what is left on the disk.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::catalog::NewTopic;
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, GroupId, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, TopicName,
};
use records::batch::{BatchBuilder, Header};
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};
use tokio::time::{sleep, timeout};

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::Server;

const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: usize = 10;
const RECORDS: usize = 300;
const COMMITS: i64 = 400;

/// A record as a consumer sees it: offset, timestamp, key, value, the value of its header.
type Seen = (i64, i64, String, String, String);

async fn topic(server: &Server, name: &str, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
    let new =
        NewTopic { name: Arc::from(name), partitions: 1, replication_factor: 1, configs: configs.collect() };
    server.running.broker().catalog.create(&new).await.unwrap();
}

fn batch(codec: Codec, number: usize, key: Option<&str>) -> Bytes {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    let value = format!("value {number}");
    let header = [Header { key: b"number", value: Some(value.as_bytes()) }];
    builder.append(1_000_000 + number as i64, key.map(str::as_bytes), Some(value.as_bytes()), &header);
    builder.build(Offset(0), -1)
}

async fn produce(client: &mut Client, batch: Bytes) -> (i16, i64) {
    let part = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![part]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![topic]);
    let answer = client.call(9, &request).await;
    let part = &answer.responses[0].partition_responses[0];
    (part.error_code, part.base_offset)
}

/// High watermark and record bytes.
async fn fetch(client: &mut Client, offset: i64, bytes_max: i32) -> (i64, Bytes) {
    let part = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(bytes_max);
    let topic = FetchTopic::default().with_topic(TopicName(text("t"))).with_partitions(vec![part]);
    let request = FetchRequest::default().with_max_wait_ms(0).with_min_bytes(1).with_topics(vec![topic]);
    let answer = client.call(12, &request).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!((answer.error_code, part.error_code), (0, 0), "at {offset}");
    (part.high_watermark, part.records.clone().unwrap_or_default())
}

/// Reads as a consumer does: each fetch begins behind the last batch. Ends at the end, or not at all.
async fn consume(client: &mut Client, bytes_max: i32) -> Vec<Seen> {
    let (mut position, mut seen) = (0, Vec::new());
    loop {
        let (end, bytes) = fetch(client, position, bytes_max).await;
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            assert!(batch.crc_is_valid() && batch.next_offset().0 > position);
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
                let header = record.headers.iter().next().unwrap();
                let (key, value) = (text(record.key), text(record.value));
                seen.push((record.offset.0, record.timestamp, key, value, text(header.value)));
            }
            position = batch.next_offset().0;
        }
        if position == end {
            return seen;
        }
        assert!(!bytes.is_empty(), "a consumer at {position} of {end} is stalled");
    }
}

fn log_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
    logs.map(|entry| entry.metadata().map_or(0, |found| found.len())).sum()
}

#[tokio::test]
async fn f14_p08_a_compacted_topic_is_read_to_its_end() {
    let settings = [("log.cleaner.backoff.ms", "20"), ("log.cleaner.io.max.bytes.per.second", "5000000")];
    let server = Server::with(&settings).await;
    let configs = [
        ("cleanup.policy", "compact"),
        ("internal.segment.bytes", "2000"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("file.delete.delay.ms", "0"),
    ];
    topic(&server, "t", &configs).await;
    let mut client = Client::new(&server).await;
    assert_eq!(produce(&mut client, batch(Codec::None, 0, None)).await, (87, -1));
    for number in 0..RECORDS {
        let key = format!("key {}", number % KEYS);
        let codec = Codec::ALL[number % Codec::ALL.len()];
        let (code, offset) = produce(&mut client, batch(codec, number, Some(&key))).await;
        assert_eq!((code, offset), (0, number as i64));
    }
    // What is in the active segment stays as it is: 2,000 bytes hold no more than these.
    let compacted = async {
        loop {
            let seen = consume(&mut client, 700).await;
            if seen.len() < KEYS + 20 {
                return seen;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let seen = timeout(PATIENCE, compacted).await.expect("the topic is compacted");
    for (offset, timestamp, key, value, header) in &seen {
        let expected = format!("value {offset}");
        assert_eq!((*timestamp, value, header), (1_000_000 + offset, &expected, &expected));
        assert_eq!(*key, format!("key {}", *offset as usize % KEYS));
    }
    for last in RECORDS - KEYS..RECORDS {
        assert!(seen.iter().any(|(offset, ..)| *offset == last as i64), "{last} of {seen:?}");
    }
    let (end, bytes) = fetch(&mut client, 1, 1).await;
    let first = Batches::new(&bytes).next().unwrap().unwrap();
    assert_eq!(end, RECORDS as i64);
    // The broker may have gone on meanwhile.
    let next = first.base_offset().0;
    assert!(
        next > 1 && seen.iter().any(|(offset, ..)| *offset == next),
        "a removed offset gives the next: {next}"
    );

    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let checkpoint = std::fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).unwrap();
    assert!(checkpoint.starts_with("0\n1\nt 0 "), "{checkpoint}");
    let server = Server::on(dir, &settings).await;
    let mut client = Client::new(&server).await;
    let again = consume(&mut client, 1 << 20).await;
    assert!(again.iter().all(|record| seen.contains(record)) && again.ends_with(&seen[seen.len() - KEYS..]));
    assert_eq!(produce(&mut client, batch(Codec::None, RECORDS, Some("key"))).await, (0, RECORDS as i64));
}

#[tokio::test]
async fn a_change_of_the_policy_holds_at_once() {
    let server = Server::with(&[("log.cleaner.backoff.ms", "20")]).await;
    let configs = [("internal.segment.bytes", "2000"), ("min.cleanable.dirty.ratio", "0.01")];
    topic(&server, "t", &configs).await;
    let mut client = Client::new(&server).await;
    for number in 0..100 {
        produce(&mut client, batch(Codec::None, number, Some("key"))).await;
    }
    sleep(Duration::from_millis(200)).await;
    assert_eq!(consume(&mut client, 1 << 20).await.len(), 100, "nothing is compacted that need not be");
    let set = |value: &str| [("cleanup.policy".to_owned(), broker::catalog::Change::Set(value.to_owned()))];
    server.running.broker().catalog.alter_topic("t", &set("compact"), false).await.unwrap();
    let compacted = async {
        while consume(&mut client, 1 << 20).await.len() > 30 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, compacted).await.expect("the topic is compacted");
}

#[tokio::test]
async fn committed_offsets_are_compacted_and_stay_what_they_are() {
    let settings = [
        ("log.cleaner.backoff.ms", "20"),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.segment.bytes", "4096"),
        ("log.segment.delete.delay.ms", "0"),
    ];
    let server = Server::with(&settings).await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    let commit = |offset: i64| {
        let partition =
            OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(text("t")))
            .with_partitions(vec![partition]);
        OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    };
    let mut offset = 0;
    let directory = server.dir.path().join("__consumer_offsets-0");
    let commits = async {
        // More than a hundred bytes each.
        while offset < COMMITS || log_bytes(&directory) > 15_000 {
            offset += 1;
            let answer = client.call(8, &commit(offset)).await;
            // 14 and 15 while the coordinator is made and loaded.
            let code = answer.topics[0].partitions[0].error_code;
            assert!(matches!(code, 0 | 14 | 15), "{answer:?}");
        }
    };
    timeout(PATIENCE, commits).await.expect("the log of committed offsets is compacted");
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let server = Server::on(dir, &settings).await;
    let mut client = Client::new(&server).await;
    let topic =
        OffsetFetchRequestTopic::default().with_name(TopicName(text("t"))).with_partition_indexes(vec![0]);
    let request =
        OffsetFetchRequest::default().with_group_id(GroupId(text("g"))).with_topics(Some(vec![topic]));
    let fetched = async {
        loop {
            let answer = client.call(7, &request).await;
            if answer.error_code == 0 {
                return answer.topics[0].partitions[0].committed_offset;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, fetched).await.expect("the coordinator is loaded"), offset);
}
