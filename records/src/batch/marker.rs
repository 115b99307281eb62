//! The markers that end transactions (Kafka's `EndTransactionMarker` and `ControlRecordType`, KIP-98): a control batch of
//! one record. Its key is a version and a type, two bytes each; its value a version of two bytes and the epoch of the
//! transaction coordinator, of four.

use bytes::Bytes;

use super::{BatchBuilder, BatchView, TimestampType};
use crate::RecordError;
use crate::compression::Codec;
use crate::ids::Offset;

/// Bytes that a marker's batch may take, decoded.
const BYTES_MAX: usize = 4 * 1024;
const VERSION: [u8; 2] = [0, 0];
const ABORT: u16 = 0;
const COMMIT: u16 = 1;
/// No sequence number (`RecordBatch.NO_SEQUENCE`).
const NO_SEQUENCE: i32 = -1;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// Whether it was committed; else it was aborted.
    pub commit: bool,
    /// The epoch of the coordinator that ended it; −1 where a stored marker does not tell.
    pub coordinator_epoch: i32,
}

impl EndMarker {
    /// The marker as a batch of this producer's, without offset and leader epoch, with this timestamp in ms.
    #[must_use]
    pub fn batch(self, producer: i64, producer_epoch: i16, timestamp: i64) -> Bytes {
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create)
            .producer(producer, producer_epoch, NO_SEQUENCE)
            .transactional()
            .control();
        let kind = if self.commit { COMMIT } else { ABORT };
        let key = [VERSION, kind.to_be_bytes()].concat();
        let value = [&VERSION[..], &self.coordinator_epoch.to_be_bytes()].concat();
        builder.append(timestamp, Some(&key), Some(&value), &[]);
        builder.build(Offset(0), -1)
    }

    /// The marker in a control batch; `None` of any other control record, and of a batch without one.
    #[must_use]
    pub fn of(batch: &BatchView<'_>) -> Option<Self> {
        let mut found = None;
        let scanned = batch.scan(BYTES_MAX, |record| {
            found = found.or_else(|| {
                let kind = u16::from_be_bytes(record.key?.get(2..4)?.try_into().ok()?);
                let epoch = record.value.and_then(|value| value.get(2..6)?.try_into().ok());
                Some((kind, epoch.map_or(-1, i32::from_be_bytes)))
            });
            Ok::<_, RecordError>(())
        });
        match (scanned, found) {
            (Ok(()), Some((kind @ (ABORT | COMMIT), coordinator_epoch))) => {
                Some(Self { commit: kind == COMMIT, coordinator_epoch })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f13_markers_have_kafkas_bytes() {
        for (commit, kind) in [(true, 1), (false, 0)] {
            let bytes = EndMarker { commit, coordinator_epoch: 0 }.batch(5, 3, 1000);
            let batch = BatchView::parse(&bytes).expect("a whole batch");
            assert!(batch.crc_is_valid());
            assert_eq!(bytes[21..23], [0, 0x30], "transactional and control");
            assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (5, 3, -1));
            assert_eq!((batch.record_count(), batch.last_offset_delta()), (1, 0));
            let record = [0x20, 0, 0, 0, 8, 0, 0, 0, kind, 0x0c, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(bytes[61..], record);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for marker in [
            EndMarker { commit: true, coordinator_epoch: 7 },
            EndMarker { commit: false, coordinator_epoch: i32::MAX },
        ] {
            let bytes = marker.batch(1, 0, 0);
            assert_eq!(EndMarker::of(&BatchView::parse(&bytes).expect("a whole batch")), Some(marker));
        }
    }

    #[test]
    fn other_control_records_are_no_markers() {
        for key in [Some(&[0, 0, 0, 2][..]), Some(&[0, 0][..]), None] {
            let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).control();
            builder.append(0, key, Some(&[0; 6]), &[]);
            let bytes = builder.build(Offset(0), -1);
            assert_eq!(EndMarker::of(&BatchView::parse(&bytes).expect("a whole batch")), None);
        }
    }
}
