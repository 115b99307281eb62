//! librdkafka through the rdkafka crate: what a Rust service uses today.

use std::collections::HashMap;
use std::time::Duration;

use integration_tests::foreign::KafkaTools;
use integration_tests::real_time::Deadline;
use integration_tests::test_broker::TestBroker;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, TopicPartitionList};

const TOPIC: &str = "crates";
const RECORDS: usize = 2_000;
const LIMIT: Duration = Duration::from_secs(60);

/// Fails the test when a record is not delivered.
struct Strict;

impl ClientContext for Strict {}

impl ProducerContext for Strict {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            panic!("a record was not delivered: {error}");
        }
    }
}

fn produce(bootstrap: &str, codec: &str) {
    let producer: ThreadedProducer<Strict> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("compression.type", codec)
        .create_with_context(Strict)
        .expect("the settings are valid");
    for i in 0..RECORDS {
        let (key, value) = (format!("k{}", i % 13), format!("{codec}-{i}"));
        producer
            .send(BaseRecord::to(TOPIC).key(&key).payload(&value))
            .map_err(|(error, _)| error)
            .expect("queued");
    }
    producer.flush(Timeout::After(LIMIT)).expect("all records are delivered");
}

fn consumer(bootstrap: &str) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "rust")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()
        .expect("the settings are valid");
    consumer.subscribe(&[TOPIC]).expect("subscribing is local");
    consumer
}

/// Reads `records` and commits them; the values of each key, in the order of arrival.
fn consume(bootstrap: &str, records: usize) -> HashMap<String, Vec<String>> {
    let consumer = consumer(bootstrap);
    let deadline = Deadline::after(LIMIT);
    let mut values: HashMap<String, Vec<String>> = HashMap::new();
    let mut last = None;
    for read in 0..records {
        let message = loop {
            assert!(!deadline.is_over(), "only {read} of {records} records within {LIMIT:?}");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => break message,
                Some(Err(error)) => eprintln!("poll: {error}"),
                None => {}
            }
        };
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.expect("present").to_vec()).expect("text");
        values.entry(text(message.key())).or_default().push(text(message.payload()));
        last = Some((message.partition(), message.offset()));
    }
    let (partition, offset) = last.expect("at least one record was asked for");
    let mut committed = TopicPartitionList::new();
    committed
        .add_partition_offset(TOPIC, partition, rdkafka::Offset::Offset(offset + 1))
        .expect("the offset is valid");
    consumer.commit(&committed, CommitMode::Sync).expect("the commit is accepted");
    values
}

#[test]
fn the_rdkafka_crate_produces_consumes_and_goes_on_where_it_stopped() {
    let Some(tools) = KafkaTools::require() else { return };
    let Some(mut broker) = TestBroker::start() else { return };
    broker.create_topic(&tools, TOPIC, 1);
    for (round, codec) in ["none", "zstd"].into_iter().enumerate() {
        produce(&broker.bootstrap(), codec);
        let values = consume(&broker.bootstrap(), RECORDS);
        assert_eq!(values.len(), 13, "round {round}");
        for (key, values) in values {
            let first: usize = key[1..].parse().expect("keys are numbered");
            let expected: Vec<String> =
                (first..RECORDS).step_by(13).map(|i| format!("{codec}-{i}")).collect();
            assert_eq!(values, expected, "{key} in round {round}");
        }
        // The second round starts from the commit of the first, kept over a crash.
        broker.kill_and_restart();
    }
}
