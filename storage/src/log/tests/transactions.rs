//! Open, committed and aborted transactions: the last stable offset and the lists of what was taken back.

use records::ids::Offset;

use crate::disk::{Disk, join};
use crate::inspect::{Depth, inspect};
use crate::testing::{NOW, World, batch, marker, partition, producer_batch, transactional};
use crate::{AbortedTransaction, AppendError, LogConfig};

const ABORT: bool = false;
const COMMIT: bool = true;

fn stable(world: &mut World) -> i64 {
    world.facts().last_stable.0
}

fn end(world: &mut World, producer: i64, commit: bool) -> i64 {
    world.coordinate(marker(producer, 0, commit, 0)).unwrap().base_offset.0
}

fn begin(world: &mut World, producer: i64, sequence: i32, count: usize) -> i64 {
    world.append(transactional(producer, 0, sequence, "k", count)).unwrap().base_offset.0
}

fn roll(world: &mut World) {
    world.logs().log_mut(partition(0)).unwrap().roll().unwrap();
}

/// Producer, first and last offset of what a read from `from` of all of one segment is told of.
fn aborted(world: &mut World, from: i64) -> Vec<(i64, i64, i64)> {
    let upper = world.facts().last_stable;
    let slice = world.logs().read(partition(0), Offset(from), u64::MAX, upper, true).unwrap();
    let found = world.logs().aborted(partition(0), Offset(from), &slice).unwrap();
    found.iter().map(|txn| (txn.producer, txn.first.0, txn.last.0)).collect()
}

fn names(world: &World, suffix: &str) -> Vec<String> {
    let entries = world.disk().list("t-0").unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(suffix)).collect()
}

#[track_caller]
fn sound(world: &World) {
    let report = inspect(&world.disk(), "t", 0, Depth::Verify).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn f11_the_last_stable_offset_is_where_the_earliest_open_transaction_begins() {
    let mut world = World::new(1);
    world.append(batch(1)).unwrap();
    assert_eq!(begin(&mut world, 5, 0, 6), 1);
    assert_eq!((stable(&mut world), world.facts().end.0), (1, 7));
    begin(&mut world, 6, 0, 1);
    world.append(batch(1)).unwrap();
    end(&mut world, 5, COMMIT);
    assert_eq!(stable(&mut world), 7, "another transaction began there");
    end(&mut world, 6, ABORT);
    assert_eq!(stable(&mut world), 11, "the written end, as soon as none is open");
    for restart in [World::clean_restart, World::kill] {
        begin(&mut world, 7, 0, 2);
        let first = world.facts().end.0 - 2;
        restart(&mut world);
        assert_eq!(stable(&mut world), first);
        end(&mut world, 7, COMMIT);
        restart(&mut world);
        assert_eq!(stable(&mut world), world.facts().end.0);
        world.append(batch(1)).unwrap();
        // The sequence goes on.
        begin(&mut world, 7, 2, 1);
        end(&mut world, 7, COMMIT);
        begin(&mut world, 8, 0, 1);
        end(&mut world, 8, ABORT);
        world = World::new(1);
    }
}

#[test]
fn f11_an_open_transaction_below_the_log_start_holds_the_start() {
    for restart in [None, Some(World::clean_restart as fn(&mut World)), Some(World::power_cut)] {
        let mut world = World::with(1, LogConfig { file_delete_delay_ms: 0, ..LogConfig::default() });
        begin(&mut world, 5, 0, 4);
        roll(&mut world);
        world.append(batch(4)).unwrap();
        world.sync();
        world.logs().delete_records(partition(0), Offset(6)).unwrap();
        restart.into_iter().for_each(|restart| restart(&mut world));
        assert_eq!(world.facts().log_start, Offset(6));
        assert_eq!(stable(&mut world), 6, "no segment holds a record of it any more");
        world.append(batch(1)).unwrap();
        assert_eq!(stable(&mut world), 6);
        end(&mut world, 5, ABORT);
        assert_eq!(stable(&mut world), 10);
        assert_eq!(aborted(&mut world, 6), [(5, 0, 9)]);
        sound(&world);
    }
}

#[test]
fn f12_aborted_transactions_that_began_earlier_are_told() {
    let mut world = World::new(1);
    world.append(batch(1)).unwrap();
    begin(&mut world, 5, 0, 3);
    begin(&mut world, 5, 3, 3);
    assert_eq!(end(&mut world, 5, ABORT), 7);
    assert_eq!(aborted(&mut world, 0), [(5, 1, 7)]);
    for from in [2, 5, 7] {
        assert_eq!(aborted(&mut world, from), [(5, 1, 7)], "from {from}");
    }
    world.append(batch(1)).unwrap();
    assert_eq!(aborted(&mut world, 8), []);
    let index = world.disk().read("t-0/00000000000000000000.txnindex").unwrap().unwrap();
    let numbers = [5_u8, 1, 7, 8].map(|number| [0, 0, 0, 0, 0, 0, 0, number]).concat();
    assert_eq!(index, [&[0, 0][..], &numbers].concat(), "version, producer, first, last, stable");
    sound(&world);
}

#[test]
fn f12_only_what_overlaps_the_bytes_that_are_read_is_told() {
    let mut world = World::new(1);
    for round in 0..3 {
        begin(&mut world, 5, round, 1);
        end(&mut world, 5, ABORT);
    }
    begin(&mut world, 6, 0, 1);
    world.append(batch(1)).unwrap();
    end(&mut world, 6, ABORT);
    let bytes = transactional(5, 0, 0, "k", 1).len() as u64;
    let slice = world.logs().read(partition(0), Offset(2), bytes, Offset(9), true).unwrap();
    assert_eq!(slice.next(), Offset(3));
    let found = world.logs().aborted(partition(0), Offset(2), &slice).unwrap();
    let stored =
        AbortedTransaction { producer: 5, first: Offset(2), last: Offset(3), last_stable: Offset(4) };
    assert_eq!(found, [stored]);
    assert_eq!(
        world.logs().aborted(partition(0), Offset(2), &crate::LogSlice::empty(Offset(2))).unwrap(),
        []
    );
}

#[test]
fn f12_the_markers_may_stand_in_later_segments() {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 1);
    begin(&mut world, 6, 0, 1);
    begin(&mut world, 7, 0, 1);
    roll(&mut world);
    world.append(batch(1)).unwrap();
    end(&mut world, 6, COMMIT);
    roll(&mut world);
    end(&mut world, 7, ABORT);
    roll(&mut world);
    world.append(batch(1)).unwrap();
    roll(&mut world);
    end(&mut world, 5, ABORT);
    assert_eq!(
        names(&world, ".txnindex"),
        ["00000000000000000005.txnindex", "00000000000000000007.txnindex"]
    );
    for restart in [|_: &mut World| {}, World::clean_restart, World::kill] {
        restart(&mut world);
        assert_eq!(aborted(&mut world, 0), [(7, 2, 5), (5, 0, 7)]);
        assert_eq!(aborted(&mut world, 3), [(7, 2, 5), (5, 0, 7)]);
        assert_eq!(aborted(&mut world, 6), [(5, 0, 7)]);
        sound(&world);
    }
}

#[test]
fn f12_the_index_goes_with_its_segment() {
    let config = LogConfig { file_delete_delay_ms: 60_000, ..LogConfig::default() };
    let mut world = World::with(1, config);
    begin(&mut world, 5, 0, 1);
    end(&mut world, 5, ABORT);
    roll(&mut world);
    world.append(batch(1)).unwrap();
    world.logs().delete_records(partition(0), Offset(2)).unwrap();
    assert_eq!(names(&world, ".txnindex"), Vec::<String>::new());
    assert_eq!(names(&world, ".txnindex.deleted"), ["00000000000000000000.txnindex.deleted"]);
    world.clean_restart();
    assert_eq!(names(&world, ".deleted"), Vec::<String>::new());
    assert_eq!(stable(&mut world), 3);
}

/// Two aborted transactions in a sealed segment, one across its end.
fn with_aborted(clean: bool) -> World {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 1);
    begin(&mut world, 6, 0, 1);
    end(&mut world, 5, ABORT);
    begin(&mut world, 5, 1, 1);
    end(&mut world, 5, ABORT);
    roll(&mut world);
    end(&mut world, 6, ABORT);
    roll(&mut world);
    world.append(batch(1)).unwrap();
    if clean {
        world.stop();
    } else {
        world.sync();
        world.logs().checkpoint().unwrap();
    }
    world
}

#[test]
fn a_damaged_or_short_index_is_made_anew() {
    type Change = fn(&dyn Disk, &str);
    let changes: [Change; 6] = [
        |disk, path| disk.open(path).unwrap().set_len(33).unwrap(),
        |disk, path| disk.open(path).unwrap().set_len(35).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[9], 0).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[1], 20).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[0xff; 8], 18).unwrap(),
        |disk, path| disk.open(path).unwrap().write_all_at(&[7], 33).unwrap(),
    ];
    for clean in [true, false] {
        for (number, change) in changes.iter().enumerate() {
            for path in ["t-0/00000000000000000000.txnindex", "t-0/00000000000000000005.txnindex"] {
                let mut world = with_aborted(clean);
                let stored = world.disk().read(path).unwrap().unwrap();
                world.restart_after(|disk| change(disk, path));
                assert_eq!(world.disk().read(path).unwrap().unwrap(), stored, "{number} {path}");
                world.power_cut();
                assert_eq!(aborted(&mut world, 0), [(5, 0, 2), (5, 3, 4), (6, 1, 5)]);
                assert_eq!(stable(&mut world), 7);
                sound(&world);
            }
        }
    }
}

#[test]
fn an_index_is_made_anew_without_any_snapshot() {
    let mut world = with_aborted(true);
    world.restart_after(|disk| {
        for entry in disk.list("t-0").unwrap() {
            if entry.name.ends_with(".snapshot") {
                disk.remove_file(&join("t-0", &entry.name)).unwrap();
            }
        }
        disk.open("t-0/00000000000000000005.txnindex").unwrap().set_len(10).unwrap();
    });
    assert_eq!(aborted(&mut world, 0), [(5, 0, 2), (5, 3, 4), (6, 1, 5)]);
    assert_eq!(stable(&mut world), 7);
    sound(&world);
}

#[test]
fn what_recovery_cuts_off_leaves_the_index_and_reopens_its_transaction() {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 2);
    world.sync();
    end(&mut world, 5, ABORT);
    assert_eq!(stable(&mut world), 3);
    world.restart_after(|disk| {
        let log = disk.open("t-0/00000000000000000000.log").unwrap();
        log.set_len(log.len().unwrap() - 1).unwrap();
    });
    assert_eq!((stable(&mut world), world.facts().end.0), (0, 2));
    assert_eq!(names(&world, ".txnindex"), Vec::<String>::new());
    end(&mut world, 5, COMMIT);
    assert_eq!(aborted(&mut world, 0), []);
    sound(&world);
}

#[test]
fn a_producer_with_an_open_transaction_is_never_forgotten() {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 1);
    world.append(producer_batch(6, 0, 0, 1)).unwrap();
    let expiry_ms = world.options.producer_expiry_ms;
    world.logs().enforce_retention(NOW + expiry_ms + 1).unwrap();
    world.append(producer_batch(6, 0, 9, 1)).expect("forgotten: it may begin anywhere");
    let gap = world.append(transactional(5, 0, 9, "k", 1));
    assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(stable(&mut world), 0);
    end(&mut world, 5, COMMIT);
    world.logs().enforce_retention(NOW + 2 * (expiry_ms + 1)).unwrap();
    begin(&mut world, 5, 9, 1);
}

#[test]
fn p15_rules_of_markers_and_of_open_transactions() {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 1);
    let outside = world.append(producer_batch(5, 0, 1, 1));
    assert!(matches!(outside, Err(AppendError::TransactionOpen { producer: 5, first: Offset(0) })));
    world.coordinate(marker(5, 0, COMMIT, 3)).unwrap();
    world.append(producer_batch(5, 0, 1, 1)).unwrap();
    begin(&mut world, 5, 2, 1);
    let fenced = world.coordinate(marker(5, 0, COMMIT, 2));
    assert!(matches!(fenced, Err(AppendError::CoordinatorFenced { current: 3, found: 2, .. })));
    assert_eq!(stable(&mut world), 3, "nothing was written");
    world.kill();
    let fenced = world.coordinate(marker(5, 0, COMMIT, 2));
    assert!(matches!(fenced, Err(AppendError::CoordinatorFenced { current: 3, found: 2, .. })));
    // A marker may raise the producer's epoch: what was sent under the old one is refused then.
    world.coordinate(marker(5, 1, ABORT, 3)).unwrap();
    assert_eq!(aborted(&mut world, 0), [(5, 3, 4)]);
    let old = world.append(transactional(5, 0, 3, "k", 1));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { current: 1, found: 0, .. })));
    let old = world.coordinate(marker(5, 0, ABORT, 3));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { current: 1, found: 0, .. })));
    let gap = world.append(transactional(5, 1, 3, "k", 1));
    assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { last: -1, found: 3, .. })));
    world.append(transactional(5, 1, 0, "k", 1)).unwrap();
    world.coordinate(marker(5, 1, COMMIT, 4)).unwrap();
    // Of a transaction without a record nothing is written down.
    world.coordinate(marker(9, 0, ABORT, 0)).unwrap();
    assert_eq!(aborted(&mut world, 0), [(5, 3, 4)]);
    sound(&world);
}

#[test]
fn a_control_batch_that_ends_nothing_is_refused() {
    let mut world = World::new(1);
    let mut odd = records::batch::BatchBuilder::new(records::Codec::None, records::TimestampType::Create)
        .producer(5, 0, -1)
        .control();
    odd.append(NOW, Some(&[0, 0, 0, 2]), Some(&[0; 6]), &[]);
    let refused = world.coordinate(bytes::BytesMut::from(&odd.build(Offset(0), -1)[..]));
    assert!(matches!(refused, Err(AppendError::Malformed(_))));
}

#[test]
fn a_full_disk_costs_no_entry() {
    let mut world = World::new(1);
    begin(&mut world, 5, 0, 1);
    let size = marker(5, 0, ABORT, 0).len() as u64;
    world.sim.set_capacity(world.sim.used() + size + 20);
    end(&mut world, 5, ABORT);
    assert_eq!(aborted(&mut world, 0), [(5, 0, 1)], "it is in memory");
    world.sim.set_capacity(u64::MAX);
    begin(&mut world, 5, 1, 1);
    end(&mut world, 5, ABORT);
    roll(&mut world);
    assert_eq!(aborted(&mut world, 0), [(5, 0, 1), (5, 2, 3)]);
    sound(&world);
}

#[test]
fn damage_is_no_answer() {
    let mut world = with_aborted(false);
    let path = "t-0/00000000000000000000.txnindex";
    world.disk().open(path).unwrap().write_all_at(&[9], 0).unwrap();
    let slice = world.logs().read(partition(0), Offset(0), u64::MAX, Offset(7), true).unwrap();
    assert!(world.logs().aborted(partition(0), Offset(0), &slice).is_err());
}
