//! Key-ordered share groups through raw ShareFetch and ShareAcknowledge: the cases of order, of late acknowledgements and of
//! what an answer holds that are told apart on the wire (K01, K03, K09, K11, K23, K42, K51 to K53, K55 to K57, K71,
//! K72).

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use records::batch::{BatchBuilder, Header};
use records::ids::Offset;
use records::{BatchView, Batches, Codec, TimestampType};
use tokio::time::sleep;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use common::Server;
use share::{ACCEPT, ALL, Acquired, Fetch, Member, PATIENT, REJECT, RELEASE, Setup, produce_to};

const GAP: i8 = 0;
const INVALID_RECORD_STATE: i16 = 121;

/// A group as the cases want it, and one batch with a record a letter; `-` is no key.
async fn keyed(keys: &str) -> Setup {
    keyed_with(&[], keys).await
}

async fn keyed_with(more: &[(&str, &str)], keys: &str) -> Setup {
    let setup = Setup::on(Server::start().await).await;
    let configs = [
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", "key"),
        ("sluice.share.key.max.inflight", "1000"),
        ("sluice.share.hold.target.ms", "0"),
    ];
    setup.configure(&[&configs, more].concat()).await;
    append(&setup, keys).await;
    setup
}

async fn append(setup: &Setup, keys: &str) {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    for key in keys.split_whitespace() {
        batch.append(1_000, (key != "-").then_some(key.as_bytes()), Some(b"value"), &[]);
    }
    assert_eq!(produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await.0, 0);
}

/// Records that are sure to be there.
async fn takes(member: &mut Member, max_records: i32) -> Vec<Acquired> {
    member.fetch(Fetch { max_records, mode: 1, ..PATIENT }).await.acquired()
}

/// Whatever is there now.
async fn looks(member: &mut Member, max_records: i32) -> Vec<Acquired> {
    member.fetch(Fetch { max_records, mode: 1, wait_ms: 0, ..ALL }).await.acquired()
}

/// Acknowledges a range with one type; says the partition's error.
async fn says(member: &mut Member, first: i64, last: i64, kind: i8) -> i16 {
    let (error, parts) = member.acknowledge(false, &[(first, last, &[kind])]).await;
    assert_eq!(error, 0);
    parts[0].1
}

fn each(acquired: &[Acquired]) -> Vec<(i64, i16)> {
    acquired.iter().flat_map(|&(first, last, count)| (first..=last).map(move |at| (at, count))).collect()
}

#[tokio::test]
async fn k01_two_keys_two_members() {
    let setup = keyed("a b a b a").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 1).await, [(0, 0, 1)]);
    assert_eq!(takes(&mut b, 1).await, [(1, 1, 1)]);
    assert_eq!(takes(&mut b, 10).await, [(3, 3, 1)]);
    assert_eq!(each(&takes(&mut a, 10).await), [(2, 1), (4, 1)]);
}

#[tokio::test]
async fn k03_recalled_records_wait_for_their_holder() {
    for settles in [ACCEPT, RELEASE, REJECT] {
        let setup = keyed("a a a b").await;
        let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
        assert_eq!(takes(&mut a, 10).await, [(0, 3, 1)]);
        assert_eq!(says(&mut a, 1, 1, ACCEPT).await, 0);
        assert_eq!(says(&mut a, 0, 0, RELEASE).await, 0);
        assert_eq!(looks(&mut b, 10).await, [], "A still works on 2");
        assert_eq!(says(&mut a, 2, 2, settles).await, 0, "it was recalled: no fault, and nothing changes");
        assert_eq!(says(&mut a, 2, 2, settles).await, INVALID_RECORD_STATE, "it is settled now");
        assert_eq!(each(&takes(&mut b, 10).await), [(0, 2), (2, 1)], "never 1, and 3 stays with A");
    }
}

#[tokio::test]
async fn k09_keyless_records_keep_no_order() {
    let setup = keyed("- a - a -").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 2).await, [(0, 1, 1)]);
    assert_eq!(says(&mut a, 0, 0, RELEASE).await, 0);
    assert_eq!(each(&takes(&mut b, 10).await), [(0, 2), (2, 1), (4, 1)]);
    assert_eq!(says(&mut a, 1, 1, ACCEPT).await, 0, "1 was not recalled");
    assert_eq!(takes(&mut b, 10).await, [(3, 3, 1)]);
}

#[tokio::test]
async fn k11_what_is_not_held_is_told_and_its_neighbours_count() {
    let setup = keyed("a b c").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 1).await, [(0, 0, 1)]);
    assert_eq!(takes(&mut b, 1).await, [(1, 1, 1)]);
    assert_eq!(takes(&mut a, 1).await, [(2, 2, 1)]);
    for kind in [ACCEPT, RELEASE] {
        assert_eq!(says(&mut a, 0, 2, kind).await, INVALID_RECORD_STATE);
    }
    assert_eq!(looks(&mut a, 10).await, [], "0 and 2 are accepted");
    assert_eq!(says(&mut b, 1, 1, ACCEPT).await, 0, "1 stayed with B");
}

#[tokio::test]
async fn k52_a_gap_of_a_live_record_is_a_release() {
    let setup = keyed("a a b").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 10).await, [(0, 2, 1)]);
    assert_eq!(says(&mut a, 0, 0, GAP).await, 0);
    assert_eq!(looks(&mut b, 10).await, [], "1 is recalled");
    assert_eq!(says(&mut a, 1, 1, ACCEPT).await, 0);
    assert_eq!(each(&takes(&mut b, 10).await), [(0, 2), (1, 1)]);
}

#[tokio::test]
async fn k51_a_recalled_record_waits_no_longer_than_its_holder() {
    let setup = keyed("a a a").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 10).await, [(0, 2, 1)]);
    assert_eq!(says(&mut a, 0, 0, RELEASE).await, 0);
    assert_eq!(looks(&mut b, 10).await, []);
    assert_eq!(a.fetch_parts(-1, ALL, &[]).await.error, 0);
    assert_eq!(each(&looks(&mut b, 10).await), [(0, 2), (1, 1), (2, 1)], "at that moment");
}

#[tokio::test]
async fn k53_without_a_grace_a_lost_connection_frees_at_once() {
    let setup = keyed_with(&[("sluice.share.disconnect.grace.ms", "0")], "a").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut b, 1).await, [(0, 0, 1)]);
    assert_eq!(looks(&mut a, 1).await, []);
    drop(b);
    assert_eq!(takes(&mut a, 1).await, [(0, 0, 2)]);
}

#[tokio::test]
async fn k71_a_parked_fetch_holds_no_acknowledgement_back() {
    let setup = keyed("a").await;
    let mut a = setup.joined("a").await;
    assert_eq!(takes(&mut a, 10).await, [(0, 0, 1)]);
    let long = Fetch { wait_ms: 60_000, ..ALL };
    for _ in 0..3 {
        assert_eq!(a.fetch(long).await.acquired(), [], "long before the minute is over");
    }
    let carries = Fetch { acks: &[(0, 0, &[ACCEPT])], ..long };
    assert_eq!(a.fetch(carries).await.ack_error(), 0);
}

#[tokio::test]
async fn k72_leave_first_settle_after() {
    for closes in [true, false] {
        let setup = keyed("a b").await;
        let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
        assert_eq!(takes(&mut a, 10).await, [(0, 1, 1)]);
        assert_eq!(a.heartbeat(-1, None).await.error_code, 0);
        if closes {
            let last = Fetch { acks: &[(0, 0, &[ACCEPT])], ..ALL };
            let topic = a.topic;
            assert_eq!(a.fetch_parts(-1, last, &[(topic, 0)]).await.ack_error(), 0);
            assert_eq!(looks(&mut b, 10).await, [(1, 1, 2)]);
        } else {
            assert_eq!(looks(&mut b, 10).await, [], "it may settle for a second");
            assert_eq!(each(&takes(&mut b, 10).await), [(0, 2), (1, 2)]);
        }
    }
}

#[tokio::test]
async fn k55_never_more_records_than_asked_for() {
    let keys = |batch: i32| (0..20).map(|key| format!("k{batch}-{key} ")).collect::<String>();
    let setup = keyed(&keys(0)).await;
    for batch in 1..3 {
        append(&setup, &keys(batch)).await;
    }
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    let soft = |max_records| Fetch { max_records, mode: 0, ..PATIENT };
    assert_eq!(a.fetch(soft(5)).await.acquired(), [(0, 4, 1)]);
    assert_eq!(takes(&mut b, 5).await, [(5, 9, 1)]);
    assert_eq!(each(&a.fetch(soft(30)).await.acquired()), (10..40).map(|at| (at, 1)).collect::<Vec<_>>());
}

/// Base offsets of the batches of an answer, and the offsets of their records.
fn inside(data: &[u8]) -> (Vec<i64>, Vec<i64>) {
    let (mut bases, mut offsets) = (Vec::new(), Vec::new());
    for batch in Batches::new(data) {
        let batch = batch.unwrap();
        assert!(batch.crc_is_valid());
        bases.push(batch.base_offset().get());
        let records = batch.records(1 << 20).unwrap();
        let before = offsets.len();
        offsets.extend(records.iter().map(|record| record.unwrap().offset.get()));
        assert_eq!(offsets.len() - before, usize::try_from(batch.record_count()).unwrap());
    }
    (bases, offsets)
}

#[tokio::test]
async fn k56_ascending() {
    let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
    let setup = keyed(&keys[..10].join(" ")).await;
    append(&setup, &keys[10..].join(" ")).await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    let mut taken = 0;
    while taken < 20 {
        taken += each(&takes(&mut a, 100).await).len();
    }
    for (first, last) in [(0, 2), (4, 11), (14, 19)] {
        assert_eq!(says(&mut a, first, last, ACCEPT).await, 0);
    }
    assert_eq!(says(&mut a, 12, 13, RELEASE).await, 0);
    assert_eq!(says(&mut a, 3, 3, RELEASE).await, 0);
    let fetched = b.fetch(Fetch { max_records: 10, ..PATIENT }).await;
    assert_eq!(fetched.acquired(), [(3, 3, 2), (12, 13, 2)]);
    let (bases, offsets) = inside(&fetched.parts[0].data);
    assert!(bases.is_sorted_by(|one, next| one < next) && offsets.is_sorted_by(|one, next| one < next));
    assert!([3, 12, 13].iter().all(|offset| offsets.contains(offset)), "{offsets:?}");
    assert_eq!(says(&mut b, 13, 13, RELEASE).await, 0);
    assert_eq!(takes(&mut b, 10).await, [(13, 13, 3)]);
    for offset in [3, 12, 13] {
        assert_eq!(says(&mut b, offset, offset, RELEASE).await, 0);
    }
    assert_eq!(takes(&mut b, 10).await, [(3, 3, 3), (12, 12, 3), (13, 13, 4)], "with their own counts");
}

/// Sticky homes go by member id: the client id, which both have in common, is none of it.
#[tokio::test]
async fn k23_members_with_one_client_id_have_equal_shares() {
    let keys: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
    let setup = keyed_with(&[("sluice.share.assignment", "sticky")], &keys.join(" ")).await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    for member in [&mut a, &mut b] {
        assert_eq!(looks(member, 0).await, []);
    }
    let (of_a, of_b) = (each(&takes(&mut a, 200).await), each(&takes(&mut b, 200).await));
    assert!((30..=70).contains(&of_a.len()), "{} of 100", of_a.len());
    let mut all: Vec<i64> = of_a.iter().chain(&of_b).map(|record| record.0).collect();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>(), "each key has one home");
}

#[tokio::test]
async fn k42_one_batch_several_members() {
    let setup = keyed("first").await;
    let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
    assert_eq!(takes(&mut a, 1).await, [(0, 0, 1)]);
    assert_eq!(says(&mut a, 0, 0, ACCEPT).await, 0);
    assert_eq!(looks(&mut b, 1).await, []);
    let two = Fetch { max_records: 2, mode: 1, ..PATIENT };
    a.asks(two).await;
    b.asks(two).await;
    // Both are to wait before there is anything.
    sleep(Duration::from_millis(300)).await;
    let mut batch = BatchBuilder::new(Codec::Gzip, TimestampType::Create);
    for (number, key) in (0..).zip(["a", "b", "a", "c"]) {
        let headers = [Header { key: b"trace", value: Some(key.as_bytes()) }];
        batch.append(2_000 + number, Some(key.as_bytes()), Some(b"value"), &headers);
    }
    let batch = batch.build(Offset(0), -1);
    let sent = shown(&batch);
    let stored: Vec<_> = sent.into_iter().map(|(offset, time, text)| (offset + 1, time, text)).collect();
    assert_eq!(produce_to(&setup.server, "t", batch).await, (0, 1));
    let mut shares = Vec::new();
    for member in [&mut a, &mut b] {
        let fetched = member.fetched().await;
        let offsets: Vec<i64> = each(&fetched.acquired()).iter().map(|record| record.0).collect();
        let data = &fetched.parts[0].data;
        let (_, sent) = inside(data);
        assert!(offsets.iter().all(|offset| sent.contains(offset)), "{offsets:?} of {sent:?}");
        let as_stored = |record: &(i64, i64, String)| stored.contains(record);
        assert!(shown(data).iter().all(as_stored), "offset, timestamp, key, value and headers");
        shares.push(offsets);
    }
    shares.sort_unstable();
    assert_eq!(shares, [[1, 3], [2, 4]], "no second key for one while the other has none");
}

/// Timestamp, key, value and headers of each record.
fn shown(data: &[u8]) -> Vec<(i64, i64, String)> {
    let mut found = Vec::new();
    for batch in Batches::new(data) {
        let batch = batch.unwrap();
        let records = batch.records(1 << 20).unwrap();
        found.extend(records.iter().map(|record| {
            let record = record.unwrap();
            let headers: Vec<_> = record.headers.iter().map(|header| (header.key, header.value)).collect();
            (
                record.offset.get(),
                record.timestamp,
                format!("{:?} {:?} {headers:?}", record.key, record.value),
            )
        }));
    }
    found
}

#[tokio::test]
async fn k57_a_slim_batch() {
    for stamped in ["LogAppendTime", "CreateTime"] {
        let setup = keyed("first").await;
        let configs = [("message.timestamp.type".to_owned(), stamped.to_owned())];
        setup.server.running.broker().catalog.set_topic_configs("t", configs.into()).await.unwrap();
        let mut batch = BatchBuilder::new(Codec::Lz4, TimestampType::Create);
        for number in 0..20 {
            let text = format!("key-{number}");
            let headers = [Header { key: b"trace", value: Some(text.as_bytes()) }];
            batch.append(2_000 + number, Some(text.as_bytes()), Some(b"value"), &headers);
        }
        let batch = batch.build(Offset(0), -1);
        assert_eq!(produce_to(&setup.server, "t", batch).await, (0, 1));
        let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
        assert_eq!(takes(&mut a, 1).await, [(0, 0, 1)]);
        // Two are kept back: of 20 records 18 are the stored batch.
        assert_eq!(takes(&mut b, 2).await, [(1, 2, 1)]);
        let whole = a.fetch(Fetch { max_records: 100, ..PATIENT }).await;
        assert_eq!(whole.acquired(), [(3, 20, 1)]);
        let stored = whole.parts[0].data.clone();
        let view = BatchView::parse(&stored).unwrap();
        assert_eq!((view.record_count(), view.size()), (20, stored.len()), "as it is stored");
        assert_eq!(view.attributes().codec().unwrap(), Codec::Lz4);
        let append_time = stamped == "LogAppendTime";
        assert_eq!(view.attributes().timestamp_type() == TimestampType::LogAppend, append_time);
        for (first, last) in [(3, 3), (5, 7), (11, 20)] {
            assert_eq!(says(&mut a, first, last, ACCEPT).await, 0);
        }
        assert_eq!(says(&mut a, 4, 4, RELEASE).await, 0);
        assert_eq!(says(&mut a, 8, 10, RELEASE).await, 0);
        let fetched = b.fetch(Fetch { max_records: 100, ..PATIENT }).await;
        assert_eq!(fetched.acquired(), [(4, 4, 2), (8, 10, 2)]);
        let slim = &fetched.parts[0].data;
        let slim_view = BatchView::parse(slim).unwrap();
        assert!(slim_view.crc_is_valid());
        assert_eq!((slim_view.record_count(), slim_view.size()), (4, slim.len()), "one batch of four");
        assert_eq!(slim_view.last_offset(), Offset(10));
        assert_eq!(slim_view.attributes().timestamp_type(), view.attributes().timestamp_type());
        let expected: Vec<_> =
            shown(&stored).into_iter().filter(|record| [4, 8, 9, 10].contains(&record.0)).collect();
        assert_eq!(shown(slim), expected, "timestamp, key, value, headers unchanged");
        let times: Vec<i64> = expected.iter().map(|record| record.1).collect();
        assert_eq!(slim_view.max_timestamp(), *times.iter().max().unwrap());
        if append_time {
            assert!(
                times.iter().all(|&time| time == view.max_timestamp() && time > 1_000_000),
                "when it came"
            );
        } else {
            assert_eq!(times, [2_003, 2_007, 2_008, 2_009]);
        }
    }
}
