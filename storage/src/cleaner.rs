//! Log compaction, as Apache Kafka's log cleaner does it: of each key the last record stays.
//!
//! The owner of the logs asks for a job ([`Logs::clean_job`]), has it run step by step on any thread
//! ([`CleanJob::run`]), and gives each step back ([`Logs::clean_done`]), which tells whether to run it again. How fast
//! that goes is the owner's affair. A job reads sealed segments only, below the last stable offset; readers never wait
//! for it. A log that cannot be compacted is left alone until the restart; the others go on. A full disk is no such
//! reason: that log waits, and is tried again.

pub(crate) mod filter;
mod group;
mod job;
mod offset_map;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use records::ids::{Offset, PartitionId};

use crate::checkpoints;
use crate::error::StorageError;
use crate::log::{Replacement, remove_cleaned};
use crate::logs::Logs;
use crate::options::DEDUPE_BYTES_MIN;
use filter::Rules;
use job::{CleanError, Outcome, Plan};
use offset_map::OffsetMap;
use transactions::Outcomes;

pub use job::{CleanJob, CleanStep};

/// A log whose compaction got nowhere is left alone for so long; at most so long one that found the disk full.
const RETRY_MS: i64 = 60_000;
/// One that found the disk full waits at least so long.
const FULL_WAIT_MS_MIN: i64 = 100;

/// What is known of a log's compaction since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleaningFacts {
    /// Records below it were compacted (Kafka's `cleaner-offset-checkpoint`); `None` before the first time.
    pub cleaned_to: Option<Offset>,
    /// Finished compactions.
    pub runs: u64,
    /// When the last one began, in ms since 1970.
    pub last_run_ms: Option<i64>,
    /// Bytes that compactions read.
    pub read_bytes: u64,
    /// Bytes that compactions wrote.
    pub written_bytes: u64,
    /// Why the log is not compacted any more; `None` where it is.
    pub uncleanable: Option<String>,
    /// It is not looked at before then.
    retry_at_ms: Option<i64>,
    /// The disk was full the last time, and somebody was told.
    is_put_off: bool,
}

/// The jobs that are under way.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    running: BTreeMap<u64, Running>,
    next_id: u64,
}

#[derive(Debug)]
struct Running {
    partition: PartitionId,
    /// While a job may write there, no other one may.
    directory: String,
    cancelled: Arc<AtomicBool>,
    now_ms: i64,
}

impl Jobs {
    /// Has the job of a partition stop, if there is one: its files go.
    pub(crate) fn cancel(&self, partition: PartitionId) {
        for running in self.running.values().filter(|running| running.partition == partition) {
            running.cancelled.store(true, Ordering::SeqCst);
        }
    }
}

impl Logs {
    /// The log that needs it most as a job to run, then to give back to [`Logs::clean_done`]; `None` where no log is
    /// dirty enough, or as many jobs are under way as may be (Kafka's `LogCleanerManager.grabFilthiestCompactedLog`).
    pub fn clean_job(&mut self, now_ms: i64) -> Option<CleanJob> {
        if self.jobs.running.len() >= self.options.cleaner.jobs_max {
            return None;
        }
        let mut filthiest: Option<(PartitionId, crate::log::Dirtiness)> = None;
        for (id, open) in &mut self.logs {
            let facts = &open.cleaning;
            let is_busy =
                || self.jobs.running.values().any(|running| running.directory == open.log.directory());
            let waits = facts.retry_at_ms.is_some_and(|at| now_ms < at && at - now_ms <= RETRY_MS);
            if !open.log.config().compact || facts.uncleanable.is_some() || waits || is_busy() {
                continue;
            }
            let cleaned_to = self.cleaned.get(&open.name).copied();
            match open.log.dirtiness(cleaned_to, now_ms) {
                Ok(Some(dirty)) if dirty.is_due => {
                    if filthiest.as_ref().is_none_or(|(_, most)| dirty.ratio > most.ratio) {
                        filthiest = Some((*id, dirty));
                    }
                }
                Ok(_) => {}
                Err(error) => give_up(&mut open.cleaning, open.log.directory(), &error.to_string()),
            }
        }
        let (id, dirty) = filthiest?;
        Some(self.start_job(id, dirty, now_ms))
    }

    fn start_job(&mut self, partition: PartitionId, dirty: crate::log::Dirtiness, now_ms: i64) -> CleanJob {
        let disk = Arc::clone(self.disk());
        let open = &self.logs[&partition];
        let options = self.options.cleaner;
        let facts = open.log.facts();
        let config = open.log.config().clone();
        let rules = Rules {
            map: OffsetMap::new(options.dedupe_bytes.max(DEDUPE_BYTES_MIN), options.dedupe_load),
            indexed_until: dirty.first_dirty,
            outcomes: Outcomes::default(),
            producers: open.log.last_records(),
            end: facts.end,
            now_ms,
            delete_retention_ms: config.delete_retention_ms,
            inflated_max: self.options.inflated_bytes_max,
            seed: options.seed,
        };
        let plan = Plan {
            partition,
            directory: open.log.directory().to_owned(),
            sources: open.log.sources(),
            cleanable: dirty.segments,
            dirty_from: dirty.first_dirty,
            synced: facts.synced,
            config,
            options,
        };
        tracing::debug!(log = plan.directory, from = %dirty.first_dirty, ratio = dirty.ratio, "compacting");
        let cancelled = Arc::new(AtomicBool::new(false));
        let id = self.jobs.next_id;
        self.jobs.next_id += 1;
        let running = Running {
            partition,
            directory: plan.directory.clone(),
            cancelled: Arc::clone(&cancelled),
            now_ms,
        };
        self.jobs.running.insert(id, running);
        CleanJob::new(id, plan, rules, disk, cancelled)
    }

    /// Takes a step back: puts in place what it finished. The job, when it is to be run again.
    pub fn clean_done(&mut self, step: CleanStep) -> Option<CleanJob> {
        let CleanStep { mut job, outcome } = step;
        let is_cancelled = self.is_cancelled(&job);
        if let Some(open) = self.logs.get_mut(&job.partition()) {
            let (read, written) = job.bytes();
            open.cleaning.read_bytes += read;
            open.cleaning.written_bytes += written;
        }
        let done = match outcome {
            Outcome::More => Ok(!is_cancelled),
            Outcome::Ready(new) if !is_cancelled => self.begin_swap(&mut job, new),
            Outcome::Ready(_) | Outcome::Cancelled => Ok(false),
            // It has begun: what is left half done would be finished by the next start only.
            Outcome::Synced(new) => self.finish_swap(&job, &new).map(|go_on| go_on && !is_cancelled),
            Outcome::Done => self.note_done(&job).map(|()| false),
            Outcome::Failed(error) => {
                self.note_failure(&job, &error);
                Ok(false)
            }
        };
        match done {
            Ok(true) => return Some(job),
            Ok(false) => {}
            Err(error) => self.note_failure(&job, &error.into()),
        }
        if let Some(base) = job.unfinished() {
            remove_cleaned(&**self.disk(), &job.plan.directory, base);
        }
        self.jobs.running.remove(&job.id);
        None
    }

    /// Has all jobs stop as soon as they can. They must still be given back.
    pub fn stop_cleaning(&mut self) {
        for running in self.jobs.running.values() {
            running.cancelled.store(true, Ordering::SeqCst);
        }
    }

    /// Whether no job is under way.
    #[must_use]
    pub fn is_cleaning_idle(&self) -> bool {
        self.jobs.running.is_empty()
    }

    /// What is known of a log's compaction; `None` when the log is not open.
    #[must_use]
    pub fn cleaning_facts(&self, id: PartitionId) -> Option<CleaningFacts> {
        let open = self.logs.get(&id)?;
        let cleaned_to = self.cleaned.get(&open.name).copied();
        Some(CleaningFacts { cleaned_to, ..open.cleaning.clone() })
    }

    /// How many open logs are left alone because they could not be compacted.
    #[must_use]
    pub fn uncleanable_count(&self) -> usize {
        self.logs.values().filter(|open| open.cleaning.uncleanable.is_some()).count()
    }

    fn is_cancelled(&self, job: &CleanJob) -> bool {
        let running = self.jobs.running.get(&job.id);
        running.is_none_or(|running| running.cancelled.load(Ordering::SeqCst))
            || !self.logs.contains_key(&job.partition())
    }

    /// Recovery must know that there may be holes before there are any.
    fn begin_swap(&mut self, job: &mut CleanJob, new: Replacement) -> Result<bool, StorageError> {
        let open = self.logs.get_mut(&job.partition()).ok_or(StorageError::UnknownPartition)?;
        let end = job.plan.end();
        // Where an epoch began, its batches tell no more once they are compacted away.
        open.log.write_epochs()?;
        if open.log.holes_below() < end {
            self.holes.insert(open.name.clone(), end);
            checkpoints::write(&**self.data_dir.disk(), checkpoints::HOLES, &self.holes)?;
            open.log.allow_holes_below(end);
        }
        let begun = open.log.begin_swap(&new)?;
        if begun {
            job.sync_names_of(new);
        }
        Ok(begun)
    }

    fn finish_swap(&mut self, job: &CleanJob, new: &Replacement) -> Result<bool, StorageError> {
        let id = job.partition();
        let open = self.logs.get_mut(&id).ok_or(StorageError::UnknownPartition)?;
        let finished = open.log.finish_swap(new);
        let (retired, delay_ms) = (open.log.take_retired(), open.log.delete_delay_ms());
        self.retired.add_files(&**self.data_dir.disk(), retired, delay_ms);
        // What is cached may hold records that are gone.
        self.cache.forget(id);
        self.key_cache.forget(id);
        finished
    }

    fn note_done(&mut self, job: &CleanJob) -> Result<(), StorageError> {
        let Some(open) = self.logs.get_mut(&job.partition()) else { return Ok(()) };
        let now_ms = self.jobs.running.get(&job.id).map_or(0, |running| running.now_ms);
        let until = job.indexed_until();
        let advanced = until > job.plan.dirty_from;
        if advanced {
            self.cleaned.insert(open.name.clone(), until);
            open.cleaning.runs += 1;
            open.cleaning.retry_at_ms = None;
            if std::mem::take(&mut open.cleaning.is_put_off) {
                tracing::info!(log = open.log.directory(), "there was room again, the log is compacted");
            }
        } else {
            open.cleaning.retry_at_ms = Some(now_ms.saturating_add(RETRY_MS));
        }
        open.cleaning.last_run_ms = Some(now_ms);
        if advanced {
            checkpoints::write(&**self.data_dir.disk(), checkpoints::CLEANED, &self.cleaned)?;
        }
        Ok(())
    }

    fn note_failure(&mut self, job: &CleanJob, error: &CleanError) {
        let Some(open) = self.logs.get_mut(&job.partition()) else { return };
        let now_ms = self.jobs.running.get(&job.id).map_or(0, |running| running.now_ms);
        let log = open.log.directory().to_owned();
        match error {
            CleanError::Gone => open.cleaning.retry_at_ms = Some(now_ms.saturating_add(RETRY_MS)),
            // Where the swap itself has failed, it is for the next start to finish it.
            CleanError::Full if open.log.is_poisoned() => {
                give_up(&mut open.cleaning, &log, &error.to_string());
            }
            CleanError::Full => {
                if !std::mem::replace(&mut open.cleaning.is_put_off, true) {
                    tracing::warn!(log, %error, "compaction is put off, and tried again until it has room");
                }
                let wait_ms = self.options.cleaner.backoff_ms.clamp(FULL_WAIT_MS_MIN, RETRY_MS);
                open.cleaning.retry_at_ms = Some(now_ms.saturating_add(wait_ms));
            }
            CleanError::Sync(_) => {
                open.log.poison();
                give_up(&mut open.cleaning, &log, &error.to_string());
                self.data_dir.note_failed_sync();
            }
            CleanError::Damaged { .. } | CleanError::TooLarge(_) | CleanError::Io(_) => {
                give_up(&mut open.cleaning, &log, &error.to_string());
            }
        }
    }
}

/// Leaves a log alone until the restart; says so once.
fn give_up(facts: &mut CleaningFacts, log: &str, reason: &str) {
    tracing::error!(log, reason, "log cannot be compacted, it is left alone until the restart");
    facts.uncleanable = Some(reason.to_owned());
}
