//! An encoded answer: inline bytes and file ranges, in the order in which they go out.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};

/// A range of a file that the caller supplies and later sends; only its length matters here.
pub trait SegmentLen {
    /// Bytes in the range.
    fn byte_len(&self) -> usize;
}

/// "No file ranges": for the client, and for tests.
impl SegmentLen for Infallible {
    fn byte_len(&self) -> usize {
        match *self {}
    }
}

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment<F = Infallible> {
    /// Bytes in memory.
    Inline(Bytes),
    /// A range of a file, sent without coming through here.
    File(F),
}

impl<F: SegmentLen> Segment<F> {
    /// Bytes in this piece.
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::File(range) => range.byte_len(),
        }
    }
}

/// The record bytes of one partition: whole batches, in pieces. Empty is written as length 0, never as null
/// (a null here has broken clients).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records<F = Infallible> {
    segments: Vec<Segment<F>>,
}

impl<F> Records<F> {
    /// No records.
    #[must_use]
    pub const fn new() -> Self {
        Self { segments: Vec::new() }
    }

    /// Appends a piece.
    pub fn push(&mut self, segment: Segment<F>) {
        self.segments.push(segment);
    }

    /// The pieces in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment<F>] {
        &self.segments
    }

    pub(crate) fn into_segments(self) -> Vec<Segment<F>> {
        self.segments
    }
}

impl<F: SegmentLen> Records<F> {
    /// Bytes in all pieces.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.segments.iter().map(Segment::byte_len).sum()
    }

    /// Whether there is no byte in any piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.byte_len() == 0
    }
}

impl Records<Infallible> {
    /// The record bytes in one piece.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        join(self.segments)
    }
}

impl<F> Default for Records<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> From<Bytes> for Records<F> {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::new() } else { Self { segments: vec![Segment::Inline(bytes)] } }
    }
}

impl<F> FromIterator<Segment<F>> for Records<F> {
    fn from_iter<I: IntoIterator<Item = Segment<F>>>(segments: I) -> Self {
        Self { segments: segments.into_iter().collect() }
    }
}

/// A whole frame, its 4-byte length prefix included, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments<F = Infallible> {
    segments: Vec<Segment<F>>,
    byte_len: usize,
}

impl<F: SegmentLen> Segments<F> {
    pub(crate) fn new(segments: Vec<Segment<F>>) -> Self {
        let byte_len = segments.iter().map(Segment::byte_len).sum();
        Self { segments, byte_len }
    }
}

impl<F> Segments<F> {
    /// Bytes that go to the socket in all, the length prefix included.
    #[must_use]
    pub const fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// The pieces in the order in which they go out.
    #[must_use]
    pub fn as_slice(&self) -> &[Segment<F>] {
        &self.segments
    }

    /// The same with every file range turned into bytes by `read`.
    pub fn read_files(self, mut read: impl FnMut(F) -> Bytes) -> Segments {
        let segments = self
            .segments
            .into_iter()
            .map(|segment| match segment {
                Segment::Inline(bytes) => Segment::Inline(bytes),
                Segment::File(range) => Segment::Inline(read(range)),
            })
            .collect();
        Segments::new(segments)
    }
}

impl Segments<Infallible> {
    /// The frame in one piece.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        join(self.segments)
    }
}

impl<F> IntoIterator for Segments<F> {
    type Item = Segment<F>;
    type IntoIter = std::vec::IntoIter<Segment<F>>;

    fn into_iter(self) -> Self::IntoIter {
        self.segments.into_iter()
    }
}

fn join(mut segments: Vec<Segment<Infallible>>) -> Bytes {
    if segments.len() == 1
        && let Some(Segment::Inline(bytes)) = segments.pop()
    {
        return bytes;
    }
    let mut joined = BytesMut::with_capacity(segments.iter().map(Segment::byte_len).sum());
    for segment in segments {
        match segment {
            Segment::Inline(bytes) => joined.extend_from_slice(&bytes),
            Segment::File(range) => match range {},
        }
    }
    joined.freeze()
}
