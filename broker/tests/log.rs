//! Produce and fetch over the wire, restarts, stopping.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Raw, Server, Stopwatch, flexible, hex};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Batches, Codec, TimestampType};

fn batch(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for record in 0..records {
        let (key, value) = (format!("k{record}"), format!("v{record}"));
        builder.append(1_000_000 + record as i64, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build(Offset(0), -1).to_vec()
}

/// Produce v9 to one partition of topic "t".
fn produce(correlation: i32, acks: i16, partition: i32, batch: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend(acks.to_be_bytes());
    body.extend(hex("00000bb8 02 02 74 02"));
    body.extend(partition.to_be_bytes());
    varint(&mut body, batch.len() + 1);
    body.extend(batch);
    body.extend(hex("00 00 00"));
    flexible(0, 9, correlation, &body)
}

/// Fetch v12 of partition 0 of topic "t".
fn fetch(correlation: i32, offset: i64, wait_ms: i32, bytes_min: i32) -> Vec<u8> {
    let mut body = hex("ffffffff");
    body.extend(wait_ms.to_be_bytes());
    body.extend(bytes_min.to_be_bytes());
    body.extend(hex("7fffffff 00 00000000 ffffffff 02 02 74 02 00000000 ffffffff"));
    body.extend(offset.to_be_bytes());
    body.extend(hex("ffffffff ffffffffffffffff 00100000 00 00 01 01 00"));
    flexible(1, 12, correlation, &body)
}

fn varint(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
}

/// Error code and base offset of an answer of [`produce`].
async fn produced(raw: &mut Raw) -> (i16, i64) {
    let answer = raw.frame().await;
    // Correlation, tags, topics, "t", partitions, index.
    let at = 4 + 1 + 1 + 2 + 1 + 4;
    let code = i16::from_be_bytes(answer[at..at + 2].try_into().unwrap());
    (code, i64::from_be_bytes(answer[at + 2..at + 10].try_into().unwrap()))
}

/// Error code, high watermark and record bytes of an answer of [`fetch`].
async fn fetched(raw: &mut Raw) -> (i16, i64, Vec<u8>) {
    let answer = raw.frame().await;
    // Correlation, tags, throttle, error, session, topics, "t", partitions, index.
    let at = 4 + 1 + 4 + 2 + 4 + 1 + 2 + 1 + 4;
    let code = i16::from_be_bytes(answer[at..at + 2].try_into().unwrap());
    let high = i64::from_be_bytes(answer[at + 2..at + 10].try_into().unwrap());
    // Last stable, log start, aborted, replica.
    let mut at = at + 10 + 8 + 8 + 1 + 4;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let byte = answer[at];
        at += 1;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    (code, high, answer[at..at + length - 1].to_vec())
}

#[tokio::test]
async fn what_is_produced_is_fetched_before_and_after_a_restart() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    for correlation in 0..3 {
        raw.send(&produce(correlation, -1, 0, &batch(3))).await;
        assert_eq!(produced(&mut raw).await, (0, i64::from(correlation) * 3));
    }
    // F02: an offset inside a batch gives the whole batch.
    raw.send(&fetch(4, 4, 0, 1)).await;
    let (code, high, bytes) = fetched(&mut raw).await;
    let bases: Vec<i64> = Batches::new(&bytes).map(|batch| batch.unwrap().base_offset().0).collect();
    assert_eq!((code, high, bases), (0, 9, vec![3, 6]));

    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let server = Server::on(dir, &[]).await;
    assert_eq!(server.running.broker().leader_epoch, 0, "a clean stop raises no epoch");
    let mut raw = server.connect().await;
    raw.send(&fetch(1, 0, 0, 1)).await;
    let (code, high, again) = fetched(&mut raw).await;
    assert_eq!((code, high), (0, 9));
    assert!(again.ends_with(&bytes));
}

#[tokio::test]
async fn p02_acks_0_has_no_answer_and_closes_on_error() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    raw.send(&produce(1, 0, 0, &batch(1))).await;
    raw.send(&flexible(3, 12, 2, &hex("01 00 00 00"))).await;
    assert_eq!(raw.frame().await[..4], hex("00000002"));
    raw.send(&fetch(3, 0, 1000, 1)).await;
    assert_eq!(fetched(&mut raw).await.1, 1);
    raw.send(&produce(4, 0, 9, &batch(1))).await;
    raw.closes().await;
    server.answers().await;
}

#[tokio::test]
async fn p03_p04_p11_each_refusal_has_its_code() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    raw.send(&produce(1, 2, 0, &batch(1))).await;
    assert_eq!(produced(&mut raw).await, (21, -1));
    for partition in [999, -1] {
        raw.send(&produce(1, -1, partition, &batch(1))).await;
        assert_eq!(produced(&mut raw).await, (3, -1));
    }
    let mut flipped = batch(1);
    *flipped.last_mut().unwrap() ^= 1;
    raw.send(&produce(1, -1, 0, &flipped)).await;
    assert_eq!(produced(&mut raw).await, (2, -1));
    raw.send(&produce(1, -1, 0, &[])).await;
    assert_eq!(produced(&mut raw).await, (87, -1));
    raw.send(&produce(1, -1, 0, &batch(1))).await;
    assert_eq!(produced(&mut raw).await, (0, 0));
}

#[tokio::test]
async fn p07_the_max_timestamp_is_that_of_the_records() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut claimed = batch(2);
    let stamp = |bytes: &mut Vec<u8>, max| {
        records::batch::stamp::stamp(bytes, Offset(0), -1, None, Some(max));
    };
    stamp(&mut claimed, -1);
    let mut raw = server.connect().await;
    raw.send(&produce(1, -1, 0, &claimed)).await;
    assert_eq!(produced(&mut raw).await, (0, 0));
    raw.send(&fetch(2, 0, 0, 1)).await;
    let (_, _, bytes) = fetched(&mut raw).await;
    let stored = Batches::new(&bytes).next().unwrap().unwrap();
    assert_eq!(stored.max_timestamp(), 1_000_001);
    assert!(stored.crc_is_valid());
}

#[tokio::test]
async fn produces_of_one_connection_do_not_wait_for_each_other() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    let all: Vec<u8> = (0..200).flat_map(|correlation| produce(correlation, -1, 0, &batch(1))).collect();
    raw.send(&all).await;
    for offset in 0..200 {
        assert_eq!(produced(&mut raw).await, (0, offset));
    }
}

#[tokio::test]
async fn f03_a_parked_fetch_is_answered_by_a_produce() {
    let server = Server::start().await;
    server.topic("t").await;
    let (mut consumer, mut producer) = (server.connect().await, server.connect().await);
    let begun = Stopwatch::start();
    consumer.send(&fetch(1, 0, 8000, 1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    producer.send(&produce(1, 1, 0, &batch(1))).await;
    assert_eq!(fetched(&mut consumer).await.1, 1);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn f04_outside_of_the_log_is_told_at_once() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    for offset in [1, -1] {
        let begun = Stopwatch::start();
        raw.send(&fetch(1, offset, 3000, 1)).await;
        assert_eq!(fetched(&mut raw).await, (1, -1, vec![]));
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test]
async fn r05_stopping_answers_what_is_parked() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut raw = server.connect().await;
    raw.send(&fetch(1, 0, 60_000, 1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Stopwatch::start();
    let stopped = tokio::spawn(server.running.stop());
    assert_eq!(fetched(&mut raw).await, (0, 0, vec![]));
    raw.closes().await;
    stopped.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_directory_serves_one_broker_at_a_time() {
    let server = Server::start().await;
    let path = server.dir.path().to_str().unwrap().to_owned();
    let settings = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", path.as_str())];
    let config = broker::config::Config::with(&settings).unwrap();
    let error = broker::start::start(config).await.unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
}

#[tokio::test]
async fn topics_and_group_settings_outlive_the_broker() {
    let server = Server::start().await;
    server.topic("t").await;
    let catalog = &server.running.broker().catalog;
    let id = catalog.image().topic("t").unwrap().id;
    catalog.set_topic_configs("t", [("retention.ms".to_owned(), "5".to_owned())].into()).await.unwrap();
    catalog.add_partitions("t", 3).await.unwrap();
    let group: std::sync::Arc<str> = "g".into();
    catalog
        .set_group_configs(&group, [("sluice.share.order".to_owned(), "key".to_owned())].into())
        .await
        .unwrap();
    server.topic("gone").await;
    let gone = catalog.image().topic("gone").unwrap().id;
    catalog.delete(gone).await.unwrap();

    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let server = Server::on(dir, &[]).await;
    let image = server.running.broker().catalog.image();
    let topic = image.topic("t").unwrap();
    assert_eq!((topic.id, topic.partitions), (id, 3));
    assert_eq!(topic.configs["retention.ms"], "5");
    assert_eq!(image.group("g").unwrap()["sluice.share.order"], "key");
    assert!(image.topic("gone").is_none());
}
