//! AlterShareGroupOffsets (key 91, v0; KIP-932).
//!
//! Sets where a share group without members goes on reading. Everything that was known of the partition is forgotten:
//! counts, settled records beyond the start offset, waits. A group with members is NON_EMPTY_GROUP and keeps everything;
//! where there is no group of this id one is made, as in Kafka. Partitions that do not exist are
//! UNKNOWN_TOPIC_OR_PARTITION. An offset outside of the log is moved to its nearest end,
//! where Kafka stores it as it is and moves it when it is read.

use std::collections::BTreeMap;

use coordinator::command::Command;
use coordinator::group::GroupError;
use coordinator::share::admin::{AdminError, ResetOffsets, ResetTo};
use protocol::ErrorCode;
use protocol::messages::to_uuid;
use protocol::wire::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use protocol::wire::{AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse};
use records::ids::{Offset, PartitionId};

use super::coordination::{ensure_offsets_topic, text, wire, words};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// What became of each partition.
type Outcomes = BTreeMap<PartitionId, Result<Offset, AdminError>>;

/// Answers when it is stored where each partition begins.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: AlterShareGroupOffsetsRequest,
) -> Result<AlterShareGroupOffsetsResponse, CloseConnection> {
    let mut answer = AlterShareGroupOffsetsResponse::default();
    answer.error_message = None;
    if !request.group_id.is_empty() && request.topics.is_empty() {
        return Ok(answer);
    }
    let image = cx.broker.catalog.image();
    match alter(cx, &image, &request).await? {
        Ok(outcomes) => answer.responses = told(&image, request, &outcomes),
        Err(error) => {
            answer.error_code = error_map::group(&error).code();
            answer.error_message = words(&error);
        }
    }
    Ok(answer)
}

async fn alter(
    cx: &RequestContext,
    image: &Image,
    request: &AlterShareGroupOffsetsRequest,
) -> Result<Result<Outcomes, GroupError>, CloseConnection> {
    if request.group_id.is_empty() {
        return Ok(Err(GroupError::InvalidGroupId));
    }
    // Where it cannot be made, the coordinator refuses.
    let _ = ensure_offsets_topic(cx).await;
    // Of a partition that stands twice the last word holds, as in Kafka.
    let mut parts: BTreeMap<PartitionId, ResetTo> = BTreeMap::new();
    for topic in &request.topics {
        let found = image.topic(&topic.topic_name);
        for part in &topic.partitions {
            if let Some(id) = found.and_then(|topic| topic.partition(part.partition_index)) {
                parts.insert(id, ResetTo::Offset(Offset(part.start_offset.max(0))));
            }
        }
    }
    if parts.is_empty() {
        return Ok(Ok(Outcomes::new()));
    }
    let request = ResetOffsets { group: text(&request.group_id), parts: parts.into_iter().collect() };
    match cx.call(Command::AlterShareOffsets(request)).await? {
        Reply::ShareOffsetsReset(reset) => Ok(Ok(reset.into_iter().collect())),
        Reply::ShareOffsetsRefused(error) => Ok(Err(error)),
        other => unreachable!("a change of share offsets is answered by {other:?}"),
    }
}

fn told(
    image: &Image,
    request: AlterShareGroupOffsetsRequest,
    outcomes: &Outcomes,
) -> Vec<AlterShareGroupOffsetsResponseTopic> {
    let topic =
        |asked: protocol::wire::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic| {
            let found = image.topic(&asked.topic_name);
            let mut told = AlterShareGroupOffsetsResponseTopic::default();
            told.topic_id = found.map(|topic| to_uuid(topic.id)).unwrap_or_default();
            told.topic_name = asked.topic_name;
            let part = |index: i32| {
                let id = found.and_then(|topic| topic.partition(index));
                partition(index, id.and_then(|id| outcomes.get(&id)))
            };
            told.partitions = asked.partitions.into_iter().map(|asked| part(asked.partition_index)).collect();
            told
        };
    request.topics.into_iter().map(topic).collect()
}

fn partition(
    index: i32,
    outcome: Option<&Result<Offset, AdminError>>,
) -> AlterShareGroupOffsetsResponsePartition {
    let mut told = AlterShareGroupOffsetsResponsePartition::default();
    told.partition_index = index;
    told.error_message = None;
    match outcome {
        Some(Ok(_)) => {}
        Some(Err(error)) => {
            told.error_code = error_map::share_admin(error).code();
            told.error_message = words(error);
        }
        None => {
            told.error_code = ErrorCode::UnknownTopicOrPartition.code();
            told.error_message = Some(wire("there is no such partition"));
        }
    }
    told
}
