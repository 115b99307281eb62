//! ApiVersions (key 18, v0–v5).
//!
//! Lists what is served. v3 names the client's software (KIP-511), checked as Kafka checks it, and adds features
//! (KIP-584): those of a single Kafka 4.4 node whose APIs are served, since tools go by them; features that can be off are
//! hidden from v3, which cannot read them. v5 says whom the client means to talk to (KIP-1242), cluster and node or
//! neither: a client that reached another cluster or node is told to start over. Versions that are too new are answered by
//! dispatch in version 0.

use protocol::wire::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use protocol::wire::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ApiKey, ErrorCode, response};

use super::fixed;
use crate::context::{CloseConnection, RequestContext};

/// Answers at once.
///
/// # Errors
/// Never.
pub fn handle(
    cx: &RequestContext,
    request: &ApiVersionsRequest,
) -> Result<ApiVersionsResponse, CloseConnection> {
    let mut answer = ApiVersionsResponse::default();
    let names_software =
        is_plain(&request.client_software_name) && is_plain(&request.client_software_version);
    let means_half = request.cluster_id.is_some() != (request.node_id != -1);
    let error = if (cx.api_version >= 3 && !names_software) || (cx.api_version >= 5 && means_half) {
        ErrorCode::InvalidRequest
    } else if cx.api_version >= 5 && means_another(cx, request) {
        ErrorCode::RebootstrapRequired
    } else {
        answer.api_keys = response::advertised_versions();
        if cx.api_version >= 3 {
            add_features(cx, &mut answer);
        }
        ErrorCode::None
    };
    answer.error_code = error.code();
    Ok(answer)
}

/// What Kafka 4.4 can do and, as a new cluster of one node, does: name, least and largest level, level in force, and the
/// key of the API without which it is an empty promise.
const FEATURES: [(&str, i16, i16, Option<i16>, i16); 7] = [
    ("group.version", 0, 1, Some(1), CONSUMER_GROUP_HEARTBEAT),
    ("kraft.version", 0, 1, None, API_VERSIONS),
    ("metadata.version", 7, 33, Some(33), API_VERSIONS),
    ("share.version", 0, 2, Some(2), SHARE_GROUP_HEARTBEAT),
    ("streams.version", 0, 1, Some(1), STREAMS_GROUP_HEARTBEAT),
    ("transaction.version", 0, 2, Some(2), ADD_PARTITIONS_TO_TXN),
    ("eligible.leader.replicas.version", 0, 1, Some(1), API_VERSIONS),
];

const API_VERSIONS: i16 = ApiKey::ApiVersions as i16;
const SHARE_GROUP_HEARTBEAT: i16 = ApiKey::ShareGroupHeartbeat as i16;
// Not served yet: these have no name among those that are.
const ADD_PARTITIONS_TO_TXN: i16 = 24;
const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
const STREAMS_GROUP_HEARTBEAT: i16 = 88;

fn add_features(cx: &RequestContext, answer: &mut ApiVersionsResponse) {
    for (name, least, largest, in_force, needs) in FEATURES {
        // Kafka serves these APIs from the feature's first level on: without them neither level nor range is told.
        if answer.api_keys.iter().all(|api| api.api_key != needs) {
            continue;
        }
        // Clients of v3 take a least level of 0 for an error (KAFKA-17011).
        if least > 0 || cx.api_version >= 4 {
            let mut feature = SupportedFeatureKey::default();
            feature.name = fixed(name);
            feature.min_version = least;
            feature.max_version = largest;
            answer.supported_features.push(feature);
        }
        if let Some(level) = in_force {
            let mut feature = FinalizedFeatureKey::default();
            feature.name = fixed(name);
            feature.min_version_level = level;
            feature.max_version_level = level;
            answer.finalized_features.push(feature);
        }
    }
    // The levels belong to the program: they change with its start only.
    answer.finalized_features_epoch = i64::from(cx.broker.leader_epoch);
}

/// Whether the client means another cluster or node (case W19).
fn means_another(cx: &RequestContext, request: &ApiVersionsRequest) -> bool {
    request
        .cluster_id
        .as_ref()
        .is_some_and(|id| **id != *cx.broker.cluster_id || request.node_id != cx.broker.node_id)
}

/// Letters and digits, with dots and dashes between them (`ApiVersionsRequest.isValid`).
fn is_plain(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names() {
        for good in ["a", "apache-kafka-java", "4.4.0", "a1"] {
            assert!(is_plain(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a_b", "\u{1b}"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
