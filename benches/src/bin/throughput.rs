//! Produce and consume beside Apache Kafka, with Kafka's own perf tools as clients: `make bench-kafka-produce` and
//! `make bench-kafka-consume`.
//!
//! Both brokers run at the same time on the same machine and take turns, so that what disturbs one disturbs the other.
//! Of each turn: megabytes a second as the tool prints them, and the server's CPU seconds a gigabyte, from /proc. Told
//! are median, least and most of all turns, and the ratio of the medians. `SLUICE_BENCH_TURNS` sets how many (5).

use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::KafkaTools;
use integration_tests::foreign::apache_kafka::ApacheKafka;
use integration_tests::process::cpu_time;

const TURNS: usize = 5;
/// Bytes of records that a turn moves.
const TURN_BYTES: u64 = 300 << 20;
/// The smallest records are sent this often at most: the tool needs long for each.
const RECORDS_MAX: u64 = 1_500_000;

/// One way to load a broker.
#[derive(Clone, Copy)]
struct Load {
    record_bytes: u64,
    partitions: u32,
    codec: &'static str,
    acks: &'static str,
}

const LOADS: [Load; 5] = [
    Load { record_bytes: 1024, partitions: 1, codec: "none", acks: "1" },
    Load { record_bytes: 1024, partitions: 8, codec: "none", acks: "1" },
    Load { record_bytes: 1024, partitions: 1, codec: "lz4", acks: "1" },
    Load { record_bytes: 100, partitions: 1, codec: "none", acks: "1" },
    Load { record_bytes: 1024, partitions: 1, codec: "none", acks: "all" },
];

/// A broker under test.
struct Broker {
    name: &'static str,
    bootstrap: String,
    id: u32,
}

/// What one turn showed.
#[derive(Clone, Copy)]
struct Turn {
    mb_per_s: f64,
    cpu_s_per_gb: f64,
}

fn main() {
    let consume = match std::env::args().nth(1).as_deref() {
        Some("produce") => false,
        Some("consume") => true,
        _ => {
            eprintln!("usage: throughput produce|consume");
            std::process::exit(2);
        }
    };
    let turns =
        std::env::var("SLUICE_BENCH_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(TURNS);
    let sluice = BrokerProcess::start();
    let Some(kafka) = ApacheKafka::start("") else {
        println!("Apache Kafka is not here: Java or Maven is missing");
        return;
    };
    let tools = kafka.tools();
    let brokers = [
        Broker { name: "Sluice", bootstrap: sluice.bootstrap().to_owned(), id: sluice.id() },
        Broker { name: "Apache Kafka", bootstrap: kafka.bootstrap(), id: kafka.id() },
    ];
    for (number, load) in LOADS.iter().enumerate() {
        if consume && load.acks == "all" {
            continue;
        }
        println!("{}", told(load, consume));
        let mut samples: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        // The first turn of each warms it up, the JVM above all.
        for turn in 0..=turns {
            for (broker, samples) in brokers.iter().zip(&mut samples) {
                let topic = format!("t{number}-{turn}");
                create(tools, broker, &topic, load);
                let produced = produce(tools, broker, &topic, load);
                let sample = if consume { read(tools, broker, &topic, load) } else { produced };
                if turn > 0 {
                    samples.push(sample);
                }
                run(tools, broker, &format!("topics --delete --topic {topic}"));
            }
        }
        for (broker, samples) in brokers.iter().zip(&samples) {
            println!(
                "  {:<13} {} MB/s   {} CPU s/GB",
                broker.name,
                spread(samples, |turn| turn.mb_per_s),
                spread(samples, |turn| turn.cpu_s_per_gb)
            );
        }
        let [sluice, kafka] = &samples;
        println!(
            "  Sluice ÷ Kafka: throughput {:.2}   CPU {:.2}",
            median(sluice, |turn| turn.mb_per_s) / median(kafka, |turn| turn.mb_per_s),
            median(sluice, |turn| turn.cpu_s_per_gb) / median(kafka, |turn| turn.cpu_s_per_gb)
        );
    }
}

fn told(load: &Load, consume: bool) -> String {
    let Load { record_bytes, partitions, codec, acks } = load;
    let acks = if consume { String::new() } else { format!(", acks={acks}") };
    format!("{record_bytes} B records, {partitions} partitions, codec {codec}{acks}")
}

impl Load {
    fn records(&self) -> u64 {
        (TURN_BYTES / self.record_bytes).min(RECORDS_MAX)
    }

    fn gigabytes(&self) -> f64 {
        (self.records() * self.record_bytes) as f64 / 1e9
    }
}

fn run(tools: &KafkaTools, broker: &Broker, line: &str) -> String {
    let mut words = line.split(' ');
    let tool = words.next().expect("a line names its tool");
    let arguments: Vec<&str> = words.collect();
    tools.run(tool, &broker.bootstrap, &arguments).expect_success().stdout.clone()
}

fn create(tools: &KafkaTools, broker: &Broker, topic: &str, load: &Load) {
    run(tools, broker, &format!("topics --create --topic {topic} --partitions {}", load.partitions));
}

fn produce(tools: &KafkaTools, broker: &Broker, topic: &str, load: &Load) -> Turn {
    let Load { record_bytes, codec, acks, .. } = load;
    let line = format!(
        "producer-perf-test --topic {topic} --num-records {} --record-size {record_bytes} --throughput -1 \
         --command-property acks={acks} compression.type={codec} batch.size=131072 linger.ms=5",
        load.records()
    );
    // All properties behind one option: of several options the tool takes the last.
    let (printed, cpu) = measured(broker, || run(tools, broker, &line));
    // "300000 records sent, 98000.1 records/sec (95.70 MB/sec), …": the last line tells of all.
    let last = printed.lines().rev().find(|line| line.contains("records sent")).expect("the tool tells");
    let rate = last.split_once('(').and_then(|(_, rest)| rest.split_once(' ')).expect("a rate in brackets").0;
    let mb_per_s = rate.parse::<f64>().expect("a number") * 1.048_576;
    Turn { mb_per_s, cpu_s_per_gb: cpu.as_secs_f64() / load.gigabytes() }
}

fn read(tools: &KafkaTools, broker: &Broker, topic: &str, load: &Load) -> Turn {
    let line =
        format!("consumer-perf-test --topic {topic} --group g-{topic} --num-records {}", load.records());
    let (printed, cpu) = measured(broker, || run(tools, broker, &line));
    let split = |line: &str| line.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("start.time"));
    let heads = split(lines.next().expect("the tool prints a head"));
    let values = split(lines.next().expect("the tool prints a result"));
    let column = |head: &str| {
        let index = heads.iter().position(|other| other == head).expect("the head names the column");
        values[index].parse::<f64>().expect("a number")
    };
    Turn { mb_per_s: column("fetch.MB.sec") * 1.048_576, cpu_s_per_gb: cpu.as_secs_f64() / load.gigabytes() }
}

/// What the server's process worked meanwhile.
fn measured<T>(broker: &Broker, work: impl FnOnce() -> T) -> (T, Duration) {
    let before = cpu_time(broker.id);
    let done = work();
    (done, cpu_time(broker.id).saturating_sub(before))
}

fn sorted(samples: &[Turn], of: fn(&Turn) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(samples: &[Turn], of: fn(&Turn) -> f64) -> f64 {
    sorted(samples, of)[samples.len() / 2]
}

fn spread(samples: &[Turn], of: fn(&Turn) -> f64) -> String {
    let values = sorted(samples, of);
    format!("{:.2} ({:.2} to {:.2})", median(samples, of), values[0], values[values.len() - 1])
}
