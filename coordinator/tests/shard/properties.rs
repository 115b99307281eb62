//! Random schedules: whatever the order of completions, the promises hold (the world checks them at every step), and
//! every request ends.

use coordinator::command::{Acks, Command, ConnectionId, Fact, Fetch, Isolation, Produce, Ticket};
use coordinator::time::Micros;
use proptest::prelude::*;

use crate::fetch::{fetch, part};
use crate::world::{World, batch, partition};

const PARTITIONS: i32 = 3;

#[derive(Clone, Debug)]
enum Act {
    Produce { acks: Acks, to: Vec<(i32, usize)> },
    Fetch { connection: u64, from: Vec<(i32, i64)>, wait_ms: i32, bytes_min: u64, bytes_max: u64 },
    Serve(usize),
    Pass(u64),
    Close(u64),
    GiveWay(usize),
    FailAppend,
    FailSync,
    Cut(i32),
}

fn act() -> impl Strategy<Value = Act> {
    let acks = prop_oneof![Just(Acks::Written), Just(Acks::Synced)];
    let to = proptest::collection::vec((0..PARTITIONS, 0..300_usize), 1..3);
    let from = proptest::collection::vec((0..=PARTITIONS, 0..12_i64), 1..4);
    prop_oneof![
        4 => (acks, to).prop_map(|(acks, to)| Act::Produce { acks, to }),
        4 => (0..4_u64, from, 0..400_i32, prop_oneof![Just(1), 0..3_000_u64], 1..3_000_u64).prop_map(
            |(connection, from, wait_ms, bytes_min, bytes_max)| Act::Fetch {
                connection,
                from,
                wait_ms,
                bytes_min,
                bytes_max
            }
        ),
        12 => any::<usize>().prop_map(Act::Serve),
        2 => (0..150_000_u64).prop_map(Act::Pass),
        1 => (0..4_u64).prop_map(Act::Close),
        1 => any::<usize>().prop_map(Act::GiveWay),
        1 => Just(Act::FailAppend),
        1 => Just(Act::FailSync),
        1 => (0..PARTITIONS).prop_map(Act::Cut),
    ]
}

#[derive(Default)]
struct Asked {
    fetches: Vec<(Ticket, Fetch, coordinator::time::Mono)>,
    others: Vec<Ticket>,
    closed: std::collections::BTreeSet<Ticket>,
}

fn play(world: &mut World, asked: &mut Asked, act: &Act) {
    match act {
        Act::Produce { acks, to } => {
            let parts =
                to.iter().map(|(index, bytes)| (partition(*index), batch(2, *bytes).into())).collect();
            asked.others.push(world.command(Command::Produce(Produce { acks: *acks, parts })));
        }
        Act::Fetch { connection, from, wait_ms, bytes_min, bytes_max } => {
            let parts = from.iter().map(|(index, offset)| part(partition(*index), *offset)).collect();
            let isolation =
                if *bytes_min % 2 == 0 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
            let fetch = Fetch {
                connection: ConnectionId(*connection),
                bytes_min: *bytes_min,
                bytes_max: *bytes_max,
                isolation,
                ..fetch(parts, *wait_ms)
            };
            let asked_at = world.now.mono;
            let ticket = world.command(Command::Fetch(fetch.clone()));
            asked.fetches.push((ticket, fetch, asked_at));
        }
        Act::Serve(pick) => {
            let lanes: Vec<_> = world.queues.keys().copied().collect();
            if !lanes.is_empty() {
                world.serve(lanes[pick % lanes.len()]);
            }
        }
        Act::Pass(micros) => {
            world.advance_to(world.now.mono + Micros(*micros));
            world.round([]);
            assert!(world.shard.next_deadline().is_none_or(|deadline| deadline > world.now.mono));
        }
        Act::Close(connection) => {
            world.fact(Fact::ConnectionClosed(ConnectionId(*connection)));
            let gone = asked.fetches.iter().filter(|(_, fetch, _)| fetch.connection.0 == *connection);
            asked.closed.extend(gone.map(|(ticket, ..)| *ticket));
        }
        Act::GiveWay(pick) => {
            if !asked.fetches.is_empty() {
                let ticket = asked.fetches[pick % asked.fetches.len()].0;
                world.fact(Fact::GiveWay(ticket));
            }
        }
        Act::FailAppend => world.failing_appends += 1,
        Act::FailSync => world.failing_syncs += 1,
        Act::Cut(index) => {
            let to = coordinator::command::DeleteTo::End;
            asked.others.push(world.command(Command::DeleteRecords(vec![(partition(*index), to)])));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn promises_hold_and_every_request_ends(acts in proptest::collection::vec(act(), 1..80)) {
        let mut world = World::new();
        for index in 0..PARTITIONS {
            world.open(partition(index));
        }
        let mut asked = Asked::default();
        for act in &acts {
            play(&mut world, &mut asked, act);
        }
        world.drain();
        world.pass(500);
        world.drain();
        for ticket in &asked.others {
            prop_assert!(world.replies.contains_key(ticket));
        }
        for (ticket, ..) in &asked.fetches {
            prop_assert!(world.replies.contains_key(ticket) || asked.closed.contains(ticket));
        }
        prop_assert_eq!(world.shard.fetch_counts(), (0, 0));
        prop_assert_eq!(world.shard.next_deadline(), None);
    }

    /// With a disk that answers at once no fetch outlives its wait, and it ends before only for a reason.
    #[test]
    fn a_wait_ends_at_its_deadline_or_for_a_reason(acts in proptest::collection::vec(act(), 1..40)) {
        let mut world = World::new();
        for index in 0..PARTITIONS {
            world.open(partition(index));
        }
        let mut asked = Asked::default();
        for act in &acts {
            match act {
                Act::Pass(micros) => world.pass(i64::try_from(micros / 1_000).expect("short")),
                Act::Close(_) | Act::GiveWay(_) | Act::FailAppend | Act::FailSync => {}
                act => play(&mut world, &mut asked, act),
            }
            world.drain();
        }
        world.pass(500);
        for (ticket, fetch, asked_at) in &asked.fetches {
            let wait = Micros::from_ms(i64::from(fetch.wait_max_ms));
            let ended = world.replied_at[ticket];
            prop_assert!(ended <= *asked_at + wait);
            if ended < *asked_at + wait {
                let parts = world.fetched(*ticket).expect("a fetch is answered as one");
                let bytes: u64 = parts.iter().flatten().flat_map(|part| &part.data).map(|data| data.len() as u64).sum();
                let enough = bytes >= fetch.bytes_min.min(fetch.bytes_max);
                prop_assert!(enough || parts.iter().any(Result::is_err), "{fetch:?} ended early with {bytes} bytes");
            }
        }
    }
}
