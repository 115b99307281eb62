//! DeleteRecords and retention.

use records::{Codec, TimestampType};

use crate::testing::{NOW, World, batch, batch_of, partition, spans};
use crate::{DeleteError, LogConfig};
use records::ids::Offset;

fn log_files(world: &World) -> usize {
    world.disk().list("t-0").unwrap().iter().filter(|entry| entry.name.ends_with(".log")).count()
}

#[test]
fn f22_delete_records() {
    let mut world = World::new(1);
    world.append(batch(5)).unwrap();
    for (to, expected) in [(2, 2), (2, 2), (1, 2), (0, 2), (5, 5)] {
        assert_eq!(world.logs().delete_records(partition(0), Offset(to)).unwrap(), Offset(expected));
    }
    for to in [-2, 6] {
        let refused = world.logs().delete_records(partition(0), Offset(to));
        assert!(matches!(refused, Err(DeleteError::OutOfRange { .. })), "{to}");
    }
    assert_eq!(world.facts().log_start, Offset(5));
    assert_eq!(world.logs().leader_epoch_at(partition(0), Offset(5)).unwrap(), 0);
}

#[test]
fn deleted_segments_leave_the_disk_and_open_readers_alone() {
    let mut world = World::with(1, LogConfig { segment_bytes: 1100, ..LogConfig::default() });
    for _ in 0..50 {
        world.append(batch(2)).unwrap();
    }
    let before = log_files(&world);
    let slice = world.logs().read(partition(0), Offset(0), 1 << 20, Offset::MAX, true).unwrap();
    world.logs().delete_records(partition(0), Offset(81)).unwrap();
    assert!(log_files(&world) < before);
    assert_eq!(slice.read().unwrap().len() as u64, slice.len());
    let snapshots = world.disk().list("t-0").unwrap();
    let snapshots = snapshots.iter().filter(|entry| entry.name.ends_with(".snapshot")).count();
    assert!(snapshots <= log_files(&world), "snapshots go with their segments");
    assert_eq!(spans(&world.read_all(Offset(81)))[0], (80, 81));
    world.power_cut();
    assert_eq!(world.facts().log_start, Offset(81));
}

#[test]
fn r11_retention_by_time_takes_whole_segments() {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, retention_ms: 5000, ..LogConfig::default() });
    for age in (0..60).rev() {
        world.append(batch_of(Codec::None, &[NOW - age * 1000; 2])).unwrap();
    }
    world.sync();
    let end = world.facts().end;
    assert_eq!(world.logs().enforce_retention(NOW).unwrap(), [partition(0)]);
    let start = world.facts().log_start;
    assert!(start > Offset(0) && start <= end - 10, "{start}");
    let left = world.read_all(start);
    assert!(left.len() >= 5, "nothing that is young enough goes");
    assert!(world.logs().enforce_retention(NOW).unwrap().is_empty());
    assert_eq!(world.logs().enforce_retention(NOW + 100_000).unwrap(), [partition(0)]);
    assert_eq!((world.facts().log_start, world.facts().end), (end, end));
    assert_eq!(log_files(&world), 1);
    world.power_cut();
    assert_eq!((world.facts().log_start, world.facts().end), (end, end));
    assert_eq!(world.append(batch(1)).unwrap().base_offset, end);
}

#[test]
fn r11_where_the_broker_stamps_records_its_time_counts() {
    let config = LogConfig {
        segment_bytes: 1100,
        retention_ms: 5000,
        timestamp_type: TimestampType::LogAppend,
        ..LogConfig::default()
    };
    let mut world = World::with(1, config);
    let mut restarts = [World::clean_restart, World::kill].into_iter();
    for time in [5, -1, NOW + 3_600_000] {
        for _ in 0..20 {
            world.append(batch_of(Codec::None, &[time; 2])).unwrap();
        }
        assert!(
            world.logs().enforce_retention(NOW + 5000).unwrap().is_empty(),
            "{time}: as old as it may be"
        );
        let end = world.facts().end;
        if let Some(restart) = restarts.next() {
            restart(&mut world);
            assert!(world.logs().enforce_retention(NOW + 5000).unwrap().is_empty());
        } else {
            assert_eq!(world.logs().enforce_retention(NOW + 5001).unwrap(), [partition(0)]);
            assert_eq!(world.facts().log_start, end);
        }
    }
}

#[test]
fn r11_retention_by_size() {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, retention_bytes: 3000, ..LogConfig::default() });
    for _ in 0..60 {
        world.append(batch(2)).unwrap();
    }
    assert_eq!(world.logs().enforce_retention(NOW).unwrap(), [partition(0)]);
    let bytes = world.facts().bytes;
    assert!((3000..4200).contains(&bytes), "{bytes}");
    assert_eq!(world.facts().end, Offset(120));
}

#[test]
fn r10_records_without_a_time_count_from_when_they_were_first_seen() {
    let mut world = World::with(1, LogConfig { retention_ms: 5000, ..LogConfig::default() });
    world.append(batch_of(Codec::None, &[-1])).unwrap();
    assert!(world.logs().enforce_retention(NOW).unwrap().is_empty());
    assert!(world.logs().enforce_retention(NOW + 5000).unwrap().is_empty());
    assert_eq!(world.logs().enforce_retention(NOW + 5001).unwrap(), [partition(0)]);
}

#[test]
fn nothing_is_deleted_without_the_policy_or_the_limits() {
    let keep = LogConfig { delete: false, retention_ms: 1, retention_bytes: 1, ..LogConfig::default() };
    let unlimited = LogConfig { retention_ms: -1, retention_bytes: -1, ..LogConfig::default() };
    for config in [keep, unlimited] {
        let mut world = World::with(1, LogConfig { segment_bytes: 1100, ..config });
        for _ in 0..30 {
            world.append(batch_of(Codec::None, &[0])).unwrap();
        }
        assert!(world.logs().enforce_retention(NOW).unwrap().is_empty());
        assert_eq!(world.facts().log_start, Offset(0));
    }
}

#[test]
fn a_refused_deletion_changes_nothing() {
    let mut world = World::new(1);
    world.append(batch(20)).unwrap();
    world.sim.fail_writes(1);
    assert!(world.logs().delete_records(partition(0), Offset(13)).is_err());
    assert_eq!(world.facts().log_start, Offset(0));
    assert_eq!(world.logs().delete_records(partition(0), Offset(7)).unwrap(), Offset(7));
    world.kill();
    assert_eq!(world.facts().log_start, Offset(7));
}

#[test]
fn retention_makes_space_on_a_full_disk() {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, retention_bytes: 3000, ..LogConfig::default() });
    for _ in 0..60 {
        world.append(batch(2)).unwrap();
    }
    world.sync();
    world.sim.set_capacity(world.sim.used());
    assert!(world.append(batch(200)).is_err());
    assert_eq!(world.logs().enforce_retention(NOW).unwrap(), [partition(0)]);
    let start = world.facts().log_start;
    assert!(start > Offset(0));
    world.append(batch(2)).unwrap();
    world.sync();
    world.power_cut();
    assert_eq!((world.facts().log_start, world.facts().end), (start, Offset(122)));
}

#[test]
fn k64_what_goes_next_is_known_before_it_goes() {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, retention_ms: 5000, ..LogConfig::default() });
    assert_eq!(world.logs().next_retention(partition(0), NOW).unwrap(), None);
    for second in 0..60 {
        world.append(batch_of(Codec::None, &[NOW + second * 1000; 2])).unwrap();
    }
    let mut gone = 0;
    while let Some(due) = world.logs().next_retention(partition(0), NOW).unwrap() {
        assert_eq!(due.length_ms, 5000);
        assert!(world.logs().enforce_retention(due.at_ms - 1).unwrap().is_empty());
        assert_eq!(world.logs().enforce_retention(due.at_ms).unwrap(), [partition(0)]);
        assert_eq!(world.facts().log_start, due.until);
        gone += 1;
    }
    assert!(gone > 2, "segment after segment");
    assert_eq!(world.facts().log_start, world.facts().end);
}

#[test]
fn k64_a_log_that_is_too_large_is_due_at_once() {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, retention_bytes: 3000, ..LogConfig::default() });
    for _ in 0..60 {
        world.append(batch(2)).unwrap();
    }
    let due = world.logs().next_retention(partition(0), NOW).unwrap().unwrap();
    assert_eq!((due.at_ms, due.length_ms), (NOW, 0));
    assert_eq!(world.logs().enforce_retention(NOW).unwrap(), [partition(0)]);
    assert_eq!(world.facts().log_start, due.until);
    let next = world.logs().next_retention(partition(0), NOW).unwrap();
    assert!(next.is_none_or(|next| next.length_ms > 0), "{next:?}");
}

#[test]
fn r11_a_time_index_that_lost_its_end_makes_nothing_old() {
    for lost in [12, 0] {
        let config = LogConfig { segment_bytes: 1100, index_interval_bytes: 100, ..LogConfig::default() };
        let mut world = World::with(1, config.clone());
        for age_ms in [7_200_000, 7_200_000, 2_000, 1_500, 1_000, 900, 800, 700, 600, 500, 400, 300, 200, 100]
        {
            world.append(batch_of(Codec::None, &[NOW - age_ms; 2])).unwrap();
        }
        world.sync();
        assert!(log_files(&world) > 1, "the first segment is sealed");
        world.stop();
        world.restart_after(|disk| {
            let file = disk.open("t-0/00000000000000000000.timeindex").unwrap();
            assert!(file.len().unwrap() > 24);
            file.set_len(lost).unwrap();
        });
        world.logs().configure(partition(0), LogConfig { retention_ms: 3_600_000, ..config }).unwrap();
        assert_eq!(world.logs().enforce_retention(NOW).unwrap(), [], "{lost} bytes are left");
        assert_eq!(world.facts().log_start, Offset(0));
        assert_eq!(
            world.logs().enforce_retention(NOW + 3_700_000).unwrap(),
            [partition(0)],
            "in its time it goes"
        );
    }
}
