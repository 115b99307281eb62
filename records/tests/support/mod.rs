//! Hand-made batches: bytes that no builder would make.
#![allow(dead_code, reason = "each test file uses its part")]

use records::Codec;
use records::compression::compress;
use records::varint;

/// The header of a batch with everything a test may want to spoil.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) base_offset: i64,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer: (i64, i16, i32),
    pub(crate) count: i32,
    /// As it stands in the batch: compressed already where the attributes say so.
    pub(crate) payload: Vec<u8>,
}

impl Raw {
    /// A batch around encoded records, compressed here, with a count and last delta for `count` records.
    pub(crate) fn new(codec: Codec, count: i32, records: &[u8]) -> Self {
        Self {
            base_offset: 0,
            attributes: codec as i16,
            last_offset_delta: count - 1,
            base_timestamp: NOW,
            max_timestamp: NOW,
            producer: (-1, -1, -1),
            count,
            payload: compress(codec, records),
        }
    }

    /// The batch's bytes with a right length and CRC.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut covered = Vec::new();
        covered.extend_from_slice(&self.attributes.to_be_bytes());
        covered.extend_from_slice(&self.last_offset_delta.to_be_bytes());
        covered.extend_from_slice(&self.base_timestamp.to_be_bytes());
        covered.extend_from_slice(&self.max_timestamp.to_be_bytes());
        covered.extend_from_slice(&self.producer.0.to_be_bytes());
        covered.extend_from_slice(&self.producer.1.to_be_bytes());
        covered.extend_from_slice(&self.producer.2.to_be_bytes());
        covered.extend_from_slice(&self.count.to_be_bytes());
        covered.extend_from_slice(&self.payload);
        let mut bytes = self.base_offset.to_be_bytes().to_vec();
        bytes.extend_from_slice(&(covered.len() as i32 + 9).to_be_bytes());
        bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        bytes.push(2);
        bytes.extend_from_slice(&crc32c::crc32c(&covered).to_be_bytes());
        bytes.extend_from_slice(&covered);
        bytes
    }
}

/// The time at which the tests happen, in ms since 1970.
pub(crate) const NOW: i64 = 1_764_000_000_000;

/// One encoded record with a right length.
pub(crate) fn record(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut body = vec![0];
    varint::write_i64(&mut body, timestamp_delta);
    varint::write_i32(&mut body, offset_delta);
    for part in [key, value] {
        varint::write_i32(&mut body, part.map_or(-1, |part| part.len() as i32));
        body.extend_from_slice(part.unwrap_or_default());
    }
    body.push(0);
    with_length(body.len() as i32, &body)
}

/// `body` behind any length that a test claims.
pub(crate) fn with_length(length: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::write_i32(&mut bytes, length);
    bytes.extend_from_slice(body);
    bytes
}

/// Two good records.
pub(crate) fn two_records() -> Vec<u8> {
    [record(0, 0, Some(b"k0"), Some(b"v0")), record(5, 1, Some(b"k1"), Some(b"v1"))].concat()
}
