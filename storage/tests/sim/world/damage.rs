//! What happens to the files of a stopped broker: what can be made again is lost or spoilt, tails are torn.

use std::sync::Arc;

use records::ids::Offset;
use storage::inspect::{Depth, inspect};
use storage::{Boot, DataDir, Disk, Logs, ScannedKind, SimDisk, StorageError};

use super::World;
use crate::model::Ending;
use crate::report::{Checked, ensure};

const LOG_START: &str = "log-start-offset-checkpoint";

/// A batch that was spoilt.
#[derive(Clone, Debug)]
pub(super) struct Corrupted {
    pub(super) index: usize,
    path: String,
    position: u64,
    pub(super) base: i64,
    next: i64,
    /// Whether segments behind it hold something.
    is_followed: bool,
}

/// A way to spoil a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Delete,
    Cut,
    Flip,
}

impl World {
    /// Damages something, now and then.
    pub(super) fn damage(&mut self, ending: Ending) -> Checked {
        if !self.plan.damages || !self.random.percent(45) {
            return Ok(());
        }
        for _ in 0..self.random.between(1, 2) {
            let index = self.random.index(self.models.len());
            match self.random.below(8) {
                0 | 1 => self.spoil(index, &[".index", ".timeindex"]),
                2 => self.spoil(index, &[".snapshot", ".producers"]),
                3 => self.spoil(index, &[".keyindex"]),
                4 => self.spoil_checkpoint(index),
                5 => self.tear(index, ".log"),
                6 => self.tear(index, ".events"),
                _ if ending != Ending::Clean => self.cut_log(index),
                _ if self.random.percent(60) => self.corrupt(index),
                _ => self.forget_order(),
            }
        }
        // What was done to the files stays.
        self.sim.sync_all().expect("nothing is in its way");
        Ok(())
    }

    fn files(&self, index: usize, suffixes: &[&str]) -> Vec<String> {
        let directory = self.models[index].directory();
        let entries = self.sim.list(&directory).unwrap_or_default();
        let is_one = |name: &str| suffixes.iter().any(|suffix| name.ends_with(suffix));
        let found = entries.into_iter().filter(|entry| is_one(&entry.name));
        found.map(|entry| format!("{directory}/{}", entry.name)).collect()
    }

    /// Spoils a file that can be made again.
    fn spoil(&mut self, index: usize, suffixes: &[&str]) {
        let files = self.files(index, suffixes);
        if files.is_empty() {
            return;
        }
        let path = files[self.random.index(files.len())].clone();
        let harm = self.random.pick(&[Harm::Delete, Harm::Cut, Harm::Flip]);
        self.harm(&path, harm);
        let model = &mut self.models[index];
        model.indexes_are_off |= path.ends_with(".index") || path.ends_with(".timeindex");
        // Kafka's format has no checksum that would tell.
        model.times_are_off |= path.ends_with(".timeindex") && !matches!(harm, Harm::Delete);
    }

    /// Loses one of the checkpoints that can do without.
    fn spoil_checkpoint(&mut self, index: usize) {
        let epochs = format!("{}/leader-epoch-checkpoint", self.models[index].directory());
        let path = match self.random.below(5) {
            0 => "recovery-point-offset-checkpoint",
            1 => "replication-offset-checkpoint",
            2 => LOG_START,
            _ => &epochs,
        };
        if path == epochs && self.models.iter().any(|model| model.compacted() > 0) {
            return;
        }
        if !matches!(self.sim.read(path), Ok(Some(_))) {
            return;
        }
        self.models[index].epochs_are_off |= path == epochs;
        if path == LOG_START {
            for model in &mut self.models {
                model.epochs_from = model.epochs_from.max(model.start);
                model.epochs_are_off = true;
                if model.live().first().is_none_or(|first| first.next() > model.synced) {
                    // Nothing else tells where a log ended that holds nothing durable.
                    model.synced = 0;
                    model.ending = Some(Ending::Cut);
                }
                model.start_floor = 0;
            }
        }
        let harm = self.random.pick(&[Harm::Delete, Harm::Cut]);
        self.harm(path, harm);
        self.starts_are_torn |= path == LOG_START;
    }

    /// Where it is torn what says where logs start, no start comes through and none changes anything: deleted records
    /// must not rise again unasked. Then somebody gives them up, and asks for that.
    pub(super) fn give_up_torn_starts(&mut self) -> Checked {
        if !std::mem::take(&mut self.starts_are_torn) || !matches!(self.sim.read(LOG_START), Ok(Some(_))) {
            return Ok(());
        }
        let boot = Boot { boot: self.boot, leader_epoch: self.epoch };
        let opened = DataDir::open(Arc::clone(&self.disk))
            .and_then(|data_dir| Logs::open(data_dir, self.plan.options.clone(), boot));
        let is_refused = matches!(&opened, Err(StorageError::Damaged { path, .. }) if path == LOG_START);
        ensure!(is_refused, Start, "a torn {LOG_START} is taken for one: {:?}", opened.err());
        self.harm(LOG_START, Harm::Delete);
        self.sim.sync_all().expect("nothing is in its way");
        Ok(())
    }

    fn harm(&mut self, path: &str, harm: Harm) {
        let len = self.sim.read_len(path).ok().flatten().unwrap_or(0);
        self.note(|| format!("damage: {harm:?} {path} of {len} bytes"));
        self.is_damaged = true;
        match harm {
            Harm::Flip if len > 0 => {
                let at = self.random.below(len);
                let flip = 1 << self.random.below(8);
                edit(&self.sim, path, |bytes| bytes[at as usize] ^= flip);
            }
            Harm::Cut if len > 0 => {
                let left = self.random.below(len) as usize;
                edit(&self.sim, path, |bytes| bytes.truncate(left));
            }
            _ => self.sim.remove_file(path).expect("it is there"),
        }
    }

    /// Leaves the beginning of a write that never ended.
    fn tear(&mut self, index: usize, suffix: &str) {
        let files = self.files(index, &[suffix]);
        let Some(path) = files.last().cloned() else { return };
        if suffix == ".events" && self.sim.read_len(&path).ok().flatten().unwrap_or(0) < 8 {
            // Half a header is no tail.
            return;
        }
        let count = self.random.between(1, 90);
        let garbage: Vec<u8> = (0..count).map(|_| self.random.below(256) as u8).collect();
        self.note(|| format!("damage: {count} bytes of garbage behind {path}"));
        self.is_damaged = true;
        edit(&self.sim, &path, |bytes| bytes.extend(garbage));
    }

    /// The log is cut by hand, after a stop that was not in order.
    fn cut_log(&mut self, index: usize) {
        let files = self.files(index, &[".log"]);
        let Some(path) = files.last().cloned() else { return };
        let len = self.sim.read_len(&path).ok().flatten().unwrap_or(0);
        let left = self.random.below(len + 1);
        self.note(|| format!("damage: {path} is cut to {left} of {len} bytes"));
        self.is_damaged = true;
        edit(&self.sim, &path, |bytes| bytes.truncate(left as usize));
        let base = path.rsplit('/').next().and_then(|name| name.strip_suffix(".log")?.parse::<i64>().ok());
        let base = base.expect("a log file is named by an offset");
        let model = &mut self.models[index];
        // What is in the file counts from its beginning, whatever a power cut had taken of it before.
        let mut bytes = left;
        let mut floor = base;
        for batch in model.batches.iter().filter(|batch| batch.base >= base) {
            match bytes.checked_sub(batch.bytes.len() as u64) {
                Some(rest) => (bytes, floor) = (rest, batch.next()),
                None => break,
            }
        }
        model.synced = model.synced.min(floor);
        model.ending = Some(Ending::Cut);
    }

    /// Spoils a batch that no start will read.
    fn corrupt(&mut self, index: usize) {
        let model = &self.models[index];
        let files = self.files(index, &[".log"]);
        if files.len() < 2 || model.compacted() > 0 || model.indexes_are_off || self.corrupted.is_some() {
            return;
        }
        let chosen = self.random.index(files.len() - 1);
        let path = files[chosen].clone();
        let is_filled = |path: &String| self.sim.read_len(path).ok().flatten().unwrap_or(0) > 0;
        let is_followed = files[chosen + 1..].iter().any(is_filled);
        let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".log"));
        let base: i64 = name.and_then(|name| name.parse().ok()).expect("a log file is named by an offset");
        let len = self.sim.read_len(&path).ok().flatten().unwrap_or(0);
        let mut batches = Vec::new();
        let mut position = 0;
        for batch in self.models[index].batches.iter().filter(|batch| batch.base >= base) {
            if position >= len {
                break;
            }
            batches.push((batch.base, batch.next(), position, batch.bytes.len() as u64));
            position += batch.bytes.len() as u64;
        }
        let start = self.models[index].start;
        batches.retain(|(_, next, ..)| *next > start);
        if batches.is_empty() {
            return;
        }
        let (base, next, position, size) = batches[self.random.index(batches.len())];
        // What is before the CRC is under no checksum.
        let at = position + 17 + self.random.below(size - 17);
        let flip = 1 << self.random.below(8);
        self.note(|| format!("damage: byte {at} of {path}, in the batch {base} to {next} at {position}"));
        self.is_damaged = true;
        edit(&self.sim, &path, |bytes| bytes[at as usize] ^= flip);
        self.corrupted = Some(Corrupted { index, path, position, base, next, is_followed });
    }

    /// A damaged batch is told of, by its place, and everything else is there. Then the topic makes way for another one.
    pub(super) fn check_corrupted(&mut self, corrupted: &Corrupted) -> Checked {
        let Corrupted { index, path, position, base, next, is_followed } = corrupted;
        let model = &self.models[*index];
        let (id, name, start, end) = (model.id, model.directory(), model.start, model.end);
        if end == (*base).max(start) {
            let rest = format!("{path}.{position}.");
            let is_kept = self.files(*index, &[".lost"]).iter().any(|file| file.starts_with(&rest));
            ensure!(
                is_kept || !is_followed,
                Damage,
                "{name}: cut at {base}, and what was behind is not kept"
            );
            self.check(*index)?;
            return self.recreate(*index);
        }
        let mut from = Offset(start);
        let mut is_told = false;
        while from.0 < end {
            let bytes_max = self.random.pick(&[1, 500, 50_000]);
            let scan = self.logs().scan(id, from, bytes_max, Offset::MAX);
            ensure!(scan.is_ok(), Damage, "{name}: {from} cannot be scanned: {scan:?}");
            let Ok(scan) = scan else { break };
            ensure!(scan.next > from, Damage, "{name}: a scan stands still at {from}");
            let mut expected = from;
            for batch in scan.batches {
                let (first, behind) = (batch.base.0.max(start), batch.last.0 + 1);
                ensure!(first == expected.0, Damage, "{name}: {expected} is passed over for {first}");
                expected = Offset(behind);
                let covers = first <= (*base).max(start) && *next <= behind;
                match batch.kind {
                    // A header that cannot be trusted may hide what follows it too.
                    ScannedKind::Corrupt(_) => is_told |= covers,
                    _ => {
                        let stored = self.models[*index].batch_at(batch.base.0);
                        let is_good = stored.is_some_and(|stored| stored.next() == behind) && !covers;
                        ensure!(is_good, Damage, "{name}: {first} to {behind} is shown, {base} is damaged");
                    }
                }
            }
            ensure!(scan.next == expected, Damage, "{name}: {expected} is passed over for {}", scan.next);
            from = scan.next;
        }
        ensure!(is_told, Damage, "{name}: nobody tells of the damage to {base}");
        let model = &self.models[*index];
        let disk: Arc<dyn Disk> = Arc::clone(&self.sim) as _;
        let report = inspect(&disk, &model.name, id.index, Depth::Verify);
        let is_told = report.as_ref().is_ok_and(|report| {
            report.findings.iter().any(|finding| finding.path == *path && finding.position == Some(*position))
        });
        ensure!(is_told, Damage, "{name}: the damage at {position} of {path} is not found: {report:?}");
        self.recreate(*index)
    }

    /// The mark of an orderly stop is lost.
    fn forget_order(&mut self) {
        if self.sim.remove_file(".kafka_cleanshutdown").is_ok() {
            self.note(|| "damage: the mark of an orderly stop is gone".to_owned());
            self.is_damaged = true;
            self.must_look_clean = false;
        }
    }
}

fn edit(disk: &SimDisk, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.read(path).expect("it can be read").expect("it is there");
    change(&mut bytes);
    let file = disk.create(path).expect("it can be made anew");
    file.write_all_at(&bytes, 0).expect("there is room");
}
