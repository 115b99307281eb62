//! Pages: what a crash leaves of them, and the room that they take.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::options::{PAGE_BLOCK_BYTES, PAGE_BYTES_MAX};

const FILE: &str = "t-0/share-7.pages";

/// The bytes of a page: no two pages of a test have the same seed.
fn content(seed: u64, len: usize) -> Bytes {
    (0..len as u64).map(|index| (seed * 31 + index * index % 251) as u8).collect()
}

fn page(id: u64, len: usize) -> (u64, Bytes) {
    (id, content(id, len))
}

fn open(disk: &Arc<dyn Disk>) -> EventLog {
    EventLog::open(disk, "t-0", 7, false).unwrap().0
}

fn read_all(log: &mut EventLog) -> Vec<(u64, Bytes)> {
    let ids = log.page_ids();
    let pages = log.read_pages(&ids).unwrap();
    ids.into_iter().zip(pages).map(|(id, (_, bytes))| (id, bytes)).collect()
}

fn file_len(disk: &dyn Disk) -> u64 {
    disk.read_len(FILE).unwrap().unwrap_or(0)
}

impl EventLog {
    fn begin_sync(&mut self, sim: &SimDisk, sync: Sync) {
        let files = if matches!(sync, Sync::NotBegun) { Vec::new() } else { self.take_dirty() };
        if matches!(sync, Sync::HasFailed) {
            sim.fail_syncs(files.len() as u32);
            files.iter().for_each(|file| assert!(file.sync_data().is_err()));
        }
    }
}

fn is_damaged<T: std::fmt::Debug>(result: &Result<T, StorageError>) -> bool {
    matches!(result, Err(StorageError::Damaged { .. }))
}

#[test]
fn pages_are_those_of_the_last_snapshot() {
    let (_, disk) = disk();
    let mut log = open(&disk);
    log.append(1, &[event(1)]).unwrap();
    let sizes = [0, 1, 4095, 4096, 4097, PAGE_BYTES_MAX];
    let first: Vec<(u64, Bytes)> = (0_u64..).zip(sizes).map(|(id, len)| page(id, len)).collect();
    log.snapshot(1, b"one", &first, &[]).unwrap();
    assert_eq!(read_all(&mut log), first);
    log.snapshot(3, b"two", &[page(9, 5)], &[0, 2, 77]).unwrap();
    log.append(3, &[event(2)]).unwrap();
    for mut log in [open(&disk), log] {
        assert_eq!(log.page_ids(), [1, 3, 4, 5, 9]);
        let read = log.read_pages(&[9, 1, 5]).unwrap();
        assert_eq!(read, [(3, content(9, 5)), (1, content(1, 1)), (1, content(5, PAGE_BYTES_MAX))]);
        assert!(is_damaged(&log.read_pages(&[1, 0])), "a page that was dropped is none");
    }
    let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!(replay, Replay { snapshot: Some((3, Bytes::from("two"))), events: vec![(3, event(2))] });
    assert!(log.snapshot(3, b"three", &[(10, content(10, PAGE_BYTES_MAX + 1))], &[]).is_err());
    log.snapshot(3, b"three", &[], &[1, 3, 4, 5, 9]).unwrap();
    sync(&mut log, &*disk);
    assert_eq!((read_all(&mut log), file_len(&*disk)), (Vec::new(), 0), "nothing is kept for no page");
    log.delete().unwrap();
    assert_eq!(disk.list("t-0").unwrap(), []);
}

#[test]
fn a_refused_snapshot_leaves_the_pages_of_the_one_before() {
    for (failing, calls) in [("the page", 0), ("the file of the snapshot", 1), ("the snapshot", 2)] {
        let (sim, disk) = disk();
        let mut log = open(&disk);
        let before = [page(1, 5000), page(2, 10)];
        log.snapshot(0, b"one", &before, &[]).unwrap();
        sync(&mut log, &*disk);
        let len = file_len(&*disk);
        sim.fail_after(calls);
        assert!(log.snapshot(0, b"two", &[page(3, 9000)], &[1]).is_err(), "{failing}");
        assert_eq!((read_all(&mut log), file_len(&*disk)), (before.to_vec(), len), "{failing}");
        log.snapshot(0, b"three", &[page(4, 9000)], &[2]).unwrap();
        let after = vec![page(1, 5000), page(4, 9000)];
        assert_eq!(read_all(&mut log), after, "{failing}");
        assert_eq!(read_all(&mut open(&disk)), after, "{failing}");
    }
}

#[test]
fn a_block_is_not_used_again_before_the_snapshot_without_it_is_durable() {
    let (_, disk) = disk();
    let mut log = open(&disk);
    log.snapshot(0, b"one", &[page(1, 4096)], &[]).unwrap();
    sync(&mut log, &*disk);
    log.snapshot(0, b"two", &[page(2, 4096)], &[1]).unwrap();
    // Begun before the next snapshot, and ended after it.
    let (files, generation) = (log.take_dirty(), log.generation());
    log.snapshot(0, b"three", &[page(3, 4096)], &[2]).unwrap();
    assert_eq!(file_len(&*disk), 3 * 4096);
    files.iter().for_each(|file| file.sync_data().unwrap());
    disk.sync_dir("t-0").unwrap();
    log.synced(generation);
    log.snapshot(0, b"four", &[page(4, 4096)], &[]).unwrap();
    assert_eq!(file_len(&*disk), 3 * 4096, "the block of the first one is free now");
    let bytes = disk.read(FILE).unwrap().unwrap();
    assert_eq!(bytes[4096..8192], content(2, 4096)[..], "that of the second one is not");
}

#[test]
fn a_snapshot_whose_pages_did_not_come_to_the_disk_is_none() {
    let mut outcomes = [0, 0];
    for seed in 0..200 {
        let (sim, disk) = disk_of(seed);
        let mut log = open(&disk);
        log.snapshot(0, b"one", &[page(1, 5000), page(2, 8192)], &[]).unwrap();
        sync(&mut log, &*disk);
        log.snapshot(0, b"two", &[page(3, 8192)], &[1]).unwrap();
        // All of it but the pages.
        disk.open("t-0/share-7.2.events").unwrap().sync_data().unwrap();
        disk.sync_dir("t-0").unwrap();
        sim.crash();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        let (_, snapshot) = replay.snapshot.unwrap();
        let expected = match &snapshot[..] {
            b"one" => [page(1, 5000), page(2, 8192)],
            _ => [page(2, 8192), page(3, 8192)],
        };
        outcomes[usize::from(snapshot == "two")] += 1;
        assert_eq!(read_all(&mut log), expected, "seed {seed}");
    }
    assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
}

#[test]
fn what_was_given_up_does_not_come_to_check_by_what_is_written_later() {
    for seed in 0..300 {
        let (sim, disk) = disk_of(seed);
        let mut log = open(&disk);
        log.append(0, &[event(1)]).unwrap();
        sync(&mut log, &*disk);
        log.snapshot(0, b"one", &[page(1, 8192)], &[]).unwrap();
        disk.open("t-0/share-7.1.events").unwrap().sync_data().unwrap();
        disk.sync_dir("t-0").unwrap();
        sim.crash();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        if replay.snapshot.is_some() {
            continue;
        }
        log.append(0, &[event(2)]).unwrap();
        sync(&mut log, &*disk);
        // The same page at the same place, for another snapshot.
        log.snapshot(0, b"and two", &[page(1, 8192)], &[]).unwrap();
        sim.crash();
        let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        match replay.snapshot {
            Some((_, snapshot)) => assert_eq!(snapshot, "and two", "seed {seed}"),
            None => assert_eq!(numbers(&replay), [1, 2], "seed {seed}"),
        }
    }
}

#[test]
fn what_comes_back_of_a_removed_log_has_its_pages_whatever_became_of_its_sync() {
    for sync in [Sync::NotBegun, Sync::IsOut, Sync::HasFailed] {
        for seed in 0..100 {
            let (sim, disk) = disk_of(seed);
            let mut log = open(&disk);
            log.snapshot(0, b"one", &[page(1, 5000)], &[]).unwrap();
            super::sync(&mut log, &*disk);
            log.snapshot(0, b"two", &[page(2, 8192)], &[1]).unwrap();
            log.begin_sync(&sim, sync);
            log.delete().unwrap();
            sim.crash();
            let mut log = open(&disk);
            let read = read_all(&mut log);
            assert!(
                [vec![], vec![page(1, 5000)], vec![page(2, 8192)]].contains(&read),
                "seed {seed}, {sync:?}"
            );
        }
    }
}

#[test]
fn what_comes_back_of_a_removed_log_without_pages_can_be_read_too() {
    for sync in [Sync::NotBegun, Sync::IsOut, Sync::HasFailed] {
        for seed in 0..300 {
            let (sim, disk) = disk_of(seed);
            let mut log = open(&disk);
            log.snapshot(0, b"one", &[], &[]).unwrap();
            super::sync(&mut log, &*disk);
            log.snapshot(0, b"two", &[], &[]).unwrap();
            for number in 0..40_u8 {
                log.append(0, &[content(number.into(), 500)]).unwrap();
            }
            log.begin_sync(&sim, sync);
            log.delete().unwrap();
            sim.crash();
            // It begins anew, or goes on from one of the two.
            open(&disk);
        }
    }
}

#[test]
fn what_was_never_synced_begins_anew_after_a_power_cut() {
    for seed in 0..300 {
        let (sim, disk) = disk_of(seed);
        let mut log = open(&disk);
        for number in 0..40_u8 {
            log.append(0, &[content(number.into(), 500)]).unwrap();
        }
        if seed % 2 == 0 {
            log.delete().unwrap();
        }
        sim.crash();
        open(&disk);
    }
}

#[test]
fn pages_of_an_older_snapshot_count_at_a_removal_also_where_the_last_one_has_none() {
    for seed in 0..200 {
        let mut model = Model::new(seed);
        model.snapshot(&[4096], &[]);
        model.snapshot(&[], &[0]);
        model.run(&Step::Delete { after: 2, sync: Sync::NotBegun });
    }
}

#[test]
fn a_damaged_page_is_told_of_and_nothing_else_is_lost() {
    let (_, disk) = disk();
    let mut log = open(&disk);
    log.snapshot(0, b"one", &[page(1, 5000), page(2, 10)], &[]).unwrap();
    sync(&mut log, &*disk);
    disk.open(FILE).unwrap().write_all_at(b"x", 4500).unwrap();
    let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!(replay.snapshot, Some((0, Bytes::from("one"))));
    assert!(is_damaged(&log.read_pages(&[1])));
    assert_eq!(log.read_pages(&[2]).unwrap(), [(0, content(2, 10))]);
    let found = damaged_pages(&*disk, "t-0", 7).unwrap();
    assert_eq!(found, [DamagedPage { id: 1, position: 0 }]);
    disk.open(FILE).unwrap().set_len(4096).unwrap();
    assert!(is_damaged(&open(&disk).read_pages(&[2])));
    disk.remove_file(FILE).unwrap();
    let mut log = open(&disk);
    assert!(is_damaged(&log.read_pages(&[2])));
    assert_eq!(disk.read_len(FILE).unwrap(), None);
    log.snapshot(0, b"two", &[page(3, 10)], &[]).unwrap();
    sync(&mut log, &*disk);
    assert_eq!(log.read_pages(&[3]).unwrap(), [(0, content(3, 10))]);
    assert_eq!(damaged_pages(&*disk, "t-0", 7).unwrap().len(), 2);
}

#[test]
fn the_file_is_as_long_as_what_is_needed_and_what_one_snapshot_replaces() {
    let (_, disk) = disk();
    let mut log = open(&disk);
    let mut live: Vec<u64> = (0..100).collect();
    let all: Vec<(u64, Bytes)> = live.iter().map(|id| page(*id, 6000)).collect();
    log.snapshot(0, b"s", &all, &[]).unwrap();
    sync(&mut log, &*disk);
    for round in 1..200_u64 {
        let dropped: Vec<u64> = live.drain(..10).collect();
        let added: Vec<u64> = (0..10).map(|index| round * 100 + index).collect();
        // Of other sizes, so that holes do not fit.
        let pages: Vec<_> = added.iter().map(|id| page(*id, 1 + (id * 7919 % 8000) as usize)).collect();
        live.extend(added);
        log.snapshot(0, b"s", &pages, &dropped).unwrap();
        sync(&mut log, &*disk);
        assert!(file_len(&*disk) <= 110 * 8192, "round {round}: {}", file_len(&*disk));
    }
    assert_eq!(log.page_ids(), live);
}

#[test]
fn the_file_shrinks_also_where_a_page_stands_at_its_end() {
    let (_, disk) = disk();
    let mut log = open(&disk);
    let all: Vec<(u64, Bytes)> = (0..1000).map(|id| page(id, 6000)).collect();
    log.snapshot(0, b"s", &all, &[]).unwrap();
    sync(&mut log, &*disk);
    let (dropped, kept): (Vec<u64>, Vec<u64>) = (0..1000).partition(|id| id % 50 != 49);
    log.snapshot(0, b"s", &[], &dropped).unwrap();
    sync(&mut log, &*disk);
    let before = file_len(&*disk);
    for _ in 0..3 {
        log.snapshot(0, b"s", &[], &[]).unwrap();
        sync(&mut log, &*disk);
    }
    assert!(before > 900 * 8192, "{before}");
    let after = file_len(&*disk);
    assert!(after <= 40 * PAGE_BLOCK_BYTES as u64, "{after}");
    let expected: Vec<(u64, Bytes)> = kept.iter().map(|id| page(*id, 6000)).collect();
    assert_eq!(read_all(&mut open(&disk)), expected);
    assert_eq!(read_all(&mut log), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Event,
    Snapshot { lens: Vec<usize>, drops: Vec<usize> },
    Fails { after: u64 },
    Sync,
    SyncLate,
    Open,
    Kill,
    PowerCut,
    Dies { after: u64, cut: bool },
    Delete { after: u64, sync: Sync },
}

/// What became of the sync before a deletion.
#[derive(Clone, Copy, Debug)]
enum Sync {
    NotBegun,
    IsOut,
    HasFailed,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![Just(0_usize), 1_usize..200, Just(4096_usize), 4000_usize..20_000];
    let snapshot = (proptest::collection::vec(len, 0..4), proptest::collection::vec(any::<usize>(), 0..4))
        .prop_map(|(lens, drops)| Step::Snapshot { lens, drops });
    prop_oneof![
        4 => Just(Step::Event),
        10 => snapshot,
        2 => (0_u64..6).prop_map(|after| Step::Fails { after }),
        6 => Just(Step::Sync),
        3 => Just(Step::SyncLate),
        1 => Just(Step::Open),
        2 => Just(Step::Kill),
        4 => Just(Step::PowerCut),
        3 => (0_u64..8, any::<bool>()).prop_map(|(after, cut)| Step::Dies { after, cut }),
        1 => (0_u64..12, prop_oneof![Just(Sync::NotBegun), Just(Sync::IsOut), Just(Sync::HasFailed)])
            .prop_map(|(after, sync)| Step::Delete { after, sync }),
    ]
}

/// What a snapshot means: how many events there were, and its pages by id, each with seed and length.
type Meaning = (u64, BTreeMap<u64, (u64, usize)>);

struct Model {
    sim: Arc<SimDisk>,
    disk: Arc<dyn Disk>,
    log: EventLog,
    /// By the number that a snapshot bears; that without number is the first.
    snapshots: Vec<Meaning>,
    now: usize,
    events: u64,
    /// Snapshot and count of events that must survive a power cut.
    synced: (usize, u64),
    ids: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let (sim, disk) = disk_of(seed);
        let log = open(&disk);
        Self {
            sim,
            disk,
            log,
            snapshots: vec![Meaning::default()],
            now: 0,
            events: 0,
            synced: (0, 0),
            ids: 0,
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Event => self.event(),
            Step::Snapshot { lens, drops } => self.snapshot(lens, drops),
            Step::Fails { after } => {
                self.sim.fail_after(*after);
                self.snapshot(&[5000, 10], &[0]);
                self.sim.disarm();
            }
            Step::Sync => self.sync(|_| ()),
            Step::SyncLate => self.sync(|model| model.snapshot(&[4096], &[1])),
            Step::Open => self.open((self.now, self.events)),
            Step::Kill => {
                self.sim.restart();
                self.open((self.now, self.events));
            }
            Step::PowerCut => {
                self.sim.crash();
                self.open(self.synced);
            }
            Step::Dies { after, cut } => {
                let before = (self.now, self.events);
                self.sim.die_after(*after);
                self.event();
                self.snapshot(&[9000, 3], &[0, 1]);
                let files = self.log.take_dirty();
                let _syncs: Vec<_> = files.iter().map(|file| file.sync_data()).collect();
                if *cut {
                    self.sim.crash();
                    self.open(self.synced);
                } else {
                    self.sim.restart();
                    self.open(before);
                }
            }
            Step::Delete { after, sync } => {
                let other = open(&self.disk);
                let mut log = std::mem::replace(&mut self.log, other);
                log.begin_sync(&self.sim, *sync);
                self.sim.die_after(*after);
                let _deleted = log.delete();
                self.synced = (0, 0);
                self.sim.crash();
                self.open(self.synced);
            }
        }
        assert_eq!(read_all(&mut self.log), self.pages_of(self.now), "in {step:?}");
    }

    fn event(&mut self) {
        let event = Bytes::from((self.events + 1).to_string());
        if self.log.append(0, &[event]).is_ok() {
            self.events += 1;
        }
    }

    fn snapshot(&mut self, lens: &[usize], drops: &[usize]) {
        let mut meaning = (self.events, self.snapshots[self.now].1.clone());
        let dropped: Vec<u64> = drops
            .iter()
            .filter_map(|drop| meaning.1.keys().nth(drop % meaning.1.len().max(1)).copied())
            .collect();
        meaning.1.retain(|id, _| !dropped.contains(id));
        let mut pages = Vec::new();
        for len in lens {
            self.ids += 1;
            meaning.1.insert(self.ids, (self.ids, *len));
            pages.push((self.ids, content(self.ids, *len)));
        }
        let number = self.snapshots.len();
        self.snapshots.push(meaning);
        if self.log.snapshot(0, number.to_string().as_bytes(), &pages, &dropped).is_ok() {
            self.now = number;
        }
    }

    fn sync(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        let (files, generation) = (self.log.take_dirty(), self.log.generation());
        let reached = (self.now, self.events);
        meanwhile(self);
        files.iter().for_each(|file| file.sync_data().unwrap());
        self.disk.sync_dir("t-0").unwrap();
        self.log.synced(generation);
        self.synced = reached;
    }

    /// Goes on with what is there, of which at least `kept` must be.
    fn open(&mut self, kept: (usize, u64)) {
        let (log, replay) = EventLog::open(&self.disk, "t-0", 7, false).unwrap();
        self.log = log;
        let number = |bytes: &Bytes| std::str::from_utf8(bytes).unwrap().parse::<u64>().unwrap();
        self.now = replay.snapshot.as_ref().map_or(0, |(_, bytes)| number(bytes) as usize);
        let mut events = self.snapshots[self.now].0;
        for (_, event) in &replay.events {
            events += 1;
            assert_eq!(number(event), events, "events follow the snapshot that they were written behind");
        }
        assert!(self.now >= kept.0 && events >= kept.1, "{} and {events} instead of {kept:?}", self.now);
        self.events = events;
        self.synced = (self.synced.0.min(self.now), self.synced.1.min(events));
    }

    fn pages_of(&self, snapshot: usize) -> Vec<(u64, Bytes)> {
        let pages = self.snapshots[snapshot].1.iter();
        pages.map(|(id, (seed, len))| (*id, content(*seed, *len))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), max_shrink_iters: 5000, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn a_snapshot_comes_back_with_its_pages_whatever_happens(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut model = Model::new(seed);
        for step in &steps {
            model.run(step);
        }
    }
}

/// `SLUICE_SIM_CASES` asks for more runs than the tests of every day take.
fn cases() -> u32 {
    std::env::var("SLUICE_SIM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100)
}
