//! ApiVersions (key 18, v0–v5).
//!
//! Lists what is served. v3 names the client's software (KIP-511), checked as Kafka checks it; v5 says whom the client
//! means to talk to (KIP-1242): a client that reached another cluster or node is told to start over. Versions that
//! are too new are answered by dispatch in version 0. Left out: features, since no KRaft feature is served.

use protocol::wire::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ErrorCode, response};

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
    let error = if cx.api_version >= 3
        && !(is_plain(&request.client_software_name) && is_plain(&request.client_software_version))
    {
        ErrorCode::InvalidRequest
    } else if cx.api_version >= 5 && means_another(cx, request) {
        ErrorCode::RebootstrapRequired
    } else {
        answer.api_keys = response::advertised_versions();
        ErrorCode::None
    };
    answer.error_code = error.code();
    Ok(answer)
}

/// Whether the client says that it means another cluster or node; what it does not say is no difference (case W19).
fn means_another(cx: &RequestContext, request: &ApiVersionsRequest) -> bool {
    let other_cluster = request.cluster_id.as_ref().is_some_and(|id| **id != *cx.broker.cluster_id);
    let other_node = request.node_id != -1 && request.node_id != cx.broker.node_id;
    other_cluster || other_node
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
