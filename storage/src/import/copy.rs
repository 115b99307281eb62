//! Copies one partition and opens the copy once, as after a crash: its indexes, those of aborted transactions too, epochs
//! and producer states are made anew from what was copied, every batch's CRC is checked on the way, and all of it is synced.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use records::ids::{Offset, PartitionId, TopicId};

use super::error::ImportError;
use super::plan::PartitionPlan;
use super::source::{Source, SourceDir};
use super::transactions::Endings;
use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};
use crate::flush;
use crate::leader_epochs::{self, LeaderEpochs};
use crate::log::{LogFacts, OpenAs, Origin, PartitionLog, stored_topic_id, write_topic_id};
use crate::metadata::TopicMetadata;
use crate::options::LogConfig;
use crate::producer_state::SNAPSHOT;
use crate::segment::file_name;
use crate::strays::{directory_name, remove_directory, set_aside};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Where copies go, and what they need there.
pub(super) struct To<'a> {
    pub(super) disk: &'a Arc<dyn Disk>,
    /// Of all that is appended.
    pub(super) leader_epoch: i32,
    pub(super) endings: &'a Endings,
    pub(super) now_ms: i64,
    /// Topics of which an earlier import may have left something.
    pub(super) unfinished: &'a BTreeSet<TopicId>,
}

/// Copies what is planned of a partition and ends its open transactions. The copy's bounds; its directory is added to
/// `made` before it is there.
pub(super) fn partition(
    source: &Source,
    topic: &TopicMetadata,
    config: &LogConfig,
    plan: &PartitionPlan,
    to: &To<'_>,
    made: &mut Vec<String>,
) -> Result<LogFacts, ImportError> {
    let To { disk, leader_epoch, endings, now_ms, unfinished } = *to;
    let name = (topic.name.clone(), plan.partition);
    let Some(dir) = source.dir_of(&name, topic.id)? else {
        return Err(ImportError::NoPartition { topic: topic.name.clone(), partition: plan.partition });
    };
    let directory = directory_name(&name);
    if !is_empty(&**disk, &directory)? {
        // What an import that was interrupted left there; or what the store has lost, or never knew.
        if stored_topic_id(&**disk, &directory)?.is_some_and(|id| unfinished.contains(&id)) {
            remove_directory(&**disk, &directory)?;
        } else {
            set_aside(&**disk, &directory)?;
        }
    }
    made.push(directory.clone());
    if plan.kept.iter().any(|segment| segment.bytes > 0) {
        disk.create_dir(&directory).doing("create", &directory)?;
        // First: it tells that all of this is the import's.
        write_topic_id(&**disk, &directory, topic.id)?;
        files(dir, plan, &directory, &**disk)?;
    }
    let left = OpenAs {
        segments: None,
        clean: false,
        names_topic: false,
        recovery_point: None,
        log_start: Some(plan.log_start),
        cleaned: Some(plan.cleaned),
        end: None,
        leader_epoch,
        rewrite: false,
    };
    let id = PartitionId { topic: topic.id, index: plan.partition };
    let mut log = PartitionLog::open(disk, id, directory.clone(), config.clone(), &left)?;
    if log.facts().end != plan.end {
        let reason = format!("the copy ends at {}, not at {}", log.facts().end, plan.end);
        return Err(StorageError::Damaged { path: directory, reason }.into());
    }
    if plan.log_start > Offset::ZERO {
        log.ensure_directory()?;
    }
    for (producer, epoch, coordinator_epoch) in log.open_transactions() {
        let mut marker = endings.marker(producer, epoch, coordinator_epoch, now_ms);
        let appended = log.append(&mut marker, Origin::Coordinator, now_ms);
        appended.map_err(|error| StorageError::Io {
            action: "end a transaction in",
            path: directory.clone(),
            source: io::Error::other(error),
        })?;
    }
    let dirty = log.finish()?;
    flush::sync(&**disk, &dirty).doing("sync", &directory)?;
    Ok(log.facts())
}

/// Whether nothing would be lost with a directory.
fn is_empty(disk: &dyn Disk, directory: &str) -> Result<bool, StorageError> {
    match disk.list(directory) {
        Ok(entries) => Ok(entries.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).doing("list", directory),
    }
}

fn files(dir: &SourceDir, plan: &PartitionPlan, directory: &str, disk: &dyn Disk) -> Result<(), ImportError> {
    for segment in &plan.kept {
        let path = join(directory, &file_name(segment.base, ".log"));
        bytes(dir, &path, segment.bytes, disk)?;
    }
    for at in &plan.snapshots {
        let path = join(directory, &file_name(*at, SNAPSHOT));
        write(disk, &path, &dir.read(&path)?)?;
    }
    let path = join(directory, leader_epochs::FILE);
    if let Some(epochs) = leader_epochs::parse_file(&dir.read(&path)?) {
        let mut kept = LeaderEpochs::default();
        for (epoch, start) in epochs.into_iter().filter(|(_, start)| *start < plan.end) {
            kept.assign(epoch, start);
        }
        if let Some(text) = kept.take_text() {
            write(disk, &path, text.as_bytes())?;
        }
    }
    Ok(())
}

/// Copies the first `len` bytes of a file. It is synced when the log is.
fn bytes(dir: &SourceDir, path: &str, len: u64, disk: &dyn Disk) -> Result<(), ImportError> {
    let from = dir.open_file(path)?;
    let to = disk.create(path).doing("create", path)?;
    let mut at = 0;
    let mut buffer = vec![0; COPY_BYTES];
    while at < len {
        let count = usize::try_from(len - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let piece = &mut buffer[..count];
        from.read_exact_at(piece, at).doing("read", &dir.path(path))?;
        to.write_all_at(piece, at).doing("write", path)?;
        at += count as u64;
    }
    Ok(())
}

fn write(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), StorageError> {
    let file = disk.create(path).doing("create", path)?;
    file.write_all_at(bytes, 0).doing("write", path)?;
    file.sync_data().doing("sync", path)
}
