//! Answers out of the blocks of one file, read piece by piece, every piece checked.

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::KeyedRecord;
use super::block::{Bucket, Column};
use super::cache::{KeyCache, Owner, Part, Value};
use super::filter::KeyFilter;
use super::format::{BlockMeta, Directory};
use crate::disk::DiskFile;
use crate::options::KEY_BUCKETS_READ_MAX;

/// Why an index gave no answer.
#[derive(Debug)]
pub(super) enum KeyFault {
    /// It is not what belongs to the segment: drop it.
    Unfit(&'static str),
    /// The disk failed: it may be good all the same.
    Io(io::Error),
}

impl From<io::Error> for KeyFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Unfit("the file is gone"),
            io::ErrorKind::UnexpectedEof => Self::Unfit("the file is cut short"),
            _ => Self::Io(error),
        }
    }
}

/// The offsets that a search is about: from `from` on, below `upper`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) filter: KeyFilter,
    pub(super) from: Offset,
    pub(super) upper: Offset,
}

/// Reads the blocks of one file.
#[derive(Debug)]
pub(super) struct BlockReader<'a> {
    pub(super) file: &'a dyn DiskFile,
    pub(super) cache: &'a mut KeyCache,
    pub(super) owner: Owner,
    /// The heads of all blocks, where they are known.
    pub(super) table: &'a [Arc<Directory>],
}

impl BlockReader<'_> {
    /// Adds the first `count_max` matches of block `index`, ascending.
    pub(super) fn first_matches(
        &mut self,
        index: usize,
        meta: &BlockMeta,
        wanted: &Wanted,
        count_max: usize,
        out: &mut Vec<Offset>,
    ) -> Result<(), KeyFault> {
        if let Some(column) = self.column_for(index, meta, &wanted.filter)? {
            let matches = column.list(wanted.from, wanted.upper);
            let matches = matches.filter(|record| wanted.filter.matches(record.offset, record.key));
            out.extend(matches.take(count_max).map(|record| record.offset));
            return Ok(());
        }
        let mut positions = self.positions(index, meta, wanted)?;
        positions.sort_unstable();
        out.extend(positions.iter().take(count_max).map(|&position| meta.base + i64::from(position)));
        Ok(())
    }

    /// The last match of block `index`.
    pub(super) fn last_match(
        &mut self,
        index: usize,
        meta: &BlockMeta,
        wanted: &Wanted,
    ) -> Result<Option<Offset>, KeyFault> {
        if let Some(column) = self.column_for(index, meta, &wanted.filter)? {
            let mut matches = column.list(wanted.from, wanted.upper).rev();
            let found = matches.find(|record| wanted.filter.matches(record.offset, record.key));
            return Ok(found.map(|record| record.offset));
        }
        let positions = self.positions(index, meta, wanted)?;
        Ok(positions.iter().max().map(|&position| meta.base + i64::from(position)))
    }

    /// Adds the first `count_max` records of block `index` from `from` on, below `upper`.
    pub(super) fn list(
        &mut self,
        index: usize,
        meta: &BlockMeta,
        (from, upper): (Offset, Offset),
        count_max: usize,
        out: &mut Vec<KeyedRecord>,
    ) -> Result<(), KeyFault> {
        out.extend(self.column(index, meta)?.list(from, upper).take(count_max));
        Ok(())
    }

    /// The damaged stretches that a block names.
    pub(super) fn damages(
        &mut self,
        index: usize,
        meta: &BlockMeta,
    ) -> Result<Vec<(Offset, Offset)>, KeyFault> {
        if meta.damages == 0 {
            return Ok(Vec::new());
        }
        Ok(self.directory(index, meta)?.damages.clone())
    }

    /// The positions of all matches in the buckets that can hold any.
    fn positions(&mut self, index: usize, meta: &BlockMeta, wanted: &Wanted) -> Result<Vec<u32>, KeyFault> {
        let directory = self.directory(index, meta)?;
        let filter = &wanted.filter;
        let mut positions = Vec::new();
        let inside = |offset: Offset| wanted.from <= offset && offset < wanted.upper;
        for bucket in meta.bucket_of(filter.low())..=meta.bucket_of(filter.high()) {
            let bucket = read_bucket(self.file, &directory, bucket)?;
            bucket.for_each_of(filter, |position| {
                if inside(meta.base + i64::from(position)) {
                    positions.push(position);
                }
            });
        }
        if filter.keyless() && meta.keyless > 0 {
            let bucket = read_bucket(self.file, &directory, meta.buckets())?;
            bucket.for_each(|_, position| {
                let offset = meta.base + i64::from(position);
                if inside(offset) && filter.matches(offset, None) {
                    positions.push(position);
                }
            });
        }
        Ok(positions)
    }

    /// The decoded block, where the filter would have to read too many buckets of it.
    fn column_for(
        &mut self,
        index: usize,
        meta: &BlockMeta,
        filter: &KeyFilter,
    ) -> Result<Option<Arc<Column>>, KeyFault> {
        let buckets = meta.bucket_of(filter.high()) - meta.bucket_of(filter.low()) + 1;
        if buckets > KEY_BUCKETS_READ_MAX { self.column(index, meta).map(Some) } else { Ok(None) }
    }

    fn column(&mut self, index: usize, meta: &BlockMeta) -> Result<Arc<Column>, KeyFault> {
        if let Some(Value::Column(column)) = self.cache.get(self.owner, Part::Column(index)) {
            return Ok(column);
        }
        let directory = self.directory(index, meta)?;
        let mut data = vec![0; (meta.bytes - meta.head_bytes) as usize];
        self.file.read_exact_at(&mut data, meta.position + u64::from(meta.head_bytes))?;
        let mut column = Column::new(meta);
        let mut start = 0;
        for (number, &(end, crc)) in directory.buckets.iter().enumerate() {
            let bytes = &data[start..end as usize];
            let bucket = checked_bucket(bytes.to_vec(), &directory, number, crc)?;
            if !column.fill(&bucket, number == meta.buckets()) {
                return Err(KeyFault::Unfit("a record lies outside of its block"));
            }
            start = end as usize;
        }
        let column = Arc::new(column);
        self.cache.insert(self.owner, Part::Column(index), Value::Column(Arc::clone(&column)));
        Ok(column)
    }

    fn directory(&mut self, index: usize, meta: &BlockMeta) -> Result<Arc<Directory>, KeyFault> {
        if let Some(directory) = self.table.get(index) {
            return Ok(Arc::clone(directory));
        }
        if let Some(Value::Directory(directory)) = self.cache.get(self.owner, Part::Directory(index)) {
            return Ok(directory);
        }
        let mut bytes = vec![0; meta.head_bytes as usize];
        self.file.read_exact_at(&mut bytes, meta.position)?;
        let directory = Directory::parse(&bytes).filter(|directory| directory.meta == *meta);
        let directory = Arc::new(directory.ok_or(KeyFault::Unfit("a block's head is damaged"))?);
        self.cache.insert(self.owner, Part::Directory(index), Value::Directory(Arc::clone(&directory)));
        Ok(directory)
    }
}

fn read_bucket(file: &dyn DiskFile, directory: &Directory, index: usize) -> Result<Bucket, KeyFault> {
    let (position, len, crc) = directory.bucket(index);
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, position)?;
    checked_bucket(bytes, directory, index, crc)
}

fn checked_bucket(bytes: Vec<u8>, directory: &Directory, index: usize, crc: u32) -> Result<Bucket, KeyFault> {
    if crc32c::crc32c(&bytes) != crc {
        return Err(KeyFault::Unfit("a bucket's crc does not match"));
    }
    Bucket::parse(bytes, &directory.meta, index).ok_or(KeyFault::Unfit("a bucket cannot be read"))
}
