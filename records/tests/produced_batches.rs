//! What a produced batch must be: the cases of the produce and hostile-input lists that a batch alone decides.

mod support;

use records::batch::validate::{Fault, RECORDS_MAX};
use records::batch::{BatchBuilder, BatchView, Header, Rules, ValidationError, stamp, validate};
use records::compression::compress;
use records::ids::{KeyHash, Offset};
use records::{Codec, RecordError, TimestampType, key_hash};
use support::{NOW, Raw, record, two_records, with_length};

fn rules() -> Rules {
    Rules { hash_keys: true, ..Rules::new(NOW) }
}

/// Asserts that the batch answers INVALID_RECORD, on a topic with and without a key index, compacted or not.
#[track_caller]
fn assert_invalid(bytes: &[u8]) {
    for (hash_keys, keys_required) in [(false, false), (true, false), (true, true)] {
        let got = validate(bytes, &Rules { hash_keys, keys_required, ..Rules::new(NOW) });
        assert!(
            matches!(got, Err(ValidationError::Invalid(_) | ValidationError::Undecodable(_))),
            "expected a refusal for good, got {got:?}"
        );
    }
}

#[test]
fn a_good_batch_tells_what_it_holds() {
    for codec in Codec::ALL {
        let raw = Raw { producer: (5, 1, 40), ..Raw::new(codec, 2, &two_records()) };
        let got = validate(&raw.bytes(), &rules()).unwrap();
        assert_eq!((got.record_count, got.max_timestamp, got.max_timestamp_offset_delta), (2, NOW + 5, 1));
        assert_eq!((got.producer_id, got.producer_epoch, got.base_sequence), (5, 1, 40));
        assert_eq!(got.key_hashes, Some(vec![Some(key_hash(b"k0")), Some(key_hash(b"k1"))]));
    }
}

#[test]
fn keys_are_hashed_only_where_asked_and_null_keys_have_no_hash() {
    let records = [record(0, 0, None, Some(b"v")), record(0, 1, Some(b""), None)].concat();
    let bytes = Raw::new(Codec::Lz4, 2, &records).bytes();
    assert_eq!(validate(&bytes, &Rules::new(NOW)).unwrap().key_hashes, None);
    let empty = KeyHash(0x2d06_8005_38d3_94c2);
    assert_eq!(validate(&bytes, &rules()).unwrap().key_hashes, Some(vec![None, Some(empty)]));
}

#[test]
fn p05_small_timestamps_are_taken() {
    for base_timestamp in [0, -1] {
        let raw = Raw { base_timestamp, ..Raw::new(Codec::None, 1, &record(0, 0, None, None)) };
        let got = validate(&raw.bytes(), &rules()).unwrap();
        assert_eq!(got.max_timestamp, base_timestamp);
        assert_eq!(got.max_timestamp_offset_delta, if base_timestamp == 0 { 0 } else { -1 });
    }
}

#[test]
fn p06_the_append_time_bit_of_a_client() {
    let raw = Raw { attributes: 0x08, ..Raw::new(Codec::None, 2, &two_records()) };
    assert_eq!(validate(&raw.bytes(), &rules()).unwrap().max_timestamp, NOW + 5);
    // On a topic with log-append time, and for records without a timestamp, Kafka refuses the claim.
    let append = Rules { timestamp_type: TimestampType::LogAppend, ..rules() };
    let got = validate(&raw.bytes(), &append).unwrap_err();
    assert!(matches!(&got, ValidationError::Timestamps(faults) if faults.len() == 2), "{got:?}");
    assert_eq!(got.record_errors()[1].fault, Fault::AppendTimeFromProducer);
    let raw = Raw { attributes: 0, base_timestamp: 5, ..raw };
    assert_eq!(validate(&raw.bytes(), &append).unwrap().record_count, 2);
}

#[test]
fn p07_the_true_max_timestamp_is_found() {
    for codec in Codec::ALL {
        for claimed in [-1, NOW + 10 * 365 * 86_400_000, NOW + 5] {
            let raw = Raw { max_timestamp: claimed, ..Raw::new(codec, 2, &two_records()) };
            let mut bytes = raw.bytes();
            let client = BatchView::parse(&bytes).unwrap().crc();
            let got = validate(&bytes, &rules()).unwrap();
            assert_eq!((got.max_timestamp, got.max_timestamp_offset_delta), (NOW + 5, 1));

            stamp(&mut bytes, Offset(10), 0, None, Some(got.max_timestamp));
            let stored = BatchView::parse(&bytes).unwrap();
            assert_eq!(stored.max_timestamp(), NOW + 5);
            assert!(stored.crc_is_valid());
            assert_eq!(
                stored.crc() == client,
                claimed == NOW + 5,
                "the client's crc stays where nothing changes"
            );
            assert_eq!(stored.payload(), raw.payload);
        }
    }
}

#[test]
fn timestamps_outside_of_the_topic_s_bounds_are_named() {
    let records = [record(0, 0, None, None), record(3_600_001, 1, None, None), record(-1001, 2, None, None)];
    let bytes = Raw::new(Codec::Gzip, 3, &records.concat()).bytes();
    let rules = Rules { before_ms: 1000, ..rules() };
    let got = validate(&bytes, &rules).unwrap_err();
    assert!(matches!(got, ValidationError::Timestamps(_)), "{got:?}");
    let named: Vec<i32> = got.record_errors().iter().map(|fault| fault.batch_index).collect();
    assert_eq!(named, [1, 2]);
    assert_eq!(
        got.record_errors()[0].to_string(),
        format!(
            "record 1 has timestamp {}, only {} to {} are taken here",
            NOW + 3_600_001,
            NOW - 1000,
            NOW + 3_600_000
        )
    );
    // The bounds speak of create time only.
    let append = Rules { timestamp_type: TimestampType::LogAppend, ..rules };
    assert_eq!(validate(&bytes, &append).unwrap().record_count, 3);
}

#[test]
fn p08_null_keys_on_a_compacted_topic() {
    let keys: [Option<&[u8]>; 4] = [Some(b"a"), None, Some(b"c"), None];
    let records: Vec<u8> =
        keys.iter().enumerate().flat_map(|(at, key)| record(0, at as i32, *key, Some(b"v"))).collect();
    for codec in Codec::ALL {
        let bytes = Raw::new(codec, 4, &records).bytes();
        let got = validate(&bytes, &Rules { keys_required: true, ..rules() }).unwrap_err();
        assert!(matches!(got, ValidationError::Records(_)), "{got:?}");
        let named: Vec<_> =
            got.record_errors().iter().map(|fault| (fault.batch_index, fault.fault)).collect();
        assert_eq!(named, [(1, Fault::NullKey), (3, Fault::NullKey)]);
        assert!(validate(&bytes, &rules()).is_ok());
    }
}

#[test]
fn p09_headers_of_every_kind_are_taken() {
    let headers = [
        Header { key: b"h", value: Some(b"") },
        Header { key: b"h", value: None },
        Header { key: b"", value: Some(b"x") },
    ];
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new(codec, TimestampType::Create);
        for index in 0..20 {
            builder.append(NOW + index, Some(b"k"), Some(b"v"), &headers);
        }
        let bytes = builder.build(Offset(0), -1);
        assert_eq!(validate(&bytes, &rules()).unwrap().record_count, 20);
        let records = BatchView::parse(&bytes).unwrap().records(1 << 20).unwrap();
        for record in &records {
            assert_eq!(record.unwrap().headers.iter().collect::<Vec<_>>(), headers);
        }
    }
}

#[test]
fn p10_exactly_one_batch_of_magic_2() {
    let one = Raw::new(Codec::None, 2, &two_records()).bytes();
    assert_invalid(&[]);
    assert_invalid(&[one.clone(), one.clone()].concat());
    assert_invalid(&[&one[..], b"x"].concat());
    assert_invalid(&one[..one.len() - 1]);
    // A message set: offset, size, then crc, magic, attributes, timestamp, null key, one-byte value.
    let mut message_set = vec![0; 8];
    message_set.extend_from_slice(&23_i32.to_be_bytes());
    message_set.extend_from_slice(&[0, 0, 0, 0, 1, 0]);
    message_set.extend_from_slice(&NOW.to_be_bytes());
    message_set.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'v']);
    assert_invalid(&message_set);
}

#[test]
fn p11_a_wrong_crc_is_damage() {
    let good = Raw::new(Codec::None, 2, &two_records()).bytes();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let mut claimed = good;
    claimed[17..21].copy_from_slice(&1_u32.to_be_bytes());
    for bytes in [flipped, claimed] {
        assert!(matches!(validate(&bytes, &rules()), Err(ValidationError::Damaged(_))));
    }
}

#[test]
fn p12_lengths_inside_the_batch() {
    let good = record(0, 0, Some(b"k0"), Some(b"v0"));
    for codec in Codec::ALL {
        assert_invalid(&Raw::new(codec, 1, &with_length(i32::MAX, &good[1..])).bytes());
        assert_invalid(&Raw::new(codec, 1, &with_length(-5, &good[1..])).bytes());
        assert_invalid(&Raw::new(codec, 1, &with_length(0, &[])).bytes());
        assert_invalid(&Raw::new(codec, 3, &two_records()).bytes());
        assert_invalid(&Raw::new(codec, 1, &two_records()).bytes());
        for count in [0, -1, i32::MIN] {
            assert_invalid(&Raw { count, ..Raw::new(codec, 1, &good) }.bytes());
        }
    }
}

#[test]
fn p13_undecodable_payloads_and_unknown_codecs() {
    for bits in 1..=7 {
        let raw = Raw { attributes: bits, payload: b"garbage!!".to_vec(), ..Raw::new(Codec::None, 1, &[]) };
        assert_invalid(&raw.bytes());
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let whole = Raw::new(codec, 2, &two_records());
        for cut in 1..whole.payload.len() {
            let raw = Raw { payload: whole.payload[..cut].to_vec(), ..whole.clone() };
            assert_invalid(&raw.bytes());
        }
    }
}

#[test]
fn p17_control_batches_are_the_broker_s() {
    let raw =
        Raw { attributes: 0x20, ..Raw::new(Codec::None, 1, &record(0, 0, Some(&[0; 4]), Some(&[0; 6]))) };
    assert_invalid(&raw.bytes());
    assert!(validate(&raw.bytes(), &Rules { control_allowed: true, ..rules() }).is_ok());
    let raw = Raw { attributes: 0x10, ..raw };
    assert!(validate(&raw.bytes(), &rules()).unwrap().is_transactional);
}

#[test]
fn p22_offset_deltas_count_up() {
    for codec in [Codec::None, Codec::Gzip] {
        for deltas in [[0, 0], [5, 9], [1, 0], [1, 2], [0, 2], [-1, 0]] {
            let records = deltas.map(|delta| record(0, delta, Some(b"k"), Some(b"v"))).concat();
            assert_invalid(&Raw::new(codec, 2, &records).bytes());
        }
        for last_offset_delta in [2, 0, -1, i32::MAX] {
            assert_invalid(&Raw { last_offset_delta, ..Raw::new(codec, 2, &two_records()) }.bytes());
        }
    }
}

#[test]
fn a_produced_batch_starts_at_offset_0_and_a_producer_counts() {
    assert_invalid(&Raw { base_offset: 7, ..Raw::new(Codec::None, 2, &two_records()) }.bytes());
    assert_invalid(&Raw { producer: (3, 0, -1), ..Raw::new(Codec::None, 2, &two_records()) }.bytes());
}

#[test]
fn sizes_and_codecs_that_the_rules_do_not_allow() {
    let bytes = Raw::new(Codec::Zstd, 2, &two_records()).bytes();
    let size = bytes.len();
    let small = Rules { batch_bytes_max: size - 1, ..rules() };
    assert_eq!(validate(&bytes, &small), Err(ValidationError::TooLarge { size, limit: size - 1 }));
    assert!(validate(&bytes, &Rules { batch_bytes_max: size, ..rules() }).is_ok());
    let old = Rules { zstd_allowed: false, ..rules() };
    assert_eq!(validate(&bytes, &old), Err(ValidationError::CodecNotAllowed));
    let many = Raw::new(Codec::None, RECORDS_MAX + 1, &two_records()).bytes();
    assert_eq!(validate(&many, &rules()), Err(ValidationError::TooManyRecords(RECORDS_MAX + 1)));
}

#[test]
fn b05_decompression_bombs_stop_at_the_bound() {
    let limit = 1 << 20;
    let rules = Rules { bytes_max: limit, ..rules() };
    // One record whose value is 64 MiB of zeros: well-formed, only too much.
    let value = vec![0; 64 << 20];
    let bomb = record(0, 0, Some(b"k"), Some(&value));
    let value_len = value.len();
    drop(value);
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let bytes = Raw::new(codec, 1, &bomb).bytes();
        assert!(bytes.len() < value_len / 100, "{codec:?}");
        let got = validate(&bytes, &rules);
        assert_eq!(got, Err(ValidationError::Undecodable(RecordError::TooLarge { limit })), "{codec:?}");
    }
    // Zeros are no records, however they are packed.
    let zeros = compress(Codec::Gzip, &vec![0; 64 << 20]);
    assert_invalid(&Raw { payload: zeros, attributes: 1, ..Raw::new(Codec::None, 1, &[]) }.bytes());
    // A frame that claims 2^40 bytes as its one segment.
    let claim = b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\x01\0\0\x01\0\0".to_vec();
    assert_invalid(&Raw { payload: claim, attributes: 4, ..Raw::new(Codec::None, 1, &[]) }.bytes());
}

#[test]
fn the_largest_record_counts_where_it_is_decompressed() {
    // Bodies of 70 bytes, together more than a window of the decoder holds.
    let records: Vec<u8> =
        (0..1_000).flat_map(|index| record(0, index, Some(b"k"), Some(&[7; 60]))).collect();
    let body = |bytes: &[u8]| {
        BatchView::parse(bytes)
            .unwrap()
            .records(1 << 20)
            .unwrap()
            .iter()
            .map(|record| record.unwrap().raw.len())
            .max()
            .unwrap()
    };
    for codec in Codec::ALL {
        let bytes = Raw::new(codec, 1_000, &records).bytes();
        // The length in front of each takes two bytes.
        let largest = body(&bytes) - 2;
        assert!(validate(&bytes, &Rules { record_bytes_max: largest, ..rules() }).is_ok(), "{codec:?}");
        let limit = largest - 1;
        let got = validate(&bytes, &Rules { record_bytes_max: limit, ..rules() });
        match codec {
            Codec::None => assert!(got.is_ok()),
            _ => assert_eq!(got, Err(ValidationError::Undecodable(RecordError::RecordTooLarge { limit }))),
        }
    }
    // One that a window does not hold, or that is not there at all.
    for records in [record(0, 0, Some(b"k"), Some(&[7; 100_000])), with_length(i32::MAX, b"x")] {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let bytes = Raw::new(codec, 1, &records).bytes();
            let got = validate(&bytes, &Rules { record_bytes_max: 99_999, ..rules() });
            assert_eq!(got, Err(ValidationError::Undecodable(RecordError::RecordTooLarge { limit: 99_999 })));
        }
    }
}

#[test]
fn b06_record_fields() {
    let mut headers = vec![0, 0, 0, 1, 1];
    records::varint::write_i32(&mut headers, i32::MAX);
    let mut negative_headers = vec![0, 0, 0, 1, 1];
    records::varint::write_i32(&mut negative_headers, -1);
    let mut long_key = vec![0, 0, 0];
    records::varint::write_i32(&mut long_key, 1000);
    long_key.extend_from_slice(b"short");
    // Key length −2; value length −2; one header without a name; header value length −2.
    let odd: [&[u8]; 4] =
        [&[0, 0, 0, 3, 1, 0], &[0, 0, 0, 1, 3, 0], &[0, 0, 0, 1, 1, 2, 1, 1], &[0, 0, 0, 1, 1, 2, 0, 3]];
    let bodies = [&headers[..], &negative_headers, &long_key].into_iter().chain(odd);
    for body in bodies {
        for codec in Codec::ALL {
            assert_invalid(&Raw::new(codec, 1, &with_length(body.len() as i32, body)).bytes());
        }
    }
    assert_invalid(&Raw::new(Codec::None, 1, &record(i64::MAX, 0, None, None)).bytes());
}
