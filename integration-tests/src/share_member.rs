//! A share-group member that speaks bytes, to any broker: ShareGroupHeartbeat v1, ShareFetch v2, ShareAcknowledge v2.
//!
//! Blocking, one connection a member. The codec is written by hand: the second implementation that the tests have
//! knows version 1 of these messages only.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::api_client::ApiClient;
use crate::real_time::wait_until;

/// The record was not found.
pub const GAP: i8 = 0;
/// The record is done.
pub const ACCEPT: i8 = 1;
/// The record is to come again.
pub const RELEASE: i8 = 2;
/// The record is never to come again.
pub const REJECT: i8 = 3;
/// The lock is to run anew.
pub const RENEW: i8 = 4;

/// Error codes by which a coordinator says: not yet.
const NOT_YET: [i16; 4] = [14, 15, 16, 3];
/// A group's coordinator loads, computes assignments once a second and initialises share-partitions.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// Request header of flexible versions.
const FLEXIBLE_HEADER: i16 = 2;

/// First offset, last offset, one type for all or one for each.
pub type Ack<'a> = (i64, i64, &'a [i8]);
/// First offset, last offset, delivery count.
pub type Acquired = (i64, i64, i16);

/// What a share fetch asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// How long it may wait for `bytes_min`, in ms.
    pub wait_ms: i32,
    /// Least bytes to wait for.
    pub bytes_min: i32,
    /// Most bytes of records.
    pub bytes_max: i32,
    /// Most records.
    pub records_max: i32,
    /// Records of an acquired range, where the stored batches are larger.
    pub batch_size: i32,
    /// 0: whole batches go out, whatever `records_max` says; 1: it binds.
    pub mode: i8,
    /// Whether locks may be renewed.
    pub renew: bool,
    /// Acknowledgements that ride on it, of the member's one partition.
    pub acks: &'a [Ack<'a>],
}

/// Everything that there is, without waiting long.
pub const ALL: Ask<'static> = Ask {
    wait_ms: 500,
    bytes_min: 1,
    bytes_max: 8 << 20,
    records_max: 500,
    batch_size: 500,
    mode: 0,
    renew: false,
    acks: &[],
};

/// The answer to a share fetch.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// Error of the request.
    pub error: i16,
    /// How long the locks of this answer last, in ms.
    pub lock_ms: i32,
    /// The partitions that the answer names.
    pub parts: Vec<Part>,
}

/// One partition of it.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Partition index.
    pub index: i32,
    /// Error of the fetch.
    pub error: i16,
    /// Error of the acknowledgements that came along.
    pub ack_error: i16,
    /// Batches as they came.
    pub records: Bytes,
    /// What the member has acquired.
    pub acquired: Vec<Acquired>,
}

impl Fetched {
    /// What was acquired, in all partitions.
    pub fn acquired(&self) -> impl Iterator<Item = Acquired> + '_ {
        self.parts.iter().flat_map(|part| part.acquired.iter().copied())
    }

    /// Number of records that were acquired.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.acquired().map(|(first, last, _)| (last - first + 1).unsigned_abs()).sum()
    }
}

/// The answer to an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Error of the request.
    pub error: i16,
    /// Error of each partition that the answer names.
    pub parts: Vec<i16>,
}

/// One member with one connection and one partition, 0 of its topic.
#[derive(Debug)]
pub struct ShareMember {
    client: ApiClient,
    group: String,
    name: String,
    topic: [u8; 16],
    member_epoch: i32,
    /// The epoch that the session's next request bears.
    pub epoch: i32,
}

impl ShareMember {
    /// A member that has not joined. `name` is its member id: Kafka takes any text that is not empty.
    #[track_caller]
    #[must_use]
    pub fn connect(bootstrap: &str, group: &str, name: &str, topic: [u8; 16]) -> Self {
        let client = ApiClient::connect(bootstrap);
        Self { client, group: group.to_owned(), name: name.to_owned(), topic, member_epoch: 0, epoch: 0 }
    }

    /// One heartbeat: epoch 0 joins, −1 leaves. Topics are named when joining.
    #[track_caller]
    pub fn heartbeat(&mut self, epoch: i32, topics: Option<&[&str]>) -> ShareGroupHeartbeatResponse {
        let name = |topic: &&str| TopicName(StrBytes::from_string((*topic).to_owned()));
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(self.group.clone())))
            .with_member_id(StrBytes::from_string(self.name.clone()))
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(topics.map(|topics| topics.iter().map(name).collect()));
        self.client.call(1, &request)
    }

    /// Joins, and heartbeats until the member has a partition.
    #[track_caller]
    pub fn join(&mut self, topic: &str) {
        let mut seen = 0;
        let assigned = wait_until(JOIN_LIMIT, || {
            let topics = [topic];
            let answer = self.heartbeat(self.member_epoch, (self.member_epoch == 0).then_some(&topics[..]));
            seen = answer.error_code;
            assert!(seen == 0 || NOT_YET.contains(&seen), "{} joins: {answer:?}", self.name);
            if seen == 0 {
                self.member_epoch = answer.member_epoch;
            } else {
                self.find_coordinator();
            }
            answer
                .assignment
                .is_some_and(|given| given.topic_partitions.iter().any(|part| !part.partitions.is_empty()))
        });
        assert!(assigned, "{} has no partition after {JOIN_LIMIT:?}, last error {seen}", self.name);
    }

    /// Asks for the group's coordinator: that makes Kafka create the topic that it keeps groups in.
    fn find_coordinator(&mut self) {
        let keys = vec![StrBytes::from_string(self.group.clone())];
        self.client.call(4, &FindCoordinatorRequest::default().with_coordinator_keys(keys));
    }

    /// A heartbeat of a member that has joined.
    #[track_caller]
    pub fn keep_alive(&mut self) {
        let answer = self.heartbeat(self.member_epoch, None);
        assert_eq!(answer.error_code, 0, "{}: {:?}", self.name, answer.error_message);
        self.member_epoch = answer.member_epoch;
    }

    /// A fetch at the session's next epoch, which advances where the answer says so.
    #[track_caller]
    pub fn fetch(&mut self, ask: Ask<'_>) -> Fetched {
        let fetched = self.fetch_at(self.epoch, ask);
        if fetched.error == 0 {
            self.epoch += 1;
        }
        fetched
    }

    /// A fetch at any epoch. It names its partition where it opens a session or acknowledges.
    #[track_caller]
    pub fn fetch_at(&mut self, epoch: i32, ask: Ask<'_>) -> Fetched {
        let mut body = BytesMut::new();
        put_text(&mut body, &self.group);
        put_text(&mut body, &self.name);
        body.put_i32(epoch);
        body.put_i32(ask.wait_ms);
        body.put_i32(ask.bytes_min);
        body.put_i32(ask.bytes_max);
        body.put_i32(ask.records_max);
        body.put_i32(ask.batch_size);
        body.put_i8(ask.mode);
        body.put_i8(i8::from(ask.renew));
        self.put_topics(&mut body, epoch == 0 || !ask.acks.is_empty(), ask.acks);
        // No topic is forgotten; no tagged field.
        put_length(&mut body, 0);
        body.put_u8(0);
        let mut answer = Answer(self.client.exchange(78, 2, FLEXIBLE_HEADER, &body));
        answer.skip_header();
        let error = answer.0.get_i16();
        answer.bytes();
        let lock_ms = answer.0.get_i32();
        let topics = answer.array(|answer| {
            answer.0.advance(16);
            let parts = answer.array(Answer::part);
            answer.skip_tags();
            parts
        });
        answer.skip_nodes();
        Fetched { error, lock_ms, parts: topics.into_iter().flatten().collect() }
    }

    /// Acknowledges at the session's next epoch, which advances where the answer says so.
    #[track_caller]
    pub fn acknowledge(&mut self, renew: bool, acks: &[Ack<'_>]) -> Acknowledged {
        self.send_acknowledge(self.epoch, renew, acks);
        self.acknowledged()
    }

    /// Acknowledges at any epoch.
    #[track_caller]
    pub fn acknowledge_at(&mut self, epoch: i32, renew: bool, acks: &[Ack<'_>]) -> Acknowledged {
        let own = self.epoch;
        self.send_acknowledge(epoch, renew, acks);
        let answer = self.acknowledged();
        self.epoch = own;
        answer
    }

    /// Acknowledges without waiting for the answer.
    #[track_caller]
    pub fn send_acknowledge(&mut self, epoch: i32, renew: bool, acks: &[Ack<'_>]) {
        let mut body = BytesMut::new();
        put_text(&mut body, &self.group);
        put_text(&mut body, &self.name);
        body.put_i32(epoch);
        body.put_i8(i8::from(renew));
        self.put_topics(&mut body, !acks.is_empty(), acks);
        body.put_u8(0);
        self.client.send(79, 2, FLEXIBLE_HEADER, &body).expect("the broker takes a request");
    }

    /// The answer to what was acknowledged without waiting for it; where it says so, the session's epoch advances.
    #[track_caller]
    pub fn acknowledged(&mut self) -> Acknowledged {
        let mut answer = Answer(self.client.receive().expect("the broker answers"));
        answer.skip_header();
        let error = answer.0.get_i16();
        answer.bytes();
        answer.0.advance(4);
        let topics = answer.array(|answer| {
            answer.0.advance(16);
            let parts = answer.array(|answer| {
                answer.0.advance(4);
                let error = answer.0.get_i16();
                answer.bytes();
                answer.skip_leader();
                answer.skip_tags();
                error
            });
            answer.skip_tags();
            parts
        });
        answer.skip_nodes();
        if error == 0 {
            self.epoch += 1;
        }
        Acknowledged { error, parts: topics.into_iter().flatten().collect() }
    }

    fn put_topics(&self, body: &mut BytesMut, named: bool, acks: &[Ack<'_>]) {
        if !named {
            put_length(body, 0);
            return;
        }
        put_length(body, 1);
        body.put_slice(&self.topic);
        put_length(body, 1);
        body.put_i32(0);
        put_length(body, acks.len());
        for (first, last, types) in acks {
            body.put_i64(*first);
            body.put_i64(*last);
            put_length(body, types.len());
            for kind in *types {
                body.put_i8(*kind);
            }
            body.put_u8(0);
        }
        // The tagged fields of the partition and of the topic.
        body.put_u8(0);
        body.put_u8(0);
    }
}

/// The length of a compact array or text that is not null.
fn put_length(body: &mut BytesMut, length: usize) {
    let mut rest = length + 1;
    while rest >= 0x80 {
        body.put_u8(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    body.put_u8(rest as u8);
}

fn put_text(body: &mut BytesMut, text: &str) {
    put_length(body, text.len());
    body.put_slice(text.as_bytes());
}

/// What is left of a flexible answer.
struct Answer(Bytes);

impl Answer {
    /// Correlation id, which the connection has compared with nothing: it has one request out at a time.
    fn skip_header(&mut self) {
        self.0.advance(4);
        self.skip_tags();
        let throttled_ms = self.0.get_i32();
        assert_eq!(throttled_ms, 0, "no quota is set");
    }

    fn varint(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.0.get_u8();
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    /// A compact text or blob; empty for null.
    fn bytes(&mut self) -> Bytes {
        let length = self.varint().saturating_sub(1);
        self.0.split_to(length)
    }

    fn array<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.varint().saturating_sub(1);
        (0..count).map(|_| read(self)).collect()
    }

    fn skip_tags(&mut self) {
        for _ in 0..self.varint() {
            self.varint();
            let length = self.varint();
            self.0.advance(length);
        }
    }

    fn skip_leader(&mut self) {
        self.0.advance(8);
        self.skip_tags();
    }

    /// The nodes that lead what this one does not, and the end.
    fn skip_nodes(&mut self) {
        self.array(|answer| {
            answer.0.advance(4);
            answer.bytes();
            answer.0.advance(4);
            answer.bytes();
            answer.skip_tags();
        });
        self.skip_tags();
        assert!(self.0.is_empty(), "{} bytes are left over behind the answer", self.0.len());
    }

    fn part(&mut self) -> Part {
        let (index, error) = (self.0.get_i32(), self.0.get_i16());
        self.bytes();
        let ack_error = self.0.get_i16();
        self.bytes();
        self.skip_leader();
        let records = self.bytes();
        let acquired = self.array(|answer| {
            let range = (answer.0.get_i64(), answer.0.get_i64(), answer.0.get_i16());
            answer.skip_tags();
            range
        });
        self.skip_tags();
        Part { index, error, ack_error, records, acquired }
    }
}
