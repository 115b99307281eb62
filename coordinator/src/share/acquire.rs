//! Acquiring: which ready record goes to a fetch next, with order and without.

use std::sync::Arc;

use records::ids::Offset;

use super::ShareOrder;
use super::event::Event;
use super::holders::Lock;
use super::key_queue::{Open, Source};
use super::partition::SharePartition;
use super::recorder::ranges_of;
use super::window::{RecordState, Slot};
use crate::command::DeliveryNumber;
use crate::plan::share_fetch::Bidder;
use crate::reply::AcquiredRange;
use crate::time::{Mono, Now};

/// Records that do not fit into a fetch are passed over this often before it is full.
const PASSES_MAX: u32 = 32;
/// A run of records near their limit is measured this far at most.
const THROTTLED_RUN_MAX: usize = 4_000;

/// What a member took in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A record of a key that it did not hold.
    Key,
    /// A keyless record.
    Keyless,
    /// Nothing that ends a turn, and nothing more is to be had.
    Done,
}

/// What members that ask may take between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply {
    /// Keys that nobody holds; none where they have their homes.
    pub(crate) keys: usize,
    pub(crate) keyless: usize,
    /// Records that may go out.
    pub(crate) locks: usize,
}

impl SharePartition {
    pub(crate) fn order(&self) -> ShareOrder {
        self.config.order
    }

    /// How many keys a member holds here. Also sets how many records of one key it may have in flight.
    pub(crate) fn keys_held(&mut self, member: &str, per_key_max: usize) -> usize {
        let Some(holder) = self.holders.find(member) else { return 0 };
        self.queue.limit(&self.window, holder, member, per_key_max);
        self.queue.load(holder).keys
    }

    /// As much as this fetch may take is about to be granted.
    pub(crate) fn foresee(&self, bidder: &Bidder) {
        let home = self.queue.home_of(&bidder.member);
        self.queue.foresee_free(&self.window, home, bidder.budget.records_left());
    }

    /// Records of ordered keys that a member holds here.
    pub(crate) fn keyed_records_held(&self, member: &str) -> usize {
        let replayed = self.replays.values().map(|replay| replay.part.keyed_records_held(member));
        self.holders.find(member).map_or(0, |holder| self.queue.load(holder).records)
            + replayed.sum::<usize>()
    }

    /// When a member got the oldest of what it holds here.
    pub(crate) fn holds_since(&self, member: &str) -> Option<Mono> {
        let here = self.holders.find(member).and_then(|holder| self.holders.oldest(holder));
        let replayed = self.replays.values().filter_map(|replay| replay.part.holds_since(member));
        here.into_iter().chain(replayed).min()
    }

    /// Whether records of `bytes` bytes are ready, as far as a fetch of `member` could take them.
    pub(crate) fn ready_bytes(&self, member: &str, bytes: u64) -> u64 {
        let holder = self.holders.find(member).unwrap_or(0);
        let mut sum = 0;
        for offset in self.queue.ready_for(holder, self.queue.home_of(member)) {
            sum += u64::from(self.window.slot(offset).bytes);
            if sum >= bytes {
                return sum;
            }
        }
        for replay in self.replays.values() {
            sum += replay.part.ready_bytes(member, bytes - sum);
            if sum >= bytes {
                return sum;
            }
        }
        sum
    }

    /// Keys that are ready or leased: what members share.
    pub(crate) fn keys_to_share(&self) -> usize {
        self.queue.ready_keys() + self.queue.leased_keys()
    }

    /// Whether the bound on records in hands is hit.
    pub(crate) fn locks_are_full(&self) -> bool {
        self.config.order == ShareOrder::Key && self.locks_left() == 0
    }

    /// Records that may go out beside those that are in hands.
    fn locks_left(&self) -> usize {
        (self.config.record_locks_max as usize).saturating_sub(self.out)
    }

    /// What is there for any member.
    pub(crate) fn supply(&self) -> Supply {
        let (keys, keyless) = self.queue.open_len();
        Supply { keys, keyless, locks: self.locks_left() }
    }

    /// Whether anything is ready that may go out now: without order, within the span.
    pub(super) fn may_go_out(&self) -> bool {
        if self.keeps_order() {
            return self.queue.ready_len() > 0;
        }
        let end = self.window.acquired_end().max(self.span_end());
        self.queue.peek_keyless(0).is_some_and(|offset| offset < end)
    }

    /// Without order nothing goes out from here on that never did before, as in Kafka.
    fn span_end(&self) -> i64 {
        self.window.start() + i64::from(self.config.record_locks_max)
    }

    /// One turn of a fetch, with key order: what is ready of the keys that the member holds already, up to and
    /// with the first record of a key that it does not hold, oldest first.
    pub(crate) fn take_turn(
        &mut self,
        bidder: &mut Bidder,
        keys: usize,
        now: Now,
        delivery: &mut dyn FnMut() -> u64,
    ) -> Turn {
        let holder = self.holders.find(&bidder.member).unwrap_or(0);
        let home = self.queue.home_of(&bidder.member);
        let mut passes = 0;
        while !bidder.budget.is_spent() && !self.locks_are_full() && passes < PASSES_MAX {
            let open = Open {
                keys: keys < bidder.keys_max && bidder.budget.fits_key(true),
                own: bidder.budget.fits_key(false),
            };
            let Some((offset, source)) = self.queue.peek(holder, home, &bidder.cursor, open) else { break };
            bidder.cursor.pass(offset, source);
            let bytes = self.window.slot(offset).bytes;
            if !bidder.budget.fits(bytes) {
                passes += 1;
                continue;
            }
            match source {
                Source::Keyless => bidder.budget.take(bytes),
                Source::Own => bidder.budget.take_keyed(bytes, false),
                Source::Free | Source::Tired => bidder.budget.take_keyed(bytes, true),
            }
            self.queue.took(source);
            self.pick(bidder, offset, now, delivery);
            match source {
                Source::Own => {}
                Source::Keyless => return Turn::Keyless,
                Source::Free | Source::Tired => return Turn::Key,
            }
        }
        Turn::Done
    }

    /// A whole fetch without order, as Kafka's `SharePartition.acquire`: ascending; whole stored batches unless the
    /// limit is strict; no farther from the start offset than the span allows; and in small parts what is near its
    /// delivery limit.
    pub(crate) fn take_unordered(
        &mut self,
        bidder: &mut Bidder,
        now: Now,
        delivery: &mut dyn FnMut() -> u64,
    ) {
        let limit = i32::from(self.config.delivery_count_max);
        let throttled_from = 2.max((limit + 1) / 2);
        let span_end = self.span_end();
        let mut from = 0;
        let mut throttled_left = None;
        while let Some(offset) = self.queue.peek_keyless(from) {
            let slot = *self.window.slot(offset);
            let count = i32::from(slot.count);
            let behind = bidder.picks.last().copied();
            // Within a stored batch a soft limit does not bind.
            let inside = !bidder.strict
                && behind.is_some_and(|last| last + 1 == offset && !self.window.slot(last).batch_end);
            if !inside && (bidder.budget.is_spent() || !bidder.budget.fits_bytes(slot.bytes)) {
                break;
            }
            if bidder.strict && !bidder.budget.fits(slot.bytes) {
                break;
            }
            let is_new = offset >= self.window.acquired_end();
            if is_new && offset >= span_end && !inside {
                break;
            }
            if count >= throttled_from {
                let first = bidder.picks.is_empty();
                if !first && throttled_left.is_none() {
                    break;
                }
                let alone = limit > 2 && count == limit - 1;
                if alone && !first {
                    break;
                }
                let left = throttled_left.get_or_insert_with(|| {
                    if alone { 1 } else { self.throttled_part(offset, count, throttled_from) }
                });
                if *left == 0 {
                    break;
                }
                *left -= 1;
            } else if throttled_left.is_some() {
                break;
            }
            from = offset + 1;
            bidder.budget.take(slot.bytes);
            self.pick(bidder, offset, now, delivery);
            if throttled_left == Some(0) {
                break;
            }
        }
    }

    /// How many of a run of records near their limit go out together: half of it, a quarter, … (Kafka's
    /// `acquireSubsetBatchRecords`).
    fn throttled_part(&self, offset: i64, count: i32, throttled_from: i32) -> usize {
        let near = |&(_, slot): &(i64, &super::window::Slot)| i32::from(slot.count) >= throttled_from;
        let behind = self.window.range(offset, i64::MAX).take(THROTTLED_RUN_MAX).take_while(near).count();
        let before = self.window.range(0, offset - 1).rev().take(THROTTLED_RUN_MAX).take_while(near).count();
        ((before + behind) >> (count - throttled_from + 1)).max(1)
    }

    /// One record goes to a fetch.
    pub(super) fn pick(
        &mut self,
        bidder: &mut Bidder,
        offset: i64,
        now: Now,
        delivery: &mut dyn FnMut() -> u64,
    ) {
        let lock = *bidder.lock.get_or_insert_with(|| {
            let holder = self.holders.find_or_add(&bidder.member);
            self.queue.limit(&self.window, holder, &bidder.member, bidder.per_key_max);
            self.holders.open(Lock {
                holder,
                delivery: *bidder.delivery.get_or_insert_with(delivery),
                numbered: bidder.numbered,
                wall_ms: now.wall_ms,
                lock_ms: self.config.lock_ms,
                since: now.mono,
                ends: None,
                records: 0,
                restarted: false,
            })
        });
        self.hold(offset, lock);
        bidder.picks.push(offset);
    }

    /// Notes what a fetch was granted, as one event.
    pub(crate) fn close_grant(&mut self, bidder: &mut Bidder, now: Now) {
        bidder.picks.sort_unstable();
        let Some(lock) = bidder.lock.and_then(|lock| self.holders.lock(lock)) else { return };
        self.counters.granted += bidder.picks.len() as u64;
        let event = Event::Granted {
            member: Arc::clone(&bidder.member),
            delivery: lock.delivery,
            numbered: lock.numbered,
            wall_ms: now.wall_ms,
            lock_ms: lock.lock_ms,
            ranges: ranges_of(&bidder.picks),
        };
        self.note_event(&event);
    }

    /// The record as it is held under this delivery, here or in a replay.
    fn held_under(&self, delivery: u64, offset: i64) -> Option<&Slot> {
        let here = self.window.get(offset).filter(|slot| {
            slot.state == RecordState::Held
                && self.holders.lock(slot.lock).is_some_and(|lock| lock.delivery == delivery)
        });
        here.or_else(|| self.replays.values().find_map(|replay| replay.part.held_under(delivery, offset)))
    }

    /// What of these offsets is held under this delivery still: ascending ranges, merged where adjacent and alike;
    /// without order they also end with the stored batch that reaches `batch_size` (Kafka's `createBatches`).
    pub(crate) fn acquired(
        &self,
        delivery: u64,
        offsets: &[i64],
        batch_size: Option<i32>,
    ) -> Vec<AcquiredRange> {
        let mut ranges: Vec<AcquiredRange> = Vec::new();
        let mut cut = true;
        for &offset in offsets {
            let Some(slot) = self.held_under(delivery, offset) else { continue };
            let count = i16::try_from(slot.count).unwrap_or(i16::MAX).saturating_add(1);
            match ranges.last_mut() {
                Some(range) if !cut && range.last.next() == Offset(offset) && range.count == count => {
                    range.last = Offset(offset);
                }
                _ => ranges.push(AcquiredRange {
                    first: Offset(offset),
                    last: Offset(offset),
                    count,
                    delivery: DeliveryNumber(delivery),
                }),
            }
            let length = ranges.last().map_or(0, |range| range.last - range.first + 1);
            cut = slot.batch_end && batch_size.is_some_and(|size| length >= i64::from(size.max(1)));
        }
        ranges
    }
}
