//! What the group coordinator can be told.

use std::sync::Arc;

use bytes::Bytes;

/// A command for the group coordinator. `group` names the partition of `__consumer_offsets` that serves it.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// JoinGroup (classic protocol).
    Join(JoinGroup),
    /// SyncGroup.
    Sync(SyncGroup),
    /// Heartbeat.
    Heartbeat {
        /// The group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
        /// Its generation.
        generation: i32,
        /// Static membership (KIP-345).
        instance: Option<Arc<str>>,
    },
    /// LeaveGroup; members by id or by instance.
    Leave {
        /// The group.
        group: Arc<str>,
        /// Who leaves: member id (may be empty) and instance id.
        members: Vec<(Arc<str>, Option<Arc<str>>)>,
    },
    /// OffsetCommit.
    Commit(OffsetCommit),
    /// OffsetFetch.
    FetchOffsets {
        /// The group.
        group: Arc<str>,
        /// Checked where given (v9): member id and epoch.
        member: Option<(Arc<str>, i32)>,
        /// Topic and partition; `None`: all that are committed.
        partitions: Option<Vec<(Arc<str>, i32)>>,
    },
    /// OffsetDelete.
    DeleteOffsets {
        /// The group.
        group: Arc<str>,
        /// Topic and partition.
        partitions: Vec<(Arc<str>, i32)>,
    },
    /// DescribeGroups (classic), one group.
    Describe {
        /// The group.
        group: Arc<str>,
    },
    /// ListGroups on every coordinator partition; filters are applied by the handler.
    List,
    /// ShareGroupHeartbeat (KIP-932).
    ShareHeartbeat(ShareHeartbeat),
    /// ShareGroupDescribe, one group.
    DescribeShare {
        /// The group.
        group: Arc<str>,
    },
}

/// JoinGroup (`JoinGroupRequest`).
#[derive(Clone, Debug)]
pub struct JoinGroup {
    /// The group.
    pub group: Arc<str>,
    /// Empty for a new member.
    pub member: Arc<str>,
    /// Static membership.
    pub instance: Option<Arc<str>>,
    /// From the request's header, for the member id that is handed out.
    pub client_id: Arc<str>,
    /// Peer address, as `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// Milliseconds.
    pub session_timeout_ms: i32,
    /// Milliseconds.
    pub rebalance_timeout_ms: i32,
    /// `consumer`, `connect`, …
    pub protocol_type: Arc<str>,
    /// Name and metadata, in order of preference.
    pub protocols: Vec<(Arc<str>, Bytes)>,
    /// From v4 on a new member must come back with the id it was given (KIP-394).
    pub requires_known_member: bool,
    /// v9: the answer may say `skip_assignment` (KIP-814).
    pub supports_skip_assignment: bool,
    /// Why it joins (KIP-800).
    pub reason: Option<Arc<str>>,
    /// 16 random bytes for a member id, drawn by the caller.
    pub random: [u8; 16],
}

/// SyncGroup (`SyncGroupRequest`).
#[derive(Clone, Debug)]
pub struct SyncGroup {
    /// The group.
    pub group: Arc<str>,
    /// The member.
    pub member: Arc<str>,
    /// Its generation.
    pub generation: i32,
    /// Static membership.
    pub instance: Option<Arc<str>>,
    /// Required from v5 on.
    pub protocol_type: Option<Arc<str>>,
    /// Required from v5 on.
    pub protocol_name: Option<Arc<str>>,
    /// Whether the two above must be there (v5).
    pub requires_protocol: bool,
    /// The leader's word: member and assignment.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// OffsetCommit (`OffsetCommitRequest`). Partitions that do not exist are answered by the handler.
#[derive(Clone, Debug)]
pub struct OffsetCommit {
    /// The group.
    pub group: Arc<str>,
    /// Empty for a commit without membership.
    pub member: Arc<str>,
    /// Generation, or −1 without membership.
    pub generation: i32,
    /// Static membership.
    pub instance: Option<Arc<str>>,
    /// From v9 on an unknown group is GROUP_ID_NOT_FOUND where it was ILLEGAL_GENERATION.
    pub tells_missing_group: bool,
    /// How long the offsets live, milliseconds (v2 to v4 only); `None`: `offsets.retention.minutes`.
    pub retention_ms: Option<i64>,
    /// What is committed.
    pub offsets: Vec<CommittedPart>,
}

/// One committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedPart {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub partition: i32,
    /// Next offset to read; −1: nothing committed.
    pub offset: i64,
    /// Leader epoch, −1 if none.
    pub leader_epoch: i32,
    /// Free text of the client.
    pub metadata: Arc<str>,
}

/// ShareGroupHeartbeat (`ShareGroupHeartbeatRequest` v1).
#[derive(Clone, Debug)]
pub struct ShareHeartbeat {
    /// The group.
    pub group: Arc<str>,
    /// The member id that the client made.
    pub member: Arc<str>,
    /// 0 joins, −1 leaves, else its epoch.
    pub epoch: i32,
    /// Rack, if it changed.
    pub rack: Option<Arc<str>>,
    /// Topic names, if they changed.
    pub topics: Option<Vec<Arc<str>>>,
    /// From the request's header.
    pub client_id: Arc<str>,
    /// Peer address.
    pub client_host: Arc<str>,
}
