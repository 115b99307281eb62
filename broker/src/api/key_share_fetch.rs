//! KeyShareFetch (key 10078, v0): ours, see `protocol/schemas/KeyShareFetchRequest.json`.
//!
//! ShareFetch with more to say: a delivery number and an outcome for each acknowledged range, recalled ranges, limits by
//! keys, the promise to stop at a disconnect. Answers are slim: they hold what was acquired and nothing else. Without a
//! member it comes from a standalone reader: its session hangs on its connection, its key-hash ranges bind, and it needs a
//! group with order by key that has no members. Left out: in a group, where key-hash ranges are hints, they are not
//! followed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use coordinator::command::{Command, KeyRange, KeyShareTerms, ShareFetch, ShareFetchPart, StandaloneFetch};
use coordinator::reply::{ShareFetched, SharePart};
use coordinator::share::{RANGES_MAX, ShareOrder};
use protocol::ErrorCode;
use protocol::messages::key_share_fetch::{
    AcknowledgeResult, AcquiredRange, KeyHashRange, KeyShareFetchPartitionResponse, KeyShareFetchRequest,
    KeyShareFetchResponse, KeyShareFetchTopicResponse, STOPS_AT_DISCONNECT,
};
use records::ids::{Offset, PartitionId};

use super::coordination::words;
use super::share_requests::{
    OPENS, Refusal, distinct, fetch_error, member_or_reader, number, numbered, opens_group, recalled,
    results, told,
};
use crate::catalog::Image;
use crate::config::Overrides;
use crate::config::group::share_config;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::{Data, FileRange, Reply};

/// The acknowledgements of a request, by partition, as its answer repeats them.
type Echoes = BTreeMap<PartitionId, Vec<AcknowledgeResult>>;

/// Answers with what there is for the member, or waits for it.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: KeyShareFetchRequest,
) -> Result<KeyShareFetchResponse<FileRange>, CloseConnection> {
    let refused = |refusal: Refusal| KeyShareFetchResponse {
        error_code: refusal.error,
        error_message: refusal.words(),
        ..KeyShareFetchResponse::default()
    };
    let (fetch, echoes) = match command(cx, request) {
        Ok(accepted) => accepted,
        Err(refusal) => return Ok(refused(refusal)),
    };
    if let Command::StandaloneFetch(StandaloneFetch { fetch, .. }) | Command::ShareFetch(fetch) = &fetch
        && fetch.epoch == OPENS
        && let Err(refusal) = opens_group(cx, &fetch.group).await?
    {
        return Ok(refused(refusal));
    }
    match cx.call(fetch).await? {
        Reply::ShareFetched(Ok(fetched)) => Ok(answer(&cx.broker.catalog.image(), fetched, echoes)),
        Reply::ShareFetched(Err(error)) => Ok(KeyShareFetchResponse {
            error_code: error_map::share(&error),
            error_message: words(&error),
            ..KeyShareFetchResponse::default()
        }),
        other => unreachable!("a key-share fetch is answered by {other:?}"),
    }
}

/// Standalone readers share a partition by its keys: without an order of them there is nothing to share by.
const UNORDERED: Refusal = Refusal::invalid(
    "standalone readers need a group that keeps keys in order: set sluice.share.order=key on it",
);

fn command(cx: &RequestContext, request: KeyShareFetchRequest) -> Result<(Command, Echoes), Refusal> {
    let (group, member) = member_or_reader(&request.group_id, request.member_id.as_ref())?;
    let is_standalone = request.member_id.is_none();
    if is_standalone && !keeps_order(cx, &group) {
        return Err(UNORDERED);
    }
    if request.flags & !STOPS_AT_DISCONNECT != 0 {
        return Err(Refusal::invalid("unknown flags: only 1 (stops at disconnect) is defined"));
    }
    let parts = request.topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic
            .partitions
            .into_iter()
            .map(move |part| (id, part.index, (part.acknowledgements, part.key_hash_ranges)))
    });
    let parts = distinct(parts)?;
    if request.session_epoch == OPENS && parts.iter().any(|(_, (acks, _))| !acks.is_empty()) {
        return Err(Refusal::invalid("a session begins without acknowledgements"));
    }
    if is_standalone {
        parts.iter().try_for_each(|(partition, (_, ranges))| check_ranges(partition.index, ranges))?;
    }
    let mut echoes = Echoes::new();
    let mut ranges = Vec::new();
    let part = |(partition, (acks, named)): (PartitionId, (Vec<_>, Vec<KeyHashRange>))| {
        let (acks, echo) = numbered(acks);
        echoes.insert(partition, echo);
        let range = |range: KeyHashRange| KeyRange { first: range.first_hash, last: range.last_hash };
        ranges.push((partition, named.into_iter().map(range).collect()));
        ShareFetchPart { partition, acks }
    };
    let parts = parts.into_iter().map(part).collect();
    let forgotten = request.forgotten_topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |index| PartitionId { topic: id, index })
    });
    let bytes_max = i32::try_from(cx.broker.config.fetch_bytes_max).unwrap_or(i32::MAX);
    let fetch = ShareFetch {
        connection: cx.connection,
        group,
        member,
        epoch: request.session_epoch,
        wait_max_ms: request.max_wait_ms.max(0),
        bytes_min: request.min_bytes.max(0),
        bytes_max: request.max_bytes.clamp(0, bytes_max),
        records_max: request.max_records.max(0),
        batch_size: i32::MAX,
        strict: true,
        renew: false,
        parts,
        forgotten: forgotten.collect(),
        key_share: Some(KeyShareTerms {
            keys_max: request.max_keys.max(0).unsigned_abs(),
            records_per_key_max: request.max_records_per_key.max(0).unsigned_abs(),
            // A standalone reader's session ends with its connection, and what it held returns.
            stops_at_disconnect: is_standalone || request.flags & STOPS_AT_DISCONNECT != 0,
        }),
    };
    let command = if is_standalone {
        Command::StandaloneFetch(StandaloneFetch { fetch, ranges })
    } else {
        Command::ShareFetch(fetch)
    };
    Ok((command, echoes))
}

/// What is wrong with a reader's ranges of a partition, in words that name them; a group's are hints.
fn check_ranges(partition: i32, ranges: &[KeyHashRange]) -> Result<(), Refusal> {
    let message = if ranges.len() > RANGES_MAX {
        let count = ranges.len();
        format!(
            "partition {partition} has {count} key-hash ranges: name {RANGES_MAX} at most, joining those that touch"
        )
    } else if let Some(bad) = ranges.iter().find(|range| range.first_hash > range.last_hash) {
        let (first, last) = (bad.first_hash.0, bad.last_hash.0);
        format!(
            "the key-hash range {first:016x} to {last:016x} of partition {partition} ends before it begins: hashes are \
             compared as unsigned numbers"
        )
    } else {
        return Ok(());
    };
    Err(Refusal { error: ErrorCode::InvalidRequest, message: Cow::Owned(message) })
}

fn keeps_order(cx: &RequestContext, group: &str) -> bool {
    let image = cx.broker.catalog.image();
    let nothing = Overrides::new();
    let own = image.group(group).map_or(&nothing, |own| own);
    share_config(&cx.broker.config, own).order == ShareOrder::Key
}

fn answer(
    image: &Image,
    fetched: ShareFetched<Data>,
    mut echoes: Echoes,
) -> KeyShareFetchResponse<FileRange> {
    let lock_ms = fetched.lock_ms;
    let mut topics: Vec<KeyShareFetchTopicResponse<FileRange>> = Vec::new();
    for part in fetched.parts {
        let topic_id = part.partition.topic;
        let echo = echoes.remove(&part.partition).unwrap_or_default();
        let partition = partition(image, part, echo, lock_ms);
        match topics.last_mut() {
            Some(last) if last.topic_id == topic_id => last.partitions.push(partition),
            _ => topics.push(KeyShareFetchTopicResponse { topic_id, partitions: vec![partition] }),
        }
    }
    KeyShareFetchResponse { acquisition_lock_timeout_ms: lock_ms, topics, ..KeyShareFetchResponse::default() }
}

fn partition(
    image: &Image,
    part: SharePart<Data>,
    echo: Vec<AcknowledgeResult>,
    lock_ms: i32,
) -> KeyShareFetchPartitionResponse<FileRange> {
    let (error_code, error_message) = told(fetch_error(image, part.partition, part.error));
    let failed = error_code.is_error();
    let range = |range: &coordinator::reply::AcquiredRange| AcquiredRange {
        first_offset: range.first,
        last_offset: range.last,
        delivery_count: range.count,
        delivery_number: number(range.delivery),
    };
    KeyShareFetchPartitionResponse {
        index: part.partition.index,
        error_code,
        error_message,
        acknowledge_results: results(image, part.partition, echo, &part.ack_results, part.ack_error),
        acquired_ranges: part.acquired.iter().map(range).collect(),
        recalled_ranges: recalled(&part.recalled),
        lease_ms: if part.acquired.is_empty() { -1 } else { lock_ms },
        start_offset: if failed { Offset(-1) } else { part.start_offset },
        high_watermark: if failed { Offset(-1) } else { part.high_watermark },
        records: part.data.map(Into::into).unwrap_or_default(),
        ..KeyShareFetchPartitionResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use records::ids::KeyHash;

    use super::*;

    fn range(first: u64, last: u64) -> KeyHashRange {
        KeyHashRange { first_hash: KeyHash(first), last_hash: KeyHash(last) }
    }

    #[test]
    fn a_bad_key_range_is_named() {
        assert_eq!(check_ranges(0, &[]), Ok(()));
        assert_eq!(check_ranges(0, &[range(0, u64::MAX), range(7, 7)]), Ok(()));
        let refused = check_ranges(3, &[range(0, 5), range(u64::MAX, 1)]).unwrap_err();
        assert_eq!(refused.error, ErrorCode::InvalidRequest);
        assert!(
            refused.message.starts_with(
                "the key-hash range ffffffffffffffff to 0000000000000001 of partition 3 ends before it begins"
            ),
            "{}",
            refused.message
        );
        let many = check_ranges(3, &vec![range(0, 1); RANGES_MAX + 1]).unwrap_err();
        assert!(many.message.contains("1025 key-hash ranges: name 1024 at most"), "{}", many.message);
    }
}
