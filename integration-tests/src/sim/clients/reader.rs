//! A plain consumer without a group: reads a partition from its start to its end, again and again.

use broker::executor::Data;
use coordinator::command::{Command, Fetch, FetchPart, Isolation};
use coordinator::reply::{FetchError, Reply};
use records::ids::Offset;

use super::{Socket, Turn, UNKNOWN};
use crate::sim::content;
use crate::sim::event::RequestId;
use crate::sim::node::partition;

/// How long a fetch may be parked, milliseconds.
const WAIT_MS: i32 = 500;
/// Pause after an error, microseconds.
const RETRY_US: u64 = 300_000;

/// See the module.
pub struct Reader {
    index: i32,
    at: i64,
    socket: Option<Socket>,
    asked: Option<RequestId>,
    turn: u64,
}

impl Reader {
    /// Reads this partition.
    #[must_use]
    pub fn new(index: i32) -> Self {
        Self { index, at: 0, socket: None, asked: None, turn: 0 }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        turn.wake(RETRY_US, self.turn);
    }

    pub(super) fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        if token != self.turn || self.asked.is_some() || turn.peace {
            return;
        }
        let part = FetchPart {
            partition: partition(self.index),
            offset: Offset(self.at),
            bytes_max: turn.random.pick(&[1, 300, 1 << 20]),
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
        };
        let fetch = Fetch {
            connection: UNKNOWN,
            wait_max_ms: WAIT_MS,
            bytes_min: 1,
            bytes_max: 1 << 20,
            isolation: turn.random.pick(&[Isolation::ReadUncommitted, Isolation::ReadCommitted]),
            parts: vec![part],
        };
        self.asked = Some(turn.send(&mut self.socket, Command::Fetch(fetch)));
    }

    pub(super) fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        if self.asked != Some(request) {
            return;
        }
        self.asked = None;
        self.turn += 1;
        let Reply::Fetched(parts) = reply else { return };
        match parts.into_iter().next() {
            Some(Ok(part)) => {
                if let Some(next) = part.data.and_then(|data| content::next_offset(&data)) {
                    self.at = next;
                }
                let pause = turn.random.pick(&[10, 1_000, 2_000_000]);
                turn.wake(pause, self.turn);
            }
            Some(Err(FetchError::OutOfRange)) => {
                // The start has moved, or a power cut took the end.
                self.at = 0;
                turn.wake(RETRY_US, self.turn);
            }
            Some(Err(_)) | None => turn.wake(RETRY_US, self.turn),
        }
    }

    pub(super) fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        if self.socket == Some(socket) {
            self.socket = None;
            self.asked = None;
            self.turn += 1;
            turn.wake(RETRY_US, self.turn);
        }
    }
}
