//! What the application sees: a record, and what it says of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use records::ids::Offset;

/// One delivered record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970: the producer's, or the broker's append time.
    pub timestamp: i64,
    /// The key; records of one key come in order. `None`: no key, no order.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// How often it was delivered, this time included.
    pub delivery_count: i16,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done. The next record of its key may start.
    Accept,
    /// Try again, here or elsewhere. The key waits; its later records that this consumer holds are given up unworked.
    Release {
        /// Wait this long; `None`: the group's backoff (`sluice.share.retry.backoff.ms`).
        delay: Option<Duration>,
        /// For logs and the dead-letter topic.
        reason: Option<String>,
    },
    /// Never again: the group's poison policy decides what becomes of it.
    Reject {
        /// For logs and the dead-letter topic.
        reason: Option<String>,
    },
}

impl Outcome {
    /// A release without delay of its own.
    #[must_use]
    pub fn release(reason: impl Into<String>) -> Self {
        Self::Release { delay: None, reason: Some(reason.into()) }
    }

    /// A release that comes back after `delay` at the earliest.
    #[must_use]
    pub fn retry_after(delay: Duration, reason: impl Into<String>) -> Self {
        Self::Release { delay: Some(delay), reason: Some(reason.into()) }
    }

    /// A reject with its reason.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject { reason: Some(reason.into()) }
    }
}

/// `Ok` accepts, an error releases with its text as the reason.
impl<E: std::fmt::Display> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Accept,
            Err(error) => Self::release(error.to_string()),
        }
    }
}
