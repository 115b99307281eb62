//! The disk seam: everything that `storage` does to files goes through these two traits.
//!
//! Paths are relative to the data directory, with `/` between parts; the empty path is the directory itself.
//! Invariant that both implementations keep: a file's bytes survive a power cut from a successful
//! [`DiskFile::sync_data`] on, its name from a successful [`Disk::sync_dir`] of its directory on, and nothing
//! else is promised.

pub mod os;
pub mod read_only;
pub mod sim;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

pub use os::OsDisk;
pub use read_only::ReadOnlyDisk;
pub use sim::SimDisk;

use crate::options::RECOVERY_WINDOW_BYTES;

/// An open file. Shared freely: readers keep it beyond its removal, as POSIX does.
pub trait DiskFile: Send + Sync + Debug {
    /// Reads at `position`; the count of bytes read, 0 at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `position`. After an error any part of them may be there.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether there is not one byte in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the bytes written so far survive a power cut (fdatasync). After an error nothing written since the
    /// last good sync may be trusted, and a later success says nothing about it.
    fn sync_data(&self) -> io::Result<()>;
    /// The file of the operating system, for `sendfile` and the like; `None` when simulated.
    fn os_file(&self) -> Option<&File>;

    /// Fills `buffer` from `position` on; `UnexpectedEof` when the file ends first.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory, or a link to one; of a link to nothing true, too, so that listing it tells.
    pub is_dir: bool,
    /// The length in bytes; 0 for a directory.
    pub len: u64,
}

/// Holds a lock file for as long as it lives.
pub trait DiskLock: Send + Sync + Debug {}

/// A data directory's names.
pub trait Disk: Send + Sync + Debug {
    /// Opens an existing file to read and write.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file, or empties an existing one.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory; no error when it is there already.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, ascending.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;
    /// Renames a file or directory within its parent, replacing a file that bears the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory survive a power cut.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Makes everything written so far survive a power cut (syncfs): cheaper than many single syncs.
    fn sync_all(&self) -> io::Result<()>;
    /// Takes a lock file; `WouldBlock` when another process holds it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>>;

    /// Reads a whole small file; `None` when there is none of that name.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = usize::try_from(file.len()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }

    /// A file's length in bytes; `None` when there is none of that name.
    fn read_len(&self, path: &str) -> io::Result<Option<u64>> {
        match self.open(path) {
            Ok(file) => file.len().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file's content as one step that survives a power cut: whoever reads it finds the old or the
    /// new content, never a mixture.
    fn write_atomic(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(path);
        let file = self.create(&temporary)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()?;
        self.rename(&temporary, path)?;
        self.sync_dir(parent(path))
    }
}

/// Where a file's new content stands until it takes the file's name.
pub(crate) fn temporary(path: &str) -> String {
    format!("{path}.tmp")
}

/// Cuts a file of `len` bytes to `to`, for good.
///
/// What is cut off may hold something whole behind what was torn, so it is overwritten first. Else a process that dies
/// between the cut and its sync leaves a file that looks whole to the next one, and behind what that one appends a power
/// cut would bring the rest back.
pub(crate) fn cut_off(file: &dyn DiskFile, to: u64, len: u64) -> Result<(), NotCut> {
    let mut at = to;
    while at < len {
        let count = (len - at).min(RECOVERY_WINDOW_BYTES as u64);
        file.write_all_at(&vec![0; count as usize], at).map_err(NotCut::Written)?;
        at += count;
    }
    file.sync_data().map_err(NotCut::Synced)?;
    file.set_len(to).map_err(NotCut::Written)?;
    file.sync_data().map_err(NotCut::Synced)
}

/// Why a file was not cut.
#[derive(Debug)]
pub(crate) enum NotCut {
    /// It may be tried again.
    Written(io::Error),
    /// What a later sync says of it is worth nothing.
    Synced(io::Error),
}

impl From<NotCut> for io::Error {
    fn from(error: NotCut) -> Self {
        match error {
            NotCut::Written(error) | NotCut::Synced(error) => error,
        }
    }
}

/// The directory part of a path; empty for a name in the data directory itself.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Joins a directory and a name.
#[must_use]
pub fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Whether an error says that the disk (or the quota) has no room left.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
