//! The shard: the synchronous machine that owns partitions and all that hangs on them.
//!
//! In come commands, completions of I/O, facts and the time; out go submissions, replies and effects. It has three
//! machines: logs (produce, fetch, offsets), groups, share groups. Each round decides and applies all that came in,
//! one after another, then ends: one append a coordinator partition, one matching round of the share-partitions, one
//! sync for all that wait for it. A reply leaves when what it promises has been done, never earlier.
//!
//! Invariants. `logs` changes here alone, from facts and completions, and offsets in it never go back. Every
//! submission has one owner, which gets its completion. Every ticket is answered once, unless its connection goes
//! first.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::PartitionId;

use crate::command::{Command, Fact, PartitionRole, Produce, Ticket};
use crate::io::{Completion, Slice};
use crate::limits::Limits;
use crate::outbox::{LogTable, Outbox};
use crate::reply::Output;
use crate::share::{ShareGroupView, ShareMachine, SharePartitionView};
use crate::time::{Mono, Now};

mod fetches;
pub mod group_commit;
mod groups;
mod offsets;
mod produces;
mod route;
mod tally;

use fetches::Fetches;
use group_commit::GroupCommit;
use groups::Groups;
use offsets::Offsets;
use produces::Produces;

/// One thing that comes into a round.
#[derive(Clone, Debug)]
pub enum Input<S> {
    /// A request's work; answered once under its ticket.
    Command(Ticket, Command),
    /// The end of a submission.
    Completion(Completion<S>),
    /// What is told without being asked for an answer.
    Fact(Fact),
}

/// The synchronous machine. `S` is the executor's way to name bytes of a log.
#[derive(Debug)]
pub struct Shard<S: Slice> {
    logs: LogTable,
    roles: BTreeMap<PartitionId, PartitionRole>,
    produces: Produces,
    /// Produce requests that wait until commits beyond their logs are lowered; the broker bounds them by what it admits.
    held_produces: Vec<(Ticket, Produce)>,
    fetches: Fetches,
    offsets: Offsets,
    groups: Groups,
    share: ShareMachine<S>,
    group_commit: GroupCommit,
    out: Outbox<S>,
}

impl<S: Slice> Shard<S> {
    /// A shard without partitions. `boot` is the number of this start of the broker, raised at every start.
    #[must_use]
    pub fn new(limits: Limits, boot: u32) -> Self {
        Self {
            logs: LogTable::new(),
            roles: BTreeMap::new(),
            produces: Produces::default(),
            held_produces: Vec::new(),
            fetches: Fetches::new(&limits),
            offsets: Offsets::default(),
            share: ShareMachine::new(limits.share.clone(), boot),
            groups: Groups::new(limits),
            group_commit: GroupCommit::default(),
            out: Outbox::default(),
        }
    }

    /// One round: takes all inputs in order, then ends it. Also to be called, without inputs if there are none, when
    /// [`Self::next_deadline`] has come.
    pub fn round(&mut self, now: Now, inputs: impl IntoIterator<Item = Input<S>>) -> Vec<Output<S>> {
        for input in inputs {
            match input {
                Input::Command(ticket, command) => self.command(now, ticket, command),
                Input::Completion(Completion::Synced(op, result)) => self.synced(now, op, result),
                Input::Completion(completion) => self.completion(now, completion),
                Input::Fact(fact) => self.fact(now, &fact),
            }
        }
        self.finish(now)
    }

    /// When [`Self::round`] must be called although nothing came in.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let machines =
            [self.fetches.next_deadline(), self.groups.next_deadline(), self.share.next_deadline()];
        machines.into_iter().flatten().min()
    }

    /// How many plain fetches are parked, and how many are not answered yet in all.
    #[must_use]
    pub fn fetch_counts(&self) -> (usize, usize) {
        self.fetches.counts()
    }

    /// Where a share-partition stands; `None` while it is not loaded.
    #[must_use]
    pub fn share_partition(&self, group: &str, partition: PartitionId) -> Option<SharePartitionView> {
        self.share.view(group, partition)
    }

    /// Where every share group stands, by name.
    pub fn share_groups(&self) -> impl Iterator<Item = (Arc<str>, ShareGroupView)> {
        self.share.group_views(&self.logs)
    }

    /// What is known of the logs now.
    #[must_use]
    pub fn logs(&self) -> &LogTable {
        &self.logs
    }
}
