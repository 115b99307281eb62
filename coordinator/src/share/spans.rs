//! Spans: what is kept of the records of a key that are too many for the window.
//!
//! Of each such key the span says from where on its records have no slot, how far they reach, and about how many they
//! are. They are found again in the log, many a look-up. Invariants: a record of a key in the window that is not done has
//! a slot, or lies in the key's span; a key's record goes out only while it lies before the span.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use records::ids::KeyHash;

/// About what a span costs, trees included.
const SPAN_BYTES: u64 = 128;

/// Records of a key without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// None of them lies before it.
    pub(crate) first: i64,
    /// None of them lies behind it.
    pub(crate) last: i64,
    /// How many they are, about: those that leave the log, or are done, are still counted.
    pub(crate) count: u64,
    /// The look-up that is under way.
    pub(crate) finding: Option<u64>,
}

/// The spans of a share-partition.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    by_key: BTreeMap<KeyHash, Span>,
    by_first: BTreeSet<(i64, KeyHash)>,
    /// Keys that need more of their records soon.
    hungry: BTreeSet<KeyHash>,
    /// The key that was fed last: others come first.
    fed: KeyHash,
    look_up_last: u64,
    records: u64,
}

impl Spans {
    pub(crate) fn get(&self, key: KeyHash) -> Option<&Span> {
        self.by_key.get(&key)
    }

    pub(crate) fn contains(&self, key: KeyHash) -> bool {
        !self.by_key.is_empty() && self.by_key.contains_key(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Records in all spans, about.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyHash, &Span)> {
        self.by_key.iter().map(|(&key, span)| (key, span))
    }

    /// The lowest offset that lies in a span.
    pub(crate) fn first(&self) -> Option<(i64, KeyHash)> {
        self.by_first.first().copied()
    }

    /// Keys with a span, by where it begins.
    pub(crate) fn by_first(&self) -> impl Iterator<Item = (i64, KeyHash)> {
        self.by_first.iter().copied()
    }

    /// `count` records of `key` from `first` to `last` have no slot, beside those that its span tells of.
    pub(crate) fn add(&mut self, key: KeyHash, first: i64, last: i64, count: u64) {
        self.records += count;
        match self.by_key.get_mut(&key) {
            Some(span) => {
                if first < span.first {
                    self.by_first.remove(&(span.first, key));
                    self.by_first.insert((first, key));
                    span.first = first;
                }
                span.last = span.last.max(last);
                span.count += count;
            }
            None => {
                self.by_key.insert(key, Span { first, last, count, finding: None });
                self.by_first.insert((first, key));
            }
        }
    }

    /// The span of `key` begins at `first` now, `found` records later; it ends where nothing is left of it.
    pub(crate) fn advance(&mut self, key: KeyHash, first: i64, found: u64) {
        let Some(span) = self.by_key.get_mut(&key) else { return };
        if first > span.last {
            self.remove(key);
        } else if first > span.first {
            // What is left counts one at least, or the span would be over.
            let left = span.count.saturating_sub(found).max(1);
            self.records = self.records - span.count + left;
            span.count = left;
            self.by_first.remove(&(span.first, key));
            span.first = first;
            self.by_first.insert((first, key));
        }
    }

    /// The log begins at `start`: the parts of spans below are gone, and keys of which nothing is left are told.
    pub(crate) fn remove_below(&mut self, start: i64) -> Vec<KeyHash> {
        let mut touched = Vec::new();
        while let Some((first, key)) = self.first().filter(|span| span.0 < start) {
            let gone = self.by_key.get(&key).map_or(0, |span| {
                let (width, cut) = ((span.last - first + 1) as u128, (start - first) as u128);
                u64::try_from(u128::from(span.count) * cut.min(width) / width.max(1)).unwrap_or(span.count)
            });
            self.advance(key, start, gone);
            touched.push(key);
        }
        touched
    }

    pub(crate) fn remove(&mut self, key: KeyHash) -> Option<Span> {
        let span = self.by_key.remove(&key)?;
        self.by_first.remove(&(span.first, key));
        self.hungry.remove(&key);
        self.records -= span.count;
        Some(span)
    }

    /// Whether `key` needs more of its records soon.
    pub(crate) fn set_hungry(&mut self, key: KeyHash, hungry: bool) {
        if hungry {
            self.hungry.insert(key);
        } else if !self.hungry.is_empty() {
            self.hungry.remove(&key);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { look_up_last: self.look_up_last, ..Self::default() };
    }

    pub(crate) fn forget_hunger(&mut self) {
        self.hungry.clear();
    }

    pub(crate) fn is_hungry(&self) -> bool {
        !self.hungry.is_empty()
    }

    /// A key that needs more of its records; each in its turn.
    pub(crate) fn next_hungry(&mut self) -> Option<KeyHash> {
        let behind = self.hungry.range((Bound::Excluded(self.fed), Bound::Unbounded)).next();
        let key = behind.or_else(|| self.hungry.first()).copied()?;
        self.hungry.remove(&key);
        self.fed = key;
        Some(key)
    }

    /// The search for records of `key` is not over: it comes first.
    pub(crate) fn go_on_with(&mut self, key: KeyHash) {
        self.fed = KeyHash(key.0.wrapping_sub(1));
    }

    /// A look-up of `key` begins; its number is never used twice.
    pub(crate) fn find(&mut self, key: KeyHash) -> u64 {
        self.look_up_last += 1;
        if let Some(span) = self.by_key.get_mut(&key) {
            span.finding = Some(self.look_up_last);
        }
        self.look_up_last
    }

    /// A look-up of `key` has ended: says whether the span is still the one that it was for.
    pub(crate) fn found(&mut self, key: KeyHash, number: u64) -> bool {
        let span = self.by_key.get_mut(&key).filter(|span| span.finding == Some(number));
        span.is_some_and(|span| span.finding.take().is_some())
    }

    /// About how many bytes of memory they take.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.by_key.len() as u64 * SPAN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KeyHash = KeyHash(1);
    const B: KeyHash = KeyHash(2);

    #[test]
    fn a_span_shrinks_from_its_front_and_ends_with_its_last_record() {
        let mut spans = Spans::default();
        spans.add(A, 10, 10, 1);
        spans.add(A, 20, 20, 1);
        spans.add(A, 30, 30, 1);
        spans.add(B, 15, 15, 1);
        assert_eq!(spans.first(), Some((10, A)));
        spans.advance(A, 21, 2);
        assert_eq!(spans.get(A), Some(&Span { first: 21, last: 30, count: 1, finding: None }));
        assert_eq!((spans.first(), spans.records()), (Some((15, B)), 2));
        spans.advance(A, 31, 1);
        assert!(!spans.contains(A));
        assert_eq!(spans.records(), 1);
    }

    #[test]
    fn k65_what_left_the_log_leaves_the_span() {
        let mut spans = Spans::default();
        spans.add(A, 0, 99, 50);
        spans.add(B, 5, 9, 5);
        assert_eq!(spans.remove_below(50), [A, B]);
        assert_eq!(spans.get(A), Some(&Span { first: 50, last: 99, count: 25, finding: None }));
        assert!(!spans.contains(B));
        assert_eq!(spans.records(), 25);
    }

    #[test]
    fn hungry_keys_take_turns() {
        let mut spans = Spans::default();
        spans.add(A, 0, 9, 5);
        spans.add(B, 1, 9, 5);
        spans.set_hungry(A, true);
        spans.set_hungry(B, true);
        assert_eq!(spans.next_hungry(), Some(A));
        spans.set_hungry(A, true);
        assert_eq!(spans.next_hungry(), Some(B));
        assert_eq!(spans.next_hungry(), Some(A));
        assert_eq!(spans.next_hungry(), None);
    }
}
