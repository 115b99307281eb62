//! What goes out of a shard: replies and effects.

use bytes::Bytes;
use records::ids::{Offset, PartitionId};

use crate::command::{ConnectionId, DeliveryNumber, Ticket};
use crate::group::GroupReply;
use crate::io::{AbortedTransaction, AppendError, Appended, DeleteError, Submission};
use crate::share::ShareError;
use crate::share::admin::{AdminError, KeyAltered, ShareKeys};

/// One thing that comes out of a round.
#[derive(Clone, Debug)]
pub enum Output<S> {
    /// Work for the executor.
    Submit(Submission),
    /// The answer to a command.
    Reply(Ticket, Reply<S>),
    /// Something to do.
    Effect(Effect),
}

/// Something to do that is no answer and no I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close this connection: it did not take its answer in time. [`crate::command::Fact::AnswerLost`] follows.
    CloseConnection(ConnectionId),
    /// The group has gone: forget its configuration and number where nothing else needs them.
    GroupDeleted(std::sync::Arc<str>),
    /// A key-ordered share group reads this partition: index its keys.
    IndexKeys(PartitionId),
    /// Retention will soon take records that a share group has not done: tell the operator.
    RetentionWarning {
        /// The group.
        group: std::sync::Arc<str>,
        /// The partition.
        partition: PartitionId,
        /// The first of the records.
        offset: Offset,
        /// When, milliseconds since the epoch; the next look for old records after it.
        at_ms: i64,
        /// How long that is from now, milliseconds.
        left_ms: i64,
    },
    /// A dead-letter topic is missing: make it. Asked for again while it is.
    CreateDeadLetterTopic(std::sync::Arc<str>),
    /// Dead letters of a share group cannot be copied: tell the operator.
    DeadLettersWait {
        /// The group.
        group: std::sync::Arc<str>,
        /// The partition whose records they are.
        partition: PartitionId,
        /// The topic that the group names for them.
        topic: Option<std::sync::Arc<str>>,
        /// Why.
        trouble: crate::share::admin::DeadLetterTrouble,
    },
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub enum Reply<S> {
    /// One result a part, in order.
    Produced(Vec<Result<Appended, ProduceError>>),
    /// One result a part, in order.
    Fetched(Vec<Result<FetchedPart<S>, FetchError>>),
    /// One result a part, in order.
    Offsets(Vec<Result<FoundOffset, FetchError>>),
    /// One result a part, in order: the log start after it.
    RecordsDeleted(Vec<Result<Offset, DeleteError>>),
    /// Of a group command.
    Group(GroupReply),
    /// Of ShareFetch and KeyShareFetch.
    ShareFetched(Result<ShareFetched<S>, ShareError>),
    /// Of ShareAcknowledge and KeyShareAcknowledge.
    ShareAcknowledged(Result<ShareAcknowledged, ShareError>),
    /// Of [`crate::command::Command::DescribeShareOffsets`].
    ShareOffsets(Vec<(PartitionId, Result<ShareOffsets, ShareError>)>),
    /// Of [`crate::command::Command::DeleteShareOffsets`]: for each partition, in order, whether there was any state.
    ShareOffsetsDeleted(Result<Vec<StateDeleted>, crate::group::GroupError>),
    /// Of [`crate::command::Command::DescribeShareKeys`].
    ShareKeys(Result<Box<ShareKeys>, AdminError>),
    /// Of [`crate::command::Command::AlterShareKey`].
    KeyAltered(Result<KeyAltered, AdminError>),
    /// Of [`crate::command::Command::ResetShareOffsets`] and [`crate::command::Command::AlterShareOffsets`]: one result a
    /// part, in order: where it begins now.
    ShareOffsetsReset(Vec<(PartitionId, Result<Offset, AdminError>)>),
    /// Of [`crate::command::Command::AlterShareOffsets`]: the group may not be altered.
    ShareOffsetsRefused(crate::group::GroupError),
    /// Of [`crate::command::Command::DeleteGroup`].
    GroupDeleted(Result<(), crate::group::GroupError>),
}

/// Of a partition whose share state was to be deleted: whether there was any.
pub type StateDeleted = (PartitionId, Result<bool, ShareError>);

/// Why a part of a produce request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProduceError {
    /// No such partition here.
    #[error("unknown partition")]
    UnknownPartition,
    /// Clients may not write here.
    #[error("internal topic")]
    Internal,
    /// The log refused it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why a part of a fetch or of a question about offsets failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No such partition here.
    #[error("unknown partition")]
    UnknownPartition,
    /// The offset is not in the log.
    #[error("offset is out of range")]
    OutOfRange,
    /// The client's leader epoch is older than ours.
    #[error("leader epoch is fenced")]
    FencedEpoch,
    /// The client's leader epoch is newer than ours.
    #[error("unknown leader epoch")]
    UnknownEpoch,
    /// The disk failed or the log is damaged there.
    #[error("storage error")]
    Storage,
}

/// One partition's part of a fetch answer.
#[derive(Clone, Debug)]
pub struct FetchedPart<S> {
    /// High watermark.
    pub high_watermark: Offset,
    /// Last stable offset.
    pub last_stable: Offset,
    /// Log start.
    pub log_start: Offset,
    /// The batches; `None` where there is nothing to send.
    pub data: Option<S>,
    /// The aborted transactions that touch them; none but for readers of committed records.
    pub aborted: Vec<AbortedTransaction>,
}

/// The answer to a question about offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset; `None`: there is no such record (−1 on the wire).
    pub offset: Option<Offset>,
    /// The record's timestamp; −1 where none was asked for.
    pub timestamp: i64,
    /// The leader epoch of that offset.
    pub leader_epoch: i32,
}

/// The answer to a share fetch.
#[derive(Clone, Debug)]
pub struct ShareFetched<S> {
    /// How long a lock lasts, milliseconds.
    pub lock_ms: i32,
    /// Partitions with news, in the session's order.
    pub parts: Vec<SharePart<S>>,
}

/// One partition's part of a share answer.
#[derive(Clone, Debug)]
pub struct SharePart<S> {
    /// The partition.
    pub partition: PartitionId,
    /// Error of the fetch.
    pub error: Option<ShareError>,
    /// Outcome of the acknowledgements that rode on it (KIP-932: one for all).
    pub ack_error: Option<ShareError>,
    /// Outcome of each acknowledged range, in order (key-share only).
    pub ack_results: Vec<Result<(), ShareError>>,
    /// The record data; `None` where nothing was acquired.
    pub data: Option<S>,
    /// What the member now holds: ascending, disjoint, merged where adjacent and alike.
    pub acquired: Vec<AcquiredRange>,
    /// What the member held and must drop unworked (key-share only).
    pub recalled: Vec<RecalledRange>,
    /// Start offset of the share-partition.
    pub start_offset: Offset,
    /// End of what the group may see.
    pub high_watermark: Offset,
}

/// A range of records that a member held and does not hold any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecalledRange {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// The delivery that is void.
    pub delivery: DeliveryNumber,
}

/// A range of records that a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredRange {
    /// First offset.
    pub first: Offset,
    /// Last offset, inclusive.
    pub last: Offset,
    /// Delivery count on the wire: 1 for a first delivery.
    pub count: i16,
    /// This delivery's number.
    pub delivery: DeliveryNumber,
}

/// The answer to a share acknowledgement.
#[derive(Clone, Debug)]
pub struct ShareAcknowledged {
    /// How long a lock lasts, milliseconds.
    pub lock_ms: i32,
    /// One a partition, in the order of the request.
    pub parts: Vec<AckOutcome>,
}

/// What became of a partition's acknowledgements.
#[derive(Clone, Debug)]
pub struct AckOutcome {
    /// The partition.
    pub partition: PartitionId,
    /// One outcome for all (KIP-932).
    pub error: Option<ShareError>,
    /// One a range, in order (key-share only).
    pub results: Vec<Result<(), ShareError>>,
    /// What the member held and must drop unworked (key-share only).
    pub recalled: Vec<RecalledRange>,
    /// Start offset of the share-partition; `None` where it is not open.
    pub start_offset: Option<Offset>,
}

/// Where a share-partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOffsets {
    /// Start offset; `None` where there is no state yet.
    pub start: Option<Offset>,
    /// Leader epoch of the state.
    pub leader_epoch: i32,
    /// Records at or above the start offset that are not settled; −1 where unknown.
    pub lag: i64,
}

/// Raw bytes as a slice: what the simulation and tests use.
pub type BytesReply = Reply<Bytes>;
