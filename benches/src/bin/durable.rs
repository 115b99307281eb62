//! Durable acknowledgements a second beside Apache Kafka: part of `make bench-kafka-produce`.
//!
//! Raw clients send batches of one record of 1 KiB with acks=all, each the next one when the last is acknowledged. Both
//! brokers sync before they answer: Sluice as it does by default, Apache Kafka with `flush.messages=1`.
//! `SLUICE_BENCH_TURNS` sets how many turns each broker has (5).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use benches::requests::produce;
use benches::side_by_side::{Broker, Durability, Pair, print};
use benches::workload::batch;
use integration_tests::api_client::ApiClient;
use integration_tests::real_time::{Stopwatch, pause};
use kafka_protocol::messages::ProduceRequest;
use records::Codec;

/// How long a turn takes.
const TURN: Duration = Duration::from_secs(3);

const TRIES_MAX: u32 = 500;

/// Producers, and the partitions that each of their requests names.
#[derive(Clone, Copy)]
struct Load {
    producers: i32,
    partitions: i32,
    /// Whether all write to the same partitions.
    shared: bool,
}

const LOADS: [Load; 3] = [
    Load { producers: 1, partitions: 1, shared: true },
    Load { producers: 64, partitions: 1, shared: true },
    Load { producers: 4, partitions: 250, shared: false },
];

fn main() {
    let Some(pair) = Pair::start() else { return };
    for (number, load) in LOADS.iter().enumerate() {
        let Load { producers, partitions, shared } = *load;
        let all = if shared { partitions } else { producers * partitions };
        println!("{producers} producers, {partitions} partitions a request, {all} in all, acks=all, synced");
        let samples = pair.take_turns(|broker, turn| {
            let topic = format!("d{number}-{turn}");
            broker.create(&topic, all, Durability::Synced);
            // Making the files of a partition belongs to no acknowledgement of later.
            for first in (0..all).step_by(usize::try_from(partitions).expect("a small number")) {
                acknowledge(
                    &mut ApiClient::connect(&broker.bootstrap),
                    &request(&topic, first..first + partitions),
                );
            }
            let (rate, cpu) = broker.measured(|| acknowledged(broker, &topic, load));
            broker.delete(&topic);
            (rate, cpu.as_secs_f64() / (rate * TURN.as_secs_f64()) * 1e6)
        });
        print(&pair, &samples, "acks/s", |turn| turn.0);
        print(&pair, &samples, "CPU µs/ack", |turn| turn.1);
    }
}

/// Acknowledged batches a second.
fn acknowledged(broker: &Broker, topic: &str, load: &Load) -> f64 {
    let acknowledged = AtomicU64::new(0);
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        for producer in 0..load.producers {
            let first = if load.shared { 0 } else { producer * load.partitions };
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                let request = request(topic, first..first + load.partitions);
                let mut client = ApiClient::connect(&broker.bootstrap);
                while watch.elapsed() < TURN {
                    acknowledged.fetch_add(acknowledge(&mut client, &request), Ordering::Relaxed);
                }
            });
        }
    });
    acknowledged.load(Ordering::Relaxed) as f64 / watch.elapsed().as_secs_f64()
}

/// Sends a request until all of it is acknowledged: the partitions of a topic that was made just now may not be known
/// yet. How many partitions that were.
fn acknowledge(client: &mut ApiClient, request: &ProduceRequest) -> u64 {
    for _ in 0..TRIES_MAX {
        let answer = client.call(9, request);
        let parts = || answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        if parts().all(|part| part.error_code == 0) {
            return parts().count() as u64;
        }
        assert!(parts().all(|part| matches!(part.error_code, 0 | 3 | 5 | 6)), "{answer:?}");
        pause(Duration::from_millis(20));
    }
    panic!("not acknowledged in {TRIES_MAX} tries");
}

fn request(topic: &str, partitions: std::ops::Range<i32>) -> ProduceRequest {
    produce(topic, partitions, &batch(Codec::None, 1, 1, 1024), -1)
}
