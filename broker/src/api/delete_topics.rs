//! DeleteTopics (key 20, v1–v6).
//!
//! v6 deletes by name or by id (KIP-516), one of both; before, by name. One result a topic in the order of the
//! request; what stands twice gets one result, INVALID_REQUEST. A timeout of zero or less times out, as in Kafka. v5
//! adds a text to errors. With `delete.topic.enable=false` nothing is deleted (v3, KIP-322). Left out: quotas on
//! changes (KIP-599).

use std::collections::HashMap;
use std::sync::Arc;

use protocol::messages::{from_uuid, to_uuid};
use protocol::wire::delete_topics_request::DeleteTopicState;
use protocol::wire::delete_topics_response::DeletableTopicResult;
use protocol::wire::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::{ErrorCode, StrBytes, Uuid};

use super::refusal::Refusal;
use crate::catalog::{CatalogError, Topic};
use crate::context::RequestContext;

/// How a topic is named: by its name, or by its id.
type Named = (Option<StrBytes>, Uuid);

/// Deletes topics one after another.
pub async fn handle(cx: &RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let names = request.topic_names.into_iter().map(|name| (Some(name), Uuid::ZERO));
    let topics: Vec<Named> = names.chain(request.topics.into_iter().map(named)).collect();
    let mut counts: HashMap<Named, u32> = HashMap::new();
    for topic in &topics {
        *counts.entry(topic.clone()).or_default() += 1;
    }
    let mut answer = DeleteTopicsResponse::default();
    for topic in topics {
        let deleted = match counts.remove(&topic) {
            None => continue,
            Some(1) => delete(cx, &topic, request.timeout_ms).await,
            Some(_) => Err(Refusal::invalid("the topic is named twice: name it once")),
        };
        answer.responses.push(result(cx, topic, deleted));
    }
    answer
}

fn named(topic: DeleteTopicState) -> Named {
    (topic.name, topic.topic_id)
}

async fn delete(cx: &RequestContext, (name, id): &Named, timeout_ms: i32) -> Result<Arc<Topic>, Refusal> {
    let image = cx.broker.catalog.image();
    let found = match name {
        Some(_) if !id.is_zero() => return Err(Refusal::invalid("both name and id are given: give one")),
        Some(name) => image.topic(name).ok_or(CatalogError::UnknownTopic),
        None if id.is_zero() => return Err(Refusal::invalid("neither name nor id is given: give one")),
        None => image.topic_by_id(from_uuid(*id)).ok_or(CatalogError::UnknownTopicId),
    };
    if timeout_ms <= 0 {
        return Err(Refusal::timed_out());
    }
    if cx.broker.config.text("delete.topic.enable") == Some("false") {
        let code = match cx.api_version {
            ..3 => ErrorCode::InvalidRequest,
            _ => ErrorCode::TopicDeletionDisabled,
        };
        return Err(Refusal::new(code, "topics cannot be deleted: delete.topic.enable is false"));
    }
    Ok(cx.broker.catalog.delete(found?.id).await?)
}

fn result(
    cx: &RequestContext,
    (name, id): Named,
    deleted: Result<Arc<Topic>, Refusal>,
) -> DeletableTopicResult {
    let mut result = DeletableTopicResult::default();
    result.name = name;
    result.error_message = None;
    let by_id = cx.api_version >= 6;
    if by_id {
        result.topic_id = id;
    }
    match deleted {
        Ok(topic) => {
            result.name = Some(StrBytes::from(&*topic.name));
            if by_id {
                result.topic_id = to_uuid(topic.id);
            }
        }
        Err(refusal) => {
            result.error_code = refusal.code.code();
            if cx.api_version >= 5 {
                result.error_message = refusal.message();
            }
        }
    }
    result
}
