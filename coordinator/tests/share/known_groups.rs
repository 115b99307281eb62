//! Which groups are known: those that have members or share-partitions, and no name that was only asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator::command::{ConnectionId, Fact, ShareFetch, StandaloneFetch};
use coordinator::reply::Reply;
use coordinator::share::admin::{AlterKey, DescribeKeys, KeyAction, KeyRef, ResetOffsets, ResetTo};
use coordinator::share::{LeftBy, ShareCommand};
use records::ids::{KeyHash, Offset};

use crate::common::{World, group, key_config, none_config, offsets, partition, want};

fn known(w: &World) -> Vec<Arc<str>> {
    w.machine.group_views(&w.table).map(|(name, _)| name).collect()
}

fn ghost() -> Arc<str> {
    Arc::from("ghost")
}

fn ghost_fetch(epoch: i32) -> ShareFetch {
    ShareFetch {
        connection: ConnectionId(77),
        group: ghost(),
        member: Arc::from("A"),
        epoch,
        wait_max_ms: 0,
        bytes_min: 1,
        bytes_max: 1,
        records_max: 1,
        batch_size: 1,
        strict: true,
        renew: false,
        parts: Vec::new(),
        forgotten: Vec::new(),
        key_share: None,
    }
}

#[test]
fn asking_about_a_group_that_is_none_makes_none() {
    let mut w = World::keyed();
    let key = KeyRef::Key(KeyHash(1));
    let park = AlterKey { group: ghost(), partition: partition(0), key, action: KeyAction::Park };
    let describe = DescribeKeys {
        group: ghost(),
        partition: partition(0),
        top: 1,
        questions: vec![KeyRef::Key(KeyHash(1))],
    };
    let elsewhere = ResetOffsets { group: ghost(), parts: vec![(partition(9), ResetTo::Latest)] };
    let standalone = StandaloneFetch { fetch: ghost_fetch(0), ranges: Vec::new() };
    for command in [
        ShareCommand::DescribeOffsets { group: ghost(), partitions: None },
        ShareCommand::DescribeOffsets { group: ghost(), partitions: Some(vec![partition(0)]) },
        ShareCommand::DeleteOffsets { group: ghost(), partitions: vec![partition(0)] },
        ShareCommand::DescribeKeys(describe),
        ShareCommand::AlterKey(park),
        ShareCommand::ResetOffsets(elsewhere),
        ShareCommand::Fetch(ghost_fetch(3)),
        ShareCommand::StandaloneFetch(standalone),
        ShareCommand::DeleteStates { group: ghost() },
        ShareCommand::DeleteGroup { group: ghost() },
    ] {
        let words = format!("{command:?}");
        let ticket = w.command(command);
        assert!(w.replies.contains_key(&ticket), "{words} is answered");
        assert_eq!(known(&w), [] as [Arc<str>; 0], "{words}");
        assert_eq!(w.machine.groups_in_memory(), 0, "{words}");
    }
    w.machine.members(&ghost(), BTreeSet::new());
    w.grew(0);
    assert_eq!(w.machine.groups_in_memory(), 0, "that a group has no members makes none");
}

#[test]
fn settings_alone_make_no_group_and_hold_when_there_is_one() {
    let mut w = World::new(none_config());
    assert_eq!(w.machine.groups_in_memory(), 0);
    w.fact(Fact::ShareConfigured(group(), Arc::new(key_config())));
    assert_eq!(w.machine.groups_in_memory(), 0);
    w.log("a a");
    assert_eq!(offsets(&w.fetch("A", 1)), [0]);
    assert_eq!(w.fetch("B", 1), [], "the group keeps order, as its settings say");
    assert_eq!(known(&w), [group()]);
}

#[test]
fn a_deleted_group_is_known_no_more() {
    for connected in [false, true] {
        let mut w = World::keyed();
        w.log("a b");
        w.live(&["A"]);
        assert_eq!(offsets(&w.fetch("A", 1)), [0]);
        w.left("A", LeftBy::SessionTimeout);
        w.live(&[]);
        if !connected {
            w.lose("A");
        }
        assert_eq!(known(&w), [group()], "its share-partition is in memory");
        let ticket = w.command(ShareCommand::DeleteGroup { group: group() });
        assert!(matches!(w.replies.remove(&ticket), Some(Reply::GroupDeleted(Ok(())))));
        assert_eq!(known(&w), [] as [Arc<str>; 0]);
        // Until what was heard of its members is forgotten.
        w.lose("A");
        w.pass_ms(120_000);
        assert_eq!(w.machine.groups_in_memory(), 0, "connected: {connected}");
        w.restart(0);
        assert_eq!(known(&w), [] as [Arc<str>; 0]);
        w.reopen("A");
        assert_eq!(offsets(&w.fetch_with("A", &want(10)).unwrap()), [0, 1], "it begins as a new one");
    }
}

#[test]
fn a_group_without_share_partitions_and_members_is_forgotten() {
    let mut w = World::keyed();
    w.log("a");
    w.live(&["A"]);
    assert_eq!(known(&w), [group()], "it has a member");
    assert_eq!(offsets(&w.fetch("A", 1)), [0]);
    w.live(&[]);
    w.left("A", LeftBy::SessionTimeout);
    w.lose("A");
    assert_eq!(known(&w), [group()], "it has a share-partition");
    w.fact(Fact::PartitionDeleted(partition(0)));
    assert_eq!(known(&w), [] as [Arc<str>; 0]);
    w.pass_ms(120_000);
    assert_eq!(w.machine.groups_in_memory(), 0);
}

#[test]
fn a_group_is_described_by_what_is_stored_of_it() {
    let mut w = World::keyed();
    w.log("a b");
    assert_eq!(offsets(&w.fetch("A", 1)), [0]);
    w.restart(0);
    assert_eq!(known(&w), [] as [Arc<str>; 0]);
    let ticket = w.command(ShareCommand::DescribeOffsets { group: group(), partitions: None });
    let Some(Reply::ShareOffsets(told)) = w.replies.remove(&ticket) else { panic!("it is answered") };
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].1.unwrap().start, Some(Offset(0)));
    assert_eq!(known(&w), [group()]);
}
