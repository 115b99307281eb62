//! KeyShareDescribe and KeyShareAlter over a socket: where a share-partition stands, why (K33), and the operator's hand.

#![allow(clippy::unwrap_used)]

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{GroupId, ListGroupsRequest, OffsetCommitRequest, TopicName};
use protocol::ErrorCode;
use protocol::messages::key_share_alter::{
    KeyShareAction, KeyShareAlterPartition, KeyShareAlterRequest, KeyShareAlterResponse, KeyShareAlterTopic,
    KeyShareChange, KeyShareChangeResult, RESET_TO_END, RESET_TO_START,
};
use protocol::messages::key_share_describe::{
    KeyShareDescribePartition, KeyShareDescribeRequest, KeyShareDescribeResponse, KeyShareDescribeTopic,
    KeyShareDescribedPartition, KeyShareQuestion, Reason,
};
use protocol::request::KeyShareRequest;
use protocol::response::KeyShareResponse;
use records::ids::Offset;
use records::key_hash;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use common::Raw;
use share::{ACCEPT, ALL, Fetch, PATIENT, RELEASE, Setup};

struct Admin {
    raw: Raw,
    sent: i32,
}

impl Admin {
    async fn new(setup: &Setup) -> Self {
        Self { raw: setup.server.connect().await, sent: 0 }
    }

    async fn call<Q: KeyShareRequest, A: KeyShareResponse>(&mut self, request: Q) -> A {
        self.sent += 1;
        self.raw.send(&request.into_frame(self.sent, Some("admin".into())).unwrap()).await;
        let (correlation, answer) = A::from_frame(self.raw.frame().await.into()).unwrap();
        assert_eq!(correlation, self.sent);
        answer
    }

    async fn describe(&mut self, questions: Vec<KeyShareQuestion>) -> KeyShareDescribedPartition {
        let partition = KeyShareDescribePartition { index: 0, questions };
        let topic = KeyShareDescribeTopic { topic_name: "t".into(), partitions: vec![partition] };
        let request =
            KeyShareDescribeRequest { group_id: "g".into(), topics: Some(vec![topic]), worst_max: 10 };
        let mut answer: KeyShareDescribeResponse = self.call(request).await;
        assert_eq!(answer.error_code, ErrorCode::None);
        answer.topics.remove(0).partitions.remove(0)
    }

    async fn why(&mut self, question: KeyShareQuestion) -> Reason {
        let answer = self.describe(vec![question]).await.answers.remove(0);
        Reason::from_code(answer.reason).unwrap()
    }

    async fn alter(&mut self, changes: Vec<KeyShareChange>) -> Vec<KeyShareChangeResult> {
        self.alter_in("g", changes).await
    }

    async fn alter_in(&mut self, group: &str, changes: Vec<KeyShareChange>) -> Vec<KeyShareChangeResult> {
        let partition = KeyShareAlterPartition { index: 0, changes };
        let topic = KeyShareAlterTopic { topic_name: "t".into(), partitions: vec![partition] };
        let request = KeyShareAlterRequest { group_id: group.into(), topics: vec![topic] };
        let mut answer: KeyShareAlterResponse = self.call(request).await;
        assert_eq!(answer.error_code, ErrorCode::None);
        let partition = answer.topics.remove(0).partitions.remove(0);
        assert_eq!(partition.error_code, ErrorCode::None);
        partition.results
    }
}

fn of_key(number: usize) -> KeyShareQuestion {
    let key_hash = key_hash(format!("key-{number}").as_bytes());
    KeyShareQuestion { key_hash, ..KeyShareQuestion::default() }
}

fn at(offset: i64) -> KeyShareQuestion {
    KeyShareQuestion { offset: Offset(offset), ..KeyShareQuestion::default() }
}

fn change(action: KeyShareAction, target: &KeyShareQuestion) -> KeyShareChange {
    let KeyShareQuestion { offset, key_hash } = target.clone();
    KeyShareChange { action: action.code(), offset, key_hash, ..KeyShareChange::default() }
}

#[tokio::test]
async fn k33_where_it_stands_and_why() {
    let setup = Setup::new("key").await;
    setup.produce(3).await;
    setup.produce(3).await;
    let mut admin = Admin::new(&setup).await;
    let unread = admin.describe(vec![at(0), of_key(1)]).await;
    assert_eq!((unread.error_code, unread.start_offset, unread.lag), (ErrorCode::None, Offset(-1), -1));
    assert!(unread.answers.iter().all(|answer| answer.reason == Reason::NotScanned.code()));

    setup
        .configure(&[
            ("share.auto.offset.reset", "earliest"),
            ("sluice.share.order", "key"),
            ("sluice.share.retry.backoff.ms", "60000"),
            ("sluice.share.hold.target.ms", "0"),
        ])
        .await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(Fetch { max_records: 2, ..PATIENT }).await.acquired(), [(0, 1, 1)]);
    // The broker hears a moment later than the member that its answer was written.
    while admin.why(at(0)).await == Reason::Unwritten {}
    let stands = admin.describe(vec![at(0), at(3), of_key(0), at(2), of_key(9), at(99)]).await;
    assert_eq!((stands.order, stands.start_offset, stands.end_offset), (1, Offset(0), Offset(6)));
    assert_eq!((stands.scan_offset, stands.lag, stands.in_flight), (Offset(6), 6, 2));
    assert_eq!((stands.leased_keys, stands.ready, stands.waiting), (2, 1, 0));
    assert_eq!((stands.bound, stands.complete), (None, 1));
    let reasons: Vec<_> =
        stands.answers.iter().map(|answer| Reason::from_code(answer.reason).unwrap()).collect();
    assert_eq!(
        reasons,
        [Reason::Held, Reason::Behind, Reason::Held, Reason::Ready, Reason::UnknownKey, Reason::NotScanned]
    );
    assert_eq!(stands.answers[0].member.as_ref().unwrap().as_str(), "a");
    assert!(stands.answers[0].time_ms > 1_600_000_000_000, "a time of today");
    assert_eq!(stands.answers[1].behind_offset, Offset(0));
    let worst: Vec<_> = stands.keys.iter().map(|key| (key.first_offset.get(), key.backlog)).collect();
    assert_eq!(worst, [(0, 2), (1, 2), (2, 2)]);

    assert_eq!(a.acknowledge(false, &[(0, 0, &[RELEASE]), (1, 1, &[ACCEPT])]).await.1, [(0, 0)]);
    assert_eq!(admin.why(at(0)).await, Reason::Waiting);
    assert_eq!(admin.why(at(1)).await, Reason::Done);
    let stands = admin.describe(Vec::new()).await;
    assert_eq!((stands.waiting, stands.in_flight, stands.lag), (1, 0, 5));
    let worst = stands.keys.iter().find(|key| key.first_offset == Offset(0)).unwrap();
    assert_eq!((worst.key_hash, worst.deliveries), (of_key(0).key_hash, 1));
}

#[tokio::test]
async fn k31_the_operators_hand_over_the_wire() {
    let setup = Setup::new("key").await;
    setup.produce(2).await;
    setup.produce(2).await;
    let mut admin = Admin::new(&setup).await;
    let told = admin.alter(vec![change(KeyShareAction::Park, &of_key(0))]).await;
    assert_eq!(told[0].error_code, ErrorCode::ResourceNotFound, "never read");
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(Fetch { max_records: 1, ..PATIENT }).await.acquired(), [(0, 0, 1)]);
    assert_eq!(a.acknowledge(false, &[(0, 0, &[RELEASE])]).await.1, [(0, 0)]);

    let told = admin.alter(vec![change(KeyShareAction::Park, &of_key(0))]).await;
    assert_eq!((told[0].error_code, told[0].has_key), (ErrorCode::None, 1));
    assert_eq!(told[0].key_hash, of_key(0).key_hash);
    assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), [(1, 1, 1)], "key 0 alone is stopped");
    assert_eq!(admin.why(at(0)).await, Reason::Parked);
    let stands = admin.describe(Vec::new()).await;
    assert_eq!((stands.parked, stands.stopped.len()), (1, 1));
    assert_eq!((stands.stopped[0].follows, stands.stopped[0].reason), (0, 5));

    // Each change has its own result, and one that fails spoils no other.
    let told = admin
        .alter(vec![
            change(KeyShareAction::Resume, &of_key(0)),
            KeyShareChange { action: 77, ..KeyShareChange::default() },
            change(KeyShareAction::Skip, &at(0)),
            change(KeyShareAction::Skip, &at(500)),
        ])
        .await;
    let codes: Vec<_> = told.iter().map(|result| result.error_code).collect();
    assert_eq!(codes[..3], [ErrorCode::None, ErrorCode::InvalidRequest, ErrorCode::None]);
    assert!(codes[3].is_error());
    assert_eq!(told[2].records, 1);
    assert_eq!(admin.why(at(0)).await, Reason::Done);
    assert_eq!(a.acknowledge(false, &[(1, 1, &[ACCEPT])]).await.1, [(0, 0)]);
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(2, 3, 1)], "behind it the key goes on");
}

#[tokio::test]
async fn resets_by_offset_and_time() {
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    let mut admin = Admin::new(&setup).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
    let reset = |offset| KeyShareChange {
        action: KeyShareAction::ResetToOffset.code(),
        offset,
        ..KeyShareChange::default()
    };
    let told = admin.alter(vec![reset(Offset(2))]).await;
    assert_eq!(told[0].error_code, ErrorCode::NonEmptyGroup, "a member holds records");
    assert_eq!(a.acknowledge(false, &[(0, 3, &[ACCEPT])]).await.1, [(0, 0)]);
    for (offset, start) in [(RESET_TO_START, 0), (RESET_TO_END, 4), (Offset(2), 2), (Offset(99), 4)] {
        let told = admin.alter(vec![reset(offset)]).await;
        assert_eq!((told[0].error_code, told[0].start_offset), (ErrorCode::None, Offset(start)));
    }
    // All records are of the beginning of time.
    for (timestamp_ms, start) in [(0, 0), (5, 4)] {
        let action = KeyShareAction::ResetToTime.code();
        let told =
            admin.alter(vec![KeyShareChange { action, timestamp_ms, ..KeyShareChange::default() }]).await;
        assert_eq!((told[0].error_code, told[0].start_offset), (ErrorCode::None, Offset(start)));
    }
    assert_eq!(admin.alter(vec![reset(Offset(1))]).await[0].start_offset, Offset(1));
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(1, 3, 1)], "with the member at work");
}

#[tokio::test]
async fn what_does_not_exist_and_what_is_too_much() {
    let setup = Setup::new("key").await;
    let mut admin = Admin::new(&setup).await;
    let all = KeyShareDescribeRequest { group_id: "g".into(), ..KeyShareDescribeRequest::default() };
    let answer: KeyShareDescribeResponse = admin.call(all.clone()).await;
    assert_eq!((answer.error_code, answer.topics.len()), (ErrorCode::None, 0));
    let partition = |index, questions| KeyShareDescribePartition { index, questions };
    let topic = |name: &str, partitions| KeyShareDescribeTopic { topic_name: name.into(), partitions };
    let topics = vec![
        topic(
            "t",
            vec![partition(9, vec![]), partition(0, vec![at(0); 101]), partition(0, vec![at(0); 100])],
        ),
        topic("missing", vec![partition(0, vec![])]),
    ];
    let answer: KeyShareDescribeResponse =
        admin.call(KeyShareDescribeRequest { topics: Some(topics), ..all.clone() }).await;
    let codes: Vec<_> =
        answer.topics.iter().flat_map(|topic| &topic.partitions).map(|part| part.error_code).collect();
    assert_eq!(
        codes,
        [
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::InvalidRequest,
            ErrorCode::None,
            ErrorCode::UnknownTopicOrPartition
        ]
    );
    assert_eq!(answer.topics[0].partitions[2].answers.len(), 100);
    setup.produce(1).await;
    let _ = setup.joined("a").await.fetch(PATIENT).await;
    let answer: KeyShareDescribeResponse = admin.call(all).await;
    assert_eq!(answer.topics[0].topic_name.as_str(), "t");
    assert_eq!(answer.topics[0].partitions[0].start_offset, Offset(0), "all that have state");

    let alter = |index, changes| KeyShareAlterRequest {
        group_id: "g".into(),
        topics: vec![KeyShareAlterTopic {
            topic_name: "t".into(),
            partitions: vec![KeyShareAlterPartition { index, changes }],
        }],
    };
    let answer: KeyShareAlterResponse =
        admin.call(alter(0, vec![change(KeyShareAction::Park, &at(0)); 1_001])).await;
    assert_eq!(answer.error_code, ErrorCode::InvalidRequest);
    let answer: KeyShareAlterResponse = admin.call(alter(9, vec![])).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::UnknownTopicOrPartition);
}

#[tokio::test]
async fn a_reset_makes_state_only_of_a_group_that_is_listed() {
    let setup = Setup::new("key").await;
    setup.produce(3).await;
    let mut admin = Admin::new(&setup).await;
    let reset = |action: KeyShareAction| KeyShareChange { timestamp_ms: 0, ..change(action, &at(1)) };
    let told = admin.alter_in("ghost", vec![reset(KeyShareAction::ResetToOffset)]).await;
    assert_eq!((told[0].error_code, told[0].start_offset), (ErrorCode::None, Offset(1)));
    let told = admin.alter_in("other", vec![reset(KeyShareAction::ResetToTime)]).await;
    assert_eq!(told[0].error_code, ErrorCode::None);
    let told = admin.alter_in("", vec![reset(KeyShareAction::ResetToOffset)]).await;
    assert_eq!(told[0].error_code, ErrorCode::InvalidGroupId);

    let mut client = client::Client::new(&setup.server).await;
    // A group of another kind.
    let commit =
        OffsetCommitRequest::default().with_group_id(GroupId(client::text("classic"))).with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(client::text("t")))
                .with_partitions(vec![OffsetCommitRequestPartition::default().with_committed_offset(1)]),
        ]);
    assert_eq!(client.call(7, &commit).await.topics[0].partitions[0].error_code, 0);
    let told = admin.alter_in("classic", vec![reset(KeyShareAction::ResetToOffset)]).await;
    assert_eq!(told[0].error_code, ErrorCode::GroupIdNotFound);

    let listed = client.call(5, &ListGroupsRequest::default()).await.groups;
    let mut share: Vec<&str> = listed
        .iter()
        .filter(|group| group.group_type.as_str() == "share")
        .map(|group| group.group_id.as_str())
        .collect();
    share.sort_unstable();
    assert_eq!(share, ["ghost", "other"]);
}
