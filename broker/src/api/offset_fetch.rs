//! OffsetFetch (key 9, v1–v10).
//!
//! What a group has committed: −1 with an empty text where there is nothing, also for partitions that do not exist.
//! v2 a null list of topics asks for all, and an error of the whole group has its own field. v5 leader epochs. v7
//! `require_stable` (KIP-447): there are no open transactions, so that everything is stable. v8 several groups (KIP-709),
//! v9 member and epoch (KIP-848). v10 topics by id: an unknown one is UNKNOWN_TOPIC_ID. A coordinator whose log fails is
//! NOT_COORDINATOR here, since clients take its other codes as final (case G13).

use std::sync::Arc;

use coordinator::group::{CommittedPart, GroupCommand, GroupError, GroupReply};
use protocol::messages::{from_uuid, to_uuid};
use protocol::wire::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::wire::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use protocol::wire::{OffsetFetchRequest, OffsetFetchResponse};
use protocol::{ErrorCode, StrBytes};

use super::coordination::{call, optional, text, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// First version with an error of the whole group.
const GROUP_ERROR_FROM: i16 = 2;
/// First version that asks for several groups.
const SEVERAL_FROM: i16 = 8;
/// First version that tells topics by id.
const TOPIC_IDS_FROM: i16 = 10;

/// Answers with what is committed.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: OffsetFetchRequest,
) -> Result<OffsetFetchResponse, CloseConnection> {
    let mut answer = OffsetFetchResponse::default();
    if cx.api_version >= SEVERAL_FROM {
        for group in request.groups {
            let told = one_group(cx, &group).await?;
            answer.groups.push(told);
        }
        return Ok(answer);
    }
    let group = only_group(request);
    let told = one_group(cx, &group).await?;
    if cx.api_version >= GROUP_ERROR_FROM || told.error_code == ErrorCode::None.code() {
        answer.error_code = told.error_code;
        answer.topics = told.topics.into_iter().map(plain_topic).collect();
    } else {
        let asked = group.topics.unwrap_or_default();
        answer.topics = asked.into_iter().map(|topic| plain_topic(failed(topic, told.error_code))).collect();
    }
    Ok(answer)
}

async fn one_group(
    cx: &RequestContext,
    request: &OffsetFetchRequestGroup,
) -> Result<OffsetFetchResponseGroup, CloseConnection> {
    let names = request.topics.as_ref().map(|topics| names(cx, topics));
    let known = names.as_ref().map(|names| {
        let topics = request.topics.iter().flatten().zip(names);
        topics
            .filter_map(|(topic, name)| Some((topic, name.as_ref()?)))
            .flat_map(|(topic, name)| {
                topic.partition_indexes.iter().map(move |index| (Arc::clone(name), *index))
            })
            .collect()
    });
    let command = GroupCommand::FetchOffsets {
        group: text(&request.group_id),
        member: optional(request.member_id.as_ref()).map(|member| (member, request.member_epoch)),
        partitions: known,
    };
    let mut answer = OffsetFetchResponseGroup::default();
    answer.group_id = request.group_id.clone();
    match call(cx, command).await? {
        GroupReply::Offsets(Ok(parts)) => {
            answer.topics = match (&request.topics, names) {
                (Some(topics), Some(names)) => asked(topics, &names, parts),
                _ => all(cx, parts),
            };
        }
        GroupReply::Offsets(Err(error)) => answer.error_code = code(&error).code(),
        other => unreachable!("a fetch of offsets is answered by {other:?}"),
    }
    Ok(answer)
}

/// The names of the topics that are asked for; `None` for an id that nobody has.
fn names(cx: &RequestContext, topics: &[OffsetFetchRequestTopics]) -> Vec<Option<Arc<str>>> {
    if cx.api_version < TOPIC_IDS_FROM {
        return topics.iter().map(|topic| Some(text(&topic.name))).collect();
    }
    let image = cx.broker.catalog.image();
    let name = |topic: &OffsetFetchRequestTopics| image.topic_by_id(from_uuid(topic.topic_id));
    topics.iter().map(|topic| name(topic).map(|topic| Arc::clone(&topic.name))).collect()
}

/// The answer in the order in which was asked; `parts` are those of known topics.
fn asked(
    topics: &[OffsetFetchRequestTopics],
    names: &[Option<Arc<str>>],
    parts: Vec<CommittedPart>,
) -> Vec<OffsetFetchResponseTopics> {
    let mut parts = parts.into_iter();
    let answer = |(topic, name): (&OffsetFetchRequestTopics, &Option<Arc<str>>)| {
        if name.is_none() {
            return failed(topic.clone(), ErrorCode::UnknownTopicId.code());
        }
        let mut answer = OffsetFetchResponseTopics::default();
        answer.name = topic.name.clone();
        answer.topic_id = topic.topic_id;
        answer.partitions =
            parts.by_ref().take(topic.partition_indexes.len()).map(|part| committed(&part)).collect();
        answer
    };
    topics.iter().zip(names).map(answer).collect()
}

/// Everything that is committed, topic by topic. Where ids are told, a topic without one is left out.
fn all(cx: &RequestContext, parts: Vec<CommittedPart>) -> Vec<OffsetFetchResponseTopics> {
    let image = cx.broker.catalog.image();
    let by_id = cx.api_version >= TOPIC_IDS_FROM;
    let mut topics: Vec<(Arc<str>, OffsetFetchResponseTopics)> = Vec::new();
    for part in parts {
        if topics.last().is_none_or(|(name, _)| *name != part.topic) {
            let found = image.topic(&part.topic);
            if by_id && found.is_none() {
                continue;
            }
            let mut topic = OffsetFetchResponseTopics::default();
            match found {
                Some(found) if by_id => topic.topic_id = to_uuid(found.id),
                _ => topic.name = wire(&part.topic),
            }
            topics.push((Arc::clone(&part.topic), topic));
        }
        let (_, topic) = topics.last_mut().expect("pushed above");
        topic.partitions.push(committed(&part));
    }
    topics.into_iter().map(|(_, topic)| topic).collect()
}

fn committed(part: &CommittedPart) -> OffsetFetchResponsePartitions {
    let mut answer = OffsetFetchResponsePartitions::default();
    answer.partition_index = part.partition;
    answer.committed_offset = part.offset;
    answer.committed_leader_epoch = part.leader_epoch;
    answer.metadata = Some(wire(&part.metadata));
    answer
}

fn failed(topic: OffsetFetchRequestTopics, error: i16) -> OffsetFetchResponseTopics {
    let mut answer = OffsetFetchResponseTopics::default();
    answer.name = topic.name;
    answer.topic_id = topic.topic_id;
    let partition = |index| {
        let mut partition = OffsetFetchResponsePartitions::default();
        partition.partition_index = index;
        partition.committed_offset = -1;
        partition.committed_leader_epoch = -1;
        partition.metadata = Some(StrBytes::default());
        partition.error_code = error;
        partition
    };
    answer.partitions = topic.partition_indexes.into_iter().map(partition).collect();
    answer
}

/// The group of a request that can ask for one only.
fn only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup {
    let mut group = OffsetFetchRequestGroup::default();
    group.group_id = request.group_id;
    group.member_epoch = -1;
    group.topics = request.topics.map(|topics| {
        let topic = |topic: protocol::wire::offset_fetch_request::OffsetFetchRequestTopic| {
            let mut plain = OffsetFetchRequestTopics::default();
            plain.name = topic.name;
            plain.partition_indexes = topic.partition_indexes;
            plain
        };
        topics.into_iter().map(topic).collect()
    });
    group
}

fn plain_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let mut plain = OffsetFetchResponseTopic::default();
    plain.name = topic.name;
    let partition = |part: OffsetFetchResponsePartitions| {
        let mut plain = OffsetFetchResponsePartition::default();
        plain.partition_index = part.partition_index;
        plain.committed_offset = part.committed_offset;
        plain.committed_leader_epoch = part.committed_leader_epoch;
        plain.metadata = part.metadata;
        plain.error_code = part.error_code;
        plain
    };
    plain.partitions = topic.partitions.into_iter().map(partition).collect();
    plain
}

fn code(error: &GroupError) -> ErrorCode {
    match error_map::group(error) {
        ErrorCode::CoordinatorNotAvailable => ErrorCode::NotCoordinator,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_a_failing_log_is_never_final() {
        assert_eq!(code(&GroupError::NotAvailable), ErrorCode::NotCoordinator);
        assert_eq!(code(&GroupError::Loading), ErrorCode::CoordinatorLoadInProgress);
    }
}
