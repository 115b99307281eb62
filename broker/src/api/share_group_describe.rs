//! ShareGroupDescribe (key 77, v1; KIP-932).
//!
//! Members, epochs and assignments of share groups. Unknown groups, and groups of another kind, are GROUP_ID_NOT_FOUND.

use coordinator::command::Command;
use coordinator::group::{DescribedShareMember, GroupCommand, GroupError, GroupReply};
use protocol::StrBytes;
use protocol::messages::to_uuid;
use protocol::wire::share_group_describe_response::{DescribedGroup, Member, TopicPartitions};
use protocol::wire::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};

use super::authorized;
use super::coordination::{call_each, ensure_offsets_topic, text, wire, words};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Answers for every group that is asked for, in order.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ShareGroupDescribeRequest,
) -> Result<ShareGroupDescribeResponse, CloseConnection> {
    let _ = ensure_offsets_topic(cx).await;
    let command = |group: &StrBytes| Command::Group(GroupCommand::DescribeShare { group: text(group) });
    let replies = call_each(cx, &request.group_ids, command).await?;
    let mut answer = ShareGroupDescribeResponse::default();
    for (id, reply) in request.group_ids.into_iter().zip(replies) {
        let Reply::Group(GroupReply::ShareDescribed(outcome)) = reply else {
            unreachable!("a describe of a share group is answered by {reply:?}")
        };
        let mut group = DescribedGroup::default();
        group.group_id = id;
        group.authorized_operations = authorized::NOT_ASKED;
        match outcome {
            Ok(described) => {
                group.group_state = wire(described.state);
                group.group_epoch = described.epoch;
                group.assignment_epoch = described.assignment_epoch;
                group.assignor_name = wire(described.assignor);
                group.members = described.members.into_iter().map(member).collect();
                if request.include_authorized_operations {
                    group.authorized_operations = authorized::GROUP;
                }
            }
            Err(error) => {
                group.error_code = error_map::group(&error).code();
                group.error_message = match error {
                    GroupError::GroupNotFound => Some(wire("there is no share group with this id")),
                    error => words(&error),
                };
            }
        }
        answer.groups.push(group);
    }
    Ok(answer)
}

fn member(described: DescribedShareMember) -> Member {
    let mut member = Member::default();
    member.member_id = wire(&described.member);
    member.rack_id = described.rack.as_deref().map(wire);
    member.member_epoch = described.epoch;
    member.client_id = wire(&described.client_id);
    member.client_host = wire(&described.client_host);
    member.subscribed_topic_names = described.topics.iter().map(|topic| wire(topic)).collect();
    let topic = |(id, name, partitions): (_, std::sync::Arc<str>, _)| {
        let mut topic = TopicPartitions::default();
        topic.topic_id = to_uuid(id);
        topic.topic_name = wire(&name);
        topic.partitions = partitions;
        topic
    };
    member.assignment.topic_partitions = described.assignment.into_iter().map(topic).collect();
    member
}
