//! K62: the power goes out at each step of a dead letter's way, on the simulated disk, under each flush policy.
//!
//! The production shard and storage; every submission is one step, every sync job another. What must never be, whatever
//! the policy: a record archived without a copy, or the next of its key delivered before that.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use broker::executor::Data;
use broker::executor::flush::Flushes;
use broker::executor::serve;
use coordinator::command::{
    AckRange, Acks, Command, ConnectionId, Fact, PartitionRole, Produce, ShareAcknowledge, ShareFetch,
    ShareFetchPart, Ticket, TopicImage,
};
use coordinator::io::Submission;
use coordinator::limits::Limits;
use coordinator::reply::{Output, Reply};
use coordinator::shard::{Input, Shard};
use coordinator::share::{Poison, ShareConfig, ShareOrder, ShareReset};
use coordinator::time::{Micros, Mono, Now};
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Codec, TimestampType};
use storage::{DataDir, Disk, FlushPolicy, LogConfig, Logs, Metadata, Options, SimDisk, SyncJob};

const SOURCE: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const LETTERS: PartitionId = PartitionId { topic: TopicId([2; 16]), index: 0 };
const ACCEPT: i8 = 1;
const REJECT: i8 = 3;

enum Work {
    Submit(Submission),
    Job(SyncJob),
}

/// One life of the broker.
struct Life {
    shard: Shard<Data>,
    logs: Logs,
    metadata: Metadata,
    flushes: Flushes,
    work: VecDeque<Work>,
    replies: BTreeMap<Ticket, Reply<Data>>,
    now: Now,
    ticket_last: u64,
    epoch: i32,
    /// Steps until the power goes out; `None`: it does not.
    steps_left: Option<usize>,
}

impl Life {
    fn start(disk: &Arc<SimDisk>, flush: FlushPolicy, wall_ms: i64) -> Self {
        let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
        let data_dir = DataDir::open(Arc::clone(&disk)).unwrap();
        let metadata = Metadata::open(&disk).unwrap();
        let boot = metadata.begin_boot(data_dir.was_clean()).unwrap();
        let mut logs = Logs::open(data_dir, Options::default(), boot).unwrap();
        let topics = TopicImage {
            topics: BTreeMap::from([("t".into(), (SOURCE.topic, 1)), ("dlq.t".into(), (LETTERS.topic, 1))]),
            dead_letter_topics: BTreeMap::from([("dlq.t".into(), 1 << 20)]),
            dead_letter_compacted: BTreeSet::new(),
            dead_letter_prefix: "dlq.".into(),
            dead_letter_create: false,
        };
        let mut inputs = vec![Input::Fact(Fact::Topics(Arc::new(topics)))];
        for (partition, topic) in [(SOURCE, "t"), (LETTERS, "dlq.t")] {
            let config = LogConfig { flush, retention_ms: -1, ..LogConfig::default() };
            logs.open_partition(partition, topic, config).unwrap();
            let facts = serve::facts(&logs, partition).unwrap();
            inputs.push(Input::Fact(Fact::PartitionOpened { partition, role: PartitionRole::Data, facts }));
        }
        let config = ShareConfig {
            order: ShareOrder::Key,
            reset: ShareReset::Earliest,
            poison: Poison::DeadLetter,
            dead_letter_topic: Some("dlq.t".into()),
            dead_letter_copy: true,
            hold_target_ms: 0,
            ..ShareConfig::default()
        };
        inputs.push(Input::Fact(Fact::ShareConfigured("g".into(), Arc::new(config))));
        let mut life = Self {
            shard: Shard::new(Limits::default(), u32::try_from(boot.boot).unwrap()),
            logs,
            metadata,
            flushes: Flushes::default(),
            work: VecDeque::new(),
            replies: BTreeMap::new(),
            now: Now { mono: Mono(1_000_000), wall_ms },
            ticket_last: 0,
            epoch: 0,
            steps_left: None,
        };
        life.round(inputs);
        life.run();
        life
    }

    fn round(&mut self, inputs: Vec<Input<Data>>) {
        for output in self.shard.round(self.now, inputs) {
            match output {
                Output::Submit(submission) => self.work.push_back(Work::Submit(submission)),
                Output::Reply(ticket, reply) => {
                    let written = matches!(reply, Reply::ShareFetched(_));
                    self.replies.insert(ticket, reply);
                    if written {
                        self.round(vec![Input::Fact(Fact::AnswerWritten(ticket))]);
                    }
                }
                Output::Effect(_) => {}
            }
        }
    }

    /// Works until nothing is left to do, or the power goes out. Says whether it did not.
    fn run(&mut self) -> bool {
        while let Some(work) = self.work.pop_front() {
            match &mut self.steps_left {
                Some(0) => return false,
                Some(left) => *left -= 1,
                None => {}
            }
            let (done, job) = match work {
                Work::Job(job) => self.flushes.end(&mut self.logs, job.run()),
                Work::Submit(Submission::Sync { op, partition }) => {
                    self.flushes.begin(&mut self.logs, op, partition)
                }
                Work::Submit(Submission::SyncNow { op, partition }) => {
                    self.flushes.force(&mut self.logs, op, partition)
                }
                Work::Submit(submission) => {
                    let now_ms = self.now.wall_ms;
                    (vec![serve::serve(submission, &mut self.logs, &self.metadata, now_ms)], None)
                }
            };
            self.work.extend(job.map(Work::Job));
            self.round(done.into_iter().map(Input::Completion).collect());
        }
        true
    }

    fn pass_ms(&mut self, ms: i64) -> bool {
        let end = self.now.mono + Micros::from_ms(ms);
        while let Some(next) = self.shard.next_deadline().filter(|&next| next <= end) {
            self.to(next.max(self.now.mono));
            self.round(Vec::new());
            if !self.run() {
                return false;
            }
        }
        self.to(end);
        true
    }

    fn to(&mut self, at: Mono) {
        self.now.wall_ms += i64::try_from((at - self.now.mono).0 / 1_000).unwrap();
        self.now.mono = at;
    }

    fn command(&mut self, command: Command) -> Option<Reply<Data>> {
        self.ticket_last += 1;
        let ticket = Ticket(self.ticket_last);
        self.round(vec![Input::Command(ticket, command)]);
        self.run();
        self.replies.remove(&ticket)
    }

    fn produce(&mut self) {
        let mut batch = BatchBuilder::new(Codec::None, TimestampType::Create);
        for value in [b"first", b"later"] {
            batch.append(self.now.wall_ms, Some(b"a"), Some(value), &[]);
        }
        let parts = vec![(SOURCE, batch.build(Offset(0), -1).into())];
        let reply = self.command(Command::Produce(Produce { acks: Acks::Synced, parts }));
        assert!(matches!(reply, Some(Reply::Produced(parts)) if parts[0].is_ok()));
    }

    /// What one fetch of the member brings.
    fn fetch(&mut self, member: &str) -> Vec<i64> {
        let parts = if self.epoch == 0 {
            vec![ShareFetchPart { partition: SOURCE, acks: Vec::new() }]
        } else {
            Vec::new()
        };
        let fetch = ShareFetch {
            connection: ConnectionId(1),
            group: "g".into(),
            member: member.into(),
            epoch: self.epoch,
            wait_max_ms: 0,
            bytes_min: 1,
            bytes_max: 1 << 20,
            records_max: 1,
            batch_size: 1,
            strict: true,
            renew: false,
            parts,
            forgotten: Vec::new(),
            key_share: None,
        };
        self.epoch += 1;
        let Some(Reply::ShareFetched(Ok(fetched))) = self.command(Command::ShareFetch(fetch)) else {
            return Vec::new();
        };
        let ranges = fetched.parts.iter().flat_map(|part| &part.acquired);
        ranges.flat_map(|range| range.first.get()..=range.last.get()).collect()
    }

    fn acknowledge(&mut self, member: &str, offset: i64, kind: i8) -> bool {
        let range = AckRange {
            first: offset,
            last: offset,
            types: vec![kind],
            delivery: None,
            delay_ms: None,
            reason: None,
        };
        let request = ShareAcknowledge {
            connection: ConnectionId(1),
            group: "g".into(),
            member: member.into(),
            epoch: self.epoch,
            renew: false,
            parts: vec![(SOURCE, vec![range])],
            key_share: false,
        };
        self.epoch += 1;
        match self.command(Command::ShareAcknowledge(request)) {
            Some(Reply::ShareAcknowledged(Ok(reply))) => reply.parts[0].error.is_none(),
            _ => false,
        }
    }

    /// The values that the dead-letter topic holds.
    fn letters(&mut self) -> Vec<Vec<u8>> {
        let end = serve::facts(&self.logs, LETTERS).unwrap().end.get();
        let offsets: Vec<Offset> = (0..end).map(Offset).collect();
        let found = self.logs.read_records(LETTERS, &offsets, u64::MAX).unwrap();
        found.into_iter().map(|(_, record)| record.unwrap().value.unwrap().to_vec()).collect()
    }

    fn start_offset(&self) -> Option<i64> {
        self.shard.share_partition("g", SOURCE).map(|view| view.start.get())
    }
}

#[test]
fn k62_never_archived_without_a_copy_whatever_the_flush_policy() {
    let mut seen = BTreeSet::new();
    for flush in [FlushPolicy::Acks, FlushPolicy::Interval(1_000), FlushPolicy::Os] {
        for seed in 0..8 {
            for steps in 0.. {
                let disk = Arc::new(SimDisk::new(seed * 1_000 + steps));
                let mut life = Life::start(&disk, flush, 1_700_000_000_000);
                life.produce();
                assert_eq!(life.fetch("A"), [0]);
                life.pass_ms(1_000);
                life.steps_left = Some(usize::try_from(steps).unwrap());
                let answered = life.acknowledge("A", 0, REJECT);
                let cut = !life.pass_ms(1_000) || life.steps_left == Some(0);
                let copied = !life.letters().is_empty();
                seen.insert((answered, copied));
                drop(life);
                disk.crash();
                after_the_cut(&disk, flush, &format!("{flush:?}, seed {seed}, step {steps}"));
                if !cut {
                    break;
                }
            }
        }
    }
    assert!(seen.len() >= 3, "before, between and behind answer and copy: {seen:?}");
}

fn after_the_cut(disk: &Arc<SimDisk>, flush: FlushPolicy, what: &str) {
    let mut life = Life::start(disk, flush, 1_700_000_002_000);
    if serve::facts(&life.logs, SOURCE).unwrap().end == Offset(0) {
        assert_ne!(flush, FlushPolicy::Acks, "{what}: what was answered with acks=all is there");
        return;
    }
    let first = life.fetch("B");
    if life.start_offset() == Some(1) {
        assert!(!life.letters().is_empty(), "{what}: archived without a copy");
    }
    // Whatever A held comes back, and whatever was on its way goes on.
    life.pass_ms(60_000);
    let mut got = Vec::new();
    let mut more = first;
    for _ in 0..8 {
        for offset in more {
            if offset == 1 {
                assert!(!life.letters().is_empty(), "{what}: 1 goes out before 0 is copied");
            }
            let kind = if offset == 0 { REJECT } else { ACCEPT };
            // The lock of the first one has run out meanwhile.
            if life.acknowledge("B", offset, kind) {
                got.push(offset);
            }
        }
        more = life.fetch("B");
    }
    let letters = life.letters();
    assert!(!letters.is_empty() && letters.len() <= 2, "{what}: {letters:?}");
    assert!(letters.iter().all(|value| value == b"first"), "{what}: {letters:?}");
    assert!(got.is_sorted() && got.last() == Some(&1), "{what}: {got:?}");
    assert_eq!(life.start_offset(), Some(2), "{what}");
}
