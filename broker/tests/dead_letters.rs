//! Dead letters over a socket (S28, K30), read back by an ordinary Fetch.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use protocol::messages::key_share_describe::{KeyShareDescribeRequest, KeyShareDescribeResponse};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Batches, Codec, TimestampType, key_hash};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::{Client, text};
use common::Server;
use share::{ALL, Fetch, PATIENT, REJECT, RELEASE, Setup, produce_to};

const DLQ: &str = "dlq.t";

/// A record of the dead-letter topic.
#[derive(Debug)]
struct Letter {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, String)>,
}

impl Letter {
    fn header(&self, name: &str) -> &str {
        &self
            .headers
            .iter()
            .find(|header| header.0 == name)
            .unwrap_or_else(|| panic!("no {name}: {self:?}"))
            .1
    }
}

async fn letters(server: &Server) -> Vec<Letter> {
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let topics =
        vec![FetchTopic::default().with_topic(TopicName(text(DLQ))).with_partitions(vec![partition])];
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(topics);
    let answer = Client::new(server).await.call(11, &request).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!(part.error_code, 0);
    let bytes = part.records.clone().unwrap_or_default();
    let mut letters = Vec::new();
    for batch in Batches::new(&bytes) {
        let batch = batch.unwrap();
        assert!(batch.crc_is_valid());
        for record in batch.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            letters.push(Letter {
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .iter()
                    .map(|header| (text(header.key), text(header.value.unwrap())))
                    .collect(),
            });
        }
    }
    letters
}

/// Waits until so many letters are there.
async fn wait_for(server: &Server, count: usize) -> Vec<Letter> {
    for _ in 0..200 {
        let letters = letters(server).await;
        if letters.len() >= count {
            return letters;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{count} dead letters do not come");
}

async fn dead_letter_topic(server: &Server, enabled: bool) {
    server.topic(DLQ).await;
    let configs = [("errors.deadletterqueue.group.enable".to_owned(), enabled.to_string())];
    server.running.broker().catalog.set_topic_configs(DLQ, configs.into()).await.unwrap();
}

/// The group's settings; its dead-letter topic need not exist.
async fn configure(setup: &Setup, order: &str, more: &[(&str, &str)]) {
    let mut configs = vec![
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", order),
        ("errors.deadletterqueue.topic.name", DLQ),
    ];
    configs.extend_from_slice(more);
    setup.configure(&configs).await;
}

async fn produce(setup: &Setup, keys: &[&str]) {
    let mut batch = BatchBuilder::new(Codec::Gzip, TimestampType::Create);
    for (number, key) in keys.iter().enumerate() {
        batch.append(1_000, Some(key.as_bytes()), Some(format!("value {number}").as_bytes()), &[]);
    }
    assert_eq!(produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await.0, 0);
}

#[tokio::test]
async fn s28_rejected_and_at_the_limit() {
    for (order, copy) in [("none", false), ("none", true), ("key", false), ("key", true)] {
        let setup = Setup::on(Server::start().await).await;
        let copied = copy.to_string();
        configure(&setup, order, &[("errors.deadletterqueue.copy.record.enable", &copied)]).await;
        produce(&setup, &["a", "b"]).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 1, 1)]);
        assert_eq!(a.acknowledge(false, &[(0, 1, &[REJECT, RELEASE])]).await, (0, vec![(0, 0)]));
        // The topic comes later than the first dead letter.
        dead_letter_topic(&setup.server, true).await;
        assert_eq!(wait_for(&setup.server, 1).await.len(), 1);
        for count in 2..=5 {
            assert_eq!(a.fetch(PATIENT).await.acquired(), [(1, 1, count)], "{order}");
            assert_eq!(a.acknowledge(false, &[(1, 1, &[RELEASE])]).await, (0, vec![(0, 0)]));
        }
        let letters = wait_for(&setup.server, 2).await;
        assert_eq!(letters.len(), 2);
        let expected = [
            ("0", "1", "Offset rejected by client."),
            ("1", "5", "Offset delivery count exceeded the threshold."),
        ];
        for (letter, (offset, count, message)) in letters.iter().zip(expected) {
            let names: Vec<&str> = letter.headers.iter().map(|header| &*header.0).collect();
            assert_eq!(
                names[..6],
                [
                    "__dlq.errors.topic",
                    "__dlq.errors.partition",
                    "__dlq.errors.offset",
                    "__dlq.errors.group",
                    "__dlq.errors.delivery.count",
                    "__dlq.errors.message"
                ]
            );
            let values: BTreeMap<&str, &str> =
                letter.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(values["__dlq.errors.topic"], "t");
            assert_eq!(values["__dlq.errors.partition"], "0");
            assert_eq!(values["__dlq.errors.offset"], offset);
            assert_eq!(values["__dlq.errors.group"], "g");
            assert_eq!(values["__dlq.errors.delivery.count"], count);
            assert_eq!(values["__dlq.errors.message"], message);
            let key = ["a", "b"][offset.parse::<usize>().unwrap()];
            assert_eq!(letter.key.as_deref(), copy.then_some(key.as_bytes()));
            assert_eq!(letter.value, copy.then(|| format!("value {offset}").into_bytes()));
            if order == "key" {
                let hash = format!("{:016x}", key_hash(key.as_bytes()).0);
                assert_eq!(letter.header("__sluice.dlq.key.hash"), hash);
            }
        }
        produce(&setup, &["c"]).await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(2, 2, 1)], "both are done");
    }
}

#[tokio::test]
async fn k30_a_key_waits_for_its_dead_letter_and_goes_on_by_itself() {
    let setup = Setup::on(Server::start().await).await;
    dead_letter_topic(&setup.server, false).await;
    configure(&setup, "key", &[]).await;
    produce(&setup, &["a", "a", "b"]).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 0, 1), (2, 2, 1)]);
    assert_eq!(a.acknowledge(false, &[(0, 0, &[REJECT]), (2, 2, &[1])]).await, (0, vec![(0, 0)]));
    assert_eq!(a.fetch(ALL).await.acquired(), [], "a waits");
    // The same after a kill of the process: what is answered is stored.
    let setup = setup.restarted().await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(ALL).await.acquired(), []);
    let waits = async {
        let mut got = Vec::new();
        while got.is_empty() {
            got = a.fetch(Fetch { wait_ms: 5_000, ..ALL }).await.acquired();
        }
        got
    };
    let (got, ()) = tokio::join!(waits, dead_letter_topic(&setup.server, true));
    assert_eq!(got, [(1, 1, 1)], "only then the next");
    assert_eq!(wait_for(&setup.server, 1).await[0].header("__dlq.errors.offset"), "0");
}

#[tokio::test]
async fn s28_a_compacted_topic_is_told_by_that_and_the_key_goes_on_when_it_is_none() {
    let setup = Setup::on(Server::start().await).await;
    dead_letter_topic(&setup.server, true).await;
    let catalog = &setup.server.running.broker().catalog;
    let set = |policy: &str| {
        let configs = [("errors.deadletterqueue.group.enable", "true"), ("cleanup.policy", policy)];
        let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        catalog.set_topic_configs(DLQ, configs.into())
    };
    set("compact,delete").await.unwrap();
    configure(&setup, "key", &[]).await;
    produce(&setup, &["a", "a"]).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 0, 1)]);
    assert_eq!(a.acknowledge(false, &[(0, 0, &[REJECT])]).await, (0, vec![(0, 0)]));
    assert_eq!(a.fetch(ALL).await.acquired(), [], "a waits");
    let mut raw = setup.server.connect().await;
    let request = KeyShareDescribeRequest { group_id: "g".into(), ..KeyShareDescribeRequest::default() };
    raw.send(&request.into_frame(7, None).unwrap()).await;
    let (_, told) = KeyShareDescribeResponse::from_frame(raw.frame().await.into()).unwrap();
    let trouble = told.topics[0].partitions[0].dead_letter_trouble.clone().unwrap();
    assert!(trouble.contains("cleanup.policy=delete"), "{trouble}");
    set("delete").await.unwrap();
    assert_eq!(wait_for(&setup.server, 1).await[0].header("__dlq.errors.offset"), "0");
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(1, 1, 1)]);
}

#[tokio::test]
async fn s28_a_missing_topic_is_made_where_the_broker_may() {
    let settings = [("errors.deadletterqueue.auto.create.topics.enable", "true"), ("num.partitions", "1")];
    let setup = Setup::on(Server::with(&settings).await).await;
    configure(&setup, "none", &[]).await;
    produce(&setup, &["a"]).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 0, 1)]);
    assert!(setup.server.running.broker().catalog.image().topic(DLQ).is_none());
    assert_eq!(a.acknowledge(false, &[(0, 0, &[REJECT])]).await, (0, vec![(0, 0)]));
    for _ in 0..200 {
        if setup.server.running.broker().catalog.image().topic(DLQ).is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    assert_eq!(wait_for(&setup.server, 1).await[0].header("__dlq.errors.offset"), "0");
    let image = setup.server.running.broker().catalog.image();
    let configs = &image.topic(DLQ).unwrap().configs;
    assert_eq!(configs["errors.deadletterqueue.group.enable"], "true");
    assert_eq!(configs["message.timestamp.type"], "CreateTime");
}
