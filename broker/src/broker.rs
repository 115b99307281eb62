//! What all connections of a running broker share.

use std::sync::Arc;

use crate::admission::Admission;
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::config::{Config, HostPort};
use crate::executor::{KeyedPartitions, ShardHandle};
use crate::fetch_session::FetchSessions;

/// A running broker, from the view of a request. Nothing here is replaced while it runs.
#[derive(Debug)]
pub struct Broker {
    /// The settings.
    pub config: Arc<Config>,
    /// Topics and group configurations.
    pub catalog: Catalog,
    /// The way to the shard.
    pub shard: ShardHandle,
    /// Incremental fetch sessions (KIP-227).
    pub fetch_sessions: FetchSessions,
    /// Memory for requests.
    pub admission: Admission,
    /// Memory for batches that are packed anew: an amount of its own, since who waits for it holds some of the other.
    pub packing: Admission,
    /// Whose keys are indexed.
    pub keyed: KeyedPartitions,
    /// The clocks.
    pub clock: Clock,
    /// 22 characters of URL-safe base64; kept over restarts.
    pub cluster_id: Arc<str>,
    /// This node's number.
    pub node_id: i32,
    /// Where clients are told to connect, port resolved.
    pub advertised: HostPort,
    /// The leader epoch of all partitions in this run (DESIGN §7: one for the whole broker).
    pub leader_epoch: i32,
}
