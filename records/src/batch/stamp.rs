//! What the broker writes into a produced batch, in place.
//!
//! The CRC covers everything from the attributes on. Base offset and leader epoch stand in front of that, so a
//! batch normally goes to the log with the client's own CRC; only a timestamp type or a max timestamp that must
//! change costs a new one (`DefaultRecordBatch.setMaxTimestamp`).

use super::{Attributes, HEADER_LEN, field, take};
use crate::ids::Offset;

/// Writes the broker's fields into `batch`, which must be exactly one whole batch.
///
/// `append_time` is `Some(ms)` on a topic with log-append time: it becomes the max timestamp and sets the
/// timestamp-type bit. With `None` the bit is cleared, whatever the client said, and `max_timestamp` (the true one,
/// as validation found it) is written where it differs. Times are ms since 1970.
pub fn stamp(
    batch: &mut [u8],
    base_offset: Offset,
    leader_epoch: i32,
    append_time: Option<i64>,
    max_timestamp: Option<i64>,
) {
    assert!(batch.len() >= HEADER_LEN, "only a whole batch is stamped");
    put(batch, field::BASE_OFFSET, base_offset.0.to_be_bytes());
    put(batch, field::LEADER_EPOCH, leader_epoch.to_be_bytes());

    let old_bits = i16::from_be_bytes(take(batch, field::ATTRIBUTES));
    let new_bits = match append_time {
        Some(_) => old_bits | Attributes::LOG_APPEND_TIME,
        None => old_bits & !Attributes::LOG_APPEND_TIME,
    };
    let old_time = i64::from_be_bytes(take(batch, field::MAX_TIMESTAMP));
    let new_time = append_time.or(max_timestamp).unwrap_or(old_time);
    if new_bits == old_bits && new_time == old_time {
        return;
    }
    put(batch, field::ATTRIBUTES, new_bits.to_be_bytes());
    put(batch, field::MAX_TIMESTAMP, new_time.to_be_bytes());
    write_crc(batch);
}

/// Makes the stored CRC that of the bytes.
pub(crate) fn write_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[field::CRC_COVERS_FROM..]);
    put(batch, field::CRC, crc.to_be_bytes());
}

pub(crate) fn put<const N: usize>(batch: &mut [u8], at: usize, value: [u8; N]) {
    batch[at..at + N].copy_from_slice(&value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchView, TimestampType};
    use crate::compression::Codec;

    fn batch(timestamps: &[i64]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
        for &timestamp in timestamps {
            builder.append(timestamp, Some(b"k"), Some(b"v"), &[]);
        }
        builder.build(Offset(0), -1).to_vec()
    }

    #[test]
    fn p01_offset_and_epoch_leave_the_crc_alone() {
        let mut bytes = batch(&[100, 105]);
        let crc = BatchView::parse(&bytes).unwrap().crc();
        stamp(&mut bytes, Offset(4711), 9, None, Some(105));
        let view = BatchView::parse(&bytes).unwrap();
        assert_eq!(
            (view.base_offset(), view.last_offset(), view.leader_epoch()),
            (Offset(4711), Offset(4712), 9)
        );
        assert_eq!(view.crc(), crc);
        assert!(view.crc_is_valid());
    }

    #[test]
    fn p06_append_time_sets_the_bit_and_the_crc() {
        let mut bytes = batch(&[5]);
        stamp(&mut bytes, Offset(0), 0, Some(1_700_000_000_000), Some(5));
        let view = BatchView::parse(&bytes).unwrap();
        assert!(view.attributes().is_log_append_time());
        assert_eq!((view.base_timestamp(), view.max_timestamp()), (5, 1_700_000_000_000));
        assert!(view.crc_is_valid());
        let times: Vec<i64> =
            view.records(1000).unwrap().iter().map(|record| record.unwrap().timestamp).collect();
        assert_eq!(times, [1_700_000_000_000]);
    }

    #[test]
    fn p06_the_client_s_append_time_bit_is_cleared() {
        let mut bytes = batch(&[5]);
        bytes[field::ATTRIBUTES + 1] |= 0x08;
        write_crc(&mut bytes);
        stamp(&mut bytes, Offset(0), 0, None, Some(5));
        let view = BatchView::parse(&bytes).unwrap();
        assert!(!view.attributes().is_log_append_time());
        assert!(view.crc_is_valid());
    }

    #[test]
    fn p07_a_wrong_max_timestamp_is_put_right() {
        let mut bytes = batch(&[100, 105]);
        put(&mut bytes, field::MAX_TIMESTAMP, (-1_i64).to_be_bytes());
        write_crc(&mut bytes);
        stamp(&mut bytes, Offset(0), 0, None, Some(105));
        let view = BatchView::parse(&bytes).unwrap();
        assert_eq!(view.max_timestamp(), 105);
        assert!(view.crc_is_valid());
        let mut right = batch(&[100, 105]);
        put(&mut right, field::LEADER_EPOCH, 0_i32.to_be_bytes());
        assert_eq!(bytes, right, "nothing else changed");
    }
}
