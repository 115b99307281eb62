//! A batch's fixed-size header alone, as far as the log itself needs it: what walks over a log file reads these 61
//! bytes of each batch and nothing else. Whole batches are `records`' business.

use bytes::Buf;
use records::ids::Offset;

use crate::options::BATCH_HEADER_BYTES;

/// Bytes in front of what the batch's length field counts.
const LENGTH_OVERHEAD: usize = 12;
/// Where the bytes begin that the CRC covers.
pub(crate) const CRC_COVERED_FROM: usize = 21;
const MAGIC: u8 = 2;
const CONTROL: i16 = 0x20;
const TRANSACTIONAL: i16 = 0x10;
const LOG_APPEND_TIME: i16 = 0x08;

/// Kafka's record batch header, magic 2 (`DefaultRecordBatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) base: Offset,
    /// The whole batch in bytes.
    pub(crate) size: u64,
    pub(crate) leader_epoch: i32,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_delta: i32,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    /// 0 in a batch that compaction emptied.
    pub(crate) record_count: i32,
}

impl BatchHeader {
    /// Reads the first 61 bytes of a batch; the reason when they are no header.
    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < BATCH_HEADER_BYTES {
            return Err("fewer bytes than a batch header");
        }
        let base = Offset(bytes.get_i64());
        let length = bytes.get_i32();
        let leader_epoch = bytes.get_i32();
        let magic = bytes.get_u8();
        let crc = bytes.get_u32();
        let attributes = bytes.get_i16();
        let last_delta = bytes.get_i32();
        let _base_timestamp = bytes.get_i64();
        let max_timestamp = bytes.get_i64();
        let producer_id = bytes.get_i64();
        let producer_epoch = bytes.get_i16();
        let base_sequence = bytes.get_i32();
        let record_count = bytes.get_i32();
        if magic != MAGIC {
            return Err("magic is not 2");
        }
        let size = usize::try_from(length).map_err(|_| "negative length")? + LENGTH_OVERHEAD;
        if size < BATCH_HEADER_BYTES {
            return Err("length is shorter than a header");
        }
        if last_delta < 0 || base.0 < 0 || base.0.checked_add(i64::from(last_delta) + 1).is_none() {
            return Err("offsets are out of bounds");
        }
        Ok(Self {
            base,
            size: size as u64,
            leader_epoch,
            crc,
            attributes,
            last_delta,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        })
    }

    pub(crate) fn last(&self) -> Offset {
        self.base + i64::from(self.last_delta)
    }

    pub(crate) fn next(&self) -> Offset {
        self.last().next()
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub(crate) fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether compaction took every record of the batch.
    pub(crate) fn is_emptied(&self) -> bool {
        self.record_count == 0
    }

    /// Whether every offset of the batch still has its record.
    pub(crate) fn is_dense(&self) -> bool {
        i64::from(self.record_count) == i64::from(self.last_delta) + 1
    }

    /// Sequence number of the last record; they wrap to 0 behind the highest (`DefaultRecordBatch.incrementSequence`).
    pub(crate) fn last_sequence(&self) -> i32 {
        last_sequence(self.base_sequence, self.last_delta)
    }
}

/// The sequence number `delta` records behind `base`.
pub(crate) fn last_sequence(base: i32, delta: i32) -> i32 {
    if base < 0 {
        return base;
    }
    let sum = i64::from(base) + i64::from(delta);
    i32::try_from(sum).unwrap_or_else(|_| (sum - i64::from(i32::MAX) - 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(last_sequence(0, 2), 2);
        assert_eq!(last_sequence(i32::MAX, 0), i32::MAX);
        assert_eq!(last_sequence(i32::MAX, 1), 0);
        assert_eq!(last_sequence(i32::MAX - 1, 3), 1);
        assert_eq!(last_sequence(-1, 5), -1);
    }

    #[test]
    fn refuses_what_is_no_header() {
        assert!(BatchHeader::parse(&[0; 60]).is_err());
        assert!(BatchHeader::parse(&[0; 61]).is_err());
    }
}
