//! Who brings work runs the shard: under load from many threads nothing is left lying, and no order is lost.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, ProduceRequest, TopicName};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};
use tokio::time::timeout;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::Server;

const PRODUCERS: i64 = 16;
const READERS: usize = 8;
const RECORDS: i64 = 300;
const PATIENCE: Duration = Duration::from_secs(60);

fn batch(key: i64, number: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    builder.append(1, Some(&key.to_be_bytes()), Some(&number.to_be_bytes()), &[]);
    builder.build(Offset(0), -1)
}

/// Sends one record at a time; each must stand behind the one before.
async fn produce(mut client: Client, key: i64, acks: i16) {
    let mut last = -1;
    for number in 0..RECORDS {
        let part = PartitionProduceData::default().with_index(0).with_records(Some(batch(key, number)));
        let topic =
            TopicProduceData::default().with_name(TopicName(text("t"))).with_partition_data(vec![part]);
        let request =
            ProduceRequest::default().with_acks(acks).with_timeout_ms(5_000).with_topic_data(vec![topic]);
        let answer = client.call(9, &request).await;
        let part = &answer.responses[0].partition_responses[0];
        assert_eq!(part.error_code, 0);
        assert!(part.base_offset > last, "{} behind {last}", part.base_offset);
        last = part.base_offset;
    }
}

/// Reads everything by fetches that wait for a long time: one that is not woken would be seen.
async fn read(mut client: Client) {
    let (mut position, mut last) = (0, vec![-1; PRODUCERS as usize]);
    while position < PRODUCERS * RECORDS {
        let part = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(position)
            .with_partition_max_bytes(4_096);
        let topic = FetchTopic::default().with_topic(TopicName(text("t"))).with_partitions(vec![part]);
        let request =
            FetchRequest::default().with_max_wait_ms(100_000).with_min_bytes(1).with_topics(vec![topic]);
        let answer = client.call(12, &request).await;
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.error_code, 0);
        for batch in Batches::new(&part.records.clone().unwrap()) {
            let batch = batch.unwrap();
            for record in &batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.offset, Offset(position));
                let number = |bytes: Option<&[u8]>| i64::from_be_bytes(bytes.unwrap().try_into().unwrap());
                let last = &mut last[usize::try_from(number(record.key)).unwrap()];
                assert_eq!(number(record.value), *last + 1);
                *last += 1;
                position += 1;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_connections_bring_work_and_all_of_it_is_done() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        tasks.spawn(read(Client::new(&server).await));
    }
    for key in 0..PRODUCERS {
        let acks = if key % 4 == 0 { -1 } else { 1 };
        tasks.spawn(produce(Client::new(&server).await, key, acks));
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    };
    timeout(PATIENCE, all).await.expect("nothing is left lying");
    server.running.stop().await.unwrap();
}
