//! The end of a round: matching, answering or parking fetches, reading ahead, appending events.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::standalone::is_reader;
use super::{Ask, Flushing, Op, Part, PartState, Patience, ShareMachine, Timer, upper};
use crate::io::{EventsAppended, IoError, OpId, Scanned, Slice, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::plan::fairness;
use crate::plan::share_fetch::{Bidder, match_round};
use crate::share::homes::Homes;
use crate::share::key_queue::Cursor;
use crate::share::snapshot::Snapshot;
use crate::share::{ShareAssignment, ShareOrder};
use crate::time::{Micros, Mono, Now};

use records::ids::{KeyHash, Offset};

impl<S: Slice> ShareMachine<S> {
    /// Matches, answers, parks, reads ahead and appends what the inputs since the last call call for.
    pub fn finish_round(&mut self, now: Now, logs: &LogTable, out: &mut Outbox<S>) {
        self.started.get_or_insert(now.mono);
        self.serve_admins(now, logs, out);
        let mut touched = std::collections::BTreeSet::new();
        // Answering may change share-partitions again: until nothing moves.
        loop {
            let dirty = std::mem::take(&mut self.dirty);
            // Each share-partition comes first in its turn, so that small fetches of several starve none.
            let (later, first) = dirty.iter().copied().partition::<Vec<u32>, _>(|&part| part <= self.turn);
            for part in first.into_iter().chain(later) {
                self.tend_replays(part, logs, out);
                self.match_part(now, part, logs);
                self.bring_back(now, part, logs, out);
                self.read_ahead(now, part, logs, out);
                self.copy_dead_letters(now, part, logs, out);
            }
            touched.extend(dirty);
            for ask in std::mem::take(&mut self.unsettled_asks) {
                self.settle_ask(now, ask, logs, out);
            }
            if self.dirty.is_empty() {
                break;
            }
        }
        for part in touched {
            self.append_events(now, part, out);
            self.keep_watch(now, part, logs, out);
            let open = self.parts.get(&part).and_then(Part::open);
            let deadline = open.and_then(|open| open.next_deadline(now));
            self.timers.set(Timer::Part(part), deadline);
        }
        self.answer_describes(logs, out);
        self.forget_members();
        self.forget_groups();
    }

    /// One matching round of a share-partition.
    fn match_part(&mut self, now: Now, number: u32, logs: &LogTable) {
        self.settle_in(number);
        let Some(part) = self.parts.get(&number) else { return };
        let config = Arc::clone(&self.group(part.group).config);
        let partition = part.id;
        let upper = upper(logs, &config, partition);
        if part.asks.is_empty() || part.open().is_none_or(|open| !open.is_ready() || !open.may_grant(upper)) {
            return;
        }
        let asks: Vec<u64> = part.asks.iter().copied().filter(|&ask| self.may_take(now, ask)).collect();
        let group = self.group(part.group);
        let live = match &group.live {
            Some(live) => live.len(),
            None => part.interested.len(),
        };
        let mut bidders: Vec<Bidder> = asks
            .iter()
            .map(|number| {
                let ask = &self.asks[number];
                let claims = self.claimed(ask.member, partition);
                Bidder {
                    member: Arc::clone(&self.members[&ask.member].name),
                    numbered: ask.numbered,
                    per_key_max: ask.per_key_max,
                    keys_max: usize::MAX,
                    strict: ask.strict,
                    ranges: claims.as_ref().map(|claims| Arc::clone(&claims.0)),
                    turn_from: claims.map_or(KeyHash(0), |claims| claims.1),
                    budget: ask.budget,
                    cursor: Cursor::default(),
                    delivery: None,
                    lock: None,
                    picks: Vec::new(),
                    replayed: Vec::new(),
                }
            })
            .collect();
        let (boot, mut deliveries) = (self.boot, self.deliveries);
        let Some(open) = self.open_part(number) else { return };
        // What has its home elsewhere is no share of anybody else.
        let shared = config.assignment == ShareAssignment::Dynamic;
        if config.order == ShareOrder::Key && config.hold_target_ms > 0 && shared {
            let keys_max = fairness::keys_max(open.keys_to_share(), live);
            bidders.iter_mut().for_each(|bidder| bidder.keys_max = keys_max);
        }
        match_round(open, &mut bidders, now, &mut || {
            deliveries += 1;
            u64::from(boot & 0xff_ffff) << 40 | deliveries & 0xff_ffff_ffff
        });
        let mut granted = false;
        for (ask, bidder) in asks.into_iter().zip(bidders) {
            if bidder.ranges.is_some()
                && let Some(member) = self.asks.get(&ask).map(|ask| ask.member)
            {
                self.looked(member, partition, bidder.turn_from);
            }
            if let Some(delivery) = bidder.delivery {
                granted = true;
                if let Some(state) = self.asks.get_mut(&ask) {
                    state.budget = bidder.budget;
                    state.grants.insert(number, (delivery, bidder.picks));
                }
                self.unsettled_asks.insert(ask);
            }
        }
        self.deliveries = deliveries;
        if granted {
            self.turn = number;
            if let Some(part) = self.parts.get_mut(&number) {
                part.granted_at = now.mono;
            }
        }
    }

    /// Where assignment is sticky, keys have their homes among the members that are at work here: who comes or goes
    /// moves its share. Readers without membership go by their ranges.
    fn settle_in(&mut self, number: u32) {
        let Some(part) = self.parts.get(&number).filter(|part| part.open().is_some()) else { return };
        let group = self.group(part.group);
        let mut residents = BTreeSet::new();
        if group.config.order == ShareOrder::Key && group.config.assignment == ShareAssignment::Sticky {
            let is_live = |name: &Arc<str>| group.live.as_ref().is_none_or(|live| live.contains(name));
            let members = part.interested.iter().filter_map(|member| self.members.get(member));
            let members = members.filter(|member| !is_reader(&member.name));
            let staying = members.filter(|member| member.left_until.is_none() && is_live(&member.name));
            residents.extend(staying.map(|member| Arc::clone(&member.name)));
        }
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.residents != residents) else {
            return;
        };
        let homes = Homes::among(residents.iter()).map(Arc::new);
        part.residents = residents;
        if let Some(open) = part.open_mut() {
            open.settle_in(homes);
        }
    }

    /// Whether a fetch takes part: it has room, and there is enough for it to be worth an answer.
    fn may_take(&self, now: Now, number: u64) -> bool {
        let Some(ask) = self.asks.get(&number) else { return false };
        if ask.withdrawn || ask.budget.is_spent() || self.members[&ask.member].left_until.is_some() {
            return false;
        }
        let Ok(bytes_min) = u64::try_from(ask.bytes_min) else { return true };
        let waits = matches!(ask.patience, Patience::Until(until) if until > now.mono);
        if bytes_min <= 1 || !waits {
            return true;
        }
        let name = &self.members[&ask.member].name;
        let mut sum = 0;
        for part in ask.parts.iter().filter_map(|(_, part)| self.parts.get(&(*part)?)?.open()) {
            sum += part.ready_bytes(name, bytes_min - sum);
            if sum >= bytes_min {
                return true;
            }
        }
        false
    }

    /// Answers a fetch, or parks it.
    fn settle_ask(&mut self, now: Now, number: u64, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(ask) = self.asks.get(&number) else { return };
        let answers = !ask.grants.is_empty()
            || match ask.patience {
                Patience::Over => true,
                Patience::Until(until) => until <= now.mono,
                Patience::Look(until) => until <= now.mono || !self.is_busy(number, logs),
            };
        if answers {
            return self.answer_fetch(now, number, logs, out);
        }
        if let Patience::Until(until) | Patience::Look(until) = ask.patience {
            if let Patience::Look(_) = ask.patience {
                self.unsettled_asks.insert(number);
            }
            self.timers.set(Timer::Ask(number), Some(until));
        }
    }

    /// Whether disk work is under way that may bring records for this fetch.
    fn is_busy(&self, number: u64, logs: &LogTable) -> bool {
        let Some(ask) = self.asks.get(&number) else { return false };
        ask.parts.iter().filter_map(|(_, part)| self.parts.get(&(*part)?)).any(|part| match &part.state {
            PartState::Closed | PartState::Broken(_) => false,
            PartState::Opening(_) | PartState::Loading(..) | PartState::Starting => true,
            PartState::Open(open) => {
                let config = &self.group(part.group).config;
                part.scanning
                    || part.look_ups > 0
                    || open.wants_look_up()
                    || open.pages.reading.is_some()
                    || open.wants_scan(upper(logs, config, part.id))
            }
        })
    }

    /// Reads on in the log, where someone is interested and there is something new.
    fn read_ahead(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get(&number) else { return };
        let Some(open) = part.open().filter(|_| !part.scanning) else { return };
        let upper = upper(logs, &self.group(part.group).config, part.id);
        // What a restart left unread is read although nobody asks: it may be stopped, or altered. It is looked through, and
        // need not stay in the batch cache to be delivered.
        let mut bytes_max = self.limits.scan_bytes_max;
        if open.may_grant(upper) {
            bytes_max = open.scan_bytes_max(bytes_max);
            let more = open.wants_scan(upper) || (self.reads_by_ranges(number) && open.may_scan(upper));
            if !more || part.interested.is_empty() {
                return;
            }
            if open.reads_far() {
                match self.hungry_from(part) {
                    Some(from) if from <= now.mono => {}
                    from => return self.timers.set(Timer::ReadOn(number), from),
                }
            }
        } else if !open.wants_scan(upper) {
            return;
        }
        let (partition, generation) = (part.id, part.generation);
        let from = open.window.scan();
        let committed = self.group(part.group).config.read_committed;
        let op = out.submit(Owner::Share, |op| Submission::Scan {
            op,
            partition,
            from: Offset(from),
            upper: Offset(upper),
            bytes_max,
            committed,
        });
        self.ops.insert(op, Op::Scan(number, generation));
        if let Some(part) = self.parts.get_mut(&number) {
            part.scanning = true;
        }
    }

    /// When someone has waited long enough to be worth reading on, although much lies ready that others hold up:
    /// what they acknowledge meanwhile brings more, and what is read now would be read again once it is delivered.
    fn hungry_from(&self, part: &Part) -> Option<Mono> {
        let unserved = |ask: &&Ask| ask.grants.is_empty() && !ask.withdrawn;
        let asks = part.asks.iter().filter_map(|ask| self.asks.get(ask)).filter(unserved);
        asks.map(|ask| match ask.patience {
            Patience::Until(until) if until > ask.since + HUNGRY_AFTER => {
                ask.since.min(part.granted_at) + HUNGRY_AFTER
            }
            _ => ask.since,
        })
        .min()
    }

    pub(super) fn scan_done(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Scanned, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Scan(number, generation)) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        part.scanning = false;
        if std::mem::take(&mut part.scan_is_void) {
            // It began where the share-partition was before it was reset.
            self.dirty.insert(number);
            return;
        }
        let log_start = logs.get(&part.id).map(|facts| facts.log_start.get());
        let batches = result.iter().flat_map(|scanned| &scanned.batches);
        part.scan_bytes += batches.map(|batch| u64::from(batch.bytes)).sum::<u64>();
        let Some(open) = part.open_mut() else { return };
        let failed = result.is_err();
        match result {
            Ok(scanned) => {
                open.scanned(&scanned, now);
                self.dirty.insert(number);
                self.wake_admins();
            }
            Err(IoError::OutOfRange) => {
                // The log's start has overtaken the scan.
                if let Some(start) = log_start.filter(|&start| start > open.window.scan()) {
                    open.log_started(start);
                    self.dirty.insert(number);
                } else {
                    self.scan_later(now, number);
                }
            }
            // Tried again when something else happens to this share-partition, and soon in any case.
            Err(_) => self.scan_later(now, number),
        }
        if failed {
            self.refuse_admins(number, out);
        }
    }

    /// Looks at a share-partition again in a while, or when its first lock or wait ends.
    pub(super) fn scan_later(&mut self, now: Now, number: u32) {
        let open = self.parts.get(&number).and_then(Part::open);
        let own = open.and_then(|open| open.next_deadline(now));
        let retry = now.mono + SCAN_RETRY;
        self.timers.set(Timer::Part(number), Some(own.map_or(retry, |own| own.min(retry))));
    }

    /// Hands a share-partition's events to the executor: one append at a time, so that a failed one leaves nothing
    /// behind it.
    fn append_events(&mut self, now: Now, number: u32, out: &mut Outbox<S>) {
        let limits = &self.limits;
        let Some(part) = self.parts.get_mut(&number) else { return };
        let (Some(state), generation) = (part.store, part.generation) else { return };
        if part.flushing.is_some() {
            return;
        }
        let PartState::Open(open) = &mut part.state else { return };
        let writes_out = open.wants_page_out(now);
        if !open.has_events() && !writes_out {
            part.counted = open.counters;
            return;
        }
        let events = open.take_events();
        let mut snapshot_bytes = None;
        let is_due = part.event_bytes >= limits.snapshot_after_bytes.max(2 * part.snapshot_bytes)
            || part.scan_bytes >= limits.snapshot_after_scan_bytes.max(8 * part.snapshot_bytes);
        let op = if writes_out || is_due {
            let Snapshot { bytes: snapshot, pages, dropped } = open.snapshot(now);
            snapshot_bytes = Some(snapshot.len() as u64);
            part.scan_bytes = 0;
            out.submit(Owner::Share, |op| Submission::WriteSnapshot { op, state, snapshot, pages, dropped })
        } else {
            out.submit(Owner::Share, |op| Submission::AppendEvents { op, state, events })
        };
        part.flushing = Some(Flushing {
            answers: std::mem::take(&mut part.waiting),
            ended: open.take_ended_locks(),
            start: open.window.start(),
            counted: open.counters,
        });
        self.ops.insert(op, Op::Flush { part: number, generation, snapshot_bytes });
        let sync_ms = self.groups.get(&part.group).map_or(0, |group| group.config.sync_ms);
        let due = *part.sync_due.get_or_insert(now.mono + Micros::from_ms(sync_ms));
        self.timers.set(Timer::Sync(number), Some(due));
    }

    pub(super) fn flushed(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<EventsAppended, IoError>,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Flush { part: number, generation, snapshot_bytes }) = self.ops.remove(&op) else {
            return;
        };
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        match result {
            Ok(appended) => {
                part.appends += 1;
                part.event_bytes = appended.bytes_since_snapshot;
                part.snapshot_bytes = snapshot_bytes.unwrap_or(part.snapshot_bytes);
                part.failures = 0;
                let flushed = part.flushing.take().unwrap_or_default();
                part.stored_start = Some(flushed.start);
                part.counted = flushed.counted;
                for answer in flushed.answers {
                    self.events_written(now, answer, number, out);
                }
                self.dirty.insert(number);
            }
            Err(_) => self.reload(now, number, out),
        }
    }

    pub(super) fn sync(&mut self, number: u32, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        part.sync_due = None;
        let partition = part.id;
        let op = out.submit(Owner::Share, |op| Submission::Sync { op, partition });
        self.ops.insert(op, Op::Sync);
    }

    /// A failed sync poisons the log until a restart: the next append fails and tells those who wait.
    pub(super) fn synced(&mut self, now: Now, op: OpId, result: Result<(), IoError>, out: &mut Outbox<S>) {
        if let Some(Op::CopySync { part, generation }) = self.ops.remove(&op) {
            self.letters_synced(now, part, generation, result, out);
        }
    }
}

/// A fetch that has got nothing for so long has a share-partition read on that has read far ahead already.
const HUNGRY_AFTER: Micros = Micros(5_000);
/// A scan that failed is tried again after this long.
const SCAN_RETRY: Micros = Micros(1_000_000);
