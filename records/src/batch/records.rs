//! The records of a batch: a lazy iterator over a payload at hand, and a scan that inflates as it goes.
//!
//! Offsets are names, so a batch whose offset deltas do not ascend, or leave the batch, does not decode here.

use std::borrow::Cow;

use super::BatchView;
use crate::RecordError;
use crate::compression::{Codec, Inflate, decompress};
use crate::ids::Offset;
use crate::varint;

/// One record, borrowed from its batch's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the partition log.
    pub offset: Offset,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// In ms since 1970: the producer's, or the batch's append time.
    pub timestamp: i64,
    /// As stored: the producer's timestamp less the batch's base timestamp.
    pub timestamp_delta: i64,
    /// The key; `None` is a keyless record, which has no order to keep.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
    /// The whole record with the length in front of it.
    pub raw: &'a [u8],
    /// What follows the two deltas: key, value and headers, as encoded.
    pub(crate) tail: &'a [u8],
}

/// A record's headers, checked, still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    count: i32,
    raw: &'a [u8],
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name; UTF-8 by convention, which nobody checks.
    pub key: &'a [u8],
    /// The value, which may be null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All headers as encoded, without their count.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The headers in their order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = self.raw;
        (0..self.count)
            .map(move |_| read_header(&mut rest).expect("headers were read once when the record was decoded"))
    }
}

/// The inflated records of one batch. Owns the payload where there was a codec, borrows it where there was none.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    payload: Cow<'a, [u8]>,
    frame: Frame,
}

impl Records<'_> {
    /// The records in their order. Ends behind the first error, which is also what too many or too few records are.
    #[must_use]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { rest: &self.payload, frame: self.frame, read: 0, last_delta: -1, stopped: false }
    }
}

impl<'a> IntoIterator for &'a Records<'_> {
    type Item = Result<Record<'a>, RecordError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> BatchView<'a> {
    /// The batch's records, inflated into at most `limit` bytes where there is a codec.
    pub fn records(&self, limit: usize) -> Result<Records<'a>, RecordError> {
        let payload = match self.attributes().codec()? {
            Codec::None => Cow::Borrowed(self.payload()),
            codec => Cow::Owned(decompress(codec, self.payload(), limit)?),
        };
        Ok(Records { payload, frame: Frame::of(self) })
    }

    /// The batch's records out of a payload that was inflated before, so that a cache inflates each batch once.
    #[must_use]
    pub fn records_in<'b>(&self, inflated: &'b [u8]) -> Records<'b> {
        Records { payload: Cow::Borrowed(inflated), frame: Frame::of(self) }
    }

    /// Shows every record to `visit` without ever holding the whole inflated payload. Stops at the first error, the
    /// visitor's included. `limit` bounds the inflated bytes.
    pub fn scan<E: From<RecordError>>(
        &self,
        limit: usize,
        mut visit: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut scan = Scan::open(self, limit, usize::MAX)?;
        let mut last_delta = -1;
        for _ in 0..scan.frame.count {
            let frame = scan.frame;
            let record = scan.next()?;
            frame.check_delta(&record, &mut last_delta)?;
            visit(record)?;
        }
        Ok(scan.finish()?)
    }
}

/// See [`Records::iter`].
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    frame: Frame,
    read: i32,
    last_delta: i32,
    stopped: bool,
}

impl<'a> RecordIter<'a> {
    fn advance(&mut self) -> Result<Record<'a>, RecordError> {
        let (body_at, size) = measure(self.rest)?;
        let raw = self.rest.get(..size).ok_or(PAST_THE_END)?;
        let record = Record::decode(raw, body_at, &self.frame)?;
        self.frame.check_delta(&record, &mut self.last_delta)?;
        self.rest = &self.rest[size..];
        self.read += 1;
        Ok(record)
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        if self.read >= self.frame.count {
            self.stopped = true;
            return if self.rest.is_empty() { None } else { Some(Err(TRAILING)) };
        }
        let record = self.advance();
        self.stopped = record.is_err();
        Some(record)
    }
}

/// What a record needs to know of its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    base_offset: Offset,
    base_timestamp: i64,
    append_time: Option<i64>,
    last_offset_delta: i32,
    count: i32,
}

impl Frame {
    fn of(batch: &BatchView<'_>) -> Self {
        Self {
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            append_time: batch.attributes().is_log_append_time().then(|| batch.max_timestamp()),
            last_offset_delta: batch.last_offset_delta(),
            count: batch.record_count(),
        }
    }

    fn check_delta(&self, record: &Record<'_>, last_delta: &mut i32) -> Result<(), RecordError> {
        if record.offset_delta <= *last_delta || record.offset_delta > self.last_offset_delta {
            return Err(RecordError::Corrupt("the offset deltas do not ascend within the batch"));
        }
        *last_delta = record.offset_delta;
        Ok(())
    }
}

/// A payload that is read record by record as it inflates. Each record is valid until the next is asked for.
pub(crate) struct Scan<'a> {
    source: Inflate<'a>,
    frame: Frame,
    /// What the body of a record may take.
    record_bytes_max: usize,
    /// Bytes of the source's window that the last record took.
    taken: usize,
    /// Holds a record that straddles two windows.
    straddling: Vec<u8>,
}

impl<'a> Scan<'a> {
    /// At most `limit` bytes come out of the payload, and at most `record_bytes_max` of them are one record's body.
    pub(crate) fn open(
        batch: &BatchView<'a>,
        limit: usize,
        record_bytes_max: usize,
    ) -> Result<Self, RecordError> {
        let codec = batch.attributes().codec()?;
        let payload = batch.payload();
        // What is not compressed is at hand already.
        let (limit, record_bytes_max) =
            if codec == Codec::None { (payload.len(), usize::MAX) } else { (limit, record_bytes_max) };
        let source = Inflate::open(codec, payload, limit)?;
        Ok(Self { source, frame: Frame::of(batch), record_bytes_max, taken: 0, straddling: Vec::new() })
    }

    /// The next record, which must be there. Checks the record alone, not its place in the batch.
    pub(crate) fn next(&mut self) -> Result<Record<'_>, RecordError> {
        self.source.consume(std::mem::take(&mut self.taken));
        let record_bytes_max = self.record_bytes_max;
        let window = self.source.fill()?;
        match measure(window) {
            Ok((body_at, size)) if size <= window.len() => {
                check_body(size - body_at, record_bytes_max)?;
                self.taken = size;
                Record::decode(&self.source.fill()?[..size], body_at, &self.frame)
            }
            // The window may end within the record or within its length.
            _ => {
                self.gather()?;
                let (body_at, _) = measure(&self.straddling)?;
                Record::decode(&self.straddling, body_at, &self.frame)
            }
        }
    }

    /// To be called behind the last record: nothing may follow, and the codec must agree that this is the end.
    pub(crate) fn finish(mut self) -> Result<(), RecordError> {
        self.source.consume(self.taken);
        if self.source.fill()?.is_empty() { Ok(()) } else { Err(TRAILING) }
    }

    fn gather(&mut self) -> Result<(), RecordError> {
        self.straddling.clear();
        loop {
            let byte = *self.source.fill()?.first().ok_or(PAST_THE_END)?;
            self.source.consume(1);
            self.straddling.push(byte);
            if byte < 0x80 || self.straddling.len() == varint::VARINT_BYTES_MAX {
                break;
            }
        }
        let (body_at, size) = measure(&self.straddling)?;
        // Before a byte of it is kept.
        check_body(size - body_at, self.record_bytes_max)?;
        while self.straddling.len() < size {
            let window = self.source.fill()?;
            if window.is_empty() {
                return Err(PAST_THE_END);
            }
            let piece = window.len().min(size - self.straddling.len());
            self.straddling.extend_from_slice(&window[..piece]);
            self.source.consume(piece);
        }
        Ok(())
    }
}

fn check_body(body_len: usize, limit: usize) -> Result<(), RecordError> {
    if body_len > limit { Err(RecordError::RecordTooLarge { limit }) } else { Ok(()) }
}

/// Where the body of the record at the front of `bytes` begins, and the bytes of the whole record.
fn measure(bytes: &[u8]) -> Result<(usize, usize), RecordError> {
    let mut rest = bytes;
    let body_len = varint::read_i32(&mut rest)?;
    let body_at = bytes.len() - rest.len();
    let body_len =
        usize::try_from(body_len).map_err(|_| RecordError::Corrupt("a record's length is negative"))?;
    Ok((body_at, body_at + body_len))
}

impl<'a> Record<'a> {
    fn decode(raw: &'a [u8], body_at: usize, frame: &Frame) -> Result<Self, RecordError> {
        // The first byte holds a record's attributes, of which there are none so far.
        let (_, mut rest) = raw[body_at..].split_first().ok_or(PAST_THE_END)?;
        let timestamp_delta = varint::read_i64(&mut rest)?;
        let offset_delta = varint::read_i32(&mut rest)?;
        let tail = rest;
        let key = read_nullable(&mut rest)?;
        let value = read_nullable(&mut rest)?;
        let count = varint::read_i32(&mut rest)?;
        let headers = rest;
        // Each header takes two bytes at least, so a count that cannot be true costs no walk.
        if count < 0 || count as usize > rest.len() / 2 {
            return Err(RecordError::Corrupt("a record's header count is wrong"));
        }
        for _ in 0..count {
            read_header(&mut rest)?;
        }
        if !rest.is_empty() {
            return Err(RecordError::Corrupt("a record is longer than its fields"));
        }
        Ok(Self {
            offset: Offset(frame.base_offset.0.saturating_add(i64::from(offset_delta))),
            offset_delta,
            timestamp: frame
                .append_time
                .unwrap_or_else(|| frame.base_timestamp.wrapping_add(timestamp_delta)),
            timestamp_delta,
            key,
            value,
            headers: Headers { count, raw: headers },
            raw,
            tail,
        })
    }
}

fn read_header<'a>(rest: &mut &'a [u8]) -> Result<Header<'a>, RecordError> {
    let key = read_nullable(rest)?.ok_or(RecordError::Corrupt("a record header has no name"))?;
    Ok(Header { key, value: read_nullable(rest)? })
}

fn read_nullable<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordError> {
    let len = varint::read_i32(rest)?;
    if len == -1 {
        return Ok(None);
    }
    let len = usize::try_from(len).map_err(|_| RecordError::Corrupt("a length in a record is negative"))?;
    let (bytes, behind) = rest.split_at_checked(len).ok_or(PAST_THE_END)?;
    *rest = behind;
    Ok(Some(bytes))
}

const PAST_THE_END: RecordError = RecordError::Corrupt("a record reaches past its end");
const TRAILING: RecordError = RecordError::Corrupt("bytes follow the last record");
