//! The slots of a window: a map by offset, for offsets that mostly lie side by side.
//!
//! 64 neighbours share an entry of a tree: a bit for each that has a slot, and their slots in a row. So finding one costs a
//! short walk of a small tree, and one that stands alone costs little more than itself.

use std::collections::BTreeMap;

use super::offset_set::{Bits, WORD_BITS, at_or_above, at_or_below, bit};
use super::window::Slot;

/// About what a chunk costs beside its slots, tree included.
const CHUNK_BYTES: u64 = 76;

/// The map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// None is empty.
    chunks: BTreeMap<i64, Chunk>,
    len: usize,
    /// Slots for which there is room.
    room: usize,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    bits: u64,
    slots: Vec<Slot>,
}

impl Slots {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, offset: i64) -> Option<&Slot> {
        let chunk = self.chunks.get(&(offset >> WORD_BITS))?;
        (chunk.bits & bit(offset) != 0).then(|| &chunk.slots[chunk.index_of(offset)])
    }

    pub(crate) fn get_mut(&mut self, offset: i64) -> Option<&mut Slot> {
        let chunk = self.chunks.get_mut(&(offset >> WORD_BITS))?;
        let index = chunk.index_of(offset);
        (chunk.bits & bit(offset) != 0).then(|| &mut chunk.slots[index])
    }

    pub(crate) fn insert(&mut self, offset: i64, slot: Slot) {
        let chunk = self.chunks.entry(offset >> WORD_BITS).or_default();
        let index = chunk.index_of(offset);
        if chunk.bits & bit(offset) != 0 {
            chunk.slots[index] = slot;
            return;
        }
        let before = chunk.slots.capacity();
        if chunk.slots.len() == before {
            chunk.slots.reserve_exact(before.max(1));
        }
        chunk.slots.insert(index, slot);
        chunk.bits |= bit(offset);
        self.len += 1;
        self.room += chunk.slots.capacity() - before;
    }

    pub(crate) fn remove(&mut self, offset: i64) -> Option<Slot> {
        let chunk = self.chunks.get_mut(&(offset >> WORD_BITS))?;
        if chunk.bits & bit(offset) == 0 {
            return None;
        }
        let before = chunk.slots.capacity();
        let slot = chunk.slots.remove(chunk.index_of(offset));
        chunk.bits &= !bit(offset);
        self.len -= 1;
        if chunk.bits == 0 {
            self.room -= before;
            self.chunks.remove(&(offset >> WORD_BITS));
        } else if before >= 4 * chunk.slots.len() {
            chunk.slots.shrink_to(2 * chunk.slots.len());
            self.room -= before - chunk.slots.capacity();
        }
        Some(slot)
    }

    /// All slots, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, &Slot)> {
        self.range(i64::MIN, i64::MAX)
    }

    /// Slots in `first..=last`, ascending; none where the range is none.
    pub(crate) fn range(&self, first: i64, last: i64) -> impl DoubleEndedIterator<Item = (i64, &Slot)> {
        let chunks = (first <= last).then(|| self.chunks.range(first >> WORD_BITS..=last >> WORD_BITS));
        chunks.into_iter().flatten().flat_map(move |(&number, chunk)| {
            let base = number << WORD_BITS;
            let bits = Bits(chunk.bits & at_or_above(first.max(base)) & at_or_below(last, base));
            let passed = (chunk.bits & !at_or_above(first.max(base))).count_ones() as usize;
            let slots = &chunk.slots[passed..passed + bits.len()];
            bits.zip(slots).map(move |(at, slot)| (base + i64::from(at), slot))
        })
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES + (self.room * size_of::<Slot>()) as u64
    }
}

impl Chunk {
    /// Where an offset's slot stands in the row, or would.
    fn index_of(&self, offset: i64) -> usize {
        (self.bits & (bit(offset) - 1)).count_ones() as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::partition::unscanned;

    proptest! {
        #[test]
        fn behaves_as_a_plain_map(
            steps in prop::collection::vec((0_u8..5, -70_i64..200, any::<u32>()), 0..300),
            (first, last) in (-80_i64..210, -80_i64..210),
        ) {
            let (mut slots, mut model) = (Slots::default(), BTreeMap::new());
            for (kind, offset, bytes) in steps {
                match kind {
                    0..3 => {
                        slots.insert(offset, Slot { bytes, ..unscanned() });
                        model.insert(offset, bytes);
                    }
                    3 => prop_assert_eq!(slots.remove(offset).map(|slot| slot.bytes), model.remove(&offset)),
                    _ => {
                        if let Some(slot) = slots.get_mut(offset) {
                            slot.bytes = bytes;
                        }
                        model.entry(offset).and_modify(|known| *known = bytes);
                    }
                }
                prop_assert_eq!(slots.get(offset).map(|slot| slot.bytes), model.get(&offset).copied());
                prop_assert_eq!(slots.len(), model.len());
            }
            let of = |(at, slot): (i64, &Slot)| (at, slot.bytes);
            let within = || model.iter().map(|(at, bytes)| (*at, *bytes)).filter(|(at, _)| (first..=last).contains(at));
            prop_assert!(slots.range(first, last).map(of).eq(within()));
            prop_assert!(slots.range(first, last).rev().map(of).eq(within().collect::<Vec<_>>().into_iter().rev()));
            prop_assert_eq!(slots.room, slots.chunks.values().map(|chunk| chunk.slots.capacity()).sum::<usize>());
            for offset in model.into_keys() {
                slots.remove(offset);
            }
            prop_assert_eq!((slots.heap_bytes(), slots.len()), (0, 0));
        }
    }
}
