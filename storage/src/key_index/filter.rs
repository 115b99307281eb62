//! Which records a look-up asks for.

use records::ids::{KeyHash, Offset};

/// A range of key hashes, with or without the keyless records that are counted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFilter {
    low: u64,
    high: u64,
    keyless: bool,
}

impl KeyFilter {
    /// The records of one key.
    #[must_use]
    pub const fn key(key: KeyHash) -> Self {
        Self { low: key.0, high: key.0, keyless: false }
    }

    /// The records whose key hash lies from `low` to `high`, both included; none where `low` is above `high`.
    #[must_use]
    pub const fn range(low: KeyHash, high: KeyHash) -> Self {
        Self { low: low.0, high: high.0, keyless: false }
    }

    /// One of `lanes` equal lanes: the keys with hash × lanes >> 64 = `lane`, and the keyless records whose
    /// [`keyless_place`] lies there.
    ///
    /// # Panics
    /// When there is no such lane.
    #[must_use]
    pub fn lane(lane: u32, lanes: u32) -> Self {
        assert!(lane < lanes, "lane {lane} is none of {lanes}");
        let start = |lane: u32| (u128::from(lane) << 64).div_ceil(u128::from(lanes));
        Self { low: start(lane) as u64, high: (start(lane + 1) - 1) as u64, keyless: true }
    }

    /// Whether the record at `offset` with this key hash, or without a key, is meant.
    #[must_use]
    pub const fn matches(&self, offset: Offset, key: Option<KeyHash>) -> bool {
        match key {
            Some(key) => self.has(key.0),
            None => self.keyless && self.has(keyless_place(offset).0),
        }
    }

    pub(super) const fn low(&self) -> u64 {
        self.low
    }

    pub(super) const fn high(&self) -> u64 {
        self.high
    }

    pub(super) const fn keyless(&self) -> bool {
        self.keyless
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.low > self.high
    }

    pub(super) const fn has(&self, hash: u64) -> bool {
        self.low <= hash && hash <= self.high
    }
}

/// Where a keyless record stands in the hash space: its offset with the bits in reverse. Offsets that follow one
/// another go round the lanes, each equally often, and twice as many lanes split each lane in two.
#[must_use]
pub const fn keyless_place(offset: Offset) -> KeyHash {
    KeyHash((offset.0 as u64).reverse_bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::key_hash;

    #[test]
    fn v01_lane_of_a_key() {
        let keys = ["", "a", "b", "k0", "k1", "k2", "k3", "order-1", "order-2"];
        let expected: [(u32, [u32; 9]); 2] =
            [(32, [5, 28, 10, 23, 16, 26, 6, 11, 2]), (64, [11, 57, 21, 46, 32, 53, 13, 23, 4])];
        for (lanes, expected) in expected {
            for (key, expected) in keys.iter().zip(expected) {
                let hash = key_hash(key.as_bytes());
                for lane in 0..lanes {
                    let meant = KeyFilter::lane(lane, lanes).matches(Offset(0), Some(hash));
                    assert_eq!(meant, lane == expected, "{key} in lane {lane} of {lanes}");
                }
            }
        }
    }

    #[test]
    fn lanes_meet_without_a_gap() {
        for lanes in [1, 2, 3, 7, 32, 1000, 1024] {
            let mut next = 0_u128;
            for lane in 0..lanes {
                let filter = KeyFilter::lane(lane, lanes);
                assert_eq!(u128::from(filter.low), next);
                next = u128::from(filter.high) + 1;
                assert_eq!((u128::from(filter.low) * u128::from(lanes)) >> 64, u128::from(lane));
                assert_eq!((u128::from(filter.high) * u128::from(lanes)) >> 64, u128::from(lane));
            }
            assert_eq!(next, 1 << 64);
        }
    }

    #[test]
    fn v05_keyless_records_go_round_the_lanes() {
        for from in [0, 5, 1_000_003] {
            let mut counts = [0; 32];
            for offset in from..from + 320 {
                let lanes: Vec<u32> =
                    (0..32).filter(|&lane| KeyFilter::lane(lane, 32).matches(Offset(offset), None)).collect();
                assert_eq!(lanes.len(), 1);
                counts[lanes[0] as usize] += 1;
                let split = KeyFilter::lane(lanes[0] * 2, 64).matches(Offset(offset), None)
                    || KeyFilter::lane(lanes[0] * 2 + 1, 64).matches(Offset(offset), None);
                assert!(split, "twice as many lanes split each in two");
            }
            assert_eq!(counts, [10; 32]);
        }
        assert!(!KeyFilter::key(keyless_place(Offset(7))).matches(Offset(7), None));
    }
}
