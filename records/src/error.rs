//! What can be wrong with the bytes of a batch, sorted by what the caller must do.

use thiserror::Error;

/// Why bytes could not be read as record batches or records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The bytes end before the batch does: read more of them, or, at the end of a log, cut the torn tail off.
    #[error("a batch ends after {available} of {needed} bytes, read on or cut the torn tail off")]
    Incomplete {
        /// Bytes that the batch needs, as far as is known by now.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// A format before batches (magic 0 or 1), or none at all: convert it elsewhere, it is never read here.
    #[error("record format magic {0} is not supported, send record batches of magic 2")]
    Magic(i8),
    /// The bytes never decode: refuse them, and where they are stored already treat the batch as poison.
    #[error("corrupt record data: {0}")]
    Corrupt(&'static str),
    /// The codec bits name no codec: treat as [`RecordError::Corrupt`].
    #[error("compression codec {0} does not exist, use 0 to 4")]
    Codec(u8),
    /// The payload inflates past the caller's limit: raise the limit, or refuse the batch.
    #[error("the records take more than {limit} bytes when decompressed, send smaller batches")]
    TooLarge {
        /// The limit that was given, in bytes.
        limit: usize,
    },
    /// A record of a compressed batch is larger than the caller's limit: raise the limit, or refuse the batch.
    #[error("a record takes more than {limit} bytes when decompressed, send smaller records")]
    RecordTooLarge {
        /// The limit that was given, in bytes.
        limit: usize,
    },
}
