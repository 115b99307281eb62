//! What Prometheus reads. Recording is the process's, so this test is alone in it.

#![allow(clippy::unwrap_used)]

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::{Server, request};
use kafka_protocol::messages::{GroupId, ShareFetchRequest, ShareGroupHeartbeatRequest, TopicName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn requests_are_counted_by_api() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let server = Server::with(&[("sluice.metrics.listen", address.as_str())]).await;
    let mut raw = server.connect().await;
    for correlation in 0..3 {
        raw.send(&request(18, 0, correlation, &[])).await;
        raw.frame().await;
    }
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains("sluice_requests_total{api=\"ApiVersions\"} 3"), "{metrics}");
    assert!(metrics.contains("sluice_connections 1"), "{metrics}");
    assert!(metrics.contains("sluice_request_seconds_bucket{api=\"ApiVersions\",le=\"10\"} 3"), "{metrics}");
    assert!(metrics.contains("sluice_share_groups 0"), "{metrics}");
    let heartbeat = ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text("m"))
        .with_subscribed_topic_names(Some(vec![TopicName(text("t"))]));
    let mut client = Client::new(&server).await;
    server.topic("t").await;
    while client.call(1, &heartbeat).await.error_code != 0 {}
    let open = ShareFetchRequest::default()
        .with_group_id(Some(GroupId(text("g"))))
        .with_member_id(Some(text("m")))
        .with_max_bytes(1)
        .with_max_records(1);
    assert_eq!(client.call(1, &open).await.error_code, 0);
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("sluice_share_members{group=\"g\"} 1"), "{metrics}");
    assert!(metrics.contains("sluice_share_in_flight_records{group=\"g\"} 0"), "{metrics}");
    assert!(get(&address, "/").await.starts_with("HTTP/1.1 404"));
    server.running.stop().await.unwrap();
    assert!(TcpStream::connect(&address).await.is_err(), "the exporter stops with the broker");
}
