//! How long a broker with much data takes to start: `make bench-restart`.
//!
//! 10 GB in 1,000 partitions, less with `SLUICE_BENCH_GB`. After a clean stop; and after kill -9 with 1 GB written since the
//! recovery point, beside a bare read of as many bytes of the same files. Where this may drop the page cache (root on
//! Linux) everything is cold, else it says so.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use benches::requests::{create, produce};
use benches::workload::batch;
use integration_tests::api_client::ApiClient;
use integration_tests::broker_process::BrokerProcess;
use integration_tests::real_time::{Stopwatch, pause};
use records::Codec;

const PARTITIONS: i32 = 1_000;
const GIGABYTES: u64 = 10;
/// Written since the recovery point when the broker is killed.
const UNSYNCED_BYTES: u64 = 1_000_000_000;
const WRITERS: i32 = 4;
/// The first checkpoint comes a second after the start.
const UNTIL_CHECKPOINT: Duration = Duration::from_secs(2);
const STARTS: usize = 5;

fn main() {
    let gigabytes =
        std::env::var("SLUICE_BENCH_GB").ok().and_then(|count| count.parse().ok()).unwrap_or(GIGABYTES);
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut broker = BrokerProcess::start_on(&dir.path().join("data"), &[]);
    create(broker.bootstrap(), "t", PARTITIONS, &[("flush.policy", "os")]);
    let empty = broker.resident_bytes();
    let written = fill(&broker, gigabytes * 1_000_000_000);
    println!(
        "{:.1} GB in {PARTITIONS} partitions; resident {} MiB before, {} MiB after",
        written as f64 / 1e9,
        empty >> 20,
        broker.resident_bytes() >> 20
    );
    rustix::fs::sync();
    broker.terminate();
    let mut clean = Vec::new();
    for _ in 0..STARTS {
        let cold = drop_page_cache();
        broker.restart();
        clean.push(broker.start_time());
        println!(
            "after a clean stop ({}): ready in {:.0} ms, {} MiB resident",
            told(cold),
            ms(broker.start_time()),
            broker.resident_bytes() >> 20
        );
        broker.terminate();
    }
    broker.restart();
    pause(UNTIL_CHECKPOINT);
    let before = sizes(broker.data_dir());
    let unsynced = fill(&broker, UNSYNCED_BYTES);
    broker.kill();
    rustix::fs::sync();
    let cold = drop_page_cache();
    broker.restart();
    let recovered = broker.start_time();
    let rchar = read_by(broker.id());
    broker.kill();
    drop_page_cache();
    let watch = Stopwatch::start();
    let bare = read_grown(broker.data_dir(), &before);
    println!(
        "after kill -9, {:.2} GB since the recovery point ({}): ready in {:.0} ms, {:.2} GB read; a bare read of {:.2} GB: {:.0} ms",
        unsynced as f64 / 1e9,
        told(cold),
        ms(recovered),
        rchar as f64 / 1e9,
        bare as f64 / 1e9,
        ms(watch.elapsed())
    );
}

fn told(cold: bool) -> &'static str {
    if cold { "cold" } else { "page cache warm" }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Spreads that many bytes over all partitions, in batches of half a MiB.
fn fill(broker: &BrokerProcess, bytes: u64) -> u64 {
    let records = batch(Codec::None, 500, 100, 1_000);
    let rounds = (bytes / records.len() as u64).div_ceil(PARTITIONS as u64);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let records = &records;
            scope.spawn(move || {
                let mut client = ApiClient::connect(broker.bootstrap());
                for _ in 0..rounds {
                    for index in (writer..PARTITIONS).step_by(WRITERS as usize) {
                        let request = produce("t", index..index + 1, records, 1);
                        let answer = client.call(9, &request);
                        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
                    }
                }
            });
        }
    });
    rounds * records.len() as u64 * PARTITIONS as u64
}

/// Whether it could be done.
fn drop_page_cache() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Bytes that a process has read, from the disk or the page cache.
fn read_by(id: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{id}/io")).expect("a running process has figures");
    let rchar = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    rchar.and_then(|count| count.parse().ok()).expect("the kernel counts")
}

/// Every log file with its size.
fn sizes(data_dir: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let partitions = std::fs::read_dir(data_dir).expect("a broker has a data directory").flatten();
    partitions
        .filter(|entry| entry.path().is_dir())
        .flat_map(|entry| std::fs::read_dir(entry.path()).expect("a partition has a directory").flatten())
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "log"))
        .map(|entry| (entry.path(), entry.metadata().map_or(0, |found| found.len())))
        .collect()
}

/// Reads what has come to these files since; its bytes.
fn read_grown(data_dir: &Path, before: &[(std::path::PathBuf, u64)]) -> u64 {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    for (path, size) in sizes(data_dir) {
        let from = before.iter().find(|(known, _)| *known == path).map_or(0, |(_, size)| *size);
        let mut file = File::open(&path).expect("it was there just now");
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from))
            .expect("a file can be read from anywhere");
        let mut left = size - from;
        while left > 0 {
            let read = file.read(&mut buffer).expect("the disk reads") as u64;
            if read == 0 {
                break;
            }
            left = left.saturating_sub(read);
            total += read;
        }
    }
    total
}
