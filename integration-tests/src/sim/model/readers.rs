//! Readers without membership (§8 of the design): a reader is its connection, is given what lies in its ranges of key
//! hashes and nothing else, is fenced by a newer one whose ranges overlap its own, and commits ranges of offsets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::command::{ConnectionId, KeyRange, StandaloneCommit, StandaloneFetch, Ticket};
use coordinator::time::Now;
use records::ids::{KeyHash, PartitionId};

use super::answers::{Acked, Asked};
use super::share::{Share, Word};
use super::state::Tri;
use super::{Model, Rule, Violation};

/// What the names of readers begin with.
const PREFIX: &str = "reader-";

/// A reader's name: that of its connection.
#[must_use]
pub fn reader_name(connection: ConnectionId) -> Arc<str> {
    Arc::from(format!("{PREFIX}{}", connection.0))
}

pub(super) fn is_reader(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Ranges by partition; none are all keys.
pub(super) type Claims = BTreeMap<PartitionId, Vec<KeyRange>>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers {
    claims: BTreeMap<(Arc<str>, ConnectionId), Claims>,
    fenced: BTreeSet<(Arc<str>, ConnectionId)>,
}

impl Readers {
    pub(super) fn broker_died(&mut self) {
        *self = Self::default();
    }

    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.claims.retain(|reader, _| reader.1 != connection);
    }
}

/// Whether a record is of these ranges. One without a key counts as if the bits of its offset, in reverse, were its hash.
pub(super) fn contain(ranges: &[KeyRange], key: Option<KeyHash>, offset: i64) -> bool {
    let hash = key.map_or_else(|| offset.cast_unsigned().reverse_bits(), |key| key.0);
    ranges.is_empty() || ranges.iter().any(|range| range.first.0 <= hash && hash <= range.last.0)
}

fn overlap(one: &[KeyRange], other: &[KeyRange]) -> bool {
    let common = |a: &KeyRange| other.iter().any(|b| a.first <= b.last && b.first <= a.last);
    one.is_empty() || other.is_empty() || one.iter().any(common)
}

impl Share {
    /// A reader may be done with this record from now on, whoever holds it.
    fn may_be_committed(&mut self, offset: i64, is_there: bool, by_ranges: bool) -> Option<Word> {
        let record = self.record(offset);
        if record.settled == Tri::Yes && record.hold.is_none() {
            return None;
        }
        // What is done in any other way needs no word.
        let open = record.settled == Tri::No && record.stop == Tri::No && !record.unknown && is_there;
        let again = record.replayed || record.may_return;
        let held = if open && !again && by_ranges { Tri::Yes } else { Tri::Maybe };
        // What comes again beside the window is committed only where it is in somebody's hands, and what is on its way to
        // the dead-letter topic goes there all the same.
        let settles = (!record.replayed || record.hold.as_ref().is_some_and(|hold| !hold.doubt))
            && record.stop == Tri::No
            && !self.hand.follows
            && by_ranges;
        self.change(offset, false, |record| {
            record.settled = record.settled.at_least_maybe();
            record.stop = if record.stop == Tri::No { Tri::No } else { Tri::Maybe };
            if let Some(hold) = &mut record.hold {
                hold.doubt = true;
            }
        });
        let delivery = record.hold.map_or(0, |hold| hold.delivery);
        Some(Word { held, settles, stops: false, delivery })
    }
}

impl Model {
    pub(super) fn standalone_fetch(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: &StandaloneFetch,
        taken: bool,
    ) -> Result<Asked, Violation> {
        let mut fetch = request.fetch.clone();
        fetch.member = reader_name(fetch.connection);
        let reader = (Arc::clone(&fetch.group), fetch.connection);
        if taken && fetch.epoch != 0 && self.readers.fenced.contains(&reader) {
            return Err(Violation::new(Rule::Ranges, format!("{} is fenced, and is served", fetch.member)));
        }
        let mut asked = self.share_fetch(now.mono, ticket, &fetch, taken);
        if taken && fetch.epoch != -1 {
            self.claim(&reader, fetch.epoch == 0, &request.ranges);
        }
        let claims = self.readers.claims.get(&reader).cloned().unwrap_or_default();
        self.wakeups.of_ranges(ticket, &claims);
        if let Asked::ShareFetch { ranges, .. } = &mut asked {
            *ranges = Some(claims);
        }
        Ok(asked)
    }

    /// A reader's ranges are these now; who had any of them before is fenced.
    fn claim(
        &mut self,
        reader: &(Arc<str>, ConnectionId),
        begins: bool,
        named: &[(PartitionId, Vec<KeyRange>)],
    ) {
        self.readers.fenced.remove(reader);
        let own = self.readers.claims.entry(reader.clone()).or_default();
        if begins {
            own.clear();
        }
        let mut claimed: Vec<&(PartitionId, Vec<KeyRange>)> = Vec::new();
        for part in named {
            if part.1.is_empty() && own.contains_key(&part.0) {
                continue;
            }
            own.insert(part.0, part.1.clone());
            claimed.push(part);
        }
        let fenced: Vec<_> = self
            .readers
            .claims
            .iter()
            .filter(|(other, claims)| {
                other.0 == reader.0
                    && other.1 != reader.1
                    && claimed.iter().any(|(partition, ranges)| {
                        claims.get(partition).is_some_and(|claim| overlap(claim, ranges))
                    })
            })
            .map(|(other, _)| other.clone())
            .collect();
        for other in fenced {
            self.readers.claims.remove(&other);
            self.session_closed(&other.0, &reader_name(other.1));
            self.readers.fenced.insert(other);
        }
    }

    pub(super) fn standalone_commit(&mut self, commit: &StandaloneCommit, taken: bool) -> Asked {
        let reader = (Arc::clone(&commit.group), commit.connection);
        let mut acked = Vec::new();
        for (partition, offsets) in commit.parts.iter().filter(|_| taken) {
            let id = (Arc::clone(&commit.group), *partition);
            let claims = self.readers.claims.get(&reader).and_then(|claims| claims.get(partition));
            let (Some(ranges), Some(log)) = (claims, self.logs.of(&id)) else { continue };
            let Some(share) = self.shares.get_mut(&id) else { continue };
            let name = reader_name(commit.connection);
            // By ranges that it had before.
            let may_hold =
                |share: &Share, offset| share.record(offset).hold.is_some_and(|hold| hold.member == name);
            let mut words = Vec::new();
            for (first, last) in offsets.iter().filter(|range| range.0 <= range.1) {
                for (&offset, seen) in log.records.range(*first.max(&log.start)..=*last.max(&log.start)) {
                    let by_ranges = contain(ranges, seen.key, offset);
                    if offset <= *last && (by_ranges || may_hold(share, offset)) {
                        let is_there = offset >= log.start_asked && !self.letters.had(&id, offset);
                        let word = share.may_be_committed(offset, is_there, by_ranges);
                        words.extend(word.map(|word| (offset, word)));
                    }
                }
            }
            let position = share.position();
            acked.push(Acked { partition: *partition, numbered: false, words: vec![words], position });
        }
        Asked::ShareAcknowledge { connection: commit.connection, group: reader.0, acked }
    }
}
