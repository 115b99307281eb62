//! Acknowledging: accept, release, reject, gap and renew, for ranges of offsets.
//!
//! With key order they apply offset by offset (O3); without, all or nothing a partition, as Kafka's
//! `SharePartition.acknowledge`. The work follows what the member holds and the bytes that it sent, never the width
//! of a range.

use std::collections::BTreeMap;

use super::admin::StopReason;
use super::event::Settlement;
use super::partition::SharePartition;
use super::recorder::Change;
use super::retry;
use super::window::RecordState;
use super::{ShareError, ShareOrder};
use crate::command::AckRange;
use crate::time::{Micros, Mono, Now};

/// Acknowledgement types on the wire (KIP-932, KIP-1222).
const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;

/// What became of the acknowledgements of one partition in one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledged {
    /// One for all (KIP-932).
    pub(crate) error: Option<ShareError>,
    /// One a range (delivery numbers).
    pub(crate) results: Vec<Result<(), ShareError>>,
    /// Records of ordered keys that the member has worked off.
    pub(crate) worked: u32,
    /// When the youngest answer among them was handed out.
    pub(crate) since: Mono,
    /// Answers of which nothing is left.
    pub(crate) answers: u32,
}

impl Acknowledged {
    /// All of it failed alike.
    pub(crate) fn failed(error: ShareError, ranges: usize) -> Self {
        Self { error: Some(error), results: vec![Err(error); ranges], ..Self::default() }
    }
}

/// How a request acknowledges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Renewals may be in it.
    pub(crate) renew: bool,
    /// Ranges carry delivery numbers.
    pub(crate) numbered: bool,
}

impl SharePartition {
    /// Applies the acknowledgements of `member`.
    pub(crate) fn acknowledge(
        &mut self,
        now: Now,
        member: &str,
        ranges: &[AckRange],
        terms: Terms,
    ) -> Acknowledged {
        let faults: Vec<bool> = faults(ranges, terms);
        if !terms.numbered && faults.contains(&true) {
            return Acknowledged::failed(ShareError::InvalidRequest, ranges.len());
        }
        if let Some(error) = self.past_acquired(ranges).filter(|_| !terms.numbered) {
            return Acknowledged::failed(error, ranges.len());
        }
        if !self.config.renew && ranges.iter().any(|range| range.types.contains(&RENEW)) && !terms.numbered {
            return Acknowledged::failed(ShareError::InvalidRecordState, ranges.len());
        }
        if self.config.order == ShareOrder::None && !terms.numbered && !self.holds_all(member, ranges) {
            return Acknowledged::failed(ShareError::InvalidRecordState, ranges.len());
        }
        if self.keeps_order() {
            let slots = ranges.iter().flat_map(|range| self.window.range(range.first, range.last));
            self.queue.foresee(&self.window, slots.map(|(_, slot)| slot));
        }
        let mut outcome = Acknowledged::default();
        let mut renewed = BTreeMap::new();
        for (range, fault) in ranges.iter().zip(faults) {
            let result = if fault || self.is_past_acquired(range) {
                Err(ShareError::InvalidRequest)
            } else {
                self.acknowledge_range(now, member, range, terms, &mut renewed, &mut outcome)
            };
            if let Err(error) = result {
                outcome.error = Some(error);
            }
            outcome.results.push(result);
        }
        self.window.advance();
        outcome
    }

    /// Kafka's code for an offset past everything that was acquired is another one than for one not held, unless
    /// nothing is acquired and unsettled at all (`SharePartition.fetchSubMapForAcknowledgementBatch`).
    fn past_acquired(&self, ranges: &[AckRange]) -> Option<ShareError> {
        let code = match self.acquired_end() > self.window.start() {
            true => ShareError::InvalidRequest,
            false => ShareError::InvalidRecordState,
        };
        ranges.iter().any(|range| self.is_past_acquired(range)).then_some(code)
    }

    /// What lies below the start offset is not past anything: deleted records may lie beyond what was acquired.
    fn is_past_acquired(&self, range: &AckRange) -> bool {
        range.last >= self.acquired_end().max(self.window.start())
    }

    /// Behind the highest offset that was ever granted; a redrive grants what may never have been before.
    fn acquired_end(&self) -> i64 {
        let replays = self.replays.values().map(|replay| replay.part.window.acquired_end());
        replays.fold(self.window.acquired_end(), i64::max)
    }

    /// Whether the member holds every offset of every range that is not below the start offset.
    fn holds_all(&self, member: &str, ranges: &[AckRange]) -> bool {
        let holder = self.holders.find(member);
        let mut behind = i64::MIN;
        ranges.iter().all(|range| {
            let first = range.first.max(self.window.start());
            let twice = std::mem::replace(&mut behind, range.last) == range.first;
            if range.last < first {
                return true;
            }
            let held =
                holder.map_or(0, |holder| self.holders.get(holder).out.range(first, range.last).count());
            !twice && i64::try_from(held) == Ok(range.last - first + 1)
        })
    }

    fn acknowledge_range(
        &mut self,
        now: Now,
        member: &str,
        range: &AckRange,
        terms: Terms,
        renewed: &mut BTreeMap<u32, u32>,
        outcome: &mut Acknowledged,
    ) -> Result<(), ShareError> {
        self.window.advance();
        let first = range.first.max(self.window.start());
        // What is replayed is not done, although it may lie below the start offset.
        let (mut applied, below) = self.acknowledge_replayed(now, member, range, terms, first, outcome);
        if range.last < first {
            // Done already, or gone from the log: that is no fault of it.
            return below;
        }
        let holder = self.holders.find(member);
        let mut from = first;
        while let Some(offset) = holder.and_then(|holder| self.holders.held_in(holder, from, range.last)) {
            from = offset + 1;
            // An earlier release in this very range may have taken it away (delivery numbers).
            let Some(slot) = self.window.get(offset).copied().filter(super::window::Slot::is_out) else {
                continue;
            };
            let Some(lock) = self.holders.lock(slot.lock).cloned() else { continue };
            if terms.numbered && range.delivery.is_none_or(|number| number.0 != lock.delivery) {
                continue;
            }
            applied += 1;
            let kind = type_at(range, offset);
            if kind == RENEW {
                let (wall_ms, lock_ms) = (now.wall_ms, self.config.lock_ms);
                let ends = Some(now.mono + Micros::from_ms(lock_ms));
                self.renew(offset, wall_ms, lock_ms, ends, renewed);
                self.note(Change::Renewed { wall_ms, lock_ms }, offset);
                continue;
            }
            let keyed = self.key_of(&slot).is_some();
            outcome.worked += u32::from(keyed);
            outcome.since = outcome.since.max(lock.since);
            outcome.answers += u32::from(keyed && lock.records == 1);
            if slot.state == RecordState::Recalled {
                self.counters.acknowledged_recalled += 1;
                self.give_back(offset, false, None, now);
                self.note(Change::Returned { counted: false, wait: None }, offset);
            } else {
                self.acknowledge_held(
                    now,
                    offset,
                    kind,
                    slot.count,
                    range.delay_ms.filter(|_| terms.numbered),
                );
                if let Some(reason) = range.reason.as_ref().filter(|_| terms.numbered) {
                    self.explain(offset, reason);
                }
            }
        }
        if applied == range.last - first + 1 { below } else { Err(ShareError::InvalidRecordState) }
    }

    /// Applies a range to the records of replays in it, one by one; says to how many of them at or above `start`, and
    /// whether to all below it.
    fn acknowledge_replayed(
        &mut self,
        now: Now,
        member: &str,
        range: &AckRange,
        terms: Terms,
        start: i64,
        outcome: &mut Acknowledged,
    ) -> (i64, Result<(), ShareError>) {
        let mut at_or_above = 0;
        let mut below = Ok(());
        for replay in self.replays.values_mut() {
            let part = &mut replay.part;
            let offsets: Vec<i64> =
                part.window.range(range.first, range.last).map(|(offset, _)| offset).collect();
            for offset in offsets {
                let types = vec![type_at(range, offset)];
                let one = AckRange { first: offset, last: offset, types, ..range.clone() };
                let renewed = &mut BTreeMap::new();
                let result = part.acknowledge_range(now, member, &one, terms, renewed, outcome);
                if offset < start {
                    below = below.and(result);
                } else {
                    at_or_above += i64::from(result.is_ok());
                }
            }
            part.window.advance();
        }
        (at_or_above, below)
    }

    fn acknowledge_held(&mut self, now: Now, offset: i64, kind: i8, count: u16, delay_ms: Option<i64>) {
        let how = match kind {
            ACCEPT => Settlement::Accepted,
            REJECT => return self.poison(offset, StopReason::Rejected, now),
            GAP if self.config.order == ShareOrder::None => Settlement::Gap,
            _ => return self.release(now, offset, kind, count, delay_ms),
        };
        self.settle(offset, how);
        self.note(Change::Settled(how), offset);
    }

    /// A release, or with key order a gap that names a record which is there.
    fn release(&mut self, now: Now, offset: i64, kind: i8, count: u16, delay_ms: Option<i64>) {
        self.counters.gap_releases += u64::from(kind == GAP);
        let key = self.key_of(self.window.slot(offset));
        if self.at_limit(count) {
            self.poison(offset, StopReason::LimitReached, now);
        } else {
            let wait = retry::wait_after(&self.config, count + 1, delay_ms, now);
            self.give_back(offset, true, wait, now);
            self.note(Change::Returned { counted: true, wait }, offset);
        }
        if let Some(key) = key {
            self.recall_behind(key, offset, now);
        }
    }
}

/// Which ranges are malformed (Kafka's `validateAcknowledgementBatches`, and unknown types).
fn faults(ranges: &[AckRange], terms: Terms) -> Vec<bool> {
    let mut behind = 0;
    ranges
        .iter()
        .map(|range| {
            let ordered = range.first >= behind && range.first <= range.last;
            behind = behind.max(range.last);
            let width = i128::from(range.last) - i128::from(range.first) + 1;
            let typed = range.types.len() == 1 || i128::try_from(range.types.len()) == Ok(width);
            let known = range.types.iter().all(|&kind| match kind {
                GAP | ACCEPT | RELEASE | REJECT => true,
                RENEW => terms.renew || terms.numbered,
                _ => false,
            });
            !(ordered && typed && known && (!terms.numbered || range.delivery.is_some()))
        })
        .collect()
}

fn type_at(range: &AckRange, offset: i64) -> i8 {
    let index = if range.types.len() == 1 { 0 } else { usize::try_from(offset - range.first).unwrap_or(0) };
    range.types.get(index).copied().unwrap_or(GAP)
}
