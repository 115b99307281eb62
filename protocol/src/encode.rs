//! Writing one frame: a length prefix that is filled in at the end, small fields in one buffer, record bytes
//! as pieces of their own.

use std::convert::Infallible;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire_core::{ApiVersion, KafkaEncode, StrBytes};
use records::ids::{KeyHash, Offset, TopicId};

use crate::error_code::ErrorCode;
use crate::segments::{Records, Segment, SegmentLen, Segments};

/// Record bytes shorter than this are copied into the buffer: a piece of its own costs more than the copy.
const COPIED_BELOW_BYTES: usize = 512;

/// What a frame's buffer starts with: most answers fit.
const BUFFER_BYTES: usize = 256;

/// Bytes of the length prefix.
const PREFIX_BYTES: usize = 4;

/// Why a message cannot be written. Always a fault of the one who built it, never of the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A string or array beyond what its length field can say.
    #[error("a field of {length} bytes is too long for its length prefix: cut it")]
    FieldTooLong {
        /// The field's length in bytes, or the array's in elements.
        length: usize,
    },
    /// A topic given by id in a version that names topics, or the reverse.
    #[error("version {version} tells topics by {wanted}: answer with what the request used")]
    WrongTopicForm {
        /// The version that was to be written.
        version: i16,
        /// `name` or `id`.
        wanted: &'static str,
    },
    /// A frame beyond 2 GiB.
    #[error("a frame of {bytes} bytes does not fit its length prefix: put less into one answer")]
    FrameTooLong {
        /// The frame's length in bytes.
        bytes: usize,
    },
    /// What the generated codec refuses: mostly a field that this version does not have.
    #[error("message cannot be written: {0}")]
    Unrepresentable(#[from] kafka_wire_core::EncodeError),
}

/// A frame being written, in one version. The first fault is kept and returned at the end.
pub(crate) struct Writer<F> {
    buffer: BytesMut,
    /// Pieces with the place in `buffer` that each stands at, ascending.
    pieces: Vec<(usize, Segment<F>)>,
    pieces_bytes: usize,
    version: i16,
    flexible: bool,
    fault: Option<EncodeError>,
}

impl<F: SegmentLen> Writer<F> {
    /// A frame whose length prefix is still open.
    pub(crate) fn frame(version: i16, flexible: bool) -> Self {
        let mut writer = Self::bare(version, flexible);
        writer.buffer.put_bytes(0, PREFIX_BYTES);
        writer
    }

    fn bare(version: i16, flexible: bool) -> Self {
        Self {
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            pieces: Vec::new(),
            pieces_bytes: 0,
            version,
            flexible,
            fault: None,
        }
    }

    pub(crate) const fn version(&self) -> i16 {
        self.version
    }

    /// Fills in the length prefix.
    pub(crate) fn finish(mut self) -> Result<Segments<F>, EncodeError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let bytes = self.buffer.len() - PREFIX_BYTES + self.pieces_bytes;
        let prefix = i32::try_from(bytes).map_err(|_| EncodeError::FrameTooLong { bytes })?;
        self.buffer[..PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
        let buffer = self.buffer.freeze();
        let mut segments = Vec::with_capacity(2 * self.pieces.len() + 1);
        let mut from = 0;
        for (at, piece) in self.pieces {
            if at > from {
                segments.push(Segment::Inline(buffer.slice(from..at)));
            }
            segments.push(piece);
            from = at;
        }
        if buffer.len() > from {
            segments.push(Segment::Inline(buffer.slice(from..)));
        }
        Ok(Segments::new(segments))
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    pub(crate) fn topic_id(&mut self, value: TopicId) {
        self.buffer.put_slice(&value.0);
    }

    pub(crate) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }

    fn compact_length(&mut self, length: usize) {
        match u32::try_from(length).ok().and_then(|length| length.checked_add(1)) {
            Some(stored) => self.unsigned_varint(stored),
            None => self.fail(EncodeError::FieldTooLong { length }),
        }
    }

    /// A length of this version's form; `None` is null.
    fn length(&mut self, length: Option<usize>) {
        match (length, self.flexible) {
            (Some(length), true) => self.compact_length(length),
            (None, true) => self.unsigned_varint(0),
            (Some(length), false) => match i32::try_from(length) {
                Ok(length) => self.i32(length),
                Err(_) => self.fail(EncodeError::FieldTooLong { length }),
            },
            (None, false) => self.i32(-1),
        }
    }

    pub(crate) fn nullable_string(&mut self, value: Option<&StrBytes>) {
        match value {
            None if self.flexible => self.unsigned_varint(0),
            None => self.i16(-1),
            Some(value) => self.string(value),
        }
    }

    pub(crate) fn string(&mut self, value: &StrBytes) {
        match i16::try_from(value.len()) {
            Ok(_) if self.flexible => self.compact_length(value.len()),
            Ok(length) => self.i16(length),
            Err(_) => self.fail(EncodeError::FieldTooLong { length: value.len() }),
        }
        self.buffer.put_slice(value.as_bytes());
    }

    /// A string with an int16 length whatever the version: the request header's client id.
    pub(crate) fn nullable_legacy_string(&mut self, value: Option<&StrBytes>) {
        let flexible = std::mem::replace(&mut self.flexible, false);
        self.nullable_string(value);
        self.flexible = flexible;
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.length(Some(value.len()));
        self.buffer.put_slice(value);
    }

    /// Record bytes: never null.
    pub(crate) fn records(&mut self, records: Records<F>) {
        self.length(Some(records.byte_len()));
        for segment in records.into_segments() {
            match segment {
                Segment::Inline(bytes) if bytes.len() < COPIED_BELOW_BYTES => self.buffer.put_slice(&bytes),
                piece => {
                    self.pieces_bytes += piece.byte_len();
                    self.pieces.push((self.buffer.len(), piece));
                }
            }
        }
    }

    pub(crate) fn nullable_vec<T>(&mut self, values: Option<Vec<T>>, mut element: impl FnMut(&mut Self, T)) {
        self.length(values.as_ref().map(Vec::len));
        for value in values.into_iter().flatten() {
            element(self, value);
        }
    }

    pub(crate) fn vec<T>(&mut self, values: Vec<T>, element: impl FnMut(&mut Self, T)) {
        self.nullable_vec(Some(values), element);
    }

    /// An empty tag section, where the version has one.
    pub(crate) fn no_tags(&mut self) {
        if self.flexible {
            self.unsigned_varint(0);
        }
    }

    /// The tag section, where the version has one. `tags` ascend.
    pub(crate) fn tags(&mut self, tags: Vec<(u32, Bytes)>) {
        if !self.flexible {
            return;
        }
        self.unsigned_varint(tags.len() as u32);
        for (tag, value) in tags {
            self.unsigned_varint(tag);
            self.unsigned_varint(value.len() as u32);
            self.buffer.put_slice(&value);
        }
    }

    /// The value of one tag of this version.
    pub(crate) fn tag_value(&mut self, write: impl FnOnce(&mut Writer<Infallible>)) -> Bytes {
        let mut writer = Writer::<Infallible>::bare(self.version, self.flexible);
        write(&mut writer);
        if let Some(fault) = writer.fault {
            self.fail(fault);
        }
        writer.buffer.freeze()
    }

    /// A body that the generated codec writes.
    pub(crate) fn generated(&mut self, body: &impl KafkaEncode) {
        if let Err(fault) = body.encode_into(&mut self.buffer, ApiVersion::new(self.version)) {
            self.fail(fault.into());
        }
    }

    pub(crate) fn fail(&mut self, fault: EncodeError) {
        self.fault.get_or_insert(fault);
    }
}

/// A value that can be written in the version of its writer.
pub(crate) trait Write<F> {
    fn write(self, writer: &mut Writer<F>);
}

macro_rules! write_primitives {
    ($($Ty:ty, |$writer:ident, $value:ident| $write:expr;)*) => {
        $(impl<F: SegmentLen> Write<F> for $Ty {
            fn write(self, $writer: &mut Writer<F>) {
                let $value = self;
                $write;
            }
        })*
    };
}

write_primitives! {
    i8, |writer, value| writer.i8(value);
    i16, |writer, value| writer.i16(value);
    i32, |writer, value| writer.i32(value);
    i64, |writer, value| writer.i64(value);
    bool, |writer, value| writer.i8(i8::from(value));
    TopicId, |writer, value| writer.topic_id(value);
    Offset, |writer, value| writer.i64(value.get());
    KeyHash, |writer, value| writer.i64(value.0.cast_signed());
    StrBytes, |writer, value| writer.string(&value);
    Option<StrBytes>, |writer, value| writer.nullable_string(value.as_ref());
    Bytes, |writer, value| writer.bytes(&value);
    ErrorCode, |writer, value| writer.i16(value.code());
}

impl<F: SegmentLen> Write<F> for Records<F> {
    fn write(self, writer: &mut Writer<F>) {
        writer.records(self);
    }
}

impl<F: SegmentLen, T: Write<F>> Write<F> for Vec<T> {
    fn write(self, writer: &mut Writer<F>) {
        writer.vec(self, |writer, value| value.write(writer));
    }
}

impl<F: SegmentLen, T: Write<F>> Write<F> for Option<Vec<T>> {
    fn write(self, writer: &mut Writer<F>) {
        writer.nullable_vec(self, |writer, value| value.write(writer));
    }
}
