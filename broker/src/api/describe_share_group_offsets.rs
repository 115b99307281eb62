//! DescribeShareGroupOffsets (key 90, v0–v1; KIP-932).
//!
//! Where the share-partitions of groups stand. What has no state is −1 without an error, as in Kafka: partitions that
//! were never read, that do not exist, and those of unknown groups. A null list of topics asks for all partitions that
//! have state, and those of the topics that members subscribe to. v1 the lag (KIP-1226): records at or above the start
//! offset that are not done.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::command::Command;
use coordinator::group::{GroupCommand, GroupReply};
use coordinator::reply::ShareOffsets;
use coordinator::share::ShareError;
use protocol::messages::to_uuid;
use protocol::wire::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use protocol::wire::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use protocol::wire::{DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse};
use records::ids::PartitionId;

use super::coordination::{ask, has_offsets_topic, text, wire, words};
use crate::catalog::Topic;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// What the shard says of each partition.
type Found = BTreeMap<PartitionId, Result<ShareOffsets, ShareError>>;

/// Answers for every group that is asked for, in order.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> Result<DescribeShareGroupOffsetsResponse, CloseConnection> {
    let mut answer = DescribeShareGroupOffsetsResponse::default();
    for group in &request.groups {
        let told = match &group.topics {
            Some(topics) => named(cx, group, topics).await?,
            None => all(cx, group).await?,
        };
        answer.groups.push(told);
    }
    Ok(answer)
}

async fn named(
    cx: &RequestContext,
    group: &DescribeShareGroupOffsetsRequestGroup,
    topics: &[DescribeShareGroupOffsetsRequestTopic],
) -> Result<DescribeShareGroupOffsetsResponseGroup, CloseConnection> {
    let image = cx.broker.catalog.image();
    let exist = topics.iter().flat_map(|topic| {
        let found = image.topic(&topic.topic_name);
        topic.partitions.iter().filter_map(move |index| found?.partition(*index))
    });
    let found = offsets(cx, group, Some(exist.collect())).await?;
    let mut answer = DescribeShareGroupOffsetsResponseGroup::default();
    answer.group_id = group.group_id.clone();
    for asked in topics {
        let topic = image.topic(&asked.topic_name);
        let mut told = DescribeShareGroupOffsetsResponseTopic::default();
        told.topic_name = asked.topic_name.clone();
        told.topic_id = topic.map(|topic| to_uuid(topic.id)).unwrap_or_default();
        let part = |index: &i32| {
            let id = topic.and_then(|topic| topic.partition(*index));
            partition(*index, id.and_then(|id| found.get(&id)))
        };
        told.partitions = asked.partitions.iter().map(part).collect();
        answer.topics.push(told);
    }
    Ok(answer)
}

async fn all(
    cx: &RequestContext,
    group: &DescribeShareGroupOffsetsRequestGroup,
) -> Result<DescribeShareGroupOffsetsResponseGroup, CloseConnection> {
    let found = offsets(cx, group, None).await?;
    let subscribed = subscribed(cx, group).await?;
    let image = cx.broker.catalog.image();
    let mut by_topic: BTreeMap<&Arc<str>, (&Topic, Vec<i32>)> = BTreeMap::new();
    for name in &subscribed {
        if let Some(topic) = image.topic(name) {
            by_topic.insert(&topic.name, (topic, (0..topic.partitions).collect()));
        }
    }
    for id in found.keys() {
        if let Some(topic) = image.topic_by_id(id.topic) {
            let (_, indexes) = by_topic.entry(&topic.name).or_insert_with(|| (topic, Vec::new()));
            if !indexes.contains(&id.index) {
                indexes.push(id.index);
            }
        }
    }
    let mut answer = DescribeShareGroupOffsetsResponseGroup::default();
    answer.group_id = group.group_id.clone();
    let topic = |(topic, indexes): (&Topic, Vec<i32>)| {
        let mut told = DescribeShareGroupOffsetsResponseTopic::default();
        told.topic_name = wire(&topic.name);
        told.topic_id = to_uuid(topic.id);
        let part = |index| partition(index, found.get(&PartitionId { topic: topic.id, index }));
        told.partitions = indexes.into_iter().map(part).collect();
        told
    };
    answer.topics = by_topic.into_values().map(topic).collect();
    Ok(answer)
}

async fn offsets(
    cx: &RequestContext,
    group: &DescribeShareGroupOffsetsRequestGroup,
    partitions: Option<Vec<PartitionId>>,
) -> Result<Found, CloseConnection> {
    let command = Command::DescribeShareOffsets { group: text(&group.group_id), partitions };
    match cx.call(command).await? {
        Reply::ShareOffsets(offsets) => Ok(offsets.into_iter().collect()),
        other => unreachable!("a question about share offsets is answered by {other:?}"),
    }
}

/// Names of the topics that the group's members subscribe to; none where there is no such group.
async fn subscribed(
    cx: &RequestContext,
    group: &DescribeShareGroupOffsetsRequestGroup,
) -> Result<Vec<Arc<str>>, CloseConnection> {
    if !has_offsets_topic(cx) {
        return Ok(Vec::new());
    }
    match ask(cx, GroupCommand::DescribeShare { group: text(&group.group_id) }).await? {
        GroupReply::ShareDescribed(Ok(described)) => {
            Ok(described.members.into_iter().flat_map(|member| member.topics).collect())
        }
        GroupReply::ShareDescribed(Err(_)) => Ok(Vec::new()),
        other => unreachable!("a describe of a share group is answered by {other:?}"),
    }
}

fn partition(
    index: i32,
    found: Option<&Result<ShareOffsets, ShareError>>,
) -> DescribeShareGroupOffsetsResponsePartition {
    let mut told = DescribeShareGroupOffsetsResponsePartition::default();
    told.partition_index = index;
    (told.start_offset, told.lag) = (-1, -1);
    match found {
        Some(Ok(ShareOffsets { start: Some(start), leader_epoch, lag })) => {
            told.start_offset = start.get();
            told.leader_epoch = *leader_epoch;
            told.lag = *lag;
        }
        Some(Ok(ShareOffsets { start: None, .. })) | None => {}
        Some(Err(error)) => {
            told.error_code = error_map::share(error).code();
            told.error_message = words(error);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use records::ids::Offset;

    use super::*;

    #[test]
    fn s18_what_was_never_read_is_minus_one() {
        let read = Ok(ShareOffsets { start: Some(Offset(7)), leader_epoch: 3, lag: 5 });
        let told = partition(2, Some(&read));
        assert_eq!((told.partition_index, told.start_offset, told.leader_epoch, told.lag), (2, 7, 3, 5));
        let unread = Ok(ShareOffsets { start: None, leader_epoch: 3, lag: -1 });
        for told in [partition(2, Some(&unread)), partition(2, None)] {
            assert_eq!((told.start_offset, told.leader_epoch, told.lag, told.error_code), (-1, 0, -1, 0));
        }
        let failed = partition(2, Some(&Err(ShareError::Unavailable)));
        assert_eq!((failed.start_offset, failed.error_code), (-1, 56));
    }
}
