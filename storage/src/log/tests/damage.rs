//! Damage behind which there is more: nobody waits for it, nothing is lost unsaid, and nothing is thrown away.

use records::ids::Offset;

use crate::checkpoints::{HIGH_WATERMARK, LOG_START};
use crate::disk::Disk;
use crate::log::lost::Lost;
use crate::testing::{TOPIC, World, batch, partition};
use crate::{Boot, DataDir, LogConfig, Logs, Options, ReadError, StorageError};

/// Paths of the log's files, oldest first.
fn log_files(disk: &dyn Disk) -> Vec<String> {
    let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
    let mut paths: Vec<_> =
        names.filter(|name| name.ends_with(".log")).map(|name| format!("t-0/{name}")).collect();
    paths.sort();
    paths
}

fn kept_files(disk: &dyn Disk) -> Vec<String> {
    let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".lost")).map(|name| format!("t-0/{name}")).collect()
}

/// Segments of 4 KiB, every batch but the first of each in its index.
fn written(batches: usize) -> World {
    let config = LogConfig { segment_bytes: 4096, index_interval_bytes: 0, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for _ in 0..batches {
        world.append(batch(2)).unwrap();
    }
    world
}

fn lost(world: &mut World) -> Option<Lost> {
    world.logs().log_mut(partition(0)).unwrap().lost().cloned()
}

fn flip(disk: &dyn Disk, path: &str, at: u64) {
    let file = disk.open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], at).unwrap();
}

#[test]
fn every_read_ends_in_front_of_a_damaged_batch_that_the_index_names() {
    let size = batch(2).len() as u64;
    let mut world = written(100);
    world.stop();
    // A header, and the end of a middle segment.
    world.restart_after(|disk| {
        let files = log_files(disk);
        flip(disk, &files[0], size * 7 + 16);
        let file = disk.open(&files[1]).unwrap();
        file.set_len(file.len().unwrap() - 7).unwrap();
    });
    let end = world.facts().end;
    for from in 0..end.0 {
        for bytes_max in [1, size, size * 3, size * 7, size * 7 + 1, 1 << 20] {
            for upper in [from + 1, from + 9, 14, 15, 16, end.0] {
                let read = world.logs().read(partition(0), Offset(from), bytes_max, Offset(upper), true);
                match read {
                    Ok(slice) => assert!(slice.is_empty() || slice.next() > Offset(from)),
                    Err(ReadError::Damaged { log, segment, position }) => {
                        assert_eq!(log, "t-0");
                        assert!(segment == Offset(0) && position == size * 7 || segment > Offset(0));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    let mut from = Offset(0);
    let mut seen = 0;
    while from < end {
        let scan = world.logs().scan(partition(0), from, 300, Offset::MAX).unwrap();
        assert!(scan.next > from, "a scan gets on");
        seen += scan.batches.iter().filter(|batch| matches!(batch.kind, crate::ScannedKind::Data(_))).count();
        from = scan.next;
    }
    assert_eq!(seen, 98);
}

#[test]
fn a_damaged_header_never_leads_a_scan_out_of_its_segment() {
    let size = batch(2).len() as u64;
    let mut world = written(100);
    world.stop();
    let mut behind = Offset(0);
    world.restart_after(|disk| {
        let files = log_files(disk);
        flip(disk, &files[0], size * 3 + 16);
        // The batch behind it claims to be far away: no checksum covers the offset.
        let far = 1_000_000_i64.to_be_bytes();
        disk.open(&files[0]).unwrap().write_all_at(&far, size * 4).unwrap();
        behind = Offset(files[1][4..24].parse().unwrap());
    });
    let damage = world.logs().scan(partition(0), Offset(6), 1, Offset::MAX).unwrap();
    assert!(damage.next <= behind, "{}", damage.next);
    assert_eq!(damage.next, Offset(10));
}

#[test]
fn what_stands_behind_a_damaged_segment_is_kept_and_told() {
    let size = batch(2).len() as u64;
    let mut world = written(200);
    let before = log_files(&*world.disk());
    assert!(before.len() > 3);
    let contents: Vec<Vec<u8>> =
        before.iter().map(|path| world.disk().read(path).unwrap().unwrap()).collect();
    world.restart_after(|disk| flip(disk, &before[1], size * 10 + 30));
    let second: i64 = before[1][4..24].parse().unwrap();
    let end = Offset(second + 20);
    assert_eq!(world.facts().end, end);
    let told = lost(&mut world).unwrap();
    let rest = format!("{}.{}.lost", before[1], size * 10);
    let mut files: Vec<String> = before[2..].iter().map(|path| format!("{path}.lost")).collect();
    files.insert(0, rest.clone());
    assert_eq!(told, Lost { from: end, to: Offset(400), synced: Offset(0), files: files.clone() });
    let text = told.to_string();
    assert!(
        text.contains(&format!("offsets {end} to 399")) && text.contains(files.last().unwrap()),
        "{text}"
    );
    // They stay, whatever follows.
    world.append(batch(2)).unwrap();
    world.kill();
    world.clean_restart();
    assert_eq!(lost(&mut world), None);
    assert_eq!((world.facts().end, world.read_all(Offset(0)).len()), (end + 2, second as usize / 2 + 11));
    for (path, content) in before[2..].iter().zip(&contents[2..]) {
        assert!(world.disk().read(&format!("{path}.lost")).unwrap().unwrap() == *content, "{path}");
    }
    let stored = world.disk().read(&rest).unwrap().unwrap();
    assert!(stored[size as usize..] == contents[1][(size * 11) as usize..], "behind the damaged batch");
    assert_eq!(stored.len() as u64, contents[1].len() as u64 - size * 10);
    // Another loss under the same names takes others.
    while world.facts().end < Offset(400) {
        world.append(batch(2)).unwrap();
    }
    let third = log_files(&*world.disk())[2].clone();
    world.restart_after(|disk| flip(disk, &before[1], size * 10 + 30));
    let again = lost(&mut world).unwrap().files;
    assert!(again.iter().all(|path| !files.contains(path)), "{again:?}");
    assert_eq!(again[0], format!("{}.{}.1.lost", before[1], size * 10));
    assert!(again[1].starts_with(&third), "{again:?}");
    assert_eq!(kept_files(&*world.disk()).len(), files.len() + again.len());
    // Back under its name a file is a part of the log again, and goes with the topic in the end.
    world.logs().delete_partition(partition(0)).unwrap();
    assert!(world.disk().list("t-0").is_err());
}

#[test]
fn a_crash_while_segments_are_taken_out_loses_none_of_them() {
    let size = batch(2).len() as u64;
    for calls in 0..40 {
        let mut world = written(200);
        world.sync();
        let before = log_files(&*world.disk());
        let sim = std::sync::Arc::clone(&world.sim);
        let whole: u64 = before[2..].iter().map(|path| sim.read_len(path).unwrap().unwrap()).sum();
        world.stop_hard();
        flip(&*sim, &before[1], size * 10 + 30);
        sim.sync_all().unwrap();
        sim.die_after(calls);
        let boot = Boot { boot: 9, leader_epoch: 9 };
        let config = world.config.clone();
        let opened = DataDir::open(world.disk())
            .and_then(|data_dir| Logs::open(data_dir, Options::default(), boot))
            .and_then(|mut logs| logs.open_partition(partition(0), TOPIC, config));
        drop(opened);
        sim.disarm();
        world.boot_at(10);
        world.power_cut();
        let second: i64 = before[1][4..24].parse().unwrap();
        assert_eq!(world.facts().end, Offset(second + 20), "{calls}");
        let kept: u64 = kept_files(&*sim)
            .iter()
            .filter(|path| before[2..].iter().any(|log| path.starts_with(log.as_str())))
            .map(|path| sim.read_len(path).unwrap().unwrap())
            .sum();
        assert_eq!(kept, whole, "{calls}");
    }
}

#[test]
fn garbage_behind_a_whole_segment_costs_nothing_of_what_follows() {
    let mut world = written(200);
    let files = log_files(&*world.disk());
    world.restart_after(|disk| {
        let file = disk.open(&files[1]).unwrap();
        file.write_all_at(&[0xa5; 99], file.len().unwrap()).unwrap();
    });
    assert_eq!((world.facts().end, lost(&mut world)), (Offset(400), None));
    assert_eq!(world.read_all(Offset(0)).len(), 200);
    assert!(kept_files(&*world.disk()).is_empty());
}

type Change = fn(&dyn Disk, &str);

#[test]
fn a_last_file_that_is_empty_cut_or_gone_is_told_by_offsets() {
    let changes: [Change; 4] = [
        |disk, path| disk.open(path).unwrap().set_len(0).unwrap(),
        |disk, path| disk.open(path).unwrap().set_len(100).unwrap(),
        |disk, path| disk.remove_file(path).unwrap(),
        |disk, _| disk.remove_dir_all("t-0").unwrap(),
    ];
    for clean in [true, false] {
        for change in changes {
            let mut world = written(100);
            world.sync();
            world.logs().checkpoint().unwrap();
            if clean {
                world.stop();
            }
            let last = log_files(&*world.disk()).pop().unwrap();
            world.restart_after(|disk| change(disk, &last));
            let end = world.facts().end;
            assert!(end < Offset(200));
            let told = lost(&mut world).unwrap();
            assert_eq!(told, Lost { from: end, to: Offset(200), synced: Offset(200), files: Vec::new() });
            assert_eq!(
                told.to_string(),
                format!(
                    "offsets {end} to 199 are not in the log any more, although everything below 200 was on the disk"
                )
            );
            assert_eq!(world.append(batch(2)).unwrap().base_offset, end);
            world.clean_restart();
            assert_eq!(lost(&mut world), None, "it is told once");
        }
    }
}

#[test]
fn nothing_is_called_lost_that_is_not() {
    let mut world = written(100);
    world.kill();
    assert_eq!(lost(&mut world), None);
    world.logs().checkpoint().unwrap();
    world.clean_restart();
    assert_eq!(lost(&mut world), None);
    // Another log of the name has nothing of this one.
    world.logs().delete_partition(partition(0)).unwrap();
    world.open(0);
    world.kill();
    assert_eq!((world.facts().end, lost(&mut world)), (Offset(0), None));
}

/// Opens the log of a stopped world, as its next start would.
fn try_open(world: &World) -> Result<(), StorageError> {
    let boot = Boot { boot: 9, leader_epoch: 9 };
    let mut logs = Logs::open(DataDir::open(world.disk())?, Options::default(), boot)?;
    logs.open_partition(partition(0), TOPIC, world.config.clone())?;
    Ok(())
}

#[test]
fn a_log_start_beyond_everything_is_refused_and_nothing_is_deleted() {
    for clean in [true, false] {
        let mut world = written(100);
        world.sync();
        world.logs().checkpoint().unwrap();
        if clean {
            world.stop();
        }
        world.stop_hard();
        let disk = world.disk();
        disk.create(LOG_START).unwrap().write_all_at(b"0\n1\nt 0 99999\n", 0).unwrap();
        let before = log_files(&*disk);
        let error = try_open(&world).unwrap_err().to_string();
        for part in [LOG_START, "t-0", "99999", "200", HIGH_WATERMARK] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(log_files(&*disk), before);
        disk.create(LOG_START).unwrap().write_all_at(b"0\n1\nt 0 50\n", 0).unwrap();
        world.boot_at(10);
        world.kill();
        assert_eq!((world.facts().log_start, world.facts().end), (Offset(50), Offset(200)));
        assert_eq!(world.read_all(Offset(50)).len(), 75);
    }
}

#[test]
fn f22_a_power_cut_behind_a_deletion_leaves_a_start_beyond_the_end_that_is_none_of_that() {
    let mut world = written(0);
    world.append(batch(2)).unwrap();
    world.sync();
    world.logs().checkpoint().unwrap();
    for _ in 0..5 {
        world.append(batch(2)).unwrap();
    }
    world.logs().delete_records(partition(0), Offset(12)).unwrap();
    world.power_cut();
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(12), Offset(12)));
}

#[test]
fn f22_an_end_that_could_not_be_written_is_written_before_a_start_behind_it() {
    let mut world = written(1);
    world.sync();
    world.logs().checkpoint().unwrap();
    world.append(batch(6)).unwrap();
    for _ in 0..2 {
        world.sim.fail_syncs(1);
        assert!(world.logs().checkpoint().is_err());
    }
    world.logs().delete_records(partition(0), Offset(8)).unwrap();
    world.power_cut();
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(8), Offset(8)));
}

#[test]
fn where_no_end_is_known_what_lies_below_a_start_beyond_is_kept() {
    let mut world = written(100);
    world.stop();
    let before = log_files(&*world.disk());
    world.restart_after(|disk| {
        disk.create(LOG_START).unwrap().write_all_at(b"0\n1\nt 0 500\n", 0).unwrap();
        disk.remove_file(HIGH_WATERMARK).unwrap();
    });
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(500), Offset(500)));
    let kept: Vec<String> = before.iter().map(|path| format!("{path}.lost")).collect();
    assert_eq!(lost(&mut world).unwrap().files, kept);
    assert_eq!(kept_files(&*world.disk()), kept);
}

#[test]
fn f22_a_damaged_log_start_checkpoint_is_refused() {
    let mut world = written(100);
    world.logs().delete_records(partition(0), Offset(60)).unwrap();
    world.stop();
    let disk = world.disk();
    let good = disk.read(LOG_START).unwrap().unwrap();
    for damaged in [&b""[..], b"garbage", &good[..good.len() - 1]] {
        disk.create(LOG_START).unwrap().write_all_at(damaged, 0).unwrap();
        let error = try_open(&world).unwrap_err().to_string();
        assert!(error.contains(LOG_START) && error.contains("remove it"), "{error}");
    }
    assert!(disk.read(".kafka_cleanshutdown").unwrap().is_some(), "a refused start changes nothing");
    disk.create(LOG_START).unwrap().write_all_at(&good, 0).unwrap();
    world.boot_at(10);
    world.restart_after(|_| {});
    assert_eq!(world.facts().log_start, Offset(60));
}

/// Puts an epoch into a batch's header, which no checksum covers.
fn set_epoch(disk: &dyn Disk, path: &str, batch_number: u64, epoch: i32) {
    let at = batch_number * batch(2).len() as u64 + 12;
    disk.open(path).unwrap().write_all_at(&epoch.to_be_bytes(), at).unwrap();
}

#[test]
fn r15_an_epoch_that_no_broker_gave_ends_the_tail_behind_the_recovery_point() {
    let path = "t-0/00000000000000000000.log";
    for epoch in [2, 0x0100_0000, i32::MAX, -2, i32::MIN] {
        for (number, synced) in [(9, 0), (9, 5), (7, 5), (5, 5)] {
            let mut world = written(synced);
            if synced > 0 {
                world.sync();
                world.logs().checkpoint().unwrap();
            }
            for _ in synced..10 {
                world.append(batch(2)).unwrap();
            }
            world.restart_after(|disk| set_epoch(disk, path, number, epoch));
            assert_eq!(world.facts().end, Offset(number as i64 * 2), "{epoch} in {number}");
            world.append(batch(2)).unwrap();
            world.kill();
            assert_eq!(world.read_all(Offset(0)).len(), number as usize + 1);
        }
    }
}

#[test]
fn r15_an_epoch_above_the_brokers_is_refused_where_anything_vouches_for_it() {
    let path = "t-0/00000000000000000000.log";
    // Below the recovery point.
    let mut world = written(10);
    world.sync();
    world.logs().checkpoint().unwrap();
    world.stop_hard();
    let disk = world.disk();
    set_epoch(&*disk, path, 4, 77);
    disk.remove_file("t-0/leader-epoch-checkpoint").unwrap();
    let error = try_open(&world).unwrap_err();
    assert!(matches!(error, StorageError::EpochAhead { found: 77, current: 9, .. }), "{error}");
    // Behind it, where the log's own file tells of the epoch.
    let mut world = written(10);
    world.stop_hard();
    let disk = world.disk();
    for number in 6..10 {
        set_epoch(&*disk, path, number, 77);
    }
    disk.write_atomic("t-0/leader-epoch-checkpoint", b"0\n2\n0 0\n77 12\n").unwrap();
    let error = try_open(&world).unwrap_err();
    assert!(matches!(error, StorageError::EpochAhead { found: 77, current: 9, .. }), "{error}");
}
