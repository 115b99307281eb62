//! The clients of the simulation: small state machines that only see what a client sees.

mod committer;
mod member;
mod operator;
mod producer;
mod reader;
mod standalone;
mod transactor;

use broker::executor::Data;
use coordinator::command::{Command, ConnectionId};
use coordinator::reply::Reply;
use coordinator::time::{Micros, Now};

use super::event::{Event, RequestId};
use super::random::Random;

pub use committer::Committer;
pub use member::Member;
pub use operator::Operator;
pub use producer::Producer;
pub use reader::Reader;
pub use standalone::Standalone;
pub use transactor::Transactor;

/// What a client may do in its turn.
pub struct Turn<'a> {
    /// The clocks.
    pub now: Now,
    /// Which client it is.
    pub client: usize,
    /// Nothing goes wrong any more: work is to be finished.
    pub peace: bool,
    /// Chance.
    pub random: &'a mut Random,
    /// What it wants done, in order.
    pub wishes: &'a mut Vec<Wish>,
    /// The last request and connection that were named.
    pub names: &'a mut Names,
}

/// Numbers that are never used twice.
#[derive(Debug, Default)]
pub struct Names {
    request_last: u64,
    connection_last: u64,
    /// Of records: what makes each one known again.
    pub record_last: u64,
}

/// A connection as its client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub u64);

/// What a client wants done.
#[derive(Debug)]
pub enum Wish {
    /// A connection under this name.
    Connect(Socket),
    /// Send a request. Where it holds a connection's id, the id is filled in.
    Send(Socket, RequestId, Box<Command>),
    /// Close a connection.
    Close(Socket),
    /// Wake me; earlier wakes with other tokens come nevertheless.
    Wake(Micros, u64),
    /// The application of a member begins to work on a record, or is done with it.
    Works(Work),
    /// Something worth a line.
    Note(String),
}

/// What an application does with a record.
#[derive(Clone, Debug)]
pub struct Work {
    /// Group.
    pub group: std::sync::Arc<str>,
    /// Member; of a reader without membership its connection says who it is.
    pub member: std::sync::Arc<str>,
    /// That connection.
    pub reader: Option<Socket>,
    /// Partition and offset.
    pub record: (i32, i64),
    /// It begins, or it is over.
    pub begins: bool,
}

impl Turn<'_> {
    fn connect(&mut self) -> Socket {
        self.names.connection_last += 1;
        let socket = Socket(self.names.connection_last);
        self.wishes.push(Wish::Connect(socket));
        socket
    }

    /// Sends a request, on a new connection where there is none; its answer bears the id that is returned.
    pub fn send(&mut self, socket: &mut Option<Socket>, command: Command) -> RequestId {
        let socket = *socket.get_or_insert_with(|| self.connect());
        self.names.request_last += 1;
        let request = self.names.request_last;
        self.wishes.push(Wish::Send(socket, request, Box::new(command)));
        request
    }

    /// Closes a connection.
    pub fn close(&mut self, socket: Socket) {
        self.wishes.push(Wish::Close(socket));
    }

    /// A new record, under one of `keys` keys or, so often, under none.
    fn record(&mut self, keys: u64, keyless_percent: u64) -> producer::KeyAndNumber {
        self.names.record_last += 1;
        let keyless = self.random.percent(keyless_percent);
        ((!keyless).then(|| self.random.below(keys)), self.names.record_last)
    }

    /// Asks to be woken, between half the wait and the wait.
    pub fn wake(&mut self, wait_us: u64, token: u64) {
        let wait = self.random.between(wait_us / 2, wait_us);
        self.wishes.push(Wish::Wake(Micros(wait), token));
    }

    /// Asks to be woken exactly then.
    pub fn wake_in(&mut self, wait_us: u64, token: u64) {
        self.wishes.push(Wish::Wake(Micros(wait_us), token));
    }
}

/// A client of any kind.
pub enum Client {
    /// Writes records.
    Producer(Producer),
    /// Writes records in transactions.
    Transactor(Transactor),
    /// Of a share group.
    Member(Member),
    /// Reads ranges of keys under a group id, without membership.
    Standalone(Standalone),
    /// A plain consumer without a group.
    Reader(Reader),
    /// Commits offsets of a group without members.
    Committer(Committer),
    /// Does things to keys by hand.
    Operator(Operator),
}

/// The connection's id where a client does not know it yet.
pub const UNKNOWN: ConnectionId = ConnectionId(0);

impl Client {
    /// It begins.
    pub fn begin(&mut self, turn: &mut Turn<'_>) {
        match self {
            Self::Producer(client) => client.begin(turn),
            Self::Transactor(client) => client.begin(turn),
            Self::Member(client) => client.begin(turn),
            Self::Standalone(client) => client.begin(turn),
            Self::Reader(client) => client.begin(turn),
            Self::Committer(client) => client.begin(turn),
            Self::Operator(client) => client.begin(turn),
        }
    }

    /// It asked to be woken.
    pub fn wakes(&mut self, turn: &mut Turn<'_>, token: u64) {
        match self {
            Self::Producer(client) => client.wakes(turn, token),
            Self::Transactor(client) => client.wakes(turn, token),
            Self::Member(client) => client.wakes(turn, token),
            Self::Standalone(client) => client.wakes(turn, token),
            Self::Reader(client) => client.wakes(turn, token),
            Self::Committer(client) => client.wakes(turn, token),
            Self::Operator(client) => client.wakes(turn, token),
        }
    }

    /// An answer is here.
    pub fn receives(&mut self, turn: &mut Turn<'_>, request: RequestId, reply: Reply<Data>) {
        match self {
            Self::Producer(client) => client.receives(turn, request, reply),
            Self::Transactor(client) => client.receives(turn, request, reply),
            Self::Member(client) => client.receives(turn, request, reply),
            Self::Standalone(client) => client.receives(turn, request, reply),
            Self::Reader(client) => client.receives(turn, request, reply),
            Self::Committer(client) => client.receives(turn, request, &reply),
            Self::Operator(client) => client.receives(turn, request, &reply),
        }
    }

    /// A connection is gone, with what was under way on it.
    pub fn loses(&mut self, turn: &mut Turn<'_>, socket: Socket) {
        match self {
            Self::Producer(client) => client.loses(turn, socket),
            Self::Transactor(client) => client.loses(turn, socket),
            Self::Member(client) => client.loses(turn, socket),
            Self::Standalone(client) => client.loses(turn, socket),
            Self::Reader(client) => client.loses(turn, socket),
            Self::Committer(client) => client.loses(turn, socket),
            Self::Operator(client) => client.loses(turn, socket),
        }
    }

    /// Whether it has nothing left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Producer(client) => client.is_done(),
            Self::Transactor(client) => client.is_done(),
            Self::Member(_)
            | Self::Standalone(_)
            | Self::Reader(_)
            | Self::Committer(_)
            | Self::Operator(_) => true,
        }
    }
}

/// Fills in the connection where a command holds one.
pub fn address(command: &mut Command, connection: ConnectionId) {
    match command {
        Command::Fetch(fetch) => fetch.connection = connection,
        Command::ShareFetch(fetch) => fetch.connection = connection,
        Command::ShareAcknowledge(acks) | Command::StandaloneAcknowledge(acks) => {
            acks.connection = connection;
        }
        Command::StandaloneFetch(request) => request.fetch.connection = connection,
        Command::StandaloneCommit(commit) => commit.connection = connection,
        _ => {}
    }
}

/// An event for a client's wake.
#[must_use]
pub fn wake_event(client: usize, token: u64) -> Event {
    Event::Wakes { client, token }
}
