//! What compaction leaves of a stored batch (Kafka's `MemoryRecords.filterTo`).
//!
//! The records that stay keep their offsets, timestamps, keys, values and headers; base and last offset, producer,
//! sequence numbers, leader epoch and codec are those of the batch as it was stored, so that what the header says of
//! offsets and sequences stays true although records are gone.

use bytes::Bytes;

use super::build::{Fields, write_record};
use super::{Attributes, BatchView, NO_TIMESTAMP, Record};
use crate::RecordError;
use crate::compression::Codec;

/// Makes a batch of the records of one stored batch that stay.
#[derive(Clone, Debug)]
pub struct FilteredBuilder {
    payload: Vec<u8>,
    fields: Fields,
    /// The base timestamp changed: the records' timestamp deltas must follow it.
    rebased: bool,
}

impl FilteredBuilder {
    /// A builder for records of `source`. With `delete_horizon_ms` the batch says from then on until when its
    /// tombstones, or its marker, stay: attribute bit 6, and the time in place of the base timestamp (KIP-534). A
    /// horizon that `source` has already stays as it is.
    ///
    /// # Errors
    /// Where the codec bits of `source` name no codec.
    pub fn new(source: &BatchView<'_>, delete_horizon_ms: Option<i64>) -> Result<Self, RecordError> {
        let codec = source.attributes().codec()?;
        let fields = Fields { codec, count: 0, ..header_of(source) };
        let mut builder = Self { payload: Vec::new(), fields, rebased: false };
        if let Some(horizon) = delete_horizon_ms.filter(|_| !source.attributes().has_delete_horizon()) {
            builder.fields.attributes |= Attributes::DELETE_HORIZON;
            builder.fields.base_timestamp = horizon;
            builder.rebased = true;
        }
        if !source.attributes().is_log_append_time() {
            builder.fields.max_timestamp = NO_TIMESTAMP;
        }
        Ok(builder)
    }

    /// Keeps a record. Records come in the order in which the source has them.
    pub fn push(&mut self, record: &Record<'_>) {
        if self.rebased {
            let delta = record.timestamp.wrapping_sub(self.fields.base_timestamp);
            write_record(&mut self.payload, delta, record.offset_delta, record.tail);
        } else {
            self.payload.extend_from_slice(record.raw);
        }
        if !Attributes(self.fields.attributes).is_log_append_time() {
            self.fields.max_timestamp = self.fields.max_timestamp.max(record.timestamp);
        }
        self.fields.count += 1;
    }

    /// The batch, compressed as its source was, with a valid CRC.
    #[must_use]
    pub fn finish(&self) -> Bytes {
        self.fields.assemble(&self.payload)
    }
}

/// A batch of which no record stays: its header alone, so that its last offset, or its producer's last sequence
/// number, is not forgotten (`DefaultRecordBatch.writeEmptyHeader`).
#[must_use]
pub fn emptied(source: &BatchView<'_>) -> Bytes {
    let mut fields = Fields { codec: Codec::None, count: 0, ..header_of(source) };
    fields.attributes &= !Attributes::DELETE_HORIZON;
    fields.base_timestamp = NO_TIMESTAMP;
    fields.assemble(&[])
}

fn header_of(source: &BatchView<'_>) -> Fields {
    Fields {
        base_offset: source.base_offset(),
        leader_epoch: source.leader_epoch(),
        attributes: source.attributes().0 & !Attributes::CODEC_MASK,
        codec: Codec::None,
        last_offset_delta: source.last_offset_delta(),
        base_timestamp: source.base_timestamp(),
        max_timestamp: source.max_timestamp(),
        producer_id: source.producer_id(),
        producer_epoch: source.producer_epoch(),
        base_sequence: source.base_sequence(),
        count: source.record_count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Header, TimestampType, stamp};
    use crate::ids::Offset;

    const LIMIT: usize = 1 << 20;

    fn stored(codec: Codec, append_time: Option<i64>) -> Vec<u8> {
        let mut builder = BatchBuilder::new(codec, TimestampType::Create).producer(7, 3, 11);
        for index in 0..5_i64 {
            let key = format!("k{index}");
            let header = [Header { key: b"h", value: Some(key.as_bytes()) }];
            let value = (index != 3).then_some(&b"value"[..]);
            builder.append(1000 + index, Some(key.as_bytes()), value, &header);
        }
        let mut bytes = builder.build(Offset(40), 2).to_vec();
        stamp(&mut bytes, Offset(40), 2, append_time, None);
        bytes
    }

    fn filtered(source: &BatchView<'_>, horizon: Option<i64>, kept: &[i64]) -> Bytes {
        let mut builder = FilteredBuilder::new(source, horizon).unwrap();
        for record in &source.records(LIMIT).unwrap() {
            let record = record.unwrap();
            if kept.contains(&record.offset.0) {
                builder.push(&record);
            }
        }
        builder.finish()
    }

    #[test]
    fn f14_what_stays_is_as_it_was_under_every_codec() {
        for codec in Codec::ALL {
            for (append_time, horizon) in [(None, None), (None, Some(9_000)), (Some(70), Some(9_000))] {
                let bytes = stored(codec, append_time);
                let source = BatchView::parse(&bytes).unwrap();
                let left = filtered(&source, horizon, &[41, 43]);
                let view = BatchView::parse(&left).unwrap();
                assert!(view.crc_is_valid());
                assert_eq!((view.base_offset(), view.last_offset()), (Offset(40), Offset(44)));
                assert_eq!((view.producer_id(), view.producer_epoch(), view.base_sequence()), (7, 3, 11));
                assert_eq!((view.leader_epoch(), view.record_count()), (2, 2));
                assert_eq!(view.attributes().codec(), Ok(codec));
                assert_eq!(view.attributes().has_delete_horizon(), horizon.is_some());
                if horizon.is_some() {
                    assert_eq!(view.base_timestamp(), 9_000);
                }
                assert_eq!(view.max_timestamp(), append_time.unwrap_or(1003));
                let before = source.records(LIMIT).unwrap();
                let before: Vec<_> = before.iter().map(Result::unwrap).collect();
                let after = view.records(LIMIT).unwrap();
                let after: Vec<_> = after.iter().map(Result::unwrap).collect();
                for (old, new) in [&before[1], &before[3]].into_iter().zip(&after) {
                    assert_eq!((old.offset, old.timestamp), (new.offset, new.timestamp));
                    assert_eq!((old.key, old.value), (new.key, new.value));
                    assert!(old.headers.iter().eq(new.headers.iter()));
                }
            }
        }
    }

    #[test]
    fn a_horizon_that_is_set_stays() {
        let bytes = stored(Codec::None, None);
        let first = filtered(&BatchView::parse(&bytes).unwrap(), Some(9_000), &[43, 44]);
        let second = filtered(&BatchView::parse(&first).unwrap(), Some(12_000), &[43]);
        let view = BatchView::parse(&second).unwrap();
        assert!(view.attributes().has_delete_horizon());
        assert_eq!((view.base_timestamp(), view.max_timestamp()), (9_000, 1003));
    }

    #[test]
    fn an_emptied_batch_keeps_its_bounds_and_its_producer() {
        let bytes = stored(Codec::Zstd, None);
        let empty = emptied(&BatchView::parse(&bytes).unwrap());
        let view = BatchView::parse(&empty).unwrap();
        assert!(view.crc_is_valid());
        assert_eq!((view.size(), view.record_count()), (super::super::HEADER_LEN, 0));
        assert_eq!((view.base_offset(), view.last_offset()), (Offset(40), Offset(44)));
        assert_eq!((view.producer_id(), view.producer_epoch(), view.base_sequence()), (7, 3, 11));
        assert_eq!((view.base_timestamp(), view.max_timestamp()), (-1, 1004));
        assert_eq!(view.records(LIMIT).unwrap().iter().count(), 0);
    }
}
