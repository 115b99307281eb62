//! One share-partition: its durable state, the queues derived from it, and every change of a record's state.
//!
//! Each change of a single record is one function here or in [`super::poison`] ([`SharePartition::hold`], [`SharePartition::settle`],
//! [`SharePartition::give_back`], [`SharePartition::recall`], [`SharePartition::renew`]): it changes the durable
//! part and keeps the queues in step. Decisions (`acquire`, `acknowledge`, `expire`) call them and note an event
//! for each; [`SharePartition::apply`] calls the same ones for stored events. So what a decision does and what a
//! restart makes of it cannot differ. The caller appends [`SharePartition::take_events`] and holds its answers
//! until that is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use records::ids::KeyHash;

use super::event::{Event, Settlement, Wait};
use super::holders::{Holders, Lock};
use super::homes::Homes;
use super::key_queue::{Halt, KeyQueue};
use super::limits::WindowLimits;
use super::observe::ScanSize;
use super::page_table::PageTable;
use super::recorder::{Change, Recorder};
use super::replay::Replay;
use super::retry;
use super::stops::Stops;
use super::window::{NO_ENTRY, NO_LOCK, NONE, RecordState, Slot, Window};
use super::{ShareConfig, ShareCounters, ShareOrder};
use crate::time::{Mono, Now};

/// About what a wait costs, and what a record in a member's hands costs beside its slot; measured by
/// `benches/tests/share_memory.rs`.
const WAIT_BYTES: u64 = 80;
const OUT_BYTES: u64 = 48;

/// A share-partition in memory.
#[derive(Debug)]
pub(crate) struct SharePartition {
    pub(super) config: Arc<ShareConfig>,
    pub(super) limits: Arc<WindowLimits>,
    pub(super) window: Window,
    pub(super) holders: Holders,
    pub(super) queue: KeyQueue,
    /// Delayed records: the stored wait and its end on the monotonic clock.
    pub(super) waits: BTreeMap<i64, (Wait, Mono)>,
    wait_ends: BTreeSet<(Mono, i64)>,
    /// Delayed records that keep no order.
    pub(super) keyless_waits: usize,
    /// What is not in memory.
    pub(super) pages: PageTable,
    /// Nothing goes to pages before this.
    pub(super) page_out_from: Mono,
    /// Stopped records and keys.
    pub(super) stops: Stops,
    /// Keys of which settled records are delivered again.
    pub(super) replays: BTreeMap<KeyHash, Box<Replay>>,
    /// What was scanned last.
    pub(super) scanned: ScanSize,
    /// Records in members' hands.
    pub(super) out: usize,
    /// After a restart nothing is granted before the scan has come here: an earlier record of a key might be in
    /// someone's hands unseen.
    pub(super) recovery_until: i64,
    pub(super) recorder: Recorder,
    pub(super) counters: ShareCounters,
}

impl SharePartition {
    /// An empty one; its start offset comes with [`Event::Started`].
    pub(crate) fn new(config: Arc<ShareConfig>, limits: Arc<WindowLimits>) -> Self {
        Self {
            config,
            limits,
            window: Window::default(),
            holders: Holders::default(),
            queue: KeyQueue::default(),
            waits: BTreeMap::new(),
            wait_ends: BTreeSet::new(),
            keyless_waits: 0,
            pages: PageTable::default(),
            page_out_from: Mono(0),
            stops: Stops::default(),
            replays: BTreeMap::new(),
            scanned: ScanSize::default(),
            out: 0,
            recovery_until: 0,
            recorder: Recorder::default(),
            counters: ShareCounters::default(),
        }
    }

    /// Changes durable state as a stored event says.
    pub(crate) fn apply(&mut self, event: &Event, now: Now) {
        match event {
            Event::Started(at) => {
                let (window, mut pages) = (std::mem::take(&mut self.window), std::mem::take(&mut self.pages));
                // Stored pages stay known until a snapshot says that they are not needed.
                pages.clear();
                // Numbers of look-ups under way must not come again.
                self.queue.spans_mut().clear();
                let mut new = Self::new(Arc::clone(&self.config), Arc::clone(&self.limits));
                new.settle_in(self.queue.homes());
                std::mem::swap(new.queue.spans_mut(), self.queue.spans_mut());
                *self = Self { counters: self.counters, window, pages, ..new };
                self.window.reset(*at);
            }
            Event::Granted { member, delivery, numbered, wall_ms, lock_ms, ranges } => {
                let holder = self.holders.find_or_add(member);
                let lock = self.holders.open(Lock {
                    holder,
                    delivery: *delivery,
                    numbered: *numbered,
                    wall_ms: *wall_ms,
                    lock_ms: *lock_ms,
                    since: now.mono,
                    ends: None,
                    records: 0,
                    restarted: false,
                });
                // A grant names every record: its ranges are no wider than the answer was.
                for &(first, last) in ranges {
                    for offset in first..=last {
                        if self.window.is_unsettled(offset) {
                            self.hold(offset, lock);
                        }
                    }
                }
                self.holders.drop_empty(lock);
            }
            Event::Settled { how, ranges } => {
                for &(first, last) in ranges {
                    for offset in self.offsets(first, last) {
                        self.settle(offset, *how);
                    }
                    self.window.settle_gap(first, last);
                }
                self.window.advance();
            }
            Event::Returned { counted, wait, ranges } => {
                for offset in self.offsets_in(ranges) {
                    self.give_back(offset, *counted, *wait, now);
                }
            }
            Event::Recalled(ranges) => {
                for offset in self.offsets_in(ranges) {
                    self.recall(offset);
                }
            }
            Event::Renewed { wall_ms, lock_ms, ranges } => {
                let mut renewed = BTreeMap::new();
                for offset in self.offsets_in(ranges) {
                    self.renew(offset, *wall_ms, *lock_ms, None, &mut renewed);
                }
            }
            Event::LogStarted(at) => self.drop_below(*at),
            Event::Refilled { key, next, records } => {
                self.refill(*key, *next, records, records.len() as u64);
            }
            Event::Unpaged { page, resting } => self.unpage(*page, resting, now),
            Event::Stopped { stop, counted, ranges } => {
                // Also of records that nobody has scanned yet: unreadable ones, which are not read again.
                for offset in ranges.iter().flat_map(|range| range.0..=range.1) {
                    if self.window.is_unsettled(offset) {
                        if self.window.get(offset).is_none() {
                            self.window.insert(offset, unscanned());
                        }
                        self.stop_record(offset, *stop, *counted);
                    }
                }
            }
            Event::Freed(ranges) => {
                for offset in self.offsets_in(ranges) {
                    self.end_wait(offset);
                    self.free_record(offset);
                }
            }
            Event::KeyStopped { key, stop } => self.stop_key(*key, *stop),
            Event::KeyResumed(key) => self.resume_key(*key),
            Event::DeadLettered(_) => self.apply_dead_lettered(event),
            Event::Explained { offset, text } => self.stops.explain(*offset, text),
            Event::ReplayStarted { .. } | Event::Replayed { .. } | Event::ReplayEnded(_) => {
                self.apply_replay(event, now);
            }
        }
    }

    /// Events that were decided on and are to be appended, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Bytes> {
        self.drain_replays();
        self.recorder.take()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.recorder.is_empty() || self.replays.values().any(|replay| replay.part.has_events())
    }

    /// Chooses the start offset of a new share-partition.
    pub(crate) fn start_at(&mut self, at: i64, now: Now) {
        let event = Event::Started(at);
        self.apply(&event, now);
        self.recorder.event(&event);
    }

    /// The log begins at `at` now: what lies before is lost to retention, or was deleted.
    pub(crate) fn log_started(&mut self, at: i64) {
        self.replays_log_started(at);
        if at > self.window.start() {
            let known = at.min(self.window.scan());
            let lost = self.window.unsettled_in(self.window.start(), known - 1).unsigned_abs();
            let beyond = self.window.unsettled_in(known, at - 1).unsigned_abs();
            self.counters.left_log += lost + beyond;
            self.drop_below(at);
            self.recorder.event(&Event::LogStarted(at));
        }
    }

    /// Keys have these homes from now on.
    pub(crate) fn settle_in(&mut self, homes: Option<Arc<Homes>>) {
        for replay in self.replays.values_mut() {
            replay.part.settle_in(homes.clone());
        }
        self.queue.settle_in(&self.window, homes);
    }

    /// Takes new settings; another order re-sorts the queues, and what members hold stays with them.
    pub(crate) fn configure(&mut self, config: Arc<ShareConfig>) {
        let (order, inflight) = (self.config.order, self.config.key_inflight_max);
        self.config = config;
        let replay_config = self.replay_config();
        for key in self.replays.keys().copied().collect::<Vec<_>>() {
            if self.keeps_order() {
                let replay = self.replays.get_mut(&key).expect("its key was taken from the map");
                replay.part.configure(Arc::clone(&replay_config));
            } else {
                // Without order a key has no turn that its replay could go before.
                self.end_replay(key);
            }
        }
        if self.config.order != order {
            self.rebuild_queues();
            // Without order they stopped no key; a restart would have it so, too.
            for offset in self.stops.records().map(|record| record.0).collect::<Vec<_>>() {
                self.stop_key_of(offset);
            }
        }
        if self.config.key_inflight_max != inflight {
            self.queue.limit_anew(&self.window, inflight as usize, self.config.key_inflight_max as usize);
        }
    }

    /// The next moment at which something happens by itself.
    pub(crate) fn next_deadline(&self, now: Now) -> Option<Mono> {
        let lock = self.holders.first_end().map(|end| end.0);
        let wait = self.wait_ends.first().map(|end| end.0);
        let replays = self.replays.values().filter_map(|replay| replay.part.next_deadline(now));
        lock.into_iter().chain(wait).chain(self.next_page_due(now)).chain(replays).min()
    }

    /// When the last wait in memory ends.
    pub(super) fn last_wait_end(&self) -> Option<Mono> {
        self.wait_ends.last().map(|end| end.0)
    }

    /// Records whose waits end last, and not before `from`, ascending; at most `max`.
    pub(super) fn longest_waits(&self, from: Mono, max: usize) -> Vec<i64> {
        let longest = self.wait_ends.range((from, i64::MIN)..).rev().take(max);
        let mut offsets: Vec<i64> = longest.map(|end| end.1).collect();
        offsets.reverse();
        offsets
    }

    /// The first wait that is over.
    pub(super) fn wait_over(&self, now: Mono) -> Option<i64> {
        self.wait_ends.first().filter(|end| end.0 <= now).map(|end| end.1)
    }

    /// The key whose order a record keeps; `None` for keyless ones, and in a group without order.
    pub(super) fn key_of(&self, slot: &Slot) -> Option<KeyHash> {
        slot.key.filter(|_| self.config.order == ShareOrder::Key)
    }

    /// Whether records of a key keep their order.
    pub(super) fn keeps_order(&self) -> bool {
        self.config.order == ShareOrder::Key
    }

    /// Offsets at or above the start offset that are not settled, up to `end`.
    pub(crate) fn lag(&self, end: i64) -> i64 {
        self.window.unsettled_in(self.window.start(), end - 1)
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let waits = self.waits.len() as u64 * WAIT_BYTES;
        let out = self.out as u64 * OUT_BYTES;
        let replays: u64 = self.replays.values().map(|replay| replay.part.heap_bytes()).sum();
        let beside = self.pages.heap_bytes() + self.stops.heap_bytes() + replays;
        self.window.heap_bytes() + self.queue.heap_bytes() + waits + out + beside
    }

    fn offsets(&self, first: i64, last: i64) -> Vec<i64> {
        self.window.range(first, last).map(|(offset, _)| offset).collect()
    }

    fn offsets_in(&self, ranges: &[(i64, i64)]) -> Vec<i64> {
        ranges.iter().flat_map(|range| self.offsets(range.0, range.1)).collect()
    }

    // ---- changes of one record -------------------------------------------------------------------------------

    /// A record comes into the hands of the lock's holder.
    pub(super) fn hold(&mut self, offset: i64, lock: u32) {
        let known = self.window.get(offset).copied();
        match &known {
            None => self.window.insert(offset, unscanned()),
            Some(slot) if slot.is_out() => self.take_out(offset, slot),
            Some(slot) => self.forget_stop_and_wait(offset, slot),
        }
        let slot = self.window.slot_mut(offset);
        slot.state = RecordState::Held;
        slot.lock = lock;
        let slot = *slot;
        let holder = self.holders.put(lock, offset);
        self.out += 1;
        self.window.granted(offset);
        let is_queued = known.is_some_and(|slot| !slot.is_out());
        match self.key_of(&slot) {
            _ if !slot.scanned => {}
            Some(key) if is_queued => self.queue.grant(&mut self.window, key, offset, holder),
            Some(key) => self.queue.lend(&mut self.window, key, offset, holder, false),
            None => self.queue.remove_keyless(offset),
        }
    }

    /// A record is done.
    pub(super) fn settle(&mut self, offset: i64, how: Settlement) {
        let Some(slot) = self.window.get(offset).copied() else { return };
        if slot.is_out() {
            self.take_out(offset, &slot);
        } else {
            self.unqueue(offset, &slot);
        }
        self.window.settle(offset);
        self.counters.settled(how);
    }

    /// A record comes back from its holder.
    pub(super) fn give_back(&mut self, offset: i64, counted: bool, wait: Option<Wait>, now: Now) {
        let Some(slot) = self.window.get(offset).copied().filter(Slot::is_out) else { return };
        self.take_out(offset, &slot);
        let left = wait.map(|wait| (wait, now.mono + retry::left(wait, now)));
        let slot = self.window.slot_mut(offset);
        slot.state = if left.is_some() { RecordState::Delayed } else { RecordState::Queued };
        slot.count = slot.count.saturating_add(u16::from(counted));
        let slot = *slot;
        if let Some((wait, end)) = left {
            self.insert_wait(offset, wait, end);
        }
        if slot.scanned {
            self.enqueue(offset, &slot);
        }
    }

    /// A record in a member's hands is to be delivered again.
    pub(super) fn recall(&mut self, offset: i64) {
        let Some(slot) = self.window.get_mut(offset) else { return };
        if slot.state == RecordState::Held {
            slot.state = RecordState::Recalled;
            let slot = *slot;
            if let Some(key) = self.key_of(&slot).filter(|_| slot.scanned) {
                self.queue.recall(&self.window, key, offset);
            }
        }
    }

    /// A record's lock begins anew, and runs out at `ends`, where that is known. `renewed` maps the locks of one renewal
    /// from old to new.
    pub(super) fn renew(
        &mut self,
        offset: i64,
        wall_ms: i64,
        lock_ms: i64,
        ends: Option<Mono>,
        renewed: &mut BTreeMap<u32, u32>,
    ) {
        let Some(slot) = self.window.get(offset).copied().filter(Slot::is_out) else { return };
        let Some(old) = self.holders.lock(slot.lock).cloned() else { return };
        let lock = *renewed.entry(slot.lock).or_insert_with(|| {
            self.holders.open(Lock { wall_ms, lock_ms, ends, records: 0, restarted: false, ..old })
        });
        self.holders.take(slot.lock, offset);
        self.holders.put(lock, offset);
        self.window.slot_mut(offset).lock = lock;
    }

    pub(super) fn insert_wait(&mut self, offset: i64, wait: Wait, end: Mono) {
        self.forget_wait(offset);
        self.keyless_waits += usize::from(self.waits_alone(offset));
        self.waits.insert(offset, (wait, end));
        self.wait_ends.insert((end, offset));
    }

    /// A record does not wait any more. What it waited for, if it did.
    pub(super) fn forget_wait(&mut self, offset: i64) -> Option<(Wait, Mono)> {
        let (wait, end) = self.waits.remove(&offset)?;
        self.wait_ends.remove(&(end, offset));
        self.keyless_waits -= usize::from(self.waits_alone(offset));
        Some((wait, end))
    }

    fn waits_alone(&self, offset: i64) -> bool {
        self.window.get(offset).is_none_or(|slot| self.key_of(slot).is_none())
    }

    /// A wait is over.
    pub(super) fn end_wait(&mut self, offset: i64) {
        self.forget_wait(offset);
        if self.window.get(offset).is_some_and(|slot| slot.state == RecordState::Delayed) {
            self.requeue(offset);
        }
    }

    /// A record that stood in its key's queue without being ready is ready again.
    pub(super) fn requeue(&mut self, offset: i64) {
        let slot = self.window.slot_mut(offset);
        slot.state = RecordState::Queued;
        let slot = *slot;
        if slot.scanned {
            match self.key_of(&slot) {
                Some(key) => self.queue.refresh(&self.window, key),
                None => self.queue.push_keyless(&self.window, offset),
            }
        }
    }

    fn drop_below(&mut self, at: i64) {
        for offset in self.offsets(i64::MIN, at - 1) {
            let slot = *self.window.slot(offset);
            if slot.is_out() {
                self.take_out(offset, &slot);
            } else {
                self.unqueue(offset, &slot);
            }
            self.window.settle(offset);
        }
        self.window.start_at(at);
        self.shrink_spilled(at);
        self.settle_unslotted();
    }

    /// Out of its holder's hands, and not yet anywhere else.
    pub(super) fn take_out(&mut self, offset: i64, slot: &Slot) {
        let holder = self.holders.take(slot.lock, offset);
        self.out -= 1;
        self.window.slot_mut(offset).lock = NO_LOCK;
        if let Some(key) = self.key_of(slot).filter(|_| slot.scanned) {
            self.queue.take_back(&self.window, key, offset, holder);
        }
    }

    /// Into the queue of its key, or among the keyless.
    pub(super) fn enqueue(&mut self, offset: i64, slot: &Slot) {
        match self.key_of(slot) {
            Some(key) => self.queue.push(&mut self.window, key, offset),
            None => self.queue.push_keyless(&self.window, offset),
        }
    }

    /// Out of the queue, its wait and what stopped it forgotten.
    fn unqueue(&mut self, offset: i64, slot: &Slot) {
        self.forget_stop_and_wait(offset, slot);
        if slot.scanned {
            match self.key_of(slot) {
                Some(key) => self.queue.remove(&mut self.window, key, offset),
                None => self.queue.remove_keyless(offset),
            }
        }
    }

    fn forget_stop_and_wait(&mut self, offset: i64, slot: &Slot) {
        self.forget_wait(offset);
        if slot.state == RecordState::Stopped {
            self.stops.remove(offset);
        }
    }

    /// Sorts every record of the window into the queues anew.
    fn rebuild_queues(&mut self) {
        self.queue.clear();
        if self.keeps_order() {
            for (key, stop) in self.stops.keys() {
                let halt = if stop.follows { Halt::Follows } else { Halt::All };
                self.queue.halt(&self.window, key, Some(halt));
            }
        }
        let slots: Vec<(i64, Slot)> =
            self.window.slots().filter(|(_, slot)| slot.scanned).map(|(at, slot)| (at, *slot)).collect();
        for (offset, slot) in slots {
            self.window.slot_mut(offset).next = NONE;
            if slot.is_out() {
                self.lend(offset, &slot);
            } else {
                self.enqueue(offset, &slot);
            }
        }
        self.queue_spans();
        self.keyless_waits = self.waits.keys().filter(|&&offset| self.waits_alone(offset)).count();
    }

    /// With key order every key with a span has a queue.
    pub(super) fn queue_spans(&mut self) {
        if self.config.order == ShareOrder::Key {
            self.queue.queue_spans(&self.window);
        }
    }

    /// Tells the queue of a record that is out.
    pub(super) fn lend(&mut self, offset: i64, slot: &Slot) {
        if let Some(key) = self.key_of(slot)
            && let Some(lock) = self.holders.lock(slot.lock)
        {
            let (holder, recalled) = (lock.holder, slot.state == RecordState::Recalled);
            self.queue.lend(&mut self.window, key, offset, holder, recalled);
        }
    }

    /// What was counted was done before.
    pub(super) fn forget_counted(&mut self) {
        self.counters = ShareCounters::default();
        self.replays.values_mut().for_each(|replay| replay.part.counters = ShareCounters::default());
    }

    /// Notes a change that was made.
    pub(super) fn note(&mut self, change: Change, offset: i64) {
        self.recorder.note(change, offset);
    }
}

/// A record that events tell of before the scan has come to it.
pub(super) fn unscanned() -> Slot {
    Slot {
        key: None,
        next: NONE,
        entry: NO_ENTRY,
        bytes: 0,
        lock: NO_LOCK,
        count: 0,
        state: RecordState::Queued,
        scanned: false,
        batch_end: false,
    }
}
