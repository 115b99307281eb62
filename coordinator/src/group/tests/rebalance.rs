//! Joining, voting, syncing, and what ends the wait for members that stay away.

use super::*;

#[test]
fn g01_sync_hands_out_the_leaders_bytes() {
    let mut rig = Rig::new();
    let ticket = rig.join(newcomer());
    let a = rig.joined(ticket).member;
    let b_join = rig.join(newcomer());
    let a_join = rig.join(again(&a));
    let b = rig.joined(b_join).member;
    assert_eq!(rig.joined(a_join).generation, 2);

    let b_sync = rig.sync(asks(&b, 2));
    rig.pass(200);
    assert!(rig.waits(b_sync));
    let word = Bytes::from_static(&[0x00, 0x01, 0x4c, 0x45, 0x41, 0x44]);
    let assignments = vec![(a.clone(), word.clone()), (b.clone(), Bytes::new())];
    let a_sync = rig.sync(SyncGroup { assignments, ..asks(&a, 2) });
    let GroupReply::Synced(Ok(answer)) = rig.reply(a_sync) else { panic!("A is answered") };
    assert_eq!((&*answer.protocol_type, &*answer.protocol, answer.assignment), ("consumer", "range", word));
    assert_eq!(rig.synced(b_sync), Ok(Bytes::new()));
}

#[test]
fn g02_one_generation_per_completed_rebalance() {
    let mut rig = Rig::new();
    let ticket = rig.join(newcomer());
    let first = rig.joined(ticket);
    assert_eq!((first.generation, &first.leader), (1, &first.member));
    let a = first.member;
    let sync = rig.sync(asks(&a, 1));
    rig.synced(sync).unwrap();

    let b_join = rig.join(newcomer());
    // The same member asks again while the group waits: the older request gives way, nothing is counted twice.
    let a_early = rig.join(again(&a));
    let (a_joined, b_joined) = (rig.joined(a_early), rig.joined(b_join));
    assert_eq!((a_joined.generation, b_joined.generation), (2, 2));
    assert_eq!((a_joined.members.len(), b_joined.members.len()), (2, 0));
    let b = b_joined.member;

    // Only the leader's word counts.
    let b_sync = rig.sync(SyncGroup { assignments: vec![(b.clone(), bytes(b"mine"))], ..asks(&b, 2) });
    let a_sync = rig.sync(SyncGroup { assignments: vec![(b.clone(), bytes(b"B"))], ..asks(&a, 2) });
    assert_eq!(rig.synced(a_sync), Ok(Bytes::new()));
    assert_eq!(rig.synced(b_sync), Ok(bytes(b"B")));

    let refused = |rig: &mut Rig, request| {
        let ticket = rig.sync(request);
        rig.synced(ticket).unwrap_err()
    };
    assert_eq!(refused(&mut rig, asks(&a, 9)), GroupError::IllegalGeneration);
    let wrong_name = SyncGroup { protocol_name: Some(s("zz")), ..asks(&a, 2) };
    assert_eq!(refused(&mut rig, wrong_name), GroupError::InconsistentProtocol);
    let wrong_type = SyncGroup { protocol_type: Some(s("zz")), ..asks(&a, 2) };
    assert_eq!(refused(&mut rig, wrong_type), GroupError::InconsistentProtocol);
    rig.join(newcomer());
    assert_eq!(refused(&mut rig, asks(&a, 2)), GroupError::RebalanceInProgress);
}

#[test]
fn g02_repeated_joins_do_not_raise_the_generation() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let first = rig.join(again(&a));
    let second = rig.join(again(&a));
    assert_eq!(rig.join_error(first).0, GroupError::RebalanceInProgress);
    let b_join = rig.join(again(&b));
    assert_eq!((rig.joined(second).generation, rig.joined(b_join).generation), (3, 3));
    // A lost answer: the same generation is told again.
    let lost = rig.join(again(&b));
    let told = rig.joined(lost);
    assert_eq!((told.generation, told.members.len()), (3, 0));
    let lost = rig.join(again(&a));
    let told = rig.joined(lost);
    assert_eq!((told.generation, told.members.len()), (3, 2));
}

#[test]
fn g02_a_follower_with_the_same_metadata_moves_nothing() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let same = rig.join(again(&b));
    assert_eq!(rig.joined(same).generation, 2);
    assert_eq!(rig.heartbeat(&a, 2), Ok(()));
    let other = JoinGroup { protocols: vec![(s("range"), subscription(&["u"]))], ..again(&b) };
    let other = rig.join(other);
    assert!(rig.waits(other));
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress));
}

#[test]
fn g03_vote_on_the_protocol() {
    let mut rig = Rig::new();
    let ticket = rig.join(newcomer());
    let a = rig.joined(ticket).member;
    let reversed = newcomer().protocols.into_iter().rev().collect();
    let b_join = rig.join(JoinGroup { protocols: reversed, ..newcomer() });
    let a_join = rig.join(again(&a));
    assert_eq!(&*rig.joined(a_join).protocol, "rr");
    assert_eq!(&*rig.joined(b_join).protocol, "rr");

    let refused = |rig: &mut Rig, request| {
        let ticket = rig.join(request);
        rig.join_error(ticket).0
    };
    let odd = vec![
        JoinGroup { protocols: Vec::new(), ..newcomer() },
        JoinGroup { protocols: vec![(s("foo"), Bytes::new())], ..newcomer() },
        JoinGroup { protocol_type: s("connect"), ..newcomer() },
        JoinGroup { protocol_type: s(""), ..newcomer() },
    ];
    for request in odd {
        assert_eq!(refused(&mut rig, request), GroupError::InconsistentProtocol);
    }
}

#[test]
fn g03_the_majority_decides_among_what_all_support() {
    let mut rig = Rig::with(GroupLimits { initial_rebalance_delay_ms: 100, ..GroupLimits::default() });
    let offer = |names: &[&str]| JoinGroup {
        protocols: names.iter().map(|name| (s(name), Bytes::new())).collect(),
        ..newcomer()
    };
    let tickets =
        [rig.join(offer(&["x", "a", "b"])), rig.join(offer(&["b", "a"])), rig.join(offer(&["a", "b"]))];
    rig.pass(10_000);
    for ticket in tickets {
        assert_eq!(&*rig.joined(ticket).protocol, "a");
    }
}

#[test]
fn g04_joined_and_silent() {
    let mut rig = Rig::new();
    let ticket = rig.join(JoinGroup { session_timeout_ms: 30_000, ..newcomer() });
    let a = rig.joined(ticket).member;
    let b_join = rig.join(JoinGroup { session_timeout_ms: 30_000, ..newcomer() });
    let a_join = rig.join(JoinGroup { session_timeout_ms: 30_000, ..again(&a) });
    rig.joined(a_join);
    rig.joined(b_join);
    let sync = rig.sync(asks(&a, 2));
    rig.synced(sync).unwrap();
    rig.pass(5_999);
    assert_eq!(rig.heartbeat(&a, 2), Ok(()));
    rig.pass(1);
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress));
    let a_join = rig.join(JoinGroup { session_timeout_ms: 30_000, ..again(&a) });
    let joined = rig.joined(a_join);
    assert_eq!((joined.generation, joined.members.len()), (3, 1));
}

#[test]
fn g04_a_silent_leader_gives_way() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let c_join = rig.join(newcomer());
    let b_join = rig.join(again(&b));
    rig.pass(6_000);
    let joined = rig.joined(b_join);
    let c = rig.joined(c_join).member;
    assert!(joined.leader == b || joined.leader == c);
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::UnknownMember));
    // Its followers wait for it, then not any longer.
    let (leader, follower) = if joined.leader == b { (b, c) } else { (c, b) };
    let sync = rig.sync(asks(&follower, 3));
    rig.pass(6_000);
    assert_eq!(rig.synced(sync), Err(GroupError::RebalanceInProgress));
    let alone = rig.join(again(&follower));
    assert_eq!(rig.joined(alone).leader, follower);
    assert_eq!(rig.heartbeat(&leader, 3), Err(GroupError::UnknownMember));
}

#[test]
fn the_first_generation_is_held_back_for_more_members() {
    let mut rig = Rig::with(GroupLimits { initial_rebalance_delay_ms: 3_000, ..GroupLimits::default() });
    let long = || JoinGroup { rebalance_timeout_ms: 10_000, ..newcomer() };
    let first = rig.join(long());
    rig.pass(2_000);
    let second = rig.join(long());
    rig.pass(1_000);
    assert!(rig.waits(first), "somebody came during the delay: it is prolonged");
    rig.pass(2_999);
    assert!(rig.waits(second));
    rig.pass(1);
    assert_eq!((rig.joined(first).generation, rig.joined(second).generation), (1, 1));
}

#[test]
fn the_first_generation_is_not_held_back_beyond_the_rebalance_timeout() {
    let mut rig = Rig::with(GroupLimits { initial_rebalance_delay_ms: 3_000, ..GroupLimits::default() });
    let first = rig.join(JoinGroup { rebalance_timeout_ms: 7_000, ..newcomer() });
    for _ in 0..6 {
        rig.pass(1_000);
        rig.join(JoinGroup { rebalance_timeout_ms: 7_000, ..newcomer() });
    }
    rig.pass(1_000);
    assert_eq!(rig.joined(first).members.len(), 7);
}

#[test]
fn a_member_whose_first_join_waits_too_long_is_dropped() {
    let mut rig = Rig::new();
    let ticket =
        rig.join(JoinGroup { rebalance_timeout_ms: 600_000, session_timeout_ms: 1_000_000, ..newcomer() });
    let a = rig.joined(ticket).member;
    let sync = rig.sync(asks(&a, 1));
    rig.synced(sync).unwrap();
    let b_join = rig.join(newcomer());
    rig.pass(5 * 60 * 1_000);
    assert_eq!(rig.join_error(b_join).0, GroupError::UnknownMember);
    assert_eq!(rig.describe(GROUP).unwrap().members.len(), 1);
}

#[test]
fn s21_a_full_group_takes_no_more() {
    let limits = GroupLimits { initial_rebalance_delay_ms: 0, members_max: 2, ..GroupLimits::default() };
    let mut rig = Rig::with(limits);
    let (a, b) = rig.stable_pair();
    let third = rig.join(newcomer());
    assert_eq!(rig.join_error(third), (GroupError::GroupMaxSize, s("")));
    assert_eq!(rig.heartbeat(&a, 2), Ok(()), "a refused one moves nothing");
    // While a rebalance gathers members, the last one finds no room.
    let a_join = rig.join(again(&a));
    let third = rig.join(newcomer());
    assert!(rig.waits(third));
    let b_join = rig.join(again(&b));
    assert_eq!(rig.join_error(b_join).0, GroupError::GroupMaxSize);
    assert_eq!((rig.joined(a_join).generation, rig.joined(third).generation), (3, 3));
}

#[test]
fn a_cancelled_ticket_is_never_answered_and_its_member_stays() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let lost = rig.join(again(&a));
    rig.partition.cancel(lost);
    let b_join = rig.join(again(&b));
    assert_eq!(rig.joined(b_join).generation, 3);
    assert!(rig.waits(lost));
    assert_eq!(rig.heartbeat(&a, 3), Ok(()));
}

#[test]
fn what_is_parked_is_told_to_try_again_when_the_log_fails() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let join = rig.join(again(&a));
    let b_join = rig.join(again(&b));
    rig.joined(b_join);
    rig.joined(join);
    let sync = rig.sync(asks(&b, 3));
    let Rig { partition, .. } = rig;
    let replies = partition.abandon();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, sync);
    assert!(matches!(replies[0].1, GroupReply::Synced(Err(GroupError::NotAvailable))));
}
