//! A look at the body of an ordinary request before the generated codec decodes it.
//!
//! The generated codec bounds every array alone, but not what all arrays of a body take together: two
//! megabytes of empty names decode to seventy. So the body is walked first, without allocating, along a table
//! of its shape. The walk
//! - refuses counts that the bytes left cannot back, and bodies that decode to more than their budget;
//! - rewrites what Kafka reads leniently and the generated codec refuses: negative counts below −1 (null),
//!   booleans above 1 (true), strings that are no UTF-8 (see [`replace_malformed`]).

pub(crate) mod requests;

use bytes::{Bytes, BytesMut};
use kafka_wire_core::TaggedField;

use crate::decode::{DecodeError, Reader, STRING_BYTES_MAX, replace_malformed};

/// One field, and the versions that have it.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) kind: Kind,
    pub(crate) since: i16,
    pub(crate) until: i16,
    /// First version in which the field may be null.
    pub(crate) nullable_since: i16,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// So many bytes, of any value.
    Fixed(usize),
    Boolean,
    Text,
    Blob,
    /// Elements of `element_bytes` each in memory. Structs end with a tag section, primitives do not.
    Array {
        element: &'static [Field],
        element_bytes: usize,
        tagged: bool,
    },
    /// A struct behind a byte that is negative for null.
    Optional(&'static [Field]),
}

impl Field {
    const fn new(kind: Kind) -> Self {
        Self { kind, since: 0, until: i16::MAX, nullable_since: i16::MAX }
    }

    pub(crate) const fn since(self, since: i16) -> Self {
        Self { since, ..self }
    }

    pub(crate) const fn until(self, until: i16) -> Self {
        Self { until, ..self }
    }

    pub(crate) const fn nullable_since(self, nullable_since: i16) -> Self {
        Self { nullable_since, ..self }
    }

    pub(crate) const fn nullable(self) -> Self {
        self.nullable_since(0)
    }

    pub(crate) const fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }
}

pub(crate) const fn fixed(bytes: usize) -> Field {
    Field::new(Kind::Fixed(bytes))
}

pub(crate) const fn boolean() -> Field {
    Field::new(Kind::Boolean)
}

pub(crate) const fn text() -> Field {
    Field::new(Kind::Text)
}

pub(crate) const fn blob() -> Field {
    Field::new(Kind::Blob)
}

/// An array of structs that decode to `T`.
pub(crate) const fn structs<T>(element: &'static [Field]) -> Field {
    Field::new(Kind::Array { element, element_bytes: size_of::<T>(), tagged: true })
}

/// An array of primitives that decode to `T`.
pub(crate) const fn primitives<T>(element: &'static [Field]) -> Field {
    Field::new(Kind::Array { element, element_bytes: size_of::<T>(), tagged: false })
}

pub(crate) const fn optional(fields: &'static [Field]) -> Field {
    Field::new(Kind::Optional(fields))
}

/// Walks `body` and returns it as the generated codec can read it: the same bytes, or a copy where something
/// had to be rewritten. `budget`: heap bytes that the decoded form may take.
pub(crate) fn walk(
    shape: &'static [Field],
    version: i16,
    flexible: bool,
    body: &Bytes,
    budget: usize,
) -> Result<Bytes, DecodeError> {
    let mut walk = Walk {
        reader: Reader::new(body.clone(), version, flexible, budget),
        body,
        rewritten: None,
        grown_bytes: 0,
    };
    walk.fields(shape, true)?;
    // While the largest array grows, its old and its new place exist at once.
    walk.reader.charge(walk.grown_bytes / 2)?;
    Ok(walk.rewritten.map_or_else(|| body.clone(), BytesMut::freeze))
}

struct Walk<'a> {
    reader: Reader,
    body: &'a Bytes,
    rewritten: Option<BytesMut>,
    /// Bytes of the largest array.
    grown_bytes: usize,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &'static [Field], tagged: bool) -> Result<(), DecodeError> {
        for field in fields {
            if field.is_in(self.reader.version()) {
                self.field(field)?;
            }
        }
        if tagged { self.tags() } else { Ok(()) }
    }

    fn field(&mut self, field: &'static Field) -> Result<(), DecodeError> {
        let at = self.reader.at();
        let nullable = field.nullable_since <= self.reader.version();
        match field.kind {
            Kind::Fixed(bytes) => {
                self.reader.take(bytes)?;
            }
            Kind::Boolean => {
                if !matches!(self.reader.i8()?, 0 | 1) {
                    self.rewrite(at, &[1])?;
                }
            }
            Kind::Text => {
                let length = if self.reader.is_flexible() {
                    self.reader.compact_length()?
                } else {
                    let length = self.reader.i16()?;
                    if length < -1 {
                        self.rewrite(at, &(-1_i16).to_be_bytes())?;
                    }
                    usize::try_from(length).ok()
                };
                if let Some(length) = self.not_null(length, nullable, at)? {
                    self.text(length)?;
                }
            }
            Kind::Blob => {
                let length = self.length(at)?;
                if let Some(length) = self.not_null(length, nullable, at)? {
                    self.reader.take(length)?;
                }
            }
            Kind::Array { element, element_bytes, tagged } => {
                let count = self.length(at)?;
                if let Some(count) = self.not_null(count, nullable, at)? {
                    self.array(count, element_bytes)?;
                    for _ in 0..count {
                        self.fields(element, tagged)?;
                    }
                }
            }
            Kind::Optional(fields) => {
                if self.reader.i8()? >= 0 {
                    self.fields(fields, true)?;
                }
            }
        }
        Ok(())
    }

    fn length(&mut self, at: usize) -> Result<Option<usize>, DecodeError> {
        if self.reader.is_flexible() {
            return self.reader.compact_length();
        }
        let length = self.reader.i32()?;
        if length < -1 {
            self.rewrite(at, &(-1_i32).to_be_bytes())?;
        }
        Ok(usize::try_from(length).ok())
    }

    fn not_null(
        &self,
        length: Option<usize>,
        nullable: bool,
        at: usize,
    ) -> Result<Option<usize>, DecodeError> {
        if length.is_none() && !nullable { Err(DecodeError::UnexpectedNull { at }) } else { Ok(length) }
    }

    fn text(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::MalformedLength { at: self.reader.at() });
        }
        let start = self.reader.take(length)?;
        if std::str::from_utf8(&self.body[start..start + length]).is_err() {
            replace_malformed(&mut self.copy()?[start..start + length]);
        }
        Ok(())
    }

    /// Charges for an array that grows by doubling, as the generated codec's do. Every element takes at least
    /// one byte on the wire.
    fn array(&mut self, count: usize, element_bytes: usize) -> Result<(), DecodeError> {
        let left = self.reader.left();
        if count > left {
            return Err(DecodeError::CountTooLarge { at: self.reader.at(), count, left });
        }
        let smallest = if element_bytes == 1 { 8 } else { 4 };
        let capacity = if count == 0 { 0 } else { count.next_power_of_two().max(smallest) };
        let bytes = capacity.saturating_mul(element_bytes);
        self.grown_bytes = self.grown_bytes.max(bytes);
        self.reader.charge(bytes)
    }

    fn tags(&mut self) -> Result<(), DecodeError> {
        if !self.reader.is_flexible() {
            return Ok(());
        }
        let count = self.reader.unsigned_varint()? as usize;
        self.array(count, size_of::<TaggedField>())?;
        for _ in 0..count {
            self.reader.unsigned_varint()?;
            let length = self.reader.unsigned_varint()? as usize;
            self.reader.take(length)?;
        }
        Ok(())
    }

    fn rewrite(&mut self, at: usize, bytes: &[u8]) -> Result<(), DecodeError> {
        self.copy()?[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn copy(&mut self) -> Result<&mut BytesMut, DecodeError> {
        if self.rewritten.is_none() {
            self.reader.charge(self.body.len())?;
        }
        Ok(self.rewritten.get_or_insert_with(|| BytesMut::from(&self.body[..])))
    }
}
