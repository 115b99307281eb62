//! Transactions come over with their markers; those that the source left open get the end that their coordinator had
//! decided.

use bytes::BytesMut;
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{BatchView, Codec, TimestampType};

use super::kafka::{ID, Kafka, Target, record};
use crate::testing::{NOW, TOPIC, batch, marker, partition, transactional};
use crate::transactions::{AbortedTransaction, Marker};
use crate::{AppendError, LogConfig, Origin};

const STATE: &str = "__transaction_state";
const STATE_ID: TopicId = TopicId([6; 16]);
const ONGOING: u8 = 1;
const PREPARE_COMMIT: u8 = 2;
const COMPLETE_ABORT: u8 = 5;

/// A `TransactionLogValue` of version 1.
fn state(producer: i64, state: u8) -> BytesMut {
    let (id, epoch, timeout) = (producer.to_be_bytes(), 3_i16.to_be_bytes(), 60_000_i32.to_be_bytes());
    let partitions_and_times = [&[0_u8][..], &[0; 16], &[0]].concat();
    let value = [&[0, 1][..], &id, &epoch, &timeout, &[state], &partitions_and_times].concat();
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    builder.append(NOW, Some(format!("key of {producer}").as_bytes()), Some(&value), &[]);
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

fn stop(mut kafka: Kafka, states: &[(i64, u8)]) -> super::kafka::Stopped {
    let id = PartitionId { topic: STATE_ID, index: 0 };
    let logs = kafka.world.logs();
    logs.open_partition(id, STATE, LogConfig { compact: true, ..LogConfig::default() }).unwrap();
    for (producer, code) in states {
        logs.append(id, state(*producer, *code), Origin::Coordinator, NOW).unwrap();
    }
    kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::topic(STATE, STATE_ID),
        record::partition(STATE_ID, 0, 0),
    ])
}

/// The markers from `from` on, with the producer's epoch that each bears.
fn markers(broker: &mut super::kafka::Broker, from: i64) -> Vec<(i64, i16, Marker)> {
    let end = broker.facts.unwrap().end;
    let slice = broker.logs.read(partition(0), Offset(from), 1 << 20, end, true).unwrap();
    let bytes = slice.read().unwrap();
    let batches = records::Batches::new(&bytes).map(Result::unwrap);
    batches
        .filter(|batch| batch.attributes().is_control())
        .map(|batch: BatchView<'_>| (batch.producer_id(), batch.producer_epoch(), Marker::of(&batch)))
        .collect()
}

#[test]
fn p25_open_transactions_end_as_their_coordinator_had_decided() {
    let mut kafka = Kafka::new();
    kafka.append(transactional(1, 3, 0, "a", 2));
    kafka.append(transactional(2, 3, 0, "b", 2));
    kafka.append(transactional(3, 3, 0, "c", 2));
    kafka.append(transactional(4, 3, 0, "d", 2));
    kafka.world.coordinate(marker(4, 3, false, 7)).unwrap();
    kafka.append(transactional(4, 3, 2, "d", 2));
    kafka.append(batch(5));
    let stopped = stop(kafka, &[(1, ONGOING), (2, ONGOING), (2, PREPARE_COMMIT), (4, COMPLETE_ABORT)]);
    let target = Target::new();
    stopped.import(&target).unwrap();
    for _ in 0..2 {
        let mut broker = target.start();
        let facts = broker.facts.unwrap();
        assert_eq!((facts.end, facts.last_stable), (Offset(20), Offset(20)));
        let ends = [
            (1, 4, Marker::Abort(0)),
            (2, 4, Marker::Commit(0)),
            (3, 4, Marker::Abort(0)),
            // No coordinator of a lower epoch may end it.
            (4, 4, Marker::Abort(7)),
        ];
        assert_eq!(markers(&mut broker, 10), ends);
        let slice = broker.logs.read(partition(0), Offset(0), 1 << 20, facts.end, true).unwrap();
        let aborted: Vec<(i64, i64, i64)> = broker
            .logs
            .aborted(partition(0), Offset(0), &slice)
            .unwrap()
            .iter()
            .map(|AbortedTransaction { producer, first, last, .. }| (*producer, first.0, last.0))
            .collect();
        assert_eq!(aborted, [(4, 6, 8), (1, 0, 16), (3, 4, 18), (4, 9, 19)]);
        let late = broker.logs.append(partition(0), transactional(1, 3, 2, "a", 1), Origin::Client, NOW);
        assert!(matches!(late, Err(AppendError::InvalidProducerEpoch { .. })), "{late:?}");
    }
}

#[test]
fn p25_a_marker_above_the_high_watermark_is_written_anew() {
    let mut kafka = Kafka::new();
    kafka.append(transactional(1, 3, 0, "a", 2));
    kafka.world.coordinate(marker(1, 3, true, 5)).unwrap();
    let stopped = stop(kafka, &[(1, PREPARE_COMMIT)]);
    stopped.write("replication-offset-checkpoint", b"0\n2\nt 0 2\n__transaction_state 0 1\n");
    let target = Target::new();
    stopped.import(&target).unwrap();
    let mut broker = target.start();
    assert_eq!(markers(&mut broker, 0), [(1, 4, Marker::Commit(0))]);
}

#[test]
fn p25_a_transaction_whose_records_are_all_deleted_hides_nothing() {
    let config = LogConfig { segment_bytes: 1024, file_delete_delay_ms: 0, ..LogConfig::default() };
    let mut kafka = Kafka::with(config.clone());
    kafka.append(transactional(1, 3, 0, "a", 2));
    for _ in 0..20 {
        kafka.append(batch(10));
    }
    kafka.world.logs().delete_records(partition(0), Offset(150)).unwrap();
    let stopped = stop(kafka, &[]);
    let target = Target::with(config);
    stopped.import(&target).unwrap();
    let facts = target.start().facts.unwrap();
    assert_eq!((facts.log_start, facts.end, facts.last_stable), (Offset(150), Offset(203), Offset(203)));
}

#[test]
fn p25_a_damaged_or_unknown_transaction_state_is_refused() {
    let mut kafka = Kafka::new();
    kafka.append(batch(1));
    let stopped = stop(kafka, &[(9, ONGOING)]);
    let path = "__transaction_state-0/00000000000000000000.log";
    let mut bytes = stopped.read(path);
    let value = [0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    let version = bytes.windows(value.len()).position(|found| found == value).unwrap();
    bytes[version + 1] = 9;
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    stopped.write(path, &bytes);
    let text = stopped.import(&Target::new()).unwrap_err().to_string();
    assert!(text.contains("__transaction_state-0") && text.contains("unknown version 9"), "{text}");
    stopped.flip(path, 70);
    let text = stopped.import(&Target::new()).unwrap_err().to_string();
    assert!(text.contains("at byte 0: crc does not match"), "{text}");
}
