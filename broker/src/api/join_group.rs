//! JoinGroup (key 11, v0–v9).
//!
//! Classic membership; the answer waits for the rebalance to gather its members. v1 a rebalance timeout of its own
//! (before, the session's). v4 a new member gets its id first and comes back with it (KIP-394). v5 static members
//! (KIP-345). v7 tells the protocol type, and null where there is no protocol. v8 a reason (KIP-800). v9 a leader that
//! returns is told to skip the assignment (KIP-814). Left out: upgrades to and from KIP-848 groups, which are not served.

use std::sync::Arc;

use bytes::Bytes;
use coordinator::group::{GroupCommand, GroupReply, JoinError, JoinGroup, Joined};
use protocol::wire::join_group_response::JoinGroupResponseMember;
use protocol::wire::{JoinGroupRequest, JoinGroupResponse};

use super::coordination::{call, optional, text, wire};
use crate::context::{CloseConnection, RequestContext};
use crate::{entropy, error_map};

/// First version with a rebalance timeout.
const REBALANCE_TIMEOUT_FROM: i16 = 1;
/// First version in which a new member must come back with the id it was given.
const KNOWN_MEMBER_FROM: i16 = 4;
/// First version in which there may be no protocol name.
const NO_PROTOCOL_FROM: i16 = 7;
/// First version that can say `skip_assignment`.
const SKIP_FROM: i16 = 9;

/// Joins, and waits until the new generation begins.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: JoinGroupRequest,
) -> Result<JoinGroupResponse, CloseConnection> {
    let rebalance_timeout_ms = match cx.api_version {
        version if version >= REBALANCE_TIMEOUT_FROM => request.rebalance_timeout_ms,
        _ => request.session_timeout_ms,
    };
    let protocols = request.protocols.into_iter().map(|protocol| (text(&protocol.name), protocol.metadata));
    let command = GroupCommand::Join(JoinGroup {
        group: text(&request.group_id),
        member: text(&request.member_id),
        instance: optional(request.group_instance_id.as_ref()),
        client_id: cx.client_id.clone(),
        client_host: cx.client_host.clone(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: text(&request.protocol_type),
        protocols: protocols.collect(),
        requires_known_member: cx.api_version >= KNOWN_MEMBER_FROM,
        supports_skip_assignment: cx.api_version >= SKIP_FROM,
        reason: optional(request.reason.as_ref()),
        random: entropy::random_bytes(),
    });
    match call(cx, command).await? {
        GroupReply::Joined(Ok(joined)) => Ok(admitted(joined)),
        GroupReply::Joined(Err(refused)) => Ok(turned_away(&refused, cx.api_version)),
        other => unreachable!("a join is answered by {other:?}"),
    }
}

fn admitted(joined: Joined) -> JoinGroupResponse {
    let mut answer = JoinGroupResponse::default();
    answer.generation_id = joined.generation;
    answer.protocol_type = Some(wire(&joined.protocol_type));
    answer.protocol_name = Some(wire(&joined.protocol));
    answer.leader = wire(&joined.leader);
    answer.member_id = wire(&joined.member);
    answer.skip_assignment = joined.skip_assignment;
    let member = |(id, instance, metadata): (Arc<str>, Option<Arc<str>>, Bytes)| {
        let mut member = JoinGroupResponseMember::default();
        member.member_id = wire(&id);
        member.group_instance_id = instance.as_deref().map(wire);
        member.metadata = metadata;
        member
    };
    answer.members = joined.members.into_iter().map(member).collect();
    answer
}

fn turned_away(refused: &JoinError, version: i16) -> JoinGroupResponse {
    let mut answer = JoinGroupResponse::default();
    answer.error_code = error_map::group(&refused.error).code();
    answer.generation_id = -1;
    answer.protocol_name = if version >= NO_PROTOCOL_FROM { None } else { Some(wire("")) };
    answer.member_id = wire(&refused.member);
    answer
}

#[cfg(test)]
mod tests {
    use coordinator::group::GroupError;

    use super::*;

    #[test]
    fn g06_a_refusal_has_the_form_of_its_version() {
        let refused = JoinError { error: GroupError::MemberIdRequired, member: Arc::from("c-1") };
        for (version, name) in [(4, Some("")), (6, Some("")), (7, None), (9, None)] {
            let answer = turned_away(&refused, version);
            assert_eq!(answer.error_code, 79);
            assert_eq!(answer.generation_id, -1);
            assert_eq!(answer.member_id.as_str(), "c-1");
            assert_eq!(answer.protocol_name.as_deref(), name);
            assert!(answer.members.is_empty());
        }
    }
}
