//! The keys that have a queue: by number, which is quick, and by hash, which keeps them in order.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use records::ids::KeyHash;
use smallvec::SmallVec;

use super::{KEY_BYTES, Place};
use crate::share::window::NONE;

/// So many numbers may be out of use, whatever the number of keys.
const VACANT_MAX: usize = 1_024;

/// One key's queue.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) hash: KeyHash,
    pub(super) head: i64,
    pub(super) tail: i64,
    pub(super) place: Place,
    /// Its records in members' hands, ascending.
    pub(super) out: SmallVec<[Lent; 1]>,
    /// Whose load it counts in, while it has records out.
    pub(super) lessee: u32,
    /// Records in its queue.
    pub(super) len: u32,
    /// It has a span.
    pub(super) spilled: bool,
    /// It rests in a page.
    pub(super) resting: bool,
}

/// A record in a member's hands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    pub(super) offset: i64,
    pub(super) holder: u32,
    pub(super) recalled: bool,
}

impl Key {
    fn new(hash: KeyHash) -> Self {
        Self {
            hash,
            head: NONE,
            tail: NONE,
            place: Place::Nowhere,
            out: SmallVec::new(),
            lessee: 0,
            len: 0,
            spilled: false,
            resting: false,
        }
    }

    /// Records in members' hands that were not recalled.
    pub(super) fn held(&self) -> impl Iterator<Item = i64> {
        self.out.iter().filter(|lent| !lent.recalled).map(|lent| lent.offset)
    }
}

/// The keys.
///
/// A number stays the key's while the key is here, unless many others go; whoever kept one says whose it was.
#[derive(Debug, Default)]
pub(super) struct Keys {
    by_hash: BTreeMap<KeyHash, u32>,
    list: Vec<Option<Key>>,
    vacant: Vec<u32>,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(super) fn number(&self, hash: KeyHash) -> Option<u32> {
        self.by_hash.get(&hash).copied()
    }

    /// The number of a key that once had this one.
    pub(super) fn number_from(&self, hint: u32, hash: KeyHash) -> Option<u32> {
        match self.peek(hint) {
            Some(key) if key.hash == hash => Some(hint),
            _ => self.number(hash),
        }
    }

    /// The key that has this number now, if any has.
    pub(super) fn peek(&self, number: u32) -> Option<&Key> {
        self.list.get(number as usize)?.as_ref()
    }

    pub(super) fn find(&self, hash: KeyHash) -> Option<&Key> {
        self.number(hash).map(|number| self.get(number))
    }

    pub(super) fn get(&self, number: u32) -> &Key {
        self.list[number as usize].as_ref().expect("a number that was found is of a key")
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Key {
        self.list[number as usize].as_mut().expect("a number that was found is of a key")
    }

    /// The number of a key, which is new here if it had none, and then looks as `new` makes it.
    pub(super) fn number_or_add(&mut self, hint: u32, hash: KeyHash, new: impl FnOnce(&mut Key)) -> u32 {
        if let Some(number) = self.number_from(hint, hash) {
            return number;
        }
        let mut key = Key::new(hash);
        new(&mut key);
        let number = self.vacant.pop().unwrap_or_else(|| {
            if self.list.len() == self.list.capacity() {
                // Doubling would cost as much again.
                self.list.reserve_exact(self.list.len() / 8 + 4);
            }
            self.list.push(None);
            u32::try_from(self.list.len() - 1).expect("the window's bound leaves room for far fewer keys")
        });
        self.list[number as usize] = Some(key);
        self.by_hash.insert(hash, number);
        number
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Key> {
        let key = self.list.get_mut(number as usize)?.take()?;
        self.by_hash.remove(&key.hash);
        self.vacant.push(number);
        if self.len() == 0 || self.vacant.len() > VACANT_MAX.max(3 * self.len()) {
            self.number_anew();
        }
        Some(key)
    }

    /// Most of many keys went, or all did: the list shrinks.
    fn number_anew(&mut self) {
        let old = std::mem::take(&mut self.list);
        self.vacant = Vec::new();
        self.list = old.into_iter().filter(Option::is_some).collect();
        self.list.shrink_to_fit();
        for (number, key) in (0..).zip(&self.list) {
            if let Some(key) = key {
                self.by_hash.insert(key.hash, number);
            }
        }
    }

    /// Keys in the order of their hashes.
    pub(super) fn range(&self, hashes: RangeInclusive<KeyHash>) -> impl Iterator<Item = (KeyHash, &Key)> {
        self.by_hash.range(hashes).map(|(&hash, &number)| (hash, self.get(number)))
    }

    /// All keys in the order of their hashes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyHash, &Key)> {
        self.range(KeyHash(0)..=KeyHash(u64::MAX))
    }

    /// About how many bytes they take, their places in the ready sets included.
    pub(super) fn heap_bytes(&self) -> u64 {
        let vacant = self.vacant.len() * (size_of::<Option<Key>>() + size_of::<u32>());
        self.len() as u64 * KEY_BYTES + vacant as u64
    }
}
