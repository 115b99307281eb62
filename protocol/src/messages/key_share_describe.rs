//! KeyShareDescribe (key 10077, v0): ours, defined by `schemas/KeyShareDescribeRequest.json` and
//! `schemas/KeyShareDescribeResponse.json`.
//!
//! Where share-partitions stand, which keys are worst off, and why one key or offset is not being delivered.

use kafka_wire_core::StrBytes;
use records::ids::{KeyHash, Offset, TopicId};

use crate::error_code::ErrorCode;

/// [`DescribedKey::measures`]: among those whose lowest record has waited longest.
pub const WORST_BY_AGE: i8 = 1;
/// [`DescribedKey::measures`]: among those with the most records that are not done.
pub const WORST_BY_BACKLOG: i8 = 2;
/// [`DescribedKey::measures`]: among those whose lowest record was delivered most often without success.
pub const WORST_BY_DELIVERIES: i8 = 4;

flexible_message! {
    /// A KeyShareDescribe request.
    pub struct KeyShareDescribeRequest {
        /// The share group, or the id under which standalone readers commit.
        group_id: StrBytes;
        /// What to describe, or null for all partitions in which the group has state.
        topics: Option<Vec<KeyShareDescribeTopic>>;
        /// How many of the worst keys to tell by each measure.
        worst_max: i32;
    }

    /// One topic of a KeyShareDescribe request.
    pub struct KeyShareDescribeTopic {
        /// The topic's name.
        topic_name: StrBytes;
        /// Its partitions.
        partitions: Vec<KeyShareDescribePartition>;
    }

    /// One partition of a KeyShareDescribe request.
    pub struct KeyShareDescribePartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// What is asked about single keys and offsets.
        questions: Vec<KeyShareQuestion>;
    }

    /// Why is this key, or this offset, not being delivered?
    pub struct KeyShareQuestion {
        /// The offset, or −1 where it is a key.
        offset: Offset, since 0 or Offset(-1);
        /// The key, where `offset` is −1.
        key_hash: KeyHash;
    }

    /// A KeyShareDescribe answer.
    pub struct KeyShareDescribeResponse {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// The topics.
        topics: Vec<KeyShareDescribedTopic>;
    }

    /// One topic of a KeyShareDescribe answer.
    pub struct KeyShareDescribedTopic {
        /// The topic's name.
        topic_name: StrBytes;
        /// Its id, zero where there is none.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareDescribedPartition>;
    }

    /// One share-partition.
    pub struct KeyShareDescribedPartition {
        /// The partition's index.
        index: i32;
        /// Why it cannot be described, if it cannot.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// 0: no order, 1: every key in order.
        order: i8;
        /// Everything below it is done; −1 where there is no state.
        start_offset: Offset, since 0 or Offset(-1);
        /// How far the log was read ahead, or −1.
        scan_offset: Offset, since 0 or Offset(-1);
        /// End of what the group may see, or −1.
        end_offset: Offset, since 0 or Offset(-1);
        /// Records at or above the start offset that are not done, or −1.
        lag: i64, since 0 or -1;
        /// Records with members.
        in_flight: i64;
        /// Keys with records with members.
        leased_keys: i64;
        /// Records that could be delivered now, about.
        ready: i64;
        /// Records that wait for a retry.
        waiting: i64;
        /// Keys, and records without a key, that are parked.
        parked: i64;
        /// Keys whose rest goes to the dead-letter topic.
        following: i64;
        /// Records that wait for the dead-letter topic.
        dead_letters: i64;
        /// Records of which only spans are kept, about.
        spilled: i64;
        /// The setting whose bound keeps further records back.
        bound: Option<StrBytes>;
        /// Why records wait for the dead-letter topic.
        dead_letter_trouble: Option<StrBytes>;
        /// Timestamp of the record at the start offset, ms since 1970; −1 where all is done or it cannot be read.
        oldest_ms: i64, since 0 or -1;
        /// The first record that is not done and that retention is about to take, or −1.
        retention_offset: Offset, since 0 or Offset(-1);
        /// When it will, ms since 1970, or −1.
        retention_ms: i64, since 0 or -1;
        /// Whether the lists rest on all that was read ahead: 1, or 0 where on its oldest part.
        complete: i8;
        /// The worst keys, each once.
        keys: Vec<KeyShareDescribedKey>;
        /// Keys of which only a span is kept, longest first.
        spans: Vec<KeyShareSpan>;
        /// Keys that go on only by hand, longest first.
        stopped: Vec<KeyShareStoppedKey>;
        /// One for each question, in order.
        answers: Vec<KeyShareAnswer>;
    }

    /// One of the worst keys.
    pub struct KeyShareDescribedKey {
        /// The key's hash.
        key_hash: KeyHash;
        /// Its lowest record that is not done.
        first_offset: Offset;
        /// Its records that are not done, as far as the log was read ahead.
        backlog: i64;
        /// How often its lowest record was delivered without success.
        deliveries: i32;
        /// By which measures it is among the worst: a sum of [`WORST_BY_AGE`], [`WORST_BY_BACKLOG`] and
        /// [`WORST_BY_DELIVERIES`].
        measures: i8;
    }

    /// A key of which only a span is kept.
    pub struct KeyShareSpan {
        /// The key's hash.
        key_hash: KeyHash;
        /// The first record of the span.
        first_offset: Offset;
        /// How many there are, about.
        records: i64;
    }

    /// A key that is parked, or whose rest goes to the dead-letter topic.
    pub struct KeyShareStoppedKey {
        /// 1, or 0 of a record without a key.
        has_key: i8;
        /// The key's hash, or 0.
        key_hash: KeyHash;
        /// The record that stopped it.
        offset: Offset;
        /// How often that one was delivered without success.
        deliveries: i32;
        /// Since when, ms since 1970.
        since_ms: i64;
        /// 1 where its later records go to the dead-letter topic, 0 where it is parked.
        follows: i8;
        /// Why: one of [`STOP_REASONS`], counted from 1.
        reason: i8;
    }

    /// Why a key or an offset is not being delivered.
    pub struct KeyShareAnswer {
        /// A [`Reason`].
        reason: i8;
        /// The member that the reason speaks of.
        member: Option<StrBytes>;
        /// The time that the reason speaks of, ms since 1970, or −1.
        time_ms: i64, since 0 or -1;
        /// The record that the reason speaks of, or −1.
        behind_offset: Offset, since 0 or Offset(-1);
        /// The bound that the reason speaks of, or what hinders the copy to the dead-letter topic.
        detail: Option<StrBytes>;
    }
}

/// What [`KeyShareStoppedKey::reason`] says, from 1 on.
pub const STOP_REASONS: [&str; 5] = [
    "rejected",
    "the delivery limit was reached",
    "its stored batch cannot be read",
    "it follows another record of its key",
    "by hand",
];

/// Why a record is not being delivered, as [`KeyShareAnswer::reason`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Reason {
    /// It goes to whoever asks next.
    Ready = 0,
    /// It is done.
    Done = 1,
    /// No record of this key that is not done was read so far.
    UnknownKey = 2,
    /// The log was not read that far; where a bound is named, reading has stopped for it.
    NotScanned = 3,
    /// In an answer to the member that is not written yet.
    Unwritten = 4,
    /// Held by the member until the time.
    Held = 5,
    /// Recalled, and waiting for the member until the time.
    Recalled = 6,
    /// Held until the time by the member, whose connections are gone.
    HeldByGone = 7,
    /// Behind a record of its key.
    Behind = 8,
    /// Behind a replay of its key.
    BehindReplay = 9,
    /// Waiting for a retry until the time.
    Waiting = 10,
    /// Waiting for the dead-letter topic since the time.
    DeadLetter = 11,
    /// Its key is parked since the time, by the record that is named.
    Parked = 12,
    /// It is ready, but a bound is hit.
    Bound = 13,
}

impl Reason {
    const ALL: [Self; 14] = [
        Self::Ready,
        Self::Done,
        Self::UnknownKey,
        Self::NotScanned,
        Self::Unwritten,
        Self::Held,
        Self::Recalled,
        Self::HeldByGone,
        Self::Behind,
        Self::BehindReplay,
        Self::Waiting,
        Self::DeadLetter,
        Self::Parked,
        Self::Bound,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// The reason with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i8) -> Option<Self> {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_come_back_as_they_were() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::from_code(-1), None);
        assert_eq!(Reason::from_code(14), None);
    }
}
