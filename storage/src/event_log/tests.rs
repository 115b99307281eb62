mod pages;

use super::*;
use crate::disk::SimDisk;

fn disk() -> (Arc<SimDisk>, Arc<dyn Disk>) {
    let sim = Arc::new(SimDisk::new(3));
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
    let (mut log, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
    assert_eq!((log.facts().existed, replay), (false, Replay::default()));
    let first = log.append(0, &[event(1), event(2)]).unwrap();
    assert!(log.append(3, &[event(3)]).unwrap() > first);
    let (again, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
    assert_eq!(replay.events, [(0, event(1)), (0, event(2)), (3, event(3))]);
    assert_eq!(again.facts(), EventsFacts { existed: true, bytes_since_snapshot: log.since_snapshot });
    let (other, _) = EventLog::open(&disk, "t-0", 8).unwrap();
    assert!(!other.facts().existed);
}

#[test]
fn a_snapshot_stands_for_what_came_before() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
    log.append(0, &[event(1)]).unwrap();
    log.snapshot(0, b"one", &[], &[]).unwrap();
    assert_eq!(log.append(0, &[event(2)]).unwrap(), 13 + 3);
    log.snapshot(2, b"two", &[], &[]).unwrap();
    log.append(2, &[event(3)]).unwrap();
    assert_eq!(disk.list("t-0").unwrap().len(), 3);
    sync(&mut log, &*disk);
    assert_eq!(disk.list("t-0").unwrap().len(), 1, "what came before goes once the new one is durable");
    let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
    assert_eq!(replay, Replay { snapshot: Some((2, Bytes::from("two"))), events: vec![(2, event(3))] });
}

#[test]
fn an_unfinished_snapshot_leaves_the_one_before_in_force() {
    for cut in 0..20 {
        let (_, disk) = disk();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
        log.append(0, &[event(1)]).unwrap();
        log.snapshot(0, b"one", &[], &[]).unwrap();
        log.append(0, &[event(2)]).unwrap();
        log.snapshot(0, b"two!", &[], &[]).unwrap();
        disk.open("t-0/share-7.2.events").unwrap().set_len(cut).unwrap();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(replay.snapshot, Some((0, Bytes::from("one"))));
        assert_eq!(numbers(&replay), [2]);
        log.snapshot(0, b"three", &[], &[]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(replay.snapshot, Some((0, Bytes::from("three"))));
    }
}

#[test]
fn a_torn_tail_is_cut_wherever_it_tears() {
    let (_, reference) = disk();
    let (mut log, _) = EventLog::open(&reference, "t-0", 7).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let one = log.len;
    log.append(0, &[event(2)]).unwrap();
    for len in 0..log.len {
        let (_, disk) = disk();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
        log.append(0, &[event(1)]).unwrap();
        log.append(0, &[event(2)]).unwrap();
        disk.open("t-0/share-7.0.events").unwrap().set_len(len).unwrap();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(numbers(&replay), if len < one { vec![] } else { vec![1] });
        log.append(0, &[event(9)]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(numbers(&replay), if len < one { vec![9] } else { vec![1, 9] });
    }
}

#[test]
fn an_append_is_there_as_a_whole_or_not_at_all() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let one = log.len;
    log.append(0, &[event(2), event(3), event(4)]).unwrap();
    for len in one..=log.len {
        let file = disk.open("t-0/share-7.0.events").unwrap();
        let mut bytes = vec![0; log.len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        file.set_len(len).unwrap();
        let (mut torn, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        let whole = len == log.len;
        assert_eq!(numbers(&replay), if whole { vec![1, 2, 3, 4] } else { vec![1] });
        assert_eq!((torn.len, file.len().unwrap()), if whole { (len, len) } else { (one, one) });
        torn.append(0, &[event(9)]).unwrap();
        let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(numbers(&replay), if whole { vec![1, 2, 3, 4, 9] } else { vec![1, 9] });
        disk.open("t-0/share-7.0.events").unwrap().set_len(0).unwrap();
        disk.open("t-0/share-7.0.events").unwrap().write_all_at(&bytes, 0).unwrap();
    }
}

#[test]
fn old_frames_do_not_join_on_behind_new_ones() {
    let (_, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
    log.append(0, &[event(1)]).unwrap();
    let before = log.len;
    log.append(0, &[Bytes::from("xxxx"), Bytes::from("yyyy")]).unwrap();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
    // A cut whose length change did not survive, then a frame as long as the one that stood there.
    log.len = before;
    log.chain = crc32c::crc32c_append(0, &[&[0, 0, 0, 0, 0][..], &event(1)].concat());
    log.append(0, &[Bytes::from("zzzz")]).unwrap();
    let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
    assert_eq!(replay.events, [(0, event(1)), (0, Bytes::from("zzzz"))]);
}

#[test]
fn a_failed_write_leaves_nothing_of_itself() {
    let (sim, disk) = disk();
    let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
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
    let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
    assert_eq!((numbers(&replay), replay.snapshot), (vec![2, 5], None));
}

#[test]
fn r14_a_newer_format_is_refused() {
    let (_, disk) = disk();
    let file = disk.create("t-0/share-7.0.events").unwrap();
    file.write_all_at(&[0x53, 0x4c, 0x45, 0x56, 0, 0, 0, 3], 0).unwrap();
    assert!(matches!(EventLog::open(&disk, "t-0", 7), Err(StorageError::Damaged { .. })));
}

#[test]
fn a_torn_beginning_does_not_come_back_under_a_new_header() {
    for seed in 0..200 {
        let sim = Arc::new(SimDisk::new(seed));
        let disk: Arc<dyn Disk> = Arc::clone(&sim) as Arc<dyn Disk>;
        disk.create_dir("t-0").unwrap();
        disk.sync_dir("").unwrap();
        let (mut log, _) = EventLog::open(&disk, "t-0", 7).unwrap();
        log.append(0, &[Bytes::from("old!")]).unwrap();
        disk.sync_dir("t-0").unwrap();
        let torn = disk.open("t-0/share-7.0.events").unwrap();
        torn.write_all_at(&[0; 8], 0).unwrap();
        torn.sync_data().unwrap();
        // The cut may be one that a process died in before it was synced.
        sim.die_after(seed % 6);
        let died = EventLog::open(&disk, "t-0", 7).is_err();
        sim.restart();
        let (mut log, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert_eq!(replay, Replay::default(), "died {died}");
        log.append(0, &[Bytes::from("newer")]).unwrap();
        sim.crash();
        let (_, replay) = EventLog::open(&disk, "t-0", 7).unwrap();
        assert!(replay.events.iter().all(|(_, body)| body == "newer"), "seed {seed}: {replay:?}");
    }
}
