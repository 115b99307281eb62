//! The window: the offsets of a share-partition from its start offset to its scan offset.
//!
//! An offset in there is *settled* (the set says so), or it is a record with a *slot*, or one without: of that only the
//! span of its key tells, or a page of the share state. Invariants: every offset below `start` is done; what has a slot
//! is not settled. Behind `scan` there are only slots of records that were in members' hands before a restart, until the
//! scan has come to them again.

use records::ids::KeyHash;

use super::settled::Settled;
use super::slots::Slots;

/// "No record" in a slot's list and for a lock.
pub(crate) const NONE: i64 = -1;
pub(crate) const NO_LOCK: u32 = 0;
/// A record whose key has no queue.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// About the most that a slot costs where its neighbours have some, too.
#[cfg(test)]
pub(crate) const SLOT_BYTES: u64 = 2 * size_of::<Slot>() as u64;

/// Where an unsettled record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// Undelivered, or back: to be delivered when it is its turn.
    Queued,
    /// As queued, but not before its wait is over.
    Delayed,
    /// In a member's hands.
    Held,
    /// In a member's hands, but to be delivered again whatever that member does with it.
    Recalled,
    /// To go to nobody before someone decides, or before it is copied to the dead-letter topic.
    Stopped,
}

/// One unsettled record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Its key's hash; known once it is scanned.
    pub(crate) key: Option<KeyHash>,
    /// The next queued record of its key.
    pub(crate) next: i64,
    /// Where its key stands among the keys that have a queue, when it was put there.
    pub(crate) entry: u32,
    /// Its size.
    pub(crate) bytes: u32,
    /// The lock under which it is held.
    pub(crate) lock: u32,
    /// Deliveries that count and failed.
    pub(crate) count: u16,
    pub(crate) state: RecordState,
    /// Key and size are known (else it was only heard of in events, after a restart).
    pub(crate) scanned: bool,
    /// The last record of its stored batch.
    pub(crate) batch_end: bool,
}

impl Slot {
    /// In a member's hands, wanted or not.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state, RecordState::Held | RecordState::Recalled)
    }
}

/// The window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    slots: Slots,
    settled: Settled,
    start: i64,
    scan: i64,
    /// Behind the highest offset that was ever granted.
    acquired_end: i64,
    /// Below it every offset that is not done has a slot.
    clean: i64,
    /// The start or the scan offset may be done.
    moves: bool,
}

impl Window {
    /// An empty window at `at`.
    pub(crate) fn reset(&mut self, at: i64) {
        let settled = std::mem::take(&mut self.settled);
        *self = Self {
            start: at,
            scan: at,
            acquired_end: at,
            clean: at,
            settled,
            moves: true,
            ..Self::default()
        };
        self.settled.clear();
    }

    /// As a snapshot says: settled offsets and slots are inserted afterwards.
    pub(crate) fn restore(&mut self, start: i64, scan: i64, acquired_end: i64) {
        *self = Self { start, scan, acquired_end, clean: start, moves: true, ..Self::default() };
    }

    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    pub(crate) fn scan(&self) -> i64 {
        self.scan
    }

    pub(crate) fn acquired_end(&self) -> i64 {
        self.acquired_end
    }

    pub(crate) fn granted(&mut self, offset: i64) {
        self.acquired_end = self.acquired_end.max(offset + 1);
    }

    pub(crate) fn settled(&self) -> &Settled {
        &self.settled
    }

    pub(crate) fn settled_mut(&mut self) -> &mut Settled {
        self.moves = true;
        &mut self.settled
    }

    pub(crate) fn get(&self, offset: i64) -> Option<&Slot> {
        self.slots.get(offset)
    }

    pub(crate) fn get_mut(&mut self, offset: i64) -> Option<&mut Slot> {
        self.slots.get_mut(offset)
    }

    /// A slot that must be there.
    pub(crate) fn slot(&self, offset: i64) -> &Slot {
        self.slots.get(offset).expect("queues and holders name only offsets with a slot")
    }

    pub(crate) fn slot_mut(&mut self, offset: i64) -> &mut Slot {
        self.slots.get_mut(offset).expect("queues and holders name only offsets with a slot")
    }

    pub(crate) fn insert(&mut self, offset: i64, slot: Slot) {
        self.slots.insert(offset, slot);
    }

    /// Unsettled records.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (i64, &Slot)> {
        self.slots.iter()
    }

    /// Slots in `first..=last`; empty where the range is none.
    pub(crate) fn range(&self, first: i64, last: i64) -> impl DoubleEndedIterator<Item = (i64, &Slot)> {
        self.slots.range(first, last)
    }

    /// A record is done: its slot goes.
    pub(crate) fn settle(&mut self, offset: i64) -> Option<Slot> {
        if offset >= self.start {
            self.settled.insert(offset, offset);
            self.moves |= offset == self.start || offset == self.scan;
        }
        self.slots.remove(offset)
    }

    /// A record loses its slot, but is not done: something else tells of it now.
    pub(crate) fn spill(&mut self, offset: i64) -> Option<Slot> {
        self.clean = self.clean.min(offset);
        self.slots.remove(offset)
    }

    /// Offsets that hold no record for a consumer: gaps, markers, aborted ones. There are no slots among them.
    pub(crate) fn settle_gap(&mut self, first: i64, last: i64) {
        let first = first.max(self.start);
        if first <= last {
            self.settled.insert(first, last);
            self.moves = true;
        }
    }

    /// Whether an offset is not done, as far as is known.
    pub(crate) fn is_unsettled(&self, offset: i64) -> bool {
        offset >= self.start && !self.settled.contains(offset)
    }

    /// Offsets of `first..=last` that are not done.
    pub(crate) fn unsettled_in(&self, first: i64, last: i64) -> i64 {
        let first = first.max(self.start);
        (last - first + 1).max(0) - self.settled.count_in(first, last)
    }

    /// Every record below `end` that is not done has a slot: offsets without one hold none any more. They are looked
    /// at once, from where this came to last. Says how many there were.
    pub(crate) fn settle_unslotted(&mut self, end: i64) -> i64 {
        let end = end.min(self.scan);
        let mut from = self.clean.max(self.start);
        if end <= from {
            return 0;
        }
        let found = self.unsettled_in(from, end - 1);
        let mut slots = 0;
        let mut gaps = Vec::new();
        for (offset, _) in self.slots.range(from, end - 1) {
            slots += 1;
            if from < offset {
                gaps.push((from, offset - 1));
            }
            from = offset + 1;
        }
        self.clean = end;
        if found > slots {
            gaps.push((from, end - 1));
            gaps.into_iter().for_each(|(first, last)| self.settle_gap(first, last));
        }
        found - slots
    }

    /// The scan has come to `to`; `whole` says that all that it found since has a slot or is settled.
    pub(crate) fn scanned_to(&mut self, to: i64, whole: bool) {
        if whole && self.clean >= self.scan {
            self.clean = self.clean.max(to);
        }
        self.scan = self.scan.max(to);
        self.moves = true;
    }

    /// Moves the start offset over what is done, and the scan offset over what needs no scan; says whether the
    /// start moved.
    pub(crate) fn advance(&mut self) -> bool {
        if !self.moves {
            return false;
        }
        let scan = self.settled.next_absent(self.scan);
        let whole = self.clean >= self.scan;
        self.scanned_to(scan, whole);
        self.moves = false;
        let start = self.settled.next_absent(self.start);
        if start <= self.start {
            return false;
        }
        self.start = start;
        self.settled.remove_below(start);
        true
    }

    /// The log begins at `at`: nothing below counts any more. Slots below must be gone already.
    pub(crate) fn start_at(&mut self, at: i64) {
        if at > self.start {
            let whole = self.clean >= self.scan;
            self.start = at;
            self.scanned_to(at, whole);
            self.acquired_end = self.acquired_end.max(at);
            self.settled.remove_below(at);
        }
        self.advance();
    }

    /// About how many bytes the slots take.
    pub(crate) fn slots_bytes(&self) -> u64 {
        self.slots.heap_bytes()
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.slots_bytes() + self.settled.heap_bytes()
    }
}
