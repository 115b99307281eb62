//! Compaction among appends, deletes, failures, kills and power cuts on the simulated disk. After each start: what was
//! synced is there, but for what a later record of its key replaced; no record shows up that was not written there.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cleaner::CleanJob;
use crate::{AppendError, Origin};

#[derive(Clone, Debug)]
enum Step {
    Append { keys: Vec<u8> },
    Roll,
    Sync,
    Begin,
    Work { bytes: u64, steps: usize },
    Finish,
    DeleteRecords { part: i64 },
    Checkpoint,
    FailWrite,
    FailSync,
    NoRoom,
    Kill,
    PowerCut,
    CleanRestart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec(0_u8..8, 1..5).prop_map(|keys| Step::Append { keys }),
        3 => Just(Step::Roll),
        3 => Just(Step::Sync),
        4 => Just(Step::Begin),
        8 => (1_u64..800, 1_usize..30).prop_map(|(bytes, steps)| Step::Work { bytes, steps }),
        3 => Just(Step::Finish),
        1 => (0_i64..6).prop_map(|part| Step::DeleteRecords { part }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::FailWrite),
        1 => Just(Step::FailSync),
        1 => Just(Step::NoRoom),
        1 => Just(Step::Kill),
        4 => Just(Step::PowerCut),
        1 => Just(Step::CleanRestart),
    ]
}

struct Model {
    world: World,
    written: Vec<(String, String)>,
    synced: i64,
    start: i64,
    /// Above it nothing was ever compacted.
    compacted_to: i64,
    job: Option<CleanJob>,
    now: i64,
    /// No two values are equal, not even over crashes.
    names: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let world = World::with(seed, LogConfig { file_delete_delay_ms: 1000, ..compacted() });
        let (written, job) = (Vec::new(), None);
        Self { world, written, synced: 0, start: 0, compacted_to: 0, job, now: NOW, names: 0 }
    }

    fn take(&mut self, step: &Step) {
        self.now += 70_000;
        match step {
            Step::Append { keys } => self.append(keys),
            Step::Roll => roll(&mut self.world),
            Step::Sync => self.sync(),
            Step::Begin => {
                if self.job.is_none() {
                    self.job = self.world.logs().clean_job(self.now);
                    self.compacted_to = self.compacted_to.max(self.world.facts().end.0);
                }
            }
            Step::Work { bytes, steps } => self.work(*bytes, *steps),
            Step::Finish => self.work(u64::MAX, usize::MAX),
            Step::DeleteRecords { part } => {
                let to = self.world.facts().end.0 * part / 6;
                if self.world.logs().delete_records(partition(0), Offset(to)).is_ok() {
                    self.start = self.start.max(to);
                }
                if let Some(job) = self.world.logs().remove_job(NOW) {
                    job.run();
                }
            }
            Step::Checkpoint => self.world.logs().checkpoint().unwrap(),
            Step::FailWrite => {
                self.world.sim.fail_writes(1);
                self.work(300, 5);
                self.world.sim.fail_writes(0);
            }
            Step::FailSync => {
                self.world.sim.fail_syncs(1);
                self.work(300, 5);
                self.world.sim.fail_syncs(0);
            }
            Step::NoRoom => {
                self.world.sim.set_capacity(self.world.sim.used() + 150);
                self.work(300, 9);
                self.world.sim.set_capacity(u64::MAX);
            }
            Step::Kill => {
                self.job = None;
                self.world.kill();
                self.check(true);
            }
            Step::PowerCut => {
                self.job = None;
                self.world.power_cut();
                self.check(false);
            }
            Step::CleanRestart => {
                self.world.logs().stop_cleaning();
                self.work(u64::MAX, usize::MAX);
                let poisoned = self.world.logs().log_mut(partition(0)).unwrap().is_poisoned();
                if poisoned {
                    self.world.kill();
                } else {
                    self.world.clean_restart();
                }
                self.check(true);
            }
        }
    }

    fn append(&mut self, keys: &[u8]) {
        let records: Vec<(String, String)> = keys
            .iter()
            .map(|key| {
                self.names += 1;
                (format!("k{key}"), format!("value {}", self.names))
            })
            .collect();
        let borrowed: Vec<_> =
            records.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))).collect();
        let batch = batch_of(Codec::None, &borrowed);
        match self.world.logs().append(partition(0), batch, Origin::Client, NOW) {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, self.written.len() as i64);
                self.written.extend(records);
            }
            Err(error) => assert!(matches!(error, AppendError::Poisoned), "{error}"),
        }
    }

    fn sync(&mut self) {
        if let Ok(Some(job)) = self.world.logs().sync_job(partition(0)) {
            let result = job.run();
            if let Ok(end) = self.world.logs().sync_done(result) {
                self.synced = self.synced.max(end.0);
            }
        }
    }

    fn work(&mut self, bytes: u64, steps: usize) {
        for _ in 0..steps {
            let Some(job) = self.job.take() else { return };
            self.job = self.world.logs().clean_done(job.run(bytes));
        }
    }

    /// Looks at all that is there after a start. A kill loses nothing that was written.
    fn check(&mut self, all: bool) {
        let end = self.world.facts().end.0;
        assert!(end >= self.synced && end <= self.written.len() as i64, "{end}, {} synced", self.synced);
        assert!(!all || end == self.written.len() as i64, "a kill loses nothing: {end}");
        self.written.truncate(end as usize);
        assert_eq!(self.world.facts().log_start.0, self.start.min(end));
        let left = read(&mut self.world);
        let left: Vec<&Seen> = left.iter().filter(|(offset, ..)| *offset >= self.start).collect();
        let mut last = BTreeMap::new();
        for (offset, (key, _)) in self.written.iter().enumerate() {
            last.insert(key.as_str(), offset as i64);
        }
        let mut at = self.start;
        for (offset, key, value) in left {
            let (written_key, written_value) = &self.written[*offset as usize];
            assert_eq!((key, value.as_ref()), (written_key, Some(written_value)), "at {offset}");
            for gone in at..*offset {
                self.check_may_be_gone(gone, &last);
            }
            at = offset + 1;
        }
        for gone in at..end {
            self.check_may_be_gone(gone, &last);
        }
        for name in files(&self.world) {
            assert!(![".cleaned", ".swap"].iter().any(|odd| name.ends_with(odd)), "{name}");
        }
    }

    fn check_may_be_gone(&self, offset: i64, last: &BTreeMap<&str, i64>) {
        let key = self.written[offset as usize].0.as_str();
        assert!(offset < self.compacted_to, "{offset} is gone and was never compacted");
        assert!(last[key] > offset, "{offset}, the last record of {key}, is gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 3000, ..ProptestConfig::default() })]
    #[test]
    fn nothing_but_what_was_replaced_is_ever_gone(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..90),
    ) {
        let mut model = Model::new(seed);
        for step in &steps {
            model.take(step);
        }
        model.job = None;
        model.world.power_cut();
        model.check(false);
        while clean_once(&mut model.world, model.now + 100_000, 700) {
            model.now += 100_000;
        }
        model.compacted_to = model.compacted_to.max(model.world.facts().end.0);
        model.world.power_cut();
        model.check(false);
        let end = model.world.facts().end.0;
        model.append(&[1]);
        assert_eq!(model.written.len() as i64, end + 1);
    }
}
