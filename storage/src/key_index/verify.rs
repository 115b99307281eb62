//! A look at an index from outside, against the log that it tells of. It only reads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use records::BatchView;
use records::ids::Offset;

use super::cache::KeyCache;
use super::format::BlockMeta;
use super::reader::{BlockReader, KeyFault};
use super::scan::keys_of;
use super::{KeyedRecord, Truth, load};
use crate::disk::DiskFile;
use crate::options::KEY_CACHE_BYTES_MAX;
use crate::walk::{Step, Walk};

/// What an index says that a reader would believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Up to where it tells of the segment.
    pub(crate) next: Offset,
    /// Records that it names.
    pub(crate) records: u64,
    /// What is wrong with it.
    pub(crate) wrong: Option<String>,
}

/// Looks at the index of a segment. With `log`, a walk over the segment from its first batch, every record is looked up.
/// What does not belong to the segment, or a crash cut short, nobody believes: that is no fault.
pub(crate) fn look(
    file: &dyn DiskFile,
    truth: &Truth<'_>,
    log: Option<(&Arc<dyn DiskFile>, Walk)>,
    inflated_max: usize,
) -> io::Result<Seen> {
    let mut seen = Seen { next: truth.from(), records: 0, wrong: None };
    if !load::has_header(file, truth).or_else(unfit)? {
        seen.wrong = Some("is no key index of this segment".to_owned());
        return Ok(seen);
    }
    let sealed = load::sealed(file, truth).or_else(unfit)?;
    let (table, blocks): (&[_], Vec<BlockMeta>) = match &sealed {
        Some((_, table)) => (&table[..], table.iter().map(|directory| directory.meta.clone()).collect()),
        None => (&[], load::blocks(file, truth).or_else(unfit)?),
    };
    let last = blocks.last().map_or(truth.from(), |meta| meta.next);
    seen.next = sealed.as_ref().map_or(last, |(trailer, _)| trailer.next);
    seen.records = blocks.iter().map(|meta| u64::from(meta.records)).sum();
    let Some((log, walk)) = log else { return Ok(seen) };
    let mut records = LogKeys { log, walk, inflated_max, at_hand: VecDeque::new(), damaged: None };
    let mut cache = KeyCache::new(KEY_CACHE_BYTES_MAX);
    let owner = (truth.id, truth.base);
    let mut reader = BlockReader { file, cache: &mut cache, owner, table };
    for (index, meta) in blocks.iter().enumerate() {
        let mut named = Vec::new();
        match reader.list(index, meta, (meta.from, meta.next), usize::MAX, &mut named) {
            Ok(()) => {}
            Err(KeyFault::Unfit(what)) => {
                seen.wrong = Some(format!("the block at byte {} cannot be read: {what}", meta.position));
                return Ok(seen);
            }
            Err(KeyFault::Io(error)) => return Err(error),
        }
        seen.wrong = records.compare((meta.from, meta.next), &named)?;
        if seen.wrong.is_some() {
            return Ok(seen);
        }
    }
    seen.wrong = records.compare((last, seen.next), &[])?;
    Ok(seen)
}

/// What is not the segment's is nothing.
fn unfit<T: Default>(fault: KeyFault) -> io::Result<T> {
    match fault {
        KeyFault::Unfit(_) => Ok(T::default()),
        KeyFault::Io(error) => Err(error),
    }
}

/// The records of a log file, one after another.
struct LogKeys<'a> {
    log: &'a Arc<dyn DiskFile>,
    walk: Walk,
    inflated_max: usize,
    at_hand: VecDeque<KeyedRecord>,
    /// The batch that was read last does not decode: its first and last offset. To the end where there is none.
    damaged: Option<(Offset, Offset)>,
}

impl LogKeys<'_> {
    /// What differs of what is named between two offsets.
    fn compare(
        &mut self,
        (from, next): (Offset, Offset),
        named: &[KeyedRecord],
    ) -> io::Result<Option<String>> {
        for record in named {
            let offset = record.offset;
            while self.peek()?.is_some_and(|found| found.offset < from) {
                self.at_hand.pop_front();
            }
            // What the log has lost the index may still know.
            while self.damaged.is_some_and(|(_, last)| last < offset) && self.at_hand.is_empty() {
                self.damaged = None;
                self.peek()?;
            }
            if self.damaged.is_some_and(|(first, last)| (first..=last).contains(&offset)) {
                continue;
            }
            match self.peek()? {
                Some(found) if found == *record => drop(self.at_hand.pop_front()),
                Some(found) if found.offset == offset => {
                    return Ok(Some(format!("has a wrong key hash for offset {offset}")));
                }
                Some(found) if found.offset < offset => {
                    return Ok(Some(format!("lacks the record at offset {}", found.offset)));
                }
                _ if self.damaged.is_some() => {}
                _ => return Ok(Some(format!("names offset {offset}, where no record is"))),
            }
        }
        while let Some(found) = self.peek()?.filter(|found| found.offset < next) {
            if found.offset >= from {
                return Ok(Some(format!("lacks the record at offset {}", found.offset)));
            }
            self.at_hand.pop_front();
        }
        Ok(None)
    }

    /// The next record; none at a batch that does not decode, and at the end.
    fn peek(&mut self) -> io::Result<Option<KeyedRecord>> {
        while self.at_hand.is_empty() && self.damaged.is_none() {
            let (header, position) = match self.walk.step()? {
                Step::Batch(header, position) => (header, position),
                Step::Broken(_) => {
                    self.damaged = Some((Offset::ZERO, Offset::MAX));
                    break;
                }
                Step::End => break,
            };
            let mut bytes = vec![0; usize::try_from(header.size).unwrap_or(usize::MAX)];
            self.log.read_exact_at(&mut bytes, position)?;
            let mut records = Vec::new();
            let decoded = BatchView::parse(&bytes)
                .and_then(|batch| keys_of(&batch, self.inflated_max, true, &mut records));
            match decoded {
                Ok(()) => self.at_hand.extend(records),
                // The log's own fault, told there.
                Err(_) => self.damaged = Some((header.base, header.last())),
            }
        }
        Ok(self.at_hand.front().copied())
    }
}
