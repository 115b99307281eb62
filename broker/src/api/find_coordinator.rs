//! FindCoordinator (key 10, v0–v6).
//!
//! This broker coordinates everything. Key types: 0 group, 1 transaction (v1), 2 share-partition (v6, KIP-932), whose
//! keys are `group:topic id:partition`. From v4 on several keys are asked for at a time (KIP-699). Asking for a group
//! creates `__consumer_offsets`. Left out: share state has no coordinator of its own, so its keys are only checked;
//! likewise transactions are not served, and InitProducerId says so.

use protocol::wire::find_coordinator_response::Coordinator;
use protocol::wire::{FindCoordinatorRequest, FindCoordinatorResponse};
use protocol::{ErrorCode, StrBytes};

use super::coordination::{ensure_offsets_topic, wire};
use crate::context::{CloseConnection, RequestContext};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// First version in which share-partitions are asked for.
const SHARE_FROM: i16 = 6;
/// First version that asks for several keys.
const SEVERAL_FROM: i16 = 4;
/// Longest base64 form of a topic id (`Uuid.fromString`).
const TOPIC_ID_CHARS_MAX: usize = 24;

/// Why there is no coordinator for a key.
type Refusal = (ErrorCode, &'static str);

/// Answers with this broker, for every key that can be one.
///
/// # Errors
/// Never.
pub async fn handle(
    cx: &RequestContext,
    request: FindCoordinatorRequest,
) -> Result<FindCoordinatorResponse, CloseConnection> {
    let mut answer = FindCoordinatorResponse::default();
    let kind = check_type(cx, request.key_type).await;
    let is_found = |key: &str| kind.and_then(|()| check_key(request.key_type, key));
    let host = wire(&cx.broker.advertised.host);
    let port = i32::from(cx.broker.advertised.port);
    if cx.api_version >= SEVERAL_FROM {
        let describe = |key: StrBytes| {
            let mut coordinator = Coordinator::default();
            match is_found(&key) {
                Ok(()) => {
                    coordinator.node_id = cx.broker.node_id;
                    coordinator.host = host.clone();
                    coordinator.port = port;
                }
                Err((error, message)) => {
                    coordinator.error_code = error.code();
                    coordinator.error_message = Some(wire(message));
                    (coordinator.node_id, coordinator.port) = (-1, -1);
                }
            }
            coordinator.key = key;
            coordinator
        };
        answer.coordinators = request.coordinator_keys.into_iter().map(describe).collect();
        return Ok(answer);
    }
    match is_found(&request.key) {
        Ok(()) => {
            answer.node_id = cx.broker.node_id;
            answer.host = host;
            answer.port = port;
        }
        Err((error, message)) => {
            answer.error_code = error.code();
            answer.error_message = Some(wire(message));
            (answer.node_id, answer.port) = (-1, -1);
        }
    }
    Ok(answer)
}

async fn check_type(cx: &RequestContext, key_type: i8) -> Result<(), Refusal> {
    match key_type {
        GROUP => {
            ensure_offsets_topic(cx).await.map_err(|error| (error, "groups cannot be stored now, try again"))
        }
        TRANSACTION => Ok(()),
        SHARE if cx.api_version >= SHARE_FROM => Ok(()),
        SHARE => Err((ErrorCode::InvalidRequest, "share-partitions have a coordinator from version 6 on")),
        _ => {
            Err((ErrorCode::InvalidRequest, "unknown key type, use 0 (group), 1 (transaction) or 2 (share)"))
        }
    }
}

fn check_key(key_type: i8, key: &str) -> Result<(), Refusal> {
    if key_type == SHARE && !is_share_partition(key) {
        return Err((ErrorCode::InvalidRequest, "a share-partition is named group:topic id:partition"));
    }
    Ok(())
}

/// `group:topic id:partition`; the group may have colons of its own (`SharePartitionKey.validate`).
fn is_share_partition(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let (partition, topic, group) = (parts.next(), parts.next(), parts.next());
    group.is_some_and(|group| !group.is_empty())
        && topic.is_some_and(is_topic_id)
        && partition.is_some_and(|partition| partition.parse::<i32>().is_ok())
}

/// 16 bytes in URL-safe base64, padded or not: 22 characters, of which the last stands for two bits alone.
fn is_topic_id(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len() <= TOPIC_ID_CHARS_MAX
        && digits.len() == 22
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_share_keys_are_what_kafka_takes() {
        for good in [
            "g:T2MzMe3oQwWQtgZWfHsv4A:0",
            "g:a:T2MzMe3oQwWQtgZWfHsv4A:0",
            "g:T2MzMe3oQwWQtgZWfHsv4A==:0",
            "g:T2MzMe3oQwWQtgZWfHsv4A:-1",
            " :AAECAwQFBgcICQoLDA0ODw:99",
        ] {
            assert_eq!(check_key(SHARE, good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "g",
            "g:x:0",
            ":T2MzMe3oQwWQtgZWfHsv4A:0",
            "T2MzMe3oQwWQtgZWfHsv4A:0",
            "g:T2MzMe3oQwWQtgZWfHsv4A:x",
            "g:T2MzMe3oQwWQtgZWfHsv4:0",
            "g:T2MzMe3oQwWQtgZWfHsv+A:0",
            "g:T2MzMe3oQwWQtgZWfHsv4A===:0",
            "g:T2MzMe3oQwWQtgZWfHsv4A:2147483648",
        ] {
            assert!(check_key(SHARE, bad).is_err(), "{bad}");
        }
        assert_eq!(check_key(GROUP, ""), Ok(()), "any string is a group");
    }
}
