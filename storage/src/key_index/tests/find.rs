//! Searches for the records of a key: what is committed and still there comes, in order, and nothing else.

use proptest::prelude::*;
use records::batch::BatchBuilder;
use records::ids::{KeyHash, Offset};
use records::{Codec, TimestampType, key_hash};

use super::TINY;
use crate::options::{KEY_FIND_BATCHES_MAX, KEY_FIND_SCAN_BYTES};
use crate::scan::ScannedKind;
use crate::testing::{NOW, World, batch, marker, partition, transactional};
use crate::{LogConfig, ReadError};

const ABORT: bool = false;
const COMMIT: bool = true;

fn key(name: &str) -> KeyHash {
    key_hash(name.as_bytes())
}

/// All that searches give from `from` on, `count_max` at a time.
fn found(
    world: &mut World,
    name: &str,
    (from, upper): (i64, i64),
    committed: bool,
    count_max: usize,
) -> Vec<i64> {
    let (mut at, mut offsets) = (Offset(from), Vec::new());
    let upper = Offset(upper).min(world.facts().end);
    while at < upper {
        let part = world.logs().find_key(partition(0), key(name), (at, upper), committed, count_max).unwrap();
        assert!(part.next > at && part.next <= upper, "a search goes on: {at} {part:?}");
        assert!(part.records.len() <= count_max);
        let inside = |record: &crate::ScannedRecord| (at..part.next).contains(&record.offset);
        assert!(part.records.iter().all(inside), "{part:?}");
        assert!(part.records.iter().all(|record| record.key == Some(key(name)) && record.bytes > 0));
        offsets.extend(part.records.iter().map(|record| record.offset.0));
        at = part.next;
    }
    offsets
}

/// What a plain scan gives.
fn scanned(world: &mut World, name: &str, (from, upper): (i64, i64), committed: bool) -> Vec<i64> {
    let facts = world.facts();
    let (mut at, mut offsets) = (Offset(from).max(facts.log_start), Vec::new());
    let upper = Offset(upper).min(facts.end);
    while at < upper {
        let scan = if committed {
            world.logs().scan_committed(partition(0), at, 1000, upper).unwrap()
        } else {
            world.logs().scan(partition(0), at, 1000, upper).unwrap()
        };
        for batch in &scan.batches {
            let ScannedKind::Data(records) = &batch.kind else { continue };
            let of_key = records.iter().filter(|record| record.key == Some(key(name)));
            let inside = of_key.filter(|record| at <= record.offset && record.offset < upper);
            offsets.extend(inside.map(|record| record.offset.0));
        }
        at = scan.next;
    }
    offsets
}

fn roll(world: &mut World) {
    let log = world.logs().log_mut(partition(0)).unwrap();
    if log.sources().last().is_some_and(|active| active.bytes > 0) {
        log.roll().unwrap();
    }
}

#[test]
fn k65_what_was_aborted_or_left_the_log_is_not_found() {
    for indexed in [false, true] {
        let mut world = World::with(1, LogConfig { segment_bytes: 2000, ..LogConfig::default() });
        if indexed {
            world.enable_keys(TINY);
        }
        let mut sequence = 0;
        let mut transaction = |world: &mut World, name: &str, batches: i32, commit: bool| {
            let mut offsets = Vec::new();
            for _ in 0..batches {
                let appended = world.append(transactional(1, 0, sequence, name, 2)).unwrap();
                sequence += 2;
                offsets.extend([appended.base_offset.0, appended.last_offset.0]);
                // Of no transaction, in between.
                world.append(batch(1)).unwrap();
            }
            world.coordinate(marker(1, 0, commit, 0)).unwrap();
            offsets
        };
        let mut expected = transaction(&mut world, "hot", 10, COMMIT);
        let aborted = transaction(&mut world, "hot", 30, ABORT);
        expected.extend(transaction(&mut world, "hot", 5, COMMIT));
        let plain = world.append_keys(Codec::None, &[1, 1], false).base_offset;
        let end = world.facts().end.0;
        for count_max in [1, 7, 1000] {
            assert_eq!(found(&mut world, "hot", (0, end), true, count_max), expected, "indexed {indexed}");
        }
        let mut all: Vec<i64> = expected.iter().chain(&aborted).copied().collect();
        all.sort_unstable();
        assert_eq!(found(&mut world, "hot", (0, end), false, 1000), all);
        assert_eq!(found(&mut world, "key 1", (0, end), true, 1000), [plain.0, plain.0 + 1]);
        world.sync();
        let to = aborted[7] + 1;
        world.logs().delete_records(partition(0), Offset(to)).unwrap();
        let left: Vec<i64> = expected.iter().copied().filter(|offset| *offset >= to).collect();
        let part =
            world.logs().find_key(partition(0), key("hot"), (Offset(0), Offset(end)), true, 1).unwrap();
        assert!(part.records.first().is_none_or(|record| record.offset.0 == left[0]), "{part:?}");
        assert_eq!(found(&mut world, "hot", (0, end), true, 1000), left, "from the log start on");
        let part = world.logs().find_key(partition(0), key("hot"), (Offset(0), Offset(3)), true, 9).unwrap();
        assert_eq!((part.records.len(), part.next), (0, Offset(3)), "all of it is gone");
        let behind = (Offset(end), Offset(end + 9));
        let part = world.logs().find_key(partition(0), key("hot"), behind, true, 9).unwrap();
        assert_eq!((part.records.len(), part.next), (0, Offset(end)), "nothing is there yet");
    }
}

#[test]
fn a_search_is_bounded_and_goes_on() {
    let mut world = World::with(1, LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() });
    world.enable_keys(super::Limits::default());
    let count = KEY_FIND_BATCHES_MAX as i64 + 20;
    for sequence in 0..count {
        world.append(transactional(1, 0, sequence as i32, "hot", 1)).unwrap();
    }
    world.coordinate(marker(1, 0, ABORT, 0)).unwrap();
    let last = world.append(batch(1)).unwrap().base_offset;
    let of = |world: &mut World, from: i64| {
        world.logs().find_key(partition(0), key("hot"), (Offset(from), last), true, 1000).unwrap()
    };
    let part = of(&mut world, 0);
    assert_eq!(
        (part.records.len(), part.next),
        (0, Offset(KEY_FIND_BATCHES_MAX as i64)),
        "batches looked up"
    );
    let part = of(&mut world, part.next.0);
    assert_eq!((part.records.len(), part.next), (0, last));
    world.logs().drop_key_index(partition(0)).unwrap();
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    builder.append(NOW, Some(b"big"), Some(&vec![0; 200_000]), &[]);
    let big = builder.build(Offset(0), -1);
    for _ in 0..15 {
        world.append(bytes::BytesMut::from(&big[..])).unwrap();
    }
    let end = world.facts().end;
    let part = world.logs().find_key(partition(0), key("none"), (Offset(0), end), true, 1000).unwrap();
    assert!(part.next < end, "without an index it reads {KEY_FIND_SCAN_BYTES} bytes at a time: {part:?}");
    assert_eq!(found(&mut world, "big", (0, end.0), true, 1000).len(), 15);
    assert!(matches!(
        world.logs().find_key(partition(9), key("big"), (Offset(0), end), true, 1),
        Err(ReadError::UnknownPartition)
    ));
}

#[test]
fn the_size_is_that_of_a_record_of_the_batch_on_average() {
    let mut world = World::new(1);
    let bytes = world.append_keys(Codec::None, &[1, 2, 3, 4], false).bytes;
    let end = world.facts().end;
    let part = world.logs().find_key(partition(0), key("key 3"), (Offset(0), end), true, 9).unwrap();
    assert_eq!(part.records.len(), 1);
    assert_eq!(u64::from(part.records[0].bytes), bytes / 4);
}

#[derive(Clone, Debug)]
enum Step {
    Plain { names: Vec<u8> },
    Transactional { producer: i64, name: u8, count: usize },
    End { producer: i64, commit: bool },
    Roll,
    DeleteRecords { part: i64 },
    Enable,
    Build { bytes: u64 },
    Restart,
    Find { name: u8, part: i64, count_max: usize, committed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(0_u8..4, 1..8).prop_map(|names| Step::Plain { names }),
        12 => (1_i64..4, 0_u8..4, 1_usize..4)
            .prop_map(|(producer, name, count)| Step::Transactional { producer, name, count }),
        7 => (1_i64..4, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
        1 => Just(Step::Roll),
        1 => (0_i64..4).prop_map(|part| Step::DeleteRecords { part }),
        1 => Just(Step::Enable),
        3 => (1_u64..3000).prop_map(|bytes| Step::Build { bytes }),
        1 => Just(Step::Restart),
        4 => (0_u8..5, 0_i64..5, 1_usize..9, any::<bool>())
            .prop_map(|(name, part, count_max, committed)| Step::Find { name, part, count_max, committed }),
    ]
}

fn name_of(number: u8) -> String {
    format!("n{number}")
}

#[derive(Debug, Default)]
struct Producers {
    sequences: [i32; 4],
    open: [bool; 4],
}

fn run(world: &mut World, producers: &mut Producers, step: &Step) {
    match step {
        Step::Plain { names } => {
            let mut builder = BatchBuilder::new(Codec::Lz4, TimestampType::Create);
            for name in names {
                builder.append(NOW, Some(name_of(*name).as_bytes()), Some(b"value"), &[]);
            }
            world.append(bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
        }
        Step::Transactional { producer, name, count } => {
            let index = *producer as usize;
            let sequence = producers.sequences[index];
            world.append(transactional(*producer, 0, sequence, &name_of(*name), *count)).unwrap();
            producers.sequences[index] += *count as i32;
            producers.open[index] = true;
        }
        Step::End { producer, commit } => {
            if std::mem::take(&mut producers.open[*producer as usize]) {
                world.coordinate(marker(*producer, 0, *commit, 0)).unwrap();
            }
        }
        Step::Roll => roll(world),
        Step::DeleteRecords { part } => {
            world.sync();
            let facts = world.facts();
            let to = facts.log_start + (facts.last_stable - facts.log_start) * part / 6;
            world.logs().delete_records(partition(0), to).unwrap();
        }
        Step::Enable => world.enable_keys(TINY),
        Step::Build { bytes } => {
            world.build_keys(*bytes);
        }
        Step::Restart => world.clean_restart(),
        Step::Find { name, part, count_max, committed } => {
            let facts = world.facts();
            let upper = if *committed { facts.last_stable } else { facts.end };
            let from = facts.log_start + (upper - facts.log_start) * part / 6;
            let name = name_of(*name);
            let expected = scanned(world, &name, (from.0, upper.0), *committed);
            let come = found(world, &name, (from.0, upper.0), *committed, *count_max);
            assert_eq!(come, expected, "{step:?} from {from} to {upper}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn a_search_finds_what_a_scan_finds(
        seed in any::<u64>(),
        enabled in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let config = LogConfig { segment_bytes: 3000, index_interval_bytes: 300, ..LogConfig::default() };
        let mut world = World::with(seed, config);
        if enabled {
            world.enable_keys(TINY);
        }
        let mut producers = Producers::default();
        for step in &steps {
            run(&mut world, &mut producers, step);
        }
        for name in 0..5 {
            for committed in [true, false] {
                run(&mut world, &mut producers, &Step::Find { name, part: 0, count_max: 5, committed });
            }
        }
    }
}

/// `SLUICE_SIM_CASES` asks for more runs than the tests of every day take.
fn cases() -> u32 {
    std::env::var("SLUICE_SIM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}
