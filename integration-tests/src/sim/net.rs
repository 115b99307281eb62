//! Connections: requests and answers take time, in order, and get lost with their connection.
//!
//! As the broker's own network side does it: a member is told of once a connection and with each opening of a
//! session; of every share fetch exactly one word on its answer reaches the shard, before that of the connection's
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::command::{Command, ConnectionId, Fact, Ticket};
use coordinator::group::GroupCommand;
use coordinator::time::Mono;

use super::event::RequestId;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// Whose it is.
    pub client: usize,
    /// The client has it open.
    pub client_open: bool,
    /// The broker has it open.
    pub broker_open: bool,
    /// Bytes sent from here on arrive nowhere.
    pub broken_at: Option<Mono>,
    /// When the last request arrives.
    pub arrives_until: Mono,
    /// When the last answer is written.
    pub writes_until: Mono,
    /// When the last answer is received.
    pub receives_until: Mono,
    /// The client reads nothing before.
    pub stalled_until: Mono,
    told: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Requests that are not answered whole: whether each is a share fetch.
    open: BTreeMap<Ticket, (RequestId, bool)>,
}

impl Connection {
    /// The request that is answered under this ticket.
    #[must_use]
    pub fn request_of(&self, ticket: Ticket) -> Option<RequestId> {
        self.open.get(&ticket).map(|open| open.0)
    }
}

/// All connections of a run.
#[derive(Debug, Default)]
pub struct Net {
    connections: BTreeMap<ConnectionId, Connection>,
    of_ticket: BTreeMap<Ticket, ConnectionId>,
    connection_last: u64,
    ticket_last: u64,
}

impl Net {
    /// A new connection of a client.
    pub fn connect(&mut self, client: usize) -> ConnectionId {
        self.connection_last += 1;
        let id = ConnectionId(self.connection_last);
        self.connections.insert(
            id,
            Connection {
                client,
                client_open: true,
                broker_open: true,
                broken_at: None,
                arrives_until: Mono::default(),
                writes_until: Mono::default(),
                receives_until: Mono::default(),
                stalled_until: Mono::default(),
                told: BTreeSet::new(),
                open: BTreeMap::new(),
            },
        );
        id
    }

    /// A connection, as long as either side has it open.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// Connections that both sides have open and that are not broken.
    #[must_use]
    pub fn alive(&self) -> Vec<ConnectionId> {
        let alive = |connection: &&ConnectionId| {
            let connection = &self.connections[*connection];
            connection.client_open && connection.broker_open && connection.broken_at.is_none()
        };
        self.connections.keys().filter(alive).copied().collect()
    }

    /// A request has arrived: its ticket, and what the shard is told before it.
    pub fn arrive(
        &mut self,
        id: ConnectionId,
        request: RequestId,
        command: &Command,
    ) -> Option<(Ticket, Option<Fact>)> {
        let connection = self.connections.get_mut(&id).filter(|connection| connection.broker_open)?;
        self.ticket_last += 1;
        let ticket = Ticket(self.ticket_last);
        connection.open.insert(
            ticket,
            (request, matches!(command, Command::ShareFetch(_) | Command::StandaloneFetch(_))),
        );
        self.of_ticket.insert(ticket, id);
        let speaker = match command {
            Command::ShareFetch(fetch) => Some((&fetch.group, &fetch.member, fetch.epoch == 0)),
            Command::ShareAcknowledge(acks) => Some((&acks.group, &acks.member, false)),
            Command::Group(GroupCommand::ShareHeartbeat(beat)) => {
                Some((&beat.group, &beat.member, beat.epoch == 0))
            }
            _ => None,
        };
        let fact = speaker.and_then(|(group, member, begins)| {
            let is_new = connection.told.insert((Arc::clone(group), Arc::clone(member)));
            (is_new || begins).then(|| Fact::MemberSeen {
                connection: id,
                group: Arc::clone(group),
                member: Arc::clone(member),
            })
        });
        Some((ticket, fact))
    }

    /// Whose answer this is, where the broker still has the connection.
    #[must_use]
    pub fn connection_of(&self, ticket: Ticket) -> Option<ConnectionId> {
        let id = *self.of_ticket.get(&ticket)?;
        self.connections.get(&id).filter(|connection| connection.broker_open)?;
        Some(id)
    }

    /// An answer is written whole: the request that it answers, and whether it is one of a share fetch.
    pub fn written(&mut self, id: ConnectionId, ticket: Ticket) -> Option<(RequestId, bool)> {
        self.of_ticket.remove(&ticket);
        self.connections.get_mut(&id).filter(|connection| connection.broker_open)?.open.remove(&ticket)
    }

    /// The broker gives a connection up: what the shard hears of it.
    pub fn broker_closes(&mut self, id: ConnectionId) -> Vec<Fact> {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.broker_open)
        else {
            return Vec::new();
        };
        connection.broker_open = false;
        let open = std::mem::take(&mut connection.open);
        let mut facts = Vec::new();
        for (ticket, (_, is_share_fetch)) in open {
            self.of_ticket.remove(&ticket);
            if is_share_fetch {
                facts.push(Fact::AnswerLost(ticket));
            }
        }
        facts.push(Fact::ConnectionClosed(id));
        self.forget(id);
        facts
    }

    /// The client gives it up: whose it was, if it had it open.
    pub fn client_closes(&mut self, id: ConnectionId) -> Option<usize> {
        let connection = self.connections.get_mut(&id).filter(|connection| connection.client_open)?;
        connection.client_open = false;
        let client = connection.client;
        self.forget(id);
        Some(client)
    }

    /// The broker is gone, and all it knew.
    pub fn broker_dies(&mut self) -> Vec<ConnectionId> {
        self.of_ticket.clear();
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in &ids {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.broker_open = false;
                connection.open.clear();
            }
            self.forget(*id);
        }
        ids
    }

    fn forget(&mut self, id: ConnectionId) {
        if self
            .connections
            .get(&id)
            .is_some_and(|connection| !connection.client_open && !connection.broker_open)
        {
            self.connections.remove(&id);
        }
    }
}
