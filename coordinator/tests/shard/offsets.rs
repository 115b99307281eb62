//! ListOffsets and DeleteRecords.

use coordinator::command::{
    Acks, Command, DeleteTo, Fact, Isolation, ListOffsets, ListOffsetsPart, OffsetQuery, PartitionRole,
    Produce,
};
use coordinator::io::{DeleteError, IoError};
use coordinator::reply::{FetchError, FoundOffset, Reply};
use records::Codec;
use records::ids::Offset;

use crate::fetch::tail;
use crate::log::Log;
use crate::world::{World, batch_at, facts, partition};

/// The leader epoch of the log.
const EPOCH: i32 = 3;

/// Timestamps 5, 9, 7 in one batch; 20, 30 compressed in the next.
fn timed() -> World {
    let mut world = World::new();
    let log = Log { facts: facts(0, 0, EPOCH), ..Log::default() };
    world.open_as(partition(0), PartitionRole::Data, log);
    for batch in [batch_at(&[5, 9, 7], 4, Codec::None), batch_at(&[20, 30], 4, Codec::Gzip)] {
        let parts = vec![(partition(0), batch.into())];
        world.command(Command::Produce(Produce { acks: Acks::Written, parts }));
    }
    world.drain();
    world
}

fn ask(world: &mut World, query: OffsetQuery) -> Result<FoundOffset, FetchError> {
    ask_as(world, query, -1, Isolation::ReadUncommitted)
}

fn ask_as(
    world: &mut World,
    query: OffsetQuery,
    current_leader_epoch: i32,
    isolation: Isolation,
) -> Result<FoundOffset, FetchError> {
    let parts = vec![ListOffsetsPart { partition: partition(0), current_leader_epoch, query }];
    let ticket = world.command(Command::ListOffsets(ListOffsets { isolation, parts }));
    world.drain();
    match &world.replies[&ticket] {
        Reply::Offsets(parts) => parts[0],
        other => panic!("{other:?}"),
    }
}

/// Offset and timestamp, −1 where there is none, as on the wire.
fn pair(found: Result<FoundOffset, FetchError>) -> (i64, i64) {
    let found = found.expect("no error");
    (found.offset.map_or(-1, Offset::get), found.timestamp)
}

fn delete(world: &mut World, to: i64) -> Result<Offset, DeleteError> {
    let to = if to == -1 { DeleteTo::End } else { DeleteTo::Offset(Offset(to)) };
    let ticket = world.command(Command::DeleteRecords(vec![(partition(0), to)]));
    world.drain();
    match &world.replies[&ticket] {
        Reply::RecordsDeleted(parts) => parts[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn f17_the_first_record_at_or_after_a_time() {
    let mut world = timed();
    let expected = [
        (0, (0, 5)),
        (5, (0, 5)),
        (6, (1, 9)),
        (8, (1, 9)),
        (9, (1, 9)),
        (10, (3, 20)),
        (20, (3, 20)),
        (21, (4, 30)),
        (30, (4, 30)),
        (31, (-1, -1)),
        (1 << 62, (-1, -1)),
    ];
    for (time, found) in expected {
        assert_eq!(pair(ask(&mut world, OffsetQuery::At(time))), found, "time {time}");
    }
}

#[test]
fn f18_nothing_below_the_log_start_is_ever_told() {
    let mut world = timed();
    assert_eq!(delete(&mut world, 2), Ok(Offset(2)));
    assert_eq!(pair(ask(&mut world, OffsetQuery::At(0))), (2, 7));
    assert_eq!(pair(ask(&mut world, OffsetQuery::Earliest)), (2, -1));
    assert_eq!(delete(&mut world, -1), Ok(Offset(5)));
    assert_eq!(pair(ask(&mut world, OffsetQuery::Earliest)), (5, -1));
    assert_eq!(pair(ask(&mut world, OffsetQuery::Latest)), (5, -1));
    assert_eq!(pair(ask(&mut world, OffsetQuery::At(0))), (-1, -1));
    assert_eq!(pair(ask(&mut world, OffsetQuery::MaxTimestamp)), (-1, -1));
}

#[test]
fn f20_the_record_with_the_highest_timestamp() {
    let mut world = timed();
    assert_eq!(pair(ask(&mut world, OffsetQuery::MaxTimestamp)), (4, 30));
    assert_eq!(pair(ask(&mut world, OffsetQuery::Tiered)), (-1, -1));
}

#[test]
fn latest_obeys_isolation_and_epochs_are_checked() {
    let mut world = World::new();
    let mut open = facts(0, 7, 3);
    open.last_stable = Offset(1);
    world.fact(Fact::PartitionOpened { partition: partition(0), role: PartitionRole::Data, facts: open });
    let latest = OffsetQuery::Latest;
    let uncommitted = ask(&mut world, latest).expect("no error");
    assert_eq!((uncommitted.offset, uncommitted.leader_epoch), (Some(Offset(7)), 3));
    let committed = ask_as(&mut world, latest, 3, Isolation::ReadCommitted).expect("no error");
    assert_eq!(committed.offset, Some(Offset(1)));
    assert_eq!(ask_as(&mut world, latest, 2, Isolation::ReadCommitted), Err(FetchError::FencedEpoch));
    assert_eq!(ask_as(&mut world, latest, 4, Isolation::ReadCommitted), Err(FetchError::UnknownEpoch));
}

#[test]
fn r04_what_is_found_tells_the_epoch_it_was_written_in() {
    let mut world = timed();
    for query in [OffsetQuery::Earliest, OffsetQuery::At(9), OffsetQuery::MaxTimestamp, OffsetQuery::Latest] {
        let found = ask(&mut world, query).expect("no error");
        assert_eq!(found.leader_epoch, EPOCH, "{query:?}");
    }
    delete(&mut world, -1).expect("no error");
    let start = ask(&mut world, OffsetQuery::Earliest).expect("no error");
    assert_eq!((start.offset, start.leader_epoch), (Some(Offset(5)), EPOCH));
}

#[test]
fn f16_unknown_partitions() {
    let mut world = World::new();
    for query in [OffsetQuery::Earliest, OffsetQuery::Latest, OffsetQuery::At(3), OffsetQuery::MaxTimestamp] {
        assert_eq!(ask(&mut world, query), Err(FetchError::UnknownPartition));
    }
}

#[test]
fn f22_cuts() {
    let mut world = timed();
    for (to, start) in [(2, 2), (2, 2), (1, 2), (0, 2), (-1, 5)] {
        assert_eq!(delete(&mut world, to), Ok(Offset(start)), "to {to}");
    }
    for to in [-2, 6, i64::MIN, i64::MAX] {
        assert_eq!(delete(&mut world, to), Err(DeleteError::OutOfRange), "to {to}");
    }
    let unknown = world.command(Command::DeleteRecords(vec![(partition(9), DeleteTo::End)]));
    let Reply::RecordsDeleted(parts) = &world.replies[&unknown] else { panic!("answered at once") };
    assert_eq!(parts, &[Err(DeleteError::Io(IoError::NotOpen))]);
}

#[test]
fn a_cut_wakes_readers_that_fell_out() {
    let mut world = timed();
    // Parked at the end, which the cut makes the start: nothing is lost to it.
    let ticket = world.command(Command::Fetch(tail(partition(0), 5, 1_000)));
    assert_eq!(delete(&mut world, -1), Ok(Offset(5)));
    assert!(world.fetched(ticket).is_none());
    assert_eq!(world.shard.logs()[&partition(0)].log_start, Offset(5));
}
