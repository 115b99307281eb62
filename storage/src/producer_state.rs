//! What a partition remembers of its idempotent producers (Kafka's `ProducerStateManager`, KIP-98).
//!
//! Of each producer the last five batches are known by their exact bounds, so that a repeated one is answered as
//! the first time and a missing one is noticed. The state is a function of the log: it is rebuilt from batch
//! headers, and snapshots only shorten that.

pub(crate) mod snapshot;

use std::collections::{BTreeMap, HashMap, VecDeque};

use records::ids::Offset;

use crate::batch_header::{BatchHeader, last_sequence};
use crate::cleaner::filter::LastRecord;
use crate::error::AppendError;
use crate::options::{PRODUCER_BATCHES_MAX, PRODUCERS_MAX};

pub(crate) use snapshot::{SIDECAR, SNAPSHOT, decode, decode_sidecar, encode, encode_sidecar};

/// One stored batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredBatch {
    pub(crate) last_sequence: i32,
    pub(crate) last: Offset,
    /// Last offset less base offset; the same for the sequence numbers.
    pub(crate) delta: i32,
    pub(crate) timestamp: i64,
}

impl StoredBatch {
    pub(crate) fn base(&self) -> Offset {
        self.last - i64::from(self.delta)
    }

    /// The way back over the wrap of `last_sequence`.
    pub(crate) fn base_sequence(&self) -> i32 {
        let base = i64::from(self.last_sequence) - i64::from(self.delta);
        if base >= 0 { base as i32 } else { (base + i64::from(i32::MAX) + 1) as i32 }
    }
}

/// One producer, its newest batches last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) timestamp: i64,
    pub(crate) batches: VecDeque<StoredBatch>,
}

/// What to do with a client's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Append it.
    Next,
    /// It is stored already, there.
    Duplicate(StoredBatch),
}

/// All producers of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProducerState {
    producers: HashMap<i64, Producer>,
    /// When each was heard of last by the broker's clock, ms; of those that were read back, when they were first looked
    /// at. The timestamps of records are no measure of it: whoever loads old data is not silent.
    heard: HashMap<i64, i64>,
}

impl ProducerState {
    /// Checks a client's batch against what is stored (`ProducerAppendInfo.maybeValidateDataBatch`).
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Verdict, AppendError> {
        let Some(producer) = self.producers.get(&header.producer_id) else { return Ok(Verdict::Next) };
        let last_wanted = last_sequence(header.base_sequence, header.last_delta);
        if producer.epoch == header.producer_epoch {
            let stored = producer.batches.iter().find(|batch| {
                batch.last_sequence == last_wanted && batch.base_sequence() == header.base_sequence
            });
            if let Some(stored) = stored {
                return Ok(Verdict::Duplicate(*stored));
            }
        }
        if header.producer_epoch < producer.epoch {
            return Err(AppendError::InvalidProducerEpoch {
                producer: header.producer_id,
                current: producer.epoch,
                found: header.producer_epoch,
            });
        }
        let last = producer.batches.back().map(|batch| batch.last_sequence);
        let follows = if header.producer_epoch > producer.epoch {
            header.base_sequence == 0
        } else {
            last.is_none_or(|last| header.base_sequence == last_sequence(last, 1))
        };
        if follows {
            Ok(Verdict::Next)
        } else {
            Err(AppendError::OutOfOrderSequence {
                producer: header.producer_id,
                last: last.unwrap_or(-1),
                found: header.base_sequence,
            })
        }
    }

    /// Notes a batch that is in the log, now or while it is read back. Batches without a producer change nothing.
    pub(crate) fn note(&mut self, header: &BatchHeader) {
        if header.producer_id < 0 {
            return;
        }
        let producer = self.producers.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            coordinator_epoch: -1,
            timestamp: header.max_timestamp,
            batches: VecDeque::new(),
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.timestamp = header.max_timestamp;
        if !header.is_control() {
            if producer.batches.len() == PRODUCER_BATCHES_MAX {
                producer.batches.pop_front();
            }
            producer.batches.push_back(StoredBatch {
                last_sequence: header.last_sequence(),
                last: header.last(),
                delta: header.last_delta,
                timestamp: header.max_timestamp,
            });
        }
        if self.producers.len() > PRODUCERS_MAX {
            self.forget_quietest();
        }
    }

    /// A batch of this producer was appended.
    pub(crate) fn heard_of(&mut self, id: i64, now_ms: i64) {
        if self.producers.contains_key(&id) {
            self.heard.insert(id, now_ms);
        }
    }

    /// Forgets the producers that were silent for as long as `expiry_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64, expiry_ms: i64) {
        let heard = &mut self.heard;
        self.producers.retain(|id, _| now_ms.saturating_sub(*heard.entry(*id).or_insert(now_ms)) < expiry_ms);
        heard.retain(|id, _| self.producers.contains_key(id));
    }

    /// The last batch of each producer (`ProducerStateManager.lastRecordsOfActiveProducers`).
    pub(crate) fn last_records(&self) -> BTreeMap<i64, LastRecord> {
        let last = |producer: &Producer| LastRecord {
            last_data: producer.batches.back().map(|batch| batch.last),
            epoch: producer.epoch,
        };
        self.producers.iter().map(|(id, producer)| (*id, last(producer))).collect()
    }

    /// Makes room for a tenth of the limit, so that a flood of new ids costs one sort now and then.
    fn forget_quietest(&mut self) {
        let heard = |id: &i64| self.heard.get(id).copied().unwrap_or(i64::MIN);
        let mut ages: Vec<(i64, i64, i64)> =
            self.producers.iter().map(|(id, producer)| (heard(id), producer.timestamp, *id)).collect();
        ages.sort_unstable();
        for (_, _, id) in ages.iter().take(PRODUCERS_MAX / 10) {
            self.producers.remove(id);
            self.heard.remove(id);
        }
    }

    /// Whether both know the same of the same producers.
    #[cfg(test)]
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.producers == other.producers
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }
}

#[cfg(test)]
mod tests;
