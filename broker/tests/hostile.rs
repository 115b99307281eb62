//! What strangers send, and that it harms nobody else.

#![allow(clippy::unwrap_used)]

#[path = "common/client.rs"]
mod client;
mod common;

use std::time::Duration;

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, ListOffsetsRequest, ProduceRequest, TopicName,
};
use records::batch::stamp::stamp;
use records::batch::{BatchBuilder, TimestampType};
use records::compression::{Codec, compress};
use records::ids::Offset;
use records::varint;

use tokio::io::AsyncReadExt;

use client::{Client, text};
use common::{Server, Stopwatch, flexible, framed, hex, request};

#[tokio::test]
async fn b01_lengths_are_checked_before_anything_is_allocated() {
    let server = Server::with(&[("socket.request.max.bytes", "1000000")]).await;
    let mut bystander = server.connect().await;
    for length in ["ffffffff", "7fffffff", "00000000", "80000000", "000f4241"] {
        let mut raw = server.connect().await;
        raw.send(&hex(length)).await;
        raw.closes().await;
    }
    bystander.send(&request(18, 0, 1, &[])).await;
    bystander.frame().await;
    server.answers().await;
}

#[tokio::test]
async fn b02_counts_beyond_the_bytes_close() {
    let server = Server::start().await;
    let bodies = [
        request(3, 1, 1, &hex("7fffffff")),
        request(3, 1, 1, &hex("000f4240 0000 0000")),
        framed(&hex("0003 000c 00000001 0001 61 8080808008")),
        request(11, 2, 1, &hex("0001 67 00001770 00001770 0000 0001 63 7fffffff")),
    ];
    for bytes in bodies {
        let mut raw = server.connect().await;
        raw.send(&bytes).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn b03_other_protocols_close_at_once() {
    let server = Server::start().await;
    for bytes in
        [hex("16030100c8010000c40303"), b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"SSH-2.0-x\r\n".to_vec()]
    {
        let mut raw = server.connect().await;
        raw.send(&bytes).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn b04_cut_bodies_close_and_trailing_bytes_do_not() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    raw.send(&request(3, 1, 1, &hex("00000001 0005 6162"))).await;
    raw.closes().await;
    let whole = hex("0003 000c 00000007 0001 61 00 02 00000000000000000000000000000000 03 7a7a 00 00 00 00");
    for length in 1..whole.len() {
        let mut raw = server.connect().await;
        raw.send(&framed(&whole[..length])).await;
        raw.closes().await;
    }
    let mut raw = server.connect().await;
    let mut trailing = whole.clone();
    trailing.extend(b"more");
    raw.send(&framed(&trailing)).await;
    assert_eq!(raw.frame().await[..4], hex("00000007"));
    server.answers().await;
}

const INVALID_RECORD: i16 = 87;

/// A batch of one record with a key.
fn good_batch() -> Vec<u8> {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(1_000, Some(b"k"), Some(b"v"), &[]);
    batch.build(Offset(0), -1).to_vec()
}

/// The same with other bytes for its records, in this codec.
fn batch_of(codec: Codec, payload: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 61;
    let mut batch = good_batch();
    batch.truncate(HEADER_BYTES);
    batch.extend(payload);
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[22] = codec as u8;
    // A change of the max timestamp writes the checksum anew.
    for max_timestamp in [2_000, 1_000] {
        stamp(&mut batch, Offset(0), -1, None, Some(max_timestamp));
    }
    batch
}

/// A record's bytes behind their length.
fn record(body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    varint::write_i32(&mut record, i32::try_from(body.len()).unwrap());
    record.extend(body);
    record
}

/// Topics "plain" and "compacted" of three partitions each.
async fn topics_of_both_kinds(client: &mut Client) {
    let topic = |name: &str, policy: &str| {
        let policy =
            CreatableTopicConfig::default().with_name(text("cleanup.policy")).with_value(Some(text(policy)));
        CreatableTopic::default()
            .with_name(TopicName(text(name)))
            .with_num_partitions(3)
            .with_replication_factor(1)
            .with_configs(vec![policy])
    };
    let topics = vec![topic("plain", "delete"), topic("compacted", "compact")];
    let answer =
        client.call(7, &CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(1_000)).await;
    assert!(answer.topics.iter().all(|topic| topic.error_code == 0));
}

/// Produces a batch to each of the partitions from 0 on; their codes.
async fn produced(client: &mut Client, topic: &str, batches: Vec<Vec<u8>>) -> Vec<i16> {
    let data = (0..).zip(batches).map(|(index, batch)| {
        PartitionProduceData::default().with_index(index).with_records(Some(batch.into()))
    });
    let topic =
        TopicProduceData::default().with_name(TopicName(text(topic))).with_partition_data(data.collect());
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![topic]);
    let answer = client.call(9, &request).await;
    answer.responses[0].partition_responses.iter().map(|one| one.error_code).collect()
}

/// Where each of the three partitions ends.
async fn ends(client: &mut Client, topic: &str) -> Vec<i64> {
    let end = |index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions((0..3).map(end).collect());
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    client.call(7, &request).await.topics[0].partitions.iter().map(|one| one.offset).collect()
}

#[tokio::test]
async fn b05_decompression_bombs_are_refused_on_every_topic() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    topics_of_both_kinds(&mut client).await;
    let zeros = vec![0; 64 << 20];
    let mut large = BatchBuilder::new(Codec::Zstd, TimestampType::Create);
    large.append(1_000, Some(b"k"), Some(&zeros), &[]);
    let packed = compress(Codec::Gzip, &zeros);
    let bombs = [
        batch_of(Codec::Gzip, &packed),
        batch_of(Codec::Gzip, &compress(Codec::Gzip, &packed)),
        batch_of(Codec::Zstd, &compress(Codec::Zstd, &zeros)),
        batch_of(Codec::Lz4, &compress(Codec::Lz4, &zeros)),
        // One segment of 2^40 bytes, by its own word.
        batch_of(Codec::Zstd, b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\x01\0\0\x01\0\0"),
        large.build(Offset(0), -1).to_vec(),
    ];
    drop(zeros);
    for topic in ["plain", "compacted"] {
        for (place, bomb) in bombs.iter().enumerate() {
            assert!(bomb.len() < 1_000_000, "it is refused for what it unpacks to");
            let codes = produced(&mut client, topic, vec![bomb.clone()]).await;
            assert_eq!(codes, [INVALID_RECORD], "bomb {place} to {topic}");
        }
        assert_eq!(ends(&mut client, topic).await, [0, 0, 0], "nothing is stored");
    }
    server.answers().await;
}

#[tokio::test]
async fn b06_a_malformed_record_is_refused_for_its_partition_alone() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    topics_of_both_kinds(&mut client).await;
    // Attributes, timestamp delta, offset delta; then key, value and headers.
    let mut headers = vec![0, 0, 0, 2, b'k', 2, b'v'];
    varint::write_i32(&mut headers, i32::MAX);
    let mut long_key = vec![0, 0, 0];
    varint::write_i32(&mut long_key, 1_000);
    long_key.extend(b"short");
    let mut late = vec![0];
    varint::write_i64(&mut late, i64::MAX);
    late.extend([0, 2, b'k', 2, b'v', 0]);
    let bad = [record(&headers), record(&long_key), record(&late), vec![0xff; 11], vec![1, 0]];
    let mut stored = 0;
    for payload in &bad {
        for codec in Codec::ALL {
            let batch = batch_of(codec, &compress(codec, payload));
            for topic in ["plain", "compacted"] {
                let codes =
                    produced(&mut client, topic, vec![good_batch(), batch.clone(), good_batch()]).await;
                assert_eq!(codes, [0, INVALID_RECORD, 0], "{payload:02x?} in {codec:?} to {topic}");
            }
            stored += 1;
        }
    }
    for topic in ["plain", "compacted"] {
        assert_eq!(ends(&mut client, topic).await, [stored, 0, stored], "{topic}");
    }
    server.answers().await;
}

#[tokio::test]
async fn b07_slow_writers_are_closed_and_disturb_nobody() {
    let server = Server::with(&[("connections.max.idle.ms", "700")]).await;
    let mut stalled = Vec::new();
    for _ in 0..200 {
        let mut raw = server.connect().await;
        raw.send(&hex("000000")).await;
        stalled.push(raw);
    }
    let mut half = server.connect().await;
    half.send(&hex("05f5e100 0000 0009 00000001")).await;
    let begun = Stopwatch::start();
    server.answers().await;
    assert!(begun.elapsed() < Duration::from_millis(300), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_millis(800)).await;
    for raw in &mut stalled {
        raw.closes().await;
    }
    half.closes().await;
}

#[tokio::test]
async fn b07_lengths_that_are_never_filled_take_no_memory_from_others() {
    let server = Server::with(&[("queued.max.request.bytes", "110000000")]).await;
    let free = server.running.broker().admission.free();
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut raw = server.connect().await;
        // Metadata v1, 90 MB long by its own word, and nothing behind its header.
        raw.send(&hex("055d4a80 0003 0001 00000001 0001 61")).await;
        stalled.push(raw);
    }
    let mut good = server.connect().await;
    for correlation in 0..20 {
        let watch = Stopwatch::start();
        good.send(&request(3, 1, correlation, &hex("ffffffff"))).await;
        good.frame().await;
        assert!(watch.elapsed() < Duration::from_secs(1), "waited for memory that nobody uses");
    }
    let taken = free - server.running.broker().admission.free();
    assert!(taken < 1 << 20, "{taken} bytes are reserved for bytes that never came");
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn b08_slow_readers_are_bounded_and_closed() {
    let server = Server::with(&[("connections.max.idle.ms", "1500")]).await;
    server.topic("big").await;
    fill(&server).await;
    let before = resident_bytes();
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut raw = server.connect().await;
        for correlation in 0..4 {
            raw.send(&fetch_all(correlation)).await;
        }
        slow.push(raw);
    }
    let begun = Stopwatch::start();
    server.answers().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "others are served: {:?}", begun.elapsed());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for answers that nobody reads");
    tokio::time::sleep(Duration::from_secs(3)).await;
    for raw in &mut slow {
        let mut taken = Vec::new();
        let end = raw.stream.read_to_end(&mut taken);
        // A reset or an end: either way the connection is closed, long before its four answers were sent.
        let _ = tokio::time::timeout(Duration::from_secs(5), end).await.expect("closed by the idle limit");
        assert!(taken.len() < 100 << 20, "{} bytes were sent to one who does not read", taken.len());
    }
    server.answers().await;
}

/// 50 MiB in topic "big", in batches of 1 MB.
async fn fill(server: &Server) {
    let value = vec![7; 1_000_000];
    let mut raw = server.connect().await;
    for correlation in 0..50 {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        batch.append(0, None, Some(&value), &[]);
        let batch = batch.build(Offset(0), -1);
        // Produce v3: no transactional id, acks 1, timeout, one topic with one partition.
        let mut body = hex("ffff 0001 00000bb8 00000001 0003 626967 00000001 00000000");
        body.extend(i32::try_from(batch.len()).unwrap().to_be_bytes());
        body.extend(&batch);
        raw.send(&request(0, 3, correlation, &body)).await;
        raw.frame().await;
    }
}

/// Fetch v4 of topic "big" from the start, up to 50 MiB.
fn fetch_all(correlation: i32) -> Vec<u8> {
    let body = hex(
        "ffffffff 00000064 00000001 03200000 00 00000001 0003 626967 00000001 00000000 0000000000000000 03200000",
    );
    request(1, 4, correlation, &body)
}

#[tokio::test]
async fn b09_connections_come_and_go_and_wait_for_their_turn() {
    let server = Server::with(&[("max.connections", "5")]).await;
    for _ in 0..500 {
        drop(server.connect().await);
    }
    server.answers().await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(server.connect().await);
        held.last_mut().unwrap().send(&request(18, 0, 1, &[])).await;
        held.last_mut().unwrap().frame().await;
    }
    let mut waiting = server.connect().await;
    waiting.send(&request(18, 0, 2, &[])).await;
    let early = tokio::time::timeout(Duration::from_millis(200), waiting.frame()).await;
    assert!(early.is_err(), "served beyond max.connections");
    held.pop();
    assert_eq!(waiting.frame().await[..4], hex("00000002"));
}

#[tokio::test]
async fn b11_names_that_would_be_paths() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    for name in [&b"../x"[..], b"a/b", b"a\0b", b"\x1b[31m", b".", b"..", b"a\xffb", b"\xc3"] {
        let mut body = vec![2];
        body.extend([0; 16]);
        body.push(u8::try_from(name.len() + 1).unwrap());
        body.extend(name);
        body.extend(hex("00 01 00 00"));
        raw.send(&flexible(3, 12, 1, &body)).await;
        let answer = raw.frame().await;
        assert!(answer.windows(2).any(|pair| pair == hex("0011")), "{name:?}: {answer:02x?}");
    }
    assert_eq!(server.running.broker().catalog.image().topics().len(), 0);
    server.answers().await;
}

#[tokio::test]
async fn b11_names_longer_than_kafkas_longest_close_and_shorter_ones_do_not() {
    let server = Server::start().await;
    // DescribeGroups v5 of one group, whose compact name could be of any length.
    let describe = |length: usize| {
        let mut body = vec![2];
        let mut rest = length + 1;
        while rest >= 0x80 {
            body.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        body.push(u8::try_from(rest).unwrap());
        body.resize(body.len() + length, b'g');
        body.extend([0, 0]);
        flexible(15, 5, 1, &body)
    };
    for length in [1 << 20, 32_768] {
        let mut raw = server.connect().await;
        raw.send(&describe(length)).await;
        raw.closes().await;
    }
    let mut raw = server.connect().await;
    raw.send(&describe(32_767)).await;
    assert_eq!(raw.frame().await[..4], hex("00000001"));
    // The longest client id, of escapes for a terminal.
    let mut frame = hex("0003 0001 00000002 7fff");
    frame.extend(b"\x1b[2J\x07\n".iter().cycle().take(32_767));
    frame.extend(hex("00000000"));
    raw.send(&framed(&frame)).await;
    assert_eq!(raw.frame().await[..4], hex("00000002"));
    server.answers().await;
}
