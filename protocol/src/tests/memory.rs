//! What decoding takes stays within what is reserved for it, and real requests stay within what is allowed.

use bytes::Bytes;

use super::allocations::peak_bytes;
use super::samples;
use crate::api::{APIS, ApiKey};
use crate::decode::DecodeError;
use crate::limits::decoded_bytes_max;
use crate::request::Request;

#[test]
fn swollen_bodies_take_no_more_than_is_reserved() {
    const COUNTS: &[&[usize]] = &[
        &[1],
        &[5],
        &[33],
        &[1, 0],
        &[3000, 0],
        &[3000, 1, 0],
        &[3000, 1, 1],
        &[1, 3000, 0],
        &[1, 3000, 1],
        &[33, 129, 1],
        &[40_001, 0],
        &[1, 40_001, 0],
        &[1, 1, 40_001],
        &[8_193, 1],
    ];
    let (mut read, mut refused) = (0, 0);
    for api in APIS {
        let mut versions = vec![api.min, api.flexible_from.clamp(api.min, api.max), api.max];
        versions.dedup();
        for version in versions {
            for counts in COUNTS {
                for tags in [0, 1, 5] {
                    let Some(body) = samples::swollen(api.key, version, counts, tags) else { continue };
                    let limit = decoded_bytes_max(api.key, body.len().max(1));
                    let body = Bytes::from(body);
                    let (result, peak) = peak_bytes(|| Request::decode(api.key, version, body));
                    assert!(
                        peak <= limit,
                        "{} v{version} {counts:?} with {tags} tags: {peak} bytes of {limit}",
                        api.name
                    );
                    match result {
                        Ok(_) => read += 1,
                        Err(DecodeError::BudgetExceeded { .. }) => refused += 1,
                        Err(error) => panic!("{} v{version} {counts:?}: {error}", api.name),
                    }
                }
            }
        }
    }
    assert!(read > 1000 && refused > 100, "{read} read, {refused} refused: the sweep tests nothing");
}

#[test]
fn a_million_empty_names_are_refused_before_they_take_memory() {
    let mut body = 1_000_000_i32.to_be_bytes().to_vec();
    body.resize(4 + 2_000_000, 0);
    let (result, peak) = peak_bytes(|| Request::decode(ApiKey::Metadata, 1, Bytes::from(body)));
    assert!(matches!(result, Err(DecodeError::BudgetExceeded { .. })), "{result:?}");
    assert!(peak < 200, "took {peak} bytes");
}

#[test]
fn large_requests_of_real_clients_are_read() {
    for count in [10_i32, 5_000, 50_000] {
        let names = (0..count).map(|topic| format!("department-{topic}"));
        let mut metadata = count.to_be_bytes().to_vec();
        let mut commit = [&[0, 2, b'g', b'1'][..], &[0; 4], &[0, 0], &count.to_be_bytes()].concat();
        for name in names {
            metadata.extend((name.len() as u16).to_be_bytes());
            metadata.extend(name.as_bytes());
            // One partition a topic, without metadata.
            commit.extend((name.len() as u16).to_be_bytes());
            commit.extend(name.as_bytes());
            commit.extend(1_i32.to_be_bytes());
            commit.extend([0; 16]);
            commit.extend([0, 0]);
        }
        for (key, version, body) in [(ApiKey::Metadata, 1, metadata), (ApiKey::OffsetCommit, 6, commit)] {
            let limit = decoded_bytes_max(key, body.len());
            let (result, peak) = peak_bytes(|| Request::decode(key, version, Bytes::from(body)));
            assert!(result.is_ok(), "{count} topics: {:?}", result.err());
            assert!(peak <= limit);
        }
    }
}

#[test]
fn small_frames_reserve_little() {
    for api in APIS {
        assert!(decoded_bytes_max(api.key, 100) <= 12_800);
    }
}

#[test]
fn record_bytes_are_slices_of_the_frame() {
    let records = vec![7_u8; 1_000_000];
    let body = [
        &[0xff, 0xff, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0][..],
        &1_000_000_i32.to_be_bytes(),
        &records,
    ]
    .concat();
    let (request, peak) = peak_bytes(|| Request::decode(ApiKey::Produce, 3, Bytes::from(body)).unwrap());
    let Request::Produce(request) = request else { panic!("{request:?}") };
    assert_eq!(request.topics[0].partitions[0].records.as_deref(), Some(&records[..]));
    assert!(peak < 1000, "took {peak} bytes");
}
