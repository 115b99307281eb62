//! Share groups over a log with transactions, at both isolation levels (KIP-932, `share.isolation.level`).

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use coordinator::command::{Acks, Command, Produce};
use coordinator::reply::Reply;
use records::batch::{BatchBuilder, EndMarker};
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use share::{ACCEPT, ALL, Fetch, Member, PATIENT, Setup};

const ORDERS: [&str; 2] = ["key", "none"];

/// Appends a batch as it is: clients cannot write transactions yet.
async fn append(setup: &Setup, batch: Bytes) {
    let partition = PartitionId { topic: TopicId(setup.topic), index: 0 };
    let produce = Command::Produce(Produce { acks: Acks::Written, parts: vec![(partition, batch.into())] });
    match setup.server.running.broker().shard.call(produce).await.unwrap() {
        Reply::Produced(parts) => assert!(parts[0].is_ok(), "{parts:?}"),
        other => panic!("{other:?}"),
    }
}

async fn data(setup: &Setup, producer: i64, sequence: i32) {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    if producer >= 0 {
        batch = batch.producer(producer, 0, sequence).transactional();
    }
    batch.append(0, Some(b"a"), Some(b"value"), &[]);
    append(setup, batch.build(Offset(0), -1)).await;
}

async fn end(setup: &Setup, producer: i64, commit: bool) {
    append(setup, EndMarker { commit, coordinator_epoch: 0 }.batch(producer, 0, 0)).await;
}

/// 0 aborted, 1 committed, 2 and 3 markers, 4 open, 5 plain.
async fn fill(setup: &Setup) {
    data(setup, 1, 0).await;
    data(setup, 2, 0).await;
    end(setup, 1, false).await;
    end(setup, 2, true).await;
    data(setup, 1, 1).await;
    data(setup, -1, 0).await;
}

/// Takes and accepts until so many records came; then there is nothing more. Their offsets.
async fn drain(member: &mut Member, count: usize) -> Vec<i64> {
    let mut seen = Vec::new();
    let mut fetched = member.fetch(PATIENT).await;
    while seen.len() < count {
        let acquired = fetched.acquired();
        assert!(!acquired.is_empty(), "{seen:?} and no more");
        let types: Vec<Vec<i8>> = acquired
            .iter()
            .map(|(first, last, _)| vec![ACCEPT; usize::try_from(last - first + 1).unwrap()])
            .collect();
        let acks: Vec<_> = acquired
            .iter()
            .zip(&types)
            .map(|((first, last, _), types)| (*first, *last, &types[..]))
            .collect();
        for (first, last, delivered) in &acquired {
            assert_eq!(*delivered, 1);
            seen.extend(*first..=*last);
        }
        let patience = if seen.len() < count { PATIENT } else { ALL };
        fetched = member.fetch(Fetch { acks: &acks, ..patience }).await;
        assert_eq!(fetched.ack_error(), 0);
    }
    assert_eq!(fetched.acquired(), [], "behind {seen:?}");
    seen
}

#[tokio::test]
async fn k44_readers_of_committed_records() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        setup
            .configure(&[
                ("share.auto.offset.reset", "earliest"),
                ("sluice.share.order", order),
                ("share.isolation.level", "read_committed"),
            ])
            .await;
        fill(&setup).await;
        let mut member = setup.joined("a").await;
        assert_eq!(drain(&mut member, 1).await, [1], "{order}: what is behind waits for the open one");
        end(&setup, 1, true).await;
        assert_eq!(drain(&mut member, 2).await, [4, 5], "{order}: no marker is ever delivered");
        // After a restart nothing of it comes again.
        let setup = setup.restarted().await;
        data(&setup, -1, 0).await;
        let mut member = setup.joined("a").await;
        assert_eq!(drain(&mut member, 1).await, [7], "{order}");
        setup.server.running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn k44_readers_of_uncommitted_records_get_all_but_markers() {
    for order in ORDERS {
        let setup = Setup::new(order).await;
        fill(&setup).await;
        let mut member = setup.joined("a").await;
        assert_eq!(drain(&mut member, 4).await, [0, 1, 4, 5], "{order}");
        setup.server.running.stop().await.unwrap();
    }
}
