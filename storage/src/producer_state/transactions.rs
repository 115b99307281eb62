//! The rules for one producer's batches and markers, and its open transaction (Kafka's `ProducerAppendInfo`).

use records::ids::Offset;

use super::{Producer, ProducerState, StoredBatch};
use crate::batch_header::{BatchHeader, last_sequence};
use crate::error::AppendError;
use crate::transactions::{AbortedTransaction, Marker};

impl Producer {
    /// The remembered batch that this one repeats.
    pub(super) fn stored(&self, header: &BatchHeader) -> Option<StoredBatch> {
        let last_wanted = last_sequence(header.base_sequence, header.last_delta);
        let repeats = |batch: &&StoredBatch| {
            batch.last_sequence == last_wanted && batch.base_sequence() == header.base_sequence
        };
        self.batches.iter().find(repeats).filter(|_| self.epoch == header.producer_epoch).copied()
    }

    /// Whether a client's batch goes on where the last one ended; a new epoch begins at 0.
    pub(super) fn check_sequence(&self, header: &BatchHeader) -> Result<(), AppendError> {
        let last = self.batches.back().map(|batch| batch.last_sequence);
        let follows = match last {
            Some(last) if header.producer_epoch == self.epoch => {
                header.base_sequence == last_sequence(last, 1)
            }
            // Of a producer of whom a marker is known only, nothing was stored under this epoch.
            Some(_) | None => header.base_sequence == 0,
        };
        if follows {
            return Ok(());
        }
        Err(AppendError::OutOfOrderSequence {
            producer: header.producer_id,
            last: last.unwrap_or(-1),
            found: header.base_sequence,
        })
    }

    /// Whether a batch keeps to the open transaction, or its marker comes from the newest coordinator.
    pub(super) fn check_transaction(
        &self,
        header: &BatchHeader,
        marker: Option<Marker>,
    ) -> Result<(), AppendError> {
        match (marker, self.txn_first) {
            (Some(Marker::Abort(found) | Marker::Commit(found)), _) if found < self.coordinator_epoch => {
                Err(AppendError::CoordinatorFenced {
                    producer: header.producer_id,
                    current: self.coordinator_epoch,
                    found,
                })
            }
            (None, Some(first)) if !header.is_transactional() => {
                Err(AppendError::TransactionOpen { producer: header.producer_id, first })
            }
            _ => Ok(()),
        }
    }
}

impl ProducerState {
    /// First offset of the earliest open transaction (`ProducerStateManager.firstUndecidedOffset`).
    pub(crate) fn first_open(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(first, _)| *first)
    }

    /// Producers whose transaction is open, each with its epoch and that of the coordinator that ended one before.
    pub(crate) fn open_transactions(&self) -> Vec<(i64, i16, i32)> {
        let epochs =
            |id: &i64| self.producers.get(id).map(|known| (*id, known.epoch, known.coordinator_epoch));
        self.open.values().filter_map(epochs).collect()
    }

    /// A transactional batch is stored: the first one of a transaction begins it.
    pub(super) fn begin(&mut self, header: &BatchHeader) {
        let producer = self.producers.get_mut(&header.producer_id).expect("the caller has noted it");
        if producer.txn_first.is_none() {
            producer.txn_first = Some(header.base);
            self.open.insert(header.base, header.producer_id);
        }
    }

    /// A marker is stored. The transaction that it took back, if any: one without a batch leaves no trace.
    pub(super) fn end(&mut self, header: &BatchHeader, marker: Marker) -> Option<AbortedTransaction> {
        let producer = self.producers.get_mut(&header.producer_id).expect("the caller has noted it");
        let aborts = match marker {
            Marker::Abort(epoch) | Marker::Commit(epoch) => {
                producer.coordinator_epoch = epoch;
                matches!(marker, Marker::Abort(_))
            }
            Marker::Emptied => false,
            Marker::Other => return None,
        };
        let first = producer.txn_first.take()?;
        self.open.remove(&first);
        aborts.then(|| AbortedTransaction {
            producer: header.producer_id,
            first,
            last: header.base,
            last_stable: self.first_open().unwrap_or(header.next()),
        })
    }

    /// Takes the open transactions from another state of the same point in the log.
    pub(crate) fn adopt_open(&mut self, other: &Self) {
        self.open.clear();
        for (id, producer) in &mut self.producers {
            producer.txn_first = other.producers.get(id).and_then(|known| known.txn_first);
            self.open.extend(producer.txn_first.map(|first| (first, *id)));
        }
    }
}
