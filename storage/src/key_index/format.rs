//! The bytes of a `.keyindex` file but for the buckets of its blocks (`docs/key-index.md`): file header, block heads,
//! table and trailer. All numbers are little-endian.

use bytes::{Buf, BufMut};
use records::ids::{Offset, PartitionId};

use super::filter::KeyFilter;
use crate::options::{
    KEY_BLOCK_DAMAGES_MAX, KEY_BLOCK_RECORDS_MAX, KEY_BLOCK_SPAN_MAX, KEY_BUCKET_RECORDS, KEY_RANGES,
};

/// The suffix of the files.
pub(crate) const SUFFIX: &str = ".keyindex";

const VERSION: u32 = 1;
const FILE_MAGIC: &[u8; 8] = b"SLKEYIDX";
const TRAILER_MAGIC: &[u8; 8] = b"SLKEYEND";
const BLOCK_MAGIC: &[u8; 4] = b"KBLK";

pub(super) const FILE_HEADER_BYTES: usize = 64;
pub(super) const TRAILER_BYTES: usize = 64;
/// The part of a block's head that all blocks have.
pub(super) const META_BYTES: usize = 192;
const RANGES_BYTES: usize = KEY_RANGES / 8;
const DIRECTORY_ENTRY_BYTES: usize = 8;
const DAMAGE_BYTES: usize = 16;
const BUCKET_BITS_MAX: u8 = (KEY_BLOCK_RECORDS_MAX / KEY_BUCKET_RECORDS).ilog2() as u8;

const _: () = assert!(META_BYTES == 64 + RANGES_BYTES);

/// Which ranges of the hash space a block has keys in.
pub(super) type Ranges = [u64; KEY_RANGES / 64];

/// One block, as the first part of its head describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockMeta {
    /// Of the whole head but for magic and this.
    pub(super) crc: u32,
    /// Bytes of the head.
    pub(super) head_bytes: u32,
    /// Bytes of head and buckets.
    pub(super) bytes: u32,
    /// Everything from here on is in the block or was never a record.
    pub(super) from: Offset,
    /// What the positions of its records count from.
    pub(super) base: Offset,
    /// Up to here.
    pub(super) next: Offset,
    /// The leader epoch of the log just below `next`.
    pub(super) leader_epoch: i32,
    /// Records, keyless ones included.
    pub(super) records: u32,
    /// Records without a key.
    pub(super) keyless: u32,
    /// The buckets are told apart by so many of the highest bits of a hash.
    pub(super) bucket_bits: u8,
    /// Bits of a position.
    pub(super) position_bits: u8,
    /// Damaged stretches of the log.
    pub(super) damages: u16,
    /// Where in the file the block begins.
    pub(super) position: u64,
    pub(super) ranges: Ranges,
}

impl BlockMeta {
    /// Buckets of keys; the keyless one comes behind them.
    pub(super) fn buckets(&self) -> usize {
        1 << self.bucket_bits
    }

    pub(super) fn end(&self) -> u64 {
        self.position + u64::from(self.bytes)
    }

    /// Bits of a hash that the bucket does not tell.
    pub(super) fn hash_bits(&self) -> u32 {
        64 - u32::from(self.bucket_bits)
    }

    /// The bucket of a hash.
    pub(super) fn bucket_of(&self, hash: u64) -> usize {
        if self.bucket_bits == 0 { 0 } else { (hash >> self.hash_bits()) as usize }
    }

    /// Whether a record of the block can be meant.
    pub(super) fn may_match(&self, filter: &KeyFilter) -> bool {
        (filter.keyless() && self.keyless > 0)
            || any_in(&self.ranges, range_of(filter.low()), range_of(filter.high()))
    }

    fn expected_head_bytes(&self) -> u64 {
        let directory = (self.buckets() as u64 + 1) * DIRECTORY_ENTRY_BYTES as u64;
        META_BYTES as u64 + directory + u64::from(self.damages) * DAMAGE_BYTES as u64
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_slice(BLOCK_MAGIC);
        out.put_u32_le(self.crc);
        out.put_u32_le(self.head_bytes);
        out.put_u32_le(self.bytes);
        out.put_i64_le(self.from.0);
        out.put_i64_le(self.base.0);
        out.put_i64_le(self.next.0);
        out.put_i32_le(self.leader_epoch);
        out.put_u32_le(self.records);
        out.put_u32_le(self.keyless);
        out.put_u8(self.bucket_bits);
        out.put_u8(self.position_bits);
        out.put_u16_le(self.damages);
        out.put_u64_le(self.position);
        self.ranges.iter().for_each(|word| out.put_u64_le(*word));
    }

    /// Reads it from the first [`META_BYTES`] of a head; `None` when they cannot be that.
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() < META_BYTES || !bytes.starts_with(BLOCK_MAGIC) {
            return None;
        }
        bytes.advance(BLOCK_MAGIC.len());
        let mut meta = Self {
            crc: bytes.get_u32_le(),
            head_bytes: bytes.get_u32_le(),
            bytes: bytes.get_u32_le(),
            from: Offset(bytes.get_i64_le()),
            base: Offset(bytes.get_i64_le()),
            next: Offset(bytes.get_i64_le()),
            leader_epoch: bytes.get_i32_le(),
            records: bytes.get_u32_le(),
            keyless: bytes.get_u32_le(),
            bucket_bits: bytes.get_u8(),
            position_bits: bytes.get_u8(),
            damages: bytes.get_u16_le(),
            position: bytes.get_u64_le(),
            ranges: [0; KEY_RANGES / 64],
        };
        meta.ranges.iter_mut().for_each(|word| *word = bytes.get_u64_le());
        let sane = Offset::ZERO <= meta.from
            && meta.from <= meta.base
            && meta.base <= meta.next
            && meta.keyless <= meta.records
            && meta.records as usize <= KEY_BLOCK_RECORDS_MAX
            && meta.bucket_bits <= BUCKET_BITS_MAX
            && (1..=KEY_BLOCK_SPAN_MAX.ilog2() + 1).contains(&u32::from(meta.position_bits))
            && usize::from(meta.damages) <= KEY_BLOCK_DAMAGES_MAX
            && u64::from(meta.head_bytes) == meta.expected_head_bytes()
            && meta.head_bytes <= meta.bytes;
        sane.then_some(meta)
    }
}

/// A block's head: where its buckets end and what their checksums are, and what of the log was damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) meta: BlockMeta,
    /// End in bytes behind the head, and CRC-32C; the keyless bucket is the last.
    pub(super) buckets: Vec<(u32, u32)>,
    /// First and last offset of each damaged stretch.
    pub(super) damages: Vec<(Offset, Offset)>,
}

impl Directory {
    /// The bytes of the head; `meta` gets its lengths and its checksum by it.
    pub(super) fn encode(
        meta: &mut BlockMeta,
        buckets: &[(u32, u32)],
        damages: &[(Offset, Offset)],
    ) -> Vec<u8> {
        meta.damages = damages.len() as u16;
        let head_bytes = meta.expected_head_bytes();
        meta.head_bytes = head_bytes as u32;
        meta.bytes = meta.head_bytes + buckets.last().map_or(0, |(end, _)| *end);
        let mut out = Vec::with_capacity(head_bytes as usize);
        meta.put(&mut out);
        for (end, crc) in buckets {
            out.put_u32_le(*end);
            out.put_u32_le(*crc);
        }
        for (first, last) in damages {
            out.put_i64_le(first.0);
            out.put_i64_le(last.0);
        }
        meta.crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&meta.crc.to_le_bytes());
        out
    }

    /// Reads a whole head.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let meta = BlockMeta::parse(bytes)?;
        if bytes.len() != meta.head_bytes as usize || crc32c::crc32c(&bytes[8..]) != meta.crc {
            return None;
        }
        let mut rest = &bytes[META_BYTES..];
        let buckets: Vec<(u32, u32)> =
            (0..=meta.buckets()).map(|_| (rest.get_u32_le(), rest.get_u32_le())).collect();
        let damages =
            (0..meta.damages).map(|_| (Offset(rest.get_i64_le()), Offset(rest.get_i64_le()))).collect();
        let ascending = buckets.is_sorted_by_key(|(end, _)| *end);
        let ends = buckets.last().is_some_and(|(end, _)| meta.head_bytes + end == meta.bytes);
        (ascending && ends).then_some(Self { meta, buckets, damages })
    }

    /// Bytes in memory.
    pub(super) fn cost(&self) -> usize {
        size_of::<Self>() + self.buckets.len() * 8 + self.damages.len() * 16
    }

    /// Where a bucket stands in the file, its length and its checksum.
    pub(super) fn bucket(&self, index: usize) -> (u64, usize, u32) {
        let start = index.checked_sub(1).map_or(0, |before| self.buckets[before].0);
        let (end, crc) = self.buckets[index];
        let position = self.meta.position + u64::from(self.meta.head_bytes) + u64::from(start);
        (position, (end - start) as usize, crc)
    }
}

/// The first bytes of a file: whose index it is.
pub(super) fn file_header(id: PartitionId, base: Offset) -> [u8; FILE_HEADER_BYTES] {
    let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
    out.put_slice(FILE_MAGIC);
    out.put_u32_le(VERSION);
    out.put_i32_le(id.index);
    out.put_slice(&id.topic.0);
    out.put_i64_le(base.0);
    sealed_by_crc(out)
}

/// Whether a file begins as the index of that segment must.
pub(super) fn is_header_of(bytes: &[u8; FILE_HEADER_BYTES], id: PartitionId, base: Offset) -> bool {
    *bytes == file_header(id, base)
}

/// The last bytes of the file of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// Bytes of the log file that is indexed.
    pub(super) log_bytes: u64,
    /// Where the heads of all blocks stand once more, one behind the other; they end where the trailer begins.
    pub(super) table_position: u64,
    pub(super) table_bytes: u32,
    pub(super) from: Offset,
    pub(super) next: Offset,
    pub(super) blocks: u32,
    pub(super) table_crc: u32,
}

impl Trailer {
    pub(super) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut out = Vec::with_capacity(TRAILER_BYTES);
        out.put_slice(TRAILER_MAGIC);
        out.put_u32_le(VERSION);
        out.put_u32_le(self.blocks);
        out.put_u64_le(self.log_bytes);
        out.put_u64_le(self.table_position);
        out.put_i64_le(self.from.0);
        out.put_i64_le(self.next.0);
        out.put_u32_le(self.table_crc);
        out.put_u32_le(self.table_bytes);
        sealed_by_crc(out)
    }

    pub(super) fn parse(bytes: &[u8; TRAILER_BYTES]) -> Option<Self> {
        let (covered, crc) = bytes.split_at(TRAILER_BYTES - 4);
        let mut rest = covered;
        if !rest.starts_with(TRAILER_MAGIC) || crc32c::crc32c(covered).to_le_bytes() != *crc {
            return None;
        }
        rest.advance(TRAILER_MAGIC.len());
        if rest.get_u32_le() != VERSION {
            return None;
        }
        let blocks = rest.get_u32_le();
        let log_bytes = rest.get_u64_le();
        let table_position = rest.get_u64_le();
        let (from, next) = (Offset(rest.get_i64_le()), Offset(rest.get_i64_le()));
        let (table_crc, table_bytes) = (rest.get_u32_le(), rest.get_u32_le());
        Some(Self { log_bytes, table_position, table_bytes, from, next, blocks, table_crc })
    }
}

/// Fills up with zeros to 64 bytes, of which the last four are the CRC of the rest.
fn sealed_by_crc(mut out: Vec<u8>) -> [u8; 64] {
    out.resize(60, 0);
    let crc = crc32c::crc32c(&out);
    out.put_u32_le(crc);
    out.try_into().expect("60 bytes and a checksum are 64 bytes")
}

/// The range of the hash space, out of [`KEY_RANGES`] equal ones, that a hash lies in.
pub(super) fn range_of(hash: u64) -> usize {
    (hash >> (64 - KEY_RANGES.ilog2())) as usize
}

/// Whether one of the ranges from `low` to `high` is marked.
fn any_in(ranges: &Ranges, low: usize, high: usize) -> bool {
    let (first, last) = (low / 64, high / 64);
    (first..=last).any(|index| {
        let mut mask = u64::MAX;
        if index == first {
            mask &= u64::MAX << (low % 64);
        }
        if index == last {
            mask &= u64::MAX >> (63 - high % 64);
        }
        ranges[index] & mask != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_looked_up_as_one_by_one(marked in proptest::collection::vec(0..KEY_RANGES, 0..5), a in 0..KEY_RANGES, b in 0..KEY_RANGES) {
            let mut ranges: Ranges = [0; KEY_RANGES / 64];
            for &range in &marked {
                ranges[range / 64] |= 1 << (range % 64);
            }
            let (low, high) = (a.min(b), a.max(b));
            prop_assert_eq!(any_in(&ranges, low, high), marked.iter().any(|range| (low..=high).contains(range)));
        }
    }

    #[test]
    fn a_trailer_with_any_bit_changed_is_none() {
        let trailer = Trailer {
            log_bytes: 1 << 30,
            table_position: 77,
            table_bytes: 192,
            from: Offset(5),
            next: Offset(1 << 40),
            blocks: 9,
            table_crc: 0xdead_beef,
        };
        let bytes = trailer.encode();
        assert_eq!(Trailer::parse(&bytes), Some(trailer));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::parse(&changed), None, "bit {bit}");
        }
    }
}
