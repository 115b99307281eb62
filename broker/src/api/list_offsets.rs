//! ListOffsets (key 2, v1–v11).
//!
//! The log's start (−2, and −4 from v8 on) and end (−1), the first record not older than a time, and from v7 on the
//! record with the highest timestamp (−3, KIP-734). −5 (v9) and −6 (v11) ask for tiered storage, which there is none
//! of. v2 adds the isolation level: for readers of committed records the end is the last stable offset. v4 leader
//! epochs (KIP-320), v10 a timeout, which is not needed. Times before their version, and other negative ones, answer
//! UNSUPPORTED_VERSION; a partition that is asked for twice INVALID_REQUEST. Left out: followers, lane views.

use std::collections::HashMap;

use coordinator::command::{Command, Isolation, ListOffsets, ListOffsetsPart, OffsetQuery};
use coordinator::reply::FoundOffset;
use protocol::wire::list_offsets_request::ListOffsetsPartition;
use protocol::wire::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::wire::{ListOffsetsRequest, ListOffsetsResponse};
use protocol::{ErrorCode, StrBytes};

use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

type Question = Result<ListOffsetsPart, ErrorCode>;

/// Asks for all partitions in one go.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ListOffsetsRequest,
) -> Result<ListOffsetsResponse, CloseConnection> {
    let isolation = match request.isolation_level {
        0 => Ok(Isolation::ReadUncommitted),
        1 => Ok(Isolation::ReadCommitted),
        _ => Err(ErrorCode::InvalidRequest),
    };
    let image = cx.broker.catalog.image();
    let questions = questions(cx, &request, &image, isolation.err());
    drop(image);
    let parts: Vec<ListOffsetsPart> =
        questions.iter().flatten().filter_map(|question| question.as_ref().ok().copied()).collect();
    let mut found = match parts.is_empty() {
        true => Vec::new(),
        false => {
            let isolation = isolation.unwrap_or_default();
            match cx.call(Command::ListOffsets(ListOffsets { isolation, parts })).await? {
                Reply::Offsets(found) => found,
                other => unreachable!("a question about offsets is answered by {other:?}"),
            }
        }
    }
    .into_iter();
    let mut answer = ListOffsetsResponse::default();
    for (topic, questions) in request.topics.into_iter().zip(questions) {
        let mut told = ListOffsetsTopicResponse::default();
        told.name = topic.name;
        for (asked, question) in topic.partitions.iter().zip(questions) {
            let result = question.and_then(|_| {
                let found = found.next().expect("the shard answers every question");
                found.map_err(|error| error_map::fetch(&error))
            });
            told.partitions.push(partition(cx.api_version, asked, result));
        }
        answer.topics.push(told);
    }
    Ok(answer)
}

fn questions(
    cx: &RequestContext,
    request: &ListOffsetsRequest,
    image: &Image,
    refused: Option<ErrorCode>,
) -> Vec<Vec<Question>> {
    let mut counts: HashMap<(&StrBytes, i32), u32> = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *counts.entry((&topic.name, partition.partition_index)).or_default() += 1;
        }
    }
    let question = |name: &StrBytes, asked: &ListOffsetsPartition| {
        if let Some(error) = refused {
            return Err(error);
        }
        if counts[&(name, asked.partition_index)] > 1 {
            return Err(ErrorCode::InvalidRequest);
        }
        let topic = image.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let partition = topic.partition(asked.partition_index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let query = query(cx.api_version, asked.timestamp).ok_or(ErrorCode::UnsupportedVersion)?;
        Ok(ListOffsetsPart { partition, current_leader_epoch: asked.current_leader_epoch, query })
    };
    request
        .topics
        .iter()
        .map(|topic| topic.partitions.iter().map(|asked| question(&topic.name, asked)).collect())
        .collect()
}

/// What a timestamp asks for, if this version can ask for it (`ListOffsetsRequest`).
const fn query(version: i16, timestamp: i64) -> Option<OffsetQuery> {
    match timestamp {
        0.. => Some(OffsetQuery::At(timestamp)),
        -1 => Some(OffsetQuery::Latest),
        -2 => Some(OffsetQuery::Earliest),
        -3 if version >= 7 => Some(OffsetQuery::MaxTimestamp),
        -4 if version >= 8 => Some(OffsetQuery::Earliest),
        -5 if version >= 9 => Some(OffsetQuery::Tiered),
        -6 if version >= 11 => Some(OffsetQuery::Tiered),
        _ => None,
    }
}

fn partition(
    version: i16,
    asked: &ListOffsetsPartition,
    result: Result<FoundOffset, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let mut told = ListOffsetsPartitionResponse::default();
    told.partition_index = asked.partition_index;
    told.timestamp = -1;
    told.offset = -1;
    match result {
        Ok(FoundOffset { offset: Some(offset), timestamp, leader_epoch }) => {
            told.offset = offset.get();
            told.timestamp = timestamp;
            if version >= 4 {
                told.leader_epoch = leader_epoch;
            }
        }
        Ok(FoundOffset { offset: None, .. }) => {}
        Err(error) => told.error_code = error.code(),
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_times_have_their_first_version() {
        for (timestamp, since) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)] {
            for version in 1..=11 {
                assert_eq!(
                    query(version, timestamp).is_some(),
                    version >= since,
                    "{timestamp} in v{version}"
                );
            }
        }
        assert_eq!(query(11, -7), None);
        assert_eq!(query(11, i64::MIN), None);
        assert_eq!(query(1, 0), Some(OffsetQuery::At(0)));
    }
}
