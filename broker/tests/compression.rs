//! `compression.type` behind a socket: what is stored, and what clients read back.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use records::batch::{BatchBuilder, BatchView, Header};
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};
use storage::inspect::{Depth, inspect};
use storage::{Disk, OsDisk};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::{Client, text};
use common::Server;
use share::produce_to;

const NAMES: [(&str, Codec); 5] = [
    ("uncompressed", Codec::None),
    ("gzip", Codec::Gzip),
    ("snappy", Codec::Snappy),
    ("lz4", Codec::Lz4),
    ("zstd", Codec::Zstd),
];

async fn topic(server: &Server, name: &str, configs: &[(&str, &str)]) {
    server.topic(name).await;
    let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    server.running.broker().catalog.set_topic_configs(name, configs).await.unwrap();
}

/// A batch of an idempotent producer.
fn batch(codec: Codec, sequence: i32) -> Bytes {
    let mut batch = BatchBuilder::new(codec, TimestampType::Create).producer(7, 0, sequence);
    for number in 0..100 {
        let (key, value) = (format!("key {number}"), format!("a value of some length {number}"));
        let header = Header { key: b"h", value: Some(b"header") };
        batch.append(1000 + number, Some(key.as_bytes()), Some(value.as_bytes()), &[header]);
    }
    batch.build(Offset(0), -1)
}

async fn fetched(server: &Server, topic: &str) -> Bytes {
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let topics =
        vec![FetchTopic::default().with_topic(TopicName(text(topic))).with_partitions(vec![partition])];
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(topics);
    let answer = Client::new(server).await.call(11, &request).await;
    answer.responses[0].partitions[0].records.clone().unwrap()
}

#[tokio::test]
async fn every_codec_becomes_the_topics_own() {
    let server = Server::start().await;
    for (name, wanted) in NAMES {
        topic(&server, name, &[("compression.type", name)]).await;
        for (number, sent) in Codec::ALL.into_iter().enumerate() {
            let sequence = i32::try_from(number).unwrap() * 100;
            let base = i64::from(sequence);
            assert_eq!(
                produce_to(&server, name, batch(sent, sequence)).await,
                (0, base),
                "{sent:?} to {name}"
            );
            assert_eq!(
                produce_to(&server, name, batch(sent, sequence)).await,
                (0, base),
                "the same once more"
            );
        }
        let stored = fetched(&server, name).await;
        let mut count = 0;
        for (number, stored) in Batches::new(&stored).enumerate() {
            let stored = stored.unwrap();
            let base = i64::try_from(number).unwrap() * 100;
            assert!(stored.crc_is_valid());
            assert_eq!(stored.attributes().codec(), Ok(wanted), "{name}");
            let sent = batch(Codec::None, base as i32);
            let sent = BatchView::parse(&sent).unwrap();
            assert_eq!((stored.base_offset(), stored.last_offset()), (Offset(base), Offset(base + 99)));
            assert_eq!(stored.max_timestamp(), sent.max_timestamp());
            assert_eq!((stored.producer_id(), stored.base_sequence()), (7, base as i32));
            let (sent, stored) = (sent.records(1 << 20).unwrap(), stored.records(1 << 20).unwrap());
            for (sent, stored) in sent.iter().zip(stored.iter()) {
                assert_eq!(sent.unwrap().raw, stored.unwrap().raw);
            }
            count += 1;
        }
        assert_eq!(count, 5, "{name}");
    }
    let Server { running, dir, .. } = server;
    running.stop().await.unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir.path()).unwrap());
    for (name, _) in NAMES {
        assert_eq!(inspect(&disk, name, 0, Depth::Verify).unwrap().findings, []);
    }
}

#[tokio::test]
async fn the_limit_holds_for_what_is_sent_and_for_what_is_stored() {
    let server = Server::start().await;
    let (plain, packed) = (batch(Codec::None, 0), batch(Codec::Zstd, 0));
    assert!(packed.len() * 2 < plain.len());
    let limit = (plain.len() - 1).to_string();
    topic(&server, "unpacks", &[("compression.type", "uncompressed"), ("max.message.bytes", &limit)]).await;
    topic(&server, "packs", &[("compression.type", "zstd"), ("max.message.bytes", &limit)]).await;
    topic(&server, "keeps", &[("compression.type", "producer"), ("max.message.bytes", &limit)]).await;
    for name in ["unpacks", "packs", "keeps"] {
        assert_eq!(produce_to(&server, name, plain.clone()).await, (10, -1), "{name}: too large as sent");
    }
    assert_eq!(produce_to(&server, "unpacks", packed.clone()).await, (10, -1), "too large as stored");
    for name in ["packs", "keeps"] {
        assert_eq!(produce_to(&server, name, packed.clone()).await, (0, 0), "{name}");
    }
    topic(&server, "unpacks", &[("compression.type", "uncompressed")]).await;
    assert_eq!(
        produce_to(&server, "unpacks", packed).await,
        (0, 0),
        "a setting holds from the next batch on"
    );
}

#[tokio::test]
async fn levels_and_the_append_time_go_along() {
    let server = Server::with(&[("compression.type", "zstd"), ("compression.zstd.level", "19")]).await;
    let broker = server.running.broker();
    server.topic("of-the-broker").await;
    let packing = broker.catalog.image().topic("of-the-broker").unwrap().packing.unwrap();
    assert_eq!((packing.codec, packing.level), (Codec::Zstd, Some(19)));
    let own = [
        ("compression.type", "gzip"),
        ("compression.gzip.level", "9"),
        ("message.timestamp.type", "LogAppendTime"),
    ];
    topic(&server, "own", &own).await;
    let packing = broker.catalog.image().topic("own").unwrap().packing.unwrap();
    assert_eq!((packing.codec, packing.level), (Codec::Gzip, Some(9)));
    assert_eq!(produce_to(&server, "own", batch(Codec::Lz4, 0)).await, (0, 0));
    let stored = fetched(&server, "own").await;
    let stored = BatchView::parse(&stored).unwrap();
    assert!(stored.crc_is_valid() && stored.attributes().is_log_append_time());
    assert_eq!(stored.attributes().codec(), Ok(Codec::Gzip));
    assert!(stored.max_timestamp() > 1_000_000, "the broker's own clock");
}

#[tokio::test]
async fn requests_that_do_not_fit_beside_each_other_wait() {
    // Each claims all of the memory for batches that are packed anew.
    let server =
        Server::with(&[("socket.request.max.bytes", "1048576"), ("queued.max.request.bytes", "1048576")])
            .await;
    topic(&server, "t", &[("compression.type", "lz4")]).await;
    let answers = futures::future::join_all((0..8).map(|_| {
        produce_to(&server, "t", {
            let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
            batch.append(0, Some(b"k"), Some(&[1; 10_000]), &[]);
            batch.build(Offset(0), -1)
        })
    }))
    .await;
    let mut bases: Vec<i64> = answers
        .iter()
        .map(|(error, base)| {
            assert_eq!(*error, 0);
            *base
        })
        .collect();
    bases.sort_unstable();
    assert_eq!(bases, (0..8).collect::<Vec<_>>());
}
