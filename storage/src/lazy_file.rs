//! A file that is opened when it is first needed: thousands of idle segments hold no handle.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};

/// Suffix of a file that is to be deleted (Kafka's `LogFileUtils.DELETED_FILE_SUFFIX`).
pub(crate) const DELETED: &str = ".deleted";

/// A path, and the open file once somebody asked for it.
#[derive(Debug)]
pub(crate) struct LazyFile {
    disk: Arc<dyn Disk>,
    path: String,
    handle: Option<Arc<dyn DiskFile>>,
}

impl LazyFile {
    /// A file that is there already, or will be by [`LazyFile::create`].
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: String) -> Self {
        Self { disk: Arc::clone(disk), path, handle: None }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether somebody has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.handle.is_some()
    }

    /// The open file.
    pub(crate) fn get(&mut self) -> io::Result<&Arc<dyn DiskFile>> {
        if self.handle.is_none() {
            self.handle = Some(self.disk.open(&self.path)?);
        }
        Ok(self.handle.as_ref().expect("opened just now"))
    }

    /// The open file, created empty or emptied.
    pub(crate) fn create(&mut self) -> io::Result<&Arc<dyn DiskFile>> {
        self.handle = Some(self.disk.create(&self.path)?);
        Ok(self.handle.as_ref().expect("opened just now"))
    }

    /// Removes the file; none of that name is fine.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        self.handle = None;
        match self.disk.remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Takes the file out of use: it lies under its name and [`DELETED`] until somebody removes it. That path; `None`
    /// where there is no such file.
    pub(crate) fn retire(&mut self) -> io::Result<Option<String>> {
        self.handle = None;
        let retired = format!("{}{DELETED}", self.path);
        match self.disk.rename(&self.path, &retired) {
            Ok(()) => Ok(Some(retired)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Follows a rename of the directory that it is in.
    pub(crate) fn close(&mut self) {
        self.handle = None;
    }
}
