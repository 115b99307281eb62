//! A stopped Kafka broker with topic `t` of one partition, and what imports from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use records::batch::BatchBuilder;
use records::ids::{Offset, TopicId};
use records::{Codec, TimestampType};

use super::super::cluster::METADATA_LOG;
use super::super::{ImportError, Source, TopicPlan, refuse_existing, take_over};
use crate::disk::{Disk, SimDisk, join};
use crate::testing::{NOW, TOPIC, World, partition};
use crate::{DataDir, LogConfig, LogFacts, Logs, Metadata, Options, Origin};

pub(super) const ID: TopicId = TopicId([9; 16]);
/// An orderly stop writes it, with or without a line.
pub(super) const LOG_STARTS: &str = "log-start-offset-checkpoint";
const METADATA_FILE: &str = "__cluster_metadata-0/00000000000000000000.log";

/// Metadata records, framed as Kafka does it.
pub(super) mod record {
    use records::ids::TopicId;

    fn framed(kind: u8, version: u8, body: &[&[u8]]) -> Vec<u8> {
        [&[1, kind, version], &*body.concat(), &[0]].concat()
    }

    fn string(text: &str) -> Vec<u8> {
        [&[text.len() as u8 + 1], text.as_bytes()].concat()
    }

    pub(crate) fn topic(name: &str, id: TopicId) -> Vec<u8> {
        framed(2, 0, &[&string(name), &id.0])
    }

    pub(crate) fn remove_topic(id: TopicId) -> Vec<u8> {
        framed(9, 0, &[&id.0])
    }

    pub(crate) fn partition(id: TopicId, index: i32, leader_epoch: i32) -> Vec<u8> {
        let replicas = [2, 0, 0, 0, 1];
        let (leader, partition_epoch) = (1_i32.to_be_bytes(), 0_i32.to_be_bytes());
        let ids: [&[u8]; 2] = [&index.to_be_bytes(), &id.0];
        let epochs: [&[u8]; 3] = [&leader, &leader_epoch.to_be_bytes(), &partition_epoch];
        let directories: [&[u8]; 2] = [&[2], &[7; 16]];
        let lists: [&[u8]; 4] = [&replicas, &replicas, &[1], &[1]];
        framed(3, 1, &[&ids.concat(), &lists.concat(), &epochs.concat(), &directories.concat()])
    }

    pub(crate) fn partition_change(id: TopicId, index: i32) -> Vec<u8> {
        framed(5, 0, &[&index.to_be_bytes(), &id.0])
    }

    pub(crate) fn config(kind: u8, resource: &str, name: &str, value: Option<&str>) -> Vec<u8> {
        let value = value.map_or(vec![0], string);
        framed(4, 0, &[&[kind], &string(resource), &string(name), &value])
    }

    pub(crate) fn producer_ids(next: i64) -> Vec<u8> {
        framed(15, 0, &[&1_i32.to_be_bytes(), &5_i64.to_be_bytes(), &next.to_be_bytes()])
    }

    pub(crate) const BEGIN: &[u8] = &[1, 23, 0, 0];
    pub(crate) const END: &[u8] = &[1, 24, 0, 0];
    pub(crate) const ABORT: &[u8] = &[1, 25, 0, 0];
    pub(crate) const ACL: &[u8] = &[1, 18, 0, 0];
}

/// A batch of the metadata log.
pub(super) fn metadata_batch(base: i64, records: &[Vec<u8>]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, TimestampType::Create);
    for record in records {
        builder.append(NOW, None, Some(record), &[]);
    }
    builder.build(Offset(base), 1)
}

/// The broker: it writes until it is stopped.
pub(super) struct Kafka {
    pub(super) world: World,
}

impl Kafka {
    pub(super) fn new() -> Self {
        Self::with(LogConfig::default())
    }

    pub(super) fn with(config: LogConfig) -> Self {
        Self { world: World::with(1, config) }
    }

    pub(super) fn append(&mut self, batch: BytesMut) {
        self.world.append(batch).unwrap();
    }

    /// Stops it in order, with a metadata log that knows the topic.
    pub(super) fn stop(self) -> Stopped {
        self.stop_with(&[
            record::topic(TOPIC, ID),
            record::partition(ID, 0, 0),
            record::config(2, TOPIC, "retention.ms", Some("77")),
        ])
    }

    pub(super) fn stop_with(mut self, records: &[Vec<u8>]) -> Stopped {
        self.world.stop();
        let stopped = Stopped { sim: Arc::clone(&self.world.sim), config: self.world.config.clone() };
        stopped.disk().create_dir(METADATA_LOG).unwrap();
        stopped.write(METADATA_FILE, &metadata_batch(0, records));
        if stopped.disk().read_len(LOG_STARTS).unwrap().is_none() {
            stopped.write(LOG_STARTS, b"0\n0\n");
        }
        stopped
    }
}

/// A stopped broker's directory.
pub(super) struct Stopped {
    pub(super) sim: Arc<SimDisk>,
    config: LogConfig,
}

impl Stopped {
    pub(super) fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.sim) as Arc<dyn Disk>
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8]) {
        self.disk().create(path).unwrap().write_all_at(bytes, 0).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        self.disk().read(path).unwrap().unwrap()
    }

    /// Changes a byte of a file.
    pub(super) fn flip(&self, path: &str, position: usize) {
        let mut bytes = self.read(path);
        bytes[position] ^= 0x40;
        self.write(path, &bytes);
    }

    pub(super) fn set_high_watermark(&self, offset: i64) {
        self.write("replication-offset-checkpoint", format!("0\n1\n{TOPIC} 0 {offset}\n").as_bytes());
    }

    pub(super) fn open(&self, unclean: bool) -> Result<Source, ImportError> {
        Source::open(vec![("/kafka".to_owned(), self.disk())], unclean)
    }

    /// Every file with its bytes.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&*self.disk(), "")
    }

    pub(super) fn import(&self, target: &Target) -> Result<(), ImportError> {
        self.import_as(target, false)
    }

    pub(super) fn import_as(&self, target: &Target, unclean: bool) -> Result<(), ImportError> {
        let (data_dir, metadata) = target.open();
        self.import_into(&data_dir, &metadata, unclean)
    }

    pub(super) fn import_into(
        &self,
        data_dir: &DataDir,
        metadata: &Metadata,
        unclean: bool,
    ) -> Result<(), ImportError> {
        let source = self.open(unclean)?;
        refuse_existing(source.cluster().topics.values(), metadata)?;
        let endings = source.endings()?;
        let mut plans = Vec::new();
        for topic in source.cluster().topics.values().filter(|topic| !topic.name.starts_with("__")) {
            let partitions = (0..topic.partitions)
                .map(|index| source.plan(&topic.name, topic.id, index, self.config.compact))
                .collect::<Result<Vec<_>, _>>()?;
            plans.push(TopicPlan { topic: topic.clone(), config: self.config.clone(), partitions });
        }
        let groups: Vec<_> = source
            .cluster()
            .group_configs
            .iter()
            .map(|(name, configs)| (name.clone(), configs.clone()))
            .collect();
        take_over(&source, &plans, &groups, &endings, data_dir, metadata, NOW)
    }
}

fn files(disk: &dyn Disk, directory: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in disk.list(directory).unwrap() {
        let path = join(directory, &entry.name);
        if entry.is_dir {
            found.extend(files(disk, &path));
        } else {
            found.insert(path.clone(), disk.read(&path).unwrap().unwrap());
        }
    }
    found
}

/// A data directory of ours.
pub(super) struct Target {
    pub(super) sim: Arc<SimDisk>,
    pub(super) config: LogConfig,
}

impl Target {
    pub(super) fn new() -> Self {
        Self::with(LogConfig::default())
    }

    pub(super) fn with(config: LogConfig) -> Self {
        Self { sim: Arc::new(SimDisk::new(2)), config }
    }

    pub(super) fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.sim) as Arc<dyn Disk>
    }

    pub(super) fn open(&self) -> (DataDir, Metadata) {
        let data_dir = DataDir::open(self.disk()).unwrap();
        let metadata = Metadata::open(&self.disk()).unwrap();
        (data_dir, metadata)
    }

    /// A broker's start, as `broker/src/start.rs` does it.
    pub(super) fn start(&self) -> Broker {
        let (data_dir, metadata) = self.open();
        let clean = data_dir.was_clean();
        let boot = metadata.begin_boot(clean).unwrap();
        let mut logs = Logs::open(data_dir, Options::default(), boot).unwrap();
        logs.sweep(&metadata).unwrap();
        let is_known = !metadata.topics().unwrap().is_empty();
        let facts = is_known.then(|| logs.open_partition(partition(0), TOPIC, self.config.clone()).unwrap());
        Broker { logs, metadata, facts, clean, leader_epoch: boot.leader_epoch }
    }
}

/// A broker that runs on a target; dropping it kills it.
pub(super) struct Broker {
    pub(super) logs: Logs,
    pub(super) metadata: Metadata,
    /// Of the partition, where the topic is known.
    pub(super) facts: Option<LogFacts>,
    pub(super) clean: bool,
    pub(super) leader_epoch: i32,
}

impl Broker {
    /// Start, end and whether offsets lie within.
    pub(super) fn bounds(&self) -> (i64, i64) {
        let facts = self.facts.expect("the topic is known");
        (facts.log_start.0, facts.end.0)
    }

    /// Offsets of all records that can be read, from the log start on.
    pub(super) fn offsets(&mut self) -> Vec<i64> {
        let facts = self.logs.facts(partition(0)).unwrap();
        let mut offsets = Vec::new();
        let mut from = facts.log_start;
        while from < facts.end {
            let slice = self.logs.read(partition(0), from, 1 << 20, facts.end, true).unwrap();
            let bytes = slice.read().unwrap();
            for batch in records::Batches::new(&bytes) {
                let batch = batch.unwrap();
                assert!(batch.crc_is_valid());
                from = batch.next_offset();
                let records = batch.records(1 << 20).unwrap();
                offsets.extend(records.iter().map(|record| record.unwrap().offset.0));
            }
        }
        offsets.retain(|offset| *offset >= facts.log_start.0);
        offsets
    }

    pub(super) fn append(&mut self, batch: BytesMut) -> crate::Appended {
        self.logs.append(partition(0), batch, Origin::Client, NOW).unwrap()
    }
}
