//! How the local executor names bytes of a log.

use std::fs::File;
use std::io;

use bytes::Bytes;
use coordinator::io::Slice;
use protocol::{Records, Segment, SegmentLen};
use storage::LogSlice;

/// Record bytes of an answer: whole batches, in order.
#[derive(Clone, Debug)]
pub enum Data {
    /// In a log file.
    Log(LogSlice),
    /// In memory, in pieces.
    Memory(Vec<Bytes>),
}

impl Slice for Data {
    fn len(&self) -> u64 {
        match self {
            Self::Log(slice) => slice.len(),
            Self::Memory(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

impl From<Data> for Records<FileRange> {
    fn from(data: Data) -> Self {
        match data {
            Data::Log(slice) if slice.is_empty() => Self::new(),
            Data::Log(slice) => std::iter::once(Segment::File(FileRange(slice))).collect(),
            Data::Memory(pieces) => pieces.into_iter().map(Segment::Inline).collect(),
        }
    }
}

/// A range of a log file. It stays readable when the log moves on.
#[derive(Clone, Debug)]
pub struct FileRange(LogSlice);

impl SegmentLen for FileRange {
    fn byte_len(&self) -> usize {
        usize::try_from(self.0.len()).expect("a range lies in one segment, below 2 GiB")
    }
}

impl FileRange {
    /// Where in the file it begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The file, for `sendfile`; `None` where the disk is simulated.
    #[must_use]
    pub fn os_file(&self) -> Option<&File> {
        self.0.os_file()
    }

    /// Bytes of the file, for where there is no `sendfile`.
    ///
    /// # Errors
    /// Where the disk fails or the file ends.
    pub fn read_at(&self, position: u64, count: u64) -> io::Result<Bytes> {
        let file = self.0.file().ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = vec![0; usize::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?];
        file.read_exact_at(&mut bytes, position)?;
        Ok(bytes.into())
    }
}
