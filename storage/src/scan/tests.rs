use super::*;
use crate::LogConfig;
use crate::testing::{NOW, World, batch, batch_of, partition};
use records::batch::{BatchBuilder, stamp};
use records::{Codec, TimestampType};

fn keyed(codec: Codec, keys: &[Option<&str>]) -> bytes::BytesMut {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    for key in keys {
        builder.append(NOW, key.map(str::as_bytes), Some(b"value"), &[]);
    }
    bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])
}

fn scan(world: &mut World, from: i64, bytes_max: u64) -> Scan {
    world.logs().scan(partition(0), Offset(from), bytes_max, Offset::MAX).unwrap()
}

fn spans(scan: &Scan) -> Vec<(i64, i64)> {
    scan.batches.iter().map(|batch| (batch.base.0, batch.last.0)).collect()
}

#[test]
fn finds_the_key_of_every_record_under_every_codec() {
    let mut world = World::new(1);
    let keys = [Some("a"), None, Some("b"), Some("a")];
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let base = world.append(keyed(codec, &keys)).unwrap().base_offset;
        let scan = scan(&mut world, base.0, 1);
        assert_eq!(scan.next, base + 4);
        let ScannedKind::Data(records) = &scan.batches[0].kind else { panic!("{codec:?}") };
        let found: Vec<_> = records.iter().map(|record| (record.offset - base, record.key)).collect();
        let expected: Vec<_> =
            keys.iter().zip(0_i64..).map(|(key, at)| (at, key.map(|key| key_hash(key.as_bytes())))).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn goes_on_where_it_stopped_and_not_beyond_its_bounds() {
    let mut world = World::with(1, LogConfig { segment_bytes: 2048, ..LogConfig::default() });
    for _ in 0..60 {
        world.append(batch(2)).unwrap();
    }
    let (mut from, mut seen) = (0, Vec::new());
    loop {
        let scan = scan(&mut world, from, 500);
        if scan.batches.is_empty() {
            assert_eq!(scan.next, Offset(120));
            break;
        }
        seen.extend(spans(&scan));
        from = scan.next.0;
    }
    assert_eq!(seen, (0..60).map(|batch| (batch * 2, batch * 2 + 1)).collect::<Vec<_>>());
    let below = world.logs().scan(partition(0), Offset(0), 1 << 20, Offset(6)).unwrap();
    assert_eq!((spans(&below), below.next), (vec![(0, 1), (2, 3), (4, 5)], Offset(6)));
    assert!(matches!(
        world.logs().scan(partition(0), Offset(121), 1, Offset::MAX),
        Err(ReadError::OutOfRange { .. })
    ));
}

#[test]
fn markers_are_no_data() {
    let mut world = World::new(1);
    let mut marker = BatchBuilder::new(Codec::None, TimestampType::Create).control();
    marker.append(NOW, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]);
    let marker = bytes::BytesMut::from(&marker.build(Offset(0), -1)[..]);
    world.append(batch(2)).unwrap();
    world.logs().append(partition(0), marker, crate::Origin::Coordinator, NOW).unwrap();
    let scan = scan(&mut world, 0, 1 << 20);
    assert_eq!(scan.batches[1].kind, ScannedKind::Control);
    assert_eq!(scan.next, Offset(3));
}

/// First and last offset, and whether the records could be read.
type Seen = ((i64, i64), bool);

/// Six batches of two, of which the third is damaged at `at`; what the scans say of each.
fn damaged(at: u64, interval: u64) -> (World, Vec<Seen>) {
    let mut world = World::with(1, LogConfig { index_interval_bytes: interval, ..LogConfig::default() });
    let size = batch(2).len() as u64;
    for _ in 0..6 {
        world.append(batch(2)).unwrap();
    }
    let path = "t-0/00000000000000000000.log";
    world.disk().open(path).unwrap().write_all_at(&[0xa5, 0x5a], size * 2 + at).unwrap();
    let (mut from, mut seen) = (0, Vec::new());
    while from < 12 {
        let scan = scan(&mut world, from, 1 << 20);
        assert!(scan.next.0 > from, "a scan always gets on");
        for batch in &scan.batches {
            seen.push(((batch.base.0, batch.last.0), matches!(batch.kind, ScannedKind::Data(_))));
        }
        from = scan.next.0;
    }
    (world, seen)
}

#[test]
fn p13_a_damaged_batch_is_reported_and_the_rest_is_read() {
    // Base offset, length, magic, CRC, last offset delta, payload.
    for at in [0, 6, 8, 10, 16, 17, 23, 25, 57, 64] {
        let (mut world, seen) = damaged(at, 1);
        let expected: Vec<_> = (0..6).map(|batch| ((batch * 2, batch * 2 + 1), batch != 2)).collect();
        assert_eq!(seen, expected, "damage at {at}");
        let corrupt = world.logs().select(partition(0), &[(Offset(0), Offset(5))]).unwrap_err();
        let crate::SelectError::Corrupt { first, last, .. } = corrupt else { panic!("{corrupt}") };
        assert_eq!((first, last), (Offset(4), Offset(5)));
        assert_eq!(world.logs().select(partition(0), &[(Offset(7), Offset(9))]).unwrap().len(), 2);
    }
}

#[test]
fn p13_without_an_index_a_lost_length_costs_the_rest_of_the_segment() {
    let (_, seen) = damaged(16, 1 << 20);
    assert_eq!(seen, [((0, 1), true), ((2, 3), true), ((4, 11), false)]);
}

#[test]
fn p13_what_does_not_inflate_is_damaged_too() {
    let mut world = World::new(1);
    world.append(batch(2)).unwrap();
    let mut garbage = batch_of(Codec::Gzip, &[NOW; 3]).to_vec();
    let len = garbage.len();
    garbage[61..].fill(7);
    garbage[len - 1] = 0;
    let crc = crc32c::crc32c(&garbage[21..]);
    garbage[17..21].copy_from_slice(&crc.to_be_bytes());
    stamp(&mut garbage, Offset(0), 0, None, None);
    world.append(bytes::BytesMut::from(&garbage[..])).unwrap();
    world.append(batch(2)).unwrap();
    let scan = scan(&mut world, 0, 1 << 20);
    assert_eq!(spans(&scan), [(0, 1), (2, 4), (5, 6)]);
    assert!(matches!(scan.batches[1].kind, ScannedKind::Corrupt(_)));
}

#[test]
fn k44_committed_scans_tell_what_was_aborted() {
    use crate::testing::{marker, transactional};

    let mut world = World::new(1);
    world.append(transactional(1, 0, 0, "a", 2)).unwrap();
    world.append(transactional(2, 0, 0, "b", 1)).unwrap();
    world.append(batch(1)).unwrap();
    world.coordinate(marker(1, 0, false, 0)).unwrap();
    world.coordinate(marker(2, 0, true, 0)).unwrap();
    world.append(transactional(1, 0, 2, "a", 1)).unwrap();
    let kinds = |scan: &Scan| -> Vec<(i64, &str)> {
        let kind = |kind: &ScannedKind| match kind {
            ScannedKind::Data(_) => "data",
            ScannedKind::Control => "control",
            ScannedKind::Aborted => "aborted",
            ScannedKind::Corrupt(_) => "corrupt",
        };
        scan.batches.iter().map(|batch| (batch.base.0, kind(&batch.kind))).collect()
    };
    let stable = world.facts().last_stable;
    assert_eq!(stable, Offset(6));
    let committed = world.logs().scan_committed(partition(0), Offset(0), 1 << 20, stable).unwrap();
    let all = [(0, "aborted"), (2, "data"), (3, "data"), (4, "control"), (5, "control")];
    assert_eq!(kinds(&committed), all);
    assert_eq!(committed.next, Offset(6));
    let later = world.logs().scan_committed(partition(0), Offset(1), 1, stable).unwrap();
    assert_eq!(kinds(&later), [(0, "aborted")], "also from within the batch, batch by batch");
    let uncommitted = world.logs().scan(partition(0), Offset(0), 1 << 20, Offset::MAX).unwrap();
    assert_eq!(kinds(&uncommitted)[0], (0, "data"));
    assert_eq!(uncommitted.next, Offset(7));
}
