//! End-to-end latency at a steady rate beside Apache Kafka, with Kafka's Java clients: part of
//! `make bench-kafka-consume`.
//!
//! A producer sends 1,000 records a second, whatever the answers do; a consumer of the same process reads them. The
//! latency of a record runs from the time at which it was due to be sent. Both brokers at equal durability: written on
//! both, and synced on both. `SLUICE_BENCH_TURNS` sets how many turns each broker has (5).

use std::time::Duration;

use benches::side_by_side::{Durability, Pair, print};
use integration_tests::foreign::{Client, Probe, Role};

const RECORDS: u32 = 10_000;
const RATE: u32 = 1_000;
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    let Some(pair) = Pair::start() else { return };
    let Some(probe) = Probe::require(Client::Java44, Role::Latency, "latency") else { return };
    let logs = tempfile::tempdir().expect("a temporary folder can be made");
    for durability in [Durability::Written, Durability::Synced] {
        println!("{RATE} records/s of 1 KiB, acks=all, {durability:?}");
        let samples = pair.take_turns(|broker, turn| {
            let topic = format!("{durability:?}-{turn}");
            broker.create(&topic, 1, durability);
            let ended = probe
                .clone()
                .option("records", &RECORDS.to_string())
                .option("rate", &RATE.to_string())
                .spawn(&broker.bootstrap, &topic, logs.path())
                .finish(LIMIT);
            let printed = ended.expect_success().stdout.clone();
            broker.delete(&topic);
            // "p50 1234 p99 2345 max 3456", in µs.
            let words: Vec<&str> = printed.split_whitespace().collect();
            let figure = |name: &str| {
                let at = words.iter().position(|word| *word == name).expect("the probe tells it");
                words[at + 1].parse::<f64>().expect("a number") / 1_000.0
            };
            (figure("p50"), figure("p99"))
        });
        print(&pair, &samples, "p50 ms", |turn| turn.0);
        print(&pair, &samples, "p99 ms", |turn| turn.1);
    }
}
