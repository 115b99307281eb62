//! How far a connection's answers have got: what its reader waits for before it starts certain requests.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts of one connection. Reader and writer are one task, so that a wake-up is never lost between them.
#[derive(Debug, Default)]
pub(super) struct Progress {
    queued: AtomicU64,
    written: AtomicU64,
    bytes_queued: AtomicU64,
    moved: Notify,
}

impl Progress {
    /// An answer of so many bytes (0 where they are not known yet) was queued.
    pub(super) fn queue(&self, bytes: u64) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.bytes_queued.fetch_add(bytes, Ordering::Relaxed);
    }

    /// That answer is done with.
    pub(super) fn written(&self, bytes: u64) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.bytes_queued.fetch_sub(bytes, Ordering::Relaxed);
        self.moved.notify_one();
    }

    /// Whether answers are queued that are not written.
    pub(super) fn owes(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != self.written.load(Ordering::Relaxed)
    }

    /// Waits until every queued answer is written.
    pub(super) async fn all_written(&self) {
        while self.owes() {
            self.moved.notified().await;
        }
    }

    /// Waits until at most so many bytes of answers are queued.
    pub(super) async fn bytes_at_most(&self, bytes: u64) {
        while self.bytes_queued.load(Ordering::Relaxed) > bytes {
            self.moved.notified().await;
        }
    }
}
