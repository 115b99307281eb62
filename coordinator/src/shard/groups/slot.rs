//! One coordinator partition: its state, and what waits for its log.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId};
use records::{Codec, TimestampType};

use crate::command::Ticket;
use crate::group::{GroupError, GroupPartition, GroupReply, ShareMembership};
use crate::share::admin::ResetOffsets;
use crate::time::{Mono, Now};

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) partition: PartitionId,
    pub(super) state: State,
    pub(super) in_flight: Option<Batch>,
    pub(super) pending: VecDeque<Batch>,
    /// When what is written and not synced must be.
    pub(super) sync_at: Option<Mono>,
    /// As it stands in `due`.
    pub(super) due_at: Option<Mono>,
}

#[derive(Debug)]
pub(super) enum State {
    Loading,
    /// Could not be loaded; tried again then.
    Failed(Mono),
    Serving(Box<GroupPartition>),
}

/// Records of one append, and all that waits for it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) records: Vec<(Bytes, Option<Bytes>)>,
    pub(super) bytes: usize,
    pub(super) held: Vec<Held>,
}

#[derive(Debug)]
pub(super) enum Held {
    Reply(Ticket, GroupReply),
    Share(ShareMembership),
    /// The group's records are tombstoned; its share state goes next.
    Deleted(Ticket, Arc<str>),
    /// There is a share group of this id; its share-partitions are reset next.
    Altered(Ticket, ResetOffsets),
    /// The group could not be deleted.
    NotDeleted(Ticket, GroupError),
    /// Commits of this coordinator partition beyond their logs are lowered; they must be synced.
    Lowered(i32),
}

impl Slot {
    /// Puts records into the batch that is written next, and what waits for them, and for all before them, behind.
    /// Gives back what need not wait.
    pub(super) fn queue(
        &mut self,
        records: Vec<(Bytes, Option<Bytes>)>,
        held: Vec<Held>,
        batch_bytes_max: usize,
    ) -> Option<Vec<Held>> {
        if records.is_empty() {
            match self.pending.back_mut().or(self.in_flight.as_mut()) {
                Some(batch) => batch.held.extend(held),
                None => return Some(held),
            }
            return None;
        }
        let bytes: usize =
            records.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum();
        match self.pending.back_mut() {
            Some(batch) if batch.bytes + bytes <= batch_bytes_max => {
                batch.bytes += bytes;
                batch.records.extend(records);
                batch.held.extend(held);
            }
            _ => self.pending.push_back(Batch { records, bytes, held }),
        }
        None
    }
}

impl Batch {
    pub(super) fn build(&self, now: Now) -> Bytes {
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
        for (key, value) in &self.records {
            builder.append(now.wall_ms, Some(key), value.as_deref(), &[]);
        }
        builder.build(Offset::ZERO, -1)
    }
}
