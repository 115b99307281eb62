//! Spilling: the queue of a hot or stuck key does not fill the window. Past a bound only its span is kept, and its
//! records are found again when the key needs them.
//!
//! What fits is not spilled: while the window takes less than a part of its bound, nothing has to be looked up twice.

use records::ids::{KeyHash, Offset};

use super::ShareOrder;
use super::event::Event;
use super::observe::Bound;
use super::partition::{SharePartition, unscanned};
use super::window::{NO_ENTRY, Slot};
use crate::io::KeyFound;

/// A search for records of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookUp {
    pub(crate) key: KeyHash,
    pub(crate) from: Offset,
    pub(crate) upper: Offset,
    pub(crate) max: u32,
    number: u64,
}

impl SharePartition {
    /// How many records of a key stay in its queue, and how many a look-up brings: the fewer, the fuller the window is.
    fn key_bounds(&self) -> (u32, u32) {
        let bytes = self.heap_bytes();
        let limits = &self.limits;
        let levels = &limits.key_queued_max;
        if bytes.saturating_mul(limits.spill_from_parts) < self.config.window_bytes_max {
            (u32::MAX, levels[0])
        } else if bytes < self.config.window_bytes_max / 2 {
            (levels[1], levels[1])
        } else {
            (levels[2], levels[2])
        }
    }

    /// A record without a state was found: the number of its key, unless it stays without a slot, since its key is too
    /// long for the window, or rests in a page.
    pub(super) fn spilled_or_number(&mut self, key: Option<KeyHash>, offset: i64) -> Option<u32> {
        let Some(key) = key.filter(|_| self.config.order == ShareOrder::Key) else { return Some(NO_ENTRY) };
        if self.queue.resting().contains(key) {
            if self.queue.resting_mut().mark(key) {
                self.pages.marked.push(key);
            }
            return None;
        }
        let bound = self.key_bounds().0;
        self.queue.counted_or_number(&self.window, key, offset, bound)
    }

    /// Whether keys wait for their records to be looked up.
    pub(crate) fn wants_look_up(&self) -> bool {
        match self.config.order {
            ShareOrder::Key => self.queue.spans().is_hungry() && self.has_room_for_more(),
            ShareOrder::None => self.first_unordered().is_some(),
        }
    }

    /// What to look up next, if anything; [`SharePartition::refilled`] or [`SharePartition::look_up_failed`] ends it.
    pub(crate) fn next_look_up(&mut self) -> Option<LookUp> {
        let key = match self.config.order {
            ShareOrder::Key => loop {
                if !self.has_room_for_more() {
                    return None;
                }
                let key = self.queue.spans_mut().next_hungry()?;
                // Of a key that still has some the others come when it has none, where memory is short.
                if self.heap_bytes() < self.config.window_bytes_max / 2 || self.queue.is_starved(key) {
                    break key;
                }
            },
            ShareOrder::None => self.first_unordered()?,
        };
        let max = self.key_bounds().1;
        let span = *self.queue.spans().get(key)?;
        let number = self.queue.spans_mut().find(key);
        Some(LookUp { key, from: Offset(span.first), upper: Offset(span.last + 1), max, number })
    }

    /// In a full window keys are fed only when there is nothing else that anyone may take.
    fn has_room_for_more(&self) -> bool {
        !self.window_is_full() || !self.queue.is_open()
    }

    /// Without order nothing is read from here on.
    pub(super) fn unordered_end(&self) -> i64 {
        self.window.start() + 2 * i64::from(self.config.record_locks_max)
    }

    /// Without order there are no queues to run low: spans of before empty from the first on, as far as Kafka's limit
    /// lets records go out.
    fn first_unordered(&self) -> Option<KeyHash> {
        let end = self.unordered_end();
        let near = self.queue.spans().by_first().take_while(|span| span.0 < end);
        near.map(|span| span.1)
            .find(|&key| self.queue.spans().get(key).is_some_and(|span| span.finding.is_none()))
    }

    /// A look-up has ended: what it found of the key that is not done comes into its queue.
    pub(crate) fn refilled(&mut self, look_up: &LookUp, found: &KeyFound) {
        if !self.queue.spans_mut().found(look_up.key, look_up.number) {
            // The share-partition begins elsewhere since.
            return;
        }
        let records: Vec<(i64, u32)> = found
            .records
            .iter()
            .filter(|record| record.offset >= look_up.from && record.offset < look_up.upper)
            .map(|record| (record.offset.get(), record.bytes))
            .filter(|&(offset, _)| self.is_spilled(offset))
            .collect();
        let next = found.next.get().clamp(look_up.from.get(), look_up.upper.get());
        self.refill(look_up.key, next, &records, found.records.len() as u64);
        if records.is_empty() {
            // A replay may look there once more.
            self.queue.spans_mut().go_on_with(look_up.key);
        } else {
            self.note_event(&Event::Refilled { key: look_up.key, next, records });
        }
    }

    /// The look-up could not be made: it is tried again.
    pub(crate) fn look_up_failed(&mut self, look_up: &LookUp) {
        self.queue.spans_mut().found(look_up.key, look_up.number);
        self.queue.span_changed(&self.window, look_up.key);
    }

    /// What [`Event::Refilled`] says; `found` records were found, those that are done included.
    pub(super) fn refill(&mut self, key: KeyHash, next: i64, records: &[(i64, u32)], found: u64) {
        for &(offset, bytes) in records {
            if self.is_spilled(offset) {
                let slot = Slot { key: Some(key), bytes, scanned: true, ..unscanned() };
                self.window.insert(offset, slot);
                self.enqueue(offset, &slot);
            }
        }
        self.queue.spans_mut().advance(key, next, found);
        self.queue.span_changed(&self.window, key);
        self.settle_unslotted();
    }

    /// Not done, and without a slot.
    pub(super) fn is_spilled(&self, offset: i64) -> bool {
        self.window.is_unsettled(offset) && self.window.get(offset).is_none()
    }

    /// Where all spans and pages begin at or behind an offset, what lies before it without a slot has left the log.
    pub(super) fn settle_unslotted(&mut self) {
        let span = self.queue.spans().first().map(|span| span.0);
        let end = span.into_iter().chain(self.pages.lowest()).min().unwrap_or(i64::MAX);
        let lost = self.window.settle_unslotted(end);
        self.counters.left_log += lost.unsigned_abs();
        self.window.advance();
    }

    /// Whether every record below the scan offset that is not done has a slot.
    pub(super) fn is_whole(&self) -> bool {
        self.queue.spans().len() == 0 && self.queue.resting().is_empty() && self.pages.keyless() == 0
    }

    /// The log begins at `at`: spans and pages that begin before it hold less now.
    pub(super) fn shrink_spilled(&mut self, at: i64) {
        for key in self.queue.spans_mut().remove_below(at) {
            self.queue.span_changed(&self.window, key);
        }
        self.pages.log_started(at);
    }

    /// Keys that wait for a retry: in memory and in pages. Records that keep no order count as one each.
    pub(crate) fn waiting_keys(&self) -> usize {
        self.queue.waiting_keys() + self.keyless_waits + self.resting_keys() - self.pages.parked()
    }

    /// Keys that wait for a retry or are parked, about.
    pub(crate) fn stuck_keys(&self) -> usize {
        self.waiting_keys() + self.stops.parked_about() + self.pages.parked()
    }

    /// What of both is in pages.
    pub(crate) fn resting_keys(&self) -> usize {
        self.queue.resting().len() + self.pages.keyless()
    }

    /// Why it takes nothing more in, where a bound is the reason.
    pub(crate) fn scan_bound(&self) -> Option<Bound> {
        if self.config.order == ShareOrder::None {
            return (self.window.scan() >= self.unordered_end()).then_some(Bound::Span);
        }
        if self.stuck_keys() as u64 > self.config.stuck_keys_max {
            return Some(Bound::StuckKeys);
        }
        self.window_is_full().then_some(Bound::WindowBytes)
    }

    /// Whether a scan that is under way takes no more in. Without order it takes what it has found: Kafka's limit is one of
    /// what goes out.
    pub(super) fn takes_no_more(&self) -> bool {
        self.keeps_order() && self.scan_bound().is_some()
    }

    /// Whether no more records are taken in. An eighth is left, since a record costs more in a member's hands or while it
    /// waits; and what comes back from pages has an eighth for itself. Records that are at hand may always take an eighth,
    /// however much else there is: that would not become less by waiting.
    pub(super) fn window_is_full(&self) -> bool {
        let bytes_max = self.config.window_bytes_max;
        let parts = if self.pages.first_due().is_some() { 6 } else { 7 };
        let at_hand = self.window.slots_bytes() + self.queue.queued_bytes();
        self.config.order == ShareOrder::Key
            && self.heap_bytes() >= bytes_max / 8 * parts
            && at_hand >= bytes_max / 8
    }
}
