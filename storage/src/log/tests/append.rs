//! Appending and reading.

use bytes::Bytes;
use records::{BatchView, Codec, TimestampType};

use crate::testing::{NOW, World, batch, batch_of, partition, producer_batch, spans};
use crate::{AppendError, LogConfig, Origin, ReadError, StorageError};
use records::ids::Offset;

#[test]
fn p01_offset_and_epoch_are_the_brokers_and_the_rest_stays() {
    let mut world = World::new(1);
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let sent = batch_of(codec, &[NOW, NOW + 5]);
        let appended = world.append(sent.clone()).unwrap();
        let stored = world.read_all(appended.base_offset);
        let mut expected = sent.to_vec();
        expected[..8].copy_from_slice(&appended.base_offset.0.to_be_bytes());
        expected[12..16].copy_from_slice(&0_i32.to_be_bytes());
        assert_eq!(stored, [expected], "{codec:?}");
    }
    assert_eq!(world.facts().end, Offset(10));
}

#[test]
fn p06_append_time() {
    let config = LogConfig { timestamp_type: TimestampType::LogAppend, ..LogConfig::default() };
    let mut world = World::with(1, config);
    let appended = world.append(batch_of(Codec::None, &[5])).unwrap();
    assert_eq!(appended.append_time, Some(NOW));
    let stored = world.read_all(Offset(0));
    let view = BatchView::parse(&stored[0]).unwrap();
    assert!(view.attributes().is_log_append_time());
    assert_eq!((view.base_timestamp(), view.max_timestamp()), (5, NOW));
}

#[test]
fn f02_reads_begin_with_the_batch_that_holds_the_offset() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.append(batch(3)).unwrap();
    }
    assert_eq!(spans(&world.read_all(Offset(4))), [(3, 5), (6, 8)]);
    assert_eq!(spans(&world.read_all(Offset(8))), [(6, 8)]);
    assert!(world.read_all(Offset(9)).is_empty());
}

#[test]
fn f04_outside_of_the_log() {
    let mut world = World::new(1);
    world.append(batch(9)).unwrap();
    world.logs().delete_records(partition(0), Offset(2)).unwrap();
    for from in [-1, 1, 10] {
        let read = world.logs().read(partition(0), Offset(from), 100, Offset::MAX, true);
        assert!(matches!(read, Err(ReadError::OutOfRange { .. })), "{from}");
    }
    assert!(matches!(
        world.logs().read(partition(7), Offset(0), 1, Offset::MAX, true),
        Err(ReadError::UnknownPartition)
    ));
}

#[test]
fn f05_limits_fall_on_batch_ends() {
    let mut world = World::new(1);
    let size = batch(3).len() as u64;
    for _ in 0..5 {
        world.append(batch(3)).unwrap();
    }
    let mut len = |bytes_max, upper, one| {
        world.logs().read(partition(0), Offset(3), bytes_max, Offset(upper), one).unwrap().len()
    };
    assert_eq!(len(1, 15, true), size);
    assert_eq!(len(1, 15, false), 0);
    assert_eq!(len(size * 2 + 1, 15, true), size * 2);
    assert_eq!(len(size * 9, 15, true), size * 4);
    assert_eq!(len(size * 9, 9, true), size * 2);
    assert_eq!(len(size * 9, 3, true), 0);
}

#[test]
fn segments_roll_by_size_and_reads_go_over_the_seam() {
    let config = LogConfig { segment_bytes: 2048, index_interval_bytes: 200, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for _ in 0..100 {
        world.append(batch(2)).unwrap();
    }
    let segments = world.disk().list("t-0").unwrap();
    let logs: Vec<_> = segments.iter().filter(|entry| entry.name.ends_with(".log")).collect();
    assert!(logs.len() > 3 && logs.iter().all(|entry| entry.len <= 2048));
    for from in 0..200 {
        let first = from / 2;
        let expected: Vec<_> = (first..100).map(|batch| (batch * 2, batch * 2 + 1)).collect();
        assert_eq!(spans(&world.read_all(Offset(from))), expected);
    }
}

#[test]
fn segments_roll_when_an_index_is_full() {
    let config = LogConfig { segment_index_bytes: 80, index_interval_bytes: 100, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for _ in 0..100 {
        world.append(batch(2)).unwrap();
    }
    for entry in world.disk().list("t-0").unwrap() {
        assert!(!entry.name.ends_with("index") || entry.len <= 80, "{entry:?}");
    }
    assert_eq!(world.read_all(Offset(0)).len(), 100);
}

#[test]
fn segments_roll_by_record_time() {
    let config = LogConfig { segment_ms: 1000, ..LogConfig::default() };
    let mut world = World::with(1, config);
    for time in [0, 500, 1000, 1001, 1500] {
        world.append(batch_of(Codec::None, &[NOW + time])).unwrap();
    }
    let names: Vec<_> = world.disk().list("t-0").unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(names.contains(&"00000000000000000003.log".to_owned()), "{names:?}");
}

#[test]
fn p14_duplicates_are_answered_as_the_first_time() {
    let mut world = World::new(1);
    assert!(!world.append(producer_batch(5, 0, 0, 3)).unwrap().duplicate);
    let again = world.append(producer_batch(5, 0, 0, 3)).unwrap();
    assert_eq!(
        (again.duplicate, again.base_offset, again.last_offset, again.bytes),
        (true, Offset(0), Offset(2), 0)
    );
    assert!(matches!(world.append(producer_batch(5, 0, 9, 1)), Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(world.facts().end, Offset(3));
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let config = LogConfig { segment_bytes: 1024, ..LogConfig::default() };
    let mut world = World::with(1, config);
    assert!(matches!(world.append(batch(200)), Err(AppendError::TooLarge { .. })));
    let mut two = batch(1);
    two.extend_from_slice(&batch(1));
    assert!(matches!(world.append(two), Err(AppendError::Malformed(_))));
    let unknown = world.logs().append(partition(3), batch(1), Origin::Client, NOW);
    assert!(matches!(unknown, Err(AppendError::UnknownPartition)));
    assert_eq!(world.facts().end, Offset(0));
    assert!(world.disk().list("t-0").is_err(), "a log without data has no directory");
}

#[test]
fn r08_a_full_disk_is_survived() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    let used: u64 = world.disk().list("t-0").unwrap().iter().map(|entry| entry.len).sum();
    world.sim.set_capacity(used + 150);
    assert!(matches!(world.append(batch(20)), Err(AppendError::Full)));
    assert_eq!(world.facts().end, Offset(3));
    world.sim.set_capacity(u64::MAX);
    assert_eq!(world.append(batch(20)).unwrap().base_offset, Offset(3));
    world.kill();
    assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2), (3, 22)]);
}

#[test]
fn r08_a_failed_write_leaves_no_trace() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    for _ in 0..10 {
        world.sim.fail_writes(1);
        assert!(matches!(world.append(batch(20)), Err(AppendError::Io(_))));
    }
    world.append(batch(1)).unwrap();
    world.kill();
    assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2), (3, 3)]);
}

#[test]
fn r08_reads_that_fail_fail_alone() {
    let mut world = World::with(1, LogConfig { segment_bytes: 2048, ..LogConfig::default() });
    for _ in 0..100 {
        world.append(batch(2)).unwrap();
    }
    let names: Vec<_> = world.disk().list("t-0").unwrap().into_iter().map(|entry| entry.name).collect();
    let logs: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
    let base = |name: &str| Offset(name.strip_suffix(".log").unwrap().parse().unwrap());
    let (bad, behind) = (base(logs[1]), base(logs[2]));
    world.clean_restart();
    world.sim.fail_reads(Some(logs[1]));
    for from in bad.get()..behind.get() {
        // Where the batch begins is found in the file, or its bytes are not to be had.
        let slice = world.logs().read(partition(0), Offset(from), 1 << 20, Offset::MAX, true);
        assert!(matches!(slice, Err(ReadError::Io(_))) || slice.unwrap().read().is_err(), "at {from}");
    }
    assert!(world.logs().read(partition(0), bad - 1, 1 << 20, Offset::MAX, true).unwrap().read().is_ok());
    assert_eq!(spans(&world.read_all(behind))[0].0, behind.get());
    assert_eq!(world.append(batch(2)).unwrap().base_offset, Offset(200), "the log goes on");
    world.sync();
    assert_eq!(world.facts().synced, Offset(202));
    world.sim.fail_reads(None);
    assert_eq!(world.read_all(Offset(0)).len(), 101, "and is whole again");
}

#[test]
fn r08_a_failed_sync_closes_the_log_for_writing_until_the_restart() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    world.sync();
    world.append(batch(2)).unwrap();
    world.sim.fail_syncs(1);
    let result = world.logs().sync_job(partition(0)).unwrap().unwrap().run();
    assert!(result.is_err());
    assert!(matches!(world.logs().sync_done(result), Err(StorageError::Poisoned)));
    assert!(matches!(world.append(batch(1)), Err(AppendError::Poisoned)));
    assert!(matches!(world.logs().sync_job(partition(0)), Err(StorageError::Poisoned)));
    assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2), (3, 4)]);
    world.power_cut();
    assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2)]);
    world.append(batch(1)).unwrap();
}

#[test]
fn r08_a_new_log_that_found_no_room_takes_records_once_there_is_some() {
    for room in (0..400).step_by(20) {
        let mut world = World::new(1);
        world.open(1);
        world.append(batch(1)).unwrap();
        world.sim.set_capacity(world.sim.used() + room);
        let first = world.logs().append(partition(1), batch(3), Origin::Client, NOW);
        world.sim.set_capacity(u64::MAX);
        let end = first.map_or(0, |appended| appended.last_offset.get() + 1);
        let appended = world.logs().append(partition(1), batch(2), Origin::Client, NOW).unwrap();
        assert_eq!(appended.base_offset, Offset(end), "room for {room} bytes");
    }
}

#[test]
fn r08_what_a_failed_sync_left_in_memory_is_written_again_after_a_restart() {
    for synced_events in [0, 1] {
        let mut world = World::new(1);
        world.logs().open_events(partition(0), 7).unwrap();
        world.append(batch(3)).unwrap();
        for event in [b"a", b"b"].iter().take(synced_events) {
            world.logs().append_events(partition(0), 7, 0, &[Bytes::copy_from_slice(&event[..])]).unwrap();
        }
        world.sync();
        world.append(batch(2)).unwrap();
        world.logs().append_events(partition(0), 7, 0, &[Bytes::from_static(b"c")]).unwrap();
        world.sim.fail_syncs(2);
        let result = world.logs().sync_job(partition(0)).unwrap().unwrap().run();
        assert!(result.is_err());
        assert!(world.logs().sync_done(result).is_err());
        world.sim.fail_syncs(0);
        world.kill();
        world.logs().open_events(partition(0), 7).unwrap();
        assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2), (3, 4)], "it is in memory");
        world.append(batch(1)).unwrap();
        world.logs().append_events(partition(0), 7, 1, &[Bytes::from_static(b"d")]).unwrap();
        world.sync();
        world.power_cut();
        assert_eq!(spans(&world.read_all(Offset(0))), [(0, 2), (3, 4), (5, 5)]);
        let (_, replay) = world.logs().open_events(partition(0), 7).unwrap();
        assert_eq!(replay.events.len(), synced_events + 2);
    }
}

#[test]
fn one_sync_serves_all_that_was_written_before_it() {
    let mut world = World::new(1);
    world.append(batch(3)).unwrap();
    world.append(batch(3)).unwrap();
    let job = world.logs().sync_job(partition(0)).unwrap().unwrap();
    assert_eq!(job.end(), Offset(6));
    world.append(batch(3)).unwrap();
    let result = job.run();
    assert_eq!(world.logs().sync_done(result).unwrap(), Offset(6));
    assert_eq!(world.facts().synced, Offset(6));
    assert_eq!(world.sync(), Offset(9));
    assert!(world.logs().sync_job(partition(0)).unwrap().is_none());
}

#[test]
fn f21_leader_epochs_follow_the_lives_of_the_broker() {
    let mut world = World::new(1);
    world.append(batch(5)).unwrap();
    let end_of = |world: &mut World, epoch| world.logs().epoch_end_offset(partition(0), epoch).unwrap();
    assert_eq!(end_of(&mut world, 0), Some((0, Offset(5))));
    assert_eq!(end_of(&mut world, 5), None);
    world.clean_restart();
    world.append(batch(5)).unwrap();
    world.kill();
    world.kill();
    assert_eq!(end_of(&mut world, 1), Some((0, Offset(10))));
    assert_eq!(end_of(&mut world, 2), Some((2, Offset(10))));
    world.append(batch(1)).unwrap();
    assert_eq!(end_of(&mut world, 1), Some((0, Offset(10))));
    assert_eq!(end_of(&mut world, 2), Some((2, Offset(11))));
    assert_eq!(world.logs().leader_epoch_at(partition(0), Offset(3)).unwrap(), 0);
    assert_eq!(world.logs().leader_epoch_at(partition(0), Offset(10)).unwrap(), 2);
}

#[test]
fn r03_a_topic_made_again_starts_empty() {
    let mut world = World::new(1);
    world.append(producer_batch(1, 0, 0, 3)).unwrap();
    world.logs().delete_records(partition(0), Offset(2)).unwrap();
    let slice = world.logs().read(partition(0), Offset(2), 1000, Offset::MAX, true).unwrap();
    world.logs().delete_partition(partition(0)).unwrap();
    assert_eq!(slice.read().unwrap().len() as u64, slice.len(), "an open reader goes on");
    let directories = world.disk().list("").unwrap().into_iter().filter(|entry| entry.is_dir);
    assert!(directories.into_iter().all(|entry| entry.name.ends_with("-delete")));
    assert_eq!(world.open(0).log_start, Offset(0));
    assert_eq!(world.append(producer_batch(1, 0, 0, 3)).unwrap().base_offset, Offset(0));
}
