use records::batch::BatchBuilder;
use records::ids::{Offset, TopicId};
use records::{Codec, TimestampType};

use super::kafka::{ID, Kafka, Stopped, metadata_batch, record};
use crate::import::LeftOut;
use crate::testing::TOPIC;

const LOG: &str = "__cluster_metadata-0/00000000000000000000.log";

fn stopped(records: &[Vec<u8>]) -> Stopped {
    Kafka::new().stop_with(records)
}

fn control(base: i64, kind: u8) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).control();
    builder.append(0, Some(&[0, 0, 0, kind]), Some(&[0, 0]), &[]);
    builder.build(Offset(base), 1)
}

#[test]
fn deleted_topics_and_settings_are_gone_and_what_is_not_taken_is_told() {
    let other = TopicId([3; 16]);
    let stopped = stopped(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::config(2, TOPIC, "retention.ms", Some("1")),
        record::remove_topic(ID),
        record::topic(TOPIC, other),
        record::partition(other, 0, 0),
        record::partition(other, 1, 0),
        record::config(2, TOPIC, "segment.ms", Some("5")),
        record::config(2, TOPIC, "flush.ms", Some("5")),
        record::config(2, TOPIC, "flush.ms", None),
        record::config(4, "", "message.max.bytes", Some("9")),
        record::ACL.to_vec(),
    ]);
    let source = stopped.open(false).unwrap();
    let cluster = source.cluster();
    let topic = &cluster.topics[TOPIC];
    assert_eq!((topic.id, topic.partitions), (other, 2));
    assert_eq!(topic.configs.iter().collect::<Vec<_>>(), [(&"segment.ms".to_owned(), &"5".to_owned())]);
    assert_eq!(cluster.broker_configs[""]["message.max.bytes"], "9");
    assert!(cluster.left_out.contains(&LeftOut::Acls));
}

#[test]
fn a_metadata_transaction_counts_only_once_it_has_ended() {
    let made = |end: &[u8]| {
        let records =
            [record::BEGIN.to_vec(), record::topic(TOPIC, ID), record::partition(ID, 0, 0), end.to_vec()];
        let count = if end.is_empty() { 3 } else { 4 };
        stopped(&records[..count]).open(false).unwrap().cluster().topics.len()
    };
    assert_eq!((made(record::END), made(record::ABORT), made(&[])), (1, 0, 0));
}

#[test]
fn the_newest_snapshot_and_what_stands_behind_it_is_read() {
    let late = TopicId([4; 16]);
    let stopped =
        stopped(&[record::topic("gone", TopicId([5; 16])), record::partition(TopicId([5; 16]), 0, 0)]);
    let mut log = stopped.read(LOG);
    log.extend_from_slice(&metadata_batch(2, &[record::topic("late", late), record::partition(late, 0, 0)]));
    stopped.write(LOG, &log);
    let snapshot = [
        control(0, 3),
        metadata_batch(1, &[record::topic(TOPIC, ID), record::partition(ID, 0, 0)]),
        control(3, 4),
    ];
    let path = |offset: i64| format!("__cluster_metadata-0/{offset:020}-0000000001.checkpoint");
    stopped.write(&path(1), b"an older one is not read");
    stopped.write(&path(2), &snapshot.concat());
    let source = stopped.open(false).unwrap();
    assert_eq!(source.cluster().topics.keys().collect::<Vec<_>>(), ["late", TOPIC]);
    drop(source);

    stopped.disk().create(&path(2)).unwrap();
    stopped.write(&path(2), &snapshot[..2].concat());
    assert!(stopped.open(false).unwrap_err().to_string().contains("has no end"));
    stopped.disk().remove_file(&path(1)).unwrap();
    stopped.disk().remove_file(&path(2)).unwrap();
    let renamed = "__cluster_metadata-0/00000000000000000001.log";
    stopped.write(renamed, &stopped.read(LOG));
    stopped.disk().remove_file(LOG).unwrap();
    assert!(stopped.open(false).unwrap_err().to_string().contains("nothing from offset 0"));
}

#[test]
fn damage_and_unknown_records_are_told_with_their_place() {
    let damaged = stopped(&[record::topic(TOPIC, ID), record::partition(ID, 0, 0)]);
    damaged.flip(LOG, 65);
    let text = damaged.open(false).unwrap_err().to_string();
    assert!(text.contains("/kafka/__cluster_metadata-0/00000000000000000000.log at byte 0: crc"), "{text}");
    // Its end may be torn where nobody closed it in order.
    damaged.disk().remove_file(".kafka_cleanshutdown").unwrap();
    assert!(damaged.open(true).is_ok());

    let unknown = stopped(&[vec![1, 99, 0, 0]]);
    let text = unknown.open(false).unwrap_err().to_string();
    assert!(text.contains("at byte 0: metadata record of type 99 is unknown"), "{text}");
    let lacking = stopped(&[record::topic(TOPIC, ID), record::partition(ID, 1, 0)]);
    assert!(lacking.open(false).unwrap_err().to_string().contains("no record of some of its partitions"));
}
