//! LeaveGroup (key 13, v0–v5).
//!
//! Up to v2 one member leaves, and its error is the request's. From v3 on several leave by member id or by instance id
//! (KIP-345), each with an outcome of its own. v5 says why (KIP-800), which is not kept.

use std::sync::Arc;

use coordinator::group::{GroupCommand, GroupReply};
use protocol::wire::leave_group_response::MemberResponse;
use protocol::wire::{LeaveGroupRequest, LeaveGroupResponse};

use super::coordination::{call, code, optional, text, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// First version in which several members leave.
const SEVERAL_FROM: i16 = 3;

/// Answers when it is stored that they left.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: LeaveGroupRequest,
) -> Result<LeaveGroupResponse, CloseConnection> {
    let members: Vec<(Arc<str>, Option<Arc<str>>)> = if cx.api_version >= SEVERAL_FROM {
        let identity = |member: &protocol::wire::leave_group_request::MemberIdentity| {
            (text(&member.member_id), optional(member.group_instance_id.as_ref()))
        };
        request.members.iter().map(identity).collect()
    } else {
        vec![(text(&request.member_id), None)]
    };
    let command = GroupCommand::Leave { group: text(&request.group_id), members: members.clone() };
    let mut answer = LeaveGroupResponse::default();
    match call(cx, command).await? {
        GroupReply::Left(Err(error)) => answer.error_code = error_map::group(&error).code(),
        GroupReply::Left(Ok(outcomes)) if cx.api_version >= SEVERAL_FROM => {
            let told = members.iter().zip(outcomes).map(|((member, instance), outcome)| {
                let mut told = MemberResponse::default();
                told.member_id = wire(member);
                told.group_instance_id = instance.as_deref().map(wire);
                told.error_code = code(&outcome);
                told
            });
            answer.members = told.collect();
        }
        GroupReply::Left(Ok(outcomes)) => answer.error_code = outcomes.first().map_or(0, code),
        other => unreachable!("a leave is answered by {other:?}"),
    }
    Ok(answer)
}
