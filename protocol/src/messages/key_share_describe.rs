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
        /// Keys that are parked, wait for a dead-letter topic, or follow a dead-lettered record.
        parked: i64;
        /// Records of which only spans are kept, about.
        spilled: i64;
        /// The setting whose bound keeps further records back.
        bound: Option<StrBytes>;
        /// For how long the oldest record that is not done has been known, in ms; −1 without one.
        oldest_age_ms: i64, since 0 or -1;
        /// Bytes of memory, about.
        memory_bytes: i64;
        /// The worst keys, each once.
        keys: Vec<KeyShareDescribedKey>;
        /// One for each question, in order.
        answers: Vec<KeyShareAnswer>;
    }

    /// One of the worst keys.
    pub struct KeyShareDescribedKey {
        /// The key's hash.
        key_hash: KeyHash;
        /// Its lowest record that is not done.
        first_offset: Offset;
        /// Its records that are not done, about.
        backlog: i64;
        /// How often its lowest record was delivered without success.
        delivery_count: i16;
        /// For how long its lowest record has been known, in ms, or −1.
        age_ms: i64, since 0 or -1;
        /// Why that one is not being delivered: a [`Reason`].
        state: i8;
        /// By which measures it is among the worst: a sum of [`WORST_BY_AGE`], [`WORST_BY_BACKLOG`] and
        /// [`WORST_BY_DELIVERIES`].
        measures: i8;
    }

    /// Why a key or an offset is not being delivered.
    pub struct KeyShareAnswer {
        /// The offset; of a key its lowest record that is not done, −1 without one.
        offset: Offset, since 0 or Offset(-1);
        /// Whether `key_hash` is known: 1 or 0.
        has_key: i8;
        /// The key's hash.
        key_hash: KeyHash;
        /// A [`Reason`].
        reason: i8;
        /// The member that the reason speaks of.
        member: Option<StrBytes>;
        /// The time that the reason speaks of, ms since 1970, or −1.
        time_ms: i64, since 0 or -1;
        /// The record that the reason speaks of, or −1.
        behind_offset: Offset, since 0 or Offset(-1);
        /// How often the record was delivered without success.
        delivery_count: i16;
        /// The key's records that are not done, about.
        backlog: i64;
        /// The bound that the reason speaks of, or why a key is parked or waits for the dead-letter topic.
        detail: Option<StrBytes>;
    }
}

/// Why a record is not being delivered, as [`KeyShareAnswer::reason`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Reason {
    /// It goes to whoever asks next.
    Ready = 0,
    /// It is done.
    Done = 1,
    /// There is no such record.
    NoSuchRecord = 2,
    /// The log was not read that far.
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
    /// Waiting for the dead-letter topic.
    DeadLetter = 11,
    /// Parked since the time.
    Parked = 12,
    /// Its key follows a dead-lettered record to the dead-letter topic.
    Following = 13,
    /// A bound is hit.
    Bound = 14,
}

impl Reason {
    const ALL: [Self; 15] = [
        Self::Ready,
        Self::Done,
        Self::NoSuchRecord,
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
        Self::Following,
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
        assert_eq!(Reason::from_code(15), None);
    }
}
