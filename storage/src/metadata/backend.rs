//! redb on the disk seam: the simulated disk serves the metadata too, crashes included.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

use crate::disk::DiskFile;

/// One file as redb's storage.
#[derive(Debug)]
pub(super) struct FileBackend {
    file: Arc<dyn DiskFile>,
    unnamed: Arc<AtomicBool>,
}

impl FileBackend {
    /// While `unnamed` holds, syncs are left out: a file that no start will look at has nothing to lose, and whoever
    /// gives it its name syncs it once.
    pub(super) fn new(file: Arc<dyn DiskFile>, unnamed: Arc<AtomicBool>) -> Self {
        Self { file, unnamed }
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.unnamed.load(Ordering::Acquire) { Ok(()) } else { self.file.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}
