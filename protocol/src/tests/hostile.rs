//! Bytes of strangers: errors, never panics.

use bytes::Bytes;
use proptest::prelude::*;

use super::allocations::peak_bytes;
use super::samples;
use crate::api::{APIS, ApiKey};
use crate::decode::DecodeError;
use crate::header::RequestHeader;
use crate::limits::decoded_bytes_max;
use crate::request::Request;
use crate::wire;

/// Decodes, and checks that memory stays within what is reserved for it.
fn decode(key: ApiKey, version: i16, body: &[u8]) -> Result<Request, DecodeError> {
    let body = Bytes::copy_from_slice(body);
    let limit = decoded_bytes_max(key, body.len().max(1));
    let (request, peak) = peak_bytes(|| Request::decode(key, version, body));
    assert!(peak <= limit, "{key} v{version} took {peak} bytes of {limit}");
    request
}

#[test]
fn b04_every_prefix_of_a_valid_request_is_an_error() {
    for api in APIS {
        for version in api.min..=api.max {
            for seed in 0..8 {
                let body = samples::random(api.key, version, seed);
                for end in 0..body.len() {
                    let result = decode(api.key, version, &body[..end]);
                    assert!(result.is_err(), "{} v{version} reads {end} of {:02x?}", api.name, body);
                }
            }
        }
    }
}

#[test]
fn b13_every_short_body_of_every_api_is_read_or_refused_within_its_memory() {
    const BYTES: [u8; 5] = [0x00, 0x01, 0x0f, 0x80, 0xff];
    for api in APIS {
        for version in [api.min, api.flexible_from.clamp(api.min, api.max), api.max] {
            for number in 0..BYTES.len().pow(5) {
                let body: [u8; 5] = std::array::from_fn(|at| BYTES[number / BYTES.len().pow(at as u32) % 5]);
                let _ = decode(api.key, version, &body);
            }
        }
    }
}

#[test]
fn b13_every_five_byte_frame_is_refused() {
    for key in 0..=100_i16 {
        for count in [0x00, 0x7f, 0xff] {
            let [high, low] = key.to_be_bytes();
            let frame = Bytes::copy_from_slice(&[high, low, 0, 0, count]);
            assert!(RequestHeader::decode(&frame).is_err());
        }
    }
}

#[test]
fn b02_counts_beyond_the_bytes_that_remain_allocate_nothing() {
    let mut hostile = Vec::new();
    for count in [i32::MAX, 1_000_000, i32::MAX / 2 + 1] {
        hostile.push((ApiKey::Metadata, 1, count.to_be_bytes().to_vec()));
        let mut metadata = count.to_be_bytes().to_vec();
        metadata.resize(20, 0);
        hostile.push((ApiKey::Metadata, 1, metadata));
        let join = [&[0, 1, b'g'][..], &[0; 4], &[0; 4], &[0, 0], &[0, 0], &count.to_be_bytes()].concat();
        hostile.push((ApiKey::JoinGroup, 2, join));
        let produce = [&[0xff, 0xff, 0, 1][..], &[0; 4], &count.to_be_bytes()].concat();
        hostile.push((ApiKey::Produce, 3, produce));
        let fetch = [&[0; 17][..], &count.to_be_bytes()].concat();
        hostile.push((ApiKey::Fetch, 4, fetch));
    }
    for (key, version, body) in hostile {
        let body = Bytes::from(body);
        let (result, peak) = peak_bytes(|| Request::decode(key, version, body));
        assert!(matches!(result, Err(DecodeError::CountTooLarge { .. })), "{key}: {result:?}");
        assert!(peak < 200, "{key} v{version} took {peak} bytes");
    }
}

#[test]
fn b02_a_count_in_any_place_stays_within_its_memory() {
    // 2^31 − 1 and a million as int32, 2^31 − 2 and 2^32 − 2 as compact counts.
    let counts: [&[u8]; 4] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x00, 0x0f, 0x42, 0x40],
        &[0xff, 0xff, 0xff, 0xff, 0x07],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
    ];
    for api in APIS {
        for version in api.min..=api.max {
            for seed in 0..2 {
                let body = samples::random(api.key, version, seed);
                for at in 0..body.len() {
                    for count in counts {
                        let behind = body.get(at + count.len()..).unwrap_or_default();
                        let _ = decode(api.key, version, &[&body[..at], count, behind].concat());
                    }
                }
            }
        }
    }
}

#[test]
fn b02_header_tag_count_is_bounded() {
    let frame = [&[0, 3, 0, 12, 0, 0, 0, 7, 0xff, 0xff][..], &[0x80, 0x80, 0x80, 0x80, 0x08]].concat();
    let (result, peak) = peak_bytes(|| RequestHeader::decode(&Bytes::from(frame)));
    assert!(matches!(result, Err(DecodeError::CountTooLarge { .. })), "{result:?}");
    assert!(peak < 200, "took {peak} bytes");
}

#[test]
fn b02_other_negative_counts_are_null() {
    for count in [-1_i32, -2, -77, i32::MIN] {
        let request = decode(ApiKey::Metadata, 1, &count.to_be_bytes()).unwrap();
        let Request::Metadata(request) = request else { panic!("{request:?}") };
        assert_eq!(request.topics, None, "{count}");
        // Where null is not allowed, Kafka closes.
        assert!(decode(ApiKey::Metadata, 0, &count.to_be_bytes()).is_err());
    }
    for length in [-1_i16, -2, i16::MIN] {
        let body = [&length.to_be_bytes()[..], &[0, 0, 0, 9]].concat();
        let request = decode(ApiKey::InitProducerId, 0, &body).unwrap();
        let Request::InitProducerId(request) = request else { panic!("{request:?}") };
        assert_eq!((request.transactional_id, request.transaction_timeout_ms), (None, 9));
        let body = [&length.to_be_bytes()[..], &[0, 1], &[0, 0, 0, 9], &[0; 4]].concat();
        let request = decode(ApiKey::Produce, 3, &body).unwrap();
        let Request::Produce(request) = request else { panic!("{request:?}") };
        assert_eq!((request.transactional_id, request.acks, request.timeout_ms), (None, 1, 9));
    }
}

#[test]
fn booleans_are_true_but_for_zero() {
    for (byte, value) in [(0, false), (1, true), (2, true), (0xff, true)] {
        let request = decode(ApiKey::Metadata, 4, &[0xff, 0xff, 0xff, 0xff, byte]).unwrap();
        let Request::Metadata(request) = request else { panic!("{request:?}") };
        assert_eq!(request.allow_auto_topic_creation, value);
    }
}

#[test]
fn b11_names_that_are_no_utf8_reach_the_name_check() {
    for (name, read) in [(&b"a\xffb"[..], "a?b"), (b"\xc3", "?"), (b"\xe2\x82x\xff\xff", "??x??")] {
        let mut body = vec![0, 0, 0, 1, 0, name.len() as u8];
        body.extend_from_slice(name);
        let request = decode(ApiKey::Metadata, 1, &body).unwrap();
        let Request::Metadata(request) = request else { panic!("{request:?}") };
        assert_eq!(request.topics.unwrap()[0].name.as_deref(), Some(read));
        let body = [&[0xff, 0xff, 0, 1, 0, 0, 0, 9][..], &body, &[0; 4]].concat();
        let request = decode(ApiKey::Produce, 3, &body).unwrap();
        let Request::Produce(request) = request else { panic!("{request:?}") };
        assert_eq!(request.topics[0].topic.name().unwrap().as_str(), read);
    }
}

#[test]
fn unsupported_versions_are_told_apart_from_malformed_bytes() {
    for api in APIS {
        for version in [api.min - 1, api.max + 1, i16::MIN, i16::MAX] {
            let result = Request::decode(api.key, version, Bytes::from_static(&[0; 40]));
            assert_eq!(
                result.unwrap_err(),
                DecodeError::UnsupportedVersion { name: api.name, version },
                "{} v{version}",
                api.name
            );
        }
    }
}

#[test]
fn requests_are_the_generated_ones() {
    let body = Bytes::from_static(&[0, 0, 0, 1, 0, 1, b't']);
    let mut topic = wire::metadata_request::MetadataRequestTopic::default();
    topic.name = Some("t".into());
    let mut expected = wire::MetadataRequest::default();
    expected.topics = Some(vec![topic]);
    assert_eq!(Request::decode(ApiKey::Metadata, 1, body).unwrap(), Request::Metadata(expected));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_read_or_refused_within_their_memory(
        body in proptest::collection::vec(
            prop_oneof![4 => 0..4_u8, 1 => Just(0xff_u8), 1 => any::<u8>()],
            0..200,
        ),
    ) {
        for api in APIS {
            for version in [api.min, api.flexible_from.clamp(api.min, api.max), api.max] {
                let _ = decode(api.key, version, &body);
            }
        }
    }

    #[test]
    fn one_changed_byte_never_panics(seed: u64, at: proptest::sample::Index, byte: u8) {
        for api in APIS {
            for version in api.min..=api.max {
                let mut body = samples::random(api.key, version, seed);
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = byte;
                }
                let _ = decode(api.key, version, &body);
            }
        }
    }
}
