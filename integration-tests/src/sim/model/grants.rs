//! The check at the moment of the grant: O1, O2, O3, counts, limits, and the data itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::executor::Data;
use coordinator::command::Ticket;
use coordinator::reply::{ShareFetched, SharePart};
use coordinator::share::ShareOrder;
use coordinator::time::{Micros, Mono};
use records::ids::KeyHash;

use super::readers::{Claims, contain};
use super::state::{Hold, Tri};
use super::{Model, Rule, ShareId, Violation};
use crate::sim::content::{self, BatchKind};

/// Stored waits are whole milliseconds: an end may come that much early.
const WAIT_SLACK: Micros = Micros(2_000);

/// What a fetch that is answered asked for.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) ticket: Ticket,
    pub(super) group: Arc<str>,
    pub(super) member: Arc<str>,
    /// When it came in: no earlier was anything granted to it.
    pub(super) since: Mono,
    pub(super) records_max: Option<i32>,
    pub(super) per_key_max: usize,
    pub(super) numbered: bool,
    /// Those of a reader without membership.
    pub(super) ranges: Option<Claims>,
    /// What it brings may have come back already.
    pub(super) doubt: bool,
}

impl Model {
    pub(super) fn granted(
        &mut self,
        now: Mono,
        terms: &Terms,
        fetched: &ShareFetched<Data>,
    ) -> Result<(), Violation> {
        let doubt = terms.doubt || self.is_doubtful(now, &terms.group, &terms.member);
        let mut total = 0;
        for part in &fetched.parts {
            let id = (Arc::clone(&terms.group), part.partition);
            let mut behind = -1;
            for range in &part.acquired {
                if range.first.get() <= behind || range.last < range.first {
                    return Err(Violation::new(Rule::Content, format!("{:?} do not ascend", part.acquired)));
                }
                behind = range.last.get();
                for offset in range.first.get()..=range.last.get() {
                    total += 1;
                    self.check_grant(now, terms, &id, offset, range.count)?;
                    self.check_home(now, terms, &id, offset)?;
                    // A grant of before a restart that was never answered may recall it unseen.
                    let ghosts = self.shares.get(&id).is_some_and(|share| now < share.ghosts_until);
                    let unseen = (ghosts && terms.per_key_max > 1) || self.has_doubt_before(&id, offset);
                    let recalled = if unseen { Tri::Maybe } else { Tri::No };
                    let hold = Hold {
                        member: Arc::clone(&terms.member),
                        ticket: terms.ticket,
                        delivery: range.delivery.0,
                        numbered: terms.numbered,
                        // With delivery numbers what is recalled comes back at once.
                        doubt: doubt || (unseen && terms.numbered),
                        doubted: false,
                        failed: false,
                        recalled,
                        written: false,
                        since: terms.since,
                        lock_end: None,
                        sure_until: Mono(u64::MAX),
                        restarted: false,
                    };
                    let fails = u16::try_from(range.count - 1).unwrap_or(0);
                    let is_there = self.logs.of(&id).is_some_and(|log| offset >= log.start);
                    let copied = self.letters.has(&id, offset);
                    if let Some(share) = self.shares.get_mut(&id).filter(|_| is_there) {
                        share.granted(offset, hold, fails, copied);
                        self.letters.comes_again(&id, offset);
                    }
                    self.grants += 1;
                }
            }
            self.check_data(&id, part)?;
            self.start_is(&id, part.start_offset.get())?;
        }
        let new_settings = fetched.parts.iter().any(|part| {
            let share = self.shares.get(&(Arc::clone(&terms.group), part.partition));
            share.is_some_and(|share| terms.since <= share.hand.settings_since)
        });
        match terms.records_max {
            Some(max) if total > max && !new_settings => {
                Err(Violation::new(Rule::Limit, format!("{total} records, {max} at most were asked for")))
            }
            _ => Ok(()),
        }
    }

    fn check_grant(
        &self,
        now: Mono,
        terms: &Terms,
        id: &ShareId,
        offset: i64,
        count: i16,
    ) -> Result<(), Violation> {
        let (Some(share), Some(log)) = (self.shares.get(id), self.logs.of(id)) else { return Ok(()) };
        let member = &terms.member;
        let broken = |rule, text: String| {
            Err(Violation::new(rule, format!("{offset} of {} {} goes to {member}: {text}", id.0, id.1.index)))
        };
        let seen = match self.logs.grantable(id, offset) {
            Ok(seen) if offset >= log.start_before => seen,
            Ok(_) => return broken(Rule::Content, "it has left the log".to_owned()),
            Err((rule, text)) => return broken(rule, text.to_owned()),
        };
        if offset < log.start {
            // It left the log in this very round, behind the answer perhaps.
            return Ok(());
        }
        if let Some(claims) = &terms.ranges
            && claims.get(&id.1).is_none_or(|ranges| !contain(ranges, seen.key, offset))
        {
            return broken(Rule::Ranges, format!("it is of none of its ranges, {:?}", claims.get(&id.1)));
        }
        let record = share.record(offset);
        if record.settled == Tri::Yes && !record.may_return && !record.unknown {
            return broken(Rule::Forgotten, format!("it is done: {record:?}"));
        }
        if record.stop == Tri::Yes && !record.may_return && !record.unknown {
            let rule = if record.by_hand { Rule::Parked } else { Rule::DeadLetter };
            return broken(rule, format!("it is stopped: {record:?}"));
        }
        if let Some(hold) = record.hold.as_ref().filter(|hold| !hold.doubt && !record.unknown) {
            return broken(Rule::Exclusive, format!("{} holds it: {hold:?}", hold.member));
        }
        let failed = u16::try_from(i32::from(count) - 1).unwrap_or(u16::MAX);
        if !(record.fails.0..=record.fails.1).contains(&failed) && !record.unknown {
            return broken(Rule::Redelivery, format!("delivery count {count}, failed {:?}", record.fails));
        }
        if record.not_before.is_some_and(|at| now + WAIT_SLACK < at) {
            return broken(Rule::Order, format!("it waits until {:?}", record.not_before));
        }
        // Settings that came behind the fetch may not have been those of the grant.
        let settled_settings = terms.since > share.hand.settings_since;
        match seen.key.filter(|_| share.config.order == ShareOrder::Key && settled_settings) {
            Some(key) => self.check_key(now, terms, id, offset, key),
            None => Ok(()),
        }
    }

    /// Whether an earlier record of the key may come back unseen, and recall this one.
    fn has_doubt_before(&self, id: &ShareId, offset: i64) -> bool {
        let (Some(share), Some(log)) = (self.shares.get(id), self.logs.of(id)) else { return false };
        let key = log.records.get(&offset).and_then(|seen| seen.key);
        let earlier = key.and_then(|key| log.keys.get(&key)).into_iter().flatten();
        earlier.take_while(|&&other| other < offset).any(|&other| {
            let record = share.record(other);
            let doubt = record.unknown || record.hold.is_some_and(|hold| hold.doubt);
            other >= log.start && record.settled != Tri::Yes && doubt
        })
    }

    /// The other records of the key.
    fn check_key(
        &self,
        now: Mono,
        terms: &Terms,
        id: &ShareId,
        offset: i64,
        key: KeyHash,
    ) -> Result<(), Violation> {
        let (share, log) = (&self.shares[id], self.logs.of(id).expect("every share has a log"));
        let member = &terms.member;
        let ghosts = now < share.ghosts_until;
        if share.hand.parked_since(key).is_some_and(|since| since < terms.since) {
            let text = format!("{offset} of {} goes to {member}, and its key is parked", id.0);
            return Err(Violation::new(Rule::Parked, text));
        }
        let mut in_flight = 1;
        for &other in log.keys.get(&key).into_iter().flatten() {
            if other == offset || other < log.start_asked {
                continue;
            }
            let record = share.record(other);
            let done = record.may_be_settled() || self.letters.has(id, other);
            let again = record.replayed && record.hold.as_ref().is_some_and(|hold| !hold.doubt);
            if record.unknown || (done && !again) {
                continue;
            }
            let broken = |rule, text: &str| {
                let text = format!("{offset} of {} goes to {member}: {text} {other}: {record:?}", id.0);
                Err(Violation::new(rule, text))
            };
            match &record.hold {
                Some(hold) if hold.member != *member && !hold.doubt => {
                    return broken(Rule::Exclusive, "another member holds");
                }
                // Granted anew by an answer that a restart has swallowed, it may be this member's own.
                Some(hold) if hold.member != *member && other < offset && !share.is_ghost(now, other) => {
                    return broken(Rule::Order, "not done before it is");
                }
                Some(hold) if hold.member == *member && !hold.doubt => {
                    if other < offset && hold.recalled == Tri::Yes {
                        return broken(Rule::Redelivery, "to be delivered again before it is");
                    }
                    in_flight += usize::from(hold.recalled == Tri::No);
                }
                // Its session may have ended in this very round, behind the answer.
                None if other < offset && !ghosts && !terms.doubt => {
                    return broken(Rule::Order, "not delivered before it is");
                }
                _ => {}
            }
        }
        if in_flight > terms.per_key_max {
            let text = format!("{in_flight} of a key are with {member}, {} at most", terms.per_key_max);
            return Err(Violation::new(Rule::Limit, text));
        }
        Ok(())
    }

    /// Every acquired record is in the data, as it was stored, in ascending order.
    fn check_data(&self, id: &ShareId, part: &SharePart<Data>) -> Result<(), Violation> {
        let broken = |text: String| Err(Violation::new(Rule::Content, text));
        let Some(data) = &part.data else {
            return if part.acquired.is_empty() {
                Ok(())
            } else {
                broken("acquired without data".to_owned())
            };
        };
        let batches = content::bytes(data)
            .and_then(|bytes| content::batches(&bytes))
            .map_err(|text| Violation::new(Rule::Content, text))?;
        let mut by_offset = BTreeMap::new();
        let mut behind = -1;
        for batch in &batches {
            if matches!(batch.kind, BatchKind::Marker(_)) {
                return broken(format!("the marker {} is shown", batch.base));
            }
            for seen in &batch.records {
                if seen.offset <= behind {
                    return broken(format!("{} comes behind {behind}", seen.offset));
                }
                behind = seen.offset;
                by_offset.insert(seen.offset, *seen);
            }
        }
        for offset in part.acquired.iter().flat_map(|range| range.first.get()..=range.last.get()) {
            let stored = self.logs.get(&id.1).and_then(|log| log.records.get(&offset));
            if by_offset.get(&offset) != stored {
                return broken(format!("{offset} is {:?}, stored {stored:?}", by_offset.get(&offset)));
            }
        }
        Ok(())
    }
}
