//! The values, each with its schema.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::TopicId;

use super::wire::{Reader, Writer};
use super::{Assignment, Malformed};

/// `OffsetCommitValue`, read from v0 to v4, written as v4 (v1 where a client set the expiry itself).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredOffset {
    pub(in crate::group) offset: i64,
    /// −1 if none.
    pub(in crate::group) leader_epoch: i32,
    pub(in crate::group) metadata: Arc<str>,
    /// Wall clock, milliseconds.
    pub(in crate::group) commit_ms: i64,
    /// Wall clock, milliseconds; only where the client asked for it (OffsetCommit v2 to v4).
    pub(in crate::group) expire_ms: Option<i64>,
    /// Zero where the topic's id was not known.
    pub(in crate::group) topic_id: TopicId,
}

impl StoredOffset {
    const VERSION: i16 = 4;
    const VERSION_WITH_EXPIRY: i16 = 1;

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        // v1 has room for 32 KiB of metadata: longer ones live as long as the broker's setting says.
        if let Some(expire_ms) = self.expire_ms
            && self.metadata.len() <= i16::MAX as usize
        {
            out.i16(Self::VERSION_WITH_EXPIRY).i64(self.offset).string(&self.metadata);
            return out.i64(self.commit_ms).i64(expire_ms).finish();
        }
        out.i16(Self::VERSION).i64(self.offset).i32(self.leader_epoch).compact_string(&self.metadata);
        out.i64(self.commit_ms);
        if self.topic_id.is_zero() {
            out.no_tags()
        } else {
            out.one_tag(&self.topic_id.0)
        };
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let version = version(&mut from, Self::VERSION)?;
        let offset = from.i64()?;
        let leader_epoch = if version >= 3 { from.i32()? } else { -1 };
        let metadata = if version >= 4 { from.compact_string()? } else { from.string()? };
        let commit_ms = from.i64()?;
        let expire_ms = if version == 1 { Some(from.i64()?).filter(|ms| *ms != -1) } else { None };
        let mut topic_id = TopicId::ZERO;
        if version >= 4
            && let Some(tag) = from.tags()?
        {
            topic_id = Reader::new(tag).topic_id()?;
        }
        Ok(Self { offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id })
    }
}

/// `GroupMetadataValue`, read from v0 to v4, written as v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredGroup {
    /// Empty for a group that never had a member.
    pub(in crate::group) protocol_type: Arc<str>,
    pub(in crate::group) generation: i32,
    pub(in crate::group) protocol: Option<Arc<str>>,
    pub(in crate::group) leader: Option<Arc<str>>,
    /// Wall clock, milliseconds: when the group entered its state; −1 before v2.
    pub(in crate::group) state_ms: i64,
    pub(in crate::group) members: Vec<StoredMember>,
}

/// A member in a [`StoredGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredMember {
    pub(in crate::group) member: Arc<str>,
    pub(in crate::group) instance: Option<Arc<str>>,
    pub(in crate::group) client_id: Arc<str>,
    pub(in crate::group) client_host: Arc<str>,
    pub(in crate::group) rebalance_timeout_ms: i32,
    pub(in crate::group) session_timeout_ms: i32,
    pub(in crate::group) subscription: Bytes,
    pub(in crate::group) assignment: Bytes,
}

impl StoredGroup {
    const VERSION: i16 = 3;
    const VERSION_MAX: i16 = 4;

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.i16(Self::VERSION).string(&self.protocol_type).i32(self.generation);
        out.nullable_string(self.protocol.as_deref())
            .nullable_string(self.leader.as_deref())
            .i64(self.state_ms);
        out.len32(self.members.len());
        for member in &self.members {
            out.string(&member.member).nullable_string(member.instance.as_deref());
            out.string(&member.client_id).string(&member.client_host);
            out.i32(member.rebalance_timeout_ms).i32(member.session_timeout_ms);
            out.bytes(&member.subscription).bytes(&member.assignment);
        }
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let version = version(&mut from, Self::VERSION_MAX)?;
        let flexible = version >= 4;
        let string = |from: &mut Reader<'_>| if flexible { from.compact_string() } else { from.string() };
        let nullable = |from: &mut Reader<'_>| {
            if flexible { from.compact_nullable_string() } else { from.nullable_string() }
        };
        let blob = |from: &mut Reader<'_>| if flexible { from.compact_bytes() } else { from.bytes() };

        let protocol_type = string(&mut from)?;
        let generation = from.i32()?;
        let protocol = nullable(&mut from)?;
        let leader = nullable(&mut from)?;
        let state_ms = if version >= 2 { from.i64()? } else { -1 };
        let count = if flexible { from.compact_len()? } else { from.len32()? };
        let mut members = Vec::new();
        for _ in 0..count {
            let member = string(&mut from)?;
            let instance = if version >= 3 { nullable(&mut from)? } else { None };
            let client_id = string(&mut from)?;
            let client_host = string(&mut from)?;
            let rebalance_timeout_ms = if version >= 1 { from.i32()? } else { -1 };
            let session_timeout_ms = from.i32()?;
            let subscription = blob(&mut from)?;
            let assignment = blob(&mut from)?;
            if flexible {
                from.tags()?;
            }
            members.push(StoredMember {
                member,
                instance,
                client_id,
                client_host,
                // Old records have one timeout for both.
                rebalance_timeout_ms: if rebalance_timeout_ms == -1 {
                    session_timeout_ms
                } else {
                    rebalance_timeout_ms
                },
                session_timeout_ms,
                subscription,
                assignment,
            });
        }
        if flexible {
            from.tags()?;
        }
        Ok(Self { protocol_type, generation, protocol, leader, state_ms, members })
    }
}

/// `ShareGroupMemberMetadataValue` v0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredShareMember {
    pub(in crate::group) rack: Option<Arc<str>>,
    pub(in crate::group) client_id: Arc<str>,
    pub(in crate::group) client_host: Arc<str>,
    pub(in crate::group) topics: BTreeSet<Arc<str>>,
}

impl StoredShareMember {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.i16(0).compact_nullable_string(self.rack.as_deref());
        out.compact_string(&self.client_id).compact_string(&self.client_host).compact_len(self.topics.len());
        for topic in &self.topics {
            out.compact_string(topic);
        }
        out.no_tags().finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        version(&mut from, 0)?;
        let rack = from.compact_nullable_string()?;
        let client_id = from.compact_string()?;
        let client_host = from.compact_string()?;
        let mut topics = BTreeSet::new();
        for _ in 0..from.compact_len()? {
            topics.insert(from.compact_string()?);
        }
        from.tags()?;
        Ok(Self { rack, client_id, client_host, topics })
    }
}

/// `ShareGroupMetadataValue` v0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredShareGroup {
    pub(in crate::group) epoch: i32,
    /// Of the subscribed topics: another value than now means that they changed.
    pub(in crate::group) metadata_hash: i64,
}

impl StoredShareGroup {
    pub(super) fn encode(&self) -> Bytes {
        Writer::default().i16(0).i32(self.epoch).i64(self.metadata_hash).no_tags().finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        version(&mut from, 0)?;
        let value = Self { epoch: from.i32()?, metadata_hash: from.i64()? };
        from.tags()?;
        Ok(value)
    }
}

/// `ShareGroupTargetAssignmentMetadataValue` v0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredTargets {
    pub(in crate::group) epoch: i32,
    /// Wall clock, milliseconds: when it was computed; 0 where it was not.
    pub(in crate::group) computed_ms: i64,
}

impl StoredTargets {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.i16(0).i32(self.epoch);
        if self.computed_ms == 0 {
            out.no_tags()
        } else {
            out.one_tag(&self.computed_ms.to_be_bytes())
        };
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        version(&mut from, 0)?;
        let epoch = from.i32()?;
        let computed_ms = match from.tags()? {
            Some(tag) => Reader::new(tag).i64()?,
            None => 0,
        };
        Ok(Self { epoch, computed_ms })
    }
}

/// `ShareGroupCurrentMemberAssignmentValue` v0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct StoredCurrent {
    pub(in crate::group) epoch: i32,
    pub(in crate::group) previous_epoch: i32,
    pub(in crate::group) assignment: Assignment,
}

impl StoredCurrent {
    /// `MemberState.STABLE`, the only state that a share member has.
    const STABLE: i8 = 0;

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.i16(0).i32(self.epoch).i32(self.previous_epoch).i8(Self::STABLE);
        write_assignment(&mut out, &self.assignment);
        out.no_tags().finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        version(&mut from, 0)?;
        let epoch = from.i32()?;
        let previous_epoch = from.i32()?;
        from.i8()?;
        let assignment = read_assignment(&mut from)?;
        from.tags()?;
        Ok(Self { epoch, previous_epoch, assignment })
    }
}

/// `ShareGroupTargetAssignmentMemberValue` v0.
pub(super) fn encode_target(assignment: &Assignment) -> Bytes {
    let mut out = Writer::default();
    out.i16(0);
    write_assignment(&mut out, assignment);
    out.no_tags().finish()
}

pub(super) fn decode_target(bytes: &[u8]) -> Result<Assignment, Malformed> {
    let mut from = Reader::new(bytes);
    version(&mut from, 0)?;
    let assignment = read_assignment(&mut from)?;
    from.tags()?;
    Ok(assignment)
}

/// The schema version in front of a value, at most `max`.
fn version(from: &mut Reader<'_>, max: i16) -> Result<i16, Malformed> {
    let version = from.i16()?;
    if (0..=max).contains(&version) { Ok(version) } else { Err(Malformed) }
}

fn write_assignment(out: &mut Writer, assignment: &Assignment) {
    out.compact_len(assignment.len());
    for (topic, partitions) in assignment {
        out.topic_id(*topic).compact_len(partitions.len());
        for partition in partitions {
            out.i32(*partition);
        }
        out.no_tags();
    }
}

fn read_assignment(from: &mut Reader<'_>) -> Result<Assignment, Malformed> {
    let mut assignment = Assignment::new();
    for _ in 0..from.compact_len()? {
        let topic = from.topic_id()?;
        let mut partitions = Vec::new();
        for _ in 0..from.compact_len()? {
            partitions.push(from.i32()?);
        }
        from.tags()?;
        assignment.insert(topic, partitions);
    }
    Ok(assignment)
}
