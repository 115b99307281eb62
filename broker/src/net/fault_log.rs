//! Log lines about faulty connections.

use std::fmt;
use std::net::SocketAddr;

use coordinator::time::Mono;

use crate::line_limit::{LineLimit, Verdict};

/// One second in the clock's microseconds.
const SECOND: u64 = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    limit: LineLimit,
}

impl FaultLog {
    /// Tells that a connection is closed for a fault of its client.
    pub(super) fn tell(&self, now: Mono, peer: SocketAddr, fault: &dyn fmt::Display) {
        let Verdict { told, silent_before } = self.limit.judge(now.0 / SECOND);
        if silent_before > 0 {
            tracing::warn!("{silent_before} more connections were closed for faults of their clients");
        }
        if told {
            tracing::warn!(%peer, "closing connection: {fault}");
        }
    }
}
