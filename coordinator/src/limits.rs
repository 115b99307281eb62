//! Every bound of this crate, by name, with the inequalities between them.

use crate::time::Micros;

/// Waits and sizes that hold for the whole shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Fetches that may be parked at one time. A fetch that would be one more is answered at once.
    pub parked_fetches_max: usize,
    /// Partitions that parked fetches may name in all, since each costs memory until it is answered.
    pub parked_parts_max: usize,
    /// A record of a group coordinator is synced at the latest this long after it was written.
    pub group_sync_after: Micros,
    /// A coordinator partition that could not be loaded is tried again after this long.
    pub group_reload_after: Micros,
    /// Records of a coordinator partition are collected into one batch up to about this many bytes. The records of
    /// one decision always stay together.
    pub group_batch_bytes_max: usize,
}

impl Limits {
    /// What the broker runs with.
    pub const DEFAULT: Self = Self {
        parked_fetches_max: 16_384,
        parked_parts_max: 262_144,
        group_sync_after: Micros(100_000),
        group_reload_after: Micros(1_000_000),
        group_batch_bytes_max: 512 << 10,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Name of the internal topic that holds groups and their committed offsets (`Topic.GROUP_METADATA_TOPIC_NAME`).
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// Kafka's `message.max.bytes`: what a log takes as one batch when nothing else is configured.
const MESSAGE_BYTES_MAX: usize = 1_048_588;

const _: () = {
    let limits = Limits::DEFAULT;
    assert!(limits.parked_fetches_max <= limits.parked_parts_max, "each parked fetch may name one partition");
    assert!(
        limits.group_batch_bytes_max <= MESSAGE_BYTES_MAX / 2,
        "two decisions of half a batch fit the log"
    );
    assert!(limits.group_sync_after.0 <= 100_000, "a commit is on the disk 100 ms after its answer");
    assert!(
        limits.group_sync_after.0 < limits.group_reload_after.0,
        "a disk that fails is asked less often than one that works"
    );
};
