//! What comes into a shard from outside: commands of clients, and facts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use records::ids::{KeyHash, Offset, PartitionId, TopicId};

use crate::group::GroupCommand;
use crate::io::LogFacts;
use crate::share::ShareConfig;
use crate::share::admin::{AlterKey, DescribeKeys, ResetOffsets};

/// Names one command until its reply; the broker hands them out and never uses one twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A client connection; never used twice in one run of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One request's work for the shard.
#[derive(Clone, Debug)]
pub enum Command {
    /// Append batches; the reply is [`crate::reply::Reply::Produced`], one result a part, in order.
    Produce(Produce),
    /// Read, or park until there is enough to read.
    Fetch(Fetch),
    /// Offsets by time or place.
    ListOffsets(ListOffsets),
    /// Move log start offsets.
    DeleteRecords(Vec<(PartitionId, DeleteTo)>),
    /// Classic groups, committed offsets, share-group membership.
    Group(GroupCommand),
    /// ShareFetch (KIP-932) or KeyShareFetch.
    ShareFetch(ShareFetch),
    /// ShareAcknowledge (KIP-932) or KeyShareAcknowledge.
    ShareAcknowledge(ShareAcknowledge),
    /// KeyShareFetch of a reader that is no member.
    StandaloneFetch(StandaloneFetch),
    /// KeyShareAcknowledge of a reader that is no member; its member is not looked at.
    StandaloneAcknowledge(ShareAcknowledge),
    /// KeyShareCommit; the reply is [`crate::reply::Reply::ShareAcknowledged`], without results.
    StandaloneCommit(StandaloneCommit),
    /// Start offsets and lag of share-partitions (DescribeShareGroupOffsets).
    DescribeShareOffsets {
        /// The group.
        group: Arc<str>,
        /// The partitions asked for; `None`: all that have state.
        partitions: Option<Vec<PartitionId>>,
    },
    /// Where share-partitions of a share group without members begin (AlterShareGroupOffsets); a group that there is not
    /// is made.
    AlterShareOffsets(ResetOffsets),
    /// Delete the share state of partitions of a share group without members (DeleteShareGroupOffsets).
    DeleteShareOffsets {
        /// The group.
        group: Arc<str>,
        /// The partitions.
        partitions: Vec<PartitionId>,
    },
    /// Where a share-partition stands, and why keys of it are not delivered (KeyShareDescribe).
    DescribeShareKeys(DescribeKeys),
    /// Something to do to one key of a share-partition (KeyShareAlter).
    AlterShareKey(AlterKey),
    /// Where share-partitions begin, whether the group has members or not (KeyShareAlter).
    ResetShareOffsets(ResetOffsets),
    /// Delete a group: its members' metadata, committed offsets and share state.
    DeleteGroup {
        /// The group.
        group: Arc<str>,
    },
}

/// What a produce request's answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The write (acks 0 and 1).
    Written,
    /// A sync that covers the write (acks −1).
    Synced,
}

/// A produce request whose batches are validated already.
#[derive(Clone, Debug)]
pub struct Produce {
    /// What the answer waits for.
    pub acks: Acks,
    /// One validated batch a partition.
    pub parts: Vec<(PartitionId, ProducedBatch)>,
}

/// A validated batch.
#[derive(Clone, Debug)]
pub struct ProducedBatch {
    /// The batch, base offset not yet set.
    pub bytes: Bytes,
    /// What validation knows of its keys; passed on to the executor.
    pub keys: Option<BatchKeys>,
}

/// The key hash of every record of a batch in order, `None` for a null key.
pub type BatchKeys = Vec<Option<KeyHash>>;

impl From<Bytes> for ProducedBatch {
    /// A batch of which the keys are not known.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, keys: None }
    }
}

/// How a read is bounded above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// To the high watermark.
    #[default]
    ReadUncommitted,
    /// To the last stable offset.
    ReadCommitted,
}

/// A plain fetch.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// The connection that waits for it.
    pub connection: ConnectionId,
    /// How long it may be parked, milliseconds.
    pub wait_max_ms: i32,
    /// Answer as soon as this many bytes are there.
    pub bytes_min: u64,
    /// At most this many bytes in all; the first batch goes out whatever its size (KIP-74).
    pub bytes_max: u64,
    /// Upper bound of what is shown.
    pub isolation: Isolation,
    /// The partitions, in the order in which they are served.
    pub parts: Vec<FetchPart>,
}

/// One partition of a fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchPart {
    /// The partition.
    pub partition: PartitionId,
    /// From here.
    pub offset: Offset,
    /// At most this many bytes of it.
    pub bytes_max: u64,
    /// The leader epoch the client knows (KIP-320), −1 if none.
    pub current_leader_epoch: i32,
    /// The epoch of the last record the client has (KIP-595), −1 if none.
    pub last_fetched_epoch: i32,
}

/// A question about offsets.
#[derive(Clone, Debug)]
pub struct ListOffsets {
    /// Upper bound of what counts as latest.
    pub isolation: Isolation,
    /// The questions.
    pub parts: Vec<ListOffsetsPart>,
}

/// One question about offsets.
#[derive(Clone, Copy, Debug)]
pub struct ListOffsetsPart {
    /// The partition.
    pub partition: PartitionId,
    /// The leader epoch the client knows, −1 if none.
    pub current_leader_epoch: i32,
    /// What is asked.
    pub query: OffsetQuery,
}

/// What ListOffsets can ask for (the special timestamps of `ListOffsetsRequest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// −2, and −4 (earliest local): the log start.
    Earliest,
    /// −1.
    Latest,
    /// −3: the record with the highest timestamp (KIP-734).
    MaxTimestamp,
    /// −5 and −6 (tiered storage): there is none.
    Tiered,
    /// The end of the records of the largest leader epoch that is not above this one (OffsetForLeaderEpoch).
    EpochEnd(i32),
    /// The first record at or after this time, milliseconds.
    At(i64),
}

/// Where DeleteRecords cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteTo {
    /// Below this offset.
    Offset(Offset),
    /// Everything (−1).
    End,
}

/// What a fetch of a share session may say beyond KIP-932 (KeyShareFetch).
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyShareTerms {
    /// At most this many keys in the answer; 0: no bound.
    pub keys_max: u32,
    /// At most this many records of one key in flight; 0: the client leaves it to the broker (16).
    pub records_per_key_max: u32,
    /// The client stops its work on a lost connection: its keys may move at once.
    pub stops_at_disconnect: bool,
}

/// ShareFetch or KeyShareFetch.
#[derive(Clone, Debug)]
pub struct ShareFetch {
    /// The connection that waits for it.
    pub connection: ConnectionId,
    /// The share group.
    pub group: Arc<str>,
    /// The member, as it calls itself.
    pub member: Arc<str>,
    /// Share-session epoch: 0 opens, −1 closes, else the next one.
    pub epoch: i32,
    /// How long it may be parked, milliseconds.
    pub wait_max_ms: i32,
    /// Smallest answer worth sending before the wait is over.
    pub bytes_min: i32,
    /// At most this many bytes of records; a first record goes out whatever its size.
    pub bytes_max: i32,
    /// At most this many records.
    pub records_max: i32,
    /// Acquired ranges are not longer than this (order `none`).
    pub batch_size: i32,
    /// Never more than `records_max` (KIP-1206 `record_limit`); key-ordered groups do so always.
    pub strict: bool,
    /// A fetch that only renews (KIP-1222).
    pub renew: bool,
    /// Partitions added to the session or carrying acknowledgements.
    pub parts: Vec<ShareFetchPart>,
    /// Partitions that leave the session.
    pub forgotten: Vec<PartitionId>,
    /// `Some` for KeyShareFetch: acknowledgements bear delivery numbers, answers too.
    pub key_share: Option<KeyShareTerms>,
}

/// One partition of a share fetch.
#[derive(Clone, Debug)]
pub struct ShareFetchPart {
    /// The partition.
    pub partition: PartitionId,
    /// Acknowledgements that ride on the fetch.
    pub acks: Vec<AckRange>,
}

/// A range of key hashes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Lowest hash.
    pub first: KeyHash,
    /// Highest hash.
    pub last: KeyHash,
}

/// KeyShareFetch of a reader that is no member.
#[derive(Clone, Debug)]
pub struct StandaloneFetch {
    /// The fetch; its member is not looked at: a reader is its connection.
    pub fetch: ShareFetch,
    /// Of each partition that the request names, the ranges that it names; none are all.
    pub ranges: Vec<(PartitionId, Vec<KeyRange>)>,
}

/// KeyShareCommit.
#[derive(Clone, Debug)]
pub struct StandaloneCommit {
    /// The connection, which is the reader.
    pub connection: ConnectionId,
    /// The group id under which it commits.
    pub group: Arc<str>,
    /// Ranges of offsets that are done, both ends included, as they came.
    pub parts: Vec<(PartitionId, Vec<(i64, i64)>)>,
}

/// ShareAcknowledge or KeyShareAcknowledge.
#[derive(Clone, Debug)]
pub struct ShareAcknowledge {
    /// The connection.
    pub connection: ConnectionId,
    /// The share group.
    pub group: Arc<str>,
    /// The member.
    pub member: Arc<str>,
    /// Share-session epoch: −1 closes, else the next one.
    pub epoch: i32,
    /// The request may carry renewals (v2).
    pub renew: bool,
    /// What is acknowledged.
    pub parts: Vec<(PartitionId, Vec<AckRange>)>,
    /// Delivery numbers are meant (KeyShareAcknowledge).
    pub key_share: bool,
}

/// One acknowledged range, as it came: the share-partition checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckRange {
    /// First offset.
    pub first: i64,
    /// Last offset, inclusive.
    pub last: i64,
    /// One type for all, or one an offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    pub types: Vec<i8>,
    /// Delivery number (key-share only).
    pub delivery: Option<DeliveryNumber>,
    /// Release: not before this many milliseconds (key-share only).
    pub delay_ms: Option<i64>,
    /// Release, reject: why (key-share only).
    pub reason: Option<Arc<str>>,
}

/// Tells deliveries of one record apart: boot number in the upper 24 bits, grant sequence below; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryNumber(pub u64);

/// What the shard is told without being asked for an answer.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The last stop was not in order: logs may have lost their ends. Told before any partition is opened; committed
    /// offsets above the ends are then lowered before a log takes an append.
    UncleanStop,
    /// A partition is open: commands for it can be served from now on.
    PartitionOpened {
        /// The partition.
        partition: PartitionId,
        /// What it is for.
        role: PartitionRole,
        /// Its log's state.
        facts: LogFacts,
    },
    /// A topic was deleted: its partitions, their parked requests and share state are gone.
    PartitionDeleted(PartitionId),
    /// Retention or another cause moved the log start.
    LogStartMoved(PartitionId, Offset),
    /// Topics, as names, ids and partition counts (all of them).
    Topics(Arc<TopicImage>),
    /// A group's share configuration is now this (defaults applied).
    ShareConfigured(Arc<str>, Arc<ShareConfig>),
    /// The answer to this ticket was written whole to its socket.
    AnswerWritten(Ticket),
    /// The answer to this ticket was not written whole, and never will be (its connection is closed). Where it is
    /// still to come, nobody waits for it any more.
    AnswerLost(Ticket),
    /// A connection is gone. Its parked requests die with it.
    ConnectionClosed(ConnectionId),
    /// This connection speaks for this member (it sent a heartbeat or a share request): alive until closed.
    MemberSeen {
        /// The connection.
        connection: ConnectionId,
        /// The share group.
        group: Arc<str>,
        /// The member.
        member: Arc<str>,
    },
    /// An acknowledgement was read behind this parked fetch on its connection: answer it now (empty if need be).
    GiveWay(Ticket),
    /// The broker stops: every parked request is answered now.
    Stopping,
}

/// What a partition is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionRole {
    /// Records of users.
    Data,
    /// Partition n of `__consumer_offsets`.
    ConsumerOffsets(i32),
}

/// All topics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicImage {
    /// By name: id and partition count.
    pub topics: BTreeMap<Arc<str>, (TopicId, i32)>,
    /// Topics to which share groups may write their dead letters (`errors.deadletterqueue.group.enable`), and how many
    /// bytes a batch of each may have.
    pub dead_letter_topics: BTreeMap<Arc<str>, u64>,
    /// Topics that are meant for dead letters and take none, since they are compacted (`cleanup.policy`) and most dead
    /// letters have no key.
    pub dead_letter_compacted: BTreeSet<Arc<str>>,
    /// What the name of a dead-letter topic must begin with (`errors.deadletterqueue.topic.name.prefix`).
    pub dead_letter_prefix: String,
    /// Such a topic is made where it is missing (`errors.deadletterqueue.auto.create.topics.enable`).
    pub dead_letter_create: bool,
}
