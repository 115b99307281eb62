//! A shard with one share-partition on a log that exists only as numbers: what the shard itself costs, without any
//! disk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::command::{
    AckRange, Command, ConnectionId, Fact, PartitionRole, ShareAcknowledge, ShareFetch, ShareFetchPart,
    Ticket, TopicImage,
};
use coordinator::io::{
    Completion, EventsAppended, KeyFound, LogFacts, Scanned, ScannedBatch, ScannedKind, ScannedRecord,
    ShareState, ShareStateId, Submission,
};
use coordinator::limits::Limits;
use coordinator::reply::{AcquiredRange, Effect, Output, Reply};
use coordinator::shard::{Input, Shard};
use coordinator::share::{ShareConfig, ShareOrder, ShareReset};
use coordinator::time::{Micros, Mono, Now};
use records::ids::{KeyHash, Offset, PartitionId, TopicId};

/// Records of a stored batch.
const BATCH_RECORDS: i64 = 500;
/// Bytes of a record.
const RECORD_BYTES: u32 = 100;
/// Records of the log: more than any measurement takes.
const LOG_RECORDS: i64 = 1 << 40;

const PARTITION: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const GROUP: &str = "bench";

/// The shard, its one partition and its members.
pub struct ShareBench {
    shard: Shard<Bytes>,
    now: Now,
    keys: u64,
    epochs: Vec<i32>,
    ticket_next: u64,
    built: Bytes,
}

impl ShareBench {
    /// A key-ordered group (`keys` above 0) or one without order, with this many members, each in a session.
    #[must_use]
    pub fn new(keys: u64, members: usize) -> Self {
        Self::with_inflight(keys, members, 1)
    }

    /// As [`ShareBench::new`], with so many records of a key in flight at most.
    #[must_use]
    pub fn with_inflight(keys: u64, members: usize, key_inflight_max: u32) -> Self {
        let mut bench = Self {
            shard: Shard::new(Limits::default(), 1),
            now: Now { mono: Mono(1_000_000), wall_ms: 1_764_000_000_000 },
            keys,
            epochs: vec![0; members],
            ticket_next: 1,
            built: Bytes::from_static(&[0; 64]),
        };
        let config = ShareConfig {
            order: if keys > 0 { ShareOrder::Key } else { ShareOrder::None },
            reset: ShareReset::Earliest,
            record_locks_max: 4_000,
            hold_target_ms: 0,
            key_inflight_max,
            ..ShareConfig::default()
        };
        let topics = [(Arc::from("orders"), (PARTITION.topic, 1))].into_iter().collect();
        let end = Offset(LOG_RECORDS);
        let facts = LogFacts { log_start: Offset::ZERO, end, last_stable: end, leader_epoch: 0 };
        let facts = [
            Fact::Topics(Arc::new(TopicImage { topics, ..TopicImage::default() })),
            Fact::PartitionOpened { partition: PARTITION, role: PartitionRole::Data, facts },
            Fact::ShareConfigured(GROUP.into(), Arc::new(config)),
        ];
        bench.run(facts.into_iter().map(Input::Fact).collect());
        for member in 0..members {
            // What it opens its session with must not stay in its hands: with order `none` that bounds the window.
            let opening = bench.fetch(member, 1);
            bench.accept(member, &opening);
        }
        bench
    }

    /// One member asks for this many records, and gets what it may have.
    pub fn fetch(&mut self, member: usize, records_max: i32) -> Vec<AcquiredRange> {
        let command = Command::ShareFetch(ShareFetch {
            connection: ConnectionId(member as u64),
            group: GROUP.into(),
            member: name(member),
            epoch: self.epoch(member),
            wait_max_ms: 0,
            bytes_min: 0,
            bytes_max: 50 << 20,
            records_max,
            batch_size: records_max,
            strict: true,
            renew: false,
            parts: vec![ShareFetchPart { partition: PARTITION, acks: Vec::new() }],
            forgotten: Vec::new(),
            key_share: None,
        });
        match self.command(command) {
            Reply::ShareFetched(Ok(fetched)) => {
                fetched.parts.into_iter().flat_map(|part| part.acquired).collect()
            }
            other => panic!("a share fetch is answered by {other:?}"),
        }
    }

    /// The member accepts what it got.
    pub fn accept(&mut self, member: usize, acquired: &[AcquiredRange]) {
        let accept = |range: &AcquiredRange| AckRange {
            first: range.first.get(),
            last: range.last.get(),
            types: vec![1],
            delivery: None,
            delay_ms: None,
            reason: None,
        };
        let command = Command::ShareAcknowledge(ShareAcknowledge {
            connection: ConnectionId(member as u64),
            group: GROUP.into(),
            member: name(member),
            epoch: self.epoch(member),
            renew: false,
            parts: vec![(PARTITION, acquired.iter().map(accept).collect())],
            key_share: false,
        });
        match self.command(command) {
            Reply::ShareAcknowledged(Ok(done)) => {
                assert!(done.parts.iter().all(|part| part.error.is_none()), "{done:?}");
            }
            other => panic!("a share acknowledgement is answered by {other:?}"),
        }
    }

    /// How much memory the share-partition says that it takes.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.shard.share_groups().map(|(_, view)| view.heap_bytes).sum()
    }

    /// How many records these ranges hold.
    #[must_use]
    pub fn count(acquired: &[AcquiredRange]) -> u64 {
        acquired.iter().map(|range| (range.last - range.first + 1).unsigned_abs()).sum()
    }

    fn epoch(&mut self, member: usize) -> i32 {
        let epoch = self.epochs[member];
        self.epochs[member] = if epoch == i32::MAX { 1 } else { epoch + 1 };
        epoch
    }

    fn command(&mut self, command: Command) -> Reply<Bytes> {
        let ticket = Ticket(self.ticket_next);
        self.ticket_next += 1;
        self.now.mono = self.now.mono + Micros(10);
        let reply =
            self.run(vec![Input::Command(ticket, command)]).expect("an executor that never waits answers");
        self.run(vec![Input::Fact(Fact::AnswerWritten(ticket))]);
        reply
    }

    /// Rounds until nothing is left to do. Gives back the reply.
    fn run(&mut self, mut inputs: Vec<Input<Bytes>>) -> Option<Reply<Bytes>> {
        let mut answer = None;
        let mut queue = VecDeque::new();
        while !inputs.is_empty() {
            for output in self.shard.round(self.now, std::mem::take(&mut inputs)) {
                match output {
                    Output::Submit(submission) => queue.push_back(submission),
                    Output::Reply(_, reply) => answer = Some(reply),
                    // There is no log whose keys could be indexed.
                    Output::Effect(Effect::IndexKeys(_)) => {}
                    Output::Effect(effect) => panic!("nothing here has the effect {effect:?}"),
                }
            }
            let completions = queue.drain(..).map(|submission| Input::Completion(self.execute(submission)));
            inputs.extend(completions.collect::<Vec<_>>());
        }
        answer
    }

    fn execute(&self, submission: Submission) -> Completion<Bytes> {
        match submission {
            Submission::OpenShareState { op, .. } => {
                let state = ShareStateId { group: 1, partition: PARTITION };
                let found = ShareState { state, snapshot: None, events: Vec::new(), existed: false };
                Completion::ShareStateOpened(op, Ok(found))
            }
            Submission::Scan { op, from, bytes_max, .. } => {
                Completion::Scanned(op, Ok(self.scan(from, bytes_max)))
            }
            Submission::FindKey { op, key, from, upper, max, .. } => {
                Completion::KeyFound(op, Ok(self.find(key, from, upper, max)))
            }
            Submission::AppendEvents { op, .. } | Submission::WriteSnapshot { op, .. } => {
                Completion::EventsAppended(op, Ok(EventsAppended { bytes_since_snapshot: 0 }))
            }
            Submission::Build { op, parts } => {
                Completion::Built(op, parts.iter().map(|_| Ok(self.built.clone())).collect())
            }
            Submission::Sync { op, .. } => Completion::Synced(op, Ok(())),
            Submission::ReadRecords { op, .. } => Completion::RecordsRead(op, Ok(Vec::new())),
            Submission::NextRetention { op, .. } => Completion::RetentionFound(op, Ok(None)),
            other => panic!("a share group submits {other:?}"),
        }
    }

    /// The records of a key are as far apart as there are keys.
    fn find(&self, key: KeyHash, from: Offset, upper: Offset, max: u32) -> KeyFound {
        let ahead =
            (from.get()..from.get() + self.keys as i64).find(|&offset| self.key_of(offset) == Some(key));
        let offsets = ahead.into_iter().flat_map(|first| (first..upper.get()).step_by(self.keys as usize));
        let record = |offset| ScannedRecord { offset: Offset(offset), key: Some(key), bytes: RECORD_BYTES };
        let records: Vec<ScannedRecord> = offsets.take(max as usize).map(record).collect();
        let full = records.len() == max as usize;
        let next = records.last().filter(|_| full).map_or(upper, |last| last.offset.next());
        KeyFound { records, next }
    }

    /// Spread like hashes, and the same for the same key.
    fn key_of(&self, offset: i64) -> Option<KeyHash> {
        (self.keys > 0).then(|| KeyHash((offset as u64 % self.keys).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn scan(&self, from: Offset, bytes_max: u64) -> Scanned {
        let batch_bytes = BATCH_RECORDS as u32 * RECORD_BYTES;
        let count = (bytes_max / u64::from(batch_bytes)).max(1) as i64;
        let first = from.get() - from.get() % BATCH_RECORDS;
        let batches = (0..count).map(|index| {
            let base = first + index * BATCH_RECORDS;
            let records = (base..base + BATCH_RECORDS).map(|offset| ScannedRecord {
                offset: Offset(offset),
                key: self.key_of(offset),
                bytes: RECORD_BYTES,
            });
            ScannedBatch {
                base: Offset(base),
                last: Offset(base + BATCH_RECORDS - 1),
                bytes: batch_bytes,
                kind: ScannedKind::Data(records.collect()),
            }
        });
        Scanned { batches: batches.collect(), next: Offset(first + count * BATCH_RECORDS) }
    }
}

fn name(member: usize) -> Arc<str> {
    Arc::from(format!("member-{member}"))
}
