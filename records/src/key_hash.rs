//! The key hash: 64-bit XXH3 with seed 0 of a record's key bytes.
//!
//! Stored key indexes and lanes depend on it for ever. It is deliberately not Kafka's murmur2, which chose the
//! partition: all keys of one partition share its low bits, and would fall into few lanes.

use crate::ids::KeyHash;

/// The hash of a key's bytes. A null key has none, an empty one has.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8]) -> KeyHash {
    KeyHash(xxhash_rust::xxh3::xxh3_64(key))
}

/// 128 bits of a key's bytes, which stand for the key where it cannot be kept itself (compaction): XXH3 with a seed
/// that nobody outside knows, so that keys cannot be made to collide.
#[inline]
#[must_use]
pub fn key_fingerprint(key: &[u8], seed: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k12_hash_vectors() {
        let vectors: [(&[u8], u64); 14] = [
            (b"", 0x2d06_8005_38d3_94c2),
            (b"a", 0xe6c6_32b6_1e96_4e1f),
            (b"b", 0x575a_0b1c_44d8_843f),
            (b"k0", 0xbbb0_8e67_2f91_90b3),
            (b"k1", 0x81af_bf86_b72a_36c5),
            (b"k2", 0xd432_ac1f_4882_e181),
            (b"k3", 0x36ab_94ef_bbf2_24ba),
            (b"order-1", 0x5fc4_6503_368e_2876),
            (b"order-2", 0x1180_871c_d943_115c),
            (&[0x00], 0xc44b_dff4_074e_ecdb),
            (&[0xff; 4], 0xcd6b_1c92_0d3f_662c),
            (&[b'x'; 20], 0xb506_3209_8796_72bf),
            (&[b'y'; 200], 0x78c5_ae5c_f7b1_237e),
            (&[b'x'; 300], 0xa5d1_b460_7dc8_3554),
        ];
        for (key, hash) in vectors {
            assert_eq!(key_hash(key), KeyHash(hash), "{key:?}");
        }
    }
}
