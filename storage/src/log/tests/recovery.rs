//! Stops, kills, power cuts and damage.

use records::ids::Offset;

use crate::disk::Disk;
use records::Codec;

use crate::inspect::{Depth, inspect};
use crate::testing::{NOW, World, batch, batch_of, partition, producer_batch, spans};
use crate::{AppendError, LogConfig};

fn log_file(disk: &dyn Disk) -> std::sync::Arc<dyn crate::DiskFile> {
    let entries = disk.list("t-0").unwrap();
    let last = entries.iter().rfind(|entry| entry.name.ends_with(".log")).unwrap();
    disk.open(&format!("t-0/{}", last.name)).unwrap()
}

/// Paths of the log's files, oldest first.
fn log_files(disk: &dyn Disk) -> Vec<String> {
    let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
    let mut paths: Vec<_> =
        names.filter(|name| name.ends_with(".log")).map(|name| format!("t-0/{name}")).collect();
    paths.sort();
    paths
}

fn written(batches: usize) -> World {
    let config = LogConfig { segment_bytes: 4096, index_interval_bytes: 512, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for _ in 0..batches {
        world.append(batch(2)).unwrap();
    }
    world
}

/// Damages the end of a stopped log and checks that it ends at the last valid batch, goes on from there, and that
/// every offset is found.
fn damage(clean: bool, kept: usize, change: impl Fn(&dyn crate::DiskFile, u64, u64)) {
    let mut world = written(100);
    if clean {
        world.stop();
    }
    let size = batch(2).len() as u64;
    world.restart_after(|disk| {
        let file = log_file(disk);
        change(&*file, file.len().unwrap(), size);
    });
    assert_eq!(world.facts().end, Offset(kept as i64 * 2));
    assert_eq!(world.append(batch(3)).unwrap().base_offset, Offset(kept as i64 * 2));
    for from in [0, 1, 77, kept as i64 * 2 - 1] {
        assert_eq!(world.read_all(Offset(from)).len(), kept - from as usize / 2 + 1);
    }
    world.clean_restart();
    assert_eq!(world.read_all(Offset(0)).len(), kept + 1);
}

#[test]
fn p21_a_cut_last_batch() {
    for clean in [false, true] {
        // At every place within it, and the whole of it.
        for cut in 1..=batch(2).len() as u64 {
            damage(clean, 99, |file, len, _| file.set_len(len - cut).unwrap());
        }
    }
}

#[test]
fn p21_garbage_behind_the_end() {
    for clean in [false, true] {
        damage(clean, 100, |file, len, _| file.write_all_at(&[0; 1024], len).unwrap());
        let noise: Vec<u8> = (0..1024_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        damage(clean, 100, |file, len, _| file.write_all_at(&noise, len).unwrap());
    }
}

#[test]
fn p21_a_flipped_byte_in_the_last_batch() {
    for clean in [false, true] {
        // Not the leader epoch: it stands outside of the checksum.
        for at in (0..12).chain(16..batch(2).len() as u64) {
            damage(clean, 99, |file, len, size| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, len - size + at).unwrap();
                file.write_all_at(&[byte[0] ^ 0xa5], len - size + at).unwrap();
            });
        }
    }
}

#[test]
fn r05_a_clean_stop_needs_no_recovery() {
    let mut world = written(100);
    world.stop();
    let names = |world: &World| world.disk().list("t-0").unwrap();
    let before = names(&world);
    assert!(world.disk().read(".kafka_cleanshutdown").unwrap().is_some());
    world.restart_after(|_| {});
    assert_eq!(names(&world), before, "nothing is rewritten");
    assert_eq!(world.facts().end, Offset(200));
    assert_eq!(world.facts().synced, Offset(200));
    assert_eq!(world.facts().leader_epoch, 0);
    assert!(world.disk().read(".kafka_cleanshutdown").unwrap().is_none());
    assert_eq!(world.read_all(Offset(0)).len(), 100);
}

#[test]
fn r06_recovery_reads_only_what_was_written_since_the_recovery_point() {
    for clean in [false, true] {
        let mut world = written(100);
        world.sync();
        world.logs().checkpoint().unwrap();
        let sealed = log_files(&*world.disk());
        assert!(sealed.len() > 1);
        for _ in 0..3 {
            world.append(batch(2)).unwrap();
        }
        if clean {
            world.stop();
        }
        let sim = std::sync::Arc::clone(&world.sim);
        // A segment that ends where the recovery point stands may be looked at once more.
        for path in &sealed[..sealed.len() - 1] {
            world.restart_after(|_| sim.fail_reads(Some(path)));
            sim.fail_reads(None);
            assert_eq!((world.facts().log_start, world.facts().end), (Offset(0), Offset(206)), "{path}");
            if clean {
                world.stop();
            }
        }
        world.restart_after(|_| {});
        assert_eq!(world.read_all(Offset(0)).len(), 103);
    }
}

#[test]
fn missing_short_and_foreign_indexes_are_rebuilt() {
    for clean in [false, true] {
        let mut world = written(100);
        world.stop();
        world.restart_after(|disk| {
            if !clean {
                disk.remove_file(".kafka_cleanshutdown").unwrap();
            }
            let names: Vec<_> = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name).collect();
            let indexes: Vec<_> = names.iter().filter(|name| name.ends_with("index")).collect();
            disk.remove_file(&format!("t-0/{}", indexes[0])).unwrap();
            disk.open(&format!("t-0/{}", indexes[3])).unwrap().set_len(5).unwrap();
            disk.create("t-0/00000000000000009999.index").unwrap();
        });
        for from in 0..200 {
            assert_eq!(world.read_all(Offset(from)).len(), 100 - from as usize / 2);
        }
        assert!(world.disk().open("t-0/00000000000000009999.index").is_err());
    }
}

#[test]
fn p16_duplicates_are_known_across_a_kill() {
    for lost in [".snapshot", ".producers", "nothing"] {
        let mut world = World::with(1, LogConfig { segment_bytes: 1024, ..LogConfig::default() });
        world.append(producer_batch(5, 0, 0, 3)).unwrap();
        for _ in 0..20 {
            world.append(batch(1)).unwrap();
        }
        world.restart_after(|disk| {
            for entry in disk.list("t-0").unwrap() {
                if entry.name.ends_with(lost) {
                    disk.remove_file(&format!("t-0/{}", entry.name)).unwrap();
                }
            }
        });
        assert_eq!(world.append(producer_batch(5, 0, 0, 3)).unwrap().base_offset, Offset(0), "{lost}");
        assert_eq!(world.append(producer_batch(5, 0, 3, 1)).unwrap().base_offset, Offset(23));
        world.clean_restart();
        assert!(world.append(producer_batch(5, 0, 0, 3)).unwrap().duplicate);
        assert!(world.append(producer_batch(5, 0, 3, 1)).unwrap().duplicate);
    }
}

#[test]
fn p24_five_in_flight_over_a_restart() {
    let five = |world: &mut World, from: i32| -> Vec<Result<i64, ()>> {
        let produced = (from..from + 5).map(|sequence| world.append(producer_batch(1, 0, sequence, 1)));
        produced
            .map(|result| match result {
                Ok(appended) => Ok(appended.base_offset.0),
                Err(AppendError::OutOfOrderSequence { .. }) => Err(()),
                Err(other) => panic!("{other}"),
            })
            .collect()
    };
    let mut world = World::new(1);
    let stored: Vec<_> = (0..5).map(Ok).collect();
    assert_eq!(five(&mut world, 0), stored);
    world.clean_restart();
    assert_eq!(five(&mut world, 0), stored);
    world.kill();
    assert_eq!(five(&mut world, 0), stored);
    world.stop();
    world.restart_after(|disk| disk.remove_file("t-0/00000000000000000005.producers").unwrap());
    assert_eq!(five(&mut world, 0), [Err(()), Err(()), Err(()), Err(()), Ok(4)]);
    assert_eq!(world.facts().end, Offset(5));
    assert_eq!(five(&mut world, 5), [Ok(5), Ok(6), Ok(7), Ok(8), Ok(9)]);
    world.clean_restart();
    assert_eq!(five(&mut world, 5), [Ok(5), Ok(6), Ok(7), Ok(8), Ok(9)]);
}

#[test]
fn f22_deleted_records_never_rise_again() {
    let mut world = written(100);
    assert_eq!(world.logs().delete_records(partition(0), Offset(101)).unwrap(), Offset(101));
    world.sync();
    for _ in 0..3 {
        world.power_cut();
        assert_eq!(world.facts().log_start, Offset(101));
        assert_eq!(spans(&world.read_all(Offset(101)))[0], (100, 101));
    }
    assert_eq!(world.logs().delete_records(partition(0), Offset(200)).unwrap(), Offset(200));
    world.clean_restart();
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(200), Offset(200)));
    assert_eq!(world.append(batch(1)).unwrap().base_offset, Offset(200));
}

#[test]
fn a_log_cut_below_its_start_goes_on_at_its_start() {
    let mut world = written(5);
    world.sync();
    world.append(batch(90)).unwrap();
    world.logs().delete_records(partition(0), Offset(50)).unwrap();
    world.restart_after(|disk| log_file(disk).set_len(0).unwrap());
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(50), Offset(50)));
    assert_eq!(world.append(batch(2)).unwrap().base_offset, Offset(50));
    world.kill();
    assert_eq!(spans(&world.read_all(Offset(50))), [(50, 51)]);
}

#[test]
fn r15_the_checkpoint_may_lag_behind_the_epochs_in_the_log() {
    let mut world = World::new(1);
    let mut ends = Vec::new();
    for _ in 0..4 {
        world.append(batch(3)).unwrap();
        world.sync();
        ends.push(world.facts().end);
        world.power_cut();
    }
    for (epoch, end) in ends.iter().enumerate() {
        let found = world.logs().epoch_end_offset(partition(0), epoch as i32).unwrap();
        assert_eq!(found, Some((epoch as i32, *end)));
    }
}

/// Makes every entry of an index file say something else that could be true elsewhere.
fn spoil(disk: &dyn Disk, path: &str, entry: usize, number_at: usize) {
    let mut bytes = disk.read(path).unwrap().unwrap();
    assert!(!bytes.is_empty(), "the segment was sealed, its indexes written but not synced");
    for entry in bytes.chunks_exact_mut(entry) {
        let number = u32::from_be_bytes(entry[number_at..number_at + 4].try_into().unwrap());
        entry[number_at..number_at + 4].copy_from_slice(&(number + 21).to_be_bytes());
    }
    disk.open(path).unwrap().write_all_at(&bytes, 0).unwrap();
}

#[test]
fn a_segment_that_ends_at_the_recovery_point_has_its_indexes_rebuilt() {
    let fitting = (4096 / batch(2).len()) as i64;
    let mut world = written(0);
    for time in 0..fitting {
        world.append(batch_of(Codec::None, &[NOW + time; 2])).unwrap();
    }
    world.sync();
    world.logs().checkpoint().unwrap();
    world.append(batch(2)).unwrap();
    world.restart_after(|disk| {
        spoil(disk, "t-0/00000000000000000000.timeindex", 12, 8);
    });
    for from in 0..fitting * 2 {
        let slice = world.logs().read(partition(0), Offset(from), 1000, Offset::MAX, true).unwrap();
        let whole: usize =
            records::Batches::new(&slice.read().unwrap()).map(|batch| batch.unwrap().size()).sum();
        assert_eq!(whole as u64, slice.len());
    }
    for time in 0..fitting {
        let found = world.logs().offset_for_time(partition(0), NOW + time).unwrap().unwrap();
        assert_eq!(found.offset, Offset(time * 2));
    }
}

#[test]
fn an_offset_index_that_leads_astray_costs_no_data() {
    let mut world = written(100);
    world.stop();
    world.restart_after(|disk| {
        for entry in disk.list("t-0").unwrap() {
            if entry.name.ends_with(".index") && entry.len > 0 {
                spoil(disk, &format!("t-0/{}", entry.name), 8, 4);
            }
        }
    });
    for from in 0..200 {
        let slice = world.logs().read(partition(0), Offset(from), 1000, Offset::MAX, true).unwrap();
        let bytes = slice.read().unwrap();
        let batches: Vec<_> = records::Batches::new(&bytes).map(|batch| batch.unwrap()).collect();
        assert!((batches[0].base_offset()..=batches[0].last_offset()).contains(&Offset(from)));
        assert_eq!(batches.iter().map(|batch| batch.size() as u64).sum::<u64>(), slice.len());
    }
}

/// How much a start after a kill checks of a log of 100 batches, the last five of them behind the recovery point.
fn checked_after_a_kill(damage: impl Fn(&dyn Disk)) -> u64 {
    let config = LogConfig { segment_bytes: 1 << 20, index_interval_bytes: 512, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for number in 0..100 {
        if number == 95 {
            world.sync();
            world.logs().checkpoint().unwrap();
        }
        world.append(batch_of(Codec::None, &[NOW + number, NOW + number])).unwrap();
    }
    world.restart_after(|disk| damage(disk));
    assert_eq!(world.facts().end, Offset(200));
    for from in [0, 1, 77, 189, 190, 199] {
        assert_eq!(world.read_all(Offset(from)).len(), 100 - from as usize / 2);
        let found = world.logs().offset_for_time(partition(0), NOW + from / 2).unwrap().unwrap();
        assert_eq!(found.offset, Offset(from / 2 * 2));
    }
    let bytes = world.logs().recovery.bytes;
    world.append(batch(1)).unwrap();
    world.sync();
    world.clean_restart();
    assert_eq!(world.read_all(Offset(0)).len(), 101);
    bytes
}

#[test]
fn r06_recovery_checks_what_lies_behind_the_recovery_point() {
    let size = batch(2).len() as u64;
    assert_eq!(checked_after_a_kill(|_| {}), 5 * size);
}

#[test]
fn where_indexes_are_not_to_be_trusted_the_whole_segment_is_checked() {
    let size = batch(2).len() as u64;
    let index = "t-0/00000000000000000000.index";
    let time_index = "t-0/00000000000000000000.timeindex";
    assert_eq!(checked_after_a_kill(|disk| disk.remove_file(index).unwrap()), 100 * size);
    assert_eq!(checked_after_a_kill(|disk| disk.remove_file(time_index).unwrap()), 100 * size);
    for path in [index, time_index] {
        for bytes in [vec![0; 24], vec![1; 24], vec![0xff; 24]] {
            let checked =
                checked_after_a_kill(|disk| disk.open(path).unwrap().write_all_at(&bytes, 0).unwrap());
            assert!([5 * size, 100 * size].contains(&checked), "{checked}");
        }
    }
}

#[test]
fn epochs_whose_file_is_gone_are_written_before_a_checkpoint_counts_on_them() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    world.stop();
    world.restart_after(|disk| disk.remove_file("t-0/leader-epoch-checkpoint").unwrap());
    assert_eq!(world.facts().synced, Offset(3));
    world.logs().checkpoint().unwrap();
    world.power_cut();
    let report = inspect(&world.disk(), "t", 0, Depth::Verify).unwrap();
    assert_eq!(report.findings, []);
}
