//! An exact set of key hashes that costs about seven bytes each, with a mark a key.
//!
//! The upper bits of a hash choose its bucket, the rest stands in it, sorted. Keys that rest in pages of the share state
//! are in such a set, so that a later record of theirs is known to wait; a set that erred could lose one. A few keys are in
//! a plain map, since the buckets alone cost more.

use std::collections::BTreeMap;

use records::ids::KeyHash;

/// Bits that choose a bucket.
const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;
/// The rest of a hash, and the mark below it.
const ENTRY_BYTES: usize = 7;
const MARK: u64 = 1;
/// What stands below the rest of a hash.
const FLAG_BITS: u32 = 4;

/// So many keys are in a plain map.
const FEW: usize = 4_096;
/// About what one of them costs there.
const FEW_BYTES: usize = 36;

type Entry = [u8; ENTRY_BYTES];

/// The set.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    /// With their marks; none when there are many.
    few: BTreeMap<KeyHash, bool>,
    /// None while there are few.
    buckets: Vec<Vec<Entry>>,
    len: usize,
    marked: usize,
    /// Entries for which there is room.
    room: usize,
}

impl KeySet {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys with a mark.
    pub(crate) fn marked(&self) -> usize {
        self.marked
    }

    pub(crate) fn contains(&self, key: KeyHash) -> bool {
        self.len > 0 && (self.few.contains_key(&key) || self.find(key).is_ok())
    }

    /// Whether a key is in it and has a mark.
    pub(crate) fn is_marked(&self, key: KeyHash) -> bool {
        let find =
            || self.find(key).is_ok_and(|at| value_of(self.buckets[bucket_of(key)][at]) & MARK == MARK);
        self.few.get(&key).copied().unwrap_or_else(find)
    }

    /// Adds a key without a mark; says whether it is new.
    pub(crate) fn insert(&mut self, key: KeyHash) -> bool {
        if self.buckets.is_empty() {
            if self.few.len() < FEW {
                let is_new = !self.few.contains_key(&key);
                self.few.entry(key).or_insert(false);
                self.len = self.few.len();
                return is_new;
            }
            self.buckets = vec![Vec::new(); BUCKETS];
            for (key, marked) in std::mem::take(&mut self.few) {
                self.insert_in_bucket(key, marked);
            }
        }
        let is_new = self.insert_in_bucket(key, false);
        self.len += usize::from(is_new);
        is_new
    }

    fn insert_in_bucket(&mut self, key: KeyHash, marked: bool) -> bool {
        let Err(index) = self.find(key) else { return false };
        let bucket = &mut self.buckets[bucket_of(key)];
        if bucket.len() == bucket.capacity() {
            // Doubling would cost half the memory again.
            let more = bucket.len() / 8 + 4;
            bucket.reserve_exact(more);
            self.room += bucket.capacity() - bucket.len();
        }
        bucket.insert(index, entry_of(rest_of(key) << FLAG_BITS | u64::from(marked)));
        true
    }

    /// Takes a key out; says whether it had a mark, if it was there.
    pub(crate) fn remove(&mut self, key: KeyHash) -> Option<bool> {
        if self.buckets.is_empty() {
            let marked = self.few.remove(&key)?;
            self.len = self.few.len();
            self.marked -= usize::from(marked);
            return Some(marked);
        }
        let index = self.find(key).ok()?;
        let bucket = &mut self.buckets[bucket_of(key)];
        let marked = value_of(bucket.remove(index)) & MARK == MARK;
        if bucket.capacity() > 2 * bucket.len() + 8 {
            self.room -= bucket.capacity();
            bucket.shrink_to(bucket.len() + bucket.len() / 8 + 4);
            self.room += bucket.capacity();
        }
        self.len -= 1;
        self.marked -= usize::from(marked);
        if self.len == 0 {
            *self = Self::default();
        }
        Some(marked)
    }

    /// Marks a key; says whether it is there and had no mark.
    pub(crate) fn mark(&mut self, key: KeyHash) -> bool {
        if let Some(marked) = self.few.get_mut(&key) {
            let is_new = !std::mem::replace(marked, true);
            self.marked += usize::from(is_new);
            return is_new;
        }
        let Ok(index) = self.find(key) else { return false };
        let entry = &mut self.buckets[bucket_of(key)][index];
        let value = value_of(*entry);
        *entry = entry_of(value | MARK);
        self.marked += usize::from(value & MARK == 0);
        value & MARK == 0
    }

    /// Keys with a mark, ascending.
    pub(crate) fn iter_marked(&self) -> impl Iterator<Item = KeyHash> {
        let few = self.few.iter().filter(|key| *key.1).map(|key| *key.0);
        let many = self.buckets.iter().zip(0_u64..).flat_map(|(bucket, number)| {
            let marked = bucket.iter().map(|entry| value_of(*entry)).filter(|value| value & MARK == MARK);
            marked.map(move |value| KeyHash(number << (64 - BUCKET_BITS) | value >> FLAG_BITS))
        });
        few.chain(many)
    }

    /// How many bytes of memory it takes, about.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let buckets = self.buckets.len() * (size_of::<Vec<Entry>>() + 16);
        (buckets + self.room * ENTRY_BYTES + self.few.len() * FEW_BYTES) as u64
    }

    /// Where a key stands in its bucket, or would.
    fn find(&self, key: KeyHash) -> Result<usize, usize> {
        let Some(bucket) = self.buckets.get(bucket_of(key)) else { return Err(0) };
        let rest = rest_of(key);
        bucket.binary_search_by_key(&rest, |entry| value_of(*entry) >> FLAG_BITS)
    }
}

fn bucket_of(key: KeyHash) -> usize {
    (key.0 >> (64 - BUCKET_BITS)) as usize
}

fn rest_of(key: KeyHash) -> u64 {
    key.0 & (u64::MAX >> BUCKET_BITS)
}

fn entry_of(value: u64) -> Entry {
    let [_, entry @ ..] = value.to_be_bytes();
    entry
}

fn value_of(entry: Entry) -> u64 {
    let mut bytes = [0; 8];
    bytes[1..].copy_from_slice(&entry);
    u64::from_be_bytes(bytes)
}

const _: () = assert!(
    64 - BUCKET_BITS + FLAG_BITS == 8 * ENTRY_BYTES as u32,
    "a hash is known whole from its bucket and its entry"
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn k63_a_million_keys_take_less_than_eight_bytes_each() {
        let mut set = KeySet::default();
        let count = 1_000_000_u64;
        let hash = |number: u64| KeyHash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..count).for_each(|number| assert!(set.insert(hash(number))));
        assert!(set.heap_bytes() < count * 8, "{}", set.heap_bytes());
        (0..count).for_each(|number| assert_eq!(set.remove(hash(number)), Some(false)));
        assert_eq!(set.heap_bytes(), 0);
    }

    proptest! {
        #[test]
        fn behaves_as_a_plain_map(
            many in prop::sample::select(vec![0, FEW as u64 + 9]),
            steps in prop::collection::vec((0_u8..4, prop::sample::select(vec![0, 1, 7, 1 << 52, u64::MAX, 1 << 63, 3 << 51])), 1..200),
        ) {
            let mut set = KeySet::default();
            let mut model: BTreeMap<u64, bool> = BTreeMap::new();
            for number in 0..many {
                let hash = number << 50 | number;
                set.insert(KeyHash(hash));
                model.insert(hash, false);
            }
            for (kind, hash) in steps {
                let key = KeyHash(hash);
                match kind {
                    0 | 1 => {
                        let new = !model.contains_key(&hash);
                        prop_assert_eq!(set.insert(key), new);
                        model.entry(hash).or_insert(false);
                    }
                    2 => prop_assert_eq!(set.remove(key), model.remove(&hash)),
                    _ => {
                        let marks = model.get_mut(&hash).is_some_and(|marked| !std::mem::replace(marked, true));
                        prop_assert_eq!(set.mark(key), marks);
                    }
                }
                prop_assert_eq!(set.contains(key), model.contains_key(&hash));
                prop_assert_eq!(set.len(), model.len());
            }
            let marked: Vec<u64> = model.iter().filter(|(_, marked)| **marked).map(|(hash, _)| *hash).collect();
            prop_assert_eq!(set.marked(), marked.len());
            prop_assert_eq!(set.iter_marked().map(|key| key.0).collect::<Vec<_>>(), marked);
        }
    }
}
