//! The poison way: what becomes of a record that is rejected, fails too often, or cannot be read.
//!
//! Skip settles it. The other ways stop it: it stays where it is in its key, goes to nobody, and what lies behind it
//! waits, until its copy is in the dead-letter topic or somebody decides.

use std::sync::Arc;

use records::ids::{KeyHash, Offset};

use super::Poison;
use super::admin::StopReason;
use super::event::{Event, Settlement, TEXT_BYTES_MAX};
use super::key_queue::Halt;
use super::partition::{SharePartition, unscanned};
use super::recorder::Change;
use super::stops::{KeyStop, Stop, WaitsFor};
use super::window::RecordState;
use crate::time::Now;

/// A record on its way to the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) offset: i64,
    /// Its key, where that keeps an order.
    pub(crate) key: Option<KeyHash>,
    pub(crate) reason: StopReason,
    /// Deliveries that failed.
    pub(crate) deliveries: u16,
    /// What its last holder said.
    pub(crate) text: Option<Arc<str>>,
}

impl SharePartition {
    /// A record is poison. It is in a member's hands, or its batch turned out to be unreadable.
    pub(super) fn poison(&mut self, offset: i64, reason: StopReason, now: Now) {
        self.counters.corrupt += u64::from(reason == StopReason::Corrupt);
        let waits_for = match self.config.poison {
            Poison::Skip => {
                let how = settlement(reason);
                self.settle(offset, how);
                return self.note(Change::Settled(how), offset);
            }
            Poison::DeadLetter | Poison::Follow => WaitsFor::DeadLetter,
            Poison::Park => WaitsFor::Hand,
        };
        let stop = Stop { waits_for, reason, wall_ms: now.wall_ms };
        let counted = reason != StopReason::Corrupt;
        self.stop_record(offset, stop, counted);
        self.note(Change::Stopped { stop, counted }, offset);
        if self.config.poison != Poison::DeadLetter {
            self.stop_key_of(offset, now);
        }
    }

    /// What a member said when it gave a record back: kept where that was stopped.
    pub(super) fn explain(&mut self, offset: i64, text: &str) {
        if text.is_empty() || self.stops.get(offset).is_none() {
            return;
        }
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        let text = Arc::from(&text[..end.unwrap_or(0)]);
        self.stops.explain(offset, &text);
        self.note_event(&Event::Explained { offset, text });
    }

    /// A stored record cannot be read and was not known before: it has no key.
    pub(super) fn poison_unknown(&mut self, offset: i64, now: Now) {
        if self.config.poison == Poison::Skip {
            self.window.settle_gap(offset, offset);
            self.counters.corrupt += 1;
            self.counters.settled(Settlement::Corrupt);
            return self.note(Change::Settled(Settlement::Corrupt), offset);
        }
        let mut slot = unscanned();
        slot.scanned = true;
        self.window.insert(offset, slot);
        self.poison(offset, StopReason::Corrupt, now);
    }

    /// What stopped a record stops its key, too, where it has one that keeps an order and is not stopped already. Of a
    /// record that a restart has told of the key is known only when the scan has come to it.
    pub(super) fn stop_key_of(&mut self, offset: i64, now: Now) {
        let slot = *self.window.slot(offset);
        let (Some(key), Some(stop)) = (self.key_of(&slot).filter(|_| slot.scanned), self.stops.get(offset))
        else {
            return;
        };
        let follows = match (stop.waits_for, self.config.poison) {
            (WaitsFor::Hand, _) => false,
            (WaitsFor::DeadLetter, Poison::Follow) => true,
            (WaitsFor::DeadLetter, _) => return,
        };
        if self.stops.key(key).is_none() {
            let reason = stop.reason;
            let stop = KeyStop { follows, at: offset, deliveries: slot.count, wall_ms: now.wall_ms, reason };
            self.stop_key(key, stop);
            self.note_event(&Event::KeyStopped { key, stop });
        }
    }

    /// A record goes to nobody any more.
    pub(super) fn stop_record(&mut self, offset: i64, stop: Stop, counted: bool) {
        let Some(slot) = self.window.get(offset).copied() else { return };
        let was_out = slot.is_out();
        if was_out {
            self.take_out(offset, &slot);
        } else {
            self.forget_wait(offset);
        }
        let slot = self.window.slot_mut(offset);
        slot.state = RecordState::Stopped;
        slot.count = slot.count.saturating_add(u16::from(counted));
        let slot = *slot;
        self.stops.insert(offset, stop);
        match self.key_of(&slot) {
            _ if !slot.scanned => {}
            _ if was_out => self.enqueue(offset, &slot),
            Some(key) => self.queue.refresh(&self.window, key),
            None => self.queue.remove_keyless(offset),
        }
    }

    /// A stopped record is to be delivered anew, its count at the beginning.
    pub(super) fn free_record(&mut self, offset: i64) {
        if self.stops.remove(offset).is_none() {
            return;
        }
        self.window.slot_mut(offset).count = 0;
        self.requeue(offset);
    }

    /// A key hands out nothing any more.
    pub(super) fn stop_key(&mut self, key: KeyHash, stop: KeyStop) {
        self.stops.insert_key(key, stop);
        self.update_stop(key);
    }

    /// A key goes on.
    pub(super) fn resume_key(&mut self, key: KeyHash) {
        self.stops.remove_key(key);
        self.update_stop(key);
    }

    /// Whether a key hands out records, for all that can stop it.
    pub(super) fn update_stop(&mut self, key: KeyHash) {
        let halt = match (self.stops.key(key), self.replays.get(&key)) {
            (Some(stop), _) if !stop.follows => Some(Halt::All),
            // What lies before the next record of a replay goes before it, all else behind it.
            (follows, Some(replay)) => {
                let next = replay.next(key);
                let before = follows.is_some() && self.queue.first(key).is_some_and(|first| first < next);
                Some(if before { Halt::Follows } else { Halt::From(next) })
            }
            (Some(_), None) => Some(Halt::Follows),
            (None, None) => None,
        };
        self.queue.halt(&self.window, key, halt.filter(|_| self.keeps_order()));
    }

    /// The copies of these records are durable in the dead-letter topic: they are done.
    pub(crate) fn dead_lettered(&mut self, letters: &[DeadLetter]) {
        // One that was skipped, or lost to retention, while it was copied is done already.
        let stopped = |letter: &&DeadLetter| {
            self.stops.get(letter.offset).is_some_and(|stop| stop.waits_for == WaitsFor::DeadLetter)
        };
        let done: Vec<(i64, Option<KeyHash>)> =
            letters.iter().filter(stopped).map(|letter| (letter.offset, letter.key)).collect();
        if !done.is_empty() {
            let event = Event::DeadLettered(done);
            self.apply_dead_lettered(&event);
            self.note_event(&event);
        }
        for (&key, replay) in &mut self.replays {
            let of_it = |letter: &&DeadLetter| replay.part.stops.get(letter.offset).is_some();
            let done: Vec<DeadLetter> = letters.iter().filter(of_it).cloned().collect();
            replay.part.dead_lettered(&done);
            replay.part.stops.forget_redrivable(key);
            let bytes_max = self.config.window_bytes_max;
            done.iter().for_each(|letter| self.stops.remember(key, letter.offset, bytes_max));
        }
    }

    pub(super) fn apply_dead_lettered(&mut self, event: &Event) {
        let Event::DeadLettered(letters) = event else { return };
        for &(offset, key) in letters {
            self.settle(offset, Settlement::DeadLettered);
            self.window.settle_gap(offset, offset);
            if let Some(key) = key {
                self.stops.remember(key, offset, self.config.window_bytes_max);
            }
        }
        self.window.advance();
    }

    /// Whether anything waits to be copied to the dead-letter topic.
    pub(crate) fn has_dead_letters(&self) -> bool {
        self.stops.letters_len() > 0
            || self.queue.first_following().is_some()
            || self.replays.values().any(|replay| replay.part.has_dead_letters())
    }

    /// The next records to be copied, ascending, at most `max`; those of followed keys join here, in order.
    /// After a restart none before all leftovers are known: one that is told of only might go behind what follows it.
    pub(crate) fn next_dead_letters(&mut self, max: usize, now: Now) -> Vec<DeadLetter> {
        let mut letters = Vec::new();
        if self.may_grant(i64::MAX) {
            letters = self.own_dead_letters(max, now);
        }
        for replay in self.replays.values_mut() {
            letters.append(&mut replay.part.own_dead_letters(max, now));
        }
        letters.sort_by_key(|letter| letter.offset);
        letters.truncate(max);
        letters
    }

    fn own_dead_letters(&mut self, max: usize, now: Now) -> Vec<DeadLetter> {
        while self.stops.letters_len() < max
            && let Some(head) = self.queue.first_following()
        {
            let key = self.window.slot(head).key.expect("only keys are followed");
            let at = self.stops.key(key).map_or(head, |stop| stop.at);
            let reason = StopReason::Follows(Offset(at));
            let stop = Stop { waits_for: WaitsFor::DeadLetter, reason, wall_ms: now.wall_ms };
            for offset in self.queue.chain(&self.window, key, max - self.stops.letters_len()) {
                self.stop_record(offset, stop, false);
                self.note(Change::Stopped { stop, counted: false }, offset);
            }
        }
        let letters: Vec<i64> = self.stops.letters().take(max).collect();
        let letters = letters.into_iter().filter_map(|offset| {
            let slot = self.window.get(offset).filter(|slot| slot.scanned)?;
            let stop = self.stops.get(offset)?;
            let (key, text) = (self.key_of(slot), self.stops.text(offset).cloned());
            Some(DeadLetter { offset, key, reason: stop.reason, deliveries: slot.count, text })
        });
        letters.collect()
    }
}

/// How skipping ends a record.
fn settlement(reason: StopReason) -> Settlement {
    match reason {
        StopReason::Rejected => Settlement::Rejected,
        StopReason::LimitReached | StopReason::Follows(_) => Settlement::LimitReached,
        StopReason::Corrupt => Settlement::Corrupt,
        StopReason::Operator => Settlement::Skipped,
    }
}
