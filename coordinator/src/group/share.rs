//! A share group's membership (`ShareGroup`, and the share half of `GroupMetadataManager`).
//!
//! All of it is durable but the session timers: members, subscriptions, epochs and assignments come back after a
//! restart. Where Kafka computes a new assignment up to a second later (`share.assignment.interval.ms`), we compute
//! it with the heartbeat that makes it necessary, so that a first heartbeat already carries one.

mod assign;
mod heartbeat;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::TopicId;
use records::key_hash::key_hash;

pub(super) use heartbeat::{check, joins, leaves};

use super::context::GroupContext;
use super::reply::{DescribedShareGroup, DescribedShareMember, GroupError, ListedGroup};
use super::stored::{Assignment, Change, StoredCurrent, StoredShareGroup, StoredShareMember, StoredTargets};
use crate::share::ShareOrder;

/// The epoch of a group before its first member: the first one gets 2, as in Kafka.
const FIRST_EPOCH: i32 = 1;

/// A share group. Durable: changed by [`ShareGroup::apply`] alone.
#[derive(Debug)]
pub(super) struct ShareGroup {
    id: Arc<str>,
    epoch: i32,
    metadata_hash: i64,
    targets: StoredTargets,
    members: BTreeMap<Arc<str>, ShareMember>,
    /// An imported log holds Kafka's list of share-partitions: it is deleted with the group.
    has_state_list: bool,
}

/// A member of a share group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ShareMember {
    rack: Option<Arc<str>>,
    client_id: Arc<str>,
    client_host: Arc<str>,
    topics: BTreeSet<Arc<str>>,
    epoch: i32,
    previous_epoch: i32,
    /// What it was told that it has.
    assigned: Assignment,
    /// What it shall have.
    target: Assignment,
}

impl ShareGroup {
    /// A group without members.
    pub(super) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            targets: StoredTargets { epoch: FIRST_EPOCH, computed_ms: 0 },
            members: BTreeMap::new(),
            has_state_list: false,
        }
    }

    /// What is stored of a group that nobody has joined so far.
    pub(super) fn first(&self) -> Change {
        let value = StoredShareGroup { epoch: self.epoch, metadata_hash: self.metadata_hash };
        Change::ShareGroup { group: self.id(), value: Some(value) }
    }

    /// Takes over a change of this group; false for the one that ends it.
    pub(super) fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::ShareMember { member, value: Some(value), .. } => {
                let StoredShareMember { rack, client_id, client_host, topics } = value;
                let entry = self.members.entry(member).or_default();
                (entry.rack, entry.client_id, entry.client_host, entry.topics) =
                    (rack, client_id, client_host, topics);
            }
            Change::ShareMember { member, value: None, .. } => {
                self.members.remove(&member);
            }
            Change::ShareGroup { value: Some(value), .. } => {
                self.epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
            }
            Change::ShareGroup { value: None, .. } => return false,
            Change::ShareTargets { value, .. } => {
                self.targets = value.unwrap_or(StoredTargets { epoch: FIRST_EPOCH, computed_ms: 0 });
            }
            // A compacted log may show these before the member's own record; their tombstones come with its tombstone.
            Change::ShareTarget { member, value: Some(target), .. } => {
                self.members.entry(member).or_default().target = target;
            }
            Change::ShareCurrent { member, value: Some(value), .. } => {
                let StoredCurrent { epoch, previous_epoch, assignment } = value;
                let entry = self.members.entry(member).or_default();
                (entry.epoch, entry.previous_epoch, entry.assigned) = (epoch, previous_epoch, assignment);
            }
            Change::ShareTarget { member, value: None, .. } => {
                if let Some(entry) = self.members.get_mut(&member) {
                    entry.target = Assignment::new();
                }
            }
            Change::ShareCurrent { member, value: None, .. } => {
                if let Some(entry) = self.members.get_mut(&member) {
                    (entry.epoch, entry.previous_epoch, entry.assigned) = (0, 0, Assignment::new());
                }
            }
            Change::ShareState { exists, .. } => self.has_state_list = exists,
            Change::Offset { .. } | Change::Group { .. } => unreachable!("not a change of a share group"),
        }
        true
    }

    pub(super) fn member_ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.keys()
    }

    /// Tombstones for the whole group, which must be empty.
    pub(super) fn delete(&self) -> Result<Vec<Change>, GroupError> {
        if !self.members.is_empty() {
            return Err(GroupError::NonEmptyGroup);
        }
        let mut changes = vec![Change::ShareTargets { group: self.id(), value: None }];
        if self.has_state_list {
            changes.push(Change::ShareState { group: self.id(), exists: false });
        }
        changes.push(Change::ShareGroup { group: self.id(), value: None });
        Ok(changes)
    }

    /// As ListGroups shows it.
    pub(super) fn list(&self) -> ListedGroup {
        ListedGroup {
            group: self.id(),
            protocol_type: Arc::from("share"),
            state: self.state(),
            kind: "share",
        }
    }

    /// As ShareGroupDescribe shows it.
    pub(super) fn describe(&self, cx: &GroupContext<'_>) -> DescribedShareGroup {
        let names: BTreeMap<TopicId, &Arc<str>> =
            cx.topics.topics.iter().map(|(name, (id, _))| (*id, name)).collect();
        let members = self.members.iter().map(|(id, member)| DescribedShareMember {
            member: Arc::clone(id),
            rack: member.rack.clone(),
            epoch: member.epoch,
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            topics: member.topics.iter().cloned().collect(),
            assignment: (member.assigned.iter())
                .filter_map(|(topic, partitions)| {
                    Some((*topic, Arc::clone(names.get(topic)?), partitions.clone()))
                })
                .collect(),
        });
        DescribedShareGroup {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.targets.epoch,
            assignor: match cx.share_config(&self.id).order {
                ShareOrder::None => "simple",
                ShareOrder::Key => "key",
            },
            members: members.collect(),
        }
    }

    fn state(&self) -> &'static str {
        if self.members.is_empty() { "Empty" } else { "Stable" }
    }

    fn id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// A hash of everything that the assignment depends on beside the members: order, and id and partition count of
    /// each topic that somebody subscribes to. Zero where there is none.
    fn hash_metadata<'a>(
        &self,
        subscribed: impl Iterator<Item = &'a Arc<str>>,
        cx: &GroupContext<'_>,
    ) -> i64 {
        let subscribed: BTreeSet<&Arc<str>> = subscribed.collect();
        let mut image = Vec::new();
        for name in subscribed {
            if let Some((id, partitions)) = cx.topics.topics.get(name) {
                image.extend(id.0);
                image.extend(partitions.to_be_bytes());
            }
        }
        if image.is_empty() {
            return 0;
        }
        image.push(u8::from(cx.share_config(&self.id).order == ShareOrder::Key));
        i64::from_be_bytes(key_hash(&image).0.to_be_bytes())
    }

    /// The changes that raise the group's epoch.
    fn bump(&self, metadata_hash: i64) -> Change {
        let value = StoredShareGroup { epoch: self.epoch + 1, metadata_hash };
        Change::ShareGroup { group: self.id(), value: Some(value) }
    }
}
