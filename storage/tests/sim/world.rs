//! A data directory on a simulated disk, from its first start to its last power cut.

mod cleaning;
mod damage;
mod events;
mod keys;
mod lives;
mod steps;
mod writes;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use records::ids::PartitionId;
use storage::{CleanJob, Disk, LogSlice, Logs, SimDisk, SyncJob};

use crate::breakage::{Breakage, BrokenDisk};
use crate::model::{Ending, LogModel, topic_id};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::{Checked, Report, Rule, Trace, Violation};

/// When a run begins, ms since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// A sync job that is not given back yet.
#[derive(Debug)]
struct Outstanding {
    number: u64,
    id: PartitionId,
    job: SyncJob,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) sim: Arc<SimDisk>,
    pub(crate) disk: Arc<dyn Disk>,
    breakage: Option<Breakage>,
    logs: Option<Logs>,
    boot: u64,
    pub(crate) epoch: i32,
    pub(crate) models: Vec<LogModel>,
    outstanding: Vec<Outstanding>,
    job: Option<CleanJob>,
    /// What readers hold, and the bytes that they must find in it.
    slices: Vec<(LogSlice, Vec<u8>)>,
    /// Files out of use, and since when somebody looks whether they are due.
    retired: BTreeMap<String, i64>,
    time_ms: i64,
    /// Topics, batches, jobs and events so far.
    numbers: u64,
    pub(crate) trace: Trace,
    /// A fault was let loose in this life.
    pub(crate) is_faulty: bool,
    /// There was a fault or damage before this life.
    is_rough: bool,
    /// The disk has little room.
    is_full: bool,
    /// The mark of an orderly stop may be there although it was none.
    may_look_clean: bool,
    /// The stop was in order, and nothing has touched its mark.
    must_look_clean: bool,
    /// A batch that was spoilt before this start.
    corrupted: Option<damage::Corrupted>,
    /// Files were damaged since the last start.
    is_damaged: bool,
    /// What says where logs start is torn, if it is there.
    starts_are_torn: bool,
    /// Directories that were set aside.
    strays: Vec<String>,
}

/// Runs a seed to its end, or to the first promise that is broken.
pub(crate) fn run(seed: u64, breakage: Option<Breakage>) -> Report {
    let mut world = World::new(seed, breakage);
    let steps = world.plan.steps;
    let outcome = catch_unwind(AssertUnwindSafe(|| world.live())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Violation { rule: Rule::Fails, what: format!("panicked: {text}") })
    });
    Report { seed, violation: outcome.err(), trace: world.trace, steps }
}

impl World {
    fn new(seed: u64, breakage: Option<Breakage>) -> Self {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random);
        let sim = Arc::new(SimDisk::new(random.fork().below(u64::MAX)));
        if plan.slow {
            sim.set_latency(50, 20_000);
        }
        let disk: Arc<dyn Disk> = match breakage {
            None => Arc::clone(&sim) as Arc<dyn Disk>,
            Some(breakage) => Arc::new(BrokenDisk { disk: Arc::clone(&sim), breakage }),
        };
        let mut world = Self {
            random,
            plan,
            sim,
            disk,
            breakage,
            logs: None,
            boot: 0,
            epoch: -1,
            models: Vec::new(),
            outstanding: Vec::new(),
            job: None,
            slices: Vec::new(),
            retired: BTreeMap::new(),
            time_ms: BEGIN_MS,
            numbers: 0,
            trace: Trace::default(),
            is_faulty: false,
            is_rough: false,
            is_full: false,
            may_look_clean: false,
            must_look_clean: false,
            corrupted: None,
            is_damaged: false,
            starts_are_torn: false,
            strays: Vec::new(),
        };
        lives::put_foreign(&world.sim).expect("nothing fails so early");
        for topic in 0..world.plan.topics {
            world.add_topic(&format!("t{topic}"));
        }
        world
    }

    fn live(&mut self) -> Checked {
        self.begin(Ending::Clean)?;
        for _ in 0..self.plan.steps {
            self.step()?;
            if self.sim.is_dead() {
                self.fall()?;
            }
        }
        self.end(Ending::Cut)
    }

    /// A number that nothing else in the run has.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.time_ms + (self.sim.elapsed_micros() / 1000) as i64
    }

    pub(crate) fn logs(&mut self) -> &mut Logs {
        self.logs.as_mut().expect("a process runs")
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let text = format!("{:>8} {}", self.now_ms() - BEGIN_MS, line());
        self.trace.note(text);
    }

    /// Whether a call may fail now although it is a right one.
    pub(crate) fn may_fail(&self) -> bool {
        self.is_faulty || self.is_full || self.sim.is_dead()
    }

    /// Makes the partitions of a new topic known; nothing is opened.
    fn add_topic(&mut self, name: &str) {
        let topic = topic_id(self.number());
        for index in 0..self.plan.partitions {
            let config = self.plan.config(&mut self.random);
            self.models.push(LogModel::new(name.to_owned(), PartitionId { topic, index }, config));
        }
    }

    pub(crate) fn index_of(&self, id: PartitionId) -> Option<usize> {
        self.models.iter().position(|model| model.id == id)
    }
}
