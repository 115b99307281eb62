//! Replays under way: their records are looked up, a few at a time.

use records::ids::{KeyHash, Offset};

use super::{Op, ShareMachine, upper};
use crate::io::{IoError, KeyFound, OpId, ReadRecord, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::share::replay::LookUp;
use crate::time::Now;

/// Records that one look-up finds.
const FIND_MAX: u32 = 256;
/// Bytes of records that one look-up of a redrive reads, about.
const READ_BYTES_MAX: u64 = 1 << 20;

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
