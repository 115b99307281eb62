//! Driving log compaction: which jobs run, and how fast.
//!
//! A job runs on a thread of its own, step by step; between two steps it waits until the bytes that all jobs have read
//! and written so far are within the rate. The shard's worker only puts finished segments in their place.

use std::sync::Arc;

use coordinator::time::{Micros, Mono, Now};
use storage::{CleanJob, CleanStep, Logs};

use super::engine::Engine;
use super::mailbox::Mail;
use super::pool::Pool;
use crate::metrics;

/// Bytes of a step where the rate allows it: a stop waits for no more than that.
const STEP_BYTES_MAX: f64 = (16_u32 << 20) as f64;
/// Bytes of a step at the least: below it the hand-over would cost more than the work.
const STEP_BYTES_MIN: f64 = 65_536.0;
/// Steps in a second at a low rate: how evenly the work is spread.
const STEPS_PER_SECOND: f64 = 10.0;
/// Compressing takes more stack than reading does.
const STACK_BYTES: usize = 1 << 20;

/// How compaction is done (`CleanerConfig`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleaningPace {
    /// Whether it is (`log.cleaner.enable`).
    pub enabled: bool,
    /// Bytes read and written in a second, over all jobs (`log.cleaner.io.max.bytes.per.second`).
    pub bytes_per_second: f64,
    /// How long to wait where there was nothing to do (`log.cleaner.backoff.ms`).
    pub backoff: Micros,
    /// Jobs that run beside each other (`log.cleaner.threads`).
    pub threads: usize,
}

/// The jobs of one executor.
pub(crate) struct Cleaning {
    pace: CleaningPace,
    pool: Pool,
    /// Their next step is not due.
    waiting: Vec<CleanJob>,
    /// When the bytes of before are within the rate.
    free_at: Mono,
    /// When to look for the next log.
    look_at: Mono,
}

impl Cleaning {
    pub(crate) fn new(pace: CleaningPace, now: Mono) -> Self {
        Self {
            pool: Pool::with_stack("clean", pace.threads.max(1), STACK_BYTES),
            pace,
            waiting: Vec::new(),
            free_at: now,
            look_at: now,
        }
    }

    /// When there is something to do next, if nothing comes back before.
    pub(crate) fn next_at(&self) -> Option<Mono> {
        let next_step = (!self.waiting.is_empty()).then_some(self.free_at);
        let next_look = self.pace.enabled.then_some(self.look_at);
        next_step.into_iter().chain(next_look).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, logs: &mut Logs, now: Now, engine: &Arc<Engine>) {
        if now.mono >= self.free_at {
            for job in std::mem::take(&mut self.waiting) {
                self.run(job, engine);
            }
        }
        if !self.pace.enabled || now.mono < self.look_at {
            return;
        }
        self.look_at = now.mono + self.pace.backoff;
        while let Some(job) = logs.clean_job(now.wall_ms) {
            self.run(job, engine);
        }
    }

    /// Takes a step back; its job goes on when the rate allows it.
    pub(crate) fn done(&mut self, step: CleanStep, logs: &mut Logs, now: Now) {
        let (read, written) = step.bytes();
        metrics::compacted(read, written);
        let pause = (read + written) as f64 / self.pace.bytes_per_second * 1e6;
        self.free_at = self.free_at.max(now.mono) + Micros(pause as u64);
        match logs.clean_done(step) {
            Some(job) => self.waiting.push(job),
            None => {
                // There may be more to do, here or elsewhere.
                self.look_at = now.mono;
                metrics::compaction_ended(now.wall_ms, logs.uncleanable_count());
            }
        }
    }

    /// Has the jobs end, each within the batch that it is at.
    pub(crate) fn stop(&mut self, logs: &mut Logs, engine: &Arc<Engine>) {
        self.pace.enabled = false;
        logs.stop_cleaning();
        for job in std::mem::take(&mut self.waiting) {
            self.run(job, engine);
        }
    }

    fn run(&self, job: CleanJob, engine: &Arc<Engine>) {
        let bytes =
            (self.pace.bytes_per_second / STEPS_PER_SECOND).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX) as u64;
        let engine = Arc::clone(engine);
        self.pool.run(move || {
            let _ = engine.leave(Mail::Cleaned(Box::new(job.run(bytes))));
        });
    }
}
