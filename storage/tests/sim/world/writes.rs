//! Appends, syncs, deletions.

use bytes::BytesMut;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId};
use records::{Codec, TimestampType};
use storage::{AppendError, Appended, DeleteError, Disk, Origin, StorageError};

use super::{Outstanding, World};
use crate::model::{Client, Sent, Sequence, Stored, Taken};
use crate::report::{Checked, ensure};

/// What a client is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Next,
    Gap,
    OldEpoch,
    NewEpoch,
    Repeat,
}

impl World {
    /// Makes a batch that nobody has made before.
    fn make(&mut self, index: usize, sequence: Option<Sequence>) -> Stored {
        let serial = self.number();
        let now = self.now_ms();
        let compacts = self.models[index].config.compact || self.models[index].compacted() > 0;
        let random = &mut self.random;
        let codec = if self.plan.codecs && random.percent(40) {
            random.pick(&[Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Lz4, Codec::Zstd])
        } else {
            Codec::None
        };
        let count = random.weighed(&[(8, 1), (6, 3), (3, 8), (1, 24)]);
        let long = random.percent(8);
        let mut builder = BatchBuilder::new(codec, TimestampType::Create);
        if let Some(sequence) = sequence {
            builder = builder.producer(sequence.id, sequence.epoch, sequence.first);
        }
        let mut records = Vec::new();
        for number in 0..random.between(1, count) {
            let keyless = if compacts { random.percent(3) } else { random.percent(20) };
            let key = (!keyless).then(|| format!("k{}", random.below(9)));
            let tombstone = compacts && key.is_some() && random.percent(15);
            let filler = if long { "x".repeat(random.below(1200) as usize) } else { String::new() };
            let value = (!tombstone).then(|| format!("v{serial}.{number}{filler}"));
            let timestamp = match random.below(10) {
                0 => now - random.between(0, 40_000),
                1 => now - 500_000_000,
                2 => now + random.between(0, 1_000),
                _ => now,
            };
            let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
            builder.append(timestamp, bytes(&key).as_deref(), bytes(&value).as_deref(), &[]);
            records.push(Sent { key, value, timestamp });
        }
        let bytes = builder.build(Offset(0), -1).to_vec();
        Stored { serial, base: self.models[index].end, bytes, epoch: self.epoch, records, sequence }
    }

    pub(super) fn append(&mut self, index: usize, as_producer: bool) -> Checked {
        let (client, intent) = if as_producer { self.intend(index) } else { (None, Intent::Next) };
        let model = &self.models[index];
        let sequence = client.map(|client| {
            let Client { id, epoch, next, .. } = model.clients[client];
            match intent {
                Intent::Gap => Sequence { id, epoch, first: (next.max(0) % 1_000_000) + 7 },
                Intent::OldEpoch => Sequence { id, epoch: epoch - 1, first: next },
                Intent::NewEpoch => Sequence { id, epoch: epoch + 1, first: 0 },
                Intent::Next | Intent::Repeat => Sequence { id, epoch, first: next },
            }
        });
        let mut batch = self.make(index, sequence);
        if intent == Intent::Repeat
            && let Some(client) = client
        {
            return self.repeat(index, client);
        }
        let (id, now) = (self.models[index].id, self.now_ms());
        let answer = self.logs().append(id, BytesMut::from(&batch.bytes[..]), Origin::Client, now);
        let name = self.models[index].directory();
        self.note(|| {
            let (serial, count, len) = (batch.serial, batch.records.len(), batch.bytes.len());
            format!("append {name} #{serial} {count} records {len} bytes {sequence:?}: {answer:?}")
        });
        let model = &mut self.models[index];
        let log_append = model.config.timestamp_type == TimestampType::LogAppend;
        stamp(&mut batch, log_append.then_some(now));
        match answer {
            Ok(appended) => {
                ensure!(
                    matches!(intent, Intent::Next | Intent::NewEpoch),
                    Producer,
                    "{name}: {intent:?} of {sequence:?} was taken"
                );
                ensure!(!model.is_poisoned, Poison, "{name}: poisoned, and took a batch");
                let expected = Appended {
                    base_offset: Offset(batch.base),
                    last_offset: Offset(batch.next() - 1),
                    append_time: log_append.then_some(now),
                    log_start: Offset(model.start),
                    bytes: batch.bytes.len() as u64,
                    duplicate: false,
                };
                ensure!(appended == expected, Order, "{name}: {appended:?} instead of {expected:?}");
                if let Some(client) = client {
                    let client = &mut model.clients[client];
                    client.next = batch.next_sequence().expect("it is a producer's");
                    client.epoch = batch.sequence.map_or(client.epoch, |sequence| sequence.epoch);
                    client.is_known = true;
                }
                model.push(batch);
            }
            Err(_) if self.sim.is_dead() => {
                if matches!(intent, Intent::Next | Intent::NewEpoch) {
                    model.maybe = Some(batch);
                }
            }
            Err(AppendError::OutOfOrderSequence { .. }) => {
                ensure!(intent == Intent::Gap, Producer, "{name}: {intent:?} of {sequence:?} leaves a gap");
            }
            Err(AppendError::InvalidProducerEpoch { .. }) => {
                ensure!(intent == Intent::OldEpoch, Producer, "{name}: {intent:?} of {sequence:?} is fenced");
            }
            Err(AppendError::TooLarge { .. }) => {
                let limit = model.config.segment_limit();
                ensure!(batch.bytes.len() as u64 > limit, Fails, "{name}: a small batch is too large");
            }
            Err(AppendError::Poisoned) => {
                ensure!(
                    model.is_poisoned || self.may_fail(),
                    Poison,
                    "{name}: poisoned, and nobody knows why"
                );
                self.models[index].is_poisoned = true;
            }
            Err(error) => ensure!(self.may_fail(), Fails, "{name}: a batch is refused: {error}"),
        }
        Ok(())
    }

    /// Chooses a client, and what it does.
    fn intend(&mut self, index: usize) -> (Option<usize>, Intent) {
        if self.models[index].clients.is_empty() || self.random.percent(8) {
            let id = self.number() as i64;
            let next = self.random.pick(&[0, 0, i32::MAX - 3]);
            let client = Client { id, epoch: 3, next, is_known: false };
            self.models[index].clients.push(client);
        }
        let client = self.random.index(self.models[index].clients.len());
        let intent = if self.models[index].clients[client].is_known {
            self.random.weighed(&[
                (10, Intent::Next),
                (1, Intent::Gap),
                (1, Intent::OldEpoch),
                (1, Intent::NewEpoch),
                (4, Intent::Repeat),
            ])
        } else {
            Intent::Next
        };
        (Some(client), intent)
    }

    /// Sends one of a client's last batches once more.
    fn repeat(&mut self, index: usize, client: usize) -> Checked {
        let model = &self.models[index];
        let known = model.remembered(&model.clients[client]);
        let from = model.knows_five_from;
        let last = known.len().saturating_sub(1);
        let is_sure = |(number, batch): &(usize, &&Stored)| batch.base >= from || *number == last;
        let sure: Vec<Stored> =
            known.iter().enumerate().filter(is_sure).map(|(_, batch)| (*batch).clone()).collect();
        if sure.is_empty() {
            return Ok(());
        }
        let batch = sure[self.random.index(sure.len())].clone();
        self.send_again(index, &batch)
    }

    /// Sends a batch that the log must know.
    pub(crate) fn send_again(&mut self, index: usize, batch: &Stored) -> Checked {
        let (id, now) = (self.models[index].id, self.now_ms());
        let answer = self.logs().append(id, BytesMut::from(&batch.bytes[..]), Origin::Client, now);
        let name = self.models[index].directory();
        self.note(|| format!("again {name} #{} {:?}: {answer:?}", batch.serial, batch.sequence));
        match answer {
            Ok(appended) => ensure!(
                appended.duplicate && appended.base_offset == Offset(batch.base),
                Producer,
                "{name}: the repetition of the batch at {} is answered {appended:?}",
                batch.base
            ),
            Err(AppendError::Poisoned) => {
                let is_poisoned = self.models[index].is_poisoned || self.may_fail();
                ensure!(is_poisoned, Poison, "{name}: poisoned, and nobody knows why");
            }
            Err(_) if self.sim.is_dead() => {}
            // As in Kafka, the size is looked at first.
            Err(AppendError::TooLarge { bytes_max, .. }) => {
                ensure!(batch.bytes.len() as u64 > bytes_max, Fails, "{name}: a small batch is too large");
            }
            Err(error) => {
                ensure!(false, Producer, "{name}: the repetition of the batch at {}: {error}", batch.base);
            }
        }
        Ok(())
    }

    /// Takes a sync job, to be run later.
    pub(super) fn take_sync(&mut self, index: usize) -> Checked {
        let (id, name) = (self.models[index].id, self.models[index].directory());
        let taken = self.logs().sync_job(id);
        self.note(|| format!("take sync of {name}: {}", taken.as_ref().is_ok_and(Option::is_some)));
        let number = self.number();
        let model = &mut self.models[index];
        match taken {
            Ok(Some(job)) => {
                ensure!(!model.is_poisoned, Poison, "{name}: poisoned, and to be synced");
                ensure!(job.end() == Offset(model.end), Order, "{name}: a sync up to {}", job.end());
                let events = model.events.iter();
                let events = events.map(|(name, log)| (*name, log.list.len(), log.ghosts.len())).collect();
                model.jobs.push_back(Taken { number, end: model.end, events, is_done: false });
                self.outstanding.push(Outstanding { number, id, job });
            }
            Ok(None) => {
                // All of it is durable, or will be by a job that is out.
                let promised = model.jobs.iter().map(|job| job.end).max().unwrap_or(0).max(model.synced);
                ensure!(promised >= model.end, Lost, "{name}: nothing to sync, with {promised} promised");
            }
            Err(error) => {
                let is_poison = matches!(error, StorageError::Poisoned);
                ensure!(model.is_poisoned || self.may_fail(), Poison, "{name}: no sync: {error}");
                self.models[index].is_poisoned |= is_poison;
            }
        }
        Ok(())
    }

    /// Runs one of the jobs that are out: of any log, but of each log in the order in which they were taken.
    pub(super) fn finish_sync(&mut self) -> Checked {
        if self.outstanding.is_empty() {
            return Ok(());
        }
        let chosen = self.random.index(self.outstanding.len());
        let id = self.outstanding[chosen].id;
        self.finish_oldest(id)
    }

    fn finish_oldest(&mut self, id: PartitionId) -> Checked {
        let Some(oldest) = self.outstanding.iter().position(|outstanding| outstanding.id == id) else {
            return Ok(());
        };
        let Outstanding { number, job, .. } = self.outstanding.remove(oldest);
        let result = job.run();
        let failed = result.is_err();
        let answer = self.logs().sync_done(result);
        let Some(index) = self.index_of(id) else { return Ok(()) };
        let name = self.models[index].directory();
        self.note(|| format!("synced {name}: {answer:?}"));
        if self.sim.is_dead() {
            return Ok(());
        }
        let model = &mut self.models[index];
        match answer {
            Ok(synced) => {
                ensure!(!failed, Poison, "{name}: a failed sync is taken for a good one");
                model.job_done(number);
                let known = model.synced.max(model.start);
                ensure!(synced.0 <= known, Lost, "{name}: {synced} is called durable, {known} is");
            }
            Err(error) => {
                ensure!(self.may_fail(), Poison, "{name}: a sync failed: {error}");
                self.models[index].is_poisoned = true;
            }
        }
        Ok(())
    }

    /// Everything of a log is synced now.
    pub(super) fn sync(&mut self, index: usize) -> Checked {
        let id = self.models[index].id;
        self.take_sync(index)?;
        while !self.sim.is_dead() && self.outstanding.iter().any(|outstanding| outstanding.id == id) {
            self.finish_oldest(id)?;
        }
        Ok(())
    }

    /// Runs all jobs that are out.
    pub(super) fn finish_jobs(&mut self) -> Checked {
        while !self.outstanding.is_empty() && !self.sim.is_dead() {
            self.finish_sync()?;
        }
        Ok(())
    }

    pub(super) fn delete_records(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        let to = self.random.between(start, end + 1);
        let before = self.log_files(index);
        self.models[index].start_max = self.models[index].start_max.max(to.min(end));
        let answer = self.logs().delete_records(id, Offset(to));
        self.note(|| format!("delete {name} to {to}: {answer:?}"));
        if self.sim.is_dead() {
            return Ok(());
        }
        let facts = self.logs().facts(id).expect("it is open");
        let model = &mut self.models[index];
        match answer {
            Ok(now) => {
                ensure!(now == facts.log_start && now.0 == to.max(start), Start, "{name}: starts at {now}");
                model.start = now.0;
                model.start_floor = model.start_floor.max(now.0);
                self.check_retired(index, &before)?;
            }
            Err(DeleteError::OutOfRange { .. }) => ensure!(to > end, Start, "{name}: {to} is refused"),
            Err(error) => {
                ensure!(self.may_fail(), Fails, "{name}: records cannot be deleted: {error}");
                let is_possible = facts.log_start.0 == start || facts.log_start.0 == to;
                ensure!(is_possible, Start, "{name}: starts at {}", facts.log_start);
                self.models[index].start = facts.log_start.0;
            }
        }
        Ok(())
    }

    pub(super) fn enforce_retention(&mut self) -> Checked {
        let now = self.now_ms();
        let before: Vec<Vec<String>> = (0..self.models.len()).map(|index| self.log_files(index)).collect();
        for model in &mut self.models {
            model.start_max = model.end;
        }
        let answer = self.logs().enforce_retention(now);
        self.note(|| format!("retention: {answer:?}"));
        if self.sim.is_dead() {
            return Ok(());
        }
        ensure!(answer.is_ok() || self.may_fail(), Fails, "retention failed: {answer:?}");
        let is_sure = !self.may_fail();
        for (index, before) in before.iter().enumerate() {
            let id = self.models[index].id;
            let facts = self.logs().facts(id).expect("it is open");
            let model = &mut self.models[index];
            let (start, name) = (facts.log_start.0, model.directory());
            ensure!(model.start <= start && start <= model.end, Start, "{name}: starts at {start}");
            if start > model.start && model.compacted() == 0 && !model.indexes_are_off {
                let config = &model.config;
                let gone = model.live().iter().filter(|batch| batch.base < start);
                let newest = gone.flat_map(|batch| &batch.records).map(|record| record.timestamp).max();
                let is_old =
                    config.retention_ms >= 0 && newest.is_none_or(|at| now - at > config.retention_ms);
                let is_large =
                    config.retention_bytes >= 0 && facts.bytes >= config.retention_bytes.unsigned_abs();
                ensure!(
                    config.delete && (is_old || is_large),
                    Early,
                    "{name}: starts at {start}, newest of what is gone {newest:?}, now {now}, {facts:?}, {config:?}"
                );
            }
            model.start = start;
            if is_sure {
                model.start_floor = start;
                self.check_retired(index, before)?;
            }
        }
        Ok(())
    }

    pub(super) fn checkpoint(&mut self) -> Checked {
        let answer = self.logs().checkpoint();
        self.note(|| format!("checkpoint: {answer:?}"));
        ensure!(answer.is_ok() || self.may_fail(), Fails, "checkpoints cannot be written: {answer:?}");
        Ok(())
    }

    /// Names of a partition's log files.
    fn log_files(&self, index: usize) -> Vec<String> {
        let entries = self.sim.list(&self.models[index].directory()).unwrap_or_default();
        entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(".log")).collect()
    }

    /// What was taken out of use is there under another name, until its time comes.
    fn check_retired(&self, index: usize, before: &[String]) -> Checked {
        if self.plan.delete_delay_ms == 0 {
            return Ok(());
        }
        let entries = self.sim.list(&self.models[index].directory()).unwrap_or_default();
        let is_there = |name: &str| entries.iter().any(|entry| entry.name == name);
        for name in before.iter().filter(|name| !is_there(name)) {
            ensure!(is_there(&format!("{name}.deleted")), Early, "{name} was removed at once");
        }
        Ok(())
    }

    /// Removes what is due, and nothing else.
    pub(super) fn remove_retired(&mut self) -> Checked {
        let now = self.now_ms();
        let there = self.retired_files();
        self.retired.retain(|path, _| there.contains(path));
        for path in there {
            self.retired.entry(path).or_insert(now);
        }
        if let Some(job) = self.logs().remove_job(now) {
            job.run();
        }
        self.note(|| "remove what is due".to_owned());
        let left = self.retired_files();
        for (path, since) in &self.retired {
            let is_due = now - since >= self.plan.delete_delay_ms;
            let is_early = !is_due && !left.contains(path) && !self.may_fail();
            ensure!(!is_early, Early, "{path} is removed after {} ms", now - since);
        }
        Ok(())
    }

    fn retired_files(&self) -> Vec<String> {
        let of = |model: &crate::model::LogModel| {
            let directory = model.directory();
            let entries = self.sim.list(&directory).unwrap_or_default();
            let retired = entries.into_iter().filter(|entry| entry.name.ends_with(".deleted"));
            retired.map(|entry| format!("{directory}/{}", entry.name)).collect::<Vec<_>>()
        };
        self.models.iter().flat_map(of).collect()
    }

    /// Reads something and keeps it: it must stay as it is, whatever becomes of the log.
    pub(super) fn hold_slice(&mut self, index: usize) -> Checked {
        let model = &self.models[index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        let from = self.random.between(start, end);
        let bytes_max = self.random.pick(&[1, 200, 3_000]);
        let slice = self.logs().read(id, Offset(from), bytes_max, Offset::MAX, true);
        self.note(|| format!("hold {name} from {from}"));
        match slice {
            Ok(slice) => {
                let bytes = slice.read();
                ensure!(bytes.is_ok() || self.may_fail(), Early, "{name}: {from} cannot be read: {bytes:?}");
                if let Ok(bytes) = bytes {
                    if self.slices.len() == 4 {
                        self.slices.remove(0);
                    }
                    self.slices.push((slice, bytes.to_vec()));
                }
            }
            Err(error) => ensure!(self.may_fail(), Lost, "{name}: {from} cannot be read: {error}"),
        }
        Ok(())
    }

    pub(super) fn check_slices(&mut self) -> Checked {
        if self.sim.is_dead() {
            return Ok(());
        }
        for (slice, bytes) in &self.slices {
            let read = slice.read();
            let is_same = read.as_ref().is_ok_and(|read| read[..] == bytes[..]);
            ensure!(is_same, Early, "a slice from {} has changed under its reader", slice.base());
        }
        Ok(())
    }
}

/// What the log makes of a batch: its offsets, the epoch, and perhaps the time.
fn stamp(batch: &mut Stored, append_time: Option<i64>) {
    batch.bytes[0..8].copy_from_slice(&batch.base.to_be_bytes());
    batch.bytes[12..16].copy_from_slice(&batch.epoch.to_be_bytes());
    if let Some(time) = append_time {
        batch.bytes[22] |= 8;
        batch.bytes[35..43].copy_from_slice(&time.to_be_bytes());
        let crc = crc32c::crc32c(&batch.bytes[21..]).to_be_bytes();
        batch.bytes[17..21].copy_from_slice(&crc);
        for record in &mut batch.records {
            record.timestamp = time;
        }
    }
}
