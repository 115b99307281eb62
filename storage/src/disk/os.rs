//! The real disk.

use std::fs::{DirEntry, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile, DiskLock, Entry};

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDisk {
    root: PathBuf,
    /// The directory itself, open: what must be synced can be, even when no further file can be opened.
    handle: File,
}

impl OsDisk {
    /// Takes a directory as data directory, and creates it when it is missing.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root)?;
        Self::existing(root)
    }

    /// As [`OsDisk::new`], but the directory must be there.
    pub(super) fn existing(root: PathBuf) -> io::Result<Self> {
        Ok(Self { handle: File::open(&root)?, root })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A link to nothing is no directory that is missing: a disk may not be mounted, and nothing may be made in its place.
    fn missing(&self, path: &str, error: io::Error) -> io::Error {
        let is_link = std::fs::symlink_metadata(self.at(path)).is_ok_and(|metadata| metadata.is_symlink());
        if is_link && std::fs::metadata(self.at(path)).is_err() {
            let text = "it is a link to what is not there; mount or restore that, or remove the link";
            io::Error::new(io::ErrorKind::NotADirectory, text)
        } else {
            error
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.at(path))?;
        Ok(Arc::new(OsFile { file }))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.at(path))?;
        Ok(Arc::new(OsFile { file }))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        match std::fs::create_dir(self.at(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_dir = std::fs::metadata(self.at(path)).is_ok_and(|metadata| metadata.is_dir());
                if is_dir { Ok(()) } else { Err(self.missing(path, error)) }
            }
            result => result,
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let listed = std::fs::read_dir(self.at(path)).map_err(|error| self.missing(path, error))?;
        for entry in listed {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match follow(&entry) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // A link to nothing: whoever takes it for a directory is told.
            let is_dir = metadata.is_dir() || metadata.is_symlink();
            entries.push(Entry { name, is_dir, len: if is_dir { 0 } else { metadata.len() } });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.at(from), self.at(to))
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.at(path))
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        std::fs::remove_dir_all(self.at(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        match File::open(self.at(path)) {
            Ok(directory) => directory.sync_all(),
            // Want of handles is no failed sync, and must not close a log for good.
            Err(error) if is_out_of_handles(&error) => self.sync_all(),
            Err(error) => Err(error),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.handle)?)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.at(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(OsLock { _file: file })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// What a name stands for, through links; of a link to nothing the link.
fn follow(entry: &DirEntry) -> io::Result<Metadata> {
    let metadata = entry.metadata()?;
    if metadata.is_symlink() { std::fs::metadata(entry.path()).or(Ok(metadata)) } else { Ok(metadata) }
}

fn is_out_of_handles(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[derive(Debug)]
struct OsFile {
    file: File,
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn os_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

/// The operating system gives the lock up when the file is closed, also when the process is killed.
#[derive(Debug)]
struct OsLock {
    _file: File,
}

impl DiskLock for OsLock {}
