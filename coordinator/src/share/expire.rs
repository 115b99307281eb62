//! What happens by itself: locks run out, waits end, sessions end, answers are lost.

use records::ids::{KeyHash, Offset};

use super::admin::StopReason;
use super::event::{Event, Settlement};
use super::partition::SharePartition;
use super::recorder::Change;
use super::window::RecordState;
use crate::command::DeliveryNumber;
use crate::reply::RecalledRange;
use crate::time::{Micros, Now};

impl SharePartition {
    /// Lets everything happen that is due; says whether anything did.
    pub(crate) fn expire(&mut self, now: Now) -> bool {
        let mut changed = false;
        while let Some(offset) = self.wait_over(now.mono) {
            self.end_wait(offset);
            changed = true;
        }
        while let Some((ends, lock)) = self.holders.first_end()
            && ends <= now.mono
        {
            self.counters.locks_expired += 1;
            self.return_lock(lock, true, now);
            changed = true;
        }
        for replay in self.replays.values_mut() {
            changed |= replay.part.expire(now);
        }
        changed
    }

    /// The answer of a delivery was written whole: its lock starts.
    pub(crate) fn written(&mut self, delivery: u64, now: Now) {
        if let Some(lock) = self.holders.unwritten(delivery) {
            let lock_ms = self.holders.lock(lock).map_or(0, |lock| lock.lock_ms);
            self.holders.begin(lock, now.mono, now.mono + Micros::from_ms(lock_ms));
        }
        self.replays.values_mut().for_each(|replay| replay.part.written(delivery, now));
    }

    /// The answer of a delivery will never be whole: nobody saw the records.
    pub(crate) fn lost(&mut self, delivery: u64, now: Now) {
        if let Some(lock) = self.holders.unwritten(delivery) {
            self.return_lock(lock, false, now);
        }
        self.replays.values_mut().for_each(|replay| replay.part.lost(delivery, now));
    }

    /// Records of a delivery that were recalled before its answer went out are left out of it: nobody has seen them.
    /// Says whether there were any.
    pub(crate) fn withdraw_recalled(&mut self, delivery: u64, offsets: &[i64], now: Now) -> bool {
        let mut any = false;
        for &offset in offsets {
            let recalled = self.window.get(offset).is_some_and(|slot| {
                slot.state == RecordState::Recalled
                    && self.holders.lock(slot.lock).is_some_and(|lock| lock.delivery == delivery)
            });
            if recalled {
                self.give_back(offset, false, None, now);
                self.note(Change::Returned { counted: false, wait: None }, offset);
                any = true;
            }
        }
        for replay in self.replays.values_mut() {
            any |= replay.part.withdraw_recalled(delivery, offsets, now);
        }
        any
    }

    /// A member gives back everything: its session has ended, or it is gone.
    ///
    /// What it had in hands counts as failed; what was recalled from it, what it was never sent, and what a restart
    /// took from it does not.
    pub(crate) fn release_member(&mut self, name: &str, now: Now) {
        self.replays.values_mut().for_each(|replay| replay.part.release_member(name, now));
        let Some(holder) = self.holders.find(name) else { return };
        let offsets: Vec<i64> = self.holders.get(holder).out.iter().collect();
        for &offset in &offsets {
            let slot = *self.window.slot(offset);
            let counted = slot.state == RecordState::Held
                && self.holders.lock(slot.lock).is_some_and(|lock| lock.ends.is_some() && !lock.restarted);
            self.fail(offset, slot.count, counted, now);
        }
        self.holders.end_session(name);
        if self.holders.forget(holder) {
            self.queue.forget(holder);
        }
        self.window.advance();
    }

    /// All records of a lock come back, each by itself; then what lies behind them in their keys is recalled.
    pub(super) fn return_lock(&mut self, lock: u32, counted: bool, now: Now) {
        let Some(state) = self.holders.lock(lock) else { return };
        let counted = counted && !state.restarted;
        let holder = state.holder;
        let offsets: Vec<i64> = self
            .holders
            .get(holder)
            .out
            .iter()
            .filter(|&offset| self.window.slot(offset).lock == lock)
            .collect();
        let mut keys = Vec::new();
        for offset in offsets {
            let slot = *self.window.slot(offset);
            self.fail(offset, slot.count, counted, now);
            keys.extend(self.key_of(&slot).map(|key| (key, offset)));
        }
        for (key, offset) in keys {
            self.recall_behind(key, offset, now);
        }
        self.holders.drop_empty(lock);
        self.window.advance();
    }

    /// A delivery is over without success: the record comes back, or has reached its limit.
    fn fail(&mut self, offset: i64, count: u16, counted: bool, now: Now) {
        if counted && self.at_limit(count) {
            self.poison(offset, StopReason::LimitReached, now);
        } else {
            self.give_back(offset, counted, None, now);
            self.note(Change::Returned { counted, wait: None }, offset);
        }
    }

    /// Whether one more failure ends a record's deliveries.
    pub(super) fn at_limit(&self, count: u16) -> bool {
        i32::from(count) + 1 >= i32::from(self.config.delivery_count_max)
    }

    /// A record came back: later records of its key that are in hands are recalled (O3). From a
    /// holder that acknowledges with delivery numbers they come back at once, since its late word cannot be taken
    /// for another delivery; it is told so with its next answer.
    pub(super) fn recall_behind(&mut self, key: KeyHash, offset: i64, now: Now) {
        for later in self.queue.held_behind(key, offset) {
            let lock = self.window.slot(later).lock;
            let Some(lock) = self.holders.lock(lock) else { continue };
            let (numbered, holder, delivery) = (lock.numbered, lock.holder, lock.delivery);
            if numbered {
                self.counters.recalled += 1;
                self.give_back(later, false, None, now);
                self.note(Change::Returned { counted: false, wait: None }, later);
                self.holders.get_mut(holder).untold.push((delivery, later));
            } else {
                self.recall_held(later);
            }
        }
    }

    /// As [`SharePartition::recall_behind`], where the holder cannot know that an earlier record is back. What it has with
    /// a delivery number would be another's before it was told: that stays its own, and the key's, until it is settled.
    pub(super) fn recall_behind_unknown(&mut self, key: KeyHash, offset: i64) {
        for later in self.queue.held_behind(key, offset) {
            if self.holders.lock(self.window.slot(later).lock).is_some_and(|lock| !lock.numbered) {
                self.recall_held(later);
            }
        }
    }

    fn recall_held(&mut self, offset: i64) {
        self.counters.recalled += 1;
        self.recall(offset);
        self.note(Change::Recalled, offset);
    }

    /// The stored batch `first..=last` cannot be read: what of it this delivery was to bring goes the poison way.
    pub(crate) fn corrupt(&mut self, delivery: u64, first: i64, last: i64, now: Now) {
        let offsets: Vec<i64> = self
            .window
            .range(first, last)
            .filter(|(_, slot)| self.holders.lock(slot.lock).is_some_and(|lock| lock.delivery == delivery))
            .map(|(offset, _)| offset)
            .collect();
        for &offset in &offsets {
            self.poison(offset, StopReason::Corrupt, now);
        }
        self.replays.values_mut().for_each(|replay| replay.part.corrupt(delivery, first, last, now));
        self.window.advance();
    }

    /// A record that this delivery was to bring is not in the log any more: it is done.
    pub(crate) fn missing(&mut self, delivery: u64, offset: i64) {
        let of_it = |lock| self.holders.lock(lock).is_some_and(|lock| lock.delivery == delivery);
        if self.window.get(offset).is_some_and(|slot| of_it(slot.lock)) {
            self.settle(offset, Settlement::Gap);
            self.note(Change::Settled(Settlement::Gap), offset);
            self.window.advance();
        }
        self.replays.values_mut().for_each(|replay| replay.part.missing(delivery, offset));
    }

    /// Whether a holder is to be told of records that were taken from it.
    pub(crate) fn has_untold(&self, name: &str) -> bool {
        self.holders.find(name).is_some_and(|holder| !self.holders.get(holder).untold.is_empty())
            || self.replays.values().any(|replay| replay.part.has_untold(name))
    }

    /// Tells a holder which records were taken from it since it was told last, delivery by delivery. One that it was
    /// given again meanwhile is not told: its new delivery says so.
    pub(crate) fn take_untold(&mut self, name: &str) -> Vec<RecalledRange> {
        let mut untold = self.untold(name);
        for replay in self.replays.values_mut() {
            untold.append(&mut replay.part.untold(name));
        }
        untold.sort_unstable();
        let mut ranges: Vec<RecalledRange> = Vec::new();
        for (delivery, offset) in untold {
            let (delivery, offset) = (DeliveryNumber(delivery), Offset(offset));
            match ranges.last_mut() {
                Some(range) if range.delivery == delivery && range.last.next() >= offset => {
                    range.last = offset;
                }
                _ => ranges.push(RecalledRange { first: offset, last: offset, delivery }),
            }
        }
        ranges
    }

    fn untold(&mut self, name: &str) -> Vec<(u64, i64)> {
        let Some(holder) = self.holders.find(name) else { return Vec::new() };
        let holder = self.holders.get_mut(holder);
        let mut untold = std::mem::take(&mut holder.untold);
        untold.retain(|(_, offset)| !holder.out.contains(*offset));
        untold
    }

    /// Notes that an event was applied already.
    pub(super) fn note_event(&mut self, event: &Event) {
        self.recorder.event(event);
    }
}
