//! Plain fetches: what is answered at once, what waits, and what ends a wait.

use coordinator::command::{
    Acks, Command, ConnectionId, Fact, Fetch, FetchPart, Isolation, PartitionRole, Produce, Ticket,
};
use coordinator::io::Submission;
use coordinator::limits::Limits;
use coordinator::reply::FetchError;
use coordinator::time::{Micros, Mono};
use records::ids::{Offset, PartitionId};

use crate::log::Log;
use crate::world::{World, batch, facts, partition};

const READ: fn(&Submission) -> bool = |submission| matches!(submission, Submission::Read { .. });

pub(crate) fn part(partition: PartitionId, offset: i64) -> FetchPart {
    FetchPart {
        partition,
        offset: Offset(offset),
        bytes_max: 1 << 20,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
    }
}

/// A fetch for one byte or more.
pub(crate) fn fetch(parts: Vec<FetchPart>, wait_max_ms: i32) -> Fetch {
    Fetch {
        connection: ConnectionId(1),
        wait_max_ms,
        bytes_min: 1,
        bytes_max: 50 << 20,
        isolation: Isolation::ReadUncommitted,
        parts,
    }
}

pub(crate) fn tail(partition: PartitionId, offset: i64, wait_max_ms: i32) -> Fetch {
    fetch(vec![part(partition, offset)], wait_max_ms)
}

fn write(world: &mut World, to: PartitionId, value_bytes: usize) {
    let parts = vec![(to, batch(2, value_bytes).into())];
    world.command(Command::Produce(Produce { acks: Acks::Written, parts }));
    world.drain();
}

fn opened(partitions: i32) -> World {
    let mut world = World::new();
    for index in 0..partitions {
        world.open(partition(index));
    }
    world
}

/// Bytes of each part.
fn sizes(world: &World, ticket: Ticket) -> Vec<usize> {
    let parts = world.fetched(ticket).expect("answered");
    parts
        .iter()
        .map(|part| part.as_ref().expect("no error").data.as_ref().map_or(0, bytes::Bytes::len))
        .collect()
}

fn error(world: &World, ticket: Ticket) -> FetchError {
    *world.fetched(ticket).expect("answered at once")[0].as_ref().expect_err("refused")
}

#[test]
fn f03_a_fetch_of_nothing_waits_as_long_as_it_says_without_io() {
    let mut world = opened(1);
    let ticket = world.command(Command::Fetch(tail(partition(0), 0, 500)));
    world.pass(499);
    assert!(world.fetched(ticket).is_none());
    world.pass(1);
    assert_eq!(sizes(&world, ticket), [0]);
    assert_eq!(world.count(READ), 0);
    assert_eq!(world.shard.fetch_counts(), (0, 0));
}

#[test]
fn f03_a_minimum_of_zero_is_answered_at_once() {
    let mut world = opened(1);
    let ticket = world.command(Command::Fetch(Fetch { bytes_min: 0, ..tail(partition(0), 0, 3_000) }));
    assert_eq!(sizes(&world, ticket), [0]);
    let nothing = world.command(Command::Fetch(fetch(Vec::new(), 3_000)));
    assert!(sizes(&world, nothing).is_empty(), "no partitions, nothing to wait for");
}

#[test]
fn f03_an_append_wakes_at_once() {
    let mut world = opened(2);
    let parts = vec![part(partition(0), 0), part(partition(1), 0)];
    let ticket = world.command(Command::Fetch(fetch(parts, 8_000)));
    world.pass(300);
    assert!(world.fetched(ticket).is_none());
    write(&mut world, partition(1), 10);
    let sizes = sizes(&world, ticket);
    assert!(sizes[0] == 0 && sizes[1] > 0, "{sizes:?}");
    assert_eq!(world.shard.next_deadline(), None, "its deadline went with it");
}

#[test]
fn f03_too_little_waits_to_the_end_and_then_goes_out() {
    let mut world = opened(1);
    write(&mut world, partition(0), 500);
    let request = Fetch { bytes_min: 1_000_000, ..tail(partition(0), 0, 1_000) };
    let ticket = world.command(Command::Fetch(request));
    world.drain();
    assert!(world.fetched(ticket).is_none());
    // Bytes that do not suffice cost no read each.
    let reads = world.count(READ);
    write(&mut world, partition(0), 500);
    assert_eq!(world.count(READ), reads);
    world.pass(999);
    assert!(world.fetched(ticket).is_none());
    world.pass(1);
    world.drain();
    assert!(sizes(&world, ticket)[0] > 2_000);
}

#[test]
fn f03_bytes_sum_up_to_the_minimum_over_partitions_and_reads() {
    let mut world = opened(2);
    write(&mut world, partition(0), 500);
    let parts = vec![part(partition(0), 0), part(partition(1), 0)];
    let request = Fetch { bytes_min: 3_000, ..fetch(parts, 60_000) };
    let ticket = world.command(Command::Fetch(request));
    // One batch comes in while the read is under way, one after it.
    write(&mut world, partition(1), 500);
    assert!(world.fetched(ticket).is_none());
    write(&mut world, partition(0), 500);
    let sizes = sizes(&world, ticket);
    assert!(sizes[0] > 2_000 && sizes[1] > 1_000, "{sizes:?}");
}

#[test]
fn f03_a_minimum_above_the_maximum_is_met_by_the_maximum() {
    let mut world = opened(1);
    write(&mut world, partition(0), 2_000);
    let request = Fetch { bytes_min: 1 << 30, bytes_max: 100, ..tail(partition(0), 0, 60_000) };
    let ticket = world.command(Command::Fetch(request));
    world.drain();
    assert!(sizes(&world, ticket)[0] > 4_000);
}

#[test]
fn f04_outside_the_log_is_answered_at_once() {
    let mut world = World::new();
    world.open_as(partition(0), PartitionRole::Data, Log { facts: facts(4, 9, 0), ..Log::default() });
    for (offset, refused) in
        [(9, false), (10, true), (-1, true), (3, true), (i64::MIN, true), (i64::MAX, true)]
    {
        let ticket = world.command(Command::Fetch(tail(partition(0), offset, 3_000)));
        if refused {
            assert_eq!(error(&world, ticket), FetchError::OutOfRange, "offset {offset}");
        } else {
            world.pass(3_000);
            let parts = world.fetched(ticket).expect("answered");
            let part = parts[0].as_ref().expect("in range");
            assert_eq!(
                (part.high_watermark, part.last_stable, part.log_start),
                (Offset(9), Offset(9), Offset(4))
            );
            assert!(part.data.is_none());
        }
    }
}

#[test]
fn f04_a_cut_ends_the_wait_of_what_fell_out() {
    let mut world = World::new();
    world.open_as(partition(0), PartitionRole::Data, Log { facts: facts(0, 9, 0), ..Log::default() });
    let ticket = world.command(Command::Fetch(tail(partition(0), 9, 3_000)));
    world.logs.get_mut(&partition(0)).expect("open").facts = facts(12, 12, 0);
    world.fact(Fact::LogStartMoved(partition(0), Offset(12)));
    assert_eq!(error(&world, ticket), FetchError::OutOfRange);
}

#[test]
fn f05_the_first_batch_goes_out_whatever_the_limits() {
    let mut world = opened(2);
    for index in 0..2 {
        write(&mut world, partition(index), 100);
        write(&mut world, partition(index), 100);
    }
    let one = batch(2, 100).len();
    let small = FetchPart { bytes_max: 1, ..part(partition(0), 0) };
    let ticket = world.command(Command::Fetch(Fetch { bytes_max: 1, ..fetch(vec![small], 100) }));
    let parts = vec![part(partition(0), 0), part(partition(1), 0)];
    let two = world.command(Command::Fetch(Fetch { bytes_max: 1, ..fetch(parts, 100) }));
    world.drain();
    assert_eq!(sizes(&world, ticket), [one]);
    assert_eq!(sizes(&world, two), [one, 0]);
}

#[test]
fn f09_leader_epochs_are_checked_at_once() {
    let mut world = opened(1);
    let log = Log { facts: facts(0, 0, 3), ..Log::default() };
    world.open_as(partition(0), PartitionRole::Data, log);
    write(&mut world, partition(0), 10);
    let ask = |world: &mut World, current: i32, last: i32, offset: i64| {
        let part = FetchPart {
            current_leader_epoch: current,
            last_fetched_epoch: last,
            ..part(partition(0), offset)
        };
        let ticket = world.command(Command::Fetch(fetch(vec![part], 3_000)));
        world.drain();
        ticket
    };
    for current in [-1, 3] {
        let ticket = ask(&mut world, current, -1, 0);
        assert!(sizes(&world, ticket)[0] > 0);
    }
    let newer = ask(&mut world, 7, -1, 0);
    assert_eq!(error(&world, newer), FetchError::UnknownEpoch);
    let older = ask(&mut world, 2, -1, 0);
    assert_eq!(error(&world, older), FetchError::FencedEpoch);
    let never = ask(&mut world, -1, 5, 0);
    assert_eq!(error(&world, never), FetchError::OutOfRange);
    let known = ask(&mut world, -1, 3, 0);
    assert!(sizes(&world, known)[0] > 0);
}

#[test]
fn f16_unknown_partitions_are_answered_at_once_beside_data() {
    let mut world = opened(1);
    write(&mut world, partition(0), 10);
    for index in [-1, 99, i32::MIN, i32::MAX] {
        let ticket = world.command(Command::Fetch(tail(partition(index), 0, 3_000)));
        assert_eq!(error(&world, ticket), FetchError::UnknownPartition);
    }
    // What stands beside a refused part goes out with it, even below the minimum.
    let parts = vec![part(partition(0), 0), part(partition(9), 0)];
    let request = Fetch { bytes_min: 1 << 20, ..fetch(parts, 3_000) };
    let ticket = world.command(Command::Fetch(request));
    world.drain();
    let parts = world.fetched(ticket).expect("answered at once");
    assert!(parts[0].as_ref().expect("there").data.is_some());
    assert_eq!(parts[1].as_ref().map(|_| ()), Err(&FetchError::UnknownPartition));
}

#[test]
fn a_committed_reader_waits_for_the_last_stable_offset() {
    let mut world = opened(1);
    write(&mut world, partition(0), 10);
    let mut open = facts(0, 2, 0);
    open.last_stable = Offset(0);
    world.fact(Fact::PartitionOpened { partition: partition(0), role: PartitionRole::Data, facts: open });
    let request = Fetch { isolation: Isolation::ReadCommitted, ..tail(partition(0), 0, 5_000) };
    let ticket = world.command(Command::Fetch(request));
    assert!(world.fetched(ticket).is_none(), "an open transaction holds it back");
    // The log's next append lets everything out.
    write(&mut world, partition(0), 10);
    assert!(sizes(&world, ticket)[0] > 0);
}

#[test]
fn giving_way_ends_a_wait() {
    let mut world = opened(1);
    let parked = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    world.fact(Fact::GiveWay(parked));
    assert_eq!(sizes(&world, parked), [0]);
    // One that is being read for answers with what it finds, be it too little.
    write(&mut world, partition(0), 10);
    let request = Fetch { bytes_min: 1 << 20, ..tail(partition(0), 0, 60_000) };
    let reading = world.command(Command::Fetch(request));
    world.fact(Fact::GiveWay(reading));
    world.drain();
    assert!(sizes(&world, reading)[0] > 0);
    world.fact(Fact::GiveWay(Ticket(9_999)));
}

#[test]
fn stopping_ends_all_waits_and_those_to_come() {
    let mut world = opened(1);
    let before = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    world.fact(Fact::Stopping);
    let after = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    assert_eq!(sizes(&world, before), [0]);
    assert_eq!(sizes(&world, after), [0]);
}

#[test]
fn r01_a_closed_connection_leaves_nothing_behind() {
    let mut world = opened(3);
    for connection in 0..2_000 {
        let parts = (0..3).map(|index| part(partition(index), 0)).collect();
        let request = Fetch { connection: ConnectionId(connection), ..fetch(parts, 60_000) };
        world.command(Command::Fetch(request));
    }
    assert_eq!(world.shard.fetch_counts(), (2_000, 2_000));
    for connection in 0..2_000 {
        world.fact(Fact::ConnectionClosed(ConnectionId(connection)));
    }
    assert_eq!(world.shard.fetch_counts(), (0, 0));
    assert_eq!(world.shard.next_deadline(), None);
    write(&mut world, partition(0), 10);
    assert_eq!(world.count(READ), 0, "nobody is left to read for");
}

#[test]
fn a_connection_that_closes_during_a_read_is_forgotten() {
    let mut world = opened(1);
    write(&mut world, partition(0), 10);
    let ticket = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    world.fact(Fact::ConnectionClosed(ConnectionId(1)));
    world.drain();
    assert!(world.fetched(ticket).is_none());
    assert_eq!(world.shard.fetch_counts(), (0, 0));
}

#[test]
fn a_lost_answer_frees_its_fetch() {
    let mut world = opened(1);
    let ticket = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    world.fact(Fact::AnswerLost(ticket));
    assert_eq!(world.shard.fetch_counts(), (0, 0));
    assert!(world.fetched(ticket).is_none());
}

#[test]
fn a_deleted_partition_ends_the_wait() {
    let mut world = opened(1);
    let ticket = world.command(Command::Fetch(tail(partition(0), 0, 60_000)));
    world.fact(Fact::PartitionDeleted(partition(0)));
    assert_eq!(error(&world, ticket), FetchError::UnknownPartition);
    assert_eq!(world.shard.fetch_counts(), (0, 0));
}

#[test]
fn a_partition_deleted_during_a_read_is_an_error_not_a_wait() {
    let mut world = opened(2);
    write(&mut world, partition(0), 10);
    let parts = vec![part(partition(0), 0), part(partition(1), 0)];
    let request = Fetch { bytes_min: 1 << 20, ..fetch(parts, 60_000) };
    let ticket = world.command(Command::Fetch(request));
    world.fact(Fact::PartitionDeleted(partition(1)));
    world.drain();
    let parts = world.fetched(ticket).expect("answered");
    assert!(parts[0].as_ref().expect("there").data.is_some());
    assert_eq!(parts[1].as_ref().map(|_| ()), Err(&FetchError::UnknownPartition));
}

#[test]
fn beyond_the_bound_nothing_parks() {
    let mut world = World::with(Limits { parked_fetches_max: 2, ..Limits::default() });
    world.open(partition(0));
    let tickets: Vec<Ticket> =
        (0..3).map(|_| world.command(Command::Fetch(tail(partition(0), 0, 60_000)))).collect();
    assert!(world.fetched(tickets[0]).is_none() && world.fetched(tickets[1]).is_none());
    assert_eq!(sizes(&world, tickets[2]), [0], "the third is answered at once");
}

#[test]
fn waits_end_in_order_of_their_deadlines() {
    let mut world = opened(1);
    let waits = [300, 100, 200];
    let tickets = waits.map(|ms| world.command(Command::Fetch(tail(partition(0), 0, ms))));
    let start = world.now.mono;
    assert_eq!(world.shard.next_deadline(), Some(start + Micros(100_000)));
    world.pass(400);
    let ends: Vec<Mono> = tickets.iter().map(|ticket| world.replied_at[ticket]).collect();
    let expected: Vec<Mono> = waits.iter().map(|ms| start + Micros::from_ms(i64::from(*ms))).collect();
    assert_eq!(ends, expected);
}
