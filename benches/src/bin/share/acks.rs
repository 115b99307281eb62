//! Acknowledgements a second: 64 raw sessions on one partition, one offset a range, none of it synced.
//!
//! All sessions take what they can hold, then all acknowledge at once, from one thread, which sends for all before it
//! waits for the first: the brokers have the rest of the machine. Only the acknowledging is measured.

use std::time::Duration;

use benches::keyed::keyed_batches;
use benches::side_by_side::{Broker, Durability, Pair, print};
use integration_tests::process::cpu_time;
use integration_tests::real_time::{Deadline, Stopwatch};
use integration_tests::share_member::{ACCEPT, ALL, Ack, Ask, ShareMember};

const SESSIONS: usize = 64;
/// Records that a session takes in a round: all of them together stay below the most record locks.
const EACH: usize = 60;
const ROUNDS: usize = 10;
/// All that the sessions are to take is there within this.
const TURN_LIMIT: Duration = Duration::from_secs(60);
/// Kafka's bound on `share.partition.max.record.locks`.
const LOCKS: &str = "4000";

struct Turn {
    per_s: f64,
    cpu_us: f64,
}

pub(crate) fn run(pair: &Pair) {
    for ranges in [EACH, 1] {
        println!("{SESSIONS} sessions, one offset a range, {ranges} ranges a request, written");
        let samples =
            pair.take_turns(|broker, turn| measure(broker, &format!("acks-{ranges}-{turn}"), ranges));
        print(pair, &samples, "acks/s", |turn| turn.per_s);
        print(pair, &samples, "CPU µs/ack", |turn| turn.cpu_us);
    }
}

fn measure(broker: &Broker, topic: &str, ranges: usize) -> Turn {
    let id = broker.create(topic, 1, Durability::Written);
    // The sync of what was acknowledged comes behind the answer; here it is put off as far as it can be.
    broker.set_up_share_group(
        topic,
        &[
            ("share.partition.max.record.locks", LOCKS),
            ("sluice.share.hold.target.ms", "0"),
            ("sluice.share.sync.ms", "10000"),
        ],
    );
    let records = (ROUNDS + 1) * SESSIONS * EACH;
    benches::requests::load(&broker.bootstrap, topic, keyed_batches(records, 100, 1_000_000_007, 100));
    let mut members = join(broker, topic, id);
    let deadline = Deadline::after(TURN_LIMIT);
    let (mut spent, mut cpu, mut count) = (Duration::ZERO, Duration::ZERO, 0.0);
    for _ in 0..ROUNDS {
        let taken: Vec<Vec<i64>> = members.iter_mut().map(|member| take(member, deadline)).collect();
        let (watch, before) = (Stopwatch::start(), cpu_time(broker.id()));
        for from in (0..EACH).step_by(ranges) {
            for (member, taken) in members.iter_mut().zip(&taken) {
                let acks: Vec<Ack<'_>> =
                    taken[from..from + ranges].iter().map(|at| (*at, *at, &[ACCEPT][..])).collect();
                member.send_acknowledge(member.epoch, false, &acks);
                count += acks.len() as f64;
            }
            for member in &mut members {
                let answer = member.acknowledged();
                assert_eq!((answer.error, &answer.parts[..]), (0, &[0][..]), "{}", broker.name);
            }
        }
        spent += watch.elapsed();
        cpu += cpu_time(broker.id()).saturating_sub(before);
    }
    broker.delete(topic);
    Turn { per_s: count / spent.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / count }
}

/// All sessions, each of a member that has joined: Kafka takes seconds for that.
fn join(broker: &Broker, topic: &str, id: [u8; 16]) -> Vec<ShareMember> {
    let joined = |session: usize| {
        let mut member = ShareMember::connect(&broker.bootstrap, topic, &format!("session-{session}"), id);
        member.join(topic);
        member
    };
    std::thread::scope(|scope| {
        let joining: Vec<_> = (0..SESSIONS).map(|session| scope.spawn(move || joined(session))).collect();
        joining.into_iter().map(|member| member.join().expect("a member joins")).collect()
    })
}

/// Takes as much as a session has to.
fn take(member: &mut ShareMember, deadline: Deadline) -> Vec<i64> {
    let mut offsets = Vec::new();
    while offsets.len() < EACH && !deadline.is_over() {
        let left = (EACH - offsets.len()) as i32;
        let fetched = member.fetch(Ask { records_max: left, batch_size: left, mode: 1, ..ALL });
        assert_eq!(fetched.error, 0);
        offsets.extend(fetched.acquired().flat_map(|(first, last, _)| first..=last));
    }
    assert_eq!(offsets.len(), EACH, "a session gets its records in time");
    offsets
}
