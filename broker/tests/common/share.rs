//! A share-group member that speaks bytes: heartbeats, share fetches and acknowledgements of version 2.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    GroupId, ProduceRequest, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicName,
};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

use super::client::{Answer, Body, Client, text};
use super::common::Server;

pub const ACCEPT: i8 = 1;
pub const RELEASE: i8 = 2;
pub const REJECT: i8 = 3;
pub const RENEW: i8 = 4;

/// First offset, last offset, types.
pub type Ack<'a> = (i64, i64, &'a [i8]);
/// First offset, last offset, delivery count.
pub type Acquired = (i64, i64, i16);

/// Sends a batch to partition 0 of a topic, with acks all: error code and base offset.
pub async fn produce_to(server: &Server, topic: &str, batch: bytes::Bytes) -> (i16, i64) {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic =
        TopicProduceData::default().with_name(TopicName(text(topic))).with_partition_data(vec![partition]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![topic]);
    let answer = Client::new(server).await.call(9, &request).await;
    let part = &answer.responses[0].partition_responses[0];
    (part.error_code, part.base_offset)
}

/// A topic `t` with one partition, and a group `g` that starts at its beginning.
pub struct Setup {
    pub server: Server,
    pub topic: [u8; 16],
}

impl Setup {
    pub async fn new(order: &str) -> Self {
        let setup = Self::on(Server::with(&[]).await).await;
        setup.configure(&[("share.auto.offset.reset", "earliest"), ("sluice.share.order", order)]).await;
        setup
    }

    /// The topic alone; the group has no settings.
    pub async fn on(server: Server) -> Self {
        server.topic("t").await;
        let topic = server.running.broker().catalog.image().topic("t").unwrap().id.0;
        Self { topic, server }
    }

    /// The same after a restart of the broker.
    pub async fn restarted(self) -> Self {
        let Server { running, dir, .. } = self.server;
        running.stop().await.unwrap();
        Self::on(Server::on(dir, &[]).await).await
    }

    /// Sets the group's settings.
    pub async fn configure(&self, configs: &[(&str, &str)]) {
        self.configure_group("g", configs).await;
    }

    pub async fn configure_group(&self, group: &str, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.server.running.broker().catalog.set_group_configs(&group.into(), configs).await.unwrap();
    }

    /// Appends one batch of records, each with a key of its own.
    pub async fn produce(&self, count: usize) {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        for number in 0..count {
            let key = format!("key-{number}");
            batch.append(0, Some(key.as_bytes()), Some(b"value"), &[]);
        }
        assert_eq!(produce_to(&self.server, "t", batch.build(Offset(0), -1)).await.0, 0);
    }

    pub async fn member(&self, name: &str) -> Member {
        self.member_of("g", name).await
    }

    async fn member_of(&self, group: &str, name: &str) -> Member {
        let client = Client::new(&self.server).await;
        Member { client, group: group.to_owned(), name: name.to_owned(), topic: self.topic, epoch: 0 }
    }

    /// A member that has joined.
    pub async fn joined(&self, name: &str) -> Member {
        self.joined_to("g", name).await
    }

    /// A member that has joined this group, as soon as the coordinator has read its log.
    pub async fn joined_to(&self, group: &str, name: &str) -> Member {
        let mut member = self.member_of(group, name).await;
        let mut answer = member.heartbeat(0, Some(&["t"])).await;
        while answer.error_code == 14 {
            answer = member.heartbeat(0, Some(&["t"])).await;
        }
        assert_eq!(answer.error_code, 0);
        assert_eq!(answer.assignment.unwrap().topic_partitions.len(), 1, "the first answer assigns");
        member
    }
}

/// One member with one connection.
pub struct Member {
    pub client: Client,
    pub group: String,
    pub name: String,
    pub topic: [u8; 16],
    /// The session's next epoch.
    pub epoch: i32,
}

/// A share fetch.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    pub wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub max_records: i32,
    pub renew: bool,
    pub mode: i8,
    pub acks: &'a [Ack<'a>],
}

/// What most fetches ask for: everything, without waiting long.
pub const ALL: Fetch<'static> = Fetch {
    wait_ms: 300,
    min_bytes: 1,
    max_bytes: 1 << 20,
    max_records: 500,
    renew: false,
    mode: 0,
    acks: &[],
};

/// [`ALL`] for records that are sure to come, however busy the machine is.
pub const PATIENT: Fetch<'static> = Fetch { wait_ms: 5_000, ..ALL };

/// A renewal that fetches nothing.
pub const NOTHING: Fetch<'static> = Fetch { wait_ms: 0, min_bytes: 0, max_bytes: 0, max_records: 0, ..ALL };

/// The answer to a share fetch.
#[derive(Debug, Default)]
pub struct Fetched {
    pub error: i16,
    pub lock_ms: i32,
    pub parts: Vec<Part>,
}

/// One partition of it.
#[derive(Debug, Default)]
pub struct Part {
    pub topic: [u8; 16],
    pub index: i32,
    pub error: i16,
    pub ack_error: i16,
    pub records: usize,
    pub data: Vec<u8>,
    pub acquired: Vec<Acquired>,
}

impl Fetched {
    /// What was acquired, in all partitions.
    pub fn acquired(&self) -> Vec<Acquired> {
        assert_eq!(self.error, 0, "{self:?}");
        self.parts.iter().flat_map(|part| part.acquired.clone()).collect()
    }

    /// The acknowledgements' error in the only partition.
    pub fn ack_error(&self) -> i16 {
        assert_eq!(self.error, 0, "{self:?}");
        self.parts[0].ack_error
    }
}

impl Member {
    pub async fn heartbeat(&mut self, epoch: i32, topics: Option<&[&str]>) -> ShareGroupHeartbeatResponse {
        let topics = topics.map(|topics| topics.iter().map(|topic| TopicName(text(topic))).collect());
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_member_id(text(&self.name))
            .with_member_epoch(epoch)
            .with_subscribed_topic_names(topics);
        self.client.call(1, &request).await
    }

    /// A fetch in the session's next epoch; the epoch advances where the answer says that it does.
    pub async fn fetch(&mut self, fetch: Fetch<'_>) -> Fetched {
        let topic = self.topic;
        let parts: &[_] = if self.epoch == 0 || !fetch.acks.is_empty() { &[(topic, 0)] } else { &[] };
        let fetched = self.fetch_parts(self.epoch, fetch, parts).await;
        self.epoch += i32::from(fetched.error == 0);
        fetched
    }

    pub async fn fetch_parts(&mut self, epoch: i32, fetch: Fetch<'_>, parts: &[([u8; 16], i32)]) -> Fetched {
        self.send_fetch(epoch, fetch, parts).await;
        self.fetched().await
    }

    /// Sends a fetch in the session's next epoch, and does not wait for its answer.
    pub async fn asks(&mut self, fetch: Fetch<'_>) {
        let topic = self.topic;
        let parts: &[_] = if self.epoch == 0 { &[(topic, 0)] } else { &[] };
        self.send_fetch(self.epoch, fetch, parts).await;
        self.epoch += 1;
    }

    async fn send_fetch(&mut self, epoch: i32, fetch: Fetch<'_>, parts: &[([u8; 16], i32)]) {
        let body = Body::default()
            .string(Some(&self.group))
            .string(Some(&self.name))
            .i32(epoch)
            .i32(fetch.wait_ms)
            .i32(fetch.min_bytes)
            .i32(fetch.max_bytes)
            .i32(fetch.max_records)
            .i32(fetch.max_records)
            .i8(fetch.mode)
            .i8(i8::from(fetch.renew));
        let body = topics(body, parts, fetch.acks).length(Some(0)).tags();
        self.client.send_raw(78, 2, &body).await;
    }

    /// The answer to the last fetch.
    pub async fn fetched(&mut self) -> Fetched {
        let mut answer = self.client.receive_raw().await;
        assert_eq!(answer.i32(), 0, "not throttled");
        let mut fetched = Fetched { error: answer.i16(), ..Fetched::default() };
        answer.string();
        fetched.lock_ms = answer.i32();
        let topics = answer.array(|answer| {
            let topic = answer.uuid();
            let parts = answer.array(|answer| part(answer, topic));
            answer.tags();
            parts
        });
        fetched.parts = topics.into_iter().flatten().collect();
        assert!(answer.array(|_| ()).is_empty(), "no other node leads");
        answer.tags();
        answer.ends();
        fetched
    }

    /// Acknowledges in the session's next epoch: the error of the request, and of each partition.
    pub async fn acknowledge(&mut self, renew: bool, acks: &[Ack<'_>]) -> (i16, Vec<(i32, i16)>) {
        let parts = [(self.topic, 0)];
        let answer = self.acknowledge_parts(self.epoch, renew, acks, &parts).await;
        self.epoch += i32::from(answer.0 == 0);
        answer
    }

    pub async fn acknowledge_parts(
        &mut self,
        epoch: i32,
        renew: bool,
        acks: &[Ack<'_>],
        parts: &[([u8; 16], i32)],
    ) -> (i16, Vec<(i32, i16)>) {
        let body =
            Body::default().string(Some(&self.group)).string(Some(&self.name)).i32(epoch).i8(i8::from(renew));
        let mut answer = self.client.call_raw(79, 2, &topics(body, parts, acks).tags()).await;
        assert_eq!(answer.i32(), 0, "not throttled");
        let error = answer.i16();
        answer.string();
        answer.i32();
        let topics = answer.array(|answer| {
            answer.uuid();
            let parts = answer.array(|answer| {
                let part = (answer.i32(), answer.i16());
                answer.string();
                leader(answer);
                answer.tags();
                part
            });
            answer.tags();
            parts
        });
        answer.array(|_| ());
        answer.tags();
        answer.ends();
        (error, topics.concat())
    }
}

fn topics(body: Body, parts: &[([u8; 16], i32)], acks: &[Ack<'_>]) -> Body {
    body.array(parts, |body, (topic, index)| {
        let partition = |body: Body, index: &i32| {
            let ack = |body: Body, (first, last, types): &Ack<'_>| {
                body.i64(*first).i64(*last).array(types, |body, kind| body.i8(*kind)).tags()
            };
            body.i32(*index).array(acks, ack).tags()
        };
        body.uuid(*topic).array(&[*index], partition).tags()
    })
}

fn part(answer: &mut Answer, topic: [u8; 16]) -> Part {
    let mut part = Part { topic, index: answer.i32(), error: answer.i16(), ..Part::default() };
    answer.string();
    part.ack_error = answer.i16();
    answer.string();
    leader(answer);
    part.data = answer.blob().expect("records are never null");
    part.records = part.data.len();
    part.acquired = answer.array(|answer| {
        let range = (answer.i64(), answer.i64(), answer.i16());
        answer.tags();
        range
    });
    answer.tags();
    part
}

fn leader(answer: &mut Answer) {
    answer.i32();
    answer.i32();
    answer.tags();
}
