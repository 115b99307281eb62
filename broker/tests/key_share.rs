//! The key-share API over a socket: delivery numbers, outcomes a range, recalls, refusals.

#![allow(clippy::unwrap_used)]

use protocol::ErrorCode;
use protocol::messages::key_share_acknowledge::{
    KeyShareAcknowledgePartition, KeyShareAcknowledgePartitionResponse, KeyShareAcknowledgeRequest,
    KeyShareAcknowledgeResponse, KeyShareAcknowledgeTopic,
};
use protocol::messages::key_share_fetch::{
    Acknowledgement, KeyShareFetchPartition, KeyShareFetchRequest, KeyShareFetchResponse, KeyShareFetchTopic,
};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use records::batch::Batches;
use records::ids::{Offset, TopicId};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use common::Raw;
use share::{ACCEPT, RELEASE, RENEW, Setup};

struct Reader {
    raw: Raw,
    topic: TopicId,
    epoch: i32,
    sent: i32,
}

impl Reader {
    async fn new(setup: &Setup) -> Self {
        let _ = setup.joined("a").await;
        Self { raw: setup.server.connect().await, topic: TopicId(setup.topic), epoch: 0, sent: 0 }
    }

    async fn call<Q: KeyShareRequest, A: KeyShareResponse>(&mut self, request: Q) -> A {
        self.sent += 1;
        let frame = request.into_frame(self.sent, Some("reader".into())).unwrap();
        self.raw.send(&frame).await;
        let (correlation, answer) = A::from_frame(self.raw.frame().await.into()).unwrap();
        assert_eq!(correlation, self.sent);
        answer
    }

    async fn fetch(&mut self, acks: Vec<Acknowledgement>) -> KeyShareFetchResponse {
        let partition = KeyShareFetchPartition { index: 0, acknowledgements: acks, ..Default::default() };
        let topic = KeyShareFetchTopic { topic_id: self.topic, partitions: vec![partition] };
        let request = KeyShareFetchRequest {
            group_id: "g".into(),
            member_id: Some("a".into()),
            session_epoch: self.epoch,
            max_wait_ms: 300,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 100,
            topics: vec![topic],
            ..Default::default()
        };
        self.epoch += 1;
        self.call(request).await
    }

    async fn acknowledge(&mut self, acks: Vec<Acknowledgement>) -> KeyShareAcknowledgePartitionResponse {
        let partition = KeyShareAcknowledgePartition { index: 0, acknowledgements: acks };
        let topic = KeyShareAcknowledgeTopic { topic_id: self.topic, partitions: vec![partition] };
        let request = KeyShareAcknowledgeRequest {
            group_id: "g".into(),
            member_id: Some("a".into()),
            session_epoch: self.epoch,
            topics: vec![topic],
        };
        self.epoch += 1;
        let mut answer: KeyShareAcknowledgeResponse = self.call(request).await;
        assert_eq!(answer.error_code, ErrorCode::None);
        assert_eq!(answer.acquisition_lock_timeout_ms, 30_000);
        answer.topics.remove(0).partitions.remove(0)
    }
}

fn ack(first: i64, last: i64, number: i64, kind: i8) -> Acknowledgement {
    Acknowledgement {
        first_offset: Offset(first),
        last_offset: Offset(last),
        delivery_number: number,
        acknowledge_type: kind,
        ..Default::default()
    }
}

#[tokio::test]
async fn what_is_fetched_is_acknowledged_by_its_number() {
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    let mut a = Reader::new(&setup).await;
    let mut answer = a.fetch(Vec::new()).await;
    assert_eq!((answer.error_code, answer.acquisition_lock_timeout_ms), (ErrorCode::None, 30_000));
    let part = answer.topics.remove(0).partitions.remove(0);
    assert_eq!((part.lease_ms, part.start_offset, part.high_watermark), (30_000, Offset(0), Offset(4)));
    let ranges: Vec<_> = part
        .acquired_ranges
        .iter()
        .map(|range| (range.first_offset.get(), range.last_offset.get()))
        .collect();
    assert_eq!(ranges, [(0, 3)]);
    assert_eq!(part.acquired_ranges[0].delivery_count, 1);
    let number = part.acquired_ranges[0].delivery_number;
    let bytes = part.records.into_bytes();
    let count: i32 = Batches::new(&bytes).map(|batch| batch.unwrap().record_count()).sum();
    assert_eq!(count, 4);

    let told = a
        .acknowledge(vec![
            ack(0, 0, number, ACCEPT),
            ack(1, 1, number + 1, ACCEPT),
            ack(2, 2, number, 0),
            ack(3, 3, number, RENEW),
        ])
        .await;
    let codes: Vec<_> = told.acknowledge_results.iter().map(|result| result.error_code).collect();
    assert_eq!(
        codes,
        [ErrorCode::None, ErrorCode::InvalidRecordState, ErrorCode::InvalidRequest, ErrorCode::None],
        "one spoils nothing of the others"
    );
    assert_eq!(told.acknowledge_results[1].delivery_number, number + 1);
    assert_eq!((told.lease_ms, told.start_offset), (30_000, Offset(1)));

    let mut again = a.fetch(vec![ack(1, 1, number, RELEASE), ack(2, 3, number, ACCEPT)]).await;
    let part = again.topics.remove(0).partitions.remove(0);
    assert!(part.acknowledge_results.iter().all(|result| result.error_code == ErrorCode::None));
    assert_eq!(part.acquired_ranges.len(), 1);
    let range = &part.acquired_ranges[0];
    assert_eq!((range.first_offset, range.last_offset, range.delivery_count), (Offset(1), Offset(1), 2));
    assert_ne!(range.delivery_number, number, "numbers are never used twice");
}

#[tokio::test]
async fn a_release_recalls_what_lies_behind_in_its_key() {
    let setup = Setup::new("key").await;
    // Two batches: the same keys come again, one behind the other.
    setup.produce(2).await;
    setup.produce(2).await;
    let mut a = Reader::new(&setup).await;
    let part = a.fetch(Vec::new()).await.topics.remove(0).partitions.remove(0);
    let held: i64 =
        part.acquired_ranges.iter().map(|range| range.last_offset.get() - range.first_offset.get() + 1).sum();
    assert_eq!(held, 4, "several of a key go to one member");
    let number = part.acquired_ranges[0].delivery_number;
    let told = a.acknowledge(vec![ack(0, 0, number, RELEASE)]).await;
    assert_eq!(told.lease_ms, -1, "nothing was renewed");
    let recalled: Vec<_> = told
        .recalled_ranges
        .iter()
        .map(|range| (range.first_offset.get(), range.last_offset.get(), range.delivery_number))
        .collect();
    assert_eq!(recalled, [(2, 2, number)]);
}

#[tokio::test]
async fn what_is_not_served_is_refused_with_a_reason() {
    let setup = Setup::new("key").await;
    let mut a = Reader::new(&setup).await;
    let plain =
        KeyShareFetchRequest { group_id: "g".into(), member_id: Some("a".into()), ..Default::default() };
    let topic = |acknowledgements| KeyShareFetchTopic {
        topic_id: TopicId(setup.topic),
        partitions: vec![KeyShareFetchPartition { acknowledgements, ..Default::default() }],
    };
    for (request, word) in [
        (KeyShareFetchRequest { member_id: Some("".into()), ..plain.clone() }, "member"),
        (KeyShareFetchRequest { member_id: Some("standalone/1/1".into()), ..plain.clone() }, "standalone"),
        (KeyShareFetchRequest { member_id: Some("\0standalone/1/1".into()), ..plain.clone() }, "standalone"),
        (KeyShareFetchRequest { flags: 2, ..plain.clone() }, "flags"),
        (KeyShareFetchRequest { topics: vec![topic(vec![ack(0, 0, 1, ACCEPT)])], ..plain.clone() }, "begins"),
        (KeyShareFetchRequest { topics: vec![topic(vec![]), topic(vec![])], ..plain.clone() }, "twice"),
    ] {
        let answer: KeyShareFetchResponse = a.call(request).await;
        assert_eq!(answer.error_code, ErrorCode::InvalidRequest, "{word}");
        let message = answer.error_message.unwrap_or_default();
        assert!(message.contains(word), "{}", message.as_str());
    }
    for member_id in [Some("a".into()), None] {
        let nameless = KeyShareFetchRequest { group_id: "".into(), member_id, ..plain.clone() };
        let answer: KeyShareFetchResponse = a.call(nameless).await;
        assert_eq!(answer.error_code, ErrorCode::InvalidGroupId);
    }
    let acknowledge =
        KeyShareAcknowledgeRequest { group_id: "g".into(), session_epoch: 1, ..Default::default() };
    let answer: KeyShareAcknowledgeResponse = a.call(acknowledge.clone()).await;
    assert_eq!(answer.error_code, ErrorCode::ShareSessionNotFound, "no standalone reader is here");
    let named = KeyShareAcknowledgeRequest { member_id: Some("a".into()), ..acknowledge };
    for (session_epoch, error) in
        [(0, ErrorCode::InvalidShareSessionEpoch), (1, ErrorCode::ShareSessionNotFound)]
    {
        let answer: KeyShareAcknowledgeResponse =
            a.call(KeyShareAcknowledgeRequest { session_epoch, ..named.clone() }).await;
        assert_eq!(answer.error_code, error);
    }
}

#[tokio::test]
async fn a_fetch_of_what_is_not_there_is_answered_at_once_with_the_pages_errors() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    let mut a = Reader::new(&setup).await;
    let topic = |id, index| KeyShareFetchTopic {
        topic_id: id,
        partitions: vec![KeyShareFetchPartition { index, ..Default::default() }],
    };
    let day = KeyShareFetchRequest {
        group_id: "g".into(),
        member_id: Some("a".into()),
        max_wait_ms: 86_400_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        ..Default::default()
    };
    let topics =
        vec![topic(TopicId(setup.topic), 0), topic(TopicId(setup.topic), 7), topic(TopicId([9; 16]), 0)];
    let answer: KeyShareFetchResponse = a.call(KeyShareFetchRequest { topics, ..day.clone() }).await;
    let parts = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let told: Vec<_> = parts.map(|part| (part.index, part.error_code)).collect();
    let unknown = [(7, ErrorCode::UnknownTopicOrPartition), (0, ErrorCode::UnknownTopicId)];
    assert_eq!(
        (answer.error_code, told),
        (ErrorCode::None, [&[(0, ErrorCode::None)][..], &unknown].concat())
    );

    // Nothing is acquired by a fetch that asks for nothing, and nobody waits for it.
    let topics = || vec![topic(TopicId(setup.topic), 0)];
    for max_records in [0, -1, i32::MIN] {
        let request = KeyShareFetchRequest { topics: topics(), max_records, ..day.clone() };
        let answer: KeyShareFetchResponse = a.call(request).await;
        assert_eq!(answer.error_code, ErrorCode::None);
        assert!(answer.topics[0].partitions[0].acquired_ranges.is_empty(), "{max_records}");
    }
}

#[tokio::test]
async fn who_never_joined_is_served_as_by_a_share_fetch() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    let mut a = Reader::new(&setup).await;
    let request = KeyShareFetchRequest {
        group_id: "g".into(),
        member_id: Some("stranger".into()),
        max_wait_ms: 5_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 100,
        topics: vec![KeyShareFetchTopic {
            topic_id: TopicId(setup.topic),
            partitions: vec![KeyShareFetchPartition::default()],
        }],
        ..Default::default()
    };
    let answer: KeyShareFetchResponse = a.call(request).await;
    let acquired = &answer.topics[0].partitions[0].acquired_ranges;
    assert_eq!(acquired.iter().map(|range| range.first_offset.get()).min(), Some(0));
}

#[tokio::test]
async fn b10_ranges_that_claim_everything() {
    const RANGES: usize = 60_000;
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    let mut reader = Reader::new(&setup).await;
    let fetched = reader.fetch(Vec::new()).await;
    let number = fetched.topics[0].partitions[0].acquired_ranges[0].delivery_number;
    let ranges: [fn(i64) -> (i64, i64); 5] = [
        |_| (0, 1 << 62),
        |_| (i64::MIN, i64::MAX),
        |number| (60_000 - number, 60_000 - number - 1),
        |number| ((1 << 40) + number, (1 << 40) + number),
        |number| (number << 40, (number << 40) + (1 << 39)),
    ];
    for range in ranges {
        let acks = (0..RANGES).map(|place| {
            let (first, last) = range(i64::try_from(place).unwrap());
            ack(first, last, number, ACCEPT)
        });
        let acks: Vec<_> = acks.collect();
        let results = reader.acknowledge(acks.clone()).await.acknowledge_results;
        assert_eq!(results.len(), RANGES);
        for (result, ack) in results.iter().zip(&acks) {
            assert_eq!((result.first_offset, result.last_offset), (ack.first_offset, ack.last_offset));
            assert!(result.error_code.is_error(), "{result:?}");
        }
    }
    let results = reader.acknowledge(vec![ack(0, 3, number, ACCEPT); 1_000]).await.acknowledge_results;
    let codes: Vec<_> = results.iter().map(|result| result.error_code.is_error()).collect();
    assert!(!codes[0] && codes[1..].iter().all(|error| *error), "what is accepted is accepted once");
}
