//! Groups on one partition of `__consumer_offsets`: classic membership, committed offsets, share membership.
//!
//! [`GroupPartition`] owns all groups whose id hashes to one partition. It decides a command at once, in memory, and
//! hands back the records that make the decision durable, in Kafka's own format and schema versions; the caller
//! appends them and holds the replies until that is done. If the append fails, the caller drops the partition
//! ([`GroupPartition::abandon`] answers what is parked) and replays a new one from the log.
//!
//! Durable (committed offsets, group metadata, share membership) is what replay brings back. Derived is what a
//! restart loses, as in Kafka: joins and syncs that wait, members whose id was handed out but not used, timers.
//!
//! Invariants: of a generation there is one leader; a generation grows with every completed rebalance; every parked
//! join and sync is answered; no record is written for a command that is refused.

mod classic;
mod command;
mod context;
mod limits;
mod offsets;
mod partition;
mod reply;
mod share;
mod stored;
mod timers;

#[cfg(test)]
mod tests;

pub use command::{CommittedPart, GroupCommand, JoinGroup, OffsetCommit, ShareHeartbeat, SyncGroup};
pub use context::{GroupContext, GroupDecision, ShareChange, ShareMembership};
pub use limits::GroupLimits;
pub use partition::GroupPartition;
pub use reply::{
    DescribedGroup, DescribedMember, DescribedShareGroup, DescribedShareMember, GroupError, GroupReply,
    JoinError, Joined, ListedGroup, ShareHeartbeatReply, Synced,
};
