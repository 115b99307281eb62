//! A data directory that an earlier release wrote opens with its state: `fixtures/data-1` was written by the first one.
//!
//! When a format of ours changes, the directory stays as it is and another one is added: `SLUICE_WRITE_FIXTURE=NAME`
//! writes it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use kafka_protocol::messages::ListGroupsRequest;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/offsets.rs"]
mod offsets;
#[path = "common/produce.rs"]
mod produce;
#[path = "common/share.rs"]
mod share;

use client::Client;
use common::Server;
use offsets::{commit, committed};
use share::{ACCEPT, ALL, Member, PATIENT, REJECT, RELEASE, Setup, produce_to};

const FIXTURES: [&str; 1] = ["data-1"];
const GROUPS: [&str; 2] = ["key", "none"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Ten records of topic `t` in two batches, the keys `k0` to `k4` twice.
async fn fill(server: &Server) {
    for codec in [Codec::None, Codec::Zstd] {
        let mut batch = BatchBuilder::new(codec, TimestampType::Create);
        for number in 0..5 {
            batch.append(7, Some(format!("k{number}").as_bytes()), Some(b"value"), &[]);
        }
        assert_eq!(produce_to(server, "t", batch.build(Offset(0), -1)).await.0, 0);
    }
}

/// What each group does: accepts 0, 1 and 4, releases 2, rejects 3, and leaves the rest in its hands.
async fn work(setup: &Setup, group: &str) -> Member {
    let mut member = setup.joined_to(group, "a").await;
    let held: i64 =
        member.fetch(PATIENT).await.acquired().iter().map(|(first, last, _)| last - first + 1).sum();
    assert!(held >= 5, "{held}");
    let types = [ACCEPT, ACCEPT, RELEASE, REJECT, ACCEPT];
    assert_eq!(member.acknowledge(false, &[(0, 4, &types)]).await, (0, vec![(0, 0)]));
    member
}

async fn configure(setup: &Setup, group: &str) {
    let configs = [
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", group),
        ("sluice.share.disconnect.grace.ms", "0"),
        ("sluice.share.hold.target.ms", "0"),
        ("share.delivery.count.limit", "7"),
    ];
    setup.configure_group(group, &configs).await;
}

#[tokio::test]
async fn writes_a_fixture_where_it_is_told_to() {
    let Ok(name) = std::env::var("SLUICE_WRITE_FIXTURE") else { return };
    let setup = Setup::on(Server::with(&[("offsets.topic.num.partitions", "2")]).await).await;
    fill(&setup.server).await;
    let mut at_work = Vec::new();
    for group in GROUPS {
        configure(&setup, group).await;
        at_work.push(work(&setup, group).await);
    }
    let mut plain = Client::new(&setup.server).await;
    committed(&mut plain).await;
    assert_eq!(commit(&mut plain, 7).await, 0);
    drop(plain);
    let Server { running, dir, .. } = setup.server;
    running.stop().await.unwrap();
    copy(dir.path(), &fixture(&name));
}

#[tokio::test]
async fn r14_a_directory_of_an_earlier_release_opens_with_its_state() {
    for name in FIXTURES {
        let dir = tempfile::tempdir().unwrap();
        copy(&fixture(name), dir.path());
        let server = Server::on(dir, &[("offsets.topic.num.partitions", "2")]).await;
        let mut client = Client::new(&server).await;
        assert_eq!(committed(&mut client).await, 7, "{name}");
        assert_eq!(produce::end(&mut client, "t").await, 10, "{name}");
        let stored = produce::stored(&mut client, "t", 0).await;
        assert_eq!(stored.len(), 2, "{name}: both batches");
        let groups = client.call(4, &ListGroupsRequest::default()).await.groups;
        for group in GROUPS {
            assert!(groups.iter().any(|listed| listed.group_id.as_str() == group), "{name}: {groups:?}");
        }

        let setup = Setup::on(server).await;
        for group in GROUPS {
            let image = setup.server.running.broker().catalog.image();
            let configs = image.group(group).unwrap();
            assert_eq!(configs.get("share.delivery.count.limit").map(String::as_str), Some("7"), "{name}");
            // What was released counts, what the stop of the broker ended does not, what is settled stays so. In order,
            // 7 waits for 2, which has its key.
            let expected: &[(i64, i64, i16)] =
                if group == "key" { &[(2, 2, 2), (5, 6, 1), (8, 9, 1)] } else { &[(2, 2, 2), (5, 9, 1)] };
            let mut member = setup.joined_to(group, "b").await;
            let mut seen = Vec::new();
            for _ in 0..10 {
                seen.extend(member.fetch(ALL).await.acquired());
                if seen.len() >= expected.len() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{name}, {group}");
        }
        let produced = produce_to(&setup.server, "t", produce::batch(Codec::None, 1)).await;
        assert_eq!(produced, (0, 10), "{name}");
    }
}
