//! Homes of keys, where assignment is sticky (`sluice.share.assignment`): rendezvous hashing over the live members.
//!
//! Each of a fixed number of buckets of the key-hash space belongs to the member that weighs most in it. So a member
//! that comes takes its share evenly from all others, one that goes leaves its share evenly to them, and nothing else
//! moves.

use std::sync::Arc;

use records::ids::KeyHash;
use records::key_hash;

/// Bits of a key hash that choose its bucket: enough for an even spread over hundreds of members.
const BUCKET_BITS: u32 = 12;
/// Spreads numbers that differ little.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where a key or a member belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home(u64);

impl Home {
    /// Of every key and every member where assignment is not sticky.
    pub(crate) const ANYWHERE: Self = Self(0);

    /// A member's own.
    pub(crate) fn of_member(member: &str) -> Self {
        Self(key_hash(member.as_bytes()).0.max(1))
    }

    /// How much it weighs in a bucket: a finalizer of 64 bits, so that each bucket orders the members anew.
    fn weight(self, bucket: u64) -> u64 {
        let mut mixed = self.0 ^ (bucket + 1).wrapping_mul(GOLDEN);
        for multiplier in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            mixed = (mixed ^ (mixed >> 33)).wrapping_mul(multiplier);
        }
        mixed ^ (mixed >> 33)
    }
}

/// Which home each key has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Homes(Box<[Home]>);

impl Homes {
    /// The homes among these members; `None` where there are none.
    pub(crate) fn among<'a>(members: impl Iterator<Item = &'a Arc<str>>) -> Option<Self> {
        let members: Vec<Home> = members.map(|member| Home::of_member(member)).collect();
        let heaviest = |bucket| members.iter().copied().max_by_key(|home| (home.weight(bucket), *home));
        (0..1 << BUCKET_BITS).map(heaviest).collect::<Option<_>>().map(Self)
    }

    /// Where a key belongs.
    pub(crate) fn of(&self, key: KeyHash) -> Home {
        let bucket = key.0.wrapping_mul(GOLDEN) >> (u64::BITS - BUCKET_BITS);
        let bucket = usize::try_from(bucket).expect("a bucket number is small");
        self.0[bucket]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|number| Arc::from(format!("member-{number}"))).collect()
    }

    fn keys() -> impl Iterator<Item = KeyHash> {
        (0..20_000).map(|number: u32| key_hash(&number.to_be_bytes()))
    }

    #[test]
    fn every_member_gets_about_its_share() {
        let members = members(8);
        let homes = Homes::among(members.iter()).unwrap();
        for member in &members {
            let share = keys().filter(|&key| homes.of(key) == Home::of_member(member)).count();
            assert!((2_000..3_000).contains(&share), "{member}: {share} of 20,000");
        }
        assert_eq!(Homes::among([].iter()), None);
    }

    #[test]
    fn only_the_share_of_who_comes_or_goes_moves() {
        let all = members(8);
        let (with, without) = (Homes::among(all.iter()).unwrap(), Homes::among(all[..7].iter()).unwrap());
        let last = Home::of_member(&all[7]);
        for key in keys() {
            assert!(with.of(key) == last || with.of(key) == without.of(key));
        }
    }
}
