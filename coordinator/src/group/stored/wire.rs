//! Kafka's primitive types, for the few schemas of the offsets topic.
//!
//! Lengths come from a file: none is trusted beyond the bytes that are there.

use std::sync::Arc;

use bytes::Bytes;
use records::ids::TopicId;

use super::Malformed;

/// Writes primitives one after another.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// A count or length, plain.
    pub(super) fn len32(&mut self, len: usize) -> &mut Self {
        self.i32(i32::try_from(len).expect("what came in a frame is shorter than 2 GiB"))
    }

    /// `STRING`: names are bounded where they come in.
    pub(super) fn string(&mut self, value: &str) -> &mut Self {
        self.i16(
            i16::try_from(value.len()).expect("names are at most NAME_BYTES_MAX and a member id's suffix"),
        );
        self.0.extend(value.as_bytes());
        self
    }

    /// `NULLABLE_STRING`.
    pub(super) fn nullable_string(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.string(value),
            None => self.i16(-1),
        }
    }

    /// `BYTES`.
    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.len32(value.len());
        self.0.extend(value);
        self
    }

    /// `UNSIGNED_VARINT`.
    pub(super) fn varint(&mut self, mut value: u32) -> &mut Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// A compact count or length: one more than it is, so that 0 can mean null.
    pub(super) fn compact_len(&mut self, len: usize) -> &mut Self {
        self.varint(u32::try_from(len + 1).expect("what came in a frame is shorter than 2 GiB"))
    }

    /// `COMPACT_STRING`.
    pub(super) fn compact_string(&mut self, value: &str) -> &mut Self {
        self.compact_len(value.len());
        self.0.extend(value.as_bytes());
        self
    }

    /// `COMPACT_NULLABLE_STRING`.
    pub(super) fn compact_nullable_string(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.compact_string(value),
            None => self.varint(0),
        }
    }

    pub(super) fn topic_id(&mut self, id: TopicId) -> &mut Self {
        self.0.extend(id.0);
        self
    }

    /// The end of a flexible structure without tagged fields.
    pub(super) fn no_tags(&mut self) -> &mut Self {
        self.varint(0)
    }

    /// The end of a flexible structure with the one tagged field 0.
    pub(super) fn one_tag(&mut self, value: &[u8]) -> &mut Self {
        self.varint(1).varint(0).varint(u32::try_from(value.len()).expect("a tagged field is a few bytes"));
        self.0.extend(value);
        self
    }

    pub(super) fn finish(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

/// Reads primitives one after another.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn i8(&mut self) -> Result<i8, Malformed> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn topic_id(&mut self) -> Result<TopicId, Malformed> {
        self.array().map(TopicId)
    }

    fn text(&mut self, len: usize) -> Result<Arc<str>, Malformed> {
        std::str::from_utf8(self.take(len)?).map(Arc::from).map_err(|_| Malformed)
    }

    pub(super) fn nullable_string(&mut self) -> Result<Option<Arc<str>>, Malformed> {
        match self.i16()? {
            -1 => Ok(None),
            len => self.text(usize::try_from(len).map_err(|_| Malformed)?).map(Some),
        }
    }

    pub(super) fn string(&mut self) -> Result<Arc<str>, Malformed> {
        self.nullable_string()?.ok_or(Malformed)
    }

    /// A plain count; the caller reads that many elements and never allocates ahead by it.
    pub(super) fn len32(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.i32()?).map_err(|_| Malformed)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = self.len32()?;
        self.take(len).map(Bytes::copy_from_slice)
    }

    pub(super) fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = self.array::<1>()?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A compact count or length; null is refused.
    pub(super) fn compact_len(&mut self) -> Result<usize, Malformed> {
        self.varint()?.checked_sub(1).map(|len| len as usize).ok_or(Malformed)
    }

    pub(super) fn compact_nullable_string(&mut self) -> Result<Option<Arc<str>>, Malformed> {
        match self.varint()? {
            0 => Ok(None),
            len => self.text(len as usize - 1).map(Some),
        }
    }

    pub(super) fn compact_string(&mut self) -> Result<Arc<str>, Malformed> {
        self.compact_nullable_string()?.ok_or(Malformed)
    }

    pub(super) fn compact_bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = self.compact_len()?;
        self.take(len).map(Bytes::copy_from_slice)
    }

    /// The tagged fields that end a flexible structure: the bytes of field 0, if it is there; others are passed over.
    pub(super) fn tags(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let mut first = None;
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let len = self.varint()? as usize;
            let value = self.take(len)?;
            if tag == 0 {
                first = Some(value);
            }
        }
        Ok(first)
    }
}
