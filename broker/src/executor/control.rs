//! What the catalogue and the broker's end ask of the executor's thread.

use std::sync::Arc;

use coordinator::command::PartitionRole;
use coordinator::share::ShareGroupView;
use records::ids::PartitionId;
use storage::{LogConfig, Overview};
use tokio::sync::oneshot;

/// A partition to open.
#[derive(Clone, Debug)]
pub struct OpenPartition {
    /// Which.
    pub id: PartitionId,
    /// Its topic's name, which its directory bears.
    pub topic: String,
    /// What it is for.
    pub role: PartitionRole,
    /// Its settings.
    pub config: LogConfig,
}

/// The disk refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Where every share group stands, by name.
pub(super) type ShareGroups = Vec<(Arc<str>, ShareGroupView)>;

/// Something to do between two rounds.
#[derive(Debug)]
pub(crate) enum Control {
    /// Open partitions and tell the shard.
    Open(Vec<OpenPartition>, oneshot::Sender<Result<(), Refused>>),
    /// Tell the shard that partitions are gone, and remove them.
    Delete(Vec<PartitionId>, oneshot::Sender<Result<(), Refused>>),
    /// Change the settings of partitions.
    Configure(Vec<PartitionId>, LogConfig, oneshot::Sender<Result<(), Refused>>),
    /// Tell how many bytes each log has.
    Sizes(oneshot::Sender<Vec<(PartitionId, u64)>>),
    /// Tell of all logs, and of so many one by one.
    Logs(usize, oneshot::Sender<Overview>),
    /// Tell where every share group stands.
    ShareGroups(oneshot::Sender<ShareGroups>),
    /// Close the logs and end the thread.
    Stop(oneshot::Sender<Result<(), Refused>>),
}
