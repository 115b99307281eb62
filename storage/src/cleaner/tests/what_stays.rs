//! Which records stay, and what of them.

use proptest::prelude::*;
use records::batch::Header;
use records::{Batches, key_hash};

use super::*;
use crate::{Options, Origin, ReadError, ScannedKind, SelectError};

fn of_producer(id: i64, records: &[(&str, Option<&str>)]) -> BytesMut {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).producer(id, 0, 0);
    for (key, value) in records {
        builder.append(NOW, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

#[test]
fn f14_the_last_record_of_each_key_stays_as_it_was() {
    for codec in Codec::ALL {
        let mut world = World::with(1, compacted());
        let mut builder = BatchBuilder::new(codec, TimestampType::Create).producer(5, 0, 0);
        for (index, key) in ["a", "b", "a", "b"].iter().enumerate() {
            let header = [Header { key: b"h", value: Some(key.as_bytes()) }];
            builder.append(NOW + index as i64, Some(key.as_bytes()), Some(b"v"), &header);
        }
        world.append(BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
        put(&mut world, "a", "last");
        roll(&mut world);
        put(&mut world, "z", "active");
        assert_eq!(clean(&mut world, NOW), 1);

        let batches = world.read_all(Offset(0));
        let left = records_of(&batches);
        assert_eq!(keys(&left), [(3, "b"), (4, "a"), (5, "z")], "{codec:?}");
        let view = BatchView::parse(&batches[0]).unwrap();
        assert_eq!((view.base_offset(), view.last_offset(), view.record_count()), (Offset(0), Offset(3), 1));
        assert_eq!(view.attributes().codec(), Ok(codec));
        let kept = view.records(1000).unwrap();
        let kept = kept.iter().next().unwrap().unwrap();
        assert_eq!((kept.timestamp, kept.headers.len()), (NOW + 3, 1));
        assert_eq!(kept.headers.iter().next().unwrap().value, Some(&b"b"[..]));
        // A removed offset gives the next one; the end stays.
        for from in 0..=5 {
            assert_eq!(records_of(&world.read_all(Offset(from))).last(), left.last());
        }
        assert_eq!(world.facts().end, Offset(6));
        assert_eq!(put(&mut world, "n", "next"), 6);
    }
}

#[test]
fn reads_scans_and_selections_pass_holes_and_emptied_batches() {
    let mut world = World::with(1, compacted());
    for round in 0..60 {
        put(&mut world, &format!("k{}", round % 3), &format!("v{round}"));
    }
    roll(&mut world);
    // A producer's last batch, which later records replace: emptied, not dropped.
    world.append(of_producer(9, &[("k0", Some("v"))])).unwrap();
    put(&mut world, "k0", "newer");
    roll(&mut world);
    put(&mut world, "k3", "active");
    clean(&mut world, NOW);
    let left = read(&mut world);
    assert_eq!(keys(&left), [(58, "k1"), (59, "k2"), (61, "k0"), (62, "k3")]);
    assert_eq!(world.read_all(Offset(0)).len(), 5, "four with a record, one without");
    for restart in 0..3 {
        match restart {
            0 => {}
            1 => world.clean_restart(),
            _ => world.kill(),
        }
        for from in 0..=62 {
            let slice = world.logs().read(partition(0), Offset(from), 1, Offset::MAX, true).unwrap();
            let bytes = slice.read().unwrap();
            let first = BatchView::parse(&bytes).unwrap();
            assert!(first.record_count() > 0, "an answer does not begin with an emptied batch");
            let found = records_of(&world.read_all(Offset(from)));
            let expected = left.iter().skip_while(|(offset, ..)| *offset < from);
            assert!(found.iter().eq(expected), "from {from}: {found:?}");
        }
        let (mut from, mut offsets) = (Offset(0), Vec::new());
        while from < Offset(63) {
            let scan = world.logs().scan(partition(0), from, 200, Offset::MAX).unwrap();
            assert!(scan.next > from);
            from = scan.next;
            for batch in scan.batches {
                let ScannedKind::Data(records) = batch.kind else { panic!("{batch:?}") };
                offsets.extend(records.into_iter().map(|record| (record.offset.0, record.key)));
            }
        }
        let expected: Vec<_> =
            left.iter().map(|(offset, key, _)| (*offset, Some(key_hash(key.as_bytes())))).collect();
        assert_eq!(offsets, expected);
    }
    let chosen: Vec<_> = left.iter().map(|(offset, ..)| (Offset(*offset), Offset(*offset))).collect();
    assert_eq!(records_of(&world.logs().select(partition(0), &chosen).unwrap()), left);
    let gone = world.logs().select(partition(0), &[(Offset(60), Offset(60))]);
    assert!(matches!(gone, Err(SelectError::Missing(Offset(60)))), "{gone:?}");
}

#[test]
fn a_reader_that_was_at_work_goes_on_in_the_compacted_segment() {
    let mut world = World::with(1, LogConfig { segment_bytes: 10_000, ..compacted() });
    put(&mut world, "first", "v");
    for round in 0..30 {
        put(&mut world, &format!("k{round}"), "v");
    }
    put(&mut world, "first", "w");
    roll(&mut world);
    put(&mut world, "active", "v");
    // Each of these leaves behind where the next batch stood.
    for from in (0..32).step_by(2) {
        world.logs().read(partition(0), Offset(from), 1, Offset::MAX, true).unwrap();
    }
    clean(&mut world, NOW);
    for from in 1..32 {
        let slice = world.logs().read(partition(0), Offset(from), 1, Offset::MAX, true).unwrap();
        let bytes = slice.read().unwrap();
        assert_eq!(BatchView::parse(&bytes).unwrap().base_offset(), Offset(from));
    }
}

#[test]
fn what_was_scanned_before_is_not_served_from_memory_afterwards() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "old");
    put(&mut world, "a", "new");
    roll(&mut world);
    put(&mut world, "b", "v");
    let scan = world.logs().scan(partition(0), Offset(0), 10_000, Offset::MAX).unwrap();
    assert_eq!(scan.batches.len(), 2);
    clean(&mut world, NOW);
    let gone = world.logs().select(partition(0), &[(Offset(0), Offset(0))]);
    assert!(matches!(gone, Err(SelectError::Missing(_))), "{gone:?}");
}

#[test]
fn f14_a_reader_of_emptied_batches_alone_comes_to_the_end() {
    let mut world = World::with(1, compacted());
    for producer in 0..20 {
        world.append(of_producer(producer, &[("k", None)])).unwrap();
    }
    roll(&mut world);
    put(&mut world, "k", "v");
    roll(&mut world);
    put(&mut world, "active", "v");
    clean(&mut world, NOW);
    assert_eq!(keys(&read(&mut world)), [(20, "k"), (21, "active")]);
    let upper = Offset(20);
    let mut from = Offset(0);
    let mut passed = 0;
    while from < upper {
        let slice = world.logs().read(partition(0), from, 100, upper, true).unwrap();
        let bytes = slice.read().unwrap();
        let batch = BatchView::parse(&bytes).unwrap();
        assert_eq!((batch.record_count(), batch.base_offset()), (0, from));
        from = batch.next_offset();
        passed += 1;
    }
    assert_eq!(passed, 20);
}

#[test]
fn a_producers_last_sequence_survives_the_compaction_of_its_records() {
    let mut world = World::with(1, compacted());
    world.append(of_producer(7, &[("a", Some("v")), ("b", Some("v"))])).unwrap();
    put(&mut world, "a", "newer");
    put(&mut world, "b", "newer");
    roll(&mut world);
    put(&mut world, "c", "active");
    clean(&mut world, NOW);
    assert_eq!(keys(&read(&mut world)), [(2, "a"), (3, "b"), (4, "c")]);
    world.restart_after(|disk| {
        for entry in disk.list("t-0").unwrap() {
            if entry.name.ends_with(".snapshot") || entry.name.ends_with(".producers") {
                disk.remove_file(&format!("t-0/{}", entry.name)).unwrap();
            }
        }
    });
    let again = world.append(of_producer(7, &[("a", Some("v")), ("b", Some("v"))])).unwrap();
    assert_eq!((again.duplicate, again.base_offset, again.last_offset), (true, Offset(0), Offset(1)));
}

#[test]
fn tombstones_stay_for_their_time_and_no_longer() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "v");
    put(&mut world, "b", "v");
    world.append(batch_of(Codec::Lz4, &[("a", None)])).unwrap();
    roll(&mut world);
    put(&mut world, "c", "v");
    assert_eq!(clean(&mut world, NOW), 1);
    assert_eq!(keys(&read(&mut world)), [(1, "b"), (2, "a"), (3, "c")]);
    let horizon = |world: &mut World| {
        let batches = world.read_all(Offset(2));
        let view = BatchView::parse(&batches[0]).unwrap();
        assert!(view.attributes().has_delete_horizon());
        assert_eq!((view.base_offset(), view.max_timestamp(), view.record_count()), (Offset(2), NOW, 1));
        view.base_timestamp()
    };
    assert_eq!(horizon(&mut world), NOW + 1000);
    // A compaction before the horizon keeps it, and does not move it.
    roll(&mut world);
    put(&mut world, "d", "v");
    clean(&mut world, NOW + 999);
    assert_eq!(horizon(&mut world), NOW + 1000);
    roll(&mut world);
    put(&mut world, "e", "v");
    clean(&mut world, NOW + 1000);
    assert_eq!(keys(&read(&mut world)), [(1, "b"), (3, "c"), (4, "d"), (5, "e")]);
}

#[test]
fn records_without_a_key_go() {
    let mut world = World::with(1, LogConfig { compact: false, ..compacted() });
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    builder.append(NOW, None, Some(b"v"), &[]).append(NOW, Some(b"k"), Some(b"v"), &[]);
    world.append(BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW), 0);
    world.logs().configure(partition(0), compacted()).unwrap();
    assert_eq!(clean(&mut world, NOW), 1);
    assert_eq!(keys(&read(&mut world)), [(1, "k")]);
}

#[test]
fn p13_a_batch_that_does_not_decode_stays_as_it_is() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "old");
    let mut poison = batch_of(Codec::Gzip, &[("a", Some("poison"))]);
    let size = poison.len();
    poison[70..size].fill(b'!');
    let crc = crc32c::crc32c(&poison[21..]);
    poison[17..21].copy_from_slice(&crc.to_be_bytes());
    world.append(poison).unwrap();
    put(&mut world, "a", "new");
    roll(&mut world);
    put(&mut world, "b", "v");
    assert_eq!(clean(&mut world, NOW), 1);
    let batches = world.read_all(Offset(0));
    assert_eq!(crate::testing::spans(&batches), [(1, 1), (2, 2), (3, 3)]);
    assert!(BatchView::parse(&batches[0]).unwrap().records(1000).is_err());
    assert_eq!(world.logs().cleaning_facts(partition(0)).unwrap().uncleanable, None);
}

#[test]
fn a_map_that_is_full_leaves_the_rest_to_the_next_run() {
    let mut options = Options::default();
    options.cleaner.dedupe_bytes = 2000;
    let mut world = World::with_options(1, compacted(), options);
    for round in 0..2 {
        for key in 0..300 {
            put(&mut world, &format!("key {key}"), &format!("{round}"));
        }
    }
    roll(&mut world);
    put(&mut world, "z", "active");
    let runs = clean(&mut world, NOW);
    assert!(runs > 5, "{runs} runs");
    let left = read(&mut world);
    assert_eq!(left.len(), 301);
    for (found, key) in left.iter().zip(0..300) {
        assert_eq!(*found, (300 + key, format!("key {key}"), Some("1".to_owned())));
    }
    let facts = world.logs().cleaning_facts(partition(0)).unwrap();
    assert_eq!((facts.cleaned_to, facts.runs), (Some(Offset(600)), runs as u64));
    assert!(facts.read_bytes > facts.written_bytes && facts.written_bytes > 0);
}

#[test]
fn a_batch_of_more_keys_than_there_is_room_for_is_compacted_in_pieces() {
    let mut options = Options::default();
    options.cleaner.dedupe_bytes = 1;
    let mut world = World::with_options(1, LogConfig { segment_bytes: 100_000, ..compacted() }, options);
    let names: Vec<String> = (0..400).map(|key| format!("key {}", key % 200)).collect();
    let records: Vec<_> = names.iter().map(|name| (name.as_str(), Some("v"))).collect();
    world.append(batch_of(Codec::Zstd, &records)).unwrap();
    roll(&mut world);
    put(&mut world, "z", "active");
    clean(&mut world, NOW);
    let left = read(&mut world);
    assert_eq!(left.len(), 201);
    assert_eq!((left[0].0, left[199].0), (200, 399));
}

#[test]
fn f19_times_are_found_among_what_is_left() {
    for timestamp_type in [TimestampType::Create, TimestampType::LogAppend] {
        let mut world = World::with(1, LogConfig { timestamp_type, ..compacted() });
        let append = |world: &mut World, key: &str, at: i64| {
            let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).producer(at, 0, 0);
            builder.append(at, Some(b"same"), Some(b"v"), &[]);
            builder.append(at, Some(key.as_bytes()), Some(b"v"), &[]);
            let batch = BytesMut::from(&builder.build(Offset(0), -1)[..]);
            world.logs().append(partition(0), batch, Origin::Client, at).unwrap();
        };
        for (key, at) in [("a", 10), ("b", 90), ("a", 30), ("b", 40)] {
            append(&mut world, key, at);
        }
        roll(&mut world);
        append(&mut world, "c", 50);
        clean(&mut world, NOW);
        assert_eq!(keys(&read(&mut world)), [(5, "a"), (6, "same"), (7, "b"), (8, "same"), (9, "c")]);
        for restart in 0..3 {
            let found: Vec<_> = [0, 30, 31, 41, 60]
                .iter()
                .map(|at| world.logs().offset_for_time(partition(0), *at).unwrap())
                .map(|found| found.map(|found| found.offset.0))
                .collect();
            assert_eq!(found, [Some(5), Some(5), Some(6), Some(8), None], "{timestamp_type:?}");
            let last = world.logs().max_timestamp(partition(0)).unwrap().unwrap();
            assert_eq!((last.offset, last.timestamp), (Offset(8), 50));
            if restart == 0 { world.clean_restart() } else { world.kill() }
        }
    }
}

#[test]
fn below_the_log_start_nothing_is_read_again() {
    let mut world = World::with(1, compacted());
    for round in 0..40 {
        put(&mut world, &format!("k{}", round % 30), "v");
    }
    roll(&mut world);
    put(&mut world, "z", "v");
    world.logs().delete_records(partition(0), Offset(35)).unwrap();
    clean(&mut world, NOW);
    assert_eq!(world.facts().log_start, Offset(35));
    let below = world.logs().read(partition(0), Offset(34), 100, Offset::MAX, true);
    assert!(matches!(below, Err(ReadError::OutOfRange { .. })));
    assert_eq!(keys(&records_of(&world.read_all(Offset(35))))[0], (35, "k5"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn reads_agree_with_the_records_wherever_they_begin_and_end(
        batches in proptest::collection::vec(proptest::collection::vec(0_u8..9, 1..5), 1..50),
        upper in 0_i64..200,
    ) {
        let mut world = World::with(1, compacted());
        for (producer, batch) in batches.iter().enumerate() {
            let names: Vec<String> = batch.iter().map(|key| format!("k{key}")).collect();
            let records: Vec<_> = names.iter().map(|name| (name.as_str(), Some("v"))).collect();
            // Every other batch is its producer's last one, and is emptied instead of dropped.
            let batch = match producer % 2 {
                0 => batch_of(Codec::None, &records),
                _ => of_producer(producer as i64, &records),
            };
            world.append(batch).unwrap();
        }
        clean(&mut world, NOW);
        let all = read(&mut world);
        let end = world.facts().end;
        for from in 0..end.0 {
            let upper = Offset(upper.clamp(from, end.0));
            let mut at = Offset(from);
            let mut found = Vec::new();
            while at < upper {
                let slice = world.logs().read(partition(0), at, 150, upper, true).unwrap();
                if slice.is_empty() {
                    break;
                }
                let bytes = slice.read().unwrap();
                for batch in Batches::new(&bytes) {
                    let batch = batch.unwrap();
                    prop_assert!(batch.base_offset() < upper && batch.next_offset() > at);
                    at = batch.next_offset();
                    found.push(Bytes::copy_from_slice(batch.bytes()));
                }
            }
            let wanted = |(offset, ..): &&Seen| (from..upper.0).contains(offset);
            let found = records_of(&found);
            let found: Vec<&Seen> = found.iter().filter(wanted).collect();
            prop_assert_eq!(found, all.iter().filter(wanted).collect::<Vec<_>>());
        }
    }
}
