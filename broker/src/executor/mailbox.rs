//! The one way to the shard: a queue whose commands are bounded.
//!
//! Commands wait for room. What follows from work that was admitted before (facts, completions, changes of the
//! catalogue, which are made one at a time) is never refused: of those there are at most a few per command in
//! flight, partition or connection, all of which are bounded themselves.

use std::collections::VecDeque;

use coordinator::command::{Command, Fact, Ticket};
use coordinator::io::{Completion, Submission};
use parking_lot::Mutex;
use storage::{CleanStep, KeyJobDone, SyncResult};
use tokio::sync::{Semaphore, oneshot};

use super::control::Control;
use super::{Data, Reply, Stopped};

/// Commands that may wait for the shard at a time.
const COMMANDS_QUEUED_MAX: usize = 1024;

/// One thing for the shard.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A request's work.
    Command {
        /// Its name.
        ticket: Ticket,
        /// The work.
        command: Command,
        /// Who waits.
        reply: oneshot::Sender<Reply>,
    },
    /// What the shard is told.
    Fact(Fact),
    /// Work that was done elsewhere.
    Completion(Completion<Data>),
    /// Work that waits for nothing but the worker, since what it reads was got into memory elsewhere.
    Fetched(Submission),
    /// A sync that was run elsewhere.
    Synced(SyncResult),
    /// A step of a compaction that was run elsewhere.
    Cleaned(Box<CleanStep>),
    /// A piece of log that was read for its keys elsewhere.
    KeysRead(Box<KeyJobDone>),
    /// Something to do with the logs.
    Control(Control),
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    room: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Mail>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), room: Semaphore::new(COMMANDS_QUEUED_MAX) }
    }

    /// Queues a command, after waiting for room. Nothing is queued where the future is dropped before it is done.
    pub(crate) async fn send(&self, mail: Mail) -> Result<(), Stopped> {
        let permit = self.room.acquire().await.map_err(|_| Stopped)?;
        self.push(mail)?;
        permit.forget();
        Ok(())
    }

    /// Queues what may not wait.
    pub(crate) fn push(&self, mail: Mail) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Stopped);
        }
        state.queue.push_back(mail);
        Ok(())
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().queue.is_empty()
    }

    /// Takes all that is there into `taken`, which must be empty.
    pub(crate) fn take(&self, taken: &mut VecDeque<Mail>) {
        std::mem::swap(&mut self.state.lock().queue, taken);
        let commands = taken.iter().filter(|mail| matches!(mail, Mail::Command { .. })).count();
        if commands > 0 {
            self.room.add_permits(commands);
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
    }
}
