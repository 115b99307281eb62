//! Record batches (magic 2) as borrowed views: nothing is copied or allocated to look at one.
//!
//! The 61-byte header is that of Kafka's `DefaultRecordBatch`; all its numbers are big-endian.

pub mod build;
pub mod filtered;
pub mod marker;
pub mod records;
pub mod repack;
pub mod slim;
pub mod stamp;
pub mod validate;

use crate::RecordError;
use crate::compression::Codec;
use crate::ids::Offset;

pub use build::BatchBuilder;
pub use filtered::FilteredBuilder;
pub use marker::EndMarker;
pub use records::{Header, Headers, Record, Records};
pub use repack::{Packing, repack};
pub use slim::SlimBuilder;
pub use stamp::stamp;
pub use validate::{Rules, Validated, ValidationError, validate};

/// Bytes of a batch's header.
pub const HEADER_LEN: usize = 61;
/// Bytes in front of what a batch's length field counts: base offset and the length itself.
pub const LOG_OVERHEAD: usize = 12;
/// The one record format that is read and written.
pub const MAGIC: i8 = 2;
/// What producer id, epoch and sequence say in a batch of a producer that is not idempotent.
pub const NO_PRODUCER: i64 = -1;
/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: i64 = -1;

pub(crate) mod field {
    pub(crate) const BASE_OFFSET: usize = 0;
    pub(crate) const LENGTH: usize = 8;
    pub(crate) const LEADER_EPOCH: usize = 12;
    pub(crate) const MAGIC: usize = 16;
    pub(crate) const CRC: usize = 17;
    pub(crate) const ATTRIBUTES: usize = 21;
    pub(crate) const LAST_OFFSET_DELTA: usize = 23;
    pub(crate) const BASE_TIMESTAMP: usize = 27;
    pub(crate) const MAX_TIMESTAMP: usize = 35;
    pub(crate) const PRODUCER_ID: usize = 43;
    pub(crate) const PRODUCER_EPOCH: usize = 51;
    pub(crate) const BASE_SEQUENCE: usize = 53;
    pub(crate) const RECORD_COUNT: usize = 57;
    /// The CRC covers everything from here to the end of the batch.
    pub(crate) const CRC_COVERS_FROM: usize = ATTRIBUTES;
}

/// Whose clock a batch's timestamps are from (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer's: each record has its own.
    #[default]
    Create,
    /// The broker's: all records have the batch's max timestamp.
    LogAppend,
}

/// A batch's attribute bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(pub i16);

impl Attributes {
    pub(crate) const CODEC_MASK: i16 = 0x07;
    pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
    pub(crate) const TRANSACTIONAL: i16 = 0x10;
    pub(crate) const CONTROL: i16 = 0x20;
    pub(crate) const DELETE_HORIZON: i16 = 0x40;

    /// The payload's codec; fails where the bits name none.
    pub fn codec(self) -> Result<Codec, RecordError> {
        Codec::from_bits((self.0 & Self::CODEC_MASK) as u8)
    }

    /// Whether all records have the batch's max timestamp as theirs.
    #[must_use]
    pub const fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whose clock the timestamps are from.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.is_log_append_time() { TimestampType::LogAppend } else { TimestampType::Create }
    }

    /// Whether the batch is part of a transaction (control batches that end one included).
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a marker of the broker's instead of a producer's records.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp says since when compaction may drop the batch's tombstones (KIP-534).
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }
}

/// One whole batch in borrowed bytes. Its length and magic have been checked, nothing else.
#[derive(Clone, Copy)]
pub struct BatchView<'a> {
    bytes: &'a [u8],
    header: &'a [u8; HEADER_LEN],
}

impl<'a> BatchView<'a> {
    /// The first batch of `bytes`; more bytes may follow it.
    ///
    /// Fails with [`RecordError::Incomplete`] when `bytes` end before the batch does, with [`RecordError::Magic`]
    /// for the formats before batches, and with [`RecordError::Corrupt`] for a length that no batch can have.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let available = bytes.len();
        if available <= field::MAGIC {
            return Err(RecordError::Incomplete { needed: HEADER_LEN, available });
        }
        let length = i32::from_be_bytes(take(bytes, field::LENGTH));
        let magic = bytes[field::MAGIC] as i8;
        if magic == 0 || magic == 1 {
            return Err(RecordError::Magic(magic));
        }
        if magic != MAGIC {
            return Err(RecordError::Corrupt("the magic byte is none of a record batch"));
        }
        let size = usize::try_from(length).ok().and_then(|length| length.checked_add(LOG_OVERHEAD));
        let Some(size) = size.filter(|size| *size >= HEADER_LEN) else {
            return Err(RecordError::Corrupt("the batch length is shorter than a batch header"));
        };
        if available < size {
            return Err(RecordError::Incomplete { needed: size, available });
        }
        let bytes = &bytes[..size];
        let header = bytes.first_chunk().expect("a batch is at least as long as its header");
        Ok(Self { bytes, header })
    }

    /// The offset that the deltas of the records count from.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        Offset(i64::from_be_bytes(self.at(field::BASE_OFFSET)))
    }

    /// The offset of the last record that the batch had when it was produced.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset().0.saturating_add(i64::from(self.last_offset_delta())))
    }

    /// The offset behind the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// Bytes of the whole batch, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The epoch of the leader that appended the batch; −1 from a client. Not covered by the CRC.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(self.at(field::LEADER_EPOCH))
    }

    /// The record format: always 2.
    #[must_use]
    pub fn magic(&self) -> i8 {
        MAGIC
    }

    /// The stored CRC-32C.
    #[must_use]
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.at(field::CRC))
    }

    /// The attribute bits.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes(i16::from_be_bytes(self.at(field::ATTRIBUTES)))
    }

    /// Last offset less base offset. Compaction keeps it when it takes the last record away.
    #[must_use]
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.at(field::LAST_OFFSET_DELTA))
    }

    /// The time that the timestamp deltas of the records count from, in ms since 1970.
    #[must_use]
    pub fn base_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.at(field::BASE_TIMESTAMP))
    }

    /// The highest timestamp of the records, or the append time, in ms since 1970.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.at(field::MAX_TIMESTAMP))
    }

    /// The idempotent producer's id, −1 for none.
    #[must_use]
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.at(field::PRODUCER_ID))
    }

    /// The idempotent producer's epoch, −1 for none.
    #[must_use]
    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(self.at(field::PRODUCER_EPOCH))
    }

    /// The sequence number of the first record, −1 for none.
    #[must_use]
    pub fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(self.at(field::BASE_SEQUENCE))
    }

    /// How many records the header claims.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        i32::from_be_bytes(self.at(field::RECORD_COUNT))
    }

    /// Whether the stored CRC is that of the bytes.
    #[must_use]
    pub fn crc_is_valid(&self) -> bool {
        self.crc() == crc32c::crc32c(&self.bytes[field::CRC_COVERS_FROM..])
    }

    /// What follows the header: the records, compressed or not.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The whole batch.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        take(self.header, at)
    }
}

impl std::fmt::Debug for BatchView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchView")
            .field("base_offset", &self.base_offset().0)
            .field("last_offset", &self.last_offset().0)
            .field("record_count", &self.record_count())
            .field("attributes", &self.attributes().0)
            .field("size", &self.size())
            .finish()
    }
}

/// Consecutive whole batches of a slice. Stops behind an error: a torn or bad batch hides where the next begins.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    stopped: bool,
}

impl<'a> Batches<'a> {
    /// The batches that `bytes` begin with.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, stopped: false }
    }

    /// Bytes of the whole batches that were handed out: where the next one, or the damage, begins.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped || self.position == self.bytes.len() {
            return None;
        }
        let batch = BatchView::parse(&self.bytes[self.position..]);
        match &batch {
            Ok(batch) => self.position += batch.size(),
            Err(_) => self.stopped = true,
        }
        Some(batch)
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("every header field lies within the bytes that were checked for")
}

#[cfg(test)]
mod tests;
