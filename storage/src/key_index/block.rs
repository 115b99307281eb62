//! The buckets of a block: its records sorted by the highest bits of their hashes, each with its position.
//!
//! Sorted, a block answers a look-up of a key with one small read, and the highest bits need not be stored. The
//! column by offset is had back by reading all buckets.

use bytes::{Buf, BufMut};
use records::ids::{KeyHash, Offset};

use super::KeyedRecord;
use super::bits::{self, BitWriter, PADDING, width_of};
use super::filter::KeyFilter;
use super::format::{BlockMeta, Directory, range_of};
use super::pending::Pending;
use crate::options::{KEY_BUCKET_DISTINCT_MAX, KEY_RANGES};

/// Marks a bucket that stores each hash once, in its count of records.
const GROUPED: u32 = 1 << 31;
/// Slots of the table that finds repeated hashes.
const SLOTS: usize = KEY_BUCKET_DISTINCT_MAX * 2;

/// Makes a block that begins at `position` of its file out of what is pending.
pub(super) fn encode(pending: &Pending, position: u64) -> (BlockMeta, Vec<u8>) {
    let keyed = pending.records() - pending.keyless();
    let mut meta = BlockMeta {
        crc: 0,
        head_bytes: 0,
        bytes: 0,
        from: pending.from,
        base: pending.base(),
        next: pending.next,
        leader_epoch: pending.leader_epoch,
        records: pending.records() as u32,
        keyless: pending.keyless() as u32,
        bucket_bits: keyed.div_ceil(pending.limits.bucket_records).next_power_of_two().ilog2() as u8,
        position_bits: width_of(u64::from(pending.last_position())) as u8,
        damages: 0,
        position,
        ranges: [0; KEY_RANGES / 64],
    };
    let sorted = Sorted::new(pending, &mut meta);
    let mut data = Vec::with_capacity(keyed * 9 + 64);
    let mut buckets = Vec::with_capacity(meta.buckets() + 1);
    let mut groups = Groups::new();
    let mut start = 0;
    for bucket in 0..=meta.buckets() {
        let at = data.len();
        if bucket < meta.buckets() {
            let range = start..sorted.ends[bucket];
            start = range.end;
            put_bucket(
                &mut data,
                &meta,
                &sorted.hashes[range.clone()],
                &sorted.positions[range],
                &mut groups,
            );
        } else {
            put_keyless(&mut data, &meta, &sorted.keyless);
        }
        buckets.push((data.len() as u32, crc32c::crc32c(&data[at..])));
    }
    let mut out = Directory::encode(&mut meta, &buckets, &pending.damages);
    out.extend_from_slice(&data);
    (meta, out)
}

/// Records by bucket, in each by position.
struct Sorted {
    hashes: Vec<u64>,
    positions: Vec<u32>,
    keyless: Vec<u32>,
    /// Where each bucket ends.
    ends: Vec<usize>,
}

impl Sorted {
    /// Sorts, and marks in `meta` which ranges there are keys in.
    fn new(pending: &Pending, meta: &mut BlockMeta) -> Self {
        let mut starts = vec![0; meta.buckets() + 1];
        let mut keyless = Vec::with_capacity(pending.keyless());
        let mut ranges = meta.ranges;
        pending.for_each(|position, hash| match hash {
            Some(hash) => {
                let range = range_of(hash);
                ranges[range / 64] |= 1 << (range % 64);
                starts[meta.bucket_of(hash) + 1] += 1;
            }
            None => keyless.push(position),
        });
        meta.ranges = ranges;
        for bucket in 1..starts.len() {
            starts[bucket] += starts[bucket - 1];
        }
        let keyed = pending.records() - pending.keyless();
        let mut sorted =
            Self { hashes: vec![0; keyed], positions: vec![0; keyed], keyless, ends: Vec::new() };
        pending.for_each(|position, hash| {
            if let Some(hash) = hash {
                let at = &mut starts[meta.bucket_of(hash)];
                sorted.hashes[*at] = hash;
                sorted.positions[*at] = position;
                *at += 1;
            }
        });
        // Each start has moved to where its bucket ends.
        starts.pop();
        sorted.ends = starts;
        sorted
    }
}

/// The distinct hashes of one bucket.
struct Groups {
    /// Index into `hashes`, plus one; 0 is free.
    slots: Vec<u16>,
    hashes: Vec<u64>,
    ends: Vec<u32>,
    /// Which of `hashes` each record has.
    members: Vec<u16>,
    positions: Vec<u32>,
}

impl Groups {
    fn new() -> Self {
        Self {
            slots: vec![0; SLOTS],
            hashes: Vec::new(),
            ends: Vec::new(),
            members: Vec::new(),
            positions: Vec::new(),
        }
    }

    /// Finds the groups; `false` when there are too many for it to be worth while.
    fn find(&mut self, hashes: &[u64]) -> bool {
        self.slots.fill(0);
        self.hashes.clear();
        self.ends.clear();
        self.members.clear();
        for &hash in hashes {
            let mut slot = hash as usize % SLOTS;
            let member = loop {
                match self.slots[slot].checked_sub(1) {
                    Some(known) if self.hashes[usize::from(known)] == hash => break known,
                    Some(_) => slot = (slot + 1) % SLOTS,
                    None if self.hashes.len() == KEY_BUCKET_DISTINCT_MAX => return false,
                    None => {
                        let new = self.hashes.len() as u16;
                        self.hashes.push(hash);
                        self.ends.push(0);
                        self.slots[slot] = new + 1;
                        break new;
                    }
                }
            };
            self.ends[usize::from(member)] += 1;
            self.members.push(member);
        }
        true
    }

    /// Brings the positions of each group together, and the groups' counts to where they end.
    fn order(&mut self, positions: &[u32]) {
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.positions.clear();
        self.positions.resize(positions.len(), 0);
        for (&member, &position) in self.members.iter().zip(positions) {
            let at = &mut self.ends[usize::from(member)];
            self.positions[*at as usize] = position;
            *at += 1;
        }
    }
}

/// Writes a bucket in whichever form is smaller: a hash for each record, or for each distinct hash.
fn put_bucket(out: &mut Vec<u8>, meta: &BlockMeta, hashes: &[u64], positions: &[u32], groups: &mut Groups) {
    if hashes.is_empty() {
        return;
    }
    let (hash_bits, position_bits) = (meta.hash_bits(), u32::from(meta.position_bits));
    let low_bits = u64::MAX >> (64 - hash_bits);
    let count = hashes.len() as u64;
    let end_bits = width_of(count);
    let grouped = groups.find(hashes) && {
        let distinct = groups.hashes.len() as u64;
        32 + distinct * u64::from(hash_bits + end_bits) < count * u64::from(hash_bits)
    };
    out.put_u32_le(count as u32 | if grouped { GROUPED } else { 0 });
    if grouped {
        groups.order(positions);
        out.put_u32_le(groups.hashes.len() as u32);
    }
    let (hashes, positions) =
        if grouped { (&groups.hashes[..], &groups.positions[..]) } else { (hashes, positions) };
    let mut writer = BitWriter::new(out);
    hashes.iter().for_each(|hash| writer.put(hash & low_bits, hash_bits));
    if grouped {
        groups.ends.iter().for_each(|end| writer.put(u64::from(*end), end_bits));
    }
    positions.iter().for_each(|position| writer.put(u64::from(*position), position_bits));
    writer.finish();
}

fn put_keyless(out: &mut Vec<u8>, meta: &BlockMeta, positions: &[u32]) {
    if positions.is_empty() {
        return;
    }
    out.put_u32_le(positions.len() as u32);
    let mut writer = BitWriter::new(out);
    positions.iter().for_each(|position| writer.put(u64::from(*position), u32::from(meta.position_bits)));
    writer.finish();
}

/// One bucket as it was read, its checksum checked.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes: Vec<u8>,
    records: usize,
    /// Distinct hashes where each is stored once.
    distinct: Option<usize>,
    hash_bits: u32,
    end_bits: u32,
    position_bits: u32,
    /// The highest bits of all its hashes, in their place.
    high: u64,
    /// Where the packed numbers begin.
    start: usize,
}

impl Bucket {
    /// Reads bucket `index`; that behind the last one holds the positions of keyless records. `None` when the bytes
    /// cannot be that.
    pub(super) fn parse(mut bytes: Vec<u8>, meta: &BlockMeta, index: usize) -> Option<Self> {
        let keyless = index == meta.buckets();
        let mut bucket = Self {
            bytes: Vec::new(),
            records: 0,
            distinct: None,
            hash_bits: if keyless { 0 } else { meta.hash_bits() },
            end_bits: 0,
            position_bits: u32::from(meta.position_bits),
            high: if keyless || meta.bucket_bits == 0 { 0 } else { (index as u64) << meta.hash_bits() },
            start: 32,
        };
        if bytes.is_empty() {
            return Some(bucket);
        }
        let mut rest = &bytes[..];
        let count = rest.try_get_u32_le().ok()?;
        let records = count & !GROUPED;
        if records > meta.records {
            return None;
        }
        bucket.records = records as usize;
        if count & GROUPED != 0 {
            let distinct = rest.try_get_u32_le().ok().filter(|distinct| *distinct <= records && !keyless)?;
            bucket.distinct = Some(distinct as usize);
            bucket.end_bits = width_of(u64::from(records));
            bucket.start = 64;
        }
        let bits = bucket.positions_at() + bucket.records * bucket.position_bits as usize;
        if bytes.len() != bits.div_ceil(8) {
            return None;
        }
        bytes.resize(bytes.len() + PADDING, 0);
        bucket.bytes = bytes;
        Some(bucket)
    }

    fn hashes(&self) -> usize {
        self.distinct.unwrap_or(self.records)
    }

    fn ends_at(&self) -> usize {
        self.start + self.hashes() * self.hash_bits as usize
    }

    fn positions_at(&self) -> usize {
        self.ends_at() + self.distinct.unwrap_or(0) * self.end_bits as usize
    }

    fn hash(&self, index: usize) -> u64 {
        if self.hash_bits == 0 {
            return 0;
        }
        self.high | bits::get(&self.bytes, self.start + index * self.hash_bits as usize, self.hash_bits)
    }

    fn position(&self, index: usize) -> u32 {
        bits::get(&self.bytes, self.positions_at() + index * self.position_bits as usize, self.position_bits)
            as u32
    }

    /// The indexes of the records with hash number `index`.
    fn members(&self, index: usize) -> std::ops::Range<usize> {
        if self.distinct.is_none() {
            return index..index + 1;
        }
        let end = |index: usize| {
            bits::get(&self.bytes, self.ends_at() + index * self.end_bits as usize, self.end_bits) as usize
        };
        let start = index.checked_sub(1).map_or(0, end);
        start..end(index).min(self.records)
    }

    /// Shows hash and position of every record; the hash of a keyless one is 0.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, u32)) {
        for index in 0..self.hashes() {
            let hash = self.hash(index);
            self.members(index).for_each(|member| visit(hash, self.position(member)));
        }
    }

    /// Shows the positions of all records whose hash `filter` has.
    pub(super) fn for_each_of(&self, filter: &KeyFilter, mut visit: impl FnMut(u32)) {
        for index in 0..self.hashes() {
            if filter.has(self.hash(index)) {
                self.members(index).for_each(|member| visit(self.position(member)));
            }
        }
    }
}

/// What a block's position holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Keyed,
    Keyless,
}

/// A whole block in offset order.
#[derive(Debug)]
pub(super) struct Column {
    base: Offset,
    hashes: Vec<u64>,
    kinds: Vec<Kind>,
}

impl Column {
    pub(super) fn new(meta: &BlockMeta) -> Self {
        // Bounded whatever the head claims: positions have a bound of their own.
        let span = 1_usize << meta.position_bits;
        let span = span.min(usize::try_from(meta.next - meta.base).unwrap_or(0));
        Self { base: meta.base, hashes: vec![0; span], kinds: vec![Kind::Nothing; span] }
    }

    /// Enters the records of a bucket; `false` when one lies outside of the block.
    pub(super) fn fill(&mut self, bucket: &Bucket, keyless: bool) -> bool {
        let kind = if keyless { Kind::Keyless } else { Kind::Keyed };
        let mut inside = true;
        bucket.for_each(|hash, position| match self.hashes.get_mut(position as usize) {
            Some(slot) => {
                *slot = hash;
                self.kinds[position as usize] = kind;
            }
            None => inside = false,
        });
        inside
    }

    /// Bytes in memory.
    pub(super) fn cost(&self) -> usize {
        self.hashes.len() * 9
    }

    /// The records from `from` on, below `upper`.
    pub(super) fn list(
        &self,
        from: Offset,
        upper: Offset,
    ) -> impl DoubleEndedIterator<Item = KeyedRecord> + '_ {
        let index = |offset: Offset| usize::try_from(offset - self.base).unwrap_or(0).min(self.hashes.len());
        let start = index(from);
        (start..index(upper).max(start)).filter_map(|index| {
            let key = match self.kinds[index] {
                Kind::Nothing => return None,
                Kind::Keyed => Some(KeyHash(self.hashes[index])),
                Kind::Keyless => None,
            };
            Some(KeyedRecord { offset: self.base + index as i64, key })
        })
    }
}
