//! Files that do not belong to their segment, or are damaged, missing, or cannot be written.

use records::Codec;
use records::ids::{KeyHash, Offset};

use super::super::format::file_header;
use super::super::{KeyFilter, KeyWork, KeyedRecord};
use super::{TINY, check, hash};
use crate::disk::Disk;
use crate::testing::{World, partition};
use crate::{LogConfig, ReadError, StorageError};

fn filters() -> [KeyFilter; 4] {
    [
        KeyFilter::key(hash(3).unwrap()),
        KeyFilter::key(hash(900).unwrap()),
        KeyFilter::lane(3, 8),
        KeyFilter::lane(1, 1024),
    ]
}

/// A log of several segments, and what is in it.
fn filled() -> (World, Vec<KeyedRecord>) {
    let mut world = World::with(5, LogConfig { segment_bytes: 3000, ..LogConfig::default() });
    world.enable_keys(TINY);
    let records = fill(&mut world, 0..60);
    (world, records)
}

fn fill(world: &mut World, numbers: std::ops::Range<u32>) -> Vec<KeyedRecord> {
    let mut records = Vec::new();
    for index in numbers {
        let numbers = [index % 7, index, index % 3 + 1, 3];
        let appended = world.append_keys(Codec::None, &numbers, index % 2 == 0);
        records.extend(
            numbers
                .iter()
                .zip(appended.base_offset.0..)
                .map(|(&number, offset)| KeyedRecord { offset: Offset(offset), key: hash(number) }),
        );
    }
    records
}

#[test]
fn appends_are_followed_and_sealed_files_are_taken_up_without_reading_the_log() {
    let (mut world, records) = filled();
    let facts = world.key_facts();
    assert!(facts.is_complete() && facts.segments >= 3, "{facts:?}");
    assert_eq!(world.key_files().len(), facts.segments);
    check(&mut world, &records, &filters());
    assert!(world.logs().key_cache_bytes() > 0);
    world.clean_restart();
    assert!(
        !world.key_facts().is_complete(),
        "it is on, since its files are there, and nobody has looked yet"
    );
    world.enable_keys(TINY);
    world.sim.fail_reads(Some(".log"));
    let step = world.build_keys(1000);
    world.sim.fail_reads(None);
    assert_eq!((step.bytes, step.more), (0, false), "all of it was written at the stop");
    assert!(world.key_facts().is_complete());
    check(&mut world, &records, &filters());
    let more = fill(&mut world, 60..70);
    assert!(world.key_facts().is_complete());
    check(&mut world, &[records, more].concat(), &filters());
}

#[test]
fn an_index_without_files_is_off_after_a_restart() {
    let (mut world, records) = filled();
    world.logs().drop_key_index(partition(0)).unwrap();
    world.clean_restart();
    assert_eq!(world.logs().key_index_facts(partition(0)), None);
    assert!(!world.build_keys(1000).more, "nothing to do while it is off");
    assert!(matches!(world.logs().key_work(partition(0)), Ok(KeyWork::Nothing)));
    check(&mut world, &records, &filters());
}

#[test]
fn older_segments_are_read_in_jobs_and_the_end_of_the_log_at_once() {
    let (mut world, records) = filled();
    world.logs().drop_key_index(partition(0)).unwrap();
    world.enable_keys(TINY);
    let (mut in_jobs, mut at_once) = (0, 0);
    for _ in 0..1000 {
        match world.logs().key_work(partition(0)).unwrap() {
            KeyWork::Nothing => break,
            KeyWork::Stepped(bytes) => at_once += bytes,
            KeyWork::Run(job) => {
                let done = job.run();
                in_jobs += done.bytes();
                world.logs().key_job_done(done).unwrap();
            }
        }
    }
    assert!(in_jobs > 5000 && at_once <= 3000, "{in_jobs} bytes in jobs, {at_once} at once");
    assert!(world.key_facts().is_complete());
    check(&mut world, &records, &filters());
}

#[test]
fn any_file_may_be_deleted_cut_or_changed_at_any_time() {
    let changes: [fn(&dyn Disk, &str, u64); 6] = [
        |disk, path, _| disk.remove_file(path).unwrap(),
        |disk, path, _| disk.open(path).unwrap().set_len(3).unwrap(),
        |disk, path, len| disk.open(path).unwrap().set_len(len - 1).unwrap(),
        |disk, path, len| disk.open(path).unwrap().set_len(len / 2).unwrap(),
        |disk, path, len| disk.open(path).unwrap().write_all_at(&[0x55; 3], len / 2).unwrap(),
        |disk, path, len| disk.open(path).unwrap().write_all_at(&[0; 5], len - 30).unwrap(),
    ];
    for change in changes {
        for restart in [false, true] {
            let (mut world, records) = filled();
            if restart {
                world.stop();
                world.restart_after(|disk| {
                    let entries = disk.list("t-0").unwrap();
                    for entry in entries.iter().filter(|entry| entry.name.ends_with(".keyindex")) {
                        change(disk, &format!("t-0/{}", entry.name), entry.len);
                    }
                });
                world.enable_keys(TINY);
            } else {
                let disk = world.disk();
                for (path, len) in world.key_files() {
                    change(&*disk, &path, len);
                }
                // What is open stays good after a removal, as POSIX has it.
                world.logs().checkpoint().unwrap();
                world.logs().checkpoint().unwrap();
            }
            check(&mut world, &records, &filters());
            world.build_all_keys();
            check(&mut world, &records, &filters());
        }
    }
}

#[test]
fn a_file_of_another_segment_topic_or_version_is_made_anew() {
    for which in 0..3 {
        let (mut world, records) = filled();
        let files = world.key_files();
        world.stop();
        world.restart_after(|disk| {
            let mut bytes = disk.read(&files[1].0).unwrap().unwrap();
            match which {
                0 => bytes = disk.read(&files[2].0).unwrap().unwrap(),
                1 => {
                    let base: i64 = files[1].0[4..24].parse().unwrap();
                    bytes[..64].copy_from_slice(&file_header(partition(1), Offset(base)));
                }
                _ => {
                    bytes[8] = 2;
                    let crc = crc32c::crc32c(&bytes[..60]);
                    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
                }
            }
            disk.write_atomic(&files[1].0, &bytes).unwrap();
        });
        world.enable_keys(TINY);
        assert!(world.build_keys(1).bytes > 0, "that segment is read again");
        world.build_all_keys();
        check(&mut world, &records, &filters());
    }
}

/// A cut, then other records up to the same offsets and the same sizes: an index of the life before would fit by
/// every size, and must not be believed.
#[test]
fn an_index_of_a_life_before_the_cut_is_not_believed() {
    for sealed in [false, true] {
        let config = LogConfig { segment_bytes: 3000, ..LogConfig::default() };
        let mut world = World::with(5, config);
        world.enable_keys(TINY);
        let kept = fill(&mut world, 0..10);
        fill(&mut world, 10..if sealed { 40 } else { 15 });
        world.stop();
        let before: Vec<(String, Vec<u8>)> = world
            .key_files()
            .into_iter()
            .map(|(path, _)| (path.clone(), world.disk().read(&path).unwrap().unwrap()))
            .collect();
        assert_eq!(before.len() > 1, sealed);
        world.restart_after(|disk| {
            let log = disk.open("t-0/00000000000000000000.log").unwrap();
            let len = super::batch_of_keys(Codec::None, &[1, 1, 1, 1]).len() as u64;
            // Keys of one digit and of two differ in length.
            let ten: u64 = (0..10_u32)
                .map(|i| super::batch_of_keys(Codec::None, &[i % 7, i, i % 3 + 1, 3]).len() as u64)
                .sum();
            assert!(ten > len);
            log.set_len(ten).unwrap();
            disk.remove_file(".kafka_cleanshutdown").unwrap();
            disk.remove_file("recovery-point-offset-checkpoint").unwrap();
        });
        assert_eq!(world.facts().end, Offset(40));
        world.enable_keys(TINY);
        let mut records = kept;
        for index in 10..if sealed { 40 } else { 15 } {
            let numbers = [(index + 1) % 6 + 1, index + 40, index % 3 + 1, 4];
            let numbers = if index % 7 == 0 { [0, index + 40, index % 3 + 1, 4] } else { numbers };
            let appended = world.append_keys(Codec::None, &numbers, true);
            let offsets = appended.base_offset.0..;
            records.extend(
                numbers
                    .iter()
                    .zip(offsets)
                    .map(|(&number, offset)| KeyedRecord { offset: Offset(offset), key: hash(number) }),
            );
        }
        world.stop();
        let after: Vec<String> = world.key_files().into_iter().map(|(path, _)| path).collect();
        world.restart_after(|disk| {
            for (path, bytes) in &before {
                assert!(after.contains(path), "the segments are the same: {path}, {after:?}");
                disk.write_atomic(path, bytes).unwrap();
            }
        });
        world.enable_keys(TINY);
        check(&mut world, &records, &[KeyFilter::key(hash(3).unwrap()), KeyFilter::key(hash(4).unwrap())]);
        world.build_all_keys();
        check(&mut world, &records, &[KeyFilter::key(hash(3).unwrap()), KeyFilter::key(hash(4).unwrap())]);
    }
}

#[test]
fn a_disk_that_fails_costs_the_index_and_not_the_log() {
    let mut world = World::with(5, LogConfig { segment_bytes: 3000, ..LogConfig::default() });
    let records = fill(&mut world, 0..40);
    world.enable_keys(TINY);
    world.sim.fail_writes(1);
    let built = world.logs().build_key_index(partition(0), u64::MAX);
    assert!(matches!(built, Err(StorageError::Io { action: "write", .. })), "{built:?}");
    check(&mut world, &records, &filters());
    world.sim.fail_reads(Some(".log"));
    assert!(matches!(world.logs().build_key_index(partition(0), u64::MAX), Err(StorageError::Io { .. })));
    world.sim.fail_reads(None);
    world.build_all_keys();
    world.clean_restart();
    world.enable_keys(TINY);
    world.sim.fail_reads(Some(".keyindex"));
    check(&mut world, &records, &filters());
    assert!(world.logs().build_key_index(partition(0), u64::MAX).is_err());
    world.sim.fail_reads(None);
    assert_eq!(world.build_keys(1).bytes, 0, "a read that failed does not cost the file");
    check(&mut world, &records, &filters());

    // The room ends in the middle of appends: the log says so, and what is stored is found.
    let room = world.sim.used() + 1500;
    world.sim.set_capacity(room);
    let mut stored = records;
    while let Ok(appended) = world.append(super::batch_of_keys(Codec::None, &[5, 6])) {
        for (number, offset) in [5, 6].into_iter().zip(appended.base_offset.0..) {
            stored.push(KeyedRecord { offset: Offset(offset), key: hash(number) });
        }
    }
    check(&mut world, &stored, &filters());
    world.sim.set_capacity(u64::MAX);
    stored.extend(fill(&mut world, 40..50));
    world.build_all_keys();
    check(&mut world, &stored, &filters());
}

#[test]
fn files_go_with_their_segments() {
    let (mut world, mut records) = filled();
    world.sync();
    let before = world.key_files();
    world.logs().delete_records(partition(0), Offset(130)).unwrap();
    records.retain(|record| record.offset >= Offset(130));
    let logs = |world: &World| {
        world.disk().list("t-0").unwrap().into_iter().filter(|entry| entry.name.ends_with(".log")).count()
    };
    assert!(world.key_files().len() < before.len());
    assert_eq!(world.key_files().len(), logs(&world));
    check(&mut world, &records, &filters());
    assert!(world.key_facts().is_complete());
    world.kill();
    world.enable_keys(TINY);
    check(&mut world, &records, &filters());
    world.build_all_keys();
    check(&mut world, &records, &filters());

    world.stop();
    world.restart_after(|disk| {
        disk.create("t-0/00000000000000099999.keyindex").unwrap();
    });
    assert!(world.key_files().iter().all(|(path, _)| !path.contains("99999")), "nobody's file is swept up");
    world.logs().delete_partition(partition(0)).unwrap();
    assert_eq!(world.key_files(), []);
    world.open(0);
    assert_eq!(world.logs().key_index_facts(partition(0)), None);
    world.enable_keys(TINY);
    let records = fill(&mut world, 0..9);
    check(&mut world, &records, &filters());
}

#[test]
fn p25_records_that_were_deleted_are_not_indexed() {
    let mut world = World::new(1);
    let mut records = fill(&mut world, 0..20);
    world.sync();
    world.logs().delete_records(partition(0), Offset(50)).unwrap();
    world.clean_restart();
    world.enable_keys(TINY);
    world.build_all_keys();
    records.retain(|record| record.offset >= Offset(50));
    check(&mut world, &records, &filters());
    for from in [49, 81] {
        let key = KeyFilter::key(KeyHash(1));
        let found = world.logs().key_matches(partition(0), key, Offset(from), Offset::MAX, 10);
        assert!(matches!(found, Err(ReadError::OutOfRange { .. })));
        let found = world.logs().last_key_match(partition(0), key, Offset(from), Offset::MAX);
        assert!(matches!(found, Err(ReadError::OutOfRange { .. })));
        let found = world.logs().key_hashes(partition(0), Offset(from), Offset::MAX, 10);
        assert!(matches!(found, Err(ReadError::OutOfRange { .. })));
    }
    assert!(matches!(world.logs().enable_key_index(partition(7)), Err(StorageError::UnknownPartition)));
}

#[test]
fn many_stops_leave_no_crumbs() {
    let mut world = World::new(1);
    let mut records = Vec::new();
    for index in 0..40 {
        world.enable_keys(TINY);
        world.build_all_keys();
        records.extend(fill(&mut world, index..index + 1));
        world.clean_restart();
    }
    world.enable_keys(TINY);
    world.build_all_keys();
    check(&mut world, &records, &filters());
    let (_, len) = world.key_files()[0];
    assert!(len < 40 * 300, "{len} bytes of 160 records in blocks of 5 to 24");
}

#[test]
fn a_sealed_segment_that_lost_its_end_is_indexed_up_to_there_by_work_that_ends() {
    for (cut, interval) in [(1, 0), (7, 0), (7, 1 << 20), (61, 0), (130, 0)] {
        for by_job in [true, false] {
            let config =
                LogConfig { segment_bytes: 3000, index_interval_bytes: interval, ..LogConfig::default() };
            let mut world = World::with(5, config);
            world.enable_keys(TINY);
            let records = fill(&mut world, 0..60);
            world.stop();
            let mut behind = Offset::ZERO;
            world.restart_after(|disk| {
                let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
                let logs: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
                assert!(logs.len() > 2);
                let file = disk.open(&format!("t-0/{}", logs[1])).unwrap();
                file.set_len(file.len().unwrap() - cut).unwrap();
                behind = Offset(logs[2].strip_suffix(".log").unwrap().parse().unwrap());
            });
            world.enable_keys(TINY);
            let done = (0..1000).any(|_| {
                match world.logs().key_work(partition(0)).unwrap() {
                    _ if !by_job => return true,
                    KeyWork::Nothing => return true,
                    KeyWork::Stepped(_) => {}
                    KeyWork::Run(job) => world.logs().key_job_done(job.run()).unwrap(),
                }
                false
            });
            assert!(done, "the work comes to an end");
            world.build_all_keys();
            let found = world.logs().key_hashes(partition(0), Offset(0), Offset::MAX, usize::MAX).unwrap();
            let [(first, last)] = found.damaged[..] else { panic!("{:?}", found.damaged) };
            // Every batch holds four records, and one or two of them are lost.
            assert_eq!(last.next(), behind);
            assert!([4, 8].contains(&(last.next() - first)), "{first} to {last}");
            let whole: Vec<KeyedRecord> =
                records.into_iter().filter(|record| record.offset < first || record.offset > last).collect();
            assert_eq!(found.records, whole);
        }
    }
}
