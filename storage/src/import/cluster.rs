//! What a Kafka cluster holds, as its metadata log says: the newest snapshot, and the records behind it
//! (`MetadataImage`, KIP-630, KIP-631).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::BatchView;
use records::ids::{Offset, TopicId};

use super::error::ImportError;
use super::record::{BROKER_CONFIG, GROUP_CONFIG, LeftOut, Record, TOPIC_CONFIG};
use super::source::SourceDir;
use crate::disk::{DiskFile, join};
use crate::error::IoContext;
use crate::metadata::{Configs, TopicMetadata};
use crate::options::RECOVERY_WINDOW_BYTES;
use crate::segment::{base_of, file_name};
use crate::walk::{Step, Walk};

/// The directory of the metadata log.
pub(crate) const METADATA_LOG: &str = "__cluster_metadata-0";
/// Bytes of one batch of the metadata log, as stored and inflated (Kafka writes at most 8 MiB).
const BATCH_BYTES_MAX: usize = 64 << 20;
/// Control record types (`ControlRecordType`).
const SNAPSHOT_FOOTER: i16 = 4;

/// A cluster's topics and settings.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Topics by name.
    pub topics: BTreeMap<String, TopicMetadata>,
    /// Settings of groups.
    pub group_configs: BTreeMap<String, Configs>,
    /// Settings of brokers that were set while they ran; the empty name stands for all brokers.
    pub broker_configs: BTreeMap<String, Configs>,
    /// Kinds of things that it holds and that are not taken over.
    pub left_out: BTreeSet<LeftOut>,
    /// No partition has a higher leader epoch.
    pub(super) leader_epoch: i32,
    /// The first producer id that was not handed out.
    pub(super) next_producer: i64,
}

/// Reads the metadata log in `dir`.
pub(super) fn read(dir: &SourceDir) -> Result<Cluster, ImportError> {
    let mut image = Image::default();
    let snapshot = newest_snapshot(dir)?;
    let from = match &snapshot {
        Some((name, offset)) => {
            image.read_snapshot(dir, name)?;
            *offset
        }
        None => Offset::ZERO,
    };
    image.read_log(dir, from)?;
    image.finish(dir)
}

/// Name and end offset of the newest `<end offset>-<epoch>.checkpoint`.
fn newest_snapshot(dir: &SourceDir) -> Result<Option<(String, Offset)>, ImportError> {
    let mut newest = None;
    for entry in dir.list(METADATA_LOG)? {
        let Some(stem) = entry.name.strip_suffix(".checkpoint") else { continue };
        let parts = stem.split_once('-').filter(|(offset, epoch)| offset.len() == 20 && epoch.len() == 10);
        let Some((Ok(offset), Ok(epoch))) =
            parts.map(|(offset, epoch)| (offset.parse::<i64>(), epoch.parse::<i32>()))
        else {
            continue;
        };
        newest = newest.max(Some((offset, epoch, entry.name)));
    }
    Ok(newest.map(|(offset, _, name)| (name, Offset(offset))))
}

#[derive(Clone, Debug, Default)]
struct Image {
    topics: BTreeMap<TopicId, Topic>,
    configs: BTreeMap<(i8, String), Configs>,
    left_out: BTreeSet<LeftOut>,
    leader_epoch: i32,
    next_producer: i64,
    /// Records of a metadata transaction that has not ended.
    staged: Option<Vec<Record>>,
}

#[derive(Clone, Debug)]
struct Topic {
    name: String,
    /// Leader epoch by partition.
    partitions: BTreeMap<i32, i32>,
}

impl Image {
    fn read_snapshot(&mut self, dir: &SourceDir, name: &str) -> Result<(), ImportError> {
        let path = join(METADATA_LOG, name);
        let mut whole = false;
        let file = dir.open_file(&path)?;
        each_batch(dir, &path, &file, false, |position, batch| {
            whole = batch.attributes().is_control() && control_type(batch) == Some(SNAPSHOT_FOOTER);
            self.take(batch, Offset::ZERO).map_err(|reason| dir.damaged(&path, Some(position), reason))
        })?;
        if whole { Ok(()) } else { Err(dir.damaged(&path, None, "the snapshot has no end")) }
    }

    fn read_log(&mut self, dir: &SourceDir, from: Offset) -> Result<(), ImportError> {
        let mut bases: Vec<Offset> =
            dir.list(METADATA_LOG)?.iter().filter_map(|entry| base_of(&entry.name, ".log")).collect();
        bases.sort_unstable();
        if let Some(first) = bases.first().filter(|first| **first > from) {
            let path = join(METADATA_LOG, &file_name(*first, ".log"));
            return Err(dir.damaged(&path, None, format!("there is nothing from offset {from} up to it")));
        }
        let mut next = None;
        for (index, &base) in bases.iter().enumerate() {
            let path = join(METADATA_LOG, &file_name(base, ".log"));
            // Where nobody closed it in order, what was just being written may be torn.
            let may_end_torn = !dir.is_clean && index + 1 == bases.len();
            let file = dir.open_file(&path)?;
            each_batch(dir, &path, &file, may_end_torn, |position, batch| {
                if next.is_some_and(|next| next != batch.base_offset()) {
                    return Err(dir.damaged(&path, Some(position), "offsets do not follow each other"));
                }
                next = Some(batch.next_offset());
                if batch.next_offset() <= from {
                    return Ok(());
                }
                self.take(batch, from).map_err(|reason| dir.damaged(&path, Some(position), reason))
            })?;
        }
        Ok(())
    }

    /// Takes in the records of a batch from offset `from` on.
    fn take(&mut self, batch: &BatchView<'_>, from: Offset) -> Result<(), String> {
        if batch.attributes().is_control() {
            return Ok(());
        }
        let records = batch.records(BATCH_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in records.iter() {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset >= from {
                self.stage(Record::decode(record.value.unwrap_or_default())?);
            }
        }
        Ok(())
    }

    fn stage(&mut self, record: Record) {
        match (record, &mut self.staged) {
            (Record::Begin, _) => self.staged = Some(Vec::new()),
            (Record::Abort, _) => self.staged = None,
            (Record::End, _) => {
                self.staged.take().into_iter().flatten().for_each(|record| self.apply(record));
            }
            (record, Some(staged)) => staged.push(record),
            (record, None) => self.apply(record),
        }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Topic { name, id } => {
                self.topics.insert(id, Topic { name, partitions: BTreeMap::new() });
            }
            Record::RemoveTopic { id } => {
                if let Some(topic) = self.topics.remove(&id) {
                    self.configs.remove(&(TOPIC_CONFIG, topic.name));
                }
            }
            Record::Partition { topic, index, leader_epoch } => {
                self.leader_epoch = self.leader_epoch.max(leader_epoch);
                if let Some(topic) = self.topics.get_mut(&topic) {
                    topic.partitions.insert(index, leader_epoch);
                }
            }
            Record::PartitionChange { topic, index } => {
                let partition =
                    self.topics.get_mut(&topic).and_then(|topic| topic.partitions.get_mut(&index));
                if let Some(epoch) = partition {
                    *epoch = epoch.saturating_add(1);
                    self.leader_epoch = self.leader_epoch.max(*epoch);
                }
            }
            Record::Config { kind, resource, name, value } => {
                let configs = self.configs.entry((kind, resource)).or_default();
                match value {
                    Some(value) => configs.insert(name, value),
                    None => configs.remove(&name),
                };
            }
            Record::ProducerIds { next } => self.next_producer = self.next_producer.max(next),
            Record::LeftOut(what) => {
                self.left_out.insert(what);
            }
            Record::Begin | Record::End | Record::Abort | Record::Other => {}
        }
    }

    fn finish(mut self, dir: &SourceDir) -> Result<Cluster, ImportError> {
        let mut cluster = Cluster {
            left_out: std::mem::take(&mut self.left_out),
            leader_epoch: self.leader_epoch,
            next_producer: self.next_producer,
            ..Cluster::default()
        };
        for (id, topic) in self.topics {
            let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            if topic.partitions.keys().ne((0..partitions).collect::<Vec<_>>().iter()) {
                let reason = format!("topic {} has no record of some of its partitions", topic.name);
                return Err(dir.damaged(METADATA_LOG, None, reason));
            }
            let configs = self.configs.remove(&(TOPIC_CONFIG, topic.name.clone())).unwrap_or_default();
            let name = topic.name;
            cluster.topics.insert(name.clone(), TopicMetadata { name, id, partitions, configs });
        }
        for ((kind, resource), configs) in self.configs {
            if configs.is_empty() {
                continue;
            }
            match kind {
                GROUP_CONFIG => cluster.group_configs.insert(resource, configs),
                BROKER_CONFIG => cluster.broker_configs.insert(resource, configs),
                _ => None,
            };
        }
        Ok(cluster)
    }
}

/// Hands every batch of a file to `visit`, its CRC checked.
pub(super) fn each_batch(
    dir: &SourceDir,
    path: &str,
    file: &Arc<dyn DiskFile>,
    may_end_torn: bool,
    mut visit: impl FnMut(u64, &BatchView<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let len = file.len().doing("measure", path)?;
    let mut walk = Walk::new(file, 0, len, RECOVERY_WINDOW_BYTES).checked();
    loop {
        match walk.step().doing("read", path)? {
            Step::End => return Ok(()),
            Step::Broken(_) if may_end_torn => return Ok(()),
            Step::Broken(reason) => return Err(dir.damaged(path, Some(walk.position()), reason)),
            Step::Batch(header, position) => {
                if header.size > BATCH_BYTES_MAX as u64 {
                    return Err(dir.damaged(path, Some(position), "the batch is too large"));
                }
                let bytes = walk.whole(&header, position).doing("read", path)?.unwrap_or_default();
                let batch = BatchView::parse(bytes)
                    .map_err(|error| dir.damaged(path, Some(position), error.to_string()))?;
                visit(position, &batch)?;
            }
        }
    }
}

/// The type of a control batch's first record.
fn control_type(batch: &BatchView<'_>) -> Option<i16> {
    let records = batch.records(BATCH_BYTES_MAX).ok()?;
    let first = records.iter().next()?.ok()?;
    first.key?.get(2..4)?.try_into().ok().map(i16::from_be_bytes)
}
