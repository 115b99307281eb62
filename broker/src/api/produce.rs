//! Produce (key 0, v3–v13; advertised from 0, see `protocol::api`).
//!
//! Every batch is validated here, in one pass and without state; then the shard takes all of the request in one
//! command. Both happen in the order of the connection; the wait for the disk does not hold up what comes behind. v8
//! tells which records were refused (KIP-467), v13 names topics by id (KIP-516). A partition that is named twice has
//! one entry and stores the later batch. Where `compression.type` names another codec than the batch's, its payload is
//! packed anew behind the validation, on a thread that may take its time. With acks 0 there is no answer, an error closes
//! the connection, and the next request waits until it is stored. Left out: transactions, so a transactional batch is
//! refused for good (53); `timeout_ms`, since there are no followers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use coordinator::command::{Acks, Command, Produce, ProducedBatch};
use coordinator::io::Appended;
use coordinator::reply::ProduceError;
use protocol::messages::TopicRef;
use protocol::messages::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse,
    RecordError,
};
use protocol::{ErrorCode, Response, StrBytes};
use records::batch::ValidationError;
use records::ids::{KeyHash, Offset, PartitionId};
use records::{BatchView, TimestampType, batch};

use crate::admission::Reserved;
use crate::catalog::{Image, Topic};
use crate::context::{CloseConnection, RequestContext};
use crate::dispatch::Served;
use crate::error_map;
use crate::executor::Reply;

/// What becomes of one partition of a request.
enum Fate {
    /// Its batch goes to the shard.
    Submitted(i32),
    /// It is answered already.
    Refused(ProducePartitionResponse),
}

/// The request's topics with the fate of each of their partitions, in order.
type Fates = Vec<(TopicRef, Vec<Fate>)>;

/// What goes to the shard.
type Parts = Vec<(PartitionId, ProducedBatch)>;

/// Validates and hands over; the answer comes when the disk has it.
///
/// # Errors
/// Where the broker stops, and where nothing can be said of an error (acks 0).
pub async fn handle(cx: &RequestContext, request: ProduceRequest) -> Result<Served, CloseConnection> {
    let acks = match request.acks {
        -1 => Acks::Synced,
        0 | 1 => Acks::Written,
        _ => {
            let answer = refuse_all(request, ErrorCode::InvalidRequiredAcks);
            return Ok(Served::Now(Response::Produce(answer)));
        }
    };
    let silent = request.acks == 0;
    let (fates, parts, memory) = validate_aside(cx, request).await;
    if parts.is_empty() {
        let answer = answer(fates, Vec::new());
        return Ok(Served::Later(Box::pin(async move { finish(answer, silent) })));
    }
    let pending = cx.broker.shard.submit(Command::Produce(Produce { acks, parts })).await?;
    let stored = async move {
        let results = match pending.reply().await? {
            Reply::Produced(results) => results,
            other => unreachable!("a produce command is answered by {other:?}"),
        };
        drop(memory);
        finish(answer(fates, results), silent)
    };
    if silent {
        // Nothing tells the client when it is stored, so whatever it asks next must find it there.
        let outcome = stored.await;
        return Ok(Served::Later(Box::pin(async move { outcome })));
    }
    Ok(Served::Later(Box::pin(stored)))
}

fn finish(
    answer: ProduceResponse,
    silent: bool,
) -> Result<Option<Response<crate::executor::FileRange>>, CloseConnection> {
    if !silent {
        return Ok(Some(Response::Produce(answer)));
    }
    let mut errors =
        answer.topics.iter().flat_map(|topic| &topic.partitions).filter(|part| part.error_code.is_error());
    match errors.next() {
        None => Ok(None),
        Some(error) => Err(CloseConnection(Cow::Owned(format!(
            "produce with acks 0 failed for partition {}: {}",
            error.index, error.error_code
        )))),
    }
}

fn refuse_all(request: ProduceRequest, error: ErrorCode) -> ProduceResponse {
    let topics = request
        .topics
        .into_iter()
        .map(|topic| ProduceTopicResponse {
            topic: topic.topic,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| ProducePartitionResponse::error(partition.index, error))
                .collect(),
        })
        .collect();
    ProduceResponse { topics, ..ProduceResponse::default() }
}

/// Batches that are packed anew take time and memory: a thread and an amount of their own.
async fn validate_aside(cx: &RequestContext, request: ProduceRequest) -> (Fates, Parts, Option<Reserved>) {
    let bytes_max = packed_bytes_max(&cx.broker.catalog.image(), &request);
    if bytes_max == 0 {
        let (fates, parts) = validate(cx, request);
        return (fates, parts, None);
    }
    let mut memory = cx.broker.packing.nothing();
    cx.broker.packing.grow_frame(&mut memory, bytes_max).await;
    let aside = cx.clone();
    let validated = tokio::task::spawn_blocking(move || validate(&aside, request)).await;
    let (fates, parts) = validated.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    memory.shrink_to(parts.iter().map(|(_, batch)| batch.bytes.len() as u64).sum());
    (fates, parts, Some(memory))
}

/// What the batches of a request may take once they are packed as their topics want it; those that are already count
/// nothing.
fn packed_bytes_max(image: &Image, request: &ProduceRequest) -> u64 {
    let mut bytes = 0_u64;
    for topic in &request.topics {
        let Some(found) = find(image, &topic.topic) else { continue };
        let Some(packing) = found.packing else { continue };
        let differs = |partition: &&ProducePartition| {
            let records = partition.records.as_deref().unwrap_or_default();
            BatchView::parse(records).is_ok_and(|batch| packing.differs(&batch))
        };
        let count = topic.partitions.iter().filter(differs).count();
        bytes = bytes.saturating_add((count as u64).saturating_mul(found.rules(0, 0).batch_bytes_max as u64));
    }
    bytes
}

fn find<'i>(image: &'i Image, topic: &TopicRef) -> Option<&'i Arc<Topic>> {
    match topic {
        TopicRef::Name(name) => image.topic(name),
        TopicRef::Id(id) => image.topic_by_id(*id),
    }
}

fn validate(cx: &RequestContext, request: ProduceRequest) -> (Fates, Parts) {
    let image = cx.broker.catalog.image();
    let mut hashing = Hashing { bytes_left: KEYS_BYTES_MIN };
    let now_ms = cx.broker.clock.wall_ms();
    let mut parts = Vec::new();
    let mut transactional = false;
    let fates: Fates = merged(request)
        .into_iter()
        .map(|(topic, partitions)| {
            let fates = partitions
                .into_iter()
                .map(|partition| match check(cx, &image, now_ms, &topic, &partition, &mut hashing) {
                    Ok(part) => {
                        parts.push(part);
                        Fate::Submitted(partition.index)
                    }
                    Err(refusal) => {
                        transactional |= refusal.error_code == ErrorCode::TransactionalIdAuthorizationFailed;
                        Fate::Refused(refusal)
                    }
                })
                .collect();
            (topic, fates)
        })
        .collect();
    if transactional {
        // Kafka checks the right to the transactional id before it looks at any partition.
        return (all_refused(fates, ErrorCode::TransactionalIdAuthorizationFailed), Vec::new());
    }
    (fates, parts)
}

fn all_refused(fates: Fates, error: ErrorCode) -> Fates {
    let refused = |fate| match fate {
        Fate::Submitted(index) => Fate::Refused(ProducePartitionResponse::error(index, error)),
        Fate::Refused(refusal) => Fate::Refused(ProducePartitionResponse::error(refusal.index, error)),
    };
    fates.into_iter().map(|(topic, fates)| (topic, fates.into_iter().map(refused).collect())).collect()
}

/// Each topic once, each partition once: of a repeated one the later batch, in the earlier place (case P04).
fn merged(request: ProduceRequest) -> Vec<(TopicRef, Vec<ProducePartition>)> {
    let mut topics: Vec<(TopicRef, Vec<ProducePartition>)> = Vec::with_capacity(request.topics.len());
    let mut topic_places = HashMap::new();
    let mut partition_places = HashMap::new();
    for topic in request.topics {
        let place = *topic_places.entry(topic.topic.clone()).or_insert_with(|| {
            topics.push((detached(&topic.topic), Vec::new()));
            topics.len() - 1
        });
        let partitions = &mut topics[place].1;
        for partition in topic.partitions {
            match partition_places.entry((place, partition.index)) {
                Entry::Occupied(earlier) => partitions[*earlier.get()] = partition,
                Entry::Vacant(free) => {
                    free.insert(partitions.len());
                    partitions.push(partition);
                }
            }
        }
    }
    topics
}

/// The same, holding on to nothing of the frame: the log stamps a batch in place where it has the frame for itself.
fn detached(topic: &TopicRef) -> TopicRef {
    match topic {
        TopicRef::Name(name) => TopicRef::Name(StrBytes::from(name.as_str())),
        TopicRef::Id(id) => TopicRef::Id(*id),
    }
}

/// Finds the partition and checks its batch; the batch comes back with the max timestamp that its records have, packed as
/// the topic wants it.
fn check(
    cx: &RequestContext,
    image: &Image,
    now_ms: i64,
    topic: &TopicRef,
    partition: &ProducePartition,
    hashing: &mut Hashing,
) -> Result<(PartitionId, ProducedBatch), ProducePartitionResponse> {
    let refuse = |error| ProducePartitionResponse::error(partition.index, error);
    let found = find(image, topic).ok_or_else(|| {
        refuse(match topic {
            TopicRef::Name(_) => ErrorCode::UnknownTopicOrPartition,
            TopicRef::Id(_) => ErrorCode::UnknownTopicId,
        })
    })?;
    let id = found.partition(partition.index).ok_or_else(|| refuse(ErrorCode::UnknownTopicOrPartition))?;
    if found.internal {
        return Err(refuse(ErrorCode::InvalidTopicException));
    }
    let bytes = partition.records.clone().unwrap_or_default();
    if BatchView::parse(&bytes).is_ok_and(|batch| batch.attributes().is_transactional()) {
        return Err(refuse(ErrorCode::TransactionalIdAuthorizationFailed));
    }
    let mut rules = found.rules(now_ms, cx.api_version);
    rules.hash_keys = cx.broker.keyed.contains(id) && hashing.affords(&bytes);
    let refused = |error: ValidationError| {
        let mut refusal = refuse(error_map::validation(&error));
        refusal.record_errors = error
            .record_errors()
            .iter()
            .map(|fault| RecordError {
                batch_index: fault.batch_index,
                message: Some(StrBytes::from(fault.to_string())),
            })
            .collect();
        refusal.error_message = Some(StrBytes::from(error.to_string()));
        refusal
    };
    let validated = batch::validate(&bytes, &rules).map_err(refused)?;
    let mut changed = None;
    if let Ok(sent) = BatchView::parse(&bytes) {
        if let Some(packing) = found.packing.filter(|packing| packing.differs(&sent)) {
            let packed =
                batch::repack(&sent, packing, rules.bytes_max.max(bytes.len()), rules.batch_bytes_max);
            changed = Some(packed.map_err(refused)?);
        }
        if rules.timestamp_type == TimestampType::Create && sent.max_timestamp() != validated.max_timestamp {
            let corrected = changed.get_or_insert_with(|| BytesMut::from(&bytes[..]));
            batch::stamp(corrected, Offset::ZERO, -1, None, Some(validated.max_timestamp));
        }
    }
    let bytes = changed.map_or(bytes, BytesMut::freeze);
    Ok((id, ProducedBatch { bytes, keys: validated.key_hashes }))
}

/// Bytes of key hashes that a request may hold in any case.
const KEYS_BYTES_MIN: usize = 64 << 10;
/// Bytes of key hashes for each byte of the request: what comes in small is small in memory, whatever it inflates to.
const KEYS_BYTES_PER_BYTE: usize = 4;

/// How many key hashes a request may still hold until it is stored.
struct Hashing {
    bytes_left: usize,
}

impl Hashing {
    /// Whether a batch's keys are hashed while it is validated; else the log does it, which looks at it once more.
    fn affords(&mut self, batch: &Bytes) -> bool {
        self.bytes_left = self.bytes_left.saturating_add(batch.len() * KEYS_BYTES_PER_BYTE);
        let records = BatchView::parse(batch).map_or(0, |batch| batch.record_count());
        let bytes = usize::try_from(records).unwrap_or(0).saturating_mul(size_of::<Option<KeyHash>>());
        let affords = bytes <= self.bytes_left;
        if affords {
            self.bytes_left -= bytes;
        }
        affords
    }
}

fn answer(fates: Fates, results: Vec<Result<Appended, ProduceError>>) -> ProduceResponse {
    let mut results = results.into_iter();
    let topics = fates
        .into_iter()
        .map(|(topic, fates)| ProduceTopicResponse {
            topic,
            partitions: fates
                .into_iter()
                .map(|fate| match fate {
                    Fate::Refused(refusal) => refusal,
                    Fate::Submitted(index) => {
                        appended(index, results.next().expect("the shard answers every part"))
                    }
                })
                .collect(),
        })
        .collect();
    ProduceResponse { topics, ..ProduceResponse::default() }
}

fn appended(index: i32, result: Result<Appended, ProduceError>) -> ProducePartitionResponse {
    match result {
        Ok(appended) => ProducePartitionResponse {
            base_offset: appended.base_offset,
            log_append_time_ms: appended.append_time_ms.unwrap_or(-1),
            log_start_offset: appended.facts.log_start,
            ..ProducePartitionResponse::error(index, ErrorCode::None)
        },
        Err(error) => ProducePartitionResponse {
            error_message: Some(StrBytes::from(error.to_string())),
            ..ProducePartitionResponse::error(index, error_map::produce(&error))
        },
    }
}
