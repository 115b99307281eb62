use super::*;

fn batch(base_offset: i64, count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for index in 0..count {
        builder.append(1000 + index as i64, Some(format!("k{index}").as_bytes()), Some(b"v"), &[]);
    }
    builder.build(Offset(base_offset), 3).to_vec()
}

#[test]
fn a_view_reads_every_field() {
    let mut builder =
        BatchBuilder::new(Codec::Zstd, TimestampType::Create).producer(77, 4, 900).transactional();
    builder.append(500, None, None, &[]).append(400, Some(b"k"), Some(b"v"), &[]);
    let bytes = builder.build(Offset(12), 3);
    let view = BatchView::parse(&bytes).unwrap();
    assert_eq!(
        (view.base_offset(), view.last_offset(), view.next_offset()),
        (Offset(12), Offset(13), Offset(14))
    );
    assert_eq!((view.size(), view.bytes(), view.payload()), (bytes.len(), &bytes[..], &bytes[HEADER_LEN..]));
    assert_eq!((view.leader_epoch(), view.magic(), view.last_offset_delta()), (3, 2, 1));
    assert_eq!((view.base_timestamp(), view.max_timestamp()), (500, 500));
    assert_eq!((view.producer_id(), view.producer_epoch(), view.base_sequence()), (77, 4, 900));
    assert_eq!(view.record_count(), 2);
    let attributes = view.attributes();
    assert_eq!(attributes.codec(), Ok(Codec::Zstd));
    assert!(attributes.is_transactional() && !attributes.is_control() && !attributes.is_log_append_time());
    assert!(view.crc_is_valid());
}

#[test]
fn every_cut_is_incomplete() {
    let bytes = batch(0, 3);
    for cut in 0..bytes.len() {
        let got = BatchView::parse(&bytes[..cut]);
        assert!(
            matches!(got, Err(RecordError::Incomplete { available, .. }) if available == cut),
            "{cut}: {got:?}"
        );
    }
}

#[test]
fn other_formats_and_lengths_are_told_apart() {
    let bytes = batch(0, 1);
    let with = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        BatchView::parse(&bytes).map(|view| view.size())
    };
    assert_eq!(with(field::MAGIC, &[1]), Err(RecordError::Magic(1)));
    assert_eq!(with(field::MAGIC, &[0]), Err(RecordError::Magic(0)));
    assert!(matches!(with(field::MAGIC, &[3]), Err(RecordError::Corrupt(_))));
    assert!(matches!(with(field::LENGTH, &(-1_i32).to_be_bytes()), Err(RecordError::Corrupt(_))));
    assert!(matches!(with(field::LENGTH, &48_i32.to_be_bytes()), Err(RecordError::Corrupt(_))));
    let huge = with(field::LENGTH, &i32::MAX.to_be_bytes());
    assert!(matches!(huge, Err(RecordError::Incomplete { needed, .. }) if needed == i32::MAX as usize + 12));
}

#[test]
fn a_flipped_byte_breaks_the_crc() {
    let bytes = batch(0, 2);
    for at in field::CRC..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        assert!(!BatchView::parse(&bytes).unwrap().crc_is_valid(), "{at}");
    }
}

#[test]
fn batches_stop_where_the_damage_begins() {
    let mut bytes = [batch(0, 2), batch(2, 1), batch(3, 4)].concat();
    let all: Vec<i64> = Batches::new(&bytes).map(|batch| batch.unwrap().next_offset().0).collect();
    assert_eq!(all, [2, 3, 7]);

    let whole = bytes.len() - batch(3, 4).len();
    bytes.truncate(bytes.len() - 1);
    let mut batches = Batches::new(&bytes);
    assert_eq!(batches.by_ref().filter(Result::is_ok).count(), 2);
    assert_eq!(batches.position(), whole);

    let mut batches = Batches::new(&bytes);
    assert!(batches.nth(2).is_some_and(|last| last.is_err()));
    assert!(batches.next().is_none());
}

#[test]
fn a_hostile_base_offset_does_not_overflow() {
    let mut bytes = batch(0, 3);
    stamp(&mut bytes, Offset::MAX, 0, None, None);
    let view = BatchView::parse(&bytes).unwrap();
    assert_eq!(view.next_offset(), Offset::MAX);
    assert_eq!(view.records(1000).unwrap().iter().count(), 3);
}

#[test]
fn records_of_a_payload_inflated_before_are_the_same() {
    let mut builder = BatchBuilder::new(Codec::Zstd, TimestampType::Create);
    for index in 0..20_i64 {
        builder.append(index, Some(b"key"), Some(&[7; 100]), &[]);
    }
    let bytes = builder.build(Offset(30), 0);
    let view = BatchView::parse(&bytes).unwrap();
    let inflated = crate::compression::decompress(Codec::Zstd, view.payload(), 10_000).unwrap();
    let records = view.records(10_000).unwrap();
    let again = view.records_in(&inflated);
    assert!(records.iter().eq(again.iter()));
    assert_eq!(again.iter().count(), 20);
}
