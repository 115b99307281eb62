//! Dead letters: what the dead-letter topic holds, how often, and what of it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::io::OpId;
use records::ids::PartitionId;

use super::state::Tri;
use super::{Model, Rule, ShareId, Violation};
use crate::sim::content::Letter;

/// A partition of the dead-letter topic.
#[derive(Clone, Debug, Default)]
struct LetterLog {
    letters: BTreeMap<i64, Letter>,
    end: i64,
    synced: i64,
}

/// How often a record may be copied: once more for each mishap since the first copy.
#[derive(Clone, Copy, Debug)]
struct Copied {
    copies: u64,
    mishaps_before: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Letters {
    logs: BTreeMap<PartitionId, LetterLog>,
    /// Durable copies by share-partition.
    durable: BTreeMap<ShareId, BTreeMap<i64, u64>>,
    copied: BTreeMap<(ShareId, i64), Copied>,
    /// Ends of the broker, failed writes and syncs: each may make one copy twice.
    mishaps: u64,
    /// Those before the round at work: what is decided in it may be void by the end of it.
    mishaps_before_round: u64,
    jobs: BTreeMap<u64, (PartitionId, i64)>,
    /// Mishaps before copies that are on their way to the disk.
    submitted: BTreeMap<OpId, u64>,
}

impl Letters {
    /// Whether a record is durable in the dead-letter topic.
    pub(super) fn has(&self, id: &ShareId, offset: i64) -> bool {
        self.durable.get(id).is_some_and(|copies| copies.contains_key(&offset))
    }

    /// Whether a record was ever copied there.
    pub(super) fn had(&self, id: &ShareId, offset: i64) -> bool {
        self.copied.contains_key(&(id.clone(), offset))
    }

    /// Something went wrong behind which a copy may come again.
    pub(super) fn mishap(&mut self) {
        self.mishaps += 1;
    }

    /// Copies, or something else, are on their way to the disk.
    pub(super) fn submitted(&mut self, op: OpId) {
        self.submitted.insert(op, self.mishaps_before_round);
    }

    /// A round of the shard begins.
    pub(super) fn round_begins(&mut self) {
        self.mishaps_before_round = self.mishaps;
    }

    /// The record may be copied anew: it comes again.
    pub(super) fn comes_again(&mut self, id: &ShareId, offset: i64) {
        if let Some(copied) = self.copied.get_mut(&(id.clone(), offset)) {
            copied.copies = 0;
        }
    }

    /// All of a share-partition comes again: it begins elsewhere.
    pub(super) fn begins_elsewhere(&mut self, id: &ShareId) {
        self.copied.iter_mut().filter(|(key, _)| key.0 == *id).for_each(|(_, copied)| copied.copies = 0);
    }

    pub(super) fn sync_began(&mut self, job: u64, partition: PartitionId) {
        if let Some(log) = self.logs.get(&partition) {
            self.jobs.insert(job, (partition, log.end));
        }
    }

    pub(super) fn sync_ran(&mut self, job: u64, well: bool) {
        if !well {
            self.mishap();
        }
        if let Some((partition, end)) = self.jobs.remove(&job).filter(|_| well) {
            self.synced_to(partition, end);
        }
    }

    pub(super) fn closed_in_order(&mut self) {
        let ends: Vec<_> = self.logs.iter().map(|(id, log)| (*id, log.end)).collect();
        ends.into_iter().for_each(|(partition, end)| self.synced_to(partition, end));
    }

    fn synced_to(&mut self, partition: PartitionId, end: i64) {
        let Some(log) = self.logs.get_mut(&partition) else { return };
        for letter in log.letters.range(log.synced..end.max(log.synced)).map(|letter| letter.1) {
            *self.durable.entry(letter.share()).or_default().entry(letter.offset).or_default() += 1;
        }
        log.synced = log.synced.max(end);
    }

    /// The broker starts again, and finds these letters.
    pub(super) fn restarted(
        &mut self,
        power_cut: bool,
        found: &BTreeMap<PartitionId, Vec<Letter>>,
    ) -> Result<(), String> {
        self.mishap();
        self.jobs.clear();
        self.submitted.clear();
        for (partition, log) in &mut self.logs {
            let there: BTreeMap<i64, &Letter> =
                found.get(partition).into_iter().flatten().map(|letter| (letter.at, letter)).collect();
            for (at, letter) in &log.letters {
                match there.get(at) {
                    Some(stored) if **stored == *letter => {}
                    None if power_cut && *at >= log.synced => {}
                    other => return Err(format!("the dead letter {letter:?} is {other:?} after a start")),
                }
            }
            log.letters.retain(|at, _| there.contains_key(at));
            log.end = log.letters.last_key_value().map_or(0, |letter| letter.0 + 1);
            log.synced = log.synced.min(log.end);
            if power_cut {
                // What was found is there for good.
                for letter in log.letters.range(log.synced..).map(|letter| letter.1) {
                    *self.durable.entry(letter.share()).or_default().entry(letter.offset).or_default() += 1;
                }
                log.synced = log.end;
            }
        }
        Ok(())
    }
}

impl Letter {
    /// The share-partition that it comes from.
    pub(super) fn share(&self) -> ShareId {
        (Arc::clone(&self.group), crate::sim::node::partition(self.index))
    }
}

impl Model {
    /// An append of dead letters failed, perhaps behind the write.
    pub fn letters_failed(&mut self) {
        self.letters.mishap();
    }

    /// Dead letters were appended.
    ///
    /// # Errors
    /// One of them is none, comes too often, or too early.
    pub fn letters_appended(
        &mut self,
        op: OpId,
        partition: PartitionId,
        letters: Vec<Letter>,
    ) -> Result<(), Violation> {
        // What made a copy void before it was written counts, too.
        let mishaps_before = self.letters.submitted.remove(&op).unwrap_or(self.letters.mishaps);
        for letter in letters {
            self.check_letter(&letter)?;
            let key = (letter.share(), letter.offset);
            let mishaps = self.letters.mishaps;
            let copied = self.letters.copied.entry(key).or_insert(Copied { copies: 0, mishaps_before });
            copied.copies += 1;
            if copied.copies == 1 {
                copied.mishaps_before = mishaps_before;
            }
            if copied.copies > 1 + mishaps - copied.mishaps_before {
                let text = format!("{letter:?} is copy {} of its record", copied.copies);
                return Err(Violation::new(Rule::DeadLetter, text));
            }
            // One that follows never failed, and goes to nobody any more all the same.
            if let Some(share) = self.shares.get_mut(&letter.share()) {
                share.amend(letter.offset, |record| record.stop = record.stop.at_least_maybe());
            }
            let log = self.letters.logs.entry(partition).or_default();
            log.end = log.end.max(letter.at + 1);
            log.letters.insert(letter.at, letter);
        }
        Ok(())
    }

    fn check_letter(&self, letter: &Letter) -> Result<(), Violation> {
        let id = letter.share();
        let broken = |text: &str| Err(Violation::new(Rule::DeadLetter, format!("{letter:?}: {text}")));
        let (Some(share), Some(log)) = (self.shares.get(&id), self.logs.of(&id)) else {
            return broken("there is no such share-partition");
        };
        let record = share.record(letter.offset);
        let Some(seen) = log.records.get(&letter.offset) else { return broken("there is no such record") };
        if record.settled == Tri::Yes && letter.offset >= log.start_asked && !record.may_return {
            return broken("its record is done");
        }
        let follows = letter.reason.starts_with("follows");
        // What is in hands in doubt may have failed without a word: its lock ran out while its state could not be read, or
        // that it was rejected could not be stored.
        let in_doubt = record.hold.as_ref().is_some_and(|hold| hold.doubt);
        let may_fail = record.stop != Tri::No || record.unknown || in_doubt;
        if !follows && !may_fail && letter.offset >= log.start_asked {
            return broken("its record did not fail");
        }
        if !follows {
            return Ok(());
        }
        if !share.hand.follows {
            return broken("nothing follows here");
        }
        for &other in seen.key.and_then(|key| log.keys.get(&key)).into_iter().flatten() {
            let before = share.record(other);
            let done = before.may_be_settled() || before.unknown || self.letters.had(&id, other);
            if other < letter.offset && other >= log.start_asked && !done && before.hold.is_none() {
                return broken(&format!("it goes before {other}: {before:?}"));
            }
        }
        Ok(())
    }
}
