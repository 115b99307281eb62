//! The operator's hand on one key: park, resume, skip, drop.
//!
//! As every change: made here in memory, noted as events, answered when these are appended.

use records::ids::KeyHash;

use super::admin::{AdminError, KeyAction, KeyAltered, KeyRef, StopReason};
use super::event::{Event, Settlement};
use super::partition::SharePartition;
use super::recorder::Change;
use super::stops::{KeyStop, Stop, WaitsFor};
use super::window::Slot;
use crate::time::Now;

/// Keys of one share-partition that may be stopped at a time.
const STOPPED_KEYS_MAX: usize = 100_000;

/// What an operator's word is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A key that keeps its order.
    Key(KeyHash),
    /// A record that stands for itself alone.
    Record(i64),
}

/// How a record comes to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Out of the window.
    Own,
    /// By a replay of its key.
    Replay,
}

impl SharePartition {
    /// Does what an operator says.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn alter(
        &mut self,
        key: KeyRef,
        action: KeyAction,
        log_start: i64,
        now: Now,
    ) -> Result<KeyAltered, AdminError> {
        let subject = self.subject(key).map_err(|error| self.of_done(error, action))?;
        let records = match (subject, action) {
            (Subject::Key(key), KeyAction::Park) => self.park_key(key, now)?,
            (Subject::Key(key), KeyAction::Resume) => self.resume(key),
            (Subject::Key(key), KeyAction::Skip) => self.drop_records(key, None)?,
            (Subject::Key(key), KeyAction::Drop(to)) => {
                self.drop_records(key, to.map(records::ids::Offset::get))?
            }
            (Subject::Record(offset), KeyAction::Park) => self.park_record(offset, now)?,
            (Subject::Record(offset), KeyAction::Resume) => self.resume_record(offset),
            (Subject::Record(offset), KeyAction::Skip | KeyAction::Drop(_)) => self.drop_record(offset)?,
            (Subject::Key(key), KeyAction::Redrive) => self.redrive(key, log_start, now)?,
            (Subject::Key(key), KeyAction::Replay(from, to)) => {
                self.replay(key, (from.get(), to.get()), log_start, now)?;
                0
            }
            (Subject::Record(_), KeyAction::Redrive | KeyAction::Replay(..)) => {
                return Err(if self.keeps_order() { AdminError::NoKey } else { AdminError::NoOrder });
            }
        };
        self.window.advance();
        let key = match subject {
            Subject::Key(key) => Some(key),
            Subject::Record(_) => None,
        };
        Ok(KeyAltered { key, records })
    }

    /// What is done has no state any more that would tell its key: what is said of it where it is named by its offset.
    fn of_done(&self, error: AdminError, action: KeyAction) -> AdminError {
        match (error, action) {
            (AdminError::UnknownRecord, KeyAction::Redrive | KeyAction::Replay(..))
                if !self.keeps_order() =>
            {
                AdminError::NoOrder
            }
            (AdminError::UnknownRecord, KeyAction::Redrive) => AdminError::NotRedrivable,
            (AdminError::UnknownRecord, KeyAction::Replay(..)) => AdminError::NameTheKey,
            _ => error,
        }
    }

    /// Whether what an operator's word is about rests in a page, and has to come back first.
    pub(crate) fn is_about_a_page(&self, key: KeyRef, action: KeyAction) -> bool {
        match (key, action) {
            // One that waits can be parked where it is.
            (KeyRef::Key(_), KeyAction::Park) if self.pages.parked() == 0 => false,
            _ => self.may_rest(key),
        }
    }

    /// Whether a key or a record is in a page, or may be.
    pub(crate) fn may_rest(&self, key: KeyRef) -> bool {
        match key {
            KeyRef::Key(key) => self.queue.resting().contains(key),
            KeyRef::Offset(offset) => {
                let unknown = self.window.get(offset.get()).is_none();
                unknown
                    && self.resting_keys() > 0
                    && offset.get() < self.window.scan()
                    && self.window.is_unsettled(offset.get())
            }
        }
    }

    /// The records that a redrive of this key would deliver; `None` where it is refused without looking at them.
    pub(crate) fn sources_of(&self, key: KeyRef, log_start: i64) -> Option<Vec<i64>> {
        match self.subject(key).ok()? {
            Subject::Key(key) if !self.replays.contains_key(&key) => self.sources(key, log_start).ok(),
            _ => None,
        }
    }

    /// The key and range of which a replay would deliver what is done; `None` where it is refused without looking.
    pub(crate) fn to_replay(
        &self,
        key: KeyRef,
        range: (i64, i64),
        log_start: i64,
    ) -> Option<(KeyHash, i64, i64)> {
        match self.subject(key).ok()? {
            Subject::Key(key) if !self.replays.contains_key(&key) => {
                self.replay_range(key, range, log_start).ok().map(|(from, to)| (key, from, to))
            }
            _ => None,
        }
    }

    /// Which key, or which record alone, is meant.
    pub(crate) fn subject(&self, key: KeyRef) -> Result<Subject, AdminError> {
        match key {
            KeyRef::Key(_) if !self.keeps_order() => Err(AdminError::NoOrder),
            KeyRef::Key(key) => Ok(Subject::Key(key)),
            KeyRef::Offset(offset) => {
                let offset = offset.get();
                match self.window.get(offset).filter(|slot| slot.scanned) {
                    Some(slot) => Ok(self.key_of(slot).map_or(Subject::Record(offset), Subject::Key)),
                    None => {
                        let replayed = self.replay_of(offset).map(|replay| replay.0);
                        let key = replayed.or_else(|| self.stops.redrivable_key(offset));
                        key.filter(|_| self.keeps_order()).map(Subject::Key).ok_or(AdminError::UnknownRecord)
                    }
                }
            }
        }
    }

    fn park_key(&mut self, key: KeyHash, now: Now) -> Result<u64, AdminError> {
        match self.stops.key(key) {
            Some(stop) if !stop.follows => return Ok(0),
            None if self.stops.keys_len() >= STOPPED_KEYS_MAX => return Err(AdminError::TooMany),
            _ => {}
        }
        let again = self.replays.get(&key).map(|replay| (replay.next(key), &replay.part.window));
        let own = self.first_of(key).map(|first| (first, &self.window));
        let next = own.into_iter().chain(again).min_by_key(|next| next.0);
        let (at, window) = next.unwrap_or((self.window.scan(), &self.window));
        let deliveries = window.get(at).map_or(0, |slot| slot.count);
        let stop =
            KeyStop { follows: false, at, deliveries, wall_ms: now.wall_ms, reason: StopReason::Operator };
        self.stop_key(key, stop);
        self.note_event(&Event::KeyStopped { key, stop });
        Ok(1)
    }

    fn park_record(&mut self, offset: i64, now: Now) -> Result<u64, AdminError> {
        let slot = self.window.slot(offset);
        if slot.is_out() {
            return Err(AdminError::Held);
        }
        // What waits for the dead-letter topic goes on to wait for that.
        if self.stops.get(offset).is_some() {
            return Ok(0);
        }
        let stop = Stop { waits_for: WaitsFor::Hand, reason: StopReason::Operator, wall_ms: now.wall_ms };
        self.stop_record(offset, stop, false);
        self.note(Change::Stopped { stop, counted: false }, offset);
        Ok(1)
    }

    /// A key goes on, with what was parked of it, and with what waited for a retry. What is on its way to the dead-letter
    /// topic gets there.
    fn resume(&mut self, key: KeyHash) -> u64 {
        let stopped = self.stops.key(key).is_some();
        let parked = self.parked_records(key);
        if stopped {
            self.resume_key(key);
            self.note_event(&Event::KeyResumed(key));
        }
        let replay = self.replays.get_mut(&key);
        let waited = replay.map_or(0, |replay| replay.part.resume(key)) + self.end_waits_of(key);
        for &offset in &parked {
            self.free_record(offset);
            self.note(Change::Freed, offset);
        }
        if let Some(&first) = parked.first() {
            // What members hold behind it would be overtaken by it.
            self.recall_behind_unknown(key, first);
        }
        (parked.len() as u64 + waited).max(u64::from(stopped))
    }

    /// What waits of a key is ready now, with its count. How many records that are.
    fn end_waits_of(&mut self, key: KeyHash) -> u64 {
        let of_key = |slot: &Slot| slot.scanned && self.key_of(slot) == Some(key);
        let waits = self.waits.keys().copied().filter(|&offset| self.window.get(offset).is_some_and(of_key));
        let waits: Vec<i64> = waits.collect();
        for &offset in &waits {
            self.end_wait(offset);
            self.note(Change::Freed, offset);
        }
        waits.len() as u64
    }

    fn resume_record(&mut self, offset: i64) -> u64 {
        if self.stops.get(offset).is_none_or(|stop| stop.waits_for != WaitsFor::Hand) {
            return 0;
        }
        self.free_record(offset);
        self.note(Change::Freed, offset);
        1
    }

    /// Archives the key's records up to `to`, or its lowest one, as far as they are in nobody's hands, whether they come
    /// for the first time or by a replay; the key goes on behind them.
    fn drop_records(&mut self, key: KeyHash, to: Option<i64>) -> Result<u64, AdminError> {
        let mut dropped = 0;
        let replay = self.replays.get(&key);
        if replay.is_some_and(|replay| to.is_some_and(|to| to >= replay.to) && replay.part.out == 0) {
            // Dropped to its end it is over, read or not.
            dropped += replay.map_or(0, |replay| replay.part.window.len() as u64).max(1);
            self.end_replay(key);
        }
        let mut unread = false;
        while let Some((next, at_hand)) = self.next_of(key).filter(|next| to.is_none_or(|to| next.0 <= to)) {
            unread = at_hand.is_none();
            match at_hand {
                None => break,
                Some(Line::Own) => {
                    self.settle(next, Settlement::Skipped);
                    self.note(Change::Settled(Settlement::Skipped), next);
                }
                Some(Line::Replay) => {
                    if let Some(replay) = self.replays.get_mut(&key) {
                        replay.part.settle(next, Settlement::Skipped);
                        replay.part.note(Change::Settled(Settlement::Skipped), next);
                        replay.part.window.advance();
                    }
                }
            }
            dropped += 1;
            if to.is_none() {
                break;
            }
        }
        if dropped == 0 {
            return Err(if unread { AdminError::NotAtHand } else { AdminError::NothingThere });
        }
        let replayed = self.replays.get(&key).and_then(|replay| replay.part.stops.key(key));
        if self.stops.key(key).into_iter().chain(replayed).any(|stop| !stop.follows) {
            self.resume(key);
        }
        Ok(dropped)
    }

    /// The lowest record of a key that is in nobody's hands, and where it stands; `None` there: it is to be looked up yet,
    /// and lies at that offset or behind.
    fn next_of(&self, key: KeyHash) -> Option<(i64, Option<Line>)> {
        let own = self.queue.first(key).map(|first| {
            let at_hand = self.queue.head(key) == Some(first);
            (first, at_hand.then_some(Line::Own))
        });
        let again = self.replays.get(&key).and_then(|replay| {
            let read = replay.part.queue.head(key).map(|head| (head, Some(Line::Replay)));
            read.or_else(|| replay.unread().map(|from| (from, None)))
        });
        own.into_iter().chain(again).min_by_key(|next| next.0)
    }

    fn drop_record(&mut self, offset: i64) -> Result<u64, AdminError> {
        if self.window.slot(offset).is_out() {
            return Err(AdminError::Held);
        }
        self.settle(offset, Settlement::Skipped);
        self.note(Change::Settled(Settlement::Skipped), offset);
        Ok(1)
    }

    /// Parked records of a key, ascending.
    fn parked_records(&self, key: KeyHash) -> Vec<i64> {
        let of_key = |slot: &Slot| slot.scanned && self.key_of(slot) == Some(key);
        self.stops
            .records()
            .filter(|(offset, stop)| {
                stop.waits_for == WaitsFor::Hand && self.window.get(*offset).is_some_and(of_key)
            })
            .map(|(offset, _)| offset)
            .collect()
    }

    /// The first unsettled record of a key that is known.
    pub(crate) fn first_of(&self, key: KeyHash) -> Option<i64> {
        let out = self.queue.first_out(key).map(|out| out.0);
        self.queue.first(key).into_iter().chain(out).min()
    }
}
