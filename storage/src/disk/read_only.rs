//! A directory that is looked at and never changed: another broker's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FlockOperation, fcntl_lock};

use super::{Disk, DiskFile, DiskLock, Entry, OsDisk};

/// A directory of the operating system in which every change fails. Its files need only be readable.
#[derive(Debug)]
pub struct ReadOnlyDisk {
    root: PathBuf,
    names: OsDisk,
}

impl ReadOnlyDisk {
    /// Takes an existing directory.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        Ok(Self { names: OsDisk::existing(root.clone())?, root })
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnlyFile { file: File::open(self.root.join(path))? }))
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn create_dir(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.names.list(path)
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove_dir_all(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn sync_all(&self) -> io::Result<()> {
        refused()
    }

    /// A shared record lock on a file that must be there, such as keeps Java's `FileChannel.tryLock` away and is kept
    /// away by it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        let file = File::open(self.root.join(path))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Box::new(RecordLock { _file: file })),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug)]
struct RecordLock {
    _file: File,
}

impl DiskLock for RecordLock {}

#[derive(Debug)]
struct ReadOnlyFile {
    file: File,
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn os_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}
