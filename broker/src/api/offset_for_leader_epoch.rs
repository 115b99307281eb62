//! OffsetForLeaderEpoch (key 23, v2–v4).
//!
//! Where the records of a leader epoch end (KIP-101, KIP-320): of the largest epoch that is not above the asked one,
//! with its end offset; −1 and −1 where there is none, and for an epoch that is yet to come. Consumers find by it that a log was cut. Left out: what
//! followers ask.

use coordinator::command::{Command, Isolation, ListOffsets, ListOffsetsPart, OffsetQuery};
use coordinator::reply::FoundOffset;
use protocol::ErrorCode;
use protocol::wire::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use protocol::wire::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use protocol::wire::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::catalog::Topic;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Asks for all partitions in one go.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> Result<OffsetForLeaderEpochResponse, CloseConnection> {
    let image = cx.broker.catalog.image();
    let mut parts = Vec::new();
    let mut answer = OffsetForLeaderEpochResponse::default();
    for topic in &request.topics {
        let mut told = OffsetForLeaderTopicResult::default();
        told.topic = topic.topic.clone();
        let found = image.topic(&topic.topic).map(|topic| &**topic);
        for asked in &topic.partitions {
            let mut end = EpochEndOffset::default();
            (end.partition, end.leader_epoch, end.end_offset) = (asked.partition, -1, -1);
            match question(found, asked) {
                Some(part) => parts.push(part),
                None => end.error_code = ErrorCode::UnknownTopicOrPartition.code(),
            }
            told.partitions.push(end);
        }
        answer.topics.push(told);
    }
    drop(image);
    if parts.is_empty() {
        return Ok(answer);
    }
    let command = Command::ListOffsets(ListOffsets { isolation: Isolation::ReadUncommitted, parts });
    let found = match cx.call(command).await? {
        Reply::Offsets(found) => found,
        other => unreachable!("a question about offsets is answered by {other:?}"),
    };
    let asked = answer
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
        .filter(|end| end.error_code == ErrorCode::None.code());
    for (end, found) in asked.zip(found) {
        match found {
            Ok(FoundOffset { offset: Some(offset), leader_epoch, .. }) => {
                (end.leader_epoch, end.end_offset) = (leader_epoch, offset.get());
            }
            Ok(FoundOffset { offset: None, .. }) => {}
            Err(error) => end.error_code = error_map::fetch(&error).code(),
        }
    }
    Ok(answer)
}

fn question(topic: Option<&Topic>, asked: &OffsetForLeaderPartition) -> Option<ListOffsetsPart> {
    let partition = topic?.partition(asked.partition)?;
    let query = OffsetQuery::EpochEnd(asked.leader_epoch);
    Some(ListOffsetsPart { partition, current_leader_epoch: asked.current_leader_epoch, query })
}
