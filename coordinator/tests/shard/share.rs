//! Share groups in the shard: what reaches the share machine from logs, groups and connections.

use std::sync::Arc;

use coordinator::command::{
    AckRange, Acks, Command, ConnectionId, Fact, PartitionRole, Produce, ShareAcknowledge, ShareFetch,
    ShareFetchPart, Ticket, TopicImage,
};
use coordinator::group::{GroupCommand, GroupReply, ShareHeartbeat};
use coordinator::io::Submission;
use coordinator::reply::{AcquiredRange, Effect, Reply, ShareOffsets};
use coordinator::share::{ShareConfig, ShareOrder, ShareReset};
use records::ids::{Offset, PartitionId, TopicId};

use crate::log::Log;
use crate::world::{World, batch, partition};

const GROUP: &str = "s";
const COORDINATOR: PartitionId = PartitionId { topic: TopicId([9; 16]), index: 0 };

fn open(world: &mut World, order: ShareOrder, data: Log, offsets: Log) {
    let topics = [("__consumer_offsets", COORDINATOR.topic, 1), ("orders", partition(0).topic, 1)];
    let topics = topics.into_iter().map(|(name, id, count)| (Arc::from(name), (id, count))).collect();
    world.fact(Fact::Topics(Arc::new(TopicImage { topics, ..TopicImage::default() })));
    let config = ShareConfig { order, reset: ShareReset::Earliest, ..ShareConfig::default() };
    world.fact(Fact::ShareConfigured(GROUP.into(), Arc::new(config)));
    world.open_as(COORDINATOR, PartitionRole::ConsumerOffsets(0), offsets);
    world.open_as(partition(0), PartitionRole::Data, data);
    world.drain();
}

fn world(order: ShareOrder) -> World {
    let mut world = World::new();
    open(&mut world, order, Log::default(), Log::default());
    world
}

fn write(world: &mut World) {
    let parts = vec![(partition(0), batch(2, 10).into())];
    world.command(Command::Produce(Produce { acks: Acks::Written, parts }));
    world.drain();
}

fn heartbeat(world: &mut World, member: &str, epoch: i32) -> i32 {
    let ticket = world.command(Command::Group(GroupCommand::ShareHeartbeat(ShareHeartbeat {
        group: GROUP.into(),
        member: member.into(),
        epoch,
        rack: None,
        topics: (epoch == 0).then(|| vec!["orders".into()]),
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
    })));
    world.drain();
    match &world.replies[&ticket] {
        Reply::Group(GroupReply::ShareHeartbeat(Ok(reply))) => reply.epoch,
        other => panic!("{other:?}"),
    }
}

/// `connection` stands for the member: "m1" on connection 1.
fn fetch(world: &mut World, connection: u64, epoch: i32, wait_max_ms: i32) -> Ticket {
    world.command(Command::ShareFetch(ShareFetch {
        connection: ConnectionId(connection),
        group: GROUP.into(),
        member: format!("m{connection}").into(),
        epoch,
        wait_max_ms,
        bytes_min: 1,
        bytes_max: 1 << 20,
        records_max: 500,
        batch_size: 500,
        strict: false,
        renew: false,
        parts: vec![ShareFetchPart { partition: partition(0), acks: Vec::new() }],
        forgotten: Vec::new(),
        key_share: None,
    }))
}

fn acquired(world: &World, ticket: Ticket) -> Option<Vec<AcquiredRange>> {
    match world.replies.get(&ticket)? {
        Reply::ShareFetched(Ok(fetched)) => {
            Some(fetched.parts.iter().flat_map(|part| part.acquired.clone()).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn offsets(world: &World, ticket: Ticket) -> Vec<i64> {
    let ranges = acquired(world, ticket).expect("answered");
    ranges.iter().flat_map(|range| range.first.get()..=range.last.get()).collect()
}

fn accept(world: &mut World, connection: u64, epoch: i32, first: i64, last: i64) -> Ticket {
    let range = AckRange { first, last, types: vec![1], delivery: None, delay_ms: None, reason: None };
    world.command(Command::ShareAcknowledge(ShareAcknowledge {
        connection: ConnectionId(connection),
        group: GROUP.into(),
        member: format!("m{connection}").into(),
        epoch,
        renew: false,
        parts: vec![(partition(0), vec![range])],
        key_share: false,
    }))
}

fn start_offset(world: &mut World) -> Option<Offset> {
    let command = Command::DescribeShareOffsets { group: GROUP.into(), partitions: None };
    let ticket = world.command(command);
    world.drain();
    match &world.replies[&ticket] {
        Reply::ShareOffsets(parts) => {
            let ShareOffsets { start, .. } = parts.first()?.1.expect("known");
            start
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_append_wakes_a_parked_share_fetch_and_the_grant_is_written_first() {
    let mut world = world(ShareOrder::Key);
    assert!(heartbeat(&mut world, "m1", 0) > 0);
    let ticket = fetch(&mut world, 1, 0, 60_000);
    world.drain();
    assert_eq!(acquired(&world, ticket), None, "nothing there yet");
    let parts = vec![(partition(0), batch(2, 10).into())];
    world.command(Command::Produce(Produce { acks: Acks::Written, parts }));
    while acquired(&world, ticket).is_none() {
        let lane = *world.queues.keys().next().expect("until the fetch is answered there is something to do");
        world.serve(lane);
    }
    assert_eq!(offsets(&world, ticket), [0], "of one key one at a time");
    assert!(world.count(|submission| matches!(submission, Submission::AppendEvents { .. })) > 0);
}

#[test]
fn what_was_acknowledged_survives_a_restart() {
    let mut before = world(ShareOrder::Key);
    write(&mut before);
    heartbeat(&mut before, "m1", 0);
    let ticket = fetch(&mut before, 1, 0, 1_000);
    before.drain();
    before.fact(Fact::AnswerWritten(ticket));
    assert_eq!(offsets(&before, ticket), [0]);
    let ack = accept(&mut before, 1, 1, 0, 0);
    assert!(!before.replies.contains_key(&ack), "not before it is written");
    before.drain();
    assert!(
        matches!(&before.replies[&ack], Reply::ShareAcknowledged(Ok(done)) if done.parts[0].error.is_none())
    );
    assert_eq!(start_offset(&mut before), Some(Offset(1)));

    let mut world = World::new();
    world.states = before.states.clone();
    let [data, coordinator] = [partition(0), COORDINATOR].map(|id| before.logs.remove(&id).expect("open"));
    open(&mut world, ShareOrder::Key, data, coordinator);
    let again = fetch(&mut world, 1, 0, 1_000);
    world.drain();
    assert_eq!(offsets(&world, again), [1]);
}

#[test]
fn a_member_whose_session_runs_out_gives_back_what_it_holds() {
    let mut world = world(ShareOrder::Key);
    write(&mut world);
    heartbeat(&mut world, "m1", 0);
    let ticket = fetch(&mut world, 1, 0, 1_000);
    world.drain();
    world.fact(Fact::AnswerWritten(ticket));
    let session_ms = i64::from(ShareConfig::default().session_timeout_ms);
    let lock_ms = ShareConfig::default().lock_ms;
    assert!(lock_ms < session_ms, "so that a lock outlives the session below");
    let other = heartbeat(&mut world, "m2", 0);
    world.pass(session_ms - 1_000);
    heartbeat(&mut world, "m2", other);
    let held = fetch(&mut world, 1, 1, 0);
    world.drain();
    world.fact(Fact::AnswerWritten(held));
    assert_eq!(offsets(&world, held), [0], "the lock ran out, and nobody else asked");
    let waiting = fetch(&mut world, 2, 0, 10_000);
    world.drain();
    assert_eq!(acquired(&world, waiting), None, "the key is at work with m1");
    world.pass(1_000);
    world.drain();
    assert_eq!(offsets(&world, waiting), [0], "m1 timed out: its key moves at once");
}

#[test]
fn a_closed_connection_ends_its_parked_share_fetch() {
    let mut world = world(ShareOrder::None);
    heartbeat(&mut world, "m1", 0);
    let ticket = fetch(&mut world, 1, 0, 60_000);
    world.drain();
    world.fact(Fact::ConnectionClosed(ConnectionId(1)));
    write(&mut world);
    world.pass(120_000);
    assert_eq!(acquired(&world, ticket), None);
}

#[test]
fn giving_way_and_stopping_answer_parked_share_fetches() {
    let mut world = world(ShareOrder::None);
    for connection in 1..=2 {
        heartbeat(&mut world, &format!("m{connection}"), 0);
    }
    let first = fetch(&mut world, 1, 0, 60_000);
    let second = fetch(&mut world, 2, 0, 60_000);
    world.drain();
    world.fact(Fact::GiveWay(first));
    world.drain();
    assert_eq!(offsets(&world, first), [0; 0]);
    assert_eq!(acquired(&world, second), None);
    world.fact(Fact::Stopping);
    world.drain();
    assert_eq!(offsets(&world, second), [0; 0]);
}

#[test]
fn a_cut_moves_the_share_partition_along() {
    let mut world = world(ShareOrder::None);
    write(&mut world);
    write(&mut world);
    heartbeat(&mut world, "m1", 0);
    let to = coordinator::command::DeleteTo::Offset(Offset(2));
    world.command(Command::DeleteRecords(vec![(partition(0), to)]));
    world.drain();
    let ticket = fetch(&mut world, 1, 0, 1_000);
    world.drain();
    assert_eq!(offsets(&world, ticket), [2, 3]);
}

#[test]
fn a_deleted_share_group_leaves_no_state() {
    let mut world = world(ShareOrder::None);
    write(&mut world);
    heartbeat(&mut world, "m1", 0);
    let ticket = fetch(&mut world, 1, 0, 1_000);
    world.drain();
    world.fact(Fact::AnswerWritten(ticket));
    let refused = world.command(Command::DeleteGroup { group: GROUP.into() });
    world.drain();
    assert!(matches!(world.replies[&refused], Reply::GroupDeleted(Err(_))), "it has a member");
    assert_eq!(world.states.len(), 1);
    heartbeat(&mut world, "m1", -1);
    let deleted = world.command(Command::DeleteGroup { group: GROUP.into() });
    world.drain();
    assert!(matches!(world.replies[&deleted], Reply::GroupDeleted(Ok(()))));
    assert_eq!(world.effects, [Effect::GroupDeleted(GROUP.into())]);
    assert_eq!(world.states.len(), 0);
    assert_eq!(start_offset(&mut world), None);
}
