//! W13: every version of every API of this file set is answered in its own layout, success and refusal alike. The
//! client decodes with a second implementation and leaves no byte over.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreatePartitionsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    ListConfigResourcesRequest, ListOffsetsRequest, MetadataRequest, ProducerId,
};

use super::support::{BROKER, Fixture, GROUP, SET, TOPIC, new_topic, resource, setting, text, topic_name};

#[test]
fn w13_topics() {
    let mut fixture = Fixture::start();
    for version in 2..=7 {
        let mut good = new_topic(&format!("t{version}"), 1, 1);
        good.configs = vec![setting("retention.ms", Some("5"))];
        let results = fixture.create(version, vec![good, new_topic("a b", 1, 1)]);
        assert_eq!(results.iter().map(|one| one.error_code).collect::<Vec<_>>(), [0, 17], "v{version}");
    }
    for version in 0..=3 {
        let grow = |name: &str| {
            CreatePartitionsTopic::default()
                .with_name(topic_name(name))
                .with_count(2 + i32::from(version))
                .with_assignments(None)
        };
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![grow("t2"), grow("nope")])
            .with_timeout_ms(1000);
        let results = fixture.client.call(version, &request).results;
        assert_eq!(results.iter().map(|one| one.error_code).collect::<Vec<_>>(), [0, 3], "v{version}");
    }
    for version in 1..=6 {
        let names = [format!("t{}", version + 1), "nope".to_owned()];
        let request = DeleteTopicsRequest::default().with_timeout_ms(1000);
        let request = if version < 6 {
            request.with_topic_names(names.iter().map(|name| topic_name(name)).collect())
        } else {
            let by_name = |name: &String| DeleteTopicState::default().with_name(Some(topic_name(name)));
            request.with_topics(names.iter().map(by_name).collect())
        };
        let responses = fixture.client.call(version, &request).responses;
        assert_eq!(responses.iter().map(|one| one.error_code).collect::<Vec<_>>(), [0, 3], "v{version}");
    }
}

#[test]
fn w13_offsets() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    for version in 1..=11 {
        let ask = |index| {
            ListOffsetsPartition::default()
                .with_partition_index(index)
                .with_current_leader_epoch(-1)
                .with_timestamp(-1)
        };
        let topic =
            ListOffsetsTopic::default().with_name(topic_name("t")).with_partitions(vec![ask(0), ask(1)]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let answer = fixture.client.call_as(version, version.min(10), &request).topics.remove(0);
        let codes: Vec<i16> = answer.partitions.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [0, 3], "v{version}");
    }
    for version in 0..=2 {
        let cut = |index| DeleteRecordsPartition::default().with_partition_index(index).with_offset(0);
        let topic =
            DeleteRecordsTopic::default().with_name(topic_name("t")).with_partitions(vec![cut(0), cut(1)]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1000);
        let answer = fixture.client.call(version, &request).topics.remove(0);
        let codes: Vec<i16> = answer.partitions.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [0, 3], "v{version}");
    }
}

#[test]
fn w13_configs() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    for version in 0..=1 {
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![
            resource(TOPIC, "t", &[("retention.ms", SET, Some("5"))]),
            resource(GROUP, "g", &[("zz", SET, Some("5"))]),
        ]);
        let responses = fixture.client.call(version, &request).responses;
        assert_eq!(responses.iter().map(|one| one.error_code).collect::<Vec<_>>(), [0, 40], "v{version}");
    }
    for version in 1..=4 {
        let describe = |kind, name: &str| {
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys(None)
        };
        let resources =
            vec![describe(TOPIC, "t"), describe(GROUP, "g"), describe(BROKER, "1"), describe(TOPIC, "nope")];
        let request = DescribeConfigsRequest::default()
            .with_resources(resources)
            .with_include_synonyms(true)
            .with_include_documentation(version >= 3);
        let results = fixture.client.call(version, &request).results;
        let codes: Vec<i16> = results.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [0, 0, 0, 3], "v{version}");
        assert!(results[0].configs.iter().all(|one| (one.config_type == 0) == (version < 3)));
    }
    for version in 0..=1 {
        let answer = fixture.client.call(version, &ListConfigResourcesRequest::default());
        assert_eq!((answer.error_code, answer.config_resources.is_empty()), (0, version == 0));
    }
}

#[test]
fn w13_the_cluster() {
    let mut fixture = Fixture::start();
    for version in 0..=4 {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(if version < 3 { "" } else { "a" }))
            .with_client_software_version(text(if version < 3 { "" } else { "1" }));
        let answer = fixture.client.call(version, &request);
        assert_eq!(answer.error_code, 0, "v{version}");
        assert!(answer.api_keys.is_sorted_by_key(|api| api.api_key));
    }
    for version in 0..=2 {
        let request = DescribeClusterRequest::default().with_endpoint_type(1);
        assert_eq!(fixture.client.call(version, &request).error_code, 0, "v{version}");
    }
    for version in 0..=13 {
        // All topics: an empty list in version 0, a null one later.
        let request = MetadataRequest::default().with_topics((version == 0).then(Vec::new));
        let answer = fixture.client.call(version, &request);
        assert_eq!(answer.brokers.len(), 1, "v{version}");
    }
    for version in 0..=5 {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
            .with_transaction_timeout_ms(-1);
        assert_eq!(fixture.client.call(version, &request).error_code, 0, "v{version}");
    }
}
