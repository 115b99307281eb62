//! Which pages of the share state hold what: the part of them that stays in memory.
//!
//! Three things have pages: chunks of the settled set (named there), keys that wait long or are parked ([`super::resting`]), and lists
//! of keys of which later records were found while they rest. Page ids only ever rise.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::KeyHash;

use super::event::Wait;
use super::resting::Resting;
use crate::time::{Mono, Now};

/// About what a page of resting keys costs in memory, trees included.
const PAGE_COST_BYTES: u64 = 256;

/// When what is parked comes back by itself.
pub(crate) const NEVER: Mono = Mono(u64::MAX);

/// A page of resting keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestingPage {
    /// Its first wait ends then; [`NEVER`] where all in it is parked.
    pub(crate) due: Mono,
    /// Both clocks when its waits were looked at last: they are told by the wall clock, and end by the other one.
    pub(crate) seen: Now,
    /// No record of it lies before this offset.
    pub(crate) lowest: i64,
    /// Keys, and records without one.
    pub(crate) keys: u32,
    /// Those without one among them.
    pub(crate) keyless: u32,
    /// Those that are parked among both.
    pub(crate) parked: u32,
}

/// The pages of a share-partition.
#[derive(Debug, Default)]
pub(crate) struct PageTable {
    resting: BTreeMap<u64, RestingPage>,
    by_due: BTreeSet<(Mono, u64)>,
    by_lowest: BTreeSet<(i64, u64)>,
    /// Records without a key in them.
    keyless: usize,
    /// Parked keys, and parked records without one, in them.
    parked: usize,
    /// Being read back.
    pub(crate) reading: Option<u64>,
    /// Lists of marked keys, with their lengths.
    pub(crate) marks: Vec<(u64, u32)>,
    /// Keys that were marked since the last list was written.
    pub(crate) marked: Vec<KeyHash>,
    /// Pages that are not needed any more.
    dropped: Vec<u64>,
    id_next: u64,
}

impl PageTable {
    /// The id of a new page.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    /// Ids up to this one were given out.
    pub(crate) fn id_last(&self) -> u64 {
        self.id_next
    }

    /// As a snapshot says.
    pub(crate) fn set_id_last(&mut self, last: u64) {
        self.id_next = last;
    }

    pub(crate) fn add(&mut self, id: u64, page: RestingPage) {
        self.by_due.insert((page.due, id));
        self.by_lowest.insert((page.lowest, id));
        self.keyless += page.keyless as usize;
        self.parked += page.parked as usize;
        self.resting.insert(id, page);
    }

    /// A page has come back.
    pub(crate) fn remove(&mut self, id: u64) -> Option<RestingPage> {
        let page = self.resting.remove(&id)?;
        self.by_due.remove(&(page.due, id));
        self.by_lowest.remove(&(page.lowest, id));
        self.keyless -= page.keyless as usize;
        self.parked -= page.parked as usize;
        self.drop_page(id);
        Some(page)
    }

    pub(crate) fn drop_page(&mut self, id: u64) {
        self.dropped.push(id);
    }

    pub(crate) fn get(&self, id: u64) -> Option<&RestingPage> {
        self.resting.get(&id)
    }

    /// Pages of resting keys.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.resting.keys().copied()
    }

    /// Those of them behind one, ascending.
    pub(crate) fn ids_behind(&self, id: u64) -> impl Iterator<Item = u64> {
        self.resting.range(id + 1..).map(|page| *page.0)
    }

    /// When the next page is due, and which it is.
    pub(crate) fn first_due(&self) -> Option<(Mono, u64)> {
        self.by_due.first().copied().filter(|page| page.0 != NEVER)
    }

    /// The first page that is never due.
    pub(crate) fn first_parked(&self) -> Option<u64> {
        self.by_due.range((NEVER, 0)..).next().map(|page| page.1)
    }

    /// The lowest offset in a page.
    pub(crate) fn lowest(&self) -> Option<i64> {
        self.by_lowest.first().map(|page| page.0)
    }

    /// Records without a key that rest.
    pub(crate) fn keyless(&self) -> usize {
        self.keyless
    }

    /// The first of them that holds something before this offset.
    pub(crate) fn parked_below(&self, end: i64) -> Option<u64> {
        let mut below = self.by_lowest.range(..(end, 0)).map(|page| page.1);
        below.find(|id| self.resting.get(id).is_some_and(|page| page.due == NEVER))
    }

    /// Parked keys, and parked records without one, that rest.
    pub(crate) fn parked(&self) -> usize {
        self.parked
    }

    /// The log begins at `start`: pages that hold something before it are due at once, since keys may wait for what is
    /// gone.
    pub(crate) fn log_started(&mut self, start: i64) {
        let hit: Vec<u64> = self.by_lowest.range(..(start, 0)).map(|page| page.1).collect();
        for id in hit {
            if let Some(page) = self.resting.get_mut(&id) {
                self.by_due.remove(&(page.due, id));
                page.due = Mono(0);
                self.by_due.insert((page.due, id));
            }
        }
    }

    /// Everything goes.
    pub(crate) fn clear(&mut self) {
        for id in self.resting.keys().copied().collect::<Vec<_>>() {
            self.remove(id);
        }
        self.dropped.extend(self.marks.drain(..).map(|list| list.0));
        self.marked.clear();
        self.reading = None;
    }

    /// Pages that are not needed any more, since this was asked last.
    pub(crate) fn take_dropped(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dropped)
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.resting.len() as u64 * PAGE_COST_BYTES + self.marked.capacity() as u64 * 8
    }
}

impl RestingPage {
    /// What memory keeps of a page.
    pub(crate) fn of(resting: &[Resting], now: Now) -> Self {
        let parked = resting.iter().filter(|one| one.parked.is_some()).count();
        let others = resting.iter().filter(|one| one.parked.is_none()).flat_map(|one| &one.records);
        let first_end = others.filter_map(|record| record.wait).map(|wait| end_of(wait, now)).min();
        let due = if parked > 0 && parked == resting.len() { NEVER } else { first_end.unwrap_or(now.mono) };
        Self {
            due,
            seen: now,
            lowest: resting.iter().map(Resting::lowest).min().unwrap_or(i64::MAX),
            keys: resting.len() as u32,
            keyless: resting.iter().filter(|one| one.key.is_none()).count() as u32,
            parked: parked as u32,
        }
    }
}

/// When a wait ends that was looked at at this moment: the wall clock may have stepped before, so it is never over
/// before that, nor later than the whole of it.
pub(crate) fn end_of(wait: Wait, seen: Now) -> Mono {
    seen.mono + super::retry::left(wait, seen)
}
