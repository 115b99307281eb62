//! What can happen in the virtual world.

use broker::executor::Data;
use coordinator::command::{Command, ConnectionId, Ticket};
use coordinator::io::{Completion, Submission};
use coordinator::reply::Reply;

/// Names a request of a client until its answer.
pub type RequestId = u64;

/// One thing that happens. `life` is that of the broker for which it was meant: after a restart it is void.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are named by what each variant says")]
pub enum Event {
    /// The shard's thread has its turn.
    Round { life: u64 },
    /// The disk serves a submission.
    Serve { life: u64, submission: Box<Submission> },
    /// The disk serves a submission that it said to have served.
    ServeLate { life: u64, submission: Box<Submission> },
    /// A submission's end reaches the shard.
    Completed { life: u64, completion: Box<Completion<Data>> },
    /// A sync of a partition ends; it is named by a number.
    SyncEnds { life: u64, job: u64 },
    /// A request reaches the broker.
    Arrives { connection: ConnectionId, request: RequestId, command: Box<Command> },
    /// An answer is written to its socket, whole.
    Written { connection: ConnectionId, ticket: Ticket },
    /// An answer reaches the client.
    Receives { connection: ConnectionId, request: RequestId, reply: Box<Reply<Data>> },
    /// A connection breaks.
    Breaks { connection: ConnectionId },
    /// The broker learns that a connection is gone.
    BrokerNotices { connection: ConnectionId },
    /// The client learns it.
    ClientNotices { connection: ConnectionId },
    /// A client wanted to be woken; older tokens are void.
    Wakes { client: usize, token: u64 },
    /// Something goes wrong, or a member comes or goes.
    Happening,
    /// The broker stops in order: it takes no more requests, and ends when it has nothing to do.
    Stop { life: u64 },
    /// The broker starts.
    Start,
    /// The topic of dead letters is made, or may be written to.
    Letters { enabled: bool },
    /// It is looked whether anything waits needlessly.
    Watch,
    /// The disk has room again.
    DiskHasRoom,
    /// From now on nothing goes wrong any more.
    Peace,
    /// Is everything done?
    Look,
}
