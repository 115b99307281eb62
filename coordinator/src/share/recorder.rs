//! Turns single-record changes into few events: changes of one kind at ascending offsets become one.

use bytes::Bytes;

use super::event::{Event, Ranges, Settlement, Wait};
use super::stops::Stop;

/// A change of one record that was made already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Settled(Settlement),
    Returned { counted: bool, wait: Option<Wait> },
    Recalled,
    Renewed { wall_ms: i64, lock_ms: i64 },
    Stopped { stop: Stop, counted: bool },
    Freed,
}

/// Encoded events that are to be appended, in order.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    open: Option<(Change, Ranges)>,
    done: Vec<Bytes>,
}

impl Recorder {
    /// Notes the change of one record.
    pub(crate) fn note(&mut self, change: Change, offset: i64) {
        if let Some((open, ranges)) = &mut self.open
            && *open == change
            && let Some(last) = ranges.last_mut()
            && last.1 < offset
        {
            if last.1 + 1 == offset {
                last.1 = offset;
            } else {
                ranges.push((offset, offset));
            }
            return;
        }
        self.close();
        self.open = Some((change, vec![(offset, offset)]));
    }

    /// Notes an event that is whole.
    pub(crate) fn event(&mut self, event: &Event) {
        self.close();
        self.done.push(event.encode());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.done.is_empty()
    }

    /// Everything noted so far.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.close();
        std::mem::take(&mut self.done)
    }

    fn close(&mut self) {
        let Some((change, ranges)) = self.open.take() else { return };
        let event = match change {
            Change::Settled(how) => Event::Settled { how, ranges },
            Change::Returned { counted, wait } => Event::Returned { counted, wait, ranges },
            Change::Recalled => Event::Recalled(ranges),
            Change::Renewed { wall_ms, lock_ms } => Event::Renewed { wall_ms, lock_ms, ranges },
            Change::Stopped { stop, counted } => Event::Stopped { stop, counted, ranges },
            Change::Freed => Event::Freed(ranges),
        };
        self.done.push(event.encode());
    }
}

/// Ascending offsets as ranges.
pub(crate) fn ranges_of(offsets: &[i64]) -> Ranges {
    let mut ranges: Ranges = Vec::new();
    for &offset in offsets {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == offset => last.1 = offset,
            _ => ranges.push((offset, offset)),
        }
    }
    ranges
}
