//! The root of a data directory: who holds it, whose it is, and how it was left.
//!
//! Kafka's `.lock`, `meta.properties` (`MetaProperties`, version 1) and `.kafka_cleanshutdown`
//! (`CleanShutdownFileHandler`).

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskLock};
use crate::error::{IoContext, StorageError};
use crate::options::Options;

const LOCK: &str = ".lock";
/// Whose the directory is.
pub(crate) const META: &str = "meta.properties";
/// Says that everything was closed in order.
pub(crate) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Says that a sync failed since the last orderly stop: what stood in memory then may never reach the disk by itself.
const SYNC_FAILED: &str = ".sluice_sync_failed";

/// A locked data directory. The lock lives as long as this does.
#[derive(Debug)]
pub struct DataDir {
    disk: Arc<dyn Disk>,
    clean: bool,
    /// The boot that an orderly stop has ended, where it says so.
    stopped_boot: Option<u64>,
    sync_failed: bool,
    _lock: Box<dyn DiskLock>,
}

impl DataDir {
    /// Locks the directory.
    ///
    /// # Errors
    /// [`StorageError::Locked`] when another process holds it.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, StorageError> {
        let lock = match disk.lock(LOCK) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(StorageError::Locked),
            Err(error) => return Err(error).doing("lock", LOCK),
        };
        let marker = disk.read(CLEAN_SHUTDOWN).doing("read", CLEAN_SHUTDOWN)?;
        let stopped_boot = marker.as_deref().and_then(stopped_boot);
        let clean = marker.is_some();
        let sync_failed = disk.read(SYNC_FAILED).doing("read", SYNC_FAILED)?.is_some();
        Ok(Self { disk, clean, stopped_boot, sync_failed, _lock: lock })
    }

    /// The disk behind it.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Whether the last process that held it closed everything in order.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// The boot that an orderly stop has ended; `None` after any other stop.
    pub(crate) fn stopped_boot(&self) -> Option<u64> {
        self.stopped_boot
    }

    /// Whether a sync failed since the last orderly stop.
    #[must_use]
    pub fn had_failed_sync(&self) -> bool {
        self.sync_failed
    }

    /// See [`note_failed_sync`].
    pub(crate) fn note_failed_sync(&self) {
        note_failed_sync(&*self.disk);
    }

    /// Checks `meta.properties` against the options, or writes it into a new directory. It is not synced then: what a
    /// power cut leaves of it in a directory this young is written again.
    pub(crate) fn claim(&self, options: &Options) -> Result<(), StorageError> {
        let bytes = self.disk.read(META).doing("read", META)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        match text.lines().find_map(|line| line.strip_prefix("node.id=")?.trim().parse().ok()) {
            Some(stored) if stored == options.node_id => return Ok(()),
            Some(stored) => return Err(StorageError::WrongNode { stored, asked: options.node_id }),
            None => {}
        }
        let mut text = String::from("version=1\n");
        writeln!(text, "cluster.id={}", options.cluster_id).expect("a string takes every write");
        writeln!(text, "node.id={}", options.node_id).expect("a string takes every write");
        writeln!(text, "directory.id={}", base64(&options.directory_id)).expect("a string takes every write");
        let file = self.disk.create(META).doing("create", META)?;
        file.write_all_at(text.as_bytes(), 0).doing("write", META)
    }

    /// From here on a stop without [`DataDir::mark_clean`] is an unclean one.
    pub(crate) fn clear_clean(&self) -> Result<(), StorageError> {
        if self.clean {
            self.disk.remove_file(CLEAN_SHUTDOWN).doing("remove", CLEAN_SHUTDOWN)?;
        }
        // A start that died here before may have removed it from memory only: the power must not bring it back.
        self.disk.sync_dir("").doing("sync", "the data directory")
    }

    /// Says that everything is synced and every checkpoint written.
    pub(crate) fn mark_clean(&self, boot: u64) -> Result<(), StorageError> {
        if self.disk.read(SYNC_FAILED).doing("read", SYNC_FAILED)?.is_some() {
            self.disk.remove_file(SYNC_FAILED).doing("remove", SYNC_FAILED)?;
        }
        let text = format!("{{\"version\":0,\"brokerEpoch\":{boot}}}");
        self.disk.write_atomic(CLEAN_SHUTDOWN, text.as_bytes()).doing("write", CLEAN_SHUTDOWN)
    }
}

/// Leaves word for the next start that a sync failed. It needs no sync itself: it tells of bytes that are good in the
/// system's memory alone, and it is there as long as they are.
pub(crate) fn note_failed_sync(disk: &dyn Disk) {
    if let Err(error) = disk.create(SYNC_FAILED) {
        tracing::error!(%error, "cannot leave word of a failed sync");
    }
}

/// The boot in the marker of an orderly stop.
pub(crate) fn stopped_boot(marker: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(marker).ok()?;
    text.strip_prefix("{\"version\":0,\"brokerEpoch\":")?.strip_suffix('}')?.parse().ok()
}

/// Kafka's `Uuid.toString`: base64 for URLs, without padding.
#[must_use]
pub fn base64(id: &[u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = u128::from_be_bytes(*id);
    let mut text = Vec::with_capacity(22);
    for _ in 0..21 {
        text.push(ALPHABET[(bits >> 122) as usize]);
        bits <<= 6;
    }
    text.push(ALPHABET[(bits >> 122) as usize]);
    text.iter().map(|&byte| char::from(byte)).collect()
}

/// The way back from [`base64`]; `None` when it is no such text.
#[must_use]
pub fn from_base64(text: &str) -> Option<[u8; 16]> {
    if text.len() != 22 {
        return None;
    }
    let mut bits: u128 = 0;
    for (index, byte) in text.bytes().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        // 22 digits hold 132 bits: of the last one only the upper two count.
        bits =
            if index < 21 { (bits << 6) | u128::from(value) } else { (bits << 2) | u128::from(value >> 4) };
    }
    Some(bits.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn ids_look_as_kafka_writes_them() {
        let id = from_base64("lxA0wRMeS0GDTaRSfwGIyQ").unwrap();
        assert_eq!(id[..4], [0x97, 0x10, 0x34, 0xc1]);
        assert_eq!(base64(&id), "lxA0wRMeS0GDTaRSfwGIyQ");
        assert_eq!(base64(&[0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(from_base64("lxA0wRMeS0GDTaRSfwGIy="), None);
    }

    #[test]
    fn one_process_holds_it_and_its_node_id_stays() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let directory = DataDir::open(Arc::clone(&disk)).unwrap();
        assert!(!directory.was_clean());
        assert!(matches!(DataDir::open(Arc::clone(&disk)), Err(StorageError::Locked)));
        directory.claim(&Options::default()).unwrap();
        directory.claim(&Options::default()).unwrap();
        let other = Options { node_id: 2, ..Options::default() };
        assert!(matches!(directory.claim(&other), Err(StorageError::WrongNode { stored: 1, asked: 2 })));
        directory.mark_clean(3).unwrap();
        drop(directory);
        let directory = DataDir::open(disk).unwrap();
        assert!(directory.was_clean());
        directory.clear_clean().unwrap();
    }
}
