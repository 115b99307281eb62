//! A stuck key with millions of its records behind it: what becomes of the other keys, of memory and of a restart.
//!
//! Every second record is the stuck key's, which one member holds and renews. `SLUICE_BENCH_MILLIONS` says how many million
//! records lie behind it (10).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use benches::alone::Alone;
use benches::crew::{Taken, Task, accept_all, work};
use benches::keyed::batches;
use benches::requests::{configure_group, create, load};
use integration_tests::real_time::{Deadline, Stopwatch, pause};
use integration_tests::share_member::{ALL, Ask, RENEW, ShareMember};
use records::Codec;

const MILLIONS: usize = 10;
const OTHER_KEYS: usize = 1_000;
const MEMBERS: usize = 4;
const BATCH_RECORDS: usize = 1_000;
const VALUE_BYTES: usize = 20;
/// Most that a lock may last.
const LOCK_MS: &str = "60000";
const RENEW_EVERY: Duration = Duration::from_secs(15);
const STALL_MAX: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(600);
const RESTART_LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn run() {
    let millions =
        std::env::var("SLUICE_BENCH_MILLIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(MILLIONS);
    let behind = millions * 1_000_000;
    println!(
        "a stuck key with {millions} million records behind it, as many of {OTHER_KEYS} other keys between them"
    );
    let mut sluice = Alone::start("");
    let other = |number: usize| Some(format!("key-{}", number % OTHER_KEYS));
    let plain = fill(&sluice, "plain", behind, other);
    let free = take(&sluice, "plain", plain, behind as u64);
    println!("  without the stuck key: {:.0} records/s, {}", free.rate(), memory(&sluice, "plain"));

    let key =
        |number: usize| if number.is_multiple_of(2) { Some("stuck".to_owned()) } else { other(number / 2) };
    let topic = fill(&sluice, "stuck", behind * 2, key);
    let bootstrap = sluice.broker.bootstrap().to_owned();
    let mut holder = ShareMember::connect(&bootstrap, "stuck", "holder", topic);
    holder.join("stuck");
    let held = hold(&mut holder);
    let over = AtomicBool::new(false);
    let stuck = std::thread::scope(|scope| {
        scope.spawn(|| renew(&mut holder, held, &over));
        let taken = take(&sluice, "stuck", topic, behind as u64);
        over.store(true, Ordering::Relaxed);
        taken
    });
    println!(
        "  with it: {:.0} records/s ({:.2} of that), {:.1} % of the others came, {}",
        stuck.rate(),
        stuck.rate() / free.rate(),
        stuck.records as f64 / behind as f64 * 100.0,
        memory(&sluice, "stuck")
    );

    sluice.broker.kill();
    let watch = Stopwatch::start();
    sluice.broker.restart();
    let started = watch.elapsed();
    load(&bootstrap, "stuck", batches(Codec::None, 1, 1, VALUE_BYTES, |_| Some("after".to_owned())));
    let mut after = ShareMember::connect(&bootstrap, "stuck", "after", topic);
    after.join("stuck");
    let deadline = Deadline::after(RESTART_LIMIT);
    let mut came = 0;
    while came == 0 && !deadline.is_over() {
        came = after.fetch(ALL).count();
    }
    let first = watch.elapsed().as_secs_f64();
    let told = if came > 0 { format!("after {first:.2} s") } else { format!("not within {first:.0} s") };
    println!(
        "  after kill -9: ready in {:.0} ms, the first record {told}, {}",
        started.as_secs_f64() * 1e3,
        memory(&sluice, "stuck")
    );
}

fn fill(sluice: &Alone, topic: &str, records: usize, key: impl Fn(usize) -> Option<String>) -> [u8; 16] {
    let bootstrap = sluice.broker.bootstrap();
    let id = create(bootstrap, topic, 1, &[("flush.policy", "os")]);
    let configs = [
        ("share.auto.offset.reset", "earliest"),
        ("sluice.share.order", "key"),
        ("sluice.share.hold.target.ms", "0"),
        ("share.record.lock.duration.ms", LOCK_MS),
    ];
    configure_group(bootstrap, topic, &configs);
    load(bootstrap, topic, batches(Codec::None, records, BATCH_RECORDS, VALUE_BYTES, key));
    id
}

fn take(sluice: &Alone, topic: &str, id: [u8; 16], records: u64) -> Taken {
    let task = Task {
        bootstrap: sluice.broker.bootstrap(),
        group: topic,
        topic: (topic, id),
        members: MEMBERS,
        records,
        stall_max: STALL_MAX,
        limit: LIMIT,
    };
    work(task, accept_all)
}

/// Takes the stuck key's first record, which is the first of the log.
fn hold(holder: &mut ShareMember) -> i64 {
    let deadline = Deadline::after(RESTART_LIMIT);
    while !deadline.is_over() {
        let fetched = holder.fetch(Ask { records_max: 1, batch_size: 1, mode: 1, ..ALL });
        if let Some((first, _, _)) = fetched.acquired().next() {
            return first;
        }
    }
    panic!("the stuck key's first record did not come within {RESTART_LIMIT:?}");
}

fn renew(holder: &mut ShareMember, held: i64, over: &AtomicBool) {
    let mut next = Deadline::after(RENEW_EVERY);
    while !over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(100));
        if next.is_over() {
            next = Deadline::after(RENEW_EVERY);
            holder.keep_alive();
            let answer = holder.acknowledge(true, &[(held, held, &[RENEW])]);
            assert_eq!((answer.error, &answer.parts[..]), (0, &[0][..]), "the stuck record stays held");
        }
    }
}

fn memory(sluice: &Alone, group: &str) -> String {
    format!(
        "share-partition {:.1} MiB, process {} MiB",
        sluice.share_metric("memory_bytes", group) / f64::from(1 << 20),
        sluice.broker.resident_bytes() >> 20
    )
}
