//! `.txnindex`: the aborted transactions whose marker stands in the segment, in the order of the markers (Kafka's
//! `TransactionIndex`). An entry is version 0, producer id, first offset, last offset (the marker's) and last stable
//! offset: 34 bytes. There is a file only once there is an entry.

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::EntryFile;
use crate::disk::DiskFile;
use crate::lazy_file::LazyFile;
use crate::transactions::AbortedTransaction;

pub(crate) const SUFFIX: &str = ".txnindex";
pub(crate) const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// The transaction index of one segment.
#[derive(Debug)]
pub(crate) struct TxnIndex {
    entries: EntryFile<ENTRY_BYTES>,
    exists: bool,
}

impl TxnIndex {
    /// An index whose file, if there is one, has `len` bytes.
    pub(crate) fn new(file: LazyFile, len: Option<u64>) -> Self {
        Self { entries: EntryFile::new(file, len.unwrap_or(0)), exists: len.is_some() }
    }

    /// Adds an entry. Unlike other indexes it goes to the file at once, as Kafka writes it; where that fails it stays in
    /// memory until a later flush.
    pub(crate) fn push(&mut self, txn: &AbortedTransaction) {
        self.entries.push(encode(txn));
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "cannot write a transaction index, kept in memory");
        }
    }

    /// Makes the file, empty, where there is none.
    pub(crate) fn create(&mut self) -> io::Result<()> {
        if !self.exists {
            self.entries.create_file()?;
            self.exists = true;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.entries.count() > 0 {
            self.create()?;
        }
        self.entries.flush()
    }

    /// The open file, for syncing, everything flushed; `None` where there is none.
    pub(crate) fn flushed(&mut self) -> io::Result<Option<Arc<dyn DiskFile>>> {
        self.flush()?;
        if self.exists { self.entries.flushed().map(Some) } else { Ok(None) }
    }

    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.exists = false;
        self.entries.remove()
    }

    pub(crate) fn retire(&mut self) -> io::Result<Option<String>> {
        self.exists = false;
        self.entries.retire()
    }

    /// Whether there is a file.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Bytes of the file; `None` where there is none.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.exists.then(|| u64::from(self.entries.count()) * ENTRY_BYTES as u64)
    }

    /// Whether it can belong to a segment of the offsets from `base` to `behind`.
    pub(crate) fn is_sound(&mut self, base: Offset, behind: Offset) -> io::Result<bool> {
        let (mut last, mut stable, mut sound) = (base - 1, Offset::ZERO, true);
        self.entries.each_from(0, |entry| {
            // What was stable once stays so.
            let fitting = decode(entry).filter(|txn| fits(txn, last, behind) && stable <= txn.last_stable);
            sound = fitting.is_some();
            (last, stable) = fitting.map_or((last, stable), |txn| (txn.last, txn.last_stable));
            sound
        })?;
        Ok(sound)
    }

    /// Whether it has just these entries, byte for byte.
    pub(crate) fn holds(&mut self, txns: &[AbortedTransaction]) -> io::Result<bool> {
        let mut expected = txns.iter().map(encode);
        let mut same = true;
        self.entries.each_from(0, |entry| {
            same = expected.next().as_ref() == Some(entry);
            same
        })?;
        Ok(same && expected.next().is_none())
    }

    /// All entries, of a version that is known.
    pub(crate) fn all(&mut self) -> io::Result<Vec<AbortedTransaction>> {
        let mut found = Vec::new();
        self.entries.each_from(0, |entry| {
            found.extend(decode(entry));
            true
        })?;
        Ok(found)
    }

    /// Adds the transactions that touch the offsets from `from` to below `upper`; false where later segments may tell
    /// of more (`TransactionIndex.collectAbortedTxns`).
    pub(crate) fn collect(
        &mut self,
        from: Offset,
        upper: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> io::Result<bool> {
        if self.entries.count() == 0 {
            return Ok(false);
        }
        let passed = |entry: &[u8; ENTRY_BYTES]| decode(entry).is_some_and(|txn| txn.last < from);
        let first = self.entries.partition_point(passed)?;
        let (mut complete, mut damaged) = (false, false);
        self.entries.each_from(first, |entry| {
            let Some(txn) = decode(entry) else {
                damaged = true;
                return false;
            };
            if txn.last >= from && txn.first < upper {
                found.push(txn);
            }
            complete = txn.last_stable >= upper;
            !complete
        })?;
        if damaged { Err(io::Error::other("a transaction index is damaged")) } else { Ok(complete) }
    }

    pub(crate) fn close(&mut self) {
        self.entries.close();
    }
}

/// Whether an entry can follow one whose marker is at `before`, in a segment that ends at `behind`.
pub(crate) fn fits(txn: &AbortedTransaction, before: Offset, behind: Offset) -> bool {
    txn.first >= Offset::ZERO
        && txn.first < txn.last
        && before < txn.last
        && txn.last < behind
        && txn.last_stable >= Offset::ZERO
        && txn.last_stable <= txn.last.next()
}

pub(crate) fn encode(txn: &AbortedTransaction) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..2].copy_from_slice(&VERSION.to_be_bytes());
    for (place, number) in [txn.producer, txn.first.0, txn.last.0, txn.last_stable.0].into_iter().enumerate()
    {
        entry[2 + place * 8..10 + place * 8].copy_from_slice(&number.to_be_bytes());
    }
    entry
}

/// An entry's transaction; `None` of a version that is not known.
pub(crate) fn decode(entry: &[u8; ENTRY_BYTES]) -> Option<AbortedTransaction> {
    let number = |place: usize| {
        let bytes = entry[2 + place * 8..10 + place * 8].try_into().expect("8 bytes within the entry");
        i64::from_be_bytes(bytes)
    };
    (entry[..2] == VERSION.to_be_bytes()).then(|| AbortedTransaction {
        producer: number(0),
        first: Offset(number(1)),
        last: Offset(number(2)),
        last_stable: Offset(number(3)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, SimDisk};
    use proptest::prelude::*;

    fn index(disk: &Arc<dyn Disk>, len: Option<u64>) -> TxnIndex {
        TxnIndex::new(LazyFile::new(disk, "i".into()), len)
    }

    fn txn(producer: i64, first: i64, last: i64, last_stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer,
            first: Offset(first),
            last: Offset(last),
            last_stable: Offset(last_stable),
        }
    }

    #[test]
    fn entries_have_kafkas_bytes() {
        let entry = encode(&txn(5, 1, 7, 8));
        let mut expected = vec![0, 0];
        for number in [5_u8, 1, 7, 8] {
            expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, number]);
        }
        assert_eq!(entry[..], expected[..]);
        assert_eq!(decode(&entry), Some(txn(5, 1, 7, 8)));
        let mut newer = entry;
        newer[1] = 1;
        assert_eq!(decode(&newer), None);
    }

    #[test]
    fn there_is_no_file_without_an_entry() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let mut index = index(&disk, None);
        assert!(index.flushed().unwrap().is_none() && index.bytes().is_none());
        assert!(disk.list("").unwrap().is_empty());
        index.push(&txn(1, 0, 1, 2));
        assert_eq!(disk.list("").unwrap()[0].len, 34, "it is written at once");
        assert_eq!(index.bytes(), Some(34));
    }

    #[test]
    fn what_cannot_be_belongs_to_no_segment() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let sound = |entries: &[AbortedTransaction]| {
            let mut index = index(&disk, None);
            index.remove().unwrap();
            entries.iter().for_each(|entry| index.push(entry));
            index.is_sound(Offset(10), Offset(20)).unwrap()
        };
        assert!(sound(&[]) && sound(&[txn(1, 3, 10, 9), txn(2, 9, 19, 9)]));
        assert!(!sound(&[txn(1, 3, 10, 11), txn(2, 9, 19, 9)]), "no longer stable");
        assert!(!sound(&[txn(1, 3, 9, 10)]), "before the segment");
        assert!(!sound(&[txn(1, 3, 20, 21)]), "behind it");
        assert!(!sound(&[txn(1, 12, 12, 13)]), "no record");
        assert!(!sound(&[txn(1, 12, 13, 15)]), "stable behind the marker");
        assert!(!sound(&[txn(1, 12, 13, 14), txn(2, 12, 13, 14)]), "one marker twice");
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_entry_all_the_same() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let mut index = index(&disk, None);
        assert!(index.holds(&[]).unwrap());
        index.push(&txn(1, 0, 1, 2));
        assert!(index.holds(&[txn(1, 0, 1, 2)]).unwrap());
        assert!(!index.holds(&[]).unwrap() && !index.holds(&[txn(2, 0, 1, 2)]).unwrap());
        assert!(!index.holds(&[txn(1, 0, 1, 2), txn(1, 3, 4, 5)]).unwrap());
        disk.open("i").unwrap().write_all_at(&[0x7f], 0).unwrap();
        let mut index = self::index(&disk, Some(34));
        assert!(!index.holds(&[]).unwrap() && !index.holds(&[txn(1, 0, 1, 2)]).unwrap());
    }

    proptest! {
        #[test]
        fn collects_what_a_walk_over_all_entries_collects(
            steps in proptest::collection::vec((1_i64..5, 1_i64..30, 0_i64..20), 0..700),
            from in 0_i64..2000,
            range in 1_i64..300,
        ) {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            let mut written = index(&disk, None);
            let (mut last, mut stable, mut all) = (1, 0, Vec::new());
            for (step, length, behind) in steps {
                last += step;
                stable = stable.max(last + 1 - behind).min(last + 1);
                all.push(txn(last % 3, (last - length).max(0), last, stable));
                written.push(all.last().unwrap());
            }
            let (from, upper) = (Offset(from), Offset(from + range));
            let mut expected = Vec::new();
            let mut complete = false;
            for entry in &all {
                if entry.last >= from && entry.first < upper {
                    expected.push(*entry);
                }
                complete = entry.last_stable >= upper;
                if complete {
                    break;
                }
            }
            let mut found = Vec::new();
            prop_assert_eq!(written.collect(from, upper, &mut found).unwrap(), complete);
            prop_assert_eq!(&found, &expected);
            let mut again = index(&disk, written.bytes());
            prop_assert_eq!(again.all().unwrap(), all);
        }
    }
}
