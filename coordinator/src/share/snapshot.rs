//! The snapshot of a share-partition: what recovery begins with, before the events behind it.
//!
//! It holds the unsettled records of the window with all that is known of them, so that no byte of the log below
//! its scan offset is read again; what is settled in between is what is left over.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use records::ids::KeyHash;

use super::ShareConfig;
use super::codec::{DecodeError, Reader, Writer};
use super::event::{Event, Wait, offsets_of, ranges_below};
use super::holders::Lock;
use super::partition::{SharePartition, unscanned};
use super::recorder::ranges_of;
use super::replay::Replay;
use super::stops::Stops;
use super::window::RecordState;
use crate::io::StoredState;
use crate::time::Now;

const VERSION: u8 = 1;

const STATE: u8 = 0b11;
const SCANNED: u8 = 1 << 2;
const KEYED: u8 = 1 << 3;
const BATCH_END: u8 = 1 << 4;

impl SharePartition {
    /// The stored form of everything durable.
    pub(crate) fn snapshot(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.byte(VERSION);
        writer.signed(self.window.start());
        writer.signed(self.window.scan());
        writer.signed(self.window.acquired_end());
        writer.ranges(&self.window.settled().runs_from(self.window.scan()));

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
        self.stops.write(&mut writer);
        writer.number(self.replays.len() as u64);
        for (key, replay) in &self.replays {
            writer.fixed(key.0);
            writer.signed(replay.to);
            writer.byte(u8::from(replay.only.is_some()));
            if let Some(only) = &replay.only {
                writer.ranges(&ranges_of(only));
            }
            writer.bytes(&replay.part.snapshot());
        }
        writer.0.into()
    }

    /// Rebuilds a share-partition from its snapshot and the events behind it. Its locks have no end yet, and
    /// nothing may be granted, before [`SharePartition::recovered`].
    ///
    /// # Errors
    /// The stored state is damaged or of a version that this code does not know.
    pub(crate) fn recover(
        config: Arc<ShareConfig>,
        snapshot: Option<&StoredState>,
        events: &[StoredState],
        now: Now,
    ) -> Result<Self, DecodeError> {
        let mut partition = Self::new(config);
        if let Some(StoredState { bytes, void_from }) = snapshot {
            partition.restore(bytes, void_from.get(), now)?;
        }
        for StoredState { bytes, void_from } in events {
            if let Some(event) = Event::decode(bytes)?.below(void_from.get()) {
                partition.apply(&event, now);
            }
        }
        Ok(partition)
    }

    /// What a snapshot says of offsets below `end`.
    fn restore(&mut self, snapshot: &[u8], end: i64, now: Now) -> Result<(), DecodeError> {
        let mut reader = Reader(snapshot);
        if reader.byte()? != VERSION {
            return Err(DecodeError);
        }
        let (start, scan, acquired_end) = (reader.signed()?, reader.signed()?, reader.signed()?);
        // Slots are told by their distance from the start as it was.
        let mut behind = start;
        let (start, scan, acquired_end) = (start.min(end), scan.min(end), acquired_end.min(end));
        self.window.restore(start, scan, acquired_end);
        let settled = ranges_below(reader.ranges()?, end);

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

        for _ in 0..reader.small()? {
            let offset = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
            self.window.settle_gap(behind, (offset - 1).min(scan - 1));
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
        self.window.settle_gap(behind, scan - 1);
        for (first, last) in settled {
            self.window.settle_gap(first, last);
        }
        locks.into_iter().for_each(|lock| self.holders.drop_empty(lock));
        self.restore_stops(&mut reader, end, now)?;
        if reader.0.is_empty() { Ok(()) } else { Err(DecodeError) }
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
            let mut part = Self::new(self.replay_config());
            part.restore(reader.bytes()?, end, now)?;
            self.insert_replay(key, Replay::restored(part, to.min(end - 1), only));
        }
        Ok(())
    }
}
