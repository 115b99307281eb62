//! How the local executor names bytes of a log.

use bytes::Bytes;
use coordinator::io::Slice;
use protocol::{Records, Segment};

/// A range of a log file.
pub type FileRange = std::convert::Infallible;

/// Record bytes of an answer: whole batches, in order.
#[derive(Clone, Debug)]
pub enum Data {
    /// In memory, in pieces.
    Memory(Vec<Bytes>),
}

impl Slice for Data {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

impl From<Data> for Records<FileRange> {
    fn from(data: Data) -> Self {
        match data {
            Data::Memory(pieces) => pieces.into_iter().map(Segment::Inline).collect(),
        }
    }
}
