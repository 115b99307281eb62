//! Data of every kind, by a client that knows nothing of who serves it.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use integration_tests::api_client::ApiClient;
use integration_tests::foreign::KafkaTools;
use integration_tests::real_time::{wait_until, wall_clock_ns};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    InitProducerIdRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use records::batch::BatchBuilder;
use records::{Codec, TimestampType};

use crate::bench::{LIMIT, checkpoint, tool};

pub(crate) const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// A second after 2020 began.
const SOME_TIME_MS: i64 = 1_577_836_800_000;
/// Compactions of a small log end soon after they are due.
const COMPACTION_LIMIT: Duration = Duration::from_secs(90);
/// What makes a broker compact at once.
pub(crate) const EAGER_CLEANER: &str = "log.cleaner.backoff.ms=200";

fn producer(bootstrap: &str, settings: &[(&str, &str)]) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("linger.ms", "20").set("batch.num.messages", "40");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config.create().expect("the settings are valid")
}

#[track_caller]
fn send(producer: &BaseProducer, record: BaseRecord<'_, [u8], [u8]>) {
    producer.send(record).map_err(|(error, _)| error).expect("the queue has room");
    producer.poll(Duration::ZERO);
}

fn no_bytes<'a>() -> &'a [u8] {
    &[]
}

/// Records of every shape under every codec, in one topic of two partitions and small segments: headers, null keys and
/// values, empty ones, timestamps out of order, values that shrink and values that do not.
pub(crate) fn all_codecs(tools: &KafkaTools, bootstrap: &str, topic: &str) {
    let create = format!(
        "topics --create --topic {topic} --partitions 2 --config segment.bytes=1048576 --config retention.ms=-1"
    );
    tool(tools, bootstrap, &create);
    into_all_codecs(bootstrap, topic);
}

/// The same, in a topic that is there.
pub(crate) fn into_all_codecs(bootstrap: &str, topic: &str) {
    for (round, codec) in CODECS.into_iter().enumerate() {
        let producer = producer(bootstrap, &[("compression.type", codec), ("enable.idempotence", "true")]);
        for i in 0..600_usize {
            let key = format!("key-{}", i % 17);
            let mut value = format!("{codec} {i} ").into_bytes();
            let noise = |n: usize| (n.wrapping_mul(2_654_435_761).wrapping_add(i * 97) >> 7) as u8;
            match i % 3 {
                0 => value.extend((0..2_000).map(noise)),
                1 => value.resize(500, b'.'),
                _ => {}
            }
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
                .partition((i % 2) as i32)
                .timestamp(SOME_TIME_MS + ((i * 7_919) % 1_000) as i64);
            match i % 11 {
                0 => {}
                1 => record = record.key(no_bytes()),
                _ => record = record.key(key.as_bytes()),
            }
            match i % 13 {
                0 => {}
                1 => record = record.payload(no_bytes()),
                _ => record = record.payload(&value),
            }
            if i.is_multiple_of(5) {
                let headers = OwnedHeaders::new()
                    .insert(Header { key: "round", value: Some(&round.to_be_bytes()) })
                    .insert(Header { key: "empty", value: Some("") })
                    .insert(Header { key: "round", value: None::<&[u8]> });
                record = record.headers(headers);
            }
            send(&producer, record);
        }
        producer.flush(LIMIT).expect("all records are delivered");
    }
}

/// Ten keys, written often, and a tombstone; waits until the broker has compacted the log.
pub(crate) fn compacted(tools: &KafkaTools, bootstrap: &str, log_dir: &Path, topic: &str) {
    tool(
        tools,
        bootstrap,
        &format!(
            "topics --create --topic {topic} --config cleanup.policy=compact --config segment.ms=100 \
             --config min.cleanable.dirty.ratio=0.01 --config segment.bytes=1048576"
        ),
    );
    into_compacted(bootstrap, log_dir, topic);
}

/// The same, in a topic that is there.
pub(crate) fn into_compacted(bootstrap: &str, log_dir: &Path, topic: &str) {
    let producer = producer(bootstrap, &[("compression.type", "lz4")]);
    let cleaned = || {
        checkpoint(log_dir, "cleaner-offset-checkpoint").iter().any(|line| {
            line.strip_prefix(&format!("{topic} 0 ")).is_some_and(|offset| offset.parse().unwrap_or(0) > 200)
        })
    };
    let mut rounds = 0;
    let done = wait_until(COMPACTION_LIMIT, || {
        if rounds < 60 {
            for key in 0..10 {
                let (key, value) = (format!("k{key}"), format!("v{key} of round {rounds}"));
                send(&producer, BaseRecord::to(topic).key(key.as_bytes()).payload(value.as_bytes()));
            }
            producer.flush(LIMIT).expect("all records are delivered");
            rounds += 1;
        }
        cleaned()
    });
    assert!(done, "nothing was compacted: {:?}", checkpoint(log_dir, "cleaner-offset-checkpoint"));
    send(&producer, BaseRecord::to(topic).key(b"k3".as_slice()));
    send(&producer, BaseRecord::to(topic).key(b"last".as_slice()).payload(b"one".as_slice()));
    producer.flush(LIMIT).expect("all records are delivered");
}

/// Committed, aborted and committed transactions, with other records between them; with `left_open` one more that has no
/// end. The producer, which must be kept until the broker is stopped: its end would be that of the transaction.
pub(crate) fn transactions(
    tools: &KafkaTools,
    bootstrap: &str,
    topic: &str,
    left_open: bool,
) -> BaseProducer {
    tool(tools, bootstrap, &format!("topics --create --topic {topic} --config segment.bytes=1048576"));
    let plain = producer(bootstrap, &[]);
    let settings = [("transactional.id", "mover"), ("transaction.timeout.ms", "600000")];
    let moving = producer(bootstrap, &settings);
    moving.init_transactions(LIMIT).expect("transactions are served");
    let send_all = |producer: &BaseProducer, what: &str| {
        for i in 0..20 {
            let value = format!("{what} {i}");
            send(producer, BaseRecord::to(topic).key(b"k".as_slice()).payload(value.as_bytes()));
        }
        producer.flush(LIMIT).expect("all records are delivered");
    };
    for (round, commit) in [true, false, true, false].into_iter().enumerate() {
        moving.begin_transaction().expect("one may begin");
        send_all(&moving, if commit { "committed" } else { "aborted" });
        send_all(&plain, "beside");
        match commit {
            true => moving.commit_transaction(LIMIT).expect("it commits"),
            false => moving.abort_transaction(LIMIT).expect("it aborts"),
        }
        send_all(&plain, &format!("behind {round}"));
    }
    if left_open {
        moving.begin_transaction().expect("one may begin");
        send_all(&moving, "left open");
        send_all(&plain, "behind the open one");
    }
    moving
}

/// `count` records `0`, `1`, … with keys, one a batch.
pub(crate) fn numbered(bootstrap: &str, topic: &str, count: usize) {
    let producer = producer(bootstrap, &[("batch.num.messages", "1"), ("linger.ms", "0")]);
    for i in 0..count {
        let (key, value) = (format!("k{}", i % 5), i.to_string());
        send(&producer, BaseRecord::to(topic).key(key.as_bytes()).payload(value.as_bytes()));
    }
    producer.flush(LIMIT).expect("all records are delivered");
}

/// Commits an offset of partition 0, with a word about it.
pub(crate) fn commit(bootstrap: &str, group: &str, topic: &str, offset: i64) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .create()
        .expect("the settings are valid");
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(topic, 0, Offset::Offset(offset)).expect("a valid offset");
    // A coordinator that was made just now is not there at once.
    let accepted = wait_until(LIMIT, || consumer.commit(&offsets, CommitMode::Sync).is_ok());
    assert!(accepted, "the commit is not accepted");
}

/// An idempotent producer by hand, so that it can go on at another broker.
pub(crate) struct Idempotent {
    topic: String,
    id: i64,
    epoch: i16,
}

impl Idempotent {
    pub(crate) fn new(bootstrap: &str, topic: &str) -> Self {
        let mut client = ApiClient::connect(bootstrap);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None::<TransactionalId>)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let mut made = client.call(4, &request);
        // The block of ids is fetched from the controller first.
        let ready = wait_until(LIMIT, || {
            if made.error_code != 0 {
                made = client.call(4, &request);
            }
            made.error_code == 0
        });
        assert!(ready, "no producer id: {}", made.error_code);
        Self { topic: topic.to_owned(), id: made.producer_id.0, epoch: made.producer_epoch }
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Sends two records whose first has this sequence number: error code and base offset.
    pub(crate) fn send(&self, bootstrap: &str, sequence: i32) -> (i16, i64) {
        let mut client = ApiClient::connect(bootstrap);
        let now_ms = wall_clock_ns() / 1_000_000;
        let mut batch =
            BatchBuilder::new(Codec::None, TimestampType::Create).producer(self.id, self.epoch, sequence);
        batch.append(now_ms, Some(b"k"), Some(format!("{sequence}").as_bytes()), &[]);
        batch.append(now_ms, Some(b"k"), Some(format!("{}", sequence + 1).as_bytes()), &[]);
        let records: Bytes = BytesMut::from(&batch.build(records::ids::Offset::ZERO, -1)[..]).freeze();
        let data = PartitionProduceData::default().with_index(0).with_records(Some(records));
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partition_data(vec![data]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic]);
        let answer = client.call(9, &request);
        let part: &PartitionProduceResponse = &answer.responses[0].partition_responses[0];
        (part.error_code, part.base_offset)
    }
}

/// What was put where, for comparisons that know the topics.
pub(crate) type Dumps = HashMap<String, Vec<crate::bench::Record>>;
