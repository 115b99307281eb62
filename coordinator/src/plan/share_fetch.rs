//! The matching round of one share-partition: its ready records and the fetches that ask for them.
//!
//! With key order members take turns, one key a turn, whoever holds the fewest keys first, so that none gets a
//! second key while another that asks has none. Without order each fetch takes what it may, first come, first
//! served, as in Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use records::ids::KeyHash;

use super::budget::Budget;
use crate::command::KeyRange;
use crate::share::ShareOrder;
use crate::share::acquire::Turn;
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
    // Fewest keys first; among equals whoever had its turn longest ago.
    let mut turns: BTreeSet<(usize, usize, usize)> = bidders
        .iter()
        .enumerate()
        .filter(|(_, bidder)| bidder.ranges.is_none())
        .map(|(index, bidder)| (partition.keys_held(&bidder.member, bidder.per_key_max), index, index))
        .collect();
    let mut turn = bidders.len();
    while let Some((keys, _, index)) = turns.pop_first() {
        turn += 1;
        match partition.take_turn(&mut bidders[index], keys, now, delivery) {
            Turn::Key => turns.insert((keys + 1, turn, index)),
            Turn::Keyless => turns.insert((keys, turn, index)),
            Turn::Done => continue,
        };
    }
}
