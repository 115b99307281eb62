//! Where logs start: written down before they do, behind the ends that it must not go beyond.

use records::ids::{Offset, PartitionId};

use super::Logs;
use crate::checkpoints::{self, OffsetCheckpoint};
use crate::error::StorageError;

impl Logs {
    /// Writes down where logs will start, before they do.
    pub(super) fn write_log_starts(&mut self, moves: &[(PartitionId, Offset)]) -> Result<(), StorageError> {
        let mut starts = self.log_starts.clone();
        for open in self.logs.values() {
            starts.insert(open.name.clone(), open.log.facts().log_start);
        }
        for (id, start) in moves {
            starts.insert(self.logs[id].name.clone(), *start);
        }
        starts.retain(|_, start| *start > Offset::ZERO);
        if starts == self.log_starts && !self.log_starts_unsure {
            return Ok(());
        }
        self.write_ends_above(&starts)?;
        self.log_starts_unsure = true;
        checkpoints::write(&**self.data_dir.disk(), checkpoints::LOG_START, &starts)?;
        self.log_starts_unsure = false;
        self.log_starts = starts;
        Ok(())
    }

    /// Where a log is to start beyond the end that is written down, that end goes first: after a power cut has taken the
    /// log's own end nothing else tells such a start from a damaged one.
    fn write_ends_above(&mut self, starts: &OffsetCheckpoint) -> Result<(), StorageError> {
        let mut ends = self.ends.clone();
        for open in self.logs.values() {
            let Some(start) = starts.get(&open.name) else { continue };
            if ends.get(&open.name).is_none_or(|end| end < start) {
                ends.insert(open.name.clone(), open.log.facts().end);
            }
        }
        if ends == self.ends && !self.ends_unsure { Ok(()) } else { self.write_ends(ends) }
    }

    /// Writes down where logs end.
    pub(super) fn write_ends(&mut self, ends: OffsetCheckpoint) -> Result<(), StorageError> {
        self.ends_unsure = true;
        checkpoints::write(&**self.data_dir.disk(), checkpoints::HIGH_WATERMARK, &ends)?;
        self.ends_unsure = false;
        self.ends = ends;
        Ok(())
    }
}
