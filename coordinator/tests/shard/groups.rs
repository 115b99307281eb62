//! Groups in the shard: when their answers leave, and what a slow or broken log does to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::command::{Acks, Command, Fact, PartitionRole, Produce, Ticket, TopicImage};
use coordinator::group::{
    CommittedPart, GroupCommand, GroupError, GroupReply, JoinGroup, OffsetCommit, ShareHeartbeat,
};
use coordinator::io::Submission;
use coordinator::reply::{Effect, Reply};
use proptest::prelude::*;
use records::ids::{Offset, PartitionId, TopicId};

use crate::log::Log;
use crate::world::{Lane, World, partition};

const OFFSETS: TopicId = TopicId([9; 16]);
const COORDINATORS: i32 = 2;
const SYNC: fn(&Submission) -> bool = |submission| matches!(submission, Submission::Sync { .. });

fn coordinator(index: i32) -> PartitionId {
    PartitionId { topic: OFFSETS, index }
}

fn image() -> Arc<TopicImage> {
    let topics = [("__consumer_offsets", OFFSETS, COORDINATORS), ("orders", partition(0).topic, 4)];
    let topics = topics.into_iter().map(|(name, id, count)| (Arc::from(name), (id, count))).collect();
    Arc::new(TopicImage { topics, ..TopicImage::default() })
}

fn world() -> World {
    restarted(BTreeMap::new())
}

/// A shard that finds these logs.
fn restarted(mut logs: BTreeMap<PartitionId, Log>) -> World {
    let mut world = World::new();
    world.fact(Fact::Topics(image()));
    for index in 0..COORDINATORS {
        let log = logs.remove(&coordinator(index)).unwrap_or_default();
        world.open_as(coordinator(index), PartitionRole::ConsumerOffsets(index), log);
    }
    world
}

fn group(world: &mut World, command: GroupCommand) -> Ticket {
    world.command(Command::Group(command))
}

fn commit(group: &str, offset: i64) -> GroupCommand {
    let part =
        CommittedPart { topic: "orders".into(), partition: 0, offset, leader_epoch: 3, metadata: "x".into() };
    GroupCommand::Commit(OffsetCommit {
        group: group.into(),
        member: "".into(),
        generation: -1,
        instance: None,
        tells_missing_group: true,
        retention_ms: None,
        offsets: vec![part],
    })
}

fn fetch_offsets(group: &str) -> GroupCommand {
    let partitions = Some(vec![("orders".into(), 0)]);
    GroupCommand::FetchOffsets { group: group.into(), member: None, partitions }
}

fn join(group: &str) -> GroupCommand {
    GroupCommand::Join(JoinGroup {
        group: group.into(),
        member: "".into(),
        instance: None,
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::new())],
        requires_known_member: false,
        supports_skip_assignment: false,
        reason: None,
        random: [1; 16],
    })
}

fn reply(world: &World, ticket: Ticket) -> Option<&GroupReply> {
    match world.replies.get(&ticket)? {
        Reply::Group(reply) => Some(reply),
        other => panic!("{other:?}"),
    }
}

fn committed(world: &World, ticket: Ticket) -> Option<Result<(), GroupError>> {
    match reply(world, ticket)? {
        GroupReply::Committed(offsets) => Some(offsets[0]),
        other => panic!("{other:?}"),
    }
}

fn offset(world: &World, ticket: Ticket) -> Option<Result<i64, GroupError>> {
    match reply(world, ticket)? {
        GroupReply::Offsets(offsets) => {
            Some(offsets.as_ref().map(|parts| parts[0].offset).map_err(|error| *error))
        }
        other => panic!("{other:?}"),
    }
}

fn ask_offset(world: &mut World, name: &str) -> Result<i64, GroupError> {
    let ticket = group(world, fetch_offsets(name));
    world.drain();
    offset(world, ticket).expect("answered")
}

#[test]
fn g08_a_commit_is_answered_when_written_and_synced_within_100_ms() {
    let mut world = world();
    let ticket = group(&mut world, commit("g", 7));
    assert_eq!(committed(&world, ticket), None, "not before it is written");
    world.drain();
    assert_eq!(committed(&world, ticket), Some(Ok(())));
    assert_eq!(world.count(SYNC), 0, "it does not wait for the disk");
    world.pass(100);
    assert_eq!(world.count(SYNC), 1);
    world.drain();
    assert!(world.logs.values().all(|log| log.synced == log.facts.end));
    world.pass(1_000);
    assert_eq!(world.count(SYNC), 1, "nothing new, nothing to sync");
    // Another broker on the same log knows it.
    let mut again = restarted(std::mem::take(&mut world.logs));
    again.drain();
    assert_eq!(ask_offset(&mut again, "g"), Ok(7));
}

#[test]
fn r16_many_commits_share_their_syncs() {
    let mut world = world();
    for round in 0..2_000 {
        let ticket = group(&mut world, commit("g", round));
        world.drain_but_syncs();
        assert_eq!(committed(&world, ticket), Some(Ok(())));
        world.pass(1);
    }
    world.drain();
    assert!((10..=25).contains(&world.count(SYNC)), "{} syncs", world.count(SYNC));
}

#[test]
fn r09_heartbeats_and_commits_do_not_wait_for_a_slow_sync() {
    let mut world = world();
    group(&mut world, commit("g", 1));
    world.drain();
    world.pass(100);
    assert_eq!(world.count(SYNC), 1);
    let beat =
        GroupCommand::Heartbeat { group: "g".into(), member: "m".into(), generation: 1, instance: None };
    let beat = group(&mut world, beat);
    assert!(reply(&world, beat).is_some(), "at once");
    let next = group(&mut world, commit("g", 2));
    world.drain_but_syncs();
    assert_eq!(committed(&world, next), Some(Ok(())));
}

#[test]
fn decisions_of_one_moment_share_an_append() {
    let mut world = world();
    let first = group(&mut world, commit("g", 1));
    // One append is under way; what comes meanwhile is written together.
    let later: Vec<Ticket> = (2..10).map(|offset| group(&mut world, commit("g", offset))).collect();
    world.drain();
    let appends = world.count(|submission| matches!(submission, Submission::Append { .. }));
    assert_eq!(appends, 2);
    assert_eq!(committed(&world, first), Some(Ok(())));
    assert!(later.iter().all(|ticket| committed(&world, *ticket) == Some(Ok(()))));
    assert_eq!(ask_offset(&mut world, "g"), Ok(9));
}

#[test]
fn a_read_waits_for_the_write_that_it_shows() {
    let mut world = world();
    group(&mut world, commit("g", 5));
    let read = group(&mut world, fetch_offsets("g"));
    assert_eq!(offset(&world, read), None);
    world.drain();
    assert_eq!(offset(&world, read), Some(Ok(5)));
}

#[test]
fn a_failed_append_is_undone_and_everybody_told() {
    let mut world = world();
    assert_eq!(
        {
            group(&mut world, commit("g", 1));
            world.drain();
            ask_offset(&mut world, "g")
        },
        Ok(1)
    );
    // "g" and "e" live on the same of two partitions: the parked join goes down with the failed commit.
    let parked = group(&mut world, join("e"));
    world.drain();
    assert!(reply(&world, parked).is_none(), "the first join waits for others");
    world.failing_appends = 1;
    let failed = group(&mut world, commit("g", 2));
    let read = group(&mut world, fetch_offsets("g"));
    let behind = group(&mut world, commit("g", 3));
    world.drain();
    let error = Err(GroupError::NotAvailable);
    assert_eq!(committed(&world, failed), Some(error));
    assert_eq!(committed(&world, behind), Some(error));
    assert_eq!(offset(&world, read), Some(Err(GroupError::NotAvailable)), "never what was not written");
    let Some(GroupReply::Joined(Err(refused))) = reply(&world, parked) else {
        panic!("a parked join is answered")
    };
    assert_eq!(refused.error, GroupError::NotAvailable);
    assert_eq!(ask_offset(&mut world, "g"), Ok(1), "as the log has it");
}

#[test]
fn r06_while_a_partition_is_read_its_groups_are_loading() {
    let mut before = world();
    group(&mut before, commit("g", 7));
    before.drain();
    let mut world = restarted(std::mem::take(&mut before.logs));
    let early = group(&mut world, fetch_offsets("g"));
    assert_eq!(offset(&world, early), Some(Err(GroupError::Loading)), "never a wrong empty result");
    let list = group(&mut world, GroupCommand::List);
    assert!(matches!(reply(&world, list), Some(GroupReply::Listed(Err(GroupError::Loading)))));
    world.drain();
    assert_eq!(ask_offset(&mut world, "g"), Ok(7));
    let list = group(&mut world, GroupCommand::List);
    let Some(GroupReply::Listed(Ok(groups))) = reply(&world, list) else { panic!("listed") };
    assert_eq!(groups.len(), 1);
}

#[test]
fn a_partition_that_cannot_be_read_is_tried_again() {
    let mut before = world();
    group(&mut before, commit("g", 7));
    before.drain();
    let logs = std::mem::take(&mut before.logs);
    let holder = *logs.iter().find(|(_, log)| !log.batches.is_empty()).expect("one holds the commit").0;
    let mut world = restarted(logs);
    let log = world.logs.remove(&holder).expect("there");
    world.drain();
    assert_eq!(ask_offset(&mut world, "g"), Err(GroupError::NotAvailable));
    world.logs.insert(holder, log);
    world.pass(1_000);
    world.drain();
    assert_eq!(ask_offset(&mut world, "g"), Ok(7));
}

#[test]
fn without_its_topic_there_is_no_coordinator() {
    let mut world = World::new();
    assert_eq!(ask_offset(&mut world, "g"), Err(GroupError::NotAvailable));
    let list = group(&mut world, GroupCommand::List);
    assert!(matches!(reply(&world, list), Some(GroupReply::Listed(Ok(groups))) if groups.is_empty()));
    world.fact(Fact::Topics(image()));
    assert_eq!(
        ask_offset(&mut world, "g"),
        Err(GroupError::Loading),
        "its partitions are about to be opened"
    );
}

#[test]
fn a_deleted_coordinator_partition_answers_what_waits() {
    let mut world = world();
    let tickets = ["g", "f"].map(|name| group(&mut world, commit(name, 1)));
    for index in 0..COORDINATORS {
        world.fact(Fact::PartitionDeleted(coordinator(index)));
    }
    for ticket in tickets {
        assert_eq!(committed(&world, ticket), Some(Err(GroupError::NotAvailable)));
    }
    world.drain();
    world.pass(10_000);
}

#[test]
fn stopping_answers_parked_joins() {
    let mut world = world();
    let parked = group(&mut world, join("g"));
    world.drain();
    assert!(reply(&world, parked).is_none());
    world.fact(Fact::Stopping);
    assert!(matches!(reply(&world, parked), Some(GroupReply::Joined(Err(_)))));
    let last = group(&mut world, commit("f", 1));
    world.drain();
    assert_eq!(committed(&world, last), Some(Ok(())), "a commit on the way out is still taken");
}

#[test]
fn a_join_whose_connection_is_gone_is_not_answered() {
    let mut world = world();
    let parked = group(&mut world, join("g"));
    world.drain();
    world.fact(Fact::AnswerLost(parked));
    world.pass(60_000);
    assert!(reply(&world, parked).is_none());
}

#[test]
fn a_deleted_group_leaves_neither_offsets_nor_share_state() {
    let mut world = world();
    group(&mut world, commit("g", 7));
    world.drain();
    let unknown = world.command(Command::DeleteGroup { group: "other".into() });
    world.drain();
    assert!(matches!(world.replies[&unknown], Reply::GroupDeleted(Err(GroupError::GroupNotFound))));
    let ticket = world.command(Command::DeleteGroup { group: "g".into() });
    assert!(!world.replies.contains_key(&ticket), "not before it is written");
    world.drain();
    assert!(matches!(world.replies[&ticket], Reply::GroupDeleted(Ok(()))));
    assert_eq!(world.count(|submission| matches!(submission, Submission::DeleteShareState { .. })), 1);
    assert_eq!(world.effects, [Effect::GroupDeleted("g".into())]);
    assert_eq!(ask_offset(&mut world, "g"), Ok(-1));
    // R02: tombstones are data.
    let mut again = restarted(std::mem::take(&mut world.logs));
    again.drain();
    assert_eq!(ask_offset(&mut again, "g"), Ok(-1));
}

#[test]
fn a_share_member_is_answered_when_its_group_is_written() {
    let mut world = world();
    let beat = ShareHeartbeat {
        group: "s".into(),
        member: "m".into(),
        epoch: 0,
        rack: None,
        topics: Some(vec!["orders".into()]),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
    };
    let ticket = group(&mut world, GroupCommand::ShareHeartbeat(beat));
    assert!(reply(&world, ticket).is_none());
    world.drain();
    let Some(GroupReply::ShareHeartbeat(Ok(answer))) = reply(&world, ticket) else { panic!("a member") };
    let assigned = answer.assignment.as_ref().expect("with the first heartbeat");
    assert_eq!(assigned[&partition(0).topic].len(), 4);
}

#[derive(Clone, Debug)]
enum Act {
    Commit(u8),
    Read(u8),
    Serve(usize),
    Fail,
    Pass(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3_u8).prop_map(Act::Commit),
        2 => (0..3_u8).prop_map(Act::Read),
        4 => any::<usize>().prop_map(Act::Serve),
        1 => Just(Act::Fail),
        1 => (0..200_u16).prop_map(Act::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever fails: a commit that was answered is what a restart finds, and a read shows only what is written.
    #[test]
    fn answers_are_as_good_as_the_log(acts in proptest::collection::vec(act(), 1..60)) {
        let mut world = world();
        let mut asked: Vec<(u8, i64, Ticket)> = Vec::new();
        let mut reads: Vec<(u8, Ticket)> = Vec::new();
        for (step, act) in acts.iter().enumerate() {
            match act {
                Act::Commit(name) => {
                    let offset = i64::try_from(step).expect("short");
                    let ticket = group(&mut world, commit(&format!("g{name}"), offset));
                    asked.push((*name, offset, ticket));
                }
                Act::Read(name) => reads.push((*name, group(&mut world, fetch_offsets(&format!("g{name}"))))),
                Act::Serve(pick) => {
                    let lanes: Vec<Lane> = world.queues.keys().copied().collect();
                    if !lanes.is_empty() {
                        world.serve(lanes[pick % lanes.len()]);
                    }
                }
                Act::Fail => world.failing_appends += 1,
                Act::Pass(ms) => world.pass(i64::from(*ms)),
            }
            // What a read has shown so far was answered to its committer as well, or is about to be.
            for (name, read) in &reads {
                let Some(Ok(shown)) = offset(&world, *read) else { continue };
                let known = shown == -1
                    || asked.iter().any(|(of, offset, ticket)| {
                        of == name && *offset == shown && committed(&world, *ticket) == Some(Ok(()))
                    });
                prop_assert!(known, "g{} showed {}, which nobody wrote", name, shown);
            }
        }
        world.failing_appends = 0;
        world.drain();
        let mut again = restarted(std::mem::take(&mut world.logs));
        again.drain();
        for name in 0..3 {
            let written = asked
                .iter()
                .rev()
                .find(|(of, _, ticket)| *of == name && committed(&world, *ticket) == Some(Ok(())))
                .map_or(-1, |(_, offset, _)| *offset);
            prop_assert_eq!(ask_offset(&mut again, &format!("g{name}")), Ok(written));
        }
        for (_, _, ticket) in &asked {
            prop_assert!(committed(&world, *ticket).is_some());
        }
    }
}

/// A shard that finds these logs after a power cut: nothing was closed in order.
fn after_a_cut(mut logs: BTreeMap<PartitionId, Log>, end: i64) -> World {
    let mut world = World::new();
    world.fact(Fact::UncleanStop);
    world.fact(Fact::Topics(image()));
    let mut records = Log::default();
    records.facts.end = Offset(end);
    world.open_as(partition(0), PartitionRole::Data, records);
    for index in 0..COORDINATORS {
        let log = logs.remove(&coordinator(index)).unwrap_or_default();
        world.open_as(coordinator(index), PartitionRole::ConsumerOffsets(index), log);
    }
    world
}

fn write(world: &mut World) -> Ticket {
    let parts = vec![(partition(0), crate::world::batch(1, 10).into())];
    world.command(Command::Produce(Produce { acks: Acks::Written, parts }))
}

/// Logs in which each of these groups has committed 100.
fn committed_at_100(groups: usize) -> BTreeMap<PartitionId, Log> {
    let mut world = world();
    for number in 0..groups {
        group(&mut world, commit(&format!("g{number}"), 100));
    }
    world.drain();
    world.pass(200);
    world.drain();
    world.logs
}

#[test]
fn r18_commits_above_a_cut_are_lowered_and_synced_before_the_log_grows() {
    let mut world = after_a_cut(committed_at_100(201), 80);
    let read = group(&mut world, fetch_offsets("g7"));
    assert_eq!(offset(&world, read), Some(Err(GroupError::Loading)));
    let produced = write(&mut world);
    let appends = |world: &World| {
        world.count(
            |submission| matches!(submission, Submission::Append { partition: p, .. } if *p == partition(0)),
        )
    };
    world.drain_but_syncs();
    assert_eq!(appends(&world), 0, "what is lowered is not on the disk yet");
    assert_eq!(ask_written(&mut world, "g7"), Ok(80));
    world.drain();
    assert_eq!(appends(&world), 1);
    assert!(world.produced(produced).is_some_and(|parts| parts[0].is_ok()));
    for number in [0, 7, 200] {
        assert_eq!(ask_offset(&mut world, &format!("g{number}")), Ok(80));
    }
    // What is written after that waits for nothing.
    let produced = write(&mut world);
    world.drain_but_syncs();
    assert!(world.produced(produced).is_some());
    // Another power cut: they are still lowered.
    let logs = std::mem::take(&mut world.logs);
    let mut again = after_a_cut(logs, 81);
    again.drain();
    assert_eq!(ask_offset(&mut again, "g7"), Ok(80));
}

/// As [`ask_offset`], with no sync that ends.
fn ask_written(world: &mut World, name: &str) -> Result<i64, GroupError> {
    let ticket = group(world, fetch_offsets(name));
    world.drain_but_syncs();
    offset(world, ticket).expect("answered")
}

#[test]
fn r18_a_commit_past_the_end_outlives_a_stop_in_order() {
    let mut again = restarted(committed_at_100(1));
    again.open(partition(0));
    again.drain();
    assert_eq!(ask_offset(&mut again, "g0"), Ok(100));
    let produced = write(&mut again);
    again.drain();
    assert!(again.produced(produced).is_some());
}

#[test]
fn r18_a_coordinator_partition_that_cannot_be_written_holds_up_nobody() {
    let mut world = after_a_cut(committed_at_100(1), 80);
    let produced = write(&mut world);
    world.failing_appends = 1;
    world.drain();
    assert!(world.produced(produced).is_some_and(|parts| parts[0].is_ok()));
    assert_eq!(ask_offset(&mut world, "g0"), Err(GroupError::NotAvailable));
    world.pass(1_000);
    world.drain();
    assert_eq!(ask_offset(&mut world, "g0"), Ok(80), "by the end that the log had at the start");
}
