use proptest::prelude::*;

use super::*;

#[test]
fn the_limit_is_exact() {
    let payload = vec![7_u8; 300_000];
    for codec in Codec::ALL {
        let packed = compress(codec, &payload);
        assert_eq!(decompress(codec, &packed, payload.len()).unwrap(), payload, "{codec:?}");
        for limit in [0, 1, 1000, payload.len() - 1] {
            assert_eq!(
                decompress(codec, &packed, limit),
                Err(RecordError::TooLarge { limit }),
                "{codec:?} {limit}"
            );
        }
    }
}

#[test]
fn a_cut_payload_is_corrupt() {
    let payload: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = compress(codec, &payload);
        for cut in [1, 2, 7, packed.len() / 2] {
            let got = decompress(codec, &packed[..packed.len() - cut], 1 << 20);
            assert!(matches!(got, Err(RecordError::Corrupt(_))), "{codec:?} cut by {cut}: {got:?}");
        }
    }
}

#[test]
fn raw_snappy_is_read() {
    let packed = snap::raw::Encoder::new().compress_vec(b"hello hello hello").unwrap();
    assert_eq!(decompress(Codec::Snappy, &packed, 100).unwrap(), b"hello hello hello");
}

#[test]
fn snappy_streams_one_behind_the_other_are_read() {
    let packed = [compress(Codec::Snappy, b"one"), compress(Codec::Snappy, b"two")].concat();
    assert_eq!(decompress(Codec::Snappy, &packed, 100).unwrap(), b"onetwo");
}

#[test]
fn lz4_with_linked_blocks_is_refused() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&[1; 100_000]).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(matches!(decompress(Codec::Lz4, &packed, 1 << 20), Err(RecordError::Corrupt(_))));
}

#[test]
fn lz4_checksums_and_content_size_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max256KB)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(9));
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(b"ninebytes").unwrap();
    let mut packed = encoder.finish().unwrap();
    assert_eq!(decompress(Codec::Lz4, &packed, 9).unwrap(), b"ninebytes");
    let block_at = 4 + 2 + 8 + 1 + 4;
    packed[block_at + 3] ^= 1;
    assert!(matches!(decompress(Codec::Lz4, &packed, 9), Err(RecordError::Corrupt(_))));
}

#[test]
fn a_claimed_size_allocates_nothing() {
    // One frame that claims 2^40 bytes as a single segment, and one that claims them beside a small window.
    let single_segment = b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\x01\0\0\x01\0\0";
    let windowed = b"\x28\xb5\x2f\xfd\xc0\x00\0\0\0\0\0\x01\0\0\x01\0\0";
    assert!(decompress(Codec::Zstd, single_segment, 1 << 20).is_err());
    assert!(decompress(Codec::Zstd, windowed, 1 << 20).is_ok_and(|out| out.capacity() == 0));
    // A raw snappy block of a few bytes that claims 4 GiB less one.
    assert!(decompress(Codec::Snappy, b"\xff\xff\xff\xff\x0f\0a", usize::MAX).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn inflates_what_it_deflated(payload in proptest::collection::vec(0_u8..8, 0..100_000)) {
        for codec in Codec::ALL {
            let packed = compress(codec, &payload);
            prop_assert_eq!(&decompress(codec, &packed, payload.len()).unwrap(), &payload);
        }
    }

    #[test]
    fn bytes_of_strangers_never_panic(bytes: Vec<u8>, at: usize, flip: u8, payload: Vec<u8>) {
        for codec in Codec::ALL {
            let _ = decompress(codec, &bytes, 1 << 16);
            let mut packed = compress(codec, &payload);
            if !packed.is_empty() {
                let at = at % packed.len();
                packed[at] ^= flip;
                if let Ok(out) = decompress(codec, &packed, 1 << 16) {
                    prop_assert!(out.len() <= 1 << 16);
                }
            }
        }
    }
}
