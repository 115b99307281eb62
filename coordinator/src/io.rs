//! Submissions and completions: what executors serve.
//!
//! An executor serves the submissions of one partition in the order in which they were made and answers each with
//! exactly one [`Completion`]. A sync is taken in its place in that order and ends whenever the disk is done: what
//! was submitted behind it does not wait. It may share one sync among many. `S` is the executor's own way to name bytes of a
//! log (a file range, a buffer): the shard passes it on and looks only at its length.

use std::sync::Arc;

use bytes::Bytes;
use records::ids::{KeyHash, Offset, PartitionId};

use crate::command::{BatchKeys, DeleteTo, OffsetQuery};

/// Records that one [`Submission::FindKey`] tells.
pub const KEY_FOUND_MAX: u32 = 1024;
/// Bytes of a page of share state.
pub const PAGE_BYTES_MAX: usize = 64 * 1024;
/// Pages that one [`Submission::WriteSnapshot`] adds.
pub const PAGES_WRITTEN_MAX: usize = 4096;
/// Pages that one [`Submission::ReadPages`] reads.
pub const PAGES_READ_MAX: usize = 256;

/// Names a submission until its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Bytes of a log, as the executor names them.
pub trait Slice: Clone + std::fmt::Debug {
    /// How many bytes.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Slice for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }
}

/// A share-partition's state files: numeric group id and partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareStateId {
    /// The group's number (group ids are arbitrary strings, file names are not).
    pub group: u64,
    /// The partition in whose directory the state lives.
    pub partition: PartitionId,
}

/// Who made a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client: sequence numbers are checked.
    Client,
    /// The coordinator itself.
    Coordinator,
}

/// Work for the executor.
#[derive(Clone, Debug)]
pub enum Submission {
    /// Append one batch; → [`Completion::Appended`].
    Append {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// One whole batch, base offset not yet set.
        batch: Bytes,
        /// Who made it.
        origin: Origin,
        /// Its key hashes, where they are known already: the log's key index needs them.
        keys: Option<BatchKeys>,
    },
    /// Make everything appended to this partition (log and share state) so far durable; → [`Completion::Synced`].
    Sync {
        /// Names it.
        op: OpId,
        /// Which.
        partition: PartitionId,
    },
    /// The same whatever the topic's flush policy says, and not shared: something is given up for what was appended; →
    /// [`Completion::Synced`].
    SyncNow {
        /// Names it.
        op: OpId,
        /// Which.
        partition: PartitionId,
    },
    /// Find the bytes of a fetch; → [`Completion::Read`].
    Read {
        /// Names it.
        op: OpId,
        /// At most this many bytes in all. The first batch of the first part that has one is found whatever its
        /// size and whatever the limits (KIP-74).
        bytes_max: u64,
        /// The parts, in order.
        parts: Vec<ReadPart>,
    },
    /// Offset by time, highest timestamp or leader epoch, or the first one; → [`Completion::OffsetFound`].
    FindOffset {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// [`OffsetQuery::At`], [`OffsetQuery::MaxTimestamp`], [`OffsetQuery::EpochEnd`] or [`OffsetQuery::Earliest`].
        query: OffsetQuery,
    },
    /// Move the log start; → [`Completion::RecordsDeleted`].
    DeleteRecords {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// To where.
        to: DeleteTo,
    },
    /// Read a coordinator partition from its start to its end for replay; → [`Completion::Loaded`].
    Load {
        /// Names it.
        op: OpId,
        /// Which.
        partition: PartitionId,
    },
    /// Scan records from an offset for their key hashes; → [`Completion::Scanned`].
    Scan {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// From this offset.
        from: Offset,
        /// Not at or beyond this one (high watermark or last stable offset).
        upper: Offset,
        /// About this many stored bytes; one batch at least.
        bytes_max: u64,
        /// Whether batches of aborted transactions are to be told as [`ScannedKind::Aborted`].
        committed: bool,
    },
    /// Find records of one key; → [`Completion::KeyFound`].
    FindKey {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// The key's hash: keys that share one are one key here.
        key: KeyHash,
        /// From this offset, or the log start where that is above it.
        from: Offset,
        /// Not at or beyond this one (high watermark or last stable offset).
        upper: Offset,
        /// Whether records of aborted transactions are left out.
        committed: bool,
        /// At most this many, and never more than [`KEY_FOUND_MAX`].
        max: u32,
    },
    /// Read single records whole; → [`Completion::RecordsRead`].
    ReadRecords {
        /// Names it.
        op: OpId,
        /// Where.
        partition: PartitionId,
        /// Which, ascending; at most [`READ_RECORDS_MAX`].
        offsets: Vec<Offset>,
        /// About this many bytes of keys and values; the first record is read whatever its size.
        bytes_max: u64,
    },
    /// What retention takes next of a log, and when; → [`Completion::RetentionFound`].
    NextRetention {
        /// Names it.
        op: OpId,
        /// Which.
        partition: PartitionId,
    },
    /// Build the record data of a share answer; → [`Completion::Built`].
    Build {
        /// Names it.
        op: OpId,
        /// Chosen offset ranges (inclusive, ascending, disjoint) by partition.
        parts: Vec<(PartitionId, Vec<(Offset, Offset)>)>,
    },
    /// Open (or create) a share-partition's state; → [`Completion::ShareStateOpened`].
    OpenShareState {
        /// Names it.
        op: OpId,
        /// The group; the executor finds or allots its number.
        group: Arc<str>,
        /// The partition.
        partition: PartitionId,
    },
    /// Append events to a share-partition's state in one write; → [`Completion::EventsAppended`].
    AppendEvents {
        /// Names it.
        op: OpId,
        /// Which state.
        state: ShareStateId,
        /// Encoded events, in order.
        events: Vec<Bytes>,
    },
    /// Replace a share-partition's snapshot and drop the events before it; → [`Completion::EventsAppended`].
    ///
    /// The state's pages after it are those before it without `dropped` and with `pages`; after a crash there is the
    /// old snapshot with its pages or the new one with its own. When it fails, all is as it was before.
    WriteSnapshot {
        /// Names it.
        op: OpId,
        /// Which state.
        state: ShareStateId,
        /// The encoded snapshot.
        snapshot: Bytes,
        /// New pages: an id that no snapshot on the disk names, and at most [`PAGE_BYTES_MAX`] bytes. They never change.
        pages: Vec<(u64, Bytes)>,
        /// Pages that the snapshot needs no more.
        dropped: Vec<u64>,
    },
    /// Read pages of a share-partition's state; → [`Completion::PagesRead`].
    ReadPages {
        /// Names it.
        op: OpId,
        /// Which state.
        state: ShareStateId,
        /// Which pages: of the last snapshot that was written, at most [`PAGES_READ_MAX`]. None of them may be dropped
        /// before this is answered.
        pages: Vec<u64>,
    },
    /// Delete a share-partition's state (`partition` given) or all of a group; → [`Completion::ShareStateDeleted`].
    DeleteShareState {
        /// Names it.
        op: OpId,
        /// The group.
        group: Arc<str>,
        /// One partition, or all.
        partition: Option<PartitionId>,
    },
    /// Which share-partitions of a group have state on disk; → [`Completion::ShareStates`].
    ListShareStates {
        /// Names it.
        op: OpId,
        /// The group.
        group: Arc<str>,
    },
}

/// One part of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadPart {
    /// The partition.
    pub partition: PartitionId,
    /// From the batch that holds this offset.
    pub from: Offset,
    /// Batches that begin at or beyond this offset are not shown.
    pub upper: Offset,
    /// At most this many bytes of it.
    pub bytes_max: u64,
    /// Whether the aborted transactions among them are asked for.
    pub committed: bool,
}

/// What a read found in one part.
#[derive(Clone, Debug)]
pub struct FoundBatches<S> {
    /// The batches.
    pub data: S,
    /// The aborted transactions that touch them, wherever they began; none where they were not asked for.
    pub aborted: Vec<AbortedTransaction>,
}

impl<S> From<S> for FoundBatches<S> {
    /// Nothing of it is aborted, or nobody asked.
    fn from(data: S) -> Self {
        Self { data, aborted: Vec::new() }
    }
}

/// A transaction of which a reader of committed records must leave the batches out, from its first offset to its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer: i64,
    /// Offset of its first record.
    pub first: Offset,
}

/// What a search for an offset found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The record's offset; of [`OffsetQuery::Earliest`] the log start, with or without a record.
    pub offset: Offset,
    /// Its timestamp, milliseconds; −1 of [`OffsetQuery::Earliest`].
    pub timestamp: i64,
    /// The leader epoch that it was or will be written under.
    pub leader_epoch: i32,
}

/// The end of a submission.
#[derive(Clone, Debug)]
pub enum Completion<S> {
    /// Of [`Submission::Append`].
    Appended(OpId, Result<Appended, AppendError>),
    /// Of [`Submission::Sync`] and [`Submission::SyncNow`]: durable to the end at which it was taken.
    Synced(OpId, Result<(), IoError>),
    /// Of [`Submission::Read`]: one result a part, in order.
    Read(OpId, Vec<Result<FoundBatches<S>, IoError>>),
    /// Of [`Submission::FindOffset`].
    OffsetFound(OpId, Result<Option<FoundRecord>, IoError>),
    /// Of [`Submission::DeleteRecords`]: the log start after it.
    RecordsDeleted(OpId, Result<Offset, DeleteError>),
    /// Of [`Submission::Load`]: the batches, whole, in order.
    Loaded(OpId, Result<Vec<Bytes>, IoError>),
    /// Of [`Submission::Scan`].
    Scanned(OpId, Result<Scanned, IoError>),
    /// Of [`Submission::FindKey`].
    KeyFound(OpId, Result<KeyFound, IoError>),
    /// Of [`Submission::ReadRecords`]: the first of them, in order, as many as the limit allows.
    RecordsRead(OpId, Result<Vec<ReadRecord>, IoError>),
    /// Of [`Submission::NextRetention`]: `None` where nothing will be taken for its age, or for the log's size.
    RetentionFound(OpId, Result<Option<RetentionDue>, IoError>),
    /// Of [`Submission::Build`]: one result a part, in order.
    Built(OpId, Vec<Result<S, BuildError>>),
    /// Of [`Submission::OpenShareState`].
    ShareStateOpened(OpId, Result<ShareState, IoError>),
    /// Of [`Submission::AppendEvents`] and [`Submission::WriteSnapshot`].
    EventsAppended(OpId, Result<EventsAppended, IoError>),
    /// Of [`Submission::ReadPages`]: in the order in which they were asked for. [`IoError::Corrupt`] where one of them
    /// is damaged or is no page of the state.
    PagesRead(OpId, Result<Vec<StoredState>, IoError>),
    /// Of [`Submission::DeleteShareState`].
    ShareStateDeleted(OpId, Result<(), IoError>),
    /// Of [`Submission::ListShareStates`].
    ShareStates(OpId, Result<Vec<PartitionId>, IoError>),
}

impl<S> Completion<S> {
    /// The submission that is over.
    #[must_use]
    pub fn op(&self) -> OpId {
        match self {
            Self::Appended(op, _)
            | Self::Synced(op, _)
            | Self::Read(op, _)
            | Self::OffsetFound(op, _)
            | Self::RecordsDeleted(op, _)
            | Self::Loaded(op, _)
            | Self::Scanned(op, _)
            | Self::KeyFound(op, _)
            | Self::RecordsRead(op, _)
            | Self::RetentionFound(op, _)
            | Self::Built(op, _)
            | Self::ShareStateOpened(op, _)
            | Self::EventsAppended(op, _)
            | Self::PagesRead(op, _)
            | Self::ShareStateDeleted(op, _)
            | Self::ShareStates(op, _) => *op,
        }
    }
}

impl Submission {
    /// The name it was submitted under.
    #[must_use]
    pub fn op(&self) -> OpId {
        match self {
            Self::Append { op, .. }
            | Self::Sync { op, .. }
            | Self::SyncNow { op, .. }
            | Self::Read { op, .. }
            | Self::FindOffset { op, .. }
            | Self::DeleteRecords { op, .. }
            | Self::Load { op, .. }
            | Self::Scan { op, .. }
            | Self::FindKey { op, .. }
            | Self::ReadRecords { op, .. }
            | Self::NextRetention { op, .. }
            | Self::Build { op, .. }
            | Self::OpenShareState { op, .. }
            | Self::AppendEvents { op, .. }
            | Self::WriteSnapshot { op, .. }
            | Self::ReadPages { op, .. }
            | Self::DeleteShareState { op, .. }
            | Self::ListShareStates { op, .. } => *op,
        }
    }
}

/// A partition log's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// First offset.
    pub log_start: Offset,
    /// Written end: the high watermark.
    pub end: Offset,
    /// Last stable offset; `end` where no transaction is open.
    pub last_stable: Offset,
    /// Epoch of what is appended now.
    pub leader_epoch: i32,
}

/// A finished append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The batch's first offset (of the first time, for a duplicate).
    pub base_offset: Offset,
    /// Append time where the topic's timestamps are the broker's.
    pub append_time_ms: Option<i64>,
    /// Stored before already (idempotent retry): nothing was written.
    pub duplicate: bool,
    /// Stored bytes; 0 for a duplicate.
    pub bytes: u64,
    /// The log afterwards.
    pub facts: LogFacts,
}

/// Why an append was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// A sequence number is missing: the producer lost a batch.
    #[error("out of order sequence number")]
    OutOfOrderSequence,
    /// A newer epoch of this producer is known.
    #[error("producer epoch is fenced")]
    InvalidProducerEpoch,
    /// The producer's state has expired.
    #[error("unknown producer id")]
    UnknownProducerId,
    /// The producer has a transaction open there and writes outside of it.
    #[error("the producer has a transaction open")]
    TransactionOpen,
    /// A newer coordinator has ended a transaction of this producer.
    #[error("transaction coordinator is fenced")]
    CoordinatorFenced,
    /// The same sequence range with other bounds.
    #[error("duplicate sequence number")]
    DuplicateSequence,
    /// The batch is larger than a segment may be.
    #[error("batch is larger than segment.bytes")]
    TooLarge,
    /// The disk cannot take it.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Why the executor could not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The partition is not (or no longer) open.
    #[error("partition is not open")]
    NotOpen,
    /// The offset is not in the log.
    #[error("offset is out of range")]
    OutOfRange,
    /// The bytes at that place are damaged.
    #[error("log is damaged at this offset")]
    Corrupt,
    /// The disk failed or is full.
    #[error("storage error")]
    Storage,
}

/// Why DeleteRecords was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// Beyond the high watermark, or negative.
    #[error("offset is out of range")]
    OutOfRange,
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Batches in offset order; offsets between them are gone (compaction).
    pub batches: Vec<ScannedBatch>,
    /// Where the next scan begins.
    pub next: Offset,
}

/// One stored batch as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedBatch {
    /// First offset of the batch.
    pub base: Offset,
    /// Last offset of the batch.
    pub last: Offset,
    /// Stored bytes.
    pub bytes: u32,
    /// What it holds.
    pub kind: ScannedKind,
}

/// What a stored batch holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScannedKind {
    /// Records for consumers; offsets of the batch that are not listed are gone.
    Data(Vec<ScannedRecord>),
    /// Markers: settled by nature.
    Control,
    /// Of an aborted transaction: settled by nature.
    Aborted,
    /// Cannot be read (CRC, codec, structure): goes the group's poison way.
    Corrupt,
}

/// One record as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Its offset.
    pub offset: Offset,
    /// Its key's hash; `None` without a key.
    pub key: Option<KeyHash>,
    /// Its size in bytes, uncompressed.
    pub bytes: u32,
}

/// What a search for the records of a key found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFound {
    /// Records of that key for consumers, in offset order: no markers, nothing that left the log, and none of an aborted
    /// transaction where those were to be left out. What is damaged has no key, but where nobody has noticed that so far:
    /// then a build tells of it. Their sizes may be estimates.
    pub records: Vec<ScannedRecord>,
    /// Everything below it is told; `upper` when the search is through, or the log's end where that is below it. One
    /// search is bounded work, so it may end before, with fewer than were asked for and even none: ask from here on.
    pub next: Offset,
}

/// Records that one [`Submission::ReadRecords`] may name.
pub const READ_RECORDS_MAX: usize = 256;

/// One record that was read, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its offset.
    pub offset: Offset,
    /// `None`: it has left the log, or its stored batch cannot be read.
    pub record: Option<WholeRecord>,
}

/// A record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeRecord {
    /// Its timestamp, milliseconds.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
}

impl WholeRecord {
    /// Bytes of its key and its value.
    #[must_use]
    pub fn size(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len) + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// What retention takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionDue {
    /// Everything below this offset.
    pub until: Offset,
    /// Not before then, milliseconds since the epoch.
    pub at_ms: i64,
    /// How long the log keeps its records, milliseconds; 0 where its size is the reason.
    pub length_ms: i64,
}

/// Why the data of a share answer could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The stored batch with these offsets is damaged.
    #[error("stored batch {first}-{last} is damaged")]
    Corrupt {
        /// First offset of the damaged batch.
        first: Offset,
        /// Last offset of the damaged batch.
        last: Offset,
    },
    /// There is no such record any more: compaction has taken it.
    #[error("the record at offset {0} was compacted away")]
    Missing(Offset),
    /// These offsets left the log meanwhile; its start is now this.
    #[error("records left the log, which starts at {0} now")]
    Gone(Offset),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// A share-partition's stored state.
#[derive(Clone, Debug)]
pub struct ShareState {
    /// How to name it from now on.
    pub state: ShareStateId,
    /// The last snapshot, if any was written.
    pub snapshot: Option<StoredState>,
    /// The events after it, in order.
    pub events: Vec<StoredState>,
    /// Whether it was on disk before (else it has just been created, empty).
    pub existed: bool,
}

/// A snapshot, an event or a page as it is read back.
#[derive(Clone, Debug)]
pub struct StoredState {
    /// As it was written.
    pub bytes: Bytes,
    /// What it says of offsets from here on is void: the log of the epoch under which it was written ends here, and
    /// those offsets were handed out again since, or will be.
    pub void_from: Offset,
}

impl From<Bytes> for StoredState {
    /// Nothing of it is void.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, void_from: Offset::MAX }
    }
}

/// A finished write of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsAppended {
    /// Bytes of events since the last snapshot: when it grows, write a snapshot.
    pub bytes_since_snapshot: u64,
}
