//! Metadata (key 3, v0–v13).
//!
//! v0: an empty list asks for all topics; from v1 on a null one does, and empty means none. v4: the client says whether
//! asking may create (before, it always may). v8 to v10 authorized operations of the cluster. v10 topic ids in the
//! answer, v12 in the request (KIP-516); v13 a top-level error. A topic that is named twice is answered once. Left
//! out: racks, offline replicas.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::messages::{from_uuid, to_uuid};
use protocol::wire::metadata_request::MetadataRequestTopic;
use protocol::wire::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::wire::{MetadataRequest, MetadataResponse};
use protocol::{ErrorCode, StrBytes};

use super::authorized;
use crate::catalog::{CatalogError, Topic};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// Answers with what exists, after creating what may be created.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: MetadataRequest,
) -> Result<MetadataResponse, CloseConnection> {
    let mut answer = MetadataResponse::default();
    answer.brokers = vec![this_broker(cx)];
    answer.cluster_id = (cx.api_version >= 2).then(|| StrBytes::from(&*cx.broker.cluster_id));
    answer.controller_id = cx.broker.node_id;
    if request.include_cluster_authorized_operations {
        answer.cluster_authorized_operations = authorized::CLUSTER;
    }
    let asks_operations = request.include_topic_authorized_operations;
    answer.topics = match request.topics {
        None => all(cx, asks_operations),
        Some(topics) if topics.is_empty() && cx.api_version == 0 => all(cx, asks_operations),
        Some(topics) => {
            let may_create = cx.api_version < 4 || request.allow_auto_topic_creation;
            named(cx, topics, may_create, asks_operations).await
        }
    };
    Ok(answer)
}

fn this_broker(cx: &RequestContext) -> MetadataResponseBroker {
    let mut broker = MetadataResponseBroker::default();
    broker.node_id = cx.broker.node_id;
    broker.host = StrBytes::from(cx.broker.advertised.host.as_str());
    broker.port = i32::from(cx.broker.advertised.port);
    broker
}

fn all(cx: &RequestContext, asks_operations: bool) -> Vec<MetadataResponseTopic> {
    cx.broker.catalog.image().topics().map(|topic| described(cx, topic, asks_operations)).collect()
}

async fn named(
    cx: &RequestContext,
    topics: Vec<MetadataRequestTopic>,
    may_create: bool,
    asks_operations: bool,
) -> Vec<MetadataResponseTopic> {
    let mut answers = Vec::with_capacity(topics.len());
    let mut seen = HashSet::new();
    // Ids can be asked for from v12 on; a request of v10 or v11 with one is refused as a whole (case W11).
    let refused =
        cx.api_version < 12 && topics.iter().any(|topic| !topic.topic_id.is_zero() || topic.name.is_none());
    for topic in topics {
        if !seen.insert((topic.topic_id, topic.name.clone())) {
            continue;
        }
        let answer = if refused {
            let name = topic.name.unwrap_or_default();
            failed(ErrorCode::InvalidRequest, Some(name), topic.topic_id)
        } else if !topic.topic_id.is_zero() {
            match cx.broker.catalog.image().topic_by_id(from_uuid(topic.topic_id)) {
                Some(found) => described(cx, found, asks_operations),
                None => failed(ErrorCode::UnknownTopicId, None, topic.topic_id),
            }
        } else {
            let name = topic.name.unwrap_or_default();
            match find_or_create(cx, &name, may_create).await {
                Ok(found) => described(cx, &found, asks_operations),
                Err(error) => {
                    let mut answer = failed(error_map::catalog(&error), Some(name), topic.topic_id);
                    if asks_operations {
                        answer.topic_authorized_operations = authorized::TOPIC;
                    }
                    answer
                }
            }
        };
        answers.push(answer);
    }
    answers
}

async fn find_or_create(
    cx: &RequestContext,
    name: &str,
    may_create: bool,
) -> Result<Arc<Topic>, CatalogError> {
    if may_create && cx.broker.config.auto_create_topics {
        return cx.broker.catalog.ensure(name).await;
    }
    crate::catalog::names::check(name)?;
    cx.broker.catalog.image().topic(name).cloned().ok_or(CatalogError::UnknownTopic)
}

fn described(cx: &RequestContext, topic: &Topic, asks_operations: bool) -> MetadataResponseTopic {
    let mut answer = MetadataResponseTopic::default();
    answer.name = Some(StrBytes::from(&*topic.name));
    if cx.api_version >= 10 {
        answer.topic_id = to_uuid(topic.id);
    }
    answer.is_internal = topic.internal;
    if asks_operations {
        answer.topic_authorized_operations = authorized::TOPIC;
    }
    let node = cx.broker.node_id;
    answer.partitions = (0..topic.partitions)
        .map(|index| {
            let mut partition = MetadataResponsePartition::default();
            partition.partition_index = index;
            partition.leader_id = node;
            if cx.api_version >= 7 {
                partition.leader_epoch = cx.broker.leader_epoch;
            }
            partition.replica_nodes = vec![node];
            partition.isr_nodes = vec![node];
            partition
        })
        .collect();
    answer
}

fn failed(error: ErrorCode, name: Option<StrBytes>, id: protocol::Uuid) -> MetadataResponseTopic {
    let mut answer = MetadataResponseTopic::default();
    answer.error_code = error.code();
    answer.name = name;
    answer.topic_id = id;
    answer
}
