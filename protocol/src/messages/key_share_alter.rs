//! KeyShareAlter (key 10091, v0): ours, defined by `schemas/KeyShareAlterRequest.json` and
//! `schemas/KeyShareAlterResponse.json`.
//!
//! The operator's hand on single keys: park, resume, skip, drop, replay, redrive; and resets of share-partitions.

use kafka_wire_core::StrBytes;
use records::ids::{KeyHash, Offset, TopicId};

use crate::error_code::ErrorCode;

flexible_message! {
    /// A KeyShareAlter request.
    pub struct KeyShareAlterRequest {
        /// The share group, or the id under which standalone readers commit.
        group_id: StrBytes;
        /// What to change.
        topics: Vec<KeyShareAlterTopic>;
    }

    /// One topic of a KeyShareAlter request.
    pub struct KeyShareAlterTopic {
        /// The topic's name.
        topic_name: StrBytes;
        /// Its partitions.
        partitions: Vec<KeyShareAlterPartition>;
    }

    /// One partition of a KeyShareAlter request.
    pub struct KeyShareAlterPartition {
        /// The partition's index as sent: possibly of no partition.
        index: i32;
        /// The changes, made in this order.
        changes: Vec<KeyShareChange>;
    }

    /// One change.
    pub struct KeyShareChange {
        /// A [`KeyShareAction`].
        action: i8;
        /// An offset whose key is meant, or −1 where `key_hash` says which; of a reset the new start offset.
        offset: Offset, since 0 or Offset(-1);
        /// The key, where `offset` is −1.
        key_hash: KeyHash;
        /// First offset of a replay.
        from_offset: Offset, since 0 or Offset(-1);
        /// Last offset of a replay or a drop, included.
        to_offset: Offset, since 0 or Offset(-1);
        /// The time to reset to, ms since 1970.
        timestamp_ms: i64, since 0 or -1;
    }

    /// A KeyShareAlter answer.
    pub struct KeyShareAlterResponse {
        /// How long the client should pause, in ms.
        throttle_time_ms: i32;
        /// What is wrong with the whole request.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// The topics, in the order of the request.
        topics: Vec<KeyShareAlteredTopic>;
    }

    /// One topic of a KeyShareAlter answer.
    pub struct KeyShareAlteredTopic {
        /// The topic's name.
        topic_name: StrBytes;
        /// Its id, zero where there is none.
        topic_id: TopicId;
        /// Its partitions.
        partitions: Vec<KeyShareAlteredPartition>;
    }

    /// One partition of a KeyShareAlter answer.
    pub struct KeyShareAlteredPartition {
        /// The partition's index.
        index: i32;
        /// Why nothing of it was changed, if so.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// One for each change, in order.
        results: Vec<KeyShareChangeResult>;
    }

    /// What became of one change.
    pub struct KeyShareChangeResult {
        /// Why it was not made, if so.
        error_code: ErrorCode;
        /// The same in words.
        error_message: Option<StrBytes>;
        /// Whether `key_hash` is known: 1, or 0.
        has_key: i8;
        /// The hash of the key that was changed, or 0.
        key_hash: KeyHash;
        /// Records that it concerned; 0 where it was so already.
        records: i64;
        /// Of a reset, where the share-partition begins now; else −1.
        start_offset: Offset, since 0 or Offset(-1);
    }
}

/// What a [`KeyShareChange`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum KeyShareAction {
    /// Stops a key.
    Park = 1,
    /// Lets a parked, following or waiting key go on.
    Resume = 2,
    /// Archives the lowest record of a key.
    Skip = 3,
    /// Archives all records of a key that nobody holds, up to an offset.
    Drop = 4,
    /// Delivers records of a key again that are done.
    Replay = 5,
    /// Delivers dead-lettered records of a key again.
    Redrive = 6,
    /// Moves the start offset to an offset.
    ResetToOffset = 7,
    /// Moves the start offset to a time.
    ResetToTime = 8,
}

/// Offset of a reset that means the end of the log.
pub const RESET_TO_END: Offset = Offset(-1);
/// Offset of a reset that means the start of the log.
pub const RESET_TO_START: Offset = Offset(-2);

impl KeyShareAction {
    const ALL: [Self; 8] = [
        Self::Park,
        Self::Resume,
        Self::Skip,
        Self::Drop,
        Self::Replay,
        Self::Redrive,
        Self::ResetToOffset,
        Self::ResetToTime,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// The action with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_come_back_as_they_were() {
        for action in KeyShareAction::ALL {
            assert_eq!(KeyShareAction::from_code(action.code()), Some(action));
        }
        assert_eq!(KeyShareAction::from_code(0), None);
        assert_eq!(KeyShareAction::from_code(9), None);
    }
}
