//! How long a released record waits before it is delivered again.

use super::ShareConfig;
use super::event::Wait;
use crate::time::{Micros, Now};

/// The longest wait that a client may ask for, milliseconds: a day.
pub(crate) const DELAY_MS_MAX: i64 = 24 * 60 * 60 * 1_000;

/// The wait after the `failed`-th delivery failed: the client's word, else the group's backoff, which doubles with
/// each failure up to its maximum.
pub(crate) fn wait_after(config: &ShareConfig, failed: u16, asked_ms: Option<i64>, now: Now) -> Option<Wait> {
    let full_ms = match asked_ms {
        Some(asked) => asked.clamp(0, DELAY_MS_MAX),
        None => {
            let doubled =
                config.backoff_ms.saturating_mul(1_i64 << u32::from(failed.saturating_sub(1)).min(40));
            doubled.min(config.backoff_max_ms.max(config.backoff_ms))
        }
    };
    (full_ms > 0).then(|| Wait { full_ms, until_wall_ms: now.wall_ms.saturating_add(full_ms) })
}

/// What is left of a wait; the wall clock may have stepped, so it is never less than nothing nor more than the
/// whole.
pub(crate) fn left(wait: Wait, now: Now) -> Micros {
    Micros::from_ms(wait.until_wall_ms.saturating_sub(now.wall_ms).clamp(0, wait.full_ms.max(0)))
}
