//! `offsets.retention.minutes`: when offsets run out, and groups with them.

use super::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const RETENTION_MS: i64 = 7 * DAY_MS;
const CHECK_MS: i64 = 600_000;

#[test]
fn offsets_without_a_group_run_out_after_their_commit() {
    let mut rig = Rig::new();
    rig.commit(part("t", 0, 1, "")).unwrap();
    rig.pass(3 * DAY_MS);
    rig.commit(part("t", 1, 1, "")).unwrap();
    rig.pass(4 * DAY_MS + CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None), [part("t", 1, 1, "")]);
    rig.pass(3 * DAY_MS);
    assert_eq!(rig.fetch(GROUP, None), []);
    assert!(rig.partition.list().is_empty());
    rig.restart();
    assert!(rig.partition.list().is_empty());
}

#[test]
fn offsets_of_a_group_run_out_after_its_last_member_left() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    rig.commit_as(&a, 2, vec![part("t", 0, 1, "")])[0].unwrap();
    let stay = |rig: &mut Rig, ms: i64| {
        for _ in 0..ms / 5_000 {
            rig.pass(5_000);
            rig.heartbeat(&a, 2).unwrap();
            rig.heartbeat(&b, 2).unwrap();
        }
    };
    stay(&mut rig, 2 * CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None).len(), 1, "its members are reading the topic");
    rig.leave(&[(&a, None), (&b, None)]).unwrap();
    rig.pass(RETENTION_MS - CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None).len(), 1);
    rig.pass(2 * CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None), []);
    assert_eq!(rig.describe(GROUP).unwrap_err(), GroupError::GroupNotFound);
}

#[test]
fn offsets_of_a_stable_group_on_other_topics_run_out() {
    let limits = GroupLimits {
        initial_rebalance_delay_ms: 0,
        offsets_retention_ms: CHECK_MS,
        ..GroupLimits::default()
    };
    let mut rig = Rig::with(limits);
    let long = || JoinGroup { session_timeout_ms: 1_800_000, ..newcomer() };
    let ticket = rig.join(long());
    let a = rig.joined(ticket).member;
    let sync = rig.sync(asks(&a, 1));
    rig.synced(sync).unwrap();
    rig.commit_as(&a, 1, vec![part("t", 0, 1, ""), part("u", 0, 1, "")])[0].unwrap();
    rig.pass(CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None), [part("t", 0, 1, "")]);
    assert_eq!(rig.state(), "Stable");
}

#[test]
fn a_client_may_set_the_expiry_itself() {
    let mut rig = Rig::new();
    let request = |retention_ms, partition| OffsetCommit {
        group: s(GROUP),
        member: s(""),
        generation: -1,
        instance: None,
        tells_missing_group: false,
        retention_ms,
        offsets: vec![part("t", partition, 1, "")],
    };
    rig.call(GroupCommand::Commit(request(Some(2 * CHECK_MS), 0)));
    rig.call(GroupCommand::Commit(request(Some(30 * DAY_MS), 1)));
    rig.call(GroupCommand::Commit(request(None, 2)));
    rig.restart();
    rig.pass(CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None).len(), 3);
    rig.pass(CHECK_MS);
    assert_eq!(rig.fetch(GROUP, None).len(), 2);
    rig.pass(8 * DAY_MS);
    assert_eq!(rig.fetch(GROUP, None), [part("t", 1, 1, "")]);
}

#[test]
fn share_groups_do_not_run_out() {
    let mut rig = Rig::new();
    rig.share("m", 0, &["t"]).unwrap();
    rig.share("m", -1, &[]).unwrap();
    rig.pass(30 * DAY_MS);
    assert_eq!(rig.partition.list()[0].state, "Empty");
}
