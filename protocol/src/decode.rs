//! Reading one message body: a bounded cursor over the frame's bytes.
//!
//! Invariants: a count is checked against the bytes that remain before anything is allocated for it; what all
//! collections of one body take together stays within the budget that the reader was made with; strings and
//! byte fields share the frame.

use bytes::Bytes;
use kafka_wire_core::StrBytes;
use records::ids::{KeyHash, Offset, TopicId};

use crate::error_code::ErrorCode;

/// Longest string that Kafka reads (`MessageUtil`, compact strings included).
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Why bytes are no message. Every variant means: close the connection, as Kafka does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No API of the table has this key.
    #[error("unknown api key {api_key}: ask ApiVersions for what is served")]
    UnknownApi {
        /// The key that was asked for.
        api_key: i16,
    },
    /// The API is served, this version of it is not.
    #[error("{name} does not serve version {version}")]
    UnsupportedVersion {
        /// The API's name.
        name: &'static str,
        /// The version that was asked for.
        version: i16,
    },
    /// The bytes end inside a field.
    #[error("the bytes end at {at}: {needed} needed, {left} left")]
    Truncated {
        /// Where the field starts, in bytes from the body's start.
        at: usize,
        /// Bytes that the field claims.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A count that the bytes left cannot hold.
    #[error("{count} elements at {at} do not fit the {left} bytes left")]
    CountTooLarge {
        /// Where the count's elements would start, in bytes from the body's start.
        at: usize,
        /// Elements that are claimed.
        count: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// The decoded form would take more memory than its API and length allow.
    #[error("the decoded form takes more than {limit} bytes: send fewer or longer elements in one request")]
    BudgetExceeded {
        /// Bytes that the decoded form may take.
        limit: usize,
    },
    /// A null where the version has none.
    #[error("null at {at} where this version allows none")]
    UnexpectedNull {
        /// Where, in bytes from the body's start.
        at: usize,
    },
    /// A variable-length number of more than five bytes, or a string beyond Kafka's longest.
    #[error("malformed length at {at}")]
    MalformedLength {
        /// Where, in bytes from the body's start.
        at: usize,
    },
    /// What the generated codec found.
    #[error("malformed body: {0}")]
    Malformed(#[from] kafka_wire_core::DecodeError),
}

/// A cursor over one body of a known version.
pub(crate) struct Reader {
    body: Bytes,
    at: usize,
    end: usize,
    version: i16,
    flexible: bool,
    budget_left: usize,
    budget: usize,
}

impl Reader {
    /// `budget`: heap bytes that all collections of the body may take together.
    pub(crate) fn new(body: Bytes, version: i16, flexible: bool, budget: usize) -> Self {
        let end = body.len();
        Self { body, at: 0, end, version, flexible, budget_left: budget, budget }
    }

    pub(crate) const fn version(&self) -> i16 {
        self.version
    }

    /// The bytes behind what was read.
    pub(crate) fn rest(self) -> Bytes {
        self.body.slice(self.at..self.end)
    }

    /// Bytes read so far.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) const fn is_flexible(&self) -> bool {
        self.flexible
    }

    pub(crate) const fn left(&self) -> usize {
        self.end - self.at
    }

    /// Passes over `count` bytes and returns where they start.
    pub(crate) fn take(&mut self, count: usize) -> Result<usize, DecodeError> {
        if count > self.left() {
            return Err(DecodeError::Truncated { at: self.at, needed: count, left: self.left() });
        }
        let start = self.at;
        self.at += count;
        Ok(start)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = self.take(N)?;
        Ok(self.body[start..start + N].try_into().expect("the slice is N long"))
    }

    pub(crate) fn i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Any byte but zero is true, as Kafka reads it.
    pub(crate) fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    pub(crate) fn topic_id(&mut self) -> Result<TopicId, DecodeError> {
        Ok(TopicId(self.array()?))
    }

    pub(crate) fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            if shift == 28 && byte & 0xf0 != 0 {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::MalformedLength { at })
    }

    /// A compact length: stored plus one, 0 is null.
    pub(crate) fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok(self.unsigned_varint()?.checked_sub(1).map(|length| length as usize))
    }

    /// A length of this version's form; null for any negative one, as Kafka reads it.
    fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        if self.flexible { self.compact_length() } else { Ok(usize::try_from(self.i32()?).ok()) }
    }

    pub(crate) fn nullable_string(&mut self) -> Result<Option<StrBytes>, DecodeError> {
        let length = if self.flexible { self.compact_length()? } else { usize::try_from(self.i16()?).ok() };
        length.map(|length| self.string_of(length)).transpose()
    }

    /// A string with an int16 length whatever the version: the request header's client id.
    pub(crate) fn nullable_legacy_string(&mut self) -> Result<Option<StrBytes>, DecodeError> {
        usize::try_from(self.i16()?).ok().map(|length| self.string_of(length)).transpose()
    }

    pub(crate) fn string(&mut self) -> Result<StrBytes, DecodeError> {
        let at = self.at;
        self.nullable_string()?.ok_or(DecodeError::UnexpectedNull { at })
    }

    fn string_of(&mut self, length: usize) -> Result<StrBytes, DecodeError> {
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::MalformedLength { at: self.at });
        }
        let start = self.take(length)?;
        let bytes = self.body.slice(start..start + length);
        match StrBytes::try_from(bytes) {
            Ok(string) => Ok(string),
            Err(_) => {
                self.charge(length)?;
                let mut text = self.body[start..start + length].to_vec();
                replace_malformed(&mut text);
                Ok(StrBytes::try_from(Bytes::from(text)).expect("what was no UTF-8 is replaced"))
            }
        }
    }

    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let start = self.take(length)?;
        Ok(Some(self.body.slice(start..start + length)))
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let at = self.at;
        self.nullable_bytes()?.ok_or(DecodeError::UnexpectedNull { at })
    }

    /// An array whose elements take at least `wire_min` bytes each.
    pub(crate) fn nullable_vec<T>(
        &mut self,
        wire_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.length()? else { return Ok(None) };
        if count > self.left() / wire_min.max(1) {
            return Err(DecodeError::CountTooLarge { at: self.at, count, left: self.left() });
        }
        self.charge(count.saturating_mul(size_of::<T>()))?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    pub(crate) fn vec<T>(
        &mut self,
        wire_min: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let at = self.at;
        self.nullable_vec(wire_min, element)?.ok_or(DecodeError::UnexpectedNull { at })
    }

    /// Reads the tag section where the version has one, and skips all of it.
    pub(crate) fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(|_, _| Ok(()))
    }

    /// Reads the tag section where the version has one. `known` gets a tag and a reader that ends where the
    /// tag's value does; what it leaves unread is skipped.
    pub(crate) fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Self) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.unsigned_varint()? as usize;
        if count > self.left() / 2 {
            return Err(DecodeError::CountTooLarge { at: self.at, count, left: self.left() });
        }
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let length = self.unsigned_varint()? as usize;
            let value = self.take(length)?;
            let (behind, end) = (self.at, self.end);
            (self.at, self.end) = (value, behind);
            known(tag, self)?;
            (self.at, self.end) = (behind, end);
        }
        Ok(())
    }

    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.budget_left =
            self.budget_left.checked_sub(bytes).ok_or(DecodeError::BudgetExceeded { limit: self.budget })?;
        Ok(())
    }
}

/// Puts `?` for every byte that is no UTF-8. Java reads such names with a replacement character, and the name
/// check then refuses them with its own error code: `?` is in no valid name either, and keeps the length.
pub(crate) fn replace_malformed(text: &mut [u8]) {
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&text[at..]) {
        at += error.valid_up_to();
        text[at] = b'?';
    }
}

/// A value that can be read in the version of its reader.
pub(crate) trait Read: Sized {
    /// The fewest bytes that a value takes on the wire.
    const WIRE_MIN: usize;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError>;
}

macro_rules! read_primitives {
    ($($Ty:ty, $wire_min:literal, |$reader:ident| $read:expr;)*) => {
        $(impl Read for $Ty {
            const WIRE_MIN: usize = $wire_min;

            fn read($reader: &mut Reader) -> Result<Self, DecodeError> {
                Ok($read)
            }
        })*
    };
}

read_primitives! {
    i8, 1, |reader| reader.i8()?;
    i16, 2, |reader| reader.i16()?;
    i32, 4, |reader| reader.i32()?;
    i64, 8, |reader| reader.i64()?;
    bool, 1, |reader| reader.bool()?;
    TopicId, 16, |reader| reader.topic_id()?;
    Offset, 8, |reader| Offset(reader.i64()?);
    KeyHash, 8, |reader| KeyHash(reader.i64()?.cast_unsigned());
    StrBytes, 1, |reader| reader.string()?;
    Option<StrBytes>, 1, |reader| reader.nullable_string()?;
    Bytes, 1, |reader| reader.bytes()?;
    // What a newer broker knows and we do not is an unknown error, as in Kafka's `Errors.forCode`.
    ErrorCode, 2, |reader| ErrorCode::from_code(reader.i16()?).unwrap_or(ErrorCode::UnknownServerError);
}

impl<T: Read> Read for Vec<T> {
    const WIRE_MIN: usize = 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.vec(T::WIRE_MIN, T::read)
    }
}

impl<T: Read> Read for Option<Vec<T>> {
    const WIRE_MIN: usize = 1;

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.nullable_vec(T::WIRE_MIN, T::read)
    }
}
