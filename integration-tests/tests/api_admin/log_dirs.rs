//! DescribeLogDirs, OffsetForLeaderEpoch and OffsetDelete.

use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeLogDirsRequest, GroupId, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
};
use records::Codec;

use super::support::{Fixture, text, topic_name};

/// Partition, error, epoch, end offset.
type EpochEnd = (i32, i16, i32, i64);

impl Fixture {
    /// Asks each of these questions: partition, asked epoch, epoch that the client knows.
    fn epoch_ends(&mut self, version: i16, topic: &str, asked: &[(i32, i32, i32)]) -> Vec<EpochEnd> {
        let partitions = asked.iter().map(|&(partition, epoch, known)| {
            OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_leader_epoch(epoch)
                .with_current_leader_epoch(known)
        });
        let topic = OffsetForLeaderTopic::default()
            .with_topic(topic_name(topic))
            .with_partitions(partitions.collect());
        let replica = BrokerId(if version >= 3 { -1 } else { -2 });
        let request =
            OffsetForLeaderEpochRequest::default().with_replica_id(replica).with_topics(vec![topic]);
        let answer = self.client.call(version, &request).topics.remove(0);
        let partitions = answer.partitions.iter();
        partitions.map(|one| (one.partition, one.error_code, one.leader_epoch, one.end_offset)).collect()
    }

    pub(crate) fn commit(&mut self, group: &str, topic: &str, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic =
            OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        self.client.call(8, &request).topics[0].partitions[0].error_code
    }

    /// Error and offset; asks again while the coordinator reads its log.
    pub(crate) fn committed(&mut self, group: &str, topic: &str) -> i64 {
        let topic =
            OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(vec![0]);
        let request =
            OffsetFetchRequest::default().with_group_id(GroupId(text(group))).with_topics(Some(vec![topic]));
        for _ in 0..10_000 {
            let answer = self.client.call(7, &request);
            if answer.error_code == 0 {
                return answer.topics[0].partitions[0].committed_offset;
            }
            assert_eq!(answer.error_code, 14);
        }
        panic!("the coordinator does not load");
    }

    /// Top-level error, and partition and error of each.
    fn delete_offsets(&mut self, group: &str, topic: &str, indexes: &[i32]) -> (i16, Vec<(i32, i16)>) {
        let partitions =
            indexes.iter().map(|&index| OffsetDeleteRequestPartition::default().with_partition_index(index));
        let topic = OffsetDeleteRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.collect());
        let request =
            OffsetDeleteRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic]);
        let answer = self.client.call(0, &request);
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        (answer.error_code, partitions.map(|one| (one.partition_index, one.error_code)).collect())
    }
}

#[test]
fn a09_one_directory_with_every_partition() {
    let mut fixture = Fixture::start();
    fixture.topic("a", 2);
    fixture.topic("b", 1);
    fixture.produce("b", &[1, 2, 3], Codec::None);
    for version in 1..=4 {
        let answer = fixture.client.call(version, &DescribeLogDirsRequest::default().with_topics(None));
        assert_eq!((answer.error_code, answer.results.len()), (0, 1));
        let dir = &answer.results[0];
        assert_eq!(dir.error_code, 0);
        assert_eq!(&*dir.log_dir, fixture.broker.data_dir().to_str().unwrap());
        let told: Vec<_> = dir
            .topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|one| (topic.name.to_string(), one.partition_index))
            })
            .collect();
        assert_eq!(told, [("a".to_owned(), 0), ("a".to_owned(), 1), ("b".to_owned(), 0)]);
        let parts: Vec<_> = dir.topics.iter().flat_map(|topic| &topic.partitions).collect();
        assert!(parts.iter().all(|part| part.offset_lag == 0 && !part.is_future_key));
        assert_eq!(
            parts.iter().map(|part| part.partition_size > 0).collect::<Vec<_>>(),
            [false, false, true]
        );
        if version >= 4 {
            assert!(0 < dir.usable_bytes && dir.usable_bytes <= dir.total_bytes, "{dir:?}");
        }
    }
    let none = DescribeLogDirsRequest::default().with_topics(Some(Vec::new()));
    let answer = fixture.client.call(4, &none);
    assert_eq!((answer.results.len(), answer.results[0].topics.len()), (1, 0));
    let some = [("b", vec![0, 7]), ("missing", vec![0])].map(|(name, partitions)| {
        DescribableLogDirTopic::default().with_topic(topic_name(name)).with_partitions(partitions)
    });
    let some = DescribeLogDirsRequest::default().with_topics(Some(some.to_vec()));
    let answer = fixture.client.call(4, &some);
    let told: Vec<_> = answer.results[0]
        .topics
        .iter()
        .map(|topic| {
            (topic.name.to_string(), topic.partitions.iter().map(|one| one.partition_index).collect())
        })
        .collect();
    assert_eq!(told, [("b".to_owned(), vec![0])]);
}

#[test]
fn w13_the_newest_version_says_that_no_directory_is_cordoned() {
    let mut fixture = Fixture::start();
    fixture.topic("a", 1);
    // The second codec ends with version 4; version 5 has one byte more, behind the sizes (KIP-1066).
    let all = [0, 0];
    let mut four = fixture.client.exchange(35, 4, 2, &all).to_vec();
    let mut five = fixture.client.exchange(35, 5, 2, &all).to_vec();
    four[3] = five[3];
    let tags = four.split_off(four.len() - 2);
    let mut expected = [four, vec![0], tags].concat();
    // What is free on the disk changes from one moment to the next.
    let free = expected.len() - 11..expected.len() - 3;
    expected[free.clone()].fill(0);
    five[free].fill(0);
    assert_eq!(five, expected);
}

#[test]
fn f21_offset_for_leader_epoch() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.produce("t", &[1, 2, 3, 4, 5], Codec::None), (0, 0));
    // The epoch is the broker's and not told outright: the first one that is known.
    let first = (0..100).find(|&epoch| fixture.epoch_ends(4, "t", &[(0, epoch, -1)])[0].3 == 5).unwrap();
    for version in 2..=4 {
        let asked =
            [(0, first, -1), (0, first + 5, -1), (0, first, first + 3), (0, first - 1, -1), (9, 0, -1)];
        let told = fixture.epoch_ends(version, "t", &asked);
        let expected = [(0, 0, first, 5), (0, 0, -1, -1), (0, 75, -1, -1), (0, 0, -1, -1), (9, 3, -1, -1)];
        assert_eq!(told, expected, "v{version}");
    }
    assert_eq!(fixture.epoch_ends(4, "missing", &[(0, 0, -1)]), [(0, 3, -1, -1)]);
    fixture.kill_and_restart();
    assert_eq!(fixture.produce("t", &[6, 7], Codec::None), (0, 5));
    let told = fixture.epoch_ends(4, "t", &[(0, first, -1), (0, first + 1, -1), (0, first, first)]);
    assert_eq!(told, [(0, 0, first, 5), (0, 0, first + 1, 7), (0, 74, -1, -1)]);
}

#[test]
fn g11_offset_delete() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.produce("t", &[0; 10], Codec::None), (0, 0));
    assert_eq!(fixture.delete_offsets("nobody", "t", &[0]), (69, vec![]));
    assert_eq!(fixture.commit("g", "t", 7), 0);
    assert_eq!(fixture.committed("g", "t"), 7);
    assert_eq!(fixture.delete_offsets("nobody", "t", &[0]), (69, vec![]));
    assert_eq!(fixture.delete_offsets("g", "t", &[0, 5]), (0, vec![(0, 0), (5, 3)]));
    assert_eq!(fixture.committed("g", "t"), -1);
    assert_eq!(fixture.commit("g", "t", 9), 0);
    fixture.kill_and_restart();
    assert_eq!(fixture.committed("g", "t"), 9);
}

#[test]
fn r18_commits_above_a_cut_log_are_lowered_before_it_grows() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    assert_eq!(fixture.produce("t", &[0; 80], Codec::None), (0, 0));
    let log = fixture.broker.data_dir().join("t-0/00000000000000000000.log");
    let length = std::fs::metadata(&log).unwrap().len();
    assert_eq!(fixture.produce("t", &[0; 20], Codec::None), (0, 80));
    for number in 0..201 {
        assert_eq!(fixture.commit(&format!("g{number}"), "t", 100), 0);
    }
    // What a power cut does to a log whose end was not synced.
    fixture.broker.kill();
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(length).unwrap();
    fixture.broker.restart();
    fixture.client = integration_tests::api_client::ApiClient::connect(fixture.broker.bootstrap());
    assert_eq!(fixture.produce("t", &[1], Codec::None), (0, 80));
    fixture.kill_and_restart();
    for number in 0..201 {
        assert_eq!(fixture.committed(&format!("g{number}"), "t"), 80);
    }
    // Past the end on purpose: kept by a stop in order.
    assert_eq!(fixture.commit("g0", "t", 100), 0);
    assert!(fixture.broker.terminate().success());
    fixture.broker.restart();
    fixture.client = integration_tests::api_client::ApiClient::connect(fixture.broker.bootstrap());
    assert_eq!(fixture.committed("g0", "t"), 100);
}
