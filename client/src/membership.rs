//! Membership of the share group (KIP-932): heartbeats on a connection of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::share_group_heartbeat_request::ShareGroupHeartbeatRequest;
use kafka_protocol::messages::{GroupId, TopicName};
use kafka_protocol::protocol::StrBytes;
use protocol::ErrorCode;
use records::ids::TopicId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::pause;
use crate::cluster;
use crate::connection::Connection;
use crate::consumer::Settings;
use crate::error::{Error, Lost};

const SHARE_GROUP_HEARTBEAT: i16 = 1;
const JOIN_EPOCH: i32 = 0;
const LEAVE_EPOCH: i32 = -1;

/// Pause before a step is tried again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What a member is assigned: partitions by topic.
pub(crate) type Assignment = BTreeMap<TopicId, Vec<i32>>;

/// Keeps the membership until `left` is asked for; publishes every assignment.
pub(crate) async fn keep(
    settings: Arc<Settings>,
    assignments: watch::Sender<Assignment>,
    leave: CancellationToken,
) -> Result<(), Error> {
    let mut epoch = JOIN_EPOCH;
    loop {
        let lost = match serve(&settings, &mut epoch, &assignments, &leave).await {
            Ok(()) => return Ok(()),
            Err(Lost::Fatal(error)) => return Err(error),
            Err(lost) => lost,
        };
        tracing::debug!(group = %settings.group, member = %settings.member, %lost, "membership is tried again");
        tokio::select! {
            () = leave.cancelled() => return Ok(()),
            () = pause(RETRY_PAUSE) => {}
        }
    }
}

async fn serve(
    settings: &Settings,
    epoch: &mut i32,
    assignments: &watch::Sender<Assignment>,
    leave: &CancellationToken,
) -> Result<(), Lost> {
    let mut first = Connection::open_any(&settings.bootstrap, &settings.client_id).await?;
    let address = cluster::coordinator(&mut first, &settings.group).await?;
    let mut connection = Connection::open(&address, &settings.client_id).await?;
    loop {
        let leaving = leave.is_cancelled();
        let sent = if leaving { LEAVE_EPOCH } else { *epoch };
        let topics =
            settings.topics.iter().map(|name| TopicName(StrBytes::from_string(name.clone()))).collect();
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(settings.group.clone())))
            .with_member_id(StrBytes::from_string(settings.member.clone()))
            .with_member_epoch(sent)
            .with_subscribed_topic_names((sent == JOIN_EPOCH).then_some(topics));
        let answer = connection.call(SHARE_GROUP_HEARTBEAT, &request).await?;
        if leaving {
            return Ok(());
        }
        match ErrorCode::from_code(answer.error_code) {
            Some(ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch | ErrorCode::GroupIdNotFound)
                if sent != JOIN_EPOCH =>
            {
                *epoch = JOIN_EPOCH;
                continue;
            }
            _ => {
                let message = answer.error_message.as_ref().map(StrBytes::as_str);
                cluster::check("ShareGroupHeartbeat", answer.error_code, message)?;
            }
        }
        *epoch = answer.member_epoch;
        if let Some(assignment) = answer.assignment {
            let assigned: Assignment = assignment
                .topic_partitions
                .into_iter()
                .map(|topic| (TopicId(*topic.topic_id.as_bytes()), topic.partitions))
                .collect();
            assignments.send_if_modified(|current| {
                let changed = *current != assigned;
                *current = assigned;
                changed
            });
        }
        let interval = Duration::from_millis(u64::try_from(answer.heartbeat_interval_ms).unwrap_or(0).max(1));
        tokio::select! {
            () = leave.cancelled() => {}
            () = pause(interval) => {}
        }
    }
}
