//! Sets of offsets that come and go one by one: 64 neighbours share an entry of a tree, as bits.

use std::collections::BTreeMap;

/// About what 64 neighbours cost, tree included.
const WORD_BYTES: u64 = 24;
/// Bits of an offset that say which of its neighbours it is.
pub(crate) const WORD_BITS: u32 = 6;

/// A set of offsets.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetSet {
    /// None is zero.
    words: BTreeMap<i64, u64>,
    len: usize,
}

impl OffsetSet {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an offset; says whether it is new.
    pub(crate) fn insert(&mut self, offset: i64) -> bool {
        let word = self.words.entry(offset >> WORD_BITS).or_default();
        let is_new = *word & bit(offset) == 0;
        *word |= bit(offset);
        self.len += usize::from(is_new);
        is_new
    }

    /// Takes an offset out; says whether it was there.
    pub(crate) fn remove(&mut self, offset: i64) -> bool {
        let Some(word) = self.words.get_mut(&(offset >> WORD_BITS)) else { return false };
        let was_there = *word & bit(offset) != 0;
        *word &= !bit(offset);
        if *word == 0 {
            self.words.remove(&(offset >> WORD_BITS));
        }
        self.len -= usize::from(was_there);
        was_there
    }

    pub(crate) fn contains(&self, offset: i64) -> bool {
        self.words.get(&(offset >> WORD_BITS)).is_some_and(|word| word & bit(offset) != 0)
    }

    /// The first offset at or behind `from`.
    pub(crate) fn next(&self, from: i64) -> Option<i64> {
        let number = from >> WORD_BITS;
        let near = self.words.get(&number).map_or(0, |word| word & at_or_above(from));
        if near != 0 {
            return Some(number << WORD_BITS | i64::from(near.trailing_zeros()));
        }
        let (number, word) = self.words.range(number.checked_add(1)?..).next()?;
        Some(number << WORD_BITS | i64::from(word.trailing_zeros()))
    }

    /// Offsets, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = i64> {
        self.range(i64::MIN, i64::MAX)
    }

    /// Offsets in `first..=last`, ascending; none where the range is none.
    pub(crate) fn range(&self, first: i64, last: i64) -> impl Iterator<Item = i64> {
        let words = (first <= last)
            .then(|| self.words.range(first >> WORD_BITS..=last >> WORD_BITS))
            .into_iter()
            .flatten();
        words.flat_map(move |(&number, &word)| {
            let base = number << WORD_BITS;
            Bits(word & at_or_above(first.max(base)) & at_or_below(last, base))
                .map(move |at| base + i64::from(at))
        })
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.words.len() as u64 * WORD_BYTES
    }
}

/// The bits that are set, ascending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        (self.0 != 0).then(|| {
            let at = self.0.trailing_zeros();
            self.0 &= self.0 - 1;
            at
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.count_ones() as usize;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<u32> {
        (self.0 != 0).then(|| {
            let at = 63 - self.0.leading_zeros();
            self.0 &= !(1 << at);
            at
        })
    }
}

impl ExactSizeIterator for Bits {}

/// An offset's bit among its neighbours.
pub(crate) fn bit(offset: i64) -> u64 {
    1 << (offset & 63)
}

/// Bits of an offset and of the neighbours behind it.
pub(crate) fn at_or_above(offset: i64) -> u64 {
    u64::MAX << (offset & 63)
}

/// Bits of the neighbours from `base` on that lie at or before `last`.
pub(crate) fn at_or_below(last: i64, base: i64) -> u64 {
    if last >> WORD_BITS > base >> WORD_BITS { u64::MAX } else { u64::MAX >> (63 - (last & 63)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn offsets() -> impl Strategy<Value = i64> {
        prop_oneof![-70_i64..200, Just(i64::MAX), Just(i64::MIN), Just(1 << 40)]
    }

    proptest! {
        #[test]
        fn behaves_as_a_plain_set(
            steps in prop::collection::vec((any::<bool>(), offsets()), 0..200),
            (first, last) in (offsets(), offsets()),
        ) {
            let (mut set, mut model) = (OffsetSet::default(), BTreeSet::new());
            for (adds, offset) in steps {
                if adds {
                    prop_assert_eq!(set.insert(offset), model.insert(offset));
                } else {
                    prop_assert_eq!(set.remove(offset), model.remove(&offset));
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.contains(offset), adds);
            }
            prop_assert_eq!(set.next(first), model.range(first..).next().copied());
            let expected: Vec<i64> = model.iter().copied().filter(|at| (first..=last).contains(at)).collect();
            prop_assert_eq!(set.range(first, last).collect::<Vec<_>>(), expected);
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(set.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn bits_come_from_both_ends() {
        let mut bits = Bits(1 << 63 | 1 << 5 | 1);
        assert_eq!(
            (bits.len(), bits.next(), bits.next_back(), bits.next(), bits.next()),
            (3, Some(0), Some(63), Some(5), None)
        );
    }
}
