//! The persisted events of a share-partition.
//!
//! Durable state changes by [`super::partition::SharePartition::apply`] of one of these and in no other way; a
//! restart applies them again, after the snapshot. Applying is total: an event about an offset that is not in the
//! state it expects changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use records::ids::KeyHash;

use super::codec::{DecodeError, Reader, Writer};
use super::recorder::ranges_of;
use super::replay;
use super::resting::{self, Resting};
use super::stops::{KeyStop, REDRIVABLE_MAX, Stop};

/// Version byte of an encoded event.
const VERSION: u8 = 1;
/// Kinds of what brings records back into memory.
const REFILLED: u8 = 32;
const UNPAGED: u8 = 33;

/// Inclusive, ascending, disjoint offset ranges.
pub(crate) type Ranges = Vec<(i64, i64)>;

/// One change of a share-partition's durable state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The start offset was chosen (a new share-partition) or set anew: nothing before it counts.
    Started(i64),
    /// Records went to a member.
    Granted {
        /// Who holds them.
        member: Arc<str>,
        /// The delivery's number.
        delivery: u64,
        /// The member acknowledges with delivery numbers.
        numbered: bool,
        /// Wall clock, milliseconds.
        wall_ms: i64,
        /// How long the lock lasts, milliseconds.
        lock_ms: i64,
        /// Which.
        ranges: Ranges,
    },
    /// Records are done.
    Settled {
        /// Why.
        how: Settlement,
        /// Which.
        ranges: Ranges,
    },
    /// Records came back from a member.
    Returned {
        /// The delivery counts towards the limit.
        counted: bool,
        /// Not to be delivered before this.
        wait: Option<Wait>,
        /// Which.
        ranges: Ranges,
    },
    /// An earlier record of their key came back: they stay with their holder but are to be delivered again.
    Recalled(Ranges),
    /// Locks begin anew.
    Renewed {
        /// Wall clock, milliseconds.
        wall_ms: i64,
        /// How long the lock lasts, milliseconds.
        lock_ms: i64,
        /// Which.
        ranges: Ranges,
    },
    /// The log begins here now: what lies before is done.
    LogStarted(i64),
    /// Records of a key's span were found in the log again.
    Refilled {
        /// Which key.
        key: KeyHash,
        /// Where its span begins now.
        next: i64,
        /// Offset and size of each record that is not done, ascending.
        records: Vec<(i64, u32)>,
    },
    /// What rested in a page is back in memory.
    Unpaged {
        /// Which page.
        page: u64,
        /// What was in it.
        resting: Vec<Resting>,
    },
    /// Records go to nobody any more: they wait for the dead-letter topic, or for someone's hand.
    Stopped {
        /// For what they wait, why, and since when.
        stop: Stop,
        /// The delivery that ended so counts.
        counted: bool,
        /// Which.
        ranges: Ranges,
    },
    /// Stopped records are to be delivered anew, their counts at the beginning; what waited for a retry waits no longer.
    Freed(Ranges),
    /// A key goes on only by someone's hand.
    KeyStopped {
        /// The key.
        key: KeyHash,
        /// How.
        stop: KeyStop,
    },
    /// A key goes on.
    KeyResumed(KeyHash),
    /// Records were copied to the dead-letter topic, durably: they are done. Ascending offsets, with their keys where
    /// these keep an order: what a redrive begins with.
    DeadLettered(Vec<(i64, Option<KeyHash>)>),
    /// Settled records of a key are delivered again, beside the window.
    ReplayStarted {
        /// The key.
        key: KeyHash,
        /// From this offset.
        from: i64,
        /// To this one, inclusive.
        to: i64,
        /// A redrive: these offsets alone, ascending.
        only: Option<Vec<i64>>,
    },
    /// Something happened in the replay of a key.
    Replayed {
        /// The key.
        key: KeyHash,
        /// What: an event in its stored form, none of a replay.
        event: Bytes,
    },
    /// The replay of a key is over.
    ReplayEnded(KeyHash),
    /// What a member said when it gave a record back that was stopped then.
    Explained {
        /// The record.
        offset: i64,
        /// Its words, at most [`TEXT_BYTES_MAX`] bytes.
        text: Arc<str>,
    },
}

/// Longest explanation that is kept; what is longer is cut.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

/// Why a record is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Accepted by its holder.
    Accepted,
    /// Rejected by its holder.
    Rejected,
    /// It reached the delivery limit.
    LimitReached,
    /// Its stored batch cannot be read.
    Corrupt,
    /// Its holder found nothing at its offset (order `none`: Kafka archives what a gap names), or compaction took it.
    Gap,
    /// Its copy is in the dead-letter topic.
    DeadLettered,
    /// An operator skipped or dropped it.
    Skipped,
}

/// A wait that survives a restart: the full length, and when it ends by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Milliseconds.
    pub(crate) full_ms: i64,
    /// Milliseconds since the epoch.
    pub(crate) until_wall_ms: i64,
}

impl Event {
    /// What it says of offsets below `end`; `None` where that is nothing.
    pub(crate) fn below(mut self, end: i64) -> Option<Self> {
        match &mut self {
            Self::Started(at) | Self::LogStarted(at) => *at = end.min(*at),
            Self::Refilled { next, records, .. } => {
                *next = end.min(*next);
                records.truncate(records.partition_point(|record| record.0 < end));
            }
            Self::Unpaged { resting, .. } => resting::keep_below(resting, end),
            Self::KeyStopped { stop, .. } => return stop.below(end).then_some(self),
            Self::KeyResumed(_) | Self::ReplayEnded(_) => {}
            Self::Explained { offset, .. } => return (*offset < end).then_some(self),
            Self::ReplayStarted { from, to, only, .. } => {
                if *from >= end {
                    return None;
                }
                *to = (*to).min(end - 1);
                if let Some(only) = only {
                    only.retain(|&offset| offset < end);
                }
            }
            Self::Replayed { event, .. } => *event = replay::below(event, end)?,
            Self::DeadLettered(letters) => {
                letters.retain(|letter| letter.0 < end);
                if letters.is_empty() {
                    return None;
                }
            }
            Self::Granted { ranges, .. }
            | Self::Settled { ranges, .. }
            | Self::Returned { ranges, .. }
            | Self::Recalled(ranges)
            | Self::Stopped { ranges, .. }
            | Self::Freed(ranges)
            | Self::Renewed { ranges, .. } => {
                *ranges = ranges_below(std::mem::take(ranges), end);
                if ranges.is_empty() {
                    return None;
                }
            }
        }
        Some(self)
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.byte(VERSION);
        match self {
            Self::Started(at) => {
                writer.byte(1);
                writer.signed(*at);
            }
            Self::Granted { member, delivery, numbered, wall_ms, lock_ms, ranges } => {
                writer.byte(2);
                writer.text(member);
                writer.fixed(*delivery);
                writer.byte(u8::from(*numbered));
                writer.signed(*wall_ms);
                writer.signed(*lock_ms);
                writer.ranges(ranges);
            }
            Self::Settled { how, ranges } => {
                writer.byte(3);
                writer.byte(match how {
                    Settlement::Accepted => 0,
                    Settlement::Rejected => 1,
                    Settlement::LimitReached => 2,
                    Settlement::Corrupt => 3,
                    Settlement::Gap => 4,
                    Settlement::DeadLettered => 5,
                    Settlement::Skipped => 6,
                });
                writer.ranges(ranges);
            }
            Self::Returned { counted, wait, ranges } => {
                writer.byte(4);
                writer.byte(u8::from(*counted) | u8::from(wait.is_some()) << 1);
                if let Some(wait) = wait {
                    writer.signed(wait.full_ms);
                    writer.signed(wait.until_wall_ms);
                }
                writer.ranges(ranges);
            }
            Self::Recalled(ranges) => {
                writer.byte(5);
                writer.ranges(ranges);
            }
            Self::Renewed { wall_ms, lock_ms, ranges } => {
                writer.byte(6);
                writer.signed(*wall_ms);
                writer.signed(*lock_ms);
                writer.ranges(ranges);
            }
            Self::LogStarted(at) => {
                writer.byte(7);
                writer.signed(*at);
            }
            Self::Refilled { key, next, records } => {
                writer.byte(REFILLED);
                writer.fixed(key.0);
                writer.signed(*next);
                writer.number(records.len() as u64);
                let mut behind = 0;
                for &(offset, bytes) in records {
                    writer.signed(offset - behind);
                    writer.number(u64::from(bytes));
                    behind = offset;
                }
            }
            Self::Unpaged { page, resting } => {
                writer.byte(UNPAGED);
                writer.number(*page);
                resting::write(&mut writer, resting);
            }
            Self::Stopped { stop, counted, ranges } => {
                writer.byte(8);
                writer.byte(u8::from(*counted));
                stop.write(&mut writer);
                writer.ranges(ranges);
            }
            Self::Freed(ranges) => {
                writer.byte(9);
                writer.ranges(ranges);
            }
            Self::KeyStopped { key, stop } => {
                writer.byte(10);
                writer.fixed(key.0);
                stop.write(&mut writer);
            }
            Self::KeyResumed(key) => {
                writer.byte(11);
                writer.fixed(key.0);
            }
            Self::DeadLettered(letters) => {
                writer.byte(12);
                writer.number(letters.len() as u64);
                let mut behind = 0;
                for &(offset, key) in letters {
                    writer.signed(offset - behind);
                    behind = offset;
                    writer.byte(u8::from(key.is_some()));
                    if let Some(key) = key {
                        writer.fixed(key.0);
                    }
                }
            }
            Self::ReplayStarted { key, from, to, only } => {
                writer.byte(13);
                writer.fixed(key.0);
                writer.signed(*from);
                writer.signed(*to);
                writer.byte(u8::from(only.is_some()));
                if let Some(only) = only {
                    writer.ranges(&ranges_of(only));
                }
            }
            Self::Replayed { key, event } => {
                writer.byte(14);
                writer.fixed(key.0);
                writer.bytes(event);
            }
            Self::ReplayEnded(key) => {
                writer.byte(15);
                writer.fixed(key.0);
            }
            Self::Explained { offset, text } => {
                writer.byte(16);
                writer.signed(*offset);
                writer.text(text);
            }
        }
        writer.0.into()
    }

    /// The page that a stored event brings back, if it brings one back.
    pub(crate) fn page_of(bytes: &[u8]) -> Option<u64> {
        let number = bytes.strip_prefix(&[VERSION, UNPAGED])?;
        Reader(number).number().ok()
    }

    /// From the stored form.
    ///
    /// # Errors
    /// The bytes are damaged or of a version that this code does not know.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader(bytes);
        if reader.byte()? != VERSION {
            return Err(DecodeError);
        }
        let event = match reader.byte()? {
            1 => Self::Started(reader.signed()?),
            2 => Self::Granted {
                member: reader.text()?,
                delivery: reader.fixed()?,
                numbered: reader.byte()? != 0,
                wall_ms: reader.signed()?,
                lock_ms: reader.signed()?,
                ranges: reader.ranges()?,
            },
            3 => Self::Settled {
                how: match reader.byte()? {
                    0 => Settlement::Accepted,
                    1 => Settlement::Rejected,
                    2 => Settlement::LimitReached,
                    3 => Settlement::Corrupt,
                    4 => Settlement::Gap,
                    5 => Settlement::DeadLettered,
                    6 => Settlement::Skipped,
                    _ => return Err(DecodeError),
                },
                ranges: reader.ranges()?,
            },
            4 => {
                let flags = reader.byte()?;
                let wait = if flags & 2 == 0 {
                    None
                } else {
                    Some(Wait { full_ms: reader.signed()?, until_wall_ms: reader.signed()? })
                };
                Self::Returned { counted: flags & 1 == 1, wait, ranges: reader.ranges()? }
            }
            5 => Self::Recalled(reader.ranges()?),
            6 => Self::Renewed {
                wall_ms: reader.signed()?,
                lock_ms: reader.signed()?,
                ranges: reader.ranges()?,
            },
            7 => Self::LogStarted(reader.signed()?),
            REFILLED => {
                let (key, next, count) = (KeyHash(reader.fixed()?), reader.signed()?, reader.small()?);
                let mut records = Vec::with_capacity(reader.capacity(count));
                let mut behind = 0_i64;
                for _ in 0..count {
                    behind = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
                    records.push((behind, reader.small()?));
                }
                if !records.is_sorted_by(|a, b| a.0 < b.0) {
                    return Err(DecodeError);
                }
                Self::Refilled { key, next, records }
            }
            UNPAGED => Self::Unpaged { page: reader.number()?, resting: resting::read(&mut reader)? },
            8 => {
                let counted = reader.byte()? != 0;
                let stop = Stop::read(&mut reader)?;
                Self::Stopped { stop, counted, ranges: reader.ranges()? }
            }
            9 => Self::Freed(reader.ranges()?),
            10 => Self::KeyStopped { key: KeyHash(reader.fixed()?), stop: KeyStop::read(&mut reader)? },
            11 => Self::KeyResumed(KeyHash(reader.fixed()?)),
            12 => {
                let count = reader.small()?;
                let mut letters = Vec::with_capacity(reader.capacity(count));
                let mut behind = 0_i64;
                for _ in 0..count {
                    behind = behind.checked_add(reader.signed()?).ok_or(DecodeError)?;
                    let keyed = reader.byte()? != 0;
                    let key = if keyed { Some(KeyHash(reader.fixed()?)) } else { None };
                    letters.push((behind, key));
                }
                Self::DeadLettered(letters)
            }
            13 => Self::ReplayStarted {
                key: KeyHash(reader.fixed()?),
                from: reader.signed()?,
                to: reader.signed()?,
                only: if reader.byte()? == 0 { None } else { Some(offsets_of(&reader.ranges()?)?) },
            },
            14 => {
                let (key, event) = (KeyHash(reader.fixed()?), reader.bytes()?);
                // None of a replay: they do not lie in one another.
                if matches!(event.get(1), Some(13..=15)) {
                    return Err(DecodeError);
                }
                Self::Replayed { key, event: Bytes::copy_from_slice(event) }
            }
            15 => Self::ReplayEnded(KeyHash(reader.fixed()?)),
            16 => Self::Explained { offset: reader.signed()?, text: reader.text()? },
            _ => return Err(DecodeError),
        };
        if reader.0.is_empty() { Ok(event) } else { Err(DecodeError) }
    }
}

/// Offsets that are stored as ranges; no more than a redrive can have.
pub(crate) fn offsets_of(ranges: &[(i64, i64)]) -> Result<Vec<i64>, DecodeError> {
    let count: i128 = ranges.iter().map(|range| i128::from(range.1) - i128::from(range.0) + 1).sum();
    if count > REDRIVABLE_MAX as i128 {
        return Err(DecodeError);
    }
    Ok(ranges.iter().flat_map(|range| range.0..=range.1).collect())
}

/// The part of ascending ranges that lies below `end`.
pub(crate) fn ranges_below(mut ranges: Ranges, end: i64) -> Ranges {
    ranges.truncate(ranges.partition_point(|range| range.0 < end));
    if let Some(last) = ranges.last_mut() {
        last.1 = last.1.min(end.saturating_sub(1));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use records::ids::Offset;

    use super::*;
    use crate::share::admin::StopReason;
    use crate::share::stops::WaitsFor;

    fn ranges() -> impl Strategy<Value = Ranges> {
        prop::collection::vec((0_i64..1_000, 0_i64..1_000), 0..20).prop_map(|steps| {
            let mut at = 0;
            let mut ranges = Vec::new();
            for (skip, length) in steps {
                ranges.push((at + skip, at + skip + length));
                at += skip + length + 1;
            }
            ranges
        })
    }

    fn event() -> impl Strategy<Value = Event> {
        use Settlement::{Accepted, Corrupt, DeadLettered, Gap, LimitReached, Rejected, Skipped};
        let how =
            prop::sample::select(vec![Accepted, Rejected, LimitReached, Corrupt, Gap, DeadLettered, Skipped]);
        let wait = prop::option::of((0..i64::MAX, i64::MIN..i64::MAX))
            .prop_map(|wait| wait.map(|(full_ms, until_wall_ms)| Wait { full_ms, until_wall_ms }));
        let reason = prop_oneof![
            Just(StopReason::Rejected),
            Just(StopReason::LimitReached),
            Just(StopReason::Corrupt),
            Just(StopReason::Operator),
            any::<i64>().prop_map(|at| StopReason::Follows(Offset(at))),
        ];
        let waits_for = prop::sample::select(vec![WaitsFor::DeadLetter, WaitsFor::Hand]);
        let stop = (waits_for, reason.clone(), any::<i64>()).prop_map(|(waits_for, reason, wall_ms)| Stop {
            waits_for,
            reason,
            wall_ms,
        });
        let key_stop = (any::<bool>(), any::<i64>(), any::<u16>(), any::<i64>(), reason).prop_map(
            |(follows, at, deliveries, wall_ms, reason)| KeyStop { follows, at, deliveries, wall_ms, reason },
        );
        let letters =
            prop::collection::btree_map(0..i64::MAX, prop::option::of(any::<u64>().prop_map(KeyHash)), 0..20);
        prop_oneof![
            (stop, any::<bool>(), ranges()).prop_map(|(stop, counted, ranges)| Event::Stopped {
                stop,
                counted,
                ranges
            }),
            ranges().prop_map(Event::Freed),
            (any::<u64>(), key_stop).prop_map(|(key, stop)| Event::KeyStopped { key: KeyHash(key), stop }),
            any::<u64>().prop_map(|key| Event::KeyResumed(KeyHash(key))),
            letters.prop_map(|letters| Event::DeadLettered(letters.into_iter().collect())),
            (any::<i64>(), ".{0,40}")
                .prop_map(|(offset, text)| Event::Explained { offset, text: text.into() }),
            any::<u64>().prop_map(|key| Event::ReplayEnded(KeyHash(key))),
            (
                any::<u64>(),
                any::<i64>(),
                any::<i64>(),
                prop::option::of(prop::collection::btree_set(0..i64::from(u32::MAX), 0..20))
            )
                .prop_map(|(key, from, to, only)| Event::ReplayStarted {
                    key: KeyHash(key),
                    from,
                    to,
                    only: only.map(|only| only.into_iter().collect())
                }),
            (any::<u64>(), ranges()).prop_map(|(key, ranges)| Event::Replayed {
                key: KeyHash(key),
                event: Event::Recalled(ranges).encode()
            }),
            any::<i64>().prop_map(Event::Started),
            any::<i64>().prop_map(Event::LogStarted),
            ranges().prop_map(Event::Recalled),
            (how, ranges()).prop_map(|(how, ranges)| Event::Settled { how, ranges }),
            (any::<bool>(), wait, ranges()).prop_map(|(counted, wait, ranges)| Event::Returned {
                counted,
                wait,
                ranges
            }),
            (any::<i64>(), any::<i64>(), ranges()).prop_map(|(wall_ms, lock_ms, ranges)| Event::Renewed {
                wall_ms,
                lock_ms,
                ranges
            }),
            (any::<u64>(), any::<i64>(), prop::collection::btree_map(0..i64::MAX, any::<u32>(), 0..20))
                .prop_map(|(key, next, records)| Event::Refilled {
                    key: KeyHash(key),
                    next,
                    records: records.into_iter().collect()
                }),
            (any::<u64>(), prop::collection::vec(resting::tests::resting(), 0..6))
                .prop_map(|(page, resting)| Event::Unpaged { page, resting }),
            (".{0,40}", any::<u64>(), any::<bool>(), any::<i64>(), ranges()).prop_map(
                |(member, delivery, numbered, wall_ms, ranges)| Event::Granted {
                    member: member.into(),
                    delivery,
                    numbered,
                    wall_ms,
                    lock_ms: 30_000,
                    ranges
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn every_event_comes_back_as_it_was(event in event()) {
            prop_assert_eq!(Event::decode(&event.encode()), Ok(event));
        }

        #[test]
        fn damaged_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Event::decode(&bytes);
        }
    }
}
