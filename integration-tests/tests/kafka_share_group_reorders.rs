//! Apache Kafka's own share group, judged by the order checker: it keeps no order, so the checker must say so.
//!
//! The counterpart of `clients_mixed_key_order.rs`, with the same clients and the same kind of load. A checker that
//! finds nothing here would prove nothing there.

use std::time::Duration;

use integration_tests::foreign::{ApacheKafka, Client};
use integration_tests::share_run::ShareRun;
use integration_tests::test_broker::TestBroker;

const RECORDS: usize = 1_000;

#[test]
fn the_order_checker_finds_violations_in_apache_kafkas_share_group() {
    let Some(kafka) = ApacheKafka::start("") else { return };
    let tools = kafka.tools().clone();
    let broker = TestBroker::Kafka(Box::new(kafka));
    broker.create_topic(&tools, "reordered", 1);
    broker.set_up_share_group(&tools, "workers");

    let options = [
        ("service-us-min", "500"),
        ("service-us-max", "5000"),
        ("release-percent", "10"),
        ("max-poll-records", "20"),
    ];
    let mut run = ShareRun::new(&broker.bootstrap(), "reordered", "workers", &options);
    if run.add_member(Client::FranzGo, "go-1", &[]).is_none()
        || run.add_member(Client::Librdkafka, "python-1", &[]).is_none()
        || run.add_member(Client::Java44, "java-1", &[]).is_none()
    {
        return;
    }
    let produce = [("records", "1000"), ("keys", "5"), ("pause-us", "5000")];
    if run.add_producer(Client::FranzGo, "producer", &produce).is_none() {
        return;
    }
    run.wait_for_done(RECORDS, Duration::from_secs(60));
    let report = run.finish();
    println!("{report}");

    assert_eq!(report.lost(), 0, "{report}");
    assert_eq!(report.records, RECORDS);
    assert!(report.successes.len() >= 2, "one member did all: {report}");
    assert!(report.order_violations() > 0, "no order was asked for, yet none was broken: {report}");
}
