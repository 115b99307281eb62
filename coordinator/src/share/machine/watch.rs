//! An eye on each share-partition's oldest record: how old it is, and whether retention is about to take it.
//!
//! Looked at when something begins to wait, and now and then while something does; a share-partition whose start offset
//! moves costs one small read a look at most. Between two looks the timestamp of the record that was the oldest stands for
//! those behind it.

use std::sync::Arc;

use records::ids::Offset;

use super::{Op, ShareMachine, Timer, upper};
use crate::io::{IoError, OpId, RetentionDue, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
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
    /// The record that was the oldest, and its timestamp; where that could not be read, that of the one before.
    oldest: Option<(i64, Option<i64>)>,
    /// What the last warning named, and up to where it is true.
    warning: Option<(RetentionWarning, i64)>,
}

impl Watched {
    /// What retention takes soon, where this record is the oldest.
    pub(super) fn warning(&self, offset: i64) -> Option<RetentionWarning> {
        let (warning, until) = self.warning?;
        (offset < until).then_some(RetentionWarning { offset: Offset(offset), ..warning })
    }

    /// The timestamp of the oldest record, or of one that was the oldest at the last look.
    pub(super) fn timestamp_of(&self, offset: i64) -> Option<i64> {
        self.oldest.filter(|oldest| oldest.0 <= offset)?.1
    }

    /// Whether the record was looked at.
    pub(super) fn knows(&self, offset: i64) -> bool {
        self.oldest.is_some_and(|oldest| oldest.0 == offset)
    }
}

impl<S: Slice> ShareMachine<S> {
    /// Looks at a share-partition where something waits.
    pub(super) fn keep_watch(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let rests = !self.timers.is_set(Timer::Watch(number));
        let Some(offset) = self.oldest_of(number, logs) else {
            // Known for a while: where the next record comes at once nothing has to be read for it.
            if let Some(part) = self.parts.get_mut(&number).filter(|_| rests) {
                part.watched = Watched::default();
            }
            return;
        };
        let Some(part) = self.parts.get_mut(&number) else { return };
        // Set back: what is known is of later ones.
        let is_back = part.watched.oldest.take_if(|oldest| oldest.0 > offset).is_some();
        if !rests && !is_back {
            return;
        }
        self.timers.set(Timer::Watch(number), Some(now.mono + WATCH_EVERY));
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

    /// The oldest record that a share-partition in memory has to bring.
    fn oldest_of(&self, number: u32, logs: &LogTable) -> Option<i64> {
        let part = self.parts.get(&number)?;
        part.open()?.oldest(upper(logs, &self.group(part.group).config, part.id))
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
            let known = part.watched.timestamp_of(offset);
            part.watched.oldest = Some((offset, timestamp.or(known)));
        }
        self.wake_admins();
    }

    pub(super) fn retention_found(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Option<RetentionDue>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Retention { part: number, generation }) = self.ops.remove(&op) else { return };
        let oldest = self.oldest_of(number, logs);
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        let due = result.ok().flatten().zip(oldest).filter(|(due, oldest)| {
            let warn_ms = (due.length_ms / 10).clamp(WARN_MIN.as_ms_ceil(), WARN_MAX.as_ms_ceil());
            *oldest < due.until.get() && due.at_ms.saturating_sub(now.wall_ms) <= warn_ms
        });
        let Some((due, offset)) = due else {
            part.watched.warning = None;
            return;
        };
        let warning = RetentionWarning { offset: Offset(offset), at_ms: due.at_ms };
        let before = part.watched.warning.replace((warning, due.until.get()));
        if before.is_none_or(|(before, _)| before.offset != warning.offset) {
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
