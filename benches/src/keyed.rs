//! Records of many keys, made as they are needed.

use bytes::Bytes;
use integration_tests::real_time::wall_clock_ns;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

/// So many records in batches, each with one of `keys` keys, drawn by its number; 0 keys: keyless.
pub fn keyed_batches(
    records: usize,
    batch_records: usize,
    keys: usize,
    value_bytes: usize,
) -> impl Iterator<Item = Bytes> {
    batches(Codec::None, records, batch_records, value_bytes, move |number| {
        let key = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        (keys > 0).then(|| format!("key-{}", key % keys as u64))
    })
}

/// So many records in batches, with the keys that `key` gives to their numbers. Half of each value can be compressed.
pub fn batches(
    codec: Codec,
    records: usize,
    batch_records: usize,
    value_bytes: usize,
    key: impl Fn(usize) -> Option<String>,
) -> impl Iterator<Item = Bytes> {
    let now_ms = now_ms();
    let mut value = vec![b'v'; value_bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..records).step_by(batch_records).map(move |first| {
        let mut batch = BatchBuilder::new(codec, TimestampType::Create);
        for number in first..(first + batch_records).min(records) {
            for byte in &mut value[..value_bytes / 2] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            batch.append(now_ms, key(number).as_deref().map(str::as_bytes), Some(&value), &[]);
        }
        batch.build(Offset::ZERO, -1)
    })
}

/// The time of records that are to be kept for a while: old ones fall to the broker's retention.
#[must_use]
pub fn now_ms() -> i64 {
    wall_clock_ns() / 1_000_000
}
