//! Compacted segments in the place of the old ones: at every moment a stop leaves the old ones or the new ones.

use super::*;
use crate::KeyFilter;
use crate::inspect::{Depth, inspect};
use crate::{AppendError, Origin};
use records::key_hash;

/// Three sealed segments, and an active one.
fn filled(seed: u64, config: LogConfig) -> World {
    let mut world = World::with(seed, config);
    for round in 0..60 {
        put(&mut world, &format!("k{}", round % 4), &format!("v{round}"));
        if round % 20 == 19 {
            roll(&mut world);
        }
    }
    put(&mut world, "active", "v");
    world.sync();
    world.logs().checkpoint().unwrap();
    world
}

/// No file.
const NONE: [&str; 0] = [];

/// Twenty of its records fit into a segment.
fn roomy() -> LogConfig {
    LogConfig { segment_bytes: 3000, ..compacted() }
}

fn left() -> Vec<(i64, String, Option<String>)> {
    let mut left: Vec<Seen> =
        (56..60).map(|round| (round, format!("k{}", round % 4), Some(format!("v{round}")))).collect();
    left.push((60, "active".to_owned(), Some("v".to_owned())));
    left
}

/// Runs a compaction in the smallest steps, but at most so many; true when it came to its end.
fn clean_steps(world: &mut World, steps: usize) -> bool {
    let Some(mut job) = world.logs().clean_job(NOW) else { return true };
    for _ in 0..steps {
        match world.logs().clean_done(job.run(1)) {
            Some(next) => job = next,
            None => return true,
        }
    }
    false
}

fn unsettled(world: &World) -> Vec<String> {
    let odd = |name: &String| [".cleaned", ".swap", ".deleted"].iter().any(|end| name.ends_with(end));
    files(world).into_iter().filter(odd).collect()
}

#[test]
fn a_stop_at_any_step_loses_nothing_and_the_next_run_ends_it() {
    for (stop, seeds) in [(0, 1), (1, 1), (2, 3)] {
        let mut steps = 0;
        loop {
            let mut ended = false;
            for seed in 0..seeds {
                let config = LogConfig { file_delete_delay_ms: 60_000, ..roomy() };
                let mut world = filled(seed, config);
                ended = clean_steps(&mut world, steps);
                match stop {
                    0 => {
                        world.logs().stop_cleaning();
                        world.clean_restart();
                    }
                    1 => world.kill(),
                    _ => world.power_cut(),
                }
                let found = read(&mut world);
                assert!(found.ends_with(&left()), "{stop}, step {steps}, seed {seed}: {found:?}");
                assert_eq!(world.facts().end, Offset(61));
                assert_eq!(unsettled(&world), NONE, "{stop}, step {steps}, seed {seed}");
                let bytes: u64 = world
                    .disk()
                    .list("t-0")
                    .unwrap()
                    .iter()
                    .filter(|entry| entry.name.ends_with(".log"))
                    .map(|entry| entry.len)
                    .sum();
                assert_eq!(world.facts().bytes, bytes);
                assert!(clean(&mut world, NOW) <= 1);
                assert_eq!(read(&mut world), left(), "{stop}, step {steps}, seed {seed}");
                world.power_cut();
                assert_eq!(read(&mut world), left(), "{stop}, step {steps}, seed {seed}, cut again");
                put(&mut world, "new", "v");
            }
            if ended {
                break;
            }
            steps += 1;
        }
        assert!(steps > 100, "{steps} steps");
    }
}

#[test]
fn open_readers_go_on_and_small_segments_become_one() {
    let mut world = filled(1, roomy());
    let before = world.read_all(Offset(0));
    let slice = world.logs().read(partition(0), Offset(0), 10_000, Offset::MAX, true).unwrap();
    let held = slice.read().unwrap();
    clean(&mut world, NOW);
    assert_eq!(slice.read().unwrap(), held, "an open reader goes on");
    assert_eq!(before.len(), 61);
    let logs: Vec<String> = files(&world).into_iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(logs.len(), 3, "two fitted into one: {logs:?}");
    put(&mut world, "new", "v");
    roll(&mut world);
    clean(&mut world, NOW);
    let logs: Vec<String> = files(&world).into_iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(
        logs,
        ["00000000000000000000.log", "00000000000000000062.log"],
        "the next compaction finds them small"
    );
    let snapshots = files(&world).into_iter().filter(|name| name.ends_with(".snapshot")).count();
    assert!(snapshots <= 2, "snapshots go with their segments");
}

#[test]
fn k65_the_key_index_tells_of_what_is_left() {
    for indexed in [false, true] {
        let mut world = filled(1, roomy());
        let build =
            |world: &mut World| while world.logs().build_key_index(partition(0), 1000).unwrap().more {};
        if indexed {
            world.logs().enable_key_index(partition(0)).unwrap();
            build(&mut world);
        }
        let of = |world: &mut World, key: &str| {
            let filter = KeyFilter::key(key_hash(key.as_bytes()));
            let (mut from, mut found) = (Offset(0), Vec::new());
            while from < Offset(61) {
                let part =
                    world.logs().key_matches(partition(0), filter, from, Offset(61), usize::MAX).unwrap();
                found.extend(part.offsets);
                from = part.next;
            }
            let key = key_hash(key.as_bytes());
            let searched =
                world.logs().find_key(partition(0), key, (Offset(0), Offset(61)), true, 1000).unwrap();
            let offsets: Vec<Offset> = searched.records.iter().map(|record| record.offset).collect();
            assert_eq!((offsets, searched.next), (found.clone(), Offset(61)));
            found
        };
        assert_eq!(of(&mut world, "k2").len(), 15);
        clean(&mut world, NOW);
        assert_eq!(of(&mut world, "k2"), [Offset(58)], "indexed: {indexed}");
        build(&mut world);
        assert_eq!(of(&mut world, "k2"), [Offset(58)]);
        assert_eq!(of(&mut world, "active"), [Offset(60)]);
        world.clean_restart();
        if indexed {
            world.logs().enable_key_index(partition(0)).unwrap();
            assert_eq!(of(&mut world, "k1"), [Offset(57)]);
            build(&mut world);
        }
        assert_eq!(of(&mut world, "k1"), [Offset(57)]);
        assert_eq!(of(&mut world, "k9"), []);
    }
}

#[test]
fn what_is_lost_in_a_later_life_is_not_taken_for_what_compaction_left() {
    for seed in 0..200 {
        let mut world = World::with(seed, compacted());
        put(&mut world, "a", "v");
        put(&mut world, "a", "w");
        roll(&mut world);
        clean_steps(&mut world, seed as usize % 12);
        world.power_cut();
        let from = world.facts().end;
        for _ in 0..2 {
            put(&mut world, "a", "x");
            roll(&mut world);
        }
        world.power_cut();
        let end = world.facts().end;
        let found: Vec<i64> =
            records_of(&world.read_all(from)).into_iter().map(|(offset, ..)| offset).collect();
        assert!(found.into_iter().eq(from.0..end.0), "seed {seed}: a record before the end {end} is missing");
    }
}

#[test]
fn what_compaction_leaves_is_found_in_order() {
    let mut world = filled(1, roomy());
    clean(&mut world, NOW);
    world.stop();
    for depth in [Depth::Describe, Depth::Verify] {
        let report = inspect(&world.disk(), crate::testing::TOPIC, 0, depth).unwrap();
        assert_eq!(report.findings, []);
        let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
        assert_eq!((records, report.end), (5, Offset(61)));
    }
}

#[test]
fn r15_where_a_log_was_cut_nothing_counts_as_compacted() {
    let mut world = filled(1, roomy());
    clean(&mut world, NOW);
    world.restart_after(|disk| {
        for name in ["00000000000000000040", "00000000000000000060"] {
            disk.remove_file(&format!("t-0/{name}.log")).unwrap();
        }
        let file = disk.open("t-0/00000000000000000000.log").unwrap();
        file.set_len(0).unwrap();
    });
    assert_eq!(world.facts().end, Offset(0));
    let text = |world: &World, name| String::from_utf8(world.disk().read(name).unwrap().unwrap()).unwrap();
    assert_eq!(text(&world, "cleaner-offset-checkpoint"), "0\n1\nt 0 0\n");
    assert_eq!(text(&world, "sluice-holes-offset-checkpoint"), "0\n1\nt 0 0\n");
    for _ in 0..3 {
        put(&mut world, "a", "v");
    }
    // A lost batch is damage again.
    world.restart_after(|disk| {
        let file = disk.open("t-0/00000000000000000000.log").unwrap();
        let size = file.len().unwrap() / 3;
        let mut last = vec![0; size as usize];
        file.read_exact_at(&mut last, size * 2).unwrap();
        file.write_all_at(&last, size).unwrap();
        file.set_len(size * 2).unwrap();
    });
    assert_eq!(world.facts().end, Offset(1));
}

#[test]
fn sidecars_of_replaced_segments_go() {
    let mut world = filled(1, roomy());
    for base in [0, 20, 60] {
        for suffix in [".keyindex", ".txnindex"] {
            world.disk().create(&format!("t-0/{base:020}{suffix}")).unwrap();
        }
    }
    clean(&mut world, NOW);
    let sidecars: Vec<String> = files(&world)
        .into_iter()
        .filter(|name| name.ends_with("yindex") || name.ends_with("nindex"))
        .collect();
    assert_eq!(sidecars, ["00000000000000000060.keyindex", "00000000000000000060.txnindex"]);
}

#[test]
fn kafkas_checkpoint_says_how_far_it_is() {
    let mut world = filled(1, roomy());
    clean(&mut world, NOW);
    let text = |world: &World, name| String::from_utf8(world.disk().read(name).unwrap().unwrap()).unwrap();
    assert_eq!(text(&world, "cleaner-offset-checkpoint"), "0\n1\nt 0 60\n");
    world.logs().delete_partition(partition(0)).unwrap();
    assert_eq!(text(&world, "cleaner-offset-checkpoint"), "0\n0\n");
    assert_eq!(text(&world, "sluice-holes-offset-checkpoint"), "0\n0\n");
}

#[test]
fn a_deleted_topic_stops_its_compaction_and_a_new_one_of_its_name_is_not_touched() {
    let mut steps = 0;
    loop {
        let mut world = filled(1, roomy());
        let mut job = world.logs().clean_job(NOW);
        for _ in 0..steps {
            job = job.and_then(|job| world.logs().clean_done(job.run(1)));
        }
        let Some(job) = job else { break };
        world.logs().delete_partition(partition(0)).unwrap();
        world.open(0);
        for round in 0..20 {
            put(&mut world, &format!("n{}", round % 2), "new");
        }
        roll(&mut world);
        put(&mut world, "active", "new");
        assert!(world.logs().clean_job(NOW).is_none(), "not while the old one may write there");
        assert!(world.logs().clean_done(job.run(u64::MAX)).is_none());
        assert_eq!(unsettled(&world), NONE, "step {steps}");
        assert_eq!(read(&mut world).len(), 21);
        assert_eq!(clean(&mut world, NOW), 1);
        assert_eq!(keys(&read(&mut world)), [(18, "n0"), (19, "n1"), (20, "active")]);
        steps += 7;
    }
    assert!(steps > 100);
}

#[test]
fn segments_that_are_deleted_meanwhile_are_not_brought_back() {
    for steps in (0..200).step_by(3) {
        let mut world = filled(1, roomy());
        let mut job = world.logs().clean_job(NOW);
        for _ in 0..steps {
            job = job.and_then(|job| world.logs().clean_done(job.run(1)));
        }
        world.logs().delete_records(partition(0), Offset(45)).unwrap();
        while let Some(next) = job {
            job = world.logs().clean_done(next.run(1));
        }
        assert_eq!(world.facts().log_start, Offset(45));
        assert_eq!(unsettled(&world), NONE, "step {steps}");
        assert!(records_of(&world.read_all(Offset(45))).ends_with(&left()));
        world.power_cut();
        assert_eq!(world.facts().log_start, Offset(45));
        assert!(records_of(&world.read_all(Offset(45))).ends_with(&left()));
    }
}

#[test]
fn r08_a_full_disk_puts_compaction_off() {
    let mut world = filled(1, LogConfig { file_delete_delay_ms: 60_000, ..roomy() });
    world.sim.set_capacity(world.sim.used() + 250);
    assert!(clean_once(&mut world, NOW, STEP_BYTES));
    let found = read(&mut world);
    assert!(found.len() > 5 && found.ends_with(&left()), "{found:?}");
    let unfinished: Vec<String> =
        unsettled(&world).into_iter().filter(|name| !name.ends_with(".deleted")).collect();
    assert_eq!(unfinished, NONE, "it leaves nothing behind");
    assert_eq!(world.logs().cleaning_facts(partition(0)).unwrap().uncleanable, None);
    assert!(!clean_once(&mut world, NOW + 1, STEP_BYTES), "not again at once");
    world.sim.set_capacity(u64::MAX);
    assert_eq!(clean(&mut world, NOW + 60_000), 1);
    assert_eq!(read(&mut world), left());
}

#[test]
fn r08_wherever_the_disk_is_full_compaction_goes_on_once_there_is_room() {
    let mut full = 0;
    for room in (0..1500).step_by(20) {
        let mut world = filled(1, LogConfig { file_delete_delay_ms: 60_000, ..roomy() });
        world.sim.set_capacity(world.sim.used() + room);
        let mut now_ms = NOW;
        for _ in 0..3 {
            assert!(clean_once(&mut world, now_ms, STEP_BYTES) || full > 0);
            let facts = world.logs().cleaning_facts(partition(0)).unwrap();
            assert_eq!(facts.uncleanable, None, "room for {room} bytes");
            full += usize::from(facts.runs == 0);
            now_ms += 15_000;
        }
        world.sim.set_capacity(u64::MAX);
        clean(&mut world, now_ms);
        assert_eq!(read(&mut world), left(), "room for {room} bytes");
        world.stop();
        let report = crate::inspect::inspect(&world.disk(), "t", 0, crate::inspect::Depth::Verify).unwrap();
        assert_eq!(report.findings, [], "room for {room} bytes");
    }
    assert!(full > 10, "{full}");
}

#[test]
fn r08_a_full_disk_is_tried_again_after_the_backoff_and_no_sooner() {
    let options = crate::Options {
        cleaner: crate::CleanerOptions { backoff_ms: 3000, ..crate::CleanerOptions::default() },
        ..crate::Options::default()
    };
    let mut world = World::with_options(1, LogConfig { file_delete_delay_ms: 60_000, ..roomy() }, options);
    for round in 0..20 {
        put(&mut world, ["a", "b"][round % 2], "v");
    }
    roll(&mut world);
    world.sim.set_capacity(world.sim.used());
    assert!(clean_once(&mut world, NOW, STEP_BYTES));
    for (at_ms, is_due) in [(0, false), (2999, false), (3000, true), (5999, false), (6000, true)] {
        assert_eq!(clean_once(&mut world, NOW + at_ms, STEP_BYTES), is_due, "{at_ms}");
    }
    world.sim.set_capacity(u64::MAX);
    assert_eq!(clean(&mut world, NOW + 9000), 1);
    assert_eq!(read(&mut world).len(), 2);
}

#[test]
fn a_log_that_cannot_be_compacted_is_left_alone_and_others_go_on() {
    let mut world = filled(1, roomy());
    world.open(1);
    for round in 0..20 {
        let batch = batch_of(Codec::None, &[(["a", "b"][round % 2], Some("v"))]);
        world.logs().append(partition(1), batch, Origin::Client, NOW).unwrap();
    }
    world.logs().log_mut(partition(1)).unwrap().roll().unwrap();
    // A flipped bit in the first log: what is written anew would hide it under a good CRC.
    let file = world.disk().open("t-0/00000000000000000020.log").unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 70).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 70).unwrap();
    clean(&mut world, NOW);
    let facts = world.logs().cleaning_facts(partition(0)).unwrap();
    assert!(facts.uncleanable.as_ref().is_some_and(|reason| reason.contains("segment 20")), "{facts:?}");
    assert_eq!(world.logs().cleaning_facts(partition(1)).unwrap().cleaned_to, Some(Offset(20)));
    assert_eq!(world.logs().uncleanable_count(), 1);
    assert!(world.logs().clean_job(NOW + 1_000_000).is_none());
    assert_eq!(unsettled(&world), NONE);
    put(&mut world, "still", "writable");
}

#[test]
fn r08_a_failed_sync_of_what_is_to_be_compacted_closes_the_log() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "v");
    put(&mut world, "a", "w");
    roll(&mut world);
    put(&mut world, "b", "v");
    world.sim.fail_syncs(1);
    assert!(clean_once(&mut world, NOW, STEP_BYTES));
    let refused =
        world.logs().append(partition(0), batch_of(Codec::None, &[("c", None)]), Origin::Client, NOW);
    assert!(matches!(refused, Err(AppendError::Poisoned)));
    assert_eq!(read(&mut world).len(), 3, "nothing was compacted");
    world.kill();
    assert_eq!(clean(&mut world, NOW), 1);
    assert_eq!(read(&mut world).len(), 2);
    world.power_cut();
    assert_eq!(keys(&read(&mut world))[0], (1, "a"));
}

#[test]
fn unsynced_records_are_made_durable_before_holes_are_allowed_there() {
    for seed in 0..20 {
        let mut world = World::with(seed, compacted());
        for round in 0..40 {
            put(&mut world, &format!("k{}", round % 4), "v");
        }
        roll(&mut world);
        clean(&mut world, NOW);
        world.power_cut();
        assert_eq!(keys(&read(&mut world)), [(36, "k0"), (37, "k1"), (38, "k2"), (39, "k3")], "seed {seed}");
    }
}

#[test]
fn a_swap_of_what_was_deleted_meanwhile_is_not_finished_by_the_next_start() {
    for steps in 0..200 {
        let mut world = filled(1, LogConfig { file_delete_delay_ms: 60_000, ..roomy() });
        let ended = clean_steps(&mut world, steps);
        world.logs().delete_records(partition(0), Offset(45)).unwrap();
        world.kill();
        assert_eq!((world.facts().log_start, world.facts().end), (Offset(45), Offset(61)), "step {steps}");
        assert!(read(&mut world).ends_with(&left()), "step {steps}");
        if ended {
            return;
        }
    }
    panic!("the compaction never ended");
}

#[test]
fn r15_compaction_does_not_forget_where_an_epoch_began() {
    let mut world = World::with(1, compacted());
    put(&mut world, "a", "first life");
    world.kill();
    // The first records of epoch 1 are replaced by later ones; what was written of epoch 0 beyond offset 0 is void.
    put(&mut world, "b", "old");
    put(&mut world, "b", "new");
    roll(&mut world);
    put(&mut world, "active", "v");
    clean(&mut world, NOW);
    world.power_cut();
    let found = world.logs().epoch_end_offset(partition(0), 0).unwrap();
    assert_eq!(found, Some((0, Offset(1))));
}

#[test]
fn a_scan_goes_on_to_the_end_where_nothing_is_left_before_it() {
    let mut found = 0;
    for seed in 0..20 {
        let mut world = World::with(seed, compacted());
        put(&mut world, "a", "v");
        let mut keyless = BatchBuilder::new(Codec::None, TimestampType::Create);
        keyless.append(NOW, None, Some(b"goes"), &[]);
        world.append(BytesMut::from(&keyless.build(Offset(0), -1)[..])).unwrap();
        roll(&mut world);
        put(&mut world, "active", "v");
        clean(&mut world, NOW);
        world.power_cut();
        if world.facts().end == Offset(2) {
            let scan = world.logs().scan(partition(0), Offset(1), 1000, Offset::MAX).unwrap();
            assert_eq!((scan.batches.len(), scan.next), (0, Offset(2)));
            found += 1;
        }
    }
    assert!(found > 0, "no power cut took the active segment's records");
}
