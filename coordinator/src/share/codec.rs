//! The compact binary form of stored share state: LEB128 numbers, length-prefixed strings, delta-coded ranges.
//!
//! What is read was written by this code and is guarded by the store's checksums; a reader still never trusts a
//! count with an allocation and ends in [`DecodeError`] instead of a panic.

use std::sync::Arc;

/// Stored share state cannot be understood: it is damaged, or a newer version wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored share state cannot be decoded")]
pub(crate) struct DecodeError;

/// Appends to a buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// An offset, a time in milliseconds: never negative in practice; negative ones take ten bytes.
    pub(crate) fn signed(&mut self, number: i64) {
        self.number(number.cast_unsigned());
    }

    /// How far `number` lies from `from`, in either direction.
    pub(crate) fn difference(&mut self, number: i64, from: i64) {
        let difference = number.wrapping_sub(from);
        self.number((difference << 1 ^ difference >> 63).cast_unsigned());
    }

    pub(crate) fn fixed(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Inclusive, ascending, disjoint ranges.
    pub(crate) fn ranges(&mut self, ranges: &[(i64, i64)]) {
        self.number(ranges.len() as u64);
        let mut behind = 0;
        for &(first, last) in ranges {
            self.signed(first - behind);
            self.signed(last - first);
            behind = last + 1;
        }
    }
}

/// Reads from a buffer.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.0.split_first().ok_or(DecodeError)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        self.number().map(u64::cast_signed)
    }

    /// What lies that far from `from`.
    pub(crate) fn difference(&mut self, from: i64) -> Result<i64, DecodeError> {
        let number = self.number()?;
        Ok(from.wrapping_add((number >> 1).cast_signed() ^ -(number & 1).cast_signed()))
    }

    pub(crate) fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError)
    }

    pub(crate) fn fixed(&mut self) -> Result<u64, DecodeError> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(DecodeError)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn text(&mut self) -> Result<Arc<str>, DecodeError> {
        std::str::from_utf8(self.bytes()?).map(Arc::from).map_err(|_| DecodeError)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.small()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(DecodeError)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn ranges(&mut self) -> Result<Vec<(i64, i64)>, DecodeError> {
        let count = self.small()?;
        let mut ranges = Vec::with_capacity(self.capacity(count));
        let mut behind = 0_i64;
        for _ in 0..count {
            let first = behind.checked_add(self.signed()?).ok_or(DecodeError)?;
            let last = first.checked_add(self.signed()?).filter(|&last| last >= first).ok_or(DecodeError)?;
            behind = last.checked_add(1).ok_or(DecodeError)?;
            ranges.push((first, last));
        }
        Ok(ranges)
    }

    /// How much to reserve for `count` things of at least a byte each.
    pub(crate) fn capacity(&self, count: u32) -> usize {
        (count as usize).min(self.0.len())
    }
}
