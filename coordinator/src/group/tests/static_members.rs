//! G05: members with an instance id come back without moving anything.

use super::*;

fn joins_as(instance: &str) -> JoinGroup {
    JoinGroup { instance: Some(s(instance)), requires_known_member: true, ..newcomer() }
}

/// A alone, static as `i1`, stable in generation 1 with assignment `ST`.
fn alone(rig: &mut Rig) -> Arc<str> {
    let ticket = rig.join(joins_as("i1"));
    let joined = rig.joined(ticket);
    assert_eq!(joined.generation, 1, "one step, even where others need two");
    let id = joined.member;
    assert!(id.starts_with("i1-"));
    let assignments = vec![(id.clone(), bytes(b"ST"))];
    let sync = rig.sync(SyncGroup { assignments, instance: Some(s("i1")), ..asks(&id, 1) });
    assert_eq!(rig.synced(sync), Ok(bytes(b"ST")));
    id
}

#[test]
fn g05_a_static_member_takes_over_its_old_self() {
    let mut rig = Rig::new();
    let old = alone(&mut rig);
    let ticket = rig.join(joins_as("i1"));
    let joined = rig.joined(ticket);
    let new = joined.member.clone();
    assert_ne!(new, old);
    assert_eq!(joined.generation, 1);
    assert_eq!((joined.leader, joined.skip_assignment, joined.members.len()), (old.clone(), false, 0));
    assert_eq!(rig.state(), "Stable");

    let sync = rig.sync(SyncGroup { instance: Some(s("i1")), ..asks(&new, 1) });
    assert_eq!(rig.synced(sync), Ok(bytes(b"ST")));
    assert_eq!(rig.heartbeat_as(&old, 1, Some("i1")), Err(GroupError::FencedInstance));
    assert_eq!(rig.heartbeat(&old, 1), Err(GroupError::UnknownMember));
    let rejoin = rig.join(JoinGroup { member: old, ..joins_as("i1") });
    assert_eq!(rig.join_error(rejoin).0, GroupError::FencedInstance);
    assert_eq!(rig.heartbeat_as(&new, 1, Some("i1")), Ok(()));
}

#[test]
fn g05_a_returning_leader_may_skip_the_assignment() {
    let mut rig = Rig::new();
    alone(&mut rig);
    let ticket = rig.join(JoinGroup { supports_skip_assignment: true, ..joins_as("i1") });
    let joined = rig.joined(ticket);
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, joined.member);
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].1, Some(s("i1")));
}

#[test]
fn g05_leave_by_instance_alone() {
    let mut rig = Rig::new();
    alone(&mut rig);
    assert_eq!(
        rig.leave(&[("", Some("i1")), ("", Some("i2")), ("", None)]),
        Ok(vec![Ok(()), Err(GroupError::UnknownMember), Err(GroupError::UnknownMember)])
    );
    assert_eq!(rig.state(), "Empty");
}

#[test]
fn g05_the_old_self_is_fenced_where_it_waits() {
    let mut rig = Rig::new();
    let old = alone(&mut rig);
    let b_join = rig.join(newcomer());
    let parked = rig.join(JoinGroup { member: old.clone(), ..joins_as("i1") });
    rig.joined(b_join);
    rig.joined(parked);
    let b_more = rig.join(newcomer());
    let parked = rig.join(JoinGroup { member: old, ..joins_as("i1") });
    assert!(rig.waits(parked), "a third one is waited for");
    let twin = rig.join(joins_as("i1"));
    assert_eq!(rig.join_error(parked).0, GroupError::FencedInstance);
    assert!(rig.waits(twin) && rig.waits(b_more));
}

#[test]
fn g05_coming_back_in_the_middle_of_a_sync_starts_over() {
    let mut rig = Rig::new();
    let ticket = rig.join(joins_as("i1"));
    rig.joined(ticket);
    let twin = rig.join(joins_as("i1"));
    let joined = rig.joined(twin);
    assert_eq!((joined.generation, joined.members.len()), (2, 1));
}

#[test]
fn g05_another_protocol_moves_the_group() {
    let mut rig = Rig::new();
    alone(&mut rig);
    let other =
        JoinGroup { protocols: vec![(s("rr"), Bytes::new()), (s("range"), Bytes::new())], ..joins_as("i1") };
    let ticket = rig.join(other);
    let joined = rig.joined(ticket);
    assert_eq!((joined.generation, &*joined.protocol), (2, "rr"));
}

#[test]
fn g05_a_static_member_is_kept_while_its_session_lasts() {
    let mut rig = Rig::new();
    let long = || JoinGroup { session_timeout_ms: 60_000, ..joins_as("i1") };
    let ticket = rig.join(long());
    let a = rig.joined(ticket).member;
    let sync = rig.sync(asks(&a, 1));
    rig.synced(sync).unwrap();
    let b_join = rig.join(newcomer());
    rig.pass(6_000);
    let joined = rig.joined(b_join);
    assert_eq!((joined.generation, joined.leader == joined.member), (2, true));
    assert_eq!(joined.members.len(), 2, "it did not rejoin in time, and is assigned all the same");
    rig.pass(60_000);
    assert!(!rig.describe(GROUP).unwrap().members.iter().any(|member| member.member == a));
}

#[test]
fn g05_static_members_come_back_after_a_restart() {
    let mut rig = Rig::new();
    let old = alone(&mut rig);
    rig.restart();
    let ticket =
        rig.join(JoinGroup { protocols: vec![(s("range"), subscription(&["t"]))], ..joins_as("i1") });
    let joined = rig.joined(ticket);
    assert_ne!(joined.member, old);
    assert_eq!(joined.generation, 1);
    let sync = rig.sync(asks(&joined.member, 1));
    assert_eq!(rig.synced(sync), Ok(bytes(b"ST")));
}
