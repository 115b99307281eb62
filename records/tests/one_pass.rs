//! Validation opens a payload once. Alone in its file: the counter is the process's.

mod support;

use records::Codec;
use records::batch::{Rules, validate};
use records::compression::payloads_opened;
use support::{NOW, Raw, record};

#[test]
fn p23_validation_costs_one_pass() {
    let records: Vec<u8> = (0..10_000_i32)
        .flat_map(|index| record(0, index, Some(format!("k{index}").as_bytes()), Some(&[7; 100])))
        .collect();
    let bytes = Raw::new(Codec::Zstd, 10_000, &records).bytes();
    for (hash_keys, keys_required) in [(false, false), (true, false), (false, true), (true, true)] {
        let before = payloads_opened();
        let got = validate(&bytes, &Rules { hash_keys, keys_required, ..Rules::new(NOW) }).unwrap();
        assert_eq!(got.record_count, 10_000);
        assert_eq!(got.key_hashes.map(|hashes| hashes.len()), hash_keys.then_some(10_000));
        assert_eq!(payloads_opened() - before, 1);
    }
}
