//! Raw members that take all that they can get and settle it with their next fetch, as fast as the broker lets them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use integration_tests::real_time::{Deadline, Stopwatch, wait_until};
use integration_tests::share_member::{ALL, Ack, Ask, Fetched, ShareMember};

/// Well within a session timeout.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// What a crew got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Records that were settled.
    pub records: u64,
    /// Bytes of records in the answers.
    pub record_bytes: u64,
    /// From the first record to the last.
    pub elapsed: Duration,
}

impl Taken {
    /// Records a second; 0 where none came.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.records as f64 / self.elapsed.as_secs_f64() }
    }
}

/// How a crew works.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// `HOST:PORT`.
    pub bootstrap: &'a str,
    /// Share group.
    pub group: &'a str,
    /// Topic with one partition, and its id.
    pub topic: (&'a str, [u8; 16]),
    /// Members.
    pub members: usize,
    /// It ends when it has settled so many records…
    pub records: u64,
    /// …or when nothing came for so long…
    pub stall_max: Duration,
    /// …or after this.
    pub limit: Duration,
}

/// Lets a crew work. `settle` says, from what a member got, what it acknowledges and how many of these records count.
pub fn work<S>(task: Task<'_>, settle: S) -> Taken
where
    S: Fn(&Fetched) -> (Vec<Ack<'static>>, u64) + Sync,
{
    let (records, bytes, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut elapsed = Duration::ZERO;
    std::thread::scope(|scope| {
        for number in 0..task.members {
            let (records, bytes, over, settle) = (&records, &bytes, &over, &settle);
            scope.spawn(move || {
                let name = format!("member-{number}");
                let mut member = ShareMember::connect(task.bootstrap, task.group, &name, task.topic.1);
                member.join(task.topic.0);
                let mut heartbeat = Deadline::after(HEARTBEAT_EVERY);
                let mut acks: Vec<Ack<'static>> = Vec::new();
                let mut settled = 0;
                while !over.load(Ordering::Relaxed) {
                    let fetched = member.fetch(Ask { acks: &acks, wait_ms: 200, ..ALL });
                    assert_eq!(fetched.error, 0, "{name} fetches");
                    let refused = fetched.parts.iter().find(|part| part.error != 0 || part.ack_error != 0);
                    assert!(refused.is_none(), "{name} is answered {refused:?}");
                    // What was acknowledged counts when the answer says so.
                    records.fetch_add(settled, Ordering::Relaxed);
                    (acks, settled) = settle(&fetched);
                    let size: usize = fetched.parts.iter().map(|part| part.records.len()).sum();
                    bytes.fetch_add(size as u64, Ordering::Relaxed);
                    if heartbeat.is_over() {
                        member.keep_alive();
                        heartbeat = Deadline::after(HEARTBEAT_EVERY);
                    }
                }
                member.acknowledge_at(-1, false, &acks);
                member.heartbeat(-1, None);
            });
        }
        let (mut seen, mut first, mut news) = (0, None, Stopwatch::start());
        wait_until(task.limit, || {
            let now = records.load(Ordering::Relaxed);
            if now > seen {
                let first = first.get_or_insert_with(Stopwatch::start);
                elapsed = first.elapsed();
                seen = now;
                news = Stopwatch::start();
            }
            now >= task.records || news.elapsed() > task.stall_max
        });
        over.store(true, Ordering::Relaxed);
    });
    Taken { records: records.into_inner(), record_bytes: bytes.into_inner(), elapsed }
}

/// Accepts everything.
#[must_use]
pub fn accept_all(fetched: &Fetched) -> (Vec<Ack<'static>>, u64) {
    const ACCEPTED: &[i8] = &[integration_tests::share_member::ACCEPT];
    (fetched.acquired().map(|(first, last, _)| (first, last, ACCEPTED)).collect(), fetched.count())
}
