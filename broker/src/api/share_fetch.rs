//! ShareFetch (key 78, v1–v2; KIP-932).
//!
//! Records for a member of a share group, and the acknowledgements that ride on the request: these are applied first. The
//! first request of a session (epoch 0) cannot carry any. Topics are told by id. v2 a strict record limit (KIP-1206), and
//! requests that only renew locks (KIP-1222), all of whose limits are 0. `fetch.max.bytes` bounds what a client asks for.
//! A partition that is named twice is INVALID_REQUEST, where Kafka fails (−1). Left out: leader hints, since no other
//! broker leads.

use coordinator::command::{Command, ShareFetch, ShareFetchPart};
use coordinator::reply::{ShareFetched, SharePart};
use protocol::messages::share_fetch::{
    AcquiredRecords, ShareFetchPartitionResponse, ShareFetchRequest, ShareFetchResponse,
    ShareFetchTopicResponse,
};
use records::ids::PartitionId;

use super::coordination::words;
use super::share_requests::{
    OPENS, Refusal, ack_error, acknowledged, distinct, fetch_error, opens_group, speaker, told,
};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::{Data, FileRange, Reply};

/// Whole batches may exceed the record limit.
const BATCH_OPTIMIZED: i8 = 0;
/// The record limit binds.
const RECORD_LIMIT: i8 = 1;

/// Answers with what there is for the member, or waits for it.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ShareFetchRequest,
) -> Result<ShareFetchResponse<FileRange>, CloseConnection> {
    let refused = |refusal: Refusal| ShareFetchResponse {
        error_code: refusal.error,
        error_message: refusal.words(),
        ..ShareFetchResponse::default()
    };
    let fetch = match command(cx, request) {
        Ok(fetch) => fetch,
        Err(refusal) => return Ok(refused(refusal)),
    };
    if fetch.epoch == OPENS
        && let Err(refusal) = opens_group(cx, &fetch.group).await?
    {
        return Ok(refused(refusal));
    }
    match cx.call(Command::ShareFetch(fetch)).await? {
        Reply::ShareFetched(Ok(fetched)) => Ok(answer(&cx.broker.catalog.image(), fetched)),
        Reply::ShareFetched(Err(error)) => Ok(ShareFetchResponse {
            error_code: error_map::share(&error),
            error_message: words(&error),
            ..ShareFetchResponse::default()
        }),
        other => unreachable!("a share fetch is answered by {other:?}"),
    }
}

fn command(cx: &RequestContext, request: ShareFetchRequest) -> Result<ShareFetch, Refusal> {
    let (group, member) = speaker(request.group_id.as_ref(), request.member_id.as_ref())?;
    if !matches!(request.share_acquire_mode, BATCH_OPTIMIZED | RECORD_LIMIT) {
        return Err(Refusal::invalid("unknown acquire mode, use 0 (batch optimized) or 1 (record limit)"));
    }
    let asks_for_nothing =
        [request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records] == [0; 4];
    if request.is_renew_ack && !asks_for_nothing {
        return Err(Refusal::invalid(
            "a fetch that renews has max wait, min bytes, max bytes and max records 0",
        ));
    }
    let parts = request.topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |part| (id, part.index, part.acknowledgements))
    });
    let parts = distinct(parts)?;
    if request.share_session_epoch == OPENS && parts.iter().any(|(_, acks)| !acks.is_empty()) {
        return Err(Refusal::invalid("a session begins without acknowledgements"));
    }
    let part =
        |(partition, acks): (PartitionId, Vec<_>)| ShareFetchPart { partition, acks: acknowledged(&acks) };
    let forgotten = request.forgotten_topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |index| PartitionId { topic: id, index })
    });
    let bytes_max = i32::try_from(cx.broker.config.fetch_bytes_max).unwrap_or(i32::MAX);
    Ok(ShareFetch {
        connection: cx.connection,
        group,
        member,
        epoch: request.share_session_epoch,
        wait_max_ms: request.max_wait_ms.max(0),
        bytes_min: request.min_bytes.max(0),
        bytes_max: request.max_bytes.clamp(0, bytes_max),
        records_max: request.max_records.max(0),
        batch_size: request.batch_size.max(0),
        strict: request.share_acquire_mode == RECORD_LIMIT,
        renew: request.is_renew_ack,
        parts: parts.into_iter().map(part).collect(),
        forgotten: forgotten.collect(),
        key_share: None,
    })
}

fn answer(image: &Image, fetched: ShareFetched<Data>) -> ShareFetchResponse<FileRange> {
    let mut topics: Vec<ShareFetchTopicResponse<FileRange>> = Vec::new();
    for part in fetched.parts {
        let topic_id = part.partition.topic;
        let partition = partition(image, part);
        match topics.last_mut() {
            Some(last) if last.topic_id == topic_id => last.partitions.push(partition),
            _ => topics.push(ShareFetchTopicResponse { topic_id, partitions: vec![partition] }),
        }
    }
    ShareFetchResponse {
        acquisition_lock_timeout_ms: fetched.lock_ms,
        topics,
        ..ShareFetchResponse::default()
    }
}

fn partition(image: &Image, part: SharePart<Data>) -> ShareFetchPartitionResponse<FileRange> {
    let (error_code, error_message) = told(fetch_error(image, part.partition, part.error));
    let (acknowledge_error_code, acknowledge_error_message) =
        told(ack_error(image, part.partition, part.ack_error));
    let range = |range: coordinator::reply::AcquiredRange| AcquiredRecords {
        first_offset: range.first,
        last_offset: range.last,
        delivery_count: range.count,
    };
    ShareFetchPartitionResponse {
        index: part.partition.index,
        error_code,
        error_message,
        acknowledge_error_code,
        acknowledge_error_message,
        records: part.data.map(Into::into).unwrap_or_default(),
        acquired_records: part.acquired.into_iter().map(range).collect(),
        ..ShareFetchPartitionResponse::default()
    }
}
