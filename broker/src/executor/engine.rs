//! The shard and who runs it: whoever brings work, while nobody else does.
//!
//! Work is left in the mailbox, and then whoever finds the worker free takes it up and does what is there, others' work
//! included. A request that meets an idle shard is therefore served on the thread that read it, without a wake-up of
//! another one; that costs more than most requests do. Where the worker is taken, its holder sees the mail before it
//! leaves. The shard's thread does the rest: what is due at a time, what follows from work of the pools, and what
//! others handed over after [`ROUNDS_MAX`] rounds, so that no connection works for the others for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coordinator::time::Mono;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

use super::handle::Stopped;
use super::mailbox::{Mail, Mailbox};
use super::worker::Worker;
use crate::clock::Clock;

/// Rounds that another thread than the shard's does in a row.
const ROUNDS_MAX: usize = 16;

/// See the module.
pub(crate) struct Engine {
    mailbox: Mailbox,
    /// `None` before the start and after the end.
    worker: Mutex<Option<Worker>>,
    alarm: Alarm,
    clock: Clock,
    ended: watch::Sender<bool>,
}

impl Engine {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            mailbox: Mailbox::new(),
            worker: Mutex::new(None),
            alarm: Alarm::default(),
            clock,
            ended: watch::channel(false).0,
        }
    }

    /// Turns true when the worker is gone.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Brings a command, after waiting for room. Nothing is brought where the future is dropped before it is done.
    pub(crate) async fn send(&self, mail: Mail) -> Result<(), Stopped> {
        self.mailbox.send(mail).await?;
        self.work();
        Ok(())
    }

    /// Brings what may not wait.
    pub(crate) fn bring(&self, mail: Mail) {
        if self.mailbox.push(mail).is_ok() {
            self.work();
        }
    }

    /// Leaves something to the shard's thread.
    pub(crate) fn leave(&self, mail: Mail) -> Result<(), Stopped> {
        self.mailbox.push(mail)?;
        self.alarm.ring();
        Ok(())
    }

    /// Does what is there, if nobody does already.
    fn work(&self) {
        loop {
            let Some(slot) = self.worker.try_lock() else { return };
            let mut turn = Turn { engine: self, slot };
            let Some(worker) = turn.slot.as_mut() else { return };
            if !worker.rounds(&self.mailbox, ROUNDS_MAX) {
                self.alarm.ring();
                return;
            }
            self.alarm.set(worker.next_at());
            drop(turn);
            // Who came while the worker was taken has left mail and gone.
            if self.mailbox.is_empty() {
                return;
            }
        }
    }

    /// The shard's thread, until the worker is told to stop.
    pub(super) fn run(self: &Arc<Self>, worker: Worker) {
        let _end = End(self);
        *self.worker.lock() = Some(worker);
        let finished = loop {
            let mut turn = Turn { engine: self, slot: self.worker.lock() };
            let Some(worker) = turn.slot.as_mut() else { return };
            worker.housekeep();
            worker.rounds(&self.mailbox, usize::MAX);
            if worker.is_done() {
                break turn.slot.take();
            }
            self.alarm.sleep_until(worker.next_at());
            drop(turn);
            if self.mailbox.is_empty() {
                self.alarm.wait(&self.clock);
            }
        };
        self.mailbox.close();
        if let Some(worker) = finished {
            worker.close();
        }
    }

    /// Nobody is to wait for a worker that is gone.
    fn end(&self) {
        self.mailbox.close();
        self.ended.send_replace(true);
        self.alarm.ring();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Ends the engine when the shard's thread does, however it ends.
struct End<'a>(&'a Engine);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The worker while it works. Where it panics, on whatever thread, it is gone: half-done work is not gone on with.
struct Turn<'a> {
    engine: &'a Engine,
    slot: MutexGuard<'a, Option<Worker>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.slot.take().is_some() {
            self.engine.end();
        }
    }
}

/// When the shard's thread is to look.
#[derive(Debug, Default)]
struct Alarm {
    /// µs of the monotonic clock; the thread sleeps no longer.
    at: AtomicU64,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    /// The thread looks now.
    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// The thread looks at that time at the latest.
    fn set(&self, at: Mono) {
        // Most often it sleeps until an earlier time that has lost its meaning, looks, and sleeps on.
        if at.0 < self.at.load(Ordering::Acquire) {
            self.at.store(at.0, Ordering::Release);
            self.ring();
        }
    }

    /// What [`Alarm::set`] compares with; to be called while the worker is held.
    fn sleep_until(&self, at: Mono) {
        self.at.store(at.0, Ordering::Release);
    }

    /// Sleeps.
    fn wait(&self, clock: &Clock) {
        let mut rung = self.rung.lock();
        while !*rung {
            let left = clock.until(Mono(self.at.load(Ordering::Acquire)));
            if left == Duration::ZERO || self.changed.wait_for(&mut rung, left).timed_out() {
                break;
            }
        }
        *rung = false;
    }
}
