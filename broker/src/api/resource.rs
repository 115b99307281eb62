//! Kinds of things that have settings (`ConfigResource.Type`).

use super::refusal::Refusal;
use crate::context::RequestContext;

/// A kind of thing with settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResourceType {
    /// A topic, by name.
    Topic,
    /// A broker, by number; the empty name stands for all brokers.
    Broker,
    /// A broker's loggers, by number.
    BrokerLogger,
    /// A subscription to metrics of clients (KIP-714).
    ClientMetrics,
    /// A group, by id.
    Group,
}

impl ResourceType {
    /// All kinds, in the order of their numbers.
    pub(super) const ALL: [Self; 5] =
        [Self::Topic, Self::Broker, Self::BrokerLogger, Self::ClientMetrics, Self::Group];

    /// The kind with this number on the wire.
    pub(super) fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The number on the wire.
    pub(super) const fn code(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }
}

/// What a broker's name stands for.
pub(super) enum BrokerName {
    /// This broker.
    This,
    /// All brokers.
    All,
}

/// Reads a broker's name.
///
/// # Errors
/// INVALID_REQUEST where it is another broker's, or no number.
pub(super) fn broker(cx: &RequestContext, name: &str) -> Result<BrokerName, Refusal> {
    let this = cx.broker.node_id;
    match name.parse::<i32>() {
        _ if name.is_empty() => Ok(BrokerName::All),
        Ok(id) if id == this => Ok(BrokerName::This),
        Ok(id) => Err(Refusal::invalid(format!("there is no broker {id}: name {this}"))),
        Err(_) => {
            Err(Refusal::invalid(format!("{} is not a broker's number: name {this}", name.escape_debug())))
        }
    }
}

/// The refusal of kinds that this broker has none of.
pub(super) fn not_served(kind: ResourceType) -> Refusal {
    Refusal::invalid(match kind {
        ResourceType::BrokerLogger => {
            "loggers cannot be described or changed here: set SLUICE_LOG at the start"
        }
        ResourceType::ClientMetrics => "metrics of clients are not served here: read them at the clients",
        ResourceType::Topic | ResourceType::Broker | ResourceType::Group => "this resource is not served",
    })
}
