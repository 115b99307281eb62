//! Files and directories that are out of use and are removed later (`file.delete.delay.ms`): whoever knows them by name
//! has time to open them, and the removal of large files holds nobody up.
//!
//! Nothing is lost where a process ends before: what bears such a name is removed at the next start.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::logs::Logs;
use crate::options::RETIRED_MAX;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    path: String,
    is_dir: bool,
    delay_ms: i64,
    /// When somebody looked first.
    since_ms: Option<i64>,
}

/// What is due to be removed, for any thread.
#[derive(Debug)]
pub struct RemoveJob {
    disk: Arc<dyn Disk>,
    entries: Vec<Entry>,
}

impl RemoveJob {
    /// Removes it. What cannot be removed now is removed at the next start.
    pub fn run(self) {
        self.entries.iter().for_each(|entry| entry.remove(&*self.disk));
    }
}

impl Retired {
    pub(crate) fn add_files(&mut self, disk: &dyn Disk, paths: Vec<String>, delay_ms: i64) {
        for path in paths {
            self.add(disk, Entry { path, is_dir: false, delay_ms, since_ms: None });
        }
    }

    pub(crate) fn add_directory(&mut self, disk: &dyn Disk, path: String, delay_ms: i64) {
        self.add(disk, Entry { path, is_dir: true, delay_ms, since_ms: None });
    }

    fn add(&mut self, disk: &dyn Disk, entry: Entry) {
        if entry.delay_ms <= 0 {
            entry.remove(disk);
            return;
        }
        if self.entries.len() == RETIRED_MAX
            && let Some(oldest) = self.entries.pop_front()
        {
            oldest.remove(disk);
        }
        self.entries.push_back(entry);
    }

    /// Takes what is due.
    fn due(&mut self, now_ms: i64) -> Vec<Entry> {
        let mut due = Vec::new();
        for mut entry in std::mem::take(&mut self.entries) {
            if now_ms.saturating_sub(*entry.since_ms.get_or_insert(now_ms)) >= entry.delay_ms {
                due.push(entry);
            } else {
                self.entries.push_back(entry);
            }
        }
        due
    }
}

impl Entry {
    fn remove(&self, disk: &dyn Disk) {
        let removed =
            if self.is_dir { disk.remove_dir_all(&self.path) } else { disk.remove_file(&self.path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(self.path, %error, "cannot remove what was deleted, left to the next start");
            }
            _ => {}
        }
    }
}

impl Logs {
    /// What was deleted at least its delay ago, to be removed from the disk on any thread; `None` where nothing is due.
    /// To be called now and then: the delay counts from the first call.
    pub fn remove_job(&mut self, now_ms: i64) -> Option<RemoveJob> {
        let entries = self.retired.due(now_ms);
        let disk = Arc::clone(self.disk());
        (!entries.is_empty()).then_some(RemoveJob { disk, entries })
    }
}
