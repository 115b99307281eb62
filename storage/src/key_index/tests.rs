//! What the tests of the key index share.

mod blocks;
mod faults;
mod find;
mod holes;
mod model;

use records::batch::BatchBuilder;
use records::ids::{KeyHash, Offset};
use records::{Codec, TimestampType, key_hash};

use super::{KeyFilter, KeyIndexStep, KeyedRecord, Limits};
use crate::testing::{NOW, World, partition};
use crate::{Appended, Origin};

/// Blocks so small that a short test comes to many.
const TINY: Limits = Limits { block_records: 24, block_span: 60, merge_records: 5, bucket_records: 4 };

/// A key out of the names of these numbers; 0 is none.
fn name(number: u32) -> Option<String> {
    (number > 0).then(|| format!("key {number}"))
}

fn hash(number: u32) -> Option<KeyHash> {
    name(number).map(|name| key_hash(name.as_bytes()))
}

fn batch_of_keys(codec: Codec, numbers: &[u32]) -> bytes::BytesMut {
    let mut builder = BatchBuilder::new(codec, TimestampType::Create);
    for &number in numbers {
        builder.append(NOW, name(number).as_deref().map(str::as_bytes), Some(b"value"), &[]);
    }
    bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])
}

/// A marker of the broker's: a batch of one offset without a record to index.
fn control_batch() -> bytes::BytesMut {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).control();
    builder.append(NOW, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]);
    bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])
}

impl World {
    fn enable_keys(&mut self, limits: Limits) {
        self.logs().enable_key_index(partition(0)).unwrap();
        self.logs().log_mut(partition(0)).unwrap().limit_keys(limits);
    }

    fn append_keys(&mut self, codec: Codec, numbers: &[u32], hashed: bool) -> Appended {
        let hashes: Vec<_> = numbers.iter().map(|&number| hash(number)).collect();
        let hashes = hashed.then_some(&hashes[..]);
        let batch = batch_of_keys(codec, numbers);
        self.logs().append_with_keys(partition(0), batch, hashes, Origin::Client, NOW).unwrap()
    }

    fn build_keys(&mut self, bytes_max: u64) -> KeyIndexStep {
        // A file that was damaged while it grew costs one step, and is made anew.
        let step = self.logs().build_key_index(partition(0), bytes_max);
        step.or_else(|_| self.logs().build_key_index(partition(0), bytes_max)).unwrap()
    }

    fn build_all_keys(&mut self) {
        let mut steps = 0;
        while self.build_keys(2000).more {
            steps += 1;
            assert!(steps < 10_000, "building comes to an end");
        }
        assert!(self.key_facts().is_complete());
    }

    fn key_facts(&mut self) -> super::KeyIndexFacts {
        self.logs().key_index_facts(partition(0)).unwrap()
    }

    fn keys(&mut self, from: i64, upper: i64, count_max: usize) -> Vec<KeyedRecord> {
        let mut records = Vec::new();
        let mut at = Offset(from);
        while at < Offset(upper) && records.len() < count_max {
            let left = count_max - records.len();
            let found = self.logs().key_hashes(partition(0), at, Offset(upper), left).unwrap();
            assert!(found.next > at && found.next <= Offset(upper), "a look-up goes on");
            at = found.next;
            records.extend(found.records);
        }
        records
    }

    fn matches(&mut self, filter: KeyFilter, from: i64, upper: i64, count_max: usize) -> Vec<i64> {
        let mut offsets = Vec::new();
        let mut at = Offset(from);
        while at < Offset(upper) && offsets.len() < count_max {
            let left = count_max - offsets.len();
            let found = self.logs().key_matches(partition(0), filter, at, Offset(upper), left).unwrap();
            assert!(found.next > at && found.next <= Offset(upper), "a look-up goes on");
            at = found.next;
            offsets.extend(found.offsets.iter().map(|offset| offset.0));
        }
        offsets
    }

    fn last_match(&mut self, filter: KeyFilter, from: i64, below: i64) -> Option<i64> {
        let mut below = Offset(below);
        loop {
            let found = self.logs().last_key_match(partition(0), filter, Offset(from), below).unwrap();
            if found.offset.is_some() || found.searched_from <= Offset(from) {
                return found.offset.map(|offset| offset.0);
            }
            assert!(found.searched_from < below, "a look-up goes on");
            below = found.searched_from;
        }
    }

    /// Bytes of all index files.
    fn key_files(&mut self) -> Vec<(String, u64)> {
        let entries = self.disk().list("t-0").unwrap_or_default();
        entries
            .into_iter()
            .filter(|entry| entry.name.ends_with(super::SUFFIX))
            .map(|entry| (format!("t-0/{}", entry.name), entry.len))
            .collect()
    }
}

/// All look-ups give what a plain search through `records` gives, whatever is indexed.
fn check(world: &mut World, records: &[KeyedRecord], filters: &[KeyFilter]) {
    let facts = world.facts();
    let (start, end) = (facts.log_start.0, facts.end.0);
    let span = end - start;
    assert_eq!(world.keys(start, end, usize::MAX), records);
    for part in [0, 1, 3] {
        let (from, upper) = (start + span * part / 4, end - span * part / 7);
        let inside: Vec<KeyedRecord> =
            records.iter().copied().filter(|record| (from..upper).contains(&record.offset.0)).collect();
        assert_eq!(world.keys(from, upper, 7), inside[..inside.len().min(7)]);
        for filter in filters {
            let expected: Vec<i64> = inside
                .iter()
                .filter(|record| filter.matches(record.offset, record.key))
                .map(|record| record.offset.0)
                .collect();
            assert_eq!(
                world.matches(*filter, from, upper, usize::MAX),
                expected,
                "{filter:?} in {from}..{upper}"
            );
            let some = expected.len().min(2);
            assert_eq!(world.matches(*filter, from, upper, 2), expected[..some]);
            assert_eq!(world.last_match(*filter, from, upper), expected.last().copied(), "{filter:?}");
        }
    }
}
