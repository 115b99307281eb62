//! How much memory the decoded form of a request may take.

use crate::api::ApiKey;

/// Heap bytes that any body may decode to: many short elements in a small frame are no attack.
const SLACK_BYTES: usize = 1024 * 1024;

/// Heap bytes per frame byte that no body exceeds, so that a small frame reserves little. An empty string takes
/// one byte on the wire and 32 in memory, twice that in an array that has just grown, three times while it
/// grows; a lone one in an array of its own takes four places for two bytes.
const BYTES_PER_FRAME_BYTE_WORST: usize = 128;

/// Heap bytes that the decoded form of a request may take beyond the frame itself. Decoding refuses a body
/// that would take more, so this is what to reserve, beside the frame, before `frame_bytes` are read.
#[must_use]
pub const fn decoded_bytes_max(key: ApiKey, frame_bytes: usize) -> usize {
    let bounded = frame_bytes.saturating_mul(bytes_per_frame_byte(key)).saturating_add(SLACK_BYTES);
    let worst = frame_bytes.saturating_mul(BYTES_PER_FRAME_BYTE_WORST);
    if worst < bounded { worst } else { bounded }
}

/// Heap bytes per frame byte beyond the slack, from what real requests of many elements take.
const fn bytes_per_frame_byte(key: ApiKey) -> usize {
    match key {
        // Record bytes make up the frame and are not copied: what is left is a few dozen bytes a partition.
        ApiKey::Produce => 1,
        // So do the members' own bytes.
        ApiKey::JoinGroup | ApiKey::SyncGroup => 4,
        // One partition or config a topic: each has an array of its own, with room for four.
        ApiKey::ListOffsets
        | ApiKey::OffsetCommit
        | ApiKey::CreateTopics
        | ApiKey::DeleteRecords
        | ApiKey::CreatePartitions
        | ApiKey::IncrementalAlterConfigs
        | ApiKey::DescribeConfigs => 16,
        _ => 8,
    }
}
