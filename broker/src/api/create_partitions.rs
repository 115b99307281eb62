//! CreatePartitions (key 37, v0–v3).
//!
//! Raises a topic's number of partitions (KIP-195) to a greater one. One result a topic; a name that stands twice gets
//! one result, INVALID_REQUEST. Replicas of the new partitions can be assigned by hand, to this broker. A timeout of
//! zero or less times out, as in Kafka. Left out: quotas on changes (KIP-599).

use std::collections::HashMap;

use protocol::wire::create_partitions_request::CreatePartitionsTopic;
use protocol::wire::create_partitions_response::CreatePartitionsTopicResult;
use protocol::wire::{CreatePartitionsRequest, CreatePartitionsResponse};
use protocol::{ErrorCode, StrBytes};

use super::assignments;
use super::refusal::Refusal;
use crate::context::RequestContext;

/// Grows topics one after another.
pub async fn handle(cx: &RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let mut counts: HashMap<StrBytes, u32> = HashMap::new();
    for topic in &request.topics {
        *counts.entry(topic.name.clone()).or_default() += 1;
    }
    let mut answer = CreatePartitionsResponse::default();
    for topic in request.topics {
        let grown = match counts.remove(&topic.name) {
            None => continue,
            Some(1) if request.timeout_ms <= 0 => Err(Refusal::timed_out()),
            Some(1) => grow(cx, &topic, request.validate_only).await,
            Some(_) => Err(Refusal::invalid("the topic is named twice: name it once")),
        };
        let mut result = CreatePartitionsTopicResult::default();
        result.name = topic.name;
        result.error_message = None;
        if let Err(refusal) = grown {
            result.error_code = refusal.code.code();
            result.error_message = refusal.message();
        }
        answer.results.push(result);
    }
    answer
}

async fn grow(
    cx: &RequestContext,
    topic: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Refusal> {
    let catalog = &cx.broker.catalog;
    let before = catalog.check_partitions(&topic.name, topic.count)?;
    if let Some(given) = &topic.assignments {
        let added = topic.count - before.partitions;
        if usize::try_from(added) != Ok(given.len()) {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicaAssignment,
                format!("{added} partitions are added but {} assigned: assign each", given.len()),
            ));
        }
        for assignment in given {
            assignments::check(cx.broker.node_id, &assignment.broker_ids)?;
        }
    }
    if !validate_only {
        catalog.add_partitions(&topic.name, topic.count).await?;
    }
    Ok(())
}
