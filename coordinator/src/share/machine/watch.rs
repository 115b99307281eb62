//! An eye on each share-partition's oldest record: how old it is, and whether retention is about to take it.
//!
//! Looked at now and then, while something is unsettled; a share-partition whose start offset moves costs one small read
//! a look at most.

use std::sync::Arc;

use records::ids::Offset;

use super::{Op, ShareMachine, Timer};
use crate::io::{IoError, OpId, RetentionDue, Slice, Submission};
use crate::outbox::{Outbox, Owner};
use crate::reply::Effect;
use crate::share::admin::RetentionWarning;
use crate::time::{Micros, Now};

/// How often it is looked.
const WATCH_EVERY: Micros = Micros(2_000_000);
/// A warning comes when a tenth of the log's retention is left, but not later than this …
const WARN_MIN: Micros = Micros(10_000_000);
/// … nor earlier than this.
const WARN_MAX: Micros = Micros(3_600_000_000);

const _: () = assert!(
    5_000_000 + 2 * WATCH_EVERY.0 <= WARN_MIN.0,
    "a warning comes 5 s before retention at the latest, although it is looked only now and then"
);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// The oldest record, and its timestamp, where it could be read.
    oldest: Option<(i64, Option<i64>)>,
    warning: Option<RetentionWarning>,
}

impl Watched {
    /// What retention takes soon.
    pub(super) fn warning(&self) -> Option<RetentionWarning> {
        self.warning
    }

    /// The record's timestamp, if it is the one that was looked at.
    pub(super) fn timestamp_of(&self, offset: i64) -> Option<i64> {
        self.oldest.filter(|oldest| oldest.0 == offset)?.1
    }

    /// Whether the record was looked at.
    pub(super) fn knows(&self, offset: i64) -> bool {
        self.oldest.is_some_and(|oldest| oldest.0 == offset)
    }
}

impl<S: Slice> ShareMachine<S> {
    /// Sees to it that a share-partition with unsettled records is looked at.
    pub(super) fn keep_watch(&mut self, now: Now, number: u32) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        let unsettled =
            part.open().map_or(0, |open| open.window.len() + open.queue().spans().len() + open.stuck_keys());
        if unsettled == 0 {
            part.watched = Watched::default();
        }
        if unsettled > 0 && !self.timers.is_set(Timer::Watch(number)) {
            self.timers.set(Timer::Watch(number), Some(now.mono + WATCH_EVERY));
        }
    }

    pub(super) fn watch(&mut self, number: u32, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        // The timer is set again, where it is needed, at the end of the round.
        self.dirty.insert(number);
        let Some(offset) = part.open().and_then(|open| open.oldest(i64::MIN)) else { return };
        let (partition, generation) = (part.id, part.generation);
        let stands = part.watched.knows(offset);
        if stands || part.watched.warning.is_some() {
            let op = out.submit(Owner::Share, |op| Submission::NextRetention { op, partition });
            self.ops.insert(op, Op::Retention { part: number, generation });
        }
        if !stands {
            self.read_oldest(number, offset, out);
        }
    }

    /// Asks for the timestamp of a record.
    pub(super) fn read_oldest(&mut self, number: u32, offset: i64, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&number) else { return };
        let (partition, generation) = (part.id, part.generation);
        let offsets = vec![Offset(offset)];
        let op =
            out.submit(Owner::Share, |op| Submission::ReadRecords { op, partition, offsets, bytes_max: 0 });
        self.ops.insert(op, Op::Oldest { part: number, generation, offset });
    }

    pub(super) fn oldest_read(&mut self, number: u32, generation: u32, offset: i64, timestamp: Option<i64>) {
        if let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) {
            part.watched.oldest = Some((offset, timestamp));
        }
        self.wake_admins();
    }

    pub(super) fn retention_found(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Option<RetentionDue>, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Retention { part: number, generation }) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        let oldest = part.open().and_then(|open| open.oldest(i64::MIN));
        let due = result.ok().flatten().zip(oldest).filter(|(due, oldest)| {
            let warn_ms = (due.length_ms / 10).clamp(WARN_MIN.as_ms_ceil(), WARN_MAX.as_ms_ceil());
            *oldest < due.until.get() && due.at_ms.saturating_sub(now.wall_ms) <= warn_ms
        });
        let Some((due, offset)) = due else {
            part.watched.warning = None;
            return;
        };
        let warning = RetentionWarning { offset: Offset(offset), at_ms: due.at_ms };
        if part.watched.warning.replace(warning).is_none_or(|before| before.offset != warning.offset) {
            let partition = part.id;
            let group = Arc::clone(&self.group(self.parts[&number].group).name);
            out.effect(Effect::RetentionWarning {
                group,
                partition,
                offset: warning.offset,
                at_ms: due.at_ms,
                left_ms: due.at_ms.saturating_sub(now.wall_ms).max(0),
            });
        }
    }
}
