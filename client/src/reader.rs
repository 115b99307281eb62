//! A standalone reader: named partitions and ranges of keys, without membership of a group.
//!
//! For programs that divide the keys of a topic among themselves by other means, and want the broker to remember what is
//! done. Each reader names its ranges of key hashes; what it commits under the group id is never sent again, to it or to
//! whoever has its ranges later. Of readers whose ranges overlap the newest has them, the older one is refused from then
//! on. The group id needs `sluice.share.order=key` and no members.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::messages::key_share_commit::{
    KeyShareCommitPartition, KeyShareCommitRequest, KeyShareCommitResponse, KeyShareCommitTopic, OffsetRange,
};
use protocol::messages::key_share_fetch::{
    KeyHashRange, KeyShareFetchPartition, KeyShareFetchRequest, KeyShareFetchResponse, KeyShareFetchTopic,
};
use protocol::{ErrorCode, StrBytes};
use records::ids::{KeyHash, Offset, TopicId};

use crate::cluster;
use crate::connection::Connection;
use crate::error::{Error, Lost};
use crate::record::Record;
use crate::session::{Acquired, acquired_records};

/// The epoch that closes a session.
const CLOSING: i32 = -1;
/// Most bytes of one answer.
const BYTES_MAX: i32 = 8 << 20;

/// What a reader reads.
#[derive(Clone, Debug)]
pub struct RangeReaderSettings {
    /// `host:port[,host:port…]`.
    pub bootstrap: String,
    /// The group id under which it commits.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// Its partitions.
    pub partitions: Vec<i32>,
    /// Ranges of key hashes, both ends included; none are all. A record without a key counts as the bits of its offset
    /// in reverse.
    pub ranges: Vec<(KeyHash, KeyHash)>,
    /// How many records of one key it takes before the first of them is committed; 0 leaves it to the broker.
    pub records_per_key_max: u16,
}

/// A standalone reader with its session.
#[derive(Debug)]
pub struct RangeReader {
    connection: Connection,
    address: String,
    group: StrBytes,
    topic: Arc<str>,
    topic_id: TopicId,
    partitions: Vec<i32>,
    ranges: Vec<KeyHashRange>,
    records_per_key_max: i32,
    epoch: i32,
}

impl RangeReader {
    /// Connects, and opens the session: from now on the ranges are its own.
    ///
    /// # Errors
    /// [`Error::Refused`] with NON_EMPTY_GROUP where the group has members, INVALID_REQUEST where it keeps no order.
    pub async fn open(settings: RangeReaderSettings) -> Result<Self, Error> {
        let RangeReaderSettings { bootstrap, group, topic, partitions, ranges, records_per_key_max } =
            settings;
        let unreachable = |source| Error::Unreachable { bootstrap: bootstrap.clone(), source };
        let mut connection = Connection::open_any(&bootstrap, "sluice-reader").await.map_err(unreachable)?;
        let found = async {
            cluster::require_key_share(&mut connection, &bootstrap).await?;
            cluster::topic_by_name(&mut connection, &topic).await
        };
        let (topic_id, leader) = found.await.map_err(|lost| broken(&bootstrap, lost))?;
        if let Some(leader) = leader.filter(|leader| *leader != bootstrap) {
            connection = Connection::open(&leader, "sluice-reader").await.map_err(unreachable)?;
        }
        let range = |(first_hash, last_hash)| KeyHashRange { first_hash, last_hash };
        let mut reader = Self {
            connection,
            address: bootstrap.clone(),
            group: StrBytes::from(group),
            topic: Arc::from(topic),
            topic_id,
            partitions,
            ranges: ranges.into_iter().map(range).collect(),
            records_per_key_max: i32::from(records_per_key_max),
            epoch: 0,
        };
        reader.fetch(0, Duration::ZERO).await?;
        Ok(reader)
    }

    /// Up to `records_max` records that are not committed, or none after `wait_max`. Of each key they come in order; a
    /// record is not sent again while the session lives, unless its lock runs out first.
    ///
    /// # Errors
    /// [`Error::Refused`] with FENCED_MEMBER_EPOCH where another reader has some of the ranges now;
    /// [`Error::Broken`] where the connection is lost: open another reader.
    pub async fn next(&mut self, records_max: u32, wait_max: Duration) -> Result<Vec<Record>, Error> {
        self.fetch(i32::try_from(records_max).unwrap_or(i32::MAX), wait_max).await
    }

    /// Commits ranges of offsets, both ends included: partition, first, last. They may lie anywhere beyond the start
    /// offset. Gives the start offset of each partition: everything below it is done.
    ///
    /// # Errors
    /// As [`next`](Self::next), and INVALID_REQUEST for what was never delivered.
    pub async fn commit(&mut self, ranges: &[(i32, Offset, Offset)]) -> Result<BTreeMap<i32, Offset>, Error> {
        let mut by_partition: BTreeMap<i32, Vec<OffsetRange>> = BTreeMap::new();
        for &(partition, first_offset, last_offset) in ranges {
            by_partition.entry(partition).or_default().push(OffsetRange { first_offset, last_offset });
        }
        let partitions = by_partition
            .into_iter()
            .map(|(index, ranges)| KeyShareCommitPartition { index, ranges })
            .collect();
        let request = KeyShareCommitRequest {
            group_id: self.group.clone(),
            topics: vec![KeyShareCommitTopic { topic_id: self.topic_id, partitions }],
        };
        let answered = self.connection.call_key_share(request).await;
        let answer: KeyShareCommitResponse = answered.map_err(|lost| broken(&self.address, lost))?;
        check("KeyShareCommit", answer.error_code, answer.error_message)?;
        let mut starts = BTreeMap::new();
        for part in answer.topics.into_iter().flat_map(|topic| topic.partitions) {
            check("KeyShareCommit", part.error_code, part.error_message)?;
            starts.insert(part.index, part.start_offset);
        }
        Ok(starts)
    }

    /// Ends the session: the ranges are free at once, and what was not committed is sent to whoever has them next.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn close(mut self) -> Result<(), Error> {
        self.epoch = CLOSING;
        self.fetch(0, Duration::ZERO).await.map(drop)
    }

    async fn fetch(&mut self, max_records: i32, wait_max: Duration) -> Result<Vec<Record>, Error> {
        let topics = if self.epoch == 0 {
            let partition = |index: &i32| KeyShareFetchPartition {
                index: *index,
                key_hash_ranges: self.ranges.clone(),
                ..KeyShareFetchPartition::default()
            };
            let partitions = self.partitions.iter().map(partition).collect();
            vec![KeyShareFetchTopic { topic_id: self.topic_id, partitions }]
        } else {
            Vec::new()
        };
        let request = KeyShareFetchRequest {
            group_id: self.group.clone(),
            member_id: None,
            session_epoch: self.epoch,
            max_wait_ms: i32::try_from(wait_max.as_millis()).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: BYTES_MAX,
            max_records,
            max_records_per_key: self.records_per_key_max,
            topics,
            ..KeyShareFetchRequest::default()
        };
        let answered = self.connection.call_key_share(request).await;
        let answer: KeyShareFetchResponse = answered.map_err(|lost| broken(&self.address, lost))?;
        check("KeyShareFetch", answer.error_code, answer.error_message)?;
        self.epoch = match self.epoch {
            CLOSING => CLOSING,
            i32::MAX => 1,
            epoch => epoch + 1,
        };
        let mut taken = Vec::new();
        for mut part in answer.topics.into_iter().flat_map(|topic| topic.partitions) {
            check("KeyShareFetch", part.error_code, part.error_message.take())?;
            let records = acquired_records(&self.topic, part).map_err(|lost| broken(&self.address, lost))?;
            taken.extend(records.into_iter().map(|Acquired { record, .. }| record));
        }
        Ok(taken)
    }
}

fn check(what: &'static str, code: ErrorCode, message: Option<StrBytes>) -> Result<(), Error> {
    match code {
        ErrorCode::None => Ok(()),
        code => {
            let message = message.map_or_else(|| "no message".to_owned(), |message| message.to_string());
            Err(Error::Refused { what, code, message })
        }
    }
}

fn broken(address: &str, lost: Lost) -> Error {
    match lost {
        Lost::Fatal(error) => error,
        lost => Error::Broken { address: address.to_owned(), reason: lost.to_string() },
    }
}
