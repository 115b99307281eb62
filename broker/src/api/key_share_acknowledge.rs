//! KeyShareAcknowledge (key 10079, v0): ours, see `protocol/schemas/KeyShareAcknowledgeRequest.json`.
//!
//! Accept, release with delay, reject with reason, renew, in the session that KeyShareFetch opened; an outcome for each
//! range. Without a member it comes from the standalone reader that this connection is.

use std::collections::BTreeMap;

use coordinator::command::{Command, ShareAcknowledge};
use coordinator::reply::ShareAcknowledged;
use protocol::messages::AcknowledgeType;
use protocol::messages::key_share_acknowledge::{
    KeyShareAcknowledgePartitionResponse, KeyShareAcknowledgeRequest, KeyShareAcknowledgeResponse,
    KeyShareAcknowledgeTopicResponse,
};
use protocol::messages::key_share_fetch::AcknowledgeResult;
use records::ids::{Offset, PartitionId};

use super::coordination::words;
use super::share_acknowledge::no_session_begins_here;
use super::share_requests::{OPENS, Refusal, distinct, member_or_reader, numbered, recalled, results};
use crate::catalog::Image;
use crate::context::{CloseConnection, RequestContext};
use crate::error_map;
use crate::executor::Reply;

/// The acknowledgements of a request, by partition, as its answer repeats them; and whether each renews.
type Echoes = BTreeMap<PartitionId, (Vec<AcknowledgeResult>, Vec<bool>)>;

/// Answers when the acknowledgements are stored.
///
/// # Errors
/// Where the broker stops.
pub async fn handle(
    cx: &RequestContext,
    request: KeyShareAcknowledgeRequest,
) -> Result<KeyShareAcknowledgeResponse, CloseConnection> {
    let (acknowledge, echoes) = match command(cx, request) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            return Ok(KeyShareAcknowledgeResponse {
                error_code: refusal.error,
                error_message: refusal.words(),
                ..KeyShareAcknowledgeResponse::default()
            });
        }
    };
    match cx.call(acknowledge).await? {
        Reply::ShareAcknowledged(Ok(acknowledged)) => {
            Ok(answer(&cx.broker.catalog.image(), acknowledged, echoes))
        }
        Reply::ShareAcknowledged(Err(error)) => Ok(KeyShareAcknowledgeResponse {
            error_code: error_map::share(&error),
            error_message: words(&error),
            ..KeyShareAcknowledgeResponse::default()
        }),
        other => unreachable!("a key-share acknowledgement is answered by {other:?}"),
    }
}

fn command(cx: &RequestContext, request: KeyShareAcknowledgeRequest) -> Result<(Command, Echoes), Refusal> {
    let (group, member) = member_or_reader(&request.group_id, request.member_id.as_ref())?;
    let is_standalone = request.member_id.is_none();
    if request.session_epoch == OPENS {
        return Err(no_session_begins_here());
    }
    let parts = request.topics.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |part| (id, part.index, part.acknowledgements))
    });
    let mut echoes = Echoes::new();
    let part = |(partition, acks): (PartitionId, Vec<_>)| {
        let (acks, echo) = numbered(acks);
        let renews = acks.iter().map(|range| range.types == [AcknowledgeType::Renew.code()]).collect();
        echoes.insert(partition, (echo, renews));
        (partition, acks)
    };
    let parts = distinct(parts)?.into_iter().filter(|(_, acks)| !acks.is_empty()).map(part).collect();
    let acknowledge = ShareAcknowledge {
        connection: cx.connection,
        group,
        member,
        epoch: request.session_epoch,
        renew: true,
        parts,
        key_share: true,
    };
    let command = if is_standalone {
        Command::StandaloneAcknowledge(acknowledge)
    } else {
        Command::ShareAcknowledge(acknowledge)
    };
    Ok((command, echoes))
}

fn answer(image: &Image, acknowledged: ShareAcknowledged, mut echoes: Echoes) -> KeyShareAcknowledgeResponse {
    let lock_ms = acknowledged.lock_ms;
    let mut topics: Vec<KeyShareAcknowledgeTopicResponse> = Vec::new();
    for part in acknowledged.parts {
        let id = part.partition;
        let (echo, renews) = echoes.remove(&id).unwrap_or_default();
        let acknowledge_results = results(image, id, echo, &part.results, part.error);
        let renewed = acknowledge_results
            .iter()
            .zip(renews)
            .any(|(result, renews)| renews && !result.error_code.is_error());
        let partition = KeyShareAcknowledgePartitionResponse {
            index: id.index,
            acknowledge_results,
            recalled_ranges: recalled(&part.recalled),
            lease_ms: if renewed { lock_ms } else { -1 },
            start_offset: part.start_offset.unwrap_or(Offset(-1)),
            ..KeyShareAcknowledgePartitionResponse::default()
        };
        match topics.last_mut() {
            Some(last) if last.topic_id == id.topic => last.partitions.push(partition),
            _ => topics
                .push(KeyShareAcknowledgeTopicResponse { topic_id: id.topic, partitions: vec![partition] }),
        }
    }
    KeyShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: lock_ms,
        topics,
        ..KeyShareAcknowledgeResponse::default()
    }
}
