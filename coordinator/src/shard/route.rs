//! Where each input goes, and what the shard itself keeps of it.

use records::ids::{Offset, PartitionId};

use super::Shard;
use crate::command::{Command, Fact, PartitionRole, Ticket};
use crate::group::{GroupCommand, GroupError, GroupReply, JoinError};
use crate::io::{Completion, IoError, LogFacts, OpId, Slice, Submission};
use crate::outbox::Owner;
use crate::reply::{Output, Reply};
use crate::share::ShareError;
use crate::time::Now;

impl<S: Slice> Shard<S> {
    pub(super) fn command(&mut self, now: Now, ticket: Ticket, command: Command) {
        let Self { logs, roles, out, .. } = self;
        match command {
            Command::Produce(produce) => {
                let may_write =
                    |partition| !matches!(roles.get(&partition), Some(PartitionRole::ConsumerOffsets(_)));
                self.produces.start(ticket, produce, logs, may_write, out);
            }
            Command::Fetch(fetch) => self.fetches.start(now, ticket, fetch, logs, out),
            Command::ListOffsets(request) => self.offsets.list(ticket, &request, logs, out),
            Command::DeleteRecords(parts) => self.offsets.delete(ticket, &parts, logs, out),
            Command::Group(command) => out.reply(ticket, Reply::Group(refuse(&command))),
            Command::ShareFetch(_) => out.reply(ticket, Reply::ShareFetched(Err(ShareError::Unavailable))),
            Command::ShareAcknowledge(_) => {
                out.reply(ticket, Reply::ShareAcknowledged(Err(ShareError::Unavailable)));
            }
            Command::DescribeShareOffsets { partitions, .. } => {
                let parts = partitions.unwrap_or_default().into_iter();
                let none = parts.map(|part| (part, Err(ShareError::Unavailable))).collect();
                out.reply(ticket, Reply::ShareOffsets(none));
            }
            Command::DeleteGroup { .. } => {
                out.reply(ticket, Reply::GroupDeleted(Err(GroupError::NotAvailable)));
            }
        }
    }

    pub(super) fn completion(&mut self, now: Now, completion: Completion<S>) {
        let op = completion.op();
        let Some(owner) = self.out.take_owner(op) else { return };
        match owner {
            Owner::Logs => self.logs_completion(now, completion),
            Owner::Groups | Owner::Share => {}
        }
    }

    /// A sync is over: so it is for all that shared it.
    pub(super) fn synced(&mut self, now: Now, op: OpId, result: Result<(), IoError>) {
        for covered in self.group_commit.finish(op) {
            self.completion(now, Completion::Synced(covered, result));
        }
    }

    fn logs_completion(&mut self, now: Now, completion: Completion<S>) {
        match completion {
            Completion::Appended(op, result) => {
                let partition = self.produces.appended(op, result, &mut self.out);
                if let (Some(partition), Ok(appended)) = (partition, result) {
                    self.log_grew(partition, appended.bytes, appended.facts);
                }
            }
            Completion::Synced(op, result) => self.produces.synced(op, result, &mut self.out),
            Completion::Read(op, found) => self.fetches.read(now, op, found, &self.logs, &mut self.out),
            Completion::OffsetFound(op, result) => self.offsets.found(op, result, &mut self.out),
            Completion::RecordsDeleted(op, result) => {
                if let Some((partition, start)) = self.offsets.deleted(op, result, &mut self.out) {
                    self.log_start_moved(partition, start);
                }
            }
            other => unreachable!("the log machine submits nothing that ends in {other:?}"),
        }
    }

    #[allow(clippy::needless_pass_by_value)]
    pub(super) fn fact(&mut self, now: Now, fact: Fact) {
        match fact {
            Fact::PartitionOpened { partition, role, facts } => {
                self.logs.insert(partition, facts);
                self.roles.insert(partition, role);
                self.fetches.changed(partition);
            }
            Fact::PartitionDeleted(partition) => {
                self.logs.remove(&partition);
                self.roles.remove(&partition);
                self.fetches.deleted(partition);
            }
            Fact::LogStartMoved(partition, start) => self.log_start_moved(partition, start),
            Fact::AnswerLost(ticket) => self.fetches.cancel(ticket),
            Fact::ConnectionClosed(connection) => self.fetches.connection_closed(connection),
            Fact::GiveWay(ticket) => self.fetches.hurry(now, ticket),
            Fact::Stopping => self.fetches.stop(now),
            Fact::Topics(_)
            | Fact::ShareConfigured(..)
            | Fact::AnswerWritten(_)
            | Fact::MemberSeen { .. } => {}
        }
    }

    /// Ends a round, in this order: machines, syncs, outputs.
    pub(super) fn finish(&mut self, now: Now) -> Vec<Output<S>> {
        self.fetches.finish(now, &self.logs, &mut self.out);
        let mut outputs = Vec::new();
        for output in self.out.drain() {
            match output {
                Output::Submit(Submission::Sync { op, partition }) => self.group_commit.ask(partition, op),
                other => outputs.push(other),
            }
        }
        // Behind all else of the round, which they cover.
        outputs.extend(self.group_commit.begin().into_iter().map(Output::Submit));
        outputs
    }

    /// Bytes were appended; completions of one partition come in order, so facts never go back.
    fn log_grew(&mut self, partition: PartitionId, bytes: u64, facts: LogFacts) {
        // Gone when the partition was deleted while the append was under way.
        let Some(known) = self.logs.get_mut(&partition) else { return };
        let before = *known;
        let start = before.log_start.max(facts.log_start);
        *known = LogFacts { log_start: start, end: before.end.max(facts.end), ..facts };
        let after = *known;
        self.fetches.grew(partition, bytes, &before, &after);
        if before.log_start < start {
            self.fetches.changed(partition);
        }
    }

    fn log_start_moved(&mut self, partition: PartitionId, start: Offset) {
        let Some(facts) = self.logs.get_mut(&partition) else { return };
        if facts.log_start < start {
            facts.log_start = start;
            self.fetches.changed(partition);
        }
    }
}

fn refuse(command: &GroupCommand) -> GroupReply {
    let error = GroupError::NotAvailable;
    match command {
        GroupCommand::Join(join) => GroupReply::Joined(Err(JoinError { error, member: join.member.clone() })),
        GroupCommand::Sync(_) => GroupReply::Synced(Err(error)),
        GroupCommand::Heartbeat { .. } => GroupReply::Heartbeat(Err(error)),
        GroupCommand::Leave { .. } => GroupReply::Left(Err(error)),
        GroupCommand::Commit(commit) => GroupReply::Committed(vec![Err(error); commit.offsets.len()]),
        GroupCommand::FetchOffsets { .. } => GroupReply::Offsets(Err(error)),
        GroupCommand::DeleteOffsets { .. } => GroupReply::OffsetsDeleted(Err(error)),
        GroupCommand::Describe { .. } => GroupReply::Described(Err(error)),
        GroupCommand::List => GroupReply::Listed(Err(error)),
        GroupCommand::ShareHeartbeat(_) => GroupReply::ShareHeartbeat(Err(error)),
        GroupCommand::DescribeShare { .. } => GroupReply::ShareDescribed(Err(error)),
    }
}
