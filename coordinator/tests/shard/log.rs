//! A partition log in memory that keeps the executor's promises.

use bytes::{Bytes, BytesMut};
use coordinator::command::{DeleteTo, OffsetQuery};
use coordinator::io::{Appended, DeleteError, FoundRecord, IoError, LogFacts, ReadRecord, WholeRecord};
use records::BatchView;
use records::batch::stamp;
use records::ids::Offset;

/// Whole batches, in order.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) facts: LogFacts,
    /// Everything below is on the disk.
    pub(crate) synced: Offset,
}

impl Log {
    pub(crate) fn append(&mut self, batch: &Bytes) -> Appended {
        let mut stamped = BytesMut::from(&batch[..]);
        let view = BatchView::parse(batch).expect("tests append whole batches");
        let base = self.facts.end;
        let count = i64::from(view.last_offset_delta()) + 1;
        let max_timestamp = view.max_timestamp();
        stamp(&mut stamped, base, self.facts.leader_epoch, None, Some(max_timestamp));
        self.batches.push(stamped.freeze());
        self.facts.end = base + count;
        self.facts.last_stable = self.facts.end;
        Appended {
            base_offset: base,
            append_time_ms: None,
            duplicate: false,
            bytes: batch.len() as u64,
            facts: self.facts,
        }
    }

    /// Bytes of whole batches from the one that holds `from`, none that begins at or beyond `upper`, at most
    /// `bytes_max` but for the first where `one` is set.
    pub(crate) fn read(
        &self,
        from: Offset,
        upper: Offset,
        bytes_max: u64,
        one: bool,
    ) -> Result<Bytes, IoError> {
        if from < self.facts.log_start || from > self.facts.end {
            return Err(IoError::OutOfRange);
        }
        let mut found = BytesMut::new();
        for batch in &self.batches {
            let view = BatchView::parse(batch).expect("stored batches are whole");
            if view.last_offset() < from {
                continue;
            }
            let fits = (found.len() + batch.len()) as u64 <= bytes_max || (one && found.is_empty());
            if view.base_offset() >= upper || !fits {
                break;
            }
            found.extend_from_slice(batch);
        }
        Ok(found.freeze())
    }

    /// Single records, until their bytes are enough.
    pub(crate) fn records(&self, offsets: &[Offset], bytes_max: u64) -> Vec<ReadRecord> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for &offset in offsets {
            if bytes >= bytes_max && !found.is_empty() {
                break;
            }
            let record = self.record(offset).filter(|_| offset >= self.facts.log_start);
            bytes += record.as_ref().map_or(0, |record| record.size() as u64);
            found.push(ReadRecord { offset, record });
        }
        found
    }

    fn record(&self, offset: Offset) -> Option<WholeRecord> {
        let views =
            self.batches.iter().map(|batch| BatchView::parse(batch).expect("stored batches are whole"));
        for view in views.filter(|view| view.base_offset() <= offset && view.last_offset() >= offset) {
            let decoded = view.records(1 << 20).expect("tests append readable batches");
            let mut records = decoded.iter().map(|record| record.expect("tests append readable records"));
            if let Some(record) = records.find(|record| record.offset == offset) {
                return Some(WholeRecord {
                    timestamp: record.timestamp,
                    key: record.key.map(Bytes::copy_from_slice),
                    value: record.value.map(Bytes::copy_from_slice),
                });
            }
        }
        None
    }

    pub(crate) fn find(&self, query: OffsetQuery) -> Option<FoundRecord> {
        let mut records = Vec::new();
        for batch in &self.batches {
            let view = BatchView::parse(batch).expect("stored batches are whole");
            let decoded = view.records(1 << 20).expect("tests append readable batches");
            for record in decoded.iter() {
                let record = record.expect("tests append readable records");
                if record.offset >= self.facts.log_start {
                    records.push(FoundRecord {
                        offset: record.offset,
                        timestamp: record.timestamp,
                        leader_epoch: view.leader_epoch(),
                    });
                }
            }
        }
        match query {
            OffsetQuery::At(time) => records.into_iter().find(|found| found.timestamp >= time),
            OffsetQuery::MaxTimestamp => {
                records.into_iter().rev().max_by_key(|found| (found.timestamp, -found.offset.0))
            }
            OffsetQuery::Earliest => Some(FoundRecord {
                offset: self.facts.log_start,
                timestamp: -1,
                leader_epoch: records.first().map_or(self.facts.leader_epoch, |first| first.leader_epoch),
            }),
            other => panic!("the shard answers {other:?} itself"),
        }
    }

    pub(crate) fn delete(&mut self, to: DeleteTo) -> Result<Offset, DeleteError> {
        let to = match to {
            DeleteTo::Offset(to) => to,
            DeleteTo::End => self.facts.end,
        };
        if to > self.facts.end {
            return Err(DeleteError::OutOfRange);
        }
        self.facts.log_start = self.facts.log_start.max(to);
        Ok(self.facts.log_start)
    }
}
