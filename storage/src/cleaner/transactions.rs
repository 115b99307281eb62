//! What compaction must know of transactions (Kafka's `CleanedTransactionMetadata`): which batches were taken back, and
//! which markers still have records.
//!
//! All of it comes from the batches themselves: from the log's start on, every transaction is seen from its first batch
//! to its marker.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use records::ids::Offset;

use crate::batch_header::BatchHeader;
use crate::options::ABORTED_MAX;
use crate::transactions::{AbortedTransaction, Marker};

/// The first look: which transactions were aborted, and which are open.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// First batch of each producer's transaction that has no marker so far.
    open: BTreeMap<i64, Offset>,
    /// The same offsets.
    firsts: BTreeSet<Offset>,
    /// Each aborted transaction, by its producer and marker.
    aborted: BTreeMap<(i64, Offset), AbortedTransaction>,
}

impl Outcomes {
    /// Notes a batch, in offset order; with its marker where it is a control batch.
    pub(crate) fn note(&mut self, header: &BatchHeader, marker: Option<Marker>) {
        let producer = header.producer_id;
        match marker {
            None if header.is_transactional() => {
                if let Entry::Vacant(vacant) = self.open.entry(producer) {
                    vacant.insert(header.base);
                    self.firsts.insert(header.base);
                }
            }
            Some(marker) if marker.is_end() => {
                let Some(first) = self.open.remove(&producer) else { return };
                self.firsts.remove(&first);
                if let Marker::Abort(_) = marker {
                    let last_stable = self.first_open().unwrap_or(header.next());
                    let txn = AbortedTransaction { producer, first, last: header.base, last_stable };
                    self.aborted.insert((producer, header.base), txn);
                }
            }
            None | Some(_) => {}
        }
    }

    /// Whether a transaction that began below `offset` has no marker so far.
    pub(crate) fn is_open_below(&self, offset: Offset) -> bool {
        self.first_open().is_some_and(|first| first < offset)
    }

    /// The first offset that is not decided.
    pub(crate) fn first_open(&self) -> Option<Offset> {
        self.firsts.first().copied()
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
            && self.aborted.range(markers).next().is_some_and(|(_, txn)| txn.first <= header.base)
    }

    /// The transaction that an abort marker ended.
    fn aborted_by(&self, marker: &BatchHeader) -> Option<AbortedTransaction> {
        self.aborted.get(&(marker.producer_id, marker.base)).copied()
    }
}

/// The second look: which transactions have records in the log below their marker.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    with_records: BTreeSet<i64>,
    /// Aborted transactions whose marker stays because of records, since somebody took them.
    kept: Vec<AbortedTransaction>,
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
    pub(crate) fn marker_is_done(
        &mut self,
        header: &BatchHeader,
        marker: Marker,
        outcomes: &Outcomes,
    ) -> bool {
        match marker {
            Marker::Abort(_) | Marker::Commit(_) => {
                let has_records = self.with_records.remove(&header.producer_id);
                if has_records {
                    self.kept.extend(outcomes.aborted_by(header));
                }
                !has_records
            }
            Marker::Emptied => true,
            Marker::Other => false,
        }
    }

    /// What belongs into the transaction index of the segment that is written.
    pub(crate) fn take_kept(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.kept)
    }
}
