//! The client's one reader of the real clock.

use std::time::Duration;

use tokio::time::Instant;

/// Now, on tokio's clock (which tests can pause).
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits for a length of time.
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
