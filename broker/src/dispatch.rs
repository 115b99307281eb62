//! From a frame to an answer: header, version check, decoding, handler, encoding.

use std::pin::Pin;

use bytes::Bytes;
use protocol::{ApiKey, Preamble, Refusal, Request, RequestHeader, Segments, StrBytes};

use crate::api;
use crate::context::{CloseConnection, RequestContext};
use crate::executor::FileRange;

/// An answer of any API.
pub type Response = protocol::Response<FileRange>;

/// An encoded answer.
pub type Answer = Segments<FileRange>;

/// A decoded request.
#[derive(Debug)]
pub struct Incoming {
    /// Its API.
    pub key: ApiKey,
    /// Its version.
    pub version: i16,
    /// What its answer repeats.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<StrBytes>,
    /// Its body.
    pub request: Request,
}

/// What a frame turns out to be.
#[derive(Debug)]
pub enum Decoded {
    /// A request to serve.
    Request(Box<Incoming>),
    /// ApiVersions in a version that is too new: its answer is fixed (KIP-511, case W02).
    Answered(Answer),
}

/// What a handler made of a request.
pub enum Served {
    /// The answer.
    Now(Response),
    /// The ordered part is done; the answer comes later (`None`: there is none).
    Later(Pin<Box<dyn Future<Output = Result<Option<Response>, CloseConnection>> + Send>>),
}

/// The API of a request, by what every request begins with; `None` for an ApiVersions that is too new, which is answered
/// (KIP-511). The reader asks as soon as these bytes are there, so that nobody has to take in a body that leads nowhere.
///
/// # Errors
/// For a key or a version that is not served: Kafka closes the connection.
pub(crate) fn route(api_key: i16, api_version: i16) -> Result<Option<ApiKey>, CloseConnection> {
    match ApiKey::route(api_key, api_version) {
        Ok(key) => Ok(Some(key)),
        Err(Refusal::ApiVersionsTooNew { .. }) => Ok(None),
        Err(refusal @ (Refusal::UnknownApi { .. } | Refusal::UnsupportedVersion { .. })) => {
            Err(CloseConnection::because(format!(
                "request with key {api_key} version {api_version} is not served: {refusal}"
            )))
        }
    }
}

/// Requests of a client of this name panic in their handler, in tests of what a panic may touch (case B12).
#[cfg(test)]
pub(crate) const PANICKING_CLIENT: &str = "panic";

/// Checks key and version and decodes header and body.
///
/// # Errors
/// Where Kafka closes the connection: unknown keys, versions that are not served, bodies that do not decode. The
/// text names key and version.
pub fn decode(frame: &Bytes) -> Result<Decoded, CloseConnection> {
    let preamble = Preamble::peek(frame).map_err(|error| CloseConnection::because(error.to_string()))?;
    let Preamble { api_key, api_version, correlation_id } = preamble;
    let malformed = |what: &str, error: &dyn std::fmt::Display| {
        CloseConnection::because(format!(
            "malformed {what} of a request with key {api_key} version {api_version}: {error}"
        ))
    };
    let Some(key) = route(api_key, api_version)? else {
        let answer = Response::ApiVersions(protocol::response::unsupported_api_versions())
            .encode(0, correlation_id)
            .map_err(|error| malformed("answer", &error))?;
        return Ok(Decoded::Answered(answer));
    };
    let (header, body) = RequestHeader::decode(frame).map_err(|error| malformed("header", &error))?;
    let request = Request::decode(key, api_version, body).map_err(|error| malformed("body", &error))?;
    Ok(Decoded::Request(Box::new(Incoming {
        key,
        version: api_version,
        correlation_id,
        client_id: header.client_id,
        request,
    })))
}

/// Serves a request: its ordered part, or all of it.
///
/// # Errors
/// Where the connection is to be closed.
pub async fn serve(cx: &RequestContext, request: Request) -> Result<Served, CloseConnection> {
    #[cfg(test)]
    assert_ne!(&*cx.client_id, PANICKING_CLIENT, "the test hook of a handler that panics");
    api::handle(cx, request).await
}

/// Encodes an answer in its request's version.
///
/// # Errors
/// Where the answer cannot be said in this version, which is a fault of its handler.
pub fn encode(response: Response, version: i16, correlation_id: i32) -> Result<Answer, CloseConnection> {
    let name = response.key().name();
    response.encode(version, correlation_id).map_err(|error| {
        CloseConnection::because(format!("answer of {name} version {version} cannot be written: {error}"))
    })
}

/// Whether a request carries acknowledgements, which must not wait behind a parked fetch of their connection.
#[must_use]
pub fn acknowledges(request: &Request) -> bool {
    match request {
        Request::ShareAcknowledge(_) | Request::KeyShareAcknowledge(_) | Request::KeyShareCommit(_) => true,
        Request::ShareFetch(fetch) => fetch
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .any(|partition| !partition.acknowledgements.is_empty()),
        Request::KeyShareFetch(fetch) => fetch
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .any(|partition| !partition.acknowledgements.is_empty()),
        _ => false,
    }
}

/// Whether requests of this API start only when all earlier answers of their connection are written (DESIGN §4).
#[must_use]
pub const fn waits_for_earlier_answers(key: ApiKey) -> bool {
    matches!(key, ApiKey::ShareFetch | ApiKey::KeyShareFetch)
}

/// Whether requests of this API may wait long for something to happen: they are given up when their client goes.
#[must_use]
pub const fn waits_for_events(key: ApiKey) -> bool {
    matches!(
        key,
        ApiKey::Fetch | ApiKey::ShareFetch | ApiKey::KeyShareFetch | ApiKey::JoinGroup | ApiKey::SyncGroup
    )
}
