//! What rests in a page of the share state: keys, and records without one, that wait long for their retry, or are parked.
//!
//! A page is immutable. It is written with a snapshot, read back shortly before the first of its waits ends, or when
//! somebody's hand is on what is in it, and then dropped by the next snapshot. Its records have no slots meanwhile; of its
//! keys only the hash is known.

use std::sync::Arc;

use bytes::Bytes;
use records::ids::KeyHash;

use super::codec::{DecodeError, Reader, Writer};
use super::event::Wait;
use super::stops::{KeyStop, Stop};

/// Version byte of a page.
const VERSION: u8 = 1;

const KEYED: u8 = 1;
const LATER: u8 = 1 << 1;
const SEVERAL: u8 = 1 << 2;
/// The wait of its first record is as long as that of the one before.
const SAME_WAIT: u8 = 1 << 3;
const PARKED: u8 = 1 << 4;
/// No record of it was delivered before: it is parked.
const NONE: u8 = 1 << 5;

/// A key at rest, or a record without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    /// Its hash.
    pub(crate) key: Option<KeyHash>,
    /// Its records that were delivered before, ascending; at least one, where the key is not parked.
    pub(crate) records: Vec<RestingRecord>,
    /// From here on it has records that were never delivered, or may have; known where it has no others.
    pub(crate) later: Option<i64>,
    /// What has to be undone by hand before it goes on.
    pub(crate) parked: Option<Box<Parked>>,
}

/// What is parked of a key, or a parked record without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Why the key is.
    pub(crate) key: Option<KeyStop>,
    /// Those of its records that are parked themselves: offset, why, and what a member said (empty: nothing).
    pub(crate) records: Vec<(i64, Stop, Arc<str>)>,
}

/// A record that was delivered before, in no member's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestingRecord {
    /// Where it is.
    pub(crate) offset: i64,
    /// Its size.
    pub(crate) bytes: u32,
    /// Deliveries that count and failed.
    pub(crate) count: u16,
    /// Not to be delivered before this.
    pub(crate) wait: Option<Wait>,
}

impl Resting {
    /// Its lowest offset.
    pub(crate) fn lowest(&self) -> i64 {
        let record = self.records.first().map_or(i64::MAX, |record| record.offset);
        self.later.map_or(record, |later| later.min(record))
    }
}

/// A page of them. Offsets from `scan` on were not scanned when it was written.
pub(crate) fn encode_page(scan: i64, resting: &[Resting]) -> Bytes {
    let mut writer = Writer::default();
    writer.byte(VERSION);
    writer.signed(scan);
    write(&mut writer, resting);
    writer.0.into()
}

/// The scan offset of a page, and what of it lies below `end`.
///
/// # Errors
/// It is damaged, or of a version that this code does not know.
pub(crate) fn decode_page(bytes: &[u8], end: i64) -> Result<(i64, Vec<Resting>), DecodeError> {
    let mut reader = Reader(bytes);
    if reader.byte()? != VERSION {
        return Err(DecodeError);
    }
    let scan = reader.signed()?.min(end);
    let mut resting = read(&mut reader)?;
    keep_below(&mut resting, end);
    if reader.0.is_empty() { Ok((scan, resting)) } else { Err(DecodeError) }
}

/// Forgets what lies at or behind `end`.
pub(crate) fn keep_below(resting: &mut Vec<Resting>, end: i64) {
    for one in resting.iter_mut() {
        one.records.truncate(one.records.partition_point(|record| record.offset < end));
        one.later = one.later.filter(|&later| later < end);
        if let Some(parked) = &mut one.parked {
            parked.records.retain(|record| record.0 < end);
            parked.key = parked.key.take_if(|stop| stop.below(end));
        }
        if one.records.is_empty() {
            one.later = one.later.or(Some(end));
        }
        one.parked.take_if(|parked| **parked == Parked::default());
    }
    resting.retain(|one| !one.records.is_empty() || one.parked.is_some());
}

/// Writes them one after another, in about twenty bytes each.
pub(crate) fn write(writer: &mut Writer, resting: &[Resting]) {
    writer.number(resting.len() as u64);
    let (mut behind, mut until_behind, mut full_behind) = (0_i64, 0_i64, 0_i64);
    for one in resting {
        let none = RestingRecord { offset: behind, bytes: 0, count: 0, wait: None };
        let (first, others) = one.records.split_first().unwrap_or((&none, &[]));
        let wait = first.wait;
        let same = wait.is_some_and(|wait| wait.full_ms == full_behind);
        let mut flags = if one.key.is_some() { KEYED } else { 0 };
        flags |= if one.later.is_some() { LATER } else { 0 };
        flags |= if others.is_empty() { 0 } else { SEVERAL };
        flags |= if same { SAME_WAIT } else { 0 };
        flags |= if one.parked.is_some() { PARKED } else { 0 };
        flags |= if one.records.is_empty() { NONE } else { 0 };
        writer.byte(flags);
        if let Some(key) = one.key {
            writer.fixed(key.0);
        }
        writer.difference(first.offset, behind);
        writer.number(u64::from(first.bytes));
        writer.number(u64::from(first.count) << 1 | u64::from(wait.is_some()));
        if let Some(wait) = wait {
            if !same {
                writer.signed(wait.full_ms);
            }
            writer.difference(wait.until_wall_ms, until_behind);
            (full_behind, until_behind) = (wait.full_ms, wait.until_wall_ms);
        }
        behind = first.offset;
        if !others.is_empty() {
            writer.number(others.len() as u64);
            let mut before = first.offset;
            for record in others {
                writer.difference(record.offset, before);
                writer.number(u64::from(record.bytes));
                writer.number(u64::from(record.count) << 1 | u64::from(record.wait.is_some()));
                if let Some(wait) = record.wait {
                    writer.signed(wait.full_ms);
                    writer.signed(wait.until_wall_ms);
                }
                before = record.offset;
            }
        }
        if let Some(later) = one.later {
            writer.difference(later, first.offset);
        }
        if let Some(parked) = &one.parked {
            parked.write(writer, first.offset);
        }
    }
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// It is damaged.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Vec<Resting>, DecodeError> {
    let count = reader.small()?;
    let mut resting = Vec::with_capacity(reader.capacity(count));
    let (mut behind, mut until_behind, mut full_behind) = (0_i64, 0_i64, 0_i64);
    for _ in 0..count {
        let flags = reader.byte()?;
        let key = if flags & KEYED == 0 { None } else { Some(KeyHash(reader.fixed()?)) };
        let offset = reader.difference(behind)?;
        let (bytes, count, waits) = read_counts(reader)?;
        let mut wait = None;
        if waits {
            let full_ms = if flags & SAME_WAIT == 0 { reader.signed()? } else { full_behind };
            let until_wall_ms = reader.difference(until_behind)?;
            (full_behind, until_behind) = (full_ms, until_wall_ms);
            wait = Some(Wait { full_ms, until_wall_ms });
        }
        behind = offset;
        let mut records = vec![RestingRecord { offset, bytes, count, wait }];
        if flags & SEVERAL != 0 {
            let mut before = offset;
            for _ in 0..reader.small()? {
                let offset = reader.difference(before)?;
                if offset <= before {
                    return Err(DecodeError);
                }
                let (bytes, count, waits) = read_counts(reader)?;
                let wait = if waits {
                    Some(Wait { full_ms: reader.signed()?, until_wall_ms: reader.signed()? })
                } else {
                    None
                };
                records.push(RestingRecord { offset, bytes, count, wait });
                before = offset;
            }
        }
        if flags & NONE != 0 {
            records.clear();
        }
        let later = if flags & LATER == 0 { None } else { Some(reader.difference(offset)?) };
        let parked = if flags & PARKED == 0 { None } else { Some(Box::new(Parked::read(reader, offset)?)) };
        resting.push(Resting { key, records, later, parked });
    }
    Ok(resting)
}

impl Parked {
    /// Its stored form, beside that of the first record of its key.
    fn write(&self, writer: &mut Writer, first: i64) {
        writer.byte(u8::from(self.key.is_some()));
        if let Some(stop) = &self.key {
            stop.write(writer);
        }
        writer.number(self.records.len() as u64);
        for (offset, stop, text) in &self.records {
            writer.difference(*offset, first);
            stop.write(writer);
            writer.text(text);
        }
    }

    fn read(reader: &mut Reader<'_>, first: i64) -> Result<Self, DecodeError> {
        let key = if reader.byte()? == 0 { None } else { Some(KeyStop::read(reader)?) };
        let count = reader.small()?;
        let mut records = Vec::with_capacity(reader.capacity(count));
        for _ in 0..count {
            records.push((reader.difference(first)?, Stop::read(reader)?, reader.text()?));
        }
        Ok(Self { key, records })
    }
}

/// Size, deliveries, and whether it waits.
fn read_counts(reader: &mut Reader<'_>) -> Result<(u32, u16, bool), DecodeError> {
    let (bytes, count) = (reader.small()?, reader.small()?);
    Ok((bytes, u16::try_from(count >> 1).map_err(|_| DecodeError)?, count & 1 == 1))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::admin::StopReason;
    use crate::share::stops::WaitsFor;

    pub(crate) fn resting() -> impl Strategy<Value = Resting> {
        let wait = || {
            prop::option::of((prop::sample::select(vec![1, 60_000, i64::MAX]), any::<i64>()))
                .prop_map(|wait| wait.map(|(full_ms, until_wall_ms)| Wait { full_ms, until_wall_ms }))
        };
        let record = (any::<u32>(), 0..1_u16 << 15, wait());
        (
            prop::option::of(any::<u64>()),
            prop::collection::btree_map(0..i64::MAX, record, 0..4),
            prop::option::of(0..i64::MAX),
            prop::option::of(prop::option::of("[a-zé ]{0,9}")),
        )
            .prop_map(|(key, records, later, parked)| {
                // What is not parked has a record.
                let parked = if records.is_empty() { Some(None) } else { parked };
                let later = if records.is_empty() { later.or(Some(5)) } else { later };
                (key, records, later, parked)
            })
            .prop_map(|(key, records, later, parked)| Resting {
                parked: parked.map(|text| Box::new(parked_at(records.keys().next().copied(), text))),
                key: key.map(KeyHash),
                records: records
                    .into_iter()
                    .map(|(offset, (bytes, count, wait))| RestingRecord { offset, bytes, count, wait })
                    .collect(),
                later,
            })
    }

    /// The first record of a key parked it, and a member said this text, if it is parked itself; without one a hand did.
    fn parked_at(first: Option<i64>, text: Option<String>) -> Parked {
        let reason = if first.is_some() { StopReason::LimitReached } else { StopReason::Operator };
        let (first, wall_ms) = (first.unwrap_or(7), 1_700_000_000_000);
        let key = KeyStop { follows: false, at: first, deliveries: 5, wall_ms, reason };
        let stop = Stop { waits_for: WaitsFor::Hand, reason, wall_ms };
        let records = text.into_iter().map(|text| (first, stop, text.into())).collect();
        Parked { key: Some(key), records }
    }

    #[test]
    fn k63_a_waiting_key_takes_about_twenty_bytes() {
        let resting: Vec<Resting> = (0..3_000_u16)
            .map(|number| {
                let offset = 5_000_000 + i64::from(number) * 3;
                let wait = Wait { full_ms: 60_000, until_wall_ms: 1_700_000_000_000 + offset };
                let record = RestingRecord { offset, bytes: 300, count: 1, wait: Some(wait) };
                let key = Some(KeyHash(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                Resting { key, records: vec![record], later: None, parked: None }
            })
            .collect();
        let page = encode_page(6_000_000, &resting);
        assert!(page.len() < resting.len() * 20, "{}", page.len());
        assert_eq!(decode_page(&page, i64::MAX), Ok((6_000_000, resting)));
    }

    proptest! {
        #[test]
        fn a_page_comes_back_as_it_was(scan in any::<i64>(), resting in prop::collection::vec(resting(), 0..20)) {
            prop_assert_eq!(decode_page(&encode_page(scan, &resting), i64::MAX), Ok((scan, resting)));
        }

        #[test]
        fn what_lies_behind_a_cut_is_void(resting in prop::collection::vec(resting(), 0..20), end in 0..i64::MAX) {
            let (scan, kept) = decode_page(&encode_page(i64::MAX, &resting), end).unwrap();
            prop_assert_eq!(scan, end);
            prop_assert!(kept.iter().flat_map(|one| &one.records).all(|record| record.offset < end));
            let is_below = |one: &&Resting| one.records.first().is_none_or(|record| record.offset < end);
            prop_assert_eq!(kept.len(), resting.iter().filter(is_below).count());
        }

        #[test]
        fn damaged_pages_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_page(&bytes, i64::MAX);
        }
    }
}
