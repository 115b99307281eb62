//! The index of one segment: the file, and what of it is in memory while it grows.

use std::io;
use std::sync::Arc;

use records::ids::{KeyHash, Offset, PartitionId};

use super::cache::{KeyCache, Owner, Part, Table, Value};
use super::format::{BlockMeta, Directory, FILE_HEADER_BYTES, TRAILER_BYTES, Trailer, file_header};
use super::pending::{Limits, Pending};
use super::reader::KeyFault;
use super::{KeyedRecord, block, load};
use crate::disk::Disk;
use crate::lazy_file::LazyFile;
use crate::leader_epochs::LeaderEpochs;

/// What the log says of a segment: an index must agree with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth<'a> {
    pub(crate) id: PartitionId,
    pub(crate) base: Offset,
    /// The next segment's base, or the end of the log.
    pub(crate) end: Offset,
    pub(crate) log_bytes: u64,
    pub(crate) log_start: Offset,
    pub(crate) epochs: &'a LeaderEpochs,
    /// Whether it is written no more.
    pub(crate) sealed: bool,
}

impl Truth<'_> {
    /// Where an index must begin at the latest.
    pub(crate) fn from(&self) -> Offset {
        self.base.max(self.log_start)
    }
}

/// The index of one segment.
#[derive(Debug)]
pub(super) struct SegmentKeys {
    pub(super) owner: Owner,
    pub(super) file: LazyFile,
    /// Tells it from another one of its base offset: compaction may have put other records there.
    pub(super) serial: u64,
    state: State,
    limits: Limits,
}

#[derive(Debug)]
enum State {
    /// Nobody has looked at the file yet.
    Unread,
    /// All of a segment that is written no more: its blocks are in the file's table.
    Sealed {
        trailer: Trailer,
    },
    Growing(Box<Growing>),
}

/// An index that is not whole yet, or never will be since its segment is written.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) blocks: Vec<BlockMeta>,
    pub(super) pending: Pending,
    /// Whether the file is there, with its header.
    pub(super) created: bool,
}

impl Growing {
    pub(super) fn new(from: Offset, limits: Limits) -> Self {
        Self { blocks: Vec::new(), pending: Pending::new(from, -1, limits), created: false }
    }

    fn file_end(&self) -> u64 {
        self.blocks.last().map_or(FILE_HEADER_BYTES as u64, BlockMeta::end)
    }
}

impl SegmentKeys {
    pub(super) fn new(
        disk: &Arc<dyn Disk>,
        path: String,
        owner: Owner,
        (serial, limits): (u64, Limits),
    ) -> Self {
        Self { owner, file: LazyFile::new(disk, path), serial, state: State::Unread, limits }
    }

    /// Looks at the file, unless somebody did before and the segment is still the same.
    pub(super) fn load(&mut self, truth: &Truth<'_>, cache: &mut KeyCache) -> Result<(), KeyFault> {
        if let State::Sealed { trailer } = &self.state
            && trailer.log_bytes != truth.log_bytes
        {
            self.reset(cache);
        }
        if !matches!(self.state, State::Unread) {
            return Ok(());
        }
        cache.forget_segment(self.owner);
        let file = match self.file.get() {
            Ok(file) => Arc::clone(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.state = State::Growing(Box::new(Growing::new(truth.from(), self.limits)));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.state = match load::sealed(&*file, truth)? {
            Some((trailer, table)) => {
                cache.insert(self.owner, Part::Table, Value::Table(table));
                State::Sealed { trailer }
            }
            None => State::Growing(Box::new(load::growing(&*file, truth, self.limits)?)),
        };
        Ok(())
    }

    /// Begins an index of a segment that has no records yet.
    pub(super) fn begin(&mut self) {
        self.state = State::Growing(Box::new(Growing::new(self.owner.1, self.limits)));
    }

    /// Whether nobody has looked at the file yet.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.state, State::Unread)
    }

    /// Whether the whole segment is indexed and will not change.
    pub(super) fn is_sealed(&self) -> bool {
        matches!(self.state, State::Sealed { .. })
    }

    /// Which offsets are indexed; none where nobody has looked yet.
    pub(super) fn covered(&self) -> std::ops::Range<Offset> {
        match &self.state {
            State::Unread => Offset::ZERO..Offset::ZERO,
            State::Sealed { trailer } => trailer.from..trailer.next,
            State::Growing(growing) => {
                growing.blocks.first().map_or(growing.pending.from, |block| block.from)..growing.pending.next
            }
        }
    }

    /// Records in memory only.
    pub(super) fn pending_records(&self) -> usize {
        self.growing().map_or(0, |growing| growing.pending.records())
    }

    /// Bytes in the file, as far as known.
    pub(super) fn file_bytes(&self) -> u64 {
        match &self.state {
            State::Unread => 0,
            State::Sealed { trailer } => {
                trailer.table_position + u64::from(trailer.table_bytes) + TRAILER_BYTES as u64
            }
            State::Growing(growing) => {
                if growing.created {
                    growing.file_end()
                } else {
                    0
                }
            }
        }
    }

    pub(super) fn growing(&self) -> Option<&Growing> {
        if let State::Growing(growing) = &self.state { Some(growing) } else { None }
    }

    fn growing_mut(&mut self) -> &mut Growing {
        match &mut self.state {
            State::Growing(growing) => growing,
            State::Unread | State::Sealed { .. } => unreachable!("only a growing index is added to"),
        }
    }

    /// Adds the records of a batch that ends below `next`; those below what is covered already are left out.
    pub(super) fn add(&mut self, records: &[KeyedRecord], next: Offset, leader_epoch: i32) -> io::Result<()> {
        let covered = self.growing_mut().pending.next;
        let records = &records[records.partition_point(|record| record.offset < covered)..];
        for (index, record) in records.iter().enumerate() {
            self.make_room(record.offset, index > 0)?;
            let pending = &mut self.growing_mut().pending;
            pending.leader_epoch = leader_epoch;
            pending.push(record.offset, record.key);
        }
        self.cover(next, leader_epoch);
        Ok(())
    }

    /// Adds a batch without holes, of which the hashes are known.
    pub(super) fn add_run(
        &mut self,
        mut base: Offset,
        mut keys: &[Option<KeyHash>],
        leader_epoch: i32,
    ) -> io::Result<()> {
        let next = base + keys.len() as i64;
        let mut within = false;
        while !keys.is_empty() {
            self.make_room(base, within)?;
            let pending = &mut self.growing_mut().pending;
            pending.leader_epoch = leader_epoch;
            let taken = pending.push_run(base, keys);
            keys = &keys[taken..];
            base = base + taken as i64;
            within = true;
        }
        self.cover(next, leader_epoch);
        Ok(())
    }

    /// Writes a block where the record at `offset` needs a new one. Within a batch it reaches up to that record.
    fn make_room(&mut self, offset: Offset, within_batch: bool) -> io::Result<()> {
        let pending = &mut self.growing_mut().pending;
        if !pending.is_full_for(offset) {
            return Ok(());
        }
        if within_batch {
            pending.next = offset;
        }
        self.flush()
    }

    /// Notes that there are no further records below `next`.
    pub(super) fn cover(&mut self, next: Offset, leader_epoch: i32) {
        let pending = &mut self.growing_mut().pending;
        if next > pending.next {
            pending.next = next;
            pending.leader_epoch = leader_epoch;
        }
    }

    /// Notes a stretch that cannot be read.
    pub(super) fn add_damage(&mut self, first: Offset, last: Offset, leader_epoch: i32) -> io::Result<()> {
        if self.growing_mut().pending.is_full_of_damage() {
            self.flush()?;
        }
        let pending = &mut self.growing_mut().pending;
        let first = first.max(pending.next);
        if first <= last {
            pending.damages.push((first, last));
        }
        self.cover(last.next(), leader_epoch);
        Ok(())
    }

    /// Writes what is pending as a block.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let owner = self.owner;
        let growing = self.growing_mut();
        if growing.pending.is_empty() {
            return Ok(());
        }
        let position = growing.file_end();
        let (meta, bytes) = block::encode(&growing.pending, position);
        let created = growing.created;
        self.write_behind_header(created, owner, position, &bytes)?;
        let growing = self.growing_mut();
        growing.created = true;
        let written = &growing.pending;
        growing.pending = Pending::new(written.next, written.leader_epoch, written.limits);
        growing.blocks.push(meta);
        Ok(())
    }

    fn write_behind_header(
        &mut self,
        created: bool,
        (id, base): Owner,
        position: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        if !created {
            self.file.create()?.write_all_at(&file_header(id, base), 0)?;
        }
        self.file.get()?.write_all_at(bytes, position)
    }

    /// Ends the index of a segment that is written no more and indexed to its end.
    pub(super) fn seal(&mut self, log_bytes: u64) -> io::Result<()> {
        self.flush()?;
        let owner = self.owner;
        let covered = self.covered();
        let mut bytes = self.heads()?;
        let growing = self.growing_mut();
        let table_position = growing.file_end();
        let trailer = Trailer {
            log_bytes,
            table_position,
            table_bytes: bytes.len() as u32,
            from: covered.start,
            next: covered.end,
            blocks: growing.blocks.len() as u32,
            table_crc: crc32c::crc32c(&bytes),
        };
        bytes.extend_from_slice(&trailer.encode());
        let created = growing.created;
        self.write_behind_header(created, owner, table_position, &bytes)?;
        self.state = State::Sealed { trailer };
        Ok(())
    }

    /// The heads of all blocks, as they stand in the file.
    fn heads(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let State::Growing(growing) = &self.state else { return Ok(bytes) };
        for meta in &growing.blocks {
            let at = bytes.len();
            bytes.resize(at + meta.head_bytes as usize, 0);
            self.file.get()?.read_exact_at(&mut bytes[at..], meta.position)?;
            if Directory::parse(&bytes[at..]).is_none_or(|directory| directory.meta != *meta) {
                return Err(io::Error::other("a block's head is damaged"));
            }
        }
        Ok(bytes)
    }

    /// Drops what there is: it does not belong to the segment, or could not be written.
    pub(super) fn reset(&mut self, cache: &mut KeyCache) {
        if let Err(error) = self.remove() {
            tracing::warn!(path = self.file.path(), %error, "cannot remove a key index");
        }
        cache.forget_segment(self.owner);
    }

    /// Removes the file.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.state = State::Unread;
        self.file.remove()
    }

    /// Lets go of what is in memory: it is read again when somebody asks for it.
    pub(super) fn set_aside(&mut self) {
        self.state = State::Unread;
        self.file.close();
    }

    /// Gives the open file up.
    pub(super) fn close(&mut self) {
        self.file.close();
    }

    pub(super) fn path(&self) -> &str {
        self.file.path()
    }

    /// The heads of a sealed file; none of another.
    pub(super) fn table(&mut self, cache: &mut KeyCache) -> Result<Table, KeyFault> {
        let State::Sealed { trailer } = self.state else { return Ok(Arc::default()) };
        if let Some(Value::Table(table)) = cache.get(self.owner, Part::Table) {
            return Ok(table);
        }
        let table = load::table(&**self.file.get()?, &trailer)?;
        cache.insert(self.owner, Part::Table, Value::Table(Arc::clone(&table)));
        Ok(table)
    }
}
