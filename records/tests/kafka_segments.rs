//! Batches that Apache Kafka itself wrote are read, found valid, and slimmed.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands, in its helpers too")]

use records::batch::{BatchView, Batches, Header, Rules, SlimBuilder, validate};
use records::ids::Offset;
use records::{Codec, key_hash};

const SEGMENTS: [(Codec, &[u8]); 5] = [
    (Codec::None, include_bytes!("fixtures/kafka-4.4-none.log")),
    (Codec::Gzip, include_bytes!("fixtures/kafka-4.4-gzip.log")),
    (Codec::Snappy, include_bytes!("fixtures/kafka-4.4-snappy.log")),
    (Codec::Lz4, include_bytes!("fixtures/kafka-4.4-lz4.log")),
    (Codec::Zstd, include_bytes!("fixtures/kafka-4.4-zstd.log")),
];

const LIMIT: usize = 1 << 16;

type Expected = (Option<&'static str>, Option<&'static str>, &'static [(&'static str, &'static str)]);

/// What `fixtures/README.md` says was typed.
const TYPED: [Expected; 5] = [
    (Some("order-1"), Some("first value value value value"), &[("trace", "a1"), ("empty", "")]),
    (Some("order-2"), Some("second value value value value"), &[("trace", "a2")]),
    (None, Some("no key, no headers, value value value"), &[]),
    (Some("order-1"), None, &[("x", "1"), ("x", "2")]),
    (Some("order-3"), Some(""), &[]),
];

fn the_batch(segment: &'static [u8]) -> BatchView<'static> {
    let batches: Vec<_> = Batches::new(segment).map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    batches[0]
}

#[test]
fn every_codec_of_kafka_is_read() {
    for (codec, segment) in SEGMENTS {
        let batch = the_batch(segment);
        assert!(batch.crc_is_valid(), "{codec:?}");
        assert_eq!(batch.attributes().codec(), Ok(codec));
        assert_eq!(
            (batch.base_offset(), batch.next_offset(), batch.record_count()),
            (Offset(0), Offset(5), 5)
        );
        assert_eq!((batch.base_sequence(), batch.producer_epoch(), batch.leader_epoch()), (0, 0, 0));
        let records = batch.records(LIMIT).unwrap();
        let mut max_timestamp = 0;
        for (record, (key, value, headers)) in records.iter().zip(TYPED) {
            let record = record.unwrap();
            assert_eq!(record.key, key.map(str::as_bytes), "{codec:?}");
            assert_eq!(record.value, value.map(str::as_bytes), "{codec:?}");
            let headers: Vec<Header<'_>> = headers
                .iter()
                .map(|(key, value)| Header { key: key.as_bytes(), value: Some(value.as_bytes()) })
                .collect();
            assert_eq!(record.headers.iter().collect::<Vec<_>>(), headers, "{codec:?}");
            max_timestamp = max_timestamp.max(record.timestamp);
        }
        assert_eq!(records.iter().count(), TYPED.len());
        assert_eq!(batch.max_timestamp(), max_timestamp);
    }
}

#[test]
fn what_kafka_s_producer_sent_is_valid() {
    for (codec, segment) in SEGMENTS {
        let batch = the_batch(segment);
        let rules = Rules { hash_keys: true, ..Rules::new(batch.max_timestamp()) };
        let found = validate(segment, &rules).unwrap();
        assert_eq!(found.max_timestamp, batch.max_timestamp(), "{codec:?}");
        let hashes = TYPED.map(|(key, ..)| key.map(|key| key_hash(key.as_bytes())));
        assert_eq!(found.key_hashes.unwrap(), hashes);
    }
}

#[test]
fn slim_batches_of_kafka_s_keep_offsets_timestamps_and_headers() {
    for (codec, segment) in SEGMENTS {
        let batch = the_batch(segment);
        let records = batch.records(LIMIT).unwrap();
        let chosen: Vec<_> =
            records.iter().map(Result::unwrap).filter(|record| record.offset_delta % 2 == 1).collect();
        let mut slim = SlimBuilder::new(&batch);
        chosen.iter().for_each(|record| slim.push(record).unwrap());
        let slim = slim.finish(codec).unwrap();
        let slim = BatchView::parse(&slim).unwrap();
        assert!(slim.crc_is_valid());
        assert_eq!((slim.record_count(), slim.last_offset()), (2, Offset(3)));
        let slimmed = slim.records(LIMIT).unwrap();
        assert_eq!(slimmed.iter().map(Result::unwrap).collect::<Vec<_>>(), chosen);
    }
}
