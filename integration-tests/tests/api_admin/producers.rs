//! InitProducerId.

use std::collections::HashSet;

use std::time::Duration;

use integration_tests::real_time::wait_until;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId, TransactionalId};

use super::support::{Fixture, text};

impl Fixture {
    fn producer(&mut self, version: i16, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        self.client.call(version, request)
    }
}

fn idempotent() -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(-1)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
}

#[test]
fn p18_producer_ids_are_never_given_twice() {
    let mut fixture = Fixture::start();
    let mut seen = HashSet::new();
    for run in 0..3 {
        for version in 0..=5 {
            let answer = fixture.producer(version, &idempotent());
            assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
            assert!(answer.producer_id.0 >= 0);
            assert!(seen.insert(answer.producer_id.0), "{} in run {run}", answer.producer_id.0);
        }
        if run == 0 {
            fixture.kill_and_restart();
        } else {
            fixture.broker.terminate();
            fixture.kill_and_restart();
        }
    }
}

#[test]
fn p18_more_ids_than_a_block_holds() {
    let mut fixture = Fixture::start();
    let ids: HashSet<i64> = (0..2_100).map(|_| fixture.producer(4, &idempotent()).producer_id.0).collect();
    assert_eq!(ids.len(), 2_100);
}

#[test]
fn id_and_epoch_come_together() {
    let mut fixture = Fixture::start();
    let known = idempotent().with_producer_id(ProducerId(2)).with_producer_epoch(0);
    assert_eq!(fixture.producer(4, &known).error_code, 0);
    for bad in [
        idempotent().with_producer_id(ProducerId(2)),
        idempotent().with_producer_epoch(3),
        idempotent().with_transactional_id(Some(TransactionalId(text("")))),
    ] {
        let answer = fixture.producer(4, &bad);
        assert_eq!((answer.error_code, answer.producer_id.0, answer.producer_epoch), (42, -1, -1));
    }
}

#[test]
fn w17_transactions_fail_early_and_for_good() {
    let mut fixture = Fixture::start();
    let transactional = idempotent()
        .with_transactional_id(Some(TransactionalId(text("pay\nments"))))
        .with_transaction_timeout_ms(60_000);
    for version in 0..=5 {
        let answer = fixture.producer(version, &transactional);
        assert_eq!((answer.error_code, answer.producer_id.0, answer.producer_epoch), (53, -1, -1));
    }
    // The log is gathered by a thread of its own.
    let told = |text: &str| wait_until(Duration::from_secs(10), || fixture.broker.log().contains(text));
    assert!(told("transactions are not served"), "{}", fixture.broker.log());
    assert!(told(r"pay\nments"), "names are escaped: {}", fixture.broker.log());
    assert_eq!(fixture.producer(4, &idempotent()).error_code, 0);
}
