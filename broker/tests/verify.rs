//! `sluice log verify` as an operator runs it: what it says, how it ends, and that it needs no more than reading.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use bytes::BytesMut;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};
use storage::{Configs, DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk, TopicMetadata};

const ORDERS: TopicId = TopicId([1; 16]);

/// A data directory with topic `orders` of two partitions with a record each, stopped in order.
fn stopped(dir: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir).unwrap());
    let data_dir = DataDir::open(Arc::clone(&disk)).unwrap();
    let metadata = Metadata::open(&disk).unwrap();
    let topic =
        TopicMetadata { name: "orders".to_owned(), id: ORDERS, partitions: 2, configs: Configs::new() };
    metadata.create_topic(&topic).unwrap();
    let boot = metadata.begin_boot(false).unwrap();
    let mut logs = Logs::open(data_dir, Options::default(), boot).unwrap();
    for index in 0..2 {
        let partition = PartitionId { topic: ORDERS, index };
        logs.open_partition(partition, "orders", LogConfig::default()).unwrap();
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
        builder.append(1_700_000_000_000, None, Some(b"one"), &[]);
        let batch = BytesMut::from(&builder.build(Offset(0), 0)[..]);
        logs.append(partition, batch, Origin::Client, 0).unwrap();
    }
    logs.close().unwrap();
}

fn log(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("log").args(words).arg("--data-dir").arg(dir);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
}

#[test]
fn damage_at_the_root_is_told_and_ends_with_1() {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path();
    stopped(dir);
    let (code, told) = log(dir, &["verify"]);
    assert!(code == Some(0) && told.ends_with("2 partitions checked, 0 findings\n"), "{told}");
    fs::write(dir.join("cleaner-offset-checkpoint"), "garbage").unwrap();
    let (code, told) = log(dir, &["verify", "--topic", "orders"]);
    assert!(code == Some(1) && told.contains("WRONG cleaner-offset-checkpoint: is no offset"), "{told}");
    assert!(told.ends_with("2 partitions checked, 1 findings\n"), "{told}");
    fs::remove_file(dir.join("cleaner-offset-checkpoint")).unwrap();
    fs::remove_dir_all(dir.join("orders-1")).unwrap();
    let (code, told) = log(dir, &["verify"]);
    assert!(code == Some(1) && told.contains("WRONG orders-1: is missing, but recovery-point"), "{told}");
    let (code, told) = log(dir, &["verify", "--topic", "orders", "--partition", "0"]);
    assert!(code == Some(0), "another partition was asked for: {told}");
    fs::remove_file(dir.join("sluice-metadata.redb")).unwrap();
    let (code, told) = log(dir, &["verify"]);
    assert!(code == Some(1) && told.contains("WRONG sluice-metadata.redb: is missing"), "{told}");
}

#[test]
fn a_partition_that_cannot_be_read_does_not_hide_the_others() {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path();
    stopped(dir);
    let path = dir.join("orders-0/00000000000000000000.log");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (code, told) = log(dir, &["verify"]);
    assert!(code == Some(1) && told.contains("orders-0:\n  WRONG cannot read"), "{told}");
    assert!(told.contains("orders-1: offsets 0 to 1, 1 records"), "{told}");
}

/// The system opens no file for writing that is being executed, whoever asks.
#[test]
fn files_are_opened_for_reading_only() {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path();
    stopped(dir);
    let path = dir.join("orders-0/00000000000000000000.log");
    fs::copy("/bin/sleep", &path).unwrap();
    // A process that another test starts at this moment has the copy open for writing until it is one of its own.
    let mut tries = (0..10_000).map(|_| Command::new(&path).arg("60").spawn());
    let busy = |tried: &std::io::Result<_>| {
        tried.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy)
    };
    let mut running = tries.find(|tried| !busy(tried)).expect("it is busy for a moment only").unwrap();
    let refused = fs::OpenOptions::new().write(true).open(&path).is_err();
    let told = ["verify", "describe"].map(|word| log(dir, &[word]));
    let dump = log(dir, &["dump", "--topic", "orders", "--partition", "0"]);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(refused, "the file is being executed");
    for (code, told) in &told {
        assert_eq!(*code, Some(1), "{told}");
        assert!(told.contains("WRONG orders-0/00000000000000000000.log at byte 0: "), "{told}");
    }
    assert!(dump.0 == Some(1) && dump.1.contains("00000000000000000000.log is damaged"), "{}", dump.1);
}

#[test]
fn a_directory_that_is_none_of_a_broker_is_refused() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("letter.txt"), "dear").unwrap();
    fs::create_dir(work.path().join("photos-7")).unwrap();
    for words in [&["verify"][..], &["describe"], &["dump", "--topic", "photos", "--partition", "7"]] {
        let (code, told) = log(work.path(), words);
        assert!(code == Some(1) && told.contains("is no data directory"), "{told}");
    }
}
