//! What Sluice wrote is read by a real Kafka broker that has topics of the same ids: the way back.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::ApacheKafka;
use integration_tests::real_time::wall_clock_ns;
use records::batch::{BatchBuilder, EndMarker};
use records::ids::{Offset, PartitionId};
use records::{Codec, TimestampType};
use storage::{DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk};
use tempfile::TempDir;

use crate::bench::{
    Isolation, assert_same, bounds, checkpoint, committed, delete_records, dump, tool, topic_ids,
    write_checkpoint,
};
use crate::dump_log;
use crate::fill::{self, EAGER_CLEANER};
use crate::from_kafka::import;

const TOPICS: [&str; 5] = ["codecs", "compacted", "deleted", "numbered", "moved"];
const CHECKPOINTS: [&str; 4] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// Puts the partitions of a topic from one data directory in the place of those of another, with what the checkpoints
/// say of them.
fn replace(topic: &str, from: &Path, to: &Path) {
    let is_of = |name: &str| {
        name.rsplit_once('-').is_some_and(|(found, index)| found == topic && index.parse::<u32>().is_ok())
    };
    for dir in [to, from] {
        for entry in fs::read_dir(dir).expect("a data directory can be listed") {
            let entry = entry.expect("a data directory can be listed");
            if !entry.file_name().to_str().is_some_and(is_of) {
                continue;
            }
            if dir == to {
                fs::remove_dir_all(entry.path()).expect("a partition can be removed");
                continue;
            }
            let target = to.join(entry.file_name());
            fs::create_dir(&target).expect("a partition can be made");
            for file in fs::read_dir(entry.path()).expect("a partition can be listed") {
                let file = file.expect("a partition can be listed");
                fs::copy(file.path(), target.join(file.file_name())).expect("a file can be copied");
            }
        }
    }
    for file in CHECKPOINTS {
        let here = |line: &String| line.starts_with(&format!("{topic} "));
        let mut lines = checkpoint(to, file);
        lines.retain(|line| !here(line));
        lines.extend(checkpoint(from, file).into_iter().filter(here));
        write_checkpoint(to, file, &lines);
    }
}

/// Committed and aborted transactions in turn, written by the log itself into the data directory of a stopped broker.
fn transactional(data_dir: &Path, topic: &str) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(data_dir).expect("the directory is there"));
    let locked = DataDir::open(Arc::clone(&disk)).expect("nobody uses it");
    let metadata = Metadata::open(&disk).expect("its store opens");
    let boot = metadata.begin_boot(locked.was_clean()).expect("a life begins");
    let topics = metadata.topics().expect("topics can be read");
    let mut logs = Logs::open(locked, Options::default(), boot).expect("the logs open");
    let now_ms = wall_clock_ns() / 1_000_000;
    for found in topics {
        for index in 0..found.partitions {
            let id = PartitionId { topic: found.id, index };
            logs.open_partition(id, &found.name, LogConfig::default()).expect("a log opens");
        }
        if found.name != topic {
            continue;
        }
        let id = PartitionId { topic: found.id, index: 0 };
        for round in 0..6 {
            let codec = [Codec::None, Codec::Lz4, Codec::Zstd][round as usize % 3];
            let mut batch = BatchBuilder::new(codec, TimestampType::Create)
                .producer(5_000, 1, round * 10)
                .transactional();
            for i in 0..10 {
                batch.append(now_ms + i64::from(i), Some(b"k"), Some(format!("{round} {i}").as_bytes()), &[]);
            }
            let batch = BytesMut::from(&batch.build(Offset::ZERO, -1)[..]);
            logs.append(id, batch, Origin::Client, now_ms).expect("it is stored");
            let marker = EndMarker { commit: round % 2 == 0, coordinator_epoch: 0 }.batch(5_000, 1, now_ms);
            logs.append(id, BytesMut::from(&marker[..]), Origin::Coordinator, now_ms).expect("it is stored");
        }
    }
    logs.close().expect("the logs close");
}

#[test]
fn r07_kafka_reads_what_sluice_wrote_as_equal_and_finds_nothing_to_complain_about() {
    let Some(mut kafka) = ApacheKafka::start(EAGER_CLEANER) else { return };
    let tools = kafka.tools().clone();
    let there = kafka.bootstrap();
    // The topics of the same ids come by way of an import of empty ones.
    let segments = "--config segment.bytes=1048576 --config retention.ms=-1";
    tool(&tools, &there, &format!("topics --create --topic codecs --partitions 2 {segments}"));
    let compact =
        "--config cleanup.policy=compact --config segment.ms=100 --config min.cleanable.dirty.ratio=0.01";
    tool(&tools, &there, &format!("topics --create --topic compacted {segments} {compact}"));
    tool(&tools, &there, &format!("topics --create --topic deleted {segments}"));
    tool(&tools, &there, &format!("topics --create --topic numbered {segments}"));
    tool(&tools, &there, &format!("topics --create --topic moved {segments}"));
    fill::commit(&there, "readers", "numbered", 0);
    let ids = topic_ids(&tools, &there);
    kafka.stop();

    let work = TempDir::new().expect("a temporary folder can be made");
    let ours = work.path().join("data");
    import(&kafka.log_dir(), &ours, &[]).expect_success();
    let properties = work.path().join("server.properties");
    fs::write(&properties, format!("{EAGER_CLEANER}\n")).expect("a file can be written");
    let mut sluice = BrokerProcess::start_on(&ours, &["--config", properties.to_str().expect("UTF-8")]);
    let here = sluice.bootstrap().to_owned();
    fill::into_all_codecs(&here, "codecs");
    fill::into_compacted(&here, &ours, "compacted");
    fill::numbered(&here, "deleted", 60);
    delete_records(&tools, &here, "deleted", 25);
    fill::numbered(&here, "numbered", 40);
    fill::commit(&here, "readers", "numbered", 33);
    fill::commit(&here, "readers", "deleted", 30);
    let offsets_here = committed(&tools, &here, "readers");
    assert!(sluice.terminate().success());
    transactional(&ours, "moved");
    sluice.restart();
    let here = sluice.bootstrap().to_owned();
    let seen = |bootstrap: &str| {
        TOPICS.map(|topic| {
            let records =
                [Isolation::Uncommitted, Isolation::Committed].map(|level| dump(bootstrap, topic, level));
            (records, bounds(bootstrap, topic, 1))
        })
    };
    let expected = seen(&here);
    let [all, committed_only] = expected[4].0.each_ref().map(Vec::len);
    assert_eq!((all, committed_only), (60, 30), "half of the transactions were aborted");
    assert!(sluice.terminate().success());
    let printed = dump_log::every_file_is_read(&tools, &ours);
    for kind in ["log", "index", "timeindex", "txnindex", "snapshot"] {
        assert!(printed.get(kind).is_some_and(|text| text.len() > 50), "no {kind} was read: {printed:?}");
    }
    assert!(printed["log"].contains("readers"), "the offsets decoder read no commit");

    for topic in TOPICS.into_iter().chain(["__consumer_offsets"]) {
        replace(topic, &ours, &kafka.log_dir());
    }
    // What else may stand in a directory of ours is passed over.
    for name in ["share-1.1.events", "00000000000000000000.keyindex"] {
        fs::write(kafka.log_dir().join("numbered-0").join(name), "not Kafka's")
            .expect("a file can be written");
    }
    kafka.kill_and_restart();
    let there = kafka.bootstrap();
    assert_eq!(topic_ids(&tools, &there), ids);
    let found = seen(&there);
    for (topic, (expected, found)) in TOPICS.iter().zip(expected.iter().zip(&found)) {
        for (expected, found) in expected.0.iter().zip(&found.0) {
            assert!(!expected.is_empty());
            assert_same(topic, expected, found);
        }
        assert_eq!(expected.1, found.1, "{topic}");
    }
    assert_eq!(committed(&tools, &there, "readers"), offsets_here);
    // It goes on from there.
    fill::numbered(&there, "numbered", 5);
    assert_eq!(bounds(&there, "numbered", 1), [(0, 45)]);
}
