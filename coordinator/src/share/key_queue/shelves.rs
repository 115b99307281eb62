//! Ready offsets, each on someone's shelf.

use std::collections::BTreeMap;

use crate::share::offset_set::OffsetSet;

/// A set of offsets for each `A`.
#[derive(Debug)]
pub(super) struct Shelves<A> {
    /// None is empty.
    shelves: BTreeMap<A, OffsetSet>,
    len: usize,
}

impl<A> Default for Shelves<A> {
    fn default() -> Self {
        Self { shelves: BTreeMap::new(), len: 0 }
    }
}

impl<A: Copy + Ord> Shelves<A> {
    /// Offsets on all of them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn insert(&mut self, of: A, offset: i64) {
        self.len += usize::from(self.shelves.entry(of).or_default().insert(offset));
    }

    pub(super) fn remove(&mut self, of: A, offset: i64) {
        let Some(shelf) = self.shelves.get_mut(&of) else { return };
        self.len -= usize::from(shelf.remove(offset));
        if shelf.is_empty() {
            self.shelves.remove(&of);
        }
    }

    /// The first offset of `of` at or behind `from`.
    pub(super) fn next(&self, of: A, from: i64) -> Option<i64> {
        self.shelves.get(&of)?.next(from)
    }

    /// All offsets of `of`, ascending.
    pub(super) fn iter(&self, of: A) -> impl Iterator<Item = i64> {
        self.shelves.get(&of).into_iter().flat_map(OffsetSet::iter)
    }
}
