//! G06: ids that are handed out first and used then.

use super::*;

fn careful() -> JoinGroup {
    JoinGroup { requires_known_member: true, ..newcomer() }
}

fn handed_out(rig: &mut Rig) -> Arc<str> {
    let ticket = rig.join(careful());
    let (error, id) = rig.join_error(ticket);
    assert_eq!(error, GroupError::MemberIdRequired);
    assert!(id.starts_with("client-"));
    assert_eq!(id.len(), "client-".len() + 36);
    id
}

#[test]
fn g06_two_steps() {
    let mut rig = Rig::new();
    let id = handed_out(&mut rig);
    let ticket = rig.join(JoinGroup { member: id.clone(), ..careful() });
    let joined = rig.joined(ticket);
    assert_eq!((joined.member, joined.generation), (id, 1));
}

#[test]
fn g06_an_id_never_used_is_no_member() {
    let mut rig = Rig::new();
    let id = handed_out(&mut rig);
    let described = rig.describe(GROUP).unwrap();
    assert_eq!((described.state, described.members.len()), ("Empty", 0));
    rig.pass(6_000);
    let ticket = rig.join(JoinGroup { member: id, ..careful() });
    assert_eq!(rig.join_error(ticket).0, GroupError::UnknownMember, "it ran out with its session timeout");
    handed_out(&mut rig);
    assert_eq!(rig.delete(GROUP), Ok(()));
    assert_eq!(rig.describe(GROUP).unwrap_err(), GroupError::GroupNotFound);
    rig.pass(60_000);
}

#[test]
fn g06_a_rebalance_waits_for_an_id_that_is_out_but_not_longer_than_its_session() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    handed_out(&mut rig);
    let tickets = [rig.join(again(&a)), rig.join(again(&b))];
    assert!(rig.waits(tickets[1]));
    rig.pass(6_000);
    for ticket in tickets {
        assert_eq!(rig.joined(ticket).generation, 3);
    }
}

#[test]
fn g06_an_id_that_is_out_can_leave() {
    let mut rig = Rig::new();
    let (a, b) = rig.stable_pair();
    let id = handed_out(&mut rig);
    let tickets = [rig.join(again(&a)), rig.join(again(&b))];
    assert_eq!(rig.leave(&[(&id, None)]), Ok(vec![Ok(())]));
    for ticket in tickets {
        assert_eq!(rig.joined(ticket).generation, 3);
    }
}

#[test]
fn ids_that_nobody_uses_are_bounded() {
    let mut rig = Rig::new();
    for _ in 0..10_000 {
        handed_out(&mut rig);
    }
    let ticket = rig.join(careful());
    assert_eq!(rig.join_error(ticket).0, GroupError::GroupMaxSize);
    rig.pass(6_000);
    handed_out(&mut rig);
}

#[test]
fn g06_an_id_that_was_handed_out_does_not_survive_a_restart_and_its_group_does() {
    let mut rig = Rig::new();
    let id = handed_out(&mut rig);
    rig.restart();
    assert_eq!(rig.state(), "Empty");
    let ticket = rig.join(JoinGroup { member: id, ..careful() });
    assert_eq!(rig.join_error(ticket).0, GroupError::UnknownMember);
}
