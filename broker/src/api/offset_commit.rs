//! OffsetCommit (key 8, v2–v10).
//!
//! Answered when written, without waiting for the sync (DESIGN §7). Partitions that do not exist are refused one by
//! one, and the others go on. v2 to v4 say how long the offsets live. v6 leader epochs (KIP-320), v7 static members
//! (KIP-345). From v9 on an unknown group is GROUP_ID_NOT_FOUND where it was ILLEGAL_GENERATION (KIP-848). v10 topics by
//! id (KIP-848): an unknown one is UNKNOWN_TOPIC_ID.

use std::sync::Arc;

use coordinator::group::{CommittedPart, GroupCommand, GroupReply, OffsetCommit};
use protocol::ErrorCode;
use protocol::messages::from_uuid;
use protocol::wire::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::wire::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::wire::{OffsetCommitRequest, OffsetCommitResponse};

use super::coordination::{call, optional, text};
use crate::catalog::{Image, Topic};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// First version that tells topics by id.
const TOPIC_IDS_FROM: i16 = 10;
/// First version that tells a missing group from a wrong generation.
const MISSING_GROUP_FROM: i16 = 9;

/// Answers when the log has the offsets.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: OffsetCommitRequest,
) -> Result<OffsetCommitResponse, CloseConnection> {
    let image = cx.broker.catalog.image();
    let mut offsets = Vec::new();
    let mut answer = OffsetCommitResponse::default();
    answer.topics = request.topics.iter().map(|topic| check(cx, &image, topic, &mut offsets)).collect();
    drop(image);
    if offsets.is_empty() {
        return Ok(answer);
    }
    let command = GroupCommand::Commit(OffsetCommit {
        group: text(&request.group_id),
        member: text(&request.member_id),
        generation: request.generation_id_or_member_epoch,
        instance: optional(request.group_instance_id.as_ref()),
        tells_missing_group: cx.api_version >= MISSING_GROUP_FROM,
        retention_ms: Some(request.retention_time_ms).filter(|ms| *ms >= 0),
        offsets,
    });
    let outcomes = match call(cx, command).await? {
        GroupReply::Committed(outcomes) => outcomes,
        other => unreachable!("a commit is answered by {other:?}"),
    };
    let mut outcomes = outcomes.into_iter();
    let submitted = answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    for partition in submitted.filter(|partition| partition.error_code == ErrorCode::None.code()) {
        if let Err(error) = outcomes.next().expect("the coordinator answers every offset") {
            partition.error_code = error_map::group(&error).code();
        }
    }
    Ok(answer)
}

/// Answers what does not exist, and puts the rest to what is committed, in this order.
fn check(
    cx: &RequestContext,
    image: &Image,
    topic: &OffsetCommitRequestTopic,
    offsets: &mut Vec<CommittedPart>,
) -> OffsetCommitResponseTopic {
    let (found, missing) = if cx.api_version >= TOPIC_IDS_FROM {
        (image.topic_by_id(from_uuid(topic.topic_id)), ErrorCode::UnknownTopicId)
    } else {
        (image.topic(&topic.name), ErrorCode::UnknownTopicOrPartition)
    };
    let mut answer = OffsetCommitResponseTopic::default();
    answer.name = topic.name.clone();
    answer.topic_id = topic.topic_id;
    let told = topic.partitions.iter().map(|partition| {
        let mut told = OffsetCommitResponsePartition::default();
        told.partition_index = partition.partition_index;
        told.error_code = match found {
            None => missing.code(),
            Some(found) if found.partition(partition.partition_index).is_none() => {
                ErrorCode::UnknownTopicOrPartition.code()
            }
            Some(found) => {
                offsets.push(committed(found, partition));
                ErrorCode::None.code()
            }
        };
        told
    });
    answer.partitions = told.collect();
    answer
}

fn committed(topic: &Topic, partition: &OffsetCommitRequestPartition) -> CommittedPart {
    CommittedPart {
        topic: Arc::clone(&topic.name),
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.as_ref().map_or_else(Arc::default, text),
    }
}
