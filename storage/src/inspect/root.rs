//! The files at the root of a data directory: the checkpoints, whose it is, the metadata store; and what they name that is
//! not there.

use std::collections::BTreeSet;

use records::ids::Offset;

use super::{Finding, is_clean, partitions};
use crate::checkpoints::{self, LogName};
use crate::data_dir::META;
use crate::disk::{Disk, Entry, join};
use crate::error::{IoContext, StorageError};
use crate::event_log;
use crate::import::METADATA_LOG;
use crate::log::{PARTITION_METADATA, stored_topic_id};
use crate::metadata::{Look, METADATA_FILE, look};
use crate::strays::directory_name;

/// Each with whether an orderly stop always writes it, and whether a line of it above zero says that there is a directory
/// even where the stop was no orderly one.
const CHECKPOINTS: [(&str, bool, bool); 5] = [
    (checkpoints::RECOVERY_POINT, true, true),
    (checkpoints::HIGH_WATERMARK, true, false),
    (checkpoints::LOG_START, false, true),
    (checkpoints::CLEANED, false, true),
    (checkpoints::HOLES, false, true),
];

/// What is wrong with the files at the root, and with what they say of partitions that are not there. What concerns a
/// partition as a whole bears the path of its directory.
///
/// # Errors
/// When the disk fails.
pub fn root(disk: &dyn Disk) -> Result<Vec<Finding>, StorageError> {
    let entries = disk.list("").doing("list", "the data directory")?;
    let mut root = Root { disk, is_clean: is_clean(disk)?, findings: Vec::new() };
    let mut directories: BTreeSet<LogName> = partitions(disk)?.into_iter().collect();
    directories.retain(|name| directory_name(name) != METADATA_LOG);
    root.checkpoints(&directories)?;
    // Another broker's has no store of ours.
    if !entries.iter().any(|entry| entry.name == METADATA_LOG) {
        root.metadata(&entries, &directories)?;
    }
    Ok(root.findings)
}

/// Whether a file of that name stands at the root of a data directory only.
pub(super) fn is_of_root(name: &str) -> bool {
    [META, METADATA_FILE, METADATA_LOG].contains(&name) || CHECKPOINTS.iter().any(|(file, ..)| *file == name)
}

struct Root<'a> {
    disk: &'a dyn Disk,
    is_clean: bool,
    findings: Vec<Finding>,
}

impl Root<'_> {
    fn find(&mut self, path: &str, what: impl Into<String>) {
        self.findings.push(Finding { path: path.to_owned(), position: None, what: what.into() });
    }

    fn checkpoints(&mut self, directories: &BTreeSet<LogName>) -> Result<(), StorageError> {
        let mut missing = BTreeSet::new();
        for (file, is_due, names_directories) in CHECKPOINTS {
            let Some(bytes) = self.disk.read(file).doing("read", file)? else {
                if is_due && self.is_clean {
                    self.find(file, "is missing, although the broker was stopped in order");
                }
                continue;
            };
            let Some(offsets) = std::str::from_utf8(&bytes).ok().and_then(checkpoints::parse) else {
                self.find(file, "is no offset checkpoint; a start would take it for an empty one");
                continue;
            };
            for (name, offset) in offsets {
                let partition = directory_name(&name);
                if offset < Offset::ZERO {
                    self.find(file, format!("names offset {offset} of {partition}"));
                }
                let is_told = names_directories || self.is_clean;
                if is_told && offset > Offset::ZERO && !directories.contains(&name) && missing.insert(name) {
                    self.find(&partition, format!("is missing, but {file} names its offset {offset}"));
                }
            }
        }
        Ok(())
    }

    fn metadata(&mut self, entries: &[Entry], directories: &BTreeSet<LogName>) -> Result<(), StorageError> {
        let has_meta = entries.iter().any(|entry| entry.name == META);
        let known = match look(self.disk) {
            Ok(Some(known)) => known,
            Ok(None) => {
                if has_meta || !directories.is_empty() {
                    self.find(
                        METADATA_FILE,
                        "is missing: no topic is known without it; restore it from a backup",
                    );
                }
                return Ok(());
            }
            Err(error @ StorageError::Io { .. }) => return Err(error),
            Err(error) => {
                self.find(METADATA_FILE, error.to_string());
                return Ok(());
            }
        };
        // What was imported only has none before the first start.
        if self.is_clean && !has_meta && known.boots > 0 {
            self.find(META, "is missing: nothing says whose the data directory is");
        }
        for name in directories {
            self.partition(name, &known)?;
        }
        Ok(())
    }

    fn partition(&mut self, name: &LogName, known: &Look) -> Result<(), StorageError> {
        let directory = directory_name(name);
        // What cannot be listed is told where the partition is looked at.
        let Ok(files) = self.disk.list(&directory) else { return Ok(()) };
        for file in files {
            if event_log::name_of(&file.name).is_some_and(|number| number >= known.next_group) {
                let what = "no group ever had this number: the next one that gets it would go on from here; is the \
                            metadata store an old one?";
                self.find(&join(&directory, &file.name), what);
            }
        }
        let stored = stored_topic_id(self.disk, &directory)?;
        let topic = known.topics.get(&name.0);
        let is_known = topic.is_some_and(|(id, partitions)| {
            name.1 < *partitions && stored.is_none_or(|stored| stored == *id)
        });
        // A deletion or an import that was interrupted leaves such ones.
        if self.is_clean && !is_known {
            self.find(
                &directory,
                "the metadata store knows no such partition, or another topic of that name",
            );
        }
        if self.is_clean && stored.is_none() {
            self.find(&join(&directory, PARTITION_METADATA), "names no topic");
        }
        Ok(())
    }
}
