//! A broker, a connection, and the requests of these tests in short form.

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

/// Resource types.
pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
pub(crate) const GROUP: i8 = 32;

/// Operations on settings.
pub(crate) const SET: i8 = 0;
pub(crate) const DELETE: i8 = 1;
pub(crate) const APPEND: i8 = 2;
pub(crate) const SUBTRACT: i8 = 3;

/// Where values come from.
pub(crate) const SET_ON_TOPIC: i8 = 1;
pub(crate) const SET_ON_GROUP: i8 = 8;
pub(crate) const DEFAULT: i8 = 5;

pub(crate) struct Fixture {
    pub(crate) broker: BrokerProcess,
    pub(crate) client: ApiClient,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let broker = BrokerProcess::start_with(arguments);
        let client = ApiClient::connect(broker.bootstrap());
        Self { broker, client }
    }

    /// kill -9 and a new start on the same data.
    pub(crate) fn kill_and_restart(&mut self) {
        self.broker.kill();
        self.broker.restart();
        self.client = ApiClient::connect(self.broker.bootstrap());
    }

    pub(crate) fn create(&mut self, version: i16, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
        let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(10_000);
        self.client.call(version, &request).topics
    }

    /// Creates a topic that must succeed.
    #[track_caller]
    pub(crate) fn topic(&mut self, name: &str, partitions: i32) -> CreatableTopicResult {
        self.topic_with(name, partitions, &[])
    }

    #[track_caller]
    pub(crate) fn topic_with(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> CreatableTopicResult {
        let mut new = new_topic(name, partitions, 1);
        new.configs = configs.iter().map(|(name, value)| setting(name, Some(value))).collect();
        let created = self.create(7, vec![new]).remove(0);
        assert_eq!(created.error_code, 0, "{created:?}");
        created
    }

    /// Describes one resource with all that can be asked for.
    pub(crate) fn describe(&mut self, kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()));
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![resource])
            .with_include_synonyms(true)
            .with_include_documentation(true);
        self.client.call(4, &request).results.remove(0)
    }

    /// One setting, as described.
    #[track_caller]
    pub(crate) fn setting(&mut self, kind: i8, name: &str, key: &str) -> DescribeConfigsResourceResult {
        let described = self.describe(kind, name, Some(&[key]));
        assert_eq!((described.error_code, described.configs.len()), (0, 1), "{described:?}");
        described.configs.into_iter().next().expect("one")
    }

    /// Value and source of one setting.
    #[track_caller]
    pub(crate) fn value(&mut self, kind: i8, name: &str, key: &str) -> (String, i8) {
        let setting = self.setting(kind, name, key);
        (setting.value.map(|value| value.to_string()).unwrap_or_default(), setting.config_source)
    }

    /// Changes one resource: error code and text.
    pub(crate) fn alter(
        &mut self,
        kind: i8,
        name: &str,
        changes: &[(&str, i8, Option<&str>)],
    ) -> (i16, String) {
        self.alter_as(kind, name, changes, false)
    }

    pub(crate) fn alter_as(
        &mut self,
        kind: i8,
        name: &str,
        changes: &[(&str, i8, Option<&str>)],
        validate_only: bool,
    ) -> (i16, String) {
        let request = IncrementalAlterConfigsRequest::default()
            .with_resources(vec![resource(kind, name, changes)])
            .with_validate_only(validate_only);
        let response = self.client.call(1, &request).responses.remove(0);
        assert_eq!((response.resource_type, &*response.resource_name), (kind, name));
        (response.error_code, response.error_message.map(|text| text.to_string()).unwrap_or_default())
    }

    /// Produces one batch of records with these timestamps: error code and base offset.
    pub(crate) fn produce(&mut self, topic: &str, timestamps: &[i64], codec: Codec) -> (i16, i64) {
        self.produce_values(topic, timestamps, codec, b"v")
    }

    pub(crate) fn produce_values(
        &mut self,
        topic: &str,
        timestamps: &[i64],
        codec: Codec,
        value: &[u8],
    ) -> (i16, i64) {
        let mut builder = BatchBuilder::new(codec, TimestampType::Create);
        for timestamp in timestamps {
            builder.append(*timestamp, Some(b"k"), Some(value), &[]);
        }
        let batch = builder.build(Offset(0), -1).to_vec();
        let partition = PartitionProduceData::default().with_index(0).with_records(Some(batch.into()));
        let data =
            TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![partition]);
        let request =
            ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![data]);
        let answer = self.client.call(9, &request).responses.remove(0).partition_responses.remove(0);
        (answer.error_code, answer.base_offset)
    }
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

pub(crate) fn new_topic(name: &str, partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
}

pub(crate) fn setting(name: &str, value: Option<&str>) -> CreatableTopicConfig {
    CreatableTopicConfig::default().with_name(text(name)).with_value(value.map(text))
}

pub(crate) fn resource(kind: i8, name: &str, changes: &[(&str, i8, Option<&str>)]) -> AlterConfigsResource {
    let configs = changes
        .iter()
        .map(|(name, operation, value)| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        })
        .collect();
    AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs)
}
