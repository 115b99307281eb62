//! A group id names one kind of group at a time; the codes are Apache Kafka 4.4's.

use super::*;

#[test]
fn a_share_group_is_no_classic_group() {
    let mut rig = Rig::new();
    rig.share("m", 0, &["t"]).unwrap();
    for _ in 0..2 {
        let join = rig.join(newcomer());
        assert_eq!(rig.join_error(join), (GroupError::InconsistentProtocol, s("")));
        let join = rig.join(again("x"));
        assert_eq!(rig.join_error(join), (GroupError::InconsistentProtocol, s("")));
        let sync = rig.sync(asks("m", 2));
        assert_eq!(rig.synced(sync), Err(GroupError::UnknownMember));
        assert_eq!(rig.heartbeat("m", 2), Err(GroupError::UnknownMember));
        assert_eq!(rig.leave(&[("m", None)]), Ok(vec![Err(GroupError::UnknownMember)]));
        assert_eq!(rig.commit(part("t", 0, 1, "")), Err(GroupError::GroupNotFound));
        assert_eq!(rig.fetch(GROUP, Some(&[("t", 0)])), [part("t", 0, -1, "")]);
        assert_eq!(rig.describe(GROUP).unwrap_err(), GroupError::GroupNotFound);
        let deleted =
            rig.call(GroupCommand::DeleteOffsets { group: s(GROUP), partitions: vec![(s("t"), 0)] });
        assert!(matches!(deleted, GroupReply::OffsetsDeleted(Err(GroupError::GroupNotFound))));
        // The same without members.
        let _ = rig.share("m", -1, &[]);
    }
    assert_eq!(rig.delete(GROUP), Ok(()));
    let join = rig.join(newcomer());
    assert_eq!(rig.joined(join).generation, 1);
    rig.restart();
    assert!(!rig.partition.is_share_group(GROUP));
}

#[test]
fn a_classic_group_is_no_share_group() {
    let mut rig = Rig::new();
    rig.commit(part("t", 0, 1, "")).unwrap();
    for epoch in [0, 3, -1] {
        assert_eq!(rig.share("m", epoch, &["t"]).unwrap_err(), GroupError::GroupNotFound);
    }
    assert_eq!(rig.describe_share(GROUP).unwrap_err(), GroupError::GroupNotFound);
    assert_eq!(rig.describe_share("").unwrap_err(), GroupError::InvalidGroupId);
    assert_eq!(rig.delete(GROUP), Ok(()));
    assert_eq!(rig.share("m", 0, &["t"]).unwrap().epoch, 2);
    rig.restart();
    assert!(rig.partition.is_share_group(GROUP));
}
