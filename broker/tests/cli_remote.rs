//! `sluice groups` and `sluice keys` against a broker: what they print, for people and as JSON, and how they end.

#![cfg(feature = "admin")]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ::client::{RangeReader, RangeReaderSettings};
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{Codec, TimestampType};
use serde_json::Value;
use tokio::process::Command;

#[path = "common/client.rs"]
mod client;
mod common;
#[path = "common/share.rs"]
mod share;

use share::{ACCEPT, ALL, Fetch, PATIENT, RELEASE, Setup, produce_to};

struct Ended {
    code: Option<i32>,
    text: String,
    errors: String,
}

async fn sluice(setup: &Setup, line: &str) -> Ended {
    let address = setup.server.running.local_addr().to_string();
    let mut words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    words.extend(["--bootstrap-server".to_owned(), address]);
    let output = Command::new(env!("CARGO_BIN_EXE_sluice")).args(&words).output().await.unwrap();
    Ended {
        code: output.status.code(),
        text: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn ok(setup: &Setup, line: &str) -> String {
    let ended = sluice(setup, line).await;
    assert_eq!(ended.code, Some(0), "{line}: {}{}", ended.text, ended.errors);
    ended.text
}

async fn json(setup: &Setup, line: &str) -> Value {
    serde_json::from_str(&ok(setup, &format!("{line} --json")).await).unwrap()
}

async fn fails(setup: &Setup, line: &str) -> String {
    let ended = sluice(setup, line).await;
    assert_eq!(ended.code, Some(1), "{line}: {}", ended.text);
    format!("{}{}", ended.text, ended.errors)
}

#[tokio::test]
async fn groups_are_listed_described_reset_and_deleted() {
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    assert_eq!(ok(&setup, "groups list").await, "there are no groups\n");
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
    assert_eq!(a.acknowledge(false, &[(0, 2, &[ACCEPT])]).await.1, [(0, 0)]);

    assert!(ok(&setup, "groups list").await.contains("g      share  Stable  share"));
    assert_eq!(json(&setup, "groups list --kind classic").await, Value::Array(Vec::new()));
    let text = ok(&setup, "groups describe g").await;
    assert!(text.starts_with("g: share group, Stable, "), "{text}");
    for part in ["a       test    /127.0.0.1  t:0", "t      0          3      4    1    1"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let told = json(&setup, "groups describe g").await;
    assert_eq!((&told["partitions"][0]["lag"], &told["members"][0]["member"]), (&1.into(), &"a".into()));
    assert!(fails(&setup, "groups describe nobody").await.contains("there is no group nobody"));

    let reset = "groups reset g --topic t --to-earliest";
    assert!(ok(&setup, reset).await.contains("nothing was changed: add --execute"));
    assert!(fails(&setup, &format!("{reset} --execute")).await.contains("NonEmptyGroup"));
    assert!(fails(&setup, "groups delete g").await.contains("NonEmptyGroup"));
    assert_eq!(a.fetch_parts(-1, ALL, &[]).await.error, 0);
    assert_eq!(a.heartbeat(-1, None).await.error_code, 0);
    for (to, start) in [
        ("--to-earliest", 0),
        ("--to-latest", 4),
        ("--to-offset 2", 2),
        ("--to-offset 99", 4),
        ("--to-datetime 0", 0),
        ("--to-datetime 2026-01-01T00:00:00Z", 4),
    ] {
        let text = ok(&setup, &format!("groups reset g --topic t:0 {to} --execute")).await;
        assert_eq!(text, format!("t-0: starts at {start} now\n"));
    }
    let told = json(&setup, "groups reset g --all-topics --to-offset 1 --execute").await;
    assert_eq!((&told[0]["startOffset"], &told[0]["error"]), (&1.into(), &Value::Null));
    assert_eq!(json(&setup, "groups describe g").await["partitions"][0]["startOffset"], 1);
    assert!(fails(&setup, "groups reset g --topic t:7 --to-latest").await.contains("no partition 7"));

    assert_eq!(ok(&setup, "groups delete-offsets g --topic t").await, "t: deleted\n");
    assert!(fails(&setup, "groups delete-offsets g --topic t").await.contains("t: not deleted"));
    assert_eq!(ok(&setup, "groups delete g").await, "g: deleted\n");
    assert!(fails(&setup, "groups delete g").await.ends_with("g: not deleted: GroupIdNotFound\n"));
}

#[tokio::test]
async fn a_group_of_readers_is_listed_described_reset_and_deleted() {
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    let mut reader = RangeReader::open(RangeReaderSettings {
        bootstrap: setup.server.running.local_addr().to_string(),
        group: "g".to_owned(),
        topic: "t".to_owned(),
        partitions: vec![0],
        ranges: Vec::new(),
        records_per_key_max: 0,
    })
    .await
    .unwrap();
    assert_eq!(reader.next(100, Duration::from_secs(5)).await.unwrap().len(), 4);
    reader.commit(&[(0, Offset(0), Offset(2))]).await.unwrap();
    assert!(ok(&setup, "groups list").await.contains("g      share  Empty  share"));
    assert!(fails(&setup, RESET).await.contains("NonEmptyGroup"), "a reader is at work");
    reader.close().await.unwrap();

    let setup = setup.restarted().await;
    assert!(ok(&setup, "groups list").await.contains("g      share  Empty  share"));
    is_reset_and_deleted(&setup, 3).await;
}

const RESET: &str = "groups reset g --topic t --to-offset 1 --execute";

/// Group g starts at `start`; by the command it begins elsewhere, and ends.
async fn is_reset_and_deleted(setup: &Setup, start: i64) {
    assert_eq!(json(setup, "groups describe g").await["partitions"][0]["startOffset"], start);
    assert_eq!(ok(setup, RESET).await, "t-0: starts at 1 now\n");
    assert_eq!(ok(setup, "groups delete-offsets g --topic t").await, "t: deleted\n");
    assert_eq!(ok(setup, "groups delete g").await, "g: deleted\n");
    assert_eq!(ok(setup, "groups list").await, "there are no groups\n");
}

#[tokio::test]
async fn a_group_that_nobody_joined_is_listed_described_reset_and_deleted() {
    let setup = Setup::new("key").await;
    setup.produce(4).await;
    let mut stranger = setup.member("never joined").await;
    assert_eq!(stranger.fetch(PATIENT).await.acquired(), [(0, 3, 1)]);
    assert!(ok(&setup, "groups list").await.contains("g      share  Empty  share"));
    assert_eq!(stranger.fetch(Fetch { acks: &[(0, 1, &[ACCEPT])], ..ALL }).await.ack_error(), 0);
    assert_eq!(stranger.fetch_parts(-1, ALL, &[]).await.error, 0);
    is_reset_and_deleted(&setup, 2).await;
}

#[tokio::test]
async fn a_record_without_a_key_is_not_parked_while_it_is_held() {
    let setup = Setup::new("key").await;
    let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
    batch.append(1_000, None, Some(b"value"), &[]);
    assert_eq!(produce_to(&setup.server, "t", batch.build(Offset(0), -1)).await.0, 0);
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 0, 1)]);
    let refused = fails(&setup, "keys park g --topic t --offset 0").await;
    assert!(refused.contains("a member holds this record, which has no key"), "{refused}");
    assert_eq!(a.acknowledge(false, &[(0, 0, &[RELEASE])]).await.1, [(0, 0)]);
    assert!(ok(&setup, "keys park g --topic t --offset 0").await.ends_with(": parked\n"));
}

#[tokio::test]
async fn keys_are_listed_explained_and_changed() {
    let setup = Setup::new("key").await;
    // A script must not take a wrong name for a group that is well.
    for line in ["keys list g", "keys why g --topic t --key key-0", "keys show g --topic t --key key-0"] {
        let ended = sluice(&setup, line).await;
        assert_eq!(ended.code, Some(1), "{line}: {}", ended.text);
        assert_eq!(ended.text, "", "{line}");
        assert!(ended.errors.starts_with("sluice keys: share group g has read nothing"), "{}", ended.errors);
    }
    setup.produce(2).await;
    setup.produce(2).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(Fetch { max_records: 1, ..PATIENT }).await.acquired(), [(0, 0, 1)]);
    let why = ok(&setup, "keys why g --topic t --key key-0").await;
    assert!(why.starts_with("t-0: key \"key-0\" (") && why.contains("): a holds it until 2"), "{why}");
    assert_eq!(
        ok(&setup, "keys why g --topic t --offset 2").await,
        "t-0: offset 2: it is behind offset 0 of its key\n"
    );
    let told = json(&setup, "keys why g --topic t --offset 1").await;
    assert_eq!(told[0]["answer"]["reason"], "Ready");
    assert_eq!(a.acknowledge(false, &[(0, 0, &[RELEASE])]).await.1, [(0, 0)]);

    let text = ok(&setup, "keys list g").await;
    assert!(text.contains("t-0: every key in order, start 0, read to 4, end 4, 4 not done"), "{text}");
    let told = json(&setup, "keys list g --topic t --partition 0").await;
    let hash = told[0]["keys"][0]["keyHash"].as_str().unwrap().to_owned();
    assert_eq!(told[0]["keys"][0]["backlog"], 2);

    let parked = ok(&setup, &format!("keys park g --topic t --key-hash {hash}")).await;
    assert_eq!(parked, format!("t-0: {hash}: parked\n"), "not how many records that stops");
    let shown = ok(&setup, "keys show g --topic t --offset 0").await;
    assert!(shown.contains(&format!("offset 0 of key {hash}: its key is parked since 2")), "{shown}");
    assert!(ok(&setup, "keys show g --topic t --key key-0").await.contains("stopped keys:"));
    assert!(ok(&setup, "keys why g --topic t --offset 0").await.contains("its key is parked since 2"));
    assert_eq!(a.fetch(Fetch { wait_ms: 0, ..ALL }).await.acquired(), [(1, 1, 1)]);
    let resumed = ok(&setup, "keys resume g --topic t --key key-0").await;
    assert_eq!(resumed, format!("t-0: {hash}: resumed\n"));
    let skipped = ok(&setup, "keys skip g --topic t --key key-0").await;
    assert!(skipped.ends_with("done, 1 record\n"), "{skipped}");
    ok(&setup, "keys drop g --topic t --key key-0").await;
    assert_eq!(json(&setup, "keys why g --topic t --offset 2").await[0]["answer"]["reason"], "Done");

    // What is done comes again, with the key in its order.
    let replayed = ok(&setup, "keys replay g --topic t --key key-0 --partition 0 --from 0 --to 3").await;
    assert!(replayed.ends_with("its replay has begun; records found so far: 2\n"), "{replayed}");
    assert!(fails(&setup, "keys redrive g --topic t --key key-0 --partition 0").await.contains("t-0: "));
    let nothing = fails(&setup, "keys park g --topic t --key nobody --partition 5").await;
    assert!(nothing.contains("no partition 5"), "{nothing}");
    assert!(fails(&setup, "keys why g --topic missing --offset 0").await.contains("missing"));
    let ahead = ok(&setup, "keys park g --topic t --key to-come").await;
    assert!(ahead.contains(": parked ahead: no open record of this key was read here"), "{ahead}");
    let again = ok(&setup, "keys park g --topic t --key to-come").await;
    assert!(again.ends_with("nothing to do, it was so already\n"), "{again}");
    let told = json(&setup, "keys park g --topic t --key other --partition 0").await;
    assert_eq!((&told["parkedAhead"], &told["records"]), (&true.into(), &Value::Null));
    let list = ok(&setup, "keys list g --worst 1").await;
    assert!(list.contains("AT of a key parked by hand") && list.contains("    and 1 more"), "{list}");
    let why = ok(&setup, "keys why g --topic t --key to-come").await;
    assert!(why.contains("its key is parked since 2") && why.ends_with(", by hand\n"), "{why}");
    let skipped = fails(&setup, "keys skip g --topic t --key other").await;
    assert!(skipped.contains("nothing of this key is open here"), "{skipped}");
    let wrong = sluice(&setup, "keys why g --topic t").await;
    assert_eq!(wrong.code, Some(2), "a key must be named: {}", wrong.errors);
}

#[tokio::test]
async fn a_group_without_order_knows_no_keys() {
    let setup = Setup::new("none").await;
    setup.produce(2).await;
    let mut a = setup.joined("a").await;
    assert_eq!(a.fetch(PATIENT).await.acquired(), [(0, 1, 1)]);
    let why = ok(&setup, "keys why g --topic t --key key-0").await;
    assert!(why.ends_with("the group keeps no order by key: ask about a record by its offset\n"), "{why}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_told() {
    let setup = Setup::new("key").await;
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["groups", "list", "--bootstrap-server", "127.0.0.1:1"])
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.starts_with("sluice groups: no broker reached at 127.0.0.1:1"), "{errors}");
    setup.server.answers().await;
}
