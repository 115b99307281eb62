//! The snapshot of a share-partition: what recovery begins with, before the events behind it.
//!
//! It holds the records of the window that have a slot, with all that is known of them, the spans, and the settled
//! offsets, so that no byte of the log below its scan offset is read again. What is large and changes seldom stands in
//! pages beside it: chunks of settled offsets that are as they were need not be written anew, and keys that wait long
//! leave memory with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::KeyHash;

use super::codec::{DecodeError, Reader, Writer};
use super::event::{Wait, offsets_of};
use super::holders::Lock;
use super::limits::WindowLimits;
use super::partition::{SharePartition, unscanned};
use super::recorder::ranges_of;
use super::replay::Replay;
use super::settled::StoredChunk;
use super::stops::Stops;
use super::window::RecordState;
use crate::io::PAGES_WRITTEN_MAX;
use crate::time::Now;

/// Every record below the scan offset that is not settled has a slot; settled offsets stand behind it only.
const VERSION_WITHOUT_PAGES: u8 = 1;
const VERSION: u8 = 2;

const STATE: u8 = 0b11;
const SCANNED: u8 = 1 << 2;
const KEYED: u8 = 1 << 3;
const BATCH_END: u8 = 1 << 4;

/// Where a chunk of settled offsets stands.
const INLINE: u8 = 0;
const PAGED: u8 = 1;

/// A snapshot to be written.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Its stored form.
    pub(crate) bytes: Bytes,
    /// Pages that it names and that are not written yet.
    pub(crate) pages: Vec<(u64, Bytes)>,
    /// Pages that it does not need any more.
    pub(crate) dropped: Vec<u64>,
}

/// What a page is read for when a share-partition is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageUse {
    /// The settled offsets of this chunk.
    Settled(i64),
    /// Keys at rest.
    Resting,
    /// Those of them of which later records were found.
    Marks,
}

/// What of a snapshot is there before its pages are.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) pages: Vec<(u64, PageUse)>,
    /// Where the spans and slots begin.
    rest: usize,
}

impl SharePartition {
    /// The stored form of everything durable. Keys that wait long leave memory with it.
    pub(crate) fn snapshot(&mut self, now: Now) -> Snapshot {
        let mut pages = self.page_out(now);
        self.write_marks(&mut pages);
        let mut writer = Writer::default();
        writer.byte(VERSION);
        writer.signed(self.window.start());
        writer.signed(self.window.scan());
        writer.signed(self.window.acquired_end());
        self.write_settled(&mut writer, &mut pages);
        let resting: Vec<u64> = self.pages.ids().collect();
        writer.number(resting.len() as u64);
        resting.into_iter().for_each(|id| writer.number(id));
        writer.number(self.pages.marks.len() as u64);
        self.pages.marks.iter().for_each(|list| writer.number(list.0));
        writer.number(self.pages.id_last());

        writer.number(self.pages.marked.len() as u64);
        self.pages.marked.iter().for_each(|key| writer.fixed(key.0));
        writer.number(self.queue.spans().len() as u64);
        for (key, span) in self.queue.spans().iter() {
            writer.fixed(key.0);
            writer.signed(span.first);
            writer.signed(span.last - span.first);
            writer.number(span.count);
        }
        self.write_slots(&mut writer);
        self.stops.write(&mut writer);
        writer.number(self.replays.len() as u64);
        for (key, replay) in &mut self.replays {
            writer.fixed(key.0);
            writer.signed(replay.to);
            writer.byte(u8::from(replay.only.is_some()));
            if let Some(only) = &replay.only {
                writer.ranges(&ranges_of(only));
            }
            // It has no pages: nothing of it is ever anywhere else.
            writer.bytes(&replay.part.snapshot(now).bytes);
        }
        let mut dropped = self.window.settled_mut().take_stale();
        dropped.extend(self.pages.take_dropped());
        Snapshot { bytes: writer.0.into(), pages, dropped }
    }

    fn write_settled(&mut self, writer: &mut Writer, pages: &mut Vec<(u64, Bytes)>) {
        let chunks: Vec<(i64, StoredChunk)> = self.window.settled().stored().collect();
        writer.number(chunks.len() as u64);
        for (number, chunk) in chunks {
            writer.signed(number);
            let page = match chunk {
                StoredChunk::Page(page) => page,
                StoredChunk::Bytes(bytes)
                    if bytes.len() <= self.limits.chunk_inline_bytes_max
                        || pages.len() >= PAGES_WRITTEN_MAX =>
                {
                    writer.byte(INLINE);
                    writer.bytes(&bytes);
                    continue;
                }
                StoredChunk::Bytes(bytes) => {
                    let page = self.pages.new_id();
                    pages.push((page, bytes.into()));
                    self.window.settled_mut().set_page(number, page);
                    page
                }
            };
            writer.byte(PAGED);
            writer.number(page);
        }
    }

    fn write_slots(&self, writer: &mut Writer) {
        let locks: BTreeMap<u32, u64> = self.holders.locks().map(|lock| lock.0).zip(0..).collect();
        writer.number(locks.len() as u64);
        for (_, lock) in self.holders.locks() {
            writer.text(&self.holders.get(lock.holder).name);
            writer.fixed(lock.delivery);
            writer.byte(u8::from(lock.numbered) | u8::from(lock.restarted) << 1);
            writer.signed(lock.wall_ms);
            writer.signed(lock.lock_ms);
        }
        writer.number(self.window.len() as u64);
        let mut behind = self.window.start();
        for (offset, slot) in self.window.slots() {
            writer.signed(offset - behind);
            behind = offset + 1;
            let state = match slot.state {
                // What stopped a record follows behind the records.
                RecordState::Queued | RecordState::Stopped => 0,
                RecordState::Delayed => 1,
                RecordState::Held => 2,
                RecordState::Recalled => 3,
            };
            let mut flags = state;
            flags |= if slot.scanned { SCANNED } else { 0 };
            flags |= if slot.key.is_some() { KEYED } else { 0 };
            flags |= if slot.batch_end { BATCH_END } else { 0 };
            writer.byte(flags);
            if let Some(key) = slot.key {
                writer.fixed(key.0);
            }
            writer.number(u64::from(slot.bytes));
            writer.number(u64::from(slot.count));
            if slot.is_out() {
                writer.number(locks[&slot.lock]);
            }
            if let Some((wait, _)) = self.waits.get(&offset) {
                writer.signed(wait.full_ms);
                writer.signed(wait.until_wall_ms);
            }
        }
    }

    /// What a snapshot says of offsets below `end` of the window itself, and which pages belong to it.
    pub(super) fn restore_window(&mut self, snapshot: &[u8], end: i64) -> Result<Manifest, DecodeError> {
        let mut reader = Reader(snapshot);
        let version = reader.byte()?;
        if version != VERSION && version != VERSION_WITHOUT_PAGES {
            return Err(DecodeError);
        }
        let (start, scan, acquired_end) = (reader.signed()?, reader.signed()?, reader.signed()?);
        self.window.restore(start.min(end), scan.min(end), acquired_end.min(end));
        if version == VERSION_WITHOUT_PAGES {
            for (first, last) in reader.ranges()? {
                self.window.settle_gap(first, last.min(end.saturating_sub(1)));
            }
            return Ok(Manifest { pages: Vec::new(), rest: snapshot.len() - reader.0.len() });
        }
        let mut pages = Vec::new();
        for _ in 0..reader.small()? {
            let number = reader.signed()?;
            match reader.byte()? {
                PAGED => pages.push((reader.number()?, PageUse::Settled(number))),
                INLINE => self.window.settled_mut().restore(number, reader.bytes()?, None, end)?,
                _ => return Err(DecodeError),
            }
        }
        for kind in [PageUse::Resting, PageUse::Marks] {
            for _ in 0..reader.small()? {
                pages.push((reader.number()?, kind));
            }
        }
        self.pages.set_id_last(reader.number()?);
        Ok(Manifest { pages, rest: snapshot.len() - reader.0.len() })
    }

    /// What it says of records and spans, once its pages are there.
    pub(super) fn restore_records(
        &mut self,
        snapshot: &[u8],
        manifest: &Manifest,
        end: i64,
        now: Now,
    ) -> Result<(), DecodeError> {
        // Slots are told by their distance from the start as it was.
        let mut reader = Reader(snapshot);
        let version = reader.byte()?;
        let start = reader.signed()?;
        let mut reader = Reader(snapshot.get(manifest.rest..).ok_or(DecodeError)?);
        if version == VERSION {
            for _ in 0..reader.small()? {
                let key = KeyHash(reader.fixed()?);
                self.queue.resting_mut().mark(key);
                self.pages.marked.push(key);
            }
            for _ in 0..reader.small()? {
                let (key, first) = (KeyHash(reader.fixed()?), reader.signed()?);
                let last = first.checked_add(reader.signed()?).ok_or(DecodeError)?;
                let count = reader.number()?;
                if first < end {
                    self.queue.spans_mut().add(key, first, last.min(end - 1), count);
                }
            }
        }
        self.restore_slots(&mut reader, start, end, now)?;
        self.restore_stops(&mut reader, end, now)?;
        self.queue_spans();
        self.settle_unslotted();
        if reader.0.is_empty() { Ok(()) } else { Err(DecodeError) }
    }

    fn restore_slots(
        &mut self,
        reader: &mut Reader<'_>,
        start: i64,
        end: i64,
        now: Now,
    ) -> Result<(), DecodeError> {
        let count = reader.small()?;
        let mut locks = Vec::with_capacity(reader.capacity(count));
        for _ in 0..count {
            let name = reader.text()?;
            let (delivery, flags) = (reader.fixed()?, reader.byte()?);
            let (wall_ms, lock_ms) = (reader.signed()?, reader.signed()?);
            let holder = self.holders.find_or_add(&name);
            locks.push(self.holders.open(Lock {
                holder,
                delivery,
                numbered: flags & 1 == 1,
                wall_ms,
                lock_ms,
                since: now.mono,
                ends: None,
                records: 0,
                restarted: flags & 2 == 2,
            }));
        }
        let mut behind = start;
        for _ in 0..reader.small()? {
            let offset = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
            behind = offset.checked_add(1).ok_or(DecodeError)?;
            let flags = reader.byte()?;
            let mut slot = unscanned();
            slot.scanned = flags & SCANNED != 0;
            slot.batch_end = flags & BATCH_END != 0;
            slot.key = if flags & KEYED != 0 { Some(KeyHash(reader.fixed()?)) } else { None };
            slot.bytes = reader.small()?;
            slot.count = u16::try_from(reader.small()?).map_err(|_| DecodeError)?;
            let lock = match flags & STATE {
                2 | 3 => Some(*locks.get(reader.small()? as usize).ok_or(DecodeError)?),
                _ => None,
            };
            let wait = if flags & STATE == 1 {
                Some(Wait { full_ms: reader.signed()?, until_wall_ms: reader.signed()? })
            } else {
                None
            };
            if offset >= end {
                continue;
            }
            self.window.insert(offset, slot);
            if slot.scanned && lock.is_none() && flags & STATE == 0 {
                self.enqueue(offset, &slot);
            }
            if let Some(wait) = wait {
                self.delay(offset, wait, now);
            }
            if let Some(lock) = lock {
                self.restore_out(offset, lock, flags & STATE == 3);
            }
        }
        locks.into_iter().for_each(|lock| self.holders.drop_empty(lock));
        Ok(())
    }

    /// What stopped records and keys; a snapshot of before there was such a thing ends here.
    fn restore_stops(&mut self, reader: &mut Reader<'_>, end: i64, now: Now) -> Result<(), DecodeError> {
        if reader.0.is_empty() {
            return Ok(());
        }
        let (stops, records) = Stops::read(reader, end)?;
        let keys: Vec<_> = stops.keys().map(|(key, &stop)| (key, stop)).collect();
        self.stops = stops;
        for (key, stop) in keys {
            self.stop_key(key, stop);
        }
        for (offset, stop, text) in records {
            self.stop_record(offset, stop, false);
            if !text.is_empty() {
                self.stops.explain(offset, &text);
            }
        }
        for _ in 0..reader.small()? {
            let (key, to) = (KeyHash(reader.fixed()?), reader.signed()?);
            let only = if reader.byte()? == 0 { None } else { Some(offsets_of(&reader.ranges()?)?) };
            let mut part = Self::new(self.replay_config(), Arc::new(WindowLimits::none()));
            let snapshot = reader.bytes()?;
            let manifest = part.restore_window(snapshot, end)?;
            part.restore_records(snapshot, &manifest, end, now)?;
            self.insert_replay(key, Replay::restored(part, to.min(end - 1), only));
        }
        Ok(())
    }
}
