//! Where each input goes, and what the shard itself keeps of it.

use records::ids::{Offset, PartitionId};

use super::Shard;
use super::groups::News;
use crate::command::{Command, Fact, PartitionRole, Produce, Ticket};
use crate::group::{GroupCommand, GroupError, GroupReply, ShareChange, ShareMembership};
use crate::io::{Completion, IoError, LogFacts, OpId, Slice, Submission};
use crate::outbox::Owner;
use crate::reply::{Output, Reply};
use crate::share::{LeftBy, ShareCommand};
use crate::time::Now;

/// The epoch by which a member joins a share group.
const JOIN: i32 = 0;

impl<S: Slice> Shard<S> {
    pub(super) fn command(&mut self, now: Now, ticket: Ticket, command: Command) {
        let Self { logs, out, .. } = self;
        match command {
            Command::Produce(produce) if self.groups.hold_appends() || !self.held_produces.is_empty() => {
                self.held_produces.push((ticket, produce));
            }
            Command::Produce(produce) => self.produce(ticket, produce),
            Command::Fetch(fetch) => self.fetches.start(now, ticket, fetch, logs, out),
            Command::ListOffsets(request) => self.offsets.list(ticket, &request, logs, out),
            Command::DeleteRecords(parts) => self.offsets.delete(ticket, &parts, logs, out),
            // A group id is used one way at a time.
            Command::Group(GroupCommand::ShareHeartbeat(heartbeat))
                if heartbeat.epoch == JOIN && self.share.has_readers(&heartbeat.group) =>
            {
                let refused = GroupReply::ShareHeartbeat(Err(GroupError::NonEmptyGroup));
                out.reply(ticket, Reply::Group(refused));
            }
            Command::Group(command) => self.groups.command(now, ticket, command, out),
            Command::ShareFetch(fetch) => {
                self.share.command(now, ticket, ShareCommand::Fetch(fetch), logs, out);
            }
            Command::ShareAcknowledge(request) => {
                self.share.command(now, ticket, ShareCommand::Acknowledge(request), logs, out);
            }
            Command::StandaloneFetch(request) => match self.groups.check_no_members(&request.fetch.group) {
                Ok(()) => {
                    self.share.command(now, ticket, ShareCommand::StandaloneFetch(request), logs, out);
                }
                Err(error) => out.reply(ticket, Reply::ShareFetched(Err(error))),
            },
            Command::StandaloneAcknowledge(request) => {
                self.share.command(now, ticket, ShareCommand::StandaloneAcknowledge(request), logs, out);
            }
            Command::StandaloneCommit(request) => {
                self.share.command(now, ticket, ShareCommand::StandaloneCommit(request), logs, out);
            }
            Command::DescribeShareOffsets { group, partitions } => {
                let command = ShareCommand::DescribeOffsets { group, partitions };
                self.share.command(now, ticket, command, logs, out);
            }
            Command::AlterShareOffsets(request) if self.share.has_readers(&request.group) => {
                out.reply(ticket, Reply::ShareOffsetsRefused(GroupError::NonEmptyGroup));
            }
            Command::DeleteShareOffsets { group, .. } if self.share.has_readers(&group) => {
                out.reply(ticket, Reply::ShareOffsetsDeleted(Err(GroupError::NonEmptyGroup)));
            }
            Command::DeleteGroup { group } if self.share.has_readers(&group) => {
                out.reply(ticket, Reply::GroupDeleted(Err(GroupError::NonEmptyGroup)));
            }
            // Standalone readers leave state under an id that is no group's.
            Command::DeleteGroup { group } if self.groups.is_unknown(&group) => {
                self.share.command(now, ticket, ShareCommand::DeleteStates { group }, logs, out);
            }
            Command::AlterShareOffsets(request) => self.groups.alter_share(ticket, request, out),
            Command::DeleteShareOffsets { group, partitions } => {
                match self.groups.check_share_empty(&group) {
                    Ok(()) => {
                        let command = ShareCommand::DeleteOffsets { group, partitions };
                        self.share.command(now, ticket, command, logs, out);
                    }
                    Err(error) => out.reply(ticket, Reply::ShareOffsetsDeleted(Err(error))),
                }
            }
            Command::DescribeShareKeys(request) => {
                self.share.command(now, ticket, ShareCommand::DescribeKeys(request), logs, out);
            }
            Command::AlterShareKey(request) => {
                self.share.command(now, ticket, ShareCommand::AlterKey(request), logs, out);
            }
            Command::ResetShareOffsets(request) => {
                self.share.command(now, ticket, ShareCommand::ResetOffsets(request), logs, out);
            }
            Command::DeleteGroup { group } => self.groups.delete_group(now, ticket, group, out),
        }
    }

    fn produce(&mut self, ticket: Ticket, produce: Produce) {
        let Self { logs, roles, out, .. } = self;
        let may_write = |partition| !matches!(roles.get(&partition), Some(PartitionRole::ConsumerOffsets(_)));
        self.produces.start(ticket, produce, logs, may_write, out);
    }

    pub(super) fn completion(&mut self, now: Now, completion: Completion<S>) {
        let op = completion.op();
        let Some(owner) = self.out.take_owner(op) else { return };
        match owner {
            Owner::Logs => self.logs_completion(now, completion),
            Owner::Groups => self.groups_completion(now, completion),
            Owner::Share => {
                let grown = match &completion {
                    Completion::Appended(op, Ok(appended)) => {
                        self.share.appends_to(*op).map(|partition| (partition, *appended))
                    }
                    _ => None,
                };
                self.share.complete(now, completion, &self.logs, &mut self.out);
                if let Some((partition, appended)) = grown {
                    self.log_grew(now, partition, appended.bytes, appended.facts);
                }
            }
        }
    }

    /// A sync is over: so it is for all that shared it.
    pub(super) fn synced(&mut self, now: Now, op: OpId, result: Result<(), IoError>) {
        let covered = self.group_commit.finish(op);
        if covered.is_empty() {
            // One that was not shared.
            self.completion(now, Completion::Synced(op, result));
        }
        for covered in covered {
            self.completion(now, Completion::Synced(covered, result));
        }
    }

    fn logs_completion(&mut self, now: Now, completion: Completion<S>) {
        match completion {
            Completion::Appended(op, result) => {
                let partition = self.produces.appended(op, result, &mut self.out);
                if let (Some(partition), Ok(appended)) = (partition, result) {
                    self.log_grew(now, partition, appended.bytes, appended.facts);
                }
            }
            Completion::Synced(op, result) => self.produces.synced(op, result, &mut self.out),
            Completion::Read(op, found) => self.fetches.read(now, op, found, &self.logs, &mut self.out),
            Completion::OffsetFound(op, result) => self.offsets.found(op, result, &mut self.out),
            Completion::RecordsDeleted(op, result) => {
                if let Some((partition, start)) = self.offsets.deleted(op, result, &mut self.out) {
                    self.log_start_moved(now, partition, start);
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
                    self.log_grew(now, partition, appended.bytes, appended.facts);
                }
            }
            Completion::Synced(op, result) => groups.synced(op, result.is_ok()),
            Completion::Loaded(op, result) => groups.loaded(now, op, result, out),
            other => unreachable!("the group machine submits nothing that ends in {other:?}"),
        }
    }

    pub(super) fn fact(&mut self, now: Now, fact: &Fact) {
        match *fact {
            Fact::PartitionOpened { partition, role, facts } => {
                self.logs.insert(partition, facts);
                self.roles.insert(partition, role);
                self.fetches.changed(partition);
                match role {
                    PartitionRole::Data => self.groups.log_opened(partition, &facts),
                    PartitionRole::ConsumerOffsets(index) => {
                        self.groups.opened(now, index, partition, &facts, &mut self.out);
                    }
                }
            }
            Fact::PartitionDeleted(partition) => {
                self.logs.remove(&partition);
                self.roles.remove(&partition);
                self.fetches.deleted(partition);
                self.groups.deleted(partition, &mut self.out);
            }
            // Tells the share machine itself.
            Fact::LogStartMoved(partition, start) => return self.log_start_moved(now, partition, start),
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
            Fact::UncleanStop => self.groups.unclean_stop(),
            Fact::Topics(ref topics) => self.groups.topics_changed(now, topics, &mut self.out),
            Fact::ShareConfigured(ref group, ref config) => self.groups.share_configured(group, config),
            Fact::AnswerWritten(_) | Fact::MemberSeen { .. } => {}
        }
        self.share.fact(now, fact, &self.logs, &mut self.out);
    }

    /// Ends a round, in this order: machines, syncs, outputs.
    pub(super) fn finish(&mut self, now: Now) -> Vec<Output<S>> {
        if !self.groups.hold_appends() {
            for (ticket, produce) in std::mem::take(&mut self.held_produces) {
                self.produce(ticket, produce);
            }
        }
        self.fetches.finish(now, &self.logs, &mut self.out);
        let news = self.groups.finish(now, &mut self.out);
        self.tell_share(now, news);
        self.share.may_append(!self.groups.hold_appends());
        self.share.tick(now, &self.logs, &mut self.out);
        self.share.finish_round(now, &self.logs, &mut self.out);
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

    /// What is written of the groups, for the share machine.
    fn tell_share(&mut self, now: Now, news: News) {
        for ShareMembership { group, member, change } in &news.members {
            match change {
                ShareChange::Joined => {}
                ShareChange::Left => self.share.member_left(now, group, member, LeftBy::Heartbeat),
                ShareChange::TimedOut => self.share.member_left(now, group, member, LeftBy::SessionTimeout),
            }
        }
        for (group, live) in news.live {
            self.share.members(&group, live);
        }
        for (ticket, request) in news.altered {
            self.share.command(now, ticket, ShareCommand::ResetOffsets(request), &self.logs, &mut self.out);
        }
        for (ticket, group) in news.deleted {
            let command = ShareCommand::DeleteGroup { group };
            self.share.command(now, ticket, command, &self.logs, &mut self.out);
        }
    }

    /// Bytes were appended; completions of one partition come in order, so facts never go back.
    fn log_grew(&mut self, now: Now, partition: PartitionId, bytes: u64, facts: LogFacts) {
        // Gone when the partition was deleted while the append was under way.
        let Some(known) = self.logs.get_mut(&partition) else { return };
        let before = *known;
        *known = LogFacts { log_start: before.log_start, end: before.end.max(facts.end), ..facts };
        let after = *known;
        self.fetches.grew(partition, bytes, &before, &after);
        self.share.log_grew(now, partition, &self.logs, &mut self.out);
        self.log_start_moved(now, partition, facts.log_start);
    }

    fn log_start_moved(&mut self, now: Now, partition: PartitionId, start: Offset) {
        let Some(facts) = self.logs.get_mut(&partition) else { return };
        if facts.log_start < start {
            facts.log_start = start;
            // Where it passed over the beginning of an open transaction.
            facts.last_stable = facts.last_stable.max(start);
            self.fetches.changed(partition);
            self.share.fact(now, &Fact::LogStartMoved(partition, start), &self.logs, &mut self.out);
        }
    }
}
