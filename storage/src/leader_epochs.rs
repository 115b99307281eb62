//! Which leader epoch began where (`leader-epoch-checkpoint`, Kafka's `LeaderEpochFileCache`).
//!
//! Invariant: epochs and start offsets both ascend strictly. The batches bear their epoch too, so the file may lag
//! behind the log: recovery takes what is missing from the batches.

use std::fmt::Write as _;

use records::ids::Offset;

use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};

pub(crate) const FILE: &str = "leader-epoch-checkpoint";

/// One epoch and the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochStart {
    pub(crate) epoch: i32,
    pub(crate) start: Offset,
}

/// All epochs of a log, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderEpochs {
    entries: Vec<EpochStart>,
    dirty: bool,
}

impl LeaderEpochs {
    /// Reads the file; a missing or unreadable one is empty, and an unreadable one is to be written again.
    pub(crate) fn read(disk: &dyn Disk, directory: &str) -> Result<Self, StorageError> {
        let path = join(directory, FILE);
        let Some(bytes) = disk.read(&path).doing("read", &path)? else { return Ok(Self::default()) };
        let entries = std::str::from_utf8(&bytes).ok().and_then(parse);
        Ok(Self { dirty: entries.is_none(), entries: entries.unwrap_or_default() })
    }

    /// Whether the file must say something else than it did.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// What the file must say, when something changed since this was asked last.
    pub(crate) fn take_text(&mut self) -> Option<String> {
        std::mem::take(&mut self.dirty).then(|| self.text())
    }

    /// What the file must say.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            writeln!(text, "{} {}", entry.epoch, entry.start).expect("a string takes every write");
        }
        text
    }

    /// Notes that a batch of `epoch` begins at `start`; only the first one of an epoch changes anything.
    pub(crate) fn assign(&mut self, epoch: i32, start: Offset) {
        if self.entries.last().is_none_or(|last| last.epoch < epoch) {
            // An epoch that never got a record makes way for the next one, and so does one whose records were cut off
            // before this batch was written, although the file still tells of it.
            self.entries.retain(|entry| entry.start < start);
            self.entries.push(EpochStart { epoch, start });
            self.dirty = true;
        }
    }

    /// Adds what was found of records below all that is known.
    pub(crate) fn put_below(&mut self, below: Self) {
        let mut entries = below.entries;
        let known = std::mem::take(&mut self.entries);
        let newest = entries.last().map(|last| last.epoch);
        entries.extend(known.into_iter().filter(|entry| newest.is_none_or(|newest| entry.epoch > newest)));
        self.dirty |= newest.is_some();
        self.entries = entries;
    }

    /// The newest epoch that a record bears.
    pub(crate) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// Where the first known epoch begins.
    pub(crate) fn first_start(&self) -> Option<Offset> {
        self.entries.first().map(|entry| entry.start)
    }

    /// The epoch of the record at `offset`.
    pub(crate) fn at(&self, offset: Offset) -> Option<i32> {
        let behind = self.entries.partition_point(|entry| entry.start <= offset);
        behind.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// The largest epoch not above `epoch`, with its end offset (KIP-279, `LeaderEpochFileCache.endOffsetFor`).
    /// `current` is the epoch of what is appended now, `end` the end of the log.
    pub(crate) fn end_of(&self, epoch: i32, current: i32, end: Offset) -> Option<(i32, Offset)> {
        if epoch < 0 || epoch > current {
            return None;
        }
        if epoch == current {
            return Some((epoch, end));
        }
        let behind = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let end = self.entries.get(behind).map_or(end, |next| next.start);
        Some(match behind.checked_sub(1) {
            Some(index) => (self.entries[index].epoch, end),
            None => (epoch, end),
        })
    }

    /// Forgets everything from `end` on: the log was cut there. Whether there was anything.
    pub(crate) fn truncate_to(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start < end);
        let changed = self.entries.len() != before;
        self.dirty |= changed;
        changed
    }

    /// Forgets what ended before `log_start`; the epoch of `log_start` begins there from now on.
    pub(crate) fn truncate_from(&mut self, log_start: Offset) {
        let behind = self.entries.partition_point(|entry| entry.start <= log_start);
        if let Some(first) = behind.checked_sub(1)
            && self.entries[0].start < log_start
        {
            self.entries.drain(..first);
            self.entries[0].start = log_start;
            self.dirty = true;
        }
    }
}

/// Epochs and their start offsets in a file's bytes; `None` where it is none.
pub(crate) fn parse_file(bytes: &[u8]) -> Option<Vec<(i32, Offset)>> {
    let entries = parse(std::str::from_utf8(bytes).ok()?)?;
    Some(entries.into_iter().map(|entry| (entry.epoch, entry.start)).collect())
}

fn parse(text: &str) -> Option<Vec<EpochStart>> {
    // Cut short within its last number it would read as another one.
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut entries: Vec<EpochStart> = Vec::new();
    for line in lines.take(count) {
        let (epoch, start) = line.split_once(' ')?;
        let entry = EpochStart { epoch: epoch.parse().ok()?, start: Offset(start.parse().ok()?) };
        if entries.last().is_some_and(|last| last.epoch >= entry.epoch || last.start >= entry.start) {
            return None;
        }
        entries.push(entry);
    }
    (entries.len() == count).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    fn epochs(pairs: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start) in pairs {
            epochs.assign(epoch, Offset(start));
        }
        epochs
    }

    #[test]
    fn f21_end_offsets_of_epochs() {
        let one = epochs(&[(0, 0)]);
        assert_eq!(one.end_of(0, 0, Offset(5)), Some((0, Offset(5))));
        assert_eq!(one.end_of(5, 0, Offset(5)), None);
        assert_eq!(one.end_of(-1, 0, Offset(5)), None);
        let several = epochs(&[(2, 0), (4, 10), (7, 30)]);
        assert_eq!(several.end_of(3, 9, Offset(50)), Some((2, Offset(10))));
        assert_eq!(several.end_of(4, 9, Offset(50)), Some((4, Offset(30))));
        assert_eq!(several.end_of(8, 9, Offset(50)), Some((7, Offset(50))));
        assert_eq!(several.end_of(9, 9, Offset(50)), Some((9, Offset(50))));
        assert_eq!(several.end_of(1, 9, Offset(50)), Some((1, Offset(0))));
        assert_eq!(several.at(Offset(29)), Some(4));
    }

    #[test]
    fn cuts_at_both_ends() {
        let mut several = epochs(&[(2, 0), (4, 10), (7, 30)]);
        several.truncate_from(Offset(15));
        assert_eq!(several, epochs(&[(4, 15), (7, 30)]));
        several.truncate_to(Offset(30));
        assert_eq!(several, epochs(&[(4, 15)]));
        several.assign(4, Offset(20));
        several.assign(3, Offset(20));
        assert_eq!(several, epochs(&[(4, 15)]));
    }

    #[test]
    fn nothing_is_left_below_the_log_start_where_an_epoch_begins_just_there() {
        let mut several = epochs(&[(2, 0), (4, 10), (7, 30)]);
        several.truncate_from(Offset(30));
        assert_eq!(several, epochs(&[(7, 30)]));
        assert_eq!(several.end_of(2, 9, Offset(50)), Some((2, Offset(30))));
    }

    #[test]
    fn r17_an_epoch_that_was_cut_off_makes_way_for_the_batches_behind_the_cut() {
        // The file tells of epoch 3 from 57 on; the log was cut to 55, and grew under epoch 4.
        let mut stale = epochs(&[(0, 0), (3, 57)]);
        stale.assign(4, Offset(55));
        assert_eq!(stale, epochs(&[(0, 0), (4, 55)]));
        assert_eq!(stale.end_of(3, 5, Offset(90)), Some((0, Offset(55))));
    }

    #[test]
    fn the_file_is_kafkas() {
        let disk = SimDisk::new(1);
        disk.create_dir("t-0").unwrap();
        let mut written = epochs(&[(0, 500), (3, 700)]);
        let text = written.take_text().unwrap();
        assert_eq!(text, "0\n2\n0 500\n3 700\n");
        assert_eq!(written.take_text(), None);
        disk.write_atomic("t-0/leader-epoch-checkpoint", text.as_bytes()).unwrap();
        assert_eq!(LeaderEpochs::read(&disk, "t-0").unwrap(), written);
    }
}
