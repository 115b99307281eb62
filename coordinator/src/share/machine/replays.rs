//! Replays under way: their records are looked up, a few at a time.

use records::ids::{KeyHash, Offset};

use super::{Op, ShareMachine, upper};
use crate::io::{IoError, ReadRecord, Scanned, ScannedKind, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::share::replay::LookUp;
use crate::time::Now;

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
        let bytes_max = self.limits.scan_bytes_max;
        for (key, look_up) in look_ups {
            let op = out.submit(Owner::Share, |op| match look_up {
                LookUp::Range(from, end) => Submission::Scan {
                    op,
                    partition,
                    from: Offset(from),
                    upper: Offset(end.min(upper)),
                    bytes_max,
                    committed,
                },
                LookUp::Offsets(offsets) => {
                    Submission::ReadRecords { op, partition, offsets, bytes_max: READ_BYTES_MAX }
                }
            });
            self.ops.insert(op, Op::Replay { part: number, generation, key });
        }
    }

    /// A part of the log was scanned for the records of a replayed key.
    pub(super) fn replay_scanned(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        key: KeyHash,
        result: Result<Scanned, IoError>,
    ) {
        let found = result.ok().map(|scanned| {
            let records = scanned.batches.iter().flat_map(|batch| match &batch.kind {
                ScannedKind::Data(records) => &records[..],
                _ => &[],
            });
            let of_key = records.filter(|record| record.key == Some(key));
            let records = of_key.map(|record| (record.offset.get(), record.bytes)).collect();
            (records, scanned.next.get())
        });
        self.looked_up(now, number, generation, key, found);
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
                let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
                let bytes = length(&record.key) + length(&record.value);
                Some((read.offset.get(), u32::try_from(bytes).unwrap_or(u32::MAX)))
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
        let failed = found.is_none();
        if let Some(open) = self.open_part(number) {
            open.looked_up(key, found, now);
        }
        if failed {
            self.scan_later(now, number);
        } else {
            self.dirty.insert(number);
        }
    }
}
