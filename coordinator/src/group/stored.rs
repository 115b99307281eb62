//! The records of `__consumer_offsets`: keys and values in the schema versions that Apache Kafka 4.4 writes
//! (`OffsetCommit`, `GroupMetadata`, `ShareGroup*` of the group coordinator's message definitions).
//!
//! Read are all versions that Kafka reads. Keys of other kinds (consumer and streams groups) are passed over: a data
//! directory may hold them.

mod value;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::TopicId;

pub(super) use value::{
    StoredCurrent, StoredGroup, StoredMember, StoredOffset, StoredShareGroup, StoredShareMember,
    StoredTargets,
};
use wire::{Reader, Writer};

/// Partitions by topic: what a share member is assigned.
pub(super) type Assignment = BTreeMap<TopicId, Vec<i32>>;

const OFFSET_COMMIT_LEGACY: i16 = 0;
const OFFSET_COMMIT: i16 = 1;
const GROUP_METADATA: i16 = 2;
const SHARE_MEMBER: i16 = 10;
const SHARE_GROUP: i16 = 11;
const SHARE_TARGETS: i16 = 12;
const SHARE_TARGET: i16 = 13;
const SHARE_CURRENT: i16 = 14;
const SHARE_STATE: i16 = 15;

/// A record that cannot be read: damage, or a schema version of a later release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed record in the offsets topic")]
pub(super) struct Malformed;

/// One record, typed: the only thing that changes durable state. `None` for a value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A committed offset.
    Offset { group: Arc<str>, topic: Arc<str>, partition: i32, value: Option<StoredOffset> },
    /// A classic group's generation.
    Group { group: Arc<str>, value: Option<StoredGroup> },
    /// A share member's subscription.
    ShareMember { group: Arc<str>, member: Arc<str>, value: Option<StoredShareMember> },
    /// A share group's epoch.
    ShareGroup { group: Arc<str>, value: Option<StoredShareGroup> },
    /// The epoch of a share group's target assignment.
    ShareTargets { group: Arc<str>, value: Option<StoredTargets> },
    /// What a share member shall have.
    ShareTarget { group: Arc<str>, member: Arc<str>, value: Option<Assignment> },
    /// What a share member was told that it has.
    ShareCurrent { group: Arc<str>, member: Arc<str>, value: Option<StoredCurrent> },
    /// Kafka's list of share-partitions with state. Ours is the partition's directory: this is read in an imported
    /// log and deleted with its group, never written.
    ShareState { group: Arc<str>, exists: bool },
}

impl Change {
    /// Key and value (`None`: tombstone) as they stand in the log.
    pub(super) fn encode(&self) -> (Bytes, Option<Bytes>) {
        let mut key = Writer::default();
        let value = match self {
            Self::Offset { group, topic, partition, value } => {
                key.i16(OFFSET_COMMIT).string(group).string(topic).i32(*partition);
                value.as_ref().map(StoredOffset::encode)
            }
            Self::Group { group, value } => {
                key.i16(GROUP_METADATA).string(group);
                value.as_ref().map(StoredGroup::encode)
            }
            Self::ShareMember { group, member, value } => {
                key.i16(SHARE_MEMBER).string(group).string(member);
                value.as_ref().map(StoredShareMember::encode)
            }
            Self::ShareGroup { group, value } => {
                key.i16(SHARE_GROUP).string(group);
                value.as_ref().map(StoredShareGroup::encode)
            }
            Self::ShareTargets { group, value } => {
                key.i16(SHARE_TARGETS).string(group);
                value.as_ref().map(StoredTargets::encode)
            }
            Self::ShareTarget { group, member, value } => {
                key.i16(SHARE_TARGET).string(group).string(member);
                value.as_ref().map(value::encode_target)
            }
            Self::ShareCurrent { group, member, value } => {
                key.i16(SHARE_CURRENT).string(group).string(member);
                value.as_ref().map(StoredCurrent::encode)
            }
            Self::ShareState { group, exists } => {
                debug_assert!(!exists, "the list of share-partitions is never written");
                key.i16(SHARE_STATE).string(group);
                None
            }
        };
        (key.finish(), value)
    }

    /// Whether it takes something away.
    pub(super) fn is_tombstone(&self) -> bool {
        match self {
            Self::Offset { value, .. } => value.is_none(),
            Self::Group { value, .. } => value.is_none(),
            Self::ShareMember { value, .. } => value.is_none(),
            Self::ShareGroup { value, .. } => value.is_none(),
            Self::ShareTargets { value, .. } => value.is_none(),
            Self::ShareTarget { value, .. } => value.is_none(),
            Self::ShareCurrent { value, .. } => value.is_none(),
            Self::ShareState { exists, .. } => !exists,
        }
    }

    /// Reads a record; `None` for a kind of group that is not served.
    pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self>, Malformed> {
        let mut key = Reader::new(key);
        let change = match key.i16()? {
            OFFSET_COMMIT_LEGACY | OFFSET_COMMIT => Self::Offset {
                group: key.string()?,
                topic: key.string()?,
                partition: key.i32()?,
                value: value.map(StoredOffset::decode).transpose()?,
            },
            GROUP_METADATA => {
                Self::Group { group: key.string()?, value: value.map(StoredGroup::decode).transpose()? }
            }
            SHARE_MEMBER => Self::ShareMember {
                group: key.string()?,
                member: key.string()?,
                value: value.map(StoredShareMember::decode).transpose()?,
            },
            SHARE_GROUP => Self::ShareGroup {
                group: key.string()?,
                value: value.map(StoredShareGroup::decode).transpose()?,
            },
            SHARE_TARGETS => Self::ShareTargets {
                group: key.string()?,
                value: value.map(StoredTargets::decode).transpose()?,
            },
            SHARE_TARGET => Self::ShareTarget {
                group: key.string()?,
                member: key.string()?,
                value: value.map(value::decode_target).transpose()?,
            },
            SHARE_CURRENT => Self::ShareCurrent {
                group: key.string()?,
                member: key.string()?,
                value: value.map(StoredCurrent::decode).transpose()?,
            },
            SHARE_STATE => Self::ShareState { group: key.string()?, exists: value.is_some() },
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}
