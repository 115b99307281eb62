//! Versions, headers and order on the wire, byte by byte.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Server, Stopwatch, flexible, framed, hex, request};
use protocol::ApiKey;
use protocol::api::APIS;

#[tokio::test]
async fn w02_an_api_versions_that_is_too_new_is_answered_in_version_0() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    raw.send(&hex("00000011 0012 007f 00000007 0001 61 00 02 61 02 31 00")).await;
    assert_eq!(raw.frame().await, hex("00000007 0023 00000001 0012 0000 0005"));
    raw.send(&request(18, 0, 8, &[])).await;
    assert_eq!(raw.frame().await[..6], hex("00000008 0000"));
}

#[tokio::test]
async fn w03_the_answer_of_api_versions_has_no_tags_in_its_header() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    for version in 3..=5 {
        let mut body = hex("02 61 02 31");
        if version == 5 {
            body.extend(hex("00 ffffffff"));
        }
        body.push(0);
        raw.send(&flexible(18, version, 0x0102_0304, &body)).await;
        assert_eq!(raw.frame().await[..6], hex("01020304 0000"), "version {version}");
    }
    raw.send(&flexible(3, 9, 5, &hex("01 00 00 00 00"))).await;
    assert_eq!(raw.frame().await[..5], hex("00000005 00"));
}

#[tokio::test]
async fn w04_a_null_or_empty_client_id_is_no_hindrance() {
    let server = Server::start().await;
    let mut answers = Vec::new();
    for client_id in ["ffff", "0000"] {
        let mut raw = server.connect().await;
        raw.send(&hex(&format!("0000000f 0003 000c 00000007 {client_id} 00 01 00 00 00"))).await;
        answers.push(raw.frame().await);
    }
    assert_eq!(answers[0], answers[1]);
    // Correlation, tags, throttle time, and one broker.
    assert_eq!(answers[0][..10], hex("00000007 00 00000000 02"));
}

#[tokio::test]
async fn w05_unknown_tagged_fields_are_skipped() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    raw.send(&framed(&hex("0003 000c 00000007 0001 61 00 01 00 00 00"))).await;
    let plain = raw.frame().await;
    raw.send(&framed(&hex("0003 000c 00000007 0001 61 01 63 03 616263 01 00 00 01 63 02 7a7a"))).await;
    assert_eq!(raw.frame().await, plain);
}

#[tokio::test]
async fn w06_produce_is_advertised_from_0_and_served_from_3() {
    let server = Server::start().await;
    for version in 0..3 {
        let mut raw = server.connect().await;
        raw.send(&request(0, version, 1, &hex("ffff 000003e8 00000000"))).await;
        raw.closes().await;
    }
    let mut raw = server.connect().await;
    raw.send(&request(0, 3, 1, &hex("ffff ffff 000003e8 00000000"))).await;
    assert_eq!(raw.frame().await, hex("00000001 00000000 00000000"));
}

#[tokio::test]
async fn w07_unsupported_versions_and_unknown_keys_close() {
    let server = Server::start().await;
    let refused = [
        (0, 14),
        (1, 3),
        (1, 19),
        (2, 0),
        (3, 14),
        (8, 1),
        (11, 10),
        (17, 2),
        (36, 3),
        (4, 0),
        (52, 0),
        (9999, 0),
        (-1, 0),
    ];
    for (key, version) in refused {
        let mut raw = server.connect().await;
        raw.send(&request(key, version, 1, &[0; 40])).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn w07_every_neighbour_of_what_is_served_closes() {
    let server = Server::start().await;
    let versions = APIS.iter().filter(|api| api.key != ApiKey::ApiVersions);
    let versions = versions.flat_map(|api| {
        [i16::MIN, api.min - 1, api.max + 1, i16::MAX].map(|version| (api.key.code(), version))
    });
    let keys = [i16::MIN, -1, i16::MAX].into_iter().chain(0..=110).chain(10_000..=10_100);
    let keys = keys.filter(|key| ApiKey::from_code(*key).is_none()).map(|key| (key, 0));
    for (key, version) in versions.chain(keys) {
        let mut raw = server.connect().await;
        raw.send(&request(key, version, 1, &[0; 40])).await;
        raw.closes().await;
    }
    server.answers().await;
}

#[tokio::test]
async fn w02_any_version_of_api_versions_that_is_not_served_is_answered() {
    let server = Server::start().await;
    let mut raw = server.connect().await;
    for version in [6, i16::MAX, -1, i16::MIN] {
        raw.send(&flexible(18, version, 7, &hex("02 61 02 31 00"))).await;
        assert_eq!(raw.frame().await, hex("00000007 0023 00000001 0012 0000 0005"), "{version}");
    }
    raw.send(&request(18, 0, 8, &[])).await;
    assert_eq!(raw.frame().await[..6], hex("00000008 0000"));
}

#[tokio::test]
async fn w09_w10_w11_metadata_names_and_ids() {
    let server = Server::with(&[("auto.create.topics.enable", "true")]).await;
    for name in ["a", "b", "c"] {
        server.topic(name).await;
    }
    let mut raw = server.connect().await;
    let topics = |answer: &[u8], at: usize| i32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
    // v0: brokers (host 127.0.0.1), then topics.
    let brokers_v0 = 4 + 4 + 4 + 2 + 9 + 4;
    raw.send(&request(3, 0, 1, &hex("00000000"))).await;
    assert_eq!(topics(&raw.frame().await, brokers_v0), 3);
    let brokers_v1 = brokers_v0 + 2 + 4;
    raw.send(&request(3, 1, 1, &hex("ffffffff"))).await;
    assert_eq!(topics(&raw.frame().await, brokers_v1), 3);
    raw.send(&request(3, 1, 1, &hex("00000000"))).await;
    assert_eq!(topics(&raw.frame().await, brokers_v1), 0);
    // v4 without leave to create: error 3, and nothing is made. A bad name: 17.
    raw.send(&request(3, 4, 1, &hex("00000001 0004 6e6f7065 00"))).await;
    let answer = raw.frame().await;
    assert_eq!(answer[answer.len() - 13..answer.len() - 11], hex("0003"));
    raw.send(&request(3, 4, 1, &hex("00000001 0003 612062 01"))).await;
    let answer = raw.frame().await;
    assert_eq!(answer[answer.len() - 12..answer.len() - 10], hex("0011"));
    assert_eq!(server.running.broker().catalog.image().topics().len(), 3);
    // With leave it is made.
    raw.send(&request(3, 4, 1, &hex("00000001 0004 6e6f7065 01"))).await;
    raw.frame().await;
    assert!(server.running.broker().catalog.image().topic("nope").is_some());
}

#[tokio::test]
async fn w12_answers_leave_in_request_order() {
    let server = Server::start().await;
    server.topic("empty").await;
    let mut raw = server.connect().await;
    // Fetch v12: replica −1, wait 700 ms, 1 byte at least, session −1; topic "empty", partition 0 at 0.
    let mut fetch = hex("ffffffff 000002bc 00000001 7fffffff 00 00000000 ffffffff 02");
    fetch.extend(hex(
        "06 656d707479 02 00000000 ffffffff 0000000000000000 ffffffff ffffffffffffffff 00100000 00 00",
    ));
    fetch.extend(hex("01 01 00"));
    let mut all = flexible(1, 12, 1, &fetch);
    all.extend(flexible(3, 12, 2, &hex("01 00 00 00")));
    all.extend(request(18, 0, 3, &[]));
    let begun = Stopwatch::start();
    raw.send(&all).await;
    assert_eq!(raw.frame().await[..4], hex("00000001"));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(690) && waited < Duration::from_millis(1500), "{waited:?}");
    assert_eq!(raw.frame().await[..4], hex("00000002"));
    assert_eq!(raw.frame().await[..4], hex("00000003"));
}

#[tokio::test]
async fn w19_api_versions_5_checks_whom_the_client_means() {
    let server = Server::start().await;
    let id = server.running.broker().cluster_id.to_string();
    assert_eq!(id.len(), 22);
    let mut raw = server.connect().await;
    let own = |node: &str| {
        let mut body = hex("02 61 02 31 17");
        body.extend(id.as_bytes());
        body.extend(hex(node));
        body.push(0);
        body
    };
    let cases = [
        (hex("02 61 02 31 00 ffffffff 00"), "0000"),
        (own("00000001"), "0000"),
        (own("00000007"), "0081"),
        (hex("02 61 02 31 06 77726f6e67 00000001 00"), "0081"),
    ];
    for (body, error) in cases {
        raw.send(&flexible(18, 5, 1, &body)).await;
        let answer = raw.frame().await;
        assert_eq!(answer[4..6], hex(error));
        assert_eq!(answer[6] == 1, error == "0081", "the list is empty exactly on error");
    }
}
