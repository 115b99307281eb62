//! Which stored batches may stand in one slim batch, and which may not.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands, in its helpers too")]

use records::batch::{BatchBuilder, BatchView, SlimBuilder};
use records::ids::Offset;
use records::{Codec, TimestampType};

fn stored(builder: BatchBuilder, base_offset: i64, timestamp: i64) -> Vec<u8> {
    let mut builder = builder;
    builder.append(timestamp, Some(b"k"), Some(b"v"), &[]);
    builder.build(Offset(base_offset), 0).to_vec()
}

fn plain() -> BatchBuilder {
    BatchBuilder::new(Codec::None, TimestampType::Create)
}

fn append_time() -> BatchBuilder {
    BatchBuilder::new(Codec::None, TimestampType::LogAppend)
}

fn joins(first: &[u8], next: &[u8]) -> bool {
    let first = BatchView::parse(first).unwrap();
    let mut slim = SlimBuilder::new(&first);
    for record in &first.records(1000).unwrap() {
        slim.push(&record.unwrap()).unwrap();
    }
    slim.join(&BatchView::parse(next).unwrap())
}

#[test]
fn plain_batches_of_any_producer_join() {
    assert!(joins(&stored(plain(), 0, 10), &stored(plain(), 1, 20)));
    assert!(joins(&stored(plain().producer(1, 0, 0), 0, 10), &stored(plain().producer(2, 0, 0), 9, 20)));
}

#[test]
fn transactions_and_markers_stay_by_themselves() {
    let transactional = || plain().producer(1, 0, 0).transactional();
    assert!(!joins(&stored(transactional(), 0, 10), &stored(transactional(), 1, 20)));
    assert!(!joins(&stored(plain(), 0, 10), &stored(transactional(), 1, 20)));
    assert!(!joins(&stored(transactional(), 0, 10), &stored(plain(), 1, 20)));
    assert!(!joins(&stored(plain(), 0, 10), &stored(plain().control(), 1, 20)));
}

#[test]
fn times_of_the_broker_join_only_when_equal() {
    assert!(!joins(&stored(plain(), 0, 10), &stored(append_time(), 1, 10)));
    assert!(!joins(&stored(append_time(), 0, 10), &stored(append_time(), 1, 11)));
    assert!(joins(&stored(append_time(), 0, 10), &stored(append_time(), 1, 10)));
}

#[test]
fn offsets_out_of_reach_or_order_do_not_join() {
    let far = i64::from(i32::MAX);
    assert!(joins(&stored(plain(), 0, 10), &stored(plain(), far, 20)));
    assert!(!joins(&stored(plain(), 0, 10), &stored(plain(), far + 1, 20)));
    assert!(!joins(&stored(plain(), 5, 10), &stored(plain(), 5, 20)));
    assert!(!joins(&stored(plain(), 5, 10), &stored(plain(), 4, 20)));
}

#[test]
fn a_record_is_not_chosen_twice_nor_backwards() {
    let mut builder = plain();
    builder.append(1, None, None, &[]).append(2, None, None, &[]);
    let bytes = builder.build(Offset(10), 0);
    let view = BatchView::parse(&bytes).unwrap();
    let records = view.records(1000).unwrap();
    let records: Vec<_> = records.iter().map(Result::unwrap).collect();
    let mut slim = SlimBuilder::new(&view);
    assert!(slim.push(&records[1]).is_ok());
    assert!(slim.push(&records[1]).is_err());
    assert!(slim.push(&records[0]).is_err());
    assert_eq!(slim.record_count(), 1);
}

#[test]
fn the_append_time_of_the_stored_batch_stays() {
    let mut bytes = {
        let mut builder = plain();
        builder.append(5, Some(b"a"), None, &[]).append(900, Some(b"b"), None, &[]);
        builder.build(Offset(0), -1).to_vec()
    };
    records::batch::stamp(&mut bytes, Offset(20), 0, Some(777), None);
    let view = BatchView::parse(&bytes).unwrap();
    let mut slim = SlimBuilder::new(&view);
    let records = view.records(1000).unwrap();
    slim.push(&records.iter().next().unwrap().unwrap()).unwrap();
    let slim = slim.finish(Codec::None).unwrap();
    let slim = BatchView::parse(&slim).unwrap();
    assert!(slim.attributes().is_log_append_time());
    assert_eq!(slim.max_timestamp(), 777);
    assert_eq!(slim.records(1000).unwrap().iter().next().unwrap().unwrap().timestamp, 777);
}
