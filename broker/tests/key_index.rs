//! The key index behind a socket: when it is on, that it stands after a restart, and that it changes no answer.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use records::batch::{BatchBuilder, HEADER_LEN, stamp};
use records::compression::compress;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType, varint};
use storage::inspect::{Depth, PartitionReport, inspect};
use storage::{Disk, OsDisk};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::Client;
use common::Server;
use share::{ALL, Setup, produce_to};

fn partition(setup: &Setup) -> PartitionId {
    PartitionId { topic: TopicId(setup.topic), index: 0 }
}

fn is_keyed(setup: &Setup) -> bool {
    setup.server.running.broker().keyed.contains(partition(setup))
}

/// What stands in the directory of a broker that was stopped.
fn look(dir: &tempfile::TempDir) -> PartitionReport {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir.path()).unwrap());
    inspect(&disk, "t", 0, Depth::Verify).unwrap()
}

/// Stops the broker; the key index covers the whole log and is right.
async fn stopped_with_all_indexed(setup: Setup) -> tempfile::TempDir {
    let Server { running, dir, .. } = setup.server;
    running.stop().await.unwrap();
    let report = look(&dir);
    assert_eq!(report.findings, []);
    let indexed: Vec<_> = report.key_indexes.iter().map(|index| (index.base, index.next)).collect();
    let all: Vec<_> = report.segments.iter().map(|segment| (segment.base, segment.end)).collect();
    assert_eq!(indexed, all);
    assert_eq!(report.key_indexes.iter().map(|index| index.records).sum::<u64>(), report.end.get() as u64);
    dir
}

#[tokio::test]
async fn it_comes_with_the_first_key_ordered_group_and_stands_after_a_restart() {
    let setup = Setup::new("key").await;
    setup.produce(40).await;
    assert!(!is_keyed(&setup), "nobody has asked for it");
    let mut member = setup.joined("a").await;
    member.fetch(ALL).await;
    assert!(is_keyed(&setup));
    setup.produce(60).await;
    let dir = stopped_with_all_indexed(setup).await;
    let setup = Setup::on(Server::on(dir, &[]).await).await;
    assert!(is_keyed(&setup), "on from the start, before any group comes");
    setup.produce(5).await;
    let dir = stopped_with_all_indexed(setup).await;
    for entry in std::fs::read_dir(dir.path().join("t-0")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "keyindex") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let setup = Setup::on(Server::on(dir, &[]).await).await;
    assert!(!is_keyed(&setup), "without files it is off");
    setup.produce(5).await;
    let mut member = setup.joined("b").await;
    member.fetch(ALL).await;
    assert!(is_keyed(&setup), "the group comes back, and it is made anew");
    setup.produce(5).await;
    stopped_with_all_indexed(setup).await;
}

#[tokio::test]
async fn older_segments_are_indexed_beside_everything_else() {
    let setup = Setup::new("key").await;
    let configs = [("segment.bytes".to_owned(), "1048576".to_owned())].into();
    setup.server.running.broker().catalog.set_topic_configs("t", configs).await.unwrap();
    for number in 0..60 {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        for record in 0..100 {
            batch.append(0, Some(format!("{number}-{record}").as_bytes()), Some(&[7; 1000]), &[]);
        }
        let answer = produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await;
        assert_eq!(answer, (0, number * 100));
    }
    let mut member = setup.joined("a").await;
    let mut steps = 0;
    loop {
        // Each waits a moment for records that will not come.
        member.fetch(share::Fetch { wait_ms: 50, max_records: 1, ..ALL }).await;
        let report = look(&setup.server.dir);
        let sealed = report.segments.len() - 1;
        assert!(sealed > 4);
        if (0..sealed).all(|number| {
            let (segment, next) = (&report.segments[number], report.segments[number + 1].base);
            report.key_indexes.iter().any(|index| index.base == segment.base && index.next == next)
        }) {
            break;
        }
        steps += 1;
        assert!(steps < 200, "{:?}", report.key_indexes);
    }
    stopped_with_all_indexed(setup).await;
}

#[tokio::test]
async fn it_comes_when_a_group_takes_up_key_order() {
    let setup = Setup::new("none").await;
    setup.produce(10).await;
    let mut member = setup.joined("a").await;
    member.fetch(ALL).await;
    assert!(!is_keyed(&setup));
    setup.configure(&[("sluice.share.order", "key")]).await;
    // The shard takes facts and commands in their order.
    member.fetch(share::Fetch { wait_ms: 0, ..ALL }).await;
    assert!(is_keyed(&setup));
    setup.produce(10).await;
    stopped_with_all_indexed(setup).await;
}

#[tokio::test]
async fn more_keys_than_a_request_may_hold_are_indexed_all_the_same() {
    let setup = Setup::new("key").await;
    let mut member = setup.joined("a").await;
    member.fetch(ALL).await;
    // Small on the wire and of many records: their hashes are left to the log.
    let mut batch = BatchBuilder::new(Codec::Zstd, TimestampType::Create);
    for _ in 0..100_000 {
        batch.append(0, Some(b"same"), Some(b""), &[]);
    }
    let batch = batch.build(Offset(0), -1);
    assert!(4 * batch.len() + 65_536 < 16 * 100_000, "{} bytes", batch.len());
    assert_eq!(produce_to(&setup.server, "t", batch).await, (0, 0));
    setup.produce(10).await;
    stopped_with_all_indexed(setup).await;
}

/// One record with this offset delta, whose length field says `length`, or the truth.
fn record(delta: i32, length: Option<i32>) -> Vec<u8> {
    let mut body = vec![0, 0];
    varint::write_i32(&mut body, delta);
    for bytes in [b"key", b"val"] {
        varint::write_i32(&mut body, 3);
        body.extend_from_slice(bytes);
    }
    body.push(0);
    let mut record = Vec::new();
    varint::write_i32(&mut record, length.unwrap_or_else(|| i32::try_from(body.len()).unwrap()));
    record.extend(body);
    record
}

/// A batch with these claims around these records, and a right CRC.
fn batch(codec: Codec, count: i32, last_delta: i32, records: &[u8]) -> Bytes {
    let mut like = BatchBuilder::new(codec, TimestampType::Create);
    like.append(0, None, None, &[]);
    let mut bytes = BytesMut::from(&like.build(Offset(0), -1)[..HEADER_LEN]);
    bytes.extend_from_slice(&compress(codec, records));
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&last_delta.to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    // Another max timestamp there and back: the CRC is made anew.
    stamp(&mut bytes, Offset(0), -1, None, Some(1));
    stamp(&mut bytes, Offset(0), -1, None, Some(0));
    bytes.freeze()
}

#[tokio::test]
async fn p12_p22_batches_that_lie_are_refused_with_a_key_index_and_without() {
    let setup = Setup::new("key").await;
    setup.server.topic("plain").await;
    let mut member = setup.joined("a").await;
    member.fetch(ALL).await;
    assert!(is_keyed(&setup));
    let two = [record(0, None), record(1, None)].concat();
    for topic in ["t", "plain"] {
        for codec in Codec::ALL {
            let lies = [
                batch(codec, 1, 0, &record(0, Some(i32::MAX))),
                batch(codec, 1, 0, &record(0, Some(-5))),
                batch(codec, 3, 2, &two),
                batch(codec, 1, 0, &two),
                batch(codec, 2, 1, &[record(0, None), record(0, None)].concat()),
                batch(codec, 2, 1, &[record(5, None), record(9, None)].concat()),
                batch(codec, 2, 1, &[record(1, None), record(0, None)].concat()),
                batch(codec, 2, 2, &two),
                batch(codec, 2, 0, &two),
            ];
            for (number, lie) in lies.into_iter().enumerate() {
                let answer = produce_to(&setup.server, topic, lie).await;
                assert_eq!(answer, (87, -1), "{topic} {codec:?} {number}");
            }
        }
    }
    for (topic, codec) in [("t", Codec::None), ("plain", Codec::Gzip)] {
        let answer = produce_to(&setup.server, topic, batch(codec, 2, 1, &two)).await;
        assert_eq!(answer, (0, 0), "nothing was stored before");
    }
    drop(Client::new(&setup.server).await);
    stopped_with_all_indexed(setup).await;
}
