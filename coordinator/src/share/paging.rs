//! Paging: keys that wait long for a retry, or are parked, leave memory with a snapshot. They come back shortly before
//! their time, or when somebody's hand is on them; and parked ones where hardly any are left in memory to be shown.
//!
//! Leaving changes nothing that is durable, so it is no event: the snapshot tells the same in another form. Coming back
//! is one, which carries what was in the page, so that a replay need not read it.

use std::collections::BTreeSet;

use bytes::Bytes;
use records::ids::{KeyHash, Offset};

use super::ShareOrder;
use super::admin::{KeyRef, Why};
use super::alter::Subject;
use super::codec::{DecodeError, Reader, Writer};
use super::event::{Event, Wait};
use super::look::wall;
use super::page_table::{RestingPage, end_of};
use super::partition::{SharePartition, unscanned};
use super::resting::{Parked, Resting, RestingRecord, decode_page, encode_page};
use super::stops::WaitsFor;
use super::window::{RecordState, Slot};
use crate::io::PAGE_BYTES_MAX;
use crate::time::{Micros, Mono, Now};

/// About what a key costs that comes back from a page: queue, slot and wait.
const RETURNED_BYTES: u64 = 320;
/// Where too little could leave, it is tried again after this long.
const PAGE_OUT_AGAIN: Micros = Micros(1_000_000);
/// Pages that are read at a time in search of a key.
const SEARCHED_AT_ONCE: usize = 16;
/// Keys in a list of marked ones.
const LIST_KEYS_MAX: usize = (PAGE_BYTES_MAX - 16) / 8;
/// Of the stuck records that may stay in memory, one part in so many is for parked ones.
const PARKED_PARTS: usize = 4;
/// Lists of marked keys are written anew when they name this many more than twice as many as are marked.
const LISTED_SPARE: usize = 2 * LIST_KEYS_MAX;

impl SharePartition {
    /// Whether a snapshot would bring waiting keys, or marks of keys, out of memory.
    pub(crate) fn wants_page_out(&self, now: Now) -> bool {
        self.pages.marked.len() > self.limits.marks_max
            || (self.config.order == ShareOrder::Key
                && self.stuck_records() > self.waits_max()
                && now.mono >= self.page_out_from
                && (self.stops.parked_about() > self.parked_shown()
                    || self.last_wait_end().is_some_and(|end| end > self.pages_from(now))))
    }

    /// Records in memory that wait for a retry or for somebody's hand.
    fn stuck_records(&self) -> usize {
        self.waits.len() + self.stops.parked_about()
    }

    /// How many of them stay in memory: they take a quarter of the window at most.
    fn waits_max(&self) -> usize {
        let fit = self.config.window_bytes_max / 4 / RETURNED_BYTES;
        self.limits.waits_max.min(usize::try_from(fit).unwrap_or(usize::MAX))
    }

    /// How many of what is parked stay in memory, to be shown.
    fn parked_shown(&self) -> usize {
        (self.waits_max() / PARKED_PARTS).max(1)
    }

    /// Waits that end before stay in memory: they would be back at once.
    fn pages_from(&self, now: Now) -> Mono {
        now.mono + Micros::from_ms(2 * self.limits.page_lead_ms + 1)
    }

    /// Brings what is parked out of memory, and the longest waits, half of all: new pages.
    pub(super) fn page_out(&mut self, now: Now) -> Vec<(u64, Bytes)> {
        let mut pages = Vec::new();
        if self.config.order != ShareOrder::Key || self.stuck_records() <= self.waits_max() {
            return pages;
        }
        let wanted = self.stuck_records() - self.waits_max() / 2;
        let mut parked = self.parked();
        parked.truncate(self.parked_shown() + wanted);
        let mut left = self.rest_all(parked.get(self.parked_shown()..).unwrap_or_default(), now, &mut pages);
        if left < wanted {
            let longest = self.longest_waits(self.pages_from(now), wanted - left);
            let longest: Vec<Subject> = longest.into_iter().filter_map(|at| self.waiting(at)).collect();
            left += self.rest_all(&longest, now, &mut pages);
        }
        if left <= wanted / 4 {
            self.page_out_from = now.mono + PAGE_OUT_AGAIN;
        }
        pages
    }

    /// What is parked, keys and records without one: first the keys that no record parked, and then by offset.
    fn parked(&self) -> Vec<Subject> {
        let is_parked = |key| self.stops.key(key).is_some_and(|stop| !stop.follows);
        let mut keys = BTreeSet::new();
        let mut parked = Vec::new();
        for (offset, _) in self.stops.parked() {
            let Some(slot) = self.window.get(offset).filter(|slot| slot.scanned) else { continue };
            match self.key_of(slot) {
                None => parked.push(Subject::Record(offset)),
                Some(key) if is_parked(key) && keys.insert(key) => parked.push(Subject::Key(key)),
                Some(_) => {}
            }
        }
        let others = self.stops.keys().map(|stopped| stopped.0);
        let others = others.filter(|&key| is_parked(key) && !keys.contains(&key)).map(Subject::Key);
        others.chain(parked).collect()
    }

    /// Who waits with a waiting record; not what is parked.
    fn waiting(&self, offset: i64) -> Option<Subject> {
        let slot = self.window.get(offset).filter(|slot| slot.scanned)?;
        match self.key_of(slot) {
            None => Some(Subject::Record(offset)),
            Some(key) => self.stops.key(key).is_none().then_some(Subject::Key(key)),
        }
    }

    /// Brings these out of memory as far as they may go now: so many did.
    fn rest_all(&mut self, all: &[Subject], now: Now, pages: &mut Vec<(u64, Bytes)>) -> usize {
        let keys_max = self.limits.page_keys_max;
        // A page that is not full is one more to read for little.
        let full = all.len() / keys_max * keys_max;
        let all = &all[..if full == 0 { all.len() } else { full }];
        let mut left = 0;
        for some in all.chunks(keys_max) {
            let mut resting: Vec<Resting> = some.iter().filter_map(|&one| self.rest(one, now)).collect();
            resting.sort_unstable_by_key(Resting::lowest);
            left += resting.len();
            self.add_pages(&resting, now, pages);
        }
        left
    }

    fn add_pages(&mut self, resting: &[Resting], now: Now, pages: &mut Vec<(u64, Bytes)>) {
        if resting.is_empty() {
            return;
        }
        let scan = self.window.scan();
        let bytes = encode_page(scan, resting);
        if bytes.len() > PAGE_BYTES_MAX && resting.len() > 1 {
            let (front, back) = resting.split_at(resting.len() / 2);
            self.add_pages(front, now, pages);
            return self.add_pages(back, now, pages);
        }
        let id = self.pages.new_id();
        self.pages.add(id, RestingPage::of(resting, now));
        pages.push((id, bytes));
    }

    /// A waiting or parked key leaves memory, or a record without one; `None` where that cannot be now.
    fn rest(&mut self, subject: Subject, now: Now) -> Option<Resting> {
        let mut parked = Parked::default();
        let key = match subject {
            Subject::Key(key) => key,
            Subject::Record(offset) => {
                let records = vec![self.leave(offset, now, &mut parked)];
                return Some(Resting { key: None, records, later: None, parked: boxed(parked) });
            }
        };
        let is_parked = self.stops.key(key).is_some();
        // What is replayed of a key has to know what of it is not done. And of several waits the first took all of it.
        if self.replays.contains_key(&key) || self.queue.resting().contains(key) {
            return None;
        }
        let queued = self.queue.at_rest(&self.window, key)?;
        // A wait that ends soon would bring all of them back at once.
        let from = self.pages_from(now);
        let rests = |at: &i64| match self.window.slot(*at).state {
            RecordState::Queued => true,
            RecordState::Delayed => is_parked || self.waits.get(at).is_some_and(|wait| wait.1 >= from),
            RecordState::Stopped => {
                is_parked && self.stops.get(*at).is_some_and(|stop| stop.waits_for == WaitsFor::Hand)
            }
            _ => false,
        };
        if !queued.iter().all(rests) {
            return None;
        }
        let plain = |at: i64| {
            let slot = self.window.slot(at);
            slot.state == RecordState::Queued && slot.count == 0
        };
        let (plain, kept): (Vec<i64>, Vec<i64>) = queued.into_iter().partition(|&at| plain(at));
        for &at in &plain {
            self.window.spill(at);
        }
        let records: Vec<RestingRecord> =
            kept.into_iter().map(|at| self.leave(at, now, &mut parked)).collect();
        let span = self.queue.rest(key);
        parked.key = self.stops.remove_key(key);
        self.update_stop(key);
        let mut later = plain.first().copied().into_iter().chain(span).min();
        if records.is_empty() {
            // What will be found of it has to be known to rest here.
            later = later.or(Some(self.window.scan()));
        }
        Some(Resting { key: Some(key), records, later, parked: boxed(parked) })
    }

    /// A record loses its slot, what it is parked for, and its wait, which is told by the wall clock as it is now.
    fn leave(&mut self, offset: i64, now: Now, parked: &mut Parked) -> RestingRecord {
        if let Some((stop, text)) = self.stops.take(offset) {
            parked.records.push((offset, stop, text));
        }
        let wait = self.forget_wait(offset).map(|(wait, end)| told_now(wait, end, now));
        let slot = self.window.spill(offset).expect("what is queued has a slot");
        if self.key_of(&slot).is_none() {
            self.queue.remove_keyless(offset);
        }
        RestingRecord { offset, bytes: slot.bytes, count: slot.count, wait }
    }

    /// The page to read back now, if there is one and room for it; [`SharePartition::page_read`] or
    /// [`SharePartition::page_failed`] ends it.
    pub(crate) fn next_page(&mut self, now: Now) -> Option<u64> {
        let lead = Micros::from_ms(self.limits.page_lead_ms);
        let due = self.pages.first_due().filter(|page| page.0 <= now.mono + lead);
        let (due, id) = due.or_else(|| Some((now.mono, self.parked_page()?)))?;
        if self.pages.reading.is_some() {
            return None;
        }
        let bytes = self.pages.get(id).map_or(0, |page| u64::from(page.keys) * RETURNED_BYTES);
        // Where nothing else could go out, waiting for room might be for ever.
        let fits = self.heap_bytes() + bytes <= self.config.window_bytes_max / 8 * 7;
        let others = self.may_go_out() || self.queue.spans().is_hungry();
        if !fits && (due > now.mono || others) {
            return None;
        }
        self.pages.reading = Some(id);
        Some(id)
    }

    /// A page of what is parked that should be in memory: some of that is to be shown, and without order it would hold back
    /// what lies behind it, as far as is read there.
    fn parked_page(&self) -> Option<u64> {
        if !self.keeps_order() {
            return self.pages.parked_below(self.unordered_end());
        }
        let few = self.stops.parked_about() < self.parked_shown().div_ceil(2);
        self.pages.first_parked().filter(|_| few)
    }

    /// When the next page is due that is not yet: its time to be read, or where there was no room then, its own.
    pub(super) fn next_page_due(&self, now: Now) -> Option<Mono> {
        let due = self.pages.first_due()?.0;
        let lead = self.limits.page_lead_ms.unsigned_abs() * 1_000;
        [Mono(due.0.saturating_sub(lead)), due].into_iter().find(|&at| at > now.mono)
    }

    /// A page was read: what was in it is in memory again.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn page_read(
        &mut self,
        id: u64,
        bytes: &[u8],
        void_from: i64,
        now: Now,
    ) -> Result<(), DecodeError> {
        let Some(&page) = self.pages.get(id) else { return Ok(()) };
        let (scan, mut resting) = decode_page(bytes, void_from)?;
        for one in &mut resting {
            let marked = one.key.is_some_and(|key| self.queue.resting().is_marked(key));
            one.later = one.later.or(marked.then_some(scan));
            for record in &mut one.records {
                record.wait = record.wait.map(|wait| told_now(wait, end_of(wait, page.seen), now));
            }
        }
        self.unpage(id, &resting, now);
        self.note_event(&Event::Unpaged { page: id, resting });
        // Else what is due might go out of memory again before its timer comes.
        while let Some(offset) = self.wait_over(now.mono) {
            self.end_wait(offset);
        }
        Ok(())
    }

    /// Pages to look for a key or record in, behind the page `behind`, a few; none when all were looked at.
    /// [`SharePartition::page_failed`] with the first of them ends it. `None`: another one is being read.
    pub(crate) fn pages_to_search(&mut self, behind: u64) -> Option<Vec<u64>> {
        if self.pages.reading.is_some() {
            return None;
        }
        let pages: Vec<u64> = self.pages.ids_behind(behind).take(SEARCHED_AT_ONCE).collect();
        self.pages.reading = pages.first().copied();
        Some(pages)
    }

    /// A page could not be read: it is tried again.
    pub(crate) fn page_failed(&mut self, id: u64) {
        if self.pages.reading == Some(id) {
            self.pages.reading = None;
        }
    }

    /// What [`Event::Unpaged`] says.
    pub(super) fn unpage(&mut self, id: u64, resting: &[Resting], now: Now) {
        self.page_failed(id);
        self.pages.remove(id);
        for one in resting {
            if let Some(key) = one.key {
                self.queue.resting_mut().remove(key);
            }
            let parked = one.parked.as_deref();
            if let (Some(key), Some(stop)) = (one.key, parked.and_then(|parked| parked.key)) {
                self.stop_key(key, stop);
            }
            for record in
                one.records.iter().filter(|record| self.is_spilled(record.offset)).collect::<Vec<_>>()
            {
                let &RestingRecord { offset, bytes, count, wait } = record;
                let slot = Slot { key: one.key, bytes, count, scanned: true, ..unscanned() };
                self.window.insert(offset, slot);
                match wait {
                    Some(wait) => self.delay(offset, wait, now),
                    None => self.enqueue(offset, &slot),
                }
                if let Some((_, stop, text)) =
                    parked.and_then(|parked| parked.records.iter().find(|record| record.0 == offset))
                {
                    self.stop_record(offset, *stop, false);
                    if !text.is_empty() {
                        self.stops.explain(offset, text);
                    }
                }
            }
            let Some(key) = one.key else { continue };
            let last = self.window.scan() - 1;
            if let Some(later) =
                one.later.map(|later| later.max(self.window.start())).filter(|&at| at <= last)
            {
                self.queue.spans_mut().add(key, later, last, 1);
                if self.config.order == ShareOrder::Key {
                    self.queue.queue_span(&self.window, key);
                }
            } else {
                self.queue.span_changed(&self.window, key);
            }
        }
        self.settle_unslotted();
    }

    /// Pages for the lists of marked keys, where they are due.
    pub(super) fn write_marks(&mut self, pages: &mut Vec<(u64, Bytes)>) {
        let resting = self.queue.resting();
        let listed: usize = self.pages.marks.iter().map(|list| list.1 as usize).sum();
        let stale = listed > 2 * resting.marked() + LISTED_SPARE || resting.is_empty();
        if stale {
            let lists: Vec<u64> = self.pages.marks.drain(..).map(|list| list.0).collect();
            lists.into_iter().for_each(|list| self.pages.drop_page(list));
            self.pages.marked = self.queue.resting().iter_marked().collect();
        }
        if self.pages.marked.len() > self.limits.marks_max / 2 {
            let keys = std::mem::take(&mut self.pages.marked);
            for keys in keys.chunks(LIST_KEYS_MAX) {
                let id = self.pages.new_id();
                pages.push((id, encode_list(keys)));
                self.pages.marks.push((id, keys.len() as u32));
            }
        }
    }

    /// A page of resting keys is known, after a restart; its keys.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn restore_page(
        &mut self,
        id: u64,
        bytes: &[u8],
        end: i64,
        now: Now,
    ) -> Result<Vec<KeyHash>, DecodeError> {
        let (_, resting) = decode_page(bytes, end)?;
        let keys: Vec<KeyHash> = resting.iter().filter_map(|one| one.key).collect();
        for &key in &keys {
            self.queue.resting_mut().insert(key);
        }
        self.pages.add(id, RestingPage::of(&resting, now));
        Ok(keys)
    }

    /// Keys of a page that has come back.
    pub(super) fn forget_resting(&mut self, keys: &[KeyHash]) {
        for &key in keys {
            self.queue.resting_mut().remove(key);
        }
    }

    /// A list of marked keys is known, after a restart. Those of them that have come back since mean nothing.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn restore_list(&mut self, id: u64, bytes: &[u8]) -> Result<(), DecodeError> {
        let keys = decode_list(bytes)?;
        for &key in &keys {
            self.queue.resting_mut().mark(key);
        }
        self.pages.marks.push((id, keys.len() as u32));
        Ok(())
    }
}

/// What a page holds of a key, or of the key of a record that was delivered before.
///
/// # Errors
/// It is damaged.
pub(crate) fn find_in_page(
    bytes: &[u8],
    void_from: i64,
    wanted: KeyRef,
) -> Result<Option<Resting>, DecodeError> {
    let (_, resting) = decode_page(bytes, void_from)?;
    Ok(resting.into_iter().find(|one| match wanted {
        KeyRef::Key(key) => one.key == Some(key),
        KeyRef::Offset(offset) => one.records.iter().any(|record| record.offset == offset.get()),
    }))
}

/// Why what was found in a page is not delivered, `page` being what memory knows of it.
pub(crate) fn why_at_rest(one: &Resting, page: &RestingPage, now: Now) -> Why {
    if let Some(parked) = &one.parked {
        let by_key = parked.key.map(|stop| (stop.at, stop.wall_ms));
        let by_record = parked.records.first().map(|record| (record.0, record.1.wall_ms));
        if let Some((offset, since_ms)) = by_key.or(by_record) {
            return Why::Parked { since_ms, offset: Offset(offset) };
        }
    }
    let waits = one.records.iter().filter_map(|record| record.wait);
    let end = waits.map(|wait| end_of(wait, page.seen)).next().unwrap_or(page.due);
    Why::Retry { until_ms: wall(now, end) }
}

fn boxed(parked: Parked) -> Option<Box<Parked>> {
    (parked != Parked::default()).then(|| Box::new(parked))
}

/// A wait as the wall clock of now tells it.
fn told_now(wait: Wait, end: Mono, now: Now) -> Wait {
    let left_ms = (end - now.mono).as_ms_ceil().min(wait.full_ms.max(0));
    Wait { until_wall_ms: now.wall_ms.saturating_add(left_ms), ..wait }
}

fn encode_list(keys: &[KeyHash]) -> Bytes {
    let mut writer = Writer::default();
    writer.number(keys.len() as u64);
    keys.iter().for_each(|key| writer.fixed(key.0));
    writer.0.into()
}

fn decode_list(bytes: &[u8]) -> Result<Vec<KeyHash>, DecodeError> {
    let mut reader = Reader(bytes);
    let count = reader.small()?;
    let mut keys = Vec::with_capacity(reader.capacity(count));
    for _ in 0..count {
        keys.push(KeyHash(reader.fixed()?));
    }
    if reader.0.is_empty() { Ok(keys) } else { Err(DecodeError) }
}
