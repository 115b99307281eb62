//! Whether a range of a file is in memory, and getting it there: neither `sendfile` on a network thread nor the shard's
//! worker must wait for a disk.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;

use coordinator::io::FoundBatches;
use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;
use storage::{LogSlice, PagePlaces};

use super::Data;

/// One byte in so many is asked for: the kernel reads ahead in pieces of about this size, and drops in such pieces.
const PROBE_BYTES: u64 = 128 << 10;
/// Bytes read at once while getting a range into memory.
const READ_BYTES: usize = 64 << 10;

/// The ranges among these that are not in memory as a whole, as far as can be told without waiting.
pub(crate) fn missing<E>(found: &[Result<FoundBatches<Data>, E>]) -> Vec<LogSlice> {
    found
        .iter()
        .flatten()
        .filter_map(|found| match &found.data {
            Data::Log(slice) if !is_resident(slice) => Some(slice.clone()),
            Data::Log(_) | Data::Memory(_) => None,
        })
        .collect()
}

/// Reads ranges into the page cache. What cannot be read is left to whoever sends it.
pub(crate) fn fetch(slices: &[LogSlice]) {
    for slice in slices {
        if let Some(file) = slice.os_file() {
            fetch_range(file, slice.position(), slice.len());
        }
    }
}

/// Whether pages of share state are in memory.
pub(crate) fn are_resident(places: &PagePlaces) -> bool {
    places.os_file().is_none_or(|file| {
        places.ranges().iter().all(|&(position, len)| is_range_resident(file, position, len))
    })
}

/// Reads pages of share state into the page cache. What cannot be read is left to whoever reads it.
pub(crate) fn fetch_pages(places: &PagePlaces) {
    let Some(file) = places.os_file() else { return };
    for &(position, len) in places.ranges() {
        fetch_range(file, position, len);
    }
}

fn fetch_range(file: &File, position: u64, len: u64) {
    let _ = rustix::fs::fadvise(file, position, std::num::NonZeroU64::new(len), Advice::WillNeed);
    let mut scratch = vec![0; READ_BYTES];
    let (mut position, end) = (position, position + len);
    while position < end {
        match file.read_at(&mut scratch, position) {
            Ok(0) | Err(_) => break,
            Ok(count) => position += count as u64,
        }
    }
}

fn is_resident(slice: &LogSlice) -> bool {
    slice.os_file().is_none_or(|file| is_range_resident(file, slice.position(), slice.len()))
}

fn is_range_resident(file: &File, start: u64, len: u64) -> bool {
    let end = start + len;
    if start == end {
        return true;
    }
    let probes = (start..end).step_by(usize::try_from(PROBE_BYTES).expect("128 KiB")).chain([end - 1]);
    probes.into_iter().all(|position| is_byte_resident(file, position))
}

fn is_byte_resident(file: &File, position: u64) -> bool {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], position, ReadWriteFlags::NOWAIT) {
        Ok(count) => count == 1,
        // A file system that cannot tell: a wait there is as likely as anywhere.
        Err(error) => error == rustix::io::Errno::OPNOTSUPP,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use records::ids::{PartitionId, TopicId};
    use storage::{Boot, DataDir, LogConfig, Logs, Options, OsDisk};

    use super::*;

    #[test]
    fn pages_are_in_memory_once_they_were_fetched() {
        let directory = tempfile::tempdir().unwrap();
        let id = PartitionId { topic: TopicId([7; 16]), index: 0 };
        let data_dir = DataDir::open(Arc::new(OsDisk::new(directory.path()).unwrap())).unwrap();
        let mut logs = Logs::open(data_dir, Options::default(), Boot { boot: 1, leader_epoch: 0 }).unwrap();
        logs.open_partition(id, "t", LogConfig::default()).unwrap();
        logs.open_events(id, 1).unwrap();
        let pages: Vec<(u64, Bytes)> = (0..40).map(|id| (id, vec![id as u8; 60_000].into())).collect();
        logs.write_snapshot(id, 1, 0, b"snapshot", &pages, &[]).unwrap();
        let job = logs.sync_job(id).unwrap().unwrap();
        logs.sync_done(job.run()).unwrap();
        let ids: Vec<u64> = (0..40).collect();
        let places = logs.page_places(id, 1, &ids).unwrap().unwrap();
        let file = places.os_file().unwrap();
        // A file system in memory keeps it all the same.
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
        fetch_pages(&places);
        assert!(are_resident(&places));
        assert_eq!(logs.read_pages(id, 1, &ids).unwrap().len(), 40);
    }
}
