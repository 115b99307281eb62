//! A transaction index whose entries look sound and are not those of the log: Kafka's format has no CRC.

use records::ids::Offset;

use crate::inspect::{Depth, inspect};
use crate::testing::{World, batch, marker, partition, transactional};

const INDEX: &str = "t-0/00000000000000000000.txnindex";

/// Commits and aborts of one producer in turns, another producer's transaction open beside some of them, in a sealed
/// segment; closed in order, or synced, checkpointed and killed.
fn world(is_clean: bool) -> World {
    let mut world = World::new(1);
    let mut sequence = 0;
    for round in 0..6 {
        world.append(batch(2)).unwrap();
        world.append(transactional(5, 0, sequence, "k", 4)).unwrap();
        sequence += 4;
        if round == 3 {
            world.append(transactional(6, 0, 0, "k", 3)).unwrap();
        }
        world.coordinate(marker(5, 0, round % 2 == 0, 0)).unwrap();
    }
    world.coordinate(marker(6, 0, true, 0)).unwrap();
    world.logs().log_mut(partition(0)).unwrap().roll().unwrap();
    world.append(batch(1)).unwrap();
    if is_clean {
        world.stop();
    } else {
        world.sync();
        world.logs().checkpoint().unwrap();
    }
    world
}

fn aborted(world: &mut World) -> Vec<(i64, i64, i64, i64)> {
    let upper = world.facts().last_stable;
    let slice = world.logs().read(partition(0), Offset(0), u64::MAX, upper, true).unwrap();
    let found = world.logs().aborted(partition(0), Offset(0), &slice).unwrap();
    found.iter().map(|txn| (txn.producer, txn.first.0, txn.last.0, txn.last_stable.0)).collect()
}

#[test]
fn f12_no_flipped_byte_of_a_transaction_index_hides_a_committed_record() {
    for is_clean in [true, false] {
        let mut sound = world(is_clean);
        sound.restart_after(|_| ());
        let expected = aborted(&mut sound);
        assert_eq!(expected.len(), 3);
        let bytes = sound.disk().read(INDEX).unwrap().unwrap();
        assert_eq!(bytes.len(), 3 * 34);
        for (position, byte) in bytes.iter().enumerate() {
            for bits in [0x55, 0x01, 0x04, 0x80] {
                let mut world = world(is_clean);
                world.restart_after(|disk| {
                    let file = disk.open(INDEX).unwrap();
                    file.write_all_at(&[byte ^ bits], position as u64).unwrap();
                });
                let found = aborted(&mut world);
                assert_eq!(found, expected, "byte {} of entry {}", position % 34, position / 34);
                let report = inspect(&world.disk(), "t", 0, Depth::Verify).unwrap();
                assert_eq!(report.findings, []);
            }
        }
    }
}

#[test]
fn a_damaged_marker_does_not_take_its_entry_along() {
    let mut world = world(true);
    let before = world.disk().read(INDEX).unwrap().unwrap();
    let mut marker = None;
    crate::inspect::dump(&world.disk(), "t", 0, Offset(0), |batch| {
        let is_abort = batch.marker.is_some_and(|marker| !marker.commit);
        marker = marker.or(is_abort.then_some((batch.position, batch.bytes.len() as u64)));
        true
    })
    .unwrap();
    let (position, len) = marker.unwrap();
    world.restart_after(|disk| {
        // Its value, which the CRC covers: it reads as another marker, or as none.
        let file = disk.open("t-0/00000000000000000000.log").unwrap();
        for at in position + 61..position + len {
            file.write_all_at(&[0x33], at).unwrap();
        }
    });
    assert_eq!(world.disk().read(INDEX).unwrap().unwrap(), before);
}
