//! Records as a client sees them, and the tools that the tests look through.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use integration_tests::broker_process::binary;
use integration_tests::foreign::KafkaTools;
use integration_tests::process::run;
use integration_tests::real_time::Deadline;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message};
use rdkafka::metadata::MetadataPartition;
use rdkafka::{Offset, TopicPartitionList};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// One record, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    timestamp: Option<i64>,
    key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Which records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    Uncommitted,
    Committed,
}

/// Every record of a topic, by partition and offset.
#[track_caller]
pub(crate) fn dump(bootstrap: &str, topic: &str, isolation: Isolation) -> Vec<Record> {
    let level = if isolation == Isolation::Committed { "read_committed" } else { "read_uncommitted" };
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "dump")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", level)
        .set("check.crcs", "true")
        .set("auto.offset.reset", "earliest")
        .create()
        .expect("the settings are valid");
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT).expect("the broker answers");
    let partitions: Vec<i32> = metadata.topics()[0].partitions().iter().map(MetadataPartition::id).collect();
    let mut assigned = TopicPartitionList::new();
    for partition in &partitions {
        assigned.add_partition_offset(topic, *partition, Offset::Beginning).expect("a valid offset");
    }
    consumer.assign(&assigned).expect("assigning is local");
    let deadline = Deadline::after(LIMIT);
    let mut records = Vec::new();
    let mut ended = BTreeSet::new();
    while ended.len() < partitions.len() {
        assert!(
            !deadline.is_over(),
            "{topic}: {} records, ends of {ended:?} within {LIMIT:?}",
            records.len()
        );
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => records.push(Record {
                partition: message.partition(),
                offset: message.offset(),
                timestamp: message.timestamp().to_millis(),
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                headers: message.headers().map_or(Vec::new(), |headers| {
                    let headers = headers.iter();
                    headers.map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect()
                }),
            }),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            Some(Err(error)) => panic!("{topic}: {error}"),
            None => {}
        }
    }
    records.sort_by_key(|record| (record.partition, record.offset));
    records
}

/// The first difference between what two brokers showed, as a panic.
#[track_caller]
pub(crate) fn assert_same(topic: &str, expected: &[Record], found: &[Record]) {
    for (expected, found) in expected.iter().zip(found) {
        assert_eq!(expected, found, "{topic}");
    }
    assert_eq!(expected.len(), found.len(), "{topic}");
}

/// Runs a command line against a broker, split at spaces.
#[track_caller]
pub(crate) fn tool(tools: &KafkaTools, bootstrap: &str, line: &str) -> String {
    let mut words = line.split(' ');
    let name = words.next().expect("a line names its tool");
    let arguments: Vec<&str> = words.collect();
    tools.run(name, bootstrap, &arguments).expect_success().stdout.clone()
}

/// Topic, partition and committed offset of a group, as `consumer-groups` shows them.
#[track_caller]
pub(crate) fn committed(tools: &KafkaTools, bootstrap: &str, group: &str) -> Vec<Vec<String>> {
    let table = tool(tools, bootstrap, &format!("consumer-groups --describe --group {group}"));
    let rows = table.lines().skip_while(|line| !line.starts_with("GROUP")).skip(1);
    let mut rows: Vec<Vec<String>> = rows
        .map(|row| row.split_whitespace().take(6).map(str::to_owned).collect::<Vec<_>>())
        .filter(|row| !row.is_empty())
        .collect();
    rows.sort();
    assert!(!rows.is_empty(), "{table}");
    rows
}

/// Start and end of each of the first `partitions` partitions of a topic.
#[track_caller]
pub(crate) fn bounds(bootstrap: &str, topic: &str, partitions: i32) -> Vec<(i64, i64)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "bounds")
        .set("isolation.level", "read_uncommitted")
        .create()
        .expect("the settings are valid");
    (0..partitions)
        .map(|partition| consumer.fetch_watermarks(topic, partition, LIMIT).expect("the broker answers"))
        .collect()
}

/// The ids of all topics that are none of the broker's own.
#[track_caller]
pub(crate) fn topic_ids(tools: &KafkaTools, bootstrap: &str) -> BTreeMap<String, String> {
    let described = tool(tools, bootstrap, "topics --describe --exclude-internal");
    let words = described.lines().filter(|line| line.starts_with("Topic:"));
    let words = words.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.map(|words| (words[1].clone(), words[3].clone())).collect()
}

/// Lines of a checkpoint file, without its head, ascending.
pub(crate) fn checkpoint(dir: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().skip(2).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Replaces a checkpoint file.
pub(crate) fn write_checkpoint(dir: &Path, file: &str, lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let text = format!("0\n{}\n{text}", lines.len());
    fs::write(dir.join(file), text).expect("a checkpoint can be written");
}

/// Deletes the records of partition 0 below `offset`.
#[track_caller]
pub(crate) fn delete_records(tools: &KafkaTools, bootstrap: &str, topic: &str, offset: i64) {
    let plan = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let json =
        format!(r#"{{"partitions":[{{"topic":"{topic}","partition":0,"offset":{offset}}}],"version":1}}"#);
    fs::write(plan.path(), json).expect("the file can be written");
    tool(tools, bootstrap, &format!("delete-records --offset-json-file {}", plan.path().display()));
}

/// `sluice log verify` on a data directory.
#[track_caller]
pub(crate) fn verify(dir: &Path) {
    let mut command = Command::new(binary());
    command.args(["log", "verify", "--data-dir"]).arg(dir);
    run("sluice log verify", command, b"", LIMIT).expect_success();
}
