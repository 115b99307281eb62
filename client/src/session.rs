//! A share session of the key-share API: epochs, what it reads, and both directions of its messages.
//!
//! Pure but for the frames it makes. Requests may be pipelined: an acknowledgement behind a parked fetch makes the
//! broker answer the fetch at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::AcknowledgeType;
use protocol::messages::key_share_acknowledge::{
    KeyShareAcknowledgePartition, KeyShareAcknowledgeRequest, KeyShareAcknowledgeResponse,
    KeyShareAcknowledgeTopic,
};
use protocol::messages::key_share_fetch::{
    AcknowledgeResult, Acknowledgement, KeyShareFetchPartition, KeyShareFetchPartitionResponse,
    KeyShareFetchRequest, KeyShareFetchResponse, KeyShareFetchTopic, KeyShareForgottenTopic, RecalledRange,
    STOPS_AT_DISCONNECT,
};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use protocol::{ErrorCode, StrBytes};
use records::batch::Batches;
use records::ids::{KeyHash, Offset, PartitionId, TopicId};
use records::key_hash::key_hash;

use crate::connection::Connection;
use crate::consumer::Settings;
use crate::error::{Error, Lost};
use crate::record::{Outcome, Record};
use crate::work::{Ack, Lane, Verdict};

/// A batch inflates to at most this: 128 MiB, above what any broker accepts.
const INFLATED_BYTES_MAX: usize = 128 << 20;

/// The epoch that closes a session.
const CLOSING: i32 = -1;

/// What an answer says.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What was delivered, in the broker's order.
    pub(crate) delivered: Vec<Delivered>,
    /// What became of the acknowledgements.
    pub(crate) settled: Vec<Settled>,
    /// What the member must drop.
    pub(crate) recalled: Vec<(PartitionId, Offset, Offset, i64)>,
    /// Some partition is led elsewhere or gone: look again where the leaders are.
    pub(crate) stale: bool,
}

/// A delivered record.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) partition: PartitionId,
    pub(crate) lane: Lane,
    pub(crate) number: i64,
    pub(crate) lease: Duration,
    pub(crate) record: Record,
}

/// What became of one acknowledged range.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) partition: PartitionId,
    pub(crate) first: Offset,
    pub(crate) last: Offset,
    pub(crate) number: i64,
    pub(crate) what: Verdict,
    pub(crate) refused: bool,
    /// Of a renewal: the new lease.
    pub(crate) lease: Duration,
}

impl Settled {
    /// How many records it was about.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.last - self.first + 1).unwrap_or(0)
    }
}

/// One range as it was sent.
#[derive(Debug)]
struct SentRange {
    partition: PartitionId,
    first: Offset,
    last: Offset,
    number: i64,
    what: Verdict,
}

#[derive(Debug)]
enum Sent {
    Fetch(Vec<SentRange>),
    Acknowledge(Vec<SentRange>),
}

/// The session's state on this side.
#[derive(Debug)]
pub(crate) struct Session {
    epoch: i32,
    names: BTreeMap<PartitionId, std::sync::Arc<str>>,
    told: BTreeSet<PartitionId>,
    sent: VecDeque<Sent>,
    requests: u64,
}

impl Session {
    /// A session that its first fetch opens.
    pub(crate) fn new() -> Self {
        Self { epoch: 0, names: BTreeMap::new(), told: BTreeSet::new(), sent: VecDeque::new(), requests: 0 }
    }

    /// What it reads from now on, by topic name.
    pub(crate) fn read(&mut self, partitions: &BTreeMap<PartitionId, std::sync::Arc<str>>) {
        self.names.clone_from(partitions);
    }

    /// Whether the broker has it.
    pub(crate) fn is_open(&self) -> bool {
        self.epoch != 0
    }

    /// Whether it reads anything.
    pub(crate) fn has_partitions(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the broker's picture of what it reads is an older one.
    pub(crate) fn has_changed(&self) -> bool {
        !self.told.iter().eq(self.names.keys())
    }

    /// Requests without an answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Number of the request that was sent last, from 1.
    pub(crate) fn last_sent(&self) -> u64 {
        self.requests
    }

    /// Number of the request that was answered last.
    pub(crate) fn last_answered(&self) -> u64 {
        self.requests - self.sent.len() as u64
    }

    /// Whether an acknowledgement without a fetch is out.
    pub(crate) fn acknowledge_in_flight(&self) -> bool {
        self.sent.iter().any(|sent| matches!(sent, Sent::Acknowledge(_)))
    }

    /// Sends a fetch for at most `records_max` records, with acknowledgements.
    pub(crate) async fn fetch(
        &mut self,
        connection: &mut Connection,
        settings: &Settings,
        records_max: usize,
        acks: Vec<Ack>,
    ) -> Result<(), Lost> {
        let (ranges, by_partition) = ranges(acks);
        let mut topics: BTreeMap<TopicId, BTreeMap<i32, Vec<Acknowledgement>>> = BTreeMap::new();
        for partition in self.names.keys().filter(|partition| !self.told.contains(partition)) {
            topics.entry(partition.topic).or_default().entry(partition.index).or_default();
        }
        for (partition, acknowledgements) in by_partition {
            topics.entry(partition.topic).or_default().insert(partition.index, acknowledgements);
        }
        let mut forgotten: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for partition in self.told.iter().filter(|partition| !self.names.contains_key(partition)) {
            forgotten.entry(partition.topic).or_default().push(partition.index);
        }
        let request = KeyShareFetchRequest {
            group_id: StrBytes::from(settings.group.clone()),
            member_id: Some(StrBytes::from(settings.member.clone())),
            session_epoch: self.epoch,
            max_wait_ms: i32::try_from(settings.wait_max.as_millis()).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: settings.bytes_max,
            max_records: i32::try_from(records_max).unwrap_or(i32::MAX),
            max_keys: 0,
            max_records_per_key: settings.records_per_key_max,
            flags: STOPS_AT_DISCONNECT,
            topics: topics
                .into_iter()
                .map(|(topic_id, partitions)| KeyShareFetchTopic {
                    topic_id,
                    partitions: partitions
                        .into_iter()
                        .map(|(index, acknowledgements)| KeyShareFetchPartition {
                            index,
                            key_hash_ranges: Vec::new(),
                            acknowledgements,
                        })
                        .collect(),
                })
                .collect(),
            forgotten_topics: forgotten
                .into_iter()
                .map(|(topic_id, partitions)| KeyShareForgottenTopic { topic_id, partitions })
                .collect(),
        };
        self.told = self.names.keys().copied().collect();
        self.sent.push_back(Sent::Fetch(ranges));
        self.requests += 1;
        self.epoch = next_epoch(self.epoch);
        send(connection, request).await
    }

    /// Sends acknowledgements alone; with `close` the session ends behind them.
    pub(crate) async fn acknowledge(
        &mut self,
        connection: &mut Connection,
        settings: &Settings,
        acks: Vec<Ack>,
        close: bool,
    ) -> Result<(), Lost> {
        let (ranges, by_partition) = ranges(acks);
        let mut topics: BTreeMap<TopicId, Vec<KeyShareAcknowledgePartition>> = BTreeMap::new();
        for (partition, acknowledgements) in by_partition {
            let index = partition.index;
            topics
                .entry(partition.topic)
                .or_default()
                .push(KeyShareAcknowledgePartition { index, acknowledgements });
        }
        let request = KeyShareAcknowledgeRequest {
            group_id: StrBytes::from(settings.group.clone()),
            member_id: Some(StrBytes::from(settings.member.clone())),
            session_epoch: if close { CLOSING } else { self.epoch },
            topics: topics
                .into_iter()
                .map(|(topic_id, partitions)| KeyShareAcknowledgeTopic { topic_id, partitions })
                .collect(),
        };
        self.sent.push_back(Sent::Acknowledge(ranges));
        self.requests += 1;
        self.epoch = if close { 0 } else { next_epoch(self.epoch) };
        send(connection, request).await
    }

    /// Takes in the next answer.
    pub(crate) fn answer(&mut self, frame: Bytes) -> Result<Answer, Lost> {
        let malformed = |error: protocol::DecodeError| Lost::Malformed(error.to_string());
        match self.sent.pop_front() {
            Some(Sent::Fetch(ranges)) => {
                let (_, response) = KeyShareFetchResponse::from_frame(frame).map_err(malformed)?;
                check("KeyShareFetch", response.error_code, response.error_message.as_ref())?;
                self.fetched(response, ranges)
            }
            Some(Sent::Acknowledge(ranges)) => {
                let (_, response) = KeyShareAcknowledgeResponse::from_frame(frame).map_err(malformed)?;
                check("KeyShareAcknowledge", response.error_code, response.error_message.as_ref())?;
                Ok(acknowledged(response, ranges))
            }
            None => Err(Lost::Malformed("an answer that nobody asked for".to_owned())),
        }
    }

    fn fetched(&self, response: KeyShareFetchResponse, ranges: Vec<SentRange>) -> Result<Answer, Lost> {
        let mut answer = Answer::default();
        let mut results = BTreeMap::new();
        for topic in response.topics {
            for part in topic.partitions {
                let partition = PartitionId { topic: topic.topic_id, index: part.index };
                let lock = lease(response.acquisition_lock_timeout_ms);
                collect_results(partition, part.error_code, lock, &part.acknowledge_results, &mut results);
                collect_recalled(partition, &part.recalled_ranges, &mut answer.recalled);
                answer.stale |= is_stale(part.error_code);
                self.delivered(partition, part, &mut answer.delivered)?;
            }
        }
        answer.settled = settle(ranges, &results);
        Ok(answer)
    }

    /// Takes the acquired records out of a partition's batches.
    fn delivered(
        &self,
        partition: PartitionId,
        part: KeyShareFetchPartitionResponse,
        delivered: &mut Vec<Delivered>,
    ) -> Result<(), Lost> {
        let Some(topic) = self.names.get(&partition) else { return Ok(()) };
        let lease = lease(part.lease_ms);
        let records = acquired_records(topic, part)?;
        delivered.extend(records.into_iter().map(|Acquired { record, number, key }| Delivered {
            partition,
            lane: key.map_or(Lane::Alone(partition, record.offset), |key| Lane::Key(partition, key)),
            number,
            lease,
            record,
        }));
        Ok(())
    }
}

/// An acquired record, taken out of its batch.
pub(crate) struct Acquired {
    pub(crate) record: Record,
    /// The number under which it was delivered.
    pub(crate) number: i64,
    /// Its key's hash.
    pub(crate) key: Option<KeyHash>,
}

/// The acquired records of a partition's answer, ascending.
pub(crate) fn acquired_records(
    topic: &Arc<str>,
    part: KeyShareFetchPartitionResponse,
) -> Result<Vec<Acquired>, Lost> {
    let malformed = |error: records::RecordError| Lost::Malformed(error.to_string());
    let mut acquired = part.acquired_ranges.iter().peekable();
    let mut taken = Vec::new();
    let bytes = part.records.into_bytes();
    for batch in Batches::new(&bytes) {
        let batch = batch.map_err(malformed)?;
        if !batch.crc_is_valid() {
            return Err(Lost::Malformed(format!("batch at offset {} has a wrong CRC", batch.base_offset())));
        }
        for record in &batch.records(INFLATED_BYTES_MAX).map_err(malformed)? {
            let record = record.map_err(malformed)?;
            while acquired.next_if(|range| range.last_offset < record.offset).is_some() {}
            let Some(range) = acquired.peek().filter(|range| range.first_offset <= record.offset) else {
                continue;
            };
            taken.push(Acquired {
                number: range.delivery_number,
                key: record.key.map(key_hash),
                record: Record {
                    topic: Arc::clone(topic),
                    partition: part.index,
                    offset: record.offset,
                    timestamp: record.timestamp,
                    key: record.key.map(Bytes::copy_from_slice),
                    value: record.value.map(Bytes::copy_from_slice),
                    headers: record
                        .headers
                        .iter()
                        .map(|header| {
                            (Bytes::copy_from_slice(header.key), header.value.map(Bytes::copy_from_slice))
                        })
                        .collect(),
                    delivery_count: range.delivery_count,
                },
            });
        }
    }
    Ok(taken)
}

type Results = BTreeMap<(PartitionId, Offset, i64), (ErrorCode, Duration)>;

fn acknowledged(response: KeyShareAcknowledgeResponse, ranges: Vec<SentRange>) -> Answer {
    let mut answer = Answer::default();
    let mut results = Results::new();
    let lock = lease(response.acquisition_lock_timeout_ms);
    for topic in response.topics {
        for part in topic.partitions {
            let partition = PartitionId { topic: topic.topic_id, index: part.index };
            collect_results(partition, part.error_code, lock, &part.acknowledge_results, &mut results);
            collect_recalled(partition, &part.recalled_ranges, &mut answer.recalled);
            answer.stale |= is_stale(part.error_code);
        }
    }
    answer.settled = settle(ranges, &results);
    answer
}

fn collect_results(
    partition: PartitionId,
    error: ErrorCode,
    lock: Duration,
    results: &[AcknowledgeResult],
    into: &mut Results,
) {
    for result in results {
        let code = if error.is_error() && !result.error_code.is_error() { error } else { result.error_code };
        into.insert((partition, result.first_offset, result.delivery_number), (code, lock));
    }
}

fn collect_recalled(
    partition: PartitionId,
    recalled: &[RecalledRange],
    into: &mut Vec<(PartitionId, Offset, Offset, i64)>,
) {
    into.extend(
        recalled
            .iter()
            .map(|range| (partition, range.first_offset, range.last_offset, range.delivery_number)),
    );
}

/// Each sent range with its outcome; one without a word from the broker counts as refused.
fn settle(ranges: Vec<SentRange>, results: &Results) -> Vec<Settled> {
    ranges
        .into_iter()
        .map(|range| {
            let result = results.get(&(range.partition, range.first, range.number));
            Settled {
                partition: range.partition,
                first: range.first,
                last: range.last,
                number: range.number,
                what: range.what,
                refused: result.is_none_or(|(code, _)| code.is_error()),
                lease: result.map_or(Duration::ZERO, |(_, lock)| *lock),
            }
        })
        .collect()
}

/// Sorts acknowledgements and joins neighbours of one delivery that say the same.
fn ranges(mut acks: Vec<Ack>) -> (Vec<SentRange>, BTreeMap<PartitionId, Vec<Acknowledgement>>) {
    acks.sort_by_key(|ack| ack.place);
    let mut ranges: Vec<SentRange> = Vec::new();
    for ack in acks {
        let (partition, offset) = ack.place;
        if let Some(range) = ranges.last_mut()
            && range.partition == partition
            && range.last.next() == offset
            && range.number == ack.number
            && range.what == ack.verdict
        {
            range.last = offset;
            continue;
        }
        ranges.push(SentRange {
            partition,
            first: offset,
            last: offset,
            number: ack.number,
            what: ack.verdict,
        });
    }
    let mut by_partition: BTreeMap<PartitionId, Vec<Acknowledgement>> = BTreeMap::new();
    for range in &ranges {
        by_partition.entry(range.partition).or_default().push(acknowledgement(range));
    }
    (ranges, by_partition)
}

fn acknowledgement(range: &SentRange) -> Acknowledgement {
    let text = |reason: &Option<String>| reason.clone().map(StrBytes::from);
    let (kind, delay_ms, reason) = match &range.what {
        Verdict::Done(Outcome::Accept) => (AcknowledgeType::Accept, -1, None),
        Verdict::Done(Outcome::Release { delay, reason }) => {
            let delay = delay.map_or(-1, |delay| i32::try_from(delay.as_millis()).unwrap_or(i32::MAX));
            (AcknowledgeType::Release, delay, text(reason))
        }
        Verdict::Done(Outcome::Reject { reason }) => (AcknowledgeType::Reject, -1, text(reason)),
        Verdict::Withheld => (AcknowledgeType::Release, -1, None),
        Verdict::Renew => (AcknowledgeType::Renew, -1, None),
    };
    Acknowledgement {
        first_offset: range.first,
        last_offset: range.last,
        delivery_number: range.number,
        acknowledge_type: kind as i8,
        delay_ms,
        reason,
    }
}

async fn send<R: KeyShareRequest>(connection: &mut Connection, request: R) -> Result<(), Lost> {
    let client_id = Some(StrBytes::from(connection.client_id().to_owned()));
    let correlation = connection.next_correlation();
    let frame =
        request.into_frame(correlation, client_id).map_err(|error| Lost::Malformed(error.to_string()))?;
    Ok(connection.send(&frame).await?)
}

/// Every error of a whole answer ends the session; some end the consumer.
fn check(what: &'static str, code: ErrorCode, message: Option<&StrBytes>) -> Result<(), Lost> {
    match code {
        ErrorCode::None => Ok(()),
        ErrorCode::ShareSessionNotFound
        | ErrorCode::InvalidShareSessionEpoch
        | ErrorCode::ShareSessionLimitReached
        | ErrorCode::UnknownMemberId => Err(Lost::Retriable(code)),
        code if code.is_retriable() => Err(Lost::Retriable(code)),
        code => {
            let message = message.map_or("no message", StrBytes::as_str).to_owned();
            Err(Error::Refused { what, code, message }.into())
        }
    }
}

fn is_stale(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::FencedLeaderEpoch
    )
}

/// Epochs wrap to 1: 0 opens a session.
const fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

fn lease(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_say_the_same_are_joined() {
        let p = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let ack = |offset, number, outcome: Outcome| Ack {
            place: (p, Offset(offset)),
            number,
            verdict: Verdict::Done(outcome),
        };
        let (sent, by_partition) = ranges(vec![
            ack(4, 1, Outcome::Accept),
            ack(2, 1, Outcome::Accept),
            ack(3, 1, Outcome::Accept),
            ack(5, 2, Outcome::Accept),
            ack(6, 2, Outcome::release("x")),
            ack(8, 2, Outcome::release("x")),
        ]);
        let bounds: Vec<(i64, i64)> =
            sent.iter().map(|range| (range.first.get(), range.last.get())).collect();
        assert_eq!(bounds, [(2, 4), (5, 5), (6, 6), (8, 8)]);
        assert_eq!(by_partition[&p].len(), 4);
    }

    #[test]
    fn a_range_without_a_word_counts_as_refused() {
        let p = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let range =
            SentRange { partition: p, first: Offset(1), last: Offset(3), number: 9, what: Verdict::Renew };
        let settled = settle(vec![range], &Results::new());
        assert!(settled[0].refused);
        assert_eq!(settled[0].count(), 3);
    }

    #[test]
    fn epochs_wrap_to_one() {
        assert_eq!(next_epoch(0), 1);
        assert_eq!(next_epoch(i32::MAX), 1);
    }
}
