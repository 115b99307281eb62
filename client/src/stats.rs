//! What a consumer has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one consumer; they only rise.
#[derive(Debug, Default)]
pub struct Stats {
    pub(crate) received: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) withheld: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) sessions: AtomicU64,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl Stats {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(&self) -> u64 {
                self.$name.load(Ordering::Relaxed)
            })*
        }
    };
}

getters! {
    /// Records delivered to this consumer, redeliveries included.
    received;
    /// Records whose delivery count was above 1.
    redelivered;
    /// Records accepted, as the broker confirmed.
    accepted;
    /// Records released, as the broker confirmed.
    released;
    /// Records rejected, as the broker confirmed.
    rejected;
    /// Records given up unworked because an earlier one of their key failed or was recalled.
    withheld;
    /// Records whose lease was lost while they were held: their work was stopped.
    leases_lost;
    /// Acknowledgements that the broker refused: the record will be, or was, delivered again.
    refused;
    /// Leases renewed.
    renewed;
    /// Sessions opened.
    sessions;
}

impl Stats {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
