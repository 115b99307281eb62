//! A broker that stood still for longer than a lock takes nothing from its members: they did nothing wrong, and a stock
//! client works on.

use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::pause;
use integration_tests::share_member::{ACCEPT, ALL, Acknowledged, ShareMember};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

const TOPIC: &str = "orders";
/// The shortest lock that a group may have, and a little more.
const LOCK_MS: &str = "15000";
const STANDSTILL: Duration = Duration::from_millis(15_500);

#[test]
fn a_broker_that_stood_still_takes_no_lock_away() {
    let broker = BrokerProcess::start();
    let mut admin = ApiClient::connect(broker.bootstrap());
    let topic = create_topic(&mut admin);
    produce(&mut admin);
    let group = [
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", "key"),
        ("share.record.lock.duration.ms", LOCK_MS),
    ];
    assert_eq!(admin.configure_group("workers", &group), 0);
    let [mut a, mut b] = ["a", "b"].map(|name| {
        let mut member = ShareMember::connect(broker.bootstrap(), "workers", name, topic);
        member.join(TOPIC);
        member
    });
    let mut taken = a.fetch(ALL);
    for _ in 0..20 {
        if taken.count() > 0 {
            break;
        }
        taken = a.fetch(ALL);
    }
    assert_eq!(taken.acquired().collect::<Vec<_>>(), [(0, 0, 1)]);

    broker.stand_still();
    pause(STANDSTILL);
    broker.go_on();
    assert_eq!(b.fetch(ALL).count(), 0, "a holds the record");
    assert_eq!(a.acknowledge(false, &[(0, 0, &[ACCEPT])]), Acknowledged { error: 0, parts: vec![0] });
    assert!(broker.log().contains("the broker stood still"), "{}", broker.log());
}

fn create_topic(admin: &mut ApiClient) -> [u8; 16] {
    let topic = CreatableTopic::default().with_name(name()).with_num_partitions(1).with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![topic]);
    let created = admin.call(7, &request).topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    created.topic_id.into_bytes()
}

fn produce(admin: &mut ApiClient) {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, Some(b"key"), Some(b"value"), &[]);
    let records = batch.build(Offset(0), -1);
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let topic = TopicProduceData::default().with_name(name()).with_partition_data(vec![partition]);
    let request =
        ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic]);
    let answer = admin.call(9, &request);
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

fn name() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}
