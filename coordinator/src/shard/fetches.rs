//! Plain fetches from arrival to answer: planned, read, parked, woken, planned again.
//!
//! A fetch is either being read for (it has one read in flight) or parked (it stands in the indexes below). What
//! wakes a parked one: bytes that come in sum up to what it misses, another change of a log that it names, the end
//! of its wait, an acknowledgement behind it on its connection, the end of the broker. Its connection's end removes
//! it without an answer. Wake-ups are collected over a round, so that one read serves all that came in.

use std::collections::{BTreeMap, BTreeSet};

use records::ids::PartitionId;

use crate::command::{ConnectionId, Fetch, Isolation, Ticket};
use crate::io::{FoundBatches, IoError, LogFacts, OpId, ReadPart, Slice, Submission};
use crate::limits::Limits;
use crate::outbox::{LogTable, Outbox, Owner};
use crate::plan::fetch::{PartPlan, Plan, Verdict, plan, verdict};
use crate::reply::{FetchError, FetchedPart, Reply};
use crate::time::{Micros, Mono, Now};

/// Fetches that are not answered yet.
#[derive(Debug)]
pub(super) struct Fetches {
    parked_fetches_max: usize,
    parked_parts_max: usize,
    waiting: BTreeMap<Ticket, Waiting>,
    reads: BTreeMap<OpId, Ticket>,
    by_connection: BTreeMap<ConnectionId, BTreeSet<Ticket>>,
    /// Parked ones only, as the next two.
    by_partition: BTreeMap<PartitionId, BTreeSet<Ticket>>,
    deadlines: BTreeSet<(Mono, Ticket)>,
    parked_parts: usize,
    /// To be planned again at the end of this round.
    woken: BTreeSet<Ticket>,
    /// Bytes appended to each log since it was opened here: how much came in during a read.
    written: BTreeMap<PartitionId, u64>,
    stopping: bool,
}

#[derive(Debug)]
struct Waiting {
    fetch: Fetch,
    deadline: Mono,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Just arrived, or woken.
    New,
    /// A read is in flight for it.
    Reading { parts: Vec<PartPlan>, written: u64 },
    /// Waits until this many bytes more are there.
    Parked { missing: u64 },
}

impl Fetches {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            parked_fetches_max: limits.parked_fetches_max,
            parked_parts_max: limits.parked_parts_max,
            waiting: BTreeMap::new(),
            reads: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            by_partition: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            parked_parts: 0,
            woken: BTreeSet::new(),
            written: BTreeMap::new(),
            stopping: false,
        }
    }

    /// Starts a fetch.
    pub(super) fn start<S: Slice>(
        &mut self,
        now: Now,
        ticket: Ticket,
        fetch: Fetch,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let full = self.deadlines.len() >= self.parked_fetches_max
            || self.parked_parts + fetch.parts.len() > self.parked_parts_max;
        let patience = if full || self.stopping { Micros::ZERO } else { wait_max(&fetch) };
        self.by_connection.entry(fetch.connection).or_default().insert(ticket);
        let deadline = now.mono + patience;
        self.waiting.insert(ticket, Waiting { fetch, deadline, phase: Phase::New });
        self.go_on(now, ticket, logs, out);
    }

    /// A read is over.
    pub(super) fn read<S: Slice>(
        &mut self,
        now: Now,
        op: OpId,
        found: Vec<Result<FoundBatches<S>, IoError>>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(ticket) = self.reads.remove(&op) else { return };
        // Unknown when its connection has gone meanwhile.
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        let Phase::Reading { parts, written } = std::mem::replace(&mut waiting.phase, Phase::New) else {
            unreachable!("a fetch with a read in flight is being read for");
        };
        let bytes = found.iter().flatten().map(|found| found.data.len()).sum();
        let refused = parts.iter().any(|part| matches!(part, PartPlan::Refused(_)));
        let failed = refused || found.iter().any(Result::is_err);
        match verdict(now.mono, waiting.deadline, &waiting.fetch, bytes, failed) {
            Verdict::Answer => self.answer(ticket, &parts, found, logs, out),
            Verdict::Missing(missing) => {
                let came = total_written(&self.written, &waiting.fetch).saturating_sub(written);
                if came >= missing || is_stale(&parts, now.mono, waiting, logs) {
                    self.go_on(now, ticket, logs, out);
                } else {
                    self.park(now, ticket, missing - came);
                }
            }
        }
    }

    /// A log grew by so many bytes; `before` and `after` are its facts around that.
    pub(super) fn grew(&mut self, partition: PartitionId, bytes: u64, before: &LogFacts, after: &LogFacts) {
        *self.written.entry(partition).or_default() += bytes;
        for ticket in self.by_partition.get(&partition).into_iter().flatten() {
            let waiting = self.waiting.get_mut(ticket).expect("a parked fetch waits");
            let Phase::Parked { missing } = &mut waiting.phase else { continue };
            let held_back = match waiting.fetch.isolation {
                Isolation::ReadUncommitted => false,
                Isolation::ReadCommitted => before.last_stable < before.end || after.last_stable < after.end,
            };
            if held_back {
                // The bytes that a marker lets out came in before, or do not count yet: how many is not known here.
                if before.last_stable < after.last_stable {
                    self.woken.insert(*ticket);
                }
                continue;
            }
            *missing = missing.saturating_sub(bytes);
            if *missing == 0 {
                self.woken.insert(*ticket);
            }
        }
    }

    /// A log changed otherwise: it lost its head, was opened anew, or is gone.
    pub(super) fn changed(&mut self, partition: PartitionId) {
        self.woken.extend(self.by_partition.get(&partition).into_iter().flatten());
    }

    /// A log is gone for good.
    pub(super) fn deleted(&mut self, partition: PartitionId) {
        self.changed(partition);
        self.written.remove(&partition);
    }

    /// A connection is gone, and what it waited for with it.
    pub(super) fn connection_closed(&mut self, connection: ConnectionId) {
        for ticket in self.by_connection.remove(&connection).unwrap_or_default() {
            self.unpark(ticket);
            self.waiting.remove(&ticket);
        }
    }

    /// The answer can reach nobody any more.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        self.unpark(ticket);
        self.forget(ticket);
    }

    /// Ends the wait of this fetch now, if it is one.
    pub(super) fn hurry(&mut self, now: Now, ticket: Ticket) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        let old = waiting.deadline;
        waiting.deadline = now.mono.min(old);
        if matches!(waiting.phase, Phase::Parked { .. }) {
            self.deadlines.remove(&(old, ticket));
            self.deadlines.insert((waiting.deadline, ticket));
        }
    }

    /// Ends all waits now, and those of fetches to come.
    pub(super) fn stop(&mut self, now: Now) {
        self.stopping = true;
        let tickets: Vec<Ticket> = self.waiting.keys().copied().collect();
        for ticket in tickets {
            self.hurry(now, ticket);
        }
    }

    /// Ends a round: plans anew what was woken or has waited long enough.
    pub(super) fn finish<S: Slice>(&mut self, now: Now, logs: &LogTable, out: &mut Outbox<S>) {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now.mono);
        self.woken.extend(due.map(|(_, ticket)| *ticket));
        for ticket in std::mem::take(&mut self.woken) {
            self.go_on(now, ticket, logs, out);
        }
    }

    /// When the next wait ends.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many fetches are parked, and how many are not answered yet in all.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.deadlines.len(), self.waiting.len())
    }

    fn go_on<S: Slice>(&mut self, now: Now, ticket: Ticket, logs: &LogTable, out: &mut Outbox<S>) {
        // One that left by its connection may still stand among the woken.
        let Some(waiting) = self.waiting.get(&ticket) else { return };
        match plan(now.mono, waiting.deadline, &waiting.fetch, logs) {
            Plan::Park { .. } if matches!(waiting.phase, Phase::Parked { .. }) => {}
            Plan::Park { .. } => {
                let missing = waiting.fetch.bytes_min.max(1);
                self.park(now, ticket, missing);
            }
            Plan::Ready(parts) => {
                self.unpark(ticket);
                self.submit(ticket, parts, logs, out);
            }
        }
    }

    fn submit<S: Slice>(
        &mut self,
        ticket: Ticket,
        parts: Vec<PartPlan>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let reads: Vec<ReadPart> = parts
            .iter()
            .filter_map(|part| match part {
                PartPlan::Read(read) => Some(*read),
                PartPlan::Refused(_) | PartPlan::Nothing => None,
            })
            .collect();
        if reads.is_empty() {
            return self.answer(ticket, &parts, Vec::new(), logs, out);
        }
        let waiting = self.waiting.get_mut(&ticket).expect("the caller looked it up");
        let bytes_max = waiting.fetch.bytes_max;
        let op = out.submit(Owner::Logs, |op| Submission::Read { op, bytes_max, parts: reads });
        let written = total_written(&self.written, &waiting.fetch);
        waiting.phase = Phase::Reading { parts, written };
        self.reads.insert(op, ticket);
    }

    fn answer<S: Slice>(
        &mut self,
        ticket: Ticket,
        parts: &[PartPlan],
        found: Vec<Result<FoundBatches<S>, IoError>>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let waiting = self.forget(ticket).expect("a fetch that is answered waits");
        let mut found = found.into_iter();
        let answers = waiting.fetch.parts.iter().zip(parts).map(|(part, plan)| {
            let (data, aborted) = match plan {
                PartPlan::Refused(error) => return Err(*error),
                PartPlan::Nothing => (None, Vec::new()),
                PartPlan::Read(_) => {
                    let found = found.next().unwrap_or(Err(IoError::Storage)).map_err(refused)?;
                    ((!found.data.is_empty()).then_some(found.data), found.aborted)
                }
            };
            // Deleted during the read.
            let facts = logs.get(&part.partition).ok_or(FetchError::UnknownPartition)?;
            Ok(FetchedPart {
                high_watermark: facts.end,
                last_stable: facts.last_stable,
                log_start: facts.log_start,
                data,
                aborted,
            })
        });
        let answers = answers.collect();
        out.reply(ticket, Reply::Fetched(answers));
    }

    fn park(&mut self, now: Now, ticket: Ticket, missing: u64) {
        let waiting = self.waiting.get_mut(&ticket).expect("the caller looked it up");
        debug_assert!(now.mono < waiting.deadline, "a wait that is over ends in an answer");
        waiting.phase = Phase::Parked { missing };
        self.deadlines.insert((waiting.deadline, ticket));
        self.parked_parts += waiting.fetch.parts.len();
        for part in &waiting.fetch.parts {
            self.by_partition.entry(part.partition).or_default().insert(ticket);
        }
    }

    /// Takes a fetch out of the indexes of parked ones, where it is parked.
    fn unpark(&mut self, ticket: Ticket) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        if !matches!(waiting.phase, Phase::Parked { .. }) {
            return;
        }
        waiting.phase = Phase::New;
        self.deadlines.remove(&(waiting.deadline, ticket));
        self.parked_parts -= waiting.fetch.parts.len();
        for part in &waiting.fetch.parts {
            remove_from(&mut self.by_partition, &part.partition, ticket);
        }
    }

    fn forget(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        remove_from(&mut self.by_connection, &waiting.fetch.connection, ticket);
        Some(waiting)
    }
}

fn wait_max(fetch: &Fetch) -> Micros {
    Micros::from_ms(i64::from(fetch.wait_max_ms))
}

/// Bytes that ever came into the logs of a fetch; only differences of it mean something.
fn total_written(written: &BTreeMap<PartitionId, u64>, fetch: &Fetch) -> u64 {
    fetch.parts.iter().filter_map(|part| written.get(&part.partition)).sum()
}

/// Whether something other than growth happened to the logs of a fetch since these parts were planned: what would
/// have woken it, had it been parked.
fn is_stale(parts: &[PartPlan], now: Mono, waiting: &Waiting, logs: &LogTable) -> bool {
    let Plan::Ready(fresh) = plan(now, waiting.deadline, &waiting.fetch, logs) else { return false };
    fresh.iter().zip(parts).any(|(fresh, old)| match (fresh, old) {
        (PartPlan::Refused(_), _) => true,
        (PartPlan::Read(fresh), PartPlan::Read(old)) => {
            waiting.fetch.isolation == Isolation::ReadCommitted && fresh.upper != old.upper
        }
        (PartPlan::Read(_), _) => waiting.fetch.isolation == Isolation::ReadCommitted,
        (PartPlan::Nothing, _) => false,
    })
}

fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Ticket>>, key: &K, ticket: Ticket) {
    if let Some(tickets) = index.get_mut(key) {
        tickets.remove(&ticket);
        if tickets.is_empty() {
            index.remove(key);
        }
    }
}

fn refused(error: IoError) -> FetchError {
    match error {
        IoError::NotOpen => FetchError::UnknownPartition,
        IoError::OutOfRange => FetchError::OutOfRange,
        IoError::Corrupt | IoError::Storage => FetchError::Storage,
    }
}
