//! What the checkpoints tell of a log that is gone or shorter than it was.

use records::ids::Offset;

use super::Logs;
use crate::checkpoints::{self, LogName, OffsetCheckpoint};
use crate::error::StorageError;
use crate::log::LogFacts;
use crate::strays::directory_name;

impl Logs {
    /// Refuses a log of which nothing is there although records of it were synced, in order or not: a disk that is not
    /// mounted is no empty one.
    pub(super) fn refuse_missing(&self, name: &LogName) -> Result<(), StorageError> {
        let start = self.log_starts.get(name).copied().unwrap_or(Offset::ZERO);
        let told = |file, offsets: &OffsetCheckpoint| offsets.get(name).map(|end| (file, *end));
        // What an orderly stop wrote of the log's end was synced: it knows where the other file is gone, too.
        let known = match told(checkpoints::RECOVERY_POINT, &self.recovery_points) {
            None if self.data_dir.was_clean() => told(checkpoints::HIGH_WATERMARK, &self.ends),
            known => known,
        };
        let Some((file, end)) = known.filter(|(_, end)| *end > start) else { return Ok(()) };
        let (topic, partition) = name.clone();
        Err(StorageError::Missing { topic, partition, start, end, file })
    }

    /// Tells of records that are gone although they were synced, and notes where a log is not as an orderly stop left it.
    pub(super) fn note_lost(&mut self, name: &LogName, facts: &LogFacts) {
        let is_clean = self.data_dir.was_clean();
        let synced = self.recovery_points.get(name).copied();
        // A stop in order writes down where each log ends.
        let end = if is_clean { synced.max(self.ends.get(name).copied()) } else { synced };
        let is_new = is_clean && end.is_none() && facts.end > facts.log_start;
        let is_short = end.is_some_and(|end| facts.end < end);
        self.lost_records |= is_clean && (is_new || is_short);
        let log = directory_name(name);
        match end {
            Some(end) if is_short => {
                tracing::error!(log, from = %facts.end, to = %end, "records are gone that were there and synced");
            }
            _ if is_new => tracing::warn!(log, end = %facts.end, "log was not there at the last stop"),
            _ => {}
        }
    }
}
