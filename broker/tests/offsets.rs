//! Committed offsets over a socket: what comes back, and the codes of what does not.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, GroupId, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};

use tokio::time::timeout;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Body, Client, text};
use common::Server;

type Commit<'a> = (&'a str, i32, i64, i32, Option<&'a str>);

fn commit(group: &str, offsets: &[Commit<'_>]) -> OffsetCommitRequest {
    let topic = |(topic, partition, offset, epoch, metadata): &Commit<'_>| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(*epoch)
            .with_committed_metadata(metadata.map(text));
        OffsetCommitRequestTopic::default().with_name(TopicName(text(topic))).with_partitions(vec![partition])
    };
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(offsets.iter().map(topic).collect())
}

async fn commit_codes(client: &mut Client, version: i16, request: &OffsetCommitRequest) -> Vec<i16> {
    let answer = client.call(version, request).await;
    answer.topics.iter().flat_map(|topic| &topic.partitions).map(|part| part.error_code).collect()
}

fn fetch(group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequest {
    let topic = |(name, indexes): &(&str, &[i32])| {
        OffsetFetchRequestTopic::default()
            .with_name(TopicName(text(name)))
            .with_partition_indexes(indexes.to_vec())
    };
    OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(topics.map(|topics| topics.iter().map(topic).collect()))
}

/// Asks until the coordinator has read its log, as clients do.
async fn fetch_loaded(client: &mut Client, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let loaded = async {
        loop {
            let answer = client.call(7, request).await;
            if answer.error_code != 14 {
                return answer;
            }
        }
    };
    timeout(Duration::from_secs(10), loaded).await.expect("the coordinator is loaded")
}

/// Partition, offset, leader epoch, metadata, error.
type Told = (i32, i64, i32, Option<String>, i16);

fn told(answer: &OffsetFetchResponse) -> Vec<Told> {
    assert_eq!(answer.error_code, 0);
    let parts = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let part = |part: &kafka_protocol::messages::offset_fetch_response::OffsetFetchResponsePartition| {
        let metadata = part.metadata.as_ref().map(ToString::to_string);
        (part.partition_index, part.committed_offset, part.committed_leader_epoch, metadata, part.error_code)
    };
    parts.map(part).collect()
}

fn nothing(partition: i32) -> Told {
    (partition, -1, -1, Some(String::new()), 0)
}

#[tokio::test]
async fn g07_nothing_committed() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    let answer = client.call(7, &fetch("g", Some(&[("t", &[0, 99]), ("missing", &[0])]))).await;
    assert_eq!(told(&answer), [nothing(0), nothing(99), nothing(0)]);
    for version in [2, 7] {
        assert_eq!(told(&client.call(version, &fetch("g", None)).await), []);
    }
    assert_eq!(told(&client.call(1, &fetch("", Some(&[("t", &[0])]))).await), [nothing(0)]);
}

#[tokio::test]
async fn g08_what_is_committed_comes_back() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    let all = [("t", &[0][..])];
    for (request, expected) in [
        (commit("g", &[("t", 0, 10, 3, Some("x"))]), (0, 10, 3, Some("x".to_owned()), 0)),
        (commit("g", &[("t", 0, 5, -1, None)]), (0, 5, -1, Some(String::new()), 0)),
    ] {
        assert_eq!(commit_codes(&mut client, 8, &request).await, [0]);
        assert_eq!(told(&client.call(7, &fetch("g", Some(&all))).await), std::slice::from_ref(&expected));
        assert_eq!(told(&client.call(5, &fetch("g", None)).await), [expected]);
    }
    let (longest, longer) = ("x".repeat(4_096), "x".repeat(4_097));
    let mixed = commit("h", &[("t", 0, 1, -1, Some(&longest)), ("t", 0, 2, -1, Some(&longer))]);
    assert_eq!(commit_codes(&mut client, 2, &mixed).await, [0, 12]);
    let (running, dir) = (server.running, server.dir);
    running.stop().await.unwrap();
    let server = Server::on(dir, &[]).await;
    let mut client = Client::new(&server).await;
    assert_eq!(
        told(&fetch_loaded(&mut client, &fetch("g", Some(&all))).await),
        [(0, 5, -1, Some(String::new()), 0)]
    );
    assert_eq!(told(&fetch_loaded(&mut client, &fetch("h", None)).await), [(0, 1, -1, Some(longest), 0)]);
}

#[tokio::test]
async fn g09_commits_to_what_is_not_there() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    let request = commit("g", &[("t", 0, 7, -1, None), ("t", 99, 1, -1, None), ("missing", 0, 1, -1, None)]);
    assert_eq!(commit_codes(&mut client, 9, &request).await, [0, 3, 3]);
    assert_eq!(told(&client.call(7, &fetch("g", None)).await).len(), 1);
    assert_eq!(commit_codes(&mut client, 7, &commit("none", &[("missing", 0, 1, -1, None)])).await, [3]);
    let of_a_generation = commit("unknown", &[("t", 0, 7, -1, None)])
        .with_generation_id_or_member_epoch(3)
        .with_member_id(text("m"));
    assert_eq!(commit_codes(&mut client, 9, &of_a_generation).await, [69]);
    assert_eq!(commit_codes(&mut client, 8, &of_a_generation).await, [22]);
}

/// v10 names topics by id, which the other codec does not know.
#[tokio::test]
async fn g09_topics_by_id() {
    let server = Server::start().await;
    server.topic("t").await;
    let known = server.running.broker().catalog.image().topic("t").unwrap().id.0;
    let unknown = [7; 16];
    let mut client = Client::new(&server).await;
    let body = Body::default().string(Some("g")).i32(-1).string(Some("")).string(None).array(
        &[(known, 0), (known, 99), (unknown, 0)],
        |body, (topic, partition)| {
            body.uuid(*topic)
                .array(&[*partition], |body, partition| {
                    body.i32(*partition).i64(6).i32(2).string(Some("m")).tags()
                })
                .tags()
        },
    );
    let mut answer = client.call_raw(8, 10, &body.tags()).await;
    assert_eq!(answer.i32(), 0, "not throttled");
    let topics = answer.array(|answer| {
        let topic = answer.uuid();
        let parts = answer.array(|answer| {
            let part = (answer.i32(), answer.i16());
            answer.tags();
            part
        });
        answer.tags();
        (topic, parts)
    });
    answer.tags();
    answer.ends();
    assert_eq!(topics, [(known, vec![(0, 0)]), (known, vec![(99, 3)]), (unknown, vec![(0, 100)])]);

    let group = |topics: Option<&[([u8; 16], i32)]>| {
        let body = Body::default().array(&["g"], |body, group| {
            let body = body.string(Some(group)).string(None).i32(-1);
            let body = match topics {
                None => body.length(None),
                Some(topics) => body.array(topics, |body, (topic, partition)| {
                    body.uuid(*topic).array(&[*partition], |body, partition| body.i32(*partition)).tags()
                }),
            };
            body.tags()
        });
        body.i8(0).tags()
    };
    for (asked, expected) in [
        (
            group(Some(&[(unknown, 0), (known, 99), (known, 0)])),
            vec![(unknown, 0, -1, -1, "", 100), (known, 99, -1, -1, "", 0), (known, 0, 6, 2, "m", 0)],
        ),
        (group(None), vec![(known, 0, 6, 2, "m", 0)]),
    ] {
        let mut answer = client.call_raw(9, 10, &asked).await;
        assert_eq!(answer.i32(), 0, "not throttled");
        let groups = answer.array(|answer| {
            assert_eq!(answer.string().as_deref(), Some("g"));
            let topics = answer.array(|answer| {
                let topic = answer.uuid();
                let parts = answer.array(|answer| {
                    let (partition, offset, epoch) = (answer.i32(), answer.i64(), answer.i32());
                    let part = (topic, partition, offset, epoch, answer.string().unwrap(), answer.i16());
                    answer.tags();
                    part
                });
                answer.tags();
                parts
            });
            assert_eq!(answer.i16(), 0);
            answer.tags();
            topics.concat()
        });
        answer.tags();
        answer.ends();
        let expected: Vec<_> =
            expected.into_iter().map(|(a, b, c, d, text, e)| (a, b, c, d, text.to_owned(), e)).collect();
        assert_eq!(groups, [expected]);
    }
}

#[tokio::test]
async fn several_groups_are_asked_for_at_a_time() {
    let server = Server::start().await;
    server.topic("t").await;
    let mut client = Client::new(&server).await;
    assert_eq!(commit_codes(&mut client, 8, &commit("g", &[("t", 0, 10, 3, Some("x"))])).await, [0]);
    let topics =
        OffsetFetchRequestTopics::default().with_name(TopicName(text("t"))).with_partition_indexes(vec![0]);
    let group = |id: &str| OffsetFetchRequestGroup::default().with_group_id(GroupId(text(id)));
    for version in [8, 9] {
        let request = OffsetFetchRequest::default().with_groups(vec![
            group("g").with_topics(Some(vec![topics.clone()])),
            group("unknown").with_topics(None),
            group("g").with_topics(None),
        ]);
        let answer = client.call(version, &request).await;
        let offsets: Vec<_> = answer
            .groups
            .iter()
            .map(|group| {
                let parts = group.topics.iter().flat_map(|topic| &topic.partitions);
                (group.group_id.as_str(), parts.map(|part| part.committed_offset).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(offsets, [("g", vec![10]), ("unknown", vec![]), ("g", vec![10])]);
        assert!(answer.groups.iter().all(|group| group.error_code == 0));
    }
}

#[tokio::test]
async fn a17_any_string_names_a_group() {
    let mut server = Server::start().await;
    server.topic("t").await;
    let long = "n".repeat(300);
    let longer = "n".repeat(32_000);
    let ids =
        ["a/../b", "../../x", ".", "..", "/", "a\0b", "a\nb", "a:b", " ", &long, &longer, "G", "g", "ä", ""];
    let mut client = Client::new(&server).await;
    for (number, id) in (1..).zip(ids) {
        assert_eq!(
            commit_codes(&mut client, 7, &commit(id, &[("t", 0, number, -1, None)])).await,
            [0],
            "{id:?}"
        );
    }
    let (running, dir) = (server.running, server.dir);
    running.stop().await.unwrap();
    server = Server::on(dir, &[]).await;
    let mut client = Client::new(&server).await;
    for (number, id) in (1..).zip(ids) {
        let answer = fetch_loaded(&mut client, &fetch(id, None)).await;
        assert_eq!(told(&answer), [(0, number, -1, Some(String::new()), 0)], "{id:?}");
    }
    let names = ids.iter().map(|id| GroupId(text(id))).collect();
    let deleted = client.call(2, &DeleteGroupsRequest::default().with_groups_names(names)).await;
    assert!(deleted.results.iter().all(|result| result.error_code == 0), "{deleted:?}");
    for id in ids {
        assert_eq!(told(&client.call(7, &fetch(id, None)).await), [], "{id:?}");
    }
}
