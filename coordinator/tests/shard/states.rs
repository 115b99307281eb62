//! Share state in memory, and what share groups read of a log.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use coordinator::io::{
    BuildError, Completion, EventsAppended, IoError, KeyFound, Scanned, ScannedBatch, ScannedKind,
    ScannedRecord, ShareState, ShareStateId, Submission,
};
use records::ids::{KeyHash, Offset, PartitionId};
use records::{BatchView, key_hash};

use crate::log::Log;

/// The state of a share-partition.
#[derive(Clone, Debug, Default)]
struct Files {
    snapshot: Option<Bytes>,
    events: Vec<Bytes>,
    pages: BTreeMap<u64, Bytes>,
}

/// State files by share-partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct States {
    numbers: BTreeMap<Arc<str>, u64>,
    files: BTreeMap<ShareStateId, Files>,
}

impl States {
    /// How many share-partitions have state.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn execute(
        &mut self,
        submission: Submission,
        logs: &BTreeMap<PartitionId, Log>,
    ) -> Completion<Bytes> {
        match submission {
            Submission::OpenShareState { op, group, partition } => {
                let number = self.numbers.len() as u64;
                let group = *self.numbers.entry(group).or_insert(number);
                let state = ShareStateId { group, partition };
                let existed = self.files.contains_key(&state);
                let Files { snapshot, events, .. } = self.files.entry(state).or_default().clone();
                let snapshot = snapshot.map(Into::into);
                let events = events.into_iter().map(Into::into).collect();
                Completion::ShareStateOpened(op, Ok(ShareState { state, snapshot, events, existed }))
            }
            Submission::AppendEvents { op, state, events } => {
                let Some(stored) = self.files.get_mut(&state) else {
                    return Completion::EventsAppended(op, Err(IoError::NotOpen));
                };
                stored.events.extend(events);
                let bytes_since_snapshot = stored.events.iter().map(|event| event.len() as u64).sum();
                Completion::EventsAppended(op, Ok(EventsAppended { bytes_since_snapshot }))
            }
            Submission::WriteSnapshot { op, state, snapshot, pages, dropped } => {
                let stored = self.files.entry(state).or_default();
                (stored.snapshot, stored.events) = (Some(snapshot), Vec::new());
                stored.pages.retain(|id, _| !dropped.contains(id));
                stored.pages.extend(pages);
                Completion::EventsAppended(op, Ok(EventsAppended { bytes_since_snapshot: 0 }))
            }
            Submission::ReadPages { op, state, pages } => {
                let stored = self.files.get(&state).map(|stored| &stored.pages);
                let page = |id| stored.and_then(|stored| stored.get(id)).cloned().map(Into::into);
                let read: Option<Vec<_>> = pages.iter().map(page).collect();
                Completion::PagesRead(op, read.ok_or(IoError::Corrupt))
            }
            Submission::FindKey { op, partition, key, from, upper, max, .. } => {
                let log = logs.get(&partition).ok_or(IoError::NotOpen);
                Completion::KeyFound(op, log.map(|log| find_key(log, key, (from, upper), max as usize)))
            }
            Submission::DeleteShareState { op, group, partition } => {
                let number = self.numbers.get(&group).copied();
                self.files.retain(|state, _| {
                    Some(state.group) != number || partition.is_some_and(|one| one != state.partition)
                });
                Completion::ShareStateDeleted(op, Ok(()))
            }
            Submission::ListShareStates { op, group } => {
                let number = self.numbers.get(&group).copied();
                let states = self.files.keys().filter(|state| Some(state.group) == number);
                Completion::ShareStates(op, Ok(states.map(|state| state.partition).collect()))
            }
            Submission::Scan { op, partition, from, upper, .. } => {
                let log = logs.get(&partition).ok_or(IoError::NotOpen);
                Completion::Scanned(op, log.map(|log| scan(log, from, upper)))
            }
            Submission::Build { op, parts } => {
                let build = |(partition, ranges): &(PartitionId, Vec<(Offset, Offset)>)| {
                    let log = logs.get(partition).ok_or(BuildError::Io(IoError::NotOpen))?;
                    Ok(build(log, ranges))
                };
                Completion::Built(op, parts.iter().map(build).collect())
            }
            other => panic!("not for share state: {other:?}"),
        }
    }
}

fn scan(log: &Log, from: Offset, upper: Offset) -> Scanned {
    let mut batches = Vec::new();
    let mut next = from;
    for bytes in &log.batches {
        let view = BatchView::parse(bytes).expect("stored batches are whole");
        if view.last_offset() < from || view.base_offset() >= upper {
            continue;
        }
        let decoded = view.records(1 << 20).expect("tests append readable batches");
        let records = decoded.iter().map(|record| {
            let record = record.expect("tests append readable records");
            let bytes = u32::try_from(record.raw.len()).expect("records are small");
            ScannedRecord { offset: record.offset, key: record.key.map(key_hash), bytes }
        });
        batches.push(ScannedBatch {
            base: view.base_offset(),
            last: view.last_offset(),
            bytes: u32::try_from(bytes.len()).expect("batches are small"),
            kind: ScannedKind::Data(records.collect()),
        });
        next = view.next_offset();
    }
    Scanned { batches, next }
}

fn find_key(log: &Log, key: KeyHash, (from, upper): (Offset, Offset), max: usize) -> KeyFound {
    let from = from.max(log.facts.log_start);
    let upper = upper.min(log.facts.end);
    let scanned = scan(log, from, upper).batches.into_iter().filter_map(|batch| match batch.kind {
        ScannedKind::Data(records) => Some(records),
        _ => None,
    });
    let inside = |record: &ScannedRecord| from <= record.offset && record.offset < upper;
    let of_key = scanned.flatten().filter(|record| record.key == Some(key) && inside(record));
    let records: Vec<ScannedRecord> = of_key.take(max).collect();
    let next = if records.len() < max { upper.max(from) } else { records[max - 1].offset.next() };
    KeyFound { records, next }
}

/// The stored batches that hold chosen records, whole.
fn build(log: &Log, ranges: &[(Offset, Offset)]) -> Bytes {
    let mut built = BytesMut::new();
    for bytes in &log.batches {
        let view = BatchView::parse(bytes).expect("stored batches are whole");
        if ranges.iter().any(|(first, last)| *first <= view.last_offset() && *last >= view.base_offset()) {
            built.extend_from_slice(bytes);
        }
    }
    built.freeze()
}
