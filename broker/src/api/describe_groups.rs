//! DescribeGroups (key 15, v0–v6).
//!
//! Classic groups. Unknown ones, and groups of another kind, are `Dead` without an error, from v6 on GROUP_ID_NOT_FOUND
//! with a message (KIP-1043). v3 authorized operations (KIP-430), v4 instance ids.

use coordinator::command::Command;
use coordinator::group::{DescribedMember, GroupCommand, GroupError, GroupReply};
use protocol::StrBytes;
use protocol::wire::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use protocol::wire::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::authorized;
use super::coordination::{call_each, text, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// First version in which an unknown group is an error.
const NOT_FOUND_FROM: i16 = 6;

/// Answers for every group that is asked for, in order.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: DescribeGroupsRequest,
) -> Result<DescribeGroupsResponse, CloseConnection> {
    let mut answer = DescribeGroupsResponse::default();
    let command = |group: &StrBytes| Command::Group(GroupCommand::Describe { group: text(group) });
    let _ = super::coordination::ensure_offsets_topic(cx).await;
    let replies = call_each(cx, &request.groups, command).await?;
    for (id, reply) in request.groups.into_iter().zip(replies) {
        let Reply::Group(GroupReply::Described(outcome)) = reply else {
            unreachable!("a describe is answered by {reply:?}")
        };
        let mut group = DescribedGroup::default();
        group.group_id = id;
        group.authorized_operations = authorized::NOT_ASKED;
        let mut is_told = true;
        match outcome {
            Ok(described) => {
                group.group_state = wire(described.state);
                group.protocol_type = wire(&described.protocol_type);
                group.protocol_data = wire(&described.protocol);
                group.members = described.members.into_iter().map(member).collect();
            }
            Err(GroupError::GroupNotFound) if cx.api_version < NOT_FOUND_FROM => {
                group.group_state = wire("Dead");
            }
            Err(error) => {
                is_told = false;
                group.error_code = error_map::group(&error).code();
                if error == GroupError::GroupNotFound {
                    group.group_state = wire("Dead");
                    group.error_message = Some(wire("there is no classic group with this id"));
                }
            }
        }
        if is_told && request.include_authorized_operations {
            group.authorized_operations = authorized::GROUP;
        }
        answer.groups.push(group);
    }
    Ok(answer)
}

fn member(described: DescribedMember) -> DescribedGroupMember {
    let mut member = DescribedGroupMember::default();
    member.member_id = wire(&described.member);
    member.group_instance_id = described.instance.as_deref().map(wire);
    member.client_id = wire(&described.client_id);
    member.client_host = wire(&described.client_host);
    member.member_metadata = described.metadata;
    member.member_assignment = described.assignment;
    member
}
