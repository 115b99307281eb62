//! One key-ordered share group of mixed clients, unmodified ones and our own, while members come, go and crash (O1, O2, O4, O5).
//!
//! `SLUICE_MIXED_REPEAT=20` repeats each run that often. With `SLUICE_TEST_TARGET=kafka` the runs are made against
//! Apache Kafka, which keeps no order: then only losses fail.

use std::time::Duration;

use integration_tests::foreign::{Client, KafkaTools};
use integration_tests::order_checker::Report;
use integration_tests::share_run::{Options, ShareRun};
use integration_tests::test_broker::TestBroker;

const TOPIC: &str = "orders";
const GROUP: &str = "workers";
const RECORDS: usize = 3_000;
/// The whole run takes about 20 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(240);

const WORK: Options<'static> = &[
    ("service-us-min", "2000"),
    ("service-us-max", "20000"),
    ("release-percent", "5"),
    ("max-poll-records", "50"),
];
const LOAD: Options<'static> =
    &[("records", "1500"), ("keys", "40"), ("keyless-percent", "3"), ("pause-us", "3000")];

#[test]
fn mixed_clients_keep_the_order_of_every_key() {
    repeat(false);
}

#[test]
fn mixed_clients_keep_the_order_of_every_key_over_a_crash_of_the_broker() {
    repeat(true);
}

fn repeat(crash: bool) {
    let times =
        std::env::var("SLUICE_MIXED_REPEAT").map_or(1, |times| times.parse().expect("a number of runs"));
    for round in 1..=times {
        let Some(report) = run(crash) else { return };
        println!("round {round} of {times}: {report}");
    }
}

/// `None` where a tool chain is missing.
fn run(crash: bool) -> Option<Report> {
    let tools = KafkaTools::require()?;
    let mut broker = TestBroker::start()?;
    broker.create_topic(&tools, TOPIC, 1);
    broker.set_up_share_group(&tools, GROUP);

    let mut run = ShareRun::new(&broker.bootstrap(), TOPIC, GROUP, WORK);
    run.add_member(Client::Java44, "java-4.4", &[])?;
    run.add_member(Client::Java42, "java-4.2", &[("commit", "sync")])?;
    run.add_member(Client::FranzGo, "franz-go", &[])?;
    run.add_member(Client::Librdkafka, "librdkafka", &[])?;
    if broker.is_sluice() {
        run.add_member(Client::KeyShare, "key-share", &[])?;
    }
    run.add_producer(Client::FranzGo, "producer-go", LOAD)?;
    run.add_producer(Client::Librdkafka, "producer-librdkafka", LOAD)?;

    run.wait_for_done(RECORDS / 5, LIMIT);
    run.add_member(Client::FranzGo, "franz-go-late", &[("commit", "record"), ("strict", "yes")])?;
    run.wait_for_done(RECORDS * 3 / 10, LIMIT);
    run.stop_member("librdkafka");
    run.wait_for_done(RECORDS * 4 / 10, LIMIT);
    run.kill_member("franz-go");
    if crash {
        run.wait_for_done(RECORDS / 2, LIMIT);
        broker.kill_and_restart();
    }
    run.add_member(Client::Librdkafka, "librdkafka-late", &[("commit", "sync")])?;
    run.wait_for_done(RECORDS * 6 / 10, LIMIT);
    run.stop_member("java-4.2");
    if broker.is_sluice() {
        run.kill_member("key-share");
        run.add_member(Client::KeyShare, "key-share-late", &[("concurrency", "8")])?;
    }
    run.add_member(Client::Java44, "java-4.4-late", &[("ack", "implicit")])?;
    run.wait_for_done(RECORDS, LIMIT);

    let report = run.finish();
    assert_eq!(report.records, RECORDS, "{report}");
    if broker.is_sluice() {
        report.expect_clean();
        // A stock client held one record of a key: what it had gone past was acknowledged for good, crash or not.
        let bad: Vec<_> =
            report.rewinds.iter().filter(|r| !r.later_member.starts_with("key-share")).collect();
        assert!(bad.is_empty(), "acknowledged records came again: {bad:?}\n{report}");
    } else {
        assert_eq!(report.lost(), 0, "{report}");
    }
    Some(report)
}
