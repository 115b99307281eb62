//! Random operations, kills and power cuts on the simulated disk, checked after each start: what was synced is
//! there, in order and at its offset; no record shows up that was not appended there in the life that the log kept;
//! indexes agree with the log; event logs replay a prefix that includes everything synced.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use records::batch::BatchBuilder;
use records::ids::Offset;
use records::{BatchView, Codec, TimestampType};

use crate::testing::{NOW, World, partition};
use crate::{AppendError, LogConfig, Origin};

const EVENTS: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Append { records: usize, codec: usize, timestamp: i64 },
    Produce { records: usize },
    Event { count: usize },
    Snapshot,
    Sync,
    SyncLate { appends: usize },
    DeleteRecords { part: i64 },
    Retention,
    Checkpoint,
    FailWrite,
    FailEvents,
    Kill,
    PowerCut,
    CleanRestart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1_usize..5, 0_usize..5, 0_i64..1000)
            .prop_map(|(records, codec, timestamp)| Step::Append { records, codec, timestamp }),
        6 => (1_usize..4).prop_map(|records| Step::Produce { records }),
        6 => (1_usize..4).prop_map(|count| Step::Event { count }),
        2 => Just(Step::Snapshot),
        6 => Just(Step::Sync),
        2 => (1_usize..4).prop_map(|appends| Step::SyncLate { appends }),
        1 => (0_i64..4).prop_map(|part| Step::DeleteRecords { part }),
        1 => Just(Step::Retention),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::FailWrite),
        2 => Just(Step::FailEvents),
        1 => Just(Step::Kill),
        3 => Just(Step::PowerCut),
        1 => Just(Step::CleanRestart),
    ]
}

/// The slow, simple picture of what the log must be.
struct Model {
    world: World,
    /// Value of each record by offset, as far as the log reached.
    values: Vec<String>,
    synced: i64,
    start: i64,
    producer: i64,
    sequence: i32,
    events: Vec<String>,
    events_synced: usize,
    /// How many values were made up so far: no two are equal.
    names: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let config = LogConfig {
            segment_bytes: 1400,
            index_interval_bytes: 200,
            segment_index_bytes: 120,
            retention_bytes: 4000,
            ..LogConfig::default()
        };
        let mut world = World::with(seed, config);
        world.logs().open_events(partition(0), EVENTS).unwrap();
        Self {
            world,
            values: Vec::new(),
            synced: 0,
            start: 0,
            producer: 1,
            sequence: 0,
            events: Vec::new(),
            events_synced: 0,
            names: 0,
        }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("value {}", self.names)
    }

    fn batch(
        &mut self,
        records: usize,
        codec: usize,
        timestamp: i64,
        producer: bool,
    ) -> (BytesMut, Vec<String>) {
        let codec = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd][codec];
        let mut builder = BatchBuilder::new(codec, TimestampType::Create);
        if producer {
            builder = builder.producer(self.producer, 0, self.sequence);
        }
        let names: Vec<String> = (0..records).map(|_| self.name()).collect();
        for name in &names {
            builder.append(NOW + timestamp, Some(b"key"), Some(name.as_bytes()), &[]);
        }
        (BytesMut::from(&builder.build(Offset(0), -1)[..]), names)
    }

    fn append(&mut self, records: usize, codec: usize, timestamp: i64, producer: bool) {
        let (batch, names) = self.batch(records, codec, timestamp, producer);
        match self.world.logs().append(partition(0), batch, Origin::Client, NOW) {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, self.values.len() as i64);
                assert!(!appended.duplicate);
                self.values.extend(names);
                if producer {
                    self.sequence += records as i32;
                }
            }
            Err(AppendError::Io(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn event(&mut self, count: usize) {
        let names: Vec<String> = (0..count).map(|_| self.name()).collect();
        let frames: Vec<Bytes> = names.iter().cloned().map(Bytes::from).collect();
        if self.world.logs().append_events(partition(0), EVENTS, 1, &frames).is_ok() {
            self.events.extend(names);
        }
    }

    fn snapshot(&mut self) {
        let all = self.events.join(",");
        let _failed = self.world.logs().write_snapshot(partition(0), EVENTS, 1, all.as_bytes(), &[], &[]);
    }

    fn sync(&mut self, appends_meanwhile: usize) {
        let Some(job) = self.world.logs().sync_job(partition(0)).unwrap() else { return };
        let (end, events) = (self.values.len() as i64, self.events.len());
        for _ in 0..appends_meanwhile {
            self.append(1, 0, 0, false);
            self.event(1);
        }
        let result = job.run();
        assert_eq!(self.world.logs().sync_done(result).unwrap().0, end);
        self.synced = end;
        self.events_synced = events;
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Append { records, codec, timestamp } => self.append(records, codec, timestamp, false),
            Step::Produce { records } => self.append(records, 0, 0, true),
            Step::Event { count } => self.event(count),
            Step::Snapshot => self.snapshot(),
            Step::Sync => self.sync(0),
            Step::SyncLate { appends } => self.sync(appends),
            Step::DeleteRecords { part } => {
                let to = self.synced * part / 4;
                let start = self.world.logs().delete_records(partition(0), Offset(to)).unwrap();
                self.start = self.start.max(to);
                assert_eq!(start.0, self.start);
            }
            Step::Retention => {
                self.world.logs().enforce_retention(NOW).unwrap();
                self.start = self.world.facts().log_start.0;
            }
            Step::Checkpoint => self.world.logs().checkpoint().unwrap(),
            Step::FailWrite => {
                self.world.sim.fail_writes(1);
                self.append(2, 0, 0, false);
                self.world.sim.fail_writes(0);
            }
            Step::FailEvents => {
                self.world.sim.fail_writes(1);
                self.event(3);
                self.world.sim.fail_writes(0);
            }
            Step::Kill => {
                self.world.kill();
                self.restarted(self.values.len() as i64, self.events.len());
            }
            Step::PowerCut => {
                self.world.power_cut();
                self.restarted(self.synced, self.events_synced);
            }
            Step::CleanRestart => {
                self.world.clean_restart();
                self.restarted(self.values.len() as i64, self.events.len());
                assert_eq!(self.world.facts().synced, self.world.facts().end);
                self.synced = self.values.len() as i64;
                self.events_synced = self.events.len();
            }
        }
    }

    /// Takes over what survived, after checking that it may be just that.
    fn restarted(&mut self, kept: i64, events_kept: usize) {
        let facts = self.world.facts();
        assert!(facts.end.0 >= kept, "lost {} to {kept}", facts.end);
        assert_eq!(facts.log_start.0, self.start.min(facts.end.0).max(facts.log_start.0));
        assert!(facts.log_start.0 >= self.start || facts.end.0 < self.start, "deleted records are back");
        self.values.truncate(facts.end.0 as usize);
        self.values.resize(facts.end.0 as usize, "deleted".to_owned());
        self.start = facts.log_start.0;
        self.synced = self.synced.min(facts.end.0);
        self.check();

        let (_, replay) = self.world.logs().open_events(partition(0), EVENTS).unwrap();
        let mut events: Vec<String> = Vec::new();
        if let Some((_, snapshot)) = &replay.snapshot {
            let text = std::str::from_utf8(snapshot).unwrap();
            events.extend(text.split(',').filter(|part| !part.is_empty()).map(str::to_owned));
        }
        events.extend(replay.events.iter().map(|(_, body)| String::from_utf8(body.to_vec()).unwrap()));
        assert!(events.len() >= events_kept, "events are lost: {} of {events_kept}", events.len());
        assert_eq!(events, self.events[..events.len()], "no event that was not written there");
        self.events = events;
        self.events_synced = self.events_synced.min(self.events.len());
    }

    /// Reads everything back, in order and from every offset.
    fn check(&mut self) {
        let mut newest: Option<(i32, i32, i64)> = None;
        let mut expected = self.start;
        for bytes in self.world.read_all(Offset(self.start)) {
            let view = BatchView::parse(&bytes).unwrap();
            for record in &view.records(1 << 20).unwrap() {
                let record = record.unwrap();
                if record.offset.0 < self.start {
                    continue;
                }
                assert_eq!(record.offset.0, expected);
                let value = std::str::from_utf8(record.value.unwrap()).unwrap();
                assert_eq!(value, self.values[expected as usize], "at {expected}");
                expected += 1;
            }
            if view.producer_id() == self.producer {
                newest = Some((view.base_sequence(), view.record_count(), view.base_offset().0));
            }
        }
        assert_eq!(expected, self.values.len() as i64);
        for from in self.start..self.values.len() as i64 {
            let slice = self.world.logs().read(partition(0), Offset(from), 1, Offset::MAX, true).unwrap();
            let bytes = slice.read().unwrap();
            let view = BatchView::parse(&bytes).unwrap();
            assert!((view.base_offset()..=view.last_offset()).contains(&Offset(from)));
        }
        let Some((sequence, count, base)) = newest else {
            // Its batches are gone, by the cut or by a delete: nobody can tell which one would be next.
            self.producer += 1;
            self.sequence = 0;
            return;
        };
        self.sequence = sequence + count;
        let mut again =
            BatchBuilder::new(Codec::None, TimestampType::Create).producer(self.producer, 0, sequence);
        for _ in 0..count {
            again.append(NOW, None, Some(b"again"), &[]);
        }
        let again = BytesMut::from(&again.build(Offset(0), -1)[..]);
        let appended = self.world.logs().append(partition(0), again, Origin::Client, NOW).unwrap();
        assert!(appended.duplicate, "the last batch of a producer is known after every start");
        assert_eq!(appended.base_offset.0, base);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn what_was_synced_survives_and_nothing_else_shows_up(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut model = Model::new(seed);
        for step in &steps {
            model.run(step);
        }
        model.run(&Step::PowerCut);
    }
}

/// `SLUICE_SIM_CASES` asks for more runs than the tests of every day take.
fn cases() -> u32 {
    std::env::var("SLUICE_SIM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100)
}
