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
