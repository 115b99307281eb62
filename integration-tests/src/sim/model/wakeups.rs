//! No needless waiting (O4), and every deferral has a wake-up: a record that nothing holds back goes to a member that
//! asks and holds nothing, within a bound of virtual time. And a fetch is answered when its wait is over, whatever comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::command::{ConnectionId, ShareFetch, Ticket};
use coordinator::share::{ShareConfig, ShareOrder};
use coordinator::time::{Micros, Mono};

use super::log::Log;
use super::readers::{Claims, contain};
use super::share::Share;
use super::state::{Hold, Record, Tri};
use super::{LATE_MAX, Model, Rule, ShareId, Violation};

/// So long a ready record may wait while a member asks: a slow disk's append, scan and read, one after another, and the
/// shard's thread may be late each time.
const READY_MAX: Micros = Micros(3_000_000);
/// So long after its wait a fetch may be without an answer: the disk is slow, or what it is about has to be read anew.
const ANSWER_LATE_MAX: Micros = Micros(2_000_000);
/// Memory below which a window may be full.
const WINDOW_BYTES: u64 = 1 << 20;

/// A fetch that waits.
#[derive(Clone, Debug)]
struct Asks {
    connection: ConnectionId,
    group: Arc<str>,
    member: Arc<str>,
    since: Mono,
    /// Those of a reader without membership.
    ranges: Option<Claims>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakeups {
    asks: BTreeMap<Ticket, Asks>,
    /// Until when every fetch is to be answered, on its connection.
    waits: BTreeMap<Ticket, (ConnectionId, Mono)>,
    /// Since when records were found ready at every look.
    ready: BTreeMap<ShareId, BTreeMap<i64, Mono>>,
}

impl Wakeups {
    pub(super) fn asked(&mut self, now: Mono, ticket: Ticket, fetch: &ShareFetch) {
        let wait = Micros::from_ms(i64::from(fetch.wait_max_ms.max(0)));
        self.waits.insert(ticket, (fetch.connection, now + wait + ANSWER_LATE_MAX));
        // One that waits for more bytes than a record has may wait on.
        if fetch.bytes_min <= 1 && fetch.wait_max_ms > 0 && fetch.epoch != -1 {
            let (group, member) = (Arc::clone(&fetch.group), Arc::clone(&fetch.member));
            let asks = Asks { connection: fetch.connection, group, member, since: now, ranges: None };
            self.asks.insert(ticket, asks);
        }
    }

    /// Who asks is a reader without membership, and of these ranges.
    pub(super) fn of_ranges(&mut self, ticket: Ticket, claims: &Claims) {
        if let Some(asks) = self.asks.get_mut(&ticket) {
            asks.ranges = Some(claims.clone());
        }
    }

    pub(super) fn answered(&mut self, ticket: Ticket) {
        self.asks.remove(&ticket);
        self.waits.remove(&ticket);
    }

    /// Something went wrong with a share-partition: it has to find itself again.
    pub(super) fn disturbed(&mut self, id: &ShareId) {
        self.ready.remove(id);
    }

    /// Keys of a group may live with somebody else from now on: nobody has waited for them yet.
    pub(super) fn homes_moved(&mut self, group: &Arc<str>) {
        self.ready.retain(|id, _| id.0 != *group);
    }

    pub(super) fn all_disturbed(&mut self) {
        self.ready.clear();
    }

    pub(super) fn broker_died(&mut self) {
        self.asks.clear();
        self.waits.clear();
        self.ready.clear();
    }
}

impl Model {
    /// Looks whether anything waits needlessly. `open`: the share-partitions that are in memory now.
    ///
    /// # Errors
    /// It does.
    pub fn nothing_waits(&mut self, now: Mono, open: &[ShareId]) -> Result<(), Violation> {
        let closed = &self.closed;
        self.wakeups.waits.retain(|_, wait| !closed.contains(&wait.0));
        if let Some((ticket, (_, until))) = self.wakeups.waits.iter().find(|wait| wait.1.1 < now) {
            let text = format!("{ticket:?} was to be answered until {until:?}, late as that is, and is not");
            return Err(Violation::new(Rule::WakeUp, text));
        }
        let mut ready = BTreeMap::new();
        for id in open {
            let found = self.ready_records(now, id);
            let before = self.wakeups.ready.get(id);
            let since = |offset: i64| before.and_then(|ready| ready.get(&offset)).copied().unwrap_or(now);
            let found: BTreeMap<i64, Mono> =
                found.into_iter().map(|offset| (offset, since(offset))).collect();
            for (offset, since) in &found {
                let Some(asks) = self.who_asks(now, id, *offset, *since) else { continue };
                let text = format!(
                    "{offset} of {} {} is ready since {since:?}, {} asks since {:?}, and gets nothing: {:?}",
                    id.0,
                    id.1.index,
                    asks.member,
                    asks.since,
                    self.shares[id].record(*offset)
                );
                return Err(Violation::new(Rule::WakeUp, text));
            }
            ready.insert(id.clone(), found);
        }
        self.wakeups.ready = ready;
        Ok(())
    }

    /// Who has asked for long while a record was ready since then that may go to it, and holds nothing of the group.
    fn who_asks(&self, now: Mono, id: &ShareId, offset: i64, since: Mono) -> Option<&Asks> {
        let key = self.logs.of(id).and_then(|log| log.records.get(&offset)).and_then(|seen| seen.key);
        let asking: Vec<&Asks> = self
            .wakeups
            .asks
            .values()
            .filter(|asks| {
                asks.group == id.0
                    && now - since.max(asks.since) > READY_MAX
                    && !self.closed.contains(&asks.connection)
                    && !self.is_doubtful(now, &asks.group, &asks.member)
                    && self.is_idle(now, &asks.group, &asks.member)
            })
            .collect();
        let is_owed = |asks: &Asks| match &asks.ranges {
            Some(claims) => claims.get(&id.1).is_some_and(|ranges| contain(ranges, key, offset)),
            None => self.is_home(id, key, &asks.member),
        };
        if let Some(asks) = asking.iter().find(|asks| is_owed(asks)) {
            return Some(asks);
        }
        // Which member's home it is may not be known: where all that it may be ask, it is one of theirs.
        let asks =
            |member: &Arc<str>| asking.iter().any(|asks| asks.ranges.is_none() && asks.member == *member);
        let all_ask = self.may_be_homes(id).all(asks);
        asking.first().copied().filter(|_| all_ask)
    }

    /// Whether a member holds nothing of its group; what ran out is not in its hands any more.
    fn is_idle(&self, now: Mono, group: &Arc<str>, member: &Arc<str>) -> bool {
        let of_group = self.shares.iter().filter(|(id, _)| id.0 == *group);
        let has_run_out =
            |share: &Share, offset| share.record(offset).hold.is_none_or(|hold| has_run_out(now, &hold));
        of_group
            .map(|(_, share)| share)
            .all(|share| share.held_by(member).into_iter().all(|offset| has_run_out(share, offset)))
    }

    /// Records that nothing can hold back.
    fn ready_records(&self, now: Mono, id: &ShareId) -> Vec<i64> {
        let (Some(share), Some(log)) = (self.shares.get(id), self.logs.of(id)) else { return Vec::new() };
        let config = &share.config;
        let full = share.held().len() * 2 >= config.record_locks_max as usize;
        if full || config.window_bytes_max < WINDOW_BYTES || share.hand.resetting || !self.pending.is_empty()
        {
            return Vec::new();
        }
        if config.order == ShareOrder::None {
            // The span begins with the first record that is not done, in whose hands it is or parked.
            let done = |offset: i64| share.record(offset).settled == Tri::Yes || self.letters.has(id, offset);
            let mut all = log.records.range(log.start..).map(|record| *record.0);
            let Some(first) = all.find(|&offset| !done(offset)) else { return Vec::new() };
            let end = first + i64::from(config.record_locks_max);
            let in_span =
                log.records.range(log.start_asked..end.max(log.start_asked)).map(|record| *record.0);
            let free =
                |offset: &i64| is_free(now, config, &share.record(*offset)) && !share.is_ghost(now, *offset);
            return in_span.filter(free).collect();
        }
        let mut ready = Vec::new();
        for (&key, offsets) in &log.keys {
            if !share.hand.may_stop(key, log) {
                ready.extend(self.first_ready(now, id, share, log, offsets.iter().copied()));
            }
        }
        let keyless = log.records.range(log.start_asked..).filter(|record| record.1.key.is_none());
        let free =
            |offset: &i64| is_free(now, config, &share.record(*offset)) && !share.is_ghost(now, *offset);
        ready.extend(keyless.map(|record| *record.0).filter(free));
        if may_wait_keys(now, share, log) as u64 > config.stuck_keys_max {
            // Nothing new is scanned (O6); what came back once is in the window, and goes out when it is due.
            ready.retain(|offset| share.record(*offset).fails.0 > 0);
        }
        ready
    }

    /// The next record of a key, where nothing of it is in hands, in doubt, or waits.
    fn first_ready(
        &self,
        now: Mono,
        id: &ShareId,
        share: &Share,
        log: &Log,
        offsets: impl Iterator<Item = i64>,
    ) -> Option<i64> {
        let mut first = None;
        for offset in offsets.filter(|&offset| offset >= log.start) {
            let record = share.record(offset);
            if record.settled == Tri::Yes && record.hold.is_none() && !record.may_return {
                continue;
            }
            if share.hand.follows && record.stop != Tri::No {
                // What follows it may be on its way to the dead-letter topic, whoever resumes the key.
                return None;
            }
            if self.letters.has(id, offset) && record.hold.is_none() && !record.may_return {
                continue;
            }
            // What a cut was asked for may be there yet.
            if !is_free(now, &share.config, &record)
                || offset < log.start_asked
                || share.is_ghost(now, offset)
            {
                return None;
            }
            first = first.or(Some(offset));
        }
        first
    }
}

/// How many keys may wait for a retry, a record without a key counting as one, and keys and records that may be parked.
fn may_wait_keys(now: Mono, share: &Share, log: &Log) -> usize {
    let waits = |offset: &i64| {
        let record = share.record(*offset);
        let holds = record.hold.as_ref().is_some_and(|hold| !hold.doubt);
        let may_wait = may_wait(&share.config, &record) || record.not_before.is_some_and(|at| now < at);
        record.settled != Tri::Yes && !holds && (record.unknown || may_wait)
    };
    let keyed = log.keys.values().filter(|offsets| offsets.range(log.start..).any(waits)).count();
    let keyless = log.records.range(log.start..).filter(|record| record.1.key.is_none());
    let parked = log.records.range(log.start..).filter(|record| share.record(*record.0).stop != Tri::No);
    keyed + keyless.map(|record| *record.0).filter(waits).count() + parked.count() + share.hand.may_park()
}

/// Where the model does not know of a wait, there may be one.
fn may_wait(config: &ShareConfig, record: &Record) -> bool {
    config.backoff_ms > 0 && record.fails.1 > 0 && record.not_before.is_none()
}

/// The time of its lock is over, and the shard has had its time to see it.
fn has_run_out(now: Mono, hold: &Hold) -> bool {
    !hold.doubt && hold.lock_end.is_some_and(|end| end + LATE_MAX < now)
}

/// Whether a record could go out, as far as it alone is concerned.
fn is_free(now: Mono, config: &ShareConfig, record: &Record) -> bool {
    // One that comes back because its lock ran out may have to wait, and the time that it did may have been its last.
    let comes_again =
        config.backoff_ms <= 0 && i32::from(record.fails.1) + 1 < i32::from(config.delivery_count_max);
    let has_come_back = |hold: &Hold| comes_again && has_run_out(now, hold);
    record.settled == Tri::No
        && record.stop == Tri::No
        && record.hold.as_ref().is_none_or(has_come_back)
        && !record.unknown
        && !record.may_return
        && !record.replayed
        && !may_wait(config, record)
        && record.not_before.is_none_or(|at| at <= now)
}
