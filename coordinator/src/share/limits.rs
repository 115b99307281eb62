//! The broker-wide bounds of share groups.

use std::sync::Arc;

use super::ShareConfig;

/// What share groups may take of the broker.
#[derive(Clone, Debug)]
pub struct ShareLimits {
    /// Open share sessions (`group.share.max.share.sessions`).
    pub sessions_max: usize,
    /// Stored bytes that one scan reads, about.
    pub scan_bytes_max: u64,
    /// Event bytes behind a snapshot before the next one is written.
    pub snapshot_after_bytes: u64,
    /// What a fetch may take if it says nothing less.
    pub records_max: i32,
    /// Settings of a group that none were told for.
    pub config: Arc<ShareConfig>,
}

impl Default for ShareLimits {
    fn default() -> Self {
        Self {
            sessions_max: 2_000,
            scan_bytes_max: 1 << 20,
            snapshot_after_bytes: 1 << 20,
            records_max: 4_000,
            config: Arc::new(ShareConfig::default()),
        }
    }
}
