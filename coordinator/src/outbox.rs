//! Collects what comes out of a round, and remembers which machine waits for which completion.

use std::collections::BTreeMap;

use records::ids::PartitionId;

use crate::command::Ticket;
use crate::io::{LogFacts, OpId, Submission};
use crate::reply::{Effect, Output, Reply};

/// The logs of a shard as its machines see them: changed by the shard alone, from facts and completions.
pub type LogTable = BTreeMap<PartitionId, LogFacts>;

/// Which machine of the shard a completion goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Produce, fetch, offsets.
    Logs,
    /// Group coordination.
    Groups,
    /// Share groups.
    Share,
}

/// Outputs of the round at work.
#[derive(Debug)]
pub struct Outbox<S> {
    outputs: Vec<Output<S>>,
    owners: BTreeMap<OpId, Owner>,
    op_next: u64,
}

impl<S> Default for Outbox<S> {
    fn default() -> Self {
        Self { outputs: Vec::new(), owners: BTreeMap::new(), op_next: 1 }
    }
}

impl<S> Outbox<S> {
    /// Submits work for `owner`, which gets its completion under the id returned.
    pub fn submit(&mut self, owner: Owner, make: impl FnOnce(OpId) -> Submission) -> OpId {
        let op = OpId(self.op_next);
        self.op_next += 1;
        self.owners.insert(op, owner);
        self.outputs.push(Output::Submit(make(op)));
        op
    }

    /// Answers a command.
    pub fn reply(&mut self, ticket: Ticket, reply: Reply<S>) {
        self.outputs.push(Output::Reply(ticket, reply));
    }

    /// Asks for an effect.
    pub fn effect(&mut self, effect: Effect) {
        self.outputs.push(Output::Effect(effect));
    }

    /// Who waits for this completion; forgets it.
    pub fn take_owner(&mut self, op: OpId) -> Option<Owner> {
        self.owners.remove(&op)
    }

    /// Everything that has come out so far, in order.
    pub fn drain(&mut self) -> Vec<Output<S>> {
        std::mem::take(&mut self.outputs)
    }
}
