//! A downstream is out: a million keys of one record each are released once and wait, while healthy keys go on.
//!
//! The log holds the million and then 200,000 records of 1,000 healthy keys; the members release whatever is delivered for
//! the first time of the million, and accept everything else. The backoff outlasts the run. `SLUICE_BENCH_WAITING` takes
//! another number of keys than a million.

use std::collections::HashSet;
use std::time::Duration;

use benches::alone::Alone;
use benches::crew::{Taken, Task, accept_all, work};
use benches::keyed::batches;
use benches::requests::{configure_group, create, load};
use integration_tests::real_time::{Deadline, Stopwatch};
use integration_tests::share_member::{ACCEPT, ALL, Ack, Fetched, RELEASE, ShareMember};
use records::Codec;

/// As many as `sluice.share.stuck.keys.max` allows.
const WAITING: usize = 1_000_000;
const HEALTHY: usize = 200_000;
const HEALTHY_KEYS: usize = 1_000;
const MEMBERS: usize = 4;
const BACKOFF_MS: &str = "3600000";
const VALUE_BYTES: usize = 20;
const STALL_MAX: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(300);
const RESTART_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run() {
    let waiting_keys =
        std::env::var("SLUICE_BENCH_WAITING").ok().and_then(|n| n.parse().ok()).unwrap_or(WAITING);
    println!("{waiting_keys} keys released once, {HEALTHY} records of {HEALTHY_KEYS} healthy keys");
    let mut sluice = Alone::start("");
    let bootstrap = sluice.broker.bootstrap().to_owned();
    let healthy = |number: usize| Some(format!("healthy-{}", number % HEALTHY_KEYS));
    let plain = fill(&bootstrap, "plain", HEALTHY, healthy);
    let free = take(&bootstrap, "plain", plain, HEALTHY as u64, accept_all);
    println!("  healthy keys alone: {:.0} records/s", free.rate());

    let topic = fill(&bootstrap, "out", waiting_keys, |number| Some(format!("waiting-{number}")));
    let released = take(&bootstrap, "out", topic, waiting_keys as u64, release_all);
    println!(
        "  {:.1} % of them delivered and released, {:.0} records/s; {}",
        released.records as f64 / waiting_keys as f64 * 100.0,
        released.rate(),
        memory(&sluice)
    );
    load(&bootstrap, "out", batches(Codec::None, HEALTHY, 1_000, VALUE_BYTES, healthy));
    let beside = take(&bootstrap, "out", topic, HEALTHY as u64, |fetched| {
        let mut acks = Vec::new();
        let mut count = 0;
        for (first, last, _) in fetched.acquired() {
            let waiting = last < waiting_keys as i64;
            count += if waiting { 0 } else { (last - first + 1).unsigned_abs() };
            acks.push((first, last, if waiting { &[RELEASE][..] } else { &[ACCEPT][..] }));
        }
        (acks, count)
    });
    println!(
        "  healthy keys beside them: {:.0} records/s ({:.2} of that), {:.1} % came; {}",
        beside.rate(),
        beside.rate() / free.rate(),
        beside.records as f64 / HEALTHY as f64 * 100.0,
        memory(&sluice)
    );

    sluice.broker.kill();
    let watch = Stopwatch::start();
    sluice.broker.restart();
    let started = watch.elapsed();
    load(&bootstrap, "out", batches(Codec::None, 1, 1, VALUE_BYTES, |_| Some("after".to_owned())));
    let mut after = ShareMember::connect(&bootstrap, "out", "after", topic);
    after.join("out");
    let (deadline, last) = (Deadline::after(RESTART_LIMIT), (waiting_keys + HEALTHY) as i64);
    let mut seen: HashSet<i64> = HashSet::new();
    while !seen.contains(&last) && !deadline.is_over() {
        seen.extend(after.fetch(ALL).acquired().flat_map(|(first, last, _)| first..=last));
    }
    let first = watch.elapsed().as_secs_f64();
    let told =
        if seen.contains(&last) { format!("after {first:.2} s") } else { format!("not within {first:.0} s") };
    println!(
        "  after kill -9: ready in {:.0} ms, a new key's record {told}, {} others with it; {}",
        started.as_secs_f64() * 1e3,
        seen.len().saturating_sub(1),
        memory(&sluice)
    );
}

fn fill(bootstrap: &str, topic: &str, records: usize, key: impl Fn(usize) -> Option<String>) -> [u8; 16] {
    let id = create(bootstrap, topic, 1, &[("flush.policy", "os")]);
    let configs = [
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", "key"),
        ("sluice.share.hold.target.ms", "0"),
        ("sluice.share.retry.backoff.ms", BACKOFF_MS),
        ("sluice.share.retry.backoff.max.ms", BACKOFF_MS),
    ];
    configure_group(bootstrap, topic, &configs);
    load(bootstrap, topic, batches(Codec::None, records, 1_000, VALUE_BYTES, key));
    id
}

fn take<S>(bootstrap: &str, topic: &str, id: [u8; 16], records: u64, settle: S) -> Taken
where
    S: Fn(&Fetched) -> (Vec<Ack<'static>>, u64) + Sync,
{
    let task = Task {
        bootstrap,
        group: topic,
        topic: (topic, id),
        members: MEMBERS,
        records,
        stall_max: STALL_MAX,
        limit: LIMIT,
    };
    work(task, settle)
}

fn release_all(fetched: &Fetched) -> (Vec<Ack<'static>>, u64) {
    let (mut acks, count) = accept_all(fetched);
    for ack in &mut acks {
        ack.2 = &[RELEASE];
    }
    (acks, count)
}

fn memory(sluice: &Alone) -> String {
    format!(
        "share-partition {:.1} MiB, {:.0} keys wait, process {} MiB",
        sluice.share_metric("memory_bytes", "out") / f64::from(1 << 20),
        sluice.share_metric("delayed_keys", "out"),
        sluice.broker.resident_bytes() >> 20
    )
}
