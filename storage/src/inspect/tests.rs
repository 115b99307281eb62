//! What verify finds, by breaking one thing at a time.

mod lost;

use std::sync::Arc;

use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

use super::{Depth, PartitionReport, dump, inspect, partitions};
use crate::disk::Disk;
use crate::testing::{NOW, World, batch, batch_of, marker, partition, producer_batch, transactional};
use crate::{LogConfig, StorageError};

fn world() -> World {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1500, index_interval_bytes: 200, ..LogConfig::default() });
    for round in 0..20 {
        world.append(batch_of(Codec::Zstd, &[NOW + round, NOW + round + 5])).unwrap();
        world.append(producer_batch(1, 0, round as i32 * 3, 3)).unwrap();
    }
    world.clean_restart();
    world.append(batch(2)).unwrap();
    world.clean_restart();
    world
}

fn disk(world: &World) -> Arc<dyn Disk> {
    Arc::clone(&world.sim) as Arc<dyn Disk>
}

fn look(world: &World, depth: Depth) -> PartitionReport {
    inspect(&disk(world), "t", 0, depth).unwrap()
}

/// Changes one byte of a file.
fn flip(world: &World, path: &str, position: u64) {
    let file = world.disk().open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], position).unwrap();
}

fn names(world: &World, suffix: &str) -> Vec<String> {
    let entries = world.disk().list("t-0").unwrap();
    entries
        .into_iter()
        .filter(|entry| entry.name.ends_with(suffix) && entry.len > 0)
        .map(|entry| format!("t-0/{}", entry.name))
        .collect()
}

/// Verify finds something in this file.
#[track_caller]
fn found(world: &World, path: &str) {
    let report = look(world, Depth::Verify);
    assert!(report.findings.iter().any(|finding| finding.path == path), "{path}: {:?}", report.findings);
}

#[test]
fn a_sound_log_has_no_findings() {
    let mut world = world();
    assert_eq!(partitions(&*disk(&world)).unwrap(), [("t".to_owned(), 0)]);
    for depth in [Depth::Describe, Depth::Verify] {
        let report = look(&world, depth);
        assert_eq!(report.findings, []);
        assert_eq!((report.log_start, report.end), (Offset(0), Offset(102)));
        assert!(report.segments.len() > 2);
        assert_eq!(report.segments.iter().map(|segment| segment.records).sum::<u64>(), 102);
        assert_eq!(report.segments.iter().map(|segment| segment.batches).sum::<u64>(), 41);
        assert_eq!(report.segments.iter().map(|segment| segment.bytes).sum::<u64>(), world.facts().bytes);
        assert_eq!(report.topic_id, Some(partition(0).topic));
    }
}

#[test]
fn every_flipped_byte_of_a_log_is_found() {
    let world = world();
    let path = &names(&world, ".log")[1];
    let len = world.disk().open(path).unwrap().len().unwrap();
    for position in 0..len {
        flip(&world, path, position);
        let report = look(&world, Depth::Verify);
        // The leader epoch of a batch stands outside of its CRC: a higher one is found where a lower one follows.
        let is_epoch = |at: u64| (12..16).contains(&(at));
        let first = report.findings.first();
        assert!(first.is_some() || is_epoch(position % len), "byte {position}");
        flip(&world, path, position);
    }
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

#[test]
fn what_stands_behind_a_damaged_batch_is_looked_at_too() {
    let world = world();
    let path = &names(&world, ".log")[0];
    let mut positions = Vec::new();
    dump(&disk(&world), "t", 0, Offset(0), |batch| {
        positions.push(batch.position);
        batch.segment == Offset(0)
    })
    .unwrap();
    let (second, sixth) = (positions[1], positions[5]);
    // A record, and of another batch what says that it is one: there the index leads on.
    flip(&world, path, second + 80);
    flip(&world, path, sixth + 16);
    let found: Vec<u64> = look(&world, Depth::Verify)
        .findings
        .iter()
        .filter(|finding| finding.path == *path)
        .filter_map(|finding| finding.position)
        .collect();
    assert_eq!(found, [second, sixth]);
}

#[test]
fn damage_beside_the_log_is_found() {
    for (suffix, position) in [(".index", 3), (".index", 7), (".timeindex", 11), (".snapshot", 9)] {
        let world = world();
        let path = names(&world, suffix).remove(0);
        flip(&world, &path, position);
        found(&world, &path);
    }
    let world = world();
    let path = names(&world, ".index").remove(0);
    world.disk().open(&path).unwrap().write_all_at(&[1], 8 * 100).unwrap();
    found(&world, &path);
    let path = names(&world, ".timeindex").remove(0);
    world.disk().remove_file(&path).unwrap();
    found(&world, &path);
}

#[test]
fn a_missing_segment_and_a_torn_tail_are_found() {
    let world = world();
    let logs = names(&world, ".log");
    world.disk().remove_file(&logs[1]).unwrap();
    found(&world, &logs[2]);
    let last = logs.last().unwrap();
    let file = world.disk().open(last).unwrap();
    file.set_len(file.len().unwrap() - 1).unwrap();
    found(&world, last);
    let position =
        look(&world, Depth::Describe).findings.iter().filter_map(|found| found.position).next_back();
    assert!(position.is_some_and(|position| position < file.len().unwrap()));
}

#[test]
fn torn_share_state_is_found() {
    let mut world = world();
    world.logs().open_events(partition(0), 7).unwrap();
    world.logs().append_events(partition(0), 7, 0, &["an event".into()]).unwrap();
    world.clean_restart();
    let report = look(&world, Depth::Verify);
    assert_eq!(report.findings, []);
    assert!(matches!(report.share_state[..], [(7, bytes)] if bytes > 8), "{:?}", report.share_state);
    let path = names(&world, ".events").remove(0);
    flip(&world, &path, 20);
    found(&world, &path);
}

#[test]
fn damaged_pages_of_share_state_are_found() {
    let mut world = world();
    world.logs().open_events(partition(0), 7).unwrap();
    let pages = [(1, vec![1; 5000].into()), (2, vec![2; 10].into())];
    world.logs().write_snapshot(partition(0), 7, 0, b"snapshot", &pages, &[]).unwrap();
    let before = look(&world, Depth::Verify);
    assert_eq!(before.findings, []);
    assert!(matches!(before.share_state[..], [(7, bytes)] if bytes > 12_288), "{:?}", before.share_state);
    world.clean_restart();
    assert_eq!(look(&world, Depth::Verify).findings, []);
    let path = names(&world, ".pages").remove(0);
    flip(&world, &path, 8192 + 100);
    assert_eq!(look(&world, Depth::Verify).findings, [], "what no page needs is nobody's");
    flip(&world, &path, 8192 + 9);
    found(&world, &path);
    world.stop();
    names(&world, ".events").iter().for_each(|path| world.disk().remove_file(path).unwrap());
    found(&world, &path);
}

#[test]
fn dump_begins_at_the_batch_that_holds_an_offset() {
    let world = world();
    let mut spans = Vec::new();
    dump(&disk(&world), "t", 0, Offset(51), |batch| {
        let view = records::BatchView::parse(&batch.bytes).unwrap();
        spans.push((view.base_offset().0, view.last_offset().0));
        spans.len() < 3
    })
    .unwrap();
    assert_eq!(spans, [(50, 51), (52, 54), (55, 56)]);
    let path = names(&world, ".log").remove(0);
    flip(&world, &path, 16);
    let refused = dump(&disk(&world), "t", 0, Offset(0), |_| true);
    assert!(matches!(refused, Err(StorageError::Damaged { .. })), "{refused:?}");
}

/// Two aborted transactions in the first segment, one across its end; then a committed and an open one.
fn transacted() -> World {
    let mut world = World::new(1);
    for (producer, sequence) in [(5, 0), (6, 0), (5, 2)] {
        world.append(transactional(producer, 0, sequence, "k", 2)).unwrap();
        if producer == 5 {
            world.coordinate(marker(5, 0, false, 0)).unwrap();
        }
    }
    world.logs().log_mut(partition(0)).unwrap().roll().unwrap();
    world.coordinate(marker(6, 0, false, 0)).unwrap();
    world.append(transactional(5, 0, 4, "k", 1)).unwrap();
    world.coordinate(marker(5, 0, true, 7)).unwrap();
    world.append(transactional(6, 0, 2, "k", 1)).unwrap();
    world.clean_restart();
    world
}

/// A log of which every segment has a key index.
fn keyed_world() -> World {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1500, index_interval_bytes: 200, ..LogConfig::default() });
    world.logs().enable_key_index(partition(0)).unwrap();
    for round in 0..20 {
        world.append(batch_of(Codec::Zstd, &[NOW + round, NOW + round + 5])).unwrap();
        world.append(producer_batch(1, 0, round as i32 * 3, 3)).unwrap();
    }
    world.clean_restart();
    world
}

#[test]
fn transactions_are_described() {
    let world = transacted();
    for depth in [Depth::Describe, Depth::Verify] {
        let report = look(&world, depth);
        assert_eq!((&report.findings[..], report.open_since), (&[][..], Some(Offset(11))));
        assert_eq!(report.segments.iter().map(|segment| segment.aborted).collect::<Vec<_>>(), [2, 1]);
    }
    let mut markers = Vec::new();
    dump(&disk(&world), "t", 0, Offset(0), |batch| {
        markers.extend(batch.marker.map(|marker| (marker.commit, marker.coordinator_epoch)));
        true
    })
    .unwrap();
    assert_eq!(markers, [(false, 0), (false, 0), (false, 0), (true, 7)]);
}

#[test]
fn a_wrong_transaction_index_is_found() {
    type Change = fn(&dyn Disk, &str);
    // Version; producer; first, last and last stable offset of the second entry; half an entry; one entry less; none.
    let changes: [Change; 8] = [
        |disk, path| disk.open(path).unwrap().write_all_at(&[1], 1).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[6], 9).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[6], 34 + 17).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[6], 34 + 25).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[8], 34 + 33).unwrap(),
        |disk, path| disk.open(path).unwrap().set_len(60).unwrap(),
        |disk, path| disk.open(path).unwrap().set_len(34).unwrap(),
        |disk, path| disk.remove_file(path).unwrap(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let world = transacted();
        let path = "t-0/00000000000000000000.txnindex";
        assert_eq!(disk(&world).read(path).unwrap().unwrap().len(), 68);
        change(&*disk(&world), path);
        let report = look(&world, Depth::Verify);
        assert!(
            report.findings.iter().any(|finding| finding.path == path),
            "{number}: {:?}",
            report.findings
        );
        assert!(look(&world, Depth::Describe).findings.is_empty());
    }
}

#[test]
fn key_indexes_are_described_and_looked_up_record_by_record() {
    let world = keyed_world();
    for depth in [Depth::Describe, Depth::Verify] {
        let report = look(&world, depth);
        assert_eq!(report.findings, []);
        assert_eq!(report.key_indexes.len(), report.segments.len());
        for (index, segment) in report.key_indexes.iter().zip(&report.segments) {
            assert_eq!((index.base, index.next), (segment.base, segment.end));
            assert_eq!(index.records, segment.records);
        }
    }
}

#[test]
fn a_key_index_that_tells_of_another_log_is_found() {
    // Two logs of the same length, whose keys differ, and a file of one beside the log of the other.
    let logs = ["a", "b"].map(|key| {
        let mut world = World::with(1, LogConfig::default());
        world.logs().enable_key_index(partition(0)).unwrap();
        for number in 0..50 {
            let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
            let name = if number == 31 { key } else { "same" };
            builder.append(NOW, Some(name.as_bytes()), Some(b"v"), &[]);
            world.append(bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
        }
        world.clean_restart();
        world
    });
    let path = names(&logs[0], ".keyindex")[0].clone();
    let bytes = logs[1].disk().read(&path).unwrap().unwrap();
    logs[0].disk().open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
    let report = look(&logs[0], Depth::Verify);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].what.contains("wrong key hash for offset 31"), "{:?}", report.findings);
    assert_eq!(look(&logs[0], Depth::Describe).findings, []);
}

#[test]
fn no_changed_byte_of_a_key_index_makes_it_wrong_unnoticed() {
    let world = keyed_world();
    let path = &names(&world, ".keyindex")[1];
    let len = world.disk().open(path).unwrap().len().unwrap();
    let whole = look(&world, Depth::Verify);
    for position in 0..len {
        flip(&world, path, position);
        let report = look(&world, Depth::Verify);
        // Believed to its end and right, or not believed, or told.
        let index = &report.key_indexes[1];
        assert!(
            !report.findings.is_empty()
                || *index == whole.key_indexes[1]
                || index.next < whole.key_indexes[1].next,
            "byte {position}"
        );
        flip(&world, path, position);
    }
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

#[test]
fn a_partition_that_was_only_read_so_far_is_sound() {
    let mut world = World::with(1, LogConfig::default());
    world.logs().open_events(partition(0), 5).unwrap();
    world.logs().append_events(partition(0), 5, 0, &[bytes::Bytes::from_static(b"event")]).unwrap();
    assert_eq!(look(&world, Depth::Verify).findings, []);
    world.append(batch(1)).unwrap();
    world.clean_restart();
    let path = &names(&world, ".log")[0];
    world.disk().remove_file(path).unwrap();
    assert!(
        look(&world, Depth::Verify).findings.iter().any(|finding| finding.what == "there is no log file")
    );
}

#[test]
fn a_partition_without_records_of_which_the_share_state_was_deleted_is_sound() {
    let mut world = World::with(1, LogConfig::default());
    world.logs().open_events(partition(0), 5).unwrap();
    world.logs().append_events(partition(0), 5, 0, &[bytes::Bytes::from_static(b"event")]).unwrap();
    world.logs().delete_events(partition(0), 5).unwrap();
    world.clean_restart();
    assert_eq!(look(&world, Depth::Verify).findings, []);
}
