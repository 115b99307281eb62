//! What the group coordinator answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::TopicId;

use super::command::{CommittedPart, GroupCommand};

/// The answer to a group command.
#[derive(Clone, Debug)]
pub enum GroupReply {
    /// Of JoinGroup.
    Joined(Result<Joined, JoinError>),
    /// Of SyncGroup.
    Synced(Result<Synced, GroupError>),
    /// Of Heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// Of LeaveGroup: one outcome a member; the outer one for the whole group.
    Left(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// Of OffsetCommit: one outcome an offset, in order.
    Committed(Vec<Result<(), GroupError>>),
    /// Of OffsetFetch: what is committed, in the order asked (offset −1 where nothing is).
    Offsets(Result<Vec<CommittedPart>, GroupError>),
    /// Of OffsetDelete: one outcome a partition.
    OffsetsDeleted(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// Of DescribeGroups. GROUP_ID_NOT_FOUND: before v6 the handler says state `Dead` and no error instead.
    Described(Result<DescribedGroup, GroupError>),
    /// Of ListGroups.
    Listed(Result<Vec<ListedGroup>, GroupError>),
    /// Of ShareGroupHeartbeat.
    ShareHeartbeat(Result<ShareHeartbeatReply, GroupError>),
    /// Of ShareGroupDescribe.
    ShareDescribed(Result<DescribedShareGroup, GroupError>),
}

impl GroupReply {
    /// The answer to a command that was not even looked at.
    #[must_use]
    pub fn refused(command: &GroupCommand, error: GroupError) -> Self {
        match command {
            GroupCommand::Join(join) => Self::Joined(Err(JoinError { error, member: join.member.clone() })),
            GroupCommand::Sync(_) => Self::Synced(Err(error)),
            // A member need not hear of a restart (`GroupCoordinatorService.heartbeat`).
            GroupCommand::Heartbeat { .. } if error == GroupError::Loading => Self::Heartbeat(Ok(())),
            GroupCommand::Heartbeat { .. } => Self::Heartbeat(Err(error)),
            GroupCommand::Leave { .. } => Self::Left(Err(error)),
            GroupCommand::Commit(commit) => Self::Committed(vec![Err(error); commit.offsets.len()]),
            GroupCommand::FetchOffsets { .. } => Self::Offsets(Err(error)),
            GroupCommand::DeleteOffsets { .. } => Self::OffsetsDeleted(Err(error)),
            GroupCommand::Describe { .. } => Self::Described(Err(error)),
            GroupCommand::List => Self::Listed(Err(error)),
            GroupCommand::ShareHeartbeat(_) => Self::ShareHeartbeat(Err(error)),
            GroupCommand::DescribeShare { .. } => Self::ShareDescribed(Err(error)),
        }
    }
}

/// Why a group command failed; each maps to one Kafka error code of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// INVALID_GROUP_ID.
    #[error("invalid group id")]
    InvalidGroupId,
    /// COORDINATOR_LOAD_IN_PROGRESS.
    #[error("coordinator is loading")]
    Loading,
    /// COORDINATOR_NOT_AVAILABLE: the log could not be written; try again.
    #[error("coordinator is not available")]
    NotAvailable,
    /// NOT_COORDINATOR.
    #[error("not the coordinator")]
    NotCoordinator,
    /// UNKNOWN_MEMBER_ID.
    #[error("unknown member id")]
    UnknownMember,
    /// ILLEGAL_GENERATION.
    #[error("illegal generation")]
    IllegalGeneration,
    /// INCONSISTENT_GROUP_PROTOCOL.
    #[error("inconsistent group protocol")]
    InconsistentProtocol,
    /// INVALID_SESSION_TIMEOUT.
    #[error("session timeout is out of bounds")]
    InvalidSessionTimeout,
    /// REBALANCE_IN_PROGRESS.
    #[error("rebalance in progress")]
    RebalanceInProgress,
    /// GROUP_MAX_SIZE_REACHED.
    #[error("group is full")]
    GroupMaxSize,
    /// MEMBER_ID_REQUIRED.
    #[error("member id required")]
    MemberIdRequired,
    /// FENCED_INSTANCE_ID.
    #[error("instance id is fenced")]
    FencedInstance,
    /// FENCED_MEMBER_EPOCH.
    #[error("member epoch is fenced")]
    FencedMemberEpoch,
    /// STALE_MEMBER_EPOCH.
    #[error("member epoch is stale")]
    StaleMemberEpoch,
    /// GROUP_ID_NOT_FOUND.
    #[error("group id not found")]
    GroupNotFound,
    /// NON_EMPTY_GROUP.
    #[error("group is not empty")]
    NonEmptyGroup,
    /// GROUP_SUBSCRIBED_TO_TOPIC.
    #[error("group is subscribed to the topic")]
    SubscribedToTopic,
    /// OFFSET_METADATA_TOO_LARGE.
    #[error("offset metadata is too large")]
    MetadataTooLarge,
    /// INVALID_REQUEST.
    #[error("invalid request")]
    InvalidRequest,
}

/// A refused join: v4+ learns its member id from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinError {
    /// Why.
    pub error: GroupError,
    /// The id to come back with, or the one it sent.
    pub member: Arc<str>,
}

/// A completed join.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The new generation.
    pub generation: i32,
    /// Protocol type of the group.
    pub protocol_type: Arc<str>,
    /// The protocol that was voted for.
    pub protocol: Arc<str>,
    /// Who assigns.
    pub leader: Arc<str>,
    /// This member.
    pub member: Arc<str>,
    /// The leader need not assign anew (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: member, instance, metadata.
    pub members: Vec<(Arc<str>, Option<Arc<str>>, Bytes)>,
}

/// A completed sync.
#[derive(Clone, Debug)]
pub struct Synced {
    /// Protocol type of the group.
    pub protocol_type: Arc<str>,
    /// The protocol that was voted for.
    pub protocol: Arc<str>,
    /// The leader's bytes for this member; empty where it named none.
    pub assignment: Bytes,
}

/// A classic group, described.
#[derive(Clone, Debug)]
pub struct DescribedGroup {
    /// `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Empty`.
    pub state: &'static str,
    /// Protocol type.
    pub protocol_type: Arc<str>,
    /// The protocol in use, empty unless stable.
    pub protocol: Arc<str>,
    /// The members.
    pub members: Vec<DescribedMember>,
}

/// A member of a classic group.
#[derive(Clone, Debug)]
pub struct DescribedMember {
    /// Member id.
    pub member: Arc<str>,
    /// Instance id.
    pub instance: Option<Arc<str>>,
    /// Client id.
    pub client_id: Arc<str>,
    /// Peer address.
    pub client_host: Arc<str>,
    /// Its metadata for the protocol in use.
    pub metadata: Bytes,
    /// Its assignment.
    pub assignment: Bytes,
}

/// A group in a listing.
#[derive(Clone, Debug)]
pub struct ListedGroup {
    /// Group id.
    pub group: Arc<str>,
    /// Protocol type.
    pub protocol_type: Arc<str>,
    /// State as ListGroups shows it.
    pub state: &'static str,
    /// `classic` or `share` (KIP-848 adds more).
    pub kind: &'static str,
}

/// The answer to a share heartbeat.
#[derive(Clone, Debug)]
pub struct ShareHeartbeatReply {
    /// The member.
    pub member: Arc<str>,
    /// Its epoch now.
    pub epoch: i32,
    /// Milliseconds until the next one.
    pub heartbeat_interval_ms: i32,
    /// Its assignment, where it changed.
    pub assignment: Option<BTreeMap<TopicId, Vec<i32>>>,
}

/// A share group, described.
#[derive(Clone, Debug)]
pub struct DescribedShareGroup {
    /// `Empty` or `Stable`.
    pub state: &'static str,
    /// Group epoch.
    pub epoch: i32,
    /// Assignment epoch.
    pub assignment_epoch: i32,
    /// `simple`, or ours.
    pub assignor: &'static str,
    /// The members.
    pub members: Vec<DescribedShareMember>,
}

/// A member of a share group.
#[derive(Clone, Debug)]
pub struct DescribedShareMember {
    /// Member id.
    pub member: Arc<str>,
    /// Rack.
    pub rack: Option<Arc<str>>,
    /// Its epoch.
    pub epoch: i32,
    /// Client id.
    pub client_id: Arc<str>,
    /// Peer address.
    pub client_host: Arc<str>,
    /// Topic names it subscribes to.
    pub topics: Vec<Arc<str>>,
    /// What it is assigned: topic id, name, partitions.
    pub assignment: Vec<(TopicId, Arc<str>, Vec<i32>)>,
}
