//! Properties over random batches: what is built is read back, damage never panics, slim batches tell the truth.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands, in its helpers too")]

mod support;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use records::batch::{
    BatchBuilder, BatchView, Batches, HEADER_LEN, Header, Record, Rules, SlimBuilder, stamp, validate,
};
use records::ids::Offset;
use records::{Codec, RecordError, TimestampType};
use support::{NOW, Raw};

const LIMIT: usize = 1 << 20;

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// A record in owned parts: all that a client can tell of one.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

impl From<Record<'_>> for Owned {
    fn from(record: Record<'_>) -> Self {
        assert_eq!(record.headers.len(), record.headers.iter().count());
        let headers = record.headers.iter();
        Self {
            offset: record.offset.0,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: headers.map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

fn owned_record() -> impl Strategy<Value = Owned> {
    let bytes = |max| vec(any::<u8>(), 0..max);
    let headers = vec((bytes(8), option::of(bytes(8))), 0..3);
    (NOW - 100_000..NOW + 100_000, option::of(bytes(40)), option::of(bytes(300)), headers)
        .prop_map(|(timestamp, key, value, headers)| Owned { offset: 0, timestamp, key, value, headers })
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(&Codec::ALL[..])
}

/// One stored batch: its records at ascending offsets, with gaps where compaction took some.
fn build(codec: Codec, base_offset: i64, kind: TimestampType, records: &mut [Owned], gaps: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec, kind).producer(9, 1, 100);
    let mut delta = 0;
    for (index, record) in records.iter_mut().enumerate() {
        delta += i32::from(gaps.get(index).copied().unwrap_or(0));
        record.offset = base_offset + i64::from(delta);
        let headers: Vec<Header<'_>> =
            record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
        builder.append_at(delta, record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers);
        delta += 1;
    }
    builder.build(Offset(base_offset), 4).to_vec()
}

fn iterate(view: &BatchView<'_>) -> Result<Vec<Owned>, RecordError> {
    view.records(LIMIT)?.iter().map(|record| record.map(Owned::from)).collect()
}

fn scan(view: &BatchView<'_>) -> Result<Vec<Owned>, RecordError> {
    let mut seen = Vec::new();
    view.scan(LIMIT, |record| {
        seen.push(Owned::from(record));
        Ok::<(), RecordError>(())
    })?;
    Ok(seen)
}

/// The records of a slim batch made of the chosen ones, after the checks that every slim batch must pass.
fn checked_slim(slim: &[u8]) -> Vec<Owned> {
    let view = BatchView::parse(slim).unwrap();
    assert_eq!(view.size(), slim.len());
    assert!(view.crc_is_valid());
    let records = iterate(&view).unwrap();
    assert_eq!(view.record_count() as usize, records.len());
    assert_eq!(view.last_offset().0, records.last().unwrap().offset);
    assert_eq!(view.max_timestamp(), records.iter().map(|record| record.timestamp).max().unwrap());
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_is_built_is_read_back(
        codec in codec(),
        mut records in vec(owned_record(), 1..40),
        gaps in vec(0_u8..3, 40),
        base_offset in 0..i64::MAX / 2,
    ) {
        let bytes = build(codec, base_offset, TimestampType::Create, &mut records, &gaps);
        let view = BatchView::parse(&bytes).unwrap();
        prop_assert!(view.crc_is_valid());
        prop_assert_eq!(&iterate(&view).unwrap(), &records);
        prop_assert_eq!(&scan(&view).unwrap(), &records);
    }

    #[test]
    fn what_is_built_is_valid_and_stays_as_sent(codec in codec(), mut records in vec(owned_record(), 1..40)) {
        let mut bytes = build(codec, 0, TimestampType::Create, &mut records, &[]);
        let found = validate(&bytes, &Rules { hash_keys: true, ..Rules::new(NOW) }).unwrap();
        let hashes: Vec<_> = records.iter().map(|record| record.key.as_deref().map(records::key_hash)).collect();
        prop_assert_eq!(found.key_hashes.unwrap(), hashes);
        let max = records.iter().map(|record| record.timestamp).max().unwrap();
        prop_assert_eq!(found.max_timestamp, max);
        prop_assert_eq!(records[found.max_timestamp_offset_delta as usize].timestamp, max);

        let sent = bytes.clone();
        stamp(&mut bytes, Offset(1234), 5, None, Some(found.max_timestamp));
        prop_assert_eq!(&bytes[16..], &sent[16..]);
    }

    #[test]
    fn damage_never_panics(
        codec in codec(),
        mut records in vec(owned_record(), 1..20),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in option::of(any::<proptest::sample::Index>()),
        depth in 0..3_u8,
    ) {
        let built = build(Codec::None, 0, TimestampType::Create, &mut records, &[]);
        let spoil = |bytes: &mut Vec<u8>| {
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
        };
        // Damage of the whole batch, and with a right CRC: of the payload, of the records within the payload.
        let bytes = match depth {
            0 => {
                let mut bytes = build(codec, 0, TimestampType::Create, &mut records, &[]);
                spoil(&mut bytes);
                bytes
            }
            1 => {
                let mut raw = Raw::new(codec, records.len() as i32, &built[HEADER_LEN..]);
                spoil(&mut raw.payload);
                raw.bytes()
            }
            _ => {
                let mut inner = built[HEADER_LEN..].to_vec();
                spoil(&mut inner);
                Raw::new(codec, records.len() as i32, &inner).bytes()
            }
        };
        for view in Batches::new(&bytes).flatten() {
            let iterated = iterate(&view).ok();
            // A batch that reads well reads the same in both ways.
            prop_assert_eq!(&iterated, &scan(&view).ok());
            if let Some(records) = iterated {
                prop_assert_eq!(records.len(), view.record_count() as usize);
            }
        }
        if let Ok(found) = validate(&bytes, &Rules { hash_keys: true, bytes_max: LIMIT, ..Rules::new(NOW) }) {
            let view = BatchView::parse(&bytes).unwrap();
            prop_assert_eq!(iterate(&view).unwrap().len(), found.record_count as usize);
        }
    }

    #[test]
    fn a_slim_batch_holds_exactly_what_was_chosen(
        stored in codec(),
        sent in codec(),
        kind in proptest::sample::select(&[TimestampType::Create, TimestampType::LogAppend][..]),
        mut records in vec(owned_record(), 1..40),
        gaps in vec(0_u8..3, 40),
        chosen in vec(any::<bool>(), 40),
    ) {
        let bytes = build(stored, 700, kind, &mut records, &gaps);
        let view = BatchView::parse(&bytes).unwrap();
        let inflated = view.records(LIMIT).unwrap();
        let mut slim = SlimBuilder::new(&view);
        let mut expected = Vec::new();
        let mut raw = Vec::new();
        for (record, _) in inflated.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
            let record = record.unwrap();
            slim.push(&record).unwrap();
            raw.extend_from_slice(record.raw);
            expected.push(Owned::from(record));
        }
        let Some(slim) = slim.finish(sent) else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        prop_assert_eq!(&checked_slim(&slim), &expected);
        let slim = BatchView::parse(&slim).unwrap();
        prop_assert_eq!((slim.producer_id(), slim.producer_epoch(), slim.base_sequence()), (9, 1, 100));
        prop_assert_eq!((slim.base_offset(), slim.leader_epoch()), (Offset(700), 4));
        prop_assert_eq!(slim.attributes().timestamp_type(), kind);
        prop_assert_eq!(slim.attributes().codec(), Ok(sent));
        if sent == Codec::None {
            prop_assert_eq!(slim.payload(), &raw[..]);
        }
    }

    #[test]
    fn slim_batches_join_over_stored_ones(
        codecs in vec(codec(), 3),
        sizes in vec(1_usize..12, 3),
        pool in vec(owned_record(), 36),
        chosen in vec(any::<bool>(), 36),
    ) {
        let mut log = Vec::new();
        let mut base_offset = 50;
        for (codec, size) in codecs.iter().zip(&sizes) {
            let mut records = pool[..*size].to_vec();
            log.extend(build(*codec, base_offset, TimestampType::Create, &mut records, &[]));
            base_offset += *size as i64;
        }
        let batches: Vec<_> = Batches::new(&log).map(Result::unwrap).collect();
        let mut slim = SlimBuilder::new(&batches[0]);
        let mut expected = Vec::new();
        let mut choices = chosen.iter();
        for (index, batch) in batches.iter().enumerate() {
            prop_assert!(index == 0 || slim.join(batch));
            for record in &batch.records(LIMIT).unwrap() {
                let record = record.unwrap();
                if *choices.next().unwrap() {
                    slim.push(&record).unwrap();
                    expected.push(Owned::from(record));
                }
            }
        }
        let Some(slim) = slim.finish(Codec::None) else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        prop_assert_eq!(checked_slim(&slim), expected);
        let slim = BatchView::parse(&slim).unwrap();
        prop_assert_eq!((slim.producer_id(), slim.producer_epoch(), slim.base_sequence()), (-1, -1, -1));
    }
}
