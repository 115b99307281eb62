//! Transactions of a log: how far it is decided, which were taken back, and rebuilding what is known of them.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::Offset;

use super::{LogSlice, PartitionLog};
use crate::batch_header::BatchHeader;
use crate::error::{IoContext, ReadError, StorageError};
use crate::options::{MARKER_BYTES_MAX, WALK_WINDOW_BYTES};
use crate::producer_state::ProducerState;
use crate::segment::Segment;
use crate::transactions::{AbortedTransaction, Marker};
use crate::walk::Step;

/// The aborted transactions of segments, by their base offsets.
pub(super) type Aborted = BTreeMap<Offset, Vec<AbortedTransaction>>;

impl PartitionLog {
    /// The first offset of the earliest open transaction, within the log; its end where none is open. The high watermark
    /// is the written end, so a transaction is stable as soon as its marker is written
    /// (`UnifiedLog.fetchLastStableOffset`).
    pub(super) fn last_stable(&self) -> Offset {
        self.producers.first_open().map_or(self.end, |first| first.max(self.log_start).min(self.end))
    }

    /// Producers whose transaction is open, each with its epoch and the last known one of its coordinator.
    pub(crate) fn open_transactions(&self) -> Vec<(i64, i16, i32)> {
        self.producers.open_transactions()
    }

    /// A transaction whose abort marker was appended just now.
    pub(super) fn note_aborted(&mut self, txn: &AbortedTransaction) {
        let active = self.segments.last_mut().expect("a marker was appended, so there is an active segment");
        if !active.has_txn_index() {
            self.dirty.directories.insert(self.directory.clone());
        }
        active.note_aborted(txn);
        self.dirty.txn_index = true;
    }

    /// The aborted transactions that touch what a slice shows from `from` on, ascending by marker
    /// (`LocalLog.collectAbortedTransactions`). There are no more than markers in the slice and transactions that are
    /// open at its end.
    pub(crate) fn aborted(
        &mut self,
        from: Offset,
        slice: &LogSlice,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        let mut found = Vec::new();
        if slice.is_empty() {
            return Ok(found);
        }
        let first = self.segment_of(slice.base()).unwrap_or(0);
        let active = self.segments.len() - 1;
        for (index, segment) in self.segments.iter_mut().enumerate().skip(first) {
            let complete = segment.collect_aborted(from, slice.next(), &mut found)?;
            // The first one is open for reading anyway.
            if index > first && index < active && !self.opened.contains(&segment.base()) {
                segment.close();
            }
            if complete {
                break;
            }
        }
        Ok(found)
    }

    /// Shows the batches from `from` to below `until`, with their segment's base, and control batches of producers with
    /// what they say.
    pub(super) fn replay(
        &mut self,
        from: Offset,
        until: Offset,
        mut visit: impl FnMut(Offset, &BatchHeader, Option<Marker>),
    ) -> Result<(), StorageError> {
        if from >= until {
            return Ok(());
        }
        let first = self.segments.partition_point(|segment| segment.base() <= from).saturating_sub(1);
        for segment in &mut self.segments[first..] {
            if segment.base() >= until {
                break;
            }
            let base = segment.base();
            let position = segment.position_before(from).doing("read", &self.directory)?;
            let mut walk = segment.walk(position, WALK_WINDOW_BYTES).doing("open", &self.directory)?;
            while let Step::Batch(header, position) = walk.step().doing("read", &self.directory)? {
                if header.base >= until {
                    break;
                }
                let mut marker = None;
                if header.is_control() {
                    marker = Some(Marker::Other);
                    if header.producer_id >= 0 && header.size <= MARKER_BYTES_MAX {
                        let bytes = walk.whole(&header, position).doing("read", &self.directory)?;
                        marker = bytes.map(Marker::in_bytes).or(marker);
                    }
                }
                visit(base, &header, marker);
            }
        }
        Ok(())
    }

    /// Bases of the segments whose transaction indexes must be made anew: all from `from` on, and those that cannot be
    /// what belongs there.
    pub(super) fn stale_txn_indexes(&mut self, from: Offset) -> Result<BTreeSet<Offset>, StorageError> {
        let behind: Vec<Offset> = self.segments.iter().skip(1).map(Segment::base).chain([self.end]).collect();
        let mut stale = BTreeSet::new();
        for (segment, behind) in self.segments.iter_mut().zip(behind) {
            if segment.base() >= from {
                stale.insert(segment.base());
            } else if segment.has_txn_index()
                && !segment.txn_index_fits(behind).doing("read", &self.directory)?
            {
                tracing::warn!(log = segment.log_path(), "transaction index is damaged, rebuilding it");
                stale.insert(segment.base());
            }
        }
        Ok(stale)
    }

    /// Finds the aborted transactions whose markers stand from `from` to below `until`, out of an older snapshot than the
    /// newest one.
    pub(super) fn replay_aborted(
        &mut self,
        from: Offset,
        until: Offset,
        aborted: &mut Aborted,
    ) -> Result<(), StorageError> {
        match self.load_snapshot(from)? {
            Some((state, from)) if from >= self.cleaned => self.replay_state(state, from, until, aborted)?,
            _ => self.replay_from_start(until, aborted)?,
        };
        Ok(())
    }

    /// What the batches below `until` say alone. Where compaction has been, snapshots tell of open transactions of which
    /// it took everything later, the marker too: they would never end, and swallow the producer's next ones.
    pub(super) fn replay_from_start(
        &mut self,
        until: Offset,
        aborted: &mut Aborted,
    ) -> Result<ProducerState, StorageError> {
        let first = self.segments.first().map_or(self.end, Segment::base);
        self.replay_state(ProducerState::default(), first, until, aborted)
    }

    fn replay_state(
        &mut self,
        mut state: ProducerState,
        from: Offset,
        until: Offset,
        aborted: &mut Aborted,
    ) -> Result<ProducerState, StorageError> {
        self.replay(from, until, |segment, header, marker| {
            if header.base >= from
                && let Some(txn) = state.note(header, marker)
                && let Some(found) = aborted.get_mut(&segment)
            {
                found.push(txn);
            }
        })?;
        Ok(state)
    }

    /// Writes the transaction indexes of these segments, where they are not so already.
    pub(super) fn write_aborted(&mut self, aborted: Aborted) -> Result<(), StorageError> {
        for (base, txns) in aborted {
            let Ok(index) = self.segments.binary_search_by_key(&base, Segment::base) else { continue };
            let segment = &mut self.segments[index];
            let had = segment.has_txn_index();
            let file = segment.replace_txn_index(&txns).doing("write an index of", &self.directory)?;
            segment.close();
            if file.is_some() || had {
                self.dirty.directories.insert(self.directory.clone());
            }
            self.sync_with_next(file)?;
        }
        Ok(())
    }
}
