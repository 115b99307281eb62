//! The leader epochs that the batches bear, against the file that tells of them.

use std::sync::Arc;

use records::ids::Offset;

use super::{Left, PartitionReport};
use crate::batch_header::BatchHeader;
use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};
use crate::leader_epochs::{self, FILE};

/// Epochs that batches bear.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    runs: Vec<Run>,
}

/// Batches of one epoch, one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    epoch: i32,
    start: Offset,
    /// The offset behind the last of them: compaction may have left a hole before the next epoch.
    behind: Offset,
}

impl Epochs {
    /// Notes a batch, in offset order; the epoch before it where that is higher.
    pub(super) fn note(&mut self, header: &BatchHeader) -> Option<i32> {
        let epoch = header.leader_epoch;
        match self.runs.last_mut() {
            Some(run) if epoch < run.epoch => return Some(run.epoch),
            Some(run) if epoch == run.epoch => run.behind = header.next(),
            _ if epoch < 0 => {}
            _ => self.runs.push(Run { epoch, start: header.base, behind: header.next() }),
        }
        None
    }

    /// Checks the file, which tells of everything that is synced. Of an epoch whose first batches were compacted away it
    /// tells more than the batches.
    pub(super) fn check(
        &self,
        disk: &Arc<dyn Disk>,
        directory: &str,
        left: &Left,
        report: &mut PartitionReport,
    ) -> Result<(), StorageError> {
        let path = join(directory, FILE);
        let told_until = if left.is_clean { report.end } else { left.recovery_point.min(report.end) };
        let bytes = disk.read(&path).doing("read", &path)?;
        let known = bytes.as_ref().and_then(|bytes| leader_epochs::parse_file(bytes));
        let Some(known) = known else {
            // Of what lies below the log start no epoch need be known.
            let is_due =
                self.runs.iter().any(|run| run.start.max(report.log_start) < run.behind.min(told_until));
            let what = match bytes {
                Some(bytes) if !bytes.is_empty() => "is no leader epoch checkpoint",
                _ if !is_due => return Ok(()),
                Some(_) => "is empty, although batches bear leader epochs",
                None => "is missing, although batches bear leader epochs",
            };
            report.find(&path, None, what);
            return Ok(());
        };
        if let Some((_, last)) = known.last().filter(|(_, start)| *start > report.end) {
            report.find(
                &path,
                None,
                format!("an epoch begins at {last}, behind the log's end {}", report.end),
            );
        }
        for run in &self.runs {
            let start = run.start.max(report.log_start);
            if start >= run.behind.min(told_until) {
                continue;
            }
            let told = known.iter().rev().find(|(_, known)| *known <= start).map(|(epoch, _)| *epoch);
            if told != Some(run.epoch) {
                let bears = run.epoch;
                let told = told.map_or("no epoch".to_owned(), |told| format!("epoch {told}"));
                report.find(
                    &path,
                    None,
                    format!("tells of {told} at {start}, the batch there bears {bears}"),
                );
            }
        }
        let exact = left.cleaned.max(report.log_start.next())..told_until;
        for (epoch, start) in known.iter().filter(|(_, start)| exact.contains(start)) {
            if !self.runs.iter().any(|run| (run.epoch, run.start) == (*epoch, *start)) {
                report.find(&path, None, format!("epoch {epoch} begins at {start}, but no batch of it does"));
            }
        }
        Ok(())
    }
}
