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
use protocol::messages::key_share_commit::{
    KeyShareCommitRequest, KeyShareCommitResponse, KeyShareCommittedPartition, KeyShareCommittedTopic,
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

/// Topics and partitions in the order of the request.
type Order = Vec<(TopicId, Vec<i32>)>;

fn command(
    cx: &RequestContext,
    request: KeyShareCommitRequest,
) -> Result<(StandaloneCommit, Order), Refusal> {
    let order = request
        .topics
        .iter()
        .map(|topic| (topic.topic_id, topic.partitions.iter().map(|part| part.index).collect()))
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
    for (topic_id, indexes) in order {
        let mut topic = KeyShareCommittedTopic { topic_id, ..KeyShareCommittedTopic::default() };
        for index in indexes {
            let partition = PartitionId { topic: topic_id, index };
            let outcome = outcomes.remove(&partition);
            let error = match &outcome {
                Some(outcome) => outcome.error,
                None => Some(ShareError::UnknownPartition),
            };
            let (error_code, error_message) = told(fetch_error(image, partition, error));
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
