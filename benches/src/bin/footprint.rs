//! Start-up time on an empty directory, and idle memory, beside Apache Kafka's: `make bench-footprint`.
//!
//! Sluice is started on an empty directory. Apache Kafka needs a formatted one, and gets one on which it has run before:
//! formatting, which takes seconds, is not counted against it. The start is over when the broker accepts connections
//! (Sluice: its ready line). Memory is what is resident two seconds later.

use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::apache_kafka::ApacheKafka;
use integration_tests::process::resident_bytes;
use integration_tests::real_time::{Stopwatch, pause};

/// Starts of Sluice.
const STARTS: usize = 20;

/// Starts of Apache Kafka: each takes seconds.
const KAFKA_STARTS: usize = 3;

/// How long a broker idles before its memory is read.
const IDLE: Duration = Duration::from_secs(2);

fn main() {
    let sluice: Vec<Sample> = (0..STARTS).map(|_| sluice()).collect();
    print("Sluice", &sluice);
    let kafka: Vec<Sample> = (0..KAFKA_STARTS).filter_map(|_| kafka()).collect();
    if kafka.is_empty() {
        println!("Apache Kafka is not here: Java or Maven is missing");
        return;
    }
    print("Apache Kafka", &kafka);
    let ratio = |of: fn(&Sample) -> f64| median(&kafka, of) / median(&sluice, of);
    println!(
        "Kafka ÷ Sluice   start {:.0} ×   idle memory {:.0} ×",
        ratio(|s| s.start_ms),
        ratio(|s| s.idle_mib)
    );
}

struct Sample {
    start_ms: f64,
    idle_mib: f64,
}

fn sluice() -> Sample {
    let broker = BrokerProcess::start();
    let start_ms = broker.start_time().as_secs_f64() * 1_000.0;
    pause(IDLE);
    Sample { start_ms, idle_mib: broker.resident_bytes() as f64 / f64::from(1 << 20) }
}

fn kafka() -> Option<Sample> {
    let mut broker = ApacheKafka::start("")?;
    let watch = Stopwatch::start();
    broker.kill_and_restart();
    let start_ms = watch.elapsed().as_secs_f64() * 1_000.0;
    pause(IDLE);
    Some(Sample { start_ms, idle_mib: resident_bytes(broker.id()) as f64 / f64::from(1 << 20) })
}

fn print(name: &str, samples: &[Sample]) {
    let line = |of: fn(&Sample) -> f64| {
        let values = sorted(samples, of);
        format!("{:.1} (min {:.1}, max {:.1})", median(samples, of), values[0], values[values.len() - 1])
    };
    println!(
        "{name:<16} start {} ms   idle memory {} MiB   n = {}",
        line(|s| s.start_ms),
        line(|s| s.idle_mib),
        samples.len()
    );
}

fn sorted(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    sorted(samples, of)[samples.len() / 2]
}
