//! Every bound of this crate, by name, with the inequalities between them.

use crate::group::GroupLimits;
use crate::share::ShareLimits;
use crate::time::Micros;

/// Waits and sizes that hold for the whole shard.
#[derive(Clone, Debug)]
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
    /// Of the group coordinator.
    pub groups: GroupLimits,
    /// Of share groups.
    pub share: ShareLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            parked_fetches_max: PARKED_FETCHES_MAX,
            parked_parts_max: PARKED_PARTS_MAX,
            group_sync_after: GROUP_SYNC_AFTER,
            group_reload_after: GROUP_RELOAD_AFTER,
            group_batch_bytes_max: GROUP_BATCH_BYTES_MAX,
            groups: GroupLimits::default(),
            share: ShareLimits::default(),
        }
    }
}

/// Name of the internal topic that holds groups and their committed offsets (`Topic.GROUP_METADATA_TOPIC_NAME`).
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

const PARKED_FETCHES_MAX: usize = 16_384;
const PARKED_PARTS_MAX: usize = 262_144;
const GROUP_SYNC_AFTER: Micros = Micros(100_000);
const GROUP_RELOAD_AFTER: Micros = Micros(1_000_000);
const GROUP_BATCH_BYTES_MAX: usize = 512 << 10;
/// Kafka's `message.max.bytes`: what a log takes as one batch when nothing else is configured.
const MESSAGE_BYTES_MAX: usize = 1_048_588;

const _: () = {
    assert!(PARKED_FETCHES_MAX <= PARKED_PARTS_MAX, "each parked fetch may name one partition");
    assert!(GROUP_BATCH_BYTES_MAX <= MESSAGE_BYTES_MAX / 2, "two decisions of half a batch fit the log");
    assert!(GROUP_SYNC_AFTER.0 <= 100_000, "a commit is on the disk 100 ms after its answer");
    assert!(
        GROUP_SYNC_AFTER.0 < GROUP_RELOAD_AFTER.0,
        "a failing disk is asked less often than a working one"
    );
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{KEY_FOUND_MAX, PAGE_BYTES_MAX};
    use crate::share::settled::BITMAP_BYTES;
    use crate::share::window::SLOT_BYTES;

    /// What the machines bring along must fit together, too.
    #[test]
    fn the_machines_limits_fit_together() {
        let Limits { groups, share, .. } = Limits::default();
        assert!(groups.session_timeout_ms_min <= groups.session_timeout_ms_max);
        assert!(groups.offsets_retention_check_ms <= groups.offsets_retention_ms);
        assert!(groups.offset_metadata_max < GROUP_BATCH_BYTES_MAX, "a commit fits a batch");
        let config = &share.config;
        assert!(share.scan_bytes_max <= config.window_bytes_max, "a scan fits the window");
        assert!(
            config.hold_target_ms <= config.lock_ms / 2,
            "what a member holds is done before its lock runs out"
        );
        let window = &share.window;
        let bytes = config.window_bytes_max;
        assert!(window.key_queued_max.is_sorted_by(|a, b| a > b), "a fuller window keeps less of each key");
        assert!(window.key_queued_max.iter().all(|&max| (1..=KEY_FOUND_MAX).contains(&max)));
        assert!(window.spill_from_parts > 2, "keys are cut before the window is half full");
        let least = u64::from(window.key_queued_max[2]) * SLOT_BYTES;
        assert!(4_000 * least < bytes / 2, "as many keys as may be leased fit the window");
        assert!(window.page_keys_max * 20 < PAGE_BYTES_MAX, "a page holds what it is meant to");
        assert!(window.page_keys_max < window.waits_max / 2, "a page leaves memory full");
        assert!(window.chunk_inline_bytes_max < BITMAP_BYTES);
        assert!(share.records_max >= i32::try_from(config.record_locks_max).unwrap());
        assert!(config.sync_ms <= 100, "an acknowledgement is on the disk 100 ms after its answer");
        assert!(i64::from(config.heartbeat_interval_ms) < i64::from(config.session_timeout_ms));
    }
}
