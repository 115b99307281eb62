//! The matching round of one share-partition: its ready records and the fetches that ask for them.
//!
//! With key order what is ready brings members level, whoever holds the fewest keys first, so that none gets a second key
//! while another that asks has none. Each takes its part in one go: records that lie side by side are one range to answer
//! and to acknowledge, and whole batches to send. Without order each fetch takes what it may, first come, first served, as
//! in Kafka.

use std::sync::Arc;

use records::ids::KeyHash;

use super::budget::Budget;
use crate::command::KeyRange;
use crate::share::ShareOrder;
use crate::share::acquire::{Supply, Turn};
use crate::share::key_queue::Cursor;
use crate::share::partition::SharePartition;
use crate::time::Now;

/// One fetch in a round.
#[derive(Debug)]
pub(crate) struct Bidder {
    pub(crate) member: Arc<str>,
    /// It acknowledges with delivery numbers.
    pub(crate) numbered: bool,
    /// Records of one key that it may have in flight.
    pub(crate) per_key_max: usize,
    /// Keys that it may hold in this share-partition.
    pub(crate) keys_max: usize,
    /// Never more records than asked for (order `none`; with key order always).
    pub(crate) strict: bool,
    /// Key hashes that it reads alone; `None` of a member, which shares all.
    pub(crate) ranges: Option<Arc<[KeyRange]>>,
    /// Where its look at them begins.
    pub(crate) turn_from: KeyHash,
    pub(crate) budget: Budget,
    /// Where it has come to in the ready sets.
    pub(crate) cursor: Cursor,
    /// The number of what it was granted, its lock, and the offsets.
    pub(crate) delivery: Option<u64>,
    pub(crate) lock: Option<u32>,
    pub(crate) picks: Vec<i64>,
    /// What it was granted of replays; among the `picks` in the end.
    pub(crate) replayed: Vec<i64>,
}

/// Grants what is ready; each bidder's `picks` say what it got. `delivery` hands out a new delivery number.
pub(crate) fn match_round(
    partition: &mut SharePartition,
    bidders: &mut [Bidder],
    now: Now,
    delivery: &mut dyn FnMut() -> u64,
) {
    partition.take_replays(bidders, now, delivery);
    for reader in bidders.iter_mut().filter(|bidder| bidder.ranges.is_some()) {
        partition.take_ranges(reader, now, delivery);
    }
    match partition.order() {
        ShareOrder::Key => take_turns(partition, bidders, now, delivery),
        ShareOrder::None => {
            for bidder in bidders.iter_mut().filter(|bidder| bidder.ranges.is_none()) {
                partition.take_unordered(bidder, now, delivery);
            }
        }
    }
    for bidder in bidders.iter_mut() {
        partition.close_grant(bidder, now);
        bidder.picks.append(&mut bidder.replayed);
        bidder.picks.sort_unstable();
    }
}

fn take_turns(
    partition: &mut SharePartition,
    bidders: &mut [Bidder],
    now: Now,
    delivery: &mut dyn FnMut() -> u64,
) {
    if let Some(bidder) = bidders.iter().max_by_key(|bidder| bidder.budget.records_left()) {
        partition.foresee(bidder);
    }
    let asks = bidders.iter().enumerate().filter(|(_, bidder)| bidder.ranges.is_none());
    let mut turns: Vec<(usize, usize, usize)> = asks
        .map(|(index, bidder)| (partition.keys_held(&bidder.member, bidder.per_key_max), index, index))
        .collect();
    let mut turn = bidders.len();
    while !turns.is_empty() {
        // Fewest keys first; among equals whoever had its turn longest ago.
        turns.sort_unstable();
        let Supply { keys, keyless, locks } = partition.supply();
        let level = level(&turns, keys.min(locks));
        // Too few to bring anyone level: one each, as far as they go.
        let one_each = turns[0].0 >= level;
        let keyless_max = (keyless / turns.len()).max(1);
        let records_max = (locks / turns.len()).max(1);
        turns.retain_mut(|(keys, last, index)| {
            let bidder = &mut bidders[*index];
            let keys_max = if one_each { *keys + 1 } else { level };
            let picks_max = bidder.picks.len() + records_max;
            let mut keyless_left = keyless_max;
            while *keys < keys_max && keyless_left > 0 && bidder.picks.len() < picks_max {
                turn += 1;
                *last = turn;
                match partition.take_turn(bidder, *keys, now, delivery) {
                    Turn::Key => *keys += 1,
                    Turn::Keyless => keyless_left -= 1,
                    Turn::Done => return false,
                }
            }
            true
        });
    }
}

/// Up to how many keys `supply` more of them bring each of these members, who hold some already, fewest first.
fn level(turns: &[(usize, usize, usize)], supply: usize) -> usize {
    let mut held = 0;
    let mut level = 0;
    for (count, &(keys, ..)) in (1..).zip(turns) {
        // With all before this one level with it, what is left?
        if keys * (count - 1) - held >= supply {
            break;
        }
        held += keys;
        level = (held + supply) / count;
    }
    level
}

#[cfg(test)]
mod tests {
    #[test]
    fn o7_what_is_there_brings_members_level() {
        let level = |held: &[usize], supply| {
            super::level(&held.iter().map(|&keys| (keys, 0, 0)).collect::<Vec<_>>(), supply)
        };
        assert_eq!(level(&[0; 16], 2_000), 125);
        assert_eq!(level(&[0, 0, 0], 2), 0);
        assert_eq!(level(&[0, 30], 100), 65);
        assert_eq!(level(&[0, 1_000], 50), 50);
        assert_eq!(level(&[5, 5, 9, 100], 10), 9);
        assert_eq!(level(&[5, 5, 9, 100], 20), 13);
        assert_eq!(level(&[7], 0), 0);
        assert_eq!(level(&[], 10), 0);
    }
}
