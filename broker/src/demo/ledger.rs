//! The demo's own check of the promise: who works on what, in which order, and what is done.
//!
//! Knows nothing of leases or sessions: it sees only what the application sees. Invariants checked at every start:
//! nobody else works on that key, and every earlier record of that key is done.

use std::collections::HashMap;

use parking_lot::Mutex;

/// What was loaded, and what has become of it.
#[derive(Debug)]
pub struct Ledger {
    /// By offset: the offset before it with the same key, if any; `u32::MAX` without one.
    before: Vec<u32>,
    /// By offset: the number of its key; `u32::MAX` without a key.
    key: Vec<u32>,
    keys: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: Vec<bool>,
    /// By key: the offset that is at work.
    at_work: Vec<Option<u32>>,
    tally: Tally,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records done at least once.
    pub done: usize,
    /// Records that were started again after they were done.
    pub repeated: usize,
    /// Records started while another of their key was at work, or while an earlier one was not done.
    pub violations: usize,
    /// Records whose work was cut off.
    pub cut_off: usize,
}

const NONE: u32 = u32::MAX;

impl Ledger {
    /// Of records in offset order, by key.
    pub fn new<'a>(keys: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut numbers: HashMap<&str, (u32, u32)> = HashMap::new();
        let (mut before, mut key) = (Vec::new(), Vec::new());
        for (offset, name) in (0_u32..).zip(keys) {
            let Some(name) = name else {
                before.push(NONE);
                key.push(NONE);
                continue;
            };
            let number = numbers.len() as u32;
            let (number, last) = numbers.entry(name).or_insert((number, NONE));
            before.push(*last);
            key.push(*number);
            *last = offset;
        }
        let state = State {
            done: vec![false; key.len()],
            at_work: vec![None; numbers.len()],
            tally: Tally::default(),
        };
        Self { keys: numbers.len(), before, key, state: Mutex::new(state) }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Work on a record starts; it ends when the value is dropped, done or not.
    pub fn start(&self, offset: i64) -> Work<'_> {
        let offset = u32::try_from(offset).ok().filter(|offset| (*offset as usize) < self.len());
        let mut state = self.state.lock();
        let Some(at) = offset else {
            // A record that was never loaded.
            state.tally.violations += 1;
            return Work { ledger: self, offset: None, finished: false };
        };
        let (before, key) = (self.before[at as usize], self.key[at as usize]);
        let early = before != NONE && !state.done[before as usize];
        let crowded = key != NONE && state.at_work[key as usize].is_some();
        state.tally.violations += usize::from(early || crowded);
        state.tally.repeated += usize::from(state.done[at as usize]);
        if key != NONE {
            state.at_work[key as usize] = Some(at);
        }
        Work { ledger: self, offset: Some(at), finished: false }
    }

    /// The counts so far.
    pub fn tally(&self) -> Tally {
        self.state.lock().tally
    }
}

/// A record at work.
#[derive(Debug)]
pub struct Work<'a> {
    ledger: &'a Ledger,
    offset: Option<u32>,
    finished: bool,
}

impl Work<'_> {
    /// The record is done.
    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let Some(at) = self.offset else { return };
        let mut state = self.ledger.state.lock();
        let key = self.ledger.key[at as usize];
        if key != NONE && state.at_work[key as usize] == Some(at) {
            state.at_work[key as usize] = None;
        }
        if !self.finished {
            state.tally.cut_off += 1;
        } else if !std::mem::replace(&mut state.done[at as usize], true) {
            state.tally.done += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets 0:a 1:b 2:- 3:a 4:a.
    fn ledger() -> Ledger {
        Ledger::new([Some("a"), Some("b"), None, Some("a"), Some("a")].into_iter())
    }

    #[test]
    fn a_run_in_order_has_no_violation() {
        let ledger = ledger();
        assert_eq!((ledger.len(), ledger.keys()), (5, 2));
        let both = (ledger.start(0), ledger.start(1));
        both.0.finish();
        both.1.finish();
        for offset in [3, 2, 4] {
            ledger.start(offset).finish();
        }
        assert_eq!(ledger.tally(), Tally { done: 5, ..Tally::default() });
    }

    #[test]
    fn a_record_before_its_predecessor_is_a_violation() {
        let ledger = ledger();
        ledger.start(3).finish();
        assert_eq!(ledger.tally().violations, 1);
    }

    #[test]
    fn two_of_one_key_at_once_are_a_violation() {
        let ledger = ledger();
        ledger.start(0).finish();
        let first = ledger.start(3);
        let again = ledger.start(3);
        assert_eq!(ledger.tally().violations, 1);
        drop((first, again));
        assert_eq!(ledger.tally().cut_off, 2);
    }

    #[test]
    fn work_that_was_cut_off_is_not_done() {
        let ledger = ledger();
        drop(ledger.start(0));
        ledger.start(3).finish();
        assert_eq!(ledger.tally(), Tally { done: 1, violations: 1, cut_off: 1, repeated: 0 });
    }

    #[test]
    fn a_repeat_is_counted_and_is_no_violation() {
        let ledger = ledger();
        ledger.start(0).finish();
        ledger.start(0).finish();
        assert_eq!(ledger.tally(), Tally { done: 1, repeated: 1, ..Tally::default() });
    }

    #[test]
    fn an_offset_that_was_never_loaded_is_a_violation() {
        let ledger = ledger();
        ledger.start(99).finish();
        ledger.start(-1).finish();
        assert_eq!(ledger.tally().violations, 2);
    }
}
