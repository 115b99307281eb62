//! After an unclean stop: commits beyond what is left of their log are lowered before any log takes an append.
//!
//! A power cut may take the end of a log and leave a commit above it. The offsets between will be other records,
//! which the committing group has not seen. So each coordinator partition that is loaded lowers such commits to the
//! ends that the logs were opened with, and until all of that is synced nothing is appended to a log of records.
//! A coordinator partition that cannot be read or synced holds up nobody: it serves no commits either, and lowers
//! them by the same ends when it can be read at last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use crate::command::TopicImage;
use crate::io::OpId;

/// What is left to do of it.
#[derive(Debug, Default)]
pub(super) struct Lowering {
    /// The logs' ends, as they were opened.
    ends: BTreeMap<PartitionId, Offset>,
    /// Coordinator partitions that are not loaded, lowered and synced yet.
    open: BTreeSet<i32>,
    /// Those of them that failed once.
    failed: BTreeSet<i32>,
    /// Whose sync it is.
    syncs: BTreeMap<OpId, i32>,
}

impl Lowering {
    /// A log of records was opened with this end.
    pub(super) fn log_opened(&mut self, partition: PartitionId, end: Offset) {
        self.ends.insert(partition, end);
    }

    /// A coordinator partition has something to load.
    pub(super) fn expect(&mut self, index: i32) {
        self.open.insert(index);
    }

    /// Whether this coordinator partition's commits are not lowered for good yet.
    pub(super) fn is_open(&self, index: i32) -> bool {
        self.open.contains(&index)
    }

    /// What is written is synced under this id.
    pub(super) fn syncs(&mut self, op: OpId, index: i32) {
        self.syncs.insert(op, index);
    }

    /// A sync is over. True when it was one of these.
    pub(super) fn synced(&mut self, op: OpId, ok: bool) -> bool {
        let Some(index) = self.syncs.remove(&op) else { return false };
        if ok {
            self.done(index);
        } else {
            self.failed(index);
        }
        true
    }

    /// Nothing is left to do for this coordinator partition, be it that it is deleted.
    pub(super) fn done(&mut self, index: i32) {
        self.open.remove(&index);
        self.failed.remove(&index);
    }

    pub(super) fn failed(&mut self, index: i32) {
        if self.open.contains(&index) {
            self.failed.insert(index);
        }
    }

    /// Whether appends must wait.
    pub(super) fn holds_appends(&self) -> bool {
        self.open.len() > self.failed.len()
    }

    /// Whether nothing is left to do at all.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// The end with which a log was opened.
    pub(super) fn end(&self, topics: &TopicImage, topic: &Arc<str>, index: i32) -> Option<i64> {
        let (topic, _) = topics.topics.get(topic)?;
        self.ends.get(&PartitionId { topic: *topic, index }).map(|end| end.0)
    }
}
