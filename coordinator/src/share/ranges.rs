//! Ranges of key hashes: who reads which keys, where readers share a partition without being members of a group.
//!
//! A record without a key has no hash. It counts as if its offset, its bits in reverse, were one: so they spread evenly
//! over any ranges, and each is in exactly one range of a set that covers everything.

use records::ids::KeyHash;

use super::ShareError;
use super::event::Settlement;
use super::key_queue::Source;
use super::partition::SharePartition;
use super::recorder::Change;
use super::spans::Span;
use super::window::Slot;
use crate::command::KeyRange;
use crate::plan::share_fetch::Bidder;
use crate::time::Now;

/// Ranges of one partition that a reader may name.
pub const RANGES_MAX: usize = 1_024;

/// Ready keys of a reader that one look compares by how long they have waited; with more of them the next look goes on
/// behind these, so that no fetch pays for all keys of a long window.
const COMPARED_MAX: usize = 2_048;

/// All key hashes.
pub(crate) const EVERYTHING: KeyRange = KeyRange { first: KeyHash(0), last: KeyHash(u64::MAX) };

/// Ascending, disjoint ranges, those that touch joined; none at all means everything.
///
/// # Errors
/// A range ends before it begins, or there are too many.
pub(crate) fn normalized(ranges: &[KeyRange]) -> Result<Vec<KeyRange>, ShareError> {
    if ranges.len() > RANGES_MAX || ranges.iter().any(|range| range.first > range.last) {
        return Err(ShareError::InvalidRequest);
    }
    if ranges.is_empty() {
        return Ok(vec![EVERYTHING]);
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.first);
    let mut joined: Vec<KeyRange> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.first.0 <= last.last.0.saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

/// Whether two sets of ranges, as [`normalized`] gives them, have a hash in common.
pub(crate) fn overlap(one: &[KeyRange], other: &[KeyRange]) -> bool {
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (one.get(a), other.get(b)) {
        if x.last < y.first {
            a += 1;
        } else if y.last < x.first {
            b += 1;
        } else {
            return true;
        }
    }
    false
}

/// Whether a record is of these ranges.
pub(crate) fn contain(ranges: &[KeyRange], key: Option<KeyHash>, offset: i64) -> bool {
    let hash = key.unwrap_or_else(|| stand_in(offset));
    let index = ranges.partition_point(|range| range.last < hash);
    ranges.get(index).is_some_and(|range| range.first <= hash)
}

/// What a record without a key counts as.
fn stand_in(offset: i64) -> KeyHash {
    KeyHash(offset.cast_unsigned().reverse_bits())
}

/// The same ranges, beginning behind `from` and going round: who always began at the lowest hash would leave the
/// highest ones to the end.
fn turned(ranges: &[KeyRange], from: KeyHash) -> impl Iterator<Item = KeyRange> {
    let behind = ranges.iter().filter(move |range| range.last >= from);
    let behind = behind.map(move |range| KeyRange { first: range.first.max(from), last: range.last });
    let before = ranges.iter().filter(move |range| range.first < from);
    let before = before.filter_map(move |range| {
        let last = range.last.min(KeyHash(from.0.checked_sub(1)?));
        Some(KeyRange { first: range.first, last })
    });
    behind.chain(before)
}

impl SharePartition {
    /// Whether reading on is possible, however much is ready: it may be ready for others.
    pub(crate) fn may_scan(&self, upper: i64) -> bool {
        self.window.scan() < upper && self.read_bound().is_none()
    }

    /// A whole fetch of a reader that has ranges of its own: of its ready keys those first whose next record has waited
    /// longest (O7), as far as one look reaches, one record of each; then the second ones. Nobody else takes of these
    /// keys, so there are no turns.
    pub(crate) fn take_ranges(&mut self, bidder: &mut Bidder, now: Now, delivery: &mut dyn FnMut() -> u64) {
        let Some(ranges) = bidder.ranges.clone() else { return };
        // What it may take beside what it holds goes by this fetch, not by its last one.
        self.keys_held(&bidder.member, bidder.per_key_max);
        // Each pass takes one record of a key at most: the next of its records is known only then.
        loop {
            let before = bidder.picks.len();
            for (offset, source) in self.ready_of(bidder, &ranges) {
                if bidder.budget.is_spent() || self.locks_are_full() {
                    return;
                }
                let bytes = self.window.slot(offset).bytes;
                let is_new = matches!(source, Source::Free | Source::Tired);
                let fits_key = source == Source::Keyless || bidder.budget.fits_key(is_new);
                if !fits_key || !bidder.budget.fits(bytes) {
                    continue;
                }
                match source {
                    Source::Keyless => bidder.budget.take(bytes),
                    Source::Own => bidder.budget.take_keyed(bytes, false),
                    Source::Free | Source::Tired => bidder.budget.take_keyed(bytes, true),
                }
                self.queue.took(source);
                self.pick(bidder, offset, now, delivery);
            }
            if bidder.picks.len() == before {
                return;
            }
        }
    }

    /// As many ready records of the ranges as the fetch may take, those that have waited longest first.
    fn ready_of(&self, bidder: &mut Bidder, ranges: &[KeyRange]) -> Vec<(i64, Source)> {
        let holder = self.holders.find(&bidder.member).unwrap_or(0);
        let wanted = bidder.budget.records_left();
        let compared = wanted.max(COMPARED_MAX);
        let mut found = Vec::new();
        let mut last = None;
        for range in turned(ranges, bidder.turn_from) {
            let room = compared.saturating_sub(found.len());
            for (hash, offset, source) in self.queue.ready_in(holder, range).take(room) {
                found.push((offset, source));
                last = Some(hash);
            }
        }
        if let Some(last) = last {
            bidder.turn_from = KeyHash(last.0.wrapping_add(1));
        }
        // Where the group gave up its order meanwhile these have keys, too.
        let of_ranges = |offset: &i64| contain(ranges, self.window.slot(*offset).key, *offset);
        let keyless = self.queue.ready_keyless().filter(of_ranges);
        found.extend(keyless.take(wanted).map(|offset| (offset, Source::Keyless)));
        let tired_wait = self.queue.tired_wait();
        found.sort_unstable_by_key(|&(offset, source)| (tired_wait && source == Source::Tired, offset));
        found.truncate(wanted);
        found
    }

    /// A reader is done with ranges of offsets, as far as they are records of its key ranges, whoever held them, and
    /// whether anybody did; or as it holds them itself, by ranges that it had before. `Ok` says that everything of them
    /// that was read is done now.
    ///
    /// # Errors
    /// A range ends before it begins, or lies beyond what was delivered: nothing was changed.
    pub(crate) fn commit(
        &mut self,
        reader: &str,
        keys: &[KeyRange],
        offsets: &[(i64, i64)],
    ) -> Result<(), ShareError> {
        let end = self.window.acquired_end().max(self.window.start());
        if offsets.iter().any(|&(first, last)| first < 0 || first > last || last >= end) {
            return Err(ShareError::InvalidRequest);
        }
        // Whose key a record is that was kept as a part of a span, or in a page, is not at hand: it is committed when it is back.
        if offsets.iter().any(|&(first, last)| self.names_spilled(keys, first, last)) {
            return Err(ShareError::Unavailable);
        }
        let mut sorted = offsets.to_vec();
        sorted.sort_unstable();
        // What is replayed is in somebody's hands again although it was done: it is committed only where it was sent.
        for replay in self.replays.values_mut() {
            replay.part.commit_sorted(reader, keys, &sorted, Slot::is_out);
        }
        self.commit_sorted(reader, keys, &sorted, |_| true);
        Ok(())
    }

    /// Whether a record without a slot, or in one whose key is not read again yet, may be of these keys, from `first` to
    /// `last`.
    fn names_spilled(&self, keys: &[KeyRange], first: i64, last: i64) -> bool {
        let of_keys = |(key, _): &(KeyHash, &Span)| contain(keys, Some(*key), 0);
        let spans = self.queue.spans().iter().filter(of_keys).map(|(_, span)| (span.first, span.last));
        let pages = self.pages.lowest().map(|lowest| (lowest, i64::MAX));
        // After a restart the scan may stand before what was handed out, and a full window may keep it there.
        let unread = (self.window.scan(), i64::MAX);
        spans.chain(pages).chain([unread]).any(|(from, to)| {
            let end = last.min(to);
            let mut at = self.window.settled().next_absent(first.max(from).max(self.window.start()));
            while at <= end && self.window.get(at).is_some_and(|slot| slot.scanned) {
                at = self.window.settled().next_absent(at + 1);
            }
            at <= end
        })
    }

    fn commit_sorted(
        &mut self,
        reader: &str,
        keys: &[KeyRange],
        sorted: &[(i64, i64)],
        may: impl Fn(&Slot) -> bool,
    ) {
        let reader = self.holders.find(reader);
        let mut from = self.window.start();
        for &(first, last) in sorted {
            // Each record is looked at once, however often ranges name it.
            let done: Vec<i64> = self
                .window
                .range(first.max(from), last)
                .filter(|(_, slot)| slot.scanned && may(slot))
                .filter(|(offset, slot)| contain(keys, slot.key, *offset) || self.is_held_by(reader, slot))
                .map(|(offset, _)| offset)
                .collect();
            from = from.max(last + 1);
            for offset in done {
                self.settle(offset, Settlement::Accepted);
                self.note(Change::Settled(Settlement::Accepted), offset);
            }
        }
        self.window.advance();
    }

    fn is_held_by(&self, holder: Option<u32>, slot: &Slot) -> bool {
        let lock = self.holders.lock(slot.lock).filter(|_| slot.is_out());
        lock.is_some_and(|lock| Some(lock.holder) == holder)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange { first: KeyHash(first), last: KeyHash(last) }
    }

    fn ranges() -> impl Strategy<Value = Vec<KeyRange>> {
        let one = (0_u64..100, 0_u64..20).prop_map(|(first, length)| range(first, first + length));
        prop::collection::vec(one, 1..8)
    }

    #[test]
    fn ranges_that_touch_are_one_and_none_are_all() {
        assert_eq!(normalized(&[]), Ok(vec![EVERYTHING]));
        assert_eq!(
            normalized(&[range(5, 9), range(0, 4), range(20, 30)]),
            Ok(vec![range(0, 9), range(20, 30)])
        );
        assert_eq!(normalized(&[range(0, u64::MAX), range(5, 6)]), Ok(vec![EVERYTHING]));
        assert_eq!(normalized(&[range(5, 4)]), Err(ShareError::InvalidRequest));
        assert!(normalized(&vec![range(0, 1); RANGES_MAX + 1]).is_err());
    }

    #[test]
    fn keyless_records_spread_evenly() {
        let lanes = 32_u64;
        let width = u64::MAX / lanes + 1;
        let mut counts = vec![0; 32];
        for offset in 0..320 {
            for lane in 0..lanes {
                let lane_range = [range(lane * width, (lane * width).wrapping_add(width).wrapping_sub(1))];
                counts[usize::try_from(lane).unwrap()] += i32::from(contain(&lane_range, None, offset));
            }
        }
        assert_eq!(counts, vec![10; 32]);
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_what_their_hashes_are(one in ranges(), other in ranges(), from in 0_u64..130) {
            let has = |ranges: &[KeyRange], hash| ranges.iter().any(|range| (range.first.0..=range.last.0).contains(&hash));
            let (joined, others) = (normalized(&one).unwrap(), normalized(&other).unwrap());
            let common = (0..130).any(|hash| has(&one, hash) && has(&other, hash));
            prop_assert_eq!(overlap(&joined, &others), common);
            let turned: Vec<KeyRange> = turned(&joined, KeyHash(from)).collect();
            for hash in 0..130 {
                prop_assert_eq!(contain(&joined, Some(KeyHash(hash)), 0), has(&one, hash));
                let times = turned.iter().filter(|range| (range.first.0..=range.last.0).contains(&hash)).count();
                prop_assert_eq!(times, usize::from(has(&one, hash)));
            }
            prop_assert!(turned.first().is_none_or(|first| first.first.0 >= from || joined.iter().all(|range| range.last.0 < from)));
        }
    }
}
