//! Kafka's own share-consumer-perf-test over one partition: throughput and the server's CPU.

use benches::keyed::keyed_batches;
use benches::responder::Responder;
use benches::side_by_side::{Broker, Durability, Pair, print, spread, turns};
use integration_tests::broker_process::BrokerProcess;
use integration_tests::foreign::KafkaTools;

/// Enough for a client's virtual machine to have warmed up long before the end.
const RECORDS: usize = 2_000_000;
const VALUE_BYTES: usize = 1_024;
/// Records of a stored batch: what a producer's default of 16 KiB holds.
const BATCH_RECORDS: usize = 16;
/// Records that the client takes at most at a time, by default.
const POLL_RECORDS: usize = 500;
const CONSUMERS: [u32; 3] = [1, 4, 16];
/// 0: keyless.
const KEYS: [usize; 2] = [0, 10_000];

struct Turn {
    records_per_s: f64,
    whole_per_s: f64,
    cpu_us_per_record: f64,
}

/// Records a second as the tool tells them.
#[derive(Clone, Copy)]
struct Rates {
    /// From the first record on.
    working: f64,
    /// From the tool's start, joining included: the figure that it prints.
    whole: f64,
}

/// Both brokers.
pub(crate) fn run(pair: &Pair) {
    let chosen = std::env::var("SLUICE_BENCH_ROWS").unwrap_or_default();
    let is_chosen = |keys: usize, consumers: u32| {
        chosen.is_empty() || chosen.split(',').any(|row| row == format!("{keys}/{consumers}"))
    };
    for keys in KEYS {
        let rows: Vec<u32> = CONSUMERS.into_iter().filter(|&consumers| is_chosen(keys, consumers)).collect();
        if rows.is_empty() {
            continue;
        }
        let topic = format!("perf-{keys}");
        for broker in &pair.brokers {
            broker.create(&topic, 1, Durability::Written);
            let batches = keyed_batches(RECORDS, BATCH_RECORDS, keys, VALUE_BYTES);
            benches::requests::load(&broker.bootstrap, &topic, batches);
        }
        for consumers in rows {
            println!(
                "share-consumer-perf-test, {consumers} consumers, {RECORDS} records of 1 KiB, {}",
                told(keys)
            );
            let samples = pair.take_turns(|broker, turn| {
                let group = format!("{topic}-{consumers}-{turn}");
                broker.set_up_share_group(&group, &[]);
                measure(pair.tools(), broker, &topic, &group, consumers)
            });
            print(pair, &samples, "records/s", |turn| turn.records_per_s);
            print(pair, &samples, "with joining", |turn| turn.whole_per_s);
            print(pair, &samples, "CPU µs/record", |turn| turn.cpu_us_per_record);
        }
        for broker in &pair.brokers {
            broker.delete(&topic);
        }
    }
}

fn told(keys: usize) -> String {
    if keys == 0 { "keyless".to_owned() } else { format!("{keys} keys") }
}

fn measure(tools: &KafkaTools, broker: &Broker, topic: &str, group: &str, consumers: u32) -> Turn {
    let (rates, cpu) = broker.measured(|| consume(tools, &broker.bootstrap, topic, group, consumers));
    Turn {
        records_per_s: rates.working,
        whole_per_s: rates.whole,
        cpu_us_per_record: cpu.as_secs_f64() * 1e6 / RECORDS as f64,
    }
}

fn consume(tools: &KafkaTools, bootstrap: &str, topic: &str, group: &str, consumers: u32) -> Rates {
    let line = format!(
        "--topic {topic} --group {group} --num-records {RECORDS} --threads {consumers} --show-detailed-stats \
         --reporting-interval 50 --timeout 60000"
    );
    let arguments: Vec<&str> = line.split(' ').collect();
    let ended = tools.run("share-consumer-perf-test", bootstrap, &arguments);
    rates(&ended.expect_success().stdout).unwrap_or_else(|| panic!("the tool tells no result: {ended}"))
}

/// Of each consumer "start, end, MB, MB/s, records/s, records, ms for share consumer N" now and then, the first time with
/// its first record; the same of all of them at the end.
fn rates(printed: &str) -> Option<Rates> {
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split(", ").collect())
        .filter(|row: &Vec<&str>| row.len() == 7)
        .collect();
    let told = |row: &&Vec<&str>| of_day_ms(row[1]).is_some();
    let first = rows.iter().find(told)?;
    let last = rows.iter().rev().find(told)?;
    let ms = (of_day_ms(last[1])? - of_day_ms(first[1])?).rem_euclid(24.0 * 3_600_000.0);
    let records: f64 = last[5].parse().ok()?;
    Some(Rates { working: records / ms * 1_000.0, whole: last[4].parse().ok()? })
}

/// Of "2026-11-30 02:39:33:824" the milliseconds since midnight.
fn of_day_ms(text: &str) -> Option<f64> {
    let parts: Option<Vec<f64>> = text.split_once(' ')?.1.split(':').map(|part| part.parse().ok()).collect();
    let [hours, minutes, seconds, ms] = parts?[..] else { return None };
    Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1_000.0 + ms)
}

/// What the Java client can take at most: Sluice's share answers are replaced by canned ones.
pub(crate) fn cap(pair: &Pair) {
    let responder = Responder::bind();
    let address = responder.address();
    let sluice = BrokerProcess::start_with(&["--advertise", &address]);
    let topic = benches::requests::create(sluice.bootstrap(), "canned", 1, &[]);
    let batches: Vec<u8> =
        keyed_batches(POLL_RECORDS, BATCH_RECORDS, 10_000, VALUE_BYTES).flatten().collect();
    responder.serve(sluice.bootstrap(), topic, &batches.into());
    for consumers in CONSUMERS {
        let samples: Vec<Rates> = (0..=turns())
            .map(|turn| {
                consume(pair.tools(), &address, "canned", &format!("c-{consumers}-{turn}"), consumers)
            })
            .skip(1)
            .collect();
        println!(
            "the Java client's cap, {consumers} consumers, canned answers: {} records/s",
            spread(&samples, |rates| rates.working)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_what_the_tool_prints() {
        let printed = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, x\n\
            2026-11-29 23:59:54:000, 2026-11-29 23:59:59:500, 0.0010, 0.1, 0.2, 1, 5500 for share consumer 2\n\
            2026-11-29 23:59:59:500, 2026-11-29 23:59:59:900, 0.9, 1.0, 2.0, 900, 400 for share consumer 1\n\
            2026-11-29 23:59:54:000, 2026-11-30 00:00:00:500, 1.0, 0.9, 153.8462, 1000, 6500\n";
        let rates = rates(printed).expect("a result");
        assert!((rates.working - 1_000.0).abs() < 1e-6 && (rates.whole - 153.8462).abs() < 1e-6);
    }
}
