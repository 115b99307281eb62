//! What the model knows of one share-partition, and the rules by which it changes.
//!
//! Every change that the broker stores is noted with the state before it. A failed append, a kill and a power cut
//! take back what was not stored, so the model goes back the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::command::Ticket;
use coordinator::share::{Poison, ShareConfig, ShareOrder};
use coordinator::time::{Micros, Mono};

use super::hand::Hand;
use super::log::Log;
use super::readers::is_reader;
use super::state::{Hold, Record, Tri};

/// What survives a restart is stored in whole milliseconds: an end may come that much early.
const STORED_SLACK: Micros = Micros(2_000);

/// One stored change.
#[derive(Clone, Debug)]
struct Change {
    offset: i64,
    before: Record,
    /// Known to be written: a kill does not take it back.
    written: bool,
    /// The sync job that covers it; 0 is none yet.
    job: u64,
}

/// What a member's word on a record does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// Whether the member holds it.
    pub(super) held: Tri,
    /// If it is answered well, the record is done.
    pub(super) settles: bool,
    /// If it is answered well, the record goes to nobody any more.
    pub(super) stops: bool,
    /// The delivery that it is about.
    pub(super) delivery: u64,
}

impl Word {
    fn unknown(held: Tri) -> Self {
        Self { held, settles: false, stops: false, delivery: 0 }
    }
}

/// A share-partition.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// The group's settings.
    pub(super) config: Arc<ShareConfig>,
    pub(super) records: BTreeMap<i64, Record>,
    held: BTreeSet<i64>,
    journal: Vec<Change>,
    /// Changes that were made so far, those that were dropped from the journal included.
    dropped: u64,
    /// Its state was opened in this life of the broker.
    pub(super) opened: bool,
    /// It was in memory in this life.
    read: bool,
    /// The wall clock stepped in this life: what is read back takes what is left of a wait by it.
    wall_stepped: bool,
    /// Every record below is done for good.
    done_below: i64,
    /// When the first append that no sync follows was handed to the disk.
    pub(super) unsynced_since: Option<Mono>,
    /// Until then the broker may know of grants that were never answered.
    pub(super) ghosts_until: Mono,
    /// Records whose data was asked of the disk for an answer that is not out.
    building: BTreeSet<i64>,
    /// Such of before the state was read back last: stored grants, perhaps, that stand until then.
    ghosts: BTreeMap<i64, Mono>,
    /// The state was read back, and perhaps not all of the log that it speaks of: whose key a record in hands is may not
    /// be known.
    keys_unknown: bool,
    /// What operators do, and what stops whole keys.
    pub(super) hand: Hand,
}

impl Share {
    /// Without any state.
    #[must_use]
    pub(super) fn new(config: Arc<ShareConfig>) -> Self {
        Self {
            config,
            records: BTreeMap::new(),
            held: BTreeSet::new(),
            journal: Vec::new(),
            dropped: 0,
            opened: false,
            read: false,
            wall_stepped: false,
            done_below: 0,
            unsynced_since: None,
            ghosts_until: Mono::default(),
            building: BTreeSet::new(),
            ghosts: BTreeMap::new(),
            keys_unknown: false,
            hand: Hand::default(),
        }
    }

    /// What is known of a record.
    #[must_use]
    pub(super) fn record(&self, offset: i64) -> Record {
        self.records.get(&offset).cloned().unwrap_or_default()
    }

    /// The first record below `start` that is not done; `copied` says which are durable as dead letters.
    pub(super) fn first_unsettled_below(
        &mut self,
        start: i64,
        log: &Log,
        copied: impl Fn(i64) -> bool,
    ) -> Option<i64> {
        // What a cut was asked for may be gone before its answer is here.
        self.done_below = self.done_below.max(log.start_asked.min(log.end));
        if self.done_below >= start {
            return None;
        }
        for offset in log.records.range(self.done_below..start).map(|record| *record.0) {
            let record = self.records.get(&offset);
            let done = |record: &Record| record.may_be_settled() || record.unknown || record.replayed;
            if !record.is_some_and(done) && !copied(offset) {
                return Some(offset);
            }
            if offset == self.done_below && record.is_some_and(|record| record.settled == Tri::Yes) {
                self.done_below += 1;
            }
        }
        None
    }

    /// The start offset may be anywhere.
    pub(super) fn start_again(&mut self) {
        self.done_below = 0;
    }

    /// Offsets that are, or may be, in someone's hands.
    #[must_use]
    pub(super) fn held(&self) -> Vec<i64> {
        self.held.iter().copied().collect()
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.config.order == ShareOrder::Key
    }

    // ---- the journal -----------------------------------------------------------------------------------------

    /// How many changes were made.
    #[must_use]
    pub(super) fn position(&self) -> u64 {
        self.dropped + self.journal.len() as u64
    }

    pub(super) fn change(&mut self, offset: i64, written: bool, change: impl FnOnce(&mut Record)) {
        let before = self.record(offset);
        let mut record = before.clone();
        change(&mut record);
        self.journal.push(Change { offset, before, written, job: 0 });
        self.put(offset, record);
    }

    fn put(&mut self, offset: i64, record: Record) {
        if record.hold.is_some() {
            self.held.insert(offset);
        } else {
            self.held.remove(&offset);
        }
        self.records.insert(offset, record);
    }

    /// Changes something that is not stored.
    pub(super) fn amend(&mut self, offset: i64, change: impl FnOnce(&mut Record)) {
        let mut record = self.record(offset);
        change(&mut record);
        self.put(offset, record);
    }

    /// Everything up to a position is written.
    pub(super) fn written_to(&mut self, position: u64) {
        let count = usize::try_from(position.saturating_sub(self.dropped)).expect("a journal fits memory");
        self.journal.iter_mut().take(count).for_each(|change| change.written = true);
    }

    /// Whether everything up to a position is written.
    #[must_use]
    pub(super) fn is_written_to(&self, position: u64) -> bool {
        let count = usize::try_from(position.saturating_sub(self.dropped)).expect("a journal fits memory");
        self.journal.iter().take(count).all(|change| change.written)
    }

    /// Offsets of changes that are not known to be written.
    pub(super) fn unwritten(&self) -> BTreeSet<i64> {
        self.journal.iter().filter(|change| !change.written).map(|change| change.offset).collect()
    }

    /// A sync job was taken: it covers what is written now.
    ///
    /// Events of a state that was not opened in this life are not in it.
    pub(super) fn sync_began(&mut self, job: u64) {
        if !self.opened {
            return;
        }
        self.journal
            .iter_mut()
            .filter(|change| change.written && change.job == 0)
            .for_each(|change| change.job = job);
    }

    /// The sync job has run.
    pub(super) fn sync_ran(&mut self, job: u64, well: bool) {
        if well {
            let done = self.journal.iter().take_while(|change| (1..=job).contains(&change.job)).count();
            self.journal.drain(..done);
            self.dropped += done as u64;
        } else {
            self.journal.iter_mut().filter(|change| change.job == job).for_each(|change| change.job = 0);
        }
    }

    /// Takes back what was not written; what came back into hands by that is in doubt.
    pub(super) fn take_back_unwritten(&mut self) {
        self.keys_unknown = true;
        self.done_below = 0;
        let journal = std::mem::take(&mut self.journal);
        let count = journal.len() as u64;
        let mut kept = Vec::new();
        let mut settled = BTreeSet::new();
        for change in journal.into_iter().rev() {
            if change.written {
                settled.insert(change.offset);
                kept.push(change);
            } else if !settled.contains(&change.offset) {
                // What is behind it was written, and so was it, in whatever form.
                let mut record = change.before;
                if let Some(hold) = &mut record.hold {
                    hold.doubt = true;
                    (hold.doubted, hold.failed) = (false, false);
                    // What took it back may take it back again at once: its holder's session is over, say.
                    (hold.lock_end, hold.sure_until) = (None, Mono::default());
                }
                self.put(change.offset, record);
            }
        }
        kept.reverse();
        // Locks of one delivery are one when they are read back: the longest holds for all.
        for offset in self.held() {
            self.amend(offset, |record| {
                if let Some(hold) = &mut record.hold
                    && let Some(end) = hold.lock_end.take()
                {
                    hold.sure_until = hold.sure_until.min(end);
                }
            });
        }
        if self.wall_stepped {
            self.records.values_mut().for_each(|record| record.not_before = None);
        }
        self.dropped += count - kept.len() as u64;
        self.journal = kept;
    }

    /// A power cut: of what was not synced any part may be there.
    fn take_back_unsynced(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        self.dropped += journal.len() as u64;
        for change in journal {
            let now = self.record(change.offset);
            let holder = |record: &Record| record.hold.as_ref().map(|hold| Arc::clone(&hold.member));
            if holder(&change.before).is_some_and(|before| holder(&now).is_some_and(|now| before != now)) {
                // Its return and the next grant are gone, perhaps: then it is in the former holder's hands.
                self.building.insert(change.offset);
            }
            let merged = now.merged(&change.before);
            self.put(change.offset, merged);
        }
    }

    // ---- lives of the broker ---------------------------------------------------------------------------------

    /// The broker starts again.
    pub(super) fn restarted(&mut self, now: Mono, power_cut: bool, log_end: i64, wall_stepped: bool) {
        self.take_back_unwritten();
        if power_cut {
            self.take_back_unsynced();
        }
        let gone: Vec<i64> = self.records.range(log_end..).map(|record| *record.0).collect();
        for offset in gone {
            self.records.remove(&offset);
            self.held.remove(&offset);
        }
        self.unsynced_since = None;
        self.opened = false;
        self.read = false;
        self.wall_stepped = false;
        self.hand.restarted(power_cut);
        // Jobs are numbered anew.
        self.journal.iter_mut().for_each(|change| change.job = 0);
        self.done_below = 0;
        let lock = Micros::from_ms(self.config.lock_ms);
        self.ghosts_until = if wall_stepped { Mono(u64::MAX) } else { now + lock };
        // What is left of their locks is at most all of it.
        let building = std::mem::take(&mut self.building);
        self.ghosts.extend(building.into_iter().map(|offset| (offset, self.ghosts_until)));
        self.ghosts.values_mut().filter(|_| wall_stepped).for_each(|until| *until = Mono(u64::MAX));
        let keyed = self.is_keyed();
        for offset in self.held() {
            self.amend(offset, |record| {
                let Some(hold) = &mut record.hold else { return };
                // Without order everything returns when the state is read, unless there is an order again by then.
                hold.doubt |= !keyed || is_reader(&hold.member);
                hold.restarted = true;
                hold.lock_end = None;
                let rest = Mono((hold.since + lock).0.saturating_sub(STORED_SLACK.0));
                hold.sure_until = hold.sure_until.min(if wall_stepped { now } else { rest });
            });
        }
        for record in self.records.values_mut() {
            record.not_before = record.not_before.filter(|_| !wall_stepped);
        }
    }

    /// It is in memory since the last round: if for the first time in this life, and without order ever since, what was
    /// in hands has returned; what was in those of readers without membership has in any case.
    pub(super) fn is_read(&mut self, round: Mono) {
        if std::mem::replace(&mut self.read, true) {
            return;
        }
        let all = !self.is_keyed() && self.hand.settings_since < round;
        for offset in self.held() {
            self.amend(offset, |record| {
                let returned = |hold: &mut Hold| hold.restarted && (all || is_reader(&hold.member));
                record.hold.take_if(returned);
            });
        }
    }

    /// The wall clock stepped: a state that is read later, `open` or not now, takes what is left of its waits by it, and
    /// of its locks where no life of the broker has read it yet.
    pub(super) fn wall_stepped(&mut self, now: Mono, open: bool) {
        self.wall_stepped = true;
        if !open {
            self.records.values_mut().for_each(|record| record.not_before = None);
        }
        // What the disk has opened, the broker has not read yet.
        if self.read {
            return;
        }
        self.ghosts_until = Mono(u64::MAX);
        self.ghosts.values_mut().for_each(|until| *until = Mono(u64::MAX));
        for offset in self.held() {
            self.amend(offset, |record| {
                if let Some(hold) = &mut record.hold {
                    hold.sure_until = now;
                }
            });
        }
    }

    /// The log starts here now, or may.
    pub(super) fn log_started(&mut self, from: i64, start: i64, surely: bool) {
        for offset in from..start {
            self.amend(offset, |record| {
                record.settled = if surely { Tri::Yes } else { record.settled.at_least_maybe() };
                if surely {
                    record.hold = None;
                } else if let Some(hold) = &mut record.hold {
                    hold.doubt = true;
                }
            });
        }
    }

    // ---- grants and answers ----------------------------------------------------------------------------------

    /// Records are read for an answer: they are granted, and that may be stored before the answer is out.
    pub(super) fn may_be_built(&mut self, offsets: impl Iterator<Item = i64>) {
        for offset in offsets {
            let record = self.record(offset);
            if record.settled != Tri::Yes && record.hold.is_none_or(|hold| hold.doubt) {
                self.building.insert(offset);
            }
        }
    }

    /// Whether it may be in other hands than the last answer said, by an answer that a restart has swallowed or by one whose
    /// end a power cut has taken back: its lease stands as if its holder's
    /// connections had been lost with a fetch out, and stays with a new session of that member (O4).
    pub(super) fn is_ghost(&self, now: Mono, offset: i64) -> bool {
        self.ghosts.get(&offset).is_some_and(|&until| now < until)
    }

    /// A record was granted, as an answer says.
    pub(super) fn granted(&mut self, offset: i64, hold: Hold, fails: u16, copied: bool) {
        // Nothing is granted before the leftovers of a reload are known.
        self.keys_unknown = false;
        self.building.remove(&offset);
        self.ghosts.remove(&offset);
        self.change(offset, true, |record| {
            let done = record.may_be_settled() || copied;
            let replayed = record.replayed || (record.may_return && done);
            *record = Record { fails: (fails, fails), hold: Some(hold), replayed, ..Record::default() };
        });
    }

    /// An answer was written whole: its locks begin.
    pub(super) fn answer_written(&mut self, ticket: Ticket, now: Mono) {
        let end = now + Micros::from_ms(self.config.lock_ms);
        for offset in self.held_by_ticket(ticket) {
            self.amend(offset, |record| {
                if let Some(hold) = &mut record.hold
                    && !hold.written
                {
                    hold.written = true;
                    hold.lock_end = Some(end);
                    hold.sure_until = hold.sure_until.min(end);
                }
            });
        }
    }

    /// An answer was lost: nobody saw its records.
    pub(super) fn answer_lost(&mut self, ticket: Ticket, log: &Log) {
        let lost: Vec<i64> = self.held_by_ticket(ticket);
        let lost: Vec<i64> = lost
            .into_iter()
            .filter(|&offset| self.record(offset).hold.is_some_and(|hold| !hold.written))
            .collect();
        for &offset in &lost {
            self.comes_back(offset, Tri::No);
        }
        for offset in lost {
            self.recall_behind(offset, log, Tri::Yes);
        }
    }

    fn held_by_ticket(&self, ticket: Ticket) -> Vec<i64> {
        let of_ticket = |offset: &&i64| {
            let hold = self.records.get(offset).and_then(|record| record.hold.as_ref());
            hold.is_some_and(|hold| hold.ticket == ticket)
        };
        self.held.iter().filter(of_ticket).copied().collect()
    }

    /// A record comes back from its holder.
    fn comes_back(&mut self, offset: i64, counts: Tri) {
        let (limit, poison) = (self.config.delivery_count_max, self.config.poison);
        self.change(offset, false, |record| {
            let counted = record.hold.take().is_some_and(|hold| hold.failed);
            record.fail(if counted { Tri::No } else { counts }, limit, poison);
        });
        self.note_stop(offset);
    }

    /// A record of this key came back: those behind it are recalled, or come back where their holder has numbers.
    pub(super) fn recall_behind(&mut self, offset: i64, log: &Log, surely: Tri) {
        let Some(key) = log.records.get(&offset).and_then(|seen| seen.key).filter(|_| self.is_keyed()) else {
            return;
        };
        let Some(offsets) = log.keys.get(&key) else { return };
        for &later in offsets.range(offset + 1..) {
            let Some(hold) = self.record(later).hold else { continue };
            let sure = surely == Tri::Yes && !hold.doubt && !self.keys_unknown;
            self.change(later, false, |record| {
                let Some(hold) = &mut record.hold else { return };
                match (hold.numbered, sure) {
                    (true, true) => record.hold = None,
                    (true, false) => hold.doubt = true,
                    (false, true) => hold.recalled = Tri::Yes,
                    (false, false) => hold.recalled = hold.recalled.at_least_maybe(),
                }
            });
        }
    }

    // ---- acknowledgements ------------------------------------------------------------------------------------

    /// A member settles a record by its word: 1 accept, 2 release, 3 reject, 4 renew. `sure` says that the broker
    /// surely applies it if the member holds the record. Says whether the member surely held it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn acknowledged(
        &mut self,
        now: Mono,
        member: &str,
        offset: i64,
        kind: i8,
        delivery: Option<u64>,
        sure: bool,
        log: &Log,
    ) -> Word {
        let record = self.record(offset);
        let hold = match record.hold {
            Some(hold)
                if *hold.member == *member && delivery.is_none_or(|number| number == hold.delivery) =>
            {
                hold
            }
            _ if record.unknown => return Word::unknown(Tri::Maybe),
            _ => return Word::unknown(Tri::No),
        };
        let sure = sure && !hold.doubt && hold.recalled != Tri::Maybe && !record.unknown;
        let held = if sure { Tri::Yes } else { Tri::Maybe };
        let (limit, poison) = (self.config.delivery_count_max, self.config.poison);
        let recalled = hold.recalled;
        let wait = self.wait_after(record.fails);
        match kind {
            4 => {
                let lock = Micros::from_ms(self.config.lock_ms);
                self.change(offset, false, |record| {
                    let Some(hold) = &mut record.hold else { return };
                    if sure {
                        hold.since = now;
                        hold.written = true;
                        hold.lock_end = Some(now + lock);
                        hold.sure_until = now + lock;
                        hold.restarted = false;
                    } else {
                        hold.sure_until =
                            hold.lock_end.take().unwrap_or(hold.sure_until).min(hold.sure_until);
                        hold.doubt = true;
                        // Where it was renewed, it has another end, which may count.
                        (hold.restarted, hold.doubted) = (false, false);
                    }
                });
            }
            _ if recalled == Tri::Yes => self.change(offset, false, |record| {
                if sure {
                    record.hold = None;
                } else if let Some(hold) = &mut record.hold {
                    hold.doubt = true;
                }
            }),
            1 | 3 => {
                self.change(offset, false, |record| {
                    match kind {
                        3 => record.poison(sure, poison),
                        _ if sure => record.settled = Tri::Yes,
                        _ => record.settled = record.settled.at_least_maybe(),
                    }
                    if sure {
                        record.hold = None;
                    } else if let Some(hold) = &mut record.hold {
                        hold.doubt = true;
                    }
                });
                self.note_stop(offset);
            }
            _ => {
                self.change(offset, false, |record| {
                    let counted = record.hold.as_ref().is_some_and(|hold| hold.failed);
                    record.fail(if counted { Tri::No } else { held }, limit, poison);
                    if let Some(hold) = &mut record.hold {
                        hold.failed = true;
                    }
                    if sure {
                        record.hold = None;
                        // What is stopped at its limit waits for no retry: who resumes it has it delivered at once.
                        let stopped = record.stop == Tri::Yes || record.settled == Tri::Yes;
                        record.not_before = wait.filter(|_| !stopped).map(|wait| now + wait);
                    } else if let Some(hold) = &mut record.hold {
                        hold.doubt = true;
                    }
                });
                self.note_stop(offset);
                self.recall_behind(offset, log, held);
            }
        }
        let archives = poison == Poison::Skip;
        let settles = (kind == 1 || (kind == 3 && archives)) && recalled == Tri::No;
        let stops = kind == 3 && !archives && recalled == Tri::No;
        Word { held, settles, stops, delivery: hold.delivery }
    }

    fn wait_after(&self, fails: (u16, u16)) -> Option<Micros> {
        let full = self.config.backoff_ms.saturating_mul(1 << fails.0.min(20));
        let ms = full.min(self.config.backoff_max_ms);
        (ms > 0 && fails.0 == fails.1).then(|| Micros::from_ms(ms))
    }

    /// The word was answered well after all: an accept or reject of this delivery settles, unless it was recalled.
    pub(super) fn surely_settled(&mut self, offset: i64) {
        self.amend(offset, |record| {
            if record.settled == Tri::Maybe {
                record.settled = Tri::Yes;
                record.hold = None;
            }
        });
    }

    /// The word was answered with an error that says nothing: applied or not.
    pub(super) fn unsettle(&mut self, offset: i64) {
        self.amend(offset, |record| {
            record.unknown = true;
            record.fails.0 = record.fails.0.saturating_sub(1);
            if record.settled == Tri::Yes {
                record.settled = Tri::Maybe;
            }
            if let Some(hold) = &mut record.hold {
                hold.doubt = true;
            }
        });
    }

    // ---- ends ------------------------------------------------------------------------------------------------

    /// A member's session ended: everything comes back, or may have.
    pub(super) fn session_ended(&mut self, member: &str, surely: bool) {
        for offset in self.held_by(member) {
            let Some(hold) = self.record(offset).hold else { continue };
            let counts = match hold.recalled {
                _ if !hold.written || hold.restarted => Tri::No,
                Tri::Yes => Tri::No,
                Tri::No if surely && !hold.doubt => Tri::Yes,
                Tri::No | Tri::Maybe => Tri::Maybe,
            };
            if surely {
                self.comes_back(offset, counts);
            } else {
                self.may_come_back(offset, counts);
            }
        }
    }

    /// A record may have come back from its holder.
    fn may_come_back(&mut self, offset: i64, counts: Tri) {
        let (limit, poison) = (self.config.delivery_count_max, self.config.poison);
        if self.record(offset).hold.is_none_or(|hold| hold.doubt && hold.doubted) {
            return;
        }
        self.change(offset, false, |record| {
            let Some(hold) = &mut record.hold else { return };
            (hold.doubt, hold.doubted) = (true, true);
            let counts = counts != Tri::No && !std::mem::replace(&mut hold.failed, true);
            record.fail(if counts { Tri::Maybe } else { Tri::No }, limit, poison);
        });
        self.note_stop(offset);
    }

    /// What a member holds, or may.
    #[must_use]
    pub(super) fn held_by(&self, member: &str) -> Vec<i64> {
        let by = |offset: &&i64| {
            let hold = self.records.get(offset).and_then(|record| record.hold.as_ref());
            hold.is_some_and(|hold| *hold.member == *member)
        };
        self.held.iter().filter(by).copied().collect()
    }

    /// Time has passed: locks run out.
    pub(super) fn tick(&mut self, now: Mono, log: &Log) {
        let mut expired: BTreeMap<(Mono, u64), Vec<(i64, Tri)>> = BTreeMap::new();
        for offset in self.held() {
            let Some(hold) = self.record(offset).hold else { continue };
            if let Some(end) = hold.lock_end.filter(|&end| end <= now) {
                let counts = match (hold.restarted, hold.doubt) {
                    (true, _) => Tri::No,
                    (false, false) => Tri::Yes,
                    (false, true) => Tri::Maybe,
                };
                expired.entry((end, hold.delivery)).or_default().push((offset, counts));
            } else if hold.sure_until <= now && !(hold.doubt && hold.doubted) {
                let counts = hold.written && !hold.restarted;
                self.may_come_back(offset, if counts { Tri::Maybe } else { Tri::No });
                self.recall_behind(offset, log, Tri::Maybe);
            }
        }
        // All records of a lock come back before those behind them are recalled, one lock after another.
        for lock in expired.into_values() {
            let lock: Vec<(i64, Tri, bool)> = lock
                .into_iter()
                .filter_map(|(offset, counts)| Some((offset, counts, self.record(offset).hold?.doubt)))
                .collect();
            for &(offset, counts, _) in &lock {
                self.comes_back(offset, counts);
            }
            for (offset, _, doubt) in lock {
                self.recall_behind(offset, log, if doubt { Tri::Maybe } else { Tri::Yes });
            }
        }
    }
}
