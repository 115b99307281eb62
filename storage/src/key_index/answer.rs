//! Look-ups in the index of one segment: block by block, and what is in memory only.

use std::sync::Arc;

use records::ids::Offset;

use super::KeyedRecord;
use super::cache::KeyCache;
use super::format::BlockMeta;
use super::reader::{BlockReader, KeyFault, Wanted};
use super::segment::SegmentKeys;
use crate::disk::DiskFile;

impl SegmentKeys {
    /// Runs `look` on every block that ends above `from` and begins below `upper`, forwards or backwards, until it says
    /// to stop.
    fn each_block(
        &mut self,
        cache: &mut KeyCache,
        (from, upper): (Offset, Offset),
        backwards: bool,
        mut look: impl FnMut(&mut BlockReader<'_>, usize, &BlockMeta) -> Result<bool, KeyFault>,
    ) -> Result<bool, KeyFault> {
        let table = self.table(cache)?;
        let growing: &[BlockMeta] = self.growing().map_or(&[], |growing| &growing.blocks);
        let first = growing.partition_point(|block| block.next <= from)
            + table.partition_point(|block| block.meta.next <= from);
        let end = growing.partition_point(|block| block.from < upper)
            + table.partition_point(|block| block.meta.from < upper);
        let end = end.max(first);
        if first == end {
            return Ok(true);
        }
        let owner = self.owner;
        let file: Arc<dyn DiskFile> = Arc::clone(self.file.get()?);
        let growing: &[BlockMeta] = self.growing().map_or(&[], |growing| &growing.blocks);
        let mut reader = BlockReader { file: &*file, cache, owner, table: &table };
        for step in 0..end - first {
            let index = if backwards { end - 1 - step } else { first + step };
            let meta = table.get(index).map_or_else(|| &growing[index], |directory| &directory.meta);
            if !look(&mut reader, index, meta)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds matches, ascending, `count_max` in all at most: up to where they are complete. `blocks` is how many blocks
    /// may still be read.
    pub(super) fn first_matches(
        &mut self,
        cache: &mut KeyCache,
        wanted: &Wanted,
        count_max: usize,
        blocks: &mut usize,
        out: &mut Vec<Offset>,
    ) -> Result<Offset, KeyFault> {
        let upper = wanted.upper.min(self.covered().end);
        let mut stopped_at = upper;
        let through = self.each_block(cache, (wanted.from, upper), false, |reader, index, meta| {
            if !meta.may_match(&wanted.filter) {
                return Ok(true);
            }
            if *blocks == 0 {
                stopped_at = meta.from.max(wanted.from);
                return Ok(false);
            }
            *blocks -= 1;
            reader.first_matches(index, meta, wanted, count_max - out.len(), out)?;
            if out.len() < count_max {
                return Ok(true);
            }
            stopped_at = out.last().map_or(meta.from, |last| last.next());
            Ok(false)
        })?;
        if through && let Some(growing) = self.growing() {
            let matches = growing.pending.matches(wanted.filter, wanted.from, upper);
            out.extend(matches.take(count_max - out.len()));
            if out.len() == count_max {
                stopped_at = out.last().map_or(upper, |last| last.next());
            }
        }
        Ok(stopped_at)
    }

    /// The last match, and down to where there is none above it.
    pub(super) fn last_match(
        &mut self,
        cache: &mut KeyCache,
        wanted: &Wanted,
        blocks: &mut usize,
    ) -> Result<(Option<Offset>, Offset), KeyFault> {
        if let Some(growing) = self.growing()
            && let Some(found) = growing.pending.matches(wanted.filter, wanted.from, wanted.upper).next_back()
        {
            return Ok((Some(found), found));
        }
        let mut found = None;
        let mut stopped_at = wanted.from.max(self.covered().start);
        self.each_block(cache, (wanted.from, wanted.upper), true, |reader, index, meta| {
            if !meta.may_match(&wanted.filter) {
                return Ok(true);
            }
            if *blocks == 0 {
                stopped_at = meta.next.min(wanted.upper);
                return Ok(false);
            }
            *blocks -= 1;
            found = reader.last_match(index, meta, wanted)?;
            Ok(found.is_none())
        })?;
        Ok((found, found.unwrap_or(stopped_at)))
    }

    /// Adds records, ascending, `count_max` in all at most, and the damaged stretches among them: up to where they are
    /// complete.
    pub(super) fn list(
        &mut self,
        cache: &mut KeyCache,
        (from, upper): (Offset, Offset),
        count_max: usize,
        out: &mut Vec<KeyedRecord>,
        damages: &mut Vec<(Offset, Offset)>,
    ) -> Result<Offset, KeyFault> {
        let upper = upper.min(self.covered().end);
        let known = damages.len();
        let through = self.each_block(cache, (from, upper), false, |reader, index, meta| {
            reader.list(index, meta, (from, upper), count_max - out.len(), out)?;
            damages.extend(reader.damages(index, meta)?);
            Ok(out.len() < count_max)
        })?;
        if through && let Some(growing) = self.growing() {
            out.extend(growing.pending.list(from, upper).take(count_max - out.len()));
            damages.extend_from_slice(&growing.pending.damages);
        }
        let full = out.len() == count_max;
        let next = if full { out.last().map_or(upper, |last| last.offset.next()) } else { upper };
        // Those of before are the caller's.
        let found = damages.split_off(known);
        damages.extend(found.into_iter().filter(|(first, last)| *last >= from && *first < next));
        Ok(next)
    }
}
