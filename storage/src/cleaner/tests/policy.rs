//! When a log is compacted, and which part of it.

use super::*;
use crate::{Options, Origin};

fn at(world: &mut World, key: &str, timestamp: i64) {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    builder.append(timestamp, Some(key.as_bytes()), Some(b"v"), &[]);
    let batch = BytesMut::from(&builder.build(Offset(0), -1)[..]);
    world.logs().append(partition(0), batch, Origin::Client, timestamp).unwrap();
}

#[test]
fn a_log_is_compacted_when_more_of_it_is_new_than_the_ratio_says() {
    let mut world = World::with(1, LogConfig { min_cleanable_dirty_ratio: 0.5, ..compacted() });
    for key in 0..20 {
        put(&mut world, &format!("{key:02}"), "v");
    }
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW), 1, "all of it is new");
    for key in 0..10 {
        put(&mut world, &format!("{key:02}"), "w");
    }
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW), 0, "a third is new");
    for key in 10..25 {
        put(&mut world, &format!("{key:02}"), "w");
    }
    assert_eq!(clean(&mut world, NOW), 0, "what is active does not count");
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW), 1);
    assert_eq!(read(&mut world).len(), 25);
    // It takes effect at once.
    put(&mut world, "00", "x");
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW), 0);
    world.logs().configure(partition(0), compacted()).unwrap();
    assert_eq!(clean(&mut world, NOW), 1);
}

#[test]
fn the_dirtiest_log_is_first_and_only_compacted_ones_are() {
    let mut world = World::with(1, compacted());
    world.open(1);
    let id = crate::testing::partition(2);
    world.logs().open_partition(id, "u", LogConfig { compact: false, ..compacted() }).unwrap();
    for (index, count) in [(0, 5), (1, 5), (2, 50)] {
        for _ in 0..count {
            let batch = batch_of(Codec::None, &[("a", Some("v"))]);
            world.logs().append(partition(index), batch, Origin::Client, NOW).unwrap();
        }
        world.logs().log_mut(partition(index)).unwrap().roll().unwrap();
    }
    let job = world.logs().clean_job(NOW).unwrap();
    assert!(world.logs().clean_job(NOW).is_none(), "one at a time");
    assert_eq!(job.partition(), partition(0), "equals go in the order of their ids");
    world.logs().stop_cleaning();
    assert!(world.logs().clean_done(job.run(1)).is_none());
    assert!(world.logs().is_cleaning_idle());
    assert_eq!(clean(&mut world, NOW), 2);
}

#[test]
fn several_logs_may_be_compacted_at_a_time() {
    let mut options = Options::default();
    options.cleaner.jobs_max = 2;
    let mut world = World::with_options(1, compacted(), options);
    world.open(1);
    for index in [0, 1] {
        for _ in 0..5 {
            let batch = batch_of(Codec::None, &[("a", Some("v"))]);
            world.logs().append(partition(index), batch, Origin::Client, NOW).unwrap();
        }
        world.logs().log_mut(partition(index)).unwrap().roll().unwrap();
    }
    let mut jobs = vec![world.logs().clean_job(NOW).unwrap(), world.logs().clean_job(NOW).unwrap()];
    assert_ne!(jobs[0].partition(), jobs[1].partition());
    assert!(world.logs().clean_job(NOW).is_none());
    while let Some(job) = jobs.pop() {
        if let Some(next) = world.logs().clean_done(job.run(1)) {
            jobs.insert(0, next);
        }
    }
    for index in [0, 1] {
        assert_eq!(world.logs().cleaning_facts(partition(index)).unwrap().cleaned_to, Some(Offset(5)));
    }
}

#[test]
fn young_records_wait_for_min_compaction_lag() {
    let mut world = World::with(1, LogConfig { min_compaction_lag_ms: 1000, ..compacted() });
    for timestamp in [100, 200] {
        at(&mut world, "a", timestamp);
    }
    roll(&mut world);
    at(&mut world, "a", 900);
    roll(&mut world);
    at(&mut world, "a", 950);
    assert_eq!(clean(&mut world, 1199), 0);
    assert_eq!(clean(&mut world, 1200), 1);
    assert_eq!(keys(&read(&mut world)), [(1, "a"), (2, "a"), (3, "a")]);
    assert_eq!(clean(&mut world, 1900), 1);
    assert_eq!(keys(&read(&mut world)), [(2, "a"), (3, "a")]);
}

#[test]
fn old_records_do_not_wait_beyond_max_compaction_lag() {
    let lazy = LogConfig { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: 1000, ..compacted() };
    let mut world = World::with(1, lazy);
    at(&mut world, "a", 100);
    at(&mut world, "a", 1000);
    assert_eq!(files(&world).iter().filter(|name| name.ends_with(".log")).count(), 1);
    // Behind the lag the active segment is full: what is in it could not be compacted in time.
    at(&mut world, "a", 1101);
    assert_eq!(files(&world).iter().filter(|name| name.ends_with(".log")).count(), 2);
    assert_eq!(clean(&mut world, 1100), 0);
    assert_eq!(clean(&mut world, 1101), 1);
    assert_eq!(keys(&read(&mut world)), [(1, "a"), (2, "a")]);
}

#[test]
fn segments_of_many_logs_do_not_all_roll_at_once() {
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 800, compact: false, ..compacted() };
    let mut ages = std::collections::BTreeSet::new();
    for index in 0..20 {
        let mut world = World::with(1, config.clone());
        let name = format!("topic{index}");
        let id = partition(index + 1);
        world.logs().open_partition(id, &name, config.clone()).unwrap();
        let mut age = 0;
        while world
            .disk()
            .list(&format!("{name}-{}", index + 1))
            .map_or(0, |found| found.iter().filter(|entry| entry.name.ends_with(".log")).count())
            < 2
        {
            let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
            builder.append(age, None, None, &[]);
            let batch = BytesMut::from(&builder.build(Offset(0), -1)[..]);
            world.logs().append(id, batch, Origin::Client, age).unwrap();
            age += 100;
        }
        assert!((300..=1200).contains(&age), "{age}");
        ages.insert(age);
    }
    assert!(ages.len() > 3, "{ages:?}");
}

#[test]
fn compact_and_delete_together() {
    let config = LogConfig { delete: true, retention_ms: 5000, ..compacted() };
    let mut world = World::with(1, config);
    for round in 0..40 {
        at(&mut world, &format!("k{}", round % 3), NOW + round);
    }
    roll(&mut world);
    at(&mut world, "late", NOW + 4000);
    clean(&mut world, NOW + 4000);
    assert_eq!(read(&mut world).len(), 4);
    assert!(world.logs().enforce_retention(NOW + 5000).unwrap().is_empty());
    assert_eq!(world.logs().enforce_retention(NOW + 5040).unwrap(), [partition(0)]);
    assert_eq!(keys(&read(&mut world)), [(40, "late")]);
    assert_eq!(world.facts().log_start, Offset(40));
    // The checkpoint below the log start is none.
    at(&mut world, "late", NOW + 5000);
    roll(&mut world);
    assert_eq!(clean(&mut world, NOW + 5040), 1);
    assert_eq!(keys(&read(&mut world)), [(41, "late")]);
}

#[test]
fn r11_what_compaction_emptied_does_not_keep_retention_from_going_on() {
    let config = LogConfig { delete: true, retention_ms: 5000, segment_bytes: 1024, ..compacted() };
    let mut world = World::with(1, config);
    // One segment full of what later records replace, but for a producer's last batch.
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create).producer(4, 0, 0);
    builder.append(NOW, Some(b"a"), Some(&[b'v'; 700]), &[]);
    world.append(BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
    roll(&mut world);
    for key in ["a", "b"] {
        put(&mut world, key, &"v".repeat(700));
        roll(&mut world);
    }
    clean(&mut world, NOW);
    assert_eq!(keys(&read(&mut world)), [(1, "a"), (2, "b")]);
    assert_eq!(world.logs().enforce_retention(NOW + 5001).unwrap(), [partition(0)]);
    assert_eq!((world.facts().log_start, world.facts().end), (Offset(3), Offset(3)));
}

#[test]
fn deleted_files_stay_for_their_delay_under_another_name() {
    let config = LogConfig { file_delete_delay_ms: 1000, ..compacted() };
    let mut world = World::with(1, config);
    for round in 0..60 {
        put(&mut world, &format!("k{}", round % 3), "v");
    }
    roll(&mut world);
    clean(&mut world, NOW);
    let deleted = |world: &World| files(world).iter().filter(|name| name.ends_with(".deleted")).count();
    let retired = deleted(&world);
    assert!(retired > 3, "{:?}", files(&world));
    assert!(world.logs().remove_job(NOW).is_none(), "the delay begins now");
    assert!(world.logs().remove_job(NOW + 999).is_none());
    world.logs().remove_job(NOW + 1000).unwrap().run();
    assert_eq!(deleted(&world), 0);
    world.logs().delete_records(partition(0), Offset(60)).unwrap();
    assert!(deleted(&world) > 0);
    world.kill();
    assert_eq!(deleted(&world), 0, "the next start removes them");
    world.logs().delete_partition(partition(0)).unwrap();
    let names: Vec<String> = world.disk().list("").unwrap().into_iter().map(|entry| entry.name).collect();
    let id = "09".repeat(16);
    assert!(names.contains(&format!("t-0.{id}-delete")), "{names:?}");
    world.open(0);
    put(&mut world, "a", "v");
    world.logs().remove_job(NOW);
    world.logs().remove_job(NOW + 1000).unwrap().run();
    let directories = world.disk().list("").unwrap().into_iter().filter(|entry| entry.is_dir);
    assert_eq!(directories.map(|entry| entry.name).collect::<Vec<_>>(), ["t-0"]);
    assert_eq!(read(&mut world).len(), 1);
}
