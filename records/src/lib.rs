//! Kafka's record format, and the ids that every crate shares.
//!
//! Knows bytes of record batches (magic 2); never sockets, files or requests.

pub mod ids;
