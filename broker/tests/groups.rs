//! Classic groups over a socket: forms, versions and codes of each request.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::timeout;

#[path = "common/client.rs"]
mod client;
mod common;

use client::{Client, text};
use common::Server;

/// Without it every first join waits for three seconds.
const NO_DELAY: &[(&str, &str)] = &[("group.initial.rebalance.delay.ms", "0")];

fn group(id: &str) -> GroupId {
    GroupId(text(id))
}

fn join(id: &str, member: &str, protocols: &[&str]) -> JoinGroupRequest {
    let protocol = |name: &&str| {
        JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(Bytes::from_static(b"meta"))
    };
    JoinGroupRequest::default()
        .with_group_id(group(id))
        .with_member_id(text(member))
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(protocols.iter().map(protocol).collect())
}

fn sync(id: &str, member: &str, generation: i32, assignments: &[(&str, &[u8])]) -> SyncGroupRequest {
    let assignment = |(member, bytes): &(&str, &[u8])| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::copy_from_slice(bytes))
    };
    SyncGroupRequest::default()
        .with_group_id(group(id))
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_protocol_type(Some(StrBytes::from_static_str("consumer")))
        .with_protocol_name(Some(StrBytes::from_static_str("rr")))
        .with_assignments(assignments.iter().map(assignment).collect())
}

fn heartbeat(id: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(group(id))
        .with_member_id(text(member))
        .with_generation_id(generation)
}

async fn beat(client: &mut Client, id: &str, member: &str, generation: i32) -> i16 {
    client.call(4, &heartbeat(id, member, generation)).await.error_code
}

async fn describe(client: &mut Client, version: i16, id: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest::default().with_groups(vec![group(id)]);
    client.call(version, &request).await.groups.remove(0)
}

async fn delete(client: &mut Client, ids: &[&str]) -> Vec<i16> {
    let request = DeleteGroupsRequest::default().with_groups_names(ids.iter().map(|id| group(id)).collect());
    client.call(2, &request).await.results.iter().map(|result| result.error_code).collect()
}

async fn leave(
    client: &mut Client,
    version: i16,
    id: &str,
    members: &[(&str, Option<&str>)],
) -> LeaveGroupResponse {
    let identity = |(member, instance): &(&str, Option<&str>)| {
        MemberIdentity::default().with_member_id(text(member)).with_group_instance_id(instance.map(text))
    };
    let request = LeaveGroupRequest::default()
        .with_group_id(group(id))
        .with_members(members.iter().map(identity).collect());
    client.call(version, &request).await
}

/// One member alone in a stable generation 1; its member id.
async fn settle(client: &mut Client, id: &str) -> String {
    let joined = client.call(3, &join(id, "", &["rr"])).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let member = joined.member_id.to_string();
    let synced = client.call(5, &sync(id, &member, 1, &[(&member, b"mine")])).await;
    assert_eq!(synced.error_code, 0);
    member
}

#[tokio::test]
async fn w18_find_coordinator_has_two_forms() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let port = i32::from(server.running.local_addr().port());
    let ask = |key: &str, kind: i8| FindCoordinatorRequest::default().with_key(text(key)).with_key_type(kind);
    let answer = client.call(0, &FindCoordinatorRequest::default().with_key(text("g"))).await;
    assert_eq!((answer.error_code, answer.node_id.0, answer.port), (0, 1, port));
    assert_eq!(answer.host.as_str(), "127.0.0.1");
    for unknown in [5, 2] {
        let answer = client.call(3, &ask("g:x:0", unknown)).await;
        assert_eq!((answer.error_code, answer.node_id.0, answer.port), (42, -1, -1), "type {unknown}");
        assert!(answer.error_message.is_some());
    }
    assert_eq!(client.call(3, &ask("", 0)).await.error_code, 0, "any string is a group");
    let several = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g1"), text("g2")]);
    let answer = client.call(4, &several).await;
    let keys: Vec<&str> = answer.coordinators.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["g1", "g2"]);
    assert!(answer.coordinators.iter().all(|found| found.error_code == 0 && found.port == port));
    let answer = client.call(6, &FindCoordinatorRequest::default()).await;
    assert!(answer.coordinators.is_empty());
}

#[tokio::test]
async fn w17_a_transactional_id_has_a_coordinator() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("t")]);
    let found = client.call(4, &request).await.coordinators.remove(0);
    assert_eq!((found.error_code, found.node_id.0), (0, 1));
}

#[tokio::test]
async fn s17_share_state_has_a_coordinator_from_version_6_on() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    for (version, key, error) in [
        (6, "g", 42),
        (6, "g:x:0", 42),
        (6, "g:T2MzMe3oQwWQtgZWfHsv4A:0", 0),
        (5, "g:T2MzMe3oQwWQtgZWfHsv4A:0", 42),
    ] {
        let request =
            FindCoordinatorRequest::default().with_key_type(2).with_coordinator_keys(vec![text(key)]);
        let found = client.call(version, &request).await.coordinators.remove(0);
        assert_eq!((found.key.as_str(), found.error_code), (key, error), "version {version}");
        assert_eq!(found.node_id.0, if error == 0 { 1 } else { -1 });
    }
    for key in ["g", "g:T2MzMe3oQwWQtgZWfHsv4A:0"] {
        let request = FindCoordinatorRequest::default().with_key_type(2).with_key(text(key));
        let found = client.call(3, &request).await;
        assert_eq!((found.error_code, found.node_id.0), (42, -1), "version 3 names one key: {key}");
    }
}

#[tokio::test]
async fn g12_the_first_command_on_an_empty_broker() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let listed = client.call(4, &ListGroupsRequest::default()).await;
    assert_eq!((listed.error_code, listed.groups.len()), (0, 0));
    assert!(server.running.broker().catalog.image().topic("__consumer_offsets").is_none());
    assert_eq!(delete(&mut client, &["g"]).await, [69]);
    let ask = FindCoordinatorRequest::default().with_key(text("g"));
    let found = timeout(Duration::from_secs(1), client.call(3, &ask)).await.expect("within a second");
    assert_eq!(found.error_code, 0);
    assert_eq!(beat(&mut client, "g", "m", 1).await, 25);
    let offsets = server.running.broker().catalog.image().topic("__consumer_offsets").cloned().unwrap();
    assert_eq!(offsets.partitions, 50);
}

#[tokio::test]
async fn g01_sync_hands_out_the_leaders_bytes() {
    let server = Server::with(NO_DELAY).await;
    let (mut a, mut b) = (Client::new(&server).await, Client::new(&server).await);
    let first = a.call(3, &join("g", "", &["rr"])).await;
    let leader = first.member_id.to_string();
    b.send(3, &join("g", "", &["rr"])).await;
    // The leader learns of the newcomer by its heartbeat, and joins again.
    while beat(&mut a, "g", &leader, 1).await != 27 {}
    let again = a.call(3, &join("g", &leader, &["rr"])).await;
    let other: JoinGroupResponse = b.receive::<JoinGroupRequest>(3).await;
    assert_eq!((again.generation_id, other.generation_id), (2, 2));
    assert_eq!((again.members.len(), other.members.len()), (2, 0), "only the leader sees the members");
    assert_eq!(other.leader, again.member_id);
    let follower = other.member_id.to_string();
    b.send(5, &sync("g", &follower, 2, &[])).await;
    // The answer to a heartbeat shows that the follower's sync, sent before, found no assignment yet.
    assert_eq!(beat(&mut a, "g", &leader, 2).await, 0);
    let own = a.call(5, &sync("g", &leader, 2, &[(&leader, b"\0\x01LEAD")])).await;
    let its: SyncGroupResponse = b.receive::<SyncGroupRequest>(5).await;
    assert_eq!((own.error_code, &own.assignment[..]), (0, &b"\0\x01LEAD"[..]));
    assert_eq!((its.error_code, its.assignment.len()), (0, 0));
    for synced in [own, its] {
        assert_eq!(synced.protocol_type.as_deref(), Some("consumer"));
        assert_eq!(synced.protocol_name.as_deref(), Some("rr"));
    }
}

#[tokio::test]
async fn g02_g14_g17_codes_of_a_generation() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    let joined = client.call(3, &join("g", "", &["rr"])).await;
    let member = joined.member_id.to_string();
    assert_eq!(joined.protocol_name.as_deref(), Some("rr"));
    assert_eq!(beat(&mut client, "g", &member, 1).await, 0, "joined and not yet synced");
    let nameless = sync("g", &member, 1, &[]).with_protocol_name(None);
    let refused = client.call(5, &nameless).await;
    assert_eq!((refused.error_code, refused.protocol_name), (23, None));
    assert_eq!(client.call(5, &sync("g", &member, 9, &[])).await.error_code, 22);
    let other = sync("g", &member, 1, &[]).with_protocol_name(Some(text("zz")));
    assert_eq!(client.call(5, &other).await.error_code, 23);
    assert_eq!(client.call(5, &sync("g", "stranger", 1, &[])).await.error_code, 25);
    assert_eq!(client.call(5, &sync("g", &member, 1, &[])).await.error_code, 0);
    assert_eq!(beat(&mut client, "g", &member, 9).await, 22);
    assert_eq!(beat(&mut client, "g", "stranger", 1).await, 25);
    assert_eq!(beat(&mut client, "", &member, 1).await, 24);
}

#[tokio::test]
async fn g03_joins_that_do_not_fit() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    settle(&mut client, "g").await;
    for (protocols, kind) in
        [(&[][..], "consumer"), (&["foo"], "consumer"), (&["rr"], "connect"), (&["rr"], "")]
    {
        let refused = client.call(5, &join("g", "", protocols).with_protocol_type(text(kind))).await;
        assert_eq!(refused.error_code, 23, "{protocols:?} {kind}");
    }
    assert_eq!(client.call(5, &join("g", "stranger", &["rr"])).await.error_code, 25);
    assert_eq!(client.call(5, &join("", "", &["rr"])).await.error_code, 24);
    let short = join("g", "", &["rr"]).with_session_timeout_ms(10);
    assert_eq!(client.call(5, &short).await.error_code, 26);
}

#[tokio::test]
async fn g06_a_new_member_comes_back_with_its_id() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    for (version, name) in [(4, Some("")), (6, Some("")), (7, None), (9, None)] {
        let id = format!("g{version}");
        let asked = client.call(version, &join(&id, "", &["rr"])).await;
        assert_eq!((asked.error_code, asked.generation_id), (79, -1));
        assert_eq!(asked.protocol_name.as_deref(), name, "version {version}");
        assert!(asked.member_id.starts_with("test-"), "{}", asked.member_id.as_str());
        assert!(describe(&mut client, 5, &id).await.members.is_empty());
        let joined = client.call(version, &join(&id, &asked.member_id, &["rr"])).await;
        assert_eq!((joined.error_code, joined.generation_id), (0, 1));
        assert_eq!(joined.member_id, asked.member_id);
        assert_eq!(joined.members.len(), 1);
    }
    assert_eq!(client.call(5, &join("unused", "", &["rr"])).await.error_code, 79);
    assert_eq!(delete(&mut client, &["unused"]).await, [0]);
    let direct = client.call(0, &join("old", "", &["rr"])).await;
    assert_eq!((direct.error_code, direct.generation_id), (0, 1));
}

#[tokio::test]
async fn g05_a_static_member_returns() {
    let server = Server::with(NO_DELAY).await;
    let (mut a, mut b) = (Client::new(&server).await, Client::new(&server).await);
    let fixed = |member: &str| join("g", member, &["rr"]).with_group_instance_id(Some(text("i1")));
    let first = a.call(9, &fixed("")).await;
    assert_eq!((first.error_code, first.generation_id), (0, 1));
    assert_eq!(first.members[0].group_instance_id.as_deref(), Some("i1"));
    let old = first.member_id.to_string();
    let mine = sync("g", &old, 1, &[(&old, b"ST")]).with_group_instance_id(Some(text("i1")));
    assert_eq!(a.call(5, &mine).await.error_code, 0);
    let second = b.call(9, &fixed("")).await;
    assert_eq!((second.error_code, second.generation_id, second.skip_assignment), (0, 1, true));
    assert_ne!(second.member_id.as_str(), old);
    assert_eq!(second.members.len(), 1);
    let back = sync("g", &second.member_id, 1, &[]).with_group_instance_id(Some(text("i1")));
    assert_eq!(&b.call(5, &back).await.assignment[..], b"ST");
    let named = heartbeat("g", &old, 1).with_group_instance_id(Some(text("i1")));
    assert_eq!(a.call(4, &named).await.error_code, 82);
    assert_eq!(beat(&mut a, "g", &old, 1).await, 25);
    assert_eq!(a.call(5, &fixed(&old)).await.error_code, 82);
    let left = leave(&mut b, 3, "g", &[("", Some("i1")), ("", Some("i2"))]).await;
    assert_eq!(left.error_code, 0);
    let codes: Vec<i16> = left.members.iter().map(|member| member.error_code).collect();
    assert_eq!(codes, [0, 25]);
    assert_eq!(left.members[0].group_instance_id.as_deref(), Some("i1"));
}

#[tokio::test]
async fn g10_describe_of_what_is_not_there() {
    let server = Server::start().await;
    let mut client = Client::new(&server).await;
    let dead = describe(&mut client, 5, "g").await;
    assert_eq!((dead.error_code, dead.group_state.as_str(), dead.members.len()), (0, "Dead", 0));
    let missing = describe(&mut client, 6, "g").await;
    assert_eq!((missing.error_code, missing.group_state.as_str()), (69, "Dead"));
    assert!(missing.error_message.is_some_and(|message| !message.is_empty()));
    assert_eq!(missing.authorized_operations, i32::MIN);
}

#[tokio::test]
async fn g15_members_leave_and_the_group_stays() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    let member = settle(&mut client, "g").await;
    let stable = describe(&mut client, 6, "g").await;
    assert_eq!((stable.group_state.as_str(), stable.protocol_data.as_str()), ("Stable", "rr"));
    let described = &stable.members[0];
    assert_eq!((described.client_id.as_str(), described.client_host.as_str()), ("test", "/127.0.0.1"));
    assert_eq!(
        (&described.member_metadata[..], &described.member_assignment[..]),
        (&b"meta"[..], &b"mine"[..])
    );
    let left = leave(&mut client, 4, "g", &[(&member, None), ("stranger", None)]).await;
    assert_eq!(left.error_code, 0);
    let told: Vec<_> = left.members.iter().map(|left| (left.member_id.as_str(), left.error_code)).collect();
    assert_eq!(told, [(member.as_str(), 0), ("stranger", 25)]);
    let empty = describe(&mut client, 5, "g").await;
    assert_eq!((empty.group_state.as_str(), empty.protocol_type.as_str()), ("Empty", "consumer"));
    let single = LeaveGroupRequest::default().with_group_id(group("g")).with_member_id(text("stranger"));
    assert_eq!(client.call(2, &single).await.error_code, 25, "up to v2 the member's error is the request's");
    assert_eq!(leave(&mut client, 4, "", &[("m", None)]).await.error_code, 24);
}

#[tokio::test]
async fn g16_filters_of_a_listing() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    settle(&mut client, "g").await;
    let words = |words: &[&str]| words.iter().map(|word| text(word)).collect::<Vec<_>>();
    for (states, kinds, count) in [
        (&[][..], &[][..], 1),
        (&["stable"], &[], 1),
        (&["EMPTY", "Stable"], &["Classic"], 1),
        (&[], &["classic", "bogus"], 1),
        (&["bogus"], &[], 0),
        (&[], &["bogus"], 0),
        (&[], &["share"], 0),
    ] {
        let request =
            ListGroupsRequest::default().with_states_filter(words(states)).with_types_filter(words(kinds));
        let listed = client.call(5, &request).await;
        assert_eq!((listed.error_code, listed.groups.len()), (0, count), "{states:?} {kinds:?}");
    }
    let listed = client.call(0, &ListGroupsRequest::default()).await.groups.remove(0);
    assert_eq!((listed.group_id.as_str(), listed.protocol_type.as_str()), ("g", "consumer"));
}

#[tokio::test]
async fn groups_are_deleted_when_nobody_is_in_them() {
    let server = Server::with(NO_DELAY).await;
    let mut client = Client::new(&server).await;
    let member = settle(&mut client, "g").await;
    assert_eq!(delete(&mut client, &["g", "unknown", "g"]).await, [68, 69]);
    leave(&mut client, 4, "g", &[(&member, None)]).await;
    assert_eq!(delete(&mut client, &["g"]).await, [0]);
    assert_eq!(describe(&mut client, 6, "g").await.error_code, 69);
}
