//! Produce: when it is answered, and what a slow or broken disk does to it.

use coordinator::command::{Acks, Command, Fact, PartitionRole, Produce, Ticket};
use coordinator::io::{AppendError, IoError, Submission};
use coordinator::reply::ProduceError;
use coordinator::shard::Input;
use records::ids::{Offset, PartitionId};

use crate::fetch::tail;
use crate::log::Log;
use crate::world::{World, batch, partition};

const SYNC: fn(&Submission) -> bool = |submission| matches!(submission, Submission::Sync { .. });

fn produce(acks: Acks, parts: &[PartitionId]) -> Command {
    let parts = parts.iter().map(|partition| (*partition, batch(2, 10).into())).collect();
    Command::Produce(Produce { acks, parts })
}

fn base(world: &World, ticket: Ticket) -> i64 {
    let parts = world.produced(ticket).expect("answered");
    parts[0].as_ref().expect("appended").base_offset.0
}

#[test]
fn acks_one_is_answered_when_written_and_asks_for_no_sync() {
    let mut world = World::new();
    world.open(partition(0));
    let ticket = world.command(produce(Acks::Written, &[partition(0)]));
    assert!(world.produced(ticket).is_none(), "not before it is written");
    world.drain();
    assert_eq!(base(&world, ticket), 0);
    assert_eq!(world.count(SYNC), 0);
    assert_eq!(world.shard.logs()[&partition(0)].end, Offset(2));
}

#[test]
fn r09_acks_all_shares_one_sync_and_nothing_else_waits_for_it() {
    let mut world = World::new();
    world.open(partition(0));
    let fetch = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    let first = world.command(produce(Acks::Synced, &[partition(0)]));
    world.drain_but_syncs();
    assert_eq!(world.count(SYNC), 1);
    assert!(world.fetched(fetch).is_some(), "what is written is visible, whatever the sync does");
    // The disk is slow. Eight more arrive meanwhile; they share the next sync.
    let later: Vec<Ticket> = (0..8).map(|_| world.command(produce(Acks::Synced, &[partition(0)]))).collect();
    let written = world.command(produce(Acks::Written, &[partition(0)]));
    let again = world.command(Command::Fetch(tail(partition(0), 2, 60_000)));
    world.drain_but_syncs();
    assert_eq!(world.count(SYNC), 1, "one at a time");
    assert!(world.produced(written).is_some());
    assert!(world.fetched(again).is_some());
    assert!(world.produced(first).is_none());
    world.drain();
    assert_eq!(world.count(SYNC), 2, "all that waited shared one");
    let bases: Vec<i64> = later.iter().map(|ticket| base(&world, *ticket)).collect();
    assert_eq!(bases, (1..9).map(|index| index * 2).collect::<Vec<_>>(), "in the order of arrival");
}

#[test]
fn parts_answer_each_for_itself() {
    let mut world = World::new();
    let offsets = PartitionId { topic: records::ids::TopicId([9; 16]), index: 0 };
    world.open(partition(0));
    world.open_as(offsets, PartitionRole::ConsumerOffsets(0), Log::default());
    let ticket = world.command(produce(Acks::Synced, &[partition(5), partition(0), offsets]));
    world.drain();
    let parts = world.produced(ticket).expect("answered");
    assert_eq!(parts[0], Err(ProduceError::UnknownPartition));
    assert!(parts[1].is_ok());
    assert_eq!(parts[2], Err(ProduceError::Internal));
    let none = world.command(produce(Acks::Synced, &[]));
    assert_eq!(world.produced(none), Some(&Vec::new()));
}

#[test]
fn a_failed_append_fails_its_part_alone() {
    let mut world = World::new();
    world.open(partition(0));
    world.failing_appends = 1;
    let bad = world.command(produce(Acks::Written, &[partition(0)]));
    let good = world.command(produce(Acks::Written, &[partition(0)]));
    world.drain();
    let error = ProduceError::Append(AppendError::Io(IoError::Storage));
    assert_eq!(world.produced(bad), Some(&vec![Err(error)]));
    assert_eq!(base(&world, good), 0);
}

#[test]
fn a_failed_sync_fails_all_that_shared_it() {
    let mut world = World::new();
    world.open(partition(0));
    let commands = [produce(Acks::Synced, &[partition(0)]), produce(Acks::Synced, &[partition(0)])];
    let tickets = commands.map(|command| world.command(command));
    world.failing_syncs = 9;
    world.drain();
    let error = ProduceError::Append(AppendError::Io(IoError::Storage));
    for ticket in tickets {
        assert_eq!(world.produced(ticket), Some(&vec![Err(error)]));
    }
}

#[test]
fn a_deleted_partition_answers_what_was_under_way() {
    let mut world = World::new();
    world.open(partition(0));
    let ticket = world.command(produce(Acks::Synced, &[partition(0)]));
    world.fact(Fact::PartitionDeleted(partition(0)));
    world.drain();
    assert_eq!(world.produced(ticket), Some(&vec![Err(ProduceError::UnknownPartition)]));
    assert!(!world.shard.logs().contains_key(&partition(0)), "a late completion brings nothing back");
}

#[test]
fn commands_of_one_round_reach_the_log_in_order() {
    let mut world = World::new();
    world.open(partition(0));
    let tickets: Vec<Ticket> = (0..5).map(|_| world.queue(produce(Acks::Written, &[partition(0)]))).collect();
    let inputs: Vec<_> = tickets
        .iter()
        .map(|ticket| Input::Command(*ticket, produce(Acks::Written, &[partition(0)])))
        .collect();
    world.round(inputs);
    world.drain();
    let bases: Vec<i64> = tickets.iter().map(|ticket| base(&world, *ticket)).collect();
    assert_eq!(bases, [0, 2, 4, 6, 8]);
}
