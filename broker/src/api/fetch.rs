//! Fetch (key 1, v4–v18).
//!
//! Long polling by `max_wait_ms` and `min_bytes`; sessions from v7 on (KIP-227), topics by id from v13 on (KIP-516). The
//! broker's `fetch.max.bytes` bounds what a client asks for; the first batch goes out whatever its size (KIP-74). A
//! partition that cannot be read is answered at once, without waiting for the others. Record bytes are file ranges.
//! Readers of committed records (KIP-98) get what lies below the last stable offset, with the aborted transactions that
//! touch it; the list is null for all others. Left out: followers, other replicas (`preferred_read_replica` is −1).

use coordinator::command::{Command, Fetch, FetchPart, Isolation};
use coordinator::io::AbortedTransaction;
use coordinator::reply::{FetchError, FetchedPart};
use protocol::ErrorCode;
use protocol::messages::fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse};
use protocol::messages::{TopicRef, fetch};
use records::ids::PartitionId;

use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::{Data, FileRange, Reply};
use crate::fetch_session::{News, Wanted};

type PartResult = Result<FetchedPart<Data>, ErrorCode>;

/// First version that tells topics by id.
const TOPIC_IDS_FROM: i16 = 13;

/// Answers with what there is, or waits for it.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: FetchRequest,
) -> Result<FetchResponse<FileRange>, CloseConnection> {
    let by_id = cx.api_version >= TOPIC_IDS_FROM;
    let turn = match cx.broker.fetch_sessions.begin(cx.broker.clock.mono(), &request, by_id) {
        Ok(turn) => turn,
        Err(error_code) => return Ok(FetchResponse { error_code, ..FetchResponse::default() }),
    };
    let image = cx.broker.catalog.image();
    let places: Vec<Result<PartitionId, ErrorCode>> =
        turn.wanted.iter().map(|wanted| resolve(&image, wanted)).collect();
    drop(image);
    let parts: Vec<FetchPart> = places
        .iter()
        .zip(&turn.wanted)
        .filter_map(|(place, wanted)| Some(part(*place.as_ref().ok()?, wanted)))
        .collect();
    let has_errors = places.iter().any(Result::is_err);
    let mut fetched = read(cx, &request, parts, has_errors).await?.into_iter();
    let results: Vec<PartResult> = places
        .into_iter()
        .map(|place| {
            place?;
            fetched.next().expect("the shard answers every part").map_err(|error| error_map::fetch(&error))
        })
        .collect();
    let news: Vec<News> = results.iter().map(news).collect();
    let tell = turn.end(&news);
    let mut answer = FetchResponse { session_id: turn.session_id, ..FetchResponse::default() };
    let read_committed = isolation(&request) == Isolation::ReadCommitted;
    for ((wanted, result), told) in turn.wanted.iter().zip(results).zip(tell) {
        if told {
            push(&mut answer.topics, &wanted.topic, partition(wanted, result, read_committed));
        }
    }
    Ok(answer)
}

async fn read(
    cx: &RequestContext,
    request: &FetchRequest,
    parts: Vec<FetchPart>,
    has_errors: bool,
) -> Result<Vec<Result<FetchedPart<Data>, FetchError>>, CloseConnection> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let command = Command::Fetch(Fetch {
        connection: cx.connection,
        wait_max_ms: if has_errors { 0 } else { request.max_wait_ms.max(0) },
        bytes_min: unsigned(request.min_bytes),
        bytes_max: unsigned(request.max_bytes).min(cx.broker.config.fetch_bytes_max),
        isolation: isolation(request),
        parts,
    });
    match cx.call(command).await? {
        Reply::Fetched(fetched) => Ok(fetched),
        other => unreachable!("a fetch is answered by {other:?}"),
    }
}

fn resolve(image: &Image, wanted: &Wanted) -> Result<PartitionId, ErrorCode> {
    let topic = match &wanted.topic {
        TopicRef::Name(name) => image.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)?,
        TopicRef::Id(id) => image.topic_by_id(*id).ok_or(ErrorCode::UnknownTopicId)?,
    };
    topic.partition(wanted.partition.index).ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn part(partition: PartitionId, wanted: &Wanted) -> FetchPart {
    FetchPart {
        partition,
        offset: wanted.partition.fetch_offset,
        bytes_max: unsigned(wanted.partition.partition_max_bytes),
        current_leader_epoch: wanted.partition.current_leader_epoch,
        last_fetched_epoch: wanted.partition.last_fetched_epoch,
    }
}

fn news(result: &PartResult) -> News {
    match result {
        Ok(part) => News {
            high_watermark: part.high_watermark,
            log_start: part.log_start,
            has_records: part.data.is_some(),
            must_tell: false,
        },
        Err(_) => News {
            high_watermark: records::ids::Offset(-1),
            log_start: records::ids::Offset(-1),
            has_records: false,
            must_tell: true,
        },
    }
}

fn partition(wanted: &Wanted, result: PartResult, read_committed: bool) -> FetchPartitionResponse<FileRange> {
    let index = wanted.partition.index;
    match result {
        Ok(part) => FetchPartitionResponse {
            high_watermark: part.high_watermark,
            last_stable_offset: part.last_stable,
            log_start_offset: part.log_start,
            aborted_transactions: read_committed.then(|| part.aborted.into_iter().map(aborted).collect()),
            records: part.data.map(Into::into).unwrap_or_default(),
            ..FetchPartitionResponse::error(index, ErrorCode::None)
        },
        Err(error) => FetchPartitionResponse::error(index, error),
    }
}

fn aborted(transaction: AbortedTransaction) -> fetch::AbortedTransaction {
    fetch::AbortedTransaction { producer_id: transaction.producer, first_offset: transaction.first }
}

/// Partitions keep their order; neighbours of one topic share its entry (case F15).
fn push(
    topics: &mut Vec<FetchTopicResponse<FileRange>>,
    topic: &TopicRef,
    partition: FetchPartitionResponse<FileRange>,
) {
    match topics.last_mut() {
        Some(last) if last.topic == *topic => last.partitions.push(partition),
        _ => topics.push(FetchTopicResponse { topic: topic.clone(), partitions: vec![partition] }),
    }
}

fn isolation(request: &FetchRequest) -> Isolation {
    match request.isolation_level {
        1 => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    }
}

fn unsigned(number: i32) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
