//! ShareGroupHeartbeat (key 76, v1; KIP-932).
//!
//! Membership of share groups: epoch 0 joins, −1 leaves. The first answer carries the assignment already, where Kafka
//! tells it with a later one. The connection is noted as one that speaks for the member.

use coordinator::group::{GroupCommand, GroupError, GroupReply, ShareHeartbeat, ShareHeartbeatReply};
use protocol::ErrorCode;
use protocol::messages::to_uuid;
use protocol::wire::share_group_heartbeat_response::{Assignment, TopicPartitions};
use protocol::wire::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};

use super::coordination::{call, optional, tell_member, text, wire};
use super::share_requests::{BROKERS_NAME, is_the_brokers};
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;

/// The epoch by which a member joins.
const JOIN: i32 = 0;
/// The epoch by which a member leaves.
const LEAVE: i32 = -1;

/// Answers when what it changes is stored.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ShareGroupHeartbeatRequest,
) -> Result<ShareGroupHeartbeatResponse, CloseConnection> {
    let (group, member) = (text(&request.group_id), text(&request.member_id));
    let epoch = request.member_epoch;
    if is_the_brokers(&member) {
        let mut answer = ShareGroupHeartbeatResponse::default();
        answer.error_code = ErrorCode::InvalidRequest.code();
        answer.error_message = Some(wire(BROKERS_NAME));
        return Ok(answer);
    }
    if epoch != LEAVE && !group.is_empty() && !member.is_empty() {
        tell_member(cx, &group, &member, epoch == JOIN);
    }
    let command = GroupCommand::ShareHeartbeat(ShareHeartbeat {
        group,
        member,
        epoch,
        rack: optional(request.rack_id.as_ref()),
        topics: request.subscribed_topic_names.as_ref().map(|topics| topics.iter().map(text).collect()),
        client_id: cx.client_id.clone(),
        client_host: cx.client_host.clone(),
    });
    let mut answer = ShareGroupHeartbeatResponse::default();
    match call(cx, command).await? {
        GroupReply::ShareHeartbeat(Ok(reply)) => fill(&mut answer, reply),
        GroupReply::ShareHeartbeat(Err(error)) => {
            answer.error_code = error_map::group(&error).code();
            answer.error_message = Some(wire(advice(&error)));
        }
        other => unreachable!("a share heartbeat is answered by {other:?}"),
    }
    Ok(answer)
}

fn fill(answer: &mut ShareGroupHeartbeatResponse, reply: ShareHeartbeatReply) {
    answer.member_id = Some(wire(&reply.member));
    answer.member_epoch = reply.epoch;
    answer.heartbeat_interval_ms = reply.heartbeat_interval_ms;
    answer.assignment = reply.assignment.map(|topics| {
        let mut assignment = Assignment::default();
        let topic = |(topic, partitions)| {
            let mut told = TopicPartitions::default();
            told.topic_id = to_uuid(topic);
            told.partitions = partitions;
            told
        };
        assignment.topic_partitions = topics.into_iter().map(topic).collect();
        assignment
    });
}

/// What a member does about an error.
const fn advice(error: &GroupError) -> &'static str {
    match error {
        GroupError::InvalidRequest => {
            "a heartbeat needs a group, a member, an epoch of -1 or more, and topics where it joins (epoch 0)"
        }
        GroupError::GroupNotFound => "there is no share group with this id: join with epoch 0",
        GroupError::UnknownMember => "the group has no such member: join with epoch 0",
        GroupError::FencedMemberEpoch => {
            "the member has another epoch: give up all records and join with epoch 0"
        }
        GroupError::GroupMaxSize => "the group has no room for one more member: raise group.share.max.size",
        GroupError::NonEmptyGroup => {
            "standalone readers use this group id: close their sessions before a member joins"
        }
        GroupError::InvalidGroupId
        | GroupError::Loading
        | GroupError::NotAvailable
        | GroupError::NotCoordinator
        | GroupError::IllegalGeneration
        | GroupError::InconsistentProtocol
        | GroupError::InvalidSessionTimeout
        | GroupError::RebalanceInProgress
        | GroupError::MemberIdRequired
        | GroupError::FencedInstance
        | GroupError::StaleMemberEpoch
        | GroupError::SubscribedToTopic
        | GroupError::MetadataTooLarge => "the heartbeat cannot be served now: try again",
    }
}
