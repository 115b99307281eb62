//! One API, one file; the list of files is the list of APIs (`protocol::api` is the table).
//!
//! A handler takes the request and gives the answer; where Kafka closes the connection, it says so instead. Produce
//! alone has two parts: what must happen in order, and the wait.

pub mod api_versions;
pub mod authorized;
pub mod fetch;
pub mod metadata;
pub mod produce;

use protocol::{Request, Response};

use crate::context::{CloseConnection, RequestContext};
use crate::dispatch::Served;

/// Hands a request to its API's handler.
///
/// # Errors
/// Where the connection is to be closed.
pub async fn handle(cx: &RequestContext, request: Request) -> Result<Served, CloseConnection> {
    Ok(Served::Now(match request {
        Request::Produce(request) => return produce::handle(cx, request).await,
        Request::Fetch(request) => Response::Fetch(fetch::handle(cx, request).await?),
        Request::Metadata(request) => Response::Metadata(metadata::handle(cx, request).await?),
        Request::ApiVersions(request) => Response::ApiVersions(api_versions::handle(cx, &request)?),
        other => {
            return Err(CloseConnection::because(format!("{} is not served", other.key())));
        }
    }))
}
