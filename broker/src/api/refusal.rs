//! Why one item of a request is refused, as its client is told.

use protocol::{ErrorCode, StrBytes};

use crate::catalog::CatalogError;
use crate::error_map;

/// A code and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    text: Option<String>,
}

impl Refusal {
    /// With a text that says what to do.
    pub(super) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: Some(text.into()) }
    }

    /// INVALID_REQUEST, the answer to what no well-meant client sends.
    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, text)
    }

    /// REQUEST_TIMED_OUT: the client gives no time at all, as in Kafka it then gets none.
    pub(super) const fn timed_out() -> Self {
        Self { code: ErrorCode::RequestTimedOut, text: None }
    }

    /// The text in the form that answers hold.
    pub(super) fn message(self) -> Option<StrBytes> {
        self.text.map(StrBytes::from)
    }
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Self {
        Self::new(error_map::catalog(&error), error.to_string())
    }
}
