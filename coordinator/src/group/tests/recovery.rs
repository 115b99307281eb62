//! What a restart brings back, and from which logs.

use super::*;

#[test]
fn a_stable_group_goes_on_where_it_was() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let before = format!("{:?}", rig.describe(GROUP));
    rig.pass(4_000);
    rig.restart();
    assert_eq!(format!("{:?}", rig.describe(GROUP)), before);
    rig.pass(5_000);
    assert_eq!(rig.heartbeat(&a, 2), Ok(()), "its session starts anew");
    assert_eq!(rig.commit_as(&b, 2, vec![part("t", 0, 1, "")]), [Ok(())]);
    let sync = rig.sync(asks(&a, 2));
    assert_eq!(rig.synced(sync), Ok(bytes(b"A")));
    rig.pass(6_000);
    assert_eq!(rig.heartbeat(&b, 2), Err(GroupError::UnknownMember));
}

#[test]
fn a_rebalance_that_a_restart_ended_starts_from_the_generation_before() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let joins = [rig.join(again(&a)), rig.join(again(&b))];
    assert_eq!(rig.joined(joins[0]).generation, 3);
    rig.restart();
    assert_eq!(rig.state(), "Stable");
    assert_eq!(rig.heartbeat(&a, 3), Err(GroupError::IllegalGeneration));
    let rejoin = JoinGroup { protocols: vec![(s("range"), subscription(&["t"]))], ..again(&a) };
    let a_join = rig.join(rejoin);
    let b_join = rig.join(again(&b));
    assert_eq!((rig.joined(a_join).generation, rig.joined(b_join).generation), (3, 3));
}

#[test]
fn a_group_that_is_larger_than_it_may_be_now_rebalances() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    rig.limits.members_max = 1;
    rig.restart();
    assert_eq!(rig.heartbeat(&a, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(rig.commit_as(&a, 2, vec![part("t", 0, 1, "")]), [Ok(())], "there is time to commit");
    let a_join = rig.join(again(&a));
    let b_join = rig.join(again(&b));
    assert_eq!(rig.join_error(b_join).0, GroupError::GroupMaxSize);
    assert_eq!(rig.joined(a_join).members.len(), 1);
}

#[test]
fn one_batch_or_many_make_no_difference() {
    let mut rig = Rig::new();
    rig.stable_pair();
    rig.commit_as("", -1, vec![part("t", 0, 1, "")]);
    rig.share_in("s", "m", 0, &["t", "u"]).unwrap();
    rig.share_in("s", "n", 0, &["t"]).unwrap();
    let mut whole = GroupPartition::new(rig.limits.clone());
    whole.replay(&batch(&rig.log, 0));
    let single = replayed(&rig.log, &rig.limits);
    assert_eq!(format!("{whole:?}"), format!("{single:?}"));
}

#[test]
fn a_compacted_log_tells_the_same() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    for offset in 0..5 {
        rig.commit_as(&a, 2, vec![part("t", 0, offset, ""), part("u", 0, offset, "")]);
    }
    rig.call(GroupCommand::DeleteOffsets { group: s(GROUP), partitions: vec![(s("u"), 0)] });
    rig.leave(&[(&b, None)]).unwrap();
    let a_join = rig.join(again(&a));
    rig.joined(a_join);
    let sync = rig.sync(asks(&a, 3));
    rig.synced(sync).unwrap();
    for group in ["s", "gone"] {
        rig.share_in(group, "m", 0, &["t"]).unwrap();
        rig.share_in(group, "n", 0, &["t", "u"]).unwrap();
        rig.share_in(group, "m", 2, &["u"]).unwrap();
        rig.share_in(group, "n", -1, &[]).unwrap();
    }
    rig.share_in("gone", "m", -1, &[]).unwrap();
    rig.delete("gone").unwrap();
    rig.commit_as("", -1, vec![part("t", 0, 9, "")]);

    let last: BTreeMap<_, _> = rig.log.iter().enumerate().map(|(index, (key, _))| (key, index)).collect();
    let kept = |drop_tombstones: bool| -> Vec<_> {
        let is_kept = |index: usize, key: &Bytes, value: &Option<Bytes>| {
            last[key] == index && (value.is_some() || !drop_tombstones)
        };
        let log = rig.log.iter().enumerate().filter(|(index, (key, value))| is_kept(*index, key, value));
        log.map(|(_, record)| record.clone()).collect()
    };
    let full = format!("{:?}", replayed(&rig.log, &rig.limits));
    assert_eq!(format!("{:?}", replayed(&kept(false), &rig.limits)), full);
    assert_eq!(format!("{:?}", replayed(&kept(true), &rig.limits)), full);
}

#[test]
fn a_damaged_record_keeps_nobody_else_away() {
    let mut rig = Rig::new();
    rig.commit(part("t", 0, 1, "")).unwrap();
    rig.log.push((bytes(b"\0\x01\0"), Some(bytes(b"?"))));
    rig.log.push((rig.log[0].0.clone(), Some(bytes(b"\0\x63"))));
    rig.commit(part("t", 1, 2, "")).unwrap();
    rig.restart();
    assert_eq!(rig.fetch(GROUP, None), [part("t", 0, 1, ""), part("t", 1, 2, "")]);
}

#[test]
fn offsets_of_a_transaction_count_from_its_commit() {
    let mut rig = Rig::new();
    for (partition, offset) in [(0, 10), (1, 11)] {
        rig.commit(part("t", partition, offset, "")).unwrap();
    }
    let transactional = |index: usize, producer: i64| {
        let mut builder =
            BatchBuilder::new(Codec::None, TimestampType::Create).producer(producer, 0, 0).transactional();
        let (key, value) = &rig.log[index];
        builder.append(WALL_MS, Some(key), value.as_deref(), &[]);
        builder.build(Offset(index as i64), 0)
    };
    let marker = |kind: u8, producer: i64| {
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create)
            .producer(producer, 0, -1)
            .transactional()
            .control();
        builder.append(WALL_MS, Some(&[0, 0, 0, kind]), Some(&[0; 6]), &[]);
        builder.build(Offset(9), 0)
    };
    let mut partition = GroupPartition::new(rig.limits.clone());
    partition.replay(&transactional(0, 7));
    partition.replay(&transactional(1, 8));
    assert!(partition.list().is_empty());
    partition.replay(&marker(1, 7));
    partition.replay(&marker(0, 8));
    partition.loaded(rig.now);
    rig.partition = partition;
    assert_eq!(rig.fetch(GROUP, None), [part("t", 0, 10, "")]);
}

#[test]
fn a_first_generation_that_a_restart_ended_left_an_empty_group() {
    let mut rig = Rig::new();
    let ticket = rig.join(newcomer());
    rig.joined(ticket);
    rig.restart();
    let group = rig.describe(GROUP).unwrap();
    assert_eq!((group.state, &*group.protocol_type, group.members.len()), ("Empty", "", 0));
}

#[test]
fn r18_commits_beyond_the_end_of_their_log_are_lowered() {
    let mut rig = Rig::new();
    let commits = vec![
        CommittedPart { leader_epoch: 4, ..part("t", 0, 10, "x") },
        part("t", 1, 5, ""),
        part("u", 0, 9, ""),
    ];
    rig.commit_as("", -1, commits);
    let decision = rig.partition.lower_offsets(|topic, _| (&**topic == "t").then_some(5));
    assert_eq!(decision.records.len(), 1, "only what is beyond the end is written");
    rig.take(decision);
    rig.restart();
    let lowered = CommittedPart { leader_epoch: 4, ..part("t", 0, 5, "x") };
    assert_eq!(rig.fetch(GROUP, None), [lowered, part("t", 1, 5, ""), part("u", 0, 9, "")]);
}
