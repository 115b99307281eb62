//! What a share-partition learns: of records, from scans of the log; of its holders, after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::Offset;

use super::admin::StopReason;
use super::event::{Settlement, Wait};
use super::holders::Survivor;
use super::partition::{SharePartition, unscanned};
use super::recorder::Change;
use super::retry;
use super::window::{RecordState, Slot};
use super::{ShareOrder, key_queue::KeyQueue};
use crate::io::{Scanned, ScannedKind, ScannedRecord};
use crate::time::{Micros, Now};

/// Records that are looked ahead for are this many at most: more would only make the queues longer.
const READY_AHEAD_MAX: usize = 16 * 1_024;
/// However well the log is compressed, a scan reads so much of it.
const SCAN_BYTES_MIN: u64 = 32 * 1_024;

/// Why a share-partition grants less than the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `sluice.share.window.bytes`: the window is full of records that cannot go out.
    WindowBytes,
    /// `sluice.share.stuck.keys.max`: so many keys wait for a retry or are parked.
    StuckKeys,
    /// `share.partition.max.record.locks`: so many records are in members' hands.
    RecordLocks,
    /// `share.partition.max.record.locks`, order `none`: the distance from the start offset (Kafka's limit).
    Span,
}

impl SharePartition {
    /// Takes in what a scan from the scan offset found; says whether records were found.
    pub(crate) fn scanned(&mut self, scanned: &Scanned, now: Now) -> bool {
        let before = self.queue.ready_len();
        let whole = self.is_whole();
        let mut cursor = self.window.scan();
        let mut next = scanned.next.get();
        self.scanned = ScanSize::of(scanned).unwrap_or(self.scanned);
        'scan: for batch in &scanned.batches {
            match &batch.kind {
                ScannedKind::Data(records) => {
                    for (index, record) in records.iter().enumerate() {
                        let offset = record.offset.get();
                        if offset < cursor {
                            continue;
                        }
                        self.gap(cursor, offset - 1);
                        if offset >= self.recovery_until && self.takes_no_more() {
                            // It goes on here when there is room. What a restart has left unread is in the same scan.
                            (cursor, next) = (offset, offset);
                            break 'scan;
                        }
                        self.found(record, index + 1 == records.len(), now);
                        cursor = offset + 1;
                    }
                }
                ScannedKind::Control | ScannedKind::Aborted => {}
                ScannedKind::Corrupt => {
                    let first = batch.base.get().max(cursor);
                    self.gap(cursor, first - 1);
                    self.poison_unread(first, batch.last.get(), now);
                    cursor = cursor.max(batch.last.get() + 1);
                }
            }
            self.gap(cursor, batch.last.get());
            cursor = cursor.max(batch.last.get() + 1);
        }
        self.gap(cursor, next - 1);
        self.window.scanned_to(cursor.max(next), whole && self.is_whole());
        self.window.advance();
        self.queue.ready_len() != before
    }

    /// Whether so much of the log is in the window, or spans tell of more of it, that reading on mostly makes that longer.
    pub(crate) fn reads_far(&self) -> bool {
        let ScanSize { records, cached, .. } = self.scanned;
        let bytes = self.window.len() as u64 * cached / records.max(1);
        bytes >= self.limits.read_far_bytes || self.queue.spans().len() > 0
    }

    /// How much of the log the next scan may read, for `bytes_max` of it in the batch cache.
    pub(crate) fn scan_bytes_max(&self, bytes_max: u64) -> u64 {
        self.scanned.bytes_max(bytes_max)
    }

    /// Whether it is worth reading on below `upper`.
    pub(crate) fn wants_scan(&self, upper: i64) -> bool {
        self.window.scan() < upper
            && (self.window.scan() < self.recovery_until
                || (self.read_bound().is_none() && self.queue.ready_len() < READY_AHEAD_MAX))
    }

    /// The bound that keeps it from reading on, if one does. While members hold as many records as they may, what lies far
    /// could not go out.
    pub(super) fn read_bound(&self) -> Option<Bound> {
        let locks = (self.locks_are_full() && self.reads_far()).then_some(Bound::RecordLocks);
        self.scan_bound().or(locks)
    }

    /// Whether a restart's leftovers are all known, so that granting is safe.
    pub(crate) fn may_grant(&self, upper: i64) -> bool {
        self.window.scan() >= self.recovery_until.min(upper)
    }

    fn found(&mut self, record: &ScannedRecord, batch_end: bool, now: Now) {
        let offset = record.offset.get();
        if !self.window.is_unsettled(offset) {
            return;
        }
        let known = self.window.get(offset).copied();
        let new = match known {
            Some(slot) if slot.scanned => return,
            Some(slot) => slot,
            None => match self.spilled_or_number(record.key, offset) {
                Some(entry) => Slot { entry, ..unscanned() },
                None => return,
            },
        };
        let wait = known.and_then(|_| self.forget_wait(offset));
        let slot = Slot { key: record.key, bytes: record.bytes, scanned: true, batch_end, ..new };
        self.window.insert(offset, slot);
        if let Some((wait, end)) = wait {
            self.insert_wait(offset, wait, end);
        }
        if slot.is_out() {
            self.lend(offset, &slot);
            // After a restart or reload: one before it came back when it was not known yet whose key this is.
            if let Some(key) = self.key_of(&slot)
                && let Some(first) = self.queue.first_waiting(&self.window, key, offset)
            {
                self.recall_behind(key, first, now);
            }
        } else {
            self.enqueue(offset, &slot);
            if slot.state == RecordState::Stopped {
                self.stop_key_of(offset);
            }
        }
    }

    /// Offsets without a record. What was known of them before a restart has left the log meanwhile.
    fn gap(&mut self, first: i64, last: i64) {
        if first > last {
            return;
        }
        let stale: Vec<(i64, bool)> =
            self.window.range(first, last).map(|(offset, slot)| (offset, slot.is_out())).collect();
        for &(offset, out) in &stale {
            if out {
                // Its holder still has to say what became of it.
                self.window.slot_mut(offset).scanned = true;
            } else {
                self.settle(offset, Settlement::Gap);
                self.note(Change::Settled(Settlement::Gap), offset);
            }
        }
        let mut from = first;
        for (offset, _) in stale {
            self.window.settle_gap(from, offset - 1);
            from = offset + 1;
        }
        self.window.settle_gap(from, last);
    }

    /// A stored batch that cannot be read goes the group's poison way, as one event.
    fn poison_unread(&mut self, first: i64, last: i64, now: Now) {
        let first = first.max(self.window.start());
        let mut from = first;
        while from <= last {
            let at = self.window.settled().next_absent(from);
            if at > last {
                break;
            }
            match self.window.get_mut(at) {
                // Its holder has to say what became of it; what is stopped waits on.
                Some(slot) if slot.is_out() || slot.state == RecordState::Stopped => slot.scanned = true,
                Some(_) => self.poison(at, StopReason::Corrupt, now),
                None => self.poison_unknown(at, now),
            }
            from = at + 1;
        }
    }

    /// Ends a recovery: gives locks their ends and opens the share-partition.
    ///
    /// After a restart of the broker (`survivors` is `None`) each lock has what is left of it, and what it ends
    /// with does not count; without order everything returns at once, as in Kafka. Where only this share-partition
    /// was loaded anew, locks that members know of go on as they were and all others return.
    pub(crate) fn recovered(
        &mut self,
        now: Now,
        log_start: i64,
        survivors: Option<&BTreeMap<u64, Survivor>>,
    ) {
        let locks: Vec<(u32, u64, i64, i64)> = self
            .holders
            .locks()
            .map(|(number, lock)| (number, lock.delivery, lock.wall_ms, lock.lock_ms))
            .collect();
        for (number, delivery, wall_ms, lock_ms) in locks {
            match survivors {
                Some(survivors) => match survivors.get(&delivery) {
                    Some(&Survivor { since, ends: Some(ends), restarted, .. }) => {
                        self.holders.begin(number, since, ends);
                        if restarted {
                            self.holders.set_restarted(number);
                        }
                    }
                    Some(Survivor { ends: None, .. }) => {}
                    None => self.return_lock(number, false, now),
                },
                None if self.config.order == ShareOrder::None => self.return_lock(number, false, now),
                None => {
                    let left = wall_ms.saturating_add(lock_ms).saturating_sub(now.wall_ms).clamp(0, lock_ms);
                    self.holders.set_restarted(number);
                    self.holders.ends(number, Some(now.mono + Micros::from_ms(left)));
                }
            }
        }
        for replay in self.replays.values_mut() {
            replay.part.recovered(now, log_start, survivors);
        }
        let ahead = self.window.range(self.window.scan(), i64::MAX).next_back();
        self.recovery_until = ahead.map_or(0, |(offset, _)| offset + 1);
        self.log_started(log_start);
        self.window.advance();
        // Theirs is what the locks say: it counts where they had it.
        for lock in survivors.into_iter().flat_map(BTreeMap::values).filter(|lock| lock.over) {
            self.release_member(&lock.holder, now);
        }
    }

    /// Locks that members know of, by delivery number: what [`SharePartition::recovered`] needs when this memory
    /// is dropped while the broker runs. `ended` are those whose end could not be stored.
    pub(crate) fn survivors(
        &mut self,
        mut ended: Vec<(u64, Survivor)>,
        known: impl Fn(u64) -> bool,
    ) -> BTreeMap<u64, Survivor> {
        let replays = self.replays.values_mut().map(|replay| &mut replay.part.holders);
        for holders in std::iter::once(&mut self.holders).chain(replays) {
            ended.extend(holders.survivors());
        }
        let mut survivors: BTreeMap<u64, Survivor> = BTreeMap::new();
        for (delivery, lock) in
            ended.into_iter().filter(|(delivery, lock)| lock.ends.is_some() || known(*delivery))
        {
            let Survivor { ends, over, restarted, .. } = lock;
            let survivor = survivors.entry(delivery).or_insert(lock);
            survivor.ends = survivor.ends.max(ends);
            survivor.over |= over;
            // One that was renewed since may be the only one that ended.
            survivor.restarted |= restarted;
        }
        survivors
    }

    /// Locks whose end the events that are about to be stored tell of.
    pub(crate) fn take_ended_locks(&mut self) -> Vec<(u64, Survivor)> {
        let mut ended = self.holders.take_ended();
        for replay in self.replays.values_mut() {
            ended.append(&mut replay.part.holders.take_ended());
        }
        ended
    }

    /// Every record in a member's hands: offset, member, and whether it was recalled.
    pub(crate) fn holders(&self) -> Vec<(Offset, Arc<str>, bool)> {
        let out = self.window.slots().filter(|(_, slot)| slot.is_out());
        out.filter_map(|(offset, slot)| {
            let lock = self.holders.lock(slot.lock)?;
            let name = Arc::clone(&self.holders.get(lock.holder).name);
            Some((Offset(offset), name, slot.state == RecordState::Recalled))
        })
        .chain(self.replays.values().flat_map(|replay| replay.part.holders()))
        .collect()
    }

    /// Members that hold records here.
    pub(crate) fn holder_names(&self) -> Vec<Arc<str>> {
        let holding = self.holders.all().filter(|(_, holder)| !holder.out.is_empty());
        let mut names: Vec<Arc<str>> = holding.map(|(_, holder)| Arc::clone(&holder.name)).collect();
        names.extend(self.replays.values().flat_map(|replay| replay.part.holder_names()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A record of a snapshot that waits.
    pub(super) fn delay(&mut self, offset: i64, wait: Wait, now: Now) {
        let slot = self.window.slot_mut(offset);
        slot.state = RecordState::Delayed;
        let slot = *slot;
        self.insert_wait(offset, wait, now.mono + retry::left(wait, now));
        if slot.scanned {
            self.enqueue(offset, &slot);
        }
    }

    /// A record of a snapshot that is out.
    pub(super) fn restore_out(&mut self, offset: i64, lock: u32, recalled: bool) {
        let slot = self.window.slot_mut(offset);
        slot.state = if recalled { RecordState::Recalled } else { RecordState::Held };
        slot.lock = lock;
        let slot = *slot;
        self.holders.put(lock, offset);
        self.out += 1;
        if slot.scanned {
            self.lend(offset, &slot);
        }
    }

    /// What the queues say, for those who ask why nothing goes out.
    pub(crate) fn queue(&self) -> &KeyQueue {
        &self.queue
    }
}

/// What a scan found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScanSize {
    records: u64,
    /// Bytes in the log.
    stored: u64,
    /// Bytes in the batch cache, where a compressed batch is kept in both forms.
    cached: u64,
}

impl ScanSize {
    /// `None` where there were no records.
    fn of(scanned: &Scanned) -> Option<Self> {
        let mut size = Self::default();
        for batch in &scanned.batches {
            if let ScannedKind::Data(records) = &batch.kind {
                let inflated = records.iter().map(|record| u64::from(record.bytes)).sum::<u64>();
                let stored = u64::from(batch.bytes);
                size.records += records.len() as u64;
                size.stored += stored;
                size.cached += if inflated > stored { stored + inflated } else { stored };
            }
        }
        (size.records > 0).then_some(size)
    }

    fn bytes_max(self, cached_max: u64) -> u64 {
        if self.cached <= self.stored {
            return cached_max;
        }
        (cached_max * self.stored / self.cached).max(SCAN_BYTES_MIN.min(cached_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{ScannedBatch, ScannedRecord};

    /// One batch of ten records.
    fn found(stored: u32, record: u32) -> Scanned {
        let record = |offset| ScannedRecord { offset: Offset(offset), key: None, bytes: record };
        let kind = ScannedKind::Data((0..10).map(record).collect());
        let batch = ScannedBatch { base: Offset(0), last: Offset(9), bytes: stored, kind };
        Scanned { batches: vec![batch], next: Offset(10) }
    }

    #[test]
    fn a_scan_brings_no_more_than_the_batch_cache_is_to_keep() {
        let max = |scanned: &Scanned| {
            let size = ScanSize::of(scanned);
            assert_eq!(size.is_some(), !scanned.batches.is_empty());
            size.unwrap_or_default().bytes_max(1 << 20)
        };
        assert_eq!(max(&Scanned::default()), 1 << 20, "nothing is known");
        assert_eq!(max(&found(1_100, 100)), 1 << 20, "not compressed");
        assert_eq!(max(&found(250, 100)), (1 << 20) / 5, "kept as it is and inflated");
        assert_eq!(max(&found(1, 1_000_000)), SCAN_BYTES_MIN);
        assert_eq!(ScanSize::of(&found(1, 1_000_000)).unwrap().bytes_max(100), 100);
    }
}
