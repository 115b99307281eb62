//! What comes from outside of the group: an operator's hand, another order, retention.

use std::collections::BTreeSet;

use coordinator::share::admin::{KeyAction, KeyRef};
use coordinator::time::Mono;

use super::{KEYS, Run, State};
use crate::common::partition;
use crate::hand::{at, of};

impl Run {
    /// An operator alters a key; of keyless records, and without order, every record by itself.
    pub(super) fn alter(&mut self, key: usize, action: KeyAction) {
        let subjects: Vec<KeyRef> = if self.keyed && KEYS[key] != "-" {
            vec![of(KEYS[key])]
        } else {
            let alone = self.records.iter().filter(|(_, record)| !self.keyed || record.key == key);
            alone.map(|(&offset, _)| at(offset)).collect()
        };
        let unsettled = |run: &Self| -> BTreeSet<i64> {
            run.records.keys().copied().filter(|&offset| run.world_has(offset)).collect()
        };
        // Loads what is not in memory.
        drop(self.world.describe(&[]));
        let before = unsettled(self);
        for subject in subjects {
            let outcome = self.world.alter(subject, action);
            self.trace.push(format!("{outcome:?}"));
            let Ok(altered) = outcome else { continue };
            if action != KeyAction::Park {
                // What was resumed recalls what lies behind it; with delivery numbers that comes back at once.
                let records = &self.records;
                self.works.retain(|offset, work| !(work.numbered && records[offset].key == key));
            }
            match (action, subject) {
                (KeyAction::Redrive | KeyAction::Replay(..), _) => {}
                (KeyAction::Park, _) if self.keyed && altered.key.is_some() => {
                    self.parked.insert(key);
                }
                (KeyAction::Park, _) => {}
                // Without order a record is freed, and with it the key that it stopped, if it was that one.
                (_, KeyRef::Offset(offset)) if !self.keyed => {
                    self.parked.remove(&self.records[&offset.get()].key);
                }
                _ if self.keyed && altered.key.is_some() => drop(self.parked.remove(&key)),
                _ => {}
            }
            let letters: BTreeSet<i64> = self.world.letter_offsets().into_iter().collect();
            let of_key = before.iter().filter(|&offset| self.records[offset].key == key);
            let first = of_key.min().copied().unwrap_or(i64::MAX);
            for (offset, record) in self.records.iter_mut().filter(|(_, record)| record.key == key) {
                let replayed = match action {
                    KeyAction::Redrive => letters.contains(offset),
                    KeyAction::Replay(from, to) => {
                        (from.get()..=to.get()).contains(offset) && *offset < first
                    }
                    _ => false,
                };
                record.may_return |= replayed;
                record.replayed |= replayed;
            }
        }
        let after = unsettled(self);
        for (offset, record) in &mut self.records {
            record.resumed |= action != KeyAction::Park;
            // What is stopped and freed has nothing more to wait for.
            record.waits_until = Mono(0);
            if before.contains(offset) && !after.contains(offset) {
                record.state = State::Archived;
            }
        }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.world.machine.view("g", partition(0)).is_some()
    }

    /// What the reading of the share state brought with it, once: it goes by the order as it is then.
    pub(super) fn read_back(&mut self) {
        if !self.is_loaded() {
            return;
        }
        let (cold, unread) = (std::mem::take(&mut self.cold), std::mem::take(&mut self.unread_order));
        if cold && !self.keyed {
            // After a restart every lock returns at once without order, as in Kafka.
            self.works.clear();
        }
        if unread && !self.keyed {
            self.replays_end();
        }
    }

    /// Without order no key is replayed: what came again stays what it was, done, and nobody holds it any more.
    pub(super) fn replays_end(&mut self) {
        let letters: BTreeSet<i64> = self.world.letter_offsets().into_iter().collect();
        for (offset, record) in self.records.iter_mut().filter(|(_, record)| record.replayed) {
            // One that was rejected may wait for the dead-letter topic: that ends, too.
            let ends = match record.state {
                State::Free | State::Held { .. } => true,
                State::Dead => !letters.contains(offset),
                State::Accepted | State::Archived | State::Deleted => false,
            };
            if ends {
                record.state = State::Archived;
                self.works.remove(offset);
            }
        }
    }

    pub(super) fn retention(&mut self, at: i64) {
        let end = self.world.logs[&partition(0)].facts.end.get();
        let start = self.world.logs[&partition(0)].facts.log_start.get();
        let at = (start + at).min(end);
        self.works.retain(|&offset, _| offset >= at);
        self.world.log_start(at);
        for (_, record) in self.records.range_mut(..at) {
            if !matches!(record.state, State::Accepted | State::Archived) {
                record.state = State::Deleted;
            }
        }
    }
}
