//! What operators ask of a share-partition, and what they do to its keys.
//!
//! Commands and replies of KeyShareDescribe and KeyShareAlter, and of AlterShareGroupOffsets. Times are wall-clock
//! milliseconds since the epoch. A key goes by its hash; where only an offset is at hand, the record's key is meant.

use std::sync::Arc;

use records::ids::{KeyHash, Offset, PartitionId};

use super::{Bound, ShareCounters, ShareError};

/// Keys that each list of an answer names at most.
pub const TOP_MAX: u32 = 100;
/// Questions that one request may ask.
pub const QUESTIONS_MAX: usize = 100;
/// Records that one look at a share-partition passes over at most; what lies behind is in the counts, not in the lists.
pub const LOOK_MAX: usize = 65_536;

/// A key, or a record by which it is named. A record without a key stands for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRef {
    /// By its hash.
    Key(KeyHash),
    /// The key of the record at this offset.
    Offset(Offset),
}

/// Where a share-partition stands and why keys of it are not delivered; → [`crate::reply::Reply::ShareKeys`].
#[derive(Clone, Debug)]
pub struct DescribeKeys {
    /// The group.
    pub group: Arc<str>,
    /// The partition.
    pub partition: PartitionId,
    /// How many keys each list may name ([`TOP_MAX`] at most).
    pub top: u32,
    /// "Why is it not delivered?" ([`QUESTIONS_MAX`] at most; what is more is not answered.)
    pub questions: Vec<KeyRef>,
}

/// Something to do to one key; → [`crate::reply::Reply::KeyAltered`].
#[derive(Clone, Debug)]
pub struct AlterKey {
    /// The group.
    pub group: Arc<str>,
    /// The partition.
    pub partition: PartitionId,
    /// The key.
    pub key: KeyRef,
    /// What.
    pub action: KeyAction,
}

/// What is done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// Nothing of it goes out until it is resumed, skipped or dropped. What members hold stays with them.
    Park,
    /// It goes on where it stands; a record that was parked is delivered anew, with its count at the beginning, and one
    /// that waited for a retry waits no longer. Also ends following.
    Resume,
    /// Its lowest record that is in nobody's hands is archived, whether it comes for the first time or by a replay, and the
    /// key goes on behind it.
    Skip,
    /// As skip, for every record of it up to and with this offset, as far as it was read ahead and is in nobody's
    /// hands; `None`: its lowest record.
    Drop(Option<Offset>),
    /// Its dead-lettered records are delivered again, in their order, before anything later of it.
    Redrive,
    /// What was settled of it from this offset to that one (inclusive) is delivered again, before anything later of it; up
    /// to its first record that is not done.
    Replay(Offset, Offset),
}

/// What became of an [`AlterKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAltered {
    /// The key; `None` for a record without one.
    pub key: Option<KeyHash>,
    /// Records that it concerned: archived, or to be delivered again. 0: it was so already. Of a key that is parked 1,
    /// however many it has, also where it has none yet; of one that is resumed those that were parked alone or waited,
    /// 1 at least. Of a replay those that were found before it began, a few hundred at most; there may be more.
    pub records: u64,
}

/// Why a key could not be altered, or a share-partition not be described or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// As any share request (unknown partition, state not available).
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The offset is done, is no record, or was not read yet: it names no key.
    #[error("no unsettled record is known at this offset")]
    UnknownRecord,
    /// The group keeps no order: it has no keys to park, follow or replay.
    #[error("the group keeps no order by key")]
    NoOrder,
    /// Nothing of the key is stopped or undelivered here.
    #[error("nothing of this key is open here, or all that is is in members' hands")]
    NothingThere,
    /// Too many keys are parked or replayed already.
    #[error("too many keys are parked or replayed; resume some first")]
    TooMany,
    /// No dead-lettered record of the key is known (any more).
    #[error("no dead-lettered record of this key is known")]
    NothingToRedrive,
    /// The record that was to be delivered again has no key.
    #[error(
        "a record without a key cannot be replayed or redriven; produce it, or its dead-letter copy, anew"
    )]
    NoKey,
    /// The offset is none of a dead-lettered record whose key is known (any more).
    #[error(
        "no dead-lettered record of a key is known at this offset; one without a key cannot be redriven: produce its copy \
         in the dead-letter topic anew"
    )]
    NotRedrivable,
    /// A replay was asked for by the offset of a record that is done.
    #[error(
        "no unsettled record is known at this offset; name the key itself, whose records are to be replayed"
    )]
    NameTheKey,
    /// Nothing of the key that is done lies in the range.
    #[error("nothing of this key that is done lies in the range")]
    NothingToReplay,
    /// None of its dead-lettered records is in the source log any more: this is the first of them.
    #[error("{}; its copy in the dead-letter topic can be produced anew", gone(.offset.get(), *.by_start))]
    SourceGone {
        /// Where it was.
        offset: Offset,
        /// It lies before the log's start (else it was compacted away, or cannot be read).
        by_start: bool,
    },
    /// A replay of this key is under way.
    #[error("a replay of this key is under way")]
    Replaying,
    /// A replay's range is none.
    #[error("the range is empty: its first offset lies behind its last")]
    EmptyRange,
    /// A replay's range reaches to or beyond this offset, up to which the log was read.
    #[error(
        "the range was not delivered yet to its end: the group has read up to offset {0}; end it before that"
    )]
    RangeNotRead(Offset),
    /// A replay's range lies before this offset, where the log starts.
    #[error("the range has left the log, which starts at offset {0}")]
    RangeGone(Offset),
    /// A replay's range begins at or behind this one, the key's first record that is not done.
    #[error(
        "the range is not done: the first open record of this key is at offset {0}, and a replay ends before it"
    )]
    RangeOpen(Offset),
    /// The key's next record is not in memory: it is looked up when its turn comes.
    #[error("the next record of this key is not read yet; try again while members ask for records")]
    NotAtHand,
    /// Members hold records of the share-partition: let them settle first.
    #[error("members hold records; stop them first")]
    InUse,
    /// A record without a key, which stands for itself alone, is in a member's hands.
    #[error(
        "a member holds this record, which has no key; try again when it is settled or its lock has run out"
    )]
    Held,
}

fn gone(offset: i64, by_start: bool) -> String {
    let why = if by_start {
        "has left the source log by retention, or was deleted"
    } else {
        "was compacted away from the source log, or cannot be read"
    };
    format!("the dead-lettered record at offset {offset} {why}")
}

/// Sets where share-partitions begin; → [`crate::reply::Reply::ShareOffsetsReset`].
///
/// Everything that was known of them is forgotten: settled offsets, counts, waits, parked keys. Refused while members
/// hold records, since two of them would work on one key.
#[derive(Clone, Debug)]
pub struct ResetOffsets {
    /// The group.
    pub group: Arc<str>,
    /// Partitions, and where to.
    pub parts: Vec<(PartitionId, ResetTo)>,
}

/// Where a share-partition is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At this offset; one outside of the log is moved to its nearest end.
    Offset(Offset),
    /// At the log's start.
    Earliest,
    /// At the log's end.
    Latest,
    /// At the first record at or after this time; at the log's end where there is none.
    Time(i64),
}

/// The answer to [`DescribeKeys`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareKeys {
    /// Everything below is done.
    pub start: Offset,
    /// How far the log was read.
    pub scan: Offset,
    /// Where the records end that the group may see.
    pub end: Offset,
    /// Records that are not done.
    pub lag: i64,
    /// Records in members' hands.
    pub in_flight: u64,
    /// Records that could go out now, about.
    pub ready: u64,
    /// Keys with records in members' hands.
    pub leased_keys: u64,
    /// Records that wait for a retry.
    pub waiting: u64,
    /// Keys, and records without a key, that are parked.
    pub parked: u64,
    /// Keys whose rest goes to the dead-letter topic.
    pub following: u64,
    /// Records that wait for the dead-letter topic.
    pub dead_letters: u64,
    /// Records of keys that are kept as spans only, about.
    pub spilled: u64,
    /// Why it grants less than the log holds, where a bound is the reason.
    pub bound: Option<Bound>,
    /// Why dead letters wait, where they do.
    pub dead_letter_trouble: Option<DeadLetterTrouble>,
    /// Timestamp of the record at the start offset, or of one that was there a few seconds ago; `None` where all is done, or
    /// none is known.
    pub oldest_ms: Option<i64>,
    /// Unsettled records that retention takes next, where it will soon.
    pub retention: Option<RetentionWarning>,
    /// What happened since it was loaded.
    pub counters: ShareCounters,
    /// Keys of which only a span is kept, longest first.
    pub spans: Vec<KeySpan>,
    /// Parked and followed keys, longest first.
    pub stopped: Vec<StoppedKey>,
    /// The keys whose next record is oldest.
    pub by_age: Vec<KeyLine>,
    /// The keys with most unsettled records.
    pub by_backlog: Vec<KeyLine>,
    /// The keys whose next record failed most often.
    pub by_deliveries: Vec<KeyLine>,
    /// Whether the lists rest on all that was read ahead (else on its oldest [`LOOK_MAX`] records).
    pub complete: bool,
    /// One answer a question, in order.
    pub answers: Vec<Why>,
}

/// A key of which only the first unsettled offset and a count are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// The key.
    pub key: KeyHash,
    /// Its first record that is not in memory.
    pub first: Offset,
    /// How many there are, about.
    pub records: u64,
}

/// A key, or a record without one, that goes on only by someone's hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedKey {
    /// The key; `None` for a record without one.
    pub key: Option<KeyHash>,
    /// The record that stopped it (of a following key: that it follows); where an operator parked it, its next record
    /// of that moment, or where reading had come to.
    pub offset: Offset,
    /// Deliveries of that record that failed.
    pub deliveries: u16,
    /// Since when.
    pub since_ms: i64,
    /// Its later records go to the dead-letter topic (else it is parked).
    pub follows: bool,
    /// Why.
    pub reason: StopReason,
}

/// What a record was stopped or dead-lettered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its holder rejected it.
    Rejected,
    /// It reached the delivery limit.
    LimitReached,
    /// Its stored batch cannot be read.
    Corrupt,
    /// It follows this record of its key to the dead-letter topic.
    Follows(Offset),
    /// An operator parked its key.
    Operator,
}

/// One key in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// The key.
    pub key: KeyHash,
    /// Its first unsettled record.
    pub offset: Offset,
    /// Its unsettled records, as far as they were read ahead.
    pub backlog: u64,
    /// Deliveries of its first unsettled record that failed.
    pub deliveries: u16,
}

/// Why a record is not delivered (K33).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing holds it back: it goes to the next member that asks and may take it.
    Ready,
    /// It is done: accepted, archived, gone from the log, or no record for consumers.
    Done,
    /// No unsettled record of this key was read so far, and nothing keeps more from being read; or the group keeps no
    /// order, and knows no keys.
    UnknownKey,
    /// It lies beyond what was read.
    NotScanned,
    /// It lies beyond what was read, and reading has stopped for this bound. Of a key: nothing of it that is not done was
    /// read so far.
    NotScannedBound(Bound),
    /// It is in an answer to this member that is not written yet.
    Answering {
        /// The member.
        member: Arc<str>,
    },
    /// A member holds it.
    Held {
        /// The member.
        member: Arc<str>,
        /// Its lock's end.
        until_ms: i64,
    },
    /// A member whose connections are gone holds it.
    HeldByLost {
        /// The member.
        member: Arc<str>,
        /// When it comes back: the end of its grace, or of its lock.
        until_ms: i64,
    },
    /// It is to be delivered again, and waits for the member that had it.
    Recalled {
        /// The member.
        member: Arc<str>,
        /// Its lock's end.
        until_ms: i64,
    },
    /// An earlier record of its key is not done.
    Behind {
        /// That record.
        offset: Offset,
    },
    /// A replay of its key goes first.
    BehindReplay,
    /// It waits for a retry.
    Retry {
        /// Until then.
        until_ms: i64,
    },
    /// It waits until it is copied to the dead-letter topic. Of a key that follows: also where nothing of it is open.
    DeadLetter {
        /// Since when.
        since_ms: i64,
        /// What hinders the copy; `None`: it is under way.
        trouble: Option<DeadLetterTrouble>,
    },
    /// Its key is parked.
    Parked {
        /// Since when.
        since_ms: i64,
        /// The record that stopped the key.
        offset: Offset,
    },
    /// It is ready, but a bound is hit.
    Bound(Bound),
}

/// Why dead letters are not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeadLetterTrouble {
    /// The group names no dead-letter topic.
    #[error("the group names no topic for them; set errors.deadletterqueue.topic.name")]
    NotNamed,
    /// The name is none that a dead-letter topic may have (broker's prefix, internal topics).
    #[error(
        "the topic that the group names for them may not have that name; it must begin with the broker's \
         errors.deadletterqueue.topic.name.prefix, and not with __"
    )]
    BadName,
    /// There is no such topic.
    #[error("the topic that the group names for them does not exist; create it")]
    Missing,
    /// The topic is not meant for dead letters (`errors.deadletterqueue.group.enable`).
    #[error(
        "the topic that the group names for them is not meant for them; set errors.deadletterqueue.group.enable"
    )]
    NotEnabled,
    /// The topic is compacted: a log of it takes no record without a key, which most dead letters are.
    #[error(
        "the topic that the group names for them is compacted and so takes no records without a key; set its \
         cleanup.policy to delete"
    )]
    Compacted,
    /// The records cannot be read now.
    #[error("the records cannot be read; check the disk")]
    ReadFailed,
    /// The copy is larger than the topic takes.
    #[error("a copy is larger than a segment of the topic may be; raise segment.bytes")]
    TooLarge,
    /// The topic's log refused the copy, or could not sync it.
    #[error("the copies cannot be written; check the disk")]
    WriteFailed,
}

/// Unsettled records that retention is about to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionWarning {
    /// The first of them.
    pub offset: Offset,
    /// When, as far as can be told.
    pub at_ms: i64,
}
