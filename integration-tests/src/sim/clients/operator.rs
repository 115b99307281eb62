//! An operator: parks, resumes, skips, drops, redrives and replays keys at random moments, resets share-partitions, and
//! asks why; in peace it resumes whatever is stopped.

use std::collections::VecDeque;
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::Command;
use coordinator::reply::Reply;
use coordinator::share::admin::{AlterKey, DescribeKeys, KeyAction, KeyRef, ResetOffsets, ResetTo, TOP_MAX};
use records::ids::{Offset, PartitionId};
use records::key_hash;

use super::{Socket, Turn};
use crate::sim::event::RequestId;
use crate::sim::node::partition;
use crate::sim::plan::{OperatorPlan, Plan};

/// Without an answer for so long it takes another connection.
const TIMEOUT_US: u64 = 10_000_000;
/// In peace it looks this often what is stopped.
const PEACE_US: u64 = 1_000_000;
/// It names offsets below this one.
const OFFSETS: u64 = 120;

/// A request that is out, and the share-partition that it describes.
type Asked = (RequestId, Option<(Arc<str>, PartitionId)>);

/// See the module.
pub struct Operator {
    plan: OperatorPlan,
    groups: Vec<Arc<str>>,
    keys: u64,
    partitions: i32,
    socket: Option<Socket>,
    asked: Option<Asked>,
    /// What is to be resumed or looked at next.
    todo: VecDeque<Command>,
    turn: u64,
}

impl Operator {
    /// Of these groups.
    #[must_use]
    pub fn new(groups: Vec<Arc<str>>, plan: &Plan) -> Self {
        Self {
            plan: plan.operator,
            groups,
            keys: plan.keys,
            partitions: plan.partitions,
            socket: None,
            asked: None,
            todo: VecDeque::new(),
            turn: 0,
        }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        self.rest(turn);
    }

    fn rest(&mut self, turn: &mut Turn<'_>) {
        self.turn += 1;
        let wait_us = match self.plan.every_ms {
            _ if turn.peace => PEACE_US,
            0 => TIMEOUT_US,
            every_ms => every_ms * 1_000,
        };
        turn.wake(wait_us, self.turn);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        if token != self.turn {
            return;
        }
        if self.asked.take().is_some()
            && let Some(socket) = self.socket.take()
        {
            turn.close(socket);
        }
        if turn.peace && self.todo.is_empty() {
            for group in &self.groups {
                self.todo
                    .extend((0..self.partitions).map(|index| describe(group, partition(index), Vec::new())));
            }
        }
        self.next(turn);
    }

    fn next(&mut self, turn: &mut Turn<'_>) {
        let command = match self.todo.pop_front() {
            Some(command) => command,
            None if turn.peace || self.plan.every_ms == 0 => return self.rest(turn),
            None => self.draw(turn),
        };
        let described = match &command {
            Command::DescribeShareKeys(request) => Some((Arc::clone(&request.group), request.partition)),
            _ => None,
        };
        self.asked = Some((turn.send(&mut self.socket, command), described));
        self.turn += 1;
        turn.wake_in(TIMEOUT_US, self.turn);
    }

    fn draw(&self, turn: &mut Turn<'_>) -> Command {
        let group = Arc::clone(&self.groups[turn.random.index(self.groups.len())]);
        let index = turn.random.below(u64::from(self.partitions.unsigned_abs()));
        let partition = partition(i32::try_from(index).expect("below the number of partitions"));
        let mut offset =
            || Offset(i64::try_from(turn.random.below(OFFSETS)).expect("below the number of offsets"));
        let (one, other) = (offset(), offset());
        let key = if turn.random.percent(70) {
            KeyRef::Key(key_hash(format!("key-{}", turn.random.below(self.keys)).as_bytes()))
        } else {
            KeyRef::Offset(one)
        };
        let action = match turn.random.below(20) {
            0..=3 => KeyAction::Park,
            4..=7 => KeyAction::Resume,
            8 | 9 => KeyAction::Skip,
            10 => KeyAction::Drop(None),
            11 => KeyAction::Drop(Some(one)),
            12..=14 => KeyAction::Redrive,
            15 | 16 => KeyAction::Replay(one.min(other), one.max(other)),
            17 if self.plan.resets => {
                let to = turn.random.pick(&[ResetTo::Offset(one), ResetTo::Earliest, ResetTo::Latest]);
                return Command::ResetShareOffsets(ResetOffsets { group, parts: vec![(partition, to)] });
            }
            _ => return describe(&group, partition, vec![key, KeyRef::Offset(other)]),
        };
        Command::AlterShareKey(AlterKey { group, partition, key, action })
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: &Reply<Data>) {
        let Some((_, described)) = self.asked.take_if(|asked| asked.0 == request) else { return };
        if turn.peace
            && let Some((group, partition)) = described
            && let Reply::ShareKeys(Ok(keys)) = reply
        {
            for stopped in &keys.stopped {
                let key = stopped.key.map_or(KeyRef::Offset(stopped.offset), KeyRef::Key);
                let group = Arc::clone(&group);
                let alter = AlterKey { group, partition, key, action: KeyAction::Resume };
                self.todo.push_back(Command::AlterShareKey(alter));
            }
        }
        if self.todo.is_empty() { self.rest(turn) } else { self.next(turn) }
    }

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket == Some(socket) {
            self.socket = None;
            if self.asked.take().is_some() {
                self.rest(turn);
            }
        }
    }
}

fn describe(group: &Arc<str>, partition: PartitionId, questions: Vec<KeyRef>) -> Command {
    let group = Arc::clone(group);
    Command::DescribeShareKeys(DescribeKeys { group, partition, top: TOP_MAX, questions })
}
