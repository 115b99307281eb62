//! Offsets that are gone, and batches that cannot be read.

use records::batch::{BatchBuilder, stamp};
use records::ids::{KeyHash, Offset};
use records::{Codec, TimestampType};

use super::super::{KeyFilter, KeyedRecord};
use super::{TINY, check, control_batch, hash, name};
use crate::testing::{NOW, World, partition};
use crate::{LogConfig, Origin};

/// A batch as compaction leaves it: records at these deltas, and perhaps no longer any at its last offset.
fn compacted(base: i64, records: &[(i32, u32)], last_delta: i32, epoch: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::Lz4, TimestampType::Create);
    for &(delta, number) in records {
        builder.append_at(delta, NOW, name(number).as_deref().map(str::as_bytes), Some(b"v"), &[]);
    }
    builder.last_offset_delta(last_delta);
    let mut bytes = builder.build(Offset(0), -1).to_vec();
    stamp(&mut bytes, Offset(base), epoch, None, None);
    bytes
}

/// A log of two segments that compaction has thinned out.
fn thinned() -> (World, Vec<KeyedRecord>) {
    let mut world = World::with(1, LogConfig { segment_bytes: 100_000, ..LogConfig::default() });
    world.append(control_batch()).unwrap();
    world.stop();
    let mut records = Vec::new();
    let mut segments = [Vec::new(), Vec::new()];
    let mut base = 0;
    for index in 0..120_i64 {
        let segment = usize::from(index >= 60);
        if index == 60 {
            base = 2_000_000;
        }
        let chosen: Vec<(i32, u32)> = (0..index as i32 % 5 + 1)
            .map(|step| (step * 3 + 1, (index as u32 * 7 + step as u32) % 11))
            .collect();
        records.extend(chosen.iter().map(|&(delta, number)| KeyedRecord {
            offset: Offset(base + i64::from(delta)),
            key: hash(number),
        }));
        segments[segment].extend(compacted(base, &chosen, 14, 0));
        base += 15 + index % 3 * 40 + i64::from(index == 30) * 900_000;
    }
    world.restart_after(|disk| {
        for (base, bytes) in [(0, &segments[0]), (2_000_000, &segments[1])] {
            let file = disk.create(&format!("t-0/{base:020}.log")).unwrap();
            file.write_all_at(bytes, 0).unwrap();
        }
        disk.remove_file(".kafka_cleanshutdown").unwrap();
        disk.write_atomic("cleaner-offset-checkpoint", b"0\n1\nt 0 9000000\n").unwrap();
        disk.remove_file("recovery-point-offset-checkpoint").unwrap();
    });
    (world, records)
}

#[test]
fn a_compacted_log() {
    let (mut world, records) = thinned();
    let filters = [
        KeyFilter::key(hash(3).unwrap()),
        KeyFilter::key(KeyHash(77)),
        KeyFilter::lane(0, 2),
        KeyFilter::lane(5, 16),
        KeyFilter::range(KeyHash(5), KeyHash(4)),
    ];
    check(&mut world, &records, &filters);
    world.enable_keys(TINY);
    world.build_keys(700);
    check(&mut world, &records, &filters);
    world.build_all_keys();
    check(&mut world, &records, &filters);
    world.clean_restart();
    world.enable_keys(TINY);
    check(&mut world, &records, &filters);
    let step = world.build_keys(1);
    assert!(!step.more && step.bytes <= 1, "what was written is taken up: {step:?}");
    check(&mut world, &records, &filters);
}

#[test]
fn markers_have_no_record() {
    let mut world = World::new(1);
    world.enable_keys(TINY);
    let mut records = Vec::new();
    for index in 0..100 {
        if index % 3 == 0 {
            world.logs().append(partition(0), control_batch(), Origin::Coordinator, NOW).unwrap();
        } else {
            let appended = world.append_keys(Codec::None, &[index, 0], index % 2 == 0);
            records.push(KeyedRecord { offset: appended.base_offset, key: hash(index) });
            records.push(KeyedRecord { offset: appended.last_offset, key: None });
        }
    }
    assert!(world.key_facts().is_complete());
    check(&mut world, &records, &[KeyFilter::key(hash(7).unwrap()), KeyFilter::lane(1, 3)]);
}

#[test]
fn a_damaged_batch_is_named_and_passed_over() {
    for on_disk in [false, true] {
        let mut world = World::with(3, LogConfig { segment_bytes: 4096, ..LogConfig::default() });
        let mut records = Vec::new();
        for index in 0..60_u32 {
            let appended = world.append_keys(Codec::None, &[index % 5 + 1, 0, index], false);
            for (number, offset) in [index % 5 + 1, 0, index].into_iter().zip(appended.base_offset.0..) {
                records.push(KeyedRecord { offset: Offset(offset), key: hash(number) });
            }
        }
        let size = super::batch_of_keys(Codec::None, &[1, 0, 2]).len() as u64;
        let file = world.disk().open(&format!("t-0/{:020}.log", 0)).unwrap();
        // The second batch is cut into; the fourth says that it is another codec's.
        file.write_all_at(b"xxxx", size + 70).unwrap();
        let damaged = vec![(Offset(3), Offset(5))];
        records.retain(|record| !(3..6).contains(&record.offset.0));
        world.enable_keys(TINY);
        if on_disk {
            world.build_all_keys();
            world.clean_restart();
            world.enable_keys(TINY);
        }
        check(&mut world, &records, &[KeyFilter::key(hash(2).unwrap()), KeyFilter::lane(0, 2)]);
        let found = world.logs().key_hashes(partition(0), Offset(0), Offset(30), 1000).unwrap();
        assert_eq!(found.damaged, damaged);
        let found = world.logs().key_hashes(partition(0), Offset(4), Offset(5), 1000).unwrap();
        assert_eq!((found.damaged.len(), found.records.len(), found.next), (1, 0, Offset(5)));
        let found = world.logs().key_hashes(partition(0), Offset(6), Offset(30), 1000).unwrap();
        assert_eq!(found.damaged, []);
    }
}

#[test]
fn p13_a_batch_that_does_not_decode_is_named_and_passed_over() {
    let mut world = World::new(1);
    world.enable_keys(TINY);
    world.append_keys(Codec::None, &[1, 2], true);
    let mut bytes = super::batch_of_keys(Codec::None, &[3, 4]);
    let end = bytes.len();
    bytes[end - 20..].fill(0xff);
    stamp(&mut bytes, Offset(0), -1, None, Some(NOW + 1));
    world.append(bytes).unwrap();
    world.append_keys(Codec::None, &[1], true);
    let records = [(0, 1), (1, 2), (4, 1)]
        .map(|(offset, number)| KeyedRecord { offset: Offset(offset), key: hash(number) });
    assert!(world.key_facts().is_complete());
    for _ in 0..2 {
        check(&mut world, &records, &[KeyFilter::key(hash(1).unwrap())]);
        let found = world.logs().key_hashes(partition(0), Offset(0), Offset(5), 1000).unwrap();
        assert_eq!(found.damaged, [(Offset(2), Offset(3))]);
        world.logs().drop_key_index(partition(0)).unwrap();
        assert_eq!(world.key_files(), []);
    }
}
