//! Transactions: what was taken back goes, and says nothing of its keys; markers stay while they mean something.

use super::*;
use crate::Origin;

const ABORT: u8 = 0;
const COMMIT: u8 = 1;

fn data(world: &mut World, producer: i64, sequence: i32, key: &str) -> i64 {
    let mut builder =
        BatchBuilder::new(Codec::Lz4, TimestampType::Create).producer(producer, 0, sequence).transactional();
    builder.append(NOW, Some(key.as_bytes()), Some(format!("of {producer}").as_bytes()), &[]);
    let batch = BytesMut::from(&builder.build(Offset(0), -1)[..]);
    world.append(batch).unwrap().base_offset.0
}

fn end(world: &mut World, producer: i64, kind: u8) -> i64 {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create)
        .producer(producer, 0, -1)
        .transactional()
        .control();
    builder.append(NOW, Some(&[0, 0, 0, kind]), Some(&[0, 0, 0, 0, 0, 0]), &[]);
    let batch = BytesMut::from(&builder.build(Offset(0), -1)[..]);
    world.logs().append(partition(0), batch, Origin::Coordinator, NOW).unwrap().base_offset.0
}

/// Base offset, record count and whether it is a marker, of each batch.
fn shape(world: &mut World) -> Vec<(i64, i32, bool)> {
    let start = world.facts().log_start;
    let batches = world.read_all(start);
    let views = batches.iter().map(|bytes| BatchView::parse(bytes).unwrap());
    views
        .map(|batch| (batch.base_offset().0, batch.record_count(), batch.attributes().is_control()))
        .collect()
}

/// New records, so that there is something to compact again.
fn more(world: &mut World) {
    roll(world);
    put(world, "filler", "v");
}

#[test]
fn aborted_records_go_and_do_not_replace_committed_ones() {
    let mut world = World::with(1, compacted());
    data(&mut world, 1, 0, "a");
    end(&mut world, 1, COMMIT);
    data(&mut world, 2, 0, "a");
    data(&mut world, 1, 1, "b");
    end(&mut world, 2, ABORT);
    end(&mut world, 1, COMMIT);
    more(&mut world);
    clean(&mut world, NOW);
    assert_eq!(keys(&read(&mut world)), [(0, "a"), (3, "b"), (6, "filler")]);
    // The aborted batch was its producer's last one: its header stays, and with it its marker.
    let first = [(0, 1, false), (1, 1, true), (2, 0, false), (3, 1, false), (4, 1, true), (5, 1, true)];
    assert_eq!(shape(&mut world)[..6], first);
    let view = world.read_all(Offset(2));
    let view = BatchView::parse(&view[0]).unwrap();
    assert_eq!((view.producer_id(), view.base_sequence(), view.record_count()), (1, 1, 1), "read passes it");
}

#[test]
fn a_marker_stays_until_its_records_are_gone_and_its_time_is_over() {
    let mut world = World::with(1, compacted());
    data(&mut world, 2, 0, "a");
    end(&mut world, 2, ABORT);
    // The producer goes on, so that nothing of before is its last batch.
    more(&mut world);
    data(&mut world, 2, 1, "b");
    end(&mut world, 2, COMMIT);
    roll(&mut world);
    put(&mut world, "filler", "v");
    clean(&mut world, NOW);
    assert_eq!(shape(&mut world)[0], (1, 1, true), "its records were there when it was read");
    let horizon = |world: &mut World| {
        let batches = world.read_all(Offset(1));
        let view = BatchView::parse(&batches[0]).unwrap();
        view.attributes().has_delete_horizon().then(|| view.base_timestamp())
    };
    assert_eq!(horizon(&mut world), None);
    more(&mut world);
    clean(&mut world, NOW + 5);
    assert_eq!(horizon(&mut world), Some(NOW + 1005));
    let batches = world.read_all(Offset(1));
    let marker = BatchView::parse(&batches[0]).unwrap();
    let records = marker.records(1000).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    assert_eq!((record.key, record.timestamp), (Some(&[0, 0, 0, ABORT][..]), NOW));
    more(&mut world);
    clean(&mut world, NOW + 1004);
    assert_eq!(horizon(&mut world), Some(NOW + 1005));
    more(&mut world);
    clean(&mut world, NOW + 1005);
    assert_ne!(shape(&mut world)[0].0, 1, "gone");
    // The committed transaction has its record, so its marker stays for ever.
    for round in 0..4 {
        more(&mut world);
        clean(&mut world, NOW + 10_000 * round);
    }
    let left = shape(&mut world);
    assert!(left.contains(&(3, 1, false)) && left.contains(&(4, 1, true)), "{left:?}");
}

#[test]
fn nothing_is_compacted_from_the_first_open_transaction_on() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "old");
    put(&mut world, "a", "kept");
    roll(&mut world);
    data(&mut world, 3, 0, "a");
    put(&mut world, "b", "old");
    roll(&mut world);
    put(&mut world, "b", "new");
    roll(&mut world);
    put(&mut world, "c", "active");
    clean(&mut world, NOW);
    assert_eq!(keys(&read(&mut world)), [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")]);
    // A marker in the active segment, which is not compacted itself, decides.
    end(&mut world, 3, ABORT);
    clean(&mut world, NOW + 100_000);
    assert_eq!(keys(&read(&mut world)), [(1, "a"), (4, "b"), (5, "c")]);
}

#[test]
fn a_transaction_across_segments_and_groups_is_one() {
    for kind in [ABORT, COMMIT] {
        let mut world = World::with(1, LogConfig { segment_bytes: 1024, ..compacted() });
        for round in 0..30 {
            data(&mut world, 1, round, &format!("{}", round % 15));
        }
        end(&mut world, 1, kind);
        more(&mut world);
        clean(&mut world, NOW);
        let left = read(&mut world);
        let expected = if kind == COMMIT { 16 } else { 1 };
        assert_eq!(left.len(), expected);
        assert_eq!(world.facts().end, Offset(32));
    }
}

/// First and last offset, producer, of each entry of the transaction index of the segment at `base`.
fn indexed(world: &World, base: i64) -> Option<Vec<(i64, i64, i64)>> {
    let bytes = world.disk().read(&format!("t-0/{base:020}.txnindex")).unwrap()?;
    let number = |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().unwrap());
    Some(bytes.chunks(34).map(|entry| (number(entry, 10), number(entry, 18), number(entry, 2))).collect())
}

#[test]
fn the_index_of_aborted_transactions_goes_with_their_records() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "v");
    data(&mut world, 2, 0, "a");
    roll(&mut world);
    data(&mut world, 3, 0, "b");
    end(&mut world, 2, ABORT);
    end(&mut world, 3, ABORT);
    data(&mut world, 2, 1, "c");
    data(&mut world, 3, 1, "d");
    end(&mut world, 2, COMMIT);
    end(&mut world, 3, COMMIT);
    more(&mut world);
    assert_eq!(indexed(&world, 2), Some(vec![(1, 3, 2), (2, 4, 3)]));
    // Their records were there when the markers were read: so are the entries, in the segment that took both in.
    clean(&mut world, NOW);
    assert_eq!((indexed(&world, 0), indexed(&world, 2)), (Some(vec![(1, 3, 2), (2, 4, 3)]), None));
    let slice = world.logs().read(partition(0), Offset(0), u64::MAX, Offset::MAX, true).unwrap();
    assert_eq!(world.logs().aborted(partition(0), Offset(0), &slice).unwrap().len(), 2);
    // Now they are gone, and so is what told of them.
    more(&mut world);
    clean(&mut world, NOW);
    assert_eq!(indexed(&world, 0), None);
    assert_eq!(world.facts().last_stable, world.facts().end);
    let report = crate::inspect::inspect(&world.disk(), "t", 0, crate::inspect::Depth::Verify).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_stop_amid_the_swap_leaves_the_index_that_belongs_to_the_log() {
    for seed in 0..60 {
        let mut world = World::with(seed, LogConfig { file_delete_delay_ms: 60_000, ..compacted() });
        data(&mut world, 2, 0, "a");
        end(&mut world, 2, ABORT);
        roll(&mut world);
        data(&mut world, 2, 1, "b");
        end(&mut world, 2, ABORT);
        put(&mut world, "a", "v");
        data(&mut world, 2, 2, "c");
        end(&mut world, 2, COMMIT);
        more(&mut world);
        world.sync();
        for _ in 0..3 {
            let mut job = world.logs().clean_job(NOW);
            for _ in 0..seed % 20 {
                job = job.and_then(|job| world.logs().clean_done(job.run(1)));
            }
            drop(job);
            world.power_cut();
            let report =
                crate::inspect::inspect(&world.disk(), "t", 0, crate::inspect::Depth::Verify).unwrap();
            let odd: Vec<_> = report
                .findings
                .iter()
                .filter(|finding| !finding.path.ends_with("epoch-checkpoint"))
                .collect();
            assert!(odd.is_empty(), "seed {seed}: {odd:?}");
            let left = read(&mut world);
            let left = keys(&left);
            assert!(left.contains(&(4, "a")) && left.contains(&(5, "c")), "{left:?}");
        }
    }
}

#[test]
fn a_snapshot_that_waits_for_a_compacted_marker_holds_nothing_back() {
    let mut world = World::with(1, compacted());
    for number in 0..8 {
        put(&mut world, &format!("first {number}"), "v");
    }
    data(&mut world, 2, 0, "a");
    roll(&mut world);
    end(&mut world, 2, ABORT);
    for number in 0..9 {
        put(&mut world, &format!("second {number}"), "v");
    }
    roll(&mut world);
    // The producer goes on outside of transactions: of its marker nothing needs to stay.
    let later = crate::testing::producer_batch(2, 0, 1, 1);
    world.append(later).unwrap();
    for round in 0..4 {
        more(&mut world);
        clean(&mut world, NOW + round * 2000);
    }
    assert!(!shape(&mut world).iter().any(|(_, _, is_marker)| *is_marker), "{:?}", shape(&mut world));
    let kept = "00000000000000000009.snapshot";
    assert!(files(&world).contains(&kept.to_owned()), "{:?}", files(&world));
    world.clean_restart();
    world.restart_after(|disk| {
        for entry in disk.list("t-0").unwrap() {
            if entry.name.ends_with(".snapshot") && entry.name != kept {
                disk.remove_file(&format!("t-0/{}", entry.name)).unwrap();
            }
        }
    });
    let facts = world.facts();
    assert_eq!(facts.last_stable, facts.end, "the aborted transaction is over");
    // What is open now is known all the same.
    data(&mut world, 2, 2, "b");
    assert_eq!(world.facts().last_stable, facts.end);
    world.kill();
    assert_eq!(world.facts().last_stable, facts.end);
}
