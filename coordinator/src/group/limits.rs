//! The broker's settings for groups, as plain numbers.

/// Settings of the group coordinator, under Kafka's names and with Kafka's defaults (`GroupCoordinatorConfig`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one classic group.
    pub members_max: usize,
    /// `group.share.max.size`: members of one share group.
    pub share_members_max: usize,
    /// `offset.metadata.max.bytes`, counted as Kafka counts it: in UTF-16 units.
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_ms: i64,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            members_max: i32::MAX as usize,
            share_members_max: 200,
            offset_metadata_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_retention_check_ms: 600_000,
        }
    }
}

/// How long a new member may wait for its first generation: it cannot send heartbeats before
/// (`classicGroupNewMemberJoinTimeoutMs`).
pub(super) const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1_000;

/// Ids that a group has handed out and nobody has used yet. A client needs one; this many are no clients.
pub(super) const PENDING_IDS_MAX: usize = 10_000;

/// The longest share session that a group may be configured to have: what a member gets after a restart, until its
/// first heartbeat.
pub(super) const SHARE_SESSION_TIMEOUT_MS_MAX: i64 = 60_000;

/// Names (of groups, members, protocols, topics) are stored behind a 16-bit length; a member id is a name and a
/// UUID more.
pub(super) const NAME_BYTES_MAX: usize = i16::MAX as usize - MEMBER_ID_SUFFIX_BYTES;

/// A hyphen and a UUID in text.
pub(super) const MEMBER_ID_SUFFIX_BYTES: usize = 37;

/// A batch of the offsets topic is at most this large when inflated: more is damage, not data.
pub(super) const REPLAY_BATCH_BYTES_MAX: usize = 128 << 20;
