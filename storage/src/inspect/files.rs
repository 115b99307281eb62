//! What else stands in a partition's directory: snapshots, share state, and what belongs to no segment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use records::ids::Offset;

use super::{Depth, Left, PartitionReport};
use crate::disk::{Disk, Entry, join};
use crate::error::{IoContext, StorageError};
use crate::event_log;
use crate::index::txn;
use crate::key_index;
use crate::log::SWAP;
use crate::producer_state::{SIDECAR, SNAPSHOT, snapshot};
use crate::segment::base_of;

/// Files of a segment beside its log.
const BESIDE: [&str; 4] = [".index", ".timeindex", txn::SUFFIX, key_index::SUFFIX];

pub(super) fn others(
    disk: &Arc<dyn Disk>,
    directory: &str,
    entries: &[Entry],
    left: &Left,
    depth: Depth,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let at = |suffix: &'static str| {
        entries.iter().filter_map(move |entry| base_of(&entry.name, suffix)).collect::<BTreeSet<Offset>>()
    };
    let (logs, snapshots) = (at(".log"), at(SNAPSHOT));
    let groups: BTreeSet<u64> = entries.iter().filter_map(|entry| event_log::name_of(&entry.name)).collect();
    let mut state: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in entries {
        let path = join(directory, &entry.name);
        let read =
            || disk.read(&path).doing("read", &path).map(|bytes| Bytes::from(bytes.unwrap_or_default()));
        if let Some(group) = event_log::name_of(&entry.name) {
            *state.entry(group).or_default() += entry.len;
            if depth == Depth::Verify {
                match event_log::whole(&read()?, &path) {
                    // It is made with its first events.
                    Ok(None) if entry.len == 0 && left.is_clean => {
                        report.find(&path, None, "is empty: what a share group had settled is lost");
                    }
                    Ok(None) => {}
                    Ok(Some(position)) => {
                        report.find(&path, Some(position), "no valid frame; the tail is torn, or damaged");
                    }
                    Err(error) => report.find(&path, None, error.to_string()),
                }
            }
            continue;
        }
        if let Some(group) = event_log::name_of_pages(&entry.name) {
            if groups.contains(&group) {
                *state.entry(group).or_default() += entry.len;
            } else if depth == Depth::Verify && left.is_clean {
                report.find(&path, None, "stands beside no events: the state of a share group is lost");
            }
            continue;
        }
        if depth == Depth::Describe {
            continue;
        }
        if let Some(at) = base_of(&entry.name, SNAPSHOT) {
            if snapshot::decode(&read()?).is_none() {
                report.find(&path, None, "is no producer snapshot of version 1, or damaged");
            } else if left.is_clean && at > report.end {
                report.find(&path, None, format!("tells of producers behind the log's end {}", report.end));
            }
        }
        // A kill may leave some of these, and the next start removes them.
        if !left.is_clean {
            continue;
        }
        let base = BESIDE.iter().find_map(|suffix| base_of(&entry.name, suffix));
        if base.is_some_and(|base| !logs.contains(&base)) {
            report.find(&path, None, "stands beside no log file: its segment was removed by hand, or lost");
        }
        if base_of(&entry.name, SIDECAR).is_some_and(|at| !snapshots.contains(&at)) {
            report.find(&path, None, "stands beside no producer snapshot");
        }
        if entry.name.ends_with(SWAP) {
            report.find(
                &path,
                None,
                "no compaction was under way; the next start puts it in a segment's place",
            );
        }
    }
    report.share_state = state.into_iter().collect();
    if depth == Depth::Verify {
        for group in groups {
            pages(&**disk, directory, group, report)?;
        }
    }
    Ok(())
}

/// Checks the pages that a share group's last snapshot names.
fn pages(
    disk: &dyn Disk,
    directory: &str,
    group: u64,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let damaged = match event_log::damaged_pages(disk, directory, group) {
        // The events themselves are told of above.
        Err(StorageError::Damaged { .. }) => return Ok(()),
        damaged => damaged?,
    };
    let path = join(directory, &event_log::pages_name(group));
    for page in damaged {
        let what = format!("page {} of a share group's state is damaged", page.id);
        report.find(&path, Some(page.position), what);
    }
    Ok(())
}
