//! Random transactions of several producers among plain batches, with rolls, restarts, kills, power cuts, damaged
//! indexes, compaction and deletion, against a plain list of what was appended: the last stable offset, the lists of
//! aborted transactions, and what a client that follows them shows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use records::ids::Offset;
use records::{BatchView, Batches};

use crate::disk::join;
use crate::inspect::{Depth, inspect};
use crate::testing::{NOW, World, batch, marker, partition, transactional};
use crate::{AbortedTransaction, LogConfig, Origin};

const PRODUCERS: i64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Data {
        producer: i64,
        count: usize,
    },
    Plain {
        count: usize,
    },
    /// A marker; with `bump` it raises the producer's epoch.
    End {
        producer: i64,
        commit: bool,
        bump: bool,
    },
    Roll,
    Sync,
    Checkpoint,
    CleanRestart,
    Kill,
    PowerCut,
    DamageIndex {
        which: usize,
        position: u64,
    },
    LoseSnapshots,
    Clean {
        steps: usize,
    },
    DeleteRecords {
        part: i64,
    },
    Retention,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..PRODUCERS, 1_usize..4).prop_map(|(producer, count)| Step::Data { producer, count }),
        3 => (1_usize..3).prop_map(|count| Step::Plain { count }),
        8 => (0..PRODUCERS, any::<bool>(), 0..5)
            .prop_map(|(producer, commit, bump)| Step::End { producer, commit, bump: bump == 0 }),
        2 => Just(Step::Roll),
        3 => Just(Step::Sync),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::CleanRestart),
        1 => Just(Step::Kill),
        2 => Just(Step::PowerCut),
        1 => (0_usize..5, 0_u64..100)
            .prop_map(|(which, position)| Step::DamageIndex { which, position }),
        1 => Just(Step::LoseSnapshots),
        2 => (0_usize..60).prop_map(|steps| Step::Clean { steps }),
        1 => (0_i64..5).prop_map(|part| Step::DeleteRecords { part }),
        1 => Just(Step::Retention),
    ]
}

/// One batch that was appended.
#[derive(Clone, Debug)]
struct Stored {
    base: i64,
    last: i64,
    producer: i64,
    epoch: i16,
    /// Whether it commits, of a marker.
    marker: Option<bool>,
}

/// What a walk over the list tells.
#[derive(Debug, Default)]
struct Told {
    open: BTreeMap<i64, i64>,
    aborted: Vec<(i64, i64, i64)>,
    /// Base offsets of batches that a reader of committed records is shown once they are stable.
    committed: BTreeSet<i64>,
    /// Epoch and next sequence number of each producer.
    next: BTreeMap<i64, (i16, i32)>,
}

fn tell(history: &[Stored]) -> Told {
    let mut told = Told::default();
    let mut pending: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for stored in history {
        if stored.producer < 0 {
            told.committed.insert(stored.base);
            continue;
        }
        let next = told.next.entry(stored.producer).or_insert((stored.epoch, 0));
        if next.0 != stored.epoch {
            *next = (stored.epoch, 0);
        }
        match stored.marker {
            None => {
                next.1 += (stored.last - stored.base + 1) as i32;
                told.open.entry(stored.producer).or_insert(stored.base);
                pending.entry(stored.producer).or_default().push(stored.base);
            }
            Some(commit) => {
                let batches = pending.remove(&stored.producer).unwrap_or_default();
                let first = told.open.remove(&stored.producer);
                if commit {
                    told.committed.extend(batches);
                } else if let Some(first) = first {
                    told.aborted.push((stored.producer, first, stored.base));
                }
            }
        }
    }
    told
}

struct Model {
    world: World,
    compact: bool,
    history: Vec<Stored>,
    start: i64,
    synced: i64,
    now_ms: i64,
    /// Whether an index that is made anew may name a later first offset, of what is left in the log.
    names_later: bool,
    /// Nothing is deleted then: what the first segment's snapshot would tell of it is not known for certain.
    snapshots_lost: bool,
}

impl Model {
    fn new(seed: u64, compact: bool) -> Self {
        let config = LogConfig {
            segment_bytes: 1100,
            index_interval_bytes: 150,
            compact,
            delete: !compact,
            retention_bytes: if compact { -1 } else { 3000 },
            retention_ms: -1,
            min_cleanable_dirty_ratio: 0.0,
            delete_retention_ms: 50,
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        };
        Self {
            world: World::with(seed, config),
            compact,
            history: Vec::new(),
            start: 0,
            synced: 0,
            now_ms: NOW,
            names_later: compact,
            snapshots_lost: false,
        }
    }

    fn end(&self) -> i64 {
        self.history.last().map_or(0, |stored| stored.last + 1)
    }

    fn append(&mut self, bytes: bytes::BytesMut, origin: Origin, producer: i64, marker: Option<bool>) {
        let epoch = BatchView::parse(&bytes).unwrap().producer_epoch();
        let appended = self.world.logs().append(partition(0), bytes, origin, self.now_ms).unwrap();
        assert_eq!(appended.base_offset.0, self.end());
        let (base, last) = (appended.base_offset.0, appended.last_offset.0);
        self.history.push(Stored { base, last, producer, epoch, marker });
    }

    fn take(&mut self, step: &Step) {
        self.now_ms += 10;
        match *step {
            Step::Data { producer, count } => {
                let (epoch, sequence) = tell(&self.history).next.get(&producer).copied().unwrap_or_default();
                let key = format!("k{}", self.end() % 3);
                let bytes = transactional(producer, epoch, sequence, &key, count);
                self.append(bytes, Origin::Client, producer, None);
            }
            Step::Plain { count } => self.append(batch(count), Origin::Client, -1, None),
            Step::End { producer, commit, bump } => {
                let (epoch, _) = tell(&self.history).next.get(&producer).copied().unwrap_or_default();
                let bytes = marker(producer, epoch + i16::from(bump), commit, 1);
                self.append(bytes, Origin::Coordinator, producer, Some(commit));
            }
            Step::Roll => {
                let log = self.world.logs().log_mut(partition(0)).unwrap();
                if log.sources().last().is_some_and(|active| active.bytes > 0) {
                    log.roll().unwrap();
                }
            }
            Step::Sync => self.synced = self.world.sync().0,
            Step::Checkpoint => self.world.logs().checkpoint().unwrap(),
            Step::CleanRestart => {
                self.world.clean_restart();
                self.synced = self.end();
            }
            Step::Kill => self.world.kill(),
            Step::PowerCut => self.power_cut(),
            Step::DamageIndex { which, position } => self.damage_index(which, position),
            Step::LoseSnapshots => self.lose_snapshots(),
            Step::Clean { steps } => self.clean(steps),
            Step::DeleteRecords { .. } | Step::Retention if self.snapshots_lost => {}
            Step::DeleteRecords { part } => {
                // All is durable, so that what is forgotten is known exactly.
                self.synced = self.world.sync().0;
                let to = self.start + (self.end() - self.start) * part / 5;
                self.start = self.world.logs().delete_records(partition(0), Offset(to)).unwrap().0;
            }
            Step::Retention => {
                self.synced = self.world.sync().0;
                self.world.logs().enforce_retention(self.now_ms).unwrap();
                self.start = self.world.facts().log_start.0;
            }
        }
    }

    fn power_cut(&mut self) {
        self.world.power_cut();
        let end = self.world.facts().end.0;
        assert!(end >= self.synced, "{end} of {} synced", self.synced);
        self.history.retain(|stored| stored.last < end);
        assert_eq!(self.end(), end, "it ends behind a batch");
        self.start = self.world.facts().log_start.0;
    }

    /// Spoils an index so that it cannot be what belongs there.
    fn damage_index(&mut self, which: usize, position: u64) {
        self.synced = self.world.sync().0;
        self.world.restart_after(|disk| {
            let entries = disk.list("t-0").unwrap_or_default();
            let indexes: Vec<_> =
                entries.into_iter().filter(|entry| entry.name.ends_with(".txnindex")).collect();
            let Some(found) = indexes.get(which) else { return };
            let file = disk.open(&join("t-0", &found.name)).unwrap();
            if position.is_multiple_of(34) {
                // A power cut may have left the name alone.
                file.write_all_at(&[0x7f], position.min(found.len.saturating_sub(34))).unwrap();
            } else {
                file.set_len(position).unwrap();
            }
        });
    }

    fn lose_snapshots(&mut self) {
        self.synced = self.world.sync().0;
        // Else what only they know is lost with them: that of deleted records.
        if self.start > 0 {
            return;
        }
        self.names_later = true;
        self.snapshots_lost = true;
        self.world.restart_after(|disk| {
            for entry in disk.list("t-0").unwrap_or_default() {
                if entry.name.ends_with(".snapshot") {
                    disk.remove_file(&join("t-0", &entry.name)).unwrap();
                }
            }
        });
    }

    /// Compacts, in at most so many steps; then it is told to stop. What it rests on is durable: else a marker that fences
    /// a producer may be lost, and with it what was known of the producer before.
    fn clean(&mut self, steps: usize) {
        self.synced = self.world.sync().0;
        let mut job = self.world.logs().clean_job(self.now_ms);
        for _ in 0..steps {
            let Some(next) = job else { return };
            job = self.world.logs().clean_done(next.run(400));
        }
        self.world.logs().stop_cleaning();
        while let Some(next) = job {
            job = self.world.logs().clean_done(next.run(400));
        }
    }

    fn check(&mut self) {
        let told = tell(&self.history);
        let facts = self.world.facts();
        assert_eq!((facts.log_start.0, facts.end.0), (self.start, self.end()));
        let first = told.open.values().min().copied();
        let stable = first.map_or(self.end(), |first| first.max(self.start).min(self.end()));
        assert_eq!(facts.last_stable.0, stable);
        for from in [self.start, self.start + (stable - self.start) / 2] {
            self.check_reader(from, &told, facts.last_stable.0);
        }
        if !self.history.is_empty() {
            let report = inspect(&self.world.disk(), "t", 0, Depth::Verify).unwrap();
            // The file of epochs follows a cut with the next checkpoint.
            let odd = report.findings.iter().find(|finding| !finding.path.ends_with("epoch-checkpoint"));
            assert_eq!(odd, None);
        }
    }

    /// Reads as a client of committed records does, from `from` on.
    fn check_reader(&mut self, from: i64, told: &Told, stable: i64) {
        let (mut at, mut shown, mut there) = (from, BTreeSet::new(), BTreeSet::new());
        loop {
            let logs = self.world.logs();
            let slice = logs.read(partition(0), Offset(at), 300, Offset(stable), true).unwrap();
            let aborted = logs.aborted(partition(0), Offset(at), &slice).unwrap();
            if slice.is_empty() {
                break;
            }
            let bytes = slice.read().unwrap();
            let batches: Vec<BatchView<'_>> =
                Batches::new(&bytes).collect::<Result<_, _>>().expect("whole batches");
            self.check_list(at, slice.next().0, &aborted, told, &batches);
            let kept = client_shows(&batches, &aborted);
            shown.extend(kept.into_iter().filter(|base| *base >= from));
            for batch in &batches {
                if !batch.attributes().is_control() && batch.record_count() > 0 {
                    there.insert(batch.base_offset().0);
                }
                at = batch.next_offset().0;
            }
        }
        there.retain(|base| *base >= from);
        let expected: BTreeSet<i64> = told.committed.intersection(&there).copied().collect();
        assert_eq!(shown, expected, "from {from}");
        if !self.compact {
            let whole = |base: &&i64| (from..stable).contains(*base);
            assert!(told.committed.iter().filter(whole).all(|base| there.contains(base)));
        }
    }

    /// The list names what overlaps, wherever it began, and nothing else; of what has lost its records to compaction it
    /// may be silent.
    fn check_list(
        &self,
        from: i64,
        next: i64,
        aborted: &[AbortedTransaction],
        told: &Told,
        batches: &[BatchView<'_>],
    ) {
        let overlaps = |(_, first, last): &&(i64, i64, i64)| *last >= from && *first < next;
        let mut expected: Vec<_> = told.aborted.iter().filter(overlaps).copied().collect();
        let listed: Vec<_> = aborted.iter().map(|txn| (txn.producer, txn.first.0, txn.last.0)).collect();
        if self.names_later {
            let has_record = |(producer, first, last): &(i64, i64, i64)| {
                batches.iter().any(|batch| {
                    let base = batch.base_offset().0;
                    let theirs = batch.producer_id() == *producer && (*first..*last).contains(&base);
                    theirs && !batch.attributes().is_control() && batch.record_count() > 0
                })
            };
            assert!(listed.iter().all(|txn| {
                // One that was found anew begins with what is left of it.
                expected.iter().any(|known| known.0 == txn.0 && known.1 <= txn.1 && known.2 == txn.2)
            }));
            expected.retain(has_record);
            let covers =
                |known: &(i64, i64, i64)| listed.iter().any(|txn| txn.0 == known.0 && txn.2 == known.2);
            assert!(expected.iter().all(covers), "{listed:?} lacks some of {expected:?}");
        } else {
            assert_eq!(listed, expected, "from {from} to {next}");
        }
    }
}

/// Base offsets of the data batches that Kafka's consumer shows (`CompletedFetch.nextFetchedRecord`).
fn client_shows(batches: &[BatchView<'_>], aborted: &[AbortedTransaction]) -> Vec<i64> {
    let mut waiting: Vec<AbortedTransaction> = aborted.to_vec();
    waiting.sort_by_key(|txn| txn.first);
    let mut waiting = waiting.into_iter().peekable();
    let (mut void, mut shown) = (BTreeSet::new(), Vec::new());
    for batch in batches {
        if batch.producer_id() >= 0 {
            while let Some(txn) = waiting.next_if(|txn| txn.first <= batch.last_offset()) {
                void.insert(txn.producer);
            }
        }
        if batch.attributes().is_control() {
            let is_abort = crate::transactions::Marker::of(batch) == crate::transactions::Marker::Abort(1);
            if is_abort {
                void.remove(&batch.producer_id());
            }
        } else if batch.record_count() > 0
            && !(batch.attributes().is_transactional() && void.contains(&batch.producer_id()))
        {
            shown.push(batch.base_offset().0);
        }
    }
    shown
}

/// Takes the steps, and checks everything behind each.
fn run(seed: u64, compact: bool, steps: &[Step]) {
    let mut model = Model::new(seed, compact);
    for step in steps {
        model.take(step);
        model.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn readers_of_committed_records_see_them_and_nothing_else(
        seed in any::<u64>(),
        compact in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        run(seed, compact, &steps);
    }
}

#[test]
fn a_damaged_index_is_made_anew_where_compaction_took_what_it_named() {
    run(
        0,
        true,
        &[
            Step::Data { producer: 2, count: 1 },
            Step::End { producer: 2, commit: false, bump: true },
            Step::Data { producer: 3, count: 1 },
            Step::Roll,
            Step::End { producer: 3, commit: false, bump: true },
            Step::Clean { steps: 2 },
            Step::Data { producer: 0, count: 1 },
            Step::DamageIndex { which: 0, position: 0 },
        ],
    );
}

#[test]
fn a_snapshot_that_the_power_took_is_made_anew_before_what_it_stands_for_is_deleted() {
    run(
        17_291_562_318_145_112_784,
        false,
        &[
            Step::Data { producer: 1, count: 1 },
            Step::Plain { count: 1 },
            Step::Roll,
            Step::Data { producer: 1, count: 3 },
            Step::Roll,
            Step::Kill,
            Step::PowerCut,
            Step::DeleteRecords { part: 2 },
            Step::End { producer: 1, commit: false, bump: true },
            Step::Data { producer: 0, count: 1 },
            Step::Roll,
            Step::Kill,
        ],
    );
}

/// `SLUICE_SIM_CASES` asks for more runs than the tests of every day take.
fn cases() -> u32 {
    std::env::var("SLUICE_SIM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100)
}
