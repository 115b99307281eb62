//! Cases and properties of the group coordinator, without a socket: time is handed in, records are kept in memory.

mod describe_and_list;
mod kinds;
mod offset_expiry;
mod offsets;
mod properties;
mod rebalance;
mod record_formats;
mod recovery;
mod session_codes;
mod share_assignment;
mod share_membership;
mod static_members;
mod two_step_join;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::batch::{BatchBuilder, TimestampType};
use records::compression::Codec;
use records::ids::{Offset, TopicId};

use super::*;
use crate::command::{Ticket, TopicImage};
use crate::share::{ShareConfig, ShareOrder};
use crate::time::{Mono, Now};

/// A partition of groups, its log, and everything that it has answered.
struct Rig {
    partition: GroupPartition,
    limits: GroupLimits,
    now: Now,
    topics: TopicImage,
    configs: BTreeMap<Arc<str>, Arc<ShareConfig>>,
    share_default: ShareConfig,
    log: Vec<(Bytes, Option<Bytes>)>,
    replies: BTreeMap<Ticket, GroupReply>,
    events: Vec<(ShareChange, Arc<str>)>,
    tickets: u64,
}

const WALL_MS: i64 = 1_700_000_000_000;
const GROUP: &str = "g";

impl Rig {
    /// Without a delay before the first generation, with topics `t` (3 partitions) and `u` (1).
    fn new() -> Self {
        Self::with(GroupLimits { initial_rebalance_delay_ms: 0, ..GroupLimits::default() })
    }

    fn with(limits: GroupLimits) -> Self {
        let mut rig = Self {
            partition: GroupPartition::new(limits.clone()),
            limits,
            now: Now { mono: Mono(1), wall_ms: WALL_MS },
            topics: TopicImage::default(),
            configs: BTreeMap::new(),
            log: Vec::new(),
            share_default: ShareConfig::default(),
            replies: BTreeMap::new(),
            events: Vec::new(),
            tickets: 0,
        };
        rig.topics.topics.insert(s("t"), (TopicId([1; 16]), 3));
        rig.topics.topics.insert(s("u"), (TopicId([2; 16]), 1));
        let decision = rig.partition.loaded(rig.now);
        rig.take(decision);
        rig
    }

    fn take(&mut self, decision: GroupDecision) {
        self.log.extend(decision.records);
        for (ticket, reply) in decision.replies {
            assert!(self.replies.insert(ticket, reply).is_none(), "{ticket:?} is answered twice");
        }
        self.events.extend(decision.share_events.into_iter().map(|event| (event.change, event.member)));
    }

    fn send(&mut self, command: GroupCommand) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let cx = GroupContext {
            topics: &self.topics,
            share_configs: &self.configs,
            share_default: &self.share_default,
        };
        let decision = self.partition.handle(self.now, ticket, command, &cx);
        self.take(decision);
        ticket
    }

    /// The answer to a ticket, which must have come.
    fn reply(&mut self, ticket: Ticket) -> GroupReply {
        self.replies.remove(&ticket).expect("the command is answered")
    }

    fn call(&mut self, command: GroupCommand) -> GroupReply {
        let ticket = self.send(command);
        self.reply(ticket)
    }

    fn waits(&self, ticket: Ticket) -> bool {
        !self.replies.contains_key(&ticket)
    }

    /// Lets time pass, deadline by deadline.
    fn pass(&mut self, ms: i64) {
        let end = self.now.mono + crate::time::Micros::from_ms(ms);
        let end_wall_ms = self.now.wall_ms + ms;
        while let Some(at) = self.partition.next_deadline().filter(|at| *at <= end) {
            self.now.wall_ms = end_wall_ms - (end - at).as_ms_ceil();
            self.now.mono = at;
            let cx = GroupContext {
                topics: &self.topics,
                share_configs: &self.configs,
                share_default: &self.share_default,
            };
            let decision = self.partition.tick(self.now, &cx);
            self.take(decision);
            assert!(self.partition.next_deadline().is_none_or(|next| next > at), "a tick leaves nothing due");
        }
        self.now = Now { mono: end, wall_ms: end_wall_ms };
    }

    fn topics_changed(&mut self) {
        let cx = GroupContext {
            topics: &self.topics,
            share_configs: &self.configs,
            share_default: &self.share_default,
        };
        let decision = self.partition.topics_changed(self.now, &cx);
        self.take(decision);
    }

    fn delete(&mut self, group: &str) -> Result<(), GroupError> {
        let (outcome, decision) = self.partition.delete_group(self.now, group);
        self.take(decision);
        outcome
    }

    /// The broker stops and starts: all that is left is the log.
    fn restart(&mut self) {
        self.partition = replayed(&self.log, &self.limits);
        let decision = self.partition.loaded(self.now);
        self.take(decision);
    }

    fn set_order(&mut self, group: &str, order: ShareOrder) {
        self.configs.insert(s(group), Arc::new(ShareConfig { order, ..ShareConfig::default() }));
    }

    fn join(&mut self, request: JoinGroup) -> Ticket {
        self.send(GroupCommand::Join(request))
    }

    fn joined(&mut self, ticket: Ticket) -> Joined {
        match self.reply(ticket) {
            GroupReply::Joined(Ok(joined)) => joined,
            other => panic!("not joined: {other:?}"),
        }
    }

    fn join_error(&mut self, ticket: Ticket) -> (GroupError, Arc<str>) {
        match self.reply(ticket) {
            GroupReply::Joined(Err(JoinError { error, member })) => (error, member),
            other => panic!("not refused: {other:?}"),
        }
    }

    fn sync(&mut self, request: SyncGroup) -> Ticket {
        self.send(GroupCommand::Sync(request))
    }

    fn synced(&mut self, ticket: Ticket) -> Result<Bytes, GroupError> {
        match self.reply(ticket) {
            GroupReply::Synced(answer) => answer.map(|answer| answer.assignment),
            other => panic!("not a sync's answer: {other:?}"),
        }
    }

    fn heartbeat(&mut self, member: &str, generation: i32) -> Result<(), GroupError> {
        self.heartbeat_as(member, generation, None)
    }

    fn heartbeat_as(
        &mut self,
        member: &str,
        generation: i32,
        instance: Option<&str>,
    ) -> Result<(), GroupError> {
        let instance = instance.map(s);
        match self.call(GroupCommand::Heartbeat { group: s(GROUP), member: s(member), generation, instance })
        {
            GroupReply::Heartbeat(answer) => answer,
            other => panic!("not a heartbeat's answer: {other:?}"),
        }
    }

    fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let members = members.iter().map(|(member, instance)| (s(member), instance.map(s))).collect();
        match self.call(GroupCommand::Leave { group: s(GROUP), members }) {
            GroupReply::Left(answer) => answer,
            other => panic!("not a leave's answer: {other:?}"),
        }
    }

    fn commit_as(
        &mut self,
        member: &str,
        generation: i32,
        offsets: Vec<CommittedPart>,
    ) -> Vec<Result<(), GroupError>> {
        let request = OffsetCommit {
            group: s(GROUP),
            member: s(member),
            generation,
            instance: None,
            tells_missing_group: true,
            retention_ms: None,
            offsets,
        };
        match self.call(GroupCommand::Commit(request)) {
            GroupReply::Committed(outcomes) => outcomes,
            other => panic!("not a commit's answer: {other:?}"),
        }
    }

    /// A commit without membership.
    fn commit(&mut self, offset: CommittedPart) -> Result<(), GroupError> {
        self.commit_as("", -1, vec![offset])[0]
    }

    fn fetch(&mut self, group: &str, partitions: Option<&[(&str, i32)]>) -> Vec<CommittedPart> {
        let partitions =
            partitions.map(|list| list.iter().map(|(topic, partition)| (s(topic), *partition)).collect());
        match self.call(GroupCommand::FetchOffsets { group: s(group), member: None, partitions }) {
            GroupReply::Offsets(Ok(parts)) => parts,
            other => panic!("not fetched: {other:?}"),
        }
    }

    fn describe(&mut self, group: &str) -> Result<DescribedGroup, GroupError> {
        match self.call(GroupCommand::Describe { group: s(group) }) {
            GroupReply::Described(answer) => answer,
            other => panic!("not described: {other:?}"),
        }
    }

    fn state(&mut self) -> &'static str {
        self.describe(GROUP).expect("the group exists").state
    }

    fn share(
        &mut self,
        member: &str,
        epoch: i32,
        topics: &[&str],
    ) -> Result<ShareHeartbeatReply, GroupError> {
        self.share_in(GROUP, member, epoch, topics)
    }

    /// Without topics: they did not change.
    fn share_in(
        &mut self,
        group: &str,
        member: &str,
        epoch: i32,
        topics: &[&str],
    ) -> Result<ShareHeartbeatReply, GroupError> {
        let request = ShareHeartbeat {
            group: s(group),
            member: s(member),
            epoch,
            rack: None,
            topics: Some(topics.iter().map(|topic| s(topic)).collect())
                .filter(|list: &Vec<_>| !list.is_empty()),
            client_id: s("client"),
            client_host: s("/127.0.0.1"),
        };
        match self.call(GroupCommand::ShareHeartbeat(request)) {
            GroupReply::ShareHeartbeat(answer) => answer,
            other => panic!("not a share heartbeat's answer: {other:?}"),
        }
    }

    fn describe_share(&mut self, group: &str) -> Result<DescribedShareGroup, GroupError> {
        match self.call(GroupCommand::DescribeShare { group: s(group) }) {
            GroupReply::ShareDescribed(answer) => answer,
            other => panic!("not described: {other:?}"),
        }
    }

    /// A and B, joined and synced in generation 2; A leads. Their ids.
    fn stable_pair(&mut self) -> (Arc<str>, Arc<str>) {
        let ticket = self.join(newcomer());
        let a = self.joined(ticket).member;
        let sync = self.sync(asks(&a, 1));
        self.synced(sync).expect("A leads alone");
        let b_join = self.join(newcomer());
        let a_join = self.join(again(&a));
        let b = self.joined(b_join).member;
        assert_eq!(self.joined(a_join).leader, a);
        let b_sync = self.sync(asks(&b, 2));
        let a_sync = self.sync(SyncGroup { assignments: vec![(a.clone(), bytes(b"A"))], ..asks(&a, 2) });
        assert_eq!(self.synced(a_sync), Ok(bytes(b"A")));
        assert_eq!(self.synced(b_sync), Ok(Bytes::new()));
        (a, b)
    }
}

fn s(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn bytes(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

/// A log read from its start, as one batch a record.
fn replayed(log: &[(Bytes, Option<Bytes>)], limits: &GroupLimits) -> GroupPartition {
    let mut partition = GroupPartition::new(limits.clone());
    for (index, record) in log.iter().enumerate() {
        partition.replay(&batch(std::slice::from_ref(record), index as i64));
    }
    partition
}

/// One stored batch.
fn batch(records: &[(Bytes, Option<Bytes>)], base: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for (key, value) in records {
        builder.append(WALL_MS, Some(key), value.as_deref(), &[]);
    }
    builder.build(Offset(base), 0)
}

/// A join (v3: in one step) of someone new, who offers range and rr.
fn newcomer() -> JoinGroup {
    use std::sync::atomic::{AtomicU32, Ordering};
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let mut random = [0; 16];
    random[..4].copy_from_slice(&DRAWN.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    JoinGroup {
        group: s(GROUP),
        member: s(""),
        instance: None,
        client_id: s("client"),
        client_host: s("/127.0.0.1"),
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 6_000,
        protocol_type: s("consumer"),
        protocols: vec![(s("range"), subscription(&["t"])), (s("rr"), subscription(&["t"]))],
        requires_known_member: false,
        supports_skip_assignment: false,
        reason: None,
        random,
    }
}

/// A member's next join.
fn again(member: &str) -> JoinGroup {
    JoinGroup { member: s(member), ..newcomer() }
}

/// A sync without assignments.
fn asks(member: &str, generation: i32) -> SyncGroup {
    SyncGroup {
        group: s(GROUP),
        member: s(member),
        generation,
        instance: None,
        protocol_type: None,
        protocol_name: None,
        requires_protocol: false,
        assignments: Vec::new(),
    }
}

/// A consumer's subscription, as clients encode it (version 0).
fn subscription(topics: &[&str]) -> Bytes {
    let mut out = vec![0, 0];
    out.extend((topics.len() as u32).to_be_bytes());
    for topic in topics {
        out.extend((topic.len() as u16).to_be_bytes());
        out.extend(topic.as_bytes());
    }
    out.extend((-1i32).to_be_bytes());
    Bytes::from(out)
}

fn part(topic: &str, partition: i32, offset: i64, metadata: &str) -> CommittedPart {
    CommittedPart { topic: s(topic), partition, offset, leader_epoch: -1, metadata: s(metadata) }
}
