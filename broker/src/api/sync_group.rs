//! SyncGroup (key 14, v0–v5).
//!
//! A leader hands in everybody's assignment, and everybody waits for its own; the bytes pass through untouched. v3
//! static members (KIP-345). v5 protocol type and name are required, and told in the answer (KIP-559).

use coordinator::group::{GroupCommand, GroupReply, SyncGroup};
use protocol::wire::{SyncGroupRequest, SyncGroupResponse};

use super::coordination::{call, optional, text, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// First version in which the protocol must be named.
const PROTOCOL_FROM: i16 = 5;

/// Waits for the assignment.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: SyncGroupRequest,
) -> Result<SyncGroupResponse, CloseConnection> {
    let assignments = request.assignments.into_iter().map(|part| (text(&part.member_id), part.assignment));
    let command = GroupCommand::Sync(SyncGroup {
        group: text(&request.group_id),
        member: text(&request.member_id),
        generation: request.generation_id,
        instance: optional(request.group_instance_id.as_ref()),
        protocol_type: optional(request.protocol_type.as_ref()),
        protocol_name: optional(request.protocol_name.as_ref()),
        requires_protocol: cx.api_version >= PROTOCOL_FROM,
        assignments: assignments.collect(),
    });
    let mut answer = SyncGroupResponse::default();
    match call(cx, command).await? {
        GroupReply::Synced(Ok(synced)) => {
            answer.protocol_type = Some(wire(&synced.protocol_type));
            answer.protocol_name = Some(wire(&synced.protocol));
            answer.assignment = synced.assignment;
        }
        GroupReply::Synced(Err(error)) => answer.error_code = error_map::group(&error).code(),
        other => unreachable!("a sync is answered by {other:?}"),
    }
    Ok(answer)
}
