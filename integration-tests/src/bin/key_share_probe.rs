//! The probe on our own client: a worker of a key-ordered share group through the key-share API.
//!
//! `key_share_probe share --option value …`, with the options of `foreign/README.md` that fit: it acknowledges as the
//! client does, and `--concurrency` is its own. It works on several keys at once, unlike the others.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::{KeyShareConsumer, Outcome, Record, Stats};
use integration_tests::real_time::{Stopwatch, wall_clock_ns};
use tokio::sync::mpsc;

/// How often the limits on idleness and records are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_none_or(|role| role != "share") {
        eprintln!("usage: key_share_probe share --option value …");
        return ExitCode::from(2);
    }
    let options = Options::new(&arguments[1..]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("a runtime can be built").block_on(share(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn share(options: &Options) -> Result<(), client::Error> {
    let worker = Arc::new(Worker {
        log: EventLog::new(options),
        service_us: (options.number("service-us-min", 0), options.number("service-us-max", 0)),
        release_percent: options.number("release-percent", 0),
        random: AtomicU64::new(options.number("seed", 1)),
        records_left: AtomicU64::new(options.number("records", u64::MAX)),
        last: Mutex::new(Stopwatch::start()),
    });
    let consumer = KeyShareConsumer::builder(options.text("bootstrap"), options.text("group"))
        .topic(options.text("topic"))
        .client_id(options.text("member"))
        .concurrency(usize::try_from(options.number("concurrency", 4)).expect("a small number"))
        .build();
    worker.log.write("ready", None);
    let until = stop_asked(
        Arc::clone(&worker),
        consumer.stats(),
        Duration::from_millis(options.number("idle-ms", 60_000)),
    );
    let handler = {
        let worker = Arc::clone(&worker);
        move |record: Record| {
            let worker = Arc::clone(&worker);
            async move { worker.work(&record).await }
        }
    };
    consumer.run(until, handler).await?;
    worker.log.write("end", None);
    Ok(())
}

/// Ends when standard input does, when enough records were worked off, or when none came for a time.
async fn stop_asked(worker: Arc<Worker>, stats: Arc<Stats>, idle_max: Duration) {
    let (ended, mut stdin_ended) = mpsc::channel::<()>(1);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let mut seen = (0, 0, 0);
    loop {
        // What the client was told, as far as it counts it: the handler hears nothing of it.
        let now = (stats.sessions(), stats.leases_lost(), stats.refused());
        if now.2 > seen.2 {
            worker.log.write("ack-failed", None);
        }
        if now != seen {
            let (sessions, lost, refused) = now;
            eprintln!("{}: {sessions} sessions, {lost} leases lost, {refused} refused", wall_clock_ns());
            seen = now;
        }
        tokio::select! {
            _ = stdin_ended.recv() => return,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        let idle = worker.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if idle > idle_max || worker.records_left.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
}

struct Worker {
    log: EventLog,
    service_us: (u64, u64),
    release_percent: u64,
    random: AtomicU64,
    records_left: AtomicU64,
    last: Mutex<Stopwatch>,
}

impl Worker {
    async fn work(&self, record: &Record) -> Outcome {
        let mut attempt = Attempt { log: &self.log, record, outcome: "abandoned" };
        self.log.write("start", Some(record));
        let (min, max) = self.service_us;
        tokio::time::sleep(Duration::from_micros(min + self.below(max.saturating_sub(min) + 1))).await;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Stopwatch::start();
        // The third delivery succeeds always: a record must not reach the group's delivery limit.
        if record.delivery_count < 3 && self.below(100) < self.release_percent {
            attempt.outcome = "release";
            return Outcome::release("the probe was told to fail now and then");
        }
        attempt.outcome = "success";
        let _ =
            self.records_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        Outcome::Accept
    }

    /// A number below `bound`, from the seed (splitmix64).
    fn below(&self, bound: u64) -> u64 {
        let mut z = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// Writes how the work on a record ended, also where the client drops it because the lease is lost.
struct Attempt<'a> {
    log: &'a EventLog,
    record: &'a Record,
    outcome: &'static str,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.log.write(self.outcome, Some(self.record));
    }
}

/// Appends one line an event, each with one write, so that what stands in the file survives a kill.
struct EventLog {
    file: Mutex<File>,
    member: String,
}

impl EventLog {
    fn new(options: &Options) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(options.text("log"));
        Self {
            file: Mutex::new(file.expect("the log can be opened")),
            member: options.text("member").to_owned(),
        }
    }

    fn write(&self, event: &str, record: Option<&Record>) {
        // Within the lock, so that the lines stand in the order of their times.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (partition, offset, key, deliveries) = record.map_or((-1, -1, "-".into(), 0), |record| {
            let key = record.key.as_ref().map_or("-".into(), |key| String::from_utf8_lossy(key));
            (record.partition, record.offset.0, key, record.delivery_count)
        });
        let line = format!(
            "{}\t{}\t{event}\t{partition}\t{offset}\t{key}\t{deliveries}\n",
            wall_clock_ns(),
            self.member
        );
        file.write_all(line.as_bytes()).expect("the log can be written");
    }
}

struct Options(HashMap<String, String>);

impl Options {
    fn new(arguments: &[String]) -> Self {
        let pairs = arguments.chunks_exact(2);
        Self(pairs.map(|pair| (pair[0].trim_start_matches("--").to_owned(), pair[1].clone())).collect())
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("--{name} is missing"))
    }

    fn number(&self, name: &str, otherwise: u64) -> u64 {
        self.0
            .get(name)
            .map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("--{name} is no number")))
    }
}
