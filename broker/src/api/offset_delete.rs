//! OffsetDelete (key 47, v0).
//!
//! Forgets committed offsets of a group (KIP-496), of topics that no member of it subscribes to: of those it answers
//! GROUP_SUBSCRIBED_TO_TOPIC. Where nothing is committed nothing happens.

use std::sync::Arc;

use coordinator::group::{GroupCommand, GroupError, GroupReply};
use protocol::ErrorCode;
use protocol::wire::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use protocol::wire::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::coordination::{ask, code, has_offsets_topic, text};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// Answers when it is stored that they are gone.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: OffsetDeleteRequest,
) -> Result<OffsetDeleteResponse, CloseConnection> {
    let image = cx.broker.catalog.image();
    let mut partitions: Vec<(Arc<str>, i32)> = Vec::new();
    let mut answer = OffsetDeleteResponse::default();
    for topic in &request.topics {
        let mut told = OffsetDeleteResponseTopic::default();
        told.name = topic.name.clone();
        let found = image.topic(&topic.name);
        for asked in &topic.partitions {
            let mut partition = OffsetDeleteResponsePartition::default();
            partition.partition_index = asked.partition_index;
            if found.is_some_and(|found| found.partition(asked.partition_index).is_some()) {
                partitions.push((text(&topic.name), asked.partition_index));
            } else {
                partition.error_code = ErrorCode::UnknownTopicOrPartition.code();
            }
            told.partitions.push(partition);
        }
        answer.topics.push(told);
    }
    drop(image);
    let outcomes = if has_offsets_topic(cx) {
        match ask(cx, GroupCommand::DeleteOffsets { group: text(&request.group_id), partitions }).await? {
            GroupReply::OffsetsDeleted(outcomes) => outcomes,
            other => unreachable!("an OffsetDelete is answered by {other:?}"),
        }
    } else {
        Err(GroupError::GroupNotFound)
    };
    match outcomes {
        Ok(outcomes) => {
            let asked = answer
                .topics
                .iter_mut()
                .flat_map(|topic| &mut topic.partitions)
                .filter(|partition| partition.error_code == ErrorCode::None.code());
            for (partition, outcome) in asked.zip(outcomes) {
                partition.error_code = code(&outcome);
            }
        }
        Err(error) => {
            answer.error_code = error_map::group(&error).code();
            answer.topics.clear();
        }
    }
    Ok(answer)
}
