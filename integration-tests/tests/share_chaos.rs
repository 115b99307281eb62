//! `make test-share-chaos`: one key-ordered share group of all clients that know share groups, for half an hour, while
//! members come, go and are killed, and the broker is killed every minute (O1, O2, O4, O5).
//!
//! `SLUICE_CHAOS_SECONDS` says how long (1,800), `SLUICE_CHAOS_SEED` which churn (1). Where it fails, everything that it
//! knows stays in a folder that it names: events, what the members printed, the log of each of the broker's lives, and
//! its data.

use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::event_log::{Event, What};
use integration_tests::foreign::{Client, KafkaTools};
use integration_tests::metrics_page::{MetricsPage, share_metric};
use integration_tests::order_checker::redeliveries::{Expiries, redeliveries};
use integration_tests::order_checker::{Report, Violation};
use integration_tests::real_time::{Deadline, Stopwatch, pause, wall_clock_ns};
use integration_tests::share_run::{Options, ShareRun};
use tempfile::TempDir;

const TOPIC: &str = "orders";
const GROUP: &str = "workers";
const SECONDS: u64 = 1_800;
const KILL_EVERY: Duration = Duration::from_secs(60);
/// A JVM takes seconds to start on two cores: members change no faster than that.
const CHURN_EVERY: Duration = Duration::from_secs(8);
/// Our client gives up where it finds no broker at its first contact: a member that was just started gets so long for it.
const FIRST_CONTACT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Nothing going on for so long is a hang: longer than a lock and a start of the broker together.
const STALL_MAX: Duration = Duration::from_secs(45);
/// What is left when the producers are done.
const REST_LIMIT: Duration = Duration::from_secs(180);
/// `share.record.lock.duration.ms` of the group, the shortest there is: locks run out and are renewed all the time. A stock
/// client that stands still for longer is not told that its lock ran out, and works on.
const LOCK_MS: i64 = 15_000;
/// A record whose lock ran out is at work again so soon.
const SOON_NS: i64 = 5_000_000_000;
/// How many records a failure tells of in full.
const TOLD_MAX: usize = 10;
/// Records a second of each producer. That of librdkafka is twice as fast, and done sooner: its pause ends with each report.
const RATE: u64 = 60;

const WORK: Options<'static> = &[
    ("service-us-min", "2000"),
    ("service-us-max", "20000"),
    ("release-percent", "3"),
    ("max-poll-records", "50"),
    ("idle-ms", "600000"),
];

/// The members that are there at any time; each is replaced by another one of its kind.
const CREW: [(Client, Options<'static>); 7] = [
    (Client::Java44, &[]),
    (Client::Java42, &[("commit", "sync")]),
    (Client::FranzGo, &[]),
    (Client::FranzGo, &[("commit", "record"), ("strict", "yes")]),
    (Client::Librdkafka, &[("commit", "sync")]),
    (Client::KeyShare, &[]),
    (Client::KeyShare, &[("concurrency", "8")]),
];

#[test]
fn all_clients_keep_every_order_while_members_and_the_broker_die() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let seconds = number("SLUICE_CHAOS_SECONDS", SECONDS);
    let mut random = Random(number("SLUICE_CHAOS_SEED", 1));
    let Some(tools) = KafkaTools::require() else { return };
    let mut evidence = Evidence::new();
    let mut broker = evidence.start_broker();
    let arguments = ["--create", "--topic", TOPIC, "--partitions", "1"];
    tools.run("topics", broker.bootstrap(), &arguments).expect_success();
    let configs = format!(
        "share.auto.offset.reset=earliest,sluice.share.order=key,share.delivery.count.limit=10,\
         share.record.lock.duration.ms={LOCK_MS}"
    );
    let arguments = ["--alter", "--entity-type", "groups", "--entity-name", GROUP, "--add-config", &configs];
    tools.run("configs", broker.bootstrap(), &arguments).expect_success();

    let mut run = ShareRun::new_in(evidence.dir.path(), broker.bootstrap(), TOPIC, GROUP, WORK);
    let mut names: Vec<String> = Vec::new();
    let mut joined = 0;
    for slot in 0..CREW.len() {
        let Some(name) = join(&mut run, slot, &mut joined) else { return };
        names.push(name);
    }
    let records = (seconds * RATE).to_string();
    let pause_us = (1_000_000 / RATE).to_string();
    let load: Options<'_> =
        &[("records", &records), ("keys", "40"), ("keyless-percent", "3"), ("pause-us", &pause_us)];
    if run.add_producer(Client::FranzGo, "producer-go", load).is_none()
        || run.add_producer(Client::Librdkafka, "producer-librdkafka", load).is_none()
    {
        return;
    }

    let mut kills = Vec::new();
    let mut last_join = Stopwatch::start();
    let (mut next_kill, mut next_churn) = (Deadline::after(KILL_EVERY), Deadline::after(CHURN_EVERY));
    let mut stopping: Vec<String> = Vec::new();
    let (mut logged, mut last_news) = (0, Stopwatch::start());
    while run.is_producing() {
        pause(LOOK_EVERY);
        run.expect_running(&names);
        evidence.look();
        if run.logged_bytes() > logged {
            logged = run.logged_bytes();
            last_news = Stopwatch::start();
        }
        assert!(last_news.elapsed() < STALL_MAX, "nothing goes on:\n{}", run.told());
        if next_kill.is_over() && last_join.elapsed() > FIRST_CONTACT {
            next_kill = Deadline::after(KILL_EVERY);
            kills.push(wall_clock_ns());
            evidence.keep_log(&broker);
            broker.restart();
            // What was answered by the old process is behind this moment too.
            kills.push(wall_clock_ns());
        }
        if next_churn.is_over() {
            next_churn = Deadline::after(CHURN_EVERY);
            let slot = random.below(CREW.len() as u64) as usize;
            if random.below(2) == 0 {
                run.kill_member(&names[slot]);
            } else {
                run.stop_member(&names[slot]);
                stopping.push(names[slot].clone());
            }
            names[slot] = join(&mut run, slot, &mut joined).expect("its tool chain was here before");
            last_join = Stopwatch::start();
        }
    }
    evidence.keep_log(&broker);
    run.wait_for_done_slowly(usize::try_from(2 * seconds * RATE).expect("a small number"), REST_LIMIT);
    let (report, events) = run.finish_with_events();
    evidence.keep_log(&broker);
    println!(
        "{seconds} s, the broker killed {} times, {joined} members in all, {} of them stopped in order\n{report}",
        kills.len() / 2,
        stopping.len() + CREW.len()
    );
    assert!(kills.len() >= 2 || seconds <= KILL_EVERY.as_secs(), "the broker was never killed");
    judge(&report, &events, &kills, &evidence, LOCK_MS * 1_000_000);
}

/// Panics with all that is known where something happened for no reason.
fn judge(report: &Report, events: &[Event], kills: &[i64], evidence: &Evidence, lock_ns: i64) {
    let expiries = evidence.expiries(kills, lock_ns);
    let again = redeliveries(events, kills, lock_ns, &expiries);
    println!(
        "{} records succeeded more than once, {} of them after a lock had run out; locks ran out {} times, {} times far \
         from a restart of the broker",
        again.again,
        again.expired,
        evidence.expired.len(),
        expiries.seen_ns.len()
    );
    let all_told = |mut records: Vec<(i32, i64)>| -> String {
        records.dedup();
        records.truncate(TOLD_MAX);
        records.into_iter().map(|record| told(record, events, kills, evidence)).collect()
    };
    // A stock client is not told that its lock ran out, and works on: no broker could prevent that.
    let outdated = |partition, offset| expiries.outdated(events, (partition, offset));
    let soon = |member: &str, offset: i64| {
        events.iter().any(|event| {
            (event.member.as_str(), event.offset, event.what) == (member, offset, What::Start)
                && expiries.explain(event.at_ns)
        })
    };
    let (excused, broken): (Vec<&Violation>, Vec<_>) =
        report.violations.iter().partition(|violation| match violation {
            Violation::Overlap { key, second: (member, offset), .. } => {
                soon(member, *offset) || outdated(key.partition, *offset)
            }
            Violation::StaleEnd { key, offset, .. } => outdated(key.partition, *offset),
            _ => false,
        });
    for violation in excused {
        println!("a member worked on after its lock had run out: {violation:?}");
    }
    let records = broken.iter().flat_map(|violation| violation.records()).collect();
    assert!(broken.is_empty(), "{broken:#?}\n{}", all_told(records));
    let records = again.unexplained.iter().map(|case| (case.partition, case.offset)).collect();
    assert!(again.unexplained.is_empty(), "records came again without a reason:\n{}", all_told(records));
    // A stock client held one record of a key: what it had gone past was acknowledged for good, crash or not.
    let bad: Vec<_> = report
        .rewinds
        .iter()
        .filter(|r| !r.later_member.starts_with("KeyShare") && !outdated(r.key.partition, r.offset))
        .collect();
    let records = bad.iter().map(|rewind| (rewind.key.partition, rewind.offset)).collect();
    assert!(bad.is_empty(), "acknowledged records came again: {bad:?}\n{}", all_told(records));
}

/// Everything that happened to a record and to who had it, when the broker was killed and when locks ran out, in
/// seconds from the first of it.
fn told((partition, offset): (i32, i64), events: &[Event], kills: &[i64], evidence: &Evidence) -> String {
    let mut about: Vec<&Event> =
        events.iter().filter(|event| event.partition == partition && event.offset == offset).collect();
    about.sort_by_key(|event| event.at_ns);
    let begin = about.first().map_or(0, |event| event.at_ns);
    let seconds = |at_ns: i64| (at_ns - begin) as f64 / 1e9;
    let mut lines = vec![format!("offset {offset}")];
    for event in &about {
        let Event { member, what, key, deliveries, at_ns, .. } = event;
        let of_member = || events.iter().filter(|other| other.member == *member);
        // Long before a start: it stood still, or got nothing. A refused acknowledgement names no record.
        let before = of_member().filter(|other| other.at_ns < *at_ns).map(|other| other.at_ns).max();
        let refused = of_member().find(|other| other.what == What::AckFailed && other.at_ns >= *at_ns);
        lines.push(format!(
            "  {:.3} s {member}: {what:?} of {key:?}, delivery {deliveries}; its word before was {}, its next refused \
             acknowledgement {}",
            seconds(*at_ns),
            before.map_or("nothing".to_owned(), |at| format!("at {:.3} s", seconds(at))),
            refused.map_or("never came".to_owned(), |other| format!("came at {:.3} s", seconds(other.at_ns))),
        ));
    }
    let kills: Vec<String> = kills.iter().map(|at| format!("{:.3} s", seconds(*at))).collect();
    lines.push(format!("  the broker was killed at {}", kills.join(", ")));
    let rises = evidence.expired.iter().map(|Rise { from_ns, to_ns, count }| {
        format!("{count} between {:.3} s and {:.3} s", seconds(*from_ns), seconds(*to_ns))
    });
    lines.push(format!("  locks ran out: {}\n", rises.collect::<Vec<_>>().join(", ")));
    lines.join("\n")
}

/// What a run leaves behind. Stays where the test fails.
struct Evidence {
    dir: TempDir,
    metrics: MetricsPage,
    lives: usize,
    /// Locks that had run out at the last look, and when that was.
    seen: (i64, f64),
    expired: Vec<Rise>,
}

/// Between which looks how many locks ran out.
struct Rise {
    from_ns: i64,
    to_ns: i64,
    count: f64,
}

impl Evidence {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder can be made");
        let metrics = MetricsPage::on_a_free_port();
        Self { dir, metrics, lives: 0, seen: (wall_clock_ns(), 0.0), expired: Vec::new() }
    }

    fn start_broker(&self) -> BrokerProcess {
        let config = self.dir.path().join("sluice.properties");
        std::fs::write(&config, self.metrics.property()).expect("a temporary file can be written");
        let config = config.to_str().expect("temporary paths are UTF-8");
        BrokerProcess::start_on(&self.dir.path().join("data"), &["--config", config])
    }

    /// The counter begins anew with each of the broker's lives.
    fn look(&mut self) {
        let (Some(page), now_ns) = (self.metrics.read(), wall_clock_ns()) else { return };
        let expired = share_metric(&page, "locks_expired_total", GROUP);
        let (before_ns, before) = self.seen;
        let more = if expired < before { expired } else { expired - before };
        if more > 0.0 {
            self.expired.push(Rise { from_ns: before_ns, to_ns: now_ns, count: more });
        }
        self.seen = (now_ns, expired);
    }

    /// What ran out within a lock of a kill was held when the broker died: its holder has a new session since.
    fn expiries(&self, kills: &[i64], lock_ns: i64) -> Expiries {
        let restarted =
            |rise: &&Rise| kills.iter().any(|at| (0..=lock_ns + SOON_NS).contains(&(rise.from_ns - at)));
        let seen = self.expired.iter().filter(|rise| !restarted(rise)).map(|rise| (rise.from_ns, rise.to_ns));
        Expiries { seen_ns: seen.collect(), soon_ns: SOON_NS }
    }

    /// Looks a last time before the broker dies, and keeps what it logged.
    fn keep_log(&mut self, broker: &BrokerProcess) {
        self.look();
        self.lives += 1;
        let file = self.dir.path().join(format!("broker-{}.log", self.lives));
        std::fs::write(file, broker.log()).expect("a temporary file can be written");
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            println!("all that is known stays in {}", self.dir.path().display());
        }
    }
}

fn join(run: &mut ShareRun, slot: usize, joined: &mut usize) -> Option<String> {
    let (client, options) = CREW[slot];
    *joined += 1;
    let name = format!("{client:?}-{joined}");
    run.add_member(client, &name, options)?;
    Some(name)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
