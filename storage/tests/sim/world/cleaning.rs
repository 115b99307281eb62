//! Compaction, step by step.

use super::World;
use crate::model::Cleaning;
use crate::report::Checked;

/// Steps that a compaction takes at most; each one reads or writes something.
const STEPS_MAX: usize = 2_000;

impl World {
    /// Begins a compaction, or goes on with the one that is under way.
    pub(super) fn clean(&mut self) -> Checked {
        if self.job.is_none() {
            self.time_ms += 61_000 * i64::from(self.random.percent(30));
            let now = self.now_ms();
            self.job = self.logs().clean_job(now);
            let Some(job) = &self.job else { return Ok(()) };
            let id = job.partition();
            if let Some(index) = self.index_of(id) {
                let model = &mut self.models[index];
                model.cleanings.push(Cleaning { below: model.end, now_ms: now });
                let name = model.directory();
                self.note(|| format!("compact {name}"));
            }
        }
        let steps = if self.random.percent(50) { STEPS_MAX } else { self.random.index(12) };
        self.run_cleaning(steps);
        Ok(())
    }

    fn run_cleaning(&mut self, steps: usize) {
        for _ in 0..steps {
            let Some(job) = self.job.take() else { return };
            let bytes_max = self.random.pick(&[1, 500, 100_000]);
            let step = job.run(bytes_max);
            self.job = self.logs().clean_done(step);
            if self.sim.is_dead() {
                return;
            }
        }
        self.note(|| "compacted for a while".to_owned());
    }

    /// A compaction that is under way is told to stop, and given back.
    pub(super) fn finish_cleaning(&mut self) {
        self.logs().stop_cleaning();
        self.run_cleaning(STEPS_MAX);
        self.job = None;
    }
}
