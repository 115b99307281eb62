//! The consumer: settings, and the loop that keeps one driver for each broker that leads assigned partitions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use records::ids::PartitionId;
use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock::pause;
use crate::cluster::{self, Topics};
use crate::connection::Connection;
use crate::driver::{Assigned, Driver};
use crate::error::{Error, Lost};
use crate::membership::{self, Assignment, RETRY_PAUSE};
use crate::record::{Outcome, Record};
use crate::stats::Stats;

/// What a consumer is told once. Bootstrap addresses are `host:port`, separated by commas.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) bootstrap: String,
    pub(crate) group: String,
    pub(crate) member: String,
    pub(crate) client_id: String,
    pub(crate) topics: Vec<String>,
    pub(crate) concurrency: usize,
    pub(crate) held_max: usize,
    pub(crate) records_per_key_max: i32,
    pub(crate) bytes_max: i32,
    pub(crate) wait_max: Duration,
    pub(crate) drain_max: Duration,
}

/// Builds a [`KeyShareConsumer`].
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
}

/// A member of a share group that works through records, every key in order.
#[derive(Debug)]
pub struct KeyShareConsumer {
    settings: Arc<Settings>,
    stats: Arc<Stats>,
}

impl KeyShareConsumer {
    /// Starts a consumer of `group`; `bootstrap` is `host:port[,host:port…]`.
    pub fn builder(bootstrap: impl Into<String>, group: impl Into<String>) -> Builder {
        Builder {
            settings: Settings {
                bootstrap: bootstrap.into(),
                group: group.into(),
                member: uuid::Uuid::new_v4().to_string(),
                client_id: "sluice-client".to_owned(),
                topics: Vec::new(),
                concurrency: 16,
                held_max: 0,
                records_per_key_max: 16,
                bytes_max: 8 << 20,
                wait_max: Duration::from_millis(500),
                drain_max: Duration::from_secs(30),
            },
        }
    }

    /// Counters; they go on counting while [`run`](Self::run) runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// The member id, as the broker sees it.
    #[must_use]
    pub fn member_id(&self) -> &str {
        &self.settings.member
    }

    /// Works until `until` is done: then no further record is started, those at work are waited for (at most
    /// [`Builder::drain_max`]), acknowledged, and the group is left.
    ///
    /// `handler` is called once a record. For each key it is called in offset order, the next time only when the
    /// outcome of the time before is known; for different keys, and for records without a key, side by side. Its
    /// future is dropped at its next await when the lease of its record is lost: somebody else may work on that key
    /// from then on. A panic in it counts as a release.
    ///
    /// Dropping the future that this returns ends the consumer at once, as a crash would.
    ///
    /// # Errors
    /// [`Error`] when going on makes no sense; a broker that restarts or is away is waited for.
    pub async fn run<U, H, F>(&self, until: U, handler: H) -> Result<(), Error>
    where
        U: Future,
        H: Fn(Record) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let supervisor = Supervisor {
            settings: Arc::clone(&self.settings),
            stats: Arc::clone(&self.stats),
            handler,
            permits: Arc::new(Semaphore::new(self.settings.concurrency)),
            drivers: JoinSet::new(),
            lines: BTreeMap::new(),
            stop: CancellationToken::new(),
        };
        supervisor.run(until).await
    }
}

impl Builder {
    /// Adds a topic to read.
    #[must_use]
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.settings.topics.push(name.into());
        self
    }

    /// Adds topics to read.
    #[must_use]
    pub fn topics<I: IntoIterator<Item: Into<String>>>(mut self, names: I) -> Self {
        self.settings.topics.extend(names.into_iter().map(Into::into));
        self
    }

    /// How many records are worked on at once, at least 1; 16 unless set.
    #[must_use]
    pub fn concurrency(mut self, records: usize) -> Self {
        self.settings.concurrency = records.max(1);
        self
    }

    /// How many records are held at once, those at work included; twice the concurrency unless set.
    #[must_use]
    pub fn held_max(mut self, records: usize) -> Self {
        self.settings.held_max = records;
        self
    }

    /// How many records of one key are held at once; 16 unless set.
    #[must_use]
    pub fn records_per_key_max(mut self, records: u16) -> Self {
        self.settings.records_per_key_max = i32::from(records.max(1));
        self
    }

    /// Client id in the broker's logs and quotas.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.settings.client_id = id.into();
        self
    }

    /// Member id; a random UUID unless set. Two live members must not share one.
    #[must_use]
    pub fn member_id(mut self, id: impl Into<String>) -> Self {
        self.settings.member = id.into();
        self
    }

    /// How long the end waits for records at work; 30 s unless set. Those still at work then are released.
    #[must_use]
    pub fn drain_max(mut self, length: Duration) -> Self {
        self.settings.drain_max = length;
        self
    }

    /// The consumer; it connects when it runs.
    #[must_use]
    pub fn build(mut self) -> KeyShareConsumer {
        let floor = self.settings.concurrency;
        self.settings.held_max =
            if self.settings.held_max == 0 { floor * 2 } else { self.settings.held_max.max(floor) };
        KeyShareConsumer { settings: Arc::new(self.settings), stats: Arc::new(Stats::default()) }
    }
}

/// Keeps one driver for each leading broker.
struct Supervisor<H> {
    settings: Arc<Settings>,
    stats: Arc<Stats>,
    handler: H,
    permits: Arc<Semaphore>,
    drivers: JoinSet<Result<(), Lost>>,
    /// By leader's address: its driver's task and what it is assigned.
    lines: BTreeMap<String, (Id, watch::Sender<Assigned>)>,
    stop: CancellationToken,
}

impl<H, F> Supervisor<H>
where
    H: Fn(Record) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    async fn run<U: Future>(mut self, until: U) -> Result<(), Error> {
        self.reach().await?;
        let (sender, mut assignments) = watch::channel(Assignment::new());
        let leave = CancellationToken::new();
        let mut membership = JoinSet::new();
        membership.spawn(membership::keep(Arc::clone(&self.settings), sender, leave.clone()));
        tokio::pin!(until);
        let mut stale = false;
        loop {
            let retry = async { if stale { pause(RETRY_PAUSE).await } else { std::future::pending().await } };
            tokio::select! {
                _ = &mut until => break,
                Some(ended) = membership.join_next() => ended.unwrap_or(Ok(()))?,
                Ok(()) = assignments.changed() => {
                    let assignment = assignments.borrow_and_update().clone();
                    stale = !self.assign(&assignment).await?;
                }
                Some(ended) = self.drivers.join_next_with_id() => {
                    self.lost(ended)?;
                    stale = true;
                }
                () = retry => {
                    let assignment = assignments.borrow().clone();
                    stale = !self.assign(&assignment).await?;
                }
            }
        }
        self.stop.cancel();
        while let Some(ended) = self.drivers.join_next_with_id().await {
            self.lost(ended)?;
        }
        leave.cancel();
        membership.join_next().await.map_or(Ok(()), |ended| ended.unwrap_or(Ok(())))
    }

    /// The first contact: fails for good where there is no broker, or no Sluice.
    async fn reach(&self) -> Result<(), Error> {
        let bootstrap = &self.settings.bootstrap;
        let unreachable = |source| Error::Unreachable { bootstrap: bootstrap.clone(), source };
        let mut connection =
            Connection::open_any(bootstrap, &self.settings.client_id).await.map_err(unreachable)?;
        let reached = async {
            cluster::require_key_share(&mut connection, bootstrap).await?;
            cluster::require_key_order(&mut connection, &self.settings.group).await
        };
        match reached.await {
            Ok(()) => Ok(()),
            Err(Lost::Fatal(error)) => Err(error),
            Err(Lost::Connection(source)) => Err(unreachable(source)),
            Err(lost) => Err(unreachable(std::io::Error::other(lost.to_string()))),
        }
    }

    /// Hands the assignment to the drivers, one for each leader; whether every partition has a leader.
    async fn assign(&mut self, assignment: &Assignment) -> Result<bool, Error> {
        let topics = match self.find(assignment).await {
            Ok(topics) => topics,
            Err(Lost::Fatal(error)) => return Err(error),
            Err(_) => return Ok(false),
        };
        let mut whole = true;
        let mut by_leader: BTreeMap<String, Assigned> = BTreeMap::new();
        for (id, partitions) in assignment {
            let Some((name, leaders)) = topics.by_id.get(id) else {
                whole = false;
                continue;
            };
            for index in partitions {
                let Some(leader) = leaders.get(index) else {
                    whole = false;
                    continue;
                };
                let partition = PartitionId { topic: *id, index: *index };
                by_leader.entry(leader.clone()).or_default().insert(partition, Arc::clone(name));
            }
        }
        for (leader, (_, line)) in &self.lines {
            line.send_replace(by_leader.remove(leader).unwrap_or_default());
        }
        for (leader, assigned) in by_leader {
            let (line, partitions) = watch::channel(assigned);
            let driver = Driver::new(
                Arc::clone(&self.settings),
                Arc::clone(&self.stats),
                self.handler.clone(),
                Arc::clone(&self.permits),
                partitions,
                self.stop.clone(),
            );
            let id = self.drivers.spawn(driver.run(leader.clone())).id();
            self.lines.insert(leader, (id, line));
        }
        Ok(whole)
    }

    async fn find(&self, assignment: &Assignment) -> Result<Topics, Lost> {
        if assignment.is_empty() {
            return Ok(Topics::default());
        }
        let mut connection = Connection::open_any(&self.settings.bootstrap, &self.settings.client_id).await?;
        let ids: Vec<_> = assignment.keys().copied().collect();
        cluster::topics(&mut connection, &ids).await
    }

    /// A driver ended: its line is forgotten, and made anew with the next assignment.
    fn lost(&mut self, ended: Result<(Id, Result<(), Lost>), tokio::task::JoinError>) -> Result<(), Error> {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Ok(())),
        };
        self.lines.retain(|_, (line, _)| *line != id);
        match result {
            Ok(()) => Ok(()),
            Err(Lost::Fatal(error)) => Err(error),
            Err(lost) => {
                tracing::debug!(group = %self.settings.group, member = %self.settings.member, %lost, "share session is opened again");
                Ok(())
            }
        }
    }
}
