//! Where each input goes, and what the shard itself keeps of it.

use records::ids::{Offset, PartitionId};

use super::Shard;
use crate::command::{Command, Fact, PartitionRole, Ticket};
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
            Command::Group(command) => self.groups.command(now, ticket, command, out),
            Command::ShareFetch(_) => out.reply(ticket, Reply::ShareFetched(Err(ShareError::Unavailable))),
            Command::ShareAcknowledge(_) => {
                out.reply(ticket, Reply::ShareAcknowledged(Err(ShareError::Unavailable)));
            }
            Command::DescribeShareOffsets { partitions, .. } => {
                let parts = partitions.unwrap_or_default().into_iter();
                let none = parts.map(|part| (part, Err(ShareError::Unavailable))).collect();
                out.reply(ticket, Reply::ShareOffsets(none));
            }
            Command::DeleteGroup { group } => self.groups.delete_group(now, ticket, group, out),
        }
    }

    pub(super) fn completion(&mut self, now: Now, completion: Completion<S>) {
        let op = completion.op();
        let Some(owner) = self.out.take_owner(op) else { return };
        match owner {
            Owner::Logs => self.logs_completion(now, completion),
            Owner::Groups => self.groups_completion(now, completion),
            Owner::Share => {}
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

    fn groups_completion(&mut self, now: Now, completion: Completion<S>) {
        let Self { groups, out, .. } = self;
        match completion {
            Completion::Appended(op, result) => {
                let partition = groups.appended(now, op, result, out);
                if let (Some(partition), Ok(appended)) = (partition, result) {
                    self.log_grew(partition, appended.bytes, appended.facts);
                }
            }
            // The log is poisoned: what is appended next is refused.
            Completion::Synced(..) => {}
            Completion::Loaded(op, result) => groups.loaded(now, op, result, out),
            Completion::ShareStateDeleted(op, result) => groups.share_state_deleted(op, result, out),
            other => unreachable!("the group machine submits nothing that ends in {other:?}"),
        }
    }

    #[allow(clippy::needless_pass_by_value)]
    pub(super) fn fact(&mut self, now: Now, fact: Fact) {
        match fact {
            Fact::PartitionOpened { partition, role, facts } => {
                self.logs.insert(partition, facts);
                self.roles.insert(partition, role);
                self.fetches.changed(partition);
                if let PartitionRole::ConsumerOffsets(index) = role {
                    self.groups.opened(now, index, partition, &facts, &mut self.out);
                }
            }
            Fact::PartitionDeleted(partition) => {
                self.logs.remove(&partition);
                self.roles.remove(&partition);
                self.fetches.deleted(partition);
                self.groups.deleted(partition, &mut self.out);
            }
            Fact::LogStartMoved(partition, start) => self.log_start_moved(partition, start),
            Fact::AnswerLost(ticket) => {
                self.fetches.cancel(ticket);
                self.groups.cancel(ticket);
            }
            Fact::ConnectionClosed(connection) => self.fetches.connection_closed(connection),
            Fact::GiveWay(ticket) => self.fetches.hurry(now, ticket),
            Fact::Stopping => {
                self.fetches.stop(now);
                self.groups.stop();
            }
            Fact::Topics(topics) => self.groups.topics_changed(now, &topics, &mut self.out),
            Fact::ShareConfigured(group, config) => self.groups.share_configured(&group, &config),
            Fact::AnswerWritten(_) | Fact::MemberSeen { .. } => {}
        }
    }

    /// Ends a round, in this order: machines, syncs, outputs.
    pub(super) fn finish(&mut self, now: Now) -> Vec<Output<S>> {
        self.fetches.finish(now, &self.logs, &mut self.out);
        self.groups.finish(now, &mut self.out);
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
