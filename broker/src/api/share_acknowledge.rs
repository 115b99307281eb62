//! ShareAcknowledge (key 79, v1–v2; KIP-932).
//!
//! Acknowledgements without a fetch, in the session that fetches opened: one outcome a partition. Answered when the
//! share state has them. v2 renewals, and the lock's length in the answer (KIP-1222). A partition that is named twice is
//! INVALID_REQUEST. Left out: leader hints, since no other broker leads.

use std::borrow::Cow;

use coordinator::command::{Command, ShareAcknowledge};
use coordinator::reply::ShareAcknowledged;
use protocol::ErrorCode;
use protocol::messages::share_acknowledge::{
    ShareAcknowledgePartitionResponse, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
};

use super::coordination::words;
use super::share_requests::{OPENS, Refusal, ack_error, acknowledged, distinct, speaker, told};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// Answers when the acknowledgements are stored.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: ShareAcknowledgeRequest,
) -> Result<ShareAcknowledgeResponse, CloseConnection> {
    let acknowledge = match command(cx, request) {
        Ok(acknowledge) => acknowledge,
        Err(refusal) => {
            return Ok(ShareAcknowledgeResponse {
                error_code: refusal.error,
                error_message: refusal.words(),
                ..ShareAcknowledgeResponse::default()
            });
        }
    };
    match cx.call(Command::ShareAcknowledge(acknowledge)).await? {
        Reply::ShareAcknowledged(Ok(acknowledged)) => Ok(answer(&cx.broker.catalog.image(), acknowledged)),
        Reply::ShareAcknowledged(Err(error)) => Ok(ShareAcknowledgeResponse {
            error_code: error_map::share(&error),
            error_message: words(&error),
            ..ShareAcknowledgeResponse::default()
        }),
        other => unreachable!("an acknowledgement is answered by {other:?}"),
    }
}

fn command(cx: &RequestContext, request: ShareAcknowledgeRequest) -> Result<ShareAcknowledge, Refusal> {
    let (group, member) = speaker(request.group_id.as_ref(), request.member_id.as_ref())?;
    if request.share_session_epoch == OPENS {
        return Err(no_session_begins_here());
    }
    let parts = request.topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |part| (id, part.index, part.acknowledgements))
    });
    let parts = distinct(parts)?.into_iter().filter(|(_, acks)| !acks.is_empty());
    Ok(ShareAcknowledge {
        connection: cx.connection,
        group,
        member,
        epoch: request.share_session_epoch,
        renew: request.is_renew_ack,
        parts: parts.map(|(partition, acks)| (partition, acknowledged(&acks))).collect(),
        key_share: false,
    })
}

/// Only a fetch opens a session (case S02).
pub(super) const fn no_session_begins_here() -> Refusal {
    Refusal {
        error: ErrorCode::InvalidShareSessionEpoch,
        message: Cow::Borrowed("a session is opened by a fetch: acknowledge with its next epoch"),
    }
}

fn answer(image: &Image, acknowledged: ShareAcknowledged) -> ShareAcknowledgeResponse {
    let mut topics: Vec<ShareAcknowledgeTopicResponse> = Vec::new();
    for part in acknowledged.parts {
        let id = part.partition;
        let (error_code, error_message) = told(ack_error(image, id, part.error));
        let partition = ShareAcknowledgePartitionResponse {
            index: id.index,
            error_code,
            error_message,
            ..ShareAcknowledgePartitionResponse::default()
        };
        match topics.last_mut() {
            Some(last) if last.topic_id == id.topic => last.partitions.push(partition),
            _ => {
                topics
                    .push(ShareAcknowledgeTopicResponse { topic_id: id.topic, partitions: vec![partition] });
            }
        }
    }
    ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: acknowledged.lock_ms,
        topics,
        ..ShareAcknowledgeResponse::default()
    }
}
