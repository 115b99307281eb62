//! Single records, whole: what a dead letter is copied from.

use bytes::Bytes;
use records::ids::{Offset, PartitionId};

use crate::error::{ReadError, SelectError};
use crate::logs::Logs;

/// A record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Its timestamp, milliseconds.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
}

impl Logs {
    /// The records at these offsets, which ascend: the first of them, in order, until keys and values are `bytes_max` bytes
    /// together; the first whatever its size. `None` for what has left the log or lies in a damaged batch.
    ///
    /// # Errors
    /// Where the partition is not open or the disk cannot be read.
    pub fn read_records(
        &mut self,
        id: PartitionId,
        offsets: &[Offset],
        bytes_max: u64,
    ) -> Result<Vec<(Offset, Option<OwnedRecord>)>, ReadError> {
        let facts = self.readable(id)?.facts();
        let mut found = Vec::with_capacity(offsets.len());
        let mut bytes = 0;
        for &offset in offsets {
            if bytes >= bytes_max && !found.is_empty() {
                break;
            }
            let record = if offset < facts.log_start || offset >= facts.end {
                None
            } else {
                self.read_record(id, offset)?
            };
            bytes += record.as_ref().map_or(0, OwnedRecord::size);
            found.push((offset, record));
        }
        Ok(found)
    }

    fn read_record(&mut self, id: PartitionId, offset: Offset) -> Result<Option<OwnedRecord>, ReadError> {
        let batch = match self.decoded(id, offset, offset) {
            Ok(batch) => batch,
            Err(SelectError::Read(error)) => return Err(error),
            Err(SelectError::Corrupt { .. } | SelectError::Missing(_) | SelectError::Gone { .. }) => {
                return Ok(None);
            }
        };
        let view = batch.view();
        if view.attributes().is_control() {
            return Ok(None);
        }
        let records = batch.records();
        let record = records.iter().find_map(|record| record.ok().filter(|record| record.offset == offset));
        Ok(record.map(|record| OwnedRecord {
            timestamp: record.timestamp,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
        }))
    }
}

impl OwnedRecord {
    fn size(&self) -> u64 {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        length(&self.key) + length(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use records::batch::BatchBuilder;
    use records::{Codec, TimestampType};

    use super::*;
    use crate::testing::{NOW, World, partition};

    /// Three compressed batches of ten records, in which offset n has key `kn` and n bytes of value.
    fn world() -> World {
        let mut world = World::new(1);
        for base in [0, 10, 20] {
            let mut builder = BatchBuilder::new(Codec::Lz4, TimestampType::Create);
            for offset in base..base + 10 {
                let key = format!("k{offset}");
                builder.append(NOW + offset, Some(key.as_bytes()), Some(&vec![b'v'; offset as usize]), &[]);
            }
            world.append(bytes::BytesMut::from(&builder.build(Offset(0), -1)[..])).unwrap();
        }
        world
    }

    fn read(world: &mut World, offsets: &[i64], bytes_max: u64) -> Vec<(i64, Option<OwnedRecord>)> {
        let offsets: Vec<Offset> = offsets.iter().copied().map(Offset).collect();
        let found = world.logs().read_records(partition(0), &offsets, bytes_max).unwrap();
        found.into_iter().map(|(offset, record)| (offset.get(), record)).collect()
    }

    #[test]
    fn single_records_come_whole_and_in_order() {
        let mut world = world();
        let found = read(&mut world, &[3, 12, 13, 29], u64::MAX);
        assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), [3, 12, 13, 29]);
        for (offset, record) in found {
            let record = record.unwrap();
            assert_eq!(record.timestamp, NOW + offset);
            assert_eq!(record.key.unwrap(), format!("k{offset}"));
            assert_eq!(record.value.unwrap().len() as i64, offset);
        }
    }

    #[test]
    fn a_read_ends_behind_its_bytes_but_not_before_its_first_record() {
        let mut world = world();
        assert_eq!(read(&mut world, &[9, 20, 21], 0).len(), 1);
        assert_eq!(read(&mut world, &[9, 20, 21], 12).len(), 2);
    }

    #[test]
    fn what_is_gone_or_was_never_there_is_none() {
        let mut world = world();
        world.logs().delete_records(partition(0), Offset(5)).unwrap();
        let found = read(&mut world, &[4, 5, 30], u64::MAX);
        assert!(found[0].1.is_none() && found[1].1.is_some() && found[2].1.is_none());
    }
}
