//! Share-partitions come into memory: their stored state is read, or a new one finds where it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use records::ids::PartitionId;

use super::dead_letters::Copying;
use super::watch::Watched;
use super::{Op, Part, PartState, ShareMachine, Timer};
use crate::command::OffsetQuery;
use crate::io::{FoundRecord, IoError, OpId, ShareState, Slice, StoredState, Submission};
use crate::outbox::{LogTable, Outbox, Owner};
use crate::reply::Effect;
use crate::share::acknowledge::Acknowledged;
use crate::share::holders::Survivor;
use crate::share::member::Loss;
use crate::share::partition::SharePartition;
use crate::share::recovery::Recovery;
use crate::share::{ShareCounters, ShareError, ShareOrder, ShareReset};
use crate::time::{Micros, Mono, Now};

/// How long a share-partition whose events the disk refuses rests before it is read again.
const RELOAD_AFTER: Micros = Micros(1_000_000);

impl<S: Slice> ShareMachine<S> {
    /// The number of a group's share-partition; begins to load it where it is not in memory.
    pub(super) fn part_number(&mut self, group: u32, id: PartitionId, out: &mut Outbox<S>) -> u32 {
        let known = self.part_numbers.get(&(id, group)).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.next_entity();
            self.part_numbers.insert((id, group), number);
            if let Some(group) = self.groups.get_mut(&group) {
                group.parts.insert(number);
            }
            let part = Part {
                id,
                group,
                state: PartState::Closed,
                store: None,
                generation: 0,
                asks: BTreeSet::new(),
                interested: BTreeSet::new(),
                residents: BTreeSet::new(),
                scanning: false,
                granted_at: Mono(0),
                appends: 0,
                look_ups: 0,
                flushing: None,
                stored_start: None,
                failures: 0,
                waiting: Vec::new(),
                event_bytes: 0,
                snapshot_bytes: 0,
                scan_bytes: 0,
                sync_due: None,
                scan_is_void: false,
                copying: Copying::default(),
                watched: Watched::default(),
                counted: ShareCounters::default(),
            };
            self.parts.insert(number, part);
            number
        });
        if self.parts.get(&number).is_some_and(|part| matches!(part.state, PartState::Closed)) {
            self.open_state(number, None, out);
        }
        number
    }

    fn open_state(&mut self, number: u32, survivors: Option<BTreeMap<u64, Survivor>>, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        part.state = PartState::Opening(survivors);
        let (partition, generation) = (part.id, part.generation);
        let group = self.groups.get(&part.group).expect("a part goes before its group");
        if group.config.order == ShareOrder::Key {
            out.effect(Effect::IndexKeys(partition));
        }
        let group = Arc::clone(&group.name);
        let op = out.submit(Owner::Share, |op| Submission::OpenShareState { op, group, partition });
        self.ops.insert(op, Op::Open(number, generation));
    }

    pub(super) fn state_opened(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<ShareState, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(Op::Open(number, generation)) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get(&number).filter(|part| part.generation == generation) else { return };
        let (id, group) = (part.id, part.group);
        let config = self.config(group);
        let facts = logs.get(&id).copied();
        let (Ok(state), Some(facts)) = (result, facts) else { return self.load_failed(now, number) };
        let limits = Arc::clone(&self.limits.window);
        let Some(part) = self.parts.get_mut(&number) else { return };
        part.store = Some(state.state);
        part.scan_bytes = 0;
        part.event_bytes = state.events.iter().map(|event| event.bytes.len() as u64).sum();
        part.snapshot_bytes = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes.len() as u64);
        if state.snapshot.is_some() || !state.events.is_empty() {
            let Ok(recovery) = Recovery::begin(config, limits, state.snapshot, state.events) else {
                return self.load_failed(now, number);
            };
            let survivors = match std::mem::replace(&mut part.state, PartState::Closed) {
                PartState::Opening(survivors) => survivors,
                _ => None,
            };
            part.state = PartState::Loading(Box::new(recovery), survivors);
            return self.load_pages(now, number, logs, out);
        }
        match config.reset {
            ShareReset::Earliest => self.start_part(now, number, facts.log_start.get()),
            ShareReset::Latest => self.start_part(now, number, facts.end.get()),
            ShareReset::ByDuration(length_ms) => {
                part.state = PartState::Starting;
                let query = OffsetQuery::At(now.wall_ms.saturating_sub(length_ms));
                let op = out.submit(Owner::Share, |op| Submission::FindOffset { op, partition: id, query });
                self.ops.insert(op, Op::Start(number, generation));
            }
        }
    }

    /// Reads the next pages of a share-partition that is being loaded; opens it when all are there.
    fn load_pages(&mut self, now: Now, number: u32, logs: &LogTable, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        let PartState::Loading(recovery, survivors) = &mut part.state else { return };
        let pages = recovery.wanted();
        if let Some(state) = part.store.filter(|_| !pages.is_empty()) {
            let generation = part.generation;
            let op = out.submit(Owner::Share, |op| Submission::ReadPages { op, state, pages });
            self.ops.insert(op, Op::LoadPages(number, generation));
            return;
        }
        let (group, counted) = (part.group, part.counted);
        let log_start = logs.get(&part.id).map(|facts| facts.log_start.get());
        let survivors = survivors.take();
        let loading = std::mem::replace(&mut part.state, PartState::Opening(survivors.clone()));
        let PartState::Loading(recovery, _) = loading else { return };
        let (Ok(mut partition), Some(log_start)) = (recovery.finish(now), log_start) else {
            return self.load_failed(now, number);
        };
        partition.counters = counted;
        // Settings may have changed since the stored state was written, and while its pages were read.
        partition.configure(self.config(group));
        partition.recovered(now, log_start, survivors.as_ref());
        // Whenever it is read: that they were released may not have been stored before the disk refused something.
        self.release_readers(group, &mut partition, now);
        if survivors.is_none() {
            self.adopt_holders(now, group, &mut partition);
        }
        let stored = partition.window.start();
        self.opened(number, partition, Some(stored));
    }

    pub(super) fn load_pages_read(
        &mut self,
        now: Now,
        number: u32,
        generation: u32,
        result: Result<Vec<StoredState>, IoError>,
        logs: &LogTable,
        out: &mut Outbox<S>,
    ) {
        let Some(part) = self.parts.get_mut(&number).filter(|part| part.generation == generation) else {
            return;
        };
        let PartState::Loading(recovery, _) = &mut part.state else { return };
        let wanted = recovery.wanted().len();
        match result {
            Ok(pages) if pages.len() == wanted && recovery.supply(&pages, now).is_ok() => {
                self.load_pages(now, number, logs, out);
            }
            _ => self.load_failed(now, number),
        }
    }

    pub(super) fn start_found(
        &mut self,
        now: Now,
        op: OpId,
        result: Result<Option<FoundRecord>, IoError>,
        logs: &LogTable,
    ) {
        let Some(Op::Start(number, generation)) = self.ops.remove(&op) else { return };
        let Some(part) = self.parts.get(&number).filter(|part| part.generation == generation) else { return };
        let end = logs.get(&part.id).map(|facts| facts.end);
        match (result, end) {
            (Ok(found), Some(end)) => {
                self.start_part(now, number, found.map_or(end, |found| found.offset).get());
            }
            _ => self.load_failed(now, number),
        }
    }

    fn start_part(&mut self, now: Now, number: u32, at: i64) {
        let Some(part) = self.parts.get(&number) else { return };
        let mut partition = SharePartition::new(self.config(part.group), Arc::clone(&self.limits.window));
        partition.counters = part.counted;
        partition.start_at(at, now);
        self.opened(number, partition, None);
    }

    fn opened(&mut self, number: u32, partition: SharePartition, stored_start: Option<i64>) {
        if let Some(part) = self.parts.get_mut(&number) {
            part.stored_start = stored_start;
            part.state = PartState::Open(Box::new(partition));
            part.residents.clear();
        }
        self.dirty.insert(number);
        self.wake_describes(number);
        self.wake_admins();
    }

    /// Who asked is told; the next request tries again. Where memory was dropped while the broker runs it is read
    /// again in a while, since what is known of its locks is in no file.
    fn load_failed(&mut self, now: Now, number: u32) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        if let PartState::Opening(Some(survivors)) | PartState::Loading(_, Some(survivors)) =
            std::mem::replace(&mut part.state, PartState::Closed)
        {
            part.state = PartState::Broken(survivors);
            self.timers.set(Timer::Reload(number), Some(now.mono + RELOAD_AFTER));
        }
        for ask in part.asks.clone() {
            self.impatient(ask);
        }
        self.wake_describes(number);
        self.wake_admins();
    }

    /// Drops a share-partition's memory, since an append of its events failed and memory is ahead of the disk, and
    /// reads it back: at once, or where that failed just now, in a while.
    pub(super) fn reload(&mut self, now: Now, number: u32, out: &mut Outbox<S>) {
        let known = self.deliveries_out(number);
        let Some(part) = self.parts.get_mut(&number) else { return };
        let ended = part.flushing.take().unwrap_or_default().ended;
        let survivors = match &mut part.state {
            PartState::Open(open) => open.survivors(ended, |delivery| known.contains(&delivery)),
            _ => BTreeMap::new(),
        };
        let part_id = part.id;
        part.generation += 1;
        part.scanning = false;
        part.look_ups = 0;
        part.scan_is_void = false;
        part.copying = Copying::default();
        part.waiting.clear();
        part.failures += 1;
        self.timers.set(Timer::Part(number), None);
        if part.failures == 1 {
            self.open_state(number, Some(survivors), out);
        } else {
            part.state = PartState::Broken(survivors);
            self.timers.set(Timer::Reload(number), Some(now.mono + RELOAD_AFTER));
            for ask in part.asks.clone() {
                self.impatient(ask);
            }
        }
        self.fail_requests(now, number, part_id, ShareError::Unavailable, out);
    }

    /// Reads a share-partition again whose events the disk refused.
    pub(super) fn reload_due(&mut self, number: u32, out: &mut Outbox<S>) {
        let Some(part) = self.parts.get_mut(&number) else { return };
        if let PartState::Broken(survivors) = &mut part.state {
            let survivors = std::mem::take(survivors);
            self.open_state(number, Some(survivors), out);
        }
    }

    /// After a restart: whoever holds records is a member whose connections have just been lost with a fetch out. One
    /// that has given everything back since holds nothing any more.
    fn adopt_holders(&mut self, now: Now, group: u32, partition: &mut SharePartition) {
        let until = self.adopted_until(group, now.mono);
        let since = self.started.unwrap_or(now.mono);
        for name in partition.holder_names() {
            let number = self.member_number(group, &name);
            let member = self.member_mut(number);
            if member.gave_back {
                partition.release_member(&name, now);
            } else if member.connections.is_empty() && member.gone_since.is_none() {
                member.gone_since = Some(since);
                member.loss = Some(Loss::FetchOut);
                self.timers.set(Timer::Grace(number), Some(until));
            }
        }
    }

    /// How long a restart leaves their leases to members that nobody hears of.
    pub(super) fn adopted_until(&self, group: u32, now: Mono) -> Mono {
        self.started.unwrap_or(now) + Micros::from_ms(self.group(group).config.grace_ms())
    }

    /// A share-partition is gone, with its log or with its group.
    pub(super) fn drop_part(&mut self, now: Now, number: u32, out: &mut Outbox<S>) {
        for ask in self.parts.get(&number).map_or(BTreeSet::new(), |part| part.asks.clone()) {
            self.impatient(ask);
        }
        let Some(part) = self.parts.remove(&number) else { return };
        self.part_numbers.remove(&(part.id, part.group));
        if let Some(group) = self.groups.get_mut(&part.group) {
            group.parts.remove(&number);
            self.vacant.insert(part.group);
        }
        self.timers.set(Timer::Part(number), None);
        self.timers.set(Timer::ReadOn(number), None);
        self.timers.set(Timer::Sync(number), None);
        self.timers.set(Timer::Reload(number), None);
        self.timers.set(Timer::Letters(number), None);
        self.timers.set(Timer::Watch(number), None);
        self.dirty.remove(&number);
        self.fail_requests(now, number, part.id, ShareError::UnknownPartition, out);
        self.wake_describes(number);
        self.wake_admins();
    }

    /// Memory of a share-partition is gone, and with it what was granted and acknowledged in it without being answered.
    fn fail_requests(
        &mut self,
        now: Now,
        number: u32,
        partition: PartitionId,
        error: ShareError,
        out: &mut Outbox<S>,
    ) {
        for ask in self.asks.values_mut() {
            ask.grants.remove(&number);
            if let Some(acked) = ask.acked.get_mut(&partition) {
                *acked = Acknowledged::failed(error, acked.results.len());
            }
        }
        self.fail_answers(now, number, error, out);
    }
}
