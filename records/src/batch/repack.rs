//! A produced batch under another codec (`compression.type`, `LogValidator.validateMessagesAndAssignOffsetsCompressed`).
//!
//! The records stay as they are, byte for byte, and so does the header, but for length, codec and CRC.

use bytes::BytesMut;

use super::stamp::{put, write_crc};
use super::{Attributes, BatchView, HEADER_LEN, LOG_OVERHEAD, ValidationError, field};
use crate::compression::{Codec, Deflate, Full, Inflate};

/// How a topic wants its batches packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The codec.
    pub codec: Codec,
    /// Its level, where it has levels (gzip 1 to 9, zstd −131072 to 22); the codec's default where there is none.
    pub level: Option<i32>,
}

impl Packing {
    /// Whether a batch must be packed anew: only another codec counts, as in Kafka.
    #[must_use]
    pub fn differs(&self, batch: &BatchView<'_>) -> bool {
        batch.attributes().codec() != Ok(self.codec)
    }
}

/// Packs a validated batch's records anew. At most `inflated_max` bytes come out of it, piece by piece, and the new batch
/// has at most `batch_bytes_max` bytes (`max.message.bytes` holds for what is stored too, as in `UnifiedLog.append`).
///
/// # Errors
/// [`ValidationError::TooLargePacked`] beyond that; [`ValidationError::Undecodable`] where the batch was not validated.
pub fn repack(
    batch: &BatchView<'_>,
    packing: Packing,
    inflated_max: usize,
    batch_bytes_max: usize,
) -> Result<BytesMut, ValidationError> {
    let full = |_: Full| ValidationError::TooLargePacked { limit: batch_bytes_max };
    let mut inflate = Inflate::open(batch.attributes().codec()?, batch.payload(), inflated_max)?;
    let header = &batch.bytes()[..HEADER_LEN];
    if batch_bytes_max < HEADER_LEN {
        return Err(full(Full));
    }
    // The length of a batch is a signed 32-bit number.
    let limit = batch_bytes_max.min(i32::MAX as usize);
    let mut deflate = Deflate::new(packing.codec, packing.level, header.to_vec(), limit);
    loop {
        let window = inflate.fill()?;
        if window.is_empty() {
            break;
        }
        let taken = window.len();
        deflate.write(window).map_err(full)?;
        inflate.consume(taken);
    }
    let mut packed = BytesMut::from(bytes::Bytes::from(deflate.finish().map_err(full)?));
    let length = i32::try_from(packed.len() - LOG_OVERHEAD).expect("the limit is one of 32 bits");
    put(&mut packed, field::LENGTH, length.to_be_bytes());
    // A delete horizon is compaction's, not a client's: where the broker builds the batch it leaves it out, as Kafka does.
    let unchanged = !(Attributes::CODEC_MASK | Attributes::DELETE_HORIZON);
    let attributes = (batch.attributes().0 & unchanged) | packing.codec as i16;
    put(&mut packed, field::ATTRIBUTES, attributes.to_be_bytes());
    write_crc(&mut packed);
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TimestampType;
    use crate::batch::{BatchBuilder, Header, Rules, validate};
    use crate::ids::Offset;

    type Spec = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

    fn spec() -> impl Strategy<Value = Spec> {
        let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
        let headers = proptest::collection::vec(("[a-z]{0,5}", bytes()), 0..3);
        (0_i64..1 << 40, bytes(), bytes(), headers)
    }

    fn build(codec: Codec, producer: bool, transactional: bool, specs: &[Spec]) -> bytes::Bytes {
        let mut builder = BatchBuilder::new(codec, TimestampType::Create);
        if producer {
            builder = builder.producer(77, 3, 12);
        }
        if transactional {
            builder = builder.transactional();
        }
        for (timestamp, key, value, headers) in specs {
            let headers: Vec<_> = headers
                .iter()
                .map(|(key, value)| Header { key: key.as_bytes(), value: value.as_deref() })
                .collect();
            builder.append(*timestamp, key.as_deref(), value.as_deref(), &headers);
        }
        builder.build(Offset(0), -1)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn everything_but_the_packing_stays(
            from in 0_usize..5,
            to in 0_usize..5,
            level in proptest::option::of(1_i32..9),
            producer in any::<bool>(),
            transactional in any::<bool>(),
            specs in proptest::collection::vec(spec(), 1..40),
        ) {
            let (from, codec) = (Codec::ALL[from], Codec::ALL[to]);
            let sent = build(from, producer, transactional, &specs);
            let sent = BatchView::parse(&sent).unwrap();
            let packing = Packing { codec, level };
            prop_assert_eq!(packing.differs(&sent), from != codec);
            let packed = repack(&sent, packing, 1 << 20, 1 << 20).unwrap();
            let stored = BatchView::parse(&packed).unwrap();
            prop_assert_eq!(stored.size(), packed.len());
            prop_assert!(stored.crc_is_valid());
            prop_assert_eq!(stored.attributes().codec(), Ok(codec));
            let plain = Packing { codec: from, level: None };
            let back = repack(&stored, plain, 1 << 20, 1 << 20).unwrap();
            let back = BatchView::parse(&back).unwrap();
            prop_assert_eq!(&back.bytes()[23..HEADER_LEN], &sent.bytes()[23..HEADER_LEN]);
            prop_assert_eq!(&packed[23..HEADER_LEN], &sent.bytes()[23..HEADER_LEN]);
            prop_assert_eq!(stored.attributes().is_transactional(), transactional);
            let rules = Rules { after_ms: i64::MAX, hash_keys: true, ..Rules::new(0) };
            prop_assert_eq!(validate(&packed, &rules), validate(sent.bytes(), &rules));
            let (sent, stored) = (sent.records(1 << 20).unwrap(), stored.records(1 << 20).unwrap());
            let same = sent.iter().zip(stored.iter()).all(|(one, other)| one.unwrap().raw == other.unwrap().raw);
            prop_assert!(same);
        }
    }

    #[test]
    fn a_clients_delete_horizon_is_left_out() {
        let mut sent = build(Codec::Gzip, true, true, &[(5, None, None, Vec::new())]).to_vec();
        put(&mut sent, field::ATTRIBUTES, (Codec::Gzip as i16 | 0x50).to_be_bytes());
        write_crc(&mut sent);
        let sent = BatchView::parse(&sent).unwrap();
        assert!(sent.attributes().has_delete_horizon());
        let packed = repack(&sent, Packing { codec: Codec::Lz4, level: None }, 1 << 20, 1 << 20).unwrap();
        let stored = BatchView::parse(&packed).unwrap();
        assert_eq!(stored.attributes().0, Codec::Lz4 as i16 | 0x10);
        assert!(stored.crc_is_valid());
    }

    #[test]
    fn levels_are_those_of_the_codec() {
        let text: Vec<u8> =
            (0..60_000_u32).flat_map(|number| (number % 977 * 31).to_string().into_bytes()).collect();
        let sent = build(Codec::None, false, false, &[(0, None, Some(text), Vec::new())]);
        let sent = BatchView::parse(&sent).unwrap();
        let size = |codec, level| repack(&sent, Packing { codec, level }, 1 << 20, 1 << 20).unwrap().len();
        assert!(size(Codec::Gzip, Some(1)) > size(Codec::Gzip, Some(9)));
        assert_eq!(size(Codec::Gzip, None), size(Codec::Gzip, Some(6)));
        assert!(size(Codec::Zstd, Some(-1000)) > size(Codec::Zstd, Some(19)));
        assert_eq!(size(Codec::Zstd, None), size(Codec::Zstd, Some(3)));
        for level in [-131_072, 22] {
            assert!(size(Codec::Zstd, Some(level)) > HEADER_LEN);
        }
    }

    #[test]
    fn neither_side_goes_beyond_its_bound() {
        // Well packed, and large when it is not.
        let specs = [(0, None, Some(vec![0; 300_000]), Vec::new())];
        let sent = build(Codec::Zstd, false, false, &specs);
        let sent = BatchView::parse(&sent).unwrap();
        let whole =
            repack(&sent, Packing { codec: Codec::None, level: None }, 1 << 20, 1 << 20).unwrap().len();
        for codec in Codec::ALL {
            let packing = Packing { codec, level: None };
            let fits = repack(&sent, packing, 1 << 20, 1 << 20).unwrap().len();
            assert_eq!(
                repack(&sent, packing, 1 << 20, fits).map(|packed| packed.len()),
                Ok(fits),
                "{codec:?}"
            );
            for limit in [0, HEADER_LEN, fits - 1] {
                let refused = repack(&sent, packing, 1 << 20, limit);
                assert_eq!(refused, Err(ValidationError::TooLargePacked { limit }), "{codec:?}");
            }
            let limit = whole - HEADER_LEN - 1;
            assert!(matches!(repack(&sent, packing, limit, 1 << 20), Err(ValidationError::Undecodable(_))));
        }
    }
}
