//! What is kept, what is left alone, and what alone may be removed.

use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use super::*;
use crate::disk::SimDisk;
use crate::testing::{NOW, TOPIC, batch, partition};
use crate::{Boot, DataDir, LogConfig, Options, Origin, TopicMetadata};

fn start(sim: &Arc<SimDisk>, boot: u64) -> (Logs, Metadata) {
    let disk = Arc::clone(sim) as Arc<dyn Disk>;
    let data_dir = DataDir::open(Arc::clone(&disk)).unwrap();
    let metadata = Metadata::open(&disk).unwrap();
    let boot = Boot { boot, leader_epoch: boot as i32 };
    (Logs::open(data_dir, Options::default(), boot).unwrap(), metadata)
}

fn topic(name: &str, id: u8, partitions: i32) -> TopicMetadata {
    let configs = std::collections::BTreeMap::new();
    TopicMetadata { name: name.to_owned(), id: TopicId([id; 16]), partitions, configs }
}

fn directories(disk: &dyn Disk) -> Vec<String> {
    let entries = disk.list("").unwrap().into_iter().filter(|entry| entry.is_dir);
    entries.map(|entry| entry.name).collect()
}

fn put(disk: &dyn Disk, path: &str) {
    disk.create_dir(crate::disk::parent(path)).unwrap();
    disk.create(path).unwrap().write_all_at(b"mine", 0).unwrap();
}

#[test]
fn only_what_we_would_write_is_the_name_of_a_partition() {
    let longest = format!("{}-{}", "n".repeat(249), i32::MAX);
    for good in ["t-0", "a.b_c-d-12", "x-delete-0", longest.as_str()] {
        let (topic, index) = parse_directory(good).unwrap();
        assert_eq!(directory_name(&(topic.to_owned(), index)), good);
    }
    let too_long = format!("{}-0", "n".repeat(250));
    let bad =
        ["t", "t-", "-0", "t-00", "t-007", "t-+1", "t-2147483648", "my photos-7", ".-1", "..-1", &too_long];
    for bad in bad {
        assert_eq!(parse_directory(bad), None, "{bad}");
    }
}

#[test]
fn names_of_deleted_and_strays_fit_and_nobody_elses_is_taken_for_one() {
    let topic = TopicId([0xab; 16]);
    for name in ["t", "a.b-c", &"n".repeat(249)] {
        let mut seen = BTreeSet::new();
        for index in [0, 1, 9, 10, 10_000, i32::MAX] {
            let retired = capped(&format!("{name}-{index}"), &format!(".{topic:?}{DELETED}"));
            assert!(retired.len() <= 255 && is_deleted(&retired), "{retired}");
            assert!(seen.insert(retired), "two partitions, one name");
            let stray = capped(&format!("{name}-{index}"), &format!(".{topic:?}.999{STRAY}"));
            assert!(stray.len() <= 255 && !is_deleted(&stray) && parse_directory(&stray).is_none());
        }
    }
    let upper = format!("t-0.{}-delete", "AB".repeat(16));
    let short = format!("t-0.{}-delete", "ab".repeat(15));
    let unnamed = format!("t.{}-delete", "ab".repeat(16));
    for other in ["photos-delete", "t-0-delete", "t-0.-delete", &upper, &short, &unnamed] {
        assert!(!is_deleted(other), "{other}");
    }
}

#[test]
fn a_start_keeps_all_that_the_store_does_not_know() {
    let sim = Arc::new(SimDisk::new(1));
    let (mut logs, metadata) = start(&sim, 1);
    metadata.create_topic(&topic("known", 1, 1)).unwrap();
    let mut lives: Vec<(&str, PartitionId)> = Vec::new();
    for (name, id, index) in [("known", 1, 0), ("known", 1, 1), ("later", 2, 0), ("later", 2, 12)] {
        let id = PartitionId { topic: TopicId([id; 16]), index };
        logs.open_partition(id, name, LogConfig::default()).unwrap();
        logs.append(id, batch(3), Origin::Client, NOW).unwrap();
        lives.push((name, id));
    }
    logs.close().unwrap();
    drop(metadata);
    // None of these is ours.
    let foreign = [
        "photos-7/one.jpg",
        "photos-delete/two.jpg",
        "known-00/three.jpg",
        "lost-stray/four",
        "known-1.old/five",
    ];
    foreign.iter().for_each(|path| put(&*sim, path));
    sim.create_dir("empty-3").unwrap();

    let (mut logs, metadata) = start(&sim, 2);
    logs.sweep(&metadata).unwrap();
    for path in foreign {
        assert_eq!(sim.read(path).unwrap().unwrap(), b"mine", "{path}");
    }
    let left = directories(&*sim);
    assert!(left.contains(&"empty-3".to_owned()) && left.contains(&"known-0".to_owned()), "{left:?}");
    for (name, id) in &lives[1..] {
        let aside = format!("{name}-{}.{:?}-stray", id.index, id.topic);
        assert!(left.contains(&aside) && !left.contains(&format!("{name}-{}", id.index)), "{left:?}");
        assert!(sim.read_len(&format!("{aside}/{:020}.log", 0)).unwrap() > Some(0), "{aside}");
    }
    // Once more changes nothing, and what has its name back has its records back.
    logs.sweep(&metadata).unwrap();
    assert_eq!(directories(&*sim), left);
    drop((logs, metadata));
    sim.rename(&format!("later-12.{:?}-stray", TopicId([2; 16])), "later-12").unwrap();
    let (mut logs, metadata) = start(&sim, 3);
    metadata.create_topic(&topic("later", 2, 13)).unwrap();
    logs.sweep(&metadata).unwrap();
    let (name, id) = lives[3];
    assert_eq!(logs.open_partition(id, name, LogConfig::default()).unwrap().end, Offset(3));
}

#[test]
fn a_directory_whose_id_is_another_one_is_kept_each_time() {
    let sim = Arc::new(SimDisk::new(1));
    for life in 0..4 {
        let (mut logs, metadata) = start(&sim, life);
        metadata.create_topic(&topic("t", 9, 1)).unwrap();
        logs.sweep(&metadata).unwrap();
        let facts = logs.open_partition(partition(0), TOPIC, LogConfig::default()).unwrap();
        assert_eq!(facts.end, Offset(0));
        logs.append(partition(0), batch(2), Origin::Client, NOW).unwrap();
        drop((logs, metadata));
        // As if the store had been put back to another topic of that name, each time the same one.
        write_other(&*sim);
    }
    let strays: Vec<String> = directories(&*sim).into_iter().filter(|name| name.ends_with(STRAY)).collect();
    assert_eq!(strays.len(), 3, "{strays:?}");
    for stray in strays {
        assert!(sim.read_len(&format!("{stray}/{:020}.log", 0)).unwrap() > Some(0), "{stray}");
    }
}

fn write_other(disk: &dyn Disk) {
    crate::log::write_topic_id(disk, "t-0", TopicId([3; 16])).unwrap();
}

#[test]
fn what_an_import_left_unfinished_is_removed_and_nothing_else_of_that_time() {
    let sim = Arc::new(SimDisk::new(1));
    let (mut logs, metadata) = start(&sim, 1);
    let [ours, other] = [4, 5].map(|id| PartitionId { topic: TopicId([id; 16]), index: 0 });
    for (id, name) in [(ours, "copied"), (other, "other")] {
        logs.open_partition(id, name, LogConfig::default()).unwrap();
        logs.append(id, batch(1), Origin::Client, NOW).unwrap();
    }
    metadata.note_import([ours.topic].into_iter()).unwrap();
    drop((logs, metadata));
    let (mut logs, metadata) = start(&sim, 2);
    assert_eq!(metadata.unfinished_import().unwrap(), [ours.topic].into());
    logs.sweep(&metadata).unwrap();
    assert_eq!(directories(&*sim), [format!("other-0.{:?}-stray", other.topic)]);
    assert!(metadata.unfinished_import().unwrap().is_empty(), "from now on such a directory is kept");
}

/// A log of six records, four of which are deleted, and the holes of a compaction.
fn start_with_log(sim: &Arc<SimDisk>) -> (Logs, Metadata) {
    let (mut logs, metadata) = start(sim, 0);
    metadata.create_topic(&topic("other", 1, 1)).unwrap();
    logs.open_partition(partition(0), TOPIC, LogConfig::default()).unwrap();
    for _ in 0..2 {
        logs.append(partition(0), batch(3), Origin::Client, NOW).unwrap();
    }
    let job = logs.sync_job(partition(0)).unwrap().unwrap();
    logs.sync_done(job.run()).unwrap();
    logs.delete_records(partition(0), Offset(4)).unwrap();
    logs.holes.insert((TOPIC.to_owned(), 0), Offset(6));
    checkpoints::write(&**sim, checkpoints::HOLES, &logs.holes).unwrap();
    (logs, metadata)
}

fn bounds(logs: &mut Logs) -> (i64, i64) {
    let facts = logs.open_partition(partition(0), TOPIC, LogConfig::default()).unwrap();
    (facts.log_start.0, facts.end.0)
}

#[test]
fn the_checkpoints_go_with_a_log_that_is_set_aside_and_come_back_with_it() {
    let aside = format!("t-0.{:?}-stray", partition(0).topic);
    for is_clean in [true, false] {
        let sim = Arc::new(SimDisk::new(1));
        drop(start_with_log(&sim));
        sim.restart();
        let (mut logs, metadata) = start(&sim, 1);
        logs.sweep(&metadata).unwrap();
        assert_eq!(sim.read(checkpoints::LOG_START).unwrap().unwrap(), b"0\n0\n");
        // Whoever has the name meanwhile knows nothing of it.
        assert_eq!(bounds(&mut logs), (0, 0));
        logs.append(partition(0), batch(1), Origin::Client, NOW).unwrap();
        logs.delete_partition(partition(0)).unwrap();
        if is_clean {
            logs.close().unwrap();
        } else {
            drop(logs);
        }
        drop(metadata);
        sim.restart();
        sim.rename(&aside, "t-0").unwrap();
        let (mut logs, metadata) = start(&sim, 2);
        assert_eq!(bounds(&mut logs), (4, 6));
        assert_eq!(logs.has_lost_records(), is_clean, "it was not there at the stop");
        assert_eq!(sim.read_len("t-0/sluice-checkpoints").unwrap(), None, "it is in the checkpoints");
        assert_eq!(sim.read(checkpoints::LOG_START).unwrap().unwrap(), b"0\n1\nt 0 4\n");
        assert_eq!(sim.read(checkpoints::HOLES).unwrap().unwrap(), b"0\n1\nt 0 6\n");
        drop((logs, metadata));
        sim.restart();
        assert_eq!(bounds(&mut start(&sim, 3).0), (4, 6));
    }
}

#[test]
fn a_start_that_dies_while_it_sets_aside_loses_nothing() {
    let aside = format!("t-0.{:?}-stray", partition(0).topic);
    for calls in 0..60 {
        let sim = Arc::new(SimDisk::new(calls));
        drop(start_with_log(&sim));
        sim.restart();
        let (mut logs, metadata) = start(&sim, 1);
        sim.die_after(calls);
        let died = logs.sweep(&metadata).is_err();
        drop((logs, metadata));
        sim.crash();
        let (mut logs, metadata) = start(&sim, 2);
        logs.sweep(&metadata).unwrap();
        assert_eq!(directories(&*sim), std::slice::from_ref(&aside));
        drop((logs, metadata));
        sim.crash();
        sim.rename(&aside, "t-0").unwrap();
        assert_eq!(bounds(&mut start(&sim, 3).0), (4, 6), "after {calls} calls");
        if !died {
            assert!(calls > 5, "{calls} calls are too few for that");
            return;
        }
    }
    panic!("it never comes through");
}

#[test]
fn a_deletion_that_died_before_its_rename_leaves_nothing_to_the_topic_made_again() {
    let sim = Arc::new(SimDisk::new(1));
    let (mut logs, metadata) = start(&sim, 1);
    metadata.create_topic(&topic("t", 9, 1)).unwrap();
    logs.open_partition(partition(0), TOPIC, LogConfig::default()).unwrap();
    logs.append(partition(0), batch(5), Origin::Client, NOW).unwrap();
    logs.open_events(partition(0), 7).unwrap();
    logs.append_events(partition(0), 7, 0, &[bytes::Bytes::from_static(b"old")]).unwrap();
    metadata.delete_topic("t").unwrap();
    drop((logs, metadata));
    for lost in [false, true] {
        if lost {
            // What tells whose it is may go with the power; the next start knows its files all the same.
            sim.rename(&format!("t-0.{:?}-stray", partition(0).topic), "t-0").unwrap();
            sim.remove_file("t-0/partition.metadata").unwrap();
            sim.remove_file(&format!("t-0/{:020}.log", 0)).unwrap();
        }
        let (mut logs, metadata) = start(&sim, 2);
        logs.sweep(&metadata).unwrap();
        let again = PartitionId { topic: TopicId([8; 16]), index: 0 };
        assert_eq!(logs.open_partition(again, TOPIC, LogConfig::default()).unwrap().end, Offset(0));
        assert_eq!(logs.events_on_disk(again).unwrap(), []);
    }
}
