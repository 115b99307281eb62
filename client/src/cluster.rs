//! Finding one's way: bootstrap, API versions, topic names and leaders, the group's coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, DescribeConfigsRequest, FindCoordinatorRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use protocol::{ApiKey, ErrorCode};
use records::ids::TopicId;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::{Error, Lost};

const API_VERSIONS: i16 = 3;
const METADATA: i16 = 12;
const FIND_COORDINATOR: i16 = 4;
const DESCRIBE_CONFIGS: i16 = 4;

/// Resource type of groups (KIP-848).
const GROUP_RESOURCE: i8 = 32;
/// The setting that makes a share group keep its keys in order.
const ORDER: &str = "sluice.share.order";

/// Key type of FindCoordinator for groups.
const GROUP_COORDINATOR: i8 = 0;

/// What is known of the topics that a consumer reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topics {
    /// By id: name, and the leader's address of each partition.
    pub(crate) by_id: BTreeMap<TopicId, (Arc<str>, BTreeMap<i32, String>)>,
}

/// Whether the broker serves the key-share API (a broker that does not know it would close the connection).
pub(crate) async fn require_key_share(connection: &mut Connection, address: &str) -> Result<(), Lost> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("sluice-client"))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
    let answer = connection.call(API_VERSIONS, &request).await?;
    check("ApiVersions", answer.error_code, None)?;
    let served = [ApiKey::KeyShareFetch, ApiKey::KeyShareAcknowledge]
        .iter()
        .all(|key| answer.api_keys.iter().any(|api| api.api_key == key.code()));
    if served { Ok(()) } else { Err(Error::NotSupported { address: address.to_owned() }.into()) }
}

/// Whether the group keeps keys in order: an ordinary share group does not, and nothing would show it.
pub(crate) async fn require_key_order(connection: &mut Connection, group: &str) -> Result<(), Lost> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(GROUP_RESOURCE)
        .with_resource_name(StrBytes::from_string(group.to_owned()))
        .with_configuration_keys(Some(vec![StrBytes::from_static_str(ORDER)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = connection.call(DESCRIBE_CONFIGS, &request).await?;
    let Some(told) = answer.results.first() else {
        return Err(Lost::Malformed("no group in the answer".to_owned()));
    };
    check("DescribeConfigs", told.error_code, told.error_message.as_ref().map(StrBytes::as_str))?;
    let order = told.configs.iter().find(|config| config.name.as_str() == ORDER);
    match order.and_then(|config| config.value.as_ref()).map(StrBytes::as_str) {
        Some("key") => Ok(()),
        _ => Err(Error::NotKeyOrdered { group: group.to_owned() }.into()),
    }
}

/// Names and leaders of topics, by id.
pub(crate) async fn topics(connection: &mut Connection, ids: &[TopicId]) -> Result<Topics, Lost> {
    let asked = ids
        .iter()
        .map(|id| MetadataRequestTopic::default().with_topic_id(Uuid::from_bytes(id.0)).with_name(None))
        .collect();
    let request = MetadataRequest::default().with_topics(Some(asked)).with_allow_auto_topic_creation(false);
    let answer = connection.call(METADATA, &request).await?;
    let brokers: BTreeMap<i32, String> = answer
        .brokers
        .iter()
        .map(|broker| (broker.node_id.0, format!("{}:{}", broker.host.as_str(), broker.port)))
        .collect();
    let mut topics = Topics::default();
    for topic in answer.topics {
        let Some(name) = topic.name.filter(|_| topic.error_code == 0) else { continue };
        let leaders = topic
            .partitions
            .iter()
            .filter_map(|partition| {
                Some((partition.partition_index, brokers.get(&partition.leader_id.0)?.clone()))
            })
            .collect();
        topics.by_id.insert(TopicId(*topic.topic_id.as_bytes()), (Arc::from(name.as_str()), leaders));
    }
    Ok(topics)
}

/// A topic's id, and the address of the broker that leads its first partition.
pub(crate) async fn topic_by_name(
    connection: &mut Connection,
    name: &str,
) -> Result<(TopicId, Option<String>), Lost> {
    let asked =
        MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))));
    let request =
        MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(false);
    let answer = connection.call(METADATA, &request).await?;
    let Some(topic) = answer.topics.first() else {
        return Err(Lost::Malformed("no topic in the answer".to_owned()));
    };
    if topic.error_code != 0 {
        let code = ErrorCode::from_code(topic.error_code).unwrap_or(ErrorCode::UnknownServerError);
        return Err(Error::Refused { what: "Metadata", code, message: format!("topic {name}") }.into());
    }
    let leader = topic.partitions.first().map(|partition| partition.leader_id);
    let broker = answer.brokers.iter().find(|broker| Some(broker.node_id) == leader);
    let address = broker.map(|broker| format!("{}:{}", broker.host.as_str(), broker.port));
    Ok((TopicId(*topic.topic_id.as_bytes()), address))
}

/// Address of the group's coordinator.
pub(crate) async fn coordinator(connection: &mut Connection, group: &str) -> Result<String, Lost> {
    let request = FindCoordinatorRequest::default()
        .with_key_type(GROUP_COORDINATOR)
        .with_coordinator_keys(vec![StrBytes::from_string(group.to_owned())]);
    let answer = connection.call(FIND_COORDINATOR, &request).await?;
    let Some(found) = answer.coordinators.first() else {
        return Err(Lost::Malformed("no coordinator in the answer".to_owned()));
    };
    check("FindCoordinator", found.error_code, found.error_message.as_ref().map(StrBytes::as_str))?;
    Ok(format!("{}:{}", found.host.as_str(), found.port))
}

/// Sorts an answer's code: fine, try again, or the end.
pub(crate) fn check(what: &'static str, code: i16, message: Option<&str>) -> Result<(), Lost> {
    let code = ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError);
    if code == ErrorCode::None {
        Ok(())
    } else if code.is_retriable() {
        Err(Lost::Retriable(code))
    } else {
        let message = message.unwrap_or("no message").to_owned();
        Err(Error::Refused { what, code, message }.into())
    }
}
