use super::*;
use crate::disk::SimDisk;

fn topic(name: &str, id: u8) -> TopicMetadata {
    TopicMetadata {
        name: name.into(),
        id: TopicId([id; 16]),
        partitions: 3,
        configs: Configs::from([("retention.ms".into(), "5".into()), ("x".into(), String::new())]),
    }
}

fn with_disk() -> (Arc<SimDisk>, Arc<dyn Disk>) {
    let sim = Arc::new(SimDisk::new(7));
    let disk: Arc<dyn Disk> = Arc::clone(&sim) as Arc<dyn Disk>;
    (sim, disk)
}

#[test]
fn r02_what_was_deleted_stays_deleted_over_power_cuts() {
    let (sim, disk) = with_disk();
    let store = Metadata::open(&disk).unwrap();
    assert!(store.create_topic(&topic("a", 1)).unwrap());
    assert!(store.create_topic(&topic("ab", 2)).unwrap());
    assert!(!store.create_topic(&topic("a", 3)).unwrap());
    assert!(store.delete_topic("a").unwrap());
    assert!(!store.delete_topic("a").unwrap());
    assert!(store.add_partitions("ab", 5).unwrap());
    assert!(!store.add_partitions("ab", 4).unwrap());
    store.set_topic_configs("ab", &[("x", None), ("y", Some("1"))]).unwrap();
    store.set_group_config("g", "sluice.share.order", Some("key")).unwrap();
    store.set_group_config("h", "p", Some("q")).unwrap();
    store.set_group_config("h", "p", None).unwrap();
    drop(store);
    sim.crash();
    let store = Metadata::open(&disk).unwrap();
    let mut expected = topic("ab", 2);
    expected.partitions = 5;
    expected.configs = Configs::from([("retention.ms".into(), "5".into()), ("y".into(), "1".into())]);
    assert_eq!(store.topics().unwrap(), [expected]);
    let groups = BTreeMap::from([("g".into(), Configs::from([("sluice.share.order".into(), "key".into())]))]);
    assert_eq!(store.group_configs().unwrap(), groups);
}

#[test]
fn r14_a_newer_format_is_refused_and_the_first_one_is_read() {
    let (_, disk) = with_disk();
    let store = Metadata::open(&disk).unwrap();
    assert!(store.create_topic(&topic("a", 1)).unwrap());
    let set = |store: &Metadata, format: Option<u64>| {
        store
            .write(|transaction| {
                let mut counters = transaction.open_table(COUNTERS)?;
                let before = match format {
                    Some(format) => counters.insert(FORMAT_NAME, format)?,
                    None => counters.remove(FORMAT_NAME)?,
                };
                Ok(before.map(|value| value.value()))
            })
            .unwrap()
    };
    assert_eq!(set(&store, None), Some(FORMAT), "a store says what it is");
    drop(store);
    let store = Metadata::open(&disk).unwrap();
    assert_eq!(store.topics().unwrap(), [topic("a", 1)], "the first stores did not");
    set(&store, Some(FORMAT + 1));
    drop(store);
    for _ in 0..2 {
        let refused = Metadata::open(&disk).unwrap_err();
        assert!(matches!(refused, StorageError::NewerFormat { found, .. } if found == FORMAT + 1));
        assert!(refused.to_string().contains("start the release that wrote it"), "{refused}");
    }
}

#[test]
fn r04_the_epoch_goes_up_after_an_unclean_stop_and_never_back() {
    let (sim, disk) = with_disk();
    let mut boots = Vec::new();
    for clean in [false, true, false, false, true] {
        let store = Metadata::open(&disk).unwrap();
        let boot = store.begin_boot(clean).unwrap();
        boots.push((boot.boot, boot.leader_epoch));
        sim.crash();
        drop(store);
    }
    assert_eq!(boots, [(1, 0), (2, 0), (3, 1), (4, 2), (5, 2)]);
}

#[test]
fn p18_numbers_are_never_handed_out_twice() {
    let (sim, disk) = with_disk();
    let store = Metadata::open(&disk).unwrap();
    assert_eq!(store.next_producer_ids(1000).unwrap(), 0);
    assert_eq!((store.group_number("a").unwrap(), store.group_number("b").unwrap()), (0, 1));
    assert!(store.remove_group("b").unwrap());
    assert!(!store.remove_group("b").unwrap());
    sim.crash();
    drop(store);
    let store = Metadata::open(&disk).unwrap();
    assert_eq!(store.next_producer_ids(1).unwrap(), 1000);
    assert_eq!((store.group_number("b").unwrap(), store.group_number("a").unwrap()), (2, 0));
    assert_eq!(store.group_numbers().unwrap(), BTreeMap::from([("a".into(), 0), ("b".into(), 2)]));
    assert_eq!(store.cluster_id([0; 16]).unwrap(), "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(store.cluster_id([1; 16]).unwrap(), "AAAAAAAAAAAAAAAAAAAAAA");
}

#[test]
fn a_store_that_was_not_finished_is_begun_anew() {
    for seed in 0..50 {
        let sim = Arc::new(SimDisk::new(seed));
        let disk: Arc<dyn Disk> = Arc::clone(&sim) as Arc<dyn Disk>;
        let store = Metadata::open(&disk).unwrap();
        assert_eq!(sim.sync_count(), 0, "a start on an empty directory waits for no sync here");
        drop(store);
        sim.crash();
        let store = Metadata::open(&disk).unwrap();
        assert_eq!(store.begin_boot(false).unwrap(), Boot { boot: 1, leader_epoch: 0 });
        sim.crash();
        let store = Metadata::open(&disk).unwrap();
        assert_eq!(store.begin_boot(false).unwrap(), Boot { boot: 2, leader_epoch: 1 });
        store.group_number("g").unwrap();
        sim.crash();
        assert_eq!(Metadata::open(&disk).unwrap().group_numbers().unwrap().len(), 1);
    }
}

#[test]
fn a_damaged_store_is_refused_by_name_and_not_by_a_panic() {
    let (_, disk) = with_disk();
    let store = Metadata::open(&disk).unwrap();
    for number in 0..200 {
        assert!(store.create_topic(&topic(&format!("topic-{number}"), number)).unwrap());
    }
    drop(store);
    let whole = disk.read(METADATA_FILE).unwrap().unwrap();
    assert_eq!(Metadata::open(&disk).unwrap().topics().unwrap().len(), 200);
    let refused = |bytes: &[u8]| {
        disk.create(METADATA_FILE).unwrap().write_all_at(bytes, 0).unwrap();
        let error = Metadata::open(&disk).unwrap_err().to_string();
        assert!(error.contains(METADATA_FILE) && error.contains("backup"), "{error}");
        assert_eq!(disk.read(METADATA_FILE).unwrap().unwrap(), bytes);
    };
    refused(&whole[..whole.len() / 2]);
    refused(&[]);
    let mut garbled = whole.clone();
    garbled[4096 * 3..].iter_mut().enumerate().for_each(|(at, byte)| *byte ^= (at % 251) as u8);
    refused(&garbled);
}
