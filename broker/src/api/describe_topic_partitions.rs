//! DescribeTopicPartitions (key 75, v0).
//!
//! Topics and their partitions, page by page (KIP-966): topics in the order of their names, whatever the request's
//! order, from the cursor on, as many partitions as the limit admits. A topic that is named and does not exist is
//! told and costs nothing of the limit; so a topic that goes while someone walks does not stop the walk. No names ask
//! for all topics. Eligible leaders and the last known ones are empty, never null: the stock tool fails on null. A
//! cursor that cannot be is INVALID_REQUEST for every topic, as in Kafka. Left out: other replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::messages::to_uuid;
use protocol::wire::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::wire::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use protocol::{ErrorCode, StrBytes};

use super::authorized;
use crate::catalog::{CatalogError, Image, Topic, names};
use crate::context::RequestContext;
use crate::error_map;

/// Most partitions of an answer, whatever is asked for (`max.request.partition.size.limit`).
const PARTITIONS_TOLD_MAX: i32 = 2_000;

/// Answers at once.
#[must_use]
pub fn handle(
    cx: &RequestContext,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = cx.broker.catalog.image();
    let mut answer = DescribeTopicPartitionsResponse::default();
    let wanted = wanted(&image, request);
    let (from, mut first) = match &request.cursor {
        None => (StrBytes::default(), 0),
        Some(cursor) => {
            let is_named = request.topics.is_empty() || wanted.contains_key(&cursor.topic_name);
            if cursor.partition_index < 0 || !is_named {
                let refused =
                    |topic: &StrBytes| failed(topic, ErrorCode::InvalidRequest, authorized::NOT_ASKED);
                answer.topics = request.topics.iter().map(|topic| refused(&topic.name)).collect();
                return answer;
            }
            (cursor.topic_name.clone(), cursor.partition_index)
        }
    };
    let mut left = request.response_partition_limit.clamp(1, PARTITIONS_TOLD_MAX);
    for (name, found) in wanted.range(from.clone()..) {
        let begin = if *name == from { std::mem::take(&mut first) } else { 0 };
        match found {
            Err(error) if left > 0 => {
                answer.topics.push(failed(name, error_map::catalog(error), authorized::TOPIC));
            }
            Ok(topic) if left > 0 => {
                let end = topic.partitions.min(begin.saturating_add(left));
                left -= (end - begin).max(0);
                answer.topics.push(described(cx, topic, begin, end));
                if end < topic.partitions {
                    answer.next_cursor = Some(cursor(name, end));
                    break;
                }
            }
            Ok(_) | Err(_) => {
                answer.next_cursor = Some(cursor(name, 0));
                break;
            }
        }
    }
    answer
}

/// The topics that are asked for, by name.
fn wanted(
    image: &Image,
    request: &DescribeTopicPartitionsRequest,
) -> BTreeMap<StrBytes, Result<Arc<Topic>, CatalogError>> {
    if request.topics.is_empty() {
        return image.topics().map(|topic| (StrBytes::from(&*topic.name), Ok(Arc::clone(topic)))).collect();
    }
    let find = |name: &StrBytes| {
        names::check(name)?;
        image.topic(name).cloned().ok_or(CatalogError::UnknownTopic)
    };
    request.topics.iter().map(|topic| (topic.name.clone(), find(&topic.name))).collect()
}

fn described(
    cx: &RequestContext,
    topic: &Topic,
    begin: i32,
    end: i32,
) -> DescribeTopicPartitionsResponseTopic {
    let mut told = DescribeTopicPartitionsResponseTopic::default();
    told.name = Some(StrBytes::from(&*topic.name));
    told.topic_id = to_uuid(topic.id);
    told.is_internal = topic.internal;
    told.topic_authorized_operations = authorized::TOPIC;
    let node = cx.broker.node_id;
    told.partitions = (begin..end)
        .map(|index| {
            let mut partition = DescribeTopicPartitionsResponsePartition::default();
            partition.partition_index = index;
            partition.leader_id = node;
            partition.leader_epoch = cx.broker.leader_epoch;
            partition.replica_nodes = vec![node];
            partition.isr_nodes = vec![node];
            partition.eligible_leader_replicas = Some(Vec::new());
            partition.last_known_elr = Some(Vec::new());
            partition
        })
        .collect();
    told
}

fn failed(name: &StrBytes, error: ErrorCode, operations: i32) -> DescribeTopicPartitionsResponseTopic {
    let mut told = DescribeTopicPartitionsResponseTopic::default();
    told.error_code = error.code();
    told.name = Some(name.clone());
    told.topic_authorized_operations = operations;
    told
}

fn cursor(name: &StrBytes, index: i32) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.topic_name = name.clone();
    cursor.partition_index = index;
    cursor
}
