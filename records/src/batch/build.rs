//! Batches from records.

use bytes::Bytes;

use super::stamp::{put, write_crc};
use super::{
    Attributes, HEADER_LEN, Header, LOG_OVERHEAD, MAGIC, NO_PRODUCER, NO_TIMESTAMP, TimestampType, field,
};
use crate::compression::{Codec, compress};
use crate::ids::Offset;
use crate::varint;

/// Collects records and makes one batch of them.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    payload: Vec<u8>,
    fields: Fields,
    tail: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch of no producer.
    #[must_use]
    pub fn new(codec: Codec, timestamp_type: TimestampType) -> Self {
        let append_time = match timestamp_type {
            TimestampType::Create => 0,
            TimestampType::LogAppend => Attributes::LOG_APPEND_TIME,
        };
        let fields = Fields { codec, attributes: append_time, ..Fields::default() };
        Self { payload: Vec::new(), fields, tail: Vec::new() }
    }

    /// Names the idempotent producer and the sequence number of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.fields.producer_id = id;
        self.fields.producer_epoch = epoch;
        self.fields.base_sequence = base_sequence;
        self
    }

    /// Makes the batch part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.fields.attributes |= Attributes::TRANSACTIONAL;
        self
    }

    /// Makes it a control batch: its one record is a marker of the broker's.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.fields.attributes |= Attributes::CONTROL;
        self
    }

    /// Appends a record at the offset behind the last. `timestamp` is in ms since 1970, −1 for none.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> &mut Self {
        let next = if self.fields.count == 0 { 0 } else { self.fields.last_offset_delta + 1 };
        self.append_at(next, timestamp, key, value, headers)
    }

    /// Appends a record at an offset delta of its own, as compaction leaves them. Deltas must ascend.
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> &mut Self {
        let fields = &mut self.fields;
        assert!(
            offset_delta >= 0 && (fields.count == 0 || offset_delta > fields.last_offset_delta),
            "offset deltas ascend"
        );
        if fields.count == 0 {
            fields.base_timestamp = timestamp;
        }
        self.tail.clear();
        write_nullable(&mut self.tail, key);
        write_nullable(&mut self.tail, value);
        varint::write_i32(&mut self.tail, headers.len() as i32);
        for header in headers {
            write_nullable(&mut self.tail, Some(header.key));
            write_nullable(&mut self.tail, header.value);
        }
        let timestamp_delta = timestamp.wrapping_sub(fields.base_timestamp);
        write_record(&mut self.payload, timestamp_delta, offset_delta, &self.tail);
        fields.max_timestamp = fields.max_timestamp.max(timestamp);
        fields.last_offset_delta = offset_delta;
        fields.count += 1;
        self
    }

    /// Moves the batch's last offset delta behind its last record, as in a batch that compaction took the end of.
    pub fn last_offset_delta(&mut self, delta: i32) -> &mut Self {
        assert!(
            delta >= self.fields.last_offset_delta,
            "the last offset delta is not below that of a record"
        );
        self.fields.last_offset_delta = delta;
        self
    }

    /// How many records were appended.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.fields.count
    }

    /// Whether no record was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.count == 0
    }

    /// Bytes of the records so far, before compression, without the batch header.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// The batch, with a valid CRC. The builder stays as it is.
    #[must_use]
    pub fn build(&self, base_offset: Offset, leader_epoch: i32) -> Bytes {
        Fields { base_offset, leader_epoch, ..self.fields }.assemble(&self.payload)
    }
}

/// The header fields of a batch to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) base_offset: Offset,
    pub(super) leader_epoch: i32,
    /// The bits but for the codec's.
    pub(super) attributes: i16,
    pub(super) codec: Codec,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) count: i32,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            base_offset: Offset::ZERO,
            leader_epoch: -1,
            attributes: 0,
            codec: Codec::None,
            last_offset_delta: 0,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            producer_id: NO_PRODUCER,
            producer_epoch: -1,
            base_sequence: -1,
            count: 0,
        }
    }
}

impl Fields {
    /// The whole batch around `payload`, which is compressed here.
    pub(super) fn assemble(&self, payload: &[u8]) -> Bytes {
        let packed;
        let payload = match self.codec {
            Codec::None => payload,
            codec => {
                packed = compress(codec, payload);
                &packed
            }
        };
        let mut batch = vec![0; HEADER_LEN + payload.len()];
        let length = i32::try_from(batch.len() - LOG_OVERHEAD).expect("a batch is below 2 GiB");
        put(&mut batch, field::BASE_OFFSET, self.base_offset.0.to_be_bytes());
        put(&mut batch, field::LENGTH, length.to_be_bytes());
        put(&mut batch, field::LEADER_EPOCH, self.leader_epoch.to_be_bytes());
        put(&mut batch, field::MAGIC, MAGIC.to_be_bytes());
        put(&mut batch, field::ATTRIBUTES, (self.attributes | self.codec as i16).to_be_bytes());
        put(&mut batch, field::LAST_OFFSET_DELTA, self.last_offset_delta.to_be_bytes());
        put(&mut batch, field::BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        put(&mut batch, field::MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        put(&mut batch, field::PRODUCER_ID, self.producer_id.to_be_bytes());
        put(&mut batch, field::PRODUCER_EPOCH, self.producer_epoch.to_be_bytes());
        put(&mut batch, field::BASE_SEQUENCE, self.base_sequence.to_be_bytes());
        put(&mut batch, field::RECORD_COUNT, self.count.to_be_bytes());
        batch[HEADER_LEN..].copy_from_slice(payload);
        write_crc(&mut batch);
        Bytes::from(batch)
    }
}

/// Appends one record whose key, value and headers are encoded already.
pub(super) fn write_record(out: &mut Vec<u8>, timestamp_delta: i64, offset_delta: i32, tail: &[u8]) {
    let body_len = 1 + varint::len(timestamp_delta) + varint::len(i64::from(offset_delta)) + tail.len();
    varint::write_i32(out, i32::try_from(body_len).expect("a record is below 2 GiB"));
    out.push(0);
    varint::write_i64(out, timestamp_delta);
    varint::write_i32(out, offset_delta);
    out.extend_from_slice(tail);
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else { return varint::write_i32(out, -1) };
    varint::write_i32(out, i32::try_from(bytes.len()).expect("a key, value or header is below 2 GiB"));
    out.extend_from_slice(bytes);
}
