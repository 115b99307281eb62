//! Replays under way: their records are looked up, a few at a time.

use records::ids::{KeyHash, Offset};

use super::admin::Source;
use super::{Op, ShareMachine, upper};
use crate::io::{IoError, KeyFound, OpId, ReadRecord, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::share::ShareError;
use crate::share::admin::AdminError;
use crate::share::replay::LookUp;
use crate::time::Now;

/// Records that one look-up finds.
const FIND_MAX: u32 = 256;
/// Bytes of records that one look-up of a redrive reads, about.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Look-ups before a replay begins in any case, whether or not they found something.
const LOOK_UPS_MAX: u32 = 64;

/// What was found so far of that which a replay is to deliver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayable {
    part: u32,
    generation: u32,
    /// The request.
    admin: u64,
    key: KeyHash,
    /// From here on it was not looked for yet.
    from: i64,
    /// To this offset, inclusive.
    to: i64,
    /// Records that are done.
    found: u64,
    look_ups: u32,
}

impl<S: Slice> ShareMachine<S> {
    /// Begins, goes on with and ends the replays of a share-partition.
    pub(super) fn tend_replays(&mut self, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(open) = self.open_part(number) else { return };
        open.tend_replays();
        let look_ups = open.next_look_ups();
        if look_ups.is_empty() {
            return;
        }
        let part = &self.parts[&number];
        let (partition, generation) = (part.id, part.generation);
        let config = self.config(part.group);
        let (upper, committed) = (upper(logs, &config, partition), config.read_committed);
        for (key, look_up) in look_ups {
            let op = out.submit(Owner::Share, |op| match look_up {
                LookUp::Range(from, end) => Submission::FindKey {
                    op,
                    partition,
                    key,
                    from: Offset(from),
                    upper: Offset(end.min(upper)),
                    committed,
                    max: FIND_MAX,
                },
                LookUp::Offsets(offsets) => {
                    Submission::ReadRecords { op, partition, offsets, bytes_max: READ_BYTES_MAX }
                }
            });
            self.ops.insert(op, Op::Replay { part: number, generation, key });
        }
    }

    /// Counts what a replay of this key from one offset to the other (inclusive) has to deliver, in a few look-ups.
    pub(super) fn look_for_replayable(
        &mut self,
        admin: u64,
        id: u32,
        (key, from, to): (KeyHash, i64, i64),
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(part) = self.parts.get(&id) else { return };
        let generation = part.generation;
        let wanted = Replayable { part: id, generation, admin, key, from, to, found: 0, look_ups: 0 };
        self.find_replayable(wanted, logs, out);
    }

    fn find_replayable(&mut self, wanted: Replayable, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&wanted.part) else { return };
        let (partition, config) = (part.id, self.config(part.group));
        let (upper, committed) = (upper(logs, &config, partition), config.read_committed);
        let op = out.submit(Owner::Share, |op| Submission::FindKey {
            op,
            partition,
            key: wanted.key,
            from: Offset(wanted.from),
            upper: Offset(upper.min(wanted.to + 1)),
            committed,
            max: FIND_MAX,
        });
        self.ops.insert(op, Op::Replayable(wanted));
    }

    /// Some of it was found: its replay begins, or is refused, or it is looked for further.
    pub(super) fn replayable_found(
        &mut self,
        op: OpId,
        result: Result<KeyFound, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Replayable(mut wanted)) = self.ops.remove(&op) else { return };
        let part = self.parts.get(&wanted.part).filter(|part| part.generation == wanted.generation);
        let Some(open) = part.and_then(|part| part.open()) else {
            // It is read anew, and looked for anew then.
            self.source_is(wanted.admin, Source::Unknown);
            self.pending_admins.insert(wanted.admin);
            return;
        };
        let Ok(found) = result else {
            return self.refuse_admin(wanted.admin, ShareError::Unavailable.into(), out);
        };
        wanted.found +=
            found.records.iter().filter(|record| open.is_done(record.offset.get())).count() as u64;
        wanted.look_ups += 1;
        let through = found.next.get() > wanted.to || found.next.get() <= wanted.from;
        if !through && wanted.found < u64::from(FIND_MAX) && wanted.look_ups < LOOK_UPS_MAX {
            wanted.from = found.next.get();
            self.find_replayable(wanted, logs, out);
        } else if through && wanted.found == 0 {
            self.refuse_admin(wanted.admin, AdminError::NothingToReplay, out);
        } else {
            self.source_is(wanted.admin, Source::There(wanted.found));
            self.pending_admins.insert(wanted.admin);
        }
    }

    /// Records of a key were found.
    pub(super) fn replay_found(&mut self, now: Now, op: OpId, result: Result<KeyFound, IoError>) {
        let Some(Op::Replay { part, generation, key }) = self.ops.remove(&op) else { return };
        let found = result.ok().map(|found| {
            let records = found.records.iter().map(|record| (record.offset.get(), record.bytes));
            (records.collect(), found.next.get())
        });
        self.looked_up(now, part, generation, key, found);
    }

    /// Records of a redrive were read.
    pub(super) fn replay_read(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        key: KeyHash,
        result: Result<Vec<ReadRecord>, IoError>,
    ) {
        let found = result.ok().map(|records| {
            let next = records.last().map_or(0, |last| last.offset.get() + 1);
            let there = records.iter().filter_map(|read| {
                let record = read.record.as_ref()?;
                Some((read.offset.get(), u32::try_from(record.size()).unwrap_or(u32::MAX)))
            });
            (there.collect(), next)
        });
        self.looked_up(now, number, generation, key, found);
    }

    fn looked_up(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        key: KeyHash,
        found: Option<(Vec<(i64, u32)>, i64)>,
    ) {
        if self.parts.get(&number).is_none_or(|part| part.generation != generation) {
            return;
        }
        let got_on = self.open_part(number).is_some_and(|open| open.looked_up(key, found, now));
        if got_on {
            self.dirty.insert(number);
        } else {
            self.scan_later(now, number);
        }
    }
}
