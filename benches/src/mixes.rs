//! What work comes in: keys, values and service times, the same in every run and in every language.
//!
//! `integration-tests/foreign/makespan` draws the same service times: `Service.java`.

use std::time::Duration;

use broker::demo::flights::Flights;
use bytes::Bytes;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

use crate::keyed::now_ms;

/// Records of a loaded batch.
const BATCH_RECORDS: usize = 500;
/// One record in so many takes long.
const LONG_ONE_IN: u64 = 100;
/// How long, in means.
const LONG_MEANS: f64 = 25.0;

/// A partition's records, in order.
#[derive(Clone, Debug)]
pub struct Mix {
    /// What it is called in the report.
    pub name: &'static str,
    /// Key and value of each record.
    pub records: Vec<(Option<String>, String)>,
}

impl Mix {
    /// The first so many departures from New York in 2013, keyed by aircraft: many keys, none of them hot.
    #[must_use]
    pub fn flights(count: usize) -> Self {
        let flights = Flights::load().expect("they stand inside the program");
        let record =
            |flight: broker::demo::flights::Flight<'_>| (flight.tail.map(str::to_owned), flight.to_json());
        Self { name: "flights", records: flights.iter().take(count).map(record).collect() }
    }

    /// Keys drawn by Zipf's law with exponent 1: the hottest of 2,000 has an eighth of the records.
    #[must_use]
    pub fn zipf(count: usize, keys: usize) -> Self {
        let mut sums = Vec::with_capacity(keys);
        let mut sum = 0.0;
        for rank in 1..=keys {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let record = |index: usize| {
            let at = fraction(mixed(0x5a69_7066 ^ index as u64)) * sum;
            let rank = sums.partition_point(|upper| *upper <= at).min(keys - 1);
            (Some(format!("zipf-{rank}")), format!("value-{index}"))
        };
        Self { name: "zipf", records: (0..count).map(record).collect() }
    }

    /// The records in batches as they are loaded: offsets from 0 on.
    pub fn batches(&self) -> impl Iterator<Item = Bytes> + '_ {
        let now_ms = now_ms();
        self.records.chunks(BATCH_RECORDS).map(move |records| {
            let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
            for (key, value) in records {
                batch.append(now_ms, key.as_ref().map(String::as_bytes), Some(value.as_bytes()), &[]);
            }
            batch.build(Offset::ZERO, -1)
        })
    }
}

/// How long the record at `offset` takes: 99 of 100 between a half and one mean, around 0.75, the others 25 means.
#[must_use]
pub fn service(offset: i64, mean: Duration) -> Duration {
    let hash = mixed(offset.unsigned_abs());
    let means = if hash.is_multiple_of(LONG_ONE_IN) { LONG_MEANS } else { 0.5 + 0.5 * fraction(mixed(hash)) };
    mean.mul_f64(means)
}

/// The finaliser of splitmix64.
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// From 0 to below 1.
fn fraction(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn service_times_have_their_mean() {
        let mean = Duration::from_millis(2);
        let total: Duration = (0..100_000).map(|offset| service(offset, mean)).sum();
        let ratio = total.as_secs_f64() / (mean * 100_000).as_secs_f64();
        assert!((0.95..1.04).contains(&ratio), "{ratio}");
        // Service.java must draw the same.
        let told: Vec<u128> = (0..4).map(|offset| service(offset, mean).as_micros()).collect();
        assert_eq!(told, [1_652, 1_368, 1_392, 1_737]);
    }

    #[test]
    fn the_hottest_of_zipfs_keys_has_an_eighth() {
        let mix = Mix::zipf(20_000, 2_000);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (key, _) in &mix.records {
            *counts.entry(key.as_deref().expect("every record has a key")).or_default() += 1;
        }
        let hottest = counts.values().max().expect("there are keys");
        assert!((2_200..2_700).contains(hottest), "{hottest}");
        assert!(counts.len() > 1_500, "{}", counts.len());
    }

    #[test]
    fn batches_hold_all_records() {
        let mix = Mix::flights(1_200);
        assert_eq!(mix.records.len(), 1_200);
        assert_eq!(mix.batches().count(), 3);
    }
}
