use super::*;

fn header(producer: i64, epoch: i16, sequence: i32, count: i32, base: i64) -> BatchHeader {
    BatchHeader {
        base: Offset(base),
        size: 100,
        leader_epoch: 0,
        crc: 0,
        attributes: 0,
        last_delta: count - 1,
        max_timestamp: 1000 + base,
        producer_id: producer,
        producer_epoch: epoch,
        base_sequence: sequence,
        record_count: count,
    }
}

/// Offers a batch as a client does; the base offset it is answered with.
fn offer(state: &mut ProducerState, end: &mut i64, batch: (i16, i32, i32)) -> Result<i64, AppendError> {
    let header = header(7, batch.0, batch.1, batch.2, *end);
    match state.check(&header, Origin::Client, None)? {
        Verdict::Duplicate(stored) => Ok(stored.base().0),
        Verdict::Next => {
            state.note(&header, None);
            *end += i64::from(batch.2);
            Ok(header.base.0)
        }
    }
}

#[test]
fn p14_idempotent_duplicates() {
    let (mut state, mut end) = (ProducerState::default(), 0);
    let mut produce = |sequence, count| offer(&mut state, &mut end, (0, sequence, count));
    assert_eq!(produce(0, 3).unwrap(), 0);
    assert_eq!(produce(0, 3).unwrap(), 0);
    assert_eq!(produce(3, 1).unwrap(), 3);
    assert_eq!(produce(0, 3).unwrap(), 0);
    assert!(matches!(produce(9, 1), Err(AppendError::OutOfOrderSequence { last: 3, found: 9, .. })));
    for (sequence, base) in [(4, 4), (5, 5), (6, 6), (7, 7)] {
        assert_eq!(produce(sequence, 1).unwrap(), base);
    }
    assert!(matches!(produce(0, 3), Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(produce(3, 1).unwrap(), 3);
    assert!(matches!(produce(0, 2), Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(end, 8);
}

#[test]
fn p15_producer_epochs() {
    let (mut state, mut end) = (ProducerState::default(), 0);
    let mut produce = |epoch, sequence| offer(&mut state, &mut end, (epoch, sequence, 1));
    produce(0, 0).unwrap();
    assert!(matches!(produce(-1, 1), Err(AppendError::InvalidProducerEpoch { current: 0, found: -1, .. })));
    assert!(matches!(produce(1, 5), Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(produce(1, 0).unwrap(), 1);
    assert!(matches!(produce(0, 8), Err(AppendError::InvalidProducerEpoch { current: 1, found: 0, .. })));
}

#[test]
fn an_unknown_producer_may_begin_anywhere() {
    assert_eq!(
        ProducerState::default().check(&header(1, 0, 50, 2, 0), Origin::Client, None).unwrap(),
        Verdict::Next
    );
}

#[test]
fn sequences_go_on_over_the_wrap() {
    let mut state = ProducerState::default();
    state.note(&header(1, 0, i32::MAX - 1, 3, 0), None);
    let again = header(1, 0, i32::MAX - 1, 3, 3);
    assert!(
        matches!(state.check(&again, Origin::Client, None).unwrap(), Verdict::Duplicate(stored) if stored.base() == Offset(0))
    );
    assert_eq!(state.check(&header(1, 0, 1, 1, 3), Origin::Client, None).unwrap(), Verdict::Next);
    assert!(state.check(&header(1, 0, 0, 1, 3), Origin::Client, None).is_err());
}

#[test]
fn silent_producers_are_forgotten() {
    let mut state = ProducerState::default();
    state.note(&header(1, 0, 0, 1, 0), None);
    state.heard_of(1, 1_000);
    state.note(&header(2, 0, 0, 1, 500), None);
    state.heard_of(2, 1_500);
    // One that was read back: nobody knows for how long it is silent.
    state.note(&header(3, 0, 0, 1, 0), None);
    state.expire(2_000, 600);
    assert_eq!(state.len(), 2);
    assert!(state.check(&header(1, 0, 9, 1, 600), Origin::Client, None).is_ok());
    state.expire(2_500, 600);
    assert_eq!(state.len(), 1);
    state.expire(2_600, 600);
    assert_eq!(state.len(), 0);
}

#[test]
fn whoever_loads_old_data_is_not_silent() {
    let mut state = ProducerState::default();
    let day_ms = 86_400_000;
    state.note(&header(1, 0, 0, 1, 1), None);
    state.heard_of(1, 1_000 * day_ms);
    state.expire(1_000 * day_ms + 5_000, day_ms);
    assert!(matches!(
        state.check(&header(1, 0, 0, 1, 1), Origin::Client, None).unwrap(),
        Verdict::Duplicate(_)
    ));
}

#[test]
fn a_flood_of_producers_stays_bounded() {
    let mut state = ProducerState::default();
    for id in 0..PRODUCERS_MAX as i64 + 10 {
        state.note(&header(id, 0, 0, 1, id), None);
    }
    assert!(state.len() <= PRODUCERS_MAX);
    assert!(matches!(
        state.check(&header(PRODUCERS_MAX as i64, 0, 0, 1, 0), Origin::Client, None).unwrap(),
        Verdict::Duplicate(_)
    ));
}

#[test]
fn p24_the_snapshot_knows_one_batch_and_the_sidecar_five() {
    let mut state = ProducerState::default();
    for sequence in 0..7 {
        state.note(&header(3, 2, sequence, 1, i64::from(sequence)), None);
    }
    state.note(&header(9, 0, 5, 10, 7), None);
    let file = encode(&state);
    let mut read = decode(&file).unwrap();
    assert!(read.check(&header(3, 2, 5, 1, 17), Origin::Client, None).is_err());
    assert!(matches!(
        read.check(&header(3, 2, 6, 1, 17), Origin::Client, None).unwrap(),
        Verdict::Duplicate(_)
    ));
    decode_sidecar(&mut read, &encode_sidecar(&state)).unwrap();
    assert!(read.is_as(&state));
}

#[test]
fn the_snapshot_has_kafkas_bytes() {
    let mut state = ProducerState::default();
    let mut batch = header(0, 0, 1008, 16, 1008);
    batch.max_timestamp = 0x0000_01a2_2802_7596;
    state.note(&batch, None);
    // As Apache Kafka 4.4 wrote it at a roll.
    let mut expected = vec![0, 1, 0xae, 0xac, 0xdc, 0xe0, 0, 0, 0, 1];
    expected.extend_from_slice(&[0; 8]);
    expected.extend_from_slice(&[0, 0, 0, 0, 3, 0xff, 0, 0, 0, 0, 0, 0, 3, 0xff, 0, 0, 0, 15]);
    expected.extend_from_slice(&[0, 0, 1, 0xa2, 0x28, 2, 0x75, 0x96]);
    expected.extend_from_slice(&[0xff; 12]);
    assert_eq!(encode(&state), expected);
    assert!(decode(&expected).unwrap().is_as(&state));
}

#[test]
fn damage_is_noticed() {
    let mut state = ProducerState::default();
    state.note(&header(3, 2, 0, 1, 0), None);
    for file in [encode(&state), encode_sidecar(&state)] {
        for position in 0..file.len() {
            let mut damaged = file.clone();
            damaged[position] ^= 0x40;
            assert!(decode(&damaged).is_none());
            assert!(decode_sidecar(&mut ProducerState::default(), &damaged).is_none());
        }
        for len in 0..file.len() {
            assert!(decode(&file[..len]).is_none());
            assert!(decode_sidecar(&mut ProducerState::default(), &file[..len]).is_none());
        }
    }
}

#[test]
fn the_snapshot_of_transactions_has_kafkas_bytes() {
    // As Apache Kafka 4.4 wrote it: after commits, after an abort that raised the epoch, idempotent, and open since 7523.
    let stored = concat!(
        "0001b1830b9500000004",
        "00000000000000000007ffffffffffffffffffffffff00000000000001a22975f6bc00000000ffffffffffffffff",
        "00000000000000010001ffffffffffffffffffffffff00000000000001a229769b6000000002ffffffffffffffff",
        "0000000000000002000000000bb70000000000001d6200000016000001a229760c43ffffffffffffffffffffffff",
        "00000000000000030000000005c7000000000000232a00000002000001a229761ca7ffffffff0000000000001d63",
    );
    let byte = |at: usize| u8::from_str_radix(&stored[at..at + 2], 16).unwrap();
    let stored: Vec<u8> = (0..stored.len()).step_by(2).map(byte).collect();
    let state = decode(&stored).unwrap();
    assert_eq!(state.first_open(), Some(Offset(7523)));
    assert_eq!(encode(&state), stored);
    let fenced = state.check(&header(1, 1, -1, 1, 9004), Origin::Coordinator, Some(Marker::Commit(1)));
    assert!(matches!(fenced, Err(AppendError::CoordinatorFenced { current: 2, found: 1, .. })));
    let outside = state.check(&header(3, 0, 1480, 1, 9004), Origin::Client, None);
    assert!(matches!(outside, Err(AppendError::TransactionOpen { producer: 3, first: Offset(7523) })));
    let late = state.check(&header(0, 6, 0, 1, 9004), Origin::Client, None);
    assert!(
        matches!(late, Err(AppendError::InvalidProducerEpoch { current: 7, found: 6, .. })),
        "epoch before state"
    );
}

#[test]
fn many_open_transactions_are_all_kept() {
    let mut state = ProducerState::default();
    let count = PRODUCERS_MAX as i64 + 10;
    for id in 0..count {
        let begun = BatchHeader { attributes: 0x10, ..header(id, 0, 0, 1, id) };
        state.note(&begun, None);
    }
    assert_eq!(state.len() as i64, count);
    for id in 0..count {
        let marker = BatchHeader { attributes: 0x30, ..header(id, 0, -1, 1, count + id) };
        assert_eq!(state.first_open(), Some(Offset(id)));
        state.note(&marker, Some(Marker::Commit(0)));
    }
    assert_eq!(state.first_open(), None);
    assert!(state.len() <= PRODUCERS_MAX);
}
