//! Want of file handles passes: it must not be taken for a failed sync, which closes a log until the restart.

#![allow(clippy::unwrap_used)]

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use storage::disk::{Disk, OsDisk};

#[test]
fn a_directory_is_synced_without_a_free_handle() {
    let dir = tempfile::tempdir().unwrap();
    let disk = OsDisk::new(dir.path()).unwrap();
    disk.create_dir("t-0").unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: limit.maximum }).unwrap();
    let mut held = Vec::new();
    while let Ok(file) = File::open(dir.path()) {
        held.push(file);
    }
    let synced = disk.sync_dir("t-0");
    drop(held);
    synced.unwrap();
    assert!(disk.sync_dir("t-1").is_err(), "what cannot be opened for another reason is an error");
}
