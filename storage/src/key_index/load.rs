//! Taking up an index that is on the disk: only what belongs to the segment as it is now.
//!
//! A block bears the leader epoch that the log had at its end. Each start after an unclean stop raises the epoch
//! before anything is appended, so a block that tells of records which a cut took away does not agree with the log
//! any more, whatever a power cut left of the file.

use std::io;
use std::sync::Arc;

use records::ids::Offset;

use super::cache::Table;
use super::format::{
    BlockMeta, Directory, FILE_HEADER_BYTES, META_BYTES, TRAILER_BYTES, Trailer, is_header_of,
};
use super::pending::{Limits, Pending};
use super::reader::KeyFault;
use super::segment::{Growing, Truth};
use crate::disk::DiskFile;

/// Trailer and table of a file that indexes all of a sealed segment; `None` when it is none, and unfit where it was one of
/// a segment that is longer or shorter now.
pub(super) fn sealed(file: &dyn DiskFile, truth: &Truth<'_>) -> Result<Option<(Trailer, Table)>, KeyFault> {
    let len = file.len()?;
    if !truth.sealed || len < (FILE_HEADER_BYTES + TRAILER_BYTES) as u64 || !has_header(file, truth)? {
        return Ok(None);
    }
    let mut bytes = [0; TRAILER_BYTES];
    file.read_exact_at(&mut bytes, len - TRAILER_BYTES as u64)?;
    let Some(trailer) = Trailer::parse(&bytes) else { return Ok(None) };
    if trailer.log_bytes != truth.log_bytes {
        // Its blocks tell of records that are gone, or hidden by damage.
        return Err(KeyFault::Unfit("it indexes a segment of another length"));
    }
    let table_bytes = u64::from(trailer.table_bytes);
    let fits = trailer.from <= truth.from()
        && trailer.from <= trailer.next
        && trailer.next <= truth.end
        && trailer.table_position.checked_add(table_bytes) == Some(len - TRAILER_BYTES as u64);
    if !fits {
        return Ok(None);
    }
    let table = match table(file, &trailer) {
        Ok(table) => table,
        Err(KeyFault::Unfit(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut expected = Expected::new(trailer.from);
    let all = table.iter().all(|directory| expected.take(&directory.meta, truth));
    let ends = expected.position == trailer.table_position && expected.from <= trailer.next;
    Ok((all && ends).then_some((trailer, table)))
}

/// The table that a trailer names.
pub(super) fn table(file: &dyn DiskFile, trailer: &Trailer) -> Result<Table, KeyFault> {
    let mut bytes = vec![0; trailer.table_bytes as usize];
    file.read_exact_at(&mut bytes, trailer.table_position)?;
    if crc32c::crc32c(&bytes) != trailer.table_crc {
        return Err(KeyFault::Unfit("the table's crc does not match"));
    }
    let unfit = KeyFault::Unfit("the table cannot be read");
    let mut table = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let head = BlockMeta::parse(rest).and_then(|meta| rest.split_at_checked(meta.head_bytes as usize));
        let Some((head, behind)) = head else { return Err(unfit) };
        let Some(directory) = Directory::parse(head) else { return Err(unfit) };
        table.push(Arc::new(directory));
        rest = behind;
    }
    if table.len() == trailer.blocks as usize { Ok(Arc::new(table)) } else { Err(unfit) }
}

/// The blocks that a file begins with and that belong to the segment; what follows them is cut off.
pub(super) fn growing(file: &dyn DiskFile, truth: &Truth<'_>, limits: Limits) -> Result<Growing, KeyFault> {
    let mut growing = Growing::new(truth.from(), limits);
    growing.blocks = blocks(file, truth)?;
    if growing.blocks.last().is_some_and(|meta| meta.records < limits.merge_records) {
        growing.blocks.pop();
    }
    if let Some(last) = growing.blocks.last() {
        growing.pending = Pending::new(last.next, last.leader_epoch, limits);
        growing.created = true;
        if file.len()? > last.end() {
            file.set_len(last.end())?;
        }
    }
    Ok(growing)
}

/// The blocks that a file begins with and that belong to the segment.
pub(super) fn blocks(file: &dyn DiskFile, truth: &Truth<'_>) -> Result<Vec<BlockMeta>, KeyFault> {
    let mut blocks = Vec::new();
    if !has_header(file, truth)? {
        return Ok(blocks);
    }
    let len = file.len()?;
    let mut expected: Option<Expected> = None;
    loop {
        let position = expected.map_or(FILE_HEADER_BYTES as u64, |expected| expected.position);
        let Some(meta) = head_at(file, position, len)? else { break };
        let mut next = expected.unwrap_or_else(|| Expected::new(meta.from));
        if meta.from > next.from.max(truth.from()) || !next.take(&meta, truth) {
            break;
        }
        expected = Some(next);
        blocks.push(meta);
    }
    Ok(blocks)
}

/// What the next block must join.
#[derive(Clone, Copy, Debug)]
struct Expected {
    from: Offset,
    position: u64,
}

impl Expected {
    fn new(from: Offset) -> Self {
        Self { from, position: FILE_HEADER_BYTES as u64 }
    }

    /// Whether a block can stand here and agrees with the log.
    fn take(&mut self, meta: &BlockMeta, truth: &Truth<'_>) -> bool {
        let joins = meta.from == self.from && meta.position == self.position && meta.next <= truth.end;
        let epoch = truth.epochs.at(meta.next - 1);
        // Of what lies below the log start the epoch is forgotten, and nobody asks for it.
        let current = epoch.map_or(meta.next <= truth.log_start, |epoch| epoch == meta.leader_epoch);
        self.from = meta.next;
        self.position = meta.end();
        joins && current
    }
}

pub(super) fn has_header(file: &dyn DiskFile, truth: &Truth<'_>) -> Result<bool, KeyFault> {
    let mut bytes = [0; FILE_HEADER_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(is_header_of(&bytes, truth.id, truth.base)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The block that begins at `position`; `None` when there is no whole one with a good head.
fn head_at(file: &dyn DiskFile, position: u64, len: u64) -> Result<Option<BlockMeta>, KeyFault> {
    if len.saturating_sub(position) < META_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = vec![0; META_BYTES];
    file.read_exact_at(&mut bytes, position)?;
    let Some(meta) = BlockMeta::parse(&bytes) else { return Ok(None) };
    if u64::from(meta.bytes) > len - position {
        return Ok(None);
    }
    bytes.resize(meta.head_bytes as usize, 0);
    file.read_exact_at(&mut bytes[META_BYTES..], position + META_BYTES as u64)?;
    Ok(Directory::parse(&bytes).map(|directory| directory.meta))
}
