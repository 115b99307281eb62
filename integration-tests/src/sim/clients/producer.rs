//! A producer: one batch in flight, retried until it is answered well.

use broker::executor::Data;
use bytes::Bytes;
use coordinator::command::{Acks, Command, Produce};
use coordinator::io::AppendError;
use coordinator::reply::{ProduceError, Reply};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

use super::{Socket, Turn};
use crate::sim::event::RequestId;
use crate::sim::node::partition;
use crate::sim::plan::ProducerPlan;

/// A batch is sent again after this long without an answer.
pub(super) const TIMEOUT_US: u64 = 10_000_000;
/// Pause before a failed batch is sent again.
pub(super) const RETRY_US: u64 = 200_000;
/// Records of this size at most, beside their number.
const PADDING_MAX: u64 = 60;
/// Padding repeats itself, so that compression has something to do.
const PADDING: [u8; PADDING_MAX as usize] = *b"the quick brown fox jumps over the lazy dog, and again, 0123";

/// A record as its key, if it has one, and its number.
pub(super) type KeyAndNumber = (Option<u64>, u64);

/// See the module.
pub struct Producer {
    plan: ProducerPlan,
    keys: u64,
    keyless_percent: u64,
    partitions: i32,
    id: i64,
    sequences: Vec<i32>,
    left: u64,
    socket: Option<Socket>,
    /// The batch that is not answered well yet: partition and its records as key and record number.
    batch: Option<(i32, Vec<KeyAndNumber>)>,
    asked: Option<RequestId>,
    turn: u64,
}

impl Producer {
    /// One that begins with nothing sent.
    #[must_use]
    pub fn new(plan: ProducerPlan, keys: u64, keyless_percent: u64, partitions: i32) -> Self {
        let sequences = (0..partitions).map(|_| 0).collect();
        let left = plan.records;
        Self {
            plan,
            keys,
            keyless_percent,
            partitions,
            id: -1,
            sequences,
            left,
            socket: None,
            batch: None,
            asked: None,
            turn: 0,
        }
    }

    /// Whether everything is sent and answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.batch.is_none()
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        self.fresh_id(turn);
        turn.wake(self.plan.pause_us_max, self.turn);
    }

    /// As a client does whose id is no longer believed: a new id, sequences from 0.
    fn fresh_id(&mut self, turn: &mut Turn<'_>) {
        turn.names.record_last += 1;
        self.id = i64::try_from(turn.names.record_last).expect("a run has few producers");
        self.sequences.fill(0);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        if token != self.turn {
            return;
        }
        if self.asked.take().is_some() {
            // No answer in time: on a new connection, since an answer on the old one may come yet.
            if let Some(socket) = self.socket.take() {
                turn.close(socket);
            }
        }
        if self.batch.is_none() {
            if self.left == 0 {
                return;
            }
            self.batch = Some(self.fill(turn));
        }
        self.send(turn);
    }

    fn fill(&mut self, turn: &mut Turn<'_>) -> (i32, Vec<(Option<u64>, u64)>) {
        let count = turn.random.between(1, self.plan.batch_max).min(self.left);
        self.left -= count;
        let index = turn.random.below(u64::from(self.partitions.unsigned_abs()));
        let records = (0..count).map(|_| turn.record(self.keys, self.keyless_percent)).collect();
        (i32::try_from(index).expect("below the number of partitions"), records)
    }

    fn send(&mut self, turn: &mut Turn<'_>) {
        let Some((index, records)) = &self.batch else { return };
        let place = usize::try_from(*index).expect("partitions are counted from 0");
        let producer = self.plan.idempotent.then_some((self.id, 0, self.sequences[place]));
        let batch = build(turn.now.wall_ms, self.plan.codec, producer, false, records);
        let acks = if self.plan.acks_all { Acks::Synced } else { Acks::Written };
        let parts = vec![(partition(*index), batch.into())];
        self.asked = Some(turn.send(&mut self.socket, Command::Produce(Produce { acks, parts })));
        self.turn += 1;
        turn.wake_in(TIMEOUT_US, self.turn);
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        if self.asked != Some(request) {
            return;
        }
        self.asked = None;
        self.turn += 1;
        let Reply::Produced(results) = reply else { return };
        match results.into_iter().next() {
            Some(Ok(_)) => {
                if let Some((index, records)) = self.batch.take() {
                    let place = usize::try_from(index).expect("partitions are counted from 0");
                    self.sequences[place] += i32::try_from(records.len()).expect("a batch is small");
                }
                turn.wake(self.plan.pause_us_max, self.turn);
            }
            Some(Err(ProduceError::Append(
                AppendError::OutOfOrderSequence
                | AppendError::InvalidProducerEpoch
                | AppendError::UnknownProducerId
                | AppendError::DuplicateSequence,
            ))) => {
                // What was stored under the old id must not be taken for what is sent under the new one.
                self.fresh_id(turn);
                if let Some((_, records)) = &mut self.batch {
                    for (_, number) in records {
                        turn.names.record_last += 1;
                        *number = turn.names.record_last;
                    }
                }
                turn.wake(RETRY_US, self.turn);
            }
            Some(Err(_)) | None => turn.wake(RETRY_US, self.turn),
        }
    }

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket == Some(socket) {
            self.socket = None;
            if self.asked.take().is_some() {
                self.turn += 1;
                turn.wake(RETRY_US, self.turn);
            }
        }
    }
}

/// A batch of records, of a producer with id, epoch and sequence number where it has them.
pub(super) fn build(
    now_ms: i64,
    codec: Codec,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    records: &[KeyAndNumber],
) -> Bytes {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    if transactional {
        builder = builder.transactional();
    }
    for (key, number) in records {
        let key = key.map(|key| format!("key-{key}"));
        let mut value = number.to_be_bytes().to_vec();
        let padding = usize::try_from(number % PADDING_MAX).expect("below 60");
        value.extend_from_slice(&PADDING[..padding]);
        builder.append(now_ms, key.as_deref().map(str::as_bytes), Some(&value), &[]);
    }
    builder.build(Offset::ZERO, -1)
}
