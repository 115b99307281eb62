//! Produce and consume beside Apache Kafka, with Kafka's own perf tools as clients: `make bench-kafka-produce` and
//! `make bench-kafka-consume`.
//!
//! Of each turn: megabytes a second as the tool prints them, and the server's CPU seconds a gigabyte, from /proc; beside
//! them what the kernel alone takes for the same. The producer's settings are its defaults unless a load says otherwise.
//! `SLUICE_BENCH_TURNS` sets how many turns each broker has (5).

use benches::bounds;
use benches::side_by_side::{Broker, Durability, Pair, print, spread, turns};
use integration_tests::foreign::KafkaTools;

/// Bytes of records that a turn of the producer moves.
const PRODUCED_BYTES: u64 = 300 << 20;
/// A consumer is faster.
const CONSUMED_BYTES: u64 = 1 << 30;
/// What a consumer asks of a partition at once (`max.partition.fetch.bytes`).
const FETCHED_BYTES: usize = 1 << 20;
/// The smallest records are sent this often at most: the tool needs long for each.
const RECORDS_MAX: u64 = 3_000_000;

/// One way to load a broker.
#[derive(Clone, Copy)]
struct Load {
    record_bytes: u64,
    partitions: i32,
    codec: &'static str,
    acks: &'static str,
    durability: Durability,
    /// `batch.size` of the producer.
    batch_bytes: usize,
}

const BASE: Load = Load {
    record_bytes: 1024,
    partitions: 1,
    codec: "none",
    acks: "1",
    durability: Durability::Written,
    batch_bytes: 16 << 10,
};

const PRODUCE: [Load; 11] = [
    BASE,
    Load { partitions: 8, ..BASE },
    Load { codec: "lz4", ..BASE },
    Load { codec: "lz4", partitions: 8, ..BASE },
    Load { record_bytes: 100, ..BASE },
    Load { record_bytes: 100, partitions: 8, ..BASE },
    Load { record_bytes: 100, codec: "lz4", ..BASE },
    Load { record_bytes: 100, codec: "lz4", partitions: 8, ..BASE },
    Load { batch_bytes: 128 << 10, ..BASE },
    Load { batch_bytes: 128 << 10, partitions: 8, ..BASE },
    Load { acks: "all", durability: Durability::Synced, ..BASE },
];

const CONSUME: [Load; 4] =
    [BASE, Load { partitions: 8, ..BASE }, Load { codec: "lz4", ..BASE }, Load { record_bytes: 100, ..BASE }];

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
    let Some(pair) = Pair::start() else { return };
    let loads: &[Load] = if consume { &CONSUME } else { &PRODUCE };
    for (number, load) in loads.iter().enumerate() {
        println!("{}", load.told(consume));
        let samples = if consume { consumed(&pair, load, number) } else { produced(&pair, load, number) };
        print(&pair, &samples, "MB/s", |turn| turn.mb_per_s);
        print(&pair, &samples, "CPU s/GB", |turn| turn.cpu_s_per_gb);
        load.print_bound(consume);
    }
}

fn produced(pair: &Pair, load: &Load, number: usize) -> [Vec<Turn>; 2] {
    pair.take_turns(|broker, turn| {
        let topic = format!("t{number}-{turn}");
        broker.create(&topic, load.partitions, load.durability);
        let sample = produce(pair.tools(), broker, &topic, load, load.records(PRODUCED_BYTES));
        broker.delete(&topic);
        sample
    })
}

fn consumed(pair: &Pair, load: &Load, number: usize) -> [Vec<Turn>; 2] {
    let (topic, records) = (format!("t{number}"), load.records(CONSUMED_BYTES));
    for broker in &pair.brokers {
        broker.create(&topic, load.partitions, load.durability);
        produce(pair.tools(), broker, &topic, load, records);
    }
    let samples = pair.take_turns(|broker, turn| read(pair.tools(), broker, &topic, load, records, turn));
    for broker in &pair.brokers {
        broker.delete(&topic);
    }
    samples
}

impl Load {
    fn told(&self, consume: bool) -> String {
        let Self { record_bytes, partitions, codec, acks, durability, batch_bytes } = self;
        let how = if consume {
            String::new()
        } else {
            format!(", batches of {batch_bytes}, acks={acks}, {durability:?}")
        };
        format!("{record_bytes} B records, {partitions} partitions, codec {codec}{how}")
    }

    /// What the kernel alone takes for it, where the load's bytes are what moves.
    fn print_bound(&self, consume: bool) {
        if self.codec != "none" || self.durability == Durability::Synced {
            return;
        }
        let bounds: Vec<f64> = (0..turns())
            .map(|_| match consume {
                true => bounds::sending_cpu_s_per_gb(FETCHED_BYTES * self.partitions.unsigned_abs() as usize),
                false => bounds::receiving_cpu_s_per_gb(self.batch_bytes),
            })
            .collect();
        println!("  CPU s/GB     {:<12} {}", "bare kernel", spread(&bounds, |bound| *bound));
    }

    fn records(&self, bytes: u64) -> u64 {
        (bytes / self.record_bytes).min(RECORDS_MAX)
    }

    fn gigabytes(&self, records: u64) -> f64 {
        (records * self.record_bytes) as f64 / 1e9
    }
}

fn run(tools: &KafkaTools, broker: &Broker, line: &str) -> String {
    let mut words = line.split(' ');
    let tool = words.next().expect("a line names its tool");
    let arguments: Vec<&str> = words.collect();
    tools.run(tool, &broker.bootstrap, &arguments).expect_success().stdout.clone()
}

fn produce(tools: &KafkaTools, broker: &Broker, topic: &str, load: &Load, records: u64) -> Turn {
    let Load { record_bytes, codec, acks, batch_bytes, .. } = load;
    // All properties behind one option: of several options the tool takes the last.
    let line = format!(
        "producer-perf-test --topic {topic} --num-records {records} --record-size {record_bytes} --throughput -1 \
         --command-property acks={acks} compression.type={codec} batch.size={batch_bytes}"
    );
    let (printed, cpu) = broker.measured(|| run(tools, broker, &line));
    // "300000 records sent, 98000.1 records/sec (95.70 MB/sec), …": the last line tells of all.
    let last = printed.lines().rev().find(|line| line.contains("records sent")).expect("the tool tells");
    let rate = last.split_once('(').and_then(|(_, rest)| rest.split_once(' ')).expect("a rate in brackets").0;
    let mb_per_s = rate.parse::<f64>().expect("a number") * 1.048_576;
    Turn { mb_per_s, cpu_s_per_gb: cpu.as_secs_f64() / load.gigabytes(records) }
}

fn read(tools: &KafkaTools, broker: &Broker, topic: &str, load: &Load, records: u64, turn: usize) -> Turn {
    let line = format!("consumer-perf-test --topic {topic} --group g-{topic}-{turn} --num-records {records}");
    let (printed, cpu) = broker.measured(|| run(tools, broker, &line));
    let split = |line: &str| line.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("start.time"));
    let heads = split(lines.next().expect("the tool prints a head"));
    let values = split(lines.next().expect("the tool prints a result"));
    let column = |head: &str| {
        let index = heads.iter().position(|other| other == head).expect("the head names the column");
        values[index].parse::<f64>().expect("a number")
    };
    Turn {
        mb_per_s: column("fetch.MB.sec") * 1.048_576,
        cpu_s_per_gb: cpu.as_secs_f64() / load.gigabytes(records),
    }
}
