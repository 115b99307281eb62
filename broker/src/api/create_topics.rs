//! CreateTopics (key 19, v2–v7).
//!
//! One result a topic, in the order of the request; a name that stands twice gets one result, INVALID_REQUEST. What
//! is answered with success is stored. Partition count −1 and replication factor −1 mean the broker's defaults
//! (KIP-464); replicas can be assigned by hand, to this broker. `validate_only` checks and makes nothing. A timeout
//! of zero or less times out, as in Kafka. v5 tells what was made, all settings included (KIP-525), v7 the topic id
//! (KIP-516). Left out: quotas on changes (KIP-599), policies other than the bound on partitions.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::messages::to_uuid;
use protocol::wire::create_topics_request::CreatableTopic;
use protocol::wire::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::wire::{CreateTopicsRequest, CreateTopicsResponse};
use protocol::{ErrorCode, StrBytes};
use records::ids::TopicId;

use super::refusal::Refusal;
use super::{assignments, fixed};
use crate::catalog::{NewTopic, PARTITIONS_MAX};
use crate::config::Overrides;
use crate::context::RequestContext;

/// Internal topic of Kafka's controllers, which nobody may make (`Topic.CLUSTER_METADATA_TOPIC_NAME`).
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// What stands in the answer of a topic that was made, or could be.
struct Made {
    id: TopicId,
    partitions: i32,
    configs: Overrides,
}

/// Makes topics one after another.
pub async fn handle(cx: &RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut counts: HashMap<StrBytes, u32> = HashMap::new();
    for topic in &request.topics {
        *counts.entry(topic.name.clone()).or_default() += 1;
    }
    let mut answer = CreateTopicsResponse::default();
    let mut partitions_left = PARTITIONS_MAX;
    for topic in request.topics {
        let made = match counts.remove(&topic.name) {
            None => continue,
            Some(1) if request.timeout_ms <= 0 => Err(Refusal::timed_out()),
            Some(1) => make(cx, &topic, request.validate_only, &mut partitions_left).await,
            Some(_) => Err(Refusal::invalid("the topic is named twice: name it once")),
        };
        answer.topics.push(result(cx, topic.name, made));
    }
    answer
}

async fn make(
    cx: &RequestContext,
    topic: &CreatableTopic,
    validate_only: bool,
    partitions_left: &mut i32,
) -> Result<Made, Refusal> {
    if &*topic.name == CLUSTER_METADATA {
        return Err(Refusal::invalid("this topic is internal: choose another name"));
    }
    let new = NewTopic {
        name: Arc::from(&*topic.name),
        partitions: partition_count(cx, topic)?,
        replication_factor: topic.replication_factor,
        configs: topic
            .configs
            .iter()
            .map(|setting| (setting.name.to_string(), setting.value.as_ref().map(ToString::to_string)))
            .collect(),
    };
    let (partitions, configs) = cx.broker.catalog.check_new(&new)?;
    if partitions > *partitions_left {
        let text = format!("more than {PARTITIONS_MAX} partitions in one request: send several");
        return Err(Refusal::new(ErrorCode::PolicyViolation, text));
    }
    *partitions_left -= partitions;
    if validate_only {
        return Ok(Made { id: TopicId::ZERO, partitions, configs });
    }
    let made = cx.broker.catalog.create(&new).await?;
    Ok(Made { id: made.id, partitions: made.partitions, configs: made.configs.clone() })
}

/// How many partitions are asked for, by number or by assigning them.
fn partition_count(cx: &RequestContext, topic: &CreatableTopic) -> Result<i32, Refusal> {
    if topic.assignments.is_empty() {
        return Ok(topic.num_partitions);
    }
    if topic.replication_factor != -1 || topic.num_partitions != -1 {
        return Err(Refusal::invalid(
            "replicas are assigned by hand: give -1 as partition count and as replication factor",
        ));
    }
    let given: Vec<(i32, &[i32])> = topic
        .assignments
        .iter()
        .map(|assignment| (assignment.partition_index, assignment.broker_ids.as_slice()))
        .collect();
    assignments::partitions(cx.broker.node_id, &given)
}

fn result(cx: &RequestContext, name: StrBytes, made: Result<Made, Refusal>) -> CreatableTopicResult {
    let mut result = CreatableTopicResult::default();
    result.name = name;
    match made {
        Ok(made) => {
            result.error_message = None;
            if cx.api_version >= 5 {
                result.num_partitions = made.partitions;
                result.replication_factor = 1;
                result.configs = Some(settings(cx, &made.configs));
            }
            if cx.api_version >= 7 {
                result.topic_id = to_uuid(made.id);
            }
        }
        Err(refusal) => {
            result.error_code = refusal.code.code();
            result.error_message = refusal.message();
        }
    }
    result
}

fn settings(cx: &RequestContext, own: &Overrides) -> Vec<CreatableTopicConfigs> {
    cx.broker
        .config
        .describe_topic(own)
        .into_iter()
        .map(|described| {
            let mut setting = CreatableTopicConfigs::default();
            setting.name = fixed(described.definition.name);
            setting.value = described.value.map(StrBytes::from);
            setting.config_source = described.source as i8;
            setting
        })
        .collect()
}
