//! The table of APIs against Kafka 4.4's list, and against the generated codec's.

use kafka_wire_core::ApiKey as WireKey;
use protocol::api::{APIS, NEVER};
use protocol::{ApiKey, Refusal, response, wire};

/// Ranges that Apache Kafka 4.4 advertises, measured.
const KAFKA: &[(i16, i16, i16)] = &[
    (0, 0, 13),
    (1, 4, 18),
    (2, 1, 11),
    (3, 0, 13),
    (8, 2, 10),
    (9, 1, 10),
    (10, 0, 6),
    (11, 0, 9),
    (12, 0, 4),
    (13, 0, 5),
    (14, 0, 5),
    (15, 0, 6),
    (16, 0, 5),
    (18, 0, 5),
    (19, 2, 7),
    (20, 1, 6),
    (21, 0, 2),
    (22, 0, 5),
    (23, 2, 4),
    (32, 1, 4),
    (35, 1, 5),
    (37, 0, 3),
    (42, 0, 3),
    (44, 0, 1),
    (47, 0, 0),
    (60, 0, 2),
    (74, 0, 1),
    (75, 0, 0),
    (76, 1, 1),
    (77, 1, 1),
    (78, 1, 2),
    (79, 1, 2),
    (90, 0, 1),
    (91, 0, 0),
    (92, 0, 0),
];

fn advertised() -> Vec<(i16, i16, i16)> {
    response::advertised_versions()
        .iter()
        .map(|versions| (versions.api_key, versions.min_version, versions.max_version))
        .collect()
}

#[test]
fn w01_ranges_are_kafkas() {
    let kafkas: Vec<_> = advertised().into_iter().filter(|&(key, ..)| key < 10_000).collect();
    assert_eq!(kafkas, KAFKA);
}

#[test]
fn w01_keys_ascend_and_ranges_are_ranges() {
    let advertised = advertised();
    assert!(advertised.is_sorted_by(|left, right| left.0 < right.0));
    assert!(advertised.iter().all(|&(_, min, max)| 0 <= min && min <= max));
}

#[test]
fn w06_produce_is_advertised_from_0_and_served_from_3() {
    assert_eq!(advertised()[0], (0, 0, 13));
    for version in 0..3 {
        assert!(matches!(ApiKey::route(0, version), Err(Refusal::UnsupportedVersion { .. })));
    }
    assert_eq!(ApiKey::route(0, 3), Ok(ApiKey::Produce));
    // Only Produce is advertised beyond what is served.
    for api in APIS.iter().filter(|api| api.key != ApiKey::Produce) {
        assert_eq!(api.advertised_min, api.min, "{}", api.name);
    }
}

#[test]
fn w07_unsupported_versions_and_unknown_keys_are_refused() {
    for (key, version) in [(0, 14), (1, 3), (1, 19), (2, 0), (3, 14), (8, 1), (11, 10), (12, -1), (22, 6)] {
        let refusal = ApiKey::route(key, version).unwrap_err();
        assert!(matches!(refusal, Refusal::UnsupportedVersion { .. }), "({key}, {version}): {refusal}");
        assert!(refusal.to_string().contains(&version.to_string()), "{refusal}");
    }
    for key in [4, 17, 36, 52, 83, 87, 93, 9999, 10_009, 10_080, -1, i16::MIN, i16::MAX] {
        assert_eq!(ApiKey::route(key, 0), Err(Refusal::UnknownApi { api_key: key }));
    }
    for version in [6, 127, -1, i16::MIN, i16::MAX] {
        assert_eq!(ApiKey::route(18, version), Err(Refusal::ApiVersionsTooNew { version }));
    }
}

#[test]
fn w16_key_share_keys_sit_at_the_end() {
    let advertised = advertised();
    let own = [10_008, 10_077, 10_078, 10_079, 10_091].map(|key| (key, 0, 0));
    assert_eq!(advertised[advertised.len() - own.len()..], own);
    for (own, sibling) in [
        (ApiKey::KeyShareCommit, ApiKey::OffsetCommit),
        (ApiKey::KeyShareDescribe, ApiKey::ShareGroupDescribe),
        (ApiKey::KeyShareFetch, ApiKey::ShareFetch),
        (ApiKey::KeyShareAcknowledge, ApiKey::ShareAcknowledge),
        (ApiKey::KeyShareAlter, ApiKey::AlterShareGroupOffsets),
    ] {
        assert_eq!(own.code(), 10_000 + sibling.code());
    }
}

#[test]
fn flexible_versions_and_headers_are_the_generated_codecs() {
    for api in APIS.iter().filter(|api| api.key.code() < 10_000) {
        let descriptor = wire::API_DESCRIPTORS
            .iter()
            .find(|descriptor| descriptor.api_key == WireKey::new(api.key.code()))
            .expect("the generated codec has every API of Kafka's");
        assert_eq!(descriptor.request.name, format!("{}Request", api.name));
        let flexible_from = descriptor.flexible_versions.map_or(NEVER, |flexible| flexible.min().value());
        assert_eq!(flexible_from.max(api.min), api.flexible_from.max(api.min), "{}", api.name);
        let supported = descriptor.supported_versions;
        assert!(supported.min().value() <= api.min && api.max <= supported.max().value(), "{}", api.name);
        for version in api.min..=api.max {
            let flexible = version >= api.flexible_from;
            assert_eq!(api.request_header_version(version), if flexible { 2 } else { 1 });
            let response = if flexible && api.key != ApiKey::ApiVersions { 1 } else { 0 };
            assert_eq!(api.response_header_version(version), response);
        }
    }
}

#[test]
fn every_row_is_found_by_its_key() {
    for api in APIS {
        assert_eq!(ApiKey::from_code(api.key.code()), Some(api.key));
        assert_eq!(api.key.api(), api);
        assert_eq!(api.key.to_string(), api.name);
    }
}
