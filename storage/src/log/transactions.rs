//! Transactions of a log: how far it is decided, which were taken back, and rebuilding what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use records::ids::Offset;

use super::{LogSlice, PartitionLog};
use crate::batch_header::BatchHeader;
use crate::error::{IoContext, ReadError, StorageError};
use crate::options::{MARKER_BYTES_MAX, TXN_ENTRIES_CHECKED_MAX, WALK_WINDOW_BYTES};
use crate::producer_state::ProducerState;
use crate::segment::{Place, Segment};
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
        if slice.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.segment_of(slice.base()).unwrap_or(0);
        Ok(self.aborted_from(first, from, slice.next())?)
    }

    /// The same of the offsets from `from` to below `upper`.
    pub(crate) fn aborted_between(
        &mut self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        let Some(first) = self.segment_of(from) else { return Ok(Vec::new()) };
        self.keep_open(first);
        Ok(self.aborted_from(first, from, upper)?)
    }

    /// The same, told by the segments from the one at `first` on, which is open for reading.
    fn aborted_from(
        &mut self,
        first: usize,
        from: Offset,
        upper: Offset,
    ) -> io::Result<Vec<AbortedTransaction>> {
        let mut found = Vec::new();
        let active = self.segments.len() - 1;
        for (index, segment) in self.segments.iter_mut().enumerate().skip(first) {
            let complete = segment.collect_aborted(from, upper, &mut found)?;
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
        let mut stale = BTreeSet::new();
        let mut behind = self.end;
        let mut left = TXN_ENTRIES_CHECKED_MAX;
        // The newest first: they are read most, where there are more than are looked up.
        for index in (0..self.segments.len()).rev() {
            let segment = &mut self.segments[index];
            let base = segment.base();
            if base >= from {
                stale.insert(base);
            } else if segment.has_txn_index() || segment.lacks_txn_index() {
                let fits = segment.txn_index_fits(behind).doing("read", &self.directory)?;
                if !fits || !self.aborted_stand_in_log(index, &mut left).doing("read", &self.directory)? {
                    let log = self.segments[index].log_path();
                    tracing::warn!(log, "transaction index is damaged, rebuilding it");
                    stale.insert(base);
                }
            }
            behind = base;
        }
        Ok(stale)
    }

    /// Whether the entries of a segment's transaction index name batches that are what they must be: Kafka's format has no
    /// CRC, and an entry that names another producer or range would hide committed records, or show aborted ones. Of
    /// `left` entries at most, in all segments together. What was compacted or deleted, or cannot be read, is passed over.
    fn aborted_stand_in_log(&mut self, index: usize, left: &mut usize) -> io::Result<bool> {
        let entries = self.segments[index].aborted()?;
        let checked = entries.len().min(*left);
        *left -= checked;
        let mut touched = BTreeSet::from([index]);
        let mut ended = BTreeMap::new();
        let mut stand = true;
        for txn in &entries[entries.len() - checked..] {
            let before: Option<Offset> = ended.insert(txn.producer, txn.last);
            stand =
                before.is_none_or(|before| before < txn.first) && self.aborted_stands(txn, &mut touched)?;
            if !stand {
                break;
            }
        }
        touched.into_iter().for_each(|index| self.segments[index].close());
        Ok(stand)
    }

    fn aborted_stands(
        &mut self,
        txn: &AbortedTransaction,
        touched: &mut BTreeSet<usize>,
    ) -> io::Result<bool> {
        let of = |header: &BatchHeader| header.is_transactional() && header.producer_id == txn.producer;
        let begins = |header: &BatchHeader| header.is_transactional() && !header.is_control();
        // Compaction leaves a marker as long as there is an entry.
        let is_marker =
            |header: &BatchHeader, marker: Marker| of(header) && matches!(marker, Marker::Abort(_));
        if !self.stands_at(txn.last, touched, is_marker)? {
            return Ok(false);
        }
        let first_base = self.segments.first().map_or(self.end, Segment::base);
        let exact_from = self.cleaned.max(first_base);
        if txn.first >= exact_from
            && !self.stands_at(txn.first, touched, |header, _| of(header) && begins(header))?
        {
            return Ok(false);
        }
        if txn.last_stable < exact_from || txn.last_stable == txn.last.next() {
            return Ok(true);
        }
        // Another transaction was open, and began there.
        self.stands_at(txn.last_stable, touched, |header, _| !of(header) && begins(header))
    }

    /// Whether a batch that begins at `offset` is what is wanted. Where none can be read there, or what can be read is
    /// damaged, nothing speaks against it.
    fn stands_at(
        &mut self,
        offset: Offset,
        touched: &mut BTreeSet<usize>,
        is_wanted: impl Fn(&BatchHeader, Marker) -> bool,
    ) -> io::Result<bool> {
        let Some(index) = self.segment_of(offset) else { return Ok(true) };
        touched.insert(index);
        let segment = &mut self.segments[index];
        let Place::Batch(header, position) = segment.locate(offset, self.cleaned)? else { return Ok(true) };
        let mut marker = Marker::Other;
        if header.is_control() && header.size <= MARKER_BYTES_MAX {
            let mut walk = segment.walk(position, MARKER_BYTES_MAX as usize)?;
            marker = walk.whole(&header, position)?.map_or(Marker::Other, Marker::in_bytes);
        }
        if header.base == offset && is_wanted(&header, marker) {
            return Ok(true);
        }
        let found = segment.walk(position, WALK_WINDOW_BYTES)?.checked().step()?;
        Ok(!matches!(found, Step::Batch(..)))
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

    pub(super) fn replay_state(
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
