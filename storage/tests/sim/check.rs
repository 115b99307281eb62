//! What a log shows must be what the model says: read whole, by offset, by time, by key, and by its files.

mod state;

use std::collections::BTreeMap;

use bytes::Bytes;
use records::ids::Offset;
use records::{BatchView, Batches, key_hash};
use storage::inspect::{Depth, inspect};
use storage::{Disk, KeyFilter, KeyedRecord, ScannedKind, TimedOffset};

use crate::model::{LogModel, Sent};
use crate::report::{Checked, ensure};
use crate::world::World;

/// The records that a log shows, by offset.
type Shown = BTreeMap<i64, Sent>;

impl World {
    /// Everything that can be asked of a log.
    pub(crate) fn check(&mut self, index: usize) -> Checked {
        // A swap that the disk cut short leaves names for the next start to put right.
        let may_be_half_swapped = self.may_fail() && self.models[index].compacted() > 0;
        if self.sim.is_dead() || may_be_half_swapped {
            return Ok(());
        }
        let shown = self.check_content(index)?;
        self.check_positions(index)?;
        self.check_times(index, &shown)?;
        self.check_scan(index, &shown)?;
        self.check_keys(index, &shown)?;
        self.check_state(index)?;
        self.check_files(index)
    }

    /// Reads a log from its start to its end.
    fn check_content(&mut self, index: usize) -> Checked<Shown> {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        let mut batches: Vec<Bytes> = Vec::new();
        let mut from = Offset(start);
        while from.0 < end {
            let bytes_max = self.random.pick(&[1, 300, 4_000, 100_000]);
            let upper = if self.random.percent(80) { Offset::MAX } else { from + self.random.between(1, 30) };
            let slice = match self.logs().read(id, from, bytes_max, upper, true) {
                Ok(slice) => slice,
                Err(error) => {
                    ensure!(false, Lost, "{name}: {from} cannot be read: {error}");
                    break;
                }
            };
            if slice.is_empty() && from.0 < self.models[index].compacted() {
                // Compaction has left nothing from here to there.
                from = upper.min(Offset(end));
                continue;
            }
            ensure!(!slice.is_empty(), Lost, "{name}: nothing at {from} below {upper}, with an end of {end}");
            let bytes = slice.read();
            ensure!(bytes.is_ok(), Lost, "{name}: {from} cannot be read: {bytes:?}");
            for batch in Batches::new(&bytes.unwrap_or_default()) {
                ensure!(batch.is_ok(), Lost, "{name}: no batch behind {from}: {batch:?}");
                let Ok(batch) = batch else { break };
                ensure!(batch.crc_is_valid(), Lost, "{name}: crc of {} is wrong", batch.base_offset());
                ensure!(batch.next_offset() > from, Order, "{name}: {} comes again", batch.base_offset());
                from = batch.next_offset();
                batches.push(Bytes::copy_from_slice(batch.bytes()));
            }
        }
        ensure!(from.0 == end, Order, "{name}: reading ends at {from}, the log at {end}");
        let facts = self.logs().facts(id).unwrap_or_default();
        let stable = self.models[index].last_stable();
        ensure!(facts.last_stable.0 == stable, Order, "{name}: {facts:?}, decided up to {stable}");
        let model = &self.models[index];
        let shown = compare(model, &batches)?;
        kept_by_compaction(model, &shown)?;
        Ok(shown)
    }

    /// Single reads at any offset find the batch that holds it.
    fn check_positions(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        for _ in 0..6 {
            if start == end {
                return Ok(());
            }
            let from = self.random.between(start, end - 1);
            let slice = self.logs().read(id, Offset(from), 1, Offset::MAX, true);
            ensure!(slice.is_ok(), Index, "{name}: {from} cannot be read: {slice:?}");
            let Ok(slice) = slice else { continue };
            if slice.is_empty() && from < self.models[index].compacted() {
                continue;
            }
            let bytes = slice.read().unwrap_or_default();
            let view = BatchView::parse(&bytes);
            ensure!(view.is_ok(), Index, "{name}: no batch at {from}: {view:?}");
            let Ok(view) = view else { continue };
            let model = &self.models[index];
            let holds = (view.base_offset().0..view.next_offset().0).contains(&from);
            let is_behind_hole = view.base_offset().0 > from && from < model.compacted();
            ensure!(holds || is_behind_hole, Index, "{name}: {} is shown for {from}", view.base_offset());
        }
        let beyond = self.logs().read(id, Offset(end + 1), 1, Offset::MAX, true);
        ensure!(beyond.is_err(), Order, "{name}: something is behind its end {end}");
        Ok(())
    }

    /// Offsets by time.
    fn check_times(&mut self, index: usize, shown: &Shown) -> Checked {
        let model = &self.models[index];
        let (id, name) = (model.id, model.directory());
        if model.times_are_off {
            return Ok(());
        }
        let timed = |model: &LogModel, found: Option<(&i64, &Sent)>| {
            found.map(|(offset, record)| TimedOffset {
                offset: Offset(*offset),
                timestamp: record.timestamp,
                leader_epoch: model.batch_at(*offset).map_or(-1, |batch| batch.epoch),
            })
        };
        let newest = shown.values().map(|record| record.timestamp).max();
        let expected = timed(model, shown.iter().find(|(_, record)| Some(record.timestamp) == newest));
        let found = self.logs().max_timestamp(id);
        let is_same = found.as_ref().is_ok_and(|found| *found == expected);
        ensure!(is_same, Index, "{name}: newest is {found:?} instead of {expected:?}");
        for _ in 0..3 {
            let time = match shown.len() {
                0 => self.now_ms(),
                count => {
                    let chosen = self.random.index(count);
                    let at = shown.values().nth(chosen).map_or(0, |record| record.timestamp);
                    at + self.random.between(-1, 1)
                }
            };
            let model = &self.models[index];
            let expected = timed(model, shown.iter().find(|(_, record)| record.timestamp >= time));
            let found = self.logs().offset_for_time(id, time);
            let is_same = found.as_ref().is_ok_and(|found| *found == expected);
            ensure!(is_same, Index, "{name}: at {time} is {found:?} instead of {expected:?}");
        }
        Ok(())
    }

    /// A scan shows the same records, and no damage.
    fn check_scan(&mut self, index: usize, shown: &Shown) -> Checked {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        let mut from = Offset(start);
        let mut offsets = Vec::new();
        while from.0 < end {
            let bytes_max = self.random.pick(&[1, 500, 50_000]);
            let scan = self.logs().scan(id, from, bytes_max, Offset::MAX);
            ensure!(scan.is_ok(), Lost, "{name}: {from} cannot be scanned: {scan:?}");
            let Ok(scan) = scan else { break };
            ensure!(scan.next > from, Order, "{name}: a scan stands still at {from}");
            for batch in scan.batches {
                match batch.kind {
                    ScannedKind::Data(records) => {
                        let inside = records.iter().filter(|record| record.offset.0 >= start);
                        offsets.extend(inside.map(|record| (record.offset.0, record.key)));
                    }
                    ScannedKind::Control | ScannedKind::Aborted => {}
                    ScannedKind::Corrupt(reason) => {
                        ensure!(false, Lost, "{name}: {} is called damaged: {reason}", batch.base);
                    }
                }
            }
            from = scan.next;
        }
        let hash = |record: &Sent| record.key.as_ref().map(|key| key_hash(key.as_bytes()));
        let is_same = offsets.iter().copied().eq(shown.iter().map(|(at, record)| (*at, hash(record))));
        ensure!(is_same, Order, "{name}: a scan shows other records: {offsets:?}");
        Ok(())
    }

    /// Answers by key, with or without an index.
    fn check_keys(&mut self, index: usize, shown: &Shown) -> Checked {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        let hash = |record: &Sent| record.key.as_ref().map(|key| key_hash(key.as_bytes()));
        // What a lost checkpoint brings back was deleted when its keys were indexed.
        let from = self.random.between(start.max(model.epochs_from).min(end), end);
        let upper = self.random.between(from, end);
        let wanted: Vec<KeyedRecord> = shown
            .range(from..upper)
            .map(|(at, record)| KeyedRecord { offset: Offset(*at), key: hash(record) })
            .collect();
        let mut found = Vec::new();
        let mut next = Offset(from);
        while next.0 < upper {
            let count = self.random.pick(&[1, 7, 10_000]);
            let part = self.logs().key_hashes(id, next, Offset(upper), count);
            ensure!(part.is_ok(), Keys, "{name}: no keys from {next}: {part:?}");
            let Ok(part) = part else { break };
            ensure!(part.next > next && part.damaged.is_empty(), Keys, "{name}: keys from {next}: {part:?}");
            found.extend(part.records);
            next = part.next;
        }
        ensure!(found == wanted, Keys, "{name}: keys {from} to {upper} are {found:?} instead of {wanted:?}");
        let lanes = self.random.between(1, 5) as u32;
        let filter = match self.random.below(3) {
            0 => KeyFilter::lane(self.random.below(u64::from(lanes)) as u32, lanes),
            _ => KeyFilter::key(key_hash(format!("k{}", self.random.below(10)).as_bytes())),
        };
        let is_meant = |record: &&KeyedRecord| filter.matches(record.offset, record.key);
        let wanted: Vec<Offset> = wanted.iter().filter(is_meant).map(|record| record.offset).collect();
        let mut found = Vec::new();
        let mut next = Offset(from);
        while next.0 < upper {
            let count = self.random.pick(&[1, 3, 1_024]);
            let part = self.logs().key_matches(id, filter, next, Offset(upper), count);
            ensure!(part.is_ok(), Keys, "{name}: no matches from {next}: {part:?}");
            let Ok(part) = part else { break };
            ensure!(part.next > next, Keys, "{name}: matches stand still at {next}");
            found.extend(part.offsets);
            next = part.next;
        }
        ensure!(
            found == wanted,
            Keys,
            "{name}: {filter:?} {from} to {upper}: {found:?} instead of {wanted:?}"
        );
        let mut below = Offset(upper);
        let last = loop {
            let part = self.logs().last_key_match(id, filter, Offset(from), below);
            ensure!(part.is_ok(), Keys, "{name}: no last match below {below}: {part:?}");
            let Ok(part) = part else { break None };
            if part.offset.is_some() || part.searched_from.0 <= from {
                break part.offset;
            }
            ensure!(part.searched_from < below, Keys, "{name}: the last match stands still at {below}");
            below = part.searched_from;
        };
        ensure!(last == wanted.last().copied(), Keys, "{name}: last of {filter:?} below {upper} is {last:?}");
        Ok(())
    }

    /// What `sluice log verify` says of the files, without opening the log.
    fn check_files(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        let (name, partition, end) = (model.name.clone(), model.id.index, model.end);
        let (directory, is_off) = (model.directory(), model.indexes_are_off);
        let epochs_are_off = model.epochs_are_off;
        if self.sim.list(&directory).is_err() {
            ensure!(end == model.start, Lost, "{directory}: there is no directory, with an end of {end}");
            return Ok(());
        }
        let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::clone(&self.sim) as _;
        let report = inspect(&disk, &name, partition, Depth::Verify);
        ensure!(report.is_ok(), Index, "{directory}: cannot be inspected: {report:?}");
        let Ok(report) = report else { return Ok(()) };
        let is_of_epochs =
            |finding: &storage::inspect::Finding| finding.path.ends_with("/leader-epoch-checkpoint");
        self.models[index].epochs_are_off &= report.findings.iter().any(is_of_epochs);
        let counts = |finding: &&storage::inspect::Finding| {
            // One that a power cut has torn stays until it would be used.
            let is_snapshot = finding.path.ends_with(".snapshot");
            // As is what a newer generation stands for.
            let is_older = finding.path.strip_suffix(".events").is_some_and(|path| {
                path.rsplit_once('.')
                    .and_then(|(path, of)| Some((path, of.parse::<u64>().ok()?)))
                    .is_some_and(|(path, of)| {
                        (1..4).any(|more| self.sim.open(&format!("{path}.{}.events", of + more)).is_ok())
                    })
            });
            // A torn key index is noticed, and dropped, when somebody asks it.
            let is_keys = finding.path.ends_with(".keyindex");
            let is_known = is_keys
                || (is_off && finding.path.ends_with("index"))
                || (epochs_are_off && is_of_epochs(finding));
            !(is_snapshot || is_older || is_known || report.segments.is_empty())
        };
        let finding = report.findings.iter().find(counts);
        ensure!(finding.is_none() || self.may_fail(), Index, "{directory}: {finding:?}");
        let is_whole = report.segments.is_empty() || report.end.0 == end;
        ensure!(is_whole, Index, "{directory}: its files end at {} instead of {end}", report.end);
        Ok(())
    }
}

/// Whether what was read is what was written.
fn compare(model: &LogModel, batches: &[Bytes]) -> Checked<Shown> {
    let name = model.directory();
    let compacted = model.compacted();
    let mut shown = Shown::new();
    let mut expected = model.start;
    for bytes in batches {
        let view = BatchView::parse(bytes).expect("it was parsed before");
        let base = view.base_offset().0;
        let joins = base == expected || expected < compacted || (base < expected && expected == model.start);
        ensure!(joins, Order, "{name}: {base} follows where {expected} is due");
        expected = view.next_offset().0;
        if base >= compacted {
            let stored = model.batch_at(base).filter(|stored| stored.base == base);
            ensure!(stored.is_some(), Phantom, "{name}: nobody wrote a batch at {base}");
            let Some(stored) = stored else { continue };
            ensure!(stored.bytes[..] == bytes[..], Phantom, "{name}: the batch at {base} is another one");
            let records = (stored.base..).zip(stored.records.iter().cloned());
            shown.extend(records.filter(|(offset, _)| *offset >= model.start));
            continue;
        }
        let records = view.records(1 << 20);
        ensure!(records.is_ok(), Lost, "{name}: the batch at {base} does not decode: {records:?}");
        let Ok(records) = records else { continue };
        for record in records.iter() {
            ensure!(record.is_ok(), Lost, "{name}: a record at {base} does not decode: {record:?}");
            let Ok(record) = record else { continue };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let read = Sent {
                key: record.key.map(text),
                value: record.value.map(text),
                timestamp: record.timestamp,
            };
            let offset = record.offset.0;
            let stored = model.batch_at(offset);
            let sent = stored.map(|stored| &stored.records[(offset - stored.base) as usize]);
            ensure!(sent == Some(&read), Phantom, "{name}: {read:?} at {offset} instead of {sent:?}");
            if offset >= model.start {
                shown.insert(offset, read);
            }
        }
    }
    Ok(shown)
}

/// Compaction leaves out only what a later record of the key stands for, and tombstones whose time has come.
fn kept_by_compaction(model: &LogModel, shown: &Shown) -> Checked {
    let name = model.directory();
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for batch in model.live() {
        for (offset, record) in (batch.base..).zip(&batch.records) {
            if let Some(key) = &record.key {
                last.insert(key, offset);
            }
        }
    }
    for batch in model.live() {
        for (offset, record) in (batch.base..).zip(&batch.records) {
            if offset < model.start || shown.contains_key(&offset) {
                continue;
            }
            ensure!(offset < model.compacted(), Lost, "{name}: {offset} is not there");
            let Some(key) = &record.key else { continue };
            let is_last = last.get(key.as_str()) == Some(&offset);
            let covering = || model.cleanings.iter().filter(|cleaning| cleaning.below > offset);
            let first = covering().map(|cleaning| cleaning.now_ms).min().unwrap_or(i64::MAX);
            let latest = covering().map(|cleaning| cleaning.now_ms).max().unwrap_or(0);
            let is_over = record.value.is_none() && latest - first >= model.delete_retention_ms;
            ensure!(
                !is_last || is_over,
                Compaction,
                "{name}: the last record of {key}, at {offset}, is gone"
            );
        }
    }
    Ok(())
}
