//! What a start finds missing of a log, or has to take out of it: told with its offsets, and kept where it may be good.
//!
//! A log ends in front of its first damaged batch, but what lies in the segments behind may be whole. Nobody but the
//! operator can tell what it is worth: those log files stay, under names that no start takes for a part of the log, nor
//! for something to be removed.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::PartitionLog;
use super::recovery::OpenAs;
use crate::checkpoints::{HIGH_WATERMARK, LOG_START};
use crate::disk::{DiskFile, cut_off, join};
use crate::error::{IoContext, StorageError};
use crate::options::RECOVERY_WINDOW_BYTES;
use crate::segment::Segment;

/// Suffix of a log file, or of the rest of one, that recovery took out of the log. Removed by hand, or with the topic.
pub(crate) const LOST: &str = ".lost";

/// What is missing of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Where the log ends now.
    pub(crate) from: Offset,
    /// Where it ended before, as far as anything tells; `from` where nothing does.
    pub(crate) to: Offset,
    /// Everything below it had been synced.
    pub(crate) synced: Offset,
    /// The files that were taken out of the log, and kept.
    pub(crate) files: Vec<String>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from < self.to {
            write!(f, "offsets {} to {} are not in the log any more", self.from, self.to - 1)?;
        } else {
            write!(f, "the log ends at offset {}", self.from)?;
        }
        if self.from < self.synced {
            write!(f, ", although everything below {} was on the disk", self.synced)?;
        }
        if !self.files.is_empty() {
            let files = self.files.join(", ");
            write!(
                f,
                "; what stood behind it is kept, and never read, in {files}: remove what is not needed"
            )?;
        }
        Ok(())
    }
}

/// What recovery took out of a log.
#[derive(Debug, Default)]
pub(super) struct TakenOut {
    /// The offset behind the last batch of it that reads well.
    to: Offset,
    files: Vec<String>,
}

/// Where a log file is to be cut.
pub(super) struct Cut {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: String,
    pub(super) position: u64,
    /// Its length before.
    pub(super) len: u64,
}

impl PartitionLog {
    /// Ends the log behind its first `kept` segments, of which the last is cut. A crash on the way leaves the damage in
    /// its place until everything behind it is out of the log: what follows a cut must never join on again.
    pub(super) fn take_out(&mut self, kept: usize, cut: Option<Cut>) -> Result<TakenOut, StorageError> {
        let mut behind = self.segments.split_off(kept);
        let mut taken = TakenOut::default();
        let entries = self.disk.list(&self.directory).doing("list", &self.directory)?;
        let mut names: BTreeSet<String> = entries.into_iter().map(|entry| entry.name).collect();
        if let Some(last) = behind.iter_mut().rfind(|segment| segment.size() > 0) {
            taken.to = last.readable_end().doing("read", last.log_path())?;
            if let Some(cut) = &cut {
                let path = self.free_path(&format!("{}.{}", cut.path, cut.position), &mut names);
                self.copy_rest(cut, &path).doing("keep the rest of a damaged segment in", &path)?;
                taken.files.push(path);
            }
        }
        let mut moved = Vec::new();
        for mut segment in behind.into_iter().rev() {
            if segment.size() == 0 {
                segment.remove().doing("remove a segment of", &self.directory)?;
                continue;
            }
            let path = self.free_path(segment.log_path(), &mut names);
            segment.set_aside(&path).doing("rename a segment of", &self.directory)?;
            moved.push(path);
        }
        taken.files.extend(moved.into_iter().rev());
        self.disk.sync_dir(&self.directory).doing("sync", &self.directory)?;
        if let Some(cut) = cut {
            let done = cut_off(&*cut.file, cut.position, cut.len).map_err(io::Error::from);
            done.doing("cut", &cut.path)?;
        }
        Ok(taken)
    }

    /// A path for what `path` held that nothing has: an earlier life may have left a file of the same name.
    fn free_path(&self, path: &str, names: &mut BTreeSet<String>) -> String {
        let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
        let numbered = (1..=names.len()).map(|number| format!("{file}.{number}{LOST}"));
        let mut candidates = std::iter::once(format!("{file}{LOST}")).chain(numbered);
        let name = candidates.find(|name| !names.contains(name));
        let name = name.expect("of one more name than there are files one is free");
        names.insert(name.clone());
        join(&self.directory, &name)
    }

    fn copy_rest(&self, cut: &Cut, path: &str) -> io::Result<()> {
        let copy = self.disk.create(path)?;
        let mut at = cut.position;
        while at < cut.len {
            let mut bytes = vec![0; (cut.len - at).min(RECOVERY_WINDOW_BYTES as u64) as usize];
            cut.file.read_exact_at(&mut bytes, at)?;
            copy.write_all_at(&bytes, at - cut.position)?;
            at += bytes.len() as u64;
        }
        copy.sync_data()
    }

    /// Refuses a log start that nothing explains.
    ///
    /// A start beyond the log's end is legal where the records that were kept are lost: it never goes beyond the end that
    /// is written down, since that is written first ([`crate::Logs::delete_records`]). Beyond both it is damage, and to
    /// believe it would delete everything there is. Where no end is written down nothing tells the one from the other.
    pub(super) fn check_log_start(&self, left: &OpenAs) -> Result<(), StorageError> {
        let beyond = left.log_start.filter(|start| *start > self.end);
        let (Some(start), Some(known)) = (beyond, left.end) else { return Ok(()) };
        if start <= known {
            return Ok(());
        }
        Err(StorageError::Damaged {
            path: LOG_START.to_owned(),
            reason: format!(
                "it says that {} starts at {start}, but its files end at {} and {HIGH_WATERMARK} says {known}; nothing \
                 was deleted: put the right offset there, or take the line out and have deleted records back",
                self.directory, self.end
            ),
        })
    }

    /// Compares the log with what the checkpoints say of its end, and tells what is missing.
    pub(super) fn tell_lost(&mut self, left: &OpenAs, taken: TakenOut) {
        let synced = left.recovery_point.unwrap_or(Offset::ZERO);
        let to = taken.to.max(synced).max(left.end.unwrap_or(Offset::ZERO));
        let from = self.end;
        if to <= from && taken.files.is_empty() {
            return;
        }
        let lost = Lost { from, to: to.max(from), synced, files: taken.files };
        // What was not synced a power cut may take: whoever wanted it back has asked for a sync.
        if left.clean || from < synced || !lost.files.is_empty() {
            tracing::error!(log = self.directory, from = %from, to = %lost.to, "{lost}");
        } else {
            tracing::warn!(log = self.directory, from = %from, to = %lost.to, "{lost}");
        }
        self.lost = Some(lost);
    }

    /// What was missing when the log was opened.
    #[cfg(test)]
    pub(crate) fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }
}

impl TakenOut {
    pub(super) fn join(&mut self, other: Self) {
        self.to = self.to.max(other.to);
        self.files.extend(other.files);
    }
}

impl Segment {
    /// Takes the log file out of the log, under `path`; what was made from it goes.
    fn set_aside(&mut self, path: &str) -> io::Result<()> {
        self.close();
        self.rename_log(path)?;
        self.remove()
    }
}
