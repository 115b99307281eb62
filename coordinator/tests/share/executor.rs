//! The executor of the share machine's small world: it stores what it is told and reads back what it stored.

use bytes::Bytes;
use coordinator::command::{Fact, OffsetQuery};
use coordinator::io::{
    AppendError, Appended, BuildError, Completion, EventsAppended, FoundRecord, IoError, KEY_FOUND_MAX,
    KeyFound, PAGE_BYTES_MAX, PAGES_READ_MAX, PAGES_WRITTEN_MAX, ReadRecord, Scanned, ScannedBatch,
    ScannedKind, ShareState, ShareStateId, StoredState, Submission, WholeRecord,
};
use coordinator::reply::{Output, Reply};
use records::ids::{KeyHash, Offset, PartitionId};

use crate::common::{Data, World, group};

impl World {
    /// Runs rounds until nothing moves.
    pub(crate) fn settle(&mut self) {
        for round in 0.. {
            assert!(
                round < 1_000_000,
                "it never ends: {:?}",
                self.machine.view("g", crate::common::partition(0))
            );
            self.machine.tick(self.now, &self.table, &mut self.out);
            self.machine.finish_round(self.now, &self.table, &mut self.out);
            let mut written = Vec::new();
            for output in self.out.drain() {
                match output {
                    Output::Submit(submission) => self.queue.push_back(submission),
                    Output::Reply(ticket, reply) => {
                        if matches!(reply, Reply::ShareFetched(_)) {
                            written.push(ticket);
                        }
                        assert!(self.replies.insert(ticket, reply).is_none(), "one answer a command");
                    }
                    Output::Effect(effect) => self.effects.push(effect),
                }
            }
            if self.written_at_once {
                for ticket in written {
                    self.machine.fact(self.now, &Fact::AnswerWritten(ticket), &self.table, &mut self.out);
                }
            }
            if self.slow_disk || self.queue.is_empty() {
                self.machine.finish_round(self.now, &self.table, &mut self.out);
                return;
            }
            let submission = self.queue.pop_front().unwrap();
            self.serve_one(submission);
        }
    }

    /// Serves what waits.
    pub(crate) fn serve(&mut self) {
        while let Some(submission) = self.queue.pop_front() {
            self.serve_one(submission);
            self.settle();
        }
    }

    /// Serves the first that waits.
    pub(crate) fn serve_next(&mut self) {
        if let Some(submission) = self.queue.pop_front() {
            self.serve_one(submission);
            self.settle();
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn serve_one(&mut self, submission: Submission) {
        let completion = self.execute(submission);
        self.machine.complete(self.now, completion, &self.table, &mut self.out);
    }

    fn execute(&mut self, submission: Submission) -> Completion<Data> {
        match submission {
            Submission::OpenShareState { op, .. } if self.unreadable => {
                Completion::ShareStateOpened(op, Err(IoError::Storage))
            }
            Submission::OpenShareState { op, group, partition } => {
                let void_from = self.void_from;
                let existed = self.stored.contains_key(&(group.clone(), partition));
                let stored = self.stored.entry((group, partition)).or_default();
                Completion::ShareStateOpened(
                    op,
                    Ok(ShareState {
                        state: ShareStateId { group: 1, partition },
                        snapshot: stored.snapshot.clone().map(|bytes| stored_part(bytes, void_from)),
                        events: stored
                            .events
                            .iter()
                            .map(|bytes| stored_part(bytes.clone(), void_from))
                            .collect(),
                        existed,
                    }),
                )
            }
            Submission::AppendEvents { op, state, events } => {
                if self.disk_full {
                    return Completion::EventsAppended(op, Err(IoError::Storage));
                }
                let stored = self.stored.entry((group(), state.partition)).or_default();
                stored.event_bytes += events.iter().map(|event| event.len() as u64).sum::<u64>();
                stored.events.extend(events);
                let bytes_since_snapshot = stored.event_bytes;
                Completion::EventsAppended(op, Ok(EventsAppended { bytes_since_snapshot }))
            }
            Submission::WriteSnapshot { op, state, snapshot, pages, dropped } => {
                if self.disk_full {
                    return Completion::EventsAppended(op, Err(IoError::Storage));
                }
                self.snapshots += 1;
                self.pages_written += pages.len();
                assert!(pages.len() <= PAGES_WRITTEN_MAX, "{} pages with one snapshot", pages.len());
                let stored = self.stored.entry((group(), state.partition)).or_default();
                stored.snapshot = Some(snapshot);
                stored.events.clear();
                stored.event_bytes = 0;
                for (id, page) in pages {
                    assert!(page.len() <= PAGE_BYTES_MAX, "page {id} has {} bytes", page.len());
                    assert!(stored.pages.insert(id, page).is_none(), "page {id} is there already");
                }
                for id in dropped {
                    assert!(stored.pages.remove(&id).is_some(), "page {id} is dropped and was not there");
                }
                Completion::EventsAppended(op, Ok(EventsAppended { bytes_since_snapshot: 0 }))
            }
            Submission::ReadPages { op, .. } if self.unreadable => {
                Completion::PagesRead(op, Err(IoError::Storage))
            }
            Submission::ReadPages { op, state, pages } => {
                self.pages_read += pages.len();
                assert!(pages.len() <= PAGES_READ_MAX, "{} pages at once", pages.len());
                let void_from = self.void_from;
                let stored = self.stored.entry((group(), state.partition)).or_default();
                let page = |id: &u64| {
                    let page = stored.pages.get(id).unwrap_or_else(|| panic!("there is no page {id}"));
                    stored_part(page.clone(), void_from)
                };
                Completion::PagesRead(op, Ok(pages.iter().map(page).collect()))
            }
            Submission::FindKey { op, partition, key, from, upper, max, .. } => {
                self.finds += 1;
                assert!((1..=KEY_FOUND_MAX).contains(&max), "{max} records of a key at once");
                Completion::KeyFound(op, Ok(self.find_key(partition, key, (from, upper), max as usize)))
            }
            Submission::Scan { op, partition, from, upper, bytes_max, .. } => {
                self.scans += 1;
                self.scan_low = self.scan_low.min(from.get());
                let scanned = self.scan(partition, from.get(), upper.get(), bytes_max);
                self.scanned_bytes += scanned.batches.iter().map(|batch| u64::from(batch.bytes)).sum::<u64>();
                Completion::Scanned(op, Ok(scanned))
            }
            Submission::Build { op, parts } if self.log_unreadable => {
                Completion::Built(op, parts.iter().map(|_| Err(BuildError::Io(IoError::Storage))).collect())
            }
            Submission::Build { op, parts } => {
                let built =
                    parts.into_iter().map(|(partition, ranges)| self.build(partition, &ranges)).collect();
                Completion::Built(op, built)
            }
            Submission::FindOffset { op, partition, query } => {
                let OffsetQuery::At(at) = query else { panic!("unexpected query {query:?}") };
                let found = self.logs[&partition].batches.iter().find(|batch| batch.time_ms >= at);
                Completion::OffsetFound(
                    op,
                    Ok(found.map(|batch| FoundRecord {
                        offset: Offset(batch.base),
                        timestamp: batch.time_ms,
                        leader_epoch: 0,
                    })),
                )
            }
            Submission::Sync { op, partition } => {
                self.syncs += 1;
                let of_it = self.stored.iter().filter(|(id, _)| id.1 == partition);
                self.synced.extend(of_it.map(|(id, stored)| (id.clone(), stored.clone())));
                Completion::Synced(op, Ok(()))
            }
            Submission::SyncNow { op, partition } => {
                let copies = self.copies.get_mut(&partition).expect("only copies are synced so");
                if self.copy_syncs_fail {
                    return Completion::Synced(op, Err(IoError::Storage));
                }
                copies.synced = copies.batches.len();
                Completion::Synced(op, Ok(()))
            }
            Submission::Append { op, partition, batch, .. } => {
                Completion::Appended(op, self.append_copy(partition, batch))
            }
            Submission::ReadRecords { op, partition, offsets, .. } => {
                let read = |offset: Offset| ReadRecord { offset, record: self.record(partition, offset) };
                Completion::RecordsRead(op, Ok(offsets.into_iter().map(read).collect()))
            }
            Submission::NextRetention { op, .. } => Completion::RetentionFound(op, Ok(self.retention)),
            Submission::DeleteShareState { op, group, partition } => {
                let goes = |id| partition.is_none_or(|only| only == id);
                self.stored.retain(|(name, id), _| *name != group || !goes(*id));
                Completion::ShareStateDeleted(op, Ok(()))
            }
            Submission::ListShareStates { op, group } => {
                let states =
                    self.stored.keys().filter(|(name, _)| *name == group).map(|(_, id)| *id).collect();
                Completion::ShareStates(op, Ok(states))
            }
            other => panic!("the share machine does not submit {other:?}"),
        }
    }

    fn append_copy(&mut self, partition: PartitionId, batch: Bytes) -> Result<Appended, AppendError> {
        let copies = self.copies.get_mut(&partition).ok_or(AppendError::Io(IoError::NotOpen))?;
        if self.copies_fail {
            return Err(AppendError::Io(IoError::Storage));
        }
        let facts = self.table.get_mut(&partition).expect("a log that is open is known");
        let base_offset = facts.end;
        let count = records::BatchView::parse(&batch).unwrap().record_count();
        facts.end = base_offset + i64::from(count);
        facts.last_stable = facts.end;
        let bytes = batch.len() as u64;
        copies.batches.push(batch);
        Ok(Appended { base_offset, append_time_ms: None, duplicate: false, bytes, facts: *facts })
    }

    /// A record with the bytes of its hash as key, and its offset as value.
    fn record(&self, partition: PartitionId, offset: Offset) -> Option<WholeRecord> {
        let log = &self.logs[&partition];
        let batch =
            log.batches.iter().find(|batch| batch.base <= offset.get() && batch.last >= offset.get())?;
        let ScannedKind::Data(records) = &batch.kind else { return None };
        let record = records.iter().find(|record| record.offset == offset)?;
        (offset >= log.facts.log_start).then(|| WholeRecord {
            timestamp: batch.time_ms,
            key: record.key.map(|key| Bytes::copy_from_slice(&key.0.to_be_bytes())),
            value: Some(Bytes::from(offset.to_string())),
        })
    }

    fn scan(&self, partition: PartitionId, from: i64, upper: i64, bytes_max: u64) -> Scanned {
        let mut scanned = Scanned { batches: Vec::new(), next: Offset(from) };
        let mut bytes = 0;
        for batch in self.logs[&partition].batches_from(from).take_while(|batch| batch.base < upper) {
            if bytes >= bytes_max {
                return scanned;
            }
            let size: u32 = match &batch.kind {
                ScannedKind::Data(records) => records.iter().map(|record| record.bytes).sum(),
                _ => 100,
            };
            bytes += u64::from(size);
            scanned.batches.push(ScannedBatch {
                base: Offset(batch.base),
                last: Offset(batch.last),
                bytes: size,
                kind: batch.kind.clone(),
            });
            scanned.next = Offset(batch.last + 1);
        }
        scanned
    }

    fn find_key(
        &self,
        partition: PartitionId,
        key: KeyHash,
        (from, upper): (Offset, Offset),
        max: usize,
    ) -> KeyFound {
        let log = &self.logs[&partition];
        let (from, upper) = (from.max(log.facts.log_start), upper.min(log.facts.end));
        let mut found = KeyFound { records: Vec::new(), next: upper.max(from) };
        let mut left = self.find_records_max;
        for batch in log.batches_from(from.get()).take_while(|batch| batch.base < upper.get()) {
            let ScannedKind::Data(records) = &batch.kind else { continue };
            for record in records.iter().filter(|record| from <= record.offset && record.offset < upper) {
                if left == 0 || found.records.len() == max {
                    found.next = record.offset;
                    return found;
                }
                left -= 1;
                if record.key == Some(key) {
                    found.records.push(*record);
                }
            }
        }
        found
    }

    fn build(&self, partition: PartitionId, ranges: &[(Offset, Offset)]) -> Result<Data, BuildError> {
        let log = &self.logs[&partition];
        let mut offsets = Vec::new();
        for &(first, last) in ranges {
            if first < log.facts.log_start {
                return Err(BuildError::Gone(log.facts.log_start));
            }
            if let Some(&(from, to)) =
                log.rotten.iter().find(|rotten| rotten.0 <= last.get() && rotten.1 >= first.get())
            {
                return Err(BuildError::Corrupt { first: Offset(from), last: Offset(to) });
            }
            offsets.extend(first.get()..=last.get());
        }
        for offset in &offsets {
            if log.compacted.contains(offset) {
                return Err(BuildError::Missing(Offset(*offset)));
            }
            let stored = log.batches_from(*offset).next().is_some_and(|batch| match &batch.kind {
                ScannedKind::Data(records) => records.iter().any(|record| record.offset.get() == *offset),
                _ => false,
            });
            assert!(stored, "{offset} is asked for and is no record");
        }
        Ok(Data(offsets))
    }
}

fn stored_part(bytes: Bytes, void_from: i64) -> StoredState {
    StoredState { bytes, void_from: Offset(void_from) }
}
