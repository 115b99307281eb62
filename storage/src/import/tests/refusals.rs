use std::sync::Arc;

use records::ids::TopicId;

use super::kafka::{ID, Kafka, LOG_STARTS, Stopped, Target, record};
use crate::disk::Disk;
use crate::import::{ImportError, Source};
use crate::testing::{TOPIC, batch};
use crate::{LogConfig, StorageError, TopicMetadata};

const LOG: &str = "t-0/00000000000000000000.log";

fn thirty_records() -> Stopped {
    let mut kafka = Kafka::new();
    for _ in 0..3 {
        kafka.append(batch(10));
    }
    kafka.stop()
}

/// The text of the refusal; the target must be as it was.
#[track_caller]
fn refused(stopped: &Stopped) -> String {
    let target = Target::new();
    let error = stopped.import(&target).unwrap_err();
    let broker = target.start();
    assert!(broker.metadata.topics().unwrap().is_empty());
    assert!(target.disk().list("").unwrap().iter().all(|entry| !entry.is_dir));
    error.to_string()
}

#[test]
fn p25_damage_below_the_high_watermark_is_told_with_its_place() {
    let stopped = thirty_records();
    let size = stopped.read(LOG).len() / 3;
    stopped.flip(LOG, size + 70);
    let text = refused(&stopped);
    assert!(text.contains(&format!("/kafka/{LOG} at byte {size}: crc does not match")), "{text}");
    // What nobody was to see may be torn.
    stopped.set_high_watermark(10);
    let target = Target::new();
    stopped.import(&target).unwrap();
    assert_eq!(target.start().bounds(), (0, 10));
}

#[test]
fn p25_a_log_that_ends_below_its_high_watermark_is_refused() {
    let stopped = thirty_records();
    stopped.set_high_watermark(31);
    let text = refused(&stopped);
    assert!(text.contains("the log ends at 30, below its high watermark 31"), "{text}");
    let len = stopped.read(LOG).len() as u64;
    stopped.set_high_watermark(30);
    stopped.disk().open(LOG).unwrap().set_len(len - 1).unwrap();
    let text = refused(&stopped);
    assert!(text.contains("in the middle of a batch"), "{text}");
}

#[test]
fn p25_missing_offsets_are_refused_where_nothing_was_compacted() {
    let stopped = thirty_records();
    let bytes = stopped.read(LOG);
    let size = bytes.len() / 3;
    stopped.disk().open(LOG).unwrap().set_len(2 * size as u64).unwrap();
    stopped.write(LOG, &[&bytes[..size], &bytes[2 * size..]].concat());
    let text = refused(&stopped);
    assert!(text.contains(&format!("at byte {size}: offsets 10 to 19 are missing")), "{text}");
}

#[test]
fn p25_unreadable_checkpoints_epochs_and_snapshots_are_refused() {
    for (file, what) in [
        ("log-start-offset-checkpoint", "is no offset checkpoint"),
        ("replication-offset-checkpoint", "is no offset checkpoint"),
        ("cleaner-offset-checkpoint", "is no offset checkpoint"),
        ("t-0/leader-epoch-checkpoint", "is no leader epoch checkpoint"),
        ("t-0/00000000000000000030.snapshot", "is no producer snapshot"),
    ] {
        let stopped = thirty_records();
        stopped.write(file, b"0\n2\nt 0 7\n");
        let text = refused(&stopped);
        assert!(text.contains(what) && text.contains(file), "{file}: {text}");
    }
}

const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";

#[test]
fn p25_records_without_a_high_watermark_are_refused_by_name() {
    // None of the partition; of none; what a start makes; no file at all.
    let texts: [Option<&[u8]>; 4] = [Some(b"0\n1\nother 0 30\n"), Some(b"0\n0\n"), Some(b""), None];
    for (number, text) in texts.into_iter().enumerate() {
        let stopped = thirty_records();
        stopped.disk().remove_file(HIGH_WATERMARKS).unwrap();
        if let Some(text) = text {
            stopped.write(HIGH_WATERMARKS, text);
        }
        let told = refused(&stopped);
        assert!(
            told.contains("/kafka/replication-offset-checkpoint has no line for partition 0 of topic t"),
            "{told}"
        );
        // A young partition of a broker that died has none either, where there are others.
        stopped.disk().remove_file(".kafka_cleanshutdown").unwrap();
        let target = Target::new();
        let imported = stopped.import_as(&target, true);
        if number == 0 {
            imported.unwrap();
            assert_eq!(target.start().bounds(), (0, 0));
        } else {
            let told = imported.unwrap_err().to_string();
            assert!(told.contains("has no line for partition 0"), "{told}");
        }
    }
}

#[test]
fn p25_a_partition_without_records_needs_no_high_watermark() {
    let stopped = Kafka::new().stop();
    stopped.disk().create_dir("t-0").unwrap();
    stopped.write(LOG, b"");
    stopped.disk().remove_file(HIGH_WATERMARKS).unwrap();
    let target = Target::new();
    stopped.import(&target).unwrap();
    assert_eq!(target.start().bounds(), (0, 0));
}

#[test]
fn p25_without_the_file_of_log_starts_nothing_is_taken() {
    let mut kafka = Kafka::new();
    for _ in 0..3 {
        kafka.append(batch(10));
    }
    kafka.world.logs().delete_records(crate::testing::partition(0), records::ids::Offset(15)).unwrap();
    let stopped = kafka.stop();
    let written = stopped.read(LOG_STARTS);
    assert_eq!(written, b"0\n1\nt 0 15\n");
    stopped.disk().create(LOG_STARTS).unwrap();
    assert!(
        refused(&stopped).contains("/kafka/log-start-offset-checkpoint is empty, deleted records would rise")
    );
    stopped.disk().remove_file(LOG_STARTS).unwrap();
    assert!(
        refused(&stopped)
            .contains("/kafka/log-start-offset-checkpoint is missing, deleted records would rise")
    );
    stopped.disk().remove_file(".kafka_cleanshutdown").unwrap();
    let error = stopped.open(true).unwrap_err().to_string();
    assert!(error.contains("is missing, deleted records would rise again"), "{error}");
    // A broker that died before it wrote one.
    stopped.disk().create(LOG_STARTS).unwrap();
    stopped.open(true).unwrap();
    stopped.write(LOG_STARTS, &written);
    let target = Target::new();
    stopped.import_as(&target, true).unwrap();
    assert_eq!(target.start().bounds(), (15, 30));
}

#[test]
fn p25_a_directory_that_was_not_closed_in_order_is_taken_only_when_asked_for() {
    let stopped = thirty_records();
    stopped.disk().remove_file(".kafka_cleanshutdown").unwrap();
    stopped.set_high_watermark(20);
    let len = stopped.read(LOG).len() as u64;
    stopped.disk().open(LOG).unwrap().set_len(len - 1).unwrap();
    let text = refused(&stopped);
    assert!(text.contains("/kafka was not closed in order") && text.contains("--unclean"), "{text}");
    let target = Target::new();
    stopped.import_as(&target, true).unwrap();
    assert_eq!(target.start().bounds(), (0, 20));
}

#[test]
fn p25_an_interrupted_compaction_is_for_kafka_to_finish() {
    let stopped = thirty_records();
    stopped.write("t-0/00000000000000000000.log.swap", b"");
    assert!(refused(&stopped).contains("a compaction was interrupted"));
}

#[test]
fn p25_directories_in_use_and_those_of_others_are_refused() {
    let stopped = thirty_records();
    let lock = stopped.disk().lock(".lock").unwrap();
    assert!(matches!(stopped.open(false), Err(ImportError::InUse { .. })));
    drop(lock);
    let meta = String::from_utf8(stopped.read("meta.properties")).unwrap();
    for (from, to, what) in [
        ("version=1", "version=0", "not of version 1"),
        ("node.id=1", "broker=1", "names no cluster or node"),
    ] {
        stopped.disk().create("meta.properties").unwrap();
        stopped.write("meta.properties", meta.replace(from, to).as_bytes());
        let text = stopped.open(false).unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    }
    stopped.disk().remove_file("meta.properties").unwrap();
    assert!(stopped.open(false).unwrap_err().to_string().contains("no meta.properties"));
}

#[test]
fn p25_directories_of_two_brokers_and_one_without_metadata_are_refused() {
    let (one, other) = (thirty_records(), thirty_records());
    let open = |dirs: &[(&str, &Stopped)]| {
        let dirs = dirs.iter().map(|(name, stopped)| ((*name).to_owned(), stopped.disk())).collect();
        Source::open(dirs, false).unwrap_err().to_string()
    };
    let text = open(&[("/one", &one), ("/other", &other)]);
    assert!(text.contains("/other/t-0: another directory holds this partition too"), "{text}");
    let meta = String::from_utf8(other.read("meta.properties")).unwrap();
    other.write("meta.properties", meta.replace("node.id=1", "node.id=2").as_bytes());
    let text = open(&[("/one", &one), ("/other", &other)]);
    assert!(text.contains("/other and /one belong to different brokers"), "{text}");
    one.disk().remove_dir_all("__cluster_metadata-0").unwrap();
    assert!(open(&[("/one", &one)]).contains("metadata.log.dir"));
}

#[test]
fn p25_topics_that_the_target_has_by_name_or_id_are_refused() {
    let stopped = thirty_records();
    for (name, id) in [(TOPIC, TopicId([1; 16])), ("other", ID)] {
        let target = Target::new();
        let topic = TopicMetadata { name: name.into(), id, partitions: 1, configs: Default::default() };
        target.open().1.create_topic(&topic).unwrap();
        let error = stopped.import(&target).unwrap_err();
        assert!(matches!(&error, ImportError::Exists(name) if name == TOPIC), "{error}");
        assert_eq!(target.open().1.topics().unwrap(), [topic]);
    }
}

#[test]
fn p25_a_partition_that_is_missing_or_of_a_deleted_topic_is_refused() {
    let recreated = TopicId([8; 16]);
    let mut kafka = Kafka::new();
    kafka.append(batch(1));
    let stopped = kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::remove_topic(ID),
        record::topic(TOPIC, recreated),
        record::partition(recreated, 0, 0),
    ]);
    assert!(refused(&stopped).contains("partition 0 of topic t is in none"));
    let mut kafka = Kafka::with(LogConfig::default());
    kafka.append(batch(1));
    let stopped = kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::partition(ID, 1, 0),
    ]);
    assert!(refused(&stopped).contains("partition 1 of topic t is in none"));
}

#[test]
fn a_kafka_directory_is_not_opened_as_one_of_ours() {
    let stopped = thirty_records();
    let disk: Arc<dyn Disk> = stopped.disk();
    assert!(matches!(crate::Metadata::open(&disk), Err(StorageError::Foreign)));
}
