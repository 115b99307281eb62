//! Readers of committed and of uncommitted records, through the socket. Clients cannot write transactions yet, so batches
//! and markers go to the shard, past the handler.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use coordinator::command::{Acks, Command, DeleteTo, Produce};
use coordinator::reply::Reply;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{FetchRequest, ListOffsetsRequest, TopicName};
use records::batch::{BatchBuilder, EndMarker};
use records::ids::{Offset, PartitionId};
use records::{BatchView, Batches, Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::{Raw, Server, Stopwatch, flexible, hex, request};

const COMMITTED: i8 = 1;
const UNCOMMITTED: i8 = 0;
const PRODUCER: i64 = 4711;
/// Longer than anything here may take, shorter than a wait that nobody ends.
const SOON: Duration = Duration::from_secs(5);

fn partition(server: &Server) -> PartitionId {
    server.running.broker().catalog.image().topic("t").unwrap().partition(0).unwrap()
}

/// Appends a batch as it is; its base offset.
async fn append(server: &Server, batch: Bytes) -> i64 {
    let produce = Produce { acks: Acks::Written, parts: vec![(partition(server), batch.into())] };
    match server.running.broker().shard.call(Command::Produce(produce)).await.unwrap() {
        Reply::Produced(parts) => parts[0].as_ref().unwrap().base_offset.0,
        other => panic!("{other:?}"),
    }
}

fn batch(producer: Option<(i64, i32)>, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    if let Some((id, sequence)) = producer {
        builder = builder.producer(id, 0, sequence).transactional();
    }
    for number in 0..count {
        builder.append(1_000_000, Some(b"key"), Some(format!("value {number}").as_bytes()), &[]);
    }
    builder.build(Offset(0), -1)
}

async fn end(server: &Server, producer: i64, commit: bool) -> i64 {
    append(server, EndMarker { commit, coordinator_epoch: 0 }.batch(producer, 0, 1_000_000)).await
}

fn fetch_request(server: &Server, version: i16, at: i64, isolation: i8, wait: (i32, i32)) -> FetchRequest {
    let part = FetchPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(at)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_partitions(vec![part]);
    let topic = if version < 13 {
        topic.with_topic(TopicName(text("t")))
    } else {
        topic.with_topic_id(uuid::Uuid::from_bytes(partition(server).topic.0))
    };
    FetchRequest::default()
        .with_max_wait_ms(wait.0)
        .with_min_bytes(wait.1)
        .with_max_bytes(1 << 20)
        .with_isolation_level(isolation)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

async fn fetch(server: &Server, client: &mut Client, version: i16, at: i64, isolation: i8) -> PartitionData {
    let request = fetch_request(server, version, at, isolation, (0, 1));
    let mut answer = client.call(version, &request).await;
    let part = answer.responses.remove(0).partitions.remove(0);
    assert_eq!((answer.error_code, part.error_code), (0, 0));
    part
}

fn bounds(part: &PartitionData) -> (i64, i64, i64) {
    (part.high_watermark, part.last_stable_offset, part.log_start_offset)
}

/// Base offsets of the batches.
fn bases(part: &PartitionData) -> Vec<i64> {
    let bytes = part.records.as_ref().expect("never null");
    Batches::new(bytes).map(|batch| batch.unwrap().base_offset().0).collect()
}

/// Producer and first offset of each; `None` for null.
fn aborted(part: &PartitionData) -> Option<Vec<(i64, i64)>> {
    let listed = part.aborted_transactions.as_ref()?;
    Some(listed.iter().map(|txn| (txn.producer_id.0, txn.first_offset)).collect())
}

async fn latest(client: &mut Client, isolation: i8) -> i64 {
    offset_for(client, -1, isolation).await.0
}

/// Offset and timestamp of ListOffsets.
async fn offset_for(client: &mut Client, timestamp: i64, isolation: i8) -> (i64, i64) {
    let part = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(TopicName(text("t"))).with_partitions(vec![part]);
    let request = ListOffsetsRequest::default().with_isolation_level(isolation).with_topics(vec![topic]);
    let answer = client.call(7, &request).await;
    let part = &answer.topics[0].partitions[0];
    assert_eq!(part.error_code, 0);
    (part.offset, part.timestamp)
}

#[tokio::test]
async fn f11_last_stable_offset() {
    let server = Server::start().await;
    server.topic("t").await;
    append(&server, batch(None, 1)).await;
    assert_eq!(append(&server, batch(Some((PRODUCER, 0)), 3)).await, 1);
    append(&server, batch(Some((PRODUCER, 3)), 3)).await;
    let mut client = Client::new(&server).await;
    for version in 4..=18 {
        let held = fetch(&server, &mut client, version, 1, COMMITTED).await;
        let log_start = if version >= 5 { 0 } else { -1 };
        assert_eq!(bounds(&held), (7, 1, log_start), "v{version}");
        assert_eq!((bases(&held), aborted(&held)), (vec![], Some(vec![])), "v{version}");
        let shown = fetch(&server, &mut client, version, 1, UNCOMMITTED).await;
        assert_eq!(bounds(&shown), (7, 1, log_start), "v{version}");
        assert_eq!((bases(&shown), aborted(&shown)), (vec![1, 4], None), "v{version}");
        let below = fetch(&server, &mut client, version, 0, COMMITTED).await;
        assert_eq!((bases(&below), aborted(&below)), (vec![0], Some(vec![])), "v{version}");
    }
    assert_eq!((latest(&mut client, COMMITTED).await, latest(&mut client, UNCOMMITTED).await), (1, 7));
    end(&server, PRODUCER, true).await;
    assert_eq!((latest(&mut client, COMMITTED).await, latest(&mut client, UNCOMMITTED).await), (8, 8));
    let part = fetch(&server, &mut client, 12, 1, COMMITTED).await;
    assert_eq!((bounds(&part), bases(&part), aborted(&part)), ((8, 8, 0), vec![1, 4, 7], Some(vec![])));
    server.running.stop().await.unwrap();
}

#[tokio::test]
async fn f11_f17_times_are_looked_up_below_the_last_stable_offset() {
    let server = Server::start().await;
    server.topic("t").await;
    let at = |producer: Option<(i64, i32)>, timestamp: i64| {
        let mut builder = BatchBuilder::new(Codec::Gzip, TimestampType::Create);
        if let Some((id, sequence)) = producer {
            builder = builder.producer(id, 0, sequence).transactional();
        }
        builder.append(timestamp, Some(b"key"), Some(b"value"), &[]);
        builder.build(Offset(0), -1)
    };
    append(&server, at(None, 5)).await;
    append(&server, at(Some((PRODUCER, 0)), 9)).await;
    append(&server, at(None, 7)).await;
    let mut client = Client::new(&server).await;
    const NONE: (i64, i64) = (-1, -1);
    for (time, committed, uncommitted) in
        [(0, (0, 5), (0, 5)), (5, (0, 5), (0, 5)), (6, NONE, (1, 9)), (10, NONE, NONE), (-3, NONE, (1, 9))]
    {
        assert_eq!(offset_for(&mut client, time, COMMITTED).await, committed, "{time}");
        assert_eq!(offset_for(&mut client, time, UNCOMMITTED).await, uncommitted, "{time}");
    }
    // A marker is a record with a time, as in Kafka.
    append(&server, EndMarker { commit: false, coordinator_epoch: 0 }.batch(PRODUCER, 0, 20)).await;
    for isolation in [COMMITTED, UNCOMMITTED] {
        for (time, found) in [(6, (1, 9)), (10, (3, 20)), (20, (3, 20)), (21, NONE), (-3, (3, 20))] {
            assert_eq!(offset_for(&mut client, time, isolation).await, found, "{time}");
        }
    }
    server.running.stop().await.unwrap();
}

#[tokio::test]
async fn f11_a_waiting_reader_of_committed_records_wakes_when_they_are_stable() {
    let server = Server::start().await;
    server.topic("t").await;
    append(&server, batch(Some((PRODUCER, 0)), 3)).await;
    let mut client = Client::new(&server).await;
    let watch = Stopwatch::start();
    let whole = batch(Some((PRODUCER, 3)), 3).len() as i32;
    // More than what is stable before the marker, less than what is there with it.
    let request = fetch_request(&server, 12, 0, COMMITTED, (30_000, 2 * whole));
    client.send(12, &request).await;
    let mut other = Client::new(&server).await;
    assert_eq!(latest(&mut other, COMMITTED).await, 0);
    // What is written meanwhile does not count.
    append(&server, batch(None, 100)).await;
    append(&server, batch(Some((PRODUCER, 3)), 3)).await;
    assert_eq!(latest(&mut other, COMMITTED).await, 0);
    end(&server, PRODUCER, true).await;
    let answer = client.receive::<FetchRequest>(12).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!((bases(part), bounds(part)), (vec![0, 3, 103, 106], (107, 107, 0)));
    assert!(watch.elapsed() < SOON, "{:?}", watch.elapsed());
    server.running.stop().await.unwrap();
}

#[tokio::test]
async fn f11_deleted_records_of_an_open_transaction_hold_nothing_back() {
    let server = Server::start().await;
    server.topic("t").await;
    append(&server, batch(Some((PRODUCER, 0)), 3)).await;
    append(&server, batch(None, 2)).await;
    let mut client = Client::new(&server).await;
    client.send(12, &fetch_request(&server, 12, 0, COMMITTED, (0, 1))).await;
    assert_eq!(bounds(&client.receive::<FetchRequest>(12).await.responses[0].partitions[0]), (5, 0, 0));
    let delete = Command::DeleteRecords(vec![(partition(&server), DeleteTo::Offset(Offset(4)))]);
    server.running.broker().shard.call(delete).await.unwrap();
    let part = fetch(&server, &mut client, 12, 4, COMMITTED).await;
    assert_eq!((bounds(&part), bases(&part)), ((5, 4, 4), vec![]));
    assert_eq!(latest(&mut client, COMMITTED).await, 4);
    let dir = restart(server).await;
    let mut client = Client::new(&dir).await;
    assert_eq!(latest(&mut client, COMMITTED).await, 4);
    end(&dir, PRODUCER, false).await;
    let part = fetch(&dir, &mut client, 12, 4, COMMITTED).await;
    assert_eq!((bounds(&part), aborted(&part)), ((6, 6, 4), Some(vec![(PRODUCER, 0)])));
    dir.running.stop().await.unwrap();
}

async fn restart(server: Server) -> Server {
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    Server::on(dir, &[]).await
}

#[tokio::test]
async fn f12_aborted_transaction_that_began_earlier() {
    let mut server = Server::start().await;
    server.topic("t").await;
    append(&server, batch(None, 1)).await;
    append(&server, batch(Some((PRODUCER, 0)), 3)).await;
    append(&server, batch(Some((PRODUCER, 3)), 3)).await;
    assert_eq!(end(&server, PRODUCER, false).await, 7);
    append(&server, batch(None, 1)).await;
    for _ in 0..2 {
        let mut client = Client::new(&server).await;
        for version in 4..=18 {
            for (at, first) in [(0, 0), (2, 1), (5, 4), (7, 7)] {
                let part = fetch(&server, &mut client, version, at, COMMITTED).await;
                assert_eq!(aborted(&part), Some(vec![(PRODUCER, 1)]), "v{version} at {at}");
                assert_eq!(bases(&part)[0], first);
                assert_eq!(bounds(&part).1, 9);
            }
            let part = fetch(&server, &mut client, version, 8, COMMITTED).await;
            assert_eq!((bases(&part), aborted(&part)), (vec![8], Some(vec![])), "v{version}");
            let part = fetch(&server, &mut client, version, 2, UNCOMMITTED).await;
            assert_eq!((bases(&part), aborted(&part)), (vec![1, 4, 7, 8], None), "v{version}");
        }
        server = restart(server).await;
    }
    server.running.stop().await.unwrap();
}

#[tokio::test]
async fn f13_control_records() {
    let server = Server::start().await;
    server.topic("t").await;
    append(&server, batch(Some((PRODUCER, 0)), 1)).await;
    end(&server, PRODUCER, true).await;
    append(&server, batch(Some((PRODUCER, 1)), 1)).await;
    end(&server, PRODUCER, false).await;
    for isolation in [COMMITTED, UNCOMMITTED] {
        for (at, kind) in [(1, 1), (3, 0)] {
            let answer = raw_fetch(&server, at, isolation).await;
            let from = answer.len() - 3 - 78;
            let marker = &answer[from..];
            let view = BatchView::parse(marker).unwrap();
            assert_eq!((view.base_offset().0, view.size()), (at, 78));
            assert!(view.crc_is_valid());
            assert_eq!(marker[21..23], hex("0030"), "transactional and control");
            assert_eq!(marker[53..57], hex("ffffffff"), "no sequence number");
            assert_eq!(marker[57..61], hex("00000001"), "one record");
            let record = format!("20 00 00 00 08 0000000{kind} 0c 0000 00000000 00");
            assert_eq!(marker[61..78], hex(&record));
        }
    }
    server.running.stop().await.unwrap();
}

/// The raw answer of a Fetch v12 that ends with one batch: records, then three empty tag sections.
async fn raw_fetch(server: &Server, at: i64, isolation: i8) -> Vec<u8> {
    let mut raw: Raw = server.connect().await;
    let mut body = hex("ffffffff 00000000 00000001 7fffffff");
    body.extend(isolation.to_be_bytes());
    body.extend(hex("00000000 ffffffff 02 02 74 02 00000000 ffffffff"));
    body.extend(at.to_be_bytes());
    // One byte at most: one batch.
    body.extend(hex("ffffffff ffffffffffffffff 00000001 00 00 01 01 00"));
    raw.send(&flexible(1, 12, 7, &body)).await;
    raw.frame().await
}

#[tokio::test]
async fn f01_empty_lists_are_empty_and_null_lists_null() {
    let server = Server::start().await;
    server.topic("t").await;
    // Fetch v4: correlation, throttle, topics, "t", partitions, index, error, high watermark, last stable offset, aborted.
    for (isolation, listed) in [(COMMITTED, "00000000"), (UNCOMMITTED, "ffffffff")] {
        let mut raw = server.connect().await;
        let mut body = hex("ffffffff 00000000 00000001 7fffffff");
        body.extend(isolation.to_be_bytes());
        body.extend(hex("00000001 0001 74 00000001 00000000 0000000000000000 00100000"));
        raw.send(&request(1, 4, 9, &body)).await;
        let expected = format!(
            "00000009 00000000 00000001 0001 74 00000001 00000000 0000 0000000000000000 0000000000000000 {listed} 00000000"
        );
        assert_eq!(raw.frame().await, hex(&expected));
    }
    server.running.stop().await.unwrap();
}
