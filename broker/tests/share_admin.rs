//! The administration of share groups over a socket: offsets set and deleted (S18), with order none and order key.

#![allow(clippy::unwrap_used)]

use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, GroupId, TopicName,
};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::{Body, Client, text};
use share::{ACCEPT, ALL, Fetch, PATIENT, RELEASE, Setup};

const ORDERS: [&str; 2] = ["none", "key"];

async fn alter(admin: &mut Client, group: &str, to: &[(&str, i32, i64)]) -> AlterShareGroupOffsetsResponse {
    let topic = |(name, index, offset): &(&str, i32, i64)| {
        let part = AlterShareGroupOffsetsRequestPartition::default()
            .with_partition_index(*index)
            .with_start_offset(*offset);
        AlterShareGroupOffsetsRequestTopic::default()
            .with_topic_name(TopicName(text(name)))
            .with_partitions(vec![part])
    };
    let request = AlterShareGroupOffsetsRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(to.iter().map(topic).collect());
    admin.call(0, &request).await
}

fn altered(answer: &AlterShareGroupOffsetsResponse) -> (i16, Vec<(String, i32, i16)>) {
    let parts = answer.responses.iter().flat_map(|topic| {
        let name = topic.topic_name.to_string();
        topic.partitions.iter().map(move |part| (name.clone(), part.partition_index, part.error_code))
    });
    (answer.error_code, parts.collect())
}

async fn delete(admin: &mut Client, group: &str, topics: &[&str]) -> DeleteShareGroupOffsetsResponse {
    let topic =
        |name: &&str| DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(TopicName(text(name)));
    let request = DeleteShareGroupOffsetsRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(topics.iter().map(topic).collect());
    admin.call(0, &request).await
}

fn deleted(answer: &DeleteShareGroupOffsetsResponse) -> (i16, Vec<(String, i16)>) {
    let topics = answer.responses.iter().map(|topic| (topic.topic_name.to_string(), topic.error_code));
    (answer.error_code, topics.collect())
}

/// Start offset and lag of partition 0 of `t` (v1 adds the lag).
async fn stands(admin: &mut Client, group: &str) -> (i64, i64) {
    let topic =
        |body: Body, name: &&str| body.string(Some(name)).array(&[0], |body, at| body.i32(*at)).tags();
    let one = |body: Body, name: &&str| body.string(Some(name)).array(&["t"], topic).tags();
    let body = Body::default().array(&[group], one).tags();
    let mut answer = admin.call_raw(90, 1, &body).await;
    answer.i32();
    let groups = answer.array(|group| {
        group.string();
        let topics = group.array(|topic| {
            topic.string();
            topic.uuid();
            let parts = topic.array(|part| {
                let (_, start, _, lag, error) = (part.i32(), part.i64(), part.i32(), part.i64(), part.i16());
                part.string();
                part.tags();
                assert_eq!(error, 0);
                (start, lag)
            });
            topic.tags();
            parts
        });
        assert_eq!(group.i16(), 0);
        group.string();
        group.tags();
        topics.concat()
    });
    groups[0][0]
}

/// A member that has accepted 0 and 1 of four records, and released 2.
async fn used(setup: &Setup) -> share::Member {
    setup.produce(4).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
    assert_eq!(a.acknowledge(false, &[(0, 1, &[ACCEPT]), (2, 2, &[RELEASE])]).await.1, [(0, 0)]);
    a
}

async fn leaves(member: &mut share::Member) {
    if member.epoch > 0 {
        assert_eq!(member.fetch_parts(-1, ALL, &[]).await.error, 0);
    }
    assert_eq!(member.heartbeat(-1, None).await.error_code, 0);
    member.epoch = 0;
}

async fn joins(member: &mut share::Member) {
    assert_eq!(member.heartbeat(0, Some(&["t"])).await.error_code, 0);
}

#[tokio::test]
async fn s18_offsets_are_set_where_there_are_no_members() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        let mut a = used(&setup).await;
        let mut admin = Client::new(&setup.server).await;
        assert_eq!(stands(&mut admin, "g").await, (2, 2));
        let refused = alter(&mut admin, "g", &[("t", 0, 0)]).await;
        assert_eq!((altered(&refused), refused.error_message.is_some()), ((68, vec![]), true));
        assert_eq!(stands(&mut admin, "g").await, (2, 2), "nothing was changed");
        leaves(&mut a).await;

        let to_0 = alter(&mut admin, "g", &[("t", 0, 0), ("t", 9, 0), ("missing", 0, 0)]).await;
        let told = vec![("t".to_owned(), 0, 0), ("t".to_owned(), 9, 3), ("missing".to_owned(), 0, 3)];
        assert_eq!(altered(&to_0), (0, told));
        assert_eq!(to_0.responses[0].topic_id.as_bytes(), &setup.topic);
        assert!(to_0.responses[2].topic_id.is_nil());
        assert_eq!(stands(&mut admin, "g").await, (0, 4), "lag = end - 0");
        joins(&mut a).await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)], "counts begin anew");
        leaves(&mut a).await;

        for (to, start) in [(3, 3), (4, 4), (99, 4), (-5, 0)] {
            assert_eq!(altered(&alter(&mut admin, "g", &[("t", 0, to)]).await).1[0].2, 0);
            assert_eq!(stands(&mut admin, "g").await.0, start, "to {to}");
        }
        assert_eq!(altered(&alter(&mut admin, "g", &[("t", 0, 1)]).await).0, 0);
        let setup = setup.restarted().await;
        let mut admin = Client::new(&setup.server).await;
        let mut member = setup.joined("b").await;
        assert_eq!(stands(&mut admin, "g").await, (1, 3), "it is stored");
        assert_eq!(member.fetch(PATIENT).await.acquired(), [(1, 3, 1)]);
    }
}

#[tokio::test]
async fn s18_offsets_of_what_was_never_read_can_be_set() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        leaves(&mut a).await;
        let mut admin = Client::new(&setup.server).await;
        assert_eq!(stands(&mut admin, "g").await, (-1, -1));
        assert_eq!(altered(&alter(&mut admin, "g", &[("t", 0, 2)]).await).1[0].2, 0);
        assert_eq!(stands(&mut admin, "g").await, (2, 2));
        joins(&mut a).await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(2, 3, 1)]);
    }
}

#[tokio::test]
async fn s18_deleted_offsets_begin_as_the_groups_settings_say() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        let mut a = used(&setup).await;
        let mut admin = Client::new(&setup.server).await;
        assert_eq!(deleted(&delete(&mut admin, "g", &["t"]).await), (68, vec![]));
        assert_eq!(stands(&mut admin, "g").await, (2, 2), "nothing was changed");
        leaves(&mut a).await;
        setup.server.topic("unread").await;
        let answer = delete(&mut admin, "g", &["t", "unread", "missing"]).await;
        let told = vec![("t".to_owned(), 0), ("unread".to_owned(), 3), ("missing".to_owned(), 3)];
        assert_eq!(deleted(&answer), (0, told));
        assert_eq!(answer.responses[0].topic_id.as_bytes(), &setup.topic);
        assert!(answer.responses[1].error_message.as_ref().unwrap().contains("no offsets"));
        assert_eq!(stands(&mut admin, "g").await, (-1, -1));
        assert_eq!(deleted(&delete(&mut admin, "g", &["t"]).await).1, [("t".to_owned(), 3)], "once");
        joins(&mut a).await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)], "earliest");
        leaves(&mut a).await;
        assert_eq!(deleted(&delete(&mut admin, "g", &["t"]).await).1, [("t".to_owned(), 0)]);
        setup.configure(&[("sluice.share.order", order)]).await;
        joins(&mut a).await;
        assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), [], "latest, where nothing is set");
        let setup = setup.restarted().await;
        let mut admin = Client::new(&setup.server).await;
        let _ = setup.joined("b").await;
        assert_eq!(stands(&mut admin, "g").await, (4, 0));
    }
}

#[tokio::test]
async fn s18_groups_that_are_none() {
    let setup = Setup::new("none").await;
    let mut admin = Client::new(&setup.server).await;
    assert_eq!(altered(&alter(&mut admin, "", &[("t", 0, 0)]).await), (24, vec![]));
    for (group, code) in [("unknown", 69), ("", 24)] {
        assert_eq!(deleted(&delete(&mut admin, group, &["t"]).await), (code, vec![]), "{group:?}");
    }
    // Without topics there is nothing to refuse.
    assert_eq!(altered(&alter(&mut admin, "unknown", &[]).await), (0, vec![]));
    assert_eq!(deleted(&delete(&mut admin, "unknown", &[]).await), (0, vec![]));
    let mut a = setup.joined("a").await;
    leaves(&mut a).await;
    assert_eq!(altered(&alter(&mut admin, "g", &[("missing", 0, 0)]).await).1[0].2, 3);
    assert_eq!(altered(&alter(&mut admin, "other", &[("missing", 0, 0)]).await).1[0].2, 3);
    assert_eq!(
        deleted(&delete(&mut admin, "other", &["t"]).await).0,
        69,
        "nothing was set, no group was made"
    );
}

#[tokio::test]
async fn s18_a_group_whose_offsets_are_set_exists_from_then_on() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut admin = Client::new(&setup.server).await;
        let mut answer = alter(&mut admin, "g", &[("t", 0, 3)]).await;
        // The coordinator of groups was made by this very request, and loads.
        while [14, 15].contains(&answer.error_code) {
            answer = alter(&mut admin, "g", &[("t", 0, 3)]).await;
        }
        assert_eq!(altered(&answer), (0, vec![("t".to_owned(), 0, 0)]));
        assert_eq!(stands(&mut admin, "g").await, (3, 1));
        let setup = setup.restarted().await;
        let mut member = setup.joined("a").await;
        assert_eq!(member.fetch(PATIENT).await.acquired(), [(3, 3, 1)]);
    }
}
