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

mod members;
mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::KeyHash;

use super::homes::{Home, Homes};
use super::key_set::KeySet;
use super::spans::Spans;
use super::window::{NONE, RecordState, Window};

/// About what a key costs, tree and ready sets included; measured by `benches/tests/share_memory.rs`.
const KEY_BYTES: u64 = 136;
/// About what a ready record without a key costs in its set.
const KEYLESS_BYTES: u64 = 17;
/// A key with a long span gets more of its records when fewer than this many are left.
const QUEUED_LOW: u32 = 32;
/// A key with more records than this in its queue does not go to rest.
const AT_REST_MAX: u32 = 4_096;
/// A span with fewer records is short: its key gets them when it has nothing left.
const LONG_FROM: u64 = 64;
/// A record that failed this often steps back behind those that did not.
const TIRED_FROM: u16 = 3;
/// While others are ready, one grant in this many may be a tired one.
const TIRED_ONE_IN: u32 = 16;

/// The queues of a share-partition.
#[derive(Debug)]
pub(crate) struct KeyQueue {
    keys: BTreeMap<KeyHash, Key>,
    free: BTreeSet<(Home, i64)>,
    tired: BTreeSet<(Home, i64)>,
    own: BTreeSet<(u32, i64)>,
    keyless: BTreeSet<i64>,
    /// Keys that do not hand out what they have.
    halted: BTreeMap<KeyHash, Halt>,
    /// Heads of followed keys with nothing out.
    following: BTreeSet<i64>,
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
            keys: BTreeMap::new(),
            free: BTreeSet::new(),
            tired: BTreeSet::new(),
            own: BTreeSet::new(),
            keyless: BTreeSet::new(),
            halted: BTreeMap::new(),
            following: BTreeSet::new(),
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

#[derive(Debug)]
struct Key {
    head: i64,
    tail: i64,
    place: Place,
    out: Option<Box<Out>>,
    /// Records in its queue.
    len: u32,
    /// It has a span.
    spilled: bool,
    /// It rests in a page.
    resting: bool,
}

/// The records of a key that are in members' hands, ascending, with their holders.
#[derive(Debug, Default)]
struct Out {
    held: Vec<(i64, u32)>,
    recalled: Vec<(i64, u32)>,
    /// Whose load this key counts in.
    lessee: u32,
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
        let own = self.own.range((holder, cursor.own)..=(holder, i64::MAX)).next().filter(|_| open.own);
        let free = self.free.range((home, cursor.free)..=(home, i64::MAX)).next().filter(|_| open.keys);
        let rested = free.is_none() || self.tired_credit >= TIRED_ONE_IN;
        let tired =
            self.tired.range((home, cursor.tired)..=(home, i64::MAX)).next().filter(|_| rested && open.keys);
        let keyless = self.keyless.range(cursor.keyless..).next();
        [
            own.map(|own| (own.1, Source::Own)),
            free.map(|free| (free.1, Source::Free)),
            tired.map(|tired| (tired.1, Source::Tired)),
            keyless.map(|&at| (at, Source::Keyless)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|found| found.0)
    }

    /// Everything that `holder`, who has this home, could take now, in no order.
    pub(crate) fn ready_for(&self, holder: u32, home: Home) -> impl Iterator<Item = i64> {
        let own = self.own.range((holder, i64::MIN)..=(holder, i64::MAX)).map(|own| own.1);
        let bounds = (home, i64::MIN)..=(home, i64::MAX);
        let keyed = self.free.range(bounds.clone()).chain(self.tired.range(bounds)).map(|ready| ready.1);
        own.chain(keyed).chain(self.keyless.iter().copied())
    }

    /// The first record that keeps no order, at or behind `from`.
    pub(crate) fn peek_keyless(&self, from: i64) -> Option<i64> {
        self.keyless.range(from..).next().copied()
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

    /// Whether there is anything that someone may take.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_len() > 0
    }

    /// Whether there is anything that any member may take.
    pub(crate) fn is_open(&self) -> bool {
        !(self.free.is_empty() && self.tired.is_empty() && self.keyless.is_empty())
    }

    /// Whether a key has nothing more to hand out before its span.
    pub(crate) fn is_starved(&self, key: KeyHash) -> bool {
        let span = self.spans.get(key).map_or(i64::MAX, |span| span.first);
        self.keys.get(&key).is_none_or(|entry| entry.head == NONE || span <= entry.head)
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
        self.entry(key);
        self.span_changed(window, key);
    }

    /// The span of `key` has changed, or it does not rest any more.
    pub(crate) fn span_changed(&mut self, window: &Window, key: KeyHash) {
        let (spilled, resting) = (self.spans.contains(key), self.resting.contains(key));
        if let Some(entry) = self.keys.get_mut(&key) {
            (entry.spilled, entry.resting) = (spilled, resting);
            self.refresh(window, key);
        }
    }

    /// A record of `key` was found that has no state yet; with `bound` others of its key in the queue it is only counted.
    /// Says whether it was.
    pub(crate) fn counts_only(&mut self, window: &Window, key: KeyHash, offset: i64, bound: u32) -> bool {
        let full = || self.keys.get(&key).is_some_and(|entry| entry.len >= bound);
        if !self.spans.contains(key) && !full() {
            return false;
        }
        self.spans.add(key, offset, offset, 1);
        self.span_changed(window, key);
        true
    }

    /// The queued records of a key that may rest in a page: nothing of it is in members' hands, its next record waits
    /// for its time, and none of its span lies before that.
    pub(crate) fn at_rest(&self, window: &Window, key: KeyHash) -> Option<Vec<i64>> {
        let entry = self.keys.get(&key)?;
        let looks = self.spans.get(key).is_some_and(|span| span.finding.is_some() || span.first < entry.head);
        if entry.place != Place::Waiting || entry.out.is_some() || looks || entry.len > AT_REST_MAX {
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
        if self.keys.remove(&key).is_some_and(|entry| entry.place == Place::Waiting) {
            self.waiting_keys -= 1;
        }
        self.resting.insert(key);
        self.spans.remove(key).map(|span| span.first)
    }

    fn entry(&mut self, key: KeyHash) -> &mut Key {
        let (spans, resting) = (&self.spans, &self.resting);
        self.keys.entry(key).or_insert_with(|| Key {
            head: NONE,
            tail: NONE,
            place: Place::Nowhere,
            out: None,
            len: 0,
            spilled: spans.contains(key),
            resting: resting.contains(key),
        })
    }

    /// A record that keeps no order is to be delivered.
    pub(crate) fn push_keyless(&mut self, window: &Window, offset: i64) {
        if window.slot(offset).state == RecordState::Queued {
            self.keyless.insert(offset);
        }
    }

    /// A record that keeps no order is not to be delivered now.
    pub(crate) fn remove_keyless(&mut self, offset: i64) {
        self.keyless.remove(&offset);
    }

    /// A record of `key` is to be delivered: newly found, or back.
    pub(crate) fn push(&mut self, window: &mut Window, key: KeyHash, offset: i64) {
        let entry = self.entry(key);
        entry.len += 1;
        if entry.head == NONE {
            (entry.head, entry.tail) = (offset, offset);
            window.slot_mut(offset).next = NONE;
        } else if entry.tail < offset {
            window.slot_mut(entry.tail).next = offset;
            window.slot_mut(offset).next = NONE;
            entry.tail = offset;
        } else if offset < entry.head {
            window.slot_mut(offset).next = entry.head;
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
        self.refresh(window, key);
    }

    /// A queued record of `key` leaves the queue; grants take the head, in which case this is one step.
    pub(crate) fn remove(&mut self, window: &mut Window, key: KeyHash, offset: i64) {
        let Some(entry) = self.keys.get_mut(&key) else { return };
        let next = window.slot(offset).next;
        if entry.head == offset {
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
                return;
            }
            window.slot_mut(before).next = next;
            if entry.tail == offset {
                entry.tail = before;
            }
        }
        entry.len -= 1;
        window.slot_mut(offset).next = NONE;
        self.refresh(window, key);
    }

    /// A record of `key` is in `holder`'s hands.
    pub(crate) fn lend(&mut self, window: &Window, key: KeyHash, offset: i64, holder: u32, recalled: bool) {
        let leased = &mut self.entry(key).out;
        let is_new = leased.is_none();
        let out = leased.get_or_insert_with(|| Box::new(Out { lessee: holder, ..Out::default() }));
        let list = if recalled { &mut out.recalled } else { &mut out.held };
        insert_sorted(list, (offset, holder));
        let load = self.loads.entry(holder).or_default();
        load.records += 1;
        load.keys += usize::from(is_new);
        self.leased_keys += usize::from(is_new);
        self.refresh(window, key);
    }

    /// A record in a member's hands is to be delivered again.
    pub(crate) fn recall(&mut self, window: &Window, key: KeyHash, offset: i64) {
        if let Some(out) = self.keys.get_mut(&key).and_then(|entry| entry.out.as_mut())
            && let Ok(index) = out.held.binary_search_by_key(&offset, |held| held.0)
        {
            let held = out.held.remove(index);
            insert_sorted(&mut out.recalled, held);
            self.refresh(window, key);
        }
    }

    /// A record has left its holder's hands.
    pub(crate) fn take_back(&mut self, window: &Window, key: KeyHash, offset: i64, holder: u32) {
        let Some(entry) = self.keys.get_mut(&key) else { return };
        let Some(out) = entry.out.as_mut() else { return };
        out.held.retain(|held| held.0 != offset);
        out.recalled.retain(|recalled| recalled.0 != offset);
        if let Some(load) = self.loads.get_mut(&holder) {
            load.records -= 1;
        }
        if out.held.is_empty() && out.recalled.is_empty() {
            if let Some(load) = self.loads.get_mut(&out.lessee) {
                load.keys -= 1;
            }
            self.leased_keys -= 1;
            entry.out = None;
        }
        self.refresh(window, key);
    }

    /// The first queued record of `key`.
    pub(crate) fn head(&self, key: KeyHash) -> Option<i64> {
        self.keys.get(&key).map(|entry| entry.head).filter(|&head| head != NONE)
    }

    /// The first record of `key` that is to be delivered, as far as is known: queued, or in its span.
    pub(crate) fn first(&self, key: KeyHash) -> Option<i64> {
        self.head(key).into_iter().chain(self.spans.get(key).map(|span| span.first)).min()
    }

    /// Held records of `key` behind `offset`, ascending.
    pub(crate) fn held_behind(&self, key: KeyHash, offset: i64) -> Vec<i64> {
        let held = self.keys.get(&key).and_then(|entry| entry.out.as_ref()).map_or(&[][..], |out| &out.held);
        let from = held.partition_point(|held| held.0 <= offset);
        held[from..].iter().map(|held| held.0).collect()
    }

    /// The first record of `key` in members' hands, and whether it was recalled.
    pub(crate) fn first_out(&self, key: KeyHash) -> Option<(i64, bool)> {
        let out = self.keys.get(&key)?.out.as_ref()?;
        let held = out.held.first().map(|held| (held.0, false));
        held.into_iter().chain(out.recalled.first().map(|recalled| (recalled.0, true))).min()
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
        self.following.first().copied()
    }

    /// The first queued record of `key` in front of `offset` that is to be delivered: what was stopped recalls nothing.
    pub(crate) fn first_waiting(&self, window: &Window, key: KeyHash, offset: i64) -> Option<i64> {
        let next = |&at: &i64| Some(window.slot(at).next).filter(|&next| next != NONE);
        std::iter::successors(self.head(key), next)
            .take_while(|&at| at < offset)
            .find(|&at| window.slot(at).state != RecordState::Stopped)
    }

    /// The first queued records of `key` that are not stopped, at most `max`.
    pub(crate) fn chain(&self, window: &Window, key: KeyHash, max: usize) -> Vec<i64> {
        let head = self.head(key);
        let span = self.spans.get(key).map_or(i64::MAX, |span| span.first);
        let next = |&offset: &i64| Some(window.slot(offset).next).filter(|&next| next != NONE);
        std::iter::successors(head, next)
            .take_while(|&offset| window.slot(offset).state != RecordState::Stopped && offset < span)
            .take(max)
            .collect()
    }

    /// Something about `key` has changed: finds its place among the ready ones anew.
    pub(crate) fn refresh(&mut self, window: &Window, key: KeyHash) {
        let Some(entry) = self.keys.get_mut(&key) else { return };
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
                    self.free.remove(&(home, at));
                    self.ready_keys -= 1;
                }
                Place::Tired(home, at) => {
                    self.tired.remove(&(home, at));
                    self.ready_keys -= 1;
                }
                Place::Own(holder, at) => {
                    self.own.remove(&(holder, at));
                }
                Place::Following(at) => {
                    self.following.remove(&at);
                }
            }
            match place {
                Place::Nowhere => {}
                Place::Waiting => self.waiting_keys += 1,
                Place::Free(home, at) => {
                    self.free.insert((home, at));
                    self.ready_keys += 1;
                }
                Place::Tired(home, at) => {
                    self.tired.insert((home, at));
                    self.ready_keys += 1;
                }
                Place::Own(holder, at) => {
                    self.own.insert((holder, at));
                }
                Place::Following(at) => {
                    self.following.insert(at);
                }
            }
        }
        if entry.head == NONE && entry.out.is_none() && !entry.spilled {
            self.keys.remove(&key);
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.queued_bytes() + self.spans.heap_bytes() + self.resting.heap_bytes()
    }

    /// Of these, what queues take.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.keys.len() as u64 * KEY_BYTES + self.keyless.len() as u64 * KEYLESS_BYTES
    }
}

/// Whether the next record of a followed key may go to the dead-letter topic.
fn follows_now(window: &Window, entry: &Key) -> bool {
    entry.head != NONE && entry.out.is_none() && window.slot(entry.head).state != RecordState::Stopped
}

/// Where a key stands whose span begins at `span`.
fn place_of(window: &Window, entry: &Key, home: Home, loads: &BTreeMap<u32, Load>, span: i64) -> Place {
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
    match &entry.out {
        None if head.count >= TIRED_FROM => Place::Tired(home, entry.head),
        None => Place::Free(home, entry.head),
        Some(out) => {
            let mut holders = out.held.iter().chain(&out.recalled).map(|record| record.1);
            let one = holders.next().filter(|&first| holders.all(|holder| holder == first));
            let behind_recalled = out.recalled.first().is_some_and(|recalled| recalled.0 < entry.head);
            match one {
                Some(holder)
                    if !behind_recalled
                        && loads.get(&holder).is_none_or(|load| load.home == home)
                        && out.held.len() + out.recalled.len()
                            < loads.get(&holder).map_or(1, |load| load.per_key_max.max(1)) =>
                {
                    Place::Own(holder, entry.head)
                }
                _ => Place::Nowhere,
            }
        }
    }
}

fn insert_sorted(list: &mut Vec<(i64, u32)>, record: (i64, u32)) {
    let index = list.partition_point(|other| other.0 < record.0);
    list.insert(index, record);
}
