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
    /// Log bytes scanned behind a snapshot before the next one is written, however few events came of them: about as much
    /// is read again after a crash.
    pub snapshot_after_scan_bytes: u64,
    /// What a fetch may take if it says nothing less.
    pub records_max: i32,
    /// Settings of a group that none were told for.
    pub config: Arc<ShareConfig>,
    /// What a share-partition keeps in memory.
    pub window: Arc<WindowLimits>,
}

/// How a share-partition stays within `sluice.share.window.bytes`.
#[derive(Clone, Debug)]
pub struct WindowLimits {
    /// Queues of keys are cut when the window takes this part of its bound (4 is a quarter); before that, what is there
    /// is kept, since it need not be looked up again.
    pub spill_from_parts: u64,
    /// Log bytes that the records in the window take, about, above which it reads on only for someone who gets nothing
    /// otherwise. Half of what the batch cache holds, so that what was scanned is not read again to be delivered.
    pub read_far_bytes: u64,
    /// Records that stay in the queue of a key that is cut, and that one look-up brings: of a window that is nearly
    /// empty (there only what one look-up brings), of one that is up to half full, and of a fuller one.
    pub key_queued_max: [u32; 3],
    /// Look-ups of one share-partition that may be under way.
    pub look_ups_max: usize,
    /// Waiting records in memory above which the longest waits go to pages, half of them.
    pub waits_max: usize,
    /// Keys in a page.
    pub page_keys_max: usize,
    /// A page is read back this long before the first of its waits ends, milliseconds.
    pub page_lead_ms: i64,
    /// Stored bytes of a chunk of settled offsets that stands in the snapshot itself.
    pub chunk_inline_bytes_max: usize,
    /// Keys marked in memory above which a list of them is written.
    pub marks_max: usize,
}

impl WindowLimits {
    /// Nothing is cut and nothing leaves memory: for what is small anyway.
    pub(crate) fn none() -> Self {
        let some = Self::default();
        Self { spill_from_parts: 0, waits_max: usize::MAX, chunk_inline_bytes_max: usize::MAX, ..some }
    }
}

impl Default for WindowLimits {
    /// Asserted to fit together in [`crate::limits`].
    fn default() -> Self {
        Self {
            spill_from_parts: 4,
            read_far_bytes: 8 << 20,
            key_queued_max: [512, 128, 16],
            look_ups_max: 4,
            waits_max: 16 * 1_024,
            page_keys_max: 3_000,
            page_lead_ms: 500,
            chunk_inline_bytes_max: 512,
            marks_max: 8_000,
        }
    }
}

impl Default for ShareLimits {
    fn default() -> Self {
        Self {
            sessions_max: 2_000,
            scan_bytes_max: 1 << 20,
            snapshot_after_bytes: 1 << 20,
            snapshot_after_scan_bytes: 128 << 20,
            records_max: 4_000,
            config: Arc::new(ShareConfig::default()),
            window: Arc::new(WindowLimits::default()),
        }
    }
}
