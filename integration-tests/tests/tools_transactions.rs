//! Apache Kafka's tools on transactional records: `dump-log` reads what was written down of them, the console consumer
//! reads them through the broker at both isolation levels.
//!
//! They are written through `storage` while the broker is down, since clients cannot write transactions yet.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::KafkaTools;
use records::batch::{BatchBuilder, EndMarker};
use records::ids::{Offset, PartitionId};
use records::{Codec, TimestampType};
use storage::{DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk};

const NOW: i64 = 1_700_000_000_000;
const TOPIC: &str = "transacted";

struct Writer {
    logs: Logs,
    partition: PartitionId,
}

impl Writer {
    /// Opens the directory of a stopped broker.
    fn open(data_dir: &Path) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(data_dir).expect("the directory is there"));
        let directory = DataDir::open(Arc::clone(&disk)).expect("nobody else has it");
        let metadata = Metadata::open(&disk).expect("readable");
        let boot = metadata.begin_boot(directory.was_clean()).expect("writable");
        let cluster_id = metadata.cluster_id([1; 16]).expect("readable");
        let mut logs = Logs::open(directory, Options { cluster_id, ..Options::default() }, boot)
            .expect("it can be opened");
        let topics = metadata.topics().expect("readable");
        for topic in &topics {
            for index in 0..topic.partitions {
                let config = LogConfig { segment_bytes: 1024, ..LogConfig::default() };
                let id = PartitionId { topic: topic.id, index };
                logs.open_partition(id, &topic.name, config).expect("it can be opened");
            }
        }
        let topic = topics.iter().find(|topic| topic.name == TOPIC).expect("created").id;
        Self { logs, partition: PartitionId { topic, index: 0 } }
    }

    fn append(&mut self, batch: &Bytes, origin: Origin) {
        let batch = BytesMut::from(&batch[..]);
        self.logs.append(self.partition, batch, origin, NOW).expect("it can be appended");
    }

    fn data(&mut self, producer: i64, sequence: i32, value: &str) {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        if producer >= 0 {
            batch = batch.producer(producer, 2, sequence).transactional();
        }
        batch.append(NOW, Some(b"key"), Some(value.as_bytes()), &[]);
        self.append(&batch.build(Offset(0), -1), Origin::Client);
    }

    fn end(&mut self, producer: i64, commit: bool) {
        let marker = EndMarker { commit, coordinator_epoch: 9 }.batch(producer, 2, NOW);
        self.append(&marker, Origin::Coordinator);
    }
}

/// Files of the partition that end in `suffix`, in the order of their offsets.
fn files(data_dir: &Path, suffix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(data_dir.join(format!("{TOPIC}-0"))).expect("it has a directory");
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("readable").path().display().to_string())
        .filter(|path| path.ends_with(suffix))
        .collect();
    files.sort();
    files
}

#[test]
fn f12_kafkas_tools_read_transactions() {
    let Some(tools) = KafkaTools::require() else { return };
    let mut broker = BrokerProcess::start();
    let create = ["--create", "--topic", TOPIC, "--partitions", "1", "--config", "retention.ms=-1"];
    tools.run("topics", broker.bootstrap(), &create).expect_success();
    assert!(broker.terminate().success(), "{}", broker.log());
    let mut writer = Writer::open(broker.data_dir());
    writer.data(-1, 0, "plain 0");
    writer.data(71, 0, "aborted 1");
    writer.data(72, 0, "committed 2");
    for sequence in 1..20 {
        writer.data(71, sequence, &format!("aborted {}", sequence + 2));
    }
    writer.end(71, false);
    writer.end(72, true);
    writer.data(73, 0, "aborted 24");
    writer.end(73, false);
    writer.data(-1, 0, "plain 26");
    writer.data(74, 0, "open 27");
    writer.data(-1, 0, "plain 28");
    writer.logs.close().expect("closed in order");

    let indexes = files(broker.data_dir(), ".txnindex");
    assert!(!indexes.is_empty() && indexes.len() < files(broker.data_dir(), ".log").len());
    let dumped = tools.run_offline("dump-log", &["--files", &indexes.join(",")]).expect_success().to_string();
    for line in [
        "version: 0 producerId: 71 firstOffset: 1 lastOffset: 22 lastStableOffset: 2",
        "version: 0 producerId: 73 firstOffset: 24 lastOffset: 25 lastStableOffset: 26",
    ] {
        assert!(dumped.contains(line), "{dumped}");
    }
    let snapshots = files(broker.data_dir(), ".snapshot");
    let last = snapshots.last().expect("an orderly stop leaves one");
    let dumped = tools.run_offline("dump-log", &["--files", last]).expect_success().to_string();
    for line in [
        "producerId: 71 producerEpoch: 2 coordinatorEpoch: 9 currentTxnFirstOffset: OptionalLong.empty",
        "producerId: 74 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[27]",
    ] {
        assert!(dumped.contains(line), "{dumped}");
    }
    let logs = files(broker.data_dir(), ".log").join(",");
    let dumped = tools
        .run_offline("dump-log", &["--files", &logs, "--print-data-log", "--deep-iteration"])
        .expect_success()
        .to_string();
    assert_eq!(dumped.matches("endTxnMarker: ABORT coordinatorEpoch: 9").count(), 2, "{dumped}");
    assert_eq!(dumped.matches("endTxnMarker: COMMIT coordinatorEpoch: 9").count(), 1, "{dumped}");
    assert!(!dumped.contains("isvalid: false"), "{dumped}");

    broker.restart();
    for (isolation, count) in [("read_committed", 3), ("read_uncommitted", 26)] {
        let arguments = ["--topic", TOPIC, "--from-beginning", "--isolation-level", isolation];
        let arguments = [&arguments[..], &["--timeout-ms", "8000"]].concat();
        let printed = tools.run("console-consumer", broker.bootstrap(), &arguments);
        let lines: Vec<&str> = printed.expect_success().stdout.lines().collect();
        assert_eq!(lines.len(), count, "{isolation}: {lines:?}");
        if count == 3 {
            assert_eq!(lines, ["plain 0", "committed 2", "plain 26"]);
        }
    }
    let ends = tools.run("get-offsets", broker.bootstrap(), &["--topic", TOPIC]);
    assert!(ends.expect_success().stdout.contains(&format!("{TOPIC}:0:29")), "{ends}");
}
