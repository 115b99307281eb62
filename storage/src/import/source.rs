//! The data directories of the stopped broker: whose they are, how they were left, and what lies where. Everything is
//! read, nothing written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use records::ids::{Offset, TopicId};

use super::cluster::{self, Cluster, METADATA_LOG};
use super::error::ImportError;
use crate::checkpoints::{self, LogName, OffsetCheckpoint};
use crate::data_dir::META;
use crate::disk::{Disk, DiskFile, DiskLock, Entry};
use crate::error::{IoContext, StorageError};
use crate::log::stored_topic_id;
use crate::strays::parse_directory;

/// Of `meta.properties`, since KRaft.
const META_VERSION: &str = "1";

/// One data directory.
#[derive(Debug)]
pub(super) struct SourceDir {
    /// As the user named it.
    name: String,
    pub(super) disk: Arc<dyn Disk>,
    /// Whether the broker closed it in order.
    pub(super) is_clean: bool,
    pub(super) log_starts: OffsetCheckpoint,
    /// High watermarks; `None` where the broker never got to write any.
    pub(super) ends: Option<OffsetCheckpoint>,
    pub(super) cleaned: OffsetCheckpoint,
    pub(super) recovery_points: OffsetCheckpoint,
    /// Keeps the broker from being started meanwhile.
    _lock: Option<Box<dyn DiskLock>>,
}

/// The data directories of one stopped Apache Kafka broker.
#[derive(Debug)]
pub struct Source {
    pub(super) dirs: Vec<SourceDir>,
    /// Which directory holds each partition.
    partitions: BTreeMap<LogName, usize>,
    cluster_id: String,
    cluster: Cluster,
}

impl Source {
    /// Locks and reads the directories of a broker, each with its name for messages: those of its `log.dirs`, and that of
    /// its `metadata.log.dir` where that is another one. With `unclean` they need not have been closed in order.
    ///
    /// # Errors
    /// [`ImportError`], whose text says what to do.
    pub fn open(disks: Vec<(String, Arc<dyn Disk>)>, unclean: bool) -> Result<Self, ImportError> {
        let mut dirs: Vec<SourceDir> = Vec::new();
        let mut partitions = BTreeMap::new();
        let mut owner: Option<(String, String)> = None;
        for (name, disk) in disks {
            let (dir, found) = SourceDir::open(name, disk)?;
            match &owner {
                None => owner = Some(found),
                Some(first) if *first == found => {}
                Some(_) => {
                    return Err(ImportError::OtherBroker { dir: dir.name, first: dirs[0].name.clone() });
                }
            }
            let mut holds_any = false;
            for entry in dir.list("")?.iter().filter(|entry| entry.is_dir && entry.name != METADATA_LOG) {
                let Some((topic, index)) = parse_directory(&entry.name) else { continue };
                holds_any = true;
                if partitions.insert((topic.to_owned(), index), dirs.len()).is_some() {
                    return Err(dir.damaged(&entry.name, None, "another directory holds this partition too"));
                }
            }
            if holds_any && !dir.is_clean && !unclean {
                return Err(ImportError::Unclean { dir: dir.name });
            }
            if holds_any {
                dir.check_log_starts()?;
            }
            dirs.push(dir);
        }
        let mut holders =
            dirs.iter().filter(|dir| dir.list("").is_ok_and(|entries| has(&entries, METADATA_LOG)));
        let holder = holders.next().ok_or_else(|| ImportError::NoMetadata(METADATA_LOG.to_owned()))?;
        let cluster = cluster::read(holder)?;
        let cluster_id = owner.map(|(cluster_id, _)| cluster_id).unwrap_or_default();
        Ok(Self { dirs, partitions, cluster_id, cluster })
    }

    /// What its cluster holds.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The directory with this partition, `None` where none has it or what lies there is another topic's.
    pub(super) fn dir_of(&self, name: &LogName, id: TopicId) -> Result<Option<&SourceDir>, ImportError> {
        let Some(&index) = self.partitions.get(name) else { return Ok(None) };
        let dir = &self.dirs[index];
        let stored = stored_topic_id(&*dir.disk, &format!("{}-{}", name.0, name.1))?;
        Ok((stored.is_none() || stored == Some(id)).then_some(dir))
    }

    /// The partitions of a topic that are here, whichever topic of that name they are of.
    pub(super) fn indexes_of<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = i32> + 'a {
        self.partitions.keys().filter(move |(name, _)| name == topic).map(|(_, index)| *index)
    }
}

impl SourceDir {
    /// The directory, with cluster and node id.
    fn open(name: String, disk: Arc<dyn Disk>) -> Result<(Self, (String, String)), ImportError> {
        let not_kafka = |reason: &str| ImportError::NotKafka { dir: name.clone(), reason: reason.to_owned() };
        let Some(meta) = disk.read(META).doing("read", META)? else {
            return Err(not_kafka("it has no meta.properties"));
        };
        let meta = String::from_utf8_lossy(&meta).into_owned();
        let property = |key: &str| {
            let mut lines = meta.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
        };
        if property("version").as_deref() != Some(META_VERSION) {
            return Err(not_kafka(
                "its meta.properties is not of version 1, which brokers without ZooKeeper write",
            ));
        }
        let owner = property("cluster.id").zip(property("node.id"));
        let owner = owner.ok_or_else(|| not_kafka("its meta.properties names no cluster or node"))?;
        if disk.read_len(crate::metadata::METADATA_FILE).doing("read", "the data directory")?.is_some() {
            return Err(not_kafka("it is one of Sluice"));
        }
        let lock = match disk.lock(".lock") {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ImportError::InUse { dir: name });
            }
            // A copy of a data directory may lack it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).doing("lock", &name).map_err(ImportError::from),
        };
        let mut dir = Self {
            is_clean: disk.read_len(".kafka_cleanshutdown").doing("read", &name)?.is_some(),
            name,
            disk,
            log_starts: OffsetCheckpoint::new(),
            ends: None,
            cleaned: OffsetCheckpoint::new(),
            recovery_points: OffsetCheckpoint::new(),
            _lock: lock,
        };
        dir.log_starts = dir.checkpoint(checkpoints::LOG_START)?.unwrap_or_default();
        dir.ends = dir.checkpoint(checkpoints::HIGH_WATERMARK)?;
        dir.cleaned = dir.checkpoint(checkpoints::CLEANED)?.unwrap_or_default();
        dir.recovery_points = dir.checkpoint(checkpoints::RECOVERY_POINT)?.unwrap_or_default();
        Ok((dir, owner))
    }

    /// A start makes the file of log starts, and an orderly stop writes it, with a line for each log that begins behind
    /// the first offset of its first segment (`LogManager.checkpointLogStartOffsetsInDir`): without it nothing tells of
    /// what DeleteRecords took.
    fn check_log_starts(&self) -> Result<(), ImportError> {
        let file = checkpoints::LOG_START;
        let len = self.disk.read_len(file).doing("read", &self.path(file))?;
        let reason = match len {
            None => "is missing, deleted records would rise again",
            Some(0) if self.is_clean => "is empty, deleted records would rise again",
            Some(_) => return Ok(()),
        };
        Err(ImportError::NoLogStarts { path: self.path(file), reason })
    }

    /// The high watermark of a partition, which has records or not. A broker writes them every five seconds and when it
    /// stops, a line for each partition that it serves (`ReplicaManager.checkpointHighWatermarks`). None was written of a
    /// partition that is younger than a broker that was not stopped in order: nothing of it is known to be committed.
    pub(super) fn high_watermark(
        &self,
        name: &LogName,
        has_records: bool,
    ) -> Result<Option<Offset>, ImportError> {
        let ends = self.ends.as_ref().filter(|ends| !ends.is_empty());
        let end = ends.and_then(|ends| ends.get(name)).copied();
        if end.is_none() && has_records && (self.is_clean || ends.is_none()) {
            return Err(ImportError::NoHighWatermark {
                path: self.path(checkpoints::HIGH_WATERMARK),
                topic: name.0.clone(),
                partition: name.1,
            });
        }
        Ok(end)
    }

    /// A checkpoint file; `None` where it is missing, or empty as a start makes it. A damaged one is no empty one: deleted
    /// records would rise again, and records that no client was to see would be seen.
    fn checkpoint(&self, file: &str) -> Result<Option<OffsetCheckpoint>, ImportError> {
        let bytes = self.disk.read(file).doing("read", &self.path(file))?.unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        let parsed = std::str::from_utf8(&bytes).ok().and_then(checkpoints::parse);
        parsed.map(Some).ok_or_else(|| self.damaged(file, None, "is no offset checkpoint"))
    }

    pub(super) fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.name.trim_end_matches('/'))
    }

    pub(super) fn damaged(
        &self,
        path: &str,
        position: Option<u64>,
        reason: impl Into<String>,
    ) -> ImportError {
        ImportError::Damaged { path: self.path(path), position, reason: reason.into() }
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<Entry>, StorageError> {
        self.disk.list(path).doing("list", &self.path(path))
    }

    pub(super) fn open_file(&self, path: &str) -> Result<Arc<dyn DiskFile>, StorageError> {
        self.disk.open(path).doing("open", &self.path(path))
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, StorageError> {
        Ok(self.disk.read(path).doing("read", &self.path(path))?.unwrap_or_default())
    }
}

fn has(entries: &[Entry], name: &str) -> bool {
    entries.iter().any(|entry| entry.is_dir && entry.name == name)
}
