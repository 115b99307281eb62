//! Many logs at once.

use std::sync::Arc;

use records::ids::{Offset, PartitionId, TopicId};

use super::*;
use crate::disk::SimDisk;
use crate::testing::{NOW, batch};

const PARTITIONS: i32 = 100;

fn wanted() -> Vec<PartitionToOpen> {
    (0..PARTITIONS)
        .map(|index| PartitionToOpen {
            id: PartitionId { topic: TopicId([7; 16]), index },
            topic: "t".to_owned(),
            config: LogConfig::default(),
        })
        .collect()
}

fn open(disk: &Arc<SimDisk>, boot: u64) -> Logs {
    let disk: Arc<dyn Disk> = Arc::<SimDisk>::clone(disk);
    let boot = Boot { boot, leader_epoch: boot as i32 };
    Logs::open(DataDir::open(disk).unwrap(), Options::default(), boot).unwrap()
}

#[test]
fn many_logs_open_beside_each_other_as_one_by_one() {
    let disk = Arc::new(SimDisk::new(1));
    let mut logs = open(&disk, 0);
    for facts in logs.open_partitions(wanted()).unwrap() {
        assert_eq!(facts.end, Offset::ZERO);
    }
    for partition in wanted() {
        for _ in 0..=partition.id.index % 7 {
            logs.append(partition.id, batch(2), Origin::Client, NOW).unwrap();
        }
    }
    drop(logs);
    let mut logs = open(&disk, 1);
    let together = logs.open_partitions(wanted()).unwrap();
    let ends: Vec<i64> = together.iter().map(|facts| facts.end.0).collect();
    assert_eq!(ends, (0..PARTITIONS).map(|index| i64::from(index % 7 + 1) * 2).collect::<Vec<_>>());
    drop(logs);
    let mut logs = open(&disk, 1);
    let one_by_one: Vec<LogFacts> = wanted()
        .into_iter()
        .map(|partition| logs.open_partition(partition.id, &partition.topic, partition.config).unwrap())
        .collect();
    assert_eq!(together, one_by_one);
}

#[test]
fn many_logs_close_with_their_epochs() {
    let disk = Arc::new(SimDisk::new(1));
    let mut logs = open(&disk, 3);
    logs.open_partitions(wanted()).unwrap();
    for partition in wanted() {
        logs.append(partition.id, batch(2), Origin::Client, NOW).unwrap();
    }
    logs.close().unwrap();
    disk.crash();
    for partition in wanted() {
        let path = format!("t-{}/leader-epoch-checkpoint", partition.id.index);
        assert_eq!(disk.read(&path).unwrap().unwrap(), b"0\n1\n3 0\n");
    }
    let mut logs = open(&disk, 3);
    assert!(logs.open_partitions(wanted()).unwrap().iter().all(|facts| facts.end == Offset(2)));
}

#[test]
fn a_log_that_cannot_be_read_is_told() {
    let disk = Arc::new(SimDisk::new(1));
    let mut logs = open(&disk, 0);
    logs.open_partitions(wanted()).unwrap();
    for partition in wanted() {
        logs.append(partition.id, batch(2), Origin::Client, NOW).unwrap();
    }
    drop(logs);
    let mut logs = open(&disk, 1);
    disk.fail_reads(Some("t-50/"));
    let error = logs.open_partitions(wanted()).unwrap_err();
    assert!(error.to_string().contains("t-50"), "{error}");
}

/// Opens all as a start does.
fn open_all(disk: &Arc<SimDisk>, boot: u64) -> (Logs, Result<Vec<LogFacts>, StorageError>) {
    let mut logs = open(disk, boot);
    let opened = logs.open_partitions(wanted());
    (logs, opened)
}

fn filled(disk: &Arc<SimDisk>) -> Logs {
    let (mut logs, opened) = open_all(disk, 0);
    opened.unwrap();
    for partition in wanted() {
        for _ in 0..4 {
            logs.append(partition.id, batch(5), Origin::Client, NOW).unwrap();
        }
    }
    logs
}

fn rewrite(disk: &SimDisk, path: &str, from: &str, to: &str) {
    let text = String::from_utf8(disk.read(path).unwrap().unwrap()).unwrap();
    assert!(text.contains(from), "{text}");
    disk.write_atomic(path, text.replace(from, to).as_bytes()).unwrap();
}

#[test]
fn a_log_that_is_gone_is_no_empty_one() {
    for is_clean in [true, false] {
        for is_bare in [true, false] {
            let disk = Arc::new(SimDisk::new(1));
            let mut logs = filled(&disk);
            if is_clean {
                logs.close().unwrap();
            } else {
                for partition in wanted() {
                    let job = logs.sync_job(partition.id).unwrap().unwrap();
                    logs.sync_done(job.run()).unwrap();
                }
                logs.checkpoint().unwrap();
                drop(logs);
                disk.restart();
            }
            let file = checkpoints::RECOVERY_POINT;
            disk.rename("t-50", "away").unwrap();
            if is_bare {
                disk.create_dir("t-50").unwrap();
            }
            let before = disk.list("").unwrap().len();
            // A second start is not wiser: the first one has taken the mark of the orderly stop away.
            let (logs, opened) = open_all(&disk, 1);
            let text = opened.unwrap_err().to_string();
            let line = "in the line \"t 50 20\"";
            assert!(["t-50", "offsets 0 to 20", file, line].iter().all(|part| text.contains(part)), "{text}");
            drop(logs);
            assert_eq!(disk.list("").unwrap().len() + usize::from(is_clean), before);
            assert!(!is_bare || disk.list("t-50").unwrap().is_empty(), "nothing is written there");
            assert!(open_all(&disk, 2).1.is_err(), "clean: {is_clean}, bare: {is_bare}");
            // What the text says.
            rewrite(&disk, file, "t 50 20\n", "t 50 0\n");
            let (_, opened) = open_all(&disk, 3);
            assert_eq!(opened.unwrap()[50].end, Offset(0));
        }
    }
}

#[test]
fn a_log_that_a_power_cut_took_whole_was_never_synced() {
    let disk = Arc::new(SimDisk::new(1));
    let mut logs = filled(&disk);
    logs.checkpoint().unwrap();
    drop(logs);
    disk.crash();
    let (_, opened) = open_all(&disk, 1);
    opened.unwrap();
}

#[test]
fn r15_a_log_that_lost_its_end_after_an_orderly_stop_is_told_of() {
    let log = "t-50/00000000000000000000.log";
    let len = |disk: &SimDisk| disk.read_len(log).unwrap().unwrap();
    type Change = fn(&SimDisk, u64);
    let cut: Change = |disk, to| disk.open("t-50/00000000000000000000.log").unwrap().set_len(to).unwrap();
    let changes: [(&str, Change, bool); 6] = [
        ("nothing", |_, _| {}, false),
        (
            "on a boundary",
            |disk, len| disk.open("t-50/00000000000000000000.log").unwrap().set_len(len / 2).unwrap(),
            true,
        ),
        (
            "within a batch",
            |disk, len| disk.open("t-50/00000000000000000000.log").unwrap().set_len(len - 1).unwrap(),
            true,
        ),
        ("whole", |disk, _| disk.open("t-50/00000000000000000000.log").unwrap().set_len(0).unwrap(), true),
        ("an index", |disk, _| disk.remove_file("t-50/00000000000000000000.timeindex").unwrap(), false),
        ("the checkpoint", |disk, _| disk.remove_file(checkpoints::HIGH_WATERMARK).unwrap(), false),
    ];
    for (what, change, is_lost) in changes {
        let disk = Arc::new(SimDisk::new(1));
        filled(&disk).close().unwrap();
        change(&disk, len(&disk));
        let (logs, opened) = open_all(&disk, 1);
        opened.unwrap();
        assert_eq!(logs.has_lost_records(), is_lost, "{what}");
        // The next start takes it as it is.
        drop(logs);
        let (logs, opened) = open_all(&disk, 2);
        opened.unwrap();
        assert!(!logs.has_lost_records(), "{what}");
        logs.close().unwrap();
        let (logs, opened) = open_all(&disk, 3);
        opened.unwrap();
        assert!(!logs.has_lost_records(), "{what}");
    }
    // After a kill the epoch goes up anyhow.
    let disk = Arc::new(SimDisk::new(1));
    drop(filled(&disk));
    disk.restart();
    cut(&disk, len(&disk) / 2);
    assert!(!open_all(&disk, 1).0.has_lost_records());
}

#[test]
fn a_partition_that_is_gone_with_the_recovery_points_is_missed_by_its_end() {
    let disk = Arc::new(SimDisk::new(1));
    filled(&disk).close().unwrap();
    for entry in disk.list("t-50").unwrap() {
        disk.remove_file(&format!("t-50/{}", entry.name)).unwrap();
    }
    disk.remove_file(checkpoints::RECOVERY_POINT).unwrap();
    let (_, opened) = open_all(&disk, 1);
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("t-50") && error.contains(checkpoints::HIGH_WATERMARK), "{error}");
}
