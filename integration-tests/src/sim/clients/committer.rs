//! A client that commits offsets of a group without members, and asks for them: what the model checks are the
//! answers.

use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::Command;
use coordinator::group::{CommittedPart, GroupCommand, OffsetCommit};
use coordinator::reply::Reply;

use super::{Socket, Turn};
use crate::sim::event::RequestId;
use crate::sim::node::TOPIC;

/// Between two requests at most, microseconds.
const PAUSE_US: u64 = 1_500_000;
/// Without an answer for so long it tries another connection.
const TIMEOUT_US: u64 = 10_000_000;

/// See the module.
pub struct Committer {
    group: Arc<str>,
    next: i64,
    socket: Option<Socket>,
    asked: Option<RequestId>,
    turn: u64,
}

impl Committer {
    /// Commits for this group.
    #[must_use]
    pub fn new(group: Arc<str>) -> Self {
        Self { group, next: 1, socket: None, asked: None, turn: 0 }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        turn.wake(PAUSE_US, self.turn);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        if token != self.turn || turn.peace {
            return;
        }
        if self.asked.take().is_some()
            && let Some(socket) = self.socket.take()
        {
            turn.close(socket);
        }
        let command = if turn.random.percent(70) {
            self.next += 1;
            GroupCommand::Commit(OffsetCommit {
                group: Arc::clone(&self.group),
                member: Arc::from(""),
                generation: -1,
                instance: None,
                tells_missing_group: false,
                retention_ms: None,
                offsets: vec![CommittedPart {
                    topic: Arc::from(TOPIC),
                    partition: 0,
                    // Within what every log of a run comes to hold; the number is told by the metadata.
                    offset: 0,
                    leader_epoch: -1,
                    metadata: Arc::from(self.next.to_string()),
                }],
            })
        } else {
            GroupCommand::FetchOffsets {
                group: Arc::clone(&self.group),
                member: None,
                partitions: Some(vec![(Arc::from(TOPIC), 0)]),
            }
        };
        self.asked = Some(turn.send(&mut self.socket, Command::Group(command)));
        self.turn += 1;
        turn.wake_in(TIMEOUT_US, self.turn);
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, _reply: &Reply<Data>) {
        if self.asked == Some(request) {
            self.asked = None;
            self.turn += 1;
            turn.wake(PAUSE_US, self.turn);
        }
    }

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket == Some(socket) {
            self.socket = None;
            self.asked = None;
            self.turn += 1;
            turn.wake(PAUSE_US, self.turn);
        }
    }
}
