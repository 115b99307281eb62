//! What compaction must know of transactions (Kafka's `CleanedTransactionMetadata`): which batches were taken back, and
//! which markers still have records.
//!
//! All of it comes from the batches themselves: from the log's start on, every transaction is seen from its first batch
//! to its marker.

use std::collections::{BTreeMap, BTreeSet};

use records::BatchView;
use records::ids::Offset;

use crate::batch_header::BatchHeader;
use crate::options::{ABORTED_MAX, MARKER_BYTES_MAX};

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The producer's transaction was taken back.
    Abort,
    /// It was committed.
    Commit,
    /// Compaction took the marker out of it before.
    Emptied,
    /// None of a transaction.
    Other,
}

impl Marker {
    /// The marker in a control batch (`EndTransactionMarker`, `ControlRecordType`): version and type, two bytes each,
    /// are the key of its record.
    pub(crate) fn of(batch: &BatchView<'_>) -> Self {
        if batch.record_count() == 0 {
            return Self::Emptied;
        }
        let mut kind = None;
        let limit = MARKER_BYTES_MAX as usize;
        let scanned = batch.scan(limit, |record| {
            kind = kind.or_else(|| record.key?.get(2..4)?.try_into().ok().map(u16::from_be_bytes));
            Ok::<_, records::RecordError>(())
        });
        match (scanned, kind) {
            (Ok(()), Some(0)) => Self::Abort,
            (Ok(()), Some(1)) => Self::Commit,
            _ => Self::Other,
        }
    }
}

/// The first look: which transactions were aborted, and which are open.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// First batch of each producer's transaction that has no marker so far.
    open: BTreeMap<i64, Offset>,
    /// Producer and marker of each aborted transaction, with its first offset.
    aborted: BTreeMap<(i64, Offset), Offset>,
}

impl Outcomes {
    /// Notes a batch, in offset order; with its marker where it is a control batch.
    pub(crate) fn note(&mut self, header: &BatchHeader, marker: Option<Marker>) {
        match marker {
            None if header.is_transactional() => {
                self.open.entry(header.producer_id).or_insert(header.base);
            }
            Some(Marker::Abort) => {
                if let Some(first) = self.open.remove(&header.producer_id) {
                    self.aborted.insert((header.producer_id, header.base), first);
                }
            }
            Some(Marker::Commit) => {
                self.open.remove(&header.producer_id);
            }
            None | Some(Marker::Emptied | Marker::Other) => {}
        }
    }

    /// Whether a transaction that began below `offset` has no marker so far.
    pub(crate) fn is_open_below(&self, offset: Offset) -> bool {
        self.open.values().any(|first| *first < offset)
    }

    /// The first offset that is not decided.
    pub(crate) fn first_open(&self) -> Option<Offset> {
        self.open.values().min().copied()
    }

    /// Whether there are more aborted transactions than are to be held in memory.
    pub(crate) fn is_full(&self) -> bool {
        self.aborted.len() >= ABORTED_MAX
    }

    /// Whether a producer's batch was taken back.
    pub(crate) fn is_aborted(&self, header: &BatchHeader) -> bool {
        let markers = (header.producer_id, header.base)..=(header.producer_id, Offset::MAX);
        header.is_transactional()
            && !header.is_control()
            && self.aborted.range(markers).next().is_some_and(|(_, first)| *first <= header.base)
    }
}

/// The second look: which transactions have records in the log below their marker.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    with_records: BTreeSet<i64>,
}

impl Seen {
    /// Notes a data batch, whether it stays or goes: its marker stays for one more compaction.
    pub(crate) fn data(&mut self, header: &BatchHeader) {
        if header.is_transactional() {
            self.with_records.insert(header.producer_id);
        }
    }

    /// Whether a marker has no records any more, so that it may go when its time has come
    /// (`CleanedTransactionMetadata.onControlBatchRead`).
    pub(crate) fn marker_is_done(&mut self, header: &BatchHeader, marker: Marker) -> bool {
        match marker {
            Marker::Abort | Marker::Commit => !self.with_records.remove(&header.producer_id),
            Marker::Emptied => true,
            Marker::Other => false,
        }
    }
}
