//! Replays: settled records of one key are delivered again, beside the window.
//!
//! A replay is a share-partition of its own over that key alone: its window, counts, locks and events are made as any
//! other's, so that order, recall and recovery are the same ones. Its events are stored inside of its share-partition's.
//! The start offset, the lag and all other keys are as without it.
//!
//! Invariants. While there is a replay of a key, its share-partition grants nothing of that key from the replay's next
//! record on; the replay grants nothing while members hold records of the key that are not its own, and none behind an
//! unsettled one that is not its own. So both together keep the key's order. No offset is unsettled in both.

use std::sync::Arc;

use bytes::Bytes;
use records::ids::{KeyHash, Offset};

use super::admin::AdminError;
use super::event::Event;
use super::limits::WindowLimits;
use super::partition::SharePartition;
use super::ranges::contain;
use super::{Poison, ShareConfig};
use crate::io::{Scanned, ScannedBatch, ScannedKind, ScannedRecord};
use crate::plan::share_fetch::Bidder;
use crate::share::acquire::Turn;
use crate::share::key_queue::{Cursor, Halt};
use crate::time::Now;

/// Replays of one share-partition at a time.
const REPLAYS_MAX: usize = 64;
/// Unsettled records of a replay that are in memory, about.
const AHEAD_MAX: usize = 256;

/// The replay of one key.
#[derive(Debug)]
pub(crate) struct Replay {
    /// From its start offset on.
    pub(super) part: SharePartition,
    /// To this offset, inclusive.
    pub(super) to: i64,
    /// Of a redrive: these offsets alone, ascending.
    pub(super) only: Option<Vec<i64>>,
    /// Records of it are being looked up.
    looking: bool,
}

/// Which records of a replay are to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookUp {
    /// Those of the key in this range (the end exclusive).
    Range(i64, i64),
    /// These.
    Offsets(Vec<Offset>),
}

impl SharePartition {
    /// Delivers again what was settled of a key from `from` to `to`, or these offsets alone.
    pub(super) fn start_replay(
        &mut self,
        key: KeyHash,
        from: i64,
        to: i64,
        only: Option<Vec<i64>>,
        now: Now,
    ) -> Result<(), AdminError> {
        if self.replays.contains_key(&key) {
            return Err(AdminError::Replaying);
        }
        if self.replays.len() >= REPLAYS_MAX {
            return Err(AdminError::TooMany);
        }
        let event = Event::ReplayStarted { key, from, to, only };
        self.apply(&event, now);
        self.note_event(&event);
        Ok(())
    }

    /// The dead-lettered records of a key are delivered again, as far as they are still in the log.
    pub(super) fn redrive(&mut self, key: KeyHash, log_start: i64, now: Now) -> Result<u64, AdminError> {
        if self.replays.contains_key(&key) {
            return Err(AdminError::Replaying);
        }
        let offsets = self.sources(key, log_start)?;
        let (from, to) = (offsets[0], offsets[offsets.len() - 1]);
        let count = offsets.len() as u64;
        self.start_replay(key, from, to, Some(offsets), now)?;
        Ok(count)
    }

    /// The dead-lettered records of a key that may be in the log still, ascending; at least one.
    pub(crate) fn sources(&self, key: KeyHash, log_start: i64) -> Result<Vec<i64>, AdminError> {
        let mut offsets = self.stops.redrivable(key);
        let first = *offsets.first().ok_or(AdminError::NothingToRedrive)?;
        offsets.retain(|&offset| offset >= log_start);
        if offsets.is_empty() {
            return Err(AdminError::SourceGone { offset: Offset(first), by_start: true });
        }
        Ok(offsets)
    }

    /// What was settled of a key in a range is delivered again, as far as it is still in the log, and up to its first record
    /// that is not done: what lies behind that may come for the first time yet.
    pub(super) fn replay(
        &mut self,
        key: KeyHash,
        (from, to): (i64, i64),
        log_start: i64,
        now: Now,
    ) -> Result<(), AdminError> {
        let (from, to) = self.replay_range(key, (from, to), log_start)?;
        self.start_replay(key, from, to, None, now)
    }

    /// What of a range a replay of this key goes through.
    pub(crate) fn replay_range(
        &self,
        key: KeyHash,
        (from, to): (i64, i64),
        log_start: i64,
    ) -> Result<(i64, i64), AdminError> {
        if from > to {
            return Err(AdminError::EmptyRange);
        }
        if to >= self.window.scan() {
            return Err(AdminError::RangeNotRead(Offset(self.window.scan())));
        }
        if to < log_start {
            return Err(AdminError::RangeGone(Offset(log_start)));
        }
        let from = from.max(log_start);
        match self.first_of(key) {
            Some(first) if first <= from => Err(AdminError::RangeOpen(Offset(first))),
            first => Ok((from, first.map_or(to, |first| to.min(first - 1)))),
        }
    }

    pub(super) fn apply_replay(&mut self, event: &Event, now: Now) {
        match event {
            Event::ReplayStarted { key, from, to, only } => {
                let mut part = Self::new(self.replay_config(), Arc::new(WindowLimits::none()));
                part.window.reset(*from);
                if only.is_some() {
                    self.stops.forget_redrivable(*key);
                }
                self.insert_replay(*key, Replay { part, to: *to, only: only.clone(), looking: false });
            }
            Event::Replayed { key, event } => {
                let Ok(event) = Event::decode(event) else { return };
                if let Some(replay) = self.replays.get_mut(key) {
                    replay.part.apply(&event, now);
                }
                if let Event::DeadLettered(letters) = event {
                    if let Some(replay) = self.replays.get_mut(key) {
                        replay.part.stops.forget_redrivable(*key);
                    }
                    let bytes_max = self.config.window_bytes_max;
                    letters.iter().for_each(|letter| self.stops.remember(*key, letter.0, bytes_max));
                }
            }
            Event::ReplayEnded(key) => self.remove_replay(*key),
            _ => {}
        }
    }

    pub(super) fn insert_replay(&mut self, key: KeyHash, mut replay: Replay) {
        replay.part.settle_in(self.queue.homes());
        self.replays.insert(key, Box::new(replay));
        self.update_stop(key);
    }

    fn remove_replay(&mut self, key: KeyHash) {
        if let Some(mut replay) = self.replays.remove(&key) {
            // That it ends is not stored yet.
            self.holders.keep_ended(replay.part.holders.survivors());
        }
        self.update_stop(key);
    }

    /// A replay that is no more of use ends, with what it told on its way.
    pub(super) fn end_replay(&mut self, key: KeyHash) {
        self.drain_replays();
        self.remove_replay(key);
        self.note_event(&Event::ReplayEnded(key));
    }

    /// Events of replays become its own.
    pub(super) fn drain_replays(&mut self) {
        for (&key, replay) in &mut self.replays {
            let counted = std::mem::take(&mut replay.part.counters);
            // What was done once is not lost when it leaves the log before it is done again.
            self.counters.add(&super::ShareCounters { left_log: 0, ..counted });
            for event in replay.part.take_events() {
                self.recorder.event(&Event::Replayed { key, event });
            }
        }
    }

    /// What fails in a replay is parked as any other record; but the rest does not follow it to the dead-letter topic:
    /// whoever brought it back has decided about the rest anew.
    pub(super) fn replay_config(&self) -> Arc<ShareConfig> {
        let poison = match self.config.poison {
            Poison::Follow => Poison::DeadLetter,
            poison => poison,
        };
        // Its own bound is the number of records that are looked up ahead.
        let config = ShareConfig::clone(&self.config);
        Arc::new(ShareConfig { poison, window_bytes_max: u64::MAX, stuck_keys_max: u64::MAX, ..config })
    }

    /// Lets replays begin whose key nobody holds otherwise, and ends those that are done.
    pub(crate) fn tend_replays(&mut self) {
        let mut done = Vec::new();
        for (&key, replay) in &mut self.replays {
            replay.part.window.advance();
            if replay.part.window.start() > replay.to {
                done.push((key, replay.part.stops.key(key).copied()));
                continue;
            }
            let mut stops = self.stops.key(key).into_iter().chain(replay.part.stops.key(key));
            let parked = stops.any(|stop| !stop.follows);
            let rests = self.queue.resting().contains(key);
            let first = self.queue.first(key);
            let before = first.is_some_and(|first| first < replay.next(key));
            let blocked = rests || parked || before || self.queue.first_out(key).is_some();
            let halt = if blocked { Some(Halt::All) } else { first.map(Halt::From) };
            let part = &mut replay.part;
            part.queue.halt(&part.window, key, halt);
        }
        for key in self.replays.keys().copied().collect::<Vec<_>>() {
            self.update_stop(key);
        }
        for (key, stop) in done {
            // What stopped the key in its replay stops it behind that, too.
            if let Some(stop) = stop.filter(|_| self.stops.key(key).is_none()) {
                self.stop_key(key, stop);
                self.note_event(&Event::KeyStopped { key, stop });
            }
            self.end_replay(key);
        }
    }

    /// What is to be looked up now; it is taken as under way.
    pub(crate) fn next_look_ups(&mut self) -> Vec<(KeyHash, LookUp)> {
        let mut look_ups = Vec::new();
        for (&key, replay) in &mut self.replays {
            let scan = replay.part.window.scan();
            // What comes next is known in any case, and what a restart has told of: an operator may skip it.
            let is_known = replay.part.window.len() > 0 && replay.part.may_grant(replay.to + 1);
            let blocked = replay.part.queue.hands_out_nothing(key) && is_known;
            if replay.looking || blocked || scan > replay.to || replay.part.window.len() >= AHEAD_MAX {
                continue;
            }
            replay.looking = true;
            look_ups.push((
                key,
                match &replay.only {
                    None => LookUp::Range(scan, replay.to + 1),
                    Some(offsets) => {
                        let next = &offsets[offsets.partition_point(|&offset| offset < scan)..];
                        LookUp::Offsets(next.iter().take(AHEAD_MAX).copied().map(Offset).collect())
                    }
                },
            ));
        }
        look_ups
    }

    /// Records of a replay were found, with their sizes, up to `next`; or could not be looked up. Says whether that led on.
    pub(crate) fn looked_up(
        &mut self,
        key: KeyHash,
        found: Option<(Vec<(i64, u32)>, i64)>,
        now: Now,
    ) -> bool {
        let Some(replay) = self.replays.get_mut(&key) else { return true };
        replay.looking = false;
        let Some((records, next)) = found else { return false };
        let (scan, next) = (replay.part.window.scan(), next.min(replay.to + 1));
        if next <= scan {
            return false;
        }
        // What is not settled yet comes by itself.
        let settled = |&&(offset, _): &&(i64, u32)| offset >= scan && !self.window.is_unsettled(offset);
        let records = records.iter().filter(settled).map(|&(offset, bytes)| ScannedRecord {
            offset: Offset(offset),
            key: Some(key),
            bytes,
        });
        let batch = ScannedBatch {
            base: Offset(scan),
            last: Offset(next - 1),
            bytes: 0,
            kind: ScannedKind::Data(records.filter(|record| record.offset.get() < next).collect()),
        };
        replay.part.scanned(&Scanned { batches: vec![batch], next: Offset(next) }, now);
        true
    }

    /// The log begins at `at` now.
    pub(super) fn replays_log_started(&mut self, at: i64) {
        for replay in self.replays.values_mut() {
            replay.part.log_started(at);
        }
    }

    /// Grants what is ready of replays: of each to one fetch, the first that may take it.
    pub(crate) fn take_replays(
        &mut self,
        bidders: &mut [Bidder],
        now: Now,
        delivery: &mut dyn FnMut() -> u64,
    ) {
        for (&key, replay) in &mut self.replays {
            let part = &mut replay.part;
            if !part.queue.is_ready() || !part.may_grant(replay.to + 1) {
                continue;
            }
            let may = |bidder: &&mut Bidder| {
                bidder.ranges.as_ref().is_none_or(|ranges| contain(ranges, Some(key), 0))
            };
            for bidder in bidders.iter_mut().filter(may) {
                let mut own = Bidder {
                    ranges: None,
                    member: Arc::clone(&bidder.member),
                    cursor: Cursor::default(),
                    lock: None,
                    picks: Vec::new(),
                    replayed: Vec::new(),
                    ..*bidder
                };
                let mut keys = part.keys_held(&own.member, own.per_key_max);
                while part.take_turn(&mut own, keys, now, delivery) == Turn::Key {
                    keys += 1;
                }
                part.close_grant(&mut own, now);
                (bidder.budget, bidder.delivery) = (own.budget, own.delivery);
                let took = !own.picks.is_empty();
                bidder.replayed.append(&mut own.picks);
                if took {
                    break;
                }
            }
        }
    }

    /// Whether an offset that was read has nothing to wait for any more.
    pub(crate) fn is_done(&self, offset: i64) -> bool {
        !self.window.is_unsettled(offset)
    }

    /// Everything that members have in hands here, of replays too.
    pub(crate) fn in_hands(&self) -> usize {
        self.out + self.replays.values().map(|replay| replay.part.out).sum::<usize>()
    }

    /// Whether there is anything that someone may take.
    pub(crate) fn is_ready(&self) -> bool {
        self.queue.is_ready() || self.replays.values().any(|replay| replay.part.queue.is_ready())
    }

    /// The replay in which a record is unsettled, and its key.
    pub(crate) fn replay_of(&self, offset: i64) -> Option<(KeyHash, &SharePartition)> {
        let mut replays = self.replays.iter().map(|(&key, replay)| (key, &replay.part));
        replays.find(|(_, part)| part.window.get(offset).is_some())
    }
}

impl Replay {
    /// As it was stored.
    pub(super) fn restored(part: SharePartition, to: i64, only: Option<Vec<i64>>) -> Self {
        Self { part, to, only, looking: false }
    }

    /// None of its records that are not done again lies before this.
    pub(super) fn next(&self, key: KeyHash) -> i64 {
        self.part.first_of(key).into_iter().chain(self.unread()).min().unwrap_or(self.to + 1)
    }

    /// None of its records that were not looked up yet lies before this; `None`: there are no such.
    pub(super) fn unread(&self) -> Option<i64> {
        let scan = Some(self.part.window.scan()).filter(|&scan| scan <= self.to)?;
        match &self.only {
            Some(only) => only.get(only.partition_point(|&offset| offset < scan)).copied(),
            None => Some(scan),
        }
    }
}

/// The inner event of a replay as far as it speaks of offsets below `end`.
pub(super) fn below(event: &Bytes, end: i64) -> Option<Bytes> {
    Event::decode(event).ok()?.below(end).map(|event| event.encode())
}
