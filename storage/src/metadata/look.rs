//! A look at the store without changing it: at a copy of its file in memory, so that a store that another process holds,
//! or that lies where nothing can be written, can be checked too.

use std::collections::BTreeMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use parking_lot::Mutex;
use records::ids::TopicId;
use redb::{Builder, ReadableDatabase, ReadableTable, StorageBackend};

use super::{BOOT, CACHE_BYTES, COUNTERS, FORMAT, FORMAT_NAME, METADATA_FILE, NEXT_GROUP, TOPICS};
use crate::disk::Disk;
use crate::error::{IoContext, StorageError};

/// Bytes of a store that are taken into memory.
const LOOK_BYTES_MAX: u64 = 1 << 30;

/// What a sound store says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Topics by name: id and partitions.
    pub(crate) topics: BTreeMap<String, (TopicId, i32)>,
    /// The number that the next new group gets; no file bears it or a higher one.
    pub(crate) next_group: u64,
    /// How often a broker was started on the data directory.
    pub(crate) boots: u64,
}

/// Reads the store, every page of it checked; `None` where there is none.
///
/// # Errors
/// [`StorageError::Damaged`] where it does not check.
pub(crate) fn look(disk: &dyn Disk) -> Result<Option<Look>, StorageError> {
    let damaged = |reason: String| StorageError::Damaged { path: METADATA_FILE.to_owned(), reason };
    let Some(len) = disk.read_len(METADATA_FILE).doing("measure", METADATA_FILE)? else { return Ok(None) };
    if len == 0 {
        return Err(damaged("it is empty".to_owned()));
    }
    if len > LOOK_BYTES_MAX {
        return Err(damaged(format!("it has {len} bytes")));
    }
    let bytes = disk.read(METADATA_FILE).doing("read", METADATA_FILE)?.unwrap_or_default();
    // It may panic over pages that are none.
    let read = panic::catch_unwind(AssertUnwindSafe(|| read(bytes)));
    match read {
        Ok(Err(StorageError::Metadata(error))) => Err(damaged(error.to_string())),
        Ok(read) => read.map(Some),
        Err(_) => Err(damaged("its pages do not fit together".to_owned())),
    }
}

fn read(bytes: Vec<u8>) -> Result<Look, StorageError> {
    let mut database =
        Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(Copy { bytes: Mutex::new(bytes) })?;
    if !database.check_integrity()? {
        let reason = "its pages do not check".to_owned();
        return Err(StorageError::Damaged { path: METADATA_FILE.to_owned(), reason });
    }
    let transaction = database.begin_read()?;
    let counters = transaction.open_table(COUNTERS)?;
    let counter = |name| Ok::<_, StorageError>(counters.get(name)?.map(|value| value.value()));
    let found = counter(FORMAT_NAME)?.unwrap_or(FORMAT);
    if found > FORMAT {
        return Err(StorageError::NewerFormat { path: METADATA_FILE.to_owned(), found, known: FORMAT });
    }
    let mut look = Look {
        next_group: counter(NEXT_GROUP)?.unwrap_or(0),
        boots: counter(BOOT)?.unwrap_or(0),
        ..Look::default()
    };
    for row in transaction.open_table(TOPICS)?.iter()? {
        let (name, value) = row?;
        let (id, partitions) = value.value();
        look.topics.insert(name.value().to_owned(), (TopicId(id), partitions));
    }
    Ok(look)
}

/// The file's bytes. What is repaired in them is forgotten with them.
#[derive(Debug)]
struct Copy {
    bytes: Mutex<Vec<u8>>,
}

impl StorageBackend for Copy {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let found = from.checked_add(out.len()).and_then(|behind| bytes.get(from..behind));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > 2 * LOOK_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.lock().resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let behind = from.checked_add(data.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        bytes.get_mut(from..behind).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}
