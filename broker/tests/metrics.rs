//! What Prometheus reads. Recording is the process's, so this test is alone in it.

#![allow(clippy::unwrap_used)]

#[path = "common/client.rs"]
mod client;
mod common;

#[path = "common/share.rs"]
mod share;

use client::{Client, text};
use common::{Server, request};
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use kafka_protocol::messages::share_fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    DescribeShareGroupOffsetsRequest, GroupId, ShareFetchRequest, ShareGroupHeartbeatRequest, TopicName,
};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};
use share::produce_to;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Whoever reads the page finds in `docs/metrics.md` what it says, and nothing there is made up.
fn names_are_in_the_docs(page: &str) {
    let docs = include_str!("../../docs/metrics.md");
    let named = |name: &str| docs.contains(&format!("| `{name}` |"));
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(named(name), "{name} is not in docs/metrics.md");
    }
    let sources = [
        include_str!("../src/metrics.rs"),
        include_str!("../src/metrics/logs.rs"),
        include_str!("../src/metrics/share.rs"),
    ];
    for line in docs.lines().filter_map(|line| line.strip_prefix("| `sluice_")) {
        let name = line.split('`').next().unwrap();
        let short = name.strip_prefix("log_").or_else(|| name.strip_prefix("share_")).unwrap_or(name);
        let known = sources.iter().any(|source| {
            source.contains(&format!("\"sluice_{name}\"")) || source.contains(&format!("\"{short}\""))
        });
        assert!(known || page.contains(&format!("sluice_{name} ")), "sluice_{name} is not made anywhere");
    }
}

fn batch() -> bytes::Bytes {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, Some(b"k"), Some(b"v"), &[]);
    batch.build(Offset(0), -1)
}

#[tokio::test]
async fn requests_are_counted_by_api() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let server = Server::with(&[
        ("sluice.metrics.listen", address.as_str()),
        ("sluice.metrics.logs.max", "20"),
        ("group.sluice.share.order", "key"),
    ])
    .await;
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
    // Names that are only asked for, or have settings, are no groups.
    let poison = [("sluice.share.poison".to_owned(), "park".to_owned())].into();
    server.running.broker().catalog.set_group_configs(&"ghost".into(), poison).await.unwrap();
    let ghost = DescribeShareGroupOffsetsRequestGroup::default()
        .with_group_id(GroupId(text("ghost")))
        .with_topics(None);
    let describe = DescribeShareGroupOffsetsRequest::default().with_groups(vec![ghost]);
    client.call(0, &describe).await;
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("sluice_share_groups 0") && !metrics.contains("ghost"), "{metrics}");
    while client.call(1, &heartbeat).await.error_code != 0 {}
    let id = server.running.broker().catalog.image().topic("t").unwrap().id;
    let topic = FetchTopic::default()
        .with_topic_id(uuid::Uuid::from_bytes(id.0))
        .with_partitions(vec![FetchPartition::default()]);
    let open = ShareFetchRequest::default()
        .with_group_id(Some(GroupId(text("g"))))
        .with_member_id(Some(text("m")))
        .with_max_bytes(1)
        .with_max_records(1)
        .with_topics(vec![topic]);
    assert_eq!(client.call(1, &open).await.error_code, 0);
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("sluice_share_members{group=\"g\"} 1"), "{metrics}");
    assert!(metrics.contains("sluice_share_in_flight_records{group=\"g\"} 0"), "{metrics}");
    assert!(metrics.contains("\nsluice_logs 51\n"), "the topic and the groups' own: {metrics}");
    assert_eq!(produce_to(&server, "t", batch()).await, (0, 0));
    let metrics = get(&address, "/metrics").await;
    assert!(metrics.contains("sluice_log_end_offset{topic=\"t\",partition=\"0\"} 1\n"), "{metrics}");
    assert!(metrics.contains("sluice_log_key_index_segments{topic=\"t\",partition=\"0\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("sluice_log_dirty_ratio{topic=\"t\""), "it is not compacted: {metrics}");
    assert!(metrics.contains("sluice_log_dirty_ratio{topic=\"__consumer_offsets\""), "{metrics}");
    assert!(metrics.contains("\nsluice_key_indexes_complete 1\n"), "{metrics}");
    assert!(metrics.contains("sluice_sync_seconds_count"), "{metrics}");
    assert_eq!(metrics.matches("\nsluice_log_bytes{").count(), 20, "sluice.metrics.logs.max: {metrics}");
    names_are_in_the_docs(&metrics);
    assert!(get(&address, "/").await.starts_with("HTTP/1.1 404"));
    server.running.stop().await.unwrap();
    assert!(TcpStream::connect(&address).await.is_err(), "the exporter stops with the broker");
}
