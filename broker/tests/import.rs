//! `sluice import`: what it chooses, what it says, and how it ends. The data directory is one such as Kafka leaves, with
//! a metadata log made by hand; real ones are imported by `integration-tests/tests/kafka_data`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use bytes::BytesMut;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};
use storage::{Boot, DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk};

const ORDERS: TopicId = TopicId([1; 16]);
const COLD: TopicId = TopicId([2; 16]);
const STATE: TopicId = TopicId([3; 16]);

fn framed(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    [&[1, kind, 0], &*body.concat(), &[0]].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&[text.len() as u8 + 1], text.as_bytes()].concat()
}

fn topic(name: &str, id: TopicId) -> Vec<Vec<u8>> {
    let none_of_four = [1; 4];
    let leader_and_epochs = [0; 12];
    let partition = framed(3, &[&0_i32.to_be_bytes(), &id.0, &none_of_four, &leader_and_epochs]);
    vec![framed(2, &[&string(name), &id.0]), partition]
}

fn config(kind: u8, resource: &str, name: &str, value: &str) -> Vec<u8> {
    framed(4, &[&[kind], &string(resource), &string(name), &string(value)])
}

fn batch(records: &[Vec<u8>]) -> BytesMut {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for record in records {
        builder.append(1_700_000_000_000, None, Some(record), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), 0)[..])
}

/// A stopped broker's directory with topics of one record each, and more metadata records.
fn kafka(dir: &Path, topics: &[(&str, TopicId)], more: &[Vec<u8>]) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir).unwrap());
    let options = Options { cluster_id: "kafkas".to_owned(), ..Options::default() };
    let mut logs =
        Logs::open(DataDir::open(disk).unwrap(), options, Boot { boot: 1, leader_epoch: 0 }).unwrap();
    let mut metadata = Vec::new();
    for (name, id) in topics {
        let partition = PartitionId { topic: *id, index: 0 };
        logs.open_partition(partition, name, LogConfig::default()).unwrap();
        if *id != STATE {
            logs.append(partition, batch(&[b"one".to_vec()]), Origin::Client, 0).unwrap();
        }
        metadata.extend(topic(name, *id));
    }
    logs.close().unwrap();
    // Kafka writes it at every stop, here without a line.
    std::fs::write(dir.join("log-start-offset-checkpoint"), "0\n0\n").unwrap();
    metadata.extend_from_slice(more);
    std::fs::create_dir(dir.join("__cluster_metadata-0")).unwrap();
    std::fs::write(dir.join("__cluster_metadata-0/00000000000000000000.log"), batch(&metadata)).unwrap();
}

fn import(from: &Path, to: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("import").arg("--from").arg(from).arg("--data-dir").arg(to).args(more);
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
}

fn store(dir: &Path) -> Metadata {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(dir).unwrap());
    Metadata::open(&disk).unwrap()
}

#[test]
fn p25_topics_settings_and_groups_are_taken_and_the_rest_is_told() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (work.path().join("kafka"), work.path().join("sluice"));
    kafka(
        &from,
        &[("orders", ORDERS), ("__transaction_state", STATE)],
        &[
            config(2, "orders", "retention.ms", "-1"),
            config(2, "orders", "segment.bytes", "7"),
            config(2, "orders", "of.a.later.kafka", "x"),
            config(32, "workers", "share.auto.offset.reset", "earliest"),
            config(4, "", "min.insync.replicas", "1"),
            config(4, "1", "log.retention.ms", "secret"),
            vec![1, 18, 0, 0],
        ],
    );
    let (code, told) = import(&from, &to, &["--dry-run"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("would be taken over") && !to.exists(), "{told}");
    let (code, told) = import(&from, &to, &[]);
    assert_eq!(code, Some(0), "{told}");
    for what in [
        "topic orders AQEBAQEBAQEBAQEBAQEBAQ: 1 partitions",
        "orders-0: offsets 0 to 1",
        "left out: topic orders: invalid value 7 for configuration segment.bytes",
        "left out: topic orders: setting of.a.later.kafka=x is unknown here",
        "left out: __transaction_state",
        "left out: ACLs",
        "settings of broker 1 that were made while it ran",
        "1 topics, 1 partitions",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
    assert!(!told.contains("secret") && !told.contains("min.insync"), "{told}");
    let metadata = store(&to);
    let topics = metadata.topics().unwrap();
    assert_eq!((topics.len(), topics[0].id), (1, ORDERS));
    assert_eq!(topics[0].configs, BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]));
    assert_eq!(metadata.group_configs().unwrap()["workers"]["share.auto.offset.reset"], "earliest");
    assert_eq!(metadata.cluster_id([0; 16]).unwrap(), "kafkas");
    drop(metadata);

    let (code, told) = import(&from, &to, &[]);
    assert!(code == Some(1) && told.contains("has topic orders already"), "{told}");
    let (code, told) = import(&from, &to, &["--skip", "orders"]);
    assert!(code == Some(0) && told.contains("left out: topic orders, as was asked for"), "{told}");
}

#[test]
fn p25_topics_in_remote_storage_and_wrong_usage_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (work.path().join("kafka"), work.path().join("sluice"));
    let remote = config(2, "cold", "remote.storage.enable", "true");
    kafka(&from, &[("orders", ORDERS), ("cold", COLD)], &[remote]);
    let (code, told) = import(&from, &to, &[]);
    assert!(code == Some(1) && told.contains("topic cold is in remote storage"), "{told}");
    let (code, told) = import(&from, &to, &["--topic", "ordes"]);
    assert!(code == Some(1) && told.contains("the source has no topic ordes"), "{told}");
    assert_eq!(import(&from, &to, &["--topic", "orders", "--skip", "cold"]).0, Some(2));
    let (code, told) = import(&from, &from, &[]);
    assert!(code == Some(1) && told.contains("the same directory"), "{told}");
    let (code, told) = import(&work.path().join("nowhere"), &to, &[]);
    assert!(code == Some(1) && told.contains("no directory at"), "{told}");
    let (code, told) = import(&from, &to, &["--topic", "orders"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(store(&to).topics().unwrap().len(), 1);
}

#[test]
fn p25_a_source_that_lost_its_high_watermarks_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (work.path().join("kafka"), work.path().join("sluice"));
    kafka(&from, &[("orders", ORDERS), ("cold", COLD)], &[]);
    let file = from.join("replication-offset-checkpoint");
    std::fs::write(&file, "0\n1\ncold 0 1\n").unwrap();
    for dry in [&["--dry-run"][..], &[]] {
        let (code, told) = import(&from, &to, dry);
        assert!(code == Some(1) && told.contains("no line for partition 0 of topic orders"), "{told}");
    }
    // Of a broker that died, the partition may be younger than the file: that nothing is taken is told.
    std::fs::remove_file(from.join(".kafka_cleanshutdown")).unwrap();
    let (code, told) = import(&from, &to, &["--unclean", "--dry-run"]);
    assert!(code == Some(0) && told.contains("bytes for which no high watermark was written"), "{told}");
    let (code, told) = import(&from, &to, &["--unclean", "--skip", "orders"]);
    assert!(code == Some(0) && told.contains("1 topics, 1 partitions"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let verified = command.args(["log", "verify", "--data-dir"]).arg(&to).output().unwrap();
    let told = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success() && told.ends_with("1 partitions checked, 0 findings\n"), "{told}");
}
