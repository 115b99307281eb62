//! Directories at the root that look like a partition's: whose they are, and how one that nobody knows makes way.
//!
//! Invariant: nothing is removed that is not certainly ours and certainly deleted. A deletion gives the directory a
//! name that nobody else gives before anything in it is touched, and an import writes its topics' ids down before it
//! makes a directory; those may go. Whatever else the metadata store does not know (it may be an older copy that was put
//! back) is renamed to `<topic>-<partition>.<topic id>-stray`, as Kafka's `LogManager` does it, and kept. A directory
//! without any file of ours is none of our business, whatever its name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use records::ids::{Offset, TopicId};

use crate::checkpoints::{self, LogName};
use crate::disk::{Disk, join};
use crate::error::{IoContext, StorageError};
use crate::event_log;
use crate::leader_epochs;
use crate::log::{LogFacts, PARTITION_METADATA, stored_topic_id};
use crate::logs::Logs;
use crate::metadata::Metadata;
use crate::segment::{UNFINISHED, base_of};

/// Suffix of a directory that is being deleted.
pub(crate) const DELETED: &str = "-delete";
/// Suffix of a directory that is kept although no topic is known for it.
const STRAY: &str = "-stray";
/// In a directory that was set aside: what the checkpoints said of it, which they forget.
const NOTE: &str = "sluice-checkpoints";

/// Longest name of a file or directory.
const NAME_BYTES_MAX: usize = 255;
/// Longest name of a topic (Kafka's `Topic.MAX_NAME_LENGTH`).
const TOPIC_BYTES_MAX: usize = 249;
/// Directories of one partition of one topic that are set aside beside each other.
const STRAYS_MAX: u32 = 1_000;

/// A partition directory as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's index.
    pub index: i32,
    /// The topic's id; `None` when the directory does not tell.
    pub topic_id: Option<TopicId>,
}

impl Logs {
    /// Clears the data directory of what the metadata store does not know: before anything is opened. What an import
    /// left unfinished is removed, everything else is set aside.
    ///
    /// # Errors
    /// What the disk or the store says.
    pub fn sweep(&mut self, metadata: &Metadata) -> Result<(), StorageError> {
        let topics: BTreeMap<String, (TopicId, i32)> =
            metadata.topics()?.into_iter().map(|topic| (topic.name, (topic.id, topic.partitions))).collect();
        let unfinished = metadata.unfinished_import()?;
        for found in self.partitions_on_disk()? {
            let is_known = topics.get(&found.topic).is_some_and(|(id, partitions)| {
                found.topic_id.is_none_or(|stored| stored == *id) && found.index < *partitions
            });
            if is_known {
                continue;
            }
            if found.topic_id.is_some_and(|id| unfinished.contains(&id)) {
                self.remove_found(&found)?;
            } else {
                self.set_aside_found(&found)?;
            }
        }
        if !unfinished.is_empty() {
            metadata.forget_import()?;
        }
        Ok(())
    }

    /// The partition directories that are there, opened or not. What holds no file of ours is not one, and what cannot
    /// be looked into is left alone: if it is a partition's after all, opening it tells.
    pub fn partitions_on_disk(&self) -> Result<Vec<FoundPartition>, StorageError> {
        let disk = &**self.disk();
        let mut found = Vec::new();
        for entry in disk.list("").doing("list", "the data directory")? {
            let Some((topic, index)) = parse_directory(&entry.name).filter(|_| entry.is_dir) else {
                continue;
            };
            // What a checkpoint speaks of was ours, and a new topic of that name must not get what it says.
            let name = (topic.to_owned(), index);
            let is_named = [&self.recovery_points, &self.log_starts, &self.cleaned, &self.holes]
                .iter()
                .any(|offsets| offsets.contains_key(&name));
            let looked = stored_topic_id(disk, &entry.name)
                .and_then(|id| Ok((id, id.is_some() || is_named || has_files(disk, &entry.name)?)));
            match looked {
                Ok((topic_id, true)) => {
                    found.push(FoundPartition { topic: topic.to_owned(), index, topic_id });
                }
                Ok((_, false)) => {}
                Err(StorageError::Io { source, .. }) if is_closed(&source) => {
                    tracing::warn!(directory = entry.name, error = %source, "cannot look into it, left alone");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Sets a partition directory aside that is not open. Its new name.
    ///
    /// # Errors
    /// What the disk says; the directory is there then, under one of its names.
    pub fn set_aside_found(&mut self, found: &FoundPartition) -> Result<String, StorageError> {
        self.set_aside(&(found.topic.clone(), found.index))
    }

    /// Removes a partition directory that is not open, for good: it must be certain that nobody misses it.
    fn remove_found(&mut self, found: &FoundPartition) -> Result<(), StorageError> {
        let name = (found.topic.clone(), found.index);
        tracing::info!(directory = directory_name(&name), "removing what an import left unfinished");
        self.forget(&name)?;
        remove_directory(&**self.disk(), &directory_name(&name))
    }

    pub(crate) fn set_aside(&mut self, name: &LogName) -> Result<String, StorageError> {
        self.leave_note(name)?;
        // Before the name is free: nothing would tell later that they speak of another log.
        self.forget(name)?;
        set_aside(&**self.disk(), &directory_name(name))
    }

    /// Writes into the directory what the checkpoints say of it: without that, a log that was compacted could not be
    /// told from a damaged one when it is put back.
    fn leave_note(&self, name: &LogName) -> Result<(), StorageError> {
        let mut text = String::new();
        for (file, offsets) in [
            (checkpoints::LOG_START, &self.log_starts),
            (checkpoints::CLEANED, &self.cleaned),
            (checkpoints::HOLES, &self.holes),
        ] {
            if let Some(offset) = offsets.get(name) {
                text.push_str(&format!("{file} {offset}\n"));
            }
        }
        if text.is_empty() {
            // A start that died here may have left the note, and the checkpoints have forgotten.
            return Ok(());
        }
        let path = join(&directory_name(name), NOTE);
        self.disk().write_atomic(&path, text.as_bytes()).doing("write", &path)
    }

    /// What was said of a log that was set aside and is back. Checkpoints know every log that was closed or checkpointed,
    /// so only those that they do not know are looked at.
    pub(crate) fn note_of(&self, name: &LogName) -> Result<BTreeMap<String, Offset>, StorageError> {
        if self.recovery_points.contains_key(name) {
            return Ok(BTreeMap::new());
        }
        let path = join(&directory_name(name), NOTE);
        let bytes = self.disk().read(&path).doing("read", &path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let line = |line: &str| {
            let (file, offset) = line.split_once(' ')?;
            Some((file.to_owned(), Offset(offset.parse().ok()?)))
        };
        Ok(text.lines().filter_map(line).collect())
    }

    /// Takes what was said of a log that is back into the checkpoints.
    pub(crate) fn adopt_note(&mut self, name: &LogName, facts: &LogFacts) -> Result<(), StorageError> {
        let note = self.note_of(name)?;
        if note.is_empty() {
            return Ok(());
        }
        for (file, offsets) in [
            (checkpoints::HOLES, &mut self.holes),
            (checkpoints::CLEANED, &mut self.cleaned),
            (checkpoints::LOG_START, &mut self.log_starts),
        ] {
            if let Some(offset) = note.get(file) {
                let mut with = offsets.clone();
                with.insert(name.clone(), (*offset).min(facts.end));
                checkpoints::write(&**self.data_dir.disk(), file, &with)?;
                *offsets = with;
            }
        }
        let path = join(&directory_name(name), NOTE);
        self.disk().remove_file(&path).doing("remove", &path)
    }
}

/// Gives a directory that no topic is known for another name, and says so. The new name.
pub(crate) fn set_aside(disk: &dyn Disk, directory: &str) -> Result<String, StorageError> {
    let topic = stored_topic_id(disk, directory)?.unwrap_or(TopicId::ZERO);
    let taken: BTreeSet<String> =
        disk.list("").doing("list", "the data directory")?.into_iter().map(|entry| entry.name).collect();
    let aside = (0..STRAYS_MAX)
        .map(|number| match number {
            0 => capped(directory, &format!(".{topic:?}{STRAY}")),
            _ => capped(directory, &format!(".{topic:?}.{number}{STRAY}")),
        })
        .find(|aside| !taken.contains(aside))
        .ok_or_else(|| StorageError::Strays { directory: directory.to_owned() })?;
    disk.rename(directory, &aside).doing("rename", directory)?;
    disk.sync_dir("").doing("sync", "the data directory")?;
    tracing::warn!(
        directory,
        aside,
        "the metadata store does not know this partition, or knows another topic of its name: it is set aside and kept; \
         to have it back stop the broker, put back the sluice-metadata.redb that knows it and rename it to its old name; \
         if nobody needs it remove it"
    );
    Ok(aside)
}

/// Gives a partition's directory the name of one that is to be deleted (Kafka's `LocalLog.logDeleteDirName`), so that a
/// crash leaves either the whole or what a start sweeps up. The new name.
pub(crate) fn retire_directory(
    disk: &dyn Disk,
    directory: &str,
    topic: TopicId,
) -> Result<String, StorageError> {
    let retired = capped(directory, &format!(".{topic:?}{DELETED}"));
    match disk.remove_dir_all(&retired) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => result.doing("remove", &retired)?,
    }
    disk.rename(directory, &retired).doing("rename", directory)?;
    disk.sync_dir("").doing("sync", "the data directory")?;
    Ok(retired)
}

/// Removes a partition's directory at once.
pub(crate) fn remove_directory(disk: &dyn Disk, directory: &str) -> Result<(), StorageError> {
    let topic = stored_topic_id(disk, directory)?.unwrap_or(TopicId::ZERO);
    let retired = retire_directory(disk, directory, topic)?;
    disk.remove_dir_all(&retired).doing("remove", &retired)
}

/// Removes what deletions renamed and did not come to remove: names that nobody else gives.
pub(crate) fn remove_deleted(disk: &dyn Disk) -> Result<(), StorageError> {
    for entry in disk.list("").doing("list", "the data directory")? {
        if entry.is_dir && is_deleted(&entry.name) {
            disk.remove_dir_all(&entry.name).doing("remove", &entry.name)?;
        }
    }
    Ok(())
}

/// Whether a directory's name is one that [`retire_directory`] gives.
fn is_deleted(name: &str) -> bool {
    let parts = name.strip_suffix(DELETED).and_then(|name| name.rsplit_once('.'));
    parts.is_some_and(|(partition, id)| {
        let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_id && parse_directory(partition).is_some()
    })
}

/// A partition directory's name with a suffix, cut within the topic's name where it would be too long for the file system
/// (Kafka's `LocalLog.logDirNameWithSuffixCappedLength`).
fn capped(directory: &str, suffix: &str) -> String {
    let (topic, index) = directory.rsplit_once('-').unwrap_or((directory, "0"));
    let rest = format!("-{index}{suffix}");
    let topic = topic.get(..NAME_BYTES_MAX - rest.len()).unwrap_or(topic);
    format!("{topic}{rest}")
}

pub(crate) fn directory_name((topic, index): &LogName) -> String {
    format!("{topic}-{index}")
}

/// Topic and partition of `<topic>-<partition>`, just as [`directory_name`] writes them.
pub(crate) fn parse_directory(name: &str) -> Option<(&str, i32)> {
    let (topic, index) = name.rsplit_once('-')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_topic =
        !matches!(topic, "" | "." | "..") && topic.len() <= TOPIC_BYTES_MAX && topic.bytes().all(is_plain);
    // `007` is not how partition 7 is written: what has that name is another directory than that of partition 7.
    let is_index =
        index.bytes().all(|byte| byte.is_ascii_digit()) && (index == "0" || !index.starts_with('0'));
    if is_topic && is_index { Some((topic, index.parse().ok()?)) } else { None }
}

/// Whether anything in a directory bears a name that we, or a Kafka broker, give.
pub(crate) fn has_files(disk: &dyn Disk, directory: &str) -> Result<bool, StorageError> {
    let entries = disk.list(directory).doing("list", directory)?;
    Ok(entries.iter().any(|entry| {
        let name = entry.name.strip_suffix(UNFINISHED).unwrap_or(&entry.name);
        let of_segment =
            name.as_bytes().get(20) == Some(&b'.') && name.bytes().take(20).all(|byte| byte.is_ascii_digit());
        of_segment
            || [PARTITION_METADATA, leader_epochs::FILE, NOTE].contains(&name)
            || event_log::name_of(name).is_some()
            || event_log::name_of_pages(name).is_some()
    }))
}

/// Whether there is a segment in a directory, if there is a directory.
pub(crate) fn has_log(disk: &dyn Disk, directory: &str) -> Result<bool, StorageError> {
    match disk.list(directory) {
        Ok(entries) => Ok(entries.iter().any(|entry| base_of(&entry.name, ".log").is_some())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).doing("list", directory),
    }
}

/// Whether an error says that a directory is not for us to look into.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests;
