use super::*;
use crate::testing::{NOW, World, batch_of, partition, spans};
use crate::{LogConfig, Options};
use proptest::prelude::*;

fn select(world: &mut World, ranges: &[(i64, i64)]) -> Result<Vec<Bytes>, SelectError> {
    let ranges: Vec<_> = ranges.iter().map(|(first, last)| (Offset(*first), Offset(*last))).collect();
    world.logs().select(partition(0), &ranges)
}

/// Every offset in the batches, with its value.
fn records(batches: &[Bytes]) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    for bytes in batches {
        let view = BatchView::parse(bytes).unwrap();
        assert_eq!(view.size(), bytes.len());
        assert!(view.crc_is_valid());
        let records = view.records(1 << 20).unwrap();
        let before = found.len();
        found.extend(records.iter().map(|record| {
            let record = record.unwrap();
            (record.offset.0, record.value.unwrap().to_vec())
        }));
        assert_eq!(found.len() - before, view.record_count() as usize);
    }
    found
}

#[test]
fn most_of_a_batch_goes_out_as_it_is_stored() {
    let mut world = World::new(1);
    world.append(batch_of(Codec::Zstd, &[NOW; 20])).unwrap();
    let stored = world.read_all(Offset(0));
    assert_eq!(select(&mut world, &[(0, 14)]).unwrap(), stored);
    assert_eq!(select(&mut world, &[(0, 19)]).unwrap(), stored);
    let slim = select(&mut world, &[(3, 3), (7, 9)]).unwrap();
    let offsets: Vec<_> = records(&slim).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!((slim.len(), offsets), (1, vec![3, 7, 8, 9]));
}

/// Of a record, what a consumer's application sees.
type Shown = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn shown(batches: &[Bytes]) -> Vec<Shown> {
    let mut found = Vec::new();
    for bytes in batches {
        let view = BatchView::parse(bytes).unwrap();
        let records = view.records(1 << 20).unwrap();
        found.extend(records.iter().map(|record| {
            let record = record.unwrap();
            let headers =
                record.headers.iter().map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)));
            let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
            (record.offset.0, record.timestamp, key, value, headers.collect())
        }));
    }
    found
}

/// Twenty records with headers, lz4, a timestamp each.
fn twenty(first: i64) -> bytes::BytesMut {
    let mut builder = records::batch::BatchBuilder::new(Codec::Lz4, records::TimestampType::Create);
    for number in first..first + 20 {
        let text = number.to_string();
        let headers = [
            records::batch::Header { key: b"trace", value: Some(text.as_bytes()) },
            records::batch::Header { key: b"none", value: None },
        ];
        builder.append(NOW - 1_000 + number, Some(text.as_bytes()), Some(b"v"), &headers);
    }
    bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])
}

/// One count too high sticks the Java consumer for good, a wrong CRC makes it reject the records.
#[test]
fn k57_a_slim_batch() {
    use records::TimestampType::{Create, LogAppend};
    for timestamp_type in [LogAppend, Create] {
        // Merged where all have one time, or their own; not where the times of appending differ.
        for apart in [0, 1] {
            let mut world = World::with(1, LogConfig { timestamp_type, ..LogConfig::default() });
            for batch in 0..3 {
                let at = NOW + batch * apart;
                world.logs().append(partition(0), twenty(batch * 20), crate::Origin::Client, at).unwrap();
            }
            let stored = world.read_all(Offset(0));
            let all = shown(&stored);
            let time = |offset: i64| match timestamp_type {
                LogAppend => NOW + offset / 20 * apart,
                Create => NOW - 1_000 + offset,
            };
            assert!(all.iter().all(|record| record.1 == time(record.0)), "as they were appended");
            let check = |batches: &[Bytes], wanted: &[i64]| {
                assert_eq!(records(batches).len(), wanted.len(), "every CRC and every count is right");
                let expected: Vec<_> =
                    all.iter().filter(|record| wanted.contains(&record.0)).cloned().collect();
                assert_eq!(shown(batches), expected, "timestamp, key, value, headers unchanged");
                for bytes in batches {
                    let view = BatchView::parse(bytes).unwrap();
                    assert_eq!(view.attributes().timestamp_type(), timestamp_type);
                    let inside: Vec<i64> =
                        shown(std::slice::from_ref(bytes)).iter().map(|record| record.0).collect();
                    let last = inside[inside.len() - 1];
                    assert_eq!(view.last_offset().0, last, "the last delta fits");
                    assert_eq!(view.max_timestamp(), inside.iter().copied().map(time).max().unwrap());
                }
            };
            let slim = select(&mut world, &[(3, 3), (7, 9)]).unwrap();
            check(&slim, &[3, 7, 8, 9]);
            let view = BatchView::parse(&slim[0]).unwrap();
            assert_eq!((slim.len(), view.record_count(), view.base_offset().0), (1, 4, 0));
            assert_eq!(view.attributes().0 & 0b1000 != 0, timestamp_type == LogAppend, "bit 3");
            assert!(slim[0].len() < stored[0].len());
            assert_eq!(
                select(&mut world, &[(0, 16), (19, 19)]).unwrap(),
                stored[..1],
                "18 of 20: as it is stored"
            );
            let several = select(&mut world, &[(3, 3), (19, 21), (39, 39), (45, 45)]).unwrap();
            check(&several, &[3, 19, 20, 21, 39, 45]);
            let merged = timestamp_type == Create || apart == 0;
            assert_eq!(several.len(), if merged { 1 } else { 3 });
        }
    }
}

#[test]
fn few_records_of_many_batches_join_into_one() {
    let mut world = World::new(1);
    for _ in 0..5 {
        world.append(batch_of(Codec::Lz4, &[NOW; 10])).unwrap();
    }
    let joined = select(&mut world, &[(2, 2), (11, 12), (25, 25), (39, 40)]).unwrap();
    let offsets: Vec<_> = records(&joined).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!((joined.len(), offsets), (1, vec![2, 11, 12, 25, 39, 40]));
    let mixed = select(&mut world, &[(2, 2), (10, 19), (25, 25)]).unwrap();
    assert_eq!(spans(&mixed), [(0, 2), (10, 19), (20, 25)]);
}

#[test]
fn large_slim_batches_of_compressed_records_are_compressed_again() {
    let mut world = World::new(1);
    let mut append = |codec, len: usize| {
        let mut builder = records::batch::BatchBuilder::new(codec, records::TimestampType::Create);
        for _ in 0..10 {
            builder.append(NOW, Some(b"k"), Some(&vec![b'v'; len]), &[]);
        }
        world.append(bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
    };
    append(Codec::Gzip, 3000);
    append(Codec::None, 3000);
    append(Codec::Gzip, 30);
    let codec_of = |batches: Vec<Bytes>| BatchView::parse(&batches[0]).unwrap().attributes().codec().unwrap();
    assert_eq!(codec_of(select(&mut world, &[(1, 3)]).unwrap()), Codec::Lz4);
    assert_eq!(codec_of(select(&mut world, &[(11, 13)]).unwrap()), Codec::None);
    assert_eq!(codec_of(select(&mut world, &[(21, 23)]).unwrap()), Codec::None);
}

#[test]
fn what_is_gone_or_never_was_is_an_error() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.append(batch_of(Codec::None, &[NOW; 10])).unwrap();
    }
    assert!(matches!(select(&mut world, &[(28, 30)]), Err(SelectError::Missing(Offset(30)))));
    select(&mut world, &[(5, 6)]).unwrap();
    world.logs().delete_records(partition(0), Offset(12)).unwrap();
    assert!(matches!(select(&mut world, &[(5, 6)]), Err(SelectError::Gone { log_start: Offset(12) })));
    assert_eq!(records(&select(&mut world, &[(12, 13)]).unwrap()).len(), 2);
    let mut holey = records::batch::BatchBuilder::new(Codec::None, records::TimestampType::Create);
    holey.append_at(0, NOW, Some(b"k"), Some(b"v"), &[]).append_at(4, NOW, Some(b"k"), Some(b"v"), &[]);
    world.append(bytes::BytesMut::from(&holey.build(Offset(0), -1)[..])).unwrap();
    assert_eq!(records(&select(&mut world, &[(30, 30)]).unwrap()).len(), 1);
    for missing in [(31, 31), (33, 34), (30, 31)] {
        assert!(matches!(select(&mut world, &[missing]), Err(SelectError::Missing(_))), "{missing:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_chosen_record_comes_once_and_in_order(
        batches in proptest::collection::vec((1_usize..12, 0_usize..5), 1..30),
        cuts in proptest::collection::btree_set(0_i64..300, 0..60),
        cache in prop_oneof![Just(0_usize), Just(2000), Just(1 << 20)],
        scanned in any::<bool>(),
    ) {
        let config = LogConfig { segment_bytes: 1500, index_interval_bytes: 300, ..LogConfig::default() };
        let mut world = World::with_options(1, config, Options { batch_cache_bytes: cache, ..Options::default() });
        let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
        for &(count, codec) in &batches {
            world.append(batch_of(codecs[codec], &vec![NOW; count])).unwrap();
        }
        let end = world.facts().end.0;
        if scanned {
            world.logs().scan(partition(0), Offset(0), 1 << 20, Offset::MAX).unwrap();
        }
        let cuts: Vec<i64> = cuts.into_iter().filter(|cut| *cut < end).collect();
        let ranges: Vec<(i64, i64)> = cuts.chunks_exact(2).map(|pair| (pair[0], pair[1] - 1)).collect();
        let answer = select(&mut world, &ranges).unwrap();
        let wanted: Vec<i64> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
        let stored = records(&world.read_all(Offset(0)));
        let delivered = records(&answer);
        prop_assert!(delivered.windows(2).all(|pair| pair[0].0 < pair[1].0), "ascending, none twice");
        prop_assert!(wanted.iter().all(|offset| delivered.iter().any(|(found, _)| found == offset)));
        prop_assert!(delivered.iter().all(|record| stored.contains(record)), "as stored");
        for batch in &answer {
            let view = BatchView::parse(batch).unwrap();
            let inside = wanted.iter().any(|offset| {
                (view.base_offset().0..=view.last_offset().0).contains(offset)
            });
            prop_assert!(inside, "no batch without a chosen record");
        }
    }
}
