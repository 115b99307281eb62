//! The codes that members hear in the middle of things, and how they leave.

use super::*;

#[test]
fn g14_codes_in_the_middle_of_a_rebalance() {
    let mut rig = Rig::new();
    let ticket = rig.join(newcomer());
    let a = rig.joined(ticket).member;
    assert_eq!(rig.heartbeat(&a, 1), Ok(()));
    assert_eq!(rig.commit_as(&a, 1, vec![part("t", 0, 1, "")]), [Err(GroupError::RebalanceInProgress)]);
    let sync = rig.sync(asks(&a, 1));
    rig.synced(sync).unwrap();

    let b_join = rig.join(newcomer());
    assert_eq!(rig.heartbeat(&a, 1), Err(GroupError::RebalanceInProgress));
    assert_eq!(rig.commit_as(&a, 1, vec![part("t", 0, 1, "")]), [Ok(())]);
    let sync = rig.sync(asks(&a, 1));
    assert_eq!(rig.synced(sync), Err(GroupError::RebalanceInProgress));

    let a_join = rig.join(again(&a));
    rig.joined(a_join);
    rig.joined(b_join);
    assert_eq!(rig.commit_as(&a, 1, vec![part("t", 0, 2, "")]), [Err(GroupError::IllegalGeneration)]);
    assert_eq!(rig.heartbeat(&a, 1), Err(GroupError::IllegalGeneration));
    assert_eq!(rig.heartbeat("who", 2), Err(GroupError::UnknownMember));
    assert_eq!(rig.commit_as("", -1, vec![part("t", 0, 2, "")]), [Err(GroupError::UnknownMember)]);
}

#[test]
fn g12_heartbeat_of_an_unknown_group() {
    let mut rig = Rig::new();
    assert_eq!(rig.heartbeat("m", 1), Err(GroupError::UnknownMember));
    let sync = rig.sync(asks("m", 1));
    assert_eq!(rig.synced(sync), Err(GroupError::UnknownMember));
    assert_eq!(rig.leave(&[("m", None)]), Ok(vec![Err(GroupError::UnknownMember)]));
    let join = rig.join(again("m"));
    assert_eq!(rig.join_error(join), (GroupError::UnknownMember, s("m")));
    assert!(rig.log.is_empty(), "nothing is written for what is refused");
}

#[test]
fn g15_leave_group() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    rig.commit_as(&a, 2, vec![part("t", 0, 7, "")])[0].unwrap();
    assert_eq!(rig.leave(&[(&b, None), ("who", None)]), Ok(vec![Ok(()), Err(GroupError::UnknownMember)]));
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(rig.leave(&[(&a, None)]), Ok(vec![Ok(())]));
    let described = rig.describe(GROUP).unwrap();
    assert_eq!(
        (described.state, &*described.protocol_type, described.members.len()),
        ("Empty", "consumer", 0)
    );
    assert_eq!(rig.fetch(GROUP, Some(&[("t", 0)]))[0].offset, 7);
}

#[test]
fn g15_who_leaves_hears_of_it_where_it_waits() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let b_join = rig.join(JoinGroup { protocols: vec![(s("range"), Bytes::new())], ..again(&b) });
    rig.leave(&[(&b, None)]).unwrap()[0].unwrap();
    assert_eq!(rig.join_error(b_join).0, GroupError::UnknownMember);
    let a_join = rig.join(again(&a));
    assert_eq!(rig.joined(a_join).generation, 3, "nobody else is waited for");

    let c_join = rig.join(newcomer());
    let a_join = rig.join(again(&a));
    rig.joined(a_join);
    let c = rig.joined(c_join).member;
    let c_sync = rig.sync(asks(&c, 4));
    rig.leave(&[(&c, None)]).unwrap()[0].unwrap();
    assert_eq!(rig.synced(c_sync), Err(GroupError::UnknownMember));
}

#[test]
fn a_session_runs_out_without_heartbeats() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    for _ in 0..3 {
        rig.pass(3_000);
        let _ = rig.heartbeat(&a, 2);
    }
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(rig.heartbeat(&b, 2), Err(GroupError::UnknownMember));
    rig.pass(6_000);
    assert_eq!(rig.state(), "Empty");
}

#[test]
fn a_commit_keeps_the_session() {
    let mut rig = Rig::new();
    let (a, _) = rig.stable_pair();
    for offset in 0..3 {
        rig.pass(3_000);
        rig.commit_as(&a, 2, vec![part("t", 0, offset, "")])[0].unwrap();
    }
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress), "only B is out");
}

#[test]
fn g17_sync_without_protocol_fields() {
    let mut rig = Rig::new();
    let (a, _) = rig.stable_pair();
    let (kind, name) = (Some(s("consumer")), Some(s("range")));
    let cases = [
        (kind.clone(), None, Err(GroupError::InconsistentProtocol)),
        (None, name.clone(), Err(GroupError::InconsistentProtocol)),
        (kind, name, Ok(bytes(b"A"))),
    ];
    for (protocol_type, protocol_name, expected) in cases {
        let request = SyncGroup { protocol_type, protocol_name, requires_protocol: true, ..asks(&a, 2) };
        let ticket = rig.sync(request);
        assert_eq!(rig.synced(ticket), expected);
    }
}

#[test]
fn a17_the_empty_group_has_offsets_but_no_members() {
    let mut rig = Rig::new();
    let join = rig.join(JoinGroup { group: s(""), ..newcomer() });
    assert_eq!(rig.join_error(join).0, GroupError::InvalidGroupId);
    let sync = rig.sync(SyncGroup { group: s(""), ..asks("m", 1) });
    assert_eq!(rig.synced(sync), Err(GroupError::InvalidGroupId));
    assert_eq!(rig.share_in("", "m", 0, &["t"]).unwrap_err(), GroupError::InvalidRequest);
}

#[test]
fn session_timeouts_have_bounds() {
    let mut rig = Rig::new();
    for session_timeout_ms in [5_999, 1_800_001, -1] {
        let ticket = rig.join(JoinGroup { session_timeout_ms, ..newcomer() });
        assert_eq!(rig.join_error(ticket).0, GroupError::InvalidSessionTimeout);
    }
}

#[test]
fn names_that_cannot_be_stored_are_refused() {
    let mut rig = Rig::new();
    let long = "x".repeat(32_767);
    let ticket = rig.join(JoinGroup { group: s(&long), ..newcomer() });
    assert_eq!(rig.join_error(ticket).0, GroupError::InvalidGroupId);
    let ticket = rig.join(JoinGroup { client_id: s(&long), ..newcomer() });
    assert_eq!(rig.join_error(ticket).0, GroupError::InvalidRequest);
    let group = s(&"x".repeat(32_000));
    let ticket = rig.join(JoinGroup { group: group.clone(), ..newcomer() });
    rig.joined(ticket);
    rig.restart();
    assert!(rig.describe(&group).is_ok());
}

#[test]
fn nothing_is_served_before_the_log_is_read() {
    let mut rig = Rig::new();
    rig.partition = GroupPartition::new(rig.limits.clone());
    assert_eq!(rig.heartbeat("m", 1), Ok(()), "a member that has lived through the restart goes on");
    let join = rig.join(newcomer());
    assert_eq!(rig.join_error(join).0, GroupError::Loading);
    assert_eq!(rig.commit(part("t", 0, 1, "")), Err(GroupError::Loading));
    assert_eq!(rig.delete(GROUP), Err(GroupError::Loading));
}
