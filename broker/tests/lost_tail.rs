//! What is lost of a log while the broker is stopped (cases R15, R17): nothing of a group outlives its records, and the
//! broker goes on only where that is certain.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use broker::config::Config;
use broker::start;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/offsets.rs"]
mod offsets;
#[path = "common/share.rs"]
mod share;

use client::Client;
use common::Server;
use offsets::{commit, committed};
use share::{ACCEPT, Member, PATIENT, Setup, produce_to};

/// Longer than any of this takes.
const ROUNDS_MAX: usize = 2_000;

/// Commits, once the coordinator has loaded.
async fn commit_loaded(client: &mut Client, offset: i64) {
    for _ in 0..10_000 {
        match commit(client, offset).await {
            0 => return,
            code => assert!(matches!(code, 14..=16), "{code}"),
        }
    }
    panic!("the coordinator does not load");
}

/// Takes and accepts `count` records. Their offsets, ascending, with how often they were delivered.
async fn take(member: &mut Member, count: usize) -> Vec<(i64, i16)> {
    let mut seen = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let acquired = member.fetch(PATIENT).await.acquired();
        seen.extend(acquired.iter().flat_map(|(first, last, count)| (*first..=*last).map(|at| (at, *count))));
        let acks: Vec<_> = acquired.iter().map(|(first, last, _)| (*first, *last, &[ACCEPT][..])).collect();
        if !acks.is_empty() {
            assert_eq!(member.acknowledge(false, &acks).await, (0, vec![(0, 0)]));
        }
        if seen.len() >= count {
            seen.sort_unstable();
            return seen;
        }
    }
    panic!("{} of {count}: {seen:?}", seen.len());
}

async fn produce(server: &Server) -> i64 {
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    for number in 0..10 {
        batch.append(0, Some(format!("key-{number}").as_bytes()), Some(b"value"), &[]);
    }
    let (error, base) = produce_to(server, "t", batch.build(Offset(0), -1)).await;
    assert_eq!(error, 0);
    base
}

/// Ten batches of ten records, all of them accepted by the share group and committed by the other.
async fn all_done(order: &str) -> Setup {
    let setup = Setup::new(order).await;
    for number in 0..10 {
        assert_eq!(produce(&setup.server).await, number * 10);
    }
    let mut member = setup.joined("a").await;
    let all: Vec<_> = (0..100).map(|offset| (offset, 1)).collect();
    assert_eq!(take(&mut member, 100).await, all);
    commit_loaded(&mut Client::new(&setup.server).await, 100).await;
    setup
}

fn log(dir: &Path) -> PathBuf {
    dir.join("t-0/00000000000000000000.log")
}

#[tokio::test]
async fn r15_groups_see_what_is_written_where_an_orderly_stop_had_more() {
    for order in ["none", "key"] {
        for (lost, end) in [(0, 100), (1, 90), (5, 50), (10, 0)] {
            let setup = all_done(order).await;
            let epoch = setup.server.running.broker().leader_epoch;
            let Server { running, dir, .. } = setup.server;
            running.stop().await.unwrap();
            let file = OpenOptions::new().write(true).open(log(dir.path())).unwrap();
            let len = file.metadata().unwrap().len();
            file.set_len(len / 10 * (10 - lost)).unwrap();
            let setup = Setup::on(Server::on(dir, &[]).await).await;
            let raised = setup.server.running.broker().leader_epoch - epoch;
            assert_eq!(raised, i32::from(lost > 0), "an orderly stop costs nothing");
            // Before any of the groups is back.
            assert_eq!(produce(&setup.server).await, end);
            assert_eq!(committed(&mut Client::new(&setup.server).await).await, end, "{order}, {lost}");
            let mut member = setup.joined("b").await;
            let new: Vec<_> = (end..end + 10).map(|offset| (offset, 1)).collect();
            assert_eq!(take(&mut member, 10).await, new, "{order}, {lost}");
        }
    }
}

async fn refused(dir: &Path) -> String {
    let path = dir.to_str().unwrap();
    let settings = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.dirs", path), ("log.retention.ms", "-1")];
    start::start(Config::with(&settings).unwrap()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_start_without_a_log_that_held_records_is_refused_until_somebody_says_so() {
    let setup = all_done("none").await;
    let Server { running, dir, .. } = setup.server;
    running.stop().await.unwrap();
    let (partition, away) = (dir.path().join("t-0"), dir.path().join("away"));
    fs::rename(&partition, &away).unwrap();
    let text = refused(dir.path()).await;
    assert!(text.contains("t-0") && text.contains("offsets 0 to 100"), "{text}");
    // Nothing was made in its place, nothing forgotten.
    assert!(!partition.exists());
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &partition).unwrap();
    let text = refused(dir.path()).await;
    assert!(text.contains("t-0") && text.contains("link"), "{text}");
    fs::remove_file(&partition).unwrap();
    fs::rename(&away, &partition).unwrap();
    let server = Server::on(dir, &[]).await;
    assert_eq!(committed(&mut Client::new(&server).await).await, 100);
    let Server { running, dir, .. } = server;
    running.stop().await.unwrap();

    fs::rename(&partition, &away).unwrap();
    refused(dir.path()).await;
    // What the refusal said to do.
    let file = dir.path().join("recovery-point-offset-checkpoint");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nt 0 100\n"), "{text}");
    fs::write(&file, text.replace("\nt 0 100\n", "\nt 0 0\n")).unwrap();
    let setup = Setup::on(Server::on(dir, &[]).await).await;
    assert_eq!(produce(&setup.server).await, 0);
    assert_eq!(committed(&mut Client::new(&setup.server).await).await, 0);
    let mut member = setup.joined("b").await;
    assert_eq!(take(&mut member, 10).await, (0..10).map(|offset| (offset, 1)).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_older_metadata_store_removes_no_topic() {
    let setup = Setup::new("none").await;
    let Server { running, dir, .. } = setup.server;
    running.stop().await.unwrap();
    let store = dir.path().join("sluice-metadata.redb");
    let old = fs::read(&store).unwrap();
    let server = Server::on(dir, &[]).await;
    server.topic("later").await;
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, None, Some(b"dear"), &[]);
    assert_eq!(produce_to(&server, "later", batch.build(Offset(0), -1)).await, (0, 0));
    let Server { running, dir, .. } = server;
    running.stop().await.unwrap();
    let photos = dir.path().join("photos-7");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("one.jpg"), "mine").unwrap();

    let new = fs::read(&store).unwrap();
    fs::write(&store, old).unwrap();
    let server = Server::on(dir, &[]).await;
    let Server { running, dir, .. } = server;
    running.stop().await.unwrap();
    assert_eq!(fs::read_to_string(photos.join("one.jpg")).unwrap(), "mine");
    let names =
        || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stray = names().find(|name| name.starts_with("later-0.") && name.ends_with("-stray")).unwrap();

    // As the broker has said.
    fs::write(&store, new).unwrap();
    fs::rename(dir.path().join(stray), dir.path().join("later-0")).unwrap();
    let server = Server::on(dir, &[]).await;
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(0, None, Some(b"next"), &[]);
    assert_eq!(produce_to(&server, "later", batch.build(Offset(0), -1)).await, (0, 1));
}
