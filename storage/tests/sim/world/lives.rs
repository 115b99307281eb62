//! How a life begins and ends.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use storage::{Boot, DataDir, Disk, LogFacts, Logs, PartitionToOpen, SimDisk, StorageError};

use super::{Outstanding, World};
use crate::breakage::Breakage;
use crate::model::{Ending, Stored};
use crate::report::{Checked, Rule, Violation, ensure};

/// Files of somebody else in the data directory, in directories whose names look like ours.
const FOREIGN: [&str; 4] = ["photos-7/one", "photos-delete/two", "t0-00/three", "t0-0.old-stray/four"];

/// Starts that may die before one is let through.
const DEATHS_MAX: u64 = 3;

impl World {
    /// Ends the life in a chosen way, damages what lies there, and begins the next one.
    pub(super) fn end(&mut self, ending: Ending) -> Checked {
        self.sim.disarm();
        self.sync_unheard(ending);
        let mut ending = ending;
        if ending == Ending::Clean && !self.stop()? {
            ending = if self.sim.is_dead() { self.draw_death() } else { Ending::Kill };
        }
        self.begin(ending)
    }

    /// Before the process is killed the oldest sync that is out has come to its end, and perhaps failed; nobody takes the
    /// result. Every second time by the count of numbers: what a seed draws stays as it was.
    fn sync_unheard(&mut self, ending: Ending) {
        if ending == Ending::Kill && self.numbers.is_multiple_of(2) && !self.outstanding.is_empty() {
            let Outstanding { id, job, .. } = self.outstanding.remove(0);
            let failed = job.run().is_err();
            self.note(|| format!("a sync of {} ends unheard, failed: {failed}", id.index));
        }
    }

    /// The process has died within a call.
    pub(super) fn fall(&mut self) -> Checked {
        let ending = self.draw_death();
        self.begin(ending)
    }

    fn draw_death(&mut self) -> Ending {
        if self.random.percent(60) { Ending::Cut } else { Ending::Kill }
    }

    /// Stops in order; whether that succeeded.
    fn stop(&mut self) -> Checked<bool> {
        self.finish_jobs()?;
        self.finish_cleaning();
        if self.plan.dies_within && self.random.percent(20) {
            let calls = self.random.below(25);
            self.sim.die_after(calls);
        }
        let poisoned = self.models.iter().any(|model| model.is_poisoned);
        let logs = self.logs.take().expect("a process runs");
        let closed = logs.close();
        self.note(|| format!("close {closed:?}"));
        // The mark may be written although that did not come through.
        self.may_look_clean = !poisoned;
        if closed.is_err() {
            ensure!(poisoned || self.may_fail(), Fails, "a stop in order failed: {closed:?}");
            return Ok(false);
        }
        ensure!(!poisoned, Poison, "a poisoned log was closed as if all was well");
        self.must_look_clean = !self.sim.is_dead();
        for model in &mut self.models {
            model.synced = model.end;
            model.start_floor = model.start;
            for events in model.events.values_mut() {
                events.synced = events.list.len();
                events.ghosts.clear();
            }
        }
        Ok(true)
    }

    /// Begins a life after one that ended so, however many starts die on the way.
    pub(super) fn begin(&mut self, ending: Ending) -> Checked {
        self.depart(ending);
        self.damage(ending)?;
        self.give_up_torn_starts()?;
        let mut deaths = 0;
        while !self.try_begin(deaths < DEATHS_MAX)? {
            deaths += 1;
            let ending = self.draw_death();
            self.depart(ending);
        }
        self.sim.disarm();
        self.is_damaged = false;
        self.check_kept()?;
        let corrupted = self.corrupted.take();
        for index in 0..self.models.len() {
            if corrupted.as_ref().is_none_or(|corrupted| corrupted.index != index) {
                self.check(index)?;
            }
        }
        corrupted.map_or(Ok(()), |corrupted| self.check_corrupted(&corrupted))
    }

    /// What the process had is gone, and perhaps more.
    fn depart(&mut self, ending: Ending) {
        self.note(|| format!("-- {ending:?}"));
        self.logs = None;
        self.outstanding.clear();
        self.job = None;
        self.slices.clear();
        self.retired.clear();
        if ending == Ending::Cut {
            self.sim.crash();
        } else {
            self.sim.restart();
        }
        self.sim.set_capacity(u64::MAX);
        self.is_full = false;
        self.must_look_clean &= ending == Ending::Clean;
        for model in &mut self.models {
            model.ending = model.ending.max(Some(ending));
            model.jobs.clear();
            model.is_poisoned = false;
            model.has_keys = false;
        }
    }

    /// One start; false where it died.
    fn try_begin(&mut self, may_die: bool) -> Checked<bool> {
        let is_calm = !std::mem::take(&mut self.is_faulty) && !self.is_damaged;
        // What a fault has left undone, or damage has taken, may be missed long after.
        self.is_rough |= !is_calm;
        if may_die && self.plan.dies_within && self.random.percent(15) {
            let calls = self.random.below(40);
            self.sim.die_after(calls);
        }
        let outcome = self.start(is_calm);
        let is_dead = self.sim.is_dead();
        if !is_calm {
            // A start that dies leaves it to the next one.
            self.is_faulty = is_dead;
        }
        match outcome {
            Ok(()) => Ok(!is_dead),
            Err(Begin::Broken(violation)) => Err(violation),
            Err(Begin::Storage(_)) if is_dead => Ok(false),
            Err(Begin::Storage(error)) => {
                Err(Violation { rule: Rule::Fails, what: format!("a start failed: {error}") })
            }
        }
    }

    /// As a broker does: where not all logs are as an orderly stop left them, it starts once more, as after another one.
    fn start(&mut self, is_calm: bool) -> Result<(), Begin> {
        self.start_once(is_calm)?;
        if !self.logs().has_lost_records() {
            return Ok(());
        }
        ensure!(!is_calm, Lost, "a log is not as an orderly stop has left it");
        self.note(|| "not all logs are as they were left: start anew".to_owned());
        self.logs = None;
        self.start_once(is_calm)
    }

    fn start_once(&mut self, is_calm: bool) -> Result<(), Begin> {
        let data_dir = DataDir::open(Arc::clone(&self.disk))?;
        let is_clean = data_dir.was_clean();
        self.boot += 1;
        if is_clean != self.must_look_clean && !(is_clean && self.may_look_clean) {
            let what = format!("a stop looks in order: {is_clean}");
            return Err(Begin::Broken(Violation { rule: Rule::Epoch, what }));
        }
        self.must_look_clean = false;
        if !is_clean && (self.breakage != Some(Breakage::EpochNotRaised) || self.epoch < 0) {
            self.epoch += 1;
        }
        let boot = Boot { boot: self.boot, leader_epoch: self.epoch };
        let line = format!("start, clean {is_clean}, calm {is_calm}, epoch {}", self.epoch);
        self.note(|| line);
        self.logs = Some(Logs::open(data_dir, self.plan.options.clone(), boot)?);
        self.may_look_clean = false;
        // What tells of its topic may be lost with the power: then nothing but the sweep keeps a new topic from it.
        let must_sweep = self.models.iter().any(|model| !model.was_open && model.ending == Some(Ending::Cut));
        if self.random.percent(70) || must_sweep {
            self.sweep()?;
        }
        for index in 0..self.models.len() {
            self.open(index, is_clean, is_calm)?;
        }
        Ok(())
    }

    /// Sets aside what the metadata does not know any more.
    fn sweep(&mut self) -> Result<(), StorageError> {
        for found in self.logs().partitions_on_disk()? {
            let is_known = self.models.iter().any(|model| {
                model.name == found.topic
                    && model.id.index == found.index
                    && found.topic_id.map_or(model.was_open, |topic| topic == model.id.topic)
            });
            if !is_known {
                let aside = self.logs().set_aside_found(&found)?;
                self.note(|| format!("set aside {aside}"));
                self.strays.push(aside);
            }
        }
        Ok(())
    }

    /// What was set aside is never removed, and what is not ours never touched.
    fn check_kept(&self) -> Checked {
        let entries = self.sim.list("").unwrap_or_default();
        for stray in &self.strays {
            let is_there = entries.iter().any(|entry| entry.is_dir && entry.name == *stray);
            ensure!(is_there, Lost, "{stray} was set aside and is gone");
        }
        for path in FOREIGN {
            let is_whole = self.sim.read(path).is_ok_and(|bytes| bytes.as_deref() == Some(path.as_bytes()));
            ensure!(is_whole, Lost, "{path} is not as it was");
        }
        Ok(())
    }

    /// Opens a log, checks what was read for that, and what came back.
    pub(super) fn open(&mut self, index: usize, is_clean: bool, is_calm: bool) -> Result<(), Begin> {
        let model = &self.models[index];
        let (id, name, config) = (model.id, model.name.clone(), model.config.clone());
        let limits = if !self.is_rough { self.readable(index, is_clean) } else { None };
        self.sim.watch_reads();
        // As a start does, which refuses a log that is gone although records of it were synced: none ever is.
        let wanted = PartitionToOpen { id, topic: name.clone(), config };
        let facts = self.logs().open_partitions(vec![wanted])?.remove(0);
        let read = self.sim.watched_reads();
        self.note(|| format!("open {name}-{} {facts:?}", id.index));
        if let Some(limits) = limits {
            let directory = format!("{name}-{}/", id.index);
            for (path, bytes) in read.iter().filter(|(path, _)| path.ends_with(".log")) {
                let file = path.strip_prefix(&directory).unwrap_or(path);
                let limit = limits.get(file).copied().unwrap_or(0);
                if *bytes > limit {
                    let what = format!("{bytes} bytes of {path} instead of {limit}, clean {is_clean}");
                    return Err(Begin::Broken(Violation { rule: Rule::Reading, what }));
                }
            }
        }
        self.settle(index, facts, is_clean, is_calm)?;
        if is_clean {
            // A stop can have been in order although it did not live to say so.
            self.models[index].synced = self.models[index].synced.max(facts.synced.0);
        }
        let names: Vec<u64> = self.models[index].events.keys().copied().collect();
        for name in names {
            self.open_events(index, name)?;
        }
        self.models[index].ending = None;
        self.models[index].was_open = true;
        Ok(())
    }

    /// How many bytes of which log file a start may read; `None` where nothing can be said.
    fn readable(&self, index: usize, is_clean: bool) -> Option<BTreeMap<String, u64>> {
        let model = &self.models[index];
        let entries = self.sim.list(&model.directory()).ok()?;
        // Of a compacted log open transactions are looked for from its start on.
        if entries.iter().any(|entry| entry.name.ends_with(".swap")) || model.compacted() > 0 {
            return None;
        }
        let logs: Vec<(i64, String)> = entries
            .into_iter()
            .filter_map(|entry| Some((entry.name.strip_suffix(".log")?.parse().ok()?, entry.name)))
            .collect();
        let (last, name) = logs.last()?.clone();
        if is_clean {
            let largest = model.batches.iter().map(|batch| batch.bytes.len() as u64).max().unwrap_or(0);
            return Some(BTreeMap::from([(name, 2 * (model.interval_max + largest))]));
        }
        let point = self.recovery_point(index).min(last);
        let checked = logs.partition_point(|(base, _)| *base < point).saturating_sub(1);
        // What a lost producer snapshot knew must be read from the log again.
        let snapshot = self.newest_snapshot(&model.directory(), logs[checked].0);
        let snapshot = if checked == 0 { Some(0) } else { snapshot }?;
        let first = logs.partition_point(|(base, _)| *base <= snapshot).saturating_sub(1).min(checked);
        Some(logs.into_iter().skip(first).map(|(_, name)| (name, u64::MAX)).collect())
    }

    /// The offset of the newest producer snapshot up to `end` that is whole.
    fn newest_snapshot(&self, directory: &str, end: i64) -> Option<i64> {
        let is_whole = |name: &str| {
            let bytes = self.sim.read(&format!("{directory}/{name}")).ok().flatten().unwrap_or_default();
            bytes.len() >= 10 && bytes[2..6] == crc32c::crc32c(&bytes[6..]).to_be_bytes()
        };
        let entries = self.sim.list(directory).ok()?;
        let whole = entries.iter().filter(|entry| entry.name.ends_with(".snapshot") && is_whole(&entry.name));
        let offsets = whole.filter_map(|entry| entry.name.strip_suffix(".snapshot")?.parse().ok());
        offsets.filter(|at| *at <= end).max()
    }

    /// As the checkpoint has it.
    fn recovery_point(&self, index: usize) -> i64 {
        let model = &self.models[index];
        let read = || -> io::Result<Option<Vec<u8>>> { self.sim.read("recovery-point-offset-checkpoint") };
        let Ok(Some(bytes)) = read() else { return 0 };
        let log = format!("{} {} ", model.name, model.id.index);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().find_map(|line| line.strip_prefix(&log)?.parse().ok()).unwrap_or(0)
    }

    /// Takes over what is left of a log, after checking that it may be just that.
    fn settle(&mut self, index: usize, facts: LogFacts, is_clean: bool, is_calm: bool) -> Checked {
        let epoch = self.epoch;
        let model = &mut self.models[index];
        let ending = model.ending.unwrap_or(Ending::Clean);
        let name = model.directory();
        let (start, end) = (facts.log_start.0, facts.end.0);
        ensure!(
            facts.leader_epoch == epoch,
            Epoch,
            "{name}: epoch {} instead of {epoch}",
            facts.leader_epoch
        );
        ensure!(start <= end, Start, "{name}: starts at {start}, behind its end {end}");
        let maybe = model.maybe.take();
        let mut kept = if ending == Ending::Cut { model.synced } else { model.end };
        if !is_clean
            && let Some(corrupted) = self.corrupted.as_ref().filter(|corrupted| corrupted.index == index)
            && end == corrupted.base.max(start)
        {
            // A start that has to check the batch ends the log in front of it: one after an unclean stop looks into the
            // segment below the recovery point, and checks all of it where that one's end cannot be found.
            kept = kept.min(end);
        }
        ensure!(end >= kept, Lost, "{name}: ends at {end}, {kept} must be there after {ending:?}");
        if end > model.end {
            match maybe.filter(|batch| batch.base == model.end && batch.next() == end) {
                Some(batch) => model.adopt(batch),
                None => ensure!(start == end, Phantom, "{name}: ends at {end} instead of {}", model.end),
            }
        }
        let is_boundary = end == 0 || end == start || model.batches.iter().any(|batch| batch.next() == end);
        ensure!(is_boundary, Order, "{name}: ends within a batch, at {end}");
        let (floor, start_max) = (model.start_floor, model.start_max.max(model.start_floor));
        ensure!(start >= floor, Start, "{name}: starts at {start}, below {floor}");
        ensure!(start <= start_max, Start, "{name}: starts at {start}, beyond {start_max}");
        model.truncate(end);
        (model.start, model.start_max) = (start, start);
        if ending == Ending::Cut || !is_calm {
            model.knows_five_from = end;
        }
        model.note_clients();
        if ending == Ending::Cut {
            // Of a producer's batches compaction keeps the last one, and that may be lost.
            let compacted = model.compacted();
            let is_sure = |last: Option<&&Stored>| last.is_some_and(|last| last.base >= compacted);
            let clients = std::mem::take(&mut model.clients);
            let sure =
                clients.into_iter().filter(|client| is_sure(model.remembered(client).last())).collect();
            model.clients = sure;
        }
        Ok(())
    }
}

/// Puts them there, for good.
pub(super) fn put_foreign(sim: &SimDisk) -> io::Result<()> {
    for path in FOREIGN {
        let directory = path.split('/').next().unwrap_or_default();
        sim.create_dir(directory)?;
        let file = sim.create(path)?;
        file.write_all_at(path.as_bytes(), 0)?;
        file.sync_data()?;
        sim.sync_dir(directory)?;
    }
    sim.sync_dir("")
}

/// Why a start did not come through.
pub(super) enum Begin {
    Broken(Violation),
    Storage(StorageError),
}

impl From<StorageError> for Begin {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<Violation> for Begin {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}
