//! The records of one key, as they stand in its queue.

use records::ids::KeyHash;

use super::KeyQueue;
use crate::share::window::{NONE, RecordState, Window};

impl KeyQueue {
    /// The records of `key` that are in memory and in nobody's hands, ascending; also those that wait or are stopped.
    pub(crate) fn queued<'a>(&self, window: &'a Window, key: KeyHash) -> impl Iterator<Item = i64> + use<'a> {
        let next = |&at: &i64| Some(window.slot(at).next).filter(|&next| next != NONE);
        std::iter::successors(self.head(key), next)
    }

    /// The first queued record of `key` in front of `offset` that is to be delivered: what was stopped recalls nothing.
    pub(crate) fn first_waiting(&self, window: &Window, key: KeyHash, offset: i64) -> Option<i64> {
        self.queued(window, key)
            .take_while(|&at| at < offset)
            .find(|&at| window.slot(at).state != RecordState::Stopped)
    }

    /// The first queued records of `key` that are not stopped, at most `max`.
    pub(crate) fn chain(&self, window: &Window, key: KeyHash, max: usize) -> Vec<i64> {
        let span = self.spans.get(key).map_or(i64::MAX, |span| span.first);
        self.queued(window, key)
            .take_while(|&offset| window.slot(offset).state != RecordState::Stopped && offset < span)
            .take(max)
            .collect()
    }
}
