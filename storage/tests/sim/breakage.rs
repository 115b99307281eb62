//! Deliberate breakages, put between `storage` and the simulated disk: as if `storage` left out a step of its own, or
//! believed what it must not. Each must be found, or the checks look at nothing.

use std::fs::File;
use std::io;
use std::sync::Arc;

use storage::disk::{DiskLock, Entry};
use storage::{Disk, DiskFile, SimDisk};

/// One rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakage {
    /// Names are not synced.
    DirectorySyncSkipped,
    /// An index that is there is taken as it is.
    TornIndexTrusted,
    /// Writes are acknowledged before a sync has reached them.
    AcknowledgedBeforeSync,
    /// The leader epoch stays after an unclean stop.
    EpochNotRaised,
    /// Producer snapshots are read as if they were empty.
    ProducersForgotten,
    /// The recovery point is taken for higher than it is.
    RecoveryPointTrusted,
    /// Compacted segments are put in place without a sync.
    SwapNotSynced,
    /// A torn tail of a log is not cut off.
    TornTailKept,
    /// The cut of an event log is lost.
    EventsCutLost,
    /// Records are deleted before it is written down where the log starts.
    LogStartNotWritten,
    /// A failed sync is taken for a good one.
    FailedSyncIgnored,
    /// A failed write is taken for a whole one.
    FailedWriteIgnored,
    /// The mark of an orderly stop stays when a process begins.
    CleanMarkKept,
    /// What is out of use is removed at once.
    RetiredRemovedAtOnce,
    /// Compaction does not say where it leaves holes.
    HolesNotWritten,
    /// Event logs are not synced.
    EventsSyncSkipped,
    /// The pages of share state are not synced.
    PagesSyncSkipped,
    /// Producer snapshots beyond a cut stay.
    SnapshotsKept,
    /// After a failed sync nothing is written again.
    FailedSyncForgotten,
    /// The first of a producer's files is taken for all of them: of each producer one batch is known.
    SidecarsForgotten,
}

impl Breakage {
    /// All of them.
    pub(crate) const ALL: [Self; 20] = [
        Self::DirectorySyncSkipped,
        Self::TornIndexTrusted,
        Self::AcknowledgedBeforeSync,
        Self::EpochNotRaised,
        Self::ProducersForgotten,
        Self::RecoveryPointTrusted,
        Self::SwapNotSynced,
        Self::TornTailKept,
        Self::EventsCutLost,
        Self::LogStartNotWritten,
        Self::FailedSyncIgnored,
        Self::FailedWriteIgnored,
        Self::CleanMarkKept,
        Self::RetiredRemovedAtOnce,
        Self::HolesNotWritten,
        Self::EventsSyncSkipped,
        Self::PagesSyncSkipped,
        Self::SnapshotsKept,
        Self::FailedSyncForgotten,
        Self::SidecarsForgotten,
    ];
}

/// The disk as a broken `storage` would use it.
#[derive(Debug)]
pub(crate) struct BrokenDisk {
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) breakage: Breakage,
}

impl BrokenDisk {
    fn wrap(&self, path: &str, file: Arc<dyn DiskFile>, is_mute: bool) -> Arc<dyn DiskFile> {
        Arc::new(BrokenFile { path: path.to_owned(), file, breakage: self.breakage, is_mute })
    }
}

impl Disk for BrokenDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if self.breakage == Breakage::FailedSyncForgotten && path == ".sluice_sync_failed" {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.wrap(path, self.disk.open(path)?, false))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        if self.breakage == Breakage::TornIndexTrusted
            && (path.ends_with(".index") || path.ends_with(".timeindex"))
            && let Ok(file) = self.disk.open(path)
        {
            return Ok(self.wrap(path, file, true));
        }
        Ok(self.wrap(path, self.disk.create(path)?, false))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match self.breakage {
            Breakage::LogStartNotWritten if to == "log-start-offset-checkpoint" => Ok(()),
            Breakage::HolesNotWritten if to == "sluice-holes-offset-checkpoint" => Ok(()),
            Breakage::RetiredRemovedAtOnce if to.ends_with(".deleted") => self.disk.remove_file(from),
            _ => self.disk.rename(from, to),
        }
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        let is_kept = match self.breakage {
            Breakage::CleanMarkKept => path == ".kafka_cleanshutdown",
            Breakage::SnapshotsKept => path.ends_with(".snapshot") || path.ends_with(".producers"),
            _ => false,
        };
        if is_kept { Ok(()) } else { self.disk.remove_file(path) }
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        if self.breakage == Breakage::DirectorySyncSkipped { Ok(()) } else { self.disk.sync_dir(path) }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.sync_all()
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct BrokenFile {
    path: String,
    file: Arc<dyn DiskFile>,
    breakage: Breakage,
    /// Nothing that is written reaches it.
    is_mute: bool,
}

impl BrokenFile {
    /// The file's content as a broken reader sees it; `None` where it sees it as it is.
    fn seen(&self) -> io::Result<Option<Vec<u8>>> {
        match self.breakage {
            Breakage::ProducersForgotten if self.path.ends_with(".snapshot") => {
                // Version 1, the CRC of what follows, no producer.
                let crc = crc32c::crc32c(&[0; 4]).to_be_bytes();
                Ok(Some([&[0, 1][..], &crc, &[0; 4]].concat()))
            }
            Breakage::SidecarsForgotten if self.path.ends_with(".producers") => Ok(Some(Vec::new())),
            Breakage::RecoveryPointTrusted if self.path == "recovery-point-offset-checkpoint" => {
                let mut bytes = vec![0; self.file.len()? as usize];
                self.file.read_exact_at(&mut bytes, 0)?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let raised = text.lines().map(|line| match line.rsplit_once(' ') {
                    Some((log, _)) => format!("{log} 1000000\n"),
                    None => format!("{line}\n"),
                });
                Ok(Some(raised.collect::<String>().into_bytes()))
            }
            _ => Ok(None),
        }
    }
}

impl DiskFile for BrokenFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let Some(bytes) = self.seen()? else { return self.file.read_at(buffer, position) };
        let rest = bytes.get(position as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.is_mute {
            return Ok(());
        }
        let written = self.file.write_all_at(bytes, position);
        if self.breakage == Breakage::FailedWriteIgnored && self.path.ends_with(".log") {
            return Ok(());
        }
        written
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.seen()?.map_or(self.file.len()?, |bytes| bytes.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let is_lost = match self.breakage {
            Breakage::TornTailKept => self.path.ends_with(".log"),
            Breakage::EventsCutLost => self.path.ends_with(".events"),
            _ => self.is_mute,
        };
        if is_lost { Ok(()) } else { self.file.set_len(len) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let is_skipped = match self.breakage {
            Breakage::AcknowledgedBeforeSync => self.path.ends_with(".log"),
            Breakage::SwapNotSynced => self.path.ends_with(".cleaned"),
            Breakage::EventsSyncSkipped => self.path.ends_with(".events"),
            Breakage::PagesSyncSkipped => self.path.ends_with(".pages"),
            _ => false,
        };
        if is_skipped {
            return Ok(());
        }
        let synced = self.file.sync_data();
        if self.breakage == Breakage::FailedSyncIgnored { Ok(()) } else { synced }
    }

    fn os_file(&self) -> Option<&File> {
        None
    }
}
