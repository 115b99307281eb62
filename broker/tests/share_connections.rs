//! What a key-ordered share group makes of locks, lost connections, answers that were not written whole, and requests that
//! wait behind others on one connection, in real time over sockets (K04, K19, K54, K67, K70).

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use client::text;
use common::{Server, Stopwatch};
use share::{ACCEPT, ALL, Acquired, Fetch, Member, PATIENT, Setup, produce_to};

const INVALID_RECORD_STATE: i16 = 121;
const LOCK_MS: &str = "15000";
/// Later than the case says, on a machine that is busy with other things.
const LATE: Duration = Duration::from_millis(1_500);
const LONG: Fetch<'static> = Fetch { wait_ms: 60_000, ..ALL };
/// Records of 1 MB, and a fetch that waits until all of them can go out in one answer, which no socket takes in whole.
const LARGE: i64 = 8;
const ALL_LARGE: Fetch<'static> = Fetch { min_bytes: 8_000_000, max_bytes: 16 << 20, ..LONG };

/// A group whose locks last 15 s, and a record for each letter.
async fn keyed(inflight: &str, keys: &str) -> Setup {
    let setup = Setup::on(Server::start().await).await;
    setup
        .configure(&[
            ("share.auto.offset.reset", "earliest"),
            ("share.record.lock.duration.ms", LOCK_MS),
            ("sluice.share.order", "key"),
            ("sluice.share.key.max.inflight", inflight),
            ("sluice.share.hold.target.ms", "0"),
        ])
        .await;
    for key in keys.split_whitespace() {
        append(&setup, key, 5).await;
    }
    setup
}

async fn append(setup: &Setup, key: &str, value_bytes: usize) {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(1_000, Some(key.as_bytes()), Some(&vec![b'v'; value_bytes]), &[]);
    assert_eq!(produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await.0, 0);
}

async fn append_large(setup: &Setup) {
    for number in 0..LARGE {
        append(setup, &format!("large-{number}"), 1_000_000).await;
    }
}

async fn takes(member: &mut Member, max_records: i32) -> Vec<Acquired> {
    member.fetch(Fetch { max_records, mode: 1, ..PATIENT }).await.acquired()
}

async fn looks(member: &mut Member, max_records: i32) -> Vec<Acquired> {
    member.fetch(Fetch { max_records, mode: 1, wait_ms: 0, ..ALL }).await.acquired()
}

/// What comes next, and when, measured by this stopwatch.
async fn comes(member: &mut Member, max_records: i32, begun: &Stopwatch) -> (Vec<Acquired>, Duration) {
    loop {
        let fetch = Fetch { max_records, mode: 1, ..PATIENT };
        let got = member.fetch(fetch).await.acquired();
        if !got.is_empty() || begun.elapsed() > Duration::from_secs(60) {
            return (got, begun.elapsed());
        }
    }
}

#[track_caller]
fn at(seconds: f64, came: Duration) {
    let due = Duration::from_secs_f64(seconds);
    let early = Duration::from_millis(300);
    assert!(came + early >= due && came <= due + LATE, "{came:?}, due at {due:?}");
}

async fn says(member: &mut Member, offset: i64, kind: i8) -> i16 {
    let (error, parts) = member.acknowledge(false, &[(offset, offset, &[kind])]).await;
    assert_eq!(error, 0);
    parts[0].1
}

fn each(acquired: &[Acquired]) -> Vec<(i64, i16)> {
    acquired.iter().flat_map(|&(first, last, count)| (first..=last).map(move |at| (at, count))).collect()
}

/// They wait for locks and graces most of the time: all at once.
#[tokio::test]
async fn what_takes_seconds() {
    let mut cases = JoinSet::new();
    cases.spawn(k04_a_lock_runs_out_and_late_acknowledgements_change_nothing());
    cases.spawn(k19_k54_a_half_written_answer_frees_at_once_and_uncounted_what_was_in_it());
    cases.spawn(k19_who_reads_nothing_is_cut_off_at_half_the_lock());
    cases.spawn(k19_a_lock_begins_when_the_answer_is_written_whole());
    cases.spawn(k54_a_heartbeat_ends_the_grace_and_nothing_else());
    cases.spawn(k54_another_member_id_does_not_speak_for_the_old_one());
    cases.spawn(k70_reopened_and_never_settled());
    cases.spawn(k67_what_is_only_queued_holds_nothing());
    cases.spawn(k67_what_is_only_queued_has_no_clock());
    while let Some(ended) = cases.join_next().await {
        ended.expect("a case that holds");
    }
}

async fn k04_a_lock_runs_out_and_late_acknowledgements_change_nothing() {
    let setup = keyed("1000", "a a a b").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 10).await, [(0, 3, 1)]);
    let begun = Stopwatch::start();
    assert_eq!(says(&mut a, 1, ACCEPT).await, 0);
    let (got, when) = comes(&mut b, 10, &begun).await;
    assert_eq!(each(&got), [(0, 2), (2, 2), (3, 2)]);
    at(15.0, when);
    for offset in [0, 2, 3] {
        assert_eq!(says(&mut a, offset, ACCEPT).await, INVALID_RECORD_STATE);
    }
    let (error, parts) =
        b.acknowledge(false, &[(0, 0, &[ACCEPT]), (2, 2, &[ACCEPT]), (3, 3, &[ACCEPT])]).await;
    assert_eq!((error, parts[0].1), (0, 0), "nothing changed");
}

#[tokio::test]
async fn k19_a_parked_fetch_dies_with_its_connection() {
    let setup = keyed("1", "").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    b.asks(LONG).await;
    assert_eq!(looks(&mut a, 1).await, []);
    a.asks(LONG).await;
    drop(b);
    sleep(Duration::from_millis(100)).await;
    append(&setup, "a", 5).await;
    assert_eq!(a.fetched().await.acquired(), [(0, 0, 1)]);
}

async fn k19_k54_a_half_written_answer_frees_at_once_and_uncounted_what_was_in_it() {
    let setup = keyed("1", "a").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut b, 10).await, [(0, 0, 1)]);
    assert_eq!(looks(&mut a, 10).await, []);
    append_large(&setup).await;
    b.asks(ALL_LARGE).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(looks(&mut a, 100).await, [], "all of it is in an answer to B");
    drop(b);
    let lost = Stopwatch::start();
    let mut got = Vec::new();
    while got.len() < 8 {
        got.extend(each(&takes(&mut a, 100).await));
        assert!(lost.elapsed() < Duration::from_secs(5), "{got:?}");
    }
    assert_eq!(got, (1..=LARGE).map(|offset| (offset, 1)).collect::<Vec<_>>(), "nobody has seen them");
    for offset in 1..=LARGE {
        assert_eq!(says(&mut a, offset, ACCEPT).await, 0);
    }
    // What was written has its grace.
    let (got, when) = comes(&mut a, 10, &lost).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(7.5, when);
}

async fn k19_who_reads_nothing_is_cut_off_at_half_the_lock() {
    let setup = keyed("1", "").await;
    append_large(&setup).await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    b.asks(ALL_LARGE).await;
    let begun = Stopwatch::start();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(looks(&mut a, 1).await, [], "all of it is in an answer to B");
    let (got, when) = comes(&mut a, 1, &begun).await;
    assert_eq!(got, [(0, 0, 1)]);
    at(7.5, when);
    assert!(b.client.ends().await, "B cannot read the frame to its end any more");
}

async fn k19_a_lock_begins_when_the_answer_is_written_whole() {
    let setup = keyed("1", "").await;
    append_large(&setup).await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    b.asks(ALL_LARGE).await;
    let begun = Stopwatch::start();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(b.fetched().await.acquired(), [(0, LARGE - 1, 1)]);
    let (got, when) = comes(&mut a, 1, &begun).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(21.0, when);
}

/// B held 0:a for a second, fetched nothing more, and lost both its connections, which A waits for.
async fn both_lost() -> (Setup, Member, i32, Stopwatch) {
    let setup = keyed("1", "a a").await;
    let heart = setup.joined("b").await;
    let mut b = setup.member("b").await;
    let mut a = setup.joined("a").await;
    assert_eq!(takes(&mut b, 1).await, [(0, 0, 1)]);
    let begun = Stopwatch::start();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(looks(&mut a, 10).await, []);
    let epoch = b.epoch;
    drop((b, heart));
    sleep(Duration::from_secs(2)).await;
    (setup, a, epoch, begun)
}

async fn k54_a_heartbeat_ends_the_grace_and_nothing_else() {
    let (setup, mut a, _, begun) = both_lost().await;
    let _heart = setup.joined("b").await;
    let (got, when) = comes(&mut a, 1, &begun).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(15.0, when);
}

#[tokio::test]
async fn k54_a_new_session_frees_what_the_old_one_held() {
    let (setup, mut a, _, _) = both_lost().await;
    assert_eq!(looks(&mut a, 1).await, []);
    let mut b = setup.member("b").await;
    assert_eq!(b.fetch(Fetch { max_records: 0, wait_ms: 0, ..ALL }).await.error, 0);
    assert_eq!(looks(&mut a, 1).await, [(0, 0, 2)], "at that moment");
    assert_eq!(says(&mut b, 0, ACCEPT).await, INVALID_RECORD_STATE, "it does not hold it again");
    assert_eq!(says(&mut a, 0, ACCEPT).await, 0);
}

async fn k54_another_member_id_does_not_speak_for_the_old_one() {
    let (setup, mut a, _, begun) = both_lost().await;
    let mut c = setup.joined("c").await;
    assert_eq!(looks(&mut c, 1).await, []);
    let (got, when) = comes(&mut a, 1, &begun).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(8.5, when);
}

#[tokio::test]
async fn k54_the_old_epoch_is_good_within_the_grace() {
    let (setup, mut a, epoch, _) = both_lost().await;
    let mut b = setup.member("b").await;
    b.epoch = epoch;
    assert_eq!(looks(&mut a, 1).await, []);
    assert_eq!(says(&mut b, 0, ACCEPT).await, 0);
    assert_eq!(looks(&mut a, 1).await, [(1, 1, 1)], "its key is free at once");
}

#[tokio::test]
async fn k70_reopened_while_its_application_works() {
    let (setup, mut a, mut b, _) = reopened().await;
    sleep(Duration::from_millis(600)).await;
    assert_eq!(says(&mut b, 0, ACCEPT).await, 0, "in the new session");
    assert_eq!(looks(&mut a, 1).await, [(1, 1, 1)]);
    drop(setup);
}

async fn k70_reopened_and_never_settled() {
    let (_setup, mut a, _b, begun) = reopened().await;
    let (got, when) = comes(&mut a, 1, &begun).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(15.0, when);
}

/// B holds 0:a and loses all its connections while its next fetch is parked; 200 ms later it opens a new session.
async fn reopened() -> (Setup, Member, Member, Stopwatch) {
    let setup = keyed("1", "a a").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut b, 1).await, [(0, 0, 1)]);
    let begun = Stopwatch::start();
    assert_eq!(looks(&mut a, 1).await, []);
    sleep(Duration::from_secs(1)).await;
    // What it holds is a second old, so that its fetch is parked for 50 ms.
    b.asks(LONG).await;
    drop(b);
    sleep(Duration::from_millis(200)).await;
    let mut b = setup.joined("b").await;
    assert_eq!(looks(&mut b, 1).await, []);
    assert_eq!(looks(&mut a, 1).await, [], "everything stays");
    (setup, a, b, begun)
}

/// A sends a Fetch of an empty topic that waits for 10 s, and a share fetch behind it on the same connection.
async fn behind_a_fetch(setup: &Setup) -> (Member, Stopwatch) {
    let mut a = setup.joined("a").await;
    setup.server.topic("empty").await;
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(TopicName(text("empty"))).with_partitions(vec![partition]);
    let fetch = FetchRequest::default()
        .with_max_wait_ms(10_000)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic]);
    a.client.send(11, &fetch).await;
    a.asks(Fetch { wait_ms: 0, ..ALL }).await;
    (a, Stopwatch::start())
}

/// The answer to that Fetch, then the share fetch's.
async fn answered(a: &mut Member, begun: &Stopwatch) -> Vec<Acquired> {
    // Within what the client waits for an answer.
    sleep(Duration::from_secs(8).saturating_sub(begun.elapsed())).await;
    let fetched = a.client.receive_or_end::<FetchRequest>(11).await.unwrap();
    assert_eq!(fetched.responses[0].partitions[0].error_code, 0);
    at(10.0, begun.elapsed());
    a.fetched().await.acquired()
}

async fn k67_what_is_only_queued_holds_nothing() {
    let setup = keyed("1", "a").await;
    let mut b = setup.joined("b").await;
    let (mut a, begun) = behind_a_fetch(&setup).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(takes(&mut b, 1).await, [(0, 0, 1)], "nothing was reserved for A");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(answered(&mut a, &begun).await, []);
}

async fn k67_what_is_only_queued_has_no_clock() {
    let setup = keyed("1", "a").await;
    let mut b = setup.joined("b").await;
    let (mut a, begun) = behind_a_fetch(&setup).await;
    assert_eq!(answered(&mut a, &begun).await, [(0, 0, 1)]);
    sleep(Duration::from_secs(20).saturating_sub(begun.elapsed())).await;
    let (got, when) = comes(&mut b, 1, &begun).await;
    assert_eq!(got, [(0, 0, 2)]);
    at(25.0, when);
}
