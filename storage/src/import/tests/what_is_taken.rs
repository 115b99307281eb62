use std::sync::Arc;

use records::Codec;
use records::ids::Offset;

use super::kafka::{ID, Kafka, Target, record};
use crate::disk::{Disk, SimDisk};
use crate::import::Source;
use crate::testing::{NOW, TOPIC, batch, batch_of, partition, producer_batch, spans};
use crate::{AppendError, LogConfig, Origin};

#[test]
fn p25_records_deleted_and_records_above_the_high_watermark_never_rise() {
    let mut kafka = Kafka::new();
    for _ in 0..20 {
        kafka.append(batch(5));
    }
    kafka.world.logs().delete_records(partition(0), Offset(50)).unwrap();
    let stopped = kafka.stop();
    stopped.set_high_watermark(90);
    let before = stopped.files();
    let target = Target::new();
    stopped.import(&target).unwrap();
    assert_eq!(stopped.files(), before, "the source is only read");

    let mut broker = target.start();
    assert!(!broker.clean, "committed offsets above the end must be lowered");
    assert_eq!(broker.bounds(), (50, 90));
    assert_eq!(broker.offsets(), (50..90).collect::<Vec<_>>());
    drop(broker);
    for power_cut in [false, true] {
        if power_cut {
            target.sim.crash();
        }
        let mut broker = target.start();
        assert_eq!(broker.bounds(), (50, 90), "power cut: {power_cut}");
        assert_eq!(broker.offsets(), (50..90).collect::<Vec<_>>());
    }
    let mut broker = target.start();
    assert_eq!(broker.append(batch(1)).base_offset, Offset(90));
    let topic = &broker.metadata.topics().unwrap()[0];
    assert_eq!((topic.id, topic.configs["retention.ms"].as_str()), (ID, "77"));
}

#[test]
fn p25_a_batch_that_reaches_above_the_high_watermark_is_not_taken() {
    let mut kafka = Kafka::new();
    kafka.append(batch(10));
    kafka.append(batch(10));
    let stopped = kafka.stop();
    stopped.set_high_watermark(15);
    let target = Target::new();
    stopped.import(&target).unwrap();
    assert_eq!(target.start().bounds(), (0, 10));
}

#[test]
fn p25_new_batches_bear_an_epoch_above_all_imported_ones() {
    let mut kafka = Kafka::new();
    kafka.append(batch(1));
    kafka.world.kill();
    kafka.append(batch(1));
    let stopped = kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 7),
        record::partition_change(ID, 0),
        record::partition_change(ID, 0),
    ]);
    let target = Target::new();
    stopped.import(&target).unwrap();
    let mut broker = target.start();
    assert_eq!(broker.leader_epoch, 10);
    broker.append(batch(1));
    assert_eq!(broker.logs.leader_epoch_at(partition(0), Offset(1)).unwrap(), 1);
    assert_eq!(broker.logs.leader_epoch_at(partition(0), Offset(2)).unwrap(), 10);
}

#[test]
fn p25_all_segments_are_taken_with_every_codec_and_all_but_deleted_ones() {
    let config = LogConfig { segment_bytes: 1024, file_delete_delay_ms: 0, ..LogConfig::default() };
    let mut kafka = Kafka::with(config.clone());
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    for round in 0..40 {
        kafka.append(batch_of(codecs[round % codecs.len()], &[NOW + round as i64; 4]));
    }
    let stored = spans(&kafka.world.read_all(Offset(0)));
    let segments = |disk: &dyn Disk| {
        disk.list("t-0").unwrap().iter().filter(|entry| entry.name.ends_with(".log")).count()
    };
    let all = segments(&*kafka.world.disk());
    assert!(all > 4);
    let stopped = kafka.stop();
    // Retention moved the log start, and was about to remove the files.
    stopped.write("log-start-offset-checkpoint", b"0\n1\nt 0 80\n");
    let target = Target::with(config);
    stopped.import(&target).unwrap();
    assert!(segments(&*target.disk()) < all);
    let mut broker = target.start();
    assert!(broker.clean, "what was checked just now need not be read again");
    assert_eq!(broker.offsets(), (80..160).collect::<Vec<_>>());
    assert_eq!(stored.last(), Some(&(156, 159)));
    let found = broker.logs.offset_for_time(partition(0), NOW + 30).unwrap().unwrap();
    assert_eq!(found.offset, Offset(120));
}

#[test]
fn p25_idempotent_producers_go_on_and_their_ids_are_not_handed_out_again() {
    let mut kafka = Kafka::new();
    kafka.append(producer_batch(4_000, 2, 0, 3));
    kafka.append(producer_batch(4_000, 2, 3, 2));
    let stopped = kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::producer_ids(3_000),
    ]);
    let target = Target::new();
    stopped.import(&target).unwrap();
    let mut broker = target.start();
    let again = broker.append(producer_batch(4_000, 2, 3, 2));
    assert!(again.duplicate && again.base_offset == Offset(3));
    let lost = broker.logs.append(partition(0), producer_batch(4_000, 2, 6, 1), Origin::Client, NOW);
    assert!(matches!(lost, Err(AppendError::OutOfOrderSequence { .. })));
    assert_eq!(broker.append(producer_batch(4_000, 2, 5, 1)).base_offset, Offset(5));
    assert!(broker.metadata.next_producer_ids(10).unwrap() > 4_000);
}

#[test]
fn p25_what_the_metadata_log_handed_out_counts_too() {
    let mut kafka = Kafka::new();
    kafka.append(batch(1));
    let stopped = kafka.stop_with(&[
        record::topic(TOPIC, ID),
        record::partition(ID, 0, 0),
        record::producer_ids(7_000),
        record::config(32, "workers", "share.auto.offset.reset", Some("earliest")),
    ]);
    let target = Target::new();
    stopped.import(&target).unwrap();
    let broker = target.start();
    assert_eq!(broker.metadata.next_producer_ids(10).unwrap(), 7_000);
    let groups = broker.metadata.group_configs().unwrap();
    assert_eq!(groups["workers"]["share.auto.offset.reset"], "earliest");
}

#[test]
fn p25_holes_of_a_compacted_log_stay_holes() {
    let config = LogConfig { compact: true, ..LogConfig::default() };
    let mut kafka = Kafka::with(config.clone());
    for _ in 0..3 {
        kafka.append(batch(10));
    }
    let stopped = kafka.stop();
    // As the cleaner leaves it: the middle batch is gone.
    let path = "t-0/00000000000000000000.log";
    let bytes = stopped.read(path);
    let size = bytes.len() / 3;
    stopped.write(path, &[&bytes[..size], &bytes[2 * size..]].concat());
    let file = stopped.disk().open(path).unwrap();
    file.set_len(2 * size as u64).unwrap();
    stopped.write("cleaner-offset-checkpoint", b"0\n1\nt 0 25\n");
    let target = Target::with(config);
    stopped.import(&target).unwrap();
    for _ in 0..2 {
        let mut broker = target.start();
        assert_eq!(broker.bounds(), (0, 30));
        assert_eq!(broker.offsets(), (0..10).chain(20..30).collect::<Vec<_>>());
    }
}

#[test]
fn p25_what_was_deleted_whole_stays_at_its_offset() {
    let mut kafka = Kafka::new();
    kafka.append(batch(10));
    kafka.world.logs().delete_records(partition(0), Offset(10)).unwrap();
    let stopped = kafka.stop();
    let target = Target::new();
    stopped.import(&target).unwrap();
    let mut broker = target.start();
    assert_eq!(broker.bounds(), (10, 10));
    assert_eq!(broker.append(batch(1)).base_offset, Offset(10));
}

#[test]
fn p25_the_metadata_log_may_lie_in_a_directory_of_its_own() {
    let mut kafka = Kafka::new();
    kafka.append(batch(5));
    let stopped = kafka.stop();
    let metadata = Arc::new(SimDisk::new(3));
    let log = "__cluster_metadata-0/00000000000000000000.log";
    metadata.create_dir("__cluster_metadata-0").unwrap();
    for path in ["meta.properties", log] {
        metadata.create(path).unwrap().write_all_at(&stopped.read(path), 0).unwrap();
    }
    stopped.disk().remove_dir_all("__cluster_metadata-0").unwrap();
    let disks: Vec<(String, Arc<dyn Disk>)> =
        vec![("/kafka".to_owned(), stopped.disk()), ("/metadata".to_owned(), metadata)];
    // Nobody marks that one as closed in order.
    let source = Source::open(disks, false).unwrap();
    let plan = source.plan(TOPIC, ID, 0, false).unwrap();
    assert_eq!((plan.log_start, plan.end), (Offset(0), Offset(5)));
}
