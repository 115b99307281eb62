//! The way to the shard from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coordinator::command::{Command, Fact, Ticket};
use records::ids::PartitionId;
use storage::{LogConfig, Overview};
use tokio::sync::oneshot;

use super::Data;
use super::control::{Control, OpenPartition, Refused, ShareGroups};
use super::engine::Engine;
use super::mailbox::Mail;

/// The shard's answer to a command.
pub type Reply = coordinator::reply::Reply<Data>;

/// The shard is gone or about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker stops")]
pub struct Stopped;

/// Cheap to clone; clones lead to the same shard.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    engine: Arc<Engine>,
    ticket_next: Arc<AtomicU64>,
}

/// A command that the shard has and will answer.
#[derive(Debug)]
pub struct Pending {
    ticket: Ticket,
    reply: oneshot::Receiver<Reply>,
}

impl ShardHandle {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, ticket_next: Arc::new(AtomicU64::new(1)) }
    }

    /// Has the shard serve a command, and waits for the reply.
    ///
    /// # Errors
    /// Where the broker stops.
    pub async fn call(&self, command: Command) -> Result<Reply, Stopped> {
        self.submit(command).await?.reply().await
    }

    /// Hands a command over, after waiting for room in the mailbox. Commands are served in the order in which they
    /// were handed over. Dropping what is returned gives up the reply, not the work.
    ///
    /// # Errors
    /// Where the broker stops.
    pub async fn submit(&self, command: Command) -> Result<Pending, Stopped> {
        let ticket = Ticket(self.ticket_next.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        self.engine.send(Mail::Command { ticket, command, reply: sender }).await?;
        Ok(Pending { ticket, reply })
    }

    /// Tells the shard something. Lost where the broker stops, as everything is then.
    pub fn fact(&self, fact: Fact) {
        self.engine.bring(Mail::Fact(fact));
    }
}

/// Changes of the catalogue: each waits until the executor has done it.
impl ShardHandle {
    pub(crate) async fn open(&self, partitions: Vec<OpenPartition>) -> Result<(), Refused> {
        self.control(|done| Control::Open(partitions, done)).await
    }

    pub(crate) async fn delete(&self, partitions: Vec<PartitionId>) -> Result<(), Refused> {
        self.control(|done| Control::Delete(partitions, done)).await
    }

    pub(crate) async fn configure(
        &self,
        partitions: Vec<PartitionId>,
        config: LogConfig,
    ) -> Result<(), Refused> {
        self.control(|done| Control::Configure(partitions, config, done)).await
    }

    /// How many bytes each log has on disk.
    pub(crate) async fn sizes(&self) -> Result<Vec<(PartitionId, u64)>, Stopped> {
        let (sender, sizes) = oneshot::channel();
        self.engine.leave(Mail::Control(Control::Sizes(sender)))?;
        sizes.await.map_err(|_| Stopped)
    }

    /// All logs, and the `count` largest one by one.
    pub(crate) async fn logs(&self, count: usize) -> Result<Overview, Stopped> {
        let (sender, overview) = oneshot::channel();
        self.engine.leave(Mail::Control(Control::Logs(count, sender)))?;
        overview.await.map_err(|_| Stopped)
    }

    /// Where every share group stands, by name.
    pub(crate) async fn share_groups(&self) -> Result<ShareGroups, Stopped> {
        let (sender, groups) = oneshot::channel();
        self.engine.leave(Mail::Control(Control::ShareGroups(sender)))?;
        groups.await.map_err(|_| Stopped)
    }

    async fn control(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<(), Refused>>) -> Control,
    ) -> Result<(), Refused> {
        let (sender, outcome) = oneshot::channel();
        let stopped = || Refused(Stopped.to_string());
        self.engine.leave(Mail::Control(make(sender))).map_err(|_| stopped())?;
        outcome.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Pending {
    /// The command's name.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// Where the broker stops before there is one.
    pub async fn reply(self) -> Result<Reply, Stopped> {
        self.reply.await.map_err(|_| Stopped)
    }
}
