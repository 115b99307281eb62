//! What a start knows of segments that somebody took away.

use records::Codec;
use records::ids::Offset;

use crate::LogConfig;
use crate::disk::Disk;
use crate::testing::{NOW, World, batch_of, marker, partition, transactional};

fn world() -> World {
    let mut world =
        World::with(1, LogConfig { segment_bytes: 1100, index_interval_bytes: 100, ..LogConfig::default() });
    for number in 0..40 {
        world.append(batch_of(Codec::None, &[NOW + number; 2])).unwrap();
    }
    world.sync();
    world
}

fn names(disk: &dyn Disk, suffix: &str) -> Vec<String> {
    let names = disk.list("t-0").unwrap().into_iter().map(|entry| entry.name);
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(suffix)).map(|name| format!("t-0/{name}")).collect();
    names.sort();
    names
}

fn gaps(world: &mut World) -> usize {
    world.logs().overview(0).recovery.gaps
}

#[test]
fn a_middle_segment_that_is_gone_is_told_of_at_each_start_until_the_log_starts_behind_it() {
    for is_clean in [true, false] {
        let mut world = world();
        world.clean_restart();
        assert_eq!(gaps(&mut world), 0);
        // The log may grow, and the segments be told anew, without that it is forgotten.
        if is_clean {
            world.stop();
        } else {
            world.stop_hard();
        }
        let logs = names(&*world.disk(), ".log");
        assert!(logs.len() > 3);
        world.restart_after(|disk| disk.remove_file(&logs[1]).unwrap());
        assert_eq!(gaps(&mut world), 1, "clean: {is_clean}");
        world.append(batch_of(Codec::None, &[NOW])).unwrap();
        for _ in 0..2 {
            world.clean_restart();
            assert_eq!(gaps(&mut world), 1, "clean: {is_clean}");
        }
        let end = world.facts().end;
        world.logs().delete_records(partition(0), end).unwrap();
        world.clean_restart();
        assert_eq!(gaps(&mut world), 0);
    }
}

#[test]
fn a_segment_between_compacted_ones_is_missed_too() {
    let mut world = world();
    world.logs().log_mut(partition(0)).unwrap().allow_holes_below(Offset(70));
    world.logs().holes.insert(("t".into(), 0), Offset(70));
    crate::checkpoints::write(&*world.disk(), crate::checkpoints::HOLES, &world.logs().holes.clone())
        .unwrap();
    world.clean_restart();
    assert_eq!(gaps(&mut world), 0);
    world.stop();
    let logs = names(&*world.disk(), ".log");
    world.restart_after(|disk| disk.remove_file(&logs[1]).unwrap());
    assert_eq!(gaps(&mut world), 1);
}

#[test]
fn indexes_that_lost_whole_entries_are_made_anew() {
    let mut world = world();
    world.stop();
    for suffix in [".index", ".timeindex"] {
        for path in names(&*world.disk(), suffix) {
            let whole = world.disk().read(&path).unwrap().unwrap();
            let len = whole.len() as u64;
            let entry = if suffix == ".index" { 8 } else { 12 };
            if len < entry * 2 {
                continue;
            }
            world.restart_after(|disk| disk.open(&path).unwrap().set_len(len - entry).unwrap());
            world.stop();
            assert_eq!(world.disk().read(&path).unwrap().unwrap(), whole, "{path}");
        }
    }
}

#[test]
fn an_index_of_aborted_transactions_that_is_gone_is_made_anew() {
    let mut world = World::new(1);
    world.append(transactional(7, 0, 0, "a", 2)).unwrap();
    world.coordinate(marker(7, 0, false, 0)).unwrap();
    world.append(batch_of(Codec::None, &[NOW])).unwrap();
    world.stop();
    let path = names(&*world.disk(), ".txnindex").remove(0);
    let whole = world.disk().read(&path).unwrap();
    world.restart_after(|disk| disk.remove_file(&path).unwrap());
    let slice = world.logs().read(partition(0), Offset(0), 1 << 20, Offset::MAX, true).unwrap();
    assert_eq!(world.logs().aborted(partition(0), Offset(0), &slice).unwrap().len(), 1);
    world.stop();
    assert_eq!(world.disk().read(&path).unwrap(), whole);
}
