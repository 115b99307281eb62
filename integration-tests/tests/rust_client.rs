//! The Rust client against the `sluice` binary: what it refuses, and that it works otherwise.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Error, KeyShareConsumer, Outcome};
use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{MetadataRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

const TOPIC: TopicName = TopicName(StrBytes::from_static_str("orders"));
const RECORDS: u64 = 200;

fn produce(client: &mut ApiClient) {
    let topic = MetadataRequestTopic::default().with_name(Some(TOPIC));
    let request =
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(true);
    client.call(9, &request);
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    for number in 0..RECORDS {
        batch.append(1, Some(&(number % 7).to_be_bytes()), Some(&number.to_be_bytes()), &[]);
    }
    let data = PartitionProduceData::default().with_records(Some(batch.build(Offset(0), -1)));
    let data = TopicProduceData::default().with_name(TOPIC).with_partition_data(vec![data]);
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
    assert_eq!(client.call(9, &request).responses[0].partition_responses[0].error_code, 0);
}

#[test]
fn a_group_without_order_is_refused_with_what_to_do() {
    let broker = BrokerProcess::start();
    let mut client = ApiClient::connect(broker.bootstrap());
    produce(&mut client);
    assert_eq!(client.configure_group("billing", &[("share.auto.offset.reset", "earliest")]), 0);
    let consumer = KeyShareConsumer::builder(broker.bootstrap(), "billing").topic("orders").build();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused = runtime.block_on(consumer.run(std::future::pending::<()>(), |_| async { Outcome::Accept }));
    let text = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(refused, Err(Error::NotKeyOrdered { .. })), "{text}");
    assert!(text.contains("--entity-name billing --add-config sluice.share.order=key"), "{text}");

    assert_eq!(client.configure_group("billing", &[("sluice.share.order", "key")]), 0);
    let seen = Arc::new(Mutex::new(vec![Vec::new(); 7]));
    let done = Arc::new(AtomicU64::new(0));
    let all_done = Arc::new(tokio::sync::Notify::new());
    let handler = {
        let (seen, done, all_done) = (Arc::clone(&seen), Arc::clone(&done), Arc::clone(&all_done));
        move |record: client::Record| {
            let (seen, done, all_done) = (Arc::clone(&seen), Arc::clone(&done), Arc::clone(&all_done));
            async move {
                let key = record.key.as_ref().map_or(0, |key| usize::from(key[7]));
                seen.lock().expect("nobody panics")[key].push(record.offset);
                if done.fetch_add(1, Ordering::SeqCst) + 1 == RECORDS {
                    all_done.notify_one();
                }
                Outcome::Accept
            }
        }
    };
    runtime.block_on(async {
        let until = tokio::time::timeout(Duration::from_secs(60), all_done.notified());
        consumer.run(until, handler).await.expect("the group keeps order now");
    });
    assert_eq!(done.load(Ordering::SeqCst), RECORDS);
    assert!(seen.lock().expect("nobody panics").iter().all(|offsets| offsets.is_sorted()));
}
