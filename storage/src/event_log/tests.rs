mod pages;

use super::*;
use crate::disk::SimDisk;

fn disk() -> (Arc<SimDisk>, Arc<dyn Disk>) {
    disk_of(3)
}

/// A disk of that seed with the partition's directory on it.
fn disk_of(seed: u64) -> (Arc<SimDisk>, Arc<dyn Disk>) {
    let sim = Arc::new(SimDisk::new(seed));
    let disk: Arc<dyn Disk> = Arc::clone(&sim) as Arc<dyn Disk>;
    disk.create_dir("t-0").unwrap();
    disk.sync_dir("").unwrap();
    (sim, disk)
}

fn event(number: u8) -> Bytes {
    Bytes::from(vec![number; usize::from(number) + 1])
}

fn numbers(replay: &Replay) -> Vec<u8> {
    replay.events.iter().map(|(_, body)| body[0]).collect()
}

fn sync(log: &mut EventLog, disk: &dyn Disk) {
    for file in log.take_dirty() {
        file.sync_data().unwrap();
    }
    disk.sync_dir("t-0").unwrap();
    log.synced(log.generation());
}

#[test]
fn replays_what_was_written() {
    let (_, disk) = disk();
    let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!((log.facts().existed, replay), (false, Replay::default()));
    let first = log.append(0, &[event(1), event(2)]).unwrap();
    assert!(log.append(3, &[event(3)]).unwrap() > first);
    let (again, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!(replay.events, [(0, event(1)), (0, event(2)), (3, event(3))]);
    assert_eq!(again.facts(), EventsFacts { existed: true, bytes_since_snapshot: log.since_snapshot });
    let (other, _) = EventLog::open(&disk, "t-0", 8, false).unwrap();
    assert!(!other.facts().existed);
}

#[test]
fn a_snapshot_stands_for_what_came_before() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    log.append(0, &[event(1)]).unwrap();
    log.snapshot(0, b"one", &[], &[]).unwrap();
    assert_eq!(log.append(0, &[event(2)]).unwrap(), 13 + 3);
    log.snapshot(2, b"two", &[], &[]).unwrap();
    log.append(2, &[event(3)]).unwrap();
    assert_eq!(disk.list("t-0").unwrap().len(), 3);
    sync(&mut log, &*disk);
    assert_eq!(disk.list("t-0").unwrap().len(), 1, "what came before goes once the new one is durable");
    let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!(replay, Replay { snapshot: Some((2, Bytes::from("two"))), events: vec![(2, event(3))] });
}

#[test]
fn an_unfinished_snapshot_leaves_the_one_before_in_force() {
    for cut in 0..20 {
        let (_, disk) = disk();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        log.append(0, &[event(1)]).unwrap();
        log.snapshot(0, b"one", &[], &[]).unwrap();
        log.append(0, &[event(2)]).unwrap();
        log.snapshot(0, b"two!", &[], &[]).unwrap();
        disk.open("t-0/share-7.2.events").unwrap().set_len(cut).unwrap();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(replay.snapshot, Some((0, Bytes::from("one"))));
        assert_eq!(numbers(&replay), [2]);
        log.snapshot(0, b"three", &[], &[]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(replay.snapshot, Some((0, Bytes::from("three"))));
    }
}

#[test]
fn a_torn_tail_is_cut_wherever_it_tears() {
    let (_, reference) = disk();
    let (mut log, _) = EventLog::open(&reference, "t-0", 7, false).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let one = log.len;
    log.append(0, &[event(2)]).unwrap();
    for len in 0..log.len {
        let (_, disk) = disk();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        log.append(0, &[event(1)]).unwrap();
        log.append(0, &[event(2)]).unwrap();
        disk.open("t-0/share-7.0.events").unwrap().set_len(len).unwrap();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(numbers(&replay), if len < one { vec![] } else { vec![1] });
        log.append(0, &[event(9)]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(numbers(&replay), if len < one { vec![9] } else { vec![1, 9] });
    }
}

#[test]
fn an_append_is_there_as_a_whole_or_not_at_all() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let one = log.len;
    log.append(0, &[event(2), event(3), event(4)]).unwrap();
    for len in one..=log.len {
        let file = disk.open("t-0/share-7.0.events").unwrap();
        let mut bytes = vec![0; log.len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        file.set_len(len).unwrap();
        let (mut torn, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        let whole = len == log.len;
        assert_eq!(numbers(&replay), if whole { vec![1, 2, 3, 4] } else { vec![1] });
        assert_eq!((torn.len, file.len().unwrap()), if whole { (len, len) } else { (one, one) });
        torn.append(0, &[event(9)]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(numbers(&replay), if whole { vec![1, 2, 3, 4, 9] } else { vec![1, 9] });
        disk.open("t-0/share-7.0.events").unwrap().set_len(0).unwrap();
        disk.open("t-0/share-7.0.events").unwrap().write_all_at(&bytes, 0).unwrap();
    }
}

#[test]
fn old_frames_do_not_join_on_behind_new_ones() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let before = log.len;
    log.append(0, &[Bytes::from("xxxx"), Bytes::from("yyyy")]).unwrap();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    // A cut whose length change did not survive, then a frame as long as the one that stood there.
    log.len = before;
    log.chain = crc32c::crc32c_append(0, &[&[0, 0, 0, 0, 0][..], &event(1)].concat());
    log.append(0, &[Bytes::from("zzzz")]).unwrap();
    let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!(replay.events, [(0, event(1)), (0, Bytes::from("zzzz"))]);
}

#[test]
fn a_failed_write_leaves_nothing_of_itself() {
    let (sim, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    sim.fail_writes(1);
    assert!(log.append(0, &[event(1)]).is_err());
    log.append(0, &[event(2)]).unwrap();
    for _ in 0..5 {
        sim.fail_writes(1);
        assert!(log.append(0, &[event(3), event(4)]).is_err());
        sim.fail_writes(1);
        assert!(log.snapshot(0, b"s", &[], &[]).is_err());
    }
    log.append(0, &[event(5)]).unwrap();
    let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    assert_eq!((numbers(&replay), replay.snapshot), (vec![2, 5], None));
}

#[test]
fn r14_a_newer_format_is_refused() {
    let (_, disk) = disk();
    let file = disk.create("t-0/share-7.0.events").unwrap();
    file.write_all_at(&[0x53, 0x4c, 0x45, 0x56, 0, 0, 0, 3], 0).unwrap();
    assert!(matches!(EventLog::open(&disk, "t-0", 7, false), Err(StorageError::Damaged { .. })));
}

#[test]
fn a_torn_beginning_does_not_come_back_under_a_new_header() {
    for seed in 0..200 {
        let (sim, disk) = disk_of(seed);
        let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        log.append(0, &[Bytes::from("old!")]).unwrap();
        disk.sync_dir("t-0").unwrap();
        let torn = disk.open("t-0/share-7.0.events").unwrap();
        torn.write_all_at(&[0; 8], 0).unwrap();
        torn.sync_data().unwrap();
        // The cut may be one that a process died in before it was synced.
        sim.die_after(seed % 6);
        let died = EventLog::open(&disk, "t-0", 7, false).is_err();
        sim.restart();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert_eq!(replay, Replay::default(), "died {died}");
        log.append(0, &[Bytes::from("newer")]).unwrap();
        sim.crash();
        let (_, replay) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        assert!(replay.events.iter().all(|(_, body)| body == "newer"), "seed {seed}: {replay:?}");
    }
}

fn kept(disk: &dyn Disk) -> Vec<String> {
    let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".lost")).collect()
}

#[test]
fn damage_in_the_middle_is_no_torn_tail_and_nothing_of_it_is_thrown_away() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
    log.append(0, &[event(1)]).unwrap();
    log.snapshot(0, b"state", &[], &[]).unwrap();
    log.append(0, &[event(2)]).unwrap();
    let second = log.len as usize;
    log.append(0, &[event(3)]).unwrap();
    let third = log.len as usize;
    log.append(0, &[event(4)]).unwrap();
    sync(&mut log, &*disk);
    let path = "t-0/share-7.1.events";
    let whole = disk.read(path).unwrap().unwrap();
    for at in second..whole.len() {
        for was_closed in [false, true] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x20;
            disk.create(path).unwrap().write_all_at(&damaged, 0).unwrap();
            let (log, replay) = EventLog::open(&disk, "t-0", 7, was_closed).unwrap();
            let is_last = at >= third;
            assert_eq!(numbers(&replay), if is_last { vec![2, 3] } else { vec![2] });
            assert_eq!(log.len as usize, if is_last { third } else { second });
            let is_told = was_closed || !is_last;
            assert_eq!(kept(&*disk).len(), usize::from(is_told), "byte {at}");
            for name in kept(&*disk) {
                let name = format!("t-0/{name}");
                assert_eq!(disk.read(&name).unwrap().unwrap(), damaged);
                disk.remove_file(&name).unwrap();
            }
        }
    }
}

#[test]
fn where_nothing_is_left_to_go_on_from_the_state_is_refused_and_stays() {
    for generation in [0, 1] {
        let (_, disk) = disk();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7, false).unwrap();
        log.append(0, &[event(1)]).unwrap();
        if generation == 1 {
            log.snapshot(0, b"state", &[], &[]).unwrap();
        }
        log.append(0, &[event(2)]).unwrap();
        sync(&mut log, &*disk);
        let path = format!("t-0/share-7.{generation}.events");
        let whole = disk.read(&path).unwrap().unwrap();
        // Where the length is, nothing tells where the next frame begins.
        let snapshot = if generation == 1 { 12..13 + 8 + 5 } else { 0..0 };
        for at in (0..4).chain(snapshot) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x20;
            disk.create(&path).unwrap().write_all_at(&damaged, 0).unwrap();
            for was_closed in [false, true] {
                let error = EventLog::open(&disk, "t-0", 7, was_closed).unwrap_err().to_string();
                assert!(error.contains(&path) && error.contains("share-7.*"), "{error}");
                assert_eq!(disk.read(&path).unwrap().unwrap(), damaged);
            }
        }
        disk.create(&path).unwrap().write_all_at(&whole, 0).unwrap();
        assert_eq!(numbers(&EventLog::open(&disk, "t-0", 7, true).unwrap().1).last(), Some(&2));
    }
}
