//! What goes on only by someone's hand, or by way of the dead-letter topic: stopped records and stopped keys; and which
//! dead-lettered records a redrive can bring back.
//!
//! Invariants. Every record in here has a slot in state [`super::window::RecordState::Stopped`], and every such slot
//! is in here. A stopped key hands out nothing, whatever its records' states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::{KeyHash, Offset};

use super::admin::StopReason;
use super::codec::{DecodeError, Reader, Writer};

/// Dead-lettered records that are remembered for a redrive; beyond it the oldest are forgotten.
pub(crate) const REDRIVABLE_MAX: usize = 16_384;
/// One part in so many of the window is theirs at most.
const REDRIVABLE_PARTS: u64 = 8;
/// About what a remembered record, a stopped record and a stopped key cost.
const ENTRY_BYTES: u64 = 64;

/// For what a stopped record waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Until it is copied to the dead-letter topic.
    DeadLetter,
    /// Until someone resumes, skips or drops it.
    Hand,
}

/// Why a record is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) waits_for: WaitsFor,
    pub(crate) reason: StopReason,
    /// Since when, milliseconds since the epoch.
    pub(crate) wall_ms: i64,
}

/// Why a key is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyStop {
    /// Its records go to the dead-letter topic (else it is parked).
    pub(crate) follows: bool,
    /// The record that stopped it; its next one where an operator did.
    pub(crate) at: i64,
    /// Deliveries of that record that failed.
    pub(crate) deliveries: u16,
    /// Since when, milliseconds since the epoch.
    pub(crate) wall_ms: i64,
    pub(crate) reason: StopReason,
}

/// Stopped records as a snapshot tells them: offset, why, and what a member said (empty: nothing).
pub(crate) type StoredRecords = Vec<(i64, Stop, Arc<str>)>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    records: BTreeMap<i64, Stop>,
    /// What members said of them.
    texts: BTreeMap<i64, Arc<str>>,
    text_bytes: usize,
    /// Those of them that wait for the dead-letter topic.
    letters: BTreeSet<i64>,
    keys: BTreeMap<KeyHash, KeyStop>,
    /// Those of them that follow.
    following: usize,
    /// Dead-lettered records of ordered keys, both ways round.
    redrivable: BTreeSet<(KeyHash, i64)>,
    redrivable_offsets: BTreeSet<(i64, KeyHash)>,
}

impl Stops {
    pub(crate) fn get(&self, offset: i64) -> Option<&Stop> {
        self.records.get(&offset)
    }

    pub(crate) fn key(&self, key: KeyHash) -> Option<&KeyStop> {
        self.keys.get(&key)
    }

    pub(crate) fn insert(&mut self, offset: i64, stop: Stop) {
        self.remove(offset);
        if stop.waits_for == WaitsFor::DeadLetter {
            self.letters.insert(offset);
        }
        self.records.insert(offset, stop);
    }

    pub(crate) fn remove(&mut self, offset: i64) -> Option<Stop> {
        let stop = self.records.remove(&offset)?;
        self.letters.remove(&offset);
        self.text_bytes -= self.texts.remove(&offset).map_or(0, |text| text.len());
        Some(stop)
    }

    /// A record leaves memory with what stopped it: why, and what a member said (empty: nothing).
    pub(crate) fn take(&mut self, offset: i64) -> Option<(Stop, Arc<str>)> {
        let text = self.text(offset).cloned();
        self.remove(offset).map(|stop| (stop, text.unwrap_or_default()))
    }

    /// What a member said of a stopped record.
    pub(crate) fn text(&self, offset: i64) -> Option<&Arc<str>> {
        self.texts.get(&offset)
    }

    /// Keeps what a member said, if the record is stopped.
    pub(crate) fn explain(&mut self, offset: i64, text: &Arc<str>) {
        if self.records.contains_key(&offset) {
            let before = self.texts.insert(offset, Arc::clone(text));
            self.text_bytes += text.len();
            self.text_bytes -= before.map_or(0, |text| text.len());
        }
    }

    pub(crate) fn insert_key(&mut self, key: KeyHash, stop: KeyStop) {
        self.remove_key(key);
        self.following += usize::from(stop.follows);
        self.keys.insert(key, stop);
    }

    pub(crate) fn remove_key(&mut self, key: KeyHash) -> Option<KeyStop> {
        let stop = self.keys.remove(&key)?;
        self.following -= usize::from(stop.follows);
        Some(stop)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (i64, &Stop)> {
        self.records.iter().map(|(&offset, stop)| (offset, stop))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (KeyHash, &KeyStop)> {
        self.keys.iter().map(|(&key, stop)| (key, stop))
    }

    pub(crate) fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// Keys whose records go to the dead-letter topic.
    pub(crate) fn following_len(&self) -> usize {
        self.following
    }

    /// Keys that wait for somebody's hand, and records without one, about: a key may have several.
    pub(crate) fn parked_about(&self) -> usize {
        self.parked_len().max(self.keys.len() - self.following)
    }

    /// Records that wait for the dead-letter topic, ascending.
    pub(crate) fn letters(&self) -> impl Iterator<Item = i64> {
        self.letters.iter().copied()
    }

    pub(crate) fn letters_len(&self) -> usize {
        self.letters.len()
    }

    /// Records that wait for somebody's hand, ascending.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (i64, &Stop)> {
        self.records().filter(|(_, stop)| stop.waits_for == WaitsFor::Hand)
    }

    fn parked_len(&self) -> usize {
        self.records.len() - self.letters.len()
    }

    /// A record of an ordered key was dead-lettered. What is remembered so takes a part of `window_bytes_max` at most: it
    /// must not fill the window for good.
    pub(crate) fn remember(&mut self, key: KeyHash, offset: i64, window_bytes_max: u64) {
        self.redrivable.insert((key, offset));
        self.redrivable_offsets.insert((offset, key));
        let fit = window_bytes_max / REDRIVABLE_PARTS / (2 * ENTRY_BYTES);
        let max = usize::try_from(fit).unwrap_or(usize::MAX).min(REDRIVABLE_MAX);
        while self.redrivable.len() > max {
            if let Some((offset, key)) = self.redrivable_offsets.pop_first() {
                self.redrivable.remove(&(key, offset));
            }
        }
    }

    /// Dead-lettered records of a key, ascending.
    pub(crate) fn redrivable(&self, key: KeyHash) -> Vec<i64> {
        self.redrivable.range((key, i64::MIN)..=(key, i64::MAX)).map(|entry| entry.1).collect()
    }

    /// The key of a dead-lettered record.
    pub(crate) fn redrivable_key(&self, offset: i64) -> Option<KeyHash> {
        let from = (offset, KeyHash(0));
        self.redrivable_offsets.range(from..=(offset, KeyHash(u64::MAX))).next().map(|entry| entry.1)
    }

    /// Dead-lettered records of a key are delivered again.
    pub(crate) fn forget_redrivable(&mut self, key: KeyHash) {
        for offset in self.redrivable(key) {
            self.redrivable.remove(&(key, offset));
            self.redrivable_offsets.remove(&(offset, key));
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let entries = self.records.len() + self.keys.len() + self.texts.len() + 2 * self.redrivable.len();
        entries as u64 * ENTRY_BYTES + self.text_bytes as u64
    }

    /// Its part of a snapshot.
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.number(self.records.len() as u64);
        let mut behind = 0;
        for (&offset, stop) in &self.records {
            writer.signed(offset - behind);
            behind = offset;
            stop.write(writer);
            writer.text(self.text(offset).map_or("", |text| text));
        }
        writer.number(self.keys.len() as u64);
        for (key, stop) in &self.keys {
            writer.fixed(key.0);
            stop.write(writer);
        }
        writer.number(self.redrivable_offsets.len() as u64);
        let mut behind = 0;
        for (offset, key) in &self.redrivable_offsets {
            writer.signed(offset - behind);
            behind = *offset;
            writer.fixed(key.0);
        }
    }

    /// Reads its part of a snapshot, as far as it speaks of offsets below `end`. The records are given back: they are
    /// stopped one by one.
    pub(crate) fn read(reader: &mut Reader<'_>, end: i64) -> Result<(Self, StoredRecords), DecodeError> {
        let mut stops = Self::default();
        let count = reader.small()?;
        let mut records = Vec::with_capacity(reader.capacity(count));
        let mut behind = 0_i64;
        for _ in 0..count {
            behind = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
            let (stop, text) = (Stop::read(reader)?, reader.text()?);
            if behind < end {
                records.push((behind, stop, text));
            }
        }
        for _ in 0..reader.small()? {
            let key = KeyHash(reader.fixed()?);
            let mut stop = KeyStop::read(reader)?;
            if stop.below(end) {
                stops.insert_key(key, stop);
            }
        }
        let mut behind = 0_i64;
        for _ in 0..reader.small()? {
            behind = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
            let key = KeyHash(reader.fixed()?);
            if behind < end {
                stops.remember(key, behind, u64::MAX);
            }
        }
        Ok((stops, records))
    }
}

impl Stop {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.byte(match self.waits_for {
            WaitsFor::DeadLetter => 0,
            WaitsFor::Hand => 1,
        });
        write_reason(self.reason, writer);
        writer.signed(self.wall_ms);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let waits_for = match reader.byte()? {
            0 => WaitsFor::DeadLetter,
            1 => WaitsFor::Hand,
            _ => return Err(DecodeError),
        };
        Ok(Self { waits_for, reason: read_reason(reader)?, wall_ms: reader.signed()? })
    }
}

impl KeyStop {
    /// Whether it holds where the log ends at `end`: what stopped it must not lie beyond, but for an operator's word.
    pub(crate) fn below(&mut self, end: i64) -> bool {
        if self.reason == StopReason::Operator {
            self.at = self.at.min(end);
            return true;
        }
        self.at < end
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.byte(u8::from(self.follows));
        writer.signed(self.at);
        writer.number(u64::from(self.deliveries));
        writer.signed(self.wall_ms);
        write_reason(self.reason, writer);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            follows: reader.byte()? != 0,
            at: reader.signed()?,
            deliveries: u16::try_from(reader.small()?).map_err(|_| DecodeError)?,
            wall_ms: reader.signed()?,
            reason: read_reason(reader)?,
        })
    }
}

fn write_reason(reason: StopReason, writer: &mut Writer) {
    match reason {
        StopReason::Rejected => writer.byte(0),
        StopReason::LimitReached => writer.byte(1),
        StopReason::Corrupt => writer.byte(2),
        StopReason::Follows(offset) => {
            writer.byte(3);
            writer.signed(offset.get());
        }
        StopReason::Operator => writer.byte(4),
    }
}

fn read_reason(reader: &mut Reader<'_>) -> Result<StopReason, DecodeError> {
    Ok(match reader.byte()? {
        0 => StopReason::Rejected,
        1 => StopReason::LimitReached,
        2 => StopReason::Corrupt,
        3 => StopReason::Follows(Offset(reader.signed()?)),
        4 => StopReason::Operator,
        _ => return Err(DecodeError),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshots_part_comes_back_as_it_was() {
        let mut stops = Stops::default();
        let stop = |waits_for, reason| Stop { waits_for, reason, wall_ms: 1_700_000_000_000 };
        stops.insert(3, stop(WaitsFor::DeadLetter, StopReason::Rejected));
        stops.insert(9, stop(WaitsFor::Hand, StopReason::LimitReached));
        stops.insert(12, stop(WaitsFor::DeadLetter, StopReason::Follows(Offset(3))));
        stops.explain(9, &Arc::from("no such account"));
        stops.explain(10, &Arc::from("is not stopped"));
        let key_stop =
            KeyStop { follows: true, at: 3, deliveries: 5, wall_ms: 7, reason: StopReason::LimitReached };
        stops.insert_key(KeyHash(7), key_stop);
        stops.remember(KeyHash(7), 1, u64::MAX);
        let mut writer = Writer::default();
        stops.write(&mut writer);
        let mut reader = Reader(&writer.0);
        let (read, records) = Stops::read(&mut reader, i64::MAX).unwrap();
        assert!(reader.0.is_empty());
        let text = |at: i64| if at == 9 { "no such account".into() } else { Arc::from("") };
        let expected = stops.records.iter().map(|(&at, &stop)| (at, stop, text(at)));
        assert_eq!(records, expected.collect::<Vec<_>>());
        assert_eq!(read.key(KeyHash(7)), Some(&key_stop));
        assert_eq!(read.redrivable(KeyHash(7)), [1]);
        // Of a log that was cut at 3 the key stop is void, and two of the records.
        let (cut, records) = Stops::read(&mut Reader(&writer.0), 3).unwrap();
        assert_eq!((cut.keys_len(), records.len()), (0, 0));
        assert_eq!(cut.redrivable(KeyHash(7)), [1]);
    }

    #[test]
    fn what_can_be_redriven_is_bounded_and_the_oldest_go_first() {
        let mut stops = Stops::default();
        for offset in 0..i64::try_from(REDRIVABLE_MAX).unwrap() + 10 {
            stops.remember(KeyHash(u64::from(offset % 2 == 0)), offset, 16 << 20);
        }
        assert_eq!(stops.redrivable.len(), REDRIVABLE_MAX);
        assert_eq!(stops.redrivable(KeyHash(1)).first(), Some(&10));
        assert_eq!(stops.redrivable_key(11), Some(KeyHash(0)));
        stops.forget_redrivable(KeyHash(1));
        assert_eq!(stops.redrivable(KeyHash(1)), [0_i64; 0]);
        assert_eq!(stops.redrivable_offsets.len(), REDRIVABLE_MAX / 2);
    }
}
