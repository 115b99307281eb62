//! The demo's workers: key-share consumers that join, work and die.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Error, KeyShareConsumer, Outcome, Stats};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::DemoError;
use super::ledger::Ledger;
use super::report;
use crate::clock::Clock;

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// After so long without a record done the demo gives up.
const STUCK: Duration = Duration::from_secs(60);

/// Two workers join when this part of the work is done.
const JOIN_AT: f64 = 0.33;

/// Two workers are killed when this part of the work is done.
const KILL_AT: f64 = 0.66;

/// How many join, and how many are killed.
const CHANGE: usize = 2;

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// From the first worker's start to the last record done.
    pub elapsed: Duration,
    /// Sum of all service times: how long one worker, one record at a time, would have taken.
    pub serial: Duration,
    /// By worker: records done, and how it ended.
    pub workers: BTreeMap<String, (u64, &'static str)>,
    /// Records that came more than once.
    pub redeliveries: u64,
}

/// Makes and ends workers.
#[derive(Debug)]
pub struct Crew {
    address: String,
    group: String,
    topic: String,
    ledger: Arc<Ledger>,
    concurrency: usize,
    mean: Duration,
    serial_us: Arc<AtomicU64>,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    name: String,
    done: Arc<AtomicU64>,
    stats: Arc<Stats>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    ended: &'static str,
}

impl Crew {
    /// Workers of `group` on `topic`, each with so many records at work at once and this mean service time.
    pub fn new(
        address: &str,
        group: &str,
        topic: &str,
        ledger: Arc<Ledger>,
        concurrency: usize,
        mean: Duration,
    ) -> Self {
        Self {
            address: address.to_owned(),
            group: group.to_owned(),
            topic: topic.to_owned(),
            ledger,
            concurrency,
            mean,
            serial_us: Arc::new(AtomicU64::new(0)),
            workers: Vec::new(),
        }
    }

    /// Works until every record is done: `count` workers at the start, two more later, two killed later still.
    ///
    /// # Errors
    /// Where a worker fails or nothing goes on.
    pub async fn work(mut self, count: usize) -> Result<Run, DemoError> {
        let clock = Clock::start();
        let start = clock.mono();
        let bar = report::bar("work", self.ledger.len());
        for _ in 0..count {
            self.add();
        }
        let (mut joined, mut killed) = (false, false);
        let (mut last, mut last_at) = (0, start);
        loop {
            sleep(LOOK).await;
            let done = self.ledger.tally().done;
            bar.set_position(done as u64);
            let now = clock.mono();
            if done > last {
                (last, last_at) = (done, now);
            } else if (now - last_at).0 > STUCK.as_micros() as u64 {
                return Err(DemoError::Stuck(STUCK));
            }
            let part = done as f64 / self.ledger.len() as f64;
            if part >= JOIN_AT && !joined {
                joined = true;
                (0..CHANGE).for_each(|_| self.add());
                bar.println("two workers join");
            }
            if part >= KILL_AT && !killed {
                killed = true;
                self.kill(CHANGE);
                bar.println("two workers are killed in the middle of their work");
            }
            if done == self.ledger.len() {
                break;
            }
            self.check().await?;
        }
        let elapsed = Duration::from_micros((clock.mono() - start).0);
        bar.finish();
        self.finish(elapsed).await
    }

    fn add(&mut self) {
        let name = format!("worker-{}", self.workers.len() + 1);
        let consumer = KeyShareConsumer::builder(&self.address, &self.group)
            .topic(&self.topic)
            .client_id(&name)
            .concurrency(self.concurrency)
            .build();
        let (stats, stop, done) = (consumer.stats(), CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let until = stop.clone();
        let (ledger, counter, serial, mean) =
            (Arc::clone(&self.ledger), Arc::clone(&done), Arc::clone(&self.serial_us), self.mean);
        let task = tokio::spawn(async move {
            let handler = move |record: client::Record| {
                let (ledger, counter, serial) =
                    (Arc::clone(&ledger), Arc::clone(&counter), Arc::clone(&serial));
                async move {
                    let work = ledger.start(record.offset.get());
                    let length = service_time(record.offset.get(), mean);
                    sleep(length).await;
                    serial.fetch_add(length.as_micros() as u64, Ordering::Relaxed);
                    counter.fetch_add(1, Ordering::Relaxed);
                    work.finish();
                    Outcome::Accept
                }
            };
            consumer.run(until.cancelled_owned(), handler).await
        });
        self.workers.push(Worker { name, done, stats, stop, task, ended: "worked to the end" });
    }

    /// Ends workers as a crash would: their connections close, and what they worked on is cut off.
    fn kill(&mut self, count: usize) {
        for worker in self.workers.iter_mut().take(count) {
            worker.task.abort();
            worker.ended = "killed";
        }
    }

    /// Whether a worker failed that was not killed.
    async fn check(&mut self) -> Result<(), DemoError> {
        for worker in &mut self.workers {
            if worker.ended != "killed" && worker.task.is_finished() {
                return match (&mut worker.task).await {
                    Ok(Err(error)) => Err(DemoError::Worker(error)),
                    _ => Err(DemoError::Unexpected("a worker that ended by itself")),
                };
            }
        }
        Ok(())
    }

    async fn finish(self, elapsed: Duration) -> Result<Run, DemoError> {
        let mut workers = BTreeMap::new();
        let mut redeliveries = 0;
        for worker in &self.workers {
            worker.stop.cancel();
        }
        for worker in self.workers {
            if let Ok(Err(error)) = worker.task.await {
                return Err(DemoError::Worker(error));
            }
            redeliveries += worker.stats.redelivered();
            workers.insert(worker.name, (worker.done.load(Ordering::Relaxed), worker.ended));
        }
        let serial = Duration::from_micros(self.serial_us.load(Ordering::Relaxed));
        Ok(Run { elapsed, serial, workers, redeliveries })
    }
}

/// Between half and one and a half of the mean, by a hash of the offset: random enough, the same in every run.
fn service_time(offset: i64, mean: Duration) -> Duration {
    let hash = records::key_hash(&offset.to_le_bytes()).0;
    mean / 2 + mean.mul_f64(hash as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_times_have_the_mean_that_was_asked_for() {
        let mean = Duration::from_millis(2);
        let sum: Duration = (0..10_000).map(|offset| service_time(offset, mean)).sum();
        let measured = sum / 10_000;
        assert!(
            measured > Duration::from_micros(1_950) && measured < Duration::from_micros(2_050),
            "{measured:?}"
        );
        assert!((0..10_000).all(|offset| service_time(offset, mean) >= mean / 2));
    }
}
