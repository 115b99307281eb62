//! What the share machine can be told to do.

use std::sync::Arc;

use records::ids::PartitionId;

use crate::command::{ShareAcknowledge, ShareFetch, StandaloneCommit, StandaloneFetch};
use crate::share::admin::{AlterKey, DescribeKeys, ResetOffsets};

/// Commands that the share machine serves.
#[derive(Clone, Debug)]
pub enum ShareCommand {
    /// ShareFetch or KeyShareFetch; → [`crate::reply::Reply::ShareFetched`].
    Fetch(ShareFetch),
    /// ShareAcknowledge or KeyShareAcknowledge; → [`crate::reply::Reply::ShareAcknowledged`].
    Acknowledge(ShareAcknowledge),
    /// KeyShareFetch of a reader that is no member; → [`crate::reply::Reply::ShareFetched`]. The caller has seen to it that
    /// the group has no members.
    StandaloneFetch(StandaloneFetch),
    /// KeyShareAcknowledge of a reader that is no member; → [`crate::reply::Reply::ShareAcknowledged`].
    StandaloneAcknowledge(ShareAcknowledge),
    /// KeyShareCommit; → [`crate::reply::Reply::ShareAcknowledged`], without results.
    StandaloneCommit(StandaloneCommit),
    /// DescribeShareGroupOffsets; → [`crate::reply::Reply::ShareOffsets`].
    DescribeOffsets {
        /// The group.
        group: Arc<str>,
        /// The partitions asked for; `None`: all that have state.
        partitions: Option<Vec<PartitionId>>,
    },
    /// DeleteShareGroupOffsets; the caller has seen to it that the group has no members. →
    /// [`crate::reply::Reply::ShareOffsetsDeleted`].
    DeleteOffsets {
        /// The group.
        group: Arc<str>,
        /// The partitions.
        partitions: Vec<PartitionId>,
    },
    /// KeyShareDescribe; → [`crate::reply::Reply::ShareKeys`].
    DescribeKeys(DescribeKeys),
    /// KeyShareAlter; → [`crate::reply::Reply::KeyAltered`].
    AlterKey(AlterKey),
    /// AlterShareGroupOffsets, KeyShareAlter; → [`crate::reply::Reply::ShareOffsetsReset`].
    ResetOffsets(ResetOffsets),
    /// Delete what standalone readers left under an id that is no group's. → [`crate::reply::Reply::GroupDeleted`], with
    /// GROUP_ID_NOT_FOUND where there is nothing.
    DeleteStates {
        /// The id.
        group: Arc<str>,
    },
    /// Delete a group's share state; the caller has seen to it that it has no members. →
    /// [`crate::reply::Reply::GroupDeleted`], and [`crate::reply::Effect::GroupDeleted`] where it succeeded.
    DeleteGroup {
        /// The group.
        group: Arc<str>,
    },
}

/// How a member left its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBy {
    /// Its own word (heartbeat with epoch −1): it may still settle for a second.
    Heartbeat,
    /// It was not heard of for its session timeout.
    SessionTimeout,
}
