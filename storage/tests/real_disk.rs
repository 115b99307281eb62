//! The same on a real directory: locks, restarts, files that Kafka's users look for.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use records::batch::BatchBuilder;
use records::ids::{Offset, PartitionId, TopicId};
use records::{Batches, Codec, TimestampType};
use storage::{
    AppendError, DataDir, Disk, LogConfig, Logs, Metadata, Options, Origin, OsDisk, StorageError,
    TopicMetadata,
};

const PARTITION: PartitionId = PartitionId { topic: TopicId([0x17; 16]), index: 0 };
const NOW: i64 = 1_790_000_000_000;

struct Broker {
    logs: Logs,
    metadata: Metadata,
}

fn start(directory: &Path) -> Result<Broker, StorageError> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory).expect("the directory is there"));
    let data_dir = DataDir::open(disk)?;
    let metadata = Metadata::open(data_dir.disk())?;
    let boot = metadata.begin_boot(data_dir.was_clean())?;
    let cluster_id = metadata.cluster_id([3; 16])?;
    let options = Options { cluster_id, directory_id: [5; 16], ..Options::default() };
    let mut logs = Logs::open(data_dir, options, boot)?;
    let config = LogConfig { segment_bytes: 64 << 10, ..LogConfig::default() };
    logs.open_partition(PARTITION, "flights", config)?;
    Ok(Broker { logs, metadata })
}

fn batch(count: usize) -> BytesMut {
    let mut builder = BatchBuilder::new(Codec::Lz4, TimestampType::Create);
    for index in 0..count {
        builder.append(NOW, Some(format!("key {index}").as_bytes()), Some(&[b'v'; 100]), &[]);
    }
    BytesMut::from(&builder.build(Offset(0), -1)[..])
}

fn append(broker: &mut Broker, count: usize) -> Result<Offset, AppendError> {
    broker.logs.append(PARTITION, batch(count), Origin::Client, NOW).map(|appended| appended.base_offset)
}

fn count(broker: &mut Broker) -> usize {
    let (mut from, mut records) = (Offset(0), 0);
    loop {
        let slice = broker.logs.read(PARTITION, from, 1 << 20, Offset::MAX, true).expect("it can be read");
        if slice.is_empty() {
            return records;
        }
        // As sendfile does: the bytes are those of the file at that place.
        let mut bytes = vec![0; slice.len() as usize];
        let file = slice.os_file().expect("a real file lies behind it");
        file.read_exact_at(&mut bytes, slice.position()).expect("a slice lies within its file");
        for batch in Batches::new(&bytes) {
            let batch = batch.expect("a slice holds whole batches");
            assert!(batch.crc_is_valid());
            records += batch.record_count() as usize;
            from = batch.next_offset();
        }
    }
}

#[test]
fn a_second_broker_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let broker = start(directory.path()).unwrap();
    assert!(matches!(start(directory.path()), Err(StorageError::Locked)));
    drop(broker);
    start(directory.path()).unwrap();
}

#[test]
fn survives_stops_and_kills() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = 0;
    for life in 0..6 {
        let mut broker = start(directory.path()).unwrap();
        assert_eq!(count(&mut broker), expected);
        for _ in 0..100 {
            append(&mut broker, 20).unwrap();
            expected += 20;
        }
        let job = broker.logs.sync_job(PARTITION).unwrap().unwrap();
        let result = std::thread::spawn(move || job.run()).join().unwrap();
        assert_eq!(broker.logs.sync_done(result).unwrap(), Offset(expected as i64));
        if life % 2 == 0 {
            broker.logs.close().unwrap();
        }
    }
    assert_eq!(start(directory.path()).unwrap().logs.facts(PARTITION).unwrap().leader_epoch, 3);
}

#[test]
fn the_files_are_those_of_kafka() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    for _ in 0..300 {
        append(&mut broker, 20).unwrap();
    }
    broker.logs.delete_records(PARTITION, Offset(11)).unwrap();
    broker.logs.close().unwrap();
    let text = |name: &str| {
        let mut text = String::new();
        fs::File::open(directory.path().join(name)).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(text("recovery-point-offset-checkpoint"), "0\n1\nflights 0 6000\n");
    assert_eq!(text("replication-offset-checkpoint"), "0\n1\nflights 0 6000\n");
    assert_eq!(text("log-start-offset-checkpoint"), "0\n1\nflights 0 11\n");
    assert_eq!(text("flights-0/leader-epoch-checkpoint"), "0\n1\n0 11\n");
    assert_eq!(text("flights-0/partition.metadata"), "version: 0\ntopic_id: FxcXFxcXFxcXFxcXFxcXFw");
    assert_eq!(text(".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":1}");
    let meta = text("meta.properties");
    for line in ["version=1", "node.id=1", "cluster.id=AwMDAwMDAwMDAwMDAwMDAw"] {
        assert!(meta.lines().any(|found| found == line), "{meta}");
    }
    let found = start(directory.path()).unwrap().logs.partitions_on_disk().unwrap();
    assert_eq!((found[0].topic.as_str(), found[0].index), ("flights", 0));
    assert_eq!(found[0].topic_id, Some(PARTITION.topic));
}

#[test]
fn r12_idle_partitions_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    for index in 1..1000 {
        let id = PartitionId { topic: PARTITION.topic, index };
        broker.logs.open_partition(id, "flights", LogConfig::default()).unwrap();
        assert!(broker.logs.read(id, Offset(0), 1, Offset::MAX, true).unwrap().is_empty());
    }
    let directories = fs::read_dir(directory.path()).unwrap();
    assert_eq!(directories.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 0);
    broker.logs.close().unwrap();
}

#[test]
fn many_dirty_partitions_close_with_one_sync() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    for index in 1..100 {
        let id = PartitionId { topic: PARTITION.topic, index };
        broker.logs.open_partition(id, "flights", LogConfig::default()).unwrap();
        broker.logs.append(id, batch(3), Origin::Client, NOW).unwrap();
    }
    broker.logs.close().unwrap();
    let mut broker = start(directory.path()).unwrap();
    for index in 1..100 {
        let id = PartitionId { topic: PARTITION.topic, index };
        let facts = broker.logs.open_partition(id, "flights", LogConfig::default()).unwrap();
        assert_eq!((facts.end, facts.synced), (Offset(3), Offset(3)));
    }
}

#[test]
fn a_directory_of_another_topic_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    append(&mut broker, 3).unwrap();
    broker.logs.close().unwrap();
    let path = directory.path().join("flights-0/partition.metadata");
    fs::write(path, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ").unwrap();
    let mut broker = start(directory.path()).unwrap();
    assert_eq!(count(&mut broker), 0);
    append(&mut broker, 2).unwrap();
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("flights-0"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn metadata_and_events_live_in_the_same_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    let topic = TopicMetadata {
        name: "flights".into(),
        id: PARTITION.topic,
        partitions: 1,
        configs: [("retention.ms".to_owned(), "1".to_owned())].into(),
    };
    assert!(broker.metadata.create_topic(&topic).unwrap());
    let group = broker.metadata.group_number("any / group \u{1f980}").unwrap();
    let (facts, _) = broker.logs.open_events(PARTITION, group).unwrap();
    assert!(!facts.existed);
    broker.logs.append_events(PARTITION, group, 0, &[Bytes::from("granted")]).unwrap();
    broker.logs.write_snapshot(PARTITION, group, 0, b"window", &[], &[]).unwrap();
    broker.logs.append_events(PARTITION, group, 0, &[Bytes::from("settled")]).unwrap();
    let job = broker.logs.sync_job(PARTITION).unwrap().unwrap();
    let result = job.run();
    broker.logs.sync_done(result).unwrap();
    drop(broker);

    let mut broker = start(directory.path()).unwrap();
    assert_eq!(broker.metadata.topics().unwrap(), [topic]);
    assert_eq!(broker.logs.partitions_with_events(group), [PARTITION]);
    assert_eq!(broker.logs.events_on_disk(PARTITION).unwrap(), [group]);
    let (facts, replay) = broker.logs.open_events(PARTITION, group).unwrap();
    assert!(facts.existed && facts.bytes_since_snapshot > 0);
    assert_eq!(replay.snapshot, Some((0, Bytes::from("window"))));
    assert_eq!(replay.events, [(0, Bytes::from("settled"))]);
    broker.logs.delete_events(PARTITION, group).unwrap();
    assert!(broker.logs.partitions_with_events(group).is_empty());
    assert!(!broker.logs.open_events(PARTITION, group).unwrap().0.existed);
}

#[test]
fn pages_of_share_state_survive_a_kill_and_go_with_their_group() {
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    broker.logs.open_events(PARTITION, 3).unwrap();
    let page = |id: u64, len: usize| (id, Bytes::from(vec![id as u8; len]));
    let pages = [page(1, 65_536), page(2, 10), page(3, 8192)];
    broker.logs.write_snapshot(PARTITION, 3, 0, b"one", &pages, &[]).unwrap();
    broker.logs.write_snapshot(PARTITION, 3, 0, b"two", &[page(4, 5000)], &[1]).unwrap();
    drop(broker);

    let mut broker = start(directory.path()).unwrap();
    let (_, replay) = broker.logs.open_events(PARTITION, 3).unwrap();
    assert_eq!(replay.snapshot, Some((0, Bytes::from("two"))));
    assert_eq!(broker.logs.pages_of(PARTITION, 3).unwrap(), [2, 3, 4]);
    let read = broker.logs.read_pages(PARTITION, 3, &[4, 2, 3]).unwrap();
    assert_eq!(read, [page(4, 5000), page(2, 10), page(3, 8192)].map(|(_, bytes)| (0, bytes)));
    let places = broker.logs.page_places(PARTITION, 3, &[3, 77]).unwrap().unwrap();
    assert!(places.os_file().is_some());
    assert_eq!(places.ranges().iter().map(|(_, len)| len).sum::<u64>(), 8192);
    assert!(matches!(broker.logs.read_pages(PARTITION, 3, &[1]), Err(StorageError::Damaged { .. })));
    assert!(matches!(broker.logs.read_pages(PARTITION, 4, &[1]), Err(StorageError::UnknownPartition)));
    broker.logs.delete_events(PARTITION, 3).unwrap();
    let left = fs::read_dir(directory.path().join("flights-0")).unwrap();
    let left =
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("share-"));
    assert_eq!(left.count(), 0);
}

#[test]
fn r12_handles_are_bounded() {
    let open_files = || fs::read_dir("/proc/self/fd").unwrap().count();
    // Other tests of this file run beside this one and hold a few of their own.
    let most = open_files() + 300;
    let directory = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    // One batch fills a segment.
    for _ in 0..150 {
        let mut large = BatchBuilder::new(Codec::None, TimestampType::Create);
        large.append(NOW, None, Some(&[b'v'; 60_000]), &[]);
        let large = BytesMut::from(&large.build(Offset(0), -1)[..]);
        broker.logs.append(PARTITION, large, Origin::Client, NOW).unwrap();
    }
    let segments = fs::read_dir(directory.path().join("flights-0")).unwrap();
    let segments =
        segments.filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "log").count();
    assert_eq!(segments, 150);
    assert!(open_files() < most, "{} are open while nobody syncs", open_files());
    assert_eq!(count(&mut broker), 150);
    broker.logs.max_timestamp(PARTITION).unwrap();
    broker.logs.offset_for_time(PARTITION, NOW + 1).unwrap();
    assert!(open_files() < most, "{} are open after reading", open_files());
    drop(broker);
    let mut broker = start(directory.path()).unwrap();
    assert!(open_files() < most, "{} are open after recovery", open_files());
    assert_eq!(count(&mut broker), 150);
}

#[test]
fn a_link_to_a_directory_is_one_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut broker = start(directory.path()).unwrap();
    append(&mut broker, 3).unwrap();
    broker.logs.close().unwrap();
    let (place, real) = (directory.path().join("flights-0"), elsewhere.path().join("flights-0"));
    fs::rename(&place, &real).unwrap();
    std::os::unix::fs::symlink(&real, &place).unwrap();
    let mut broker = start(directory.path()).unwrap();
    append(&mut broker, 2).unwrap();
    assert_eq!(count(&mut broker), 5);
    assert_eq!(broker.logs.partitions_on_disk().unwrap().len(), 1);
    broker.logs.close().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path()).unwrap());
    let listed = storage::inspect::partitions(&*disk).unwrap();
    assert_eq!(listed, [("flights".to_owned(), 0)]);
    let report = storage::inspect::inspect(&disk, "flights", 0, storage::inspect::Depth::Verify).unwrap();
    assert_eq!((report.end, report.findings), (Offset(5), vec![]));

    // Where nothing is, nothing is begun; and both say so.
    fs::rename(&real, elsewhere.path().join("away")).unwrap();
    let error = start(directory.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("flights-0") && error.contains("link"), "{error}");
    assert_eq!(storage::inspect::partitions(&*disk).unwrap(), listed);
    let looked = storage::inspect::inspect(&disk, "flights", 0, storage::inspect::Depth::Verify);
    assert!(looked.unwrap_err().to_string().contains("link"));
    fs::rename(elsewhere.path().join("away"), &real).unwrap();
    assert_eq!(count(&mut start(directory.path()).unwrap()), 5);
}

#[test]
fn a_link_that_no_topic_is_known_for_is_set_aside_itself() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("partition.metadata"), "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        .unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("known-3")).unwrap();
    std::os::unix::fs::symlink("nowhere", directory.path().join("photos-7")).unwrap();
    let mut broker = start(directory.path()).unwrap();
    broker.logs.sweep(&broker.metadata).unwrap();
    let stray = directory.path().join("known-3.00000000000000000000000000000001-stray");
    assert!(stray.is_symlink() && stray.join("partition.metadata").is_file());
    assert!(directory.path().join("photos-7").is_symlink());
}
