//! The last offset of every key, in bounded memory (Kafka's `SkimpyOffsetMap`).
//!
//! A key is known by a fingerprint of 128 bits, 24 bytes a key with its offset. The map is cut into shards that grow one
//! by one, so that it takes what the keys need and hardly more while it grows.

use records::ids::Offset;

/// Bytes that a key takes: its fingerprint and its offset.
const SLOT_BYTES: usize = 24;
/// Shards of a map that is large enough for them.
const SHARDS: usize = 64;
/// Slots of a shard from which on a map is cut into shards.
const SHARD_SLOTS_MIN: usize = 256;
/// Slots that a shard begins with.
const FIRST_SLOTS: usize = 16;
const VACANT: i64 = -1;

/// See the module.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    shards: Vec<Shard>,
}

#[derive(Debug)]
struct Shard {
    fingerprints: Vec<u128>,
    offsets: Vec<i64>,
    len: usize,
    slots_max: usize,
    load: f64,
}

impl OffsetMap {
    /// A map of at most `bytes`, full when `load` of its slots are taken.
    pub(crate) fn new(bytes: usize, load: f64) -> Self {
        let slots = (bytes / SLOT_BYTES).max(FIRST_SLOTS);
        let count = if slots >= SHARDS * SHARD_SLOTS_MIN { SHARDS } else { 1 };
        let shard = || Shard {
            fingerprints: Vec::new(),
            offsets: Vec::new(),
            len: 0,
            slots_max: slots / count,
            // A slot must stay vacant, or a search would not end.
            load: load.clamp(0.01, 0.95),
        };
        Self { shards: (0..count).map(|_| shard()).collect() }
    }

    /// Notes that the key stands at `offset`. False when the map is full and does not know the key.
    pub(crate) fn put(&mut self, fingerprint: u128, offset: Offset) -> bool {
        let index = self.shard_of(fingerprint);
        self.shards[index].put(fingerprint, offset.0)
    }

    /// Where the key stands last, as far as was noted.
    pub(crate) fn get(&self, fingerprint: u128) -> Option<Offset> {
        self.shards[self.shard_of(fingerprint)].get(fingerprint)
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len).sum()
    }

    fn shard_of(&self, fingerprint: u128) -> usize {
        scale((fingerprint >> 64) as u64, self.shards.len())
    }
}

impl Shard {
    fn put(&mut self, fingerprint: u128, offset: i64) -> bool {
        if let Some(slot) = self.find(fingerprint)
            && self.offsets[slot] != VACANT
        {
            self.offsets[slot] = offset;
            return true;
        }
        if self.len >= self.bound(self.offsets.len()) && !self.grow() {
            return false;
        }
        let slot = self.find(fingerprint).expect("a shard that has grown has slots");
        self.fingerprints[slot] = fingerprint;
        self.offsets[slot] = offset;
        self.len += 1;
        true
    }

    fn get(&self, fingerprint: u128) -> Option<Offset> {
        let offset = self.offsets[self.find(fingerprint)?];
        (offset != VACANT).then_some(Offset(offset))
    }

    /// The slot of the key, or the vacant one where it belongs; `None` without slots.
    fn find(&self, fingerprint: u128) -> Option<usize> {
        let slots = self.offsets.len();
        if slots == 0 {
            return None;
        }
        let mut slot = scale(fingerprint as u64, slots);
        while self.offsets[slot] != VACANT && self.fingerprints[slot] != fingerprint {
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        Some(slot)
    }

    /// Keys that so many slots may hold.
    fn bound(&self, slots: usize) -> usize {
        (slots as f64 * self.load) as usize
    }

    fn grow(&mut self) -> bool {
        let slots = (self.offsets.len() * 2).clamp(FIRST_SLOTS, self.slots_max.max(FIRST_SLOTS));
        if self.bound(slots) <= self.len {
            return false;
        }
        let fingerprints = std::mem::replace(&mut self.fingerprints, vec![0; slots]);
        let offsets = std::mem::replace(&mut self.offsets, vec![VACANT; slots]);
        for (fingerprint, offset) in fingerprints.into_iter().zip(offsets) {
            if offset != VACANT {
                let slot = self.find(fingerprint).expect("there are slots now");
                self.fingerprints[slot] = fingerprint;
                self.offsets[slot] = offset;
            }
        }
        true
    }
}

/// Spreads 64 random bits evenly over `0..count`.
fn scale(bits: u64, count: usize) -> usize {
    ((u128::from(bits) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use records::key_hash::key_fingerprint;

    use super::*;

    proptest! {
        #[test]
        fn knows_what_a_plain_map_knows(puts in proptest::collection::vec(0_u32..400, 0..2000), bytes in 1_usize..20_000) {
            let mut map = OffsetMap::new(bytes, 0.9);
            let mut plain = HashMap::new();
            for (offset, key) in puts.iter().enumerate() {
                let fingerprint = key_fingerprint(&key.to_be_bytes(), 7);
                if map.put(fingerprint, Offset(offset as i64)) {
                    plain.insert(*key, offset as i64);
                } else {
                    prop_assert!(!plain.contains_key(key), "a key that is known is noted in a full map too");
                }
            }
            prop_assert_eq!(map.len(), plain.len());
            prop_assert!(map.len() * SLOT_BYTES <= bytes.max(FIRST_SLOTS * SLOT_BYTES));
            for key in 0_u32..400 {
                let found = map.get(key_fingerprint(&key.to_be_bytes(), 7)).map(|offset| offset.0);
                prop_assert_eq!(found, plain.get(&key).copied());
            }
        }
    }

    #[test]
    fn a_large_map_fills_to_its_load_and_takes_no_more_than_its_bytes() {
        let bytes = 4 << 20;
        let mut map = OffsetMap::new(bytes, 0.9);
        let mut key = 0_u64;
        while map.put(key_fingerprint(&key.to_be_bytes(), 1), Offset(key as i64)) {
            key += 1;
        }
        let slots: usize = map.shards.iter().map(|shard| shard.offsets.len()).sum();
        assert!(slots * SLOT_BYTES <= bytes);
        let most = bytes / SLOT_BYTES * 9 / 10;
        assert!(map.len() <= most && map.len() > most * 9 / 10, "{} of {most}", map.len());
    }
}
