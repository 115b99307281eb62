//! Looks at a share-partition for people: where it stands, its worst keys, and why a record is not delivered.
//!
//! Nothing here changes anything. The work is bounded by [`LOOK_MAX`] records, whatever the window holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::{KeyHash, Offset};

use super::ShareCounters;
use super::admin::{KeyLine, KeyRef, KeySpan, LOOK_MAX, ShareKeys, StoppedKey, Why};
use super::observe::Bound;
use super::partition::SharePartition;
use super::stops::{Stop, WaitsFor};
use super::window::{RecordState, Slot};
use crate::time::{Mono, Now};

/// What only the machine knows.
pub(crate) struct Outside<'a> {
    pub(crate) now: Now,
    /// Where the records end that the group may see.
    pub(crate) upper: i64,
    /// Until when a member whose connections are gone keeps what it holds; `None`: it has some.
    pub(crate) gone_until: &'a dyn Fn(&str) -> Option<Mono>,
    /// Why dead letters wait.
    pub(crate) trouble: Option<super::admin::DeadLetterTrouble>,
}

impl SharePartition {
    /// Where it stands. `top` bounds each list.
    pub(crate) fn look(&self, outside: &Outside<'_>, top: usize, questions: &[KeyRef]) -> ShareKeys {
        let mut answer = ShareKeys {
            start: Offset(self.window.start()),
            scan: Offset(self.window.scan()),
            end: Offset(outside.upper),
            lag: self.lag(outside.upper),
            in_flight: self.in_hands() as u64,
            ready: self.queue.ready_len() as u64,
            leased_keys: self.queue.leased_keys() as u64,
            waiting: self.waiting_keys() as u64,
            parked: self.parked_keys() as u64,
            following: self.following_keys() as u64,
            dead_letters: self.letters() as u64,
            spilled: self.queue.spans().records(),
            spans: self.spans(top),
            bound: self.bound(),
            dead_letter_trouble: outside.trouble.filter(|_| self.has_dead_letters()),
            // What is stored of them is the machine's to tell.
            counters: ShareCounters::default(),
            stopped: self.stopped(top),
            answers: questions.iter().map(|&question| self.why(outside, question)).collect(),
            ..ShareKeys::default()
        };
        let (keys, complete) = self.keys_at_hand(LOOK_MAX);
        answer.complete = complete;
        answer.by_age = top_of(&keys, top, |line| std::cmp::Reverse(line.offset.get()));
        answer.by_backlog = top_of(&keys, top, |line| line.backlog);
        answer.by_deliveries = top_of(&keys, top, |line| line.deliveries);
        answer.by_deliveries.retain(|line| line.deliveries > 0);
        answer
    }

    /// Records that wait for the dead-letter topic.
    pub(crate) fn letters(&self) -> usize {
        self.stops.letters_len() + self.replays.values().map(|replay| replay.part.letters()).sum::<usize>()
    }

    /// Keys that wait for somebody's hand, and records that do so alone.
    pub(crate) fn parked_keys(&self) -> usize {
        let replayed: usize = self.stopped_replays().map(Self::parked_keys).sum();
        let keys = self.stopped_keys() - self.following_keys() + self.pages.parked();
        keys + self.parked_alone().count() + replayed
    }

    /// Keys that are parked or followed. Without order no key is: what is parked then are records.
    pub(crate) fn stopped_keys(&self) -> usize {
        if self.keeps_order() { self.stops.keys_len() } else { 0 }
    }

    /// Keys whose records go to the dead-letter topic.
    pub(crate) fn following_keys(&self) -> usize {
        if self.keeps_order() { self.stops.following_len() } else { 0 }
    }

    /// Replays whose keys nothing else has stopped.
    fn stopped_replays(&self) -> impl Iterator<Item = &Self> {
        let stopped = self.replays.iter().filter(|(key, _)| self.stops.key(**key).is_none());
        stopped.map(|(_, replay)| &replay.part)
    }

    /// The first record that is not done, where there is one below `upper`.
    pub(crate) fn oldest(&self, upper: i64) -> Option<i64> {
        Some(self.window.start()).filter(|&start| start < self.window.scan().max(upper))
    }

    /// The bound that is hit, if one is.
    pub(crate) fn bound(&self) -> Option<Bound> {
        if self.locks_are_full() { Some(Bound::RecordLocks) } else { self.scan_bound() }
    }

    /// Keys of the oldest `max` unsettled records, and whether that were all.
    pub(crate) fn keys_at_hand(&self, max: usize) -> (Vec<KeyLine>, bool) {
        let mut lines: BTreeMap<KeyHash, KeyLine> = BTreeMap::new();
        for (offset, slot) in self.window.slots().take(max) {
            let Some(key) = self.key_of(slot).filter(|_| slot.scanned) else { continue };
            let line = lines.entry(key).or_insert(KeyLine {
                key,
                offset: Offset(offset),
                backlog: 0,
                deliveries: slot.count,
            });
            line.backlog += 1;
        }
        for (key, span) in self.queue.spans().iter().take(max) {
            let first = Offset(span.first);
            let line = lines.entry(key).or_insert(KeyLine { key, offset: first, backlog: 0, deliveries: 0 });
            line.backlog += span.count;
        }
        (lines.into_values().collect(), self.window.len() <= max)
    }

    /// The longest spans.
    fn spans(&self, top: usize) -> Vec<KeySpan> {
        let spans = self.queue.spans().iter().take(LOOK_MAX);
        let mut spans: Vec<KeySpan> = spans
            .map(|(key, span)| KeySpan { key, first: Offset(span.first), records: span.count })
            .collect();
        spans.sort_by_key(|span| std::cmp::Reverse(span.records));
        spans.truncate(top);
        spans
    }

    /// The keys and lone records that are stopped for longest.
    fn stopped(&self, top: usize) -> Vec<StoppedKey> {
        let keys = self.stops.keys().filter(|_| self.keeps_order()).map(|(key, stop)| StoppedKey {
            key: Some(key),
            offset: Offset(stop.at),
            deliveries: stop.deliveries,
            since_ms: stop.wall_ms,
            follows: stop.follows,
            reason: stop.reason,
        });
        let lone = self.parked_alone().map(|(offset, stop, slot)| StoppedKey {
            key: self.key_of(slot),
            offset: Offset(offset),
            deliveries: slot.count,
            since_ms: stop.wall_ms,
            follows: false,
            reason: stop.reason,
        });
        let replayed = self.stopped_replays().flat_map(|part| part.stopped(top));
        let mut stopped: Vec<StoppedKey> = keys.chain(lone).take(LOOK_MAX).chain(replayed).collect();
        stopped.sort_by_key(|stopped| (stopped.since_ms, stopped.offset));
        stopped.truncate(top);
        stopped
    }

    /// Parked records; one of a parked key is told with its key.
    fn parked_alone(&self) -> impl Iterator<Item = (i64, &Stop, &Slot)> {
        let scanned = self.stops.parked().filter_map(|(offset, stop)| {
            let slot = self.window.get(offset).filter(|slot| slot.scanned)?;
            Some((offset, stop, slot))
        });
        scanned.filter(|(_, _, slot)| self.key_of(slot).is_none_or(|key| self.stops.key(key).is_none()))
    }

    /// Why a record, or the next one of a key, is not delivered.
    pub(crate) fn why(&self, outside: &Outside<'_>, question: KeyRef) -> Why {
        match question {
            KeyRef::Offset(offset) => self.why_record(outside, offset.get()),
            KeyRef::Key(_) if !self.keeps_order() => Why::UnknownKey,
            KeyRef::Key(key) if self.replays.contains_key(&key) => {
                let part = &self.replays[&key].part;
                let first = part.first_of(key).into_iter().chain(self.first_of(key)).min();
                first.map_or_else(
                    || self.why_replay(outside, key).unwrap_or(Why::BehindReplay),
                    |first| self.why_record(outside, first),
                )
            }
            KeyRef::Key(key) => match (self.first_of(key), self.stops.key(key)) {
                (Some(first), _) => self.why_record(outside, first),
                (None, Some(stop)) if !stop.follows => {
                    Why::Parked { since_ms: stop.wall_ms, offset: Offset(stop.at) }
                }
                (None, _) if self.queue.resting().contains(key) => self.why_resting(outside),
                // Nothing of it is open: what comes of it goes there.
                (None, Some(stop)) => Why::DeadLetter { since_ms: stop.wall_ms, trouble: outside.trouble },
                (None, None) => match self.read_bound() {
                    Some(bound) if self.window.scan() < outside.upper => Why::NotScannedBound(bound),
                    _ => Why::UnknownKey,
                },
            },
        }
    }

    fn why_record(&self, outside: &Outside<'_>, offset: i64) -> Why {
        if let Some((key, part)) = self.replay_of(offset) {
            let of_its_own = part.why_record(outside, offset);
            return match of_its_own {
                Why::Ready => self.why_replay(outside, key).unwrap_or(Why::Ready),
                _ => of_its_own,
            };
        }
        let Some(slot) = self.window.get(offset) else {
            return match self.read_bound() {
                _ if !self.window.is_unsettled(offset) => Why::Done,
                // Whose it is only its key's span or page tells.
                _ if offset < self.window.scan() => self.why_away(outside, offset),
                Some(bound) if offset < outside.upper => Why::NotScannedBound(bound),
                _ => Why::NotScanned,
            };
        };
        if slot.is_out() {
            return self.why_out(outside, slot);
        }
        if !slot.scanned {
            return Why::NotScanned;
        }
        if let Some(stop) = self.stops.get(offset) {
            return match stop.waits_for {
                WaitsFor::Hand => Why::Parked { since_ms: stop.wall_ms, offset: Offset(offset) },
                WaitsFor::DeadLetter => Why::DeadLetter { since_ms: stop.wall_ms, trouble: outside.trouble },
            };
        }
        if let Some(key) = self.key_of(slot)
            && let Some(why) = self.why_key(outside, key, offset)
        {
            return why;
        }
        if slot.state == RecordState::Delayed
            && let Some((_, end)) = self.waits.get(&offset)
        {
            return Why::Retry { until_ms: wall(outside.now, *end) };
        }
        if self.locks_are_full() { Why::Bound(Bound::RecordLocks) } else { Why::Ready }
    }

    /// What of its key holds a queued record back.
    fn why_key(&self, outside: &Outside<'_>, key: KeyHash, offset: i64) -> Option<Why> {
        if let Some(stop) = self.stops.key(key) {
            return Some(if stop.follows {
                Why::DeadLetter { since_ms: stop.wall_ms, trouble: outside.trouble }
            } else {
                Why::Parked { since_ms: stop.wall_ms, offset: Offset(stop.at) }
            });
        }
        if self.replays.get(&key).is_some_and(|replay| offset >= replay.next(key)) {
            return Some(Why::BehindReplay);
        }
        let first = self.first_of(key).filter(|&first| first < offset);
        if let Some(first) = first {
            return Some(Why::Behind { offset: Offset(first) });
        }
        // It is the first, and later ones are out: it waits for their holder.
        let (out, _) = self.queue.first_out(key)?;
        Some(self.why_out(outside, self.window.slot(out)))
    }

    /// What of its key, beside the replay itself, holds a replay back; as [`SharePartition::tend_replays`] has it.
    fn why_replay(&self, outside: &Outside<'_>, key: KeyHash) -> Option<Why> {
        if let Some(stop) = self.stops.key(key).filter(|stop| !stop.follows) {
            return Some(Why::Parked { since_ms: stop.wall_ms, offset: Offset(stop.at) });
        }
        if self.queue.resting().contains(key) {
            return Some(self.why_resting(outside));
        }
        let next = self.replays.get(&key)?.next(key);
        if let Some(first) = self.queue.first(key).filter(|&first| first < next) {
            return Some(Why::Behind { offset: Offset(first) });
        }
        let (out, _) = self.queue.first_out(key)?;
        Some(self.why_out(outside, self.window.slot(out)))
    }

    /// Of a record without a slot: where no span has it, it rests in a page.
    fn why_away(&self, outside: &Outside<'_>, offset: i64) -> Why {
        let mut spans = self.queue.spans().iter().take(LOOK_MAX);
        let spilled = spans.any(|(_, span)| (span.first..=span.last).contains(&offset));
        if spilled { Why::NotScanned } else { self.why_resting(outside) }
    }

    /// Of what rests in some page: its retry is not due before the first page is, and none may ever be.
    fn why_resting(&self, outside: &Outside<'_>) -> Why {
        let due = self.pages.first_due();
        due.map_or(Why::NotScanned, |(due, _)| Why::Retry { until_ms: wall(outside.now, due) })
    }

    /// Who has a record, and until when.
    fn why_out(&self, outside: &Outside<'_>, slot: &Slot) -> Why {
        let Some(lock) = self.holders.lock(slot.lock) else { return Why::NotScanned };
        let member = Arc::clone(&self.holders.get(lock.holder).name);
        let Some(ends) = lock.ends else { return Why::Answering { member } };
        let until_ms = wall(outside.now, ends);
        if slot.state == RecordState::Recalled {
            return Why::Recalled { member, until_ms };
        }
        match (outside.gone_until)(&member) {
            Some(gone_until) => Why::HeldByLost { member, until_ms: wall(outside.now, ends.min(gone_until)) },
            None => Why::Held { member, until_ms },
        }
    }
}

/// A point of the monotonic clock on the wall's.
pub(super) fn wall(now: Now, at: Mono) -> i64 {
    now.wall_ms + (at - now.mono).as_ms_ceil()
}

/// The `top` lines that rank highest, highest first.
fn top_of<K: Ord>(lines: &[KeyLine], top: usize, rank: impl Fn(&KeyLine) -> K) -> Vec<KeyLine> {
    let mut lines = lines.to_vec();
    let order = |a: &KeyLine, b: &KeyLine| rank(b).cmp(&rank(a)).then(a.offset.cmp(&b.offset));
    if lines.len() > top {
        if top == 0 {
            return Vec::new();
        }
        lines.select_nth_unstable_by(top - 1, order);
        lines.truncate(top);
    }
    lines.sort_unstable_by(order);
    lines
}
