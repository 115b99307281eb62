//! Offsets of partition 0 of topic "t" that group "plain" commits.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest, TopicName};

use super::client::{Client, text};

/// Commits from outside the group, once; the error code.
pub async fn commit(client: &mut Client, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
    let topic =
        OffsetCommitRequestTopic::default().with_name(TopicName(text("t"))).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text("plain")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    client.call(8, &request).await.topics[0].partitions[0].error_code
}

/// What is committed, once the coordinator has loaded; −1 for nothing.
pub async fn committed(client: &mut Client) -> i64 {
    let topic =
        OffsetFetchRequestTopic::default().with_name(TopicName(text("t"))).with_partition_indexes(vec![0]);
    let request =
        OffsetFetchRequest::default().with_group_id(GroupId(text("plain"))).with_topics(Some(vec![topic]));
    for _ in 0..10_000 {
        let answer = client.call(7, &request).await;
        if answer.error_code == 0 {
            return answer.topics[0].partitions[0].committed_offset;
        }
        assert_eq!(answer.error_code, 14);
    }
    panic!("the coordinator does not load");
}
