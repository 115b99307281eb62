//! Key indexes: what they cover, and whether the records are those of the log.

use std::io;
use std::sync::Arc;

use records::ids::{Offset, PartitionId, TopicId};

use super::{Depth, KeyIndexReport, PartitionReport, WINDOW_BYTES};
use crate::disk::{Disk, DiskFile, join};
use crate::error::{IoContext, StorageError};
use crate::key_index::{self, Truth};
use crate::leader_epochs::LeaderEpochs;
use crate::options::Options;
use crate::segment::file_name;
use crate::walk::Walk;

pub(super) fn partition(
    disk: &Arc<dyn Disk>,
    directory: &str,
    cleaned: Offset,
    depth: Depth,
    report: &mut PartitionReport,
) -> Result<(), StorageError> {
    let epochs = LeaderEpochs::read(&**disk, directory)?;
    let id = PartitionId { topic: report.topic_id.unwrap_or(TopicId::ZERO), index: report.partition };
    let segments = report.segments.clone();
    for (number, segment) in segments.iter().enumerate() {
        let path = join(directory, &file_name(segment.base, key_index::SUFFIX));
        let Some(file) = opened(disk, &path)? else { continue };
        let next = segments.get(number + 1).map(|next| next.base);
        let truth = Truth {
            id,
            base: segment.base,
            end: next.unwrap_or(segment.end),
            log_bytes: segment.bytes,
            log_start: report.log_start,
            epochs: &epochs,
            sealed: next.is_some(),
        };
        let log_path = join(directory, &file_name(segment.base, ".log"));
        // A broker that runs may have deleted the segment meanwhile.
        let Some(log) = opened(disk, &log_path)? else { continue };
        if truth.sealed && log.len().doing("measure", &log_path)? != segment.bytes {
            // A broker that runs has put a compacted segment in its place.
            continue;
        }
        let walk = (depth == Depth::Verify).then(|| {
            let walk = Walk::new(&log, 0, segment.bytes, WINDOW_BYTES).expecting(segment.base, cleaned);
            (&log, walk)
        });
        let inflated_max = Options::default().inflated_bytes_max;
        let seen = key_index::look(&*file, &truth, walk, inflated_max).doing("read", &path)?;
        if let Some(what) = seen.wrong.filter(|_| depth == Depth::Verify) {
            let what = format!("{what}; delete it while the broker is stopped, and it is made anew");
            report.find(&path, None, what);
        }
        report.key_indexes.push(KeyIndexReport {
            base: segment.base,
            bytes: file.len().doing("measure", &path)?,
            next: seen.next,
            records: seen.records,
        });
    }
    Ok(())
}

fn opened(disk: &Arc<dyn Disk>, path: &str) -> Result<Option<Arc<dyn DiskFile>>, StorageError> {
    match disk.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened.doing("open", path)?)),
    }
}
