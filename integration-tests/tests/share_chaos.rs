//! `make test-share-chaos`: one key-ordered share group of all clients that know share groups, for half an hour, while
//! members come, go and are killed, and the broker is killed every minute (O1, O2, O4, O5).
//!
//! `SLUICE_CHAOS_SECONDS` says how long (1,800), `SLUICE_CHAOS_SEED` which churn (1).

use std::time::Duration;

use integration_tests::broker_process::BrokerProcess;
use integration_tests::event_log::Event;
use integration_tests::foreign::{Client, KafkaTools};
use integration_tests::order_checker::Violation;
use integration_tests::order_checker::redeliveries::redeliveries;
use integration_tests::real_time::{Deadline, Stopwatch, pause, wall_clock_ns};
use integration_tests::share_run::{Options, ShareRun};

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
/// `share.record.lock.duration.ms` of the group. A stock client is not told that a lock ran out, and works on: on a machine
/// where a record can lie in its buffer for longer than this, O1 cannot be seen from outside.
const LOCK_MS: i64 = 30_000;
/// Records a second of each producer.
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
    let mut broker = BrokerProcess::start();
    let arguments = ["--create", "--topic", TOPIC, "--partitions", "1"];
    tools.run("topics", broker.bootstrap(), &arguments).expect_success();
    let configs = format!(
        "share.auto.offset.reset=earliest,sluice.share.order=key,share.delivery.count.limit=10,\
         share.record.lock.duration.ms={LOCK_MS}"
    );
    let arguments = ["--alter", "--entity-type", "groups", "--entity-name", GROUP, "--add-config", &configs];
    tools.run("configs", broker.bootstrap(), &arguments).expect_success();

    let mut run = ShareRun::new(broker.bootstrap(), TOPIC, GROUP, WORK);
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
        if run.logged_bytes() > logged {
            logged = run.logged_bytes();
            last_news = Stopwatch::start();
        }
        assert!(last_news.elapsed() < STALL_MAX, "nothing goes on:\n{}", run.told());
        if next_kill.is_over() && last_join.elapsed() > FIRST_CONTACT {
            next_kill = Deadline::after(KILL_EVERY);
            kills.push(wall_clock_ns());
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
    run.wait_for_done_slowly(usize::try_from(2 * seconds * RATE).expect("a small number"), REST_LIMIT);
    let (report, events) = run.finish_with_events();
    let again = redeliveries(&events, &kills, LOCK_MS * 1_000_000);
    println!(
        "{seconds} s, the broker killed {} times, {joined} members in all, {} of them stopped in order\n{report}",
        kills.len() / 2,
        stopping.len() + CREW.len()
    );
    println!("{} records succeeded more than once", again.again);
    assert!(kills.len() >= 2 || seconds <= KILL_EVERY.as_secs(), "the broker was never killed");
    for violation in &report.violations {
        if let Violation::Overlap { second: (_, offset), key, .. } = violation {
            println!("{}", told(key.partition, *offset, &events, &kills));
        }
    }
    report.expect_clean();
    let cases: Vec<String> =
        again.unexplained.iter().map(|case| told(case.partition, case.offset, &events, &kills)).collect();
    assert!(cases.is_empty(), "records came again without a reason:\n{}", cases.join("\n"));
    // A stock client held one record of a key: what it had gone past was acknowledged for good, crash or not.
    let bad: Vec<_> = report.rewinds.iter().filter(|r| !r.later_member.starts_with("KeyShare")).collect();
    assert!(bad.is_empty(), "acknowledged records came again: {bad:?}");
}

/// Everything that happened to a record, and when the broker was killed, in seconds from the first of it.
fn told(partition: i32, offset: i64, events: &[Event], kills: &[i64]) -> String {
    let mut about: Vec<&Event> =
        events.iter().filter(|event| event.partition == partition && event.offset == offset).collect();
    about.sort_by_key(|event| event.at_ns);
    let begin = about.first().map_or(0, |event| event.at_ns);
    let seconds = |at_ns: i64| (at_ns - begin) as f64 / 1e9;
    let mut lines = vec![format!("offset {offset}")];
    lines.extend(about.iter().map(|event| {
        let Event { member, what, key, deliveries, .. } = event;
        format!("  {:.3} s {member}: {what:?} of {key:?}, delivery {deliveries}", seconds(event.at_ns))
    }));
    let kills: Vec<String> = kills.iter().map(|at| format!("{:.3} s", seconds(*at))).collect();
    lines.push(format!("  the broker was killed at {}", kills.join(", ")));
    lines.join("\n")
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
