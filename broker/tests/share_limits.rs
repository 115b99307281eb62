//! Limits and starting points of share groups over a socket: S13, S14, S21.

#![allow(clippy::unwrap_used)]

use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use common::Server;
use share::{ACCEPT, ALL, Fetch, PATIENT, Setup, produce_to};

const ORDERS: [&str; 2] = ["none", "key"];
const HOUR_MS: i64 = 3_600_000;

async fn limited(order: &str, settings: &[(&str, &str)], configs: &[(&str, &str)]) -> Setup {
    let setup = Setup::on(Server::with(settings).await).await;
    let own = [("share.auto.offset.reset", "earliest"), ("sluice.share.order", order)];
    setup.configure(&[&own, configs].concat()).await;
    setup
}

#[tokio::test]
async fn s21_sessions_are_bounded() {
    for order in ORDERS {
        let setup = limited(order, &[("group.share.max.share.sessions", "2")], &[]).await;
        let (mut a, mut b) = (setup.joined("a").await, setup.joined("b").await);
        let mut c = setup.joined("c").await;
        for member in [&mut a, &mut b] {
            assert_eq!(member.fetch(Fetch { wait_ms: 0, ..ALL }).await.error, 0);
        }
        assert_eq!(c.fetch(Fetch { wait_ms: 0, ..ALL }).await.error, 133);
        a.epoch = 0;
        assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.error, 0, "the same again is not one more");
        assert_eq!(b.fetch_parts(-1, ALL, &[]).await.error, 0);
        assert_eq!(c.fetch(Fetch { wait_ms: 0, ..ALL }).await.error, 0, "one ended");
    }
}

#[tokio::test]
async fn s21_members_are_bounded() {
    for order in ORDERS {
        let setup = limited(order, &[("group.share.max.size", "2")], &[]).await;
        let (mut a, _b) = (setup.joined("a").await, setup.joined("b").await);
        let mut c = setup.member("c").await;
        let refused = c.heartbeat(0, Some(&["t"])).await;
        assert_eq!((refused.error_code, refused.error_message.is_some()), (81, true));
        assert_eq!(a.heartbeat(-1, None).await.error_code, 0);
        assert_eq!(c.heartbeat(0, Some(&["t"])).await.error_code, 0);
    }
}

#[tokio::test]
async fn s21_records_in_flight_are_bounded_and_settling_wakes() {
    for order in ORDERS {
        let configs = [("share.partition.max.record.locks", "100"), ("sluice.share.hold.target.ms", "0")];
        let setup = limited(order, &[], &configs).await;
        for _ in 0..3 {
            setup.produce(50).await;
        }
        let mut a = setup.joined("a").await;
        let strict = Fetch { mode: 1, ..PATIENT };
        let mut held = Vec::new();
        loop {
            let got = a.fetch(Fetch { wait_ms: 0, ..strict }).await.acquired();
            if got.is_empty() {
                break;
            }
            // A key may be in flight once: its next record comes when the first is settled.
            held.extend(got.iter().flat_map(|&(first, last, _)| first..=last));
        }
        let most = if order == "none" { 100 } else { 50 };
        assert_eq!(held.len(), most, "{order}");
        assert_eq!(a.acknowledge(false, &[(0, 9, &[ACCEPT])]).await.1, [(0, 0)]);
        let more = a.fetch(strict).await.acquired();
        let count: i64 = more.iter().map(|(first, last, _)| last - first + 1).sum();
        assert_eq!(count, 10, "{order}: {more:?}");
    }
    // With a key of its own for each, the bound is met by order key too.
    let configs = [("share.partition.max.record.locks", "100"), ("sluice.share.hold.target.ms", "0")];
    let setup = limited("key", &[], &configs).await;
    setup.produce(150).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 99, 1)]);
    assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), []);
    assert_eq!(a.acknowledge(false, &[(50, 50, &[ACCEPT])]).await.1, [(0, 0)]);
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(100, 100, 1)], "whichever is settled");
}

#[tokio::test]
async fn s13_soft_and_strict_record_limits() {
    for (order, soft) in [("none", (0, 9, 1)), ("key", (0, 1, 1))] {
        let setup = limited(order, &[], &[]).await;
        setup.produce(10).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(Fetch { max_records: 2, mode: 0, ..PATIENT }).await.acquired(), [soft]);
        let setup = limited(order, &[], &[]).await;
        setup.produce(10).await;
        let mut a = setup.joined("a").await;
        assert_eq!(a.fetch(Fetch { max_records: 2, mode: 1, ..PATIENT }).await.acquired(), [(0, 1, 1)]);
    }
}

async fn produce_at(setup: &Setup, times: &[i64]) {
    for (number, time) in times.iter().enumerate() {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        batch.append(*time, Some(format!("at-{number}-{time}").as_bytes()), Some(b"value"), &[]);
        assert_eq!(produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await.0, 0);
    }
}

#[tokio::test]
async fn s14_where_a_group_begins() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    for order in ORDERS {
        for (reset, expected) in [
            (None, vec![(3, 4, 1)]),
            (Some("latest"), vec![(3, 4, 1)]),
            (Some("earliest"), vec![(0, 4, 1)]),
            (Some("by_duration:PT1H"), vec![(1, 4, 1)]),
            (Some("by_duration:P1D"), vec![(0, 4, 1)]),
            (Some("by_duration:PT0S"), vec![(3, 4, 1)]),
        ] {
            let setup = Setup::on(Server::with(&[]).await).await;
            let order = [("sluice.share.order", order), ("sluice.share.hold.target.ms", "0")];
            let reset_to: Vec<_> =
                reset.map(|reset| ("share.auto.offset.reset", reset)).into_iter().collect();
            setup.configure(&[&order, &reset_to[..]].concat()).await;
            produce_at(&setup, &[now - 2 * HOUR_MS, now - HOUR_MS / 2, now - 1_000]).await;
            let mut a = setup.joined("a").await;
            let first = a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired();
            produce_at(&setup, &[now + 1, now + 2]).await;
            let mut got = first.iter().flat_map(|&(first, last, _)| first..=last).collect::<Vec<_>>();
            while got.last() != Some(&4) {
                let more = a.fetch(PATIENT).await.acquired();
                assert!(!more.is_empty(), "{order:?} {reset:?}: {got:?}");
                got.extend(more.iter().flat_map(|&(first, last, _)| first..=last));
            }
            let wanted: Vec<i64> = expected.iter().flat_map(|&(first, last, _)| first..=last).collect();
            assert_eq!(got, wanted, "{order:?} {reset:?}");
        }
    }
}
