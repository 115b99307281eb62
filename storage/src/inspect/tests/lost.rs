//! What an operator, or a disk, takes away or garbles beside the logs.

use records::ids::{Offset, TopicId};

use super::{World, batch, disk, look, names, partition, world};
use crate::inspect::{Depth, Finding, root};
use crate::testing::{marker, transactional};
use crate::{LogConfig, Metadata, TopicMetadata};

const EPOCHS: &str = "t-0/leader-epoch-checkpoint";

/// Verify finds something whose path and text contain these.
#[track_caller]
fn told(world: &World, path: &str, what: &str) {
    let found = look(world, Depth::Verify).findings;
    let is_told = found.iter().any(|finding| finding.path == path && finding.what.contains(what));
    assert!(is_told, "{path}: {what}: {found:?}");
}

fn write(world: &World, path: &str, bytes: &[u8]) {
    world.disk().create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

fn of_segment(world: &World, number: usize) -> Vec<String> {
    let log = names(world, ".log")[number].clone();
    let base = log.strip_suffix(".log").unwrap().to_owned();
    let names = world.disk().list("t-0").unwrap().into_iter().map(|entry| format!("t-0/{}", entry.name));
    names.filter(|name| name.starts_with(&base)).collect()
}

#[test]
fn a_last_segment_that_is_gone_is_found() {
    for is_all in [true, false] {
        let mut world = world();
        world.stop();
        let last = names(&world, ".log").len() - 1;
        let files = of_segment(&world, last);
        for path in files.iter().filter(|path| is_all || path.ends_with(".log")) {
            world.disk().remove_file(path).unwrap();
        }
        told(&world, "t-0", "it was synced up to 102");
        if !is_all {
            let index =
                files.iter().find(|path| path.ends_with("0.index") || path.ends_with(".index")).unwrap();
            told(&world, index, "stands beside no log file");
        }
        // The recovery point alone tells of it, too.
        world.disk().remove_file(".kafka_cleanshutdown").unwrap();
        told(&world, "t-0", "it was synced up to 102");
    }
}

#[test]
fn a_time_index_that_lost_its_end_is_found() {
    let mut world = world();
    world.stop();
    for path in names(&world, ".timeindex") {
        let whole = world.disk().read(&path).unwrap().unwrap();
        world.disk().open(&path).unwrap().set_len(whole.len() as u64 - 12).unwrap();
        told(&world, &path, "lost its end");
        write(&world, &path, &whole);
    }
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

#[test]
fn a_middle_segment_that_is_gone_is_found_between_compacted_ones_too() {
    let mut world = world();
    world.stop();
    write(&world, "sluice-holes-offset-checkpoint", b"0\n1\nt 0 80\n");
    assert_eq!(look(&world, Depth::Verify).findings, []);
    let log = names(&world, ".log")[1].clone();
    for path in of_segment(&world, 1) {
        world.disk().remove_file(&path).unwrap();
    }
    told(&world, &log, "is missing");
}

#[test]
fn a_log_that_is_longer_or_shorter_than_it_was_closed_is_found() {
    let mut world = world();
    world.stop();
    write(&world, "recovery-point-offset-checkpoint", b"0\n1\nt 0 7\n");
    write(&world, "replication-offset-checkpoint", b"0\n1\nt 0 103\n");
    told(&world, "t-0", "ends at 102, it was closed at 103");
    write(&world, "replication-offset-checkpoint", b"0\n1\nt 0 101\n");
    told(&world, "t-0", "ends at 102, it was closed at 101");
    // Of one that was killed nothing says where it ended.
    world.disk().remove_file(".kafka_cleanshutdown").unwrap();
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

#[test]
fn a_first_segment_that_is_gone_is_found_and_one_that_was_deleted_is_not() {
    let mut lost = world();
    lost.stop();
    for path in of_segment(&lost, 0) {
        lost.disk().remove_file(&path).unwrap();
    }
    told(&lost, "t-0", "nothing below was deleted from 0 on");
    let mut deleted = world();
    let second = look(&deleted, Depth::Describe).segments[1].base;
    deleted.logs().delete_records(partition(0), second + 1).unwrap();
    deleted.stop();
    assert!(look(&deleted, Depth::Verify).segments[0].base >= second);
    assert_eq!(look(&deleted, Depth::Verify).findings, []);
    deleted.disk().remove_file("log-start-offset-checkpoint").unwrap();
    told(&deleted, "t-0", "nothing below was deleted from 0 on");
}

#[test]
fn leader_epochs_that_are_not_those_of_the_batches_are_found() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.append(batch(5)).unwrap();
        world.sync();
        world.kill();
    }
    world.append(batch(5)).unwrap();
    world.stop();
    let sound = world.disk().read(EPOCHS).unwrap().unwrap();
    assert_eq!(sound, b"0\n4\n0 0\n1 5\n2 10\n3 15\n");
    assert_eq!(look(&world, Depth::Verify).findings, []);
    for (text, what) in [
        (&b"0\n9\nhello\n"[..], "is no leader epoch checkpoint"),
        (b"0\n1\n3", "is no leader epoch checkpoint"),
        (b"", "is empty, although batches bear"),
        (b"0\n0\n", "tells of no epoch at 0, the batch there bears 0"),
        (b"0\n1\n99 0\n", "tells of epoch 99 at 0, the batch there bears 0"),
        (b"0\n3\n0 0\n1 5\n3 15\n", "tells of epoch 1 at 10, the batch there bears 2"),
        (b"0\n4\n0 0\n1 4\n2 10\n3 15\n", "epoch 1 begins at 4, but no batch of it does"),
        (b"0\n5\n0 0\n1 5\n2 10\n3 15\n4 17\n", "epoch 4 begins at 17, but no batch of it does"),
        (b"0\n5\n0 0\n1 5\n2 10\n3 15\n4 21\n", "behind the log's end 20"),
        (b"0\n3\n1 5\n2 10\n3 15\n", "tells of no epoch at 0, the batch there bears 0"),
    ] {
        write(&world, EPOCHS, text);
        told(&world, EPOCHS, what);
    }
    world.disk().remove_file(EPOCHS).unwrap();
    told(&world, EPOCHS, "is missing, although batches bear");
    assert_eq!(look(&world, Depth::Describe).findings, []);
}

#[test]
fn a_log_start_that_was_lost_is_told_by_the_epochs() {
    let mut world = World::new(1);
    world.append(batch(10)).unwrap();
    world.logs().delete_records(partition(0), Offset(4)).unwrap();
    world.stop();
    assert_eq!(look(&world, Depth::Verify).findings, []);
    world.disk().remove_file("log-start-offset-checkpoint").unwrap();
    told(&world, EPOCHS, "tells of no epoch at 0");
}

#[test]
fn what_belongs_to_nothing_is_found_after_an_orderly_stop_only() {
    let mut world = world();
    world.stop();
    let snapshot = names(&world, ".snapshot").pop().unwrap();
    let bytes = world.disk().read(&snapshot).unwrap().unwrap();
    for name in
        ["00000000000000000001.index", "00000000000000000001.timeindex", "00000000000000000001.txnindex"]
    {
        write(&world, &format!("t-0/{name}"), b"");
        told(&world, &format!("t-0/{name}"), "stands beside no log file");
    }
    write(&world, "t-0/00000000000000000777.snapshot", &bytes);
    told(&world, "t-0/00000000000000000777.snapshot", "behind the log's end 102");
    write(&world, "t-0/00000000000000000778.producers", b"");
    told(&world, "t-0/00000000000000000778.producers", "stands beside no producer snapshot");
    write(&world, "t-0/00000000000000000000.log.swap", b"");
    told(&world, "t-0/00000000000000000000.log.swap", "no compaction was under way");
    write(&world, "t-0/share-7.0.events", b"");
    told(&world, "t-0/share-7.0.events", "is empty");
    world.disk().remove_file(".kafka_cleanshutdown").unwrap();
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

#[test]
fn epochs_of_deleted_records_need_not_be_known() {
    for deleted in [9, 10] {
        let mut world = World::new(1);
        world.append(batch(5)).unwrap();
        world.append(batch(5)).unwrap();
        world.logs().delete_records(partition(0), Offset(deleted)).unwrap();
        world.clean_restart();
        world.stop();
        world.disk().remove_file(EPOCHS).unwrap();
        if deleted < 10 {
            told(&world, EPOCHS, "is missing");
        } else {
            assert_eq!(look(&world, Depth::Verify).findings, []);
        }
    }
}

#[test]
fn an_empty_log_behind_a_log_start_is_sound() {
    let mut world = World::new(1);
    world.append(batch(10)).unwrap();
    world.logs().delete_records(partition(0), Offset(10)).unwrap();
    world.clean_restart();
    world.stop();
    assert_eq!(look(&world, Depth::Verify).findings, []);
}

/// A data directory with a metadata store, stopped in order.
fn stopped() -> World {
    let mut world = World::with(1, LogConfig::default());
    let metadata = Metadata::open(&world.disk());
    // The logs claimed the directory already, as they do not in a broker.
    assert!(metadata.is_err());
    world.disk().remove_file("meta.properties").unwrap();
    let metadata = Metadata::open(&world.disk()).unwrap();
    let topic = TopicMetadata {
        name: "t".into(),
        id: partition(0).topic,
        partitions: 2,
        configs: Default::default(),
    };
    metadata.create_topic(&topic).unwrap();
    assert_eq!(metadata.group_number("a group").unwrap(), 0);
    metadata.begin_boot(false).unwrap();
    drop(metadata);
    world.append(batch(10)).unwrap();
    world.logs().delete_records(partition(0), Offset(4)).unwrap();
    world.logs().open_events(partition(0), 0).unwrap();
    world.logs().append_events(partition(0), 0, 0, &["an event".into()]).unwrap();
    world.stop();
    write(&world, "meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n");
    assert_eq!(root(&*disk(&world)).unwrap(), []);
    assert_eq!(look(&world, Depth::Verify).findings, []);
    world
}

#[track_caller]
fn root_tells(world: &World, path: &str, what: &str) {
    let found: Vec<Finding> = root(&*disk(world)).unwrap();
    let is_told = found.iter().any(|finding| finding.path == path && finding.what.contains(what));
    assert!(is_told, "{path}: {what}: {found:?}");
}

#[test]
fn checkpoints_that_are_none_are_found() {
    for file in [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "sluice-holes-offset-checkpoint",
    ] {
        let world = stopped();
        for text in [&b"x"[..], b"", b"\xff\xfe", b"0\n5\nt 0 1\n", b"0\n1\nt 0 1"] {
            write(&world, file, text);
            root_tells(&world, file, "is no offset checkpoint");
        }
        write(&world, file, b"0\n1\nt 0 -5\n");
        root_tells(&world, file, "names offset -5 of t-0");
    }
    for file in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        let world = stopped();
        world.disk().remove_file(file).unwrap();
        root_tells(&world, file, "is missing");
        // A start that was killed before it wrote any.
        world.disk().remove_file(".kafka_cleanshutdown").unwrap();
        assert_eq!(root(&*disk(&world)).unwrap(), []);
    }
}

#[test]
fn partitions_that_are_named_and_not_there_are_found() {
    let world = stopped();
    world.disk().remove_dir_all("t-0").unwrap();
    root_tells(&world, "t-0", "is missing, but recovery-point-offset-checkpoint names its offset 10");
    assert_eq!(root(&*disk(&world)).unwrap().len(), 1, "once");
    world.disk().remove_file(".kafka_cleanshutdown").unwrap();
    root_tells(&world, "t-0", "is missing");
}

#[test]
fn a_metadata_store_that_is_gone_or_damaged_is_found() {
    const STORE: &str = "sluice-metadata.redb";
    let world = stopped();
    let sound = world.disk().read(STORE).unwrap().unwrap();
    let len = sound.len();
    for cut in [0, 1, 100, 4096, len / 2, len - 1] {
        write(&world, STORE, &sound[..cut]);
        root_tells(&world, STORE, "is damaged");
    }
    let mut garbled = sound.clone();
    garbled[..200].fill(0x55);
    write(&world, STORE, &garbled);
    root_tells(&world, STORE, "is damaged");
    let mut found = 0;
    for position in (0..len).step_by(1009) {
        let mut flipped = sound.clone();
        flipped[position] ^= 0x10;
        write(&world, STORE, &flipped);
        found += usize::from(!root(&*disk(&world)).unwrap().is_empty());
    }
    assert!(found > 0, "pages are checked");
    world.disk().remove_file(STORE).unwrap();
    root_tells(&world, STORE, "is missing");
    assert_eq!(world.disk().list("").unwrap().iter().filter(|entry| entry.name == STORE).count(), 0);
}

#[test]
fn what_the_metadata_store_does_not_know_is_found() {
    let world = stopped();
    world.disk().create_dir("u-0").unwrap();
    assert_eq!(root(&*disk(&world)).unwrap(), [], "what holds no file of ours is no partition");
    write(&world, "u-0/00000000000000000000.log", b"");
    root_tells(&world, "u-0", "knows no such partition");
    world.disk().create_dir("t-2").unwrap();
    write(&world, "t-2/00000000000000000000.log", b"");
    root_tells(&world, "t-2", "knows no such partition");
    let other = crate::data_dir::base64(&TopicId([3; 16]).0);
    write(&world, "t-0/partition.metadata", format!("version: 0\ntopic_id: {other}").as_bytes());
    root_tells(&world, "t-0", "another topic of that name");
    write(&world, "t-0/partition.metadata", b"");
    root_tells(&world, "t-0/partition.metadata", "names no topic");
    write(&world, "t-0/share-1.0.events", b"");
    root_tells(&world, "t-0/share-1.0.events", "no group ever had this number");
    world.disk().remove_file("meta.properties").unwrap();
    root_tells(&world, "meta.properties", "is missing");
}

/// Where an entry's fields stand: producer, first, last and last stable offset.
const FIELDS: [usize; 4] = [2, 10, 18, 26];

#[test]
fn every_field_of_an_aborted_transaction_is_compared() {
    // A committed transaction of the same producer in front, another one open beside it.
    let mut world = World::new(1);
    let mut sequence = 0;
    for commit in [true, false, true, false] {
        world.append(transactional(5, 0, sequence, "k", 3)).unwrap();
        sequence += 3;
        world.append(batch(2)).unwrap();
        world.coordinate(marker(5, 0, commit, 0)).unwrap();
    }
    world.append(transactional(6, 0, 0, "k", 1)).unwrap();
    world.append(transactional(5, 0, sequence, "k", 1)).unwrap();
    world.coordinate(marker(5, 0, false, 0)).unwrap();
    world.stop();
    let path = "t-0/00000000000000000000.txnindex";
    let sound = world.disk().read(path).unwrap().unwrap();
    assert_eq!(sound.len(), 3 * 34);
    assert_eq!(look(&world, Depth::Verify).findings, []);
    for entry in 0..3 {
        for field in FIELDS {
            for change in [-9, -4, -3, -1, 1, 3, 1 << 32] {
                let mut bytes = sound.clone();
                let place = &mut bytes[entry * 34 + field..entry * 34 + field + 8];
                let value = i64::from_be_bytes((&*place).try_into().unwrap()) + change;
                place.copy_from_slice(&value.to_be_bytes());
                write(&world, path, &bytes);
                let found = look(&world, Depth::Verify).findings;
                assert!(
                    found.iter().any(|finding| finding.path == path),
                    "{entry} {field} {change}: {found:?}"
                );
            }
        }
    }
}
