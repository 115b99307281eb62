//! Share groups over a socket, with order none and order key: sessions, acknowledgements, membership, administration.

#![allow(clippy::unwrap_used)]

use kafka_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, DescribeShareGroupOffsetsRequest, GroupId, ListGroupsRequest,
    ShareGroupDescribeRequest, TopicName,
};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::{Client, text};
use common::Server;
use share::{ACCEPT, ALL, Fetch, NOTHING, PATIENT, REJECT, RELEASE, RENEW, Setup};

const ORDERS: [&str; 2] = ["none", "key"];

#[tokio::test]
async fn s01_session_epochs() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 3, 1)]);
        assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), []);
        let faulty = a.fetch(Fetch { acks: &[(9, 9, &[ACCEPT])], ..ALL }).await;
        assert_eq!((faulty.error, faulty.parts[0].error), (0, 0), "a step all the same");
        for epoch in [99, 2] {
            assert_eq!(a.fetch_parts(epoch, ALL, &[]).await.error, 123, "epoch {epoch}");
            assert_eq!(a.acknowledge_parts(epoch, false, &[], &[]).await.0, 123, "epoch {epoch}");
        }
        assert_eq!(a.acknowledge(false, &[(0, 0, &[ACCEPT])]).await, (0, vec![(0, 0)]));
        let mut stranger = setup.member("stranger").await;
        assert_eq!(stranger.fetch_parts(3, ALL, &[]).await.error, 122);
        assert_eq!(stranger.acknowledge_parts(3, false, &[], &[]).await.0, 122);
    }
}

#[tokio::test]
async fn s02_acknowledgements_open_no_session() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(2).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 1, 1)]);
        let (topic, acks) = (a.topic, [(0, 0, &[ACCEPT][..])]);
        assert_eq!(a.fetch_parts(0, Fetch { acks: &acks, ..ALL }, &[(topic, 0)]).await.error, 42);
        assert_eq!(a.acknowledge_parts(0, false, &acks, &[(topic, 0)]).await.0, 123);
        assert_eq!(
            a.acknowledge(false, &acks).await,
            (0, vec![(0, 0)]),
            "session, epoch and locks are unchanged"
        );
    }
}

#[tokio::test]
async fn s03_s04_delivery_and_types_per_offset() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        let first = a.fetch(PATIENT).await;
        assert_eq!((first.acquired(), first.lock_ms), (vec![(0, 3, 1)], 30_000));
        assert!(first.parts[0].records > 0);
        let mut b = setup.joined("b").await;
        assert_eq!(b.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), []);
        let types = [ACCEPT, RELEASE, REJECT, ACCEPT];
        let again = a.fetch(Fetch { acks: &[(0, 3, &types)], ..ALL }).await;
        assert_eq!((again.ack_error(), again.acquired()), (0, vec![(1, 1, 2)]));
        let last = a.fetch(Fetch { acks: &[(1, 1, &[ACCEPT])], ..ALL }).await;
        assert_eq!((last.ack_error(), last.acquired()), (0, vec![]));
        assert!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.parts.is_empty(), "without news it is left out");
    }
}

#[tokio::test]
async fn s05_s06_acknowledgements_that_are_refused() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 3, 1)]);
        let one = |first, last| vec![(first, last, &[ACCEPT][..])];
        for (acks, error) in [
            (vec![(3, 3, &[ACCEPT][..]), (1, 1, &[ACCEPT])], 42),
            (vec![(0, 0, &[9])], 42),
            (one(-5, -1), 42),
            (one(0, 1 << 62), 42),
            (vec![(0, 3, &[ACCEPT, ACCEPT])], 42),
            (vec![(0, 0, &[RENEW])], 42),
        ] {
            assert_eq!(a.acknowledge(false, &acks).await, (0, vec![(0, error)]), "{acks:?}");
        }
        assert_eq!(a.acknowledge(false, &one(3, 3)).await, (0, vec![(0, 0)]));
        assert_eq!(a.acknowledge(false, &one(3, 3)).await, (0, vec![(0, 121)]));
        assert_eq!(a.acknowledge(false, &one(0, 2)).await, (0, vec![(0, 0)]), "nothing was changed");
        let both = [(a.topic, 0), (a.topic, 0)];
        let epoch = a.epoch;
        assert_eq!(a.acknowledge_parts(epoch, false, &one(0, 0), &both).await.0, 42, "named twice");
    }
}

#[tokio::test]
async fn b10_acknowledgements_that_claim_everything() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
        let million = vec![ACCEPT; 1_000_000];
        let each = |count, range: fn(i64) -> (i64, i64)| {
            let ack = |number| {
                let (first, last) = range(number);
                (first, last, &[ACCEPT][..])
            };
            (0..count).map(ack).collect::<Vec<_>>()
        };
        for acks in [
            vec![(0, 1 << 62, &[ACCEPT][..])],
            vec![(i64::MIN, i64::MAX, &[ACCEPT])],
            vec![(i64::MAX, i64::MAX, &[ACCEPT])],
            vec![(3, 0, &[ACCEPT])],
            vec![(0, 999_999, &million)],
            vec![(0, 0, &million)],
            each(100_000, |_| (0, 1 << 62)),
            each(10_000, |number| (number, number)),
            each(10_000, |number| (10_000 - number, 10_000 - number)),
            each(10_000, |number| (number << 40, (number << 40) + (1 << 39))),
        ] {
            let (error, parts) = a.acknowledge(false, &acks).await;
            assert_eq!((error, parts.len()), (0, 1));
            assert!([42, 121].contains(&parts[0].1), "{} of {:?}: {parts:?}", acks.len(), &acks[0].0);
        }
        assert_eq!(a.acknowledge(false, &[(0, 3, &[ACCEPT])]).await, (0, vec![(0, 0)]), "nothing changed");
    }
}

#[tokio::test]
async fn unknown_topics_and_partitions() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        let mut a = setup.joined("a").await;
        let unknown = [7; 16];
        let parts = [(a.topic, 0), (a.topic, 99), (unknown, 0)];
        let fetched = a.fetch_parts(0, Fetch { wait_ms: 0, ..ALL }, &parts).await;
        let errors: Vec<_> = fetched.parts.iter().map(|part| (part.topic, part.index, part.error)).collect();
        assert_eq!(errors, [(a.topic, 0, 0), (a.topic, 99, 3), (unknown, 0, 100)]);
        let acks = [(0, 0, &[ACCEPT][..])];
        let answer = a.acknowledge_parts(1, false, &acks, &[(a.topic, 99), (unknown, 0)]).await;
        assert_eq!(answer, (0, vec![(99, 3), (0, 100)]));
        assert_eq!(a.fetch_parts(2, Fetch { mode: 9, ..ALL }, &[]).await.error, 42, "unknown acquire mode");
        assert_eq!(a.fetch_parts(2, ALL, &[(a.topic, 1), (a.topic, 1)]).await.error, 42, "named twice");
    }
}

#[tokio::test]
async fn s08_a_session_ends() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 3, 1)]);
        let topic = a.topic;
        let last = a.fetch_parts(-1, Fetch { acks: &[(0, 0, &[ACCEPT])], ..ALL }, &[(topic, 0)]).await;
        assert_eq!((last.ack_error(), last.acquired()), (0, vec![]));
        // With two members in the group each one would get half of the keys (O7).
        assert_eq!(a.heartbeat(-1, None).await.error_code, 0);
        let mut b = setup.joined("b").await;
        assert_eq!(b.fetch(ALL).await.acquired(), [(1, 3, 2)]);
        assert_eq!(a.fetch_parts(2, ALL, &[]).await.error, 122);
    }
}

#[tokio::test]
async fn s09_a_member_outlives_its_connection() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
        let mut b = setup.joined("b").await;
        assert_eq!(b.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), []);
        drop(a);
        if order == "none" {
            assert_eq!(b.fetch(Fetch { wait_ms: 1_000, ..ALL }).await.acquired(), [(0, 3, 2)]);
        } else {
            // Its grace is 7.5 s (K53).
            assert_eq!(b.fetch(Fetch { wait_ms: 1_000, ..ALL }).await.acquired(), []);
        }
        let ask = ShareGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
        let group = Client::new(&setup.server).await.call(1, &ask).await.groups.remove(0);
        let mut members: Vec<&str> = group.members.iter().map(|member| member.member_id.as_str()).collect();
        members.sort_unstable();
        assert_eq!(members, ["a", "b"], "until its session timeout");
    }
}

#[tokio::test]
async fn s16_s27_renewals() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(2).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 1, 1)]);
        let renewal = [(0, 0, &[RENEW][..])];
        assert_eq!(a.acknowledge(true, &renewal).await, (0, vec![(0, 0)]));
        let only = Fetch { renew: true, acks: &renewal, ..NOTHING };
        for more in [
            Fetch { wait_ms: 1, ..only },
            Fetch { min_bytes: 1, ..only },
            Fetch { max_bytes: 1, ..only },
            Fetch { max_records: 1, ..only },
        ] {
            assert_eq!(a.fetch(more).await.error, 42, "{more:?}");
        }
        let renewed = a.fetch(only).await;
        assert_eq!((renewed.ack_error(), renewed.acquired()), (0, vec![]), "the epoch had not advanced");
        setup.configure(&[("share.renew.acknowledge.enable", "false"), ("sluice.share.order", order)]).await;
        assert_eq!(a.acknowledge(true, &renewal).await, (0, vec![(0, 121)]));
    }
}

#[tokio::test]
async fn s18_offsets_and_deletion() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup.produce(4).await;
        let mut admin = Client::new(&setup.server).await;
        let offsets = |group: &str, topics: Option<Vec<(&str, Vec<i32>)>>| {
            let topic = |(name, partitions): (&str, Vec<i32>)| {
                DescribeShareGroupOffsetsRequestTopic::default()
                    .with_topic_name(TopicName(text(name)))
                    .with_partitions(partitions)
            };
            let group = DescribeShareGroupOffsetsRequestGroup::default()
                .with_group_id(GroupId(text(group)))
                .with_topics(topics.map(|topics| topics.into_iter().map(topic).collect()));
            DescribeShareGroupOffsetsRequest::default().with_groups(vec![group])
        };
        async fn starts(admin: &mut Client, request: &DescribeShareGroupOffsetsRequest) -> Vec<i64> {
            let group = admin.call(0, request).await.groups.remove(0);
            assert_eq!(group.error_code, 0);
            let parts = group.topics.iter().flat_map(|topic| &topic.partitions);
            parts.inspect(|part| assert_eq!(part.error_code, 0)).map(|part| part.start_offset).collect()
        }
        assert_eq!(starts(&mut admin, &offsets("unknown", None)).await, [0; 0]);
        let mut a = setup.joined("a").await;
        assert_eq!(starts(&mut admin, &offsets("g", None)).await, [-1], "subscribed and never read");
        assert_eq!(a.fetch(ALL).await.acquired(), [(0, 3, 1)]);
        assert_eq!(a.acknowledge(false, &[(0, 1, &[ACCEPT])]).await.1, [(0, 0)]);
        assert_eq!(starts(&mut admin, &offsets("g", None)).await, [2]);
        let named = offsets("g", Some(vec![("t", vec![0, 99]), ("missing", vec![0])]));
        assert_eq!(starts(&mut admin, &named).await, [2, -1, -1]);

        let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
        assert_eq!(admin.call(2, &delete).await.results[0].error_code, 68);
        assert_eq!(a.fetch_parts(-1, ALL, &[]).await.error, 0);
        assert_eq!(a.heartbeat(-1, None).await.error_code, 0);
        assert_eq!(starts(&mut admin, &offsets("g", None)).await, [2], "state outlives the members");
        assert_eq!(admin.call(2, &delete).await.results[0].error_code, 0);
        assert_eq!(starts(&mut admin, &offsets("g", None)).await, [0; 0]);
    }
}

#[tokio::test]
async fn s19_heartbeats() {
    let setup = Setup::new("none").await;
    let mut a = setup.member("a").await;
    assert_eq!(a.heartbeat(0, None).await.error_code, 42);
    assert_eq!(a.heartbeat(5, None).await.error_code, 69);
    assert_eq!(setup.member("").await.heartbeat(0, Some(&["t"])).await.error_code, 42);
    let joined = a.heartbeat(0, Some(&["t"])).await;
    assert_eq!((joined.error_code, joined.heartbeat_interval_ms), (0, 5_000));
    assert_eq!(joined.member_id.as_deref(), Some("a"));
    let assigned = &joined.assignment.unwrap().topic_partitions[0];
    assert_eq!((*assigned.topic_id.as_bytes(), &assigned.partitions[..]), (setup.topic, &[0][..]));
    let fenced = a.heartbeat(joined.member_epoch + 5, None).await;
    assert_eq!((fenced.error_code, fenced.member_id), (110, None));
    assert!(fenced.error_message.is_some());
    let again = a.heartbeat(joined.member_epoch, None).await;
    assert_eq!((again.error_code, again.assignment.is_none()), (0, true), "told once");
    let left = a.heartbeat(-1, None).await;
    assert_eq!((left.error_code, left.member_epoch), (0, -1));
    assert_eq!(a.heartbeat(-1, None).await.error_code, 25);
}

#[tokio::test]
async fn share_groups_among_the_groups() {
    let setup = Setup::new("none").await;
    let mut a = setup.joined("a").await;
    let mut admin = Client::new(&setup.server).await;
    let ask = |ids: &[&str]| {
        let ids = ids.iter().map(|id| GroupId(text(id))).collect();
        ShareGroupDescribeRequest::default().with_group_ids(ids).with_include_authorized_operations(true)
    };
    let described = admin.call(1, &ask(&["g", "unknown", ""])).await.groups;
    let errors: Vec<i16> = described.iter().map(|group| group.error_code).collect();
    assert_eq!(errors, [0, 69, 24]);
    let group = &described[0];
    assert_eq!((group.group_state.as_str(), group.assignor_name.as_str()), ("Stable", "simple"));
    assert_eq!((group.authorized_operations, described[1].authorized_operations), (3_400, i32::MIN));
    let member = &group.members[0];
    assert_eq!((member.member_id.as_str(), member.client_id.as_str()), ("a", "test"));
    assert_eq!(member.client_host.as_str(), "/127.0.0.1");
    assert_eq!(member.subscribed_topic_names[0].as_str(), "t");
    assert_eq!(member.assignment.topic_partitions[0].topic_name.as_str(), "t");

    let classic = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("g"))]);
    let dead = admin.call(5, &classic).await.groups.remove(0);
    assert_eq!((dead.error_code, dead.group_state.as_str()), (0, "Dead"));
    assert_eq!(admin.call(6, &classic).await.groups[0].error_code, 69);
    let kind = |kind: &str| ListGroupsRequest::default().with_types_filter(vec![text(kind)]);
    let listed = admin.call(5, &kind("Share")).await.groups;
    assert_eq!(
        (listed.len(), listed[0].group_type.as_str(), listed[0].protocol_type.as_str()),
        (1, "share", "share")
    );
    assert_eq!(listed[0].group_state.as_str(), "Stable");
    assert!(admin.call(5, &kind("classic")).await.groups.is_empty());
    a.heartbeat(-1, None).await;
    assert_eq!(admin.call(1, &ask(&["g"])).await.groups[0].group_state.as_str(), "Empty");
}

#[tokio::test]
async fn a17_any_string_names_a_share_group() {
    let long = "n".repeat(300);
    let longer = "n".repeat(32_000);
    let ids = ["a/../b", "../../x", ".", "..", "/", "a\0b", "a\nb", "a:b", " ", &long, &longer, "G", "g"];
    let mut setup = Setup::new("none").await;
    setup.produce(4).await;
    for (count, id) in (1..).zip(ids) {
        setup
            .configure_group(id, &[("share.auto.offset.reset", "earliest"), ("sluice.share.order", "key")])
            .await;
        let mut member = setup.joined_to(id, "m").await;
        assert_eq!(member.fetch(PATIENT).await.acquired(), [(0, 3, 1)], "{id:?}");
        let accepted = count % 4;
        let acks = [(0, accepted, &[ACCEPT][..])];
        let topic = member.topic;
        let last = member.fetch_parts(-1, Fetch { acks: &acks, ..ALL }, &[(topic, 0)]).await;
        assert_eq!(last.ack_error(), 0, "{id:?}");
        assert_eq!(member.heartbeat(-1, None).await.error_code, 0);
    }
    setup = setup.restarted().await;
    for (count, id) in (1..).zip(ids) {
        let mut member = setup.joined_to(id, "n").await;
        let left = count % 4 + 1;
        let expected = if left > 3 { vec![] } else { vec![(left, 3, 2)] };
        let fetch = if expected.is_empty() { ALL } else { PATIENT };
        assert_eq!(member.fetch(fetch).await.acquired(), expected, "{id:?}");
    }
    let mut admin = Client::new(&setup.server).await;
    let mut names: Vec<String> = admin
        .call(5, &ListGroupsRequest::default())
        .await
        .groups
        .iter()
        .map(|group| group.group_id.to_string())
        .collect();
    names.sort_unstable();
    let mut expected: Vec<String> = ids.iter().map(ToString::to_string).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn no_member_has_the_name_of_a_reader_and_no_state_has_a_group_without_a_name() {
    let setup = Setup::new("key").await;
    for name in ["standalone/", "standalone/1/1", "\0standalone/1/1"] {
        let mut member = setup.member(name).await;
        assert_eq!(member.heartbeat(0, Some(&["t"])).await.error_code, 42, "{name:?}");
        assert_eq!(member.fetch(ALL).await.error, 42, "{name:?}");
    }
    let mut nameless = setup.member("m").await;
    nameless.group = String::new();
    assert_eq!(nameless.fetch(ALL).await.error, 24);
}

#[tokio::test]
async fn groups_without_settings_have_the_brokers() {
    let server = common::Server::with(&[
        ("group.sluice.share.order", "key"),
        ("group.share.record.lock.duration.ms", "20000"),
        ("group.share.heartbeat.interval.ms", "6000"),
    ])
    .await;
    let setup = Setup::on(server).await;
    let mut a = setup.member("a").await;
    let joined = a.heartbeat(0, Some(&["t"])).await;
    assert_eq!(joined.heartbeat_interval_ms, 6_000);
    assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.lock_ms, 20_000);
    let ask = ShareGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
    let described = Client::new(&setup.server).await.call(1, &ask).await.groups.remove(0);
    assert_eq!(described.assignor_name.as_str(), "key");
}

#[tokio::test]
async fn s20_an_orderly_stop_is_no_failure_of_what_is_in_hands() {
    for order in ORDERS {
        let setup = Setup::on(Server::with(&[]).await).await;
        let grace = ("sluice.share.disconnect.grace.ms", "0");
        let reset = ("share.auto.offset.reset", "earliest");
        let whole = ("sluice.share.hold.target.ms", "0");
        setup.configure(&[reset, ("sluice.share.order", order), grace, whole]).await;
        setup.produce(3).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 2, 1)]);
        // It is connected while the broker stops.
        let setup = setup.restarted().await;
        let mut b = setup.joined("b").await;
        assert_eq!(b.fetch(PATIENT).await.acquired(), [(0, 2, 1)], "{order}");
        drop(a);
    }
}
