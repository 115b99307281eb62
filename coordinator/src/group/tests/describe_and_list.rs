//! DescribeGroups, ListGroups and DeleteGroups.

use super::*;

#[test]
fn g10_describe() {
    let mut rig = Rig::new();
    assert_eq!(rig.describe(GROUP).unwrap_err(), GroupError::GroupNotFound);
    rig.commit(part("t", 0, 1, "")).unwrap();
    let offsets_only = rig.describe(GROUP).unwrap();
    assert_eq!((offsets_only.state, &*offsets_only.protocol_type), ("Empty", ""));

    let (a, b) = rig.stable_pair();
    let stable = rig.describe(GROUP).unwrap();
    assert_eq!((stable.state, &*stable.protocol_type, &*stable.protocol), ("Stable", "consumer", "range"));
    let of_a = stable.members.iter().find(|member| member.member == a).unwrap();
    assert_eq!((&*of_a.client_id, &*of_a.client_host), ("client", "/127.0.0.1"));
    assert_eq!((&of_a.metadata, &of_a.assignment), (&subscription(&["t"]), &bytes(b"A")));

    rig.join(JoinGroup { protocols: vec![(s("rr"), Bytes::new())], ..again(&b) });
    let preparing = rig.describe(GROUP).unwrap();
    assert_eq!((preparing.state, &*preparing.protocol), ("PreparingRebalance", ""));
    assert!(
        preparing.members.iter().all(|member| member.metadata.is_empty() && member.assignment.is_empty())
    );
    rig.join(again(&a));
    assert_eq!(rig.state(), "CompletingRebalance");
}

#[test]
fn g16_list() {
    let mut rig = Rig::new();
    assert!(rig.partition.list().is_empty());
    let ticket = rig.join(JoinGroup { group: s("classic"), ..newcomer() });
    rig.joined(ticket);
    rig.share_in("share", "m", 0, &["t"]).unwrap();
    rig.commit(part("t", 0, 1, "")).unwrap();
    let GroupReply::Listed(Ok(listed)) = rig.call(GroupCommand::List) else { panic!("a list") };
    let rows: Vec<_> =
        listed.iter().map(|group| (&*group.group, &*group.protocol_type, group.state, group.kind)).collect();
    assert_eq!(
        rows,
        [
            ("classic", "consumer", "CompletingRebalance", "classic"),
            ("g", "", "Empty", "classic"),
            ("share", "share", "Stable", "share"),
        ]
    );
}

#[test]
fn only_empty_groups_can_be_deleted() {
    let mut rig = Rig::new();
    assert_eq!(rig.delete(GROUP), Err(GroupError::GroupNotFound));
    let (a, b) = rig.stable_pair();
    rig.commit_as(&a, 2, vec![part("t", 0, 1, "")])[0].unwrap();
    assert_eq!(rig.delete(GROUP), Err(GroupError::NonEmptyGroup));
    rig.leave(&[(&a, None), (&b, None)]).unwrap();
    assert_eq!(rig.delete(GROUP), Ok(()));
    assert_eq!(rig.fetch(GROUP, None), []);
    rig.restart();
    assert!(rig.partition.list().is_empty());
    assert_eq!(rig.fetch(GROUP, None), []);
}
