//! Share sessions: epochs, and the partitions that a member has named (Kafka's `ShareSession` and
//! `SharePartitionManager.newContext`).

use records::ids::PartitionId;

use super::ShareError;
use crate::command::ConnectionId;

/// The epoch that opens a session.
pub(crate) const INITIAL_EPOCH: i32 = 0;
/// The epoch that closes it.
pub(crate) const FINAL_EPOCH: i32 = -1;

/// One member's share session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The epoch that its next request must have.
    epoch_next: i32,
    /// The connection of its last request.
    pub(crate) connection: ConnectionId,
    /// In the order in which they were named.
    parts: Vec<PartitionId>,
}

impl Session {
    pub(crate) fn open(connection: ConnectionId) -> Self {
        Self { epoch_next: 1, connection, parts: Vec::new() }
    }

    pub(crate) fn parts(&self) -> &[PartitionId] {
        &self.parts
    }

    /// Takes a request's epoch; the next one is due from then on, except after the final one.
    ///
    /// # Errors
    /// It is not the one that is due, or would open the session anew: nothing has changed.
    pub(crate) fn step(&mut self, epoch: i32, connection: ConnectionId) -> Result<(), ShareError> {
        if epoch != FINAL_EPOCH {
            if epoch != self.epoch_next {
                return Err(ShareError::InvalidSessionEpoch);
            }
            // Kafka's `ShareRequestMetadata.nextEpoch`: after the highest comes 1.
            self.epoch_next = epoch.checked_add(1).unwrap_or(1);
        }
        self.connection = connection;
        Ok(())
    }

    /// Adds what is named and then takes out what is forgotten.
    pub(crate) fn update(&mut self, named: impl Iterator<Item = PartitionId>, forgotten: &[PartitionId]) {
        for partition in named {
            if !self.parts.contains(&partition) {
                self.parts.push(partition);
            }
        }
        if !forgotten.is_empty() {
            self.parts.retain(|partition| !forgotten.contains(partition));
        }
    }
}
