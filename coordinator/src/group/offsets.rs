//! Committed offsets of all groups of a partition (`OffsetMetadataManager`).

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::TopicId;

use super::command::CommittedPart;
use super::stored::{Change, StoredOffset};
use crate::command::TopicImage;

/// What one group has committed, by topic and partition.
type GroupOffsets = BTreeMap<(Arc<str>, i32), StoredOffset>;

/// Committed offsets. Durable: changed by [`Offsets::apply`] alone.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    by_group: BTreeMap<Arc<str>, GroupOffsets>,
}

impl Offsets {
    /// Sets or removes one offset.
    pub(super) fn apply(
        &mut self,
        group: Arc<str>,
        topic: Arc<str>,
        partition: i32,
        value: Option<StoredOffset>,
    ) {
        match value {
            Some(value) => {
                self.by_group.entry(group).or_default().insert((topic, partition), value);
            }
            None => {
                if let Some(offsets) = self.by_group.get_mut(&group) {
                    offsets.remove(&(topic, partition));
                    if offsets.is_empty() {
                        self.by_group.remove(&group);
                    }
                }
            }
        }
    }

    /// How many offsets a group has.
    pub(super) fn count(&self, group: &str) -> usize {
        self.by_group.get(group).map_or(0, BTreeMap::len)
    }

    /// Whether there is an offset for this partition.
    pub(super) fn has(&self, group: &str, topic: &Arc<str>, partition: i32) -> bool {
        self.by_group.get(group).is_some_and(|offsets| offsets.contains_key(&(Arc::clone(topic), partition)))
    }

    /// What is committed for these partitions, in this order. An offset of a topic that was deleted and created
    /// anew is none.
    pub(super) fn fetch(
        &self,
        group: &str,
        partitions: &[(Arc<str>, i32)],
        topics: &TopicImage,
    ) -> Vec<CommittedPart> {
        let offsets = self.by_group.get(group);
        let find = |place: &(Arc<str>, i32)| {
            offsets
                .and_then(|offsets| offsets.get(place))
                .filter(|stored| is_current(stored, &place.0, topics))
        };
        partitions.iter().map(|place| part(place, find(place))).collect()
    }

    /// Everything that a group has committed.
    pub(super) fn fetch_all(&self, group: &str, topics: &TopicImage) -> Vec<CommittedPart> {
        let offsets = self.by_group.get(group).into_iter().flatten();
        offsets
            .filter(|(place, stored)| is_current(stored, &place.0, topics))
            .map(|(place, stored)| part(place, Some(stored)))
            .collect()
    }

    /// Tombstones for everything that a group has committed.
    pub(super) fn delete_all(&self, group: &Arc<str>) -> Vec<Change> {
        let places = self.by_group.get(group).into_iter().flat_map(BTreeMap::keys);
        places.map(|place| tombstone(group, place)).collect()
    }

    /// Tombstones for what a group committed so long ago that it has run out. `start_ms` is from when retention
    /// counts, where that is not each offset's commit; `keeps` are topics that the group is reading.
    pub(super) fn expired(
        &self,
        group: &Arc<str>,
        now_ms: i64,
        retention_ms: i64,
        start_ms: Option<i64>,
        keeps: impl Fn(&str) -> bool,
    ) -> Vec<Change> {
        let has_run_out = |stored: &StoredOffset| match stored.expire_ms {
            Some(expire_ms) => now_ms >= expire_ms,
            None => now_ms.saturating_sub(start_ms.unwrap_or(stored.commit_ms)) >= retention_ms,
        };
        let offsets = self.by_group.get(group).into_iter().flatten();
        offsets
            .filter(|((topic, _), stored)| !keeps(topic) && has_run_out(stored))
            .map(|(place, _)| tombstone(group, place))
            .collect()
    }

    /// New records for what is committed beyond the end of its log.
    pub(super) fn lowered(&self, end: impl Fn(&Arc<str>, i32) -> Option<i64>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (group, offsets) in &self.by_group {
            for ((topic, partition), stored) in offsets {
                if let Some(end) = end(topic, *partition).filter(|end| *end < stored.offset) {
                    let value = Some(StoredOffset { offset: end, ..stored.clone() });
                    let (group, topic) = (Arc::clone(group), Arc::clone(topic));
                    changes.push(Change::Offset { group, topic, partition: *partition, value });
                }
            }
        }
        changes
    }

    /// Tombstones for offsets of topics that are gone, known by id.
    pub(super) fn of_deleted_topics(&self, topics: &TopicImage) -> Vec<Change> {
        let is_gone = |stored: &StoredOffset, topic: &Arc<str>| {
            !stored.topic_id.is_zero()
                && topics.topics.get(topic).is_none_or(|(id, _)| *id != stored.topic_id)
        };
        let all =
            self.by_group.iter().flat_map(|(group, offsets)| offsets.iter().map(move |entry| (group, entry)));
        all.filter(|(_, (place, stored))| is_gone(stored, &place.0))
            .map(|(group, (place, _))| tombstone(group, place))
            .collect()
    }
}

/// What a commit leads to, topic by topic id where that is known.
pub(super) fn commit(
    group: &Arc<str>,
    offset: CommittedPart,
    now_ms: i64,
    retention_ms: Option<i64>,
    topics: &TopicImage,
) -> Change {
    let CommittedPart { topic, partition, offset, leader_epoch, metadata } = offset;
    let topic_id = topics.topics.get(&topic).map_or(TopicId::ZERO, |(id, _)| *id);
    let expire_ms = retention_ms.map(|retention_ms| now_ms.saturating_add(retention_ms));
    let value = StoredOffset { offset, leader_epoch, metadata, commit_ms: now_ms, expire_ms, topic_id };
    Change::Offset { group: Arc::clone(group), topic, partition, value: Some(value) }
}

/// The tombstone of one offset.
pub(super) fn tombstone(group: &Arc<str>, (topic, partition): &(Arc<str>, i32)) -> Change {
    Change::Offset { group: Arc::clone(group), topic: Arc::clone(topic), partition: *partition, value: None }
}

fn is_current(stored: &StoredOffset, topic: &Arc<str>, topics: &TopicImage) -> bool {
    stored.topic_id.is_zero() || topics.topics.get(topic).is_none_or(|(id, _)| *id == stored.topic_id)
}

fn part((topic, partition): &(Arc<str>, i32), stored: Option<&StoredOffset>) -> CommittedPart {
    CommittedPart {
        topic: Arc::clone(topic),
        partition: *partition,
        offset: stored.map_or(-1, |stored| stored.offset),
        leader_epoch: stored.map_or(-1, |stored| stored.leader_epoch),
        metadata: stored.map_or_else(Arc::default, |stored| Arc::clone(&stored.metadata)),
    }
}
