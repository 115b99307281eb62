//! What a consumer cannot go on with.

use std::io;

use protocol::ErrorCode;

/// Why a consumer ended. What passes by itself (a restart of the broker, a lost session) is retried and never
/// shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No bootstrap address could be reached within the connect timeout.
    #[error("no broker reached at {bootstrap}: {source}")]
    Unreachable {
        /// The addresses that were tried.
        bootstrap: String,
        /// The last failure.
        source: io::Error,
    },
    /// The broker does not know the key-share API: it is no Sluice.
    #[error("the broker at {address} does not serve the key-share API: use a KIP-932 share consumer there")]
    NotSupported {
        /// Who was asked.
        address: String,
    },
    /// The group keeps no order of keys, which is its own setting: records of one key would go to several members.
    #[error(
        "share group {group} keeps no order of keys: set sluice.share.order=key for it first (kafka-configs --alter \
         --entity-type groups --entity-name {group} --add-config sluice.share.order=key)"
    )]
    NotKeyOrdered {
        /// The group.
        group: String,
    },
    /// The connection to the broker broke, or its answer made no sense, while it was asked or told something
    /// ([`Admin`](crate::Admin)).
    #[error("the broker at {address} gave no answer: {reason}")]
    Broken {
        /// Who was asked.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The broker refused in a way that repeating does not mend.
    #[error("{what} was refused with {code:?}: {message}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The broker's code.
        code: ErrorCode,
        /// The broker's words.
        message: String,
    },
}

/// Why a step failed that will be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The connection.
    #[error("connection lost: {0}")]
    Connection(#[from] io::Error),
    /// An answer that makes no sense.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// The broker asks to come back later.
    #[error("{0:?}")]
    Retriable(ErrorCode),
    /// Something that repeating does not mend.
    #[error(transparent)]
    Fatal(#[from] Error),
}
