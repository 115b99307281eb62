//! How long a job of keyed records takes with 64 workers, as a multiple of the ideal.
//!
//! All workers have joined when the records are loaded, in about a tenth of a second; the time runs from the first
//! record's start to the last one's end. `SLUICE_BENCH_ROWS=rust,parallel` runs only the rows whose names contain one of
//! these words, `SLUICE_BENCH_MIX=zipf` only that mix.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use benches::jvm_job::{JvmJob, program};
use benches::makespan::Makespan;
use benches::mixes::{Mix, service};
use benches::requests::load;
use benches::side_by_side::{Broker, Durability, Pair, median, spread, turns};
use client::{KeyShareConsumer, Outcome, Record};
use integration_tests::api_client::ApiClient;
use integration_tests::event_log::{Event, What};
use integration_tests::foreign::Installed;
use integration_tests::real_time::{pause, wait_until, wall_clock_ns};
use kafka_protocol::messages::{DescribeGroupsRequest, GroupId, ShareGroupDescribeRequest};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{Notify, watch};

const WORKERS: usize = 64;
/// Members of the Rust client's group, each with an equal part of the workers.
const MEMBERS: usize = 8;
const JOIN_LIMIT: Duration = Duration::from_secs(90);
/// A member that is in the group learns its assignment with its next heartbeat.
const SETTLE: Duration = Duration::from_secs(6);
/// A run that takes longer counts as it stands then.
const RUN_LIMIT: Duration = Duration::from_secs(150);

/// How the records are worked off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// A queue in memory, in this process.
    RustFloor,
    /// Our client, on Sluice.
    Rust,
    /// The same as the first, in a JVM.
    JavaFloor,
    /// Stock share consumers; on Sluice in order, on Kafka in none.
    JavaShare { ours: bool },
    /// Confluent's Parallel Consumer, on Kafka.
    Parallel,
}

struct Row {
    name: &'static str,
    how: How,
    mean: Duration,
}

const fn row(name: &'static str, how: How, mean_ms: u64) -> Row {
    Row { name, how, mean: Duration::from_millis(mean_ms) }
}

const ROWS: [Row; 9] = [
    row("rust floor, 2 ms", How::RustFloor, 2),
    row("rust client on Sluice, 2 ms", How::Rust, 2),
    row("java floor, 2 ms", How::JavaFloor, 2),
    row("parallel consumer on Kafka, 2 ms", How::Parallel, 2),
    row("java share group on Sluice, 2 ms", How::JavaShare { ours: true }, 2),
    row("java share group on Kafka, 2 ms", How::JavaShare { ours: false }, 2),
    row("java floor, 20 ms", How::JavaFloor, 20),
    row("java share group on Sluice, 20 ms", How::JavaShare { ours: true }, 20),
    row("java share group on Kafka, 20 ms", How::JavaShare { ours: false }, 20),
];

pub(crate) fn run(pair: &Pair) {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let chosen = std::env::var("SLUICE_BENCH_ROWS").unwrap_or_default();
    let mixes = std::env::var("SLUICE_BENCH_MIX").unwrap_or_default();
    for mix in [Mix::flights(100_000), Mix::zipf(20_000, 2_000)] {
        if !mix.name.contains(&mixes) {
            continue;
        }
        let keys = dir.path().join(mix.name);
        let names: Vec<&str> = mix.records.iter().map(|(key, _)| key.as_deref().unwrap_or("-")).collect();
        std::fs::write(&keys, names.join("\n")).expect("a temporary file can be written");
        println!("makespan, {}, {} records, {WORKERS} workers", mix.name, mix.records.len());
        let rows: Vec<&Row> =
            ROWS.iter().filter(|row| chosen.split(',').any(|word| row.name.contains(word))).collect();
        let mut samples: Vec<Vec<Makespan>> = rows.iter().map(|_| Vec::new()).collect();
        for turn in 0..turns() {
            for (number, (row, samples)) in rows.iter().zip(&mut samples).enumerate() {
                let name = format!("{}-{number}-{turn}", mix.name);
                samples.push(measure(pair, &program, &mix, row, &name, &keys, dir.path()));
            }
        }
        for (row, samples) in rows.iter().zip(&samples) {
            print(row, samples, mix.records.len());
        }
    }
}

fn print(row: &Row, samples: &[Makespan], records: usize) {
    let part =
        |count: fn(&Makespan) -> usize| median(samples, |run| count(run) as f64) / records as f64 * 100.0;
    println!(
        "  {:<34} {} × ideal ({:.2} s)   out of order {:.1} %, again {:.1} %, not done {:.1} %",
        row.name,
        spread(samples, Makespan::ratio),
        median(samples, |run| run.ideal_s),
        part(|run| run.violations),
        part(|run| run.again),
        part(|run| run.lost),
    );
}

fn measure(
    pair: &Pair,
    program: &Installed,
    mix: &Mix,
    row: &Row,
    name: &str,
    keys: &Path,
    dir: &Path,
) -> Makespan {
    let log = dir.join(format!("{name}.events"));
    let (workers, records) = (WORKERS.to_string(), mix.records.len().to_string());
    let mean_us = row.mean.as_micros().to_string();
    let common = [("workers", &workers[..]), ("records", &records), ("mean-us", &mean_us)];
    let [sluice, kafka] = &pair.brokers;
    let on_broker = |broker: &Broker, role: &str, more: &[(&str, &str)]| {
        broker.create(name, 1, Durability::Written);
        broker.set_up_share_group(name, &[]);
        let mut options = common.to_vec();
        options.extend([("bootstrap", &broker.bootstrap[..]), ("topic", name), ("group", name)]);
        options.extend(more);
        let job = JvmJob::start(program, role, &options, &log);
        wait_for_members(broker, name, role);
        load(&broker.bootstrap, name, mix.batches());
        let events = job.finish(RUN_LIMIT);
        broker.delete(name);
        events
    };
    let events = match row.how {
        How::RustFloor => rust_floor(mix, row.mean),
        How::Rust => rust_client(sluice, name, mix, row.mean),
        How::JavaFloor => {
            let mut options = common.to_vec();
            options.push(("keys", keys.to_str().expect("temporary paths are UTF-8")));
            JvmJob::start(program, "floor", &options, &log).finish(RUN_LIMIT)
        }
        How::JavaShare { ours } => {
            let broker = if ours { sluice } else { kafka };
            // The finest grain that each offers.
            let more = [("max-poll-records", "1"), ("acquire-mode", "record_limit")];
            on_broker(broker, "share", &more)
        }
        How::Parallel => on_broker(kafka, "parallel", &[]),
    };
    let _ = std::fs::remove_file(&log);
    Makespan::of(mix, WORKERS, &events)
}

/// Waits until every member of a group is there and knows what it is assigned.
fn wait_for_members(broker: &Broker, group: &str, role: &str) {
    let mut admin = ApiClient::connect(&broker.bootstrap);
    let id = || GroupId(StrBytes::from_string(group.to_owned()));
    let there = wait_until(JOIN_LIMIT, || {
        pause(Duration::from_millis(200));
        if role == "parallel" {
            let request = DescribeGroupsRequest::default().with_groups(vec![id()]);
            return admin.call(5, &request).groups[0].group_state.as_str() == "Stable";
        }
        let request = ShareGroupDescribeRequest::default().with_group_ids(vec![id()]);
        admin.call(1, &request).groups[0].members.len() >= WORKERS
    });
    assert!(there, "{}: not all members joined within {JOIN_LIMIT:?}", broker.name);
    pause(SETTLE);
}

/// What workers of this process write down.
struct Log {
    written: Mutex<Written>,
    records: usize,
    all: Notify,
}

#[derive(Default)]
struct Written {
    events: Vec<Event>,
    offsets: HashSet<i64>,
}

impl Log {
    fn new(records: usize) -> Arc<Self> {
        Arc::new(Self { written: Mutex::default(), records, all: Notify::new() })
    }

    async fn work(&self, worker: &str, offset: i64, key: Option<String>, mean: Duration) {
        let event = |what| Event {
            at_ns: wall_clock_ns(),
            member: worker.to_owned(),
            what,
            partition: 0,
            offset,
            key: key.clone(),
            deliveries: 1,
        };
        let start = event(What::Start);
        tokio::time::sleep(service(offset, mean)).await;
        let end = event(What::Success);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.events.extend([start, end]);
        if written.offsets.insert(offset) && written.offsets.len() == self.records {
            self.all.notify_one();
        }
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner).events)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the machine has threads")
}

/// Keys that have records left and nobody at work on them.
struct Ready {
    keys: Mutex<VecDeque<(Option<String>, VecDeque<i64>)>>,
    more: Notify,
}

fn rust_floor(mix: &Mix, mean: Duration) -> Vec<Event> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut keys: VecDeque<(Option<String>, VecDeque<i64>)> = VecDeque::new();
    for (offset, (key, _)) in (0..).zip(&mix.records) {
        let place = key.as_deref().and_then(|key| places.get(key).copied()).unwrap_or(keys.len());
        if place == keys.len() {
            keys.push_back((key.clone(), VecDeque::new()));
            places.extend(key.as_deref().map(|key| (key, place)));
        }
        keys[place].1.push_back(offset);
    }
    let ready = Arc::new(Ready { keys: Mutex::new(keys), more: Notify::new() });
    let log = Log::new(mix.records.len());
    runtime().block_on(async {
        for number in 0..WORKERS {
            let (ready, log) = (Arc::clone(&ready), Arc::clone(&log));
            tokio::spawn(async move {
                let worker = format!("worker-{number}");
                loop {
                    let taken = ready.keys.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((key, mut offsets)) = taken else {
                        ready.more.notified().await;
                        continue;
                    };
                    let offset = offsets.pop_front().expect("a ready key has a record");
                    log.work(&worker, offset, key.clone(), mean).await;
                    if !offsets.is_empty() {
                        let mut keys = ready.keys.lock().unwrap_or_else(PoisonError::into_inner);
                        keys.push_back((key, offsets));
                        ready.more.notify_one();
                    }
                }
            });
        }
        let _ = tokio::time::timeout(RUN_LIMIT, log.all.notified()).await;
    });
    log.take()
}

fn rust_client(broker: &Broker, name: &str, mix: &Mix, mean: Duration) -> Vec<Event> {
    broker.create(name, 1, Durability::Written);
    broker.set_up_share_group(name, &[]);
    let log = Log::new(mix.records.len());
    let runtime = runtime();
    let (stop, stopped) = watch::channel(false);
    let mut members = Vec::new();
    for number in 0..MEMBERS {
        let consumer = KeyShareConsumer::builder(&broker.bootstrap, name)
            .topic(name)
            .client_id(format!("member-{number}"))
            .concurrency(WORKERS / MEMBERS)
            .build();
        let (log, mut stopped) = (Arc::clone(&log), stopped.clone());
        members.push(runtime.spawn(async move {
            let worker: Arc<str> = Arc::from(format!("member-{number}"));
            let handler = move |record: Record| {
                let (log, worker) = (Arc::clone(&log), Arc::clone(&worker));
                async move {
                    let key = record.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned());
                    log.work(&worker, record.offset.get(), key, mean).await;
                    Outcome::Accept
                }
            };
            let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
            consumer.run(until, handler).await
        }));
    }
    let mut admin = ApiClient::connect(&broker.bootstrap);
    let id = GroupId(StrBytes::from_string(name.to_owned()));
    let request = ShareGroupDescribeRequest::default().with_group_ids(vec![id]);
    let there = wait_until(JOIN_LIMIT, || admin.call(1, &request).groups[0].members.len() >= MEMBERS);
    assert!(there, "not all members joined within {JOIN_LIMIT:?}");
    pause(Duration::from_secs(1));
    load(&broker.bootstrap, name, mix.batches());
    runtime.block_on(async {
        let _ = tokio::time::timeout(RUN_LIMIT, log.all.notified()).await;
        stop.send_replace(true);
        for member in members {
            if let Ok(Err(error)) = member.await {
                println!("  a member failed: {error}");
            }
        }
    });
    broker.delete(name);
    log.take()
}
