//! Sluice and Apache Kafka side by side: both run at the same time on the same machine and take turns, so that what
//! disturbs one disturbs the other.

use std::path::PathBuf;
use std::time::Duration;

use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::{ApacheKafka, KafkaTools};
use integration_tests::process::cpu_time;
use integration_tests::real_time::wait_until;
use kafka_protocol::messages::DeleteTopicsRequest;

use crate::requests;

/// Turns of each broker where `SLUICE_BENCH_TURNS` does not say otherwise.
const TURNS: usize = 5;
/// Creating or deleting a topic of many partitions.
const CHANGE_LIMIT: Duration = Duration::from_secs(60);

/// Deleted topics leave the disk soon (Kafka's `LogManager` goes by the broker's setting).
const DELETE_SOON: &str = "log.segment.delete.delay.ms=1000";

const SLUICE: &str = "Sluice";

/// How many turns each broker has.
#[must_use]
pub fn turns() -> usize {
    std::env::var("SLUICE_BENCH_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(TURNS)
}

/// How durable an acknowledged record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The operating system has it.
    Written,
    /// The disk has it.
    Synced,
}

/// One of the two.
#[derive(Debug)]
pub struct Broker {
    /// What it is called in the report.
    pub name: &'static str,
    /// `HOST:PORT`.
    pub bootstrap: String,
    id: u32,
    data_dir: PathBuf,
    written: &'static [(&'static str, &'static str)],
    synced: &'static [(&'static str, &'static str)],
}

/// Both, running.
#[derive(Debug)]
pub struct Pair {
    /// Ours first.
    pub brokers: [Broker; 2],
    _sluice: BrokerProcess,
    kafka: ApacheKafka,
}

impl Pair {
    /// Starts both; says so and gives `None` where Apache Kafka cannot be had.
    #[must_use]
    pub fn start() -> Option<Self> {
        let sluice = BrokerProcess::start();
        let Some(kafka) = ApacheKafka::start(DELETE_SOON) else {
            println!("Apache Kafka is not here: Java or Maven is missing");
            return None;
        };
        let ours = Broker {
            name: SLUICE,
            bootstrap: sluice.bootstrap().to_owned(),
            id: sluice.id(),
            data_dir: sluice.data_dir().to_owned(),
            written: &[("flush.policy", "os")],
            synced: &[],
        };
        let theirs = Broker {
            name: "Apache Kafka",
            bootstrap: kafka.bootstrap(),
            id: kafka.id(),
            data_dir: kafka.log_dir(),
            written: &[],
            synced: &[("flush.messages", "1")],
        };
        Some(Self { brokers: [ours, theirs], _sluice: sluice, kafka })
    }

    /// Apache Kafka's own tools.
    #[must_use]
    pub fn tools(&self) -> &KafkaTools {
        self.kafka.tools()
    }

    /// Takes turns: one of each to warm up, then as many as [`turns`] says. The samples of each broker.
    pub fn take_turns<T>(&self, mut turn: impl FnMut(&Broker, usize) -> T) -> [Vec<T>; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for number in 0..=turns() {
            for (broker, samples) in self.brokers.iter().zip(&mut samples) {
                let sample = turn(broker, number);
                if number > 0 {
                    samples.push(sample);
                }
            }
        }
        samples
    }
}

impl Broker {
    /// Process id of the server.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether it is ours.
    #[must_use]
    pub fn is_sluice(&self) -> bool {
        self.name == SLUICE
    }

    /// Makes a share group start at the earliest record; ours keeps every key in order.
    pub fn set_up_share_group(&self, group: &str, configs: &[(&str, &str)]) {
        let mut all = vec![("share.auto.offset.reset", "earliest")];
        if self.is_sluice() {
            all.push(("sluice.share.order", "key"));
        }
        let ours_alone = |(name, _): &&(&str, &str)| self.is_sluice() || !name.starts_with("sluice.");
        all.extend(configs.iter().filter(ours_alone));
        requests::configure_group(&self.bootstrap, group, &all);
    }

    /// Makes a topic whose files go when it does; its id.
    pub fn create(&self, topic: &str, partitions: i32, durability: Durability) -> [u8; 16] {
        let durable = match durability {
            Durability::Written => self.written,
            Durability::Synced => self.synced,
        };
        let configs: Vec<_> = durable.iter().chain(&[("file.delete.delay.ms", "0")]).copied().collect();
        requests::create(&self.bootstrap, topic, partitions, &configs)
    }

    /// Deletes a topic and waits until its files are gone: unlinking is work that the next turn must not pay for.
    pub fn delete(&self, topic: &str) {
        let request = DeleteTopicsRequest::default()
            .with_timeout_ms(60_000)
            .with_topic_names(vec![requests::name(topic)]);
        let answer = ApiClient::connect(&self.bootstrap).call(5, &request);
        assert_eq!(answer.responses[0].error_code, 0, "{} deletes {topic}", self.name);
        let gone = wait_until(CHANGE_LIMIT, || {
            let entries = std::fs::read_dir(&self.data_dir).expect("a broker has a data directory");
            !entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{topic}-")))
        });
        assert!(gone, "{} still has files of {topic} after {CHANGE_LIMIT:?}", self.name);
    }

    /// What the server's process worked meanwhile.
    pub fn measured<T>(&self, work: impl FnOnce() -> T) -> (T, Duration) {
        let before = cpu_time(self.id);
        let done = work();
        (done, cpu_time(self.id).saturating_sub(before))
    }
}

/// Prints a figure of both brokers, median, least and most, and the ratio of the medians.
pub fn print<T>(pair: &Pair, samples: &[Vec<T>; 2], unit: &str, of: impl Fn(&T) -> f64) {
    let told: Vec<String> = pair
        .brokers
        .iter()
        .zip(samples)
        .map(|(broker, samples)| format!("{} {}", broker.name, spread(samples, &of)))
        .collect();
    let ratio = median(&samples[0], &of) / median(&samples[1], &of);
    println!("  {unit:<12} {}   {}   ratio {ratio:.2}", told[0], told[1]);
}

/// Median of the samples.
pub fn median<T>(samples: &[T], of: impl Fn(&T) -> f64) -> f64 {
    sorted(samples, of)[samples.len() / 2]
}

/// Median, least and most.
pub fn spread<T>(samples: &[T], of: impl Fn(&T) -> f64) -> String {
    let values = sorted(samples, of);
    format!("{:.2} ({:.2} to {:.2})", values[values.len() / 2], values[0], values[values.len() - 1])
}

fn sorted<T>(samples: &[T], of: impl Fn(&T) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}
