//! What operators do to keys, and what stops whole keys until they do. Until its answer is there, and after a crash for
//! ever, a command may have been carried out or not: the model then takes both for right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::command::Ticket;
use coordinator::share::admin::{AdminError, AlterKey, KeyAction, KeyAltered, KeyRef, ResetOffsets};
use coordinator::share::{Poison, ShareConfig};
use coordinator::time::{Micros, Mono};
use records::ids::{KeyHash, Offset, PartitionId};

use super::log::Log;
use super::share::Share;
use super::state::{Record, Tri};
use super::{Model, ShareId};

/// What was decided in the last moments before new settings may leave after them.
const SETTINGS_LATE_MAX: Micros = Micros(5_000_000);

/// What is known of the stops of one share-partition beside its records.
#[derive(Clone, Debug, Default)]
pub(super) struct Hand {
    /// Keys that an operator parked, and since when that is known.
    parked: BTreeMap<KeyHash, Mono>,
    /// Keys that may be parked by an operator all the same.
    maybe_parked: BTreeSet<KeyHash>,
    /// Records that stopped their keys, or may have.
    stopped: BTreeSet<i64>,
    /// Those of them whose keys were resumed since, and keys likewise: a power cut may take it back.
    resumed: BTreeSet<i64>,
    unparked: BTreeSet<KeyHash>,
    /// A reset was asked for and may have been made: nothing is known of the start offset.
    pub(super) resetting: bool,
    /// Fetches from before see to no settings of now.
    pub(super) settings_since: Mono,
    /// Its dead letters may follow others.
    pub(super) follows: bool,
}

impl Hand {
    /// Since when a key is parked for sure.
    pub(super) fn parked_since(&self, key: KeyHash) -> Option<Mono> {
        self.parked.get(&key).copied()
    }

    /// Whether something may keep a key from going out.
    pub(super) fn may_stop(&self, key: KeyHash, log: &Log) -> bool {
        self.parked.contains_key(&key)
            || self.maybe_parked.contains(&key)
            || log
                .keys
                .get(&key)
                .is_some_and(|offsets| offsets.iter().any(|offset| self.stopped.contains(offset)))
    }

    /// How many keys may be parked, at most.
    pub(super) fn may_park(&self) -> usize {
        self.parked.len() + self.maybe_parked.len() + self.stopped.len()
    }

    fn may_be_resumed(&mut self, key: KeyHash) {
        if self.parked.remove(&key).is_some() {
            self.maybe_parked.insert(key);
        }
    }

    fn is_resumed(&mut self, key: KeyHash, log: &Log) {
        if self.maybe_parked.remove(&key) {
            self.unparked.insert(key);
        }
        for offset in log.keys.get(&key).into_iter().flatten() {
            if self.stopped.remove(offset) {
                self.resumed.insert(*offset);
            }
        }
    }

    pub(super) fn restarted(&mut self, power_cut: bool) {
        if power_cut {
            self.maybe_parked.extend(std::mem::take(&mut self.parked).into_keys());
            self.maybe_parked.append(&mut self.unparked);
            self.stopped.append(&mut self.resumed);
        }
    }
}

/// A command of an operator that is not answered yet.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Alter(AlterKey),
    Reset(ResetOffsets),
}

impl Share {
    /// A record was stopped, or may have been: so may its key.
    pub(super) fn note_stop(&mut self, offset: i64) {
        if matches!(self.config.poison, Poison::Park | Poison::Follow) && self.record(offset).stop != Tri::No
        {
            self.hand.stopped.insert(offset);
        }
    }

    /// Settings are these from now on.
    pub(super) fn configured(&mut self, now: Mono, config: &Arc<ShareConfig>) {
        let ordered = self.is_keyed();
        self.config = Arc::clone(config);
        self.hand.settings_since = now;
        self.hand.follows |= config.poison == Poison::Follow;
        self.may_fail_anew();
        if ordered != self.is_keyed() {
            self.ghosts_until = self.ghosts_until.max(now + SETTINGS_LATE_MAX);
            for offset in self.held() {
                self.amend(offset, |record| {
                    if let Some(hold) = &mut record.hold {
                        hold.recalled = hold.recalled.or(Tri::Maybe);
                        // With delivery numbers what is recalled comes back at once.
                        hold.doubt |= hold.numbered;
                        // What is read back into a group without order returns at once.
                        hold.doubt |= hold.restarted && ordered;
                    }
                });
            }
        }
        if ordered && !self.is_keyed() {
            // Without order a replay ends, wherever it is: what it brought is done as it was before.
            for record in self.records.values_mut().filter(|record| record.replayed) {
                record.settled = record.settled.at_least_maybe();
                if let Some(hold) = &mut record.hold {
                    hold.doubt = true;
                }
            }
        }
    }

    /// A failure that is only supposed, or not stored yet, may come to pass under the new settings, as where the state cannot
    /// be read.
    fn may_fail_anew(&mut self) {
        let limit = u16::try_from(self.config.delivery_count_max).unwrap_or(0);
        let poison = self.config.poison;
        let unwritten = self.unwritten();
        for offset in self.held().into_iter().chain(unwritten) {
            let record = self.record(offset);
            if record.hold.is_none_or(|hold| hold.doubt && hold.failed) && record.fails.1 >= limit {
                self.amend(offset, |record| record.poison(false, poison));
                self.note_stop(offset);
            }
        }
    }

    /// The records that an operator's word is about, ascending.
    fn meant(&self, key: KeyRef, log: &Log) -> (Option<KeyHash>, Vec<i64>) {
        let of_key = |key: KeyHash| {
            let offsets = log.keys.get(&key).into_iter().flatten().copied();
            offsets.filter(|&offset| offset >= log.start).collect()
        };
        match key {
            KeyRef::Key(key) => (Some(key), of_key(key)),
            KeyRef::Offset(offset) => {
                let key = log.records.get(&offset.get()).and_then(|seen| seen.key);
                match key.filter(|_| self.is_keyed()) {
                    Some(key) => (Some(key), of_key(key)),
                    None => (None, vec![offset.get()]),
                }
            }
        }
    }

    /// The command may be carried out from now on.
    pub(super) fn may_be_altered(&mut self, alter: &AlterKey, log: &Log) {
        let (key, offsets) = self.meant(alter.key, log);
        match alter.action {
            KeyAction::Park => match key {
                Some(key) => drop(self.hand.maybe_parked.insert(key)),
                // One that waits for its dead letter goes on to wait for it.
                None => offsets.into_iter().for_each(|offset| {
                    self.amend(offset, |record| {
                        record.by_hand |= record.stop == Tri::No;
                        record.stop = record.stop.at_least_maybe();
                    });
                }),
            },
            KeyAction::Resume => self.may_be_resumed(key, &offsets, log),
            KeyAction::Skip | KeyAction::Drop(_) => {
                self.may_be_dropped(&offsets, alter.action);
                self.may_be_resumed(key, &offsets, log);
            }
            KeyAction::Redrive | KeyAction::Replay(..) => {
                let range = match alter.action {
                    KeyAction::Replay(from, to) => from.get()..=to.get(),
                    _ => 0..=i64::MAX,
                };
                for offset in offsets.into_iter().filter(|offset| range.contains(offset)) {
                    self.amend(offset, |record| {
                        record.may_return = true;
                        record.fails.0 = 0;
                        // It does not come out of the window, where it waits.
                        record.not_before = None;
                    });
                }
            }
        }
    }

    fn may_be_resumed(&mut self, key: Option<KeyHash>, offsets: &[i64], log: &Log) {
        if let Some(key) = key {
            self.hand.may_be_resumed(key);
        }
        let mut first = None;
        for &offset in offsets {
            let record = self.record(offset);
            if record.not_before.is_some() {
                // Where its key was stopped, its wait is over.
                self.amend(offset, |record| {
                    (record.stop, record.not_before) = (record.stop.at_least_maybe(), None);
                });
            }
            if record.stop != Tri::No && record.by_hand {
                first = first.or(Some(offset));
                self.amend(offset, |record| {
                    record.stop = Tri::Maybe;
                    record.fails.0 = 0;
                    // Where it was parked, its wait is over.
                    record.not_before = None;
                });
            }
        }
        if let Some(first) = first {
            self.recall_behind(first, log, Tri::Maybe);
        }
    }

    /// The next record may be archived, or all up to an offset; of a replay, those that came again.
    fn may_be_dropped(&mut self, offsets: &[i64], action: KeyAction) {
        let to = match action {
            KeyAction::Drop(Some(to)) => Some(to.get()),
            _ => None,
        };
        for &offset in offsets {
            let record = self.record(offset);
            let free = record.hold.is_none() && !record.unknown && record.settled == Tri::No;
            if to.is_some_and(|to| offset > to) {
                return;
            }
            if record.hold.as_ref().is_none_or(|hold| hold.doubt) || record.replayed {
                self.amend(offset, |record| record.settled = record.settled.at_least_maybe());
            }
            // What is in hands is passed over, and so may be what is in doubt.
            if to.is_none() && free && !record.replayed && record.stop == Tri::No {
                return;
            }
        }
    }

    /// The command was carried out and is stored.
    fn is_altered(&mut self, now: Mono, alter: &AlterKey, log: &Log) {
        let (key, offsets) = self.meant(alter.key, log);
        match (alter.action, key) {
            (KeyAction::Park, Some(key)) => drop(self.hand.parked.insert(key, now)),
            (KeyAction::Resume, Some(key)) => self.hand.is_resumed(key, log),
            _ => {}
        }
        if alter.action == KeyAction::Resume {
            for offset in offsets {
                let record = self.record(offset);
                // A later failure may have stopped it anew.
                if record.stop == Tri::Maybe && record.by_hand && record.fails.1 == 0 {
                    self.change(offset, true, |record| record.stop = Tri::No);
                }
            }
        }
    }

    /// It may begin elsewhere, and know nothing, from now on.
    fn may_be_reset(&mut self, log: &Log) {
        self.hand.resetting = true;
        self.forget_parks();
        for offset in log.records.keys() {
            self.amend(*offset, |record| record.unknown = true);
        }
    }

    /// It begins at this offset, and knows of nothing but what was granted since.
    fn is_reset(&mut self, at: i64, log: &Log) {
        self.hand.resetting = false;
        for &offset in log.records.keys() {
            let record = self.record(offset);
            if offset < at {
                self.change(offset, true, |record| record.settled = record.settled.at_least_maybe());
            } else if record.unknown {
                self.change(offset, true, |record| *record = Record::default());
            }
        }
        self.start_again();
    }

    fn forget_parks(&mut self) {
        let parked = std::mem::take(&mut self.hand.parked);
        self.hand.maybe_parked.extend(parked.into_keys());
    }
}

impl Model {
    pub(super) fn alter_asked(&mut self, ticket: Ticket, request: &AlterKey) {
        self.pending.insert(ticket, Pending::Alter(request.clone()));
    }

    pub(super) fn reset_asked(&mut self, ticket: Ticket, request: &ResetOffsets) {
        for (partition, _) in &request.parts {
            let id = (Arc::clone(&request.group), *partition);
            if let Some((share, log)) = self.share_and_whole_log(&id) {
                share.may_be_reset(log);
            }
        }
        self.pending.insert(ticket, Pending::Reset(request.clone()));
    }

    /// Commands that are not answered may be carried out in this round.
    pub(super) fn pending_may_be_done(&mut self) {
        for pending in self.pending.clone().into_values() {
            let Pending::Alter(alter) = pending else { continue };
            let id = (Arc::clone(&alter.group), alter.partition);
            // A replay brings what is not decided when it begins, too, once it is.
            let found = match alter.action {
                KeyAction::Replay(..) => self.share_and_whole_log(&id),
                _ => self.share_and_log(&id),
            };
            if let Some((share, log)) = found {
                share.may_be_altered(&alter, log);
            }
        }
    }

    pub(super) fn altered(&mut self, now: Mono, ticket: Ticket, result: &Result<KeyAltered, AdminError>) {
        let Some(Pending::Alter(alter)) = self.pending.remove(&ticket) else { return };
        if let Some((share, log)) = self.share_and_log(&(Arc::clone(&alter.group), alter.partition))
            && result.is_ok()
        {
            share.is_altered(now, &alter, log);
        }
    }

    pub(super) fn reset_answered(
        &mut self,
        ticket: Ticket,
        results: &[(PartitionId, Result<Offset, AdminError>)],
    ) {
        let Some(Pending::Reset(reset)) = self.pending.remove(&ticket) else { return };
        for (partition, result) in results {
            let id = (Arc::clone(&reset.group), *partition);
            if result.is_ok() {
                self.letters.begins_elsewhere(&id);
            }
            if let Some((share, log)) = self.share_and_whole_log(&id) {
                match result {
                    Ok(at) => share.is_reset(at.get(), log),
                    // Refused for certain: nothing was changed.
                    Err(_) => share.hand.resetting = false,
                }
            }
        }
    }

    /// Whoever begins elsewhere passes over what is not decided, too.
    fn share_and_whole_log(&mut self, id: &ShareId) -> Option<(&mut Share, &Log)> {
        self.shares.get_mut(id).zip(self.logs.get(&id.1))
    }

    pub(super) fn share_and_log(&mut self, id: &ShareId) -> Option<(&mut Share, &Log)> {
        self.shares.get_mut(id).zip(self.logs.of(id))
    }
}
