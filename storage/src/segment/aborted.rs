//! The aborted transactions whose marker stands in a segment.

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::{Segment, file_name};
use crate::disk::{DiskFile, join};
use crate::index::{TxnIndex, txn};
use crate::lazy_file::LazyFile;
use crate::transactions::AbortedTransaction;

impl Segment {
    /// Enters a transaction whose abort marker was appended.
    pub(crate) fn note_aborted(&mut self, aborted: &AbortedTransaction) {
        self.txns.push(aborted);
    }

    /// Makes the transaction index's file, empty, where there is none.
    pub(crate) fn create_txn_index(&mut self) -> io::Result<()> {
        self.txns.create()
    }

    /// The transaction index's file, for syncing; `None` where there is none.
    pub(crate) fn txn_index_file(&mut self) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.txns.flushed()
    }

    /// Removes the transaction index where it holds nothing: compaction writes such a one in the place of another.
    pub(crate) fn drop_empty_txn_index(&mut self) {
        if self.txns.bytes() == Some(0)
            && let Err(error) = self.txns.remove()
        {
            tracing::warn!(log = self.log_path(), %error, "cannot remove an empty transaction index");
        }
    }

    pub(crate) fn has_txn_index(&self) -> bool {
        self.txns.exists()
    }

    /// Whether the transaction index is not as long as it was left, or no file of whole entries.
    pub(crate) fn lacks_txn_index(&self) -> bool {
        !self.txn_index_whole
    }

    /// Adds the aborted transactions that touch the offsets from `from` to below `upper`; false where later segments may
    /// tell of more.
    pub(crate) fn collect_aborted(
        &mut self,
        from: Offset,
        upper: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> io::Result<bool> {
        self.txns.collect(from, upper, found)
    }

    /// All aborted transactions whose markers stand here.
    pub(crate) fn aborted(&mut self) -> io::Result<Vec<AbortedTransaction>> {
        self.txns.all()
    }

    /// Whether the transaction index that was found can belong to the segment, which ends at `behind`. None at all is
    /// that of a segment without aborted transactions.
    pub(crate) fn txn_index_fits(&mut self, behind: Offset) -> io::Result<bool> {
        let fits = self.txn_index_whole && self.txns.is_sound(self.base, behind)?;
        self.txns.close();
        Ok(fits)
    }

    /// Makes the transaction index hold just these, in one step. The file, synced; `None` where there is none. The caller
    /// syncs the directory before it counts as durable.
    pub(crate) fn replace_txn_index(
        &mut self,
        aborted: &[AbortedTransaction],
    ) -> io::Result<Option<Arc<dyn DiskFile>>> {
        if self.txn_index_whole && self.txns.holds(aborted)? {
            return self.txns.flushed();
        }
        self.txn_index_whole = true;
        let path = join(&self.directory, &file_name(self.base, txn::SUFFIX));
        if aborted.is_empty() {
            self.txns.remove()?;
            return Ok(None);
        }
        let unfinished = format!("{path}.tmp");
        let entries: Vec<u8> = aborted.iter().flat_map(txn::encode).collect();
        let file = self.disk.create(&unfinished)?;
        file.write_all_at(&entries, 0)?;
        file.sync_data()?;
        self.disk.rename(&unfinished, &path)?;
        self.txns = TxnIndex::new(LazyFile::new(&self.disk, path), Some(entries.len() as u64));
        self.txns.flushed()
    }
}
