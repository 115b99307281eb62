//! The metadata store: topics, configs, group numbers and the broker's own counters, in redb.
//!
//! Every change is one transaction and survives a power cut when the call returns.

mod backend;
mod look;
mod take_over;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use records::ids::TopicId;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};

use crate::data_dir::{META, base64};
use crate::disk::{Disk, DiskFile};
use crate::error::{IoContext, StorageError};
use backend::FileBackend;
pub(crate) use look::{Look, look};
pub use take_over::TakenOver;

/// The store's file in the data directory.
pub const METADATA_FILE: &str = "sluice-metadata.redb";
/// Its name until it is whole.
const UNFINISHED_FILE: &str = "sluice-metadata.redb.tmp";
/// Bytes of its pages kept in memory.
const CACHE_BYTES: usize = 1024 * 1024;

const TOPICS: TableDefinition<'_, &str, ([u8; 16], i32)> = TableDefinition::new("topics");
const TOPIC_CONFIGS: TableDefinition<'_, (&str, &str), &str> = TableDefinition::new("topic_configs");
const GROUP_CONFIGS: TableDefinition<'_, (&str, &str), &str> = TableDefinition::new("group_configs");
const GROUP_NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("group_numbers");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const NAMES: TableDefinition<'_, &str, &str> = TableDefinition::new("names");

/// What the tables mean. Raised with every change that an older release would misread.
const FORMAT: u64 = 1;

/// Absent in stores of before there was more than one.
const FORMAT_NAME: &str = "format";
const BOOT: &str = "boot";
const LEADER_EPOCH: &str = "leader_epoch";
const NEXT_GROUP: &str = "next_group";
const NEXT_PRODUCER: &str = "next_producer";
const CLUSTER_ID: &str = "cluster_id";
/// Topics whose import is under way.
const IMPORTING: &str = "importing";

/// Settings by name; a `BTreeMap` so that they list in order.
pub type Configs = BTreeMap<String, String>;

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// How many partitions.
    pub partitions: i32,
    /// The settings that differ from the broker's.
    pub configs: Configs,
}

/// One life of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Raised at every start, from 1.
    pub boot: u64,
    /// The leader epoch of all partitions: raised at every start after an unclean stop.
    pub leader_epoch: i32,
}

/// The open store.
#[derive(Debug)]
pub struct Metadata {
    database: Database,
    naming: Mutex<Option<Naming>>,
}

/// What a new store still lacks: a store that a crash left half made would not open, so it gets its name with its
/// first change, when it is whole.
#[derive(Debug)]
struct Naming {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    unnamed: Arc<AtomicBool>,
}

impl Metadata {
    /// Opens the store of a data directory, and makes a new one when it is missing. The directory must be locked.
    ///
    /// # Errors
    /// [`StorageError::Foreign`] for a directory that another broker claimed: what its store does not know would be
    /// taken for files of deleted topics. [`StorageError::NewerFormat`] for the store of a later release.
    /// [`StorageError::Damaged`] for one of which a page does not check.
    pub fn open(disk: &Arc<dyn Disk>) -> Result<Self, StorageError> {
        let is_new = disk.read_len(METADATA_FILE).doing("open", METADATA_FILE)?.is_none();
        if is_new && disk.read_len(META).doing("open", META)?.is_some() {
            return Err(StorageError::Foreign);
        }
        if !is_new {
            check(&**disk)?;
        }
        let file = if is_new { disk.create(UNFINISHED_FILE) } else { disk.open(METADATA_FILE) };
        let file = file.doing("open", METADATA_FILE)?;
        let unnamed = Arc::new(AtomicBool::new(is_new));
        let backend = FileBackend::new(Arc::clone(&file), Arc::clone(&unnamed));
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        if is_new {
            let transaction = database.begin_write()?;
            transaction.open_table(TOPICS)?;
            transaction.open_table(TOPIC_CONFIGS)?;
            transaction.open_table(GROUP_CONFIGS)?;
            transaction.open_table(GROUP_NUMBERS)?;
            transaction.open_table(COUNTERS)?.insert(FORMAT_NAME, FORMAT)?;
            transaction.open_table(NAMES)?;
            transaction.commit()?;
        } else {
            let counters = database.begin_read()?.open_table(COUNTERS)?;
            let found = counters.get(FORMAT_NAME)?.map_or(FORMAT, |value| value.value());
            if found > FORMAT {
                return Err(StorageError::NewerFormat {
                    path: METADATA_FILE.to_owned(),
                    found,
                    known: FORMAT,
                });
            }
        }
        let naming = is_new.then(|| Naming { disk: Arc::clone(disk), file, unnamed });
        Ok(Self { database, naming: Mutex::new(naming) })
    }

    /// Begins a life of the broker. The leader epoch goes up unless the one before ended in order; what is returned
    /// is synced, so that no epoch is ever used twice.
    pub fn begin_boot(&self, clean: bool) -> Result<Boot, StorageError> {
        self.write(|transaction| {
            let mut counters = transaction.open_table(COUNTERS)?;
            let before = counters.get(BOOT)?.map(|value| value.value());
            let epoch = counters.get(LEADER_EPOCH)?.map_or(0, |value| value.value());
            let boot = before.unwrap_or(0) + 1;
            let epoch = if before.is_none() || clean { epoch } else { epoch + 1 };
            counters.insert(BOOT, boot)?;
            counters.insert(LEADER_EPOCH, epoch)?;
            let leader_epoch =
                i32::try_from(epoch).expect("two thousand million unclean stops do not happen");
            Ok(Boot { boot, leader_epoch })
        })
    }

    /// The cluster's id; made of `fresh` random bytes the first time, and durable with the next change of anything.
    pub fn cluster_id(&self, fresh: [u8; 16]) -> Result<String, StorageError> {
        let transaction = self.database.begin_read()?;
        if let Some(id) = transaction.open_table(NAMES)?.get(CLUSTER_ID)? {
            return Ok(id.value().to_owned());
        }
        drop(transaction);
        let id = base64(&fresh);
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None).map_err(redb::Error::from)?;
        transaction.open_table(NAMES)?.insert(CLUSTER_ID, id.as_str())?;
        transaction.commit()?;
        Ok(id)
    }

    /// All topics, by name.
    pub fn topics(&self) -> Result<Vec<TopicMetadata>, StorageError> {
        let transaction = self.database.begin_read()?;
        let mut topics = Vec::new();
        for row in transaction.open_table(TOPICS)?.iter()? {
            let (name, value) = row?;
            let (id, partitions) = value.value();
            topics.push(TopicMetadata {
                name: name.value().to_owned(),
                id: TopicId(id),
                partitions,
                configs: Configs::new(),
            });
        }
        let mut configs = by_owner(&transaction.open_table(TOPIC_CONFIGS)?)?;
        for topic in &mut topics {
            topic.configs = configs.remove(&topic.name).unwrap_or_default();
        }
        Ok(topics)
    }

    /// Adds a topic; false when there is one of that name.
    pub fn create_topic(&self, topic: &TopicMetadata) -> Result<bool, StorageError> {
        self.write(|transaction| {
            let mut topics = transaction.open_table(TOPICS)?;
            if topics.get(topic.name.as_str())?.is_some() {
                return Ok(false);
            }
            topics.insert(topic.name.as_str(), (topic.id.0, topic.partitions))?;
            let mut configs = transaction.open_table(TOPIC_CONFIGS)?;
            for (name, value) in &topic.configs {
                configs.insert((topic.name.as_str(), name.as_str()), value.as_str())?;
            }
            Ok(true)
        })
    }

    /// Removes a topic with its settings; false when there is none.
    pub fn delete_topic(&self, name: &str) -> Result<bool, StorageError> {
        self.write(|transaction| {
            let existed = transaction.open_table(TOPICS)?.remove(name)?.is_some();
            remove_owner(&mut transaction.open_table(TOPIC_CONFIGS)?, name)?;
            Ok(existed)
        })
    }

    /// Raises a topic's partition count to `partitions`; false when there is no such topic or it has as many.
    pub fn add_partitions(&self, name: &str, partitions: i32) -> Result<bool, StorageError> {
        self.write(|transaction| {
            let mut topics = transaction.open_table(TOPICS)?;
            let found = topics.get(name)?.map(|value| value.value());
            match found {
                Some((id, count)) if count < partitions => {
                    topics.insert(name, (id, partitions))?;
                    Ok(true)
                }
                _ => Ok(false),
            }
        })
    }

    /// Sets one of a topic's settings, or takes it back to the default with `None`.
    pub fn set_topic_config(&self, topic: &str, name: &str, value: Option<&str>) -> Result<(), StorageError> {
        self.set_config(TOPIC_CONFIGS, topic, &[(name, value)])
    }

    /// Sets several of a topic's settings in one step.
    pub fn set_topic_configs(
        &self,
        topic: &str,
        changes: &[(&str, Option<&str>)],
    ) -> Result<(), StorageError> {
        self.set_config(TOPIC_CONFIGS, topic, changes)
    }

    /// The settings of all groups that have any.
    pub fn group_configs(&self) -> Result<BTreeMap<String, Configs>, StorageError> {
        by_owner(&self.database.begin_read()?.open_table(GROUP_CONFIGS)?)
    }

    /// Sets one of a group's settings, or takes it back to the default with `None`.
    pub fn set_group_config(&self, group: &str, name: &str, value: Option<&str>) -> Result<(), StorageError> {
        self.set_config(GROUP_CONFIGS, group, &[(name, value)])
    }

    /// Sets several of a group's settings in one step.
    pub fn set_group_configs(
        &self,
        group: &str,
        changes: &[(&str, Option<&str>)],
    ) -> Result<(), StorageError> {
        self.set_config(GROUP_CONFIGS, group, changes)
    }

    /// The number that stands for a group in file names: allotted the first time, never given to another group.
    pub fn group_number(&self, group: &str) -> Result<u64, StorageError> {
        let transaction = self.database.begin_read()?;
        if let Some(number) = transaction.open_table(GROUP_NUMBERS)?.get(group)? {
            return Ok(number.value());
        }
        drop(transaction);
        self.write(|transaction| {
            let number = take(transaction, NEXT_GROUP, 1)?;
            transaction.open_table(GROUP_NUMBERS)?.insert(group, number)?;
            Ok(number)
        })
    }

    /// All groups that have a number.
    pub fn group_numbers(&self) -> Result<BTreeMap<String, u64>, StorageError> {
        let transaction = self.database.begin_read()?;
        let mut numbers = BTreeMap::new();
        for row in transaction.open_table(GROUP_NUMBERS)?.iter()? {
            let (group, number) = row?;
            numbers.insert(group.value().to_owned(), number.value());
        }
        Ok(numbers)
    }

    /// Takes a group's number away; its settings stay, as Kafka keeps them. False when it has none.
    pub fn remove_group(&self, group: &str) -> Result<bool, StorageError> {
        self.write(|transaction| Ok(transaction.open_table(GROUP_NUMBERS)?.remove(group)?.is_some()))
    }

    /// Reserves `count` producer ids for good and returns the first: none is handed out twice, whatever happens.
    pub fn next_producer_ids(&self, count: u32) -> Result<i64, StorageError> {
        let first = self.write(|transaction| take(transaction, NEXT_PRODUCER, u64::from(count)))?;
        Ok(i64::try_from(first).expect("producer ids do not run out"))
    }

    fn set_config(
        &self,
        table: TableDefinition<'_, (&str, &str), &str>,
        owner: &str,
        changes: &[(&str, Option<&str>)],
    ) -> Result<(), StorageError> {
        self.write(|transaction| {
            let mut table = transaction.open_table(table)?;
            for (name, value) in changes {
                match value {
                    Some(value) => table.insert((owner, *name), *value)?,
                    None => table.remove((owner, *name))?,
                };
            }
            Ok(())
        })
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let transaction = self.database.begin_write()?;
        let result = change(&transaction)?;
        transaction.commit()?;
        self.give_name()?;
        Ok(result)
    }

    fn give_name(&self) -> Result<(), StorageError> {
        let mut naming = self.naming.lock();
        if let Some(Naming { disk, file, unnamed }) = &*naming {
            unnamed.store(false, Ordering::Release);
            file.sync_data().doing("sync", METADATA_FILE)?;
            disk.rename(UNFINISHED_FILE, METADATA_FILE).doing("rename", METADATA_FILE)?;
            disk.sync_dir("").doing("sync", "the data directory")?;
            *naming = None;
        }
        Ok(())
    }
}

/// Refuses a damaged store, in a copy: over pages that are none redb panics, and the first of them may be met by anyone.
fn check(disk: &dyn Disk) -> Result<(), StorageError> {
    match look(disk) {
        Err(StorageError::Damaged { path, reason }) => Err(StorageError::Damaged {
            path,
            reason: format!(
                "{reason}; no topic is known without it: put it back from a backup, which may be older (what it does not know \
                 is set aside and kept); the logs themselves are not touched, `sluice log describe` shows them"
            ),
        }),
        looked => looked.map(|_| ()),
    }
}

fn take(transaction: &WriteTransaction, counter: &str, count: u64) -> Result<u64, StorageError> {
    let mut counters = transaction.open_table(COUNTERS)?;
    let first = counters.get(counter)?.map_or(0, |value| value.value());
    counters.insert(counter, first + count)?;
    Ok(first)
}

fn by_owner(
    table: &impl ReadableTable<(&'static str, &'static str), &'static str>,
) -> Result<BTreeMap<String, Configs>, StorageError> {
    let mut owners: BTreeMap<String, Configs> = BTreeMap::new();
    for row in table.iter()? {
        let (key, value) = row?;
        let (owner, name) = key.value();
        owners.entry(owner.to_owned()).or_default().insert(name.to_owned(), value.value().to_owned());
    }
    Ok(owners)
}

fn remove_owner(
    table: &mut redb::Table<'_, (&'static str, &'static str), &'static str>,
    owner: &str,
) -> Result<(), StorageError> {
    let mut names = Vec::new();
    for row in table.range((owner, "")..)? {
        let (key, _) = row?;
        if key.value().0 != owner {
            break;
        }
        names.push(key.value().1.to_owned());
    }
    for name in names {
        table.remove((owner, name.as_str()))?;
    }
    Ok(())
}
