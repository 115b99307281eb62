//! Requests that benches send themselves.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use integration_tests::api_client::ApiClient;
use integration_tests::real_time::wait_until;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{BrokerId, CreateTopicsRequest, FetchRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

/// A topic that was made just now becomes known to the partition's leader.
const PRODUCE_LIMIT: Duration = Duration::from_secs(30);

/// A topic's name.
#[must_use]
pub fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Makes a topic with these settings; its id.
pub fn create(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    configs: &[(&'static str, &'static str)],
) -> [u8; 16] {
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_static_str(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_timeout_ms(60_000).with_topics(vec![topic]);
    let answer = ApiClient::connect(bootstrap).call(7, &request);
    assert_eq!(answer.topics[0].error_code, 0, "{bootstrap}: {:?}", answer.topics[0].error_message);
    *answer.topics[0].topic_id.as_bytes()
}

/// Sets settings of a share group, which need not exist.
pub fn configure_group(bootstrap: &str, group: &str, configs: &[(&str, &str)]) {
    let error = ApiClient::connect(bootstrap).configure_group(group, configs);
    assert_eq!(error, 0, "{bootstrap}: the settings of {group}");
}

/// Appends batches to partition 0 of a topic, one after another, each acknowledged when written.
pub fn load(bootstrap: &str, topic: &str, batches: impl IntoIterator<Item = Bytes>) {
    let mut client = ApiClient::connect(bootstrap);
    for batch in batches {
        let request = produce(topic, 0..1, &batch, 1);
        let mut error = 0;
        let done = wait_until(PRODUCE_LIMIT, || {
            error = client.call(9, &request).responses[0].partition_responses[0].error_code;
            error == 0
        });
        assert!(done, "{bootstrap}: a batch is answered by {error}");
    }
}

/// Produce (v9) of the same batch to each of these partitions.
#[must_use]
pub fn produce(topic: &str, partitions: Range<i32>, batch: &Bytes, acks: i16) -> ProduceRequest {
    let parts = partitions
        .map(|index| PartitionProduceData::default().with_index(index).with_records(Some(batch.clone())))
        .collect();
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(parts);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// Fetch (v12) of a topic's only partition from an offset on, without a session: waits for a record.
#[must_use]
pub fn fetch(topic: &str, from: i64) -> FetchRequest {
    let part =
        FetchPartition::default().with_partition(0).with_fetch_offset(from).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![part]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}
