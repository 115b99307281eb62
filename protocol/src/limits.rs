//! How much memory the decoded form of a request may take.

use crate::api::ApiKey;

/// Heap bytes per frame byte that ordinary bodies may decode to, beyond [`SLACK_BYTES`].
const BYTES_PER_FRAME_BYTE: usize = 8;

/// Heap bytes that any body may decode to: many short elements in a small frame are no attack.
const SLACK_BYTES: usize = 1024 * 1024;

/// Heap bytes per frame byte that no body can exceed, so that a small frame reserves little: an empty tagged
/// field takes 2 bytes on the wire and 40 in memory, an empty string 1 and 32, twice that in a grown array.
const BYTES_PER_FRAME_BYTE_WORST: usize = 128;

/// Heap bytes that the decoded form of a request may take beyond the frame itself. Decoding refuses a body
/// that would take more, so this is what to reserve before a frame of `frame_bytes` is read.
#[must_use]
pub const fn decoded_bytes_max(key: ApiKey, frame_bytes: usize) -> usize {
    let per_byte = match key {
        // Record bytes make up the frame and are not copied: what is left is a few dozen bytes a partition.
        ApiKey::Produce => 1,
        _ => BYTES_PER_FRAME_BYTE,
    };
    let bounded = frame_bytes.saturating_mul(per_byte).saturating_add(SLACK_BYTES);
    let worst = frame_bytes.saturating_mul(BYTES_PER_FRAME_BYTE_WORST);
    if worst < bounded { worst } else { bounded }
}
