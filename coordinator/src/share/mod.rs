//! Share groups: settings, errors and (in the files beside) the share-partition and the machine that owns them all.
//!
//! [`machine::ShareMachine`] owns every share-partition, session, member and parked fetch of a shard. In: commands,
//! completions, facts, time. Out: submissions, replies, effects. It answers nothing before what the answer rests on
//! is appended.

pub(crate) mod acknowledge;
pub(crate) mod acquire;
pub mod admin;
pub(crate) mod alter;
pub(crate) mod codec;
pub(crate) mod event;
pub(crate) mod expire;
pub(crate) mod holders;
pub(crate) mod homes;
pub(crate) mod key_queue;
pub(crate) mod key_set;
pub mod limits;
pub(crate) mod look;
pub mod machine;
pub(crate) mod member;
pub mod observe;
mod offset_set;
pub(crate) mod page_table;
pub(crate) mod paging;
pub(crate) mod partition;
pub(crate) mod poison;
pub(crate) mod ranges;
pub(crate) mod recorder;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod resting;
pub(crate) mod retry;
pub(crate) mod session;
pub(crate) mod settled;
pub(crate) mod slots;
mod snapshot;
pub(crate) mod spans;
pub(crate) mod spill;
pub(crate) mod stops;
pub(crate) mod window;

pub use limits::{ShareLimits, WindowLimits};
pub use machine::{LeftBy, ShareCommand, ShareGroupView, ShareKeyView, ShareMachine, SharePartitionView};
pub use observe::Bound;
pub use ranges::RANGES_MAX;

/// In what order a share group's records go out (`sluice.share.order`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareOrder {
    /// As Apache Kafka: no order.
    #[default]
    None,
    /// Every key in order, at one member at a time.
    Key,
}

/// Which member takes a ready key of a key-ordered group (`sluice.share.assignment`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareAssignment {
    /// Any that is free.
    #[default]
    Dynamic,
    /// Its home among the live members; it moves when they change and it has nothing in flight.
    Sticky,
}

/// Where a new share-partition starts (`share.auto.offset.reset`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareReset {
    /// At the end of the log.
    #[default]
    Latest,
    /// At its start.
    Earliest,
    /// At the first record not older than this many milliseconds.
    ByDuration(i64),
}

/// What happens to a record that reaches the delivery limit, is rejected or cannot be read (`sluice.share.poison`).
///
/// A record without a key, and every record of a group without order, stands for itself alone: following is then as
/// dead-lettering, and what is parked is that record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poison {
    /// Archive it, go on with the key.
    #[default]
    Skip,
    /// Copy it to the group's dead-letter topic, archive it when that is synced, then go on with the key.
    DeadLetter,
    /// As dead-letter, and the rest of the key goes there too, until someone resumes it.
    Follow,
    /// Stop the key alone, until someone resumes, skips or drops it.
    Park,
}

/// A share group's settings: `share.*` mean what they mean in Apache Kafka 4.4 (`GroupConfig`), `sluice.*` are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// `sluice.share.order`.
    pub order: ShareOrder,
    /// `sluice.share.assignment`.
    pub assignment: ShareAssignment,
    /// `share.auto.offset.reset`.
    pub reset: ShareReset,
    /// `share.isolation.level` is `read_committed`.
    pub read_committed: bool,
    /// `share.record.lock.duration.ms`: 15,000 to 60,000.
    pub lock_ms: i64,
    /// `share.delivery.count.limit`: 2 to 10.
    pub delivery_count_max: i16,
    /// `share.partition.max.record.locks`: 100 to 4,000.
    pub record_locks_max: u32,
    /// `share.renew.acknowledge.enable`.
    pub renew: bool,
    /// `share.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: i32,
    /// `share.session.timeout.ms`.
    pub session_timeout_ms: i32,
    /// `sluice.share.key.max.inflight`: records of a key that may be in flight.
    pub key_inflight_max: u32,
    /// `sluice.share.poison`.
    pub poison: Poison,
    /// `errors.deadletterqueue.topic.name` (KIP-1191); `None`: none is named.
    pub dead_letter_topic: Option<std::sync::Arc<str>>,
    /// `errors.deadletterqueue.copy.record.enable`: dead letters carry key and value of their record.
    pub dead_letter_copy: bool,
    /// `sluice.share.retry.backoff.ms`: 0 is no wait.
    pub backoff_ms: i64,
    /// `sluice.share.retry.backoff.max.ms`.
    pub backoff_max_ms: i64,
    /// `sluice.share.disconnect.grace.ms`; `None`: one and a half heartbeat intervals.
    pub disconnect_grace_ms: Option<i64>,
    /// `sluice.share.hold.target.ms`: 0 turns the hold bounds off.
    pub hold_target_ms: i64,
    /// `sluice.share.window.bytes`.
    pub window_bytes_max: u64,
    /// `sluice.share.stuck.keys.max`: keys that wait for a retry or are parked.
    pub stuck_keys_max: u64,
    /// `sluice.share.sync.ms`.
    pub sync_ms: i64,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            order: ShareOrder::None,
            assignment: ShareAssignment::Dynamic,
            reset: ShareReset::Latest,
            read_committed: false,
            lock_ms: 30_000,
            delivery_count_max: 5,
            record_locks_max: 2_000,
            renew: true,
            heartbeat_interval_ms: 5_000,
            session_timeout_ms: 45_000,
            key_inflight_max: 1,
            poison: Poison::Skip,
            dead_letter_topic: None,
            dead_letter_copy: false,
            backoff_ms: 0,
            backoff_max_ms: 60_000,
            disconnect_grace_ms: None,
            hold_target_ms: 100,
            window_bytes_max: 16 << 20,
            stuck_keys_max: 1_000_000,
            sync_ms: 100,
        }
    }
}

impl ShareConfig {
    /// How long the leases of a member without a connection stay with it.
    #[must_use]
    pub fn grace_ms(&self) -> i64 {
        self.disconnect_grace_ms.unwrap_or(i64::from(self.heartbeat_interval_ms) * 3 / 2)
    }
}

/// What happened to a share-partition's records since it came into memory: what is stored, and what comes of reading stored
/// state back does not count again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareCounters {
    /// Records handed out.
    pub granted: u64,
    /// Records accepted.
    pub accepted: u64,
    /// Records that ended otherwise: the sum of the six below.
    pub archived: u64,
    /// Rejected.
    pub rejected: u64,
    /// At the delivery limit.
    pub limit_reached: u64,
    /// Gaps that were acknowledged (order `none`), or that compaction left.
    pub gaps: u64,
    /// Copied to the dead-letter topic.
    pub dead_lettered: u64,
    /// Skipped or dropped by an operator.
    pub skipped: u64,
    /// Skipped, since their stored batch cannot be read.
    pub corrupt_skipped: u64,
    /// Records whose stored batch was found to be unreadable, whatever became of them.
    pub corrupt: u64,
    /// Records recalled from their holder.
    pub recalled: u64,
    /// Acknowledgements of recalled records, which changed nothing.
    pub acknowledged_recalled: u64,
    /// Gap acknowledgements of records that exist, taken as releases.
    pub gap_releases: u64,
    /// Locks that ran out.
    pub locks_expired: u64,
    /// Unsettled records that left the log: lost to retention, or deleted.
    pub left_log: u64,
}

impl ShareCounters {
    /// Adds what another counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.accepted += other.accepted;
        self.archived += other.archived;
        self.rejected += other.rejected;
        self.limit_reached += other.limit_reached;
        self.gaps += other.gaps;
        self.dead_lettered += other.dead_lettered;
        self.skipped += other.skipped;
        self.corrupt_skipped += other.corrupt_skipped;
        self.corrupt += other.corrupt;
        self.recalled += other.recalled;
        self.acknowledged_recalled += other.acknowledged_recalled;
        self.gap_releases += other.gap_releases;
        self.locks_expired += other.locks_expired;
        self.left_log += other.left_log;
    }

    pub(crate) fn settled(&mut self, how: event::Settlement) {
        let counter = match how {
            event::Settlement::Accepted => return self.accepted += 1,
            event::Settlement::Corrupt => &mut self.corrupt_skipped,
            event::Settlement::Rejected => &mut self.rejected,
            event::Settlement::LimitReached => &mut self.limit_reached,
            event::Settlement::Gap => &mut self.gaps,
            event::Settlement::DeadLettered => &mut self.dead_lettered,
            event::Settlement::Skipped => &mut self.skipped,
        };
        *counter += 1;
        self.archived += 1;
    }
}

/// What a share request is told when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The partition is not here (UNKNOWN_TOPIC_OR_PARTITION).
    #[error("unknown partition")]
    UnknownPartition,
    /// The topic id is not known (UNKNOWN_TOPIC_ID).
    #[error("unknown topic id")]
    UnknownTopicId,
    /// The request is malformed (INVALID_REQUEST).
    #[error("invalid request")]
    InvalidRequest,
    /// The member does not hold what it acknowledges (INVALID_RECORD_STATE).
    #[error("the member does not hold this record")]
    InvalidRecordState,
    /// There is no such session (SHARE_SESSION_NOT_FOUND).
    #[error("unknown share session")]
    SessionNotFound,
    /// The session's epoch is another one (INVALID_SHARE_SESSION_EPOCH).
    #[error("invalid share session epoch")]
    InvalidSessionEpoch,
    /// There are too many sessions (SHARE_SESSION_LIMIT_REACHED).
    #[error("too many share sessions")]
    SessionLimit,
    /// Another reader has a range of this one now (FENCED_MEMBER_EPOCH).
    #[error("another reader has these key ranges now; begin a new session")]
    Fenced,
    /// The group is used in another way (NON_EMPTY_GROUP).
    #[error("the group id is used by members, or by standalone readers: one way at a time")]
    NonEmptyGroup,
    /// State could not be written or read (KAFKA_STORAGE_ERROR, COORDINATOR_NOT_AVAILABLE): try again.
    #[error("share state is not available now")]
    Unavailable,
}
