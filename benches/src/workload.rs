//! Deterministic batches to measure with.

use bytes::Bytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

/// The time of every batch here, in ms since 1970.
pub const NOW_MS: i64 = 1_764_000_000_000;

/// One batch of `count` records with keys `order-<n>` out of `keys` and values of `value_bytes`, half of them
/// incompressible.
#[must_use]
pub fn batch(codec: Codec, count: usize, keys: usize, value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut value = vec![b'v'; value_bytes];
    for index in 0..count {
        for byte in &mut value[..value_bytes / 2] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        let key = format!("order-{}", index % keys);
        builder.append(NOW_MS + index as i64, Some(key.as_bytes()), Some(&value), &[]);
    }
    builder.build(Offset::ZERO, -1)
}
