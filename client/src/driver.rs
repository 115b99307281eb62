//! Drives one share session with one broker: fetches, runs the handler, acknowledges, renews.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use records::ids::PartitionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::connection::Connection;
use crate::consumer::Settings;
use crate::error::Lost;
use crate::record::{Outcome, Record};
use crate::session::{Answer, Session, Settled};
use crate::stats::Stats;
use crate::work::{Ack, Delivery, Place, Start, Verdict, Work};

/// How long an acknowledgement may wait for others before it interrupts a parked fetch.
const ACK_LINGER: Duration = Duration::from_millis(2);

/// So many acknowledgements interrupt a parked fetch at once.
const ACKS_WAITING_MAX: usize = 64;

/// A lease is renewed when this part of the lock is left.
const RENEW_PART: u32 = 2;

/// How long the last acknowledgements may take when the consumer stops.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// What a driver reads: partitions and their topics' names.
pub(crate) type Assigned = BTreeMap<PartitionId, Arc<str>>;

/// See the module.
pub(crate) struct Driver<H> {
    settings: Arc<Settings>,
    stats: Arc<Stats>,
    handler: H,
    permits: Arc<Semaphore>,
    partitions: watch::Receiver<Assigned>,
    stop: CancellationToken,
    session: Session,
    work: Work,
    tasks: JoinSet<Outcome>,
    running: HashMap<Id, (Place, i64)>,
    aborts: HashMap<Place, AbortHandle>,
    acks: Vec<Ack>,
    acks_since: Option<Instant>,
    /// Longest lease seen: what half of it is, is the margin for renewals.
    lock: Duration,
}

impl<H, F> Driver<H>
where
    H: Fn(Record) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    /// A driver that has not connected yet.
    pub(crate) fn new(
        settings: Arc<Settings>,
        stats: Arc<Stats>,
        handler: H,
        permits: Arc<Semaphore>,
        partitions: watch::Receiver<Assigned>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            settings,
            stats,
            handler,
            permits,
            partitions,
            stop,
            session: Session::new(),
            work: Work::default(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            aborts: HashMap::new(),
            acks: Vec::new(),
            acks_since: None,
            lock: Duration::from_secs(30),
        }
    }

    /// Runs until it is stopped, or until its session or connection is lost: then all its work is stopped, as it
    /// promised to the broker.
    pub(crate) async fn run(mut self, address: String) -> Result<(), Lost> {
        let mut connection = Connection::open(&address, &self.settings.client_id).await?;
        let assigned = self.partitions.borrow_and_update().clone();
        self.session.read(&assigned);
        Stats::add(&self.stats.sessions, 1);
        loop {
            self.start_ready();
            self.send_due(&mut connection).await?;
            let deadline = self.next_deadline();
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let permit_wanted = self.work.has_ready();
            tokio::select! {
                frame = connection.receive(), if self.session.in_flight() > 0 => self.answered(frame?)?,
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Ok(permit) = Arc::clone(&self.permits).acquire_owned(), if permit_wanted => self.start_with(permit),
                Ok(()) = self.partitions.changed() => {
                    let assigned = self.partitions.borrow_and_update().clone();
                    self.session.read(&assigned);
                }
                () = timer => self.timer(),
                () = self.stop.cancelled() => return self.close(connection).await,
            }
        }
    }

    /// Starts what is ready, as far as there are permits.
    fn start_ready(&mut self) {
        while self.work.has_ready() {
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
            self.start_with(permit);
        }
    }

    fn start_with(&mut self, permit: OwnedSemaphorePermit) {
        let Some(Start { place, number, record }) = self.work.start() else { return };
        let work = (self.handler)(record);
        let abort = self.tasks.spawn(async move {
            let outcome = work.await;
            drop(permit);
            outcome
        });
        self.running.insert(abort.id(), (place, number));
        self.aborts.insert(place, abort);
    }

    /// Sends what is due: a fetch where there is room, acknowledgements behind it where they must not wait.
    async fn send_due(&mut self, connection: &mut Connection) -> Result<(), Lost> {
        let room = self.settings.held_max.saturating_sub(self.work.held());
        let may_fetch = self.session.in_flight() == 0
            && (room > 0 || self.session.has_changed())
            && (self.session.has_partitions() || self.session.is_open());
        if may_fetch {
            let acks = self.take_acks();
            // A fetch that opens a session cannot carry acknowledgements, and there are none yet.
            self.session.fetch(connection, &self.settings, room, acks).await?;
            self.work.told(self.session.last_sent());
            return Ok(());
        }
        let must_go = self.session.in_flight() == 0
            || self.acks.len() >= ACKS_WAITING_MAX
            || self.acks_since.is_some_and(|since| now() >= since + ACK_LINGER);
        if !self.acks.is_empty() && must_go && !self.session.acknowledge_in_flight() {
            let acks = self.take_acks();
            self.session.acknowledge(connection, &self.settings, acks, false).await?;
            self.work.told(self.session.last_sent());
        }
        Ok(())
    }

    fn take_acks(&mut self) -> Vec<Ack> {
        self.acks_since = None;
        std::mem::take(&mut self.acks)
    }

    fn push_acks(&mut self, acks: Vec<Ack>) {
        if !acks.is_empty() {
            self.acks_since.get_or_insert_with(now);
            self.acks.extend(acks);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let linger = (!self.acks.is_empty() && !self.session.acknowledge_in_flight())
            .then(|| self.acks_since.map(|since| since + ACK_LINGER))
            .flatten();
        [linger, self.work.next_deadline(self.margin())].into_iter().flatten().min()
    }

    fn margin(&self) -> Duration {
        self.lock / RENEW_PART
    }

    fn timer(&mut self) {
        let (lost, running) = self.work.expire(now());
        Stats::add(&self.stats.leases_lost, lost);
        self.abort(running);
        let renewals = self.work.renew(now(), self.margin());
        self.push_acks(renewals);
    }

    fn answered(&mut self, frame: Bytes) -> Result<(), Lost> {
        let Answer { delivered, settled, recalled, stale } = self.session.answer(frame)?;
        self.work.answered(self.session.last_answered());
        for settled in settled {
            self.settled(&settled);
        }
        for (partition, first, last, number) in recalled {
            let before = self.work.held();
            let running = self.work.recall(partition, first, last, number);
            Stats::add(&self.stats.withheld, before - self.work.held());
            self.abort(running);
        }
        Stats::add(&self.stats.received, delivered.len());
        for delivered in delivered {
            if delivered.record.delivery_count > 1 {
                Stats::add(&self.stats.redelivered, 1);
            }
            self.lock = delivered.lease.max(Duration::from_millis(1));
            let delivery = Delivery {
                place: (delivered.partition, delivered.record.offset),
                lane: delivered.lane,
                number: delivered.number,
                lease_end: now() + delivered.lease,
                record: delivered.record,
            };
            if let Some(withheld) = self.work.refuse(&delivery) {
                self.push_acks(vec![withheld]);
                continue;
            }
            let stopped = self.work.take(delivery);
            self.abort(stopped);
        }
        if stale {
            return Err(Lost::Malformed("a partition is led by another broker, or gone".to_owned()));
        }
        Ok(())
    }

    fn settled(&mut self, settled: &Settled) {
        let count = settled.count();
        let Settled { partition, first, last, number, .. } = *settled;
        match (&settled.what, settled.refused) {
            (Verdict::Renew, false) => {
                self.work.renewed((partition, first, last), number, now() + settled.lease);
                Stats::add(&self.stats.renewed, count);
            }
            (Verdict::Renew, true) => {
                // The lease was lost before its renewal arrived, or the record was settled meanwhile.
                self.work.renewed((partition, first, last), number, now());
            }
            (Verdict::Withheld, _) => Stats::add(&self.stats.withheld, count),
            (Verdict::Done(_), true) => Stats::add(&self.stats.refused, count),
            (Verdict::Done(Outcome::Accept), false) => Stats::add(&self.stats.accepted, count),
            (Verdict::Done(Outcome::Release { .. }), false) => Stats::add(&self.stats.released, count),
            (Verdict::Done(Outcome::Reject { .. }), false) => Stats::add(&self.stats.rejected, count),
        }
    }

    /// A record's work ended: by itself, by a panic, or because it was stopped.
    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Some(outcome)),
            Err(error) if error.is_panic() => (error.id(), Some(Outcome::release("the handler panicked"))),
            Err(error) => (error.id(), None),
        };
        let Some((place, number)) = self.running.remove(&id) else { return };
        if self.aborts.get(&place).is_some_and(|abort| abort.id() == id) {
            self.aborts.remove(&place);
        }
        if let Some(outcome) = outcome {
            let acks = self.work.finish(place, number, outcome);
            self.push_acks(acks);
        }
    }

    fn abort(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if let Some(abort) = self.aborts.remove(&place) {
                abort.abort();
            }
        }
    }

    /// Waits for what runs, acknowledges it, and closes the session, which gives back everything else.
    async fn close(mut self, mut connection: Connection) -> Result<(), Lost> {
        self.work.drop_waiting();
        let drain_max = self.settings.drain_max;
        let drained = timeout(drain_max, self.drain(&mut connection)).await;
        if let Ok(Err(lost)) = drained {
            return Err(lost);
        }
        let running = self.work.drop_all();
        self.abort(running);
        let closing = async {
            while self.session.in_flight() > 0 {
                let frame = connection.receive().await?;
                self.last_answer(frame)?;
            }
            if self.session.is_open() {
                let acks = self.take_acks();
                self.session.acknowledge(&mut connection, &self.settings, acks, true).await?;
                let frame = connection.receive().await?;
                self.last_answer(frame)?;
            }
            Ok(())
        };
        timeout(CLOSE_MAX, closing).await.unwrap_or(Ok(()))
    }

    async fn drain(&mut self, connection: &mut Connection) -> Result<(), Lost> {
        while !self.tasks.is_empty() {
            let deadline = self.next_deadline().unwrap_or_else(|| now() + self.margin());
            if !self.acks.is_empty() && !self.session.acknowledge_in_flight() {
                let acks = self.take_acks();
                self.session.acknowledge(connection, &self.settings, acks, false).await?;
            }
            tokio::select! {
                frame = connection.receive(), if self.session.in_flight() > 0 => self.last_answer(frame?)?,
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                () = sleep_until(deadline) => self.timer(),
            }
        }
        Ok(())
    }

    /// An answer while stopping: what it delivers goes back with the end of the session, unworked.
    fn last_answer(&mut self, frame: Bytes) -> Result<(), Lost> {
        let answer = self.session.answer(frame)?;
        for settled in answer.settled {
            self.settled(&settled);
        }
        for (partition, first, last, number) in answer.recalled {
            let running = self.work.recall(partition, first, last, number);
            self.abort(running);
        }
        Ok(())
    }
}
