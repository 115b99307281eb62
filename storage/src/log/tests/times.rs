//! Offsets by time.

use records::{Codec, TimestampType};

use crate::testing::{NOW, World, batch, batch_of, partition};
use crate::{LogConfig, TimedOffset};
use proptest::prelude::*;
use records::ids::Offset;

fn at(world: &mut World, timestamp: i64) -> (i64, i64) {
    pair(world.logs().offset_for_time(partition(0), timestamp).unwrap())
}

fn max(world: &mut World) -> (i64, i64) {
    pair(world.logs().max_timestamp(partition(0)).unwrap())
}

fn pair(found: Option<TimedOffset>) -> (i64, i64) {
    found.map_or((-1, -1), |found| (found.offset.0, found.timestamp))
}

fn two_batches() -> World {
    let mut world = World::new(1);
    world.append(batch_of(Codec::None, &[5, 9, 7])).unwrap();
    world.append(batch_of(Codec::Gzip, &[20, 30])).unwrap();
    world
}

#[test]
fn f17_the_first_record_at_or_after_a_time() {
    let mut world = two_batches();
    for _ in 0..3 {
        let asked = [0, 5, 6, 8, 9, 10, 20, 21, 30, 31, 1 << 62];
        let found: Vec<_> = asked.iter().map(|asked| at(&mut world, *asked)).collect();
        let expected =
            [(0, 5), (0, 5), (1, 9), (1, 9), (1, 9), (3, 20), (3, 20), (4, 30), (4, 30), (-1, -1), (-1, -1)];
        assert_eq!(found, expected);
        world.clean_restart();
        world.kill();
    }
}

#[test]
fn f18_never_below_the_log_start() {
    let mut world = two_batches();
    world.logs().delete_records(partition(0), Offset(2)).unwrap();
    assert_eq!((at(&mut world, 0), max(&mut world)), ((2, 7), (4, 30)));
    world.logs().delete_records(partition(0), Offset(5)).unwrap();
    assert_eq!((at(&mut world, 0), max(&mut world)), ((-1, -1), (-1, -1)));
}

#[test]
fn f18_the_highest_time_of_what_is_left() {
    let mut world = World::new(1);
    world.append(batch_of(Codec::Zstd, &[50, 9, 8, 9])).unwrap();
    world.append(batch_of(Codec::Zstd, &[3])).unwrap();
    assert_eq!(max(&mut world), (0, 50));
    world.logs().delete_records(partition(0), Offset(1)).unwrap();
    assert_eq!(max(&mut world), (1, 9));
    world.logs().delete_records(partition(0), Offset(4)).unwrap();
    assert_eq!(max(&mut world), (4, 3));
}

#[test]
fn f19_append_time_is_the_batchs() {
    let mut world =
        World::with(1, LogConfig { timestamp_type: TimestampType::LogAppend, ..LogConfig::default() });
    world.append(batch(3)).unwrap();
    world.append(batch_of(Codec::Lz4, &[5; 10])).unwrap();
    assert_eq!((at(&mut world, NOW), at(&mut world, NOW + 1)), ((0, NOW), (-1, -1)));
    assert_eq!(max(&mut world), (0, NOW));
}

#[test]
fn f20_the_first_record_that_holds_the_maximum() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut world = World::new(1);
        assert_eq!(max(&mut world), (-1, -1));
        world.append(batch_of(codec, &[5, 9, 7])).unwrap();
        assert_eq!(max(&mut world), (1, 9));
        world.append(batch_of(codec, &[9, 20, 30, 30])).unwrap();
        assert_eq!(max(&mut world), (5, 30));
    }
}

#[test]
fn p05_records_without_a_time() {
    let mut world = World::new(1);
    world.append(batch_of(Codec::None, &[-1, -1])).unwrap();
    assert_eq!((at(&mut world, 0), max(&mut world)), ((-1, -1), (-1, -1)));
    world.append(batch_of(Codec::None, &[0])).unwrap();
    assert_eq!((at(&mut world, 0), max(&mut world)), ((2, 0), (2, 0)));
}

#[test]
fn a_time_index_that_lost_its_end_hides_no_record() {
    for lost_of_active in [false, true] {
        for left in [12, 0] {
            let config = LogConfig { segment_bytes: 1100, index_interval_bytes: 100, ..LogConfig::default() };
            let mut world = World::with(1, config);
            // The youngest stands in the first segment, and not at its end.
            for time in [10, 20, 900, 40, 50, 60, 70, 800, 90, 91, 92, 93, 94, 95] {
                world.append(batch_of(Codec::None, &[time, time])).unwrap();
            }
            let asked = [15, 41, 91, 801, 901];
            let expected: Vec<_> = asked.iter().map(|asked| at(&mut world, *asked)).collect();
            let highest = max(&mut world);
            let second = second_segment(&world);
            assert!(highest.0 < second && second < world.facts().end.0, "{highest:?}");
            world.stop();
            world.restart_after(|disk| {
                let base = if lost_of_active { second } else { 0 };
                disk.open(&format!("t-0/{base:020}.timeindex")).unwrap().set_len(left).unwrap();
            });
            let found: Vec<_> = asked.iter().map(|asked| at(&mut world, *asked)).collect();
            assert_eq!((found, max(&mut world)), (expected, highest), "{left} bytes, {lost_of_active}");
        }
    }
}

fn second_segment(world: &World) -> i64 {
    let entries = world.disk().list("t-0").unwrap();
    let mut bases: Vec<i64> = entries
        .iter()
        .filter_map(|entry| entry.name.strip_suffix(".log"))
        .map(|digits| digits.parse().unwrap())
        .collect();
    bases.sort_unstable();
    bases[1]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_a_plain_search(
        batches in proptest::collection::vec(proptest::collection::vec(-1_i64..60, 1..6), 1..40),
        start in 0_i64..120,
        asked in 0_i64..62,
        restart in 0..3,
    ) {
        let mut world = World::with(1, LogConfig {
            segment_bytes: 1100, index_interval_bytes: 150, ..LogConfig::default()
        });
        for timestamps in &batches {
            world.append(batch_of(Codec::None, timestamps)).unwrap();
        }
        let all: Vec<(i64, i64)> = (0_i64..).zip(batches.concat()).collect();
        let start = start.min(all.len() as i64);
        world.logs().delete_records(partition(0), Offset(start)).unwrap();
        match restart {
            0 => {}
            1 => world.clean_restart(),
            _ => world.kill(),
        }
        let left: Vec<_> = all.into_iter().filter(|(offset, _)| *offset >= start).collect();
        let first = left.iter().find(|(_, timestamp)| *timestamp >= asked).copied();
        prop_assert_eq!(at(&mut world, asked), first.unwrap_or((-1, -1)));
        let highest = left.iter().map(|(_, timestamp)| *timestamp).max().filter(|highest| *highest >= 0);
        let expected = highest.and_then(|highest| left.iter().find(|(_, at)| *at == highest).copied());
        prop_assert_eq!(max(&mut world), expected.unwrap_or((-1, -1)));
    }
}
