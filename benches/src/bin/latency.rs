//! End-to-end latency at a steady rate beside Apache Kafka: part of `make bench-kafka-consume`.
//!
//! A producer sends 1,000 records a second; a consumer reads them. With Kafka's Java clients in one process the latency
//! of a record runs from the time at which it was due to be sent, whatever the answers do; with raw clients, which take
//! next to no time themselves, from the time at which it was: what lies between the two is the Java clients' share. Both
//! brokers at equal durability: written on both, and synced on both. `latency java` or `latency raw` does one of them;
//! `SLUICE_BENCH_TURNS` sets how many turns each broker has (5).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use benches::requests::{fetch, produce};
use benches::side_by_side::{Broker, Durability, Pair, print};
use benches::workload::batch;
use integration_tests::api_client::ApiClient;
use integration_tests::foreign::{Client, Probe, Role};
use integration_tests::real_time::{Stopwatch, pause, wait_until};
use records::Codec;

const RECORDS: u32 = 10_000;
const RATE: u32 = 1_000;
const LIMIT: Duration = Duration::from_secs(120);
/// Records of the raw clients that are not counted: the brokers and connections warm up.
const WARM_UP: usize = 1_000;

fn main() {
    let wanted = std::env::args().nth(1);
    let Some(pair) = Pair::start() else { return };
    let Some(probe) = Probe::require(Client::Java44, Role::Latency, "latency") else { return };
    for durability in [Durability::Written, Durability::Synced] {
        println!("{RATE} records/s of 1 KiB, acks=all, {durability:?}");
        for (clients, raw) in [("java", false), ("raw", true)] {
            if wanted.as_deref().is_some_and(|wanted| wanted != clients) {
                continue;
            }
            let samples = pair.take_turns(|broker, turn| {
                let topic = format!("{durability:?}-{clients}-{turn}");
                broker.create(&topic, 1, durability);
                let figures = if raw { raw_clients(broker, &topic) } else { java(&probe, broker, &topic) };
                broker.delete(&topic);
                figures
            });
            print(&pair, &samples, &format!("{clients} p50 ms"), |turn| turn.0);
            print(&pair, &samples, &format!("{clients} p99 ms"), |turn| turn.1);
        }
    }
}

/// p50 and p99, in milliseconds, of Java clients.
fn java(probe: &Probe, broker: &Broker, topic: &str) -> (f64, f64) {
    let logs = tempfile::tempdir().expect("a temporary folder can be made");
    let ended = probe
        .clone()
        .option("records", &RECORDS.to_string())
        .option("rate", &RATE.to_string())
        .spawn(&broker.bootstrap, topic, logs.path())
        .finish(LIMIT);
    let printed = ended.expect_success().stdout.clone();
    // "p50 1234 p99 2345 max 3456", in µs.
    let words: Vec<&str> = printed.split_whitespace().collect();
    let figure = |name: &str| {
        let at = words.iter().position(|word| *word == name).expect("the probe tells it");
        words[at + 1].parse::<f64>().expect("a number") / 1_000.0
    };
    (figure("p50"), figure("p99"))
}

/// The same of clients that do nothing but write a request and read its answer.
fn raw_clients(broker: &Broker, topic: &str) -> (f64, f64) {
    let records = WARM_UP + RECORDS as usize;
    let request = produce(topic, 0..1, &batch(Codec::None, 1, 1, 1024), -1);
    let mut producer = ApiClient::connect(&broker.bootstrap);
    // The partition of a topic that was made just now may not be known yet.
    let first =
        wait_until(LIMIT, || producer.call(9, &request).responses[0].partition_responses[0].error_code == 0);
    assert!(first, "the topic takes no record");
    let watch = Stopwatch::start();
    let sent: Vec<AtomicU64> = (0..records).map(|_| AtomicU64::new(0)).collect();
    let mut latencies = std::thread::scope(|scope| {
        let sent = &sent;
        let consumer = scope.spawn(move || {
            let mut client = ApiClient::connect(&broker.bootstrap);
            let mut latencies = Vec::with_capacity(records);
            let mut next = 1;
            while latencies.len() < records {
                let answer = client.call(12, &fetch(topic, next));
                let arrived = watch.elapsed();
                let part = &answer.responses[0].partitions[0];
                assert_eq!(part.error_code, 0);
                // Each record came in a batch of its own, and the answer holds all that there are.
                if part.records.as_ref().is_some_and(|records| !records.is_empty()) {
                    for _ in next..part.high_watermark {
                        let sent = Duration::from_nanos(sent[latencies.len()].load(Ordering::Acquire));
                        latencies.push(arrived.saturating_sub(sent));
                    }
                    next = part.high_watermark;
                }
            }
            latencies
        });
        for (record, sent) in sent.iter().enumerate() {
            pause((Duration::from_secs(record as u64) / RATE).saturating_sub(watch.elapsed()));
            let now = u64::try_from(watch.elapsed().as_nanos()).expect("a bench is over within centuries");
            sent.store(now, Ordering::Release);
            let answer = producer.call(9, &request);
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
        }
        consumer.join().expect("every record arrives")
    });
    latencies.drain(..WARM_UP);
    latencies.sort_unstable();
    let figure = |share: f64| {
        let at = (latencies.len() as f64 * share) as usize;
        latencies[at].as_secs_f64() * 1_000.0
    };
    (figure(0.5), figure(0.99))
}
