//! A parked fetch gives way to an acknowledgement behind it on its connection (DESIGN §4).

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Server, Stopwatch};
use protocol::StrBytes;
use protocol::messages::key_share_acknowledge::{KeyShareAcknowledgeRequest, KeyShareAcknowledgeResponse};
use protocol::messages::key_share_fetch::{
    KeyShareFetchPartition, KeyShareFetchRequest, KeyShareFetchResponse, KeyShareFetchTopic,
};
use protocol::request::KeyShareRequest as _;
use protocol::response::KeyShareResponse as _;

const WAIT_MS: i32 = 4_000;

#[tokio::test]
async fn k66_a_parked_share_fetch_gives_way_to_an_acknowledgement() {
    let server = Server::start().await;
    server.topic("t").await;
    let topic_id = server.running.broker().catalog.image().topic("t").unwrap().id;
    let mut raw = server.connect().await;
    let fetch = KeyShareFetchRequest {
        group_id: StrBytes::from("g"),
        member_id: Some(StrBytes::from("m")),
        session_epoch: 0,
        max_wait_ms: WAIT_MS,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 100,
        max_keys: 16,
        max_records_per_key: 16,
        topics: vec![KeyShareFetchTopic {
            topic_id,
            partitions: vec![KeyShareFetchPartition { index: 0, ..Default::default() }],
        }],
        ..Default::default()
    };
    let begun = Stopwatch::start();
    raw.send(&fetch.into_frame(1, None).unwrap()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let acknowledge = KeyShareAcknowledgeRequest {
        group_id: StrBytes::from("g"),
        member_id: Some(StrBytes::from("m")),
        session_epoch: 1,
        ..Default::default()
    };
    raw.send(&acknowledge.into_frame(2, None).unwrap()).await;

    let (correlation, fetched) =
        KeyShareFetchResponse::<std::convert::Infallible>::from_frame(raw.frame().await.into()).unwrap();
    assert_eq!((correlation, fetched.error_code), (1, protocol::ErrorCode::None));
    assert!(begun.elapsed() >= Duration::from_millis(290), "it was parked");
    let (correlation, acknowledged) =
        KeyShareAcknowledgeResponse::from_frame(raw.frame().await.into()).unwrap();
    assert_eq!((correlation, acknowledged.error_code), (2, protocol::ErrorCode::None));
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
}
