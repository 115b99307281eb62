//! ShareGroupHeartbeat and ShareGroupDescribe.

use super::*;

fn all_of_t() -> BTreeMap<TopicId, Vec<i32>> {
    BTreeMap::from([(TopicId([1; 16]), vec![0, 1, 2])])
}

#[test]
fn s19_heartbeats() {
    let mut rig = Rig::new();
    assert_eq!(rig.share("m", 0, &[]).unwrap_err(), GroupError::InvalidRequest, "epoch 0 names topics");
    assert_eq!(rig.share("", 0, &["t"]).unwrap_err(), GroupError::InvalidRequest);
    assert_eq!(rig.share("m", -2, &["t"]).unwrap_err(), GroupError::InvalidRequest);
    assert_eq!(rig.share("m", 5, &[]).unwrap_err(), GroupError::GroupNotFound);
    assert_eq!(rig.share("m", -1, &[]).unwrap_err(), GroupError::GroupNotFound);
    assert!(rig.log.is_empty() && rig.partition.list().is_empty());

    let joined = rig.share("m", 0, &["t"]).unwrap();
    assert_eq!((joined.epoch, joined.heartbeat_interval_ms), (2, 5_000));
    assert_eq!(rig.share("m", joined.epoch + 5, &[]).unwrap_err(), GroupError::FencedMemberEpoch);
    assert_eq!(rig.share("m", joined.epoch - 1, &[]).unwrap_err(), GroupError::FencedMemberEpoch);
    assert_eq!(rig.share("other", 2, &[]).unwrap_err(), GroupError::UnknownMember);
    let left = rig.share("m", -1, &[]).unwrap();
    assert_eq!((&*left.member, left.epoch, left.heartbeat_interval_ms, left.assignment), ("m", -1, 0, None));
    assert_eq!(rig.share("m", -1, &[]).unwrap_err(), GroupError::UnknownMember);
}

#[test]
fn the_first_heartbeat_carries_the_assignment() {
    for order in [ShareOrder::None, ShareOrder::Key] {
        let mut rig = Rig::new();
        rig.set_order(GROUP, order);
        let joined = rig.share("m", 0, &["t"]).unwrap();
        assert_eq!(joined.assignment, Some(all_of_t()));
        assert_eq!(rig.share("m", joined.epoch, &[]).unwrap().assignment, None, "nothing changed");
    }
}

#[test]
fn with_keys_in_order_everyone_gets_everything() {
    let mut rig = Rig::new();
    rig.set_order(GROUP, ShareOrder::Key);
    for member in ["a", "b", "c", "d", "e"] {
        assert_eq!(rig.share(member, 0, &["t"]).unwrap().assignment, Some(all_of_t()));
    }
    let again = rig.share("a", 2, &[]).unwrap();
    assert_eq!((again.epoch, again.assignment), (6, None), "its epoch grew, its assignment did not change");
    assert_eq!(rig.describe_share(GROUP).unwrap().assignor, "key");
}

#[test]
fn an_answer_that_was_lost_is_told_again() {
    let mut rig = Rig::new();
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("b", 0, &["t"]).unwrap();
    let first = rig.share("a", 2, &[]).unwrap();
    assert_eq!(first.epoch, 3);
    assert!(first.assignment.is_some());
    let second = rig.share("a", 2, &[]).unwrap();
    assert_eq!((second.epoch, &second.assignment), (3, &first.assignment));
    assert_eq!(rig.share("a", 3, &[]).unwrap().assignment, None);
    assert_eq!(
        rig.share("a", 0, &["t"]).unwrap().assignment,
        first.assignment,
        "joining again changes nothing"
    );
    assert_eq!(rig.describe_share(GROUP).unwrap().epoch, 3);
}

#[test]
fn a_change_of_topics_or_settings_raises_the_epoch() {
    let mut rig = Rig::new();
    rig.share("m", 0, &["t"]).unwrap();
    rig.topics.topics.insert(s("other"), (TopicId([3; 16]), 8));
    rig.topics_changed();
    assert_eq!(rig.describe_share(GROUP).unwrap().epoch, 2, "nobody reads that one");
    rig.topics.topics.insert(s("t"), (TopicId([1; 16]), 4));
    rig.topics_changed();
    assert_eq!(rig.describe_share(GROUP).unwrap().epoch, 3);
    let told = rig.share("m", 2, &[]).unwrap();
    assert_eq!(told.assignment, Some(BTreeMap::from([(TopicId([1; 16]), vec![0, 1, 2, 3])])));

    let resubscribed = rig.share("m", 3, &["t", "u", "not there yet"]).unwrap();
    assert_eq!(resubscribed.epoch, 4);
    assert_eq!(resubscribed.assignment.unwrap().len(), 2);
    rig.topics.topics.insert(s("not there yet"), (TopicId([4; 16]), 1));
    rig.topics_changed();
    assert_eq!(rig.share("m", 4, &[]).unwrap().assignment.unwrap().len(), 3);
    rig.topics.topics.remove("u");
    assert_eq!(rig.share("m", 5, &[]).unwrap().assignment.unwrap().len(), 2, "a heartbeat notices by itself");

    rig.set_order(GROUP, ShareOrder::Key);
    assert_eq!(rig.share("m", 6, &[]).unwrap().epoch, 7);
}

#[test]
fn sessions_run_out_as_configured() {
    let mut rig = Rig::new();
    let config =
        ShareConfig { session_timeout_ms: 50_000, heartbeat_interval_ms: 7_000, ..ShareConfig::default() };
    rig.configs.insert(s(GROUP), Arc::new(config));
    assert_eq!(rig.share("m", 0, &["t"]).unwrap().heartbeat_interval_ms, 7_000);
    rig.pass(49_999);
    rig.share("m", 2, &[]).unwrap();
    rig.pass(49_999);
    assert_eq!(rig.partition.share_members(GROUP).count(), 1);
    rig.pass(1);
    assert_eq!(rig.partition.share_members(GROUP).count(), 0);
    assert_eq!(rig.share("m", 2, &[]).unwrap_err(), GroupError::UnknownMember);
    assert_eq!(rig.events, [(ShareChange::Joined, s("m")), (ShareChange::TimedOut, s("m"))]);
}

#[test]
fn a_group_without_settings_has_the_brokers() {
    let mut rig = Rig::new();
    rig.share_default.heartbeat_interval_ms = 9_000;
    assert_eq!(rig.share("m", 0, &["t"]).unwrap().heartbeat_interval_ms, 9_000);
}

#[test]
fn the_share_machine_hears_who_comes_and_goes() {
    let mut rig = Rig::new();
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("b", 0, &["t"]).unwrap();
    rig.share("a", -1, &[]).unwrap();
    let expected =
        [(ShareChange::Joined, s("a")), (ShareChange::Joined, s("b")), (ShareChange::Left, s("a"))];
    assert_eq!(rig.events, expected);
    rig.events.clear();
    rig.restart();
    assert_eq!(rig.events, [(ShareChange::Joined, s("b"))]);
}

#[test]
fn s21_a_full_share_group_takes_no_more() {
    let mut rig = Rig::with(GroupLimits { share_members_max: 2, ..GroupLimits::default() });
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("b", 0, &["t"]).unwrap();
    assert_eq!(rig.share("c", 0, &["t"]).unwrap_err(), GroupError::GroupMaxSize);
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("a", -1, &[]).unwrap();
    rig.share("c", 0, &["t"]).unwrap();
}

#[test]
fn membership_survives_a_restart_and_sessions_start_anew() {
    let mut rig = Rig::new();
    rig.share("a", 0, &["t"]).unwrap();
    rig.share("b", 0, &["t"]).unwrap();
    rig.share("a", 2, &[]).unwrap();
    rig.pass(40_000);
    rig.restart();
    let described = rig.describe_share(GROUP).unwrap();
    assert_eq!((described.state, described.epoch, described.assignment_epoch), ("Stable", 3, 3));
    assert_eq!(described.members.len(), 2);
    rig.pass(40_000);
    let kept = rig.share("a", 3, &[]).unwrap();
    assert_eq!((kept.epoch, kept.assignment), (3, None), "its session and its epoch go on");
    rig.pass(20_000);
    assert_eq!(rig.partition.share_members(GROUP).cloned().collect::<Vec<_>>(), [s("a")]);
}

#[test]
fn describe_shows_members_and_their_assignments() {
    let mut rig = Rig::new();
    let request = ShareHeartbeat {
        group: s(GROUP),
        member: s("m"),
        epoch: 0,
        rack: Some(s("r1")),
        topics: Some(vec![s("u"), s("t"), s("missing")]),
        client_id: s("c"),
        client_host: s("/10.0.0.1"),
    };
    rig.call(GroupCommand::ShareHeartbeat(request));
    let group = rig.describe_share(GROUP).unwrap();
    assert_eq!(
        (group.state, group.epoch, group.assignment_epoch, group.assignor),
        ("Stable", 2, 2, "simple")
    );
    let member = &group.members[0];
    assert_eq!((&*member.member, member.rack.as_deref(), member.epoch), ("m", Some("r1"), 2));
    assert_eq!((&*member.client_id, &*member.client_host), ("c", "/10.0.0.1"));
    assert_eq!(member.topics, [s("missing"), s("t"), s("u")]);
    let expected = [(TopicId([1; 16]), s("t"), vec![0, 1, 2]), (TopicId([2; 16]), s("u"), vec![0])];
    assert_eq!(member.assignment, expected);

    rig.share("m", -1, &[]).unwrap();
    let empty = rig.describe_share(GROUP).unwrap();
    assert_eq!((empty.state, empty.epoch, empty.assignment_epoch, empty.members.len()), ("Empty", 3, 3, 0));
    assert_eq!(rig.describe_share("nobody").unwrap_err(), GroupError::GroupNotFound);
}

#[test]
fn only_an_empty_share_group_can_be_deleted() {
    let mut rig = Rig::new();
    rig.share("m", 0, &["t"]).unwrap();
    assert_eq!(rig.delete(GROUP), Err(GroupError::NonEmptyGroup));
    rig.share("m", -1, &[]).unwrap();
    assert_eq!(rig.delete(GROUP), Ok(()));
    rig.restart();
    assert!(rig.partition.list().is_empty());
    rig.pass(120_000);
}
