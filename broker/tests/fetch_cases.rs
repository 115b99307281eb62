//! What a fetch shows of a partition and in what turn, inside sessions and outside of them: the cases of the fetch list
//! through the socket.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use coordinator::command::{Acks, Command, DeleteTo, Produce};
use coordinator::reply::Reply;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{FetchRequest, FetchResponse, TopicName};
use records::ids::{Offset, PartitionId};
use records::{Batches, Codec};
use uuid::Uuid;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/produce.rs"]
mod produce;
#[path = "common/share.rs"]
mod share;

use client::{Client, text};
use common::{Server, Stopwatch};
use produce::{all_said, batch, placed, request as produce_request, stored, with_attributes, with_payload};
use share::{ACCEPT, ALL, Fetch, PATIENT, Setup};

const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;
/// First version with sessions.
const SESSIONS_FROM: i16 = 7;
/// First version that names topics by id.
const IDS_FROM: i16 = 13;

/// Topic `t` with this many partitions.
async fn started(partitions: i32) -> (Server, Client) {
    let server = Server::start().await;
    let new = broker::catalog::NewTopic {
        name: std::sync::Arc::from("t"),
        partitions,
        replication_factor: 1,
        configs: std::iter::empty().collect(),
    };
    server.running.broker().catalog.create(&new).await.unwrap();
    let client = Client::new(&server).await;
    (server, client)
}

async fn fill(server: &Server, client: &mut Client, index: i32, count: usize) {
    let good = Some(batch(Codec::None, count));
    let request = produce_request(server, 9, &[("t", vec![(index, good)])]);
    assert_eq!(all_said(&client.call(9, &request).await)[0].code, 0);
}

fn id(server: &Server) -> Uuid {
    Uuid::from_bytes(partition(server, 0).topic.0)
}

fn partition(server: &Server, index: i32) -> PartitionId {
    server.running.broker().catalog.image().topic("t").unwrap().partition(index).unwrap()
}

fn part(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(index)
        .with_fetch_offset(offset)
        .with_current_leader_epoch(-1)
        .with_partition_max_bytes(1 << 20)
}

/// A fetch of these partitions of `t` that waits for nothing.
fn of(server: &Server, version: i16, parts: Vec<FetchPartition>) -> FetchRequest {
    let topics = if parts.is_empty() {
        Vec::new()
    } else if version < IDS_FROM {
        vec![FetchTopic::default().with_topic(TopicName(text("t"))).with_partitions(parts)]
    } else {
        vec![FetchTopic::default().with_topic_id(id(server)).with_partitions(parts)]
    };
    FetchRequest::default().with_max_wait_ms(0).with_min_bytes(1).with_session_epoch(-1).with_topics(topics)
}

fn parts(answer: &FetchResponse) -> Vec<PartitionData> {
    answer.responses.iter().flat_map(|topic| topic.partitions.clone()).collect()
}

/// Index and base offsets of each partition that has records.
fn served(answer: &FetchResponse) -> Vec<(i32, Vec<i64>)> {
    let bases = |part: &PartitionData| -> Vec<i64> {
        let bytes = part.records.as_ref().expect("never null");
        Batches::new(bytes).map(|batch| batch.unwrap().base_offset().0).collect()
    };
    let parts = parts(answer);
    parts.iter().map(|part| (part.partition_index, bases(part))).filter(|part| !part.1.is_empty()).collect()
}

#[tokio::test]
async fn f01_empty_is_empty_and_not_null() {
    let (server, mut client) = started(1).await;
    for version in VERSIONS {
        for isolation in [0, 1] {
            let asked = of(&server, version, vec![part(0, 0), part(9, 0)]).with_isolation_level(isolation);
            let answer = client.call(version, &asked).await;
            let parts = parts(&answer);
            assert_eq!((answer.error_code, parts.len()), (0, 2), "v{version}");
            for (part, (code, high)) in parts.iter().zip([(0, 0), (3, -1)]) {
                assert_eq!((part.error_code, part.high_watermark), (code, high), "v{version}");
                assert_eq!(part.last_stable_offset, high, "v{version}");
                assert_eq!(part.records, Some(Bytes::new()), "v{version}, code {code}");
                assert!(part.aborted_transactions.as_ref().is_none_or(Vec::is_empty));
            }
        }
    }
}

#[tokio::test]
async fn f04_outside_of_the_log_nothing_is_told_but_that() {
    let (server, mut client) = started(1).await;
    fill(&server, &mut client, 0, 9).await;
    let trim = Command::DeleteRecords(vec![(partition(&server, 0), DeleteTo::Offset(Offset(2)))]);
    server.running.broker().shard.call(trim).await.unwrap();
    for version in VERSIONS {
        let start = |known: i64| if version >= 5 { known } else { -1 };
        for isolation in [0, 1] {
            for offset in [10, -1, 0, 1, i64::MIN, i64::MAX] {
                let watch = Stopwatch::start();
                let asked = of(&server, version, vec![part(0, offset)]).with_isolation_level(isolation);
                let part = parts(&client.call(version, &asked.with_max_wait_ms(30_000)).await).remove(0);
                assert!(watch.elapsed().as_secs() < 5, "at once");
                assert_eq!((part.error_code, part.high_watermark), (1, -1), "v{version} at {offset}");
                assert_eq!((part.last_stable_offset, part.log_start_offset), (-1, -1));
                assert_eq!(part.records, Some(Bytes::new()));
            }
            let asked = of(&server, version, vec![part(0, 9)]).with_isolation_level(isolation);
            let part = parts(&client.call(version, &asked).await).remove(0);
            assert_eq!((part.error_code, part.high_watermark, part.last_stable_offset), (0, 9, 9));
            assert_eq!((part.log_start_offset, part.records), (start(2), Some(Bytes::new())), "v{version}");
        }
    }
}

#[tokio::test]
async fn f05_the_first_batch_goes_out_whatever_the_limits() {
    let (server, mut client) = started(3).await;
    for index in [1, 2] {
        fill(&server, &mut client, index, 3).await;
        fill(&server, &mut client, index, 3).await;
    }
    for version in VERSIONS {
        for small in [1, 0, -1] {
            let tiny = part(1, 0).with_partition_max_bytes(small);
            let asked = of(&server, version, vec![tiny]).with_max_bytes(small.max(0));
            assert_eq!(served(&client.call(version, &asked).await), [(1, vec![0])], "v{version}, {small}");
            let asked = of(&server, version, vec![part(0, 0), part(1, 4), part(2, 0)]).with_max_bytes(1);
            let answer = client.call(version, &asked).await;
            assert_eq!(parts(&answer).len(), 3, "all are answered");
            assert_eq!(served(&answer), [(1, vec![3])], "v{version}: the first that has something");
            // A limit of one partition alone.
            let asked = of(&server, version, vec![part(1, 0), part(2, 0).with_partition_max_bytes(small)]);
            assert_eq!(served(&client.call(version, &asked).await)[0], (1, vec![0, 3]));
        }
    }
}

#[tokio::test]
async fn f06_partitions_take_turns_in_a_session() {
    for version in SESSIONS_FROM..=18 {
        let (server, mut client) = started(5).await;
        for index in 0..5 {
            for _ in 0..3 {
                fill(&server, &mut client, index, 2).await;
            }
        }
        let mut asked = of(&server, version, (0..5).map(|index| part(index, 0)).collect());
        asked = asked.with_session_epoch(0).with_max_bytes(1);
        let (mut session, mut order) = (0, Vec::new());
        for epoch in 0..8 {
            let answer =
                client.call(version, &asked.with_session_id(session).with_session_epoch(epoch)).await;
            assert_eq!(answer.error_code, 0);
            session = answer.session_id;
            let served = served(&answer);
            assert_eq!(served.len(), 1, "one batch an answer");
            let (index, bases) = &served[0];
            order.push(*index);
            // The client has it, and asks for what comes next.
            asked = of(&server, version, vec![part(*index, bases[0] + 2)]).with_max_bytes(1);
        }
        assert_eq!(order[..6], [0, 0, 1, 2, 3, 4], "v{version}");
    }
}

#[tokio::test]
async fn f07_a_session_is_the_same_on_both_sides() {
    for version in SESSIONS_FROM..=18 {
        let (server, mut client) = started(2).await;
        fill(&server, &mut client, 0, 9).await;
        for _ in 0..3 {
            fill(&server, &mut client, 1, 3).await;
        }
        let asked = |parts: Vec<FetchPartition>, session: i32, epoch: i32| {
            of(&server, version, parts).with_session_id(session).with_session_epoch(epoch)
        };
        let told = |answer: &FetchResponse| (answer.error_code, answer.session_id);
        let first = client.call(version, &asked(vec![part(0, 9), part(1, 2)], 0, 0)).await;
        let session = first.session_id;
        assert!(session > 0 && first.error_code == 0);
        assert_eq!(parts(&first).iter().map(|part| part.partition_index).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(served(&first), [(1, vec![0, 3, 6])]);
        // The client has what it was sent.
        let second = client.call(version, &asked(vec![part(1, 9)], session, 1)).await;
        assert_eq!((told(&second), parts(&second).len()), ((0, session), 0), "v{version}: nothing new");
        let wrong = client.call(version, &asked(Vec::new(), session, 5)).await;
        assert_eq!((told(&wrong), wrong.responses.len()), ((71, 0), 0), "v{version}");
        let mut forgetting = asked(Vec::new(), session, 2);
        let forgotten = ForgottenTopic::default().with_partitions(vec![0]);
        forgetting.forgotten_topics_data = vec![if version < IDS_FROM {
            forgotten.with_topic(TopicName(text("t")))
        } else {
            forgotten.with_topic_id(id(&server))
        }];
        let third = client.call(version, &forgetting).await;
        assert_eq!((told(&third), parts(&third).len()), ((0, session), 0), "v{version}");
        fill(&server, &mut client, 0, 1).await;
        fill(&server, &mut client, 1, 1).await;
        let fourth = client.call(version, &asked(Vec::new(), session, 3)).await;
        assert_eq!(served(&fourth), [(1, vec![9])], "v{version}");
        assert_eq!(parts(&fourth).len(), 1, "the forgotten one is not told of");
        let unknown = client.call(version, &asked(Vec::new(), 12_345, 1)).await;
        assert_eq!((told(&unknown), unknown.responses.len()), ((70, 0), 0), "v{version}");
        let closed = client.call(version, &asked(Vec::new(), session, -1)).await;
        assert_eq!((told(&closed), parts(&closed).len()), ((0, 0), 0), "v{version}");
        let after = client.call(version, &asked(Vec::new(), session, 4)).await;
        assert_eq!(told(&after), (70, 0), "v{version}");
    }
}

#[tokio::test]
async fn f07_sessions_of_an_earlier_life_are_unknown() {
    let (server, mut client) = started(1).await;
    let open = |server: &Server| of(server, 12, vec![part(0, 0)]).with_session_epoch(0);
    let mut old = Vec::new();
    for _ in 0..20 {
        old.push(client.call(12, &open(&server)).await.session_id);
    }
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let server = Server::on(dir, &[]).await;
    let mut client = Client::new(&server).await;
    let mut new = Vec::new();
    for _ in 0..20 {
        new.push(client.call(12, &open(&server)).await.session_id);
    }
    let next = |id: i32| of(&server, 12, Vec::new()).with_session_id(id).with_session_epoch(1);
    for id in &old {
        assert_eq!(client.call(12, &next(*id)).await.error_code, 70);
        // A client that lost its connection closes the session that it had, and opens another.
        let again = client.call(12, &open(&server).with_session_id(*id)).await;
        assert!(again.error_code == 0 && again.session_id > 0);
    }
    for id in &new {
        let answer = client.call(12, &next(*id)).await;
        assert_eq!((answer.error_code, answer.session_id), (0, *id), "nobody else has ended it");
    }
}

#[tokio::test]
async fn f09_leader_epochs_inside_sessions_and_outside() {
    let (server, mut client) = started(2).await;
    fill(&server, &mut client, 0, 9).await;
    // An unclean stop raises the epoch.
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
    let server = Server::on(dir, &[]).await;
    assert_eq!(server.running.broker().leader_epoch, 1);
    drop(client);
    let mut client = Client::new(&server).await;
    fill(&server, &mut client, 0, 3).await;
    for version in 9..=18 {
        // Current epoch, last fetched epoch, offset, code.
        let mut cases = vec![
            (-1, -1, 0, 0),
            (1, -1, 0, 0),
            (1, -1, 12, 0),
            (0, -1, 0, 74),
            (7, -1, 0, 75),
            (2, -1, 12, 75),
        ];
        if version >= 12 {
            cases.extend([
                (-1, 5, 0, 1),
                (1, 2, 12, 1),
                (1, 0, 9, 0),
                (1, 1, 12, 0),
                (-1, 0, 3, 0),
                (0, 5, 0, 74),
            ]);
        }
        for (current, last, offset, code) in cases {
            let one = || {
                let mut one = part(0, offset).with_current_leader_epoch(current);
                if version >= 12 {
                    one.last_fetched_epoch = last;
                }
                one
            };
            let what = format!("v{version}: current {current}, last {last}, offset {offset}");
            let wait = if code == 0 { 0 } else { 30_000 };
            let check = |answer: &FetchResponse, watch: &Stopwatch| {
                assert!(watch.elapsed().as_secs() < 5, "{what}: at once");
                let part = parts(answer).into_iter().find(|part| part.partition_index == 0).expect("told");
                assert_eq!((answer.error_code, part.error_code), (0, code), "{what}");
                assert_eq!(part.high_watermark, if code == 0 { 12 } else { -1 }, "{what}");
                let has_records = !part.records.unwrap().is_empty();
                assert_eq!(has_records, code == 0 && offset < 12, "{what}");
            };
            let watch = Stopwatch::start();
            let plain = of(&server, version, vec![one()]).with_max_wait_ms(wait);
            check(&client.call(version, &plain).await, &watch);
            // In a session: from its first request on, and as a change of a partition that was in order.
            let opening = of(&server, version, vec![one()]).with_session_epoch(0).with_max_wait_ms(wait);
            check(&client.call(version, &opening).await, &watch);
            let good = of(&server, version, vec![part(0, 12), part(1, 0)]).with_session_epoch(0);
            let session = client.call(version, &good).await.session_id;
            let changed = of(&server, version, vec![one()])
                .with_session_id(session)
                .with_session_epoch(1)
                .with_max_wait_ms(wait);
            let answer = client.call(version, &changed).await;
            if code != 0 || offset < 12 {
                check(&answer, &watch);
            } else {
                assert!(parts(&answer).is_empty(), "{what}: nothing is new");
            }
        }
    }
}

#[tokio::test]
async fn f16_partition_numbers() {
    let (server, mut client) = started(1).await;
    fill(&server, &mut client, 0, 1).await;
    for version in VERSIONS {
        let numbers = [-1, 99, i32::MIN, i32::MAX];
        let watch = Stopwatch::start();
        let mut asked = of(&server, version, numbers.map(|index| part(index, 0)).to_vec());
        if version < IDS_FROM {
            let missing = FetchTopic::default().with_topic(TopicName(text("missing")));
            asked.topics.push(missing.with_partitions(vec![part(0, 0)]));
        }
        let answer = client.call(version, &asked.with_max_wait_ms(30_000)).await;
        assert!(watch.elapsed().as_secs() < 5, "at once");
        let parts = parts(&answer);
        let told: Vec<i32> = parts.iter().map(|part| part.partition_index).collect();
        assert_eq!(told[..4], numbers);
        assert_eq!(told.len(), if version < IDS_FROM { 5 } else { 4 });
        for part in parts {
            assert_eq!((part.error_code, part.high_watermark), (3, -1), "v{version}");
            assert_eq!(part.records, Some(Bytes::new()), "v{version}");
        }
    }
}

/// Appends a batch as it is, past all that is looked at.
async fn append(server: &Server, batch: Bytes) -> i64 {
    let produce = Produce { acks: Acks::Written, parts: vec![(partition(server, 0), batch.into())] };
    match server.running.broker().shard.call(Command::Produce(produce)).await.unwrap() {
        Reply::Produced(parts) => parts[0].as_ref().unwrap().base_offset.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn p13_k27_a_batch_on_disk_that_does_not_decode_stops_nobody() {
    for order in ["none", "key"] {
        let setup = Setup::new(order).await;
        let good = batch(Codec::Lz4, 3);
        let mut expected = Vec::new();
        let mut offset = 0;
        for bits in 0..=7 {
            let bad = with_attributes(&with_payload(&batch(Codec::None, 2), b"garbage!!"), bits);
            for sent in [&good, &bad] {
                assert_eq!(append(&setup.server, sent.clone()).await, offset);
                expected.push(placed(sent, offset, 0));
                offset += if sent == &good { 3 } else { 2 };
            }
        }
        let mut client = Client::new(&setup.server).await;
        assert_eq!(stored(&mut client, "t", 0).await, expected, "a plain fetch shows them unchanged");
        // A member gets all good records, and the position goes on behind the last bad one.
        setup.produce(1).await;
        let mut member = setup.joined("a").await;
        let good: Vec<i64> = (0..offset).filter(|offset| offset % 5 < 3).chain([offset]).collect();
        let (mut seen, mut acks, mut rounds) = (Vec::new(), Vec::new(), 0);
        while seen.len() < good.len() {
            let acquired = member.fetch(Fetch { acks: &acks, ..PATIENT }).await.acquired();
            seen.extend(acquired.iter().flat_map(|(first, last, _)| *first..=*last));
            acks = acquired.iter().map(|(first, last, _)| (*first, *last, &[ACCEPT][..])).collect();
            rounds += 1;
            assert!(rounds < 50, "{order}: {seen:?}");
        }
        member.fetch(Fetch { acks: &acks, wait_ms: 0, ..ALL }).await;
        seen.sort_unstable();
        assert_eq!(seen, good, "{order}");
    }
}

#[tokio::test]
async fn r08_a_file_that_lost_its_end_harms_its_partition_alone() {
    let (server, mut client) = started(2).await;
    for index in [0, 1] {
        for _ in 0..20 {
            fill(&server, &mut client, index, 50).await;
        }
    }
    let path = server.dir.path().join("t-0/00000000000000000000.log");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    for version in VERSIONS {
        // What is there still goes out; then it is an error of this partition, or the connection ends: the answer's
        // length was told before the bytes were missed. Nobody waits, and no byte is made up.
        let mut lost = Client::new(&server).await;
        let asked = of(&server, version, vec![part(0, 900)]);
        lost.send(version, &asked).await;
        if let Some(answer) = lost.receive_or_end::<FetchRequest>(version).await {
            let part = parts(&answer).remove(0);
            assert!(matches!(part.error_code, 2 | 56), "v{version}: {}", part.error_code);
        }
        let asked = of(&server, version, vec![part(1, 0)]);
        assert_eq!(served(&client.call(version, &asked).await)[0].1.len(), 20, "v{version}");
    }
    fill(&server, &mut client, 1, 1).await;
}
