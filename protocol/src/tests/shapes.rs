//! The shapes are the codec's: what a shape makes is what two other codecs read, to the last byte.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey as OtherKey, RequestKind};
use proptest::prelude::*;

use super::samples;
use crate::api::{APIS, ApiKey};
use crate::request::Request;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn generated_codec_reads_what_a_shape_makes(seed: u64) {
        for api in APIS {
            for version in api.min..=api.max {
                let body = samples::random(api.key, version, seed);
                let request = Request::decode(api.key, version, Bytes::from(body.clone()))
                    .unwrap_or_else(|error| panic!("{} v{version}: {error}: {body:02x?}", api.name));
                prop_assert_eq!(request.key(), api.key);
                if let Some(again) = request.encode_generated(version) {
                    prop_assert_eq!(&again[..], &body[..], "{} v{}", api.name, version);
                }
            }
        }
    }

    #[test]
    fn second_library_reads_what_a_shape_makes(seed: u64) {
        let mut unknown = Vec::new();
        for api in APIS {
            for version in api.min..=api.max {
                let body = samples::random(api.key, version, seed);
                let mut left = Bytes::from(body.clone());
                let Some(request) = OtherKey::try_from(api.key.code())
                    .ok()
                    .and_then(|key| RequestKind::decode(key, &mut left, version).ok())
                else {
                    unknown.push((api.key, version));
                    continue;
                };
                prop_assert!(left.is_empty(), "{} v{} leaves {} bytes", api.name, version, left.len());
                let mut again = BytesMut::new();
                request.encode(&mut again, version).unwrap();
                prop_assert_eq!(&again[..], &body[..], "{} v{}", api.name, version);
            }
        }
        prop_assert_eq!(unknown, UNKNOWN_TO_SECOND_LIBRARY);
    }

    #[test]
    fn b04_trailing_bytes_are_accepted(seed: u64, trailing in proptest::collection::vec(any::<u8>(), 1..40)) {
        for api in APIS {
            for version in api.min..=api.max {
                let body = samples::random(api.key, version, seed);
                let alone = Request::decode(api.key, version, Bytes::from(body.clone())).unwrap();
                let longer = Bytes::from([body, trailing.clone()].concat());
                prop_assert_eq!(Request::decode(api.key, version, longer).unwrap(), alone);
            }
        }
    }
}

/// What kafka-protocol 0.18 does not know yet.
const UNKNOWN_TO_SECOND_LIBRARY: &[(ApiKey, i16)] = &[
    (ApiKey::ListOffsets, 11),
    (ApiKey::OffsetCommit, 10),
    (ApiKey::OffsetFetch, 10),
    (ApiKey::ApiVersions, 5),
    (ApiKey::DescribeLogDirs, 5),
    (ApiKey::DeleteGroups, 3),
    (ApiKey::ShareFetch, 2),
    (ApiKey::ShareAcknowledge, 2),
    (ApiKey::DescribeShareGroupOffsets, 1),
    (ApiKey::KeyShareCommit, 0),
    (ApiKey::KeyShareDescribe, 0),
    (ApiKey::KeyShareFetch, 0),
    (ApiKey::KeyShareAcknowledge, 0),
    (ApiKey::KeyShareAlter, 0),
];
