//! Key queues: whose turn it is.
//!
//! Per key: the undelivered offsets in order (a list through the window's slots), and the records of it that are
//! in members' hands (its lease). Derived from them are three ready sets: `free` (anyone may take, or where assignment
//! is sticky the key's home), `tired` (as
//! free, but the record failed often: it goes out now and then while others wait), and `own` (only the member that
//! holds the key's lease may take). What stands in none of them waits for an event that calls [`KeyQueue::refresh`].
//! Keyless records, and every record of a group without order, are keys of their own: they stand in `free` or
//! `tired` by themselves. A key that was stopped stands in none of them.
//!
//! A key that is too long for the window has a span besides: its records behind the queue, which have no slots. A key that
//! rests in a page of the share state is in the set of those: nothing of it goes out before it has come back.
//!
//! Invariants: a key with records out stands in `own` or nowhere. A key whose records out have two holders (the
//! order was switched on meanwhile) stands nowhere. No offset of a key is ready while a lower one is recalled,
//! or while one is in the key's span.

mod chain;
mod keys;
mod members;
mod ranges;
mod shelves;

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::KeyHash;

use self::keys::{Keys, Lent};
use self::shelves::Shelves;
use super::homes::{Home, Homes};
use super::key_set::KeySet;
use super::offset_set::OffsetSet;
use super::spans::Spans;
use super::window::{NO_ENTRY, NONE, RecordState, Slot, Window};

/// About what a key costs, tree and ready sets included; measured by `benches/tests/share_memory.rs`.
const KEY_BYTES: u64 = 136;
/// A key with a long span gets more of its records when fewer than this many are left.
const QUEUED_LOW: u32 = 32;
/// A key with more records than this in its queue does not go to rest.
const AT_REST_MAX: u32 = 4_096;
/// A span with fewer records is short: its key gets them when it has nothing left.
const LONG_FROM: u64 = 64;
/// So many keys are looked at ahead at once: what is seen of them fits the second cache.
const FORESEEN_MAX: usize = 1_024;
/// A record that failed this often steps back behind those that did not.
const TIRED_FROM: u16 = 3;
/// While others are ready, one grant in this many may be a tired one.
const TIRED_ONE_IN: u32 = 16;

/// The queues of a share-partition.
#[derive(Debug)]
pub(crate) struct KeyQueue {
    keys: Keys,
    free: Shelves<Home>,
    tired: Shelves<Home>,
    own: Shelves<u32>,
    keyless: OffsetSet,
    /// Keys that do not hand out what they have.
    halted: BTreeMap<KeyHash, Halt>,
    /// Heads of followed keys with nothing out.
    following: OffsetSet,
    loads: BTreeMap<u32, Load>,
    /// Keys (not keyless records) in `free` and `tired`.
    ready_keys: usize,
    /// Keys with records out.
    leased_keys: usize,
    /// Keys whose next record waits for its time.
    waiting_keys: usize,
    tired_credit: u32,
    spans: Spans,
    resting: KeySet,
    /// Where assignment is sticky.
    homes: Option<Arc<Homes>>,
}

impl Default for KeyQueue {
    /// The first tired record need not wait.
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            free: Shelves::default(),
            tired: Shelves::default(),
            own: Shelves::default(),
            keyless: OffsetSet::default(),
            halted: BTreeMap::new(),
            following: OffsetSet::default(),
            loads: BTreeMap::new(),
            ready_keys: 0,
            leased_keys: 0,
            waiting_keys: 0,
            spans: Spans::default(),
            resting: KeySet::default(),
            homes: None,
            tired_credit: TIRED_ONE_IN,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// Nowhere: its next record waits for its time.
    Waiting,
    Free(Home, i64),
    Tired(Home, i64),
    Own(u32, i64),
    Following(i64),
}

/// What a key does not hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Anything.
    All,
    /// Anything: it goes to the dead-letter topic.
    Follows,
    /// Records from this offset on.
    From(i64),
}

/// What a member holds of ordered keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Keys.
    pub(crate) keys: usize,
    /// Records, recalled ones included.
    pub(crate) records: usize,
    /// How many records of one key it may hold.
    per_key_max: usize,
    home: Home,
}

/// Where a record was found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Free,
    Tired,
    Own,
    Keyless,
}

/// What a member may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Keys that it does not hold.
    pub(crate) keys: bool,
    /// More of the keys that it holds.
    pub(crate) own: bool,
}

/// Where one fetch has come to in the ready sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    free: i64,
    tired: i64,
    own: i64,
    keyless: i64,
}

impl Cursor {
    /// Not this one: go on behind it.
    pub(crate) fn pass(&mut self, offset: i64, source: Source) {
        match source {
            Source::Free => self.free = offset + 1,
            Source::Tired => self.tired = offset + 1,
            Source::Own => self.own = offset + 1,
            Source::Keyless => self.keyless = offset + 1,
        }
    }
}

impl KeyQueue {
    /// The oldest record that `holder`, who has this home, may take, at or behind the cursor.
    pub(crate) fn peek(&self, holder: u32, home: Home, cursor: &Cursor, open: Open) -> Option<(i64, Source)> {
        let own = if open.own { self.own.next(holder, cursor.own) } else { None };
        let free = if open.keys { self.free.next(home, cursor.free) } else { None };
        let rested = free.is_none() || self.tired_credit >= TIRED_ONE_IN;
        let tired = if rested && open.keys { self.tired.next(home, cursor.tired) } else { None };
        let keyless = self.keyless.next(cursor.keyless);
        [
            own.map(|at| (at, Source::Own)),
            free.map(|at| (at, Source::Free)),
            tired.map(|at| (at, Source::Tired)),
            keyless.map(|at| (at, Source::Keyless)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|found| found.0)
    }

    /// Everything that `holder`, who has this home, could take now, in no order.
    pub(crate) fn ready_for(&self, holder: u32, home: Home) -> impl Iterator<Item = i64> {
        self.own
            .iter(holder)
            .chain(self.free.iter(home))
            .chain(self.tired.iter(home))
            .chain(self.keyless.iter())
    }

    /// The first record that keeps no order, at or behind `from`.
    pub(crate) fn peek_keyless(&self, from: i64) -> Option<i64> {
        self.keyless.next(from)
    }

    /// A record was taken: keeps the balance between rested and tired ones.
    pub(crate) fn took(&mut self, source: Source) {
        match source {
            Source::Tired if !self.free.is_empty() => self.tired_credit = 0,
            Source::Tired => {}
            Source::Free | Source::Own | Source::Keyless => {
                self.tired_credit = (self.tired_credit + 1).min(TIRED_ONE_IN);
            }
        }
    }

    /// Whether it is not the turn of tired ones: others are ready, and took fewer than their share since the last.
    pub(crate) fn tired_wait(&self) -> bool {
        !self.free.is_empty() && self.tired_credit < TIRED_ONE_IN
    }

    /// Whether there is anything that someone may take.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_len() > 0
    }

    /// Keys and keyless records that any member may take. What has its home with one is for that one alone.
    pub(crate) fn open_len(&self) -> (usize, usize) {
        let keys = if self.homes.is_some() { 0 } else { self.free.len() + self.tired.len() };
        (keys, self.keyless.len())
    }

    /// Whether there is anything that any member may take.
    pub(crate) fn is_open(&self) -> bool {
        !(self.free.is_empty() && self.tired.is_empty() && self.keyless.is_empty())
    }

    /// Whether a key has nothing more to hand out before its span.
    pub(crate) fn is_starved(&self, key: KeyHash) -> bool {
        let span = self.spans.get(key).map_or(i64::MAX, |span| span.first);
        self.keys.find(key).is_none_or(|entry| entry.head == NONE || span <= entry.head)
    }

    /// Records that could go out now, about.
    pub(crate) fn ready_len(&self) -> usize {
        self.free.len() + self.tired.len() + self.own.len() + self.keyless.len()
    }

    /// Keys that are ready for anyone.
    pub(crate) fn ready_keys(&self) -> usize {
        self.ready_keys
    }

    /// Keys with records out.
    pub(crate) fn leased_keys(&self) -> usize {
        self.leased_keys
    }

    /// Keys whose next record waits for its time.
    pub(crate) fn waiting_keys(&self) -> usize {
        self.waiting_keys
    }

    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
    }

    pub(crate) fn spans_mut(&mut self) -> &mut Spans {
        &mut self.spans
    }

    /// Keys that rest in pages.
    pub(crate) fn resting(&self) -> &KeySet {
        &self.resting
    }

    pub(crate) fn resting_mut(&mut self) -> &mut KeySet {
        &mut self.resting
    }

    /// Another order: every queue begins anew, spans and pages stay.
    pub(crate) fn clear(&mut self) {
        let (mut spans, resting) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.resting));
        spans.forget_hunger();
        *self = Self { spans, resting, homes: self.homes.take(), ..Self::default() };
    }

    /// Every key with a span has a queue, if an empty one.
    pub(crate) fn queue_spans(&mut self, window: &Window) {
        for key in self.spans.iter().map(|span| span.0).collect::<Vec<_>>() {
            self.queue_span(window, key);
        }
    }

    /// A key with a span has a queue, if an empty one.
    pub(crate) fn queue_span(&mut self, window: &Window, key: KeyHash) {
        self.entry(NO_ENTRY, key);
        self.span_changed(window, key);
    }

    /// The span of `key` has changed, or it does not rest any more.
    pub(crate) fn span_changed(&mut self, window: &Window, key: KeyHash) {
        let (spilled, resting) = (self.spans.contains(key), self.resting.contains(key));
        if let Some(number) = self.keys.number(key) {
            let entry = self.keys.get_mut(number);
            (entry.spilled, entry.resting) = (spilled, resting);
            self.refresh_entry(window, number);
        }
    }

    /// A record of `key` was found that has no state yet; with `bound` others of its key in the queue it is only counted.
    /// Else the number that its key has, or will get.
    pub(crate) fn counted_or_number(
        &mut self,
        window: &Window,
        key: KeyHash,
        offset: i64,
        bound: u32,
    ) -> Option<u32> {
        let number = self.keys.number(key);
        let full = || number.is_some_and(|number| self.keys.get(number).len >= bound);
        if !self.spans.contains(key) && !full() {
            return Some(number.unwrap_or(NO_ENTRY));
        }
        self.spans.add(key, offset, offset, 1);
        self.span_changed(window, key);
        None
    }

    /// What is known of the keys of these records is about to be needed, one after another: looks at all of it at once,
    /// since memory serves many loads in the time of one.
    pub(crate) fn foresee<'a>(&self, window: &Window, slots: impl Iterator<Item = &'a Slot>) {
        let keys = slots.take(FORESEEN_MAX).filter_map(|slot| self.keys.peek(slot.entry));
        let heads = keys.filter_map(|key| window.get(key.head));
        std::hint::black_box(heads.fold(0, |sum, slot| sum ^ slot.next));
    }

    /// As [`KeyQueue::foresee`], of what a member with this home may take from the cursor on.
    pub(crate) fn foresee_free(&self, window: &Window, home: Home, max: usize) {
        self.foresee(window, self.free.iter(home).take(max).filter_map(|offset| window.get(offset)));
    }

    /// The queued records of a key that may rest in a page: nothing of it is in members' hands, its next record waits
    /// for its time or goes to nobody, and none of its span lies before that. A key without a queue has none.
    pub(crate) fn at_rest(&self, window: &Window, key: KeyHash) -> Option<Vec<i64>> {
        let Some(entry) = self.keys.find(key) else { return Some(Vec::new()) };
        let looks = self.spans.get(key).is_some_and(|span| span.finding.is_some() || span.first < entry.head);
        let is_still = matches!(entry.place, Place::Waiting | Place::Nowhere);
        if !is_still || !entry.out.is_empty() || looks || entry.len > AT_REST_MAX {
            return None;
        }
        let mut queued = Vec::with_capacity(entry.len as usize);
        let mut at = entry.head;
        while at != NONE {
            queued.push(at);
            at = window.slot(at).next;
        }
        Some(queued)
    }

    /// A key goes to rest in a page: its queue and its span are forgotten here. Says from where on the span had records.
    pub(crate) fn rest(&mut self, key: KeyHash) -> Option<i64> {
        let entry = self.keys.number(key).and_then(|number| self.keys.remove(number));
        if entry.is_some_and(|entry| entry.place == Place::Waiting) {
            self.waiting_keys -= 1;
        }
        self.resting.insert(key);
        self.spans.remove(key).map(|span| span.first)
    }

    /// The number of a key, which gets a queue if it has none.
    fn entry(&mut self, hint: u32, key: KeyHash) -> u32 {
        let (spans, resting) = (&self.spans, &self.resting);
        self.keys.number_or_add(hint, key, |new| {
            (new.spilled, new.resting) = (spans.contains(key), resting.contains(key));
        })
    }

    /// The number of the key of a record with a slot.
    fn number_of(&self, window: &Window, key: KeyHash, offset: i64) -> Option<u32> {
        let hint = window.get(offset).map_or(NO_ENTRY, |slot| slot.entry);
        self.keys.number_from(hint, key)
    }

    /// A record that keeps no order is to be delivered.
    pub(crate) fn push_keyless(&mut self, window: &Window, offset: i64) {
        if window.slot(offset).state == RecordState::Queued {
            self.keyless.insert(offset);
        }
    }

    /// A record that keeps no order is not to be delivered now.
    pub(crate) fn remove_keyless(&mut self, offset: i64) {
        self.keyless.remove(offset);
    }

    /// A record of `key` is to be delivered: newly found, or back.
    pub(crate) fn push(&mut self, window: &mut Window, key: KeyHash, offset: i64) {
        let slot = window.slot_mut(offset);
        let number = self.entry(slot.entry, key);
        let entry = self.keys.get_mut(number);
        (slot.entry, slot.next) = (number, NONE);
        entry.len += 1;
        if entry.head == NONE {
            (entry.head, entry.tail) = (offset, offset);
        } else if entry.tail < offset {
            window.slot_mut(entry.tail).next = offset;
            entry.tail = offset;
        } else if offset < entry.head {
            slot.next = entry.head;
            entry.head = offset;
        } else {
            // Behind others that came back: those in front are never more than a key may have in flight, or than one
            // look-up brought.
            let mut before = entry.head;
            while window.slot(before).next < offset {
                before = window.slot(before).next;
            }
            let behind = window.slot(before).next;
            window.slot_mut(offset).next = behind;
            window.slot_mut(before).next = offset;
        }
        self.refresh_entry(window, number);
    }

    /// A queued record of `key` leaves the queue.
    pub(crate) fn remove(&mut self, window: &mut Window, key: KeyHash, offset: i64) {
        if let Some(number) = self.unlink(window, key, offset) {
            self.refresh_entry(window, number);
        }
    }

    /// A queued record of `key` goes into `holder`'s hands.
    pub(crate) fn grant(&mut self, window: &mut Window, key: KeyHash, offset: i64, holder: u32) {
        self.unlink(window, key, offset);
        self.lend(window, key, offset, holder, false);
    }

    /// Takes a record out of its key's list; grants take the head, in which case this is one step.
    fn unlink(&mut self, window: &mut Window, key: KeyHash, offset: i64) -> Option<u32> {
        let slot = window.slot_mut(offset);
        let number = self.keys.number_from(slot.entry, key)?;
        let entry = self.keys.get_mut(number);
        let next = slot.next;
        if entry.head == offset {
            slot.next = NONE;
            entry.head = next;
            if next == NONE {
                entry.tail = NONE;
            }
        } else {
            let mut before = entry.head;
            while before != NONE && window.slot(before).next != offset {
                before = window.slot(before).next;
            }
            if before == NONE {
                return None;
            }
            window.slot_mut(before).next = next;
            window.slot_mut(offset).next = NONE;
            if entry.tail == offset {
                entry.tail = before;
            }
        }
        entry.len -= 1;
        Some(number)
    }

    /// A record of `key` is in `holder`'s hands.
    pub(crate) fn lend(
        &mut self,
        window: &mut Window,
        key: KeyHash,
        offset: i64,
        holder: u32,
        recalled: bool,
    ) {
        let slot = window.slot_mut(offset);
        let number = self.entry(slot.entry, key);
        slot.entry = number;
        let entry = self.keys.get_mut(number);
        let load = self.loads.entry(holder).or_default();
        load.records += 1;
        if entry.out.is_empty() {
            entry.lessee = holder;
            load.keys += 1;
            self.leased_keys += 1;
        }
        let index = entry.out.partition_point(|other| other.offset < offset);
        entry.out.insert(index, Lent { offset, holder, recalled });
        self.refresh_entry(window, number);
    }

    /// A record in a member's hands is to be delivered again.
    pub(crate) fn recall(&mut self, window: &Window, key: KeyHash, offset: i64) {
        let Some(number) = self.number_of(window, key, offset) else { return };
        if let Some(lent) = self.keys.get_mut(number).out.iter_mut().find(|lent| lent.offset == offset) {
            lent.recalled = true;
            self.refresh_entry(window, number);
        }
    }

    /// A record has left its holder's hands.
    pub(crate) fn take_back(&mut self, window: &Window, key: KeyHash, offset: i64, holder: u32) {
        let Some(number) = self.number_of(window, key, offset) else { return };
        let entry = self.keys.get_mut(number);
        let Some(index) = entry.out.iter().position(|lent| lent.offset == offset) else { return };
        entry.out.remove(index);
        if let Some(load) = self.loads.get_mut(&holder) {
            load.records -= 1;
        }
        if entry.out.is_empty() {
            if let Some(load) = self.loads.get_mut(&entry.lessee) {
                load.keys -= 1;
            }
            self.leased_keys -= 1;
        }
        self.refresh_entry(window, number);
    }

    /// The first queued record of `key`.
    pub(crate) fn head(&self, key: KeyHash) -> Option<i64> {
        self.keys.find(key).map(|entry| entry.head).filter(|&head| head != NONE)
    }

    /// The first record of `key` that is to be delivered, as far as is known: queued, or in its span.
    pub(crate) fn first(&self, key: KeyHash) -> Option<i64> {
        self.head(key).into_iter().chain(self.spans.get(key).map(|span| span.first)).min()
    }

    /// Held records of `key` behind `offset`, ascending.
    pub(crate) fn held_behind(&self, key: KeyHash, offset: i64) -> Vec<i64> {
        let Some(entry) = self.keys.find(key) else { return Vec::new() };
        entry.held().filter(|&held| held > offset).collect()
    }

    /// The first record of `key` in members' hands, and whether it was recalled.
    pub(crate) fn first_out(&self, key: KeyHash) -> Option<(i64, bool)> {
        let first = self.keys.find(key)?.out.first()?;
        Some((first.offset, first.recalled))
    }

    /// What `key` does not hand out from now on; `None`: it hands out everything.
    pub(crate) fn halt(&mut self, window: &Window, key: KeyHash, halt: Option<Halt>) {
        let before = match halt {
            Some(halt) => self.halted.insert(key, halt),
            None => self.halted.remove(&key),
        };
        if before != halt {
            self.refresh(window, key);
        }
    }

    /// Whether `key` holds back all of its records.
    pub(crate) fn hands_out_nothing(&self, key: KeyHash) -> bool {
        self.halted.get(&key) == Some(&Halt::All)
    }

    /// The oldest record that a followed key has next, with nothing of the key out.
    pub(crate) fn first_following(&self) -> Option<i64> {
        self.following.next(i64::MIN)
    }

    /// Something about `key` has changed: finds its place among the ready ones anew.
    pub(crate) fn refresh(&mut self, window: &Window, key: KeyHash) {
        if let Some(number) = self.keys.number(key) {
            self.refresh_entry(window, number);
        }
    }

    fn refresh_entry(&mut self, window: &Window, number: u32) {
        let entry = self.keys.get_mut(number);
        let key = entry.hash;
        let span = if entry.spilled { self.spans.get(key) } else { None };
        let behind = span.map_or(i64::MAX, |span| span.first);
        let home = self.homes.as_ref().map_or(Home::ANYWHERE, |homes| homes.of(key));
        let place = match self.halted.get(&key) {
            _ if entry.resting => Place::Nowhere,
            None => place_of(window, entry, home, &self.loads, behind),
            Some(Halt::From(at)) if entry.head < *at => place_of(window, entry, home, &self.loads, behind),
            Some(Halt::Follows) if entry.head < behind && follows_now(window, entry) => {
                Place::Following(entry.head)
            }
            Some(_) => Place::Nowhere,
        };
        if let Some(span) = span {
            let low = if span.count < LONG_FROM { 1 } else { QUEUED_LOW };
            let passed = entry.head == NONE || behind <= entry.head;
            let hungry = passed || (entry.len < low && place != Place::Waiting);
            let hungry = hungry && span.finding.is_none() && !entry.resting;
            self.spans.set_hungry(key, hungry);
        }
        if place != entry.place {
            let old = std::mem::replace(&mut entry.place, place);
            match old {
                Place::Nowhere => {}
                Place::Waiting => self.waiting_keys -= 1,
                Place::Free(home, at) => {
                    self.free.remove(home, at);
                    self.ready_keys -= 1;
                }
                Place::Tired(home, at) => {
                    self.tired.remove(home, at);
                    self.ready_keys -= 1;
                }
                Place::Own(holder, at) => self.own.remove(holder, at),
                Place::Following(at) => {
                    self.following.remove(at);
                }
            }
            match place {
                Place::Nowhere => {}
                Place::Waiting => self.waiting_keys += 1,
                Place::Free(home, at) => {
                    self.free.insert(home, at);
                    self.ready_keys += 1;
                }
                Place::Tired(home, at) => {
                    self.tired.insert(home, at);
                    self.ready_keys += 1;
                }
                Place::Own(holder, at) => self.own.insert(holder, at),
                Place::Following(at) => {
                    self.following.insert(at);
                }
            }
        }
        if entry.head == NONE && entry.out.is_empty() && !entry.spilled {
            self.keys.remove(number);
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.queued_bytes() + self.spans.heap_bytes() + self.resting.heap_bytes()
    }

    /// Of these, what queues take.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.keys.heap_bytes() + self.keyless.heap_bytes()
    }
}

/// Whether the next record of a followed key may go to the dead-letter topic.
fn follows_now(window: &Window, entry: &keys::Key) -> bool {
    entry.head != NONE && entry.out.is_empty() && window.slot(entry.head).state != RecordState::Stopped
}

/// Where a key stands whose span begins at `span`.
fn place_of(window: &Window, entry: &keys::Key, home: Home, loads: &BTreeMap<u32, Load>, span: i64) -> Place {
    if entry.head == NONE {
        return Place::Nowhere;
    }
    let head = window.slot(entry.head);
    if head.state == RecordState::Delayed {
        return Place::Waiting;
    }
    if head.state != RecordState::Queued || span <= entry.head {
        return Place::Nowhere;
    }
    let Some(first) = entry.out.first() else {
        return if head.count >= TIRED_FROM {
            Place::Tired(home, entry.head)
        } else {
            Place::Free(home, entry.head)
        };
    };
    let holder = first.holder;
    let load = loads.get(&holder);
    let room = entry.out.len() < load.map_or(1, |load| load.per_key_max.max(1));
    let at_home = load.is_none_or(|load| load.home == home);
    // Nobody gets what lies behind a recalled record, or more of a key that two hold.
    let goes_on = |lent: &Lent| lent.holder == holder && !(lent.recalled && lent.offset < entry.head);
    if room && at_home && entry.out.iter().all(goes_on) {
        Place::Own(holder, entry.head)
    } else {
        Place::Nowhere
    }
}
