//! What a produced batch must be, what is stored of it, and what is said to the others: the cases of the produce list
//! through the socket.

#![allow(clippy::unwrap_used)]

use std::ops::RangeInclusive;

use bytes::Bytes;
use kafka_protocol::messages::InitProducerIdRequest;
use kafka_protocol::messages::ProducerId;
use records::batch::{BatchBuilder, BatchView, Header};
use records::ids::Offset;
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/produce.rs"]
mod produce;
#[path = "common/share.rs"]
mod share;

use client::Client;
use common::Server;
use produce::{
    Said, TIME, VERSIONS, all_said, batch, edited, end, numbered, offset_for, placed, produce, produce_as,
    request, stored, transactional, versions, with_attributes, with_payload,
};
use share::{ALL, Setup};

/// Topics `t`, with a key index, and `plain`, without.
const BOTH: [&str; 2] = ["t", "plain"];

async fn both() -> (Setup, Client) {
    let setup = Setup::new("key").await;
    setup.server.topic("plain").await;
    setup.joined("a").await.fetch(ALL).await;
    let client = Client::new(&setup.server).await;
    (setup, client)
}

async fn topic(server: &Server, name: &str, configs: &[(&str, &str)]) {
    server.topic(name).await;
    let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    server.running.broker().catalog.set_topic_configs(name, configs).await.unwrap();
}

/// Each of these is refused with one of the codes, and nothing of it is stored; then a good one is.
async fn refused(
    server: &Server,
    client: &mut Client,
    topic: &str,
    versions: RangeInclusive<i16>,
    codes: &[i16],
    bad: &[Bytes],
) {
    let before = end(client, topic).await;
    for version in versions {
        for (number, bad) in bad.iter().enumerate() {
            let said = produce_as(server, client, version, topic, -1, Some(bad.clone())).await;
            assert!(codes.contains(&said.code), "v{version}, {topic}, number {number}: {said:?}");
            assert_eq!((said.base, said.append_time), (-1, -1));
        }
    }
    assert_eq!(end(client, topic).await, before, "nothing is stored");
    assert_eq!(produce(server, client, topic, batch(Codec::None, 1)).await.short(), (0, before));
}

#[tokio::test]
async fn p01_the_leader_epoch_of_a_client_is_ignored() {
    let (setup, mut client) = both().await;
    for topic in BOTH {
        let mut offset = 0;
        for codec in Codec::ALL {
            for epoch in [0, 77, -5, i32::MIN, i32::MAX] {
                let sent = placed(&batch(codec, 1), 0, epoch);
                let said = produce(&setup.server, &mut client, topic, sent.clone()).await;
                assert_eq!(said.short(), (0, offset), "{codec:?}, epoch {epoch}");
                assert_eq!(stored(&mut client, topic, offset).await, [placed(&sent, offset, 0)]);
                offset += 1;
            }
        }
    }
}

#[tokio::test]
async fn p02_acks_0_is_never_answered_and_an_error_closes() {
    let server = Server::start().await;
    server.topic("t").await;
    topic(&server, "compacted", &[("cleanup.policy", "compact")]).await;
    let mut flipped = batch(Codec::None, 1).to_vec();
    flipped[70] ^= 1;
    let mut keyless = BatchBuilder::new(Codec::None, TimestampType::Create);
    keyless.append(TIME, None, Some(b"v"), &[]);
    let good = || Some(batch(Codec::None, 1));
    let bad: [(&str, i32, Option<Bytes>); 7] = [
        ("t", 9, good()),
        ("missing", 0, good()),
        ("t", 0, Some(Bytes::from(flipped))),
        ("t", 0, Some(Bytes::new())),
        ("t", 0, None),
        ("t", 0, Some(with_attributes(&batch(Codec::None, 1), 0x10))),
        ("compacted", 0, Some(keyless.build(Offset(0), -1))),
    ];
    let mut stored = 0;
    for version in VERSIONS {
        for (name, index, batch) in &bad {
            let mut client = Client::new(&server).await;
            for _ in 0..2 {
                let request = request(&server, version, &[("t", vec![(0, good())])]).with_acks(0);
                client.send(version, &request).await;
                stored += 1;
            }
            // The next answer is that to the next request, and what was sent before it is stored.
            assert_eq!(end(&mut client, "t").await, stored, "v{version}");
            let request = request(&server, version, &[(name, vec![(*index, batch.clone())])]).with_acks(0);
            client.send(version, &request).await;
            client.closes().await;
        }
    }
    assert_eq!(end(&mut Client::new(&server).await, "t").await, stored, "nothing of the bad ones");
    assert_eq!(end(&mut Client::new(&server).await, "compacted").await, 0);
}

#[tokio::test]
async fn p03_other_acks_than_these_three_are_refused() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    for version in VERSIONS {
        for acks in [2, -2, 3, i16::MIN, i16::MAX] {
            let good = Some(batch(Codec::None, 1));
            let topics = [("t", vec![(0, good.clone()), (9, good.clone())]), ("missing", vec![(0, good)])];
            let request = request(&server, version, &topics).with_acks(acks);
            let said = all_said(&client.call(version, &request).await);
            let no = Said { code: 21, base: -1, append_time: -1, log_start: -1, faults: Vec::new() };
            assert_eq!(said, [no.clone(), no.clone(), no], "v{version}, acks {acks}");
        }
    }
    for (number, acks) in [1, -1].into_iter().enumerate() {
        let said = produce_as(&server, &mut client, 9, "t", acks, Some(batch(Codec::None, 1))).await;
        let log_start = 0;
        let yes = Said { code: 0, base: number as i64, append_time: -1, log_start, faults: Vec::new() };
        assert_eq!(said, yes, "nothing was stored before, and the connection is open");
    }
}

#[tokio::test]
async fn p05_small_timestamps_are_taken_and_kept() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    for (offset, time) in [0, -1, 1].into_iter().enumerate() {
        let mut one = BatchBuilder::new(Codec::None, TimestampType::Create);
        one.append(time, None, Some(b"v"), &[]);
        let sent = one.build(Offset(0), -1);
        let offset = offset as i64;
        assert_eq!(produce(&server, &mut client, "t", sent.clone()).await.short(), (0, offset));
        assert_eq!(stored(&mut client, "t", offset).await, [placed(&sent, offset, 0)]);
    }
    assert_eq!(offset_for(&mut client, "t", 0).await, (0, 0, 0));
    assert_eq!(offset_for(&mut client, "t", 1).await, (0, 2, 1));
}

#[tokio::test]
async fn p06_log_append_time() {
    let server = Server::start().await;
    topic(&server, "appended", &[("message.timestamp.type", "LogAppendTime")]).await;
    server.topic("created").await;
    let mut client = Client::new(&server).await;
    let mut offset = 0;
    for codec in Codec::ALL {
        let mut two = BatchBuilder::new(codec, TimestampType::Create);
        two.append(5, Some(b"k"), Some(b"v"), &[]);
        two.append(9, Some(b"k"), Some(b"v"), &[]);
        let sent = two.build(Offset(0), -1);
        for version in versions(codec) {
            let before = server.running.broker().clock.wall_ms();
            let said = produce_as(&server, &mut client, version, "appended", -1, Some(sent.clone())).await;
            let after = server.running.broker().clock.wall_ms();
            assert_eq!(said.short(), (0, offset));
            assert!((before..=after).contains(&said.append_time), "{said:?}, {before} to {after}");
            let batches = stored(&mut client, "appended", offset).await;
            let stored_batch = BatchView::parse(&batches[0]).unwrap();
            assert_eq!((batches.len(), stored_batch.base_timestamp()), (1, 5));
            assert_eq!(stored_batch.max_timestamp(), said.append_time);
            assert_eq!(stored_batch.attributes().0, codec as i16 | 0x08);
            assert!(stored_batch.crc_is_valid());
            assert_eq!(batches[0][61..], sent[61..], "the records stay as they were sent");
            // The same bit from a client.
            let claimed = with_attributes(&sent, codec as i16 | 0x08);
            let refused =
                produce_as(&server, &mut client, version, "appended", -1, Some(claimed.clone())).await;
            assert_eq!((refused.code, refused.base, refused.append_time), (32, -1, -1));
            let said = produce_as(&server, &mut client, version, "created", -1, Some(claimed)).await;
            assert_eq!((said.code, said.base, said.append_time), (0, offset, -1));
            assert_eq!(stored(&mut client, "created", offset).await, [placed(&sent, offset, 0)]);
            offset += 2;
        }
    }
}

#[tokio::test]
async fn p07_every_claim_of_a_max_timestamp_is_put_right() {
    let (setup, mut client) = both().await;
    let ten_years = 10 * 365 * 86_400_000;
    for topic in BOTH {
        let (mut offset, mut base) = (0, TIME);
        for codec in Codec::ALL {
            for claim in [Some(-1), Some(TIME + ten_years), Some(0), Some(i64::MIN), Some(i64::MAX), None] {
                let mut two = BatchBuilder::new(codec, TimestampType::Create);
                two.append(base, Some(b"k"), Some(b"v"), &[]);
                two.append(base + 5, Some(b"k"), Some(b"v"), &[]);
                let right = two.build(Offset(0), -1);
                let sent = claim.map_or(right.clone(), |claim: i64| {
                    edited(&right, |bytes| bytes[35..43].copy_from_slice(&claim.to_be_bytes()))
                });
                let said = produce(&setup.server, &mut client, topic, sent).await;
                assert_eq!((said.code, said.base, said.append_time), (0, offset, -1), "{codec:?} {claim:?}");
                // The right header has the right CRC: that of the client where nothing had to be changed.
                assert_eq!(stored(&mut client, topic, offset).await, [placed(&right, offset, 0)]);
                assert_eq!(offset_for(&mut client, topic, base + 5).await, (0, offset + 1, base + 5));
                assert_eq!(offset_for(&mut client, topic, -3).await, (0, offset + 1, base + 5));
                (offset, base) = (offset + 2, base + 1000);
            }
        }
    }
}

#[tokio::test]
async fn p08_null_keys_are_named_and_nothing_is_stored() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    for policy in ["compact", "compact,delete"] {
        let name = policy.replace(',', "-");
        topic(&server, &name, &[("cleanup.policy", policy)]).await;
        for codec in Codec::ALL {
            let mut four = BatchBuilder::new(codec, TimestampType::Create);
            for key in [Some(&b"a"[..]), None, Some(b"c"), None] {
                four.append(TIME, key, Some(b"v"), &[]);
            }
            let bad = four.build(Offset(0), -1);
            for version in versions(codec) {
                let said = produce_as(&server, &mut client, version, &name, -1, Some(bad.clone())).await;
                assert_eq!((said.code, said.base), (87, -1), "v{version}, {codec:?}");
                let named: Vec<i32> = said.faults.iter().map(|(index, _)| *index).collect();
                assert_eq!(named, if version < 8 { vec![] } else { vec![1, 3] }, "v{version}");
                assert!(said.faults.iter().all(|(_, message)| !message.is_empty()), "{said:?}");
            }
            // An empty key is a key.
            assert_eq!(end(&mut client, &name).await, codec as i64);
            let mut one = BatchBuilder::new(codec, TimestampType::Create);
            one.append(TIME, Some(b""), None, &[]);
            let said = produce(&server, &mut client, &name, one.build(Offset(0), -1)).await;
            assert_eq!(said.short(), (0, codec as i64));
        }
    }
}

#[tokio::test]
async fn p09_the_bytes_of_the_client_stay() {
    let (setup, mut client) = both().await;
    let headers = [
        Header { key: b"same", value: Some(b"") },
        Header { key: b"same", value: None },
        Header { key: b"", value: Some(b"\xff\x00") },
    ];
    let mut sent = Vec::new();
    for codec in Codec::ALL {
        let mut batch = BatchBuilder::new(codec, TimestampType::Create);
        for number in 0..20 {
            let value = vec![number as u8; 100 * number];
            let key = format!("key {number}");
            let (key, value) =
                (Some(key.as_bytes()).filter(|_| number != 7), Some(&value[..]).filter(|_| number != 9));
            batch.append(TIME + 20 - number as i64, key, value, &headers[..number % 4]);
        }
        sent.push(batch.build(Offset(0), -1));
    }
    for topic in BOTH {
        let mut expected = Vec::new();
        for version in versions(Codec::Zstd) {
            for sent in &sent {
                let base = 20 * expected.len() as i64;
                let said =
                    produce_as(&setup.server, &mut client, version, topic, -1, Some(sent.clone())).await;
                assert_eq!(said.short(), (0, base));
                expected.push(placed(sent, base, 0));
            }
        }
        assert_eq!(stored(&mut client, topic, 0).await, expected);
    }
    let setup = setup.restarted().await;
    let mut client = Client::new(&setup.server).await;
    for topic in BOTH {
        let again = stored(&mut client, topic, 0).await;
        for (number, stored) in again.iter().enumerate() {
            assert_eq!(*stored, placed(&sent[number % 5], 20 * number as i64, 0));
        }
        assert_eq!(again.len(), 35);
    }
}

/// A message set of one message, of the formats before batches.
fn message_set(magic: u8) -> Bytes {
    let mut message = vec![magic, 0];
    if magic == 1 {
        message.extend(TIME.to_be_bytes());
    }
    // No key, a value of one byte. CRC-32 of these is not looked at.
    message.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'v']);
    let mut set = vec![0; 8];
    set.extend(i32::try_from(message.len() + 4).unwrap().to_be_bytes());
    set.extend([0; 4]);
    set.extend(message);
    Bytes::from(set)
}

#[tokio::test]
async fn p10_exactly_one_batch_of_magic_2() {
    let (setup, mut client) = both().await;
    let one = batch(Codec::None, 2);
    let bad = [
        message_set(0),
        message_set(1),
        Bytes::from([&one[..], &one[..]].concat()),
        Bytes::from([&one[..], b"x"].concat()),
        one.slice(..one.len() - 1),
        one.slice(..60),
        Bytes::new(),
    ];
    for topic in BOTH {
        refused(&setup.server, &mut client, topic, VERSIONS, &[87], &bad).await;
        for version in VERSIONS {
            let said = produce_as(&setup.server, &mut client, version, topic, -1, None).await;
            assert_eq!(said.short(), (87, -1), "null in v{version}");
        }
        assert_eq!(end(&mut client, topic).await, 1);
    }
}

#[tokio::test]
async fn p11_damage_on_the_way_is_told_as_such() {
    let (setup, mut client) = both().await;
    for codec in Codec::ALL {
        let good = batch(codec, 1);
        let mut bad = Vec::new();
        for at in [21, 30, 40, 61, good.len() - 1] {
            let mut flipped = good.to_vec();
            flipped[at] ^= 0x40;
            bad.push(Bytes::from(flipped));
        }
        let mut claimed = good.to_vec();
        claimed[17..21].copy_from_slice(&1_u32.to_be_bytes());
        bad.push(Bytes::from(claimed));
        for topic in BOTH {
            refused(&setup.server, &mut client, topic, versions(codec), &[2], &bad).await;
        }
    }
}

#[tokio::test]
async fn p13_what_does_not_decode_is_refused() {
    let (setup, mut client) = both().await;
    let mut bad = Vec::new();
    for bits in 1..=7 {
        bad.push(with_attributes(&with_payload(&batch(Codec::None, 1), b"garbage!!"), bits));
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let whole = batch(codec, 2);
        let length = whole.len() - 61;
        for cut in [1, length / 2, length - 1] {
            bad.push(with_payload(&whole, &whole[61..61 + cut]));
        }
        // Another codec's bytes.
        bad.push(with_attributes(&whole, (codec as i16 % 4) + 1));
    }
    for topic in BOTH {
        refused(&setup.server, &mut client, topic, versions(Codec::Zstd), &[2, 87], &bad).await;
    }
}

#[tokio::test]
async fn zstd_is_younger_than_produce_v7() {
    let server = Server::start().await;
    server.topic("t").await;
    // What the broker packs itself is another matter.
    topic(&server, "zstd", &[("compression.type", "zstd")]).await;
    let mut client = Client::new(&server).await;
    for name in ["t", "zstd"] {
        refused(&server, &mut client, name, 3..=6, &[76], &[batch(Codec::Zstd, 2)]).await;
        for version in 3..=6 {
            let said = produce_as(&server, &mut client, version, name, -1, Some(batch(Codec::Lz4, 2))).await;
            assert_eq!(said.short(), (0, 1 + 2 * i64::from(version - 3)), "{name} in v{version}");
        }
    }
}

#[tokio::test]
async fn p14_p15_p24_idempotent_producers() {
    let (setup, mut client) = both().await;
    for (number, topic) in BOTH.into_iter().enumerate() {
        let ask = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(-1)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let answer = client.call(4, &ask).await;
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
        let id = answer.producer_id.0;
        let codec = [Codec::None, Codec::Lz4][number];
        let steps: [(i16, i32, usize, (i16, i64)); 13] = [
            (0, 0, 3, (0, 0)),
            (0, 0, 3, (0, 0)),
            (0, 3, 1, (0, 3)),
            (0, 0, 3, (0, 0)),
            (0, 9, 1, (45, -1)),
            (0, 4, 1, (0, 4)),
            (0, 5, 1, (0, 5)),
            (0, 6, 1, (0, 6)),
            (0, 7, 1, (0, 7)),
            (0, 0, 3, (45, -1)),
            (0, 3, 1, (0, 3)),
            (0, 0, 2, (45, -1)),
            (0, 4, 2, (45, -1)),
        ];
        for (step, (epoch, sequence, count, expected)) in steps.into_iter().enumerate() {
            let sent = numbered(codec, (id, epoch), sequence, count);
            let said = produce(&setup.server, &mut client, topic, sent).await;
            assert_eq!(said.short(), expected, "{topic}, step {step}");
        }
        assert_eq!(end(&mut client, topic).await, 8);
        for (step, (epoch, sequence, expected)) in [
            (-1, 8, (47, -1)),
            (1, 5, (45, -1)),
            (1, 0, (0, 8)),
            (0, 8, (47, -1)),
            (0, 7, (47, -1)),
            (1, 0, (0, 8)),
        ]
        .into_iter()
        .enumerate()
        {
            let said =
                produce(&setup.server, &mut client, topic, numbered(codec, (id, epoch), sequence, 1)).await;
            assert_eq!(said.short(), expected, "{topic}, epochs, step {step}");
        }
        assert_eq!(end(&mut client, topic).await, 9);
        for sequence in 1..6 {
            let said =
                produce(&setup.server, &mut client, topic, numbered(codec, (id, 1), sequence, 1)).await;
            assert_eq!(said.short(), (0, 8 + i64::from(sequence)));
        }
    }
    // All five of them are known behind a restart.
    let known: Vec<i64> = {
        let mut known = Vec::new();
        for topic in BOTH {
            let batches = stored(&mut client, topic, 0).await;
            known.push(BatchView::parse(&batches[0]).unwrap().producer_id());
        }
        known
    };
    let setup = setup.restarted().await;
    let mut client = Client::new(&setup.server).await;
    for (place, topic) in BOTH.into_iter().enumerate() {
        let codec = [Codec::None, Codec::Lz4][place];
        for sequence in 1..6 {
            let sent = numbered(codec, (known[place], 1), sequence, 1);
            let said = produce(&setup.server, &mut client, topic, sent).await;
            assert_eq!(said.short(), (0, 8 + i64::from(sequence)), "{topic}");
        }
        assert_eq!(end(&mut client, topic).await, 14);
    }
}

#[tokio::test]
async fn p17_control_and_transactional_bits_of_a_client() {
    let (setup, mut client) = both().await;
    for codec in Codec::ALL {
        let mut marker = BatchBuilder::new(codec, TimestampType::Create);
        marker.append(TIME, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]);
        let marker = edited(&marker.build(Offset(0), -1), |bytes| bytes[43..53].fill(0));
        let marker = edited(&marker, |bytes| bytes[53..57].fill(0));
        let as_ = |bits: i16| with_attributes(&marker, codec as i16 | bits);
        for topic in BOTH {
            for version in VERSIONS {
                for (bits, code) in [(0x20, 87), (0x30, 53), (0x10, 53)] {
                    let code = if code == 87 && codec == Codec::Zstd && version < 7 { 76 } else { code };
                    let said =
                        produce_as(&setup.server, &mut client, version, topic, -1, Some(as_(bits))).await;
                    assert_eq!(said.short(), (code, -1), "{bits:#x} in v{version}, {codec:?}");
                }
                // One transactional batch refuses the request, whatever stands beside it.
                let good = Some(batch(Codec::None, 1));
                let topics =
                    [("t", vec![(0, good.clone())]), ("plain", vec![(0, Some(as_(0x10))), (7, good)])];
                let all = request(&setup.server, version, &topics);
                for request in [all.clone(), transactional(all, "payments")] {
                    let said = all_said(&client.call(version, &request).await);
                    assert_eq!(said.iter().map(Said::short).collect::<Vec<_>>(), [(53, -1); 3], "v{version}");
                }
            }
            assert_eq!(end(&mut client, topic).await, 0, "nothing is stored");
        }
    }
}

#[tokio::test]
async fn the_largest_record_is_not_the_largest_batch() {
    let server = Server::start().await;
    topic(&server, "t", &[("max.decompressed.message.bytes", "1000")]).await;
    topic(&server, "packs", &[("max.decompressed.message.bytes", "1000"), ("compression.type", "zstd")])
        .await;
    let mut client = Client::new(&server).await;
    for codec in Codec::ALL {
        let of = |count: usize, bytes: usize| {
            let mut batch = BatchBuilder::new(codec, TimestampType::Create);
            for _ in 0..count {
                batch.append(TIME, Some(b"k"), Some(&vec![7; bytes]), &[]);
            }
            batch.build(Offset(0), -1)
        };
        for topic in ["t", "packs"] {
            let many = produce(&server, &mut client, topic, of(100, 900)).await;
            assert_eq!(many.code, 0, "{topic}, {codec:?}: each of them is small");
            let large = produce(&server, &mut client, topic, of(1, 1100)).await;
            let code = if codec == Codec::None { 0 } else { 87 };
            assert_eq!(large.code, code, "{topic}, {codec:?}: only what is decompressed is measured");
        }
    }
}
