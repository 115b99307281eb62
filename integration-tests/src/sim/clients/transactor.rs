//! A transactional producer and its coordinator in one: batches to several partitions, then a marker to each, well or
//! not. What it has decided it carries out whatever happens, as a coordinator does that has stored its decision.

use broker::executor::Data;
use coordinator::command::{Acks, Command, Produce};
use coordinator::io::AppendError;
use coordinator::reply::{ProduceError, Reply};
use records::batch::EndMarker;

use super::producer::{KeyAndNumber, RETRY_US, TIMEOUT_US, build};
use super::{Socket, Turn};
use crate::sim::event::RequestId;
use crate::sim::node::partition;
use crate::sim::plan::{ProducerPlan, TransactorPlan};

/// Batches of a transaction at most.
const BATCHES_MAX: u64 = 4;

/// What of a transaction is to be done.
#[derive(Debug)]
enum Step {
    /// It is between two.
    Idle,
    /// Its records are written: so many batches are to come, and this one is not answered well yet.
    Writes { batches: u64, batch: Option<(i32, Vec<KeyAndNumber>)> },
    /// It has ended: markers for the partitions in it.
    Ends { commit: bool },
}

/// See the module.
pub struct Transactor {
    plan: TransactorPlan,
    records: ProducerPlan,
    keys: u64,
    keyless_percent: u64,
    id: i64,
    epoch: i16,
    sequences: Vec<i32>,
    left: u64,
    /// Partitions that are in the transaction.
    touched: Vec<i32>,
    step: Step,
    socket: Option<Socket>,
    asked: Option<RequestId>,
    turn: u64,
}

impl Transactor {
    /// One that begins with nothing sent.
    #[must_use]
    pub fn new(plan: TransactorPlan, keys: u64, keyless_percent: u64, partitions: i32) -> Self {
        Self {
            plan,
            records: plan.records,
            keys,
            keyless_percent,
            id: -1,
            epoch: 0,
            sequences: (0..partitions).map(|_| 0).collect(),
            left: plan.records.records,
            touched: Vec::new(),
            step: Step::Idle,
            socket: None,
            asked: None,
            turn: 0,
        }
    }

    /// Whether everything is sent, and decided.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0 && matches!(self.step, Step::Idle)
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        turn.names.record_last += 1;
        self.id = i64::try_from(turn.names.record_last).expect("a run has few producers");
        turn.wake(self.records.pause_us_max, self.turn);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        if token != self.turn {
            return;
        }
        if self.asked.take().is_some()
            && let Some(socket) = self.socket.take()
        {
            // No answer in time: what is on its way on the old connection arrives nowhere any more.
            turn.close(socket);
        }
        match &mut self.step {
            Step::Idle if self.left == 0 => return,
            Step::Idle => {
                let batches = turn.random.between(1, BATCHES_MAX);
                self.step = Step::Writes { batches, batch: None };
            }
            Step::Writes { .. } | Step::Ends { .. } => {}
        }
        if let Step::Writes { batches, batch: batch @ None } = &mut self.step {
            if *batches == 0 || self.left == 0 {
                let commit = !turn.random.percent(self.plan.abort_percent);
                self.step = Step::Ends { commit };
            } else {
                *batches -= 1;
                let count = turn.random.between(1, self.records.batch_max).min(self.left);
                self.left -= count;
                let index = turn.random.index(self.sequences.len());
                let records = (0..count).map(|_| turn.record(self.keys, self.keyless_percent)).collect();
                let index = i32::try_from(index).expect("a topic has few partitions");
                *batch = Some((index, records));
                if !self.touched.contains(&index) {
                    self.touched.push(index);
                }
            }
        }
        self.send(turn);
    }

    fn send(&mut self, turn: &mut Turn<'_>) {
        let (index, bytes) = match &self.step {
            Step::Writes { batch: Some((index, records)), .. } => {
                let place = usize::try_from(*index).expect("partitions are counted from 0");
                let producer = (self.id, self.epoch, self.sequences[place]);
                (*index, build(turn.now.wall_ms, self.records.codec, Some(producer), true, records))
            }
            Step::Ends { commit } if !self.touched.is_empty() => {
                let marker = EndMarker { commit: *commit, coordinator_epoch: 0 };
                let epoch = self.epoch + i16::from(self.plan.bumps_epochs);
                (self.touched[0], marker.batch(self.id, epoch, turn.now.wall_ms))
            }
            Step::Idle | Step::Writes { .. } | Step::Ends { .. } => return,
        };
        let parts = vec![(partition(index), bytes.into())];
        self.asked =
            Some(turn.send(&mut self.socket, Command::Produce(Produce { acks: Acks::Synced, parts })));
        self.turn += 1;
        turn.wake_in(TIMEOUT_US, self.turn);
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        if self.asked != Some(request) {
            return;
        }
        self.asked = None;
        self.turn += 1;
        let Reply::Produced(results) = reply else { return };
        match results.into_iter().next() {
            Some(Ok(_)) => self.goes_on(turn),
            Some(Err(ProduceError::Append(
                AppendError::OutOfOrderSequence
                | AppendError::InvalidProducerEpoch
                | AppendError::UnknownProducerId
                | AppendError::DuplicateSequence,
            ))) if matches!(self.step, Step::Writes { .. }) => {
                self.step = Step::Ends { commit: false };
                turn.wake(RETRY_US, self.turn);
            }
            Some(Err(_)) | None => turn.wake(RETRY_US, self.turn),
        }
    }

    /// The last request was carried out.
    fn goes_on(&mut self, turn: &mut Turn<'_>) {
        match &mut self.step {
            Step::Idle => {}
            Step::Writes { batch, .. } => {
                if let Some((index, records)) = batch.take() {
                    let place = usize::try_from(index).expect("partitions are counted from 0");
                    self.sequences[place] += i32::try_from(records.len()).expect("a batch is small");
                }
                let waits = !turn.peace && turn.random.percent(self.plan.waits_percent);
                turn.wake(if waits { self.plan.wait_us } else { self.records.pause_us_max }, self.turn);
            }
            Step::Ends { .. } => {
                self.touched.remove(0);
                if !self.touched.is_empty() {
                    return turn.wake(1_000, self.turn);
                }
                self.step = Step::Idle;
                if self.plan.bumps_epochs {
                    self.epoch += 1;
                    self.sequences.fill(0);
                }
                turn.wake(self.records.pause_us_max, self.turn);
            }
        }
    }

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket == Some(socket) {
            self.socket = None;
            if self.asked.take().is_some() {
                self.turn += 1;
                turn.wake(RETRY_US, self.turn);
            }
        }
    }
}
