//! Committed offsets: commit, fetch, delete.

use super::*;

#[test]
fn g07_nothing_committed() {
    let mut rig = Rig::new();
    for asked in [("t", 0), ("t", 99), ("missing", 0)] {
        assert_eq!(rig.fetch(GROUP, Some(&[asked])), [part(asked.0, asked.1, -1, "")]);
    }
    assert_eq!(rig.fetch(GROUP, None), []);
    assert_eq!(rig.describe(GROUP).unwrap_err(), GroupError::GroupNotFound, "asking creates nothing");
}

#[test]
fn g08_what_is_committed_comes_back() {
    let mut rig = Rig::new();
    let first = CommittedPart { leader_epoch: 3, ..part("t", 0, 10, "x") };
    rig.commit(first.clone()).unwrap();
    assert_eq!(rig.fetch(GROUP, Some(&[("t", 0)])), std::slice::from_ref(&first));
    rig.restart();
    assert_eq!(rig.fetch(GROUP, None), [first]);
    rig.commit(part("t", 0, 5, "")).unwrap();
    rig.restart();
    assert_eq!(
        rig.fetch(GROUP, None),
        [part("t", 0, 5, "")],
        "going back is allowed, and the epoch is forgotten"
    );
}

#[test]
fn g08_metadata_has_a_bound_that_counts_as_kafka_does() {
    let mut rig = Rig::new();
    let at_bound = "é".repeat(4_096);
    let offsets = vec![
        part("t", 0, 1, &at_bound),
        part("t", 1, 1, &"x".repeat(4_097)),
        part("t", 2, 1, &"\u{1f600}".repeat(2_049)),
        part("u", 0, 1, ""),
    ];
    let too_large = Err(GroupError::MetadataTooLarge);
    assert_eq!(rig.commit_as("", -1, offsets), [Ok(()), too_large, too_large, Ok(())]);
    rig.restart();
    let fetched = rig.fetch(GROUP, None);
    assert_eq!(fetched, [part("t", 0, 1, &at_bound), part("u", 0, 1, "")]);
}

#[test]
fn g09_a_commit_needs_the_group_it_names() {
    let mut rig = Rig::new();
    let request = |tells_missing_group| OffsetCommit {
        group: s("nobody"),
        member: s("m"),
        generation: 4,
        instance: None,
        tells_missing_group,
        retention_ms: None,
        offsets: vec![part("t", 0, 1, ""), part("t", 1, 1, "")],
    };
    for (tells, error) in [(true, GroupError::GroupNotFound), (false, GroupError::IllegalGeneration)] {
        let GroupReply::Committed(outcomes) = rig.call(GroupCommand::Commit(request(tells))) else {
            panic!("a commit's answer")
        };
        assert_eq!(outcomes, [Err(error), Err(error)]);
    }
    assert!(rig.log.is_empty());
}

#[test]
fn a17_any_string_is_a_group() {
    let mut rig = Rig::new();
    let long = "x".repeat(32_000);
    for group in ["", "a/../b", ".", "/", "a\0b", "a\nb", " ", "G", "g", &long] {
        let request = OffsetCommit {
            group: s(group),
            member: s(""),
            generation: -1,
            instance: None,
            tells_missing_group: true,
            retention_ms: None,
            offsets: vec![part("t", 0, 1, group.get(..1).unwrap_or(""))],
        };
        let GroupReply::Committed(outcomes) = rig.call(GroupCommand::Commit(request)) else {
            panic!("a commit's answer")
        };
        assert_eq!(outcomes, [Ok(())]);
    }
    rig.restart();
    for group in ["", "a/../b", ".", "/", "a\0b", "a\nb", " ", "G", "g", &long] {
        assert_eq!(rig.fetch(group, None), [part("t", 0, 1, group.get(..1).unwrap_or(""))]);
        assert_eq!(rig.delete(group), Ok(()));
        assert_eq!(rig.fetch(group, None), []);
    }
    rig.restart();
    assert!(rig.partition.list().is_empty());
}

fn delete(
    rig: &mut Rig,
    group: &str,
    places: &[(&str, i32)],
) -> Result<Vec<Result<(), GroupError>>, GroupError> {
    let partitions = places.iter().map(|(topic, partition)| (s(topic), *partition)).collect();
    match rig.call(GroupCommand::DeleteOffsets { group: s(group), partitions }) {
        GroupReply::OffsetsDeleted(answer) => answer,
        other => panic!("not a delete's answer: {other:?}"),
    }
}

#[test]
fn g11_offset_delete() {
    let mut rig = Rig::new();
    assert_eq!(delete(&mut rig, GROUP, &[("t", 0)]), Err(GroupError::GroupNotFound));
    let (a, b) = rig.stable_pair();
    rig.commit_as(&a, 2, vec![part("t", 0, 7, ""), part("u", 0, 8, "")])[0].unwrap();
    // The members read t, and nobody reads u.
    assert_eq!(
        delete(&mut rig, GROUP, &[("t", 0), ("u", 0)]),
        Ok(vec![Err(GroupError::SubscribedToTopic), Ok(())])
    );
    assert_eq!(rig.fetch(GROUP, None), [part("t", 0, 7, "")]);
    rig.leave(&[(&a, None), (&b, None)]).unwrap();
    assert_eq!(delete(&mut rig, GROUP, &[("t", 0), ("t", 1)]), Ok(vec![Ok(()), Ok(())]));
    assert_eq!(rig.fetch(GROUP, None), []);
    rig.restart();
    assert_eq!(rig.fetch(GROUP, None), []);
}

#[test]
fn g11_offsets_of_live_groups_that_are_no_consumers_stay() {
    let mut rig = Rig::new();
    let ticket = rig.join(JoinGroup { protocol_type: s("connect"), ..newcomer() });
    rig.joined(ticket);
    assert_eq!(delete(&mut rig, GROUP, &[("t", 0)]), Err(GroupError::NonEmptyGroup));
}

#[test]
fn offsets_of_a_deleted_topic_go_and_do_not_come_back_with_its_name() {
    let mut rig = Rig::new();
    rig.commit(part("t", 0, 7, "")).unwrap();
    rig.commit(part("unknown here", 0, 8, "")).unwrap();
    rig.topics.topics.insert(s("t"), (TopicId([9; 16]), 3));
    assert_eq!(rig.fetch(GROUP, Some(&[("t", 0)]))[0].offset, -1, "it is another topic");
    assert_eq!(rig.fetch(GROUP, None), [part("unknown here", 0, 8, "")]);
    rig.topics_changed();
    rig.topics.topics.insert(s("t"), (TopicId([1; 16]), 3));
    rig.restart();
    assert_eq!(rig.fetch(GROUP, None), [part("unknown here", 0, 8, "")]);
    let before = rig.log.len();
    rig.topics.topics.clear();
    rig.topics_changed();
    assert_eq!(rig.log.len(), before, "an image without any topic is no image yet");
}
