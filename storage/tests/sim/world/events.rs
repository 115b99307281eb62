//! Event logs beside a partition.

use bytes::Bytes;
use storage::{Replay, StorageError};

use super::World;
use super::lives::Begin;
use crate::model::Ending;
use crate::model::events::{self, Event, EventModel, Pages};
use crate::report::{Checked, ensure};

/// Event logs beside one partition.
const NAMES: u64 = 2;
/// Lengths of pages: of none, of less than a block, of one, of several.
const PAGE_BYTES: [i64; 6] = [0, 1, 300, 4096, 5000, 20_000];

impl World {
    /// Opens an event log after a start, and checks what came back.
    pub(super) fn open_events(&mut self, index: usize, name: u64) -> Result<(), Begin> {
        let id = self.models[index].id;
        let (_, replay) = self.logs().open_events(id, name)?;
        let log = format!("{}/share-{name}", self.models[index].directory());
        let found = parse(&replay);
        self.note(|| {
            format!("events {log}: {:?}", found.as_ref().map(|(events, pages)| (events.len(), pages)))
        });
        let Some((found, pages)) = found else {
            ensure!(false, Events, "{log}: an event that nobody wrote: {replay:?}");
            return Ok(());
        };
        let ending = self.models[index].ending.unwrap_or(Ending::Clean);
        let events = self.models[index].events.get_mut(&name).expect("it is known");
        let kept = if ending == Ending::Cut { events.synced } else { events.list.len() };
        if !events.may_be(&found, kept) {
            let ghost = events.ghosts.iter().find(|ghost| ghost.may_be(&found, 0)).cloned();
            let serials = |events: &[Event]| events.iter().map(|event| event.serial).collect::<Vec<_>>();
            let (come, known, ends) = (serials(&found), serials(&events.list), &events.ends);
            ensure!(
                ghost.is_some(),
                Events,
                "{log}: {come:?} of {known:?} after {ending:?}, {kept} must be there, in steps {ends:?}"
            );
            *events = EventModel { synced: 0, ..ghost.unwrap_or_default() };
        }
        if ending != Ending::Kill {
            events.ghosts.clear();
        }
        events.settle(found);
        // Whichever snapshot it is, it has its own pages.
        events.pages = pages;
        self.check_pages(index, name)?;
        Ok(())
    }

    /// A snapshot's pages are there, byte for byte, and no others.
    pub(crate) fn check_pages(&mut self, index: usize, name: u64) -> Checked {
        let (id, log) = (self.models[index].id, format!("{}/share-{name}", self.models[index].directory()));
        let pages =
            self.models[index].events.get(&name).map(|events| events.pages.clone()).unwrap_or_default();
        let ids: Vec<u64> = pages.keys().copied().collect();
        let there = self.logs().pages_of(id, name);
        let is_same = there.as_ref().is_ok_and(|there| *there == ids);
        ensure!(is_same, Pages, "{log}: has the pages {there:?} instead of {ids:?}");
        let read = self.logs().read_pages(id, name, &ids);
        if self.sim.is_dead() {
            return Ok(());
        }
        let is_whole = read.as_ref().is_ok_and(|read| {
            let expected = pages.iter().map(|(id, len)| events::content(*id, *len));
            read.iter().map(|(_, bytes)| bytes.to_vec()).eq(expected)
        });
        let failed = read.err();
        ensure!(is_whole, Pages, "{log}: pages are not what they were: {failed:?}");
        Ok(())
    }

    pub(super) fn append_events(&mut self, index: usize) -> Checked {
        let name = self.random.below(NAMES);
        if !self.know_events(index, name)? {
            return Ok(());
        }
        let epoch = self.epoch;
        let mut group = Vec::new();
        for _ in 0..self.random.between(1, 3) {
            let serial = self.number();
            let model = &self.models[index];
            let live = model.live();
            let (offset, batch) = match live.len() {
                0 => (model.end, 0),
                count => {
                    let batch = &live[count - 1 - self.random.index(count.min(4))];
                    (batch.base, batch.serial)
                }
            };
            group.push(Event { serial, epoch, offset, batch });
        }
        let frames: Vec<Bytes> = group.iter().map(|event| Bytes::from(event.text())).collect();
        let id = self.models[index].id;
        let answer = self.logs().append_events(id, name, epoch, &frames);
        let log = format!("{}/share-{name}", self.models[index].directory());
        self.note(|| format!("events {log} {group:?}: {answer:?}"));
        let is_dead = self.sim.is_dead();
        let model = &mut self.models[index];
        let events = model.events.get_mut(&name).expect("it is known");
        match answer {
            Ok(_) => {
                ensure!(!model.is_poisoned, Poison, "{log}: poisoned, and took events");
                events.push(group);
            }
            Err(_) if is_dead => events.maybe = group,
            Err(error) => {
                let is_poison = matches!(error, StorageError::Poisoned);
                ensure!(model.is_poisoned || self.may_fail(), Poison, "{log}: events are refused: {error}");
                self.models[index].is_poisoned |= is_poison;
            }
        }
        Ok(())
    }

    /// Replaces all events with one snapshot of them.
    pub(super) fn write_snapshot(&mut self, index: usize) -> Checked {
        let name = self.random.below(NAMES);
        if !self.know_events(index, name)? {
            return Ok(());
        }
        let texts: Vec<String> = self.models[index].events[&name].list.iter().map(Event::text).collect();
        let (pages, added, dropped) = self.change_pages(index, name);
        let snapshot = format!("{}|{}", texts.join(";"), events::text(&pages));
        let (id, epoch) = (self.models[index].id, self.epoch);
        let answer = self.logs().write_snapshot(id, name, epoch, snapshot.as_bytes(), &added, &dropped);
        let log = format!("{}/share-{name}", self.models[index].directory());
        self.note(|| format!("snapshot {log} of {}, pages {pages:?}: {answer:?}", texts.len()));
        if answer.is_ok() {
            self.models[index].events.get_mut(&name).expect("it is known").pages = pages;
        }
        if !self.sim.is_dead() {
            self.check_pages(index, name)?;
        }
        if let Err(error) = answer {
            let is_poison = matches!(error, StorageError::Poisoned);
            let is_poisoned = self.models[index].is_poisoned;
            ensure!(is_poisoned || self.may_fail(), Poison, "{log}: a snapshot is refused: {error}");
            self.models[index].is_poisoned |= is_poison && !self.sim.is_dead();
        }
        Ok(())
    }

    /// What a snapshot makes of the pages: those that it has then, which of them are new, and which go.
    fn change_pages(&mut self, index: usize, name: u64) -> (Pages, Vec<(u64, Bytes)>, Vec<u64>) {
        let mut pages = self.models[index].events[&name].pages.clone();
        let (mut added, mut dropped) = (Vec::new(), Vec::new());
        if !self.plan.pages {
            return (pages, added, dropped);
        }
        for id in pages.keys().copied().collect::<Vec<_>>() {
            if self.random.percent(40) {
                pages.remove(&id);
                dropped.push(id);
            }
        }
        for _ in 0..self.random.below(4) {
            let (id, len) = (self.number(), self.random.pick(&PAGE_BYTES) as usize);
            pages.insert(id, len);
            added.push((id, Bytes::from(events::content(id, len))));
        }
        (pages, added, dropped)
    }

    pub(super) fn delete_events(&mut self, index: usize) -> Checked {
        let name = self.random.below(NAMES);
        if !self.models[index].events.contains_key(&name) {
            return Ok(());
        }
        let id = self.models[index].id;
        let answer = self.logs().delete_events(id, name);
        let log = format!("{}/share-{name}", self.models[index].directory());
        self.note(|| format!("delete {log}: {answer:?}"));
        ensure!(answer.is_ok() || self.may_fail(), Fails, "{log}: cannot be deleted: {answer:?}");
        let model = &mut self.models[index];
        let mut before = model.events.remove(&name).expect("it is known");
        let mut ghosts = std::mem::take(&mut before.ghosts);
        ghosts.push(before);
        model.events.insert(name, EventModel { ghosts, ..EventModel::default() });
        if self.sim.is_dead() {
            return Ok(());
        }
        if answer.is_err() {
            // Nobody knows what is left of it: the process ends, and looks.
            return self.end(Ending::Kill);
        }
        let opened = self.logs().open_events(id, name);
        ensure!(opened.is_ok() || self.may_fail(), Fails, "{log}: cannot be opened: {opened:?}");
        if let Ok((facts, replay)) = opened {
            ensure!(
                !facts.existed && replay == Replay::default(),
                Events,
                "{log}: is still there: {replay:?}"
            );
        }
        self.sync(index)
    }

    /// Opens an event log for the first time; whether it can be used.
    fn know_events(&mut self, index: usize, name: u64) -> Checked<bool> {
        if self.models[index].events.contains_key(&name) {
            return Ok(true);
        }
        let id = self.models[index].id;
        let opened = self.logs().open_events(id, name);
        ensure!(opened.is_ok() || self.may_fail(), Fails, "share-{name} cannot be opened: {opened:?}");
        let Ok((facts, replay)) = opened else { return Ok(false) };
        ensure!(!facts.existed, Events, "share-{name} is there before it was made: {replay:?}");
        self.models[index].events.insert(name, EventModel::default());
        Ok(true)
    }
}

/// The events in a replay, each under the epoch that it names, and the pages that its snapshot names; `None` where one
/// was never written so.
fn parse(replay: &Replay) -> Option<(Vec<Event>, Pages)> {
    let mut events = Vec::new();
    let mut pages = Pages::new();
    if let Some((_, snapshot)) = &replay.snapshot {
        let (text, named) = std::str::from_utf8(snapshot).ok()?.split_once('|')?;
        pages = events::parse(named)?;
        for part in text.split(';').filter(|part| !part.is_empty()) {
            events.push(Event::parse(part)?);
        }
    }
    for (epoch, body) in &replay.events {
        let event = Event::parse(std::str::from_utf8(body).ok()?)?;
        if event.epoch != *epoch {
            return None;
        }
        events.push(event);
    }
    Some((events, pages))
}
