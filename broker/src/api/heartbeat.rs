//! Heartbeat (key 12, v0–v4).
//!
//! Keeps a classic member alive, and tells it of rebalances. v3 static members (KIP-345).

use coordinator::group::{GroupCommand, GroupReply};
use protocol::wire::{HeartbeatRequest, HeartbeatResponse};

use super::coordination::{call, code, optional, text};
use crate::context::{CloseConnection, RequestContext};

/// Answers at once.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: HeartbeatRequest,
) -> Result<HeartbeatResponse, CloseConnection> {
    let command = GroupCommand::Heartbeat {
        group: text(&request.group_id),
        member: text(&request.member_id),
        generation: request.generation_id,
        instance: optional(request.group_instance_id.as_ref()),
    };
    let mut answer = HeartbeatResponse::default();
    answer.error_code = match call(cx, command).await? {
        GroupReply::Heartbeat(outcome) => code(&outcome),
        other => unreachable!("a heartbeat is answered by {other:?}"),
    };
    Ok(answer)
}
