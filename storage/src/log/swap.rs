//! Putting a compacted segment in the place of those that it was made of (Kafka's `LocalLog.replaceSegments`).
//!
//! The files go from `.cleaned` over `.swap` to their names, the log file last each time. Before its `.swap` name is
//! on the disk a crash undoes the swap: `.cleaned` files are removed. From then on it finishes it. What is left then of
//! old segments that begin behind the new one's last record holds nothing that was to stay: the next compaction, which
//! begins where this one did, takes it.

use std::io;

use records::ids::Offset;

use super::PartitionLog;
use crate::disk::{Disk, Entry, join};
use crate::error::{IoContext, StorageError};
use crate::index::txn;
use crate::lazy_file::DELETED;
use crate::options::WALK_WINDOW_BYTES;
use crate::segment::{FILES, Found, Segment, base_of, file_name, remove_sidecars};
use crate::walk::{Step, Walk};

/// Suffix of what compaction writes (Kafka's `LogFileUtils.CLEANED_FILE_SUFFIX`).
pub(crate) const CLEANED: &str = ".cleaned";
/// Suffix of what replaces segments (Kafka's `LogFileUtils.SWAP_FILE_SUFFIX`).
pub(crate) const SWAP: &str = ".swap";

/// A compacted segment whose files are written and synced, and what it replaces.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// Base offset and bytes of each segment that goes; the first one's base is the new one's.
    pub(crate) replaced: Vec<(Offset, u64)>,
    /// Lengths of the new files.
    pub(crate) found: Found,
}

impl Replacement {
    pub(crate) fn base(&self) -> Offset {
        self.replaced[0].0
    }
}

impl PartitionLog {
    /// Names the new files as what replaces the old ones. Nothing changes before the directory is synced and
    /// [`PartitionLog::finish_swap`] is called. False where the old segments are not what they were: the new ones are
    /// removed.
    pub(crate) fn begin_swap(&mut self, new: &Replacement) -> Result<bool, StorageError> {
        if self.position_of(new).is_none() {
            self.abandon_cleaned(new.base());
            return Ok(false);
        }
        if let Err(error) = self.name_swap(new.base()) {
            // What is named by now must not get into a later swap.
            if let Err(second) = remove_swap(&*self.disk, &self.directory, new.base()) {
                tracing::error!(log = self.directory, %second, "cannot take a swap back, log is closed for writing");
                self.poisoned = true;
            }
            return Err(error).doing("rename a compacted file of", &self.directory);
        }
        Ok(true)
    }

    fn name_swap(&self, base: Offset) -> io::Result<()> {
        for suffix in FILES {
            let name = join(&self.directory, &file_name(base, suffix));
            match self.disk.rename(&format!("{name}{CLEANED}"), &format!("{name}{SWAP}")) {
                Err(error) if suffix == txn::SUFFIX && error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        Ok(())
    }

    /// Replaces the old segments. False where they are not what they were: the new one is removed.
    ///
    /// # Errors
    /// Where the disk fails between the two: the log is closed for writing, and the next start finishes the swap.
    pub(crate) fn finish_swap(&mut self, new: &Replacement) -> Result<bool, StorageError> {
        let Some(first) = self.position_of(new) else {
            remove_swap(&*self.disk, &self.directory, new.base())
                .doing("remove a file of", &self.directory)?;
            self.dirty.directories.insert(self.directory.clone());
            return Ok(false);
        };
        let behind = first + new.replaced.len();
        let swapped = self.swap_files(first, behind, new.base());
        if swapped.is_err() {
            self.poisoned = true;
        }
        swapped.doing("replace a segment of", &self.directory)?;
        let mut segment = Segment::existing(&self.disk, &self.directory, new.base(), new.found);
        segment.drop_empty_txn_index();
        let old_bytes: u64 = new.replaced.iter().map(|(_, bytes)| bytes).sum();
        self.bytes = self.bytes - old_bytes + segment.size();
        self.segments.splice(first..behind, [segment]);
        self.dirty.directories.insert(self.directory.clone());
        // They name positions and segments of before.
        self.cursors.clear();
        let bases: Vec<Offset> = new.replaced.iter().map(|(base, _)| *base).collect();
        self.opened.retain(|base| !bases.contains(base));
        if let Some(keys) = &mut self.keys {
            keys.forget(&bases);
        }
        self.drop_snapshots();
        self.changed = true;
        Ok(true)
    }

    fn swap_files(&mut self, first: usize, behind: usize, base: Offset) -> io::Result<()> {
        for segment in &mut self.segments[first..behind] {
            self.retired.extend(segment.retire()?);
        }
        rename_swap(&*self.disk, &self.directory, base)
    }

    /// Where the replaced segments stand; `None` where they are not there any more as they were. The active segment
    /// is never replaced.
    fn position_of(&self, new: &Replacement) -> Option<usize> {
        if self.poisoned {
            return None;
        }
        let first = self.segments.binary_search_by_key(&new.base(), Segment::base).ok()?;
        let there = self.segments.get(first..first + new.replaced.len())?;
        let same =
            there.iter().map(|segment| (segment.base(), segment.size())).eq(new.replaced.iter().copied());
        (same && first + new.replaced.len() < self.segments.len()).then_some(first)
    }

    /// Removes what a compaction wrote that will not be finished.
    pub(crate) fn abandon_cleaned(&self, base: Offset) {
        remove_cleaned(&*self.disk, &self.directory, base);
    }
}

/// Removes the unfinished files of a compaction, and says so where it cannot: the next start does it.
pub(crate) fn remove_cleaned(disk: &dyn Disk, directory: &str, base: Offset) {
    for suffix in FILES {
        let path = join(directory, &format!("{}{CLEANED}", file_name(base, suffix)));
        if let Err(error) = remove_if_there(disk, &path) {
            tracing::warn!(path, %error, "cannot remove an unfinished file of a compaction");
        }
    }
}

/// Finishes the swaps that a crash cut short, undoes those that had not got so far, and removes what was to be
/// deleted. True where the directory changed.
pub(crate) fn settle(disk: &dyn Disk, directory: &str, entries: &[Entry]) -> Result<bool, StorageError> {
    let mut swaps = Vec::new();
    let mut changed = false;
    for entry in entries {
        let name = entry.name.as_str();
        if let Some(base) = name.strip_suffix(SWAP).and_then(|name| base_of(name, ".log")) {
            swaps.push((base, entry.len));
        } else if name.ends_with(CLEANED) || name.ends_with(DELETED) {
            let path = join(directory, name);
            disk.remove_file(&path).doing("remove", &path)?;
            changed = true;
        }
    }
    for (base, bytes) in swaps {
        let end = end_of(disk, directory, base, bytes).doing("read a compacted segment of", directory)?;
        tracing::warn!(log = directory, segment = %base, %end, "finishing the swap of a compacted segment");
        let replaced = entries.iter().filter_map(|entry| base_of(&entry.name, ".log"));
        for old in replaced.filter(|old| base < *old && *old < end) {
            for suffix in FILES {
                let path = join(directory, &file_name(old, suffix));
                remove_if_there(disk, &path).doing("remove", &path)?;
            }
            remove_sidecars(disk, directory, old).doing("remove a file of", directory)?;
        }
        remove_sidecars(disk, directory, base).doing("remove a file of", directory)?;
        // An index of before must not stand beside the new log: without one it is rebuilt. But for that of transactions,
        // of which nothing would tell that it is missing: where there was one, the new one takes its place.
        for suffix in &FILES[..2] {
            let path = join(directory, &file_name(base, suffix));
            remove_if_there(disk, &path).doing("remove", &path)?;
        }
        rename_swap(disk, directory, base).doing("rename a compacted segment of", directory)?;
        changed = true;
    }
    for entry in entries.iter().filter(|entry| entry.name.ends_with(SWAP)) {
        let path = join(directory, &entry.name);
        remove_if_there(disk, &path).doing("remove", &path)?;
        changed = true;
    }
    if changed {
        disk.sync_dir(directory).doing("sync", directory)?;
    }
    Ok(changed)
}

/// The offset behind the last batch of a compacted segment.
fn end_of(disk: &dyn Disk, directory: &str, base: Offset, bytes: u64) -> io::Result<Offset> {
    let file = disk.open(&join(directory, &format!("{}{SWAP}", file_name(base, ".log"))))?;
    let mut walk = Walk::new(&file, 0, bytes, WALK_WINDOW_BYTES);
    let mut end = base;
    while let Step::Batch(header, _) = walk.step()? {
        end = header.next();
    }
    Ok(end)
}

/// Gives the new files their names; what is not there was renamed before.
fn rename_swap(disk: &dyn Disk, directory: &str, base: Offset) -> io::Result<()> {
    for suffix in FILES {
        let name = join(directory, &file_name(base, suffix));
        match disk.rename(&format!("{name}{SWAP}"), &name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Takes a swap back: the log file first, since what is left without it is nothing.
pub(super) fn remove_swap(disk: &dyn Disk, directory: &str, base: Offset) -> io::Result<()> {
    for suffix in FILES.iter().rev() {
        remove_if_there(disk, &join(directory, &format!("{}{SWAP}", file_name(base, suffix))))?;
    }
    Ok(())
}

fn remove_if_there(disk: &dyn Disk, path: &str) -> io::Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
