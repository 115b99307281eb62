//! ListOffsets and DeleteRecords.

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, DeleteRecordsRequest, ListOffsetsRequest};
use records::Codec;

use super::support::{Fixture, topic_name};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;

impl Fixture {
    /// Asks for partition 0: error code, offset, timestamp.
    pub(crate) fn offset(&mut self, topic: &str, timestamp: i64) -> (i16, i64, i64) {
        self.offset_as(10, topic, 0, timestamp)
    }

    fn offset_as(&mut self, version: i16, topic: &str, index: i32, timestamp: i64) -> (i16, i64, i64) {
        let answer = self.ask(version, topic, &[(index, timestamp)]).remove(0);
        (answer.0, answer.1, answer.2)
    }

    /// Error code, offset, timestamp and leader epoch of each partition asked for.
    fn ask(&mut self, version: i16, topic: &str, asked: &[(i32, i64)]) -> Vec<(i16, i64, i64, i32)> {
        let partitions = asked.iter().map(|(index, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(*index)
                .with_current_leader_epoch(-1)
                .with_timestamp(*timestamp)
        });
        let topic =
            ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(partitions.collect());
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        // Version 11 has the layout of version 10, which is the last that the codec knows.
        let answer = self.client.call_as(version, version.min(10), &request).topics.remove(0);
        let partitions = answer.partitions.iter();
        partitions.map(|one| (one.error_code, one.offset, one.timestamp, one.leader_epoch)).collect()
    }

    /// Cuts partitions: error code and start of each.
    fn cut(&mut self, topic: &str, cuts: &[(i32, i64)]) -> Vec<(i16, i64)> {
        let partitions = cuts.iter().map(|(index, offset)| {
            DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset)
        });
        let topic =
            DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(partitions.collect());
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let answer = self.client.call(2, &request).topics.remove(0);
        answer.partitions.iter().map(|one| (one.error_code, one.low_watermark)).collect()
    }

    /// Timestamps 5, 9, 7 in one batch; 20, 30 in the next, compressed.
    #[track_caller]
    fn timed(&mut self, topic: &str) {
        self.topic(topic, 1);
        assert_eq!(self.produce(topic, &[5, 9, 7], Codec::None), (0, 0));
        assert_eq!(self.produce(topic, &[20, 30], Codec::Gzip), (0, 3));
    }
}

#[test]
fn f16_partition_numbers() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    for index in [-1, 99, i32::MIN, i32::MAX] {
        assert_eq!(fixture.offset_as(7, "t", index, LATEST), (3, -1, -1), "partition {index}");
    }
    assert_eq!(fixture.offset_as(7, "nope", 0, LATEST), (3, -1, -1));
    let twice = fixture.ask(7, "t", &[(0, LATEST), (0, EARLIEST)]);
    assert!(twice.iter().all(|answer| answer.0 == 42), "{twice:?}");
    let mixed = fixture.ask(7, "t", &[(0, LATEST), (1, LATEST)]);
    assert_eq!(mixed.iter().map(|answer| answer.0).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn f17_offset_for_a_time() {
    let mut fixture = Fixture::start();
    fixture.timed("t");
    for (time, offset, timestamp) in [
        (0, 0, 5),
        (5, 0, 5),
        (6, 1, 9),
        (8, 1, 9),
        (9, 1, 9),
        (10, 3, 20),
        (20, 3, 20),
        (21, 4, 30),
        (30, 4, 30),
        (31, -1, -1),
        (1 << 62, -1, -1),
    ] {
        assert_eq!(fixture.offset("t", time), (0, offset, timestamp), "time {time}");
    }
}

#[test]
fn f18_after_a_trim() {
    let mut fixture = Fixture::start();
    fixture.timed("t");
    assert_eq!(fixture.cut("t", &[(0, 2)]), [(0, 2)]);
    assert_eq!(fixture.offset("t", 0), (0, 2, 7));
    assert_eq!(fixture.offset("t", EARLIEST), (0, 2, -1));
    assert_eq!(fixture.offset("t", LATEST), (0, 5, -1));
    assert_eq!(fixture.cut("t", &[(0, -1)]), [(0, 5)]);
    assert_eq!(fixture.offset("t", EARLIEST), (0, 5, -1));
    assert_eq!(fixture.offset("t", LATEST), (0, 5, -1));
    assert_eq!(fixture.offset("t", 0), (0, -1, -1));
    assert_eq!(fixture.offset("t", MAX_TIMESTAMP), (0, -1, -1));
    fixture.kill_and_restart();
    assert_eq!(fixture.offset("t", EARLIEST), (0, 5, -1), "a trim survives a crash");
}

#[test]
fn f20_max_timestamp() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.offset("t", MAX_TIMESTAMP), (0, -1, -1));
    let mut end = 0;
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let top = 10 * (end + 1);
        fixture.produce("t", &[top - 4, top, top - 2], codec);
        assert_eq!(fixture.offset("t", MAX_TIMESTAMP), (0, end + 1, top), "{codec:?}");
        end += 3;
    }
}

#[test]
fn f22_delete_records() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    fixture.produce("t", &[1, 2, 3, 4, 5], Codec::None);
    for (to, answer) in
        [(2, (0, 2)), (2, (0, 2)), (1, (0, 2)), (0, (0, 2)), (-1, (0, 5)), (-2, (1, -1)), (6, (1, -1))]
    {
        assert_eq!(fixture.cut("t", &[(0, to)]), [answer], "to {to}");
    }
    assert_eq!(fixture.cut("t", &[(9, 0), (0, 0), (-1, 0)]), [(3, -1), (0, 5), (3, -1)]);
    assert_eq!(fixture.cut("nope", &[(0, 0)]), [(3, -1)]);
    assert_eq!(fixture.cut("t", &[(0, 6), (0, 5)]), [(0, 5)], "what is named last holds");
}

#[test]
fn topics_that_only_compact_are_not_trimmed() {
    let mut fixture = Fixture::start();
    fixture.topic_with("only", 1, &[("cleanup.policy", "compact")]);
    fixture.topic_with("both", 1, &[("cleanup.policy", "compact,delete")]);
    assert_eq!(fixture.cut("only", &[(0, 0)]), [(44, -1)]);
    assert_eq!(fixture.cut("both", &[(0, 0)]), [(0, 0)]);
}

#[test]
fn special_times_have_their_first_version() {
    let mut fixture = Fixture::start();
    fixture.timed("t");
    for (timestamp, since, offset) in [(LATEST, 1, 5), (EARLIEST, 1, 0), (MAX_TIMESTAMP, 7, 4), (-4, 8, 0)] {
        for version in 1..=11 {
            let answer = fixture.offset_as(version, "t", 0, timestamp);
            let expected = if version < since { (35, -1) } else { (0, offset) };
            assert_eq!((answer.0, answer.1), expected, "{timestamp} in v{version}");
        }
    }
    for (timestamp, since) in [(-5, 9), (-6, 11), (-7, 12), (i64::MIN, 12)] {
        for version in 7..=11 {
            let code = if version < since { 35 } else { 0 };
            assert_eq!(
                fixture.offset_as(version, "t", 0, timestamp),
                (code, -1, -1),
                "{timestamp} in v{version}"
            );
        }
    }
}

#[test]
fn r04_offsets_tell_the_epoch_their_record_was_written_in() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    fixture.produce("t", &[5], Codec::None);
    let before = fixture.ask(10, "t", &[(0, LATEST)])[0].3;
    fixture.kill_and_restart();
    fixture.produce("t", &[9], Codec::None);
    let after = fixture.ask(10, "t", &[(0, LATEST)])[0].3;
    assert!(after > before, "a start after a crash raises the epoch");
    assert_eq!(fixture.ask(10, "t", &[(0, EARLIEST)]), [(0, 0, -1, before)]);
    assert_eq!(fixture.ask(10, "t", &[(0, 0)]), [(0, 0, 5, before)]);
    assert_eq!(fixture.ask(10, "t", &[(0, MAX_TIMESTAMP)]), [(0, 1, 9, after)]);
}
