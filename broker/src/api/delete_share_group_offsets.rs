//! DeleteShareGroupOffsets (key 92, v0; KIP-932).
//!
//! Deletes a group's share state in the topics that are named: what members read next there begins where
//! `share.auto.offset.reset` says. A group with members is NON_EMPTY_GROUP and keeps everything. A topic that does not
//! exist, or of which the group has no state, is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.

use std::collections::BTreeMap;

use coordinator::command::Command;
use coordinator::group::GroupError;
use coordinator::share::ShareError;
use protocol::messages::to_uuid;
use protocol::wire::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use protocol::wire::{DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse};
use protocol::{ErrorCode, StrBytes};
use records::ids::PartitionId;

use super::coordination::{has_offsets_topic, text, wire, words};
use crate::catalog::{Image, Topic};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// What became of each partition: whether it had state.
type Outcomes = BTreeMap<PartitionId, Result<bool, ShareError>>;

/// Answers when the state is gone from the disk.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DeleteShareGroupOffsetsRequest,
) -> Result<DeleteShareGroupOffsetsResponse, CloseConnection> {
    let mut answer = DeleteShareGroupOffsetsResponse::default();
    answer.error_message = None;
    if !request.group_id.is_empty() && request.topics.is_empty() {
        return Ok(answer);
    }
    let image = cx.broker.catalog.image();
    let deleted = delete(cx, &image, &request).await?;
    match deleted {
        Ok(outcomes) => {
            answer.responses =
                request.topics.into_iter().map(|topic| told(&image, topic.topic_name, &outcomes)).collect();
        }
        Err(error) => {
            answer.error_code = error_map::group(&error).code();
            answer.error_message = words(&error);
        }
    }
    Ok(answer)
}

async fn delete(
    cx: &RequestContext,
    image: &Image,
    request: &DeleteShareGroupOffsetsRequest,
) -> Result<Result<Outcomes, GroupError>, CloseConnection> {
    if request.group_id.is_empty() {
        return Ok(Err(GroupError::InvalidGroupId));
    }
    if !has_offsets_topic(cx) {
        return Ok(Err(GroupError::GroupNotFound));
    }
    let topics = request.topics.iter().filter_map(|topic| image.topic(&topic.topic_name));
    let partitions = topics.flat_map(|topic| partitions(topic)).collect();
    let command = Command::DeleteShareOffsets { group: text(&request.group_id), partitions };
    match cx.call(command).await? {
        Reply::ShareOffsetsDeleted(deleted) => Ok(deleted.map(|outcomes| outcomes.into_iter().collect())),
        other => unreachable!("a deletion of share state is answered by {other:?}"),
    }
}

fn partitions(topic: &Topic) -> impl Iterator<Item = PartitionId> {
    let id = topic.id;
    (0..topic.partitions).map(move |index| PartitionId { topic: id, index })
}

fn told(image: &Image, name: StrBytes, outcomes: &Outcomes) -> DeleteShareGroupOffsetsResponseTopic {
    let mut told = DeleteShareGroupOffsetsResponseTopic::default();
    told.error_message = None;
    let topic = image.topic(&name);
    told.topic_name = name;
    let Some(topic) = topic else {
        told.error_code = ErrorCode::UnknownTopicOrPartition.code();
        told.error_message = Some(wire("there is no such topic"));
        return told;
    };
    told.topic_id = to_uuid(topic.id);
    let found: Vec<_> = partitions(topic).filter_map(|id| outcomes.get(&id)).collect();
    if let Some(error) = found.iter().find_map(|outcome| outcome.err()) {
        told.error_code = error_map::share(&error).code();
        told.error_message = words(&error);
    } else if !found.contains(&&Ok(true)) {
        told.error_code = ErrorCode::UnknownTopicOrPartition.code();
        told.error_message = Some(wire("the group has no offsets of this topic: there is nothing to delete"));
    }
    told
}
