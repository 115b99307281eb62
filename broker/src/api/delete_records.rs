//! DeleteRecords (key 21, v0–v2).
//!
//! Moves the start of a partition's log (KIP-107): to an offset, or by −1 to its end. At or below the start nothing
//! happens. The answer tells the start afterwards, which survives a power cut. A partition that is named twice is cut
//! at what is named last, as in Kafka. Refused: internal topics, and topics that only compact (POLICY_VIOLATION).
//! Left out: the timeout, since no other replica is waited for.

use coordinator::command::{Command, DeleteTo};
use protocol::ErrorCode;
use protocol::wire::delete_records_request::DeleteRecordsTopic;
use protocol::wire::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use protocol::wire::{DeleteRecordsRequest, DeleteRecordsResponse};
use records::ids::{Offset, PartitionId};

use crate::catalog::{Image, Topic};
use crate::config::definition::list;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

type Cut = Result<(PartitionId, DeleteTo), ErrorCode>;

/// Cuts all partitions in one go.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DeleteRecordsRequest,
) -> Result<DeleteRecordsResponse, CloseConnection> {
    let image = cx.broker.catalog.image();
    let cuts: Vec<Vec<(i32, Cut)>> = request.topics.iter().map(|topic| cuts(cx, &image, topic)).collect();
    drop(image);
    let command: Vec<(PartitionId, DeleteTo)> =
        cuts.iter().flatten().filter_map(|(_, cut)| cut.as_ref().ok().copied()).collect();
    let mut starts = match command.is_empty() {
        true => Vec::new(),
        false => match cx.call(Command::DeleteRecords(command)).await? {
            Reply::RecordsDeleted(starts) => starts,
            other => unreachable!("a cut is answered by {other:?}"),
        },
    }
    .into_iter();
    let mut answer = DeleteRecordsResponse::default();
    for (topic, cuts) in request.topics.into_iter().zip(cuts) {
        let mut result = DeleteRecordsTopicResult::default();
        result.name = topic.name;
        for (index, cut) in cuts {
            let start = cut.and_then(|_| {
                let start = starts.next().expect("the shard answers every cut");
                start.map_err(|error| error_map::delete(&error))
            });
            let mut partition = DeleteRecordsPartitionResult::default();
            partition.partition_index = index;
            partition.low_watermark = -1;
            match start {
                Ok(start) => partition.low_watermark = start.get(),
                Err(error) => partition.error_code = error.code(),
            }
            result.partitions.push(partition);
        }
        answer.topics.push(result);
    }
    Ok(answer)
}

fn cuts(cx: &RequestContext, image: &Image, asked: &DeleteRecordsTopic) -> Vec<(i32, Cut)> {
    let topic = image.topic(&asked.name).ok_or(ErrorCode::UnknownTopicOrPartition);
    let mut cuts: Vec<(i32, Cut)> = Vec::with_capacity(asked.partitions.len());
    let mut places = std::collections::HashMap::new();
    for partition in &asked.partitions {
        let index = partition.partition_index;
        let cut = topic.and_then(|topic| cut(cx, topic, index, partition.offset));
        match places.get(&index) {
            Some(place) => cuts[*place] = (index, cut),
            None => {
                places.insert(index, cuts.len());
                cuts.push((index, cut));
            }
        }
    }
    cuts
}

fn cut(cx: &RequestContext, topic: &Topic, index: i32, offset: i64) -> Cut {
    let partition = topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if topic.internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    if list(&cx.broker.config.topic_text("cleanup.policy", &topic.configs)) == ["compact"] {
        return Err(ErrorCode::PolicyViolation);
    }
    match offset {
        -1 => Ok((partition, DeleteTo::End)),
        0.. => Ok((partition, DeleteTo::Offset(Offset(offset)))),
        _ => Err(ErrorCode::OffsetOutOfRange),
    }
}
