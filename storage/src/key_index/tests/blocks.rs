//! One block: what goes in comes out, within the size that is promised.

use std::sync::Arc;

use proptest::prelude::*;
use records::ids::{KeyHash, Offset};

use super::super::KeyedRecord;
use super::super::block::encode;
use super::super::cache::KeyCache;
use super::super::filter::KeyFilter;
use super::super::format::BlockMeta;
use super::super::pending::{Limits, Pending};
use super::super::reader::{BlockReader, KeyFault, Wanted};
use crate::disk::{Disk, DiskFile, SimDisk};
use crate::testing::partition;

const POSITION: u64 = 100;

struct Written {
    meta: BlockMeta,
    bytes: Vec<u8>,
    file: Arc<dyn DiskFile>,
    cache: KeyCache,
}

impl Written {
    fn new(records: &[KeyedRecord], limits: Limits) -> Self {
        let from = records.first().map_or(Offset(0), |record| record.offset);
        let mut pending = Pending::new(from, 3, limits);
        for record in records {
            assert!(!pending.is_full_for(record.offset));
            pending.push(record.offset, record.key);
        }
        let (meta, bytes) = encode(&pending, POSITION);
        let file = SimDisk::new(1).create("b").unwrap();
        file.write_all_at(&bytes, POSITION).unwrap();
        Self { meta, bytes, file, cache: KeyCache::new(1 << 20) }
    }

    fn reader(&mut self) -> BlockReader<'_> {
        let owner = (partition(0), Offset(0));
        BlockReader { file: &*self.file, cache: &mut self.cache, owner, table: &[] }
    }

    fn list(&mut self) -> Vec<KeyedRecord> {
        let meta = self.meta.clone();
        let mut out = Vec::new();
        self.reader().list(0, &meta, (Offset(0), Offset::MAX), usize::MAX, &mut out).unwrap();
        out
    }

    fn matches(&mut self, filter: KeyFilter) -> Vec<Offset> {
        let meta = self.meta.clone();
        let wanted = Wanted { filter, from: Offset(0), upper: Offset::MAX };
        let mut out = Vec::new();
        if meta.may_match(&filter) {
            self.reader().first_matches(0, &meta, &wanted, usize::MAX, &mut out).unwrap();
        }
        out
    }
}

/// A sequence of numbers that looks random and is always the same.
fn noise(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn full_block(key: impl Fn(u64) -> u64) -> Vec<KeyedRecord> {
    let count = Limits::default().block_records as u64;
    (0..count)
        .map(|index| KeyedRecord {
            offset: Offset(1000 + index as i64),
            key: Some(KeyHash(noise(key(index)))),
        })
        .collect()
}

fn bytes_a_record(records: &[KeyedRecord]) -> f64 {
    let mut written = Written::new(records, Limits::default());
    assert_eq!(written.list(), records);
    for record in records.iter().step_by(records.len() / 50) {
        let key = record.key.unwrap();
        let expected: Vec<Offset> =
            records.iter().filter(|record| record.key == Some(key)).map(|record| record.offset).collect();
        assert_eq!(written.matches(KeyFilter::key(key)), expected);
    }
    written.bytes.len() as f64 / records.len() as f64
}

#[test]
fn distinct_keys_take_ten_bytes_a_record_at_most_and_repeated_ones_less() {
    let distinct = bytes_a_record(&full_block(|index| index));
    let twice = bytes_a_record(&full_block(|index| index / 2));
    let hundred = bytes_a_record(&full_block(|index| index % 100));
    let zipf = bytes_a_record(&full_block(|index| 65_536 / (noise(index) % 65_536 + 1)));
    let one = bytes_a_record(&full_block(|_| 7));
    assert!(distinct < 9.2, "{distinct}");
    assert!(twice < 6.9, "{twice}");
    assert!(zipf < 2.5, "{zipf}");
    assert!(hundred < 2.1, "{hundred}");
    assert!(one < 2.1, "{one}");
}

fn records() -> impl Strategy<Value = Vec<KeyedRecord>> {
    let key = prop_oneof![
        3 => (0_u64..20).prop_map(|number| Some(KeyHash(noise(number)))),
        2 => any::<u64>().prop_map(|hash| Some(KeyHash(hash))),
        // Hashes that share a bucket and differ in their lowest bits only.
        1 => (0_u64..4).prop_map(|low| Some(KeyHash(u64::MAX << 2 | low))),
        1 => Just(None),
    ];
    proptest::collection::vec((1_i64..4, key), 0..300).prop_map(|gaps| {
        let mut offset = 70;
        let mut records = Vec::new();
        for (gap, key) in gaps {
            offset += gap;
            records.push(KeyedRecord { offset: Offset(offset), key });
        }
        records
    })
}

proptest! {
    #[test]
    fn every_look_up_in_a_block_is_as_in_a_list(
        records in records(),
        bucket_records in prop_oneof![Just(2_usize), Just(16), Just(256)],
        lanes in 1_u32..40,
    ) {
        let limits = Limits { bucket_records, ..Limits::default() };
        let mut written = Written::new(&records, limits);
        prop_assert_eq!(&written.list(), &records);
        let mut filters: Vec<KeyFilter> = (0..lanes).map(|lane| KeyFilter::lane(lane, lanes)).collect();
        filters.extend(records.iter().take(20).filter_map(|record| record.key).map(KeyFilter::key));
        filters.push(KeyFilter::key(KeyHash(12)));
        for filter in filters {
            let expected: Vec<Offset> = records
                .iter()
                .filter(|record| filter.matches(record.offset, record.key))
                .map(|record| record.offset)
                .collect();
            prop_assert_eq!(written.matches(filter), expected.clone());
            let meta = written.meta.clone();
            let wanted = Wanted { filter, from: Offset(0), upper: Offset::MAX };
            let last = written.reader().last_match(0, &meta, &wanted).unwrap();
            prop_assert_eq!(last, expected.last().copied());
        }
    }

    #[test]
    fn no_changed_byte_is_believed(records in records(), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let mut written = Written::new(&records, Limits { bucket_records: 16, ..Limits::default() });
        let at = at.index(written.bytes.len());
        let changed = [written.bytes[at] ^ (1_u8 << bit)];
        written.file.write_all_at(&changed, POSITION + at as u64).unwrap();
        let meta = written.meta.clone();
        let mut out = Vec::new();
        let read = written.reader().list(0, &meta, (Offset(0), Offset::MAX), usize::MAX, &mut out);
        prop_assert!(matches!(read, Err(KeyFault::Unfit(_))));
    }
}
