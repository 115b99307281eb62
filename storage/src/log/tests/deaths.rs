//! A process that dies, or a call that fails, at one certain call; and two ends in a row.

use bytes::Bytes;
use records::ids::{Offset, PartitionId, TopicId};

use crate::disk::Disk;
use crate::testing::{NOW, TOPIC, World, batch, partition, producer_batch};
use crate::{DataDir, LogConfig, StorageError};

/// Settings under which a few batches fill a segment.
fn small() -> LogConfig {
    LogConfig { segment_bytes: 1024, index_interval_bytes: 0, ..LogConfig::default() }
}

/// The offset that an event speaks of, as long as it counts: an event of an epoch is void from the epoch's end on.
fn valid_events(world: &mut World) -> Vec<i64> {
    let (_, replay) = world.logs().open_events(partition(0), 7).unwrap();
    let current = world.facts().leader_epoch;
    let mut valid = Vec::new();
    for (epoch, body) in replay.events {
        let offset: i64 = std::str::from_utf8(&body).unwrap().parse().unwrap();
        let (_, end) = world.logs().epoch_end_offset(partition(0), epoch).unwrap().unwrap();
        if epoch == current || offset < end.0 {
            valid.push(offset);
        }
    }
    valid
}

fn accept(world: &mut World, offsets: std::ops::Range<i64>) {
    world.logs().open_events(partition(0), 7).unwrap();
    let epoch = world.facts().leader_epoch;
    let events: Vec<Bytes> = offsets.map(|offset| Bytes::from(offset.to_string())).collect();
    world.logs().append_events(partition(0), 7, epoch, &events).unwrap();
}

/// Makes the events durable, and nothing that was appended to the log since its last sync.
fn sync_events(world: &World) {
    world.sim.open("t-0/share-7.0.events").unwrap().sync_data().unwrap();
    world.sim.sync_dir("t-0").unwrap();
}

#[test]
fn r17_two_power_cuts_in_a_row() {
    // What is produced between the cuts, and how much of it is synced.
    for (produced, synced) in [(0, 0), (5, 5), (10, 5)] {
        for seed in 0..20 {
            let mut world = World::new(seed);
            world.append(batch(80)).unwrap();
            world.sync();
            for _ in 0..20 {
                world.append(batch(1)).unwrap();
            }
            accept(&mut world, 0..100);
            sync_events(&world);
            world.power_cut();
            let first_end = world.facts().end.0;
            assert_eq!(valid_events(&mut world), (0..first_end).collect::<Vec<_>>());
            for number in 0..produced {
                world.append(batch(1)).unwrap();
                if number + 1 == synced {
                    world.sync();
                }
            }
            accept(&mut world, first_end..first_end + produced);
            if produced > 0 {
                sync_events(&world);
            }
            world.power_cut();
            let second_end = world.facts().end.0;
            assert!((first_end + synced..=first_end + produced).contains(&second_end));
            assert_eq!(world.facts().leader_epoch, 2, "no epoch is used twice");
            for _ in 0..20 {
                world.append(batch(1)).unwrap();
            }
            assert_eq!(valid_events(&mut world), (0..second_end).collect::<Vec<_>>(), "seed {seed}");
            world.sync();
            for cut in 0..8 {
                world.power_cut();
                assert_eq!(world.facts().leader_epoch, 3 + cut);
                assert_eq!(valid_events(&mut world), (0..second_end).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn r15_where_a_log_was_cut_nothing_counts_as_synced() {
    for seed in 0..50 {
        let mut world = World::with(seed, small());
        for _ in 0..20 {
            world.append(batch(4)).unwrap();
        }
        world.sync();
        world.logs().checkpoint().unwrap();
        world.restart_after(|disk| {
            for entry in disk.list("t-0").unwrap() {
                let is_later =
                    entry.name.ends_with(".log") && !entry.name.starts_with("00000000000000000000");
                if is_later {
                    disk.remove_file(&format!("t-0/{}", entry.name)).unwrap();
                }
            }
            disk.sync_all().unwrap();
        });
        let end = world.facts().end;
        while world.facts().end < Offset(80) {
            world.append(batch(3)).unwrap();
        }
        world.power_cut();
        assert!(world.facts().end >= end);
        let batches = world.read_all(Offset(0));
        let last = records::BatchView::parse(batches.last().unwrap()).unwrap().next_offset();
        assert_eq!(last, world.facts().end, "seed {seed}");
    }
}

#[test]
fn what_an_earlier_sync_is_to_reach_is_not_durable_before_it_has() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    let first = world.logs().sync_job(partition(0)).unwrap().unwrap();
    world.append(batch(3)).unwrap();
    let second = world.logs().sync_job(partition(0)).unwrap().unwrap();
    assert_eq!(world.logs().sync_done(second.run()).unwrap(), Offset(0));
    assert_eq!(world.logs().sync_done(first.run()).unwrap(), Offset(6));
}

#[test]
fn r08_after_a_failed_sync_a_good_one_says_nothing() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    let job = world.logs().sync_job(partition(0)).unwrap().unwrap();
    // The write fails, and so does the sync of what cuts it off: it takes what the job was to make durable with it.
    world.sim.fail_writes(1);
    world.sim.fail_syncs(1);
    assert!(world.append(batch(3)).is_err());
    let result = job.run();
    assert!(!result.is_err());
    assert!(matches!(world.logs().sync_done(result), Err(StorageError::Poisoned)));
}

#[test]
fn r03_a_topic_made_again_does_not_start_where_the_one_before_did() {
    let mut world = World::new(1);
    world.append(batch(10)).unwrap();
    world.sync();
    world.logs().delete_records(partition(0), Offset(7)).unwrap();
    world.kill();
    // The topic was deleted and made again, but its directory is still that of the one before.
    let again = PartitionId { topic: TopicId([3; 16]), index: 0 };
    world.stop();
    let disk = world.disk();
    let logs = || {
        crate::Logs::open(
            DataDir::open(world.disk()).unwrap(),
            world.options.clone(),
            crate::Boot { boot: 9, leader_epoch: 9 },
        )
    };
    let mut logs = logs().unwrap();
    let facts = logs.open_partition(again, TOPIC, LogConfig::default()).unwrap();
    assert_eq!((facts.log_start, facts.end), (Offset(0), Offset(0)));
    assert!(disk.list("").unwrap().iter().any(|entry| entry.name.ends_with("-stray")));
}

#[test]
fn a_segment_that_cannot_be_taken_out_of_use_does_not_cut_the_log() {
    for calls in 0..40 {
        let mut world = World::with(1, small());
        for _ in 0..40 {
            world.append(batch(4)).unwrap();
        }
        world.sync();
        world.sim.fail_after(calls);
        let deleted = world.logs().delete_records(partition(0), Offset(60));
        world.sim.disarm();
        let again = world.logs().delete_records(partition(0), Offset(100));
        assert!(again.is_ok(), "call {calls}: {deleted:?}, {again:?}");
        world.kill();
        assert_eq!((world.facts().log_start, world.facts().end), (Offset(100), Offset(160)), "call {calls}");
    }
}

#[test]
fn r05_the_mark_of_an_orderly_stop_does_not_come_back() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.append(batch(3)).unwrap();
        world.stop();
        // The next process removes the mark, and dies before that is durable; the one after it finds none.
        world.sim.die_after(1);
        let died = DataDir::open(world.disk()).unwrap().clear_clean();
        assert!(died.is_err() || world.sim.is_dead());
        world.sim.restart();
        let second = DataDir::open(world.disk()).unwrap();
        second.clear_clean().unwrap();
        drop(second);
        world.sim.crash();
        assert!(!DataDir::open(world.disk()).unwrap().was_clean(), "seed {seed}");
    }
}

#[test]
fn p24_five_batches_are_known_wherever_a_roll_is_cut_short() {
    for calls in 0..16 {
        let mut world = World::with(3, small());
        let mut sequence = 0;
        world.sim.die_after(calls + 30);
        while world.append(producer_batch(5, 0, sequence, 2)).is_ok() {
            sequence += 2;
        }
        world.kill();
        let stored = (world.facts().end.0 / 2) as i32;
        for number in (stored - 5).max(0)..stored {
            let again = world.append(producer_batch(5, 0, number * 2, 2)).unwrap();
            assert!(again.duplicate, "call {calls}, batch {number} of {stored}");
        }
    }
}

#[test]
fn delete_records_is_durable_where_retention_had_no_room_to_say_so() {
    let mut world = World::with(1, LogConfig { retention_bytes: 500, ..small() });
    for _ in 0..20 {
        world.append(batch(4)).unwrap();
    }
    world.sync();
    world.sim.set_capacity(world.sim.used());
    assert_eq!(world.logs().enforce_retention(NOW + 10_000).unwrap().len(), 1);
    let start = world.facts().log_start;
    world.sim.set_capacity(u64::MAX);
    assert_eq!(world.logs().delete_records(partition(0), start).unwrap(), start);
    world.power_cut();
    assert_eq!(world.facts().log_start, start);
}

#[test]
fn an_index_that_was_being_made_again_is_not_taken_for_whole() {
    for calls in 0..30 {
        let mut world = World::with(calls, small());
        for time in 0..40 {
            world.append(crate::testing::batch_of(records::Codec::None, &[NOW + time; 2])).unwrap();
        }
        world.stop();
        world.sim.remove_file("t-0/00000000000000000000.timeindex").unwrap();
        world.sim.sync_all().unwrap();
        world.sim.die_after(calls);
        let started = DataDir::open(world.disk()).and_then(|data_dir| {
            let boot = crate::Boot { boot: 2, leader_epoch: 1 };
            let mut logs = crate::Logs::open(data_dir, world.options.clone(), boot)?;
            logs.open_partition(partition(0), TOPIC, small())
        });
        assert!(started.is_ok() || world.sim.is_dead());
        world.kill();
        for time in 0..40 {
            let found = world.logs().offset_for_time(partition(0), NOW + time).unwrap().unwrap();
            assert_eq!(found.offset, Offset(time * 2), "call {calls}");
        }
    }
}

#[test]
fn r08_a_sync_that_failed_unheard_is_not_forgotten() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.append(batch(3)).unwrap();
        world.sync();
        world.append(batch(3)).unwrap();
        let job = world.logs().sync_job(partition(0)).unwrap().unwrap();
        world.sim.fail_syncs(1);
        // The process is killed before anybody takes the result.
        assert!(job.run().is_err());
        world.kill();
        world.append(batch(3)).unwrap();
        assert_eq!(world.sync(), Offset(9));
        world.power_cut();
        assert_eq!(world.facts().end, Offset(9), "seed {seed}");
    }
}

#[test]
fn r08_a_start_that_a_sync_failed_is_not_forgotten() {
    for seed in 0..8 {
        for calls in 0..16 {
            let mut world = World::new(seed);
            world.append(batch(3)).unwrap();
            world.sync();
            world.append(batch(3)).unwrap();
            let len = world.facts().bytes;
            world.stop_hard();
            let file = world.disk().open("t-0/00000000000000000000.log").unwrap();
            file.write_all_at(&[7; 5], len).unwrap();
            world.sim.fail_after(calls);
            let _started = DataDir::open(world.disk()).and_then(|data_dir| {
                let boot = crate::Boot { boot: 2, leader_epoch: 1 };
                let mut logs = crate::Logs::open(data_dir, world.options.clone(), boot)?;
                logs.open_partition(partition(0), TOPIC, LogConfig::default())
            });
            world.sim.disarm();
            world.boot_at(2);
            world.kill();
            world.append(batch(3)).unwrap();
            assert_eq!(world.sync(), Offset(9));
            world.power_cut();
            assert_eq!(world.facts().end, Offset(9), "seed {seed}, call {calls}");
        }
    }
}

#[test]
fn what_a_start_was_cutting_off_when_it_died_does_not_come_back() {
    for seed in 0..8 {
        for calls in 0..16 {
            let mut world = World::new(seed);
            world.append(batch(1)).unwrap();
            let position = world.facts().bytes;
            world.append(batch(2)).unwrap();
            world.append(batch(3)).unwrap();
            world.sync();
            world.stop_hard();
            let file = world.disk().open("t-0/00000000000000000000.log").unwrap();
            file.write_all_at(&[0xff; 4], position + 17).unwrap();
            world.sim.sync_all().unwrap();
            world.sim.die_after(calls);
            let started = DataDir::open(world.disk()).and_then(|data_dir| {
                let boot = crate::Boot { boot: 2, leader_epoch: 1 };
                let mut logs = crate::Logs::open(data_dir, world.options.clone(), boot)?;
                logs.open_partition(partition(0), TOPIC, LogConfig::default())
            });
            assert!(started.is_ok() || world.sim.is_dead());
            world.sim.restart();
            world.boot_at(2);
            world.kill();
            assert_eq!(world.facts().end, Offset(1));
            // Just as long as the damaged one: what stood behind that would join on.
            world.append(batch(2)).unwrap();
            world.power_cut();
            let end = world.facts().end.0;
            assert!(end == 1 || end == 3, "seed {seed}, call {calls}: {end}");
        }
    }
}

#[test]
fn an_index_entry_behind_the_segment_hides_nothing() {
    let mut world = World::with(1, small());
    for _ in 0..40 {
        world.append(batch(2)).unwrap();
    }
    world.stop();
    world.restart_after(|disk| {
        let path = "t-0/00000000000000000000.index";
        let mut bytes = disk.read(path).unwrap().unwrap();
        bytes.chunks_exact_mut(8).for_each(|entry| entry[4] = 1);
        disk.open(path).unwrap().write_all_at(&bytes, 0).unwrap();
    });
    for from in 0..80 {
        let slice = world.logs().read(partition(0), Offset(from), 1, Offset::MAX, true).unwrap();
        assert_eq!(slice.base(), Offset(from / 2 * 2));
    }
}
