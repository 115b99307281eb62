//! Transactions as the log sees them (KIP-98): what a marker says, and what is remembered of a transaction that was
//! taken back.
//!
//! A transaction begins with its producer's first transactional batch and ends with a marker, a control batch that the
//! transaction coordinator writes. Whoever reads committed records is shown what lies below the last stable offset, and
//! told which transactions in it were aborted.

use records::BatchView;
use records::batch::EndMarker;
use records::ids::Offset;

use crate::options::MARKER_BYTES_MAX;

/// An aborted transaction (Kafka's `AbortedTxn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer: i64,
    /// Its first record's offset.
    pub first: Offset,
    /// The marker's offset: the producer's records between the two are void.
    pub last: Offset,
    /// The last stable offset once it had ended. Of what is stable below that no later entry of the index tells.
    pub last_stable: Offset,
}

impl AbortedTransaction {
    /// Whether it took a batch of this producer back that begins at `base`.
    #[must_use]
    pub fn covers(&self, producer: i64, base: Offset) -> bool {
        self.producer == producer && self.first <= base && base < self.last
    }
}

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The producer's transaction was taken back, by the coordinator of this epoch.
    Abort(i32),
    /// It was committed.
    Commit(i32),
    /// Compaction took the marker out of it before: the whole transaction has left the log.
    Emptied,
    /// None of a transaction.
    Other,
}

impl Marker {
    /// What a control batch says.
    pub(crate) fn of(batch: &BatchView<'_>) -> Self {
        match EndMarker::of(batch) {
            _ if batch.record_count() == 0 => Self::Emptied,
            Some(EndMarker { commit: true, coordinator_epoch }) => Self::Commit(coordinator_epoch),
            Some(EndMarker { commit: false, coordinator_epoch }) => Self::Abort(coordinator_epoch),
            None => Self::Other,
        }
    }

    /// What the bytes of a control batch say.
    pub(crate) fn in_bytes(batch: &[u8]) -> Self {
        if batch.len() as u64 > MARKER_BYTES_MAX {
            return Self::Other;
        }
        BatchView::parse(batch).map_or(Self::Other, |batch| Self::of(&batch))
    }

    /// Whether it ends a transaction that has records.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Abort(_) | Self::Commit(_))
    }
}
