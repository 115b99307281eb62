//! Readers without membership over a socket, by the Rust client and by raw requests (K68).

#![cfg(feature = "admin")]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ::client::{Error, RangeReader, RangeReaderSettings};
use kafka_protocol::messages::{DeleteGroupsRequest, GroupId, ShareGroupDescribeRequest};
use protocol::ErrorCode;
use protocol::messages::key_share_commit::{
    KeyShareCommitPartition, KeyShareCommitRequest, KeyShareCommitResponse, KeyShareCommitTopic, OffsetRange,
};
use protocol::messages::key_share_describe::{
    KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeResponse, KeyShareDescribeTopic,
    KeyShareQuestion, Reason,
};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use records::ids::{KeyHash, Offset, TopicId};
use records::key_hash;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use share::{ALL, PATIENT, Setup};

const WAIT: Duration = Duration::from_secs(5);
const AT_ONCE: Duration = Duration::ZERO;
/// Questions until the broker knows what its client does.
const TRIES_MAX: u32 = 10_000;
const HALF: u64 = u64::MAX / 2;

async fn open(setup: &Setup, ranges: &[(u64, u64)]) -> Result<RangeReader, Error> {
    RangeReader::open(RangeReaderSettings {
        bootstrap: setup.server.running.local_addr().to_string(),
        group: "g".to_owned(),
        topic: "t".to_owned(),
        partitions: vec![0],
        ranges: ranges.iter().map(|&(first, last)| (KeyHash(first), KeyHash(last))).collect(),
        records_per_key_max: 0,
    })
    .await
}

fn code(error: &Error) -> ErrorCode {
    match error {
        Error::Refused { code, .. } => *code,
        other => panic!("{other}"),
    }
}

async fn take(reader: &mut RangeReader, wait: Duration) -> Vec<i64> {
    let records = reader.next(100, wait).await.unwrap();
    records.iter().map(|record| record.offset.get()).collect()
}

async fn commit(reader: &mut RangeReader, ranges: &[(i64, i64)]) -> Result<i64, Error> {
    let ranges: Vec<_> = ranges.iter().map(|&(first, last)| (0, Offset(first), Offset(last))).collect();
    reader.commit(&ranges).await.map(|starts| starts[&0].get())
}

#[tokio::test]
async fn k68_ranges_divide_the_keys_and_commits_are_kept() {
    let setup = Setup::new("key").await;
    setup.produce(40).await;
    let is_low = |number: i64| key_hash(format!("key-{number}").as_bytes()).0 <= HALF;
    let low: Vec<i64> = (0..40).filter(|&number| is_low(number)).collect();
    let high: Vec<i64> = (0..40).filter(|&number| !is_low(number)).collect();
    let mut a = open(&setup, &[(0, HALF)]).await.unwrap();
    let mut b = open(&setup, &[(HALF + 1, u64::MAX)]).await.unwrap();
    assert_eq!(take(&mut a, WAIT).await, low);
    let records = b.next(100, WAIT).await.unwrap();
    assert_eq!(records.iter().map(|record| record.offset.get()).collect::<Vec<_>>(), high);
    let first = &records[0];
    assert_eq!(first.key.as_deref(), Some(format!("key-{}", high[0]).as_bytes()));
    assert_eq!((first.value.as_deref(), first.delivery_count), (Some(&b"value"[..]), 1));

    // Single ranges beyond the start offset, the lowest record last.
    let rest: Vec<(i64, i64)> = low[1..].iter().map(|&offset| (offset, offset)).collect();
    let first_open = low[0].min(high[0]);
    assert_eq!(commit(&mut a, &rest).await.unwrap(), first_open);
    a.close().await.unwrap();
    let mut again = open(&setup, &[(0, HALF)]).await.unwrap();
    assert_eq!(take(&mut again, WAIT).await, [low[0]], "what is committed is not sent again");
    assert_eq!(commit(&mut again, &[(0, 39)]).await.unwrap(), high[0]);
    assert_eq!(commit(&mut b, &[(0, 39)]).await.unwrap(), 40);
    let refused = commit(&mut b, &[(40, 40)]).await.unwrap_err();
    assert_eq!(code(&refused), ErrorCode::InvalidRequest, "it was never delivered");
    assert!(
        refused.to_string().contains("offset 40 lies beyond everything that was ever delivered"),
        "{refused}"
    );
    let refused = open(&setup, &[(5, 4)]).await.unwrap_err();
    assert_eq!(code(&refused), ErrorCode::InvalidRequest);
    assert!(
        refused.to_string().contains("range 0000000000000005 to 0000000000000004 of partition 0 ends before"),
        "{refused}"
    );

    drop((again, b));
    let setup = setup.restarted().await;
    setup.produce(1).await;
    let mut a = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut a, WAIT).await, [40], "nor after a restart");
}

#[tokio::test]
async fn k68_one_group_id_one_way() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    let mut member = setup.joined("m").await;
    assert_eq!(code(&open(&setup, &[]).await.unwrap_err()), ErrorCode::NonEmptyGroup);
    assert_eq!(member.fetch(PATIENT).await.acquired(), [(0, 1, 1)], "nothing changed");
    assert_eq!(member.fetch_parts(-1, ALL, &[]).await.error, 0);
    assert_eq!(code(&open(&setup, &[]).await.unwrap_err()), ErrorCode::NonEmptyGroup, "it is a member still");
    assert_eq!(member.heartbeat(-1, None).await.error_code, 0);

    let mut reader = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut reader, WAIT).await, [0, 1]);
    member.epoch = 0;
    let refused = member.heartbeat(0, Some(&["t"])).await;
    assert_eq!(refused.error_code, 68);
    assert!(refused.error_message.unwrap().contains("standalone"));
    assert_eq!(member.fetch(ALL).await.error, 68);
    let ask = ShareGroupDescribeRequest::default().with_group_ids(vec![GroupId(client::text("g"))]);
    let group = client::Client::new(&setup.server).await.call(1, &ask).await.groups.remove(0);
    assert_eq!((group.error_code, group.members.len()), (0, 0), "nobody joined");
    assert_eq!(commit(&mut reader, &[(0, 0)]).await.unwrap(), 1, "the reader goes on undisturbed");
    reader.close().await.unwrap();
    assert_eq!(member.heartbeat(0, Some(&["t"])).await.error_code, 0);
    assert_eq!(member.fetch(PATIENT).await.acquired(), [(1, 1, 3)], "what was committed is done");
}

#[tokio::test]
async fn k68_the_newest_session_has_the_range() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    let mut a = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut a, WAIT).await, [0, 1]);
    let mut b = open(&setup, &[(0, u64::MAX)]).await.unwrap();
    assert_eq!(take(&mut b, WAIT).await, [0, 1]);
    for _ in 0..2 {
        assert_eq!(code(&a.next(1, AT_ONCE).await.unwrap_err()), ErrorCode::FencedMemberEpoch);
        assert_eq!(code(&commit(&mut a, &[(0, 1)]).await.unwrap_err()), ErrorCode::FencedMemberEpoch);
    }
    assert_eq!(commit(&mut b, &[(0, 0)]).await.unwrap(), 1);
    // A reader that dies gives its range back at once.
    drop(b);
    let mut c = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut c, WAIT).await, [1]);
}

#[tokio::test]
async fn k33_a_reader_that_holds_a_record_is_named() {
    let setup = Setup::new("key").await;
    setup.produce(1).await;
    let mut reader = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut reader, WAIT).await, [0]);
    let question = KeyShareQuestion { offset: Offset(0), ..KeyShareQuestion::default() };
    let partition = KeyShareDescribePartition { index: 0, questions: vec![question] };
    let describe = |worst_max| KeyShareDescribeRequest {
        group_id: "g".into(),
        topics: Some(vec![KeyShareDescribeTopic {
            topic_name: "t".into(),
            partitions: vec![partition.clone()],
        }]),
        worst_max,
    };
    let mut raw = setup.server.connect().await;
    for worst_max in [1_000, -1] {
        // The broker hears a moment later than the reader that its answer was written.
        let mut tries = 0;
        let told = loop {
            raw.send(&describe(worst_max).into_frame(7, None).unwrap()).await;
            let (_, mut answer) = KeyShareDescribeResponse::from_frame(raw.frame().await.into()).unwrap();
            let told = answer.topics.remove(0).partitions.remove(0);
            tries += 1;
            if told.answers[0].reason != Reason::Unwritten.code() || tries == TRIES_MAX {
                break told;
            }
        };
        assert_eq!((told.error_code, told.answers[0].reason), (ErrorCode::None, Reason::Held.code()));
        assert_eq!(told.keys.len(), usize::from(worst_max > 0));
        let member = told.answers[0].member.clone().unwrap_or_default();
        let numbers = member.as_str().strip_prefix("standalone/").and_then(|rest| rest.split_once('/'));
        let (start, connection) = numbers.unwrap_or_else(|| panic!("{}", member.as_str()));
        assert!(start.parse::<u32>().is_ok() && connection.parse::<u64>().is_ok(), "{}", member.as_str());
    }
}

#[tokio::test]
async fn what_readers_left_is_deleted_as_a_group_is() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    let mut admin = client::Client::new(&setup.server).await;
    // The coordinator of groups is there as soon as somebody asks for it.
    let mut other = setup.joined_to("other", "m").await;
    assert_eq!(other.heartbeat(-1, None).await.error_code, 0);
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(client::text("g"))]);
    assert_eq!(admin.call(2, &delete).await.results[0].error_code, 69);
    let mut reader = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut reader, WAIT).await, [0, 1]);
    assert_eq!(commit(&mut reader, &[(0, 1)]).await.unwrap(), 2);
    assert_eq!(admin.call(2, &delete).await.results[0].error_code, 68, "a reader is there");
    reader.close().await.unwrap();
    assert_eq!(admin.call(2, &delete).await.results[0].error_code, 0);
    assert_eq!(admin.call(2, &delete).await.results[0].error_code, 69);
    setup.configure(&[("share.auto.offset.reset", "earliest"), ("sluice.share.order", "key")]).await;
    let mut reader = open(&setup, &[]).await.unwrap();
    assert_eq!(take(&mut reader, WAIT).await, [0, 1], "all is forgotten");
}

#[tokio::test]
async fn a_commit_without_a_session_and_a_group_without_order() {
    let setup = Setup::new("none").await;
    let refused = open(&setup, &[]).await.unwrap_err();
    assert_eq!(code(&refused), ErrorCode::InvalidRequest);
    assert!(refused.to_string().contains("sluice.share.order=key"), "{refused}");

    let mut raw = setup.server.connect().await;
    let request = |topic_id| KeyShareCommitRequest {
        group_id: "g".into(),
        topics: vec![KeyShareCommitTopic {
            topic_id,
            partitions: vec![KeyShareCommitPartition { index: 0, ranges: vec![OffsetRange::default()] }],
        }],
    };
    raw.send(&request(TopicId(setup.topic)).into_frame(7, None).unwrap()).await;
    let (_, answer) = KeyShareCommitResponse::from_frame(raw.frame().await.into()).unwrap();
    assert_eq!(answer.error_code, ErrorCode::ShareSessionNotFound);
    let twice = KeyShareCommitRequest {
        topics: [request(TopicId(setup.topic)).topics, request(TopicId(setup.topic)).topics].concat(),
        ..request(TopicId(setup.topic))
    };
    raw.send(&twice.into_frame(8, None).unwrap()).await;
    let (_, answer) = KeyShareCommitResponse::from_frame(raw.frame().await.into()).unwrap();
    assert_eq!(answer.error_code, ErrorCode::InvalidRequest);
}
