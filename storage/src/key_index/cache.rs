//! What was read of key indexes and may be needed again, bounded by bytes over all logs; what was not used for longest
//! goes first.

use std::collections::BTreeMap;
use std::sync::Arc;

use records::ids::{Offset, PartitionId};

use super::block::Column;
use super::format::Directory;

/// What an entry takes besides its content.
const ENTRY_OVERHEAD: usize = 200;

/// The segment that something belongs to.
pub(super) type Owner = (PartitionId, Offset);

/// The heads of all blocks of a sealed file.
pub(super) type Table = Arc<Vec<Arc<Directory>>>;

/// What of a segment's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Table,
    Directory(usize),
    Column(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Table(Table),
    Directory(Arc<Directory>),
    Column(Arc<Column>),
}

impl Value {
    fn cost(&self) -> usize {
        ENTRY_OVERHEAD
            + match self {
                Self::Table(table) => table.iter().map(|directory| directory.cost()).sum(),
                Self::Directory(directory) => directory.cost(),
                Self::Column(column) => column.cost(),
            }
    }
}

type Key = (Owner, Part);

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyCache {
    bytes_max: usize,
    bytes: usize,
    clock: u64,
    values: BTreeMap<Key, (Value, u64)>,
    by_use: BTreeMap<u64, Key>,
}

impl KeyCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, clock: 0, values: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    pub(super) fn get(&mut self, owner: Owner, part: Part) -> Option<Value> {
        let key = (owner, part);
        let (value, used) = self.values.get_mut(&key)?;
        self.by_use.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(value.clone())
    }

    /// Keeps a value, unless it is larger than the whole cache may be.
    pub(super) fn insert(&mut self, owner: Owner, part: Part, value: Value) {
        let key = (owner, part);
        self.remove(key);
        if value.cost() > self.bytes_max {
            return;
        }
        self.bytes += value.cost();
        while self.bytes > self.bytes_max {
            let (_, &oldest) = self.by_use.first_key_value().expect("what takes room is in use order");
            self.remove(oldest);
        }
        self.clock += 1;
        self.values.insert(key, (value, self.clock));
        self.by_use.insert(self.clock, key);
    }

    /// Forgets a segment of which the index is made anew.
    pub(super) fn forget_segment(&mut self, owner: Owner) {
        self.forget_range((owner, Part::Table), (owner, Part::Column(usize::MAX)));
    }

    /// Forgets a partition.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        let first = ((partition, Offset(i64::MIN)), Part::Table);
        self.forget_range(first, ((partition, Offset::MAX), Part::Column(usize::MAX)));
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget_range(&mut self, first: Key, last: Key) {
        let keys: Vec<Key> = self.values.range(first..=last).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: Key) {
        if let Some((value, used)) = self.values.remove(&key) {
            self.bytes -= value.cost();
            self.by_use.remove(&used);
        }
    }
}
