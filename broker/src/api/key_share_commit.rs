//! KeyShareCommit (key 10008, v0): ours, see `protocol/schemas/KeyShareCommitRequest.json`.
//!
//! A standalone reader says which ranges of offsets it is done with, beyond the start offset or at it, in any order;
//! where a gap closes the start offset moves on. It speaks of the session that KeyShareFetch opened on this connection,
//! and of records in that session's key ranges: what lies between them is passed over. A reader whose ranges another one
//! has taken over is FENCED_MEMBER_EPOCH. Members acknowledge instead, with delivery numbers.

use std::collections::BTreeMap;

use coordinator::command::{Command, StandaloneCommit};
use coordinator::reply::{AckOutcome, ShareAcknowledged};
use coordinator::share::ShareError;
use protocol::StrBytes;
use protocol::messages::key_share_commit::{
    KeyShareCommitPartition, KeyShareCommitRequest, KeyShareCommitResponse, KeyShareCommittedPartition,
    KeyShareCommittedTopic, OffsetRange,
};
use records::ids::{Offset, PartitionId, TopicId};

use super::coordination::{text, words};
use super::share_requests::{Refusal, distinct, fetch_error, told};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Answers when the ranges are stored.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: KeyShareCommitRequest,
) -> Result<KeyShareCommitResponse, CloseConnection> {
    let (commit, order) = match command(cx, request) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            return Ok(KeyShareCommitResponse {
                error_code: refusal.error,
                error_message: refusal.words(),
                ..KeyShareCommitResponse::default()
            });
        }
    };
    match cx.call(Command::StandaloneCommit(commit)).await? {
        Reply::ShareAcknowledged(Ok(committed)) => Ok(answer(&cx.broker.catalog.image(), order, committed)),
        Reply::ShareAcknowledged(Err(error)) => Ok(KeyShareCommitResponse {
            error_code: error_map::share(&error),
            error_message: words(&error),
            ..KeyShareCommitResponse::default()
        }),
        other => unreachable!("a commit is answered by {other:?}"),
    }
}

/// Topics, partitions and ranges in the order of the request.
type Order = Vec<(TopicId, Vec<(i32, Vec<OffsetRange>)>)>;

fn command(
    cx: &RequestContext,
    request: KeyShareCommitRequest,
) -> Result<(StandaloneCommit, Order), Refusal> {
    let named = |part: &KeyShareCommitPartition| (part.index, part.ranges.clone());
    let order = request
        .topics
        .iter()
        .map(|topic| (topic.topic_id, topic.partitions.iter().map(named).collect()))
        .collect();
    let parts = request.topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |part| (id, part.index, part.ranges))
    });
    let parts = distinct(parts)?
        .into_iter()
        .map(|(partition, ranges)| {
            let ranges = ranges.iter().map(|range| (range.first_offset.get(), range.last_offset.get()));
            (partition, ranges.collect())
        })
        .collect();
    Ok((StandaloneCommit { connection: cx.connection, group: text(&request.group_id), parts }, order))
}

fn answer(image: &Image, order: Order, committed: ShareAcknowledged) -> KeyShareCommitResponse {
    let mut outcomes: BTreeMap<PartitionId, AckOutcome> =
        committed.parts.into_iter().map(|part| (part.partition, part)).collect();
    let mut topics = Vec::with_capacity(order.len());
    for (topic_id, parts) in order {
        let mut topic = KeyShareCommittedTopic { topic_id, ..KeyShareCommittedTopic::default() };
        for (index, ranges) in parts {
            let partition = PartitionId { topic: topic_id, index };
            let outcome = outcomes.remove(&partition);
            let error = match &outcome {
                Some(outcome) => outcome.error,
                None => Some(ShareError::UnknownPartition),
            };
            let (error_code, words) = told(fetch_error(image, partition, error));
            let error_message = match error {
                Some(ShareError::InvalidRequest) => Some(StrBytes::from(refused(&ranges))),
                _ => words,
            };
            let start = outcome.filter(|_| error.is_none()).and_then(|outcome| outcome.start_offset);
            topic.partitions.push(KeyShareCommittedPartition {
                index,
                error_code,
                error_message,
                start_offset: start.unwrap_or(Offset(-1)),
            });
        }
        topics.push(topic);
    }
    KeyShareCommitResponse { topics, ..KeyShareCommitResponse::default() }
}

/// Why ranges are none that can be committed.
fn refused(ranges: &[OffsetRange]) -> String {
    let bad =
        ranges.iter().find(|range| range.first_offset < Offset(0) || range.first_offset > range.last_offset);
    if let Some(OffsetRange { first_offset: first, last_offset: last }) = bad {
        let why = if *first < Offset(0) { "begins below offset 0" } else { "ends before it begins" };
        return format!("the range {first} to {last} {why}: nothing of this partition was committed");
    }
    let last = ranges.iter().map(|range| range.last_offset).max().unwrap_or_default();
    format!(
        "offset {last} lies beyond everything that was ever delivered of this partition: commit what a fetch has brought; \
         nothing of it was committed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_cannot_be_committed_is_named() {
        let range = |first, last| OffsetRange { first_offset: Offset(first), last_offset: Offset(last) };
        for (ranges, wanted) in [
            (vec![range(0, 3), range(9, 7)], "the range 9 to 7 ends before it begins"),
            (vec![range(-1, 3)], "the range -1 to 3 begins below offset 0"),
            (vec![range(40, 41), range(0, 3)], "offset 41 lies beyond everything that was ever delivered"),
        ] {
            let told = refused(&ranges);
            assert!(told.starts_with(wanted), "{told}");
        }
    }
}
