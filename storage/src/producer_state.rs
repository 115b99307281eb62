//! What a partition remembers of its idempotent producers (Kafka's `ProducerStateManager`, KIP-98).
//!
//! Of each producer the last five batches are known by their exact bounds, so that a repeated one is answered as
//! the first time and a missing one is noticed. The state is a function of the log: it is rebuilt from batch
//! headers and markers, and snapshots only shorten that.

pub(crate) mod snapshot;
mod transactions;

use std::collections::{BTreeMap, HashMap, VecDeque};

use records::ids::Offset;

use crate::batch_header::BatchHeader;
use crate::cleaner::filter::LastRecord;
use crate::error::AppendError;
use crate::log::Origin;
use crate::options::{PRODUCER_BATCHES_MAX, PRODUCERS_MAX};
use crate::transactions::{AbortedTransaction, Marker};

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
    /// First offset of its open transaction. Changed by `ProducerState::begin` and `end` alone.
    txn_first: Option<Offset>,
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
    /// The open transactions: first offset and producer.
    open: BTreeMap<Offset, i64>,
}

impl ProducerState {
    /// Checks a batch, with its marker where it is a control batch, against what is stored
    /// (`ProducerAppendInfo.append`). Sequence numbers are a client's only.
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
        origin: Origin,
        marker: Option<Marker>,
    ) -> Result<Verdict, AppendError> {
        if header.producer_id < 0 {
            return Ok(Verdict::Next);
        }
        if marker.is_some_and(|marker| !marker.is_end()) {
            return Err(AppendError::Malformed("its control batch ends no transaction".into()));
        }
        let Some(producer) = self.producers.get(&header.producer_id) else { return Ok(Verdict::Next) };
        let is_clients = origin == Origin::Client && marker.is_none();
        if is_clients && let Some(stored) = producer.stored(header) {
            return Ok(Verdict::Duplicate(stored));
        }
        if header.producer_epoch < producer.epoch {
            return Err(AppendError::InvalidProducerEpoch {
                producer: header.producer_id,
                current: producer.epoch,
                found: header.producer_epoch,
            });
        }
        if is_clients {
            producer.check_sequence(header)?;
        }
        producer.check_transaction(header, marker)?;
        Ok(Verdict::Next)
    }

    /// Notes a batch that is in the log, now or while it is read back, with its marker where it is a control batch.
    /// Batches without a producer change nothing. The transaction that it took back, if any.
    pub(crate) fn note(
        &mut self,
        header: &BatchHeader,
        marker: Option<Marker>,
    ) -> Option<AbortedTransaction> {
        if header.producer_id < 0 {
            return None;
        }
        let producer = self.producers.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            coordinator_epoch: -1,
            timestamp: header.max_timestamp,
            batches: VecDeque::new(),
            txn_first: None,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.timestamp = header.max_timestamp;
        let aborted = match marker {
            Some(marker) => self.end(header, marker),
            // Whoever knows no markers: none of them ends anything here.
            None if header.is_control() => None,
            None => {
                if producer.batches.len() == PRODUCER_BATCHES_MAX {
                    producer.batches.pop_front();
                }
                producer.batches.push_back(StoredBatch {
                    last_sequence: header.last_sequence(),
                    last: header.last(),
                    delta: header.last_delta,
                    timestamp: header.max_timestamp,
                });
                if header.is_transactional() {
                    self.begin(header);
                }
                None
            }
        };
        if self.producers.len() - self.open.len() > PRODUCERS_MAX {
            self.forget_quietest();
        }
        aborted
    }

    /// A batch of this producer was appended.
    pub(crate) fn heard_of(&mut self, id: i64, now_ms: i64) {
        if self.producers.contains_key(&id) {
            self.heard.insert(id, now_ms);
        }
    }

    /// Forgets the producers that were silent for as long as `expiry_ms`, but for those with an open transaction
    /// (`ProducerStateManager.isProducerExpired`).
    pub(crate) fn expire(&mut self, now_ms: i64, expiry_ms: i64) {
        let heard = &mut self.heard;
        self.producers.retain(|id, producer| {
            let silent_ms = now_ms.saturating_sub(*heard.entry(*id).or_insert(now_ms));
            silent_ms < expiry_ms || producer.txn_first.is_some()
        });
        heard.retain(|id, _| self.producers.contains_key(id));
    }

    /// An id above all that are known.
    pub(crate) fn next_id(&self) -> i64 {
        self.producers.keys().max().map_or(0, |id| id.saturating_add(1))
    }

    /// The last batch of each producer (`ProducerStateManager.lastRecordsOfActiveProducers`).
    pub(crate) fn last_records(&self) -> BTreeMap<i64, LastRecord> {
        let last = |producer: &Producer| LastRecord {
            last_data: producer.batches.back().map(|batch| batch.last),
            epoch: producer.epoch,
        };
        self.producers.iter().map(|(id, producer)| (*id, last(producer))).collect()
    }

    /// Makes room for a tenth of the limit, so that a flood of new ids costs one sort now and then. Producers with an open
    /// transaction stay: as many as their coordinator lets have one.
    fn forget_quietest(&mut self) {
        let heard = |id: &i64| self.heard.get(id).copied().unwrap_or(i64::MIN);
        let quiet = self.producers.iter().filter(|(_, producer)| producer.txn_first.is_none());
        let mut ages: Vec<(i64, i64, i64)> =
            quiet.map(|(id, producer)| (heard(id), producer.timestamp, *id)).collect();
        ages.sort_unstable();
        for (_, _, id) in ages.iter().take(PRODUCERS_MAX / 10) {
            self.producers.remove(id);
            self.heard.remove(id);
        }
    }

    /// Whether both know the same of the same producers.
    #[cfg(test)]
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.producers == other.producers && self.open == other.open
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }
}

#[cfg(test)]
mod tests;
