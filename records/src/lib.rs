//! Kafka's record format, and the ids that every crate shares.
//!
//! Knows bytes of record batches (magic 2); never sockets, files or requests. Everything here takes bytes of
//! strangers: no length, count or size in them is believed before the bytes that it speaks of are at hand.

pub mod batch;
pub mod compression;
pub mod error;
pub mod ids;
pub mod key_hash;
pub mod varint;

pub use batch::{Attributes, BatchView, Batches, TimestampType};
pub use compression::Codec;
pub use error::RecordError;
pub use key_hash::key_hash;
