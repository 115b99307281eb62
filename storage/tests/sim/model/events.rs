//! What an event log must hold.

use std::collections::BTreeMap;

/// An event: it speaks of the batch at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) serial: u64,
    pub(crate) epoch: i32,
    pub(crate) offset: i64,
    pub(crate) batch: u64,
}

impl Event {
    pub(crate) fn text(&self) -> String {
        format!("{},{},{},{}", self.serial, self.epoch, self.offset, self.batch)
    }

    /// The way back from [`Event::text`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let mut field = || fields.next()?.parse::<i64>().ok();
        let event = Self {
            serial: field()? as u64,
            epoch: field()? as i32,
            offset: field()?,
            batch: field()? as u64,
        };
        fields.next().is_none().then_some(event)
    }
}

/// The pages of a snapshot: by id, how long each is. What is in it follows from both.
pub(crate) type Pages = BTreeMap<u64, usize>;

/// The bytes of a page.
pub(crate) fn content(id: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|index| (id.wrapping_mul(0x9e37_79b9) >> (index % 24)) as u8 ^ index as u8).collect()
}

/// As a snapshot names them.
pub(crate) fn text(pages: &Pages) -> String {
    pages.iter().map(|(id, len)| format!("{id}:{len}")).collect::<Vec<_>>().join(",")
}

/// The way back from [`text`].
pub(crate) fn parse(text: &str) -> Option<Pages> {
    let page = |part: &str| {
        let (id, len) = part.split_once(':')?;
        Some((id.parse().ok()?, len.parse().ok()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(page).collect()
}

/// One event log.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventModel {
    /// The pages of its last snapshot.
    pub(crate) pages: Pages,
    /// All events so far.
    pub(crate) list: Vec<Event>,
    /// How many there were after each append: what survives must end there.
    pub(crate) ends: Vec<usize>,
    /// How many must survive a power cut.
    pub(crate) synced: usize,
    /// Were being appended when the process died.
    pub(crate) maybe: Vec<Event>,
    /// What was there before a deletion that no sync has reached, and may come back.
    pub(crate) ghosts: Vec<Self>,
}

impl EventModel {
    pub(crate) fn push(&mut self, events: Vec<Event>) {
        self.list.extend(events);
        self.ends.push(self.list.len());
    }

    /// Whether just these events can be there, of which `kept` must be.
    pub(crate) fn may_be(&self, found: &[Event], kept: usize) -> bool {
        let count = found.len();
        let known = count.min(self.list.len());
        if found[..known] != self.list[..known] || count < kept {
            return false;
        }
        if count <= self.list.len() {
            return count == 0 || self.ends.contains(&count);
        }
        !self.maybe.is_empty() && found[known..] == self.maybe[..]
    }

    /// Goes on with what was found.
    pub(crate) fn settle(&mut self, found: Vec<Event>) {
        self.synced = self.synced.min(found.len());
        self.ends.retain(|end| *end <= found.len());
        if self.ends.last() != Some(&found.len()) && !found.is_empty() {
            self.ends.push(found.len());
        }
        self.list = found;
        self.maybe.clear();
    }
}
