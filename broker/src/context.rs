//! What a handler knows of the request it serves, and its way to the shard.

use std::borrow::Cow;
use std::sync::Arc;

use coordinator::command::{Command, ConnectionId, Fact, Ticket};
use parking_lot::Mutex;

use crate::broker::Broker;
use crate::executor::{Reply, ShardHandle, Stopped};
use crate::members_seen::MembersSeen;

/// The only answer to this request is the end of its connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CloseConnection(pub Cow<'static, str>);

impl CloseConnection {
    /// With a reason for the log.
    pub fn because(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(reason.into())
    }
}

impl From<Stopped> for CloseConnection {
    fn from(_: Stopped) -> Self {
        Self::because("the broker stops")
    }
}

/// One request's surroundings.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The broker.
    pub broker: Arc<Broker>,
    /// The connection it came on.
    pub connection: ConnectionId,
    /// What the client calls itself; empty where it does not say.
    pub client_id: Arc<str>,
    /// The peer's address in Kafka's form, `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// The version of the request.
    pub api_version: i16,
    /// For which members of share groups this connection speaks.
    pub members_seen: Arc<MembersSeen>,
    pub(crate) parking: Arc<Parking>,
}

impl RequestContext {
    /// Has the shard serve a command and waits for the reply. While it waits, an acknowledgement that arrives behind
    /// this request on its connection makes it give way; the answer of a share fetch is watched until it was written.
    ///
    /// # Errors
    /// Where the broker stops.
    pub async fn call(&self, command: Command) -> Result<Reply, CloseConnection> {
        let watched = matches!(command, Command::ShareFetch(_) | Command::StandaloneFetch(_));
        let pending = self.broker.shard.submit(command).await?;
        if watched {
            self.parking.watch(AnswerWatch::new(self.broker.shard.clone(), pending.ticket()));
        }
        self.parking.park(pending.ticket(), &self.broker.shard);
        let reply = pending.reply().await;
        self.parking.unpark();
        Ok(reply?)
    }
}

/// The ticket on which a connection's request waits now, for those who want to wake or watch it.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    state: Mutex<Parked>,
}

#[derive(Debug, Default)]
struct Parked {
    ticket: Option<Ticket>,
    give_way: bool,
    watch: Option<AnswerWatch>,
}

impl Parking {
    fn park(&self, ticket: Ticket, shard: &ShardHandle) {
        let mut state = self.state.lock();
        state.ticket = Some(ticket);
        if state.give_way {
            shard.fact(Fact::GiveWay(ticket));
        }
    }

    fn unpark(&self) {
        self.state.lock().ticket = None;
    }

    fn watch(&self, watch: AnswerWatch) {
        self.state.lock().watch = Some(watch);
    }

    /// The request that waits, or will wait, is to be answered at once.
    pub(crate) fn give_way(&self, shard: &ShardHandle) {
        let mut state = self.state.lock();
        state.give_way = true;
        if let Some(ticket) = state.ticket {
            shard.fact(Fact::GiveWay(ticket));
        }
    }

    /// The watch over the answer that is about to be written, if it is one of a share fetch.
    pub(crate) fn take_watch(&self) -> Option<AnswerWatch> {
        self.state.lock().watch.take()
    }
}

/// Tells the shard whether the answer to a share fetch went out whole: a lock starts then, or its grant returns.
/// Whatever becomes of the request, exactly one of the two is told.
#[derive(Debug)]
pub(crate) struct AnswerWatch {
    shard: ShardHandle,
    ticket: Ticket,
    written: bool,
}

impl AnswerWatch {
    fn new(shard: ShardHandle, ticket: Ticket) -> Self {
        Self { shard, ticket, written: false }
    }

    pub(crate) fn written(mut self) {
        self.written = true;
    }
}

impl Drop for AnswerWatch {
    fn drop(&mut self) {
        self.shard.fact(match self.written {
            true => Fact::AnswerWritten(self.ticket),
            false => Fact::AnswerLost(self.ticket),
        });
    }
}
