//! Decoded batches kept in memory, so that a scan and the selections that follow it inflate each batch once.
//!
//! Bounded by bytes; the batch that was not used for longest goes first.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::batch::Records;
use records::compression::decompress;
use records::ids::{Offset, PartitionId};
use records::{BatchView, Codec, RecordError};

use crate::options::BATCH_HEADER_BYTES;

/// What an entry takes besides the bytes of its batch.
const ENTRY_OVERHEAD: usize = 200;

/// One stored batch with its CRC checked, inflated where it was compressed.
#[derive(Debug)]
pub(crate) struct DecodedBatch {
    bytes: Bytes,
    inflated: Option<Vec<u8>>,
}

impl DecodedBatch {
    /// Decodes a whole stored batch.
    pub(crate) fn new(batch: &BatchView<'_>, inflated_max: usize) -> Result<Self, RecordError> {
        if !batch.crc_is_valid() {
            return Err(RecordError::Corrupt("crc does not match"));
        }
        let inflated = match batch.attributes().codec()? {
            Codec::None => None,
            codec => Some(decompress(codec, batch.payload(), inflated_max)?),
        };
        // Copied out of the larger read that it came with, which would stay in memory as a whole.
        Ok(Self { bytes: Bytes::copy_from_slice(batch.bytes()), inflated })
    }

    pub(crate) fn view(&self) -> BatchView<'_> {
        BatchView::parse(&self.bytes).expect("a whole batch was put in")
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.inflated.is_some()
    }

    pub(crate) fn records(&self) -> Records<'_> {
        let view = self.view();
        match &self.inflated {
            Some(inflated) => view.records_in(inflated),
            None => view.records_in(&self.bytes[BATCH_HEADER_BYTES..]),
        }
    }

    fn cost(&self) -> usize {
        self.bytes.len() + self.inflated.as_ref().map_or(0, Vec::len) + ENTRY_OVERHEAD
    }
}

type Key = (PartitionId, Offset);

/// See the module.
#[derive(Debug)]
pub(crate) struct BatchCache {
    bytes_max: usize,
    bytes: usize,
    clock: u64,
    batches: BTreeMap<Key, (Arc<DecodedBatch>, u64)>,
    by_use: BTreeMap<u64, Key>,
}

impl BatchCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, clock: 0, batches: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// The cached batch that holds `offset`.
    pub(crate) fn get(&mut self, partition: PartitionId, offset: Offset) -> Option<Arc<DecodedBatch>> {
        let from = (partition, Offset(i64::MIN));
        let (key, (batch, used)) = self.batches.range_mut(from..=(partition, offset)).next_back()?;
        if batch.view().last_offset() < offset {
            return None;
        }
        self.by_use.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(self.clock, *key);
        Some(Arc::clone(batch))
    }

    /// Keeps a batch, unless it is larger than the whole cache may be.
    pub(crate) fn insert(&mut self, partition: PartitionId, batch: &Arc<DecodedBatch>) {
        if batch.cost() > self.bytes_max {
            return;
        }
        let key = (partition, batch.view().base_offset());
        self.remove(key);
        self.bytes += batch.cost();
        while self.bytes > self.bytes_max {
            let (_, &oldest) = self.by_use.first_key_value().expect("what takes room is in use order");
            self.remove(oldest);
        }
        self.clock += 1;
        self.batches.insert(key, (Arc::clone(batch), self.clock));
        self.by_use.insert(self.clock, key);
    }

    /// Forgets a partition that was deleted.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        let keys: Vec<Key> = self
            .batches
            .range((partition, Offset(i64::MIN))..=(partition, Offset::MAX))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: Key) {
        if let Some((batch, used)) = self.batches.remove(&key) {
            self.bytes -= batch.cost();
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch, partition};
    use records::batch::stamp;

    fn stored(base: i64, count: usize) -> Arc<DecodedBatch> {
        let mut bytes = batch(count);
        stamp(&mut bytes, Offset(base), 0, None, None);
        Arc::new(DecodedBatch::new(&BatchView::parse(&bytes).unwrap(), 1000).unwrap())
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let cost = stored(0, 10).cost();
        let mut cache = BatchCache::new(cost * 2 + 10);
        cache.insert(partition(0), &stored(0, 10));
        cache.insert(partition(0), &stored(10, 10));
        assert!(cache.get(partition(0), Offset(3)).is_some());
        cache.insert(partition(1), &stored(0, 10));
        assert!(cache.get(partition(0), Offset(9)).is_some());
        assert!(cache.get(partition(0), Offset(10)).is_none());
        assert!(cache.get(partition(1), Offset(0)).is_some());
        cache.forget(partition(0));
        assert!(cache.get(partition(0), Offset(9)).is_none());
        cache.insert(partition(2), &stored(0, 500));
        assert!(cache.get(partition(2), Offset(0)).is_none(), "larger than the cache");
        assert!(cache.bytes <= cache.bytes_max);
    }
}
