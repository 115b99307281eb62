//! Kafka's wire protocol: frames, headers, the one table of APIs and versions, codecs and error codes.
//!
//! Owner: whoever holds a connection. In: bytes of one frame. Out: typed requests, or encoded answers as
//! [`Segments`] (inline bytes and file ranges). Knows no files, sockets or tokio: a file range is an opaque
//! type of the caller that only has a length ([`SegmentLen`]).
//!
//! Invariants: nothing is allocated from a peer's number that the bytes at hand do not back; what one request
//! may take in memory is known from its API and length alone ([`decoded_bytes_max`]); what the table in
//! [`api`] does not list is neither decoded nor advertised.
//!
//! Ordinary messages are the generated ones of `kafka-wire` ([`wire`]). What carries record bytes, or what is
//! our own, has its codec in [`messages`].

pub mod api;
mod decode;
mod encode;
pub mod error_code;
pub mod frame;
pub mod header;
mod limits;
pub mod messages;
pub mod request;
pub mod response;
pub mod segments;
mod shape;
#[cfg(test)]
mod tests;

pub use api::{Api, ApiKey, Refusal};
pub use decode::DecodeError;
pub use encode::EncodeError;
pub use error_code::ErrorCode;
pub use frame::FrameError;
pub use header::{Preamble, RequestHeader};
/// The generated messages of the ordinary APIs. All are `#[non_exhaustive]`: build them from
/// `Default::default()` and assign the fields.
pub use kafka_wire as wire;
/// The primitives of the generated codec: for those who speak an ordinary API from the client's side.
pub use kafka_wire_core as wire_core;
/// A UTF-8 string that borrows the frame which it came in.
pub use kafka_wire_core::{StrBytes, Uuid};
pub use limits::decoded_bytes_max;
pub use messages::{from_uuid, to_uuid};
pub use request::Request;
pub use response::Response;
pub use segments::{Records, Segment, SegmentLen, Segments};
